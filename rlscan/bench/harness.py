"""A run: each case right first, then timed, its peers beside it.

    case → inputs → two calls, compared with the exact results → times of rlscan → of each peer that agrees → one entry

Two calls, because the second may take another way: a launch that is remembered. An entry that fails has no numbers anywhere.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import rlscan
from rlscan import store
from rlscan.bench import cases, clock
from rlscan.bench.cases import ALLOWED, ALLOWED_PEER, Case
from rlscan.bench.peers import Peer, Prepared

FORMAT = 1
Times = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """A case that was right. times: by who was timed, rlscan first. notes: what to know of a peer's times."""

    case: Case
    bytes: int
    copy: clock.Time
    share: float
    times: dict[str, Times]
    notes: dict[str, str] = field(default_factory=dict)
    #: peers whose times are of something else
    unlike: tuple[str, ...] = ()
    #: peers without times, and why
    left_out: dict[str, str] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            **described(self.case),
            "bytes": self.bytes,
            "copy": self.copy.record(),
            "error": round(self.share, 4),
            "of_copy": round(of_copy(self), 4),
            "times": {
                name: {kind: t.record() if isinstance(t, clock.Time) else t for kind, t in times.items()}
                for name, times in self.times.items()
            },
            "notes": self.notes,
            "not_comparable": list(self.unlike),
            "left_out": self.left_out,
        }


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that was wrong, or could not be run. wrong: whether results were made, and were not the exact ones."""

    case: Case
    why: str
    wrong: bool = True


def described(case: Case) -> dict[str, Any]:
    """A case as JSON has it."""
    known = {
        "estimator": case.estimator,
        "layout": case.layout,
        "B": case.B,
        "T": case.T,
        "dtype": case.dtype,
        "outputs": list(case.outputs or (output.name for output in case.spec.outputs)),
        "truncations": case.truncations,
    }
    axes = any(dim not in ("B", "T", *item.optional_axes) for item in case.spec.inputs for dim in item.dims)
    return {**known, "actions": case.actions} if axes else known


def of_copy(entry: Entry) -> float:
    """The copy's time as a share of rlscan's, by the device's time where there is one."""
    mine = entry.times["rlscan"]
    best = mine.get("device")
    return entry.copy.median / (best if isinstance(best, clock.Time) else mine["full"]).median


def run(
    planned: Iterable[Case],
    peers: Sequence[Peer],
    device: str,
    *,
    budget: float = 0.0,
    starting: Callable[[Case], None] = lambda _: None,
) -> Iterator[Entry | Failure]:
    """Every case in turn. budget: seconds after which no other case is started, 0 for none."""
    if device == "cuda":
        clock.warm()
    began = time.monotonic()
    copies: dict[int, clock.Time] = {}
    for case in planned:
        if budget and time.monotonic() - began > budget:
            yield Failure(case, f"not started: {budget:g} s had passed", wrong=False)
            continue
        reason = cases.too_large(case, device)
        if reason:
            yield Failure(case, reason, wrong=False)
            continue
        starting(case)
        yield one(case, peers, device, copies)
        _release(device)


def one(case: Case, peers: Sequence[Peer], device: str, copies: dict[int, clock.Time]) -> Entry | Failure:
    """A case: right, then timed. Two calls are checked, of which the second takes what the first remembered."""
    estimator = case.compiled()
    inputs = cases.inputs(case, device)
    share = 0.0
    for _ in range(2):
        results = estimator(**inputs)._asdict()
        found, output = cases.worst(case, results)
        if not found <= ALLOWED:
            return Failure(case, f"{output} is not the oracle's: {found:.3g} times the error that is allowed")
        share = max(share, found)
    size = cases.bytes_of(inputs, list(results.values()))
    del results
    if size not in copies:
        copies[size] = clock.copy(size, device)
    timed = clock.on_device if device == "cuda" else clock.on_host
    times = {"rlscan": timed(lambda: estimator(**inputs))}
    notes: dict[str, str] = {}
    unlike: list[str] = []
    left_out: dict[str, str] = {}
    for peer in peers:
        try:
            made = _peer(peer, case, inputs, device)
            if isinstance(made, str):
                left_out[peer.name] = made
                continue
            times[peer.name] = timed(made.call) if made.wait is None else clock.on_host(made.call, made.wait)
        except Exception as error:  # another's code, on shapes that it may never have met: what it says is the result
            said = str(error).strip().partition("\n")[0]
            left_out[peer.name] = f"{type(error).__name__}: {said[:160]}"
            continue
        finally:
            _release(device)
        if made.note:
            notes[peer.name] = made.note
        if not made.alike:
            unlike.append(peer.name)
    return Entry(case, size, copies[size], share, times, notes, tuple(unlike), left_out)


def _peer(peer: Peer, case: Case, inputs: Any, device: str) -> Prepared | str:
    """A peer's call, if what it gives is the exact result or is known to be another."""
    missing = peer.missing(device)
    if missing:
        return missing
    made = peer.prepare(case, inputs)
    if isinstance(made, Prepared) and made.alike:
        share, output = cases.worst(case, made.named(made.call()))
        if not share <= ALLOWED_PEER:
            return f"not the same result: {output} is off by {share:.3g} times what is allowed"
    return made


def _release(device: str) -> None:
    gc.collect()
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()


# -- what a run is written as ------------------------------------------------------------------------------------------


def surroundings(device: str, peers: Sequence[Peer] = (), commit: str = "") -> dict[str, Any]:
    """The machine, the versions and the commit that a measurement belongs to."""
    import torch

    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else _processor(),
        "rlscan": rlscan.__version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "triton", "numba", "numpy")},
        "date": datetime.now(timezone.utc).date().isoformat(),
        **_commit(commit),
        "peers": {peer.name: peer.version() for peer in peers if not peer.missing(device)},
    }
    if device == "cpu":
        found["threads"] = torch.get_num_threads()
    return found


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _commit(given: str) -> dict[str, Any]:
    """The commit of the checkout that runs, and whether it has changes; what was given where there is none."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(  # noqa: S603
                ["git", "-C", os.fspath(store.data_root()), *arguments],  # noqa: S607
                capture_output=True,
                text=True,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    head = None if given else git("rev-parse", "HEAD")
    if head is None:
        return {"commit": given or None, "dirty": None}
    return {"commit": head, "dirty": bool(git("status", "--porcelain", "--untracked-files=no"))}


def document(about: dict[str, Any], entries: Sequence[Entry], failures: Sequence[Failure]) -> dict[str, Any]:
    """A run as JSON: entries that were right, the names of those that were wrong, and what was not run."""
    return {
        "format": FORMAT,
        **about,
        "unit": "µs",
        "meaning": clock.MEANING,
        "entries": [entry.record() for entry in entries],
        "wrong": [str(failure.case) for failure in failures if failure.wrong],
        "not_run": {str(failure.case): failure.why for failure in failures if not failure.wrong},
    }


def write(path: Path, made: dict[str, Any]) -> None:
    """Whole or not at all."""
    beside = path.with_name(f"{path.name}.part")
    beside.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    beside.replace(path)
