"""Bounds of expressions from params' ranges and functions' images: enough to prove a coefficient ≥ 0."""

from __future__ import annotations

from collections.abc import Collection

from rlscan.ir import Call, Const, Expr, Reduce, Ref, Scan

_IMAGES_NONNEGATIVE = {"exp", "sqrt", "abs", "sigmoid"}


def tamed_by(expr: Expr, scan: Scan) -> tuple[str, ...] | None:
    """The params whose values, where they too lie in [−1, 1], make |expr| ≤ 1 provably; None where nothing is enough.

    No fewer will do. None at all (an empty tuple) where the ranges alone prove it.
    """
    needed = [param.name for param in scan.params if param.lower < -1 or param.upper > 1]
    if not within_one(expr, scan, needed):
        return None
    for name in tuple(needed):
        without = [other for other in needed if other != name]
        if within_one(expr, scan, without):
            needed = without
    return tuple(needed)


def within_one(expr: Expr, scan: Scan, tame: Collection[str] = ()) -> bool:
    """Whether |expr| ≤ 1 provably (a NaN aside), where the params named in `tame` are too."""

    def go(node: Expr) -> bool:
        if isinstance(node, Const):
            return abs(node.value) <= 1
        if isinstance(node, Ref):
            param = next((p for p in scan.params if p.name == node.name), None)
            if param is not None:
                return param.name in tame or (param.lower >= -1 and param.upper <= 1)
            return all(map(go, values)) if (values := _written(node, scan)) else False
        if not isinstance(node, Call):
            return False
        match node.fn:
            case "sigmoid" | "tanh":
                return True
            case "mul" | "neg" | "abs" | "sqrt" | "max":
                return all(map(go, node.args))
            case "where" | "clip":
                return go(node.args[1]) and go(node.args[2])
            case "min":
                # The least of numbers ≥ 0 is as small as the smallest.
                return all(map(go, node.args)) or (
                    any(map(go, node.args)) and all(nonnegative(arg, scan) for arg in node.args)
                )
            case "sub":
                x, y = node.args
                return nonnegative(node, scan) and go(x) and nonnegative(y, scan)
            case "pow":
                return go(node.args[0])
        return False

    return go(expr)


def _written(ref: Ref, scan: Scan) -> list[Expr]:
    """What a let or an output may be: its expression, and its edges where it is read at an offset."""
    made = scan.definition(ref.name)
    edge = scan.edge(ref.name)
    outside = [e for e in (edge.before, edge.after) if e is not None] if edge and ref.offset else []
    return [made.value, *outside] if made else []


def nonnegative(expr: Expr, scan: Scan) -> bool:
    """Whether an expression is provably ≥ 0 (a NaN aside)."""

    def go(node: Expr) -> bool:
        if isinstance(node, Const):
            return node.value >= 0
        if isinstance(node, Ref):
            param = next((p for p in scan.params if p.name == node.name), None)
            if param is not None:
                return param.lower >= 0
            return all(map(go, values)) if (values := _written(node, scan)) else False
        if isinstance(node, Reduce):
            return node.op in ("sum", "max", "min") and go(node.arg)
        if not isinstance(node, Call):
            return False
        if node.fn in _IMAGES_NONNEGATIVE:
            return True
        if node.fn in ("add", "mul", "div", "min"):
            return all(map(go, node.args))
        if node.fn == "max":
            return any(map(go, node.args))
        if node.fn == "where":
            return go(node.args[1]) and go(node.args[2])
        if node.fn == "clip":
            return go(node.args[1]) and go(node.args[2])
        if node.fn == "sub":
            # 1 − x for a param x of range [.., 1]
            x, y = node.args
            param = next((p for p in scan.params if isinstance(y, Ref) and p.name == y.name), None)
            return isinstance(x, Const) and param is not None and param.upper <= x.value
        if node.fn == "pow":
            return go(node.args[0]) or (isinstance(node.args[1], Const) and node.args[1].value % 2 == 0)
        return False

    return go(expr)
