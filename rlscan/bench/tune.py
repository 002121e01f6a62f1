"""`rlscan bench --tune`: each kernel at each shape in many tiles, the quickest first.

A tile is what a generated module's `tile` gives: (LANES environments, BLOCK steps, warps) of one program, and for `chunks` the
steps of a chunk too. Another `tile` is put in its place and the module launched as always; its result is compared with that of
the module's own choice, which is compared with the exact one. What is found is a table to choose from by hand:
rlscan/backends/tiles.py has the rules that a launch goes by.

A kernel takes Triton longer to compile than the GPU to time, so all tiles of a case are compiled first, by as many processes as
there are cores, into Triton's own cache.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rlscan import entry, store
from rlscan.bench import cases, clock
from rlscan.bench.cases import Case
from rlscan.choice import choose
from rlscan.lift import lift

if TYPE_CHECKING:
    from torch import Tensor

#: B × T of each class of shapes that the rules tell apart
SHAPES = (
    *((4096, 32), (4096, 128), (65536, 128), (16384, 512), (512, 4096), (512, 8192), (1048576, 32)),
    *((64, 131072), (8, 1048576)),
)
#: elements of a program's block, and of a thread's part of it
ELEMENTS, SHARE = (64, 8192), (2, 64)
WARPS = (1, 2, 4, 8, 16)
#: of `chunks`, whose rows are long: the same, and the blocks of a chunk
SPLIT_ELEMENTS, SPLIT_SHARE, SPLIT_BLOCKS = (128, 2048), (4, 16), (2, 4, 16)
WHAT = (
    "device time in µs by tile: a CUDA-graph replay, median; `copy` is a device copy of the same bytes in the same run"
)
Tile = tuple[int, ...]


def candidates(T: int, total: int, time_first: bool) -> Iterator[Tile]:
    """(LANES, BLOCK, warps) worth a try for windows of T steps of `total` lanes."""
    whole = 1 << (T - 1).bit_length()
    blocks = [n for n in (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096) if n <= whole]
    # Where memory is contiguous along time a narrow block wastes most of what it reads.
    blocks = blocks if time_first else [n for n in blocks if n >= min(whole, 128)]
    lanes = (1, 2, 4, 8, 16, 32, 64) if time_first else (1, 2, 4, 8, 16)
    for LANES, BLOCK, warps in itertools.product(lanes, blocks, WARPS):
        if max(1, total) >= LANES and _fits(LANES * BLOCK, warps, ELEMENTS, SHARE):
            yield LANES, BLOCK, warps


def split_candidates(total: int, across: bool, most: int) -> Iterator[Tile]:
    """(LANES, BLOCK, CHUNK, warps, chunks scanned at once) worth a try for long rows, which are split into chunks."""
    lanes = [n for n in (8, 16, 32, 64) if n <= total] or [1] if across else [1]
    for LANES, BLOCK, warps, blocks in itertools.product(
        lanes, (8, 16, 32, 64, 128, 256, 512, 1024), WARPS[:3], SPLIT_BLOCKS
    ):
        if _fits(LANES * BLOCK, warps, SPLIT_ELEMENTS, SPLIT_SHARE):
            yield LANES, BLOCK, BLOCK * blocks, warps, most


def _fits(elements: int, warps: int, of_block: tuple[int, int], of_thread: tuple[int, int]) -> bool:
    return of_block[0] <= elements <= of_block[1] and of_thread[0] <= elements / (32 * warps) <= of_thread[1]


def schedule_of(case: Case) -> str:
    """The schedule that a call of this shape has."""
    scan = lift(case.spec)
    sizes = {"B": case.B, "T": case.T} | dict.fromkeys(scan.lane_axes, 1)
    return choose(scan.lane_axes, partial(entry.splits, scan), backend="triton", layout=case.layout, sizes=sizes)


def loaded(case: Case, kind: str, tile: Tile | None = None) -> ModuleType:
    """The case's module with a tile of its own, under a name of its own: the estimator's stays as it is."""
    path = entry.generated(case.spec, "triton", kind).__file__
    module = store.load(Path(str(path)), f"rlscan_tuned_{case.spec.name}_{kind}_{tile}")
    if tile is not None:
        module.tile = lambda *_: tile  # type: ignore[attr-defined]
    return module


def with_axes(x: Tensor | None, dims: Sequence[str], optional: frozenset[str]) -> Tensor | None:
    """A view with the axes that a case leaves out, of size 1, as a launch has them."""
    for i, dim in enumerate(dims if x is not None else ()):
        x = x.unsqueeze(i) if dim in optional and x is not None else x
    return x


def arguments_of(case: Case, inputs: dict[str, Tensor], results: Sequence[Tensor]) -> tuple[Any, ...]:
    """What the module's `launch` and `arguments` take, with buffers for the outputs."""
    import torch

    optional = frozenset(axis for item in case.spec.inputs for axis in item.optional_axes)
    given = [with_axes(inputs.get(item.name), item.dims, optional) for item in case.spec.inputs]
    outputs = [
        with_axes(torch.empty_like(x), ("B", "T", *output.axes), optional)
        for x, output in zip(results, lift(case.spec).outputs, strict=True)
    ]
    return (case.layout == "tb", *given, *outputs, *(param.default for param in case.spec.params))


def compiled(case: Case, kind: str, tile: Tile, arguments: Sequence[Any]) -> str:
    """Compile a tile's kernels into Triton's cache, in a process that has the tensors' forms alone; "" or what failed."""
    import torch

    given = [
        torch.empty_strided(x.shape, x.strides, dtype=x.dtype, device="meta") if isinstance(x, Form) else x
        for x in arguments
    ]
    module = loaded(case, kind, tile)
    *_, packed, warps = module.arguments(*given)
    try:
        for name, count in (("composed", warps), ("arriving", 4), ("kernel", warps)):
            if hasattr(module, name):
                getattr(module, name).warmup(*packed, grid=(1,), num_warps=count, enable_fp_fusion=True)
    except Exception as error:  # whatever a compiler may say of a tile, it is no tile to take
        return f"{type(error).__name__}: {error}"
    return ""


@dataclass(frozen=True, slots=True)
class Form:
    """A tensor's form, which is all that compiling takes of it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any


def compilers() -> ProcessPoolExecutor:
    """Processes that compile, one a core. They are spawned: a fork of a process that has a GPU has none."""
    return ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"))


def tiles(case: Case, pool: Executor, *, budget: float = 0.0) -> dict[str, Any]:
    """A case's kernels in every candidate tile. ValueError where its own choice is wrong."""
    import torch

    began = time.monotonic()
    inputs = cases.inputs(case, "cuda")
    results = case.compiled()(**inputs)
    share, output = cases.worst(case, results._asdict())
    if not share <= cases.ALLOWED:
        raise ValueError(f"{case}: {output} is not the oracle's: {share:.3g} times the error that is allowed")
    copied = clock.copy(cases.bytes_of(inputs, list(results)), "cuda")
    kind = schedule_of(case)
    arguments = arguments_of(case, inputs, results)
    outputs = arguments[1 + len(case.spec.inputs) :][: len(results)]
    total = outputs[0].numel() // case.T
    across = case.layout == "tb"
    if kind == "chunks":
        chosen = loaded(case, kind).tile(case.T, total, across)
        wanted = split_candidates(total, across, chosen[-1])
    else:
        chosen = loaded(case, kind).tile(case.T, total)
        wanted = candidates(case.T, total, across)
    every = list(dict.fromkeys([chosen, *wanted]))
    forms = [Form(tuple(x.shape), x.stride(), x.dtype) if isinstance(x, torch.Tensor) else x for x in arguments]
    faults = list(pool.map(compiled, *zip(*((case, kind, tile, forms) for tile in every), strict=True)))
    found: list[dict[str, Any]] = []
    for tile, fault in zip(every, faults, strict=True):
        if budget and found and time.monotonic() - began > budget:
            break
        named = described(tile)
        for x in outputs:
            x.fill_(float("nan"))
        call = partial(loaded(case, kind, tile).launch, *arguments)
        try:
            if fault:
                raise RuntimeError(fault)
            launched = call()[0]
            kernel = launched[-1][0] if isinstance(launched, tuple) else launched
            for x, y in zip(outputs, results, strict=True):
                if not torch.allclose(x.reshape(y.shape), y, rtol=1e-4, atol=1e-4):
                    raise ValueError(f"{case}: {named} gives another result")
            timed = clock.graph(call, 10)
        except RuntimeError as error:  # more shared memory or registers than there are
            found.append({**named, "error": str(error)[:80]})
            continue
        found.append(
            {
                "schedule": kind,
                **named,
                "us": round(timed.median, 2),
                "registers": kernel.n_regs,
                "spills": kernel.n_spills,
                **({"chosen": True} if tile == chosen else {}),
            }
        )
    timed_tiles = sorted((tile for tile in found if "us" in tile), key=lambda tile: float(tile["us"]))
    return {
        "copy": round(copied.median, 2),
        "tried": len(found),
        "candidates": len(every),
        "tiles": [*timed_tiles, *(tile for tile in found if "us" not in tile)],
    }


def described(tile: Tile) -> dict[str, int]:
    """A tile by the names that the results have."""
    if len(tile) == 3:
        return dict(zip(("lanes", "block", "warps"), tile, strict=True))
    return dict(zip(("lanes", "block", "chunk", "warps"), tile[:4], strict=True))
