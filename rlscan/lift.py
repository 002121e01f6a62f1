"""lift: Spec → Scan. Resolves names, kinds, axes and time, and turns each recurrence into its operator's elements.

Assumes a Spec from `parse`. Guarantees: every Ref names something that exists, with a time index exactly where it has time;
every read outside the window has an edge; flags are flags and numbers numbers; a step's elements are free of the carry.
An update in natural form is split by structure, not by sympy, so that A and b keep the order of the spec's own arithmetic;
`laws` then proves the split right. Raises SpecError with codes RLS3xx, RLS401 and RLS406.
"""

from __future__ import annotations

from dataclasses import replace

from rlscan import ends, operators, ranges
from rlscan.affine import split
from rlscan.diagnostics import Span, SpecError
from rlscan.ir import (
    Call,
    Const,
    Definition,
    EdgeValue,
    Expr,
    Operator,
    Reduce,
    Ref,
    Scan,
    Stage,
    StageCarry,
    axes_of,
    walk,
    where,
)
from rlscan.scope import Scope
from rlscan.spec import Expression, ScanBlock, Spec

#: the most parts of an expression with every let in it written out
MAX_WRITTEN_OUT = 4000

Named = tuple[str, Expr, Span]


def lift(spec: Spec) -> Scan:
    """The meaning of a spec: sₜ = op(stepₜ, sₜ₊₁) and what its outputs read of it."""
    scope = Scope(spec)
    stages = tuple(_stage(scope, block) for block in spec.scans)
    outputs = tuple(scope.definition(output.name) for output in spec.outputs)
    lets = tuple(scope.definition(let.name) for let in spec.lets)
    edges = tuple(_edge(scope, edge.name) for edge in spec.edges)
    axes = {axis for stage in stages for carry in stage.carries for axis in carry.axes}
    axes |= {axis for output in outputs for axis in output.axes}
    order = dict.fromkeys(axis for item in spec.inputs for axis in item.dims[1:] if axis in axes)
    scan = Scan(
        name=spec.name,
        title=spec.title,
        cite=spec.cite,
        digest=spec.digest,
        source=spec.source,
        inputs=spec.inputs,
        together=spec.together,
        params=spec.params,
        edges=edges,
        lets=lets,
        stages=stages,
        outputs=outputs,
        crosses=spec.crosses,
        lane_axes=tuple(order),
        whole=not spec.params and all(map(_whole, _everything(stages, lets, outputs, edges))),
    )
    _refuse_too_large(scan)
    # First, as its cure often uses what nothing uses yet.
    ends.refuse_wrong_side(scan)
    scope.refuse_unused({name: read for stage in stages for name, read in _bare(stage).items()})
    _refuse_reduced_optional_axes(scan)
    _refuse_reduced_carries(scan)
    return replace(scan, stages=tuple(_tamed(scan, stage) for stage in scan.stages))


def _tamed(scan: Scan, stage: Stage) -> Stage:
    """Coefficients that are never beyond 1 need no care for products that overflow.

    Where that hangs on params whose range goes further, a call says which it is.
    """
    names = tuple(carry.name for carry in stage.carries)
    if stage.operator.name not in ("affine", "clipped_affine") or len(names) > 1:
        return stage
    tamed_by = ranges.tamed_by(stage.raw[0], scan)
    if tamed_by is None:
        return stage
    tame = (
        operators.affine(names, frozenset(), tame=True)
        if stage.operator.name == "affine"
        else operators.clipped_affine(names[0], tame=True)
    )
    if tamed_by:
        return replace(stage, tame=tame, tamed_by=tamed_by)
    return replace(stage, operator=tame, plain=tame)


def _stage(scope: Scope, block: ScanBlock) -> Stage:
    names = tuple(carry.name for carry in block.carries)
    scope.begin_scan(names)
    reset = scope.flag(block.reset) if block.reset else None
    keep = scope.flag(block.keep) if block.keep else None
    update: tuple[Expr, ...] | None = None
    if any(carry.update for carry in block.carries):
        update = tuple(scope.number(_present(carry.update), incoming=names) for carry in block.carries)
        operator, raw, spans = _from_update(block, names, update)
    else:
        operator, raw, spans = _from_coefficients(scope, block, names)
    plain = operator
    if reset and block.reset and operator.name == "custom":
        operator = operators.cuttable(operator, names[0])
        raw, spans = (*raw, Const(0)), (*spans, block.reset.span)
    starts = tuple(scope.number(_present(carry.start), timeless="`start`") for carry in block.carries)
    axes = scope.ordered([*map(axes_of, raw), *map(axes_of, starts), *(axes_of(e) for e in (reset, keep) if e)])
    scope.define_carries(names, axes)
    return Stage(
        direction=block.direction,
        carries=tuple(
            StageCarry(carry.name, start, axes, carry.span) for carry, start in zip(block.carries, starts, strict=True)
        ),
        operator=operator,
        plain=plain,
        step=_fold(operator, raw, reset, keep),
        raw=raw,
        spans=spans,
        operator_spans=_operator_spans(block, spans[0]),
        reset=reset,
        reset_span=block.reset.span if block.reset else None,
        keep=keep,
        update=update,
    )


def _bare(stage: Stage) -> dict[str, frozenset[str]]:
    """The carries that each carry's update has bare."""
    names = [carry.name for carry in stage.carries]
    updates = stage.update or (Const(0),) * len(names)
    return {
        name: frozenset(other for other in names if operators.incoming(other) in walk(update))
        for name, update in zip(names, updates, strict=True)
    }


def _fold(operator: Operator, raw: tuple[Expr, ...], reset: Expr | None, keep: Expr | None) -> tuple[Expr, ...]:
    """The step with its selects: kept, it is the identity; reset, it forgets the carry (and may still be kept)."""
    folded = []
    for value, kept, forgot in zip(raw, operator.identity, operators.forgetful(operator), strict=True):
        expr = where(keep, kept, value) if keep else value
        folded.append(where(reset, forgot, expr) if reset and forgot is not None else expr)
    return tuple(folded)


def _from_update(
    block: ScanBlock, names: tuple[str, ...], update: tuple[Expr, ...]
) -> tuple[Operator, tuple[Expr, ...], tuple[Span, ...]]:
    rows = [split(expr, names, _present(carry.update)) for expr, carry in zip(update, block.carries, strict=True)]
    pattern = frozenset((i, names.index(name)) for i, (row, _) in enumerate(rows) for name in row)
    operator = operators.affine(names, pattern)
    zero: Expr = Const(0)
    values: dict[str, Expr] = {}
    spans: dict[str, Span] = {}
    for i, (row, rest) in enumerate(rows):
        span = _present(block.carries[i].update).span
        for j, name in enumerate(names):
            values[operators.entry(names, i, j)] = row.get(name, zero)
            spans[operators.entry(names, i, j)] = span
        values[operators.offset(names, i)] = rest
        spans[operators.offset(names, i)] = span
    elements = operator.elements
    return operator, tuple(values[e] for e in elements), tuple(spans[e] for e in elements)


def _from_coefficients(
    scope: Scope, block: ScanBlock, names: tuple[str, ...]
) -> tuple[Operator, tuple[Expr, ...], tuple[Span, ...]]:
    given = dict(block.operator.coefficients)
    carry = names[0]
    match block.operator.name:
        case "affine":
            operator = operators.affine(names, frozenset({(0, 0)}))
        case "clipped_affine":
            operator = operators.clipped_affine(carry)
        case "max_plus":
            operator = operators.max_plus(carry)
        case "min_plus":
            operator = operators.min_plus(carry)
        case "custom":
            operator = _custom(scope, block, carry)
    raw = tuple(scope.number(given[element]) for element in operator.elements)
    return operator, raw, tuple(given[element].span for element in operator.elements)


def _custom(scope: Scope, block: ScanBlock, carry: str) -> Operator:
    written = block.operator
    elements = tuple(name for name, _ in written.coefficients)
    combine = dict(written.combine)
    identity = dict(written.identity)
    return Operator(
        name="custom",
        elements=elements,
        combine=tuple(scope.over_elements(combine[e], elements, pair=True) for e in elements),
        identity=tuple(scope.over_elements(identity[e], (), pair=False) for e in elements),
        apply=(scope.over_elements(_present(written.apply), elements, pair=False, carry=carry),),
    )


def _operator_spans(block: ScanBlock, implied: Span) -> tuple[Span, Span]:
    written = block.operator
    if written.name != "custom":
        return implied, implied
    return written.combine[0][1].span, written.identity[0][1].span


def _edge(scope: Scope, name: str) -> EdgeValue:
    edge = scope.edges[name]
    before, after = edge.before or edge.both, edge.after or edge.both
    if name in scope.carries:
        # Where its scan starts, a carry is its start.
        before, after = (before, None) if scope.ends(name)[1] == "before" else (None, after)
    return EdgeValue(
        name,
        scope.number_or_flag(before, name) if before and scope.reads_before(name) else None,
        scope.number_or_flag(after, name) if after and scope.reads_after(name) else None,
    )


_WHOLE = {"add", "sub", "mul", "pow", "neg", "abs", "min", "max", "clip", "where", "number"}


def _everything(
    stages: tuple[Stage, ...],
    lets: tuple[Definition, ...],
    outputs: tuple[Definition, ...],
    edges: tuple[EdgeValue, ...],
) -> list[Expr]:
    found = [definition.value for definition in (*lets, *outputs)]
    for stage in stages:
        found += [
            *stage.step,
            *(carry.start for carry in stage.carries),
            *stage.operator.combine,
            *stage.operator.apply,
        ]
    return found + [value for edge in edges for value in (edge.before, edge.after) if value is not None]


def _whole(expr: Expr) -> bool:
    """Whether an expression of integers is an integer."""
    for node in walk(expr):
        if isinstance(node, Const) and not isinstance(node.value, bool) and not float(node.value).is_integer():
            return False
        if isinstance(node, Reduce) and node.op == "logsumexp":
            return False
        if isinstance(node, Call) and node.kind == "number" and node.fn not in _WHOLE:
            return False
    return True


def _refuse_too_large(scan: Scan) -> None:
    """What is proved of a spec is proved of its expressions with lets and outputs written out."""
    definitions = {d.name: d for d in (*scan.lets, *scan.outputs)}
    sizes: dict[str, int] = {}

    def size(expr: Expr) -> int:
        total = 0
        for node in walk(expr):
            total += 1
            if isinstance(node, Ref) and node.name in definitions:
                if node.name not in sizes:
                    sizes[node.name] = size(definitions[node.name].value)
                total += sizes[node.name]
        return total

    exprs = [(d.value, d.span) for d in definitions.values()]
    exprs += [(e, s) for stage in scan.stages for e, s in zip(stage.step, stage.spans, strict=True)]
    for expr, span in exprs:
        if size(expr) > MAX_WRITTEN_OUT:
            raise SpecError(
                "RLS314",
                f"with all that it reads written out, this has more than {MAX_WRITTEN_OUT} parts",
                span,
                "a let that reads another several times is that many times as large: make it read it fewer times,\n"
                "or give what it is made of as an input",
            )


def _refuse_reduced_optional_axes(scan: Scan) -> None:
    optional = {axis for item in scan.inputs for axis in item.optional_axes}
    exprs = [(d.value, d.span) for d in (*scan.lets, *scan.outputs)]
    exprs += [(e, s) for stage in scan.stages for e, s in zip(stage.raw, stage.spans, strict=True)]
    for expr, span in exprs:
        for node in walk(expr):
            if isinstance(node, Reduce) and node.axis in optional:
                raise SpecError(
                    "RLS307",
                    f"the axis {node.axis} may be absent (`{node.axis}?`), so it cannot be reduced",
                    node.span or span,
                    f"write it as `{node.axis}` in the inputs' types",
                )


def _refuse_reduced_carries(scan: Scan) -> None:
    """Each element of a carry's axis is scanned by itself: where one is known, the others are not."""
    axes = {carry.name: carry.axes for stage in scan.stages for carry in stage.carries}
    definitions = {d.name: d.value for d in (*scan.lets, *scan.outputs)}
    known: dict[str, set[str]] = {}

    def scanned(expr: Expr) -> set[str]:
        """The axes that an expression has from the carries in it."""
        found: set[str] = set()
        for node in walk(expr):
            if isinstance(node, Ref) and node.name in definitions:
                if node.name not in known:
                    known[node.name] = scanned(definitions[node.name])
                found |= known[node.name]
            elif isinstance(node, Ref):
                found |= {*axes.get(node.name, ())}
        return found

    exprs = [(d.value, d.span) for d in (*scan.lets, *scan.outputs)]
    exprs += [(e, s) for stage in scan.stages for e, s in zip(stage.raw, stage.spans, strict=True)]
    for expr, span in exprs:
        for node in walk(expr):
            if isinstance(node, Reduce) and node.axis in scanned(node.arg):
                raise SpecError(
                    "RLS307",
                    f"a carry is reduced over {node.axis}, each element of which is scanned by itself",
                    node.span or span,
                    f"make what is reduced an output, and reduce that after the call: out.name.sum(-1);\n"
                    f"or reduce what the scan reads over {node.axis}, where the recurrence allows it",
                )


def _present(expression: Expression | None) -> Expression:
    if expression is None:
        raise AssertionError("parse gives every carry its parts")
    return expression
