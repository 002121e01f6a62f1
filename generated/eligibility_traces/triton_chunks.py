"""Accumulating eligibility traces.

    z[t] = γ · λ · z[t−1] + features[t],   z[−1] = initial_trace
        z[t−1] dropped where terminated[t−1] or truncated[t−1]
    traces[t] = z[t]
    terminated[−1] = false
    truncated[−1] = false

Sutton & Barto 2018, section 12.2

Schedule chunks, forward in time.
"""
# spec: eligibility_traces.yaml
# spec sha256: 77fb698507119cc60b1edea1ef5bcf8c086354c280344f4954bd15fcae728ec5
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
    features_ptr,
    terminated_ptr,
    truncated_ptr,
    initial_trace_ptr,
    traces_ptr,
    gamma_ptr,
    lam_ptr,
    gamma_value: "fp64",
    lam_value: "fp64",
    a_composed_ptr,
    b_composed_ptr,
    z_arriving_ptr,
    features_b,
    features_t,
    features_f,
    terminated_b,
    terminated_t,
    truncated_b,
    truncated_t,
    initial_trace_b,
    initial_trace_f,
    traces_b,
    traces_t,
    traces_f,
    gamma_b,
    gamma_t,
    lam_b,
    lam_t,
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
    terminated_prev_ahead = tl.load(terminated_ptr + env * terminated_b + (t_ahead - 1) * terminated_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
    if truncated_ptr is not None:
        truncated_prev_ahead = tl.load(truncated_ptr + env * truncated_b + (t_ahead - 1) * truncated_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
    features_ahead = tl.load(features_ptr + env * features_b + t_ahead * features_t + f_lane * features_f, mask=here_ahead, other=0)
    for block in range(tl.cdiv(tl.minimum(CHUNK, T - chunk * CHUNK), BLOCK)):
        t = t_ahead
        here = here_ahead
        terminated_prev = terminated_prev_ahead != 0  # eligibility_traces.yaml:7
        if truncated_ptr is None:
            truncated_prev = tl.full(UNIT, False, tl.int1)  # eligibility_traces.yaml:8
        else:
            truncated_prev = truncated_prev_ahead != 0
        features = features_ahead.to(ACC)  # eligibility_traces.yaml:6
        if MANY:
            # The next block's reads are under way while this one is computed.
            t_ahead = t + BLOCK
            here_ahead = live & (t_ahead < end)
            terminated_prev_ahead = tl.load(terminated_ptr + env * terminated_b + (t_ahead - 1) * terminated_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
            if truncated_ptr is not None:
                truncated_prev_ahead = tl.load(truncated_ptr + env * truncated_b + (t_ahead - 1) * truncated_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
            features_ahead = tl.load(features_ptr + env * features_b + t_ahead * features_t + f_lane * features_f, mask=here_ahead, other=0)
        terminated_prev = tl.where(t - 1 >= 0, terminated_prev, tl.full(UNIT, False, tl.int1))
        truncated_prev = tl.where(t - 1 >= 0, truncated_prev, tl.full(UNIT, False, tl.int1))
        if gamma_ptr is None:
            gamma = tl.full(UNIT, gamma_value, ACC)  # eligibility_traces.yaml:11
        else:
            gamma = tl.load(gamma_ptr + env * gamma_b + t * gamma_t, mask=here, other=0).to(ACC)
        if lam_ptr is None:
            lam = tl.full(UNIT, lam_value, ACC)  # eligibility_traces.yaml:12
        else:
            lam = tl.load(lam_ptr + env * lam_b + t * lam_t, mask=here, other=0).to(ACC)
        a = tl.where(terminated_prev | truncated_prev, tl.full(UNIT, 0, ACC), gamma * lam)  # eligibility_traces.yaml:19
        b = features  # eligibility_traces.yaml:20
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
    features_ptr,
    terminated_ptr,
    truncated_ptr,
    initial_trace_ptr,
    traces_ptr,
    gamma_ptr,
    lam_ptr,
    gamma_value: "fp64",
    lam_value: "fp64",
    a_composed_ptr,
    b_composed_ptr,
    z_arriving_ptr,
    features_b,
    features_t,
    features_f,
    terminated_b,
    terminated_t,
    truncated_b,
    truncated_t,
    initial_trace_b,
    initial_trace_f,
    traces_b,
    traces_t,
    traces_f,
    gamma_b,
    gamma_t,
    lam_b,
    lam_t,
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
    if initial_trace_ptr is None:
        initial_trace = tl.full(UNIT, 0, ACC)  # eligibility_traces.yaml:9
    else:
        initial_trace = tl.load(initial_trace_ptr + env * initial_trace_b + f_lane * initial_trace_f, mask=live, other=0).to(ACC)  # eligibility_traces.yaml:9
    z_in = tl.zeros(NARROW, ACC) + initial_trace
    tl.store(z_arriving_ptr + lane * CHUNKS, z_in)
    for first in range(0, CHUNKS, MOST):
        slot = tl.arange(0, MOST)[None, :]
        chunk = first + slot
        a = tl.load(a_composed_ptr + lane * CHUNKS + chunk, mask=chunk < CHUNKS, other=1)
        b = tl.load(b_composed_ptr + lane * CHUNKS + chunk, mask=chunk < CHUNKS, other=0)
        a, b = tl.associative_scan((a, b), 1, combine)
        z = tl.where(a == 0, b, a * z_in + b)
        tl.store(z_arriving_ptr + lane * CHUNKS + chunk + 1, z, mask=chunk + 1 < CHUNKS)
        z_in = tl.sum(tl.where(slot == MOST - 1, z, 0), 1, keep_dims=True)


@triton.jit
def kernel(
    features_ptr,
    terminated_ptr,
    truncated_ptr,
    initial_trace_ptr,
    traces_ptr,
    gamma_ptr,
    lam_ptr,
    gamma_value: "fp64",
    lam_value: "fp64",
    a_composed_ptr,
    b_composed_ptr,
    z_arriving_ptr,
    features_b,
    features_t,
    features_f,
    terminated_b,
    terminated_t,
    truncated_b,
    truncated_t,
    initial_trace_b,
    initial_trace_f,
    traces_b,
    traces_t,
    traces_f,
    gamma_b,
    gamma_t,
    lam_b,
    lam_t,
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
    if initial_trace_ptr is None:
        initial_trace = tl.full(UNIT, 0, ACC)  # eligibility_traces.yaml:9
    else:
        initial_trace = tl.load(initial_trace_ptr + env * initial_trace_b + f_lane * initial_trace_f, mask=live, other=0).to(ACC)  # eligibility_traces.yaml:9
    z_in = tl.zeros(NARROW, ACC) + tl.load(z_arriving_ptr + lane * CHUNKS + chunk, mask=live, other=0)
    t_ahead = place.to(INDEX)
    here_ahead = live & (t_ahead < end)
    terminated_prev_ahead = tl.load(terminated_ptr + env * terminated_b + (t_ahead - 1) * terminated_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
    if truncated_ptr is not None:
        truncated_prev_ahead = tl.load(truncated_ptr + env * truncated_b + (t_ahead - 1) * truncated_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
    features_ahead = tl.load(features_ptr + env * features_b + t_ahead * features_t + f_lane * features_f, mask=here_ahead, other=0)
    for block in range(tl.cdiv(tl.minimum(CHUNK, T - chunk * CHUNK), BLOCK)):
        t = t_ahead
        here = here_ahead
        terminated_prev = terminated_prev_ahead != 0  # eligibility_traces.yaml:7
        if truncated_ptr is None:
            truncated_prev = tl.full(UNIT, False, tl.int1)  # eligibility_traces.yaml:8
        else:
            truncated_prev = truncated_prev_ahead != 0
        features = features_ahead.to(ACC)  # eligibility_traces.yaml:6
        if MANY:
            # The next block's reads are under way while this one is computed.
            t_ahead = t + BLOCK
            here_ahead = live & (t_ahead < end)
            terminated_prev_ahead = tl.load(terminated_ptr + env * terminated_b + (t_ahead - 1) * terminated_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
            if truncated_ptr is not None:
                truncated_prev_ahead = tl.load(truncated_ptr + env * truncated_b + (t_ahead - 1) * truncated_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
            features_ahead = tl.load(features_ptr + env * features_b + t_ahead * features_t + f_lane * features_f, mask=here_ahead, other=0)
        terminated_prev = tl.where(t - 1 >= 0, terminated_prev, tl.full(UNIT, False, tl.int1))
        truncated_prev = tl.where(t - 1 >= 0, truncated_prev, tl.full(UNIT, False, tl.int1))
        if gamma_ptr is None:
            gamma = tl.full(UNIT, gamma_value, ACC)  # eligibility_traces.yaml:11
        else:
            gamma = tl.load(gamma_ptr + env * gamma_b + t * gamma_t, mask=here, other=0).to(ACC)
        if lam_ptr is None:
            lam = tl.full(UNIT, lam_value, ACC)  # eligibility_traces.yaml:12
        else:
            lam = tl.load(lam_ptr + env * lam_b + t * lam_t, mask=here, other=0).to(ACC)
        a = tl.where(terminated_prev | truncated_prev, tl.full(UNIT, 0, ACC), gamma * lam)  # eligibility_traces.yaml:19
        b = features  # eligibility_traces.yaml:20
        a = tl.broadcast_to(a, SHAPE)
        b = tl.broadcast_to(b, SHAPE)
        a, b = tl.associative_scan((a, b), AXIS, combine)
        z = tl.where(a == 0, b, a * z_in + b)
        traces = z  # eligibility_traces.yaml:24
        if traces_ptr is not None:
            tl.store(traces_ptr + env * traces_b + t * traces_t + f_lane * traces_f, traces, mask=here)  # eligibility_traces.yaml:24
        z_in = tl.sum(tl.where(slot == BLOCK - 1, z, 0), AXIS, keep_dims=True)


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


def arguments(time_major, features, terminated, truncated, initial_trace, traces, gamma, lam):
    """The environments' programs, the chunks, the kernels' arguments in order and their warps, for what `launch` takes."""
    batch, time = (1, 0) if time_major else (0, 1)
    out = traces
    B, T = out.shape[batch], out.shape[time]
    F = features.shape[2]
    dtypes = [x.dtype for x in (features, initial_trace) if x is not None]
    ACC = tl.float64 if torch.float64 in dtypes else tl.float32
    total = B * F
    across = time_major or total > B
    # Small blocks in one warp or two, a few to a chunk, and at most some thousand chunks of a row.
    LANES = min(triton.next_power_of_2(total), 32) if across else 1
    BLOCK, WARPS = (256, 1) if LANES == 1 else (512 // LANES, 2)
    CHUNK = max((2 if LANES == 1 else 4) * BLOCK, triton.next_power_of_2(T) // 2048)
    MOST = 1024  # chunks of a row, scanned at once
    CHUNKS = triton.cdiv(T, CHUNK)
    span = widest(features, terminated, truncated, initial_trace, traces)
    INDEX = tl.int32 if max(span, T + CHUNK, (total + LANES) * CHUNKS) < 2**31 else tl.int64
    number = {tl.float32: torch.float32, tl.float64: torch.float64, tl.int64: torch.int64}[ACC]
    a_composed = torch.empty((total, CHUNKS), dtype=number, device=out.device)
    b_composed = torch.empty((total, CHUNKS), dtype=number, device=out.device)
    z_arriving = torch.empty((total, CHUNKS), dtype=number, device=out.device)
    packed = (
        features,
        terminated,
        truncated,
        initial_trace,
        traces,
        gamma if torch.is_tensor(gamma) else None,
        lam if torch.is_tensor(lam) else None,
        0.0 if torch.is_tensor(gamma) else gamma,
        0.0 if torch.is_tensor(lam) else lam,
        a_composed,
        b_composed,
        z_arriving,
        *strides(features, batch, time, 2),
        *strides(terminated, batch, time),
        *strides(truncated, batch, time),
        *strides(initial_trace, 0, 1),
        *strides(traces, batch, time, 2),
        *strides(gamma, batch, time),
        *strides(lam, batch, time),
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


def launch(time_major, features, terminated, truncated, initial_trace, traces, gamma, lam):
    """Run the kernels: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    Returns the compiled kernels, each with its grid, and their arguments, with which they can be launched again.
    """
    groups, chunks, total, packed, warps = arguments(time_major, features, terminated, truncated, initial_trace, traces, gamma, lam)
    options = {"enable_fp_fusion": True}
    first = composed[groups, chunks](*packed, num_warps=warps, **options)
    second = arriving[(total,)](*packed, num_warps=4, **options)
    third = kernel[groups, chunks](*packed, num_warps=warps, **options)
    return ((first, (groups, chunks)), (second, (total, 1)), (third, (groups, chunks))), packed
