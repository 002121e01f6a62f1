"""Who else is timed, each behind an adapter: on the same data, in the dtypes and the layout that it takes.

Conversions that a caller could do once for all (flags as floats, arrays of another library) are made before the clock starts;
a transposition that each call would need is made inside it. What a peer computes is compared with the exact results too. One
that leaves outputs out, or is handed something made beforehand, says so in `note`; one whose definition is another is not
`alike`: its times are reported as not comparable.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rlscan.bench import scans
from rlscan.bench.cases import Case

if TYPE_CHECKING:
    from torch import Tensor

Inputs = Mapping[str, "Tensor"]
#: A Python loop over more steps than this takes seconds.
LOOP_STEPS = 8192


@dataclass(frozen=True, slots=True)
class Prepared:
    """A peer's call on some inputs. named: its result as the spec's outputs, in the case's layout."""

    call: Callable[[], Any]
    named: Callable[[Any], dict[str, Tensor]]
    note: str = ""
    alike: bool = True
    #: how its result is waited for, where CUDA events do not see its work
    wait: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """A way to compute estimators. prepare gives a Prepared, or says why it has none for a case."""

    name: str
    devices: tuple[str, ...]
    needs: tuple[str, ...]
    prepare: Callable[[Case, Inputs], Prepared | str]

    def missing(self, device: str) -> str:
        """Why it cannot be timed here; "" where it can."""
        if device not in self.devices:
            return f"runs on {' and '.join(self.devices)} alone"
        for module in self.needs:
            if not _found(module):
                return f"{module} is not installed"
        return ""

    def version(self) -> str:
        """Of the library, where it has one."""
        package = self.needs[0].replace("_", "-") if self.needs else "torch"
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return str(getattr(importlib.import_module(self.needs[0]), "__version__", "")) if self.needs else ""


def _found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


# -- ways to scan, in torch --------------------------------------------------------------------------------------------


def _scanning(scan: scans.Scan, compiled: bool, most: int, case: Case, inputs: Inputs) -> Prepared | str:
    estimate = scans.ESTIMATORS.get(case.estimator)
    if estimate is None:
        return "not written for this spec"
    if most < case.T:
        return f"a loop of more than {most} steps"

    def run(x: Inputs) -> dict[str, Tensor]:
        return estimate(x, scan, case.time_axis)

    call = run
    if compiled:
        import torch

        # Each shape is compiled by itself: what is known at compile time helps torch.
        torch._dynamo.reset()
        call = torch.compile(run, dynamic=False)
    return Prepared(lambda: call(inputs), lambda found: dict(found))


# -- rl-triton ---------------------------------------------------------------------------------------------------------


def _rl_triton(case: Case, inputs: Inputs) -> Prepared | str:
    import torch

    library = importlib.import_module("rl_triton")
    if case.dtype != "float32":
        return "takes float32 alone"
    if case.truncations:
        return "its truncations are another set of inputs"
    turned = case.layout == "tb"
    x = {name: value.float() if value.dtype is torch.bool else value for name, value in inputs.items()}

    def rows(tensor: Tensor) -> Tensor:
        return tensor.swapaxes(0, 1).contiguous() if turned else tensor

    def named(*names: str) -> Callable[[Any], dict[str, Tensor]]:
        def give(found: Any) -> dict[str, Tensor]:
            results = found if isinstance(found, tuple) else (found,)
            return {n: y.swapaxes(0, 1) if turned else y for n, y in zip(names, results, strict=True)}

        return give

    names: tuple[str, ...]
    notes = ["flags are float32"]
    if turned:
        notes.append("takes [B, T] alone: a call in time-first layout copies its inputs")
    alike = True
    last = x.get("last_value")
    ahead = None
    if case.estimator in ("td_lambda", "discounted_returns") and last is not None:
        ahead = torch.zeros_like(x["rewards"].swapaxes(0, 1) if turned else x["rewards"]).contiguous()
        ahead[:, -1] = last
    match case.estimator:
        case "gae":
            call = lambda: library.compute_gae(  # noqa: E731
                rows(x["rewards"]), rows(x["values"]), rows(x["terminated"]), last_value=last
            )
            names = ("advantages",)
            notes.append("advantages alone")
        case "td_lambda":
            following = scans.ahead(x["values"], x["last_value"], case.time_axis)
            call = lambda: library.compute_lambda_returns(  # noqa: E731
                rows(x["rewards"]), rows(following), rows(x["terminated"]), bootstrap_values=ahead
            )
            names = ("returns",)
            notes.append("is given V of the next states")
        case "discounted_returns":
            call = lambda: library.compute_discounted_returns(  # noqa: E731
                rows(x["rewards"]), rows(x["terminated"]), bootstrap_values=ahead
            )
            names = ("returns",)
        case "vtrace":
            arguments = ("target_log_probs", "behavior_log_probs", "values", "rewards", "terminated")
            call = lambda: library.compute_vtrace(*(rows(x[n]) for n in arguments), last_value=last)  # noqa: E731
            names = ("vs", "pg_advantages")
        case "retrace":
            taken = x["q_values"].gather(-1, x["actions"].unsqueeze(-1)).squeeze(-1)
            last_q = x["last_q_values"].unsqueeze(case.time_axis)
            following = torch.cat((x["q_values"].narrow(case.time_axis, 1, case.T - 1), last_q), case.time_axis)
            never = torch.zeros_like(x["terminated"])
            given = (x["target_probs"], x["behavior_probs"], taken, following)
            call = lambda: library.compute_retrace(  # noqa: E731
                *map(rows, given), *(rows(y) for y in (x["actions"], x["rewards"], x["terminated"], never)), 0.99
            )
            names = ("targets", "advantages")
            notes.append("weighs Q(s[t+1], ·) with π(·|s[t]), and the step past the window with 0")
            alike = False
        case "eligibility_traces":
            call = lambda: library.compute_eligibility_traces(  # noqa: E731
                rows(x["features"]), rows(x["terminated"]), scans.GAMMA, scans.LAM
            )
            names = ("traces",)
        case "episodic_prefix_sum":
            call = lambda: library.compute_episodic_prefix_sum(rows(x["x"]), rows(x["done"]))  # noqa: E731
            names = ("sums",)
        case _:
            return "has no such estimator"
    return Prepared(call, named(*names), "; ".join(notes), alike)


# -- PufferLib ---------------------------------------------------------------------------------------------------------


def _pufferlib(case: Case, inputs: Inputs) -> Prepared | str:
    """Its rewards and dones stand one step later than its values, and its last step is never written: a step more."""
    import torch

    if case.estimator != "gae" or case.dtype != "float32" or case.truncations:
        return "has GAE alone, in float32, without truncations"
    try:
        importlib.import_module("pufferlib._C")
        kernel = torch.ops.pufferlib.compute_puff_advantage
    except (ImportError, AttributeError) as error:
        return f"its kernel cannot be loaded: {error}"
    turned = case.layout == "tb"

    def rows(tensor: Tensor) -> Tensor:
        return tensor.swapaxes(0, 1).contiguous() if turned else tensor.contiguous()

    nothing = torch.zeros_like(inputs["last_value"]).unsqueeze(1)
    values = torch.cat((rows(inputs["values"]), inputs["last_value"].unsqueeze(1)), 1)
    rewards = torch.cat((nothing, rows(inputs["rewards"])), 1)
    dones = torch.cat((nothing, rows(inputs["terminated"]).float()), 1)
    ones = torch.ones_like(values)

    def call() -> Tensor:
        advantages = torch.empty_like(values)
        kernel(values, rewards, dones, ones, advantages, scans.GAMMA, scans.LAM, 1.0, 1.0)
        return advantages

    def named(found: Tensor) -> dict[str, Tensor]:
        kept = found[:, : case.T]
        return {"advantages": kept.swapaxes(0, 1) if turned else kept}

    note = "advantages alone; flags are float32; reads ratios, all 1; rows of T + 1 steps, [B, T] in either layout"
    return Prepared(call, named, note)


# -- rlax --------------------------------------------------------------------------------------------------------------


def _rlax_vtrace(rlax: Any, values: Any, following: Any, rewards: Any, discounts: Any, ratios: Any) -> Any:
    found = rlax.vtrace_td_error_and_advantage(values, following, rewards, discounts, ratios)
    return found.errors + values, found.pg_advantage


def _rlax(case: Case, inputs: Inputs) -> Prepared | str:
    """One environment a call of its own, vectorised and compiled; an episode's end is a discount of 0."""
    import torch

    if case.dtype != "float32" or case.truncations:
        return "compared in float32, without truncations"
    jax, rlax = importlib.import_module("jax"), importlib.import_module("rlax")
    dim = case.time_axis
    discount = None
    if "terminated" in inputs and "rewards" in inputs:
        discount = torch.where(inputs["terminated"], 0.0, scans.GAMMA)
    note = "wall-clock time, the result waited for; discounts made beforehand"
    names: tuple[str, ...]
    given: tuple[Tensor | None, ...]
    function: Callable[..., Any]
    match case.estimator:
        case "gae":
            states = torch.cat((inputs["values"], inputs["last_value"].unsqueeze(dim)), dim)
            given = (inputs["rewards"], discount, states)
            function = lambda r, g, v: rlax.truncated_generalized_advantage_estimation(r, g, scans.LAM, v)  # noqa: E731
            names, note = ("advantages",), f"{note}; advantages alone"
        case "td_lambda":
            following = scans.ahead(inputs["values"], inputs["last_value"], dim)
            given = (inputs["rewards"], discount, following)
            function = lambda r, g, v: rlax.lambda_returns(r, g, v, scans.LAM)  # noqa: E731
            names, note = ("returns",), f"{note}; is given V of the next states"
        case "discounted_returns":
            given = (inputs["rewards"], discount, inputs["last_value"])
            function = rlax.discounted_returns
            names = ("returns",)
        case "vtrace":
            following = scans.ahead(inputs["values"], inputs["last_value"], dim)
            ratio = (inputs["target_log_probs"] - inputs["behavior_log_probs"]).exp()
            given = (inputs["values"], following, inputs["rewards"], discount, ratio)
            function = functools.partial(_rlax_vtrace, rlax)
            names, note = ("vs", "pg_advantages"), f"{note}; is given the ratios and V of the next states"
        case _:
            return "compared on other estimators alone"
    columns = [jax.dlpack.from_dlpack(x.contiguous()) for x in given if x is not None]
    run = jax.jit(jax.vmap(function, in_axes=tuple(0 if x.ndim == 1 else 1 - dim for x in columns), out_axes=1 - dim))

    def named(found: Any) -> dict[str, Tensor]:
        results = found if isinstance(found, tuple) else (found,)
        return {name: torch.utils.dlpack.from_dlpack(y) for name, y in zip(names, results, strict=True)}

    return Prepared(lambda: run(*columns), named, note, wait=jax.block_until_ready)


# -- loops by hand -----------------------------------------------------------------------------------------------------


def _by_hand(case: Case, inputs: Inputs) -> Prepared | str:
    """GAE as people write it in torch: everything inside the loop over time."""
    import torch

    if case.estimator != "gae" or case.truncations or case.T > LOOP_STEPS:
        return f"GAE without truncations, up to {LOOP_STEPS} steps"
    axis = case.time_axis
    rewards, values, flags = (inputs[name] for name in ("rewards", "values", "terminated"))

    def call() -> tuple[Tensor, Tensor]:
        advantages = torch.zeros_like(rewards)
        alive = 1.0 - flags.to(rewards.dtype)
        following, carry = inputs["last_value"], torch.zeros_like(inputs["last_value"])
        for t in reversed(range(case.T)):
            going = alive.select(axis, t)
            value = values.select(axis, t)
            delta = rewards.select(axis, t) + scans.GAMMA * following * going - value
            carry = delta + scans.GAMMA * scans.LAM * going * carry
            advantages.select(axis, t).copy_(carry)
            following = value
        return advantages, advantages + values

    return Prepared(call, lambda found: dict(zip(("advantages", "returns"), found, strict=True)))


def _numba_by_hand(case: Case, inputs: Inputs) -> Prepared | str:
    """The same in Numba, one loop with everything in it."""
    import torch

    if case.estimator != "gae" or case.truncations or case.dtype not in ("float32", "float64"):
        return "GAE without truncations, in float32 or float64"
    given = [inputs[name].numpy() for name in ("rewards", "values", "terminated", "last_value")]
    number = given[0].dtype.type
    numbers = number(scans.GAMMA), number(scans.GAMMA * scans.LAM), number(0)

    def call() -> tuple[Tensor, Tensor]:
        results = torch.empty_like(inputs["rewards"]), torch.empty_like(inputs["rewards"])
        scans.compiled()["gae"](*given, *(x.numpy() for x in results), case.layout == "tb", *numbers)
        return results

    return Prepared(call, lambda found: dict(zip(("advantages", "returns"), found, strict=True)))


_BOTH = ("cuda", "cpu")
PEERS: tuple[Peer, ...] = (
    Peer("rl-triton", ("cuda",), ("rl_triton",), _rl_triton),
    Peer("PufferLib", ("cuda",), ("pufferlib",), _pufferlib),
    Peer("rlax", _BOTH, ("rlax", "jax"), _rlax),
    Peer(
        "torch.compile(associative_scan)", ("cuda",), (), functools.partial(_scanning, scans.associative, True, 2**62)
    ),
    Peer("torch.compile(doubling scan)", ("cuda",), (), functools.partial(_scanning, scans.doubling, True, 2**62)),
    Peer("torch loop", _BOTH, (), functools.partial(_scanning, scans.loop, False, LOOP_STEPS)),
    Peer("torch loop by hand", _BOTH, (), _by_hand),
    Peer("NumPy loop", ("cpu",), (), functools.partial(_scanning, scans.numpy_loop, False, 2**62)),
    Peer("Numba loop", ("cpu",), ("numba",), functools.partial(_scanning, scans.numba_loop, False, 2**62)),
    Peer("Numba loop by hand", ("cpu",), ("numba",), _numba_by_hand),
)


def chosen(names: str) -> tuple[Peer, ...]:
    """`all`, `none`, or a comma between names; any beginning of a name will do. ValueError where there is no such peer."""
    if names == "none":
        return ()
    if names == "all":
        return PEERS
    found: list[Peer] = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        near = [peer for peer in PEERS if peer.name.lower().startswith(name.lower())]
        if not near:
            raise ValueError(f"there is no peer {name}: choose among {', '.join(peer.name for peer in PEERS)}")
        found += [peer for peer in near if peer not in found]
    return tuple(found)
