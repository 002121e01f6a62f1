"""Episode isolation: where an episode ends, nothing of the other side is read. Proved, or refused with the guard to write.

Let R be the reset. Of a backward scan, R at step t separates t from t+1; of a forward one, t−1 from t. A read of `x[t+k]`
crosses every boundary between t and t+k. For each, assume R there, case by case over the flags in it, resolve every `where`
(a select lets nothing of the branch not taken through, NaN included; a product with zero does not count) and look at what is
still read beyond it. The flags of R itself may be read: they say where the end is.

Where one scan resets, every other must too, or its carry brings the other side in: `crosses: [carry]` allows that, as
`crosses: [x]` allows a read of x, on purpose. A spec without a reset has no episodes and nothing to prove.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product

from rlscan.diagnostics import Span, SpecError
from rlscan.ir import ZERO, Call, Const, Expr, Law, Ref, Scan, Stage, Take, children, rebuild
from rlscan.operators import forgetful
from rlscan.spec import LAST_STEPS
from rlscan.words import text

_MAX_FLAGS = 8
_TRUE, _FALSE = Const(True, "flag"), Const(False, "flag")


def prove_isolation(scan: Scan) -> list[Law]:
    """A law for each stage with a reset; RLS404 where a read crosses, RLS406 where the reset is on the wrong side."""
    laws = []
    for stage in scan.stages:
        _refuse_wrong_side(scan, stage)
    for stage in map(partial(_with_ends, scan), scan.stages):
        if stage.reset is None:
            continue
        written = stage in scan.stages
        if not written:
            carries = ", ".join(carry.name for carry in stage.carries)
            laws.append(
                Law(
                    "reset",
                    f"where {_guard(_atoms(stage.reset))} holds, the carry {carries} is dropped",
                    "its coefficient is exactly zero there",
                )
            )
        parts = zip(stage.operator.elements, stage.raw, stage.spans, forgetful(stage.operator), strict=True)
        for element, expr, span, forgot in parts:
            # The coefficient of a carry that is dropped here may be anything: the reset replaces it.
            drops = forgot is not None and written
            _isolated(scan, stage, f"`{element}`", _inline(scan, expr, 0), span, own_reset_replaces=drops)
        if stage.keep is not None:
            # Whether a step is kept decides what it is, where it is reset too.
            keep = _inline(scan, stage.keep, 0)
            _isolated(scan, stage, "`keep`", keep, stage.spans[0], own_reset_replaces=False)
        for other in scan.stages:
            if other.carries != stage.carries:
                _cuts_too(scan, stage, other)
        for output in scan.outputs:
            value = _inline(scan, output.value, 0)
            _isolated(scan, stage, f"the output `{output.name}`", value, output.span, own_reset_replaces=False)
        names = ", ".join(output.name for output in scan.outputs)
        laws.append(
            Law(
                "isolation",
                f"where {_whose(scan, stage)} reset holds, {names} read nothing of the other side",
                "by cases over the reset's flags, every where resolved",
            )
        )
    return laws


def _with_ends(scan: Scan, stage: Stage) -> Stage:
    """The stage with the reset that its coefficients make where it has none; a kept step carries on, so makes none."""
    if stage.reset is not None or stage.keep is not None:
        return stage
    flags = [flag for flag in _last_steps(scan, stage) if flag.offset == _right(stage)]
    ends = tuple(flag for flag in flags if _drops(scan, stage, {flag: True}))
    if not ends or _drops(scan, stage, {}):
        return stage
    return replace(stage, reset=ends[0] if len(ends) == 1 else Call("or", ends, "flag"), reset_span=stage.spans[0])


def _right(stage: Stage) -> int:
    """The offset at which a flag of an episode's last step drops a stage's carry."""
    return 0 if stage.toward > 0 else -1


def _last_steps(scan: Scan, stage: Stage) -> list[Ref]:
    """The flags of episodes' last steps that decide over the coefficients of the carry."""
    refs = (ref for expr, _ in _coefficients(stage) for ref in _refs(_inline(scan, expr, 0)))
    return [ref for ref in dict.fromkeys(refs) if ref.name in LAST_STEPS and ref.kind == "flag" and ref.timed]


def _coefficients(stage: Stage) -> list[tuple[Expr, Expr]]:
    """What the carry meets in a step, each with its value in a step that drops the carry."""
    if stage.operator.name == "custom":
        return []
    pairs = zip(stage.raw, forgetful(stage.operator), strict=True)
    return [(expr, forgot) for expr, forgot in pairs if forgot is not None]


def _drops(scan: Scan, stage: Stage, case: dict[Expr, bool]) -> bool:
    """Whether the carry is dropped wherever these flags are so, whatever the others are."""
    if stage.reset is not None and _resolve(_inline(scan, stage.reset, 0), case) == _TRUE:
        return True
    coefficients = _coefficients(stage)
    return bool(coefficients) and all(
        _vanished(_resolve(_inline(scan, expr, 0), case), forgot) for expr, forgot in coefficients
    )


def _vanished(expr: Expr, nothing: Expr) -> bool:
    """Whether a coefficient is the one that drops a carry: itself, as a factor, in both branches, or as 1 - 1."""
    if expr == nothing:
        return True
    if not isinstance(expr, Call):
        return False
    if expr.fn == "where":
        return _vanished(expr.args[1], nothing) and _vanished(expr.args[2], nothing)
    if nothing != ZERO:
        return False
    if expr.fn == "mul":
        return any(_vanished(arg, nothing) for arg in expr.args)
    if expr.fn in ("div", "neg"):
        return _vanished(expr.args[0], nothing)
    if expr.fn == "add":
        return all(_vanished(arg, nothing) for arg in expr.args)
    return expr.fn == "sub" and isinstance(expr.args[0], Const) and expr.args[0] == expr.args[1]


def _refuse_wrong_coefficient(scan: Scan, stage: Stage) -> None:
    """The same fault without `reset`: a coefficient that a flag of the wrong step makes zero, and that of the right one does not.

    A scan whose results read no carry where an episode ends may say so at whichever step it likes.
    """
    if stage.reset is not None and not any(ref.name in LAST_STEPS for ref in _refs(_inline(scan, stage.reset, 0))):
        return
    right = _right(stage)
    carries = {carry.name for carry in stage.carries}
    for flag in _last_steps(scan, stage):
        end = replace(flag, offset=right)
        if flag.offset == right or _drops(scan, stage, {end: True}):
            continue
        if not _drops(scan, stage, {flag: True}) or _drops(scan, stage, {flag: False}):
            continue
        # In a forward scan the flag at t-1 ends the episode before t, so results are asked at the step that reads it.
        read = [output.value for output in scan.outputs]
        read += [expr for other in scan.stages if other.carries != stage.carries for expr in other.step]
        if not any(
            ref.name in carries for expr in read for ref in _refs(_resolve(_inline(scan, expr, 0), {end: True}))
        ):
            continue
        when = "early" if flag.offset > right else "late"
        dropped = "at that step" if stage.toward > 0 else "at the step after it"
        edge = "" if stage.toward > 0 else f", with `{flag.name}: false` under `edge`"
        raise SpecError(
            "RLS406",
            f"the reset is on the wrong side: where `{_flag_text(flag)}` holds, a {stage.direction} scan drops its carry "
            f"too {when}",
            flag.span or stage.spans[0],
            f"`{flag.name}` marks an episode's last step, and a {stage.direction} scan drops its carry {dropped}:\n"
            f"let `{_flag_text(end)}` drop it{edge}; a flag that marks a first step has another name, such as `start`",
        )


def _refuse_wrong_side(scan: Scan, stage: Stage) -> None:
    """A backward scan drops its carry at an episode's last step, a forward one at the step after it."""
    _refuse_wrong_coefficient(scan, stage)
    if stage.reset is None:
        return
    right = _right(stage)
    for ref in _refs(_inline(scan, stage.reset, 0)):
        if ref.name in LAST_STEPS and ref.offset > right:
            read, meant = _flag_text(ref), _flag_text(ref, ref.offset - right)
            dropped = "at that step" if stage.toward > 0 else "at the step after it"
            edge = "" if stage.toward > 0 else f", with `{ref.name}: false` under `edge`"
            raise SpecError(
                "RLS406",
                f"the reset is on the wrong side: a {stage.direction} scan that reads `{read}` drops its carry too early",
                stage.reset_span,
                f"`{ref.name}` marks an episode's last step, and a {stage.direction} scan drops its carry {dropped}:\n"
                f"write `{meant}`{edge}; a flag that marks a first step has another name, such as `start`",
            )


def _whose(scan: Scan, stage: Stage) -> str:
    return "the" if len(scan.stages) == 1 else f"{', '.join(carry.name for carry in stage.carries)}'s"


def _isolated(scan: Scan, stage: Stage, words: str, expr: Expr, span: Span, *, own_reset_replaces: bool) -> None:
    offsets = [0, *(ref.offset for ref in _refs(expr))]
    # Boundary n lies between t+n and t+n+1; a backward scan's R at t+n makes it, a forward one's at t+n+1.
    for boundary in range(min(offsets), max(offsets)):
        at = boundary if stage.toward > 0 else boundary + 1
        if own_reset_replaces and at == 0:
            continue
        if stage.reset is not None:
            _isolated_at(scan, stage, words, expr, span, boundary, _inline(scan, stage.reset, at))


def _cuts_too(scan: Scan, stage: Stage, other: Stage) -> None:
    """Where `stage` resets, `other` must drop its carry at the same boundary between two steps."""
    if stage.reset is None or all(carry.name in scan.crosses for carry in other.carries):
        return
    # A backward scan's reset at t lies between t and t+1; a forward one's at t+1 does.
    at = 0 if stage.toward == other.toward else stage.toward
    drops = zip(other.operator.elements, other.step, forgetful(other.operator), strict=True)
    dropping = [(_inline(scan, expr, at), nothing) for _, expr, nothing in drops if nothing is not None]
    for case, flags in _cases(_inline(scan, stage.reset, 0), stage):
        if dropping and all(_vanished(_resolve(expr, case), nothing) for expr, nothing in dropping):
            continue
        carry = next(carry for carry in other.carries if carry.name not in scan.crosses)
        raise SpecError(
            "RLS404",
            f"`{carry.name}` is carried across an episode's end (where {_held(case)}), at which the scan of "
            f"`{stage.carries[0].name}` resets",
            carry.span,
            f"let its scan reset there too: `reset: {_guard(flags, at)}`;\n"
            f"or say `crosses: [{carry.name}]` if it is meant to cross",
        )


def _cases(reset: Expr, stage: Stage) -> Iterator[tuple[dict[Expr, bool], list[Expr]]]:
    """Each way in which a reset can hold: the truth of every flag in it; with the flags themselves."""
    flags = list(dict.fromkeys(_atoms(reset)))
    if len(flags) > _MAX_FLAGS:
        raise SpecError("RLS405", f"the reset reads more than {_MAX_FLAGS} flags", stage.reset_span)
    for values in product((True, False), repeat=len(flags)):
        case = dict(zip(flags, values, strict=True))
        if _resolve(reset, case) == _TRUE:
            yield case, flags


def _held(case: Mapping[Expr, bool]) -> str:
    return " and ".join(_flag_text(flag) for flag, value in case.items() if value)


def _isolated_at(scan: Scan, stage: Stage, words: str, expr: Expr, span: Span, boundary: int, reset: Expr) -> None:
    def beyond(ref: Ref) -> bool:
        far = ref.offset > boundary if boundary >= 0 else ref.offset <= boundary
        return far and ref.name not in scan.crosses

    known: dict[tuple[tuple[Expr, bool], ...], Expr] = {}
    for case, flags in _cases(reset, stage):
        resolved = _resolve(expr, case)
        for ref in _refs(resolved):
            if not beyond(ref) or ref in flags:
                continue
            read = f"{ref.name}[t{ref.offset:+d}]"
            raise SpecError(
                "RLS404",
                f"{words} reads `{read}` across an episode's end (where {_held(case)})",
                ref.span or span,
                f"guard it: where({_guard(flags)}, …, {read}), with what it means at the end in place of …;\n"
                f"or say `crosses: [{ref.name}]` if it is meant to cross",
            )
        # A part of the reset that lies beyond the end itself may make an end, but nothing else may hang on it.
        near = tuple((flag, value) for flag, value in case.items() if not any(map(beyond, _refs(flag))))
        if known.setdefault(near, resolved) != resolved:
            read = next(f"{r.name}[t{r.offset:+d}]" for flag in flags for r in _refs(flag) if beyond(r))
            raise SpecError(
                "RLS404",
                f"{words} hangs on `{read}` across an episode's end (where {_held(case)})",
                span,
                "where the reset holds, it must be the same whatever lies on the other side:\n"
                f"give the end a value that does not depend on `{read}`",
            )


def _guard(flags: Iterable[Expr], shift: int = 0) -> str:
    return " or ".join(_flag_text(flag, shift) for flag in flags)


def _flag_text(flag: Expr, shift: int = 0) -> str:
    """The flag as a spec would write it `shift` steps back."""
    if isinstance(flag, Ref):
        offset = flag.offset - shift
        return f"{flag.name}[t{offset:+d}]" if offset and flag.timed else f"{flag.name}[t]" if flag.timed else flag.name
    words = text(flag, 3)
    # Fit to be copied into a spec, or else described.
    return words if words.isascii() else "the reset's condition"


def _inline(scan: Scan, expr: Expr, shift: int) -> Expr:
    """The expression `shift` steps on, lets and outputs written out. An edge's value counts as the neighbour it stands for.

    What is named under `crosses` is left as it is: its reads are allowed, whatever they read in turn.
    """
    if isinstance(expr, Ref):
        offset = expr.offset + shift if expr.timed else 0
        made = None if expr.name in scan.crosses else scan.definition(expr.name)
        if made is not None:
            return _inline(scan, made.value, offset)
        return Ref(expr.name, offset, expr.timed, expr.kind, expr.axes, expr.span)
    if isinstance(expr, Take):
        moved = _inline(scan, expr.source, shift)
        if not isinstance(moved, Ref):
            raise AssertionError("take reads an input")
        return Take(moved, _inline(scan, expr.index, shift), expr.axis, expr.span)
    return rebuild(expr, lambda child: _inline(scan, child, shift))


def _atoms(expr: Expr) -> Iterator[Expr]:
    """The truth values that a flag expression is built of."""
    if isinstance(expr, Call) and expr.fn in ("and", "or", "not"):
        for arg in expr.args:
            yield from _atoms(arg)
    elif not isinstance(expr, Const):
        yield expr


def _resolve(expr: Expr, case: dict[Expr, bool]) -> Expr:
    if expr in case:
        return Const(case[expr], "flag")
    expr = rebuild(expr, lambda child: _resolve(child, case))
    if not isinstance(expr, Call):
        return expr
    args = expr.args
    match expr.fn:
        case "not" if isinstance(args[0], Const):
            return Const(not args[0].value, "flag")
        case "and":
            rest = tuple(arg for arg in args if arg != _TRUE)
            return _FALSE if _FALSE in rest else _TRUE if not rest else Call("and", rest, "flag", expr.span)
        case "or":
            rest = tuple(arg for arg in args if arg != _FALSE)
            return _TRUE if _TRUE in rest else _FALSE if not rest else Call("or", rest, "flag", expr.span)
        case "where" if isinstance(args[0], Const):
            return args[1] if args[0].value else args[2]
    return expr


def _refs(expr: Expr) -> Iterator[Ref]:
    if isinstance(expr, Ref):
        yield expr
    for child in children(expr):
        yield from _refs(child)
