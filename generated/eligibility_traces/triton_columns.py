"""Accumulating eligibility traces.

    z[t] = γ · λ · z[t−1] + features[t],   z[−1] = initial_trace
        z[t−1] dropped where terminated[t−1] or truncated[t−1]
    traces[t] = z[t]
    terminated[−1] = false
    truncated[−1] = false

Sutton & Barto 2018, section 12.2

Schedule columns, forward in time.
"""
# spec: eligibility_traces.yaml
# spec sha256: 77fb698507119cc60b1edea1ef5bcf8c086354c280344f4954bd15fcae728ec5
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
    features_ptr,
    terminated_ptr,
    truncated_ptr,
    initial_trace_ptr,
    traces_ptr,
    gamma_ptr,
    lam_ptr,
    gamma_value: "fp64",
    lam_value: "fp64",
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
    if initial_trace_ptr is None:
        initial_trace = tl.full(UNIT, 0, ACC)  # eligibility_traces.yaml:9
    else:
        initial_trace = tl.load(initial_trace_ptr + env * (initial_trace_b // F_ALIGN) * F_ALIGN + f_lane * initial_trace_f, mask=live, other=0).to(ACC)  # eligibility_traces.yaml:9
    z_in = tl.zeros(NARROW, ACC) + initial_trace
    t_ahead = slot.to(INDEX)
    here_ahead = live & (t_ahead < T)
    terminated_prev_ahead = tl.load(terminated_ptr + env * terminated_b + (t_ahead - 1) * terminated_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
    if truncated_ptr is not None:
        truncated_prev_ahead = tl.load(truncated_ptr + env * truncated_b + (t_ahead - 1) * truncated_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
    features_ahead = tl.load(features_ptr + (env * (features_b // F_ALIGN) + t_ahead * (features_t // F_ALIGN)) * F_ALIGN + f_lane * features_f, mask=here_ahead, other=0)
    for block in range(tl.cdiv(T, BLOCK)):
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
            here_ahead = live & (t_ahead < T)
            terminated_prev_ahead = tl.load(terminated_ptr + env * terminated_b + (t_ahead - 1) * terminated_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
            if truncated_ptr is not None:
                truncated_prev_ahead = tl.load(truncated_ptr + env * truncated_b + (t_ahead - 1) * truncated_t, mask=here_ahead & (t_ahead - 1 >= 0), other=0)
            features_ahead = tl.load(features_ptr + (env * (features_b // F_ALIGN) + t_ahead * (features_t // F_ALIGN)) * F_ALIGN + f_lane * features_f, mask=here_ahead, other=0)
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
            tl.store(traces_ptr + (env * (traces_b // F_ALIGN) + t * (traces_t // F_ALIGN)) * F_ALIGN + f_lane * traces_f, traces, mask=here)  # eligibility_traces.yaml:24
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


def tile(T, total):
    """How many lanes and steps a program's block has, and its warps, for windows of T steps of `total` lanes."""
    # Few environments: many steps a block, over several warps. Many: a warp each, with fewer steps and more lanes.
    steps, LANES = (512, 4) if total <= 1024 else (128, 16) if total <= 8192 else (16, 8)
    if total > 32768:
        steps, LANES = (8, 16) if total <= 2**18 else (4, 32)
    BLOCK = min(triton.next_power_of_2(T), steps)
    WARPS = max(1, LANES * BLOCK // 256) if steps >= 128 else 1
    return LANES, BLOCK, WARPS


def arguments(time_major, features, terminated, truncated, initial_trace, traces, gamma, lam):
    """The grid, the kernel's arguments in order and its warps, for inputs, outputs and params as `launch` has them."""
    batch, time = (1, 0) if time_major else (0, 1)
    out = traces
    B, T = out.shape[batch], out.shape[time]
    F = features.shape[2]
    dtypes = [x.dtype for x in (features, initial_trace) if x is not None]
    ACC = tl.float64 if torch.float64 in dtypes else tl.float32
    F_ALIGN = math.gcd(16, *strides(features, batch, time), *strides(initial_trace, 0), *strides(traces, batch, time))
    total = B * F
    LANES, BLOCK, WARPS = tile(T, total)
    span = widest(features, terminated, truncated, initial_trace, traces)
    INDEX = tl.int32 if max(span, total + LANES) < 2**31 else tl.int64
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


def launch(time_major, features, terminated, truncated, initial_trace, traces, gamma, lam):
    """Run the kernel: inputs (None where an optional one is absent), outputs (None where not wanted), params.

    Returns the compiled kernel, its grid and its arguments, with which it can be launched again.
    """
    programs, packed, warps = arguments(time_major, features, terminated, truncated, initial_trace, traces, gamma, lam)
    compiled = kernel[(programs,)](*packed, num_warps=warps, enable_fp_fusion=True)
    return compiled, programs, packed
