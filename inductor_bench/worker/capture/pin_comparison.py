"""Runs the program's steps in turn with Inductor's own and with the pinned configurations; compares times and outputs.

Steps alternate within one process, so that both see the same memory, clocks and data. One step is used to compare the
outputs of every graph, then steps are timed without a profiler, then some are profiled.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ...devices.table import find_device
from ...messages.observed import CHECKING, CUDA_GRAPHS, SETTLING, ComparedOutputs, ComparedStep, ComparedSteps
from ...records.edit import EditPin
from ...records.evidence import DONE, FAILED, GRAPH_CALL, PROFILING, TIMING
from ...records.retune import MOST_TIMED
from ..device.machine import LoadWatch
from ..device.runtime import DeviceRuntime
from ..device.runtimes import find_runtime
from ..upstream.inductor import clone_input, open_profiler_range
from ..upstream.pinning import list_launcher_errors
from .alternation import AlternatingSteps
from .boundaries import Boundaries, CalledGraphs
from .output_comparison import are_meaningless, compute_relative_difference, find_coarsest_eps, find_tolerance
from .pinned import PinnedKernel, PinnedKernels, save_states
from .schedule import StepPlan
from .step_measurement import PROFILER_ERRORS, describe_error, make_empty_steps
from .step_recording import Moment, Recording, compute_times, mark_boundary, wait_for

NOISE_FACTOR = 4.0
"""Outputs may differ by this many times the difference of two calls of the unchanged graph."""

UNREPEATABLE = 0.1
"""A tensor that differs by at least this much between two calls without the pins is not compared. cuDNN's attention
returns a seed and an offset, which it does not write if there is no dropout."""

NOISE_ONLY = 0.5
"""The relative difference by which other roundings change a tensor that consists only of rounding errors."""

ROUNDING_FACTOR = 10.0
"""This tensor may differ by this many times the change that other roundings make: a wrong kernel changes it by orders
of magnitude."""

FLIPPED = 0.01
"""The largest share of a tensor's whole numbers that rounding may change."""

TF32_EPS = 2.0**-10
"""The distance from 1 to the next number in TF32, the type in which a GPU may compute float32 matrix products."""

NO_NUMBERS = "a graph's outputs hold no finite number, with and without the configs"

BLAME_S = 20.0
"""Maximum seconds of the search for the kernels that change the outputs of one graph."""

Call = Callable[[Any, Any], Any]
Run = Callable[..., list[Any]]
"""Runs a graph with copies of its inputs; with ``coarsest`` the copies are rounded in another way; see
``_run_copy``."""


class OutputCheck:
    """The comparison of all graphs of one step.

    Attributes:
        found: the outcome of each graph.
        dropped: ids of the kernels whose pins change the outputs.
        changes: how they change them, by these ids.
    """

    def __init__(self, pinned: PinnedKernels, device: str) -> None:
        self.found: list[ComparedOutputs] = []
        self.dropped: list[str] = []
        self.changes: dict[str, str] = {}
        self._pinned, self._runtime = pinned, find_runtime(device)
        self._seen: set[str] = set()

    def call(self, path: str, original: Call, compiled: Any, inputs: Any) -> Any:
        """Calls a graph for the program without the pins.

        Before that, calls with copies of the inputs compare its outputs.
        """
        if path in self._seen:
            return original(compiled, inputs)
        self._seen.add(path)
        reason = _explain_not_compared(inputs)
        if reason:
            self.found.append(ComparedOutputs(path, reason=reason))
            return original(compiled, inputs)
        try:
            found = self._compare(path, partial(_run_copy, original, compiled, inputs, self._runtime), len(inputs))
        except torch.OutOfMemoryError:
            found = ComparedOutputs(path, reason="no memory for a copy of the graph's inputs")
        except list_launcher_errors() as error:
            traceback.print_exc()
            found = ComparedOutputs(
                path, reason=f"a call with a copy of the graph's inputs failed: {describe_error(error)}"
            )
        finally:
            self._pinned.switch_config(False)
        self.found.append(found)
        return original(compiled, inputs)

    def _compare(self, path: str, run: Run, inputs: int) -> ComparedOutputs:
        """Runs a graph twice without the pins and once with them, and drops the kernels that change its outputs."""
        own, again = run(), run()
        rounding = Rounding(run, own)

        def compare(pins: PinnedKernel | PinnedKernels, *, edited: bool) -> ComparedOutputs:
            pins.switch_config(True)
            try:
                tuned = run()
            except torch.OutOfMemoryError:
                raise
            except list_launcher_errors() as error:
                traceback.print_exc()
                return ComparedOutputs(
                    path, math.inf, reason=f"a graph failed with the changed kernels: {describe_error(error)}"
                )
            finally:
                pins.switch_config(False)
            return find_worst_tensor(path, tuned, [again], own, rounding, partial(find_tolerance, edited=edited))[0]

        edits = any(map(_is_edited, self._pinned.kernels))
        found = compare(self._pinned, edited=edits)
        if found.is_equal:
            return ComparedOutputs(path, reason=NO_NUMBERS) if are_meaningless(own[inputs:]) else found
        begin_s = time.perf_counter()
        for kernel in self._pinned.kernels[:]:
            if time.perf_counter() - begin_s > BLAME_S:
                return compare(self._pinned, edited=edits) if self.dropped else found
            if kernel.state().kernel_id in self.dropped:
                continue
            alone = compare(kernel, edited=_is_edited(kernel))
            if not alone.is_equal:
                self._drop(kernel, alone)
        # No remaining edit alone changes the outputs. Together with configs, edits may change them by as much as
        # configs may.
        return compare(self._pinned, edited=False) if self.dropped or edits else found

    def _drop(self, kernel: PinnedKernel, alone: ComparedOutputs) -> None:
        """Drops a kernel in all graphs that launch it; ``alone`` is the outcome with only this pin."""
        dropped = kernel.state().kernel_id
        by = f"by {alone.difference:.1e} of a tensor's norm, and up to {alone.tolerance:.1e} is rounding"
        self.changes[dropped] = alone.reason or (by if math.isfinite(alone.difference) else "beyond any number")
        self._pinned.kernels[:] = [one for one in self._pinned.kernels if one.state().kernel_id != dropped]
        self.dropped.append(dropped)


def _is_edited(kernel: PinnedKernel) -> bool:
    return isinstance(kernel.pin, EditPin)


def _explain_not_compared(inputs: Iterable[Any]) -> str:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return "the program is distributed, and other processes would have to repeat a graph's collectives"
    if any(isinstance(value, torch.Tensor) and value.layout != torch.strided for value in inputs):
        return "an input is not strided"
    return ""


class Rounding:
    """How much the outputs of a graph change if its inputs are rounded in another way.

    It is computed when it is first asked for. The mean of a batch norm's centred input consists only of rounding
    errors: in a step of mixnet_l, other configs changed such means by 1.3 times their norm.

    Args:
        run: runs the graph.
        own: what the graph read and returned.
        alike: the indices of values whose sizes can be compared: gradients for the same outputs.
    """

    def __init__(self, run: Run, own: Sequence[Any], alike: Collection[int] = ()) -> None:
        self._run, self._own, self._alike = run, own, alike
        self._moved: Sequence[float] | None = None

    def explains(self, place: int, difference: float, *, whole: bool) -> bool:
        """Whether rounding alone makes a difference as large as that of the tensor.

        Args:
            place: the index of the tensor.
            difference: its relative difference; of whole numbers the share that differs.
            whole: whether it holds whole numbers, such as masks and indices, which may flip where values are close.
        """
        if self._moved is None:
            self._moved = self._move()
        moved = self._moved[place]
        if math.isinf(difference) or math.isinf(moved):
            return False
        if whole:
            return difference <= min(NOISE_FACTOR * moved, FLIPPED)
        if moved >= NOISE_ONLY:
            return difference <= ROUNDING_FACTOR * moved or self._is_small(place, difference)
        return difference <= min(NOISE_FACTOR * moved, NOISE_ONLY if moved > UNREPEATABLE else UNREPEATABLE)

    def _is_small(self, place: int, difference: float) -> bool:
        """Whether a gradient differs by less than rounding changes a gradient of the usual size."""
        if place not in self._alike:
            return False
        tensors = [value for value in map(self._own.__getitem__, self._alike) if isinstance(value, torch.Tensor)]
        elements = sum(value.numel() for value in tensors)
        usual = math.hypot(*map(_compute_norm, tensors)) / math.sqrt(elements)
        own = self._own[place]
        return difference * _compute_norm(own) / math.sqrt(own.numel()) <= find_tolerance(own.dtype) * usual

    def _move(self) -> Sequence[float]:
        try:
            rounded = self._run(coarsest=_find_coarsest_eps(self._own))
        except torch.OutOfMemoryError:
            raise
        except list_launcher_errors():
            traceback.print_exc()
            return [0.0] * len(self._own)
        return [_compute_move(one, other) for one, other in zip(rounded, self._own, strict=True)]


def _compute_norm(value: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(value.detach(), dtype=torch.float32)) if value.is_floating_point() else 0.0


def _compute_move(one: Any, other: Any) -> float:
    if not isinstance(other, torch.Tensor) or one.shape != other.shape:
        return 0.0
    return compute_relative_difference(one, other)


def _find_coarsest_eps(values: Iterable[Any]) -> float:
    """Calls ``find_coarsest_eps``; returns at least the value of TF32 or bfloat16 if products may be computed in it."""
    known = list(values)
    floats = [value for value in known if isinstance(value, torch.Tensor) and value.is_floating_point()]
    backends: Any = torch.backends
    if not any(value.is_cuda for value in floats):
        in_bfloat16 = bool(floats) and backends.mkldnn.matmul.fp32_precision == "bf16"
        return max(find_coarsest_eps(known), torch.finfo(torch.bfloat16).eps * in_bfloat16)
    # A program that sets ``fp32_precision`` may not read ``allow_tf32``.
    libraries = (backends.cuda.matmul, backends.cudnn.conv)
    return max(find_coarsest_eps(known), TF32_EPS * any(one.fp32_precision == "tf32" for one in libraries))


def _run_copy(
    original: Call, compiled: Any, inputs: Sequence[Any], runtime: DeviceRuntime, *, coarsest: float | None = None
) -> list[Any]:
    """Calls a graph with copies of its inputs; returns the copies and the results. The random state stays as it is."""
    copies = [clone_input(value) for value in inputs]
    with torch.no_grad(), runtime.preserve_random_state():
        if coarsest is not None:
            for value in copies:
                round_otherwise(value, coarsest)
        result = original(compiled, list(copies))
    return [*copies, *(list(result) if isinstance(result, tuple | list) else [result])]


def round_otherwise(value: Any, coarsest: float) -> None:
    """Reduces a random half of a tensor's floating-point elements by one unit in the last place.

    For tensors with two or more dimensions, which autocast and TF32 convert, the unit is that of the graph's least
    precise type. Elements only become smaller, so that indices and shares stay in their range. Other values stay as
    they are.
    """
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.itemsize == 1:
        return
    if value.numel() == 0:
        return
    extent = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    flat = value.as_strided((extent,), (1,), value.storage_offset())
    random = torch.Generator(value.device).manual_seed(0)
    unit = max(torch.finfo(value.dtype).eps, coarsest if value.dim() > 1 else 0.0)
    flat.mul_(torch.empty_like(flat).bernoulli_(0.5, generator=random).mul_(-unit).add_(1))


def find_worst_tensor(
    path: str,
    tuned: Sequence[Any],
    again: Sequence[Sequence[Any]],
    own: Sequence[Any],
    rounding: Rounding,
    tolerances: Callable[[torch.dtype], float] = find_tolerance,
) -> tuple[ComparedOutputs, int]:
    """Returns the worst tensor, by its difference relative to its tolerance, and its index.

    Args:
        path: the path of the graph.
        tuned: what the graph reads and returns with a change.
        again: the same without the change, of each further run.
        own: the same without the change, of the first run.
        rounding: how much other roundings of the same inputs change the outputs.
        tolerances: the difference that is tolerated by element type.
    """
    worst, tensors, unrepeatable, rounded, where = ComparedOutputs(path), 0, 0, 0, 0
    for place, (one, reference, *repeated) in enumerate(zip(tuned, own, *again, strict=True)):
        if not isinstance(reference, torch.Tensor) or reference.numel() == 0:
            continue
        noise = max(_compute_difference(value, reference) for value in repeated)
        if noise > UNREPEATABLE:
            unrepeatable += 1
            continue
        difference = _compute_difference(one, reference)
        tolerance = max(tolerances(reference.dtype), NOISE_FACTOR * noise)
        if difference > tolerance and rounding.explains(place, difference, whole=not reference.is_floating_point()):
            rounded += 1
            continue
        tensors += 1
        found = ComparedOutputs(path, difference, noise, tolerance)
        if tensors == 1 or found.excess > worst.excess:
            worst, where = found, place
    return replace(worst, tensors=tensors, unrepeatable=unrepeatable, rounding=rounded), where


def _compute_difference(one: Any, reference: torch.Tensor) -> float:
    """The relative difference; infinite if the shapes differ, which may depend on values, or if one value is no
    tensor."""
    fits = isinstance(one, torch.Tensor) and one.shape == reference.shape
    return compute_relative_difference(one, reference) if fits else math.inf


# The steps of a comparison: how many there are, and which of them run the pins.


WARM_UP = 4
"""The number of alternating steps before the timed ones: the first launch of a configuration loads it."""

TIMED_COUNTS = (24, 120)
"""Minimum and maximum number of timed steps. A verdict needs 9 pairs; see ``analysis.statistics``."""

TIMED_S = 3.0
"""Minimum time of the timed steps in seconds, unless they are the maximum number."""

PROFILED_COUNTS = (20, 40)
PROFILED_S = 0.4
"""The numbers and the time of the profiled steps, of which the first one does not count."""


def is_tuned(place: int) -> bool:
    """Whether a step runs the pins: own, tuned, tuned, own, then tuned, own, own, tuned, and so on (Thue-Morse).

    Drifts cancel, and so does what the program does in every second, fourth or eighth step only.
    """
    return place.bit_count() % 2 == 1


def count_steps(step_s: float, proof_s: float | None = None) -> tuple[int, int]:
    """The numbers of timed and of profiled steps, by the time of a step in seconds.

    ``proof_s`` are the seconds of the timed steps, if the user asks for some.
    """
    least, most = TIMED_COUNTS
    timed = (TIMED_S, least, most) if proof_s is None else (proof_s, least, MOST_TIMED)
    return _count(step_s, *timed), _count(step_s, PROFILED_S, *PROFILED_COUNTS)


def _count(step_s: float, time_s: float, least: int, most: int) -> int:
    """The number of steps for a time, within limits, in whole fours."""
    return min(most, max(least, 4 * math.ceil(time_s / max(step_s, 1e-6) / 4)))


@dataclass(frozen=True)
class _Sample:
    tuned: bool
    begin: Moment
    end: Moment


class PinComparison(AlternatingSteps[ComparedSteps]):
    """The comparison of one process.

    Args:
        folder: the folder of the capture.
        graphs: the graphs of the process.
        pinned: its pinned kernels; their pins also say for how many seconds steps are timed.
    """

    def __init__(self, folder: Path, graphs: CalledGraphs, pinned: PinnedKernels) -> None:
        seen = make_empty_steps()
        super().__init__(folder, graphs, ComparedSteps(seen.pid, "", SETTLING, seen.rank), ".compared.json")
        self._pinned = pinned
        self._check: Any = None
        self._recording: Recording | None = None
        self._samples: list[_Sample] = []
        self._flags: list[bool] = []
        self._moment: Moment | None = None
        self._load = LoadWatch()  # of the timed steps, if a CPU runs them
        self._tuned = False

    @property
    def is_complete(self) -> bool:
        return self.found.state in (DONE, FAILED, CUDA_GRAPHS)

    def _forget(self) -> None:
        self._give_up_recording()
        self._switch_pins(False)
        self._samples, self._flags, self._moment = [], [], None
        self._load.forget()
        self.is_recording = False

    def call_graph(self, number: int, original: Callable[[Any, Any], Any], compiled: Any, inputs: Any) -> Any:
        """Calls a graph. In the step for the comparison of outputs, it compares them."""
        if self._check is None:
            with open_profiler_range(f"{GRAPH_CALL}{number}"):
                return original(compiled, inputs)
        return self._check.call(self._graphs.records[number].path, original, compiled, inputs)

    def _is_void(self, noisy: bool) -> bool:
        return noisy and self.found.state in (TIMING, PROFILING)

    def _may_settle(self) -> bool:
        if any(graph.cuda_graphs for graph in self._graphs.records):
            self._complete(CUDA_GRAPHS)
        return True

    def _make_plan(self, begin: int) -> StepPlan:
        timed, profiled = count_steps(self._step_s, self._pinned.pins.proof_s)
        if find_device(self._clock.device).runs_on_host:
            profiled = 0  # a step is what the device works
        return StepPlan(begin, begin + 1 + WARM_UP + timed, None, profiled)

    def _go_on(self, place: int, number: int, arrived_s: float, *, noisy: bool) -> None:
        assert self._plan is not None and self._plan.begin is not None and self._plan.end is not None
        profile = self._plan.end - self._plan.begin
        if place == 0:
            self._begin_check()
        elif place < profile:
            self._end_check()
            self._time(place - 1, number, arrived_s)
        else:
            self._profile(place - profile, number, arrived_s)

    # The outputs

    def _begin_check(self) -> None:

        self._check = OutputCheck(self._pinned, self._clock.device)
        self.is_recording = True
        self._write(CHECKING)

    def _end_check(self) -> None:
        if self._check is not None:
            check, self._check, self.is_recording = self._check, None, False
            dropped = (*self.found.dropped, *check.dropped)
            changes = {**self.found.changes, **check.changes}
            self.found = replace(self.found, outputs=tuple(check.found), dropped=dropped, changes=changes)
            self._write(TIMING)

    # The times

    def _time(self, place: int, number: int, arrived_s: float) -> None:
        """Ends the step before and begins the next one.

        The change of the pins between two steps belongs to neither of them.
        """
        if self._moment is not None:
            end = self._clock.read(number, arrived_s)
            self._samples.append(_Sample(self._tuned, self._moment, end))
        self._switch_pins(is_tuned(place))
        if place == WARM_UP:
            self._samples = []
            if find_device(self._clock.device).runs_on_host:
                self._load.begin(alone=False)
        self._moment = self._clock.read(number, time.perf_counter())

    # The profile

    def _profile(self, place: int, number: int, arrived_s: float) -> None:
        assert self._plan is not None
        if place == 0:
            self._samples.append(
                _Sample(self._tuned, self._moment or Moment(0, 0.0), self._clock.read(number, arrived_s))
            )
            self._moment = None
            self._switch_pins(False)
            if not self._plan.profiled:
                self._complete(DONE)
                return
            self._write(PROFILING)
        try:
            self.is_ours = True
            self._profile_step(place, number)
        except PROFILER_ERRORS as error:
            traceback.print_exc()
            self._recording, self._flags, self.is_recording = None, [], False
            self.found = replace(self.found, notes=(*self.found.notes, f"The profiler failed: {describe_error(error)}"))
            self._complete(DONE)
        finally:
            self.is_ours = False

    def _profile_step(self, place: int, number: int) -> None:
        assert self._plan is not None
        if place == 0:
            self._recording = Recording(self._path.with_suffix(".trace.json"))
            self._recording.prepare()
            return
        if place == 1 and self._recording is not None:
            self._recording.start()
            self.is_recording = True
        mark_boundary(number)
        if place <= self._plan.profiled:
            self._switch_pins(is_tuned(place - 1))
            self._flags.append(self._tuned)
            return
        recording, self._recording, self.is_recording = self._recording, None, False
        self._switch_pins(False)
        if recording is not None:
            self.found = replace(self.found, trace=recording.export(), profiled=tuple(self._flags))
        self._complete(DONE)

    def _switch_pins(self, tuned: bool) -> None:
        if tuned != self._tuned:
            self._pinned.switch_config(tuned)
            self._tuned = tuned

    # The end

    def _complete(self, state: str) -> None:
        ends = [sample.end for sample in self._samples]
        if not ends or wait_for(ends):
            steps = tuple(map(_describe, self._samples))
            self.found = replace(self.found, steps=steps)
        self._load.end(len(self._samples))
        self.found = replace(self.found, load=self._load.found)
        if state != CUDA_GRAPHS:
            self._pinned.switch_config(True)  # for their states
            save_states(self._pinned)
            self._pinned.switch_config(False)
        self._write(state)

    def give_way(self) -> None:
        """Ends the profile that is running, because the program begins one of its own."""
        self._give_up_recording()

    def _give_up_recording(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None and recording.is_running:
            self.is_ours = True
            recording.stop()
            self.is_ours = False

    def fail(self, error: BaseException) -> None:
        """Ends the comparison because of an error in the comparison itself."""
        self._switch_pins(False)
        self.found = replace(self.found, error=describe_error(error))
        self._write(FAILED)

    def finish(self, boundaries: Boundaries) -> None:
        """Ends the comparison with the program. The steps that were timed until then are kept."""
        if self._graphs.records or boundaries.source:
            self._give_up_recording()
            self._complete(self.found.state)

    def _write(self, state: str) -> None:
        self._save(replace(self.found, state=state, graphs=tuple(self._graphs.records)))


def _describe(sample: _Sample) -> ComparedStep:
    times = compute_times([sample.begin, sample.end])
    return ComparedStep(sample.tuned, times.steps_s[0])
