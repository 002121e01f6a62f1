"""Episodic prefix sums.

    c[t] = c[t−1] + x[t],   c[−1] = initial_sum
        c[t−1] dropped where done[t−1] or start[t]
    sums[t] = c[t]
    done[−1] = false

Blelloch 1990, segmented scans

Schedule loop, forward in time.
"""
# spec: episodic_prefix_sum.yaml
# spec sha256: 8bc8b68694ab6c65f4e30e64cb6cc7f0540207843aaaf68b63147b8e831909ba
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import numpy as np


def kernel(number, T, F, x_array, done_array, start_array, initial_sum_array, sums_array):
    """All environments at once, step by step. Arrays are [T, B, …]; `number` is their type."""
    if initial_sum_array is None:
        initial_sum = number(0)  # episodic_prefix_sum.yaml:9
    else:
        initial_sum = initial_sum_array[:, :]  # episodic_prefix_sum.yaml:9
    c_in = initial_sum
    for step in range(T):
        t = step
        if done_array is None:
            done_prev = np.bool_(False)  # episodic_prefix_sum.yaml:7
        else:
            done_prev = done_array[max(t - 1, 0), :][:, None] != 0 if t - 1 >= 0 else np.bool_(False)  # episodic_prefix_sum.yaml:7
        if start_array is None:
            start = np.bool_(False)  # episodic_prefix_sum.yaml:8
        else:
            start = start_array[t, :][:, None] != 0  # episodic_prefix_sum.yaml:8
        x = x_array[t, :, :]  # episodic_prefix_sum.yaml:6
        a = np.where(done_prev | start, number(0), number(1))  # episodic_prefix_sum.yaml:15
        b = x  # episodic_prefix_sum.yaml:16
        c = np.where(a == number(0), b, a * c_in + b)
        sums = c  # episodic_prefix_sum.yaml:20
        if sums_array is not None:
            sums_array[t] = sums  # episodic_prefix_sum.yaml:20
        c_in = c


def launch(time_major, x, done, start, initial_sum, sums, lanes=None):
    """Run the loop on NumPy arrays: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    lanes: only the environments lo ≤ b < hi.
    """
    out = sums
    lo, hi = lanes or (0, out.shape[1 if time_major else 0])

    def part(x, timed):
        """The array's environments lo … hi, time first."""
        if x is None:
            return None
        if not timed:
            return x[lo:hi]
        return (x if time_major else x.swapaxes(0, 1))[:, lo:hi]

    F = x.shape[2]
    with np.errstate(all="ignore"):
        kernel(
            out.dtype.type,
            out.shape[0 if time_major else 1],
            F,
            part(x, True),
            part(done, True),
            part(start, True),
            part(initial_sum, False),
            part(sums, True),
        )
