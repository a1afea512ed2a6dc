"""The pins of this process: reads them, puts them into kernels and library calls, and writes what they did."""

from __future__ import annotations

import atexit
import copy
import functools
import json
import os
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from ...errors import InductorBenchError
from ...messages.observed import (
    CAPTURE_FOLDER,
    COMPARE,
    PINNED,
    PINS,
    REFUSED,
    REPLACED,
    UNUSED,
    PinnedProcess,
    Pins,
    PinState,
)
from ...records.edit import CPP, TRITON, EditPin
from ...records.retune import CppPin, InputLayout, LibraryPin, TritonPin, list_factors
from ...source.generated_text import compute_cpp_kernel_id
from ...store import codec
from ...store.files import read_json, read_text
from ..upstream import inductor, pinning
from .edited_kernels import NOT_RUN, OWN_SOURCE, CallEdits, EditedSources, compile_triton, try_to_compile

# The pinned kernels of this process: what each launches without its pin, and with it.


class PinnedKernel(Protocol):
    """One kernel of the process that has a pin."""

    pin: Any  # its pin

    def switch_config(self, tuned: bool) -> None:
        """Launches from now on the pinned configuration, or Inductor's own."""

    def state(self) -> PinState:
        """What the kernel launches now."""


@dataclass
class PinnedAutotuner:
    """A Triton kernel whose configuration is pinned."""

    autotuner: Any  # Inductor's object
    pin: TritonPin  # its pin
    tuned: Any  # the launcher of the pin; ``None`` if it did not compile
    reason: str = ""  # why it did not compile
    # the launchers of Inductor's own configurations, while the pin is in use; empty otherwise
    own: list[Any] = field(default_factory=list)

    def switch_config(self, tuned: bool) -> None:
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
            config = pinning.read_config_values(launchers[0].config)
        if config == self.pin.config:
            state, reason = PINNED, ""
        elif self.tuned is None:
            state, reason = REFUSED, self.reason
        elif not config:
            state, reason = UNUSED, NOT_RUN
        else:
            state, reason = REPLACED, "Inductor chose another config after the pin"
        name = self.autotuner.fn.__name__
        own = pinning.read_config_values(self.own[0].config) if self.own else {}
        return PinState(self.pin.kernel_id, self.pin.name, state, config, reason, event_name=name, own_config=own)


@dataclass
class PinnedCppKernel:
    """A C++ kernel, which generated code calls as a function."""

    pin: CppPin | EditPin  # its pin
    tuned: Callable[..., Any] | None  # the compiled text of the pin; ``None`` if it did not compile
    own: Callable[..., Any] | None = None  # the compiled text of Inductor; ``None`` where only the pin is compiled
    reason: str = ""  # why the pin did not compile
    current: Callable[..., Any] = field(init=False)
    called: bool = False  # whether the kernel has been called through this object

    def __post_init__(self) -> None:
        found = self.own or self.tuned
        assert found is not None
        self.current = found

    def __call__(self, *arguments: Any) -> Any:
        self.called = True
        return self.current(*arguments)

    def switch_config(self, tuned: bool) -> None:
        found = self.tuned if tuned else self.own
        if found is not None:
            self.current = found

    def state(self) -> PinState:
        if self.tuned is None:
            return PinState(self.pin.kernel_id, self.pin.name, REFUSED, reason=self.reason)
        if self.current is not self.tuned:
            return PinState(self.pin.kernel_id, self.pin.name, REPLACED, reason=OWN_SOURCE)
        if isinstance(self.pin, EditPin) and not self.called:
            return PinState(self.pin.kernel_id, self.pin.name, UNUSED, reason=NOT_RUN)
        config = {} if isinstance(self.pin, EditPin) else self.pin.config
        return PinState(self.pin.kernel_id, self.pin.name, PINNED, config)


# The pinned library calls of this process: Inductor takes the choices of their pins when it lowers a graph.
#
# A comment in the generated code names the choice that was taken, so that code from Inductor's caches tells it, too. A
# failure ends no program: a call that cannot be lowered with its pin is lowered without it, and a graph that does not
# compile with pins is compiled once more without them.


CONVOLUTION = "aten.convolution"


class _UnpinnedError(Exception):
    """The call has no pin, or the choice of its pin cannot be taken; the message says why."""


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
        pinning.adjust_lowerings(self._pins, self._lower)

    def adjust_compilation(self, compile_fx: ModuleType) -> None:
        """Compiles graphs once more without pins if they fail with them; ``compile_fx`` is torch's module."""
        pinning.adjust_compilation(compile_fx, self._compile)

    def watch(self, codecache: ModuleType) -> None:
        """Reads in each module that the process loads which choices were taken; ``codecache`` is torch's module."""
        inductor.watch_compiled_modules(codecache, lambda module, path, constants: self._read(path))

    def states(self) -> tuple[PinState, ...]:
        """Returns the states of the pins of the calls in the graphs that the process has compiled or loaded."""
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
            self._failed, self._why_failed = (
                self._taken,
                f"the code with this config failed here: {_describe_error(error)}",
            )
            for pin in self._failed:
                self._note(pin, REFUSED, self._why_failed)
        graph_module.graph = graph
        try:
            return compile_graph()
        finally:
            self._failed = ()

    def _lower(self, find_call: Callable[[], pinning.LoweredCall], original: Callable[[], Any]) -> Any:
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

    def _lower_pinned(self, call: pinning.LoweredCall, original: Callable[[], Any]) -> Any:
        """Lowers a call with the choice of its pin."""
        chosen = _ChosenCall(_find_near(self._pins[call.operator], call))
        try:
            lowered = chosen.lower(original)
        except Exception as error:
            if isinstance(error, _UnpinnedError):
                self._tell(chosen.pins, REFUSED, str(error))
            else:
                self._tell(chosen.pins or chosen.only, REFUSED, f"it failed here: {_describe_error(error)}")
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
            pinning.mark_code(f"{pin.kernel_id} {state} {reason}".rstrip())
            self._note(pin, state, reason)

    def _note(self, pin: LibraryPin, state: str, reason: str) -> None:
        known = self._states.get(pin.kernel_id)
        if known is None or known.state == PINNED:
            config = pin.config if state == PINNED else {}
            self._states[pin.kernel_id] = PinState(pin.kernel_id, pin.name, state, config, reason)

    def _read(self, path: str) -> None:
        try:
            marks = pinning.read_marks(read_text(Path(path)))
        except InductorBenchError:  # the module's file is gone
            return
        for kernel_id, state, *reason in (text.split(maxsplit=2) for text in marks if len(text.split()) > 1):
            if (pin := self._by_id.get(kernel_id)) is not None:
                self._note(pin, state, " ".join(reason))


class _ChosenCall:
    """One call that is being lowered with the choice of a pin.

    Attributes:
        pins: the pins for the call, after its choices are listed; the choice of the first pin is taken.
        only: the pin for a call of these sizes, if there is exactly one.
    """

    def __init__(self, near: Sequence[LibraryPin]) -> None:
        self.pins: Sequence[LibraryPin] = ()
        self.only = near if len(near) == 1 else ()
        self._near = near
        self._is_chosen = False

    def lower(self, original: Callable[[], Any]) -> Any:
        """Lowers the call.

        All of Inductor's choices are listed only if the usual choices do not include that of the pin.
        """
        if not self._near:
            raise _UnpinnedError
        try:
            with pinning.lowering_with_max_autotune(self._choose, exhaustive=False):
                return original()
        except _UnlistedError:
            if not self.pins[0].exhaustive:
                raise
        with pinning.lowering_with_max_autotune(self._choose, exhaustive=True):
            return original()

    def _choose(self, callers: list[Any]) -> list[Any]:
        """Returns the choice of the pin whose inputs have the same memory layouts as those of the call."""
        if self._is_chosen:  # of a part of the choice
            return callers[:1]
        if not callers:
            raise _UnpinnedError
        layouts = pinning.list_layouts(pinning.find_original_call(callers, self._near[0].operator))
        self.pins = [pin for pin in self._near if layouts is not None and _has_layouts(pin, layouts)]
        if not self.pins:
            raise _UnpinnedError
        found = pinning.find_choice(callers, self.pins[0].config)
        if found is None:
            raise _UnlistedError("Inductor listed no such choice for the call")
        self._is_chosen = True
        return [found]


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _find_near(pins: Iterable[LibraryPin], call: pinning.LoweredCall) -> list[LibraryPin]:
    """Returns the pins of an operator for a call of these sizes and settings, with any memory layouts of its inputs."""
    sizes = pinning.list_sizes(list_factors(call.operator, call.tensors))
    near = [pin for pin in pins if [(one.dtype, one.shape) for one in pin.inputs] == sizes]
    if not near:
        return near
    settings = pinning.list_settings(call.operator, call.settings)
    return [pin for pin in near if pinning.list_settings(call.operator, pin.settings) == settings]


def _has_layouts(pin: LibraryPin, layouts: Sequence[InputLayout]) -> bool:
    """Whether a call's inputs have the memory layouts of a pin."""
    if pin.operator == CONVOLUTION and len(layouts[0].shape) != len(pin.inputs[0].shape):
        return layouts[0].stride[-1] == pin.inputs[0].stride[1] == 1
    return tuple(list_factors(pin.operator, layouts)) == pin.inputs


# The pins of this process: reads them, puts them into kernels when these are made, and writes their states.


PIN = "inductor_bench_pin"
"""The attribute of an autotuner with the pin's index in the list of pins. It is kept when the autotuner moves from a
compile worker to the program."""

ADDED = "inductor_bench_added"
"""Attribute of an autotuner: whether the pin was added to Inductor's own configurations."""


class PinnedKernels:
    """All pinned kernels of the process."""

    def __init__(self, pins: Pins) -> None:
        self.pins = pins
        self.compares = pins.mode == COMPARE
        self.kernels: list[PinnedKernel] = []
        self.refusal = _find_refusal(pins)
        self._places = {pin.target: place for place, pin in enumerate(pins.triton_pins)}
        self._cpp = {pin.kernel_id: pin for pin in pins.cpp_pins}
        self._edits = EditedSources(pins.edits)
        self._call_edits = CallEdits(pins.edits)
        self._calls = PinnedCalls(pins.library_pins)
        self._has_own_caches = False

    def adjust_cpp(self) -> None:
        """Adjusts the C++ kernels that Inductor compiles from now on; its compiler has just been imported."""
        if (self._cpp or self._edits.holds(CPP)) and not self.refusal:
            pinning.adjust_cpp_kernels(self._compile_cpp)

    def adjust_sources(self) -> None:
        """Adjusts the sources of the Triton kernels that Inductor compiles; its compiler has just been imported."""
        if self._edits.holds(TRITON) and not self.refusal:
            pinning.adjust_triton_sources(self._compile_triton)

    def adjust_modules(self, codecache: ModuleType) -> None:
        """Adjusts the modules that the process loads; ``codecache``, torch's module, has just been imported."""
        if self._call_edits and not self.refusal:
            inductor.watch_compiled_modules(codecache, lambda module, path, _: self._put_into(module, path))

    def _put_into(self, module: ModuleType, path: str) -> None:
        kernels = self._call_edits.put_into(module, path)
        for kernel in kernels if self.compares else ():
            kernel.switch_config(False)
        self.kernels += kernels

    def adjust_triton(self) -> None:
        """Adjusts the Triton kernels that Inductor makes from now on; their class has just been imported."""
        if self._places and not self.refusal:
            pinning.adjust_autotuners(self._add_pin, self._precompile)

    def adjust_calls(self, codecache: ModuleType) -> None:
        """Adjusts the library calls that Inductor lowers from now on; its lowerings have just been imported.

        The code that Inductor caches contains the choice, so this code gets cache entries of its own first;
        ``codecache`` is torch's module.
        """
        if self.pins.library_pins and not self.refusal:
            self.adjust_caches(codecache)
            self._calls.adjust()

    def adjust_compilation(self, compile_fx: ModuleType) -> None:
        """Adjusts how graphs with pinned calls are compiled; ``compile_fx``, torch's module, has just been imported."""
        if self.pins.library_pins and not self.refusal:
            self._calls.adjust_compilation(compile_fx)

    def adjust_caches(self, codecache: ModuleType) -> None:
        """Gives code with these pins entries of its own in Inductor's caches, once; ``codecache`` is torch's module.

        From then on each module that the process loads is read for the states of library calls. An edit changes no
        generated code, whose kernels are compiled from their sources each time.
        """
        if self.refusal or not self.pins.configs or self._has_own_caches:
            return
        pinning.distinguish_caches(codecache, f"{self.pins.mode} {self.pins.digest}")
        self._has_own_caches = True
        if self.pins.library_pins:
            self._calls.watch(codecache)

    def switch_config(self, tuned: bool) -> None:
        """Makes all kernels launch their pins from now on, or Inductor's own configurations."""
        for kernel in self.kernels:
            kernel.switch_config(tuned)

    def describe(self) -> PinnedProcess:
        states = [*(kernel.state() for kernel in self.kernels), *self._calls.states()]
        states += [*self._edits.states(states), *self._call_edits.states(states)]
        ran = {state.kernel_id for state in states if state.state == PINNED}
        states = [state for state in states if state.state != UNUSED or state.kernel_id not in ran]  # of other graphs
        return PinnedProcess(os.getpid(), tuple(states), self.refusal)

    def save_applied(self) -> None:
        """Writes the states of applied pins. A comparison writes them itself, while the pins are in use."""
        if not self.compares and (self.describe().states or self.refusal):
            save_states(self)

    # Triton kernels

    def _add_pin(self, autotuner: Any) -> None:
        """Adds the pin to the configurations of a new kernel, or replaces them by it."""
        if not autotuner.configs or getattr(autotuner.fn, "src", None) is None:
            return
        place = self._places.get(pinning.make_kernel_key(autotuner))
        if place is None:
            return
        own, values = autotuner.configs, self.pins.triton_pins[place].config
        pinned = pinning.set_config_values(own[0], values)
        setattr(autotuner, PIN, place)
        if not self.compares:
            autotuner.configs = [pinned]
        elif all(pinning.read_config_values(config) != values for config in own):
            autotuner.configs = [*own, pinned]
            setattr(autotuner, ADDED, True)
        setattr(autotuner, pinning.FALLBACK, own)

    def _precompile(self, autotuner: Any, original: Callable[[], None]) -> None:
        place = getattr(autotuner, PIN, None)
        if place is None or autotuner.launchers:
            original()
            return
        pin = self.pins.triton_pins[place]
        taken = self._take_added(autotuner, pin) if getattr(autotuner, ADDED, False) else None
        original()
        launcher, reason = self._find_launcher(autotuner, pin, taken)
        if launcher is not None and not self.compares:
            pinning.set_launchers(autotuner, [launcher])
        self.kernels.append(PinnedAutotuner(autotuner, pin, launcher, reason))

    @staticmethod
    def _take_added(autotuner: Any, pin: TritonPin) -> Any:
        """Removes the added pin before Inductor chooses among its own configurations; returns its compiled result."""
        autotuner.configs = [
            one for one in autotuner.configs or () if pinning.read_config_values(one) != pin.config
        ] or None
        found = [one for one in autotuner.compile_results if pinning.read_config_values(one.config) == pin.config]
        autotuner.compile_results = [one for one in autotuner.compile_results if one not in found]
        return found[0] if found else None

    def _find_launcher(self, autotuner: Any, pin: TritonPin, taken: Any) -> tuple[Any, str]:
        """Returns the launcher of a pin, or the reason why there is none."""
        try:
            if taken is not None:
                launcher = pinning.make_launcher(autotuner, taken)
            else:
                launcher = pinning.find_launcher(autotuner, pin.config, keep=self.compares)
        except pinning.list_launcher_errors() as error:
            return None, f"it did not compile here: {type(error).__name__}: {error}"
        pinning.mark_as_settled(launcher.config)
        return launcher, ""

    def _compile_triton(self, compile_source: pinning.CompileSource, name: str, source: str) -> Any:
        edit = self._edits.find(TRITON, source, name)
        if edit is None:
            return compile_source(source)
        future, join = compile_triton(edit, compile_source, name, source, compares=self.compares)

        def place() -> Any:
            kernel = join()
            self.kernels.append(kernel)
            return kernel.tuned if kernel.own is None else kernel.own

        return pinning.make_later_result(place, future)

    # C++ kernels

    def _compile_cpp(self, original: pinning.CppCompile, compiler: Any, types: list[str], source: str) -> Any:
        pin = self._edits.find(CPP, source) or self._cpp.get(compute_cpp_kernel_id(source))
        if pin is None:
            return original(compiler, types, source)
        with pinning.compiled_with(pin.options if isinstance(pin, CppPin) else {}):
            tuned, failed = try_to_compile(lambda: original(compiler, types, pin.source))
        own = original(compiler, types, source) if self.compares else None

        def place() -> Any:
            function, reason = (None, failed) if failed else try_to_compile(lambda: pinning.find_result(tuned))
            spare = original(compiler, types, source) if reason and own is None else own
            return self._place_cpp(pin, function, spare, reason)

        return pinning.make_later_result(place)

    def _place_cpp(self, pin: CppPin | EditPin, function: Any, own: Any, reason: str) -> Any:
        """Returns what a module calls: Inductor's own kernel if the pin does not compile, with the ``reason``."""
        kernel = PinnedCppKernel(pin, function, pinning.find_result(own) if own is not None else None, reason)
        self.kernels.append(kernel)
        return kernel if self.compares or isinstance(pin, EditPin) else kernel.current


def _find_refusal(pins: Pins) -> str:
    torch, triton = pinning.read_versions()
    if torch != pins.torch:
        return f"{pins.words} are for torch {pins.torch}, and this is torch {torch}"
    if pins.need_gpu and triton != pins.triton:
        return (
            f"{pins.words} are for Triton {pins.triton}, and "
            f"{f'this is Triton {triton}' if triton else 'Triton is not installed'}"
        )
    return ""


@functools.cache
def make_pinned_kernels() -> PinnedKernels:
    """Returns the pinned kernels of this process, from the file that the environment names."""
    pinned = PinnedKernels(codec.decode(Pins, read_json(Path(os.environ[PINS]))))
    owner = os.getpid()

    def save() -> None:
        if os.getpid() == owner:
            pinned.save_applied()

    atexit.register(save)
    return pinned


def try_pinning(adjust: Callable[[PinnedKernels], None]) -> None:
    """Adjusts the kernels of this process. A failure only leaves the pins out, and does not end the program."""
    try:
        adjust(make_pinned_kernels())
    except Exception:  # another version of Inductor may fail in any way
        traceback.print_exc()


def name_gpu() -> str:
    """The name of the GPU that torch uses; empty without one."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def save_states(pinned: PinnedKernels) -> None:
    """Writes what the pinned kernels of this process launch now."""
    path = Path(os.environ[CAPTURE_FOLDER]) / f"{os.getpid()}.pins.json"
    try:
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps(codec.encode(pinned.describe())), encoding="utf-8")
        temporary.replace(path)
    except OSError:
        traceback.print_exc()
