"""Compiles generated kernels for GPUs that are not there, with the arguments that a launch would give them, and counts.

Run as a script, in a process of its own whose Triton is not the interpreter: cases as JSON on standard input, counts as JSON
on standard output. A case is an estimator's name, a schedule, a layout, B, T and a compute capability.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from rlscan import entry
from rlscan.bench.cases import spec_of
from rlscan.lift import lift

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
POINTERS = {
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.bool: "*i1",
    torch.int64: "*i64",
}
KINDS = {"flag": torch.bool, "int": torch.int64}
#: instructions that a cubin's text has, without their predicates
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P[T\d]+ )?([A-Z0-9_]+)((?:\.[A-Za-z0-9_]+)*)")


def arguments(case: dict[str, Any]) -> tuple[Any, tuple[Any, ...], int]:
    """The generated module, its kernel's arguments and its warps, as a launch on these shapes has them."""
    spec = spec_of(case["name"])
    module = entry.generated(spec, "triton", case["schedule"])
    sizes = {"B": case["B"], "T": case["T"], "A": case.get("A", 4), "F": case.get("F", 1)}
    time_first = case["layout"] == "tb"
    swap = {"B": "T", "T": "B"} if time_first else {}
    number = getattr(torch, case.get("dtype", "float32"))

    def empty(dims: tuple[str, ...], dtype: torch.dtype) -> torch.Tensor:
        ordered = [swap.get(dim, dim) for dim in dims] if "T" in dims else list(dims)
        return torch.empty([sizes[dim] for dim in ordered], dtype=dtype, device="meta")

    given = [
        empty(item.dims, KINDS.get(item.kind, number)) if item.default is None or case.get("truncations") else None
        for item in spec.inputs
    ]
    outputs = [empty(("B", "T", *output.axes), number) for output in lift(spec).outputs]
    params = [case.get("params", {}).get(param.name, param.default) for param in spec.params]
    made = module.arguments(time_first, *given, *outputs, *params)
    return module, made[-2], made[-1]


def source(kernel: Any, values: tuple[Any, ...]) -> ASTSource:
    """What a launch's arguments make Triton compile: which are constants, which are multiples of 16."""
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    fixed = {param.name for param in kernel.params if param.is_constexpr}
    for i, (name, value) in enumerate(zip(kernel.arg_names, values, strict=True)):
        if name in fixed or value is None or (isinstance(value, int) and value == 1):
            signature[name], constants[i,] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name], attributes[i,] = POINTERS[value.dtype], [["tt.divisibility", 16]]
        elif isinstance(value, float) or name.endswith("_value"):
            signature[name] = "fp64"
        else:
            signature[name] = "i32" if value < 2**31 else "i64"
            if value % 16 == 0:
                attributes[i,] = [["tt.divisibility", 16]]
    return ASTSource(kernel, signature, constants, attributes)


def counted(case: dict[str, Any]) -> dict[str, Any]:
    """Registers, bytes of stack, and instructions by name, of each kernel of the case."""
    module, values, warps = arguments(case)
    found = {}
    for name in ("composed", "arriving", "kernel"):
        if not hasattr(module, name):
            continue
        options = {"num_warps": 4 if name == "arriving" else warps, "enable_fp_fusion": True}
        target = GPUTarget("cuda", case.get("arch", 90), 32)
        compiled = triton.compile(source(getattr(module, name), values), target=target, options=options)
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(compiled.asm["cubin"])
            file.flush()
            usage, sass = (
                subprocess.run(
                    [TOOLS / "cuobjdump", flag, file.name], capture_output=True, text=True, check=True
                ).stdout
                for flag in ("-res-usage", "-sass")
            )
        if "keep" in case:
            Path(case["keep"]).with_suffix(f".{name}.sass").write_text(sass)
            Path(case["keep"]).with_suffix(f".{name}.ttgir").write_text(compiled.asm["ttgir"])
        (registers,), (stack,) = re.findall(r"REG:(\d+)", usage), re.findall(r"STACK:(\d+)", usage)
        found[name] = {
            "registers": int(registers),
            "stack": int(stack),
            "instructions": Counter(mnemonic for mnemonic, _ in INSTRUCTION.findall(sass) if mnemonic != "NOP"),
            "memory": Counter(m + rest for m, rest in INSTRUCTION.findall(sass) if m in ("LDG", "STG")),
        }
    return found


if __name__ == "__main__":
    print(json.dumps([counted(case) for case in json.load(sys.stdin)]))
