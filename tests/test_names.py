"""No name of a spec meets one that a generated module uses for itself."""

from __future__ import annotations

import ast
import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlscan
from rlscan import oracle, store
from rlscan.backends import BACKENDS
from rlscan.emit import emit
from rlscan.entry import generated
from rlscan.lift import lift
from rlscan.parse import parse
from rlscan.schedule import RESERVED, plan

SPEC = """rlscan: 1
name: zz
inputs:
  {x}: f[B, T, F]
  {y}: f[B, T] = 1
  {done}: flag[B, T]
  {index}: int[B, T]
  {q}: f[B, T, A]
  {last}: f[B]
params:
  {p}: 0.5 in [0, 1]
edge:
  {y}: {last}
let:
  {let}: {x}[t] * {p} + take({q}[t], {index}[t]) + tanh({y}[t+1]) + max(A, {q}[t])
scan:
  direction: backward
  carry: {carry}
  a: {p}
  b: {let}[t]
  reset: {done}[t]
  start: {last}
outputs:
  {out}: {carry}[t] + where({done}[t], 0, {carry}[t+1])
crosses: [{y}]
"""
ROLES = ("x", "y", "done", "index", "q", "last", "p", "let", "carry", "out")
OWN = {role: f"zz{role}" for role in ROLES}
KINDS = [(backend.name, kind) for backend in BACKENDS.values() for kind in backend.schedules]


def text(backend: str, kind: str, names: dict[str, str]) -> str:
    return emit(plan(lift(parse(SPEC.format(**names), "zz.yaml")), kind), backend, store.templates())


def bound(module: str) -> set[str]:
    """Every name that a module defines, and that a function binds or reads where names of the spec are."""
    parsed = ast.parse(module)
    functions = [node for node in parsed.body if isinstance(node, ast.FunctionDef)]
    found = {node.name for node in functions}
    for function in functions:
        names = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
        if any(name.startswith("zz") for name in names):
            found |= names
    # What a lambda or a comprehension calls `x` is its own: the values that it goes over are named outside it.
    return found - {"x"}


def derived(name: str) -> bool:
    """Made of a name of the spec, of the operator's elements a and b, or of an axis: `lower` keeps those apart."""
    return name.startswith(("zz", "a_", "b_", "f_", "A_", "max_")) or name in ("a", "b", "A", "F")


@pytest.mark.parametrize(("backend", "kind"), KINDS)
def test_what_a_module_calls_its_own_is_reserved(backend: str, kind: str) -> None:
    names = {name for name in bound(text(backend, kind, OWN)) if not derived(name)}
    assert names
    assert names <= RESERVED | set(dir(builtins)), sorted(names - RESERVED - set(dir(builtins)))


#: Names that a module is full of, and that the spec language leaves free.
HOSTILE = [
    *(
        "b",
        "a",
        "batch",
        "time",
        "x",
        "env",
        "lane",
        "live",
        "here",
        "slot",
        "block",
        "step",
        "packed",
        "total",
        "span",
    ),
    *(
        "strides",
        "widest",
        "combine",
        "kernel",
        "larger",
        "number",
        "chunk",
        "place",
        "least",
        "rest",
        "options",
        "series",
    ),
    *("a_before", "b_run", "a_last", "s_in", "s_start", "i", "left", "width", "numba", "np", "triton", "tl", "torch"),
]


@pytest.mark.parametrize("shift", range(0, len(HOSTILE), len(ROLES) // 2))
def test_a_spec_may_use_them(shift: int, tmp_path: Path) -> None:
    """Named so, a spec gives what it gives under other names."""
    names = dict(zip(ROLES, (HOSTILE * 2)[shift : shift + len(ROLES)], strict=True))
    path = tmp_path / "hostile.yaml"
    path.write_text(SPEC.format(**names))
    spec = rlscan.compile(path).spec
    rng = np.random.default_rng(0)
    B, T, A, F = 2, 5, 3, 2
    drawn: dict[str, Any] = {
        "x": rng.normal(size=(B, T, F)),
        "y": rng.normal(size=(B, T)),
        "done": rng.random((B, T)) < 0.3,
        "index": rng.integers(0, A, (B, T)),
        "q": rng.normal(size=(B, T, A)),
        "last": rng.normal(size=B),
    }
    inputs = {names[role]: x for role, x in drawn.items()}
    params = {names["p"]: 0.25}
    (exact,) = oracle.run(spec, inputs, params, layout="bt").values()
    for backend, kind in KINDS:
        if backend == "triton":
            continue
        result = np.full(exact.shape, np.nan)
        generated(spec, backend, kind).launch(False, *inputs.values(), result, *params.values())
        np.testing.assert_allclose(result, exact, rtol=1e-12, atol=1e-12, err_msg=f"{backend} {kind} {names}")
