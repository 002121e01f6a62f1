"""schedule: how a scan runs. Which kernel serves a call, and what the templates need to know of the scan.

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
from dataclasses import dataclass
from math import prod

from rlscan.ir import Scan
from rlscan.lower import lower
from rlscan.program import Program
from rlscan.spec import BATCH, TIME, Input

#: backend → layout → schedule
CHOICE: dict[str, dict[str, str]] = {
    "triton": {"bt": "tile", "tb": "columns"},
    "cpu": {"bt": "rows", "tb": "steps"},
    "numpy": {"bt": "loop", "tb": "loop"},
}

#: A row is split where it is at least so long and there are at most so many: of a kernel along rows, and of one across
#: them, as found of GAE on an H200 (benchmarks/results/chunks-h200.json).
SPLIT: dict[str, tuple[int, int]] = {"bt": (8192, 128), "tb": (2048, 1024)}

#: Names that the templates use for themselves; a spec's name that meets one gets an underscore behind it.
RESERVED = frozenset(
    (  # noqa: SIM905
        "ACC INDEX AXIS SHAPE NARROW FAST BLOCK LANES UNIT FULL MANY WARPS B T number tl triton torch np numba math "
        "functools row lane live here here_ahead t_ahead slot block step steps env t i lo hi left right width span total "
        "dtypes combine combine_tame TAME kernel launch arguments packed programs warps compiled earlier nearest larger "
        "smaller tanh strides batch time options timed CHUNK CHUNKS MOST chunk chunks place groups across least end composed "
        "arriving first second third without widest out time_major lanes variant signature swap part take index rows range min "
        "max abs float int bool len print type tuple next isinstance "
    ).split()
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A scan lowered for one kind of kernel."""

    kind: str
    scan: Scan
    program: Program
    #: named axes of the lanes, then those that are reduced
    lane_axes: tuple[str, ...]
    reduced_axes: tuple[str, ...]

    @property
    def directions(self) -> tuple[str, ...]:
        """Of each walk over time."""
        return tuple("backward" if sweep.toward > 0 else "forward" for sweep in self.program.sweeps)

    @property
    def timed_inputs(self) -> tuple[Input, ...]:
        return tuple(item for item in self.scan.inputs if "T" in item.dims)


def local_name(name: str) -> str:
    """The local that holds an axis's size, or an argument of a host function."""
    return f"{name}_" if name in RESERVED else name


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


def splits(scan: Scan) -> bool:
    """Whether one row can be split over programs: one scan, of which no more than the neighbouring carry is read."""
    program = lower(scan, RESERVED)
    return len(program.sweeps) == len(program.stages) == 1 and program.stages[0].depth == 1


def plan(scan: Scan, kind: str) -> Schedule:
    """The scan's schedule of this kind."""
    axes = dict.fromkeys(axis for item in scan.inputs for axis in item.dims if axis not in ("B", "T"))
    return Schedule(
        kind=kind,
        scan=scan,
        # A chunk begins inside the window, where what was before its first step is another program's.
        program=lower(scan, RESERVED, ordered=kind != "chunks"),
        lane_axes=scan.lane_axes,
        reduced_axes=tuple(axis for axis in axes if axis not in scan.lane_axes),
    )
