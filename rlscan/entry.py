"""entry: `rlscan.compile`, a spec as a callable on tensors.

A module that is on disk already, committed under generated/ or in the user's cache, is loaded after no more than `parse` and
`lift`, which are quick; for any other the compiler is imported and makes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rlscan import store
from rlscan.choice import SCHEDULES, choose
from rlscan.diagnostics import located
from rlscan.ir import Scan
from rlscan.lift import lift
from rlscan.parse import parse
from rlscan.spec import Spec
from rlscan.store import Reference

if TYPE_CHECKING:
    from rlscan.runtime import Estimator

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
        choose=partial(choose, scan.lane_axes, cache(partial(_splits, scan))),
        recompile=compile_text,
    )


def _splits(scan: Scan) -> bool:
    """Whether `chunks` serves the scan: asked where a call has few and long rows, and not before."""
    from rlscan.schedule import splits

    return splits(scan)


def generated(spec: Spec, backend: str, kind: str) -> ModuleType:
    """The module of a spec: committed, cached, or made now. Without Numba the NumPy loop serves the cpu backend."""
    if backend == "cpu" and not numba_here():
        backend, kind = "numpy", "loop"
    if kind not in SCHEDULES[backend]:
        known = ", ".join(SCHEDULES[backend])
        raise ValueError(f"the {backend} backend has the schedules {known}, got {kind!r}")
    file = f"{backend}_{kind}"
    path: Path | None = store.read_generated(spec.name, file, spec.digest)
    if path is None:
        text, name = spec.source.text, spec.source.name

        def make() -> str:
            from rlscan.compiler import source

            return source(text, name, backend, kind)

        path = store.cached(store.key(text, file), f"{spec.name}_{file}", make)
    return store.load(path, f"rlscan_generated_{spec.name}_{file}_{spec.digest[:12]}")


@lru_cache(maxsize=1)
def numba_here() -> bool:
    """Whether Numba can be imported."""
    try:
        import numba  # noqa: F401
    except Exception:  # a broken installation fails in many ways, all of which mean no
        return False
    return True
