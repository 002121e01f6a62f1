"""Where a drawn window has an episode's end, and poison on the far side of it: isolation, observed.

A backward scan's reset at t cuts t from t+1, a forward one's t−1 from t; a coefficient that is zero where a flag ends an episode
is a reset too, as for the proof. Boundary n lies between steps n and n+1; it is an
episode's end where the reset of every scan holds there. Nothing on one side of it may reach a result on the other, in either
direction: only the flags that say where the end is, and what the spec names under `crosses`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlscan import oracle
from rlscan.diagnostics import located
from rlscan.draw import Arrays
from rlscan.ends import refs, with_ends
from rlscan.ir import Ref
from rlscan.lift import lift
from rlscan.spec import TIME, Expression, Output, ScanBlock, Spec


@dataclass(frozen=True, slots=True)
class Ends:
    """For each environment, the step before an episode's end; −1 where there is none in the window."""

    last: Any
    T: int

    def near(self, side: str) -> Any:
        """[B, T]: the steps whose results must not change when the other side does. side: the one that is poisoned."""
        steps = np.arange(self.T)
        here = steps <= self.last[:, None] if side == "after" else steps > self.last[:, None]
        return here & (self.last[:, None] >= 0)

    def far(self, side: str) -> Any:
        return ~self.near(side) & (self.last[:, None] >= 0)


def far_sides(spec: Spec, inputs: Arrays, params: Mapping[str, Any]) -> Ends | None:
    """An end in each environment that has one; None where no environment has, or the spec says nothing of them."""
    names = {item.name for item in spec.inputs} | {output.name for output in spec.outputs}
    implied = implied_resets(spec)
    if any(block.reset is None and not flags for block, flags in zip(spec.scans, implied, strict=True)):
        return None
    if set(spec.crosses) - names:
        return None
    held = [
        held_at(spec, block, inputs, params) if block.reset else flags_at(spec, flags, inputs)
        for block, flags in zip(spec.scans, implied, strict=True)
    ]
    # Boundary n is cut by a backward scan's reset at n and by a forward one's at n+1.
    cut = np.logical_and.reduce(
        [x[:, :-1] if b.direction == "backward" else x[:, 1:] for b, x in zip(spec.scans, held, strict=True)]
    )
    if not cut.any():
        return None
    middle = np.abs(np.arange(cut.shape[1]) - cut.shape[1] // 2)
    last = np.where(cut, -middle, -(10**9)).argmax(1)
    return Ends(np.where(cut.any(1), last, -1), held[0].shape[1])


def held_at(spec: Spec, block: ScanBlock, inputs: Arrays, params: Mapping[str, Any]) -> Any:
    """[B, T]: where a scan's reset holds, as the oracle reads it."""
    reset = block.reset
    if reset is None:
        raise AssertionError("asked of scans with a reset")
    chosen = ast.Call(ast.Name("where"), [reset.tree, ast.Constant(1), ast.Constant(0)], [])
    asked = Output("held", Expression(reset.text, chosen, reset.span), reset.span)
    names = [output.name for output in spec.outputs]
    while asked.name in names or any(asked.name == let.name for let in spec.lets):
        asked = replace(asked, name=asked.name + "_")
    found = oracle.run(replace(spec, outputs=(*spec.outputs, asked)), inputs, params, outputs=[asked.name])
    held = found[asked.name] != 0
    # A reset that varies along named axes ends an episode where it holds along all of them.
    return held.reshape(*held.shape[:2], -1).all(-1)


def implied_resets(spec: Spec) -> list[tuple[Ref, ...]]:
    """For each scan without `reset`, the flags that drop its carry all the same: any of them."""
    with located(spec.source):
        scan = lift(spec)
    ended = [with_ends(scan, stage) for stage in scan.stages]
    return [
        tuple(refs(after.reset)) if after.reset is not None and before.reset is None else ()
        for before, after in zip(scan.stages, ended, strict=True)
    ]


def flags_at(spec: Spec, flags: tuple[Ref, ...], inputs: Arrays) -> Any:
    """[B, T]: where any of these flags holds, each at its offset. Before the first step none does: no boundary is there."""
    B, T = next(x for item in spec.inputs if TIME in item.dims and (x := inputs.get(item.name)) is not None).shape[:2]
    held = np.zeros((B, T), bool)
    for flag in flags:
        item = next(item for item in spec.inputs if item.name == flag.name)
        given = np.asarray(inputs.get(item.name, item.default)) != 0
        here = np.broadcast_to(given.reshape(*given.shape[:2], -1).all(-1) if given.ndim else given, (B, T))
        held[:, -flag.offset :] |= here[:, : T + flag.offset]
    return held


def poisoned(spec: Spec, inputs: Arrays, ends: Ends, side: str, seed: int) -> Arrays:
    """NaN, ∞ and −∞ in every number on the far side of each environment's end; flags and indices stay as they are."""
    rng = np.random.default_rng(seed)
    spared = {*spec.crosses, *read_by_resets(spec), *(flag.name for flags in implied_resets(spec) for flag in flags)}
    beyond = edge_inputs(spec, side)
    made = dict(inputs)
    for item in spec.inputs:
        x = inputs.get(item.name)
        if x is None or x.dtype.kind != "f" or item.name in spared:
            continue
        if TIME in item.dims:
            where = ends.far(side)
        elif item.name in beyond:
            where = ends.last >= 0
        else:
            continue
        where = np.broadcast_to(where.reshape(where.shape + (1,) * (x.ndim - where.ndim)), x.shape)
        made[item.name] = np.where(where, rng.choice([np.nan, np.inf, -np.inf], x.shape), x)
    return made


def edge_inputs(spec: Spec, side: str) -> set[str]:
    """Inputs without time that are read past this end of the window and nowhere else: in edges and in starts."""
    read = dict(offsets(spec))
    past: list[Expression | None] = []
    elsewhere: list[Expression | None] = [*values(spec)]
    for edge in spec.edges:
        ahead, behind = (any(n * sign > 0 for n in read.get(edge.name, ())) for sign in (1, -1))
        past += [edge.after if side == "after" else edge.before]
        elsewhere += [edge.before if side == "after" else edge.after]
        (past if (ahead if side == "after" else behind) else elsewhere).append(edge.both)
    for block in spec.scans:
        starts = [carry.start for carry in block.carries]
        (past if (block.direction == "backward") == (side == "after") else elsewhere).extend(starts)
        elsewhere += [carry.update for carry in block.carries]
        elsewhere += [value for _, value in block.operator.coefficients]
        elsewhere += [block.operator.apply, block.reset, block.keep]
    return {item.name for item in spec.inputs} & (names_in(past) - names_in(elsewhere))


def offsets(spec: Spec) -> Iterator[tuple[str, set[int]]]:
    """How far from its step each name is read."""
    found: dict[str, set[int]] = {}
    for expression in expressions(spec):
        for node in ast.walk(expression.tree):
            match node:
                case ast.Subscript(
                    value=ast.Name(id=name), slice=ast.BinOp(op=op, right=ast.Constant(value=int() as n))
                ):
                    found.setdefault(name, set()).add(n if isinstance(op, ast.Add) else -n)
    yield from found.items()


def values(spec: Spec) -> list[Expression]:
    return [let.value for let in spec.lets] + [output.value for output in spec.outputs]


def expressions(spec: Spec) -> Iterator[Expression]:
    parts: list[Expression | None] = [*values(spec)]
    for block in spec.scans:
        parts += [carry.update for carry in block.carries] + [block.reset, block.keep, block.operator.apply]
        parts += [value for _, value in block.operator.coefficients]
    yield from (part for part in parts if part is not None)


def read_by_resets(spec: Spec) -> set[str]:
    """Every name that a reset reads, through lets too."""
    lets = {let.name: let.value for let in spec.lets}
    found: set[str] = set()
    pending = names_in([block.reset for block in spec.scans])
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending |= names_in([lets.get(name)])
    return found


def names_in(parts: Iterable[Expression | None]) -> set[str]:
    return {node.id for part in parts if part for node in ast.walk(part.tree) if isinstance(node, ast.Name)}
