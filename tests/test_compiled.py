"""What a GPU compiler makes of the generated kernels: Triton compiles for a target without a driver.

It runs in a process of its own, as this one may have Triton's interpreter switched on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = '''
import importlib.util, json, re, subprocess, sys, tempfile
from pathlib import Path
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

def loads(path, absent, kinds):
    """The pointers that the compiled kernel reads, by argument name."""
    spec = importlib.util.spec_from_file_location("generated", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["generated"] = module
    spec.loader.exec_module(module)
    kernel = module.kernel
    fixed = {"ACC": tl.float32, "INDEX": tl.int32, "LANES": 2, "BLOCK": 64, "FULL": True, "MANY": False, "AXIS": 0}
    fixed |= {"TAME": False, "A": 4, "A_BLOCK": 4, "A_ALIGN": 4}
    signature, constants = {}, {}
    for i, name in enumerate(kernel.arg_names):
        if name in fixed:
            signature[name], constants[(i,)] = "constexpr", fixed[name]
        elif name.endswith("_ptr") and (name[:-4] in absent):
            signature[name], constants[(i,)] = "constexpr", None
        elif name.endswith("_ptr"):
            signature[name] = "*" + kinds.get(name[:-4], "fp32")
        else:
            signature[name] = "fp64" if name.endswith("_value") else "i32"
    options = {"num_warps": 1, "enable_fp_fusion": True}
    compiled = triton.compile(ASTSource(kernel, signature, constants), target=GPUTarget("cuda", 90, 32), options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        usage = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    stack = max(map(int, re.findall(r"STACK:(\\d+)", usage)))
    return *(compiled.asm["ttir"].count(op) for op in ("tt.load", "tt.store", '"tt.scan"')), stack

print(json.dumps([loads(*case) for case in json.loads(sys.argv[1])]))
'''


def compiled(cases: list[tuple[str, list[str], dict[str, str]]]) -> list[list[int]]:
    """(loads, stores, scans, bytes of stack) of each (module, absent arguments, pointer types)."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    code = [sys.executable, "-c", SCRIPT, json.dumps(cases)]
    done = subprocess.run(code, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return found


KINDS = {"terminated": "i1", "truncated": "i1", "actions": "i64"}
PARAMS = ["gamma", "lam", "rho_bar", "c_bar", "pg_rho_bar"]


@pytest.mark.parametrize("schedule", ["triton_tile", "triton_columns"])
def test_truncations_that_are_not_given_are_not_read(schedule: str) -> None:
    path = f"generated/gae/{schedule}.py"
    outputs = 2
    with_them, without = compiled([(path, PARAMS, KINDS), (path, [*PARAMS, "truncated", "final_values"], KINDS)])
    # rewards, values[t], values[t+1], terminated, last_value, and the two of truncations.
    assert with_them[:2] == [7, outputs]
    assert without[:2] == [5, outputs]


@pytest.mark.parametrize("schedule", ["triton_tile", "triton_columns"])
def test_an_output_not_asked_for_is_not_computed(schedule: str) -> None:
    """Retrace's advantages alone take the target of the step before, by a scan of its own."""
    none = ["truncated", "final_values", *PARAMS]
    path = f"generated/retrace/{schedule}.py"
    every, targets_only = compiled([(path, none, KINDS), (path, [*none, "advantages"], KINDS)])
    assert every[1] == 2
    assert targets_only[1] == 1
    assert targets_only[2] == every[2] - 1


def test_no_kernel_spills_at_its_usual_tile() -> None:
    cases: list[Any] = []
    for path in sorted((ROOT / "generated").glob("*/triton_*.py")):
        kinds = KINDS | {"done": "i1", "start": "i1"}
        cases.append(
            (str(path), ["truncated", "final_values", "start", "initial_trace", "initial_sum", *PARAMS], kinds)
        )
    for case, (_, _, _, stack) in zip(cases, compiled(cases), strict=True):
        assert stack == 0, case[0]


def test_no_reduced_axis_spills_at_the_tiles_that_launches_take() -> None:
    """Every branch of the tile rules, with few actions and many."""
    shapes = [("columns", "tb", B, 512) for B in (512, 4096, 16384, 65536, 2**20)]
    shapes += [("tile", "bt", B, T) for B, T in ((4096, 32), (4096, 128), (4096, 512), (512, 1024), (512, 4096))]
    cases = [
        {"name": "retrace", "schedule": schedule, "layout": layout, "B": B, "T": T, "A": A}
        for schedule, layout, B, T in shapes
        for A in (4, 18)
    ]
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    code = [sys.executable, "tests/cubins.py"]
    done = subprocess.run(
        code, input=json.dumps(cases), cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for case, found in zip(cases, json.loads(done.stdout.splitlines()[-1]), strict=True):
        assert found["kernel"]["stack"] == 0, case
        wide = sum(n for memory, n in found["kernel"]["memory"].items() if memory == "LDG.E.128")
        # Four probabilities are 16 bytes, and rows of 18 begin on multiples of 8.
        assert wide or case["A"] != 4, case
