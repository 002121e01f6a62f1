"""The store: references to specs, and a cache that may be missing, read-only, damaged or raced for without a word."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import pickle
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rlscan import store
from rlscan.diagnostics import SpecError

TEXT = "def answer():\n    return 42\n"
ROOT = Path(__file__).resolve().parent.parent
KEY = "ab" + "0" * 62


class Maker:
    """A `make` that counts its calls."""

    def __init__(self, text: str = TEXT) -> None:
        self.text = text
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        return self.text


def never() -> str:
    raise AssertionError("made again")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("RLSCAN_CACHE_DIR", str(folder))
    return folder


def python(code: str, cwd: Path, **environment: str) -> str:
    """What a fresh interpreter prints, run in a folder that holds no rlscan."""
    env = {k: v for k, v in os.environ.items() if k not in ("RLSCAN_CACHE_DIR", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**env, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# -- references --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["gae", "gae.yaml", "specs/gae.yaml", "./specs/gae.yaml", Path("specs/gae.yaml")])
def test_builtins_are_found_from_any_folder(
    reference: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text, shown = store.find_spec(reference)
    assert shown == "specs/gae.yaml"
    assert "name: gae" in text


def test_a_file_goes_before_a_builtin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "gae.yaml").write_text("mine")
    assert store.find_spec("specs/gae.yaml") == ("mine", "specs/gae.yaml")
    assert store.find_spec(tmp_path / "specs" / "gae.yaml") == ("mine", str(tmp_path / "specs" / "gae.yaml"))


def test_a_folder_of_that_name_hides_no_builtin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gae").mkdir()
    assert store.find_spec("gae")[1] == "specs/gae.yaml"


@pytest.mark.parametrize("reference", ["/gae.yaml", "/gae", "../gae.yaml", "other/gae.yaml", "/nowhere/specs/gae.yaml"])
def test_a_path_to_elsewhere_is_no_builtin(reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="no spec at"):
        store.find_spec(reference)


def test_a_missing_spec_says_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(store, "builtins", lambda: ("gae", "td_lambda"))
    monkeypatch.setattr(store, "gallery", lambda: ("upgo",))
    with pytest.raises(FileNotFoundError) as caught:
        store.find_spec("specs/gea.yaml")
    assert str(caught.value) == (
        "no spec at 'specs/gea.yaml' and no builtin of that name: did you mean `gae`? "
        "(builtins: gae, td_lambda; gallery: upgo)"
    )
    with pytest.raises(FileNotFoundError, match="did you mean `upgo`"):
        store.find_spec("gallery/upgoo")
    with pytest.raises(FileNotFoundError, match="it is a folder"):
        store.find_spec(tmp_path)


def test_a_spec_reads_the_same_with_any_ends_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: x\r\ntitle: y\r")
    assert store.find_spec(path)[0] == "name: x\ntitle: y\n"


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"name: \xff\xfe")
    with pytest.raises(SpecError) as caught:
        store.find_spec(path)
    assert str(caught.value) == (
        f"{path}: error[RLS101]: not UTF-8 text: byte 6 is 0xff\n  help: save the file as UTF-8"
    )


def test_of_a_huge_file_only_a_part_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    # An odd offset, so that reading stops in the middle of a two-byte letter.
    path.write_text("x" + "é" * 2**20, encoding="utf-8")
    assert len(store.find_spec(path)[0]) < 2**20


# -- committed modules -------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(store, "data_root", lambda: tmp_path)
    (tmp_path / "generated").mkdir()
    return tmp_path


def test_a_committed_module_serves_its_own_spec_only(root: Path) -> None:
    path = root / "generated" / "gae" / "cpu_rows.py"
    path.parent.mkdir()
    path.write_text(f'"""GAE."""\n# spec sha256: {"a" * 64}\n')
    assert store.read_generated("gae", "cpu_rows", "a" * 64) == path
    assert store.read_generated("gae", "cpu_rows", "b" * 64) is None
    assert store.read_generated("gae", "cpu_rows", "a" * 63) is None
    assert store.read_generated("gae", "cpu_steps", "a" * 64) is None
    path.write_text("\n" * 100 + f"# spec sha256: {'a' * 64}\n")
    assert store.read_generated("gae", "cpu_rows", "a" * 64) is None, "only the header counts"


def test_generated_is_made_exactly_as_wanted(root: Path) -> None:
    folder = root / "generated"
    (folder / "old").mkdir()
    (folder / "old" / "x.py").write_text("gone")
    (folder / "a.py").write_text("stale")
    (folder / "same.py").write_text("same")
    wanted = {"a.py": "new", "b/c.py": "γ", "same.py": "same"}
    differing = ["a.py", "b/c.py", "old/x.py"]
    assert store.write_generated(wanted, folder, check=True) == differing
    assert (folder / "a.py").read_text() == "stale"
    assert store.write_generated(wanted, folder, check=False) == differing
    assert store.write_generated(wanted, folder, check=True) == []
    assert not (folder / "old" / "x.py").exists()


def test_what_the_user_wrote_beside_the_modules_is_left_alone(tmp_path: Path) -> None:
    made = "# spec sha256: 0\n"
    (tmp_path / "mine").mkdir()
    for name in ("gone", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpu_rows.py").write_text(f"\n{made}")
    (tmp_path / "mine" / "notes.py").write_text("mine")
    wanted = {"mine/cpu_rows.py": f"\n{made}new"}
    assert store.write_generated(wanted, tmp_path, check=False, only="mine") == ["mine/cpu_rows.py"]
    assert (tmp_path / "other" / "cpu_rows.py").exists(), "another spec's module is not this one's to judge"
    assert store.write_generated(wanted, tmp_path, check=False) == ["gone/cpu_rows.py", "other/cpu_rows.py"]
    assert sorted(path.name for path in tmp_path.rglob("*.py")) == ["cpu_rows.py", "notes.py"]
    with pytest.raises(FileExistsError, match="was not made by rlscan"):
        store.write_generated({"mine/notes.py": made}, tmp_path, check=False)
    assert (tmp_path / "mine" / "notes.py").read_text() == "mine"


def test_the_key_covers_text_file_and_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {store.key("a", "cpu_rows"), store.key("b", "cpu_rows"), store.key("a", "cpu_steps")}
    monkeypatch.setattr(store, "fingerprint", lambda: "another compiler")
    keys.add(store.key("a", "cpu_rows"))
    assert len(keys) == 4


def test_the_fingerprint_follows_the_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    before = store.fingerprint()
    assert len(before) == 64
    monkeypatch.setattr(store, "templates", lambda: {"a.j2": "changed"})
    assert store.fingerprint.__wrapped__() != before


# -- the cache ---------------------------------------------------------------------------------------------------------


def test_made_once_and_kept(cache: Path) -> None:
    make = Maker()
    path = store.cached(KEY, "gae_cpu", make)
    assert path == cache / "ab" / KEY / "gae_cpu.py"
    assert path.read_text().startswith(TEXT)
    assert store.cached(KEY, "gae_cpu", never) == path
    assert make.calls == 1
    assert [p.name for p in path.parent.iterdir()] == ["gae_cpu.py"], "no temporary file is left"


@pytest.mark.parametrize(
    "damage",
    [
        lambda p: p.write_text(""),
        lambda p: p.write_bytes(p.read_bytes()[:-1]),
        lambda p: p.write_bytes(p.read_bytes()[: len(TEXT)]),
        lambda p: p.write_bytes(p.read_bytes()[len(TEXT) :]),
        lambda p: p.write_text(p.read_text().replace("42", "43")),
        lambda p: p.write_text(p.read_text() + "import os\n"),
        lambda p: p.write_bytes(b"\xff" * 100),
        lambda p: p.write_bytes(b"\0" * p.stat().st_size),
    ],
    ids=["empty", "last byte", "no trailer", "trailer alone", "changed", "added", "not text", "zeros"],
)
def test_a_damaged_file_is_made_again(cache: Path, damage: Callable[[Path], object]) -> None:
    path = store.cached(KEY, "gae_cpu", Maker())
    whole = path.read_bytes()
    damage(path)
    make = Maker()
    assert store.cached(KEY, "gae_cpu", make) == path
    assert make.calls == 1
    assert path.read_bytes() == whole


def test_a_folder_in_the_files_place_is_stepped_round(cache: Path) -> None:
    (cache / "ab" / KEY / "gae_cpu.py" / "x").mkdir(parents=True)
    make = Maker()
    path = store.cached(KEY, "gae_cpu", make)
    assert make.calls == 1
    assert not path.is_relative_to(cache)
    assert path.read_text().startswith(TEXT)


@pytest.mark.parametrize("where", ["a file", "under a file", "/proc", "a dangling link"])
def test_without_a_usable_cache_a_private_folder_serves(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("not a folder")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere" / "deep")
    places = {"a file": blocked, "under a file": blocked / "x", "/proc": Path("/proc/rlscan"), "a dangling link": link}
    if where == "/proc" and not Path("/proc/self").exists():
        pytest.skip("no /proc here")
    monkeypatch.setenv("RLSCAN_CACHE_DIR", str(places[where]))
    key = f"cd{abs(hash(where)):062d}"
    make = Maker()
    path = store.cached(key, "gae_cpu", make)
    assert make.calls == 1
    assert path.read_text().startswith(TEXT)
    assert store.private_folder() in path.parents
    assert stat.S_IMODE(store.private_folder().stat().st_mode) == 0o700
    assert store.cached(key, "gae_cpu", make) == path
    assert store.cache_state()[1] is False


def test_a_full_disk_is_no_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = store._write

    def write(path: Path, text: str) -> None:
        if path.is_relative_to(cache):
            raise OSError(28, "No space left on device")
        real(path, text)

    monkeypatch.setattr(store, "_write", write)
    make = Maker()
    path = store.cached("ef" + "0" * 62, "gae_cpu", make)
    assert path.read_text().startswith(TEXT)
    assert make.calls == 1


def test_a_failed_write_leaves_nothing_behind(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="No space"):
        store._write(cache / "x.py", TEXT)
    assert list(cache.iterdir()) == []


def test_what_make_raises_is_not_swallowed(cache: Path) -> None:
    def make() -> str:
        raise OSError("of the compiler's own")

    with pytest.raises(OSError, match="of the compiler's own"):
        store.cached(KEY, "gae_cpu", make)


MAKE = (
    "from rlscan import store; "
    f"p = store.cached('{KEY}', 'x', lambda: {TEXT!r}); m = store.load(p, '_rlscan_x'); print(m.answer(), p)"
)


@pytest.mark.skipif(os.name == "nt", reason="HOME is a POSIX matter")
@pytest.mark.parametrize("home", ["/proc/nonexistent", "/dev/null", ""])
def test_a_home_that_is_not_there(home: str, tmp_path: Path) -> None:
    """Public kind K15: containers and batch jobs run without a home folder."""
    answer, path = python(MAKE, tmp_path, HOME=home).split()
    assert answer == "42"
    if home:
        # The private folder goes with the process.
        assert not Path(path).exists()
    assert list(tmp_path.iterdir()) == [], "nothing is left in the folder that the program ran in"


def test_no_home_at_all_means_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLSCAN_CACHE_DIR", raising=False)
    monkeypatch.setattr(store.platformdirs, "user_cache_dir", lambda name: f"~/.cache/{name}")
    assert store.cache_folder() is None
    assert store.cache_state() == (None, False)


def test_the_cache_folder_can_be_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.cache_folder() == cache
    assert store.cache_state() == (cache, True)
    assert list(cache.iterdir()) == []
    monkeypatch.chdir(cache)
    monkeypatch.setenv("RLSCAN_CACHE_DIR", "here")
    assert store.cache_folder() == cache / "here", "a later chdir must not move it"
    monkeypatch.setenv("RLSCAN_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    if sys.platform == "linux":
        assert store.cache_folder() == cache / "rlscan"


def test_a_forked_child_has_a_private_folder_of_its_own(tmp_path: Path) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    code = (
        "import os, sys; from rlscan import store\n"
        "mine = store.private_folder()\n"
        "pid = os.fork()\n"
        "if not pid: print(store.private_folder(), flush=True); sys.exit()\n"
        "os.waitpid(pid, 0); print(mine, mine.exists())\n"
    )
    child, parent = python(code, tmp_path).splitlines()
    assert parent.endswith(" True"), "the child's end took the parent's folder away"
    assert child != parent.split()[0]
    assert not Path(child).exists()
    assert not Path(parent.split()[0]).exists()


def _race(folder: str, start: object, results: object, seed: int) -> None:
    os.environ["RLSCAN_CACHE_DIR"] = folder
    start.wait()  # type: ignore[attr-defined]
    for n in range(20):
        text = f"value = {n}\n" * 2000
        path = store.cached(f"{n:064d}", "m", lambda text=text: text)
        module = store.load(path, f"_rlscan_race_{n}")
        results.put((seed, n, module.value, str(path)))  # type: ignore[attr-defined]


def test_eight_processes_make_the_same_files_at_once(cache: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(8), context.Queue()
    workers = [context.Process(target=_race, args=(str(cache), start, results, n)) for n in range(8)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=120) for _ in range(8 * 20)]
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0
    assert all(value == n for _, n, value, _ in found)
    assert len({path for *_, path in found}) == 20, "all share the cache"
    assert not [p for p in cache.rglob("*") if p.name.startswith(".writing-")]


# -- loading -----------------------------------------------------------------------------------------------------------


def test_a_loaded_module_is_a_module_like_any_other(cache: Path) -> None:
    path = store.cached(KEY, "whole", Maker())
    module = store.load(path, "_rlscan_test_whole")
    assert module.answer() == 42
    assert store.load(path, "_rlscan_test_whole") is module
    assert sys.modules["_rlscan_test_whole"] is module
    assert inspect.getsource(module.answer) == TEXT
    assert inspect.getsourcefile(module.answer) == str(path)
    assert pickle.loads(pickle.dumps(module.answer)) is module.answer
    assert module.__file__ == str(path)


def test_loading_writes_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = store.cached(KEY, "quiet", Maker())
    store.load(path, "_rlscan_test_quiet")
    assert [p.name for p in path.parent.iterdir()] == ["quiet.py"]


def test_new_contents_are_loaded_anew(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("value = 1\n")
    first = store.load(path, "_rlscan_test_contents")
    times = path.stat()
    path.write_text("value = 2\n")
    # Same size and same time: what a .pyc goes by does not tell these two apart.
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    second = store.load(path, "_rlscan_test_contents")
    assert (first.value, second.value) == (1, 2)


def test_a_module_that_fails_is_not_left_half_made(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("raise RuntimeError('no')\n")
    with pytest.raises(RuntimeError, match="no"):
        store.load(path, "_rlscan_test_failing")
    assert "_rlscan_test_failing" not in sys.modules
    path.write_text("value = 1\n")
    good = store.load(path, "_rlscan_test_failing")
    path.write_text("value = \n")
    with pytest.raises(SyntaxError):
        store.load(path, "_rlscan_test_failing")
    assert sys.modules["_rlscan_test_failing"] is good


def test_threads_load_one_module(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("import time\ntime.sleep(0.05)\nvalue = 1\n")
    start, found = threading.Barrier(8), []

    def work() -> None:
        start.wait()
        module = store.load(path, "_rlscan_test_threads")
        found.append((module.value, module))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len({id(module) for _, module in found}) == 1


def test_importing_touches_no_file_and_no_heavy_library(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    code = (
        "import sys, rlscan; from rlscan import store; "
        "heavy = {'torch', 'triton', 'sympy', 'numba', 'numpy', 'jinja2', 'matplotlib', 'gymnasium'}; "
        "print(sorted(heavy & sys.modules.keys()))"
    )
    assert python(code, tmp_path, HOME=str(home)) == "[]"
    assert list(home.rglob("*")) == []
    assert [p.name for p in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize("spec", store.builtins())
def test_a_builtin_is_compiled_without_the_compiler(spec: str, tmp_path: Path) -> None:
    """Its modules are on disk: nothing that only their making needs is loaded, nor a JIT before there is a call."""
    code = (
        f"import sys, rlscan; rlscan.compile({spec!r}); "
        "making = {'jinja2', 'sympy', 'triton', 'numba', 'rlscan.compiler', 'rlscan.laws', 'rlscan.emit', 'rlscan.lower'}; "
        "print(sorted(making & sys.modules.keys()))"
    )
    assert python(code, tmp_path) == "[]"
