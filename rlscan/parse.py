"""parse: text → Spec. What the file says, frozen, with a place on everything; nothing is resolved or computed.

Assumes nothing of the text. Guarantees: only the keys of the language, each once; every name well formed and defined
once; every type, range and expression well formed. Whether names exist, kinds and axes fit and laws hold is for `lift`
and `laws` to say. Pure, and bounded in time and memory for any text. Raises SpecError with codes RLS1xx and RLS2xx.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TypeVar, get_args

from rlscan.declarations import input_of, name_of, param_of, refuse_optional_here_not_there, together_of
from rlscan.diagnostics import SourceText, Span, SpecError, located
from rlscan.expressions import expression
from rlscan.nodes import (
    Keys,
    Mapping,
    Node,
    Scalar,
    Sequence,
    as_mapping,
    as_scalar,
    closed,
    entries,
    listed,
    near,
    read,
    require,
    shown,
)
from rlscan.spec import Carry, Direction, Edge, Expression, Let, Operator, OperatorName, Output, ScanBlock, Spec

Word = TypeVar("Word", bound=str)

VERSION = "1"
MAX_TITLE = 200
MAX_CARRIES = 4
MAX_ELEMENTS = 8

TOP_KEYS = (
    "rlscan", "name", "title", "cite", "inputs", "together", "params", "edge", "let", "scan", "scans", "outputs",
    "crosses",
)  # fmt: skip
SCAN_KEYS = (
    "direction", "carry", "carries", "a", "b", "lo", "hi", "update", "reset", "keep", "start", "operator",
)  # fmt: skip
OPERATOR_KEYS = ("elements", "combine", "identity", "apply")
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
#: the operators that have a name in the language, and the keys that each needs
COEFFICIENTS: dict[OperatorName, tuple[str, ...]] = {
    "affine": ("a", "b"),
    "clipped_affine": ("a", "b", "lo", "hi"),
    "max_plus": ("a", "b"),
    "min_plus": ("a", "b"),
}


def parse(text: str, name: str = "<spec>") -> Spec:
    """The spec that a YAML text says; `name` is what errors call the file."""
    source = SourceText(name, text)
    with located(source):
        return _spec(read(text), source)


def _spec(root: Node, source: SourceText) -> Spec:
    if not isinstance(root, Mapping):
        raise SpecError("RLS105", "a spec is a mapping", root.span, "a spec begins with `rlscan: 1` and `name: …`")
    begin = root.items[0][0].span if root.items else root.span
    # The version first: keys that this one does not know may be another's.
    for key, value in root.items:
        if key.text == "rlscan":
            _check_version(key, value)
    keys = closed(root, "a spec", begin, TOP_KEYS, ())
    require(keys, "a spec", begin, ("rlscan", "name", "inputs", "outputs"))
    if "scan" in keys and "scans" in keys:
        later = max((keys[key][0] for key in ("scan", "scans")), key=lambda key: (key.span.line, key.span.column))
        raise SpecError(
            "RLS102", "`scan` and `scans` stand together", later.span, "keep one: `scans` is a list of scans"
        )
    if "scan" not in keys and "scans" not in keys:
        raise SpecError(
            "RLS104", "the key `scan` is missing", begin, "add `scan:` with a direction, a carry and its recurrence"
        )
    _, title = keys["name"]
    crosses = _crosses(keys["crosses"]) if "crosses" in keys else ()
    inputs = tuple(input_of(key, value) for key, value in entries(keys, "inputs"))
    spec = Spec(
        name=name_of(as_scalar(title, "the spec's name")),
        title=_line(keys, "title"),
        cite=_line(keys, "cite"),
        inputs=inputs,
        together=together_of(keys["together"], inputs) if "together" in keys else (),
        params=tuple(param_of(key, value) for key, value in entries(keys, "params")),
        edges=tuple(_edge(key, value) for key, value in entries(keys, "edge")),
        lets=tuple(Let(name_of(key), _expression(value, key), key.span) for key, value in entries(keys, "let")),
        scans=tuple(_scan(block, span) for block, span in _scan_blocks(keys)),
        outputs=tuple(
            Output(name_of(key), _expression(value, key), key.span) for key, value in entries(keys, "outputs")
        ),
        crosses=tuple(name for name, _ in crosses),
        source=source,
        digest=hashlib.sha256(source.text.encode("utf-8")).hexdigest(),
    )
    refuse_optional_here_not_there(inputs)
    _refuse_defined_twice(spec)
    _refuse_crossing_unknown(spec, crosses)
    return spec


# -- mappings and scalars -------------------------------------------------------------------------------


def _expression(value: Node, key: Scalar, *, pairs: bool = False) -> Expression:
    scalar = as_scalar(value, f"the value of {shown(key.text)}")
    if scalar.null:
        raise SpecError("RLS105", f"{shown(key.text)} has no value", key.span, "write an expression after the colon")
    return expression(scalar, pairs=pairs)


def _line(keys: Keys, word: str) -> str:
    """The title and the source cited: free text, which generated modules and help show."""
    if word not in keys:
        return ""
    key, value = keys[word]
    scalar = as_scalar(value, f"`{word}`")
    text = scalar.text
    if scalar.null or not text:
        raise SpecError("RLS105", f"`{word}` is empty", key.span, "write a line of text, or remove it")
    if len(text) > MAX_TITLE:
        raise SpecError("RLS106", f"`{word}` may have at most {MAX_TITLE} characters", scalar.span, "shorten it")
    if not text.isprintable() or "\\" in text or '"""' in text:
        raise SpecError(
            "RLS105", f"`{word}` is not plain text", scalar.span, "leave out control characters, `\\` and triple quotes"
        )
    return text


def _check_version(key: Scalar, value: Node) -> None:
    if not (isinstance(value, Scalar) and value.plain and value.text == VERSION):
        said = shown(value.text) if isinstance(value, Scalar) and value.text else "this"
        raise SpecError(
            "RLS107",
            f"{said} is not a version of the spec language that this rlscan reads",
            key.span if isinstance(value, Scalar) and value.null else value.span,
            f"write `rlscan: {VERSION}`",
        )


# -- edges, scans, crossings ----------------------------------------------------------------------------


def _edge(key: Scalar, value: Node) -> Edge:
    name = name_of(key)
    if isinstance(value, Mapping):
        sides = closed(as_mapping(value, f"the edge of `{name}`", key), "an edge", key.span, ("before", "after"), ())
        read = {word: _expression(given, at) for word, (at, given) in sides.items()}
        return Edge(name, None, read.get("before"), read.get("after"), key.span)
    return Edge(name, _expression(value, key), None, None, key.span)


def _scan_blocks(keys: Keys) -> Iterator[tuple[Mapping, Span]]:
    if "scan" in keys:
        key, value = keys["scan"]
        if isinstance(value, Sequence):
            raise SpecError("RLS105", "`scan` is one scan, not a list", key.span, "a list of scans is `scans:`")
        yield as_mapping(value, "`scan`", key), key.span
        return
    key, value = keys["scans"]
    if not isinstance(value, Sequence) or not value.items:
        raise SpecError("RLS105", "`scans` is a list of scans", key.span, "a single one is `scan:`")
    for item in value.items:
        block = as_mapping(item, "an entry of `scans`", key)
        yield block, block.items[0][0].span


def _scan(block: Mapping, span: Span) -> ScanBlock:
    keys = closed(block, "a scan", span, SCAN_KEYS, ("direction",))
    direction = _one_of(keys["direction"], "direction", DIRECTIONS)
    if ("carry" in keys) == ("carries" in keys):
        if "carry" in keys:
            raise SpecError(
                "RLS102", "`carry` and `carries` stand together", keys["carries"][0].span, "keep one of them"
            )
        raise SpecError("RLS104", "the key `carry` is missing", span, "name the state, as in `carry: adv`")
    operator, operator_span = _operator_name(keys, span)
    allowed, needed = _scan_form(keys, operator)
    for word, (key, _) in keys.items():
        if word not in allowed:
            raise SpecError(
                "RLS102", f"`{word}` cannot stand in this scan", key.span, f"beside {needed[1]} it has no meaning"
            )
    for word in needed[0]:
        if word not in keys:
            help = f"{needed[1]} needs {listed(needed[0])}"
            if word == "start":
                help = "say what the carry is beyond the edge, as in `start: 0`; there is no silent zero"
            raise SpecError("RLS104", f"the key `{word}` is missing", span, help)
    given = {
        word: _expression(value, key)
        for word, (key, value) in keys.items()
        if word in ("a", "b", "lo", "hi", "update", "reset", "keep", "start")
    }
    if "carries" in keys:
        carries = _carries(*keys["carries"])
    else:
        carry = as_scalar(keys["carry"][1], "`carry`")
        if carry.null:
            raise SpecError(
                "RLS105", "`carry` has no value", keys["carry"][0].span, "name the state, as in `carry: adv`"
            )
        carries = (Carry(name_of(carry), given.get("update"), given["start"], carry.span),)
    if operator == "custom":
        made = _custom(*keys["operator"], carries[0].name)
    else:
        coefficients = tuple((word, given[word]) for word in COEFFICIENTS[operator] if word in given)
        made = Operator(operator, coefficients, (), (), None, operator_span)
    return ScanBlock(direction, carries, made, given.get("reset"), given.get("keep"), span)


def _operator_name(keys: Keys, span: Span) -> tuple[OperatorName, Span]:
    if "operator" not in keys:
        return "affine", span
    key, value = keys["operator"]
    if isinstance(value, Mapping):
        return "custom", key.span
    return _one_of((key, value), "operator", tuple(COEFFICIENTS)), value.span


_MEANING = {
    "clipped_affine": "s = clip(a * s + b, lo, hi)",
    "max_plus": "s = max(b, a + s)",
    "min_plus": "s = min(b, a + s)",
}


def _scan_form(keys: Keys, operator: OperatorName) -> tuple[frozenset[str], tuple[tuple[str, ...], str]]:
    """The keys that a scan of this form may have, those that it needs, and what the form is called in an error."""
    common = frozenset({"direction", "reset", "keep", "operator"})
    if "carries" in keys:
        if operator != "affine":
            raise SpecError(
                "RLS105", "several carries have no such operator", keys["operator"][0].span, "leave out `operator`"
            )
        return common | {"carries"}, ((), "`carries`")
    common |= {"carry", "start"}
    if operator == "custom":
        return common, (("start",), "an operator of the spec's own")
    if "update" in keys and operator == "affine":
        return common | {"update"}, (("start",), "`update`")
    if "update" in keys:
        raise SpecError(
            "RLS102",
            f"`update` and `operator: {operator}` stand together",
            keys["update"][0].span,
            f"an update is affine in the carry; {operator} takes {listed(COEFFICIENTS[operator])}: {_MEANING[operator]}",
        )
    wanted = COEFFICIENTS[operator]
    called = f"`operator: {operator}`" if operator != "affine" else "a scan without `update`"
    return common | {*wanted}, ((*wanted, "start"), called)


def _carries(key: Scalar, value: Node) -> tuple[Carry, ...]:
    items = as_mapping(value, "`carries`", key).items
    if len(items) < 2:
        raise SpecError(
            "RLS105",
            "`carries` has one carry",
            key.span,
            "a single one is `carry:`, with `update` and `start` beside it",
        )
    if len(items) > MAX_CARRIES:
        raise SpecError(
            "RLS106",
            f"a scan may have at most {MAX_CARRIES} carries",
            items[MAX_CARRIES][0].span,
            "split it into several `scans`",
        )
    made = []
    for at, entry in items:
        name = name_of(at)
        parts = closed(
            as_mapping(entry, f"the carry `{name}`", at), "a carry", at.span, ("update", "start"), ("update", "start")
        )
        update, start = (_expression(parts[word][1], parts[word][0]) for word in ("update", "start"))
        made.append(Carry(name, update, start, at.span))
    return tuple(made)


def _custom(key: Scalar, value: Node, carry: str) -> Operator:
    keys = closed(as_mapping(value, "`operator`", key), "an operator", key.span, OPERATOR_KEYS, OPERATOR_KEYS)
    parts: dict[str, tuple[tuple[str, Expression], ...]] = {}
    for word in ("elements", "combine", "identity"):
        at, given = keys[word]
        items = as_mapping(given, f"`{word}`", at).items
        parts[word] = tuple((name_of(name), _expression(text, name, pairs=word == "combine")) for name, text in items)
        if word == "elements":
            if len(items) > MAX_ELEMENTS:
                raise SpecError(
                    "RLS106",
                    f"an operator may have at most {MAX_ELEMENTS} elements",
                    items[MAX_ELEMENTS][0].span,
                    "use fewer",
                )
            for name, _ in items:
                if name.text == carry:
                    help = "`apply` reads both by their bare names; rename one"
                    raise SpecError("RLS111", f"`{carry}` is the carry and an element", name.span, help)
        elements = [name for name, _ in parts["elements"]]
        for name, _ in items:
            if name.text not in elements:
                help = near(name.text, elements) or f"the elements are {', '.join(elements)}"
                raise SpecError("RLS102", f"the operator has no element `{name.text}`", name.span, help)
        for element in elements:
            if element not in dict(parts[word]):
                raise SpecError(
                    "RLS104", f"`{word}` lacks the element `{element}`", at.span, f"add `{element}: …` to it"
                )
    apply_key, apply = keys["apply"]
    return Operator(
        "custom", parts["elements"], parts["combine"], parts["identity"], _expression(apply, apply_key), key.span
    )


def _crosses(entry: tuple[Scalar, Node]) -> tuple[tuple[str, Span], ...]:
    key, value = entry
    help = "write `crosses: [name]`"
    if not isinstance(value, Sequence) or not value.items:
        raise SpecError("RLS105", "`crosses` is a list of names", key.span, help)
    names: dict[str, Span] = {}
    for item in value.items:
        name = as_scalar(item, "an entry of `crosses`")
        if name.text in names:
            raise SpecError("RLS103", f"{shown(name.text)} is listed twice", name.span, "keep one of them")
        names[name_of(name)] = name.span
    return tuple(names.items())


def _one_of(entry: tuple[Scalar, Node], what: str, words: tuple[Word, ...]) -> Word:
    key, value = entry
    scalar = as_scalar(value, f"`{what}`")
    for word in words:
        if word == scalar.text:
            return word
    meant = "backward" if scalar.text.startswith("reverse") and "backward" in words else ""
    help = f"did you mean `{meant}`?" if meant else near(scalar.text, words) or f"write {' or '.join(words)}"
    raise SpecError(
        "RLS105", f"`{what}` cannot be {shown(scalar.text)}", key.span if scalar.null else scalar.span, help
    )


# -- the spec as a whole --------------------------------------------------------------------------------


def _refuse_defined_twice(spec: Spec) -> None:
    definitions = [
        *(("an input", item.name, item.span) for item in spec.inputs),
        *(("a param", item.name, item.span) for item in spec.params),
        *(("a let", item.name, item.span) for item in spec.lets),
        *(("a carry", item.name, item.span) for block in spec.scans for item in block.carries),
        *(("an output", item.name, item.span) for item in spec.outputs),
    ]
    first: dict[str, tuple[str, Span]] = {}
    for what, name, span in sorted(definitions, key=lambda item: (item[2].line, item[2].column)):
        if name in first:
            before, place = first[name]
            help = f"it is {before} at line {place.line}, column {place.column}; give one of them another name"
            raise SpecError("RLS111", f"`{name}` is defined twice", span, help)
        first[name] = what, span


def _refuse_crossing_unknown(spec: Spec, crosses: tuple[tuple[str, Span], ...]) -> None:
    carries = [carry for block in spec.scans for carry in block.carries]
    known = [item.name for group in (spec.inputs, spec.lets, carries, spec.outputs) for item in group]
    for name, span in crosses:
        if name not in known:
            raise SpecError(
                "RLS301", f"`{name}` is not defined", span, near(name, known) or "list inputs, lets, carries or outputs"
            )
