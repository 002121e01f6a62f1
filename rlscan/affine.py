"""Split an update into A·s + b by its structure, keeping the order of the spec's own arithmetic.

The carry may stand under + − *, in a numerator and in the branches of `where`, nowhere else. "The derivative is free of the
carry" would not be enough: where(s > 0, s + 1, s + 2) passes that test and is not affine.
"""

from __future__ import annotations

from collections.abc import Callable

from rlscan.diagnostics import SpecError
from rlscan.ir import ONE, ZERO, Call, Expr, Var, add, div, is_const, mul, neg, sub, walk, where
from rlscan.operators import incoming
from rlscan.spec import Expression

Affine = tuple[dict[str, Expr], Expr]


def split(expr: Expr, carries: tuple[str, ...], written: Expression) -> Affine:
    """({carry: its coefficient}, the rest) of an update over Vars `<carry>_in`; RLS401 where it is not affine."""
    named = {incoming(name).name: name for name in carries}

    def reads(node: Expr) -> Var | None:
        return next((n for n in walk(node) if isinstance(n, Var) and n.name in named), None)

    def refuse(node: Expr, why: str, help: str) -> SpecError:
        span = getattr(node, "span", None) or written.span
        return SpecError("RLS401", f"the update is not affine in the carry: {why}", span, help)

    def go(node: Expr) -> Affine:
        if isinstance(node, Var) and node.name in named:
            return {named[node.name]: ONE}, ZERO
        found = reads(node)
        if found is None:
            return {}, node
        carry = named[found.name]
        if not isinstance(node, Call):
            raise refuse(
                node,
                f"`{carry}` is reduced over an axis",
                "each element of an axis is scanned by itself: a step that mixes them is a dense matrix, and composing such\n"
                "steps costs more than taking them one by one",
            )
        if node.fn in ("add", "sub"):
            (left, left_rest), (right, right_rest) = go(node.args[0]), go(node.args[1])
            join = add if node.fn == "add" else sub
            names = dict.fromkeys([*left, *right])
            return {n: join(left.get(n, ZERO), right.get(n, ZERO)) for n in names}, join(left_rest, right_rest)
        if node.fn == "neg":
            inner, rest = go(node.args[0])
            return {n: neg(value) for n, value in inner.items()}, _zero_or(rest, neg)
        if node.fn == "mul":
            x, y = node.args
            if reads(x) and reads(y):
                raise refuse(node, "the carry is multiplied by itself", _OTHER)
            if reads(x):
                inner, rest = go(x)
                return {n: mul(value, y) for n, value in inner.items()}, _zero_or(rest, lambda r: mul(r, y))
            inner, rest = go(y)
            return {n: mul(x, value) for n, value in inner.items()}, _zero_or(rest, lambda r: mul(x, r))
        if node.fn == "div":
            x, y = node.args
            if reads(y):
                raise refuse(node, f"`{carry}` stands in a denominator", _OTHER)
            inner, rest = go(x)
            return {n: div(value, y) for n, value in inner.items()}, _zero_or(rest, lambda r: div(r, y))
        if node.fn == "where":
            condition, x, y = node.args
            if reads(condition):
                raise refuse(
                    condition,
                    f"`{carry}` decides which branch is taken",
                    "a condition may read inputs and lets only: a step that depends on the carry so has no bounded composition",
                )
            (left, left_rest), (right, right_rest) = go(x), go(y)
            names = dict.fromkeys([*left, *right])
            return (
                {n: where(condition, left.get(n, ZERO), right.get(n, ZERO)) for n in names},
                where(condition, left_rest, right_rest),
            )
        if node.fn in ("max", "min", "clip"):
            raise refuse(
                node,
                f"`{carry}` stands inside `{node.fn}`",
                "say `operator: clipped_affine` with a, b, lo and hi (s = clip(a*s + b, lo, hi)),\n"
                "or `operator: max_plus` or `min_plus` with a and b (s = max(b, a + s))",
            )
        raise refuse(node, f"`{carry}` stands inside `{node.fn}`", _OTHER)

    return go(expr)


_OTHER = (
    "the carry may stand under + - *, in a numerator and in the branches of where;\n"
    "a map that is closed under composition otherwise can be given as `operator: {elements, combine, identity, apply}`"
)


def _zero_or(rest: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """A rest of nothing stays nothing: the carry alone was scaled."""
    return ZERO if is_const(rest, 0) else change(rest)
