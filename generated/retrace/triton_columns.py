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

Schedule columns, backward in time.
"""
# spec: retrace.yaml
# spec sha256: 17f4f5910d22ae423e894bd8a127ca44ff47cbd96de9431d151990dd5f147ae0
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import math

import torch
import triton
import triton.language as tl


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
    ACC: tl.constexpr,
    INDEX: tl.constexpr,
    AXIS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
    FULL: tl.constexpr,
    MANY: tl.constexpr,
    TAME: tl.constexpr,
):
    """A program owns LANES environments and takes their time in blocks of BLOCK slots, in scan order, one scan a block."""
    UNIT: tl.constexpr = [1, 1]
    # Time lies along the block's first axis or its last: along that which Triton lays along memory.
    SHAPE: tl.constexpr = [BLOCK, LANES] if AXIS == 0 else [LANES, BLOCK]
    NARROW: tl.constexpr = [1, LANES] if AXIS == 0 else [LANES, 1]
    slot = tl.arange(0, BLOCK)[:, None] if AXIS == 0 else tl.arange(0, BLOCK)[None, :]
    lane = tl.arange(0, LANES)[None, :] if AXIS == 0 else tl.arange(0, LANES)[:, None]
    # The window is one block exactly: known when compiled, every mask of time folds away.
    if FULL:
        T = BLOCK
    lane += tl.program_id(0).to(INDEX) * LANES
    live = lane < B
    env = lane
    sum_a = tl.full(NARROW, 0, ACC)  # retrace.yaml:23
    for a_block in range(0, A, A_BLOCK):
        a_at = (a_block + tl.arange(0, A_BLOCK)[:, None, None]).to(INDEX)
        last_target_probs = tl.load(last_target_probs_ptr + (env * (last_target_probs_b // A_ALIGN)) * A_ALIGN + a_at * last_target_probs_a, mask=live & (a_at < A), other=0).to(ACC)  # retrace.yaml:15
        last_q_values = tl.load(last_q_values_ptr + (env * (last_q_values_b // A_ALIGN)) * A_ALIGN + a_at * last_q_values_a, mask=live & (a_at < A), other=0).to(ACC)  # retrace.yaml:14
        sum_a = sum_a + tl.sum(tl.where(a_at < A, last_target_probs * last_q_values, 0), 0)
    d_in = tl.zeros(NARROW, ACC) + tl.full(UNIT, 0, ACC)
    c_in = tl.zeros(NARROW, ACC) + tl.full(UNIT, 0, ACC)
    ev_in = tl.zeros(NARROW, ACC) + sum_a
    if advantages_ptr is not None:
        targets_in = tl.zeros(NARROW, ACC) + sum_a
    t_ahead = (T - 1 - slot).to(INDEX)
    here_ahead = live & (t_ahead >= 0)
    terminated_ahead = tl.load(terminated_ptr + env * terminated_b + t_ahead * terminated_t, mask=here_ahead, other=0)
    if truncated_ptr is not None:
        truncated_ahead = tl.load(truncated_ptr + env * truncated_b + t_ahead * truncated_t, mask=here_ahead, other=0)
    actions_ahead = tl.load(actions_ptr + env * actions_b + t_ahead * actions_t, mask=here_ahead, other=0)
    behavior_probs_ahead = tl.load(behavior_probs_ptr + env * behavior_probs_b + t_ahead * behavior_probs_t, mask=here_ahead, other=0)
    rewards_ahead = tl.load(rewards_ptr + env * rewards_b + t_ahead * rewards_t, mask=here_ahead, other=0)
    if final_values_ptr is not None:
        final_values_ahead = tl.load(final_values_ptr + env * final_values_b + t_ahead * final_values_t, mask=here_ahead, other=0)
    for block in range(tl.cdiv(T, BLOCK)):
        t = t_ahead
        here = here_ahead
        terminated = terminated_ahead != 0  # retrace.yaml:11
        if truncated_ptr is None:
            truncated = tl.full(UNIT, False, tl.int1)  # retrace.yaml:12
        else:
            truncated = truncated_ahead != 0
        actions = actions_ahead  # retrace.yaml:9
        behavior_probs = behavior_probs_ahead.to(ACC)  # retrace.yaml:8
        rewards = rewards_ahead.to(ACC)  # retrace.yaml:10
        if final_values_ptr is None:
            final_values = tl.full(UNIT, 0, ACC)  # retrace.yaml:13
        else:
            final_values = final_values_ahead.to(ACC)
        if MANY:
            # The next block's reads are under way while this one is computed.
            t_ahead = t - BLOCK
            here_ahead = live & (t_ahead >= 0)
            terminated_ahead = tl.load(terminated_ptr + env * terminated_b + t_ahead * terminated_t, mask=here_ahead, other=0)
            if truncated_ptr is not None:
                truncated_ahead = tl.load(truncated_ptr + env * truncated_b + t_ahead * truncated_t, mask=here_ahead, other=0)
            actions_ahead = tl.load(actions_ptr + env * actions_b + t_ahead * actions_t, mask=here_ahead, other=0)
            behavior_probs_ahead = tl.load(behavior_probs_ptr + env * behavior_probs_b + t_ahead * behavior_probs_t, mask=here_ahead, other=0)
            rewards_ahead = tl.load(rewards_ptr + env * rewards_b + t_ahead * rewards_t, mask=here_ahead, other=0)
            if final_values_ptr is not None:
                final_values_ahead = tl.load(final_values_ptr + env * final_values_b + t_ahead * final_values_t, mask=here_ahead, other=0)
        if gamma_ptr is None:
            gamma = tl.full(UNIT, gamma_value, ACC)  # retrace.yaml:18
        else:
            gamma = tl.load(gamma_ptr + env * gamma_b + t * gamma_t, mask=here, other=0).to(ACC)
        if lam_ptr is None:
            lam = tl.full(UNIT, lam_value, ACC)  # retrace.yaml:19
        else:
            lam = tl.load(lam_ptr + env * lam_b + t * lam_t, mask=here, other=0).to(ACC)
        target_probs_taken = tl.load(target_probs_ptr + env * target_probs_b + t * target_probs_t + actions * target_probs_a, mask=here & (actions >= 0) & (actions < A), other=float("nan")).to(ACC)  # retrace.yaml:7
        w = target_probs_taken / behavior_probs  # retrace.yaml:29
        if c_bar_ptr is None:
            c_bar = tl.full(UNIT, c_bar_value, ACC)  # retrace.yaml:20
        else:
            c_bar = tl.load(c_bar_ptr + env * c_bar_b + t * c_bar_t, mask=here, other=0).to(ACC)
        c = lam * smaller(larger(w, tl.full(UNIT, 0, ACC)), c_bar)  # retrace.yaml:30
        c_next = earlier(c, c_in, slot, AXIS, SHAPE)
        sum_a_ = tl.full(SHAPE, 0, ACC)  # retrace.yaml:28
        for a_block in range(0, A, A_BLOCK):
            a_at_ = (a_block + tl.arange(0, A_BLOCK)[:, None, None]).to(INDEX)
            target_probs = tl.load(target_probs_ptr + (env * (target_probs_b // A_ALIGN) + t * (target_probs_t // A_ALIGN)) * A_ALIGN + a_at_ * target_probs_a, mask=here & (a_at_ < A), other=0).to(ACC)  # retrace.yaml:7
            q_values = tl.load(q_values_ptr + (env * (q_values_b // A_ALIGN) + t * (q_values_t // A_ALIGN)) * A_ALIGN + a_at_ * q_values_a, mask=here & (a_at_ < A), other=0).to(ACC)  # retrace.yaml:6
            sum_a_ = sum_a_ + tl.sum(tl.where(a_at_ < A, target_probs * q_values, 0), 0)
        ev = sum_a_  # retrace.yaml:28
        ev_next = earlier(ev, ev_in, slot, AXIS, SHAPE)
        next_value = tl.where(terminated, tl.full(UNIT, 0, ACC), tl.where(truncated, final_values, ev_next))  # retrace.yaml:31
        q_values_taken = tl.load(q_values_ptr + env * q_values_b + t * q_values_t + actions * q_values_a, mask=here & (actions >= 0) & (actions < A), other=float("nan")).to(ACC)  # retrace.yaml:6
        q = q_values_taken  # retrace.yaml:27
        a = tl.where(terminated | truncated, tl.full(UNIT, 0, ACC), gamma * c_next)  # retrace.yaml:36
        b = rewards + gamma * next_value - q  # retrace.yaml:37
        a = tl.broadcast_to(a, SHAPE)
        b = tl.broadcast_to(b, SHAPE)
        a, b = tl.associative_scan((a, b), AXIS, combine_tame if TAME else combine)
        d = tl.where((a == 0) | (d_in == 0), b, a * d_in + b)
        targets = q + d  # retrace.yaml:41
        if targets_ptr is not None:
            tl.store(targets_ptr + env * targets_b + t * targets_t, targets, mask=here)  # retrace.yaml:41
        if advantages_ptr is not None:
            if rho_bar_ptr is None:
                rho_bar = tl.full(UNIT, rho_bar_value, ACC)  # retrace.yaml:21
            else:
                rho_bar = tl.load(rho_bar_ptr + env * rho_bar_b + t * rho_bar_t, mask=here, other=0).to(ACC)
            targets_next = earlier(targets, targets_in, slot, AXIS, SHAPE)
            next_q = tl.where(terminated, tl.full(UNIT, 0, ACC), tl.where(truncated, final_values, targets_next))  # retrace.yaml:32
            advantages = smaller(rho_bar, w) * (rewards + gamma * next_q - q)  # retrace.yaml:42
            tl.store(advantages_ptr + env * advantages_b + t * advantages_t, advantages, mask=here)  # retrace.yaml:42
        d_in = tl.sum(tl.where(slot == BLOCK - 1, d, 0), AXIS, keep_dims=True)
        c_in = tl.sum(tl.where(slot == BLOCK - 1, c, 0), AXIS, keep_dims=True)
        ev_in = tl.sum(tl.where(slot == BLOCK - 1, ev, 0), AXIS, keep_dims=True)
        if advantages_ptr is not None:
            targets_in = tl.sum(tl.where(slot == BLOCK - 1, targets, 0), AXIS, keep_dims=True)


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
    """The grid, the kernel's arguments in order and its warps, for inputs, outputs and params as `launch` has them."""
    batch, time = (1, 0) if time_major else (0, 1)
    out = next(x for x in (targets, advantages) if x is not None)
    B, T = out.shape[batch], out.shape[time]
    A = q_values.shape[2]
    dtypes = [x.dtype for x in (q_values, target_probs, behavior_probs, rewards, final_values, last_q_values, last_target_probs) if x is not None]
    ACC = tl.float64 if torch.float64 in dtypes else tl.float32
    A_BLOCK = min(triton.next_power_of_2(A), 4)
    A_ALIGN = math.gcd(16, *strides(q_values, batch, time), *strides(target_probs, batch, time), *strides(last_q_values, 0), *strides(last_target_probs, 0))
    total = B
    # Few environments: many steps a block, over several warps. Many: a warp each, with fewer steps and more lanes.
    steps, LANES = (512, 4) if total <= 1024 else (128, 16) if total <= 8192 else (16, 8)
    if total > 32768:
        steps, LANES = (8, 16) if total <= 2**18 else (4, 32)
    BLOCK = min(triton.next_power_of_2(T), steps)
    WARPS = max(1, LANES * BLOCK // 256) if steps >= 128 else 1
    WARPS = min(16, WARPS * 2)  # registers for the axis
    if LANES * BLOCK >= 2048:
        BLOCK, WARPS = 1024 // LANES, 8
    # Then no coefficient is beyond 1, and no product of them.
    TAME = not torch.is_tensor(c_bar) and -1 <= c_bar <= 1
    span = widest(q_values, target_probs, behavior_probs, actions, rewards, terminated, truncated, final_values, last_q_values, last_target_probs, targets, advantages)
    INDEX = tl.int32 if max(span, total + LANES) < 2**31 else tl.int64
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
        ACC,
        INDEX,
        0,  # AXIS
        LANES,
        BLOCK,
        T == BLOCK,  # FULL
        T > BLOCK,  # MANY
        TAME,
    )
    return triton.cdiv(total, LANES), packed, WARPS


def launch(time_major, q_values, target_probs, behavior_probs, actions, rewards, terminated, truncated, final_values, last_q_values, last_target_probs, targets, advantages, gamma, lam, c_bar, rho_bar):
    """Run the kernel: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    Returns the compiled kernel, its grid and its arguments, with which it can be launched again.
    """
    programs, packed, warps = arguments(time_major, q_values, target_probs, behavior_probs, actions, rewards, terminated, truncated, final_values, last_q_values, last_target_probs, targets, advantages, gamma, lam, c_bar, rho_bar)
    compiled = kernel[(programs,)](*packed, num_warps=warps, enable_fp_fusion=True)
    return compiled, programs, packed
