"""The protocol of the kernels of standalone files in any language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from inductor_bench.messages.kernels import Change, Compiled, Facts
from inductor_bench.messages.times import Described, Measured
from inductor_bench.source.standalone.harness import cpp_main, operator_main
from inductor_bench.source.standalone.harness.arguments import Arguments

from ..device.protocol import Timer

REFUSALS = (cpp_main.RefusedError, operator_main.RefusedError)
"""Exceptions of the harnesses for a kernel that this machine cannot run; the message is one line for the user."""

OWN_THREADS = torch.get_num_threads()
"""The number of torch's threads at the start of this process, for kernels without a recorded number."""


class Kernel(Protocol):
    """A kernel with the arguments that it was recorded with."""

    launch: dict[str, Any]
    tolerances: Mapping[str, float]

    def facts(self) -> Facts:
        """The facts that identify the kernel and determine its variants."""

    def make_variant(self, change: Change) -> Kernel:
        """A variant of the kernel.

        Raises:
            InductorBenchError: the kernel cannot be changed so.
        """

    def compile(self) -> Compiled:
        """Compiles the kernel unless it is compiled."""

    def make_arguments(self) -> Arguments:
        """Makes arguments like those of the recorded launch."""

    def compute(self, arguments: Arguments) -> list[torch.Tensor]:
        """The outputs of one call, which may share the arguments' storages."""

    def verify(self) -> tuple[bool | None, str]:
        """Whether the outputs match the reference in the file, and a message; ``None`` where there is no reference."""

    def measure(self) -> Measured:
        """Times the kernel alone."""

    def make_timer(self, arguments: Arguments) -> Timer:
        """Makes the timer that samples the kernel and its variants with these arguments."""

    def timer_key(self) -> Any:
        """JSON data that the timer depends on in addition to the launch."""

    def bind(self, arguments: Any) -> Callable[[], Any]:
        """A function that makes the call and does nothing else."""

    def prepare(self) -> None:
        """Sets the process-wide settings of the kernel before a sample, such as the number of threads."""

    def describe(self) -> Described:
        """The facts of the kernel that are known after it has run."""


def threads_of(recorded: Mapping[str, Any]) -> int:
    """The recorded number of threads of a kernel; this process's own number where none is recorded."""
    return recorded.get("threads") or OWN_THREADS
