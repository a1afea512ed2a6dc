"""The protocol of device runtimes, what all accelerators share, the turns at a device, and its measured roofs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch

from ...devices.protocol import Device
from ...errors import InductorBenchError
from ...records.run import CacheRoof, Environment
from ...source.harness.common import Arguments
from ...store.lock import LOADS_BESIDE, DeviceTurn
from ..fast_start import without_collection
from ..upstream import inductor as upstream
from ..upstream.inductor import import_generated_codes_imports, load_compiled_module

# The result of the measurement of a device's peaks.


@dataclass(frozen=True)
class Roofs:
    """The fields of ``records.run.Peaks`` that are measured. A CPU has no launch floor."""

    memory_bandwidth: float
    matmul_flops: dict[str, float]
    cache_bytes: int | None
    cache_bandwidth: float | None
    launch_floor_s: float | None = None
    cache_roofs: tuple[CacheRoof, ...] = ()


# The protocol of device runtimes: what a worker can do with any kind of device. ``runtimes`` lists them.


Bind = Callable[[Arguments], Callable[[], Any]]


class Timer(Protocol):
    """Samples a kernel and its variants with one set of arguments, as the harness of standalone files does."""

    @property
    def method(self) -> str:
        """The method of timing, as the harness names it."""

    @property
    def retaken(self) -> int:
        """Number of repeated attempts. An attempt is repeated if the host was late with a launch."""

    def bind(self, bind: Bind) -> Any:
        """Returns the call of a kernel with the arguments of the timer."""

    def run_first(self, call: Any, state: str) -> None:
        """Runs a call once in a state (``cold`` or ``warm``), unless that was done before.

        :meth:`get_ready` does this, too.
        """

    def get_ready(self, call: Any, state: str) -> None:
        """Does the work that the first sample of a call in a state needs before it can be timed."""

    def warm(self, call: Any) -> float:
        """Seconds of one call with the kernel's data in the caches."""

    def cold(self, call: Any) -> float:
        """Seconds of one call with the kernel's data out of the caches."""


class DeviceRuntime(Protocol):
    """The operations of a worker on one kind of device, through torch."""

    device: Device

    captures_graphs: bool
    """Whether launches can be captured as one graph and replayed."""

    def is_present(self) -> bool:
        """Whether torch sees such a device."""

    def check_support(self) -> None:
        """Raises an error for a device that this tool does not support under this name.

        Raises:
            InductorBenchError: this torch uses the name for an unsupported device.
        """

    def check_presence(self, place: torch.device) -> None:
        """Raises an error for a missing device.

        Raises:
            InductorBenchError: the device is missing.
        """

    def name(self, place: torch.device) -> str:
        """The name of one device."""

    def describe(self, environment: Environment) -> Environment:
        """Adds the facts of such a device, if there is one, to the environment. No exception is raised."""

    def synchronize(self) -> None:
        """Waits for the end of all launched work."""

    def reset_peak_memory(self) -> None:
        """Resets the peak of :meth:`peak_memory_bytes`."""

    def peak_memory_bytes(self) -> int | None:
        """The peak memory in bytes since the reset; ``None`` if it is unknown."""

    def capture_graph(self, run: Callable[[], Any]) -> Callable[[], None]:
        """Captures the launches of a call as a graph, and returns a function that replays it.

        Raises:
            RuntimeError, AssertionError: the call cannot be captured.
        """

    def preserve_random_state(self) -> AbstractContextManager[None]:
        """A context that restores the random states of the host and of all such devices at its end."""

    def measure_roofs(self, place: torch.device) -> Roofs:
        """Measures the roofs of one device.

        Raises:
            InductorBenchError: the roofs of such a device cannot be measured.
        """

    def measure_call(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> dict[str, Any]:
        """Times one kernel, as its standalone file does; returns ``cold``, ``warm`` and ``method``.

        Args:
            launch: the encoded ``Launch``.
            arguments: the arguments for the launch.
            bind: makes the timed call from the arguments.
            how: further options of the file (``moved``, ``reset``, ``kept``), for a GPU only.
        """

    def make_timer(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> Timer:
        """Makes a timer that samples a kernel and its variants; its arguments are those of :meth:`measure_call`."""


# The runtime of device types without a file of their own, such as ``xpu``.
#
# Modules run on them and are profiled. Roofs and standalone kernels are not measured.


class AcceleratorRuntime:
    """A device type, through the functions that all of torch's device modules have.

    Args:
        device: the facts of the device type.
    """

    captures_graphs = False

    def __init__(self, device: Device) -> None:
        self.device = device

    def is_present(self) -> bool:
        return self._torch() is not None and bool(self._torch().is_available())

    def check_support(self) -> None:
        return

    def check_presence(self, place: torch.device) -> None:
        if not self.is_present():
            raise InductorBenchError(
                f"no {self.device.type} device is available to this torch", "give cpu or cuda", "no-such-device"
            )

    def name(self, place: torch.device) -> str:
        return str(self._torch().get_device_name(place))

    def describe(self, environment: Environment) -> Environment:
        return environment

    def synchronize(self) -> None:
        self._torch().synchronize()

    def reset_peak_memory(self) -> None:
        return

    def peak_memory_bytes(self) -> int | None:
        return None

    def capture_graph(self, run: Callable[[], Any]) -> Callable[[], None]:
        raise RuntimeError(f"graphs are not captured on a {self.device.type} device")

    def preserve_random_state(self) -> AbstractContextManager[None]:
        numbers = range(self._torch().device_count())
        return torch.random.fork_rng(devices=numbers, device_type=self.device.type)

    def measure_roofs(self, place: torch.device) -> Roofs:
        raise InductorBenchError(f"no way to measure the peaks of a {self.device.type} device is known")

    def measure_call(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> dict[str, Any]:
        raise InductorBenchError(f"no way to time a kernel on a {self.device.type} device is known")

    def make_timer(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> Timer:
        raise InductorBenchError(f"no way to time a kernel on a {self.device.type} device is known")

    def _torch(self) -> Any:
        """Torch's module for devices of this type; ``None`` if this torch has none."""
        return getattr(torch, self.device.type, None)


# Takes turns at a GPU that several processes share.
#
# A process uses the GPU in its turn only, and gives the turn up while it imports and compiles.


class SharedDevice:
    """The GPU of this process. If processes share it, the one that holds the lock has its *turn*.

    All methods do nothing if the GPU is not shared.
    """

    def __init__(self) -> None:
        self._turn = DeviceTurn()

    def on_wait(self, listener: Callable[[bool], None]) -> None:
        """Calls ``listener`` with ``True`` before each wait for the turn, and with ``False`` after it."""
        self._turn.on_wait = listener

    def take_turn(self) -> None:
        """Waits for the turn. The process keeps it until it ends, calls :meth:`release_turn`, or compiles."""
        self._turn.take()

    def release_turn(self) -> None:
        """Releases the turn. The next :meth:`take_turn` takes it again."""
        if not self._turn.held:
            return
        import torch

        try:
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()  # launched work must end before another's turn begins
        finally:
            self._turn.give_up()

    def release_turn_while_compiling(self, mode: str | None) -> None:
        """From now on, releases the turn during each compilation, unless the compilation measures kernels.

        Args:
            mode: the mode of ``torch.compile``; the max-autotune modes measure kernels while they compile.
        """
        searches = (mode or "").startswith("max-autotune") or upstream.benchmarks_in_every_mode()
        if self._turn.is_shared and not searches and not upstream.benchmarks_elsewhere():
            upstream.call_on_compiling(self.release_turn, self._turn.take)
            self.take_turn_while_compiling()

    def take_turn_while_compiling(self) -> None:
        """Takes the turn for each short use of the GPU by the compiler, unless this process holds it."""
        if self._turn.is_shared:
            upstream.surround_use_while_compiling(self.hold_turn, loads=not os.environ.get(LOADS_BESIDE))

    @contextlib.contextmanager
    def release_turn_inside(self, may_leave: Callable[[], bool]) -> Iterator[None]:
        """In the block, the turn is released, if this process holds it and ``may_leave()`` is true."""
        if not self._turn.held or not may_leave():
            yield
            return
        self.release_turn()
        try:
            yield
        finally:
            self._turn.take()

    @contextlib.contextmanager
    def hold_turn(self) -> Iterator[None]:
        """In the block, this process holds the turn, for work that ends inside.

        A use within another use belongs to that one.
        """
        if self._turn.held:
            yield
            return
        self._turn.take()
        try:
            yield
        finally:
            self.release_turn()


# The turns of this process at its device, which other workers of the same retune may share.


_DEVICE = SharedDevice()


def load_in_turn(path: Path, loaded: Callable[[], None] = lambda: None) -> ModuleType:
    """Imports a compiled module, then waits for this process's turn at its GPU, and keeps it until the process ends.

    Other processes may use the GPU while the module's kernels are read or compiled, which takes most of the time.

    Args:
        path: the file of the module.
        loaded: called before the wait.
    """
    with without_collection():
        import_generated_codes_imports()
    _DEVICE.take_turn_while_compiling()
    module = load_compiled_module(path)
    loaded()
    _DEVICE.take_turn()
    return module


def letting_others_use_device(may_leave: Callable[[], bool]) -> AbstractContextManager[None]:
    """In the block, other processes may use the device if ``may_leave``. This process does not use it there."""
    return _DEVICE.release_turn_inside(may_leave)


def using_device_alone() -> AbstractContextManager[None]:
    """In the block, this process uses the device and no other worker of the retune does.

    All work that is launched inside ends inside. A use within another use belongs to that one.
    """
    return _DEVICE.hold_turn()


def on_wait(listener: Callable[[bool], None]) -> None:
    """Calls ``listener`` with ``True`` before each wait for the device, and with ``False`` after it."""
    _DEVICE.on_wait(listener)
