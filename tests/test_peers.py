"""What people use now, on the same data: the libraries' own functions agree with rlscan's where their definitions coincide.

Where they do not coincide, a test says by how much and why; README's table has the figures. Nothing of a peer is copied: each
is called as its users call it. One that is not installed skips its tests, visibly; one that is and cannot be imported fails
them. Every measured difference is recorded in the file of

    pytest -m peers -o junit_family=xunit1 --junitxml=FILE

Data is time first, [T, B]. `next_values` is the true V(s_{t+1}), finite everywhere: most peers multiply what does not count
by zero, which a NaN survives.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import rlscan

pytestmark = pytest.mark.peers

Array = np.ndarray[Any, Any]
RECORDED = Path(__file__).with_name("data") / "cartpole.npz"
PINS = Path(__file__).with_name("peers.txt")
README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
# Rounding alone: one part in so many of the largest result.
ROUNDING = {"float32": 2e-5, "float64": 1e-11}
# Exact in float32, as is their product: torchrl rounds γ to it in float64 too.
GAMMA, LAM = 31 / 32, 29 / 32


@dataclass(frozen=True)
class Rollout:
    """A window of T steps of B environments."""

    rewards: Array
    values: Array
    terminated: Array
    truncated: Array
    final_values: Array
    last_value: Array

    @property
    def done(self) -> Array:
        return self.terminated | self.truncated

    @property
    def cut(self) -> Array:
        """Truncated, and not terminated as well."""
        return self.truncated & ~self.terminated

    @property
    def next_values(self) -> Array:
        """V(s_{t+1}) of the true next state: what most peers take beside the values."""
        following = np.concatenate([self.values[1:], self.last_value[None]])
        return np.where(self.truncated, self.final_values, following)

    @property
    def patched_rewards(self) -> Array:
        """r + γ V(final state) where cut off: how a peer without truncations is told of one."""
        return self.rewards + np.where(self.cut, GAMMA * self.final_values, 0).astype(self.rewards.dtype)

    @property
    def discounts(self) -> Array:
        """γ, and 0 at an episode's end: how rlax is told of one."""
        return np.where(self.done, 0, GAMMA).astype(self.rewards.dtype)

    def inputs(self, *names: str) -> dict[str, torch.Tensor]:
        names = names or ("rewards", "values", "terminated", "truncated", "final_values", "last_value")
        return {name: torch.from_numpy(np.ascontiguousarray(getattr(self, name))) for name in names}


def drawn(seed: int, T: int, B: int, dtype: str, done: float = 0.12) -> Rollout:
    rng = np.random.default_rng(seed)
    normal = [rng.normal(size=shape).astype(dtype) for shape in ((T, B), (T, B), (T, B), (B,))]
    flags = [rng.random((T, B)) < done for _ in range(2)]
    return Rollout(normal[0], normal[1], *flags, normal[2], normal[3])


def recorded(dtype: str) -> Rollout:
    """CartPole, with a value function fitted to it; its final_values are NaN where no episode was cut off."""
    if not RECORDED.exists():
        pytest.skip(f"no recorded data at {RECORDED.name}")
    with np.load(RECORDED) as arrays:
        data = Rollout(**{name: arrays[name] for name in Rollout.__dataclass_fields__})
    assert data.cut.any()
    assert data.terminated.any()
    floats = {name: getattr(data, name).astype(dtype) for name in ("rewards", "values", "last_value")}
    return replace(data, **floats, final_values=np.nan_to_num(data.final_values).astype(dtype))


DATA = {
    "one step": lambda dtype: drawn(0, 1, 1, dtype),
    "small": lambda dtype: drawn(1, 7, 3, dtype, done=0.3),
    "random": lambda dtype: drawn(2, 131, 5, dtype),
    "no flags": lambda dtype: drawn(3, 64, 4, dtype, done=0.0),
    "all done": lambda dtype: drawn(4, 9, 2, dtype, done=1.0),
    "recorded": recorded,
}


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=list(DATA))
def data(request: pytest.FixtureRequest, dtype: str) -> Rollout:
    return DATA[request.param](dtype)


@cache
def estimator(name: str, layout: str = "tb") -> Any:
    return rlscan.compile(name, layout=layout, backend="cpu")


def ours(name: str, inputs: dict[str, torch.Tensor], layout: str = "tb", **params: Any) -> Any:
    """The estimator's results as arrays; γ is GAMMA unless given."""
    found = estimator(name, layout)(**inputs, **{"gamma": GAMMA, **params})
    return SimpleNamespace(**{key: value.numpy() for key, value in found._asdict().items()})


Agree = Callable[..., None]


@pytest.fixture
def agree(record_property: Callable[[str, object], None]) -> Agree:
    """Asserts that a peer's result is ours but for rounding, and records the largest difference."""

    def check(peer: Any, mine: Array, what: str) -> None:
        peer = np.asarray(peer)
        assert peer.shape == mine.shape
        assert np.isfinite(peer).all()
        assert np.isfinite(mine).all()
        precision = max(ROUNDING[str(x.dtype)] for x in (peer, mine))
        scale = max(1.0, float(np.abs(mine).max()))
        error = float(np.abs(peer.astype(np.float64) - mine).max())
        record_property(f"{what} {mine.dtype}", error)
        assert error <= precision * scale, f"{what}: off by {error:.3g}"

    return check


Apart = Callable[..., None]


@pytest.fixture
def apart(record_property: Callable[[str, object], None]) -> Apart:
    """Records by how much a peer differs, and asserts that README's table has that figure where it says of the peer what."""

    def check(library: str, what: str, difference: Any) -> None:
        largest = float(np.abs(np.asarray(difference, np.float64)).max())
        record_property(f"{library} differs: {what}", largest)
        rows = re.search(rf"^\| {library} .*(\n\| \| .*)*", README, flags=re.MULTILINE)
        assert rows, f"README has no {library}"
        said = f"{what}: by {largest:.2g}"
        assert re.search(rf"{re.escape(said)}(?!\.?\d)", rows[0]), f"README does not say of {library}: {said}"

    return check


def differs(peer: Any, mine: Array, where: Array) -> None:
    """Asserts that a peer's result is another one exactly where it says, by more than rounding."""
    assert where.any()
    assert (~where).any()
    apart = np.abs(np.asarray(peer).astype(np.float64) - mine) > 1e-3
    np.testing.assert_array_equal(apart, where)


def peer(name: str) -> Any:
    """A peer's module, or a visible skip where it is not installed."""
    library = name.partition(".")[0]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    return importlib.import_module(name)


def brought(*extras: str) -> set[str]:
    """The packages that rlscan with these extras brings."""
    seen, found = set(), [("rlscan", extra) for extra in ("", *extras)]
    while found:
        name, extra = found.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            pytest.skip(f"{name} is not installed")
        for needed in map(Requirement, lines):
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                found += [(canonicalize_name(needed.name), more) for more in ("", *needed.extras)]
    return {name for name, _ in seen}


def test_what_the_peers_bring_is_pinned() -> None:
    files = [Requirement(line) for line in PINS.read_text().splitlines() if not line.startswith("#")]
    pins = [*files, *map(Requirement, metadata.requires("rlscan") or [])]
    pinned = {canonicalize_name(pin.name) for pin in pins if str(pin.specifier).startswith("==")}
    assert brought("peers") - brought("test") <= pinned


# --- stable-baselines3: [T, B] in float32; episode_starts[t] flags an episode's first step, so done[t] is episode_starts[t+1]


def sb3_gae(data: Rollout, rewards: Array, lam: float = LAM, starts: Array | None = None, last: Any = None) -> Any:
    """A RolloutBuffer that was filled with the window and asked for its advantages."""
    buffers, spaces = peer("stable_baselines3.common.buffers"), importlib.import_module("gymnasium").spaces
    T, B = rewards.shape
    box = spaces.Box(-1, 1, (1,))
    buffer = buffers.RolloutBuffer(T, box, box, gamma=GAMMA, gae_lambda=lam, n_envs=B)
    if starts is None:
        starts = np.concatenate([np.ones((1, B), bool), data.done[:-1]])
    nothing = np.zeros((B, 1), np.float32)
    for t in range(T):
        value, log_prob = torch.from_numpy(data.values[t]), torch.zeros(B)
        buffer.add(nothing, nothing, rewards[t], starts[t], value, log_prob)
    last = data.last_value if last is None else last
    buffer.compute_returns_and_advantage(torch.from_numpy(last), data.done[-1])
    return buffer


def test_sb3_rollout_buffer_with_patched_rewards_is_gae_and_td_lambda(data: Rollout, agree: Agree) -> None:
    buffer = sb3_gae(data, data.patched_rewards)
    gae = ours("gae", data.inputs(), lam=LAM)
    assert buffer.advantages.dtype == np.float32
    agree(buffer.advantages, gae.advantages, "gae.advantages")
    agree(buffer.returns, gae.returns, "gae.returns")
    agree(buffer.returns, ours("td_lambda", data.inputs(), lam=LAM).returns, "td_lambda.returns")


def test_sb3_rollout_buffer_at_lambda_1_is_discounted_returns(data: Rollout, agree: Agree) -> None:
    buffer = sb3_gae(data, data.patched_rewards, lam=1.0)
    found = ours("discounted_returns", data.inputs("rewards", "terminated", "truncated", "final_values", "last_value"))
    agree(buffer.returns, found.returns, "discounted_returns.returns")


def test_sb3_rollout_buffer_alone_takes_a_truncation_for_a_termination(agree: Agree, apart: Apart) -> None:
    """The buffer sees one flag; the patch of the rewards is made by the algorithm that fills it."""
    data = drawn(5, 40, 3, "float32")
    buffer = sb3_gae(data, data.rewards)
    blind = replace(data, terminated=data.done).inputs("rewards", "values", "terminated", "last_value")
    agree(buffer.advantages, ours("gae", blind, lam=LAM).advantages, "all ends terminate")
    true = ours("gae", data.inputs(), lam=LAM).advantages
    np.testing.assert_allclose((true - buffer.advantages)[data.cut], GAMMA * data.final_values[data.cut], atol=1e-5)
    apart("stable-baselines3", "a truncation is a termination", true - buffer.advantages)
    one = replace(data, terminated=np.zeros_like(data.done), truncated=np.zeros_like(data.done))
    one.truncated[20] = True
    # What was left out at a cut reaches every earlier step.
    reach = np.zeros_like(data.done)
    reach[15:21] = True
    gap = np.abs(ours("gae", one.inputs(), lam=LAM).advantages - sb3_gae(one, one.rewards).advantages)
    assert (gap[reach] > 1e-3).all()
    assert gap[21:].max() < 1e-5


def test_sb3_flags_mark_first_steps(agree: Agree, apart: Apart) -> None:
    """Flags of last steps, given as they are, cut the step before: that of t = 0 is lost and the last flag comes twice."""
    data = drawn(6, 30, 3, "float32")
    data = replace(data, truncated=np.zeros_like(data.truncated))
    data.terminated[0] = True
    buffer = sb3_gae(data, data.rewards, starts=data.terminated)
    early = np.concatenate([data.terminated[1:], data.terminated[-1:]])
    names = ("rewards", "values", "terminated", "last_value")
    agree(buffer.advantages, ours("gae", replace(data, terminated=early).inputs(*names), lam=LAM).advantages, "shifted")
    true = ours("gae", data.inputs(*names), lam=LAM).advantages
    apart("stable-baselines3", "given those of last steps", buffer.advantages - true)


def test_sb3_ppo_on_its_own_rollouts(agree: Agree) -> None:
    """PPO fills and patches its buffer itself; rlscan gets the rewards as the environment gave them."""
    sb3, callbacks = peer("stable_baselines3"), peer("stable_baselines3.common.callbacks")
    gym = importlib.import_module("gymnasium")
    T, B = 64, 2
    seen: dict[str, list[Array]] = {"rewards": [], "terminated": [], "truncated": [], "final_values": []}

    class Watch(callbacks.BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            cut = np.array([info.get("TimeLimit.truncated", False) for info in self.locals["infos"]])
            final = np.full(B, np.nan, np.float32)
            for b in np.flatnonzero(cut):
                state = self.model.policy.obs_to_tensor(self.locals["infos"][b]["terminal_observation"])[0]
                final[b] = self.model.policy.predict_values(state).item()
            seen["rewards"].append(self.locals["rewards"].copy())
            seen["terminated"].append(self.locals["dones"] & ~cut)
            seen["truncated"].append(cut)
            seen["final_values"].append(final)
            return True

        def _on_rollout_end(self) -> None:
            buffer = self.model.rollout_buffer
            found["values"], found["last_value"] = buffer.values.copy(), self.locals["values"].numpy().flatten()
            found["advantages"], found["returns"] = buffer.advantages.copy(), buffer.returns.copy()

    found: dict[str, Array] = {}
    envs = importlib.import_module("stable_baselines3.common.vec_env").DummyVecEnv(
        [lambda: gym.make("CartPole-v1", max_episode_steps=15)] * B
    )
    ppo = sb3.PPO(
        "MlpPolicy", envs, n_steps=T, batch_size=T, n_epochs=1, gamma=GAMMA, gae_lambda=LAM, seed=0, device="cpu"
    )
    ppo.learn(T * B, callback=Watch())
    stacked = {name: np.stack(rows).astype(rows[0].dtype) for name, rows in seen.items()}
    data = Rollout(**stacked, values=found["values"], last_value=found["last_value"])
    assert data.truncated.any()
    assert data.terminated.any()
    gae = ours("gae", data.inputs(), lam=LAM)
    agree(found["advantages"], gae.advantages, "gae.advantages")
    agree(found["returns"], gae.returns, "gae.returns")


# --- torchrl: [..., T, F], flags of last steps, next_state_value of the true next state: the closest of all


def torchrl_inputs(data: Rollout, *names: str) -> dict[str, torch.Tensor]:
    every = {
        "state_value": data.values,
        "next_state_value": data.next_values,
        "reward": data.rewards,
        "done": data.done,
        "terminated": data.terminated,
    }
    return {name: torch.from_numpy(every[name])[..., None] for name in names or every}


def torchrl(name: str, data: Rollout, *names: str, **params: Any) -> Any:
    """A value functional's results on [T, B, 1]."""
    functional = peer("torchrl.objectives.value.functional")
    found = getattr(functional, name)(**torchrl_inputs(data, *names), **params, time_dim=0)
    return [x[..., 0].numpy() for x in found] if isinstance(found, tuple) else found[..., 0].numpy()


def test_torchrl_gae_is_gae(data: Rollout, agree: Agree) -> None:
    advantages, returns = torchrl("generalized_advantage_estimate", data, gamma=GAMMA, lmbda=LAM)
    gae = ours("gae", data.inputs(), lam=LAM)
    agree(advantages, gae.advantages, "gae.advantages")
    agree(returns, gae.returns, "gae.returns")


def test_torchrl_vectorized_gae_is_gae(data: Rollout, agree: Agree) -> None:
    advantages, returns = torchrl("vec_generalized_advantage_estimate", data, gamma=GAMMA, lmbda=LAM)
    gae = ours("gae", data.inputs(), lam=LAM)
    agree(advantages, gae.advantages, "gae.advantages")
    agree(returns, gae.returns, "gae.returns")


@pytest.mark.parametrize("lam", [0.0, LAM, 1.0])
def test_torchrl_td_lambda_is_td_lambda(data: Rollout, lam: float, agree: Agree) -> None:
    names = ("next_state_value", "reward", "done", "terminated")
    mine = ours("td_lambda", data.inputs(), lam=lam).returns
    agree(torchrl("td_lambda_return_estimate", data, *names, gamma=GAMMA, lmbda=lam), mine, "td_lambda.returns")
    if lam > 0:
        vectorized = torchrl("vec_td_lambda_return_estimate", data, *names, gamma=GAMMA, lmbda=lam)
        agree(vectorized, mine, "td_lambda.returns vectorized")


def test_torchrl_vectorized_forms_fail_at_lambda_0(dtype: str) -> None:
    """Their series of (γλ)^k has another shape there, and no 1 at its head."""
    data = drawn(20, 20, 2, dtype)
    for name in ("vec_td_lambda_return_estimate", "vec_generalized_advantage_estimate"):
        values = ("state_value",) if name.endswith("advantage_estimate") else ()
        with pytest.raises(IndexError):
            torchrl(name, data, *values, "next_state_value", "reward", "done", "terminated", gamma=GAMMA, lmbda=0.0)


def test_torchrl_td_lambda_with_a_discount_for_each_step(dtype: str, agree: Agree) -> None:
    data = drawn(7, 60, 4, dtype)
    gamma, lam = (torch.from_numpy(np.random.default_rng(s).uniform(0.5, 1, (60, 4)).astype(dtype)) for s in (1, 2))
    names = ("next_state_value", "reward", "done", "terminated")
    theirs = torchrl("td_lambda_return_estimate", data, *names, gamma=gamma[..., None], lmbda=lam[..., None])
    mine = ours("td_lambda", data.inputs(), gamma=gamma, lam=lam).returns
    agree(theirs, mine, "td_lambda.returns")


def test_torchrl_td1_is_discounted_returns(data: Rollout, agree: Agree) -> None:
    names = ("next_state_value", "reward", "done", "terminated")
    mine = ours(
        "discounted_returns", data.inputs("rewards", "terminated", "truncated", "final_values", "last_value")
    ).returns
    agree(torchrl("td1_return_estimate", data, *names, gamma=GAMMA), mine, "discounted_returns.returns")
    vectorized = torchrl("vec_td1_return_estimate", data, *names, gamma=GAMMA)
    agree(vectorized, mine, "discounted_returns.returns vectorized")


def test_torchrl_reward2go_is_discounted_returns_where_every_end_terminates(data: Rollout, agree: Agree) -> None:
    theirs = torchrl("reward2go", data, "reward", "done", gamma=GAMMA)
    bare = replace(data, terminated=data.done, last_value=np.zeros_like(data.last_value))
    mine = ours("discounted_returns", bare.inputs("rewards", "terminated", "last_value")).returns
    agree(theirs, mine, "discounted_returns.returns")


def test_torchrl_reward2go_has_no_bootstrap(apart: Apart) -> None:
    """A truncation is a termination to it, and so is the window's end."""
    data = drawn(21, 60, 4, "float64")
    theirs = torchrl("reward2go", data, "reward", "done", gamma=GAMMA)
    names = ("rewards", "terminated", "truncated", "final_values", "last_value")
    gap = ours("discounted_returns", data.inputs(*names)).returns - theirs
    np.testing.assert_allclose(gap[data.cut], GAMMA * data.final_values[data.cut], atol=1e-12)
    open_end = ~data.done[-1]
    assert open_end.any()
    np.testing.assert_allclose(gap[-1][open_end], GAMMA * data.last_value[open_end], atol=1e-12)
    apart("torchrl", "No bootstrap, at truncations or at the window's end", gap)


def off_policy(data: Rollout, seed: int = 0) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(seed)
    target, behavior = (-np.abs(rng.normal(size=data.rewards.shape)).astype(data.rewards.dtype) for _ in range(2))
    return {"target_log_probs": torch.from_numpy(target), "behavior_log_probs": torch.from_numpy(behavior)}


def torchrl_vtrace(data: Rollout, policies: dict[str, torch.Tensor], **params: Any) -> Any:
    logs = {"log_pi": policies["target_log_probs"][..., None], "log_mu": policies["behavior_log_probs"][..., None]}
    functional = peer("torchrl.objectives.value.functional")
    # time_dim belongs to two layers here, which want different ones: [B, T, 1] needs none.
    swapped = {name: x.transpose(0, 1) for name, x in {**torchrl_inputs(data), **logs}.items()}
    found = functional.vtrace_advantage_estimate(GAMMA, **swapped, **params)
    return [x[..., 0].numpy().T for x in found]


@pytest.mark.parametrize(("rho_bar", "c_bar"), [(1.0, 1.0), (1.25, 0.75)])
def test_torchrl_vtrace_is_vtrace(data: Rollout, rho_bar: float, c_bar: float, agree: Agree) -> None:
    policies = off_policy(data)
    advantages, vs = torchrl_vtrace(data, policies, rho_thresh=rho_bar, c_thresh=c_bar)
    mine = ours("vtrace", {**data.inputs(), **policies}, rho_bar=rho_bar, c_bar=c_bar, pg_rho_bar=rho_bar)
    agree(vs, mine.vs, "vtrace.vs")
    agree(advantages, mine.pg_advantages, "vtrace.pg_advantages")


def test_torchrl_vtrace_has_one_bar_for_values_and_policy_gradient(agree: Agree, apart: Apart) -> None:
    data = drawn(8, 50, 3, "float64")
    policies = off_policy(data)
    advantages, vs = torchrl_vtrace(data, policies, rho_thresh=2.0, c_thresh=1.0)
    mine = ours("vtrace", {**data.inputs(), **policies}, rho_bar=2.0, pg_rho_bar=1.0)
    agree(vs, mine.vs, "vtrace.vs")
    w = np.exp((policies["target_log_probs"] - policies["behavior_log_probs"]).numpy())
    differs(advantages, mine.pg_advantages, (w > 1) & (np.abs((np.minimum(w, 2) - 1) * mine.pg_advantages) > 1e-3))
    np.testing.assert_allclose(advantages, mine.pg_advantages * np.clip(w, 1, 2), rtol=1e-9)
    apart("torchrl", "One bar for both", advantages - mine.pg_advantages)


def test_torchrl_vtrace_has_no_weight_where_neither_policy_acts(agree: Agree) -> None:
    """log π = log μ = −∞: exp(−∞ + ∞) is NaN there and at all steps before, and 0 here."""
    data = drawn(9, 20, 2, "float64", done=0.0)
    policies = {name: x.clone() for name, x in off_policy(data).items()}
    for x in policies.values():
        x[12, 0] = -torch.inf
    _, vs = torchrl_vtrace(data, policies)
    assert np.isnan(vs[:13, 0]).all()
    assert np.isfinite(vs[13:]).all()
    mine = ours("vtrace", {**data.inputs(), **policies})
    agree(vs[:, 1], mine.vs[:, 1], "vtrace.vs of the other environment")
    # A step that weighs nothing lets nothing through: before it, the window might as well end there.
    fields = {name: getattr(data, name)[:12, :1] for name in Rollout.__dataclass_fields__ if name != "last_value"}
    short = Rollout(**fields, last_value=data.values[12, :1])
    _, until = torchrl_vtrace(short, {name: x[:12, :1] for name, x in policies.items()})
    agree(until, mine.vs[:12, :1], "vtrace.vs before it")
    np.testing.assert_array_equal(mine.vs[12, 0], data.values[12, 0])


def test_torchrl_rounds_gamma_to_float32(agree: Agree, apart: Apart) -> None:
    """γ times an integer mask is float32 under torch's default dtype, whatever the dtype of the data."""
    data = drawn(19, 60, 3, "float64")
    advantages, _ = torchrl("generalized_advantage_estimate", data, gamma=0.99, lmbda=1.0)
    exact = ours("gae", data.inputs(), gamma=0.99, lam=1.0).advantages
    apart("torchrl", "γ is rounded to float32 in float64 data too", advantages - exact)
    rounded = ours("gae", data.inputs(), gamma=float(np.float32(0.99)), lam=1.0).advantages
    agree(advantages, rounded, "gae.advantages at float32(γ)")


def test_torchrl_vectorized_gae_forgets_distant_steps(apart: Apart) -> None:
    """Weights below 1e-7 are dropped, whatever they weigh: its loop and rlscan keep them."""
    data = drawn(10, 500, 1, "float64", done=0.0)
    data.rewards[400] = 1e12
    far = 400 - np.arange(500)[:, None]
    exact, _ = torchrl("generalized_advantage_estimate", data, gamma=GAMMA, lmbda=LAM)
    quick, _ = torchrl("vec_generalized_advantage_estimate", data, gamma=GAMMA, lmbda=LAM)
    mine = ours("gae", data.inputs(), lam=LAM).advantages
    np.testing.assert_allclose(mine, exact, rtol=1e-9, atol=1e-9)
    reach = int(np.log(1e-7) / np.log(GAMMA * LAM))
    lost = np.where(far >= reach, 1e12 * (GAMMA * LAM) ** np.maximum(far, 0.0), 0)
    np.testing.assert_allclose(mine - quick, lost, rtol=1e-3, atol=1.0)
    apart("torchrl", "Weights below about 1e-7 are dropped", (mine - quick) / 1e12)


# --- tianshou: one environment's steps in a replay buffer, V of the true next state, in float64 inside


def tianshou_buffer(data: Rollout, b: int) -> Any:
    """A replay buffer that holds environment b's steps, and those steps as a batch."""
    library, T = peer("tianshou.data"), len(data.rewards)
    buffer = library.ReplayBuffer(size=T)
    for t in range(T):
        step = {"obs": 0, "act": 0, "obs_next": 0, "rew": float(data.rewards[t, b])}
        flags = {"terminated": bool(data.terminated[t, b]), "truncated": bool(data.truncated[t, b])}
        buffer.add(library.Batch(**step, **flags, info={}))
    indices = np.arange(T)
    return buffer, buffer[indices], indices


def tianshou_algorithm() -> Any:
    return peer("tianshou.algorithm.algorithm_base").Algorithm


def tianshou_episodic(data: Rollout, lam: float = LAM, with_values: bool = True) -> tuple[Array, Array]:
    """(returns, advantages) [T, B]."""
    columns = []
    for b in range(data.rewards.shape[1]):
        buffer, batch, indices = tianshou_buffer(data, b)
        # It takes torch tensors or arrays, and does not write to them.
        v_s = data.values[:, b].copy() if with_values else None
        v_s_ = data.next_values[:, b].copy()
        columns.append(
            tianshou_algorithm().compute_episodic_return(batch, buffer, indices, v_s_, v_s, gamma=GAMMA, gae_lambda=lam)
        )
    returns, advantages = zip(*columns, strict=True)
    return np.stack(returns, axis=1), np.stack(advantages, axis=1)


def test_tianshou_episodic_return_is_gae(data: Rollout, agree: Agree) -> None:
    returns, advantages = tianshou_episodic(data)
    gae = ours("gae", data.inputs(), lam=LAM)
    agree(advantages, gae.advantages, "gae.advantages")
    agree(returns, gae.returns, "gae.returns")
    agree(returns, ours("td_lambda", data.inputs(), lam=LAM).returns, "td_lambda.returns")


def test_tianshou_without_values_takes_those_of_the_episode_before(agree: Agree, apart: Apart) -> None:
    """Without v_s it rolls v_s_ by one step: an episode's first value is then the one after the episode before."""
    data = drawn(11, 80, 3, "float64")
    returns, advantages = tianshou_episodic(data, with_values=False)
    gae = ours("gae", data.inputs(), lam=LAM)
    first = np.concatenate([np.ones((1, 3), bool), data.done[:-1]])
    differs(advantages, gae.advantages, first)
    rolled = np.roll(np.where(data.terminated, 0, data.next_values), 1, axis=0)
    np.testing.assert_allclose((gae.advantages - advantages)[first], (rolled - data.values)[first], atol=1e-12)
    apart("tianshou", "reads a value of the episode before", gae.advantages - advantages)
    # The wrong value cancels in the returns.
    agree(returns, gae.returns, "gae.returns")


def test_tianshou_nstep_over_the_window_is_discounted_returns(data: Rollout, agree: Agree) -> None:
    T, B = data.rewards.shape
    columns = []
    for b in range(B):
        buffer, batch, indices = tianshou_buffer(data, b)
        after = torch.from_numpy(data.next_values[:, b].astype(np.float64))
        found = tianshou_algorithm().compute_nstep_return(
            batch, buffer, indices, lambda _, at, after=after: after[at], gamma=GAMMA, n_step=T
        )
        columns.append(found.returns.numpy()[:, 0])
    mine = ours("discounted_returns", data.inputs("rewards", "terminated", "truncated", "final_values", "last_value"))
    agree(np.stack(columns, axis=1), mine.returns, "discounted_returns.returns")


def test_tianshou_return_to_go_is_discounted_returns_of_one_episode(dtype: str, agree: Agree) -> None:
    data = drawn(12, 90, 1, dtype, done=0.0)
    bare = replace(data, last_value=np.zeros_like(data.last_value)).inputs("rewards", "terminated", "last_value")
    theirs = peer("tianshou.algorithm.algorithm_base").episode_mc_return_to_go(data.rewards[:, 0], GAMMA)
    agree(theirs, ours("discounted_returns", bare).returns[:, 0], "discounted_returns.returns")


# --- rlax: [T] and vmap, a discount for each step instead of flags


def rlax(name: str, *columns: Any, dtype: str, **params: Any) -> Any:
    """An rlax function over the environments of [T, B] arguments (or [B] and [T, B, A] ones), in the data's dtype."""
    function, jax = getattr(peer("rlax"), name), importlib.import_module("jax")
    axes = tuple(0 if x.ndim == 1 else 1 for x in columns)
    with jax.enable_x64(dtype == "float64"):
        found = jax.vmap(lambda *args: function(*args, **params), in_axes=axes, out_axes=-1)(*columns)
        return jax.tree.map(np.asarray, found)


def rlax_gae(data: Rollout, rewards: Array, discounts: Array | None = None, last: Array | None = None) -> Array:
    rows = np.concatenate([data.values, (data.last_value if last is None else last)[None]])
    lam = np.full_like(data.rewards, LAM)
    discounts = data.discounts if discounts is None else discounts
    name = "truncated_generalized_advantage_estimation"
    return rlax(name, rewards, discounts, lam, rows, dtype=str(rows.dtype))


def test_rlax_gae_with_patched_rewards_is_gae(data: Rollout, agree: Agree) -> None:
    agree(rlax_gae(data, data.patched_rewards), ours("gae", data.inputs(), lam=LAM).advantages, "gae.advantages")


def test_rlax_gae_has_no_truncation_of_its_own(agree: Agree, apart: Apart) -> None:
    """A truncation told as γ = 0 is a termination; told as γ > 0, the step reads the next episode and its advantage."""
    data = drawn(13, 40, 3, "float64")
    ended = replace(data, terminated=data.done).inputs("rewards", "values", "terminated", "last_value")
    agree(rlax_gae(data, data.rewards), ours("gae", ended, lam=LAM).advantages, "every end terminates")
    through = rlax_gae(data, data.rewards, np.where(data.terminated, 0, GAMMA))
    names = ("rewards", "values", "terminated", "last_value")
    agree(through, ours("gae", data.inputs(*names), lam=LAM).advantages, "no end truncates")
    true = ours("gae", data.inputs(), lam=LAM).advantages
    assert (np.abs(through - true)[data.cut] > 1e-3).all()
    apart("rlax", "with γ kept there it reads the next episode", through - true)


@pytest.mark.parametrize("lam", [0.0, LAM, 1.0])
def test_rlax_lambda_returns_are_td_lambda(data: Rollout, lam: float, agree: Agree) -> None:
    """λ = 0 at a truncated step: r + γ V(final state), which is a truncation in full."""
    discounts = np.where(data.terminated, 0, GAMMA).astype(data.rewards.dtype)
    lams = np.where(data.done, 0, lam).astype(data.rewards.dtype)
    theirs = rlax("lambda_returns", data.rewards, discounts, data.next_values, lams, dtype=str(data.rewards.dtype))
    agree(theirs, ours("td_lambda", data.inputs(), lam=lam).returns, "td_lambda.returns")


def test_rlax_discounted_returns_are_discounted_returns(data: Rollout, agree: Agree) -> None:
    dtype = str(data.rewards.dtype)
    theirs = rlax("discounted_returns", data.patched_rewards, data.discounts, data.last_value, dtype=dtype)
    mine = ours("discounted_returns", data.inputs("rewards", "terminated", "truncated", "final_values", "last_value"))
    agree(theirs, mine.returns, "discounted_returns.returns")


def test_rlax_discounted_returns_multiply_values_for_each_step_by_0(data: Rollout, agree: Agree) -> None:
    """Of values for each step the last alone counts, as long as all are finite."""
    dtype = str(data.rewards.dtype)
    every = np.full_like(data.values, 1e3)
    every[-1] = data.last_value
    mine = ours("discounted_returns", data.inputs("rewards", "terminated", "truncated", "final_values", "last_value"))
    theirs = rlax("discounted_returns", data.patched_rewards, data.discounts, every, dtype=dtype)
    agree(theirs, mine.returns, "discounted_returns.returns")
    every[:-1] = np.nan
    theirs = rlax("discounted_returns", data.patched_rewards, data.discounts, every, dtype=dtype)
    assert np.isnan(theirs[:-1]).all()
    np.testing.assert_array_equal(np.isnan(theirs[-1]), False)


def rlax_vtrace(data: Rollout, policies: dict[str, torch.Tensor], lam: float, **params: Any) -> Any:
    """Truncations as lambda_returns takes them: V of the final state in v_t, and λ = 0 there."""
    discounts = np.where(data.terminated, 0, GAMMA).astype(data.rewards.dtype)
    lams = np.where(data.done, 0, lam).astype(data.rewards.dtype)
    w = (policies["target_log_probs"] - policies["behavior_log_probs"]).exp().numpy()
    columns = (data.values, data.next_values, data.rewards, discounts, w, lams)
    return rlax("vtrace_td_error_and_advantage", *columns, dtype=str(data.rewards.dtype), **params)


@pytest.mark.parametrize("lam", [LAM, 1.0])
def test_rlax_vtrace_targets_are_vtrace(data: Rollout, lam: float, agree: Agree) -> None:
    policies = off_policy(data)
    found = rlax_vtrace(data, policies, lam, clip_rho_threshold=1.3)
    mine = ours("vtrace", {**data.inputs(), **policies}, lam=lam, rho_bar=1.3)
    agree(found.errors + data.values, mine.vs, "vtrace.vs")


def uncut(data: Rollout) -> Rollout:
    """The same with no truncation."""
    return replace(data, truncated=np.zeros_like(data.truncated))


def test_rlax_vtrace_advantages_without_truncations_at_lambda_1_are_vtrace(data: Rollout, agree: Agree) -> None:
    data, policies = uncut(data), off_policy(data)
    found = rlax_vtrace(data, policies, 1.0, clip_rho_threshold=1.3, clip_pg_rho_threshold=1.7)
    mine = ours("vtrace", {**data.inputs(), **policies}, rho_bar=1.3, pg_rho_bar=1.7)
    agree(found.pg_advantage, mine.pg_advantages, "vtrace.pg_advantages")


def test_rlax_vtrace_advantage_reads_the_next_episode_across_a_truncation(apart: Apart) -> None:
    """Its bootstrap is V of the next row, which is another episode's first state, not V of the final state in v_t."""
    data = drawn(14, 60, 3, "float64")
    data.truncated[-1] = False
    policies = off_policy(data)
    found = rlax_vtrace(data, policies, 1.0)
    mine = ours("vtrace", {**data.inputs(), **policies})
    differs(found.pg_advantage, mine.pg_advantages, data.cut)
    w = (policies["target_log_probs"] - policies["behavior_log_probs"]).exp().numpy()
    following = np.concatenate([data.values[1:], data.last_value[None]])
    leak = np.minimum(w, 1) * GAMMA * (following - data.final_values)
    np.testing.assert_allclose((found.pg_advantage - mine.pg_advantages)[data.cut], leak[data.cut], atol=1e-12)
    apart("rlax", "reads the next episode across a truncation", found.pg_advantage - mine.pg_advantages)


def test_rlax_vtrace_advantage_mixes_by_lambda(apart: Apart) -> None:
    """Its bootstrap is λ vs[t+1] + (1 − λ) V(s_{t+1}); the paper's, and rlscan's, is vs[t+1]."""
    data = uncut(drawn(15, 60, 3, "float64"))
    policies = off_policy(data)
    found = rlax_vtrace(data, policies, LAM)
    mine = ours("vtrace", {**data.inputs(), **policies}, lam=LAM)
    w = (policies["target_log_probs"] - policies["behavior_log_probs"]).exp().numpy()
    pull = np.zeros_like(data.values)
    pull[:-1] = (1 - LAM) * (data.values - mine.vs)[1:]
    gap = np.where(data.done, 0, GAMMA * np.minimum(w, 1) * pull)
    np.testing.assert_allclose(found.pg_advantage - mine.pg_advantages, gap, atol=1e-12)
    apart("rlax", "mixes V in at λ < 1", gap)


def test_rlax_vtrace_clips_traces_at_1(agree: Agree, apart: Apart) -> None:
    """c̄ is no argument of it: another one here is another estimate."""
    data, policies = uncut(drawn(16, 40, 2, "float64")), off_policy(drawn(16, 40, 2, "float64"))
    vs = rlax_vtrace(data, policies, 1.0).errors + data.values
    agree(vs, ours("vtrace", {**data.inputs(), **policies}, c_bar=1.0).vs, "vtrace.vs at c_bar = 1")
    apart("rlax", "c̄ is always 1", vs - ours("vtrace", {**data.inputs(), **policies}, c_bar=0.5).vs)


def action_values(data: Rollout, A: int) -> dict[str, Array]:
    """Q, π, μ and actions of T + 1 states; the recorded values are taken for V's scale."""
    rng, (T, B), dtype = np.random.default_rng(A), data.rewards.shape, data.rewards.dtype
    probs = rng.uniform(0.05, 1, (T + 1, B, A))
    return {
        "q": (rng.normal(size=(T + 1, B, A)) + np.concatenate([data.values, data.last_value[None]])[..., None]).astype(
            dtype
        ),
        "pi": (probs / probs.sum(axis=-1, keepdims=True)).astype(dtype),
        "mu": rng.uniform(0.1, 1, (T + 1, B)).astype(dtype),
        "a": rng.integers(0, A, (T + 1, B)),
    }


def retrace_inputs(data: Rollout, x: dict[str, Array]) -> dict[str, torch.Tensor]:
    mine = {
        "q_values": x["q"][:-1],
        "target_probs": x["pi"][:-1],
        "behavior_probs": x["mu"][:-1],
        "actions": x["a"][:-1],
        "last_q_values": x["q"][-1],
        "last_target_probs": x["pi"][-1],
    }
    names = ("rewards", "terminated", "truncated", "final_values")
    return {**{name: torch.from_numpy(np.ascontiguousarray(v)) for name, v in mine.items()}, **data.inputs(*names)}


@pytest.mark.parametrize("A", [1, 2, 7])
@pytest.mark.parametrize("lam", [0.0, LAM, 1.0])
def test_rlax_retrace_with_patched_rewards_is_retrace(data: Rollout, A: int, lam: float, agree: Agree) -> None:
    dtype, x = str(data.rewards.dtype), action_values(data, A)
    columns = (
        x["q"][:-1],
        x["q"][1:],
        x["a"][:-1],
        x["a"][1:],
        data.patched_rewards,
        data.discounts,
        x["pi"][1:],
        x["mu"][1:],
    )
    errors = rlax("retrace", *columns, dtype=dtype, lambda_=lam, eps=0.0)
    taken = np.take_along_axis(x["q"][:-1], x["a"][:-1, :, None], axis=-1)[..., 0]
    mine = ours("retrace", retrace_inputs(data, x), lam=lam)
    agree(errors + taken, mine.targets, "retrace.targets")


@pytest.mark.parametrize("c_bar", [0.5, 1.0, float("inf")])
def test_rlax_off_policy_returns_are_retrace(data: Rollout, c_bar: float, agree: Agree) -> None:
    """c is the caller's there: λ min(c̄, w) is retrace at any c̄, ∞ being importance sampling."""
    dtype, x = str(data.rewards.dtype), action_values(data, 3)
    w = np.take_along_axis(x["pi"], x["a"][..., None], axis=-1)[..., 0] / x["mu"]
    c = (LAM * np.minimum(c_bar, w)).astype(dtype)
    columns = (x["q"][1:], x["a"][1:], data.patched_rewards, data.discounts, c[1:], x["pi"][1:])
    theirs = rlax("general_off_policy_returns_from_action_values", *columns, dtype=dtype)
    mine = ours("retrace", retrace_inputs(data, x), lam=LAM, c_bar=c_bar)
    agree(theirs, mine.targets, "retrace.targets")


def test_rlax_retrace_adds_to_mu(apart: Apart) -> None:
    """Its ratio is π / (μ + 1e-8) by default: half the trace of an action with π = μ = 1e-8."""
    data = drawn(17, 2, 1, "float64", done=0.0)
    x = action_values(data, 2)
    x["a"][:] = 0
    x["pi"][...] = [1e-8, 1 - 1e-8]
    x["mu"][:] = 1e-8
    columns = (x["q"][:-1], x["q"][1:], x["a"][:-1], x["a"][1:], data.rewards, data.discounts, x["pi"][1:], x["mu"][1:])
    errors = rlax("retrace", *columns, dtype="float64", lambda_=1.0)
    mine = ours("retrace", retrace_inputs(data, x)).targets - x["q"][:-1, :, 0]
    np.testing.assert_allclose(errors[1], mine[1], atol=1e-12)
    np.testing.assert_allclose(errors[0] - mine[0], -0.5 * GAMMA * mine[1], rtol=1e-6)
    apart("rlax", "The ratio is π / (μ + 1e-8)", errors - mine)


# --- NaN: a value that does not count is multiplied by 0 by each of them, and reaches every step of the episode


def nan_peers() -> dict[str, Callable[[Rollout], Array]]:
    return {
        "stable_baselines3": lambda data: sb3_gae(data, data.rewards).advantages,
        "torchrl": lambda data: torchrl("generalized_advantage_estimate", data, gamma=GAMMA, lmbda=LAM)[0],
        "tianshou": lambda data: tianshou_episodic(data)[1],
        "rlax": lambda data: rlax_gae(data, data.rewards),
    }


@pytest.mark.parametrize("name", list(nan_peers()))
def test_a_value_after_a_termination_reaches_the_results_of(name: str) -> None:
    """V after a terminal state is nobody's to read: NaN times 0 is NaN there, and a select here."""
    data = uncut(drawn(18, 12, 2, "float32", done=0.0))
    data.terminated[-1] = True
    clean = ours("gae", data.inputs(), lam=LAM).advantages
    np.testing.assert_allclose(nan_peers()[name](data), clean, atol=1e-4)
    data.last_value[0] = np.nan
    theirs = nan_peers()[name](data)
    assert np.isnan(theirs[:, 0]).all()
    assert np.isfinite(theirs[:, 1]).all()
    np.testing.assert_array_equal(ours("gae", data.inputs(), lam=LAM).advantages, clean)


# --- verl and trl: [B, T] tokens of one response a row, a mask instead of flags


def verl_gae(rewards: Array, values: Array, mask: Array) -> Any:
    """(whitened advantages, returns)"""
    algos = peer("verl.trainer.ppo.core_algos")
    rows = [torch.from_numpy(np.array(x)) for x in (rewards, values, mask.astype(rewards.dtype))]
    return algos.compute_gae_advantage_return(*rows, gamma=GAMMA, lam=LAM)


def trl_gae(rewards: Array, values: Array, mask: Array) -> Any:
    """(whitened advantages, returns), from the method of its PPO trainer."""
    trainer = getattr(peer("trl"), "PPOTrainer", None)
    if not hasattr(trainer, "compute_advantages"):
        pytest.skip("this release of trl has no PPOTrainer.compute_advantages")
    settings = SimpleNamespace(config=SimpleNamespace(gamma=GAMMA, lam=LAM, whiten_rewards=False))
    rows = [torch.from_numpy(np.array(x)) for x in (values, rewards, mask.astype(rewards.dtype))]
    masked, advantages, returns = trainer.compute_advantages(settings, *rows)
    np.testing.assert_array_equal(masked.numpy(), values * mask)
    return advantages, returns


TOKENS = {"verl": verl_gae, "trl": trl_gae}


def responses(dtype: str, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Rewards, values, a right-padding mask and the flags of the last tokens, [B, T]."""
    rng, B, T = np.random.default_rng(seed), 6, 50
    lengths = rng.integers(1, T + 1, B)
    lengths[0] = T
    step = np.arange(T)
    rewards, values = (rng.normal(size=(B, T)).astype(dtype) for _ in range(2))
    return rewards, values, step < lengths[:, None], step == lengths[:, None] - 1


def tokens(name: str, rows: dict[str, Array], last_value: float = 0.0, **params: Any) -> Any:
    """Ours, of [B, T] arrays."""
    inputs = {key: torch.from_numpy(np.ascontiguousarray(x)) for key, x in rows.items()}
    last = torch.full((len(rows["rewards"]),), last_value, dtype=inputs["rewards"].dtype)
    return ours(name, {**inputs, "last_value": last}, layout="bt", **params)


@pytest.mark.parametrize("library", list(TOKENS))
def test_gae_of_padded_responses_is_gae(library: str, dtype: str, agree: Agree) -> None:
    rewards, values, mask, last = responses(dtype)
    whitened, returns = (x.numpy() for x in TOKENS[library](rewards, values, mask))
    gae = tokens("gae", {"rewards": rewards, "values": values, "terminated": last}, lam=LAM)
    agree(returns[mask], gae.returns[mask], "gae.returns")
    # Each has its own 1e-8 in mean and variance, which whitening once more takes out.
    theirs, mine = ((x - x.mean()) / x.std() for x in (whitened[mask], gae.advantages[mask]))
    agree(theirs, mine, "gae.advantages, whitened")


@pytest.mark.parametrize("library", list(TOKENS))
def test_a_response_that_was_cut_off_has_no_bootstrap_in(library: str, dtype: str, agree: Agree, apart: Apart) -> None:
    """It is taken for one that ended: rlscan with last_value = 0."""
    rewards, values, _, _ = responses(dtype)
    rows = {"rewards": rewards, "values": values, "terminated": np.zeros(rewards.shape, bool)}
    returns = TOKENS[library](rewards, values, np.ones_like(rewards, bool))[1].numpy()
    agree(returns, tokens("gae", rows, lam=LAM).returns, "gae.returns, last_value = 0")
    gap = tokens("gae", rows, last_value=1.0, lam=LAM).returns - returns
    np.testing.assert_allclose(gap[:, -1], GAMMA, atol=1e-5)
    apart(library, "has no bootstrap", gap)


@pytest.mark.parametrize("library", list(TOKENS))
def test_a_value_in_the_padding_reaches_the_results_of(library: str) -> None:
    rewards, values, mask, last = responses("float64")
    assert not mask.all()
    values[~mask] = np.nan
    _, returns = TOKENS[library](rewards, values, mask)
    padded = ~mask.all(axis=1)
    assert np.isnan(returns.numpy()[padded]).all()
    gae = tokens("gae", {"rewards": rewards, "values": values, "terminated": last}, lam=LAM)
    assert np.isfinite(gae.returns[mask]).all()


def holes() -> tuple[Array, Array, Array, Array]:
    """Rewards, values, a mask with zeros inside the responses, and the returns of GAE of the tokens without those."""
    rewards, values, _, _ = responses("float64")
    mask = np.random.default_rng(1).random(rewards.shape) < 0.6
    kept = np.full_like(rewards, np.nan)
    for b, row in enumerate(mask):
        rows = {"rewards": rewards[b, row][None], "values": values[b, row][None]}
        kept[b, row] = tokens("gae", {**rows, "terminated": np.zeros((1, row.sum()), bool)}, lam=LAM).returns[0]
    return rewards, values, mask, kept


def test_verl_passes_through_masked_tokens(agree: Agree) -> None:
    """A masked token inside a response is no end and no step."""
    rewards, values, mask, kept = holes()
    returns = verl_gae(rewards, values, mask)[1].numpy()
    agree(returns[mask], kept[mask], "gae.returns of the kept tokens")


def test_trl_goes_over_masked_tokens(agree: Agree, apart: Apart) -> None:
    """A masked token inside a response is a step with reward 0 and value 0, where verl leaves it out."""
    rewards, values, mask, kept = holes()
    returns = trl_gae(rewards, values, mask)[1].numpy()
    zeroed = {"rewards": rewards * mask, "values": values * mask, "terminated": np.zeros(mask.shape, bool)}
    agree(returns, tokens("gae", zeroed, lam=LAM).returns, "gae.returns of zeroed tokens")
    apart("trl", "is a step of reward and value 0", (returns - kept)[mask])


def test_verl_reinforce_plus_plus_is_discounted_returns(dtype: str, agree: Agree) -> None:
    rewards, _, mask, last = responses(dtype)
    algos = peer("verl.trainer.ppo.core_algos")
    rows = torch.from_numpy(rewards), torch.from_numpy(mask.astype(dtype))
    _, returns = algos.compute_reinforce_plus_plus_outcome_advantage(*rows, config=SimpleNamespace(gamma=GAMMA))
    mine = tokens("discounted_returns", {"rewards": rewards, "terminated": last}).returns
    agree(returns.numpy()[mask], mine[mask], "discounted_returns.returns")
