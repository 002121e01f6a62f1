"""A scan as a page of mathematics, for `rlscan explain`: text in Unicode, or LaTeX."""

from __future__ import annotations

from rlscan import latex
from rlscan.ir import Scan, Stage
from rlscan.spec import Input, Param
from rlscan.words import equation_lines, stage_lines, symbol, text

_OPERATORS = {
    "affine": "s ↦ A·s + b",
    "clipped_affine": "s ↦ clip(a·s + b, lo, hi), a ≥ 0",
    "max_plus": "s ↦ max(b, a + s)",
    "min_plus": "s ↦ min(b, a + s)",
    "custom": "the spec's own",
}


def explained(scan: Scan, as_latex: bool = False) -> str:
    """The recurrence, what a step is made of, resets, edges, outputs and the laws proved."""
    return latex.page(scan) if as_latex else _page(scan)


def _page(scan: Scan) -> str:
    title = scan.title or scan.name
    lines = [title, "=" * len(title)]
    lines += [scan.cite] if scan.cite else []
    lines += _section("Inputs", [_input_line(item) for item in scan.inputs])
    lines += _section("Parameters", [_param_line(param) for param in scan.params])
    lines += _section("Definitions", equation_lines(scan, "lets"))
    for stage in scan.stages:
        lines += _section(f"Recurrence, {stage.direction} in time", [*stage_lines(stage), *_step(stage)])
    lines += _section("Beyond the window", equation_lines(scan, "edges"))
    lines += _section("Outputs", equation_lines(scan, "outputs"))
    width = max((len(law.name) for law in scan.laws), default=0)
    lines += _section("Proved", [f"{law.name:<{width}}  {law.statement}  ({law.how})" for law in scan.laws])
    return "\n".join(lines)


def _section(title: str, body: list[str] | tuple[str, ...]) -> list[str]:
    return ["", title, *(f"    {line}".rstrip() for line in body)] if body else []


def _step(stage: Stage) -> list[str]:
    """A step's elements as they are scanned, its selects included."""
    lines = ["", f"a step is {_OPERATORS[stage.operator.name]}, with"]
    values = zip(stage.operator.elements, stage.step, strict=True)
    lines += [f"    {name} = {text(value)}" for name, value in values]
    composed = zip(stage.operator.elements, stage.operator.combine, strict=True)
    lines += ["and the step `second` after the step `first` is"]
    lines += [f"    {name} = {text(value)}" for name, value in composed]
    return lines


def _input_line(item: Input) -> str:
    kind = {"float": "f", "flag": "flag", "int": "int", "num": "num"}[item.kind]
    dims = ", ".join(f"{d}?" if d in item.optional_axes else d for d in item.dims)
    default = "" if item.default is None else f", {_number(item.default)} where not given"
    return f"{symbol(item.name)}: {kind}[{dims}]{default}"


def _param_line(param: Param) -> str:
    default = "" if param.default is None else f" = {_number(param.default)}"
    bounded = param.lower != float("-inf") or param.upper != float("inf")
    return f"{symbol(param.name)}{default}" + (
        f" in [{_number(param.lower)}, {_number(param.upper)}]" if bounded else ""
    )


def _number(value: float | int | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value in (float("inf"), float("-inf")):
        return "∞" if value > 0 else "−∞"
    return f"{value:g}"
