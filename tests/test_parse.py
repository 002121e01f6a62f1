"""parse: every refusal word for word, every place right, and no text that can do more than be refused.

`RLSCAN_GOLDEN=write pytest tests/test_parse.py` writes the golden texts anew; read the diff before committing it.
"""

from __future__ import annotations

import ast
import dataclasses
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlscan.diagnostics import CODES, SpecError
from rlscan.expressions import MAX_DEPTH, MAX_NODES, MAX_TEXT
from rlscan.nodes import MAX_BYTES
from rlscan.parse import parse
from rlscan.spec import Expression, Input, Param, Spec

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "parse"
CASES = sorted(GOLDEN.glob("*.yaml"))
GAE = (ROOT / "specs" / "gae.yaml").read_text(encoding="utf-8")
PLAIN = """rlscan: 1
name: plain
inputs:
  x: f[B, T]
  d: flag[B, T] = false
params:
  gamma: 0.5 in [0, 1]
scan:
  direction: forward
  carry: s
  update: x[t] + gamma * s
  start: 0
outputs:
  sums: s[t]
"""
#: what a parse may take at the very worst, on a slow and busy machine
SECONDS = 10.0


def refusal(text: str, name: str = "<spec>") -> SpecError:
    with pytest.raises(SpecError) as caught:
        parse(text, name)
    return caught.value


def with_update(text: str) -> str:
    return PLAIN.replace("x[t] + gamma * s", text)


# -- golden texts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_refusal_reads_as_agreed(path: Path) -> None:
    error = refusal(path.read_text(encoding="utf-8"), path.name)
    text = path.with_suffix(".txt")
    if os.environ.get("RLSCAN_GOLDEN") == "write":
        text.write_text(f"{error}\n", encoding="utf-8")
    assert f"{error}\n" == text.read_text(encoding="utf-8")
    assert error.code.lower() == path.stem.split("-")[0]
    assert error.span is not None
    assert error.help


def test_every_code_of_this_pass_has_a_case() -> None:
    covered = {path.stem.split("-")[0].upper() for path in CASES}
    assert {code for code in CODES if code < "RLS300"} <= covered


def test_no_golden_text_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {path.stem for path in CASES}


def test_file_too_large() -> None:
    error = refusal(GAE + "#" * MAX_BYTES, "big.yaml")
    assert str(error) == (
        "big.yaml:1:1: error[RLS106]: a spec may have at most 65536 bytes\n"
        "    1 | rlscan: 1\n"
        "      | ^\n"
        "  help: split it: one estimator, one file"
    )
    assert refusal("é" * (MAX_BYTES // 2 + 1)).code == "RLS106"
    assert parse(GAE + "#" * (MAX_BYTES - len(GAE.encode()))).name == "gae"


def test_too_many_values() -> None:
    assert refusal("[" + "a," * 20_000 + "]").code == "RLS106"


def test_error_pickles_with_its_source() -> None:
    error = refusal(GAE.replace("valu", "wher(x)"), "gae.yaml")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


# -- what a good spec becomes ---------------------------------------------------------------------


def test_gae() -> None:
    spec = parse(GAE, "gae.yaml")
    assert (spec.name, spec.title) == ("gae", "Generalized advantage estimation")
    assert [item.name for item in spec.inputs] == [
        "rewards", "values", "terminated", "truncated", "final_values", "last_value",
    ]  # fmt: skip
    assert spec.together == (("truncated", "final_values"),)
    assert [(p.name, p.default, p.lower, p.upper) for p in spec.params] == [
        ("gamma", 0.99, 0.0, 1.0),
        ("lam", 0.95, 0.0, 1.0),
    ]
    (block,) = spec.scans
    assert block.direction == "backward"
    assert block.operator.name == "affine"
    assert [(name, value.text) for name, value in block.operator.coefficients] == [
        ("a", "gamma * lam"),
        ("b", "delta[t]"),
    ]
    assert block.reset is not None
    assert block.reset.text == "terminated[t] or truncated[t]"
    assert block.keep is None
    (carry,) = block.carries
    assert (carry.name, carry.update, carry.start and carry.start.text) == ("adv", None, "0")
    assert [(o.name, o.value.text) for o in spec.outputs] == [
        ("advantages", "adv[t]"),
        ("returns", "adv[t] + values[t]"),
    ]
    (edge,) = spec.edges
    assert (edge.name, edge.both and edge.both.text, edge.before, edge.after) == ("values", "last_value", None, None)


def test_pure() -> None:
    assert parse(GAE) == parse(GAE)
    assert parse(GAE).digest == parse(GAE, "elsewhere.yaml").digest
    assert parse(GAE + "\n").digest != parse(GAE).digest


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("f[B, T]", ("float", ("B", "T"), (), None)),
        ("f[B,T,A]", ("float", ("B", "T", "A"), (), None)),
        ("f [ B , T , F? ] =  -0.5", ("float", ("B", "T", "F"), ("F",), -0.5)),
        ("f[B] = inf", ("float", ("B",), (), float("inf"))),
        ("f[B] = -inf", ("float", ("B",), (), float("-inf"))),
        ("f[B] = 9e-1", ("float", ("B",), (), 0.9)),
        ("num[B, T] = 3", ("num", ("B", "T"), (), 3)),
        ("int[B, T] = -1", ("int", ("B", "T"), (), -1)),
        ("flag[B, T] = true", ("flag", ("B", "T"), (), True)),
        ("'flag[B] = false'", ("flag", ("B",), (), False)),
    ],
)
def test_types(written: str, expected: tuple[object, ...]) -> None:
    item: Input = parse(PLAIN.replace("  d: flag[B, T] = false", f"  d: {written}")).inputs[1]
    assert (item.kind, item.dims, item.optional_axes, item.default) == expected
    assert type(item.default) is type(expected[-1])
    assert item.optional == (expected[-1] is not None)


@pytest.mark.parametrize(
    ("written", "default", "lower", "upper"),
    [
        ("0.99", 0.99, -float("inf"), float("inf")),
        ("0.99 in [0, 1]", 0.99, 0.0, 1.0),
        ("in [0, inf]", None, 0.0, float("inf")),
        ("in [-inf, 1e30]", None, -float("inf"), 1e30),
        ("inf in [0,inf]", float("inf"), 0.0, float("inf")),
        ("1 in [1, 1]", 1.0, 1.0, 1.0),
        ("-2", -2.0, -float("inf"), float("inf")),
        ("010.5", 10.5, -float("inf"), float("inf")),
        (".5", 0.5, -float("inf"), float("inf")),
    ],
)
def test_params(written: str, default: float | None, lower: float, upper: float) -> None:
    param: Param = parse(PLAIN.replace("0.5 in [0, 1]", written)).params[0]
    assert (param.default, param.lower, param.upper) == (default, lower, upper)
    assert type(param.lower) is type(param.upper) is float


@pytest.mark.parametrize("written", ["9e-1 in [0, 1]", "9e-1", "'9e-1'", "9E-1 in [0,1]", "90e-2", "0.9e0"])
def test_numbers_that_yaml_reads_as_strings(written: str) -> None:
    """PyYAML issue 173: YAML 1.1 takes `9e-1` for a string."""
    assert parse(GAE.replace("0.99 in [0, 1]", written)).params[0].default == 0.9


@pytest.mark.parametrize(
    "written", ["1:30", "0o17", "0x1f", "1_0", "off", "~", "010", ".inf", ".nan", "nan", "1e", "--1"]
)
def test_numbers_that_only_yaml_reads(written: str) -> None:
    error = refusal(GAE.replace("0.99 in [0, 1]", written))
    assert error.code in ("RLS109", "RLS201")
    assert error.span is not None
    assert error.span.line == 14


@pytest.mark.parametrize("word", ["on", "off", "y", "n", "yes", "no"])
def test_names_that_yaml_reads_as_booleans(word: str) -> None:
    text = PLAIN.replace("  x: f[B, T]", f"  {word}: f[B, T]").replace("x[t]", f"{word}[t]")
    assert parse(text).inputs[0].name == word


def test_carries_edges_and_the_other_keys() -> None:
    spec = parse(
        """rlscan: 1
name: several
title: "γλ: a title, quoted"
inputs:
  r: f[B, T]
  d: flag[B, T] = false
  m: flag[B, T] = false
  c: f[B, T] = 1
  e: f[B, T] = 1
  v: f[B]
together: [[d, m], [c, e]]
edge:
  r: {before: 0, after: v}
  c: {after: 1}
  e:
    before: 1
scans:
- direction: backward
  carries:
    g: {update: "r[t] + g", start: 0}
    h:
      update: h + 2 * g
      start: v
  reset: d[t]
  keep: not m[t]
- direction: forward
  carry: k
  operator: clipped_affine
  a: c[t]
  b: r[t-1] + r[t+1]
  lo: -1
  hi: inf
  start: 0
crosses: [r, out_g]
outputs:
  out_g: g[t]
  out_k: k[t] + h[t]
"""
    )
    assert spec.together == (("d", "m"), ("c", "e"))
    assert spec.crosses == ("r", "out_g")
    assert [(e.name, e.both, e.before and e.before.text, e.after and e.after.text) for e in spec.edges] == [
        ("r", None, "0", "v"),
        ("c", None, None, "1"),
        ("e", None, "1", None),
    ]
    first, second = spec.scans
    assert [(c.name, c.update and c.update.text, c.start and c.start.text) for c in first.carries] == [
        ("g", "r[t] + g", "0"),
        ("h", "h + 2 * g", "v"),
    ]
    assert first.keep is not None
    assert first.keep.text == "not m[t]"
    assert first.operator.coefficients == ()
    assert second.operator.name == "clipped_affine"
    assert [name for name, _ in second.operator.coefficients] == ["a", "b", "lo", "hi"]


def test_operator_of_its_own() -> None:
    text = (GOLDEN / "rls104-apply.yaml").read_text(encoding="utf-8")
    spec = parse(text.replace("  start: 0", "    apply: a * s + b\n  start: 0"))
    operator = spec.scans[0].operator
    assert operator.name == "custom"
    assert [name for name, _ in operator.coefficients] == ["a", "b"]
    assert [value.text for _, value in operator.combine] == ["first.a * second.a", "second.a * first.b + second.b"]
    assert [value.text for _, value in operator.identity] == ["1", "0"]
    assert operator.apply is not None
    assert operator.apply.text == "a * s + b"


@pytest.mark.parametrize(
    "text",
    [
        "x[t]", "x[t+64]", "x[t - 1]", "x[t+0]", "-x[t]", "2 * -s", "x[t] ** 8", "s ** 0", "1e30", "1.5e-300", ".5", "1.",
        "9007199254740992", "where(d[t] or not d[t] and 0 < s <= 1 != 2, s, 0)", "max(x[t], s, 1)", "clip(s, -inf, inf)",
        "sum(A, x[t])", "min(A, x[t])", "logsumexp(A, x[t])", "take(x[t], i[t])", "sqrt(abs(log(exp(tanh(sigmoid(s))))))",
        "where(true, 1, 0)", "not (not d[t])", "(((1)))", "1 - (2 - 3)",
    ],
)  # fmt: skip
def test_expressions(text: str) -> None:
    update = parse(with_update(text)).scans[0].carries[0].update
    assert update is not None
    assert update.text == text
    assert ast.dump(update.tree) == ast.dump(ast.parse(text, mode="eval").body)


# -- places ---------------------------------------------------------------------------------------


def names_at(expression: Expression, source: str) -> list[tuple[str, str]]:
    """(a name of the tree, the text at its place in the file)."""
    lines = source.splitlines()
    found = []
    for node in ast.walk(expression.tree):
        if isinstance(node, ast.Name):
            span = expression.at(node)
            found.append((node.id, lines[span.line - 1][span.column - 1 : span.column - 1 + span.length]))
    return found


def test_every_name_of_every_spec_is_where_its_span_says() -> None:
    for path in sorted((ROOT / "specs").rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        for expression in expressions(parse(text, path.name)):
            for name, there in names_at(expression, text):
                assert name == there


@pytest.mark.parametrize("quote", ["{}", "'{}'", '"{}"', "   {}", "{}   # why", "{}\r"])
def test_places_in_quotes(quote: str) -> None:
    text = with_update(quote.format("x[t] +   gamma*s"))
    (update,) = [carry.update for carry in parse(text).scans[0].carries]
    assert update is not None
    assert update.span.length == len("x[t] +   gamma*s")
    assert sorted(names_at(update, text)) == [(name, name) for name in ("gamma", "s", "t", "x")]


@pytest.mark.parametrize(
    "value",
    [
        "x[t]\n    + gamma\n    * s",
        ">\n    x[t]\n    + gamma\n    * s",
        "|-\n    x[t] + gamma\n\n      * s",
        "'x[t]\n   + gamma * s'",
    ],
)
def test_value_over_several_lines(value: str) -> None:
    text = with_update(value)
    (update,) = [carry.update for carry in parse(text).scans[0].carries]
    assert update is not None
    assert update.text == "x[t] + gamma * s"
    line = text.splitlines()[update.span.line - 1]
    assert line[update.span.column - 1 :].startswith("x[t]")
    assert sorted(names_at(update, text)) == [(name, name) for name in ("gamma", "s", "t", "x")]
    # A part that goes over several lines is underlined as far as its first one goes.
    whole = update.at(update.tree)
    assert line[whole.column - 1 :][: whole.length] == line[update.span.column - 1 :].rstrip("\n'")


def test_escapes_in_quotes_cost_the_column_only() -> None:
    (update,) = [carry.update for carry in parse(with_update('"x[t] \\x2b gamma * s"')).scans[0].carries]
    assert update is not None
    assert update.text == "x[t] + gamma * s"
    assert update.at(update.tree) == update.span
    error = refusal(with_update('"x[t] \\x26 s"'))
    assert (error.code, error.span and error.span.line) == ("RLS202", 11)


def test_byte_order_mark_and_line_ends() -> None:
    for text in (GAE.replace("\n", "\r\n"), "\ufeff" + GAE, GAE.replace("\n", "\r")):
        again = parse(text)
        assert [o.value.text for o in again.outputs] == ["adv[t]", "adv[t] + values[t]"]
        assert [o.span for o in again.outputs] == [o.span for o in parse(GAE).outputs]


# -- nothing but a Spec or a SpecError ------------------------------------------------------------


HOSTILE = [
    "__import__('os').system('echo')",
    "().__class__.__base__.__subclasses__()",
    "x.__class__",
    "x[t].__class__.__mro__[1]",
    "exec(1)",
    "eval(1)",
    "open(1)",
    "exp.__globals__",
    "first.__class__",
    "9**9**9",
    "9 ** 999999999",
    "(((" * 600,
    "(" * 900 + "1" + ")" * 900,
    "-" * 1999 + "1",
    "not " * 490 + "x[t]",
    "x[t]" + "[t]" * 600,
    "1" * 1999,
    "1.5" * 600,
    "1e" + "9" * 1990,
    "x[t+" + "9" * 1990 + "]",
    "x" * 2000,
    "x" * 60_000,
    "a.b" * 600,
    "1 if 1 else " * 160 + "1",
    "max(" * 499 + "1",
    "f'{x}'",
    "`x`",
    "x[t]; import os",
    "\\u0000",
    "\\\\",
    "lambda: 0",
    "[x for x in y]",
    "yield x",
    "await x",
    "print(x[t])",
    "1" + "+1" * 900,
    "{}" * 900,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("quote", ["{}", '"{}"'], ids=["plain", "quoted"])
def test_hostile_expressions_are_refused_fast(text: str, quote: str) -> None:
    began = time.perf_counter()
    error = refusal(with_update(quote.format(text)))
    assert time.perf_counter() - began < SECONDS
    assert error.help
    assert len(error.message) < 200


BILLION_LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join(['*' + old] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_no_code_runs(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for code in (
        f"__import__('pathlib').Path({str(mark)!r}).touch()",
        f"!!python/object/apply:pathlib.Path.touch [{str(mark)!r}]",
        f"!!python/object/new:os.system ['touch {mark}']",
    ):
        for text in (with_update(code), PLAIN.replace("f[B, T]", code), code, f"{code}: 1\n"):
            refusal(text)
    assert not mark.exists()


@pytest.mark.parametrize(
    "text",
    [
        BILLION_LAUGHS,
        "&a [*a]",
        "[" * 60_000,
        "{" * 60_000,
        "- " * 30_000,
        "? " * 30_000,
        "a: " * 20_000,
        "\n ".join("a:" for _ in range(10_000)),
        ":" * 60_000,
        "!" * 60_000,
        "&" * 60_000,
        "%YAML 1." + "9" * 60_000 + "\n---\na: 1",
        "%a\n" * 20_000,
        "---\n" * 15_000,
        '"' + "\\" * 60_000,
        "a: |" + "\n" * 60_000,
        "[" + "a," * 30_000 + "]",
        "{" + "a," * 30_000 + "}",
        "x" * 60_000,
        "x: " + "y " * 30_000,
        PLAIN + "let:\n" + "".join(f"  l{i}: 1\n" for i in range(1_900)),
        PLAIN.replace("  x: f[B, T]", "".join(f"  x{i}: f[B, T]\n" for i in range(2_000))),
        PLAIN.replace("f[B, T]", "f[B, " + "A, " * 15_000 + "T]"),
        PLAIN.replace("f[B, T]", "f[" + " " * 50_000),
        PLAIN.replace("0.5 in [0, 1]", "0.5" + " " * 50_000 + "in"),
        PLAIN.replace("0.5 in [0, 1]", "1" * 60_000),
        PLAIN.replace("0.5 in [0, 1]", "in [" + " " * 60_000 + "0"),
        "\x00", "\ud800", "a: \udfff", "\ufffe", "\x85", "\u2028", "", " ", "\t", "#", "...", "---", "null", "~", "1", "a",
    ],
    ids=range(43),
)  # fmt: skip
def test_hostile_files_end_fast(text: str) -> None:
    began = time.perf_counter()
    fate(text)
    assert time.perf_counter() - began < SECONDS


def fate(text: str) -> Spec | SpecError:
    """What parse makes of a text; anything but a Spec or a SpecError fails the test."""
    made: Spec | SpecError
    try:
        made = parse(text)
    except SpecError as error:
        made = error
    if isinstance(made, SpecError):
        assert made.source is not None
        assert made.span is not None
        assert made.help
        assert str(made)
        return made
    for expression in expressions(made):
        nodes = [node for node in ast.walk(expression.tree) if isinstance(node, ast.expr)]
        assert len(nodes) <= MAX_NODES
        assert len(expression.text) <= MAX_TEXT
        assert all(isinstance(node, ALLOWED) for node in nodes)
        assert expression.text.isascii()
    return made


ALLOWED = (
    ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Subscript, ast.Attribute,
)  # fmt: skip


def expressions(value: object) -> list[Expression]:
    if isinstance(value, Expression):
        return [value]
    if isinstance(value, tuple):
        return [found for item in value for found in expressions(item)]
    if dataclasses.is_dataclass(value):
        return [found for field in dataclasses.fields(value) for found in expressions(getattr(value, field.name))]
    return []


PIECES = st.sampled_from(
    ["rlscan: 1\n", "name: x\n", "inputs:\n", "  x: f[B, T]\n", "scan:\n", "  ", "- ", ": ", "{", "}", "[", "]", ", ", "&a ",
     "*a ", "!!x ", "|\n", ">\n", "'", '"', "\\", "#", "\n", "x[t]", "where(", ")", "**", "9", "e", ".", "first", "γ", "\t", "?",
     "<<", "carry", "start", "true", "in", "inf", "~", "%", "@", "`"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=40).map("".join)))
@example("")
def test_any_text(text: str) -> None:
    fate(text)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(path.read_text(encoding="utf-8") for path in (ROOT / "specs").glob("*.yaml"))),
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 12), st.one_of(PIECES, st.text(max_size=4))), min_size=1, max_size=4
    ),
)
def test_mutated_specs(text: str, changes: list[tuple[float, int, str]]) -> None:
    for where, cut, put in changes:
        at = int(where * len(text))
        text = text[:at] + put + text[at + cut :]
    fate(text)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(
            st.sampled_from(
                ["x[t]", "s", "1", "2.5", "(", ")", "[", "]", "+", "-", "*", "/", "**", "<", "==", "and", "or", "not", "where(",
                 "max(", ",", ".", "t", "A", "sum(", "take(", "true", "inf", "if", "1e999", "first", " "]
            ),
            max_size=25,
        ).map(" ".join),
    )
)  # fmt: skip
def test_any_expression(text: str) -> None:
    fate(with_update('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'))


@pytest.mark.parametrize("terms", [MAX_DEPTH, MAX_DEPTH + 1])
def test_depth_is_bounded_and_the_bound_is_reached(terms: int) -> None:
    made = fate(with_update(" + ".join(["1"] * terms)))
    assert isinstance(made, Spec) == (terms <= MAX_DEPTH)


def test_no_pass_below_is_needed() -> None:
    """parse stands on diagnostics and spec alone: no sympy, torch or compiler comes with it."""
    code = (
        "import sys, rlscan.parse; "
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('rlscan', 'torch', 'sympy', 'numpy')))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    own = ["rlscan", *(f"rlscan.{m}" for m in ("declarations", "diagnostics", "expressions", "nodes", "parse", "spec"))]
    assert out.strip() == str(own)
