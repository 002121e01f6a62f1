"""CPU: Numba loops over environments and steps (`rows`, `steps`), and the NumPy loop where Numba cannot be had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from rlscan.backends.base import Writer
from rlscan.backends.printer import Lines, Printer
from rlscan.ir import Const, Expr, Var
from rlscan.names import suffix
from rlscan.program import Keep, Load, Loop, Neighbour, Previous, StageProgram, Store, SweepProgram, Wanted
from rlscan.schedule import Schedule, local_name


class ScalarPrinter(Printer):
    """One element at a time; `number` is the accumulation type."""

    functions: ClassVar[dict[str, str]] = {
        "min": "np.minimum",
        "max": "np.maximum",
        "abs": "abs",
        "exp": "np.exp",
        "log": "np.log",
        "sqrt": "np.sqrt",
        "tanh": "np.tanh",
        "sigmoid": "sigmoid",
    }

    def literal(self, value: float | int | bool, alone: bool) -> str:  # noqa: ARG002
        if isinstance(value, bool):
            return repr(value)
        # Python's own number would make a float32 expression a float64 one.
        if value in (float("inf"), float("-inf")):
            return "number(np.inf)" if value > 0 else "number(-np.inf)"
        return f"number({value!r})"

    def select(self, condition: Expr, x: Expr, y: Expr) -> tuple[str, int]:
        return f"({self.text(x)} if {self.text(condition)} else {self.text(y)})", 9

    def number(self, expr: Expr) -> str:
        return f"number({self.text(expr)})"

    def function(self, fn: str, args: Any) -> str:
        if fn == "sigmoid":
            return f"(number(1) / (number(1) + np.exp(-{self.within(args[0], 8)})))"
        return super().function(fn, args)


class ArrayPrinter(ScalarPrinter):
    """All environments of a step at once."""

    logic: ClassVar[dict[str, tuple[str, int]]] = {"and": ("&", 5), "or": ("|", 4)}
    negation = ("~", 8)

    def literal(self, value: float | int | bool, alone: bool) -> str:
        return f"np.bool_({value})" if isinstance(value, bool) else super().literal(value, alone)

    def select(self, condition: Expr, x: Expr, y: Expr) -> tuple[str, int]:
        return f"np.where({self.text(condition)}, {self.argument(x)}, {self.argument(y)})", 9

    def number(self, expr: Expr) -> str:
        return f"number({self.text(expr)})" if isinstance(expr, Const) else f"{self.within(expr, 9)}.astype(number)"


@dataclass(frozen=True, slots=True)
class View:
    """A part of an array that an inner loop reads one-dimensionally: that is what the compiler can vectorise."""

    name: str
    source: str
    value: str
    optional: bool
    timed: bool


class CpuWriter(Writer):
    """Statements of the Numba kernels and of the NumPy loop: they differ in what one read covers."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.dims = {item.name: item.dims for item in self.scan.inputs}
        self.kind = schedule.kind
        self.printer = ArrayPrinter() if self.kind == "loop" else ScalarPrinter()
        #: what the kernel hoists out of its inner loop
        self.views: dict[str, View] = {}
        self.takes = False

    def given(self, name: str) -> str:
        return f"{name}_array is not None"

    def absent(self, name: str) -> str:
        return f"{name}_array is None"

    def constant(self, value: Const) -> str:
        return self.printer.literal(value.value, True)

    # -- reads ------------------------------------------------------------------------------------------------------

    def load(self, lines: Lines, load: Load) -> None:
        index = {axis: self.printer.text(expr) for axis, expr in load.index}
        text = self.cast(load, self.element(load, index))
        inside = self.printer.inside(load.offset)
        if load.edge is not None:
            text = f"{text} if {inside} else {self.printer.argument(load.edge)}"
        elif load.timed and load.offset:
            # Any value will do outside the window: an outer edge covers it. NumPy's own truth value, for `~` to invert.
            nothing = {"flag": self.printer.literal(False, True), "int": "0"}.get(load.kind, "number(0)")
            text = f"{text} if {inside} else {nothing}"
        lines.add(f"{load.target} = {text}", self.note(load.line))

    def cast(self, load: Load, text: str) -> str:
        if load.kind == "flag":
            return f"{text} != 0"
        return text

    def element(self, load: Load, index: dict[str, str]) -> str:
        if load.kept:
            return self.kept(load)
        dims = self.dims[load.source]
        if self.kind == "loop":
            return self.block(load, dims, index)
        lanes = {axis: f"{axis.lower()}_lane" for axis in self.schedule.lane_axes}
        fixed = {axis for axis in dims if axis in lanes and index[axis] == lanes[axis]}
        if self.kind == "rows":
            parts = ["env", *(lanes[d] if d in fixed else ":" for d in dims[1:])]
            view = self.view(f"{load.source}_row", load, f"{load.source}_array[{', '.join(parts)}]")
            moving = [self.step(load) if d == "T" else index[d] for d in dims[1:] if d not in fixed]
            return self.pick(view, moving, load) if moving else view
        # Logical order of this schedule: time first. Past an end any step will do: the value is not used.
        time = [self.clamped(load)] if load.timed else []
        rest = [lanes[d] if d in fixed else ":" for d in dims if d not in ("B", "T")]
        base = f"{load.source}{suffix(load.offset)}_step" if load.timed else f"{load.source}_all"
        view = self.view(base, load, f"{load.source}_array[{', '.join([*time, 'left:right', *rest])}]")
        moving = ["i", *(index[d] for d in dims if d not in ("B", "T") and d not in fixed)]
        return self.pick(view, moving, load)

    def kept(self, load: Load) -> str:
        """A carry that an earlier walk kept for each step."""
        if self.kind == "rows":
            return f"{load.source}[{self.step(load)}]"
        if self.kind == "loop":
            return f"{load.source}[{self.clamped(load)}]"
        view = self.view(f"{load.source}{suffix(load.offset)}_step", load, f"{load.source}[{self.clamped(load)}]")
        return f"{view}[i]"

    def view(self, base: str, load: Load, value: str) -> str:
        """The name of what is hoisted; a source read both whole and at its lane's element is hoisted twice."""
        name = self.names(base)
        while name in self.views and self.views[name].value != value:
            name = self.names(f"{name}_")
        self.views[name] = View(name, load.source, value, load.default is not None, load.timed)
        return name

    def pick(self, view: str, moving: list[str], load: Load) -> str:
        """view[…]; where the last position was picked by an input, checked against the axis."""
        picked = [axis for axis, expr in load.index if not _is_loop_index(axis, expr)]
        if not picked:
            return f"{view}[{', '.join(moving)}]"
        self.takes = True
        head = f"{view}[{', '.join(moving[:-1])}]" if moving[:-1] else view
        return f"take({head}, {moving[-1]})"

    def block(self, load: Load, dims: tuple[str, ...], index: dict[str, str]) -> str:
        """The NumPy loop's read: all environments and lanes of a step, aligned to [B, *lanes]."""
        lanes = {axis: f"{axis.lower()}_lane" for axis in self.schedule.lane_axes}
        named = [d for d in dims if d not in ("B", "T")]
        time = [self.clamped(load)] if load.timed else []
        picked = [axis for axis, expr in load.index if not _is_loop_index(axis, expr)]
        if picked:
            self.takes = True
            axis = picked[0]
            parts = [":" if d == axis or index[d] == lanes.get(d) else index[d] for d in named]
            rest = [d for d, part in zip(named, parts, strict=True) if part == ":"]
            source = f"{load.source}_array[{', '.join([*time, ':', *parts])}]"
            if rest[-1] != axis:
                source = f"np.moveaxis({source}, {1 + rest.index(axis)}, -1)"
            if len(rest) - 1 < len(self.schedule.lane_axes):
                # A lane axis that is picked along is the last one here, and none of the lanes'.
                held = [d for d in rest if d != axis]
                align = ", ".join([":", *(":" if d in held else "None" for d in self.schedule.lane_axes), ":"])
                source += f"[{align}]"
            return f"take({source}, {index[axis]})"
        parts = [*time, ":", *(":" if index[d] == lanes.get(d) else index[d] for d in named)]
        held = [d for d in named if index[d] == lanes.get(d)]
        text = f"{load.source}_array[{', '.join(parts)}]"
        if self.schedule.lane_axes and len(held) < len(self.schedule.lane_axes):
            align = ", ".join([":", *(":" if d in held else "None" for d in self.schedule.lane_axes)])
            text += f"[{align}]"
        return text

    def step(self, load: Load) -> str:
        return "t" if load.offset == 0 else f"t + {load.offset}" if load.offset > 0 else f"t - {-load.offset}"

    def clamped(self, load: Load) -> str:
        if load.offset == 0:
            return "t"
        return f"min({self.step(load)}, T - 1)" if load.offset > 0 else f"max({self.step(load)}, 0)"

    def names(self, base: str) -> str:
        """A local of the kernel's own that meets none of the spec's."""
        taken = {
            *self.dims,
            *(o.name for o in self.scan.outputs),
            *(p.name for p in self.scan.params),
            *self.stage_of,
        }
        taken |= {d.name for d in self.scan.lets}
        while base in taken:
            base += "_"
        return base

    def param(self, lines: Lines, load: Load) -> None:
        varying = f"{load.source}_each"
        time = self.clamped(load) if load.at == "step" else "T - 1" if load.at == "last" else "0"
        place = {"rows": f"env, {time}", "steps": f"{time}, left + i", "loop": f"{time}"}[self.kind]
        align = f"[{', '.join([':', *('None' for _ in self.schedule.lane_axes)])}]" if self.schedule.lane_axes else ""
        lines.add(f"if {varying} is None:")
        lines.add(f"    {load.target} = number({load.source}_value)", self.note(load.line))
        lines.add("else:")
        lines.add(f"    {load.target} = {varying}[{place}]{align if self.kind == 'loop' else ''}")

    # -- the rest ---------------------------------------------------------------------------------------------------

    def loop_header(self, loop: Loop) -> tuple[str, ...]:
        return (f"for {loop.index} in range({local_name(loop.axis)}):",)

    def accumulator(self, loop: Loop) -> str:
        return self.printer.literal(loop.start.value if isinstance(loop.start, Const) else 0, True)

    def neighbour(self, lines: Lines, statement: Neighbour) -> None:
        stage = self.stage_of[statement.carry]
        position = stage.carries.index(statement.carry)
        lines.add(f"{statement.target} = {self.held(stage, position, statement.distance)}")

    def previous(self, lines: Lines, statement: Previous) -> None:
        lines.add(f"{statement.target} = {statement.arriving}")

    def keep(self, lines: Lines, keep: Keep) -> None:
        lines.add(f"{keep.target}[{'t, i' if self.kind == 'steps' else 't'}] = {keep.carry}")

    def store(self, lines: Lines, store: Store) -> None:
        lanes = [f"{axis.lower()}_lane" for axis in store.axes]
        value = self.printer.argument(store.value)
        if self.kind == "rows":
            target = f"{store.output}_array[{', '.join(['env', 't', *lanes])}]"
        elif self.kind == "steps":
            target = f"{store.output}_array[{', '.join(['t', 'left + i', *lanes])}]"
        else:
            # A value is [B, *lanes]; an output that lacks a lane axis takes it where that has size 1.
            missing = len(store.axes) < len(self.schedule.lane_axes)
            align = [":" if axis in store.axes else "None" for axis in self.schedule.lane_axes] if missing else []
            target = f"{store.output}_array[{', '.join(['t', *([':'] if align else []), *align])}]"
        lines.add(f"{target} = {value}", self.note(store.line))


def view(schedule: Schedule) -> dict[str, Any]:
    """What the templates fill in, beside what every backend has."""
    writer = CpuWriter(schedule)
    scan, program = schedule.scan, schedule.program
    entry = writer.body(program.entry)
    sweeps = []
    for sweep in program.sweeps:
        sweeps.append(_sweep(writer, sweep))
        if schedule.kind == "steps":
            # A view of one step is that walk's own; in `rows` one view of the whole row serves every walk.
            writer.views = {name: view for name, view in writer.views.items() if not view.timed}
    names = [*(item.name for item in scan.inputs), *(output.name for output in scan.outputs)]
    params = [param.name for param in scan.params]
    timed = {item.name for item in schedule.timed_inputs} | {output.name for output in scan.outputs}
    loop = schedule.kind == "loop"
    swapped = []
    for name in names:
        given = local_name(name)
        swapped.append(f"part({given}, {name in timed})" if loop else f"swap({given})" if name in timed else given)
    numbers = [local_name(param) for param in params]
    return {
        "arguments": ", ".join(
            [*(f"{name}_array" for name in names), *(f"{p}_value" for p in params), *(f"{p}_each" for p in params)]
        ),
        "launch_arguments": (
            *swapped,
            *(f"0.0 if isinstance({p}, np.ndarray) else float({p})" for p in numbers),
            *(
                f"{f'part({p}, True)' if loop else f'swap({p})'} if isinstance({p}, np.ndarray) else None"
                for p in numbers
            ),
        ),
        "fixed_views": tuple(writer.views.values()),
        "entry": entry,
        "uses_take": writer.takes,
        "kept": tuple(kept.name for kept in program.kept),
        "sweeps": tuple(sweeps),
        "decode": tuple(_decode(schedule)),
        "walk": _walk(schedule),
        "blocks": " * ".join(["-(-(hi - lo) // width)", *map(local_name, schedule.lane_axes)]),
        "acc": "out.dtype.type",
        "time_first": schedule.kind != "rows",
    }


def _sweep(writer: CpuWriter, sweep: SweepProgram) -> dict[str, Any]:
    stages = tuple(_stage(writer, stage) for stage in sweep.stages)
    after = writer.body(sweep.after)
    return {
        "backward": sweep.toward > 0,
        "wanted": writer.wanted(sweep.outputs),
        "stages": stages,
        "carries_over": bool(stages or sweep.previous),
        "previous": tuple({"local": held.arriving, "state": f"{held.source}_state"} for held, _ in sweep.previous),
        "begin": tuple(line for held, wanted in sweep.previous for line in _hold(writer, held, held.start, wanted)),
        "hand": tuple(
            line for held, wanted in sweep.previous for line in _hold(writer, held, Var(held.source), wanted)
        ),
        "after": after,
        "views": tuple(view for view in writer.views.values() if view.timed),
    }


def _stage(writer: CpuWriter, stage: StageProgram) -> dict[str, Any]:
    parts = zip(stage.carries, stage.starts, stage.operator.apply, strict=True)
    carries = tuple(_carry(writer, stage, i, *part) for i, part in enumerate(parts))
    return {
        "before": writer.body(stage.before),
        "wanted": writer.wanted(stage.outputs),
        "advance": (*writer.steps(stage), *(f"{carry['name']} = {carry['apply']}" for carry in carries)),
        "handover": tuple(move for carry in carries for move in carry["moves"]),
        "carries": carries,
    }


def _hold(writer: CpuWriter, previous: Previous, value: Expr, wanted: Wanted) -> tuple[str, ...]:
    """Hold a value for the next step: as a local, and in `steps` for each environment."""
    place = f"{previous.source}_state[i]" if writer.kind == "steps" else previous.arriving
    line, condition = f"{place} = {writer.printer.argument(value)}", writer.wanted(wanted)
    return (f"if {condition}:", f"    {line}") if condition else (line,)


def _carry(writer: CpuWriter, stage: StageProgram, i: int, local: str, start: Expr, apply: Expr) -> dict[str, Any]:
    """A carry, and the last few of its values: as locals of a step (`held`), and between steps (`states`)."""
    back = range(1, stage.depth + 1)
    held = {d: writer.held(stage, i, d) for d in back}
    states = {d: f"{local}_state{d if d > 1 else ''}" for d in back}
    before = {d: held[d - 1] if d > 1 else local for d in back}
    return {
        "name": local,
        "held": tuple(held.values()),
        "states": tuple({"local": held[d], "state": states[d]} for d in back),
        "moves": tuple(
            f"{f'{states[d]}[i]' if writer.kind == 'steps' else held[d]} = {before[d]}" for d in reversed(back)
        ),
        "anew": tuple(local for _, local in stage.anew),
        "start": writer.printer.argument(start),
        "apply": writer.applied(stage, apply, stage.elements),
    }


def _walk(schedule: Schedule) -> str:
    """The outer loop of `rows`: environments, and the lanes of each."""
    if not schedule.lane_axes:
        return "env in range(lo, hi)"
    size = " * ".join(map(local_name, schedule.lane_axes))
    return f"lane in range(lo * {size}, hi * {size})"


def _decode(schedule: Schedule) -> list[str]:
    """Lane (or block) number → its position on each axis, the last axis fastest."""
    rest = "lane" if schedule.kind == "rows" else "block"
    lines = []
    for axis in reversed(schedule.lane_axes):
        lines.append(f"{axis.lower()}_lane = {rest} % {local_name(axis)}")
        rest = f"{rest} // {local_name(axis)}"
    if schedule.kind == "steps":
        lines.append(f"left = lo + {rest} * width" if rest == "block" else f"left = lo + ({rest}) * width")
    elif schedule.lane_axes:
        lines.append(f"env = {rest}")
    return lines


def _is_loop_index(axis: str, expr: Expr) -> bool:
    """Whether a position is a lane's or a reduction's own counter, in range by construction."""
    return isinstance(expr, Var) and expr.name.rstrip("_") in (f"{axis.lower()}_lane", f"{axis.lower()}_at")
