"""The wheel, installed into an empty folder and used from another: everything that it needs is inside."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel is installed into; its dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        str(folder),
        str(wheel),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def run(site: Path, cwd: Path, *command: str) -> str:
    """What a command prints with the installed package alone on the path."""
    home = cwd.parent / f"{cwd.name}-home"
    home.mkdir(exist_ok=True)
    dropped = ("RLSCAN_CACHE_DIR", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**kept, "PYTHONPATH": str(site), "HOME": str(home)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_is_inside(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        about = archive.read(metadata).decode()
        (scripts,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "rlscan = rlscan.cli:main" in archive.read(scripts).decode()
    assert "Name: rlscan\n" in about
    assert "Requires-Python: >=3.10" in about
    for needed in (
        "torch<2.14,>=2.11",
        "sympy<1.15,>=1.14",
        "numba",
        "typer",
        "rich",
        "platformdirs",
        "pyyaml",
        "jinja2",
    ):
        assert f"Requires-Dist: {needed}" in about, needed
    assert any(name.endswith("licenses/LICENSE") for name in names)
    package = {path.relative_to(ROOT) for path in (ROOT / "rlscan").rglob("*.py")}
    assert {path.as_posix() for path in package} <= names
    assert "rlscan/py.typed" in names
    data = (
        ("specs", "*.yaml"),
        ("specs/gallery", "*.yaml"),
        ("specs", "*.json"),
        ("templates", "*"),
        ("generated", "*/*.py"),
    )
    for folder, pattern in data:
        wanted = {f"rlscan/_data/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / folder).glob(pattern)}
        assert wanted, folder
        assert wanted <= names, folder
    assert not [name for name in names if name.startswith(("tests", "benchmarks")) or "__pycache__" in name]


def test_builtins_from_an_empty_folder(site: Path, tmp_path: Path) -> None:
    code = """
import sys, rlscan, numpy as np
from rlscan import oracle
from rlscan.store import data_root
rng = np.random.default_rng(0)
x = dict(rewards=rng.normal(size=(3, 9)), values=rng.normal(size=(3, 9)), terminated=rng.random((3, 9)) < 0.2,
         last_value=rng.normal(size=3))
for reference in ("gae", "specs/gae.yaml"):
    gae = rlscan.compile(reference)
    out = gae(**x)
    exact = oracle.run(gae.spec, x)
    assert all(np.allclose(getattr(out, name), exact[name]) for name in exact)
print(rlscan.__file__)
print(data_root())
print(next(m.__file__ for n, m in sys.modules.items() if n.startswith("rlscan_generated_gae_cpu")))
print("jinja2" in sys.modules, "sympy" in sys.modules)
"""
    here = tmp_path / "empty"
    here.mkdir()
    package, data, module, loaded = run(site, here, "-c", code).splitlines()
    assert Path(package).parent == site / "rlscan"
    assert Path(data) == site / "rlscan" / "_data"
    assert Path(module).is_relative_to(site / "rlscan" / "_data" / "generated" / "gae")
    assert loaded.endswith("False"), "a fresh builtin needs no sympy"
    assert list(here.iterdir()) == []


def test_a_spec_of_ones_own(site: Path, tmp_path: Path) -> None:
    """A new recurrence in a file beside the program: no line of rlscan is written for it."""
    (tmp_path / "mine.yaml").write_text(
        "rlscan: 1\n"
        "name: leaky_sum\n"
        "inputs:\n"
        "  x: f[B, T]\n"
        "  done: flag[B, T]\n"
        "params:\n"
        "  leak: 0.5 in [0, 1]\n"
        "edge:\n"
        "  done: {before: false}\n"
        "scan:\n"
        "  direction: forward\n"
        "  carry: s\n"
        "  update: leak * s + x[t]\n"
        "  reset: done[t-1]\n"
        "  start: 0\n"
        "outputs:\n"
        "  sums: s[t]\n",
        encoding="utf-8",
    )
    code = """
import rlscan, numpy as np
from pathlib import Path
leaky = rlscan.compile("mine.yaml")
x, done = np.array([[1.0, 2.0, 4.0, 8.0]]), np.array([[False, True, False, False]])
print(leaky(x=x, done=done).sums.tolist())
print(len(list((Path.home() / ".cache" / "rlscan").rglob("leaky_sum_*.py"))))
"""
    printed = run(site, tmp_path, "-c", code).splitlines()
    assert printed[0] == "[[1.0, 2.5, 4.0, 10.0]]"
    if sys.platform == "linux":
        assert printed[1] == "1", "it is compiled into the user's cache"


def test_the_command_line(site: Path, tmp_path: Path) -> None:
    script = str(next(path for path in (site / "bin", site / "Scripts") if path.is_dir()) / "rlscan")
    assert run(site, tmp_path, script, "--version").startswith("rlscan ")
    committed = (ROOT / "generated" / "gae" / "triton_tile.py").read_text(encoding="utf-8")
    assert run(site, tmp_path, script, "show", "gae") == committed.strip()
    assert "isolation" in run(site, tmp_path, script, "check", "specs/vtrace.yaml")
    assert "isolation" in run(site, tmp_path, script, "check", "upgo")
    assert "fresh" in run(site, tmp_path, script, "doctor")
