"""What every backend does with a program: statements in order, guards around what only some outputs need."""

from __future__ import annotations

from collections.abc import Sequence

from rlscan.backends.printer import Lines, Printer
from rlscan.ir import Call, Const, Expr, walk
from rlscan.lower import Assign, Guarded, Load, Loop, Neighbour, Statement, Store
from rlscan.schedule import Schedule


def file_name(path: str) -> str:
    """A spec file's own name, fit for a comment."""
    return "".join(char if char.isprintable() else "?" for char in path.replace("\\", "/").rsplit("/", 1)[-1])


class Writer:
    """Turns the statements of one schedule into lines of a kernel's body."""

    printer: Printer

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.scan = schedule.scan
        self.program = schedule.program
        self.file = file_name(schedule.scan.source.name)

    # -- a backend's own --------------------------------------------------------------------------------------------

    def given(self, name: str) -> str:
        """The test that an optional tensor was given, or an output asked for."""
        raise NotImplementedError

    def absent(self, name: str) -> str:
        raise NotImplementedError

    def constant(self, value: Const) -> str:
        """A default in place of an input that was not given."""
        raise NotImplementedError

    def load(self, lines: Lines, load: Load) -> None:
        """The lines that read a tensor that is there."""
        raise NotImplementedError

    def param(self, lines: Lines, load: Load) -> None:
        raise NotImplementedError

    def loop_header(self, loop: Loop) -> str:
        raise NotImplementedError

    def accumulator(self, loop: Loop) -> str:
        raise NotImplementedError

    def neighbour(self, lines: Lines, statement: Neighbour) -> None:
        raise NotImplementedError

    def store(self, lines: Lines, store: Store) -> None:
        raise NotImplementedError

    # -- shared -----------------------------------------------------------------------------------------------------

    def note(self, line: int | None) -> str:
        return f"{self.file}:{line}" if line else ""

    def body(self, statements: Sequence[Guarded]) -> tuple[str, ...]:
        """The statements, those of a kind of guard under one `if`."""
        lines = Lines()
        held: tuple[str, ...] | None = None
        for guarded in statements:
            if guarded.outputs != held:
                lines.depth = 0
                if guarded.outputs is not None:
                    lines.add(f"if {' or '.join(self.given(name) for name in guarded.outputs)}:")
                    lines.depth = 1
                held = guarded.outputs
            self.statement(lines, guarded.statement)
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
                lines.add(self.loop_header(statement))
                lines.indent()
                for inner in statement.body:
                    self.statement(lines, inner)
                lines.add(f"{statement.target} = {self.accumulate(statement)}")
                lines.indent(-1)
            case Neighbour():
                self.neighbour(lines, statement)
            case Store():
                self.store(lines, statement)

    def assign(self, lines: Lines, statement: Assign) -> None:
        lines.add(f"{statement.target} = {self.printer.argument(statement.value)}", self.note(statement.line))

    def accumulate(self, loop: Loop) -> str:
        value = self.printer.argument(loop.value)
        if loop.op == "sum":
            return f"{loop.target} + {self.printer.within(loop.value, 7)}"
        return f"{self.printer.functions[loop.op]}({loop.target}, {value})"

    def expressions(self, exprs: Sequence[Expr]) -> tuple[str, ...]:
        return tuple(self.printer.argument(expr) for expr in exprs)


def functions(schedule: Schedule) -> set[str]:
    """The functions that a schedule's statements and operator call."""
    program, operator = schedule.program, schedule.scan.stages[0].operator
    exprs: list[Expr] = [*program.starts, *operator.combine, *operator.apply, *(a.value for a in program.step)]
    found: set[str] = set()

    def collect(statement: Statement) -> None:
        match statement:
            case Load(edge=edge) if edge is not None:
                exprs.append(edge)
            case Assign(value=value) | Store(value=value):
                exprs.append(value)
            case Loop(op=op, value=value, body=body):
                exprs.append(value)
                found.add(op)
                for inner in body:
                    collect(inner)

    for guarded in (*program.entry, *program.before, *program.after):
        collect(guarded.statement)
    return found | {node.fn for expr in exprs for node in walk(expr) if isinstance(node, Call)}
