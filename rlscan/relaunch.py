"""The front of an estimator: Python made for its spec, which launches again what was launched before.

A first call goes the whole way: every check, the choice of a schedule, Triton's own launcher. What it found out depends on the
tensors' shapes, strides and dtypes alone, so a second call that agrees in these reads the addresses, allocates the outputs and
starts the compiled kernel. Everything that could make the two differ is asked on each call: that these are plain tensors on
the current device, 16-byte aligned (Triton compiled for that), without a gradient to lose, params in their range, and no
profiler that wants to see Triton's own launch. Any other call takes the whole way, which has the errors.

The front is text that is executed, as dataclasses and named tuples are made: its names are the spec's, checked by `parse`.
"""

from __future__ import annotations

import functools
import itertools
import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlscan.binding import Interface

#: shapes, strides and dtypes of a call → what to launch
Plans = dict[tuple[Any, ...], "Plan"]
_MOST_PLANS = 256
_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Plan:
    """A launch that is known to be right for tensors of these shapes, strides and dtypes."""

    device: int
    run: Callable[..., None]
    programs: int
    #: handle and launch metadata of the compiled kernel
    function: Any
    metadata: Any
    #: memory that one walk over time leaves to the next: fresh in each call, as its results are (None: not needed)
    kept: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype] | None, ...]
    #: what follows the pointers and the numbers among the kernel's arguments
    tail: tuple[Any, ...]
    results: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]
    #: held: where it is dropped, triton may unload the kernel
    compiled: Any
    #: whether somebody wants to see each launch
    watched: Callable[[], bool]


def key_of(inputs: Sequence[Tensor | None], params: Sequence[float], face: Interface) -> tuple[Any, ...]:
    """What a plan depends on, as the front spells it."""
    parts: list[Any] = []
    for x in inputs:
        parts += [None] if x is None else [x.shape, x.stride(), x.dtype]
    return (*parts, *(-1 <= value <= 1 for value, beyond in zip(params, _beyond_one(face), strict=True) if beyond))


def _beyond_one(face: Interface) -> tuple[bool, ...]:
    """Which params may be beyond 1: whether one is may choose another kernel, with no care for products that overflow."""
    return tuple(param.lower < -1 or param.upper > 1 for param in face.params)


def remember(
    plans: Plans,
    face: Interface,
    inputs: Sequence[Any],
    read: Sequence[Tensor | None],
    params: Sequence[Any],
    results: Sequence[Tensor],
    launched: tuple[Any, ...] | None,
) -> None:
    """Keep a launch that was just made, unless it is of a kind that a front cannot repeat."""
    if launched is None:
        return
    if len(launched) == 2:
        launched = _Several(launched[0]), 1, launched[1]
    compiled, programs, values = launched
    given = [x for x in inputs if x is not None]
    if any(type(x) is not Tensor for x in given) or any(type(p) is not float for p in params):
        return
    if any(x.data_ptr() & 15 for x in (*given, *results)) or not hasattr(compiled, "packed_metadata"):
        return
    if any(x is not None and x.data_ptr() != y.data_ptr() for x, y in zip(read, inputs, strict=True)):
        return
    if len(plans) >= _MOST_PLANS:
        plans.clear()
    rest = values[len(inputs) + len(face.every_output) + 2 * len(params) :]
    kept = tuple(itertools.takewhile(lambda x: x is None or isinstance(x, Tensor), rest))
    plans[key_of(inputs, params, face)] = Plan(
        device=results[0].get_device(),
        run=compiled.run,
        programs=programs,
        function=compiled.function,
        metadata=compiled.packed_metadata,
        kept=tuple(None if x is None else _form(x) for x in kept),
        tail=rest[len(kept) :],
        results=tuple(map(_form, results)),
        compiled=compiled,
        watched=_watched(),
    )


@dataclass(frozen=True, slots=True)
class _Several:
    """Kernels launched one after the other on the same arguments, in the place of one compiled kernel."""

    kernels: tuple[tuple[Any, tuple[int, int]], ...]
    function: None = None
    packed_metadata: None = None

    def run(self, _x: int, _y: int, _z: int, stream: int, *rest: Any) -> None:
        for compiled, (x, y) in self.kernels:
            compiled.run(x, y, 1, stream, compiled.function, compiled.packed_metadata, *rest[2:])


def _form(x: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype]:
    return tuple(x.shape), x.stride(), x.dtype


def front(face: Interface, plans: Plans, result: type[Any], slow: Callable[..., Any]) -> Callable[..., Any]:
    """The `__call__` of an estimator with this interface."""
    inputs, params = [slot.name for slot in face.inputs], [param.name for param in face.params]
    required = {slot.name: slot.required for slot in face.inputs}
    asked = [slot.name for slot in face.outputs]
    ranges = [(p.lower, p.upper) for p in face.params]
    text = _source(inputs, required, params, ranges, _beyond_one(face), face.every_output, asked)
    file = f"<rlscan call of {face.name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {
        "_missing": _MISSING,
        "_plans_get": plans.get,
        "_slow": slow,
        "_result": result,
        "_tuple": tuple.__new__,
        "_Tensor": Tensor,
        "_grad_enabled": torch.is_grad_enabled,
        "_empty": _empty_strided(),
        "_stream": _raw_stream(),
        "_device": getattr(torch._C, "_cuda_getDevice", lambda: -1),
        "_inf": float("inf"),
        **{f"_default_{p.name}": _MISSING if p.default is None else p.default for p in face.params},
    }
    exec(compile(text, file, "exec"), space)  # noqa: S102
    made: Callable[..., Any] = space["call"]
    return made


def _source(
    inputs: list[str],
    required: dict[str, bool],
    params: list[str],
    ranges: list[tuple[float, float]],
    beyond: tuple[bool, ...],
    outputs: Sequence[str],
    asked: list[str],
) -> str:
    def each(form: str, absent: str, join: str) -> str:
        """A piece of every input; `absent` for an optional one that was not given."""
        pieces = []
        for name in inputs:
            piece = form.format(x=name)
            pieces.append(piece if required[name] else f"({absent} if {name} is None else {piece})")
        return join.join(pieces)

    arguments = [f"{name}=_missing" if required[name] else f"{name}=None" for name in inputs]
    arguments += [f"{name}=_default_{name}" for name in params]
    key = [
        f"{name}.shape, {name}.stride(), {name}.dtype"
        if required[name]
        else f"*(_none if {name} is None else ({name}.shape, {name}.stride(), {name}.dtype))"
        for name in inputs
    ]
    # Not of a tensor: the comparison would wait for the device.
    key += [f"{name}.__class__ is float and -1 <= {name} <= 1" for name, far in zip(params, beyond, strict=True) if far]
    bounds = [
        f"and {name}.__class__ is float and {_number(low)} <= {name} <= {_number(high)}"
        for name, (low, high) in zip(params, ranges, strict=True)
    ]
    pointers = [f"_at_{name}" for name in inputs]
    pointers += [f"_out_{name}.data_ptr()" if name in asked else "None" for name in outputs]
    pointers += ["None"] * len(params) + params
    made = [f"        _out_{name} = _empty(*_results[{i}])" for i, name in enumerate(asked)]
    gathered = ", ".join(f"{name}={name}" for name in (*inputs, *params))
    return "\n".join(
        [
            "_none = (None,)",
            f"def call(_self, /, *_args, out=None, {', '.join(arguments)}, **_unknown):",
            "    _plan = None",
            "    if out is None and not _args and not _unknown:",
            "        try:",
            f"            _plan = _plans_get(({', '.join(key)},))",
            "        except (AttributeError, TypeError, RuntimeError):",
            "            pass  # a number, an array, a tensor without strides or nothing where a plain tensor was expected",
            "    if (",
            "        _plan is not None",
            f"        and {each('{x}.__class__ is _Tensor', 'True', ' and ')}",
            f"        and {each('{x}.get_device()', '_plan.device', ' == ')} == _plan.device == _device()",
            f"        and not (_grad_enabled() and ({each('{x}.requires_grad', 'False', ' or ')}))",
            f"        and not ({each('{x}.is_neg()', 'False', ' or ')})",
            *(f"        {bound}" for bound in bounds),
            "        and not _plan.watched()",
            "    ):",
            *(
                f"        _at_{name} = {name}.data_ptr()"
                if required[name]
                else f"        _at_{name} = None if {name} is None else {name}.data_ptr()"
                for name in inputs
            ),
            f"        if not ({each('_at_{x}', '0', ' | ')}) & 15:",
            "            _results = _plan.results",
            *(f"    {line}" for line in made),
            "            _kept = [None if _k is None else _empty(*_k) for _k in _plan.kept]",
            "            _plan.run(_plan.programs, 1, 1, _stream(_plan.device),",
            "                _plan.function, _plan.metadata, None, None, None,",
            f"                {', '.join(pointers)}, *[None if _k is None else _k.data_ptr() for _k in _kept], *_plan.tail)",
            f"            return _tuple(_result, ({', '.join(f'_out_{name}' for name in asked)},))",
            f"    _given = dict({gathered})",
            "    _given = {_n: _v for _n, _v in _given.items() if _v is not _missing}",
            "    return _slow(_self, *_args, out=out, **_given, **_unknown)",
            "",
        ]
    )


def _number(value: float) -> str:
    return "_inf" if value == float("inf") else "-_inf" if value == float("-inf") else repr(value)


def _empty_strided() -> Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], Tensor]:
    """An uninitialised tensor on the current CUDA device; the way Inductor allocates, where torch has it."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    quick = getattr(guards, "_empty_strided_cuda", None)
    if quick is not None:
        made: Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], Tensor] = quick
        return made
    return lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device="cuda")


def _raw_stream() -> Callable[[int], int]:
    quick = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if quick is not None:
        made: Callable[[int], int] = quick
        return made
    return lambda device: int(torch.cuda.current_stream(device).cuda_stream)


@functools.cache
def _watched() -> Callable[[], bool]:
    """Whether somebody hooked Triton's launches (a profiler): they then see each through Triton's own launcher."""
    try:
        from triton import knobs
    except ImportError:
        return lambda: False
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    if not (hasattr(enter, "calls") and hasattr(leave, "calls")):
        return lambda: True
    return lambda: bool(enter.calls or leave.calls)
