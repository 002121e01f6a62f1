"""Where there is no GPU, Triton's interpreter stands in for it; `gpu` tests then skip, visibly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def gpu_here() -> bool:
    """Whether there is a GPU to test on. Found out without torch: the variable below must be set before triton loads."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1") or os.environ.get("TRITON_INTERPRET", "0") != "0":
        return False
    return any(Path(place).exists() for place in ("/dev/nvidiactl", "/proc/driver/nvidia/version"))


HAS_GPU = gpu_here()
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    no_gpu = pytest.mark.skip(reason="no CUDA device")
    real = pytest.mark.skip(reason="a GPU is here: Triton runs on it, not in its interpreter")
    for item in items:
        if item.get_closest_marker("gpu") and not HAS_GPU:
            item.add_marker(no_gpu)
        if item.get_closest_marker("interpreter") and HAS_GPU:
            item.add_marker(real)
    # JAX starts threads, after which a fork may hang, and torchrl sets how processes start: no other test comes after them.
    items.sort(key=lambda item: item.get_closest_marker("peers") is not None)
