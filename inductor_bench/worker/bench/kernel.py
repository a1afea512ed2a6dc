"""One interface to the kernels of standalone files, whatever they are written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from inductor_bench.messages.kernels import Change, Compiled, Facts
from inductor_bench.messages.times import Described, Measured
from inductor_bench.source.standalone.harness import cpp_main, operator_main
from inductor_bench.source.standalone.harness.arguments import Arguments

REFUSALS = (cpp_main.RefusedError, operator_main.RefusedError)
"""What the harnesses raise where this machine cannot run a kernel; the message is one line for the user."""

OWN_THREADS = torch.get_num_threads()
"""Threads of torch when this process began: of a kernel whose file does not say how many it had."""


class Kernel(Protocol):
    """A kernel with the arguments that it was recorded with."""

    launch: dict[str, Any]
    tolerances: Mapping[str, float]

    def facts(self) -> Facts:
        """What it is, and what its variants need to know."""

    def varied(self, change: Change) -> Kernel:
        """Another one like it; :class:`InductorBenchError` where there can be none."""

    def compile(self) -> Compiled:
        """Compiles it, if that is still to be done."""

    def make_arguments(self) -> Arguments:
        """The arguments of the recorded launch."""

    def compute(self, arguments: Arguments) -> list[torch.Tensor]:
        """What one call computes from these; it may lie in their storages."""

    def verify(self) -> tuple[bool | None, str]:
        """How that compares with the reference in the file."""

    def measure(self) -> Measured:
        """Its times by itself."""

    def make_timer(self) -> Any:
        """What times it and its variants, sample by sample."""

    def launched_with(self) -> Any:
        """What its timer depends on beside the launch, as JSON data."""

    def bind(self, arguments: Any) -> Callable[[], Any]:
        """The call and nothing else."""

    def prepare(self) -> None:
        """Sets what the whole process shares, before it is timed."""

    def described(self) -> Described:
        """What is known of it after it has run."""


def threads_of(recorded: Mapping[str, Any]) -> int:
    """The threads that a kernel was recorded with; this process's own where its file does not say."""
    return recorded.get("threads") or OWN_THREADS
