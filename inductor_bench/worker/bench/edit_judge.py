"""Runs edited kernels on given memory, and judges, in another process, what they left there."""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...devices.protocol import CPU
from ...errors import InductorBenchError
from ...messages import kernel_requests as cases
from ...messages.job_requests import WorkerRequest
from ...messages.kernel_requests import (
    BufferRoles,
    CompiledResources,
    CompileKernel,
    EditCase,
    JudgeCase,
    Judged,
    PrepareCase,
    RepeatCall,
    RunCase,
)
from ...source.harness.common import Arguments, bind_arguments, mutated_items
from ..device.runtimes import find_runtime
from .arena import FILLS, Arena, find_covered_bytes, list_tensor_views, make_values, map_memory_file, nudge_last_bit
from .library_kernel import JoinedKernel
from .loaded_kernel import LoadedKernel

LIMIT_FACTOR = 2.0
"""The largest error of an edited kernel, as a multiple of the original's, both in comparison with float64."""

UNSTABLE_FACTOR = 4.0
"""The largest error without float64, as a multiple of how much the original's results change with the last bits of its
inputs."""

FLOOR_ULPS = {torch.float64: 16, torch.float32: 16}
"""The error that is never refused, as a multiple of the distance between two neighbouring numbers; 1 for narrower
types. Sums in another order differ by this much, and sums in a narrower type by hundreds of times as much."""

MOST_BYTES_ON_DEVICE = 2 << 30
"""The largest memory of a call that is compared on a GPU; larger ones are on the host."""

Find = Callable[[int], LoadedKernel]


class EditRunner:
    """Runs kernels on memory that files hold. It does not know the right results.

    Args:
        find: gives the loaded kernel with a number.
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._memory: dict[int, torch.Tensor] = {}
        self._calls: dict[int, Callable[[], Any]] = {}
        self.answers: dict[type[WorkerRequest[Any]], Callable[[Any], Any]] = {
            RunCase: self.run,
            RepeatCall: self.run_calls,
            CompileKernel: self.compile,
        }

    def compile(self, request: CompileKernel) -> CompiledResources:
        return self._find(request.number).compile()

    def run(self, request: RunCase) -> None:
        kernel = self._find(request.number)
        arena = Arena(kernel.launch)
        before = map_memory_file(request.before_path, arena.size)
        memory = self._memory.get(request.number)
        if memory is None:  # every case finds its arguments at the same addresses
            memory = self._memory[request.number] = arena.allocate(find_device_of_kernel(kernel))
        memory.copy_(before)
        run_kernel(kernel, arena, memory)
        map_memory_file(request.after_path, arena.size, new=True).copy_(memory)

    def run_calls(self, request: RepeatCall) -> None:
        kernel = self._find(request.number)
        if request.number not in self._calls:
            self._calls[request.number] = kernel.bind(kernel.make_arguments())
        kernel.prepare()
        call = self._calls[request.number]
        for _ in range(request.count):
            call()
        find_runtime(find_device_of_kernel(kernel).partition(":")[0]).synchronize()


def find_device_of_kernel(kernel: LoadedKernel) -> str:
    """The device whose memory a kernel takes."""
    return str(getattr(kernel, "device", None) or getattr(getattr(kernel, "file", None), "device", "cpu"))


def run_kernel(kernel: LoadedKernel, arena: Arena, memory: torch.Tensor, moves: int | None = None) -> None:
    """Calls a kernel once on the memory.

    If it stands for several calls, the seed ``moves`` changes what each leaves for the next one.
    """
    arguments = arena.arguments(memory)
    if moves is not None and isinstance(kernel, JoinedKernel):
        kernel.compute_moved(arguments, moves)
    else:
        kernel.compute(arguments)
    find_runtime(memory.device.type).synchronize()
    arena.copy_back(memory, arguments)


@dataclass
class _Case:
    """A prepared case: the memory before the call, and the results that the edited kernel's are compared with."""

    arena: Arena
    case: EditCase
    roles: BufferRoles
    before: torch.Tensor
    expected: torch.Tensor  # of the original
    moved: torch.Tensor  # of the original with inputs whose last bits differ
    truth: Sequence[torch.Tensor | None]  # the results in float64, if they are known


class EditJudge:
    """Prepares cases, runs originals, and judges what edited kernels computed.

    Args:
        find: gives the loaded original with a number.
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._cases: dict[int, _Case] = {}
        # the memory that the edited kernel left behind in the last case, and that of the original
        self._seen: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._repeats: dict[int, bool] = {}  # whether the original gives the same bits each time
        self._references: dict[str, Callable[..., Any]] = {}
        self.answers: dict[type[WorkerRequest[Any]], Callable[[Any], Any]] = {
            PrepareCase: self.prepare,
            JudgeCase: self.judge,
        }

    def prepare(self, request: PrepareCase) -> str:
        kernel, case, roles = self._find(request.number), request.case, request.roles
        arena, folder = Arena(kernel.launch), kernel.folder
        memory = arena.allocate("cpu")
        last = self._cases.get(request.number)
        values = make_values(kernel.launch, case, folder)
        self._fill_memory(memory, arena, values, case, roles, last)
        map_memory_file(request.before_path, arena.size, new=True).copy_(memory)
        expected = self._run(kernel, arena, memory)
        if request.number not in self._repeats:
            self._repeats[request.number] = torch.equal(expected, self._run(kernel, arena, memory))
        nudge_last_bit(values, kernel.launch, case.seed)
        nudged = memory.clone()
        self._fill_memory(nudged, arena, values, case, roles, last)
        moved = self._run(kernel, arena, nudged, case.seed)
        exact = self._find(request.exact) if request.exact is not None else None
        truth = self._truth(request.reference, exact, arena, memory, expected, roles)
        home = _choose_home(kernel, arena)
        self._cases[request.number] = _Case(
            arena, case, roles, memory.to(home), expected.to(home), moved.to(home), truth
        )
        return hashlib.sha256(memory.numpy().tobytes()).hexdigest() if arena.size < (1 << 28) else ""

    def _fill_memory(
        self,
        memory: torch.Tensor,
        arena: Arena,
        values: Sequence[torch.Tensor],
        case: EditCase,
        roles: BufferRoles,
        last: _Case | None,
    ) -> None:
        """Fills the memory: guard bands, values, and what buffers hold that are only written."""
        for guard in arena.guards(memory):
            guard.fill_(FILLS[case.fill])
        storages = arena.storages(memory)
        for storage, value in zip(storages, values, strict=True):
            storage.copy_(value)
        stale = arena.storages(last.expected.cpu()) if last and case.fill == cases.FILL_STALE else None
        for index in keep_only_results(arena.launch, roles.output_only):
            if stale is not None:
                storages[index].copy_(stale[index])
            else:
                storages[index].fill_(FILLS[case.fill])
        for index in keep_only_results(arena.launch, roles.cleared):
            storages[index].zero_()

    def _run(self, kernel: LoadedKernel, arena: Arena, before: torch.Tensor, moves: int | None = None) -> torch.Tensor:
        memory = arena.allocate(find_device_of_kernel(kernel))
        memory.copy_(before)
        run_kernel(kernel, arena, memory, moves)
        return memory.cpu()

    def _truth(
        self,
        reference: str,
        exact: LoadedKernel | None,
        arena: Arena,
        before: torch.Tensor,
        expected: torch.Tensor,
        roles: BufferRoles,
    ) -> Sequence[torch.Tensor | None]:
        """Returns the results in float64, where they agree with the original."""
        results = list_output_tensors(arena, expected, roles)
        if exact is not None:
            computed = compute_exact(exact, arena, before, roles)
            pairs = zip(computed, results, strict=True)
            return [value if agrees_up_to_rounding(value, result) else None for value, result in pairs]
        if not reference:
            return [None] * len(results)
        if reference not in self._references:
            self._references[reference] = load_reference(Path(reference))
        computed = compute_reference(self._references[reference], arena.arguments(before.clone()))
        return [
            value if value is not None and agrees_up_to_rounding(value, result) else None
            for value, result in zip(_find_nearest_computed(computed, results), results, strict=True)
        ]

    def judge(self, request: JudgeCase) -> Judged:
        prepared = self._cases[request.number]
        after = map_memory_file(request.after_path, prepared.arena.size).clone().to(prepared.expected.device)
        seen = self._seen.get(request.number)
        self._seen[request.number] = after, prepared.expected
        judged = judge_memory(prepared, after)
        if judged.reason or not request.repeats or seen is None or not self._repeats[request.number]:
            return judged
        now, before = (after, prepared.expected), seen
        ours, theirs = (self._are_same(prepared, *pair) for pair in zip(now, before, strict=True))
        if ours or not theirs:
            return judged
        words = "two calls with the same inputs give different bits, and two of the original do not"
        return replace(judged, reason=cases.REPEATED, words=words)

    def _are_same(self, prepared: _Case, one: torch.Tensor, other: torch.Tensor) -> bool:
        """Whether two memories hold the same results, bit by bit."""
        results = (list_output_tensors(prepared.arena, memory, prepared.roles) for memory in (one, other))
        return all(_have_same_bytes(*pair) for pair in zip(*results, strict=True))


def _choose_home(kernel: LoadedKernel, arena: Arena) -> str:
    """Returns the device on which a case is kept and compared: the kernel's, if that has much more memory."""
    return find_device_of_kernel(kernel) if arena.size <= MOST_BYTES_ON_DEVICE else CPU.type


def keep_only_results(launch: Mapping[str, Any], arguments: Sequence[int]) -> list[int]:
    """Returns the storages of which every tensor is an argument with one of these indices."""
    every = [*launch["arguments"], *(launch.get("keywords") or {}).values()]
    inside = {view["storage"] for place in arguments for view in list_tensor_views(every[place])}
    others = {
        view["storage"]
        for place, item in enumerate(every)
        if place not in arguments
        for view in list_tensor_views(item)
    }
    return sorted(inside - others)


# The results of a call.


def find_result_places(launch: Mapping[str, Any], roles: BufferRoles) -> list[int]:
    """The indices of the arguments that hold results."""
    return [place for place in launch.get("mutated") or () if place not in roles.scratch]


def list_output_tensors(arena: Arena, memory: torch.Tensor, roles: BufferRoles) -> list[torch.Tensor]:
    """The results of a call in the memory that it left behind."""
    launch = {**arena.launch, "mutated": find_result_places(arena.launch, roles)}
    bound = bind_arguments(arena.launch, arena.storages(memory), str(memory.device))
    every = [*bound.args, *bound.keywords.values()]
    assert len(mutated_items(launch)) == len(launch["mutated"])
    return [every[place] for place in launch["mutated"] if isinstance(every[place], torch.Tensor)]


def _have_same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(*(each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other)))


# The judgement of one call.


def judge_memory(prepared: _Case, after: torch.Tensor) -> Judged:
    """Judges the memory that an edited kernel left behind."""
    refused = _judge_outside(prepared, after)
    if refused is not None:
        return refused
    found = Judged()
    places = find_result_places(prepared.arena.launch, prepared.roles)
    tensors = [
        list_output_tensors(prepared.arena, memory, prepared.roles)
        for memory in (after, prepared.expected, prepared.moved, prepared.before)
    ]
    for number, (place, truth) in enumerate(zip(places, prepared.truth, strict=True)):
        ours, theirs, moved, before = (each[number] for each in tensors)
        judged = judge_output(ours, theirs, moved, truth)
        if judged.reason:
            only = place in prepared.roles.output_only
            return replace(_explain(judged, ours, theirs, before if only else None, prepared.case), place=place)
        if judged.error is not None and (found.error is None or judged.error > found.error):
            found = judged
    return found


def _explain(
    judged: Judged,
    ours: torch.Tensor,
    theirs: torch.Tensor,
    before: torch.Tensor | None,
    case: EditCase,
) -> Judged:
    """Returns the judgement of a refused output with a more precise reason, if there is one.

    ``before`` is what an output that is only written held before the call.
    """
    if before is not None:
        kept = int((_view_bits(ours) == _view_bits(before)).logical_and(_view_bits(theirs) != _view_bits(before)).sum())
        if kept and case.fill == cases.FILL_STALE:
            words = f"{kept} of {ours.numel()} elements still hold the results of the call before"
            return replace(judged, reason=cases.STALE, words=words)
        if kept:
            words = f"{kept} of {ours.numel()} elements are not written"
            return replace(judged, reason=cases.WRITTEN, words=words)
    return judged


def _view_bits(tensor: torch.Tensor) -> torch.Tensor:
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.contiguous().view(kinds[tensor.element_size()])


def _judge_outside(prepared: _Case, after: torch.Tensor) -> Judged | None:
    """Judges whether the kernel wrote beside its results: behind or before a buffer, or into an input."""
    arena, launch = prepared.arena, prepared.arena.launch
    for number, (now, then) in enumerate(zip(arena.guards(after), arena.guards(prepared.before), strict=True)):
        if not torch.equal(now, then):
            count = int((now != then).sum())
            sides = [f"behind {_name_owner(launch, number - 1)}"] if number else []
            sides += [f"before {_name_owner(launch, number)}"] if number < len(arena.places) else []
            return Judged(cases.OUTSIDE, f"{count} bytes {' or '.join(sides)} are overwritten: it writes out of bounds")
    covered = find_covered_bytes(launch, launch.get("mutated") or ())
    pairs = zip(arena.storages(after), arena.storages(prepared.before), covered, strict=True)
    for index, (now, then, mask) in enumerate(pairs):
        changed = int((now != then)[~mask.to(now.device)].sum())
        if changed and not bool(mask.any()):
            return Judged(
                cases.INPUTS, f"{changed} bytes of {_name_owner(launch, index)}, which is an input, are changed"
            )
        if changed:
            return Judged(
                cases.OUTSIDE, f"{changed} bytes of {_name_owner(launch, index)} beside its results are overwritten"
            )
    return None


def _name_owner(launch: Mapping[str, Any], storage: int) -> str:
    """Returns the index of the first argument that lies in a storage."""
    every = [*launch["arguments"], *(launch.get("keywords") or {}).values()]
    places = (
        place for place, item in enumerate(every) for view in list_tensor_views(item) if view["storage"] == storage
    )
    return f"argument {next(places, '?')}"


class _Distance(NamedTuple):
    """The differences of two tensors, relative to the element and the root mean square, and only to the latter."""

    largest: float
    mean: float


def compute_distance(one: torch.Tensor, other: torch.Tensor, where: torch.Tensor) -> _Distance:
    """Computes how far two tensors in float64 are apart, for the elements for which ``where`` is true."""
    one, other = one[where], other[where]
    if not other.numel():
        return _Distance(0.0, 0.0)
    difference = (one - other).abs()
    scale = other.square().mean().sqrt()
    whole = other.abs() + scale
    largest = torch.where(difference == 0, torch.zeros_like(difference), difference / whole).max()
    mean = difference.square().mean().sqrt()
    return _Distance(float(largest), float(mean / scale) if float(mean) else 0.0)


def judge_output(
    ours: torch.Tensor, theirs: torch.Tensor, moved: torch.Tensor, truth: torch.Tensor | None = None
) -> Judged:
    """Judges one result of an edited kernel.

    Args:
        ours: the result.
        theirs: that of the original.
        moved: that of the original for inputs whose last bits differ. Elements that another rounding changes
            completely, such as the place of a maximum, are not compared.
        truth: the result in float64, if it is known.
    """
    if not (ours.is_floating_point() or ours.is_complex()):
        stable = _view_bits(theirs) == _view_bits(moved)
        wrong = int((_view_bits(ours) != _view_bits(theirs)).logical_and(stable).sum())
        return Judged(cases.WRONG, f"{wrong} of {ours.numel()} elements are different") if wrong else Judged()
    limits = _find_type_limits(ours.dtype)
    wide = [_widen_tensor(each) for each in (ours, theirs, moved)]
    mine, original, other = wide
    stable = _name_kind(original) == _name_kind(other)
    # Where the original is NaN, a sum in another order may overflow to an infinity.
    lost = (_name_kind(original) == 2) & (_name_kind(mine) != 0)
    differs = (_name_kind(mine) != _name_kind(original)).logical_and(stable).logical_and(~lost)
    special = int(differs.logical_and(~_are_at_the_edge(mine, original, ours.dtype)).sum())
    if special:
        what = "NaN or infinite in elements in which the original is finite, or the other way round"
        return Judged(cases.SPECIAL, f"{special} of {ours.numel()} elements are {what}")
    finite = mine.isfinite() & original.isfinite() & other.isfinite()
    if truth is not None:
        exact = _widen_tensor(truth).to(mine.device)
        finite = finite & exact.isfinite()
        error, allowed, against = (
            compute_distance(mine, exact, finite),
            compute_distance(original, exact, finite),
            "float64",
        )
        factor, known = LIMIT_FACTOR, allowed.largest
    else:
        error, allowed, against = (
            compute_distance(mine, original, finite),
            compute_distance(other, original, finite),
            "original",
        )
        factor, known = UNSTABLE_FACTOR, None
    limit = max(factor * allowed.largest, limits.largest)
    mean_limit = max(factor * allowed.mean, limits.mean)
    judged = Judged(error=error.largest, original_error=known, limit=limit, against=against)
    if error.largest <= limit and error.mean <= mean_limit and not math.isnan(error.largest):
        return judged
    beyond = _count_beyond(mine, exact if truth is not None else original, finite, limit)
    if error.largest > limit:
        what, found, least = f"{beyond} of {ours.numel()} elements differ", error.largest, limit
    else:
        what, found, least = "the elements differ on average", error.mean, mean_limit
    compared = "float64" if truth is not None else "the original"
    words = f"{what} from {compared} by up to {found:.2g} of their size, and {least:.2g} is allowed"
    return replace(judged, reason=cases.PRECISION if found < COARSE else cases.WRONG, words=words)


COARSE = 0.02
"""The difference from which a result is called wrong, and not imprecise."""


def _count_beyond(one: torch.Tensor, other: torch.Tensor, where: torch.Tensor, limit: float) -> int:
    one, other = one[where], other[where]
    return int(((one - other).abs() > limit * (other.abs() + other.square().mean().sqrt())).sum())


def _find_type_limits(dtype: torch.dtype) -> _Distance:
    real = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}
    dtype = real.get(dtype, dtype)
    largest = FLOOR_ULPS.get(dtype, 1) * torch.finfo(dtype).eps
    return _Distance(largest, largest / 2)


def _widen_tensor(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.to(torch.float32).to(torch.float64) if tensor.element_size() == 1 else tensor.to(torch.float64)


def _name_kind(tensor: torch.Tensor) -> torch.Tensor:
    """0 for a finite number, 1 and -1 for infinities, 2 for NaN."""
    kind = tensor.isinf().to(torch.int8) * tensor.nan_to_num(0.0, 1.0, -1.0).sign().to(torch.int8)
    return torch.where(tensor.isnan(), torch.full_like(kind, 2), kind)


def _are_at_the_edge(one: torch.Tensor, other: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Where one result is infinite and the other is one of the two largest numbers of a narrow type.

    Sums in another order turn one into the other.
    """
    if dtype.itemsize != 2:
        return torch.zeros_like(one, dtype=torch.bool)
    facts = torch.finfo(dtype)
    largest = (torch.minimum(one.abs(), other.abs()) >= facts.max * (1 - facts.eps)) & (one.sign() == other.sign())
    return largest & (one.isinf() != other.isinf())


# The same in PyTorch, in float64.


def load_reference(path: Path) -> Callable[..., Any]:
    """The function ``reference`` of a file that this tool wrote.

    Raises:
        InductorBenchError: the file has no such function.
    """
    spec = importlib.util.spec_from_file_location(f"reference_{abs(hash(str(path)))}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, "reference", None)
    if not callable(function):
        raise InductorBenchError(f"{path.name} has no function named reference")
    made: Callable[..., Any] = function
    return made


def compute_reference(reference: Callable[..., Any], arguments: Arguments) -> list[torch.Tensor]:
    """The results of a reference in float64; none if it fails."""
    given = [
        each.to(torch.float64) if isinstance(each, torch.Tensor) and each.is_floating_point() else each
        for each in arguments.args
    ]
    try:
        computed = reference(*given)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, NotImplementedError):
        return []
    return [each for each in computed if isinstance(each, torch.Tensor)]


def compute_exact(kernel: LoadedKernel, arena: Arena, before: torch.Tensor, roles: BufferRoles) -> list[torch.Tensor]:
    """The results of a kernel that computes in float64, for memory with float32."""
    wide = Arena(kernel.launch)
    memory = wide.allocate("cpu")
    pairs = zip(wide.storages(memory), arena.storages(before), arena.launch["storages"], strict=True)
    for target, storage, recorded in pairs:
        is_float = recorded["dtype"] == "float32"
        target.copy_(storage.clone().view(torch.float32).to(torch.float64).view(torch.uint8) if is_float else storage)
    run_kernel(kernel, wide, memory)
    return list_output_tensors(wide, memory, roles)


def _find_nearest_computed(
    computed: Sequence[torch.Tensor], results: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """Returns for each result the nearest computed tensor with the same number of elements."""
    found: list[torch.Tensor | None] = []
    for result in results:
        near = [each.reshape(result.shape).to(result.device) for each in computed if each.numel() == result.numel()]
        nearest = min(near, key=lambda each: _compute_mean_distance(each, result), default=None)
        found.append(nearest)
    return found


def _compute_mean_distance(truth: torch.Tensor, result: torch.Tensor) -> float:
    exact, rounded = _widen_tensor(truth), _widen_tensor(result)
    return compute_distance(rounded, exact, exact.isfinite() & rounded.isfinite()).mean


def agrees_up_to_rounding(truth: torch.Tensor, result: torch.Tensor) -> bool:
    """Whether results in float64 agree with those of a kernel, apart from the rounding of the kernel."""
    if not result.is_floating_point():
        return False
    return bool(_widen_tensor(truth).isfinite().any()) and _compute_mean_distance(truth, result) < COARSE
