"""Accumulating eligibility traces.

    z[t] = γ · λ · z[t−1] + features[t],   z[−1] = initial_trace
        z[t−1] dropped where terminated[t−1] or truncated[t−1]
    traces[t] = z[t]
    terminated[−1] = false
    truncated[−1] = false

Sutton & Barto 2018, section 12.2

Schedule steps, forward in time.
"""
# spec: eligibility_traces.yaml
# spec sha256: 77fb698507119cc60b1edea1ef5bcf8c086354c280344f4954bd15fcae728ec5
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import functools

import numba
import numpy as np


def kernel(number, lo, hi, T, F, features_array, terminated_array, truncated_array, initial_trace_array, traces_array, gamma_value, lam_value, gamma_each, lam_each):
    """Environments lo ≤ b < hi in blocks, each block step by step. Arrays are [T, B, …]; `number` is their type."""
    width = 512
    for block in range(-(-(hi - lo) // width) * F):
        f_lane = block % F
        left = lo + (block // F) * width
        right = min(left + width, hi)
        if initial_trace_array is not None:
            initial_trace_all = initial_trace_array[left:right, f_lane]
        z_state = np.empty(right - left, number)
        for i in range(right - left):
            if initial_trace_array is None:
                initial_trace = number(0)  # eligibility_traces.yaml:9
            else:
                initial_trace = initial_trace_all[i]  # eligibility_traces.yaml:9
            z_state[i] = initial_trace
        for step in range(T):
            t = step
            terminated_prev_step = terminated_array[max(t - 1, 0), left:right]
            if truncated_array is not None:
                truncated_prev_step = truncated_array[max(t - 1, 0), left:right]
            features_step = features_array[t, left:right, f_lane]
            for i in range(right - left):
                if initial_trace_array is None:
                    initial_trace = number(0)  # eligibility_traces.yaml:9
                else:
                    initial_trace = initial_trace_all[i]  # eligibility_traces.yaml:9
                z_in = z_state[i]
                terminated_prev = terminated_prev_step[i] != 0 if t - 1 >= 0 else False  # eligibility_traces.yaml:7
                if truncated_array is None:
                    truncated_prev = False  # eligibility_traces.yaml:8
                else:
                    truncated_prev = truncated_prev_step[i] != 0 if t - 1 >= 0 else False  # eligibility_traces.yaml:8
                if gamma_each is None:
                    gamma = number(gamma_value)  # eligibility_traces.yaml:11
                else:
                    gamma = gamma_each[t, left + i]
                if lam_each is None:
                    lam = number(lam_value)  # eligibility_traces.yaml:12
                else:
                    lam = lam_each[t, left + i]
                features = features_step[i]  # eligibility_traces.yaml:6
                a = (number(0) if terminated_prev or truncated_prev else gamma * lam)  # eligibility_traces.yaml:19
                b = features  # eligibility_traces.yaml:20
                z = (b if a == number(0) else a * z_in + b)
                traces = z  # eligibility_traces.yaml:24
                if traces_array is not None:
                    traces_array[t, left + i, f_lane] = traces  # eligibility_traces.yaml:24
                z_state[i] = z


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


def launch(time_major, features, terminated, truncated, initial_trace, traces, gamma, lam, lanes=None):
    """Run the kernel on NumPy arrays: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    lanes: only the environments lo ≤ b < hi; calls on disjoint ranges may run at the same time.
    """
    swap = (lambda x: x) if time_major else (lambda x: None if x is None else x.swapaxes(0, 1))
    out = traces
    lo, hi = lanes or (0, out.shape[1 if time_major else 0])
    F = features.shape[2]
    arguments = (
        out.dtype.type,
        lo,
        hi,
        out.shape[0 if time_major else 1],
        F,
        swap(features),
        swap(terminated),
        swap(truncated),
        initial_trace,
        swap(traces),
        0.0 if isinstance(gamma, np.ndarray) else float(gamma),
        0.0 if isinstance(lam, np.ndarray) else float(lam),
        swap(gamma) if isinstance(gamma, np.ndarray) else None,
        swap(lam) if isinstance(lam, np.ndarray) else None,
    )
    variant(signature(arguments))(*arguments)
