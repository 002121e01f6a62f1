"""Plausible random inputs for any spec, by its inputs' kinds, dims and names: what it is tried on.

A flag holds with a small probability, a mask with a large one; an index lies within the axis that it picks along. By the last
word of its name, a number is a log-probability, a probability (which sum to 1 along a last axis), a ratio above 0, a discount
in [0, 1] that is 0 now and then, or a length; any other is normal. A param is drawn within its range.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlscan.spec import Input, Param, Spec

RATIOS = ("importance", "rho", "ratio", "ratios")
DISCOUNTS = ("continues", "discount", "discounts")
Arrays = dict[str, np.ndarray[Any, Any]]


def draw(
    spec: Spec,
    rng: np.random.Generator,
    B: int,
    T: int,
    axes: Mapping[str, int] | None = None,
    optional: set[str] | None = None,
    dtype: Any = np.float32,
    done: float = 0.15,
) -> Arrays:
    """Batch-first inputs: all required ones, and the optional ones named.

    An optional axis without a size in `axes` is left out; any other has size 3. With an integer dtype, `num` inputs are
    integers and `f` inputs float32.
    """
    named = {axis for item in spec.inputs for axis in item.dims if axis not in item.optional_axes}
    sizes = {**dict.fromkeys(named, 3), **(axes or {}), "B": B, "T": T}
    drawn = {}
    for item in spec.inputs:
        if item.optional and item.name not in (optional or set()):
            continue
        shape = tuple(sizes[d] for d in item.dims if d in sizes)
        drawn[item.name] = _values(item, spec, rng, shape, sizes, dtype, done)
    return drawn


def _values(
    item: Input,
    spec: Spec,
    rng: np.random.Generator,
    shape: tuple[int, ...],
    sizes: Mapping[str, int],
    dtype: Any,
    done: float,
) -> np.ndarray[Any, Any]:
    word = item.name.rpartition("_")[2]
    if item.kind == "flag":
        drawn = rng.random(shape) < done
        return ~drawn if word == "mask" else drawn
    if item.kind == "int":
        # An index into the axis that another input has and this one lacks.
        others = [d for i in spec.inputs for d in i.dims if d not in item.dims and d != "T" and d in sizes]
        return rng.integers(0, sizes[others[0]] if others else 4, shape)
    if np.issubdtype(dtype, np.integer):
        if item.kind == "num":
            return rng.integers(-9, 10, shape).astype(dtype)
        dtype = np.float32
    if item.name.endswith("_log_probs"):
        return (-np.abs(rng.normal(size=shape))).astype(dtype)
    if item.name.endswith("_probs"):
        raw = 0.05 + 0.95 * rng.random(shape)
        if len(shape) > 2 or (len(shape) == 2 and "T" not in item.dims):
            raw = raw / raw.sum(axis=-1, keepdims=True)
        return raw.astype(dtype)
    if word in RATIOS:
        return np.exp(rng.normal(size=shape)).astype(dtype)
    if word in DISCOUNTS:
        return np.where(rng.random(shape) < done, 0, rng.random(shape)).astype(dtype)
    if word == "lengths":
        return rng.integers(1, sizes["T"] + 1, shape).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def draw_param(param: Param, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Numbers within a param's range: away from the ends of a narrow one, and near the default of one without ends."""
    middle = 0.5 if param.default is None or not np.isfinite(param.default) else param.default
    low = param.lower if np.isfinite(param.lower) else min(middle, 0) - 1
    high = param.upper if np.isfinite(param.upper) else max(middle, low) + 1
    drawn = low + (high - low) * rng.uniform(0.05, 0.95, shape)
    return drawn if shape else float(drawn)
