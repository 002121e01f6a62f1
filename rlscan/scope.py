"""Names and kinds: from a spec's `ast` expressions to typed ones.

A Scope knows what each name of a spec is, lifts lets and outputs on first use (so their order does not matter, and a circle is
found), and remembers what was used, on which side of the window, to refuse what never is.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rlscan.diagnostics import SpecError, did_you_mean
from rlscan.ir import Call, Const, Definition, Expr, Reduce, Ref, Take, ValueKind, Var, axes_of, kind_of, walk
from rlscan.operators import first, incoming, second
from rlscan.spec import REDUCTIONS, Edge, Expression, Input, Kind, Let, Output, Param, Spec

_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
}
_EXACT: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
    "neg": operator.neg,
}
_COMPARISON: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
_KINDS: dict[Kind, ValueKind] = {"float": "number", "num": "number", "flag": "flag", "int": "int"}


class Scope:
    """What the names of one spec mean."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.inputs: dict[str, Input] = {item.name: item for item in spec.inputs}
        self.params = {param.name: param for param in spec.params}
        self.edges: dict[str, Edge] = {edge.name: edge for edge in spec.edges}
        self.written: dict[str, Let | Output] = {let.name: let for let in spec.lets}
        self.written |= {output.name: output for output in spec.outputs}
        self.carries = {carry.name: block.direction for block in spec.scans for carry in block.carries}
        #: the carries of the scan that is being lifted
        self.own: tuple[str, ...] = ()
        self.carry_axes: dict[str, tuple[str, ...]] = {}
        #: the named axes, in the order in which the inputs name them: every value has its axes in that order
        self.axes = tuple(dict.fromkeys(d for item in spec.inputs for d in item.dims if d not in ("B", "T")))
        self._done: dict[str, Definition] = {}
        self._open: list[str] = []
        self._used: set[str] = set()
        self._before: set[str] = set()
        self._after: set[str] = set()
        for edge in spec.edges:
            self._check_edge_name(edge)

    # -- entry points, one for each place an expression can stand ---------------------------------------------------

    def number(self, written: Expression, incoming: tuple[str, ...] = (), timeless: str | None = None) -> Expr:
        expr = _Lifter(self, written, incoming=incoming, timeless=timeless).lift()
        return _Lifter(self, written).as_number(expr, written.tree)

    def flag(self, written: Expression) -> Expr:
        lifter = _Lifter(self, written)
        return lifter.as_flag(lifter.lift(), written.tree)

    def number_or_flag(self, written: Expression, name: str) -> Expr:
        """An edge's value: of its name's own kind."""
        lifter = _Lifter(self, written, timeless=f"the edge of `{name}`")
        expr = lifter.lift()
        kind, axes = self.kind_and_axes(name)
        if set(axes_of(expr)) - set(axes):
            extra = ", ".join(sorted(set(axes_of(expr)) - set(axes)))
            raise SpecError(
                "RLS307",
                f"the edge of `{name}` has an axis that `{name}` lacks: {extra}",
                written.span,
                "reduce it, as in sum(A, …)",
            )
        if kind == "int":
            return lifter.as_index(expr, written.tree)
        return lifter.as_flag(expr, written.tree) if kind == "flag" else lifter.as_number(expr, written.tree)

    def over_elements(
        self, written: Expression, elements: tuple[str, ...], *, pair: bool, carry: str | None = None
    ) -> Expr:
        """An expression of a custom operator: over `first.x`, `second.x`, or over bare elements and the carry."""
        names: dict[str, Var] = {name: Var(name) for name in elements} if not pair else {}
        if carry:
            names[carry] = incoming(carry)
        lifter = _Lifter(self, written, local=names, pairs=elements if pair else ())
        return lifter.as_number(lifter.lift(), written.tree)

    def ordered(self, groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
        """The axes of several values together, in the spec's order."""
        found = {axis for group in groups for axis in group}
        return tuple(axis for axis in self.axes if axis in found)

    def begin_scan(self, names: tuple[str, ...]) -> None:
        self.own = names

    def define_carries(self, names: tuple[str, ...], axes: tuple[str, ...]) -> None:
        self.carry_axes.update(dict.fromkeys(names, axes))

    def definition(self, name: str) -> Definition:
        """The let or output of this name, lifted once."""
        if name in self._done:
            return self._done[name]
        written = self.written[name]
        if name in self._open:
            circle = " → ".join([*self._open[self._open.index(name) :], name])
            raise SpecError(
                "RLS308",
                f"`{name}` is defined through itself: {circle}",
                written.span,
                "a recurrence over time is the scan's: make it a carry",
            )
        self._open.append(name)
        lifter = _Lifter(self, written.value)
        expr = lifter.lift()
        if any(output.name == name for output in self.spec.outputs):
            expr = lifter.as_number(expr, written.value.tree)
        self._open.pop()
        made = Definition(name, expr, kind_of(expr), self.ordered([axes_of(expr)]), _timed(expr), written.span)
        self._done[name] = made
        return made

    # -- what was used ----------------------------------------------------------------------------------------------

    def reads_before(self, name: str) -> bool:
        return name in self._before

    def reads_after(self, name: str) -> bool:
        return name in self._after

    def use(self, name: str, offset: int = 0) -> None:
        self._used.add(name)
        if offset < 0:
            self._before.add(name)
        if offset > 0:
            self._after.add(name)

    def refuse_unused(self, bare: Mapping[str, frozenset[str]]) -> None:
        """An input, param, let, carry or edge that nothing reads is a slip of the pen.

        bare: the carries that each carry's update has bare. A carry that only updates read, whose own carries nothing reads,
        is not read.
        """
        written: tuple[Input | Param | Let, ...] = (*self.spec.inputs, *self.spec.params, *self.spec.lets)
        for item in written:
            if item.name not in self._used:
                raise SpecError(
                    "RLS311",
                    f"`{item.name}` is never used",
                    item.span,
                    "remove it, or use it in a let, the scan or an output",
                )
        read = self._used & self.carries.keys()
        while more := {name for carry in read for name in bare[carry]} - read:
            read |= more
        for carry in (carry for block in self.spec.scans for carry in block.carries):
            if carry.name not in read:
                raise SpecError(
                    "RLS311",
                    f"the carry `{carry.name}` is never used",
                    carry.span,
                    f"read it in an output, as `{carry.name}[t]`, or in a later scan; or remove it",
                )
        for edge in self.spec.edges:
            sides = (
                ("after", edge.after or edge.both, self._after),
                ("before", edge.before or edge.both, self._before),
            )
            unread = [word for word, given, read in sides if given and edge.name not in read]
            if edge.name in self.carries:
                self._check_edge_of_carry(edge, unread)
                continue
            if len(unread) == 2 or (unread and not edge.both):
                raise SpecError(
                    "RLS311",
                    f"the edge of `{edge.name}` is never used: nothing reads `{edge.name}` past that end",
                    edge.span,
                    f"remove it, or read `{edge.name}[t+1]` or `{edge.name}[t-1]` where the neighbour is meant",
                )
            if edge.both and not unread:
                raise SpecError(
                    "RLS304",
                    f"`{edge.name}` is read past both ends of the window, and its edge names one value for both",
                    edge.span,
                    f"say which is which: `{edge.name}: {{before: …, after: …}}`",
                )

    def _check_edge_of_carry(self, edge: Edge, unread: list[str]) -> None:
        started, far = self.ends(edge.name)
        if far in unread:
            raise SpecError(
                "RLS309",
                f"nothing reads the carry `{edge.name}` {far} the window, and {started} it the carry is its `start`",
                edge.span,
                "remove this line",
            )

    # -- names ------------------------------------------------------------------------------------------------------

    def kind_and_axes(self, name: str) -> tuple[ValueKind, tuple[str, ...]]:
        if name in self.inputs:
            item = self.inputs[name]
            return _KINDS[item.kind], tuple(d for d in item.dims if d not in ("B", "T"))
        if name in self.carry_axes:
            return "number", self.carry_axes[name]
        made = self.definition(name)
        return made.kind, made.axes

    def is_timed(self, name: str) -> bool:
        if name in self.inputs:
            return "T" in self.inputs[name].dims
        return name in self.carries or (name in self.written and self.definition(name).timed)

    def ends(self, carry: str) -> tuple[str, str]:
        """The end of the window where a carry's scan starts, and the end that it runs to."""
        return ("after", "before") if self.carries[carry] == "backward" else ("before", "after")

    def _check_edge_name(self, edge: Edge) -> None:
        if edge.name in self.carries:
            started, far = self.ends(edge.name)
            if getattr(edge, started):
                raise SpecError(
                    "RLS309",
                    f"{started} the window the carry `{edge.name}` is its `start`",
                    edge.span,
                    f"an edge may say what `{edge.name}` is at the end that its scan runs to: `{{{far}: …}}`",
                )
            return
        if edge.name not in self.inputs and edge.name not in self.written:
            hint = did_you_mean(edge.name, [*self.inputs, *self.written])
            help = hint or "an edge says what an input, let, output or carry is past the window's end"
            raise SpecError("RLS301", f"`{edge.name}` is not defined", edge.span, help)


def _timed(expr: Expr) -> bool:
    return any(isinstance(node, Ref) and node.timed for node in walk(expr))


class _Lifter:
    """One expression. `incoming` are the carries that may stand bare (in an update)."""

    def __init__(
        self,
        scope: Scope,
        written: Expression,
        *,
        incoming: tuple[str, ...] = (),
        timeless: str | None = None,
        local: Mapping[str, Var] | None = None,
        pairs: tuple[str, ...] = (),
    ) -> None:
        self.scope = scope
        self.written = written
        self.incoming = incoming
        self.timeless = timeless
        self.local = local
        self.pairs = pairs

    def lift(self) -> Expr:
        return self.expr(self.written.tree)

    def error(self, code: str, message: str, node: ast.AST, help: str | None = None) -> SpecError:
        return SpecError(code, message, self.written.at(node), help)

    # -- kinds ------------------------------------------------------------------------------------------------------

    def as_number(self, expr: Expr, node: ast.AST) -> Expr:
        if isinstance(expr, Const) and expr.kind == "flag":
            raise self.error("RLS306", "a flag is used as a number", node, f"write `{int(expr.value)}`")
        if kind_of(expr) == "flag":
            flag = ast.unparse(node)
            flag = flag if len(flag) <= 40 else "flag"
            raise self.error(
                "RLS306",
                "a flag is used as a number",
                node,
                f"select with it: where({flag}, 1, 0) is a number, and (1 - {flag}) * x is where({flag}, 0, x),\n"
                "which lets no NaN of x through",
            )
        if kind_of(expr) == "int":
            return Call("number", (expr,), "number", self.written.at(node))
        return expr

    def as_flag(self, expr: Expr, node: ast.AST) -> Expr:
        if isinstance(expr, Const) and expr.kind == "number":
            meant = "`false`" if expr.value == 0 else "`true`" if expr.value == 1 else "`false` or `true`"
            raise self.error("RLS305", "a number is used as a flag", node, f"write {meant}")
        if kind_of(expr) != "flag":
            raise self.error(
                "RLS305", "a number is used as a flag", node, "compare it (x > 0), or declare the input as `flag[…]`"
            )
        return expr

    def as_index(self, expr: Expr, node: ast.AST) -> Expr:
        if isinstance(expr, Const) and expr.kind == "number" and isinstance(expr.value, int) and expr.value >= 0:
            return Const(expr.value, "int", expr.span)
        if kind_of(expr) != "int":
            raise self.error("RLS312", "an integer is needed here", node, "declare the input as `int[…]`")
        return expr

    def number(self, node: ast.expr) -> Expr:
        return self.as_number(self.expr(node), node)

    def flag(self, node: ast.expr) -> Expr:
        return self.as_flag(self.expr(node), node)

    # -- nodes ------------------------------------------------------------------------------------------------------

    def expr(self, node: ast.expr) -> Expr:
        span = self.written.at(node)
        match node:
            case ast.Constant(value=bool() as value):
                return Const(value, "flag", span)
            case ast.Constant(value=int() | float() as value):
                return Const(value, "number", span)
            case ast.Name():
                return self.name(node)
            case ast.Subscript(value=ast.Name() as name, slice=index):
                return self.indexed(node, name.id, _offset(index))
            case ast.Attribute(value=ast.Name(id=side), attr=element):
                return self.element(node, side, element)
            case ast.BinOp(left=left, op=op, right=right):
                terms = (self.number(left), self.number(right))
                if isinstance(op, ast.Div) and _constant(terms[1]) == 0:
                    # Python would divide two literals as it makes the kernel, and fail.
                    raise self.error("RLS206", "the divisor is zero", right, "write inf, or -inf, if that is meant")
                return Call(_ARITHMETIC[type(op)], terms, "number", span)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Call("not", (self.flag(operand),), "flag", span)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return Const(-value, "number", span)
            case ast.UnaryOp(operand=operand):
                return Call("neg", (self.number(operand),), "number", span)
            case ast.BoolOp(op=op, values=values):
                return Call("and" if isinstance(op, ast.And) else "or", tuple(map(self.flag, values)), "flag", span)
            case ast.Compare(left=left, ops=ops, comparators=rest):
                return self.compare(node, [left, *rest], [_COMPARISON[type(op)] for op in ops])
            case ast.Call(func=ast.Name(id=function), args=args):
                return self.call(node, function, args)
        raise AssertionError(f"parse lets no {type(node).__name__} through")

    def compare(self, node: ast.expr, terms: list[ast.expr], ops: list[str]) -> Expr:
        span = self.written.at(node)
        values = [self.number(term) for term in terms]
        pairs = [Call(op, (x, y), "flag", span) for op, x, y in zip(ops, values, values[1:], strict=False)]
        return pairs[0] if len(pairs) == 1 else Call("and", tuple(pairs), "flag", span)

    def call(self, node: ast.expr, function: str, args: list[ast.expr]) -> Expr:
        span = self.written.at(node)
        if function in REDUCTIONS and isinstance(args[0], ast.Name) and args[0].id[:1].isupper():
            return self.reduce(node, function, args[0].id, args[1])
        if function == "take":
            return self.take(node, args[0], args[1])
        if function == "where":
            condition, x, y = self.flag(args[0]), self.expr(args[1]), self.expr(args[2])
            if kind_of(x) == kind_of(y) == "flag":
                return Call("where", (condition, x, y), "flag", span)
            if kind_of(x) == kind_of(y) == "int":
                return Call("where", (condition, x, y), "int", span)
            return Call("where", (condition, self.as_number(x, args[1]), self.as_number(y, args[2])), "number", span)
        return Call(function, tuple(map(self.number, args)), "number", span)

    def reduce(self, node: ast.expr, op: str, axis: str, arg: ast.expr) -> Expr:
        value = self.number(arg)
        if axis not in self.scope.axes:
            raise self.error(
                "RLS307",
                f"no input has an axis {axis}",
                node,
                did_you_mean(axis, self.scope.axes) or "axes are named in the inputs' types",
            )
        if axis not in axes_of(value):
            raise self.error(
                "RLS307",
                f"{op} over {axis}, and its argument has no axis {axis}",
                node,
                f"the argument's axes: {', '.join(axes_of(value)) or 'none beyond B and T'}",
            )
        return Reduce(op, axis, value, self.written.at(node))

    def take(self, node: ast.expr, source: ast.expr, index: ast.expr) -> Expr:
        read = self.expr(source)
        if not isinstance(read, Ref) or read.name not in self.scope.inputs:
            raise self.error("RLS307", "take picks from an input", source, "take(q_values[t], actions[t])")
        at = self.as_index(self.expr(index), index)
        free = [axis for axis in read.axes if axis not in axes_of(at)]
        if len(free) != 1:
            raise self.error(
                "RLS307",
                "take picks along the one axis that its first argument has and its index lacks",
                node,
                f"here that is {', '.join(free) or 'none'}",
            )
        return Take(read, at, free[0], self.written.at(node))

    def element(self, node: ast.expr, side: str, element: str) -> Expr:
        if element not in self.pairs:
            raise self.error(
                "RLS301",
                f"the operator has no element `{element}`",
                node,
                did_you_mean(element, self.pairs) or f"its elements are {', '.join(f'`{e}`' for e in self.pairs)}",
            )
        return first(element) if side == "first" else second(element)

    def name(self, node: ast.Name) -> Expr:
        name, span = node.id, self.written.at(node)
        if name in ("true", "false"):
            return Const(name == "true", "flag", span)
        if name == "inf":
            return Const(float("inf"), "number", span)
        if self.local is not None:
            return self.local_name(node)
        if name in self.incoming:
            return incoming(name)
        if name in self.scope.params:
            self.scope.use(name)
            return Ref(name, 0, False, "number", (), span)
        self.known(node, name)
        if self.scope.is_timed(name):
            help = f"write `{name}[t]` for this step's, `{name}[t+1]` for the next one's"
            if name in self.scope.carries:
                help += "; bare, the carry may stand in `update:` only"
            raise self.error("RLS302", f"`{name}` has a time axis and needs a time index", node, help)
        self.scope.use(name)
        kind, axes = self.scope.kind_and_axes(name)
        return Ref(name, 0, False, kind, axes, span)

    def local_name(self, node: ast.Name) -> Expr:
        local = self.local or {}
        if node.id in local:
            return local[node.id]
        known = [*local] or [f"{side}.{element}" for element in self.pairs for side in ("first", "second")]
        raise self.error(
            "RLS301",
            f"`{node.id}` is not defined here",
            node,
            f"an operator's expressions may read {', '.join(f'`{k}`' for k in known)}"
            if known
            else "only constants stand here",
        )

    def indexed(self, node: ast.expr, name: str, offset: int) -> Expr:
        span = self.written.at(node)
        if self.local is not None:
            raise self.error(
                "RLS303", "an operator's expressions have no time", node, "give the step's value as an element"
            )
        if self.timeless:
            raise self.error(
                "RLS313",
                f"{self.timeless} lies outside the window and cannot depend on time",
                node,
                "use inputs without T, such as `last_value: f[B]`",
            )
        if name in self.incoming:
            raise self.error(
                "RLS309",
                "in an update the carry stands bare",
                node,
                f"write `{name}`: it means the incoming value, from the side that the scan comes from",
            )
        if name in self.scope.params:
            raise self.error(
                "RLS303", f"the param `{name}` is written bare, without a time index", node, f"write `{name}`"
            )
        self.known(node, name)
        if not self.scope.is_timed(name):
            raise self.error("RLS303", f"`{name}` has no time axis", node, f"write `{name}`")
        self.scope.use(name, offset)
        if name in self.scope.carries:
            return self.carry(node, name, offset)
        if offset and name not in self.scope.edges:
            side = "after" if offset > 0 else "before"
            past = "past the last step" if offset > 0 else "before the first step"
            value = "false" if self.scope.kind_and_axes(name)[0] == "flag" else "0"
            raise self.error(
                "RLS304",
                f"`{name}[t{offset:+d}]` is read {past}, and nothing says what it is there",
                node,
                f"add it under `edge:`, as in `{name}: {value}` or `{name}: {{{side}: …}}`",
            )
        edge = self.scope.edges.get(name)
        if offset and edge and not (edge.both or (edge.after if offset > 0 else edge.before)):
            side = "after" if offset > 0 else "before"
            raise self.error(
                "RLS304",
                f"`{name}[t{offset:+d}]` is read past an end for which `edge` says nothing",
                node,
                f"add `{side}:` to the edge of `{name}`",
            )
        kind, axes = self.scope.kind_and_axes(name)
        return Ref(name, offset, True, kind, axes, span)

    def carry(self, node: ast.expr, name: str, offset: int) -> Expr:
        scope = self.scope
        if name not in scope.carry_axes and name in scope.own:
            raise self.error(
                "RLS309",
                f"a step's coefficients cannot read the carry `{name}`",
                node,
                f"write the recurrence as `update:` with a bare `{name}`",
            )
        if name not in scope.carry_axes:
            raise self.error(
                "RLS310",
                f"`{name}` is the carry of a later scan: here it is not computed yet",
                node,
                f"scans run in the order of the list: put that of `{name}` before this one",
            )
        started, far = scope.ends(name)
        edge = scope.edges.get(name)
        against = offset and (offset > 0) == (far == "after")
        if against and not (edge and (edge.both or getattr(edge, far))):
            near = "t-1" if started == "before" else "t+1"
            raise self.error(
                "RLS304",
                f"`{name}[t{offset:+d}]` is read {far} the window, at the end that the {scope.carries[name]} scan runs to",
                node,
                f"the neighbour that the scan itself comes from is `{name}[{near}]`;\n"
                f"if this one is meant, say under `edge:` what it is there: `{name}: {{{far}: …}}`",
            )
        return Ref(name, offset, True, "number", scope.carry_axes[name], self.written.at(node))

    def known(self, node: ast.expr, name: str) -> None:
        scope = self.scope
        if name in scope.inputs or name in scope.written or name in scope.carries:
            return
        hint = did_you_mean(name, [*scope.inputs, *scope.params, *scope.written, *scope.carries])
        raise self.error("RLS301", f"`{name}` is not defined", node, hint or "declare it under inputs, params or let")


def _constant(expr: Expr) -> float | None:
    """The value of an expression of literals; None where it has names or functions, or is beyond every float."""
    if isinstance(expr, Const):
        return float(expr.value)
    if not isinstance(expr, Call) or expr.fn not in _EXACT:
        return None
    args = [_constant(arg) for arg in expr.args]
    try:
        return None if None in args else float(_EXACT[expr.fn](*args))
    except ArithmeticError:
        return None


def _offset(index: ast.expr) -> int:
    match index:
        case ast.Name():
            return 0
        case ast.BinOp(op=op, right=ast.Constant(value=int() as value)):
            return value if isinstance(op, ast.Add) else -value
    raise AssertionError("parse lets only t, t+n and t-n through")
