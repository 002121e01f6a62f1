"""What every backend does with a program: statements in order, guards around what only some outputs need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from rlscan.backends.printer import Lines, Printer
from rlscan.ir import Call, Const, Expr, Var, substitute, walk
from rlscan.program import (
    Assign,
    Guarded,
    Keep,
    Load,
    Loop,
    Neighbour,
    Previous,
    StageProgram,
    Statement,
    Store,
    Wanted,
)
from rlscan.schedule import Schedule


def file_name(path: str) -> str:
    """A spec file's own name, fit for a comment."""
    return "".join(char if char.isprintable() else "?" for char in path.replace("\\", "/").rsplit("/", 1)[-1])


class Writer(ABC):
    """Turns the statements of one schedule into lines of a kernel's body."""

    printer: Printer

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.scan = schedule.scan
        self.program = schedule.program
        self.stage_of = {carry: stage for stage in self.program.stages for carry in stage.carries}
        self.file = file_name(schedule.scan.source.name)

    # -- a backend's own --------------------------------------------------------------------------------------------

    @abstractmethod
    def given(self, name: str) -> str:
        """The test that an optional tensor was given, or an output asked for."""

    @abstractmethod
    def absent(self, name: str) -> str: ...

    @abstractmethod
    def constant(self, value: Const) -> str:
        """A default in place of an input that was not given."""

    @abstractmethod
    def load(self, lines: Lines, load: Load) -> None:
        """The lines that read a tensor that is there."""

    @abstractmethod
    def param(self, lines: Lines, load: Load) -> None: ...

    @abstractmethod
    def loop_header(self, loop: Loop) -> tuple[str, ...]: ...

    @abstractmethod
    def accumulator(self, loop: Loop) -> str: ...

    @abstractmethod
    def neighbour(self, lines: Lines, statement: Neighbour) -> None: ...

    @abstractmethod
    def previous(self, lines: Lines, statement: Previous) -> None: ...

    @abstractmethod
    def keep(self, lines: Lines, keep: Keep) -> None: ...

    @abstractmethod
    def store(self, lines: Lines, store: Store) -> None: ...

    # -- shared -----------------------------------------------------------------------------------------------------

    def note(self, line: int | None) -> str:
        return f"{self.file}:{line}" if line else ""

    def body(self, statements: Sequence[Guarded]) -> tuple[str, ...]:
        """The statements, those of a kind of guard under one `if`."""
        lines = Lines()
        held: Wanted = None
        for guarded in statements:
            printed = Lines()
            self.statement(printed, guarded.statement)
            # What was read a block ago has nothing left to say here: an `if` over nothing is no Python.
            if not printed.lines:
                continue
            if guarded.outputs != held:
                lines.depth = 0
                if guarded.outputs is not None:
                    lines.add(f"if {self.wanted(guarded.outputs)}:")
                    lines.depth = 1
                held = guarded.outputs
            lines.lines += ["    " * lines.depth + line for line in printed.lines]
        return tuple(lines.lines)

    def wanted(self, outputs: Wanted) -> str:
        """The test that one of these outputs was asked for; empty where there is nothing to test."""
        return " or ".join(self.given(name) for name in outputs or ())

    def held(self, stage: StageProgram, position: int, distance: int) -> str:
        """The local that holds a carry as it was `distance` steps (a block's end: and its last steps) before."""
        base = stage.incoming[position]
        return base if distance == 1 else f"{base}{distance}"

    def applied(self, stage: StageProgram, expr: Expr, elements: tuple[str, ...]) -> str:
        """apply over these elements and the incoming carries."""
        values: dict[str, Expr] = {n: Var(x) for n, x in zip(stage.operator.elements, elements, strict=True)}
        values |= {name: Var(x) for name, x in zip(stage.applied, stage.incoming, strict=True)}
        values |= {name: Var(x) for name, x in stage.anew}
        return self.printer.argument(substitute(expr, values))

    def steps(self, stage: StageProgram) -> tuple[str, ...]:
        """The assignments of the step's elements."""
        lines = Lines()
        for assign in stage.step:
            self.assign(lines, assign)
        return tuple(lines.lines)

    def statement(self, lines: Lines, statement: Statement) -> None:
        match statement:
            case Load(param=True):
                self.param(lines, statement)
            case Load(default=None):
                self.load(lines, statement)
            case Load(default=Const() as default):
                lines.add(f"if {self.absent(statement.source)}:")
                lines.indent()
                lines.add(f"{statement.target} = {self.constant(default)}", self.note(statement.line))
                lines.indent(-1)
                lines.add("else:")
                lines.indent()
                self.load(lines, statement)
                lines.indent(-1)
            case Assign():
                self.assign(lines, statement)
            case Loop():
                lines.add(f"{statement.target} = {self.accumulator(statement)}", self.note(statement.line))
                for line in self.loop_header(statement):
                    lines.add(line)
                    lines.indent(int(line.endswith(":")))
                for inner in statement.body:
                    self.statement(lines, inner)
                lines.add(f"{statement.target} = {self.accumulate(statement)}")
                lines.indent(-1)
            case Neighbour():
                self.neighbour(lines, statement)
            case Previous():
                self.previous(lines, statement)
            case Keep():
                self.keep(lines, statement)
            case Store():
                self.store(lines, statement)

    def assign(self, lines: Lines, statement: Assign) -> None:
        lines.add(f"{statement.target} = {self.printer.argument(statement.value)}", self.note(statement.line))

    def accumulate(self, loop: Loop) -> str:
        value = self.printer.argument(loop.value)
        if loop.op == "sum":
            return f"{loop.target} + {self.printer.within(loop.value, 7)}"
        return f"{self.printer.functions[loop.op]}({loop.target}, {value})"


def functions(schedule: Schedule) -> set[str]:
    """The functions that a schedule's statements and operators call."""
    program = schedule.program
    exprs = program.exprs()
    for stage in program.stages:
        exprs += [*stage.operator.combine, *stage.operator.apply]
    found = {node.fn for expr in exprs for node in walk(expr) if isinstance(node, Call)}
    blocks = [g.statement for g in (*program.entry, *(g for sweep in program.sweeps for g in sweep.guarded))]
    while blocks:
        if isinstance(loop := blocks.pop(), Loop):
            found.add(loop.op)
            blocks += loop.body
    return found
