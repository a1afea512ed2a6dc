"""Reads the launches of a compiled module from its text, for modules that cannot be run here.

Launches that a run recorded are more complete; see ``worker.launches.recorder``.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from ...devices.cpu import CPU
from ...records.code.launch import Launch
from ...records.code.source import KernelDefinition, ModuleSource
from ..module.calls import find_entry
from ..module.cpp_wrapper import autotuning_blocks
from ..module.reader import parse_module
from .arguments import Value, View, describe_launch
from .operators import call_parts, describe_operator, result_dtypes
from .wrapper import KernelCall, WrapperReader


def read_static_launches(text: str, source: ModuleSource) -> tuple[Launch, ...]:
    """The distinct launches of the module's kernels and library calls, in call order.

    Launches with unknown arguments are left out. Storages of whole numbers hold zeros, as in Inductor's own harness,
    because the text holds no bounds. All kernels of a multi-kernel count as launched.

    Raises:
        InductorBenchError: the text is not a compiled module.
    """
    tree = parse_module(text)
    reader = _Reader(tree, source)
    entry = find_entry(tree)
    if entry is not None:
        reader.follow(entry.body)
        return tuple(reader.launches.values())
    for block in autotuning_blocks(tree):
        reader.follow(block.body)
    # A compile-time tuning block launches each kernel once; the wrapper's calls tell the number of launches.
    names = [call.kernel for call in source.calls if call.kernel is not None]
    places = {name: tuple(place for place, other in enumerate(names) if other == name) for name in names}
    return tuple(
        replace(launch, calls=len(places[launch.kernel]), positions=places[launch.kernel])
        for launch in reader.launches.values()
        if launch.kernel in places
    )


class _Reader(WrapperReader):
    """Collects the distinct launches."""

    def __init__(self, tree: ast.Module, source: ModuleSource) -> None:
        super().__init__(tree, source)
        self.launches: dict[tuple[object, ...], Launch] = {}
        self._position = 0

    def launched(self, alternatives: Sequence[KernelCall]) -> None:
        for kernel, values in alternatives:
            launch = self._describe(kernel, values)
            if launch is not None:
                self._count(launch)
        self._position += 1

    def library_call(self, call: ast.Call) -> tuple[str, ...] | None:
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
        return result_dtypes(launch) if launch is not None else ()

    def _count(self, launch: Launch) -> None:
        key = (launch.kernel, launch.operator, launch.arguments, tuple(launch.keywords.items()), launch.storages)
        known = self.launches.get(key, replace(launch, calls=0))
        positions = (*known.positions, self._position)
        self.launches[key] = replace(known, calls=len(positions), positions=positions)

    def _describe(self, kernel: KernelDefinition, values: Sequence[Value | None]) -> Launch | None:
        pointers = self._read_pointers(kernel)
        views = [value for value in values if isinstance(value, View)]
        if pointers is None or len(pointers) != len(views) or any(view.stride is None for view in views):
            return None
        known: list[View | int | float] = []
        for value in self._with_dtypes(values, pointers):
            if value is None or isinstance(value, tuple):
                return None
            known.append(value)
        device = CPU.type if kernel.language == "cpp" else self._device
        return describe_launch(kernel, known, pointers, device, self._sizes)
