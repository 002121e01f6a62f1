"""The one intermediate form: a Scan, sₜ = op(stepₜ, sₜ₊₁) in one or more stages, with typed expressions.

Only `lift` builds a Scan, so what is neither affine nor a declared operator cannot be represented. Expressions are trees of
the nodes below, not sympy objects: the order in which a spec adds floats is part of what it means, and its names are what
a reader of the kernel looks for. sympy sees them in `laws` alone, as proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from rlscan.diagnostics import SourceText, Span
from rlscan.spec import Direction, Input, OperatorName, Param

#: What a value is: a number of the accumulation type, a truth value, or an index.
ValueKind = Literal["number", "flag", "int"]


@dataclass(frozen=True, slots=True)
class Const:
    """A literal of the spec."""

    value: float | int | bool
    kind: ValueKind = "number"
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Ref:
    """A named quantity `offset` steps after this one. What has no time axis has offset 0 and `timed` false."""

    name: str
    offset: int
    timed: bool
    kind: ValueKind
    axes: tuple[str, ...] = ()
    span: Span | None = field(default=None, compare=False)
    #: where lets are written out: the reads, as written, that lead to this one, itself the last
    via: tuple[Ref, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Var:
    """A local variable: of an operator's combine, of a law, or, once lowered, of a kernel."""

    name: str
    kind: ValueKind = "number"


@dataclass(frozen=True, slots=True)
class Inside:
    """Whether the step `offset` steps on lies in the window. Made by `lower` alone."""

    offset: int
    kind: ValueKind = "flag"


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator: add sub mul div neg pow, lt le gt ge eq ne, and or not, or one of spec.FUNCTIONS."""

    fn: str
    args: tuple[Expr, ...]
    kind: ValueKind
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Reduce:
    """sum, max, min or logsumexp of `arg` over a named axis."""

    op: str
    axis: str
    arg: Expr
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Take:
    """The element of `source` at `index` along `axis`."""

    source: Ref
    index: Expr
    axis: str
    span: Span | None = field(default=None, compare=False)


Expr = Const | Ref | Var | Inside | Call | Reduce | Take

ZERO, ONE = Const(0), Const(1)
NEG_INF, POS_INF = Const(float("-inf")), Const(float("inf"))


def kind_of(expr: Expr) -> ValueKind:
    if isinstance(expr, Reduce):
        return "number"
    return expr.source.kind if isinstance(expr, Take) else expr.kind


def children(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Call):
        return expr.args
    if isinstance(expr, Reduce):
        return (expr.arg,)
    if isinstance(expr, Take):
        return (expr.source, expr.index)
    return ()


def rebuild(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The same node over changed children."""
    if isinstance(expr, Call):
        return replace(expr, args=tuple(change(arg) for arg in expr.args))
    if isinstance(expr, Reduce):
        return replace(expr, arg=change(expr.arg))
    if isinstance(expr, Take):
        source = change(expr.source)
        if not isinstance(source, Ref):
            raise AssertionError("take reads a named tensor")
        return replace(expr, source=source, index=change(expr.index))
    return expr


def walk(expr: Expr) -> Iterator[Expr]:
    yield expr
    for child in children(expr):
        yield from walk(child)


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Replace Vars by name."""
    if isinstance(expr, Var):
        return values.get(expr.name, expr)
    return rebuild(expr, lambda child: substitute(child, values))


def axes_of(expr: Expr) -> tuple[str, ...]:
    """The named axes of a value, in order of first appearance."""
    if isinstance(expr, Ref):
        return expr.axes
    if isinstance(expr, Take):
        return tuple(dict.fromkeys([*(a for a in expr.source.axes if a != expr.axis), *axes_of(expr.index)]))
    found = dict.fromkeys(axis for child in children(expr) for axis in axes_of(child))
    if isinstance(expr, Reduce):
        found.pop(expr.axis, None)
    return tuple(found)


def is_const(expr: Expr, value: float) -> bool:
    return isinstance(expr, Const) and expr.kind == "number" and expr.value == value


# Builders that fold what is neutral for every float, NaN and the infinities included: 1·x, x/1, where of equal branches.
# x + 0 is folded too: it differs from x for x = −0 alone, and no estimator tells the zeros apart. 0·x is not folded here,
# except where lift knows that the zero means "the carry does not enter".


def add(x: Expr, y: Expr) -> Expr:
    if is_const(x, 0):
        return y
    return x if is_const(y, 0) else Call("add", (x, y), "number")


def sub(x: Expr, y: Expr) -> Expr:
    if is_const(y, 0):
        return x
    return neg(y) if is_const(x, 0) else Call("sub", (x, y), "number")


def neg(x: Expr) -> Expr:
    return Const(-x.value) if isinstance(x, Const) else Call("neg", (x,), "number")


def mul(x: Expr, y: Expr) -> Expr:
    if is_const(x, 1):
        return y
    return x if is_const(y, 1) else Call("mul", (x, y), "number")


def div(x: Expr, y: Expr) -> Expr:
    return x if is_const(y, 1) else Call("div", (x, y), "number")


def where(condition: Expr, x: Expr, y: Expr) -> Expr:
    return x if x == y else Call("where", (condition, x, y), kind_of(x))


def eq(x: Expr, y: Expr) -> Expr:
    return Call("eq", (x, y), "flag")


def minimum(x: Expr, y: Expr) -> Expr:
    return Call("min", (x, y), "number")


def maximum(x: Expr, y: Expr) -> Expr:
    return Call("max", (x, y), "number")


def clip(x: Expr, low: Expr, high: Expr) -> Expr:
    return Call("clip", (x, low, high), "number")


@dataclass(frozen=True, slots=True)
class Definition:
    """A let or an output: its expression, the named axes of its value and whether it varies in time."""

    name: str
    value: Expr
    kind: ValueKind
    axes: tuple[str, ...]
    timed: bool
    span: Span


@dataclass(frozen=True, slots=True)
class EdgeValue:
    """What a name means before the first and past the last step."""

    name: str
    before: Expr | None
    after: Expr | None


@dataclass(frozen=True, slots=True)
class Operator:
    """How steps compose.

    elements: the numbers of one step. combine: the elements of `second ∘ first` over Vars `x_first`, `x_second`, where
    `first` is applied to the carry first. identity: the elements that leave every carry as it is. apply: each new carry
    over Vars of the element names and of `<carry>_in`. cut: the element that is 1 where a step of an operator of the spec's own
    was reset: such a step acts on the scan's start, `<carry>_start`.
    """

    name: OperatorName
    elements: tuple[str, ...]
    combine: tuple[Expr, ...]
    identity: tuple[Expr, ...]
    apply: tuple[Expr, ...]
    cut: str | None = None


@dataclass(frozen=True, slots=True)
class StageCarry:
    """One state of a stage; start is its value beyond the edge that the scan comes from."""

    name: str
    start: Expr
    axes: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Stage:
    """One recurrence over time: `step` has an expression for each of the operator's elements.

    reset and keep are already folded into `step`, as selects; they are kept as written for the laws and for people, as are
    `raw`, the elements before that folding. `update` is the natural form, where the spec gave one (Vars `<carry>_in`).
    """

    direction: Direction
    carries: tuple[StageCarry, ...]
    operator: Operator
    #: the operator as it was declared: without an element for resets
    plain: Operator
    step: tuple[Expr, ...]
    raw: tuple[Expr, ...]
    spans: tuple[Span, ...]
    #: where the operator's combine and its identity were written (or what implies them)
    operator_spans: tuple[Span, Span]
    reset: Expr | None
    reset_span: Span | None
    keep: Expr | None
    update: tuple[Expr, ...] | None
    #: the operator for calls in which these params lie in [−1, 1], and so every coefficient does
    tame: Operator | None = None
    tamed_by: tuple[str, ...] = ()

    @property
    def toward(self) -> int:
        """+1 where the carry comes from the step after (backward), −1 where from the step before."""
        return 1 if self.direction == "backward" else -1


@dataclass(frozen=True, slots=True)
class Law:
    """One thing that was proved, in a person's words."""

    name: str
    statement: str
    how: str


@dataclass(frozen=True, slots=True)
class Scan:
    """A whole estimator."""

    name: str
    title: str
    cite: str
    digest: str
    source: SourceText = field(compare=False, repr=False)
    inputs: tuple[Input, ...]
    together: tuple[tuple[str, ...], ...]
    params: tuple[Param, ...]
    edges: tuple[EdgeValue, ...]
    lets: tuple[Definition, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[Definition, ...]
    crosses: tuple[str, ...]
    #: named axes that carries or outputs keep: the scan runs once for each of their elements
    lane_axes: tuple[str, ...]
    #: whether integers in give integers out: nothing divides, and no param or function brings fractions in
    whole: bool
    laws: tuple[Law, ...] = ()

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of the inputs and then of the outputs."""
        return (*(item.name for item in self.inputs), *(output.name for output in self.outputs))

    def definition(self, name: str) -> Definition | None:
        return next((d for d in (*self.lets, *self.outputs) if d.name == name), None)

    def carry_stage(self, name: str) -> Stage | None:
        return next((s for s in self.stages if any(c.name == name for c in s.carries)), None)

    def edge(self, name: str) -> EdgeValue | None:
        return next((e for e in self.edges if e.name == name), None)
