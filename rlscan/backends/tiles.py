"""tiles: the block that a Triton launch takes, as lines of the generated `arguments`.

The lines know `T`, `total` (environments × the lanes of each) and, for `chunks`, `across` (time lies across memory's rows).
`rlscan bench --tune` measures those of `tile` and `columns` on another GPU. `chunks` was measured with GAE and serves all.
"""

from __future__ import annotations

_COLUMNS = (
    "# Few environments: many steps a block, over several warps. Many: a warp each, with fewer steps and more lanes.",
    "steps, LANES = (512, 4) if total <= 1024 else (128, 16) if total <= 8192 else (16, 8)",
    "if total > 32768:",
    "    steps, LANES = (8, 16) if total <= 2**18 else (4, 32)",
    "BLOCK = min(triton.next_power_of_2(T), steps)",
    "WARPS = max(1, LANES * BLOCK // 256) if steps >= 128 else 1",
)
_CHUNKS = (
    "# Small blocks in one warp or two, a few to a chunk, and at most some thousand chunks of a row.",
    "LANES = min(triton.next_power_of_2(total), 32) if across else 1",
    "BLOCK, WARPS = (256, 1) if LANES == 1 else (512 // LANES, 2)",
    "CHUNK = max((2 if LANES == 1 else 4) * BLOCK, triton.next_power_of_2(T) // 2048)",
    "MOST = 1024  # chunks of a row, scanned at once",
)
#: The block of a launch from T and the number of lanes, as found best on an H200 (benchmarks/results/tiles-h200.json). A step
#: that holds many values at once needs fewer steps a thread, or its registers spill: the second of each pair.
TILES: dict[tuple[str, bool], tuple[str, ...]] = {
    ("tile", False): (
        "# A row of up to 4096 steps is one block; a longer one goes through blocks of 1024, each read ahead.",
        "BLOCK = triton.next_power_of_2(T) if T <= 4096 else 1024",
        "LANES = 8 if BLOCK <= 32 else 2 if BLOCK <= 128 else 1",
        "WARPS = max(1, LANES * BLOCK // 512) if T <= 512 else max(1, BLOCK // 1024) if T <= 4096 else 4",
    ),
    ("tile", True): (
        "# A row of up to 1024 steps is one block; a longer one goes through blocks of 1024, each read ahead.",
        "BLOCK = min(triton.next_power_of_2(T), 1024)",
        "LANES = 4 if BLOCK <= 32 else 2 if BLOCK <= 128 else 1",
        "WARPS = max(1, LANES * BLOCK // (128 if BLOCK <= 512 else 256))",
    ),
    ("chunks", False): _CHUNKS,
    ("chunks", True): _CHUNKS,
    ("columns", False): _COLUMNS,
    ("columns", True): _COLUMNS,
}
