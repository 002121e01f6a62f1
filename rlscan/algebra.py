"""Equality of operator expressions over the reals: proved by sympy, or refuted with exact numbers.

The one file that imports sympy. Three steps: a select whose branches agree where its condition holds is arithmetic
(`where(a == 0, b, a·x + b)` is `a·x + b`); the conditions that are left are split into cases; what is then free of selects is
put into a normal form, max over min over expanded polynomials, in which + and products with what is ≥ 0 distribute. sympy
alone does not distribute + over Max.

Each question has so much work and no more: a power of a power of a sum has more terms than any machine, and is left unsettled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import islice, product
from math import comb, prod
from typing import Any

from rlscan.ir import Call, Const, Expr, Var, kind_of, rebuild, walk

_MAX_CASES = 10
#: parts looked at and terms multiplied for one question, about two seconds; what is in use needs a hundredth of it
MAX_WORK = 300_000
#: parts evaluated in search of one counterexample, and binary digits of a number in it
MAX_EVALUATED = 300_000
MAX_DIGITS = 20_000
_SAMPLES = (Fraction(1), Fraction(2), Fraction(0), Fraction(-1), Fraction(3), Fraction(1, 2), Fraction(-2))
#: a distributive-lattice polynomial: the max over rows of the min over a row
Lattice = frozenset[frozenset[Any]]


class Undefined(ArithmeticError):
    """An expression has no exact value at a point."""


class TooMuch(Exception):
    """A question that takes more work than it is given."""


class _Work:
    """What is left of the work for one question."""

    def __init__(self) -> None:
        self.left = MAX_WORK

    def spend(self, amount: int = 1) -> None:
        self.left -= amount
        if self.left < 0:
            raise TooMuch

    def count(self, expr: Expr) -> Expr:
        """The expression, its parts counted."""
        for _ in walk(expr):
            self.spend()
        return expr


def equal(left: Expr, right: Expr, nonnegative: frozenset[str] = frozenset()) -> bool:
    """Whether left = right for all real values of their Vars, those in `nonnegative` being ≥ 0. False: not proved."""
    try:
        return _equal(left, right, nonnegative, _Work())
    except TooMuch:
        return False


def _equal(left: Expr, right: Expr, nonnegative: frozenset[str], work: _Work) -> bool:
    left, right = (
        _plain(work.count(_spread(work.count(_nested(work.count(side))), work)), nonnegative, work)
        for side in (left, right)
    )
    conditions = list(dict.fromkeys(node for side in (left, right) for node in _conditions(side, work)))
    if not conditions:
        return _same(left, right, nonnegative, work)
    if len(conditions) > _MAX_CASES:
        return False
    head = conditions[0]
    return all(
        _equal(_settle(left, head, case, work), _settle(right, head, case, work), nonnegative, work)
        for case in (True, False)
    )


def counterexample(
    left: Expr, right: Expr, nonnegative: frozenset[str] = frozenset()
) -> tuple[dict[str, Fraction], Fraction, Fraction] | None:
    """Small exact numbers at which two expressions differ, with both values; None where none was found."""
    names = sorted({node.name for side in (left, right) for node in walk(side) if isinstance(node, Var)})
    size = 0
    for _ in (node for side in (left, right) for node in walk(side)):
        size += 1
        if size > MAX_EVALUATED:
            return None
    for point in islice(_points(names), max(1, MAX_EVALUATED // size)):
        if any(point[name] < 0 for name in nonnegative & point.keys()):
            continue
        try:
            values = evaluate(left, point), evaluate(right, point)
        except Undefined:
            continue
        if values[0] != values[1]:
            return point, values[0], values[1]
    return None


def evaluate(expr: Expr, point: Mapping[str, Fraction]) -> Fraction:
    """The exact value of an expression over Vars; flags are 0 and 1."""
    if isinstance(expr, Var):
        return point[expr.name]
    if isinstance(expr, Const):
        if expr.value in (float("inf"), float("-inf")):
            raise Undefined
        return Fraction(expr.value)
    if not isinstance(expr, Call):
        raise Undefined
    if expr.fn == "where":
        return evaluate(expr.args[1] if evaluate(expr.args[0], point) else expr.args[2], point)
    args = [evaluate(arg, point) for arg in expr.args]
    power = int(args[1]) if expr.fn == "pow" else 1
    if any((x.numerator.bit_length() + x.denominator.bit_length()) * power > MAX_DIGITS for x in args):
        raise Undefined
    match expr.fn:
        case "add":
            return args[0] + args[1]
        case "sub":
            return args[0] - args[1]
        case "mul":
            return args[0] * args[1]
        case "div" if args[1]:
            return args[0] / args[1]
        case "pow":
            return args[0] ** power
        case "neg":
            return -args[0]
        case "abs":
            return abs(args[0])
        case "min":
            return min(args)
        case "max":
            return max(args)
        case "clip":
            return min(max(args[0], args[1]), args[2])
        case "and":
            return Fraction(all(args))
        case "or":
            return Fraction(any(args))
        case "not":
            return Fraction(not args[0])
        case "lt" | "le" | "gt" | "ge" | "eq" | "ne":
            order = {"lt": args[0] < args[1], "le": args[0] <= args[1], "eq": args[0] == args[1]}
            order |= {"ge": not order["lt"], "gt": not order["le"], "ne": not order["eq"]}
            return Fraction(order[expr.fn])
    raise Undefined


def resolve(expr: Expr) -> Expr:
    """Settle comparisons of constants, truth values and the selects on them; what is left holds for NaN and ∞ too."""
    expr = rebuild(expr, resolve)
    if not isinstance(expr, Call):
        return expr
    args = expr.args
    if expr.fn == "eq" and all(isinstance(arg, Const) for arg in args):
        return Const(args[0] == args[1], "flag")
    if expr.fn == "where" and isinstance(condition := args[0], Const):
        return args[1] if condition.value else args[2]
    if expr.fn == "not" and isinstance(held := args[0], Const):
        return Const(not held.value, "flag")
    if expr.fn in ("and", "or"):
        ends = Const(expr.fn == "or", "flag")
        rest = tuple(arg for arg in args if not isinstance(arg, Const))
        if ends in args:
            return ends
        return Call(expr.fn, rest, "flag", expr.span) if rest else Const(expr.fn == "and", "flag")
    return expr


def _nested(expr: Expr) -> Expr:
    """A select on x or y as a select on x, and inside it one on y."""
    expr = rebuild(expr, _nested)
    if isinstance(expr, Call) and expr.fn == "where":
        condition, held, other = expr.args
        if isinstance(condition, Call) and condition.fn == "or":
            for atom in reversed(condition.args):
                other = Call("where", (atom, held, other), expr.kind)
            return other
    return expr


def _spread(expr: Expr, work: _Work) -> Expr:
    """max(x, y) > c as x > c or y > c, and its like, so that cases are over the single values' comparisons."""
    work.spend()
    expr = rebuild(expr, lambda child: _spread(child, work))
    if not (isinstance(expr, Call) and expr.fn in ("gt", "ge", "lt", "le")):
        return expr
    for side in (0, 1):
        inner = expr.args[side]
        if isinstance(inner, Call) and inner.fn in ("max", "min"):
            # x > c of the greatest is true if of any; of the least, if of all. On the right side it is the other way round.
            any_ = (inner.fn == "max") == (expr.fn in ("gt", "ge")) == (side == 0)
            parts = []
            for value in inner.args:
                pair = (value, expr.args[1]) if side == 0 else (expr.args[0], value)
                parts.append(_spread(Call(expr.fn, pair, "flag"), work))
            return Call("or" if any_ else "and", tuple(parts), "flag")
    return expr


def _points(names: list[str]) -> Iterator[dict[str, Fraction]]:
    """All ones first, then a few hundred fixed pseudo-random points: the same ones in every run."""
    yield dict.fromkeys(names, Fraction(1))
    state = 1
    for _ in range(400):
        point = {}
        for name in names:
            state = (state * 1103515245 + 12345) % 2**31
            point[name] = _SAMPLES[(state >> 16) % len(_SAMPLES)]
        yield point


def _plain(expr: Expr, nonnegative: frozenset[str], work: _Work) -> Expr:
    """Drop each select whose branches agree where its condition holds: x == c, and y at x = c is the other branch."""
    work.spend()
    expr = resolve(rebuild(expr, lambda child: _plain(child, nonnegative, work)))
    if isinstance(expr, Call) and expr.fn == "where":
        condition, held, other = expr.args
        if isinstance(condition, Call) and condition.fn == "eq" and isinstance(value := condition.args[1], Const):
            at = _replace(work.count(other), condition.args[0], value)
            if not any(True for side in (held, at) for _ in _conditions(side, work)) and _same(
                held, at, nonnegative, work
            ):
                return other
    return expr


def _replace(expr: Expr, old: Expr, new: Expr) -> Expr:
    return new if expr == old else rebuild(expr, lambda child: _replace(child, old, new))


def _conditions(expr: Expr, work: _Work) -> Iterator[Expr]:
    """The comparisons that selects in an expression depend on, those without a select inside them."""
    for node in walk(expr):
        work.spend()
        if isinstance(node, Call) and node.fn == "where":
            yield from (atom for atom in _atoms(node.args[0]) if not any(True for _ in _conditions(atom, work)))


def _atoms(flag: Expr) -> Iterator[Expr]:
    if isinstance(flag, Call) and flag.fn in ("and", "or", "not"):
        for arg in flag.args:
            yield from _atoms(arg)
    else:
        yield flag


def _settle(expr: Expr, condition: Expr, holds: bool, work: _Work) -> Expr:
    """The expression where a condition holds, or where it does not."""
    work.spend()
    if expr == condition:
        return Const(holds, "flag")
    if holds and isinstance(condition, Call) and condition.fn == "eq" and expr == condition.args[0]:
        return condition.args[1]
    made = resolve(rebuild(expr, lambda child: _settle(child, condition, holds, work)))
    # A select that was settled inside may leave the condition itself.
    return Const(holds, "flag") if made == condition else made


def _same(left: Expr, right: Expr, nonnegative: frozenset[str], work: _Work) -> bool:
    try:
        return _normal(left, nonnegative, work) == _normal(right, nonnegative, work)
    except Undefined:
        return left == right


def _normal(expr: Expr, nonnegative: frozenset[str], work: _Work) -> Lattice:
    """Max over min over expanded polynomials; Undefined where the functions are not of that kind."""
    import sympy

    def symbol(name: str) -> Any:
        return sympy.Symbol(name, real=True, nonnegative=True if name in nonnegative else None)

    def weight(value: Any) -> int:
        """The parts of a polynomial; a long number has as many as it fills machine words."""
        return sum(
            1 + (int(node.p).bit_length() + int(node.q).bit_length()) // 64 if node.is_Rational else 1
            for node in sympy.preorder_traversal(value)
        )

    def power(base: Any, exponent: int) -> Any:
        terms = len(base.args) if base.is_Add else 1
        work.spend(comb(terms + exponent - 1, exponent) * weight(base) * max(1, exponent))
        return sympy.expand(base**exponent)

    def single(value: Any) -> Lattice:
        if value is sympy.nan:
            raise Undefined
        return frozenset({frozenset({value})})

    def pairwise(x: Lattice, y: Lattice, op: Any) -> Lattice:
        rows = (frozenset(op(p, q) for p in a for q in b) for a in x for b in y)
        return absorbed(rows)

    def absorbed(rows: Iterable[frozenset[Any]]) -> Lattice:
        made = frozenset(rows)
        work.spend(len(made) ** 2)
        return _absorb(made)

    def atom(x: Lattice) -> Any:
        """The one polynomial of a lattice that has no max or min."""
        if len(x) == 1 and len(row := next(iter(x))) == 1:
            return next(iter(row))
        raise Undefined

    def plus(p: Any, q: Any) -> Any:
        work.spend(weight(p) + weight(q))
        value = sympy.expand(p + q)
        if value is sympy.nan:
            raise Undefined
        return value

    def times(p: Any, q: Any) -> Any:
        for a, b in ((p, q), (q, p)):
            # Cases with a zero factor were split off before: what is left of a factor ≥ 0 is positive.
            if b in (sympy.oo, -sympy.oo) and a.is_nonnegative and a != 0:
                return b
        work.spend(weight(p) * weight(q))
        value = sympy.expand(p * q)
        if value is sympy.nan:
            raise Undefined
        return value

    def negate(x: Lattice) -> Lattice:
        """−max min p = min max −p, turned back into max over min."""
        rows = [[-p for p in row] for row in x]
        work.spend(prod(map(len, rows)))
        return absorbed(frozenset(choice) for choice in product(*rows))

    def join(x: Lattice, y: Lattice) -> Lattice:
        return absorbed(x | y)

    def meet(x: Lattice, y: Lattice) -> Lattice:
        work.spend(len(x) * len(y))
        return absorbed(a | b for a in x for b in y)

    def scale(x: Lattice, y: Lattice) -> Lattice:
        for factor, other in ((x, y), (y, x)):
            try:
                value = atom(factor)
            except Undefined:
                continue
            if len(other) == 1 and len(next(iter(other))) == 1:
                return single(times(value, atom(other)))
            if value.is_nonnegative:
                return pairwise(frozenset({frozenset({value})}), other, times)
        raise Undefined

    def go(node: Expr) -> Lattice:
        if isinstance(node, Var):
            return single(symbol(node.name))
        if isinstance(node, Const):
            return single(
                sympy.sympify(node.value) if abs(node.value) == float("inf") else sympy.Rational(str(node.value))
            )
        if not isinstance(node, Call) or kind_of(node) == "flag":
            # What sympy need not know the inside of: a lifted input or function is a symbol of its own.
            return single(symbol(repr(node)))
        if node.fn in ("add", "sub"):
            y = go(node.args[1])
            return pairwise(go(node.args[0]), y if node.fn == "add" else negate(y), plus)
        if node.fn == "neg":
            return negate(go(node.args[0]))
        if node.fn == "mul":
            return scale(go(node.args[0]), go(node.args[1]))
        if node.fn == "div":
            above, below = (atom(go(arg)) for arg in node.args)
            work.spend(weight(above) * weight(below))
            return single(sympy.expand(above / below))
        if node.fn == "pow":
            return single(power(atom(go(node.args[0])), int(atom(go(node.args[1])))))
        if node.fn in ("min", "max"):
            total = go(node.args[0])
            for arg in node.args[1:]:
                total = (meet if node.fn == "min" else join)(total, go(arg))
            return total
        if node.fn == "clip":
            return meet(join(go(node.args[0]), go(node.args[1])), go(node.args[2]))
        return single(symbol(repr(node)))

    return go(expr)


def _absorb(rows: Lattice) -> Lattice:
    """Drop what a max or min of this kind never attains: rows above another, +∞ in a min, −∞ rows."""
    import sympy

    trimmed = set()
    for row in rows:
        kept = frozenset(p for p in row if p != sympy.oo) or frozenset({sympy.oo})
        trimmed.add(frozenset({-sympy.oo}) if -sympy.oo in kept else kept)
    least = {row for row in trimmed if not any(other < row for other in trimmed)}
    if len(least) > 1:
        least.discard(frozenset({-sympy.oo}))
    if frozenset({sympy.oo}) in least:
        return frozenset({frozenset({sympy.oo})})
    return frozenset(least)
