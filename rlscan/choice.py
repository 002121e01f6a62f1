"""choice: which kernel serves a call. A call asks this each time it goes the whole way; nothing else of the compiler is needed.

tile     environments × a block of time, one associative scan along it, block after block.    [B, T]
chunks   rows split over many programs, where they are few and long.                              either
columns  the same with time across memory's rows: a thread has few lanes and many steps.      [T, B]
rows     the cpu loop over an environment's steps.                                            [B, T]
steps    the cpu loop over steps, vectorised over environments.                               [T, B]
loop     NumPy, one step at a time over all environments: where Numba cannot be had.

A pure function of the layout and the axes; every schedule is right for any strides, so the choice is about speed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from rlscan.spec import BATCH, TIME

#: backend → its schedules
SCHEDULES: dict[str, tuple[str, ...]] = {
    "triton": ("tile", "columns", "chunks"),
    "cpu": ("rows", "steps"),
    "numpy": ("loop",),
}

#: backend → layout → schedule
CHOICE: dict[str, dict[str, str]] = {
    "triton": {"bt": "tile", "tb": "columns"},
    "cpu": {"bt": "rows", "tb": "steps"},
    "numpy": {"bt": "loop", "tb": "loop"},
}

#: A row is split where it is at least so long and there are at most so many: of a kernel along rows, and of one across
#: them, as found of GAE on an H200 (benchmarks/results/chunks-h200.json).
SPLIT: dict[str, tuple[int, int]] = {"bt": (8192, 128), "tb": (2048, 1024)}


def choose(
    lane_axes: tuple[str, ...], splits: Callable[[], bool], *, backend: str, layout: str, sizes: Mapping[str, int]
) -> str:
    """The schedule that serves a call; sizes are those of B, T and the named axes, splits() whether `chunks` can.

    Where a step has several lanes (features), they are what is contiguous in memory, and time lies across them in
    either layout.
    """
    lanes = prod(sizes.get(axis, 1) for axis in lane_axes)
    order = "tb" if lanes > 1 else layout
    long, few = SPLIT[order]
    if backend == "triton" and sizes[TIME] >= long and sizes[BATCH] * lanes <= few and splits():
        return "chunks"
    return CHOICE[backend][order]
