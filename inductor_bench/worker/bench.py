"""Standalone kernel files as this process has loaded them: checked against each other, timed sample by sample.

The parent decides what is loaded, compared and timed, and in what order; nothing here knows of a race or a verdict.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from inductor_bench.errors import InductorBenchError
from inductor_bench.records.architectures import Architecture
from inductor_bench.records.tuning import Config
from inductor_bench.store import codec

from .bench_kernels import Kernel, TritonBenchKernel, open_kernel, tensors_differ


@dataclass
class _Loaded:
    kernel: Kernel
    timer: Any = None
    call: Any = None


class Bench:
    """Answers requests: a dictionary with ``do`` and what that takes, for a JSON value.

    ``load`` imports a standalone file under a number, ``vary`` makes another kernel of it, ``check`` compares what one
    computes with what another does, ``verify`` with the reference in its file; ``measure`` times one kernel by itself,
    ``sample`` several in turn.
    """

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell
        self._kernels: dict[int, _Loaded] = {}
        self._outputs: dict[int, list[Any]] = {}
        self._timers: dict[str, Any] = {}
        self._verbs: dict[str, Callable[..., Any]] = {
            "environment": self.environment,
            "load": self.load,
            "vary": self.vary,
            "check": self.check,
            "verify": self.verify,
            "measure": self.measure,
            "sample": self.sample,
            "describe": self.describe,
            "pretend": self.pretend,
            "candidates": self.candidates,
            "compiled": self.compiled,
            "forget": self.forget,
        }

    def answer(self, request: dict[str, Any]) -> Any:
        """Does what a request asks for.

        Raises:
            InductorBenchError: it cannot be done, in words for the user.
        """
        request = dict(request)
        return self._verbs[request.pop("do")](**request)

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
        from .environment import describe_environment

        described: dict[str, Any] = codec.encode(describe_environment())
        return described

    def load(self, number: int, file: str) -> dict[str, Any]:
        """Imports a file as kernel ``number``; returns what :meth:`Kernel.facts` says of it."""
        kernel = open_kernel(import_file(Path(file)), file)
        self._kernels[number] = _Loaded(kernel)
        return kernel.facts()

    def vary(self, number: int, of: int, change: dict[str, Any]) -> None:
        """Makes kernel ``number`` from kernel ``of`` with some of its facts changed, and compiles it."""
        kernel = self._kernels[of].kernel.varied(change)
        kernel.compile()
        self._kernels[number] = _Loaded(kernel)

    def check(self, number: int, against: int) -> str:
        """Empty where both compute the same from the same arguments; otherwise what differs.

        Raises:
            InductorBenchError: they take other arguments, so that it cannot be told.
        """
        if self._kernels[number].kernel.launch != self._kernels[against].kernel.launch:
            raise InductorBenchError("not compared with each other, because they take other arguments")
        if against not in self._outputs:
            self._outputs[against] = self._kernels[against].kernel.computed()
        return tensors_differ(self._kernels[number].kernel.computed(), self._outputs[against])

    def verify(self, number: int) -> dict[str, Any]:
        """``passed`` (``None`` where there is nothing to compare with) and ``message``."""
        kernel = self._kernels[number].kernel
        passed, message = kernel.verify()
        if passed is None and any(bool(tensor.isnan().any()) for tensor in kernel.computed()):
            message = "its outputs hold NaNs, and there is no reference to compare them with"
        return {"passed": passed, "message": message}

    def measure(self, number: int) -> dict[str, Any]:
        """``cold`` and ``warm`` (lists of seconds), ``method``, and ``with_zeros`` where it has indices."""
        return self._kernels[number].kernel.measure()

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

    def _timer_of(self, kernel: Kernel) -> Any:
        """The timer with the arguments of the kernel's launch, which all kernels with that launch share."""
        key = json.dumps(kernel.launch, sort_keys=True)
        if key not in self._timers:
            self._timers[key] = kernel.make_timer()
        return self._timers[key]

    def describe(self, number: int) -> dict[str, Any]:
        """What is known of a kernel after it has run: bytes, FLOPs, what it was compiled to."""
        return self._kernels[number].kernel.described()

    def pretend(self, architecture: dict[str, Any]) -> dict[str, str]:
        """Lets this process compile for a GPU that is not here; returns the versions of what it compiles with."""
        from .upstream_triton import pretend_gpu

        return pretend_gpu(Architecture(**architecture))

    def candidates(self, number: int) -> dict[str, Any]:
        """The configurations that Triton kernel ``number`` can be run in."""
        return self._triton(number).candidates()

    def compiled(self, number: int, config: Config) -> dict[str, Any]:
        """What Triton kernel ``number`` is compiled to in a configuration; it is not loaded onto a device."""
        return self._triton(number).compiled_to(config)

    def _triton(self, number: int) -> TritonBenchKernel:
        kernel = self._kernels[number].kernel
        if not isinstance(kernel, TritonBenchKernel):
            raise InductorBenchError("this is no Triton kernel", "its kernel is C++ or a library call")
        return kernel

    def forget(self) -> None:
        """Lets go of every kernel and of the arguments that they shared."""
        self._kernels.clear()
        self._outputs.clear()
        self._timers.clear()


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
