"""V-trace targets and policy-gradient advantages.

    w[t] = {0 if target_log_probs[t] = −∞, else exp(target_log_probs[t] − behavior_log_probs[t])}
    ρ[t] = min(ρ_bar, w[t])
    c[t] = λ · min(c_bar, w[t])
    next_value[t] = {0 if terminated[t], else {final_values[t] if truncated[t], else values[t+1]}}
    next_vs[t] = {0 if terminated[t], else {final_values[t] if truncated[t], else vs[t+1]}}
    δ[t] = ρ[t] · (rewards[t] + γ · next_value[t] − values[t])
    dv[t] = γ · c[t] · dv[t+1] + δ[t],   dv[T] = 0
        dv[t+1] dropped where terminated[t] or truncated[t]
    vs[t] = values[t] + dv[t]
    pg_advantages[t] = min(pg_rho_bar, w[t]) · (rewards[t] + γ · next_vs[t] − values[t])
    values[T] = last_value
    vs[T] = last_value

Espeholt et al. 2018, arXiv:1802.01561

Schedule rows, backward in time.
"""
# spec: vtrace.yaml
# spec sha256: 76fb588801ab38c7b65fdc1dcfcd55ba5bd989a5869ba61dafda86b3bf0ceacd
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import functools

import numba
import numpy as np


def kernel(number, lo, hi, T, target_log_probs_array, behavior_log_probs_array, rewards_array, values_array, terminated_array, truncated_array, final_values_array, last_value_array, vs_array, pg_advantages_array, gamma_value, lam_value, rho_bar_value, c_bar_value, pg_rho_bar_value, gamma_each, lam_each, rho_bar_each, c_bar_each, pg_rho_bar_each):
    """Environments lo ≤ b < hi one after another, each step by step. Arrays are [B, T, …]; `number` is their type."""
    for env in range(lo, hi):
        last_value_row = last_value_array[env]
        terminated_row = terminated_array[env, :]
        if truncated_array is not None:
            truncated_row = truncated_array[env, :]
        target_log_probs_row = target_log_probs_array[env, :]
        behavior_log_probs_row = behavior_log_probs_array[env, :]
        rewards_row = rewards_array[env, :]
        if final_values_array is not None:
            final_values_row = final_values_array[env, :]
        values_row = values_array[env, :]
        last_value = last_value_row  # vtrace.yaml:13
        dv_in = number(0)
        for step in range(T):
            t = T - 1 - step
            terminated = terminated_row[t] != 0  # vtrace.yaml:10
            if truncated_array is None:
                truncated = False  # vtrace.yaml:11
            else:
                truncated = truncated_row[t] != 0  # vtrace.yaml:11
            if gamma_each is None:
                gamma = number(gamma_value)  # vtrace.yaml:16
            else:
                gamma = gamma_each[env, t]
            if lam_each is None:
                lam = number(lam_value)  # vtrace.yaml:17
            else:
                lam = lam_each[env, t]
            if c_bar_each is None:
                c_bar = number(c_bar_value)  # vtrace.yaml:19
            else:
                c_bar = c_bar_each[env, t]
            target_log_probs = target_log_probs_row[t]  # vtrace.yaml:6
            behavior_log_probs = behavior_log_probs_row[t]  # vtrace.yaml:7
            w = (number(0) if target_log_probs == -number(np.inf) else np.exp(target_log_probs - behavior_log_probs))  # vtrace.yaml:26
            c = lam * np.minimum(c_bar, w)  # vtrace.yaml:28
            if rho_bar_each is None:
                rho_bar = number(rho_bar_value)  # vtrace.yaml:18
            else:
                rho_bar = rho_bar_each[env, t]
            rho = np.minimum(rho_bar, w)  # vtrace.yaml:27
            rewards = rewards_row[t]  # vtrace.yaml:8
            if final_values_array is None:
                final_values = number(0)  # vtrace.yaml:12
            else:
                final_values = final_values_row[t]  # vtrace.yaml:12
            values_next = values_row[t + 1] if t + 1 < T else last_value  # vtrace.yaml:9
            next_value = (number(0) if terminated else (final_values if truncated else values_next))  # vtrace.yaml:29
            values = values_row[t]  # vtrace.yaml:9
            delta = rho * (rewards + gamma * next_value - values)  # vtrace.yaml:31
            a = (number(0) if terminated or truncated else gamma * c)  # vtrace.yaml:35
            b = delta  # vtrace.yaml:36
            dv = (b if a == number(0) or dv_in == number(0) else a * dv_in + b)
            if vs_array is not None:
                vs = values + dv  # vtrace.yaml:40
                vs_array[env, t] = vs  # vtrace.yaml:40
            if pg_advantages_array is not None:
                if pg_rho_bar_each is None:
                    pg_rho_bar = number(pg_rho_bar_value)  # vtrace.yaml:20
                else:
                    pg_rho_bar = pg_rho_bar_each[env, t]
                values_next_ = values_row[t + 1] if t + 1 < T else number(0)  # vtrace.yaml:9
                dv_next = dv_in
                vs_next = (values_next_ + dv_next if t + 1 < T else last_value)  # vtrace.yaml:40
                next_vs = (number(0) if terminated else (final_values if truncated else vs_next))  # vtrace.yaml:30
                pg_advantages = np.minimum(pg_rho_bar, w) * (rewards + gamma * next_vs - values)  # vtrace.yaml:41
                pg_advantages_array[env, t] = pg_advantages  # vtrace.yaml:41
            dv_in = dv


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


def launch(time_major, target_log_probs, behavior_log_probs, rewards, values, terminated, truncated, final_values, last_value, vs, pg_advantages, gamma, lam, rho_bar, c_bar, pg_rho_bar, lanes=None):
    """Run the kernel on NumPy arrays: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    lanes: only the environments lo ≤ b < hi; calls on disjoint ranges may run at the same time.
    """
    swap = (lambda x: None if x is None else x.swapaxes(0, 1)) if time_major else (lambda x: x)
    out = next(x for x in (vs, pg_advantages) if x is not None)
    lo, hi = lanes or (0, out.shape[1 if time_major else 0])
    arguments = (
        out.dtype.type,
        lo,
        hi,
        out.shape[0 if time_major else 1],
        swap(target_log_probs),
        swap(behavior_log_probs),
        swap(rewards),
        swap(values),
        swap(terminated),
        swap(truncated),
        swap(final_values),
        last_value,
        swap(vs),
        swap(pg_advantages),
        0.0 if isinstance(gamma, np.ndarray) else float(gamma),
        0.0 if isinstance(lam, np.ndarray) else float(lam),
        0.0 if isinstance(rho_bar, np.ndarray) else float(rho_bar),
        0.0 if isinstance(c_bar, np.ndarray) else float(c_bar),
        0.0 if isinstance(pg_rho_bar, np.ndarray) else float(pg_rho_bar),
        swap(gamma) if isinstance(gamma, np.ndarray) else None,
        swap(lam) if isinstance(lam, np.ndarray) else None,
        swap(rho_bar) if isinstance(rho_bar, np.ndarray) else None,
        swap(c_bar) if isinstance(c_bar, np.ndarray) else None,
        swap(pg_rho_bar) if isinstance(pg_rho_bar, np.ndarray) else None,
    )
    variant(signature(arguments))(*arguments)
