"""Discounted returns.

    done[t] = terminated[t] or truncated[t]
    cut_off[t] = {final_values[t] if truncated[t] and (not terminated[t]), else 0}
    g[t] = γ · g[t+1] + rewards[t] + γ · cut_off[t],   g[T] = last_value
        g[t+1] dropped where done[t]
    returns[t] = g[t]

Sutton & Barto 2018, equation 3.9

Schedule steps, backward in time.
"""
# spec: discounted_returns.yaml
# spec sha256: dacd889712bb5f9eea22196e1e86ba2843a51e8856b0297ab4626bef7826dac0
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import functools

import numba
import numpy as np


def kernel(number, lo, hi, T, rewards_array, terminated_array, truncated_array, final_values_array, last_value_array, returns_array, gamma_value, gamma_each):
    """Environments lo ≤ b < hi in blocks, each block step by step. Arrays are [T, B, …]; `number` is their type."""
    width = 512
    for block in range(-(-(hi - lo) // width)):
        left = lo + block * width
        right = min(left + width, hi)
        last_value_all = last_value_array[left:right]
        g_state = np.empty(right - left, number)
        for i in range(right - left):
            last_value = last_value_all[i]  # discounted_returns.yaml:10
            g_state[i] = last_value
        for step in range(T):
            t = T - 1 - step
            terminated_step = terminated_array[t, left:right]
            if truncated_array is not None:
                truncated_step = truncated_array[t, left:right]
            rewards_step = rewards_array[t, left:right]
            if final_values_array is not None:
                final_values_step = final_values_array[t, left:right]
            for i in range(right - left):
                last_value = last_value_all[i]  # discounted_returns.yaml:10
                g_in = g_state[i]
                terminated = terminated_step[i] != 0  # discounted_returns.yaml:7
                if truncated_array is None:
                    truncated = False  # discounted_returns.yaml:8
                else:
                    truncated = truncated_step[i] != 0  # discounted_returns.yaml:8
                done = terminated or truncated  # discounted_returns.yaml:15
                if gamma_each is None:
                    gamma = number(gamma_value)  # discounted_returns.yaml:13
                else:
                    gamma = gamma_each[t, left + i]
                rewards = rewards_step[i]  # discounted_returns.yaml:6
                if final_values_array is None:
                    final_values = number(0)  # discounted_returns.yaml:9
                else:
                    final_values = final_values_step[i]  # discounted_returns.yaml:9
                cut_off = (final_values if truncated and not terminated else number(0))  # discounted_returns.yaml:16
                a = (number(0) if done else gamma)  # discounted_returns.yaml:20
                b = rewards + gamma * cut_off  # discounted_returns.yaml:21
                g = (b if a == number(0) else a * g_in + b)
                returns = g  # discounted_returns.yaml:25
                if returns_array is not None:
                    returns_array[t, left + i] = returns  # discounted_returns.yaml:25
                g_state[i] = g


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
    swap = (lambda x: x) if time_major else (lambda x: None if x is None else x.swapaxes(0, 1))
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
