"""Retrace(λ) targets and advantages.

    q[t] = q_values[t](actions[t])
    ev[t] = Σ_A target_probs[t] · q_values[t]
    w[t] = target_probs[t](actions[t]) / behavior_probs[t]
    c[t] = λ · clip(w[t], 0, c_bar)
    next_value[t] = {0 if terminated[t], else {final_values[t] if truncated[t], else ev[t+1]}}
    next_q[t] = {0 if terminated[t], else {final_values[t] if truncated[t], else targets[t+1]}}
    d[t] = γ · c[t+1] · d[t+1] + rewards[t] + γ · next_value[t] − q[t],   d[T] = 0
        d[t+1] dropped where terminated[t] or truncated[t]
    targets[t] = q[t] + d[t]
    advantages[t] = min(ρ_bar, w[t]) · (rewards[t] + γ · next_q[t] − q[t])
    ev[T] = Σ_A last_target_probs · last_q_values
    targets[T] = Σ_A last_target_probs · last_q_values
    c[T] = 0

Munos et al. 2016, arXiv:1606.02647

Schedule loop, backward in time.
"""
# spec: retrace.yaml
# spec sha256: 17f4f5910d22ae423e894bd8a127ca44ff47cbd96de9431d151990dd5f147ae0
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import numpy as np


def take(x, index):
    """The element of x at index along its last axis; NaN where the index is out of range."""
    fits = (index >= 0) & (index < x.shape[-1])
    found = np.take_along_axis(x, np.where(fits, index, 0)[..., None], -1)[..., 0]
    return np.where(fits, found, np.nan)


def kernel(number, T, A, q_values_array, target_probs_array, behavior_probs_array, actions_array, rewards_array, terminated_array, truncated_array, final_values_array, last_q_values_array, last_target_probs_array, targets_array, advantages_array, gamma_value, lam_value, c_bar_value, rho_bar_value, gamma_each, lam_each, c_bar_each, rho_bar_each):
    """All environments at once, step by step. Arrays are [T, B, …]; `number` is their type."""
    sum_a = number(0)  # retrace.yaml:23
    for a_at in range(A):
        last_target_probs = last_target_probs_array[:, a_at]  # retrace.yaml:15
        last_q_values = last_q_values_array[:, a_at]  # retrace.yaml:14
        sum_a = sum_a + last_target_probs * last_q_values
    d_in = number(0)
    c_in = number(0)
    ev_in = sum_a
    if advantages_array is not None:
        targets_in = sum_a
    for step in range(T):
        t = T - 1 - step
        terminated = terminated_array[t, :] != 0  # retrace.yaml:11
        if truncated_array is None:
            truncated = np.bool_(False)  # retrace.yaml:12
        else:
            truncated = truncated_array[t, :] != 0  # retrace.yaml:12
        if gamma_each is None:
            gamma = number(gamma_value)  # retrace.yaml:18
        else:
            gamma = gamma_each[t]
        if lam_each is None:
            lam = number(lam_value)  # retrace.yaml:19
        else:
            lam = lam_each[t]
        actions = actions_array[t, :]  # retrace.yaml:9
        target_probs_taken = take(target_probs_array[t, :, :], actions)  # retrace.yaml:7
        behavior_probs = behavior_probs_array[t, :]  # retrace.yaml:8
        w = target_probs_taken / behavior_probs  # retrace.yaml:29
        if c_bar_each is None:
            c_bar = number(c_bar_value)  # retrace.yaml:20
        else:
            c_bar = c_bar_each[t]
        c = lam * np.minimum(np.maximum(w, number(0)), c_bar)  # retrace.yaml:30
        c_next = c_in
        rewards = rewards_array[t, :]  # retrace.yaml:10
        if final_values_array is None:
            final_values = number(0)  # retrace.yaml:13
        else:
            final_values = final_values_array[t, :]  # retrace.yaml:13
        sum_a_ = number(0)  # retrace.yaml:28
        for a_at_ in range(A):
            target_probs = target_probs_array[t, :, a_at_]  # retrace.yaml:7
            q_values = q_values_array[t, :, a_at_]  # retrace.yaml:6
            sum_a_ = sum_a_ + target_probs * q_values
        ev = sum_a_  # retrace.yaml:28
        ev_next = ev_in
        next_value = np.where(terminated, number(0), np.where(truncated, final_values, ev_next))  # retrace.yaml:31
        q_values_taken = take(q_values_array[t, :, :], actions)  # retrace.yaml:6
        q = q_values_taken  # retrace.yaml:27
        a = np.where(terminated | truncated, number(0), gamma * c_next)  # retrace.yaml:36
        b = rewards + gamma * next_value - q  # retrace.yaml:37
        d = np.where((a == number(0)) | (d_in == number(0)), b, a * d_in + b)
        targets = q + d  # retrace.yaml:41
        if targets_array is not None:
            targets_array[t] = targets  # retrace.yaml:41
        if advantages_array is not None:
            if rho_bar_each is None:
                rho_bar = number(rho_bar_value)  # retrace.yaml:21
            else:
                rho_bar = rho_bar_each[t]
            targets_next = targets_in
            next_q = np.where(terminated, number(0), np.where(truncated, final_values, targets_next))  # retrace.yaml:32
            advantages = np.minimum(rho_bar, w) * (rewards + gamma * next_q - q)  # retrace.yaml:42
            advantages_array[t] = advantages  # retrace.yaml:42
        d_in = d
        c_in = c
        ev_in = ev
        if advantages_array is not None:
            targets_in = targets


def launch(time_major, q_values, target_probs, behavior_probs, actions, rewards, terminated, truncated, final_values, last_q_values, last_target_probs, targets, advantages, gamma, lam, c_bar, rho_bar, lanes=None):
    """Run the loop on NumPy arrays: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    lanes: only the environments lo ≤ b < hi.
    """
    out = next(x for x in (targets, advantages) if x is not None)
    lo, hi = lanes or (0, out.shape[1 if time_major else 0])

    def part(x, timed):
        """The array's environments lo … hi, time first."""
        if x is None:
            return None
        if not timed:
            return x[lo:hi]
        return (x if time_major else x.swapaxes(0, 1))[:, lo:hi]

    A = q_values.shape[2]
    with np.errstate(all="ignore"):
        kernel(
            out.dtype.type,
            out.shape[0 if time_major else 1],
            A,
            part(q_values, True),
            part(target_probs, True),
            part(behavior_probs, True),
            part(actions, True),
            part(rewards, True),
            part(terminated, True),
            part(truncated, True),
            part(final_values, True),
            part(last_q_values, False),
            part(last_target_probs, False),
            part(targets, True),
            part(advantages, True),
            0.0 if isinstance(gamma, np.ndarray) else float(gamma),
            0.0 if isinstance(lam, np.ndarray) else float(lam),
            0.0 if isinstance(c_bar, np.ndarray) else float(c_bar),
            0.0 if isinstance(rho_bar, np.ndarray) else float(rho_bar),
            part(gamma, True) if isinstance(gamma, np.ndarray) else None,
            part(lam, True) if isinstance(lam, np.ndarray) else None,
            part(c_bar, True) if isinstance(c_bar, np.ndarray) else None,
            part(rho_bar, True) if isinstance(rho_bar, np.ndarray) else None,
        )
