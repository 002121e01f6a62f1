"""names: locals of a kernel that meet no other, and what a quantity at an offset is called."""

from __future__ import annotations

import keyword
from collections.abc import Iterable


class Names:
    """Fresh locals. Sweeps may use one name each for its own; what lives through the whole kernel has its name alone."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self.common = {*reserved, *keyword.kwlist, *keyword.softkwlist}
        self.here: set[str] = set()
        self.ever: set[str] = set()

    def next_sweep(self) -> None:
        self.here = set()

    def fresh(self, base: str) -> str:
        """A local of this sweep."""
        name = _free(base, self.common | self.here)
        self.here.add(name)
        self.ever.add(name)
        return name

    def lasting(self, base: str) -> str:
        """A local of the whole kernel."""
        name = _free(base, self.common | self.ever)
        self.common.add(name)
        return name


def _free(base: str, taken: set[str]) -> str:
    while base in taken:
        base += "_"
    return base


def suffix(offset: int) -> str:
    """`_next` for +1, `_prev` for −1, with the number beyond."""
    if offset == 0:
        return ""
    word = "_next" if offset > 0 else "_prev"
    return word if abs(offset) == 1 else f"{word}{abs(offset)}"
