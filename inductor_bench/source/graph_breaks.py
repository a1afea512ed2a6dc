"""Reads what Dynamo says of the user's program: lines in stack traces, graph breaks, and functions that it skips."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..literals import mask_literals
from ..records.code import SourceLine

# Finds the lines of the user's program in stack traces and messages of the structured trace.


_FRAME = re.compile(
    r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9}), in (?P<function>.+)$\n?(?P<code>.*)', re.MULTILINE
)
_TORCH = re.compile(r"(?:^|/)(?:site|dist)-packages/torch/|(?:^|/)torch/(?:_dynamo|_inductor|_functorch|nn|autograd)/")
_MARKERS = re.compile(r"^[\s^~]*$")
_BREAK_AT = re.compile(r"^Graph break in user code at (.+):(\d+)$", re.MULTILINE)
_BREAK_REASON = re.compile(
    r"^Graph Break Reason: (.*?)(?=^(?:User code traceback:|Traceback )|\Z)", re.MULTILINE | re.DOTALL
)
_ATTEMPT = re.compile(
    r"^(?:Encountered graph break when attempting to trace|Failed to handle graph break gracefully)[^\n]*\n*"
)
_EXPLANATION = re.compile(r"^\s*Explanation: (.+)$", re.MULTILINE)


def read_source_line(stack: str) -> SourceLine | None:
    """The innermost frame of a formatted stack outside torch; the last frame if all frames are torch's."""
    frames = [_source_line(match) for match in _FRAME.finditer(stack)]
    if not frames:
        return None
    return next((frame for frame in reversed(frames) if not _TORCH.search(frame.file)), frames[-1])


def text_of(value: object) -> str:
    """The text without NULs and lone surrogates; an empty text for a value of another type."""
    return value.replace("\0", "").encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def is_of_torch(place: str) -> bool:
    """Whether a file, or a line of it, belongs to torch."""
    return _TORCH.search(place) is not None


def read_source_lines(stacks: Iterable[str]) -> tuple[SourceLine, ...]:
    """The distinct lines of several stacks, in order."""
    lines = (read_source_line(stack) for stack in stacks)
    return tuple(dict.fromkeys(line for line in lines if line is not None))


def read_graph_break(text: str) -> str:
    """Dynamo's message on a graph break as one line, ``file:line: reason``."""
    place, reason = _BREAK_AT.search(text), _BREAK_REASON.search(text)
    user_part = text.partition("\nTraceback (most recent call last)")[0]
    frame = read_source_line(user_part)
    where = f"{place.group(1)}:{place.group(2)}" if place else f"{frame.file}:{frame.line}" if frame else ""
    said = _headline(reason.group(1)) if reason else text.strip().partition("\n")[0]
    return f"{where}: {said}" if where else said


def _headline(reason: str) -> str:
    first, explanation = _kind_of_break(reason)
    return f"{first}: {explanation}" if explanation else first


def _kind_of_break(reason: str) -> tuple[str, str]:
    """The first line of a reason, and its explanation, if it has one."""
    body = _ATTEMPT.sub("", reason.strip()).strip()
    explanation = _EXPLANATION.search(body)
    return body.partition("\n")[0].strip(), explanation.group(1).strip() if explanation else ""


# Reads which functions Dynamo tried to compile and left uncompiled, from its metrics of each compilation.


_IN_LOOP = re.compile(r"graph break in loop|graph break in a for/while loop")
_BREAKS = ("Unsupported", "UserError", "SkipFrame")
"""Dynamo's exceptions for code that it does not compile. Others are errors, which a program may have suppressed."""

_LONGEST_EXPLANATION = 110
"""Characters of an explanation that is shown in place of the kind of the graph break."""


@dataclass(frozen=True)
class SkippedFrame:
    """A function that Dynamo tried to compile, and that runs uncompiled."""

    name: str  # its bare name
    place: str  # ``file:line`` of its first line
    cause: str = ""  # ``file:line`` of the construct that Dynamo does not compile; empty if it names none
    reason: str = ""  # what Dynamo says of the construct, in one line; empty if it says nothing
    in_loop: bool = False  # whether it says that the construct stands in a loop


def read_skipped_frame(metrics: Mapping[str, object], graph_break: str = "") -> SkippedFrame | None:
    """The frame of Dynamo's metrics of one compilation; ``None`` if a graph was made. (2.13; 2.9 read only)

    Args:
        metrics: the entry ``compilation_metrics``.
        graph_break: the message on the last graph break in this frame.
    """
    match metrics:
        case {"co_name": str(name), "co_filename": str(file), "co_firstlineno": int(line)} if (
            metrics.get("graph_op_count") is None
        ):
            found = SkippedFrame(text_of(name), f"{text_of(file)}:{line}")
        case _:
            return None
    kind, said = metrics.get("fail_type"), metrics.get("fail_reason")
    cause = ""
    match metrics:
        case {"fail_user_frame_filename": str(file), "fail_user_frame_lineno": int(line)}:
            cause = f"{text_of(file)}:{line}"
    if not text_of(said):
        cause, said = _said_of_break(graph_break)
    first, explanation = _kind_of_break(text_of(said))
    if text_of(kind) and kind not in _BREAKS:
        first, explanation = f"{text_of(kind)}: {first}", ""
    vague = "`" not in first and 0 < len(explanation) <= _LONGEST_EXPLANATION
    reason = explanation.rstrip(".") if vague else first.rstrip(".")
    return replace(found, cause=cause, reason=reason, in_loop=bool(_IN_LOOP.search(text_of(said))))


def _said_of_break(text: str) -> tuple[str, str]:
    """The place and the reason in Dynamo's message on a graph break; both are empty without a message."""
    place, reason = _BREAK_AT.search(text), _BREAK_REASON.search(text)
    return f"{place.group(1)}:{place.group(2)}" if place else "", reason.group(1) if reason else ""


def _source_line(match: re.Match[str]) -> SourceLine:
    code = match.group("code")
    shown = "" if _MARKERS.match(code) or _FRAME.match(code) else mask_literals(code.strip())
    return SourceLine(match.group("file"), int(match.group("line")), match.group("function").strip(), shown)
