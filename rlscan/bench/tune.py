"""`rlscan bench --tune`: each kernel at each shape in many tiles, the quickest first.

A tile is (LANES environments, BLOCK steps, warps) of one program. The generated module's own arguments are taken, these three
are put in their place, and the result is compared with that of the module's own choice, which is compared with the exact one.
What is found is a table to choose from by hand: rlscan/backends/tiles.py has the rules that a launch goes by.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rlscan import entry
from rlscan.bench import cases, clock
from rlscan.bench.cases import Case
from rlscan.choice import CHOICE

#: B × T of each class of shapes that the rules tell apart
SHAPES = ((4096, 32), (4096, 128), (65536, 128), (16384, 512), (512, 4096), (512, 8192), (1048576, 32))
#: elements of a program's block, and of a thread's part of it
ELEMENTS, SHARE = (64, 8192), (2, 64)
WARPS = (1, 2, 4, 8, 16)
WHAT = (
    "device time in µs by tile: a CUDA-graph replay, median; `copy` is a device copy of the same bytes in the same run"
)


def candidates(T: int, total: int, time_first: bool) -> Iterator[tuple[int, int, int]]:
    """(LANES, BLOCK, warps) worth a try for windows of T steps of `total` lanes."""
    whole = 1 << (T - 1).bit_length()
    blocks = [n for n in (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096) if n <= whole]
    # Where memory is contiguous along time a narrow block wastes most of what it reads.
    blocks = blocks if time_first else [n for n in blocks if n >= min(whole, 128)]
    lanes = (1, 2, 4, 8, 16, 32, 64) if time_first else (1, 2, 4, 8, 16)
    for LANES, BLOCK, warps in itertools.product(lanes, blocks, WARPS):
        elements = LANES * BLOCK
        if (
            max(1, total) >= LANES
            and ELEMENTS[0] <= elements <= ELEMENTS[1]
            and SHARE[0] <= elements / (32 * warps) <= SHARE[1]
        ):
            yield LANES, BLOCK, warps


def tiles(case: Case, *, budget: float = 0.0) -> dict[str, Any]:
    """A case's kernel in every candidate tile. ValueError where its own choice is wrong, or where it takes no tile."""
    import torch

    estimator = case.compiled()
    inputs = cases.inputs(case, "cuda")
    results = estimator(**inputs)
    share, output = cases.worst(case, results._asdict())
    if not share <= cases.ALLOWED:
        raise ValueError(f"{case}: {output} is not the oracle's: {share:.3g} times the error that is allowed")
    copied = clock.copy(cases.bytes_of(inputs, list(results)), "cuda")
    kind = CHOICE["triton"][case.layout]
    module = entry.generated(case.spec, "triton", kind)
    given = [inputs.get(item.name) for item in case.spec.inputs]
    outputs = [torch.empty_like(x) for x in results]
    params = [param.default for param in case.spec.params]
    _, packed, own = module.arguments(case.layout == "tb", *given, *outputs, *params)
    names = module.kernel.arg_names
    place = {name: names.index(name) for name in ("LANES", "BLOCK", "FULL", "MANY")}
    total = outputs[0].numel() // case.T
    chosen = packed[place["LANES"]], packed[place["BLOCK"]], own
    found = []
    began = time.monotonic()
    every = [chosen, *(tile for tile in candidates(case.T, total, case.layout == "tb") if tile != chosen)]
    for LANES, BLOCK, warps in every:
        if budget and time.monotonic() - began > budget:
            break
        values = list(packed)
        for name, value in {"LANES": LANES, "BLOCK": BLOCK, "FULL": case.T == BLOCK, "MANY": case.T > BLOCK}.items():
            values[place[name]] = value
        grid = (-(-total // LANES),)
        for x in outputs:
            x.fill_(float("nan"))

        def call(values: Sequence[Any] = values, grid: tuple[int] = grid, warps: int = warps) -> Any:
            return module.kernel[grid](*values, num_warps=warps, enable_fp_fusion=True)

        try:
            compiled = call()
            if any(not torch.allclose(x, y, rtol=1e-4, atol=1e-4) for x, y in zip(outputs, results, strict=True)):
                raise ValueError(f"{case}: {LANES} lanes × {BLOCK} steps in {warps} warps give another result")
            timed = clock.graph(call, 10)
        except RuntimeError as error:  # more shared memory or registers than there are
            found.append({"lanes": LANES, "block": BLOCK, "warps": warps, "error": str(error)[:80]})
            continue
        found.append(
            {
                "schedule": kind,
                "block": BLOCK,
                "lanes": LANES,
                "warps": warps,
                "us": round(timed.median, 2),
                "registers": compiled.n_regs,
                "spills": compiled.n_spills,
                **({"chosen": True} if (LANES, BLOCK, warps) == chosen else {}),
            }
        )
    timed_tiles = sorted((tile for tile in found if "us" in tile), key=lambda tile: float(tile["us"]))
    return {
        "copy": round(copied.median, 2),
        "tried": len(found),
        "candidates": len(every),
        "tiles": [*timed_tiles, *(tile for tile in found if "us" not in tile)],
    }
