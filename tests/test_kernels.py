"""Every backend, schedule and layout against the float64 oracle, which shares no code with the compiler.

Tolerance: |kernel − float64| ≤ 2·|eager float32 − float64| + a few roundings at the scale of the result. Interpreted Triton costs
about 0.1 ms an element, so its shapes are tiny; the same checks run at real sizes on a GPU (`pytest -m gpu`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rlscan
from rlscan import oracle, store
from rlscan.parse import parse
from rlscan.spec import Spec
from tests.draw import draw

BUILTINS = store.builtins()
LAYOUTS = ("bt", "tb")
AXES = {"A": 5, "F": 3}
GPU = pytest.param("cuda", marks=pytest.mark.gpu)
Arrays = dict[str, np.ndarray[Any, Any]]


@cache
def spec_of(name: str) -> Spec:
    return parse(*store.find_spec(name))


@cache
def estimator(name: str, layout: str, backend: str | None = None, outputs: tuple[str, ...] | None = None) -> Any:
    return rlscan.compile(name, layout=layout, backend=backend, outputs=outputs)


def optional_sets(spec: Spec) -> Iterator[set[str]]:
    """Every choice of optional inputs that `together` allows."""
    free = [{item.name} for item in spec.inputs if item.optional and not any(item.name in g for g in spec.together)]
    units = [*free, *(set(group) for group in spec.together)]
    for chosen in itertools.product((False, True), repeat=len(units)):
        yield set().union(*(unit for unit, wanted in zip(units, chosen, strict=True) if wanted))


def in_layout(spec: Spec, inputs: Mapping[str, Any], layout: str) -> Arrays:
    """The inputs, drawn batch-first, in a layout."""
    timed = {item.name for item in spec.inputs if "T" in item.dims}
    swap = layout == "tb"
    return {n: np.ascontiguousarray(x.swapaxes(0, 1)) if swap and n in timed else x for n, x in inputs.items()}


def as_tensors(inputs: Mapping[str, Any], device: str) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(x)).to(device) for name, x in inputs.items()}


def eager(spec: Spec, inputs: Arrays, params: Mapping[str, float], layout: str) -> Arrays:
    """A float32 loop, one NumPy operation at a time: how exact float32 can be expected to be."""
    from rlscan.entry import generated

    module = generated(spec, "numpy", "loop")
    shapes = oracle.run(spec, inputs, params, layout=layout)
    results = {name: np.empty(x.shape, np.float32 if x.dtype.kind == "f" else x.dtype) for name, x in shapes.items()}
    given_inputs = []
    for item in spec.inputs:
        x = inputs.get(item.name)
        if x is not None and x.dtype.kind == "f":
            x = x.astype(np.float32)
        given_inputs.append(x)
    values = [params.get(p.name, p.default) for p in spec.params]
    module.launch(layout == "tb", *given_inputs, *results.values(), *values)
    return results


def assert_close(
    spec: Spec,
    inputs: Arrays,
    params: Mapping[str, float],
    layout: str,
    got: Any,
    differences: Mapping[str, str] | None = None,
) -> None:
    """differences: an output that cancels → the output of whose size it is a difference, and its roundings are."""
    wanted = oracle.run(spec, inputs, params, layout=layout)
    rough = eager(spec, inputs, params, layout)
    for name, exact in wanted.items():
        value = getattr(got, name)
        value = value.cpu().double().numpy() if isinstance(value, torch.Tensor) else value
        assert value.shape == exact.shape, name
        scale = np.abs(wanted[(differences or {}).get(name, name)]).max(initial=1.0)
        slack = 2 * np.abs(rough[name].astype(np.float64) - exact) + 40 * np.finfo(np.float32).eps * scale
        error = np.abs(value - exact)
        assert (error <= slack).all(), f"{spec.name}.{name}: off by {error.max():.3g}, allowed {slack.min():.3g}"


def check(
    name: str, layout: str, backend: str | None, device: str, B: int, T: int, given_names: set[str], seed: int
) -> None:
    spec = spec_of(name)
    rng = np.random.default_rng(seed)
    inputs = in_layout(spec, draw(spec, rng, B, T, AXES, optional=given_names), layout)
    got = estimator(name, layout, backend)(**as_tensors(inputs, device))
    assert_close(spec, inputs, {}, layout, got)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", BUILTINS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(B=st.integers(1, 9), T=st.integers(1, 40), seed=st.integers(0, 2**31), data=st.data())
def test_cpu_agrees_with_the_oracle(name: str, layout: str, B: int, T: int, seed: int, data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from(list(optional_sets(spec_of(name)))))
    check(name, layout, "cpu", "cpu", B, T, chosen, seed)


@pytest.mark.interpreter
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", BUILTINS)
@pytest.mark.parametrize(("B", "T"), [(1, 1), (3, 7), (5, 16)])
def test_interpreted_triton_agrees_with_the_oracle(name: str, layout: str, B: int, T: int) -> None:
    sets = list(optional_sets(spec_of(name)))
    for seed, chosen in enumerate((sets[0], sets[-1])):
        check(name, layout, "triton", "cpu", B, T, chosen, seed)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", BUILTINS)
@pytest.mark.parametrize(
    ("B", "T"), [(1, 1), (3, 7), (70, 100), (33, 128), (5, 1000), (2, 5000), (20000, 9), (40000, 5)]
)
def test_gpu_agrees_with_the_oracle(name: str, layout: str, B: int, T: int) -> None:
    sets = list(optional_sets(spec_of(name)))
    for seed, chosen in enumerate((sets[0], sets[-1])):
        check(name, layout, "triton", "cuda", B, T, chosen, seed)


def targets() -> list[Any]:
    """(backend, device) pairs that a property is checked on."""
    return [
        pytest.param("cpu", "cpu", id="cpu"),
        pytest.param("triton", "cpu", id="interpreter", marks=pytest.mark.interpreter),
        pytest.param("triton", "cuda", id="gpu", marks=pytest.mark.gpu),
    ]


def sample(
    name: str, layout: str, device: str, B: int = 4, T: int = 9, seed: int = 0
) -> tuple[Spec, Arrays, dict[str, torch.Tensor]]:
    spec = spec_of(name)
    drawn = draw(spec, np.random.default_rng(seed), B, T, AXES, optional={i.name for i in spec.inputs if i.optional})
    inputs = in_layout(spec, drawn, layout)
    return spec, inputs, as_tensors(inputs, device)


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", BUILTINS)
def test_any_strides_and_offsets(name: str, layout: str, backend: str, device: str) -> None:
    """Reversed memory order, every second element of a larger storage, an offset: the same result, and no input changed."""
    _, _, tensors = sample(name, layout, device)
    run = estimator(name, layout, backend)
    plain = run(**tensors)

    def scattered(x: torch.Tensor) -> torch.Tensor:
        store_ = torch.full([2 * n + 1 for n in reversed(x.shape)], 7, dtype=x.dtype, device=x.device)
        view = store_.permute(*reversed(range(x.ndim)))[tuple(slice(1, None, 2) for _ in x.shape)]
        view.copy_(x)
        return view

    moved = {name_: scattered(x) for name_, x in tensors.items()}
    before = {name_: x.clone() for name_, x in moved.items()}
    for x, y in zip(run(**moved), plain, strict=True):
        # Strides choose a GPU block's layout, and with it the order of a tree of sums: the same values, not the same bits.
        torch.testing.assert_close(x, y, rtol=1e-6 if device == "cuda" else 0, atol=1e-6 if device == "cuda" else 0)
    assert all(torch.equal(moved[n], before[n]) for n in moved)


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("name", BUILTINS)
def test_expanded_inputs(name: str, backend: str, device: str) -> None:
    """A stride of zero: one environment's tensors, expanded, give its result in every row."""
    _, _, tensors = sample(name, "bt", device, B=1)
    run = estimator(name, "bt", backend)
    wide = {n: x.expand(3, *x.shape[1:]) for n, x in tensors.items()}
    for one, many in zip(run(**tensors), run(**wide), strict=True):
        # A GPU block's layout goes by the strides, and with it the order of a tree of sums.
        slack = 1e-6 if device == "cuda" else 0
        torch.testing.assert_close(one.expand_as(many), many, rtol=slack, atol=slack)


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", BUILTINS)
def test_layouts_are_transposes(name: str, layout: str, backend: str, device: str) -> None:
    """Every schedule is right for any strides: the other layout's tensors as views give this layout's result, transposed."""
    spec, _, tensors = sample(name, layout, device)
    timed = {item.name for item in spec.inputs if "T" in item.dims}
    other = "tb" if layout == "bt" else "bt"
    turned = {n: x.transpose(0, 1) if n in timed else x for n, x in tensors.items()}
    for x, y in zip(
        estimator(name, layout, backend)(**tensors), estimator(name, other, backend)(**turned), strict=True
    ):
        torch.testing.assert_close(x, y.transpose(0, 1), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("flag_dtype", [torch.uint8, torch.int64, torch.float32, torch.bfloat16])
def test_flags_of_every_dtype(flag_dtype: torch.dtype, backend: str, device: str) -> None:
    for name in BUILTINS:
        spec, _, tensors = sample(name, "tb", device)
        flags = {item.name for item in spec.inputs if item.kind == "flag"}
        run = estimator(name, "tb", backend)
        cast = {n: x.to(flag_dtype) if n in flags else x for n, x in tensors.items()}
        for x, y in zip(run(**tensors), run(**cast), strict=True):
            assert torch.equal(x, y)


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", BUILTINS)
def test_float_dtypes(name: str, dtype: torch.dtype, backend: str, device: str) -> None:
    """float64 is exact to its own rounding; half types are read as they are, summed in float32 and rounded once."""
    spec, _, tensors = sample(name, "bt", device)
    cast = {n: x.to(dtype) if x.is_floating_point() else x for n, x in tensors.items()}
    got = estimator(name, "bt", backend)(**cast)
    arrays = {n: (x.double() if x.is_floating_point() else x).cpu().numpy() for n, x in cast.items()}
    exact = oracle.run(spec, arrays, {}, layout="bt")
    for field in got._fields:
        value, want = getattr(got, field), exact[field]
        assert value.dtype == dtype
        scale = np.abs(want).max(initial=1.0)
        error = np.abs(value.double().cpu().numpy() - want)
        rounding = torch.finfo(dtype).eps
        assert (error <= rounding * np.abs(want) + (1e-13 if dtype == torch.float64 else 3e-5) * scale).all()


@pytest.mark.parametrize(("backend", "device"), targets())
def test_mixed_dtypes(backend: str, device: str) -> None:
    """bfloat16 rewards beside float32 values: float32 out, and each read at its own precision."""
    _, _, tensors = sample("gae", "bt", device)
    mixed = tensors | {"rewards": tensors["rewards"].to(torch.bfloat16)}
    got = estimator("gae", "bt", backend)(**mixed)
    want = estimator("gae", "bt", backend)(**(mixed | {"rewards": mixed["rewards"].float()}))
    assert got.advantages.dtype == torch.float32
    assert torch.equal(got.advantages, want.advantages)


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [n for n in BUILTINS if spec_of(n).params])
def test_params_as_tensors(name: str, layout: str, backend: str, device: str) -> None:
    """One number on the device, one per environment, one per step: each against the oracle, B = T included."""
    for B, T in ((4, 4), (3, 6)):
        spec, inputs, tensors = sample(name, layout, device, B=B, T=T)
        run = estimator(name, layout, backend)
        rng = np.random.default_rng(5)
        plane = (B, T) if layout == "bt" else (T, B)
        for shape in ((), (1,), (B,), plane):
            params = {p.name: rng.uniform(0.3, 0.9, shape).astype(np.float32) for p in spec.params}
            got = run(**tensors, **as_tensors(params, device))
            plain = {n: x.reshape(()) if x.shape in ((), (1,)) else x for n, x in params.items()}
            exact = oracle.run(spec, inputs, {n: x.astype(np.float64) for n, x in plain.items()}, layout=layout)
            for field in got._fields:
                np.testing.assert_allclose(getattr(got, field).cpu().numpy(), exact[field], rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [n for n in BUILTINS if len(spec_of(n).outputs) > 1])
def test_one_output_is_the_same_alone(name: str, layout: str, backend: str, device: str) -> None:
    _, _, tensors = sample(name, layout, device)
    every = estimator(name, layout, backend)(**tensors)
    for field in every._fields:
        alone = estimator(name, layout, backend, (field,))(**tensors)
        assert alone._fields == (field,)
        assert torch.equal(getattr(alone, field), getattr(every, field))


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", BUILTINS)
@pytest.mark.parametrize("done", [False, True])
def test_all_done_and_none_done(name: str, done: bool, layout: str, backend: str, device: str) -> None:
    spec, inputs, _ = sample(name, layout, device)
    flags = {item.name for item in spec.inputs if item.kind == "flag"}
    inputs = {n: np.full_like(x, done) if n in flags else x for n, x in inputs.items()}
    got = estimator(name, layout, backend)(**as_tensors(inputs, device))
    assert_close(spec, inputs, {}, layout, got)


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", BUILTINS)
def test_every_output_is_written_and_nothing_beside_it(name: str, layout: str, backend: str, device: str) -> None:
    """NaN where a result must be, a marker around it."""
    _, _, tensors = sample(name, layout, device, B=5, T=11)
    run = estimator(name, layout, backend)
    plain = run(**tensors)
    buffers, margins = {}, []
    for field, x in plain._asdict().items():
        room = torch.full([n + 2 for n in x.shape], 42, dtype=x.dtype, device=x.device)
        inner = room[tuple(slice(1, -1) for _ in x.shape)]
        inner.fill_(float("nan") if x.is_floating_point() else -7)
        buffers[field] = inner
        margins.append((room, inner))
    run(**tensors, out=buffers)
    for field, x in plain._asdict().items():
        assert torch.equal(buffers[field], x)
    for room, inner in margins:
        inner.fill_(42)
        assert bool((room == 42).all())


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_new_spec_needs_no_python(tmp_path: Path, layout: str, backend: str, device: str) -> None:
    """A one-carry spec written by hand in a temporary folder, in its paper's own form."""
    path = tmp_path / "leaky.yaml"
    path.write_text(
        "rlscan: 1\nname: leaky\ninputs:\n  x: f[B, T]\n  done: flag[B, T]\n  first_value: f[B]\n"
        "params:\n  tau: 4 in [1, inf]\nedge:\n  done: false\n"
        "scan:\n  direction: forward\n  carry: v\n  update: (1 - 1 / tau) * v + x[t] / tau\n  reset: done[t-1]\n"
        "  start: first_value\noutputs:\n  level: v[t]\n  change: x[t] - v[t]\n"
    )
    spec = parse(path.read_text(), "leaky.yaml")
    inputs = in_layout(spec, draw(spec, np.random.default_rng(3), 4, 11, {}), layout)
    got = rlscan.compile(path, layout=layout, backend=backend)(**as_tensors(inputs, device), tau=3.0)
    exact = oracle.run(spec, inputs, {"tau": 3.0}, layout=layout)
    for field in ("level", "change"):
        np.testing.assert_allclose(getattr(got, field).cpu().numpy(), exact[field], rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
def test_the_same_bits_from_run_to_run() -> None:
    for name in BUILTINS:
        for layout in LAYOUTS:
            _, _, tensors = sample(name, layout, "cuda", B=300, T=700)
            run = estimator(name, layout, "triton")
            first = run(**tensors)
            for _ in range(20):
                assert all(torch.equal(x, y) for x, y in zip(first, run(**tensors), strict=True))


@pytest.mark.gpu
def test_offsets_beyond_32_bits() -> None:
    """Public case 21: the last offset of row 2²⁴ does not fit an int32."""
    rewards = torch.ones(2**24 + 1, 128, device="cuda")
    flags = torch.zeros(1, 1, dtype=torch.bool, device="cuda").expand_as(rewards)
    run = estimator("discounted_returns", "bt", "triton")
    got = run(rewards=rewards, terminated=flags, last_value=torch.zeros(2**24 + 1, device="cuda"), gamma=1.0).returns
    wanted = torch.arange(128, 0, -1, device="cuda", dtype=torch.float32)
    for row in (0, 2**23, 2**24 - 1, 2**24):
        assert torch.equal(got[row], wanted)


OPERATORS = {
    # What is picked past the last step is picked from the edge's own tensor.
    "picked": """rlscan: 1
name: picked
inputs:
  q: f[B, T, A]
  a: int[B, T]
  last_q: f[B, A]
  last_a: int[B]
edge:
  q: last_q
  a: last_a
scan:
  direction: backward
  carry: s
  a: 0.5
  b: take(q[t+1], a[t+1])
  start: 0
outputs:
  y: s[t]
  best: max(A, q[t+1])
""",
    # The same where the edge is an expression of a let's, and the start picks too.
    "picked_let": """rlscan: 1
name: picked_let
inputs:
  q: f[B, T, A]
  a: int[B, T]
  last_q: f[B, A]
  last_a: int[B]
edge:
  q: 2 * twice
  a: last_a
let:
  twice: 2 * last_q
scan:
  direction: backward
  carry: s
  a: 0.5
  b: take(q[t+1], a[t+1])
  start: take(last_q, last_a)
outputs:
  y: s[t]
""",
    # Read at its own feature, and over all features.
    "both_ways": """rlscan: 1
name: both_ways
inputs:
  x: f[B, T, F]
scan:
  direction: forward
  carry: s
  update: x[t] + 0.5 * s
  start: 0
outputs:
  y: s[t]
  most: max(F, x[t])
""",
    # Entries of A that the carries' names alone would not tell apart; a let that reads across on purpose.
    "alike": """rlscan: 1
name: alike
inputs:
  x: f[B, T]
  y: f[B, T]
  done: flag[B, T]
edge:
  x: 0
let:
  ahead: x[t+1]
scan:
  direction: backward
  carries:
    p: {update: "x[t] + 0.5 * p + 0.3 * q_p", start: 0}
    p_q: {update: "y[t] + 0.25 * p_q - 0.7 * p", start: 1}
    q_p: {update: "ahead[t] + 0.4 * q_p + 0.1 * p_q", start: 0}
  reset: done[t]
outputs:
  ps: p[t]
  qs: q_p[t] + p_q[t]
crosses: [ahead]
""",
    # Two lane axes, the later one read first.
    "outer": """rlscan: 1
name: outer
inputs:
  x: f[B, T, F]
  w: f[B, T, G]
scan:
  direction: forward
  carry: s
  update: w[t] * x[t] - 0.5 * s
  start: 0
outputs:
  y: s[t]
""",
    # An operator of the spec's own with two elements that do not commute.
    "own": """rlscan: 1
name: own
inputs:
  x: f[B, T]
  seen: flag[B, T]
scan:
  direction: forward
  carry: s
  operator:
    elements: {m: "where(seen[t], 0.5, -1)", v: "x[t]"}
    combine: {m: first.m * second.m, v: second.m * first.v + second.v}
    identity: {m: 1, v: 0}
    apply: m * s + v
  start: 2
outputs:
  y: s[t]
""",
    "total": """rlscan: 1
name: total
inputs:
  x: f[B, T]
scan:
  direction: backward
  carry: s
  operator:
    elements: {acc: "x[t]"}
    combine: {acc: first.acc + second.acc}
    identity: {acc: 0}
    apply: s + acc
  start: 0
outputs:
  ahead: s[t+1]
  twice: 2 * s[t] + s[t+2]
""",
    "best": """rlscan: 1
name: best
inputs:
  x: f[B, T]
  done: flag[B, T]
params:
  gamma: 0.9 in [0, 1]
scan:
  direction: backward
  carry: s
  operator: clipped_affine
  a: gamma
  b: 0
  lo: x[t]
  hi: inf
  reset: done[t]
  start: 0
outputs:
  best: s[t]
""",
    "longest": """rlscan: 1
name: longest
inputs:
  x: f[B, T]
  done: flag[B, T]
scan:
  direction: backward
  carry: s
  operator: max_plus
  a: -1
  b: x[t]
  reset: done[t]
  start: -inf
outputs:
  best: s[t]
  rest: where(done[t], 0, s[t+1])
""",
    "moments": """rlscan: 1
name: moments
inputs:
  rewards: f[B, T]
  done: flag[B, T]
  mask: flag[B, T]
params:
  gamma: 0.9 in [0, 1]
scan:
  direction: backward
  carries:
    g: {update: "rewards[t] + gamma * g", start: 0}
    m: {update: "rewards[t]**2 + 2 * gamma * rewards[t] * g + gamma**2 * m", start: 0}
  reset: done[t]
  keep: not mask[t]
outputs:
  mean: g[t]
  squares: m[t]
  next_mean: where(done[t], 0, g[t+1])
""",
}


@pytest.mark.parametrize(("backend", "device"), targets())
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_beyond_one_affine_carry(tmp_path: Path, name: str, layout: str, backend: str, device: str) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text(OPERATORS[name])
    spec = parse(path.read_text(), path.name)
    for B, T in ((3, 13), (1, 1)) if device == "cpu" else ((3, 13), (5, 700), (2, 5000)):
        inputs = in_layout(spec, draw(spec, np.random.default_rng(7), B, T, {"A": 5, "F": 3, "G": 2}), layout)
        got = rlscan.compile(path, layout=layout, backend=backend)(**as_tensors(inputs, device))
        exact = oracle.run(spec, inputs, {}, layout=layout)
        for field, want in exact.items():
            slack = 3e-5 * max(1.0, float(np.abs(want).max(initial=0, where=np.isfinite(want))))
            np.testing.assert_allclose(getattr(got, field).cpu().numpy(), want, rtol=3e-5, atol=slack)


@pytest.mark.parametrize(("backend", "device"), targets())
def test_integers_stay_integers_only_where_nothing_divides(tmp_path: Path, backend: str, device: str) -> None:
    path = tmp_path / "half.yaml"
    path.write_text(
        "rlscan: 1\nname: half\ninputs:\n  x: num[B, T]\nscan:\n  direction: forward\n  carry: s\n  a: 1\n  b: x[t]\n"
        "  start: 0\noutputs:\n  half: s[t] / 2\n"
    )
    x = torch.tensor([[1, 2, 4]], device=device)
    assert rlscan.compile(path, backend=backend)(x=x).half.tolist() == [[0.5, 1.5, 3.5]]
    big = torch.tensor([[2**53, 1, 1]], device=device)
    sums = rlscan.compile("episodic_prefix_sum", backend=backend)(x=big).sums
    assert sums.dtype == torch.int64
    assert sums.tolist() == [[2**53, 2**53 + 1, 2**53 + 2]]
