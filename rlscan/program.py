"""Program: what `lower` makes of a scan. The straight-line statements of one step, the same for every schedule and backend.

A kernel walks time in sweeps, each in one direction. A sweep has stages, one after the other in each step (or block of steps):
what a stage's coefficients need (`before`), its elements (`step`), one generic scan. What the outputs make of the carries
comes `after`. `entry` is what does not change over time. A carry that a later sweep reads is kept in memory in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlscan.ir import Const, Expr, Operator


@dataclass(frozen=True, slots=True)
class Load:
    """target = source at this step + offset; `edge` where that lies outside the window.

    index gives, for each named axis of the source, the local that holds its position. An optional source that was not
    given is its `default`. A param (`param` true) may be a number, or vary by environment and step. `kept` says that the
    source is a carry that an earlier sweep kept.
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
    line: int
    param: bool = False
    kept: bool = False
    at: str = "step"


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
class Previous:
    """target = the local `source` as it was one step toward where the sweep came from; `start` at the sweep's first step.

    `arriving` is the local that holds it from one step (or block of steps) to the next.
    """

    target: str
    source: str
    arriving: str
    start: Expr


@dataclass(frozen=True, slots=True)
class Keep:
    """The carry of this step, kept for a later sweep."""

    target: str
    carry: str


@dataclass(frozen=True, slots=True)
class Store:
    """The output's element of this step."""

    output: str
    value: Expr
    axes: tuple[str, ...]
    line: int


Statement = Load | Assign | Loop | Neighbour | Previous | Keep | Store
#: the outputs that alone need something (None: it is always needed)
Wanted = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Guarded:
    """A statement, and the outputs that alone need it."""

    statement: Statement
    outputs: Wanted


@dataclass(frozen=True, slots=True)
class StageProgram:
    """One stage's step: statements, the operator's elements, and the scan of these."""

    operator: Operator
    before: tuple[Guarded, ...]
    step: tuple[Assign, ...]
    starts: tuple[Expr, ...]
    #: how many steps back the carry is read
    depth: int
    #: local names of the carries, of their incoming values, and of the operator's elements
    carries: tuple[str, ...]
    incoming: tuple[str, ...]
    elements: tuple[str, ...]
    #: apply's names of the incoming carries
    applied: tuple[str, ...]
    #: apply's names of the starts, and their locals, where a reset puts the start in the carry's place
    anew: tuple[tuple[str, str], ...]
    outputs: Wanted = None
    #: the operator where the program's `tamed_by` lie in [−1, 1]
    tame: Operator | None = None


@dataclass(frozen=True, slots=True)
class SweepProgram:
    """One walk over time; toward is +1 where it goes from the last step to the first."""

    toward: int
    stages: tuple[StageProgram, ...]
    after: tuple[Guarded, ...]
    outputs: Wanted = None

    @property
    def guarded(self) -> tuple[Guarded, ...]:
        """Every statement of a step, in order."""
        return (*(g for stage in self.stages for g in stage.before), *self.after)

    @property
    def previous(self) -> tuple[tuple[Previous, Wanted], ...]:
        """What of the step before is held, beside the carries, and the outputs that alone need it."""
        return tuple((g.statement, g.outputs) for g in self.guarded if isinstance(g.statement, Previous))


@dataclass(frozen=True, slots=True)
class Kept:
    """A carry that is kept in memory from one sweep to a later one."""

    name: str
    outputs: Wanted


@dataclass(frozen=True, slots=True)
class Program:
    """A whole scan."""

    entry: tuple[Guarded, ...]
    sweeps: tuple[SweepProgram, ...]
    kept: tuple[Kept, ...]

    @property
    def stages(self) -> tuple[StageProgram, ...]:
        return tuple(stage for sweep in self.sweeps for stage in sweep.stages)

    def exprs(self) -> list[Expr]:
        """Every expression that is printed, but for the operators' own."""
        found: list[Expr] = []

        def collect(statement: Statement) -> None:
            match statement:
                case Load(edge=edge) if edge is not None:
                    found.append(edge)
                case Assign(value=value) | Store(value=value):
                    found.append(value)
                case Previous(start=start):
                    found.append(start)
                case Loop(value=value, body=body):
                    found.append(value)
                    for inner in body:
                        collect(inner)

        for guarded in (*self.entry, *(g for sweep in self.sweeps for g in sweep.guarded)):
            collect(guarded.statement)
        for stage in self.stages:
            found += [*stage.starts, *(assign.value for assign in stage.step)]
        return found
