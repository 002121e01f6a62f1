"""`rlscan demo`: advantages of real rollouts, from the environment to a picture.

    δ[t] = r[t] + γ nv[t] − V(s[t]),   adv[t] = δ[t] + γ λ adv[t+1],   the carry dropped at each episode's end

CartPole under its time limit is played by a controller that is often distracted, so that some episodes end in a fall
(terminated) and some at the limit (truncated). A small value function is fitted to the returns, `gae` is computed with
the best backend that the machine has, checked against the float64 oracle and timed against the loop that people write
by hand.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from rlscan import entry, oracle

if TYPE_CHECKING:
    from torch import Tensor

    from rlscan.runtime import Estimator

GAMMA, LAM = 0.99, 0.95

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Rollouts:
    """What a collector hands to an estimator: arrays [T, B], `last_value` [B].

    terminated and truncated are set at the last step of an episode; the row after belongs to the next one.
    final_values is V of the true final observation where truncated and not terminated, and NaN elsewhere: nothing else
    there may count, and a result that read it would show.
    """

    rewards: Array
    values: Array
    terminated: Array
    truncated: Array
    final_values: Array
    last_value: Array

    def arrays(self) -> dict[str, Array]:
        """By name, as an estimator takes them."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Steps:
    """The raw record: observations [T + 1, B, 4], the last one after the window; final_observations [T, B, 4], those of
    the steps that ended an episode; the rest [T, B].
    """

    observations: Array
    final_observations: Array
    rewards: Array
    terminated: Array
    truncated: Array


def record(
    seed: int = 0, *, environments: int = 8, steps: int = 256, time_limit: int = 64, randomness: float = 0.65
) -> Rollouts:
    """Play CartPole and value every state; the same seed gives the same rollouts."""
    played = play(seed, environments, steps, time_limit, randomness)
    value = fit_value(played)
    cut = played.truncated & ~played.terminated
    final_values = np.where(cut, value(played.final_observations), np.nan)
    values = value(played.observations)
    return Rollouts(
        rewards=played.rewards.astype(np.float32),
        values=values[:-1].astype(np.float32),
        terminated=played.terminated,
        truncated=played.truncated,
        final_values=final_values.astype(np.float32),
        last_value=values[-1].astype(np.float32),
    )


def play(seed: int, environments: int, steps: int, time_limit: int, randomness: float) -> Steps:
    """CartPole under a controller whose action is random with probability `randomness`."""
    import gymnasium
    from gymnasium.vector import AutoresetMode

    # SAME_STEP: the observation after an episode's last step is the next episode's first, and the true final one is in
    # `infos`. In the other mode an idle step lies between episodes, which no estimator must see.
    games = gymnasium.make_vec(
        "CartPole-v1",
        num_envs=environments,
        vectorization_mode="sync",
        max_episode_steps=time_limit,
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
    )
    rng = np.random.default_rng(seed)
    observations = np.empty((steps + 1, environments, 4))
    final_observations = np.zeros((steps, environments, 4))
    rewards = np.empty((steps, environments))
    terminated = np.zeros((steps, environments), bool)
    truncated = np.zeros((steps, environments), bool)
    observations[0], _ = games.reset(seed=seed)
    for t in range(steps):
        # Push the cart under the falling pole.
        balanced = observations[t] @ (0.1, 0.3, 1.0, 0.8) > 0
        actions = np.where(rng.random(environments) < randomness, rng.integers(0, 2, environments), balanced)
        observations[t + 1], rewards[t], terminated[t], truncated[t], infos = games.step(actions)
        for b in np.flatnonzero(terminated[t] | truncated[t]):
            final_observations[t, b] = infos["final_obs"][b]
    games.close()
    return Steps(observations, final_observations, rewards, terminated, truncated)


def fit_value(steps: Steps, *, rounds: int = 30, ridge: float = 10.0) -> Callable[[Array], Array]:
    """V: a ridge regression of discounted returns on the monomials of the observation up to the second degree.

    A return that is cut short, by the time limit or by the window's end, goes on with V of the round before.
    """
    center, spread = steps.observations.mean(axis=(0, 1)), steps.observations.std(axis=(0, 1))

    def features(observations: Array) -> Array:
        x = np.clip((observations - center) / spread, -3, 3)
        degrees = (itertools.combinations_with_replacement(range(x.shape[-1]), degree) for degree in range(3))
        return np.stack([x[..., list(chosen)].prod(axis=-1) for chosen in itertools.chain(*degrees)], axis=-1)

    def value(features: Array, weights: Array) -> Array:
        # Every reward is 0 or 1. Without these bounds a value far from the data feeds on itself from round to round.
        bounded: Array = np.clip(features @ weights, 0, 1 / (1 - GAMMA))
        return bounded

    seen, final = features(steps.observations), features(steps.final_observations)
    x = seen[:-1].reshape(-1, seen.shape[-1])
    penalty = ridge * np.eye(x.shape[1])
    penalty[0, 0] = 0  # the constant goes free
    weights = np.zeros(x.shape[1])
    for _ in range(rounds):
        returns = _returns(steps, value(final, weights), value(seen[-1], weights))
        weights = np.linalg.solve(x.T @ x + penalty, x.T @ returns.ravel())
    return lambda observations: value(features(observations), weights)


def _returns(steps: Steps, final_values: Array, last_value: Array) -> Array:
    """G[t] = r[t] + γ G[t+1]; r[t] where terminated, r[t] + γ V(final) where truncated."""
    returns = np.empty_like(steps.rewards)
    following = last_value
    for t in reversed(range(len(returns))):
        following = np.where(steps.truncated[t], final_values[t], following)
        following = steps.rewards[t] + GAMMA * np.where(steps.terminated[t], 0, following)
        returns[t] = following
    return returns


def handwritten(
    rewards: Tensor, values: Tensor, terminated: Tensor, truncated: Tensor, final_values: Tensor, last_value: Tensor
) -> tuple[Tensor, Tensor]:
    """GAE as it is written by hand in torch: a loop over time, a dozen small operations a step."""
    import torch

    advantages = torch.empty_like(rewards)
    carry = torch.zeros_like(last_value)
    following = last_value
    for t in reversed(range(len(rewards))):
        following = torch.where(truncated[t], final_values[t], following)
        delta = rewards[t] + GAMMA * torch.where(terminated[t], 0.0, following) - values[t]
        carry = delta + GAMMA * LAM * torch.where(terminated[t] | truncated[t], 0.0, carry)
        advantages[t] = carry
        following = values[t]
    return advantages, advantages + values


class Episode(NamedTuple):
    """Steps first ≤ t < end of one environment."""

    environment: int
    first: int
    end: int


def episodes(rollouts: Rollouts) -> Iterator[Episode]:
    """Those that lie in the window from their first step to their last."""
    done = rollouts.terminated | rollouts.truncated
    for b in range(done.shape[1]):
        first = 0
        for last in map(int, np.flatnonzero(done[:, b])):
            yield Episode(b, first, last + 1)
            first = last + 1


def telling(rollouts: Rollouts) -> Episode:
    """The longest episode that ended in a fall alone; where there is none, the longest."""

    def rank(episode: Episode) -> tuple[bool, int]:
        last = episode.end - 1, episode.environment
        return bool(rollouts.terminated[last] and not rollouts.truncated[last]), episode.end - episode.first

    return max(episodes(rollouts), key=rank)


class Timing(NamedTuple):
    """Median seconds of one call on T steps of B environments."""

    steps: int
    environments: int
    rlscan: float
    loop: float


@dataclass(frozen=True, slots=True)
class Findings:
    """What the demo found. Errors are the largest |result − float64 oracle|."""

    device: str
    error: float
    loop_error: float
    allowed: float
    timings: tuple[Timing, ...]
    picture: Path

    @property
    def agrees(self) -> bool:
        return self.error <= self.allowed


def run(picture: Path, seed: int = 0, console: Console | None = None, *, many: int = 4096) -> Findings:
    """The whole demo: record, compute, check, time, print and draw.

    picture: the PNG to write. many: the number of environments of the second timing, the recorded ones over and over.
    """
    import torch

    console = console or Console()
    rollouts = record(seed)
    steps, environments = rollouts.rewards.shape
    falls, cuts = int(rollouts.terminated.sum()), int((rollouts.truncated & ~rollouts.terminated).sum())
    console.print(
        f"Recorded {steps} steps of {environments} CartPole environments: "
        f"{falls} episodes ended in a fall (terminated), {cuts} at the time limit (truncated).",
        highlight=False,
    )
    gae = entry.compile("gae", layout="tb")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tensors = {name: torch.from_numpy(x).to(device) for name, x in rollouts.arrays().items()}
    result = gae(**tensors, gamma=GAMMA, lam=LAM)
    advantages, returns = result.advantages.cpu().numpy(), result.returns.cpu().numpy()
    error, loop_error, allowed = _errors(gae, rollouts, (advantages, returns), handwritten(**tensors))
    wide = {name: x.repeat(*[1] * (x.ndim - 1), -(-many // environments)) for name, x in tensors.items()}
    timings = tuple(_timing(gae, inputs) for inputs in (tensors, wide))

    episode = telling(rollouts)
    console.print(_episode_table(rollouts, episode, advantages, returns))
    draw(picture, rollouts, episode, advantages)
    shown = torch.cuda.get_device_name() if device == "cuda" else f"the CPU ({torch.get_num_threads()} threads)"
    backend = "Triton" if device == "cuda" else "cpu"
    found = Findings(shown, error, loop_error, allowed, timings, picture)
    console.print(
        f"On {shown}, {backend} backend: largest error against the float64 oracle {error:.2g} "
        f"(the loop by hand: {loop_error:.2g}); {'they agree' if found.agrees else 'THEY DISAGREE'}.",
        highlight=False,
    )
    console.print(_timing_table(timings))
    console.print(f"Drawn: {picture}", highlight=False, soft_wrap=True)
    return found


def _errors(
    gae: Estimator, rollouts: Rollouts, got: Sequence[Array], loop: Sequence[Tensor]
) -> tuple[float, float, float]:
    """The error of rlscan, that of the loop, and what is allowed: twice the loop's and a few roundings."""
    exact = oracle.run(gae.spec, rollouts.arrays(), {"gamma": GAMMA, "lam": LAM}, layout="tb")
    wanted = [exact["advantages"], exact["returns"]]
    error = max(float(np.abs(x - y).max()) for x, y in zip(got, wanted, strict=True))
    loop_error = max(float(np.abs(x.cpu().numpy() - y).max()) for x, y in zip(loop, wanted, strict=True))
    scale = max(float(np.abs(y).max()) for y in wanted)
    # A NaN compares as false and so counts as a disagreement.
    return error, loop_error, 2 * loop_error + 8 * float(np.finfo(np.float32).eps) * scale


def _timing(gae: Estimator, inputs: Mapping[str, Tensor]) -> Timing:
    def ours() -> object:
        return gae(**inputs, gamma=GAMMA, lam=LAM)

    def loop() -> object:
        return handwritten(**inputs)

    steps, environments = inputs["rewards"].shape
    on_gpu = inputs["rewards"].is_cuda
    return Timing(steps, environments, median_time(ours, on_gpu), median_time(loop, on_gpu))


def median_time(call: Callable[[], object], on_gpu: bool, *, seconds: float = 0.3) -> float:
    """The median time of a call, the device's work included."""
    import torch

    def once() -> float:
        began = time.perf_counter()
        call()
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    once()
    times = [once() for _ in range(5)]
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        times.append(once())
    return statistics.median(times)


def _episode_table(rollouts: Rollouts, episode: Episode, advantages: Array, returns: Array) -> Table:
    b, first, end = episode
    table = Table(title=f"Environment {b}, steps {first} to {end - 1}: one episode", title_justify="left")
    for heading in ("t", "reward", "value", "terminated", "truncated", "advantage", "return"):
        table.add_column(heading, justify="right")
    rows = range(first, end)
    skipped = range(first + 5, end - 10)
    for t in rows:
        if t in skipped:
            if t == skipped[0]:
                table.add_row(*["…"] * 7)
            continue
        flags = ("yes" if x[t, b] else "" for x in (rollouts.terminated, rollouts.truncated))
        numbers = (f"{x[t, b]:.3f}" for x in (advantages, returns))
        table.add_row(str(t), f"{rollouts.rewards[t, b]:g}", f"{rollouts.values[t, b]:.3f}", *flags, *numbers)
    return table


def _timing_table(timings: Sequence[Timing]) -> Table:
    table = Table(title="Time of one call (median)", title_justify="left")
    for heading in ("steps × environments", "rlscan", "the loop by hand", "times faster"):
        table.add_column(heading, justify="right")
    for timing in timings:
        table.add_row(
            f"{timing.steps} × {timing.environments}",
            _duration(timing.rlscan),
            _duration(timing.loop),
            f"{timing.loop / timing.rlscan:.0f}×",
        )
    return table


def _duration(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


def draw(picture: Path, rollouts: Rollouts, episode: Episode, advantages: Array) -> None:
    """Reward, value and advantage along one episode, to a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    b, first, end = episode
    steps = np.arange(first, end)
    ending = "terminated (a fall)" if rollouts.terminated[end - 1, b] else "truncated (the time limit)"
    figure = Figure(figsize=(8, 6), layout="constrained")
    # A figure of its own, without pyplot: no window, no state that a notebook shares.
    FigureCanvasAgg(figure)
    figure.suptitle(f"CartPole, environment {b}: one episode of {end - first} steps, {ending}")
    panels = figure.subplots(3, sharex=True)
    curves = (
        ("reward", rollouts.rewards, "tab:green"),
        ("value", rollouts.values, "tab:blue"),
        ("advantage", advantages, "tab:red"),
    )
    for panel, (label, curve, color) in zip(panels, curves, strict=True):
        panel.axhline(0, color="0.8", linewidth=0.8)
        panel.axvline(end - 1, color="0.4", linewidth=1, linestyle="--")
        panel.plot(steps, curve[first:end, b], color=color, marker=".", markersize=4, linewidth=1.2)
        panel.set_ylabel(label)
        panel.grid(alpha=0.25)
    panels[-1].set_xlabel("step of the window")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.savefig(picture, dpi=130, format="png")
