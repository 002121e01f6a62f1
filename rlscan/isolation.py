"""Episode isolation: where an episode ends, nothing of the other side is read. Proved, or refused with the guard to write.

Let R be the reset. Of a backward scan, R at step t separates t from t+1; of a forward one, t−1 from t. A read of `x[t+k]`
crosses every boundary between t and t+k. For each, assume R there, case by case over the flags in it, resolve every `where`
(a select lets nothing of the branch not taken through, NaN included; a product with zero does not count) and look at what is
still read beyond it. The flags of R itself may be read: they say where the end is.

A spec without a reset has no episodes and nothing to prove. `crosses: [x]` allows a read of x on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from rlscan.diagnostics import Span, SpecError
from rlscan.ir import Call, Const, Expr, Law, Ref, Scan, Stage, Take, children, rebuild

_MAX_FLAGS = 8
_TRUE, _FALSE = Const(True, "flag"), Const(False, "flag")


def prove_isolation(scan: Scan) -> list[Law]:
    """A law for each stage with a reset; RLS404 where a read crosses."""
    laws = []
    for stage in scan.stages:
        if stage.reset is None:
            continue
        for element, expr, span in zip(stage.operator.elements, stage.raw, stage.spans, strict=True):
            # The coefficient of a carry that is dropped here may be anything: the reset replaces it.
            drops = element == "a" or element.startswith("a_")
            _isolated(scan, stage, f"`{element}`", _inline(scan, expr, 0), span, own_reset_replaces=drops)
        checked = [output for output in scan.outputs if output.name not in scan.crosses]
        for output in checked:
            value = _inline(scan, output.value, 0)
            _isolated(scan, stage, f"the output `{output.name}`", value, output.span, own_reset_replaces=False)
        laws.append(
            Law(
                "isolation",
                f"where the reset holds, {', '.join(output.name for output in checked)} read nothing of the other side",
                "by cases over the reset's flags, every where resolved",
            )
        )
    return laws


def _isolated(scan: Scan, stage: Stage, words: str, expr: Expr, span: Span, *, own_reset_replaces: bool) -> None:
    offsets = [ref.offset for ref in _refs(expr)]
    # Boundary n lies between t+n and t+n+1; a backward scan's R at t+n makes it, a forward one's at t+n+1.
    for boundary in range(min(offsets, default=0), max(offsets, default=0)):
        at = boundary if stage.toward > 0 else boundary + 1
        if own_reset_replaces and at == 0:
            continue
        if stage.reset is not None:
            _isolated_at(scan, stage, words, expr, span, boundary, _inline(scan, stage.reset, at))


def _isolated_at(scan: Scan, stage: Stage, words: str, expr: Expr, span: Span, boundary: int, reset: Expr) -> None:
    flags = list(dict.fromkeys(_atoms(reset)))
    if len(flags) > _MAX_FLAGS:
        raise SpecError("RLS405", f"the reset reads more than {_MAX_FLAGS} flags", stage.reset_span)
    for values in product((True, False), repeat=len(flags)):
        case = dict(zip(flags, values, strict=True))
        if _resolve(reset, case) != _TRUE:
            continue
        for ref in _refs(_resolve(expr, case)):
            beyond = ref.offset > boundary if boundary >= 0 else ref.offset <= boundary
            if not beyond or ref in flags or ref.name in scan.crosses:
                continue
            read = f"{ref.name}[t{ref.offset:+d}]"
            held = " and ".join(_flag_text(flag) for flag, value in case.items() if value)
            raise SpecError(
                "RLS404",
                f"{words} reads `{read}` across an episode's end (where {held})",
                ref.span or span,
                f"guard it: where({_guard(flags)}, …, {read}), with what it means at the end in place of …;\n"
                f"or say `crosses: [{ref.name}]` if it is meant to cross",
            )


def _guard(flags: Iterable[Expr]) -> str:
    return " or ".join(_flag_text(flag) for flag in flags)


def _flag_text(flag: Expr) -> str:
    if isinstance(flag, Ref):
        return f"{flag.name}[t{flag.offset:+d}]" if flag.offset else f"{flag.name}[t]" if flag.timed else flag.name
    return "the reset's condition"


def _inline(scan: Scan, expr: Expr, shift: int) -> Expr:
    """The expression `shift` steps on, lets and outputs written out. An edge's value counts as the neighbour it stands for."""
    if isinstance(expr, Ref):
        offset = expr.offset + shift if expr.timed else 0
        made = scan.definition(expr.name)
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
