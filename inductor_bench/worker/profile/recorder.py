"""Records the launches of a compiled module in one run: generated kernels and library calls with exact arguments.

The module's text does not hold them all: it lacks the shapes of C++ kernels, the byte counts of foreach and
user-defined Triton kernels, and the arguments of library calls. Recording does not change the results of the run.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...records.code import Argument, Launch, Storage, TensorView, Values
from ...source.calls import read_definitions
from ...source.generated_text import Buffer, get_triton_buffers, list_cpp_buffers, wants_positive
from ..upstream.inductor import replaced_cpp_kernels
from ..upstream.observing import no_dispatch, read_triton_signature, watched_triton_kernels
from .storages import NORMAL, ZEROS, Pending, Region, ValueReader, find_regions, is_plain, make_values_positive

# Observes the library calls of a compiled module: the outermost operators that torch dispatches.


_NO_WORK = {
    "aten._assert_tensor_metadata",
    "aten._reshape_alias",
    "aten._unsafe_view",
    "aten.empty",
    "aten.empty_like",
    "aten.empty_permuted",
    "aten.empty_strided",
    "aten.new_empty",
    "aten.new_empty_strided",
    "aten.record_stream",
    "aten.resize_",
    "aten.set_",
    "inductor._alloc_from_pool",
    "inductor._reinterpret_tensor",
    "prim.device",
    "prim.layout",
}
_OVERWRITES = {"copy_", "zero_", "fill_", "random_", "normal_", "uniform_", "bernoulli_", "exponential_"}


@dataclass(frozen=True)
class OperatorUse:
    """One call of an operator. Indices count the positional arguments, then the keyword arguments in order."""

    name: str  # the full name of the overload
    arguments: tuple[Any, ...]  # positional and keyword arguments
    keywords: Mapping[str, Any]  # positional and keyword arguments
    written: frozenset[int] = frozenset()  # indices of the arguments that the call writes
    output_only: frozenset[int] = frozenset()  # indices of written arguments that the call does not read
    groups: frozenset[int] = frozenset()  # indices of names of process groups, which are invalid in another process
    clears: bool = False  # whether the call fills its first argument with zeros


class OperatorWatch(TorchDispatchMode):
    """A dispatch mode that calls ``on_call`` instead of each outermost operator of this thread."""

    supports_higher_order_operators = True

    def __init__(self, on_call: Callable[[OperatorUse, Callable[[], Any]], Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._on_call = on_call

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        use = read_use(func, tuple(args), keywords)
        return func(*args, **keywords) if use is None else self._on_call(use, lambda: func(*args, **keywords))


def read_use(function: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> OperatorUse | None:
    """Returns how a dispatched call uses its arguments; ``None`` for allocations, views and assertions.

    A higher-order operator that only runs another operator in some state counts as the other operator.
    """
    if not isinstance(function, torch._ops.OpOverload):
        return _read_higher_order(function, arguments, keywords)
    packet = f"{function.namespace}.{function._schema.name.partition('::')[2]}"
    if packet in _NO_WORK or function.is_view or function.namespace == "profiler":
        return None
    places = _find_places(function, arguments, keywords)
    base = packet.partition(".")[2]
    written = {
        places[item.name]
        for item in function._schema.arguments
        if item.name in places and item.alias_info is not None and item.alias_info.is_write
    }
    output_only = {
        places[item.name]
        for item in function._schema.arguments
        if places.get(item.name) in written and (item.kwarg_only or item.name == "out" or base in _OVERWRITES)
    }
    groups = {place for name, place in places.items() if name == "group_name"}
    return OperatorUse(
        str(function),
        arguments,
        keywords,
        frozenset(written),
        frozenset(output_only),
        frozenset(groups),
        clears=base == "zero_" or (base == "fill_" and len(arguments) > 1 and _is_zero(arguments[1])),
    )


def _find_places(function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, int]:
    names = [item.name for item in function._schema.arguments]
    positional = {name: index for index, name in enumerate(names[: len(arguments)])}
    return positional | {name: len(arguments) + index for index, name in enumerate(keywords)}


def _read_higher_order(function: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> OperatorUse | None:
    for index, value in enumerate(arguments):
        if isinstance(value, torch._ops.OpOverload):
            kept = {name: item for name, item in keywords.items() if name != "rng_state"}
            return read_use(value, arguments[index + 1 :], kept)
    return OperatorUse(f"higher_order.{function.name()}", arguments, keywords)


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and value == 0


# Converts the arguments of a call to records: each value by its kind, tensors as views of regions.


NONE = Argument("none")


def find_tensors(value: Any) -> Iterator[torch.Tensor]:
    """The plain tensors in an argument, in the order of :func:`describe_argument`."""
    if isinstance(value, torch.Tensor):
        if is_plain(value):
            yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from find_tensors(item)


def describe_views(tensors: list[torch.Tensor], regions: Iterable[Region]) -> list[TensorView]:
    """Describes each tensor as a view of one of the regions that ``find_regions`` found."""
    views: dict[int, TensorView] = {}
    for number, region in enumerate(regions):
        for index in region.views:
            tensor = tensors[index]
            itemsize = tensor.element_size()
            views[index] = TensorView(
                storage=number,
                offset=int(tensor.storage_offset()) - region.start // itemsize,
                shape=tuple(map(int, tensor.shape)),
                stride=tuple(map(int, tensor.stride())),
                dtype=name_torch_value(tensor.dtype),
                itemsize=itemsize,
            )
    return [views[index] for index in range(len(tensors))]


def describe_argument(value: Any, views: Iterator[TensorView]) -> Argument:
    """The record of one argument.

    A bool becomes the integer 0 or 1. A float without a JSON form becomes text: ``inf``, ``-inf`` or ``nan``.

    Args:
        value: the argument.
        views: yields the views of its tensors in order.
    """
    if isinstance(value, torch.Tensor):
        return (
            Argument("tensor", tensor=next(views))
            if is_plain(value)
            else make_opaque_argument(_describe_special(value))
        )
    if value is None:
        return NONE
    if isinstance(value, list | tuple):
        return Argument("list", items=tuple(describe_argument(item, views) for item in value))
    for kinds, describe in _DESCRIPTIONS:
        if isinstance(value, kinds):
            return describe(value)
    return make_opaque_argument(type(value).__name__)


def make_opaque_argument(text: str) -> Argument:
    """An argument that cannot be made again; ``text`` describes it."""
    return Argument("opaque", text=text)


def name_torch_value(value: Any) -> str:
    """Returns torch's name of a dtype, layout or memory format, without the prefix ``torch.``."""
    return str(value).removeprefix("torch.")


def _describe_float(value: Any) -> Argument:
    number = float(value)
    return Argument("float", number=number) if math.isfinite(number) else Argument("float", text=str(number))


def _describe_special(value: torch.Tensor) -> str:
    layout = name_torch_value(value.layout).removeprefix("_")
    kind = layout if type(value) in (torch.Tensor, torch.nn.Parameter) else type(value).__name__
    return f"{kind} {name_torch_value(value.dtype)}{list(value.shape)}"


_DESCRIPTIONS: tuple[tuple[tuple[type, ...], Callable[[Any], Argument]], ...] = (
    ((bool, torch.SymBool), lambda value: Argument("bool", integer=int(bool(value)))),
    ((int, torch.SymInt), lambda value: Argument("int", integer=int(value))),
    ((float, torch.SymFloat), _describe_float),
    ((str,), lambda value: Argument("text", text=value)),
    ((torch.dtype,), lambda value: Argument("dtype", text=name_torch_value(value))),
    ((torch.device,), lambda value: Argument("device", text=value.type)),
    ((torch.layout,), lambda value: Argument("layout", text=name_torch_value(value))),
    ((torch.memory_format,), lambda value: Argument("memory_format", text=name_torch_value(value))),
)


LIMIT_BYTES = 65536
Run = Callable[[], Any]


@dataclass(frozen=True)
class LaunchContents:
    """A distinct launch just before it is made for the first time."""

    launch: Launch  # its arguments and storages, without their values
    # by index the bytes of the storages that are not recorded exactly: ``uint8`` tensors on the storages' device, not
    # copies
    storages: Mapping[int, torch.Tensor]


Keep = Callable[[LaunchContents], Mapping[int, Values]]


def watch_launches(
    module: ModuleType, run: Run, *, limit_bytes: int = LIMIT_BYTES, keep: Keep | None = None
) -> list[Launch]:
    """Runs a module once and lists its distinct launches in the order of their first occurrence.

    Args:
        module: the compiled module; it is unchanged afterwards, even if ``run`` raises.
        run: calls the module once, in this thread. It should have run before, so that no kernel is tuned meanwhile.
        limit_bytes: maximum size of integer and bool storages that are recorded exactly. Larger storages are recorded
            as bounds, within which values can be drawn. Floats are drawn, except for very small storages.
        keep: called once for each distinct launch with the storages that are not recorded exactly; returns the values
            of the storages that it copied.

    Returns:
        The launches. ``mutated`` counts the positional arguments, then the keyword arguments in order. Process groups,
        generators and tensors with special layouts are ``opaque``.
    """
    recorder = _Recorder(_list_kernel_sources(module), limit_bytes, keep)
    with ExitStack() as watches:
        watches.enter_context(replaced_cpp_kernels(module, recorder.cpp))
        watches.enter_context(watched_triton_kernels(vars(module), recorder.triton, recorder.quietly))
        watches.enter_context(OperatorWatch(recorder.operator))
        run()
    return recorder.finish()


def remove_nans(launches: Iterable[Launch], module: ModuleType, *, with_recorded: bool) -> tuple[Launch, ...]:
    """Returns the launches. A kernel that computes NaNs from negative values gets positive values.

    A square root of a negative number takes longer (NVIDIA H200, batch norm in inference: 192 instead of 110 µs), and a
    model's variances are positive.

    Args:
        launches: launches of the module.
        module: the compiled module.
        with_recorded: whether floats that are stored in a launch are replaced, too, because the inputs of a module's
            harness are random.
    """
    sources = _list_kernel_sources(module)
    return tuple(
        make_values_positive(launch, with_recorded=with_recorded)
        if wants_positive(launch.operator or "", sources.get(launch.kernel, ""))
        else launch
        for launch in launches
    )


def _list_kernel_sources(module: ModuleType) -> dict[str, str]:
    """The text of each kernel of a module, by the kernel's variable."""
    path = Path(getattr(module, "__file__", None) or "")
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8", errors="replace")
    return {kernel.name: kernel.source for kernel in read_definitions(ast.parse(text), text.splitlines())}


@dataclass(frozen=True)
class _PendingCall:
    """A launch before it is made; see :class:`OperatorUse` for the fields."""

    kernel: str
    operator: str | None
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    written: frozenset[int]
    output_only: frozenset[int]
    cleared: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()
    clears: bool = False


@dataclass
class _Found:
    """A distinct launch during the run: its record, and the values of its storages, which may be pending."""

    launch: Launch
    values: list[Values | Pending]
    positions: list[int] = field(default_factory=list)


class _Recorder:
    """Collects the launches of one run. Calls inside a launch, and during its recording, do not count."""

    def __init__(self, sources: Mapping[str, str], limit_bytes: int, keep: Keep | None) -> None:
        self._sources = sources
        self._keep = keep
        self._reader = ValueReader(limit_bytes)
        self._found: dict[Any, _Found] = {}
        self._buffers: dict[str, tuple[Buffer, ...] | None] = {}
        self._zeroed: set[tuple[str, int]] = set()
        self._busy = False
        self._position = 0

    def quietly(self, run: Run) -> Any:
        was_busy, self._busy = self._busy, True
        try:
            return run()
        finally:
            self._busy = was_busy

    def cpp(self, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a replacement of a C++ kernel that records its launches."""
        buffers = list_cpp_buffers(self._sources.get(name, ""))

        def call(*arguments: Any) -> Any:
            return self._kernel(name, buffers, arguments, {}, lambda: kernel(*arguments))

        return call

    def triton(self, name: str, kernel: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], launch: Run) -> Any:
        if name not in self._buffers:
            self._buffers[name] = get_triton_buffers(*read_triton_signature(kernel), self._sources.get(name))
        return self._kernel(name, self._buffers[name], arguments, keywords, launch)

    def operator(self, use: OperatorUse, launch: Run) -> Any:
        call = _PendingCall(
            "",
            use.name,
            use.arguments,
            use.keywords,
            use.written,
            use.output_only,
            groups=use.groups,
            clears=use.clears,
        )
        return self._make(call, launch)

    def finish(self) -> list[Launch]:
        """Returns the launches of the run, after its end."""
        with torch.no_grad():
            fetched = self._reader.fetch()
        return [_complete(found, fetched) for found in self._found.values()]

    def _kernel(
        self,
        name: str,
        buffers: Sequence[Buffer] | None,
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
        launch: Run,
    ) -> Any:
        places = [index for index, value in enumerate(arguments) if isinstance(value, torch.Tensor)]
        if buffers is None or len(buffers) != len(places):
            # The text does not fit the call: every buffer may be read and written.
            buffers = [Buffer("", written=True)] * len(places)
        pairs = list(zip(places, buffers, strict=True))
        call = _PendingCall(
            name,
            None,
            arguments,
            keywords,
            frozenset(place for place, buffer in pairs if buffer.written),
            frozenset(place for place, buffer in pairs if buffer.output_only),
            cleared=frozenset(place for place, buffer in pairs if buffer.cleared),
        )
        return self._make(call, launch)

    def _make(self, call: _PendingCall, launch: Run) -> Any:
        if self._busy:
            return launch()

        def record_and_launch() -> Any:
            with no_dispatch(), torch.no_grad():
                self._record(call)
            return launch()

        return self.quietly(record_and_launch)

    def _record(self, call: _PendingCall) -> None:
        values = (*call.arguments, *call.keywords.values())
        owned = [(place, tensor) for place, value in enumerate(values) for tensor in find_tensors(value)]
        tensors = [tensor for _, tensor in owned]
        regions = find_regions(tensors)
        views = iter(describe_views(tensors, regions))
        described = [
            make_opaque_argument(f"process group {value}") if place in call.groups else describe_argument(value, views)
            for place, value in enumerate(values)
        ]
        count = len(call.arguments)
        arguments, keywords = tuple(described[:count]), dict(zip(call.keywords, described[count:], strict=True))
        storages = tuple(
            Storage(region.size, name_torch_value(region.dtype), region.device.type, region.alignment, NORMAL)
            for region in regions
        )
        key = (call.kernel, call.operator, arguments, tuple(keywords.items()), storages)
        found = self._found.get(key)
        if found is None:
            launch = Launch(
                call.kernel, call.operator, 0, (), storages, arguments, keywords, mutated=tuple(sorted(call.written))
            )
            found = self._found[key] = _Found(launch, self._values(call, launch, owned, regions))
        found.positions.append(self._position)
        self._position += 1
        for region in regions:
            if any(owned[view][0] in call.written for view in region.views):
                (self._zeroed.add if call.clears else self._zeroed.discard)(region.key)

    def _values(
        self, call: _PendingCall, launch: Launch, owned: Sequence[tuple[int, torch.Tensor]], regions: Sequence[Region]
    ) -> list[Values | Pending]:
        values: list[Values | Pending] = []
        inexact: dict[int, torch.Tensor] = {}
        for storage, region in enumerate(regions):
            places = {owned[view][0] for view in region.views}
            if places <= call.output_only or places & call.cleared or region.key in self._zeroed:
                values.append(ZEROS)
                continue
            read = [owned[view][1] for view in region.views if owned[view][0] not in call.output_only]
            values.append(self._reader.read(region, read))
            if not self._reader.is_exact(region):
                inexact[storage] = region.flat(torch.uint8)
        if self._keep is not None and inexact:
            for storage, kept in self._keep(LaunchContents(launch, inexact)).items():
                values[storage] = kept
        return values


def _complete(found: _Found, fetched: Sequence[bytes]) -> Launch:
    storages = []
    for storage, values in zip(found.launch.storages, found.values, strict=True):
        if isinstance(values, Pending):
            values = values.resolve([fetched[part] for part in values.parts])
        storages.append(replace(storage, values=values))
    positions = tuple(found.positions)
    return replace(found.launch, calls=len(positions), positions=positions, storages=tuple(storages))
