"""A spec file's YAML as a tree of scalars, mappings and lists, each with its place.

It reads PyYAML's *events* and builds no value from them: no tag is resolved, no alias followed, so a file can neither
run code nor unfold into more than its own size, and `1e-1`, `off` and `010` stay the text that their author wrote.
PyYAML's Python parser is used even where its C one is there: their messages and marks differ, and an error must not
depend on how a wheel was built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from rlscan.diagnostics import Span, SpecError, did_you_mean

MAX_BYTES = 64 * 1024
MAX_DEPTH = 8
MAX_EVENTS = 10_000
#: how a plain scalar says "nothing" in YAML
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value or key: its text, on one line, and for each of its characters the line and column in the file.

    places is empty where the text is not in the file letter by letter (escapes in quotes); `span` then serves for all.
    """

    text: str
    plain: bool
    span: Span
    places: tuple[tuple[int, int], ...]

    @property
    def null(self) -> bool:
        return self.plain and self.text in _NULLS

    def at(self, begin: int, end: int) -> Span:
        """The place of text[begin:end], as far as its first line goes; one column past the text where it begins at its end."""
        if not self.places:
            return self.span
        if begin >= len(self.places):
            line, column = self.places[-1]
            return Span(line, column + 1)
        line, column = self.places[begin]
        last = max(at for on, at in self.places[begin : max(begin + 1, end)] if on == line)
        return Span(line, column, last - column + 1)


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys and values in the order written, no key twice."""

    items: tuple[tuple[Scalar, Node], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple[Node, ...]
    span: Span


Node = Scalar | Mapping | Sequence
Keys = dict[str, tuple[Scalar, Node]]


def shown(text: str) -> str:
    """A piece of the file for a message: in backticks, of bounded length."""
    return f"`{text if len(text) <= 40 else text[:39] + '…'}`"


def near(word: str, known: tuple[str, ...] | list[str]) -> str | None:
    """did_you_mean for words of a bounded length: the comparison is quadratic in it."""
    return did_you_mean(word, known) if len(word) <= 60 else None


def read(text: str) -> Node:
    """The one document of a spec file; RLS101, RLS103 or RLS106 where it is none, repeats a key or is too large."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise SpecError(
            "RLS106", f"a spec may have at most {MAX_BYTES} bytes", Span(1, 1), "split it: one estimator, one file"
        )
    reached = Span(1, 1)
    events: list[yaml.Event] = []
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            reached = _start(event)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise SpecError(
                    "RLS106", f"nested more than {MAX_DEPTH} deep", reached, "no part of a spec goes that deep"
                )
            if len(events) >= MAX_EVENTS:
                raise SpecError(
                    "RLS106", "more values than any spec needs", reached, "split it: one estimator, one file"
                )
            _refuse_machinery(event, text, first_document=len(events) < 2)
            events.append(event)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(error, reached) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position].splitlines(keepends=True) or [""]
        ended = before[-1].endswith(("\n", "\r"))
        place = Span(len(before) + 1, 1) if ended else Span(len(before), len(before[-1]) + 1)
        raise SpecError(
            "RLS101", f"the character U+{ord(text[error.position]):04X} cannot stand in YAML", place, "remove it"
        ) from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError("RLS101", "this is not YAML", reached, "look at this line and the next") from None
    body: list[yaml.Event] = [e for e in events if isinstance(e, yaml.NodeEvent | yaml.CollectionEndEvent)]
    if not body:
        raise SpecError("RLS101", "the file is empty", Span(1, 1), "a spec begins with `rlscan: 1` and `name: …`")
    return _tree(body, text)


# -- what a pass asks of a node -------------------------------------------------------------------------


#: What other places call a key.
ELSEWHERE = {
    "init": "start", "initial": "start", "initial_value": "start", "state": "carry", "states": "carries",
    "done": "reset", "dones": "reset", "mask": "keep", "step": "update", "recurrence": "scan", "parameters": "params",
    "lets": "let", "where": "let", "edges": "edge", "boundary": "edge", "returns": "outputs",
}  # fmt: skip


def closed(node: Mapping, what: str, owner: Span, known: tuple[str, ...], required: tuple[str, ...]) -> Keys:
    """A mapping with a closed set of keys."""
    for key, _ in node.items:
        if key.text not in known:
            meant = ELSEWHERE.get(key.text)
            help = f"did you mean `{meant}`?" if meant in known else near(key.text, known)
            help = help or f"the keys of {what} are {', '.join(known)}"
            raise SpecError("RLS102", f"{what} has no key {shown(key.text)}", key.span, help)
    keys = {key.text: (key, value) for key, value in node.items}
    require(keys, what, owner, required)
    return keys


def require(keys: Keys, what: str, owner: Span, required: tuple[str, ...]) -> None:
    for word in required:
        if word not in keys:
            raise SpecError("RLS104", f"the key `{word}` is missing", owner, f"{what} needs {listed(required)}")


def listed(words: tuple[str, ...]) -> str:
    marked = [f"`{word}`" for word in words]
    return marked[0] if len(marked) == 1 else f"{', '.join(marked[:-1])} and {marked[-1]}"


def as_mapping(value: Node, what: str, owner: Scalar) -> Mapping:
    if isinstance(value, Mapping) and value.items:
        return value
    if isinstance(value, Mapping) or (isinstance(value, Scalar) and value.null):
        raise SpecError(
            "RLS105", f"{what} is empty", owner.span, "give it an entry, `name: …`, or remove it if it may be absent"
        )
    raise SpecError("RLS105", f"{what} is a mapping", value.span, "write `name: …` on lines of their own, indented")


def as_scalar(value: Node, what: str) -> Scalar:
    if not isinstance(value, Scalar):
        kind = "a mapping" if isinstance(value, Mapping) else "a list"
        raise SpecError(
            "RLS105", f"{what} is {kind}", value.span, "write one value; one that begins with [ or { needs quotes"
        )
    return value


def entries(keys: Keys, word: str) -> Iterator[tuple[Scalar, Node]]:
    if word in keys:
        key, value = keys[word]
        yield from as_mapping(value, f"`{word}`", key).items


# -- from PyYAML's events -------------------------------------------------------------------------------


def _tree(events: list[yaml.Event], text: str) -> Node:
    stack: list[tuple[yaml.Event, list[Node]]] = []
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            stack.append((event, []))
            continue
        made: Node
        if isinstance(event, yaml.ScalarEvent):
            made = _scalar(event, text)
        else:
            start, children = stack.pop()
            if isinstance(start, yaml.MappingStartEvent):
                made = _mapping(children, _start(start))
            else:
                made = Sequence(tuple(children), _start(start))
        if not stack:
            return made
        stack[-1][1].append(made)
    raise AssertionError("a YAML stream ends each collection that it starts")


def _mapping(children: list[Node], span: Span) -> Mapping:
    items: dict[str, tuple[Scalar, Node]] = {}
    for key, value in zip(children[::2], children[1::2], strict=True):
        if not isinstance(key, Scalar):
            raise SpecError("RLS105", "a key is a mapping or a list", key.span, "a key is one word")
        if key.plain and key.text == "<<":
            raise SpecError("RLS101", "merge keys are not part of the spec language", key.span, _PLAINLY)
        if key.text in items:
            first = items[key.text][0].span
            raise SpecError(
                "RLS103",
                f"the key {shown(key.text)} stands here twice",
                key.span,
                f"it was first given at line {first.line}, column {first.column}; keep one of them",
            )
        items[key.text] = key, value
    return Mapping(tuple(items.values()), span)


_PLAINLY = "write the value out where it is needed"


def _refuse_machinery(event: yaml.Event, text: str, first_document: bool) -> None:
    """What YAML has beyond scalars, mappings and lists."""
    if isinstance(event, yaml.DocumentStartEvent) and not first_document:
        raise SpecError("RLS101", "a second document begins here", _start(event, 3), "one file holds one spec")
    if isinstance(event, yaml.DocumentStartEvent) and event.tags:
        raise SpecError("RLS101", "YAML tags are not part of the spec language", Span(1, 1), "remove the %TAG line")
    if isinstance(event, yaml.AliasEvent):
        begin, end = _marks(event)
        width = end.index - begin.index
        raise SpecError("RLS101", "YAML aliases are not part of the spec language", _start(event, width), _PLAINLY)
    if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
        width = len(event.anchor) + 1
        raise SpecError("RLS101", "YAML anchors are not part of the spec language", _start(event, width), _PLAINLY)
    if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
        begin, _ = _marks(event)
        found = re.match(r"\S+", text[begin.index :])
        width = len(found.group()) if found else 1
        raise SpecError("RLS101", "YAML tags are not part of the spec language", _start(event, width), "remove the tag")


def _not_yaml(error: yaml.MarkedYAMLError, reached: Span) -> SpecError:
    mark = error.problem_mark or error.context_mark
    span = Span(mark.line + 1, mark.column + 1) if mark else reached
    problem = error.problem or "this is not YAML"
    if "'\\t'" in problem:
        help = "indent with spaces, not with tabs"
    elif error.context and "flow mapping" in error.context:
        help = 'inside { } a value that holds [ ] or a comma needs quotes: {update: "r[t] + s", start: 0}'
    elif "mapping values" in problem:
        help = "keys of one mapping stand in one column, and a value that holds `: ` needs quotes"
    else:
        help = "each line is `key: value`, with a colon and indented with spaces; look at the line before too"
    return SpecError("RLS101", problem, span, help)


def _marks(event: yaml.Event) -> tuple[yaml.Mark, yaml.Mark]:
    if not isinstance(event.start_mark, yaml.Mark) or not isinstance(event.end_mark, yaml.Mark):
        raise AssertionError("PyYAML marks each event of a text")
    return event.start_mark, event.end_mark


def _start(event: yaml.Event, width: int = 1) -> Span:
    begin, _ = _marks(event)
    return Span(begin.line + 1, begin.column + 1, width)


def _scalar(event: yaml.ScalarEvent, text: str) -> Scalar:
    """Find a scalar's characters in the file, those of a value folded over several lines too."""
    begin, end = _marks(event)
    if re.search("[\ud800-\udfff]", event.value):
        raise SpecError(
            "RLS101", "half of a surrogate pair is not a character", _start(event), "write the character itself"
        )
    raw, line, column = text[begin.index : end.index], begin.line + 1, begin.column + 1
    skip = 1 if event.style in ("'", '"') else raw.find("\n") + 1 if event.style in ("|", ">") else 0
    letters: list[tuple[str, int, int]] = []
    for i, char in enumerate(raw):
        if char == "\n" or (char == "\r" and raw[i + 1 : i + 2] != "\n") or char in "\x85\u2028\u2029":
            line, column = line + 1, 1
            continue
        if i >= skip and not char.isspace():
            letters.append((char, line, column))
        column += 1
    if event.style in ("'", '"'):
        letters.pop()
    value = " ".join(event.value.split())
    if [char for char, _, _ in letters] != [char for char in value if not char.isspace()] or not letters:
        width = len(raw.splitlines()[0]) if raw else 1
        return Scalar(value, event.style is None, _start(event, max(1, width)), ())
    one_line = letters[0][1] == letters[-1][1]
    if one_line:
        # Columns are kept as they are, so that `Expression.at` can count along the line.
        value = re.sub(r"\s", " ", event.value.strip())
    places: list[tuple[int, int]] = []
    found = iter(letters)
    for char in value:
        places.append(next(found)[1:] if char != " " else (places[-1][0], places[-1][1] + 1))
    last = max(column for line, column in places if line == places[0][0])
    span = Span(*places[0], last - places[0][1] + 1)
    return Scalar(value, event.style is None, span, tuple(places))
