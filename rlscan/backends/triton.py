"""Triton: the printer of expressions and the statements of the `tile` and `columns` kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from rlscan.backends.base import Writer, functions
from rlscan.backends.printer import _BITAND, _BITOR, _UNARY, Lines, Printer
from rlscan.backends.tiles import TILES
from rlscan.ir import Const, Expr, Operator, Var
from rlscan.program import (
    Guarded,
    Keep,
    Load,
    Loop,
    Neighbour,
    Previous,
    StageProgram,
    Statement,
    Store,
    SweepProgram,
)
from rlscan.schedule import Schedule, local_name


def _is_wide(schedule: Schedule) -> bool:
    """Whether a step holds many values at once: more than six reads, or a scan of more than two elements."""
    return any(_is_wide_sweep(sweep) for sweep in schedule.program.sweeps)


def _is_wide_sweep(sweep: SweepProgram) -> bool:
    statements = [g.statement for g in sweep.guarded]
    reads = sum(isinstance(statement, Load) and not statement.param for statement in statements)
    neighbours = any(isinstance(statement, Neighbour) for statement in statements)
    return reads > 6 or neighbours or sum(len(stage.elements) for stage in sweep.stages) > 2


class TritonPrinter(Printer):
    """Values are blocks of the kernel's shape or of a shape that broadcasts to it."""

    functions: ClassVar[dict[str, str]] = {
        "min": "smaller",
        "max": "larger",
        "abs": "tl.abs",
        "exp": "tl.exp",
        "log": "tl.log",
        "sqrt": "tl.sqrt",
        "tanh": "tanh",
        "sigmoid": "tl.sigmoid",
    }
    logic: ClassVar[dict[str, tuple[str, int]]] = {"and": ("&", _BITAND), "or": ("|", _BITOR)}
    negation = ("~", _UNARY)

    def literal(self, value: float | int | bool, alone: bool) -> str:
        if isinstance(value, bool):
            return f"tl.full(UNIT, {value}, tl.int1)"
        text = 'float("inf")' if value == float("inf") else '-float("inf")' if value == float("-inf") else repr(value)
        # Alone, or beside another literal, Python's number would become a float32.
        return f"tl.full(UNIT, {text}, ACC)" if alone else text

    def select(self, condition: Expr, x: Expr, y: Expr) -> tuple[str, int]:
        return f"tl.where({self.text(condition)}, {self.argument(x)}, {self.argument(y)})", 9

    def number(self, expr: Expr) -> str:
        return f"{self.within(expr, 9)}.to(ACC)"


class TritonWriter(Writer):
    printer = TritonPrinter()

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.dims = {item.name: item.dims for item in self.scan.inputs}
        self.time = ("t", "here")
        self.time_ahead = ("t_ahead", "here_ahead")
        #: the positions that lie along a block's own first axis, and the named axis of each
        self.across: dict[str, str] = {}

    def given(self, name: str) -> str:
        return f"{name}_ptr is not None"

    def absent(self, name: str) -> str:
        return f"{name}_ptr is None"

    def constant(self, value: Const) -> str:
        return self.printer.literal(value.value, True)

    def address(self, source: str, dims: tuple[str, ...], time: str, index: dict[str, str]) -> str:
        places = {"B": "env", "T": time, **index}
        along = next((dim for dim in dims if places[dim] in self.across), None)
        if along is None:
            return " + ".join([f"{source}_ptr", *(f"{places[dim]} * {stride(source, dim)}" for dim in dims)])
        # The axis's rows begin on multiples of what divides all strides, written so that Triton sees it and reads wide.
        rows = [f"{places[dim]} * ({stride(source, dim)} // {along}_ALIGN)" for dim in dims if dim != along]
        return f"{source}_ptr + ({' + '.join(rows)}) * {along}_ALIGN + {places[along]} * {stride(source, along)}"

    def load(self, lines: Lines, load: Load) -> None:
        lines.add(f"{load.target} = {self.cast(load, self.read(load, self.time))}", self.note(load.line))
        self.edge(lines, load)

    def edge(self, lines: Lines, load: Load) -> None:
        if load.edge is not None:
            edge = self.printer.argument(load.edge)
            lines.add(f"{load.target} = tl.where({self.printer.inside(load.offset)}, {load.target}, {edge})")

    def cast(self, load: Load, text: str) -> str:
        return f"{text} != 0" if load.kind == "flag" else text if load.kind == "int" else f"{text}.to(ACC)"

    def statement(self, lines: Lines, statement: Statement) -> None:
        if isinstance(statement, Load) and self.is_early(statement):
            # Its read was issued a block ago: only what lies past the window's end is left to say.
            self.edge(lines, statement)
        else:
            super().statement(lines, statement)

    def read(self, load: Load, clock: tuple[str, str]) -> str:
        index = {axis: self.printer.within(expr, 8) for axis, expr in load.index}
        time, mask = self.place(load, clock)
        bounded = [
            f"({index[axis]} >= 0) & ({index[axis]} < {local_name(axis)})"
            for axis, expr in load.index
            if self.is_picked(axis, index[axis])
        ]
        # An index out of range must not read other memory; it shows as a NaN.
        other = 'float("nan")' if bounded and load.kind != "int" else "0"
        # A block of an axis may reach beyond its end.
        within = [f"({index[a]} < {local_name(a)})" for a, _ in load.index if index[a] in self.across]
        mask = " & ".join([mask, *within, *bounded])
        address = (
            self.kept(load.source, time)
            if load.kept
            else self.address(load.source, self.dims[load.source], time, index)
        )
        return f"tl.load({address}, mask={mask}, other={other})"

    def kept(self, name: str, time: str) -> str:
        """Where a kept carry of a lane and a step lies: in the order in which the kernel walks memory."""
        if self.schedule.kind == "tile":
            return f"{name}_ptr + lane * T + {time}"
        return f"{name}_ptr + {time} * ({self.lane_total}) + lane"

    @property
    def lane_total(self) -> str:
        return " * ".join(["B", *map(local_name, self.schedule.lane_axes)])

    def is_early(self, load: Load) -> bool:
        """Whether a block's read can be issued while the block before it is computed: its address is known then."""
        lanes = {f"{axis.lower()}_lane" for axis in self.schedule.lane_axes}
        return load.timed and not load.param and all(isinstance(e, Var) and e.name in lanes for _, e in load.index)

    def early(self, statements: Sequence[Guarded]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The reads that are issued a block ahead, and their arrival in the block that they are for."""
        reads, arrivals = Lines(), Lines()
        for guarded in statements:
            load = guarded.statement
            if not isinstance(load, Load) or not self.is_early(load):
                continue
            wanted = self.wanted(guarded.outputs)
            tests = [wanted] if wanted else []
            if load.default is not None:
                tests.append(self.given(load.source))
                tests = [f"({test})" if " or " in test else test for test in tests]
            for lines in (reads, arrivals):
                lines.depth = 0
            if tests:
                reads.add(f"if {' and '.join(tests)}:")
                reads.indent()
            reads.add(f"{load.ahead} = {self.read(load, self.time_ahead)}")
            if wanted:
                arrivals.add(f"if {wanted}:")
                arrivals.indent()
            arrival = f"{load.target} = {self.cast(load, load.ahead)}"
            if load.default is None:
                arrivals.add(arrival, self.note(load.line))
                continue
            arrivals.add(f"if {self.absent(load.source)}:")
            arrivals.add(f"    {load.target} = {self.constant(load.default)}", self.note(load.line))
            arrivals.add("else:")
            arrivals.add(f"    {arrival}")
        return tuple(reads.lines), tuple(arrivals.lines)

    def is_picked(self, axis: str, position: str) -> bool:
        return position != f"{axis.lower()}_lane" and not position.startswith(f"{axis.lower()}_at")

    def place(self, load: Load, clock: tuple[str, str]) -> tuple[str, str]:
        """The time index of a load and its mask, by the clock's names for the step and for what is in the window."""
        t, here = clock
        if not load.timed:
            return "", "live"
        if load.at != "step":
            return ("(T - 1)" if load.at == "last" else "0"), "live"
        if load.offset == 0:
            return t, here
        inside = self.printer.inside(load.offset).replace("t ", f"{t} ", 1)
        return f"({t} {'+' if load.offset > 0 else '-'} {abs(load.offset)})", f"{here} & ({inside})"

    def param(self, lines: Lines, load: Load) -> None:
        time, mask = self.place(load, self.time)
        lines.add(f"if {load.source}_ptr is None:")
        lines.add(f"    {load.target} = tl.full(UNIT, {load.source}_value, ACC)", self.note(load.line))
        lines.add("else:")
        address = f"{load.source}_ptr + env * {stride(load.source, 'B')} + {time} * {stride(load.source, 'T')}"
        lines.add(f"    {load.target} = tl.load({address}, mask={mask}, other=0).to(ACC)")

    def is_blocked(self, loop: Loop) -> bool:
        """Whether a reduction takes its axis in blocks, as a third axis before the block's own two.

        The innermost does, unless the axis has lanes elsewhere in the spec.
        """
        return loop.axis in self.schedule.reduced_axes and not any(isinstance(inner, Loop) for inner in loop.body)

    def loop_header(self, loop: Loop) -> tuple[str, ...]:
        size = local_name(loop.axis)
        if not self.is_blocked(loop):
            return (f"for {loop.index} in range({size}):",)
        self.across[loop.index] = loop.axis
        position = f"{loop.axis.lower()}_block"
        return (
            f"for {position} in range(0, {size}, {loop.axis}_BLOCK):",
            f"{loop.index} = ({position} + tl.arange(0, {loop.axis}_BLOCK)[:, None, None]).to(INDEX)",
        )

    def accumulate(self, loop: Loop) -> str:
        if not self.is_blocked(loop):
            return super().accumulate(loop)
        start = self.printer.literal(loop.start.value if isinstance(loop.start, Const) else 0, False)
        value = f"tl.where({loop.index} < {local_name(loop.axis)}, {self.printer.argument(loop.value)}, {start})"
        if loop.op == "sum":
            return f"{loop.target} + tl.sum({value}, 0)"
        order = self.printer.functions[loop.op]
        return f"{order}({loop.target}, tl.reduce({value}, 0, {order}))"

    def accumulator(self, loop: Loop) -> str:
        shape = "SHAPE" if loop.timed else "NARROW"
        start = self.printer.literal(loop.start.value if isinstance(loop.start, Const) else 0, False)
        return f"tl.full({shape}, {start}, ACC)"

    def neighbour(self, lines: Lines, statement: Neighbour) -> None:
        stage = self.stage_of[statement.carry]
        position = stage.carries.index(statement.carry)
        value = statement.carry
        for distance in range(1, statement.distance + 1):
            # The first slots look back into the block before this one.
            value = f"earlier({value}, {self.held(stage, position, distance)}, slot, AXIS, SHAPE)"
        lines.add(f"{statement.target} = {value}")

    def previous(self, lines: Lines, statement: Previous) -> None:
        lines.add(f"{statement.target} = earlier({statement.source}, {statement.arriving}, slot, AXIS, SHAPE)")

    def identity(self, value: Expr) -> str:
        """An element of the identity, beside a block whose type it takes."""
        return _CombinePrinter().text(value)

    def keep(self, lines: Lines, keep: Keep) -> None:
        lines.add(f"tl.store({self.kept(keep.target, 't')}, {keep.carry}, mask={self.time[1]})")

    def store(self, lines: Lines, store: Store) -> None:
        index = {axis: f"{axis.lower()}_lane" for axis in store.axes}
        mask = self.time[1]
        for axis in self.schedule.lane_axes:
            if axis not in store.axes:
                mask += f" & ({axis.lower()}_lane == 0)"
        address = self.address(store.output, ("B", "T", *store.axes), "t", index)
        lines.add(f"tl.store({address}, {self.printer.argument(store.value)}, mask={mask})", self.note(store.line))


def stride(name: str, dim: str) -> str:
    return f"{name}_{dim.lower()}"


def view(schedule: Schedule) -> dict[str, Any]:
    """What the templates fill in, beside what every backend has."""
    writer = TritonWriter(schedule)
    scan, program = schedule.scan, schedule.program
    tensors = [(item.name, item.dims) for item in scan.inputs]
    tensors += [(output.name, ("B", "T", *output.axes)) for output in scan.outputs]
    tensors += [(param.name, ("B", "T")) for param in scan.params]
    kernel_args = [f"{name}_ptr" for name, _ in tensors]
    kernel_args += [f'{param.name}_value: "fp64"' for param in scan.params]
    kernel_args += [f"{kept.name}_ptr" for kept in program.kept]
    kernel_args += [stride(name, dim) for name, dims in tensors for dim in dims]
    launch_args = [local_name(name) for name, _ in tensors[: len(scan.inputs) + len(scan.outputs)]]
    params = [local_name(param.name) for param in scan.params]
    launch_args += [f"{param} if torch.is_tensor({param}) else None" for param in params]
    launch_args += [f"0.0 if torch.is_tensor({param}) else {param}" for param in params]
    launch_args += [kept.name for kept in program.kept]
    for name, dims in tensors:
        launch_args.append(f"*strides({local_name(name)}, {', '.join(_places(dims))})")
    used = functions(schedule)
    combines = _combines(program.stages)
    tamed_by = dict.fromkeys(param for stage in scan.stages for param in stage.tamed_by)
    statements = [g.statement for sweep in program.sweeps for g in sweep.guarded]
    sweeps = tuple(_sweep(writer, sweep, combines, i) for i, sweep in enumerate(program.sweeps))
    return {
        "arguments": tuple(kernel_args),
        "launch_arguments": tuple(launch_args),
        "combines": tuple(combines.values()),
        "tame": " and ".join(f"not torch.is_tensor({p}) and -1 <= {p} <= 1" for p in map(local_name, tamed_by)),
        "integers": scan.whole and any(item.kind == "num" for item in scan.inputs),
        "sizes": tuple(_sizes(schedule)),
        "reduced": bool(schedule.reduced_axes),
        "lanes": tuple(_decode(schedule)),
        "lane_total": writer.lane_total,
        "rows": schedule.kind == "tile",
        "axis": "FAST" if schedule.kind == "tile" else "0",
        "tile": (*TILES[schedule.kind, _is_wide(schedule)], *_for_axes(schedule)),
        # A program takes all of its lanes' time.
        "place": "slot",
        "blocks": "tl.cdiv(T, BLOCK)",
        "entry": writer.body(program.entry),
        "kept": tuple(_kept(writer, kept.name, kept.outputs) for kept in program.kept),
        "sweeps": sweeps,
        "uses_earlier": any(isinstance(statement, Neighbour | Previous) for statement in statements),
        "uses_order": bool(used & {"min", "max", "clip"}),
        "uses_tanh": "tanh" in used,
    }


def _for_axes(schedule: Schedule) -> list[str]:
    """What a reduced axis changes of a tile: its block is held in registers, and they have to be there.

    Chosen by what compiles for sm_90 without spills, not by time: tests/test_compiled.py counts them.
    """
    if not schedule.reduced_axes:
        return []
    lines = ["WARPS = min(16, WARPS * 2)  # registers for the axis"]
    if schedule.kind == "columns":
        lines += ["if LANES * BLOCK >= 2048:", "    BLOCK, WARPS = 1024 // LANES, 8"]
    if schedule.kind == "chunks":
        lines += ["if LANES > 1:", "    BLOCK //= 2"]
    return lines


def _sizes(schedule: Schedule) -> list[dict[str, str]]:
    """The kernel's arguments for the named axes, as they are declared and as a launch has them."""
    sizes = [{"declared": local_name(axis), "name": local_name(axis), "value": ""} for axis in schedule.lane_axes]
    for axis in schedule.reduced_axes:
        size = local_name(axis)
        others = [
            f"*strides({local_name(item.name)}, {', '.join(_places(item.dims, axis))})"
            for item in schedule.scan.inputs
            if axis in item.dims
        ]
        values = {
            size: "",
            f"{axis}_BLOCK": f"min(triton.next_power_of_2({size}), 4)",
            f"{axis}_ALIGN": f"math.gcd(16, {', '.join(others)})",
        }
        sizes += [{"declared": f"{name}: tl.constexpr", "name": name, "value": v} for name, v in values.items()]
    return sizes


def _places(dims: tuple[str, ...], without: str = "") -> list[str]:
    """The places of a tensor's dims, in the caller's layout."""
    named = {"B": "batch", "T": "time"} if "T" in dims else {}
    return [named.get(dim, str(i)) for i, dim in enumerate(dims) if dim != without]


def _kept(writer: TritonWriter, name: str, outputs: tuple[str, ...] | None) -> dict[str, str]:
    """A workspace for a carry that one walk leaves to the next."""
    shape = "(total, T)" if writer.schedule.kind == "tile" else "(T, total)"
    wanted = " or ".join(f"{local_name(output)} is not None" for output in outputs or ())
    made = f"torch.empty({shape}, dtype=number, device=out.device)"
    return {"name": name, "value": f"{made} if {wanted} else None" if wanted else made}


def _sweep(
    writer: TritonWriter, sweep: SweepProgram, combines: dict[Operator, dict[str, Any]], place: int
) -> dict[str, Any]:
    reads, arrivals = writer.early(sweep.guarded)
    return {
        "backward": sweep.toward > 0,
        "inside": "t_ahead >= 0" if sweep.toward > 0 else "t_ahead < T",
        "later": place > 0,
        "wanted": writer.wanted(sweep.outputs),
        "reads": reads,
        "arrivals": arrivals,
        "stages": tuple(_stage(writer, stage, combines) for stage in sweep.stages),
        "previous": tuple(
            {
                "wanted": writer.wanted(wanted),
                "name": previous.arriving,
                "start": writer.printer.argument(previous.start),
                "handover": _last(previous.source, 1),
            }
            for previous, wanted in sweep.previous
        ),
        "after": writer.body(sweep.after),
    }


def _stage(writer: TritonWriter, stage: StageProgram, combines: dict[Operator, dict[str, Any]]) -> dict[str, Any]:
    printer = writer.printer
    combine = combines[_maps(stage.operator)]["name"]
    tame = combines[_maps(stage.tame)]["name"] if stage.tame else combine
    return {
        "before": writer.body(stage.before),
        "step": writer.steps(stage),
        "wanted": writer.wanted(stage.outputs),
        "elements": stage.elements,
        "combine": combine,
        "combine_in_block": f"{tame} if TAME else {combine}" if stage.tame else combine,
        "scanned": ", ".join(stage.elements),
        "scanning": operands(stage.elements),
        # What the next block starts from: the carry at this one's last slots.
        "handover": tuple(
            f"{writer.held(stage, i, d)} = {_last(local, d)}"
            for i, local in enumerate(stage.carries)
            for d in range(stage.depth, 0, -1)
        ),
        "carries": tuple(
            {
                "name": local,
                "held": tuple(writer.held(stage, i, d) for d in range(1, stage.depth + 1)),
                "anew": tuple(local for _, local in stage.anew),
                "arrives": printer.argument(start),
                "start": printer.argument(start),
                "apply": writer.applied(stage, apply, stage.elements),
            }
            for i, (local, start, apply) in enumerate(
                zip(stage.carries, stage.starts, stage.operator.apply, strict=True)
            )
        ),
    }


def _last(value: str, distance: int) -> str:
    """A block's value at its last slot, or `distance` − 1 before that."""
    return f"tl.sum(tl.where(slot == BLOCK - {distance}, {value}, 0), AXIS, keep_dims=True)"


def _maps(operator: Operator) -> Operator:
    """What of an operator its combine depends on: two carries of one family share it."""
    return replace(operator, apply=())


def _combines(stages: tuple[StageProgram, ...]) -> dict[Operator, dict[str, Any]]:
    """The functions that compose steps, one for each family."""
    made: dict[Operator, dict[str, Any]] = {}
    for stage in stages:
        name = f"combine_{stage.carries[0]}" if made else "combine"
        for operator in (stage.operator, stage.tame):
            if operator is None or _maps(operator) in made:
                continue
            first, second = ([f"{n}_{side}" for n in operator.elements] for side in ("first", "second"))
            combined = tuple(_CombinePrinter().text(expr) for expr in operator.combine)
            tail, where = ("_tame", ", where no coefficient is beyond 1") if operator is stage.tame else ("", "")
            made[_maps(operator)] = {
                "name": name + tail,
                "title": f"The step `second` after the step `first`{where}.",
                "arguments": ", ".join([*first, *second]),
                "composed": combined,
                # One element is returned as it is: a tuple of one is not what a scan expects.
                "alone": combined[0] if len(combined) == 1 else "",
            }
    return made


def operands(names: tuple[str, ...]) -> str:
    """What a scan takes: of a tuple of one it would return a tuple."""
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


class _CombinePrinter(TritonPrinter):
    """A combine's expressions: their literals stand beside blocks and take their type."""

    def literal(self, value: float | int | bool, alone: bool) -> str:  # noqa: ARG002
        if isinstance(value, bool):
            return repr(value)
        return 'float("inf")' if value == float("inf") else '-float("inf")' if value == float("-inf") else repr(value)


def _decode(schedule: Schedule) -> list[dict[str, str]]:
    """Lane number → its position on each axis, the last axis fastest."""
    decoded = []
    rest = "lane"
    for axis in reversed(schedule.lane_axes):
        decoded.append({"name": f"{axis.lower()}_lane", "value": f"{rest} % {local_name(axis)}"})
        rest = f"{rest} // {local_name(axis)}"
    decoded.append({"name": "env", "value": rest})
    return decoded
