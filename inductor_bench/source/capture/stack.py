"""Finds the lines of the user's program in stack traces and messages of the structured trace."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...records.code.source import SourceLine

_FRAME = re.compile(
    r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9}), in (?P<function>.+)$\n?(?P<code>.*)', re.MULTILINE
)
_TORCH = re.compile(r"(?:^|/)(?:site|dist)-packages/torch/|(?:^|/)torch/(?:_dynamo|_inductor|_functorch|nn|autograd)/")
_MARKERS = re.compile(r"^[\s^~]*$")
_BREAK_AT = re.compile(r"^Graph break in user code at (.+):(\d+)$", re.MULTILINE)
_BREAK_REASON = re.compile(
    r"^Graph Break Reason: (.*?)(?=^(?:User code traceback:|Traceback )|\Z)", re.MULTILINE | re.DOTALL
)
_ATTEMPT = re.compile(r"^Encountered graph break when attempting to trace [^\n]*\n*")
_EXPLANATION = re.compile(r"^\s*Explanation: (.+)$", re.MULTILINE)


def read_source_line(stack: str) -> SourceLine | None:
    """The innermost frame of a formatted stack outside torch; the last frame where all frames are torch's."""
    frames = [_source_line(match) for match in _FRAME.finditer(stack)]
    if not frames:
        return None
    return next((frame for frame in reversed(frames) if not _TORCH.search(frame.file)), frames[-1])


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
    body = _ATTEMPT.sub("", reason.strip()).strip()
    first = body.partition("\n")[0].strip()
    explanation = _EXPLANATION.search(body)
    return f"{first}: {explanation.group(1).strip()}" if explanation else first


def _source_line(match: re.Match[str]) -> SourceLine:
    code = match.group("code")
    shown = "" if _MARKERS.match(code) or _FRAME.match(code) else code.strip()
    return SourceLine(match.group("file"), int(match.group("line")), match.group("function").strip(), shown)
