"""The demo: rollouts that mean what semantics says, a value function worth having, and findings that can disagree."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import rlscan
from rlscan import demo, oracle
from tests import loops
from tests.data.record import FILE, SEED, load

pytest.importorskip("gymnasium")


@pytest.fixture(scope="module")
def steps() -> demo.Steps:
    return demo.play(3, environments=4, steps=200, time_limit=40, randomness=0.65)


def test_the_recorded_file_is_what_its_script_records() -> None:
    recorded, anew = load().arrays(), demo.record(SEED).arrays()
    assert FILE.stat().st_size < 200_000
    for name, x in recorded.items():
        assert x.dtype == anew[name].dtype, name
        # A little apart, for other versions of the libraries of linear algebra.
        np.testing.assert_allclose(x, anew[name], rtol=1e-3, atol=1e-3, err_msg=name)


def test_recorded_rollouts_hold_every_kind_of_ending() -> None:
    rollouts = load()
    B = rollouts.rewards.shape[1]
    assert rollouts.last_value.shape == (B,)
    assert {x.dtype.name for x in rollouts.arrays().values()} == {"float32", "bool"}
    assert rollouts.terminated.sum() >= 10
    cut = rollouts.truncated & ~rollouts.terminated
    assert cut.sum() >= 10
    assert (np.isnan(rollouts.final_values) == ~cut).all(), "what must not be read is poison"
    assert (rollouts.rewards == 1).all()
    done = rollouts.terminated | rollouts.truncated
    assert (~done[-1]).any(), "some windows are cut in the middle of an episode"


def test_an_episode_ends_at_its_flag_and_no_later(steps: demo.Steps) -> None:
    """Flags mark the last step; the row after belongs to the next episode, which begins near the middle."""
    done = steps.terminated | steps.truncated
    assert done.sum() > 5
    for t, b in np.argwhere(done):
        assert np.abs(steps.observations[t + 1, b]).max() <= 0.05, "a fresh start follows"
        final = steps.final_observations[t, b]
        fell = abs(final[0]) > 2.4 or abs(final[2]) > 12 * 2 * np.pi / 360
        assert fell == steps.terminated[t, b], "the true final observation is the one kept"
    assert (steps.final_observations[~done] == 0).all()
    lengths = np.diff(np.flatnonzero(np.r_[True, done[:, 0]]))
    assert lengths.max() == 40, "the time limit holds"


def test_the_same_seed_gives_the_same_rollouts() -> None:
    first, second, other = (demo.record(seed, environments=3, steps=60) for seed in (5, 5, 6))
    for name, x in first.arrays().items():
        np.testing.assert_array_equal(x, second.arrays()[name])
    assert not np.array_equal(first.values, other.values)


def test_the_value_function_is_worth_having(steps: demo.Steps) -> None:
    value = demo.fit_value(steps)
    values = value(steps.observations)
    assert values.min() >= 0
    assert values.max() <= 100
    returns = demo._returns(steps, value(steps.final_observations), values[-1])
    explained = 1 - np.square(returns - values[:-1]).mean() / returns.var()
    assert explained > 0.2
    # A pole about to fall is worth less than one that stands.
    assert value(np.array([0, 0, 0.2, 2.0])) < value(np.zeros(4)) - 10


def test_returns_go_by_termination_and_truncation(steps: demo.Steps) -> None:
    rng = np.random.default_rng(0)
    final, last = rng.normal(size=steps.rewards.shape), rng.normal(size=steps.rewards.shape[1])
    flags = (steps.terminated.T, steps.truncated.T)
    wanted = loops.discounted_returns(steps.rewards.T, flags[0], last, flags[1], final.T, gamma=demo.GAMMA)["returns"]
    np.testing.assert_allclose(demo._returns(steps, final, last), wanted.T, rtol=1e-12)


def test_the_loop_by_hand_is_right() -> None:
    """It stands for what people write; a demo that beats a wrong loop shows nothing."""
    rollouts = load()
    spec = rlscan.compile("gae", layout="tb").spec
    exact = oracle.run(spec, rollouts.arrays(), {"gamma": demo.GAMMA, "lam": demo.LAM}, layout="tb")
    got = demo.handwritten(**{name: torch.from_numpy(x) for name, x in rollouts.arrays().items()})
    for x, y in zip(got, exact.values(), strict=True):
        np.testing.assert_allclose(x.numpy(), y, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("layout", "backend", "device"),
    [
        ("tb", None, "cpu"),
        ("bt", None, "cpu"),
        pytest.param("tb", "triton", "cpu", marks=pytest.mark.interpreter),
        pytest.param("bt", "triton", "cpu", marks=pytest.mark.interpreter),
        pytest.param("tb", "triton", "cuda", marks=pytest.mark.gpu),
        pytest.param("bt", "triton", "cuda", marks=pytest.mark.gpu),
    ],
)
def test_gae_on_the_recorded_rollouts(layout: str, backend: str | None, device: str) -> None:
    """Every backend in both layouts, on real data with poison where nothing may read."""
    arrays = load().arrays()
    if backend == "triton" and device == "cpu":
        # The interpreter is slow. The cut keeps episodes of both endings, and one that the window ends.
        arrays = {name: x[100:180, :4] if x.ndim == 2 else x[:4] for name, x in arrays.items()}
        assert arrays["terminated"].any()
        assert arrays["truncated"].any()
    if layout == "bt":
        arrays = {name: x.T for name, x in arrays.items()}
    gae = rlscan.compile("gae", layout=layout, backend=backend)
    got = gae(**{name: torch.from_numpy(x).to(device) for name, x in arrays.items()})
    exact = oracle.run(gae.spec, arrays, layout=layout)
    for name, y in exact.items():
        x = getattr(got, name).cpu().numpy()
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-4)


def test_the_telling_episode_is_whole_and_ends_in_a_fall() -> None:
    rollouts = load()
    found = list(demo.episodes(rollouts))
    done = rollouts.terminated | rollouts.truncated
    assert len(found) == done.sum()
    for b, first, end in found:
        assert done[end - 1, b]
        assert not done[first : end - 1, b].any()
        assert first == 0 or done[first - 1, b]
    chosen = demo.telling(rollouts)
    last = chosen.end - 1, chosen.environment
    assert rollouts.terminated[last]
    assert not rollouts.truncated[last]
    rivals = [e for e in found if rollouts.terminated[e.end - 1, e.environment]]
    rivals = [e for e in rivals if not rollouts.truncated[e.end - 1, e.environment]]
    assert chosen.end - chosen.first == max(e.end - e.first for e in rivals)


@pytest.mark.slow
def test_the_whole_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    said = io.StringIO()
    picture = tmp_path / "episode.png"
    found = demo.run(picture, 1, Console(file=said, width=300), many=16)
    assert found.agrees
    assert 0 < found.error < 1e-3
    assert [(t.steps, t.environments) for t in found.timings] == [(256, 8), (256, 16)]
    assert all(t.rlscan > 0 and t.loop > 0 for t in found.timings)
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = said.getvalue()
    for word in ("terminated", "truncated", "advantage", "return", "float64 oracle", "they agree", "times faster"):
        assert word in text, word
    assert "nan" not in text
    assert str(picture) in text


def test_the_demo_can_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts = load()
    gae = rlscan.compile("gae", layout="tb")
    tensors = {name: torch.from_numpy(x) for name, x in rollouts.arrays().items()}
    result, loop = gae(**tensors), demo.handwritten(**tensors)
    good = [x.numpy().copy() for x in result]
    error, _, allowed = demo._errors(gae, rollouts, good, loop)
    assert error <= allowed
    good[0][17, 3] += 0.01
    assert not demo._errors(gae, rollouts, good, loop)[0] <= allowed
    good[0][17, 3] = np.nan
    assert not demo._errors(gae, rollouts, good, loop)[0] <= allowed


def test_the_picture_shows_the_episode(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    rollouts = load()
    picture = tmp_path / "episode.png"
    demo.draw(picture, rollouts, demo.telling(rollouts), np.zeros_like(rollouts.rewards))
    pixels = image.imread(picture)
    assert pixels.shape[0] > 500
    assert pixels.shape[1] > 800
    for color in ((0.17, 0.63, 0.17), (0.12, 0.47, 0.71), (0.84, 0.15, 0.16)):
        near = np.abs(pixels[..., :3] - color).max(axis=-1) < 0.02
        assert near.sum() > 500, "each curve is there in its color"
