"""What was written in a spec file, frozen: names, types, expressions, and the place of each.

`parse` makes a `Spec` and nothing else does. A Spec says what the text says, no more: names are not yet resolved,
dimensions not yet checked (that is `lift`). It needs neither sympy nor torch.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Literal

from rlscan.diagnostics import SourceText, Span

Kind = Literal["float", "flag", "int", "num"]
Direction = Literal["backward", "forward"]
OperatorName = Literal["affine", "clipped_affine", "max_plus", "min_plus", "custom"]

#: The batch and the time axis. Every other axis has a name of the spec's own (A actions, F features).
BATCH, TIME = "B", "T"

#: Functions of the expression language with their number of arguments.
#: `sum`, `max`, `min`, `logsumexp` with an axis name first reduce over that axis: `sum(A, p[t] * q[t])`.
#: `take(q[t], actions[t])` picks one element along the one named axis that `q` has and `actions` lacks.
FUNCTIONS: dict[str, tuple[int, int]] = {
    "where": (3, 3),
    "min": (2, 8),
    "max": (2, 8),
    "clip": (3, 3),
    "abs": (1, 1),
    "exp": (1, 1),
    "log": (1, 1),
    "sqrt": (1, 1),
    "tanh": (1, 1),
    "sigmoid": (1, 1),
    "sum": (2, 2),
    "logsumexp": (2, 2),
    "take": (2, 2),
}
REDUCTIONS = ("sum", "max", "min", "logsumexp")

#: Words that mean something in the language, or in a call, and so cannot name an input, param, let, carry or output.
RESERVED = frozenset(
    {"t", "B", "T", "inf", "true", "false", "and", "or", "not", "first", "second", "out", "cu_seqlens", *FUNCTIONS}
)


#: Inputs that say by their names that a step is its episode's last, as every flag of an episode does in this language.
LAST_STEPS = frozenset(
    {"done", "dones", "terminal", "terminals", "terminated", "truncated", "terminations", "truncations"}
)


@dataclass(frozen=True, slots=True)
class Expression:
    """One expression of the whitelist: its text as written, its `ast`, and where in the file it begins.

    The tree holds only these nodes (parse checks it): Constant (bool, int, float), Name, BinOp with + - * / **
    (a literal exponent), UnaryOp with - and not, BoolOp, Compare (chains allowed: < <= > >= == !=), Call of a function
    of `FUNCTIONS`, Subscript of a name with `t`, `t + n` or `t - n` (n a literal integer), and, in an operator of the
    spec's own, Attribute `first.x` and `second.x`. The words true, false and inf are Names.
    """

    text: str
    tree: ast.expr = field(compare=False, repr=False)
    span: Span

    def at(self, node: ast.AST) -> Span:
        """The place of one node of `tree` in the spec file: of one over several lines, as far as its first goes.

        A node's lineno and col_offset are the file's, both from 1; 0 where it is not in the file letter by letter.
        """
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        if not line:
            return self.span
        return Span(line, column, max(1, getattr(node, "end_col_offset", column + 1) - column))


@dataclass(frozen=True, slots=True)
class Input:
    """`name: f[B, T] = default`. kind: `f` float, `flag`, `int`, `num` (float or integer, summed exactly).

    dims are in the order written and always in batch-first order; layout "tb" swaps B and T at the call.
    `optional_axes` are those written with a question mark (`f[B, T, F?]`): a call may leave them out of every
    input that has them, and the outputs then lack them too.
    """

    name: str
    kind: Kind
    dims: tuple[str, ...]
    optional_axes: tuple[str, ...]
    default: float | int | bool | None
    span: Span

    @property
    def optional(self) -> bool:
        return self.default is not None


@dataclass(frozen=True, slots=True)
class Param:
    """`gamma: 0.99 in [0, 1]`: a default (None where required) and a closed range, infinite where not given."""

    name: str
    default: float | None
    lower: float
    upper: float
    span: Span


@dataclass(frozen=True, slots=True)
class Edge:
    """What `name[t+n]` means past the last step (`after`) and `name[t-n]` before the first (`before`).

    The short form `values: last_value` fills `both`, which serves the one side that the spec reads.
    """

    name: str
    both: Expression | None
    before: Expression | None
    after: Expression | None
    span: Span


@dataclass(frozen=True, slots=True)
class Let:
    """`delta: rewards[t] + …`: a named quantity."""

    name: str
    value: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class Carry:
    """One state of a scan: its start beyond the edge and, in the update form, `update`.

    In an update the bare names of the scan's carries mean their incoming values (s[t+1] when backward).
    """

    name: str
    update: Expression | None
    start: Expression | None
    span: Span


@dataclass(frozen=True, slots=True)
class Operator:
    """How steps compose. For the named operators, `coefficients` are the scan's keys a, b (and lo, hi).

    A custom one has `elements` (name → expression of one step), `combine` (name → expression of `first.x`, the element
    applied first, and `second.x`), `identity` (name → constant) and `apply` (carry from the bare element names and the
    bare carry's name).
    """

    name: OperatorName
    coefficients: tuple[tuple[str, Expression], ...]
    combine: tuple[tuple[str, Expression], ...]
    identity: tuple[tuple[str, Expression], ...]
    apply: Expression | None
    span: Span


@dataclass(frozen=True, slots=True)
class ScanBlock:
    """One recurrence: `scan:`, or one entry of `scans:`.

    reset: the carry from the other side is dropped at this step. keep: the step leaves the (possibly reset) carry as it
    is. With c = 0 where reset, else the incoming carry: s[t] = c where keep, else a·c + b.
    """

    direction: Direction
    carries: tuple[Carry, ...]
    operator: Operator
    reset: Expression | None
    keep: Expression | None
    span: Span


@dataclass(frozen=True, slots=True)
class Output:
    """`advantages: adv[t]`."""

    name: str
    value: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class Spec:
    """One spec file."""

    name: str
    title: str
    cite: str
    inputs: tuple[Input, ...]
    together: tuple[tuple[str, ...], ...]
    params: tuple[Param, ...]
    edges: tuple[Edge, ...]
    lets: tuple[Let, ...]
    scans: tuple[ScanBlock, ...]
    outputs: tuple[Output, ...]
    crosses: tuple[str, ...]
    source: SourceText = field(compare=False, repr=False)
    #: sha256 of the file's text, in hex.
    digest: str
