"""The command line: what each command prints, and how it refuses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rlscan
from rlscan import cli, compiler, store
from rlscan.demo import Findings

ROOT = Path(__file__).resolve().parent.parent
GAE = (ROOT / "specs" / "gae.yaml").read_text(encoding="utf-8")
run = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke


def python(code: str, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with no specs/ in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_names_every_command() -> None:
    found = run(cli.app, ["--help"])
    assert found.exit_code == 0
    for command in ("demo", "new", "check", "explain", "show", "test", "build", "bench", "doctor"):
        assert f" {command} " in found.output
        about = run(cli.app, [command, "-h"])
        assert about.exit_code == 0, about.output
        assert "Usage" in about.output
    assert "explain gae" in found.output


def test_without_a_command_comes_the_help() -> None:
    assert "Usage" in run(cli.app, []).output


def test_help_is_light(tmp_path: Path) -> None:
    code = (
        "import sys; from rlscan.cli import main\n"
        "try: main()\n"
        "except SystemExit as e: print(e.code, sorted({'torch', 'sympy', 'triton', 'numba', 'matplotlib'} & "
        "sys.modules.keys()))"
    )
    done = python(code, tmp_path, "--help")
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr
    assert list(tmp_path.iterdir()) == []


def test_version_is_the_packages() -> None:
    declared = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    found = run(cli.app, ["--version"])
    assert found.exit_code == 0
    assert found.output == f"rlscan {rlscan.__version__}\n"
    assert declared is not None
    assert declared[1] == rlscan.__version__


def test_it_is_a_module_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rlscan", "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"rlscan {rlscan.__version__}\n")


# -- check, explain, show ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["gae", "specs/gae.yaml"])
def test_check_lists_the_laws(reference: str, elsewhere: Path) -> None:
    found = run(cli.app, ["check", reference])
    assert found.exit_code == 0, found.output
    assert found.stdout == f"{compiler.check('gae')}\n"
    for law in ("associative", "identity", "reset", "isolation"):
        assert law in found.stdout


def test_a_refusal_is_printed_as_it_is(elsewhere: Path) -> None:
    (elsewhere / "mine.yaml").write_text(GAE.replace("rewards[t] +", "rewrads[t] +"), encoding="utf-8")
    for command in ("check", "explain", "show"):
        found = run(cli.app, [command, "mine.yaml"])
        assert found.exit_code == 1
        assert found.stdout == ""
        assert found.stderr == (
            "mine.yaml:20:10: error[RLS301]: `rewrads` is not defined\n"
            "   20 |   delta: rewrads[t] + where(terminated[t], 0, gamma * next_value[t]) - values[t]\n"
            "      |          ^^^^^^^^^^\n"
            "  help: did you mean `rewards`?\n"
        )


@pytest.mark.parametrize("command", ["check", "explain", "show"])
def test_a_missing_spec_is_one_line(command: str, elsewhere: Path) -> None:
    found = run(cli.app, [command, "gea"])
    assert found.exit_code == 1
    assert found.stderr.startswith("no spec at 'gea' and no builtin of that name: did you mean `gae`? (builtins: ")
    assert found.stderr.count("\n") == 1
    assert "Traceback" not in found.output


def test_explain_in_both_forms(elsewhere: Path) -> None:
    page = run(cli.app, ["explain", "gae"])
    assert page.exit_code == 0
    assert page.stdout == f"{compiler.explain('gae')}\n"
    assert "γ" in page.stdout
    latex = run(cli.app, ["explain", "gae", "--latex"])
    assert latex.exit_code == 0
    assert r"\gamma" in latex.stdout


def test_show_prints_the_module_exactly(elsewhere: Path) -> None:
    for backend, schedule in (("triton", "tile"), ("triton", "columns"), ("cpu", "steps"), ("numpy", "loop")):
        found = run(cli.app, ["show", "gae", "--backend", backend, "--schedule", schedule])
        assert found.exit_code == 0, found.output
        committed = ROOT / "generated" / "gae" / f"{backend}_{schedule}.py"
        assert found.stdout == committed.read_text(encoding="utf-8")
    assert run(cli.app, ["show", "gae"]).stdout == compiler.show("gae")


def test_show_on_a_terminal_loses_no_character(elsewhere: Path) -> None:
    code = (
        "import sys; sys.stdout.isatty = lambda: True\n"
        "from rlscan.cli import main; sys.argv = ['rlscan', 'show', 'gae']; main()"
    )
    done = python(code, elsewhere)
    assert done.returncode == 0, done.stderr
    text = "".join(part if not n else part.split("m", 1)[1] for n, part in enumerate(done.stdout.split("\x1b[")))
    assert [line.rstrip() for line in text.splitlines()] == compiler.show("gae").splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "cuda"], "backend must be one of triton, cpu, numpy, got 'cuda'"),
        (["--schedule", "rows"], "the triton backend has the schedules tile, columns, chunks, got 'rows'"),
    ],
)
def test_show_says_what_there_is(arguments: list[str], message: str) -> None:
    found = run(cli.app, ["show", "gae", *arguments])
    assert (found.exit_code, found.stderr) == (1, f"{message}\n")


def test_a_faulty_compiler_is_not_taken_for_a_faulty_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(spec: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(compiler, "check", broken)
    assert isinstance(run(cli.app, ["check", "gae"]).exception, ZeroDivisionError)


def test_output_that_the_terminal_cannot_show(tmp_path: Path) -> None:
    code = "import sys; from rlscan.cli import main; sys.argv = ['rlscan', 'explain', 'gae']; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        encoding="cp1252",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "?" in done.stdout


# -- build -------------------------------------------------------------------------------------------------------------


def test_build_check(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def build(check: bool, specs: str | None, out: Path) -> list[str]:
        asked.append(check)
        return stale

    monkeypatch.setattr(compiler, "build", build)
    stale = ["gae/cpu_rows.py"]
    found = run(cli.app, ["build", "--check"])
    assert found.exit_code == 1
    assert found.stdout == "stale: generated/gae/cpu_rows.py\n"
    assert "rlscan build" in found.stderr
    found = run(cli.app, ["build"])
    assert (found.exit_code, found.stdout) == (0, "written: generated/gae/cpu_rows.py\n")
    stale = []
    assert run(cli.app, ["build", "--check"]).exit_code == 0
    assert asked == [True, False, True]


def test_a_changed_spec_makes_its_kernels_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a copy with one spec: build writes its kernels, check is content, a change of the spec shows in each."""
    for folder in ("specs", "generated"):
        (tmp_path / folder).mkdir()
    spec = tmp_path / "specs" / "gae.yaml"
    spec.write_text(GAE, encoding="utf-8")
    store.templates()
    monkeypatch.setattr(store, "data_root", lambda: tmp_path)
    written = run(cli.app, ["build"])
    assert written.exit_code == 0, written.output
    made = {path.name: path.read_bytes() for path in (tmp_path / "generated" / "gae").iterdir()}
    assert f"written: generated/gae/{sorted(made)[0]}\n" in written.stdout
    assert made == {path.name: path.read_bytes() for path in (ROOT / "generated" / "gae").glob("*.py")}
    assert run(cli.app, ["build", "--check"]).exit_code == 0
    spec.write_text(GAE.replace("0.95 in", "0.9 in"), encoding="utf-8")
    stale = run(cli.app, ["build", "--check"])
    assert stale.exit_code == 1
    assert stale.stdout.count("stale: ") == len(made)
    assert {path.name: path.read_bytes() for path in (tmp_path / "generated" / "gae").iterdir()} == made


# -- doctor ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "build", lambda check: [])


def test_doctor_finds_what_is_there(fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setenv("RLSCAN_CACHE_DIR", str(tmp_path / "cache"))
    found = run(cli.app, ["doctor"])
    assert found.exit_code == 0, found.output
    for word in (
        torch.__version__,
        str(tmp_path / "cache"),
        "threads",
        "GPU",
        f"{len(store.builtins())} specs",
        "numba",
    ):
        assert word in found.output, word
    assert "broken" not in found.output


def test_doctor_says_that_numpy_takes_over(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # None in sys.modules is how Python marks a module that is not to be found.
    monkeypatch.setitem(sys.modules, "numba", None)
    found = run(cli.app, ["doctor"])
    assert found.exit_code == 0
    assert "NumPy loops take over" in found.output


def test_doctor_says_that_the_cache_cannot_be_written(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSCAN_CACHE_DIR", "/dev/null/x")
    found = run(cli.app, ["doctor"])
    assert found.exit_code == 0
    assert "/dev/null/x cannot be written" in found.output


def test_doctor_is_alarmed_by_what_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "build", lambda check: ["gae/cpu_rows.py"])
    stale = run(cli.app, ["doctor"])
    assert stale.exit_code == 1
    assert "1 kernels are not what the specs give" in stale.output
    monkeypatch.setattr(compiler, "build", lambda check: 1 / 0)
    crashed = run(cli.app, ["doctor"])
    assert crashed.exit_code == 1
    assert "ZeroDivisionError" in crashed.output
    monkeypatch.setattr(compiler, "build", lambda check: [])
    monkeypatch.setitem(sys.modules, "sympy", None)
    assert run(cli.app, ["doctor"]).exit_code == 1


# -- demo --------------------------------------------------------------------------------------------------------------


def found_by_demo(error: float) -> Findings:
    return Findings("a machine", error, 1e-6, 1e-5, (), Path("x.png"))


def test_demo_passes_its_options_and_its_verdict(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def demo(out: Path, seed: int) -> Findings:
        asked.append((out, seed))
        return found_by_demo(error)

    monkeypatch.setattr(cli, "run_demo", demo)
    error = 1e-6
    assert run(cli.app, ["demo"]).exit_code == 0
    assert run(cli.app, ["demo", "--out", "a.png", "--seed", "3"]).exit_code == 0
    assert asked == [(Path("rlscan-demo.png"), 0), (Path("a.png"), 3)]
    error = 1.0
    assert run(cli.app, ["demo"]).exit_code == 1
    error = float("nan")
    assert run(cli.app, ["demo"]).exit_code == 1


def test_demo_says_what_it_lacks_before_it_plays(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "run_demo", None)
    found = run(cli.app, ["demo", "--out", "nowhere/a.png"])
    assert (found.exit_code, found.stderr) == (1, f"there is no folder {elsewhere / 'nowhere'} to draw in\n")
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    found = run(cli.app, ["demo"])
    assert found.exit_code == 1
    assert 'needs gymnasium and matplotlib: pip install "rlscan[demo]"' in found.stderr
