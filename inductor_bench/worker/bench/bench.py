"""Answers the parent's requests about kernels of standalone files: load, vary, compile, check and time them.

The parent decides the order of requests, runs the race and gives the verdict.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from inductor_bench.errors import InductorBenchError
from inductor_bench.messages import kernels, times
from inductor_bench.messages.request import Request, by_name, decode_request
from inductor_bench.source.standalone.harness.triton_definition import use_inductors_assembler
from inductor_bench.source.standalone.same_arguments import takes_alike
from inductor_bench.store.formats import codec

from ..device.exclusive import exclusive, on_wait
from ..device.nvidia import give_memory_back, is_memory_short
from ..device.nvml import driver_of_current_gpu
from ..device.protocol import Timer
from ..device.use import ClockWatch, describe_clocks
from .computed import LastComputed, launch_key
from .kernel import REFUSALS, Kernel
from .library.kernel import OperatorBenchKernel
from .machine import MACHINE_ANSWERS
from .opening import import_file, open_kernel
from .outputs import describe_difference
from .triton_kernel import TritonBenchKernel

Result = TypeVar("Result")


@dataclass
class _Loaded:
    """A loaded kernel; its timer and its bound call are made at its first sample."""

    kernel: Kernel
    timer: Timer | None = None
    call: Any = None


class Bench:
    """Answers requests about kernels. ``_answers`` maps each type of request to its method.

    Args:
        tell: sends a part of an answer to the parent, before the answer itself.
    """

    def __init__(self, tell: Callable[[times.Begun], None]) -> None:
        use_inductors_assembler()
        self._report, self._begun = tell, times.Begun(None)
        on_wait(lambda waits: self._report(replace(self._begun, waits=waits)))
        self._kernels: dict[int, _Loaded] = {}
        self._outputs: dict[int, list[Any]] = {}
        self._timers: dict[str, Timer] = {}
        self._computed = LastComputed()
        self._answers: dict[type[Request[Any]], Callable[[Any], Any]] = {
            **MACHINE_ANSWERS,
            kernels.Load: self.load,
            kernels.TellFacts: self.facts,
            kernels.Vary: self.vary,
            kernels.Build: self.build,
            kernels.CompileTriton: self.compile_triton,
            kernels.ListTritonConfigs: self.triton_configs,
            kernels.ListLibraryConfigs: self.library_configs,
            kernels.Drop: self.drop,
            kernels.Forget: self.forget,
            times.Check: self.check,
            times.Prepare: self.prepare,
            times.Verify: self.verify,
            times.Measure: self.measure,
            times.Sample: self.sample,
            times.Describe: self.describe,
        }
        self._requests = by_name(self._answers)

    def answer(self, data: Any) -> Any:
        """Answers an encoded request, and returns the encoded answer.

        Raises:
            InductorBenchError: the request fails; the message is for the user.
        """
        request, self._begun = decode_request(data, self._requests), times.Begun(None)
        try:
            return codec.encode(self._answers[type(request)](request))
        except REFUSALS as error:
            raise InductorBenchError(str(error)) from error

    def _begin(self, number: int) -> None:
        """Tells the parent which kernel begins, unless the same one goes on."""
        if number != self._begun.number:
            self._begun = times.Begun(number)
            self._report(self._begun)

    def is_device_broken(self) -> bool:
        """Whether this process can no longer use its device, for example after an illegal access on a GPU."""
        if not torch.cuda.is_initialized():
            return False
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return True
        return False

    def load(self, request: kernels.Load) -> kernels.Facts:
        kernel = open_kernel(import_file(Path(request.file)), request.file)
        self._kernels[request.number] = _Loaded(kernel)
        return kernel.facts()

    def facts(self, request: kernels.TellFacts) -> kernels.Facts:
        kernel = self._kernels[request.number].kernel
        configs = kernel.configs() if request.configs and isinstance(kernel, TritonBenchKernel) else None
        return replace(kernel.facts(), triton=configs)

    def vary(self, request: kernels.Vary) -> kernels.Compiled:
        kernel = self._kernels[request.of].kernel.make_variant(request.change)
        compiled = kernel.compile()
        self._kernels[request.number] = _Loaded(kernel)
        return compiled

    def build(self, request: kernels.Build) -> None:
        self._kernels[request.number].kernel.make_variant(request.change).compile()

    def check(self, request: times.Check) -> times.Checked:
        """Compares the outputs of two kernels.

        Raises:
            InductorBenchError: the kernels take different arguments.
        """
        kernel, against = self._kernels[request.number].kernel, self._kernels[request.against].kernel
        if not takes_alike(kernel.launch, against.launch):
            raise InductorBenchError("not compared with each other, because they take other arguments")

        def compare() -> times.Checked:
            if request.against not in self._outputs:
                self._outputs[request.against] = [each.clone() for each in self._computed.compute(against)]
            ours = self._computed.compute(kernel)
            return times.Checked(describe_difference(ours, self._outputs[request.against], kernel.tolerances))

        return self._use_memory(compare)

    def prepare(self, request: times.Prepare) -> times.Preparation:
        found = {one.number: self._attempt(self._make, one, request.of) for one in request.variants}
        with exclusive():  # for all of them, because each change between workers takes the device a while
            for one in request.variants:
                made = found[one.number]
                if not made.refusal:
                    compared = self._attempt(self._compare, one, request.of)
                    found[one.number] = replace(compared, compiled=made.compiled)
        return times.Preparation(tuple(found.values()))

    def _attempt(
        self, step: Callable[[times.Variant, int], times.Prepared], variant: times.Variant, of: int
    ) -> times.Prepared:
        self._begin(variant.number)
        try:
            return step(variant, of)
        except InductorBenchError as error:
            return times.Prepared(refusal=error.message)
        except REFUSALS as error:
            return times.Prepared(refusal=str(error))

    def _make(self, variant: times.Variant, of: int) -> times.Prepared:
        return times.Prepared(self.vary(kernels.Vary(variant.number, of, variant.change)))

    def _compare(self, variant: times.Variant, of: int) -> times.Prepared:
        return times.Prepared(difference=self.check(times.Check(variant.number, against=of)).difference)

    def verify(self, request: times.Verify) -> times.Verified:
        kernel = self._kernels[request.number].kernel
        passed, message = kernel.verify()
        if passed is None and any(bool(tensor.isnan().any()) for tensor in self._computed.compute(kernel)):
            message = "its outputs hold NaNs, and there is no reference to compare them with"
        return times.Verified(passed, message)

    def measure(self, request: times.Measure) -> times.Measured:
        with ClockWatch(driver_of_current_gpu() if request.watch else None) as clock:
            measured = self._kernels[request.number].kernel.measure()
        seen = describe_clocks(clock.clocks, clock.highest_mhz)
        return replace(measured, clock_mhz=seen.mhz, clock_change=seen.change, throttled=seen.throttled)

    def sample(self, request: times.Sample) -> times.Times:
        with exclusive():  # for all of them, because each change between workers takes the device a while
            for number in dict.fromkeys(request.order):
                self._begin(number)
                loaded, timer = self._timed(number)
                timer.run_first(loaded.call, request.state)
        for number in dict.fromkeys(request.order):
            self._begin(number)
            loaded, timer = self._timed(number)
            timer.get_ready(loaded.call, request.state)
        samples_s: list[float] = []
        retaken, method = 0, ""
        with exclusive():
            for number in request.order:
                self._begin(number)
                loaded, timer = self._timed(number)
                loaded.kernel.prepare()
                retaken -= timer.retaken
                samples_s.append(getattr(timer, request.state)(loaded.call))
                retaken, method = retaken + timer.retaken, timer.method
        return times.Times(tuple(samples_s), method, retaken)

    def _timed(self, number: int) -> tuple[_Loaded, Timer]:
        """A loaded kernel with its timer and its call; another kernel may have freed them."""
        loaded = self._kernels[number]
        if loaded.timer is None:
            loaded.timer = self._timer_of(loaded.kernel)
            loaded.call = loaded.timer.bind(loaded.kernel.bind)
        return loaded, loaded.timer

    def _timer_of(self, kernel: Kernel) -> Timer:
        """The timer for the kernel's launch; kernels with the same launch key share a timer and its arguments."""
        key = launch_key(kernel)
        if key not in self._timers:
            if is_memory_short():
                self._make_room()
            self._timers[key] = self._use_memory(lambda: kernel.make_timer(self._computed.arguments_for(kernel)))
        return self._timers[key]

    def describe(self, request: times.Describe) -> times.Described:
        return self._kernels[request.number].kernel.describe()

    def triton_configs(self, request: kernels.ListTritonConfigs) -> kernels.TritonConfigs:
        return self._triton(request.number).configs()

    def library_configs(self, request: kernels.ListLibraryConfigs) -> kernels.LibraryConfigs:
        kernel = self._kernels[request.number].kernel
        if not isinstance(kernel, OperatorBenchKernel):
            raise InductorBenchError("this is no library call", "its kernel is C++ or Triton")
        return kernel.configs(request.wide)

    def compile_triton(self, request: kernels.CompileTriton) -> kernels.Binary:
        kernel, began = self._triton(request.number), time.perf_counter()
        binary = kernel.compile_binary(request.config or kernel.now, request.read)
        return replace(binary, time_s=time.perf_counter() - began)

    def _triton(self, number: int) -> TritonBenchKernel:
        kernel = self._kernels[number].kernel
        if not isinstance(kernel, TritonBenchKernel):
            raise InductorBenchError("this is no Triton kernel", "its kernel is C++ or a library call")
        return kernel

    def drop(self, request: kernels.Drop) -> None:
        for number in request.numbers:
            self._kernels.pop(number, None)
            if self._outputs.pop(number, None) is not None:
                self._computed.forget()
        used = [loaded.timer for loaded in self._kernels.values()]
        self._timers = {key: timer for key, timer in self._timers.items() if timer in used}
        if is_memory_short():
            give_memory_back()  # other workers may use the device

    def _use_memory(self, work: Callable[[], Result]) -> Result:
        """Uses the device for work that allocates; once more without what other kernels hold where memory runs out."""
        with exclusive():
            with contextlib.suppress(torch.OutOfMemoryError):  # its traceback would hold what the attempt has allocated
                return work()
            self._make_room()
            return work()

    def _make_room(self) -> None:
        """Frees what other kernels hold, and gives it back to the device, which other workers may share."""
        self._free_memory()
        give_memory_back()

    def _free_memory(self) -> None:
        """Frees all arguments and timers, which take most memory; kernels stay loaded."""
        for loaded in self._kernels.values():
            loaded.timer = loaded.call = None
        self._outputs.clear()
        self._timers.clear()
        self._computed.forget()

    def forget(self, _: kernels.Forget) -> None:
        self._free_memory()
        self._kernels.clear()
