"""Plausible random inputs for any spec, by its inputs' kinds, dims and names; and poison where none may be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlscan.spec import Input, Spec

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


def poison(name: str, inputs: Mapping[str, Any], seed: int = 0) -> Arrays:
    """NaN and ±∞ in every slot of a builtin's batch-first inputs that its meaning says is never read.

    Where they are integers, numbers that would be noticed.
    """
    rng = np.random.default_rng(seed)
    made = {key: np.array(x) for key, x in inputs.items()}
    if name == "episodic_prefix_sum":
        if "initial_sum" in made and "start" in made:
            _spoil(made["initial_sum"], np.asarray(made["start"][:, 0] != 0), rng)
        return made
    terminated = made["terminated"] != 0
    truncated = made["truncated"] != 0 if "truncated" in made else np.zeros_like(terminated)
    done = terminated | truncated
    # The step after an episode's last one, and the window's first: no step before reads their value.
    unread = np.concatenate([np.ones_like(done[:, :1]), done[:, :-1]], axis=1)
    if "final_values" in made:
        _spoil(made["final_values"], ~truncated | terminated, rng)
    for key in ("last_value", "last_q_values", "last_target_probs"):
        if key in made:
            _spoil(made[key], done[:, -1], rng)
    if name == "td_lambda":
        _spoil(made["values"], unread, rng)
    if name == "retrace":
        # A step's own part in its result is the action taken; the expectation is the step before's.
        taken = made["actions"][..., None] == np.arange(made["q_values"].shape[-1])
        for key in ("q_values", "target_probs"):
            _spoil(made[key], unread[..., None] & ~taken, rng)
    return made


def _spoil(x: np.ndarray[Any, Any], where: np.ndarray[Any, Any], rng: np.random.Generator) -> None:
    """Overwrite x where the flags, which may lack its last axes, are set."""
    where = np.broadcast_to(where.reshape(where.shape + (1,) * (x.ndim - where.ndim)), x.shape)
    bad = [np.nan, np.inf, -np.inf] if x.dtype.kind == "f" else [2**30 + 7, -(2**30)]
    x[where] = rng.choice(bad, x.shape)[where]


def _values(
    item: Input,
    spec: Spec,
    rng: np.random.Generator,
    shape: tuple[int, ...],
    sizes: Mapping[str, int],
    dtype: Any,
    done: float,
) -> np.ndarray[Any, Any]:
    if item.kind == "flag":
        return rng.random(shape) < done
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
    return rng.normal(size=shape).astype(dtype)
