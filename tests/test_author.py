"""The author's loop: a start that compiles, a trial that finds what is wrong, and a folder of one's own that is kept fresh."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rlscan import beyond, cli, compiler, entry, store, trial
from rlscan.draw import draw, draw_param
from rlscan.parse import parse
from rlscan.spec import Spec
from rlscan.verdicts import Case, compared, rounded
from tests.conftest import HAS_GPU

run = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke
CPU = trial.Target("cpu", "cpu", "cpu", ((1, 1), (3, 7)))

DIFFERENCE = """rlscan: 1
name: fading
inputs:
  x: f[B, T]
  done: flag[B, T]
params:
  fade: 0.5 in [0, 1]
scan:
  direction: backward
  carry: s
  a: fade
  b: x[t]
  reset: done[t]
  start: 0
outputs:
  sums: s[t]
"""


def spec_of(name: str) -> Spec:
    return parse(*store.find_spec(name))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fading.yaml").write_text(DIFFERENCE, encoding="utf-8")
    return tmp_path


# -- new ---------------------------------------------------------------------------------------------------------------


def test_a_start_compiles_as_it_is(here: Path) -> None:
    made = run(cli.app, ["new", "My Returns-2.yaml"])
    assert made.exit_code == 0, made.output
    assert "the spec `my_returns_2`. Next: rlscan check" in made.stdout
    text = (here / "My Returns-2.yaml").read_text(encoding="utf-8")
    assert text.count("#") > 10
    assert compiler.check("My Returns-2.yaml").ok
    assert run(cli.app, ["explain", "My Returns-2.yaml"]).exit_code == 0
    # It is TD(λ), so it is right too.
    x = {k: torch.rand(2, 5) for k in ("rewards", "values")}
    x |= {"terminated": torch.rand(2, 5) < 0.3, "last_value": torch.rand(2)}
    for got, want in zip(entry.compile("My Returns-2.yaml")(**x), entry.compile("td_lambda")(**x), strict=True):
        torch.testing.assert_close(got, want)


def test_a_start_from_another_spec(here: Path) -> None:
    assert run(cli.app, ["new", "mine.yaml", "--from", "upgo"]).exit_code == 0
    text, _ = store.find_spec("upgo")
    assert (here / "mine.yaml").read_text(encoding="utf-8") == text.replace("name: upgo", "name: mine")
    assert run(cli.app, ["new", "again.yaml", "--from", "mine.yaml"]).exit_code == 0
    assert compiler.check("again.yaml").name == "again"


def test_nothing_is_overwritten(here: Path) -> None:
    found = run(cli.app, ["new", "fading.yaml"])
    assert (found.exit_code, found.stderr) == (1, "fading.yaml is there already: nothing was written\n")
    assert (here / "fading.yaml").read_text(encoding="utf-8") == DIFFERENCE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mine.txt"], "a spec is a YAML file: write `mine.txt.yaml`"),
        (["1.yaml"], "`1`, from the file's name, cannot name a spec: "),
        (["lambda.yaml"], "`lambda`, from the file's name, cannot name a spec: the field's spelling is `lam`"),
        (["nowhere/mine.yaml"], "there is no folder "),
        (["mine.yaml", "--from", "upgoo"], "no spec at 'upgoo' and no builtin of that name: did you mean `upgo`?"),
    ],
)
def test_what_cannot_be_begun(arguments: list[str], message: str, here: Path) -> None:
    found = run(cli.app, ["new", *arguments])
    assert found.exit_code == 1
    assert found.stderr.startswith(message)
    assert [path.name for path in here.iterdir()] == ["fading.yaml"]


# -- test --------------------------------------------------------------------------------------------------------------


def test_a_good_spec_passes_on_everything_here(here: Path) -> None:
    found = run(cli.app, ["test", "fading.yaml"])
    assert found.exit_code == 0, found.output
    rows = [(line[:12].strip(), line[13:33].strip(), line.split()[-1]) for line in found.stdout.splitlines()[1:]]
    wanted = {"agreement", "all done", "dtypes", "params", "strides", "isolation"}
    assert {name for name, target, _ in rows if target.startswith("cpu")} == wanted
    assert {verdict for *_, verdict in rows} == {"ok"}
    assert any("triton" in line for line in found.stdout.splitlines())
    assert ("interpreted" in found.stdout) != HAS_GPU


def broken_kernels(monkeypatch: pytest.MonkeyPatch, cache: Path, old: str, new: str) -> None:
    """Every cpu kernel that is made from now on has a fault."""
    real = compiler.source

    def source(text: str, name: str, backend: str, kind: str) -> str:
        made = real(text, name, backend, kind)
        assert backend != "cpu" or old in made
        return made.replace(old, new) if backend == "cpu" else made

    monkeypatch.setenv("RLSCAN_CACHE_DIR", str(cache))
    monkeypatch.setattr(compiler, "source", source)
    monkeypatch.setattr(trial, "targets", lambda: (CPU,))


def test_a_wrong_kernel_is_found_and_shown_at_its_smallest(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_kernels(monkeypatch, here / "cache", "a * s_in + b", "a * s_in - b")
    found = run(cli.app, ["test", "fading.yaml"])
    assert found.exit_code == 1
    row = next(line for line in found.stdout.splitlines() if line.startswith("agreement"))
    assert row.endswith("FAILS")
    assert (
        "agreement fails on cpu, layout bt, float32, B = 1, T = 1: the kernel is not the oracle's result"
        in found.stderr
    )
    assert "sums[0, 0] is " in found.stderr
    assert "    x = [[" in found.stderr
    assert "    done = [[" in found.stderr


def test_a_leak_is_found_where_agreement_sees_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product with zero in place of a select: the same results, until something there is not finite."""
    broken_kernels(monkeypatch, here / "cache", "b if a == number(0) else a * s_in + b", "a * s_in + b")
    found = run(cli.app, ["test", "fading.yaml"])
    assert found.exit_code == 1
    verdicts = {line.split("  ")[0]: line.split()[-1] for line in found.stdout.splitlines()[1:]}
    assert verdicts["agreement"] == "ok"
    assert verdicts["isolation"] == "FAILS"
    assert "an episode ends between steps 0 and 1, and it changes when every number after that is NaN" in found.stderr
    assert "is nan, and should be" in found.stderr


IMPLIED = {
    "update": DIFFERENCE.replace("  a: fade\n  b: x[t]\n", "  update: x[t] + where(done[t], 0, fade * s)\n"),
    "coefficient": DIFFERENCE.replace("a: fade", "a: where(done[t], 0, fade)"),
    "forward": DIFFERENCE.replace("a: fade", "a: where(done[t-1], 0, fade)")
    .replace("backward", "forward")
    .replace("\nscan:", "\nedge:\n  done: false\nscan:"),
    "let": DIFFERENCE.replace("a: fade", "a: fade * cont[t-1]")
    .replace("backward", "forward")
    .replace("\nscan:", "\nedge:\n  cont: 1\nlet:\n  cont: where(done[t] or cut[t], 0, 1)\nscan:")
    .replace("params:", "  cut: flag[B, T] = false\nparams:")
    .replace("cut", "truncated"),
}
IMPLIED = {name: text.replace("  reset: done[t]\n", "") for name, text in IMPLIED.items()}


@pytest.mark.parametrize("name", IMPLIED)
def test_a_leak_is_found_also_where_no_reset_is_written(name: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "mine.yaml").write_text(IMPLIED[name], encoding="utf-8")
    monkeypatch.setattr(trial, "targets", lambda: (CPU,))
    found = run(cli.app, ["test", "mine.yaml"])
    assert found.exit_code == 0, found.output
    assert "isolation" in found.stdout
    broken_kernels(monkeypatch, here / "cache", "b if a == number(0) else a * s_in + b", "a * s_in + b")
    found = run(cli.app, ["test", "mine.yaml"])
    verdicts = {line.split("  ")[0]: line.split()[-1] for line in found.stdout.splitlines()[1:]}
    assert (verdicts["agreement"], verdicts["isolation"]) == ("ok", "FAILS")


def test_ends_lie_where_flags_drop_the_carry() -> None:
    for name, text in IMPLIED.items():
        spec = parse(text)
        inputs = draw(spec, np.random.default_rng(0), 3, 7)
        inputs["done"] = np.zeros((3, 7), np.bool_)
        inputs["done"][0, 2] = True
        # The flag of the last step ends an episode within the window for nobody.
        inputs["done"][2, 6] = True
        wanted = [2, -1, -1]
        if name == "let":
            inputs["truncated"] = np.zeros((3, 7), np.bool_)
            inputs["truncated"][1, 4] = True
            wanted[1] = 4
        ends = beyond.far_sides(spec, inputs, {})
        assert ends is not None
        assert ends.last.tolist() == wanted, name


def wrapped(change: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]) -> Callable[[Any], Any]:
    """Estimators whose result is changed, given the result and the arguments."""

    class Result:
        def __init__(self, fields: dict[str, Any]) -> None:
            self._asdict = lambda: fields

    def estimators(subject: trial.Subject) -> Any:
        text, name = subject.spec.source.text, subject.spec.source.name

        def make(layout: str) -> Callable[..., Result]:
            real = entry.compile_text(text, name, layout, "cpu", None)
            return lambda **given: Result(change(real(**given)._asdict(), given))

        return {layout: make(layout) for layout in ("bt", "tb")}

    return estimators


def at_half_precision(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    return {name: (x * (1 + 1e-12) if x.dtype is torch.float64 else x) for name, x in fields.items()}


def by_strides(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    return {name: x if given["x"].is_contiguous() else x + 1 for name, x in fields.items()}


def written_to(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    if not given["x"].is_contiguous():
        given["x"][0, 0] += 1
    return fields


def without_params(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    fade = given.get("fade")
    return {name: x if getattr(fade, "ndim", 0) < 2 else x * 1.5 for name, x in fields.items()}


def where_all_is_done(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    return {name: x + 1 if given["done"].all() and x.shape[1] > 1 else x for name, x in fields.items()}


def across(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """A sum over the window is read by every step."""
    return {name: torch.where(given["x"].isnan().any(), torch.nan, x) for name, x in fields.items()}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("dtypes", at_half_precision),
        ("strides", by_strides),
        ("strides", written_to),
        ("params", without_params),
        ("all done", where_all_is_done),
        ("isolation", across),
    ],
)
def test_each_property_can_fail(name: str, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = trial.Subject(parse(DIFFERENCE, "fading.yaml"), CPU)
    entries = {entry[0]: entry for entry in subject.properties()}
    good = subject.tried(*entries[name])
    assert good.fault is None
    assert good.cases == len(entries[name][1])
    monkeypatch.setattr(trial.Subject, "estimators", property(wrapped(change)))
    bad = subject.tried(*entries[name])
    assert bad.fault is not None
    assert trial.example(subject.spec, bad)


def test_a_spec_that_is_refused_is_not_tried(here: Path) -> None:
    (here / "bad.yaml").write_text(DIFFERENCE.replace("x[t]", "y[t]"), encoding="utf-8")
    found = run(cli.app, ["test", "bad.yaml"])
    assert found.exit_code == 1
    assert "bad.yaml:12:6: error[RLS301]: `y` is not defined" in found.stderr


# -- what a trial is drawn and judged with -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "after", "before"),
    [
        ("gae", {"last_value"}, set()),
        ("retrace", {"last_q_values", "last_target_probs"}, set()),
        ("eligibility_traces", set(), {"initial_trace"}),
        ("length_adaptive_gae", {"last_value"}, set()),
        # It is read under a name of its own, which may be read anywhere.
        ("nonlinear_bellman_returns", set(), set()),
    ],
)
def test_what_is_read_past_an_end_only(name: str, after: set[str], before: set[str]) -> None:
    assert beyond.edge_inputs(spec_of(name), "after") == after
    assert beyond.edge_inputs(spec_of(name), "before") == before


@pytest.mark.parametrize(("name", "shift"), [("gae", 0), ("eligibility_traces", 0), ("puffer_advantage", 1)])
def test_ends_lie_where_flags_are(name: str, shift: int) -> None:
    spec = spec_of(name)
    flag = next(item.name for item in spec.inputs if item.kind == "flag")
    inputs = draw(spec, np.random.default_rng(0), 3, 7)
    inputs[flag] = np.zeros((3, 7), np.bool_)
    inputs[flag][0, 2 + shift] = inputs[flag][1, 5 + shift] = True
    ends = beyond.far_sides(spec, inputs, {})
    assert ends is not None
    assert ends.last.tolist() == [2, 5, -1]
    near, far = ends.near("after"), ends.far("after")
    assert near[0].tolist() == [True] * 3 + [False] * 4
    assert (near ^ far)[:2].all()
    assert not (near | far)[2].any(), "a row without an end says nothing"
    assert (ends.near("before") == far).all()
    bad = beyond.poisoned(spec, inputs, ends, "before", 0)
    for item in spec.inputs:
        if item.kind == "float" and "T" in item.dims and item.name in bad and item.name not in spec.crosses:
            assert (np.isfinite(bad[item.name]) != far[..., None].repeat(1, -1).any(-1)).sum() >= 0
            assert not np.isfinite(bad[item.name][0, :3]).any()
            assert np.isfinite(bad[item.name][0, 3:]).all()


def test_without_an_end_nothing_is_said_of_isolation() -> None:
    spec = parse(DIFFERENCE)
    inputs = draw(spec, np.random.default_rng(0), 3, 7, done=0.0)
    assert beyond.far_sides(spec, inputs, {}) is None
    row = trial.Subject(spec, CPU).tried("isolation", [Case(done=0.0)], trial.Subject(spec, CPU).isolates)
    assert row.note == "nothing was compared: no drawn flags end an episode in every scan"


def test_a_row_is_named_by_the_flags_that_there_are() -> None:
    def rows(text: str) -> set[str]:
        return {name for name, *_ in trial.Subject(parse(text), CPU).properties()}

    assert "all done" in rows(DIFFERENCE)
    masked = DIFFERENCE.replace("done: flag", "mask: flag").replace("reset: done[t]", "keep: not mask[t]")
    assert {"all flags"} == rows(masked) & {"all done", "all flags"}
    without = DIFFERENCE.replace("  done: flag[B, T]\n", "").replace("  reset: done[t]\n", "")
    assert not rows(without) & {"all done", "all flags"}


def test_a_pick_along_an_axis_that_the_carry_has_too() -> None:
    """The NumPy loop aligned what it picks from with every lane, that of the picked axis too."""
    text = DIFFERENCE.replace("  x: f[B, T]\n", "  x: f[B, T, A]\n  q: f[B, T, A]\n  actions: int[B, T]\n").replace(
        "b: x[t]", "b: x[t] * take(q[t], actions[t])"
    )
    subject = trial.Subject(parse(text), CPU)
    for layout in ("bt", "tb"):
        assert subject.agrees(Case(layout, B=2, T=5))[1] is None


def test_results_that_are_not_finite_are_no_agreement() -> None:
    spec = parse(DIFFERENCE.replace("sums: s[t]", "sums: log(-exp(s[t]))"))
    subject = trial.Subject(spec, CPU)
    entries = {entry[0]: entry for entry in subject.properties()}
    row = subject.tried(*entries["all done"])
    assert (row.worst, row.fault, row.note) == (None, None, "nothing was compared: no drawn result is finite")


def test_the_error_that_is_allowed() -> None:
    exact = np.array([1.0, 2.0, np.nan, np.inf])
    fine, slack = exact + np.array([0, 1e-6, 0, 0]), 40 * 1.2e-7 * 2
    share, place = compared(fine, exact, exact, "float32")
    assert place == (1,)
    assert share == pytest.approx(1e-6 / slack)
    assert compared(exact + np.array([0, 1e-4, 0, 0]), exact, exact, "float32")[0] > 1
    assert compared(exact, exact, exact + np.array([0, 1e-4, 0, 0]), "float32")[0] == 0
    assert compared(np.array([1.0, 2.0, 0.0, np.inf]), exact, exact, "float32") == (np.inf, (2,))
    assert compared(np.array([1.0, np.nan, np.nan, np.inf]), exact, exact, "float32") == (np.inf, (1,))
    # What is too large for this precision, eagerly too, is no fault of the kernel.
    assert compared(np.array([np.inf]), np.array([1e39]), np.array([np.inf]), "float32")[0] == 0
    assert compared(rounded(exact[:2] + 0.001, "bfloat16"), exact[:2] + 0.001, exact[:2] + 0.001, "bfloat16")[0] < 1


def test_params_are_drawn_within_their_ranges() -> None:
    rng = np.random.default_rng(0)
    for name in (*store.builtins(), *store.gallery()):
        for param in spec_of(name).params:
            drawn = draw_param(param, rng, (50,))
            assert ((drawn >= param.lower) & (drawn <= param.upper)).all()
            assert len(np.unique(drawn)) > 40


# -- build -------------------------------------------------------------------------------------------------------------


def test_a_folder_of_ones_own_is_built_and_checked(here: Path) -> None:
    (here / "specs").mkdir()
    (here / "fading.yaml").rename(here / "specs" / "fading.yaml")
    again = DIFFERENCE.replace("name: fading", "name: again")
    (here / "specs" / "again.yml").write_text(again, encoding="utf-8")
    stale = run(cli.app, ["build", "specs", "--out", "kept", "--check"])
    assert stale.exit_code == 1
    assert not (here / "kept").exists()
    assert "run `rlscan build specs --out kept` and review the difference" in stale.stderr
    made = run(cli.app, ["build", "specs", "--out", "kept"])
    assert made.exit_code == 0, made.output
    assert "written: kept/fading/triton_tile.py" in made.stdout.splitlines()
    assert (here / "kept" / "again" / "cpu_rows.py").read_text() == compiler.show("specs/again.yml", "cpu", "rows")
    fresh = run(cli.app, ["build", "specs", "--out", "kept", "--check"])
    assert (fresh.exit_code, fresh.stdout) == (0, "kept/ is what specs gives\n")
    (here / "specs" / "again.yml").write_text(again.replace("0.5 in", "0.25 in"), encoding="utf-8")
    changed = run(cli.app, ["build", "specs", "--out", "kept", "--check"])
    assert changed.exit_code == 1
    assert {line.split("/")[1] for line in changed.stdout.splitlines()} == {"again"}
    (here / "specs" / "again.yml").unlink()
    assert run(cli.app, ["build", "specs", "--out", "kept"]).exit_code == 0
    assert not list((here / "kept" / "again").iterdir())


def test_one_spec_is_built_beside_others(here: Path) -> None:
    assert run(cli.app, ["build", "fading.yaml"]).exit_code == 0
    assert run(cli.app, ["build", "upgo"]).exit_code == 0
    assert {path.parent.name for path in (here / "generated").rglob("*.py")} == {"fading", "upgo"}
    for spec in ("fading.yaml", "upgo"):
        assert run(cli.app, ["build", spec, "--check"]).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["specs"], "there is no spec (*.yaml) in specs"),
        (["twice"], "twice/b.yaml: the spec `fading` is in twice/a.yaml too: give one of them another name"),
        (["nothing.yaml"], "no spec at 'nothing.yaml'"),
    ],
)
def test_what_cannot_be_built(arguments: list[str], message: str, here: Path) -> None:
    for name in ("specs", "twice"):
        (here / name).mkdir()
    for name in ("a", "b"):
        (here / "twice" / f"{name}.yaml").write_text(DIFFERENCE, encoding="utf-8")
    found = run(cli.app, ["build", *arguments])
    assert found.exit_code == 1
    assert found.stderr.startswith(message)
    assert not (here / "generated").exists()
