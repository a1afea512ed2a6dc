"""Reads torch's structured trace (``TORCH_TRACE``) and log: compiled modules, graph breaks, recompilations, phases."""

from __future__ import annotations

import ast
import functools
import gzip
import hashlib
import json
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import UnionType
from typing import Any

from ..errors import InductorBenchError
from ..records.code import RESUMED, CapturedCode, CompiledFunction, CompilePhase, is_of_torch, total_s
from .compile_log import (
    CompileClock,
    Frame,
    FrameCompilation,
    FunctionLog,
    ObjectName,
    SkippedFrame,
    join_functions,
    read_graph_break,
    read_skipped_frame,
    read_source_lines,
    read_text_value,
)
from .generated_text import parse
from .layers import LAYERS, read_layers
from .module_reader import read_header

# Names the functions that Dynamo compiled, such as ``Block.forward``.
#
# The structured trace holds the file, the line and the bare name of a compiled function. The guards of the compilation
# hold the class of its object. If no guard has it, as for an object without state, the class is found in the file.


_NAME = re.compile(r"[\w<>]{1,100}")
_OBJECT = r"source=L\['{}'\], .{{0,400}}?type=<class '(?:[^'\n]{{0,400}}\.)?(\w{{1,100}})'>"
_OBJECT_OF_METHOD = re.compile(_OBJECT.format("self"))
_OBJECT_OF_WRAPPER = re.compile(_OBJECT.format("fn"))
_WRAPPERS = "torch/_dynamo/external_utils.py"
"""Dynamo compiles a function of this file instead of an object whose own ``forward`` it does not enter."""
_PLAIN_CALLABLES = {"function", "method", "builtin_function_or_method", "partial"}
_ROLES = {"forward", "backward"}
_LARGEST_FILE_BYTES = 10 * 2**20


@dataclass
class CompiledFrame:
    """A function that Dynamo compiles."""

    file: str  # the path of its file, or a text such as ``<string>``
    line: object  # the number of its first line, which is that of its first decorator
    name: str  # its bare name. The rest of a function after a graph break is ``torch_dynamo_resume_in_NAME_at_LINE``.
    class_name: str = ""  # the class of its object; empty if no guard tells it

    @property
    def is_wrapper(self) -> bool:
        """Whether it is Dynamo's wrapper around a callable object."""
        return self.file.replace("\\", "/").endswith(_WRAPPERS)

    def take_guards(self, guards: str) -> None:
        """Finds the class of the object in the printed guards of the compilation."""
        match = (_OBJECT_OF_WRAPPER if self.is_wrapper else _OBJECT_OF_METHOD).search(guards)
        if match and match.group(1) not in _PLAIN_CALLABLES:
            self.class_name = match.group(1)


@dataclass(frozen=True)
class SourceFunction:
    """A function in a source file. ``class_name`` is empty for a function outside classes."""

    class_name: str
    name: str
    first_line: int
    last_line: int


FunctionsOf = Callable[[str], tuple[SourceFunction, ...]]


def find_compiled_class(frame: CompiledFrame, functions_of: FunctionsOf) -> str:
    """Returns the class of the object whose method, or which itself, was compiled; empty for a function outside of
    classes."""
    if frame.is_wrapper or frame.class_name:
        return frame.class_name
    resumed = RESUMED.fullmatch(frame.name)
    name = resumed["function"] if resumed else frame.name
    line = int(resumed["line"]) if resumed else frame.line
    return _find_class_in_source(functions_of(frame.file), name, line, inside=bool(resumed))


def find_compiled_name(frame: CompiledFrame, functions_of: FunctionsOf, object_name: str = "") -> str:
    """Returns ``Block.forward``, ``step``, or ``step from line 12`` for the rest of a function after a graph break.

    The name is empty if it would not identify the function: for Dynamo's wrapper around a plain function, and for a
    ``forward`` of an unknown class, which would be mistaken for the forward graph of a training step.

    Args:
        frame: the compiled function.
        functions_of: the functions of a file, given its path.
        object_name: the program's name of the object. It is the name of Dynamo's wrapper, whose class is the library's,
            and of a function that torch has put around the user's, such as ``torch.func.vmap(loss)``.
    """
    if frame.is_wrapper:
        return object_name or frame.class_name
    if object_name and not frame.class_name and is_of_torch(frame.file):
        return object_name
    resumed = RESUMED.fullmatch(frame.name)
    name = resumed["function"] if resumed else frame.name
    line = int(resumed["line"]) if resumed else frame.line
    if not _NAME.fullmatch(name):
        return ""
    class_name = find_compiled_class(frame, functions_of)
    if not class_name and name in _ROLES:
        return ""
    words = f"{class_name}.{name}" if class_name else name
    return f"{words} from line {line}" if resumed else words


def read_functions(file: str) -> tuple[SourceFunction, ...]:
    """Returns the functions of a Python file; none if it cannot be read or is not Python."""
    path = Path(file)
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_FILE_BYTES:
            return ()
        text = path.read_text(encoding="utf-8-sig", errors="replace")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the program's own source
            return tuple(_list_functions(parse(text), ""))
    except (OSError, InductorBenchError):
        return ()


def _find_class_in_source(functions: tuple[SourceFunction, ...], name: str, line: object, *, inside: bool) -> str:
    if not isinstance(line, int):
        return ""
    found = [
        function
        for function in functions
        if function.name == name
        and (function.first_line <= line <= function.last_line if inside else function.first_line == line)
    ]
    return max(found, key=lambda function: function.first_line).class_name if found else ""


def _list_functions(node: ast.AST, class_name: str) -> Iterator[SourceFunction]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
            yield SourceFunction(class_name, child.name, first, child.end_lineno or child.lineno)
            yield from _list_functions(child, "")
        else:
            yield from _list_functions(child, child.name if isinstance(child, ast.ClassDef) else class_name)


# Reads torch's structured trace (``TORCH_TRACE``): compiled modules, graph breaks, recompilations, compile times.
#
# It reads line by line, because the trace of a large model has hundreds of megabytes, and keeps a few kinds of entries.


_FILES = "dedicated_log_torch_trace_*.log*"
_HEADER = re.compile(r"^[A-Z]\d{4} \d\d:\d\d:\d\d\.\d+ (?:(\d{1,18}) )?.*?\] (\{.*)$")
_RANK = re.compile(r"_rank_(\d+)_")
_HANDLES = re.compile(r"\[Provenance debug handles\] (\S+:\d+)")
_STACKS = "inductor_provenance_tracking_kernel_stack_traces"
_NODES = "inductor_provenance_tracking_node_mappings"
_CACHE_HIT = "fx_graph_cache_hit"
_GUARDS = "dynamo_cpp_guards_str"
_WANTED = (
    "inductor_output_code",
    _STACKS,
    _NODES,
    _GUARDS,
    "dynamo_graph_break_reason",
    "recompile_reasons",
    "torch_version",
    "aot_forward_graph",
    "aot_inference_graph",
    "dynamo_start",
    "compilation_metrics",
    "chromium_event",
    _CACHE_HIT,
    '"str":',
)
OTHER_OBJECT = "{now} is another object than {before}, and has its own graph"
"""The reason of a recompilation that is the first compilation of another object."""

Compilation = tuple[int | None, Any, Any]
"""The id of a process, and Dynamo's numbers of a frame and of its compilation."""

_EARLIER_ENTRY = re.compile(r"\d+/(\d+): ")
_TYPES: dict[str, type | UnionType] = {
    "inductor_output_code": dict,
    "artifact": dict,
    "str": list,
    "dynamo_start": dict,
    "compilation_metrics": dict,
    "frame_id": int | None,
    "frame_compile_id": int | None,
    "attempt": int | None,
    "rank": int | None,
}


@dataclass(frozen=True)
class StructuredTrace:
    """The structured trace of one program."""

    # the compiled modules of each process, those of one compilation of a frame together
    codes: tuple[CapturedCode, ...] = ()
    graph_breaks: tuple[str, ...] = ()  # distinct graph breaks as ``file:line: reason``
    # one ``file:line function: reason`` for each recompilation; the reason is the failed guard of the most recent cache
    # entry
    recompiles: tuple[str, ...] = ()
    torch_version: str | None = None  # ``None`` in traces before torch 2.12, which do not hold it
    # pairs of a module's path and the id of a process that wrote it
    writers: frozenset[tuple[str, int | None]] = frozenset()
    # what compilation took in the process that compiled longest, by phase
    compile_phases: tuple[CompilePhase, ...] = ()
    # the functions that Dynamo tried to compile and that run uncompiled, in the order of the attempts
    skipped: tuple[SkippedFrame, ...] = ()
    compilations: tuple[FrameCompilation, ...] = ()  # of all processes, with or without modules
    functions: tuple[CompiledFunction, ...] = ()  # the functions that Dynamo compiled, in the order of their first one


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
class _TraceProcess:
    """The collected entries of one trace file, which one process wrote."""

    rank: int | None
    codes: list[CapturedCode] = field(default_factory=list)
    frames: list[CompiledFrame | None] = field(default_factory=list)  # one for each of ``codes``
    owners: list[Frame] = field(default_factory=list)  # the compilation of each of ``codes``
    graph_breaks: list[str] = field(default_factory=list)
    recompiles: list[str] = field(default_factory=list)
    skipped: list[SkippedFrame] = field(default_factory=list)
    torch_version: str | None = None
    writers: list[tuple[str, int | None]] = field(default_factory=list)
    notes: dict[int, object] = field(default_factory=dict)  # of the layers of ``codes``, by their places
    cached: set[int] = field(default_factory=set)  # the places of those of ``codes`` that came from a cache
    clock: CompileClock = field(default_factory=CompileClock)
    functions: dict[Any, FunctionLog] = field(default_factory=dict)  # by the number of the frame
    objects: Mapping[Compilation, ObjectName] = field(default_factory=dict)
    _strings: dict[int, str] = field(default_factory=dict)
    _frames: dict[Any, CompiledFrame] = field(default_factory=dict)
    _starts: dict[Frame, int] = field(default_factory=dict)
    _pending_roles: dict[tuple[Any, Any], list[str]] = field(default_factory=dict)
    _breaks: dict[tuple[Any, Any], str] = field(default_factory=dict)

    def take(self, entry: _Entry) -> None:
        head = entry.head
        log = self.functions.get(entry.frame[0])
        if "inductor_output_code" in head:
            self._take_code(entry)
        elif entry.artifact == _STACKS:
            self._take_stacks(entry)
        elif entry.artifact == _NODES:
            self._take_layers(entry)
        elif entry.artifact == _CACHE_HIT:
            self._take_hit(entry)
        elif entry.artifact == "dynamo_graph_break_reason":
            self.graph_breaks.append(read_graph_break(entry.payload))
            self._breaks[entry.frame] = entry.payload
        elif entry.artifact == "recompile_reasons":
            self.recompiles.append(self._recompile(entry))
            if log is not None and entry.frame[1] is not None:
                log.take_reasons(entry.frame[1], entry.payload)
        elif entry.artifact == "torch_version":
            version = _read_json(entry.payload)
            self.torch_version = (
                read_text_value(version.get("pytorch_version")) or None if isinstance(version, dict) else None
            )
        elif "aot_forward_graph" in head:
            self._pending_roles[entry.frame] = ["forward", "backward"]
        elif "aot_inference_graph" in head:
            self._pending_roles[entry.frame] = ["inference"]
        elif "str" in head:
            match head["str"]:
                case [str(text), int(number)]:
                    self._strings[number] = text
        elif "chromium_event" in head:
            self.clock.take(_read_json(entry.payload), self._owner(entry))
        elif "dynamo_start" in head:
            self._take_frame(entry)
        elif "compilation_metrics" in head:
            skipped = read_skipped_frame(head["compilation_metrics"], self._breaks.pop(entry.frame, ""))
            self.skipped += [skipped] if skipped is not None else []
            if log is not None:
                log.take_metrics(head["compilation_metrics"])
        elif _GUARDS in head and (frame := self._frames.get(entry.frame[0])):
            frame.take_guards(entry.payload)

    def _take_code(self, entry: _Entry) -> None:
        about, (frame_id, frame_compile_id) = entry.head["inductor_output_code"], entry.frame
        pending = self._pending_roles.get(entry.frame, [])
        expected = pending.pop(0) if pending else "unknown"
        said = read_header(entry.payload).role
        code = CapturedCode(
            # A module that could not be written has no path.
            path=read_text_value(about.get("file_path")) or read_text_value(about.get("filename")),
            text=entry.payload,
            frame_id=frame_id,
            frame_compile_id=frame_compile_id,
            attempt=entry.head.get("attempt"),
            rank=entry.head.get("rank", self.rank),
            role=expected if said == "unknown" else said,
        )
        self.codes.append(code)
        self.frames.append(self._frames.get(frame_id))
        self.owners.append(self._owner(entry))
        self.writers.append((code.path, entry.head["pid"]))

    def _take_stacks(self, entry: _Entry) -> None:
        stacks = _read_json(entry.payload)
        if not isinstance(stacks, dict) or not stacks:
            return
        # Forward and backward share a frame: the entry belongs to the latest module with these handles.
        for place in reversed(range(len(self.codes))):
            code = self.codes[place]
            if (code.frame_id, code.frame_compile_id) != entry.frame or code.stack_traces:
                continue
            handles = set(_HANDLES.findall(code.text))
            found = {
                key: read_source_lines(read_text_value(line) for line in value)
                for key, value in stacks.items()
                if key in handles and isinstance(value, list)
            }
            if found:
                self.codes[place] = replace(code, stack_traces=found)
                return

    def _take_layers(self, entry: _Entry) -> None:
        mapping = _read_json(entry.payload)
        note = mapping.get(LAYERS) if isinstance(mapping, dict) else None
        if not isinstance(note, dict) or not isinstance(note.get("kernels"), dict):
            return
        for place in reversed(range(len(self.codes))):
            code = self.codes[place]
            if (code.frame_id, code.frame_compile_id) == entry.frame and place not in self.notes:
                if not note["kernels"].keys().isdisjoint(_HANDLES.findall(code.text)):
                    self.notes[place] = note
                return

    def _owner(self, entry: _Entry) -> Frame:
        """Returns the compilation to which an entry belongs: after a reset of Dynamo its numbers begin again."""
        return (*entry.frame, max(1, self._starts.get(entry.frame, 1)))

    def _take_hit(self, entry: _Entry) -> None:
        """Notes that the latest module of this compilation came from a cache: torch says so after the module's text."""
        if self.owners and self.owners[-1] == self._owner(entry):
            self.cached.add(len(self.codes) - 1)

    def in_order(self) -> list[tuple[CapturedCode, CompiledFrame | None, object]]:
        """Returns the modules with their frames and the notes of their layers; those of one compilation are together.

        A backward graph is compiled with its forward graph if it comes from a cache, otherwise on its first use.
        """
        first: dict[Frame, int] = {}
        for place, owner in enumerate(self.owners):
            first.setdefault(owner, place)
        places = sorted(range(len(self.codes)), key=lambda place: first[self.owners[place]])
        return [(self._named(place), self._frame(place), self.notes.get(place)) for place in places]

    def _known_object(self, place: int) -> ObjectName:
        frame, compilation, _ = self.owners[place]
        return self.objects.get((self.writers[place][1], frame, compilation), ObjectName(""))

    def _frame(self, place: int) -> CompiledFrame | None:
        """Returns the compiled function. A ``forward`` counts as one even if a decorator has given it another name."""
        frame, of_class = self.frames[place], self._known_object(place).forward_of
        if frame is None or not of_class or frame.is_wrapper or frame.name == "forward":
            return frame
        return replace(frame, name="forward", class_name=of_class)

    def _named(self, place: int) -> CapturedCode:
        """Returns the module with its object and the size that distinguishes it from others."""
        code, (frame, compilation, _) = self.codes[place], self.owners[place]
        known = self._known_object(place)
        log = self.functions.get(frame)
        sizes = log.size_words(compilation) if log is not None and compilation is not None else ""
        return replace(code, object_name=known.name, alike=known.alike, sizes=sizes)

    def compilations(self, process: int) -> Iterator[FrameCompilation]:
        """Yields the compilations in the trace of a process."""
        phases = self.clock.phases_by_frame()
        for owner in dict.fromkeys([*self.owners, *phases]):
            places = [place for place, of in enumerate(self.owners) if of == owner]
            compiled = [self.codes[place].path for place in places if place not in self.cached]
            cached = [self.codes[place].path for place in places if place in self.cached]
            yield FrameCompilation(process, tuple(compiled), tuple(cached), phases.get(owner, ()))

    def _take_frame(self, entry: _Entry) -> None:
        match entry.head["dynamo_start"].get("stack"):
            case [*_, {"filename": int(number), **frame}]:
                file = self._strings.get(number, "?")
                self._frames[entry.frame[0]] = CompiledFrame(file, frame.get("line"), str(frame.get("name")))
                place = f"{file}:{frame.get('line')} {frame.get('name')}"
                self.functions.setdefault(entry.frame[0], FunctionLog(CompiledFunction(place)))
        if (log := self.functions.get(entry.frame[0])) and (named := self._object(entry)):
            log.function = replace(log.function, wrapped=max(log.function.wrapped, named.wrapped))
        if not entry.head.get("attempt"):
            self._starts[entry.frame] = self._starts.get(entry.frame, 0) + 1

    def _recompile(self, entry: _Entry) -> str:
        reasons = _read_json(entry.payload)
        text = reasons[0] if isinstance(reasons, list) and reasons else entry.payload
        reason = re.sub(r"\s{2,}", "  ", str(text).strip().partition("\n")[0])
        frame = self._frames.get(entry.frame[0])
        reason = self._other_object(entry, reason) or reason
        return f"{frame.file}:{frame.line} {frame.name}: {reason}" if frame else reason

    def _object(self, entry: _Entry, compilation: object = None) -> ObjectName | None:
        """Returns the object of an entry's compilation, or of another compilation of the same frame."""
        frame, own = entry.frame
        return self.objects.get((entry.head["pid"], frame, own if compilation is None else compilation))

    def _other_object(self, entry: _Entry, reason: str) -> str:
        """Returns the reason if a compilation is for another object than the one before; empty if this is not known."""
        earlier = _EARLIER_ENTRY.match(reason)
        now, before = self._object(entry), self._object(entry, int(earlier[1])) if earlier else None
        if now is None or before is None or not now.name or not before.name or now.name == before.name:
            return ""
        return OTHER_OBJECT.format(now=now.name, before=before.name)


def read_structured_trace(folder: Path, objects: Mapping[Compilation, ObjectName] | None = None) -> StructuredTrace:
    """Reads all files of a ``TORCH_TRACE`` folder: one file for each process.

    If a file is cut short, its whole entries count.

    Args:
        folder: the folder.
        objects: the names of compiled objects, as the program's processes observed them.

    Raises:
        InductorBenchError: the folder is missing, holds no trace, or cannot be read.
    """
    processes = [_read_process(file, objects or {}) for file in _trace_files(folder)]
    functions_of = functools.cache(read_functions)
    codes = [_describe_code(*one, functions_of) for process in processes for one in process.in_order()]
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
        skipped=tuple(dict.fromkeys(frame for process in processes for frame in process.skipped)),
        compilations=tuple(one for number, process in enumerate(processes) for one in process.compilations(number)),
        functions=join_functions(log.function for process in processes for log in process.functions.values()),
    )


def _describe_code(
    code: CapturedCode, frame: CompiledFrame | None, note: object, functions_of: FunctionsOf
) -> CapturedCode:
    """Returns the module with the name of its function, and with its layers."""
    handles = set(_HANDLES.findall(code.text)) if note else set()
    of_class = find_compiled_class(frame, functions_of) if frame else ""
    name = find_compiled_name(frame, functions_of, code.object_name) if frame else ""
    return replace(code, compiled_name=name, layers=read_layers(note, handles, of_class))


def _trace_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise InductorBenchError(
            f"{folder} is not a folder", "give the folder that TORCH_TRACE named", "no-such-folder"
        )
    files = sorted(folder.glob(_FILES))
    if not files:
        raise InductorBenchError(
            f"{folder} holds no structured trace (dedicated_log_torch_trace_*.log)",
            "run the program with TORCH_TRACE set to a folder; a program that compiles nothing writes none",
            "nothing-compiled",
        )
    return sorted(files, key=_read_first_line)


def _read_first_line(file: Path) -> tuple[int, str]:
    # Sort key: processes without a rank first, by their start; then ranks in order.
    rank = _RANK.search(file.name)
    return (int(rank.group(1)) if rank else -1, next(_read_lines(file), "")[:21])


def _read_process(file: Path, objects: Mapping[Compilation, ObjectName]) -> _TraceProcess:
    rank = _RANK.search(file.name)
    process = _TraceProcess(int(rank.group(1)) if rank else None, objects=objects)
    for entry in _read_entries(file):
        process.take(entry)
    return process


def _read_entries(file: Path) -> Iterator[_Entry]:
    head: dict[str, Any] | None = None
    payload: list[str] = []
    for line in _read_lines(file):
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
    parsed = _read_json(match.group(2)) if match else None
    if match is None or not isinstance(parsed, dict):
        return None
    # A value of another type than torch's is dropped.
    known = {key: value for key, value in parsed.items() if isinstance(value, _TYPES.get(key, object))}
    return known | {"pid": int(match.group(1)) if match.group(1) else None}


def _read_lines(file: Path) -> Iterator[str]:
    opener = gzip.open if file.suffix == ".gz" else open
    try:
        with opener(file, "rt", encoding="utf-8", errors="replace", newline="\n") as stream:
            yield from stream
    except (EOFError, zlib.error, gzip.BadGzipFile):  # damaged from here on
        return
    except OSError as error:
        raise InductorBenchError(f"{file} cannot be read: {error}", name="unreadable") from None


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# Reads the paths of compiled modules from Inductor's output in a log.


_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# A path may hold spaces; it always ends in .py.
_LINE = re.compile(r"Compiled module path: *([^\s\0][^\0]{0,4095}?\.py)(?=[\s'\"]|$|Compiled)")


def find_printed_module_paths(text: str) -> tuple[str, ...]:
    """Returns the distinct paths of the ``Compiled module path:`` lines, in order.

    The lines may have prefixes (ranks, log levels, time stamps) and colour codes.
    """
    found = (match.group(1) for line in _ESCAPES.sub("", text).splitlines() for match in _LINE.finditer(line))
    return tuple(dict.fromkeys(found))
