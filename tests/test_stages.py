"""Several scans in one kernel: which walks over time they take, and that every backend agrees with the oracle on them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlscan
from rlscan import oracle
from rlscan.entry import generated
from rlscan.lift import lift
from rlscan.parse import parse
from rlscan.spec import Spec
from rlscan.sweeps import sweeps
from tests.draw import draw
from tests.test_kernels import LAYOUTS, as_tensors, assert_close, in_layout, targets

FOLDER = Path(__file__).with_name("stages")
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
AXES = {"A": 5, "F": 3}
#: (direction, carries, outputs, kept) of each walk
WALKS = {
    "own": [("backward", "s", "best ahead", "")],
    "decoupled": [("backward", "adv dv", "advantages returns", "")],
    "masked": [("backward", "following adv", "advantages returns", "")],
    "far": [("backward", "s r", "out1", "s r"), ("backward", "q", "out2", "")],
    "mixed": [
        ("forward", "up", "only_up", "up"),
        ("backward", "g", "gs ahead", "g"),
        ("forward", "last", "both", "last"),
        ("backward", "", "shifted", ""),
    ],
    "reduced": [("forward", "mean power", "means", "mean power"), ("backward", "best", "bests", "")],
}


@cache
def spec_of(name: str) -> Spec:
    path = FOLDER / f"{name}.yaml"
    return parse(path.read_text(encoding="utf-8"), path.name)


@cache
def estimator(name: str, layout: str, backend: str, outputs: tuple[str, ...] | None = None) -> Any:
    return rlscan.compile(FOLDER / f"{name}.yaml", layout=layout, backend=backend, outputs=outputs)


def drawn(name: str, B: int, T: int, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    spec = spec_of(name)
    optional = {item.name for item in spec.inputs if item.optional}
    return draw(spec, np.random.default_rng(seed), B, T, AXES, optional=optional, done=0.25)


@pytest.mark.parametrize("name", NAMES)
def test_walks(name: str) -> None:
    made = [
        (
            "backward" if sweep.toward > 0 else "forward",
            " ".join(carry.name for stage in sweep.stages for carry in stage.carries),
            " ".join(output.name for output in sweep.outputs),
            " ".join(sweep.kept),
        )
        for sweep in sweeps(lift(spec_of(name)))
    ]
    assert made == WALKS[name]


def shapes(backend: str, device: str) -> list[tuple[int, int]]:
    if device == "cuda":
        # One block, several of them, a row that is none, and more programs than are resident.
        return [(1, 1), (3, 7), (33, 128), (4, 1000), (2, 5000), (3000, 40), (40000, 5)]
    return [(1, 1), (2, 5)] if backend == "triton" else [(1, 1), (1, 2), (3, 7), (5, 33), (600, 4)]


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_stages_agree_with_the_oracle(name: str, layout: str, backend: str, device: str) -> None:
    spec = spec_of(name)
    for seed, (B, T) in enumerate(shapes(backend, device)):
        inputs = in_layout(spec, drawn(name, B, T, seed), layout)
        assert_close(spec, inputs, {}, layout, estimator(name, layout, backend)(**as_tensors(inputs, device)))


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("name", ["far", "mixed"])
def test_each_output_alone_is_what_it_is_among_the_others(name: str, backend: str, device: str) -> None:
    """What only the others need is left out: walks, scans and what is kept for them."""
    inputs = as_tensors(drawn(name, 3, 6, 1), device)
    every = estimator(name, "bt", backend)(**inputs)
    for output in every._fields:
        (alone,) = estimator(name, "bt", backend, (output,))(**inputs)
        assert torch.equal(alone, getattr(every, output)), output


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_the_numpy_loop_agrees_with_the_oracle(name: str, layout: str) -> None:
    spec = spec_of(name)
    inputs = in_layout(spec, drawn(name, 3, 7, 2), layout)
    exact = oracle.run(spec, inputs, {}, layout=layout)
    results = {key: np.empty_like(x) for key, x in exact.items()}
    given = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in (inputs[item.name] for item in spec.inputs)]
    generated(spec, "numpy", "loop").launch(
        layout == "tb", *given, *results.values(), *(param.default for param in spec.params)
    )
    for key, x in exact.items():
        np.testing.assert_allclose(results[key], x, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("backend", "device"), targets())
def test_nothing_passes_where_every_scan_resets(backend: str, device: str) -> None:
    """NaN and inf beyond a done leave every bit of the near side, through two scans and what is kept between them."""
    inputs = drawn("mixed", 3, 8, 4)
    inputs["done"][:] = False
    inputs["done"][:, 3] = True
    first = estimator("mixed", "bt", backend)(**as_tensors(inputs, device))
    spoilt = {**inputs, "x": inputs["x"].copy()}
    spoilt["x"][:, 4:] = [np.nan, np.inf, -np.inf, np.nan]
    second = estimator("mixed", "bt", backend)(**as_tensors(spoilt, device))
    for key, x in first._asdict().items():
        assert torch.equal(x[:, :4], getattr(second, key)[:, :4]), key
        # The last step's neighbour is the edge, which is finite.
        assert not torch.isfinite(getattr(second, key)[:, 4:-1]).any(), key


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_relaunch_keeps_its_carries_apart(layout: str) -> None:
    """Calls in flight on two streams, and calls after the first: each has memory of its own for what it keeps."""
    spec, run = spec_of("mixed"), estimator("mixed", layout, "triton")
    draws = [as_tensors(in_layout(spec, drawn("mixed", 2000, 300, seed), layout), "cuda") for seed in (0, 1)]
    wanted = [run(**x) for x in draws]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    found: list[list[Any]] = [[], []]
    for _ in range(50):
        for stream, x, place in zip(streams, draws, found, strict=True):
            with torch.cuda.stream(stream):
                place.append(run(**x))
    torch.cuda.synchronize()
    for results, want in zip(found, wanted, strict=True):
        for got in results:
            assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))
