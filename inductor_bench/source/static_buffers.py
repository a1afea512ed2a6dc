"""Reads the buffers that each call of a compiled module touches from the module's text."""

from __future__ import annotations

import ast
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..devices.table import device_of
from ..records.code import BufferUse, CallSite, ModuleBuffers, ModuleSource
from .calls import dotted, find_entry, find_operator
from .module_reader import parse_module
from .static_launches import call_parts, describe_operator, result_dtypes
from .static_wrapper import KernelCall, StorageView, Value, WrapperReader, item_size

_HOST_ALLOCATORS = ("empty_strided_cpu", "empty_strided_cpu_pinned")


def read_buffers(text: str, source: ModuleSource) -> ModuleBuffers:
    """The buffers of a module, from its ``call`` function. Those of a module without one (cpp_wrapper) are unknown.

    Aliases (``buf5 = buf2``, ``reinterpret_tensor``) are one buffer. A new buffer takes the memory of a deleted one of
    equal size, as with torch's allocators. A generated kernel touches the whole of each argument; a library call reads
    its arguments and writes its results. Of a multi-kernel the first kernel counts.

    Args:
        text: the module.
        source: what was read from it.

    Raises:
        InductorBenchError: the text is not a compiled module.
    """
    tree = parse_module(text)
    entry = find_entry(tree)
    if entry is None:
        return ModuleBuffers(calls=(None,) * len(source.calls))
    reader = _BufferReader(tree, source)
    reader.follow(entry.body)
    return reader.buffers(source.calls, _argument_names(entry))


@dataclass
class _BufferCall:
    """A call: its line in the module, the views that it reads and writes, and the storages of its results."""

    line: int
    read: list[StorageView] = field(default_factory=list)
    written: list[StorageView] = field(default_factory=list)
    results: list[int] = field(default_factory=list)


_Parts = dict[str, dict[tuple[int, int], list[int]]]
"""The bytes that a call reads and writes, by buffer and by the first and the last byte of the part."""


class _BufferReader(WrapperReader):
    """Collects the calls, and the memory of each storage."""

    def __init__(self, tree: ast.Module, source: ModuleSource) -> None:
        super().__init__(tree, source)
        self._on_host = device_of(source.device).runs_on_host
        self._host_inputs = {item.name for item in source.inputs if item.device and device_of(item.device).runs_on_host}
        self._calls: list[_BufferCall] = []
        self._callers: dict[int, _BufferCall] = {}
        self._line = 0
        self._inputs_of_call: dict[str, Value] = {}
        self._outer: list[dict[str, Value]] = []
        self._labels: dict[int, str] = {}
        self._memory: dict[int, int] = {}
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        self._elsewhere: set[int] = set()
        self._limits: dict[str, int] = {}

    def buffers(self, sites: Sequence[CallSite], arguments: Sequence[str]) -> ModuleBuffers:
        """The result for the call sites of the module and the names of its arguments."""
        names = self._memory_names()
        waiting: defaultdict[int, deque[_BufferCall]] = defaultdict(deque)
        for call in self._calls:
            waiting[call.line].append(call)
        found = [waiting[site.line].popleft() if waiting[site.line] else None for site in sites]
        parts = [self._parts(call, names) if call is not None else {} for call in found]
        sizes = self._touched_sizes(parts)
        given = [self._inputs_of_call.get(name) for name in arguments]
        returned = self._returned if isinstance(self._returned, tuple) else ()
        return ModuleBuffers(
            calls=tuple(self._uses(one, sizes) or None for one in parts),
            inputs=tuple(names.get(value.storage, "") if isinstance(value, StorageView) else "" for value in given),
            outputs=tuple(names.get(value.storage, "") if isinstance(value, StorageView) else "" for value in returned),
        )

    def _memory_names(self) -> dict[int, str]:
        """The name of each storage's memory, by storage."""
        owners: dict[int, str] = {}
        taken: set[str] = set()
        for storage, memory in self._memory.items():
            if memory not in owners:
                name = self._labels.get(storage, "unnamed")
                owners[memory] = name if name not in taken else f"{name}#{memory}"
                taken.add(owners[memory])
        return {storage: owners[memory] for storage, memory in self._memory.items()}

    def _parts(self, call: _BufferCall, names: dict[int, str]) -> _Parts:
        """The parts of buffers that a call touches. Several views of the same bytes are one part."""
        parts: _Parts = {}
        whole = [StorageView(storage) for storage in call.results]
        for place, views in enumerate((call.read, [*call.written, *whole])):
            for view in views:
                name, size = names.get(view.storage), self._sizes[view.storage]
                if name is not None and view.storage not in self._elsewhere:
                    extent = view.extent if view.shape is not None and view.dtype else (0, size)
                    moved = parts.setdefault(name, {}).setdefault(extent, [0, 0])
                    moved[place] = max(moved[place], min(_stored_bytes(view, size), size))
                    self._limits[name] = max(self._limits.get(name, 0), size)
        return parts

    def _uses(self, parts: _Parts, sizes: dict[str, int]) -> tuple[BufferUse, ...]:
        """The uses of a call with these parts, which add up to at most the buffer's size."""
        return tuple(
            BufferUse(
                buffer=name,
                size=sizes[name],
                touched=min(sizes[name], sum(map(max, moved.values()))),
                read=min(sizes[name], sum(read for read, _ in moved.values())),
                written=min(sizes[name], sum(written for _, written in moved.values())),
            )
            for name, moved in parts.items()
        )

    def _touched_sizes(self, calls: Iterable[_Parts]) -> dict[str, int]:
        """The bytes of each buffer that the calls touch in all: at most its size, and less if they take slices."""
        found: defaultdict[str, dict[tuple[int, int], int]] = defaultdict(dict)
        for parts in calls:
            for name, moved in parts.items():
                for extent, sizes in moved.items():
                    found[name][extent] = max(found[name].get(extent, 0), *sizes)
        return {name: min(self._limits[name], sum(sizes.values())) for name, sizes in found.items()}

    # Statements

    def follow(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._line = statement.lineno
            if isinstance(statement, ast.Delete):
                self._delete([node.id for node in statement.targets if isinstance(node, ast.Name)])
            else:
                super().follow([statement])

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        super()._assign(target, value)
        for node in target.elts if isinstance(target, ast.Tuple) else [target]:
            known = self._names.get(node.id) if isinstance(node, ast.Name) else None
            if isinstance(node, ast.Name) and isinstance(known, StorageView):
                self._labels.setdefault(known.storage, node.id)

    def _input(self, name: str) -> Value:
        value = super()._input(name)
        if not self._open:
            self._inputs_of_call.setdefault(name, value)
            if name in self._host_inputs and not self._on_host and isinstance(value, StorageView):
                self._elsewhere.add(value.storage)
        return value

    def _enter(self, function: ast.FunctionDef, values: tuple[Value, ...]) -> Value | None:
        line = self._line
        self._outer.append(self._names)
        result = super()._enter(function, values)
        self._outer.pop()
        self._line = line
        return result

    def _sized(self, view: StorageView) -> StorageView:
        sized = super()._sized(view)
        size = self._sizes[view.storage]
        if size and view.storage not in self._memory:
            free = self._free[size]
            self._memory[view.storage] = free.pop() if free else view.storage
        return sized

    def _delete(self, names: Sequence[str]) -> None:
        """Frees the memory of storages that no variable refers to any more. The caller keeps the module's inputs."""
        dropped = {view.storage for view in _views(self._names.pop(name, None) for name in names)}
        if dropped:
            scopes = (self._names, *self._outer)
            kept = {view.storage for scope in scopes for view in _views(scope.values())}
            kept.update(view.storage for view in _views(self._inputs_of_call.values()))
            for storage in sorted(dropped - kept):
                if storage in self._memory:
                    self._free[self._sizes[storage]].append(self._memory[storage])

    # Calls

    def launched(self, alternatives: Sequence[KernelCall]) -> None:
        kernel, values = alternatives[0]
        call = self._add_call()
        if kernel.language == "cpp" and not self._on_host:
            return
        views = list(_views(values))
        pointers = self._read_pointers(kernel)
        if pointers is None or len(pointers) != len(views):
            call.read, call.written = views, views
            return
        for view, pointer in zip(_views(self._with_dtypes(views, pointers)), pointers, strict=True):
            if not pointer.use.output_only:
                call.read.append(view)
            if pointer.use.written:
                call.written.append(view)

    def library_call(self, call: ast.Call) -> tuple[str, ...] | None:
        parts = call_parts(call)
        path = dotted(call.func)
        if parts is None and (not path or find_operator(path) is None):
            return None
        overload, arguments = parts or ("", call.args)
        values: dict[ast.expr, Value | None] = {}

        def evaluate(node: ast.expr) -> Value | None:
            # An argument may itself be a call, which counts once.
            if node not in values:
                values[node] = self._evaluate(node)
            return values[node]

        launch = describe_operator(overload, arguments, call.keywords, evaluate, self._device, self._sizes)
        read = list(_views(map(evaluate, [*arguments, *(each.value for each in call.keywords if each.arg != "out")])))
        found = self._add_call()
        found.read = read
        found.written = list(_views(evaluate(each.value) for each in call.keywords if each.arg == "out"))
        if overload.partition(".")[2].partition(".")[0].endswith("_"):
            # Methods (copy_, zero_, fill_) overwrite their tensor; other operators in place also read it.
            found.written += read[:1]
            found.read = read[1:] if path[0] not in ("torch", "aten", "extern_kernels") else read
        return (result_dtypes(launch) if launch else ()) or tuple(view.dtype for view in read[:1] if view.dtype)

    def _operator(self, call: ast.Call) -> StorageView | None:
        result = super()._operator(call)
        if result is not None:
            self._add_result(result, self._calls[-1])
        return result

    def _part(self, whole: StorageView, index: int) -> StorageView:
        part = super()._part(whole, index)
        if whole.storage in self._callers:
            self._add_result(part, self._callers[whole.storage])
        return part

    def _result(self, call: ast.Call) -> Value | None:
        result = super()._result(call)
        allocates_on_host = isinstance(call.func, ast.Name) and call.func.id in _HOST_ALLOCATORS
        if allocates_on_host and not self._on_host and isinstance(result, StorageView):
            self._elsewhere.add(result.storage)
        return result

    def _add_call(self) -> _BufferCall:
        self._calls.append(_BufferCall(self._line))
        return self._calls[-1]

    def _add_result(self, result: StorageView, call: _BufferCall) -> None:
        self._callers[result.storage] = call
        call.results.append(result.storage)


def _argument_names(entry: ast.FunctionDef) -> tuple[str, ...]:
    """The names of a module's arguments, from the statement that unpacks them."""
    parameter = entry.args.args[-1].arg if entry.args.args else ""
    for statement in entry.body:
        if isinstance(statement, ast.Assign) and dotted(statement.value) == (parameter,):
            target = statement.targets[0]
            nodes = target.elts if isinstance(target, ast.Tuple) else [target]
            return tuple(node.id for node in nodes if isinstance(node, ast.Name))
    return ()


def _views(values: Iterable[Value | None]) -> Iterator[StorageView]:
    """The tensors among values, and within tuples of them."""
    for value in values:
        if isinstance(value, StorageView):
            yield value
        elif isinstance(value, tuple):
            yield from _views(value)


def _stored_bytes(view: StorageView, size: int) -> int:
    """The bytes of a view's elements; an expanded dimension is stored once. All bytes of a view of unknown shape."""
    if view.shape is None or view.stride is None or view.dtype is None:
        return size
    elements = math.prod(n if step else min(n, 1) for n, step in zip(view.shape, view.stride, strict=True))
    return elements * item_size(view.dtype)
