"""Facts about the seven estimators that no implementation can share a mistake in, and what they must never read.

Each fact is an equation between results of compiled estimators, or between one and a plain sum. On the cpu backend
hypothesis chooses shapes, flags, dtype and params; the interpreter runs a few tiny examples, a GPU larger ones. Poison is
compared bit by bit with the result without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rlscan
from rlscan import oracle, store
from tests.draw import draw, poison
from tests.test_kernels import BUILTINS, LAYOUTS, as_tensors, estimator, in_layout, spec_of, targets

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
TRUNCATION = {"truncated", "final_values"}
FORWARD = ("eligibility_traces", "episodic_prefix_sum")
BACKWARD = tuple(name for name in BUILTINS if name not in FORWARD)

each_target = pytest.mark.parametrize(("backend", "device"), targets())
each_layout = pytest.mark.parametrize("layout", LAYOUTS)
DEVICES = [x for x in targets() if x.id != "cpu"]


class World:
    """One draw: where and how estimators run, and the inputs and params for them, batch first."""

    def __init__(
        self,
        backend: str,
        device: str,
        layout: str,
        B: int,
        T: int,
        seed: int,
        *,
        truncations: bool = True,
        done: float = 0.25,
        gamma: float = 0.9,
        lam: float = 0.7,
        dtype: str = "float32",
        axes: Mapping[str, int] | None = None,
    ) -> None:
        self.backend, self.device, self.layout = backend, device, layout
        self.B, self.T, self.seed = B, T, seed
        self.truncations, self.done, self.gamma, self.lam = truncations, done, gamma, lam
        self.dtype = dtype
        self.axes = {"A": 5, "F": 3} if axes is None else axes

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    def inputs(self, name: str, dtype: Any = None) -> Arrays:
        spec = spec_of(name)
        optional = {item.name for item in spec.inputs if item.optional}
        if not self.truncations:
            optional -= TRUNCATION
        return draw(spec, self.rng, self.B, self.T, self.axes, optional, dtype or np.dtype(self.dtype), self.done)

    def tensors(self, name: str, inputs: Mapping[str, Any], path: Path | None = None) -> dict[str, torch.Tensor]:
        spec = spec_of(name) if path is None else rlscan.compile(path).spec
        return as_tensors(in_layout(spec, inputs, self.layout), self.device)

    def raw(self, name: str, inputs: Mapping[str, Any], **params: float) -> dict[str, torch.Tensor]:
        """The results as they come, batch first."""
        got = estimator(name, self.layout, self.backend)(**self.tensors(name, inputs), **params)
        return self.batch_first(got)

    def batch_first(self, got: Any) -> dict[str, torch.Tensor]:
        return {key: x.transpose(0, 1) if self.layout == "tb" else x for key, x in got._asdict().items()}

    def run(self, name: str, inputs: Mapping[str, Any], **params: float) -> Arrays:
        return {key: x.cpu().double().numpy() for key, x in self.raw(name, inputs, **params).items()}

    def close(self, left: Array, right: Array, size: float = 1.0) -> None:
        """Equal but for the rounding of sums of T terms of this size."""
        assert left.shape == right.shape
        size = max(size, 1.0, float(np.abs(right).max(initial=0)))
        slack = (20 + 4 * self.T**0.5) * size * float(np.finfo(self.dtype).eps)
        error = np.abs(left - right)
        assert (error <= slack).all(), f"off by {error.max():.3g}, allowed {slack:.3g}"


def without(inputs: Mapping[str, Any], *names: str) -> Arrays:
    return {key: x for key, x in inputs.items() if key not in names}


def next_values(inputs: Mapping[str, Any], values: Array, last: Array) -> Array:
    """nv: what each step bootstraps with."""
    after = np.concatenate([values[:, 1:], last[:, None]], axis=1).astype(np.float64)
    if "truncated" in inputs:
        after = np.where(inputs["truncated"], inputs["final_values"], after)
    return np.where(inputs["terminated"], 0, after)


# -- the facts ---------------------------------------------------------------------------------------------------------


def gae_at_lambda_1_is_returns_less_values(w: World) -> None:
    inputs = w.inputs("gae")
    returns = w.run("discounted_returns", without(inputs, "values"), gamma=w.gamma)["returns"]
    size = float(np.abs(returns).max())
    w.close(w.run("gae", inputs, gamma=w.gamma, lam=1.0)["advantages"], returns - inputs["values"], size)


def gae_at_lambda_0_is_the_td_error(w: World) -> None:
    inputs = w.inputs("gae")
    after = next_values(inputs, inputs["values"], inputs["last_value"])
    delta = inputs["rewards"] + w.gamma * after - inputs["values"]
    w.close(w.run("gae", inputs, gamma=w.gamma, lam=0.0)["advantages"], delta)


def td_lambda_is_the_return_of_gae(w: World) -> None:
    inputs = w.inputs("gae")
    for lam in (0.0, w.lam, 1.0):
        want = w.run("gae", inputs, gamma=w.gamma, lam=lam)
        size = float(np.abs(want["advantages"]).max())
        w.close(w.run("td_lambda", inputs, gamma=w.gamma, lam=lam)["returns"], want["returns"], size)


def td_lambda_at_its_ends(w: World) -> None:
    inputs = w.inputs("td_lambda")
    one_step = inputs["rewards"] + w.gamma * next_values(inputs, inputs["values"], inputs["last_value"])
    w.close(w.run("td_lambda", inputs, gamma=w.gamma, lam=0.0)["returns"], one_step)
    returns = w.run("discounted_returns", without(inputs, "values"), gamma=w.gamma)["returns"]
    w.close(w.run("td_lambda", inputs, gamma=w.gamma, lam=1.0)["returns"], returns)


def vtrace_on_policy_is_td_lambda(w: World) -> None:
    inputs = w.inputs("vtrace")
    inputs["behavior_log_probs"] = inputs["target_log_probs"]
    plain = without(inputs, "behavior_log_probs", "target_log_probs")
    for lam in (0.0, w.lam, 1.0):
        got = w.run("vtrace", inputs, gamma=w.gamma, lam=lam)
        w.close(got["vs"], w.run("td_lambda", plain, gamma=w.gamma, lam=lam)["returns"])
    size = float(np.abs(got["vs"]).max())
    w.close(got["pg_advantages"], w.run("gae", plain, gamma=w.gamma, lam=1.0)["advantages"], size)


def retrace_without_traces_is_one_step(w: World) -> None:
    inputs = w.inputs("retrace")
    expected = (inputs["target_probs"].astype(float) * inputs["q_values"]).sum(-1)
    last = (inputs["last_target_probs"].astype(float) * inputs["last_q_values"]).sum(-1)
    got = w.run("retrace", inputs, gamma=w.gamma, lam=0.0)["targets"]
    size = max(float(np.abs(inputs[key]).max()) for key in ("q_values", "last_q_values"))
    w.close(got, inputs["rewards"] + w.gamma * next_values(inputs, expected, last), size)


def retrace_of_a_certain_policy_follows_the_data(w: World) -> None:
    inputs = w.inputs("retrace")
    A = inputs["q_values"].shape[-1]
    inputs["target_probs"] = np.eye(A, dtype=w.dtype)[inputs["actions"]]
    inputs["behavior_probs"] = np.ones((w.B, w.T), w.dtype)
    last = w.rng.integers(0, A, w.B)
    inputs["last_target_probs"] = np.eye(A, dtype=w.dtype)[last]
    along = {key: inputs[key] for key in ("rewards", "terminated", *(TRUNCATION & inputs.keys()))}
    along["last_value"] = inputs["last_q_values"][np.arange(w.B), last]
    returns = w.run("discounted_returns", along, gamma=w.gamma)["returns"]
    # Every step's Q goes in and comes out again: T roundings of its size.
    size = float(np.abs(inputs["q_values"]).max()) + float(np.abs(returns).max())
    w.close(w.run("retrace", inputs, gamma=w.gamma, lam=1.0)["targets"], returns, size)


def without_discount_and_flags_they_are_cumulative_sums(w: World) -> None:
    rewards = w.rng.normal(size=(w.B, w.T)).astype(w.dtype)
    flags, zero = np.zeros((w.B, w.T), bool), np.zeros(w.B, w.dtype)
    exact = rewards.astype(float)
    ahead, so_far = exact[:, ::-1].cumsum(1)[:, ::-1], exact.cumsum(1)
    size = float(max(np.abs(ahead).max(), np.abs(so_far).max()))
    got = w.run("discounted_returns", {"rewards": rewards, "terminated": flags, "last_value": zero}, gamma=1.0)
    w.close(got["returns"], ahead, size)
    w.close(
        w.run("eligibility_traces", {"features": rewards, "terminated": flags}, gamma=1.0, lam=1.0)["traces"],
        so_far,
        size,
    )
    w.close(w.run("episodic_prefix_sum", {"x": rewards})["sums"], so_far, size)


def outputs_scale_with_rewards_and_values(w: World) -> None:
    """By a power of two, which is exact: every bit is the same."""
    scaled = {"rewards", "values", "final_values", "last_value", "q_values", "last_q_values"}
    k = -(2.0 ** int(w.rng.integers(-8, 9)))
    for name in BACKWARD:
        inputs = w.inputs(name)
        once = w.raw(name, inputs)
        for key, x in w.raw(name, {n: x * x.dtype.type(k) if n in scaled else x for n, x in inputs.items()}).items():
            assert torch.equal(x, once[key] * k), f"{name}.{key}"


def features_scale_their_sums(w: World) -> None:
    for name, scaled in (("eligibility_traces", "features"), ("episodic_prefix_sum", "x")):
        inputs = w.inputs(name)
        initial = "initial_trace" if name == "eligibility_traces" else "initial_sum"
        more = inputs | {key: inputs[key] * inputs[key].dtype.type(-4) for key in (scaled, initial)}
        (once,), (got,) = w.raw(name, inputs).values(), w.raw(name, more).values()
        assert torch.equal(got, once * -4)


def an_episodes_end_separates(w: World) -> None:
    """Whatever lies beyond a done, NaN and inf included, the near side keeps every bit."""
    for name in BUILTINS:
        inputs = w.inputs(name)
        flags = sorted(inputs.keys() & {"terminated", "truncated", "done"})
        end, flag = int(w.rng.integers(0, w.T)), flags[int(w.rng.integers(0, len(flags)))]
        inputs[flag][:, end] = True
        first = w.raw(name, inputs)
        near = slice(0, end + 1) if name in BACKWARD else slice(end + 1, w.T)
        second = w.raw(name, beyond(name, inputs, end, flag, w.rng))
        for key, x in first.items():
            assert torch.isfinite(x).all()
            assert torch.equal(second[key][:, near], x[:, near]), f"{name}.{key} beyond step {end}"


def a_segments_start_separates(w: World) -> None:
    """episodic_prefix_sum's other flag: nothing before a start is in the sums from it on."""
    inputs = w.inputs("episodic_prefix_sum")
    at = int(w.rng.integers(0, w.T))
    inputs["start"][:, at] = True
    first = w.raw("episodic_prefix_sum", inputs)["sums"]
    changed = {key: np.array(x) for key, x in inputs.items()}
    changed["x"][:, :at] = np.nan
    changed["initial_sum"][...] = np.inf
    assert torch.equal(w.raw("episodic_prefix_sum", changed)["sums"][:, at:], first[:, at:])


def beyond(name: str, inputs: Arrays, end: int, flag: str, rng: np.random.Generator) -> Arrays:
    """Other inputs, hardly any of them finite, on the far side of a step that ends an episode."""
    T = next(iter(inputs.values())).shape[1]
    far = slice(end + 1, T) if name in BACKWARD else slice(0, end + 1)
    changed = {}
    for item in spec_of(name).inputs:
        if item.name not in inputs:
            continue
        x = np.array(inputs[item.name])
        part = x[:, far] if "T" in item.dims else x
        if item.kind == "flag":
            part[...] = rng.random(part.shape) < 0.5
        elif item.kind == "int":
            part[...] = rng.integers(0, 5, part.shape)
        else:
            part[...] = rng.choice([np.nan, np.inf, -np.inf, 1e30, 3.0], part.shape)
        changed[item.name] = x
    changed[flag][:, end] = True
    return changed


def poison_is_never_read(w: World) -> None:
    """values[t+1] after a done step, final_values where not truncated, last_value where the last step is done, and the like."""
    for name in BUILTINS:
        inputs = w.inputs(name)
        clean = w.raw(name, inputs)
        assert all(bool(torch.isfinite(x).all()) for x in clean.values())
        spoilt = poison(name, inputs, w.seed)
        for key, x in w.raw(name, spoilt).items():
            assert torch.equal(x, clean[key]), f"{name}.{key} reads what it must not"


def gae_and_vtrace_read_no_value_beyond_a_done(w: World) -> None:
    """A poisoned value is in its own step's results alone: those of the step before, which is done, keep every bit."""
    for name in ("gae", "vtrace"):
        inputs = w.inputs(name)
        inputs["terminated"][:, 1::3] = True
        done = inputs["terminated"] | inputs["truncated"] if "truncated" in inputs else inputs["terminated"]
        after = np.concatenate([np.zeros((w.B, 1), bool), done[:, :-1]], axis=1)
        clean = w.raw(name, inputs)
        values = np.array(inputs["values"])
        values[after] = w.rng.choice([np.nan, np.inf, -np.inf], values.shape)[after]
        for key, x in w.raw(name, inputs | {"values": values}).items():
            kept = torch.from_numpy(~after).to(x.device)
            assert torch.equal(x[kept], clean[key][kept]), f"{name}.{key}"
            assert not torch.isfinite(x[~kept]).any()


def rows_are_apart(w: World) -> None:
    """A row of NaN is that row's own."""
    for name in BUILTINS:
        inputs = w.inputs(name)
        clean, row = w.raw(name, inputs), int(w.rng.integers(0, w.B))
        spoilt = {key: np.array(x) for key, x in inputs.items()}
        for x in spoilt.values():
            if x.dtype.kind == "f":
                x[row] = np.nan
        others = [b for b in range(w.B) if b != row]
        for key, x in w.raw(name, spoilt).items():
            assert torch.equal(x[others], clean[key][others])
            assert x[row].isnan().any()


def both_layouts_are_one_estimator(w: World) -> None:
    other = World(w.backend, w.device, "tb" if w.layout == "bt" else "bt", w.B, w.T, w.seed, dtype=w.dtype)
    for name in BUILTINS:
        inputs = w.inputs(name)
        there = other.run(name, inputs)
        for key, x in w.run(name, inputs).items():
            w.close(x, there[key])


def a_window_is_its_two_halves(w: World) -> None:
    """The second half's first result is the first half's edge. Where that edge is no input, a spec with one more has it."""
    if w.T < 2:
        return
    cut = int(w.rng.integers(1, w.T))
    for name in BUILTINS:
        spec, inputs = spec_of(name), w.inputs(name)
        params = {param.name: {"gamma": w.gamma, "lam": w.lam}.get(param.name, 0.8) for param in spec.params}
        timed = {item.name for item in spec.inputs if "T" in item.dims}
        left = {key: x[:, :cut] if key in timed else x for key, x in inputs.items()}
        right = {key: x[:, cut:] if key in timed else x for key, x in inputs.items()}
        if name in FORWARD:
            first = w.run(name, left, **params)
            (result,) = first.values()
            ended = np.zeros(w.B, bool)
            for flag in inputs.keys() & {"terminated", "truncated", "done"}:
                ended |= inputs[flag][:, cut - 1]
            initial = "initial_trace" if name == "eligibility_traces" else "initial_sum"
            right[initial] = np.where(ended[:, None], 0, result[:, -1]).astype(w.dtype)
            second = w.run(name, right, **params)
        else:
            second = w.run(name, right, **params)
            left |= {key: np.asarray(x).astype(w.dtype) for key, x in handed_on(name, right, second, params).items()}
            run = rlscan.compile(with_edges(name), layout=w.layout, backend=w.backend)
            got = w.batch_first(run(**w.tensors(name, left, with_edges(name)), **params))
            first = {key: x.cpu().double().numpy() for key, x in got.items()}
        for key, x in w.run(name, inputs, **params).items():
            halves = np.concatenate([first[key], second[key]], axis=1)
            w.close(halves, x, max(float(np.abs(y).max()) for y in inputs.values() if y.dtype.kind == "f"))


EDGES = {
    "discounted_returns": {},
    "gae": {"start: 0": "start: edge_adv"},
    "td_lambda": {"start: last_value": "start: edge_g"},
    "vtrace": {"  vs: last_value": "  vs: edge_vs", "start: 0": "start: edge_dv"},
    "retrace": {
        "targets: sum(A, last_target_probs * last_q_values)": "targets: edge_targets",
        "  c: 0 ": "  c: edge_c ",
        "start: 0": "start: edge_d",
    },
}


@cache
def folder_of_specs() -> Path:
    import tempfile

    return Path(tempfile.mkdtemp(prefix="facts-"))


@cache
def with_edges(name: str) -> Path:
    """A builtin whose carry and edges past the last step are inputs."""
    text, _ = store.find_spec(name)
    for old, new in EDGES[name].items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    added = sorted(new.split(": ")[1].strip() for new in EDGES[name].values())
    text = text.replace("together:", "".join(f"  {edge}: f[B]\n" for edge in added) + "together:")
    path = folder_of_specs() / f"{name}.yaml"
    path.write_text(text.replace(f"name: {name}\n", f"name: half_of_{name}\n"))
    return path


def handed_on(name: str, right: Arrays, second: Arrays, params: Mapping[str, float]) -> Arrays:
    """What the first half takes for its edge."""
    if name == "discounted_returns":
        return {"last_value": second["returns"][:, 0]}
    if name == "retrace":
        at = (np.arange(len(right["actions"])), right["actions"][:, 0])
        ratio = right["target_probs"][:, 0][at].astype(float) / right["behavior_probs"][:, 0]
        return {
            "last_q_values": right["q_values"][:, 0],
            "last_target_probs": right["target_probs"][:, 0],
            "edge_targets": second["targets"][:, 0],
            "edge_d": second["targets"][:, 0] - right["q_values"][:, 0][at],
            "edge_c": params["lam"] * np.minimum(params["c_bar"], ratio),
        }
    value = right["values"][:, 0]
    edges = {
        "gae": lambda: {"edge_adv": second["advantages"][:, 0]},
        "td_lambda": lambda: {"edge_g": second["returns"][:, 0]},
        "vtrace": lambda: {"edge_vs": second["vs"][:, 0], "edge_dv": second["vs"][:, 0] - value},
    }
    return {"last_value": value, **edges[name]()}


FACTS: tuple[Callable[[World], None], ...] = (
    gae_at_lambda_1_is_returns_less_values,
    gae_at_lambda_0_is_the_td_error,
    td_lambda_is_the_return_of_gae,
    td_lambda_at_its_ends,
    vtrace_on_policy_is_td_lambda,
    retrace_without_traces_is_one_step,
    retrace_of_a_certain_policy_follows_the_data,
    without_discount_and_flags_they_are_cumulative_sums,
    outputs_scale_with_rewards_and_values,
    features_scale_their_sums,
    an_episodes_end_separates,
    a_segments_start_separates,
    poison_is_never_read,
    gae_and_vtrace_read_no_value_beyond_a_done,
    rows_are_apart,
    both_layouts_are_one_estimator,
    a_window_is_its_two_halves,
)
each_fact = pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)


@each_fact
@each_layout
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    B=st.integers(1, 6),
    T=st.integers(1, 40),
    seed=st.integers(0, 2**31),
    truncations=st.booleans(),
    done=st.sampled_from([0.0, 0.1, 0.4, 1.0]),
    gamma=st.floats(0, 1),
    lam=st.floats(0, 1),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_on_cpu(fact: Callable[[World], None], layout: str, B: int, T: int, seed: int, **how: Any) -> None:
    fact(World("cpu", "cpu", layout, B, T, seed, **how))


@each_fact
@each_layout
@pytest.mark.parametrize(("backend", "device"), DEVICES)
def test_on_devices(fact: Callable[[World], None], layout: str, backend: str, device: str) -> None:
    shapes = [(2, 5), (1, 1), (3, 4)] if device == "cpu" else [(1, 1), (3, 7), (5, 33), (2, 5000), (3000, 9), (70, 128)]
    for seed, (B, T) in enumerate(shapes):
        fact(World(backend, device, layout, B, T, seed, truncations=seed % 2 == 0))


@pytest.mark.gpu
@each_fact
@each_layout
def test_in_float64_on_a_gpu(fact: Callable[[World], None], layout: str) -> None:
    for seed, (B, T) in enumerate([(4, 9), (3, 700)]):
        fact(World("triton", "cuda", layout, B, T, seed, dtype="float64", gamma=0.97))


# -- log-probabilities -------------------------------------------------------------------------------------------------


def policies(device: str, layout: str, target: Any, behavior: Any, dtype: torch.dtype = torch.float32) -> Any:
    """V-trace's inputs for one environment: rewards of 3, values of 1, and 4 after the last step."""
    T = len(target)
    shape = (1, T) if layout == "bt" else (T, 1)
    put = lambda x: torch.tensor(x, dtype=dtype, device=device).reshape(shape)  # noqa: E731
    return {
        "target_log_probs": put(target),
        "behavior_log_probs": put(behavior),
        "rewards": put([3.0] * T),
        "values": put([1.0] * T),
        "terminated": torch.zeros(shape, dtype=torch.bool, device=device),
        "last_value": torch.full((1,), 4.0, dtype=dtype, device=device),
    }


@each_target
@each_layout
@pytest.mark.parametrize(
    ("dtype", "gap"), [(torch.float32, 89.0), (torch.float32, 1e38), (torch.float64, 710.0), (torch.float64, 1e300)]
)
def test_a_ratio_that_overflows_gives_the_clip(
    dtype: torch.dtype, gap: float, layout: str, backend: str, device: str
) -> None:
    """exp overflows: the result is that of a ratio that is merely large."""
    run = estimator("vtrace", layout, backend)
    bars = {"gamma": 0.5, "rho_bar": 0.75, "c_bar": 0.5, "pg_rho_bar": 2.0}
    over = run(**policies(device, layout, [-1.0, 0.0, -1.0], [-gap, -gap, -1.0], dtype), **bars)
    large = run(**policies(device, layout, [-1.0, 0.0, -1.0], [-9.0, -9.0, -1.0], dtype), **bars)
    for x, y in zip(over, large, strict=True):
        assert torch.isfinite(x).all()
        assert torch.equal(x, y)


@each_target
@each_layout
def test_log_probabilities_of_minus_infinity(layout: str, backend: str, device: str) -> None:
    """Never by the target: weight 0, whatever the behavior's is. Never by the behavior, and yet taken: the clip."""
    run = estimator("vtrace", layout, backend)
    got = run(**policies(device, layout, [-math.inf, -math.inf, -0.5], [-1.0, -math.inf, -math.inf]), gamma=0.5)
    # The last step weighs 1: 3 + 0.5·4 = 5, less the value of 1. The others weigh 0 and keep their value.
    assert got.vs.flatten().tolist() == [1, 1, 5]
    assert got.pg_advantages.flatten().tolist() == [0, 0, 4]
    free = dict.fromkeys(("rho_bar", "c_bar", "pg_rho_bar"), math.inf)
    got = run(**policies(device, layout, [-math.inf, -math.inf, -0.5], [-1.0, -math.inf, -0.5]), gamma=0.5, **free)
    assert got.vs.flatten().tolist() == [1, 1, 5]
    assert got.pg_advantages.flatten().tolist() == [0, 0, 4]


@each_target
@each_layout
def test_an_infinite_bar_does_not_clip(layout: str, backend: str, device: str) -> None:
    run = estimator("vtrace", layout, backend)
    given = policies(device, layout, [math.log(4), 0.0], [0.0, math.log(0.5)])
    got = run(**given, gamma=0.5, rho_bar=math.inf, c_bar=math.inf, pg_rho_bar=math.inf)
    # w = 4, 2. dv[1] = 2·(3 + 0.5·4 − 1) = 8; dv[0] = 4·(3 + 0.5·1 − 1) + 0.5·4·8 = 26; pg[0] = 4·(3 + 0.5·9 − 1) = 26.
    torch.testing.assert_close(got.vs.flatten().cpu(), torch.tensor([27.0, 9.0]))
    torch.testing.assert_close(got.pg_advantages.flatten().cpu(), torch.tensor([26.0, 8.0]))
    got = run(**given, gamma=0.5, rho_bar=math.inf, c_bar=0.0, pg_rho_bar=0.0)
    torch.testing.assert_close(got.vs.flatten().cpu(), torch.tensor([11.0, 9.0]))
    assert got.pg_advantages.flatten().tolist() == [0, 0]


@each_target
def test_infinite_bars_of_retrace(backend: str, device: str) -> None:
    w = World(backend, device, "bt", 2, 4, 3)
    inputs = w.inputs("retrace")
    inputs["behavior_probs"] *= np.float32(0.05)  # so that the ratios pass 1, the bars that are the default
    free = w.run("retrace", inputs, c_bar=math.inf, rho_bar=math.inf)
    for key, x in w.run("retrace", inputs, c_bar=1e6, rho_bar=1e6).items():
        np.testing.assert_array_equal(free[key], x)
    assert np.abs(free["advantages"] - w.run("retrace", inputs)["advantages"]).max() > 0.1


@each_target
@each_layout
def test_products_that_overflow_where_the_carry_does_not(layout: str, backend: str, device: str) -> None:
    """Without a bar on the traces, forty ratios of e³ make e¹²⁰, which is no float32; of a carry of 0 it makes 0."""
    T = 64
    ratios = [3.0] * 40 + [0.0] * (T - 40)
    given = policies(device, layout, [0.0] * T, [-x for x in ratios])
    rewards = [0.0] * T
    rewards[5] = 1.0
    shape = (1, T) if layout == "bt" else (T, 1)
    given |= {
        "rewards": torch.tensor(rewards, device=device).reshape(shape),
        "last_value": torch.zeros(1, device=device),
    }
    given["values"] = torch.zeros(shape, device=device)
    run = estimator("vtrace", layout, backend)
    wanted = torch.tensor([math.exp(3 * max(5 - t, 0)) if t <= 5 else 0.0 for t in range(T)])
    torch.testing.assert_close(run(**given, gamma=1.0, c_bar=math.inf).vs.flatten().cpu(), wanted)
    given["terminated"] = (torch.arange(T, device=device) == 50).reshape(shape)
    torch.testing.assert_close(run(**given, gamma=1.0, c_bar=math.inf).vs.flatten().cpu(), wanted)
    # What is no number stays none.
    given["target_log_probs"] = given["target_log_probs"].clone()
    given["target_log_probs"].view(-1)[8] = math.nan
    assert run(**given, gamma=1.0, c_bar=math.inf).vs.flatten()[:9].isnan().all()


# -- axes --------------------------------------------------------------------------------------------------------------

SIZES = {"cpu": (1, 2, 3, 5, 17, 100, 333, 1000), "interpreter": (1, 3, 6, 33), "gpu": (1, 2, 3, 5, 17, 100, 333, 1000)}


@pytest.mark.parametrize(
    ("A", "backend", "device"),
    [
        pytest.param(A, *target.values, id=f"{A}-{target.id}", marks=target.marks)
        for target in targets()
        for A in SIZES[str(target.id)]
    ],
)
@each_layout
def test_retrace_with_any_number_of_actions(layout: str, A: int, backend: str, device: str) -> None:
    for B, T in ((2, 3),) if backend == "triton" and device == "cpu" else ((3, 13), (1, 1)):
        w = World(backend, device, layout, B, T, A, axes={"A": A})
        inputs = w.inputs("retrace")
        # The last action, the first, and every other.
        inputs["actions"][0, 0], inputs["actions"][-1, -1] = A - 1, 0
        inputs["behavior_probs"] = (inputs["behavior_probs"] / A).astype(np.float32)
        exact = oracle.run(spec_of("retrace"), inputs, {}, layout="bt")
        for key, x in w.run("retrace", inputs).items():
            w.close(x, exact[key], 3.0)


@each_target
@each_layout
@pytest.mark.parametrize("name", FORWARD)
def test_features_are_apart(name: str, layout: str, backend: str, device: str) -> None:
    """[B, T, F] is F times [B, T]: the flags and what each feature starts with are its own."""
    for F in (1, 2, 5):
        w = World(backend, device, layout, 3, 6, F, axes={"F": F})
        inputs = w.inputs(name)
        (together,) = w.run(name, inputs).values()
        assert together.shape == (3, 6, F)
        for f in range(F):
            (alone,) = w.run(
                name,
                {key: x[..., f] if x.shape[-1:] == (F,) and x.dtype.kind == "f" else x for key, x in inputs.items()},
            ).values()
            assert alone.shape == (3, 6)
            w.close(together[..., f], alone)
        assert F == 1 or np.abs(together[..., 0] - together[..., 1]).max() > 0.1


@each_target
@each_layout
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("features", [(), (3,)], ids=["no-features", "features"])
def test_integers_are_summed_exactly(
    features: tuple[int, ...], dtype: Any, layout: str, backend: str, device: str
) -> None:
    """2⁵³ + 1 is no float64; int32 sums go past 2³¹."""
    top = 2**53 if dtype is np.int64 else 2**31 - 1
    B, T = 3, 7
    x = np.ones((B, T, *features), dtype)
    x[:, 0] = top
    initial = np.array([0, 1, 2], np.int64).reshape(3, *(1 for _ in features)) * np.ones(features, np.int64)
    done, start = np.zeros((B, T), bool), np.zeros((B, T), bool)
    done[1, 3] = start[2, 2] = True
    w = World(backend, device, layout, B, T, 0)
    got = w.raw("episodic_prefix_sum", {"x": x, "done": done, "start": start, "initial_sum": initial})["sums"]
    assert got.dtype == torch.int64
    rows = [
        [top, top + 1, top + 2, top + 3, top + 4, top + 5, top + 6],
        [top + 1, top + 2, top + 3, top + 4, 1, 2, 3],
        [top + 2, top + 3, 1, 2, 3, 4, 5],
    ]
    wanted = np.array(rows, np.int64).reshape(B, T, *(1 for _ in features)) * np.ones(features, np.int64)
    assert got.tolist() == wanted.tolist()
