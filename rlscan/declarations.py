"""What a spec declares: names, inputs with their types, params with their ranges, and the inputs that come together.

Each function takes a key and its value and gives the frozen declaration; codes RLS108 to RLS112.
"""

from __future__ import annotations

import keyword
import math
import re

from rlscan.diagnostics import Span, SpecError
from rlscan.expressions import MAX_NAME, NUMBER, number
from rlscan.nodes import Mapping, Node, Scalar, Sequence, as_scalar, near, shown
from rlscan.spec import BATCH, RESERVED, TIME, Input, Kind, Param

KINDS: dict[str, Kind] = {"f": "float", "flag": "flag", "int": "int", "num": "num"}
#: keyword arguments of an estimator's call that are not the spec's
CALL_WORDS = frozenset({"out", "self", "cu_seqlens"})
_ELSEWHERE = {"float": "f", "float32": "f", "real": "f", "bool": "flag", "boolean": "flag", "integer": "int"}

_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_AXIS = re.compile(r"[A-Z][A-Za-z0-9]*")
_TYPE = re.compile(r"(?P<kind>\w+) *\[(?P<dims>[^\[\]]*)\] *(?:= *(?P<default>.*))?")
_PARAM = re.compile(r"(?P<default>[^ ]+)?(?: *\bin *\[ *(?P<lower>[^ ,]+) *, *(?P<upper>[^ ,]+) *\])?")
_NAME_HELP = f"lower-case letters, digits and single underscores, a letter first, at most {MAX_NAME} characters"
_TYPE_HELP = "write f[B, T], flag[B, T], int[B, T] or num[B, T], with a default as in `f[B, T] = 0`"
_PARAM_HELP = "write a default, a range or both: `0.99 in [0, 1]`; a range holds its ends"


def name_of(key: Scalar) -> str:
    text = key.text
    if not _NAME.fullmatch(text) or len(text) > MAX_NAME:
        raise SpecError("RLS110", f"{shown(text)} is not a name", key.span, _NAME_HELP)
    if text in RESERVED or keyword.iskeyword(text):
        whose = "the spec language" if text in RESERVED else "Python"
        help = "the field's spelling is `lam`" if text == "lambda" else "choose another name"
        raise SpecError("RLS110", f"`{text}` means something in {whose}", key.span, help)
    return text


def _argument_name(key: Scalar) -> str:
    """The name of an input or a param: a keyword argument of the estimator's call."""
    if key.text in CALL_WORDS:
        raise SpecError("RLS110", f"`{key.text}` means something in a call", key.span, "choose another name")
    return name_of(key)


def input_of(key: Scalar, value: Node) -> Input:
    name = _argument_name(key)
    scalar = as_scalar(value, f"the type of `{name}`")
    found = _TYPE.fullmatch(scalar.text)
    if not found:
        code_help = _TYPE_HELP if scalar.text else f"{_TYPE_HELP}, after the colon"
        if _PARAM.fullmatch(scalar.text) and NUMBER.match(scalar.text.removeprefix("in [")):
            code_help = f"a number of a call is a param: move this line under `params`, as in `{name}: 0.99 in [0, 1]`"
        raise SpecError(
            "RLS108", f"the type of `{name}` is malformed", scalar.span if scalar.text else key.span, code_help
        )
    word = found["kind"]
    if word not in KINDS:
        meant = _ELSEWHERE.get(word.lower())
        help = f"did you mean `{meant}`?" if meant else near(word, list(KINDS)) or _TYPE_HELP
        raise SpecError("RLS108", f"there is no type {shown(word)}", scalar.at(*found.span("kind")), help)
    dims, optional = _dims(scalar, found)
    default = None
    if found["default"] is not None:
        default = _input_default(KINDS[word], found["default"], scalar.at(*found.span("default")))
    return Input(name, KINDS[word], dims, optional, default, key.span)


def _dims(scalar: Scalar, found: re.Match[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    dims: list[str] = []
    optional: list[str] = []
    begin = found.start("dims")
    for part in found["dims"].split(","):
        word = part.strip()
        at = begin + len(part) - len(part.lstrip())
        span = scalar.at(at, at + max(1, len(word)))
        begin += len(part) + 1
        axis = word.removesuffix("?")
        if not _AXIS.fullmatch(axis) or keyword.iskeyword(axis) or len(axis) > MAX_NAME:
            message = f"{shown(word)} is not an axis" if word else "an axis is missing"
            help = "B (batch) first, then T (time), then axes of your own, each a capital letter first: f[B, T, A]"
            raise SpecError("RLS108", message, span, help)
        if axis in dims:
            raise SpecError("RLS108", f"the axis {axis} stands here twice", span, "name each axis once")
        if axis in (BATCH, TIME) and axis != word:
            raise SpecError("RLS108", f"the axis {axis} cannot be optional", span, f"write `{axis}`")
        if (axis == BATCH) != (not dims) or (axis == TIME and len(dims) != 1):
            raise SpecError(
                "RLS108",
                f"the axis {axis} stands in the wrong place",
                span,
                "B comes first, then T if any, then the others",
            )
        dims.append(axis)
        if axis != word:
            optional.append(axis)
    return tuple(dims), tuple(optional)


def _input_default(kind: Kind, text: str, span: Span) -> float | int | bool:
    text = text.strip()
    if kind == "flag":
        if text not in ("true", "false"):
            raise SpecError("RLS108", f"the default {shown(text)} is not a flag", span, "write `true` or `false`")
        return text == "true"
    value = _literal(text, span)
    if value is None or (kind == "int" and not isinstance(value, int)):
        wanted = "an integer" if kind == "int" else "a number"
        raise SpecError(
            "RLS108", f"the default {shown(text)} is not {wanted}", span, "write a literal, as in `f[B, T] = 0`"
        )
    return value


def _literal(text: str, span: Span) -> int | float | None:
    """A number with an optional sign, or `inf`; None where the text is neither."""
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    if digits == "inf":
        return sign * math.inf
    return sign * number(digits, span) if NUMBER.fullmatch(digits) else None


def param_of(key: Scalar, value: Node) -> Param:
    name = _argument_name(key)
    if not isinstance(value, Scalar):
        help = "write `in [0, 1]`, with a default before it if it has one"
        raise SpecError("RLS109", f"the param `{name}` is not one value", value.span, help)
    found = _PARAM.fullmatch(value.text)
    if value.null or not found or (found["default"] in (None, "in") and found["lower"] is None):
        tensor = _TYPE.fullmatch(value.text)
        help = _PARAM_HELP
        if tensor and tensor["kind"] in KINDS:
            help = "a tensor is an input: move this line under `inputs`; a call may give any param per environment or per step"
        raise SpecError("RLS109", f"the param `{name}` is malformed", key.span if value.null else value.span, help)

    def part(group: str, absent: float) -> float:
        if found[group] is None:
            return absent
        read = _literal(found[group], value.at(*found.span(group)))
        if read is None:
            raise SpecError(
                "RLS109", f"{shown(found[group])} is not a number", value.at(*found.span(group)), _PARAM_HELP
            )
        return float(read)

    lower, upper = part("lower", -math.inf), part("upper", math.inf)
    default = part("default", math.nan) if found["default"] is not None else None
    if lower > upper:
        raise SpecError("RLS109", f"the range of `{name}` is empty", value.span, "write the lower end first")
    if default is not None and not lower <= default <= upper:
        raise SpecError(
            "RLS109",
            f"the default of `{name}` lies outside its range",
            value.at(*found.span("default")),
            f"it must lie in [{found['lower']}, {found['upper']}]",
        )
    return Param(name, default, lower, upper, key.span)


def together_of(entry: tuple[Scalar, Node], inputs: tuple[Input, ...]) -> tuple[tuple[str, ...], ...]:
    key, value = entry
    help = "write `together: [a, b]`, or a list of such lists"
    if not isinstance(value, Sequence) or not value.items:
        span = value.span if isinstance(value, Mapping | Scalar) and not getattr(value, "null", False) else key.span
        raise SpecError("RLS112", "`together` is a list of inputs", span, help)
    if all(isinstance(item, Scalar) for item in value.items):
        groups: tuple[Node, ...] = (value,)
    else:
        groups = value.items
    known = {item.name: item for item in inputs}
    seen: set[str] = set()
    made = []
    for group in groups:
        if not isinstance(group, Sequence) or len(group.items) < 2:
            raise SpecError("RLS112", "a group of `together` has two inputs or more", group.span, help)
        names = []
        for item in group.items:
            if not isinstance(item, Scalar):
                raise SpecError("RLS112", "a group of `together` lists names", item.span, help)
            if item.text not in known:
                hint = near(item.text, list(known)) or "only inputs can come together"
                raise SpecError("RLS112", f"there is no input {shown(item.text)}", item.span, hint)
            if not known[item.text].optional:
                message = f"`{item.text}` is always required, so it cannot come together with others"
                raise SpecError("RLS112", message, item.span, "give it a default in `inputs`, or leave it out here")
            if item.text in seen:
                raise SpecError(
                    "RLS112", f"`{item.text}` stands in `together` twice", item.span, "an input is in one group"
                )
            seen.add(item.text)
            names.append(item.text)
        made.append(tuple(names))
    return tuple(made)


def refuse_optional_here_not_there(inputs: tuple[Input, ...]) -> None:
    """An optional axis is left out of every input that has it, so it must be optional in all."""
    optional = {axis for item in inputs for axis in item.optional_axes}
    for item in inputs:
        for axis in item.dims:
            if axis in optional and axis not in item.optional_axes:
                message = f"the axis {axis} is required in `{item.name}` and optional in another input"
                raise SpecError("RLS108", message, item.span, f"write `{axis}?` in every input that has it, or in none")
