"""A scan in a person's words: the recurrence in Unicode, for headers, `explain` and docstrings."""

from __future__ import annotations

from rlscan.ir import Call, Const, Expr, Inside, Reduce, Ref, Scan, Stage, Take, Var

_GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "eta": "η", "lam": "λ", "lambda": "λ",
    "mu": "μ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ",
}  # fmt: skip
_INFIX = {
    "add": ("+", 4), "sub": ("−", 4), "mul": ("·", 5), "div": ("/", 5), "lt": ("<", 3), "le": ("≤", 3), "gt": (">", 3),
    "ge": ("≥", 3), "eq": ("=", 3), "ne": ("≠", 3), "and": ("and", 2), "or": ("or", 1),
}  # fmt: skip


def symbol(name: str) -> str:
    """Greek where a name is a Greek letter's, with what follows: rho_bar → ρ_bar."""
    head, _, tail = name.partition("_")
    return _GREEK.get(head, head) + (f"_{tail}" if tail else "")


def text(expr: Expr, strength: int = 0) -> str:
    """An expression as a person writes it."""
    made, own = _render(expr)
    return f"({made})" if own < strength else made


def _render(expr: Expr) -> tuple[str, int]:
    if isinstance(expr, Const):
        if isinstance(expr.value, bool):
            return str(expr.value).lower(), 9
        words = {float("inf"): "∞", float("-inf"): "−∞"}
        return words.get(float(expr.value), repr(expr.value).replace("-", "−")), 9 if expr.value >= 0 else 6
    if isinstance(expr, Ref):
        return symbol(expr.name) + (f"[{at(expr.offset)}]" if expr.timed else ""), 9
    if isinstance(expr, Var):
        return symbol(expr.name), 9
    if isinstance(expr, Inside):
        return f"{at(expr.offset)} in the window", 3
    if isinstance(expr, Reduce):
        big = {"sum": "Σ"}.get(expr.op, expr.op)
        return f"{big}_{expr.axis} {text(expr.arg, 5)}", 5
    if isinstance(expr, Take):
        return f"{text(expr.source)}({text(expr.index)})", 9
    return _call(expr)


def _call(expr: Call) -> tuple[str, int]:
    if expr.fn in _INFIX:
        sign, own = _INFIX[expr.fn]
        parts = [text(expr.args[0], own), *(text(arg, own + 1) for arg in expr.args[1:])]
        return f" {sign} ".join(parts), own
    if expr.fn == "neg":
        return f"−{text(expr.args[0], 6)}", 6
    if expr.fn == "not":
        return f"not {text(expr.args[0], 3)}", 2
    if expr.fn == "number":
        return _render(expr.args[0])
    if expr.fn == "pow" and isinstance(power := expr.args[1], Const):
        digits = str(power.value).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{text(expr.args[0], 8)}{digits}", 8
    if expr.fn == "where":
        condition, x, y = expr.args
        return f"{{{text(x)} if {text(condition)}, else {text(y)}}}", 9
    return f"{expr.fn}({', '.join(map(text, expr.args))})", 9


def at(offset: int) -> str:
    return "t" if offset == 0 else f"t{'+' if offset > 0 else '−'}{abs(offset)}"


def recurrence(scan: Scan) -> tuple[str, ...]:
    """The lets, the recurrence with its reset and start, the outputs and the edges, a line each."""
    return tuple(line for part in ("lets", "stages", "outputs", "edges") for line in equation_lines(scan, part))


def equation_lines(scan: Scan, part: str) -> list[str]:
    """One part of a scan: "lets", "stages", "outputs" or "edges"."""
    match part:
        case "lets":
            return [f"{symbol(d.name)}{'[t]' if d.timed else ''} = {text(d.value)}" for d in scan.lets]
        case "stages":
            return [line for stage in scan.stages for line in stage_lines(stage)]
        case "outputs":
            return [f"{symbol(output.name)}[t] = {text(output.value)}" for output in scan.outputs]
    lines = []
    for edge in scan.edges:
        lines += [f"{symbol(edge.name)}[T] = {text(edge.after)}"] if edge.after else []
        lines += [f"{symbol(edge.name)}[−1] = {text(edge.before)}"] if edge.before else []
    return lines


def stage_lines(stage: Stage) -> list[str]:
    """sₜ = a·sₜ₊₁ + b, in the update's own form where the spec gave one."""
    lines = []
    near = at(stage.toward)
    beyond = "T" if stage.toward > 0 else "−1"
    values: dict[str, Expr] = dict(zip(stage.operator.elements, stage.raw, strict=True))
    updates = stage.update or stage.plain.apply
    for carry, update in zip(stage.carries, updates, strict=True):
        name = symbol(carry.name)
        if stage.update is None:
            made = _affine_text(stage, values, f"{name}[{near}]")
        else:
            made = text(update)
            for other in stage.carries:
                made = made.replace(symbol(f"{other.name}_in"), f"{symbol(other.name)}[{near}]")
        lines.append(f"{name}[t] = {made},   {name}[{beyond}] = {text(carry.start)}")
    if stage.reset is not None:
        names = ", ".join(f"{symbol(c.name)}[{near}]" for c in stage.carries)
        what = "started anew" if stage.operator.cut else "dropped"
        lines.append(f"    {names} {what} where {text(stage.reset)}")
    if stage.keep is not None:
        lines.append(f"    passed on unchanged where {text(stage.keep)}")
    return lines


def _affine_text(stage: Stage, values: dict[str, Expr], carry: str) -> str:
    match stage.operator.name:
        case "affine":
            a = text(values["a"], 5)
            if a == "0":
                return text(values["b"])
            product = carry if a == "1" else f"{a} · {carry}"
            return f"{product} + {text(values['b'], 4)}"
        case "clipped_affine":
            return f"clip({text(values['a'], 5)} · {carry} + {text(values['b'], 5)}, {text(values['lo'])}, {text(values['hi'])})"
        case "max_plus" | "min_plus":
            best = stage.operator.name[:3]
            return f"{best}({text(values['b'])}, {text(values['a'], 4)} + {carry})"
    apply = text(stage.plain.apply[0])
    return apply.replace(symbol(f"{stage.carries[0].name}_in"), carry)
