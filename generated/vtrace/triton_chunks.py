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

Schedule chunks, backward in time.
"""
# spec: vtrace.yaml
# spec sha256: 76fb588801ab38c7b65fdc1dcfcd55ba5bd989a5869ba61dafda86b3bf0ceacd
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

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
    target_log_probs_ptr,
    behavior_log_probs_ptr,
    rewards_ptr,
    values_ptr,
    terminated_ptr,
    truncated_ptr,
    final_values_ptr,
    last_value_ptr,
    vs_ptr,
    pg_advantages_ptr,
    gamma_ptr,
    lam_ptr,
    rho_bar_ptr,
    c_bar_ptr,
    pg_rho_bar_ptr,
    gamma_value: "fp64",
    lam_value: "fp64",
    rho_bar_value: "fp64",
    c_bar_value: "fp64",
    pg_rho_bar_value: "fp64",
    a_composed_ptr,
    b_composed_ptr,
    dv_arriving_ptr,
    target_log_probs_b,
    target_log_probs_t,
    behavior_log_probs_b,
    behavior_log_probs_t,
    rewards_b,
    rewards_t,
    values_b,
    values_t,
    terminated_b,
    terminated_t,
    truncated_b,
    truncated_t,
    final_values_b,
    final_values_t,
    last_value_b,
    vs_b,
    vs_t,
    pg_advantages_b,
    pg_advantages_t,
    gamma_b,
    gamma_t,
    lam_b,
    lam_t,
    rho_bar_b,
    rho_bar_t,
    c_bar_b,
    c_bar_t,
    pg_rho_bar_b,
    pg_rho_bar_t,
    B,
    T,
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
    last_value = tl.load(last_value_ptr + env * last_value_b, mask=live, other=0).to(ACC)  # vtrace.yaml:13
    a_run = tl.full(NARROW, 1, ACC)
    b_run = tl.full(NARROW, 0, ACC)
    t_ahead = (T - 1 - place).to(INDEX)
    here_ahead = live & (t_ahead >= least)
    terminated_ahead = tl.load(terminated_ptr + env * terminated_b + t_ahead * terminated_t, mask=here_ahead, other=0)
    if truncated_ptr is not None:
        truncated_ahead = tl.load(truncated_ptr + env * truncated_b + t_ahead * truncated_t, mask=here_ahead, other=0)
    target_log_probs_ahead = tl.load(target_log_probs_ptr + env * target_log_probs_b + t_ahead * target_log_probs_t, mask=here_ahead, other=0)
    behavior_log_probs_ahead = tl.load(behavior_log_probs_ptr + env * behavior_log_probs_b + t_ahead * behavior_log_probs_t, mask=here_ahead, other=0)
    rewards_ahead = tl.load(rewards_ptr + env * rewards_b + t_ahead * rewards_t, mask=here_ahead, other=0)
    if final_values_ptr is not None:
        final_values_ahead = tl.load(final_values_ptr + env * final_values_b + t_ahead * final_values_t, mask=here_ahead, other=0)
    values_next_ahead = tl.load(values_ptr + env * values_b + (t_ahead + 1) * values_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
    values_ahead = tl.load(values_ptr + env * values_b + t_ahead * values_t, mask=here_ahead, other=0)
    for block in range(tl.cdiv(tl.minimum(CHUNK, T - chunk * CHUNK), BLOCK)):
        t = t_ahead
        here = here_ahead
        terminated = terminated_ahead != 0  # vtrace.yaml:10
        if truncated_ptr is None:
            truncated = tl.full(UNIT, False, tl.int1)  # vtrace.yaml:11
        else:
            truncated = truncated_ahead != 0
        target_log_probs = target_log_probs_ahead.to(ACC)  # vtrace.yaml:6
        behavior_log_probs = behavior_log_probs_ahead.to(ACC)  # vtrace.yaml:7
        rewards = rewards_ahead.to(ACC)  # vtrace.yaml:8
        if final_values_ptr is None:
            final_values = tl.full(UNIT, 0, ACC)  # vtrace.yaml:12
        else:
            final_values = final_values_ahead.to(ACC)
        values_next = values_next_ahead.to(ACC)  # vtrace.yaml:9
        values = values_ahead.to(ACC)  # vtrace.yaml:9
        if MANY:
            # The next block's reads are under way while this one is computed.
            t_ahead = t - BLOCK
            here_ahead = live & (t_ahead >= least)
            terminated_ahead = tl.load(terminated_ptr + env * terminated_b + t_ahead * terminated_t, mask=here_ahead, other=0)
            if truncated_ptr is not None:
                truncated_ahead = tl.load(truncated_ptr + env * truncated_b + t_ahead * truncated_t, mask=here_ahead, other=0)
            target_log_probs_ahead = tl.load(target_log_probs_ptr + env * target_log_probs_b + t_ahead * target_log_probs_t, mask=here_ahead, other=0)
            behavior_log_probs_ahead = tl.load(behavior_log_probs_ptr + env * behavior_log_probs_b + t_ahead * behavior_log_probs_t, mask=here_ahead, other=0)
            rewards_ahead = tl.load(rewards_ptr + env * rewards_b + t_ahead * rewards_t, mask=here_ahead, other=0)
            if final_values_ptr is not None:
                final_values_ahead = tl.load(final_values_ptr + env * final_values_b + t_ahead * final_values_t, mask=here_ahead, other=0)
            values_next_ahead = tl.load(values_ptr + env * values_b + (t_ahead + 1) * values_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
            values_ahead = tl.load(values_ptr + env * values_b + t_ahead * values_t, mask=here_ahead, other=0)
        if gamma_ptr is None:
            gamma = tl.full(UNIT, gamma_value, ACC)  # vtrace.yaml:16
        else:
            gamma = tl.load(gamma_ptr + env * gamma_b + t * gamma_t, mask=here, other=0).to(ACC)
        if lam_ptr is None:
            lam = tl.full(UNIT, lam_value, ACC)  # vtrace.yaml:17
        else:
            lam = tl.load(lam_ptr + env * lam_b + t * lam_t, mask=here, other=0).to(ACC)
        if c_bar_ptr is None:
            c_bar = tl.full(UNIT, c_bar_value, ACC)  # vtrace.yaml:19
        else:
            c_bar = tl.load(c_bar_ptr + env * c_bar_b + t * c_bar_t, mask=here, other=0).to(ACC)
        w = tl.where(target_log_probs == -float("inf"), tl.full(UNIT, 0, ACC), tl.exp(target_log_probs - behavior_log_probs))  # vtrace.yaml:26
        c = lam * smaller(c_bar, w)  # vtrace.yaml:28
        if rho_bar_ptr is None:
            rho_bar = tl.full(UNIT, rho_bar_value, ACC)  # vtrace.yaml:18
        else:
            rho_bar = tl.load(rho_bar_ptr + env * rho_bar_b + t * rho_bar_t, mask=here, other=0).to(ACC)
        rho = smaller(rho_bar, w)  # vtrace.yaml:27
        values_next = tl.where(t + 1 < T, values_next, last_value)
        next_value = tl.where(terminated, tl.full(UNIT, 0, ACC), tl.where(truncated, final_values, values_next))  # vtrace.yaml:29
        delta = rho * (rewards + gamma * next_value - values)  # vtrace.yaml:31
        a = tl.where(terminated | truncated, tl.full(UNIT, 0, ACC), gamma * c)  # vtrace.yaml:35
        b = delta  # vtrace.yaml:36
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
    target_log_probs_ptr,
    behavior_log_probs_ptr,
    rewards_ptr,
    values_ptr,
    terminated_ptr,
    truncated_ptr,
    final_values_ptr,
    last_value_ptr,
    vs_ptr,
    pg_advantages_ptr,
    gamma_ptr,
    lam_ptr,
    rho_bar_ptr,
    c_bar_ptr,
    pg_rho_bar_ptr,
    gamma_value: "fp64",
    lam_value: "fp64",
    rho_bar_value: "fp64",
    c_bar_value: "fp64",
    pg_rho_bar_value: "fp64",
    a_composed_ptr,
    b_composed_ptr,
    dv_arriving_ptr,
    target_log_probs_b,
    target_log_probs_t,
    behavior_log_probs_b,
    behavior_log_probs_t,
    rewards_b,
    rewards_t,
    values_b,
    values_t,
    terminated_b,
    terminated_t,
    truncated_b,
    truncated_t,
    final_values_b,
    final_values_t,
    last_value_b,
    vs_b,
    vs_t,
    pg_advantages_b,
    pg_advantages_t,
    gamma_b,
    gamma_t,
    lam_b,
    lam_t,
    rho_bar_b,
    rho_bar_t,
    c_bar_b,
    c_bar_t,
    pg_rho_bar_b,
    pg_rho_bar_t,
    B,
    T,
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
    dv_in = tl.zeros(NARROW, ACC) + tl.full(UNIT, 0, ACC)
    tl.store(dv_arriving_ptr + lane * CHUNKS, dv_in)
    for first in range(0, CHUNKS, MOST):
        slot = tl.arange(0, MOST)[None, :]
        chunk = first + slot
        a = tl.load(a_composed_ptr + lane * CHUNKS + chunk, mask=chunk < CHUNKS, other=1)
        b = tl.load(b_composed_ptr + lane * CHUNKS + chunk, mask=chunk < CHUNKS, other=0)
        a, b = tl.associative_scan((a, b), 1, combine)
        dv = tl.where((a == 0) | (dv_in == 0), b, a * dv_in + b)
        tl.store(dv_arriving_ptr + lane * CHUNKS + chunk + 1, dv, mask=chunk + 1 < CHUNKS)
        dv_in = tl.sum(tl.where(slot == MOST - 1, dv, 0), 1, keep_dims=True)


@triton.jit
def kernel(
    target_log_probs_ptr,
    behavior_log_probs_ptr,
    rewards_ptr,
    values_ptr,
    terminated_ptr,
    truncated_ptr,
    final_values_ptr,
    last_value_ptr,
    vs_ptr,
    pg_advantages_ptr,
    gamma_ptr,
    lam_ptr,
    rho_bar_ptr,
    c_bar_ptr,
    pg_rho_bar_ptr,
    gamma_value: "fp64",
    lam_value: "fp64",
    rho_bar_value: "fp64",
    c_bar_value: "fp64",
    pg_rho_bar_value: "fp64",
    a_composed_ptr,
    b_composed_ptr,
    dv_arriving_ptr,
    target_log_probs_b,
    target_log_probs_t,
    behavior_log_probs_b,
    behavior_log_probs_t,
    rewards_b,
    rewards_t,
    values_b,
    values_t,
    terminated_b,
    terminated_t,
    truncated_b,
    truncated_t,
    final_values_b,
    final_values_t,
    last_value_b,
    vs_b,
    vs_t,
    pg_advantages_b,
    pg_advantages_t,
    gamma_b,
    gamma_t,
    lam_b,
    lam_t,
    rho_bar_b,
    rho_bar_t,
    c_bar_b,
    c_bar_t,
    pg_rho_bar_b,
    pg_rho_bar_t,
    B,
    T,
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
    last_value = tl.load(last_value_ptr + env * last_value_b, mask=live, other=0).to(ACC)  # vtrace.yaml:13
    dv_in = tl.zeros(NARROW, ACC) + tl.load(dv_arriving_ptr + lane * CHUNKS + chunk, mask=live, other=0)
    t_ahead = (T - 1 - place).to(INDEX)
    here_ahead = live & (t_ahead >= least)
    terminated_ahead = tl.load(terminated_ptr + env * terminated_b + t_ahead * terminated_t, mask=here_ahead, other=0)
    if truncated_ptr is not None:
        truncated_ahead = tl.load(truncated_ptr + env * truncated_b + t_ahead * truncated_t, mask=here_ahead, other=0)
    target_log_probs_ahead = tl.load(target_log_probs_ptr + env * target_log_probs_b + t_ahead * target_log_probs_t, mask=here_ahead, other=0)
    behavior_log_probs_ahead = tl.load(behavior_log_probs_ptr + env * behavior_log_probs_b + t_ahead * behavior_log_probs_t, mask=here_ahead, other=0)
    rewards_ahead = tl.load(rewards_ptr + env * rewards_b + t_ahead * rewards_t, mask=here_ahead, other=0)
    if final_values_ptr is not None:
        final_values_ahead = tl.load(final_values_ptr + env * final_values_b + t_ahead * final_values_t, mask=here_ahead, other=0)
    values_next_ahead = tl.load(values_ptr + env * values_b + (t_ahead + 1) * values_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
    values_ahead = tl.load(values_ptr + env * values_b + t_ahead * values_t, mask=here_ahead, other=0)
    if pg_advantages_ptr is not None:
        values_next__ahead = tl.load(values_ptr + env * values_b + (t_ahead + 1) * values_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
    for block in range(tl.cdiv(tl.minimum(CHUNK, T - chunk * CHUNK), BLOCK)):
        t = t_ahead
        here = here_ahead
        terminated = terminated_ahead != 0  # vtrace.yaml:10
        if truncated_ptr is None:
            truncated = tl.full(UNIT, False, tl.int1)  # vtrace.yaml:11
        else:
            truncated = truncated_ahead != 0
        target_log_probs = target_log_probs_ahead.to(ACC)  # vtrace.yaml:6
        behavior_log_probs = behavior_log_probs_ahead.to(ACC)  # vtrace.yaml:7
        rewards = rewards_ahead.to(ACC)  # vtrace.yaml:8
        if final_values_ptr is None:
            final_values = tl.full(UNIT, 0, ACC)  # vtrace.yaml:12
        else:
            final_values = final_values_ahead.to(ACC)
        values_next = values_next_ahead.to(ACC)  # vtrace.yaml:9
        values = values_ahead.to(ACC)  # vtrace.yaml:9
        if pg_advantages_ptr is not None:
            values_next_ = values_next__ahead.to(ACC)  # vtrace.yaml:9
        if MANY:
            # The next block's reads are under way while this one is computed.
            t_ahead = t - BLOCK
            here_ahead = live & (t_ahead >= least)
            terminated_ahead = tl.load(terminated_ptr + env * terminated_b + t_ahead * terminated_t, mask=here_ahead, other=0)
            if truncated_ptr is not None:
                truncated_ahead = tl.load(truncated_ptr + env * truncated_b + t_ahead * truncated_t, mask=here_ahead, other=0)
            target_log_probs_ahead = tl.load(target_log_probs_ptr + env * target_log_probs_b + t_ahead * target_log_probs_t, mask=here_ahead, other=0)
            behavior_log_probs_ahead = tl.load(behavior_log_probs_ptr + env * behavior_log_probs_b + t_ahead * behavior_log_probs_t, mask=here_ahead, other=0)
            rewards_ahead = tl.load(rewards_ptr + env * rewards_b + t_ahead * rewards_t, mask=here_ahead, other=0)
            if final_values_ptr is not None:
                final_values_ahead = tl.load(final_values_ptr + env * final_values_b + t_ahead * final_values_t, mask=here_ahead, other=0)
            values_next_ahead = tl.load(values_ptr + env * values_b + (t_ahead + 1) * values_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
            values_ahead = tl.load(values_ptr + env * values_b + t_ahead * values_t, mask=here_ahead, other=0)
            if pg_advantages_ptr is not None:
                values_next__ahead = tl.load(values_ptr + env * values_b + (t_ahead + 1) * values_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
        if gamma_ptr is None:
            gamma = tl.full(UNIT, gamma_value, ACC)  # vtrace.yaml:16
        else:
            gamma = tl.load(gamma_ptr + env * gamma_b + t * gamma_t, mask=here, other=0).to(ACC)
        if lam_ptr is None:
            lam = tl.full(UNIT, lam_value, ACC)  # vtrace.yaml:17
        else:
            lam = tl.load(lam_ptr + env * lam_b + t * lam_t, mask=here, other=0).to(ACC)
        if c_bar_ptr is None:
            c_bar = tl.full(UNIT, c_bar_value, ACC)  # vtrace.yaml:19
        else:
            c_bar = tl.load(c_bar_ptr + env * c_bar_b + t * c_bar_t, mask=here, other=0).to(ACC)
        w = tl.where(target_log_probs == -float("inf"), tl.full(UNIT, 0, ACC), tl.exp(target_log_probs - behavior_log_probs))  # vtrace.yaml:26
        c = lam * smaller(c_bar, w)  # vtrace.yaml:28
        if rho_bar_ptr is None:
            rho_bar = tl.full(UNIT, rho_bar_value, ACC)  # vtrace.yaml:18
        else:
            rho_bar = tl.load(rho_bar_ptr + env * rho_bar_b + t * rho_bar_t, mask=here, other=0).to(ACC)
        rho = smaller(rho_bar, w)  # vtrace.yaml:27
        values_next = tl.where(t + 1 < T, values_next, last_value)
        next_value = tl.where(terminated, tl.full(UNIT, 0, ACC), tl.where(truncated, final_values, values_next))  # vtrace.yaml:29
        delta = rho * (rewards + gamma * next_value - values)  # vtrace.yaml:31
        a = tl.where(terminated | truncated, tl.full(UNIT, 0, ACC), gamma * c)  # vtrace.yaml:35
        b = delta  # vtrace.yaml:36
        a = tl.broadcast_to(a, SHAPE)
        b = tl.broadcast_to(b, SHAPE)
        a, b = tl.associative_scan((a, b), AXIS, combine_tame if TAME else combine)
        dv = tl.where((a == 0) | (dv_in == 0), b, a * dv_in + b)
        if vs_ptr is not None:
            vs = values + dv  # vtrace.yaml:40
            tl.store(vs_ptr + env * vs_b + t * vs_t, vs, mask=here)  # vtrace.yaml:40
        if pg_advantages_ptr is not None:
            if pg_rho_bar_ptr is None:
                pg_rho_bar = tl.full(UNIT, pg_rho_bar_value, ACC)  # vtrace.yaml:20
            else:
                pg_rho_bar = tl.load(pg_rho_bar_ptr + env * pg_rho_bar_b + t * pg_rho_bar_t, mask=here, other=0).to(ACC)
            dv_next = earlier(dv, dv_in, slot, AXIS, SHAPE)
            vs_next = tl.where(t + 1 < T, values_next_ + dv_next, last_value)  # vtrace.yaml:40
            next_vs = tl.where(terminated, tl.full(UNIT, 0, ACC), tl.where(truncated, final_values, vs_next))  # vtrace.yaml:30
            pg_advantages = smaller(pg_rho_bar, w) * (rewards + gamma * next_vs - values)  # vtrace.yaml:41
            tl.store(pg_advantages_ptr + env * pg_advantages_b + t * pg_advantages_t, pg_advantages, mask=here)  # vtrace.yaml:41
        dv_in = tl.sum(tl.where(slot == BLOCK - 1, dv, 0), AXIS, keep_dims=True)


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


def arguments(time_major, target_log_probs, behavior_log_probs, rewards, values, terminated, truncated, final_values, last_value, vs, pg_advantages, gamma, lam, rho_bar, c_bar, pg_rho_bar):
    """The environments' programs, the chunks, the kernels' arguments in order and their warps, for what `launch` takes."""
    batch, time = (1, 0) if time_major else (0, 1)
    out = next(x for x in (vs, pg_advantages) if x is not None)
    B, T = out.shape[batch], out.shape[time]
    dtypes = [x.dtype for x in (target_log_probs, behavior_log_probs, rewards, values, final_values, last_value) if x is not None]
    ACC = tl.float64 if torch.float64 in dtypes else tl.float32
    total = B
    across = time_major
    # Small blocks in one warp or two, a few to a chunk, and at most some thousand chunks of a row.
    LANES = min(triton.next_power_of_2(total), 32) if across else 1
    BLOCK, WARPS = (256, 1) if LANES == 1 else (512 // LANES, 2)
    CHUNK = max((2 if LANES == 1 else 4) * BLOCK, triton.next_power_of_2(T) // 2048)
    MOST = 1024  # chunks of a row, scanned at once
    CHUNKS = triton.cdiv(T, CHUNK)
    # Then no coefficient is beyond 1, and no product of them.
    TAME = not torch.is_tensor(c_bar) and -1 <= c_bar <= 1
    span = widest(target_log_probs, behavior_log_probs, rewards, values, terminated, truncated, final_values, last_value, vs, pg_advantages)
    INDEX = tl.int32 if max(span, T + CHUNK, (total + LANES) * CHUNKS) < 2**31 else tl.int64
    number = {tl.float32: torch.float32, tl.float64: torch.float64, tl.int64: torch.int64}[ACC]
    a_composed = torch.empty((total, CHUNKS), dtype=number, device=out.device)
    b_composed = torch.empty((total, CHUNKS), dtype=number, device=out.device)
    dv_arriving = torch.empty((total, CHUNKS), dtype=number, device=out.device)
    packed = (
        target_log_probs,
        behavior_log_probs,
        rewards,
        values,
        terminated,
        truncated,
        final_values,
        last_value,
        vs,
        pg_advantages,
        gamma if torch.is_tensor(gamma) else None,
        lam if torch.is_tensor(lam) else None,
        rho_bar if torch.is_tensor(rho_bar) else None,
        c_bar if torch.is_tensor(c_bar) else None,
        pg_rho_bar if torch.is_tensor(pg_rho_bar) else None,
        0.0 if torch.is_tensor(gamma) else gamma,
        0.0 if torch.is_tensor(lam) else lam,
        0.0 if torch.is_tensor(rho_bar) else rho_bar,
        0.0 if torch.is_tensor(c_bar) else c_bar,
        0.0 if torch.is_tensor(pg_rho_bar) else pg_rho_bar,
        a_composed,
        b_composed,
        dv_arriving,
        *strides(target_log_probs, batch, time),
        *strides(behavior_log_probs, batch, time),
        *strides(rewards, batch, time),
        *strides(values, batch, time),
        *strides(terminated, batch, time),
        *strides(truncated, batch, time),
        *strides(final_values, batch, time),
        *strides(last_value, 0),
        *strides(vs, batch, time),
        *strides(pg_advantages, batch, time),
        *strides(gamma, batch, time),
        *strides(lam, batch, time),
        *strides(rho_bar, batch, time),
        *strides(c_bar, batch, time),
        *strides(pg_rho_bar, batch, time),
        B,
        T,
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


def launch(time_major, target_log_probs, behavior_log_probs, rewards, values, terminated, truncated, final_values, last_value, vs, pg_advantages, gamma, lam, rho_bar, c_bar, pg_rho_bar):
    """Run the kernels: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    Returns the compiled kernels, each with its grid, and their arguments, with which they can be launched again.
    """
    groups, chunks, total, packed, warps = arguments(time_major, target_log_probs, behavior_log_probs, rewards, values, terminated, truncated, final_values, last_value, vs, pg_advantages, gamma, lam, rho_bar, c_bar, pg_rho_bar)
    options = {"enable_fp_fusion": True}
    first = composed[groups, chunks](*packed, num_warps=warps, **options)
    second = arriving[(total,)](*packed, num_warps=4, **options)
    third = kernel[groups, chunks](*packed, num_warps=warps, **options)
    return ((first, (groups, chunks)), (second, (total, 1)), (third, (groups, chunks))), packed
