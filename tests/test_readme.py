"""README.md says what is so: its spec is the builtin's, its code runs, its kernel and its refusal are the real ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from rlscan.parse import parse
from tests.test_meaning import GOLDEN, refusal

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


def test_the_spec_is_the_builtin() -> None:
    (yaml,) = blocks("yaml")
    assert yaml == (ROOT / "specs" / "gae.yaml").read_text(encoding="utf-8")
    assert parse(yaml, "gae.yaml").name == "gae"


def test_the_call_runs_and_has_the_shapes_it_says() -> None:
    call = next(code for code in blocks("python") if "rlscan.compile" in code)
    space: dict[str, object] = {}
    exec(call, space)
    out = space["out"]
    assert [tuple(x.shape) for x in out] == [(128, 64), (128, 64)]  # type: ignore[attr-defined]
    assert all(bool(torch.isfinite(x).all()) for x in out)  # type: ignore[attr-defined]


def test_the_kernel_is_a_part_of_the_generated_one() -> None:
    shown = re.search(r"<!-- kernel -->\n```python\n(.*?)```", TEXT, flags=re.DOTALL)
    assert shown
    assert len(shown[1].splitlines()) > 8
    real = (ROOT / "generated" / "gae" / "triton_tile.py").read_text(encoding="utf-8")
    assert "".join(f"        {line}\n" for line in shown[1].splitlines()) in real


def test_the_refusal_is_word_for_word() -> None:
    shown = re.search(r"<!-- refusal -->\n```text\n(.*?)```", TEXT, flags=re.DOTALL)
    assert shown
    assert shown[1] == f"{refusal(GOLDEN / 'rls404-next-value-unguarded.yaml')}\n"


def test_the_builtins_are_all_named() -> None:
    names = {path.stem for path in (ROOT / "specs").glob("*.yaml")}
    assert names == set(re.findall(r"^\| `([a-z_]+)` \|", TEXT, flags=re.MULTILINE)) & names
    for name in names:
        outputs = [output.name for output in parse((ROOT / "specs" / f"{name}.yaml").read_text(), name).outputs]
        assert f"| `{name}` | {', '.join(outputs)} |" in TEXT


def test_the_libraries_it_is_compared_with_are_those_of_the_extra() -> None:
    extra = re.search(
        r"^peers = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), flags=re.M | re.S
    )
    assert extra
    pins = dict(re.findall(r'"([a-z0-9-]+)==([0-9.]+)', extra[1]))
    assert pins.pop("jax"), "what rlax runs on"
    by_hand = {"verl": "0.9.1", "trl": "0.11.4"}
    assert dict(re.findall(r"^\| ([a-z0-9-]+) ([0-9.]+) \|", TEXT, flags=re.MULTILINE)) == pins | by_hand


def test_the_speed_table_is_what_was_measured() -> None:
    measured = json.loads((ROOT / "benchmarks" / "results" / "estimators-h200.json").read_text(encoding="utf-8"))
    found = {(e["estimator"], e["layout"], f"{e['B']} × {e['T']}"): e for e in measured["entries"]}
    shown = TEXT.split("<!-- speed -->")[1].split("<!-- /speed -->")[0]
    compared = 0
    for part, layout in zip(shown.strip().split("\n\n"), ("bt", "tb"), strict=True):
        head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()]
        for name, *cells in rows:
            for shape, cell in zip(head[1:], cells, strict=True):
                entry = found[name.strip("`"), layout, shape]
                peer = entry["times"].get("rl-triton") if name != "`retrace`" else None
                numbers = [entry["times"]["rlscan"]["device"], peer and peer["device"], entry["copy"]]
                for text, number in zip(cell.split(" / "), numbers, strict=True):
                    assert (text == "–") == (number is None)
                    assert number is None or float(text) == pytest.approx(number["median"], rel=0.01, abs=0.06)
                    compared += 1
    assert compared == 2 * 7 * 6 * 3
    assert f"commit {measured['commit']}" in TEXT
