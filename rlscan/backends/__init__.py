"""The targets: each a module with `view(schedule)`, what its templates fill in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlscan.backends import chunks, cpu, triton
from rlscan.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Backend:
    """One target: its schedules, each with its template and what fills it in."""

    name: str
    schedules: Mapping[str, tuple[str, Callable[[Schedule], dict[str, Any]]]]


BACKENDS: dict[str, Backend] = {
    "triton": Backend(
        "triton",
        {
            "tile": ("triton_scan.py.j2", triton.view),
            "columns": ("triton_scan.py.j2", triton.view),
            "chunks": ("triton_chunks.py.j2", chunks.view),
        },
    ),
    "cpu": Backend("cpu", {"rows": ("cpu_rows.py.j2", cpu.view), "steps": ("cpu_steps.py.j2", cpu.view)}),
    "numpy": Backend("numpy", {"loop": ("numpy_loop.py.j2", cpu.view)}),
}
