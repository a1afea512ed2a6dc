"""The C++ kernel of a standalone file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ...devices.protocol import CPU
from ...messages.kernel_requests import (
    CompiledResources,
    Described,
    KernelTimes,
    RecordedFacts,
    VariantChange,
    VariantFacts,
)
from ...source.harness import cpp_main
from ...source.harness.arguments import Arguments, touched_bytes
from ...source.harness.fingerprints import TOLERANCES
from ...source.harness.timing_cpu import measure_cpu
from ...store import codec
from ..device.cpu_runtime import CpuRaceTimer
from ..upstream.inductor import vector_widths
from .kernel_protocol import find_values_folder, make_measured, threads_of


class CppBenchKernel:
    """A C++ kernel. The ``change`` to a variant holds ``source`` and ``cpp``.

    Args:
        recorded: the file's ``RECORDED``.
        source: the C++ text.
        folder: the folder of the file.
    """

    tolerances: Mapping[str, float] = TOLERANCES

    def __init__(self, recorded: dict[str, Any], source: str, folder: str) -> None:
        needs = {**recorded["cpp"], "threads": threads_of(recorded["cpp"])}
        self.recorded, self.source, self.folder = {**recorded, "cpp": needs}, source, folder
        self.kernel = cpp_main.CppKernel(self.recorded, source, folder)
        self.launch = self.kernel.launch

    def facts(self) -> VariantFacts:
        return VariantFacts(
            language="cpp",
            device=CPU.type,
            recorded=codec.decode(RecordedFacts, self.recorded),
            source=self.source,
            processors=cpp_main.usable_processors(),
            vector_widths=tuple(vector_widths()),
        )

    def make_variant(self, change: VariantChange) -> CppBenchKernel:
        return CppBenchKernel({**self.recorded, "cpp": change.cpp}, change.source, self.folder)

    def compile(self) -> CompiledResources:
        self.kernel.compile()
        return CompiledResources()

    def make_arguments(self) -> Arguments:
        return self.kernel.make_arguments()

    def compute(self, arguments: Arguments) -> list[torch.Tensor]:
        self.compile()
        self.kernel.call(arguments)
        return self.kernel.outputs(arguments)

    def verify(self) -> tuple[bool | None, str]:
        self.compile()
        return cpp_main.check_cpp(self.kernel, 0)

    def measure(self) -> KernelTimes:
        self.compile()
        times = measure_cpu(self.kernel.launch, self.kernel.make_arguments(), self.kernel.bind)
        return make_measured(times, self.kernel.measure_with_zeros())

    def timer_key(self) -> Any:
        return find_values_folder(self.launch, self.folder)

    def make_timer(self, arguments: Arguments) -> CpuRaceTimer:
        return CpuRaceTimer(self.kernel.launch, arguments, self.kernel.bind)

    def bind(self, arguments: Arguments) -> Callable[[], Any]:
        return self.kernel.bind(arguments)

    def prepare(self) -> None:
        self.kernel.set_threads()

    def describe(self) -> Described:
        return Described(moved_bytes=touched_bytes(self.kernel.launch))
