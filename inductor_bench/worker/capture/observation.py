"""Observes compiled modules inside the program that compiled them.

It counts the calls of each module. Where a profile of the module's file alone would be wrong, it profiles the module in
the program, with the program's inputs.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...devices.protocol import CPU
from ...devices.table import DEVICES
from ...messages.observed import (
    CAPTURE_FOLDER,
    COMPARISON,
    COMPILE_CACHE,
    EAGER,
    OBSERVE,
    PINS,
    PYTHON_ENDED,
    STEPS,
    VARIANTS,
    ModuleObservation,
    read_request,
)
from ...records.code import Complaint, Launch
from ...records.request import BreakdownRequest
from ...store import codec
from ..profile.module_profile import read_precision_switches
from ..upstream import inductor
from . import mode_setter
from .boundaries import CalledGraphs
from .step_observer import RECOVERABLE, StepMeasurement, StepObserver, measure_window
from .uncompiled import leave_uncompiled, save_at_exit

if TYPE_CHECKING:
    from ..profile.module_run import FirstCall, ModuleRun

DEFAULT_REPEAT = 20

ASKED = "asked for with --live"
REPLAYED = "the program runs it as a CUDA graph, in which it cannot be profiled"

running: list[StepObserver] = []
"""The observation of this process's steps, once it has begun."""


class ObservedProcess:
    """The compiled modules that this process loads, and its steps.

    The file ``<pid>.followed`` records that each compiled module is observed that the process loads from now on.

    Args:
        folder: the folder of its files.
        steps: makes the observation of the steps; its argument is called when they are measured.
        only_steps: whether the modules are not observed.
    """

    def __init__(
        self, folder: Path, steps: Callable[[Callable[[], None]], StepObserver], *, only_steps: bool = False
    ) -> None:
        self._folder, self._only_steps, self._owner = folder, only_steps, os.getpid()
        self._asked = read_request()
        self._seen: list[ObservedModule] = []
        self.steps = steps(self.save_measured)

    def begin(self, codecache: ModuleType) -> Callable[[], None]:
        """Begins to observe; returns the undoing. ``codecache`` is torch's module of that name."""
        self.steps.begin()
        running.append(self.steps)
        undo = [inductor.watch_compiled_modules(codecache, self._load)]
        if cache := os.environ.get(COMPILE_CACHE):
            undo.append(inductor.key_caches_by_lines(codecache, cache))
        _write(self._folder / f"{self._owner}.followed", "")

        def end() -> None:
            running.remove(self.steps)
            for one in reversed(undo):
                one()
            for observed in self._seen:
                observed.detach()

        return end

    def _load(self, module: ModuleType, path: str, constants: Mapping[str, Any]) -> None:
        leave_uncompiled()
        if self._only_steps:
            mode_setter.note_module(module)
            self.steps.note_module()
            return
        observed = ObservedModule(module, path, constants, self._next_stem(), self.steps.exclude, self._asked)
        self._seen.append(observed)
        observed.attach()
        self.steps.note_module()

    def _next_stem(self) -> Path:
        return self._folder / f"{os.getpid()}-{len(self._seen)}"

    def add_earlier(self, module: ModuleType, path: str) -> None:
        """Adds a module that the process loaded before the observation began. Nobody counted its calls."""
        asked = replace(self._asked, live=False)
        self._seen.append(
            ObservedModule(module, path, {}, self._next_stem(), self.steps.exclude, asked, is_earlier=True)
        )

    @property
    def paths(self) -> set[str]:
        """The real paths of the modules."""
        return {os.path.realpath(one.path) for one in self._seen}

    def save(self) -> None:
        """Writes what is known of the modules, but not in a forked child, which runs the same exit handlers."""
        if os.getpid() == self._owner:
            for observed in self._seen:
                observed.save()

    def save_measured(self) -> None:
        """Writes what is known once the steps are measured, because the program may be ended then."""
        self.save()
        _save_pins()
        mode_setter.note_measured(self.steps.device)

    def note_end(self) -> None:
        """Notes that the process's Python has ended."""
        if os.getpid() == self._owner:
            _write(self._folder / f"{self._owner}{PYTHON_ENDED}", "")


def observe(codecache: ModuleType) -> None:
    """Starts the observation in this process. ``codecache`` is torch's module of that name, just imported."""
    folder = Path(os.environ[CAPTURE_FOLDER])
    only_steps = os.environ.get(OBSERVE) in (STEPS, COMPARISON) or bool(os.environ.get(VARIANTS))
    process = ObservedProcess(folder, partial(_make_observer, folder), only_steps=only_steps)
    atexit.register(process.note_end)  # first, so that it comes after the handlers that save
    process.begin(codecache)
    save_at_exit(process.steps.finish, process.save_measured)


def _make_observer(folder: Path, on_done: Callable[[], None]) -> StepObserver:
    """The observation of this process's steps, of all of its variants if it tries some."""
    if not os.environ.get(VARIANTS):
        return StepObserver(_choose_measurement(folder), on_done)
    from .variants.process_variants import process_variants

    return process_variants().observer(on_done)


def _choose_measurement(folder: Path) -> Callable[[CalledGraphs], StepMeasurement]:
    """Returns what is measured in this process: its steps, or a comparison of its steps with and without pins."""
    if os.environ.get(OBSERVE) != COMPARISON:
        return partial(measure_window, folder)
    from .pin_comparison import PinComparison
    from .pinned import make_pinned_kernels

    def compare(graphs: CalledGraphs) -> StepMeasurement:
        return PinComparison(folder, graphs, make_pinned_kernels())

    return compare


def _save_pins() -> None:
    if os.environ.get(PINS):
        from .pinned import make_pinned_kernels

        make_pinned_kernels().save_applied()


def observe_eager() -> None:
    """Starts to time the steps of this process, in which ``torch.compile`` compiles nothing."""
    inductor.compile_nothing()
    measure = _choose_measurement(Path(os.environ[CAPTURE_FOLDER]))
    steps = StepObserver(measure, lambda: mode_setter.note_measured(steps.device))
    steps.begin_eager(os.environ[EAGER])
    running.append(steps)
    save_at_exit(steps.finish, lambda: mode_setter.note_measured(steps.device))


class ObservedModule:
    """One compiled module in the program's process.

    ``exclude`` gets the time of a profile, which is not the program's.

    Its files are ``<stem>.json`` and ``.trace.json``, and a folder ``<stem>.values`` for recorded values. The calls of
    a module that was loaded before the observation began (``is_earlier``) are not counted.
    """

    def __init__(
        self,
        module: ModuleType,
        path: str,
        constants: Mapping[str, Any],
        stem: Path,
        exclude: Callable[[float], None],
        asked: BreakdownRequest,
        *,
        is_earlier: bool = False,
    ) -> None:
        self._module = module
        self._call: Callable[[list[Any]], Any] = module.call
        self._stem = stem
        self._exclude = exclude
        self._asked = asked
        self._lock = threading.Lock()
        self._calls, self._is_counted = 0, not is_earlier
        self._observed = is_earlier
        self.path = path
        self._source = Path(path).read_text(encoding="utf-8", errors="replace")
        self._constants = constants
        self._seen = _describe_process(path, stem)

    def attach(self) -> None:
        """Replaces the module's ``call`` by a function that counts the calls and observes the first one."""
        self.save()

        @functools.wraps(self._call)
        def call(arguments: list[Any]) -> Any:
            with self._lock:
                self._calls += 1
                observed, self._observed = self._observed, True
            return self._call(arguments) if observed else self._call_observed(arguments)

        self._module.call = call  # type: ignore[attr-defined]

    def detach(self) -> None:
        """Restores the module. A graph that holds the function of :meth:`attach` goes on to call that function."""
        self._module.call = self._call  # type: ignore[attr-defined]
        self._observed = True

    def _call_observed(self, arguments: list[Any]) -> Any:
        """Makes the module's first call, and profiles the module if it must be profiled in the program."""
        inputs = list(arguments)
        reason = self._live_reason(inputs)
        self._seen = replace(self._seen, live_reason=reason)
        if self._asked.live and self._seen.cuda_graphs:
            self._seen = replace(self._seen, live_reason=ASKED, live_error=REPLAYED)
        other_profiler = bool(reason) and inductor.is_profiler_running()
        if other_profiler:  # a second profiler would end the program's own: a later call is observed
            self._seen = replace(self._seen, live_error="the program's own profiler was running at each call")
            self._observed = False
        first = self._keep_inputs(inputs) if reason and not other_profiler else None
        del inputs
        result = self._call(arguments)
        if first is not None:
            begin_s = time.perf_counter()
            self._profile(first)
            self._exclude(time.perf_counter() - begin_s)
        self.save()
        return result

    def _live_reason(self, inputs: list[Any]) -> str:
        """Returns why this module must be profiled in the program; empty if its file can be profiled."""
        if self._seen.cuda_graphs:
            return ""  # a profile would disturb the program's own capture and its memory pool
        if self._asked.live:
            return ASKED
        if self._asked.recorded_bytes:
            return "the recorded values that are asked for, which only the program has"
        if re.search(r"\b_frozen_param\d+\b", self._source):
            return "frozen weights, which the file's harness replaces by random tensors"
        if inductor.is_vector_width_forced() and "cpp_fused" in self._source:
            return "a vector width that the program chose, which a process that runs the file would not have"
        if re.search(r"\bu\d+\b *=", self._source):
            return "sizes that depend on data"
        for name, value in self._constants.items():
            if _is_index_like(value):
                return (
                    f"integer constant {name} {_describe(value)}, which the file's benchmark harness fills with zeros"
                )
        for index, value in enumerate(inputs):
            if _is_index_like(value):
                return f"integer input {index} {_describe(value)}, which the file's harness fills with zeros"
        return ""

    def _keep_inputs(self, inputs: list[Any]) -> FirstCall | None:
        import torch

        from ..profile.module_run import FirstCall

        try:
            return FirstCall(inputs)
        except torch.OutOfMemoryError:
            self._seen = replace(self._seen, live_error="no memory for a copy of the module's inputs")
            return None

    def _profile(self, first: FirstCall) -> None:
        import torch

        self._seen = replace(self._seen, live_error="")

        from ..device.runtimes import find_runtime
        from ..profile.module_profile import add_details, measure_run
        from ..profile.module_run import ModuleRun

        device = _find_device_type(first.copies, self._source)
        try:
            with torch.no_grad(), find_runtime(device).preserve_random_state():
                run = ModuleRun(self._call, first.copies, first.changed())
                recorded, error = self._record_values(run)  # first, because a run may write into its inputs
                measured = measure_run(
                    run,
                    label="live",
                    device=device,
                    repeat=self._asked.repeat or DEFAULT_REPEAT,
                    trace=self._stem.with_suffix(".trace.json"),
                    text=None,
                    module=self._module,
                )
                found = add_details(measured, self._module, run, are_inputs_random=False)
                found = replace(found, recorded=recorded, values_error=error)
                self._seen = replace(self._seen, live=codec.encode_sparse(found))
        except RECOVERABLE as error:
            # The program goes on after a failure of the measurement, and the module is profiled from its file.
            traceback.print_exc()
            said = (str(error).splitlines() or [""])[0]
            self._seen = replace(self._seen, live_error=f"{type(error).__name__}: {said}")

    def _record_values(self, run: ModuleRun) -> tuple[tuple[Launch, ...] | None, Complaint | None]:
        limit = self._asked.recorded_bytes
        if not limit:
            return None, None
        from ..profile.module_run import record_values
        from ..profile.recorder import remove_nans

        recorded, error = record_values(self._module, run, self._stem.with_suffix(".values"), limit)
        return remove_nans(recorded or (), self._module, with_recorded=False) if recorded is not None else None, error

    def save(self) -> None:
        """Writes the observations of this module, over those of an earlier call."""
        has_run = self._calls or not self._is_counted
        kernels = inductor.list_compiled_kernels(vars(self._module)) if has_run else {}
        configs = {name: kernel.config for name, kernel in kernels.items()}
        seen = replace(self._seen, calls=self._calls if self._is_counted else None, configs=configs)
        _write(self._stem.with_suffix(".json"), json.dumps(codec.encode(seen)))


def _write(path: Path, text: str) -> None:
    temporary = path.with_suffix(".part")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError:
        traceback.print_exc()


def _describe_process(path: str, stem: Path) -> ModuleObservation:
    """What this process knows of a module before the module's first call."""
    import torch

    switches = read_precision_switches()
    return ModuleObservation(
        path=path,
        stem=str(stem),
        pid=os.getpid(),
        threads=torch.get_num_threads(),
        rank=int(os.environ["RANK"]) if os.environ.get("RANK", "").isdigit() else None,
        cuda_graphs=inductor.is_using_cuda_graphs(),
        max_autotune=inductor.is_max_autotuning(),
        tf32=switches["matmul_tf32"],
        bf16=switches["mkldnn_bf16"],
        switches=switches,
    )


def _is_index_like(value: Any) -> bool:
    """Whether a value is an integer or bool tensor of several elements.

    If it held zeros, the module would do other work.
    """
    import torch

    if not isinstance(value, torch.Tensor) or value.numel() <= 1:
        return False
    return not (value.dtype.is_floating_point or value.dtype.is_complex)


def _describe(value: Any) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def _find_device_type(values: list[Any], source: str) -> str:
    """Returns the type of a module's device: that of its inputs, or of what it allocates; else the CPU."""
    import torch

    kinds = {value.device.type for value in values if isinstance(value, torch.Tensor)}
    kinds |= {kind for kind in DEVICES if f"empty_strided_{kind}(" in source}
    return next((kind for kind, device in DEVICES.items() if kind in kinds and not device.runs_on_host), CPU.type)
