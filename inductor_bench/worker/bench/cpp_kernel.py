"""The C++ kernel of a standalone file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from inductor_bench.devices.cpu import CPU
from inductor_bench.messages.kernels import Change, Compiled, Facts, RecordedFacts
from inductor_bench.messages.times import Described, Measured
from inductor_bench.source.standalone.harness import cpp_main
from inductor_bench.source.standalone.harness.arguments import Arguments, touched_bytes
from inductor_bench.source.standalone.harness.comparison import TOLERANCES
from inductor_bench.source.standalone.harness.timing_cpu import measure_cpu
from inductor_bench.store.formats import codec

from ..device.cpu import CpuRaceTimer
from ..upstream.inductor import vector_widths
from .kernel import threads_of
from .times import find_values_folder, make_measured


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

    def facts(self) -> Facts:
        return Facts(
            language="cpp",
            device=CPU.type,
            recorded=codec.decode(RecordedFacts, self.recorded),
            source=self.source,
            processors=cpp_main.usable_processors(),
            vector_widths=tuple(vector_widths()),
        )

    def make_variant(self, change: Change) -> CppBenchKernel:
        return CppBenchKernel({**self.recorded, "cpp": change.cpp}, change.source, self.folder)

    def compile(self) -> Compiled:
        self.kernel.compile()
        return Compiled()

    def make_arguments(self) -> Arguments:
        return self.kernel.make_arguments()

    def compute(self, arguments: Arguments) -> list[torch.Tensor]:
        self.compile()
        self.kernel.call(arguments)
        return self.kernel.outputs(arguments)

    def verify(self) -> tuple[bool | None, str]:
        self.compile()
        return cpp_main.check_cpp(self.kernel, 0)

    def measure(self) -> Measured:
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
