"""Rows split over many programs: any chunking gives what the oracle gives, and the same bits from run to run."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import rlscan
from rlscan import oracle, store
from rlscan.backends import tiles
from rlscan.choice import SPLIT, choose
from rlscan.emit import emit
from rlscan.lift import lift
from rlscan.parse import parse
from rlscan.schedule import plan, splits
from rlscan.spec import Spec
from tests.draw import draw
from tests.test_kernels import AXES, BUILTINS, LAYOUTS, as_tensors, assert_close, estimator, in_layout, spec_of

STAGES = Path(__file__).with_name("stages")
#: (environments, steps a block, steps a chunk)
TILES = {"a block a chunk": (1, 4, 4), "two blocks": (1, 4, 8), "several lanes": (2, 2, 8)}


@cache
def text_of(name: str) -> tuple[str, str]:
    path = STAGES / f"{name}.yaml"
    return (path.read_text(encoding="utf-8"), path.name) if path.exists() else store.find_spec(name)


@cache
def spec_named(name: str) -> Spec:
    return parse(*text_of(name))


@pytest.fixture
def module(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A spec's module with a tile of its own."""

    def made(name: str, lanes: int, block: int, chunk: int) -> ModuleType:
        # Two chunks are scanned at once: a row has more.
        lines = (f"LANES, BLOCK, CHUNK, WARPS, MOST = {lanes}, {block}, {chunk}, 1, 2",)
        for wide in (False, True):
            monkeypatch.setitem(tiles.TILES, ("chunks", wide), lines)
        path = tmp_path / f"{name}_{lanes}_{block}_{chunk}.py"
        path.write_text(emit(plan(lift(spec_named(name)), "chunks"), "triton", store.templates()), encoding="utf-8")
        found = importlib.util.spec_from_file_location(path.stem, path)
        assert found
        assert found.loader
        loaded = importlib.util.module_from_spec(found)
        found.loader.exec_module(loaded)
        return loaded

    return made


def run(
    made: ModuleType, name: str, layout: str, inputs: dict[str, Any], device: str = "cpu"
) -> dict[str, torch.Tensor]:
    """The outputs, in buffers that were NaN."""
    spec = spec_named(name)
    exact = oracle.run(spec, inputs, {}, layout=layout)
    tensors = as_tensors(inputs, device)
    outputs = {key: torch.full(x.shape, float("nan"), dtype=torch.float64, device=device) for key, x in exact.items()}
    given = [tensors.get(item.name) for item in spec.inputs]
    made.launch(layout == "tb", *given, *outputs.values(), *(param.default for param in spec.params))
    for key, x in exact.items():
        np.testing.assert_allclose(outputs[key].cpu().numpy(), x, rtol=1e-10, atol=1e-10, err_msg=f"{name}.{key}")
    return outputs


def drawn(name: str, B: int, T: int, seed: int, layout: str, axes: dict[str, int] | None = None) -> dict[str, Any]:
    spec = spec_named(name)
    optional = {item.name for item in spec.inputs if item.optional} if seed % 2 else set()
    made = draw(spec, np.random.default_rng(seed), B, T, axes or AXES, optional=optional, dtype=np.dtype("float64"))
    return in_layout(spec, made, layout)


@pytest.mark.interpreter
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("name", [*BUILTINS, "own"])
def test_any_chunking_agrees_with_the_oracle(name: str, tile: str, layout: str, module: Any) -> None:
    made = module(name, *TILES[tile])
    for seed, (B, T) in enumerate([(3, 9), (1, 16)] if name == "gae" else [(2, 9)]):
        run(made, name, layout, drawn(name, B, T, seed, layout, {"A": 3, "F": 2}))


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("tile", [(1, 64, 64), (1, 256, 1024), (4, 64, 128)], ids=str)
@pytest.mark.parametrize("name", [*BUILTINS, "own"])
def test_any_chunking_agrees_with_the_oracle_on_a_gpu(
    name: str, tile: tuple[int, int, int], layout: str, module: Any
) -> None:
    made = module(name, *tile)
    for seed, (B, T) in enumerate([(3, 5000), (1, 4096), (5, 1)]):
        run(made, name, layout, drawn(name, B, T, seed, layout), "cuda")


@pytest.mark.interpreter
def test_nothing_passes_a_reset_between_chunks(module: Any) -> None:
    """A done in the first chunk, and NaN in all the others: the chunks' composition drops what it does not need."""
    made = module("gae", 1, 4, 4)
    inputs = drawn("gae", 2, 16, 0, "bt")
    inputs["terminated"][:] = False
    inputs["terminated"][:, 2] = True
    spoilt = {key: x.copy() for key, x in inputs.items()}
    spoilt["rewards"][:, 3:] = np.nan
    spec = spec_named("gae")
    results = []
    for given in (inputs, spoilt):
        outputs = [torch.zeros(2, 16, dtype=torch.float64) for _ in spec.outputs]
        tensors = as_tensors(given, "cpu")
        made.launch(False, *(tensors.get(item.name) for item in spec.inputs), *outputs, 0.99, 0.95)
        results.append(outputs)
    for clean, other in zip(*results, strict=True):
        assert torch.equal(clean[:, :3], other[:, :3])
        assert other[:, 3:].isnan().all()


def test_which_specs_split() -> None:
    """One scan of which the neighbouring carry alone is read; others take `tile` and `columns`, however long they are."""
    found = {name: splits(lift(spec_named(name))) for name in [*BUILTINS, "own", "far", "masked", "mixed", "reduced"]}
    assert found == dict.fromkeys([*BUILTINS, "own"], True) | dict.fromkeys(
        ["far", "masked", "mixed", "reduced"], False
    )


def test_when_rows_are_split() -> None:
    def chosen(B: int, T: int, layout: str = "bt", F: int = 1, backend: str = "triton", can: bool = True) -> str:
        return choose(("F",), lambda: can, backend=backend, layout=layout, sizes={"B": B, "T": T, "F": F})

    (long, few), (long_across, few_across) = SPLIT["bt"], SPLIT["tb"]
    assert chosen(few, long) == chosen(1, long) == "chunks"
    assert chosen(few + 1, long) == chosen(few, long - 1) == "tile"
    assert chosen(few_across, long_across, "tb") == "chunks"
    assert chosen(few_across + 1, long_across, "tb") == chosen(few_across, long_across - 1, "tb") == "columns"
    # Features are what is contiguous: a kernel across rows, in either layout.
    assert chosen(few_across // 4, long_across, F=4) == "chunks"
    assert chosen(few_across // 4, long_across, F=5) == "columns"
    assert chosen(1, long, can=False) == "tile"
    assert chosen(1, long, backend="cpu") == "rows"


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", BUILTINS)
def test_long_rows_through_the_public_surface(name: str, layout: str) -> None:
    spec = spec_of(name)
    for B, T in ((2, 8193), (1, 40000)):
        optional = {item.name for item in spec.inputs if item.optional}
        inputs = in_layout(spec, draw(spec, np.random.default_rng(B), B, T, AXES, optional=optional), layout)
        given = as_tensors(inputs, "cuda")
        call = estimator(name, layout, "triton")
        first = call(**given)
        assert_close(spec, inputs, {}, layout, first)
        # The second call is a relaunch.
        assert all(torch.equal(x, y) for x, y in zip(first, call(**given), strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_bits_under_load(layout: str) -> None:
    """Two thousand runs while another stream keeps the GPU busy, and a replay of a captured call."""
    call = rlscan.compile("gae", layout=layout)
    B, T = 7, 3 * 8192 + 5
    torch.manual_seed(0)
    shape = (B, T) if layout == "bt" else (T, B)
    given = {
        "rewards": torch.randn(shape, device="cuda"),
        "values": torch.randn(shape, device="cuda"),
        "terminated": torch.rand(shape, device="cuda") < 0.001,
        "last_value": torch.randn(B, device="cuda"),
    }
    first = call(**given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call(**given)
    noise, other = torch.randn(2048, 2048, device="cuda"), torch.cuda.Stream()
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for i in range(2000):
        if i % 10 == 0:
            with torch.cuda.stream(other):
                noise = torch.tanh(noise @ noise)
        for x, y in zip(call(**given), first, strict=True):
            wrong += (x != y).sum()
    graph.replay()
    for x, y in zip(captured, first, strict=True):
        wrong += (x != y).sum()
    assert wrong.item() == 0


@pytest.mark.gpu
def test_more_chunks_than_a_gpu_holds_at_once() -> None:
    B, T = 128, 2**18
    ones = torch.ones(1, 1, device="cuda").expand(B, T)
    flags = torch.zeros(1, 1, dtype=torch.bool, device="cuda").expand(B, T)
    got = rlscan.compile("discounted_returns")(
        rewards=ones, terminated=flags, last_value=torch.zeros(B, device="cuda"), gamma=1.0
    )
    wanted = torch.arange(T, 0, -1, device="cuda", dtype=torch.float32)
    assert torch.equal(got.returns, wanted.expand(B, T))
