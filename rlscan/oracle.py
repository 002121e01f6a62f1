"""A spec run as it is written: step by step in time, in float64, from the parsed `ast` alone.

    x[t+n]   the value at that step; outside the window, the edge of x, or the start of a carry
    s[t]     from c, the carry of the neighbouring step, dropped where `reset` holds and passed on where `keep` holds:
             affine          s = b where a = 0 or c = 0, else a·c + b
             clipped_affine  s = clip(that, lo, hi)
             max_plus        s = max(b, a + c)        min_plus   s = min(b, a + c)
             update, custom  s = the update, or `apply`, as written
    reset    a dropped carry is 0 (−∞ under max_plus, +∞ under min_plus: what no other number sees; its start where the
             operator is the spec's own), and where a step has an `a`, dropping is a select: s = b, whatever `a` is there

It is the reference that every backend is compared with, so it shares nothing with the compiler past `parse`: names are
resolved, axes aligned and steps taken here a second time, from the language's rules.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlscan.diagnostics import SpecError, located
from rlscan.spec import BATCH, REDUCTIONS, TIME, Expression, Input, Let, Output, ScanBlock, Spec

Array = np.ndarray[Any, np.dtype[Any]]


def run(
    spec: Spec,
    inputs: Mapping[str, Any],
    params: Mapping[str, Any] | None = None,
    *,
    layout: str = "bt",
    outputs: Sequence[str] | None = None,
) -> dict[str, Array]:
    """The outputs of `spec`, in its order, each [B, T, …] (layout "tb": [T, B, …]) and contiguous.

    inputs: arrays in that layout; optional ones may be left out. An input without T may be one number. params: a
    number, [B] (one per environment, also where B = T) or one per step in the layout. outputs: a subset to compute.

    Numbers are float64; int64 where every number read is an integer. An output's named axes stand in the order in which
    the spec's inputs first name them; the carries of one scan share their axes. Raises ValueError where an argument is
    missing, unknown or of another shape, and SpecError (a ValueError) where the spec makes no sense.
    """
    if layout not in ("bt", "tb"):
        raise ValueError(f'layout must be "bt" or "tb", got {layout!r}')
    known = [output.name for output in spec.outputs]
    for name in outputs or ():
        if name not in known:
            raise ValueError(f"{spec.name}: there is no output `{name}`")
    with np.errstate(all="ignore"), located(spec.source):
        values = _Values(spec, _Window(spec, inputs, params or {}, layout))
        return {name: values.output(name) for name in known if outputs is None or name in outputs}


class _Window:
    """What was given, time first. A step of an input is [B, …] with every named axis, of size 1 where it lacks one."""

    def __init__(self, spec: Spec, inputs: Mapping[str, Any], params: Mapping[str, Any], layout: str) -> None:
        self.spec = spec
        self.layout = layout
        self.axes = tuple(dict.fromkeys(a for item in spec.inputs for a in item.dims if a not in (BATCH, TIME)))
        given = {name: np.asarray(x) for name, x in inputs.items() if x is not None}
        self._check_names(given, params)
        self.sizes: dict[str, int] = {}
        dims = {item.name: self._dims(item, given[item.name]) for item in spec.inputs if item.name in given}
        #: optional axes that this call leaves out: no output has them
        self.absent = {axis for item in spec.inputs for axis in item.optional_axes} - set(self.sizes)
        for axis in (BATCH, TIME):
            if axis not in self.sizes:
                raise ValueError(f"{spec.name}: no input with the axis {axis} was given")
        self.B, self.T = self.sizes[BATCH], self.sizes[TIME]
        numbers = [given[i.name] for i in spec.inputs if i.kind in ("float", "num") and i.name in given]
        #: int64 throughout: there are numbers, and no float among them
        self.exact = bool(numbers) and not spec.params and all(x.dtype.kind in "iu" for x in numbers)
        self.inputs = {i.name: self._input(i, dims.get(i.name, ()), given.get(i.name)) for i in spec.inputs}
        self.params = {p.name: self._param(p.name, params.get(p.name, p.default)) for p in spec.params}

    def number(self, value: Any) -> Any:
        """An array or a literal as the type that this call computes in."""
        x = np.asarray(value)
        whole = self.exact and (x.dtype.kind in "biu" or bool((x == np.floor(x)).all() and np.isfinite(x).all()))
        return x.astype(np.int64 if whole else np.float64)

    def size(self, axis: str) -> int:
        if axis in self.absent:
            return 1
        if axis not in self.sizes:
            raise ValueError(f"{self.spec.name}: nothing that was given has the axis {axis}, so its size is not known")
        return self.sizes[axis]

    def _check_names(self, given: Mapping[str, Array], params: Mapping[str, Any]) -> None:
        spec = self.spec
        for kind, names, known in (
            ("input", given, {item.name for item in spec.inputs}),
            ("param", params, {param.name for param in spec.params}),
        ):
            for name in names:
                if name not in known:
                    raise ValueError(f"{spec.name}: there is no {kind} `{name}`")
        missing = [item.name for item in spec.inputs if not item.optional and item.name not in given]
        missing += [param.name for param in spec.params if params.get(param.name, param.default) is None]
        if missing:
            raise ValueError(f"{spec.name}: missing {', '.join(missing)}")
        for group in spec.together:
            if len({name in given for name in group}) > 1:
                raise ValueError(f"{spec.name}: {', '.join(group)} come together: give all or none")

    def _dims(self, item: Input, x: Array) -> tuple[str, ...]:
        """The dims of an array given, in the caller's order; its sizes are noted, or refused."""
        if x.ndim == 0 and TIME not in item.dims:
            return ()
        dims = item.dims
        if self.layout == "tb" and TIME in dims:
            dims = (TIME, BATCH, *dims[2:])
        if x.ndim == len(dims) - len(item.optional_axes):
            dims = tuple(axis for axis in dims if axis not in item.optional_axes)
        if x.ndim != len(dims) or any(self.sizes.setdefault(a, n) != n for a, n in zip(dims, x.shape, strict=True)):
            expected = ", ".join(f"{axis} = {self.sizes[axis]}" if axis in self.sizes else axis for axis in dims)
            raise ValueError(f"{self.spec.name}: `{item.name}` must have shape [{expected}], got {list(x.shape)}")
        return dims

    def _input(self, item: Input, dims: tuple[str, ...], given: Array | None) -> Array:
        x = np.asarray(item.default) if given is None else given
        x = x != 0 if item.kind == "flag" else self.number(x)
        order = [*((TIME,) if TIME in item.dims else ()), BATCH, *self.axes]
        if dims:
            x = x.transpose([dims.index(axis) for axis in order if axis in dims])
        x = x.reshape([self.sizes[axis] if axis in dims else 1 for axis in order])
        # A default, and one number for all, stand for a whole array.
        lead = [self.sizes[axis] for axis in order if axis in (BATCH, TIME)]
        return np.broadcast_to(x, (*lead, *x.shape[len(lead) :]))

    def _param(self, name: str, value: Any) -> Array:
        """[T or 1, B or 1, 1, …]."""
        x = np.asarray(value, dtype=np.float64)
        rest = (1,) * len(self.axes)
        if x.size == 1:
            return x.reshape(1, 1, *rest)
        if x.shape == (self.B,):
            return x.reshape(1, self.B, *rest)
        if x.shape != ((self.B, self.T) if self.layout == "bt" else (self.T, self.B)):
            raise ValueError(
                f"{self.spec.name}: `{name}` must be one number, one per environment or one per step, "
                f"with B = {self.B} and T = {self.T}; got {list(x.shape)}"
            )
        return (x.T if self.layout == "bt" else x).reshape(self.T, self.B, *rest)


class _Values:
    """The values of every name that is needed, a list of steps each, found once and dependencies first."""

    def __init__(self, spec: Spec, window: _Window) -> None:
        self.window = window
        self.inputs = {item.name: item for item in spec.inputs}
        self.edges = {edge.name: edge for edge in spec.edges}
        written: tuple[Let | Output, ...] = (*spec.lets, *spec.outputs)
        self.written = {item.name: item.value for item in written}
        self.blocks = {carry.name: block for block in spec.scans for carry in block.carries}
        self.starts = {carry.name: _given(carry.start) for block in spec.scans for carry in block.carries}
        self.steps: dict[str, list[Array]] = {}
        self.axes: dict[str, frozenset[str]] = {}

    def output(self, name: str) -> Array:
        """[B, T, …] or [T, B, …], with the named axes that it varies along and that the call did not leave out."""
        window = self.window
        self._find(name)
        steps = self.steps[name]
        kept = [axis for axis in window.axes if axis in self.axes[name] - window.absent]
        whole = window.exact and all(x.dtype.kind in "iu" for x in steps)
        result = np.empty((window.T, window.B, *map(window.size, kept)), np.int64 if whole else np.float64)
        aligned = result.reshape(window.T, window.B, *(window.size(a) if a in kept else 1 for a in window.axes))
        for t, step in enumerate(steps):
            aligned[t] = step
        return np.ascontiguousarray(result.swapaxes(0, 1)) if window.layout == "bt" else result

    # -- what needs what --------------------------------------------------------------------------------------------

    def _find(self, name: str) -> None:
        """Without recursion: a spec may chain as many lets as it likes."""
        stack, opened = [name], set()
        while stack:
            top = stack[-1]
            missing = [] if top in self.steps else [other for other in self._needs(top) if other not in self.steps]
            if not missing:
                if top not in self.steps:
                    self._fill(top)
                stack.pop()
            elif top in opened:
                span = self.written[top].span if top in self.written else self.blocks[top].span
                raise SpecError("RLS308", f"`{top}` is defined through itself", span)
            else:
                opened.add(top)
                stack += missing

    def _fill(self, name: str) -> None:
        if name in self.blocks:
            self._scan(self.blocks[name])
        else:
            tree = self.written[name].tree
            self.axes[name] = self._axes(tree)
            self.steps[name] = [self._value(tree, t) for t in range(self.window.T)]

    def _needs(self, name: str) -> list[str]:
        """The lets, outputs and carries that must be known first."""
        if name in self.written:
            return list(self._reads([self.written[name]]))
        block = self.blocks[name]
        # An update and an `apply` read their own scan's carries as they come in.
        own = {carry.name for carry in block.carries if carry.update or block.operator.apply}
        parts = [part for part in _parts(block) if part is not block.operator.apply]
        return [other for other in self._reads(parts) if other not in own]

    def _reads(self, expressions: Iterable[Expression]) -> Iterator[str]:
        pending, seen = list(expressions), set()
        while pending:
            for node in ast.walk(pending.pop().tree):
                if not isinstance(node, ast.Name) or node.id in seen:
                    continue
                seen.add(node.id)
                if node.id in self.written or node.id in self.blocks:
                    yield node.id
                if node.id in self.edges:
                    edge = self.edges[node.id]
                    pending += [part for part in (edge.both, edge.before, edge.after) if part]

    # -- the recurrence ---------------------------------------------------------------------------------------------

    def _scan(self, block: ScanBlock) -> None:
        T, names = self.window.T, [carry.name for carry in block.carries]
        axes = frozenset(axis for part in _parts(block) for axis in self._axes(part.tree))
        self.axes.update(dict.fromkeys(names, axes))
        order = range(T - 1, -1, -1) if block.direction == "backward" else range(T)
        found: dict[str, dict[int, Array]] = {name: {} for name in names}
        starts = {name: self._value(self.starts[name].tree, order[0]) for name in names} if T else {}
        carries = starts
        for t in order:
            carries = self._step(block, starts, carries, t)
            for name in names:
                found[name][t] = carries[name]
        self.steps.update({name: [found[name][t] for t in range(T)] for name in names})

    def _step(self, block: ScanBlock, starts: dict[str, Array], incoming: dict[str, Array], t: int) -> dict[str, Array]:
        reset = self._value(block.reset.tree, t) if block.reset else np.False_
        held = incoming
        if block.reset:
            nothing = {"max_plus": -np.inf, "min_plus": np.inf}.get(block.operator.name, self.window.number(0))
            dropped = starts if block.operator.apply else dict.fromkeys(incoming, nothing)
            held = {name: np.where(reset, dropped[name], c) for name, c in incoming.items()}
        if block.carries[0].update:
            made = [self._value(_given(carry.update).tree, t, held) for carry in block.carries]
        else:
            made = [self._advance(block, incoming, held, reset, t)]
        after = dict(zip(incoming, made, strict=True))
        if block.keep:
            keep = self._value(block.keep.tree, t)
            after = {name: np.where(keep, held[name], s) for name, s in after.items()}
        return after

    def _advance(self, block: ScanBlock, incoming: dict[str, Array], held: dict[str, Array], reset: Any, t: int) -> Any:
        """The one carry after the step of an operator."""
        operator = block.operator
        of = {name: self._value(written.tree, t) for name, written in operator.coefficients}
        if operator.apply:
            return self._value(operator.apply.tree, t, {**of, **held})
        (c,) = incoming.values()
        a, b = of["a"], of["b"]
        # Selects: where the step drops the carry, neither it nor `a` need be finite.
        if operator.name == "max_plus":
            return np.where(reset | (a == -np.inf), b, np.maximum(b, a + c))
        if operator.name == "min_plus":
            return np.where(reset | (a == np.inf), b, np.minimum(b, a + c))
        s = np.where(reset | (a == 0) | (c == 0), b, a * c + b)
        return _clip(s, of["lo"], of["hi"]) if operator.name == "clipped_affine" else s

    # -- values -----------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr, t: int, bare: Mapping[str, Any] | None = None) -> Any:
        """An expression at step t; `bare` are the names that an update or an `apply` reads without a time index."""
        go = functools.partial(self._value, t=t, bare=bare)
        match node:
            case ast.Constant(value=bool() as flag):
                return np.bool_(flag)
            case ast.Constant(value=int() | float() as value):
                return self.window.number(value)
            case ast.Name(id=name):
                return self._bare(name, t, bare or {})
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                return self._at(node, name, t + _offset(index))
            case ast.BinOp(left=left, op=op, right=right):
                return _BINARY[type(op)](go(left), go(right))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return np.logical_not(go(operand))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return np.negative(go(operand))
            case ast.BoolOp(op=join, values=values):
                return functools.reduce(np.logical_and if isinstance(join, ast.And) else np.logical_or, map(go, values))
            case ast.Compare(left=left, ops=ops, comparators=rest):
                terms = [go(left), *map(go, rest)]
                pairs = zip(ops, terms, terms[1:], strict=False)
                return functools.reduce(np.logical_and, [_COMPARE[type(op)](x, y) for op, x, y in pairs])
            case ast.Call(func=ast.Name(id="take"), args=[source, at]):
                return self._take(go(source), go(at), self._picked(source, at))
            case ast.Call(func=ast.Name(id=function), args=[ast.Name(id=axis), arg]) if self._reduces(function, axis):
                return _reduced(function, *self._along(axis, go(arg)))
            case ast.Call(func=ast.Name(id=function), args=args):
                return _FUNCTIONS[function](*map(go, args))
        raise SpecError("RLS202", f"`{ast.unparse(node)}` cannot stand here")

    def _at(self, node: ast.Subscript, name: str, t: int) -> Any:
        """A name at step t, which may lie outside the window."""
        window = self.window
        if 0 <= t < window.T:
            return window.inputs[name][t] if name in self.inputs else self.steps[name][t]
        side, nearest = ("before", 0) if t < 0 else ("after", window.T - 1)
        if name in self.blocks and (side == "before") == (self.blocks[name].direction == "forward"):
            return self._value(self.starts[name].tree, nearest)
        edge = self.edges.get(name)
        beyond = edge and ((edge.before if side == "before" else edge.after) or edge.both)
        if not beyond:
            raise SpecError("RLS304", f"`{ast.unparse(node)}` is read {side} the window, where `{name}` has no edge")
        return self._value(beyond.tree, nearest)

    def _bare(self, name: str, t: int, bare: Mapping[str, Any]) -> Any:
        if name in bare:
            return bare[name]
        if name in ("true", "false"):
            return np.bool_(name == "true")
        if name == "inf":
            return np.float64(np.inf)
        if name in self.window.params:
            each = self.window.params[name]
            return each[t if len(each) > 1 else 0]
        if name in self.inputs and TIME not in self.inputs[name].dims:
            return self.window.inputs[name]
        if name in self.steps:
            return self.steps[name][t]
        raise SpecError("RLS302" if name in self.inputs else "RLS301", f"`{name}` cannot stand bare here")

    def _reduces(self, function: str, axis: str) -> bool:
        return function in REDUCTIONS and axis in self.window.axes

    def _along(self, axis: str, x: Any) -> tuple[Array, int]:
        """Every element of x along an axis that it may lack, and the axis's place."""
        place = 1 + self.window.axes.index(axis)
        shape = [1] * (1 + len(self.window.axes))
        shape[place] = self.window.size(axis)
        return np.broadcast_to(x, np.broadcast_shapes(np.shape(x), tuple(shape))), place

    def _take(self, x: Any, index: Any, axis: str) -> Array:
        """The element of x at `index` along an axis; NaN where there is none."""
        x, place = self._along(axis, x)
        size = x.shape[place]
        shape = np.broadcast_shapes((*x.shape[:place], 1, *x.shape[place + 1 :]), np.shape(index))
        if not size:
            return np.full(shape, np.nan)
        chosen = np.broadcast_to(index, shape).astype(np.int64)
        fits = (chosen >= 0) & (chosen < size)
        x = np.broadcast_to(x, (*shape[:place], size, *shape[place + 1 :]))
        found = np.take_along_axis(x, np.where(fits, chosen, 0), place)
        return found if fits.all() else np.where(fits, found, np.nan)

    # -- axes -------------------------------------------------------------------------------------------------------

    def _axes(self, node: ast.AST) -> frozenset[str]:
        """The named axes that an expression varies along."""
        match node:
            case ast.Name(id=name) if name in self.inputs:
                return frozenset(self.inputs[name].dims) - {BATCH, TIME}
            case ast.Name(id=name):
                return self.axes.get(name, frozenset())
            case ast.Call(func=ast.Name(id="take"), args=[source, at]):
                return self._axes(source) - {self._picked(source, at)} | self._axes(at)
            case ast.Call(func=ast.Name(id=function), args=[ast.Name(id=axis), arg]) if self._reduces(function, axis):
                return self._axes(arg) - {axis}
        return frozenset(axis for child in ast.iter_child_nodes(node) for axis in self._axes(child))

    def _picked(self, source: ast.expr, index: ast.expr) -> str:
        """The axis that take picks along: the one that its first argument has and its index lacks."""
        axes = self._axes(source) - self._axes(index)
        if len(axes) != 1:
            raise SpecError("RLS307", f"`{ast.unparse(index)}` must lack one axis of `{ast.unparse(source)}`")
        return next(iter(axes))


def _parts(block: ScanBlock) -> list[Expression]:
    """Everything that a scan is written with and that its carries' axes come from."""
    parts: list[Expression | None] = [part for carry in block.carries for part in (carry.update, carry.start)]
    parts += [written for _, written in block.operator.coefficients]
    parts += [block.operator.apply, block.reset, block.keep]
    return [part for part in parts if part is not None]


def _given(expression: Expression | None) -> Expression:
    if expression is None:
        raise SpecError("RLS104", "a carry lacks its start or its update")
    return expression


def _offset(index: ast.expr) -> int:
    match index:
        case ast.BinOp(op=ast.Add(), right=ast.Constant(value=int() as n)):
            return n
        case ast.BinOp(op=ast.Sub(), right=ast.Constant(value=int() as n)):
            return -n
    return 0


def _minimum(*args: Any) -> Any:
    return functools.reduce(np.minimum, args)


def _maximum(*args: Any) -> Any:
    return functools.reduce(np.maximum, args)


def _clip(x: Any, lo: Any, hi: Any) -> Any:
    return _minimum(_maximum(x, lo), hi)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _reduced(function: str, x: Array, place: int) -> Array:
    over: dict[str, Any] = {"axis": place, "keepdims": True}
    match function:
        case "sum":
            return np.asarray(x.sum(**over))
        case "min":
            return np.asarray(x.min(**over, initial=np.inf))
    peak = np.asarray(x.max(**over, initial=-np.inf))
    if function == "max":
        return peak
    # exp(x − peak) of an infinite peak would be NaN.
    safe = np.where(np.isinf(peak), 0, peak)
    return np.asarray(safe + np.log(np.exp(x - safe).sum(**over)))


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.true_divide,
    ast.Pow: np.power,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": np.where,
    "min": _minimum,
    "max": _maximum,
    "clip": _clip,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
}
