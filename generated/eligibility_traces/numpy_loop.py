"""Accumulating eligibility traces.

    z[t] = γ · λ · z[t−1] + features[t],   z[−1] = initial_trace
        z[t−1] dropped where terminated[t−1] or truncated[t−1]
    traces[t] = z[t]
    terminated[−1] = false
    truncated[−1] = false

Sutton & Barto 2018, section 12.2

Schedule loop, forward in time.
"""
# spec: eligibility_traces.yaml
# spec sha256: 77fb698507119cc60b1edea1ef5bcf8c086354c280344f4954bd15fcae728ec5
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import numpy as np


def kernel(number, T, F, features_array, terminated_array, truncated_array, initial_trace_array, traces_array, gamma_value, lam_value, gamma_each, lam_each):
    """All environments at once, step by step. Arrays are [T, B, …]; `number` is their type."""
    if initial_trace_array is None:
        initial_trace = number(0)  # eligibility_traces.yaml:9
    else:
        initial_trace = initial_trace_array[:, :]  # eligibility_traces.yaml:9
    z_in = initial_trace
    for step in range(T):
        t = step
        terminated_prev = terminated_array[max(t - 1, 0), :][:, None] != 0 if t - 1 >= 0 else np.bool_(False)  # eligibility_traces.yaml:7
        if truncated_array is None:
            truncated_prev = np.bool_(False)  # eligibility_traces.yaml:8
        else:
            truncated_prev = truncated_array[max(t - 1, 0), :][:, None] != 0 if t - 1 >= 0 else np.bool_(False)  # eligibility_traces.yaml:8
        if gamma_each is None:
            gamma = number(gamma_value)  # eligibility_traces.yaml:11
        else:
            gamma = gamma_each[t][:, None]
        if lam_each is None:
            lam = number(lam_value)  # eligibility_traces.yaml:12
        else:
            lam = lam_each[t][:, None]
        features = features_array[t, :, :]  # eligibility_traces.yaml:6
        a = np.where(terminated_prev | truncated_prev, number(0), gamma * lam)  # eligibility_traces.yaml:19
        b = features  # eligibility_traces.yaml:20
        z = np.where(a == number(0), b, a * z_in + b)
        traces = z  # eligibility_traces.yaml:24
        if traces_array is not None:
            traces_array[t] = traces  # eligibility_traces.yaml:24
        z_in = z


def launch(time_major, features, terminated, truncated, initial_trace, traces, gamma, lam, lanes=None):
    """Run the loop on NumPy arrays: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    lanes: only the environments lo ≤ b < hi.
    """
    out = traces
    lo, hi = lanes or (0, out.shape[1 if time_major else 0])

    def part(x, timed):
        """The array's environments lo … hi, time first."""
        if x is None:
            return None
        if not timed:
            return x[lo:hi]
        return (x if time_major else x.swapaxes(0, 1))[:, lo:hi]

    F = features.shape[2]
    with np.errstate(all="ignore"):
        kernel(
            out.dtype.type,
            out.shape[0 if time_major else 1],
            F,
            part(features, True),
            part(terminated, True),
            part(truncated, True),
            part(initial_trace, False),
            part(traces, True),
            0.0 if isinstance(gamma, np.ndarray) else float(gamma),
            0.0 if isinstance(lam, np.ndarray) else float(lam),
            part(gamma, True) if isinstance(gamma, np.ndarray) else None,
            part(lam, True) if isinstance(lam, np.ndarray) else None,
        )
