"""Answers the parent's requests about kernels of standalone files: load, vary, compile, check and time them.

The parent decides the order of requests, runs the race and gives the verdict.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import linecache
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

import torch

from ...devices.nvidia import Architecture
from ...errors import InductorBenchError
from ...messages import job_requests, kernel_requests
from ...messages.job_requests import WorkerRequest, decode_request, index_by_name
from ...records.base import DeviceUse
from ...records.code import Reference
from ...records.run import Environment
from ...source.harness.common import COARSE_TOLERANCE, TOLERANCES, count_differing, fingerprint
from ...source.harness.triton_definition import use_inductors_assembler
from ...source.standalone_header import HARNESS_END, HARNESS_TITLE, has_like_arguments
from ...store import codec
from ..device.machine import ClockWatch, describe_clocks, find_driver_of_current_gpu, find_use
from ..device.nvidia_runtime import give_memory_back, is_memory_short
from ..device.runtime import Timer, on_wait, using_device_alone
from ..device.runtimes import NVIDIA_RUNTIME
from .edit_judge import EditJudge, EditRunner
from .library_kernel import OperatorBenchKernel, open_joined
from .loaded_kernel import (
    REFUSALS,
    CppBenchKernel,
    LastComputed,
    LoadedKernel,
    TritonBenchKernel,
    draw_ahead,
    launch_key,
)

# Compares the outputs of two kernels.


def describe_difference(
    ours: list[torch.Tensor], theirs: list[torch.Tensor], tolerances: Mapping[str, float] = TOLERANCES
) -> str:
    """The difference between the outputs of two kernels, in words; empty if they agree.

    Args:
        ours: the outputs of the judged kernel.
        theirs: the outputs of the other kernel.
        tolerances: the tolerance of each floating-point dtype, by its name without ``torch.``; :data:`COARSE_TOLERANCE`
            applies to dtypes without one, and integers must be equal.
    """
    if [(one.shape, one.dtype) for one in ours] != [(one.shape, one.dtype) for one in theirs]:
        return "its outputs have other shapes or types"
    if not theirs:
        return "it computes no tensors that could be compared"
    for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if torch.equal(one, other):
            continue
        if not one.is_floating_point() and not one.is_complex():
            count = int((one != other).sum())
        else:
            limit = tolerances.get(str(one.dtype).removeprefix("torch."), COARSE_TOLERANCE)
            wide = torch.complex128 if one.is_complex() else torch.float64
            count = count_differing(one.to(wide), other.to(wide), limit)
        if count:
            return f"output {index}: {count} of {one.numel()} elements differ"
    return ""


def compare_ahead(device: torch.device) -> None:
    """Compares a few numbers, so that the operators of later comparisons are loaded."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        describe_difference([torch.zeros(8, dtype=dtype, device=device)], [torch.ones(8, dtype=dtype, device=device)])


# Answers the parent's requests about this machine, and those that get the worker ready for it.


def environment(_: job_requests.TellEnvironment) -> Environment:
    from ..device.runtimes import describe_environment

    return describe_environment()


def options(_: job_requests.TellOptions) -> dict[str, str]:
    from ..upstream.inductor import options as all_options

    return all_options()


def device_use(_: job_requests.FindDeviceUse) -> DeviceUse | None:
    driver = find_driver_of_current_gpu()
    return find_use(driver) if driver is not None else None


def pretend(request: job_requests.Pretend) -> job_requests.CompilerVersions:
    from ..upstream.triton_compiler import pretend_gpu

    return job_requests.CompilerVersions(**pretend_gpu(request.architecture))


def architecture(_: job_requests.TellArchitecture) -> Architecture:
    return NVIDIA_RUNTIME.architecture()


def get_ready(_: job_requests.GetReady) -> None:
    from ..upstream.inductor import import_triton_launcher
    from ..upstream.triton_compiler import hash_compiler

    with ThreadPoolExecutor(1) as host:
        drawn = host.submit(draw_ahead)
        import_triton_launcher()
        hashed = host.submit(hash_compiler)
        NVIDIA_RUNTIME.get_ready()
        with using_device_alone():
            compare_ahead(torch.device("cuda"))
        drawn.result()
        hashed.result()


def start_compilers(request: job_requests.StartCompilers) -> None:
    from ..upstream.inductor import import_compiler, share_compilers

    share_compilers(request.sharers)
    import_compiler()


MACHINE_ANSWERS: dict[type[WorkerRequest[Any]], Callable[[Any], Any]] = {
    job_requests.TellEnvironment: environment,
    job_requests.TellOptions: options,
    job_requests.FindDeviceUse: device_use,
    job_requests.TellArchitecture: architecture,
    job_requests.GetReady: get_ready,
    job_requests.StartCompilers: start_compilers,
    job_requests.Pretend: pretend,
}
"""The function that answers each request."""


# Imports a standalone file, and opens its kernel by the language of its harness.


USE_EXTRACTED = "give a file that inductor-bench extract wrote, or a RUN#kernel"


def open_kernel(module: ModuleType, file: str) -> LoadedKernel:
    """The kernel of an imported standalone file.

    Raises:
        InductorBenchError: the file is no standalone file, or this machine lacks its device.
    """
    recorded = getattr(module, "RECORDED", None)
    if not isinstance(recorded, dict) or "launch" not in recorded:
        raise InductorBenchError(f"{file} is not a standalone kernel file", USE_EXTRACTED)
    if hasattr(module, "PARTS"):
        return open_joined(module, lambda path: open_kernel(import_file(path), str(path)))
    if "cpp" in recorded and hasattr(module, "KERNEL"):
        return CppBenchKernel(recorded, module.SOURCE, module.FOLDER)
    if "device_type" in recorded and hasattr(module, "OPERATOR"):
        return OperatorBenchKernel(recorded, module.FOLDER)
    if hasattr(module, "FILE"):
        return TritonBenchKernel(module)
    raise InductorBenchError(f"{file} is not a standalone kernel file", USE_EXTRACTED)


def import_file(path: Path) -> ModuleType:
    """Imports a standalone file as a module of its own.

    Raises:
        InductorBenchError: the file is not Python, ends the process, or refuses this machine.
    """
    name = f"standalone_{abs(hash(str(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InductorBenchError(f"{path.name} is not a Python file", "give a file that inductor-bench extract wrote")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        for code in _compile(path):
            exec(code, vars(module))
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


def _compile(path: Path) -> Sequence[CodeType]:
    """The parts of a standalone file. Its harness, most of its text, is compiled once for all files of a kind."""
    text = importlib.util.decode_source(path.read_bytes())
    first, _, rest = text.partition(HARNESS_TITLE)
    harness, end, last = rest.partition(HARNESS_END)
    if end:
        with contextlib.suppress(SyntaxError):  # somebody edited the file: the whole may still be right
            begin = compile(first, path, "exec", dont_inherit=True)
            flags = begin.co_flags & annotations.compiler_flag
            lines_before = "\n" * text[: len(text) - len(last)].count("\n")
            return begin, _compile_harness(harness, flags), compile(lines_before + last, path, "exec", flags, True)
    return (compile(text, path, "exec", dont_inherit=True),)


@functools.lru_cache(maxsize=16)
def _compile_harness(text: str, flags: int) -> CodeType:
    """The code of a harness; ``flags`` are those of the file's imports from ``__future__``."""
    name = f"<harness {hashlib.sha256(text.encode()).hexdigest()[:8]}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)  # for tracebacks
    code: CodeType = compile(text, name, "exec", flags, dont_inherit=True)
    return code


Result = TypeVar("Result")


@dataclass
class _Loaded:
    """A loaded kernel. Its timer and its bound call are made before its first sample."""

    kernel: LoadedKernel
    timer: Timer | None = None
    call: Any = None


class Bench:
    """Answers requests about kernels. ``_answers`` maps each type of request to its method.

    Args:
        tell: sends a part of an answer to the parent, before the answer itself.
    """

    def __init__(self, tell: Callable[[kernel_requests.Begun], None]) -> None:
        use_inductors_assembler()
        self._report, self._begun = tell, kernel_requests.Begun(None)
        on_wait(lambda waits: self._report(replace(self._begun, waits=waits)))
        self._kernels: dict[int, _Loaded] = {}
        self._outputs: dict[int, list[Any]] = {}
        self._timers: dict[str, Timer] = {}
        self._computed = LastComputed()
        self._answers: dict[type[WorkerRequest[Any]], Callable[[Any], Any]] = {
            **MACHINE_ANSWERS,
            kernel_requests.Load: self.load,
            kernel_requests.TellFacts: self.facts,
            kernel_requests.Vary: self.vary,
            kernel_requests.Build: self.build,
            kernel_requests.CompileTriton: self.compile_triton,
            kernel_requests.ListTritonConfigs: self.triton_configs,
            kernel_requests.ListLibraryConfigs: self.library_configs,
            kernel_requests.Drop: self.drop,
            kernel_requests.Forget: self.forget,
            kernel_requests.CompareOutputs: self.check,
            kernel_requests.Prepare: self.prepare,
            kernel_requests.Verify: self.verify,
            kernel_requests.MakeReference: self.make_reference,
            kernel_requests.Measure: self.measure,
            kernel_requests.Sample: self.sample,
            kernel_requests.Describe: self.describe,
            **EditRunner(self._find).answers,
            **EditJudge(self._find).answers,
        }
        self._requests = index_by_name(self._answers)

    def answer(self, data: Any) -> Any:
        """Answers an encoded request, and returns the encoded answer.

        Raises:
            InductorBenchError: the request fails; the message is for the user.
        """
        request, self._begun = decode_request(data, self._requests), kernel_requests.Begun(None)
        try:
            return codec.encode(self._answers[type(request)](request))
        except REFUSALS as error:
            raise InductorBenchError(str(error)) from error

    def _begin(self, number: int) -> None:
        """Tells the parent which kernel is worked on now, if it is another one than before."""
        if number != self._begun.number:
            self._begun = kernel_requests.Begun(number)
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

    def load(self, request: kernel_requests.Load) -> kernel_requests.VariantFacts:
        kernel = open_kernel(import_file(Path(request.file)), request.file)
        self._kernels[request.number] = _Loaded(kernel)
        return kernel.facts()

    def _find(self, number: int) -> LoadedKernel:
        return self._kernels[number].kernel

    def facts(self, request: kernel_requests.TellFacts) -> kernel_requests.VariantFacts:
        kernel = self._kernels[request.number].kernel
        configs = kernel.configs() if request.configs and isinstance(kernel, TritonBenchKernel) else None
        return replace(kernel.facts(), triton=configs)

    def vary(self, request: kernel_requests.Vary) -> kernel_requests.CompiledResources:
        kernel = self._kernels[request.of].kernel.make_variant(request.change)
        compiled = kernel.compile()
        self._kernels[request.number] = _Loaded(kernel)
        return compiled

    def build(self, request: kernel_requests.Build) -> None:
        self._kernels[request.number].kernel.make_variant(request.change).compile()

    def check(self, request: kernel_requests.CompareOutputs) -> kernel_requests.Checked:
        """Compares the outputs of two kernels.

        Raises:
            InductorBenchError: the kernels take different arguments.
        """
        kernel, against = self._kernels[request.number].kernel, self._kernels[request.against].kernel
        if not has_like_arguments(kernel.launch, against.launch):
            raise InductorBenchError("not compared with each other, because they take different arguments")

        def compare() -> kernel_requests.Checked:
            if request.against not in self._outputs:
                self._outputs[request.against] = [each.clone() for each in self._computed.compute(against)]
            ours = self._computed.compute(kernel)
            return kernel_requests.Checked(describe_difference(ours, self._outputs[request.against], kernel.tolerances))

        return self._use_memory(compare)

    def prepare(self, request: kernel_requests.Prepare) -> kernel_requests.Preparation:
        found = {one.number: self._attempt(self._make, one, request.of) for one in request.variants}
        with using_device_alone():  # one turn for all: the device needs time to change workers
            for one in request.variants:
                made = found[one.number]
                if not made.refusal:
                    compared = self._attempt(self._compare, one, request.of)
                    found[one.number] = replace(compared, compiled=made.compiled)
        return kernel_requests.Preparation(tuple(found.values()))

    def _attempt(
        self,
        step: Callable[[kernel_requests.Variant, int], kernel_requests.Prepared],
        variant: kernel_requests.Variant,
        of: int,
    ) -> kernel_requests.Prepared:
        self._begin(variant.number)
        try:
            return step(variant, of)
        except InductorBenchError as error:
            return kernel_requests.Prepared(refusal=error.message)
        except REFUSALS as error:
            return kernel_requests.Prepared(refusal=str(error))

    def _make(self, variant: kernel_requests.Variant, of: int) -> kernel_requests.Prepared:
        return kernel_requests.Prepared(self.vary(kernel_requests.Vary(variant.number, of, variant.change)))

    def _compare(self, variant: kernel_requests.Variant, of: int) -> kernel_requests.Prepared:
        return kernel_requests.Prepared(
            difference=self.check(kernel_requests.CompareOutputs(variant.number, against=of)).difference
        )

    def verify(self, request: kernel_requests.Verify) -> kernel_requests.Verified:
        kernel = self._kernels[request.number].kernel
        passed, message = kernel.verify()
        if passed is None and any(bool(tensor.isnan().any()) for tensor in self._computed.compute(kernel)):
            message = "its outputs hold NaNs, and there is no reference to compare them with"
        return kernel_requests.Verified(passed, message)

    def make_reference(self, request: kernel_requests.MakeReference) -> Reference:
        module = import_file(Path(request.file))
        kernel = open_kernel(module, request.file)

        def make() -> Reference:
            kernel.prepare()
            arguments = module.make_arguments()
            module.call(arguments)
            return Reference(fingerprint(module.outputs(arguments)))

        return self._use_memory(make)

    def measure(self, request: kernel_requests.Measure) -> kernel_requests.KernelTimes:
        with ClockWatch(find_driver_of_current_gpu() if request.watch else None) as clock:
            measured = self._kernels[request.number].kernel.measure()
        seen = describe_clocks(clock.clocks, clock.highest_mhz)
        return replace(measured, clock_mhz=seen.mhz, clock_change=seen.change, throttled=seen.throttled)

    def sample(self, request: kernel_requests.Sample) -> kernel_requests.Times:
        with using_device_alone():  # one turn for all: the device needs time to change workers
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
        with using_device_alone():
            for number in request.order:
                self._begin(number)
                loaded, timer = self._timed(number)
                loaded.kernel.prepare()
                retaken -= timer.retaken
                samples_s.append(getattr(timer, request.state)(loaded.call))
                retaken, method = retaken + timer.retaken, timer.method
        return kernel_requests.Times(tuple(samples_s), method, retaken)

    def _timed(self, number: int) -> tuple[_Loaded, Timer]:
        """Returns a loaded kernel with its timer and its call.

        If another kernel has freed them, they are made again.
        """
        loaded = self._kernels[number]
        if loaded.timer is None:
            loaded.timer = self._timer_of(loaded.kernel)
            loaded.call = loaded.timer.bind(loaded.kernel.bind)
        return loaded, loaded.timer

    def _timer_of(self, kernel: LoadedKernel) -> Timer:
        """The timer for the kernel's launch; kernels with the same launch key share a timer and its arguments."""
        key = launch_key(kernel)
        if key not in self._timers:
            if is_memory_short():
                self._make_room()
            self._timers[key] = self._use_memory(lambda: kernel.make_timer(self._computed.arguments_for(kernel)))
        return self._timers[key]

    def describe(self, request: kernel_requests.Describe) -> kernel_requests.Described:
        return self._kernels[request.number].kernel.describe()

    def triton_configs(self, request: kernel_requests.ListTritonConfigs) -> kernel_requests.TritonConfigs:
        return self._triton(request.number).configs()

    def library_configs(self, request: kernel_requests.ListLibraryConfigs) -> kernel_requests.LibraryConfigs:
        kernel = self._kernels[request.number].kernel
        if not isinstance(kernel, OperatorBenchKernel):
            raise InductorBenchError("this is no library call", "its kernel is C++ or Triton")
        return kernel.configs(request.wide)

    def compile_triton(self, request: kernel_requests.CompileTriton) -> kernel_requests.Binary:
        kernel, began = self._triton(request.number), time.perf_counter()
        binary = kernel.compile_binary(request.config or kernel.now, request.read)
        return replace(binary, time_s=time.perf_counter() - began)

    def _triton(self, number: int) -> TritonBenchKernel:
        kernel = self._kernels[number].kernel
        if not isinstance(kernel, TritonBenchKernel):
            raise InductorBenchError("this is no Triton kernel", "its kernel is C++ or a library call")
        return kernel

    def drop(self, request: kernel_requests.Drop) -> None:
        for number in request.numbers:
            self._kernels.pop(number, None)
            if self._outputs.pop(number, None) is not None:
                self._computed.forget()
        used = [loaded.timer for loaded in self._kernels.values()]
        self._timers = {key: timer for key, timer in self._timers.items() if timer in used}
        if is_memory_short():
            give_memory_back()  # other workers may use the device

    def _use_memory(self, work: Callable[[], Result]) -> Result:
        """Does work that allocates.

        If memory runs out, it frees what other kernels hold on the device and tries once more.
        """
        with using_device_alone():
            with contextlib.suppress(torch.OutOfMemoryError):  # its traceback would hold what the attempt has allocated
                return work()
            self._make_room()
            return work()

    def _make_room(self) -> None:
        """Frees the memory of other kernels and returns it to the device, which other workers may share."""
        self._free_memory()
        give_memory_back()

    def _free_memory(self) -> None:
        """Frees all arguments and timers, which take most memory; kernels stay loaded."""
        for loaded in self._kernels.values():
            loaded.timer = loaded.call = None
        self._outputs.clear()
        self._timers.clear()
        self._computed.forget()

    def forget(self, _: kernel_requests.Forget) -> None:
        self._free_memory()
        self._kernels.clear()
