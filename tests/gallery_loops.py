"""The gallery's estimators as plain float64 loops over the steps of one environment, written from what their papers say.

Nothing here follows a spec: where a paper has a sum, a maximum over horizons or complex numbers, so has the loop. A
function takes one environment's arrays, time first, and by keyword its params, one value for each step.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.loops import likelihood_ratio

Array = np.ndarray[Any, Any]


def loop(name: str, inputs: dict[str, Array], params: dict[str, Any] | None = None) -> dict[str, Array]:
    """The loop of an estimator on batch-first inputs; floats are read as float64. A param is one number, [B] or [B, T]."""
    wide = {key: x.astype(np.float64) if x.dtype.kind == "f" else x for key, x in inputs.items()}
    B, T = next(x for key, x in wide.items() if x.ndim > 1 and not key.startswith(("last_", "initial_"))).shape[:2]
    function = LOOPS[name]
    rows = []
    for b in range(B):
        given: dict[str, Any] = {key: x[b] for key, x in wide.items()}
        for param in inspect.signature(function).parameters.values():
            if param.kind is param.KEYWORD_ONLY:
                value = np.asarray((params or {}).get(param.name, param.default), np.float64)
                given[param.name] = np.broadcast_to(value[b] if value.ndim else value, (T,))
        with np.errstate(all="ignore"):
            rows.append(function(**given))
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}


def ends(t: int, terminated: Array, truncated: Array | None) -> bool:
    return bool(terminated[t]) or (truncated is not None and bool(truncated[t]))


def next_of(t: int, values: Any, last: Any, terminated: Any, truncated: Any = None, final_values: Any = None) -> float:
    """The value of the state that step t leads to."""
    if terminated[t]:
        return 0.0
    if truncated is not None and truncated[t]:
        return float(final_values[t])
    return float(last if t == len(values) - 1 else values[t + 1])


def lambda_return(
    rewards: Any, values: Any, last: Any, gamma: Any, lam: Any, terminated: Any, truncated: Any, final_values: Any
) -> Array:
    """G[t] = r[t] + γ ((1 − λ) V[t+1] + λ G[t+1])."""
    G = np.zeros(len(rewards))
    for t in reversed(range(len(rewards))):
        ahead = next_of(t, values, last, terminated, truncated, final_values)
        if not ends(t, terminated, truncated):
            later = last if t == len(rewards) - 1 else G[t + 1]
            ahead = (1 - lam[t]) * ahead + lam[t] * later
        G[t] = rewards[t] + gamma[t] * ahead
    return G


def summed(deltas: Any, decay: Any, terminated: Any, truncated: Any = None) -> Array:
    """Σ_k (Π_{i<k} decay[t+i]) δ[t+k], up to the episode's end."""
    T = len(deltas)
    out = np.zeros(T)
    for t in range(T):
        weight = 1.0
        for k in range(t, T):
            out[t] += weight * deltas[k]
            if ends(k, terminated, truncated):
                break
            weight *= decay[k]
            if weight == 0:
                break
    return out


def td_errors(rewards: Any, values: Any, last: Any, gamma: Any, *ending: Any) -> Array:
    return np.array(
        [rewards[t] + gamma[t] * next_of(t, values, last, *ending) - values[t] for t in range(len(rewards))]
    )


# -- returns --------------------------------------------------------------------------------------------------------


def n_step_returns(
    rewards, values, terminated, last_value, truncated=None, final_values=None, *, gamma=0.99
):  # fmt: skip
    T, n = len(rewards), 5
    returns = np.zeros(T)
    for t in range(T):
        weight, k = 1.0, t
        while True:
            returns[t] += weight * rewards[k]
            weight *= gamma[k]
            if ends(k, terminated, truncated) or k == T - 1 or k - t == n - 1:
                returns[t] += weight * next_of(k, values, last_value, terminated, truncated, final_values)
                break
            k += 1
    return {"returns": returns}


def nonlinear_bellman_returns(
    rewards, values, terminated, last_value, truncated=None, final_values=None, *, gamma=0.99, lam=0.95, eps=1e-3
):  # fmt: skip
    e = eps[0]

    def h(x: float) -> float:
        return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + e * x

    def inverse(y: float) -> float:
        if not math.isfinite(y):
            return y
        low, high = -abs(y) * 1e4 - 10, abs(y) * 1e4 + 10
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if h(middle) < y else (low, middle)
        return (low + high) / 2

    finals = None if final_values is None else [inverse(y) for y in final_values]
    plain, last = [inverse(y) for y in values], inverse(float(last_value))
    G = lambda_return(rewards, plain, last, gamma, lam, terminated, truncated, finals)
    return {"returns": np.array([h(g) for g in G])}


def dreamer_returns(
    rewards, values, continues, last_value, truncated=None, final_values=None, *, gamma=0.997, lam=0.95
):  # fmt: skip
    T = len(rewards)
    returns = np.zeros(T)
    for t in reversed(range(T)):
        returns[t] = rewards[t]
        if continues[t] == 0:
            continue
        if truncated is not None and truncated[t]:
            ahead = final_values[t]
        elif t == T - 1:
            ahead = last_value
        else:
            ahead = (1 - lam[t]) * values[t + 1] + lam[t] * returns[t + 1]
        returns[t] += gamma[t] * continues[t] * ahead
    return {"returns": returns}


def upgo(rewards, values, terminated, last_value, truncated=None, final_values=None, *, gamma=1.0):
    T = len(rewards)
    returns = np.zeros(T)
    for t in range(T):
        weight, k = 1.0, t
        while True:
            returns[t] += weight * rewards[k]
            weight *= gamma[k]
            ahead = next_of(k, values, last_value, terminated, truncated, final_values)
            if ends(k, terminated, truncated) or k == T - 1:
                break
            later = next_of(k + 1, values, last_value, terminated, truncated, final_values)
            if not rewards[k + 1] + gamma[k + 1] * later >= values[k + 1]:
                break
            k += 1
        returns[t] += weight * ahead
    return {"returns": returns, "advantages": returns - values}


def reinforce_plus_plus(rewards, mask=None, *, gamma=1.0):
    T = len(rewards)
    kept = [t for t in range(T) if mask is None or mask[t]]
    returns = np.zeros(T)
    for i, t in enumerate(kept):
        weight = 1.0
        for k in kept[i:]:
            returns[t] += weight * rewards[k]
            weight *= gamma[k]
    return {"returns": returns}


def horizons(t: int, terminated: Array) -> range:
    """The later steps that step t can stop after."""
    last = t
    while last < len(terminated) - 1 and not terminated[last]:
        last += 1
    return range(t, last + 1)


def discounted_best_return(rewards, terminated, *, gamma=0.99):
    best = np.zeros(len(rewards))
    for t in range(len(rewards)):
        weight, total, sums = 1.0, 0.0, []
        for k in horizons(t, terminated):
            total += weight * rewards[k]
            weight *= gamma[k]
            sums.append(total)
        best[t] = max(sums)
    return {"best": best}


def best_return_ahead(rewards, terminated):
    return discounted_best_return(rewards, terminated, gamma=np.ones(len(rewards)))


def max_reward_returns(rewards, terminated, last_value, *, gamma=0.99):
    T = len(rewards)
    returns = np.zeros(T)
    for t in range(T):
        weight, seen = 1.0, []
        for k in horizons(t, terminated):
            seen.append(weight * rewards[k])
            weight *= gamma[k]
        if not terminated[horizons(t, terminated)[-1]]:
            seen.append(weight * last_value)
        returns[t] = max(seen)
    return {"returns": returns}


def return_moments(rewards, terminated, last_value, last_second_moment, *, gamma=0.99):
    T = len(rewards)
    mean, second = np.zeros(T), np.zeros(T)
    for t in range(T):
        # The return is a number R and, where the window ends first, w times what is still to come.
        total, weight = 0.0, 1.0
        for k in horizons(t, terminated):
            total += weight * rewards[k]
            weight *= gamma[k]
        J, M = (0.0, 0.0) if terminated[horizons(t, terminated)[-1]] else (last_value, last_second_moment)
        mean[t] = total + weight * J
        second[t] = total**2 + 2 * total * weight * J + weight**2 * M
    return {"mean": mean, "second_moment": second, "variance": second - mean**2}


def return_variance(
    rewards, values, terminated, last_value, last_variance, truncated=None, final_values=None, *, gamma=0.99, lam=0.95
):  # fmt: skip
    T = len(rewards)
    squares = td_errors(rewards, values, last_value, gamma, terminated, truncated, final_values) ** 2
    variance = np.zeros(T)
    following = float(last_variance)
    for t in reversed(range(T)):
        if ends(t, terminated, truncated):
            following = 0.0
        following = squares[t] + (gamma[t] * lam[t]) ** 2 * following
        variance[t] = following
    return {"variance": variance}


# -- action values --------------------------------------------------------------------------------------------------


def chosen(table: Any, actions: Any) -> Array:
    return np.array([row[a] for row, a in zip(table, actions, strict=True)])


def expected(probs: Any, q: Any) -> Any:
    return (probs * q).sum(-1)


def peng_q_lambda(
    q_values, rewards, terminated, last_q_values, truncated=None, final_values=None, *, gamma=0.99, lam=0.95
):  # fmt: skip
    best = q_values.max(-1)
    last = last_q_values.max()
    return {"targets": lambda_return(rewards, best, last, gamma, lam, terminated, truncated, final_values)}


def watkins_q_lambda(
    q_values, actions, rewards, terminated, last_q_values, truncated=None, final_values=None, *, gamma=0.99, lam=0.95
):  # fmt: skip
    best = q_values.max(-1)
    T = len(rewards)
    targets = np.zeros(T)
    for t in reversed(range(T)):
        ahead = next_of(t, best, last_q_values.max(), terminated, truncated, final_values)
        greedy = t < T - 1 and q_values[t + 1, actions[t + 1]] == best[t + 1]
        if greedy and not ends(t, terminated, truncated):
            ahead = (1 - lam[t]) * ahead + lam[t] * targets[t + 1]
        targets[t] = rewards[t] + gamma[t] * ahead
    return {"targets": targets}


def expected_sarsa_lambda(
    q_values, target_probs, rewards, terminated, last_q_values, last_target_probs, truncated=None, final_values=None,
    *, gamma=0.99, lam=0.95,
):  # fmt: skip
    ev, last = expected(target_probs, q_values), expected(last_target_probs, last_q_values)
    return {"targets": lambda_return(rewards, ev, last, gamma, lam, terminated, truncated, final_values)}


def off_policy(q_values, target_probs, actions, rewards, last, gamma, weights, terminated, truncated, final_values):
    """G[t] = r[t] + γ (v̄[t+1] + c[t+1] (G[t+1] − q[t+1])), from the last step on, where G − q past the window is 0."""
    q, ev = chosen(q_values, actions), expected(target_probs, q_values)
    T = len(rewards)
    G = np.zeros(T)
    for t in reversed(range(T)):
        ahead = next_of(t, ev, last, terminated, truncated, final_values)
        if t < T - 1 and not ends(t, terminated, truncated):
            ahead += weights[t + 1] * (G[t + 1] - q[t + 1])
        G[t] = rewards[t] + gamma[t] * ahead
    return {"targets": G}


def tree_backup(
    q_values, target_probs, actions, rewards, terminated, last_q_values, last_target_probs,
    truncated=None, final_values=None, *, gamma=0.99, lam=1.0,
):  # fmt: skip
    last = expected(last_target_probs, last_q_values)
    weights = lam * chosen(target_probs, actions)
    return off_policy(
        q_values, target_probs, actions, rewards, last, gamma, weights, terminated, truncated, final_values
    )


def q_sigma(
    q_values, target_probs, behavior_probs, actions, rewards, terminated, last_q_values, last_target_probs,
    truncated=None, final_values=None, *, gamma=0.99, sigma=0.5,
):  # fmt: skip
    last = expected(last_target_probs, last_q_values)
    p = chosen(target_probs, actions)
    weights = sigma * (p / behavior_probs) + (1 - sigma) * p
    return off_policy(
        q_values, target_probs, actions, rewards, last, gamma, weights, terminated, truncated, final_values
    )


def acer_q_ret(
    q_values, target_probs, behavior_probs, actions, rewards, terminated, last_value,
    truncated=None, final_values=None, *, gamma=0.99, c_bar=1.0,
):  # fmt: skip
    T = len(rewards)
    targets = np.zeros(T)
    q_ret = float(last_value)
    for t in reversed(range(T)):
        if terminated[t]:
            q_ret = 0.0
        elif truncated is not None and truncated[t]:
            q_ret = final_values[t]
        q_ret = rewards[t] + gamma[t] * q_ret
        targets[t] = q_ret
        ratio = target_probs[t, actions[t]] / behavior_probs[t]
        q_ret = min(c_bar[t], ratio) * (q_ret - q_values[t, actions[t]]) + expected(target_probs[t], q_values[t])
    return {"targets": targets}


# -- advantages -----------------------------------------------------------------------------------------------------


def decoupled_gae(
    rewards, values, terminated, last_value, truncated=None, final_values=None,
    *, gamma=1.0, lam_policy=0.95, lam_value=1.0,
):  # fmt: skip
    deltas = td_errors(rewards, values, last_value, gamma, terminated, truncated, final_values)
    advantages = summed(deltas, gamma * lam_policy, terminated, truncated)
    return {"advantages": advantages, "returns": values + summed(deltas, gamma * lam_value, terminated, truncated)}


def length_adaptive_gae(
    rewards, values, lengths, terminated, last_value, *, gamma=1.0, alpha=0.05, lam_value=1.0
):  # fmt: skip
    lam_policy = np.maximum(0, 1 - 1 / (alpha * float(lengths)))
    return decoupled_gae(
        rewards, values, terminated, last_value, gamma=gamma, lam_policy=lam_policy, lam_value=lam_value
    )


def egae(rewards, values, terminated, truncated=None, *, gamma=1.0, lam=0.95):
    T = len(rewards)
    deltas = np.zeros(T)
    for t in range(T):
        own = t == T - 1 or (truncated is not None and truncated[t])
        following = 0.0 if terminated[t] else values[t] if own else values[t + 1]
        deltas[t] = rewards[t] + gamma[t] * following - values[t]
    advantages = summed(deltas, gamma * lam, terminated, truncated)
    return {"advantages": advantages, "returns": advantages + values}


def segmental_gae(rewards, values, boundary, terminated, last_value, *, gamma=1.0, lam=0.9):
    deltas = td_errors(rewards, values, last_value, gamma, terminated)
    advantages = summed(deltas, gamma * np.where(boundary, lam, 1.0), terminated)
    return {"advantages": advantages, "returns": advantages + values}


def average_reward_gae(
    rewards, values, terminated, last_value, truncated=None, final_values=None, *, average_reward=0.0, lam=0.95
):  # fmt: skip
    one = np.ones(len(rewards))
    deltas = td_errors(rewards - average_reward, values, last_value, one, terminated, truncated, final_values)
    advantages = summed(deltas, lam, terminated, truncated)
    return {"advantages": advantages, "returns": advantages + values}


def masked_gae(rewards, values, mask, *, gamma=1.0, lam=1.0):
    T = len(rewards)
    advantages = np.zeros(T)
    following_value = following = 0.0
    for t in reversed(range(T)):
        if mask[t]:
            following = rewards[t] + gamma[t] * following_value - values[t] + gamma[t] * lam[t] * following
            following_value = values[t]
        advantages[t] = following
    return {"advantages": advantages, "returns": advantages + values}


def puffer_advantage(rewards, values, starts, importance, *, gamma=0.99, lam=0.95, rho_clip=1.0, c_clip=1.0):
    T = len(rewards)
    advantages = np.zeros(T)
    following = 0.0
    for t in reversed(range(T - 1)):
        rho, c = min(importance[t], rho_clip[t]), min(importance[t], c_clip[t])
        if starts[t + 1]:
            following = rho * (rewards[t + 1] - values[t])
        else:
            delta = rho * (rewards[t + 1] + gamma[t] * values[t + 1] - values[t])
            following = delta + gamma[t] * lam[t] * c * following
        advantages[t] = following
    return {"advantages": advantages}


def brax_advantage(rewards, values, terminated, last_value, truncated=None, *, gamma=0.99, lam=0.95):
    T = len(rewards)
    vs, advantages = np.zeros(T), np.zeros(T)
    acc, vs_next = 0.0, float(last_value)
    for t in reversed(range(T)):
        if truncated is not None and truncated[t]:
            acc = 0.0
        elif terminated[t]:
            acc = advantages[t] = rewards[t] - values[t]
        else:
            following = last_value if t == T - 1 else values[t + 1]
            acc = rewards[t] + gamma[t] * following - values[t] + gamma[t] * lam[t] * acc
            advantages[t] = rewards[t] + gamma[t] * vs_next - values[t]
        vs[t] = vs_next = values[t] + acc
    return {"vs": vs, "advantages": advantages}


def leaky_vtrace(
    target_log_probs, behavior_log_probs, rewards, values, terminated, last_value, truncated=None, final_values=None,
    sample_mask=None, *, gamma=0.99, lam=1.0, alpha=1.0, rho_bar=1.0, c_bar=1.0,
):  # fmt: skip
    T = len(rewards)
    errors = np.zeros(T)
    acc = 0.0
    for t in reversed(range(T)):
        w = likelihood_ratio(target_log_probs[t], behavior_log_probs[t])
        rho, c = min(rho_bar[t], w), min(c_bar[t], w)
        if alpha[t] < 1:
            rho, c = (1 - alpha[t]) * w + alpha[t] * rho, (1 - alpha[t]) * w + alpha[t] * c
        if ends(t, terminated, truncated):
            acc = 0.0
        if sample_mask is None or sample_mask[t]:
            ahead = next_of(t, values, last_value, terminated, truncated, final_values)
            acc = rho * (rewards[t] + gamma[t] * ahead - values[t]) + gamma[t] * lam[t] * c * acc
        errors[t] = acc
    return {"errors": errors, "vs": values + errors}


# -- traces and filters, forward in time ----------------------------------------------------------------------------


def begins(t: int, terminated: Any, truncated: Any = None) -> bool:
    """Whether step t is the first after an episode's last."""
    return t > 0 and ends(t - 1, terminated, truncated)


def replacing_traces(features, terminated, truncated=None, initial_trace=None, *, gamma=0.99, lam=0.95):
    traces = np.zeros(features.shape)
    before = np.zeros(features.shape[1:]) if initial_trace is None else initial_trace
    for t in range(len(features)):
        faded = np.zeros_like(before) if begins(t, terminated, truncated) else gamma[t] * lam[t] * before
        before = np.where(features[t] != 0, features[t], faded)
        traces[t] = before
    return {"traces": traces}


def emphatic_traces(features, rho, terminated, interest=None, truncated=None, *, gamma=0.99, lam=0.9):
    T = len(rho)
    traces, follow_on, emphases = np.zeros(features.shape), np.zeros(T), np.zeros(T)
    trace, follow = np.zeros(features.shape[1:]), 0.0
    for t in range(T):
        i = 1.0 if interest is None else interest[t]
        if t == 0 or begins(t, terminated, truncated):
            trace, follow = np.zeros(features.shape[1:]), i
        else:
            follow = rho[t - 1] * gamma[t] * follow + i
        emphases[t] = lam[t] * i + (1 - lam[t]) * follow
        trace = rho[t] * (gamma[t] * lam[t] * trace + emphases[t] * features[t])
        traces[t], follow_on[t] = trace, follow
    return {"traces": traces, "follow_on": follow_on, "emphases": emphases}


def exponential_moving_average(x, initial_value, done=None, *, alpha=0.1):
    average = np.zeros(x.shape)
    before = initial_value
    for t in range(len(x)):
        before = x[t] if done is not None and t > 0 and done[t - 1] else before + alpha[t] * (x[t] - before)
        average[t] = before
    return {"average": average}


def leaky_integrator(x, initial_value=0.0, *, tau=2.0):
    level = np.zeros(x.shape)
    before = np.broadcast_to(initial_value, x.shape[1:])
    for t in range(len(x)):
        before = before + (x[t] - before) / tau[t]
        level[t] = before
    return {"level": level}


def state_space(x, decay, done, before):
    states = np.zeros(x.shape, x.dtype)
    for t in range(len(x)):
        before = x[t] if done is not None and t > 0 and done[t - 1] else decay * before + x[t]
        states[t] = before
    return states


def diagonal_state_space(x, decay, done=None, initial_state=0.0):
    return {"states": state_space(x, decay, done, initial_state)}


def complex_state_space(x_re, x_im, lambda_re, lambda_im, done=None):
    states = state_space(x_re + 1j * x_im, lambda_re + 1j * lambda_im, done, 0.0)
    return {"states_re": states.real, "states_im": states.imag}


LOOPS: dict[str, Callable[..., dict[str, Array]]] = {
    function.__name__: function
    for function in (
        n_step_returns, nonlinear_bellman_returns, dreamer_returns, upgo, reinforce_plus_plus, discounted_best_return,
        best_return_ahead, max_reward_returns, return_moments, return_variance, peng_q_lambda, watkins_q_lambda,
        expected_sarsa_lambda, tree_backup, q_sigma, acer_q_ret, decoupled_gae, length_adaptive_gae, egae, segmental_gae,
        average_reward_gae, masked_gae, puffer_advantage, brax_advantage, leaky_vtrace, replacing_traces, emphatic_traces,
        exponential_moving_average, leaky_integrator, diagonal_state_space, complex_state_space,
    )
}  # fmt: skip
