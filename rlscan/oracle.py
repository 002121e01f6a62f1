"""The oracle: a Spec run step by step in float64 NumPy, from its parsed expressions alone.

It imports neither lift nor ir nor sympy and takes no part in compiling, so that it cannot share the compiler's mistakes. It is
vectorised over the batch and the named axes, walks time one step after another, and looks every name up where it stands:

    x[t+n]   inside the window its value there, outside the name's edge; a carry beyond the scan's start is `start`
    s[t]     with c the incoming carry, 0 where reset:  c where keep, else op(step, c)
    op       affine: a·c + b, where a coefficient of exactly zero drops c, finite or not

Integers stay integers (int64) where everything that is read is one.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlscan.diagnostics import SpecError
from rlscan.spec import BATCH, REDUCTIONS, TIME, Carry, Expression, ScanBlock, Spec

Array = np.ndarray[Any, np.dtype[Any]]


def run(
    spec: Spec,
    inputs: Mapping[str, Array],
    params: Mapping[str, float | Array] | None = None,
    *,
    layout: str = "bt",
    outputs: Sequence[str] | None = None,
) -> dict[str, Array]:
    """The outputs of a spec, exactly as written.

    inputs: arrays in the layout, those of optional inputs left out at will. params: numbers, or arrays [], [B] (per
    environment) or [B, T] (per step, in the layout). ValueError where a required input or param is missing.
    """
    with np.errstate(all="ignore"):
        window = _Window(spec, inputs, params or {}, layout)
        for scan in spec.scans:
            window.scan(scan)
        names = [output.name for output in spec.outputs] if outputs is None else list(outputs)
        return {name: window.output(name) for name in names}


class _Window:
    """One window of B environments and T steps. Values are arrays [B, *axes], axes in the order of `axes`, 1 where absent."""

    def __init__(
        self, spec: Spec, inputs: Mapping[str, Array], params: Mapping[str, float | Array], layout: str
    ) -> None:
        self.spec = spec
        self.time_first = layout == "tb"
        self.axes = list(dict.fromkeys(d for item in spec.inputs for d in item.dims if d not in (BATCH, TIME)))
        self.absent: set[str] = set()
        self.sizes: dict[str, int] = {}
        self.inputs: dict[str, Array | None] = {}
        unknown = set(inputs) - {item.name for item in spec.inputs} | set(params) - {p.name for p in spec.params}
        if unknown:
            raise ValueError(f"{spec.name} has no {', '.join(sorted(unknown))}")
        self.whole = True
        for item in spec.inputs:
            self.inputs[item.name] = self._input(item.name, inputs.get(item.name))
        self.defaults = {item.name: item.default for item in spec.inputs}
        self.flags = {item.name for item in spec.inputs if item.kind == "flag"}
        self.indices = {item.name for item in spec.inputs if item.kind == "int"}
        self.B, self.T = self.sizes[BATCH], self.sizes[TIME]
        self.whole = self.whole and not spec.params
        self.params: dict[str, Array] = {}
        for param in spec.params:
            given = params.get(param.name, param.default)
            if given is None:
                raise ValueError(f"{spec.name} needs the param {param.name}")
            self.params[param.name] = self._param(np.asarray(given, np.float64))
        self.edges = {edge.name: edge for edge in spec.edges}
        self.written = {d.name: d.value for d in (*spec.lets, *spec.outputs)}
        self.home = {carry.name: scan for scan in spec.scans for carry in scan.carries}
        self.carries: dict[str, dict[int, Array]] = {}
        self.starts: dict[str, Array] = {}
        self.memo: dict[tuple[str, int], Array] = {}
        self.named_axes: dict[str, set[str]] = {}
        self.local: dict[str, Array] = {}

    # -- what was given ---------------------------------------------------------------------------------------------

    def _input(self, name: str, given: Array | None) -> Array | None:
        item = next(i for i in self.spec.inputs if i.name == name)
        if given is None:
            if item.default is None:
                raise ValueError(f"{self.spec.name} needs the input {name}")
            return None
        x = np.asarray(given)
        dims = [d for d in item.dims if not (d in item.optional_axes and x.ndim < len(item.dims))]
        self.absent |= set(item.dims) - set(dims)
        if self.time_first and TIME in dims:
            x = x.swapaxes(0, 1)
        if x.ndim != len(dims):
            raise ValueError(f"{name} must have {len(dims)} dims {dims}, got shape {np.shape(given)}")
        for dim, size in zip(dims, x.shape, strict=True):
            if self.sizes.setdefault(dim, size) != size:
                raise ValueError(f"{name} has {dim} = {size}, another input has {self.sizes[dim]}")
        if item.kind == "flag":
            x = x != 0
        elif item.kind in ("float", "num"):
            self.whole = self.whole and np.issubdtype(x.dtype, np.integer)
            x = x.astype(np.int64 if np.issubdtype(x.dtype, np.integer) else np.float64)
        # To [B, (T,) *axes]: a missing named axis has size 1 and broadcasts.
        shape = [x.shape[dims.index(d)] if d in dims else 1 for d in [BATCH, *([TIME] if TIME in dims else []), *self.axes]]
        return x.reshape(shape)

    def _param(self, value: Array) -> Array:
        """To [1 or B, 1 or T, 1 …]. A size of B follows the environments, also where B = T."""
        ones = [1] * len(self.axes)
        if value.size == 1 and value.ndim < 2:
            return value.reshape([1, 1, *ones])
        if value.ndim == 1:
            return value.reshape([self.B, 1, *ones])
        return (value.swapaxes(0, 1) if self.time_first else value).reshape([self.B, self.T, *ones])

    # -- names in time ----------------------------------------------------------------------------------------------

    def at(self, name: str, t: int) -> Array:
        """The value of a name at step t, inside the window or beyond it."""
        if name in self.carries:
            if 0 <= t < self.T:
                return self.carries[name][t]
            return self.starts[name]
        if not 0 <= t < self.T:
            edge = self.edges[name]
            side = edge.both or (edge.after if t >= self.T else edge.before)
            if side is None:
                raise SpecError("RLS304", f"{name} is read at step {t} of {self.T} without an edge", edge.span)
            return self.eval(side, min(max(t, 0), self.T - 1))
        if name in self.inputs:
            x = self.inputs[name]
            return self._default(name) if x is None else x[:, t]
        key = (name, t)
        if key not in self.memo:
            self.memo[key] = self.eval(self.written[name], t)
        return self.memo[key]

    def _default(self, name: str) -> Array:
        default = self.defaults[name]
        if name in self.flags:
            return np.full([1] * (1 + len(self.axes)), bool(default))
        whole = self.whole and float(default or 0).is_integer()
        return np.full([1] * (1 + len(self.axes)), default, np.int64 if whole else np.float64)

    def bare(self, name: str, t: int) -> Array:
        """A name without a time index."""
        one = [1] * (1 + len(self.axes))
        if name in self.local:
            return self.local[name]
        if name in ("true", "false"):
            return np.full(one, name == "true")
        if name == "inf":
            return np.full(one, np.inf)
        if name in self.params:
            value = self.params[name]
            return value[:, t if value.shape[1] > 1 else 0]
        if name in self.inputs:
            x = self.inputs[name]
            return self._default(name) if x is None else x
        return self.eval(self.written[name], t)

    # -- the scan ---------------------------------------------------------------------------------------------------

    def scan(self, block: ScanBlock) -> None:
        backward = block.direction == "backward"
        order = range(self.T - 1, -1, -1) if backward else range(self.T)
        incoming = {c.name: self.eval(_given(c.start), self.T - 1 if backward else 0) for c in block.carries}
        self.starts.update(incoming)
        history: dict[str, dict[int, Array]] = {carry.name: {} for carry in block.carries}
        for t in order:
            reset = self.eval(block.reset, t) if block.reset else None
            keep = self.eval(block.keep, t) if block.keep else None
            entering = {
                n: c if reset is None else np.where(reset, np.zeros_like(c), c) for n, c in incoming.items()
            }
            after = {carry.name: self._step(block, carry, entering, reset, t) for carry in block.carries}
            if keep is not None:
                after = {name: np.where(keep, entering[name], value) for name, value in after.items()}
            incoming = after
            for name, value in after.items():
                history[name][t] = value
        self.carries.update(history)

    def _step(self, block: ScanBlock, carry: Carry, entering: dict[str, Array], reset: Array | None, t: int) -> Array:
        c = entering[carry.name]
        if carry.update is not None:
            return self._with(entering, lambda: self.eval(_given(carry.update), t))
        given = {name: self.eval(expr, t) for name, expr in block.operator.coefficients}
        match block.operator.name:
            case "affine":
                return np.where(given["a"] == 0, given["b"], given["a"] * c + given["b"])
            case "clipped_affine":
                moved = np.where(given["a"] == 0, given["b"], given["a"] * c + given["b"])
                return np.minimum(np.maximum(moved, given["lo"]), given["hi"])
            case "max_plus" | "min_plus":
                best = np.maximum if block.operator.name == "max_plus" else np.minimum
                made = best(given["b"], given["a"] + c)
                # There is no number that the carry could be after a reset: the step's own b is what is left.
                return made if reset is None else np.where(reset, given["b"], made)
        return self._with({**given, carry.name: c}, lambda: self.eval(_given(block.operator.apply), t))

    def _with(self, local: dict[str, Array], compute: Any) -> Array:
        held, self.local = self.local, local
        try:
            return np.asarray(compute())
        finally:
            self.local = held

    # -- expressions ------------------------------------------------------------------------------------------------

    def eval(self, expression: Expression, t: int) -> Array:
        return self.node(expression.tree, t)

    def node(self, node: ast.expr, t: int) -> Array:
        match node:
            case ast.Constant(value=value):
                return np.full([1] * (1 + len(self.axes)), value)
            case ast.Name(id=name):
                return self.bare(name, t)
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                return self.at(name, t + _offset(index))
            case ast.BinOp(left=left, op=op, right=right):
                return _binary(op, self.node(left, t), self.node(right, t))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return ~self.node(operand, t)
            case ast.UnaryOp(operand=operand):
                return -self.node(operand, t)
            case ast.BoolOp(op=op, values=values):
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                made = self.node(values[0], t)
                for value in values[1:]:
                    made = join(made, self.node(value, t))
                return made
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                terms = [self.node(term, t) for term in (left, *comparators)]
                made = np.full([1] * (1 + len(self.axes)), True)
                for op, x, y in zip(ops, terms, terms[1:], strict=False):
                    made = made & _COMPARE[type(op)](x, y)
                return made
            case ast.Call(func=ast.Name(id="take")):
                return self.take(node, t)
            case ast.Call(func=ast.Name(id=function), args=args):
                return self.call(function, args, t)
        raise AssertionError(f"parse lets no {type(node).__name__} through")

    def call(self, function: str, args: list[ast.expr], t: int) -> Array:
        head = args[0]
        if function in REDUCTIONS and isinstance(head, ast.Name) and head.id[:1].isupper():
            axis = 1 + self.axes.index(head.id)
            return _reduce(function, self.node(args[1], t), axis)
        values = [self.node(arg, t) for arg in args]
        if function == "where":
            return np.where(*values)
        if function in ("min", "max"):
            best = np.minimum if function == "min" else np.maximum
            made = values[0]
            for value in values[1:]:
                made = best(made, value)
            return made
        if function == "clip":
            return np.minimum(np.maximum(values[0], values[1]), values[2])
        if function == "sigmoid":
            return np.asarray(1 / (1 + np.exp(-values[0])))
        named = {"abs": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "tanh": np.tanh}
        return np.asarray(named[function](values[0]))

    def take(self, node: ast.Call, t: int) -> Array:
        """x at an index along one axis; NaN where the index is out of range."""
        x, index = (self.node(arg, t) for arg in node.args)
        axis = 1 + self.axes.index(self._picked(node))
        fits = (index >= 0) & (index < x.shape[axis])
        place = np.broadcast_to(np.where(fits, index, 0), [*x.shape[:axis], 1, *x.shape[axis + 1 :]])
        return np.where(fits, np.take_along_axis(x, place, axis), np.nan)

    # -- results ----------------------------------------------------------------------------------------------------

    def output(self, name: str) -> Array:
        """[B, T, *axes] in the layout; axes that the result does not vary with, or that the call left out, are dropped."""
        steps = [self.at(name, t) for t in range(self.T)]
        varies = self._axes_of_name(name)
        kept = [d for d in self.axes if d in varies and d not in self.absent]
        shape = (self.B, *(self.sizes[d] for d in kept))
        rows = []
        for step in steps:
            dropped = tuple(1 + i for i, d in enumerate(self.axes) if d not in kept)
            rows.append(np.broadcast_to(step.squeeze(dropped) if dropped else step, shape))
        empty = np.zeros((self.B, 0, *shape[1:]))
        made = np.stack(rows, axis=1) if rows else empty
        if not (self.whole and made.dtype.kind == "i"):
            made = made.astype(np.float64)
        return np.ascontiguousarray(made.swapaxes(0, 1) if self.time_first else made)

    # -- axes -------------------------------------------------------------------------------------------------------

    def axes_of(self, node: ast.AST) -> set[str]:
        """The named axes that an expression varies with, by what it reads."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            head = node.args[0]
            if node.func.id in REDUCTIONS and isinstance(head, ast.Name) and head.id[:1].isupper():
                return self.axes_of(node.args[1]) - {head.id}
            if node.func.id == "take":
                return (self.axes_of(head) - {self._picked(node)}) | self.axes_of(node.args[1])
            return set().union(*(self.axes_of(arg) for arg in node.args))
        if isinstance(node, ast.Name):
            return self._axes_of_name(node.id)
        return set().union(*(self.axes_of(child) for child in ast.iter_child_nodes(node)))

    def _picked(self, node: ast.Call) -> str:
        """The axis that take picks along: the one that its first argument has and its index lacks."""
        (axis,) = self.axes_of(node.args[0]) - self.axes_of(node.args[1])
        return axis

    def _axes_of_name(self, name: str) -> set[str]:
        if name not in self.named_axes:
            # Set first: a carry's own update reads the carry.
            self.named_axes[name] = set()
            found: set[str] = set()
            for item in self.spec.inputs:
                if item.name == name:
                    found |= set(item.dims) - {BATCH, TIME}
            if name in self.written:
                found |= self.axes_of(self.written[name].tree)
            if name in self.home:
                block = self.home[name]
                parts = [e for _, e in block.operator.coefficients] + [block.reset, block.keep]
                parts += [e for carry in block.carries for e in (carry.update, carry.start)]
                found = found.union(*(self.axes_of(part.tree) for part in parts if part))
            self.named_axes[name] = found
        return self.named_axes[name]


def _given(expression: Expression | None) -> Expression:
    if expression is None:
        raise AssertionError("parse gives every carry its parts")
    return expression


def _offset(index: ast.expr) -> int:
    if isinstance(index, ast.BinOp) and isinstance(index.right, ast.Constant):
        number = int(str(index.right.value))
        return number if isinstance(index.op, ast.Add) else -number
    return 0


def _binary(op: ast.operator, x: Array, y: Array) -> Array:
    match op:
        case ast.Add():
            return np.asarray(x + y)
        case ast.Sub():
            return np.asarray(x - y)
        case ast.Mult():
            return np.asarray(x * y)
        case ast.Div():
            return np.asarray(x / y)
        case ast.Pow():
            return np.asarray(x**y)
    raise AssertionError(f"parse lets no {type(op).__name__} through")


_COMPARE: dict[type[ast.cmpop], Any] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}


def _reduce(function: str, x: Array, axis: int) -> Array:
    match function:
        case "sum":
            return np.asarray(x.sum(axis, keepdims=True))
        case "max":
            return np.asarray(x.max(axis, keepdims=True, initial=-np.inf))
        case "min":
            return np.asarray(x.min(axis, keepdims=True, initial=np.inf))
    peak = x.max(axis, keepdims=True, initial=-np.inf)
    safe = np.where(np.isinf(peak), 0, peak)
    return np.asarray(safe + np.log(np.exp(x - safe).sum(axis, keepdims=True)))
