"""prove: Scan → Scan. What must be true of a scan before a kernel may be made of it: each law is proved or the spec refused.

- affine:       an update equals A·s + b. (The split is structural, in `affine`; this is an independent check of it.)
- action:       applying y∘x to a carry is applying x, then y. With it, composing steps in any grouping gives one result.
- associative:  the combine that is emitted, reset included: (z∘y)∘x = z∘(y∘x).
- identity:     composing with it on either side changes nothing.
- reset:        a step that forgets leaves nothing of what came before, not even a NaN.
- commutative:  decided, not required: only then may a reduction reorder.
- isolation:    where an episode ends, nothing of the other side is read (`isolation`).

Raises SpecError with codes RLS402 to RLS405; a false law comes with numbers that a person can check by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rlscan.algebra import counterexample, equal, resolve
from rlscan.diagnostics import SpecError
from rlscan.ir import Const, Expr, Law, Operator, Scan, Stage, Var, kind_of, rebuild, substitute, walk
from rlscan.isolation import prove_isolation
from rlscan.operators import forgetful, incoming
from rlscan.ranges import nonnegative

Elements = Mapping[str, Expr]


def prove(scan: Scan) -> Scan:
    """The same scan with the laws that it was shown to keep."""
    laws = [law for stage in scan.stages for law in _stage(scan, stage)] + prove_isolation(scan)
    return replace(scan, laws=tuple(laws))


def _stage(scan: Scan, stage: Stage) -> list[Law]:
    laws = [_affine(stage)] if stage.update is not None else []
    if stage.plain != stage.operator:
        # What is wrong with the operator as it was written is said in its own terms.
        _Composition(scan, replace(stage, operator=stage.plain)).laws()
    if stage.tame is not None:
        _Composition(scan, replace(stage, operator=stage.tame)).laws()
    laws += _Composition(scan, stage).laws()
    laws += [_reset(stage)] if stage.reset is not None else []
    laws.append(_commutative(stage.operator))
    if len(scan.stages) == 1:
        return laws
    names = ", ".join(carry.name for carry in stage.carries)
    return [replace(law, statement=f"{names}: {law.statement}") for law in laws]


def commutative(operator: Operator) -> bool:
    """Whether y∘x = x∘y was proved for all steps: only then may a kernel reduce in any order."""
    x, y = elements(operator, "1"), elements(operator, "2")
    sides = zip(compose(operator, x, y).values(), compose(operator, y, x).values(), strict=True)
    return all(equal(left, right) for left, right in sides)


def elements(operator: Operator, step: str) -> dict[str, Expr]:
    """One symbolic step, with symbols of its own."""
    return {name: Var(f"{name}_{step}") for name in operator.elements}


def compose(operator: Operator, first: Elements, second: Elements) -> dict[str, Expr]:
    """second ∘ first."""
    values = {f"{name}_first": value for name, value in first.items()}
    values |= {f"{name}_second": value for name, value in second.items()}
    return {n: substitute(e, values) for n, e in zip(operator.elements, operator.combine, strict=True)}


def act(operator: Operator, step: Elements, carries: Elements) -> tuple[Expr, ...]:
    """The carries after a step."""
    values = {**step, **{incoming(name).name: value for name, value in carries.items()}}
    return tuple(substitute(expr, values) for expr in operator.apply)


def _affine(stage: Stage) -> Law:
    """The update and A·s + b, with each part that is free of the carries as a symbol: what it is made of does not matter."""
    names = [carry.name for carry in stage.carries]
    symbols: dict[Expr, Expr] = {}
    updates = [_abstract(update, {incoming(name) for name in names}, symbols) for update in stage.update or ()]
    step = {name: _replaced(value, symbols) for name, value in zip(stage.operator.elements, stage.raw, strict=True)}
    after = act(stage.operator, step, {name: incoming(name) for name in names})
    for update, split, carry in zip(updates, after, stage.carries, strict=True):
        if not equal(update, split):
            raise SpecError(
                "RLS405",
                f"could not prove that the update of `{carry.name}` is A·s + b",
                carry.span,
                "write what the carry is multiplied by and what is added as two terms, or as `a` and `b`",
            )
    return Law(
        "affine", f"the update of {', '.join(names)} is A·s + b", "update − A·s − b = 0, A and b free of the carry"
    )


def _abstract(expr: Expr, carries: set[Var], symbols: dict[Expr, Expr]) -> Expr:
    """The expression with every largest part that reads no carry as a symbol; a literal stays what it is."""
    if isinstance(expr, Const) or not any(node in carries for node in walk(expr) if isinstance(node, Var)):
        return expr if isinstance(expr, Const) else symbols.setdefault(expr, Var(f"part_{len(symbols)}", kind_of(expr)))
    return rebuild(expr, lambda child: _abstract(child, carries, symbols))


def _replaced(expr: Expr, symbols: Mapping[Expr, Expr]) -> Expr:
    return symbols[expr] if expr in symbols else rebuild(expr, lambda child: _replaced(child, symbols))


class _Composition:
    """The laws of one stage's operator."""

    def __init__(self, scan: Scan, stage: Stage) -> None:
        self.scan = scan
        self.stage = stage
        self.operator = stage.operator
        self.spans = {"RLS402": stage.operator_spans[0], "RLS403": stage.operator_spans[1]}
        self.carries = tuple(carry.name for carry in stage.carries)
        self.x, self.y, self.z = (elements(self.operator, name) for name in "123")
        #: symbols that a proof may take as ≥ 0
        self.growing = frozenset(f"a_{n}" for n in "123") if self.operator.name == "clipped_affine" else frozenset()

    def laws(self) -> list[Law]:
        operator, x, y, z = self.operator, self.x, self.y, self.z
        laws = self._order()
        s: dict[str, Expr] = {name: incoming(name) for name in self.carries}
        then = dict(zip(self.carries, act(operator, x, s), strict=True))
        # A custom combine may be a monoid that means something else than maps of the carry; it must still act as one.
        left, right = compose(operator, compose(operator, x, y), z), compose(operator, x, compose(operator, y, z))
        one = dict(zip(operator.elements, operator.identity, strict=True))
        both = (
            ("the identity and then step 1", compose(operator, one, x)),
            ("step 1 and then the identity", compose(operator, x, one)),
        )
        grouped = ("combining steps 1 and 2 first", "combining steps 2 and 3 first")
        if operator.name == "clipped_affine":
            # Steps with a = 0 have many names for one map: compare what they do.
            self._require("RLS402", grouped[0], act(operator, left, s), grouped[1], act(operator, right, s))
            for words, made in both:
                self._require("RLS403", words, act(operator, made, s), "step 1 alone", act(operator, x, s))
        else:
            self._require("RLS402", grouped[0], left.values(), grouped[1], right.values())
            for words, made in both:
                self._require("RLS403", words, made.values(), "step 1 alone", x.values())
        self._require(
            "RLS402",
            "applying steps 1 and 2 combined",
            act(operator, compose(operator, x, y), s),
            "applying step 1 and then step 2",
            act(operator, y, then),
        )
        self._require("RLS403", "applying the identity", act(operator, one, s), "leaving the carry", s.values())
        return [
            *laws,
            Law("associative", "(z∘y)∘x = z∘(y∘x)", "over the reals, every select resolved"),
            Law("identity", "x∘1 = 1∘x = x and 1(s) = s", "over the reals"),
            Law("action", "(y∘x)(s) = y(x(s))", "over the reals"),
        ]

    def _order(self) -> list[Law]:
        if self.operator.name != "clipped_affine":
            return []
        if not nonnegative(self.stage.raw[0], self.scan):
            raise SpecError(
                "RLS405",
                "clipped_affine needs a ≥ 0, which could not be proved of this `a`",
                self.stage.spans[0],
                "build it of params with a range in [0, …], exp, sigmoid, sqrt, abs, and products, sums, min and max of such",
            )
        return [Law("order", "a ≥ 0", "by the params' ranges and the functions' images")]

    def _require(
        self, code: str, left_words: str, left: Iterable[Expr], right_words: str, right: Iterable[Expr]
    ) -> None:
        fact = "the identity is not one"
        if code == "RLS402":
            associates = left_words.startswith("combining")
            fact = "the operator is not associative" if associates else "combining steps is not applying them in turn"
        sides = list(zip(left, right, strict=True))
        for l_side, r_side in sides:
            if equal(l_side, r_side, self.growing):
                continue
            example = counterexample(l_side, r_side, self.growing)
            if example is None:
                raise SpecError(
                    "RLS405",
                    f"could not prove that {left_words} gives what {right_words} gives",
                    self.spans[code],
                    "no counterexample was found either; an operator of + − *, where, min and max can be settled",
                )
            point, l_value, r_value = example
            at = ", ".join(f"{name} = {value}" for name, value in sorted(point.items()))
            raise SpecError(
                code, fact, self.spans[code], f"with {at}:\n{left_words} gives {l_value}, {right_words} gives {r_value}"
            )


def _reset(stage: Stage) -> Law:
    """A forgetting step composed after anything is free of it: where no symbol of it is left, no NaN of it can be."""
    operator = stage.operator
    forgot: dict[str, Expr] = {
        name: Var(f"{name}_2") if value is None else value
        for name, value in zip(operator.elements, forgetful(operator), strict=True)
    }
    made = compose(operator, elements(operator, "1"), forgot)
    names = {carry.name: incoming(carry.name) for carry in stage.carries}
    for expr in (*made.values(), *act(operator, forgot, names)):
        for node in walk(resolve(expr)):
            if isinstance(node, Var) and (node.name.endswith("_1") or node.name.endswith("_in")):
                raise SpecError(
                    "RLS405",
                    f"could not prove that a reset drops `{node.name}`",
                    stage.reset_span,
                    "leave out `reset`, and let the step's own elements drop the carry with where(…)",
                )
    return Law(
        "reset",
        "where the reset holds, the carry is dropped",
        "by selects: no term of the other side is left, so no NaN or ∞",
    )


def _commutative(operator: Operator) -> Law:
    if commutative(operator):
        return Law("commutative", "y∘x = x∘y", "over the reals: reductions may reorder")
    return Law("not commutative", "y∘x ≠ x∘y in general", "only ordered scans are emitted")
