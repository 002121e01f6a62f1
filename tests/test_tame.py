"""Coefficients within [−1, 1] compose with no care for overflow: proved once, or for the params of a call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlscan import binding, entry, oracle, ranges, relaunch, store
from rlscan.lift import lift
from rlscan.parse import parse
from tests.test_kernels import GPU, as_tensors, estimator, in_layout, spec_of

SPEC = """rlscan: 1
name: x
title: x
cite: a test
inputs: {{r: "f[B, T]", w: "f[B, T]"}}
params: {params}
scan: {{direction: backward, carry: s, a: "{a}", b: "r[t]", start: 0}}
outputs: {{y: "s[t]"}}
"""


@pytest.mark.parametrize(
    ("params", "a", "tamed_by"),
    [
        ("{g: '0.9 in [0, 1]'}", "g * tanh(w[t])", ()),
        ("{g: '0.9 in [0, 1]', c: '1 in [0, inf]'}", "g * clip(w[t], 0, c)", ("c",)),
        ("{g: '0.9 in [0, 1]', c: '1 in [0, inf]'}", "g * min(c, exp(w[t]))", ("c",)),
        ("{g: 0.9, c: '1 in [0, inf]'}", "g * min(c, abs(w[t]))", ("g", "c")),
        # Either bound is enough, so no more than one is asked for.
        ("{c: '1 in [0, inf]', d: '1 in [0, inf]'}", "min(c, min(d, abs(w[t])))", ("d",)),
        # Not bounded from below.
        ("{c: '1 in [0, inf]'}", "min(c, w[t])", None),
        ("{g: '0.9 in [0, 1]'}", "g * w[t]", None),
    ],
)
def test_which_params_tame_a_coefficient(params: str, a: str, tamed_by: tuple[str, ...] | None) -> None:
    scan = lift(parse(SPEC.format(params=params, a=a), "x.yaml"))
    assert ranges.tamed_by(scan.stages[0].raw[0], scan) == tamed_by
    assert scan.stages[0].tamed_by == (tamed_by or ())
    assert (scan.stages[0].tame is not None) == bool(tamed_by)


@pytest.mark.parametrize("schedule", ["tile", "columns", "chunks"])
@pytest.mark.parametrize(
    ("c_bar", "tame"), [(1.0, True), (0.5, True), (1.5, False), (float("inf"), False), (torch.ones(3, 5), False)]
)
def test_a_launch_knows_whether_its_params_tame_it(schedule: str, c_bar: Any, tame: bool) -> None:
    spec = spec_of("vtrace")
    module = entry.generated(spec, "triton", schedule)
    given = [None if item.optional else torch.zeros((3,) if item.dims == ("B",) else (3, 5)) for item in spec.inputs]
    params = [c_bar if param.name == "c_bar" else param.default for param in spec.params]
    made = module.arguments(False, *given, torch.zeros(3, 5), torch.zeros(3, 5), *params)
    names = module.kernel.arg_names
    assert made[-2][names.index("TAME")] is tame


def exploding(B: int, T: int) -> dict[str, Any]:
    """Ratios of e³⁰ that compose beyond float32, where the recursion step by step meets zeros and stays finite."""
    ones, none = np.ones((B, T), np.float32), np.zeros((B, T), bool)
    rewards = np.zeros((B, T), np.float32)
    rewards[:, 0] = 1
    return {
        "target_log_probs": 30 * ones,
        "behavior_log_probs": 0 * ones,
        "rewards": rewards,
        "values": 0 * ones,
        "terminated": none,
        "last_value": np.zeros(B, np.float32),
    }


@pytest.mark.parametrize("layout", ["bt", "tb"])
@pytest.mark.parametrize("device", ["cpu", GPU])
def test_calls_of_one_shape_with_and_without_bounds(layout: str, device: str) -> None:
    """What a call remembers of the tame kernel must not serve a call that needs the other."""
    spec = spec_of("vtrace")
    arrays = exploding(2, 16)
    call = estimator("vtrace", layout, "triton")
    inputs = as_tensors(in_layout(spec, arrays, layout), device)
    for c_bar in (1.0, float("inf"), 1.0, float("inf"), float("inf")):
        exact = oracle.run(spec, arrays, {"c_bar": c_bar, "rho_bar": 1.0})
        out = call(**inputs, c_bar=c_bar, rho_bar=1.0)
        for name, expected in exact.items():
            value = getattr(out, name).cpu().numpy()
            value = value.T if layout == "tb" else value
            np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6, err_msg=f"{name} at c_bar={c_bar}")


def test_what_a_call_remembers_depends_on_whether_its_params_are_beyond_1() -> None:
    spec = spec_of("vtrace")
    face = binding.interface(spec, "bt", None, {output.name: ("B", "T") for output in spec.outputs})
    asked: list[Any] = []

    class Plans(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            asked.append(key)
            return default

    call = relaunch.front(face, Plans(), tuple, lambda *_, **__: None)
    inputs = {slot.name: torch.zeros(2, 3) for slot in face.inputs if slot.required}
    given = [inputs.get(slot.name) for slot in face.inputs]
    for c_bar in (1.0, 2.0, -0.0, float("inf")):
        call(None, **inputs, c_bar=c_bar)
        params = [c_bar if param.name == "c_bar" else float(param.default or 0) for param in face.params]
        assert asked[-1] == relaunch.key_of(given, params, face)
    assert len(set(map(repr, asked))) == 2
    # Asking a tensor whether it is beyond 1 would wait for the device.
    call(None, **inputs, c_bar=torch.empty((), device="meta"))


def test_builtins_whose_ranges_are_enough_have_one_kernel() -> None:
    for name in store.builtins():
        (stage,) = lift(spec_of(name)).stages
        assert stage.tamed_by == (("c_bar",) if name in ("vtrace", "retrace") else ())
