"""The Estimator's front end, on hand-written modules that keep the generated modules' contract."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
import pydoc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rlscan
from rlscan import buffers, host
from rlscan.parse import parse
from rlscan.runtime import Estimator

ROOT = Path(__file__).resolve().parent.parent
GAE = (ROOT / "specs" / "gae.yaml").read_text(encoding="utf-8")
TRACES = """
rlscan: 1
name: plain_traces
inputs:
  features: f[B, T, F?]
  terminated: flag[B, T] = false
  initial_trace: f[B, F?] = 0
params:
  gamma: 0.5 in [0, 1]
  decay: in [0, inf]
scan:
  direction: forward
  carry: z
  a: gamma * decay
  b: features[t]
  start: initial_trace
outputs:
  traces: z[t]
"""
SUMS = """
rlscan: 1
name: sums
inputs:
  x: num[B, T]
  initial_sum: num[B] = 0
scan: {direction: forward, carry: c, a: 1, b: "x[t]", start: initial_sum}
outputs:
  sums: c[t]
"""
PICKS = """
rlscan: 1
name: picks
inputs:
  q_values: f[B, T, A]
  actions: int[B, T]
scan: {direction: backward, carry: c, a: 1, b: "take(q_values[t], actions[t])", start: 0}
outputs:
  sums: c[t]
"""
DIMS = {
    "gae": {"advantages": ("B", "T"), "returns": ("B", "T")},
    "plain_traces": {"traces": ("B", "T", "F")},
    "sums": {"sums": ("B", "T")},
    "picks": {"sums": ("B", "T")},
}


# -- modules as the compiler emits them, written by hand ---------------------------------------------------------------


def rows_of(out: Any, time_major: bool, lanes: tuple[int, int] | None) -> tuple[range, int]:
    batch, time = out.shape[:2][::-1] if time_major else out.shape[:2]
    return range(*lanes) if lanes else range(batch), time


def gae_loop(time_major, r, v, done, cut, final, last, adv, ret, gamma, lam, *, lanes=None):
    rows, steps = rows_of(next(x for x in (adv, ret) if x is not None), time_major, lanes)
    for b in rows:
        carry = 0.0
        for t in reversed(range(steps)):
            at = (t, b) if time_major else (b, t)
            after = (t + 1, b) if time_major else (b, t + 1)
            g, k = (x if isinstance(x, float) else float(x[at]) for x in (gamma, lam))
            is_cut = cut is not None and bool(cut[at])
            next_value = float(last[b]) if t == steps - 1 else float(v[after])
            if is_cut:
                next_value = float(final[at]) if final is not None else 0.0
            if done[at]:
                next_value = 0.0
            delta = float(r[at]) + g * next_value - float(v[at])
            carry = delta + (0.0 if done[at] or is_cut else g * k * carry)
            for out, value in ((adv, carry), (ret, carry + float(v[at]))):
                if out is not None:
                    out[at] = value


def traces_loop(time_major, x, done, initial, out, gamma, decay, *, lanes=None):
    rows, steps = rows_of(out, time_major, lanes)
    for b in rows:
        for f in range(x.shape[2]):
            z = 0.0 if initial is None else float(initial[b, f])
            for t in range(steps):
                at = (t, b, f) if time_major else (b, t, f)
                z = float(x[at]) + gamma * decay * z
                out[at] = z


def sums_loop(time_major, x, initial, out, *, lanes=None):
    rows, steps = rows_of(out, time_major, lanes)
    for b in rows:
        c = 0 if initial is None else initial[b].item()
        for t in range(steps):
            at = (t, b) if time_major else (b, t)
            c = c + x[at].item()
            out[at] = c


def picks_loop(time_major, q, actions, out, *, lanes=None):
    rows, steps = rows_of(out, time_major, lanes)
    for b in rows:
        c = 0.0
        for t in reversed(range(steps)):
            at = (t, b) if time_major else (b, t)
            c += float(q[(*at, int(actions[at]))])
            out[at] = c


LOOPS = {"gae": gae_loop, "plain_traces": traces_loop, "sums": sums_loop, "picks": picks_loop}


class Loaded:
    """A fake `load`: it keeps what the modules were launched with and counts how often each was loaded."""

    def __init__(self, name: str) -> None:
        self.loop = LOOPS[name]
        self.calls: list[tuple[Any, ...]] = []
        self.loads: list[tuple[str, str]] = []
        self.sizes: list[dict[str, int]] = []

    def __call__(self, backend: str, schedule: str) -> ModuleType:
        self.loads.append((backend, schedule))
        module = ModuleType(f"{backend}_{schedule}")
        module.__file__ = __file__

        def launch(time_major: bool, *arguments: Any, lanes: tuple[int, int] | None = None) -> None:
            self.calls.append((time_major, *arguments))
            self.loop(time_major, *arguments, lanes=lanes)

        module.launch = launch
        return module

    def choose(self, *, backend: str, layout: str, sizes: dict[str, int]) -> str:
        self.sizes.append(sizes)
        return {"cpu": "loop"}.get(backend, "tile" if layout == "bt" else "columns")


def remake(text: str, name: str, layout: str, backend: str | None, outputs: tuple[str, ...] | None) -> Estimator:
    return make(text, layout=layout, backend=backend, outputs=outputs)[0]


def make(text: str, **options: Any) -> tuple[Estimator, Loaded]:
    spec = parse(text, "test.yaml")
    loaded = Loaded(spec.name)
    options = {"layout": "bt", "backend": None, "outputs": None, **options}
    estimator = Estimator(spec, dims=DIMS[spec.name], load=loaded, choose=loaded.choose, recompile=remake, **options)
    return estimator, loaded


def case(batch: int = 4, time: int = 5, layout: str = "bt", dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    torch.manual_seed(batch * 100 + time)
    shape = (batch, time)
    out = {
        "rewards": torch.randn(shape).to(dtype),
        "values": torch.randn(shape).to(dtype),
        "terminated": torch.rand(shape) < 0.2,
        "last_value": torch.randn(batch).to(dtype),
    }
    return {key: x.T if layout == "tb" and x.ndim == 2 else x for key, x in out.items()}


def expected(inputs: dict[str, Any], gamma: float = 0.99, lam: float = 0.95, layout: str = "bt") -> np.ndarray:
    """Advantages in float64, by whole columns: another way than the fake kernels'."""
    x = {key: np.asarray(value.double() if torch.is_tensor(value) else value, float) for key, value in inputs.items()}
    r, v, d = ((x[key].T if layout == "tb" else x[key]) for key in ("rewards", "values", "terminated"))
    adv, carry, after = np.zeros_like(r), 0.0, x["last_value"]
    for t in reversed(range(r.shape[1])):
        live = 1 - d[:, t]
        carry = r[:, t] + gamma * live * after - v[:, t] + gamma * lam * live * carry
        adv[:, t], after = carry, v[:, t]
    return adv.T if layout == "tb" else adv


def error_of(kind: type[Exception], estimator: Estimator, **inputs: Any) -> str:
    with pytest.raises(kind) as caught:
        estimator(**inputs)
    return str(caught.value)


# -- results -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["bt", "tb"])
def test_a_call_gives_a_named_tuple_in_the_callers_layout(layout: str) -> None:
    gae, loaded = make(GAE, layout=layout)
    inputs = case(layout=layout)
    out = gae(**inputs)
    assert type(out).__name__ == "Gae"
    assert out._fields == ("advantages", "returns")
    assert out.advantages.shape == inputs["rewards"].shape
    assert out.advantages.is_contiguous()
    np.testing.assert_allclose(out.advantages, expected(inputs, layout=layout), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(out.returns, out.advantages + inputs["values"])
    assert loaded.loads == [("cpu", "loop")]
    assert loaded.sizes == [{"B": 4, "T": 5}]
    gae(**inputs)
    assert len(loaded.loads) == 1, "a module is loaded once"


def test_the_contract_of_a_cpu_launch() -> None:
    gae, loaded = make(GAE)
    inputs = case()
    gae(**inputs, gamma=torch.full((4,), 0.5), lam=0.5)
    time_major, r, v, done, cut, final, last, adv, ret, gamma, lam = loaded.calls[0]
    assert time_major is False
    assert cut is None
    assert final is None
    assert lam == 0.5
    assert {x.dtype for x in (r, v, last, adv, ret, gamma)} == {np.dtype("float32")}
    assert done.dtype == np.uint8
    assert r.__array_interface__["data"][0] == inputs["rewards"].data_ptr(), "a view, not a copy"
    assert done.__array_interface__["data"][0] == inputs["terminated"].data_ptr()
    assert gamma.shape == (4, 5)
    assert gamma.strides == (4, 0)
    assert gamma.flags.writeable


def test_subset_of_outputs() -> None:
    gae, loaded = make(GAE, outputs=("returns",))
    out = gae(**case())
    assert out._fields == ("returns",) == gae.outputs
    assert loaded.calls[0][7] is None
    assert make(GAE, outputs=("returns", "advantages"))[0].outputs == ("advantages", "returns"), "the spec's order"
    with pytest.raises(ValueError, match=r"^gae: there is no output `advantage`; did you mean `advantages`\?$"):
        make(GAE, outputs=("advantage",))
    with pytest.raises(ValueError, match="must name at least one"):
        make(GAE, outputs=())


def test_numpy_in_numpy_out_and_inputs_untouched() -> None:  # public report 37
    gae, _ = make(GAE)
    inputs = {"rewards": np.array([[1.0, 2, 3, 4]]), "values": np.array([[1.0, 1, 2, 2]])}
    inputs |= {"terminated": np.array([[0, 1, 0, 0]]), "last_value": np.array([8.0])}
    before = copy.deepcopy(inputs)
    out = gae(**inputs, gamma=0.5, lam=0.5)
    assert type(out.advantages) is np.ndarray
    np.testing.assert_array_equal(out.advantages, [[0.75, 1, 3.5, 6]])
    for name, x in inputs.items():
        np.testing.assert_array_equal(x, before[name])


@pytest.mark.parametrize(
    ("rewards", "values", "result"),
    [
        ("float32", "float32", "float32"),
        ("bfloat16", "bfloat16", "bfloat16"),
        ("float16", "float16", "float16"),
        ("bfloat16", "float32", "float32"),
        ("float16", "bfloat16", "float32"),
        ("float16", "float64", "float64"),
    ],
)
def test_result_dtype_is_the_promoted_one(rewards: str, values: str, result: str) -> None:
    gae, loaded = make(GAE)
    inputs = case()
    inputs |= {"rewards": inputs["rewards"].to(getattr(torch, rewards))}
    inputs |= {name: inputs[name].to(getattr(torch, values)) for name in ("values", "last_value")}
    out = gae(**inputs, gamma=0.5)
    assert out.advantages.dtype is getattr(torch, result)
    wide = np.float64 if result == "float64" else np.float32
    assert {x.dtype for x in (loaded.calls[0][1], loaded.calls[0][2], loaded.calls[0][7])} == {np.dtype(wide)}
    close = {"rtol": 1e-2, "atol": 1e-2} if result in ("bfloat16", "float16") else {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(out.advantages.double(), expected(inputs, gamma=0.5), **close)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int32", "int64", "float32", "bfloat16", "float64"])
def test_flags_of_every_dtype(dtype: str) -> None:
    gae, loaded = make(GAE)
    inputs = case()
    right = gae(**inputs).advantages
    flags = inputs["terminated"].to(getattr(torch, dtype))
    assert torch.equal(gae(**inputs | {"terminated": flags}).advantages, right)
    assert loaded.calls[-1][3].dtype == np.uint8
    if dtype != "bfloat16":
        arrays = {name: x.numpy() for name, x in (inputs | {"terminated": flags}).items()}
        np.testing.assert_array_equal(gae(**arrays).advantages, right)


def test_numpy_of_other_byte_order_float16_and_misaligned() -> None:
    gae, loaded = make(GAE)
    inputs = {name: x.numpy() for name, x in case().items()}
    right = gae(**inputs).advantages
    odd = np.zeros(4 * 5 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(4, 5)
    odd[...] = inputs["rewards"]
    assert not odd.flags.aligned
    swapped = {"rewards": odd, "values": inputs["values"].astype(">f4")}
    np.testing.assert_array_equal(gae(**inputs | swapped).advantages, right)
    misplaced = np.zeros(4 * 5 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(4, 5)
    out = (np.empty((4, 5), ">f4"), misplaced)
    np.testing.assert_array_equal(gae(**inputs | swapped, out=out).advantages, right)
    for x in (x for call in loaded.calls for x in call if isinstance(x, np.ndarray)):
        assert x.flags.aligned, "a kernel is given only what it can read at once"
        assert x.dtype.isnative
    half = gae(**{name: x.astype(np.float16) if x.dtype == np.float32 else x for name, x in inputs.items()})
    assert half.advantages.dtype == np.float16
    np.testing.assert_allclose(half.advantages, right, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("container", ["torch", "numpy"])
def test_integers_are_summed_as_int64(container: str) -> None:
    sums, _ = make(SUMS)
    big = 2**53 + 1
    x = torch.tensor([[big, 1, 1]]) if container == "torch" else np.array([[big, 1, 1]])
    assert sums(x=x).sums.tolist() == [[big, big + 1, big + 2]]
    assert str(sums(x=x).sums.dtype).endswith("int64")
    assert sums(x=x, initial_sum=2).sums.tolist()[0][0] == big + 2
    as_int32 = x // x if container == "numpy" else torch.ones(1, 3, dtype=torch.int32)
    assert sums(x=as_int32).sums.tolist() == [[1, 2, 3]]
    first = torch.tensor([0.5]) if container == "torch" else np.array([0.5], np.float32)
    mixed = sums(x=as_int32, initial_sum=first).sums
    assert mixed.tolist() == [[1.5, 2.5, 3.5]]
    assert str(mixed.dtype).endswith("float32")
    assert error_of(ValueError, sums, x=x, initial_sum=0.5) == (
        "sums: `initial_sum` must be an int64 where the other inputs are, got 0.5"
    )


def test_index_inputs() -> None:
    picks, loaded = make(PICKS)
    q = torch.arange(12.0).reshape(1, 3, 4)
    out = picks(q_values=q, actions=torch.tensor([[1, 0, 3]], dtype=torch.int32))
    assert out.sums.tolist() == [[16, 15, 11]]
    assert loaded.calls[0][2].dtype == np.int64
    assert loaded.sizes == [{"B": 1, "T": 3, "A": 4}]


@pytest.mark.parametrize("layout", ["bt", "tb"])
def test_an_optional_axis_is_inserted_for_the_kernel_and_squeezed_for_the_caller(layout: str) -> None:
    traces, loaded = make(TRACES, layout=layout)
    x = torch.randn(4, 5, 3)
    x = x.transpose(0, 1) if layout == "tb" else x
    full = traces(features=x, initial_trace=torch.ones(4, 3), decay=1.0).traces
    assert full.shape == x.shape
    flat = traces(features=x[:, :, 1], initial_trace=torch.ones(4), decay=1.0).traces
    assert flat.shape == x.shape[:2]
    assert torch.equal(flat, full[:, :, 1])
    assert loaded.calls[-1][1].shape == (*x.shape[:2], 1)
    assert loaded.calls[-1][3].shape == (4, 1)
    assert loaded.sizes[-1] == {"B": 4, "T": 5, "F": 1}
    by_number = traces(features=x, initial_trace=1, decay=1.0).traces
    assert torch.equal(by_number, full)
    assert loaded.calls[-1][3].shape == (4, 3)
    out = torch.empty(x.shape[:2])
    assert traces(features=x[:, :, 1], initial_trace=1.0, decay=1.0, out=(out,)).traces is out
    assert torch.equal(out, flat)
    assert error_of(ValueError, traces, features=x, initial_trace=torch.ones(4), decay=1.0) == (
        "plain_traces: `initial_trace` must have shape [B, F] = [4, 3], got [4]"
    )


# -- views -------------------------------------------------------------------------------------------------------------


def test_strides_offsets_and_rows_of_their_own() -> None:  # public reports 14 and 15
    gae, _ = make(GAE)
    values = torch.tensor([[1.0, 2], [100, 3]])
    plain = {"rewards": torch.ones(2, 2), "values": values, "terminated": torch.zeros(2, 2)}
    out = gae(**plain, last_value=torch.tensor([5.0, 7]), gamma=0.5, lam=0.5)
    assert out.advantages.tolist() == [[1.375, 1.5], [-97.125, 1.5]]
    inputs = case(3, 4)
    right = gae(**inputs).advantages
    views = {
        "rewards": inputs["rewards"].T.contiguous().T,
        "values": torch.nn.functional.pad(inputs["values"], (3, 2))[:, 3:-2],
        "terminated": inputs["terminated"].repeat_interleave(2, 1)[:, ::2],
        "last_value": torch.stack([inputs["last_value"]] * 2, 1)[:, 1],
    }
    assert torch.equal(gae(**views).advantages, right)
    arrays = {name: np.ascontiguousarray(x.numpy()[::-1])[::-1] for name, x in inputs.items()}
    assert all(x.strides[0] < 0 for x in arrays.values())
    np.testing.assert_array_equal(gae(**arrays).advantages, right)
    frozen = {name: x.numpy().copy() for name, x in inputs.items()}
    for x in frozen.values():
        x.flags.writeable = False
    np.testing.assert_array_equal(gae(**frozen).advantages, right)


def test_each_call_answers_for_its_own_arguments() -> None:  # public report 26
    gae, _ = make(GAE)
    other, _ = make(GAE.replace("gamma: 0.99", "gamma: 0.25"))
    inputs = {"rewards": torch.ones(1, 2), "values": torch.zeros(1, 2), "terminated": torch.zeros(1, 2, dtype=bool)}
    inputs |= {"last_value": 0.0, "lam": 1}
    assert gae(**inputs, gamma=0.5).advantages.tolist() == [[1.5, 1]]
    assert gae(**inputs, gamma=1).advantages.tolist() == [[2, 1]]
    assert gae(**inputs).advantages.tolist() == [[pytest.approx(1.99), 1]]
    assert other(**inputs).advantages.tolist() == [[1.25, 1]]


@pytest.mark.parametrize("batch", [4, 5])
@pytest.mark.parametrize("layout", ["bt", "tb"])
def test_params_of_every_rank(layout: str, batch: int) -> None:
    gae, _ = make(GAE, layout=layout)
    inputs = case(batch, 5, layout)
    right = gae(**inputs, gamma=0.5).advantages
    half = torch.tensor(0.5)
    for gamma in (half, half.reshape(1), half.double(), half.expand(batch), half.expand(inputs["rewards"].shape)):
        assert torch.equal(gae(**inputs, gamma=gamma).advantages, right)
    for number in (np.float32(0.5), np.float64(0.5)):
        assert torch.equal(gae(**inputs, gamma=number).advantages, right)
    per_env = torch.linspace(0.1, 0.9, batch)  # of size B follows the environments, also where B = T
    out = gae(**inputs, gamma=per_env).advantages
    batch_axis = 0 if layout == "bt" else 1
    for b in range(batch):
        alone = gae(**inputs, gamma=float(per_env[b])).advantages
        torch.testing.assert_close(out.select(batch_axis, b), alone.select(batch_axis, b))
    arrays = {name: x.numpy() for name, x in inputs.items()}
    np.testing.assert_array_equal(gae(**arrays, gamma=per_env.numpy()).advantages, out)


def test_a_number_for_a_value_per_environment() -> None:
    gae, _ = make(GAE)
    inputs = case()
    del inputs["last_value"]
    right = gae(**inputs, last_value=torch.full((4,), 2.0)).advantages
    for number in (2, 2.0, np.float32(2)):
        assert torch.equal(gae(**inputs, last_value=number).advantages, right)


def test_truncation_pair() -> None:  # public report 4
    gae, _ = make(GAE)
    inputs = {"rewards": torch.ones(1, 2), "values": torch.tensor([[2.0, 4]]), "terminated": torch.zeros(1, 2)}
    inputs |= {"last_value": 0.0, "gamma": 0.5, "lam": 0.5, "truncated": torch.tensor([[False, True]])}
    final = torch.tensor([[torch.nan, 10]])
    assert gae(**inputs, final_values=final).advantages.tolist() == [[1.5, 2]]
    assert error_of(ValueError, gae, **inputs) == (
        "gae: `truncated` and `final_values` come together: give both or neither; `final_values` is missing"
    )
    assert error_of(ValueError, gae, **inputs | {"truncated": None}, final_values=final).endswith(
        "`truncated` is missing"
    )


# -- nothing to do -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["bt", "tb"])
@pytest.mark.parametrize(("batch", "time"), [(0, 3), (3, 0), (0, 0)])
def test_empty_axes_launch_nothing(batch: int, time: int, layout: str) -> None:  # public report 22
    gae, loaded = make(GAE, layout=layout)
    inputs = case(batch, time, layout)
    out = gae(**inputs)
    assert out.advantages.shape == out.returns.shape == inputs["rewards"].shape
    arrays = gae(**{name: x.numpy() for name, x in inputs.items()})
    assert arrays.returns.shape == tuple(inputs["rewards"].shape)
    assert loaded.calls == []
    assert loaded.loads == []


def test_an_axis_without_size_or_of_size_0_under_an_output_is_an_error() -> None:
    picks, _ = make(PICKS)
    actions = torch.zeros(2, 3, dtype=torch.int64)
    assert error_of(ValueError, picks, q_values=torch.zeros(2, 3, 0), actions=actions) == (
        "picks: the axis A has size 0, so `sums` has no value"
    )
    bare, _ = make(SUMS.replace("num[B, T]", "num[B, T] = 0"))
    assert error_of(ValueError, bare, initial_sum=torch.ones(2)) == (
        "sums: nothing that was given has the axis T, so its size is not known; pass `x`"
    )
    traces, _ = make(TRACES)
    assert traces(features=torch.zeros(2, 3, 0), decay=1.0).traces.shape == (2, 3, 0)


# -- refusals: whole texts ---------------------------------------------------------------------------------------------

NAMES = [
    ({"valeus": 1}, TypeError, "gae: unknown argument `valeus`; did you mean `values`?"),
    (
        {"zzz": 1},
        TypeError,
        (
            "gae: unknown argument `zzz`; the arguments are rewards, values, terminated, truncated, final_values, "
            "last_value, gamma, lam, out"
        ),
    ),
    ({"layout": "tb"}, TypeError, "gae: unknown argument `layout`; it is given to rlscan.compile(spec, layout=…)"),
    ({"backend": "cpu"}, TypeError, "gae: unknown argument `backend`; it is given to rlscan.compile(spec, backend=…)"),
    ({"outputs": ()}, TypeError, "gae: unknown argument `outputs`; it is given to rlscan.compile(spec, outputs=…)"),
    ({"last_value": None}, TypeError, "gae: missing argument `last_value` f[B]"),
    (
        {"rewards": None, "terminated": None},
        TypeError,
        "gae: missing arguments `rewards` f[B, T], `terminated` flag[B, T]",
    ),
    ({"gamma": None}, TypeError, "gae: `gamma` must be a number, got None"),
    (
        {"rewards": [[1.0]]},
        TypeError,
        "gae: `rewards` must be a torch tensor or a NumPy array, got list",
    ),
    ({"values": 0.0}, TypeError, "gae: `values` must be a torch tensor or a NumPy array, got float"),
    (
        {"last_value": True},
        TypeError,
        "gae: `last_value` must be a torch tensor, a NumPy array or a number, got bool",
    ),
    (
        {"rewards": np.zeros((4, 5), np.float32)},
        TypeError,
        "gae: `rewards` is a NumPy array where the others are torch tensors: give all as one of them",
    ),
    (
        {"gamma": np.full(4, 0.5)},
        TypeError,
        "gae: `gamma` is a NumPy array where the others are torch tensors: give all as one of them",
    ),
    (
        {"rewards": torch.ones(4, 5, dtype=torch.int64)},  # public report 16
        TypeError,
        "gae: `rewards` must be float16, bfloat16, float32 or float64, got int64: pass rewards.float()",
    ),
    (
        {"values": torch.ones(4, 5, dtype=torch.bool)},
        TypeError,
        "gae: `values` must be float16, bfloat16, float32 or float64, got bool: pass values.float()",
    ),
    (
        {"terminated": torch.ones(4, 5, dtype=torch.complex64)},
        TypeError,
        "gae: `terminated` must be bool, or an integer or float of 0 and 1, got complex64: pass terminated.bool()",
    ),
    (
        {"rewards": torch.zeros(4, 5, dtype=torch.float8_e4m3fn)},
        TypeError,
        "gae: `rewards` must be float16, bfloat16, float32 or float64, got float8_e4m3fn: pass rewards.float()",
    ),
    (
        {"rewards": torch.zeros(4, 5).to_sparse()},
        TypeError,
        "gae: `rewards` must be a dense tensor, got a sparse_coo one",
    ),
    (
        {"rewards": torch.zeros(4, 5, device="meta")},
        ValueError,
        "gae: `rewards` is on the meta device, where a tensor holds no data",
    ),
    (
        {"values": torch.zeros(4, 5, dtype=torch.complex64).conj().imag},
        ValueError,
        "gae: `values` is a view whose sign is still to be flipped: resolve_neg() it",
    ),
    (
        {"values": torch.zeros(4, 5, requires_grad=True)},  # public report 31
        ValueError,
        (
            "gae: `values` requires grad, but gradients do not flow through this estimator: "
            "call it under torch.no_grad(), or pass values.detach()"
        ),
    ),
    (
        {"lam": torch.tensor(0.5, requires_grad=True)},
        ValueError,
        (
            "gae: `lam` requires grad, but gradients do not flow through this estimator: "
            "call it under torch.no_grad(), or pass lam.detach()"
        ),
    ),
    (
        {"last_value": torch.zeros(4, 1)},  # public report 13
        ValueError,
        "gae: `last_value` must have shape [B] = [4], got [4, 1]; pass last_value.squeeze(-1)",
    ),
    ({"last_value": torch.zeros(3)}, ValueError, "gae: `last_value` must have shape [B] = [4], got [3]"),
    ({"last_value": torch.zeros(())}, ValueError, "gae: `last_value` must have shape [B] = [4], got []"),
    ({"rewards": torch.zeros(4, 6)}, ValueError, "gae: `rewards` must have shape [B, T] = [4, 5], got [4, 6]"),
    (
        {"values": torch.zeros(5, 4)},
        ValueError,
        (
            "gae: `values` must have shape [B, T] = [4, 5], got [5, 4]; "
            "its first two axes look exchanged: pass values.swapaxes(0, 1)"
        ),
    ),
    (
        {"rewards": torch.zeros(5)},
        ValueError,
        "gae: `rewards` must have shape [B, T] = [4, 5], got [5]; for one environment pass rewards[None]",
    ),
    ({"gamma": 1.5}, ValueError, "gae: `gamma` must lie in [0, 1], got 1.5"),
    ({"gamma": float("nan")}, ValueError, "gae: `gamma` must lie in [0, 1], got nan"),
    ({"lam": -1}, ValueError, "gae: `lam` must lie in [0, 1], got -1"),
    ({"lam": 10**400}, ValueError, "gae: `lam` is an integer beyond every float"),
    ({"gamma": True}, TypeError, "gae: `gamma` must be a number in [0, 1] or a float tensor, got bool"),
    ({"gamma": "0.5"}, TypeError, "gae: `gamma` must be a number in [0, 1] or a float tensor, got str"),
    ({"gamma": torch.tensor(1)}, TypeError, "gae: `gamma` must be a number or float, got int64"),
    (
        {"gamma": torch.full((5,), 0.5)},
        ValueError,
        "gae: `gamma` must be one number, or have shape [B] = [4] or [B, T] = [4, 5], got [5]",
    ),
    (
        {"gamma": torch.full((5, 4), 0.5)},
        ValueError,
        (
            "gae: `gamma` must be one number, or have shape [B] = [4] or [B, T] = [4, 5], got [5, 4]; "
            "its two axes look exchanged: pass gamma.swapaxes(0, 1)"
        ),
    ),
]


@pytest.mark.parametrize(("change", "kind", "text"), NAMES, ids=[text[:60] for _, _, text in NAMES])
def test_what_is_refused_is_named_before_any_launch(change: dict[str, Any], kind: type[Exception], text: str) -> None:
    gae, loaded = make(GAE)
    assert error_of(kind, gae, **case() | change) == text
    assert loaded.calls == []
    assert loaded.loads == []


def test_numpy_is_refused_with_numpys_words() -> None:
    gae, _ = make(GAE)
    arrays = {name: x.numpy() for name, x in case().items()}
    text = error_of(TypeError, gae, **arrays | {"rewards": np.ones((4, 5), np.int64)})
    assert text == (
        'gae: `rewards` must be float16, bfloat16, float32 or float64, got int64: pass rewards.astype("float32")'
    )
    assert error_of(TypeError, gae, **arrays | {"rewards": torch.zeros(4, 5)}) == (
        "gae: `rewards` is a torch tensor where the others are NumPy arrays: give all as one of them"
    )
    masked = np.ma.masked_array(arrays["values"], mask=False)
    assert error_of(TypeError, gae, **arrays | {"values": masked}) == (
        "gae: `values` is a masked array, whose mask would go unseen"
    )
    assert "got object" in error_of(TypeError, gae, **arrays | {"rewards": np.full((4, 5), None)})


def test_the_other_layout_is_suggested_where_it_explains_the_call() -> None:
    assert error_of(ValueError, make(GAE)[0], **case(4, 5, "tb")) == (
        'gae: `last_value` must have shape [B] = [5], got [4]; did you mean layout="tb"?'
    )
    assert error_of(ValueError, make(GAE, layout="tb")[0], **case(4, 5, "bt")) == (
        'gae: `last_value` must have shape [B] = [5], got [4]; did you mean layout="bt"?'
    )
    tb = make(GAE, layout="tb")[0]
    assert error_of(ValueError, tb, **case(4, 5, "tb") | {"rewards": torch.zeros(5, 3)}) == (
        "gae: `rewards` must have shape [T, B] = [5, 4], got [5, 3]"
    )
    assert error_of(ValueError, tb, **case(4, 5, "tb") | {"rewards": torch.zeros(5)}).endswith(
        "for one environment pass rewards[:, None]"
    )


def test_positional_arguments_and_missing_params() -> None:
    with pytest.raises(TypeError, match=r"^gae: arguments go by name: gae\(rewards=…, …\)$"):
        make(GAE)[0](torch.zeros(2, 2))
    traces, _ = make(TRACES)
    assert error_of(TypeError, traces, features=torch.zeros(2, 3)) == (
        "plain_traces: missing argument `decay` in [0, inf]"
    )
    assert traces(features=torch.zeros(2, 3), decay=float("inf")).traces.isnan().any()
    sums, _ = make(SUMS)
    assert error_of(TypeError, sums, x=None) == "sums: missing argument `x` num[B, T]"


def test_gradients_are_refused_only_where_they_are_expected() -> None:  # public report 31
    gae, _ = make(GAE)
    inputs = case()
    right = gae(**inputs).advantages
    inputs["values"].requires_grad_()
    inputs["rewards"] = torch.nn.Parameter(inputs["rewards"])
    with torch.no_grad():
        assert torch.equal(gae(**inputs).advantages, right)
    with torch.inference_mode():
        assert torch.equal(gae(**inputs).advantages, right)


def test_backends_by_device() -> None:
    inputs = case()
    arrays = {name: x.numpy() for name, x in inputs.items()}
    triton, _ = make(GAE, backend="triton")
    assert error_of(ValueError, triton, **arrays) == (
        'gae: backend "triton" takes torch tensors, got NumPy arrays: use backend=None'
    )
    with pytest.raises(ValueError, match='backend must be None, "triton" or "cpu", got \'cuda\''):
        make(GAE, backend="cuda")
    with pytest.raises(ValueError, match="layout must be"):
        make(GAE, layout="BT")


@pytest.mark.parametrize("layout", ["bt", "tb"])
def test_the_contract_of_a_triton_launch(monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    gae, loaded = make(GAE, backend="triton", layout=layout)
    inputs = case(layout=layout) | {"last_value": 0.5}
    out = gae(**inputs, gamma=torch.full((4,), 0.5, dtype=torch.bfloat16), lam=torch.tensor([0.5]))
    cpu = make(GAE, layout=layout)[0](**inputs, gamma=0.5, lam=0.5)
    torch.testing.assert_close(out.advantages, cpu.advantages)
    time_major, r, _, done, cut, _, last, adv, _, gamma, lam = loaded.calls[0]
    assert loaded.loads == [("triton", "tile" if layout == "bt" else "columns")]
    assert time_major is (layout == "tb")
    assert r is inputs["rewards"]
    assert done.dtype is torch.bool
    assert cut is None
    assert adv is out.advantages
    assert last.stride() == (0,)
    assert last.dtype is torch.float32
    assert gamma.shape == lam.shape == inputs["rewards"].shape
    assert lam.stride() == (0, 0)
    assert gamma.dtype is torch.bfloat16
    assert gamma.stride() == ((1, 0) if layout == "bt" else (0, 1))
    sums, called = make(SUMS, backend="triton")
    sums(x=torch.ones(1, 2, dtype=torch.int64))
    assert called.calls[0][1].dtype is called.calls[0][3].dtype is torch.int64
    sums(x=torch.ones(1, 2, dtype=torch.int64), initial_sum=torch.ones(1))
    assert called.calls[1][1].dtype is called.calls[1][3].dtype is torch.float32


def test_triton_needs_its_interpreter_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    gae, loaded = make(GAE, backend="triton")
    assert error_of(ValueError, gae, **case()) == (
        'gae: backend "triton" takes CUDA tensors, got cpu ones: use backend=None, or set '
        "TRITON_INTERPRET=1 before Python starts to run Triton's interpreter"
    )
    assert loaded.loads == []


# -- out= --------------------------------------------------------------------------------------------------------------


class Turned(NamedTuple):
    returns: Any
    advantages: Any


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_out_takes_the_callers_buffers(dtype: torch.dtype) -> None:
    gae, _ = make(GAE)
    inputs = case(dtype=dtype)
    right = gae(**inputs)
    wide = torch.full((4, 10), torch.nan, dtype=dtype)
    pair = {"returns": torch.empty(5, 4, dtype=dtype).T, "advantages": wide[:, 1::2]}
    turned = Turned(**pair)  # taken by name, not by place
    version = wide._version
    for out in (pair, type(right)(pair["advantages"], pair["returns"]), (pair["advantages"], pair["returns"]), turned):
        wide.fill_(torch.nan)
        got = gae(**inputs, out=out)
        assert got.advantages is pair["advantages"]
        assert got.returns is pair["returns"]
        assert torch.equal(got.advantages, right.advantages)
        assert torch.equal(got.returns, right.returns)
        assert wide[:, ::2].isnan().all()
    assert wide._version >= version + 8, "autograd must notice that a buffer was written"
    if dtype is torch.float32:
        arrays = {name: x.numpy() for name, x in inputs.items()}
        flipped = np.empty((4, 5), np.float32)[:, ::-1]
        foreign = np.empty((4, 5), ">f4")
        got = gae(**arrays, out={"advantages": flipped, "returns": foreign})
        assert got.advantages is flipped
        assert got.returns is foreign
        np.testing.assert_array_equal(flipped, right.advantages)
        np.testing.assert_array_equal(foreign, right.returns)


def test_out_is_checked() -> None:
    gae, loaded = make(GAE)
    inputs = case()
    a, r = torch.empty(4, 5), torch.empty(4, 5)
    table = [
        ([a, r], TypeError, "gae: `out` must be a mapping, a NamedTuple or a tuple of advantages, returns, got list"),
        ((a,), ValueError, "gae: `out` must hold 2 (advantages, returns), got 1"),
        ({"advantages": a}, ValueError, "gae: `out` lacks `returns`; it must hold advantages, returns"),
        (
            {"advantage": a, "returns": r},
            ValueError,
            "gae: `out` has no place for `advantage`; did you mean `advantages`?",
        ),
        ((a, r.numpy()), TypeError, "gae: `out.returns` must be a torch tensor, got ndarray"),
        ((a, r[:3]), ValueError, "gae: `out.returns` must have shape [4, 5], got [3, 5]"),
        ((a, r.double()), ValueError, "gae: `out.returns` must be float32, got float64"),
        ((a, a), ValueError, "gae: `out.returns` shares memory with `out.advantages`"),
        ((a, inputs["values"]), ValueError, "gae: `out.returns` shares memory with `values`"),
        (
            (a, torch.empty(4, 1).expand(4, 5)),
            ValueError,
            "gae: `out.returns` has elements that lie on each other, as an expanded tensor's do",
        ),
        (
            (a, torch.empty(4, 5, requires_grad=True)),
            ValueError,
            (
                "gae: `out.returns` requires grad, but gradients do not flow through this estimator: "
                "call it under torch.no_grad(), or pass out.returns.detach()"
            ),
        ),
    ]
    for out, kind, text in table:
        assert error_of(kind, gae, **inputs, out=out) == text
    wide = torch.zeros(5, 5)
    partial = inputs | {"rewards": wide[:4]}
    assert error_of(ValueError, gae, **partial, out=(wide[1:], r)) == (
        "gae: `out.advantages` shares memory with `rewards`"
    )
    gamma = torch.full((4, 5), 0.5)
    assert "shares memory with `gamma`" in error_of(ValueError, gae, **inputs, gamma=gamma, out=(gamma, r))
    arrays = {name: x.numpy() for name, x in inputs.items()}
    frozen = np.empty((4, 5), np.float32)
    frozen.flags.writeable = False
    assert error_of(ValueError, gae, **arrays, out=(a.numpy(), frozen)) == "gae: `out.returns` is read-only"
    assert loaded.calls == []


def test_out_beside_inputs_in_one_buffer() -> None:
    gae, _ = make(GAE)
    inputs = case()
    right = gae(**inputs)
    columns = torch.zeros(4, 5, 4)
    rows = torch.zeros(4, 10)
    columns[..., 0], columns[..., 2], rows[:, :5] = inputs["rewards"], inputs["values"], inputs["values"]
    got = gae(
        **inputs | {"rewards": columns[..., 0], "values": columns[..., 2]}, out=(columns[..., 1], columns[..., 3])
    )
    assert torch.equal(got.advantages, right.advantages)
    assert torch.equal(got.returns, right.returns)
    got = gae(**inputs | {"values": rows[:, :5]}, out=(rows[:, 5:], torch.empty(4, 5)))
    assert torch.equal(got.advantages, right.advantages)


VIEW = st.tuples(
    st.integers(0, 40),
    st.sampled_from([1, 2, 4]),
    st.lists(st.tuples(st.integers(1, 4), st.integers(-12, 12)), max_size=3),
)


def bytes_of(view: tuple[int, int, list[tuple[int, int]]]) -> list[int]:
    places = [view[0]]
    for size, stride in view[2]:
        places = [place + i * stride for place in places for i in range(size)]
    return [place + i for place in places for i in range(view[1])]


@settings(max_examples=500, deadline=None)
@given(VIEW, VIEW)
def test_disjoint_and_repeats_are_sound(x: Any, y: Any) -> None:
    places = [buffers.memory(v[0], v[1], tuple(n for n, _ in v[2]), tuple(s for _, s in v[2])) for v in (x, y)]
    if buffers.disjoint(*places):
        assert not set(bytes_of(x)) & set(bytes_of(y))
    if not buffers.repeats(places[0]):
        assert len(set(bytes_of(x))) == len(bytes_of(x))


# -- threads and processes ---------------------------------------------------------------------------------------------


def big_sums(layout: str) -> tuple[Estimator, torch.Tensor, list[Any], set[int]]:
    """A module that needs no Python loop, as big inputs would take minutes in one."""
    sums, loaded = make(SUMS, layout=layout)
    lanes_seen: list[Any] = []
    threads: set[int] = set()

    def loop(time_major: bool, x: Any, initial: Any, out: Any, *, lanes: tuple[int, int] | None) -> None:
        lanes_seen.append(lanes)
        threads.add(threading.get_ident())
        rows = slice(*lanes) if lanes else slice(None)
        where = (slice(None), rows) if time_major else (rows,)
        out[where] += np.cumsum(x[where], 0 if time_major else 1)

    loaded.loop = loop
    x = torch.randint(-5, 5, (1027, 1024) if layout == "bt" else (1024, 1027))
    return sums, x, lanes_seen, threads


def call_big(sums: Estimator, x: torch.Tensor) -> bool:
    """Every row was computed exactly once: the module adds into its buffer."""
    array = x.numpy()  # NumPy's arithmetic, as torch's own threads hang in a forked child
    out = torch.from_numpy(np.zeros_like(array))
    return np.array_equal(sums(x=x, out=(out,)).sums.numpy(), array.cumsum(1 if sums.layout == "bt" else 0))


@pytest.mark.parametrize("layout", ["bt", "tb"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_big_inputs_are_shared_out_among_threads(layout: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    sums, x, lanes, seen = big_sums(layout)
    assert call_big(sums, x)
    assert len(lanes) == threads
    assert len(seen) <= threads
    if threads == 1:
        assert lanes == [None]
    elif layout == "tb":
        assert all(low % host.ROWS_APART == 0 for low, _ in lanes)
    small = x[:5, :5]
    lanes.clear()
    assert call_big(sums, small)
    assert lanes == [None]


def test_concurrent_calls_and_a_failing_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    sums, x, _, _ = big_sums("bt")
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: call_big(sums, x), range(8)))
    done: list[int] = []

    def fail(*, lanes: tuple[int, int]) -> None:
        if lanes[0] == 0:
            raise ZeroDivisionError
        threading.Event().wait(0.1)
        done.append(lanes[0])

    with pytest.raises(ZeroDivisionError):
        host.run(fail, 300, 2**20, 3, False)
    assert sorted(done) == [100, 200], "the call waits for every piece before it fails"

    def fail_elsewhere(*, lanes: tuple[int, int]) -> None:
        if lanes[0] == 200:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        host.run(fail_elsewhere, 300, 2**20, 3, False)


def test_the_last_pieces_run_when_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    monkeypatch.setattr(host, "_pool", lambda workers: pool)
    sums, x, lanes, _ = big_sums("bt")
    assert call_big(sums, x)
    assert len(lanes) == 3


def _in_child(sums: Estimator, x: torch.Tensor, answer: Any) -> None:
    answer.put(call_big(sums, x))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
def test_a_forked_child_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    sums, x, _, _ = big_sums("bt")
    assert call_big(sums, x)
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    child = context.Process(target=_in_child, args=(sums, x, answer))
    child.start()
    try:
        assert answer.get(timeout=30) is True
        child.join(30)
        assert child.exitcode == 0
    finally:
        child.kill()


# -- what a person sees ------------------------------------------------------------------------------------------------


def test_signature_has_the_real_parameters() -> None:
    gae, _ = make(GAE, layout="tb")
    assert str(inspect.signature(gae)) == (
        "(*, rewards: f[T, B], values: f[T, B], terminated: flag[T, B], truncated: flag[T, B] = None, "
        "final_values: f[T, B] = None, last_value: f[B], gamma: float = 0.99, lam: float = 0.95, "
        "out: Gae | dict | tuple = None) -> Gae"
    )
    traces = inspect.signature(make(TRACES)[0])
    assert str(traces.parameters["features"]) == "features: f[B, T, F?]"
    assert traces.parameters["decay"].default is inspect.Parameter.empty


def test_help_begins_with_the_maths() -> None:
    gae, _ = make(GAE)
    text = pydoc.plain(pydoc.render_doc(gae))
    assert gae.__doc__ == (ROOT / "tests" / "golden" / "help_gae.txt").read_text(encoding="utf-8").rstrip("\n")
    assert all(line.strip() in text for line in gae.__doc__.splitlines())
    for spec in (TRACES, SUMS, PICKS):
        assert make(spec)[0].__doc__


def test_spec_layout_backend_source_and_repr() -> None:
    gae, loaded = make(GAE, layout="tb", outputs=("advantages",))
    assert gae.spec.name == "gae"
    assert gae.layout == "tb"
    assert gae.backend is None
    assert repr(gae) == '<rlscan estimator gae: layout "tb", backend by device, outputs advantages>'
    assert gae.source() == Path(__file__).read_text(encoding="utf-8")
    gae.source("chunks")
    make(GAE, backend="cpu")[0].source()
    assert loaded.loads == [("triton", "columns"), ("triton", "chunks")]
    with pytest.raises(AttributeError):
        gae.layout = "bt"  # type: ignore[misc]


def test_pickle_and_copy() -> None:
    gae, _ = make(GAE, layout="tb", backend="cpu", outputs=("returns",))
    assert copy.copy(gae) is gae
    assert copy.deepcopy({"x": gae})["x"] is gae
    again = pickle.loads(pickle.dumps(gae))
    assert again.spec == gae.spec
    assert repr(again) == repr(gae)
    out = gae(**case(layout="tb"))
    back = pickle.loads(pickle.dumps(out))
    assert type(back) is type(out)
    assert torch.equal(back.returns, out.returns)
    deep = copy.deepcopy(out)
    assert type(deep) is type(out)
    assert deep.returns is not out.returns
    assert out._replace(returns=0).returns == 0


# -- a GPU -------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    gae, loaded = make(GAE)
    inputs = case()
    right = gae(**inputs)
    on_gpu = {name: x.cuda() for name, x in inputs.items()}
    out = gae(**on_gpu)
    assert loaded.loads == [("cpu", "loop"), ("triton", "tile")]
    assert out.advantages.is_cuda
    torch.testing.assert_close(out.advantages.cpu(), right.advantages)
    usual = str(on_gpu["rewards"].device)
    assert error_of(ValueError, gae, **on_gpu | {"values": inputs["values"]}) == (
        f'gae: `values` is on cpu where the others are on {usual}: pass values.to("{usual}")'
    )
    assert error_of(ValueError, make(GAE, backend="cpu")[0], **on_gpu) == (
        f'gae: backend "cpu" cannot read tensors on {usual}: use backend=None'
    )
    assert "must be on" in error_of(ValueError, gae, **on_gpu, out=(torch.empty(4, 5), torch.empty(4, 5)))


@pytest.mark.gpu
def test_a_launch_is_on_the_tensors_device() -> None:  # public report 23
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    gae, loaded = make(GAE)
    current: list[int] = []
    loop = loaded.loop

    def spy(*arguments: Any, lanes: Any) -> None:
        current.append(torch.cuda.current_device())
        loop(*arguments, lanes=lanes)

    loaded.loop = spy
    with torch.cuda.device(0):
        out = gae(**{name: x.to("cuda:1") for name, x in case().items()})
        assert torch.cuda.current_device() == 0
    assert current == [1]
    assert out.advantages.device == torch.device("cuda:1")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda x: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), TypeError, "a nested one"),
        (lambda x: x.to_sparse(), TypeError, "a sparse_coo one"),
        (lambda x: x.to_sparse_csr(), TypeError, "a sparse_csr one"),
    ],
    ids=["nested", "coo", "csr"],
)
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_a_tensor_that_is_not_dense_is_refused_by_name(change: Any, error: type[Exception], words: str) -> None:
    run = rlscan.compile("discounted_returns")
    flags = torch.zeros(2, 3, dtype=torch.bool)
    with pytest.raises(error, match=f"`rewards` must be a dense tensor, got {words}"):
        run(rewards=change(torch.ones(2, 3)), terminated=flags, last_value=0.0)


def test_slips_that_are_easy_to_make_have_a_message() -> None:
    run = rlscan.compile("discounted_returns")
    with pytest.raises(ValueError, match="`last_value` is an integer beyond every float"):
        run(rewards=torch.ones(2, 3), terminated=torch.zeros(2, 3, dtype=torch.bool), last_value=10**400)
    with pytest.raises(ValueError, match="has the schedules tile, columns, chunks, got 'rows'"):
        run.source("rows")
    with pytest.raises(TypeError, match="outputs is a list of names"):
        rlscan.compile("gae", outputs="returns")
    with pytest.raises(FileNotFoundError, match="the text of a spec"):
        rlscan.compile("rlscan: 1\nname: x\n")
    with pytest.raises(FileNotFoundError, match="the path is empty"):
        rlscan.compile("")


def test_a_short_spec_is_checked_in_short_time(tmp_path: Path) -> None:
    """The parts of an update that are free of the carry are symbols in its proof, however large they are written out."""
    inputs = "".join(f"  z{i}: f[B, T]\n" for i in range(12))
    total = "+".join(f"z{i}[t]" for i in range(12))
    path = tmp_path / "power.yaml"
    path.write_text(
        f"rlscan: 1\nname: power\ninputs:\n{inputs}scan:\n  direction: backward\n  carry: s\n"
        f"  update: ({total})**8*s + z0[t]\n  start: 0\noutputs:\n  y: s[t]\n"
    )
    began = time.perf_counter()
    assert rlscan.check(path).ok
    assert time.perf_counter() - began < 20
