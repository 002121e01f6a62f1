"""Specs with slips of the pen: whatever a text says, it compiles or is refused with a SpecError, and soon.

Each spec of specs/ is changed at a few places: lines deleted, doubled, exchanged; names, numbers, offsets and operators
replaced by others of the language or of the spec. What is refused must say so in the language's own terms, with a place in
the text; what is not must give modules that Python can compile.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlscan import store
from rlscan.backends import BACKENDS
from rlscan.diagnostics import SpecError, located
from rlscan.emit import emit
from rlscan.laws import prove
from rlscan.lift import lift
from rlscan.parse import parse
from rlscan.schedule import plan, splits
from rlscan.spec import FUNCTIONS

ROOT = Path(__file__).resolve().parent.parent
#: without comments and titles, in which a slip says nothing
TEXTS = {
    path.stem: re.sub(r"^(title|cite):.*\n|^ *#.*\n| +#.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for path in sorted((ROOT / "specs").rglob("*.yaml"))
}
#: seconds of one text, beyond which it counts as a hang
PATIENCE = 30

TOKEN = re.compile(
    r"\[t(?: *[+-] *\d+)?\]|[A-Za-z_]\w*|\d+(?:\.\d+)?(?:e[+-]?\d+)?|\*\*|[<>=!]=|[-+*/<>=()\[\]{},:?.|>#\"']"
)
WORDS = [
    *FUNCTIONS, "and", "or", "not", "true", "false", "inf", "t", "A", "B", "T", "F", "in", "first.x", "f", "flag", "int", "num",
    "backward", "forward", "affine", "clipped_affine", "max_plus", "min_plus", "carry", "carries", "update", "a", "b", "lo",
    "hi", "reset", "keep", "start", "operator", "elements", "edge", "before", "after", "let", "crosses", "together", "outputs",
]  # fmt: skip
NUMBERS = ["0", "1", "2", "-1", "0.5", "8", "9", "1e30", "1e-30", "9007199254740993", "1e999", "007"]
OFFSETS = ["", "[t]", "[t+1]", "[t-1]", "[t+2]", "[t-3]", "[t+64]", "[t+65]", "[t+0]", "[1]", "[t*2]"]
SIGNS = [*"+-*/<>()[]{},:?.|#'\"&", "**", "==", "<=", "!=", "or", "and", "- ", " ", "\n", "\n  ", ": ", " = "]

#: those that leave a spec near to one come more often
KINDS = (
    *("name", "name", "offset", "offset", "word", "number", "sign", "drop", "insert"),
    *("delete line", "double line", "exchange lines", "indent"),
)
Slip = tuple[str, int, int]


def changed(text: str, slip: Slip) -> str:
    """The text with one slip; both numbers are taken modulo what there is to choose from."""
    kind, i, j = slip
    lines = text.splitlines()
    if not lines:
        return text
    if kind in ("delete line", "double line", "exchange lines", "indent"):
        i, j = i % len(lines), j % len(lines)
        if kind == "delete line":
            del lines[i]
        elif kind == "double line":
            lines.insert(j, lines[i])
        elif kind == "exchange lines":
            lines[i], lines[j] = lines[j], lines[i]
        else:
            lines[i] = "  " + lines[i] if j % 2 else lines[i].removeprefix("  ")
        return "\n".join(lines) + "\n"
    found = [token for token in TOKEN.finditer(text) if _is(kind, token.group())]
    if not found:
        return text
    token = found[i % len(found)]
    names = sorted({name for name in re.findall(r"\b[a-z]\w*\b", text) if name not in WORDS})
    others = {"name": names or WORDS, "word": WORDS, "number": NUMBERS, "offset": OFFSETS, "sign": SIGNS}
    others |= {"drop": [""], "insert": [f"{token.group()} {word}" for word in (*names, *WORDS, *SIGNS, *NUMBERS)]}
    return text[: token.start()] + others[kind][j % len(others[kind])] + text[token.end() :]


def _is(kind: str, token: str) -> bool:
    if kind in ("name", "word"):
        return token[0].isalpha()
    if kind == "number":
        return token[0].isdigit()
    if kind == "offset":
        return token.startswith("[t")
    return kind != "sign" or not (token[0].isalnum() or token[0] == "_")


@contextmanager
def patience(seconds: int) -> Iterator[None]:
    """What takes longer fails, where the system has alarms."""

    def late(signum: int, frame: FrameType | None) -> None:
        raise AssertionError(f"not done after {seconds} seconds")

    if not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(text: str) -> str:
    """The code with which the text is refused, or `compiled`."""
    with patience(PATIENCE):
        refused: SpecError | None = None
        try:
            spec = parse(text, "mine.yaml")
            with located(spec.source):
                scan = prove(lift(spec))
        except SpecError as error:
            refused = error
        if refused is None:
            for backend in BACKENDS.values():
                for kind in backend.schedules:
                    if kind != "chunks" or splits(scan):
                        compile(emit(plan(scan, kind), backend.name, store.templates()), "made.py", "exec")
            return "compiled"
    span = refused.span
    assert span is not None, refused
    assert 1 <= span.line <= len(text.splitlines()) + 1, refused
    assert span.column >= 1
    assert refused.help, refused
    assert str(refused).startswith(f"mine.yaml:{span.line}:{span.column}: error[{refused.code}]: ")
    return refused.code


OWN = """rlscan: 1
name: my_affine
inputs:
  x: f[B, T]
scan:
  direction: forward
  carry: s
  operator:
    elements: {a: "x[t]", b: "x[t]"}
    combine: {a: A, b: second.a * first.b + second.b}
    identity: {a: 1, b: 0}
    apply: a * s + b
  start: 0
outputs:
  sums: s[t]
"""


def tower(base: str, height: int) -> str:
    """base to the power 8, to the power 8, …"""
    return base if not height else f"({tower(base, height - 1)})**8"


#: what was found so: it ended in another exception, in a kernel that is no Python, or not at all
FOUND = {
    "a scan that nothing reads": (
        TEXTS["emphatic_traces"].replace("  traces: e[t]\n", ""),
        "RLS311",
    ),
    "an edge of nothing near": (TEXTS["emphatic_traces"].replace("edge:\n", "edge:\n  carry: follow\n"), "RLS301"),
    "a division of literals by zero": (
        TEXTS["gae"].replace("a: gamma * lam", "a: 1 / (2 - 2) * gamma * lam"),
        "RLS206",
    ),
    "a number of more digits than there is memory": (
        OWN.replace("A,", f"first.a * second.a * {tower('9', 12)},"),
        "RLS405",
    ),
    "a power of a power of a sum": (OWN.replace("A,", f"{tower('first.a + second.a', 6)},"), "RLS405"),
    "a product of sums of many terms": (OWN.replace("A,", "(first.a + second.a + first.b + second.b)**8,"), "RLS402"),
    "conditions within conditions": (
        OWN.replace("A,", f'"{"where(" * 16}first.a{" > 0, second.a, first.b)" * 16}",'),
        "RLS402",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_is_refused(name: str) -> None:
    text, code = FOUND[name]
    assert text not in TEXTS.values()
    assert outcome(text) == code


slips = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 999), st.integers(0, 999)), min_size=1, max_size=3)


@settings(
    max_examples=150,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.sampled_from(sorted(TEXTS)), slips)
def test_a_slip_of_the_pen_is_refused_or_compiles(name: str, made: list[Slip]) -> None:
    text = TEXTS[name]
    for slip in made:
        text = changed(text, slip)
    outcome(text)
