"""Reads torch's structured trace (``TORCH_TRACE``): compiled modules, graph breaks, recompilations, compile times.

It reads line by line, because the trace of a large model has hundreds of megabytes, and keeps a few kinds of entries.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import UnionType
from typing import Any

from ...errors import InductorBenchError
from ...records.code.compile_phases import CompilePhase, total_s
from ...records.code.source import CapturedCode
from ..module.header import read_header
from .compile_phases import CompileClock
from .frames import CompiledFrame, compiled_name, read_functions
from .stack import read_graph_break, read_source_lines

_FILES = "dedicated_log_torch_trace_*.log*"
_HEADER = re.compile(r"^[A-Z]\d{4} \d\d:\d\d:\d\d\.\d+ (?:(\d{1,18}) )?.*?\] (\{.*)$")
_RANK = re.compile(r"_rank_(\d+)_")
_HANDLES = re.compile(r"\[Provenance debug handles\] (\S+:\d+)")
_STACKS = "inductor_provenance_tracking_kernel_stack_traces"
_GUARDS = "dynamo_cpp_guards_str"
_WANTED = (
    "inductor_output_code",
    _STACKS,
    _GUARDS,
    "dynamo_graph_break_reason",
    "recompile_reasons",
    "torch_version",
    "aot_forward_graph",
    "aot_inference_graph",
    "dynamo_start",
    "chromium_event",
    '"str":',
)
_TYPES: dict[str, type | UnionType] = {
    "inductor_output_code": dict,
    "artifact": dict,
    "str": list,
    "dynamo_start": dict,
    "frame_id": int | None,
    "frame_compile_id": int | None,
    "attempt": int | None,
    "rank": int | None,
}


@dataclass(frozen=True)
class StructuredTrace:
    """The structured trace of one program.

    Attributes:
        codes: the compiled modules.
        graph_breaks: distinct graph breaks as ``file:line: reason``.
        recompiles: one ``file:line function: reason`` for each recompilation; the reason is the failed guard of the
            most recent cache entry.
        torch_version: ``None`` in traces before torch 2.12, which do not hold it.
        writers: pairs of a module's path and the id of a process that wrote it.
        compile_phases: what compilation took in the process that compiled longest, by phase.
    """

    codes: tuple[CapturedCode, ...] = ()
    graph_breaks: tuple[str, ...] = ()
    recompiles: tuple[str, ...] = ()
    torch_version: str | None = None
    writers: frozenset[tuple[str, int | None]] = frozenset()
    compile_phases: tuple[CompilePhase, ...] = ()


@dataclass(frozen=True)
class _Entry:
    head: dict[str, Any]
    payload: str

    @property
    def artifact(self) -> str | None:
        value = self.head.get("artifact")
        return value.get("name") if isinstance(value, dict) else None

    @property
    def frame(self) -> tuple[Any, Any]:
        return self.head.get("frame_id"), self.head.get("frame_compile_id")


@dataclass
class _Process:
    """The collected entries of one trace file, which one process wrote."""

    rank: int | None
    codes: list[CapturedCode] = field(default_factory=list)
    frames: list[CompiledFrame | None] = field(default_factory=list)  # one for each of ``codes``
    graph_breaks: list[str] = field(default_factory=list)
    recompiles: list[str] = field(default_factory=list)
    torch_version: str | None = None
    writers: list[tuple[str, int | None]] = field(default_factory=list)
    clock: CompileClock = field(default_factory=CompileClock)
    _strings: dict[int, str] = field(default_factory=dict)
    _frames: dict[Any, CompiledFrame] = field(default_factory=dict)
    _pending_roles: dict[tuple[Any, Any], list[str]] = field(default_factory=dict)

    def take(self, entry: _Entry) -> None:
        head = entry.head
        if "inductor_output_code" in head:
            self._take_code(entry)
        elif entry.artifact == _STACKS:
            self._take_stacks(entry)
        elif entry.artifact == "dynamo_graph_break_reason":
            self.graph_breaks.append(read_graph_break(entry.payload))
        elif entry.artifact == "recompile_reasons":
            self.recompiles.append(self._recompile(entry))
        elif entry.artifact == "torch_version":
            version = _json(entry.payload)
            self.torch_version = _text(version.get("pytorch_version")) or None if isinstance(version, dict) else None
        elif "aot_forward_graph" in head:
            self._pending_roles[entry.frame] = ["forward", "backward"]
        elif "aot_inference_graph" in head:
            self._pending_roles[entry.frame] = ["inference"]
        elif "str" in head:
            match head["str"]:
                case [str(text), int(number)]:
                    self._strings[number] = text
        elif "chromium_event" in head:
            self.clock.take(_json(entry.payload))
        elif "dynamo_start" in head:
            self._take_frame(entry)
        elif _GUARDS in head and (frame := self._frames.get(entry.frame[0])):
            frame.take_guards(entry.payload)

    def _take_code(self, entry: _Entry) -> None:
        about, (frame_id, frame_compile_id) = entry.head["inductor_output_code"], entry.frame
        pending = self._pending_roles.get(entry.frame, [])
        expected = pending.pop(0) if pending else "unknown"
        said = read_header(entry.payload).role
        code = CapturedCode(
            # A module that could not be written has no path.
            path=_text(about.get("file_path")) or _text(about.get("filename")),
            text=entry.payload,
            frame_id=frame_id,
            frame_compile_id=frame_compile_id,
            attempt=entry.head.get("attempt"),
            rank=entry.head.get("rank", self.rank),
            role=expected if said == "unknown" else said,
        )
        self.codes.append(code)
        self.frames.append(self._frames.get(frame_id))
        self.writers.append((code.path, entry.head["pid"]))

    def _take_stacks(self, entry: _Entry) -> None:
        stacks = _json(entry.payload)
        if not isinstance(stacks, dict) or not stacks:
            return
        # Forward and backward share a frame: the entry belongs to the latest module with these handles.
        for place in reversed(range(len(self.codes))):
            code = self.codes[place]
            if (code.frame_id, code.frame_compile_id) != entry.frame or code.stack_traces:
                continue
            handles = set(_HANDLES.findall(code.text))
            found = {
                key: read_source_lines(_text(line) for line in value)
                for key, value in stacks.items()
                if key in handles and isinstance(value, list)
            }
            if found:
                self.codes[place] = replace(code, stack_traces=found)
                return

    def _take_frame(self, entry: _Entry) -> None:
        match entry.head["dynamo_start"].get("stack"):
            case [*_, {"filename": int(number), **frame}]:
                file = self._strings.get(number, "?")
                self._frames[entry.frame[0]] = CompiledFrame(file, frame.get("line"), str(frame.get("name")))

    def _recompile(self, entry: _Entry) -> str:
        reasons = _json(entry.payload)
        text = reasons[0] if isinstance(reasons, list) and reasons else entry.payload
        reason = re.sub(r"\s{2,}", "  ", str(text).strip().partition("\n")[0])
        frame = self._frames.get(entry.frame[0])
        return f"{frame.file}:{frame.line} {frame.name}: {reason}" if frame else reason


def read_structured_trace(folder: Path) -> StructuredTrace:
    """Reads all files of a ``TORCH_TRACE`` folder: one file for each process.

    Of a file that is cut short the whole entries count.

    Raises:
        InductorBenchError: the folder is missing, holds no trace, or cannot be read.
    """
    processes = [_read_process(file) for file in _trace_files(folder)]
    functions_of = functools.cache(read_functions)
    codes = [
        replace(code, compiled_name=compiled_name(frame, functions_of)) if frame else code
        for process in processes
        for code, frame in zip(process.codes, process.frames, strict=True)
    ]
    keys = {(code.path, code.text, code.frame_id, code.frame_compile_id, code.rank): code for code in codes}
    phases = [process.clock.phases() for process in processes]
    versions = [process.torch_version for process in processes if process.torch_version]
    return StructuredTrace(
        codes=tuple(keys.values()),
        graph_breaks=tuple(dict.fromkeys(text for process in processes for text in process.graph_breaks)),
        recompiles=tuple(text for process in processes for text in process.recompiles),
        torch_version=versions[0] if versions else None,
        writers=frozenset(writer for process in processes for writer in process.writers),
        compile_phases=max(phases, key=total_s, default=()),
    )


def _trace_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise InductorBenchError(f"{folder} is not a folder", "give the folder that TORCH_TRACE named")
    files = sorted(folder.glob(_FILES))
    if not files:
        raise InductorBenchError(
            f"{folder} holds no structured trace (dedicated_log_torch_trace_*.log)",
            "run the program with TORCH_TRACE set to a folder; a program that compiles nothing writes none",
        )
    return sorted(files, key=_first_line)


def _first_line(file: Path) -> tuple[int, str]:
    # Sort key: processes without a rank first, by their start; then ranks in order.
    rank = _RANK.search(file.name)
    return (int(rank.group(1)) if rank else -1, next(_lines(file), "")[:21])


def _read_process(file: Path) -> _Process:
    rank = _RANK.search(file.name)
    process = _Process(int(rank.group(1)) if rank else None)
    for entry in _entries(file):
        process.take(entry)
    return process


def _entries(file: Path) -> Iterator[_Entry]:
    head: dict[str, Any] | None = None
    payload: list[str] = []
    for line in _lines(file):
        if line.startswith("\t"):
            if head is not None:
                payload.append(line[1:])
            continue
        if head is not None:
            yield _Entry(head, "".join(payload).removesuffix("\n"))
        head, payload = _parse_header(line), []
    if head is not None and _is_whole(last := _Entry(head, "".join(payload).removesuffix("\n"))):
        yield last


def _is_whole(entry: _Entry) -> bool:
    # A process that was killed leaves its last entry unfinished.
    expected = entry.head.get("has_payload")
    digest = hashlib.md5(entry.payload.encode(), usedforsecurity=False).hexdigest()
    return expected is None or expected == digest


def _parse_header(line: str) -> dict[str, Any] | None:
    if not any(name in line for name in _WANTED):
        return None
    match = _HEADER.match(line)
    parsed = _json(match.group(2)) if match else None
    if match is None or not isinstance(parsed, dict):
        return None
    # A value of another type than torch's is dropped.
    known = {key: value for key, value in parsed.items() if isinstance(value, _TYPES.get(key, object))}
    return known | {"pid": int(match.group(1)) if match.group(1) else None}


def _lines(file: Path) -> Iterator[str]:
    opener = gzip.open if file.suffix == ".gz" else open
    try:
        with opener(file, "rt", encoding="utf-8", errors="replace", newline="\n") as stream:
            yield from stream
    except (EOFError, zlib.error, gzip.BadGzipFile):  # damaged from here on
        return
    except OSError as error:
        raise InductorBenchError(f"{file} cannot be read: {error}") from None


def _text(value: object) -> str:
    """The text without NULs and lone surrogates; an empty text for a value of another type."""
    return value.replace("\0", "").encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
