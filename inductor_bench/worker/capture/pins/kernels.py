"""The pinned kernels of this process: what each would launch by itself, and what its pin launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from inductor_bench.messages.pins import PINNED, REFUSED, REPLACED, UNUSED, PinState
from inductor_bench.records.retunes.pins import CppPin, TritonPin

from ...upstream import pinning


class PinnedKernel(Protocol):
    """One kernel of the process that has a pin."""

    def use(self, tuned: bool) -> None:
        """Launches the pinned configuration from now on, or Inductor's own."""

    def state(self) -> PinState:
        """What the kernel launches now."""


@dataclass
class PinnedAutotuner:
    """A Triton kernel.

    Attributes:
        autotuner: Inductor's object.
        pin: its pin.
        tuned: the launcher of the pin; ``None`` where it did not compile.
        reason: why it did not compile.
        own: the launchers of Inductor's own configurations, while the pin is in use; empty otherwise.
    """

    autotuner: Any
    pin: TritonPin
    tuned: Any
    reason: str = ""
    own: list[Any] = field(default_factory=list)

    def use(self, tuned: bool) -> None:
        """As in :class:`PinnedKernel`. A kernel that has not chosen its own configuration yet stays as it is."""
        if tuned and not self.own and self.tuned is not None and len(self.autotuner.launchers) == 1:
            self.own = self.autotuner.launchers
            pinning.set_launchers(self.autotuner, [self.tuned])
        elif not tuned and self.own:
            pinning.set_launchers(self.autotuner, self.own)
            self.own = []

    def state(self) -> PinState:
        launchers, config = self.autotuner.launchers, {}
        if len(launchers) == 1:
            config = pinning.values_of(launchers[0].config)
        if config == self.pin.config:
            state, reason = PINNED, ""
        elif self.tuned is None:
            state, reason = REFUSED, self.reason
        elif not config:
            state, reason = UNUSED, "its kernel has not run"
        else:
            state, reason = REPLACED, "Inductor chose another config after the pin"
        name = self.autotuner.fn.__name__
        own = pinning.values_of(self.own[0].config) if self.own else {}
        return PinState(self.pin.kernel_id, self.pin.name, state, config, reason, event_name=name, own_config=own)


@dataclass
class PinnedCppKernel:
    """A C++ kernel, which generated code calls as a function.

    Attributes:
        pin: its pin.
        tuned: the compiled text of the pin; ``None`` where it did not compile.
        own: the compiled text of Inductor; ``None`` where only the pin is compiled.
        reason: why the pin did not compile.
    """

    pin: CppPin
    tuned: Callable[..., Any] | None
    own: Callable[..., Any] | None = None
    reason: str = ""
    current: Callable[..., Any] = field(init=False)

    def __post_init__(self) -> None:
        found = self.own or self.tuned
        assert found is not None
        self.current = found

    def __call__(self, *arguments: Any) -> Any:
        return self.current(*arguments)

    def use(self, tuned: bool) -> None:
        found = self.tuned if tuned else self.own
        if found is not None:
            self.current = found

    def state(self) -> PinState:
        if self.tuned is None:
            return PinState(self.pin.kernel_id, self.pin.name, REFUSED, reason=self.reason)
        if self.current is not self.tuned:
            return PinState(self.pin.kernel_id, self.pin.name, REPLACED, reason="Inductor's own text is in use")
        return PinState(self.pin.kernel_id, self.pin.name, PINNED, self.pin.config)
