"""rlscan: small YAML specs of credit-assignment recurrences, compiled into fused kernels.

    gae = rlscan.compile("gae", layout="tb")
    out = gae(rewards=r, values=v, terminated=d, last_value=lv, gamma=0.99, lam=0.95)
    out.advantages, out.returns

Importing rlscan loads neither torch nor sympy and touches no device and no file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlscan.compiler import Report, check, explain
    from rlscan.diagnostics import SpecError
    from rlscan.entry import compile
    from rlscan.runtime import Estimator

__version__ = "0.1.0.dev0"

__all__ = ["Estimator", "Report", "SpecError", "__version__", "check", "compile", "explain"]

_HOME = {
    "Estimator": "rlscan.runtime",
    "Report": "rlscan.compiler",
    "SpecError": "rlscan.diagnostics",
    "check": "rlscan.compiler",
    "compile": "rlscan.entry",
    "explain": "rlscan.compiler",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rlscan' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
