"""`rlscan test`: a spec's compiled kernels tried against the oracle, and what must hold whatever the spec says.

    agreement   |kernel − float64| ≤ 2 · |eager float32 − float64| + a few roundings, in both layouts, windows of 1 step and more
    all done    every flag set, and none (`all flags` where none of them ends an episode)
    dtypes      float64 to its own rounding; half types read as they are, summed in float32, rounded once
    params      a number for all, one per environment, one per step
    strides     reversed, strided and offset inputs give the same result, and no input is changed
    isolation   NaN and infinity on the other side of an episode's end change no bit of this side

Each case is drawn from a seed, so that a failing one can be made smaller: one environment, fewer steps, rounder numbers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rlscan import compiler, entry, oracle, store
from rlscan.beyond import far_sides, implied_resets, poisoned
from rlscan.draw import Arrays, draw, draw_param
from rlscan.parse import parse
from rlscan.spec import BATCH, LAST_STEPS, TIME, Spec
from rlscan.verdicts import HALVES, Case, Fault, Verdict, batch_first, compared, differing, rounded, scattered

if TYPE_CHECKING:
    from torch import Tensor

LAYOUTS = ("bt", "tb")
#: windows: one step, not a power of two, and longer than a block of the compiled kernels
SIZES = {"cpu": ((1, 1), (3, 2), (3, 7), (2, 33), (5, 130)), "cuda": ((1, 1), (3, 7), (5, 130), (70, 333), (2, 5000))}
#: Triton's interpreter takes about a tenth of a millisecond an element.
INTERPRETED = ((1, 1), (2, 3), (3, 7), (2, 17))
#: properties without an error to measure: the same bits, or not
EXACT = ("strides", "isolation")


@dataclass(frozen=True, slots=True)
class Row:
    """What one property of one target came to. worst: the largest error as a share of what is allowed; None: not measured."""

    name: str
    target: str
    cases: int
    worst: float | None
    note: str = ""
    case: Case | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A backend on a device, by the name that the table has for it."""

    name: str
    backend: str
    device: str
    sizes: tuple[tuple[int, int], ...]


def targets() -> tuple[Target, ...]:
    """What there is to run on: the CPU, and Triton on a GPU, else in its interpreter."""
    # Triton reads its variable as it is imported: what torch may have imported already cannot be changed.
    fresh = "triton" not in sys.modules and "TRITON_INTERPRET" not in os.environ
    import torch

    found = [Target("cpu" if entry.numba_here() else "cpu, NumPy", "cpu", "cpu", SIZES["cpu"])]
    if torch.cuda.is_available():
        return (*found, Target("triton", "triton", "cuda", SIZES["cuda"]))
    if fresh and "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"
    try:
        import triton  # noqa: F401
    except Exception:  # not on this system, or broken: `rlscan doctor` says which
        return tuple(found)
    if os.environ.get("TRITON_INTERPRET") == "1":
        found.append(Target("triton, interpreted", "triton", "cpu", INTERPRETED))
    return tuple(found)


def run(reference: store.Reference) -> Iterator[Row]:
    """Every property on every target, a row as each is done. Raises as `compile` does where there is no such spec."""
    text, name = store.find_spec(reference)
    compiler.scanned(text, name)
    for target in targets():
        subject = Subject(parse(text, name), target)
        yield from (subject.tried(*entry) for entry in subject.properties())


class Subject:
    """A spec on a target."""

    def __init__(self, spec: Spec, target: Target) -> None:
        self.spec = spec
        self.target = target

    # -- the properties ---------------------------------------------------------------------------------------------

    def properties(self) -> Iterator[tuple[str, list[Case], Callable[[Case], Verdict]]]:
        flags = [item.name for item in self.spec.inputs if item.kind == "flag"]
        sizes = self.target.sizes
        yield (
            "agreement",
            [
                Case(layout, B, T, seed=T, optional=optional, done=0.2 if T % 2 else 0.02)
                for layout in LAYOUTS
                for B, T in sizes
                for optional in self.optional_choices
            ],
            self.agrees,
        )
        if flags:
            name = "all done" if LAST_STEPS.intersection(flags) else "all flags"
            yield name, [Case(layout, done=done) for layout in LAYOUTS for done in (0.0, 1.0)], self.agrees
        dtypes = ("float64", *HALVES) if any(item.kind == "float" for item in self.spec.inputs) else ()
        if dtypes:
            yield "dtypes", [Case(dtype=dtype, B=B, T=T) for dtype in dtypes for B, T in sizes[1:3]], self.agrees
        if self.spec.params:
            shapes = ("number", "environment", "step")
            # B = T too: a param with an entry for each environment follows them.
            yield (
                "params",
                [Case("tb", B, T, ranks=ranks) for ranks in shapes for B, T in ((4, 4), (3, 7))],
                self.agrees,
            )
        yield "strides", [Case(layout, B=4, seed=1) for layout in LAYOUTS], self.ignores_strides
        if any(block.reset for block in self.spec.scans) or any(implied_resets(self.spec)):
            cases = [Case(layout, seed=seed, done=0.4) for layout in LAYOUTS for seed in range(4)]
            yield "isolation", cases, self.isolates

    def tried(self, name: str, cases: list[Case], judge: Callable[[Case], Verdict]) -> Row:
        """The property over its cases, up to the first that fails; that one is then made smaller."""
        worst: float | None = None
        for count, case in enumerate(cases, 1):
            share, fault = judge(case)
            if share is not None:
                worst = share if worst is None else max(worst, share)
            if fault:
                case, fault = self.smaller(case, fault, judge)
                return Row(name, self.target.name, count, worst, case=case, fault=fault)
        if worst is None and name != "strides":
            why = "no drawn flags end an episode in every scan" if name == "isolation" else "no drawn result is finite"
            return Row(name, self.target.name, 0, None, note=f"nothing was compared: {why}")
        return Row(name, self.target.name, len(cases), worst)

    def smaller(self, case: Case, fault: Fault, judge: Callable[[Case], Verdict]) -> tuple[Case, Fault]:
        """The smallest case near this one that fails too."""
        for T in range(1, min(case.T, 8) + 1):
            for plain in (True, False):
                for seed in range(6):
                    tiny = replace(case, B=1, T=T, seed=seed, plain=plain)
                    found = judge(tiny)[1]
                    if found:
                        return tiny, found
        return case, fault

    @property
    def optional_choices(self) -> tuple[bool, ...]:
        return (False, True) if any(item.optional for item in self.spec.inputs) else (True,)

    # -- a case -----------------------------------------------------------------------------------------------------

    def inputs(self, case: Case) -> Arrays:
        """Batch first, float64 arrays that hold what the case's dtype can."""
        rng = np.random.default_rng(case.seed)
        chosen = {item.name for item in self.spec.inputs if item.optional} if case.optional else set()
        axes = {axis: 2 for item in self.spec.inputs for axis in item.optional_axes}
        drawn = draw(self.spec, rng, case.B, case.T, axes, chosen, np.float64, case.done)
        if case.plain:
            drawn = {name: np.round(x * 2) / 2 if x.dtype.kind == "f" else x for name, x in drawn.items()}
        return {name: rounded(x, case.dtype) if x.dtype.kind == "f" else x for name, x in drawn.items()}

    def params(self, case: Case) -> dict[str, Any]:
        """Batch first, as float32 holds them; those with a default are left out unless the case is about params."""
        rng = np.random.default_rng(case.seed + 1)
        shape = {"environment": (case.B,), "step": (case.B, case.T)}.get(case.ranks, ())
        found: dict[str, Any] = {}
        for param in self.spec.params:
            if case.ranks != "default" or param.default is None:
                value = draw_param(param, rng, shape)
                found[param.name] = rounded(value, "float32") if shape else value
        return found

    def turned(self, case: Case, values: Mapping[str, Any]) -> dict[str, Any]:
        """Batch-first values in the case's layout."""
        timed = {item.name for item in self.spec.inputs if TIME in item.dims}
        timed |= {param.name for param in self.spec.params if getattr(values.get(param.name), "ndim", 0) == 2}
        swap = case.layout == "tb"
        return {
            name: np.ascontiguousarray(np.swapaxes(x, 0, 1)) if swap and name in timed else x
            for name, x in values.items()
        }

    @cached_property
    def estimators(self) -> Mapping[str, Any]:
        make = partial(entry.compile_text, self.spec.source.text, self.spec.source.name, outputs=None)
        return {layout: make(layout=layout, backend=self.target.backend) for layout in LAYOUTS}

    def tensors(self, case: Case, inputs: Mapping[str, Any]) -> dict[str, Tensor]:
        import torch

        dtype = getattr(torch, case.dtype)
        made = {name: torch.from_numpy(np.array(x)) for name, x in self.turned(case, inputs).items()}
        return {n: (x.to(dtype) if x.is_floating_point() else x).to(self.target.device) for n, x in made.items()}

    def call(self, case: Case, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        import torch

        params = {
            name: torch.from_numpy(x.astype(np.float32)).to(self.target.device) if np.ndim(x) else x
            for name, x in self.turned(case, self.params(case)).items()
        }
        # The interpreter computes with NumPy, which would warn of each NaN.
        with np.errstate(all="ignore"):
            found: dict[str, Tensor] = self.estimators[case.layout](**tensors, **params)._asdict()
        return found

    # -- judges -----------------------------------------------------------------------------------------------------

    def agrees(self, case: Case) -> Verdict:
        """The kernel against the oracle, with the error of an eager loop in the kernel's own precision as the measure."""
        inputs, params = self.turned(case, self.inputs(case)), self.turned(case, self.params(case))
        got = self.call(case, self.tensors(case, self.inputs(case)))
        exact = oracle.run(self.spec, inputs, params, layout=case.layout)
        rough = self.eager(case, inputs, params, exact)
        worst, fault = 0.0, None
        if not any(np.isfinite(want).any() for want in exact.values()):
            return None, None
        for name, want in exact.items():
            value = got[name].detach().cpu().double().numpy()
            share, place = compared(value, want, rough[name], case.dtype)
            if share > worst:
                worst = share
            if share > 1 and fault is None:
                why = "the kernel is not the oracle's result"
                fault = Fault(name, batch_first(place, case), float(value[place]), float(want[place]), why)
        return worst, fault

    def eager(
        self, case: Case, inputs: Mapping[str, Any], params: Mapping[str, Any], exact: Mapping[str, Any]
    ) -> dict[str, Any]:
        """A NumPy loop in the precision that the kernel computes in: how exact it can be expected to be."""
        number = np.float64 if case.dtype == "float64" else np.float32
        results = {name: np.empty(x.shape, number if x.dtype.kind == "f" else x.dtype) for name, x in exact.items()}
        given = [
            x.astype(number) if x is not None and x.dtype.kind == "f" else x
            for x in (inputs.get(item.name) for item in self.spec.inputs)
        ]
        plane = (case.B, case.T) if case.layout == "bt" else (case.T, case.B)
        values = [params.get(param.name, param.default) for param in self.spec.params]
        for i, x in enumerate(values):
            if isinstance(x, np.ndarray) and x.ndim == 1:
                values[i] = np.broadcast_to(x[:, None] if case.layout == "bt" else x, plane)
        module = entry.generated(self.spec, "numpy", "loop")
        module.launch(case.layout == "tb", *given, *results.values(), *values)
        return results

    def ignores_strides(self, case: Case) -> Verdict:
        """Reversed memory order, every second element of a larger storage, an offset."""
        import torch

        tensors = self.tensors(case, self.inputs(case))
        moved = {name: scattered(x) for name, x in tensors.items()}
        plain, got = self.call(case, tensors), self.call(case, moved)
        for name, x in tensors.items():
            if not torch.equal(moved[name], x):
                return None, Fault(name, (), float("nan"), float("nan"), f"the call changed its input `{name}`")
        # On a GPU strides choose a block's layout, and with it the order of a tree of sums.
        slack = 0.0 if self.target.device == "cpu" else 2e-6
        return None, differing(case, plain, got, slack, "other strides of the inputs change it")

    def isolates(self, case: Case) -> Verdict:
        """Both sides of an episode's end in each row: poison the one, compare the other."""
        inputs, params = self.inputs(case), self.params(case)
        ends = far_sides(self.spec, inputs, params)
        if ends is None:
            return None, None
        plain = self.call(case, self.tensors(case, inputs))
        for side in ("after", "before"):
            bad = poisoned(self.spec, inputs, ends, side, case.seed)
            got = self.call(case, self.tensors(case, bad))
            fault = differing(case, plain, got, 0.0, "", ends.near(side), skip=self.spec.crosses)
            if fault:
                last = int(ends.last[fault.place[0]])
                where = f"between steps {last} and {last + 1}"
                why = f"an episode ends {where}, and it changes when every number {side} that is NaN or infinite"
                return 0.0, replace(fault, why=why)
        return 0.0, None


def example(spec: Spec, row: Row) -> str:
    """A failing case in full: its call, its inputs, and the element that is wrong."""
    case, fault = row.case, row.fault
    if case is None or fault is None:
        return ""
    subject = Subject(spec, Target(row.target, "cpu", "cpu", ()))
    lines = [
        f"{row.name} fails on {row.target}, layout {case.layout}, {case.dtype}, B = {case.B}, T = {case.T}: {fault.why}"
    ]
    place = ", ".join(map(str, fault.place))
    lines.append(f"  {fault.output}[{place}] is {fault.got:.9g}, and should be {fault.wanted:.9g}")
    if case.B * case.T > 64:
        return "\n".join([*lines, "  (no smaller case was found to fail)"])
    lines.append(f"  the call, batch first ([{BATCH}, {TIME}, …]):")
    for name, x in {**subject.inputs(case), **subject.params(case)}.items():
        shown = np.array2string(np.asarray(x), precision=4, separator=", ", threshold=64)
        lines.append(f"    {name} = " + shown.replace("\n", "\n" + " " * (7 + len(name))))
    return "\n".join(lines)
