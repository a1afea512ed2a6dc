"""Standalone kernel files as this process has loaded them: checked against each other, timed sample by sample.

The parent decides what is loaded, compared and timed, and in what order; nothing here knows of a race or a verdict.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from inductor_bench.devices.nvidia.architectures import Architecture
from inductor_bench.errors import InductorBenchError
from inductor_bench.records.tuning import Config
from inductor_bench.source.standalone.harness.arguments import mutated_storages, restore, snapshot
from inductor_bench.source.standalone.same_arguments import takes_alike
from inductor_bench.store.formats import codec

from ..device.driver import driver_of_current_gpu
from ..device.runtimes import NVIDIA_RUNTIME
from ..device.use import ClockWatch, describe_clocks, find_use
from .kernels import REFUSALS, Kernel, OperatorBenchKernel, TritonBenchKernel, open_kernel
from .outputs import tensors_differ


@dataclass
class _Loaded:
    kernel: Kernel
    timer: Any = None
    call: Any = None


@dataclass(frozen=True)
class _Computed:
    """The arguments with which a kernel was computed, and what it wrote over."""

    launched: str
    arguments: Any
    before: dict[int, Any]


class Bench:
    """Answers requests: a dictionary with ``do`` and what that takes, for a JSON value.

    ``load`` imports a standalone file under a number, ``vary`` makes another kernel of it, ``check`` compares what one
    computes with what another does, ``verify`` with the reference in its file; ``measure`` times one kernel by itself,
    ``sample`` several in turn; ``device_use`` looks for other jobs on the GPU.
    """

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell
        self._kernels: dict[int, _Loaded] = {}
        self._outputs: dict[int, list[Any]] = {}
        self._timers: dict[str, Any] = {}
        self._last_computed: _Computed | None = None
        self._verbs: dict[str, Callable[..., Any]] = {
            "environment": self.environment,
            "load": self.load,
            "facts": self.facts,
            "vary": self.vary,
            "build": self.build,
            "check": self.check,
            "verify": self.verify,
            "measure": self.measure,
            "device_use": self.device_use,
            "sample": self.sample,
            "describe": self.describe,
            "pretend": self.pretend,
            "candidates": self.candidates,
            "compiled": self.compiled,
            "architecture": self.architecture,
            "rest": self.rest,
            "drop": self.drop,
            "forget": self.forget,
        }

    def answer(self, request: dict[str, Any]) -> Any:
        """Does what a request asks for.

        Raises:
            InductorBenchError: it cannot be done, in words for the user.
        """
        request = dict(request)
        try:
            return self._verbs[request.pop("do")](**request)
        except REFUSALS as error:
            raise InductorBenchError(str(error)) from error

    def broken(self) -> bool:
        """Whether the device can no longer be used by this process, as after an illegal access on a GPU."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return False
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return True
        return False

    def environment(self) -> dict[str, Any]:
        """What this process measures with, as an encoded ``Environment``."""
        from ..device.environment import describe_environment

        described: dict[str, Any] = codec.encode(describe_environment())
        return described

    def load(self, number: int, file: str) -> dict[str, Any]:
        """Imports a file as kernel ``number``; returns what :meth:`Kernel.facts` says of it."""
        kernel = open_kernel(import_file(Path(file)), file)
        self._kernels[number] = _Loaded(kernel)
        return kernel.facts()

    def facts(self, number: int) -> dict[str, Any]:
        """What :meth:`load` returned of it."""
        return self._kernels[number].kernel.facts()

    def vary(self, number: int, of: int, change: dict[str, Any]) -> dict[str, Any]:
        """Makes kernel ``number`` from kernel ``of`` with some of its facts changed, and compiles it.

        Returns:
            what :meth:`Kernel.compile` says of it.
        """
        kernel = self._kernels[of].kernel.varied(change)
        facts = kernel.compile()
        self._kernels[number] = _Loaded(kernel)
        return facts or {}

    def build(self, number: int, change: dict[str, Any]) -> None:
        """Compiles kernel ``number`` with some of its facts changed, so that the compiler's cache has it."""
        self._kernels[number].kernel.varied(change).compile()

    def check(self, number: int, against: int) -> str:
        """Empty where both compute the same from the same arguments; otherwise what differs.

        Raises:
            InductorBenchError: they take other arguments, so that it cannot be told.
        """
        if not takes_alike(self._kernels[number].kernel.launch, self._kernels[against].kernel.launch):
            raise InductorBenchError("not compared with each other, because they take other arguments")
        if against not in self._outputs:
            self._outputs[against] = [each.clone() for each in self._compute(self._kernels[against].kernel)]
        kernel = self._kernels[number].kernel
        return tensors_differ(self._compute(kernel), self._outputs[against], kernel.tolerances)

    def verify(self, number: int) -> dict[str, Any]:
        """``passed`` (``None`` where there is nothing to compare with) and ``message``."""
        kernel = self._kernels[number].kernel
        passed, message = kernel.verify()
        if passed is None and any(bool(tensor.isnan().any()) for tensor in self._compute(kernel)):
            message = "its outputs hold NaNs, and there is no reference to compare them with"
        return {"passed": passed, "message": message}

    def measure(self, number: int, watch: bool = False) -> dict[str, Any]:
        """``cold`` and ``warm`` (lists of seconds), ``method``, and ``with_zeros`` where it has indices.

        With ``watch`` also what :func:`describe_clocks` says of the GPU's clock meanwhile, where the driver tells.
        """
        with ClockWatch(driver_of_current_gpu() if watch else None) as clock:
            times = self._kernels[number].kernel.measure()
        return {**times, **describe_clocks(clock.clocks, clock.highest_mhz)}

    def device_use(self) -> dict[str, Any] | None:
        """What others do on the GPU, as an encoded ``DeviceUse``; ``None`` where the driver does not tell."""
        driver = driver_of_current_gpu()
        return codec.encode(find_use(driver)) if driver is not None else None

    def sample(self, order: list[int], state: str) -> list[float]:
        """Seconds of one call of each kernel in turn, ``cold`` or ``warm``. The number of each is told beforehand."""
        times = []
        for number in order:
            self._tell(number)
            loaded = self._kernels[number]
            if loaded.call is None:
                loaded.timer = self._timer_of(loaded.kernel)
                loaded.call = loaded.timer.bind(loaded.kernel.bind)
            loaded.kernel.prepare()
            times.append(getattr(loaded.timer, state)(loaded.call))
        return times

    def _compute(self, kernel: Kernel) -> list[Any]:
        """What a kernel computes; valid until the next computes. One that is launched alike has the same arguments."""
        launched, last = _launched(kernel), self._last_computed
        if last is None or last.launched != launched:
            self._last_computed = None
            arguments = kernel.make_arguments()
            before = snapshot(arguments, mutated_storages(kernel.launch))
            last = self._last_computed = _Computed(launched, arguments, before)
        else:
            restore(last.arguments, last.before)
        return kernel.compute(last.arguments)

    def _timer_of(self, kernel: Kernel) -> Any:
        """The timer with the arguments of the kernel's launch, which all kernels share that are launched alike."""
        key = _launched(kernel)
        if key not in self._timers:
            if memory_is_short():
                self.rest()
            self._timers[key] = kernel.make_timer()
        return self._timers[key]

    def describe(self, number: int) -> dict[str, Any]:
        """What is known of a kernel after it has run: bytes, FLOPs, what it was compiled to."""
        return self._kernels[number].kernel.described()

    def pretend(self, architecture: dict[str, Any]) -> dict[str, str]:
        """Lets this process compile for a GPU that is not here; returns the versions of what it compiles with."""
        from ..upstream.triton import pretend_gpu

        return pretend_gpu(Architecture(**architecture))

    def candidates(self, number: int, **wanted: Any) -> dict[str, Any]:
        """The configurations that Triton kernel or library call ``number`` can be run in."""
        kernel = self._kernels[number].kernel
        if isinstance(kernel, OperatorBenchKernel):
            return kernel.candidates(**wanted)
        return self._triton(number).candidates()

    def compiled(self, number: int, config: Config | None, read: bool = True) -> dict[str, Any]:
        """What Triton kernel ``number`` is compiled to in a configuration, ``None`` for that which it has.

        It is not loaded onto a device. ``time_s`` is what it took.
        """
        kernel, began = self._triton(number), time.perf_counter()
        facts = kernel.compiled_to(config or kernel.now, read)
        return {**facts, "time_s": time.perf_counter() - began}

    def architecture(self) -> dict[str, Any]:
        """The GPU of this process, as an encoded ``Architecture``."""
        return asdict(NVIDIA_RUNTIME.architecture())

    def _triton(self, number: int) -> TritonBenchKernel:
        kernel = self._kernels[number].kernel
        if not isinstance(kernel, TritonBenchKernel):
            raise InductorBenchError("this is no Triton kernel", "its kernel is C++ or a library call")
        return kernel

    def drop(self, numbers: list[int]) -> None:
        """Lets go of kernels that are not sampled again."""
        for number in numbers:
            self._kernels.pop(number, None)
            self._outputs.pop(number, None)

    def rest(self) -> None:
        """Lets go of all arguments and of how kernels are sampled, which takes most memory; kernels stay loaded."""
        for loaded in self._kernels.values():
            loaded.timer = loaded.call = None
        self._outputs.clear()
        self._timers.clear()
        self._last_computed = None

    def forget(self) -> None:
        """Lets go of every kernel and of the arguments that they shared."""
        self.rest()
        self._kernels.clear()


def _launched(kernel: Kernel) -> str:
    """The same for all kernels that are launched alike."""
    return json.dumps([kernel.launch, kernel.launched_with()], sort_keys=True)


def memory_is_short() -> bool:
    """Whether less than half of the GPU's memory is free."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    free, total = torch.cuda.mem_get_info()
    kept: int = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return bool(2 * (free + kept) < total)


def import_file(path: Path) -> ModuleType:
    """A standalone file as a module of its own.

    Raises:
        InductorBenchError: it cannot be read, or refuses this machine, or its import raises.
    """
    name = f"standalone_{abs(hash(str(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InductorBenchError(f"{path.name} is not a Python file", "give a file that inductor-bench extract wrote")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        raise InductorBenchError(f"{path.name} ended the process when it was imported ({error.code})") from None
    except RuntimeError as error:
        refused, prefix, why = str(error).partition(f"{name}: ")
        if refused or not prefix:
            raise
        raise InductorBenchError(f"{path.name}: {why}") from None
    finally:
        del sys.modules[name]
    return module
