"""Generalized advantage estimation.

    next_value[t] = {final_values[t] if truncated[t], else values[t+1]}
    δ[t] = rewards[t] + {0 if terminated[t], else γ · next_value[t]} − values[t]
    adv[t] = γ · λ · adv[t+1] + δ[t],   adv[T] = 0
        adv[t+1] dropped where terminated[t] or truncated[t]
    advantages[t] = adv[t]
    returns[t] = adv[t] + values[t]
    values[T] = last_value

Schulman et al. 2016, arXiv:1506.02438

Schedule steps, backward in time.
"""
# spec: gae.yaml
# spec sha256: 6b3a257cc86a3e8b9fdbbc02a95b60642d07c77cb79e75bfa2c17c658e8a78e5
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import functools

import numba
import numpy as np


def kernel(number, lo, hi, T, rewards_array, values_array, terminated_array, truncated_array, final_values_array, last_value_array, advantages_array, returns_array, gamma_value, lam_value, gamma_each, lam_each):
    """Environments lo ≤ b < hi in blocks, each block step by step. Arrays are [T, B, …]; `number` is their type."""
    width = 512
    for block in range(-(-(hi - lo) // width)):
        left = lo + block * width
        right = min(left + width, hi)
        last_value_all = last_value_array[left:right]
        adv_state = np.empty(right - left, number)
        for i in range(right - left):
            last_value = last_value_all[i]  # gae.yaml:11
            adv_state[i] = number(0)
        for step in range(T):
            t = T - 1 - step
            terminated_step = terminated_array[t, left:right]
            if truncated_array is not None:
                truncated_step = truncated_array[t, left:right]
            rewards_step = rewards_array[t, left:right]
            if final_values_array is not None:
                final_values_step = final_values_array[t, left:right]
            values_next_step = values_array[min(t + 1, T - 1), left:right]
            values_step = values_array[t, left:right]
            for i in range(right - left):
                last_value = last_value_all[i]  # gae.yaml:11
                adv_in = adv_state[i]
                terminated = terminated_step[i] != 0  # gae.yaml:8
                if truncated_array is None:
                    truncated = False  # gae.yaml:9
                else:
                    truncated = truncated_step[i] != 0  # gae.yaml:9
                if gamma_each is None:
                    gamma = number(gamma_value)  # gae.yaml:14
                else:
                    gamma = gamma_each[t, left + i]
                if lam_each is None:
                    lam = number(lam_value)  # gae.yaml:15
                else:
                    lam = lam_each[t, left + i]
                rewards = rewards_step[i]  # gae.yaml:6
                if final_values_array is None:
                    final_values = number(0)  # gae.yaml:10
                else:
                    final_values = final_values_step[i]  # gae.yaml:10
                values_next = values_next_step[i] if t + 1 < T else last_value  # gae.yaml:7
                next_value = (final_values if truncated else values_next)  # gae.yaml:19
                values = values_step[i]  # gae.yaml:7
                delta = rewards + (number(0) if terminated else gamma * next_value) - values  # gae.yaml:20
                a = (number(0) if terminated or truncated else gamma * lam)  # gae.yaml:24
                b = delta  # gae.yaml:25
                adv = (b if a == number(0) else a * adv_in + b)
                if advantages_array is not None:
                    advantages = adv  # gae.yaml:29
                    advantages_array[t, left + i] = advantages  # gae.yaml:29
                if returns_array is not None:
                    returns = adv + values  # gae.yaml:30
                    returns_array[t, left + i] = returns  # gae.yaml:30
                adv_state[i] = adv


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


def launch(time_major, rewards, values, terminated, truncated, final_values, last_value, advantages, returns, gamma, lam, lanes=None):
    """Run the kernel on NumPy arrays: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    lanes: only the environments lo ≤ b < hi; calls on disjoint ranges may run at the same time.
    """
    swap = (lambda x: x) if time_major else (lambda x: None if x is None else x.swapaxes(0, 1))
    out = next(x for x in (advantages, returns) if x is not None)
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
        swap(advantages),
        swap(returns),
        0.0 if isinstance(gamma, np.ndarray) else float(gamma),
        0.0 if isinstance(lam, np.ndarray) else float(lam),
        swap(gamma) if isinstance(gamma, np.ndarray) else None,
        swap(lam) if isinstance(lam, np.ndarray) else None,
    )
    variant(signature(arguments))(*arguments)
