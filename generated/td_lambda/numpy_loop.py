"""TD(λ) targets.

    ahead[t] = {0 if terminated[t], else {final_values[t] if truncated[t], else (1 − λ) · values[t+1]}}
    g[t] = γ · λ · g[t+1] + rewards[t] + γ · ahead[t],   g[T] = last_value
        g[t+1] dropped where terminated[t] or truncated[t]
    returns[t] = g[t]
    values[T] = last_value

Sutton & Barto 2018, section 12.1 (the λ-return)

Schedule loop, backward in time.
"""
# spec: td_lambda.yaml
# spec sha256: d493c6ee8b053dad46468f9ef1ef0ee54fd8da59910e76f1089fda4e7919c659
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import numpy as np


def kernel(number, T, rewards_array, values_array, terminated_array, truncated_array, final_values_array, last_value_array, returns_array, gamma_value, lam_value, gamma_each, lam_each):
    """All environments at once, step by step. Arrays are [T, B, …]; `number` is their type."""
    last_value = last_value_array[:]  # td_lambda.yaml:11
    g_in = last_value
    for step in range(T):
        t = T - 1 - step
        terminated = terminated_array[t, :] != 0  # td_lambda.yaml:8
        if truncated_array is None:
            truncated = np.bool_(False)  # td_lambda.yaml:9
        else:
            truncated = truncated_array[t, :] != 0  # td_lambda.yaml:9
        if gamma_each is None:
            gamma = number(gamma_value)  # td_lambda.yaml:14
        else:
            gamma = gamma_each[t]
        if lam_each is None:
            lam = number(lam_value)  # td_lambda.yaml:15
        else:
            lam = lam_each[t]
        rewards = rewards_array[t, :]  # td_lambda.yaml:6
        if final_values_array is None:
            final_values = number(0)  # td_lambda.yaml:10
        else:
            final_values = final_values_array[t, :]  # td_lambda.yaml:10
        values_next = values_array[min(t + 1, T - 1), :] if t + 1 < T else last_value  # td_lambda.yaml:7
        ahead = np.where(terminated, number(0), np.where(truncated, final_values, (number(1) - lam) * values_next))  # td_lambda.yaml:20
        a = np.where(terminated | truncated, number(0), gamma * lam)  # td_lambda.yaml:24
        b = rewards + gamma * ahead  # td_lambda.yaml:25
        g = np.where(a == number(0), b, a * g_in + b)
        returns = g  # td_lambda.yaml:29
        if returns_array is not None:
            returns_array[t] = returns  # td_lambda.yaml:29
        g_in = g


def launch(time_major, rewards, values, terminated, truncated, final_values, last_value, returns, gamma, lam, lanes=None):
    """Run the loop on NumPy arrays: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    lanes: only the environments lo ≤ b < hi.
    """
    out = returns
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
            part(returns, True),
            0.0 if isinstance(gamma, np.ndarray) else float(gamma),
            0.0 if isinstance(lam, np.ndarray) else float(lam),
            part(gamma, True) if isinstance(gamma, np.ndarray) else None,
            part(lam, True) if isinstance(lam, np.ndarray) else None,
        )
