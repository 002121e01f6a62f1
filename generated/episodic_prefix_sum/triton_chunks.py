"""Episodic prefix sums.

    c[t] = c[t−1] + x[t],   c[−1] = initial_sum
        c[t−1] dropped where done[t−1] or start[t]
    sums[t] = c[t]
    done[−1] = false

Blelloch 1990, segmented scans

Schedule chunks, forward in time.
"""
# spec: episodic_prefix_sum.yaml
# spec sha256: 8bc8b68694ab6c65f4e30e64cb6cc7f0540207843aaaf68b63147b8e831909ba
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
    x_ptr,
    done_ptr,
    start_ptr,
    initial_sum_ptr,
    sums_ptr,
    a_composed_ptr,
    b_composed_ptr,
    c_arriving_ptr,
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
    F,
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
    end = tl.minimum((chunk + 1) * CHUNK, T)
    lane += tl.program_id(0).to(INDEX) * LANES
    live = lane < B * F
    f_lane = lane % F
    env = lane // F
    a_run = tl.full(NARROW, 1, ACC)
    b_run = tl.full(NARROW, 0, ACC)
    t_ahead = place.to(INDEX)
    here_ahead = live & (t_ahead < end)
    if done_ptr is not None:
        done_prev_ahead = tl.load(done_ptr + env * done_b + (t_ahead - 1) * done_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
    if start_ptr is not None:
        start_ahead = tl.load(start_ptr + env * start_b + t_ahead * start_t, mask=here_ahead, other=0)
    x_ahead = tl.load(x_ptr + env * x_b + t_ahead * x_t + f_lane * x_f, mask=here_ahead, other=0)
    for block in range(tl.cdiv(tl.minimum(CHUNK, T - chunk * CHUNK), BLOCK)):
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
            here_ahead = live & (t_ahead < end)
            if done_ptr is not None:
                done_prev_ahead = tl.load(done_ptr + env * done_b + (t_ahead - 1) * done_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
            if start_ptr is not None:
                start_ahead = tl.load(start_ptr + env * start_b + t_ahead * start_t, mask=here_ahead, other=0)
            x_ahead = tl.load(x_ptr + env * x_b + t_ahead * x_t + f_lane * x_f, mask=here_ahead, other=0)
        done_prev = tl.where(t - 1 >= 0, done_prev, tl.full(UNIT, False, tl.int1))
        a = tl.where(done_prev | start, tl.full(UNIT, 0, ACC), tl.full(UNIT, 1, ACC))  # episodic_prefix_sum.yaml:15
        b = x  # episodic_prefix_sum.yaml:16
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
    x_ptr,
    done_ptr,
    start_ptr,
    initial_sum_ptr,
    sums_ptr,
    a_composed_ptr,
    b_composed_ptr,
    c_arriving_ptr,
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
    F,
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
    f_lane = lane % F
    env = lane // F
    if initial_sum_ptr is None:
        initial_sum = tl.full(UNIT, 0, ACC)  # episodic_prefix_sum.yaml:9
    else:
        initial_sum = tl.load(initial_sum_ptr + env * initial_sum_b + f_lane * initial_sum_f, mask=live, other=0).to(ACC)  # episodic_prefix_sum.yaml:9
    c_in = tl.zeros(NARROW, ACC) + initial_sum
    tl.store(c_arriving_ptr + lane * CHUNKS, c_in)
    for first in range(0, CHUNKS, MOST):
        slot = tl.arange(0, MOST)[None, :]
        chunk = first + slot
        a = tl.load(a_composed_ptr + lane * CHUNKS + chunk, mask=chunk < CHUNKS, other=1)
        b = tl.load(b_composed_ptr + lane * CHUNKS + chunk, mask=chunk < CHUNKS, other=0)
        a, b = tl.associative_scan((a, b), 1, combine)
        c = tl.where(a == 0, b, a * c_in + b)
        tl.store(c_arriving_ptr + lane * CHUNKS + chunk + 1, c, mask=chunk + 1 < CHUNKS)
        c_in = tl.sum(tl.where(slot == MOST - 1, c, 0), 1, keep_dims=True)


@triton.jit
def kernel(
    x_ptr,
    done_ptr,
    start_ptr,
    initial_sum_ptr,
    sums_ptr,
    a_composed_ptr,
    b_composed_ptr,
    c_arriving_ptr,
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
    F,
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
    end = tl.minimum((chunk + 1) * CHUNK, T)
    lane += tl.program_id(0).to(INDEX) * LANES
    live = lane < B * F
    f_lane = lane % F
    env = lane // F
    if initial_sum_ptr is None:
        initial_sum = tl.full(UNIT, 0, ACC)  # episodic_prefix_sum.yaml:9
    else:
        initial_sum = tl.load(initial_sum_ptr + env * initial_sum_b + f_lane * initial_sum_f, mask=live, other=0).to(ACC)  # episodic_prefix_sum.yaml:9
    c_in = tl.zeros(NARROW, ACC) + tl.load(c_arriving_ptr + lane * CHUNKS + chunk, mask=live, other=0)
    t_ahead = place.to(INDEX)
    here_ahead = live & (t_ahead < end)
    if done_ptr is not None:
        done_prev_ahead = tl.load(done_ptr + env * done_b + (t_ahead - 1) * done_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
    if start_ptr is not None:
        start_ahead = tl.load(start_ptr + env * start_b + t_ahead * start_t, mask=here_ahead, other=0)
    x_ahead = tl.load(x_ptr + env * x_b + t_ahead * x_t + f_lane * x_f, mask=here_ahead, other=0)
    for block in range(tl.cdiv(tl.minimum(CHUNK, T - chunk * CHUNK), BLOCK)):
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
            here_ahead = live & (t_ahead < end)
            if done_ptr is not None:
                done_prev_ahead = tl.load(done_ptr + env * done_b + (t_ahead - 1) * done_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
            if start_ptr is not None:
                start_ahead = tl.load(start_ptr + env * start_b + t_ahead * start_t, mask=here_ahead, other=0)
            x_ahead = tl.load(x_ptr + env * x_b + t_ahead * x_t + f_lane * x_f, mask=here_ahead, other=0)
        done_prev = tl.where(t - 1 >= 0, done_prev, tl.full(UNIT, False, tl.int1))
        a = tl.where(done_prev | start, tl.full(UNIT, 0, ACC), tl.full(UNIT, 1, ACC))  # episodic_prefix_sum.yaml:15
        b = x  # episodic_prefix_sum.yaml:16
        a = tl.broadcast_to(a, SHAPE)
        b = tl.broadcast_to(b, SHAPE)
        a, b = tl.associative_scan((a, b), AXIS, combine)
        c = tl.where(a == 0, b, a * c_in + b)
        sums = c  # episodic_prefix_sum.yaml:20
        if sums_ptr is not None:
            tl.store(sums_ptr + env * sums_b + t * sums_t + f_lane * sums_f, sums, mask=here)  # episodic_prefix_sum.yaml:20
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


def arguments(time_major, x, done, start, initial_sum, sums):
    """The environments' programs, the chunks, the kernels' arguments in order and their warps, for what `launch` takes."""
    batch, time = (1, 0) if time_major else (0, 1)
    out = sums
    B, T = out.shape[batch], out.shape[time]
    F = x.shape[2]
    dtypes = [x.dtype for x in (x, initial_sum) if x is not None]
    ACC = (tl.float64 if torch.float64 in dtypes else tl.float32) if out.is_floating_point() else tl.int64
    total = B * F
    across = time_major or total > B
    # Small blocks in one warp or two, a few to a chunk, and at most some thousand chunks of a row.
    LANES = min(triton.next_power_of_2(total), 32) if across else 1
    BLOCK, WARPS = (256, 1) if LANES == 1 else (512 // LANES, 2)
    CHUNK = max((2 if LANES == 1 else 4) * BLOCK, triton.next_power_of_2(T) // 2048)
    MOST = 1024  # chunks of a row, scanned at once
    CHUNKS = triton.cdiv(T, CHUNK)
    span = widest(x, done, start, initial_sum, sums)
    INDEX = tl.int32 if max(span, T + CHUNK, (total + LANES) * CHUNKS) < 2**31 else tl.int64
    number = {tl.float32: torch.float32, tl.float64: torch.float64, tl.int64: torch.int64}[ACC]
    a_composed = torch.empty((total, CHUNKS), dtype=number, device=out.device)
    b_composed = torch.empty((total, CHUNKS), dtype=number, device=out.device)
    c_arriving = torch.empty((total, CHUNKS), dtype=number, device=out.device)
    packed = (
        x,
        done,
        start,
        initial_sum,
        sums,
        a_composed,
        b_composed,
        c_arriving,
        *strides(x, batch, time, 2),
        *strides(done, batch, time),
        *strides(start, batch, time),
        *strides(initial_sum, 0, 1),
        *strides(sums, batch, time, 2),
        B,
        T,
        F,
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


def launch(time_major, x, done, start, initial_sum, sums):
    """Run the kernels: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    Returns the compiled kernels, each with its grid, and their arguments, with which they can be launched again.
    """
    groups, chunks, total, packed, warps = arguments(time_major, x, done, start, initial_sum, sums)
    options = {"enable_fp_fusion": True}
    first = composed[groups, chunks](*packed, num_warps=warps, **options)
    second = arriving[(total,)](*packed, num_warps=4, **options)
    third = kernel[groups, chunks](*packed, num_warps=warps, **options)
    return ((first, (groups, chunks)), (second, (total, 1)), (third, (groups, chunks))), packed
