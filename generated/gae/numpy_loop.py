"""Generalized advantage estimation.

    next_value[t] = {final_values[t] if truncated[t], else values[t+1]}
    δ[t] = rewards[t] + {0 if terminated[t], else γ · next_value[t]} − values[t]
    adv[t] = γ · λ · adv[t+1] + δ[t],   adv[T] = 0
        adv[t+1] dropped where terminated[t] or truncated[t]
    advantages[t] = adv[t]
    returns[t] = adv[t] + values[t]
    values[T] = last_value

Schulman et al. 2016, arXiv:1506.02438

Schedule loop, backward in time.
"""
# spec: gae.yaml
# spec sha256: 6b3a257cc86a3e8b9fdbbc02a95b60642d07c77cb79e75bfa2c17c658e8a78e5
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import numpy as np


def kernel(number, T, rewards_array, values_array, terminated_array, truncated_array, final_values_array, last_value_array, advantages_array, returns_array, gamma_value, lam_value, gamma_each, lam_each):
    """All environments at once, step by step. Arrays are [T, B, …]; `number` is their type."""
    last_value = last_value_array[:]  # gae.yaml:11
    adv_in = number(0)
    for step in range(T):
        t = T - 1 - step
        terminated = terminated_array[t, :] != 0  # gae.yaml:8
        if truncated_array is None:
            truncated = np.bool_(False)  # gae.yaml:9
        else:
            truncated = truncated_array[t, :] != 0  # gae.yaml:9
        if gamma_each is None:
            gamma = number(gamma_value)  # gae.yaml:14
        else:
            gamma = gamma_each[t]
        if lam_each is None:
            lam = number(lam_value)  # gae.yaml:15
        else:
            lam = lam_each[t]
        rewards = rewards_array[t, :]  # gae.yaml:6
        if final_values_array is None:
            final_values = number(0)  # gae.yaml:10
        else:
            final_values = final_values_array[t, :]  # gae.yaml:10
        values_next = values_array[min(t + 1, T - 1), :] if t + 1 < T else last_value  # gae.yaml:7
        next_value = np.where(truncated, final_values, values_next)  # gae.yaml:19
        values = values_array[t, :]  # gae.yaml:7
        delta = rewards + np.where(terminated, number(0), gamma * next_value) - values  # gae.yaml:20
        a = np.where(terminated | truncated, number(0), gamma * lam)  # gae.yaml:24
        b = delta  # gae.yaml:25
        adv = np.where(a == number(0), b, a * adv_in + b)
        if advantages_array is not None:
            advantages = adv  # gae.yaml:29
            advantages_array[t] = advantages  # gae.yaml:29
        if returns_array is not None:
            returns = adv + values  # gae.yaml:30
            returns_array[t] = returns  # gae.yaml:30
        adv_in = adv


def launch(time_major, rewards, values, terminated, truncated, final_values, last_value, advantages, returns, gamma, lam, lanes=None):
    """Run the loop on NumPy arrays: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    lanes: only the environments lo ≤ b < hi.
    """
    out = next(x for x in (advantages, returns) if x is not None)
    lo, hi = lanes or (0, out.shape[1 if time_major else 0])

    def part(x, timed):
        """The array's environments lo … hi, time first."""
        if x is None:
            return None
        if not timed:
            return x[lo:hi]
        return (x if time_major else x.swapaxes(0, 1))[:, lo:hi]

    with np.errstate(all="ignore"):
        kernel(
            out.dtype.type,
            out.shape[0 if time_major else 1],
            part(rewards, True),
            part(values, True),
            part(terminated, True),
            part(truncated, True),
            part(final_values, True),
            part(last_value, False),
            part(advantages, True),
            part(returns, True),
            0.0 if isinstance(gamma, np.ndarray) else float(gamma),
            0.0 if isinstance(lam, np.ndarray) else float(lam),
            part(gamma, True) if isinstance(gamma, np.ndarray) else None,
            part(lam, True) if isinstance(lam, np.ndarray) else None,
        )
