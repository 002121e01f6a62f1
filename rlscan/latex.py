"""Scans in LaTeX: one aligned display, ready to paste beside the paper's."""

from __future__ import annotations

from rlscan.ir import Call, Const, Expr, Inside, Reduce, Ref, Scan, Stage, Take, Var

_GREEK = {
    "alpha", "beta", "gamma", "delta", "epsilon", "eta", "lambda", "mu", "pi", "rho", "sigma", "tau", "phi",
}  # fmt: skip
_INFIX = {
    "add": ("+", 4), "sub": ("-", 4), "mul": (r"\,", 5), "lt": ("<", 3), "le": (r"\le", 3), "gt": (">", 3),
    "ge": (r"\ge", 3), "eq": ("=", 3), "ne": (r"\ne", 3), "and": (r"\wedge", 2), "or": (r"\vee", 1),
}  # fmt: skip
_FUNCTIONS = {"exp": r"\exp", "log": r"\log", "tanh": r"\tanh", "min": r"\min", "max": r"\max"}


def name(word: str, index: str = "") -> str:
    r"""gamma → \gamma, rho_bar → \bar\rho, final_values[t] → \mathrm{final\_values}_t."""
    head, _, tail = word.partition("_")
    head = {"lam": "lambda"}.get(head, head)
    if head in _GREEK and tail in ("", "bar"):
        made = rf"\{head}" if not tail else rf"\bar{{\{head}}}"
    elif len(head) == 1 and tail in ("", "bar"):
        made = head if not tail else rf"\bar{{{head}}}"
    else:
        made = r"\mathrm{" + word.replace("_", r"\_") + "}"
    return f"{made}_{{{index}}}" if index else made


def page(scan: Scan) -> str:
    """An `align` environment: definitions, recurrence, edges, outputs."""
    rows = [rf"{name(d.name, 't' if d.timed else '')} &= {text(d.value)}" for d in scan.lets]
    for stage in scan.stages:
        rows += _stage(stage)
    for edge in scan.edges:
        rows += [rf"{name(edge.name, 'T')} &= {text(edge.after)}"] if edge.after else []
        rows += [rf"{name(edge.name, '-1')} &= {text(edge.before)}"] if edge.before else []
    rows += [rf"{name(o.name, 't')} &= {text(o.value)}" for o in scan.outputs]
    body = " \\\\\n".join(f"  {row}" for row in rows)
    return (
        f"% {scan.title or scan.name}{f' ({scan.cite})' if scan.cite else ''}\n\\begin{{align}}\n{body}\n\\end{{align}}"
    )


def _stage(stage: Stage) -> list[str]:
    near, beyond = ("t+1", "T") if stage.toward > 0 else ("t-1", "-1")
    rows = []
    values = dict(zip(stage.operator.elements, stage.raw, strict=True))
    for carry, update in zip(stage.carries, stage.update or stage.plain.apply, strict=True):
        if stage.update is None and stage.operator.name == "affine":
            a, b = text(values["a"], 5), text(values["b"], 4)
            made = b if a == "0" else f"{'' if a == '1' else a + ' '}{name(carry.name, near)} + {b}"
        else:
            made = text(update)
            for element, value in values.items():
                made = made.replace(name(element), text(value, 5)) if stage.update is None else made
            for other in stage.carries:
                made = made.replace(name(f"{other.name}_in"), name(other.name, near))
        if stage.reset is not None:
            dropped = rf"\text{{the same without }} {name(carry.name, near)} & \text{{if }} {text(stage.reset)}"
            made = rf"\begin{{cases}} {made} & \text{{within an episode}} \\ {dropped} \end{{cases}}"
        if stage.keep is not None:
            made += rf" \quad ({name(carry.name, near)} \text{{ where }} {text(stage.keep)})"
        rows += [rf"{name(carry.name, 't')} &= {made}", rf"{name(carry.name, beyond)} &= {text(carry.start)}"]
    return rows


def text(expr: Expr, strength: int = 0) -> str:
    made, own = _render(expr)
    return rf"\left({made}\right)" if own < strength else made


def _render(expr: Expr) -> tuple[str, int]:
    if isinstance(expr, Const):
        if isinstance(expr.value, bool):
            return rf"\text{{{str(expr.value).lower()}}}", 9
        words = {float("inf"): r"\infty", float("-inf"): r"-\infty"}
        return words.get(float(expr.value), repr(expr.value)), 9 if expr.value >= 0 else 6
    if isinstance(expr, Ref):
        index = "" if not expr.timed else "t" if expr.offset == 0 else f"t{expr.offset:+d}"
        return name(expr.name, index), 9
    if isinstance(expr, Var):
        return name(expr.name), 9
    if isinstance(expr, Inside):
        return rf"0 \le t{expr.offset:+d} < T", 3
    if isinstance(expr, Reduce):
        operator = {"sum": r"\sum", "max": r"\max", "min": r"\min"}.get(expr.op, r"\operatorname{logsumexp}")
        return f"{operator}_{{{expr.axis}}} {text(expr.arg, 5)}", 4
    if isinstance(expr, Take):
        return f"{text(expr.source)}({text(expr.index)})", 9
    fn, args = expr.fn, expr.args
    if fn in _INFIX:
        sign, own = _INFIX[fn]
        return f" {sign} ".join([text(args[0], own), *(text(arg, own + 1) for arg in args[1:])]), own
    if fn == "div":
        return rf"\frac{{{text(args[0])}}}{{{text(args[1])}}}", 8
    if fn == "neg":
        return f"-{text(args[0], 6)}", 6
    if fn == "not":
        return rf"\neg {text(args[0], 3)}", 3
    if fn == "number":
        return _render(args[0])
    if fn == "pow":
        return f"{text(args[0], 9)}^{{{text(args[1])}}}", 8
    if fn == "where":
        condition, x, y = args
        return (
            rf"\begin{{cases}} {text(x)} & \text{{if }} {text(condition)} \\ {text(y)} & \text{{otherwise}} \end{{cases}}",
            9,
        )
    return _function(expr)


def _function(expr: Call) -> tuple[str, int]:
    inside = ", ".join(map(text, expr.args))
    if expr.fn == "abs":
        return rf"\left|{inside}\right|", 9
    if expr.fn == "sqrt":
        return rf"\sqrt{{{inside}}}", 9
    head = _FUNCTIONS.get(expr.fn, rf"\operatorname{{{expr.fn}}}")
    return rf"{head}\left({inside}\right)", 9
