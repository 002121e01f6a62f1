"""Expressions as Python text, shared by every backend: precedence, and a table of functions for a backend to fill."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from rlscan.ir import Call, Const, Expr, Inside, Var

#: binding strength of Python's operators
_OR, _AND, _NOT, _COMPARE, _BITOR, _BITAND, _SUM, _PRODUCT, _UNARY, _ATOM = range(10)
_INFIX: dict[str, tuple[str, int]] = {
    "add": ("+", _SUM),
    "sub": ("-", _SUM),
    "mul": ("*", _PRODUCT),
    "div": ("/", _PRODUCT),
    "lt": ("<", _COMPARE),
    "le": ("<=", _COMPARE),
    "gt": (">", _COMPARE),
    "ge": (">=", _COMPARE),
    "eq": ("==", _COMPARE),
    "ne": ("!=", _COMPARE),
}


class Printer(ABC):
    """Prints lowered expressions. A backend gives its functions, literals and truth operators."""

    #: function of the IR → callable of the target
    functions: ClassVar[dict[str, str]] = {}
    #: "and", "or" → (symbol, strength)
    logic: ClassVar[dict[str, tuple[str, int]]] = {"and": ("and", _AND), "or": ("or", _OR)}
    negation: tuple[str, int] = ("not ", _NOT)

    def text(self, expr: Expr) -> str:
        return self.render(expr)[0]

    @abstractmethod
    def literal(self, value: float | int | bool, alone: bool) -> str:
        """A literal; `alone` where no block stands beside it whose type it would take."""

    def inside(self, offset: int) -> str:
        return f"t + {offset} < T" if offset > 0 else f"t - {-offset} >= 0"

    @abstractmethod
    def select(self, condition: Expr, x: Expr, y: Expr) -> tuple[str, int]: ...

    @abstractmethod
    def number(self, expr: Expr) -> str:
        """An integer as a number of the accumulation type."""

    def function(self, fn: str, args: Sequence[Expr]) -> str:
        parts = [self.argument(arg) for arg in args]
        if fn == "clip":
            low, high = self.functions["max"], self.functions["min"]
            return f"{high}({low}({parts[0]}, {parts[1]}), {parts[2]})"
        name = self.functions[fn]
        if fn in ("min", "max"):
            nested = parts[0]
            for part in parts[1:]:
                nested = f"{name}({nested}, {part})"
            return nested
        return f"{name}({', '.join(parts)})"

    def argument(self, expr: Expr) -> str:
        if isinstance(expr, Const):
            return repr(expr.value) if expr.kind == "int" else self.literal(expr.value, True)
        return self.text(expr)

    def render(self, expr: Expr) -> tuple[str, int]:
        """Text and the strength of its outermost operator."""
        if isinstance(expr, Var):
            return expr.name, _ATOM
        if isinstance(expr, Const) and expr.kind == "int":
            return repr(expr.value), _ATOM
        if isinstance(expr, Const):
            return self.literal(expr.value, False), _ATOM if isinstance(expr.value, bool) or expr.value >= 0 else _UNARY
        if isinstance(expr, Inside):
            return self.inside(expr.offset), _COMPARE
        if not isinstance(expr, Call):
            raise AssertionError(f"{type(expr).__name__} is lowered before it is printed")
        fn, args = expr.fn, expr.args
        if fn in _INFIX:
            symbol, strength = _INFIX[fn]
            # Comparisons do not associate, and x - (y - z) needs its brackets: the right side must bind tighter.
            left = self.within(args[0], strength + (strength == _COMPARE))
            return f"{left} {symbol} {self.within(args[1], strength + 1)}", strength
        if fn in self.logic:
            symbol, strength = self.logic[fn]
            return f" {symbol} ".join(self.within(arg, strength + 1) for arg in args), strength
        if fn == "not":
            symbol, strength = self.negation
            return f"{symbol}{self.within(args[0], strength)}", strength
        if fn == "neg":
            return f"-{self.within(args[0], _UNARY)}", _UNARY
        if fn == "where":
            return self.select(*args)
        if fn == "number":
            return self.number(args[0]), _ATOM
        return self.function(fn, args), _ATOM

    def within(self, expr: Expr, strength: int) -> str:
        text, own = self.render(expr)
        return text if own >= strength else f"({text})"


class Lines:
    """Text lines with indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def add(self, text: str, note: str = "") -> None:
        self.lines.append(f"{'    ' * self.depth}{text}{f'  # {note}' if note else ''}")

    def indent(self, steps: int = 1) -> None:
        self.depth += steps
