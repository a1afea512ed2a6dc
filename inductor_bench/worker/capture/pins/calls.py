"""The pinned library calls of this process: Inductor takes the choices of their pins when it lowers a graph.

What was taken stands as a comment in the generated code, so that code from Inductor's caches tells it, too. Whatever
fails here costs a pin, and no program: the call is then lowered as if it had none.
"""

from __future__ import annotations

import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.pins import PINNED, REFUSED, PinState
from inductor_bench.records.retunes.pins import LibraryPin, factors
from inductor_bench.store.files import read_text

from ...upstream import choices, inductor, pinning

UNLISTED = "Inductor listed no such choice for the call"
CONVOLUTION = "aten.convolution"


class _NotPinnedError(Exception):
    """The call has no pin, or its choice cannot be taken."""


class PinnedCalls:
    """The library calls of the process that have pins."""

    def __init__(self, pins: Iterable[LibraryPin]) -> None:
        self._pins: dict[str, list[LibraryPin]] = defaultdict(list)
        self._by_id: dict[str, LibraryPin] = {}
        self._states: dict[str, PinState] = {}
        self._is_lowering = False
        for pin in pins:
            self._pins[pin.operator].append(pin)
            self._by_id[pin.kernel_id] = pin

    def adjust(self) -> None:
        """Adjusts the lowering of these operators; Inductor's lowerings have just been imported."""
        choices.adjust_lowerings(self._pins, self._lower)

    def watch(self, codecache: ModuleType) -> None:
        """Reads what was taken in each module that the process loads; ``codecache`` is torch's module."""
        inductor.watch_compiled_modules(codecache, lambda module, path, constants: self._read(path))

    def states(self) -> tuple[PinState, ...]:
        """What became of the pins of the calls in the modules that the process has loaded."""
        return tuple(self._states.values())

    def _lower(self, find_call: Callable[[], choices.LoweredCall], original: Callable[[], Any]) -> Any:
        if self._is_lowering:  # a part of the call that is being lowered
            return original()
        self._is_lowering = True
        try:
            return self._lower_pinned(find_call(), original)
        except _NotPinnedError:
            pass
        except pinning.launcher_errors():
            traceback.print_exc()
        finally:
            self._is_lowering = False
        return original()

    def _lower_pinned(self, call: choices.LoweredCall, original: Callable[[], Any]) -> Any:
        """Lowers a call with the choice of its pin.

        Raises:
            _NotPinnedError: it has none that can be taken.
        """
        near = [pin for pin in self._pins[call.operator] if _has_sizes(pin, call)]
        if not near:
            raise _NotPinnedError
        is_chosen = False

        def choose(callers: list[Any]) -> list[Any]:
            nonlocal is_chosen
            if is_chosen:  # of a part of the choice
                return callers[:1]
            found, is_chosen = _choose(near, callers), True
            return [found]

        with choices.autotuned(choose, exhaustive=any(pin.exhaustive for pin in near)):
            return original()

    def _read(self, path: str) -> None:
        try:
            marks = choices.read_marks(read_text(Path(path)))
        except InductorBenchError:  # the module's file is gone
            return
        for kernel_id, state, *reason in (text.split(maxsplit=2) for text in marks if len(text.split()) > 1):
            pin, known = self._by_id.get(kernel_id), self._states.get(kernel_id)
            if pin is not None and (known is None or known.state == PINNED):
                config = pin.config if state == PINNED else {}
                self._states[kernel_id] = PinState(kernel_id, pin.name, state, config, " ".join(reason))


def _has_sizes(pin: LibraryPin, call: choices.LoweredCall) -> bool:
    sizes = choices.sizes_of(factors(call.operator, call.tensors))
    if sizes != [(one.dtype, one.shape) for one in pin.inputs]:
        return False
    return choices.settings_of(call.operator, pin.settings) == call.settings


def _choose(near: Sequence[LibraryPin], callers: list[Any]) -> Any:
    """The choice of the pin whose inputs lie in memory as those of the call.

    Raises:
        _NotPinnedError: there is no such pin, Inductor does not list its choice, or it does not compile.
    """
    if not callers:
        raise _NotPinnedError
    layouts = choices.layouts_of(choices.original_call(callers, near[0].operator))
    pin = next((pin for pin in near if layouts is not None and _has_layouts(pin, layouts)), None)
    if pin is None:
        raise _NotPinnedError
    found = next((caller for config, caller in choices.name_choices(callers) if config == pin.config), None)
    why = UNLISTED
    if found is not None:
        try:
            choices.compile_template(found)
        except pinning.launcher_errors() as error:
            why, found = f"it did not compile here: {' '.join(str(error).split())[:200]}", None
    choices.mark_code(f"{pin.kernel_id} {PINNED}" if found is not None else f"{pin.kernel_id} {REFUSED} {why}")
    if found is None:
        raise _NotPinnedError
    return found


def _has_layouts(pin: LibraryPin, layouts: Sequence[Any]) -> bool:
    """Whether a call's inputs lie in memory as a pin's.

    Inductor lowers a convolution of single pixels as a product where the pixels' channels lie next to each other.
    """
    if pin.operator == CONVOLUTION and len(layouts[0].shape) != len(pin.inputs[0].shape):
        return pin.inputs[0].stride[1] == 1
    return tuple(factors(pin.operator, layouts)) == pin.inputs
