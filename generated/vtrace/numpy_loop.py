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

Schedule loop, backward in time.
"""
# spec: vtrace.yaml
# spec sha256: 76fb588801ab38c7b65fdc1dcfcd55ba5bd989a5869ba61dafda86b3bf0ceacd
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import numpy as np


def kernel(number, T, target_log_probs_array, behavior_log_probs_array, rewards_array, values_array, terminated_array, truncated_array, final_values_array, last_value_array, vs_array, pg_advantages_array, gamma_value, lam_value, rho_bar_value, c_bar_value, pg_rho_bar_value, gamma_each, lam_each, rho_bar_each, c_bar_each, pg_rho_bar_each):
    """All environments at once, step by step. Arrays are [T, B, …]; `number` is their type."""
    last_value = last_value_array[:]  # vtrace.yaml:13
    dv_in = number(0)
    for step in range(T):
        t = T - 1 - step
        terminated = terminated_array[t, :] != 0  # vtrace.yaml:10
        if truncated_array is None:
            truncated = np.bool_(False)  # vtrace.yaml:11
        else:
            truncated = truncated_array[t, :] != 0  # vtrace.yaml:11
        if gamma_each is None:
            gamma = number(gamma_value)  # vtrace.yaml:16
        else:
            gamma = gamma_each[t]
        if lam_each is None:
            lam = number(lam_value)  # vtrace.yaml:17
        else:
            lam = lam_each[t]
        if c_bar_each is None:
            c_bar = number(c_bar_value)  # vtrace.yaml:19
        else:
            c_bar = c_bar_each[t]
        target_log_probs = target_log_probs_array[t, :]  # vtrace.yaml:6
        behavior_log_probs = behavior_log_probs_array[t, :]  # vtrace.yaml:7
        w = np.where(target_log_probs == -number(np.inf), number(0), np.exp(target_log_probs - behavior_log_probs))  # vtrace.yaml:26
        c = lam * np.minimum(c_bar, w)  # vtrace.yaml:28
        if rho_bar_each is None:
            rho_bar = number(rho_bar_value)  # vtrace.yaml:18
        else:
            rho_bar = rho_bar_each[t]
        rho = np.minimum(rho_bar, w)  # vtrace.yaml:27
        rewards = rewards_array[t, :]  # vtrace.yaml:8
        if final_values_array is None:
            final_values = number(0)  # vtrace.yaml:12
        else:
            final_values = final_values_array[t, :]  # vtrace.yaml:12
        values_next = values_array[min(t + 1, T - 1), :] if t + 1 < T else last_value  # vtrace.yaml:9
        next_value = np.where(terminated, number(0), np.where(truncated, final_values, values_next))  # vtrace.yaml:29
        values = values_array[t, :]  # vtrace.yaml:9
        delta = rho * (rewards + gamma * next_value - values)  # vtrace.yaml:31
        a = np.where(terminated | truncated, number(0), gamma * c)  # vtrace.yaml:35
        b = delta  # vtrace.yaml:36
        dv = np.where((a == number(0)) | (dv_in == number(0)), b, a * dv_in + b)
        if vs_array is not None:
            vs = values + dv  # vtrace.yaml:40
            vs_array[t] = vs  # vtrace.yaml:40
        if pg_advantages_array is not None:
            if pg_rho_bar_each is None:
                pg_rho_bar = number(pg_rho_bar_value)  # vtrace.yaml:20
            else:
                pg_rho_bar = pg_rho_bar_each[t]
            values_next_ = values_array[min(t + 1, T - 1), :] if t + 1 < T else number(0)  # vtrace.yaml:9
            dv_next = dv_in
            vs_next = np.where(t + 1 < T, values_next_ + dv_next, last_value)  # vtrace.yaml:40
            next_vs = np.where(terminated, number(0), np.where(truncated, final_values, vs_next))  # vtrace.yaml:30
            pg_advantages = np.minimum(pg_rho_bar, w) * (rewards + gamma * next_vs - values)  # vtrace.yaml:41
            pg_advantages_array[t] = pg_advantages  # vtrace.yaml:41
        dv_in = dv


def launch(time_major, target_log_probs, behavior_log_probs, rewards, values, terminated, truncated, final_values, last_value, vs, pg_advantages, gamma, lam, rho_bar, c_bar, pg_rho_bar, lanes=None):
    """Run the loop on NumPy arrays: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    lanes: only the environments lo ≤ b < hi.
    """
    out = next(x for x in (vs, pg_advantages) if x is not None)
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
            part(target_log_probs, True),
            part(behavior_log_probs, True),
            part(rewards, True),
            part(values, True),
            part(terminated, True),
            part(truncated, True),
            part(final_values, True),
            part(last_value, False),
            part(vs, True),
            part(pg_advantages, True),
            0.0 if isinstance(gamma, np.ndarray) else float(gamma),
            0.0 if isinstance(lam, np.ndarray) else float(lam),
            0.0 if isinstance(rho_bar, np.ndarray) else float(rho_bar),
            0.0 if isinstance(c_bar, np.ndarray) else float(c_bar),
            0.0 if isinstance(pg_rho_bar, np.ndarray) else float(pg_rho_bar),
            part(gamma, True) if isinstance(gamma, np.ndarray) else None,
            part(lam, True) if isinstance(lam, np.ndarray) else None,
            part(rho_bar, True) if isinstance(rho_bar, np.ndarray) else None,
            part(c_bar, True) if isinstance(c_bar, np.ndarray) else None,
            part(pg_rho_bar, True) if isinstance(pg_rho_bar, np.ndarray) else None,
        )
