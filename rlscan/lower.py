"""lower: Scan → Program. The straight-line statements of one step, the same for every schedule and backend.

A statement is a load, an assignment, a reduction over a named axis or the carry of a neighbouring step. Every quantity of the
spec keeps its name: `delta`, `values_next` for values[t+1], `done_prev` for done[t-1]. Lets and outputs read at an offset are
computed anew at that offset, and in each sweep over time that needs them. The exception is what is costly to read, sums and
picks along a named axis: where a schedule meets each step after the one before, they are held from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rlscan.ir import (
    POS_INF,
    ZERO,
    Call,
    Const,
    Definition,
    Expr,
    Inside,
    Reduce,
    Ref,
    Scan,
    Stage,
    Take,
    Var,
    add,
    axes_of,
    rebuild,
    sub,
    walk,
    where,
)
from rlscan.names import Names, suffix
from rlscan.needs import guard, uses
from rlscan.operators import incoming, started
from rlscan.program import (
    Assign,
    Guarded,
    Keep,
    Kept,
    Load,
    Loop,
    Neighbour,
    Previous,
    Program,
    StageProgram,
    Statement,
    Store,
    SweepProgram,
)
from rlscan.spec import Input
from rlscan.sweeps import Sweep, sweeps


def lower(scan: Scan, reserved: Iterable[str], *, ordered: bool = True) -> Program:
    """The program of a scan; `reserved` are the names that the kernels' templates use themselves.

    ordered: a sweep begins at the window's end, and what it knew of the step before can be held.
    """
    return _Lowering(scan, reserved, ordered).program()


@dataclass(slots=True)
class _Block:
    """Statements being collected: the base of a phase (axis None) or the body of a loop over an axis."""

    axis: str | None
    statements: list[Statement]


class _Lowering:
    def __init__(self, scan: Scan, reserved: Iterable[str], ordered: bool) -> None:
        self.scan = scan
        self.ordered = ordered
        self.toward = 0
        self.inputs: dict[str, Input] = {item.name: item for item in scan.inputs}
        self.params = {param.name: param for param in scan.params}
        kernel_args = [f"{name}_{tail}" for name in self.inputs for tail in ("ptr", "array")]
        kernel_args += [f"{name}_{tail}" for name in self.params for tail in ("ptr", "value", "each")]
        kernel_args += [f"{output.name}_{tail}" for output in scan.outputs for tail in ("ptr", "array")]
        kernel_args += [f"{item.name}_{dim.lower()}" for item in scan.inputs for dim in item.dims]
        axes = {dim for item in scan.inputs for dim in item.dims}
        kernel_args += [f"{axis}_{tail}" for axis in axes for tail in ("BLOCK", "ALIGN")] + [
            f"{axis.lower()}_block" for axis in axes
        ]
        kernel_args += [f"{axis.lower()}_lane" for axis in scan.lane_axes]
        carries = [carry.name for stage in scan.stages for carry in stage.carries]
        kernel_args += [f"{carry}_{tail}" for carry in carries for tail in ("kept_ptr", "arriving", "arriving_ptr")]
        elements = [element for stage in scan.stages for element in stage.operator.elements]
        kernel_args += [f"{x}_{tail}" for x in elements for tail in ("run", "last", "composed", "composed_ptr")]
        self.names = Names([*reserved, *kernel_args])
        self.stage_of = {carry.name: stage for stage in scan.stages for carry in stage.carries}
        self.entry = _Block(None, [])
        #: the statements being collected: a stage's `before`, or what comes `after` all stages
        self.phase = _Block(None, [])
        self.stack: list[_Block] = [self.phase]
        self.side = "step"
        self.index: dict[str, Expr] = {}
        self.memo: dict[object, Expr] = {}
        self.lasting: dict[object, Expr] = {}
        #: carries that this sweep scans → their locals, and those that an earlier one kept → where
        self.carry: dict[str, str] = {}
        self.kept: dict[str, str] = {}
        self.depth: dict[str, int] = {}

    def program(self) -> Program:
        walks = tuple(self._sweep(sweep) for sweep in sweeps(self.scan))
        program = Program(_unguarded(self.entry), walks, tuple(Kept(name, None) for name in self.kept.values()))
        return guard(program, [output.name for output in self.scan.outputs])

    def _sweep(self, sweep: Sweep) -> SweepProgram:
        self.names.next_sweep()
        self.memo, self.carry, self.depth = {}, {}, {}
        self.toward = sweep.toward
        made = [self._stage(stage) for stage in sweep.stages]
        after = self._open()
        for output in sweep.outputs:
            after.statements.append(Store(output.name, self._definition(output.name, 0), output.axes, output.span.line))
        for name in sweep.kept:
            self.kept[name] = self.names.lasting(f"{name}_kept")
            after.statements.append(Keep(self.kept[name], self.carry[name]))
        # How far back a carry is read is known once all that reads it is lowered.
        stages = tuple(
            replace(program, depth=max(self.depth[carry.name] for carry in stage.carries))
            for stage, program in zip(sweep.stages, made, strict=True)
        )
        return SweepProgram(sweep.toward, stages, _unguarded(after))

    def _stage(self, stage: Stage) -> StageProgram:
        before = self._open()
        names = tuple(carry.name for carry in stage.carries)
        starts = tuple(self._timeless(carry.start, _nearest(stage)) for carry in stage.carries)
        # Where several stages share a step, an element is named for its carry too.
        tail = f"_{names[0]}" if len(self.scan.stages) > 1 and len(names) == 1 else ""
        elements = tuple(self.names.fresh(name + tail) for name in stage.operator.elements)
        carries = tuple(self.names.fresh(name) for name in names)
        arriving = tuple(self.names.fresh(f"{local}_in") for local in carries)
        step = tuple(
            Assign(local, self.value(expr, 0), span.line)
            for local, expr, span in zip(elements, stage.step, stage.spans, strict=True)
        )
        self.carry |= dict(zip(names, carries, strict=True))
        self.depth |= dict.fromkeys(names, 1)
        return StageProgram(
            operator=stage.operator,
            before=_unguarded(before),
            step=step,
            starts=starts,
            depth=1,
            carries=carries,
            incoming=arriving,
            elements=elements,
            applied=tuple(incoming(name).name for name in names),
            anew=tuple((started(n).name, self.names.fresh(f"{n}_start")) for n in names if stage.operator.cut),
            tame=stage.tame,
        )

    def _open(self) -> _Block:
        """Begin to collect the statements of a phase."""
        self.phase = _Block(None, [])
        self.stack = [self.phase]
        return self.phase

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
        if ref.name in self.kept:
            return self._kept(ref, shift)
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
        if self._is_held(made, total):
            return self._previous(name, total, edge)
        key = ("let", name, total, edge is not None, self.side if not made.timed else "", self._held(made.axes))
        if key not in self._memo:
            value = self.value(made.value, total)
            if edge is not None:
                value = where(Inside(total), value, edge)
            self._memo[key] = self._assign(name + suffix(total), value, made.span.line, made.axes)
        return self._memo[key]

    def _is_held(self, made: Definition, total: int) -> bool:
        """Whether a definition read one step back is better held from there than computed anew."""
        if not (self.ordered and made.timed and total * self.toward == 1) or made.axes or _is_flag(made.value):
            return False
        parts = _closure(self.scan, made)
        carries = {part.name for part in parts if isinstance(part, Ref) and part.name in self.stage_of}
        return carries <= {*self.carry, *self.kept} and any(isinstance(part, Reduce | Take) for part in parts)

    def _previous(self, name: str, total: int, edge: Expr | None) -> Expr:
        """A definition as the step before had it. Without an edge the window's end does not matter: another covers it."""
        key = ("previous", name, edge is not None)
        if key not in self.memo:
            source = self._definition(name, 0)
            if not isinstance(source, Var):
                raise AssertionError(f"{name} has a local of its own")
            target, arriving = self.names.fresh(name + suffix(total)), self.names.fresh(f"{source.name}_in")
            self.phase.statements.append(Previous(target, source.name, arriving, edge or ZERO))
            self.memo[key] = Var(target)
        return self.memo[key]

    def _assign(self, base: str, value: Expr, line: int | None, axes: tuple[str, ...]) -> Expr:
        if isinstance(value, Var | Const) and not base:
            return value
        target = self._name(base)
        self._block(axes).statements.append(Assign(target, value, line))
        return Var(target, "flag" if _is_flag(value) else "number")

    def _read(self, ref: Ref, shift: int, chosen: Mapping[str, Expr]) -> Expr:
        item = self.inputs[ref.name]
        total = ref.offset + shift if ref.timed else 0
        held = dict(self.index)
        self.index |= chosen
        # An edge at a position that an input picked is as much this step's own as the position.
        home = self.phase if chosen else self.entry
        edge = self._edge(ref.name, total, ref.offset, home) if ref.timed else None
        self.index = held
        index = tuple((axis, chosen[axis] if axis in chosen else self._position(axis)) for axis in ref.axes)
        key = ("read", ref.name, total, edge is not None, index)
        for known in (self.memo, self.lasting):
            if key in known:
                return known[key]
        local = [axis for axis in ref.axes if axis not in chosen]
        for axis in chosen:
            # What the picking index itself varies with.
            local += [a for a in self.index if _mentions(chosen[axis], self.index[a])]
        # A position that an input picked may change from step to step, and so may what is read there.
        picked = any(not self._is_counter(axis, expr) for axis, expr in index)
        block = self._loop(tuple(local)) or (self.stack[0] if ref.timed or picked else self.entry)
        lasts = block is self.entry or self.stack[0] is self.entry
        name = self.names.lasting if lasts else self.names.fresh
        target = name(ref.name + suffix(total) + ("_taken" if chosen else ""))
        load = Load(
            target=target,
            ahead=name(f"{target}_ahead"),
            source=ref.name,
            offset=total,
            index=index,
            edge=edge,
            default=_default(item),
            kind=item.kind,
            timed=ref.timed,
            line=item.span.line,
        )
        block.statements.append(load)
        made = Var(target, ref.kind)
        (self.lasting if lasts else self.memo)[key] = made
        return made

    def _is_counter(self, axis: str, expr: Expr) -> bool:
        """Whether a position is a lane's or an open loop's own."""
        return expr == Var(f"{axis.lower()}_lane", "int") or any(
            block.axis == axis and self.index.get(axis) == expr for block in self.stack
        )

    def _param(self, name: str, shift: int) -> Expr:
        at = self.side
        key = ("param", name, shift if at == "step" else 0, at)
        if key not in self._memo:
            target = self._name(name + (suffix(shift) if at == "step" else f"_{at}"))
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
                line=self.params[name].span.line,
                param=True,
                at=at,
            )
            self.stack[0].statements.append(load)
            self._memo[key] = Var(target)
        return self._memo[key]

    def _neighbour(self, carry: str, offset: int) -> Expr:
        distance = offset * self.stage_of[carry].toward
        if distance == 0:
            return Var(self.carry[carry])
        key = ("carry", carry, distance)
        if key not in self.memo:
            target = self.names.fresh(self.carry[carry] + suffix(offset))
            self.phase.statements.append(Neighbour(target, self.carry[carry], distance))
            self.depth[carry] = max(self.depth[carry], distance)
            self.memo[key] = Var(target)
        return self.memo[key]

    def _kept(self, ref: Ref, shift: int) -> Expr:
        """A carry of an earlier sweep; beyond the window it is its start, or on the far side what its edge says."""
        stage, total = self.stage_of[ref.name], ref.offset + shift
        edge = None
        if ref.offset * total > 0:
            carry = next(c for c in stage.carries if c.name == ref.name)
            started = total * stage.toward > 0
            edge = self._timeless(carry.start, _nearest(stage)) if started else self._edge(ref.name, total, ref.offset)
        key = ("kept", ref.name, total, edge is not None)
        if key not in self.memo:
            target = self.names.fresh(ref.name + suffix(total))
            load = Load(
                target=target,
                ahead=self.names.fresh(f"{target}_ahead"),
                source=self.kept[ref.name],
                offset=total,
                index=(),
                edge=edge,
                default=None,
                kind="float",
                timed=True,
                line=stage.carries[0].span.line,
                kept=True,
            )
            self.phase.statements.append(load)
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
        if key in self._memo:
            return self._memo[key]
        index = self._name(node.axis.lower() + "_at")
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
        target = self._name(f"{node.op}_{node.axis.lower()}")
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
        self._memo[key] = Var(target)
        return self._memo[key]

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

    @property
    def _memo(self) -> dict[object, Expr]:
        """What was made where statements go now."""
        return self.lasting if self.stack[0] is self.entry else self.memo

    def _name(self, base: str) -> str:
        """A fresh local for where statements go now."""
        return self.names.lasting(base) if self.stack[0] is self.entry else self.names.fresh(base)

    def _timeless(self, expr: Expr, side: str, home: _Block | None = None) -> Expr:
        """A start or an edge: lowered into `entry`; params there are those of the step nearest to that end."""
        stack, self.stack = self.stack, [home or self.entry, *self.stack[1:]]
        held, self.side = self.side, side
        value = self.value(expr, 0)
        self.stack, self.side = stack, held
        return value

    def _edge(self, name: str, total: int, own: int, home: _Block | None = None) -> Expr | None:
        """The edge that a read needs: where the offset is its own, not one that an outer edge covers already."""
        edge = self.scan.edge(name)
        if edge is None or own == 0 or own * total <= 0:
            return None
        expr = edge.after if total > 0 else edge.before
        return None if expr is None else self._timeless(expr, "last" if total > 0 else "first", home)

    def _block(self, axes: tuple[str, ...]) -> _Block:
        """The innermost open loop over one of these axes, or the phase itself."""
        return self._loop(axes) or self.stack[0]

    def _loop(self, axes: tuple[str, ...]) -> _Block | None:
        return next((block for block in reversed(self.stack) if block.axis in axes), None)

    def _position(self, axis: str) -> Expr:
        return self.index.get(axis, Var(f"{axis.lower()}_lane", "int"))

    def _held(self, axes: tuple[str, ...]) -> tuple[tuple[str, Expr], ...]:
        return tuple((axis, self.index[axis]) for axis in axes if axis in self.index)


def _closure(scan: Scan, made: Definition) -> list[Expr]:
    """Every expression that a definition consists of, those of the definitions that it reads among them."""
    found: list[Expr] = []
    met, rest = {made.name}, [made]
    while rest:
        parts = list(walk(rest.pop().value))
        found += parts
        inner = [scan.definition(part.name) for part in parts if isinstance(part, Ref)]
        rest += [new for new in dict.fromkeys(inner) if new is not None and new.name not in met]
        met |= {new.name for new in rest}
    return found


def _default(item: Input) -> Const | None:
    if item.default is None:
        return None
    return Const(bool(item.default), "flag") if item.kind == "flag" else Const(item.default)


def _is_flag(expr: Expr) -> bool:
    return getattr(expr, "kind", "number") == "flag"


def _mentions(expr: Expr, var: Expr) -> bool:
    return any(node == var for node in walk(expr))


def _mentions_any(loop: Loop, var: Expr) -> bool:
    return isinstance(var, Var) and var.name in uses(loop)


def _nearest(stage: Stage) -> str:
    """The step beside a stage's start."""
    return "last" if stage.toward > 0 else "first"


def _unguarded(block: _Block) -> tuple[Guarded, ...]:
    return tuple(Guarded(statement, None) for statement in block.statements)
