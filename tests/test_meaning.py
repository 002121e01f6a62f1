"""What lift and laws refuse, word for word: each golden spec beside the error that a person reads.

`RLSCAN_GOLDEN=write pytest tests/test_meaning.py` writes the texts anew; read the diff before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlscan.diagnostics import CODES, SpecError, located
from rlscan.laws import prove
from rlscan.lift import lift
from rlscan.parse import parse

GOLDEN = Path(__file__).parent / "golden" / "meaning"
CASES = sorted(GOLDEN.glob("*.yaml"))


def refusal(path: Path) -> SpecError:
    spec = parse(path.read_text(encoding="utf-8"), path.name)
    with pytest.raises(SpecError) as caught, located(spec.source):
        prove(lift(spec))
    return caught.value


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_refusal_reads_as_agreed(path: Path) -> None:
    error = refusal(path)
    text = path.with_suffix(".txt")
    if os.environ.get("RLSCAN_GOLDEN") == "write":
        text.write_text(f"{error}\n", encoding="utf-8")
    assert f"{error}\n" == text.read_text(encoding="utf-8")
    assert error.code.lower() == path.stem.split("-")[0]


def test_every_refusal_points_at_its_place_and_says_what_to_do() -> None:
    for path in CASES:
        error = refusal(path)
        assert error.span is not None, path.stem
        assert error.help, path.stem


def test_every_code_of_these_passes_has_a_case() -> None:
    covered = {path.stem.split("-")[0].upper() for path in CASES}
    assert covered >= {code for code in CODES if code >= "RLS301"}
