"""Episode isolation: where an episode ends, nothing of the other side is read. Proved, or refused with the guard to write.

Let R be the reset. Of a backward scan, R at step t separates t from t+1; of a forward one, t−1 from t. A read of `x[t+k]`
crosses every boundary between t and t+k. For each, assume R there, case by case over the flags in it, resolve every `where`
(a select lets nothing of the branch not taken through, NaN included; a product with zero does not count) and look at what is
still read beyond it. The flags of R itself may be read: they say where the end is.

Where one scan resets, every other must too, or its carry brings the other side in: `crosses: [carry]` allows that, as
`crosses: [x]` allows a read of x, on purpose. A spec without a reset has no episodes and nothing to prove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product

from rlscan.diagnostics import Span, SpecError
from rlscan.ends import MAX_FLAGS, TRUE, atoms, flag_text, guard, inline, read_text, refs, resolve, vanished, with_ends
from rlscan.ir import Expr, Law, Ref, Scan, Stage
from rlscan.operators import forgetful


def prove_isolation(scan: Scan) -> list[Law]:
    """A law for each stage with a reset; RLS404 where a read crosses."""
    laws = []
    for stage in map(partial(with_ends, scan), scan.stages):
        if stage.reset is None:
            continue
        written = stage in scan.stages
        if not written:
            carries = ", ".join(carry.name for carry in stage.carries)
            laws.append(
                Law(
                    "reset",
                    f"where {guard(atoms(stage.reset))} holds, the carry {carries} is dropped",
                    "its coefficient is exactly zero there",
                )
            )
        parts = zip(stage.operator.elements, stage.raw, stage.spans, forgetful(stage.operator), strict=True)
        for element, expr, span, forgot in parts:
            # The coefficient of a carry that is dropped here may be anything: the reset replaces it.
            drops = forgot is not None and written
            _isolated(scan, stage, f"`{element}`", inline(scan, expr, 0), span, own_reset_replaces=drops)
        if stage.keep is not None:
            # Whether a step is kept decides what it is, where it is reset too.
            keep = inline(scan, stage.keep, 0)
            _isolated(scan, stage, "`keep`", keep, stage.spans[0], own_reset_replaces=False)
        for other in scan.stages:
            if other.carries != stage.carries:
                _cuts_too(scan, stage, other)
        for output in scan.outputs:
            value = inline(scan, output.value, 0)
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


def _whose(scan: Scan, stage: Stage) -> str:
    return "the" if len(scan.stages) == 1 else f"{', '.join(carry.name for carry in stage.carries)}'s"


def _isolated(scan: Scan, stage: Stage, words: str, expr: Expr, span: Span, *, own_reset_replaces: bool) -> None:
    offsets = [0, *(ref.offset for ref in refs(expr))]
    # Boundary n lies between t+n and t+n+1; a backward scan's R at t+n makes it, a forward one's at t+n+1.
    for boundary in range(min(offsets), max(offsets)):
        at = boundary if stage.toward > 0 else boundary + 1
        if own_reset_replaces and at == 0:
            continue
        if stage.reset is not None:
            _isolated_at(scan, stage, words, expr, span, boundary, inline(scan, stage.reset, at))


def _cuts_too(scan: Scan, stage: Stage, other: Stage) -> None:
    """Where `stage` resets, `other` must drop its carry at the same boundary between two steps."""
    if stage.reset is None or all(carry.name in scan.crosses for carry in other.carries):
        return
    # A backward scan's reset at t lies between t and t+1; a forward one's at t+1 does.
    at = 0 if stage.toward == other.toward else stage.toward
    drops = zip(other.operator.elements, other.step, forgetful(other.operator), strict=True)
    dropping = [(inline(scan, expr, at), nothing) for _, expr, nothing in drops if nothing is not None]
    for case, flags in _cases(inline(scan, stage.reset, 0), stage):
        if dropping and all(vanished(resolve(expr, case), nothing) for expr, nothing in dropping):
            continue
        carry = next(carry for carry in other.carries if carry.name not in scan.crosses)
        raise SpecError(
            "RLS404",
            f"`{carry.name}` is carried across an episode's end (where {_held(case)}), at which the scan of "
            f"`{stage.carries[0].name}` resets",
            carry.span,
            f"let its scan reset there too: `reset: {guard(flags, at)}`;\n"
            f"or say `crosses: [{carry.name}]` if it is meant to cross",
        )


def _cases(reset: Expr, stage: Stage) -> Iterator[tuple[dict[Expr, bool], list[Expr]]]:
    """Each way in which a reset can hold: the truth of every flag in it; with the flags themselves."""
    flags = list(dict.fromkeys(atoms(reset)))
    if len(flags) > MAX_FLAGS:
        raise SpecError(
            "RLS405",
            f"the reset reads more than {MAX_FLAGS} flags",
            stage.reset_span,
            "isolation is proved case by case over them: give what they come to as one input, `flag[B, T]`",
        )
    for values in product((True, False), repeat=len(flags)):
        case = dict(zip(flags, values, strict=True))
        if resolve(reset, case) == TRUE:
            yield case, flags


def _held(case: Mapping[Expr, bool], shift: int = 0) -> str:
    return " and ".join(flag_text(flag, shift) for flag, value in case.items() if value)


def _against(stage: Stage, use: Ref) -> str:
    """A hint for an offset that may have the wrong sign."""
    if use.offset * stage.toward >= 0:
        return ""
    meant = read_text(replace(use, offset=-use.offset))
    come = "after" if stage.toward > 0 else "before"
    return f"a {stage.direction} scan comes from the step {come}: if that is meant, write `{meant}`;\n"


def _use(ref: Ref, beyond: Callable[[Ref], bool]) -> tuple[Ref, int, str]:
    """Of the names that lead to a read beyond an end, the one with which it is crossed, as it is written.

    With how many steps on it is written, and the whole chain in words, where lets or outputs with an offset are in it.
    """
    reached, offset = [], 0
    for link in ref.via:
        offset = offset + link.offset if link.timed else 0
        reached.append(offset)
    crossing = len(reached) - 1
    while crossing and beyond(replace(ref, offset=reached[crossing - 1])):
        crossing -= 1
    use, shift = ref.via[crossing], reached[crossing] - ref.via[crossing].offset
    if use.name == ref.name and not shift:
        return use, shift, ""
    links = [f"`{read_text(link)}`" + (f" (line {link.span.line})" if link.span else "") for link in ref.via]
    return use, shift, f"it reads {' → '.join(links)};\n"


def _isolated_at(scan: Scan, stage: Stage, words: str, expr: Expr, span: Span, boundary: int, reset: Expr) -> None:
    def beyond(ref: Ref) -> bool:
        far = ref.offset > boundary if boundary >= 0 else ref.offset <= boundary
        return far and ref.name not in scan.crosses

    known: dict[tuple[tuple[Expr, bool], ...], Expr] = {}
    for case, flags in _cases(reset, stage):
        resolved = resolve(expr, case)
        for ref in refs(resolved):
            if not beyond(ref) or ref in flags:
                continue
            use, shift, chain = _use(ref, beyond)
            read = read_text(use)
            raise SpecError(
                "RLS404",
                f"{words} reads `{read}` across an episode's end (where {_held(case, shift)})",
                use.span or span,
                f"{chain}{_against(stage, use)}"
                f"guard it: where({guard(flags, shift)}, …, {read}), with what it means at the end in place of …;\n"
                f"or say `crosses: [{use.name}]` if it is meant to cross",
            )
        # A part of the reset that lies beyond the end itself may make an end, but nothing else may hang on it.
        near = tuple((flag, value) for flag, value in case.items() if not any(map(beyond, refs(flag))))
        if known.setdefault(near, resolved) != resolved:
            read = next(read_text(r) for flag in flags for r in refs(flag) if beyond(r))
            raise SpecError(
                "RLS404",
                f"{words} hangs on `{read}` across an episode's end (where {_held(case)})",
                span,
                "where the reset holds, it must be the same whatever lies on the other side:\n"
                f"give the end a value that does not depend on `{read}`",
            )
