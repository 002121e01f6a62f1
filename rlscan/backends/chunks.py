"""Triton's `chunks` schedule: rows split over many programs, in three launches whose order alone keeps them apart.

    composed   the steps of each chunk, composed to one
    arriving   the carry that arrives at each chunk
    kernel     each chunk as `tile` would have it, from that carry

No program waits for another, every composition has its place in one fixed order, and the inputs are read twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlscan.backends import triton
from rlscan.backends.triton import TritonWriter, operands
from rlscan.needs import reads, uses
from rlscan.program import Guarded, StageProgram, Store
from rlscan.schedule import Schedule


def view(schedule: Schedule) -> dict[str, Any]:
    """What the template fills in: the view of `tile`, with the carry taken from memory and a chunk's part of the time."""
    writer = TritonWriter(schedule)
    made = triton.view(schedule)
    (sweep,) = made["sweeps"]
    (program,) = schedule.program.stages
    (stage,) = sweep["stages"]
    sums = [f"{name}_ptr" for name in _sums(program)]
    carried = [f"{name}_ptr" for name in _carried(program)]
    chunked = {
        **stage,
        "carries": tuple(
            {**carry, "arrives": f"tl.load({pointer} + lane * CHUNKS + chunk, mask=live, other=0)"}
            for carry, pointer in zip(stage["carries"], carried, strict=True)
        ),
        **_composed(writer, program, stage["combine"], sums),
    }
    inputs, outputs = len(schedule.scan.inputs), len(schedule.scan.outputs)
    # The workspaces stand before the strides, as what a call keeps does.
    head = inputs + outputs + 2 * len(schedule.scan.params)
    workspaces = (*_sums(program), *_carried(program))
    # A chunk's own end, so that what is read ahead of a block stops there.
    end, bound = "< end", "end = tl.minimum((chunk + 1) * CHUNK, T)"
    if sweep["backward"]:
        end, bound = ">= least", "least = tl.maximum(T - (chunk + 1) * CHUNK, 0)"
    composing, arriving = _parts(writer, program)
    return {
        **made,
        "composing": (
            {
                **made,
                **composing,
                "backward": sweep["backward"],
                "inside": f"t_ahead {end}",
                "stage": {**chunked, **composing},
            },
        ),
        "entry_of_arriving": arriving,
        "arguments": (*made["arguments"][:head], *sums, *carried, *made["arguments"][head:]),
        "launch_arguments": (*made["launch_arguments"][:head], *workspaces, *made["launch_arguments"][head:]),
        "workspaces": workspaces,
        "sweeps": ({**sweep, "stages": (chunked,), "inside": f"t_ahead {end}"},),
        "bound": bound,
        "place": "place",
        # Features are what is contiguous in memory, in either layout.
        "across": "time_major or total > B" if schedule.lane_axes else "time_major",
        "blocks": _BLOCKS,
        "starting": _starting(writer, program, carried),
        "arriving": _arriving(writer, program, stage["combine"], sums, carried),
    }


_BLOCKS = "tl.cdiv(tl.minimum(CHUNK, T - chunk * CHUNK), BLOCK)"


def _parts(writer: TritonWriter, stage: StageProgram) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What composing a chunk takes of the program, whichever outputs are asked for; and what the start takes."""
    names = set().union(*(reads(assign.value) for assign in stage.step))
    before = _needed(stage.before, names)
    composing = {
        "before": writer.body(before),
        "entry": writer.body(_needed(writer.program.entry, names)),
        **dict(zip(("reads", "arrivals"), writer.early(before), strict=True)),
    }
    starting = set().union(*(reads(start) for start in stage.starts))
    return composing, writer.body(_needed(writer.program.entry, starting))


def _needed(block: Sequence[Guarded], names: set[str]) -> list[Guarded]:
    """The statements that make these names, in order and without a test; `names` grows by what they read."""
    kept = []
    for guarded in reversed(block):
        statement = guarded.statement
        if not isinstance(statement, Store) and statement.target in names:
            names |= uses(statement)
            kept.append(Guarded(statement, None))
    return kept[::-1]


def _sums(stage: StageProgram) -> list[str]:
    return [f"{name}_composed" for name in stage.elements]


def _carried(stage: StageProgram) -> list[str]:
    return [f"{name}_arriving" for name in stage.carries]


def _composed(writer: TritonWriter, stage: StageProgram, combine: str, sums: list[str]) -> dict[str, Any]:
    """The composition of a chunk's blocks."""
    run = [f"{name}_run" for name in stage.elements]
    last = [f"{name}_last" for name in stage.elements]
    ones = [writer.identity(value) for value in stage.operator.identity]
    return {
        "run": tuple({"name": n, "value": f"tl.full(NARROW, {one}, ACC)"} for n, one in zip(run, ones, strict=True)),
        "compose": (
            *(
                f"{n} = tl.sum(tl.where(slot == BLOCK - 1, {x}, 0), AXIS, keep_dims=True)"
                for n, x in zip(last, stage.elements, strict=True)
            ),
            f"{', '.join(run)} = {combine}({', '.join([*run, *last])})",
        ),
        "publish": tuple(
            f"tl.store({pointer} + lane * CHUNKS + chunk, {n}, mask=live)" for pointer, n in zip(sums, run, strict=True)
        ),
    }


def _starting(writer: TritonWriter, stage: StageProgram, carried: list[str]) -> tuple[str, ...]:
    """What arrives at the first chunk is the start."""
    starts = [f"tl.zeros(NARROW, ACC) + {writer.printer.argument(start)}" for start in stage.starts]
    locals_ = [*stage.incoming, *(local for _, local in stage.anew)]
    lines = [f"{name} = {start}" for name, start in zip(locals_, starts * 2, strict=False)]
    for incoming, pointer in zip(stage.incoming, carried, strict=True):
        lines.append(f"tl.store({pointer} + lane * CHUNKS, {incoming})")
    return tuple(lines)


def _arriving(
    writer: TritonWriter, stage: StageProgram, combine: str, sums: list[str], carried: list[str]
) -> tuple[str, ...]:
    """The scan over a block of chunks: what arrives at a chunk is what leaves the one before it."""
    names = stage.elements
    ones = [writer.identity(value) for value in stage.operator.identity]
    lines = [
        f"{n} = tl.load({pointer} + lane * CHUNKS + chunk, mask=chunk < CHUNKS, other={one})"
        for n, pointer, one in zip(names, sums, ones, strict=True)
    ]
    lines.append(f"{', '.join(names)} = tl.associative_scan({operands(names)}, 1, {combine})")
    for carry, apply in zip(stage.carries, stage.operator.apply, strict=True):
        lines.append(f"{carry} = {writer.applied(stage, apply, names)}")
    for carry, incoming, pointer in zip(stage.carries, stage.incoming, carried, strict=True):
        lines.append(f"tl.store({pointer} + lane * CHUNKS + chunk + 1, {carry}, mask=chunk + 1 < CHUNKS)")
        lines.append(f"{incoming} = tl.sum(tl.where(slot == MOST - 1, {carry}, 0), 1, keep_dims=True)")
    return tuple(lines)
