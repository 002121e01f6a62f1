"""What a person sees of an estimator: `help(est)`, `inspect.signature(est)` and the type of its results.

Pure: from a Spec and the Interface of its call to text, the recurrence first.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlscan.binding import EXPECTED, Interface, Slot, number_text, range_text
from rlscan.spec import Expression, Input, ScanBlock, Spec

#: How a named operator makes the new carry from the incoming one, {c}.
STEP: dict[str, str] = {
    "affine": "{a} · {c} + {b}",
    "clipped_affine": "clip({a} · {c} + {b}, {lo}, {hi})",
    "max_plus": "max({b}, {a} + {c})",
    "min_plus": "min({b}, {a} + {c})",
}


@dataclass(frozen=True, slots=True)
class Annotation:
    """A type in a signature, shown as the spec writes it: f[B, T]."""

    text: str

    def __repr__(self) -> str:
        return self.text


def signature(face: Interface) -> inspect.Signature:
    """Keyword-only parameters: the inputs, the params with their defaults, and `out`."""

    def parameter(name: str, text: str, default: object) -> inspect.Parameter:
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotation(text))

    empty = inspect.Parameter.empty
    parameters = [parameter(slot.name, slot.text, empty if slot.required else None) for slot in face.inputs]
    parameters += [
        parameter(param.name, "float", empty if param.default is None else param.default) for param in face.params
    ]
    results = result_type(face.name, tuple(slot.name for slot in face.outputs))
    parameters.append(parameter("out", f"{results.__name__} | dict | tuple", None))
    return inspect.Signature(parameters, return_annotation=Annotation(results.__name__))


def documentation(spec: Spec, face: Interface) -> str:
    """The maths, then the arguments with dims, dtypes and ranges, the results, the errors and the source."""
    together = {name: group for group in spec.together for name in group}
    batch, time = ("B", "T") if face.layout == "bt" else ("T", "B")
    lines = [f"{spec.title or spec.name}.".replace("..", "."), ""]
    lines += [f"    {line}" for line in mathematics(spec)]
    lines += ["", f'Inputs, in layout "{face.layout}" ([{batch}, {time}]), any strides:']
    lines += [f"    {_input(slot, item, together)}" for slot, item in zip(face.inputs, spec.inputs, strict=True)]
    if spec.params:
        lines += ["", f"Params, each one number, or a float tensor [], [B] or [{batch}, {time}]:"]
    for param in spec.params:
        default = "required" if param.default is None else f"= {number_text(param.default)}"
        lines.append(f"    {param.name} {default} in {range_text(param)}")
    results = ", ".join(slot.name + slot.text.removeprefix("f") for slot in face.outputs)
    name = result_type(face.name, tuple(slot.name for slot in face.outputs)).__name__
    exact = not spec.params and any(item.kind == "num" for item in spec.inputs)
    lines += [
        "",
        f"Returns {name}({results}): torch for torch, NumPy for NumPy, in the promoted dtype of the float",
        "inputs, accumulated in float32 or, where an input is, in float64. `out=` takes buffers to fill instead.",
        *(["Integers alone are summed exactly, as int64."] if exact else []),
        "",
        "Raises TypeError (names, containers, dtypes) or ValueError (shapes, devices, ranges, `out` that overlaps",
        "an input, an input that requires grad: no gradient flows through an estimator) before anything is launched.",
    ]
    if spec.cite:
        lines += ["", f"Source: {spec.cite}"]
    return "\n".join(lines)


def mathematics(spec: Spec) -> Iterator[str]:
    """The lets, the recurrence of each scan and the outputs, as equations over the spec's own names."""
    for edge in spec.edges:
        for where, value in (("past the edge", edge.both), ("before the first step", edge.before)):
            if value:
                yield f"{edge.name} = {value.text} {where}"
        if edge.after:
            yield f"{edge.name} = {edge.after.text} past the last step"
    for let in spec.lets:
        yield f"{let.name} = {let.value.text}"
    for scan in spec.scans:
        yield from _recurrence(scan)
    for output in spec.outputs:
        yield f"{output.name}[t] = {output.value.text}"


def _recurrence(scan: ScanBlock) -> Iterator[str]:
    incoming, edge = ("[t+1]", "[T]") if scan.direction == "backward" else ("[t-1]", "[-1]")
    coefficients = dict(scan.operator.coefficients)
    names = " and ".join(carry.name + incoming for carry in scan.carries)
    for carry in scan.carries:
        if carry.update:
            step = carry.update.text
        elif scan.operator.apply:
            step = scan.operator.apply.text
        else:
            terms = {key: _operand(value) for key, value in coefficients.items()}
            if scan.operator.name == "affine" or scan.operator.name == "clipped_affine":
                terms |= {key: coefficients[key].text for key in terms if key != "a"}
            step = STEP[scan.operator.name].format(c=carry.name + incoming, **terms)
        yield f"{carry.name}[t] = {step}"
    if any(carry.update for carry in scan.carries) or scan.operator.apply:
        bare = " and ".join(carry.name for carry in scan.carries)
        yield f"    where {bare} on the right {'is' if len(scan.carries) == 1 else 'are'} {names}"
    if scan.operator.apply:
        yield from (f"    and {key} = {value.text}" for key, value in coefficients.items())
    if scan.reset:
        yield f"    with {names} dropped where {scan.reset.text}"
    if scan.keep:
        yield f"    with {names} kept as it is where {scan.keep.text}"
    for carry in scan.carries:
        if carry.start:
            yield f"    {carry.name}{edge} = {carry.start.text}"


def _operand(expression: Expression) -> str:
    """The text, in brackets where a product or a sum around it would bind tighter."""
    simple = isinstance(expression.tree, (ast.Name, ast.Constant, ast.Subscript, ast.Call))
    product = isinstance(expression.tree, ast.BinOp) and isinstance(expression.tree.op, ast.Mult)
    return expression.text if simple or product else f"({expression.text})"


def _input(slot: Slot, item: Input, together: dict[str, tuple[str, ...]]) -> str:
    text = f"{slot.name}: {slot.text}"
    if item.default is not None:
        default = str(item.default).lower() if isinstance(item.default, bool) else number_text(item.default)
        text += f" = {default}"
    text += f"  ({EXPECTED[slot.kind]})"
    others = [name for name in together.get(slot.name, ()) if name != slot.name]
    return text + (f", together with {', '.join(others)}" if others else "")


@functools.cache
def result_type(spec_name: str, fields: tuple[str, ...]) -> type[tuple[Any, ...]]:
    """The NamedTuple of a spec's results: `td_lambda` → TdLambda. It can be pickled although no module holds it."""
    make: Callable[..., Any] = NamedTuple
    name = "".join(part.capitalize() for part in spec_name.split("_"))
    cls: type[tuple[Any, ...]] = make(name, [(field, Any) for field in fields])
    for key, value in {
        "__module__": __name__,
        "__doc__": f"The results of `{spec_name}`: {', '.join(fields)}.",
        "__reduce__": lambda self: (_result, (spec_name, fields, tuple(self))),
    }.items():
        setattr(cls, key, value)
    return cls


def _result(spec_name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
    return result_type(spec_name, fields)(*values)
