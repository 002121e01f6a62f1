"""What a call of an estimator must look like, and the words for one that does not fit.

Pure: it sees names of dtypes and tuples of sizes, never a tensor, and so serves torch and NumPy alike. `interface`
turns a Spec into an Interface once; a call then asks it, in this order, to `arrange` the keywords, to `check_kind` each
input, to `bind` the shapes to axis sizes, and to check the params. Each raises TypeError or ValueError with one line
that begins with the estimator's name and names the argument, what was expected and what came.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NoReturn

from rlscan.diagnostics import did_you_mean
from rlscan.spec import BATCH, TIME, Kind, Param, Spec

Shape = tuple[int, ...]

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int32", "int64")
ACCEPTED: dict[Kind, frozenset[str]] = {
    "float": frozenset(FLOATS),
    "int": frozenset(INTEGERS),
    "num": frozenset((*FLOATS, *INTEGERS)),
    "flag": frozenset(("bool", "uint8", "int8", "int16", *INTEGERS, *FLOATS)),
}
#: What a spec is compiled for, and a call is often given by mistake.
COMPILE_WORDS = ("layout", "backend", "outputs")
#: How the spec language and a person's words name each kind, and what makes a tensor or an array one of it.
TYPE_NAME: dict[Kind, str] = {"float": "f", "flag": "flag", "int": "int", "num": "num"}
EXPECTED: dict[Kind, str] = {
    "float": "float16, bfloat16, float32 or float64",
    "int": "int32 or int64",
    "num": "a float or int32 or int64",
    "flag": "bool, or an integer or float of 0 and 1",
}
CURE: dict[bool, dict[Kind, str]] = {
    True: {"float": "float()", "int": "long()", "num": "float()", "flag": "bool()"},
    False: {
        "float": 'astype("float32")',
        "int": 'astype("int64")',
        "num": 'astype("float32")',
        "flag": 'astype("bool")',
    },
}


@dataclass(frozen=True, slots=True)
class Slot:
    """An input or an output of the call: its dims in the caller's layout, every optional axis among them."""

    name: str
    kind: Kind
    dims: tuple[str, ...]
    required: bool
    #: as the spec would write it in this layout: `f[T, B, F?]`
    text: str


@dataclass(frozen=True, slots=True)
class Binding:
    """The sizes of one call's axes; an optional axis that the call leaves out is in `absent` and has size 1."""

    sizes: dict[str, int]
    absent: frozenset[str]

    def shape(self, dims: Iterable[str]) -> Shape:
        """What the caller sees."""
        return tuple(self.sizes[axis] for axis in dims if axis not in self.absent)

    def full_shape(self, dims: Iterable[str]) -> Shape:
        """What a kernel sees."""
        return tuple(self.sizes[axis] for axis in dims)

    def inserted(self, dims: Sequence[str]) -> list[int]:
        """Where a kernel sees an axis that the caller does not."""
        return [i for i, axis in enumerate(dims) if axis in self.absent] if self.absent else []


@dataclass(frozen=True, slots=True)
class Interface:
    """The arguments and results of one estimator in one layout."""

    name: str
    layout: str
    inputs: tuple[Slot, ...]
    params: tuple[Param, ...]
    outputs: tuple[Slot, ...]
    #: the names of all of the spec's outputs, in its order; `outputs` are those asked for
    every_output: tuple[str, ...]
    #: whether integers in give integers out
    whole: bool
    together: tuple[tuple[str, ...], ...]
    names: frozenset[str]
    #: the inputs' dims, once for each set of optional axes that a call may leave out; all of them present comes first
    variants: tuple[tuple[tuple[str, ...], ...], ...]
    optional_axes: frozenset[str]
    needed_axes: tuple[str, ...]

    @property
    def plane(self) -> tuple[str, str]:
        """Batch and time in the caller's order."""
        return (BATCH, TIME) if self.layout == "bt" else (TIME, BATCH)

    # -- names -------------------------------------------------------------------------------------------------------

    def arrange(self, given: Mapping[str, object]) -> tuple[list[Any], list[Any]]:
        """The inputs (None where absent) and the params (the default where absent), in the spec's order."""
        inputs = [given.get(slot.name) for slot in self.inputs]
        params = [given.get(param.name, param.default) for param in self.params]
        if not self.names.issuperset(given):
            self._refuse_unknown(given)
        for slot, value in zip(self.inputs, inputs, strict=True):
            if value is None and slot.required:
                self._refuse_missing(inputs, params)
        if any(value is None for value in params):
            self._refuse_missing(inputs, params)
        for group in self.together:
            absent = [name for name in group if given.get(name) is None]
            if absent and len(absent) < len(group):
                raise ValueError(
                    f"{self.name}: {_listed(group)} come together: give both or neither; {_listed(absent)} is missing"
                    if len(group) == 2
                    else f"{self.name}: {_listed(group)} come together: give all or none; {_listed(absent)} missing"
                )
        return inputs, params

    def _refuse_unknown(self, given: Mapping[str, object]) -> NoReturn:
        name = next(name for name in given if name not in self.names)
        if name in COMPILE_WORDS:
            raise TypeError(f"{self.name}: unknown argument `{name}`; it is given to rlscan.compile(spec, {name}=…)")
        known = [*(slot.name for slot in self.inputs), *(param.name for param in self.params), "out"]
        raise TypeError(
            f"{self.name}: unknown argument `{name}`; "
            + (did_you_mean(name, known) or f"the arguments are {', '.join(known)}")
        )

    def _refuse_missing(self, inputs: Sequence[object], params: Sequence[object]) -> NoReturn:
        missing = [f"`{s.name}` {s.text}" for s, x in zip(self.inputs, inputs, strict=True) if s.required and x is None]
        for param, value in zip(self.params, params, strict=True):
            if value is None:
                if param.default is not None:
                    raise TypeError(f"{self.name}: `{param.name}` must be a number, got None")
                missing.append(f"`{param.name}` in {range_text(param)}")
        raise TypeError(f"{self.name}: missing {'arguments' if len(missing) > 1 else 'argument'} {', '.join(missing)}")

    # -- kinds -------------------------------------------------------------------------------------------------------

    def check_kind(self, slot: Slot, dtype: str, torch: bool) -> None:
        if dtype not in ACCEPTED[slot.kind]:
            raise TypeError(
                f"{self.name}: `{slot.name}` must be {EXPECTED[slot.kind]}, got {dtype}: "
                f"pass {slot.name}.{CURE[torch][slot.kind]}"
            )

    def check_containers(self, on_torch: Sequence[tuple[str, bool]]) -> None:
        """All of a call's tensors are torch's, or all are NumPy's."""
        if not on_torch:
            raise TypeError(f"{self.name}: nothing was given as a tensor or an array")
        odd = odd_one_out([flag for _, flag in on_torch])
        if odd is not None:
            name, flag = on_torch[odd]
            one, others = ("torch tensor", "NumPy arrays") if flag else ("NumPy array", "torch tensors")
            raise TypeError(f"{self.name}: `{name}` is a {one} where the others are {others}: give all as one of them")

    def check_devices(self, devices: Sequence[tuple[str, Any]]) -> None:
        odd = odd_one_out([device for _, device in devices])
        if odd is not None:
            name, device = devices[odd]
            usual = next(other for _, other in devices if other != device)
            raise ValueError(
                f'{self.name}: `{name}` is on {device} where the others are on {usual}: pass {name}.to("{usual}")'
            )

    def takes_number(self, slot: Slot) -> bool:
        """A value per environment may be one number for all of them: `last_value=0.0`."""
        return slot.kind in ("float", "num") and TIME not in slot.dims

    def result_dtype(self, dtypes: Iterable[tuple[Slot, str]], fallback: str) -> str:
        """The promoted dtype of the floats given; int64 where all is integer and stays so; else `fallback`.

        float16 with bfloat16 is float32, as in torch.promote_types.
        """
        floats, integers, only_num = set(), False, self.whole
        for slot, dtype in dtypes:
            if slot.kind == "float" or slot.kind == "num":
                if dtype in INTEGERS:
                    integers = True
                else:
                    floats.add(dtype)
        if not floats:
            return "int64" if integers and only_num else fallback
        if len(floats) == 1:
            return floats.pop()
        return "float64" if "float64" in floats else "float32"

    def check_float(self, slot: Slot, number: float) -> None:
        try:
            float(number)
        except OverflowError:
            raise ValueError(f"{self.name}: `{slot.name}` is an integer beyond every float") from None

    def check_integer(self, slot: Slot, number: float) -> None:
        """A lone number among integers must be one too, or it would be cut off without a word."""
        if not math.isfinite(number) or number != int(number) or not -(2**63) <= number < 2**63:
            raise ValueError(f"{self.name}: `{slot.name}` must be an int64 where the other inputs are, got {number}")

    # -- shapes ------------------------------------------------------------------------------------------------------

    def bind(self, shapes: Sequence[Shape | None]) -> Binding:
        """The axes' sizes from the inputs' shapes (None: absent, or a lone number)."""
        for dims in self.variants:
            sizes = _fit(dims, shapes)
            if sizes is not None:
                break
        else:
            raise ValueError(self._misfit(shapes))
        for axis in self.needed_axes:
            if axis not in sizes:
                having = [slot.name for slot in self.inputs if axis in slot.dims]
                raise ValueError(
                    f"{self.name}: nothing that was given has the axis {axis}, so its size is not known"
                    + (f"; pass {_listed(having, 'or')}" if having else "")
                )
        if not self.optional_axes:
            return Binding(sizes, self.optional_axes)
        absent = self.optional_axes.difference(sizes)
        return Binding(sizes | dict.fromkeys(absent, 1), absent)

    def _misfit(self, shapes: Sequence[Shape | None]) -> str:
        """Blames the odd one out: sizes go by the majority of the inputs of the right rank, ties to the first."""
        dims = max(
            self.variants, key=lambda v: sum(s is None or len(d) == len(s) for d, s in zip(v, shapes, strict=True))
        )
        votes: dict[str, Counter[int]] = {}
        for axes, shape in zip(dims, shapes, strict=True):
            if shape is not None and len(axes) == len(shape):
                for axis, size in zip(axes, shape, strict=True):
                    votes.setdefault(axis, Counter())[size] += 1
        sizes = {axis: counter.most_common(1)[0][0] for axis, counter in votes.items()}
        name, axes, shape = next(
            (slot.name, axes, shape)
            for slot, axes, shape in zip(self.inputs, dims, shapes, strict=True)
            if shape is not None and tuple(sizes.get(axis) for axis in axes) != shape
        )
        hint = self._hint(name, axes, sizes, shape, shapes)
        return f"{self.name}: `{name}` must have shape {_expected(axes, sizes)}, got {_shape(shape)}{hint}"

    def _hint(
        self, name: str, axes: tuple[str, ...], sizes: Mapping[str, int], shape: Shape, shapes: Sequence[Shape | None]
    ) -> str:
        other = "tb" if self.layout == "bt" else "bt"
        if any(_fit(tuple(map(_swap, dims)), shapes) is not None for dims in self.variants):
            return f'; did you mean layout="{other}"?'
        want = tuple(sizes.get(axis) for axis in axes)
        if tuple(sizes.get(axis) for axis in _swap(axes)) == shape:
            return f"; its first two axes look exchanged: pass {name}.swapaxes(0, 1)"
        if shape[-1:] == (1,) and want == shape[:-1]:
            return f"; pass {name}.squeeze(-1)"
        if len(shape) == 1 and len(axes) == 2 and TIME in axes:
            return f"; for one environment pass {name}[{'None' if self.layout == 'bt' else ':, None'}]"
        return ""

    # -- params ------------------------------------------------------------------------------------------------------

    def number(self, param: Param, value: object) -> float:
        """A param given as a Python or NumPy number, in its range."""
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(
                f"{self.name}: `{param.name}` must be a number in {range_text(param)} or a float tensor, "
                f"got {type(value).__name__}"
            )
        try:
            number = float(value)
        except OverflowError:
            raise ValueError(f"{self.name}: `{param.name}` is an integer beyond every float") from None
        if not param.lower <= number <= param.upper:  # NaN fails this too
            raise ValueError(f"{self.name}: `{param.name}` must lie in {range_text(param)}, got {number_text(number)}")
        return number

    def param_rank(self, param: Param, shape: Shape, sizes: Mapping[str, int]) -> int:
        """0 for one number, 1 for one per environment, 2 for one per step.

        A [B] param follows the environments even where B = T: axes are matched by rank, never by size.
        """
        if math.prod(shape) == 1:
            return 0
        if shape == (sizes[BATCH],):
            return 1
        plane = self.plane
        if shape == tuple(sizes[axis] for axis in plane):
            return 2
        hint = ""
        if shape == tuple(sizes[axis] for axis in plane[::-1]):
            hint = f"; its two axes look exchanged: pass {param.name}.swapaxes(0, 1)"
        raise ValueError(
            f"{self.name}: `{param.name}` must be one number, or have shape {_expected((BATCH,), sizes)} or "
            f"{_expected(plane, sizes)}, got {_shape(shape)}{hint}"
        )

    # -- results -----------------------------------------------------------------------------------------------------

    def is_empty(self, bound: Binding) -> bool:
        """Nothing to compute. An empty axis under a full output (a sum over no actions) has no answer: ValueError."""
        if 0 not in bound.sizes.values():
            return False
        for slot in self.outputs:
            if 0 not in bound.full_shape(slot.dims):
                axis = next(axis for axis, size in bound.sizes.items() if size == 0)
                raise ValueError(f"{self.name}: the axis {axis} has size 0, so `{slot.name}` has no value")
        return True


def interface(
    spec: Spec,
    layout: str,
    outputs: tuple[str, ...] | None,
    dims: Mapping[str, tuple[str, ...]],
    whole: bool = True,
) -> Interface:
    """The call of `spec` in one layout. `dims` are the outputs' dims, batch first."""
    if layout not in ("bt", "tb"):
        raise ValueError(f'layout must be "bt" ([B, T]) or "tb" ([T, B]), got {layout!r}')
    known = [output.name for output in spec.outputs]
    for name in outputs if outputs is not None else ():
        if name not in known:
            hint = did_you_mean(name, known) or f"the outputs are {', '.join(known)}"
            raise ValueError(f"{spec.name}: there is no output `{name}`; {hint}")
    if outputs == ():
        raise ValueError(f"{spec.name}: `outputs` must name at least one of {', '.join(known)}")
    optional = tuple(dict.fromkeys(axis for item in spec.inputs for axis in item.optional_axes))

    def slot(name: str, kind: Kind, own: tuple[str, ...], required: bool) -> Slot:
        own = _swap(own) if layout == "tb" else own
        text = ", ".join(axis + "?" if axis in optional else axis for axis in own)
        return Slot(name, kind, own, required, f"{TYPE_NAME[kind]}[{text}]")

    inputs = tuple(slot(item.name, item.kind, item.dims, not item.optional) for item in spec.inputs)
    results = tuple(slot(name, "float", dims[name], True) for name in known if outputs is None or name in outputs)
    left_out = itertools.chain.from_iterable(itertools.combinations(optional, n) for n in range(len(optional) + 1))
    needed = dict.fromkeys((BATCH, TIME, *(axis for result in results for axis in result.dims)))
    return Interface(
        name=spec.name,
        layout=layout,
        inputs=inputs,
        params=spec.params,
        outputs=results,
        every_output=tuple(output.name for output in spec.outputs),
        whole=whole and not spec.params,
        together=spec.together,
        names=frozenset([*(item.name for item in spec.inputs), *(param.name for param in spec.params)]),
        variants=tuple(tuple(tuple(a for a in s.dims if a not in absent) for s in inputs) for absent in left_out),
        optional_axes=frozenset(optional),
        needed_axes=tuple(axis for axis in needed if axis not in optional),
    )


def odd_one_out(values: Sequence[Any]) -> int | None:
    """The place of the first value that differs from what most are; None where all agree."""
    if values.count(values[0]) == len(values):
        return None
    usual = Counter(values).most_common(1)[0][0]
    return next(i for i, value in enumerate(values) if value != usual)


def _fit(dims: tuple[tuple[str, ...], ...], shapes: Sequence[Shape | None]) -> dict[str, int] | None:
    sizes: dict[str, int] = {}
    for axes, shape in zip(dims, shapes, strict=True):
        if shape is None:
            continue
        if len(axes) != len(shape):
            return None
        for axis, size in zip(axes, shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                return None
    return sizes


def _swap(dims: tuple[str, ...]) -> tuple[str, ...]:
    """Batch and time exchanged, where there are both."""
    return (dims[1], dims[0], *dims[2:]) if TIME in dims and BATCH in dims else dims


def _expected(axes: Iterable[str], sizes: Mapping[str, int]) -> str:
    axes = tuple(axes)
    known = all(axis in sizes for axis in axes)
    return f"[{', '.join(axes)}]" + (f" = {_shape(tuple(sizes[axis] for axis in axes))}" if known else "")


def _shape(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _listed(names: Sequence[str], word: str = "and") -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {word} {quoted[-1]}"


def number_text(value: float) -> str:
    return repr(int(value)) if math.isfinite(value) and value == int(value) and abs(value) < 1e16 else repr(value)


def range_text(param: Param) -> str:
    return f"[{number_text(param.lower)}, {number_text(param.upper)}]"
