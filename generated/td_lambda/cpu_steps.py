"""TD(λ) targets.

    ahead[t] = {0 if terminated[t], else {final_values[t] if truncated[t], else (1 − λ) · values[t+1]}}
    g[t] = γ · λ · g[t+1] + rewards[t] + γ · ahead[t],   g[T] = last_value
        g[t+1] dropped where terminated[t] or truncated[t]
    returns[t] = g[t]
    values[T] = last_value

Sutton & Barto 2018, section 12.1 (the λ-return)

Schedule steps, backward in time.
"""
# spec: td_lambda.yaml
# spec sha256: d493c6ee8b053dad46468f9ef1ef0ee54fd8da59910e76f1089fda4e7919c659
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import functools

import numba
import numpy as np


def kernel(number, lo, hi, T, rewards_array, values_array, terminated_array, truncated_array, final_values_array, last_value_array, returns_array, gamma_value, lam_value, gamma_each, lam_each):
    """Environments lo ≤ b < hi in blocks, each block step by step. Arrays are [T, B, …]; `number` is their type."""
    width = 512
    for block in range(-(-(hi - lo) // width)):
        left = lo + block * width
        right = min(left + width, hi)
        last_value_all = last_value_array[left:right]
        g_state = np.empty(right - left, number)
        for i in range(right - left):
            last_value = last_value_all[i]  # td_lambda.yaml:11
            g_state[i] = last_value
        for step in range(T):
            t = T - 1 - step
            terminated_step = terminated_array[t, left:right]
            if truncated_array is not None:
                truncated_step = truncated_array[t, left:right]
            rewards_step = rewards_array[t, left:right]
            if final_values_array is not None:
                final_values_step = final_values_array[t, left:right]
            values_next_step = values_array[min(t + 1, T - 1), left:right]
            for i in range(right - left):
                last_value = last_value_all[i]  # td_lambda.yaml:11
                g_in = g_state[i]
                terminated = terminated_step[i] != 0  # td_lambda.yaml:8
                if truncated_array is None:
                    truncated = False  # td_lambda.yaml:9
                else:
                    truncated = truncated_step[i] != 0  # td_lambda.yaml:9
                if gamma_each is None:
                    gamma = number(gamma_value)  # td_lambda.yaml:14
                else:
                    gamma = gamma_each[t, left + i]
                if lam_each is None:
                    lam = number(lam_value)  # td_lambda.yaml:15
                else:
                    lam = lam_each[t, left + i]
                rewards = rewards_step[i]  # td_lambda.yaml:6
                if final_values_array is None:
                    final_values = number(0)  # td_lambda.yaml:10
                else:
                    final_values = final_values_step[i]  # td_lambda.yaml:10
                values_next = values_next_step[i] if t + 1 < T else last_value  # td_lambda.yaml:7
                ahead = (number(0) if terminated else (final_values if truncated else (number(1) - lam) * values_next))  # td_lambda.yaml:20
                a = (number(0) if terminated or truncated else gamma * lam)  # td_lambda.yaml:24
                b = rewards + gamma * ahead  # td_lambda.yaml:25
                g = (b if a == number(0) else a * g_in + b)
                returns = g  # td_lambda.yaml:29
                if returns_array is not None:
                    returns_array[t, left + i] = returns  # td_lambda.yaml:29
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


def launch(time_major, rewards, values, terminated, truncated, final_values, last_value, returns, gamma, lam, lanes=None):
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
        swap(values),
        swap(terminated),
        swap(truncated),
        swap(final_values),
        last_value,
        swap(returns),
        0.0 if isinstance(gamma, np.ndarray) else float(gamma),
        0.0 if isinstance(lam, np.ndarray) else float(lam),
        swap(gamma) if isinstance(gamma, np.ndarray) else None,
        swap(lam) if isinstance(lam, np.ndarray) else None,
    )
    variant(signature(arguments))(*arguments)
