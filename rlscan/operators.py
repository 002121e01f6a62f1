"""The named operators: how two steps of each family compose, which step is the identity, how a step meets the carry.

Each is a closed family of maps of the carry, so that composing steps keeps a fixed number of elements:

    affine          s ↦ A·s + b                      (k carries; only live entries of A are kept)
    clipped_affine  s ↦ clip(a·s + b, lo, hi), a ≥ 0
    max_plus        s ↦ max(b, a + s)
    min_plus        s ↦ min(b, a + s)

A reset is the map that forgets its argument: a = 0 (a = ∓∞ for max_plus and min_plus). Every product with such an `a` is a
select, not arithmetic, for 0·NaN is NaN: nothing beyond a reset, finite or not, can pass. That makes `a == 0` itself mean
"drops the carry", with no flag to scan beside it.
"""

from __future__ import annotations

from rlscan.ir import (
    NEG_INF,
    ONE,
    POS_INF,
    ZERO,
    Call,
    Const,
    Expr,
    Operator,
    Var,
    add,
    clip,
    eq,
    maximum,
    minimum,
    mul,
    substitute,
    where,
)

Pattern = frozenset[tuple[int, int]]


def first(name: str) -> Var:
    return Var(f"{name}_first")


def second(name: str) -> Var:
    return Var(f"{name}_second")


def incoming(carry: str) -> Var:
    return Var(f"{carry}_in")


def started(carry: str) -> Var:
    return Var(f"{carry}_start")


def _select_mul(a: Expr, x: Expr, tame: bool = False) -> Expr:
    """a·x, where a zero drops x, finite or not."""
    return where(_vanishes(a, x, tame), ZERO, mul(a, x))


def _vanishes(a: Expr, x: Expr, tame: bool) -> Expr:
    """Whether a·x is nothing.

    A product of many coefficients may overflow where the carry, multiplied step by step, would not. Unless they are tame,
    |a| ≤ 1 each, a zero of x makes a·x nothing too.
    """
    zero = eq(a, ZERO)
    return zero if tame else Call("or", (zero, eq(x, ZERO)), "flag")


def close(pattern: Pattern, size: int) -> Pattern:
    """The entries that can become non-zero by composing steps of this zero pattern, the identity among them."""
    live = set(pattern) | {(i, i) for i in range(size)}
    while True:
        grown = live | {(i, k) for i, j in live for j2, k in live if j == j2}
        if grown == live:
            return frozenset(live)
        live = grown


def entry(carries: tuple[str, ...], i: int, j: int) -> str:
    """The name of an entry of A: a_row_column, by the carries' names, or by their numbers where these would be ambiguous."""
    if len(carries) == 1:
        return "a"
    pairs = {f"{row}_{column}" for row in carries for column in carries}
    return f"a_{carries[i]}_{carries[j]}" if len(pairs) == len(carries) ** 2 else f"a_{i + 1}_{j + 1}"


def offset(carries: tuple[str, ...], i: int) -> str:
    return "b" if len(carries) == 1 else f"b_{carries[i]}"


def affine(carries: tuple[str, ...], pattern: Pattern, tame: bool = False) -> Operator:
    """s ↦ A·s + b over the live entries of A: for one carry (a, b), for a triangular pair five numbers."""
    size = len(carries)
    live = sorted(close(pattern, size))
    if size == 1:
        # Spelled so that the product and the sum can fuse into one instruction.
        a1, b1, a2, b2 = first("a"), first("b"), second("a"), second("b")

        def meets(a: Expr, x: Expr, b: Expr) -> Expr:
            return where(_vanishes(a, x, tame), b, add(mul(a, x), b))

        return Operator(
            "affine",
            ("a", "b"),
            (_select_mul(a2, a1, tame), meets(a2, b1, b2)),
            (ONE, ZERO),
            (meets(Var("a"), incoming(carries[0]), Var("b")),),
        )
    elements = tuple(entry(carries, i, j) for i, j in live) + tuple(offset(carries, i) for i in range(size))
    combine: list[Expr] = []
    for i, k in live:
        terms = [
            _select_mul(second(entry(carries, i, j)), first(entry(carries, j, k)))
            for j in range(size)
            if (i, j) in live and (j, k) in live
        ]
        combine.append(_sum(terms))
    for i in range(size):
        terms = [
            _select_mul(second(entry(carries, i, j)), first(offset(carries, j))) for j in range(size) if (i, j) in live
        ]
        combine.append(add(_sum(terms), second(offset(carries, i))))
    identity = tuple(ONE if i == j else ZERO for i, j in live) + (ZERO,) * size
    apply = tuple(
        add(
            _sum([_select_mul(Var(entry(carries, i, j)), incoming(carries[j])) for j in range(size) if (i, j) in live]),
            Var(offset(carries, i)),
        )
        for i in range(size)
    )
    return Operator("affine", elements, tuple(combine), identity, apply)


def _sum(terms: list[Expr]) -> Expr:
    total = terms[0]
    for term in terms[1:]:
        total = add(total, term)
    return total


def clipped_affine(carry: str, tame: bool = False) -> Operator:
    """s ↦ clip(a·s + b, lo, hi) with a ≥ 0: a growing map keeps the order of the bounds, so they clip through."""
    a1, b1, lo1, hi1 = (first(n) for n in ("a", "b", "lo", "hi"))
    a2, b2, lo2, hi2 = (second(n) for n in ("a", "b", "lo", "hi"))
    return Operator(
        "clipped_affine",
        ("a", "b", "lo", "hi"),
        (
            _select_mul(a2, a1, tame),
            add(_select_mul(a2, b1, tame), b2),
            clip(add(_select_mul(a2, lo1, tame), b2), lo2, hi2),
            clip(add(_select_mul(a2, hi1, tame), b2), lo2, hi2),
        ),
        (ONE, ZERO, NEG_INF, POS_INF),
        (clip(add(_select_mul(Var("a"), incoming(carry), tame), Var("b")), Var("lo"), Var("hi")),),
    )


def max_plus(carry: str) -> Operator:
    """s ↦ max(b, a + s)."""
    return _tropical(carry, "max_plus")


def min_plus(carry: str) -> Operator:
    """s ↦ min(b, a + s)."""
    return _tropical(carry, "min_plus")


def _tropical(carry: str, name: str) -> Operator:
    best = maximum if name == "max_plus" else minimum
    worst: Const = NEG_INF if name == "max_plus" else POS_INF
    a1, b1, a2, b2 = first("a"), first("b"), second("a"), second("b")
    drops = eq(a2, worst)
    return Operator(
        "max_plus" if name == "max_plus" else "min_plus",
        ("a", "b"),
        (where(drops, worst, add(a2, a1)), where(drops, b2, best(b2, add(a2, b1)))),
        (ZERO, worst),
        (where(eq(Var("a"), worst), Var("b"), best(Var("b"), add(Var("a"), incoming(carry)))),),
    )


def cuttable(operator: Operator, carry: str) -> Operator:
    """An operator of the spec's own, whose steps may drop the carry: what lies before such a step is the scan's start.

    One element more, 1 where a reset lies in the steps composed. As a select it lets nothing through, whatever the elements
    of the other side are.
    """
    cut = "cut"
    while cut in operator.elements:
        cut += "_"
    through = eq(second(cut), ZERO)
    combine = tuple(
        where(through, composed, second(name))
        for name, composed in zip(operator.elements, operator.combine, strict=True)
    )
    (apply,) = operator.apply
    anew = substitute(apply, {incoming(carry).name: started(carry)})
    return Operator(
        operator.name,
        (*operator.elements, cut),
        (*combine, where(through, first(cut), second(cut))),
        (*operator.identity, ZERO),
        (where(eq(Var(cut), ZERO), apply, anew),),
        cut,
    )


def forgetful(operator: Operator) -> tuple[Expr | None, ...]:
    """For each element, its value in a step that drops the carry; None where the step's own stays."""
    if operator.name == "custom":
        return tuple(ONE if name == operator.cut else None for name in operator.elements)
    worst = {"max_plus": NEG_INF, "min_plus": POS_INF}.get(operator.name, ZERO)
    return tuple(worst if name == "a" or name.startswith("a_") else None for name in operator.elements)
