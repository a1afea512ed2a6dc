"""Compares what the variants of a graph compute with the original: outputs, changed inputs, and gradients.

All variants run with the inputs of one call of the program, the same random state, and the same gradients of the
outputs. Afterwards the program's tensors have their old values again, and none of its gradients is changed.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Sequence
from typing import Any

import torch

from ....devices.protocol import CPU
from ....devices.table import DEVICES, find_device
from ....messages.observed import INCOMPARABLE, ORIGINAL, CheckedCallable
from ....records.optimization import PLACEBO
from ...device.runtimes import find_runtime
from ...upstream.graph_variants import without_compiled_autograd
from ...upstream.inductor import clone_input
from ..output_comparison import TF32_TOLERANCE, are_meaningless, find_tolerance
from ..pin_comparison import NO_NUMBERS, TF32_EPS, Rounding, find_worst_tensor, round_otherwise
from ..step_measurement import describe_error
from .settings import TorchChange, VariantSettings
from .turns import Turns, VariantGraph

CUDA_GRAPH_RUNS = 3
"""Runs of a graph until it is replayed: its warm-up, its recording, and a replay."""

OTHER_SEED = 20_011
"""The seed of random numbers that the program does not draw itself."""

COARSE_SETTINGS = ("tf32", "precision", "reduction")
"""Words in the names of settings with which products are computed in TF32, or with ``medium`` in bfloat16."""


class GraphCheck:
    """Compares the variants of a graph, with the inputs of one call."""

    def __init__(self, turns: Turns, graph: VariantGraph, arguments: Sequence[Any]) -> None:
        self._turns, self._graph, self._arguments = turns, graph, [*arguments, *graph.state]
        self._passed = len(arguments)
        self.kept = {place: clone_input(self._arguments[place]) for place in self._changing()}
        """The old values of the inputs that it may change, by their places."""
        kinds = {value.device.type for value in self._arguments if isinstance(value, torch.Tensor)}
        others = [kind for kind in DEVICES if kind in kinds and not find_device(kind).runs_on_host]
        self.runs_on_host = not others
        self._runtime = find_runtime(others[0] if others else CPU.type)
        self.labels: list[str] = []
        """What each value of a run is."""
        self.gradients = 0
        """The number of gradients among them."""

    def _changing(self) -> list[int]:
        """Returns the indices of strided tensors that the graph changes in place, as far as torch says which.

        A graph as it was captured may change parameters, too: it switches the recording of gradients off itself.
        """
        known, records = self._graph.changed, torch.is_grad_enabled() and not self._graph.is_eager
        places = range(len(self._arguments)) if known is None else known
        found = [place for place in places if isinstance(self._arguments[place], torch.Tensor)]
        return [place for place in found if not (records and self._arguments[place].requires_grad)]

    def run(self, number: int, *, coarsest: float | None = None) -> list[Any]:
        """Returns what a variant returns and changes, and its gradients; ``labels`` names each of these values.

        Args:
            number: the variant's.
            coarsest: with how large a unit the inputs are rounded in another way; see
                ``pin_comparison.round_otherwise``.
        """
        call = self._graph.own if number == ORIGINAL else self._graph.compiled[number]
        leaves: dict[int, Any] = {}
        arguments = [self._argument(place, leaves, coarsest) for place in range(len(self._arguments))]
        switch = self._turns.replays if self._graph.uses_cuda_graphs else None
        try:
            with (
                switch.off() if switch is not None else contextlib.nullcontext(),
                self._turns.in_place_of(number),
                self._runtime.preserve_random_state(),
                without_compiled_autograd(),
            ):
                result = call(*arguments[: self._passed])
                outputs = list(result) if isinstance(result, tuple | list) else [result]
                values = [_copy_of(value) for value in outputs]
                values += [_copy_of(arguments[place]) for place in self.kept]
                gradients = self._gradients(outputs, leaves)
        finally:
            self._restore()
        self.labels = [f"output {place}" for place in range(len(outputs))]
        self.labels += [f"input {place} after the call" for place in self.kept]
        self.labels += [f"gradient of input {place}" for place in gradients]
        self.gradients = len(gradients)
        return [*values, *gradients.values()]

    def is_random(self, own: Sequence[Any], again: Sequence[Any]) -> bool:
        """Whether the original, which repeats its results, gives other results with another random state."""
        with self._runtime.preserve_random_state():
            torch.manual_seed(OTHER_SEED)
            values = self.run(ORIGINAL)
        found = zip(own, again, values, strict=True)
        tensors = [row for row in found if isinstance(row[0], torch.Tensor)]
        return any(torch.equal(one, two) and not torch.equal(one, other) for one, two, other in tensors)

    def _argument(self, place: int, leaves: dict[int, Any], coarsest: float | None) -> Any:
        """Returns an input without its autograd graph, in the program's memory.

        It is a copy if it is rounded or is no leaf.
        """
        value = self._arguments[place]
        if not isinstance(value, torch.Tensor):
            return value
        if place >= self._passed:  # the graph has it whatever it is called with
            if value.requires_grad and torch.is_grad_enabled():
                leaves[place] = value
            return value
        copies = coarsest is not None or (value.requires_grad and not value.is_leaf)
        made = clone_input(value) if copies else value.data
        if coarsest is not None:
            with torch.no_grad():
                round_otherwise(made, coarsest)
        if value.requires_grad and torch.is_grad_enabled():
            leaves[place] = made.requires_grad_()
            return made.clone() if not value.is_leaf else made  # what may be changed in place is no leaf
        return made

    def _gradients(self, outputs: Sequence[Any], leaves: dict[int, Any]) -> dict[int, Any]:
        found = [value for value in outputs if isinstance(value, torch.Tensor) and value.requires_grad]
        if not found or not leaves:
            return {}
        seeds = [_seed_generator(value) for value in found]
        made = torch.autograd.grad(found, list(leaves.values()), seeds, allow_unused=True)
        return dict(zip(leaves, map(_copy_of, made), strict=True))

    def _restore(self) -> None:
        with torch.no_grad():
            for place, before in self.kept.items():
                _find_memory(self._arguments[place].data).copy_(_find_memory(before))


def _copy_of(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _find_memory(value: torch.Tensor) -> torch.Tensor:
    """Returns all elements between the first and the last one of a tensor, each once."""
    if value.numel() == 0:
        return value.reshape(-1)
    extent = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return value.as_strided((extent,), (1,), value.storage_offset())


def _seed_generator(value: torch.Tensor) -> torch.Tensor:
    """Returns the gradient of an output: the same numbers each time, with a norm of about 1."""
    if value.numel() == 1:
        return torch.ones_like(value)
    random = torch.Generator(value.device).manual_seed(value.numel())
    made = torch.empty_like(value).normal_(generator=random)
    return made.mul_(value.numel() ** -0.5)


def check_graph(turns: Turns, graph: VariantGraph, arguments: Sequence[Any]) -> list[CheckedCallable]:
    """Compares all variants of a graph that can be compared, with the inputs of the next call."""
    numbers = [number for number in graph.compiled if not turns.settings[number].failure]
    reason = _explain_not_compared(graph, arguments)
    if reason:
        return [_not_compared(number, graph, reason) for number in numbers]
    try:
        check = GraphCheck(turns, graph, arguments)
        own, again = check.run(ORIGINAL), [check.run(ORIGINAL)]
    except torch.OutOfMemoryError:
        return [_not_compared(number, graph, "no memory for a copy of its inputs") for number in numbers]
    except Exception as error:  # of the original, with these inputs: nothing is known of the variants
        traceback.print_exc()
        reason = f"a call with a copy of its inputs failed: {describe_error(error)}"
        return [_not_compared(number, graph, reason) for number in numbers]
    if are_meaningless(own):
        return [_not_compared(number, graph, NO_NUMBERS) for number in numbers]
    if graph.is_eager and check.is_random(own, again[0]):
        return [_not_compared(number, graph, "it draws other random numbers than when compiled") for number in numbers]
    found = []
    for number in numbers:
        turns.note(number, "is checked")
        found.append(_check(turns, graph, check, number, own, again))
    turns.note(turns.variant, "runs")
    return found


def _check(
    turns: Turns, graph: VariantGraph, check: GraphCheck, number: int, own: Sequence[Any], again: list[list[Any]]
) -> CheckedCallable:
    """Compares one variant. The placebo is the original, so its values are added to those of the original."""
    settings = turns.settings[number]
    replays = settings.options.get("triton.cudagraphs") and not check.runs_on_host
    try:
        for _ in range(CUDA_GRAPH_RUNS if replays else 1):
            values = check.run(number)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return _not_compared(number, graph, "no memory to run it beside the original")
    except Exception as error:  # an exception of a variant ends the variant, and not the program
        turns.fail(number, error)
        return _not_compared(number, graph, f"it failed: {describe_error(error)}")
    if len(values) != len(own):
        reason = f"{len(values)} outputs and gradients instead of {len(own)}"
        return CheckedCallable(number, graph.name, worst=INCOMPARABLE, reason=reason)
    coarse = find_coarse_eps(settings)
    least = max(graph.coarsest_eps, coarse)
    alike = range(len(own) - check.gradients, len(own))
    rounding = Rounding(lambda coarsest: check.run(ORIGINAL, coarsest=max(coarsest, least)), own, alike)
    if settings.slug == PLACEBO:
        again.append(values)
    worst, place = find_worst_tensor(
        graph.name, values, again, own, rounding, _find_coarse_tolerance if coarse else find_tolerance
    )
    excess = min(worst.excess, INCOMPARABLE)
    if worst.unrepeatable and excess <= 1 and worst.tensors <= len(check.kept):  # no output, and no gradient
        return _not_compared(number, graph, "two calls of the original differ by as much: its outputs are random")
    return CheckedCallable(
        number,
        graph.name,
        outputs=len(own) - check.gradients,
        gradients=check.gradients,
        worst=excess,
        own=min(worst.own_difference / worst.tolerance, INCOMPARABLE) if worst.tolerance else 0.0,
        reason="" if excess <= 1 else f"{check.labels[place]} differs by more than rounding explains",
        where=check.labels[place] if worst.tensors else "",
    )


def find_coarse_eps(settings: VariantSettings) -> float:
    """Returns the eps of the type in which a variant may compute products; 0 if the type does not change."""
    changes = [change for change in settings.changes if isinstance(change, TorchChange)]
    coarse = [change.value for change in changes if any(word in change.path for word in COARSE_SETTINGS)]
    return max((torch.finfo(torch.bfloat16).eps if value == "medium" else TF32_EPS for value in coarse), default=0.0)


def _find_coarse_tolerance(dtype: torch.dtype) -> float:
    return max(find_tolerance(dtype), TF32_TOLERANCE if dtype.is_floating_point or dtype.is_complex else 0.0)


def _not_compared(number: int, graph: VariantGraph, reason: str) -> CheckedCallable:
    return CheckedCallable(number, graph.name, reason=reason, is_compared=False)


def _explain_not_compared(graph: VariantGraph, arguments: Sequence[Any]) -> str:
    if graph.calls_collectives:
        return "other processes would have to repeat its collectives"
    tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
    if any(value.layout != torch.strided for value in tensors):
        return "an input is not strided"
    if any(type(value) not in (torch.Tensor, torch.nn.Parameter) for value in tensors):
        return "an input is of a subclass of Tensor"
    return ""
