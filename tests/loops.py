"""The seven estimators as plain float64 loops over environments and steps: what specs and compiler must agree with.

Written from what the estimators mean, not from their specs. Arrays are batch first; a param is one number, [B] or
[B, T]. A value that does not count is never touched: every choice is an `if`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Loop = Callable[..., dict[str, Array]]


def gae(
    rewards: Array,
    values: Array,
    terminated: Array,
    last_value: Array,
    truncated: Array | None = None,
    final_values: Any = None,
    gamma: Any = 0.99,
    lam: Any = 0.95,
) -> dict[str, Array]:
    B, T = rewards.shape
    gamma, lam = each(gamma, B, T), each(lam, B, T)
    advantages = np.zeros((B, T))
    for b in range(B):
        following = 0.0
        for t in reversed(range(T)):
            if done(b, t, terminated, truncated):
                following = 0.0
            after = value_after(b, t, values[b], terminated, truncated, final_values, last_value[b])
            delta = rewards[b, t] + gamma[b, t] * after - values[b, t]
            following = delta + gamma[b, t] * lam[b, t] * following
            advantages[b, t] = following
    return {"advantages": advantages, "returns": advantages + values}


def td_lambda(
    rewards: Array,
    values: Array,
    terminated: Array,
    last_value: Array,
    truncated: Array | None = None,
    final_values: Any = None,
    gamma: Any = 0.99,
    lam: Any = 0.95,
) -> dict[str, Array]:
    B, T = rewards.shape
    gamma, lam = each(gamma, B, T), each(lam, B, T)
    returns = np.zeros((B, T))
    for b in range(B):
        following = last_value[b]
        for t in reversed(range(T)):
            if terminated[b, t]:
                target = 0.0
            elif done(b, t, terminated, truncated):
                target = final_values[b, t]
            else:
                after = value_after(b, t, values[b], terminated, truncated, final_values, last_value[b])
                target = (1 - lam[b, t]) * after + lam[b, t] * following
            following = rewards[b, t] + gamma[b, t] * target
            returns[b, t] = following
    return {"returns": returns}


def discounted_returns(
    rewards: Array,
    terminated: Array,
    last_value: Array,
    truncated: Array | None = None,
    final_values: Any = None,
    gamma: Any = 0.99,
) -> dict[str, Array]:
    B, T = rewards.shape
    gamma = each(gamma, B, T)
    returns = np.zeros((B, T))
    for b in range(B):
        following = last_value[b]
        for t in reversed(range(T)):
            if terminated[b, t]:
                following = 0.0
            elif done(b, t, terminated, truncated):
                following = final_values[b, t]
            following = rewards[b, t] + gamma[b, t] * following
            returns[b, t] = following
    return {"returns": returns}


def vtrace(
    target_log_probs: Array,
    behavior_log_probs: Array,
    rewards: Array,
    values: Array,
    terminated: Array,
    last_value: Array,
    truncated: Array | None = None,
    final_values: Any = None,
    gamma: Any = 0.99,
    lam: Any = 1.0,
    rho_bar: Any = 1.0,
    c_bar: Any = 1.0,
    pg_rho_bar: Any = 1.0,
) -> dict[str, Array]:
    B, T = rewards.shape
    gamma, lam = each(gamma, B, T), each(lam, B, T)
    rho_bar, c_bar, pg_rho_bar = (each(bar, B, T) for bar in (rho_bar, c_bar, pg_rho_bar))
    vs, pg_advantages = np.zeros((B, T)), np.zeros((B, T))
    for b in range(B):
        correction = 0.0
        for t in reversed(range(T)):
            ratio = likelihood_ratio(target_log_probs[b, t], behavior_log_probs[b, t])
            after = value_after(b, t, values[b], terminated, truncated, final_values, last_value[b])
            delta = min(rho_bar[b, t], ratio) * (rewards[b, t] + gamma[b, t] * after - values[b, t])
            if done(b, t, terminated, truncated):
                correction = delta
            else:
                correction = delta + gamma[b, t] * lam[b, t] * min(c_bar[b, t], ratio) * correction
            vs[b, t] = values[b, t] + correction
            after = value_after(b, t, vs[b], terminated, truncated, final_values, last_value[b])
            error = rewards[b, t] + gamma[b, t] * after - values[b, t]
            pg_advantages[b, t] = min(pg_rho_bar[b, t], ratio) * error
    return {"vs": vs, "pg_advantages": pg_advantages}


def retrace(
    q_values: Array,
    target_probs: Array,
    behavior_probs: Array,
    actions: Array,
    rewards: Array,
    terminated: Array,
    last_q_values: Array,
    last_target_probs: Array,
    truncated: Array | None = None,
    final_values: Any = None,
    gamma: Any = 0.99,
    lam: Any = 1.0,
    c_bar: Any = 1.0,
    rho_bar: Any = 1.0,
) -> dict[str, Array]:
    B, T, A = q_values.shape
    gamma, lam = each(gamma, B, T), each(lam, B, T)
    c_bar, rho_bar = each(c_bar, B, T), each(rho_bar, B, T)
    targets, advantages = np.zeros((B, T)), np.zeros((B, T))
    for b in range(B):
        expected = np.array([sum(float(target_probs[b, t, k]) * q_values[b, t, k] for k in range(A)) for t in range(T)])
        last = sum(float(last_target_probs[b, k]) * last_q_values[b, k] for k in range(A))
        correction = trace_after = 0.0
        for t in reversed(range(T)):
            if done(b, t, terminated, truncated):
                correction = trace_after = 0.0
            chosen = actions[b, t]
            ratio = target_probs[b, t, chosen] / behavior_probs[b, t]
            after = value_after(b, t, expected, terminated, truncated, final_values, last)
            delta = rewards[b, t] + gamma[b, t] * after - q_values[b, t, chosen]
            correction = delta + gamma[b, t] * trace_after * correction
            trace_after = lam[b, t] * min(c_bar[b, t], ratio)
            targets[b, t] = q_values[b, t, chosen] + correction
            after = value_after(b, t, targets[b], terminated, truncated, final_values, last)
            error = rewards[b, t] + gamma[b, t] * after - q_values[b, t, chosen]
            advantages[b, t] = min(rho_bar[b, t], ratio) * error
    return {"targets": targets, "advantages": advantages}


def eligibility_traces(
    features: Array,
    terminated: Array,
    truncated: Array | None = None,
    initial_trace: Array | float = 0.0,
    gamma: Any = 0.99,
    lam: Any = 0.95,
) -> dict[str, Array]:
    B, T = features.shape[:2]
    gamma, lam = each(gamma, B, T), each(lam, B, T)
    traces = np.zeros(features.shape)
    start = np.broadcast_to(initial_trace, (B, *features.shape[2:]))
    for b in range(B):
        trace = start[b]
        for t in range(T):
            if t > 0 and done(b, t - 1, terminated, truncated):
                trace = features[b, t]
            else:
                trace = features[b, t] + gamma[b, t] * lam[b, t] * trace
            traces[b, t] = trace
    return {"traces": traces}


def episodic_prefix_sum(
    x: Array,
    done: Array | None = None,
    start: Array | None = None,
    initial_sum: Array | float = 0,
) -> dict[str, Array]:
    B, T = x.shape[:2]
    exact = all(np.asarray(part).dtype.kind in "iu" for part in (x, initial_sum))
    sums = np.zeros(x.shape, np.int64 if exact else np.float64)
    before = np.broadcast_to(initial_sum, (B, *x.shape[2:]))
    for b in range(B):
        total = before[b]
        for t in range(T):
            ended = done is not None and t > 0 and done[b, t - 1]
            begins = start is not None and start[b, t]
            total = x[b, t] if ended or begins else x[b, t] + total
            sums[b, t] = total
    return {"sums": sums}


LOOPS: dict[str, Loop] = {
    "gae": gae,
    "td_lambda": td_lambda,
    "discounted_returns": discounted_returns,
    "vtrace": vtrace,
    "retrace": retrace,
    "eligibility_traces": eligibility_traces,
    "episodic_prefix_sum": episodic_prefix_sum,
}


def loop(name: str, inputs: dict[str, Array], params: dict[str, Any] | None = None) -> dict[str, Array]:
    """The loop of an estimator on batch-first inputs; floats are read as float64."""
    wide = {key: x.astype(np.float64) if np.asarray(x).dtype.kind == "f" else x for key, x in inputs.items()}
    with np.errstate(all="ignore"):
        return LOOPS[name](**wide, **(params or {}))


def done(b: int, t: int, terminated: Array, truncated: Array | None) -> bool:
    """Whether step t is its episode's last."""
    return bool(terminated[b, t]) or (truncated is not None and bool(truncated[b, t]))


def value_after(
    b: int,
    t: int,
    values: Array,
    terminated: Array,
    truncated: Array | None,
    final_values: Array | None,
    last: float,
) -> float:
    """The next state's value; `values` are environment b's, `last` is the one after them."""
    if terminated[b, t]:
        return 0.0
    if truncated is not None and truncated[b, t]:
        assert final_values is not None
        return float(final_values[b, t])
    return float(last if t == len(values) - 1 else values[t + 1])


def likelihood_ratio(target: float, behavior: float) -> float:
    """exp(target − behavior), ∞ where that overflows; 0 where the target never takes the action."""
    if target == -math.inf:
        return 0.0
    try:
        return math.exp(target - behavior)
    except OverflowError:
        return math.inf


def each(param: Any, B: int, T: int) -> Array:
    """A param's value for each environment and step."""
    value = np.asarray(param, dtype=np.float64)
    return np.broadcast_to(value[:, None] if value.ndim == 1 else value, (B, T))
