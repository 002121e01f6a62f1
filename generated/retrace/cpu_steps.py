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

Schedule steps, backward in time.
"""
# spec: retrace.yaml
# spec sha256: 17f4f5910d22ae423e894bd8a127ca44ff47cbd96de9431d151990dd5f147ae0
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import functools

import numba
import numpy as np


@numba.njit(inline="always")
def take(x, index):
    """x[index], or NaN where the index is out of range."""
    return x[index] if 0 <= index < x.shape[0] else x.dtype.type(np.nan)


def kernel(number, lo, hi, T, A, q_values_array, target_probs_array, behavior_probs_array, actions_array, rewards_array, terminated_array, truncated_array, final_values_array, last_q_values_array, last_target_probs_array, targets_array, advantages_array, gamma_value, lam_value, c_bar_value, rho_bar_value, gamma_each, lam_each, c_bar_each, rho_bar_each):
    """Environments lo ≤ b < hi in blocks, each block step by step. Arrays are [T, B, …]; `number` is their type."""
    width = 512
    for block in range(-(-(hi - lo) // width)):
        left = lo + block * width
        right = min(left + width, hi)
        last_target_probs_all = last_target_probs_array[left:right, :]
        last_q_values_all = last_q_values_array[left:right, :]
        d_state = np.empty(right - left, number)
        c_state = np.empty(right - left, number)
        ev_state = np.empty(right - left, number)
        targets_state = np.empty(right - left, number)
        for i in range(right - left):
            sum_a = number(0)  # retrace.yaml:23
            for a_at in range(A):
                last_target_probs = last_target_probs_all[i, a_at]  # retrace.yaml:15
                last_q_values = last_q_values_all[i, a_at]  # retrace.yaml:14
                sum_a = sum_a + last_target_probs * last_q_values
            d_state[i] = number(0)
            c_state[i] = number(0)
            ev_state[i] = sum_a
            if advantages_array is not None:
                targets_state[i] = sum_a
        for step in range(T):
            t = T - 1 - step
            terminated_step = terminated_array[t, left:right]
            if truncated_array is not None:
                truncated_step = truncated_array[t, left:right]
            actions_step = actions_array[t, left:right]
            target_probs_step = target_probs_array[t, left:right, :]
            behavior_probs_step = behavior_probs_array[t, left:right]
            rewards_step = rewards_array[t, left:right]
            if final_values_array is not None:
                final_values_step = final_values_array[t, left:right]
            q_values_step = q_values_array[t, left:right, :]
            for i in range(right - left):
                sum_a = number(0)  # retrace.yaml:23
                for a_at in range(A):
                    last_target_probs = last_target_probs_all[i, a_at]  # retrace.yaml:15
                    last_q_values = last_q_values_all[i, a_at]  # retrace.yaml:14
                    sum_a = sum_a + last_target_probs * last_q_values
                d_in = d_state[i]
                c_in = c_state[i]
                ev_in = ev_state[i]
                targets_in = targets_state[i]
                terminated = terminated_step[i] != 0  # retrace.yaml:11
                if truncated_array is None:
                    truncated = False  # retrace.yaml:12
                else:
                    truncated = truncated_step[i] != 0  # retrace.yaml:12
                if gamma_each is None:
                    gamma = number(gamma_value)  # retrace.yaml:18
                else:
                    gamma = gamma_each[t, left + i]
                if lam_each is None:
                    lam = number(lam_value)  # retrace.yaml:19
                else:
                    lam = lam_each[t, left + i]
                actions = actions_step[i]  # retrace.yaml:9
                target_probs_taken = take(target_probs_step[i], actions)  # retrace.yaml:7
                behavior_probs = behavior_probs_step[i]  # retrace.yaml:8
                w = target_probs_taken / behavior_probs  # retrace.yaml:29
                if c_bar_each is None:
                    c_bar = number(c_bar_value)  # retrace.yaml:20
                else:
                    c_bar = c_bar_each[t, left + i]
                c = lam * np.minimum(np.maximum(w, number(0)), c_bar)  # retrace.yaml:30
                c_next = c_in
                rewards = rewards_step[i]  # retrace.yaml:10
                if final_values_array is None:
                    final_values = number(0)  # retrace.yaml:13
                else:
                    final_values = final_values_step[i]  # retrace.yaml:13
                sum_a_ = number(0)  # retrace.yaml:28
                for a_at_ in range(A):
                    target_probs = target_probs_step[i, a_at_]  # retrace.yaml:7
                    q_values = q_values_step[i, a_at_]  # retrace.yaml:6
                    sum_a_ = sum_a_ + target_probs * q_values
                ev = sum_a_  # retrace.yaml:28
                ev_next = ev_in
                next_value = (number(0) if terminated else (final_values if truncated else ev_next))  # retrace.yaml:31
                q_values_taken = take(q_values_step[i], actions)  # retrace.yaml:6
                q = q_values_taken  # retrace.yaml:27
                a = (number(0) if terminated or truncated else gamma * c_next)  # retrace.yaml:36
                b = rewards + gamma * next_value - q  # retrace.yaml:37
                d = (b if a == number(0) or d_in == number(0) else a * d_in + b)
                targets = q + d  # retrace.yaml:41
                if targets_array is not None:
                    targets_array[t, left + i] = targets  # retrace.yaml:41
                if advantages_array is not None:
                    if rho_bar_each is None:
                        rho_bar = number(rho_bar_value)  # retrace.yaml:21
                    else:
                        rho_bar = rho_bar_each[t, left + i]
                    targets_next = targets_in
                    next_q = (number(0) if terminated else (final_values if truncated else targets_next))  # retrace.yaml:32
                    advantages = np.minimum(rho_bar, w) * (rewards + gamma * next_q - q)  # retrace.yaml:42
                    advantages_array[t, left + i] = advantages  # retrace.yaml:42
                d_state[i] = d
                c_state[i] = c
                ev_state[i] = ev
                if advantages_array is not None:
                    targets_state[i] = targets


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


def launch(time_major, q_values, target_probs, behavior_probs, actions, rewards, terminated, truncated, final_values, last_q_values, last_target_probs, targets, advantages, gamma, lam, c_bar, rho_bar, lanes=None):
    """Run the kernel on NumPy arrays: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    lanes: only the environments lo ≤ b < hi; calls on disjoint ranges may run at the same time.
    """
    swap = (lambda x: x) if time_major else (lambda x: None if x is None else x.swapaxes(0, 1))
    out = next(x for x in (targets, advantages) if x is not None)
    lo, hi = lanes or (0, out.shape[1 if time_major else 0])
    A = q_values.shape[2]
    arguments = (
        out.dtype.type,
        lo,
        hi,
        out.shape[0 if time_major else 1],
        A,
        swap(q_values),
        swap(target_probs),
        swap(behavior_probs),
        swap(actions),
        swap(rewards),
        swap(terminated),
        swap(truncated),
        swap(final_values),
        last_q_values,
        last_target_probs,
        swap(targets),
        swap(advantages),
        0.0 if isinstance(gamma, np.ndarray) else float(gamma),
        0.0 if isinstance(lam, np.ndarray) else float(lam),
        0.0 if isinstance(c_bar, np.ndarray) else float(c_bar),
        0.0 if isinstance(rho_bar, np.ndarray) else float(rho_bar),
        swap(gamma) if isinstance(gamma, np.ndarray) else None,
        swap(lam) if isinstance(lam, np.ndarray) else None,
        swap(c_bar) if isinstance(c_bar, np.ndarray) else None,
        swap(rho_bar) if isinstance(rho_bar, np.ndarray) else None,
    )
    variant(signature(arguments))(*arguments)
