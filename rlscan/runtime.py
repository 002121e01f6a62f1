"""The Estimator: a compiled spec as a callable on tensors and arrays.

A call checks everything first (names, kinds, devices, shapes, params, `out`), then allocates the outputs and launches
one generated module. It never waits for the device and never writes to an input. This is the one file that imports
torch at its top; `binding` and `buffers` have the rules that need no tensor, `host` what the cpu backend needs.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlscan import binding, buffers, host, manual, relaunch
from rlscan.binding import Binding, Slot
from rlscan.spec import BATCH, TIME, Spec

#: torch's dtypes by the names that binding knows; any other is refused by name.
DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name) for name in (*binding.FLOATS, *binding.INTEGERS, "bool", "uint8", "int8", "int16")
}
DTYPE_NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}

CONTAINERS = (Tensor, np.ndarray)


class Estimator:
    """A compiled spec. `rlscan.compile` makes it; calling it computes the spec's outputs.

    Its own documentation, `help(estimator)`, has the recurrence and the arguments. A call changes nothing of it:
    it may be called from any number of threads, and can be copied and pickled (the receiver compiles the spec's text again).
    """

    def __init__(
        self,
        spec: Spec,
        *,
        layout: str,
        backend: str | None,
        outputs: tuple[str, ...] | None,
        dims: Mapping[str, tuple[str, ...]],
        whole: bool = True,
        load: Callable[[str, str], ModuleType],
        choose: Callable[..., str],
        recompile: Callable[[str, str, str, str | None, tuple[str, ...] | None], Estimator],
    ) -> None:
        """
        dims: each output's dims, batch first. whole: whether integers in give integers out.
        load(backend, schedule) gives a generated module, and
        choose(backend=…, layout=…, sizes=…) names the schedule. recompile(text, name, layout, backend, outputs) is a
        module's function, by which a pickled estimator is made again.
        """
        if backend not in (None, "triton", "cpu"):
            raise ValueError(f'backend must be None, "triton" or "cpu", got {backend!r}')
        self._spec = spec
        self._backend = backend
        self._face = binding.interface(spec, layout, outputs, dims, whole)
        self._load = load
        self._choose = choose
        self._recompile = recompile
        self._plans: relaunch.Plans = {}
        self._modules: dict[tuple[str, str], ModuleType] = {}
        asked = {slot.name: slot for slot in self._face.outputs}
        self._every_output = tuple(asked.get(output.name) for output in spec.outputs)
        self._result = manual.result_type(spec.name, tuple(asked))
        # Calls look __call__ up on the class: each estimator has one of its own, with the front made for its spec.
        call = relaunch.front(self._face, self._plans, self._result, Estimator.__call__)
        self.__class__ = type(type(self).__name__, (type(self),), {"__call__": call, "__module__": __name__})
        self.__name__ = spec.name
        self.__doc__ = manual.documentation(spec, self._face)
        self.__signature__: inspect.Signature = manual.signature(self._face)

    @property
    def spec(self) -> Spec:
        """What was compiled."""
        return self._spec

    @property
    def layout(self) -> str:
        """The order of axes: "bt" for [B, T], "tb" for [T, B]."""
        return self._face.layout

    @property
    def backend(self) -> str | None:
        """One of "triton" and "cpu"; None where each call goes by its tensors' device."""
        return self._backend

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that a call computes, in the spec's order."""
        return tuple(slot.name for slot in self._face.outputs)

    def source(self, schedule: str | None = None) -> str:
        """The text of the generated module, for the backend (triton where a call would decide) and one schedule.

        Without a schedule, it is the one chosen for 4096 environments of 128 steps.
        """
        backend = self._backend or "triton"
        if schedule is None:
            axes = [axis for item in self._spec.inputs for axis in item.dims]
            sizes = dict.fromkeys(axes, 4) | {BATCH: 4096, TIME: 128}
            schedule = self._choose(backend=backend, layout=self.layout, sizes=sizes)
        module = self._module(backend, schedule)
        if module.__file__ is None:
            raise AssertionError("a generated module lies in a file")
        return Path(module.__file__).read_text(encoding="utf-8")

    def __repr__(self) -> str:
        return (
            f'<rlscan estimator {self._face.name}: layout "{self.layout}", '
            f"backend {self._backend or 'by device'}, outputs {', '.join(self.outputs)}>"
        )

    def __reduce__(self) -> tuple[object, ...]:
        source = self._spec.source
        return self._recompile, (source.text, source.name, self.layout, self._backend, self.outputs)

    def __copy__(self) -> Estimator:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Estimator:
        return self

    def __call__(self, /, *args: object, out: object = None, **given: Any) -> Any:
        # What is called is the front of `relaunch`, made for this spec; this is the way that its misses take.
        face = self._face
        if args:
            raise TypeError(f"{face.name}: arguments go by name: {face.name}({face.inputs[0].name}=…, …)")
        inputs, params = face.arrange(given)
        device, dtypes = self._check_arrays(inputs, params)
        dtype = self._result_dtype(inputs, dtypes, device)
        bound = face.bind([tuple(x.shape) if isinstance(x, CONTAINERS) else None for x in inputs])
        params, ranks = self._check_params(params, bound)
        backend = self._backend_for(device)
        shapes = [bound.shape(slot.dims) for slot in face.outputs]
        empty = face.is_empty(bound)
        given_out = None if out is None else self._check_out(out, shapes, dtype, device, inputs, params)
        if not empty:
            module = self._module(backend, self._choose(backend=backend, layout=face.layout, sizes=bound.sizes))
        results = given_out or [_allocate(shape, dtype, device) for shape in shapes]
        if not empty:
            launch = functools.partial(module.launch, face.layout == "tb")
            compute = dtype if dtype in ("int64", "float64") else "float32"
            if backend == "triton":
                self._on_device(launch, bound, inputs, results, params, ranks, compute, fresh=given_out is None)
            else:
                self._on_host(launch, bound, inputs, results, params, ranks, compute)
            if given_out and device:
                # Written behind autograd's back: a graph that saved the buffer must notice, as after any in-place op.
                torch.autograd.graph.increment_version([x for x in results if not x.is_inference()])
        return self._result(*results)

    # -- checks, before anything is allocated or launched ------------------------------------------------------------

    def _check_arrays(
        self, inputs: Sequence[Any], params: Sequence[Any]
    ) -> tuple[torch.device | None, list[tuple[Slot, str]]]:
        """One container, one device, the kinds of the spec, no gradient expected.

        Gives the device (None for NumPy) and each given input's dtype.
        """
        face = self._face
        named: list[tuple[str, Any]] = []
        for slot, x in zip(face.inputs, inputs, strict=True):
            if isinstance(x, CONTAINERS):
                named.append((slot.name, x))
            elif x is not None and not (is_number(x) and face.takes_number(slot)):
                number = ", a NumPy array or a number" if face.takes_number(slot) else " or a NumPy array"
                raise TypeError(f"{face.name}: `{slot.name}` must be a torch tensor{number}, got {type(x).__name__}")
            elif x is not None:
                face.check_float(slot, x)
        named += [(p.name, x) for p, x in zip(face.params, params, strict=True) if isinstance(x, CONTAINERS)]
        face.check_containers([(name, isinstance(x, Tensor)) for name, x in named])
        on_torch = isinstance(named[0][1], Tensor)
        grad = on_torch and torch.is_grad_enabled()
        for name, x in named:
            if on_torch:
                self._check_tensor(name, x, grad)
            elif isinstance(x, np.ma.MaskedArray):
                raise TypeError(f"{face.name}: `{name}` is a masked array, whose mask would go unseen")
        dtypes = [
            (slot, dtype_name(x)) for slot, x in zip(face.inputs, inputs, strict=True) if isinstance(x, CONTAINERS)
        ]
        for slot, dtype in dtypes:
            face.check_kind(slot, dtype, on_torch)
        if not on_torch:
            return None, dtypes
        face.check_devices([(name, x.device) for name, x in named])
        return named[0][1].device, dtypes

    def _check_tensor(self, name: str, x: Tensor, grad: bool) -> None:
        estimator = self._face.name
        if x.layout is not torch.strided or x.is_nested:
            kind = "nested" if x.is_nested else str(x.layout).removeprefix("torch.")
            raise TypeError(f"{estimator}: `{name}` must be a dense tensor, got a {kind} one")
        if x.is_meta:
            raise ValueError(f"{estimator}: `{name}` is on the meta device, where a tensor holds no data")
        if grad and x.requires_grad:
            raise ValueError(
                f"{estimator}: `{name}` requires grad, but gradients do not flow through this estimator: "
                f"call it under torch.no_grad(), or pass {name}.detach()"
            )
        if x.is_neg():
            raise ValueError(f"{estimator}: `{name}` is a view whose sign is still to be flipped: resolve_neg() it")

    def _result_dtype(
        self, inputs: Sequence[Any], dtypes: Sequence[tuple[Slot, str]], device: torch.device | None
    ) -> str:
        # With no float given at all: each container's own answer to an integer times a float.
        dtype = self._face.result_dtype(dtypes, DTYPE_NAMES[torch.get_default_dtype()] if device else "float64")
        if dtype == "int64":
            for slot, x in zip(self._face.inputs, inputs, strict=True):
                if is_number(x):
                    self._face.check_integer(slot, x)
        return dtype

    def _check_params(self, params: Sequence[Any], bound: Binding) -> tuple[list[Any], list[int]]:
        """The params as floats or arrays, and each one's rank: 0 one number, 1 per environment, 2 per step."""
        values: list[Any] = []
        ranks = []
        for param, x in zip(self._face.params, params, strict=True):
            rank = 0
            if isinstance(x, CONTAINERS):
                if dtype_name(x) not in binding.FLOATS:
                    raise TypeError(f"{self._face.name}: `{param.name}` must be a number or float, got {dtype_name(x)}")
                rank = self._face.param_rank(param, tuple(x.shape), bound.sizes)
            elif x is not param.default:
                x = self._face.number(param, x)
            values.append(x)
            ranks.append(rank)
        return values, ranks

    def _backend_for(self, device: torch.device | None) -> str:
        kind = device.type if device else "numpy"
        name = self._face.name
        if kind not in ("cpu", "cuda", "numpy"):
            raise ValueError(f"{name}: no backend runs on {device}: move the tensors to cuda or cpu")
        if self._backend is None:
            return "triton" if kind == "cuda" else "cpu"
        if self._backend == "cpu" and kind == "cuda":
            raise ValueError(f'{name}: backend "cpu" cannot read tensors on {device}: use backend=None')
        if self._backend == "triton" and kind == "numpy":
            raise ValueError(f'{name}: backend "triton" takes torch tensors, got NumPy arrays: use backend=None')
        if self._backend == "triton" and kind == "cpu" and not interpreting():
            raise ValueError(
                f'{name}: backend "triton" takes CUDA tensors, got cpu ones: use backend=None, or set '
                "TRITON_INTERPRET=1 before Python starts to run Triton's interpreter"
            )
        return self._backend

    def _check_out(
        self,
        out: object,
        shapes: Sequence[tuple[int, ...]],
        dtype: str,
        device: torch.device | None,
        inputs: Sequence[Any],
        params: Sequence[Any],
    ) -> list[Any]:
        face = self._face
        container: type[Any] = Tensor if device else np.ndarray
        names = [*(item.name for item in self._spec.inputs), *(param.name for param in self._spec.params)]
        named = zip(names, (*inputs, *params), strict=True)
        taken = [(name, memory_of(x)) for name, x in named if isinstance(x, container)]
        results = buffers.named_buffers(face, out)
        for slot, x, shape in zip(face.outputs, results, shapes, strict=True):
            name = f"out.{slot.name}"
            if not isinstance(x, container):
                raise TypeError(
                    f"{face.name}: `{name}` must be a {'torch tensor' if device else 'NumPy array'}, "
                    f"got {type(x).__name__}"
                )
            if device:
                self._check_tensor(name, x, torch.is_grad_enabled())
                if x.device != device:
                    raise ValueError(f"{face.name}: `{name}` must be on {device} as the inputs are, got {x.device}")
            elif not x.flags.writeable:
                raise ValueError(f"{face.name}: `{name}` is read-only")
            place = memory_of(x)
            buffers.check_buffer(face.name, name, (dtype_name(x), tuple(x.shape)), (dtype, shape), place, taken)
            taken.append((name, place))
        return results

    # -- launch ------------------------------------------------------------------------------------------------------

    def _module(self, backend: str, schedule: str) -> ModuleType:
        key = (backend, schedule)
        module = self._modules.get(key)
        if module is None:
            # Two threads may load it at once and get the same module; the store sees to that.
            module = self._modules[key] = self._load(backend, schedule)
        return module

    def _on_device(
        self,
        launch: Callable[..., Any],
        bound: Binding,
        inputs: Sequence[Any],
        results: Sequence[Tensor],
        params: Sequence[Any],
        ranks: Sequence[int],
        compute: str,
        *,
        fresh: bool,
    ) -> None:
        """One Triton launch, on the tensors' device and its current stream, whatever the current device is."""
        face = self._face
        device = results[0].device
        read: list[Tensor | None] = []
        for slot, x in zip(face.inputs, inputs, strict=True):
            if x is None:
                read.append(None)
            elif isinstance(x, Tensor):
                if slot.kind == "num" and compute != "int64" and not x.is_floating_point():
                    x = x.to(DTYPES[compute])
                read.append(_with_axes(x, bound.inserted(slot.dims)))
            else:
                read.append(torch.full((), x, dtype=DTYPES[compute], device=device).expand(bound.full_shape(slot.dims)))
        written = self._placed(results, bound, _with_axes)
        plane = bound.full_shape(face.plane)
        spread = [
            _spread_param(x, rank, plane, face.layout == "tb") if isinstance(x, Tensor) else x
            for x, rank in zip(params, ranks, strict=True)
        ]
        elsewhere = device.type == "cuda" and device.index != torch.cuda.current_device()
        with torch.cuda.device(device) if elsewhere else nullcontext():
            launched = launch(*read, *written, *spread)
        if fresh and device.type == "cuda":
            relaunch.remember(self._plans, face, inputs, read, params, results, launched)

    def _on_host(
        self,
        launch: Callable[..., None],
        bound: Binding,
        inputs: Sequence[Any],
        results: Sequence[Any],
        params: Sequence[Any],
        ranks: Sequence[int],
        compute: str,
    ) -> None:
        """The cpu backend, on NumPy views of what was given; copies only where the dtype is not the kernel's."""
        face = self._face
        time_major = face.layout == "tb"
        read: list[host.Array | None] = []
        for slot, x in zip(face.inputs, inputs, strict=True):
            if x is None:
                read.append(None)
            elif isinstance(x, CONTAINERS):
                wanted = {"flag": "uint8", "int": "int64"}.get(slot.kind, compute)
                read.append(host.with_axes(_as_array(x, wanted), bound.inserted(slot.dims)))
            else:
                read.append(host.spread(np.full((), x, compute), bound.full_shape(slot.dims)))
        plane = bound.full_shape(face.plane)
        spread = [
            host.spread_param(_as_array(x, compute), rank, plane, time_major) if isinstance(x, CONTAINERS) else x
            for x, rank in zip(params, ranks, strict=True)
        ]
        direct = [_writable_array(x, compute) for x in results]
        places = [np.empty(tuple(x.shape), compute) if y is None else y for x, y in zip(results, direct, strict=True)]
        call = functools.partial(launch, *read, *self._placed(places, bound, host.with_axes), *spread)
        host.run(call, bound.sizes[BATCH], math.prod(bound.sizes.values()), torch.get_num_threads(), time_major)
        for x, y, computed in zip(results, direct, places, strict=True):
            if y is None and isinstance(x, Tensor) and x.dtype is torch.bfloat16:
                x.copy_(torch.from_numpy(computed))
            elif y is None:
                with np.errstate(over="ignore"):  # a float16 result may overflow to inf, as in torch
                    np.asarray(x)[...] = computed

    def _placed(self, results: Sequence[Any], bound: Binding, with_axes: Callable[[Any, list[int]], Any]) -> list[Any]:
        """A view with every axis for each of the spec's outputs; None for those that were not asked for."""
        given = iter(results)
        return [slot and with_axes(next(given), bound.inserted(slot.dims)) for slot in self._every_output]


def is_number(x: object) -> bool:
    """A Python or NumPy number; a truth value is none."""
    return type(x) is float or (isinstance(x, (int, float, np.integer, np.floating)) and not isinstance(x, bool))


def dtype_name(x: Any) -> str:
    if isinstance(x, Tensor):
        return DTYPE_NAMES.get(x.dtype) or str(x.dtype).removeprefix("torch.")
    return str(x.dtype.name)


def interpreting() -> bool:
    """Whether Triton runs kernels in its interpreter, by the variable and the words that Triton itself reads."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")


def memory_of(x: Any) -> buffers.Memory | None:
    if isinstance(x, Tensor):
        item = x.element_size()
        return buffers.memory(x.data_ptr(), item, tuple(x.shape), tuple(stride * item for stride in x.stride()))
    return buffers.memory(x.__array_interface__["data"][0], x.itemsize, x.shape, x.strides)


def _allocate(shape: tuple[int, ...], dtype: str, device: torch.device | None) -> Any:
    return np.empty(shape, dtype) if device is None else torch.empty(shape, dtype=DTYPES[dtype], device=device)


def _as_array(x: Any, wanted: str) -> host.Array:
    """A NumPy view where the dtype is the wanted one already, else a converted copy."""
    if isinstance(x, Tensor):
        # NumPy converts what it can: torch's own threads hang in a forked child of a process that has used them.
        x = x.detach().float().numpy() if x.dtype is torch.bfloat16 else x.detach().numpy()
    return host.converted(x, wanted)


def _writable_array(x: Any, compute: str) -> host.Array | None:
    """The result itself as an array that a kernel can write, or None where its dtype is another."""
    if dtype_name(x) != compute:
        return None
    array: host.Array = x.detach().numpy() if isinstance(x, Tensor) else x
    return array if array.dtype.isnative and array.flags.aligned else None


def _with_axes(x: Tensor, positions: list[int]) -> Tensor:
    for position in positions:
        x = x.unsqueeze(position)
    return x


def _spread_param(x: Tensor, rank: int, plane: tuple[int, ...], time_major: bool) -> Tensor:
    if rank == 0:
        x = x.reshape(())
    elif rank == 1 and not time_major:
        x = x.unsqueeze(1)
    return x.expand(plane)
