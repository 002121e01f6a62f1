"""Errors about a spec: a short fact raised inside a pass, its context added once at the boundary.

A pass raises `SpecError(code, message, span, help)`. Whoever knows the file wraps the call in
`located(source)`, which adds the file's name and the line under the caret. `str(error)` is then

    gae.yaml:22:12: error[RLS301]: `valeus` is not defined
       22 |   delta: rewards[t] + valeus[t]
          |                       ^^^^^^
      help: did you mean `values`?

The lowest layer: it imports nothing of rlscan.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

#: Every code that a spec can be refused with, and the kind of fault that it names. Codes keep their meaning for
#: good, so that they can be searched for; a retired one is not used again.
CODES: dict[str, str] = {
    # the file
    "RLS101": "not YAML",
    "RLS102": "unknown key",
    "RLS103": "duplicate key",
    "RLS104": "missing key",
    "RLS105": "wrong kind of value",
    "RLS106": "too large",
    "RLS107": "unsupported version of the spec language",
    "RLS108": "malformed type",
    "RLS109": "malformed parameter",
    "RLS110": "malformed name",
    "RLS111": "name defined twice",
    "RLS112": "malformed `together`",
    # one expression
    "RLS201": "not an expression",
    "RLS202": "construct not allowed",
    "RLS203": "unknown function",
    "RLS204": "wrong number of arguments",
    "RLS205": "malformed time offset",
    "RLS206": "literal out of bounds",
    "RLS207": "expression too large",
    # names, types, axes, time
    "RLS301": "unknown name",
    "RLS302": "time index missing",
    "RLS303": "time index on a value without time",
    "RLS304": "offset without an edge",
    "RLS305": "number where a flag is needed",
    "RLS306": "flag used as a number",
    "RLS307": "axes that do not fit",
    "RLS308": "reads itself",
    "RLS309": "carry used where it cannot be",
    "RLS310": "carry of a later scan",
    "RLS311": "never used",
    "RLS312": "index that is not an integer",
    "RLS313": "edge that depends on time",
    "RLS314": "too large written out",
    # the laws
    "RLS401": "not affine in the carry",
    "RLS402": "not associative",
    "RLS403": "not an identity",
    "RLS404": "crosses an episode's end",
    "RLS405": "could not be proved",
    "RLS406": "reset on the wrong side",
    # what a later version lowers
}


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a spec: 1-based line and column, and how many characters to underline."""

    line: int
    column: int
    length: int = 1


@dataclass(frozen=True, slots=True)
class SourceText:
    """A spec file's text with the name to print for it."""

    name: str
    text: str

    def line(self, number: int) -> str:
        lines = self.text.splitlines()
        return lines[number - 1] if 0 < number <= len(lines) else ""


class SpecError(ValueError):
    """A spec that rlscan refuses: a code of `CODES`, a fact, the place, and what to write instead."""

    def __init__(self, code: str, message: str, span: Span | None = None, help: str | None = None) -> None:
        if code not in CODES:
            raise AssertionError(f"unknown diagnostic code {code}")
        super().__init__(message)
        self.code = code
        self.message = message
        self.span = span
        self.help = help
        self.source: SourceText | None = None

    def __str__(self) -> str:
        name = self.source.name if self.source else "<spec>"
        place = f"{name}:{self.span.line}:{self.span.column}" if self.span else name
        lines = [f"{place}: error[{self.code}]: {self.message}"]
        if self.span and self.source:
            text = self.source.line(self.span.line)
            # A span may run past its line (a value folded over several lines): underline what is there.
            width = max(1, min(self.span.length, len(text) - self.span.column + 1))
            gutter = f"{self.span.line:5d}"
            lines.append(f"{gutter} | {text}")
            lines.append(f"{' ' * len(gutter)} | {' ' * (self.span.column - 1)}{'^' * width}")
        if self.help:
            first, *rest = self.help.splitlines()
            lines.append(f"  help: {first}")
            lines.extend(f"        {line}" for line in rest)
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return (_restore, (self.code, self.message, self.span, self.help, self.source))


def _restore(code: str, message: str, span: Span | None, help: str | None, source: SourceText | None) -> SpecError:
    error = SpecError(code, message, span, help)
    error.source = source
    return error


@contextmanager
def located(source: SourceText) -> Iterator[None]:
    """Add the file to any SpecError that leaves the block without one."""
    try:
        yield
    except SpecError as error:
        if error.source is None:
            error.source = source
        raise


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """`did you mean `x`?` for the nearest known word, or None where none is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else None
