"""Published bug reports about credit-assignment scans, each as a small case of our own with its right value.

A case is named by its number and kind: K1 which step a flag marks; K2 termination and truncation; K3 the bootstrap at the
window's edge; K4 where the carry is dropped; K5 parameters that vary; K6 NaN and inf in slots that do not count; K7 masks,
padding, packing; K8 layout and shape; K9 strides, views, aliases; K10 dtypes; K11 the scan engine; K12 parameters at their
ends, long T; K13 sizes; K14 nothing to do; K15 processes and caches; K16 gradients; K17 the spec file; K18 the formula
itself; K19 devices and CUDA graphs. The right values are by hand or by exact fractions, never by this code.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import rlscan
from rlscan import entry, store
from rlscan.diagnostics import SpecError
from tests.test_kernels import BUILTINS, LAYOUTS, as_tensors, estimator, in_layout, sample, spec_of, targets

ROOT = Path(__file__).resolve().parent.parent
NAN = math.nan
HALF = {"gamma": 0.5, "lam": 0.5}
Arrays = dict[str, np.ndarray[Any, Any]]

each_target = pytest.mark.parametrize(("backend", "device"), targets())
each_layout = pytest.mark.parametrize("layout", LAYOUTS)


class Case(NamedTuple):
    number: int
    kind: str
    name: str
    inputs: Mapping[str, Any]  # batch first
    params: Mapping[str, Any]
    right: Mapping[str, Any]


FLAGGED: Mapping[str, Any] = {  # case 1
    "rewards": [[1, 2, 3, 4]],
    "values": [[1, 1, 2, 2]],
    "terminated": [[0, 1, 0, 0]],
    "last_value": [8],
}
ADVANTAGES = [[0.75, 1.0, 3.5, 6.0]]
PADDED: Mapping[str, Any] = {"rewards": [[0.5, 2, 0]], "terminated": [[0, 1, 0]], "last_value": [0]}  # case 11
SEEDED: Mapping[str, Any] = {  # case 5
    "rewards": [[1, 1, 1]],
    "values": [[2, 3, 4]],
    "terminated": [[0, 0, 0]],
    "last_value": [10],
}


def on(number: int, kind: str, name: str, inputs: Mapping[str, Any], params: Mapping[str, Any], **right: Any) -> Case:
    return Case(number, kind, name, inputs, params, right)


NUMERIC = (
    on(1, "K1", "gae", FLAGGED, HALF, advantages=ADVANTAGES),
    on(
        2,
        "K1",
        "eligibility_traces",
        {"features": [[1, 2, 4, 8]], "terminated": [[0, 1, 0, 0]]},
        {"gamma": 0.5, "lam": 1},
        traces=[[1, 2.5, 4, 10]],
    ),
    on(
        3,
        "K2",
        "gae",
        {
            "rewards": [[1, 1, 1, 1]],
            "values": [[2, 2, 4, 4]],
            "terminated": [[0, 0, 0, 0]],
            "truncated": [[0, 1, 0, 0]],
            "final_values": [[NAN, 10, NAN, NAN]],
            "last_value": [6],
        },
        HALF,
        advantages=[[1, 4, -1, 0]],
    ),
    on(
        4,
        "K2",
        "gae",
        {
            "rewards": [[1, 1]],
            "values": [[2, 4]],
            "terminated": [[0, 0]],
            "truncated": [[0, 1]],
            "final_values": [[NAN, 10]],
            "last_value": [NAN],
        },
        HALF,
        advantages=[[1.5, 2]],
    ),
    on(5, "K3", "gae", SEEDED, {"gamma": 0.5, "lam": 1}, advantages=[[1, 1, 2]]),
    on(
        5,
        "K3",
        "discounted_returns",
        {key: SEEDED[key] for key in ("rewards", "terminated", "last_value")},
        {"gamma": 0.5},
        returns=[[3, 4, 6]],  # advantages + values
    ),
    on(
        5,  # V-trace had it too: with equal policies it is the same advantage.
        "K3",
        "vtrace",
        {**SEEDED, "target_log_probs": [[-1, -2, -3]], "behavior_log_probs": [[-1, -2, -3]]},
        {"gamma": 0.5},
        vs=[[3, 4, 6]],
        pg_advantages=[[1, 1, 2]],
    ),
    on(
        6,
        "K3",
        "gae",
        {"rewards": [[0, 0, 6]], "values": [[1, 1, 2]], "terminated": [[0, 0, 0]], "last_value": [4]},
        HALF,
        advantages=[[-0.125, 1.5, 6]],
    ),
    on(
        7,
        "K4",
        "gae",
        {"rewards": [[0, 4, 0, 8]], "values": [[1, 1, 1, 1]], "terminated": [[0, 1, 0, 1]], "last_value": [NAN]},
        {"gamma": 1, "lam": 0.5},
        advantages=[[1.5, 3, 3.5, 7]],
    ),
    on(
        8,
        "K5",
        "eligibility_traces",
        {"features": [[1, 1, 1]], "terminated": [[0, 1, 0]]},
        {"gamma": 0.9, "lam": 1},
        traces=[[1, 1.9, 1]],
    ),
    on(
        9,
        "K6",
        "gae",
        {
            "rewards": [[1, 2, 3]],
            "values": [[1, 2, 1]],
            "terminated": [[0, 0, 1]],
            "truncated": [[0, 0, 0]],
            "final_values": [[NAN, NAN, NAN]],
            "last_value": [NAN],
        },
        HALF,
        advantages=[[1.25, 1, 2]],
        returns=[[2.25, 3, 3]],
    ),
    on(
        10,  # exp(89) overflows float32; the second row's TD error is exactly 0
        "K6",
        "vtrace",
        {
            "target_log_probs": [[-2], [-2]],
            "behavior_log_probs": [[-91], [-91]],
            "rewards": [[3], [1]],
            "values": [[1], [3]],
            "terminated": [[0], [0]],
            "last_value": [4, 4],
        },
        {"gamma": 0.5},
        vs=[[5], [3]],
        pg_advantages=[[4], [0]],
    ),
    on(
        11, "K7", "gae", {**PADDED, "values": [[1, 1.5, 100]]}, {"gamma": 1, "lam": 0.5}, advantages=[[1.25, 0.5, -100]]
    ),
    on(11, "K7", "gae", {**PADDED, "values": [[1, 1.5, NAN]]}, {"gamma": 1, "lam": 0.5}, advantages=[[1.25, 0.5, NAN]]),
    on(
        12,
        "K8",
        "discounted_returns",
        {"rewards": [[0, 0, 1], [0, 0, -1]], "terminated": [[0, 0, 1], [0, 0, 1]], "last_value": [NAN, NAN]},
        {"gamma": 0.5},
        returns=[[0.25, 0.5, 1], [-0.25, -0.5, -1]],
    ),
    on(
        14,
        "K8",
        "gae",
        {
            "rewards": [[1, 1], [1, 1]],
            "values": [[1, 2], [100, 3]],
            "terminated": [[0, 0], [0, 0]],
            "last_value": [5, 7],
        },
        HALF,
        advantages=[[1.375, 1.5], [-97.125, 1.5]],
    ),
    on(
        18,
        "K11",
        "discounted_returns",
        {"rewards": [[1, 2, 3, 4]], "terminated": [[0, 0, 0, 0]], "last_value": [0]},
        {"gamma": [[0.5, 0.25, 1, 0.5]]},
        returns=[[2.875, 3.75, 7, 4]],
    ),
    on(
        29,
        "K18",
        "vtrace",
        {
            "target_log_probs": [[math.log(0.5), 0]],
            "behavior_log_probs": [[0, 0]],
            "rewards": [[4, 2]],
            "values": [[2, 8]],
            "terminated": [[0, 0]],
            "last_value": [8],
        },
        {"gamma": 0.5, "rho_bar": 1, "c_bar": 1, "pg_rho_bar": 1},
        vs=[[4.5, 6]],
    ),
    on(
        30,
        "K18",
        "retrace",
        {
            "q_values": [[[2, 0], [0, 4]]],
            "target_probs": [[[0.5, 0.5], [0.5, 0.5]]],
            "behavior_probs": [[0.5, 0.5]],
            "actions": [[0, 1]],
            "rewards": [[1, 1]],
            "terminated": [[0, 0]],
            "last_q_values": [[8, 0]],
            "last_target_probs": [[0.5, 0.5]],
        },
        {"gamma": 0.5, "lam": 1},
        targets=[[1.5, 3]],
        advantages=[[0.5, -1]],
    ),
    on(
        32,
        "K2",
        "td_lambda",
        {
            "rewards": [[1, 1]],
            "values": [[0, 0]],
            "terminated": [[0, 0]],
            "truncated": [[1, 0]],
            "final_values": [[10, NAN]],
            "last_value": [4],
        },
        {"gamma": 0.5, "lam": 1},
        returns=[[6, 3]],
    ),
    on(
        34,
        "K11",
        "discounted_returns",
        {"rewards": [list(range(1, 10))], "terminated": [[0] * 9], "last_value": [0]},
        {"gamma": 1},
        returns=[[45, 44, 42, 39, 35, 30, 24, 17, 9]],
    ),
)


def arrays(name: str, inputs: Mapping[str, Any], layout: str = "bt") -> Arrays:
    """A case's lists in a layout, by the kinds of the estimator's inputs."""
    dtypes = {"flag": np.bool_, "int": np.int64}
    made = {
        i.name: np.array(inputs[i.name], dtypes.get(i.kind, np.float32))
        for i in spec_of(name).inputs
        if i.name in inputs
    }
    return in_layout(spec_of(name), made, layout)


def tensors(name: str, inputs: Mapping[str, Any], layout: str = "bt", device: str = "cpu") -> dict[str, torch.Tensor]:
    return as_tensors(arrays(name, inputs, layout), device)


def assert_right(got: Any, right: Mapping[str, Any], layout: str = "bt") -> None:
    for field, wanted in right.items():
        value = getattr(got, field)
        value = value.cpu().numpy() if isinstance(value, torch.Tensor) else value
        want = np.array(wanted, np.float64)
        want = want if layout == "bt" else want.swapaxes(0, 1)
        assert value.shape == want.shape, field
        np.testing.assert_allclose(value, want, rtol=1e-6, atol=1e-6, err_msg=field)


def python(code: str, folder: Path, **environment: str) -> str:
    """What a fresh interpreter prints, without any variable that says where a cache is."""
    caches = ("RLSCAN_CACHE_DIR", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "TRITON_HOME", "TRITON_CACHE_DIR")
    env = {key: x for key, x in os.environ.items() if key not in caches}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env |= {"PYTHONPATH": path, **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def own(folder: Path, name: str = "gae", **replaced: str) -> Path:
    """A builtin's text as a user's own spec, with other words in it: nothing compiled is there for it."""
    text, _ = store.find_spec(name)
    for old, new in {f"name: {name}": f"name: own_{name}", **replaced}.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    path = folder / f"own_{name}.yaml"
    path.write_text(text)
    return path


# -- numbers -----------------------------------------------------------------------------------------------------------


@each_target
@each_layout
@pytest.mark.parametrize("case", NUMERIC, ids=lambda case: f"case{case.number}-{case.kind}-{case.name}")
def test_case(case: Case, layout: str, backend: str, device: str) -> None:
    given = tensors(case.name, case.inputs, layout, device)
    params = dict(case.params)
    for key, x in params.items():
        if isinstance(x, list):
            steps = torch.tensor(x, dtype=torch.float32, device=device)
            params[key] = steps if layout == "bt" else steps.T.contiguous()
    assert_right(estimator(case.name, layout, backend)(**given, **params), case.right, layout)


@each_target
@pytest.mark.parametrize("name", [n for n in BUILTINS if spec_of(n).together])
def test_case_4_k2_a_truncation_needs_its_value(name: str, backend: str, device: str) -> None:
    _, _, given = sample(name, "bt", device, B=2, T=3)
    run = estimator(name, "bt", backend)
    for absent in ("final_values", "truncated"):
        with pytest.raises(ValueError, match=f"`{absent}` is missing"):
            run(**{key: x for key, x in given.items() if key != absent})


@each_target
def test_case_12_k8_a_transpose_is_not_a_reshape(backend: str, device: str) -> None:
    """The report's own numbers, time first; and the same numbers where the tensors are views of batch-first memory."""
    rewards = torch.tensor([[0.0, 0], [0, 0], [1, -1]], device=device)
    flags = torch.tensor([[0, 0], [0, 0], [1, 1]], dtype=torch.bool, device=device)
    run = estimator("discounted_returns", "tb", backend)
    for x in (rewards, rewards.T.contiguous().T):
        got = run(rewards=x, terminated=flags, last_value=torch.zeros(2, device=device), gamma=0.5)
        assert got.returns.tolist() == [[0.25, -0.25], [0.5, -0.5], [1, -1]]


@each_target
@each_layout
def test_case_13_k8_no_broadcasting(layout: str, backend: str, device: str) -> None:
    flat = torch.ones(2, 2, device=device)
    flags = torch.zeros(2, 2, dtype=torch.bool, device=device)
    given = {"rewards": flat, "values": flat, "terminated": flags, "last_value": flat[:, :1]}
    with pytest.raises(ValueError, match=r"`last_value`.*\[2\].*\[2, 1\]"):
        estimator("gae", layout, backend)(**given)


@each_target
@each_layout
@pytest.mark.parametrize("name", BUILTINS)
def test_case_13_k8_no_input_of_any_estimator_broadcasts(name: str, layout: str, backend: str, device: str) -> None:
    """A trailing 1 too many, or a 1 in place of a size, on one input at a time."""
    spec, _, given = sample(name, layout, device, B=2, T=2)
    run = estimator(name, layout, backend)
    for item in spec.inputs:
        x = given[item.name]
        for wrong in (x[..., None], x[:1], x.flatten()[:1]):
            if wrong.shape == x.shape:
                continue
            with pytest.raises(ValueError, match="must have shape") as caught:
                run(**given | {item.name: wrong})
            # Of the two inputs with the axis A of Retrace, or F, either is the odd one out.
            assert f"`{item.name}`" in str(caught.value) or len(item.dims) > 2 or "T" not in item.dims


@each_target
def test_case_15_k9_views_are_not_packed(backend: str, device: str) -> None:
    rewards = torch.arange(6.0, device=device).reshape(3, 2).T
    assert rewards.stride() == (1, 2)
    flags = torch.zeros(2, 3, dtype=torch.bool, device=device)
    run = estimator("discounted_returns", "bt", backend)
    got = run(rewards=rewards, terminated=flags, last_value=torch.zeros(2, device=device), gamma=0.5)
    assert got.returns.tolist() == [[2, 4, 4], [3.75, 5.5, 5]]
    got = estimator("discounted_returns", "tb", backend)(
        rewards=rewards.T, terminated=flags.T, last_value=torch.zeros(2, device=device), gamma=0.5
    )
    assert got.returns.T.tolist() == [[2, 4, 4], [3.75, 5.5, 5]]


@each_target
@each_layout
def test_case_16_k10_integer_rewards_do_not_make_integer_returns(layout: str, backend: str, device: str) -> None:
    """They are refused by name: a float is asked for, and what to pass is said."""
    given = tensors("discounted_returns", {"terminated": [[0, 0, 0]], "last_value": [0]}, layout, device)
    rewards = torch.ones(3, dtype=torch.int64, device=device).reshape(given["terminated"].shape)
    run = estimator("discounted_returns", layout, backend)
    with pytest.raises(TypeError, match=r"`rewards` must be .*got int64: pass rewards\.float\(\)"):
        run(**given, rewards=rewards, gamma=0.5)
    assert_right(run(**given, rewards=rewards.float(), gamma=0.5), {"returns": [[1.75, 1.5, 1]]}, layout)


@each_target
@each_layout
def test_case_17_k10_bfloat16_is_summed_in_float32(layout: str, backend: str, device: str) -> None:
    T = 1024
    shape = (1, T) if layout == "bt" else (T, 1)
    got = estimator("discounted_returns", layout, backend)(
        rewards=torch.ones(shape, dtype=torch.bfloat16, device=device),
        terminated=torch.zeros(shape, dtype=torch.bool, device=device),
        last_value=torch.zeros(1, dtype=torch.bfloat16, device=device),
        gamma=1.0,
    )
    exact = torch.arange(T, 0, -1, dtype=torch.float32, device=device).reshape(shape)
    assert got.returns.flatten()[0] == 1024
    if backend == "triton" and device == "cpu":
        # Triton's interpreter cuts a float32 off where it makes a bfloat16 of it; the compiled kernel rounds.
        assert ((got.returns.float() - exact).abs() <= torch.finfo(torch.bfloat16).eps * exact).all()
    else:
        assert torch.equal(got.returns, exact.to(torch.bfloat16))


@each_target
@each_layout
def test_case_20_k12_a_vanishing_discount(layout: str, backend: str, device: str) -> None:
    T = 2048
    shape = (1, T) if layout == "bt" else (T, 1)
    got = estimator("discounted_returns", layout, backend)(
        rewards=torch.ones(shape, device=device),
        terminated=torch.zeros(shape, dtype=torch.bool, device=device),
        last_value=torch.zeros(1, device=device),
        gamma=0.9,
    )
    returns = got.returns.flatten().cpu().double().numpy()
    assert np.isfinite(returns).all()
    np.testing.assert_allclose(returns, 10 * (1 - 0.9 ** (T - np.arange(T))), rtol=2e-6)
    np.testing.assert_allclose(returns[[0, 1024, 2047]], [10, 10, 1], rtol=2e-6)


@each_target
@each_layout
@pytest.mark.parametrize(("B", "T"), [(0, 3), (2, 0)])
@pytest.mark.parametrize("name", BUILTINS)
def test_case_22_k14_nothing_to_do(
    name: str, B: int, T: int, layout: str, backend: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty results of the right shapes, and no launch: not even a module is loaded."""

    def launched(*_: object) -> None:
        raise AssertionError("a launch of nothing")

    monkeypatch.setattr(entry, "generated", launched)
    spec, _, given = sample(name, layout, device, B=B, T=T)
    got = rlscan.compile(name, layout=layout, backend=backend)(**given)
    first = given[spec.inputs[0].name]
    lanes = first.shape[2:] if name in ("eligibility_traces", "episodic_prefix_sum") else ()
    plane = (B, T) if layout == "bt" else (T, B)
    assert [x.shape for x in got] == [(*plane, *lanes)] * len(spec.outputs)
    assert all(x.device == first.device and x.dtype == torch.float32 for x in got)


@pytest.mark.parametrize("number", [-2.0, 0.0, 0.5, 1.0])
def test_case_34_k11_a_flipped_view_of_odd_length(number: float) -> None:
    """torch has no negative strides; NumPy has, on either axis."""
    T = 9
    rewards = np.arange(1.0, 2 * T + 1)[::-1].reshape(2, T)[:, ::-1]
    assert rewards.strides[1] > 0
    flipped = np.arange(1.0, T + 1)[None, ::-1]
    assert flipped.strides[1] < 0
    run = estimator("discounted_returns", "bt", "cpu")
    got = run(rewards=flipped, terminated=np.zeros((1, T), bool), last_value=np.array([number]), gamma=1.0)
    np.testing.assert_array_equal(got.returns, np.cumsum(np.arange(1, T + 1))[None, ::-1] + number)


# -- the spec file -----------------------------------------------------------------------------------------------------


HALVING = """rlscan: 1
name: halving
inputs:
  x: f[B, T]
scan:
  direction: forward
  carry: s
  operator:
    elements: {v: "x[t]"}
    combine: {v: first.v / 2 + second.v}
    identity: {v: 0}
    apply: s + v
  start: 0
outputs:
  sums: s[t]
"""


@each_target
def test_case_19_k11_a_combine_that_is_not_associative(tmp_path: Path, backend: str, device: str) -> None:
    path = tmp_path / "halving.yaml"
    path.write_text(HALVING)
    with pytest.raises(SpecError) as caught:
        rlscan.check(path)
    assert caught.value.code == "RLS402"
    line = HALVING.splitlines().index("    combine: {v: first.v / 2 + second.v}") + 1
    assert caught.value.span is not None
    assert caught.value.span.line == line
    text = str(caught.value)
    assert "with v_1 = 1, v_2 = 1, v_3 = 1" in text
    assert "combining steps 1 and 2 first gives 7/4, combining steps 2 and 3 first gives 2" in text
    # No call gets a number from it either.
    with pytest.raises(SpecError, match="not associative"):
        rlscan.compile(path, backend=backend)(x=torch.ones(1, 3, device=device))


def test_case_28_k17_a_number_is_a_number(tmp_path: Path) -> None:
    """YAML 1.1 reads 9e-1 as text, `off` as a flag and 010 as eight: a param's default is read by rlscan instead."""
    line = "gamma: 0.99 in [0, 1]"
    path = own(tmp_path, "discounted_returns", **{line: "gamma: 9e-1 in [0, 1]"})
    run = rlscan.compile(path, backend="cpu")
    assert run.spec.params[0].default == 0.9
    given = tensors("discounted_returns", {"rewards": [[1, 10]], "terminated": [[0, 0]], "last_value": [0]})
    assert_right(run(**given), {"returns": [[10, 10]]})
    # Without a range, quoted or short, it is the same number.
    for written in ("9e-1", "'9e-1'", "9.0e-1", ".9"):
        path = own(tmp_path, "discounted_returns", **{line: f"gamma: {written}"})
        default = rlscan.compile(path).spec.params[0].default
        assert type(default) is float
        assert default == 0.9
    # What YAML would take for something else is refused where it stands.
    for written in (
        "010 in [0, 9]",
        "off",
        "off in [0, 1]",
        "1:30 in [0, 100]",
        "1_0 in [0, 100]",
        "0o10",
        "nan",
        "'off'",
    ):
        path = own(tmp_path, "discounted_returns", **{line: f"gamma: {written}"})
        with pytest.raises(SpecError, match="is not a number") as caught:
            rlscan.compile(path)
        span = caught.value.span
        assert span is not None
        text = path.read_text().splitlines()[span.line - 1]
        assert text[span.column - 1 :].startswith(written.strip("'").split(" ")[0]), text


# -- gradients, packing, containers ------------------------------------------------------------------------------------


@each_target
@each_layout
@pytest.mark.parametrize("name", BUILTINS)
def test_case_31_k16_one_rule_about_gradients(name: str, layout: str, backend: str, device: str) -> None:
    """Where gradients are expected of an estimator, it is refused by name; without grad mode or detached, it answers."""
    spec, _, given = sample(name, layout, device, B=2, T=3)
    run = estimator(name, layout, backend)
    plain = run(**given)
    params = {param.name: torch.tensor(0.5, device=device, requires_grad=True) for param in spec.params}
    floats = {key: x for key, x in given.items() if x.is_floating_point()}
    for key, x in {**floats, **params}.items():
        wanting = given | {key: x.detach().clone().requires_grad_()}
        with pytest.raises(ValueError, match=f"`{key}` requires grad"):
            run(**wanting)
        with torch.no_grad():
            quiet = run(**wanting)
        loose = run(**given | {key: wanting[key].detach()})
        for a, b, c in zip(quiet, loose, plain, strict=True):
            assert not a.requires_grad
            assert torch.equal(a, b)
            assert key in params or torch.equal(a, c)


@each_target
@each_layout
def test_case_31_k16_the_reports_numbers(layout: str, backend: str, device: str) -> None:
    given = tensors("gae", SEEDED, layout, device)
    given["values"].requires_grad_()
    run = estimator("gae", layout, backend)
    with pytest.raises(ValueError, match=r"`values` requires grad.*no_grad.*detach"):
        run(**given, gamma=0.5, lam=1.0)
    with torch.no_grad():
        got = run(**given, gamma=0.5, lam=1.0)
    assert_right(got, {"advantages": [[1, 1, 2]]}, layout)


@each_target
def test_case_33_k7_packed_sequences(backend: str, device: str) -> None:
    """Packed rows are not taken: cu_seqlens is refused by name. Each sequence by itself has the report's numbers."""
    rewards = torch.arange(1.0, 6.0, device=device)
    last = torch.tensor([8.0, 16.0], device=device)
    flags = torch.zeros(5, dtype=torch.bool, device=device)
    bounds = torch.tensor([0, 2, 5], device=device)
    run = estimator("discounted_returns", "bt", backend)
    with pytest.raises(TypeError, match="unknown argument `cu_seqlens`"):
        run(rewards=rewards, terminated=flags, last_value=last, gamma=0.5, cu_seqlens=bounds)
    found: list[float] = []
    for n, (lo, hi) in enumerate([(0, 2), (2, 5)]):
        row = {"rewards": rewards[None, lo:hi], "terminated": flags[None, lo:hi], "last_value": last[n : n + 1]}
        found += run(**row, gamma=0.5).returns[0].tolist()
    assert found == [4, 6, 8.25, 10.5, 13]


@each_layout
def test_case_37_k10_numpy_in_numpy_out(layout: str) -> None:
    given = arrays("gae", FLAGGED, layout)
    before = {key: x.copy() for key, x in given.items()}
    run = estimator("gae", layout)
    got = run(**given, **HALF)
    assert all(type(x) is np.ndarray and x.dtype == np.float32 for x in got)
    assert_right(got, {"advantages": ADVANTAGES}, layout)
    for key, x in before.items():
        np.testing.assert_array_equal(given[key], x)
    mixed = as_tensors(given, "cpu") | {"rewards": given["rewards"]}
    with pytest.raises(TypeError, match="`rewards` is a NumPy array"):
        run(**mixed, **HALF)


@pytest.mark.gpu
def test_case_37_k10_numpy_beside_a_gpu() -> None:
    given = tensors("gae", FLAGGED, "bt", "cuda")
    with pytest.raises(TypeError, match="`rewards` is a NumPy array"):
        estimator("gae", "bt")(**given | {"rewards": arrays("gae", FLAGGED)["rewards"]}, **HALF)


# -- processes and caches ----------------------------------------------------------------------------------------------

CASE_1 = f"""
import torch, rlscan
def case_1(spec="gae", backend="cpu", device="cpu"):
    put = lambda x, dtype=torch.float32: torch.tensor(x, dtype=dtype, device=device)
    run = rlscan.compile(spec, backend=backend)
    got = run(
        rewards=put({FLAGGED["rewards"]}), values=put({FLAGGED["values"]}), gamma=0.5, lam=0.5,
        terminated=put({FLAGGED["terminated"]}, torch.bool), last_value=put({FLAGGED["last_value"]}),
    )
    return got.advantages.tolist()
"""


def answer_together(path: str, cache: str, backend: str, device: str, start: Any, answers: Any) -> None:
    """One process's part of case 24."""
    os.environ["RLSCAN_CACHE_DIR"] = cache
    os.environ["TRITON_CACHE_DIR"] = cache + "-triton"
    space: dict[str, Any] = {}
    exec(CASE_1, space)
    start.wait(timeout=120)
    try:
        answers.put(space["case_1"](path, backend, device))
    except BaseException as error:
        answers.put(repr(error))
        raise


@pytest.mark.parametrize(
    ("backend", "device"),
    [pytest.param("cpu", "cpu", id="cpu"), pytest.param("triton", "cuda", id="gpu", marks=pytest.mark.gpu)],
)
def test_case_24_k15_eight_processes_and_an_empty_cache(tmp_path: Path, backend: str, device: str) -> None:
    path, cache = own(tmp_path), tmp_path / "cache"
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(8), context.Queue()
    rest = (str(path), str(cache), backend, device, start, answers)
    workers = [context.Process(target=answer_together, args=rest) for _ in range(8)]
    for worker in workers:
        worker.start()
    assert [answers.get(timeout=240) for _ in workers] == [ADVANTAGES] * 8
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0
    assert len(list(cache.rglob("own_gae_*.py"))) == 1, "they shared the cache"


@pytest.mark.parametrize("home", ["/nonexistent", "/proc/nonexistent"])
@pytest.mark.skipif(os.name == "nt", reason="HOME is a POSIX matter")
def test_case_25_k15_no_home(home: str, tmp_path: Path) -> None:
    """A builtin and a spec of the user's own; and nothing is left where the program ran."""
    was_there = Path(home).exists()
    folder = tmp_path / "here"
    folder.mkdir()
    code = f"{CASE_1}\nprint([case_1(), case_1({str(own(tmp_path))!r})])"
    try:
        assert python(code, folder, HOME=home) == str([ADVANTAGES, ADVANTAGES])
        assert list(folder.iterdir()) == []
    finally:
        if not was_there:
            shutil.rmtree(home, ignore_errors=True)  # made by a user who may write at the root


TWO = {"rewards": [[1, 1]], "values": [[0, 0]], "terminated": [[0, 0]], "last_value": [0]}


@each_target
@each_layout
def test_case_26_k15_each_call_answers_for_its_own_arguments(layout: str, backend: str, device: str) -> None:
    run, given = estimator("gae", layout, backend), tensors("gae", TWO, layout, device)
    for _ in range(2):
        for gamma, right in ((0.5, [[1.5, 1]]), (1.0, [[2, 1]]), (1, [[2, 1]])):
            assert_right(run(**given, gamma=gamma, lam=1.0), {"advantages": right}, layout)


@each_target
def test_case_26_k15_two_defaults_two_kernels(tmp_path: Path, backend: str, device: str) -> None:
    """Specs of one name that differ in one default, called in turn; and one file that is edited and compiled again."""
    runs = []
    for gamma in ("0.5", "1"):
        folder = tmp_path / gamma
        folder.mkdir()
        path = own(folder, "gae", **{"gamma: 0.99 in": f"gamma: {gamma} in", "lam:   0.95 in": "lam: 1 in"})
        runs.append(rlscan.compile(path, backend=backend))
    given = tensors("gae", TWO, "bt", device)
    for _ in range(2):
        for run, right in zip(runs, ([[1.5, 1]], [[2, 1]]), strict=True):
            assert_right(run(**given), {"advantages": right})
    (tmp_path / "0.5" / "own_gae.yaml").write_text((tmp_path / "1" / "own_gae.yaml").read_text())
    assert_right(rlscan.compile(tmp_path / "0.5" / "own_gae.yaml", backend=backend)(**given), {"advantages": [[2, 1]]})
    assert_right(runs[0](**given), {"advantages": [[1.5, 1]]})


def test_case_27_k15_importing_touches_no_device(tmp_path: Path) -> None:
    code = "import sys, rlscan; print([m for m in ('torch', 'triton', 'numba', 'sympy') if m in sys.modules])"
    assert python(code, tmp_path) == "[]"
    code = f"{CASE_1}\ncase_1()\nprint(torch.cuda.is_initialized())"
    assert python(code, tmp_path) == "False", "the cpu backend alone touches no device"


FORKED = """
import os
def children(work, right):
    for _ in range(3):
        pid = os.fork()
        if not pid:
            try:
                code = 0 if work() == right else 3
            except BaseException as error:
                print(repr(error), flush=True)
                code = 4
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
# More elements than one thread takes: the parent's threads are none of a child's. Made here, as torch's own threads hang
# in a child of a process that has used them.
x = torch.ones(2048, 1024)
flags = torch.zeros(2048, 1024, dtype=torch.bool)
def wide():
    run = rlscan.compile("discounted_returns", backend="cpu")
    return run(rewards=x, terminated=flags, last_value=0.0, gamma=1.0).returns.numpy()[:, 0].tolist()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_case_27_k15_forked_children(tmp_path: Path) -> None:
    code = f"{CASE_1}{FORKED}\nassert case_1() == {ADVANTAGES}\nassert wide() == [1024.0] * 2048\n"
    code += f"children(case_1, {ADVANTAGES})\nchildren(wide, [1024.0] * 2048)\nprint('well')"
    assert python(code, tmp_path) == "well"


@pytest.mark.gpu
def test_case_27_k15_a_child_of_a_process_that_used_the_gpu(tmp_path: Path) -> None:
    code = f"{CASE_1}{FORKED}\nassert case_1(backend=None, device='cuda') == {ADVANTAGES}\n"
    code += f"children(lambda: case_1(backend=None), {ADVANTAGES})\nprint('well')"
    assert python(code, tmp_path) == "well"


# -- a GPU -------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@each_layout
def test_case_21_k13_offsets_beyond_32_bits(layout: str) -> None:
    B, T = 2**24 + 1, 128
    assert T * 2**24 > 2**31 - 1
    shape = (B, T) if layout == "bt" else (T, B)
    flags = torch.zeros(1, 1, dtype=torch.bool, device="cuda").expand(shape)
    got = estimator("discounted_returns", layout, "triton")(
        rewards=torch.ones(shape, device="cuda"),
        terminated=flags,
        last_value=torch.zeros(B, device="cuda"),
        gamma=1.0,
    )
    wanted = torch.arange(T, 0, -1, device="cuda", dtype=torch.float32)
    assert torch.equal(got.returns, wanted.expand(shape) if layout == "bt" else wanted[:, None].expand(shape))


@pytest.mark.gpu
def test_case_23_k19_tensors_on_another_device() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    given = tensors("gae", FLAGGED, "bt", "cuda:1")
    with torch.cuda.device(0):
        for _ in range(2):  # the second call is a relaunch
            got = estimator("gae", "bt")(**given, **HALF)
            assert torch.cuda.current_device() == 0
            assert all(x.device == torch.device("cuda:1") for x in got)
            assert_right(got, {"advantages": ADVANTAGES})


@pytest.mark.gpu
@each_layout
def test_case_35_k13_a_row_longer_than_a_block_can_be(layout: str) -> None:
    T = 2**20 + 1
    shape = (1, T) if layout == "bt" else (T, 1)
    got = estimator("discounted_returns", layout, "triton")(
        rewards=torch.ones(shape, device="cuda"),
        terminated=torch.zeros(shape, dtype=torch.bool, device="cuda"),
        last_value=torch.zeros(1, device="cuda"),
        gamma=1.0,
    )
    returns = got.returns.flatten()
    assert returns[0].item() == 1048577
    assert returns[2**20].item() == 1
    assert torch.equal(returns, torch.arange(T, 0, -1, device="cuda", dtype=torch.float32))


@pytest.mark.gpu
@each_layout
def test_case_36_k19_a_warm_call_is_captured(layout: str) -> None:
    run, given = estimator("gae", layout, "triton"), tensors("gae", FLAGGED, layout, "cuda")
    run(**given, **HALF)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = run(**given, **HALF)
    graph.replay()
    assert_right(got, {"advantages": ADVANTAGES}, layout)
    # A replay reads what the inputs hold then.
    given["terminated"].zero_()
    given["rewards"].mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    for x, y in zip(got, run(**given, **HALF), strict=True):
        assert torch.equal(x, y)


COLD = """
{case}
import sys
run = rlscan.compile(sys.argv[1] if len(sys.argv) > 1 else "gae", backend="triton")
put = lambda x, dtype=torch.float32: torch.tensor(x, dtype=dtype, device="cuda")
given = dict(rewards=put({rewards}), values=put({values}), terminated=put({terminated}, torch.bool), last_value=put({last}))
x = torch.ones(3, device="cuda")
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
said = ""
with torch.cuda.graph(graph):
    y = x + 1
    try:
        got = run(**given, gamma=0.5, lam=0.5)
    except Exception as error:
        got, said = None, str(error)
    z = y * 3
graph.replay()
torch.cuda.synchronize()
assert z.tolist() == [6, 6, 6], z
if got is None:
    assert "capture" in said, said
    got = run(**given, gamma=0.5, lam=0.5)
assert got.advantages.tolist() == {right}, got
print("well", said)
"""


@pytest.mark.gpu
def test_case_36_k19_a_cold_call_in_a_capture(tmp_path: Path) -> None:
    """Compiled, loaded and launched for the first time while a graph is captured, or refused; the capture goes on."""
    code = COLD.format(
        case=CASE_1,
        rewards=FLAGGED["rewards"],
        values=FLAGGED["values"],
        terminated=FLAGGED["terminated"],
        last=FLAGGED["last_value"],
        right=ADVANTAGES,
    )
    assert python(code, tmp_path, TRITON_CACHE_DIR=str(tmp_path / "triton")).startswith("well")
