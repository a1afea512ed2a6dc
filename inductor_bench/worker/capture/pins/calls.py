"""The pinned library calls of this process: Inductor takes the choices of their pins when it lowers a graph.

What was taken stands as a comment in the generated code, so that code from Inductor's caches tells it, too. A failure
costs pins, and no program: a call that cannot be lowered with its pin is lowered without, and a graph that does not
compile with pins is compiled once more without.
"""

from __future__ import annotations

import copy
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.pins import PINNED, REFUSED, PinState
from inductor_bench.records.retunes.pins import InputLayout, LibraryPin, factors
from inductor_bench.store.files import read_text

from ...upstream import choices, inductor

CONVOLUTION = "aten.convolution"


class _UnpinnedError(Exception):
    """The call has no pin, or its choice cannot be taken; the message says why."""


class _UnlistedError(_UnpinnedError):
    """Inductor did not list the choice of the call's pin."""


class PinnedCalls:
    """The library calls of the process that have pins."""

    def __init__(self, pins: Iterable[LibraryPin]) -> None:
        self._pins: dict[str, list[LibraryPin]] = defaultdict(list)
        self._by_id: dict[str, LibraryPin] = {}
        self._states: dict[str, PinState] = {}
        self._is_lowering = False
        self._taken: list[LibraryPin] = []  # in the graph that is being compiled
        self._failed: Sequence[LibraryPin] = ()  # with these the compilation of that graph failed
        self._why_failed = ""
        for pin in pins:
            self._pins[pin.operator].append(pin)
            self._by_id[pin.kernel_id] = pin

    def adjust(self) -> None:
        """Adjusts the lowering of these operators; Inductor's lowerings have just been imported."""
        choices.adjust_lowerings(self._pins, self._lower)

    def adjust_compilation(self, compile_fx: ModuleType) -> None:
        """Compiles graphs once more without pins where they fail with them; ``compile_fx`` is torch's module."""
        choices.adjust_compilation(compile_fx, self._compile)

    def watch(self, codecache: ModuleType) -> None:
        """Reads what was taken in each module that the process loads; ``codecache`` is torch's module."""
        inductor.watch_compiled_modules(codecache, lambda module, path, constants: self._read(path))

    def states(self) -> tuple[PinState, ...]:
        """What became of the pins of the calls in the graphs that the process has compiled or loaded."""
        return tuple(self._states.values())

    def _compile(self, graph_module: Any, compile_graph: Callable[[], Any]) -> Any:
        self._taken = []
        try:
            graph = copy.deepcopy(graph_module.graph)
        except Exception:  # of an object in the graph
            traceback.print_exc()
            return compile_graph()
        try:
            return compile_graph()
        except Exception as error:
            if not self._taken:
                raise
            traceback.print_exc()
            self._failed, self._why_failed = self._taken, f"the code with it failed here: {_in_words(error)}"
            for pin in self._failed:
                self._note(pin, REFUSED, self._why_failed)
        graph_module.graph = graph
        try:
            return compile_graph()
        finally:
            self._failed = ()

    def _lower(self, find_call: Callable[[], choices.LoweredCall], original: Callable[[], Any]) -> Any:
        if self._is_lowering:  # a part of the call that is being lowered
            return original()
        if self._failed:
            self._tell(self._failed, REFUSED, self._why_failed)
            return original()
        self._is_lowering = True
        try:
            return self._lower_pinned(find_call(), original)
        except _UnpinnedError:
            pass
        except Exception:  # Inductor's nodes, templates and compilers fail in many ways
            traceback.print_exc()
        finally:
            self._is_lowering = False
        return original()

    def _lower_pinned(self, call: choices.LoweredCall, original: Callable[[], Any]) -> Any:
        """Lowers a call with the choice of its pin.

        Raises:
            Exception: it has none, or its choice cannot be taken.
        """
        chosen = _ChosenCall(_find_near(self._pins[call.operator], call))
        try:
            lowered = chosen.lower(original)
        except Exception as error:
            if isinstance(error, _UnpinnedError):
                self._tell(chosen.pins, REFUSED, str(error))
            else:
                self._tell(chosen.pins or chosen.only, REFUSED, f"it failed here: {_in_words(error)}")
            raise
        if chosen.pins:
            first = chosen.pins[0]
            same = [pin for pin in chosen.pins if pin.config == first.config]
            self._taken += same
            self._tell(same, PINNED)
            why = f"Inductor cannot tell its call from {first.name}'s, which has another pin"
            self._tell([pin for pin in chosen.pins if pin not in same], REFUSED, why)
        return lowered

    def _tell(self, pins: Iterable[LibraryPin], state: str, reason: str = "") -> None:
        for pin in pins:
            choices.mark_code(f"{pin.kernel_id} {state} {reason}".rstrip())
            self._note(pin, state, reason)

    def _note(self, pin: LibraryPin, state: str, reason: str) -> None:
        known = self._states.get(pin.kernel_id)
        if known is None or known.state == PINNED:
            config = pin.config if state == PINNED else {}
            self._states[pin.kernel_id] = PinState(pin.kernel_id, pin.name, state, config, reason)

    def _read(self, path: str) -> None:
        try:
            marks = choices.read_marks(read_text(Path(path)))
        except InductorBenchError:  # the module's file is gone
            return
        for kernel_id, state, *reason in (text.split(maxsplit=2) for text in marks if len(text.split()) > 1):
            if (pin := self._by_id.get(kernel_id)) is not None:
                self._note(pin, state, " ".join(reason))


class _ChosenCall:
    """One call that is being lowered with a choice of ours.

    Attributes:
        pins: those for the call, once its choices are listed; the first one's is taken.
        only: the only one for a call of these sizes, if there is one.
    """

    def __init__(self, near: Sequence[LibraryPin]) -> None:
        self.pins: Sequence[LibraryPin] = ()
        self.only = near if len(near) == 1 else ()
        self._near = near
        self._is_chosen = False

    def lower(self, original: Callable[[], Any]) -> Any:
        """Lowers the call; lists all of Inductor's choices only where the usual ones lack that of the pin.

        Raises:
            Exception: the call has no pin, or its choice cannot be taken.
        """
        if not self._near:
            raise _UnpinnedError
        try:
            with choices.autotuned(self._choose, exhaustive=False):
                return original()
        except _UnlistedError:
            if not self.pins[0].exhaustive:
                raise
        with choices.autotuned(self._choose, exhaustive=True):
            return original()

    def _choose(self, callers: list[Any]) -> list[Any]:
        """The choice of the pin whose inputs lie in memory as those of the call."""
        if self._is_chosen:  # of a part of the choice
            return callers[:1]
        if not callers:
            raise _UnpinnedError
        layouts = choices.layouts_of(choices.original_call(callers, self._near[0].operator))
        self.pins = [pin for pin in self._near if layouts is not None and _has_layouts(pin, layouts)]
        if not self.pins:
            raise _UnpinnedError
        found = choices.find_choice(callers, self.pins[0].config)
        if found is None:
            raise _UnlistedError("Inductor listed no such choice for the call")
        self._is_chosen = True
        return [found]


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _find_near(pins: Iterable[LibraryPin], call: choices.LoweredCall) -> list[LibraryPin]:
    """The pins of an operator for a call of these sizes and settings, however its inputs lie in memory."""
    sizes = choices.sizes_of(factors(call.operator, call.tensors))
    near = [pin for pin in pins if [(one.dtype, one.shape) for one in pin.inputs] == sizes]
    if not near:
        return near
    settings = choices.settings_of(call.operator, call.settings)
    return [pin for pin in near if choices.settings_of(call.operator, pin.settings) == settings]


def _has_layouts(pin: LibraryPin, layouts: Sequence[InputLayout]) -> bool:
    """Whether a call's inputs lie in memory as a pin's.

    Inductor lowers a convolution of single pixels as a product where the pixels' channels lie next to each other.
    """
    if pin.operator == CONVOLUTION and len(layouts[0].shape) != len(pin.inputs[0].shape):
        return layouts[0].stride[-1] == pin.inputs[0].stride[1] == 1
    return tuple(factors(pin.operator, layouts)) == pin.inputs
