"""Times every builtin estimator on a CUDA device, beside a copy of the same bytes and, where it can be imported, rl-triton.

    python benchmarks/run.py OUT.json [--shapes 4096x128,16384x512] [--layouts bt,tb]

full       between two events around one call, the device idle before it: what a caller waits
amortized  200 calls between two events
device     a CUDA-graph replay of 10 calls
Each is a median in µs. Bytes are the fewest there can be: every input and output once, flags one byte. Results are checked
against the float64 oracle on the first environments before anything is timed; where that fails nothing is printed.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton

import rlscan
from rlscan import oracle

ACTIONS = 4
Call = Callable[[], Any]


def median(values: list[float]) -> float:
    return float(np.median(values))


def events(run: Call, calls: int, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        for _ in range(calls):
            run()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) * 1e3 / calls)
    return median(times)


def device_time(run: Call, calls: int = 10) -> float:
    run()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        run()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(calls):
                run()
    return events(graph.replay, 1, 15) / calls


def timed(run: Call) -> dict[str, float]:
    for _ in range(3):
        run()
    return {
        "full": round(events(run, 1, 40), 2),
        "amortized": round(events(run, 200, 5), 2),
        "device": round(device_time(run), 2),
    }


def copy_time(size: int) -> float:
    source = torch.randint(0, 255, (max(size // 2, 1),), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return device_time(lambda: target.copy_(source))


def inputs_of(name: str, B: int, T: int, layout: str) -> dict[str, torch.Tensor]:
    """Required inputs on the device; random numbers are made there, for large shapes."""
    spec = rlscan.compile(name).spec
    sizes = {"B": B, "T": T, "A": ACTIONS}
    made = {}
    for item in spec.inputs:
        if item.optional and not (name == "episodic_prefix_sum" and item.name == "done"):
            continue
        dims = [d for d in item.dims if d != "F"]
        if layout == "tb" and "T" in dims:
            dims[0], dims[1] = "T", "B"
        shape = [sizes[d] for d in dims]
        if item.kind == "flag":
            made[item.name] = torch.rand(shape, device="cuda") < 0.02
        elif item.kind == "int":
            made[item.name] = torch.randint(0, ACTIONS, shape, device="cuda")
        elif item.name.endswith("_log_probs"):
            made[item.name] = -torch.rand(shape, device="cuda")
        elif item.name.endswith("_probs"):
            made[item.name] = torch.rand(shape, device="cuda") * 0.9 + 0.1
        else:
            made[item.name] = torch.randn(shape, device="cuda")
    return made


def correct(layout: str, inputs: dict[str, torch.Tensor], run: Callable[..., Any]) -> bool:
    """Against the oracle, on the first environments."""
    spec = run.spec
    few = {}
    for item in spec.inputs:
        if item.name in inputs:
            axis = 1 if layout == "tb" and "T" in item.dims else 0
            few[item.name] = inputs[item.name].narrow(axis, 0, min(4, inputs[item.name].shape[axis]))
    got = run(**inputs)
    exact = oracle.run(spec, {n: x.cpu().numpy() for n, x in few.items()}, {}, layout=layout)
    for field, want in exact.items():
        value = getattr(got, field).narrow(1 if layout == "tb" else 0, 0, want.shape[1 if layout == "tb" else 0])
        if not np.allclose(
            value.cpu().double().numpy(), want, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(want).max()))
        ):
            return False
    return True


def peer(name: str, inputs: dict[str, torch.Tensor], layout: str) -> Call | None:
    """rl-triton's call on the same data in the dtype and layout that it takes; conversions of flags stay outside."""
    try:
        import rl_triton
    except ImportError:
        return None
    x = {n: v.float() if v.dtype == torch.bool else v for n, v in inputs.items()}
    turn = (lambda v: v.t().contiguous()) if layout == "tb" else (lambda v: v)
    r, d = x.get("rewards"), x.get("terminated")
    v, lv = x.get("values"), x.get("last_value")
    match name:
        case "gae":
            return lambda: rl_triton.compute_gae(turn(r), turn(v), turn(d), last_value=lv)
        case "td_lambda":
            return lambda: rl_triton.compute_lambda_returns(turn(r), turn(v), turn(d))
        case "discounted_returns":
            return lambda: rl_triton.compute_discounted_returns(turn(r), turn(d))
        case "vtrace":
            target, behavior = x["target_log_probs"], x["behavior_log_probs"]
            return lambda: rl_triton.compute_vtrace(
                turn(target), turn(behavior), turn(v), turn(r), turn(d), last_value=lv
            )
        case "eligibility_traces":
            return lambda: rl_triton.compute_eligibility_traces(turn(x["features"]), turn(d), 0.99, 0.95)
        case "episodic_prefix_sum":
            return lambda: rl_triton.compute_episodic_prefix_sum(turn(x["x"]), turn(x["done"]))
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--shapes", default="4096x32,4096x128,16384x128,16384x512,65536x512,512x4096,512x8192,1048576x32"
    )
    parser.add_argument("--layouts", default="bt,tb")
    options = parser.parse_args()
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "commit": head.stdout.strip(),
        "actions": ACTIONS,
        "rows": [],
    }
    copies: dict[int, float] = {}
    names = [
        "gae",
        "td_lambda",
        "discounted_returns",
        "vtrace",
        "retrace",
        "eligibility_traces",
        "episodic_prefix_sum",
    ]
    for shape in options.shapes.split(","):
        B, T = map(int, shape.split("x"))
        for layout in options.layouts.split(","):
            for name in names:
                if name == "retrace" and B * T > 2**24:
                    continue
                run = rlscan.compile(name, layout=layout)
                inputs = inputs_of(name, B, T, layout)
                if not correct(layout, inputs, run):
                    print(f"{name} {layout} {shape}: WRONG, not timed", flush=True)
                    continue
                size = sum(x.numel() * x.element_size() for x in (*inputs.values(), *run(**inputs)))
                if size not in copies:
                    copies[size] = copy_time(size)
                row = {
                    "estimator": name,
                    "layout": layout,
                    "B": B,
                    "T": T,
                    "bytes": size,
                    "copy": round(copies[size], 2),
                }
                row["rlscan"] = timed(lambda run=run, inputs=inputs: run(**inputs))
                other = peer(name, inputs, layout)
                if other is not None:
                    try:
                        row["rl-triton 0.1.3"] = timed(other)
                    except Exception as error:  # a shape that the peer refuses
                        row["rl-triton 0.1.3"] = {"error": str(error)[:200]}
                results["rows"].append(row)
                mine, theirs = row["rlscan"], row.get("rl-triton 0.1.3", {})
                print(f"{name:20} {layout} {B:>7}x{T:<5} copy {row['copy']:8.2f}", mine, theirs, flush=True)
                options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
