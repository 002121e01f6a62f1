"""A reset by what it means: written as `reset`, into a coefficient, an update or a let, on the right side or the wrong one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlscan.diagnostics import SpecError, located
from rlscan.laws import prove
from rlscan.lift import lift
from rlscan.parse import parse

ROOT = Path(__file__).resolve().parent.parent


def spec(direction: str, update: str, let: str = "where(done[t], 0, 1)", output: str = "s[t]") -> str:
    """One scan; what its lets and edges do not need of the text is left out."""
    lines = ["rlscan: 1", "name: probe", "inputs:", "  x: f[B, T]", "  v: f[B, T]", "  done: flag[B, T]", "edge:"]
    text = f"{update} {output}" + (f" {let}" if "cont" in update else "")
    pasts = (("v", "0"), ("done", "false"), ("cont", "1"))
    lines += [f"  {name}: {past}" for name, past in pasts if re.search(rf"\b{name}\[t[+-]", text)]
    lines = lines if lines[-1] != "edge:" else lines[:-1]
    lines += ["let:", f"  cont: {let}"] if "cont" in update else []
    lines += ["scan:", f"  direction: {direction}", "  carry: s", f"  update: {update}", "  start: 0", "outputs:"]
    return "\n".join([*lines, f"  y: {output}", "  here: v[t] + where(done[t], 1, 0)"]) + "\n"


def laws(text: str) -> set[str]:
    made = parse(text)
    with located(made.source):
        return {law.name for law in prove(lift(made)).laws}


RIGHT = [
    ("backward", "x[t] + where(done[t], 0, 0.9 * s)", ""),
    ("backward", "x[t] + 0.9 * where(done[t], 0, s)", ""),
    ("backward", "x[t] + where(not done[t], 0.9 * s, 0)", ""),
    ("backward", "where(done[t], x[t], x[t] + 0.9 * s)", ""),
    ("backward", "x[t] + (1 - where(done[t], 1, 0)) * s", ""),
    ("backward", "x[t] + cont[t] * s", "where(done[t], 0, 1)"),
    ("forward", "x[t] + where(done[t-1], 0, 0.9 * s)", ""),
    ("forward", "x[t] + cont[t-1] * s", "where(done[t], 0, 1)"),
    ("forward", "x[t] + cont[t] * s", "where(done[t-1], 0, 1)"),
]
WRONG = [
    ("backward", "x[t] + where(done[t+1], 0, 0.9 * s)", "", "done[t+1]", "early"),
    ("backward", "x[t] + where(done[t-1], 0, 0.9 * s)", "", "done[t-1]", "late"),
    ("backward", "x[t] + cont[t] * s", "where(done[t+1], 0, 1)", "done[t+1]", "early"),
    ("backward", "x[t] + cont[t+1] * s", "where(done[t], 0, 1)", "done[t+1]", "early"),
    ("forward", "x[t] + where(done[t], 0, 0.9 * s)", "", "done[t]", "early"),
    ("forward", "x[t] + where(done[t-2], 0, 0.9 * s)", "", "done[t-2]", "late"),
    ("forward", "x[t] + cont[t] * s", "where(done[t], 0, 1)", "done[t]", "early"),
]


@pytest.mark.parametrize(("direction", "update", "let"), RIGHT)
def test_a_reset_within_the_update_is_proved(direction: str, update: str, let: str) -> None:
    assert {"affine", "reset", "isolation"} <= laws(spec(direction, update, let))


@pytest.mark.parametrize(("direction", "update", "let", "flag", "when"), WRONG)
def test_the_wrong_side_is_refused_however_it_is_written(
    direction: str, update: str, let: str, flag: str, when: str
) -> None:
    with pytest.raises(SpecError, match=f"too {when}") as caught:
        laws(spec(direction, update, let))
    assert caught.value.code == "RLS406"
    assert f"`{flag}`" in caught.value.message
    assert caught.value.span is not None


@pytest.mark.parametrize(
    ("update", "output"),
    [
        # The last reward of an episode, as every step before it sees it: the next step's flag ends nothing by itself.
        ("where(done[t], 0, where(done[t+1], x[t], s))", "s[t]"),
        # What a step carries where its episode ends is read nowhere.
        ("x[t] + where(done[t+1], 0, 0.9 * s)", "where(done[t], 0, s[t])"),
        # True whatever the flag is.
        ("x[t] + where(done[t+1] or not done[t+1], 0.9 * s, 0)", "s[t]"),
    ],
)
def test_a_right_spec_may_read_the_flag_of_another_step(update: str, output: str) -> None:
    laws(spec("backward", update, output=output))


def test_a_read_across_the_end_that_an_update_makes_is_refused() -> None:
    with pytest.raises(SpecError, match=r"reads `v\[t\+1\]` across an episode's end \(where done\[t\]\)") as caught:
        laws(spec("backward", "x[t] + v[t+1] + where(done[t], 0, 0.9 * s)"))
    assert caught.value.code == "RLS404"
    with pytest.raises(SpecError, match=r"reads `v\[t\+1\]`"):
        # A product with zero lets a NaN of the other side through.
        laws(spec("backward", "x[t] + v[t+1] * where(done[t], 0, 1) * s"))


def reset(direction: str, written: str, output: str = "s[t]", let: str = "where(x[t] > 0, done[t], false)") -> str:
    """The same scan with its reset under `reset`; `ended` is the let."""
    text = spec(direction, "x[t] + 0.9 * s + 0 * cont[t]", "1", output).replace("+ 0 * cont[t]", "")
    text = text.replace("  cont: 1\n", f"  ended: {let}\n" if "ended" in written else "").replace("let:\nscan", "scan")
    for name, past in (("done", "false"), ("ended", "false"), ("x", "0")):
        if re.search(rf"\b{name}\[t[+-]", f"{written} {let if 'ended' in written else ''}"):
            text = (
                text.replace("outputs:", f"edge:\n  {name}: {past}\noutputs:")
                if "edge:" not in text
                else text.replace("edge:", f"edge:\n  {name}: {past}")
            )
    return text.replace("  start: 0\n", f"  reset: {written}\n  start: 0\n")


@pytest.mark.parametrize(
    ("direction", "written"),
    [
        ("backward", "done[t]"),
        ("backward", "not (not done[t])"),
        ("backward", "done[t] or x[t] > 2"),
        # The next step's flag ends nothing that this one's does not.
        ("backward", "done[t] or done[t+1]"),
        ("backward", "done[t] or done[t-1]"),
        ("backward", "done[t] and (done[t+1] or not done[t+1])"),
        # True whatever the flag is.
        ("backward", "done[t+1] or not done[t+1]"),
        ("forward", "done[t-1]"),
        ("forward", "done[t-1] or done[t]"),
        ("forward", "done[t] or not done[t]"),
    ],
)
def test_an_explicit_reset_is_judged_by_what_it_means(direction: str, written: str) -> None:
    assert "reset" in laws(reset(direction, written))


@pytest.mark.parametrize(
    ("direction", "written", "flag", "when"),
    [
        ("backward", "done[t+1]", "done[t+1]", "early"),
        ("backward", "done[t-1]", "done[t-1]", "late"),
        ("backward", "done[t+1] and x[t] > 0", "done[t+1]", "early"),
        ("backward", "done[t-1] or x[t] > 0", "done[t-1]", "late"),
        ("backward", "ended[t+1]", "done[t+1]", "early"),
        ("backward", "where(x[t] > 0, done[t-1], false)", "done[t-1]", "late"),
        ("backward", "where(done[t+1], 1, 0) > 0.5", "done[t+1]", "early"),
        # An end is none where the next step ends too.
        ("backward", "done[t] and not done[t+1]", "done[t+1]", "early"),
        ("forward", "done[t]", "done[t]", "early"),
        ("forward", "done[t-2]", "done[t-2]", "late"),
        ("forward", "ended[t]", "done[t]", "early"),
    ],
)
def test_an_explicit_reset_on_the_wrong_side_is_refused(direction: str, written: str, flag: str, when: str) -> None:
    with pytest.raises(SpecError, match=f"where `{re.escape(flag)}` holds,.* too {when}") as caught:
        laws(reset(direction, written))
    assert caught.value.code == "RLS406"


def test_a_guard_counts_also_where_the_reset_is_a_select() -> None:
    written, next_value = "where(x[t] > 0, done[t], false)", "s[t] + where(done[t], 0, v[t+1])"
    made = reset("backward", written, next_value)
    assert "isolation" in laws(made)
    with pytest.raises(
        SpecError, match=r"reads `v\[t\+1\]` across an episode's end \(where x\[t\] > 0 and done\[t\]\)"
    ):
        laws(made.replace(next_value, "s[t] + v[t+1]"))


def test_a_reset_on_the_wrong_side_is_no_fault_where_no_result_reads_the_carry_there_or_it_crosses() -> None:
    assert "reset" in laws(reset("backward", "done[t+1]", "where(done[t], 0, s[t])"))
    assert "reset" in laws(reset("backward", "done[t+1]") + "crosses: [s]\n")


@pytest.mark.parametrize("path", sorted((ROOT / "specs").rglob("*.yaml")), ids=lambda path: path.stem)
def test_no_spec_of_ours_is_refused(path: Path) -> None:
    laws(path.read_text(encoding="utf-8"))
