"""The protocol of the kernels of standalone files, the arguments that they share, and their times as messages."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from ...devices.table import device_of
from ...messages.kernel_requests import CompiledResources, Described, KernelTimes, VariantChange, VariantFacts
from ...source.harness import cpp_main, operator_main
from ...source.harness.common import (
    PATTERN_ELEMENTS,
    Arguments,
    Draw,
    copy_arguments,
    draw_normal,
    mutated_storages,
    restore,
    snapshot,
)
from ..device.runtime import Timer

# The protocol of the kernels of standalone files in any language.


REFUSALS = (cpp_main.MachineRefusedError, operator_main.CallRefusedError)
"""Exceptions of the harnesses for a kernel that this machine cannot run; the message is one line for the user."""

OWN_THREADS = torch.get_num_threads()
"""The number of torch's threads at the start of this process, for kernels without a recorded number."""


class LoadedKernel(Protocol):
    """A kernel with the arguments that it was recorded with."""

    launch: dict[str, Any]
    tolerances: Mapping[str, float]

    def facts(self) -> VariantFacts:
        """The facts that identify the kernel and determine its variants."""

    def make_variant(self, change: VariantChange) -> LoadedKernel:
        """A variant of the kernel.

        Raises:
            InductorBenchError: the kernel cannot be changed so.
        """

    def compile(self) -> CompiledResources:
        """Compiles the kernel unless it is compiled."""

    def make_arguments(self) -> Arguments:
        """Makes arguments like those of the recorded launch."""

    def compute(self, arguments: Arguments) -> list[torch.Tensor]:
        """The outputs of one call, which may share the arguments' storages."""

    def verify(self) -> tuple[bool | None, str]:
        """Whether the outputs match the reference in the file, and a message; ``None`` if there is no reference."""

    def measure(self) -> KernelTimes:
        """Times the kernel by itself."""

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
    """The recorded number of threads of a kernel; this process's own number if none is recorded."""
    return recorded.get("threads") or OWN_THREADS


# Converts the results of the harnesses of standalone files into messages for the parent.


def find_values_folder(launch: dict[str, Any], folder: str) -> str | None:
    """The folder of a launch's recorded values; ``None`` if no values are stored in files."""
    return folder if any(storage["values"].get("file") for storage in launch["storages"]) else None


def make_measured(timing: dict[str, Any], zeros: dict[str, Any] | None) -> KernelTimes:
    """The message for a harness's times, and for the times with zeros as indices, if any."""
    samples = _samples(timing)
    with_zeros = _samples(zeros) if zeros else {}
    return KernelTimes(samples["cold"], samples["warm"], timing.get("method", ""), with_zeros)


def _samples(timing: dict[str, Any]) -> dict[str, tuple[float, ...]]:
    """The samples in seconds of both states, in the order in which they were taken."""
    return {state: tuple(timing[state]["samples_s"]) for state in ("cold", "warm")}


# Computes kernels with the same arguments, and lends these to their timers.


USUAL_STORAGES = 8
"""Number of storages of floating-point values that few kernels exceed."""


@dataclass(frozen=True)
class _Computed:
    """The launch key and arguments of the last computed kernel, and the contents that it overwrites."""

    launched: str
    arguments: Arguments
    before: dict[int, Any]


class LastComputed:
    """The arguments of the last computed kernel. Kernels with one launch key get the same ones."""

    def __init__(self) -> None:
        self._last: _Computed | None = None

    def compute(self, kernel: LoadedKernel) -> list[Any]:
        """The outputs of a kernel, valid until the next call."""
        launched, last = launch_key(kernel), self._last
        if last is None or last.launched != launched:
            self._last = None
            arguments = kernel.make_arguments()
            before = snapshot(arguments, mutated_storages(kernel.launch))
            last = self._last = _Computed(launched, arguments, before)
        else:
            restore(last.arguments, last.before)
        return kernel.compute(last.arguments)

    def arguments_for(self, kernel: LoadedKernel) -> Arguments:
        """Arguments for a timer of the kernel: a copy of those that it was computed with, if it was."""
        last = self._last
        devices = {str(storage.device) for storage in last.arguments.storages} if last is not None else set()
        if last is None or last.launched != launch_key(kernel) or len(devices) != 1:
            return kernel.make_arguments()
        restore(last.arguments, last.before)
        return copy_arguments(kernel.launch, last.arguments, devices.pop())

    def forget(self) -> None:
        """Frees the arguments."""
        self._last = None


def launch_key(kernel: LoadedKernel) -> str:
    """A key that is equal for kernels with equal launches and timers."""
    return json.dumps([kernel.launch, kernel.timer_key()], sort_keys=True)


def draw_on(device: str) -> Draw:
    """Draws for comparisons on a device. On a GPU each seed has one pattern, which all kernels of the process share."""
    return draw_normal if device_of(device).runs_on_host else partial(_draw_shared, device)


def _draw_shared(device: str, count: int, seed: int) -> torch.Tensor:
    if count > PATTERN_ELEMENTS:
        return draw_normal(count, seed)
    return _pattern_on(device, seed)[:count]


def draw_ahead() -> None:
    """Draws on the host what most kernels' arguments are filled with: 40 ms for each storage, once in a process.

    One core does it: others compile meanwhile, and threads that share a core wait for each other.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for storage in range(USUAL_STORAGES):
            draw_normal(PATTERN_ELEMENTS, storage)
    finally:
        torch.set_num_threads(threads)


@functools.lru_cache(maxsize=16)
def _pattern_on(device: str, seed: int) -> torch.Tensor:
    return draw_normal(PATTERN_ELEMENTS, seed).to(device)
