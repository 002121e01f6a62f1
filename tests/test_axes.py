"""Sums and the like over a named axis: read in blocks along it, and held from one step to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlscan import oracle
from rlscan.backends import BACKENDS
from rlscan.compiler import source
from rlscan.entry import compile_text
from rlscan.parse import parse
from tests.draw import draw
from tests.test_kernels import LAYOUTS, as_tensors, in_layout, targets

SPEC = """rlscan: 1
name: axes
title: Every reduction, here and one step ahead, with an edge and without
inputs:
  q: f[B, T, A]
  p: f[B, T, A]
  i: int[B, T]
  done: flag[B, T]
  last: f[B, A]
edge:
  ev: sum(A, last)
  low: 0
let:
  ev: sum(A, q[t] * p[t])
  top: max(A, q[t])
  low: min(A, p[t])
  soft: logsumexp(A, q[t])
  chosen: take(q[t], i[t])
scan:
  direction: backward
  carry: s
  a: 0.5
  b: top[t] + ev[t+1] + soft[t]
  reset: done[t]
  start: max(A, last)
outputs:
  sums: s[t] + ev[t] - where(done[t], 0, ev[t+1])
  lows: low[t+1] - chosen[t]
crosses: [q, p]
"""
parsed = parse(SPEC, "axes.yaml")


def compared(inputs: dict[str, Any], tensors: dict[str, Any], layout: str, backend: str, *names: str) -> None:
    got = compile_text(SPEC, "axes.yaml", layout, backend, names or None)(**tensors)
    exact = oracle.run(parsed, inputs, {}, layout=layout)
    for name in names or exact:
        value = getattr(got, name).cpu().double().numpy()
        np.testing.assert_allclose(value, exact[name], rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("A", [1, 3, 4, 9])
def test_an_axis_of_any_size_agrees_with_the_oracle(A: int, layout: str, backend: str, device: str) -> None:
    """Neither A nor T need fill a block: 600 steps are more than one of most tiles, where a run may take so long."""
    B, T = (5, 600) if backend == "cpu" or device == "cuda" else (3, 5)
    drawn = draw(parsed, np.random.default_rng(A), B, T, {"A": A}, done=0.1)
    # Not every value lies above or below what fills a block up.
    drawn["q"] -= 3
    drawn["p"] += 3
    inputs = in_layout(parsed, drawn, layout)
    compared(inputs, as_tensors(inputs, device), layout, backend)
    compared(inputs, as_tensors(inputs, device), layout, backend, "lows")
    # An axis that is not what is contiguous.
    strided = {name: x.transpose(-1, 0).contiguous().transpose(-1, 0) for name, x in as_tensors(inputs, device).items()}
    compared(inputs, strided, layout, backend)


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_what_is_not_a_number_shows_where_it_is_read(value: float, backend: str, device: str) -> None:
    inputs = draw(parsed, np.random.default_rng(1), 3, 5, {"A": 6}, done=0.1)
    inputs["q"][0, 2, 5] = value
    inputs["q"][1, 3] = value
    inputs["i"][:] = 0
    compared(inputs, as_tensors(inputs, device), "bt", backend)


def test_a_sum_read_ahead_is_read_once() -> None:
    """Each step's probabilities are loaded by that step alone; a chunk begins amid the window and has to read them anew."""
    loads = {
        kind: source(SPEC, "axes.yaml", "triton", kind).count("tl.load(p_ptr") for kind in BACKENDS["triton"].schedules
    }
    assert loads["tile"] == loads["columns"] == 2  # of ev and of low
    assert loads["chunks"] > 2
