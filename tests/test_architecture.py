"""What holds of the sources themselves: layers, lazy imports, purity of the passes, and templates without logic."""

from __future__ import annotations

import ast
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jinja2
import pytest
from jinja2 import nodes

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "rlscan"
SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
TEMPLATES = sorted((ROOT / "templates").iterdir())

#: From the top down. A module imports from rows below its own; those of one row know nothing of each other.
LAYERS = (
    ("rlscan.__main__",),
    ("rlscan.cli",),
    ("rlscan.bench.commands",),
    ("rlscan.bench.report", "rlscan.bench.plots"),
    ("rlscan.bench.harness", "rlscan.bench.tune"),
    ("rlscan.bench.peers",),
    ("rlscan.bench.scans", "rlscan.bench.cases", "rlscan.bench.clock"),
    ("rlscan.demo", "rlscan.trial", "rlscan.start", "rlscan.bench", "rlscan.refusals"),
    ("rlscan",),
    ("rlscan.entry",),
    # the Estimator
    ("rlscan.runtime",),
    ("rlscan.relaunch", "rlscan.manual", "rlscan.buffers", "rlscan.host", "rlscan.verdicts"),
    ("rlscan.binding",),
    ("rlscan.compiler",),
    # the disk
    ("rlscan.store",),
    # text
    ("rlscan.emit", "rlscan.page"),
    ("rlscan.backends", "rlscan.latex"),
    ("rlscan.backends.chunks",),
    ("rlscan.backends.triton", "rlscan.backends.cpu"),
    ("rlscan.backends.base",),
    ("rlscan.backends.printer", "rlscan.backends.tiles"),
    ("rlscan.schedule",),
    ("rlscan.lower",),
    ("rlscan.names", "rlscan.needs", "rlscan.sweeps"),
    ("rlscan.program",),
    # laws
    ("rlscan.laws",),
    ("rlscan.isolation", "rlscan.algebra", "rlscan.beyond"),
    # meaning
    ("rlscan.lift", "rlscan.oracle", "rlscan.parse", "rlscan.draw"),
    ("rlscan.affine", "rlscan.scope", "rlscan.declarations", "rlscan.ranges", "rlscan.ends"),
    ("rlscan.expressions", "rlscan.words"),
    ("rlscan.nodes", "rlscan.operators"),
    ("rlscan.ir",),
    ("rlscan.choice",),
    ("rlscan.spec",),
    ("rlscan.diagnostics",),
)
DEPTH = {name: depth for depth, row in enumerate(LAYERS) for name in row}

#: Libraries too heavy to be loaded before they are needed: imported inside functions, and only these.
LAZY = {"torch", "triton", "sympy", "numba", "matplotlib", "gymnasium"}
#: Modules that are loaded with torch, and so import it at their top; they themselves are imported late.
WITH_TORCH = {"rlscan.runtime", "rlscan.relaunch"}
#: Imports of rlscan's own inside functions: what keeps torch out of the compiler, and the compiler out of a first call.
LATE = {("rlscan.entry", "rlscan.runtime"), ("rlscan.entry", "rlscan.compiler"), ("rlscan.entry", "rlscan.schedule")}

#: A pass is a function of its arguments: it has no use for files, clocks, chance, the environment or a device.
PASSES = [name for name in SOURCES if DEPTH.get(name, 0) > DEPTH["rlscan.store"]]
PURE = {
    *(
        "__future__",
        "abc",
        "ast",
        "collections",
        "contextlib",
        "dataclasses",
        "difflib",
        "enum",
        "fractions",
        "functools",
    ),
    *("hashlib", "itertools", "keyword", "math", "operator", "re", "typing"),
    *("jinja2", "numpy", "sympy", "yaml", "rlscan"),
}


class Import(NamedTuple):
    """One name that a module imports. at_top: whether importing the module imports it."""

    module: str
    line: int
    at_top: bool
    for_types: bool


def imports(name: str, tree: ast.Module) -> Iterator[Import]:
    """Every import of a module, wherever it stands, as absolute names of modules."""

    def walk(body: ast.AST, at_top: bool, for_types: bool) -> Iterator[Import]:
        for node in ast.iter_child_nodes(body):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, node.lineno, at_top, for_types)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{name}:{node.lineno}: relative import"
                assert node.module
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    yield Import(whole if whole in SOURCES else node.module, node.lineno, at_top, for_types)
            else:
                types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
                inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
                yield from walk(node, at_top and not inside, for_types or types)

    return walk(tree, True, False)


def tree(name: str) -> ast.Module:
    return ast.parse(SOURCES[name].read_text(encoding="utf-8"))


def test_every_module_has_its_layer() -> None:
    assert set(DEPTH) == set(SOURCES)


def layer_faults(name: str, parsed: ast.Module) -> list[str]:
    """Imports that go up or sideways."""
    return [
        f"{name}:{found.line} imports {found.module}"
        for found in imports(name, parsed)
        if found.module.split(".")[0] == "rlscan" and DEPTH[found.module] <= DEPTH[name]
    ]


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "rlscan"])
def test_imports_go_down(name: str) -> None:
    assert layer_faults(name, tree(name)) == []


def lazy_faults(name: str, parsed: ast.Module) -> list[str]:
    """Heavy libraries at the top; anything else inside functions."""
    faults = []
    for found in imports(name, parsed):
        heavy = found.module.split(".")[0] in LAZY
        if found.for_types:
            continue
        if found.at_top and heavy and not (name in WITH_TORCH and found.module == "torch"):
            faults.append(f"{name}:{found.line} imports {found.module} at its top")
        if not found.at_top and not heavy and (name, found.module) not in LATE and found.module != "importlib":
            faults.append(f"{name}:{found.line} hides the import of {found.module} in a function")
    return faults


@pytest.mark.parametrize("name", SOURCES)
def test_heavy_libraries_are_imported_late_and_nothing_else_is(name: str) -> None:
    assert lazy_faults(name, tree(name)) == []


def purity_faults(name: str, parsed: ast.Module) -> list[str]:
    faults = [
        f"{name}:{found.line} imports {found.module}"
        for found in imports(name, parsed)
        if found.module.split(".")[0] not in PURE
    ]
    for node in ast.walk(parsed):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("open", "print", "input")
        ):
            faults.append(f"{name}:{node.lineno} calls {node.func.id}")
        if isinstance(node, ast.Global):
            faults.append(f"{name}:{node.lineno} rebinds a global")
    return faults


@pytest.mark.parametrize("name", PASSES)
def test_passes_are_pure(name: str) -> None:
    assert purity_faults(name, tree(name)) == []


#: What runs text, and the modules that do so: rlscan's own emitted text, never a spec's; of sympify, a number alone.
EVALUATES = {"rlscan.relaunch": {"exec"}, "rlscan.algebra": {"sympify"}}


@pytest.mark.parametrize("name", SOURCES)
def test_a_spec_can_run_no_code(name: str) -> None:
    forbidden = {"eval", "exec", "sympify", "parse_expr", "lambdify", "__import__"}
    used = {node.id for node in ast.walk(tree(name)) if isinstance(node, ast.Name)}
    used |= {node.attr for node in ast.walk(tree(name)) if isinstance(node, ast.Attribute)}
    assert used & forbidden == EVALUATES.get(name, set())


def mutable_dataclasses(parsed: ast.Module) -> list[str]:
    """Those that are not frozen; a private one may be under construction."""
    return [
        node.name
        for node in ast.walk(parsed)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for decorator in map(ast.unparse, node.decorator_list)
        if decorator.startswith("dataclass") and ("frozen=True" not in decorator or "slots=True" not in decorator)
    ]


@pytest.mark.parametrize("name", SOURCES)
def test_data_is_frozen(name: str) -> None:
    assert mutable_dataclasses(tree(name)) == []


@pytest.mark.parametrize("name", SOURCES)
def test_every_module_says_what_it_is(name: str) -> None:
    docstring = ast.get_docstring(tree(name))
    assert docstring
    assert len(docstring.splitlines()[0]) > 20


def test_these_checks_can_fail() -> None:
    up = ast.parse("def f():\n    from rlscan import emit")
    assert layer_faults("rlscan.ir", up) == ["rlscan.ir:2 imports rlscan.emit"]
    assert layer_faults("rlscan.lift", ast.parse("from rlscan.parse import parse"))
    assert layer_faults("rlscan.lift", ast.parse("import rlscan"))
    assert lazy_faults("rlscan.laws", ast.parse("import sympy"))
    assert lazy_faults("rlscan.laws", ast.parse("class A:\n  from torch import nn"))
    assert not lazy_faults("rlscan.laws", ast.parse("def f():\n  import sympy"))
    assert lazy_faults("rlscan.laws", ast.parse("def f():\n  import json"))
    assert not lazy_faults("rlscan.demo", ast.parse("if TYPE_CHECKING:\n  from torch import Tensor"))
    for impure in ("import os", "from pathlib import Path", "def f(): import random", "open('x')", "print(1)"):
        assert purity_faults("rlscan.lift", ast.parse(impure)), impure
    assert mutable_dataclasses(ast.parse("@dataclass\nclass A: ...")) == ["A"]


def test_public_names_are_what_they_say() -> None:
    """Also after a compile has imported everything: a submodule of the same name would take a function's place."""
    code = (
        "import rlscan, types\n"
        "rlscan.compile('gae')\n"
        "names = {n: getattr(rlscan, n) for n in rlscan.__all__}\n"
        "print(sorted(n for n, x in names.items() if isinstance(x, types.ModuleType)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


# -- templates ---------------------------------------------------------------------------------------------------------


def field(node: nodes.Node) -> bool:
    """`name` or `name.attr`."""
    if isinstance(node, nodes.Getattr):
        return isinstance(node.node, nodes.Name)
    return isinstance(node, nodes.Name)


def template_faults(text: str) -> list[str]:
    """Whatever is more than a hole, a loop over a field, a choice on a flag, or a macro."""
    parsed = jinja2.Environment(autoescape=False).parse(text)
    macros = {node.name for node in parsed.find_all(nodes.Macro)}
    for node in parsed.find_all(nodes.FromImport):
        macros |= {name if isinstance(name, str) else name[1] for name in node.names}
    faults: list[str] = []

    def fault(node: nodes.Node, what: str) -> None:
        faults.append(f"line {node.lineno}: {what}")

    def body(children: list[nodes.Node]) -> None:
        for child in children:
            statement(child)

    def statement(node: nodes.Node) -> None:
        match node:
            case nodes.TemplateData() | nodes.FromImport(template=nodes.Const()):
                pass
            case nodes.Output():
                body(node.nodes)
            case nodes.Macro():
                if node.defaults:
                    fault(node, "a macro with defaults")
                body(node.body)
            case nodes.If():
                if not isinstance(node.test, nodes.Getattr) or not field(node.test):
                    fault(node, "an if on more than a flag")
                for part in (node.body, node.elif_, node.else_):
                    body(part)
            case nodes.For():
                if not isinstance(node.target, nodes.Name) or not field(node.iter) or node.test or node.recursive:
                    fault(node, "a for over more than a field")
                body(node.body)
                body(node.else_)
            case nodes.Call():
                if not isinstance(node.node, nodes.Name) or node.node.name not in macros:
                    fault(node, "a call of something that is no macro")
                if node.kwargs or node.dyn_args or node.dyn_kwargs or not all(field(x) for x in node.args):
                    fault(node, "a macro's argument that is more than a field")
            case nodes.FilterBlock(filter=nodes.Filter(name="indent", args=[nodes.Const()])):
                body(node.body)
            case nodes.Getattr() if field(node):
                pass
            case nodes.Name():
                pass
            case _:
                fault(node, type(node).__name__)

    body(parsed.body)
    return faults


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_hold_no_logic(path: Path) -> None:
    assert path.name.endswith(".j2")
    assert template_faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "{{ k.a + 1 }}",
        "{{ k.a|upper }}",
        "{{ k.a.b }}",
        "{{ k['a'] }}",
        "{{ k.a() }}",
        "{{ range(3) }}",
        "{{ 'a' ~ k.b }}",
        "{{ 1 if k.a else 2 }}",
        "{{ k.a == 1 }}",
        "{{ not k.a }}",
        "{{ loop.index + 1 }}",
        "{{ 3 }}",
        "{% set a = 1 %}",
        "{% if k.a == 1 %}{% endif %}",
        "{% if not k.a %}{% endif %}",
        "{% if k.a and k.b %}{% endif %}",
        "{% if k.a is defined %}{% endif %}",
        "{% if k.a %}{% elif k.b > 1 %}{% endif %}",
        "{% if k.a %}{% else %}{{ k.b * 2 }}{% endif %}",
        "{% for x in range(3) %}{% endfor %}",
        "{% for x in k.a if x %}{% endfor %}",
        "{% for x in k.a %}{{ x + 1 }}{% endfor %}",
        "{% for x, y in k.a %}{% endfor %}",
        "{% filter upper %}a{% endfilter %}",
        "{% filter indent(k.n) %}a{% endfilter %}",
        "{% filter indent(4) %}{{ k.a + 1 }}{% endfilter %}",
        "{% include 'a' %}",
        "{% macro m(a=1) %}{% endmacro %}",
        "{% macro m(a) %}{% set b = a %}{% endmacro %}",
        "{% macro m(a) %}{% endmacro %}{{ m(k.a + 1) }}",
        "{% do k.a.append(1) %}",
    ],
)
def test_the_lint_sees_logic(text: str) -> None:
    # `do` is not even in the language, without an extension.
    with contextlib.suppress(jinja2.TemplateSyntaxError):
        assert template_faults(text)


def test_the_lint_lets_the_rest_through() -> None:
    text = (
        "{% from 'x.j2' import head %}{{ head(k) }}{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m(k) }}"
        "{% filter indent(4, first=True) %}{{ m(k) }}{% endfilter %}"
        "{% for x in k.a %}{{ x }}{{ x.y }}{% else %}b{% endfor %}{% if k.f %}a{% elif k.g %}b{% else %}c{% endif %}"
    )
    assert template_faults(text) == []


def test_no_template_is_left_over() -> None:
    """Each is emitted from, or imported by one that is."""
    from rlscan.backends import BACKENDS

    used = {name for backend in BACKENDS.values() for name, _ in backend.schedules.values()}
    parsed = {path.name: jinja2.Environment(autoescape=False).parse(path.read_text("utf-8")) for path in TEMPLATES}
    pending = list(used)
    while pending:
        for node in parsed[pending.pop()].find_all(nodes.FromImport):
            assert isinstance(node.template, nodes.Const)
            if node.template.value not in used:
                used.add(node.template.value)
                pending.append(node.template.value)
    assert used == {path.name for path in TEMPLATES}


def test_no_test_comes_after_the_peers(request: pytest.FixtureRequest) -> None:
    """In a process that has imported them a fork may hang."""
    late = [item.get_closest_marker("peers") is not None for item in request.session.items]
    assert late == sorted(late)
