"""Pictures of a run's JSON: time against T, fraction of the copy's speed against bytes, and calls beside the peers'."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlscan.bench.harness import FORMAT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Entries = Sequence[dict[str, Any]]
LAYOUTS = {"bt": "[B, T]", "tb": "[T, B]"}
#: Colours that a colour-blind eye tells apart (Okabe & Ito), rlscan's first.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#F0E442", "#8B4513")


def draw(results: Path, folder: Path) -> list[Path]:
    """The pictures of one file of results, as PNG files of its name in a folder. ValueError where it is no such file."""
    try:
        made = json.loads(results.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{results} is not JSON: {error}") from None
    if not isinstance(made, dict) or made.get("format") != FORMAT or "entries" not in made:
        raise ValueError(f"{results} is not what `rlscan bench --json` of this version writes")
    entries = [entry for entry in made["entries"] if not entry["truncations"] and entry["dtype"] == "float32"]
    if not entries:
        raise ValueError(f"{results} has no entry to draw (float32, without truncations)")
    about = f"{made['device']}, torch {made['torch']}, triton {made['triton']}, {made['date']}"
    pictures = {"time": over_steps, "copy": over_bytes, "calls": beside_peers}
    return [_saved(paint(entries), about, folder / f"{results.stem}-{name}.png") for name, paint in pictures.items()]


def _saved(figure: Figure, about: str, path: Path) -> Path:
    figure.text(0.995, 0.002, about, ha="right", va="bottom", fontsize=7, color="#555555")
    figure.savefig(path, dpi=120)
    return path


def _figure(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    # A figure of its own, without pyplot: no window, no state that a notebook shares.
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(rect=(0, 0.03, 1, 0.97))  # type: ignore[union-attr, call-arg]
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def best(times: dict[str, Any]) -> float | None:
    """The median that tells most of a kernel: the device's time, or the call's where there is none."""
    for kind in ("device", "full"):
        if isinstance(times.get(kind), dict):
            return float(times[kind]["median"])
    return None


def contenders(entries: Entries) -> dict[str, str]:
    """Everyone who was timed on the same thing, rlscan first, each with a colour."""
    names = dict.fromkeys(name for entry in entries for name, _ in _comparable(entry))
    return {name: COLORS[i % len(COLORS)] for i, name in enumerate(names)}


def _comparable(entry: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((name, times) for name, times in entry["times"].items() if name not in entry["not_comparable"])


def over_steps(entries: Entries) -> Figure:
    """Time against T, in a panel for each estimator and layout, at the number of environments with the most windows."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault((entry["estimator"], entry["layout"]), []).append(entry)
    layouts = [layout for layout in LAYOUTS if any(key[1] == layout for key in groups)]
    names = list(dict.fromkeys(key[0] for key in groups))
    figure, panels = _figure(len(names), len(layouts), 5.2 * len(layouts), 2.9 * len(names))
    colors = contenders(entries)
    for panel, (name, layout) in zip(panels, ((n, x) for n in names for x in layouts), strict=True):
        group = groups.get((name, layout), [])
        widths = [entry["B"] for entry in group]
        B = max(widths, key=lambda width: (widths.count(width), width), default=0)
        chosen = sorted((entry for entry in group if entry["B"] == B), key=lambda entry: int(entry["T"]))
        for who, color in colors.items():
            points = [(e["T"], best(dict(_comparable(e)).get(who, {}))) for e in chosen]
            points = [(T, time) for T, time in points if time is not None]
            if points:
                panel.plot(*zip(*points, strict=True), marker="o", markersize=3, color=color, label=who)
        if chosen:
            steps, copies = [e["T"] for e in chosen], [e["copy"]["median"] for e in chosen]
            panel.plot(steps, copies, linestyle=":", color="#555555", label="copy of the same bytes")
            panel.set(xscale="log", yscale="log")
        panel.set(title=f"{name}, {LAYOUTS[layout]}, B = {B}", xlabel="T", ylabel="µs")
        panel.title.set_fontsize(9)
    _legend(figure, panels)
    return figure


def over_bytes(entries: Entries) -> Figure:
    """The copy's time as a share of rlscan's, against the bytes moved."""
    layouts = [layout for layout in LAYOUTS if any(entry["layout"] == layout for entry in entries)]
    figure, panels = _figure(1, len(layouts), 5.2 * len(layouts), 4.2)
    names = list(dict.fromkeys(entry["estimator"] for entry in entries))
    for panel, layout in zip(panels, layouts, strict=True):
        for i, name in enumerate(names):
            points = [(e["bytes"], e["of_copy"]) for e in entries if (e["estimator"], e["layout"]) == (name, layout)]
            if points:
                across, up = zip(*sorted(points), strict=True)
                panel.scatter(across, up, s=18, color=COLORS[i % len(COLORS)], label=name)
        panel.axhline(1, color="#555555", linestyle=":")
        panel.set(xscale="log", ylim=(0, None), title=LAYOUTS[layout])
        panel.set(xlabel="bytes, each read or written once", ylabel="share of the copy's speed")
    _legend(figure, panels)
    return figure


def beside_peers(entries: Entries) -> Figure:
    """What a caller waits for one call, at the shape with the most entries, 4096 × 128 before others."""
    shapes = [(entry["B"], entry["T"]) for entry in entries]
    shape = max(shapes, key=lambda shape: (shapes.count(shape), shape == (4096, 128)))
    chosen = [entry for entry in entries if (entry["B"], entry["T"]) == shape]
    layouts = [layout for layout in LAYOUTS if any(entry["layout"] == layout for entry in chosen)]
    figure, panels = _figure(1, len(layouts), 6.4 * len(layouts), 4.4)
    colors = contenders(chosen)
    for panel, layout in zip(panels, layouts, strict=True):
        group = [entry for entry in chosen if entry["layout"] == layout]
        width = 0.8 / len(colors)
        for i, (who, color) in enumerate(colors.items()):
            bars = [(at, dict(_comparable(e)).get(who, {}).get("full")) for at, e in enumerate(group)]
            known = [(at + i * width, bar["median"]) for at, bar in bars if isinstance(bar, dict)]
            if known:
                panel.bar([at for at, _ in known], [time for _, time in known], width, color=color, label=who)
        panel.set_xticks([at + 0.4 - width / 2 for at in range(len(group))])
        panel.set_xticklabels([_title(entry) for entry in group], rotation=20, ha="right", fontsize=8)
        # From a whole power of ten: a bar's length means nothing on a logarithmic axis, but the quickest is to be seen.
        least = min(e["times"][who]["full"]["median"] for e in group for who in dict(_comparable(e)))
        panel.set(yscale="log", ylim=(10 ** (math.floor(math.log10(least)) - 1), None))
        panel.set(ylabel="µs of one call, waited for", title=f"{LAYOUTS[layout]}, {shape[0]} × {shape[1]}")
    _legend(figure, panels)
    return figure


def _title(entry: dict[str, Any]) -> str:
    return f"{entry['estimator']}\n{', '.join(entry['outputs'])}"


def _legend(figure: Figure, panels: Sequence[Axes]) -> None:
    known = {label: line for panel in panels for line, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    if known:
        columns = min(len(known), max(1, int(figure.get_figwidth() / 2.6)))
        figure.legend(known.values(), known.keys(), loc="outside upper center", ncols=columns, fontsize=8)
