"""The estimators in plain torch, over any way to scan: what a peer that is a way to scan is given.

    s[t] = a[t] · s[t+1] + b[t] (backward) or a[t] · s[t-1] + b[t] (forward), s = 0 beyond the window

Each estimator makes a and b by whole tensors, has them scanned, and makes its outputs of s. dim is the axis of time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

#: (a, b, dim, backward) → s
Scan = Callable[["Tensor", "Tensor", int, bool], "Tensor"]
Inputs = Mapping[str, "Tensor"]
Outputs = dict[str, "Tensor"]

GAMMA, LAM = 0.99, 0.95


# -- ways to scan ------------------------------------------------------------------------------------------------------


def loop(a: Tensor, b: Tensor, dim: int, backward: bool) -> Tensor:
    """Step by step, a Python loop over time."""
    import torch

    s = torch.empty_like(b)
    carry = torch.zeros_like(b.select(dim, 0))
    steps = range(b.shape[dim])
    for t in reversed(steps) if backward else steps:
        carry = a.select(dim, t) * carry + b.select(dim, t)
        s.select(dim, t).copy_(carry)
    return s


def associative(a: Tensor, b: Tensor, dim: int, backward: bool) -> Tensor:
    """torch's own associative scan, which only compiled code may use in this mode."""
    from torch._higher_order_ops.associative_scan import associative_scan

    def combine(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return first[0] * second[0], second[0] * first[1] + second[1]

    found = associative_scan(combine, (a, b), dim, reverse=backward, combine_mode="pointwise")
    scanned: Tensor = found[1]
    return scanned


def doubling(a: Tensor, b: Tensor, dim: int, backward: bool) -> Tensor:
    """log2 T rounds over whole tensors, each composing steps twice as far apart (Hillis & Steele 1986)."""
    import torch

    T = b.shape[dim]
    apart = 1
    while apart < T:
        kept = (apart, T - apart) if backward else (0, T - apart)
        shape = list(b.shape)
        shape[dim] = apart
        parts = a.narrow(dim, *kept), b.narrow(dim, *kept)
        fill = torch.ones(shape, dtype=a.dtype, device=a.device), torch.zeros(shape, dtype=b.dtype, device=b.device)
        near = [torch.cat((x, y) if backward else (y, x), dim) for x, y in zip(parts, fill, strict=True)]
        a, b = a * near[0], a * near[1] + b
        apart *= 2
    return b


def numpy_loop(a: Tensor, b: Tensor, dim: int, backward: bool) -> Tensor:
    """Step by step in NumPy, in place."""
    import torch

    s = torch.empty_like(b)
    steps, into, scale = ((x if dim == 0 else x.swapaxes(0, 1)) for x in (b.numpy(), s.numpy(), a.numpy()))
    carry = np.zeros_like(steps[0])
    for t in reversed(range(len(steps))) if backward else range(len(steps)):
        np.multiply(scale[t], carry, out=carry)
        carry += steps[t]
        into[t] = carry
    return s


def numba_loop(a: Tensor, b: Tensor, dim: int, backward: bool) -> Tensor:
    """Step by step in a compiled loop, environments in parallel."""
    import torch

    s = torch.empty_like(b)
    compiled()["scan"](a.numpy(), b.numpy(), s.numpy(), dim == 0, backward)
    return s


@lru_cache(maxsize=1)
def compiled() -> dict[str, Any]:
    """The Numba loops: `scan`, and `gae` with everything in one loop, as people write it."""
    import numba

    def scan(a: Any, b: Any, s: Any, time_first: bool, backward: bool) -> None:
        T, B = b.shape if time_first else b.shape[::-1]
        if time_first:
            width = 512
            for part in numba.prange((B + width - 1) // width):
                lo, hi = part * width, min(B, (part + 1) * width)
                carry = np.zeros(hi - lo, b.dtype)
                for step in range(T):
                    t = T - 1 - step if backward else step
                    at, bt, st = a[t, lo:hi], b[t, lo:hi], s[t, lo:hi]
                    for i in range(hi - lo):
                        carry[i] = at[i] * carry[i] + bt[i]
                        st[i] = carry[i]
        else:
            for row in numba.prange(B):
                one = np.zeros(1, b.dtype)[0]
                for step in range(T):
                    t = T - 1 - step if backward else step
                    one = a[row, t] * one + b[row, t]
                    s[row, t] = one

    def gae(
        rewards: Any, values: Any, terminated: Any, last: Any, advantages: Any, returns: Any, time_first: bool,
        gamma: Any, decay: Any, zero: Any,
    ) -> None:  # fmt: skip
        T, B = rewards.shape if time_first else rewards.shape[::-1]
        if time_first:
            width = 512
            for part in numba.prange((B + width - 1) // width):
                lo, hi = part * width, min(B, (part + 1) * width)
                carry = np.zeros(hi - lo, rewards.dtype)
                ahead = last[lo:hi]
                for step in range(T):
                    t = T - 1 - step
                    r, v, d = rewards[t, lo:hi], values[t, lo:hi], terminated[t, lo:hi]
                    adv, ret = advantages[t, lo:hi], returns[t, lo:hi]
                    for i in range(hi - lo):
                        go = zero if d[i] else gamma
                        keep = zero if d[i] else decay
                        carry[i] = r[i] + go * ahead[i] - v[i] + keep * carry[i]
                        adv[i] = carry[i]
                        ret[i] = carry[i] + v[i]
                    ahead = v
        else:
            for row in numba.prange(B):
                one, following = zero, last[row]
                for step in range(T):
                    t = T - 1 - step
                    go = zero if terminated[row, t] else gamma
                    keep = zero if terminated[row, t] else decay
                    one = rewards[row, t] + go * following - values[row, t] + keep * one
                    following = values[row, t]
                    advantages[row, t] = one
                    returns[row, t] = one + following

    parallel = numba.njit(parallel=True, nogil=True)
    return {"scan": parallel(scan), "gae": parallel(gae)}


# -- estimators --------------------------------------------------------------------------------------------------------


def gae(x: Inputs, scan: Scan, dim: int) -> Outputs:
    import torch

    delta = x["rewards"] + GAMMA * following(x, x["values"], x["last_value"], dim) - x["values"]
    advantages = scan(torch.where(done(x), 0.0, GAMMA * LAM).to(delta.dtype), delta, dim, True)
    return {"advantages": advantages, "returns": advantages + x["values"]}


def td_lambda(x: Inputs, scan: Scan, dim: int) -> Outputs:
    import torch

    ended = done(x)
    after = following(x, x["values"], x["last_value"], dim)
    b = x["rewards"] + GAMMA * torch.where(ended, 1.0, 1 - LAM) * after
    a = torch.where(ended, 0.0, GAMMA * LAM).to(b.dtype)
    return {"returns": scan(a, with_start(a, b, x["last_value"], dim), dim, True)}


def discounted_returns(x: Inputs, scan: Scan, dim: int) -> Outputs:
    import torch

    b = x["rewards"]
    if "truncated" in x:
        b = b + GAMMA * torch.where(x["truncated"] & ~x["terminated"], x["final_values"], 0.0)
    a = torch.where(done(x), 0.0, GAMMA).to(b.dtype)
    return {"returns": scan(a, with_start(a, b, x["last_value"], dim), dim, True)}


def vtrace(x: Inputs, scan: Scan, dim: int) -> Outputs:
    import torch

    clipped = (x["target_log_probs"] - x["behavior_log_probs"]).exp().clamp(max=1.0)
    delta = clipped * (x["rewards"] + GAMMA * following(x, x["values"], x["last_value"], dim) - x["values"])
    vs = x["values"] + scan(torch.where(done(x), 0.0, GAMMA * clipped), delta, dim, True)
    after = following(x, vs, x["last_value"], dim)
    return {"vs": vs, "pg_advantages": clipped * (x["rewards"] + GAMMA * after - x["values"])}


def retrace(x: Inputs, scan: Scan, dim: int) -> Outputs:
    import torch

    picked = x["actions"].unsqueeze(-1)
    q = x["q_values"].gather(-1, picked).squeeze(-1)
    clipped = (x["target_probs"].gather(-1, picked).squeeze(-1) / x["behavior_probs"]).clamp(max=1.0)
    expected = (x["target_probs"] * x["q_values"]).sum(-1)
    last = (x["last_target_probs"] * x["last_q_values"]).sum(-1)
    delta = x["rewards"] + GAMMA * following(x, expected, last, dim) - q
    decay = torch.where(done(x), 0.0, GAMMA * ahead(clipped, torch.zeros_like(last), dim))
    targets = q + scan(decay, delta, dim, True)
    after = following(x, targets, last, dim)
    return {"targets": targets, "advantages": clipped * (x["rewards"] + GAMMA * after - q)}


def eligibility_traces(x: Inputs, scan: Scan, dim: int) -> Outputs:
    import torch

    features = x["features"]
    return {
        "traces": scan(torch.where(behind(done(x), dim), 0.0, GAMMA * LAM).to(features.dtype), features, dim, False)
    }


def episodic_prefix_sum(x: Inputs, scan: Scan, dim: int) -> Outputs:
    return {"sums": scan((~behind(x["done"], dim)).to(x["x"].dtype), x["x"], dim, False)}


ESTIMATORS: dict[str, Callable[[Inputs, Scan, int], Outputs]] = {
    function.__name__: function
    for function in (gae, td_lambda, discounted_returns, vtrace, retrace, eligibility_traces, episodic_prefix_sum)
}


def done(x: Inputs) -> Tensor:
    """Where an episode ends, whichever way."""
    return x["terminated"] | x["truncated"] if "truncated" in x else x["terminated"]


# These are selects by position, not concatenations: compiled, they are a part of the kernel that reads them.


def at_step(x: Tensor, t: int, dim: int) -> Tensor:
    """Where along time a [B, T] tensor is at one step, in a shape that broadcasts to it."""
    import torch

    return (torch.arange(x.shape[dim], device=x.device) == t).unsqueeze(1 - dim)


def moved(x: Tensor, by: int, dim: int) -> Tensor:
    """x[t + by] for by = ±1, and 0 beyond the window."""
    import torch

    ends = (1, 0) if by < 0 else (0, 1)
    kept = x.narrow(dim, max(by, 0), x.shape[dim] - 1)
    return torch.nn.functional.pad(kept, ends if dim == 1 else (0, 0, *ends))


def ahead(x: Tensor, last: Tensor, dim: int) -> Tensor:
    """x[t+1], and `last` past the window."""
    import torch

    return torch.where(at_step(x, x.shape[dim] - 1, dim), last.unsqueeze(dim), moved(x, 1, dim))


def behind(x: Tensor, dim: int) -> Tensor:
    """x[t-1], and false before the window."""
    return moved(x, -1, dim)


def following(x: Inputs, values: Tensor, last: Tensor, dim: int) -> Tensor:
    """The value of what follows each step: none where it terminated, the true one where it was cut off."""
    import torch

    after = ahead(values, last, dim)
    if "truncated" in x:
        after = torch.where(x["truncated"], x["final_values"], after)
    return torch.where(x["terminated"], 0.0, after)


def with_start(a: Tensor, b: Tensor, start: Tensor, dim: int) -> Tensor:
    """b, with what a carry beyond the window's end adds to its last step."""
    import torch

    return torch.where(at_step(b, b.shape[dim] - 1, dim), b + a * start.unsqueeze(dim), b)
