"""Records the launches of a compiled module in one run: generated kernels and library calls with exact arguments.

The module's text does not hold them all: it lacks the shapes of C++ kernels, the byte counts of foreach and
user-defined Triton kernels, and the arguments of library calls. Recording does not change the results of the run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ...records.code.launch import Launch, Storage, Values
from ...source.module.definitions import read_definitions
from ...source.static.kernel_writes import Buffer, cpp_buffers, triton_buffers
from ..upstream.inductor import cpp_kernel_names
from ..upstream.launching import no_dispatch, triton_signature, watched_triton_kernels
from .arguments import describe_argument, describe_views, find_tensors, name_of, opaque
from .operator_watch import OperatorUse, OperatorWatch
from .regions import Region, find_regions
from .storage_values import NORMAL, ZEROS, Pending, ValueReader

LIMIT_BYTES = 65536
Run = Callable[[], Any]


@dataclass(frozen=True)
class LaunchContents:
    """A distinct launch just before it is made for the first time.

    Attributes:
        launch: its arguments and storages, without their values.
        storages: by index the bytes of the storages that are not recorded exactly: ``uint8`` tensors on the storages'
            device, not copies.
    """

    launch: Launch
    storages: Mapping[int, torch.Tensor]


Keep = Callable[[LaunchContents], Mapping[int, Values]]


def watch_launches(
    module: ModuleType, run: Run, *, limit_bytes: int = LIMIT_BYTES, keep: Keep | None = None
) -> list[Launch]:
    """Runs a module once and lists its distinct launches in the order of their first occurrence.

    Args:
        module: the compiled module; it is unchanged afterwards, also if ``run`` raises.
        run: calls the module once, in this thread. It should have run before, so that no kernel is tuned meanwhile.
        limit_bytes: maximum size of integer and bool storages that are recorded exactly. Larger storages are recorded
            as bounds, within which values can be drawn. Floats are drawn, except for very small storages.
        keep: called once for each distinct launch with the storages that are not recorded exactly; returns the values
            of the storages that it copied.

    Returns:
        The launches. ``mutated`` counts the positional arguments, then the keyword arguments in order. Process groups,
        generators and tensors with special layouts are ``opaque``.
    """
    recorder = _Recorder(_kernel_sources(module), limit_bytes, keep)
    with ExitStack() as watches:
        watches.enter_context(_watched_cpp_kernels(module, recorder))
        watches.enter_context(watched_triton_kernels(vars(module), recorder.triton, recorder.quietly))
        watches.enter_context(OperatorWatch(recorder.operator))
        run()
    return recorder.finish()


@contextmanager
def _watched_cpp_kernels(module: ModuleType, recorder: _Recorder) -> Iterator[None]:
    originals = {name: getattr(module, name) for name in cpp_kernel_names(vars(module))}
    for name, kernel in originals.items():
        setattr(module, name, recorder.cpp(name, kernel))
    try:
        yield
    finally:
        for name, kernel in originals.items():
            setattr(module, name, kernel)


def _kernel_sources(module: ModuleType) -> dict[str, str]:
    """The text of each kernel of a module, by the kernel's variable."""
    path = Path(getattr(module, "__file__", None) or "")
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8", errors="replace")
    return {kernel.name: kernel.source for kernel in read_definitions(ast.parse(text), text.splitlines())}


@dataclass(frozen=True)
class _Call:
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
        """A replacement of a C++ kernel that records its launches."""
        buffers = cpp_buffers(self._sources.get(name, ""))

        def call(*arguments: Any) -> Any:
            return self._kernel(name, buffers, arguments, {}, lambda: kernel(*arguments))

        return call

    def triton(self, name: str, kernel: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], launch: Run) -> Any:
        if name not in self._buffers:
            self._buffers[name] = triton_buffers(*triton_signature(kernel), self._sources.get(name))
        return self._kernel(name, self._buffers[name], arguments, keywords, launch)

    def operator(self, use: OperatorUse, launch: Run) -> Any:
        call = _Call(
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
        """The launches of the run, after its end."""
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
        call = _Call(
            name,
            None,
            arguments,
            keywords,
            frozenset(place for place, buffer in pairs if buffer.written),
            frozenset(place for place, buffer in pairs if buffer.output_only),
            cleared=frozenset(place for place, buffer in pairs if buffer.cleared),
        )
        return self._make(call, launch)

    def _make(self, call: _Call, launch: Run) -> Any:
        if self._busy:
            return launch()

        def record_and_launch() -> Any:
            with no_dispatch(), torch.no_grad():
                self._record(call)
            return launch()

        return self.quietly(record_and_launch)

    def _record(self, call: _Call) -> None:
        values = (*call.arguments, *call.keywords.values())
        owned = [(place, tensor) for place, value in enumerate(values) for tensor in find_tensors(value)]
        tensors = [tensor for _, tensor in owned]
        regions = find_regions(tensors)
        views = iter(describe_views(tensors, regions))
        described = [
            opaque(f"process group {value}") if place in call.groups else describe_argument(value, views)
            for place, value in enumerate(values)
        ]
        count = len(call.arguments)
        arguments, keywords = tuple(described[:count]), dict(zip(call.keywords, described[count:], strict=True))
        storages = tuple(
            Storage(region.size, name_of(region.dtype), region.device.type, region.alignment, NORMAL)
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
        self, call: _Call, launch: Launch, owned: Sequence[tuple[int, torch.Tensor]], regions: Sequence[Region]
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
