"""One case of a trial and what comes of it: results compared with exact ones, within what is allowed, and with each other.

allowed   2 · |eager − exact| + 40 ε · max(1, |exact|), where eager is a plain loop in the kernel's own precision;
for a half type, the rounding of its results beside it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

HALVES = ("bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Case:
    """One call, drawn from a seed. dtype: of the float inputs. ranks: "default", or the shape that every param has."""

    layout: str = "bt"
    B: int = 3
    T: int = 7
    seed: int = 0
    done: float = 0.2
    optional: bool = True
    dtype: str = "float32"
    ranks: str = "default"
    #: whole numbers and halves, for an example that is worked out by hand
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """Where a case went wrong: at [environment, step, …] of an output, batch first."""

    output: str
    place: tuple[int, ...]
    got: float
    wanted: float
    why: str


Verdict = tuple[float | None, Fault | None]


def rounded(x: Any, dtype: str) -> Any:
    """float64 with the values that a dtype has."""
    import torch

    return torch.from_numpy(np.asarray(x, np.float64)).to(getattr(torch, dtype)).double().numpy()


def compared(value: Any, want: Any, rough: Any, dtype: str) -> tuple[float, tuple[int, ...]]:
    """The largest error as a share of what is allowed, and where it is."""
    import torch

    about = torch.finfo(getattr(torch, dtype))
    number = 2.3e-16 if dtype == "float64" else 1.2e-7
    finite = np.isfinite(want)
    scale = float(np.abs(want).max(initial=1.0, where=finite))
    with np.errstate(invalid="ignore"):
        slack = 2 * np.abs(rough.astype(np.float64) - want) + 40 * number * scale
        if dtype in HALVES:
            slack = slack + float(about.eps) * np.abs(want) + float(about.smallest_normal)
        share = np.abs(value - want) / slack
    same = (value == want) | (np.isnan(value) & np.isnan(want))
    # What overflows in this precision, eagerly too, tells nothing of the kernel.
    lost = ~np.isfinite(value) & (~np.isfinite(rough) | (np.abs(want) > float(about.max)))
    share = np.where(same | lost, 0.0, np.where(np.isnan(share), np.inf, share))
    if not share.size:
        return 0.0, ()
    place = tuple(int(i) for i in np.unravel_index(int(share.argmax()), share.shape))
    return float(share[place]), place


def scattered(x: Tensor) -> Tensor:
    """The same values in memory that is reversed, strided and offset."""
    import torch

    room = torch.full([2 * n + 1 for n in reversed(x.shape)], 7, dtype=x.dtype, device=x.device)
    view = room.permute(*reversed(range(x.ndim)))[tuple(slice(1, None, 2) for _ in x.shape)]
    view.copy_(x)
    return view


def differing(
    case: Case,
    plain: Mapping[str, Tensor],
    got: Mapping[str, Tensor],
    slack: float,
    why: str,
    where: Any = None,
    skip: tuple[str, ...] = (),
) -> Fault | None:
    """The first output that is not the same, where a [B, T] mask says to look."""
    for name, x in plain.items():
        if name in skip:
            continue
        a, b = (y.detach().cpu().double().numpy() for y in (x, got[name]))
        with np.errstate(invalid="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= slack * np.maximum(1, np.abs(a)))
        if where is not None:
            looked = where if case.layout == "bt" else where.T
            same |= ~looked.reshape(looked.shape + (1,) * (same.ndim - 2))
        if not same.all():
            place = tuple(int(i) for i in np.argwhere(~same)[0])
            return Fault(name, batch_first(place, case), float(b[place]), float(a[place]), why)
    return None


def batch_first(place: tuple[int, ...], case: Case) -> tuple[int, ...]:
    return (place[1], place[0], *place[2:]) if case.layout == "tb" and len(place) > 1 else place
