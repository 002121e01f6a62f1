"""Triton: the printer of expressions and the statements of the `tile` and `columns` kernels."""

from __future__ import annotations

from typing import Any, ClassVar

from rlscan.backends.base import Writer, functions
from rlscan.backends.printer import _BITAND, _BITOR, _UNARY, Lines, Printer
from rlscan.ir import Const, Expr, Var, substitute
from rlscan.lower import Load, Loop, Neighbour, Statement, Store
from rlscan.schedule import Schedule, local_name

_COLUMNS = (
    "# Few environments: many steps a block, over several warps. Many: a warp each, with fewer steps and more lanes.",
    "steps, LANES = (512, 4) if total <= 1024 else (128, 16) if total <= 8192 else (16, 8)",
    "if total > 32768:",
    "    steps, LANES = (8, 16) if total <= 2**18 else (4, 32)",
    "BLOCK = min(triton.next_power_of_2(T), steps)",
    "WARPS = max(1, LANES * BLOCK // 256) if steps >= 128 else 1",
)
#: The block of a launch from T and the number of lanes, as found best on an H200 (benchmarks/results/tiles-h200.json). A step
#: that holds many values at once needs fewer steps a thread, or its registers spill: the second of each pair.
TILES: dict[tuple[str, bool], tuple[str, ...]] = {
    ("tile", False): (
        "# A row of up to 4096 steps is one block; a longer one goes through blocks of 1024, each read ahead.",
        "BLOCK = triton.next_power_of_2(T) if T <= 4096 else 1024",
        "LANES = 8 if BLOCK <= 32 else 2 if BLOCK <= 128 else 1",
        "WARPS = max(1, LANES * BLOCK // 512) if T <= 512 else max(1, BLOCK // 1024) if T <= 4096 else 4",
    ),
    ("tile", True): (
        "# A row of up to 1024 steps is one block; a longer one goes through blocks of 1024, each read ahead.",
        "BLOCK = min(triton.next_power_of_2(T), 1024)",
        "LANES = 4 if BLOCK <= 32 else 2 if BLOCK <= 128 else 1",
        "WARPS = max(1, LANES * BLOCK // (128 if BLOCK <= 512 else 256))",
    ),
    ("columns", False): _COLUMNS,
    ("columns", True): _COLUMNS,
}


def _is_wide(schedule: Schedule) -> bool:
    """Whether a step holds many values at once: more than six reads, or a scan of more than two elements."""
    program = schedule.program
    reads = sum(isinstance(g.statement, Load) and not g.statement.param for g in (*program.before, *program.after))
    neighbours = any(isinstance(g.statement, Neighbour) for g in program.after)
    return reads > 6 or neighbours or len(program.elements) > 2


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

    def given(self, name: str) -> str:
        return f"{name}_ptr is not None"

    def absent(self, name: str) -> str:
        return f"{name}_ptr is None"

    def constant(self, value: Const) -> str:
        return self.printer.literal(value.value, True)

    def address(self, source: str, dims: tuple[str, ...], time: str, index: dict[str, str]) -> str:
        terms = [f"{source}_ptr"]
        for dim in dims:
            position = "env" if dim == "B" else time if dim == "T" else index[dim]
            terms.append(f"{position} * {stride(source, dim)}")
        return " + ".join(terms)

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
        mask = " & ".join([mask, *bounded])
        return f"tl.load({self.address(load.source, self.dims[load.source], time, index)}, mask={mask}, other={other})"

    def is_early(self, load: Load) -> bool:
        """Whether a block's read can be issued while the block before it is computed: its address is known then."""
        lanes = {f"{axis.lower()}_lane" for axis in self.schedule.lane_axes}
        return load.timed and not load.param and all(isinstance(e, Var) and e.name in lanes for _, e in load.index)

    def early(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The reads that are issued a block ahead, and their arrival in the block that they are for."""
        reads, arrivals = Lines(), Lines()
        for guarded in (*self.program.before, *self.program.after):
            load = guarded.statement
            if not isinstance(load, Load) or not self.is_early(load):
                continue
            wanted = " or ".join(self.given(name) for name in guarded.outputs or ())
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

    def loop_header(self, loop: Loop) -> str:
        return f"for {loop.index} in range({local_name(loop.axis)}):"

    def accumulator(self, loop: Loop) -> str:
        shape = "SHAPE" if loop.timed else "NARROW"
        start = self.printer.literal(loop.start.value if isinstance(loop.start, Const) else 0, False)
        return f"tl.full({shape}, {start}, ACC)"

    def neighbour(self, lines: Lines, statement: Neighbour) -> None:
        position = self.program.carries.index(statement.carry)
        if statement.distance == 1:
            # All steps before this one, applied to what came into the block: scanned beside the steps themselves.
            apply = _localise(self.schedule, self.scan.stages[0].operator.apply[position], self.program.preceding)
            lines.add(f"{statement.target} = {self.printer.argument(apply)}")
            return
        held = [self.held(position, step) for step in range(1, statement.distance + 1)]
        # The first slots look back into the block before this one.
        lines.add(f"{statement.target} = earlier({statement.carry}, {statement.distance}, AXIS, SHAPE, BLOCK)")
        for slot, value in enumerate(reversed(held)):
            lines.add(f"{statement.target} = tl.where(slot == {slot}, {value}, {statement.target})")

    def held(self, position: int, distance: int) -> str:
        """The carry's value `distance` steps before this block's (this step's) own."""
        base = self.program.incoming[position]
        return base if distance == 1 else f"{base}{distance}"

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
    scan, program, stage = schedule.scan, schedule.program, schedule.scan.stages[0]
    operator = stage.operator
    printer = writer.printer
    tensors = [(item.name, item.dims) for item in scan.inputs]
    tensors += [(output.name, ("B", "T", *output.axes)) for output in scan.outputs]
    tensors += [(param.name, ("B", "T")) for param in scan.params]
    kernel_args = [f"{name}_ptr" for name, _ in tensors]
    kernel_args += [f'{param.name}_value: "fp64"' for param in scan.params]
    kernel_args += [stride(name, dim) for name, dims in tensors for dim in dims]
    launch_args = [local_name(name) for name, _ in tensors[: len(scan.inputs) + len(scan.outputs)]]
    params = [local_name(param.name) for param in scan.params]
    launch_args += [f"{param} if torch.is_tensor({param}) else None" for param in params]
    launch_args += [f"0.0 if torch.is_tensor({param}) else {param}" for param in params]
    for name, dims in tensors:
        order = ", ".join("b" if d == "B" else "t" if d == "T" else str(i) for i, d in enumerate(dims))
        if "T" not in dims:
            order = ", ".join(str(i) for i in range(len(dims)))
        launch_args.append(f"*strides({local_name(name)}, {order})")
    used = functions(schedule)
    carries = [
        {
            "name": local,
            "held": tuple(writer.held(i, d) for d in range(1, program.depth + 1)),
            "slots": tuple({"name": writer.held(i, d), "distance": d} for d in range(program.depth, 0, -1)),
            "start": printer.argument(start),
            "apply": printer.argument(_localise(schedule, apply, program.elements)),
        }
        for i, (local, start, apply) in enumerate(zip(program.carries, program.starts, operator.apply, strict=True))
    ]
    lanes = ["B", *map(local_name, schedule.lane_axes)]
    return {
        "arguments": tuple(kernel_args),
        "launch_arguments": tuple(launch_args),
        "combine_arguments": ", ".join(f"{n}_{side}" for side in ("first", "second") for n in operator.elements),
        "combined": tuple(_CombinePrinter().text(expr) for expr in operator.combine),
        # One element is returned as it is: a tuple of one is not what a scan expects.
        "combined_alone": _CombinePrinter().text(operator.combine[0]) if len(operator.combine) == 1 else "",
        "scanned": ", ".join(program.elements),
        "scanning": _operands(program.elements),
        **_exclusive(writer),
        "integers": scan.whole and any(item.kind == "num" for item in scan.inputs),
        "lanes": tuple(_decode(schedule)),
        "lane_total": " * ".join(lanes),
        "rows": schedule.kind == "tile",
        "axis": "FAST" if schedule.kind == "tile" else "0",
        "tile": TILES[schedule.kind, _is_wide(schedule)],
        "reads": writer.early()[0],
        "arrivals": writer.early()[1],
        "entry": writer.body(program.entry),
        "before": writer.body(program.before),
        "step": tuple(_assign(writer, a.target, a.value, a.line) for a in program.step),
        "elements": program.elements,
        "carries": tuple(carries),
        "after": writer.body(program.after),
        "uses_earlier": any(isinstance(g.statement, Neighbour) and g.statement.distance > 1 for g in program.after),
        "uses_order": bool(used & {"min", "max", "clip"}),
        "uses_tanh": "tanh" in used,
    }


def _operands(names: tuple[str, ...]) -> str:
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def _exclusive(writer: TritonWriter) -> dict[str, Any]:
    """The scan of all steps before each one, where outputs read the neighbouring carry.

    It goes with the scan of the steps as more elements of the same combine: (steps up to here, steps before here). A single
    step has the identity before it. Shifting the scanned carry along the block instead goes through shared memory.
    """
    program, operator = writer.program, writer.scan.stages[0].operator
    near = [g for g in program.after if isinstance(g.statement, Neighbour) and g.statement.distance == 1]
    outputs = tuple(dict.fromkeys(name for g in near for name in g.outputs or ()))
    always = any(g.outputs is None for g in near)
    first = [f"{n}_first" for n in operator.elements]
    second = [f"{n}_second" for n in operator.elements]
    before = [f"{n}_before" for n in operator.elements]
    return {
        "exclusive": bool(near),
        "exclusive_test": "" if always else " or ".join(writer.given(name) for name in outputs),
        "exclusive_scanned": ", ".join((*program.elements, *program.preceding)),
        "exclusive_scanning": _operands((*program.elements, *program.preceding)),
        "identities": tuple(
            {"name": name, "value": f"tl.full(SHAPE, {writer.printer.literal(value.value, False)}, ACC)"}
            for name, value in zip(program.preceding, operator.identity, strict=True)
            if isinstance(value, Const)
        ),
        "exclusive_arguments": ", ".join(
            [*first, *(f"{n}_first" for n in before), *second, *(f"{n}_second" for n in before)]
        ),
        "steps_call": ", ".join([*first, *second]),
        "before_call": ", ".join([*first, *(f"{n}_second" for n in before)]),
        "steps_made": ", ".join(operator.elements),
        "before_made": ", ".join(before),
    }


class _CombinePrinter(TritonPrinter):
    """A combine's expressions: their literals stand beside blocks and take their type."""

    def literal(self, value: float | int | bool, alone: bool) -> str:  # noqa: ARG002
        if isinstance(value, bool):
            return repr(value)
        return 'float("inf")' if value == float("inf") else '-float("inf")' if value == float("-inf") else repr(value)


def _assign(writer: TritonWriter, target: str, value: Expr, line: int | None) -> str:
    note = writer.note(line)
    return f"{target} = {writer.printer.argument(value)}{f'  # {note}' if note else ''}"


def _localise(schedule: Schedule, expr: Expr, elements: tuple[str, ...]) -> Expr:
    """apply's Vars under the local names of these elements and of the incoming carries."""
    program, stage = schedule.program, schedule.scan.stages[0]
    values: dict[str, Expr] = {n: Var(local) for n, local in zip(stage.operator.elements, elements, strict=True)}
    values.update({f"{c.name}_in": Var(local) for c, local in zip(stage.carries, program.incoming, strict=True)})
    return substitute(expr, values)


def _decode(schedule: Schedule) -> list[dict[str, str]]:
    """Lane number → its position on each axis, the last axis fastest."""
    decoded = []
    rest = "lane"
    for axis in reversed(schedule.lane_axes):
        decoded.append({"name": f"{axis.lower()}_lane", "value": f"{rest} % {local_name(axis)}"})
        rest = f"{rest} // {local_name(axis)}"
    decoded.append({"name": "env", "value": rest})
    return decoded
