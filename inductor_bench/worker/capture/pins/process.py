"""The pins of this process: reads them, puts them into kernels as these are made, and writes what became of them."""

from __future__ import annotations

import atexit
import functools
import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from inductor_bench.messages.pins import COMPARE, PinnedProcess, Pins
from inductor_bench.records.retunes.pins import CppPin, TritonPin
from inductor_bench.source.module.identity import cpp_kernel_id
from inductor_bench.store.files import read_json
from inductor_bench.store.formats import codec

from ...upstream import pinning
from ..variables import CAPTURE_FOLDER, PINS
from .calls import PinnedCalls
from .kernels import PinnedAutotuner, PinnedCppKernel, PinnedKernel

PIN = "inductor_bench_pin"
"""Attribute of an autotuner, which goes with it from a compile worker to the program: the pin's place in its list."""

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
        self._calls = PinnedCalls(pins.library_pins)
        self._has_own_caches = False

    def adjust_cpp(self) -> None:
        """Adjusts the C++ kernels that Inductor compiles from now on; its compiler has just been imported."""
        if self._cpp and not self.refusal:
            pinning.adjust_cpp_kernels(self._compile_cpp)

    def adjust_triton(self) -> None:
        """Adjusts the Triton kernels that Inductor makes from now on; their class has just been imported."""
        if self._places and not self.refusal:
            pinning.adjust_autotuners(self._made, self._precompile)

    def adjust_calls(self, codecache: ModuleType) -> None:
        """Adjusts the library calls that Inductor lowers from now on; its lowerings have just been imported.

        The choice stands in the code that Inductor caches, which is kept apart first; ``codecache`` is torch's module.
        """
        if self.pins.library_pins and not self.refusal:
            self.adjust_caches(codecache)
            self._calls.adjust()

    def adjust_compilation(self, compile_fx: ModuleType) -> None:
        """Adjusts how graphs with pinned calls are compiled; ``compile_fx``, torch's module, has just been imported."""
        if self.pins.library_pins and not self.refusal:
            self._calls.adjust_compilation(compile_fx)

    def adjust_caches(self, codecache: ModuleType) -> None:
        """Keeps code with these pins apart in Inductor's caches, once; ``codecache`` is torch's module.

        What became of library calls is read in each module that the process loads from then on.
        """
        if self.refusal or not self.pins.all or self._has_own_caches:
            return
        pinning.distinguish_caches(codecache, f"{self.pins.mode} {self.pins.digest}")
        self._has_own_caches = True
        if self.pins.library_pins:
            self._calls.watch(codecache)

    def use(self, tuned: bool) -> None:
        """Makes all kernels launch their pins from now on, or Inductor's own configurations."""
        for kernel in self.kernels:
            kernel.use(tuned)

    def describe(self) -> PinnedProcess:
        states = (*(kernel.state() for kernel in self.kernels), *self._calls.states())
        return PinnedProcess(os.getpid(), states, self.refusal)

    def save_applied(self) -> None:
        """Writes the states of applied pins. A comparison writes them itself, while the pins are in use."""
        if not self.compares and (self.kernels or self._calls.states() or self.refusal):
            save_states(self)

    # Triton kernels

    def _made(self, autotuner: Any) -> None:
        """Adds the pin to the configurations of a new kernel, or puts it in their place."""
        if not autotuner.configs or getattr(autotuner.fn, "src", None) is None:
            return
        place = self._places.get(pinning.kernel_key(autotuner))
        if place is None:
            return
        own, values = autotuner.configs, self.pins.triton_pins[place].config
        pinned = pinning.with_values(own[0], values)
        setattr(autotuner, PIN, place)
        if not self.compares:
            autotuner.configs = [pinned]
        elif all(pinning.values_of(config) != values for config in own):
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
        autotuner.configs = [one for one in autotuner.configs or () if pinning.values_of(one) != pin.config] or None
        found = [one for one in autotuner.compile_results if pinning.values_of(one.config) == pin.config]
        autotuner.compile_results = [one for one in autotuner.compile_results if one not in found]
        return found[0] if found else None

    def _find_launcher(self, autotuner: Any, pin: TritonPin, taken: Any) -> tuple[Any, str]:
        """The launcher of a pin, and the reason where there is none."""
        try:
            if taken is not None:
                launcher = pinning.launcher_of(autotuner, taken)
            else:
                launcher = pinning.find_launcher(autotuner, pin.config, keep=self.compares)
        except pinning.launcher_errors() as error:
            return None, f"it did not compile here: {type(error).__name__}: {error}"
        pinning.settle(launcher.config)
        return launcher, ""

    # C++ kernels

    def _compile_cpp(self, original: pinning.CppCompile, compiler: Any, types: list[str], source: str) -> Any:
        pin = self._cpp.get(cpp_kernel_id(source))
        if pin is None:
            return original(compiler, types, source)
        with pinning.compiled_with(pin.options):
            tuned = original(compiler, types, pin.source)
        own = original(compiler, types, source) if self.compares else None
        return pinning.later(lambda: self._join_cpp(pin, tuned, own, lambda: original(compiler, types, source)))

    def _join_cpp(self, pin: CppPin, tuned: Any, own: Any, spare: Callable[[], Any]) -> Any:
        """The compiled kernel; Inductor's own where the pin does not compile."""
        function, reason = None, ""
        try:
            function = pinning.result_of(tuned)
        except pinning.COMPILE_ERRORS as error:
            reason, own = f"it did not compile here: {type(error).__name__}", own or spare()
        kernel = PinnedCppKernel(pin, function, pinning.result_of(own) if own is not None else None, reason)
        self.kernels.append(kernel)
        return kernel if self.compares else kernel.current


def _find_refusal(pins: Pins) -> str:
    torch, triton = pinning.versions()
    if torch != pins.torch:
        return f"the configs are for torch {pins.torch}, and this is torch {torch}"
    if pins.need_gpu and triton != pins.triton:
        return f"the configs are for Triton {pins.triton}, and this is {f'Triton {triton}' if triton else 'none'}"
    return ""


@functools.cache
def pinned_kernels() -> PinnedKernels:
    """The pinned kernels of this process, by the file that the environment names."""
    pinned = PinnedKernels(codec.decode(Pins, read_json(Path(os.environ[PINS]))))
    owner = os.getpid()

    def save() -> None:
        if os.getpid() == owner:
            pinned.save_applied()

    atexit.register(save)
    return pinned


def try_pinning(adjust: Callable[[PinnedKernels], None]) -> None:
    """Adjusts the kernels of this process. A failure costs the pins, and no program."""
    try:
        adjust(pinned_kernels())
    except Exception:  # another version of Inductor may fail in any way
        traceback.print_exc()


def gpu_name() -> str:
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
