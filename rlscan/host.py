"""The cpu backend's way from NumPy arrays to a launch: views as the kernel wants them, rows shared among threads.

A generated cpu module wants every float in one dtype, flags as uint8, indices as int64, every axis present, and params
that vary spread over batch and time by zero strides. What fits already is passed as it is, whatever its strides.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

#: From this many elements on, rows are shared out among threads: handing a piece over takes 0.1 to 0.4 ms.
PARALLEL_ELEMENTS = 2**20
#: In [T, B] neighbouring rows are neighbours in memory: pieces of 16 rows keep two threads off one cache line.
ROWS_APART = 16

_POOLS: dict[tuple[int, int], ThreadPoolExecutor] = {}


def converted(x: Array, dtype: str) -> Array:
    """`x` itself where a kernel can read it as `dtype`, else a converted copy. uint8 is a flag: set where not zero."""
    x = np.asarray(x)
    if dtype == "uint8":
        return (x if x.dtype == np.uint8 or x.dtype == np.bool_ else x != 0).view(np.uint8)
    return x if x.dtype == np.dtype(dtype) and x.flags.aligned else x.astype(dtype)


def with_axes(x: Array, positions: list[int]) -> Array:
    """A view with axes of size 1 inserted."""
    return np.expand_dims(x, tuple(positions)) if positions else x


def spread(x: Array, shape: tuple[int, ...]) -> Array:
    """A broadcast view, by zero strides.

    It stays writable as `x` is: np.broadcast_to marks its result read-only, which Numba takes for another type.
    """
    return np.lib.stride_tricks.as_strided(x, shape, np.broadcast_to(x, shape).strides)


def spread_param(x: Array, rank: int, plane: tuple[int, ...], time_major: bool) -> Array:
    """A param over batch and time: one number (rank 0), one per environment (1) or one per step (2)."""
    if rank == 0:
        x = x.reshape(())
    elif rank == 1 and not time_major:
        x = x[:, None]
    return spread(x, plane)


def run(call: Callable[..., None], rows: int, elements: int, threads: int, time_major: bool) -> None:
    """call() at once, or call(lanes=(lo, hi)) for pieces of the rows, each on a thread, the calling one among them."""
    apart = ROWS_APART if time_major else 1
    workers = min(threads, -(-rows // apart)) if elements >= PARALLEL_ELEMENTS else 1
    if workers < 2:
        call()
        return
    step = -(-rows // (workers * apart)) * apart
    first, *rest = [(low, min(low + step, rows)) for low in range(0, rows, step)]
    futures: list[Future[None]] = []
    try:
        pool = _pool(threads - 1)
        futures.extend(_submitted(pool, functools.partial(call, lanes=piece)) for piece in rest)
        call(lanes=first)
    finally:
        # Even where a piece fails: the others still write to buffers that the caller may free.
        wait(futures)
    for future in futures:
        future.result()


def _submitted(pool: ThreadPoolExecutor, task: Callable[[], None]) -> Future[None]:
    try:
        return pool.submit(task)
    except RuntimeError as error:
        if "schedule new futures" not in str(error):
            raise
    # Python is shutting down and starts no threads any more.
    task()
    done: Future[None] = Future()
    done.set_result(None)
    return done


def _pool(workers: int) -> ThreadPoolExecutor:
    """The pool of this process: a forked child has none of its parent's threads, so it makes its own.

    setdefault is atomic, and a pool has no threads before its first task: of two made at once, one is just dropped.
    """
    key = (os.getpid(), workers)
    return _POOLS.get(key) or _POOLS.setdefault(key, ThreadPoolExecutor(workers, thread_name_prefix="rlscan"))
