"""What torch's structured trace says of compilations: phases, compiled functions, graph breaks, skipped functions.

Torch writes the begin and the end of each timed part of a compilation; parts are nested (torch 2.9 to 2.15). Each
moment counts for the innermost part that belongs to a phase.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..literals import mask_literals
from ..records.code import (
    AOT_AUTOGRAD,
    AUTOTUNING,
    CODE_GENERATION,
    CUDA_GRAPHS,
    DYNAMO,
    KERNELS,
    LOWERING,
    CompiledFunction,
    CompilePhase,
    SourceLine,
    is_of_torch,
)

_PHASES = {
    "dynamo": DYNAMO,
    "entire_frame_compile": DYNAMO,
    "backend_compile": AOT_AUTOGRAD,
    "entire_backward_compile": AOT_AUTOGRAD,
    "_recursive_pre_grad_passes": LOWERING,
    "_recursive_joint_graph_passes": LOWERING,
    "inductor_compile": LOWERING,
    "compile_fx.<locals>.fw_compiler_base": LOWERING,
    "compile_fx.<locals>.bw_compiler": LOWERING,
    "code_gen": CODE_GENERATION,
    "PyCodeCache.load_by_key_path": KERNELS,
    "compile_file": KERNELS,
    "async_compile.wait": KERNELS,
    "async_compile.precompile": KERNELS,
    "reload_kernel_in_parent": KERNELS,
    "benchmark_fused_nodes": AUTOTUNING,
    "pad_mm_benchmark": AUTOTUNING,
    "CachingAutotuner.benchmark_all_configs": AUTOTUNING,
    "CachingAutotuner.coordinate_descent_tuning": AUTOTUNING,
    "CachingAutotuner.combo_sequential_autotune": AUTOTUNING,
    "cudagraphify.get_container": CUDA_GRAPHS,
    "CUDAGraphNode.record": CUDA_GRAPHS,
}
"""The events that begin a phase. Every other event belongs to the phase of the event around it."""

_TEMPLATES = re.compile(r".*_template_(autotuning|precompiling)")
"""The events in which Inductor compiles and times candidates for a library call; they are named after the call."""


_LATEST_US = 1e17
"""A time of more microseconds since 1970 than this is damaged."""

_SHORTEST_US = 1.0
"""Microseconds of the shortest phase that is reported."""


Frame = tuple[Any, ...]
"""The numbers that identify a compilation of a frame; empty outside of all compilations."""


class CompileClock:
    """The timed events of one process, in their order."""

    def __init__(self) -> None:
        self._times_us: dict[tuple[Frame, str], float] = {}
        self._open: list[tuple[str, str, Frame]] = []  # the events that have begun, each with its phase and frame
        self._now_us = 0.0

    def take(self, event: Any, frame: Frame = ()) -> None:
        """Takes one event of a frame's compilation as torch writes it.

        Other events than begins and ends of timed parts are ignored.
        """
        match event:
            case {"name": str(name), "ts": int() | float() as now_us, "ph": "B" | "E" as side} if (
                0 <= now_us < _LATEST_US
            ):
                self._advance(float(now_us))
                if (
                    frame[:2] in ((), (None, None)) and self._open
                ):  # the work of another thread says nothing about its frame
                    frame = self._open[-1][2]
                if side == "B":
                    self._open.append((name, self._phase_of(name), frame))
                elif any(name == opened for opened, *_ in self._open):
                    while self._open.pop()[0] != name:  # an inner part that an exception ended without an event
                        pass

    def _advance(self, now_us: float) -> None:
        if self._open and (phase := self._open[-1][1]):
            key = self._open[-1][2], phase
            self._times_us[key] = self._times_us.get(key, 0.0) + max(0.0, now_us - self._now_us)
        self._now_us = now_us

    def _phase_of(self, name: str) -> str:
        around = self._open[-1][1] if self._open else ""
        if around == AUTOTUNING or _TEMPLATES.fullmatch(name):  # candidates are compiled in order to be timed
            return AUTOTUNING
        return _PHASES.get(name, around)

    def phases(self) -> tuple[CompilePhase, ...]:
        """Returns the phases with their seconds, the longest first."""
        return _sum_phases(self._times_us.items())

    def phases_by_frame(self) -> dict[Frame, tuple[CompilePhase, ...]]:
        """Returns the phases of each compilation of a frame, with their seconds."""
        frames = dict.fromkeys(frame for frame, _ in self._times_us)
        return {frame: _sum_phases(item for item in self._times_us.items() if item[0][0] == frame) for frame in frames}


def _sum_phases(times_us: Iterable[tuple[tuple[Frame, str], float]]) -> tuple[CompilePhase, ...]:
    sums: dict[str, float] = {}
    for (_, phase), time_us in times_us:
        sums[phase] = sums.get(phase, 0.0) + time_us
    found = (CompilePhase(phase, time_us / 1e6) for phase, time_us in sums.items() if time_us >= _SHORTEST_US)
    return tuple(sorted(found, key=lambda phase: -phase.time_s))


@dataclass(frozen=True)
class FrameCompilation:
    """One compilation of a frame: its modules, and what it took."""

    process: int  # the place of its process among those of the trace
    compiled: tuple[str, ...]  # the paths of the modules that it compiled
    cached: tuple[str, ...]  # the paths of those that it took from a cache
    phases: tuple[CompilePhase, ...]

    @property
    def modules(self) -> tuple[str, ...]:
        """Returns the paths of all modules of the compilation."""
        return (*self.compiled, *self.cached)


_LIMIT = re.compile(r"recompile[ _]limit|RecompileLimitExceeded|cache_size_limit", re.IGNORECASE)
_SIZE = re.compile(
    r"^(?:\d+/\d+: *)?tensor '(?P<name>.+?)' size mismatch at index (?P<index>\d+)\. "
    r"expected (?P<expected>\d+), actual (?P<actual>\d+)"
)
_EARLIER = re.compile(r"^\d+/(\d+): ")
_PLAIN_NAME = re.compile(r"\w{1,40}")


class ObjectName(NamedTuple):
    """What a process observed of a compiled object; see ``messages.observed.CompiledObject``."""

    name: str
    alike: int = 1
    wrapped: int = 0
    forward_of: str = ""


Sizes = dict[tuple[str, int], int]
"""A size by the tensor's name and the dimension."""


@dataclass
class FunctionLog:
    """The compilations of one function in one process."""

    function: CompiledFunction
    sizes: dict[int, Sizes] = field(default_factory=dict)  # of each compilation, where another has other sizes

    def take_reasons(self, compilation: int, payload: str) -> None:
        """Reads why a compilation was needed: the failed guard of each earlier compilation, the latest first."""
        self.function = replace(self.function, recompilations=self.function.recompilations + 1)
        for reason in _list_reasons(payload):
            size, earlier = _SIZE.search(reason), _EARLIER.match(reason)
            if size and earlier:
                key = size["name"], int(size["index"])
                self.sizes.setdefault(int(earlier[1]), {}).setdefault(key, int(size["expected"]))
                self.sizes.setdefault(compilation, {}).setdefault(key, int(size["actual"]))

    def take_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Reads the metrics of one compilation."""
        guards, said = metrics.get("guard_count"), f"{metrics.get('fail_type')} {metrics.get('fail_reason')}"
        config = metrics.get("dynamo_config")
        self.function = replace(
            self.function,
            guards=max(self.function.guards, guards if isinstance(guards, int) else 0),
            reached_limit=self.function.reached_limit or bool(_LIMIT.search(said)),
            dynamic=self.function.dynamic if self.function.dynamic is not None else _read_dynamic(config),
        )

    def size_words(self, compilation: int) -> str:
        """Returns what distinguishes a compilation from the others of this function: ``7 rows``; empty if no size
        does."""
        mine = self.sizes.get(compilation, {})
        for (name, index), size in mine.items():
            known = [one.get((name, index)) for one in self.sizes.values()]
            if len(self.sizes) > 1 and None not in known and len(set(known)) == len(known):
                return describe_size(name, index, size)
        return ""


def describe_size(name: str, index: int, size: int) -> str:
    """Returns one size in words: ``7 rows``, or ``x[1] = 16`` for another dimension than the first."""
    if index == 0:
        return "1 row" if size == 1 else f"{size} rows"
    return f"{name}[{index}] = {size}" if _PLAIN_NAME.fullmatch(name) else f"[{index}] = {size}"


def join_functions(functions: Iterable[CompiledFunction]) -> tuple[CompiledFunction, ...]:
    """Joins the functions of several processes: of those in one place, the one with the most recompilations is kept."""
    found: dict[str, CompiledFunction] = {}
    for one in functions:
        known = found.get(one.place)
        if known is None:
            found[one.place] = one
            continue
        found[one.place] = replace(
            max(known, one, key=lambda function: function.recompilations),
            guards=max(known.guards, one.guards),
            reached_limit=known.reached_limit or one.reached_limit,
        )
    return tuple(found.values())


def _list_reasons(payload: str) -> list[str]:
    try:
        said = json.loads(payload)
    except ValueError:
        return [payload]  # a single reason is no JSON
    except RecursionError:
        return []
    return [one for one in said if isinstance(one, str)] if isinstance(said, list) else []


def _read_dynamic(config: object) -> bool | None:
    """Returns the program's argument ``dynamic``, as far as Dynamo's settings show it; ``None`` for nothing.

    (torch 2.13)
    """
    if not isinstance(config, str):
        return None
    try:
        found = json.loads(config)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    if found.get("assume_static_by_default") is False:
        return True
    return False if found.get("automatic_dynamic_shapes") is False else None


# Finds the lines of the user's program in stack traces and messages of the structured trace.


_FRAME = re.compile(
    r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9}), in (?P<function>.+)$\n?(?P<code>.*)', re.MULTILINE
)
_MARKERS = re.compile(r"^[\s^~]*$")
_BREAK_AT = re.compile(r"^Graph break in user code at (.+):(\d+)$", re.MULTILINE)
_BREAK_REASON = re.compile(
    r"^Graph Break Reason: (.*?)(?=^(?:User code traceback:|Traceback )|\Z)", re.MULTILINE | re.DOTALL
)
_ATTEMPT = re.compile(
    r"^(?:Encountered graph break when attempting to trace|Failed to handle graph break gracefully)[^\n]*\n*"
)
_EXPLANATION = re.compile(r"^\s*Explanation: (.+)$", re.MULTILINE)
HINT = " Hint: "
"""The text before Dynamo's hint in a message about a graph break."""

_HINT = re.compile(r"^\s*Hint: (.+)$", re.MULTILINE)
_OF_MANY_BREAKS = re.compile(
    r"Your code may result in an error|Dynamo has detected that|This is likely to be a Dynamo bug"
    r"|This graph break |It may be possible to write Dynamo tracing rules"
)
"""The beginnings of Dynamo's hints for whole classes of graph breaks. Such hints do not say what to change."""


def read_source_line(stack: str) -> SourceLine | None:
    """Returns the innermost frame outside torch in a formatted stack; the last frame if all frames are torch's."""
    frames = [_read_source_line(match) for match in _FRAME.finditer(stack)]
    if not frames:
        return None
    return next((frame for frame in reversed(frames) if not is_of_torch(frame.file)), frames[-1])


def read_text_value(value: object) -> str:
    """Returns the text without NULs and lone surrogates; an empty text for a value of another type."""
    return value.replace("\0", "").encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def read_source_lines(stacks: Iterable[str]) -> tuple[SourceLine, ...]:
    """The distinct lines of several stacks, in order."""
    lines = (read_source_line(stack) for stack in stacks)
    return tuple(dict.fromkeys(line for line in lines if line is not None))


def read_graph_break(text: str) -> str:
    """Returns Dynamo's message about a graph break as one line, ``file:line: reason``, and its first hint that says
    what to do."""
    place, reason = _BREAK_AT.search(text), _BREAK_REASON.search(text)
    user_part = text.partition("\nTraceback (most recent call last)")[0]
    frame = read_source_line(user_part)
    where = f"{place.group(1)}:{place.group(2)}" if place else f"{frame.file}:{frame.line}" if frame else ""
    said = _shorten_reason(reason.group(1)) + _hint(reason.group(1)) if reason else text.strip().partition("\n")[0]
    return f"{where}: {said}" if where else said


def _shorten_reason(reason: str) -> str:
    first, explanation = _find_kind_of_break(reason)
    return f"{first}: {explanation}" if explanation else first


def _hint(reason: str) -> str:
    hints = (match.group(1).strip() for match in _HINT.finditer(reason))
    return next((HINT + hint for hint in hints if not _OF_MANY_BREAKS.match(hint)), "")


def _find_kind_of_break(reason: str) -> tuple[str, str]:
    """Returns the first line of a reason, and its explanation, if that says more."""
    body = _ATTEMPT.sub("", reason.strip()).strip()
    first, found = body.partition("\n")[0].strip(), _EXPLANATION.search(body)
    explanation = found.group(1).strip() if found else ""
    return first, explanation if _list_stems(explanation) - _list_stems(first) - {"are", "is"} else ""


def _list_stems(text: str) -> set[str]:
    return {word.rstrip(".s") for word in text.lower().split()}


# Reads which functions Dynamo tried to compile and left uncompiled, from its metrics of each compilation.


_IN_LOOP = re.compile(r"graph break in loop|graph break in a for/while loop")
_BREAKS = ("Unsupported", "UserError", "SkipFrame")
"""Dynamo's exceptions for code that it does not compile. Others are errors, which a program may have suppressed."""

_LONGEST_EXPLANATION = 110
"""The maximum length in characters of an explanation that is shown instead of the kind of the graph break."""


@dataclass(frozen=True)
class SkippedFrame:
    """A function that Dynamo tried to compile, and that runs uncompiled."""

    name: str  # its bare name
    place: str  # ``file:line`` of its first line
    cause: str = ""  # ``file:line`` of the construct that Dynamo does not compile; empty if it names none
    reason: str = ""  # what Dynamo says of the construct, in one line; empty if it says nothing
    in_loop: bool = False  # whether it says that the construct stands in a loop


def read_skipped_frame(metrics: Mapping[str, object], graph_break: str = "") -> SkippedFrame | None:
    """Returns the skipped frame in Dynamo's metrics of one compilation; ``None`` if a graph was made.

    (torch 2.13; 2.9 read only)

    Args:
        metrics: the entry ``compilation_metrics``.
        graph_break: the message on the last graph break in this frame.
    """
    match metrics:
        case {"co_name": str(name), "co_filename": str(file), "co_firstlineno": int(line)} if (
            metrics.get("graph_op_count") is None
        ):
            found = SkippedFrame(read_text_value(name), f"{read_text_value(file)}:{line}")
        case _:
            return None
    kind, said = metrics.get("fail_type"), metrics.get("fail_reason")
    cause = ""
    match metrics:
        case {"fail_user_frame_filename": str(file), "fail_user_frame_lineno": int(line)}:
            cause = f"{read_text_value(file)}:{line}"
    if not read_text_value(said):
        cause, said = _read_explanation(graph_break)
    first, explanation = _find_kind_of_break(read_text_value(said))
    if read_text_value(kind) and kind not in _BREAKS:
        first, explanation = f"{read_text_value(kind)}: {first}", ""
    vague = "`" not in first and 0 < len(explanation) <= _LONGEST_EXPLANATION
    reason = explanation.rstrip(".") if vague else first.rstrip(".")
    return replace(found, cause=cause, reason=reason, in_loop=bool(_IN_LOOP.search(read_text_value(said))))


def _read_explanation(text: str) -> tuple[str, str]:
    """Returns the place and the reason in Dynamo's message about a graph break; both are empty without a message."""
    place, reason = _BREAK_AT.search(text), _BREAK_REASON.search(text)
    return f"{place.group(1)}:{place.group(2)}" if place else "", reason.group(1) if reason else ""


def _read_source_line(match: re.Match[str]) -> SourceLine:
    code = match.group("code")
    shown = "" if _MARKERS.match(code) or _FRAME.match(code) else mask_literals(code.strip())
    return SourceLine(match.group("file"), int(match.group("line")), match.group("function").strip(), shown)
