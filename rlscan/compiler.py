"""The pipeline on one page: what `rlscan.compile` does with a spec.

    text ─parse→ Spec ─lift→ Scan ─prove→ Scan ─schedule→ Schedule ─emit→ source ─load→ module, behind an Estimator

A builtin spec has its modules committed under generated/; any other is compiled once into the user's cache. Where a module is
there already, nothing past `parse` runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rlscan import store
from rlscan.backends import BACKENDS
from rlscan.diagnostics import located
from rlscan.emit import emit
from rlscan.ir import Law, Scan
from rlscan.laws import prove
from rlscan.lift import lift
from rlscan.page import explained
from rlscan.parse import parse
from rlscan.schedule import CHOICE, choose, plan, splits
from rlscan.spec import Spec

if TYPE_CHECKING:
    from rlscan.runtime import Estimator

Reference = str | os.PathLike[str]

LAYOUTS = ("bt", "tb")


def compile(
    spec: Reference,
    *,
    layout: str = "bt",
    backend: str | None = None,
    outputs: Iterable[str] | None = None,
) -> Estimator:
    """A spec as a callable on tensors.

    spec: a path to a YAML file, or the name of a builtin ("gae"). layout: "bt" for batch-first tensors [B, T], "tb" for
    time-first ones [T, B]. backend: "triton", "cpu", or None to go by the tensors' device. outputs: the outputs to
    compute, all by default; what the others alone need is not read.

    The callable takes the spec's inputs and params as keyword arguments and returns a NamedTuple of its outputs, in the
    spec's order: see `help(estimator)`. Raises SpecError (a ValueError) where the spec is refused, FileNotFoundError where
    there is none, ValueError for an unknown layout, backend or output.
    """
    if isinstance(outputs, str):
        raise TypeError(f"outputs is a list of names, got the string {outputs!r}: write outputs=[{outputs!r}]")
    text, name = store.find_spec(spec)
    return compile_text(text, name, layout, backend, None if outputs is None else tuple(outputs))


def compile_text(text: str, name: str, layout: str, backend: str | None, outputs: tuple[str, ...] | None) -> Estimator:
    """`compile` of a spec's text; `name` is what errors call it."""
    from rlscan.runtime import Estimator

    if layout not in LAYOUTS:
        raise ValueError(f'layout must be "bt" or "tb", got {layout!r}')
    if outputs is not None and not outputs:
        raise ValueError("outputs must name at least one output")
    parsed = parse(text, name)
    # lift is quick and needs no sympy; a spec that it refuses gets no further.
    with located(parsed.source):
        scan = lift(parsed)
    return Estimator(
        parsed,
        layout=layout,
        backend=backend,
        outputs=outputs,
        dims={output.name: ("B", "T", *output.axes) for output in scan.outputs},
        whole=scan.whole,
        load=partial(generated, parsed),
        choose=partial(choose, scan.lane_axes, cache(partial(splits, scan))),
        recompile=compile_text,
    )


@dataclass(frozen=True, slots=True)
class Report:
    """What `check` proved of a spec."""

    name: str
    file: str
    laws: tuple[Law, ...]

    @property
    def ok(self) -> bool:
        """True: a spec that is not well makes `check` raise."""
        return True

    def __str__(self) -> str:
        width = max(len(law.name) for law in self.laws)
        lines = [f"{self.file}: {self.name} is well"]
        lines += [f"  {law.name:<{width}}  {law.statement}  ({law.how})" for law in self.laws]
        return "\n".join(lines)


def check(spec: Reference) -> Report:
    """Prove the laws of a spec and report them; SpecError where one does not hold."""
    scan = scanned(*store.find_spec(spec))
    return Report(scan.name, scan.source.name, scan.laws)


def explain(spec: Reference, latex: bool = False) -> str:
    """The spec as mathematics: recurrence, coefficients, resets, edges, outputs, operator and the laws proved."""
    return explained(scanned(*store.find_spec(spec)), latex)


def show(spec: Reference, backend: str = "triton", schedule: str | None = None) -> str:
    """The text of the module that a backend runs for a spec."""
    text, name = store.find_spec(spec)
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    kinds = BACKENDS[backend].schedules
    if schedule is not None and schedule not in kinds:
        raise ValueError(f"the {backend} backend has the schedules {', '.join(kinds)}, got {schedule!r}")
    return source(text, name, backend, schedule or CHOICE[backend]["bt"])


def build(check: bool = False, specs: Reference | None = None, out: str | os.PathLike[str] = "generated") -> list[str]:
    """Write the modules of specs anew; with check, only compare. Returns the files that differ.

    By default generated/ from rlscan's own specs/; else the folder `out` from a spec, or from every *.yaml of a folder.
    Modules of specs that are gone from that folder are removed, and no other file is touched.
    """
    if specs is None:
        found = [store.find_spec(name) for name in store.builtins()]
        return store.write_generated(_modules(found), store.data_root() / "generated", check=check)
    folder = Path(specs)
    if not folder.is_dir():
        wanted = _modules([store.find_spec(specs)])
        return store.write_generated(wanted, Path(out), check=check, only=next(iter(wanted)).partition("/")[0])
    paths = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])
    if not paths:
        raise FileNotFoundError(f"there is no spec (*.yaml) in {folder}")
    return store.write_generated(_modules(map(store.find_spec, paths)), Path(out), check=check)


def _modules(specs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The text of every backend's every module, by its file."""
    made: dict[str, str] = {}
    origin: dict[str, str] = {}
    for text, file in specs:
        name = scanned(text, file).name
        if name in origin:
            raise ValueError(f"{file}: the spec `{name}` is in {origin[name]} too: give one of them another name")
        origin[name] = file
        for backend in BACKENDS.values():
            for kind in backend.schedules:
                if kind == "chunks" and not splits(scanned(text, file)):
                    continue
                made[f"{name}/{backend.name}_{kind}.py"] = source(text, file, backend.name, kind)
    return made


@lru_cache(maxsize=64)
def scanned(text: str, name: str) -> Scan:
    """The proved Scan of a spec's text."""
    spec = parse(text, name)
    with located(spec.source):
        return prove(lift(spec))


def source(text: str, name: str, backend: str, kind: str) -> str:
    """The module's text."""
    return emit(plan(scanned(text, name), kind), backend, store.templates())


def generated(spec: Spec, backend: str, kind: str) -> ModuleType:
    """The module of a spec: committed, cached, or made now. Without Numba the NumPy loop serves the cpu backend."""
    if backend == "cpu" and not numba_here():
        backend, kind = "numpy", "loop"
    if kind not in BACKENDS[backend].schedules:
        known = ", ".join(BACKENDS[backend].schedules)
        raise ValueError(f"the {backend} backend has the schedules {known}, got {kind!r}")
    file = f"{backend}_{kind}"
    path: Path | None = store.read_generated(spec.name, file, spec.digest)
    if path is None:
        text, name = spec.source.text, spec.source.name
        path = store.cached(store.key(text, file), f"{spec.name}_{file}", lambda: source(text, name, backend, kind))
    return store.load(path, f"rlscan_generated_{spec.name}_{file}_{spec.digest[:12]}")


@lru_cache(maxsize=1)
def numba_here() -> bool:
    """Whether Numba can be imported."""
    try:
        import numba  # noqa: F401
    except Exception:  # a broken installation fails in many ways, all of which mean no
        return False
    return True
