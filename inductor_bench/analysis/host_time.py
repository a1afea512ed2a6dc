"""Finds, by function and line, what the host does while the device waits. Pure functions of samples and traces.

A profile tells kinds: it names operators, calls of the runtime, guards. Samples tell functions and lines. A stack is
read from its innermost frame: the first frame of a library that does something known decides, as ``threading.py`` does
for a lock. If only the user's frames and neutral ones are there, the profile says what the line runs.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..records.code import FIRST_LINE, RESUMED, SourceLine
from ..records.evidence import (
    GENERATED,
    LIBRARY,
    OWN,
    TORCH,
    CallPlace,
    HostSamples,
    HostTrace,
    HostTraceFrame,
    HostTraceFrames,
    HostTraceProfile,
    SampledFrame,
    SampledStack,
)
from ..records.retune import Ratio
from ..records.run import (
    ALLOCATING,
    BACKWARD,
    COLLECTING,
    CPU_OPERATORS,
    DATA_LOADING,
    DISPATCHING,
    FOR_FILE,
    FOR_LOCK,
    FOR_PROCESS,
    FOR_RANKS,
    FOR_SOCKET,
    GUARDS,
    LAUNCHING,
    OPTIMIZING,
    PYTHON,
    QUEUED,
    SLEEPING,
    SYNCHRONISING,
    HostStretch,
    Part,
)
from ..records.traced import HostActivity
from ..trace.program_works import ProgramWorks
from .statistics import CONFIDENCE, compute_paired_ratio

LOADERS = re.compile(
    r"/torch/utils/data/|/site-packages/(?:PIL|datasets|webdataset|tokenizers|torchdata|decord|av|cv2|soundfile|ffcv"
    r"|torchvision/(?:io|transforms|datasets)|torchaudio)/|/transformers/tokenization_|/imageio/"
)
"""Files of libraries that load data: everything that they call counts as loading."""

_COMPREHENSION = re.compile(r"(?:\.<locals>\.<(?:genexpr|\w+comp)>)+$")
WORKERS = re.compile(r"_(?:try_)?get_data|_next_data")
RULES = tuple(
    (re.compile(f".*(?:{file}):(?:.*\\.)?(?:{function})"), label)
    for file, function, label in (
        (r"/threading\.py", "wait|acquire|join|__enter__|_wait_for_tstate_lock", FOR_LOCK),
        (r"/queue\.py|/multiprocessing/(?:queues|synchronize)\.py", "get|put|acquire|wait|__enter__", FOR_LOCK),
        (r"/concurrent/futures/\w+\.py", "result|wait|as_completed", FOR_LOCK),
        (r"/subprocess\.py|/multiprocessing/(?:connection|popen_\w+|process)\.py", r"\w+", FOR_PROCESS),
        (r"/(?:socket|ssl|selectors)\.py|/http/client\.py|/asyncio/\w+\.py", r"\w+", FOR_SOCKET),
        (r"/(?:pathlib|shutil|tempfile|gzip|zipfile|tarfile)\.py|/torch/serialization\.py", r"\w+", FOR_FILE),
        (r"/torch/distributed/distributed_c10d\.py", r"barrier|monitored_barrier|\w*_object\w*|wait", FOR_RANKS),
        (r"/torch/(?:cuda|xpu)/\w+\.py", "synchronize|wait|wait_event|wait_stream", SYNCHRONISING),
        (r"/torch/(?:cuda|xpu)/memory\.py", "empty_cache|memory_snapshot|_?set_allocator_settings", ALLOCATING),
        (r"/torch/optim/(?!lr_scheduler)\w+\.py|/torch/amp/grad_scaler\.py", r"\w+", OPTIMIZING),
        (r"/torch/_dynamo/\w+\.py", r"\w+", GUARDS),
        (r"/torch/(?:_inductor|_functorch)/.*|/triton/.*", r"\w+", LAUNCHING),
        (r"/torch/autograd/graph\.py|/torch/autograd/function\.py", r"_engine_run_backward|apply|backward", BACKWARD),
        (r"/torch/_tensor\.py|/torch/autograd/__init__\.py", "backward|_make_grads|_tensor_or_\\w+", BACKWARD),
    )
)
"""What a frame of a library does, by its file and function."""

CALLS = tuple(
    (re.compile(called), label)
    for called, label in (
        (r"(?:.*\.)?sleep", SLEEPING),
        (r".*\.(?:acquire|__enter__)", FOR_LOCK),
        (r"(?:.*\.)?(?:open|fsync|fromfile|memmap)|.*\.(?:read|readline|readlines|write|flush)", FOR_FILE),
        (r".*\.(?:recv|recv_into|recvfrom|send|sendall|accept|connect)", FOR_SOCKET),
        (r".*\.synchronize", SYNCHRONISING),
        (r".*\.empty_cache", ALLOCATING),
    )
)
"""What a call of a function that is not written in Python does, by the function's name in the user's line."""


WAITS = frozenset({FOR_LOCK, FOR_PROCESS, FOR_SOCKET})
OPERATORS = frozenset({DISPATCHING, CPU_OPERATORS})
"""What the host does at a line that calls operators."""

_OF_TORCH = re.compile(
    r"(?:torch|F|nn)\.[\w.]+|.*\.(?:to|cuda|view|reshape|contiguous|detach|(?:add|mul|sub|div|zero|copy|fill)_|bfloat16)"
)
"""A call of a function of torch, or of a method that only tensors have, as programs write it."""

_MODULES = re.compile(
    r".*/torch/nn/modules/module\.py:(?:.*\.)?(?:zero_grad|train|eval|_named_members"
    r"|(?:named_)?(?:modules|children|parameters|buffers))"
)
"""Methods of modules that only walk through their submodules."""

_OPTIMIZERS = re.compile(r".*/torch/optim/optimizer\.py:(?:.*\.)?(?:wrapper|_use_grad|step)")
"""The frame around the step of any optimizer."""


@dataclass(frozen=True)
class LineKinds:
    """What lines that run operators do: for each file and line, the seconds per step of each kind, from the profile."""

    times: Mapping[tuple[str, int], Mapping[str, float]]

    def seconds(self, file: str, line: int) -> float:
        """Returns the seconds that a line's operators take in a profiled step; 0 if the line runs no operators."""
        return sum(self.times.get((file, line), {}).values())

    def most(self, frame: SampledFrame) -> str:
        """Returns what a line mostly does; empty if it runs no operator."""
        first, last = (frame.span[0], frame.span[1]) if len(frame.span) == 4 else (frame.line, frame.line)
        for line in dict.fromkeys((frame.line, *range(first, last + 1))):
            kinds = self.times.get((frame.file, line))
            if kinds:
                return max(kinds, key=lambda kind: kinds[kind])
        return ""


def find_kinds_of_lines(
    activities: Iterable[HostActivity], places: Mapping[int, CallPlace], steps: int = 1
) -> LineKinds:
    """What the host did at each line, from the profiled steps.

    Args:
        activities: what the host did.
        places: the places of outermost operators, by their index.
        steps: the number of these steps.
    """
    times: dict[tuple[str, int], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for one in activities:
        source = places[one.op].source if one.op in places else None
        if source is not None and one.label != PYTHON:
            times[source.file, source.line][one.label] += (one.end_s - one.start_s) / steps
    return LineKinds(times)


class StackReader:
    """Reads the stacks of samples."""

    def __init__(self, samples: HostSamples, lines: LineKinds, graphs: Mapping[str, str]) -> None:
        self._samples, self._lines, self._graphs = samples, lines, graphs

    def frames(self, stack: SampledStack) -> Iterator[SampledFrame]:
        """The frames of a stack, the innermost first."""
        node = stack.node
        while node >= 0:
            yield self._samples.frames[self._samples.frame_of[node]]
            node = self._samples.parents[node]

    def is_optimizer_operator(self, stack: SampledStack) -> bool:
        """Whether an operator of an optimizer's step runs."""
        frames = list(self.frames(stack))
        return frames[0].owner == TORCH and frames[0].is_call and self._label(frames) == OPTIMIZING

    def calls_other_code(self, stack: SampledStack) -> bool:
        """Whether a line of the program calls code that is not Python, and perhaps not an operator."""
        innermost = next(self.frames(stack))
        return innermost.owner in (OWN, LIBRARY) and innermost.is_call and not _OF_TORCH.fullmatch(innermost.called)

    def read(self, stack: SampledStack) -> tuple[str, str, SourceLine | None]:
        """What the host did, the function, and the user's line."""
        frames = list(self.frames(stack))
        label = COLLECTING if stack.is_collection else self._label(frames)
        return label, self._function(frames, label), _find_users_line(frames)

    def _label(self, frames: Sequence[SampledFrame]) -> str:
        if any(LOADERS.search(frame.file) for frame in frames):
            return DATA_LOADING
        for frame in frames:
            if frame.owner in (OWN, LIBRARY):
                label = self._label_of_line(frame, frames[0])
                steps = label in (PYTHON, DISPATCHING) and any(map(_is_of_optimizer, frames))
                return OPTIMIZING if steps else label
            if frame.owner == GENERATED and frame.file in self._graphs:
                return LAUNCHING
            if rule := _find_rule(frame):
                return rule
        return PYTHON

    def _label_of_line(self, frame: SampledFrame, innermost: SampledFrame) -> str:
        if FIRST_LINE.match(frame.code):  # no instruction of the program runs: Dynamo enters compiled code
            return LAUNCHING if frame.is_call or frame is not innermost else GUARDS
        called = frame.called if frame is innermost else ""
        said = next((label for pattern, label in CALLS if called and pattern.fullmatch(called)), "")
        known = said or self._lines.most(frame)
        if known:
            return known
        # Torch's own Python code is about to call an operator. On a CPU this does not count as the operator.
        in_torch = innermost.owner == TORCH and (innermost.is_call or self._samples.sees_device)
        in_torch = in_torch and (_OF_TORCH.fullmatch(innermost.called) is not None or not _walks_modules(innermost))
        return DISPATCHING if in_torch or _OF_TORCH.fullmatch(called) else PYTHON

    def _function(self, frames: Sequence[SampledFrame], label: str) -> str:
        innermost = frames[0]
        if label == LAUNCHING:
            graph = next((self._graphs[one.file] for one in frames if one.file in self._graphs), "")
            return graph or "entering a graph"
        if label == OPTIMIZING:
            steps = (one.function for one in frames if one.owner == TORCH and "/optim/" in one.file)
            return next(
                (name for name in steps if name.rpartition(".")[2] == "step"), _remove_decoration(innermost.function)
            )
        if label == DATA_LOADING and any(WORKERS.search(one.function) for one in frames if one.owner == TORCH):
            own = next((one for one in frames if one.owner == OWN), None)
            inside = own is not None and any(LOADERS.search(one.file) for one in frames[frames.index(own) :])
            if not inside or own is None:
                return "DataLoader workers" if _find_rule(innermost) in WAITS else innermost.function
        if label == BACKWARD:
            return "backward"
        if label == GUARDS:
            own = next((one for one in frames if one.owner in (OWN, LIBRARY)), None)
            entered = own is not None and FIRST_LINE.match(own.code)
            return f"guards of {_remove_decoration(own.function)}" if own is not None and entered else "guards"
        return innermost.called if innermost.is_call and innermost.called else _remove_decoration(innermost.function)


def _find_rule(frame: SampledFrame) -> str:
    """Returns what a frame of a library does; empty if it is unknown."""
    place = f"{frame.file}:{frame.function}"
    return next((label for pattern, label in RULES if pattern.fullmatch(place)), "")


def _walks_modules(frame: SampledFrame) -> bool:
    return _MODULES.fullmatch(f"{frame.file}:{frame.function}") is not None


def _is_of_optimizer(frame: SampledFrame) -> bool:
    return frame.owner == TORCH and _OPTIMIZERS.fullmatch(f"{frame.file}:{frame.function}") is not None


def _find_users_line(frames: Sequence[SampledFrame]) -> SourceLine | None:
    """Returns the innermost line of the user's code or, if the program has no such code, of a library.

    If Dynamo enters the compiled code of a function, returns the line that calls the function, not its first line.
    """
    for owner in (OWN, LIBRARY):
        found = [frame for frame in frames if frame.owner == owner]
        for frame in (*(one for one in found if not FIRST_LINE.match(one.code)), *found):
            return SourceLine(frame.file, frame.line, _remove_decoration(frame.function), frame.code)
    return None


def _remove_decoration(function: str) -> str:
    """Removes enclosing functions from a function's name, and the prefix that Dynamo adds after a graph break.

    A comprehension and a generator expression are a part of the function around them.
    """
    name = _COMPREHENSION.sub("", function).rpartition("<locals>.")[2]
    resumed = RESUMED.search(name)
    return resumed["function"] if resumed else name


LARGEST_ERROR = 0.15
"""Samples divide the idle time if their standard error is at most this share of it. It is the error of 12 samples."""

SEVERAL = 3
"""The smallest number of collections from which their time per step is computed."""

MUCH_LONGER = 2.0
"""If a sampled call takes this many times as long as its line's operators in the profile, it is not an operator."""


def list_host_stretches(samples: HostSamples, lines: LineKinds, graphs: Mapping[str, str], step_s: float) -> HostShares:
    """What the host did while the device waited.

    Args:
        samples: what was sampled of a process.
        lines: what the profile says of lines.
        graphs: the names of the compiled graphs by their slugs.
        step_s: the time of a step.
    """
    collections = [one for one in samples.stacks if one.is_collection]
    # The callbacks of a collection write two samples, one for each end.
    counts = sum(one.waiting + one.working for one in collections) >= 2 * SEVERAL
    collected_s = sum(one.waiting_s + one.working_s for one in collections) if counts else 0.0
    sampled = [one for one in samples.stacks if not one.is_collection]
    whole_s = sum(one.waiting_s + one.working_s for one in sampled) or 1.0
    collecting = min(1.0, collected_s / samples.steps_s) if samples.steps_s else 0.0
    found: dict[tuple[str, str, SourceLine | None], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    reader = StackReader(samples, lines, graphs)
    for stack in sampled + (collections if counts and samples.steps_s else []):
        if not samples.sees_device and not stack.is_collection and reader.is_optimizer_operator(stack):
            continue
        sampled_share = (1 - collecting) * stack.waiting_s / whole_s
        share = stack.waiting_s / samples.steps_s if stack.is_collection else sampled_share
        entry = found[reader.read(stack)]
        entry[0] += step_s * share
        entry[1] += 0 if stack.is_collection else stack.waiting
        entry[2] += step_s * share * reader.calls_other_code(stack)
    stretches = [
        HostStretch(_label(key, other_s, lines), key[1], time_s, round(count), key[2])
        for key, (time_s, count, other_s) in found.items()
        if time_s
    ]
    if not samples.sees_device:  # a CPU's operators are no idle time
        stretches = [one for one in stretches if one.label not in (*OPERATORS, LAUNCHING, BACKWARD)]
    stretches.sort(key=lambda one: (-one.time_s, one.label, one.function))
    return HostShares(tuple(stretches), sum(one.waiting + one.working for one in sampled), samples.sees_device)


def find_lines_of_steps(found: ProgramWorks, places: Mapping[int, CallPlace]) -> LineKinds:
    """What the host did at each line in the profiled steps that count."""
    marks = found.window.marks
    return find_kinds_of_lines(found.timeline.between(marks[0], marks[-1]), places, len(marks) - 1)


def find_waits(
    found: ProgramWorks,
    places: Mapping[int, CallPlace],
    samples: HostSamples | None,
    lines: LineKinds,
    names: Mapping[str, str],
) -> Iterator[HostStretch]:
    """Finds where the host waited for the device.

    Operators that wait come from the profile, other calls from the samples.

    Args:
        found: the profiled steps.
        places: the places of outermost operators, by their index.
        samples: the samples of the process; ``None`` if there are none. lines: what each line does, from the profile.
        names: the names of the compiled graphs by their slugs.
    """
    window = found.window
    times: dict[SourceLine | None, float] = defaultdict(float)
    for one in found.timeline.between(window.marks[0], window.marks[-1]):
        if one.label == SYNCHRONISING:
            place, time_s = places.get(one.op), window.weigh(one.start_s) * (one.end_s - one.start_s)
            times[place.source if place is not None else None] += time_s / window.step_count
    unknown_s = times.pop(None, 0.0)
    known = [HostStretch(SYNCHRONISING, "", time_s, 0, source) for source, time_s in times.items()]
    yield from sorted(known, key=lambda one: -one.time_s)
    if unknown_s and samples is not None:
        seen = {(source.file, source.line) for source in times if source is not None}
        yield from (
            one
            for one in list_sampled_waits(samples, lines, names, unknown_s)
            if one.source is not None and (one.source.file, one.source.line) not in seen
        )


def list_sampled_waits(
    samples: HostSamples, lines: LineKinds, graphs: Mapping[str, str], whole_s: float
) -> list[HostStretch]:
    """The lines at which samples saw the host wait for the device, whether the device worked or not.

    Args:
        samples: what was sampled of a process.
        lines: what the profile says of lines.
        graphs: the names of the compiled graphs by their slugs.
        whole_s: the seconds of a step that they divide.
    """
    reader = StackReader(samples, lines, graphs)
    found: dict[tuple[str, SourceLine | None], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for stack in samples.stacks:
        label, function, source = reader.read(stack)
        if label == SYNCHRONISING:
            entry = found[function, source]
            entry[0] += stack.waiting_s + stack.working_s
            entry[1] += stack.waiting + stack.working
    every_s = math.fsum(time_s for time_s, _ in found.values()) or 1.0
    stretches = [
        HostStretch(SYNCHRONISING, function, whole_s * time_s / every_s, round(count), source)
        for (function, source), (time_s, count) in found.items()
    ]
    return sorted(stretches, key=lambda one: -one.time_s)


def _label(key: tuple[str, str, SourceLine | None], other_s: float, lines: LineKinds) -> str:
    """Labels a stretch. It is no operator if its calls take much longer than its line's operators in the profile."""
    label, _, source = key
    known_s = lines.seconds(source.file, source.line) if source is not None else 0.0
    return PYTHON if label in OPERATORS and known_s and other_s > MUCH_LONGER * known_s else label


@dataclass(frozen=True)
class HostShares:
    """How long each stretch is in a step, from samples. On a CPU only the ratios between stretches count."""

    stretches: tuple[HostStretch, ...]
    every: int  # the number of all samples
    sees_device: bool  # whether the samples know when the device waited

    @property
    def samples(self) -> int:
        """The number of samples of these stretches."""
        return sum(one.samples for one in self.stretches)

    def error(self, idle_s: float) -> float:
        """The largest standard error of a stretch, as a share of the idle time. Measured collections have none.

        Args:
            idle_s: the idle time of a step, in seconds.
        """
        collected_s = math.fsum(one.time_s for one in self.stretches if one.label == COLLECTING)
        sampled = 1 - min(1.0, collected_s / idle_s) if idle_s else 1.0
        return sampled / (2 * math.sqrt(max(1, self.samples)))

    def is_enough(self, idle_s: float) -> bool:
        """Whether there are enough samples to divide the idle time of a step, given in seconds."""
        return bool(self.stretches) and self.error(idle_s) <= LARGEST_ERROR


SEVERAL_SAMPLES = 3
"""The smallest number of samples that name a function if the profile only knows the kind of work."""

_NAMED_BY_GRAPH = frozenset({LAUNCHING, DISPATCHING, BACKWARD, GUARDS, QUEUED})


def name_idle_parts(parts: Iterable[Part], host: HostShares | None) -> list[Part]:
    """Divides idle parts among functions if the profile does not know the function and a few samples do.

    The time of a part comes from the profile, so that no number of samples says how certain it is.
    """
    found: list[Part] = []
    for part in parts:
        alike = [one for one in host.stretches if one.label == part.label and one.source] if host is not None else []
        seen_s = math.fsum(one.time_s for one in alike)
        known = part.source is not None or part.label in _NAMED_BY_GRAPH
        if known or sum(one.samples for one in alike) < SEVERAL_SAMPLES or not seen_s:
            found.append(part)
            continue
        times = ((one, part.time_s * one.time_s / seen_s) for one in alike)
        found += [replace(part, time_s=time_s, source=one.source, function=one.function) for one, time_s in times]
    return found


def compute_sampling_cost(blocks: Sequence[Sequence[float]]) -> Ratio:
    """Computes how much longer sampled steps are than the steps around them: the median over blocks, and its interval.

    Args:
        blocks: the times of the steps of each block in order; every second one, from the second on, was sampled.
    """
    medians = [statistics.median(block) if block else None for block in blocks]
    times, others = [], []
    for number in range(1, len(medians), 2):
        own = medians[number]
        beside = [one for one in (medians[number - 1], *medians[number + 1 : number + 2]) if one is not None]
        if own is not None and beside:
            times.append(own)
            others.append(statistics.fmean(beside))
    return compute_paired_ratio(times, others, CONFIDENCE) if times else Ratio(1.0, 1.0, 1.0, 0)


def make_host_trace(processes: Sequence[tuple[str, HostSamples]]) -> HostTrace | None:
    """The samples of processes for speedscope, each with its name; ``None`` if none was sampled."""
    frames: dict[HostTraceFrame, int] = {}
    profiles = []
    for name, samples in processes:
        reader = StackReader(samples, LineKinds({}), {})
        stacks = []
        for stack in samples.stacks:
            shown = [HostTraceFrame(one.function, one.file, one.line, one.owner) for one in reader.frames(stack)][::-1]
            shown += [HostTraceFrame(COLLECTING, "", 0)] if stack.is_collection else []
            stacks.append((tuple(frames.setdefault(one, len(frames)) for one in shown), stack))
        waits = "while the device waits" if samples.sees_device else "with its operators, which run on it"
        profiles.append(_profile(f"{name} {waits}", [(place, one.waiting_s) for place, one in stacks]))
        if samples.sees_device:
            working = [(place, one.working_s) for place, one in stacks]
            profiles.append(_profile(f"{name} while the device works", working))
    return HostTrace(HostTraceFrames(tuple(frames)), tuple(profiles)) if profiles else None


def _profile(name: str, stacks: Iterable[tuple[tuple[int, ...], float]]) -> HostTraceProfile:
    kept = [(place, time_s) for place, time_s in stacks if time_s > 0]
    samples, weights = tuple(place for place, _ in kept), tuple(time_s for _, time_s in kept)
    return HostTraceProfile(name, "sampled", "seconds", 0.0, sum(weights), samples, weights)
