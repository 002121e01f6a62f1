"""Where a scan drops its carry, by what it means: under `reset`, in a coefficient, an update or a let. RLS406 on the wrong side.

A flag called done marks its episode's last step. A backward scan therefore drops its carry where done[t] holds, a forward one
where done[t-1] does. Another step's flag may take part (a reward of the last step alone, say) where the right one always drops
the carry; where it does not, a carry that hangs on another step's flag is dropped a step too early or too late.

Expressions here have every let and output written out, and each read in them keeps the chain of names that led to it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product

from rlscan.diagnostics import SpecError
from rlscan.ir import ZERO, Call, Const, Expr, Ref, Scan, Stage, Take, children, rebuild, walk
from rlscan.operators import forgetful
from rlscan.spec import LAST_STEPS
from rlscan.words import text

MAX_FLAGS = 8
TRUE, FALSE = Const(True, "flag"), Const(False, "flag")
Case = Mapping[Expr, bool]
_COMPARED: dict[str, Callable[[float, float], bool]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip


# -- the side ---------------------------------------------------------------------------------------------------------


def refuse_wrong_side(scan: Scan) -> None:
    """RLS406 for a carry that the flag of the wrong step drops, however it is written.

    A scan whose results read no carry where an episode ends may drop it at whichever step it likes.
    """
    for stage in scan.stages:
        if all(carry.name in scan.crosses for carry in stage.carries):
            continue
        for flag in last_steps(scan, stage):
            end = replace(flag, offset=right(stage))
            if flag.offset == end.offset or drops(scan, stage, {end: True}):
                continue
            if _hangs_on(scan, stage, flag, end) and _carry_read(scan, stage, {end: True}):
                raise _wrong_side(scan, stage, flag, end)


def _hangs_on(scan: Scan, stage: Stage, flag: Ref, end: Ref) -> bool:
    """Whether in some case the flag drops the carry, or keeps it where the episode ends."""
    others = [atom for atom in _deciding(scan, stage) if flag not in refs(atom)]
    if len(others) > MAX_FLAGS:
        ends: list[Expr] = [atom for atom in others if isinstance(atom, Ref) and atom.name in LAST_STEPS]
        others = ends[:MAX_FLAGS]
    for values in product((False, True), repeat=len(others)):
        case = dict(zip(others, values, strict=True))
        holding, not_holding = (drops(scan, stage, {**case, flag: value}) for value in (True, False))
        if (holding and not not_holding) or (case.get(end) and not_holding and not holding):
            return True
    return False


def _carry_read(scan: Scan, stage: Stage, case: Case) -> bool:
    """Whether a result, or another scan, reads the carry in this case."""
    carries = {carry.name for carry in stage.carries}
    # In a forward scan the flag at t-1 ends the episode before t, so results are asked at the step that reads it.
    read = [output.value for output in scan.outputs]
    read += [expr for other in scan.stages if other.carries != stage.carries for expr in other.step]
    return any(ref.name in carries for expr in read for ref in refs(resolve(inline(scan, expr, 0), case)))


def _wrong_side(scan: Scan, stage: Stage, flag: Ref, end: Ref) -> SpecError:
    # The one of the names that lead to the flag whose own offset is wrong: the last one that has any.
    use = next((link for link in reversed(flag.via) if link.offset), flag.via[-1])
    meant = replace(use, offset=use.offset + end.offset - flag.offset)
    through = f" as `{read_text(use)}` reads it," if use.name != flag.name else ""
    when = "early" if flag.offset > end.offset else "late"
    dropped = "at that step" if stage.toward > 0 else "at the step after it"
    edge = ""
    if meant.offset < 0 and scan.edge(use.name) is None:
        edge = (
            f", with `{use.name}: false` under `edge`" if use.kind == "flag" else f", with an `edge` for `{use.name}`"
        )
    return SpecError(
        "RLS406",
        f"the reset is on the wrong side: where `{read_text(flag)}` holds,{through} a {stage.direction} scan drops its "
        f"carry too {when}",
        use.span or stage.reset_span or stage.spans[0],
        f"`{flag.name}` marks an episode's last step, and a {stage.direction} scan drops its carry {dropped}:\n"
        f"write `{read_text(meant)}`{edge}; a flag that marks a first step has another name, such as `start`",
    )


def with_ends(scan: Scan, stage: Stage) -> Stage:
    """The stage with the reset that its coefficients make where it has none; a kept step carries on, so makes none."""
    if stage.reset is not None or stage.keep is not None:
        return stage
    flags = [flag for flag in last_steps(scan, stage) if flag.offset == right(stage)]
    ends = tuple(flag for flag in flags if drops(scan, stage, {flag: True}))
    if not ends or drops(scan, stage, {}):
        return stage
    return replace(stage, reset=ends[0] if len(ends) == 1 else Call("or", ends, "flag"), reset_span=stage.spans[0])


def right(stage: Stage) -> int:
    """The offset at which a flag of an episode's last step drops a stage's carry."""
    return 0 if stage.toward > 0 else -1


def last_steps(scan: Scan, stage: Stage) -> list[Ref]:
    """The flags of episodes' last steps that the reset or the coefficients of the carry read."""
    found = (ref for expr in _dropping(scan, stage) for ref in refs(expr))
    return [ref for ref in dict.fromkeys(found) if ref.name in LAST_STEPS and ref.kind == "flag" and ref.timed]


def drops(scan: Scan, stage: Stage, case: Case) -> bool:
    """Whether the carry is dropped wherever these flags are so, whatever the others are."""
    if stage.reset is not None and resolve(inline(scan, stage.reset, 0), case) == TRUE:
        return True
    found = _coefficients(stage)
    return bool(found) and all(vanished(resolve(inline(scan, expr, 0), case), forgot) for expr, forgot in found)


def _coefficients(stage: Stage) -> list[tuple[Expr, Expr]]:
    """What the carry meets in a step, each with its value in a step that drops the carry."""
    if stage.operator.name == "custom":
        return []
    pairs = zip(stage.raw, forgetful(stage.operator), strict=True)
    return [(expr, forgot) for expr, forgot in pairs if forgot is not None]


def _dropping(scan: Scan, stage: Stage) -> list[Expr]:
    written = [expr for expr, _ in _coefficients(stage)]
    return [inline(scan, expr, 0) for expr in ([stage.reset] if stage.reset is not None else []) + written]


def _deciding(scan: Scan, stage: Stage) -> list[Expr]:
    """The truth values that the reset is built of, and the conditions in the coefficients."""
    found = [*atoms(inline(scan, stage.reset, 0))] if stage.reset is not None else []
    for expr in _dropping(scan, stage):
        for node in walk(expr):
            if isinstance(node, Call) and node.fn == "where":
                found += atoms(node.args[0])
    return list(dict.fromkeys(found))


def vanished(expr: Expr, nothing: Expr) -> bool:
    """Whether a coefficient is the one that drops a carry: itself, as a factor, in both branches, or as 1 - 1."""
    if expr == nothing:
        return True
    if not isinstance(expr, Call):
        return False
    if expr.fn == "where":
        return vanished(expr.args[1], nothing) and vanished(expr.args[2], nothing)
    if nothing != ZERO:
        return False
    if expr.fn == "mul":
        return any(vanished(arg, nothing) for arg in expr.args)
    if expr.fn in ("div", "neg"):
        return vanished(expr.args[0], nothing)
    if expr.fn == "add":
        return all(vanished(arg, nothing) for arg in expr.args)
    return expr.fn == "sub" and isinstance(expr.args[0], Const) and expr.args[0] == expr.args[1]


# -- expressions written out ------------------------------------------------------------------------------------------


def inline(scan: Scan, expr: Expr, shift: int, via: tuple[Ref, ...] = ()) -> Expr:
    """The expression `shift` steps on, lets and outputs written out. An edge's value counts as the neighbour it stands for.

    What is named under `crosses` is left as it is: its reads are allowed, whatever they read in turn.
    """
    if isinstance(expr, Ref):
        offset = expr.offset + shift if expr.timed else 0
        made = None if expr.name in scan.crosses else scan.definition(expr.name)
        chain = (*via, expr)
        if made is not None:
            return inline(scan, made.value, offset, chain)
        return replace(expr, offset=offset, via=chain)
    if isinstance(expr, Take):
        moved = inline(scan, expr.source, shift, via)
        if not isinstance(moved, Ref):
            raise AssertionError("take reads an input")
        return Take(moved, inline(scan, expr.index, shift, via), expr.axis, expr.span)
    return rebuild(expr, lambda child: inline(scan, child, shift, via))


def atoms(expr: Expr) -> Iterator[Expr]:
    """The truth values that a flag expression is built of."""
    if isinstance(expr, Call) and expr.fn in ("and", "or", "not", "where"):
        for arg in expr.args:
            yield from atoms(arg)
    elif not isinstance(expr, Const):
        yield expr


def resolve(expr: Expr, case: Case) -> Expr:
    """The expression where these flags are so: what is decided is gone, the branches of where not taken too."""
    if expr in case:
        return Const(case[expr], "flag")
    expr = rebuild(expr, lambda child: resolve(child, case))
    if not isinstance(expr, Call):
        return expr
    args = expr.args
    match expr.fn:
        case "not" if isinstance(args[0], Const):
            return Const(not args[0].value, "flag")
        case "and":
            rest = tuple(arg for arg in args if arg != TRUE)
            return FALSE if FALSE in rest else TRUE if not rest else Call("and", rest, "flag", expr.span)
        case "or":
            rest = tuple(arg for arg in args if arg != FALSE)
            return TRUE if TRUE in rest else FALSE if not rest else Call("or", rest, "flag", expr.span)
        case "where" if isinstance(args[0], Const):
            return args[1] if args[0].value else args[2]
        case fn if fn in _COMPARED and isinstance(x := args[0], Const) and isinstance(y := args[1], Const):
            return Const(_COMPARED[fn](x.value, y.value), "flag")
    return expr


def refs(expr: Expr) -> Iterator[Ref]:
    if isinstance(expr, Ref):
        yield expr
    for child in children(expr):
        yield from refs(child)


# -- words ------------------------------------------------------------------------------------------------------------


def guard(flags: Iterable[Expr], shift: int = 0) -> str:
    return " or ".join(flag_text(flag, shift) for flag in flags)


def flag_text(flag: Expr, shift: int = 0) -> str:
    """The flag as a spec would write it `shift` steps on."""
    moved = _moved(flag, -shift)
    if isinstance(moved, Ref):
        return read_text(moved)
    words = text(moved, 3)
    # Fit to be copied into a spec, or else described.
    return words if words.isascii() else "the reset's condition"


def read_text(ref: Ref) -> str:
    return f"{ref.name}[t{ref.offset:+d}]" if ref.offset and ref.timed else f"{ref.name}[t]" if ref.timed else ref.name


def _moved(expr: Expr, by: int) -> Expr:
    if isinstance(expr, Ref):
        return replace(expr, offset=expr.offset + by) if expr.timed else expr
    return rebuild(expr, lambda child: _moved(child, by))
