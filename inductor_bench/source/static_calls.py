"""Reads from a module's text its launches, for modules that cannot be run, and the buffers that its calls touch."""

from __future__ import annotations

import ast
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..devices.protocol import CPU
from ..devices.table import find_device
from ..records.code import (
    Argument,
    BufferUse,
    CallSite,
    KernelDefinition,
    Launch,
    ModuleBuffers,
    ModuleSource,
    Storage,
    TensorView,
    Values,
)
from .calls import find_entry, find_operator, write_dotted_name
from .module_reader import find_autotuning_blocks, parse_module
from .static_wrapper import (
    ALIGNMENT,
    KernelCall,
    StorageView,
    Value,
    WrapperReader,
    describe_launch,
    find_item_size,
    is_drawn,
    lay_out,
)

# The library calls in a module's text: the overload and the arguments.


Evaluate = Callable[[ast.expr], Value | None]

_RESULTS_OF_ARGUMENT_TYPE = {
    **dict.fromkeys(("aten.convolution", "aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.sort"), 1),
    "aten.convolution_backward": 3,
}
"""The number of leading results of an operator that have the element type of its first tensor argument."""

_METHODS = {"copy_": "default", "zero_": "default", "fill_": "Scalar"}
"""Methods of tensors that launch kernels, and their overloads."""

_PARAMETERS = {
    "aten.convolution.default": (
        *("input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups"),
    )
}
"""Parameters by operator, for operators that a module calls with keywords but that receive positional arguments."""

_UNITS = ("alpha", "beta")
"""Keywords of matrix products and sums; their default is 1, and a recorded call leaves the default out."""

_ATTENTION = "aten._scaled_dot_product_"


class UnknownArgumentError(Exception):
    """The value of an argument is not in the text."""


def call_parts(call: ast.Call) -> tuple[str, Sequence[ast.expr]] | None:
    """Returns the full name of the called overload, for example ``aten.mm.out``, and its positional arguments.

    ``None`` for a call that is no library call.
    """
    path = write_dotted_name(call.func)
    if not path:
        return None
    if path[-1] in _METHODS and isinstance(call.func, ast.Attribute) and find_operator(path) is None:
        return f"aten.{path[-1]}.{_METHODS[path[-1]]}", (call.func.value, *call.args)
    overload = _find_overload(path, [keyword.arg for keyword in call.keywords])
    return None if overload is None else (overload, call.args)


def _find_overload(path: Sequence[str], keywords: Sequence[str | None]) -> str | None:
    if find_operator(tuple(path)) is None:
        return None
    if path[0] == "extern_kernels" and len(path) == 2:
        own_name = find_operator(tuple(path)) == f"aten.{path[1]}"  # other names stand for several operators
        return f"aten.{path[1]}.{'out' if 'out' in keywords else 'default'}" if own_name else None
    if tuple(path[:2]) == ("torch", "ops") and len(path) in (4, 5):
        return ".".join([*path[2:], *(["default"] if len(path) == 4 else [])])
    return ".".join(path) if path[0] == "aten" and len(path) == 3 else None


def writes_in_place(overload: str) -> bool:
    """Whether an operator changes its first argument, by its name: ``aten.add_.Tensor``."""
    return overload.partition(".")[2].partition(".")[0].endswith("_")


def describe_operator(
    overload: str,
    arguments: Sequence[ast.expr],
    keywords: Sequence[ast.keyword],
    evaluate: Evaluate,
    device: str,
    sizes: Sequence[int],
) -> Launch | None:
    """Returns the launch of a library call; ``None`` if an argument is unknown.

    Args:
        overload: the full name of the overload; empty if it is unknown.
        arguments, keywords: the expressions in the module.
        evaluate: returns the value of an expression (a tensor, a number or a tuple of them), or ``None``.
        device: the device type of the module's tensors.
        sizes: the bytes of each storage.
    """
    named = {keyword.arg: keyword.value for keyword in keywords if keyword.arg is not None}
    if len(named) != len(keywords):
        return None
    named = {name: value for name, value in named.items() if name not in _UNITS or ast.unparse(value) != "1"}
    rest = _PARAMETERS.get(overload, ())[len(arguments) :]
    if named.keys() >= set(rest):
        arguments = [*arguments, *(named.pop(name) for name in rest)]
    count = len(arguments)
    written = [count + index for index, name in enumerate(named) if name == "out"]
    written += [0] if writes_in_place(overload) else []
    views: list[StorageView] = []
    outputs: set[int] = set()
    given = []
    try:
        for place, node in enumerate((*arguments, *named.values())):
            before = len(views)
            given.append(_read(node, evaluate, views))
            if place >= count and place in written:
                outputs.update(range(before, len(views)))
    except UnknownArgumentError:
        return None
    tensors, regions = lay_out(views, sizes)
    storages = []
    for size, members in regions:
        dtype = tensors[members[0]].dtype
        drawn = is_drawn(dtype) and not outputs.issuperset(members)
        storages.append(Storage(size, dtype, device, ALIGNMENT, Values("normal" if drawn else "zeros")))
    places = iter(tensors)
    described = [_make_argument(value, places) for value in given]
    by_name = dict(zip(named, described[count:], strict=True))
    return Launch("", overload, 1, (), tuple(storages), tuple(described[:count]), by_name, tuple(sorted(written)))


def find_result_dtypes(launch: Launch) -> tuple[str, ...]:
    """Returns the element types of a call's leading results; those of further results are unknown."""
    operator = (launch.operator or "").rpartition(".")[0]
    count = _RESULTS_OF_ARGUMENT_TYPE.get(operator, 0)
    if operator.startswith(_ATTENTION):
        count = 3 if operator.endswith("_backward") else 1
    first = next(_list_tensors(launch.arguments), None)
    return (first.dtype,) * count if first is not None else ()


def _list_tensors(arguments: Sequence[Argument]) -> Iterator[TensorView]:
    for argument in arguments:
        if argument.tensor is not None:
            yield argument.tensor
        yield from _list_tensors(argument.items)


_Given = StorageView | Argument | list["_Given"]


def _read(node: ast.expr, evaluate: Evaluate, views: list[StorageView]) -> _Given:
    if isinstance(node, ast.Tuple | ast.List):
        return [_read(item, evaluate, views) for item in node.elts]
    if isinstance(node, ast.Constant):
        return _make_constant(node.value)
    path = write_dotted_name(node)
    if path[:1] == ("torch",) and len(path) == 2:
        return Argument(_TORCH_KINDS.get(path[1], "dtype"), text=path[1])
    if isinstance(node, ast.Call) and write_dotted_name(node.func)[-1:] == ("device",):
        kind = next(iter((*node.args, *(each.value for each in node.keywords))), None)
        if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
            return Argument("device", text=kind.value.partition(":")[0])
    value = evaluate(node)
    if (
        isinstance(value, StorageView)
        and value.shape is not None
        and value.stride is not None
        and value.dtype is not None
    ):
        views.append(value)
        return value
    if isinstance(value, int | float):
        return _make_constant(value)
    raise UnknownArgumentError


_TORCH_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("strided", "sparse_coo", "jagged"), "layout"),
    **dict.fromkeys(("contiguous_format", "channels_last", "channels_last_3d", "preserve_format"), "memory_format"),
}


def _make_constant(value: object) -> Argument:
    if value is None:
        return Argument("none")
    if isinstance(value, bool):
        return Argument("bool", integer=int(value))
    if isinstance(value, int):
        return Argument("int", integer=value)
    if isinstance(value, float):
        return Argument("float", number=value)
    if isinstance(value, str):
        return Argument("text", text=value)
    raise UnknownArgumentError


def _make_argument(value: _Given, places: Iterator[TensorView]) -> Argument:
    if isinstance(value, list):
        return Argument("list", items=tuple(_make_argument(item, places) for item in value))
    return Argument("tensor", tensor=next(places)) if isinstance(value, StorageView) else value


# Reads the launches of a compiled module from its text, for modules that cannot be run here.
#
# Launches that a run recorded are more complete; see ``worker.profile.recorder``.


def read_static_launches(text: str, source: ModuleSource) -> tuple[Launch, ...]:
    """Returns the distinct launches of the module's kernels and library calls, in call order.

    Launches with unknown arguments are left out. Storages of whole numbers hold zeros, as in Inductor's harness,
    because the text holds no bounds. All kernels of a multi-kernel count as launched.

    Raises:
        InductorBenchError: the text is not a compiled module.
    """
    tree = parse_module(text)
    reader = LaunchReader(tree, source)
    entry = find_entry(tree)
    if entry is not None:
        reader.follow(entry.body)
        return tuple(reader.launches.values())
    for block in find_autotuning_blocks(tree):
        reader.follow(block.body)
    # A compile-time tuning block launches each kernel once; the wrapper's calls tell the number of launches.
    names = [call.kernel for call in source.calls if call.kernel is not None]
    places = {name: tuple(place for place, other in enumerate(names) if other == name) for name in names}
    return tuple(
        replace(launch, calls=len(places[launch.kernel]), positions=places[launch.kernel])
        for launch in reader.launches.values()
        if launch.kernel in places
    )


class LaunchReader(WrapperReader):
    """Collects the launches of a module from its text; a repeated launch counts as a call of the first one."""

    def __init__(self, tree: ast.Module, source: ModuleSource) -> None:
        super().__init__(tree, source)
        self.launches: dict[tuple[object, ...], Launch] = {}
        self._position = 0

    def receive_kernel_call(self, alternatives: Sequence[KernelCall]) -> None:
        for kernel, values in alternatives:
            launch = self._describe(kernel, values)
            if launch is not None:
                self._count(launch)
        self._position += 1

    def receive_library_call(self, call: ast.Call) -> tuple[str, ...] | None:
        parts = call_parts(call)
        if parts is None:
            return None
        overload, arguments = parts
        launch = describe_operator(
            overload, arguments, call.keywords, self._evaluate, device=self._device, sizes=self._sizes
        )
        if launch is not None:
            self._count(launch)
        self._position += 1
        return find_result_dtypes(launch) if launch is not None else ()

    def _count(self, launch: Launch) -> None:
        key = (launch.kernel, launch.operator, launch.arguments, tuple(launch.keywords.items()), launch.storages)
        known = self.launches.get(key, replace(launch, calls=0))
        positions = (*known.positions, self._position)
        self.launches[key] = replace(known, calls=len(positions), positions=positions)

    def _describe(self, kernel: KernelDefinition, values: Sequence[Value | None]) -> Launch | None:
        pointers = self._read_pointers(kernel)
        views = [value for value in values if isinstance(value, StorageView)]
        if pointers is None or len(pointers) != len(views) or any(view.stride is None for view in views):
            return None
        known: list[StorageView | int | float] = []
        for value in self._with_dtypes(values, pointers):
            if value is None or isinstance(value, tuple):
                return None
            known.append(value)
        device = CPU.type if kernel.language == "cpp" else self._device
        return describe_launch(kernel, known, pointers, device, self._sizes)


_HOST_ALLOCATORS = ("empty_strided_cpu", "empty_strided_cpu_pinned")


def read_buffers(text: str, source: ModuleSource) -> ModuleBuffers:
    """Returns the buffers of a module, from its ``call`` function.

    The buffers of a module without this function (cpp_wrapper) are unknown. Aliases (``buf5 = buf2``,
    ``reinterpret_tensor``) are one buffer. A new buffer takes the memory of a deleted one of equal size, as with
    torch's allocators. A generated kernel touches the whole of each argument; a library call reads its arguments and
    writes its results. Of a multi-kernel the first kernel counts.

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
    return reader.buffers(source.calls, _list_argument_names(entry))


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
        self._on_host = find_device(source.device).runs_on_host
        self._host_inputs = {
            item.name for item in source.inputs if item.device and find_device(item.device).runs_on_host
        }
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
        """Returns the name of each storage's memory, by storage."""
        owners: dict[int, str] = {}
        taken: set[str] = set()
        for storage, memory in self._memory.items():
            if memory not in owners:
                name = self._labels.get(storage, "unnamed")
                owners[memory] = name if name not in taken else f"{name}#{memory}"
                taken.add(owners[memory])
        return {storage: owners[memory] for storage, memory in self._memory.items()}

    def _parts(self, call: _BufferCall, names: dict[int, str]) -> _Parts:
        """Returns the parts of buffers that a call touches. Several views of the same bytes are one part."""
        parts: _Parts = {}
        whole = [StorageView(storage) for storage in call.results]
        for place, views in enumerate((call.read, [*call.written, *whole])):
            for view in views:
                name, size = names.get(view.storage), self._sizes[view.storage]
                if name is not None and view.storage not in self._elsewhere:
                    extent = view.extent if view.shape is not None and view.dtype else (0, size)
                    moved = parts.setdefault(name, {}).setdefault(extent, [0, 0])
                    moved[place] = max(moved[place], min(_count_stored_bytes(view, size), size))
                    self._limits[name] = max(self._limits.get(name, 0), size)
        return parts

    def _uses(self, parts: _Parts, sizes: dict[str, int]) -> tuple[BufferUse, ...]:
        """Returns the uses of a call with these parts, which add up to at most the buffer's size."""
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
        """Returns the bytes of each buffer that all calls together touch: at most its size, and less if they take
        slices."""
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
        """Frees the memory of storages to which no variable refers any more.

        The memory of the module's inputs is never freed.
        """
        dropped = {view.storage for view in _list_views(self._names.pop(name, None) for name in names)}
        if dropped:
            scopes = (self._names, *self._outer)
            kept = {view.storage for scope in scopes for view in _list_views(scope.values())}
            kept.update(view.storage for view in _list_views(self._inputs_of_call.values()))
            for storage in sorted(dropped - kept):
                if storage in self._memory:
                    self._free[self._sizes[storage]].append(self._memory[storage])

    # Calls

    def receive_kernel_call(self, alternatives: Sequence[KernelCall]) -> None:
        kernel, values = alternatives[0]
        call = self._add_call()
        if kernel.language == "cpp" and not self._on_host:
            return
        views = list(_list_views(values))
        pointers = self._read_pointers(kernel)
        if pointers is None or len(pointers) != len(views):
            call.read, call.written = views, views
            return
        for view, pointer in zip(_list_views(self._with_dtypes(views, pointers)), pointers, strict=True):
            if not pointer.use.output_only:
                call.read.append(view)
            if pointer.use.written:
                call.written.append(view)

    def receive_library_call(self, call: ast.Call) -> tuple[str, ...] | None:
        parts = call_parts(call)
        path = write_dotted_name(call.func)
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
        read = list(
            _list_views(map(evaluate, [*arguments, *(each.value for each in call.keywords if each.arg != "out")]))
        )
        found = self._add_call()
        found.read = read
        found.written = list(_list_views(evaluate(each.value) for each in call.keywords if each.arg == "out"))
        if writes_in_place(overload):
            # Methods (copy_, zero_, fill_) overwrite their tensor; other operators in place also read it.
            found.written += read[:1]
            found.read = read[1:] if path[0] not in ("torch", "aten", "extern_kernels") else read
        return (find_result_dtypes(launch) if launch else ()) or tuple(view.dtype for view in read[:1] if view.dtype)

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


def _list_argument_names(entry: ast.FunctionDef) -> tuple[str, ...]:
    """Returns the names of a module's arguments, from the statement that unpacks them."""
    parameter = entry.args.args[-1].arg if entry.args.args else ""
    for statement in entry.body:
        if isinstance(statement, ast.Assign) and write_dotted_name(statement.value) == (parameter,):
            target = statement.targets[0]
            nodes = target.elts if isinstance(target, ast.Tuple) else [target]
            return tuple(node.id for node in nodes if isinstance(node, ast.Name))
    return ()


def _list_views(values: Iterable[Value | None]) -> Iterator[StorageView]:
    """The tensors among values, and within tuples of them."""
    for value in values:
        if isinstance(value, StorageView):
            yield value
        elif isinstance(value, tuple):
            yield from _list_views(value)


def _count_stored_bytes(view: StorageView, size: int) -> int:
    """Counts the bytes of a view's elements.

    An expanded dimension is stored once. If the shape is unknown, all bytes count.
    """
    if view.shape is None or view.stride is None or view.dtype is None:
        return size
    elements = math.prod(n if step else min(n, 1) for n, step in zip(view.shape, view.stride, strict=True))
    return elements * find_item_size(view.dtype)
