"""The command line. Each command is one call of the compiler; what it refuses is printed as it is, with exit code 1."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

import rlscan
from rlscan import compiler, start, store, trial
from rlscan.bench.commands import app as bench
from rlscan.demo import run as run_demo
from rlscan.parse import parse
from rlscan.refusals import refusals

app = typer.Typer(
    name="rlscan",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Compile small YAML specs of credit-assignment recurrences (GAE, V-trace, Retrace, TD(λ) and your own) into "
        "fused kernels that you can read.\n\nA SPEC is a path to a YAML file, or the name of one that rlscan ships: "
        "try [bold]rlscan explain gae[/bold]."
    ),
)
app.add_typer(bench, name="bench")

_SPEC = typer.Argument(
    metavar="SPEC", help="A YAML file, or the name of a spec that rlscan ships, such as gae.", show_default=False
)
SpecArgument = Annotated[str, _SPEC]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rlscan {rlscan.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="PNG", dir_okay=False, help="Where to draw the episode.")
    ] = Path("rlscan-demo.png"),
    seed: Annotated[int, typer.Option(min=0, help="Seeds the environments and the controller.")] = 0,
) -> None:
    """Record CartPole, compute and check its advantages, time them, and draw an episode.

    Real rollouts under a time limit, a small value function fitted on them, GAE on the best backend that this machine
    has, checked against a float64 oracle and timed against the loop that people write by hand.
    """
    missing = [name for name in ("gymnasium", "matplotlib") if find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        typer.echo(f'rlscan demo needs {names}: pip install "rlscan[demo]" (in a checkout: ".[demo]")', err=True)
        raise typer.Exit(1)
    if not out.absolute().parent.is_dir():
        typer.echo(f"there is no folder {out.absolute().parent} to draw in", err=True)
        raise typer.Exit(1)
    if not run_demo(out, seed).agrees:
        raise typer.Exit(1)


@app.command()
def check(spec: SpecArgument) -> None:
    """Prove the laws of a spec and list them.

    Associativity, identity and reset of the operator that is scanned, and that no episode reads another's data. A spec
    that is not well is refused with the place in the file, and what to write instead.
    """
    with refusals():
        report = str(compiler.check(spec))
    typer.echo(report)


@app.command()
def explain(
    spec: SpecArgument,
    latex: Annotated[bool, typer.Option("--latex", help="As LaTeX, for a paper.")] = False,
) -> None:
    """Print a spec as mathematics: recurrence, coefficients, edges, outputs, laws."""
    with refusals():
        page = compiler.explain(spec, latex=latex)
    typer.echo(page)


@app.command()
def show(
    spec: SpecArgument,
    backend: Annotated[
        str, typer.Option("--backend", "-b", metavar="triton|cpu|numpy", help="Whose kernel.")
    ] = "triton",
    schedule: Annotated[
        str | None,
        typer.Option("--schedule", "-s", metavar="NAME", help="Which of its kernels; the one for [B, T] by default."),
    ] = None,
) -> None:
    """Print the kernel that a spec is compiled into: a Python module that works by itself, without rlscan."""
    with refusals():
        text = compiler.show(spec, backend, schedule)
    if sys.stdout.isatty():
        # Highlighted, but neither cropped nor wrapped: it is to be copied.
        Console().print(Syntax("", "python", background_color="default").highlight(text), soft_wrap=True, end="")
    else:
        typer.echo(text, nl=False)


@app.command()
def new(
    path: Annotated[Path, typer.Argument(metavar="MY.YAML", help="The file to write; its name names the spec.")],
    origin: Annotated[
        str | None,
        typer.Option("--from", metavar="SPEC", help="Start from this spec: one that rlscan ships, or a file."),
    ] = None,
) -> None:
    """Write a commented start of a spec of your own, which compiles as it is; nothing is overwritten."""
    with refusals():
        name = start.write(path, origin)
    typer.echo(f"{path}: the spec `{name}`. Next: rlscan check {path}, rlscan explain {path}, rlscan test {path}")


@app.command()
def test(spec: SpecArgument) -> None:
    """Try a spec's compiled kernels: against the float64 oracle, in both layouts, and what must hold of any spec.

    Window sizes, all and no flags set, dtypes, params of every shape, strides, and episodes that stay apart with NaN and
    infinity on the other side. On the CPU, and with Triton: on a GPU, or in its interpreter where there is none. Prints
    what was tried and, where something fails, the smallest case that fails; exits with 1 then.
    """
    failed = None
    with refusals():
        parsed = parse(*store.find_spec(spec))
        typer.echo(f"{'property':<12} {'on':<20} {'cases':>5}  {'error':>6}  of what is allowed")
        for row in trial.run(spec):
            error = "" if row.worst is None or row.name in trial.EXACT else f"{row.worst:6.1%}"
            verdict = "FAILS" if row.fault else row.note or "ok"
            typer.echo(f"{row.name:<12} {row.target:<20} {row.cases:>5}  {error:>6}  {verdict}")
            failed = failed or (row if row.fault else None)
    if failed:
        typer.echo(f"\n{trial.example(parsed, failed)}", err=True)
        raise typer.Exit(1)


@app.command()
def build(
    specs: Annotated[
        str | None,
        typer.Argument(
            metavar="[SPECS]", help="A spec, or a folder of them; rlscan's own by default.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", file_okay=False, help="Where the modules of SPECS go.")
    ] = Path("generated"),
    check: Annotated[
        bool,
        typer.Option("--check", help="Write nothing; list the files that differ, and exit with 1 if any do."),
    ] = False,
) -> None:
    """Write the modules that SPECS compile into, for every backend, into a folder that can be kept and reviewed.

    With --check it is a test for a CI: that the folder is what the specs give. Without SPECS, generated/ is made anew from
    rlscan's own specs/ and templates/.
    """
    with refusals():
        differing = compiler.build(check=check, specs=specs, out=out)
    folder = "generated" if specs is None else out
    for file in differing:
        typer.echo(f"{'stale' if check else 'written'}: {folder}/{file}")
    if check and differing:
        again = "rlscan build" if specs is None else f"rlscan build {specs} --out {out}"
        typer.echo(f"run `{again}` and review the difference", err=True)
        raise typer.Exit(1)
    if not differing:
        typer.echo(f"{folder}/ is what {'specs/ and templates/ give' if specs is None else f'{specs} gives'}")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `doctor`. state: "ok", "note" (works, with less) or "broken"."""

    what: str
    state: str
    text: str


@app.command()
def doctor() -> None:
    """Say what this machine has for rlscan, and what is missing.

    Exits with 1 if something that rlscan cannot do without is missing or broken.
    """
    colors = {"ok": "green", "note": "yellow", "broken": "red"}
    table = Table(title=f"rlscan {rlscan.__version__}", title_justify="left")
    table.add_column("what")
    table.add_column("state")
    table.add_column("found", overflow="fold")
    findings = [finding for examine in _EXAMINATIONS for finding in _examined(examine)]
    for finding in findings:
        state = f"[{colors[finding.state]}]{finding.state}[/]"
        table.add_row(finding.what, state, escape(finding.text))
    Console().print(table)
    if any(finding.state == "broken" for finding in findings):
        raise typer.Exit(1)


def _examined(examine: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """An examination's findings; a failure of any kind is one too."""
    findings: list[Finding] = []
    try:
        findings.extend(examine())
    except Exception as error:  # a broken installation fails in its own ways, and a doctor must tell of them
        name = examine.__name__.strip("_").replace("_", " ")
        findings.append(Finding(name, "broken", f"{type(error).__name__}: {error}"))
    return findings


def _python() -> Iterator[Finding]:
    yield Finding("Python", "ok", f"{platform.python_version()} on {platform.platform(terse=True)}")


def _libraries() -> Iterator[Finding]:
    for name in ("torch", "sympy", "numpy"):
        found = _library(name)
        if isinstance(found, Exception):
            yield Finding(name, "broken", f"cannot be imported: {found}")
        else:
            yield Finding(name, "ok", found.__version__)
    numba = _library("numba")
    if isinstance(numba, Exception):
        yield Finding("numba", "note", f"cannot be imported, so NumPy loops take over on CPUs: {numba}")
    else:
        yield Finding("numba", "ok", f"{numba.__version__}: compiled loops on CPUs")
    triton = _library("triton")
    if isinstance(triton, Exception):
        yield Finding("triton", "note", f"cannot be imported, so nothing runs on GPUs: {triton}")
    else:
        yield Finding("triton", "ok", triton.__version__)


def _library(name: str) -> Any:
    """The module, or what went wrong with it."""
    try:
        return import_module(name)
    except Exception as error:
        return error


def _devices() -> Iterator[Finding]:
    import torch

    yield Finding("CPU", "ok", f"{torch.get_num_threads()} threads")
    if not torch.cuda.is_available():
        built = f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch is a CPU build"
        yield Finding("GPU", "note", f"none that torch can use ({built}): tensors on the CPU take the cpu backend")
        return
    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        kind = f"compute capability {about.major}.{about.minor}, {about.total_memory / 2**30:.0f} GiB"
        yield Finding(f"GPU {index}", "ok", f"{about.name}, {kind}")


def _cache() -> Iterator[Finding]:
    folder, writable = store.cache_state()
    if writable:
        yield Finding("cache", "ok", f"{folder}")
    else:
        where = f"{folder} cannot be written" if folder else "there is no home folder"
        text = f"{where}: each process compiles a spec of your own anew (RLSCAN_CACHE_DIR names another folder)"
        yield Finding("cache", "note", text)


def _generated() -> Iterator[Finding]:
    differing = compiler.build(check=True)
    if differing:
        yield Finding("generated", "broken", f"{len(differing)} kernels are not what the specs give: `rlscan build`")
    else:
        yield Finding("generated", "ok", f"the kernels of {len(store.builtins())} specs are fresh")


_EXAMINATIONS = (_python, _libraries, _devices, _cache, _generated)


def main() -> None:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that cannot show γ shows a question mark instead of a traceback.
            stream.reconfigure(errors="replace")
    app()
