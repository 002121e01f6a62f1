"""sweeps: Scan → the walks over time that it takes, and what each computes.

A scan knows its carry on the side that it comes from. Stages of one direction share a walk as long as each reads the others'
carries at its own step or on that side; a stage in the other direction, or one that reads a carry against its scan, waits for
a later walk. An output is made in the first walk that knows all it reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlscan.ir import Definition, Expr, Ref, Scan, Stage, walk

#: (carry, steps from here)
Reads = frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Sweep:
    """One walk over time; toward is +1 where it goes from the last step to the first."""

    toward: int
    stages: tuple[Stage, ...]
    outputs: tuple[Definition, ...]
    #: its carries that a later walk reads
    kept: tuple[str, ...]


def sweeps(scan: Scan) -> tuple[Sweep, ...]:
    """The walks, in order."""
    reads = _Reads(scan)
    towards: list[int] = []
    place: dict[str, int] = {}
    kept: set[str] = set()

    def first(of: Reads) -> int:
        """The first walk that knows all of these."""
        return max((place[c] + (o * towards[place[c]] < 0) for c, o in of), default=0)

    def note(of: Reads, at: int) -> None:
        kept.update(carry for carry, _ in of if place[carry] < at)

    for stage in scan.stages:
        needed = frozenset[tuple[str, int]]().union(*(reads.of(expr) for expr in stage.step))
        at = next((i for i in range(first(needed), len(towards)) if towards[i] == stage.toward), len(towards))
        if at == len(towards):
            towards.append(stage.toward)
        place |= {carry.name: at for carry in stage.carries}
        note(needed, at)
    made: dict[str, int] = {}
    for output in scan.outputs:
        needed = reads.of(output.value)
        made[output.name] = first(needed)
        note(needed, made[output.name])
        if made[output.name] == len(towards):
            towards.append(-towards[-1])
    return tuple(
        Sweep(
            toward,
            tuple(stage for stage in scan.stages if place[stage.carries[0].name] == i),
            tuple(output for output in scan.outputs if made[output.name] == i),
            tuple(c.name for stage in scan.stages for c in stage.carries if place[c.name] == i and c.name in kept),
        )
        for i, toward in enumerate(towards)
    )


class _Reads:
    """The carries that an expression reads, through lets and outputs, each with its distance in time."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan
        self.carries = {carry.name for stage in scan.stages for carry in stage.carries}
        self.known: dict[str, Reads] = {}

    def of(self, expr: Expr) -> Reads:
        found: set[tuple[str, int]] = set()
        for node in walk(expr):
            if not isinstance(node, Ref):
                continue
            if node.name in self.carries:
                found.add((node.name, node.offset))
            else:
                found |= {(carry, offset + node.offset) for carry, offset in self._definition(node.name)}
        return frozenset(found)

    def _definition(self, name: str) -> Reads:
        if name not in self.known:
            made = self.scan.definition(name)
            self.known[name] = self.of(made.value) if made else frozenset()
        return self.known[name]
