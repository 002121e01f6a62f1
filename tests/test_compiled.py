"""What a GPU compiler makes of the generated kernels: Triton compiles for a target without a driver.

It runs in processes of their own, as this one may have Triton's interpreter switched on. tests/registers.json is what came of
each kernel at each tile that a launch takes; `RLSCAN_GOLDEN=write pytest tests/test_compiled.py` writes it anew, and its diff
shows what a change did to every kernel.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from rlscan import store
from rlscan.bench.cases import spec_of

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "tests" / "registers.json"

#: schedule, layout, and shapes that take every branch of its tile rules
SHAPES = (
    ("tile", "bt", ((4096, 32), (4096, 128), (4096, 512), (512, 1024), (512, 4096), (512, 8192))),
    ("columns", "tb", ((512, 4096), (4096, 128), (16384, 512), (65536, 512), (2**20, 32))),
    ("chunks", "bt", ((64, 131072),)),
    ("chunks", "tb", ((64, 131072), (8, 2**20))),
)

#: sizes of named axes that are worth a look; with features, time lies across memory's rows in either layout
AXES: dict[str, tuple[dict[str, int], ...]] = {
    "retrace": ({"A": 4}, {"A": 18}),
    "eligibility_traces": ({}, {"F": 8}),
    "episodic_prefix_sum": ({}, {"F": 8}),
}


def counted(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each case, what its kernels take: see tests/cubins.py."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    code = [sys.executable, "tests/cubins.py"]
    done = subprocess.run(
        code, input=json.dumps(cases), cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def cases_of(name: str) -> list[dict[str, Any]]:
    """Every tile on sm_90; of each schedule one with all optional inputs there, and one on the GPUs before and after."""
    every: list[dict[str, Any]] = []
    for schedule, layout, shapes in SHAPES:
        for size in AXES.get(name, ({},)):
            if "F" in size and schedule != "columns":
                continue
            usual = {"name": name, "schedule": schedule, "layout": layout, **size}
            every += [{**usual, "B": B, "T": T, "arch": 90} for B, T in shapes]
            B, T = shapes[-1] if schedule == "tile" else shapes[0]
            if any(item.default is not None for item in spec_of(name).inputs):
                every.append({**usual, "B": B, "T": T, "arch": 90, "optional": True})
        every += [{**usual, "B": B, "T": T, "arch": arch} for arch in (80, 100)]
    return every


def label(case: dict[str, Any]) -> str:
    axes = "".join(f"×{case[axis]}" for axis in "AF" if axis in case)
    rest = ", optional inputs too" if case.get("optional") else ""
    return f"{case['schedule']} {case['layout']} {case['B']}×{case['T']}{axes} sm_{case['arch']}{rest}"


def row(found: dict[str, Any]) -> dict[str, int]:
    """What the table keeps of a kernel. wide: of the accesses to memory, those of 128 bits a thread."""
    memory = found["memory"]
    return {
        "registers": found["registers"],
        "instructions": sum(found["instructions"].values()),
        "accesses": sum(memory.values()),
        "wide": sum(n for access, n in memory.items() if access.endswith(".128")),
    }


@pytest.mark.parametrize("name", store.builtins())
def test_every_kernel_at_every_tile(name: str) -> None:
    """No kernel spills; memory is read and written by 128 bits where it is contiguous; registers are the table's."""
    cases = cases_of(name)
    rows: dict[str, dict[str, int]] = {}
    for case, kernels in zip(cases, counted(cases), strict=True):
        for kernel, found in kernels.items():
            at = f"{label(case)}: {kernel}"
            assert found["stack"] == 0, f"{name} {at} spills"
            rows[at] = row(found)
            if kernel == "kernel" and case["B"] * case.get("F", 1) >= 32 and wide_stores(case):
                stores = {access: n for access, n in found["memory"].items() if access.startswith("STG")}
                assert set(stores) == {"STG.E.128"}, f"{name} {at}: {stores}"
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    if os.environ.get("RLSCAN_GOLDEN") == "write":
        table = {"triton": version("triton"), "kernels": {**table["kernels"], name: rows}}
        TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    if table["triton"] != version("triton"):
        pytest.skip(f"the table's registers are those of triton {table['triton']}; nothing spills, and loads are wide")
    assert rows == table["kernels"][name]


def wide_stores(case: dict[str, Any]) -> bool:
    """Whether neighbouring environments or steps lie side by side in memory in the order in which the kernel has them.

    Not of a walk backward along a row: its addresses descend, which reads as fast by single numbers. With actions a thread
    has fewer environments, as it holds their actions.
    """
    if case["schedule"] == "tile" or case["layout"] == "bt":
        return spec_of(case["name"]).scans[0].direction == "forward"
    return "A" not in case


@pytest.mark.parametrize("schedule", ["tile", "columns"])
def test_truncations_that_are_not_given_are_not_read(schedule: str) -> None:
    case = {"name": "gae", "schedule": schedule, "layout": "bt", "B": 64, "T": 64}
    with_them, without = (found["kernel"]["program"] for found in counted([{**case, "optional": True}, case]))
    # rewards, values[t], values[t+1], terminated, last_value, and the two of truncations.
    assert with_them == {"tt.load": 7, "tt.scan": 1, "tt.store": 2}
    assert without == {"tt.load": 5, "tt.scan": 1, "tt.store": 2}


@pytest.mark.parametrize("schedule", ["tile", "columns"])
def test_an_output_not_asked_for_is_not_computed(schedule: str) -> None:
    """Retrace's advantages alone take the target of the step before, by a scan of its own."""
    case = {"name": "retrace", "schedule": schedule, "layout": "bt", "B": 64, "T": 64}
    every, targets = (found["kernel"]["program"] for found in counted([case, {**case, "outputs": ["targets"]}]))
    assert every["tt.store"] == 2
    assert targets["tt.store"] == 1
    assert targets["tt.scan"] == every["tt.scan"] - 1
