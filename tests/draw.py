"""Poison where nothing may be read; and the inputs that it is put into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlscan.draw import Arrays, draw

__all__ = ["draw", "poison"]


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
