"""One expression of the spec language: text → a Python `ast` in which only the nodes of the whitelist occur.

Three steps. Words and signs are read one by one, so that what the language lacks (`&`, `lambda`, a string, `×`) is
named at its place with what to write instead, in the same words on every Python. Then `ast.parse`, on text that is by
now short, ASCII and of bounded nesting; nothing is ever compiled or evaluated. Then the tree is checked against the
whitelist.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rlscan.diagnostics import Span, SpecError
from rlscan.nodes import Scalar, near, shown
from rlscan.spec import FUNCTIONS, REDUCTIONS, Expression

MAX_NAME = 40
MAX_TEXT = 2000
MAX_DEPTH = 40
MAX_NODES = 400
MAX_OFFSET = 64
MAX_POWER = 8
MAX_FLOAT = 1e30
MAX_INT = 2**53

NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TOKEN = re.compile(
    r"(?P<number>\.?[0-9](?:[eE][+-][0-9]+|[0-9A-Za-z_.])*)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>\*\*|//|<<|>>|<=|>=|==|!=|:=|->|&&|\|\||.)",
    re.DOTALL,
)

#: What the language lacks, and what to write instead.
_INSTEAD = {
    "&": "write `and`",
    "&&": "write `and`",
    "|": "write `or`",
    "||": "write `or`",
    "~": "write `not`",
    "!": "write `not`",
    "^": "a power is written `x ** 2`",
    "//": "the arithmetic is + - * / **",
    "%": "the arithmetic is + - * / **",
    "@": "a sum over an axis is written sum(A, x[t] * y[t])",
    "<<": "the arithmetic is + - * / **",
    ">>": "the arithmetic is + - * / **",
    ":=": "name the value under `let`",
    "=": "equality is written `==`; a function's arguments have no names",
    ":": "one step is read at a time: x[t], x[t+1]",
    "?": "write where(condition, x, y)",
    "{": "an expression has numbers and flags only",
    "}": "an expression has numbers and flags only",
    '"': "an expression has numbers and flags only",
    "'": "an expression has numbers and flags only",
    "True": "write `true`",
    "False": "write `false`",
    "None": "a value that may be absent is an input with a default",
    "if": "write where(condition, x, y)",
    "else": "write where(condition, x, y)",
    "lambda": "name the value under `let`",
    "is": "equality is written `==`",
    "in": "compare with < <= > >= == !=",
    "for": "a sum over an axis is written sum(A, x[t] * y[t])",
}
_LETTERS = {
    "−": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "÷": "/", "≤": "<=", "≥": ">=", "≠": "!=", "∞": "inf", "¬": "not",
    "∧": "and", "∨": "or", "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "λ": "lam", "μ": "mu",
    "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "Σ": "sum(A, …)",
}  # fmt: skip
_WORDS = frozenset({"and", "or", "not"})
_BINARY = frozenset({"+", "-", "*", "/", "**", "<", "<=", ">", ">=", "==", "!=", "and", "or"})
_CLOSES = {")": "(", "]": "["}
_OFFSET_HELP = f"write t, t+n or t-n, with n a whole number up to {MAX_OFFSET}"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    begin: int
    end: int


def expression(scalar: Scalar, *, pairs: bool = False) -> Expression:
    """The expression that a value of a spec holds; `pairs` allows `first.x` and `second.x`, in an operator's combine.

    Raises SpecError with codes RLS201 to RLS207, and RLS110 for a word too long for a name.
    """
    text = scalar.text
    if len(text) > MAX_TEXT:
        raise SpecError("RLS207", f"an expression may have at most {MAX_TEXT} characters", scalar.span, _SPLIT)
    _check_words(scalar)
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SpecError(
            "RLS201", "this is not an expression", scalar.span, "compare the forms in specs/README.md"
        ) from None
    _check_size(scalar, tree)
    _Check(scalar, pairs).check(tree)
    _place(scalar, tree)
    return Expression(text, tree, scalar.span)


_SPLIT = "name its parts under `let`"


# -- words and signs ------------------------------------------------------------------------------------


def _tokens(scalar: Scalar) -> Iterator[_Token]:
    for match in _TOKEN.finditer(scalar.text):
        if match.group() != " ":
            yield _Token(match.lastgroup or "", match.group(), *match.span())


def _check_words(scalar: Scalar) -> None:
    """Refuse what the language lacks, and operands and operators that do not alternate, each at its place."""

    def error(code: str, message: str, token: _Token, help: str) -> SpecError:
        return SpecError(code, message, scalar.at(token.begin, token.end), help)

    open_brackets: list[_Token] = []
    previous: _Token | None = None
    complete = False  # whether what was read so far ends in a value
    for token in _tokens(scalar):
        text = token.text
        _check_allowed(scalar, token)
        if complete and (token.kind in ("number", "name") and text not in _BINARY):
            raise error("RLS201", f"an operator is missing before {shown(text)}", token, "write `*` for a product")
        if text in ("*", "**") and previous and previous.text in ("(", ","):
            raise error("RLS202", "arguments cannot be unpacked", token, "write each argument out")
        if not complete and (text in _BINARY - {"+", "-"} or text in _CLOSES or text in (",", ".")):
            empty_call = text in _CLOSES and previous is not None and previous.text == "("
            if not empty_call:
                raise error(
                    "RLS201", f"a value is missing before {shown(text)}", token, "write a name or a number there"
                )
        if text == "not" and previous and previous.text not in ("(", "[", ",", "and", "or", "not"):
            raise error(
                "RLS201", f"`not` cannot follow {shown(previous.text)}", token, "put it in parentheses: (not x)"
            )
        if text == "[" and not complete:
            raise error("RLS202", "a list is not part of an expression", token, "name each value under `let`")
        if text in "([":
            open_brackets.append(token)
            if len(open_brackets) > MAX_DEPTH:
                raise error("RLS207", f"nested more than {MAX_DEPTH} deep", token, _SPLIT)
        if text in _CLOSES and (not open_brackets or open_brackets.pop().text != _CLOSES[text]):
            raise error("RLS201", f"this {shown(text)} closes nothing", token, "remove it, or open it")
        complete = text in _CLOSES or (token.kind in ("number", "name") and text not in _WORDS)
        previous = token
    if open_brackets:
        token = open_brackets[-1]
        raise error("RLS201", f"this {shown(token.text)} is never closed", token, "close it")
    if not complete:
        last = len(scalar.text)
        message = f"a value is missing after {shown(previous.text)}" if previous else "the value is empty"
        raise SpecError("RLS201", message, scalar.at(last, last + 1), "write an expression")


def _check_allowed(scalar: Scalar, token: _Token) -> None:
    text, span = token.text, scalar.at(token.begin, token.end)
    if token.kind == "number":
        number(text, span)
    elif token.kind == "name" and len(text) > MAX_NAME:
        raise SpecError("RLS110", f"{shown(text)} is not a name", span, f"a name has at most {MAX_NAME} characters")
    elif text in _INSTEAD:
        raise SpecError("RLS202", f"{shown(text)} is not part of the spec language", span, _INSTEAD[text])
    elif token.kind == "name" and keyword.iskeyword(text) and text not in _WORDS:
        help = "an expression has names, numbers, arithmetic, comparisons, and/or/not and functions"
        raise SpecError("RLS202", f"{shown(text)} is not part of the spec language", span, help)
    elif token.kind == "sign" and text not in _BINARY and text not in "()[],.":
        if text in _LETTERS:
            raise SpecError("RLS201", f"{shown(text)} is not ASCII", span, f"write `{_LETTERS[text]}`")
        what = shown(text) if text.isprintable() else f"U+{ord(text[0]):04X}"
        raise SpecError("RLS201", f"{what} means nothing in an expression", span, "remove it, or write it in ASCII")


def number(text: str, span: Span) -> int | float:
    """A literal without its sign: an int where it is written as one; RLS201 where it is none, RLS206 out of bounds."""
    if not NUMBER.fullmatch(text):
        raise SpecError("RLS201", f"{shown(text)} is not a number", span, "write it in decimals: 10, 0.5, 1e-3")
    if text.isdigit():
        if len(text) > 1 and text[0] == "0":
            raise SpecError("RLS201", f"{shown(text)} is not a number", span, "write it without leading zeros")
        if len(text) > 16 or int(text) > MAX_INT:
            raise SpecError(
                "RLS206", f"{shown(text)} is too large", span, "an integer may be at most 2**53; write a float, as 1e20"
            )
        return int(text)
    value = float(text)
    if value > MAX_FLOAT:
        raise SpecError(
            "RLS206", f"{shown(text)} is too large", span, "a number may be at most 1e30; infinity is written `inf`"
        )
    if value == 0 and re.search("[1-9]", re.split("[eE]", text)[0]):
        raise SpecError("RLS206", f"{shown(text)} is too small: it would be zero", span, "write 0 if zero is meant")
    return value


# -- the tree -------------------------------------------------------------------------------------------


def _check_size(scalar: Scalar, tree: ast.expr) -> None:
    """At most MAX_NODES nodes, MAX_DEPTH deep; without recursion, as nothing is known of the tree yet."""
    level: list[ast.expr] = [tree]
    count = depth = 0
    while level:
        count, depth = count + len(level), depth + 1
        if count > MAX_NODES or depth > MAX_DEPTH:
            limit = f"{MAX_NODES} parts" if count > MAX_NODES else f"{MAX_DEPTH} levels"
            raise SpecError("RLS207", f"an expression may have at most {limit}", scalar.span, _SPLIT)
        level = [child for node in level for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]


class _Check:
    """The whitelist, for one expression."""

    def __init__(self, scalar: Scalar, pairs: bool) -> None:
        self.scalar = scalar
        self.pairs = pairs

    def error(self, code: str, message: str, node: ast.AST, help: str) -> SpecError:
        begin = getattr(node, "col_offset", 0)
        return SpecError(code, message, self.scalar.at(begin, getattr(node, "end_col_offset", begin + 1)), help)

    def check(self, node: ast.expr) -> None:
        match node:
            case ast.Constant(value=value) if type(value) in (int, float):
                return
            case ast.Name():
                self.name(node)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                self.check(left)
                self.power(right)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
                self.check(left)
                self.check(right)
            case ast.UnaryOp(op=ast.UAdd()):
                raise self.error("RLS202", "a sign `+` is not part of the spec language", node, "leave it out")
            case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
                self.check(operand)
            case ast.BoolOp(values=values):
                for value in values:
                    self.check(value)
            case ast.Compare(left=left, comparators=comparators):
                for term in (left, *comparators):
                    self.check(term)
            case ast.Call(func=func, args=args, keywords=[]):
                self.call(node, func, args)
            case ast.Subscript(value=value, slice=index):
                self.indexed(value, index)
            case ast.Attribute():
                self.attribute(node)
            case ast.Tuple():
                raise self.error("RLS202", "a pair is not part of an expression", node, "write one value")
            case _:
                raise self.error(
                    "RLS202",
                    "this form is not part of the spec language",
                    node,
                    "an expression has names, numbers, arithmetic, comparisons, and/or/not and functions",
                )

    def name(self, node: ast.Name) -> None:
        if node.id == "t":
            raise self.error(
                "RLS202", "`t` stands in a time index only", node, "a step's number can be an input, `f[B, T]`"
            )
        if node.id in FUNCTIONS:
            raise self.error("RLS202", f"`{node.id}` is a function", node, f"call it: {node.id}(…)")

    def power(self, exponent: ast.expr) -> None:
        help = f"an exponent is a whole number from 0 to {MAX_POWER}; x ** y in general is exp(y * log(x))"
        if isinstance(exponent, ast.Constant) and type(exponent.value) is int:
            if exponent.value > MAX_POWER:
                raise self.error("RLS206", f"the exponent {exponent.value} is too large", exponent, help)
            return
        raise self.error("RLS202", "an exponent is a literal", exponent, help)

    def call(self, node: ast.Call, func: ast.expr, args: list[ast.expr]) -> None:
        if isinstance(func, ast.Attribute):
            bare = f"write {func.attr}(…)" if func.attr in FUNCTIONS else "functions have no dots in their names"
            raise self.error("RLS202", "a method call is not part of the spec language", func, bare)
        if not isinstance(func, ast.Name):
            raise self.error("RLS202", "only a function's name can be called", func, "write `*` for a product")
        name = func.id
        if name not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            help = near(name, list(FUNCTIONS)) or f"the functions are {known}"
            raise self.error("RLS203", f"there is no function {shown(name)}", func, help)
        fewest, most = FUNCTIONS[name]
        over_axis = name in REDUCTIONS and bool(args) and isinstance(args[0], ast.Name) and args[0].id[:1].isupper()
        most = 2 if over_axis else most
        if not fewest <= len(args) <= most:
            wanted = f"{fewest} to {most} arguments" if fewest != most else _arguments(fewest)
            over = " over an axis" if over_axis else ""
            given = f"{len(args)} {'is' if len(args) == 1 else 'are'} given"
            raise self.error("RLS204", f"`{name}`{over} takes {wanted}, and {given}", node, _USE[name])
        if name in ("sum", "logsumexp") and not over_axis:
            raise self.error("RLS202", f"the first argument of `{name}` is an axis", args[0], _USE[name])
        for arg in args[over_axis:]:
            self.check(arg)

    def indexed(self, value: ast.expr, index: ast.expr) -> None:
        if not isinstance(value, ast.Name):
            raise self.error(
                "RLS202", "only a name takes a time index", value, "name the value under `let`, and index that"
            )
        self.name(value)
        match index:
            case ast.Name(id="t"):
                return
            case ast.BinOp(left=ast.Name(id="t"), op=ast.Add() | ast.Sub(), right=ast.Constant(value=int() as n)) if (
                type(n) is int
            ):
                if n > MAX_OFFSET:
                    raise self.error("RLS205", f"the offset {n} is too large", index, _OFFSET_HELP)
                return
            case ast.Tuple(elts=[ast.Name(id="t"), other]):
                picked = ast.unparse(other)
                if len(picked) <= 40:
                    help = f"an element along an axis is picked by take({value.id}[t], {picked})"
                else:
                    help = f"an element along an axis is picked by take({value.id}[t], …)"
                raise self.error("RLS205", "time is the one index", index, help)
        raise self.error("RLS205", "this is not a time index", index, _OFFSET_HELP)

    def attribute(self, node: ast.Attribute) -> None:
        sides = isinstance(node.value, ast.Name) and node.value.id in ("first", "second")
        if not self.pairs:
            help = "`first.x` and `second.x` stand in an operator's `combine` only" if sides else "names have no dots"
            raise self.error("RLS202", "an attribute is not part of an expression", node, help)
        if not sides:
            raise self.error(
                "RLS202", "an element is read of `first` or of `second`", node, "write `first.x` or `second.x`"
            )


def _arguments(count: int) -> str:
    return f"{count} argument{'s' if count > 1 else ''}"


_USE = {
    "where": "where(condition, x, y) is x where the condition holds, else y",
    "min": "min(x, y, …) of up to 8 values, or min(A, x) over the axis A",
    "max": "max(x, y, …) of up to 8 values, or max(A, x) over the axis A",
    "clip": "clip(x, low, high)",
    "sum": "sum(A, x) sums over the axis A; two values are added with `+`",
    "logsumexp": "logsumexp(A, x) is log(sum(A, exp(x))) without overflow",
    "take": "take(q[t], actions[t]) picks the element of q[t] at actions[t]",
} | {name: f"{name}(x)" for name in ("abs", "exp", "log", "sqrt", "tanh", "sigmoid")}


def _place(scalar: Scalar, tree: ast.expr) -> None:
    """Move the tree's positions from the text to the file: `Expression.at` reads them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            if not scalar.places:
                node.lineno = node.end_lineno = 0
                continue
            span = scalar.at(node.col_offset, node.end_col_offset or node.col_offset + 1)
            node.lineno = node.end_lineno = span.line
            node.col_offset, node.end_col_offset = span.column, span.column + span.length
