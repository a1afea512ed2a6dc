"""The configurations that a program's processes put into their kernels, and what each process says of them.

The parent writes :class:`Pins` into one file. Each process writes :class:`PinnedProcess` as ``<pid>.pins.json`` into
the folder of the capture.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..records.retunes.pins import AnyPin, CppPin, LibraryPin, TritonPin
from ..records.tuning import Config

APPLY, COMPARE = "apply", "compare"
"""What a process does: run the pinned kernels; or run steps with Inductor's own and with the pinned ones in turn."""

PINNED, REPLACED, REFUSED, UNUSED = "pinned", "replaced", "refused", "unused"
"""States of a pin in a process: its kernel runs it; its kernel runs another configuration; it did not compile; its
kernel was loaded and has not run."""


@dataclass(frozen=True)
class Pins:
    """The pins of a program.

    Attributes:
        mode: :data:`APPLY` or :data:`COMPARE`.
        digest: a hash of all pins, by which Inductor's caches tell a program with them from one without.
        torch, triton: the versions for which the configurations were found; a process with others refuses all.
    """

    mode: str
    digest: str
    torch: str
    triton: str | None
    triton_pins: tuple[TritonPin, ...] = ()
    cpp_pins: tuple[CppPin, ...] = ()
    library_pins: tuple[LibraryPin, ...] = ()

    @property
    def all(self) -> tuple[AnyPin, ...]:
        """The pins of all kinds."""
        return (*self.triton_pins, *self.cpp_pins, *self.library_pins)

    @property
    def need_gpu(self) -> bool:
        """Whether some of the pins are for a GPU, and so for one version of Triton."""
        return bool(self.triton_pins) or not all(pin.on_host for pin in self.library_pins)

    @property
    def need_processor(self) -> bool:
        """Whether some of the pins are for the processor."""
        return bool(self.cpp_pins) or any(pin.on_host for pin in self.library_pins)


@dataclass(frozen=True)
class PinState:
    """The state of one pin in a process.

    Attributes:
        kernel_id, name: of the kernel.
        state: one of the states above.
        config: the configuration that the kernel runs; empty where it has not run.
        reason: why it does not run the pin.
        event_name: the name of its launches in a profile; empty for a C++ kernel and a library call.
        own_config: the configuration that Inductor chose here, while a comparison replaces it; otherwise empty.
    """

    kernel_id: str
    name: str
    state: str
    config: Config = field(default_factory=dict)
    reason: str = ""
    event_name: str = ""
    own_config: Config = field(default_factory=dict)


@dataclass(frozen=True)
class PinnedProcess:
    """The pins of one process; ``refusal`` says why it took none."""

    pid: int
    states: tuple[PinState, ...] = ()
    refusal: str = ""
