"""What is benchmarked: an estimator at a shape, its inputs, the fewest bytes that it moves, and its exact results.

The inputs of environment b are those of environment b mod N for some odd N, so that every result of every environment is
checked against an oracle that ran on N of them. Long windows are cut at episodes' ends, which nothing crosses, and the pieces
are given to the oracle side by side.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rlscan import entry, oracle, store
from rlscan.draw import Arrays, draw
from rlscan.parse import parse
from rlscan.spec import BATCH, TIME, Spec

if TYPE_CHECKING:
    from torch import Tensor

    from rlscan.runtime import Estimator

ESTIMATORS = (
    "gae",
    "td_lambda",
    "discounted_returns",
    "vtrace",
    "retrace",
    "eligibility_traces",
    "episodic_prefix_sum",
)
#: The grid: every B × T of at most MOST steps in all.
STEPS = (8, 16, 32, 64, 128, 512, 2048, 8192, 131072, 1048576)
ENVIRONMENTS = (1, 8, 64, 512, 4096, 16384, 65536, 1048576)
MOST = 2**28
#: the shapes without a choice, B × T
SHAPES = {
    "cuda": ((4096, 128), (16384, 512), (512, 8192), (64, 131072)),
    "cpu": ((64, 128), (4096, 128), (16, 2048)),
}
#: Optional inputs that are given all the same: without a flag there is nothing to scan around.
ALWAYS = {"episodic_prefix_sum": {"done"}}
TRUNCATIONS = {"truncated", "final_values"}
#: the share of steps that end an episode
DONE = 0.02
#: The oracle takes a window of up to this many steps as it is, and a longer one in pieces of about so many.
WINDOW, PIECE = 2048, 512
#: Largest |result − exact|, as a share of what `worst` allows, for rlscan and for a peer.
ALLOWED, ALLOWED_PEER = 1.0, 10.0
#: elements that are compared at once
COMPARED = 2**23


@dataclass(frozen=True, slots=True)
class Case:
    """An estimator at a shape. outputs: those computed, all where it is empty. actions: the size of the axis A."""

    estimator: str
    layout: str
    B: int
    T: int
    dtype: str = "float32"
    outputs: tuple[str, ...] = ()
    truncations: bool = False
    actions: int = 4

    @property
    def title(self) -> str:
        """The estimator, with the outputs where they are not all."""
        chosen = f":{','.join(self.outputs)}" if self.outputs else ""
        return f"{self.estimator}{chosen}{' with truncations' if self.truncations else ''}"

    def __str__(self) -> str:
        return f"{self.title} {self.layout} {self.B}x{self.T} {self.dtype}"

    @property
    def time_axis(self) -> int:
        return 0 if self.layout == "tb" else 1

    @property
    def spec(self) -> Spec:
        return spec_of(self.estimator)

    def compiled(self) -> Estimator:
        """The estimator, by the device of what it is given."""
        return entry.compile(self.estimator, layout=self.layout, outputs=self.outputs or None)

    @property
    def optional(self) -> frozenset[str]:
        """The optional inputs that are given."""
        known = {item.name for item in self.spec.inputs if item.optional}
        return frozenset(known & (ALWAYS.get(self.estimator, set()) | (TRUNCATIONS if self.truncations else set())))


@lru_cache(maxsize=64)
def spec_of(estimator: str) -> Spec:
    """The parsed spec of a reference."""
    return parse(*store.find_spec(estimator))


def grid() -> tuple[tuple[int, int], ...]:
    """Every B × T of the grid."""
    return tuple((B, T) for B in ENVIRONMENTS for T in STEPS if B * T <= MOST)


def estimator_of(text: str) -> tuple[str, tuple[str, ...]]:
    """`gae` or `gae:advantages`, as a reference and outputs. ValueError where there is no such output."""
    name, _, chosen = text.partition(":")
    outputs = tuple(filter(None, chosen.split("+")))
    known = [output.name for output in spec_of(name).outputs]
    for output in outputs:
        if output not in known:
            raise ValueError(f"{name} has the outputs {', '.join(known)}, not {output}")
    return name, outputs


def bytes_of(inputs: Mapping[str, Tensor], outputs: Sequence[Tensor]) -> int:
    """The fewest bytes that a call moves: each input read once, each output written once, a flag in one byte."""
    return sum(x.numel() * x.element_size() for x in (*inputs.values(), *outputs))


def distinct(case: Case) -> int:
    """How many environments differ from each other: an odd number, so that one in the place of another shows."""
    return min(case.B, max(3, min(61, 2**20 // case.T)) | 1)


def sample(case: Case) -> Case:
    """The environments of a case that differ, which cases of other layouts and of more environments share."""
    return replace(case, layout="bt", B=distinct(case), outputs=())


@lru_cache(maxsize=16)
def drawn(sample: Case) -> Arrays:
    """Batch-first float32 inputs of the environments that differ."""
    axes = {d: sample.actions for i in sample.spec.inputs for d in i.dims if d not in (BATCH, TIME, *i.optional_axes)}
    rng = np.random.default_rng(sample.T)
    return draw(sample.spec, rng, sample.B, sample.T, axes, set(sample.optional), np.float32, DONE)


def inputs(case: Case, device: str) -> dict[str, Tensor]:
    """The inputs of every environment, in the case's layout and dtype."""
    import torch

    made = {}
    pick = torch.arange(case.B, device=device) % distinct(case)
    for name, x in drawn(sample(case)).items():
        timed = TIME in next(item for item in case.spec.inputs if item.name == name).dims
        tensor = torch.from_numpy(x)
        if tensor.is_floating_point():
            tensor = tensor.to(getattr(torch, case.dtype))
        swap = timed and case.layout == "tb"
        tensor = (tensor.swapaxes(0, 1) if swap else tensor).contiguous().to(device)
        made[name] = tensor.index_select(1 if swap else 0, pick)
    return made


def too_large(case: Case, device: str) -> str:
    """Why a case does not fit into memory; "" where it does. Results are made twice, and peers keep inputs of their own."""
    planes = sum(
        case.actions if len(item.dims) > 2 and not item.optional_axes else 1
        for item in case.spec.inputs
        if not item.optional or item.name in case.optional
    ) + len(case.spec.outputs)
    needed, there = 3 * planes * 4 * case.B * case.T, memory(device)
    return f"needs {needed / 2**30:.1f} GiB of {there / 2**30:.1f}" if needed > there else ""


def memory(device: str) -> int:
    """Bytes that are free: of the GPU, or a half of the machine's, where it says."""
    import torch

    if device == "cuda":
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    if not hasattr(os, "sysconf"):
        return 2**62
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


# -- exact results -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def exact(sample: Case) -> Arrays:
    """Every output of the environments that differ, batch first, in float64."""
    import torch

    number = getattr(torch, sample.dtype)
    rounded = {
        name: torch.from_numpy(x).to(number).double().numpy() if x.dtype.kind == "f" else x
        for name, x in drawn(sample).items()
    }
    if sample.T > WINDOW and sample.estimator in ESTIMATORS:
        return by_pieces(sample.spec, rounded)
    return oracle.run(sample.spec, rounded)


def by_pieces(spec: Spec, inputs: Mapping[str, Any]) -> Arrays:
    """`oracle.run` of windows with episodes, cut at their ends. For a spec with one scan, whose start a reset restores."""
    backward = spec.scans[0].direction == "backward"
    timed = {item.name for item in spec.inputs if TIME in item.dims}
    flags = [np.asarray(inputs[item.name]) for item in spec.inputs if item.kind == "flag" and item.name in inputs]
    done = np.logical_or.reduce(flags)
    B, T = done.shape
    pieces = [(b, first, end) for b in range(B) for first, end in cuts(done[b])]
    width = max(end - first for _, first, end in pieces)
    # Beyond a piece's own steps lies its environment's data before it (or after, going forward), which cannot reach it.
    own = np.array([b for b, _, _ in pieces])
    begin = np.array([end - width if backward else first for _, first, end in pieces])
    steps = np.clip(begin[:, None] + np.arange(width), 0, T - 1)
    found = oracle.run(spec, {name: x[own[:, None], steps] if name in timed else x[own] for name, x in inputs.items()})
    whole = {name: np.empty((B, T, *x.shape[2:])) for name, x in found.items()}
    for row, (b, first, end) in enumerate(pieces):
        lo = width - (end - first) if backward else 0
        for name, x in found.items():
            whole[name][b, first:end] = x[row, lo : lo + end - first]
    return whole


def cuts(done: Any) -> list[tuple[int, int]]:
    """Pieces first ≤ t < end of one environment, each but the last up to an episode's end, of about PIECE steps."""
    ends = np.flatnonzero(done) + 1
    made, first = [], 0
    while first < len(done):
        end = len(done)
        if end - first > PIECE:
            # The last end within reach; where an episode is longer, its own.
            near = max(
                int(np.searchsorted(ends, first + PIECE, "right")) - 1, int(np.searchsorted(ends, first, "right"))
            )
            end = int(ends[near]) if near < len(ends) else len(done)
        made.append((first, end))
        first = end
    return made


def worst(case: Case, got: Mapping[str, Tensor]) -> tuple[float, str]:
    """The largest error of any element as a share of 40 ε · max|exact|, and the output that has it. Some may be missing."""
    import torch

    share, place = 0.0, ""
    about = torch.finfo(getattr(torch, case.dtype))
    for name, x in got.items():
        want = torch.from_numpy(exact(sample(case))[name])
        scale = float(want.abs().amax()) if want.numel() else 0.0
        slack = 40 * max(1.2e-7 if case.dtype != "float64" else 2.3e-16, 0.05 * about.eps) * max(1.0, scale)
        env = 1 - case.time_axis
        want = (want.swapaxes(0, 1) if env else want).contiguous().to(x.device)
        period = want.shape[env]
        if x.shape[env] != case.B or x.shape[1 - env] != case.T or x.ndim != want.ndim:
            return float("inf"), f"{name} of shape {tuple(x.shape)}"
        block = max(1, COMPARED // (case.T * period)) * period
        for lo in range(0, case.B, block):
            part = x.narrow(env, lo, min(block, case.B - lo)).double()
            pick = torch.arange(lo, lo + part.shape[env], device=x.device) % period
            wanted = want.index_select(env, pick)
            error = torch.where(part == wanted, 0.0, (part - wanted).abs()) / slack
            found = float(torch.where(error.isnan(), float("inf"), error).amax())
            if found > share or not place:
                share, place = found, name
    return share, place


def planned(
    estimators: Sequence[str],
    shapes: Sequence[tuple[int, int]],
    layouts: Sequence[str],
    dtypes: Sequence[str],
    **rest: Any,
) -> list[Case]:
    """Every case of a run, shape by shape."""
    chosen = [estimator_of(text) for text in estimators]
    return [
        Case(name, layout, B, T, dtype, outputs, **rest)
        for B, T in shapes
        for dtype in dtypes
        for layout in layouts
        for name, outputs in chosen
    ]
