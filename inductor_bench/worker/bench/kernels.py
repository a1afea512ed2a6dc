"""One interface to the kernels of standalone files, whatever they are written in."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, Protocol

import torch

from inductor_bench.devices.cpu import CPU
from inductor_bench.devices.nvidia.device import NVIDIA
from inductor_bench.devices.table import device_of
from inductor_bench.errors import InductorBenchError
from inductor_bench.records.tuning import Config
from inductor_bench.source.standalone.harness import cpp_main, operator_main
from inductor_bench.source.standalone.harness.arguments import Arguments, touched_bytes, with_zeros
from inductor_bench.source.standalone.harness.comparison import TOLERANCES
from inductor_bench.source.standalone.harness.timing_cpu import CpuTimer, measure_cpu

from ..device.runtimes import runtime_of
from ..upstream import inductor as upstream
from ..upstream import triton as upstream_triton
from . import library_variants, triton_candidates
from .times import folder_of_values, times_beside_zeros

NOT_OURS = "give a file that inductor-bench extract wrote, or a RUN#kernel"
REFUSALS = (cpp_main.RefusedError, operator_main.RefusedError)
"""What the harnesses raise where this machine cannot run a kernel; the message is one line for the user."""

OWN_THREADS = torch.get_num_threads()
"""Those that this process began with: of a kernel whose file does not say how many it had."""


class Kernel(Protocol):
    """A kernel with the arguments that it was recorded with."""

    launch: dict[str, Any]
    tolerances: Mapping[str, float]

    def facts(self) -> dict[str, Any]:
        """``language``, ``device``, ``recorded`` (less the launch), and what variants need to know."""

    def varied(self, change: dict[str, Any]) -> Kernel:
        """Another one like it; :class:`InductorBenchError` where there can be none."""

    def compile(self) -> dict[str, Any] | None:
        """Compiles it, if that is still to be done; may tell ``registers``, ``spills`` and ``shared_memory_bytes``."""

    def make_arguments(self) -> Arguments:
        """The arguments of the recorded launch."""

    def compute(self, arguments: Arguments) -> list[torch.Tensor]:
        """What one call computes from these; it may lie in their storages."""

    def verify(self) -> tuple[bool | None, str]:
        """How that compares with the reference in the file."""

    def measure(self) -> dict[str, Any]:
        """Its times by itself: ``cold`` and ``warm`` in seconds, ``method``, ``with_zeros``."""

    def make_timer(self) -> Any:
        """What times it and its variants, sample by sample."""

    def launched_with(self) -> Any:
        """What its timer depends on beside the launch, as JSON data."""

    def bind(self, arguments: Any) -> Callable[[], Any]:
        """The call and nothing else."""

    def prepare(self) -> None:
        """Sets what the whole process shares, before it is timed."""

    def described(self) -> dict[str, Any]:
        """``moved_bytes``, ``flops``, ``method`` and what a compiler says of it."""


def open_kernel(module: ModuleType, file: str) -> Kernel:
    """The kernel of an imported standalone file.

    Raises:
        InductorBenchError: it is no standalone file, or of a device that is not here.
    """
    recorded = getattr(module, "RECORDED", None)
    if not isinstance(recorded, dict) or "launch" not in recorded:
        raise InductorBenchError(f"{file} is not a standalone kernel file", NOT_OURS)
    if "cpp" in recorded and hasattr(module, "KERNEL"):
        return CppBenchKernel(recorded, module.SOURCE, module.FOLDER)
    if "device_type" in recorded and hasattr(module, "OPERATOR"):
        return OperatorBenchKernel(recorded, module.FOLDER)
    if hasattr(module, "FILE"):
        return TritonBenchKernel(module)
    raise InductorBenchError(f"{file} is not a standalone kernel file", NOT_OURS)


class CppBenchKernel:
    """A C++ kernel. ``change`` of a variant holds ``source`` and ``cpp``."""

    tolerances: Mapping[str, float] = TOLERANCES

    def __init__(self, recorded: dict[str, Any], source: str, folder: str) -> None:
        needs = {**recorded["cpp"], "threads": recorded["cpp"].get("threads") or OWN_THREADS}
        self.recorded, self.source, self.folder = {**recorded, "cpp": needs}, source, folder
        self.kernel = cpp_main.CppKernel(self.recorded, source, folder)
        self.launch = self.kernel.launch

    def facts(self) -> dict[str, Any]:
        return {
            "language": "cpp",
            "device": CPU.type,
            "recorded": {key: value for key, value in self.recorded.items() if key != "launch"},
            "source": self.source,
            "processors": cpp_main.usable_processors(),
            "vector_widths": upstream.vector_widths(),
        }

    def varied(self, change: dict[str, Any]) -> CppBenchKernel:
        return CppBenchKernel({**self.recorded, "cpp": change["cpp"]}, change["source"], self.folder)

    def compile(self) -> None:
        self.kernel.compile()

    def make_arguments(self) -> Arguments:
        return self.kernel.make_arguments()

    def compute(self, arguments: Arguments) -> list[torch.Tensor]:
        self.compile()
        self.kernel.call(arguments)
        return self.kernel.outputs(arguments)

    def verify(self) -> tuple[bool | None, str]:
        self.compile()
        return cpp_main.check_cpp(self.kernel, 0)

    def measure(self) -> dict[str, Any]:
        self.compile()
        times = measure_cpu(self.kernel.launch, self.kernel.make_arguments(), self.kernel.bind)
        return times_beside_zeros(times, self.kernel.measure_with_zeros())

    def launched_with(self) -> Any:
        return folder_of_values(self.launch, self.folder)

    def make_timer(self) -> CpuTimer:
        return CpuTimer(self.kernel.launch, self.kernel.make_arguments(), self.kernel.bind)

    def bind(self, arguments: Arguments) -> Callable[[], Any]:
        return self.kernel.bind(arguments)

    def prepare(self) -> None:
        self.kernel.set_threads()

    def described(self) -> dict[str, Any]:
        return {"moved_bytes": touched_bytes(self.kernel.launch)}


class OperatorBenchKernel:
    """A library call. ``change`` of a variant holds ``threads`` or ``cudnn_benchmark``, or a ``config`` of another way
    to make it."""

    def __init__(self, recorded: dict[str, Any], folder: str, operator: operator_main.Operator | None = None) -> None:
        if device_of(recorded["device_type"]).runs_on_host:
            recorded = {**recorded, "threads": recorded.get("threads") or OWN_THREADS}
        self.recorded, self.folder = recorded, folder
        self.operator = operator or library_variants.open_operator(recorded, folder)
        self.others: library_variants.LibraryCandidates | None = None
        self.launch = self.operator.launch
        self.runtime = runtime_of(self.operator.device)
        special = {} if self.runtime.device.runs_on_host else operator_main.GPU_TOLERANCES
        self.tolerances: Mapping[str, float] = {**TOLERANCES, **special}

    def facts(self) -> dict[str, Any]:
        return {
            "language": "operator",
            "device": self.operator.device,
            "recorded": {key: value for key, value in self.recorded.items() if key != "launch"},
            "operator": self.operator.launch["operator"],
            "processors": cpp_main.usable_processors(),
        }

    def candidates(self, wide: bool = False) -> dict[str, Any]:
        """What it can be replaced by; see :meth:`library_variants.LibraryCandidates.listed`."""
        if self.others is None or (wide and not self.others.wide):
            self.others = library_variants.LibraryCandidates(self.operator, wide)
        return self.others.listed()

    def varied(self, change: dict[str, Any]) -> OperatorBenchKernel:
        if "config" not in change:
            return OperatorBenchKernel({**self.recorded, **change}, self.folder)
        others = self.others or library_variants.LibraryCandidates(self.operator)
        return OperatorBenchKernel(self.recorded, self.folder, others.operator(change["config"]))

    def compile(self) -> None:
        self.operator.find()

    def make_arguments(self) -> Arguments:
        return self.operator.make_arguments()

    def compute(self, arguments: Arguments) -> list[torch.Tensor]:
        torch.manual_seed(0)  # one that draws random numbers draws the same ones in each variant
        self.operator.call(arguments)
        return self.operator.compared(arguments)

    def verify(self) -> tuple[bool | None, str]:
        return operator_main.check_operator(self.operator, 0)

    def measure(self) -> dict[str, Any]:
        arguments = self.operator.make_arguments()
        timer = self.runtime.measure_call
        times = timer(self.operator.launch, arguments, self.operator.bind)
        return times_beside_zeros(times, self.operator.measure_with_zeros(timer))

    def launched_with(self) -> Any:
        return folder_of_values(self.launch, self.folder)

    def make_timer(self) -> Any:
        arguments = self.operator.make_arguments()
        return self.runtime.make_timer(self.operator.launch, arguments, self.operator.bind)

    def bind(self, arguments: Arguments) -> Callable[[], Any]:
        return self.operator.bind(arguments)

    def prepare(self) -> None:
        if self.runtime.device.runs_on_host:
            torch.set_num_threads(self.recorded["threads"])

    def described(self) -> dict[str, Any]:
        return library_variants.describe(self.operator)


class TritonBenchKernel:
    """A Triton kernel, by the harness in its file. ``change`` of a variant holds ``config``."""

    tolerances: Mapping[str, float] = TOLERANCES

    def __init__(self, module: ModuleType, file: Any = None) -> None:
        self.module, self.file = module, file or module.FILE
        self.launch: dict[str, Any] = self.file.launch
        self.now = triton_candidates.config_facts(self.file.kernel.configs[0])
        self.runtime = runtime_of(NVIDIA.type)

    @functools.cached_property
    def heuristics(self) -> triton_candidates.Heuristics:
        return triton_candidates.Heuristics(self.module)

    def facts(self) -> dict[str, Any]:
        recorded = {key: value for key, value in self.file.recorded.items() if key != "launch"}
        return {"language": "triton", "device": NVIDIA.type, "recorded": recorded}

    def candidates(self) -> dict[str, Any]:
        """What it can be run in; see :func:`triton_candidates.find_candidates`."""
        return triton_candidates.find_candidates(self.heuristics, self.now)

    def varied(self, change: dict[str, Any]) -> TritonBenchKernel:
        kernel = self.heuristics.kernel()
        kernel.configs, kernel.save_cache_hook = [triton_candidates.make_config(change["config"])], None
        return TritonBenchKernel(self.module, type(self.file)(kernel, self.file.recorded, self.file.folder))

    def compiled_to(self, config: Config, read: bool) -> dict[str, Any]:
        """``shared_memory_bytes``, ``binary_bytes`` and a ``digest``; if ``read``, also ``registers``, ``spills`` and
        ``instructions``."""
        made = triton_candidates.make_config(config)
        binary, shared = upstream_triton.compile_for_target(self.file.kernel, made)
        facts = {"shared_memory_bytes": shared, "binary_bytes": len(binary)}
        seen = upstream_triton.read_binary(binary) if read else {}
        return {**seen, **facts, "digest": hashlib.sha256(binary).hexdigest()}

    def compile(self) -> dict[str, Any]:
        upstream_triton.load_kernel(self.file.kernel)
        return self._compiled()

    def make_arguments(self) -> Any:
        return self.file.make_arguments()

    def compute(self, arguments: Any) -> list[torch.Tensor]:
        self.file.call(arguments)
        outputs: list[torch.Tensor] = self.file.outputs(arguments)
        return outputs

    def verify(self) -> tuple[bool | None, str]:
        passed, message = self.file.check()
        return passed, message

    def measure(self) -> dict[str, Any]:
        file, launch = self.file, with_zeros(self.launch)
        twin = type(file)(file.kernel, {**file.recorded, "launch": launch}, file.folder) if launch else None
        return times_beside_zeros(self._measured(file), self._measured(twin) if twin else None)

    def _measured(self, file: Any) -> dict[str, Any]:
        """By this process's harness, which measures the gap between launches once, and not by the file's own."""
        return self.runtime.measure_call(
            file.launch, file.make_arguments(), lambda each: partial(file.run, each), **_launch_options(file)
        )

    def launched_with(self) -> Any:
        return _launch_options(self.file), folder_of_values(self.launch, self.file.folder)

    def make_timer(self) -> Any:
        return self.runtime.make_timer(self.launch, self.make_arguments(), self.bind, **_launch_options(self.file))

    def bind(self, arguments: Any) -> Callable[[], Any]:
        return lambda: self.file.run(arguments)

    def prepare(self) -> None:
        return

    def described(self) -> dict[str, Any]:
        return {"moved_bytes": self.file.moved_bytes(), **self._compiled()}

    def _compiled(self) -> dict[str, Any]:
        return upstream.compiled_kernels({"": self.file.kernel}).get("", {})


def _launch_options(file: Any) -> dict[str, Any]:
    kept = getattr(file, "kept", None)  # files of earlier versions have none
    return {"moved": file.moved_bytes(), "reset": file.reset, "kept": kept}
