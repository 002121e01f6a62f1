"""What a run shows on screen: a table of the entries that were right, and what is to be known of the peers in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from rlscan.bench import clock
from rlscan.bench.harness import Entry, of_copy

KINDS = {"cuda": ("full", "amortized", "device"), "cpu": ("full",)}


def table(entries: Sequence[Entry], device: str) -> Table:
    """A row for rlscan and for each peer of each entry: times in µs, a peer's as a multiple of rlscan's too."""
    made = Table(title="Time of a call (µs, median; a peer's also in rlscan's)", title_justify="left")
    made.add_column("estimator", overflow="fold")
    made.add_column("B × T", justify="right", no_wrap=True)
    made.add_column("", overflow="fold")
    for kind in KINDS[device]:
        made.add_column(kind, justify="right")
    made.add_column("of copy", justify="right", no_wrap=True)
    for entry in entries:
        case = entry.case
        shown = f"{case.title} {case.layout}" + ("" if case.dtype == "float32" else f" {case.dtype}")
        first = [escape(shown), f"{case.B} × {case.T}"]
        mine = entry.times["rlscan"]
        for name, times in entry.times.items():
            label = f"{name} (not comparable)" if name in entry.unlike else name
            numbers = [
                shown_time(times.get(kind)) + ("" if name == "rlscan" else ratio(times.get(kind), mine.get(kind)))
                for kind in KINDS[device]
            ]
            share = f"{of_copy(entry):.2f}" if name == "rlscan" else ""
            made.add_row(*first, escape(label), *numbers, share, end_section=name == [*entry.times][-1])
            first = ["", ""]
    return made


def shown_time(time: Any) -> str:
    """A median, and how far the percentiles are from it where that is far."""
    if not isinstance(time, clock.Time):
        return "–"
    spread = max(time.p90 - time.median, time.median - time.p10) / time.median if time.median else 0.0
    digits = 2 if time.median < 10 else 1 if time.median < 1000 else 0
    return f"{time.median:.{digits}f}" + (f" ±{spread:.0%}" if spread > 0.1 else "")


def ratio(theirs: Any, mine: Any) -> str:
    """How many times rlscan's time a peer's is."""
    if not isinstance(theirs, clock.Time) or not isinstance(mine, clock.Time) or not mine.median:
        return ""
    return f" {theirs.median / mine.median:.2f}×"


def remarks(entries: Sequence[Entry]) -> list[str]:
    """Each note on a peer, and each reason why one has no times, with the estimators that it holds for."""
    notes: dict[tuple[str, str], dict[str, None]] = {}
    for entry in entries:
        for name, note in entry.notes.items():
            for part in note.split("; "):
                notes.setdefault((name, part), {})[entry.case.title] = None
        for name, why in entry.left_out.items():
            notes.setdefault((name, f"not timed: {why}"), {})[entry.case.title] = None
    every = {entry.case.title for entry in entries}
    lines = []
    for (name, note), titles in notes.items():
        which = "" if set(titles) == every else f" ({', '.join(titles)})"
        lines.append(f"{name}{which}: {note}")
    return lines
