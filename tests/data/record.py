"""Records cartpole.npz: real rollouts, as the demo records them. Run it with `python tests/data/record.py`.

256 steps of 8 CartPole environments under a time limit of 64 steps, in the "tb" layout, with V of a value function fitted
to them. final_values is NaN where no episode was truncated: a result that reads it there shows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rlscan.demo import Rollouts, record

FILE = Path(__file__).with_name("cartpole.npz")
SEED = 0


def load() -> Rollouts:
    """What was recorded."""
    with np.load(FILE) as arrays:
        return Rollouts(**arrays)


if __name__ == "__main__":
    rollouts = record(SEED)
    np.savez_compressed(FILE, **rollouts.arrays())
    falls, cuts = rollouts.terminated.sum(), (rollouts.truncated & ~rollouts.terminated).sum()
    print(f"{FILE.name}: {FILE.stat().st_size} bytes, {falls} episodes terminated, {cuts} truncated")
