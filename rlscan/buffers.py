"""The buffers that a caller gives as `out=`: which is which, and whether writing one could harm what is read.

Pure: memory is an address with sizes and strides, never read or written here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlscan.binding import Interface
from rlscan.diagnostics import did_you_mean


@dataclass(frozen=True, slots=True)
class Memory:
    """Where a tensor lies: its lowest address, the bytes of an element, and (size, stride in bytes) of each axis.

    Axes of size 1 are left out and strides are positive or 0.
    """

    start: int
    item: int
    axes: tuple[tuple[int, int], ...]

    def extent(self, below: float = math.inf) -> int:
        """Bytes from the first to the last, over the axes whose stride is smaller than `below`."""
        return self.item + sum((size - 1) * stride for size, stride in self.axes if stride < below)


def memory(address: int, item: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Memory | None:
    """From a tensor's own address, shape and byte strides, which may be negative; None where it holds nothing."""
    if 0 in shape:
        return None
    axes = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size > 1]
    start = address + sum((size - 1) * stride for size, stride in axes if stride < 0)
    return Memory(start, item, tuple((size, abs(stride)) for size, stride in axes))


def disjoint(x: Memory | None, y: Memory | None) -> bool:
    """Proves that two tensors share no byte. Bounds settle most; interleaved views go by their common period.

    All strides of at least some size are multiples of their gcd g, so modulo g each tensor is an interval made by its
    smaller strides; two intervals that do not meet modulo g never meet. Columns of one buffer are told apart so, and so
    are two time windows of the same rows.
    """
    if x is None or y is None:
        return True
    if x.start + x.extent() <= y.start or y.start + y.extent() <= x.start:
        return True
    strides = [stride for _, stride in (*x.axes, *y.axes)]
    for cut in sorted({stride for stride in strides if stride}):
        period = math.gcd(*(stride for stride in strides if stride >= cut))
        gap = (y.start - x.start) % period
        if gap >= x.extent(cut) and period - gap >= y.extent(cut):
            return True
    return False


def repeats(x: Memory | None) -> bool:
    """Whether two elements may be one place, as in an expanded tensor: what is written there has no one value."""
    if x is None:
        return False
    reach = x.item
    for size, stride in sorted(x.axes, key=lambda axis: axis[1]):
        if stride < reach:
            return True
        reach += (size - 1) * stride
    return False


def named_buffers(face: Interface, out: object) -> list[Any]:
    """The caller's buffers in the order of the outputs, from a mapping, a NamedTuple or a tuple."""
    fields = tuple(slot.name for slot in face.outputs)
    if isinstance(out, tuple) and hasattr(out, "_fields"):
        out = dict(zip(out._fields, out, strict=True))
    if isinstance(out, Mapping):
        for name in out:
            if name not in fields:
                hint = did_you_mean(str(name), fields) or f"the outputs are {', '.join(fields)}"
                raise ValueError(f"{face.name}: `out` has no place for `{name}`; {hint}")
        for name in fields:
            if name not in out:
                raise ValueError(f"{face.name}: `out` lacks `{name}`; it must hold {', '.join(fields)}")
        return [out[name] for name in fields]
    if not isinstance(out, tuple):
        raise TypeError(
            f"{face.name}: `out` must be a mapping, a NamedTuple or a tuple of {', '.join(fields)}, "
            f"got {type(out).__name__}"
        )
    if len(out) != len(fields):
        raise ValueError(f"{face.name}: `out` must hold {len(fields)} ({', '.join(fields)}), got {len(out)}")
    return list(out)


def check_buffer(
    estimator: str,
    name: str,
    got: tuple[str, tuple[int, ...]],
    expected: tuple[str, tuple[int, ...]],
    place: Memory | None,
    taken: Sequence[tuple[str, Memory | None]],
) -> None:
    """A buffer has the result's dtype and shape, each element its own place, and none of it anything else's."""
    if got[1] != expected[1]:
        raise ValueError(f"{estimator}: `{name}` must have shape {list(expected[1])}, got {list(got[1])}")
    if got[0] != expected[0]:
        raise ValueError(f"{estimator}: `{name}` must be {expected[0]}, got {got[0]}")
    if repeats(place):
        raise ValueError(f"{estimator}: `{name}` has elements that lie on each other, as an expanded tensor's do")
    for other, memory_taken in taken:
        if not disjoint(place, memory_taken):
            raise ValueError(f"{estimator}: `{name}` shares memory with `{other}`")
