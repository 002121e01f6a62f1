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

Schedule chunks, backward in time.
"""
# spec: retrace.yaml
# spec sha256: 17f4f5910d22ae423e894bd8a127ca44ff47cbd96de9431d151990dd5f147ae0
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import math

import torch
import triton
import triton.language as tl

# Where addresses descend, Triton 3.6 lays a block's first axis along memory, and later versions its last.
FAST = 0 if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7) else 1


@triton.jit
def combine(a_first, b_first, a_second, b_second):
    """The step `second` after the step `first`."""
    return (
        tl.where((a_second == 0) | (a_first == 0), 0, a_second * a_first),
        tl.where((a_second == 0) | (b_first == 0), b_second, a_second * b_first + b_second),
    )


@triton.jit
def combine_tame(a_first, b_first, a_second, b_second):
    """The step `second` after the step `first`, where no coefficient is beyond 1."""
    return (
        tl.where(a_second == 0, 0, a_second * a_first),
        tl.where(a_second == 0, b_second, a_second * b_first + b_second),
    )


@triton.jit
def larger(x, y):
    """The larger; NaN where either is."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smaller(x, y):
    """The smaller; NaN where either is."""
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def nearest(x_first, past_first, met_first, x_second, past_second, met_second):
    """Of two runs of slots, one after the other: the last x, the x before that one, and that there is one."""
    return x_second, tl.where(met_second, past_second, x_first), met_first | True


@triton.jit
def earlier(x, arrived, slot, AXIS: tl.constexpr, SHAPE: tl.constexpr):
    """x of the slot before; at the block's first slot, what arrived there. A thread's own slots cost it nothing."""
    _, past, _ = tl.associative_scan((x, x, tl.full(SHAPE, False, tl.int1)), AXIS, nearest)
    return tl.where(slot == 0, arrived, past)


@triton.jit
def composed(
    q_values_ptr,
    target_probs_ptr,
    behavior_probs_ptr,
    actions_ptr,
    rewards_ptr,
    terminated_ptr,
    truncated_ptr,
    final_values_ptr,
    last_q_values_ptr,
    last_target_probs_ptr,
    targets_ptr,
    advantages_ptr,
    gamma_ptr,
    lam_ptr,
    c_bar_ptr,
    rho_bar_ptr,
    gamma_value: "fp64",
    lam_value: "fp64",
    c_bar_value: "fp64",
    rho_bar_value: "fp64",
    a_composed_ptr,
    b_composed_ptr,
    d_arriving_ptr,
    q_values_b,
    q_values_t,
    q_values_a,
    target_probs_b,
    target_probs_t,
    target_probs_a,
    behavior_probs_b,
    behavior_probs_t,
    actions_b,
    actions_t,
    rewards_b,
    rewards_t,
    terminated_b,
    terminated_t,
    truncated_b,
    truncated_t,
    final_values_b,
    final_values_t,
    last_q_values_b,
    last_q_values_a,
    last_target_probs_b,
    last_target_probs_a,
    targets_b,
    targets_t,
    advantages_b,
    advantages_t,
    gamma_b,
    gamma_t,
    lam_b,
    lam_t,
    c_bar_b,
    c_bar_t,
    rho_bar_b,
    rho_bar_t,
    B,
    T,
    A: tl.constexpr,
    A_BLOCK: tl.constexpr,
    A_ALIGN: tl.constexpr,
    CHUNK,
    CHUNKS,
    ACC: tl.constexpr,
    INDEX: tl.constexpr,
    AXIS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
    MANY: tl.constexpr,
    MOST: tl.constexpr,
    TAME: tl.constexpr,
):
    """All steps of each chunk as one: a program owns LANES environments and CHUNK steps of theirs, in blocks of BLOCK slots."""
    UNIT: tl.constexpr = [1, 1]
    # Time lies along the block's first axis or its last: along that which Triton lays along memory.
    SHAPE: tl.constexpr = [BLOCK, LANES] if AXIS == 0 else [LANES, BLOCK]
    NARROW: tl.constexpr = [1, LANES] if AXIS == 0 else [LANES, 1]
    slot = tl.arange(0, BLOCK)[:, None] if AXIS == 0 else tl.arange(0, BLOCK)[None, :]
    lane = tl.arange(0, LANES)[None, :] if AXIS == 0 else tl.arange(0, LANES)[:, None]
    chunk = tl.program_id(1)
    place = chunk * CHUNK + slot
    least = tl.maximum(T - (chunk + 1) * CHUNK, 0)
    lane += tl.program_id(0).to(INDEX) * LANES
    live = lane < B
    env = lane
    sum_a = tl.full(NARROW, 0, ACC)  # retrace.yaml:23
    for a_block in range(0, A, A_BLOCK):
        a_at = (a_block + tl.arange(0, A_BLOCK)[:, None, None]).to(INDEX)
        last_target_probs = tl.load(last_target_probs_ptr + (env * (last_target_probs_b // A_ALIGN)) * A_ALIGN + a_at * last_target_probs_a, mask=live & (a_at < A), other=0).to(ACC)  # retrace.yaml:15
        last_q_values = tl.load(last_q_values_ptr + (env * (last_q_values_b // A_ALIGN)) * A_ALIGN + a_at * last_q_values_a, mask=live & (a_at < A), other=0).to(ACC)  # retrace.yaml:14
        sum_a = sum_a + tl.sum(tl.where(a_at < A, last_target_probs * last_q_values, 0), 0)
    a_run = tl.full(NARROW, 1, ACC)
    b_run = tl.full(NARROW, 0, ACC)
    t_ahead = (T - 1 - place).to(INDEX)
    here_ahead = live & (t_ahead >= least)
    terminated_ahead = tl.load(terminated_ptr + env * terminated_b + t_ahead * terminated_t, mask=here_ahead, other=0)
    if truncated_ptr is not None:
        truncated_ahead = tl.load(truncated_ptr + env * truncated_b + t_ahead * truncated_t, mask=here_ahead, other=0)
    actions_next_ahead = tl.load(actions_ptr + env * actions_b + (t_ahead + 1) * actions_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
    behavior_probs_next_ahead = tl.load(behavior_probs_ptr + env * behavior_probs_b + (t_ahead + 1) * behavior_probs_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
    rewards_ahead = tl.load(rewards_ptr + env * rewards_b + t_ahead * rewards_t, mask=here_ahead, other=0)
    if final_values_ptr is not None:
        final_values_ahead = tl.load(final_values_ptr + env * final_values_b + t_ahead * final_values_t, mask=here_ahead, other=0)
    actions_ahead = tl.load(actions_ptr + env * actions_b + t_ahead * actions_t, mask=here_ahead, other=0)
    for block in range(tl.cdiv(tl.minimum(CHUNK, T - chunk * CHUNK), BLOCK)):
        t = t_ahead
        here = here_ahead
        terminated = terminated_ahead != 0  # retrace.yaml:11
        if truncated_ptr is None:
            truncated = tl.full(UNIT, False, tl.int1)  # retrace.yaml:12
        else:
            truncated = truncated_ahead != 0
        actions_next = actions_next_ahead  # retrace.yaml:9
        behavior_probs_next = behavior_probs_next_ahead.to(ACC)  # retrace.yaml:8
        rewards = rewards_ahead.to(ACC)  # retrace.yaml:10
        if final_values_ptr is None:
            final_values = tl.full(UNIT, 0, ACC)  # retrace.yaml:13
        else:
            final_values = final_values_ahead.to(ACC)
        actions = actions_ahead  # retrace.yaml:9
        if MANY:
            # The next block's reads are under way while this one is computed.
            t_ahead = t - BLOCK
            here_ahead = live & (t_ahead >= least)
            terminated_ahead = tl.load(terminated_ptr + env * terminated_b + t_ahead * terminated_t, mask=here_ahead, other=0)
            if truncated_ptr is not None:
                truncated_ahead = tl.load(truncated_ptr + env * truncated_b + t_ahead * truncated_t, mask=here_ahead, other=0)
            actions_next_ahead = tl.load(actions_ptr + env * actions_b + (t_ahead + 1) * actions_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
            behavior_probs_next_ahead = tl.load(behavior_probs_ptr + env * behavior_probs_b + (t_ahead + 1) * behavior_probs_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
            rewards_ahead = tl.load(rewards_ptr + env * rewards_b + t_ahead * rewards_t, mask=here_ahead, other=0)
            if final_values_ptr is not None:
                final_values_ahead = tl.load(final_values_ptr + env * final_values_b + t_ahead * final_values_t, mask=here_ahead, other=0)
            actions_ahead = tl.load(actions_ptr + env * actions_b + t_ahead * actions_t, mask=here_ahead, other=0)
        if gamma_ptr is None:
            gamma = tl.full(UNIT, gamma_value, ACC)  # retrace.yaml:18
        else:
            gamma = tl.load(gamma_ptr + env * gamma_b + t * gamma_t, mask=here, other=0).to(ACC)
        if lam_ptr is None:
            lam_next = tl.full(UNIT, lam_value, ACC)  # retrace.yaml:19
        else:
            lam_next = tl.load(lam_ptr + env * lam_b + (t + 1) * lam_t, mask=here & (t + 1 < T), other=0).to(ACC)
        target_probs_next_taken = tl.load(target_probs_ptr + env * target_probs_b + (t + 1) * target_probs_t + actions_next * target_probs_a, mask=here & (t + 1 < T) & (actions_next >= 0) & (actions_next < A), other=float("nan")).to(ACC)  # retrace.yaml:7
        w_next = target_probs_next_taken / behavior_probs_next  # retrace.yaml:29
        if c_bar_ptr is None:
            c_bar_next = tl.full(UNIT, c_bar_value, ACC)  # retrace.yaml:20
        else:
            c_bar_next = tl.load(c_bar_ptr + env * c_bar_b + (t + 1) * c_bar_t, mask=here & (t + 1 < T), other=0).to(ACC)
        c_next = tl.where(t + 1 < T, lam_next * smaller(larger(w_next, tl.full(UNIT, 0, ACC)), c_bar_next), tl.full(UNIT, 0, ACC))  # retrace.yaml:30
        sum_a_ = tl.full(SHAPE, 0, ACC)  # retrace.yaml:28
        for a_block in range(0, A, A_BLOCK):
            a_at_ = (a_block + tl.arange(0, A_BLOCK)[:, None, None]).to(INDEX)
            target_probs_next = tl.load(target_probs_ptr + (env * (target_probs_b // A_ALIGN) + (t + 1) * (target_probs_t // A_ALIGN)) * A_ALIGN + a_at_ * target_probs_a, mask=here & (t + 1 < T) & (a_at_ < A), other=0).to(ACC)  # retrace.yaml:7
            q_values_next = tl.load(q_values_ptr + (env * (q_values_b // A_ALIGN) + (t + 1) * (q_values_t // A_ALIGN)) * A_ALIGN + a_at_ * q_values_a, mask=here & (t + 1 < T) & (a_at_ < A), other=0).to(ACC)  # retrace.yaml:6
            sum_a_ = sum_a_ + tl.sum(tl.where(a_at_ < A, target_probs_next * q_values_next, 0), 0)
        ev_next = tl.where(t + 1 < T, sum_a_, sum_a)  # retrace.yaml:28
        next_value = tl.where(terminated, tl.full(UNIT, 0, ACC), tl.where(truncated, final_values, ev_next))  # retrace.yaml:31
        q_values_taken = tl.load(q_values_ptr + env * q_values_b + t * q_values_t + actions * q_values_a, mask=here & (actions >= 0) & (actions < A), other=float("nan")).to(ACC)  # retrace.yaml:6
        q = q_values_taken  # retrace.yaml:27
        a = tl.where(terminated | truncated, tl.full(UNIT, 0, ACC), gamma * c_next)  # retrace.yaml:36
        b = rewards + gamma * next_value - q  # retrace.yaml:37
        a = tl.broadcast_to(a, SHAPE)
        b = tl.broadcast_to(b, SHAPE)
        a, b = tl.associative_scan((a, b), AXIS, combine_tame if TAME else combine)
        a_last = tl.sum(tl.where(slot == BLOCK - 1, a, 0), AXIS, keep_dims=True)
        b_last = tl.sum(tl.where(slot == BLOCK - 1, b, 0), AXIS, keep_dims=True)
        a_run, b_run = combine(a_run, b_run, a_last, b_last)
    tl.store(a_composed_ptr + lane * CHUNKS + chunk, a_run, mask=live)
    tl.store(b_composed_ptr + lane * CHUNKS + chunk, b_run, mask=live)


@triton.jit
def arriving(
    q_values_ptr,
    target_probs_ptr,
    behavior_probs_ptr,
    actions_ptr,
    rewards_ptr,
    terminated_ptr,
    truncated_ptr,
    final_values_ptr,
    last_q_values_ptr,
    last_target_probs_ptr,
    targets_ptr,
    advantages_ptr,
    gamma_ptr,
    lam_ptr,
    c_bar_ptr,
    rho_bar_ptr,
    gamma_value: "fp64",
    lam_value: "fp64",
    c_bar_value: "fp64",
    rho_bar_value: "fp64",
    a_composed_ptr,
    b_composed_ptr,
    d_arriving_ptr,
    q_values_b,
    q_values_t,
    q_values_a,
    target_probs_b,
    target_probs_t,
    target_probs_a,
    behavior_probs_b,
    behavior_probs_t,
    actions_b,
    actions_t,
    rewards_b,
    rewards_t,
    terminated_b,
    terminated_t,
    truncated_b,
    truncated_t,
    final_values_b,
    final_values_t,
    last_q_values_b,
    last_q_values_a,
    last_target_probs_b,
    last_target_probs_a,
    targets_b,
    targets_t,
    advantages_b,
    advantages_t,
    gamma_b,
    gamma_t,
    lam_b,
    lam_t,
    c_bar_b,
    c_bar_t,
    rho_bar_b,
    rho_bar_t,
    B,
    T,
    A: tl.constexpr,
    A_BLOCK: tl.constexpr,
    A_ALIGN: tl.constexpr,
    CHUNK,
    CHUNKS,
    ACC: tl.constexpr,
    INDEX: tl.constexpr,
    AXIS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
    MANY: tl.constexpr,
    MOST: tl.constexpr,
    TAME: tl.constexpr,
):
    """The carry that arrives at each chunk: a program owns one environment, and scans the chunks before each one."""
    UNIT: tl.constexpr = [1, 1]
    NARROW: tl.constexpr = [1, 1]
    lane = tl.program_id(0).to(INDEX) + tl.zeros([1, 1], INDEX)
    live = lane >= 0
    env = lane
    d_in = tl.zeros(NARROW, ACC) + tl.full(UNIT, 0, ACC)
    tl.store(d_arriving_ptr + lane * CHUNKS, d_in)
    for first in range(0, CHUNKS, MOST):
        slot = tl.arange(0, MOST)[None, :]
        chunk = first + slot
        a = tl.load(a_composed_ptr + lane * CHUNKS + chunk, mask=chunk < CHUNKS, other=1)
        b = tl.load(b_composed_ptr + lane * CHUNKS + chunk, mask=chunk < CHUNKS, other=0)
        a, b = tl.associative_scan((a, b), 1, combine)
        d = tl.where((a == 0) | (d_in == 0), b, a * d_in + b)
        tl.store(d_arriving_ptr + lane * CHUNKS + chunk + 1, d, mask=chunk + 1 < CHUNKS)
        d_in = tl.sum(tl.where(slot == MOST - 1, d, 0), 1, keep_dims=True)


@triton.jit
def kernel(
    q_values_ptr,
    target_probs_ptr,
    behavior_probs_ptr,
    actions_ptr,
    rewards_ptr,
    terminated_ptr,
    truncated_ptr,
    final_values_ptr,
    last_q_values_ptr,
    last_target_probs_ptr,
    targets_ptr,
    advantages_ptr,
    gamma_ptr,
    lam_ptr,
    c_bar_ptr,
    rho_bar_ptr,
    gamma_value: "fp64",
    lam_value: "fp64",
    c_bar_value: "fp64",
    rho_bar_value: "fp64",
    a_composed_ptr,
    b_composed_ptr,
    d_arriving_ptr,
    q_values_b,
    q_values_t,
    q_values_a,
    target_probs_b,
    target_probs_t,
    target_probs_a,
    behavior_probs_b,
    behavior_probs_t,
    actions_b,
    actions_t,
    rewards_b,
    rewards_t,
    terminated_b,
    terminated_t,
    truncated_b,
    truncated_t,
    final_values_b,
    final_values_t,
    last_q_values_b,
    last_q_values_a,
    last_target_probs_b,
    last_target_probs_a,
    targets_b,
    targets_t,
    advantages_b,
    advantages_t,
    gamma_b,
    gamma_t,
    lam_b,
    lam_t,
    c_bar_b,
    c_bar_t,
    rho_bar_b,
    rho_bar_t,
    B,
    T,
    A: tl.constexpr,
    A_BLOCK: tl.constexpr,
    A_ALIGN: tl.constexpr,
    CHUNK,
    CHUNKS,
    ACC: tl.constexpr,
    INDEX: tl.constexpr,
    AXIS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
    MANY: tl.constexpr,
    MOST: tl.constexpr,
    TAME: tl.constexpr,
):
    """The outputs of each chunk, from the carry that arrives at it."""
    UNIT: tl.constexpr = [1, 1]
    # Time lies along the block's first axis or its last: along that which Triton lays along memory.
    SHAPE: tl.constexpr = [BLOCK, LANES] if AXIS == 0 else [LANES, BLOCK]
    NARROW: tl.constexpr = [1, LANES] if AXIS == 0 else [LANES, 1]
    slot = tl.arange(0, BLOCK)[:, None] if AXIS == 0 else tl.arange(0, BLOCK)[None, :]
    lane = tl.arange(0, LANES)[None, :] if AXIS == 0 else tl.arange(0, LANES)[:, None]
    # The last chunks first: what `composed` read last may still be in the cache.
    chunk = CHUNKS - 1 - tl.program_id(1)
    place = chunk * CHUNK + slot
    least = tl.maximum(T - (chunk + 1) * CHUNK, 0)
    lane += tl.program_id(0).to(INDEX) * LANES
    live = lane < B
    env = lane
    sum_a = tl.full(NARROW, 0, ACC)  # retrace.yaml:23
    for a_block in range(0, A, A_BLOCK):
        a_at = (a_block + tl.arange(0, A_BLOCK)[:, None, None]).to(INDEX)
        last_target_probs = tl.load(last_target_probs_ptr + (env * (last_target_probs_b // A_ALIGN)) * A_ALIGN + a_at * last_target_probs_a, mask=live & (a_at < A), other=0).to(ACC)  # retrace.yaml:15
        last_q_values = tl.load(last_q_values_ptr + (env * (last_q_values_b // A_ALIGN)) * A_ALIGN + a_at * last_q_values_a, mask=live & (a_at < A), other=0).to(ACC)  # retrace.yaml:14
        sum_a = sum_a + tl.sum(tl.where(a_at < A, last_target_probs * last_q_values, 0), 0)
    d_in = tl.zeros(NARROW, ACC) + tl.load(d_arriving_ptr + lane * CHUNKS + chunk, mask=live, other=0)
    t_ahead = (T - 1 - place).to(INDEX)
    here_ahead = live & (t_ahead >= least)
    terminated_ahead = tl.load(terminated_ptr + env * terminated_b + t_ahead * terminated_t, mask=here_ahead, other=0)
    if truncated_ptr is not None:
        truncated_ahead = tl.load(truncated_ptr + env * truncated_b + t_ahead * truncated_t, mask=here_ahead, other=0)
    actions_next_ahead = tl.load(actions_ptr + env * actions_b + (t_ahead + 1) * actions_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
    behavior_probs_next_ahead = tl.load(behavior_probs_ptr + env * behavior_probs_b + (t_ahead + 1) * behavior_probs_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
    rewards_ahead = tl.load(rewards_ptr + env * rewards_b + t_ahead * rewards_t, mask=here_ahead, other=0)
    if final_values_ptr is not None:
        final_values_ahead = tl.load(final_values_ptr + env * final_values_b + t_ahead * final_values_t, mask=here_ahead, other=0)
    actions_ahead = tl.load(actions_ptr + env * actions_b + t_ahead * actions_t, mask=here_ahead, other=0)
    if advantages_ptr is not None:
        behavior_probs_ahead = tl.load(behavior_probs_ptr + env * behavior_probs_b + t_ahead * behavior_probs_t, mask=here_ahead, other=0)
    for block in range(tl.cdiv(tl.minimum(CHUNK, T - chunk * CHUNK), BLOCK)):
        t = t_ahead
        here = here_ahead
        terminated = terminated_ahead != 0  # retrace.yaml:11
        if truncated_ptr is None:
            truncated = tl.full(UNIT, False, tl.int1)  # retrace.yaml:12
        else:
            truncated = truncated_ahead != 0
        actions_next = actions_next_ahead  # retrace.yaml:9
        behavior_probs_next = behavior_probs_next_ahead.to(ACC)  # retrace.yaml:8
        rewards = rewards_ahead.to(ACC)  # retrace.yaml:10
        if final_values_ptr is None:
            final_values = tl.full(UNIT, 0, ACC)  # retrace.yaml:13
        else:
            final_values = final_values_ahead.to(ACC)
        actions = actions_ahead  # retrace.yaml:9
        if advantages_ptr is not None:
            behavior_probs = behavior_probs_ahead.to(ACC)  # retrace.yaml:8
        if MANY:
            # The next block's reads are under way while this one is computed.
            t_ahead = t - BLOCK
            here_ahead = live & (t_ahead >= least)
            terminated_ahead = tl.load(terminated_ptr + env * terminated_b + t_ahead * terminated_t, mask=here_ahead, other=0)
            if truncated_ptr is not None:
                truncated_ahead = tl.load(truncated_ptr + env * truncated_b + t_ahead * truncated_t, mask=here_ahead, other=0)
            actions_next_ahead = tl.load(actions_ptr + env * actions_b + (t_ahead + 1) * actions_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
            behavior_probs_next_ahead = tl.load(behavior_probs_ptr + env * behavior_probs_b + (t_ahead + 1) * behavior_probs_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
            rewards_ahead = tl.load(rewards_ptr + env * rewards_b + t_ahead * rewards_t, mask=here_ahead, other=0)
            if final_values_ptr is not None:
                final_values_ahead = tl.load(final_values_ptr + env * final_values_b + t_ahead * final_values_t, mask=here_ahead, other=0)
            actions_ahead = tl.load(actions_ptr + env * actions_b + t_ahead * actions_t, mask=here_ahead, other=0)
            if advantages_ptr is not None:
                behavior_probs_ahead = tl.load(behavior_probs_ptr + env * behavior_probs_b + t_ahead * behavior_probs_t, mask=here_ahead, other=0)
        if gamma_ptr is None:
            gamma = tl.full(UNIT, gamma_value, ACC)  # retrace.yaml:18
        else:
            gamma = tl.load(gamma_ptr + env * gamma_b + t * gamma_t, mask=here, other=0).to(ACC)
        if lam_ptr is None:
            lam_next = tl.full(UNIT, lam_value, ACC)  # retrace.yaml:19
        else:
            lam_next = tl.load(lam_ptr + env * lam_b + (t + 1) * lam_t, mask=here & (t + 1 < T), other=0).to(ACC)
        target_probs_next_taken = tl.load(target_probs_ptr + env * target_probs_b + (t + 1) * target_probs_t + actions_next * target_probs_a, mask=here & (t + 1 < T) & (actions_next >= 0) & (actions_next < A), other=float("nan")).to(ACC)  # retrace.yaml:7
        w_next = target_probs_next_taken / behavior_probs_next  # retrace.yaml:29
        if c_bar_ptr is None:
            c_bar_next = tl.full(UNIT, c_bar_value, ACC)  # retrace.yaml:20
        else:
            c_bar_next = tl.load(c_bar_ptr + env * c_bar_b + (t + 1) * c_bar_t, mask=here & (t + 1 < T), other=0).to(ACC)
        c_next = tl.where(t + 1 < T, lam_next * smaller(larger(w_next, tl.full(UNIT, 0, ACC)), c_bar_next), tl.full(UNIT, 0, ACC))  # retrace.yaml:30
        sum_a_ = tl.full(SHAPE, 0, ACC)  # retrace.yaml:28
        for a_block in range(0, A, A_BLOCK):
            a_at_ = (a_block + tl.arange(0, A_BLOCK)[:, None, None]).to(INDEX)
            target_probs_next = tl.load(target_probs_ptr + (env * (target_probs_b // A_ALIGN) + (t + 1) * (target_probs_t // A_ALIGN)) * A_ALIGN + a_at_ * target_probs_a, mask=here & (t + 1 < T) & (a_at_ < A), other=0).to(ACC)  # retrace.yaml:7
            q_values_next = tl.load(q_values_ptr + (env * (q_values_b // A_ALIGN) + (t + 1) * (q_values_t // A_ALIGN)) * A_ALIGN + a_at_ * q_values_a, mask=here & (t + 1 < T) & (a_at_ < A), other=0).to(ACC)  # retrace.yaml:6
            sum_a_ = sum_a_ + tl.sum(tl.where(a_at_ < A, target_probs_next * q_values_next, 0), 0)
        ev_next = tl.where(t + 1 < T, sum_a_, sum_a)  # retrace.yaml:28
        next_value = tl.where(terminated, tl.full(UNIT, 0, ACC), tl.where(truncated, final_values, ev_next))  # retrace.yaml:31
        q_values_taken = tl.load(q_values_ptr + env * q_values_b + t * q_values_t + actions * q_values_a, mask=here & (actions >= 0) & (actions < A), other=float("nan")).to(ACC)  # retrace.yaml:6
        q = q_values_taken  # retrace.yaml:27
        a = tl.where(terminated | truncated, tl.full(UNIT, 0, ACC), gamma * c_next)  # retrace.yaml:36
        b = rewards + gamma * next_value - q  # retrace.yaml:37
        a = tl.broadcast_to(a, SHAPE)
        b = tl.broadcast_to(b, SHAPE)
        a, b = tl.associative_scan((a, b), AXIS, combine_tame if TAME else combine)
        d = tl.where((a == 0) | (d_in == 0), b, a * d_in + b)
        if targets_ptr is not None:
            targets = q + d  # retrace.yaml:41
            tl.store(targets_ptr + env * targets_b + t * targets_t, targets, mask=here)  # retrace.yaml:41
        if advantages_ptr is not None:
            if rho_bar_ptr is None:
                rho_bar = tl.full(UNIT, rho_bar_value, ACC)  # retrace.yaml:21
            else:
                rho_bar = tl.load(rho_bar_ptr + env * rho_bar_b + t * rho_bar_t, mask=here, other=0).to(ACC)
            target_probs_taken = tl.load(target_probs_ptr + env * target_probs_b + t * target_probs_t + actions * target_probs_a, mask=here & (actions >= 0) & (actions < A), other=float("nan")).to(ACC)  # retrace.yaml:7
            w = target_probs_taken / behavior_probs  # retrace.yaml:29
            q_values_next_taken = tl.load(q_values_ptr + env * q_values_b + (t + 1) * q_values_t + actions_next * q_values_a, mask=here & (t + 1 < T) & (actions_next >= 0) & (actions_next < A), other=float("nan")).to(ACC)  # retrace.yaml:6
            q_next = q_values_next_taken  # retrace.yaml:27
            d_next = earlier(d, d_in, slot, AXIS, SHAPE)
            targets_next = tl.where(t + 1 < T, q_next + d_next, sum_a)  # retrace.yaml:41
            next_q = tl.where(terminated, tl.full(UNIT, 0, ACC), tl.where(truncated, final_values, targets_next))  # retrace.yaml:32
            advantages = smaller(rho_bar, w) * (rewards + gamma * next_q - q)  # retrace.yaml:42
            tl.store(advantages_ptr + env * advantages_b + t * advantages_t, advantages, mask=here)  # retrace.yaml:42
        d_in = tl.sum(tl.where(slot == BLOCK - 1, d, 0), AXIS, keep_dims=True)


def strides(x, *dims):
    """The strides of these dimensions; zeros for a tensor that was not given."""
    if not torch.is_tensor(x):
        return (0,) * len(dims)
    return tuple(x.stride(dim) for dim in dims)


def widest(*tensors):
    """The number of elements that the farthest-reaching tensor spans in memory."""
    spans = (
        1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
        for x in tensors
        if torch.is_tensor(x)
    )
    return max(spans)


def arguments(time_major, q_values, target_probs, behavior_probs, actions, rewards, terminated, truncated, final_values, last_q_values, last_target_probs, targets, advantages, gamma, lam, c_bar, rho_bar):
    """The environments' programs, the chunks, the kernels' arguments in order and their warps, for what `launch` takes."""
    batch, time = (1, 0) if time_major else (0, 1)
    out = next(x for x in (targets, advantages) if x is not None)
    B, T = out.shape[batch], out.shape[time]
    A = q_values.shape[2]
    dtypes = [x.dtype for x in (q_values, target_probs, behavior_probs, rewards, final_values, last_q_values, last_target_probs) if x is not None]
    ACC = tl.float64 if torch.float64 in dtypes else tl.float32
    A_BLOCK = min(triton.next_power_of_2(A), 4)
    A_ALIGN = math.gcd(16, *strides(q_values, batch, time), *strides(target_probs, batch, time), *strides(last_q_values, 0), *strides(last_target_probs, 0))
    total = B
    across = time_major
    # Small blocks in one warp or two, a few to a chunk, and at most some thousand chunks of a row.
    LANES = min(triton.next_power_of_2(total), 32) if across else 1
    BLOCK, WARPS = (256, 1) if LANES == 1 else (512 // LANES, 2)
    CHUNK = max((2 if LANES == 1 else 4) * BLOCK, triton.next_power_of_2(T) // 2048)
    MOST = 1024  # chunks of a row, scanned at once
    WARPS = min(16, WARPS * 2)  # registers for the axis
    if LANES > 1:
        BLOCK //= 2
    CHUNKS = triton.cdiv(T, CHUNK)
    # Then no coefficient is beyond 1, and no product of them.
    TAME = not torch.is_tensor(c_bar) and -1 <= c_bar <= 1
    span = widest(q_values, target_probs, behavior_probs, actions, rewards, terminated, truncated, final_values, last_q_values, last_target_probs, targets, advantages)
    INDEX = tl.int32 if max(span, T + CHUNK, (total + LANES) * CHUNKS) < 2**31 else tl.int64
    number = {tl.float32: torch.float32, tl.float64: torch.float64, tl.int64: torch.int64}[ACC]
    a_composed = torch.empty((total, CHUNKS), dtype=number, device=out.device)
    b_composed = torch.empty((total, CHUNKS), dtype=number, device=out.device)
    d_arriving = torch.empty((total, CHUNKS), dtype=number, device=out.device)
    packed = (
        q_values,
        target_probs,
        behavior_probs,
        actions,
        rewards,
        terminated,
        truncated,
        final_values,
        last_q_values,
        last_target_probs,
        targets,
        advantages,
        gamma if torch.is_tensor(gamma) else None,
        lam if torch.is_tensor(lam) else None,
        c_bar if torch.is_tensor(c_bar) else None,
        rho_bar if torch.is_tensor(rho_bar) else None,
        0.0 if torch.is_tensor(gamma) else gamma,
        0.0 if torch.is_tensor(lam) else lam,
        0.0 if torch.is_tensor(c_bar) else c_bar,
        0.0 if torch.is_tensor(rho_bar) else rho_bar,
        a_composed,
        b_composed,
        d_arriving,
        *strides(q_values, batch, time, 2),
        *strides(target_probs, batch, time, 2),
        *strides(behavior_probs, batch, time),
        *strides(actions, batch, time),
        *strides(rewards, batch, time),
        *strides(terminated, batch, time),
        *strides(truncated, batch, time),
        *strides(final_values, batch, time),
        *strides(last_q_values, 0, 1),
        *strides(last_target_probs, 0, 1),
        *strides(targets, batch, time),
        *strides(advantages, batch, time),
        *strides(gamma, batch, time),
        *strides(lam, batch, time),
        *strides(c_bar, batch, time),
        *strides(rho_bar, batch, time),
        B,
        T,
        A,
        A_BLOCK,
        A_ALIGN,
        CHUNK,
        CHUNKS,
        ACC,
        INDEX,
        0 if across else FAST,  # AXIS
        LANES,
        BLOCK,
        CHUNK > BLOCK,  # MANY
        MOST,
        TAME,
    )
    return triton.cdiv(total, LANES), CHUNKS, total, packed, WARPS


def launch(time_major, q_values, target_probs, behavior_probs, actions, rewards, terminated, truncated, final_values, last_q_values, last_target_probs, targets, advantages, gamma, lam, c_bar, rho_bar):
    """Run the kernels: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    Returns the compiled kernels, each with its grid, and their arguments, with which they can be launched again.
    """
    groups, chunks, total, packed, warps = arguments(time_major, q_values, target_probs, behavior_probs, actions, rewards, terminated, truncated, final_values, last_q_values, last_target_probs, targets, advantages, gamma, lam, c_bar, rho_bar)
    options = {"enable_fp_fusion": True}
    first = composed[groups, chunks](*packed, num_warps=warps, **options)
    second = arriving[(total,)](*packed, num_warps=4, **options)
    third = kernel[groups, chunks](*packed, num_warps=warps, **options)
    return ((first, (groups, chunks)), (second, (total, 1)), (third, (groups, chunks))), packed
