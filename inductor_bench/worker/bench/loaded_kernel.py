"""Loaded kernels of standalone files: what all share, their times as messages, and the Triton and C++ kernels."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch

from ...devices.nvidia import NVIDIA
from ...devices.protocol import CPU
from ...devices.table import find_device
from ...errors import InductorBenchError
from ...messages.kernel_requests import (
    Binary,
    CompiledResources,
    Described,
    KernelTimes,
    RecordedFacts,
    TritonConfigs,
    VariantChange,
    VariantFacts,
)
from ...records.code import CompiledKernel
from ...records.retune import Config
from ...source.harness import cpp_main, operator_main
from ...source.harness.common import (
    PATTERN_ELEMENTS,
    TOLERANCES,
    Arguments,
    Draw,
    build_arguments,
    copy_arguments,
    draw_normal,
    mutated_storages,
    restore,
    snapshot,
    touched_bytes,
    with_zeros,
)
from ...source.harness.timing_cpu import measure_cpu
from ...source.harness.triton_definition import LAUNCH_OPTIONS
from ...store import codec
from ..device.cpu_runtime import CpuRaceTimer
from ..device.runtime import Timer
from ..device.runtimes import find_runtime
from ..upstream.inductor import list_compiled_kernels, list_vector_widths
from ..upstream.triton_compiler import compile_for_target, list_tuning_values, load_kernel, read_binary

# The protocol of the kernels of standalone files in any language.


REFUSALS = (cpp_main.MachineRefusedError, operator_main.CallRefusedError)
"""Exceptions of the harnesses for a kernel that this machine cannot run; the message is one line for the user."""

OWN_THREADS = torch.get_num_threads()
"""The number of torch's threads at the start of this process, for kernels without a recorded number."""


class LoadedKernel(Protocol):
    """A kernel with the arguments that it was recorded with."""

    launch: dict[str, Any]
    folder: str
    tolerances: Mapping[str, float] = TOLERANCES

    def facts(self) -> VariantFacts:
        """The facts that identify the kernel and determine its variants."""

    def make_variant(self, change: VariantChange) -> LoadedKernel:
        """A variant of the kernel.

        Raises:
            InductorBenchError: the kernel cannot be changed so.
        """

    def compile(self) -> CompiledResources:
        """Compiles the kernel unless it is compiled."""

    def make_arguments(self) -> Arguments:
        """Makes arguments like those of the recorded launch."""

    def compute(self, arguments: Arguments) -> list[torch.Tensor]:
        """The outputs of one call, which may share the arguments' storages."""

    def verify(self) -> tuple[bool | None, str]:
        """Whether the outputs match the reference in the file, and a message; ``None`` if there is no reference."""

    def measure(self) -> KernelTimes:
        """Times the kernel alone."""

    def make_timer(self, arguments: Arguments) -> Timer:
        """Makes the timer that samples the kernel and its variants with these arguments."""

    def timer_key(self) -> Any:
        """Returns JSON data that the timer depends on in addition to the launch."""
        return find_values_folder(self.launch, self.folder)

    def bind(self, arguments: Any) -> Callable[[], Any]:
        """Returns a function that only makes the call."""

    def prepare(self) -> None:
        """Sets the process-wide settings of the kernel before a sample, such as the number of threads."""
        return

    def describe(self) -> Described:
        """The facts of the kernel that are known after it has run."""
        return Described(moved_bytes=touched_bytes(self.launch))


def find_threads(recorded: Mapping[str, Any]) -> int:
    """The recorded number of threads of a kernel; this process's own number if none is recorded."""
    return recorded.get("threads") or OWN_THREADS


# Converts the results of the harnesses of standalone files into messages for the parent.


def find_values_folder(launch: dict[str, Any], folder: str) -> str | None:
    """The folder of a launch's recorded values; ``None`` if no values are stored in files."""
    return folder if any(storage["values"].get("file") for storage in launch["storages"]) else None


def make_measured(timing: dict[str, Any], zeros: dict[str, Any] | None) -> KernelTimes:
    """The message for a harness's times, and for the times with zeros as indices, if any."""
    samples = _list_samples(timing)
    with_zeros = _list_samples(zeros) if zeros else {}
    return KernelTimes(samples["cold"], samples["warm"], timing.get("method", ""), with_zeros)


def _list_samples(timing: dict[str, Any]) -> dict[str, tuple[float, ...]]:
    """The samples in seconds of both states, in the order in which they were taken."""
    return {state: tuple(timing[state]["samples_s"]) for state in ("cold", "warm")}


# Computes kernels with the same arguments, and lends these to their timers.


USUAL_STORAGES = 8
"""Number of storages of floating-point values that few kernels exceed."""


@dataclass(frozen=True)
class _Computed:
    """The launch key and arguments of the last computed kernel, and the contents that it overwrites."""

    launched: str
    arguments: Arguments
    before: dict[int, Any]


class LastComputed:
    """The arguments of the last computed kernel. Kernels with one launch key get the same ones."""

    def __init__(self) -> None:
        self._last: _Computed | None = None

    def compute(self, kernel: LoadedKernel) -> list[Any]:
        """Returns the outputs of a kernel; they are valid until the next call."""
        launched, last = launch_key(kernel), self._last
        if last is None or last.launched != launched:
            self._last = None
            arguments = kernel.make_arguments()
            before = snapshot(arguments, mutated_storages(kernel.launch))
            last = self._last = _Computed(launched, arguments, before)
        else:
            restore(last.arguments, last.before)
        return kernel.compute(last.arguments)

    def arguments_for(self, kernel: LoadedKernel) -> Arguments:
        """Returns arguments for a timer of the kernel: a copy of those of its computation, if there was one."""
        last = self._last
        devices = {str(storage.device) for storage in last.arguments.storages} if last is not None else set()
        if last is None or last.launched != launch_key(kernel) or len(devices) != 1:
            return kernel.make_arguments()
        restore(last.arguments, last.before)
        return copy_arguments(kernel.launch, last.arguments, devices.pop())

    def forget(self) -> None:
        """Frees the arguments."""
        self._last = None


def launch_key(kernel: LoadedKernel) -> str:
    """A key that is equal for kernels with equal launches and timers."""
    return json.dumps([kernel.launch, kernel.timer_key()], sort_keys=True)


def draw_on(device: str) -> Draw:
    """Returns the source of random values for comparisons on a device.

    On a GPU each seed has one pattern, which all kernels of the process share.
    """
    return draw_normal if find_device(device).runs_on_host else partial(_draw_shared, device)


def _draw_shared(device: str, count: int, seed: int) -> torch.Tensor:
    if count > PATTERN_ELEMENTS:
        return draw_normal(count, seed)
    return _draw_pattern(device, seed)[:count]


def draw_ahead() -> None:
    """Draws on the host the values with which most kernels' arguments are filled: 40 ms per storage, once in a process.

    It uses one core: others compile at the same time, and threads that share a core wait for each other.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for storage in range(USUAL_STORAGES):
            draw_normal(PATTERN_ELEMENTS, storage)
    finally:
        torch.set_num_threads(threads)


@functools.lru_cache(maxsize=16)
def _draw_pattern(device: str, seed: int) -> torch.Tensor:
    return draw_normal(PATTERN_ELEMENTS, seed).to(device)


# Lists the configurations of the kernel of a standalone Triton file, without compiling them.
#
# Inductor's heuristics read their switches from literals in the file, so this module evaluates them again with other
# literals. The values that Inductor's coordinate descent could reach give the fields that can be varied.


MAXIMUM_STAGES = 5
MAXIMUM_BLOCKS = 65535
"""CUDA's limit for the blocks of a launch in every direction but the first."""

_LAUNCH_ONLY = {
    "template": (
        ("num_warps", "num_stages"),
        "its tile sizes are part of its text: only num_warps and num_stages vary; a model compiled with "
        "mode='max-autotune' chooses among other tiles",
    ),
    "foreach": (("num_warps",), "its block size is part of its text: only num_warps varies"),
    "user_autotune": (
        ("num_warps", "num_stages"),
        "its author chose the block sizes: only the author's configs, num_warps and num_stages vary",
    ),
}
_DECORATED = re.compile(r"^(@triton_heuristics\..*?)^(?:@triton\.jit|def )", re.MULTILINE | re.DOTALL)
_REDUCTIONS = ("reduction", "persistent_reduction", "split_scan", "cooperative_reduction")


class Heuristics:
    """The decorator by which Inductor chose the configurations of a standalone file's kernel.

    Args:
        module: the imported file.
    """

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._call = _find_decorator(Path(str(module.__file__)))
        self.kind = self._call.func.attr if isinstance(self._call.func, ast.Attribute) else ""

    def kernel(self, **meta: Any) -> Any:
        """Makes the kernel again with all configs of its heuristics; ``meta`` is added to its ``inductor_meta``."""
        keywords = {str(keyword.arg): self._value(keyword.value) for keyword in self._call.keywords}
        known = keywords.get("inductor_meta") or {}
        keywords["inductor_meta"] = {**known, "force_disable_caches": True, "dynamic_scale_rblock": False, **meta}
        arguments = [self._value(argument) for argument in self._call.args]
        return self._value(self._call.func)(*arguments, **keywords)(self._module.KERNEL.fn)

    def configs(self, **meta: Any) -> list[Config]:
        """The configurations that Inductor would try for :meth:`kernel`."""
        return [list_config_facts(config) for config in self.kernel(**meta).configs]

    def _value(self, node: ast.expr) -> Any:
        code = compile(ast.Expression(node), str(self._module.__file__), "eval")
        return eval(code, vars(self._module))


def _find_decorator(file: Path) -> ast.Call:
    text = file.read_text(encoding="utf-8")
    found = _DECORATED.search(text)  # to parse the whole file takes as long as to import it
    for node in ast.parse(f"{found[1]}def kernel(): ..." if found else text).body:
        for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).startswith("triton_heuristics."):
                return decorator
    raise InductorBenchError(f"{file} holds no kernel of Inductor's", "give a file that inductor-bench extract wrote")


def list_configs(heuristics: Heuristics, present: Config) -> TritonConfigs:
    """The configurations of the kernel, whose present configuration is ``present``."""
    kernel = heuristics.kernel()
    meta = dict(kernel.inductor_meta)
    ladders, limits = _find_ladders(heuristics.kind, kernel, present)
    sizes = kernel.size_hints or {}
    tile = [size for name, size in sizes.items() if f"{name.upper()}BLOCK" not in present]
    return TritonConfigs(
        now=present,
        default=tuple(heuristics.configs(max_autotune=False, max_autotune_pointwise=False)),
        max=tuple(heuristics.configs(max_autotune=True, max_autotune_pointwise=True)),
        tuned=bool(meta.get("max_autotune") or meta.get("max_autotune_pointwise")),
        ladders={field: tuple(values) for field, values in ladders.items()},
        fixed_elements=math.prod(1 << (size - 1).bit_length() for size in tile),
        limits=limits,
    )


def _find_ladders(kind: str, kernel: Any, now: Config) -> tuple[dict[str, list[int]], str]:
    """Returns the values of each field that can be varied, and the limits on them in words."""
    meta = kernel.inductor_meta
    warps = [1 << power for power in range(6)]
    if kind in _LAUNCH_ONLY:
        fields, limits = _LAUNCH_ONLY[kind]
        if meta.get("grid_type") == "PrecomputedGrid":
            return {}, "its grid is recorded only for its author's configs: nothing else can be varied"
        values = {"num_warps": warps, "num_stages": list(range(1, MAXIMUM_STAGES + 1))}
        return {field: sorted({*values[field], now[field]}) for field in fields}, limits
    if kind == "fixed_config":
        return {}, "its text was generated for the config that was chosen when the model was compiled"
    if meta.get("deterministic") and kind in _REDUCTIONS:
        return (
            {},
            "the model was compiled to be deterministic, and another config would change the order of its reduction",
        )
    reached = list_tuning_values(kernel, make_config(now))
    limits = "its RSPLIT stays: all blocks must be resident at once" if "RSPLIT" in now else ""
    return {field: _filter_values(field, values, kind, kernel, now) for field, values in reached.items()}, limits


def _filter_values(field: str, values: tuple[int, ...], kind: str, kernel: Any, now: Config) -> list[int]:
    """The values of a field that the kernel's text and launch allow, and the value of ``now``."""
    meta, sizes = kernel.inductor_meta, kernel.size_hints or {}
    low, high = (meta.get("tma_min_block_sizes") or {}).get(field, 1), max(values)
    if field == "XBLOCK":
        high = now.get("RSPLIT_SIZE", high)
    elif field.lower() == "num_stages":
        high = MAXIMUM_STAGES
    elif field in ("YBLOCK", "ZBLOCK") and "Overflow" not in str(meta.get("grid_type")):
        low = max(low, -(-sizes.get(field[0].lower(), 1) // MAXIMUM_BLOCKS))
    elif field == "R0_BLOCK" and kind == "split_scan":
        low = max(
            low, meta.get("min_split_scan_rblock", 256)
        )  # its workspace is sized for blocks of at least this size
    return [value for value in values if low <= value <= high or value == now.get(field)]


def list_config_facts(config: Any) -> Config:
    """A ``triton.Config`` as a mapping of block sizes and launch options."""
    unusual = {"num_ctas": 1, "maxnreg": None}
    options = {name: getattr(config, name, unusual.get(name)) for name in LAUNCH_OPTIONS}
    return {
        **config.kwargs,
        **{name: value for name, value in options.items() if name not in unusual or value != unusual[name]},
    }


def make_config(facts: Config) -> Any:
    """The ``triton.Config`` of a mapping from :func:`list_config_facts`."""
    import triton

    options = {name: facts[name] for name in LAUNCH_OPTIONS if name in facts}
    made = triton.Config({name: value for name, value in facts.items() if name not in options}, **options)
    made.found_by_coordesc = made.found_by_combo_autotune = True  # this ends Inductor's searches
    return made


class TritonBenchKernel(LoadedKernel):
    """A Triton kernel, run by the harness in its file. The ``change`` that makes a variant holds ``config``.

    Args:
        module: the imported file.
        file: the harness's object of a variant; ``None`` for that of the file.
        heuristics: the decorator of the kernel, if another variant has read it from the file.
    """

    def __init__(self, module: ModuleType, file: Any = None, heuristics: Heuristics | None = None) -> None:
        self.module, self.file = module, file or module.FILE
        self._heuristics = heuristics
        self.launch = self.file.launch
        self.now = list_config_facts(self.file.kernel.configs[0])
        self.runtime = find_runtime(NVIDIA.type)
        self.folder = self.file.folder

    @property
    def heuristics(self) -> Heuristics:
        if self._heuristics is None:
            self._heuristics = Heuristics(self.module)
        return self._heuristics

    def facts(self) -> VariantFacts:
        return VariantFacts("triton", NVIDIA.type, codec.decode(RecordedFacts, self.file.recorded))

    def configs(self) -> TritonConfigs:
        """The configurations of the kernel; see :func:`triton_candidates.list_configs`."""
        return list_configs(self.heuristics, self.now)

    def make_variant(self, change: VariantChange) -> TritonBenchKernel:
        kernel = self.heuristics.kernel()
        kernel.configs, kernel.save_cache_hook = [make_config(change.config)], None
        file = type(self.file)(kernel, self.file.recorded, self.file.folder)
        return TritonBenchKernel(self.module, file, self.heuristics)

    def compile_binary(self, config: Config, read: bool) -> Binary:
        """Compiles the kernel in a configuration; ``read`` adds the registers and spills of the binary."""
        made = make_config(config)
        binary, shared = compile_for_target(self.file.kernel, made)
        seen = read_binary(binary) if read else {}
        return Binary(hashlib.sha256(binary).hexdigest(), shared, len(binary), **seen)

    def compile(self) -> CompiledResources:
        load_kernel(self.file.kernel)
        compiled = self._read_compiled()
        return CompiledResources(compiled.registers, compiled.spills, compiled.shared_memory_bytes)

    def make_arguments(self) -> Arguments:
        """Arguments for comparisons between variants: their random values are drawn once for all kernels."""
        draw = draw_on(self.file.device)
        return build_arguments(self.launch, self.file.device, folder=self.file.folder, draw=draw)

    def compute(self, arguments: Arguments) -> list[torch.Tensor]:
        self.file.call(arguments)
        outputs: list[torch.Tensor] = self.file.outputs(arguments)
        return outputs

    def verify(self) -> tuple[bool | None, str]:
        passed, message = self.file.check()
        return passed, message

    def measure(self) -> KernelTimes:
        file, launch = self.file, with_zeros(self.launch)
        twin = type(file)(file.kernel, {**file.recorded, "launch": launch}, file.folder) if launch else None
        return make_measured(self._measure_file(file), self._measure_file(twin) if twin else None)

    def _measure_file(self, file: Any) -> dict[str, Any]:
        """Times a kernel with this process's harness, which measures the gap between launches once for all files."""
        return self.runtime.measure_call(
            file.launch, file.make_arguments(), lambda each: partial(file.run, each), **_launch_options(file)
        )

    def timer_key(self) -> Any:
        return _launch_options(self.file), find_values_folder(self.launch, self.folder)

    def make_timer(self, arguments: Arguments) -> Timer:
        return self.runtime.make_timer(self.launch, arguments, self.bind, **_launch_options(self.file))

    def bind(self, arguments: Any) -> Callable[[], Any]:
        return lambda: self.file.run(arguments)

    def describe(self) -> Described:
        compiled = self._read_compiled()
        return Described(
            config=compiled.config,
            moved_bytes=self.file.moved_bytes(),
            registers=compiled.registers,
            spills=compiled.spills,
            shared_memory_bytes=compiled.shared_memory_bytes,
        )

    def _read_compiled(self) -> CompiledKernel:
        return list_compiled_kernels({"": self.file.kernel}).get("", CompiledKernel())


def _launch_options(file: Any) -> dict[str, Any]:
    kept = getattr(file, "kept", None)  # files of earlier versions lack the attribute
    return {"moved": file.moved_bytes(), "reset": file.reset, "kept": kept}


class CppBenchKernel(LoadedKernel):
    """A C++ kernel. The ``change`` that makes a variant holds ``source`` and ``cpp``.

    Args:
        recorded: the file's ``RECORDED``.
        source: the C++ text.
        folder: the folder of the file.
    """

    def __init__(self, recorded: dict[str, Any], source: str, folder: str) -> None:
        needs = {**recorded["cpp"], "threads": find_threads(recorded["cpp"])}
        self.recorded, self.source, self.folder = {**recorded, "cpp": needs}, source, folder
        self.kernel = cpp_main.CppKernel(self.recorded, source, folder)
        self.launch = self.kernel.launch

    def facts(self) -> VariantFacts:
        return VariantFacts(
            language="cpp",
            device=CPU.type,
            recorded=codec.decode(RecordedFacts, self.recorded),
            source=self.source,
            processors=cpp_main.usable_processors(),
            vector_widths=tuple(list_vector_widths()),
        )

    def make_variant(self, change: VariantChange) -> CppBenchKernel:
        return CppBenchKernel({**self.recorded, "cpp": change.cpp}, change.source, self.folder)

    def compile(self) -> CompiledResources:
        self.kernel.compile()
        return CompiledResources()

    def make_arguments(self) -> Arguments:
        return self.kernel.make_arguments()

    def compute(self, arguments: Arguments) -> list[torch.Tensor]:
        self.compile()
        self.kernel.call(arguments)
        return self.kernel.outputs(arguments)

    def verify(self) -> tuple[bool | None, str]:
        self.compile()
        return cpp_main.check_cpp(self.kernel, 0)

    def measure(self) -> KernelTimes:
        self.compile()
        times = measure_cpu(self.kernel.launch, self.kernel.make_arguments(), self.kernel.bind)
        return make_measured(times, self.kernel.measure_with_zeros())

    def make_timer(self, arguments: Arguments) -> CpuRaceTimer:
        return CpuRaceTimer(self.kernel.launch, arguments, self.kernel.bind)

    def bind(self, arguments: Arguments) -> Callable[[], Any]:
        return self.kernel.bind(arguments)

    def prepare(self) -> None:
        self.kernel.set_threads()
