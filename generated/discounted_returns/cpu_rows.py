"""Discounted returns.

    done[t] = terminated[t] or truncated[t]
    cut_off[t] = {final_values[t] if truncated[t] and (not terminated[t]), else 0}
    g[t] = γ · g[t+1] + rewards[t] + γ · cut_off[t],   g[T] = last_value
        g[t+1] dropped where done[t]
    returns[t] = g[t]

Sutton & Barto 2018, equation 3.9

Schedule rows, backward in time.
"""
# spec: discounted_returns.yaml
# spec sha256: dacd889712bb5f9eea22196e1e86ba2843a51e8856b0297ab4626bef7826dac0
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import functools

import numba
import numpy as np


def kernel(number, lo, hi, T, rewards_array, terminated_array, truncated_array, final_values_array, last_value_array, returns_array, gamma_value, gamma_each):
    """Environments lo ≤ b < hi one after another, each step by step. Arrays are [B, T, …]; `number` is their type."""
    for env in range(lo, hi):
        last_value_row = last_value_array[env]
        terminated_row = terminated_array[env, :]
        if truncated_array is not None:
            truncated_row = truncated_array[env, :]
        rewards_row = rewards_array[env, :]
        if final_values_array is not None:
            final_values_row = final_values_array[env, :]
        last_value = last_value_row  # discounted_returns.yaml:10
        g_in = last_value
        for step in range(T):
            t = T - 1 - step
            terminated = terminated_row[t] != 0  # discounted_returns.yaml:7
            if truncated_array is None:
                truncated = False  # discounted_returns.yaml:8
            else:
                truncated = truncated_row[t] != 0  # discounted_returns.yaml:8
            done = terminated or truncated  # discounted_returns.yaml:15
            if gamma_each is None:
                gamma = number(gamma_value)  # discounted_returns.yaml:13
            else:
                gamma = gamma_each[env, t]
            rewards = rewards_row[t]  # discounted_returns.yaml:6
            if final_values_array is None:
                final_values = number(0)  # discounted_returns.yaml:9
            else:
                final_values = final_values_row[t]  # discounted_returns.yaml:9
            cut_off = (final_values if truncated and not terminated else number(0))  # discounted_returns.yaml:16
            a = (number(0) if done else gamma)  # discounted_returns.yaml:20
            b = rewards + gamma * cut_off  # discounted_returns.yaml:21
            g = (b if a == number(0) else a * g_in + b)
            returns = g  # discounted_returns.yaml:25
            if returns_array is not None:
                returns_array[env, t] = returns  # discounted_returns.yaml:25
            g_in = g


@functools.lru_cache(maxsize=None)
def variant(signature):
    """The kernel compiled for argument types; kept on disk where there is a place for it."""
    options = {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(signature, cache=True, **options)(kernel)
    except Exception:
        # No writable folder for the cache, or a damaged file in it: compile in memory.
        return numba.njit(signature, **options)(kernel)


def signature(arguments):
    """Numba's types; where one array is not contiguous all count as strided, so that there are two variants, not many."""
    types = [numba.typeof(x) for x in arguments]
    arrays = [x for x in types if isinstance(x, numba.types.Array)]
    layout = "C" if all(x.layout == "C" for x in arrays) else "A"
    return tuple(numba.types.Array(x.dtype, x.ndim, layout, readonly=not x.mutable) if x in arrays else x for x in types)


def launch(time_major, rewards, terminated, truncated, final_values, last_value, returns, gamma, lanes=None):
    """Run the kernel on NumPy arrays: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    lanes: only the environments lo ≤ b < hi; calls on disjoint ranges may run at the same time.
    """
    swap = (lambda x: None if x is None else x.swapaxes(0, 1)) if time_major else (lambda x: x)
    out = returns
    lo, hi = lanes or (0, out.shape[1 if time_major else 0])
    arguments = (
        out.dtype.type,
        lo,
        hi,
        out.shape[0 if time_major else 1],
        swap(rewards),
        swap(terminated),
        swap(truncated),
        swap(final_values),
        last_value,
        swap(returns),
        0.0 if isinstance(gamma, np.ndarray) else float(gamma),
        swap(gamma) if isinstance(gamma, np.ndarray) else None,
    )
    variant(signature(arguments))(*arguments)
