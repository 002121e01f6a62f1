"""schedule: a scan lowered for one kind of kernel, with what that kernel's template needs to know of it."""

from __future__ import annotations

from dataclasses import dataclass

from rlscan.ir import Scan
from rlscan.lower import lower
from rlscan.program import Program
from rlscan.spec import Input

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
