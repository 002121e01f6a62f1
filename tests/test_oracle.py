"""The oracle and the builtin specs: plain loops, published cases, and facts that no implementation can share a mistake in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscan import oracle
from rlscan.parse import parse
from rlscan.spec import Spec
from tests.draw import draw, poison
from tests.loops import LOOPS, loop

SPECS = Path(__file__).parents[1] / "specs"
BUILTINS = tuple(LOOPS)
BACKWARD = ("gae", "td_lambda", "discounted_returns", "vtrace", "retrace")
AXES = {"A": 4, "F": 3}
TRUNCATION = {"truncated", "final_values"}
Arrays = dict[str, np.ndarray[Any, Any]]

windows = given(B=st.integers(1, 4), T=st.integers(1, 12), seed=st.integers(0, 2**31))
few = settings(max_examples=30, deadline=None)


@cache
def spec_text(name: str) -> str:
    return (SPECS / f"{name}.yaml").read_text(encoding="utf-8")


@cache
def spec_of(name: str) -> Spec:
    return parse(spec_text(name), f"{name}.yaml")


def run(name: str, inputs: Mapping[str, Any], **params: Any) -> Arrays:
    return oracle.run(spec_of(name), inputs, params)


def optional_of(name: str) -> set[str]:
    return {item.name for item in spec_of(name).inputs if item.optional}


def some(name: str, seed: int, B: int, T: int, optional: set[str] | None = None, **others: Any) -> Arrays:
    chosen = optional_of(name) if optional is None else optional & optional_of(name)
    return draw(spec_of(name), np.random.default_rng(seed), B, T, AXES, optional=chosen, **others)


def time_first(spec: Spec, inputs: Mapping[str, Any]) -> Arrays:
    timed = {item.name for item in spec.inputs if "T" in item.dims}
    return {name: x.swapaxes(0, 1) if name in timed else x for name, x in inputs.items()}


def same(left: Mapping[str, Any], right: Mapping[str, Any]) -> None:
    """Equal to the last bit, with the same NaNs."""
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name, strict=True)


def close(left: Any, right: Any) -> None:
    np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)


def row(*values: Any) -> np.ndarray[Any, Any]:
    return np.array([values])


# -- the builtins against loops --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["bt", "tb"])
@pytest.mark.parametrize("name", BUILTINS)
@few
@given(B=st.integers(1, 5), T=st.integers(1, 12), seed=st.integers(0, 2**31), data=st.data())
def test_builtins_agree_with_plain_loops(
    name: str, layout: str, B: int, T: int, seed: int, data: st.DataObject
) -> None:
    spec, rng = spec_of(name), np.random.default_rng(seed)
    optional = optional_of(name)
    given_names = set(data.draw(st.sets(st.sampled_from(sorted(optional)))))
    if spec.together and given_names & TRUNCATION:
        given_names |= TRUNCATION
    axes = {"A": data.draw(st.integers(1, 4)), **({"F": 2} if data.draw(st.booleans()) else {})}
    inputs = draw(spec, rng, B, T, axes, optional=given_names)
    shape = data.draw(st.sampled_from([None, (), (B,), (B, T)]))
    params = {} if shape is None else {param.name: rng.uniform(0.2, 1, shape) for param in spec.params}
    wanted = loop(name, inputs, params)
    if layout == "tb":
        inputs = time_first(spec, inputs)
        params = {key: x.swapaxes(0, 1) if np.ndim(x) == 2 else x for key, x in params.items()}
        wanted = {key: x.swapaxes(0, 1) for key, x in wanted.items()}
    got = oracle.run(spec, inputs, params, layout=layout)
    assert list(got) == [output.name for output in spec.outputs]
    for key, x in wanted.items():
        assert got[key].dtype == x.dtype == np.float64
        assert got[key].flags["C_CONTIGUOUS"]
        close(got[key], x)


def test_every_builtin_has_a_loop() -> None:
    assert {path.stem for path in SPECS.glob("*.yaml")} == set(BUILTINS)


@pytest.mark.parametrize("name", BUILTINS)
def test_chosen_outputs_are_the_same_alone(name: str) -> None:
    inputs = some(name, 1, 3, 6)
    every = run(name, inputs)
    for key, x in every.items():
        same(oracle.run(spec_of(name), inputs, outputs=[key]), {key: x})


@pytest.mark.parametrize("layout", ["bt", "tb"])
def test_integers_are_summed_exactly(layout: str) -> None:
    spec = spec_of("episodic_prefix_sum")
    inputs = some("episodic_prefix_sum", 3, 3, 9, dtype=np.int64)
    inputs["x"] += 2**60 // 9
    wanted = loop("episodic_prefix_sum", inputs)["sums"]
    assert wanted.max() > 2**53
    if layout == "tb":
        inputs, wanted = time_first(spec, inputs), wanted.swapaxes(0, 1)
    same(oracle.run(spec, inputs, layout=layout), {"sums": np.ascontiguousarray(wanted)})


def test_one_float_makes_sums_floats() -> None:
    inputs = {"x": np.array([[2**53, 1]]), "initial_sum": np.array([0.0])}
    assert run("episodic_prefix_sum", inputs)["sums"].dtype == np.float64
    spec = small(affine() + "  z: g * s[t]\n", "x: num[B, T]", "g: 1 in [0, 1]")
    assert oracle.run(spec, {"x": row(1, 2)})["y"].dtype == np.float64
    assert oracle.run(small(affine(), "x: num[B, T]"), {"x": row(1, 2)})["y"].dtype == np.int64
    counted = small(affine(b="where(x[t], 1, 0)"), "x: flag[B, T]")
    assert oracle.run(counted, {"x": row(1, 0)})["y"].dtype == np.float64


@pytest.mark.parametrize("layout", ["bt", "tb"])
@pytest.mark.parametrize("name", BUILTINS)
@pytest.mark.parametrize(("B", "T"), [(0, 3), (2, 0), (0, 0)])
def test_nothing_to_do(name: str, layout: str, B: int, T: int) -> None:
    spec = spec_of(name)
    inputs = some(name, 0, B, T)
    if layout == "tb":
        inputs = time_first(spec, inputs)
    for x in oracle.run(spec, inputs, layout=layout).values():
        assert x.shape[:2] == ((T, B) if layout == "tb" else (B, T))


# -- published cases -------------------------------------------------------------------------------------------------

NO = (0, 0, 0)
HALF = {"gamma": 0.5, "lam": 0.5}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, float], dict[str, Any]]] = {
    "flags mark the last step": (
        "gae",
        {"rewards": row(1, 2, 3, 4), "values": row(1, 1, 2, 2), "terminated": row(0, 1, 0, 0), "last_value": [8]},
        HALF,
        {"advantages": row(0.75, 1, 3.5, 6)},
    ),
    "a trace resets after the flagged step": (
        "eligibility_traces",
        {"features": row(1, 2, 4, 8), "terminated": row(0, 1, 0, 0)},
        {"gamma": 0.5, "lam": 1},
        {"traces": row(1, 2.5, 4, 10)},
    ),
    "a truncation bootstraps and drops the carry": (
        "gae",
        {
            "rewards": row(1, 1, 1, 1),
            "values": row(2, 2, 4, 4),
            "terminated": row(0, 0, 0, 0),
            "truncated": row(0, 1, 0, 0),
            "final_values": row(np.nan, 10, np.nan, np.nan),
            "last_value": [6],
        },
        HALF,
        {"advantages": row(1, 4, -1, 0)},
    ),
    "a truncation at the edge": (
        "gae",
        {
            "rewards": row(1, 1),
            "values": row(2, 4),
            "terminated": row(0, 0),
            "truncated": row(0, 1),
            "final_values": row(np.nan, 10),
            "last_value": [np.nan],
        },
        HALF,
        {"advantages": row(1.5, 2)},
    ),
    "the bootstrap counts once": (
        "gae",
        {"rewards": row(1, 1, 1), "values": row(2, 3, 4), "terminated": row(*NO), "last_value": [10]},
        {"gamma": 0.5, "lam": 1},
        {"advantages": row(1, 1, 2)},
    ),
    "the last slot is used": (
        "gae",
        {"rewards": row(0, 0, 6), "values": row(1, 1, 2), "terminated": row(*NO), "last_value": [4]},
        HALF,
        {"advantages": row(-0.125, 1.5, 6)},
    ),
    "the carry is dropped too": (
        "gae",
        {"rewards": row(0, 4, 0, 8), "values": row(1, 1, 1, 1), "terminated": row(0, 1, 0, 1), "last_value": [np.nan]},
        {"gamma": 1, "lam": 0.5},
        {"advantages": row(1.5, 3, 3.5, 7)},
    ),
    "a trace decays into the state": (
        "eligibility_traces",
        {"features": row(1, 1, 1), "terminated": row(0, 1, 0)},
        {"gamma": 0.9, "lam": 1},
        {"traces": row(1, 1.9, 1)},
    ),
    "a select, not a product": (
        "gae",
        {
            "rewards": row(1, 2, 3),
            "values": row(1, 2, 1),
            "terminated": row(0, 0, 1),
            "truncated": row(*NO),
            "final_values": row(np.nan, np.nan, np.nan),
            "last_value": [np.nan],
        },
        HALF,
        {"advantages": row(1.25, 1, 2), "returns": row(2.25, 3, 3)},
    ),
    "a ratio that overflows is clipped": (
        "vtrace",
        {
            "target_log_probs": [[-2], [-2]],
            "behavior_log_probs": [[-910], [-910]],
            "rewards": [[3], [1]],
            "values": [[1], [3]],
            "terminated": [[0], [0]],
            "last_value": [4, 4],
        },
        {"gamma": 0.5},
        {"vs": [[5], [3]], "pg_advantages": [[4], [0]]},
    ),
    "padding behind the last step": (
        "gae",
        {"rewards": row(0.5, 2, 0), "values": row(1, 1.5, np.nan), "terminated": row(0, 1, 0), "last_value": [0]},
        {"gamma": 1, "lam": 0.5},
        {"advantages": row(1.25, 0.5, np.nan)},
    ),
    "rows are not each other's neighbours": (
        "gae",
        {
            "rewards": np.ones((2, 2)),
            "values": [[1, 2], [100, 3]],
            "terminated": np.zeros((2, 2)),
            "last_value": [5, 7],
        },
        HALF,
        {"advantages": [[1.375, 1.5], [-97.125, 1.5]]},
    ),
    "integer rewards": (
        "discounted_returns",
        {"rewards": row(1, 1, 1), "terminated": row(*NO), "last_value": [0]},
        {"gamma": 0.5},
        {"returns": row(1.75, 1.5, 1)},
    ),
    "the near side's coefficient": (
        "discounted_returns",
        {"rewards": row(1, 2, 3, 4), "terminated": row(0, 0, 0, 0), "last_value": [0]},
        {"gamma": row(0.5, 0.25, 1, 0.5)},
        {"returns": row(2.875, 3.75, 7, 4)},
    ),
    "the ratio weighs the whole TD error": (
        "vtrace",
        {
            "target_log_probs": row(np.log(0.5), 0),
            "behavior_log_probs": row(0, 0),
            "rewards": row(4, 2),
            "values": row(2, 8),
            "terminated": row(0, 0),
            "last_value": [8],
        },
        {"gamma": 0.5},
        {"vs": row(4.5, 6)},
    ),
    "the expectation at the next state": (
        "retrace",
        {
            "q_values": [[[2, 0], [0, 4]]],
            "target_probs": np.full((1, 2, 2), 0.5),
            "behavior_probs": row(0.5, 0.5),
            "actions": row(0, 1),
            "rewards": row(1, 1),
            "terminated": row(0, 0),
            "last_q_values": [[8, 0]],
            "last_target_probs": [[0.5, 0.5]],
        },
        {"gamma": 0.5, "lam": 1},
        {"targets": row(1.5, 3), "advantages": row(0.5, -1)},
    ),
    "a truncation is no termination": (
        "td_lambda",
        {
            "rewards": row(1, 1),
            "values": row(0, 0),
            "terminated": row(0, 0),
            "truncated": row(1, 0),
            "final_values": row(10, np.nan),
            "last_value": [4],
        },
        {"gamma": 0.5, "lam": 1},
        {"returns": row(6, 3)},
    ),
    "both flags: terminated": (
        "discounted_returns",
        {
            "rewards": row(1, 1),
            "terminated": row(1, 0),
            "truncated": row(1, 0),
            "final_values": row(np.nan, np.nan),
            "last_value": [4],
        },
        {"gamma": 0.5},
        {"returns": row(1, 3)},
    ),
    "a segment's end and a segment's start": (
        "episodic_prefix_sum",
        {"x": row(1, 2, 4, 8, 16), "done": row(0, 1, 0, 0, 0), "start": row(0, 0, 0, 0, 1), "initial_sum": [32]},
        {},
        {"sums": row(33, 35, 4, 12, 16)},
    ),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace(" ", "-").replace(",", ""))
def test_published_case(case: str) -> None:
    name, inputs, params, wanted = CASES[case]
    got = run(name, {key: np.array(x) for key, x in inputs.items()}, **params)
    for key, x in wanted.items():
        np.testing.assert_allclose(got[key], x, rtol=1e-12, atol=1e-12, err_msg=key)


def test_transpose_is_not_a_reshape() -> None:
    rewards = np.array([[0, 0], [0, 0], [1, -1]])
    terminated = np.array([[0, 0], [0, 0], [1, 1]])
    got = oracle.run(
        spec_of("discounted_returns"),
        {"rewards": rewards, "terminated": terminated, "last_value": np.zeros(2)},
        {"gamma": 0.5},
        layout="tb",
    )
    np.testing.assert_array_equal(got["returns"], [[0.25, -0.25], [0.5, -0.5], [1, -1]])


def test_long_windows_stay_finite() -> None:
    T = 2048
    got = run(
        "discounted_returns",
        {"rewards": np.ones((1, T)), "terminated": np.zeros((1, T)), "last_value": [0.0]},
        gamma=0.9,
    )
    close(got["returns"][0], 10 * (1 - 0.9 ** (T - np.arange(T))))


@pytest.mark.parametrize("behavior", [-3.0, -np.inf])
def test_an_action_the_target_never_takes_weighs_nothing(behavior: float) -> None:
    inputs = some("vtrace", 2, 1, 3, set())
    inputs["target_log_probs"][0, 1] = -np.inf
    inputs["behavior_log_probs"][0, 1] = behavior
    got = run("vtrace", inputs)
    assert got["pg_advantages"][0, 1] == 0
    assert got["vs"][0, 1] == inputs["values"][0, 1]
    assert np.isfinite(got["vs"]).all()


def test_an_infinite_bar_does_not_clip() -> None:
    inputs = some("vtrace", 2, 2, 5, set())
    inputs["target_log_probs"] = inputs["behavior_log_probs"] + 3
    free = dict.fromkeys(("rho_bar", "c_bar", "pg_rho_bar"), np.inf)
    close(run("vtrace", inputs, **free)["vs"], run("vtrace", inputs, **dict.fromkeys(free, 1e6))["vs"])
    assert np.abs(run("vtrace", inputs, **free)["vs"] - run("vtrace", inputs)["vs"]).max() > 1


# -- facts that no implementation can share a mistake in ---------------------------------------------------------------


def without(inputs: Arrays, *names: str) -> Arrays:
    return {key: x for key, x in inputs.items() if key not in names}


def next_values(inputs: Arrays, values: np.ndarray[Any, Any], last: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    after = np.concatenate([values[:, 1:], last[:, None]], axis=1).astype(np.float64)
    after = np.where(inputs["truncated"], inputs["final_values"], after)
    return np.where(inputs["terminated"], 0, after)


@few
@windows
def test_gae_at_the_ends_of_lambda(B: int, T: int, seed: int) -> None:
    inputs = some("gae", seed, B, T)
    returns = run("discounted_returns", without(inputs, "values"), gamma=0.9)["returns"]
    close(run("gae", inputs, gamma=0.9, lam=1)["advantages"], returns - inputs["values"])
    delta = inputs["rewards"] + 0.9 * next_values(inputs, inputs["values"], inputs["last_value"]) - inputs["values"]
    close(run("gae", inputs, gamma=0.9, lam=0)["advantages"], delta)


@few
@windows
def test_td_lambda_is_the_return_of_gae(B: int, T: int, seed: int) -> None:
    inputs = some("gae", seed, B, T)
    for lam in (0, 0.3, 1):
        close(
            run("td_lambda", inputs, gamma=0.9, lam=lam)["returns"], run("gae", inputs, gamma=0.9, lam=lam)["returns"]
        )
    one_step = inputs["rewards"] + 0.9 * next_values(inputs, inputs["values"], inputs["last_value"])
    close(run("td_lambda", inputs, gamma=0.9, lam=0)["returns"], one_step)


@few
@windows
def test_vtrace_on_policy_is_td_lambda(B: int, T: int, seed: int) -> None:
    inputs = some("vtrace", seed, B, T)
    inputs["behavior_log_probs"] = inputs["target_log_probs"]
    plain = without(inputs, "behavior_log_probs", "target_log_probs")
    for lam in (0, 0.3, 1):
        got = run("vtrace", inputs, gamma=0.9, lam=lam)
        close(got["vs"], run("td_lambda", plain, gamma=0.9, lam=lam)["returns"])
    close(got["pg_advantages"], run("gae", plain, gamma=0.9, lam=1)["advantages"])


@few
@windows
def test_retrace_without_traces_is_one_step(B: int, T: int, seed: int) -> None:
    inputs = some("retrace", seed, B, T)
    expected = (inputs["target_probs"].astype(float) * inputs["q_values"]).sum(-1)
    last = (inputs["last_target_probs"].astype(float) * inputs["last_q_values"]).sum(-1)
    got = run("retrace", inputs, gamma=0.9, lam=0)
    close(got["targets"], inputs["rewards"] + 0.9 * next_values(inputs, expected, last))


@few
@windows
def test_retrace_of_a_certain_policy_follows_the_data(B: int, T: int, seed: int) -> None:
    inputs = some("retrace", seed, B, T)
    inputs["target_probs"] = np.eye(AXES["A"])[inputs["actions"]]
    inputs["behavior_probs"] = np.ones((B, T))
    inputs["last_target_probs"] = np.eye(AXES["A"])[np.full(B, 2)]
    along = {key: inputs[key] for key in ("rewards", "terminated", "truncated", "final_values")}
    along["last_value"] = inputs["last_q_values"][:, 2]
    returns = run("discounted_returns", along, gamma=0.9)["returns"]
    close(run("retrace", inputs, gamma=0.9, lam=1)["targets"], returns)


@few
@windows
def test_without_discount_and_flags_they_are_cumulative_sums(B: int, T: int, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(B, T))
    flags, zero = np.zeros((B, T), bool), np.zeros(B)
    got = run("discounted_returns", {"rewards": x, "terminated": flags, "last_value": zero}, gamma=1)
    close(got["returns"], x[:, ::-1].cumsum(1)[:, ::-1])
    close(run("eligibility_traces", {"features": x, "terminated": flags}, gamma=1, lam=1)["traces"], x.cumsum(1))
    close(run("episodic_prefix_sum", {"x": x})["sums"], x.cumsum(1))


@pytest.mark.parametrize("name", BACKWARD)
@few
@given(B=st.integers(1, 4), T=st.integers(1, 12), seed=st.integers(0, 2**31), power=st.integers(-8, 8))
def test_outputs_scale_with_rewards_and_values(name: str, B: int, T: int, seed: int, power: int) -> None:
    inputs = some(name, seed, B, T)
    scaled = {"rewards", "values", "final_values", "last_value", "q_values", "last_q_values"}
    k = -(2.0**power)  # exact
    got = run(name, {key: x * np.float32(k) if key in scaled else x for key, x in inputs.items()})
    same(got, {key: x * k for key, x in run(name, inputs).items()})


@pytest.mark.parametrize("name", BUILTINS)
@few
@windows
def test_time_first_is_the_transpose(name: str, B: int, T: int, seed: int) -> None:
    spec, inputs = spec_of(name), some(name, seed, B, T)
    got = oracle.run(spec, time_first(spec, inputs), layout="tb")
    same({key: np.ascontiguousarray(x.swapaxes(0, 1)) for key, x in got.items()}, run(name, inputs))


@pytest.mark.parametrize("name", BUILTINS)
@few
@given(B=st.integers(1, 4), T=st.integers(1, 12), seed=st.integers(0, 2**31), absent=st.booleans())
def test_poison_is_never_read(name: str, B: int, T: int, seed: int, absent: bool) -> None:
    inputs = some(name, seed, B, T, optional_of(name) - TRUNCATION if absent else None, done=0.4)
    clean = run(name, inputs)
    assert all(np.isfinite(x).all() for x in clean.values())
    same(run(name, poison(name, inputs, seed)), clean)
    wanted = loop(name, poison(name, inputs, seed))
    for key, x in clean.items():
        close(x, wanted[key])


@pytest.mark.parametrize("name", BUILTINS)
@few
@given(B=st.integers(1, 4), T=st.integers(2, 12), seed=st.integers(0, 2**31), data=st.data())
def test_an_episodes_end_separates(name: str, B: int, T: int, seed: int, data: st.DataObject) -> None:
    """Whatever lies beyond a done, NaN and ∞ included, the near side's outputs keep every bit."""
    end = data.draw(st.integers(0, T - 2 if name not in BACKWARD else T - 1))
    inputs = some(name, seed, B, T)
    flag = data.draw(st.sampled_from(sorted(inputs.keys() & {"terminated", "truncated", "done"})))
    inputs[flag][:, end] = True
    near, far = slice(0, end + 1), slice(end + 1, T)
    if name not in BACKWARD:
        near, far = far, near
    rng = np.random.default_rng(seed + 1)
    changed = {}
    for item in spec_of(name).inputs:
        x = np.array(inputs[item.name])
        part = x[:, far] if "T" in item.dims else x
        if item.kind == "flag":
            part[...] = rng.random(part.shape) < 0.5
        elif item.kind == "int":
            part[...] = rng.integers(0, AXES["A"], part.shape)
        else:
            part[...] = rng.choice([np.nan, np.inf, -np.inf, 1e30, 3.0], part.shape)
        changed[item.name] = x
    changed[flag][:, end] = True
    first, second = run(name, inputs), run(name, changed)
    same({key: x[:, near] for key, x in second.items()}, {key: x[:, near] for key, x in first.items()})


def test_poison_of_integers() -> None:
    inputs = some("episodic_prefix_sum", 1, 8, 3, dtype=np.int64)
    inputs["start"][:5, 0] = True
    bad = poison("episodic_prefix_sum", inputs)
    assert (bad["initial_sum"] != inputs["initial_sum"]).any()
    same(run("episodic_prefix_sum", bad), run("episodic_prefix_sum", inputs))


def handed(name: str, *edits: tuple[str, str]) -> Spec:
    """A builtin whose edges are inputs, so that a window's second half can hand its first result on."""
    text = spec_text(name)
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    added = {new.split(": ")[1].strip() for _, new in edits}
    text = text.replace("together:", "".join(f"  {name}: f[B]\n" for name in sorted(added)) + "together:")
    return parse(text, f"{name}.yaml")


@pytest.mark.parametrize("name", BUILTINS)
@few
@given(B=st.integers(1, 4), T=st.integers(2, 12), seed=st.integers(0, 2**31), data=st.data())
def test_a_window_is_its_two_halves(name: str, B: int, T: int, seed: int, data: st.DataObject) -> None:
    spec, inputs = spec_of(name), some(name, seed, B, T)
    cut = data.draw(st.integers(1, T - 1))
    params = {param.name: 0.8 for param in spec.params}
    timed = {item.name for item in spec.inputs if "T" in item.dims}
    left = {key: x[:, :cut] if key in timed else x for key, x in inputs.items()}
    right = {key: x[:, cut:] if key in timed else x for key, x in inputs.items()}
    if name in BACKWARD:
        second = oracle.run(spec, right, params)
        after = {key: x[:, 0] for key, x in second.items()}
        if name == "discounted_returns":
            left["last_value"] = after["returns"]
        elif name == "retrace":
            taken = np.take_along_axis(right["q_values"][:, 0], right["actions"][:, :1], 1)[:, 0].astype(float)
            prob = np.take_along_axis(right["target_probs"][:, 0], right["actions"][:, :1], 1)[:, 0].astype(float)
            left["last_q_values"], left["last_target_probs"] = right["q_values"][:, 0], right["target_probs"][:, 0]
            left["edge_targets"], left["edge_d"] = after["targets"], after["targets"] - taken
            left["edge_c"] = 0.8 * np.minimum(0.8, prob / right["behavior_probs"][:, 0])
            edge = "targets: sum(A, last_target_probs * last_q_values)"
            spec = handed(
                name, (edge, "targets: edge_targets"), ("  c: 0 ", "  c: edge_c "), ("start: 0", "start: edge_d")
            )
        else:
            left["last_value"] = right["values"][:, 0]
            if name == "gae":
                left["edge_adv"] = after["advantages"]
                spec = handed(name, ("start: 0", "start: edge_adv"))
            elif name == "td_lambda":
                left["edge_g"] = after["returns"]
                spec = handed(name, ("start: last_value", "start: edge_g"))
            else:
                left["edge_vs"], left["edge_dv"] = after["vs"], after["vs"] - right["values"][:, 0]
                spec = handed(name, ("  vs: last_value", "  vs: edge_vs"), ("start: 0", "start: edge_dv"))
        first = oracle.run(spec, left, params)
    else:
        first = oracle.run(spec, left, params)
        ended = np.zeros(B, bool)
        for flag in inputs.keys() & {"terminated", "truncated", "done"}:
            ended |= inputs[flag][:, cut - 1]
        (result,) = first.values()
        initial = "initial_trace" if name == "eligibility_traces" else "initial_sum"
        right[initial] = np.where(ended[:, None], 0, result[:, -1])
        second = oracle.run(spec, right, params)
    whole = oracle.run(spec_of(name), inputs, params)
    for key, x in whole.items():
        close(np.concatenate([first[key], second[key]], axis=1), x)


# -- the language -----------------------------------------------------------------------------------------------------


def small(body: str, inputs: str = "x: f[B, T]", params: str = "") -> Spec:
    """A spec of the given scan and outputs; each line of `inputs` and `params` is one of them."""

    def section(key: str, text: str) -> str:
        return f"{key}:\n" + "".join(f"  {line.strip()}\n" for line in text.strip().splitlines()) if text else ""

    return parse(f"rlscan: 1\nname: probe\n{section('inputs', inputs)}{section('params', params)}{body}", "probe.yaml")


SUM = "scan:\n  direction: {direction}\n  carry: s\n  a: {a}\n  b: {b}\n  start: {start}\n{more}outputs:\n  y: {y}\n"


def affine(
    *, direction: str = "forward", a: str = "1", b: str = "x[t]", start: str = "0", more: str = "", y: str = "s[t]"
) -> str:
    return SUM.format(direction=direction, a=a, b=b, start=start, more=more, y=y)


def y(spec: Spec, params: Mapping[str, Any] | None = None, layout: str = "bt", **inputs: Any) -> Any:
    return oracle.run(spec, {name: np.array(x) for name, x in inputs.items()}, params, layout=layout)["y"]


def pointwise(expression: str, inputs: str = "x: f[B, T]", params: str = "", before: str = "") -> Spec:
    """y is an expression of the inputs; the scan is there because a spec has one."""
    return small(before + affine(b="0", y=f"{expression} + s[t]"), inputs, params)


def test_offsets_read_edges_on_both_sides() -> None:
    spec = small(
        "edge:\n  x: {before: x_before, after: x_after}\n" + affine(y="x[t-2] + 10 * x[t] + 100 * x[t+1] + 0 * s[t]"),
        "x: f[B, T]\nx_before: f[B]\nx_after: f[B]",
    )
    np.testing.assert_array_equal(y(spec, x=row(1, 2, 3), x_before=[7], x_after=[9]), row(217, 327, 931))


def test_a_let_and_an_output_past_the_edge_are_their_own_edge() -> None:
    """Inside the window they are computed, with the inputs' edges; outside, their own edges hold."""
    body = "edge:\n  x: 5\n  next: 70\n  y: 900\nlet:\n  next: x[t+1]\n" + affine(y="x[t] + 0 * s[t]")
    spec = small(body + "  z: next[t+1]\n  w: y[t+1]\n")
    got = oracle.run(spec, {"x": row(1, 2, 3)})
    np.testing.assert_array_equal(got["z"], row(3, 5, 70))
    np.testing.assert_array_equal(got["w"], row(2, 3, 900))


def test_a_carry_past_the_edge_is_its_start() -> None:
    spec = small(affine(direction="backward", start="c0", y="s[t+1] + 100 * s[t+2]"), "x: f[B, T]\nc0: f[B]")
    np.testing.assert_array_equal(y(spec, x=row(1, 2, 4), c0=[10]), row(1416, 1014, 1010))
    spec = small(affine(start="c0", y="s[t-1] + 100 * s[t-2]"), "x: f[B, T]\nc0: f[B]")
    np.testing.assert_array_equal(y(spec, x=row(1, 2, 4), c0=[10]), row(1010, 1011, 1113))


@pytest.mark.parametrize("layout", ["bt", "tb"])
def test_a_param_of_size_b_follows_the_environments(layout: str) -> None:
    spec = pointwise("g", params="g: in [0, 9]")
    x, per_env, per_step = np.zeros((2, 2)), np.array([3, 5]), np.array([[1, 2], [3, 4]])
    wanted = [[3, 3], [5, 5]] if layout == "bt" else [[3, 5], [3, 5]]
    np.testing.assert_array_equal(y(spec, {"g": per_env}, layout, x=x), wanted)
    np.testing.assert_array_equal(y(spec, {"g": per_step}, layout, x=x), per_step)
    np.testing.assert_array_equal(y(spec, {"g": np.array([7])}, layout, x=x), np.full((2, 2), 7))


def test_a_let_at_an_offset_reads_that_steps_params() -> None:
    body = "edge:\n  m: 0\nlet:\n  m: g * x[t]\n"
    spec = small(body + affine(y="m[t+1] + 0 * s[t]"), params="g: in [0, 9]")
    np.testing.assert_array_equal(y(spec, {"g": row(1, 2, 3)}, x=row(1, 1, 1)), row(2, 3, 0))


def test_beyond_the_window_params_are_the_nearest_steps() -> None:
    body = "edge:\n  x: {before: g, after: 10 * g}\n"
    spec = small(
        body + affine(direction="backward", b="0", start="100 * g", y="x[t-1] + x[t+1] + s[t]"), params="g: in [0, 9]"
    )
    np.testing.assert_array_equal(y(spec, {"g": row(2, 3)}, x=row(0, 0)), row(302, 330))


def test_a_let_without_time_stands_bare() -> None:
    spec = small("let:\n  decay: g * scale\n" + affine(a="decay"), "x: f[B, T]\nscale: f[B]", "g: in [0, 9]")
    np.testing.assert_array_equal(y(spec, {"g": row(9, 2, 3)}, x=row(1, 1, 1), scale=[0.5]), row(1, 2, 4))


RESETS = "x: f[B, T]\ncut: flag[B, T]\nheld: flag[B, T]\nc0: f[B]\nk: f[B, T]"


def test_reset_comes_before_keep() -> None:
    spec = small(
        affine(a="2", start="c0", more="  reset: cut[t]\n  keep: held[t]\n") + "  z: k[t] + 0 * s[t]\n", RESETS
    )
    flags = {"cut": row(0, 1, 0, 1, 0), "held": row(0, 0, 1, 1, 0)}
    np.testing.assert_array_equal(
        y(spec, x=row(1, 2, 4, 8, 16), c0=[10], k=np.zeros((1, 5)), **flags), row(21, 2, 2, 0, 16)
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_reset_keep_and_zero_are_selects(bad: float) -> None:
    """Neither the carry nor the coefficient of a step that drops or keeps the carry need be finite."""
    inputs = {"held": row(0, 0, 1, 0), "cut": row(0, 1, 0, 0), "c0": [bad]}
    spec = small(affine(a="k[t]", start="c0", more="  reset: cut[t]\n  keep: held[t]\n"), RESETS)
    got = y(spec, x=row(1, 2, bad, 3), k=row(1, bad, bad, 0.5), **inputs)
    np.testing.assert_array_equal(got[:, 1:], row(2, 2, 4))
    got = y(spec, x=row(1, 2, bad, 3), k=row(1, bad, bad, 0), **(inputs | {"cut": row(0, 0, 0, 0)}))
    np.testing.assert_array_equal(got[:, 3:], row(3))
    assert not np.isfinite(got[0, :3]).any()


def test_update_is_evaluated_as_written() -> None:
    update = "  carry: s\n  update: where(held[t], k[t] * s, x[t] - s)\n  reset: cut[t]\n  start: c0\n"
    spec = small("scan:\n  direction: backward\n" + update + "outputs:\n  y: s[t]\n", RESETS)
    flags = {"cut": row(0, 0, 1), "held": row(1, 0, 0)}
    np.testing.assert_array_equal(
        y(spec, x=row(np.nan, 2, 5), k=row(4, np.nan, 0), c0=[np.nan], **flags), row(-12, -3, 5)
    )


def two(p: str, p_start: str, q: str, q_start: str) -> str:
    carries = ((name, f"update: {s}", f"start: {c}") for name, s, c in (("p", p, p_start), ("q", q, q_start)))
    return "  carries:\n" + "".join(f"    {name}:\n      {s}\n      {c}\n" for name, s, c in carries)


def test_carries_step_together() -> None:
    """Each update reads the others' incoming values, not their new ones."""
    spec = small(
        "scan:\n  direction: forward\n" + two("q", "1", "p + q + x[t]", "1") + "outputs:\n  y: p[t]\n  z: q[t]\n"
    )
    got = oracle.run(spec, {"x": row(0, 0, 0, 0)})
    np.testing.assert_array_equal(got["y"], row(1, 2, 3, 5))
    np.testing.assert_array_equal(got["z"], row(2, 3, 5, 8))


def test_several_carries_are_reset_and_kept_together() -> None:
    body = "scan:\n  direction: backward\n" + two("p + x[t]", "0", "q + 2 * p + k[t]", "c0")
    body += "  reset: cut[t]\n  keep: held[t]\noutputs:\n  y: p[t]\n  z: q[t]\n"
    inputs = {"x": row(1, 2, 4), "k": row(0, 0, 0), "cut": row(0, 1, 0), "held": row(1, 0, 0), "c0": np.array([7])}
    got = oracle.run(small(body, RESETS), inputs)
    np.testing.assert_array_equal(got["y"], row(2, 2, 4))
    np.testing.assert_array_equal(got["z"], row(0, 0, 7))


def test_clipped_affine() -> None:
    more = "  lo: -1\n  hi: 3\n  operator: clipped_affine\n  reset: cut[t]\n"
    spec = small(affine(a="k[t]", start="c0", more=more), "x: f[B, T]\nk: f[B, T]\ncut: flag[B, T]\nc0: f[B]")
    got = y(spec, x=row(1, 5, -9, 9, 2), k=row(1, 1, 1, np.nan, 0), cut=row(0, 0, 0, 1, 0), c0=[1])
    np.testing.assert_array_equal(got, row(2, 3, -1, 3, 2))


@pytest.mark.parametrize(("operator", "sign"), [("max_plus", 1), ("min_plus", -1)])
def test_max_plus_and_min_plus(operator: str, sign: int) -> None:
    more = f"  operator: {operator}\n  reset: cut[t]\n"
    spec = small(affine(a="k[t]", start="c0", more=more), "x: f[B, T]\nk: f[B, T]\ncut: flag[B, T]\nc0: f[B]")
    x, k = sign * row(1, 0, 0, -8, -2, -9), sign * row(-1, -2, 4, np.nan, 3, -np.inf)
    got = y(spec, x=x, k=k, cut=row(0, 0, 0, 1, 0, 0), c0=[sign * 5])
    np.testing.assert_array_equal(got, sign * row(4, 2, 6, -8, -2, -9))


def test_a_step_without_a_finite_a_drops_what_is_not_finite() -> None:
    for operator, sign in (("max_plus", 1), ("min_plus", -1)):
        spec = small(affine(a="k[t]", start="c0", more=f"  operator: {operator}\n"), "x: f[B, T]\nk: f[B, T]\nc0: f[B]")
        got = y(spec, x=row(3, 1), k=sign * row(-np.inf, 0), c0=[sign * np.inf])
        np.testing.assert_array_equal(got, row(3, max(3, 1) if sign == 1 else 1))


def test_an_operator_of_ones_own() -> None:
    operator = "  operator:\n    elements: {m: 'g', v: 'x[t]'}\n"
    operator += "    combine: {m: first.m * second.m, v: second.m * first.v + second.v}\n"
    operator += "    identity: {m: 1, v: 0}\n    apply: m * s + v\n"
    body = "scan:\n  direction: backward\n  carry: s\n" + operator + "  start: 8\noutputs:\n  y: s[t]\n"
    np.testing.assert_array_equal(y(small(body, params="g: in [0, 1]"), {"g": 0.5}, x=row(1, 2, 4)), row(4, 6, 8))
    body = body.replace("outputs:", "  reset: cut[t]\noutputs:")
    spec = small(body, "x: f[B, T]\ncut: flag[B, T]", "g: in [0, 1]")
    # The start is what a reset puts in the carry's place: 0.5 · 8 + 2 at the second step.
    np.testing.assert_array_equal(y(spec, {"g": 0.5}, x=row(1, 2, 6), cut=row(0, 1, 0)), row(4, 6, 10))


def test_later_scans_read_earlier_ones() -> None:
    """A count of the steps left, then sums weighted by the next step's count; an output of neither scan in between."""
    scans = "scans:\n- direction: backward\n  carry: n\n  update: n + 1\n  start: 0\n"
    scans += "- direction: forward\n  carry: s\n  a: 1\n  b: x[t] * n[t+1] + left[t]\n  start: 0\n"
    spec = small("let:\n  left: n[t] - 1\n" + scans + "outputs:\n  y: s[t]\n  z: s[t-1] + n[t]\n")
    got = oracle.run(spec, {"x": row(1, 10, 100)})
    np.testing.assert_array_equal(got["y"], row(4, 15, 15))
    np.testing.assert_array_equal(got["z"], row(3, 6, 16))


def test_functions() -> None:
    x = np.array([[-2.0, -0.5, 0.0, 0.5, 3.0]])
    wanted = {
        "abs(x[t])": np.abs(x),
        "exp(x[t])": np.exp(x),
        "log(x[t] + 3)": np.log(x + 3),
        "sqrt(x[t] + 3)": np.sqrt(x + 3),
        "tanh(x[t])": np.tanh(x),
        "sigmoid(x[t])": 1 / (1 + np.exp(-x)),
        "clip(x[t], -1, 1)": np.clip(x, -1, 1),
        "min(x[t], 0, -1)": np.minimum(x, -1),
        "max(x[t], 0, 1)": np.maximum(x, 1),
        "where(-1 < x[t] <= 0.5, 1, 2)": np.where((x > -1) & (x <= 0.5), 1, 2),
        "where(x[t] > 0 and not x[t] > 1 or x[t] == 0, 1, 0)": row(0, 0, 1, 1, 0),
        "where(x[t] != 0 or false, 1, 0)": row(1, 1, 0, 1, 1),
        "where(true, 1, x[t])": np.ones_like(x),
        "x[t] ** 3 - x[t] / 4": x**3 - x / 4,
        "min(inf, x[t])": x,
        "-x[t]": -x,
    }
    for expression, value in wanted.items():
        close(y(pointwise(expression), x=x), value)


def test_nan_passes_through_min_and_max_and_not_through_comparisons() -> None:
    x = row(np.nan)
    for expression in ("min(x[t], 0)", "min(0, x[t])", "max(x[t], 0)", "max(0, x[t])", "clip(x[t], 0, 1)", "x[t] * 0"):
        assert np.isnan(y(pointwise(expression), x=x)).all(), expression
    for expression in ("where(x[t] > 0, x[t], 7)", "where(x[t] <= 0, x[t], 7)", "where(x[t] == x[t], x[t], 7)"):
        np.testing.assert_array_equal(y(pointwise(expression), x=x), row(7), err_msg=expression)


def test_flags_are_what_is_not_zero() -> None:
    spec = pointwise("where(f[t], 1, 0)", "f: flag[B, T]")
    for flags in (row(True, False), row(1, 0), row(1.0, 0.0), np.array([[255, 0]], np.uint8)):
        np.testing.assert_array_equal(y(spec, f=flags), row(1, 0))


def test_reductions() -> None:
    q = np.random.default_rng(0).normal(size=(2, 3, 4))
    q[0, 0] = -np.inf
    q[0, 1, 2] = np.inf
    wanted = {
        "sum(A, q[t])": q.sum(-1),
        "max(A, q[t])": q.max(-1),
        "min(A, q[t])": q.min(-1),
        "logsumexp(A, q[t])": np.logaddexp.reduce(q, -1),
        "sum(A, q[t] * last)": q.sum(-1),
    }
    for expression, value in wanted.items():
        got = y(pointwise(expression, "q: f[B, T, A]\nlast: f[B, A]"), q=q, last=np.ones((2, 4)))
        np.testing.assert_allclose(got, value, rtol=1e-12, err_msg=expression)
    huge = np.full((1, 1, 2), 1000.0)
    close(y(pointwise("logsumexp(A, q[t])", "q: f[B, T, A]"), q=huge), [[1000 + np.log(2)]])


@pytest.mark.parametrize("size", [1, 3])
def test_take(size: int) -> None:
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 4, size)), rng.integers(0, size, (2, 4))
    spec = pointwise("take(q[t], k[t])", "q: f[B, T, A]\nk: int[B, T]")
    np.testing.assert_array_equal(y(spec, q=q, k=k), np.take_along_axis(q, k[..., None], -1)[..., 0])
    k[0, 1], k[1, 2] = size, -1
    assert np.argwhere(np.isnan(y(spec, q=q, k=k))).tolist() == [[0, 1], [1, 2]]


def test_take_along_one_of_two_axes() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 3, 4, 5)), rng.integers(0, 4, (2, 3, 5))
    spec = pointwise("take(q[t], k[t])", "q: f[B, T, A, F]\nk: int[B, T, F]")
    wanted = np.take_along_axis(q, k[:, :, None], 2)[:, :, 0]
    np.testing.assert_array_equal(y(spec, q=q, k=k), wanted)


def test_take_of_several_elements() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 3, 4)), rng.integers(0, 4, (2, 3, 5))
    spec = pointwise("take(q[t], k[t])", "q: f[B, T, A]\nk: int[B, T, F]")
    np.testing.assert_array_equal(y(spec, q=q, k=k), np.take_along_axis(q, k, 2))


def test_a_default_stands_for_a_whole_array() -> None:
    inputs = "x: f[B, T, A]\nq: f[B, T, A] = 2\nk: int[B, T] = 3"
    x = np.zeros((1, 2, 4))
    for expression, value in {"sum(A, q[t])": 8, "take(q[t], k[t])": 2, "sum(A, x[t] + 1)": 4}.items():
        np.testing.assert_array_equal(y(pointwise(expression, inputs), x=x), np.full((1, 2), value), err_msg=expression)
    np.testing.assert_array_equal(y(pointwise("q[t]", inputs), x=x), np.full((1, 2, 4), 2))


def test_take_past_the_edge_picks_from_the_edge() -> None:
    body = "edge:\n  q: last\n  k: 1\n"
    spec = pointwise("take(q[t+1], k[t+1])", "q: f[B, T, A]\nk: int[B, T]\nlast: f[B, A]", before=body)
    got = y(spec, q=[[[1, 2], [3, 4]]], k=row(0, 0), last=[[5, 6]])
    np.testing.assert_array_equal(got, row(3, 6))


@pytest.mark.parametrize("layout", ["bt", "tb"])
def test_axes_broadcast_by_name(layout: str) -> None:
    """Axes of one size are told apart by their names, and an output has those that it varies along."""
    rng = np.random.default_rng(0)
    spec = small(affine(b="x[t] * w") + "  z: sum(F, s[t])\n", "x: f[B, T, F]\nw: f[B, G]")
    x, w = rng.normal(size=(3, 3, 3)), rng.normal(size=(3, 3))
    got = oracle.run(spec, {"x": x.swapaxes(0, 1) if layout == "tb" else x, "w": w}, layout=layout)
    wanted = np.einsum("btf,bg->btfg", x.cumsum(1), w)
    close(got["y"], wanted.swapaxes(0, 1) if layout == "tb" else wanted)
    close(got["z"], wanted.sum(2).swapaxes(0, 1) if layout == "tb" else wanted.sum(2))


def test_one_number_for_all_environments() -> None:
    inputs = some("discounted_returns", 0, 3, 4, set())
    same(
        run("discounted_returns", inputs | {"last_value": 2.0}),
        run("discounted_returns", inputs | {"last_value": np.full(3, 2.0)}),
    )


def test_thousands_of_steps_and_a_chain_of_lets() -> None:
    lets = "".join(f"  v{i}: v{i - 1}[t] + 1\n" for i in range(1, 300))
    spec = small("let:\n  v0: x[t]\n" + lets + affine(b="v299[t]"))
    np.testing.assert_array_equal(y(spec, x=np.zeros((1, 20)))[0], 299 * np.arange(1, 21))
    T = 5000
    spec = small("edge:\n  y: 0\n" + affine(direction="backward") + "  z: y[t+1]\n")
    got = oracle.run(spec, {"x": np.ones((1, T))})
    np.testing.assert_array_equal(got["z"][0], np.arange(T)[::-1])


def test_missing_unknown_and_misfitting_inputs() -> None:
    inputs = some("gae", 0, 2, 3)
    for broken, words in [
        (without(inputs, "last_value"), "last_value"),
        (inputs | {"valeus": inputs["values"]}, "valeus"),
        (inputs | {"last_value": inputs["last_value"][:, None]}, "last_value"),
        (inputs | {"values": inputs["values"][:, :2]}, "values"),
        (without(inputs, "final_values"), "final_values"),
    ]:
        with pytest.raises(ValueError, match=words):
            run("gae", broken)
    with pytest.raises(ValueError, match="gama"):
        run("gae", inputs, gama=1)
    with pytest.raises(ValueError, match="lam"):
        run("gae", inputs, lam=np.ones((3, 2, 1)))
    with pytest.raises(ValueError, match="nothing"):
        oracle.run(spec_of("gae"), inputs, outputs=["nothing"])
    with pytest.raises(ValueError, match="layout"):
        oracle.run(spec_of("gae"), inputs, layout="BT")
    needs = pointwise("g", params="g: in [0, 1]")
    with pytest.raises(ValueError, match="missing g"):
        y(needs, x=row(1))


def test_a_circle_is_refused() -> None:
    spec = small("edge:\n  p: 0\n  q: 0\nlet:\n  p: q[t+1]\n  q: p[t-1]\n" + affine(b="p[t]"))
    with pytest.raises(ValueError, match="defined through itself"):
        y(spec, x=row(1, 2, 3))


def test_inputs_are_left_as_they_were() -> None:
    for name in BUILTINS:
        inputs = some(name, 0, 2, 5)
        before = {key: x.copy() for key, x in inputs.items()}
        for x in inputs.values():
            x.flags.writeable = False
        run(name, inputs)
        same(inputs, before)


def test_the_oracle_shares_nothing_with_the_compiler() -> None:
    code = "import sys, rlscan.oracle; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    ours = {name for name in loaded if name.startswith("rlscan.")}
    assert ours == {"rlscan.oracle", "rlscan.spec", "rlscan.diagnostics"}
    assert not {"torch", "sympy", "triton", "numba"} & set(loaded)
