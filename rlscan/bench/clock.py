"""How a call is timed. Every time is in µs, a median with the tenth and the ninetieth percentile beside it.

full       between two events around one call, the device idle before it: what a caller waits
amortized  a call among 200 between two events: what the host takes, or the device where that is more
device     a call among those of a CUDA graph that is replayed: what the device takes

On a CPU, and where a peer waits by its own means, full is wall-clock time and there is nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Call = Callable[[], Any]
Wait = Callable[[Any], Any]

MEANING = {
    "full": "between two events around one call, the device idle before it; wall-clock time on a CPU",
    "amortized": "a call among `calls` between two events",
    "device": "a call among `calls` in a CUDA graph that is replayed",
}


@dataclass(frozen=True, slots=True)
class Time:
    """µs of one call: the median of `samples` measurements of `calls` calls each, two percentiles, and the least."""

    median: float
    least: float
    p10: float
    p90: float
    samples: int
    calls: int

    def record(self) -> dict[str, float]:
        """As JSON has it."""
        return {name: round(x, 3) if isinstance(x, float) else x for name, x in asdict(self).items()}


def summed(samples: list[float], calls: int) -> Time:
    """Of the times of `calls` calls each."""
    least, low, middle, high = (float(x) for x in np.percentile(np.array(samples) / calls, (0, 10, 50, 90)))
    return Time(middle, least, low, high, len(samples), calls)


def wall(call: Call, wait: Wait | None = None, *, seconds: float = 0.3, least: int = 7) -> Time:
    """Wall-clock time, each call waited for."""
    samples: list[float] = []
    deadline = time.perf_counter() + seconds
    while len(samples) < least or (time.perf_counter() < deadline and len(samples) < 1000):
        began = time.perf_counter()
        result = call()
        if wait is not None:
            wait(result)
        samples.append((time.perf_counter() - began) * 1e6)
        del result
    return summed(samples, 1)


def events(call: Call, calls: int, samples: int) -> Time:
    """Between two events around `calls` calls."""
    return summed(spans(call, calls, samples), calls)


def spans(call: Call, calls: int, samples: int) -> list[float]:
    """µs between two events around `calls` calls, the device idle before each."""
    import torch

    times = []
    for _ in range(samples):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        start.record()
        for _ in range(calls):
            call()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) * 1e3)
    return times


def graph(call: Call, calls: int, samples: int = 15) -> Time:
    """A replay of a CUDA graph of `calls` calls."""
    import torch

    stream, captured = torch.cuda.Stream(), torch.cuda.CUDAGraph()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    with torch.cuda.graph(captured, stream=stream):
        for _ in range(calls):
            call()
    captured.replay()
    return summed(spans(captured.replay, 1, samples), calls)


def on_device(call: Call) -> dict[str, Time | str]:
    """All three on a GPU; of one that cannot be had, why. A slow call is repeated less."""
    for _ in range(3):
        call()
    first = events(call, 1, 3).median
    few = max(1, min(40, int(4e5 / first)))
    times: dict[str, Time | str] = {"full": events(call, 1, max(3, few))}
    times["amortized"] = events(call, max(1, min(200, int(2e5 / first))), 5 if first < 1e5 else 3)
    try:
        times["device"] = graph(call, max(1, min(10, int(5e4 / first))), 15 if first < 1e4 else 5)
    except RuntimeError as error:
        times["device"] = f"cannot be captured: {str(error).splitlines()[0][:120]}"
    return times


def on_host(call: Call, wait: Wait | None = None) -> dict[str, Time | str]:
    """Wall-clock time, after two calls that warm it up."""
    for _ in range(2):
        result = call()
        if wait is not None:
            wait(result)
    return {"full": wall(call, wait)}


def warm(seconds: float = 0.5) -> None:
    """Have the GPU copy for a while: its clocks rise from idle only under load."""
    import torch

    source = torch.zeros(2**26, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        for _ in range(20):
            target.copy_(source)
        torch.cuda.synchronize()


def copy(size: int, device: str) -> Time:
    """A copy that moves `size` bytes: half of them read, half written."""
    import torch

    source = torch.zeros(max(size // 2, 1), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    if device == "cuda":
        return graph(lambda: target.copy_(source), 10 if size < 2**30 else 2)
    for _ in range(2):
        target.copy_(source)
    return wall(lambda: target.copy_(source))
