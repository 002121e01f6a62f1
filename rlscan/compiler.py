"""The pipeline on one page: what becomes of a spec's text.

    text ─parse→ Spec ─lift→ Scan ─prove→ Scan ─schedule→ Schedule ─emit→ source

`entry` loads such a source as a module and puts an Estimator before it. Where the module is there already, as the builtins'
are under generated/, nothing here is imported: this is the part that needs sympy and jinja2.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rlscan import store
from rlscan.backends import BACKENDS
from rlscan.choice import CHOICE
from rlscan.diagnostics import located
from rlscan.emit import emit
from rlscan.ir import Law, Scan
from rlscan.laws import prove
from rlscan.lift import lift
from rlscan.page import explained
from rlscan.parse import parse
from rlscan.schedule import plan, splits
from rlscan.store import Reference


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
