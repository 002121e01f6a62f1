"""Everything that rlscan keeps on disk: the builtin specs, templates and modules it ships, and the user's cache.

The cache is a convenience, never a requirement: a missing, read-only, full or damaged one costs a compile and nothing
else. Files appear whole (written beside their place, then renamed) and end in a digest of themselves, so that any
number of processes may compile the same spec at once and a truncated file is made again. No file is touched at import.
"""

from __future__ import annotations

import atexit
import codecs
import hashlib
import importlib.machinery
import importlib.util
import linecache
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType

import platformdirs

from rlscan.diagnostics import SourceText, SpecError, did_you_mean

#: A spec, as a user names one.
Reference = str | os.PathLike[str]

_PACKAGE = Path(__file__).resolve().parent
_TRAILER = "# sha256 of all above: "
_DIGEST = "# spec sha256: "
#: Of a file larger than this no more is read; `parse` refuses far smaller ones.
_ENOUGH = 2**20
#: The folder of specs/ whose modules are not committed.
GALLERY = "gallery"
_lock = threading.RLock()
#: The contents that each loaded module was made from, by its name.
_loaded: dict[str, bytes] = {}


def data_root() -> Path:
    """The folder that holds specs/, templates/ and generated/: inside an installed package, else the repository."""
    packaged = _PACKAGE / "_data"
    return packaged if packaged.is_dir() else _PACKAGE.parent


def builtins() -> tuple[str, ...]:
    """The names of the specs that rlscan ships."""
    return tuple(sorted(path.stem for path in (data_root() / "specs").glob("*.yaml")))


def gallery() -> tuple[str, ...]:
    """The names of the gallery's specs: shipped as text, compiled into the user's cache like a spec of one's own."""
    return tuple(sorted(path.stem for path in (data_root() / "specs" / GALLERY).glob("*.yaml")))


def find_spec(reference: Reference) -> tuple[str, str]:
    """(text, name to show) of a spec: a file, or one that rlscan ships: `gae`, `upgo`, `gallery/upgo`, `specs/gae.yaml`.

    FileNotFoundError where there is neither; SpecError where the file is not text.
    """
    shown = os.fspath(reference)
    if "\n" in shown:
        raise FileNotFoundError(
            "this is the text of a spec, not a path to one: write it to a file, and give that file's path"
        )
    if not shown:
        raise FileNotFoundError("no spec at '': the path is empty")
    path = Path(reference)
    if path.is_file():
        return _read_spec(path, shown), shown
    known = {name: f"specs/{name}.yaml" for name in builtins()}
    known |= {name: f"specs/{GALLERY}/{name}.yaml" for name in gallery()}
    asked = path.as_posix().removesuffix(".yaml").removeprefix("specs/")
    for name, file in known.items():
        if asked in (name, file.removesuffix(".yaml").removeprefix("specs/")):
            return _read_spec(data_root() / file, file), file
    if path.is_dir():
        raise FileNotFoundError(f"no spec at {shown!r}: it is a folder")
    hint = did_you_mean(path.stem, known)
    raise FileNotFoundError(
        f"no spec at {shown!r} and no builtin of that name{f': {hint}' if hint else ''} "
        f"(builtins: {', '.join(builtins())}; gallery: {', '.join(gallery())})"
    )


def _read_spec(path: Path, shown: str) -> str:
    """The file's text with its lines' ends made alike, so that a spec has one digest on every system."""
    with path.open("rb") as file:
        data = file.read(_ENOUGH)
    try:
        # Not final where reading stopped early: that may be in the middle of a character.
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(data, final=len(data) < _ENOUGH)
    except UnicodeDecodeError as fault:
        found = f"byte {fault.start} is 0x{fault.object[fault.start]:02x}"
        error = SpecError("RLS101", f"not UTF-8 text: {found}", help="save the file as UTF-8")
        error.source = SourceText(shown, "")
        raise error from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


@lru_cache(maxsize=1)
def templates() -> Mapping[str, str]:
    """The template files' texts by name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted((data_root() / "templates").glob("*.j2"))}


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """A digest of the compiler itself: what it emits may change whenever its sources or templates do."""
    digest = hashlib.sha256()
    for path in sorted([*_PACKAGE.glob("*.py"), *(_PACKAGE / "backends").glob("*.py")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    for name, text in templates().items():
        digest.update(name.encode() + b"\0" + text.encode())
    return digest.hexdigest()


def key(text: str, file: str) -> str:
    """The cache key of one module of a spec: it covers everything that the module's text depends on."""
    return hashlib.sha256("\0".join([fingerprint(), file, text]).encode()).hexdigest()


def read_generated(name: str, file: str, digest: str) -> Path | None:
    """The committed module, if it was made from the spec of this digest."""
    path = data_root() / "generated" / name / f"{file}.py"
    try:
        with path.open(encoding="utf-8") as lines:
            head = [line for _, line in zip(range(60), lines, strict=False)]
    except OSError:
        return None
    return path if f"{_DIGEST}{digest}\n" in head else None


def write_generated(wanted: Mapping[str, str], root: Path, *, check: bool, only: str = "") -> list[str]:
    """Make a folder hold exactly these modules; with check, only say which differ. only: within this folder of it.

    In a folder of the user's, what rlscan did not generate is left alone, and refused where a module is to be.
    """
    own = root == data_root() / "generated"
    found = [path for path in (root / only).rglob("*.py") if own or _is_generated(path)]
    present = {path.relative_to(root).as_posix(): path for path in found}
    for file in wanted.keys() - present.keys():
        if (root / file).exists():
            raise FileExistsError(f"{root / file} is there and was not made by rlscan")
    differing = sorted(
        file
        for file in present.keys() | wanted.keys()
        if file not in wanted or file not in present or present[file].read_text(encoding="utf-8") != wanted[file]
    )
    if not check:
        for file in differing:
            path = root / file
            if file in wanted:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(wanted[file], encoding="utf-8", newline="\n")
            else:
                path.unlink()
    return differing


def _is_generated(path: Path) -> bool:
    """Whether a file says that it was made from a spec."""
    try:
        return f"\n{_DIGEST}" in path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return False


def cached(key: str, file_name: str, make: Callable[[], str]) -> Path:
    """The file of this key in the user's cache, made if it is missing or damaged; in a private folder if it must be."""
    relative = Path(key[:2]) / key / f"{file_name}.py"
    text: str | None = None
    shared = cache_folder()
    if shared is not None:
        path = shared / relative
        if _whole(path):
            return path
        text = make()
        try:
            _write(path, text)
        except OSError:
            pass  # read-only, full, or something else lies where the folder should be
        else:
            return path
    path = private_folder() / relative
    if not _whole(path):
        _write(path, make() if text is None else text)
    return path


def cache_folder() -> Path | None:
    """Where compiled user specs are kept: RLSCAN_CACHE_DIR, else the platform's cache folder; None without a home."""
    given = os.environ.get("RLSCAN_CACHE_DIR")
    if given:
        return Path(given).expanduser().absolute()
    usual = Path(platformdirs.user_cache_dir("rlscan"))
    # Without a home folder `~` stays as it is, and would be made in whatever folder the program runs in.
    return usual if usual.is_absolute() else None


def cache_state() -> tuple[Path | None, bool]:
    """The cache folder and whether a file can be put there now; it is tried, as permissions alone do not tell."""
    folder = cache_folder()
    if folder is None:
        return None, False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, prefix=".writing-"):
            pass
    except OSError:
        return folder, False
    return folder, True


@lru_cache(maxsize=1)
def _private_folder(pid: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="rlscan-"))
    atexit.register(_remove, folder, pid)
    return folder


def private_folder() -> Path:
    """A folder of this process's own, for when the cache cannot be written. Its name cannot be foreseen by others."""
    return _private_folder(os.getpid())


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def _whole(path: Path) -> bool:
    """Whether a file is there and is what was written."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    body, _, digest = text.rpartition(_TRAILER)
    return digest == f"{_digest(body)}\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(path: Path, text: str) -> None:
    """Publish a file whole: readers see the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(f"{text}{_TRAILER}{_digest(text)}\n")
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


class _Loader(importlib.machinery.SourceFileLoader):
    """Reads the source and nothing beside it.

    A compiled `.pyc` is matched to its source by time and size alone, so one left by a damaged file could outlive it;
    and none is to be written into an installed package.
    """

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def load(path: Path, name: str) -> ModuleType:
    """Import a module from a file under a private name, once in a process for a path and its contents.

    It is a module like any other: `inspect.getsource`, pickle and Numba's cache find it by its name and its file.
    """
    contents = path.read_bytes()
    with _lock:
        module = sys.modules.get(name)
        if module is not None and module.__file__ == str(path) and _loaded.get(name) == contents:
            return module
        loader = _Loader(name, str(path))
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        if spec is None:
            raise ImportError(f"cannot import {path}")
        fresh = importlib.util.module_from_spec(spec)
        # Registered first: triton and numba look a function's module up while it is defined.
        sys.modules[name] = fresh
        linecache.checkcache(str(path))
        try:
            loader.exec_module(fresh)
        except BaseException:
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
            raise
        _loaded[name] = contents
        return fresh
