"""The benchmark: right before it is timed, the fewest bytes, peers that compute the same, and files that say what was done."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rlscan import cli, entry, oracle, store
from rlscan.bench import cases, clock, commands, harness, peers, plots, report, scans, tune
from rlscan.bench.cases import Case
from rlscan.bench.peers import Peer, Prepared

invoke = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke

TIME = {
    "type": "object",
    "required": ["median", "least", "p10", "p90", "samples", "calls"],
    "additionalProperties": {"type": "number", "exclusiveMinimum": 0},
}
TIMES = {"type": "object", "required": ["full"], "additionalProperties": {"anyOf": [TIME, {"type": "string"}]}}
ENTRY = {
    "type": "object",
    "required": ["estimator", "layout", "B", "T", "dtype", "outputs", "bytes", "copy", "of_copy", "error", "times"],
    "properties": {
        "layout": {"enum": ["bt", "tb"]},
        "bytes": {"type": "integer", "exclusiveMinimum": 0},
        "copy": TIME,
        "of_copy": {"type": "number", "exclusiveMinimum": 0},
        "error": {"type": "number", "minimum": 0, "maximum": 1},
        "times": {"type": "object", "required": ["rlscan"], "additionalProperties": TIMES},
        "not_comparable": {"type": "array", "items": {"type": "string"}},
        "left_out": {"type": "object", "additionalProperties": {"type": "string", "minLength": 5}},
    },
}
RESULTS = {
    "type": "object",
    "required": [
        "format",
        "device",
        "rlscan",
        "torch",
        "triton",
        "python",
        "commit",
        "dirty",
        "date",
        "entries",
        "wrong",
    ],
    "properties": {
        "device": {"type": "string", "minLength": 3},
        "entries": {"type": "array", "items": ENTRY},
        "wrong": {"type": "array", "items": {"type": "string"}},
        "not_run": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three samples are as good as a thousand where nobody looks at the time."""
    monkeypatch.setitem(clock.wall.__kwdefaults__, "seconds", 0.0)
    monkeypatch.setitem(clock.wall.__kwdefaults__, "least", 3)


def bench(*arguments: str) -> Any:
    return invoke(cli.app, ["bench", "--device", "cpu", *arguments])


# -- cases -------------------------------------------------------------------------------------------------------------


def test_the_bytes_are_those_of_a_count_by_hand() -> None:
    """A step of GAE: rewards 4, values 4, one flag 1, advantages 4; an environment: its last value."""
    B, T = 5, 12
    for outputs, step in ((("advantages",), 13), ((), 17)):
        case = Case("gae", "tb", B, T, outputs=outputs)
        inputs = cases.inputs(case, "cpu")
        assert cases.bytes_of(inputs, list(case.compiled()(**inputs))) == step * B * T + 4 * B
    case = Case("retrace", "bt", B, T, actions=4)
    inputs = cases.inputs(case, "cpu")
    # q and π 4 × 4 each, μ and r 4 each, the action 8, a flag 1, two outputs; two rows of 4 past the window
    assert cases.bytes_of(inputs, list(case.compiled()(**inputs))) == (32 + 8 + 8 + 1 + 8) * B * T + 32 * B


def test_the_grid_is_bounded() -> None:
    grid = cases.grid()
    assert (4096, 128) in grid
    assert (1, 1048576) in grid
    assert (1048576, 128) in grid
    assert (1048576, 512) not in grid
    assert max(B * T for B, T in grid) == 2**27
    assert len(grid) == len(set(grid)) == 10 + 10 + 10 + 9 + 8 + 8 + 7 + 5


@pytest.mark.parametrize("layout", ["bt", "tb"])
@pytest.mark.parametrize("estimator", cases.ESTIMATORS)
def test_every_environment_is_checked(estimator: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those beyond the ones that the oracle ran on, each element, NaN too, and one environment in another's place."""
    monkeypatch.setattr(cases, "COMPARED", 61 * 9)
    case = Case(estimator, layout, B=150, T=9)
    assert cases.distinct(case) == 61
    got = case.compiled()(**cases.inputs(case, "cpu"))._asdict()
    assert cases.worst(case, got)[0] <= 1
    for output, x in got.items():
        for env, t, wrong in ((149, 8, 0.01), (0, 0, float("nan")), (77, 4, float("inf"))):
            bad = x.clone()
            bad[(env, t) if layout == "bt" else (t, env)] += wrong
            assert cases.worst(case, {**got, output: bad}) == (
                pytest.approx(cases.worst(case, {output: bad})[0]),
                output,
            )
            assert not cases.worst(case, {output: bad})[0] <= 1
        assert not cases.worst(case, {output: x.roll(64, 0 if layout == "bt" else 1)})[0] <= 1
        assert cases.worst(case, {output: x[:-1]})[0] == float("inf")


@pytest.mark.parametrize("estimator", cases.ESTIMATORS)
def test_a_window_in_pieces_is_the_window(estimator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "PIECE", 24)
    for truncations in (False, True):
        case = Case(estimator, "bt", B=3, T=300, truncations=truncations)
        drawn = {n: x.astype(np.float64) if x.dtype.kind == "f" else x for n, x in cases.drawn(case).items()}
        whole, pieces = oracle.run(case.spec, drawn), cases.by_pieces(case.spec, drawn)
        for name, x in whole.items():
            np.testing.assert_allclose(pieces[name], x, rtol=1e-12, atol=1e-12)


def test_pieces_end_where_episodes_do() -> None:
    done = np.zeros(7000, bool)
    done[[100, 2000, 2047, 5000, 6998]] = True
    assert cases.cuts(done) == [(0, 101), (101, 2001), (2001, 2048), (2048, 5001), (5001, 6999), (6999, 7000)]
    done[:] = True
    assert cases.cuts(done[:1300]) == [(0, 512), (512, 1024), (1024, 1300)]
    assert cases.cuts(np.zeros(5000, bool)) == [(0, 5000)]


# -- peers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("truncations", [False, True])
@pytest.mark.parametrize("layout", ["bt", "tb"])
@pytest.mark.parametrize("estimator", cases.ESTIMATORS)
def test_the_estimators_in_torch_are_the_estimators(estimator: str, layout: str, truncations: bool) -> None:
    case = Case(estimator, layout, B=6, T=37, truncations=truncations)
    inputs = cases.inputs(case, "cpu")
    for scan in (scans.loop, scans.doubling, scans.numpy_loop, scans.numba_loop):
        got = scans.ESTIMATORS[estimator](inputs, scan, case.time_axis)
        assert set(got) == {output.name for output in case.spec.outputs}
        assert cases.worst(case, got)[0] <= cases.ALLOWED_PEER, scan.__name__


@pytest.mark.parametrize("estimator", cases.ESTIMATORS)
def test_a_long_window_is_right(estimator: str) -> None:
    """Longer than the oracle takes as it is."""
    case = Case(estimator, "tb", B=2, T=cases.WINDOW + 700)
    found = case.compiled()(**cases.inputs(case, "cpu"))
    assert cases.worst(case, found._asdict())[0] <= 1


@pytest.mark.parametrize("layout", ["bt", "tb"])
def test_loops_by_hand_are_gae(layout: str) -> None:
    case = Case("gae", layout, B=600, T=11)
    inputs = cases.inputs(case, "cpu")
    for peer in peers.chosen("torch loop by hand,numba loop by hand"):
        made = peer.prepare(case, inputs)
        assert isinstance(made, Prepared), made
        assert cases.worst(case, made.named(made.call()))[0] <= cases.ALLOWED_PEER


def rl_triton() -> types.ModuleType:
    """Its functions as its documentation defines them, [B, T] float32 alone."""
    made = types.ModuleType("rl_triton")

    def backward(a: Any, b: Any, start: Any) -> Any:
        s, out = start, torch.empty_like(b)
        for t in reversed(range(b.shape[1])):
            s = a[:, t] * s + b[:, t]
            out[:, t] = s
        return out

    def check(*given: Any) -> None:
        assert all(x.dtype is torch.float32 and x.is_contiguous() and x.shape == given[0].shape for x in given)

    def compute_gae(r: Any, v: Any, d: Any, last_value: Any) -> Any:
        check(r, v, d)
        following = torch.cat((v[:, 1:], last_value[:, None]), 1)
        return backward(0.99 * 0.95 * (1 - d), r + 0.99 * (1 - d) * following - v, torch.zeros_like(last_value))

    def compute_lambda_returns(r: Any, following: Any, d: Any, bootstrap_values: Any) -> Any:
        check(r, following, d, bootstrap_values)
        return backward(0.99 * 0.95 * (1 - d), r + 0.99 * (1 - 0.95) * (1 - d) * following, bootstrap_values[:, -1])

    def compute_discounted_returns(r: Any, d: Any, bootstrap_values: Any) -> Any:
        check(r, d, bootstrap_values)
        return backward(0.99 * (1 - d), r, bootstrap_values[:, -1])

    def compute_vtrace(target: Any, behavior: Any, v: Any, r: Any, d: Any, last_value: Any) -> Any:
        check(target, behavior, v, r, d)
        rho = (target - behavior).exp().clamp(max=1)
        following = torch.cat((v[:, 1:], last_value[:, None]), 1)
        delta = rho * (r + 0.99 * (1 - d) * following - v)
        vs = v + backward(0.99 * rho * (1 - d), delta, torch.zeros_like(last_value))
        return vs, rho * (r + 0.99 * (1 - d) * torch.cat((vs[:, 1:], last_value[:, None]), 1) - v)

    def compute_retrace(
        pi: Any, mu: Any, q: Any, following: Any, actions: Any, r: Any, d: Any, cut: Any, gamma: float
    ) -> Any:
        check(mu, q, r, d, cut)
        assert pi.shape == following.shape == (*actions.shape, 4)
        assert gamma == 0.99
        return q, q

    def forward(x: Any, d: Any, decay: float) -> Any:
        check(x, d)
        s, out = torch.zeros_like(x[:, 0]), torch.empty_like(x)
        for t in range(x.shape[1]):
            s = x[:, t] + (decay * (1 - d[:, t - 1]) * s if t else 0)
            out[:, t] = s
        return out

    for function in (compute_gae, compute_lambda_returns, compute_discounted_returns, compute_vtrace, compute_retrace):
        setattr(made, function.__name__, function)
    made.compute_eligibility_traces = lambda x, d, gamma, lam: forward(x, d, gamma * lam)  # type: ignore[attr-defined]
    made.compute_episodic_prefix_sum = lambda x, d: forward(x, d, 1.0)  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize("layout", ["bt", "tb"])
@pytest.mark.parametrize("estimator", cases.ESTIMATORS)
def test_rl_triton_is_called_for_the_same_quantity(
    estimator: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rl_triton", rl_triton())
    case = Case(estimator, layout, B=5, T=23)
    inputs = cases.inputs(case, "cpu")
    (peer,) = peers.chosen("rl-triton")
    made = peer.prepare(case, inputs)
    assert isinstance(made, Prepared), made
    got = made.named(made.call())
    assert made.alike == (estimator != "retrace")
    if made.alike:
        assert cases.worst(case, got)[0] <= cases.ALLOWED_PEER
    assert ("copies" in made.note) == (layout == "tb")
    assert "float32" in str(peer.prepare(replace(case, dtype="float64"), inputs))


@pytest.mark.parametrize("layout", ["bt", "tb"])
def test_pufferlib_is_given_a_step_more(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(v: Any, r: Any, d: Any, ratio: Any, out: Any, gamma: float, lam: float, rho: float, c: float) -> None:
        carry = torch.zeros_like(v[:, 0])
        for t in reversed(range(v.shape[1] - 1)):
            alive = 1 - d[:, t + 1]
            delta = ratio[:, t].clamp(max=rho) * (r[:, t + 1] + gamma * v[:, t + 1] * alive - v[:, t])
            carry = delta + gamma * lam * ratio[:, t].clamp(max=c) * carry * alive
            out[:, t] = carry

    monkeypatch.setitem(sys.modules, "pufferlib", types.ModuleType("pufferlib"))
    monkeypatch.setitem(sys.modules, "pufferlib._C", types.ModuleType("pufferlib._C"))
    monkeypatch.setattr(torch.ops, "pufferlib", types.SimpleNamespace(compute_puff_advantage=kernel), raising=False)
    case = Case("gae", layout, B=5, T=23)
    made = peers.chosen("puffer")[0].prepare(case, cases.inputs(case, "cpu"))
    assert isinstance(made, Prepared), made
    assert cases.worst(case, made.named(made.call()))[0] <= cases.ALLOWED_PEER
    assert isinstance(peers.chosen("puffer")[0].prepare(replace(case, estimator="vtrace"), {}), str)


@pytest.mark.skipif(importlib.util.find_spec("rlax") is None, reason="rlax is not installed")
@pytest.mark.peers
@pytest.mark.parametrize("layout", ["bt", "tb"])
@pytest.mark.parametrize("estimator", ["gae", "td_lambda", "discounted_returns", "vtrace"])
def test_rlax_is_called_for_the_same_quantity(estimator: str, layout: str) -> None:
    case = Case(estimator, layout, B=5, T=23)
    made = peers.chosen("rlax")[0].prepare(case, cases.inputs(case, "cpu"))
    assert isinstance(made, Prepared), made
    assert cases.worst(case, made.named(made.call()))[0] <= cases.ALLOWED_PEER


def test_a_peer_that_is_not_here_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda _: None)
    for peer in peers.PEERS:
        for device in ("cuda", "cpu"):
            why = peer.missing(device)
            if device not in peer.devices:
                assert why == f"runs on {' and '.join(peer.devices)} alone"
            else:
                assert why == (f"{peer.needs[0]} is not installed" if peer.needs else "")
    assert [peer.name for peer in peers.chosen("torch.c,NUMPY")] == [
        "torch.compile(associative_scan)",
        "torch.compile(doubling scan)",
        "NumPy loop",
    ]
    assert peers.chosen("none") == ()
    with pytest.raises(ValueError, match="there is no peer cub: choose among rl-triton, "):
        peers.chosen("cub")


def made_up(change: float, **about: Any) -> Peer:
    """A peer whose result is rlscan's, changed."""

    def prepare(case: Case, inputs: Any) -> Prepared | str:
        run = case.compiled()
        return Prepared(
            lambda: run(**inputs), lambda found: {n: x + change for n, x in found._asdict().items()}, **about
        )

    return Peer("made up", ("cpu",), (), prepare)


def test_a_peer_is_timed_where_it_agrees_or_is_known_to_be_another() -> None:
    case = Case("gae", "bt", 4, 9)

    def run(peer: Peer) -> harness.Entry:
        (found,) = harness.run([case], [peer], "cpu")
        assert isinstance(found, harness.Entry)
        return found

    same = run(made_up(0.0, note="is made up"))
    assert set(same.times) == {"rlscan", "made up"}
    assert same.notes == {"made up": "is made up"}
    assert not same.unlike
    wrong = run(made_up(0.5))
    assert set(wrong.times) == {"rlscan"}
    assert wrong.left_out["made up"].startswith("not the same result: returns is off by ")
    other = run(made_up(0.5, alike=False))
    assert other.unlike == ("made up",)
    assert other.record()["not_comparable"] == ["made up"]
    assert any("not comparable" in str(cell) for cell in report.table([other], "cpu").columns[2].cells)

    def breaks(case: Case, inputs: Any) -> Prepared:
        raise RuntimeError("no kernel image\nmore of it")

    assert run(Peer("breaks", ("cpu",), (), breaks)).left_out == {"breaks": "RuntimeError: no kernel image"}


# -- the run -----------------------------------------------------------------------------------------------------------


def test_a_run_from_end_to_end(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    found = bench(
        "-e", "gae:advantages,retrace", "-s", "3x7,1x5", "-p", "torch loop,numpy", "-j", str(path), "--actions", "2"
    )
    assert found.exit_code == 0, found.output
    made = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(made, RESULTS)
    assert [(e["estimator"], e["layout"], e["B"], e["T"]) for e in made["entries"]] == [
        (name, layout, B, T) for B, T in ((3, 7), (1, 5)) for layout in ("bt", "tb") for name in ("gae", "retrace")
    ]
    first, second = made["entries"][:2]
    assert first["bytes"] == 13 * 21 + 12
    assert first["outputs"] == ["advantages"]
    assert "actions" not in first
    assert second["actions"] == 2
    assert set(first["times"]) == {"rlscan", "torch loop", "torch loop by hand", "NumPy loop"}
    assert made["wrong"] == []
    assert made["not_run"] == {}
    assert not list(tmp_path.glob("*.part"))
    for word in ("gae:advantages bt", "retrace tb", "3 × 7", "of copy", "torch loop by hand"):
        assert word in found.output, word


class Spoilt:
    """An estimator with one element wrong: in each call, or from the second one on."""

    def __init__(self, real: Any, first: int) -> None:
        self.real, self.calls, self.first = real, 0, first

    def __call__(self, **inputs: Any) -> Any:
        found = self.real(**inputs)
        self.calls += 1
        if self.calls >= self.first:
            found.advantages[-1, -1] += 0.01
        return found


@pytest.mark.parametrize("first", [1, 2])
def test_what_is_wrong_has_no_number_anywhere(first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[[Case], Any] = Case.compiled
    monkeypatch.setattr(Case, "compiled", lambda c: Spoilt(real(c), first) if c.estimator == "gae" else real(c))
    timed: list[object] = []
    host = clock.on_host
    monkeypatch.setattr(clock, "on_host", lambda call: timed.append(call) or host(call))
    path = tmp_path / "out.json"
    found = bench("-e", "gae,td_lambda", "-s", "70x9", "--layouts", "bt", "-p", "none", "-j", str(path))
    assert found.exit_code == 1
    made = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(made, RESULTS)
    assert [entry["estimator"] for entry in made["entries"]] == ["td_lambda"]
    assert made["wrong"] == ["gae bt 70x9 float32"]
    assert len(timed) == 1, "what is wrong is not even timed"
    assert "gae" not in found.stdout
    assert "gae bt 70x9 float32: WRONG: advantages is not the oracle's" in found.stderr


def test_a_budget_and_the_memory_leave_cases_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.json"
    found = bench("-e", "gae", "-s", "3x7", "-p", "none", "--budget", "1e-9", "-j", str(path))
    assert found.exit_code == 0
    made = json.loads(path.read_text(encoding="utf-8"))
    assert made["entries"] == []
    assert set(made["not_run"]) == {"gae bt 3x7 float32", "gae tb 3x7 float32"}
    monkeypatch.setattr(cases, "memory", lambda _: 2**20)
    found = bench("-e", "gae", "-s", "4096x128", "-p", "none", "--layouts", "bt")
    assert "gae bt 4096x128 float32: not run: needs 0.0 GiB of 0.0" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--layouts", "bt,x"), "layout must be one of bt, tb, got 'x'"),
        (("--dtypes", "int8"), "dtype must be one of float32, float64, bfloat16, float16, got 'int8'"),
        (("-s", "4096"), "a shape is environments × steps, such as 4096x128, got '4096'"),
        (("-s", "0x8"), "a shape is environments × steps, such as 4096x128, got '0x8'"),
        (("-e", "gae:targets"), "gae has the outputs advantages, returns, not targets"),
        (("-e", "gea"), "gea"),
        (("-p", "nobody"), "there is no peer nobody"),
        (("--plot",), "--plot draws beside the file that --json names: give both"),
        (("--json", "no/such/folder/x.json"), "there is no folder"),
        (("--tune",), "there is no GPU that torch can use"),
    ],
)
def test_refusals(arguments: tuple[str, ...], message: str) -> None:
    found = bench(*arguments)
    assert found.exit_code == 1
    assert message in found.output
    assert "Traceback" not in found.output


def test_a_spec_of_ones_own(tmp_path: Path) -> None:
    """With named axes and a start of −∞: only who computes it is rlscan alone."""
    spec = tmp_path / "best.yaml"
    text = (Path(__file__).parent.parent / "specs" / "README.md").read_text(encoding="utf-8")
    spec.write_text(
        next(b for b in text.split("```yaml\n") if "name: max_returns" in b).partition("```")[0], encoding="utf-8"
    )
    path = tmp_path / "out.json"
    found = bench("-e", str(spec), "-s", "5x9", "-p", "torch loop", "-j", str(path))
    assert found.exit_code == 0, found.output
    (first, _) = json.loads(path.read_text(encoding="utf-8"))["entries"]
    assert set(first["times"]) == {"rlscan"}
    assert first["left_out"]["torch loop"] == "not written for this spec"


def test_help_says_what_can_be_chosen() -> None:
    found = invoke(cli.app, ["bench", "--help"])
    assert found.exit_code == 0
    for word in (
        "--estimators",
        "--shapes",
        "--peers",
        "--budget",
        "--json",
        "--tune",
        "grid",
        " plot ",
        "float64 oracle",
    ):
        assert word in found.output, word
    for peer in peers.PEERS:
        assert peer.name in " ".join(found.output.split()), peer.name
    assert "RESULTS" in invoke(cli.app, ["bench", "plot", "-h"]).output


# -- times, pictures and tiles -----------------------------------------------------------------------------------------


def test_a_time_is_of_one_call() -> None:
    time = clock.summed([100.0, 300.0, 200.0, 1000.0, 400.0], 10)
    assert (time.median, time.least, time.samples, time.calls) == (30.0, 10.0, 5, 10)
    assert time.p10 == pytest.approx(14.0)
    assert time.p90 == pytest.approx(76.0)
    assert report.shown_time(time) == "30.0 ±153%"
    assert report.shown_time("cannot be captured") == "–"
    assert report.ratio(clock.summed([60.0], 1), time) == " 2.00×"


def results(path: Path) -> Path:
    """A file of results of a GPU, made up."""

    def time(us: float) -> clock.Time:
        return clock.Time(us, us, us, us, 5, 1)

    entries = [
        harness.Entry(
            Case(name, layout, B, T),
            13 * B * T,
            time(T / 50),
            0.1,
            {
                "rlscan": {"full": time(T / 20 + 15), "amortized": time(8.0), "device": time(T / 40)},
                "rl-triton": {"full": time(T / 15 + 30), "amortized": time(30.0), "device": "cannot be captured"},
                "other": {"full": time(1.0)},
            },
            unlike=("other",),
        )
        for name in ("gae", "vtrace")
        for layout in ("bt", "tb")
        for B, T in ((4096, 128), (4096, 512), (64, 8192))
    ]
    about = {"device": "a GPU", "torch": "2", "triton": "3", "date": "2026-12-01"}
    harness.write(path, harness.document(about, entries, [harness.Failure(entries[0].case, "x")]))
    return path


def test_pictures_of_results(tmp_path: Path) -> None:
    path = results(tmp_path / "h.json")
    found = invoke(cli.app, ["bench", "plot", str(path)])
    assert found.exit_code == 0, found.output
    for name in ("time", "copy", "calls"):
        picture = tmp_path / f"h-{name}.png"
        assert f"Drawn: {picture}" in found.output
        data = picture.read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) > 10_000
    entries = json.loads(path.read_text(encoding="utf-8"))["entries"]
    time = plots.over_steps(entries)
    assert [axes.get_title() for axes in time.axes] == [
        f"{name}, {layout}, B = 4096" for name in ("gae", "vtrace") for layout in ("[B, T]", "[T, B]")
    ]
    lines = {line.get_label(): line.get_ydata() for line in time.axes[0].lines}
    assert set(lines) == {"rlscan", "rl-triton", "copy of the same bytes"}, "what is not comparable is not drawn"
    np.testing.assert_allclose(lines["rlscan"], [128 / 40, 512 / 40])
    calls = plots.beside_peers(entries)
    assert "4096 × 128" in calls.axes[0].get_title()
    np.testing.assert_allclose(
        sorted(bar.get_height() for bar in calls.axes[0].patches), sorted([21.4, 21.4, 38.53, 38.53]), 1e-3
    )
    copies = plots.over_bytes(entries)
    np.testing.assert_allclose(copies.axes[0].collections[0].get_offsets()[:, 1], 40 / 50)


def test_only_results_are_drawn(tmp_path: Path) -> None:
    for text, message in (
        ("{", "is not JSON"),
        ('{"entries": []}', "is not what `rlscan bench --json` of this version writes"),
        ('{"format": 1, "entries": []}', "has no entry to draw"),
    ):
        (tmp_path / "x.json").write_text(text, encoding="utf-8")
        found = invoke(cli.app, ["bench", "plot", str(tmp_path / "x.json")])
        assert found.exit_code == 1
        assert message in found.output
    assert not list(tmp_path.glob("*.png"))


def test_a_run_draws_its_results(tmp_path: Path) -> None:
    found = bench("-e", "gae", "-s", "3x7", "-p", "torch loop", "-j", str(tmp_path / "r.json"), "--plot")
    assert found.exit_code == 0, found.output
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["r-calls.png", "r-copy.png", "r-time.png"]


def test_the_tiles_worth_a_try_fit_a_program() -> None:
    for T, total, time_first in ((128, 4096, False), (128, 4096, True), (8192, 512, False), (32, 8, True)):
        tiles = list(tune.candidates(T, total, time_first))
        assert 5 < len(tiles) < 150
        for LANES, BLOCK, warps in tiles:
            assert total >= LANES
            assert BLOCK < 2 * T
            assert 64 <= LANES * BLOCK <= 8192
            assert 2 <= LANES * BLOCK / (32 * warps) <= 64


def test_the_tiles_worth_a_try_of_long_rows() -> None:
    for total, across in ((64, True), (8, True), (1, True), (64, False)):
        tiles = list(tune.split_candidates(total, across, 1024))
        assert 5 < len(tiles) < 150
        for LANES, BLOCK, CHUNK, warps, most in tiles:
            assert LANES == 1 or (across and total >= LANES)
            assert CHUNK % BLOCK == 0
            assert CHUNK > BLOCK
            assert 4 <= LANES * BLOCK / (32 * warps) <= 16
            assert most == 1024


@pytest.mark.interpreter
@pytest.mark.parametrize("layout", ["bt", "tb"])
@pytest.mark.parametrize("estimator", store.builtins())
def test_a_tile_is_put_in_the_place_of_the_modules_own(estimator: str, layout: str) -> None:
    """Also where an axis is left out, which a launch has with size 1; and the estimator's own module keeps its tile."""
    case = cases.Case(estimator, layout, 3, 40)
    inputs = cases.inputs(case, "cpu")
    results = case.compiled()(**inputs)
    for kind, tile in (("tile", (2, 16, 1)), ("columns", (2, 16, 1)), ("chunks", (2, 4, 8, 1, 4))):
        arguments = tune.arguments_of(case, inputs, results)
        module = tune.loaded(case, kind, tile)
        module.launch(*arguments)
        assert module.tile(40, 3, True) == tile
        assert entry.generated(case.spec, "triton", kind).tile is not module.tile
        outputs = arguments[1 + len(case.spec.inputs) :][: len(results)]
        for x, y in zip(outputs, results, strict=True):
            torch.testing.assert_close(x.reshape(y.shape), y, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("estimator", "shape", "names"), [("gae", "64x32", ()), ("eligibility_traces", "2x8192", ("chunk",))]
)
def test_tiles_on_a_gpu(tmp_path: Path, estimator: str, shape: str, names: tuple[str, ...]) -> None:
    path = tmp_path / "tiles.json"
    found = invoke(cli.app, ["bench", "--tune", "-e", estimator, "-s", shape, "--layouts", "bt", "-j", str(path)])
    assert found.exit_code == 0, found.output
    (found_there,) = json.loads(path.read_text(encoding="utf-8"))["runs"][0]["shapes"].values()
    tiles = [tile for tile in found_there["tiles"] if "us" in tile]
    assert tiles == sorted(tiles, key=lambda tile: tile["us"])
    assert sum(tile.get("chosen", False) for tile in tiles) == 1
    assert {"block", "lanes", "warps", "us", "registers", "spills", *names} <= tiles[0].keys()


@pytest.mark.gpu
def test_three_times_on_a_gpu(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    found = invoke(cli.app, ["bench", "-e", "gae", "-s", "64x32", "--layouts", "bt", "-p", "torch.c", "-j", str(path)])
    assert found.exit_code == 0, found.output
    made = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(made, RESULTS)
    for times in made["entries"][0]["times"].values():
        assert set(times) == {"full", "amortized", "device"}
        assert times["device"]["median"] <= times["full"]["median"]
    assert made["entries"][0]["times"]["rlscan"]["amortized"]["calls"] == 200


def test_a_mistake_in_the_command_is_not_the_machines() -> None:
    assert commands._shapes("4096x128, 1X8") == [(4096, 128), (1, 8)]
