"""Generalized advantage estimation.

    next_value[t] = {final_values[t] if truncated[t], else values[t+1]}
    δ[t] = rewards[t] + {0 if terminated[t], else γ · next_value[t]} − values[t]
    adv[t] = γ · λ · adv[t+1] + δ[t],   adv[T] = 0
        adv[t+1] dropped where terminated[t] or truncated[t]
    advantages[t] = adv[t]
    returns[t] = adv[t] + values[t]
    values[T] = last_value

Schulman et al. 2016, arXiv:1506.02438

Schedule chunks, backward in time.
"""
# spec: gae.yaml
# spec sha256: 6b3a257cc86a3e8b9fdbbc02a95b60642d07c77cb79e75bfa2c17c658e8a78e5
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
def composed(
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
    a_composed_ptr,
    b_composed_ptr,
    adv_arriving_ptr,
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
    CHUNK,
    CHUNKS,
    ACC: tl.constexpr,
    INDEX: tl.constexpr,
    AXIS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
    MANY: tl.constexpr,
    MOST: tl.constexpr,
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
    last_value = tl.load(last_value_ptr + env * last_value_b, mask=live, other=0).to(ACC)  # gae.yaml:11
    a_run = tl.full(NARROW, 1, ACC)
    b_run = tl.full(NARROW, 0, ACC)
    t_ahead = (T - 1 - place).to(INDEX)
    here_ahead = live & (t_ahead >= least)
    terminated_ahead = tl.load(terminated_ptr + env * terminated_b + t_ahead * terminated_t, mask=here_ahead, other=0)
    if truncated_ptr is not None:
        truncated_ahead = tl.load(truncated_ptr + env * truncated_b + t_ahead * truncated_t, mask=here_ahead, other=0)
    rewards_ahead = tl.load(rewards_ptr + env * rewards_b + t_ahead * rewards_t, mask=here_ahead, other=0)
    if final_values_ptr is not None:
        final_values_ahead = tl.load(final_values_ptr + env * final_values_b + t_ahead * final_values_t, mask=here_ahead, other=0)
    values_next_ahead = tl.load(values_ptr + env * values_b + (t_ahead + 1) * values_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
    values_ahead = tl.load(values_ptr + env * values_b + t_ahead * values_t, mask=here_ahead, other=0)
    for block in range(tl.cdiv(tl.minimum(CHUNK, T - chunk * CHUNK), BLOCK)):
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
            here_ahead = live & (t_ahead >= least)
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
        a_last = tl.sum(tl.where(slot == BLOCK - 1, a, 0), AXIS, keep_dims=True)
        b_last = tl.sum(tl.where(slot == BLOCK - 1, b, 0), AXIS, keep_dims=True)
        a_run, b_run = combine(a_run, b_run, a_last, b_last)
    tl.store(a_composed_ptr + lane * CHUNKS + chunk, a_run, mask=live)
    tl.store(b_composed_ptr + lane * CHUNKS + chunk, b_run, mask=live)


@triton.jit
def arriving(
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
    a_composed_ptr,
    b_composed_ptr,
    adv_arriving_ptr,
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
    CHUNK,
    CHUNKS,
    ACC: tl.constexpr,
    INDEX: tl.constexpr,
    AXIS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
    MANY: tl.constexpr,
    MOST: tl.constexpr,
):
    """The carry that arrives at each chunk: a program owns one environment, and scans the chunks before each one."""
    UNIT: tl.constexpr = [1, 1]
    NARROW: tl.constexpr = [1, 1]
    lane = tl.program_id(0).to(INDEX) + tl.zeros([1, 1], INDEX)
    live = lane >= 0
    env = lane
    adv_in = tl.zeros(NARROW, ACC) + tl.full(UNIT, 0, ACC)
    tl.store(adv_arriving_ptr + lane * CHUNKS, adv_in)
    for first in range(0, CHUNKS, MOST):
        slot = tl.arange(0, MOST)[None, :]
        chunk = first + slot
        a = tl.load(a_composed_ptr + lane * CHUNKS + chunk, mask=chunk < CHUNKS, other=1)
        b = tl.load(b_composed_ptr + lane * CHUNKS + chunk, mask=chunk < CHUNKS, other=0)
        a, b = tl.associative_scan((a, b), 1, combine)
        adv = tl.where(a == 0, b, a * adv_in + b)
        tl.store(adv_arriving_ptr + lane * CHUNKS + chunk + 1, adv, mask=chunk + 1 < CHUNKS)
        adv_in = tl.sum(tl.where(slot == MOST - 1, adv, 0), 1, keep_dims=True)


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
    a_composed_ptr,
    b_composed_ptr,
    adv_arriving_ptr,
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
    CHUNK,
    CHUNKS,
    ACC: tl.constexpr,
    INDEX: tl.constexpr,
    AXIS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
    MANY: tl.constexpr,
    MOST: tl.constexpr,
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
    last_value = tl.load(last_value_ptr + env * last_value_b, mask=live, other=0).to(ACC)  # gae.yaml:11
    adv_in = tl.zeros(NARROW, ACC) + tl.load(adv_arriving_ptr + lane * CHUNKS + chunk, mask=live, other=0)
    t_ahead = (T - 1 - place).to(INDEX)
    here_ahead = live & (t_ahead >= least)
    terminated_ahead = tl.load(terminated_ptr + env * terminated_b + t_ahead * terminated_t, mask=here_ahead, other=0)
    if truncated_ptr is not None:
        truncated_ahead = tl.load(truncated_ptr + env * truncated_b + t_ahead * truncated_t, mask=here_ahead, other=0)
    rewards_ahead = tl.load(rewards_ptr + env * rewards_b + t_ahead * rewards_t, mask=here_ahead, other=0)
    if final_values_ptr is not None:
        final_values_ahead = tl.load(final_values_ptr + env * final_values_b + t_ahead * final_values_t, mask=here_ahead, other=0)
    values_next_ahead = tl.load(values_ptr + env * values_b + (t_ahead + 1) * values_t, mask=here_ahead & (t_ahead + 1 < T), other=0)
    values_ahead = tl.load(values_ptr + env * values_b + t_ahead * values_t, mask=here_ahead, other=0)
    for block in range(tl.cdiv(tl.minimum(CHUNK, T - chunk * CHUNK), BLOCK)):
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
            here_ahead = live & (t_ahead >= least)
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


def arguments(time_major, rewards, values, terminated, truncated, final_values, last_value, advantages, returns, gamma, lam):
    """The environments' programs, the chunks, the kernels' arguments in order and their warps, for what `launch` takes."""
    batch, time = (1, 0) if time_major else (0, 1)
    out = next(x for x in (advantages, returns) if x is not None)
    B, T = out.shape[batch], out.shape[time]
    dtypes = [x.dtype for x in (rewards, values, final_values, last_value) if x is not None]
    ACC = tl.float64 if torch.float64 in dtypes else tl.float32
    total = B
    across = time_major
    # Small blocks in one warp or two, a few to a chunk, and at most some thousand chunks of a row.
    LANES = min(triton.next_power_of_2(total), 32) if across else 1
    BLOCK, WARPS = (256, 1) if LANES == 1 else (512 // LANES, 2)
    CHUNK = max((2 if LANES == 1 else 4) * BLOCK, triton.next_power_of_2(T) // 2048)
    MOST = 1024  # chunks of a row, scanned at once
    CHUNKS = triton.cdiv(T, CHUNK)
    span = widest(rewards, values, terminated, truncated, final_values, last_value, advantages, returns)
    INDEX = tl.int32 if max(span, T + CHUNK, (total + LANES) * CHUNKS) < 2**31 else tl.int64
    number = {tl.float32: torch.float32, tl.float64: torch.float64, tl.int64: torch.int64}[ACC]
    a_composed = torch.empty((total, CHUNKS), dtype=number, device=out.device)
    b_composed = torch.empty((total, CHUNKS), dtype=number, device=out.device)
    adv_arriving = torch.empty((total, CHUNKS), dtype=number, device=out.device)
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
        a_composed,
        b_composed,
        adv_arriving,
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
        CHUNK,
        CHUNKS,
        ACC,
        INDEX,
        0 if across else FAST,  # AXIS
        LANES,
        BLOCK,
        CHUNK > BLOCK,  # MANY
        MOST,
    )
    return triton.cdiv(total, LANES), CHUNKS, total, packed, WARPS


def launch(time_major, rewards, values, terminated, truncated, final_values, last_value, advantages, returns, gamma, lam):
    """Run the kernels: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    Returns the compiled kernels, each with its grid, and their arguments, with which they can be launched again.
    """
    groups, chunks, total, packed, warps = arguments(time_major, rewards, values, terminated, truncated, final_values, last_value, advantages, returns, gamma, lam)
    options = {"enable_fp_fusion": True}
    first = composed[groups, chunks](*packed, num_warps=warps, **options)
    second = arriving[(total,)](*packed, num_warps=4, **options)
    third = kernel[groups, chunks](*packed, num_warps=warps, **options)
    return ((first, (groups, chunks)), (second, (total, 1)), (third, (groups, chunks))), packed
