"""Reads sampled stacks: what the host did, in which function, at which line of the user's program.

A profile tells kinds: it names operators, calls of the runtime, guards. Samples tell functions and lines. A stack is
read from its innermost frame: the first frame of a library that does something known decides, as ``threading.py`` does
for a lock. If only the user's frames and neutral ones are there, the profile says what the line runs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...records.code import SourceLine
from ...records.evidence import GENERATED, LIBRARY, OWN, TORCH, CallPlace, HostSamples, SampledFrame, SampledStack
from ...records.program import (
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
    SLEEPING,
    SYNCHRONISING,
)
from ...records.traced import HostActivity

LOADERS = re.compile(
    r"/torch/utils/data/|/site-packages/(?:PIL|datasets|webdataset|tokenizers|torchdata|decord|av|cv2|soundfile|ffcv"
    r"|torchvision/(?:io|transforms|datasets)|torchaudio)/|/transformers/tokenization_|/imageio/"
)
"""Files of libraries that load data: whatever they call is loading."""

_COMPREHENSION = re.compile(r"(?:\.<locals>\.<(?:genexpr|\w+comp)>)+$")
_HEAD = re.compile(r"(?:async )?def |@")
_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_\d+$")
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
"""What a call does that is no Python, by its name in the user's line."""


WAITS = frozenset({FOR_LOCK, FOR_PROCESS, FOR_SOCKET})
OPERATORS = frozenset({DISPATCHING, CPU_OPERATORS})
"""What the host does at a line that calls operators."""

_OF_TORCH = re.compile(
    r"(?:torch|F|nn)\.[\w.]+|.*\.(?:to|cuda|view|reshape|contiguous|detach|(?:add|mul|sub|div|zero|copy|fill)_|bfloat16)"
)
"""A call of a function of torch, or of a method that only tensors have, as programs write it."""

_OPTIMIZERS = re.compile(r".*/torch/optim/optimizer\.py:(?:.*\.)?(?:wrapper|_use_grad|step)")
"""The frame around the step of an optimizer, whosever class that is."""


@dataclass(frozen=True)
class LineKinds:
    """What the profile says of the lines that run operators: by file and line, the seconds of a step of each kind."""

    times: Mapping[tuple[str, int], Mapping[str, float]]

    def seconds(self, file: str, line: int) -> float:
        """What a line's operators take in a profiled step; 0 if it runs none."""
        return sum(self.times.get((file, line), {}).values())

    def most(self, frame: SampledFrame) -> str:
        """What a line mostly does; empty if it runs no operator."""
        first, last = (frame.span[0], frame.span[1]) if len(frame.span) == 4 else (frame.line, frame.line)
        for line in dict.fromkeys((frame.line, *range(first, last + 1))):
            kinds = self.times.get((frame.file, line))
            if kinds:
                return max(kinds, key=lambda kind: kinds[kind])
        return ""


def kinds_of_lines(activities: Iterable[HostActivity], places: Mapping[int, CallPlace], steps: int = 1) -> LineKinds:
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
        """Whether a line of the program calls something that is no Python and may be no operator."""
        innermost = next(self.frames(stack))
        return innermost.owner in (OWN, LIBRARY) and innermost.is_call and not _OF_TORCH.fullmatch(innermost.called)

    def read(self, stack: SampledStack) -> tuple[str, str, SourceLine | None]:
        """What the host did, the function, and the user's line."""
        frames = list(self.frames(stack))
        label = COLLECTING if stack.is_collection else self._label(frames)
        return label, self._function(frames, label), _users_line(frames)

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
            if rule := _rule_of(frame):
                return rule
        return PYTHON

    def _label_of_line(self, frame: SampledFrame, innermost: SampledFrame) -> str:
        if _HEAD.match(frame.code):  # no instruction of the program is there: Dynamo enters what it compiled
            return LAUNCHING if frame.is_call or frame is not innermost else GUARDS
        called = frame.called if frame is innermost else ""
        said = next((label for pattern, label in CALLS if called and pattern.fullmatch(called)), "")
        known = said or self._lines.most(frame)
        if known:
            return known
        # Torch's own Python is on the way to an operator. On a CPU that is no operator yet.
        in_torch = innermost.owner == TORCH and (innermost.is_call or self._samples.sees_device)
        return DISPATCHING if in_torch or _OF_TORCH.fullmatch(called) else PYTHON

    def _function(self, frames: Sequence[SampledFrame], label: str) -> str:
        innermost = frames[0]
        if label == LAUNCHING:
            graph = next((self._graphs[one.file] for one in frames if one.file in self._graphs), "")
            return graph or "entering a graph"
        if label == OPTIMIZING:
            steps = (one.function for one in frames if one.owner == TORCH and "/optim/" in one.file)
            return next((name for name in steps if name.rpartition(".")[2] == "step"), _bare(innermost.function))
        if label == DATA_LOADING and any(WORKERS.search(one.function) for one in frames if one.owner == TORCH):
            own = next((one for one in frames if one.owner == OWN), None)
            inside = own is not None and any(LOADERS.search(one.file) for one in frames[frames.index(own) :])
            if not inside or own is None:
                return "DataLoader workers" if _rule_of(innermost) in WAITS else innermost.function
        if label == BACKWARD:
            return "backward"
        if label == GUARDS:
            return "guards"
        return innermost.called if innermost.is_call and innermost.called else _bare(innermost.function)


def _rule_of(frame: SampledFrame) -> str:
    """What a frame of a library does; empty if that is nothing in particular."""
    place = f"{frame.file}:{frame.function}"
    return next((label for pattern, label in RULES if pattern.fullmatch(place)), "")


def _is_of_optimizer(frame: SampledFrame) -> bool:
    return frame.owner == TORCH and _OPTIMIZERS.fullmatch(f"{frame.file}:{frame.function}") is not None


def _users_line(frames: Sequence[SampledFrame]) -> SourceLine | None:
    """The innermost line of the user's own code; of a program without such code that of the innermost library."""
    for owner in (OWN, LIBRARY):
        for frame in frames:
            if frame.owner == owner:
                return SourceLine(frame.file, frame.line, _bare(frame.function), frame.code)
    return None


def _bare(function: str) -> str:
    """A function's name without those around it, and without what Dynamo calls the rest of it after a graph break.

    A comprehension and a generator expression are a part of the function around them.
    """
    name = _COMPREHENSION.sub("", function).rpartition("<locals>.")[2]
    resumed = _RESUMED.search(name)
    return resumed["function"] if resumed else name
