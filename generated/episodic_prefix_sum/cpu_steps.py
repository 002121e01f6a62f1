"""Episodic prefix sums.

    c[t] = c[t−1] + x[t],   c[−1] = initial_sum
        c[t−1] dropped where done[t−1] or start[t]
    sums[t] = c[t]
    done[−1] = false

Blelloch 1990, segmented scans

Schedule steps, forward in time.
"""
# spec: episodic_prefix_sum.yaml
# spec sha256: 8bc8b68694ab6c65f4e30e64cb6cc7f0540207843aaaf68b63147b8e831909ba
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import functools

import numba
import numpy as np


def kernel(number, lo, hi, T, F, x_array, done_array, start_array, initial_sum_array, sums_array):
    """Environments lo ≤ b < hi in blocks, each block step by step. Arrays are [T, B, …]; `number` is their type."""
    width = 512
    for block in range(-(-(hi - lo) // width) * F):
        f_lane = block % F
        left = lo + (block // F) * width
        right = min(left + width, hi)
        if initial_sum_array is not None:
            initial_sum_all = initial_sum_array[left:right, f_lane]
        c_state = np.empty(right - left, number)
        for i in range(right - left):
            if initial_sum_array is None:
                initial_sum = number(0)  # episodic_prefix_sum.yaml:9
            else:
                initial_sum = initial_sum_all[i]  # episodic_prefix_sum.yaml:9
            c_state[i] = initial_sum
        for step in range(T):
            t = step
            if done_array is not None:
                done_prev_step = done_array[max(t - 1, 0), left:right]
            if start_array is not None:
                start_step = start_array[t, left:right]
            x_step = x_array[t, left:right, f_lane]
            for i in range(right - left):
                if initial_sum_array is None:
                    initial_sum = number(0)  # episodic_prefix_sum.yaml:9
                else:
                    initial_sum = initial_sum_all[i]  # episodic_prefix_sum.yaml:9
                c_in = c_state[i]
                if done_array is None:
                    done_prev = False  # episodic_prefix_sum.yaml:7
                else:
                    done_prev = done_prev_step[i] != 0 if t - 1 >= 0 else False  # episodic_prefix_sum.yaml:7
                if start_array is None:
                    start = False  # episodic_prefix_sum.yaml:8
                else:
                    start = start_step[i] != 0  # episodic_prefix_sum.yaml:8
                x = x_step[i]  # episodic_prefix_sum.yaml:6
                a = (number(0) if done_prev or start else number(1))  # episodic_prefix_sum.yaml:15
                b = x  # episodic_prefix_sum.yaml:16
                c = (b if a == number(0) else a * c_in + b)
                sums = c  # episodic_prefix_sum.yaml:20
                if sums_array is not None:
                    sums_array[t, left + i, f_lane] = sums  # episodic_prefix_sum.yaml:20
                c_state[i] = c


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


def launch(time_major, x, done, start, initial_sum, sums, lanes=None):
    """Run the kernel on NumPy arrays: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    lanes: only the environments lo ≤ b < hi; calls on disjoint ranges may run at the same time.
    """
    swap = (lambda x: x) if time_major else (lambda x: None if x is None else x.swapaxes(0, 1))
    out = sums
    lo, hi = lanes or (0, out.shape[1 if time_major else 0])
    F = x.shape[2]
    arguments = (
        out.dtype.type,
        lo,
        hi,
        out.shape[0 if time_major else 1],
        F,
        swap(x),
        swap(done),
        swap(start),
        initial_sum,
        swap(sums),
    )
    variant(signature(arguments))(*arguments)
