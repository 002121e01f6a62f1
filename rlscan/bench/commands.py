"""`rlscan bench`: run, show, write, draw."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from rlscan.bench import cases, harness, peers, plots, report, tune
from rlscan.bench.harness import Entry, Failure
from rlscan.entry import LAYOUTS
from rlscan.refusals import refusals

app = typer.Typer(invoke_without_command=True, rich_markup_mode="rich")

DTYPES = ("float32", "float64", "bfloat16", "float16")

Estimators = Annotated[
    str,
    typer.Option("--estimators", "-e", metavar="A,B", help="Which: all seven, or specs; gae:advantages is one output."),
]
Shapes = Annotated[
    str, typer.Option("--shapes", "-s", metavar="BxT,…", help="Environments × steps, `few`, or `grid` for all of them.")
]
Layouts = Annotated[str, typer.Option("--layouts", metavar="bt,tb", help="Batch first, time first.")]
Dtypes = Annotated[str, typer.Option("--dtypes", metavar="D,…", help="float32, float64, bfloat16, float16.")]
Peers = Annotated[
    str, typer.Option("--peers", "-p", metavar="P,…", help="all, none, or names (their beginnings will do): see below.")
]
Device = Annotated[
    str, typer.Option("--device", metavar="cuda|cpu", help="A GPU where there is one.", show_default=False)
]
Truncations = Annotated[bool, typer.Option("--truncations", help="Give truncated and final_values too.")]
Actions = Annotated[int, typer.Option("--actions", min=1, help="How many actions Retrace has.")]
Budget = Annotated[
    float, typer.Option("--budget", min=0, metavar="S", help="Start nothing after S seconds; 0: no limit.")
]
Json = Annotated[
    Path | None, typer.Option("--json", "-j", metavar="FILE", dir_okay=False, help="Write the results here.")
]
Plot = Annotated[bool, typer.Option("--plot", help="Draw them too, as PNG files beside FILE.")]
Tune = Annotated[bool, typer.Option("--tune", help="Instead: time every tile of each kernel on this GPU.")]
Commit = Annotated[str, typer.Option("--commit", metavar="HASH", help="What to write down where this is no checkout.")]


@app.callback(epilog=f"Peers, those of them that are installed: {', '.join(peer.name for peer in peers.PEERS)}.")
def bench(
    context: typer.Context,
    estimators: Estimators = "all",
    shapes: Shapes = "few",
    layouts: Layouts = "bt,tb",
    dtypes: Dtypes = "float32",
    peer_names: Peers = "all",
    device: Device = "",
    truncations: Truncations = False,
    actions: Actions = 4,
    budget: Budget = 600,
    json_path: Json = None,
    plot: Plot = False,
    tuned: Tune = False,
    commit: Commit = "",
) -> None:
    """Time the estimators on this machine, beside what else computes them.

    Every result is compared with a float64 oracle first, all environments and all steps. One that is wrong has no times,
    neither on screen nor in the file, and the exit code is 1. On a GPU: full (a caller waits for one call), amortized (200
    calls) and device (a CUDA graph), and the share of the speed of a copy that moves the same bytes. On a CPU: wall-clock time.
    """
    if context.invoked_subcommand is not None:
        return
    with refusals():
        device = _device(device)
        if plot and json_path is None:
            raise ValueError("--plot draws beside the file that --json names: give both")
        if json_path is not None and not json_path.absolute().parent.is_dir():
            raise ValueError(f"there is no folder {json_path.absolute().parent} to write in")
        if plot:
            _needs_matplotlib()
        names = cases.ESTIMATORS if estimators == "all" else _list(estimators)
        default = tune.SHAPES if tuned else cases.SHAPES[device]
        sizes = cases.grid() if shapes == "grid" else default if shapes == "few" else _shapes(shapes)
        kinds, numbers = _among(layouts, LAYOUTS, "layout"), _among(dtypes, DTYPES, "dtype")
        planned = cases.planned(names, sizes, kinds, numbers, truncations=truncations, actions=actions)
        rivals = peers.chosen(peer_names)
        if tuned:
            _tune(planned, device, budget, json_path, commit)
            return
        about = harness.surroundings(device, rivals, commit)
        failures = _run(planned, rivals, device, budget, json_path, about)
        if plot and json_path is not None:
            _draw(json_path, json_path.parent)
    if any(failure.wrong for failure in failures):
        raise typer.Exit(1)


@app.command()
def plot(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS…", help="Files that --json wrote.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FOLDER", file_okay=False, help="Where to; beside each file by default."),
    ] = None,
) -> None:
    """Draw results: time against T, share of the copy's speed against bytes, and calls beside the peers'."""
    with refusals():
        _needs_matplotlib()
        for path in results:
            _draw(path, path.parent if out is None else out)


def _run(
    planned: Sequence[cases.Case],
    rivals: Sequence[peers.Peer],
    device: str,
    budget: float,
    json_path: Path | None,
    about: dict[str, Any],
) -> list[Failure]:
    """The run; a table as each shape is done, and the file anew with each entry."""
    console = Console()
    console.print(
        f"{about['device']}, rlscan {about['rlscan']}, torch {about['torch']}, triton {about['triton']}",
        highlight=False,
    )
    entries: list[Entry] = []
    failures: list[Failure] = []
    shown: list[Entry] = []

    def show() -> None:
        if shown:
            console.print(report.table(shown, device))
            shown.clear()

    def starting(case: cases.Case) -> None:
        # A line that is written once: a spinner's thread would be timed too.
        if sys.stderr.isatty():
            typer.echo(f"{case} …", err=True)

    for found in harness.run(planned, rivals, device, budget=budget, starting=starting):
        if isinstance(found, Failure):
            failures.append(found)
            typer.echo(f"{found.case}: {'WRONG' if found.wrong else 'not run'}: {found.why}", err=True)
        else:
            if shown and (shown[-1].case.B, shown[-1].case.T) != (found.case.B, found.case.T):
                show()
            entries.append(found)
            shown.append(found)
        if json_path is not None:
            harness.write(json_path, harness.document(about, entries, failures))
    show()
    for line in report.remarks(entries):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if json_path is not None:
        console.print(f"Written: {json_path}", highlight=False, soft_wrap=True)
    return failures


def _tune(planned: Sequence[cases.Case], device: str, budget: float, json_path: Path | None, commit: str) -> None:
    if device != "cuda":
        raise ValueError("--tune times Triton's kernels, and there is no GPU that torch can use")
    shapes: dict[str, Any] = {}
    made = {**harness.surroundings(device, commit=commit), "runs": [{"what": tune.WHAT, "shapes": shapes}]}
    for case in planned:
        reason = cases.too_large(case, device)
        if reason:
            typer.echo(f"{case}: not run: {reason}", err=True)
            continue
        found = tune.tiles(case, budget=budget / len(planned))
        shapes[f"{case.title} {case.layout} {case.B}x{case.T}"] = found
        best, own = found["tiles"][0], next(tile for tile in found["tiles"] if tile.get("chosen"))
        typer.echo(
            f"{case}: copy {found['copy']}, chosen {_tile(own)}, best {_tile(best)} "
            f"({found['tried']} of {found['candidates']} tried)"
        )
        if json_path is not None:
            harness.write(json_path, made)


def _tile(tile: dict[str, Any]) -> str:
    return f"{tile['us']} ({tile['lanes']} lanes × {tile['block']} steps, {tile['warps']} warps)"


def _draw(results: Path, folder: Path) -> None:
    for path in plots.draw(results, folder):
        typer.echo(f"Drawn: {path}")


def _needs_matplotlib() -> None:
    if find_spec("matplotlib") is None:
        raise ValueError('drawing needs matplotlib: pip install "rlscan[demo]" (in a checkout: ".[demo]")')


def _device(wanted: str) -> str:
    import torch

    if wanted not in ("", "cuda", "cpu"):
        raise ValueError(f"device must be cuda or cpu, got {wanted!r}")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ValueError("there is no GPU that torch can use: `rlscan doctor` says what there is")
    return wanted or ("cuda" if torch.cuda.is_available() else "cpu")


def _list(text: str) -> list[str]:
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise ValueError("an empty list")
    return found


def _among(text: str, known: Sequence[str], what: str) -> list[str]:
    for name in _list(text):
        if name not in known:
            raise ValueError(f"{what} must be one of {', '.join(known)}, got {name!r}")
    return _list(text)


def _shapes(text: str) -> list[tuple[int, int]]:
    """`4096x128,1x1048576` as pairs (B, T)."""
    found = []
    for part in _list(text):
        B, x, T = part.lower().partition("x")
        if not (x and B.isdigit() and T.isdigit() and int(B) and int(T)):
            raise ValueError(f"a shape is environments × steps, such as 4096x128, got {part!r}")
        found.append((int(B), int(T)))
    return found
