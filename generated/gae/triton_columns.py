"""Generalized advantage estimation.

    next_value[t] = {final_values[t] if truncated[t], else values[t+1]}
    δ[t] = rewards[t] + {0 if terminated[t], else γ · next_value[t]} − values[t]
    adv[t] = γ · λ · adv[t+1] + δ[t],   adv[T] = 0
        adv[t+1] dropped where terminated[t] or truncated[t]
    advantages[t] = adv[t]
    returns[t] = adv[t] + values[t]
    values[T] = last_value

Schulman et al. 2016, arXiv:1506.02438

Schedule columns, backward in time.
"""
# spec: gae.yaml
# spec sha256: 6b3a257cc86a3e8b9fdbbc02a95b60642d07c77cb79e75bfa2c17c658e8a78e5
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import torch
import triton
import triton.language as tl


@triton.jit
def combine(a_first, b_first, a_second, b_second):
    """The step `second` after the step `first`."""
    return (
        tl.where(a_second == 0, 0, a_second * a_first),
        tl.where(a_second == 0, b_second, a_second * b_first + b_second),
    )


@triton.jit
def kernel(
    rewards_ptr,
    values_ptr,
    terminated_ptr,
    truncated_ptr,
    final_values_ptr,
    last_value_ptr,
    advantages_ptr,
    returns_ptr,
    gamma_ptr,
    lam_ptr,
    gamma_value: "fp64",
    lam_value: "fp64",
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
    advantages_b,
    advantages_t,
    returns_b,
    returns_t,
    gamma_b,
    gamma_t,
    lam_b,
    lam_t,
    B,
    T,
    ACC: tl.constexpr,
    INDEX: tl.constexpr,
    AXIS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
    FULL: tl.constexpr,
    MANY: tl.constexpr,
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
    last_value = tl.load(last_value_ptr + env * last_value_b, mask=live, other=0).to(ACC)  # gae.yaml:11
    adv_in = tl.zeros(NARROW, ACC) + tl.full(UNIT, 0, ACC)
    t_ahead = (T - 1 - slot).to(INDEX)
    here_ahead = live & (t_ahead >= 0)
    terminated_ahead = tl.load(terminated_ptr + env * terminated_b + t_ahead * terminated_t, mask=here_ahead, other=0)
    if truncated_ptr is not None:
        truncated_ahead = tl.load(truncated_ptr + env * truncated_b + t_ahead * truncated_t, mask=here_ahead, other=0)
    rewards_ahead = tl.load(rewards_ptr + env * rewards_b + t_ahead * rewards_t, mask=here_ahead, other=0)
    if final_values_ptr is not None:
        final_values_ahead = tl.load(final_values_ptr + env * final_values_b + t_ahead * final_values_t, mask=here_ahead, other=0)
    values_next_ahead = tl.load(values_ptr + env * values_b + (t_ahead + 1) * values_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
    values_ahead = tl.load(values_ptr + env * values_b + t_ahead * values_t, mask=here_ahead, other=0)
    for block in range(tl.cdiv(T, BLOCK)):
        t = t_ahead
        here = here_ahead
        terminated = terminated_ahead != 0  # gae.yaml:8
        if truncated_ptr is None:
            truncated = tl.full(UNIT, False, tl.int1)  # gae.yaml:9
        else:
            truncated = truncated_ahead != 0
        rewards = rewards_ahead.to(ACC)  # gae.yaml:6
        if final_values_ptr is None:
            final_values = tl.full(UNIT, 0, ACC)  # gae.yaml:10
        else:
            final_values = final_values_ahead.to(ACC)
        values_next = values_next_ahead.to(ACC)  # gae.yaml:7
        values = values_ahead.to(ACC)  # gae.yaml:7
        if MANY:
            # The next block's reads are under way while this one is computed.
            t_ahead = t - BLOCK
            here_ahead = live & (t_ahead >= 0)
            terminated_ahead = tl.load(terminated_ptr + env * terminated_b + t_ahead * terminated_t, mask=here_ahead, other=0)
            if truncated_ptr is not None:
                truncated_ahead = tl.load(truncated_ptr + env * truncated_b + t_ahead * truncated_t, mask=here_ahead, other=0)
            rewards_ahead = tl.load(rewards_ptr + env * rewards_b + t_ahead * rewards_t, mask=here_ahead, other=0)
            if final_values_ptr is not None:
                final_values_ahead = tl.load(final_values_ptr + env * final_values_b + t_ahead * final_values_t, mask=here_ahead, other=0)
            values_next_ahead = tl.load(values_ptr + env * values_b + (t_ahead + 1) * values_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
            values_ahead = tl.load(values_ptr + env * values_b + t_ahead * values_t, mask=here_ahead, other=0)
        if gamma_ptr is None:
            gamma = tl.full(UNIT, gamma_value, ACC)  # gae.yaml:14
        else:
            gamma = tl.load(gamma_ptr + env * gamma_b + t * gamma_t, mask=here, other=0).to(ACC)
        if lam_ptr is None:
            lam = tl.full(UNIT, lam_value, ACC)  # gae.yaml:15
        else:
            lam = tl.load(lam_ptr + env * lam_b + t * lam_t, mask=here, other=0).to(ACC)
        values_next = tl.where(t + 1 < T, values_next, last_value)
        next_value = tl.where(truncated, final_values, values_next)  # gae.yaml:19
        delta = rewards + tl.where(terminated, tl.full(UNIT, 0, ACC), gamma * next_value) - values  # gae.yaml:20
        a = tl.where(terminated | truncated, tl.full(UNIT, 0, ACC), gamma * lam)  # gae.yaml:24
        b = delta  # gae.yaml:25
        a = tl.broadcast_to(a, SHAPE)
        b = tl.broadcast_to(b, SHAPE)
        a, b = tl.associative_scan((a, b), AXIS, combine)
        adv = tl.where(a == 0, b, a * adv_in + b)
        if advantages_ptr is not None:
            advantages = adv  # gae.yaml:29
            tl.store(advantages_ptr + env * advantages_b + t * advantages_t, advantages, mask=here)  # gae.yaml:29
        if returns_ptr is not None:
            returns = adv + values  # gae.yaml:30
            tl.store(returns_ptr + env * returns_b + t * returns_t, returns, mask=here)  # gae.yaml:30
        adv_in = tl.sum(tl.where(slot == BLOCK - 1, adv, 0), AXIS, keep_dims=True)


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


def tile(T, total):
    """How many lanes and steps a program's block has, and its warps, for windows of T steps of `total` lanes."""
    # Few environments: many steps a block, over several warps. Many: a warp each, with fewer steps and more lanes.
    steps, LANES = (512, 4) if total <= 1024 else (128, 16) if total <= 8192 else (16, 8)
    if total > 32768:
        steps, LANES = (8, 16) if total <= 2**18 else (4, 32)
    BLOCK = min(triton.next_power_of_2(T), steps)
    WARPS = max(1, LANES * BLOCK // 256) if steps >= 128 else 1
    return LANES, BLOCK, WARPS


def arguments(time_major, rewards, values, terminated, truncated, final_values, last_value, advantages, returns, gamma, lam):
    """The grid, the kernel's arguments in order and its warps, for inputs, outputs and params as `launch` has them."""
    batch, time = (1, 0) if time_major else (0, 1)
    out = next(x for x in (advantages, returns) if x is not None)
    B, T = out.shape[batch], out.shape[time]
    dtypes = [x.dtype for x in (rewards, values, final_values, last_value) if x is not None]
    ACC = tl.float64 if torch.float64 in dtypes else tl.float32
    total = B
    LANES, BLOCK, WARPS = tile(T, total)
    span = widest(rewards, values, terminated, truncated, final_values, last_value, advantages, returns)
    INDEX = tl.int32 if max(span, total + LANES) < 2**31 else tl.int64
    packed = (
        rewards,
        values,
        terminated,
        truncated,
        final_values,
        last_value,
        advantages,
        returns,
        gamma if torch.is_tensor(gamma) else None,
        lam if torch.is_tensor(lam) else None,
        0.0 if torch.is_tensor(gamma) else gamma,
        0.0 if torch.is_tensor(lam) else lam,
        *strides(rewards, batch, time),
        *strides(values, batch, time),
        *strides(terminated, batch, time),
        *strides(truncated, batch, time),
        *strides(final_values, batch, time),
        *strides(last_value, 0),
        *strides(advantages, batch, time),
        *strides(returns, batch, time),
        *strides(gamma, batch, time),
        *strides(lam, batch, time),
        B,
        T,
        ACC,
        INDEX,
        0,  # AXIS
        LANES,
        BLOCK,
        T == BLOCK,  # FULL
        T > BLOCK,  # MANY
    )
    return triton.cdiv(total, LANES), packed, WARPS


def launch(time_major, rewards, values, terminated, truncated, final_values, last_value, advantages, returns, gamma, lam):
    """Run the kernel: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    Returns the compiled kernel, its grid and its arguments, with which it can be launched again.
    """
    programs, packed, warps = arguments(time_major, rewards, values, terminated, truncated, final_values, last_value, advantages, returns, gamma, lam)
    compiled = kernel[(programs,)](*packed, num_warps=warps, enable_fp_fusion=True)
    return compiled, programs, packed
