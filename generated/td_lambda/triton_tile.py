"""TD(λ) targets.

    ahead[t] = {0 if terminated[t], else {final_values[t] if truncated[t], else (1 − λ) · values[t+1]}}
    g[t] = γ · λ · g[t+1] + rewards[t] + γ · ahead[t],   g[T] = last_value
        g[t+1] dropped where terminated[t] or truncated[t]
    returns[t] = g[t]
    values[T] = last_value

Sutton & Barto 2018, section 12.1 (the λ-return)

Schedule tile, backward in time.
"""
# spec: td_lambda.yaml
# spec sha256: d493c6ee8b053dad46468f9ef1ef0ee54fd8da59910e76f1089fda4e7919c659
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
    last_value = tl.load(last_value_ptr + env * last_value_b, mask=live, other=0).to(ACC)  # td_lambda.yaml:11
    g_in = tl.zeros(NARROW, ACC) + last_value
    t_ahead = (T - 1 - slot).to(INDEX)
    here_ahead = live & (t_ahead >= 0)
    terminated_ahead = tl.load(terminated_ptr + env * terminated_b + t_ahead * terminated_t, mask=here_ahead, other=0)
    if truncated_ptr is not None:
        truncated_ahead = tl.load(truncated_ptr + env * truncated_b + t_ahead * truncated_t, mask=here_ahead, other=0)
    rewards_ahead = tl.load(rewards_ptr + env * rewards_b + t_ahead * rewards_t, mask=here_ahead, other=0)
    if final_values_ptr is not None:
        final_values_ahead = tl.load(final_values_ptr + env * final_values_b + t_ahead * final_values_t, mask=here_ahead, other=0)
    values_next_ahead = tl.load(values_ptr + env * values_b + (t_ahead + 1) * values_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
    for block in range(tl.cdiv(T, BLOCK)):
        t = t_ahead
        here = here_ahead
        terminated = terminated_ahead != 0  # td_lambda.yaml:8
        if truncated_ptr is None:
            truncated = tl.full(UNIT, False, tl.int1)  # td_lambda.yaml:9
        else:
            truncated = truncated_ahead != 0
        rewards = rewards_ahead.to(ACC)  # td_lambda.yaml:6
        if final_values_ptr is None:
            final_values = tl.full(UNIT, 0, ACC)  # td_lambda.yaml:10
        else:
            final_values = final_values_ahead.to(ACC)
        values_next = values_next_ahead.to(ACC)  # td_lambda.yaml:7
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
        if gamma_ptr is None:
            gamma = tl.full(UNIT, gamma_value, ACC)  # td_lambda.yaml:14
        else:
            gamma = tl.load(gamma_ptr + env * gamma_b + t * gamma_t, mask=here, other=0).to(ACC)
        if lam_ptr is None:
            lam = tl.full(UNIT, lam_value, ACC)  # td_lambda.yaml:15
        else:
            lam = tl.load(lam_ptr + env * lam_b + t * lam_t, mask=here, other=0).to(ACC)
        values_next = tl.where(t + 1 < T, values_next, last_value)
        ahead = tl.where(terminated, tl.full(UNIT, 0, ACC), tl.where(truncated, final_values, (1 - lam) * values_next))  # td_lambda.yaml:20
        a = tl.where(terminated | truncated, tl.full(UNIT, 0, ACC), gamma * lam)  # td_lambda.yaml:24
        b = rewards + gamma * ahead  # td_lambda.yaml:25
        a = tl.broadcast_to(a, SHAPE)
        b = tl.broadcast_to(b, SHAPE)
        a, b = tl.associative_scan((a, b), AXIS, combine)
        g = tl.where(a == 0, b, a * g_in + b)
        returns = g  # td_lambda.yaml:29
        if returns_ptr is not None:
            tl.store(returns_ptr + env * returns_b + t * returns_t, returns, mask=here)  # td_lambda.yaml:29
        g_in = tl.sum(tl.where(slot == BLOCK - 1, g, 0), AXIS, keep_dims=True)


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
    # A row of up to 4096 steps is one block; a longer one goes through blocks of 1024, each read ahead.
    BLOCK = triton.next_power_of_2(T) if T <= 4096 else 1024
    LANES = 8 if BLOCK <= 32 else 2 if BLOCK <= 128 else 1
    WARPS = max(1, LANES * BLOCK // 512) if T <= 512 else max(1, BLOCK // 1024) if T <= 4096 else 4
    return LANES, BLOCK, WARPS


def arguments(time_major, rewards, values, terminated, truncated, final_values, last_value, returns, gamma, lam):
    """The grid, the kernel's arguments in order and its warps, for inputs, outputs and params as `launch` has them."""
    batch, time = (1, 0) if time_major else (0, 1)
    out = returns
    B, T = out.shape[batch], out.shape[time]
    dtypes = [x.dtype for x in (rewards, values, final_values, last_value) if x is not None]
    ACC = tl.float64 if torch.float64 in dtypes else tl.float32
    total = B
    LANES, BLOCK, WARPS = tile(T, total)
    span = widest(rewards, values, terminated, truncated, final_values, last_value, returns)
    INDEX = tl.int32 if max(span, total + LANES) < 2**31 else tl.int64
    packed = (
        rewards,
        values,
        terminated,
        truncated,
        final_values,
        last_value,
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
        *strides(returns, batch, time),
        *strides(gamma, batch, time),
        *strides(lam, batch, time),
        B,
        T,
        ACC,
        INDEX,
        FAST,  # AXIS
        LANES,
        BLOCK,
        T == BLOCK,  # FULL
        T > BLOCK,  # MANY
    )
    return triton.cdiv(total, LANES), packed, WARPS


def launch(time_major, rewards, values, terminated, truncated, final_values, last_value, returns, gamma, lam):
    """Run the kernel: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    Returns the compiled kernel, its grid and its arguments, with which it can be launched again.
    """
    programs, packed, warps = arguments(time_major, rewards, values, terminated, truncated, final_values, last_value, returns, gamma, lam)
    compiled = kernel[(programs,)](*packed, num_warps=warps, enable_fp_fusion=True)
    return compiled, programs, packed
