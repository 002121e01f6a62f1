"""Episodic prefix sums.

    c[t] = c[t−1] + x[t],   c[−1] = initial_sum
        c[t−1] dropped where done[t−1] or start[t]
    sums[t] = c[t]
    done[−1] = false

Blelloch 1990, segmented scans

Schedule columns, forward in time.
"""
# spec: episodic_prefix_sum.yaml
# spec sha256: 8bc8b68694ab6c65f4e30e64cb6cc7f0540207843aaaf68b63147b8e831909ba
# made by rlscan from that file and this schedule's template; `rlscan build` makes it again

import math

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
    x_ptr,
    done_ptr,
    start_ptr,
    initial_sum_ptr,
    sums_ptr,
    x_b,
    x_t,
    x_f,
    done_b,
    done_t,
    start_b,
    start_t,
    initial_sum_b,
    initial_sum_f,
    sums_b,
    sums_t,
    sums_f,
    B,
    T,
    F: tl.constexpr,
    F_ALIGN: tl.constexpr,
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
    live = lane < B * F
    f_lane = lane % F
    env = lane // F
    if initial_sum_ptr is None:
        initial_sum = tl.full(UNIT, 0, ACC)  # episodic_prefix_sum.yaml:9
    else:
        initial_sum = tl.load(initial_sum_ptr + env * (initial_sum_b // F_ALIGN) * F_ALIGN + f_lane * initial_sum_f, mask=live, other=0).to(ACC)  # episodic_prefix_sum.yaml:9
    c_in = tl.zeros(NARROW, ACC) + initial_sum
    t_ahead = slot.to(INDEX)
    here_ahead = live & (t_ahead < T)
    if done_ptr is not None:
        done_prev_ahead = tl.load(done_ptr + env * done_b + (t_ahead - 1) * done_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
    if start_ptr is not None:
        start_ahead = tl.load(start_ptr + env * start_b + t_ahead * start_t, mask=here_ahead, other=0)
    x_ahead = tl.load(x_ptr + (env * (x_b // F_ALIGN) + t_ahead * (x_t // F_ALIGN)) * F_ALIGN + f_lane * x_f, mask=here_ahead, other=0)
    for block in range(tl.cdiv(T, BLOCK)):
        t = t_ahead
        here = here_ahead
        if done_ptr is None:
            done_prev = tl.full(UNIT, False, tl.int1)  # episodic_prefix_sum.yaml:7
        else:
            done_prev = done_prev_ahead != 0
        if start_ptr is None:
            start = tl.full(UNIT, False, tl.int1)  # episodic_prefix_sum.yaml:8
        else:
            start = start_ahead != 0
        x = x_ahead.to(ACC)  # episodic_prefix_sum.yaml:6
        if MANY:
            # The next block's reads are under way while this one is computed.
            t_ahead = t + BLOCK
            here_ahead = live & (t_ahead < T)
            if done_ptr is not None:
                done_prev_ahead = tl.load(done_ptr + env * done_b + (t_ahead - 1) * done_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
            if start_ptr is not None:
                start_ahead = tl.load(start_ptr + env * start_b + t_ahead * start_t, mask=here_ahead, other=0)
            x_ahead = tl.load(x_ptr + (env * (x_b // F_ALIGN) + t_ahead * (x_t // F_ALIGN)) * F_ALIGN + f_lane * x_f, mask=here_ahead, other=0)
        done_prev = tl.where(t - 1 >= 0, done_prev, tl.full(UNIT, False, tl.int1))
        a = tl.where(done_prev | start, tl.full(UNIT, 0, ACC), tl.full(UNIT, 1, ACC))  # episodic_prefix_sum.yaml:15
        b = x  # episodic_prefix_sum.yaml:16
        a = tl.broadcast_to(a, SHAPE)
        b = tl.broadcast_to(b, SHAPE)
        a, b = tl.associative_scan((a, b), AXIS, combine)
        c = tl.where(a == 0, b, a * c_in + b)
        sums = c  # episodic_prefix_sum.yaml:20
        if sums_ptr is not None:
            tl.store(sums_ptr + (env * (sums_b // F_ALIGN) + t * (sums_t // F_ALIGN)) * F_ALIGN + f_lane * sums_f, sums, mask=here)  # episodic_prefix_sum.yaml:20
        c_in = tl.sum(tl.where(slot == BLOCK - 1, c, 0), AXIS, keep_dims=True)


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


def arguments(time_major, x, done, start, initial_sum, sums):
    """The grid, the kernel's arguments in order and its warps, for inputs, outputs and params as `launch` has them."""
    batch, time = (1, 0) if time_major else (0, 1)
    out = sums
    B, T = out.shape[batch], out.shape[time]
    F = x.shape[2]
    dtypes = [x.dtype for x in (x, initial_sum) if x is not None]
    ACC = (tl.float64 if torch.float64 in dtypes else tl.float32) if out.is_floating_point() else tl.int64
    F_ALIGN = math.gcd(16, *strides(x, batch, time), *strides(initial_sum, 0), *strides(sums, batch, time))
    total = B * F
    LANES, BLOCK, WARPS = tile(T, total)
    span = widest(x, done, start, initial_sum, sums)
    INDEX = tl.int32 if max(span, total + LANES) < 2**31 else tl.int64
    packed = (
        x,
        done,
        start,
        initial_sum,
        sums,
        *strides(x, batch, time, 2),
        *strides(done, batch, time),
        *strides(start, batch, time),
        *strides(initial_sum, 0, 1),
        *strides(sums, batch, time, 2),
        B,
        T,
        F,
        F_ALIGN,
        ACC,
        INDEX,
        0,  # AXIS
        LANES,
        BLOCK,
        T == BLOCK,  # FULL
        T > BLOCK,  # MANY
    )
    return triton.cdiv(total, LANES), packed, WARPS


def launch(time_major, x, done, start, initial_sum, sums):
    """Run the kernel: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    Returns the compiled kernel, its grid and its arguments, with which it can be launched again.
    """
    programs, packed, warps = arguments(time_major, x, done, start, initial_sum, sums)
    compiled = kernel[(programs,)](*packed, num_warps=warps, enable_fp_fusion=True)
    return compiled, programs, packed
