"""The gallery: each spec against its own plain loop and against the oracle, on every backend and in both layouts.

The identities share no mistake with either. Tolerance: |kernel − float64| ≤ 2·|eager float32 − float64| + a few roundings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import rlscan
from rlscan import oracle, store
from rlscan.draw import draw
from rlscan.parse import parse
from rlscan.spec import Spec
from tests.gallery_loops import LOOPS, loop
from tests.test_kernels import as_tensors, assert_close, in_layout, targets

Arrays = dict[str, np.ndarray[Any, Any]]

GALLERY = store.gallery()
LAYOUTS = ("bt", "tb")
#: Params that have no default, and what makes a spec's own kinds of step frequent.
PARAMS: dict[str, dict[str, Any]] = {
    "average_reward_gae": {"average_reward": 0.25},
    "segmental_gae": {"lam": 0.75},
    "leaky_vtrace": {"alpha": 0.5, "rho_bar": 0.9},
    "length_adaptive_gae": {"alpha": 0.25},
    "upgo": {"gamma": 0.9},
}


@cache
def spec_of(name: str) -> Spec:
    return parse(*store.find_spec(name))


@cache
def estimator(name: str, layout: str = "bt", backend: str = "cpu") -> Any:
    return rlscan.compile(name, layout=layout, backend=backend)


def sample(
    name: str, B: int = 3, T: int = 9, seed: int = 0, optional: bool = True, done: float = 0.2, dtype: Any = np.float32
) -> Arrays:
    """Batch-first inputs that mean something to the estimator."""
    spec, rng = spec_of(name), np.random.default_rng(seed)
    chosen = {item.name for item in spec.inputs if item.optional} if optional else set()
    x = draw(spec, rng, B, T, {"A": 3, "F": 2}, chosen, dtype, done)
    if "lengths" in x:
        x["lengths"] *= 10
    if "decay" in x:
        x["decay"] = np.tanh(x["decay"])
    if "lambda_re" in x:
        radius = np.hypot(x["lambda_re"], x["lambda_im"]) + 0.1
        x["lambda_re"], x["lambda_im"] = (x[part] / radius for part in ("lambda_re", "lambda_im"))
    if name == "replacing_traces":
        x["features"] = np.where(rng.random(x["features"].shape) < 0.5, 0, x["features"]).astype(dtype)
    if name == "watkins_q_lambda":
        greedy = rng.random((B, T)) < 0.6
        x["actions"] = np.where(greedy, x["q_values"].argmax(-1), x["actions"])
    return x


def run(name: str, x: Mapping[str, Any], **params: Any) -> dict[str, Any]:
    """The compiled cpu kernel on float32 inputs; optional ones that are missing are given as nothing in particular."""
    spec = spec_of(name)
    some = next(np.asarray(v) for v in x.values() if np.ndim(v) > 1)
    B, T = some.shape[:2]
    full = {}
    for item in spec.inputs:
        if item.name in x:
            value = np.asarray(x[item.name])
            full[item.name] = value.astype(np.float32) if value.dtype.kind == "f" else value
        elif item.dims == ("B", "T"):
            full[item.name] = np.full((B, T), item.default, np.float32 if item.kind == "float" else np.bool_)
    return estimator(name)(**full, **params)._asdict()


def close(got: Any, want: Any, atol: float = 3e-5) -> None:
    np.testing.assert_allclose(got, want, rtol=3e-5, atol=atol * max(1.0, float(np.abs(want).max(initial=0))))


# -- the collection ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GALLERY)
def test_a_spec_is_named_as_its_file_cited_and_looped(name: str) -> None:
    spec = spec_of(name)
    assert spec.name == name
    assert spec.title
    assert re.search(r"\d{4}|verl|Brax|PufferLib", spec.cite)
    assert name in LOOPS


def test_there_is_no_loop_too_many_and_no_name_twice() -> None:
    assert set(LOOPS) == set(GALLERY)
    assert not set(GALLERY) & set(store.builtins())


@pytest.mark.parametrize("reference", ["upgo", "upgo.yaml", "gallery/upgo", "specs/gallery/upgo.yaml"])
def test_the_gallery_resolves_by_name(reference: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert store.find_spec(reference)[1] == "specs/gallery/upgo.yaml"


def test_an_unknown_name_has_a_near_one() -> None:
    with pytest.raises(FileNotFoundError, match=r"did you mean `watkins_q_lambda`\?"):
        rlscan.compile("watkin_q_lambda")


#: M − G², where both are hundreds and the difference is one
DIFFERENCES = {"return_moments": {"variance": "second_moment"}}


# -- against the loop and the oracle -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GALLERY)
def test_the_oracle_agrees_with_the_loop(name: str) -> None:
    spec = spec_of(name)
    rng = np.random.default_rng(1)
    for T in (1, 2, 7):
        plane = {
            p.name: rng.uniform(max(p.lower, 0.1), min(p.upper, 1.0) if p.lower < 1 else 5, (3, T))
            for p in spec.params
            if p.name != "eps"
        }
        each = {key: value[:, 0] for key, value in plane.items()}
        # A length fixes one λ for its whole row.
        settings = [PARAMS.get(name, {}), each, *([plane] if name != "length_adaptive_gae" else [])]
        for done in (0.05, 0.6):
            for optional in (False, True):
                x = sample(name, T=T, seed=T, optional=optional, done=done, dtype=np.float64)
                for params in settings:
                    exact, wanted = oracle.run(spec, x, params), loop(name, x, params)
                    assert exact.keys() == wanted.keys()
                    for key, value in wanted.items():
                        np.testing.assert_allclose(exact[key], value, rtol=1e-9, atol=1e-9, err_msg=f"{key}, T = {T}")


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", GALLERY)
def test_compiled_agrees_with_the_loop_and_the_oracle(name: str, layout: str, backend: str, device: str) -> None:
    spec, params = spec_of(name), PARAMS.get(name, {})
    shapes = {"cuda": ((3, 7), (70, 333), (2, 5000)), "cpu": ((2, 1), (3, 9))}[device]
    for B, T in shapes:
        for done in (0.05, 0.6):
            # A set of inputs that Numba has not seen costs a compilation; the interpreter takes any.
            for optional in (True,) if backend == "cpu" else (False, True):
                x = sample(name, B, T, seed=T, optional=optional, done=done)
                given = in_layout(spec, x, layout)
                got = estimator(name, layout, backend)(**as_tensors(given, device), **params)
                assert_close(spec, given, params, layout, got, DIFFERENCES.get(name))
                if T < 1000:
                    for key, value in loop(name, x, params).items():
                        made = getattr(got, key).cpu().numpy()
                        close(made if layout == "bt" else made.swapaxes(0, 1), value, 1e-4)


# -- what is never read ------------------------------------------------------------------------------------------------


def unread(name: str, x: Arrays) -> dict[str, Any]:
    """Where an estimator's meaning says that an input is never read."""
    none = np.zeros(next(v for v in x.values() if v.ndim > 1).shape[:2], np.bool_)
    terminated = x.get("terminated", none)
    truncated = x.get("truncated", none)
    if name == "dreamer_returns":
        terminated = x["continues"] == 0
    done = terminated | truncated
    found = {key: done[:, -1] for key in x if key.startswith("last_")}
    found["final_values"] = ~truncated | terminated
    #: the first step of the window and of each episode: nothing before it reads its value
    first = np.concatenate([np.ones_like(done[:, :1]), done[:, :-1]], 1)
    match name:
        case "dreamer_returns" | "nonlinear_bellman_returns":
            found["values"] = first
        case "peng_q_lambda" | "watkins_q_lambda":
            found["q_values"] = first
        case "expected_sarsa_lambda":
            found["q_values"] = found["target_probs"] = first
        case "acer_q_ret":
            found |= dict.fromkeys(("q_values", "target_probs", "behavior_probs"), first)
        case "tree_backup" | "q_sigma":
            taken = x["actions"][..., None] == np.arange(x["q_values"].shape[-1])
            found["q_values"] = found["target_probs"] = first[..., None] & ~taken
        case "masked_gae" | "reinforce_plus_plus":
            found["rewards"] = found["values"] = ~x["mask"]
        case "leaky_vtrace":
            found |= dict.fromkeys(("rewards", "target_log_probs", "behavior_log_probs"), ~x["sample_mask"])
        case "brax_advantage":
            found["rewards"] = truncated
        case "puffer_advantage":
            found["rewards"], found["importance"] = none.copy(), none.copy()
            found["rewards"][:, 0] = found["importance"][:, -1] = True
    return {key: mask for key, mask in found.items() if key in x and np.any(mask)}


def spoiled(x: Arrays, masks: Mapping[str, Any], seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    made = {key: np.array(value) for key, value in x.items()}
    for key, mask in masks.items():
        where = np.broadcast_to(mask.reshape(mask.shape + (1,) * (made[key].ndim - mask.ndim)), made[key].shape)
        made[key][where] = rng.choice([np.nan, np.inf, -np.inf], made[key].shape)[where]
    return made


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("name", [n for n in GALLERY if unread(n, sample(n, done=0.4))])
def test_poison_where_nothing_is_read(name: str, backend: str, device: str) -> None:
    for seed in (0, 1):
        x = sample(name, T=8, seed=seed, done=0.4)
        masks = unread(name, x)
        given = in_layout(spec_of(name), x, "tb")
        bad = in_layout(spec_of(name), spoiled(x, masks, seed), "tb")
        compiled = estimator(name, "tb", backend)
        want = compiled(**as_tensors(given, device), **PARAMS.get(name, {}))
        got = compiled(**as_tensors(bad, device), **PARAMS.get(name, {}))
        for key, value in want._asdict().items():
            # A masked token's return is its advantage and its own value.
            if (name, key) != ("masked_gae", "returns"):
                assert torch.equal(getattr(got, key), value), key


@pytest.mark.parametrize("name", [n for n in GALLERY if unread(n, sample(n, done=0.4))])
def test_the_oracle_reads_nothing_there_either(name: str) -> None:
    x, spec = sample(name, T=8, done=0.4), spec_of(name)
    want = oracle.run(spec, x, PARAMS.get(name))
    got = oracle.run(spec, spoiled(x, unread(name, x), 0), PARAMS.get(name))
    for key, value in want.items():
        if (name, key) != ("masked_gae", "returns"):
            np.testing.assert_array_equal(got[key], value)


# -- identities --------------------------------------------------------------------------------------------------------


def td(name: str = "gae", T: int = 9, truncations: bool = True, seed: int = 3) -> Arrays:
    """Rewards, values and flags."""
    x = sample(name, T=T, seed=seed)
    if not truncations:
        x["truncated"] = np.zeros_like(x["terminated"])
    return x


def without(x: Arrays, *names: str) -> Arrays:
    return {key: value for key, value in x.items() if key not in names}


def test_n_steps_beyond_the_window_are_the_discounted_return() -> None:
    for T in (1, 4, 5):
        x = td(T=T)
        close(run("n_step_returns", x)["returns"], run("discounted_returns", without(x, "values"))["returns"])


def test_n_steps_of_a_constant() -> None:
    """Rewards and values of 1 without an end: 1 + γ + … + γ⁵."""
    x = {"rewards": np.ones((1, 20)), "values": np.ones((1, 20)), "terminated": np.zeros((1, 20), np.bool_)}
    got = run("n_step_returns", {**x, "last_value": np.ones(1)}, gamma=0.5)["returns"]
    close(got[0, :15], np.full(15, 2 - 0.5**5))


def test_pengs_and_watkins_q_lambda() -> None:
    x = sample("watkins_q_lambda", seed=4)
    best = x["q_values"].max(-1)
    greedy = {**x, "actions": x["q_values"].argmax(-1)}
    peng = run("peng_q_lambda", without(x, "actions"))["targets"]
    close(run("watkins_q_lambda", greedy)["targets"], peng)
    as_values = {**without(x, "q_values", "actions", "last_q_values"), "values": best}
    close(peng, run("td_lambda", {**as_values, "last_value": x["last_q_values"].max(-1)})["returns"])
    exploring = {**x, "actions": x["q_values"].argmin(-1)}
    one_step = run("peng_q_lambda", without(x, "actions"), lam=0.0)["targets"]
    got = run("watkins_q_lambda", exploring)["targets"]
    # Past the window there is no action to explore: the λ-return is the bootstrap either way.
    close(got, one_step)


def q_case(seed: int = 5) -> Arrays:
    x = sample("q_sigma", seed=seed)
    x["last_value"] = (x["last_target_probs"] * x["last_q_values"]).sum(-1)
    return x


def retrace(x: Arrays, **params: Any) -> Any:
    return run("retrace", without(x, "last_value"), **params)["targets"]


def test_what_corrects_action_values_is_retrace_with_other_weights() -> None:
    x = q_case()
    plain = without(x, "last_value")
    certain = {**x, "behavior_probs": np.ones_like(x["behavior_probs"])}
    tree = run("tree_backup", without(plain, "behavior_probs"), lam=0.9)["targets"]
    close(tree, retrace(certain, lam=0.9, c_bar=float("inf")))
    close(run("q_sigma", plain, sigma=0.0)["targets"], retrace(certain))
    close(run("q_sigma", plain, sigma=1.0)["targets"], retrace(x, c_bar=float("inf")))
    acer = without(x, "last_q_values", "last_target_probs")
    close(run("acer_q_ret", acer)["targets"], retrace(x))
    close(run("acer_q_ret", acer, c_bar=0.5)["targets"], retrace(x, c_bar=0.5))


def test_tree_backup_of_a_deterministic_policy_is_the_return() -> None:
    x = q_case()
    one_hot = np.eye(3, dtype=np.float32)[x["actions"]]
    tree = run("tree_backup", {**without(x, "behavior_probs", "last_value"), "target_probs": one_hot})["targets"]
    kept = {key: x[key] for key in ("rewards", "terminated", "truncated", "final_values", "last_value")}
    close(tree, run("discounted_returns", kept)["returns"])


def test_expected_sarsa_of_the_greedy_policy_is_pengs() -> None:
    x = sample("expected_sarsa_lambda", seed=6)
    eye = np.eye(3, dtype=np.float32)
    greedy = {"target_probs": eye[x["q_values"].argmax(-1)], "last_target_probs": eye[x["last_q_values"].argmax(-1)]}
    peng = run("peng_q_lambda", without(x, "target_probs", "last_target_probs"))["targets"]
    close(run("expected_sarsa_lambda", x | greedy)["targets"], peng)


def test_upgo_of_low_values_is_the_return_and_of_high_ones_a_step() -> None:
    x = td()
    falling = np.broadcast_to(np.arange(9) * 50.0 - 1000, (3, 9))
    low = {**x, "values": falling, "final_values": np.full((3, 9), 7.0), "last_value": np.full(3, -1.0)}
    returns = run("discounted_returns", without(low, "values"), gamma=1.0)["returns"]
    close(run("upgo", low)["returns"], returns)
    high = {**x, "values": -falling, "last_value": np.full(3, -1000.0)}
    close(run("upgo", high)["returns"], run("td_lambda", high, lam=0.0, gamma=1.0)["returns"])


def test_upgo_goes_on_at_a_tie() -> None:
    zero = np.zeros((1, 3))
    x = {"rewards": np.array([[1.0, 2.0, 4.0]]), "values": np.array([[0.0, 5.0, 3.0]]), "terminated": zero > 0}
    assert run("upgo", {**x, "last_value": np.zeros(1)})["returns"].tolist() == [[7, 6, 4]]


def test_puffer_on_policy_is_gae_one_step_earlier() -> None:
    x = sample("puffer_advantage", seed=7)
    on_policy = run("puffer_advantage", {**x, "importance": np.ones_like(x["importance"])})["advantages"]
    moved = {"rewards": x["rewards"][:, 1:], "values": x["values"][:, :-1], "terminated": x["starts"][:, 1:]}
    close(on_policy[:, :-1], run("gae", {**moved, "last_value": x["values"][:, -1]})["advantages"])
    assert (on_policy[:, -1] == 0).all()
    weights = {"target_log_probs": np.log(x["importance"][:, :-1]), "behavior_log_probs": np.zeros((3, 8))}
    got = run("puffer_advantage", x)["advantages"][:, :-1]
    vtrace = run("vtrace", {**moved, **weights, "last_value": x["values"][:, -1]}, lam=0.95)
    close(got, vtrace["vs"] - moved["values"], 1e-4)


def test_brax_without_truncations() -> None:
    x = td(truncations=False)
    got = run("brax_advantage", without(x, "final_values"))
    close(got["vs"], run("td_lambda", x)["returns"])
    at_one = run("brax_advantage", without(x, "final_values"), lam=1.0)["advantages"]
    close(at_one, run("gae", x, lam=1.0)["advantages"])


def test_brax_leaves_a_truncated_step_out() -> None:
    x = without(td(), "final_values")
    x["truncated"] = np.ones_like(x["truncated"])
    got = run("brax_advantage", x)
    assert (got["advantages"] == 0).all()
    close(got["vs"], x["values"])


def test_leaky_vtrace_between_vtrace_and_importance_sampling() -> None:
    x = sample("leaky_vtrace", seed=8)
    x["sample_mask"] = np.ones_like(x["sample_mask"])
    plain = without(x, "sample_mask")
    close(run("leaky_vtrace", x, alpha=1.0)["vs"], run("vtrace", plain)["vs"])
    unclipped = run("vtrace", plain, rho_bar=float("inf"), c_bar=float("inf"))["vs"]
    close(run("leaky_vtrace", x, alpha=0.0)["vs"], unclipped)


def test_a_weight_that_overflows_leaks_only_where_it_is_mixed_in() -> None:
    x = sample("leaky_vtrace", seed=8)
    x["target_log_probs"] = x["target_log_probs"] + 1000
    assert np.isfinite(run("leaky_vtrace", x, alpha=1.0)["vs"]).all()


def h(x: Any, eps: float = 1e-3) -> Any:
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + eps * x


def test_transformed_values_give_transformed_returns() -> None:
    x = td(seed=9)
    scaled = {key: value * 20 if value.dtype.kind == "f" else value for key, value in x.items()}
    given = {key: h(value) if "value" in key else value for key, value in scaled.items()}
    wanted = run("td_lambda", scaled)["returns"]
    close(run("nonlinear_bellman_returns", given)["returns"], h(wanted.astype(np.float64)), 1e-4)


def test_continues_of_zero_and_one_are_flags() -> None:
    x = td()
    x["final_values"] = np.where(x["terminated"], 0, x["final_values"])
    given = {**without(x, "terminated"), "continues": np.where(x["terminated"], 0.0, 1.0)}
    close(run("dreamer_returns", given, gamma=0.9)["returns"], run("td_lambda", x, gamma=0.9)["returns"])


def packed(x: Arrays, mask: Any) -> tuple[Arrays, Any]:
    """One row's valid tokens side by side, from the left."""
    kept = np.flatnonzero(mask)
    return {key: value[None, kept] for key, value in x.items()}, kept


def test_a_masked_token_is_as_if_it_were_not_there() -> None:
    x = sample("reinforce_plus_plus", T=11, seed=10)
    values = np.random.default_rng(0).normal(size=(3, 11)).astype(np.float32)
    masked = run("masked_gae", {**x, "values": values}, gamma=0.9, lam=0.8)["advantages"]
    returns = run("reinforce_plus_plus", x, gamma=0.9)["returns"]
    for b in range(3):
        row, kept = packed({"rewards": x["rewards"][b], "values": values[b]}, x["mask"][b])
        row |= {"terminated": np.zeros(row["rewards"].shape, np.bool_), "last_value": np.zeros(1)}
        close(masked[b, kept], run("gae", row, gamma=0.9, lam=0.8)["advantages"][0])
        close(returns[b, kept], run("discounted_returns", without(row, "values"), gamma=0.9)["returns"][0])


def test_gae_with_two_lambdas_is_gae_twice() -> None:
    x = td()
    both = run("decoupled_gae", x, gamma=0.9, lam_policy=0.3, lam_value=0.8)
    close(both["advantages"], run("gae", x, gamma=0.9, lam=0.3)["advantages"])
    close(both["returns"], run("gae", x, gamma=0.9, lam=0.8)["returns"])


def test_a_length_is_a_lambda() -> None:
    x = without(td(truncations=False), "truncated", "final_values")
    given = {**x, "lengths": np.full(3, 40.0)}
    got = run("length_adaptive_gae", given, gamma=0.9, alpha=0.25)
    close(got["advantages"], run("gae", x, gamma=0.9, lam=0.9)["advantages"])
    close(got["returns"], run("gae", x, gamma=0.9, lam=1.0)["returns"])
    short = run("length_adaptive_gae", {**x, "lengths": np.full(3, 2.0)}, gamma=0.9, alpha=0.25)
    close(short["advantages"], run("gae", x, gamma=0.9, lam=0.0)["advantages"])


def test_egae_bootstraps_a_cut_response_with_its_own_last_value() -> None:
    x = without(td(), "final_values", "last_value")
    own = {**x, "final_values": x["values"], "last_value": x["values"][:, -1]}
    close(run("egae", x, gamma=0.9)["advantages"], run("gae", own, gamma=0.9)["advantages"])


def test_segments_of_one_token_are_gae_and_one_segment_is_lambda_one() -> None:
    x = without(td(truncations=False), "truncated", "final_values")
    for boundary, lam in ((True, 0.7), (False, 1.0)):
        got = run("segmental_gae", {**x, "boundary": np.full((3, 9), boundary)}, gamma=0.9, lam=0.7)
        close(got["advantages"], run("gae", x, gamma=0.9, lam=lam)["advantages"])


def test_the_average_reward_is_taken_off() -> None:
    x = td()
    close(run("average_reward_gae", x, average_reward=0.0)["returns"], run("gae", x, gamma=1.0)["returns"])
    more = {**x, "rewards": x["rewards"] + 2}
    got = run("average_reward_gae", more, average_reward=2.0)["advantages"]
    close(got, run("gae", x, gamma=1.0)["advantages"])


def test_traces_that_never_meet_accumulate_and_those_that_do_are_replaced() -> None:
    x = sample("replacing_traces", T=2, seed=11)
    x = without(x, "initial_trace") | {"initial_trace": np.zeros((3, 2))}
    x["features"] = np.broadcast_to(np.eye(2), (3, 2, 2)).astype(np.float32)
    close(run("replacing_traces", x)["traces"], run("eligibility_traces", x)["traces"])
    x["features"] = np.full((3, 2, 2), 4.0, np.float32)
    assert (run("replacing_traces", x)["traces"] == 4).all()


def test_emphasis_on_policy() -> None:
    x = sample("emphatic_traces", seed=12)
    on_policy = {**x, "rho": np.ones_like(x["rho"]), "interest": np.ones_like(x["interest"])}
    plain = {**without(on_policy, "rho", "interest"), "initial_trace": np.zeros((3, 2))}
    got = run("emphatic_traces", on_policy, lam=1.0)
    close(got["traces"], run("eligibility_traces", plain, lam=1.0)["traces"])
    assert (got["emphases"] == 1).all()
    ones = {**plain, "features": np.ones((3, 9, 2), np.float32)}
    close(got["follow_on"], run("eligibility_traces", ones, lam=1.0)["traces"][..., 0])


def test_a_certain_return_has_no_variance() -> None:
    x = sample("return_moments", seed=13)
    x["last_second_moment"] = x["last_value"] ** 2
    got = run("return_moments", x)
    close(got["mean"], run("discounted_returns", without(x, "last_second_moment"))["returns"])
    close(got["variance"], np.zeros((3, 9)), 1e-4)
    wide = run("return_moments", {**x, "last_second_moment": x["last_value"] ** 2 + 1})["variance"]
    ahead = ~np.logical_or.accumulate(x["terminated"][:, ::-1], 1)[:, ::-1]
    close(wide, np.where(ahead, 0.99 ** (2 * np.arange(9, 0, -1)), 0.0), 1e-4)


def test_the_variance_of_one_step_is_its_squared_error() -> None:
    x = sample("return_variance", seed=14)
    delta = run("gae", without(x, "last_variance"), lam=0.0)["advantages"]
    close(run("return_variance", x, lam=0.0)["variance"], delta**2)


def test_the_best_return() -> None:
    x = sample("best_return_ahead", seed=15)
    best = run("best_return_ahead", x)["best"]
    close(run("discounted_best_return", x, gamma=1.0)["best"], best)
    never = {"rewards": -np.abs(x["rewards"]), "terminated": x["terminated"]}
    close(run("discounted_best_return", never)["best"], never["rewards"])
    gains = {"rewards": np.abs(x["rewards"]), "terminated": x["terminated"]}
    returns = run("discounted_returns", {**gains, "last_value": np.zeros(3)})["returns"]
    close(run("discounted_best_return", gains)["best"], returns)


def test_the_best_reward_without_discount_is_a_running_maximum() -> None:
    x = sample("max_reward_returns", seed=16)
    x["terminated"] = np.zeros_like(x["terminated"])
    seen = np.concatenate([x["rewards"], x["last_value"][:, None]], 1)
    running = np.maximum.accumulate(seen[:, ::-1], 1)[:, ::-1]
    close(run("max_reward_returns", x, gamma=1.0)["returns"], running[:, :-1])


def test_the_average_has_exponential_weights() -> None:
    x = sample("exponential_moving_average", B=2, T=6, seed=17)
    x["done"] = np.zeros_like(x["done"])
    got = run("exponential_moving_average", x, alpha=0.25)["average"]
    for t in range(6):
        weights = 0.25 * 0.75 ** np.arange(t, -1, -1)
        close(got[:, t], np.einsum("k,bkf->bf", weights, x["x"][:, : t + 1]) + 0.75 ** (t + 1) * x["initial_value"])
    close(run("leaky_integrator", without(x, "done"), tau=4.0)["level"], got)


def test_an_average_that_starts_anew_starts_at_its_first_value() -> None:
    x = sample("exponential_moving_average", seed=18)
    x["done"] = np.ones_like(x["done"])
    close(run("exponential_moving_average", x)["average"][:, 1:], x["x"][:, 1:])


def test_a_state_space_is_a_trace_with_a_decay_of_its_own() -> None:
    x = sample("diagonal_state_space", seed=19)
    x["decay"] = np.full((3, 2), 0.5)
    traces = {"features": x["x"], "terminated": x["done"], "initial_trace": x["initial_state"]}
    got = run("diagonal_state_space", x)["states"]
    close(got, run("eligibility_traces", traces, gamma=0.5, lam=1.0)["traces"])


def test_a_complex_state_turns_as_it_fades() -> None:
    x = sample("complex_state_space", B=2, T=12, seed=20)
    angle, radius = np.array([0.3, 2.0]), np.array([0.9, 1.0])
    x["lambda_re"] = np.broadcast_to(radius * np.cos(angle), (2, 2))
    x["lambda_im"] = np.broadcast_to(radius * np.sin(angle), (2, 2))
    x["done"], x["x_im"] = np.zeros_like(x["done"]), np.zeros_like(x["x_im"])
    x["x_re"] = np.zeros_like(x["x_re"])
    x["x_re"][:, 0] = 1
    got, k = run("complex_state_space", x), np.arange(12)[:, None]
    close(got["states_re"], np.broadcast_to(radius**k * np.cos(k * angle), (2, 12, 2)))
    close(got["states_im"], np.broadcast_to(radius**k * np.sin(k * angle), (2, 12, 2)))


def test_a_real_decay_keeps_the_parts_apart() -> None:
    x = sample("complex_state_space", seed=21)
    x["lambda_im"] = np.zeros_like(x["lambda_im"])
    got = run("complex_state_space", x)
    for part in ("re", "im"):
        plain = {"x": x[f"x_{part}"], "decay": x["lambda_re"], "done": x["done"], "initial_state": np.zeros((3, 2))}
        close(got[f"states_{part}"], run("diagonal_state_space", plain)["states"])
