"""Where there is no GPU, Triton's interpreter stands in for it; `gpu` tests then skip, visibly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Decided without torch: the variable must be set before triton is imported.
HAS_GPU = any(Path(place).exists() for place in ("/dev/nvidiactl", "/proc/driver/nvidia/version"))
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    no_gpu = pytest.mark.skip(reason="no CUDA device")
    real = pytest.mark.skip(reason="a GPU is here: Triton runs on it, not in its interpreter")
    for item in items:
        if "gpu" in item.keywords and not HAS_GPU:
            item.add_marker(no_gpu)
        if "interpreter" in item.keywords and HAS_GPU:
            item.add_marker(real)
