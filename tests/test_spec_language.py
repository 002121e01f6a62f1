"""The three accounts of the spec language agree: specs/README.md, rlscan.schema.json and the parser."""

from __future__ import annotations

import inspect
import json
import keyword
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from rlscan import entry, store
from rlscan.binding import COMPILE_WORDS
from rlscan.declarations import CALL_WORDS, KINDS
from rlscan.diagnostics import CODES, SpecError, located
from rlscan.expressions import MAX_NAME, MAX_TEXT
from rlscan.laws import prove
from rlscan.lift import lift
from rlscan.parse import COEFFICIENTS, DIRECTIONS, MAX_CARRIES, MAX_ELEMENTS, OPERATOR_KEYS, SCAN_KEYS, TOP_KEYS, parse
from rlscan.spec import FUNCTIONS, RESERVED, Spec

SPECS = Path(__file__).resolve().parent.parent / "specs"
GOLDEN = Path(__file__).parent / "golden"
MANUAL = (SPECS / "README.md").read_text(encoding="utf-8")
SCHEMA = json.loads((SPECS / "rlscan.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
BLOCKS = [
    (bool(found["mark"]), found["body"])
    for found in re.finditer(r"(?P<mark><!-- fragment -->\n)?```yaml\n(?P<body>.*?)```\n", MANUAL, re.DOTALL)
]
EXAMPLES = {parse(body).name: body for fragment, body in BLOCKS if not fragment}


class Core(yaml.SafeLoader):
    """YAML 1.2's core schema, which editors use: `on` is a string and `9e-1` a number."""


Core.yaml_implicit_resolvers = {}
for tag, pattern, letters in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", "-+0123456789."),
):
    Core.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"), list(letters))


def load(text: str, loader: type[yaml.SafeLoader] = Core) -> Any:
    return yaml.load(text, Loader=loader)


def in_schema(text: str) -> bool:
    """By an editor's reading of YAML."""
    return VALIDATOR.is_valid(load(text))


def parses(text: str) -> bool:
    try:
        parse(text)
    except SpecError:
        return False
    return True


# -- the manual -----------------------------------------------------------------------------------


def test_the_manual_has_examples_of_every_form() -> None:
    assert len(EXAMPLES) >= 6
    assert len(EXAMPLES) == sum(not fragment for fragment, _ in BLOCKS)
    specs = [parse(text) for text in EXAMPLES.values()]
    operators = {block.operator.name for spec in specs for block in spec.scans}
    assert {"affine", "clipped_affine", "custom"} <= operators
    assert any(len(spec.scans) > 1 for spec in specs)
    assert any(len(block.carries) > 1 for spec in specs for block in spec.scans)
    assert any(block.keep for spec in specs for block in spec.scans)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_a_spec_whose_laws_hold(name: str) -> None:
    spec: Spec = parse(EXAMPLES[name], name)
    assert list(VALIDATOR.iter_errors(load(EXAMPLES[name]))) == []
    with located(spec.source):
        assert prove(lift(spec)).laws


def test_fragments_are_yaml() -> None:
    fragments = [body for fragment, body in BLOCKS if fragment]
    assert fragments
    for body in fragments:
        assert set(load(body)) <= set(TOP_KEYS)
        assert not parses(body)


def test_the_running_example_is_the_builtin() -> None:
    assert EXAMPLES["gae"] == (SPECS / "gae.yaml").read_text(encoding="utf-8")


def test_the_manual_names_everything() -> None:
    words = {*TOP_KEYS, *SCAN_KEYS, *OPERATOR_KEYS, *KINDS, *DIRECTIONS, *COEFFICIENTS, *CALL_WORDS, "before", "after"}
    tables = [line for line in MANUAL.splitlines() if line.startswith("|")]
    prose = re.sub(r"```yaml.*?```", "", MANUAL, flags=re.DOTALL)
    for word in words:
        assert re.search(rf"(?<![A-Za-z_]){word}(?![A-Za-z_])", prose), word
    for key in (*TOP_KEYS, *SCAN_KEYS, *KINDS, *COEFFICIENTS):
        assert any(re.search(rf"`{key}`", line.split("|")[1]) for line in tables), key
    for function in FUNCTIONS:
        assert any(re.search(rf"`{function}\(", line.split("|")[1]) for line in tables), function


def test_the_manual_lists_what_compile_takes() -> None:
    section = MANUAL.partition("## compile and the call\n")[2].partition("\n## ")[0]
    assert f"rlscan.compile{signature_text()}" in section
    listed = [word for line in section.splitlines() for word in re.findall(r"^\| `(\w+)` \|", line)]
    assert listed == [*inspect.signature(entry.compile).parameters]
    assert set(COMPILE_WORDS) == set(listed) - {"spec"}
    named = section.partition("The builtins are ")[2]
    assert sorted(re.findall(r"`(\w+)`", named)) == sorted(store.builtins())
    # A layout is compiled for, nowhere in the manual given to a call.
    for found in re.finditer(r'layout="tb"', MANUAL):
        assert MANUAL[: found.start()].endswith("rlscan.compile(spec, ")


def signature_text() -> str:
    taken = inspect.signature(entry.compile).parameters.values()
    return (
        "(spec, *, "
        + ", ".join(f"{p.name}={json.dumps(p.default)}" for p in taken if p.name != "spec").replace("null", "None")
        + ")"
    )


def test_the_manual_lists_the_words_that_are_taken() -> None:
    taken = MANUAL.partition("Taken are ")[2].partition("A name is defined once")[0]
    assert set(re.findall(r"`(\w+)`", taken)) == RESERVED | CALL_WORDS


def test_the_manual_lists_every_code_with_its_meaning() -> None:
    listed = re.findall(r"^\| `(RLS\d+)` \| (.*?) \| (.+) \|$", MANUAL, re.MULTILINE)
    assert [(code, what) for code, what, _ in listed] == list(CODES.items())


def test_the_manuals_error_is_the_real_one() -> None:
    text = EXAMPLES["gae"].replace("delta: rewards[t] + ", "delta: rewards[t] + valeus[t] + ")
    spec = parse(text, "gae.yaml")
    with pytest.raises(SpecError) as caught, located(spec.source):
        lift(spec)
    place, _, *rest = str(caught.value).splitlines()
    for line in (place, *rest):
        assert f"    {line}\n" in MANUAL


def test_the_manual_lists_the_gallery() -> None:
    listed = re.findall(r"^\| \[`(\w+)`\]\(gallery/(\w+)\.yaml\) \| (.+) \| (.+) \|$", MANUAL, re.MULTILINE)
    specs = [parse(*store.find_spec(name)) for name in store.gallery()]
    assert listed == [(s.name, s.name, s.title, ", ".join(o.name for o in s.outputs)) for s in specs]


def test_the_first_mistakes_have_the_codes_they_say() -> None:
    table = MANUAL.partition("### What often goes wrong first")[2].partition("\nAn editor")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    assert len(rows) >= 12
    for row in rows:
        codes = re.findall(r"`(RLS\d+)`", row[-1])
        assert codes
        for code in codes:
            assert list(GOLDEN.glob(f"*/{code.lower()}-*.txt")), code


@pytest.mark.parametrize("name", store.gallery())
def test_the_gallery_is_in_the_schema(name: str) -> None:
    assert list(VALIDATOR.iter_errors(load(store.find_spec(name)[0]))) == []


# -- the schema -----------------------------------------------------------------------------------


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_the_schema_is_closed_everywhere() -> None:
    def visit(node: Any) -> None:
        if isinstance(node, dict):
            # A branch of oneOf narrows the object around it, whose own keys are closed.
            if node.get("type") == "object" and ("properties" in node or "propertyNames" in node):
                assert "additionalProperties" in node
                assert ("propertyNames" in node) == (node["additionalProperties"] is not False)
            for value in node.values():
                visit(value)
        if isinstance(node, list):
            for value in node:
                visit(value)

    visit(SCHEMA)


def test_the_schema_has_the_parsers_words() -> None:
    scan = SCHEMA["$defs"]["scan"]["properties"]
    assert set(SCHEMA["properties"]) == set(TOP_KEYS)
    assert set(scan) == set(SCAN_KEYS)
    assert set(scan["direction"]["enum"]) == set(DIRECTIONS)
    assert set(scan["operator"]["anyOf"][0]["enum"]) == set(COEFFICIENTS)
    assert set(SCHEMA["$defs"]["operator"]["properties"]) == set(OPERATOR_KEYS)
    assert scan["carries"]["maxProperties"] == MAX_CARRIES
    assert SCHEMA["$defs"]["operator"]["properties"]["elements"]["maxProperties"] == MAX_ELEMENTS
    assert SCHEMA["$defs"]["name"]["maxLength"] == MAX_NAME
    assert SCHEMA["$defs"]["expression"]["anyOf"][0]["maxLength"] == MAX_TEXT


@pytest.mark.parametrize(
    "name",
    [
        *sorted(RESERVED), *keyword.kwlist, *sorted(CALL_WORDS), "x", "x1", "x_1", "rho_bar", "a" * 40, "a" * 41, "_x", "x_",
        "x__y", "X", "x-y", "x.y", "1x", "xλ", "", "in_", "infs", "nota", "t1", "b", "is_last", "x y", "maximum",
    ],
)  # fmt: skip
def test_names(name: str) -> None:
    let = (
        f"rlscan: 1\nname: n\ninputs: {{q: 'f[B]'}}\nlet: {{'{name}': 1}}\n"
        "scan: {direction: forward, carry: c, a: 1, b: 1, start: 0}\noutputs: {o: 1}\n"
    )
    assert in_schema(let) == parses(let)
    given = let.replace("q:", f"'{name}':").replace(f"'{name}': 1", "w: 1")
    assert in_schema(given) == parses(given)


TYPES = [
    "f[B]", "f[B, T]", "f[B,T,A]", "num[B, T, F?]", "int[B, T] = 1", "int[B] = -1", "flag[B, T] = true", "f[B] = inf",
    "f[B] = -1e3", "f [ B , T ] = .5", "f[B, A]", "f[B, T, A, Actions]",
    "", "f", "f[]", "f[T]", "f[T, B]", "f[B, A, T]", "f[B?]", "f[B, T?]", "f[B, t]", "float[B]", "f[B, ]", "f[B] =", "f[B] = x",
    "f[B] = true", "flag[B] = 1", "flag[B] = True", "int[B] = 0.5", "int[B] = inf", "f[B] = 1_0", "f[B] = 0x1", "f[B] 0",
    "[B, T]", "f(B)", "f[B, None]", "f[B, T, A??]", "f[B][T]",
]  # fmt: skip


@pytest.mark.parametrize("written", TYPES)
@pytest.mark.parametrize("name", ["gae"])
def test_types(written: str, name: str) -> None:
    text = EXAMPLES[name].replace("  last_value:   f[B]", f"  last_value: '{written}'")
    assert in_schema(text) == parses(text) == (TYPES.index(written) < TYPES.index(""))


PARAMS = [
    "0.9", "9e-1", "in [0, 1]", "0.9 in [0,1]", "1 in [ 0 , inf ]", "-1 in [-inf, 0]", ".5", "inf", "-inf", "'0.9'",
    "", "~", "[0, 1]", "in", "0.9 in", "0.9 in [0, 1)", "x", "0.9 [0, 1]", "in [0, 1, 2]", "true", ".inf", "nan", "0x1",
    "1_0", "{a: 1}", "in (0, 1)",
]  # fmt: skip


@pytest.mark.parametrize("written", PARAMS)
def test_params(written: str) -> None:
    text = EXAMPLES["gae"].replace("0.99 in [0, 1]", written)
    good = PARAMS.index(written) < PARAMS.index("")
    assert parses(text) == good
    # `.inf` is a number to an editor before the schema sees it.
    assert in_schema(text) == (good or written == ".inf")


OWN = "operator: {elements: {a: 1}, combine: {a: first.a}, identity: {a: 1}, apply: s}"
SCANS = {
    "direction: backward, carry: s, a: 1, b: 1, start: 0": True,
    "direction: backward, carry: s, update: s, start: 0, reset: true, keep: false": True,
    "direction: backward, carry: s, update: s, start: 0, operator: affine": True,
    "direction: backward, carry: s, update: s, start: 0, operator: max_plus": False,
    "direction: backward, carry: s, a: 1, b: 1, start: 0, operator: affine": True,
    "direction: backward, carry: s, a: 1, b: 1, start: 0, operator: max_plus": True,
    "direction: backward, carry: s, a: 1, b: 1, lo: 0, hi: 1, start: 0, operator: clipped_affine": True,
    "direction: backward, carries: {s: {update: s, start: 0}, r: {update: r, start: 0}}": True,
    "direction: backward, carries: {s: {update: s, start: 0}, r: {update: r, start: 0}}, operator: affine, keep: true": True,
    f"direction: forward, carry: s, start: 0, {OWN}": True,
    "direction: backward, carry: s, a: 1, b: 1": False,
    "direction: backward, carry: s, a: 1, start: 0": False,
    "direction: backward, carry: s, update: s, a: 1, start: 0": False,
    "direction: backward, carry: s, update: s, a: 1, b: 1, start: 0": False,
    "direction: backward, carry: s, a: 1, b: 1, lo: 0, start: 0": False,
    "direction: backward, carry: s, a: 1, b: 1, lo: 0, hi: 1, start: 0": False,
    "direction: backward, carry: s, a: 1, b: 1, lo: 0, start: 0, operator: clipped_affine": False,
    "direction: backward, carry: s, a: 1, b: 1, lo: 0, hi: 1, start: 0, operator: max_plus": False,
    "direction: backward, carry: s, start: 0": False,
    "direction: backward, a: 1, b: 1, start: 0": False,
    "carry: s, a: 1, b: 1, start: 0": False,
    "direction: up, carry: s, a: 1, b: 1, start: 0": False,
    "direction: backward, carry: s, a: 1, b: 1, start: 0, operator: plus": False,
    "direction: backward, carry: s, a: 1, b: 1, start: 0, begin: 0": False,
    "direction: backward, carry: s, a: ~, b: 1, start: 0": False,
    "direction: backward, carry: s, a: [1], b: 1, start: 0": False,
    "direction: backward, carry: [s], a: 1, b: 1, start: 0": False,
    "direction: backward, carries: {s: {update: s, start: 0}}": False,
    "direction: backward, carries: {s: {update: s, start: 0}, r: {update: r}}": False,
    "direction: backward, carries: {s: {update: s, start: 0}, r: {update: r, start: 0}}, start: 0": False,
    "direction: backward, carries: {s: {update: s, start: 0}, r: {update: r, start: 0}}, operator: max_plus": False,
    f"direction: forward, carry: s, start: 0, a: 1, {OWN}": False,
    "direction: forward, carry: s, start: 0, operator: {elements: {a: 1}, combine: {a: first.a}, apply: s}": False,
    "direction: forward, carry: s, start: 0, operator: {elements: {}, combine: {}, identity: {}, apply: s}": False,
}


@pytest.mark.parametrize("written", SCANS)
def test_scans(written: str) -> None:
    text = f"rlscan: 1\nname: n\ninputs: {{q: 'f[B]'}}\nscan: {{{written}}}\noutputs: {{o: 1}}\n"
    assert parses(text) == in_schema(text) == SCANS[written]
    several = text.replace("scan: {", "scans: [{").replace("}\noutputs", "}]\noutputs")
    assert parses(several) == in_schema(several) == SCANS[written]


@pytest.mark.parametrize(
    "path", sorted([*SPECS.glob("*.yaml"), *(GOLDEN / "meaning").glob("*.yaml")]), ids=lambda p: p.stem
)
def test_what_parses_is_in_the_schema(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    parse(text)
    for loader in (Core, yaml.SafeLoader):
        assert list(VALIDATOR.iter_errors(load(text, loader))) == [], loader


#: what a schema does not see: YAML's own machinery and doubled keys, and what depends on another place
BLIND = {
    "rls101-anchor", "rls101-surrogate", "rls101-tag-directive", "rls102-element", "rls103-input",
    "rls103-key", "rls104-element", "rls108-axis-twice", "rls108-optional-here-not-there", "rls109-empty-range",
    "rls109-outside", "rls109-yaml-infinity", "rls111-carry-and-output", "rls111-element-and-carry", "rls111-let-and-input",
    "rls112-param", "rls112-required", "rls112-twice", "rls112-unknown", "rls301-crosses",
}  # fmt: skip


@pytest.mark.parametrize("path", sorted((GOLDEN / "parse").glob("*.yaml")), ids=lambda path: path.stem)
def test_what_is_refused_is_not_in_the_schema(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    try:
        value = load(text)
    except (yaml.YAMLError, ValueError, OverflowError):
        assert path.stem.startswith("rls101") or path.stem == "rls105-key-is-a-list"
        return
    # Of an expression a schema sees the letters and a few words only.
    if not path.stem.startswith("rls2"):
        assert VALIDATOR.is_valid(value) == (path.stem in BLIND)
