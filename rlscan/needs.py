"""needs: which outputs alone need each statement, so that an output that is not asked for costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlscan.ir import Expr, Var, walk
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
    Wanted,
)


def guard(program: Program, outputs: Sequence[str]) -> Program:
    """The same program with each statement's, stage's and walk's outputs found, from the last statement to the first."""
    return _Needs(outputs).program(program)


class _Needs:
    def __init__(self, outputs: Sequence[str]) -> None:
        self.every = tuple(outputs)
        self.needs: dict[str, set[str]] = {}

    def program(self, program: Program) -> Program:
        walks = [self._sweep(sweep) for sweep in reversed(program.sweeps)]
        entry = self._block(program.entry)
        kept = tuple(Kept(item.name, self._wanted(self._of([item.name]))) for item in program.kept)
        return Program(entry, tuple(reversed(walks)), kept)

    def _sweep(self, sweep: SweepProgram) -> SweepProgram:
        after = self._block(sweep.after)
        stored = {g.statement.output for g in after if isinstance(g.statement, Store)}
        kept = self._of([g.statement.target for g in after if isinstance(g.statement, Keep)])
        walked = stored | kept
        # A walk begins with every carry of its stages, those that a call does not ask for among them.
        for stage in sweep.stages:
            for start in stage.starts:
                self._mark(reads(start), walked)
        stages = tuple(reversed([self._stage(stage) for stage in reversed(sweep.stages)]))
        made = replace(sweep, stages=stages, after=after, outputs=self._wanted(walked))
        return made if made.outputs is None else _within(made)

    def _stage(self, stage: StageProgram) -> StageProgram:
        outputs = self._of(stage.carries)
        for assign in stage.step:
            self._mark(reads(assign.value), outputs)
        return replace(stage, before=self._block(stage.before), outputs=self._wanted(outputs))

    def _block(self, block: Sequence[Guarded]) -> tuple[Guarded, ...]:
        made = []
        for guarded in reversed(block):
            statement = guarded.statement
            outputs = {statement.output} if isinstance(statement, Store) else self._of([statement.target])
            self._mark(uses(statement), outputs)
            # A store needs its test even where it is the only output: a buffer that is not wanted is not there.
            wanted = (statement.output,) if isinstance(statement, Store) else self._wanted(outputs)
            made.append(Guarded(statement, wanted))
        return tuple(reversed(made))

    def _of(self, names: Sequence[str]) -> set[str]:
        return set().union(*(self.needs.get(name, set()) for name in names))

    def _mark(self, names: set[str], outputs: set[str]) -> None:
        for name in names:
            self.needs[name] = self.needs.get(name, set()) | outputs

    def _wanted(self, outputs: set[str]) -> Wanted:
        return None if outputs == set(self.every) else tuple(name for name in self.every if name in outputs)


def _within(sweep: SweepProgram) -> SweepProgram:
    """The same walk, where the test around it need not be repeated inside."""

    def relieved(block: Sequence[Guarded]) -> tuple[Guarded, ...]:
        return tuple(replace(g, outputs=None) if g.outputs == sweep.outputs else g for g in block)

    stages = tuple(
        replace(stage, before=relieved(stage.before), outputs=None if stage.outputs == sweep.outputs else stage.outputs)
        for stage in sweep.stages
    )
    return replace(sweep, stages=stages, after=relieved(sweep.after))


def reads(expr: Expr | None) -> set[str]:
    """The locals that an expression reads."""
    return {node.name for node in walk(expr) if isinstance(node, Var)} if expr is not None else set()


def uses(statement: Statement) -> set[str]:
    """The locals that a statement reads."""
    match statement:
        case Load(kept=True):
            return reads(statement.edge) | {statement.source}
        case Load():
            return reads(statement.edge).union(*(reads(expr) for _, expr in statement.index))
        case Assign() | Store():
            return reads(statement.value)
        case Loop():
            return reads(statement.value).union(*(uses(inner) for inner in statement.body))
        case Previous():
            return reads(statement.start) | {statement.source}
        case Neighbour() | Keep():
            return {statement.carry}
