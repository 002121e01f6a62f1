"""lower: Scan → Program. The straight-line statements of one step, the same for every schedule and backend.

A kernel has three parts: the step's coefficients (`before`), one generic scan, and what the outputs make of it (`after`);
`entry` is what does not change over time. A statement is a load, an assignment, a reduction over a named axis or the carry of a
neighbouring step. Every quantity of the spec keeps its name: `delta`, `values_next` for values[t+1], `done_prev` for done[t-1].

Lets and outputs read at an offset are computed anew at that offset: nothing is assumed about what a schedule can keep.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rlscan.ir import (
    POS_INF,
    ZERO,
    Call,
    Const,
    Expr,
    Inside,
    Reduce,
    Ref,
    Scan,
    Take,
    Var,
    add,
    axes_of,
    rebuild,
    sub,
    walk,
    where,
)
from rlscan.spec import Input


@dataclass(frozen=True, slots=True)
class Load:
    """target = source at this step + offset; `edge` where that lies outside the window.

    index gives, for each named axis of the source, the local that holds its position. An optional source that was not
    given is its `default`. A param (`param` true) may be a number, or vary by environment and step.
    `at` is "step", or "first" or "last" for a param read in an expression without time.
    """

    target: str
    #: a second local, for a schedule that reads a block ahead of its use
    ahead: str
    source: str
    offset: int
    index: tuple[tuple[str, Expr], ...]
    edge: Expr | None
    default: Const | None
    kind: str
    timed: bool
    param: bool
    at: str
    line: int


@dataclass(frozen=True, slots=True)
class Assign:
    """target = value."""

    target: str
    value: Expr
    line: int | None


@dataclass(frozen=True, slots=True)
class Loop:
    """target = op over `index` in 0 … size of axis − 1 of value, which reads what body defines."""

    target: str
    op: str
    axis: str
    index: str
    start: Expr
    body: tuple[Statement, ...]
    value: Expr
    timed: bool
    line: int | None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """target = the carry `distance` steps toward where the scan came from (its start, beyond the edge)."""

    target: str
    carry: str
    distance: int


@dataclass(frozen=True, slots=True)
class Store:
    """The output's element of this step."""

    output: str
    value: Expr
    axes: tuple[str, ...]
    line: int


Statement = Load | Assign | Loop | Neighbour | Store


@dataclass(frozen=True, slots=True)
class Guarded:
    """A statement, and the outputs that alone need it (None: it is always needed)."""

    statement: Statement
    outputs: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Program:
    """One stage's step."""

    entry: tuple[Guarded, ...]
    before: tuple[Guarded, ...]
    step: tuple[Assign, ...]
    after: tuple[Guarded, ...]
    starts: tuple[Expr, ...]
    #: how many steps back the carry is read by outputs
    depth: int
    #: local names of the carries, of their incoming values, and of the operator's elements
    carries: tuple[str, ...]
    incoming: tuple[str, ...]
    elements: tuple[str, ...]
    #: the elements of all steps before this one composed, in a block's scan
    preceding: tuple[str, ...]


def lower(scan: Scan, reserved: Iterable[str]) -> Program:
    """The program of a scan; `reserved` are the names that the kernels' templates use themselves."""
    return _Lowering(scan, reserved).program()


class _Names:
    def __init__(self, reserved: Iterable[str]) -> None:
        self.taken = {*reserved, *keyword.kwlist, *keyword.softkwlist}

    def fresh(self, base: str) -> str:
        name = base
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def suffix(offset: int) -> str:
    """`_next` for +1, `_prev` for −1, with the number beyond."""
    if offset == 0:
        return ""
    word = "_next" if offset > 0 else "_prev"
    return word if abs(offset) == 1 else f"{word}{abs(offset)}"


@dataclass(slots=True)
class _Block:
    """Statements being collected: the base of a phase (axis None) or the body of a loop over an axis."""

    axis: str | None
    statements: list[Statement]


class _Lowering:
    def __init__(self, scan: Scan, reserved: Iterable[str]) -> None:
        self.scan = scan
        self.stage = scan.stages[0]
        self.inputs: dict[str, Input] = {item.name: item for item in scan.inputs}
        self.params = {param.name: param for param in scan.params}
        kernel_args = [f"{name}_{tail}" for name in self.inputs for tail in ("ptr", "array")]
        kernel_args += [f"{name}_{tail}" for name in self.params for tail in ("ptr", "value", "each")]
        kernel_args += [f"{output.name}_{tail}" for output in scan.outputs for tail in ("ptr", "array")]
        kernel_args += [f"{item.name}_{dim.lower()}" for item in scan.inputs for dim in item.dims]
        kernel_args += [f"{axis.lower()}_lane" for axis in scan.lane_axes]
        self.names = _Names([*reserved, *kernel_args])
        self.carry = {c.name: self.names.fresh(c.name) for c in self.stage.carries}
        self.incoming = {name: self.names.fresh(f"{local}_in") for name, local in self.carry.items()}
        self.elements = {name: self.names.fresh(name) for name in self.stage.operator.elements}
        self.entry = _Block(None, [])
        self.before = _Block(None, [])
        self.after = _Block(None, [])
        self.stack: list[_Block] = [self.before]
        #: the phase that is being lowered, `before` or `after`, also while an edge is lowered into `entry`
        self.phase = self.before
        self.side = "step"
        self.index: dict[str, Expr] = {}
        self.memo: dict[object, Expr] = {}
        self.depth = 1

    def program(self) -> Program:
        stage = self.stage
        starts = tuple(self._timeless(carry.start, "last" if stage.toward > 0 else "first") for carry in stage.carries)
        step = tuple(
            Assign(self.elements[name], self.value(expr, 0), span.line)
            for name, expr, span in zip(stage.operator.elements, stage.step, stage.spans, strict=True)
        )
        self.stack, self.phase = [self.after], self.after
        for output in self.scan.outputs:
            value = self._definition(output.name, 0)
            self.after.statements.append(Store(output.name, value, output.axes, output.span.line))
        return self._guard(
            Program(
                entry=(),
                before=(),
                step=step,
                after=(),
                starts=starts,
                depth=self.depth,
                carries=tuple(self.carry.values()),
                incoming=tuple(self.incoming.values()),
                elements=tuple(self.elements.values()),
                preceding=tuple(self.names.fresh(f"{name}_before") for name in self.elements.values()),
            )
        )

    # -- values -----------------------------------------------------------------------------------------------------

    def value(self, expr: Expr, shift: int) -> Expr:
        """The expression `shift` steps on, over locals; what it needs is appended to the current blocks."""
        if isinstance(expr, Ref):
            return self._ref(expr, shift)
        if isinstance(expr, Reduce):
            return self._reduce(expr, shift)
        if isinstance(expr, Take):
            index = self.value(expr.index, shift)
            return self._read(expr.source, shift, {expr.axis: index})
        if isinstance(expr, Call) and expr.fn == "pow":
            return self._power(expr, shift)
        return rebuild(expr, lambda child: self.value(child, shift))

    def _ref(self, ref: Ref, shift: int) -> Expr:
        if ref.name in self.params:
            return self._param(ref.name, shift)
        if ref.name in self.inputs:
            return self._read(ref, shift, {})
        if ref.name in self.carry:
            return self._neighbour(ref.name, ref.offset + shift)
        return (
            self._definition(ref.name, ref.offset + shift, ref.offset)
            if ref.timed
            else self._definition(ref.name, shift)
        )

    def _definition(self, name: str, total: int, own: int = 0) -> Expr:
        made = self.scan.definition(name)
        if made is None:
            raise AssertionError(f"lift resolved {name}")
        edge = self._edge(name, total, own)
        key = ("let", name, total, edge is not None, self.side if not made.timed else "", self._held(made.axes))
        if key not in self.memo:
            value = self.value(made.value, total)
            if edge is not None:
                value = where(Inside(total), value, edge)
            self.memo[key] = self._assign(name + suffix(total), value, made.span.line, made.axes)
        return self.memo[key]

    def _assign(self, base: str, value: Expr, line: int | None, axes: tuple[str, ...]) -> Expr:
        if isinstance(value, Var | Const) and not base:
            return value
        target = self.names.fresh(base)
        self._block(axes).statements.append(Assign(target, value, line))
        return Var(target, "flag" if _is_flag(value) else "number")

    def _read(self, ref: Ref, shift: int, chosen: Mapping[str, Expr]) -> Expr:
        item = self.inputs[ref.name]
        total = ref.offset + shift if ref.timed else 0
        held = dict(self.index)
        self.index |= chosen
        edge = self._edge(ref.name, total, ref.offset) if ref.timed else None
        self.index = held
        index = tuple((axis, chosen[axis] if axis in chosen else self._position(axis)) for axis in ref.axes)
        key = ("read", ref.name, total, edge is not None, index)
        if key in self.memo:
            return self.memo[key]
        base = ref.name + suffix(total) + ("_taken" if chosen else "")
        target = self.names.fresh(base)
        load = Load(
            target=target,
            ahead=self.names.fresh(f"{target}_ahead"),
            source=ref.name,
            offset=total,
            index=index,
            edge=edge,
            default=_default(item),
            kind=item.kind,
            timed=ref.timed,
            param=False,
            at="step",
            line=item.span.line,
        )
        local = [axis for axis in ref.axes if axis not in chosen]
        for axis in chosen:
            # What the picking index itself varies with.
            local += [a for a in self.index if _mentions(chosen[axis], self.index[a])]
        inner = self._loop(tuple(local))
        # A position that an input picked changes from step to step, and so does what is read there.
        picked = any(not self._is_counter(axis, expr) for axis, expr in index)
        (inner or (self.phase if ref.timed or picked else self.entry)).statements.append(load)
        self.memo[key] = Var(target, ref.kind)
        return self.memo[key]

    def _is_counter(self, axis: str, expr: Expr) -> bool:
        """Whether a position is a lane's or an open loop's own."""
        return expr == Var(f"{axis.lower()}_lane", "int") or any(
            block.axis == axis and self.index.get(axis) == expr for block in self.stack
        )

    def _param(self, name: str, shift: int) -> Expr:
        at = self.side
        key = ("param", name, shift if at == "step" else 0, at)
        if key not in self.memo:
            tail = suffix(shift) if at == "step" else f"_{at}"
            target = self.names.fresh(name + tail)
            load = Load(
                target=target,
                ahead="",
                source=name,
                offset=shift if at == "step" else 0,
                index=(),
                edge=None,
                default=None,
                kind="float",
                timed=True,
                param=True,
                at=at,
                line=self.params[name].span.line,
            )
            # Params stand in `before`, whoever asks first: both phases may read them.
            (self.before if at == "step" else self.entry).statements.append(load)
            self.memo[key] = Var(target)
        return self.memo[key]

    def _neighbour(self, carry: str, offset: int) -> Expr:
        distance = offset * self.stage.toward
        if distance == 0:
            return Var(self.carry[carry])
        key = ("carry", carry, distance)
        if key not in self.memo:
            target = self.names.fresh(self.carry[carry] + suffix(offset))
            self.after.statements.append(Neighbour(target, self.carry[carry], distance))
            self.depth = max(self.depth, distance)
            self.memo[key] = Var(target)
        return self.memo[key]

    def _reduce(self, node: Reduce, shift: int) -> Expr:
        if node.op == "logsumexp":
            peak = self._reduce(replace(node, op="max"), shift)
            # exp(x − peak) of an infinite peak would be NaN: sum exp(x) itself then.
            infinite = Call("eq", (Call("abs", (peak,), "number"), POS_INF), "flag")
            safe = self._assign(
                f"{node.axis.lower()}_peak", where(infinite, ZERO, peak), node.span.line if node.span else None, ()
            )
            inner = Call("exp", (sub(node.arg, safe),), "number")
            total = self._reduce(Reduce("sum", node.axis, inner, node.span), shift)
            return add(safe, Call("log", (total,), "number"))
        key = ("reduce", node, shift, self.side, tuple(self.index.items()))
        if key in self.memo:
            return self.memo[key]
        index = self.names.fresh(node.axis.lower() + "_at")
        body = _Block(node.axis, [])
        outer = self.index.get(node.axis)
        self.stack.append(body)
        self.index[node.axis] = Var(index, "int")
        value = self.value(node.arg, shift)
        self.stack.pop()
        if outer is None:
            del self.index[node.axis]
        else:
            self.index[node.axis] = outer
        target = self.names.fresh(f"{node.op}_{node.axis.lower()}")
        start: dict[str, Expr] = {"sum": ZERO, "max": Const(float("-inf")), "min": POS_INF}
        line = node.span.line if node.span else None
        loop = Loop(
            target,
            node.op,
            node.axis,
            index,
            start[node.op],
            tuple(body.statements),
            value,
            self.stack[0] is not self.entry,
            line,
        )
        self._block(tuple(a for a in self.index if _mentions_any(loop, self.index[a]))).statements.append(loop)
        self.memo[key] = Var(target)
        return self.memo[key]

    def _power(self, node: Call, shift: int) -> Expr:
        """xⁿ as products of one local."""
        base, exponent = node.args
        count = int(exponent.value) if isinstance(exponent, Const) else 0
        if count == 0:
            return Const(1)
        value = self.value(base, shift)
        if not isinstance(value, Var | Const):
            value = self._assign("base", value, node.span.line if node.span else None, axes_of(base))
        product = value
        for _ in range(count - 1):
            product = Call("mul", (product, value), "number")
        return product

    # -- places -----------------------------------------------------------------------------------------------------

    def _timeless(self, expr: Expr, side: str) -> Expr:
        """A start or an edge: lowered into `entry`; params there are those of the step nearest to that end."""
        stack, self.stack = self.stack, [self.entry, *self.stack[1:]]
        held, self.side = self.side, side
        value = self.value(expr, 0)
        self.stack, self.side = stack, held
        return value

    def _edge(self, name: str, total: int, own: int) -> Expr | None:
        """The edge that a read needs: where the offset is its own, not one that an outer edge covers already."""
        edge = self.scan.edge(name)
        if edge is None or own == 0 or own * total <= 0:
            return None
        expr = edge.after if total > 0 else edge.before
        return None if expr is None else self._timeless(expr, "last" if total > 0 else "first")

    def _block(self, axes: tuple[str, ...]) -> _Block:
        """The innermost open loop over one of these axes, or the phase itself."""
        return self._loop(axes) or self.stack[0]

    def _loop(self, axes: tuple[str, ...]) -> _Block | None:
        return next((block for block in reversed(self.stack) if block.axis in axes), None)

    def _position(self, axis: str) -> Expr:
        return self.index.get(axis, Var(f"{axis.lower()}_lane", "int"))

    def _held(self, axes: tuple[str, ...]) -> tuple[tuple[str, Expr], ...]:
        return tuple((axis, self.index[axis]) for axis in axes if axis in self.index)

    # -- what is needed ---------------------------------------------------------------------------------------------

    def _guard(self, program: Program) -> Program:
        """Mark each statement with the outputs that alone need it, so that an output not asked for costs nothing."""
        needs: dict[str, set[str] | None] = {}

        def mark(name: str, outputs: set[str] | None) -> None:
            if outputs is None or needs.get(name, set()) is None:
                needs[name] = None
            else:
                needs[name] = (needs.get(name) or set()) | outputs

        for expr in (*program.starts, *(assign.value for assign in program.step)):
            for name in _reads(expr):
                mark(name, None)
        blocks = [self.after.statements, self.before.statements, self.entry.statements]
        for statements in blocks:
            for statement in reversed(statements):
                outputs = {statement.output} if isinstance(statement, Store) else needs.get(statement.target, set())
                for name in _uses(statement):
                    mark(name, outputs)
        every = {output.name for output in self.scan.outputs}

        def guarded(statements: list[Statement]) -> tuple[Guarded, ...]:
            made = []
            for statement in statements:
                outputs = {statement.output} if isinstance(statement, Store) else needs.get(statement.target, set())
                ordered = tuple(o.name for o in self.scan.outputs if outputs is not None and o.name in outputs)
                always = outputs is None or (outputs == every and not isinstance(statement, Store))
                made.append(Guarded(statement, None if always else ordered))
            return tuple(made)

        return replace(
            program,
            entry=guarded(self.entry.statements),
            before=guarded(self.before.statements),
            after=guarded(self.after.statements),
        )


def _default(item: Input) -> Const | None:
    if item.default is None:
        return None
    return Const(bool(item.default), "flag") if item.kind == "flag" else Const(item.default)


def _is_flag(expr: Expr) -> bool:
    return getattr(expr, "kind", "number") == "flag"


def _reads(expr: Expr | None) -> set[str]:
    return {node.name for node in walk(expr) if isinstance(node, Var)} if expr is not None else set()


def _uses(statement: Statement) -> set[str]:
    match statement:
        case Load():
            return _reads(statement.edge).union(*(_reads(expr) for _, expr in statement.index))
        case Assign() | Store():
            return _reads(statement.value)
        case Loop():
            return _reads(statement.value).union(*(_uses(inner) for inner in statement.body))
        case Neighbour():
            return {statement.carry}


def _mentions(expr: Expr, var: Expr) -> bool:
    return any(node == var for node in walk(expr))


def _mentions_any(loop: Loop, var: Expr) -> bool:
    return isinstance(var, Var) and var.name in _uses(loop)
