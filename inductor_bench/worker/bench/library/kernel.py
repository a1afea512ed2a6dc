"""The library call of a standalone file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from inductor_bench.devices.table import device_of
from inductor_bench.messages.kernels import Change, Compiled, Facts, LibraryConfigs, RecordedFacts
from inductor_bench.messages.times import Described, Measured
from inductor_bench.source.standalone.harness import cpp_main, operator_main
from inductor_bench.source.standalone.harness.arguments import Arguments
from inductor_bench.source.standalone.harness.comparison import TOLERANCES
from inductor_bench.store.formats import codec

from ...device.protocol import Timer
from ...device.runtimes import runtime_of
from ..computed import draw_on
from ..kernel import threads_of
from ..times import find_values_folder, make_measured
from . import variants


class OperatorBenchKernel:
    """A library call.

    The ``change`` to a variant holds ``threads``, ``cudnn_benchmark``, or the ``config`` of one of Inductor's choices.

    Args:
        recorded: the file's ``RECORDED``.
        folder: the folder of the file.
        operator: the call as a variant makes it; ``None`` for the call of the file.
    """

    def __init__(self, recorded: dict[str, Any], folder: str, operator: operator_main.Operator | None = None) -> None:
        if device_of(recorded["device_type"]).runs_on_host:
            recorded = {**recorded, "threads": threads_of(recorded)}
        self.recorded, self.folder = recorded, folder
        self.operator = operator or variants.open_operator(recorded, folder)
        self.others: variants.LibraryCandidates | None = None
        self.launch = self.operator.launch
        self.runtime = runtime_of(self.operator.device)
        special = {} if self.runtime.device.runs_on_host else operator_main.GPU_TOLERANCES
        self.tolerances: Mapping[str, float] = {**TOLERANCES, **special}

    def facts(self) -> Facts:
        return Facts(
            language="operator",
            device=self.operator.device,
            recorded=codec.decode(RecordedFacts, self.recorded),
            processors=cpp_main.usable_processors(),
        )

    def configs(self, wide: bool = False) -> LibraryConfigs:
        """The configurations of the call; see :meth:`variants.LibraryCandidates.listed`."""
        if self.others is None or (wide and not self.others.wide):
            self.others = variants.LibraryCandidates(self.operator, wide)
        return self.others.listed()

    def make_variant(self, change: Change) -> OperatorBenchKernel:
        if not change.config:
            return OperatorBenchKernel({**self.recorded, **change.recorded()}, self.folder)
        others = self.others or variants.LibraryCandidates(self.operator)
        return OperatorBenchKernel(self.recorded, self.folder, others.operator(change.config))

    def compile(self) -> Compiled:
        self.operator.find()
        return Compiled()

    def make_arguments(self) -> Arguments:
        return self.operator.make_arguments(draw=draw_on(self.operator.device))

    def compute(self, arguments: Arguments) -> list[torch.Tensor]:
        torch.manual_seed(0)  # each variant must draw the same random numbers
        self.operator.call(arguments)
        return self.operator.compared(arguments)

    def verify(self) -> tuple[bool | None, str]:
        return operator_main.check_operator(self.operator, 0)

    def measure(self) -> Measured:
        arguments = self.operator.make_arguments()
        timer = self.runtime.measure_call
        times = timer(self.operator.launch, arguments, self.operator.bind)
        return make_measured(times, self.operator.measure_with_zeros(timer))

    def timer_key(self) -> Any:
        return find_values_folder(self.launch, self.folder)

    def make_timer(self, arguments: Arguments) -> Timer:
        return self.runtime.make_timer(self.operator.launch, arguments, self.operator.bind)

    def bind(self, arguments: Arguments) -> Callable[[], Any]:
        return self.operator.bind(arguments)

    def prepare(self) -> None:
        if self.runtime.device.runs_on_host:
            torch.set_num_threads(self.recorded["threads"])

    def describe(self) -> Described:
        return variants.describe(self.operator)
