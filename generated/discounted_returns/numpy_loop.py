"""Discounted returns.

    done[t] = terminated[t] or truncated[t]
    cut_off[t] = {final_values[t] if truncated[t] and (not terminated[t]), else 0}
    g[t] = γ · g[t+1] + rewards[t] + γ · cut_off[t],   g[T] = last_value
        g[t+1] dropped where done[t]
    returns[t] = g[t]

Sutton & Barto 2018, equation 3.9

Schedule loop, backward in time.
"""
# spec: discounted_returns.yaml
# spec sha256: dacd889712bb5f9eea22196e1e86ba2843a51e8856b0297ab4626bef7826dac0
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import numpy as np


def kernel(number, T, rewards_array, terminated_array, truncated_array, final_values_array, last_value_array, returns_array, gamma_value, gamma_each):
    """All environments at once, step by step. Arrays are [T, B, …]; `number` is their type."""
    last_value = last_value_array[:]  # discounted_returns.yaml:10
    g_in = last_value
    for step in range(T):
        t = T - 1 - step
        terminated = terminated_array[t, :] != 0  # discounted_returns.yaml:7
        if truncated_array is None:
            truncated = np.bool_(False)  # discounted_returns.yaml:8
        else:
            truncated = truncated_array[t, :] != 0  # discounted_returns.yaml:8
        done = terminated | truncated  # discounted_returns.yaml:15
        if gamma_each is None:
            gamma = number(gamma_value)  # discounted_returns.yaml:13
        else:
            gamma = gamma_each[t]
        rewards = rewards_array[t, :]  # discounted_returns.yaml:6
        if final_values_array is None:
            final_values = number(0)  # discounted_returns.yaml:9
        else:
            final_values = final_values_array[t, :]  # discounted_returns.yaml:9
        cut_off = np.where(truncated & ~terminated, final_values, number(0))  # discounted_returns.yaml:16
        a = np.where(done, number(0), gamma)  # discounted_returns.yaml:20
        b = rewards + gamma * cut_off  # discounted_returns.yaml:21
        g = np.where(a == number(0), b, a * g_in + b)
        returns = g  # discounted_returns.yaml:25
        if returns_array is not None:
            returns_array[t] = returns  # discounted_returns.yaml:25
        g_in = g


def launch(time_major, rewards, terminated, truncated, final_values, last_value, returns, gamma, lanes=None):
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
            part(terminated, True),
            part(truncated, True),
            part(final_values, True),
            part(last_value, False),
            part(returns, True),
            0.0 if isinstance(gamma, np.ndarray) else float(gamma),
            part(gamma, True) if isinstance(gamma, np.ndarray) else None,
        )
