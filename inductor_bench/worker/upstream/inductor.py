"""Loads, runs and observes compiled modules through private names of torch and Inductor.

The versions with which a function was checked stand in parentheses. No function imports torch before it is called.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

from ...records.code import CompiledKernel
from ...store.caches import WORKING
from .node_layers import list_module_paths
from .pinning import read_config_values

Run = Callable[[], Any]
Undo = Callable[[], None]
KernelCall = Callable[..., Any]
_LAUNCHER = ("runtime.triton_heuristics", "runtime.triton_helpers")
OnLoad = Callable[[ModuleType, str, Mapping[str, Any]], None]


def options() -> dict[str, str]:
    """Returns Inductor's options in this torch, and the value of each as Python writes it. (torch 2.11, 2.13)"""
    import torch
    from torch._inductor import config

    values = config.shallow_copy_dict()
    return {name: repr(values.get(name)) for name in torch._inductor.list_options()}


def import_compiler() -> None:
    """Does the work of the first call of ``torch.compile`` in advance. (torch 2.11, 2.13)

    It starts the compile pool, and meanwhile imports the rest of Inductor, which takes longer than importing torch.
    """
    from torch._inductor.async_compile import maybe_warm_pool

    maybe_warm_pool()
    importlib.import_module("torch._inductor.compile_fx")
    import_generated_codes_imports()


def import_generated_codes_imports() -> None:
    """Imports the modules that compiled modules and their kernels import. (torch 2.11, 2.13)"""
    _import_if_possible("select_algorithm", "codegen.memory_planning", *_LAUNCHER)


def import_triton_launcher() -> None:
    """Imports the modules that the files of Triton kernels import. (torch 2.11, 2.13)"""
    _import_if_possible(*_LAUNCHER)


def _import_if_possible(*names: str) -> None:
    for name in names:
        with contextlib.suppress(ImportError):  # Triton is not installed
            importlib.import_module(f"torch._inductor.{name}")


def load_compiled_module(path: Path) -> ModuleType:
    """Imports a compiled module from its file. Its kernels are compiled, but not launched. (torch 2.11, 2.13)"""
    from torch._inductor.codecache import PyCodeCache

    # torch's loader, so that kernels find their module by its name
    return PyCodeCache.load_by_key_path(path.stem, str(path))


def share_compilers(processes: int) -> None:
    """Leaves this process its share of the compile pool's processes, if ``processes`` processes share them.

    (torch 2.11, 2.13)
    """
    if processes > 1:
        from torch._inductor import config
        from torch._inductor.async_compile import get_compile_threads

        config.compile_threads = max(1, get_compile_threads() // processes)


def start_no_compilers() -> None:
    """Makes this process compile without a compile pool, whose processes would disturb the timing.

    (torch 2.11, 2.13)
    """
    from torch._inductor import config

    config.compile_threads = 1


def make_harness_inputs(module: ModuleType) -> list[Any]:
    """The inputs with which a compiled module's own harness runs it. (torch 2.11, 2.13)

    ``benchmark_compiled_module`` passes a function that calls the module to ``print_performance``; both functions are
    replaced. So it does not matter whether the inputs are made inside of ``benchmark_compiled_module`` (up to 2.10) or
    by ``get_args`` (since 2.11).
    """
    from torch._inductor import utils

    taken: list[Any] = []

    def take_inputs(inputs: list[Any]) -> tuple[()]:
        taken[:] = inputs
        return ()

    def run_once(run: Run, *_: Any, **__: Any) -> float:
        run()
        return 0.0

    measure, call = utils.print_performance, module.call
    setattr(utils, "print_performance", run_once)  # noqa: B010
    module.call = take_inputs  # type: ignore[attr-defined]
    try:
        if hasattr(module, "get_args"):
            module.benchmark_compiled_module(module.get_args(), times=1, repeat=1)
        else:
            module.benchmark_compiled_module(times=1, repeat=1)
    finally:
        utils.print_performance, module.call = measure, call  # type: ignore[attr-defined]
    return taken


PROFILE_PASSES = 2
"""Number of times that the harness runs the profiled iterations: first without the profiler. (torch 2.11, 2.13)"""


def print_profile(label: str, run: Run, repeat: int, trace: Path, has_run: Callable[[], None]) -> None:
    """Profiles like ``python MODULE -p --times 1 --repeat N``, and prints the harness's text on stdout.

    (torch 2.11, 2.13)

    The harness writes its trace to one fixed path in the temporary folder, and then imports ``tabulate``, which torch
    does not depend on. During the call, the path and ``tabulate`` are replaced.

    Args:
        label: the name of the module in the text.
        run: one call of the module.
        repeat: the number of profiled calls.
        trace: the path of the trace.
        has_run: called after the last run, before the trace is written.
    """
    from torch._inductor import wrapper_benchmark
    from torch._inductor.utils import print_performance

    passes = iter(range(PROFILE_PASSES, 0, -1))

    def benchmark(times: int, repeat: int) -> float:
        time_s = print_performance(run, times=times, repeat=repeat)
        if next(passes) == 1:
            has_run()
        return time_s

    arguments = sys.argv
    original = wrapper_benchmark.PROFILE_PATH
    wrapper_benchmark.PROFILE_PATH = str(trace)
    sys.argv = [label, "-p", "--times", "1", "--repeat", str(repeat)]
    try:
        with _tabulate():
            wrapper_benchmark.compiled_module_main(label, benchmark)
    finally:
        sys.argv = arguments
        wrapper_benchmark.PROFILE_PATH = original


def record_profile(run: Run, repeat: int, trace: Path, has_run: Callable[[], None]) -> None:
    """Records the trace of :func:`print_profile`, and prints nothing. (torch 2.11, 2.13)"""
    from torch._inductor.utils import print_performance
    from torch.profiler import profile

    with profile(record_shapes=True) as profiler:
        print_performance(run, times=1, repeat=repeat)
        has_run()
    profiler.export_chrome_trace(str(trace))


@contextlib.contextmanager
def _tabulate() -> Iterator[None]:
    if importlib.util.find_spec("tabulate") is not None:
        yield
        return
    stand_in = ModuleType("tabulate")
    stand_in.tabulate = _tabulate_rows  # type: ignore[attr-defined]
    sys.modules["tabulate"] = stand_in
    try:
        yield
    finally:
        del sys.modules["tabulate"]


def _tabulate_rows(rows: list[list[Any]], headers: list[str]) -> str:
    texts = [[f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    columns = list(zip(*[headers, *texts], strict=True))
    widths = [max(map(len, column)) for column in columns]
    lines = [headers, ["-" * width for width in widths], *texts]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def watch_compiled_modules(codecache: ModuleType, on_load: OnLoad) -> Undo:
    """Calls ``on_load(module, path, constants)`` for each compiled module that this process loads. (torch 2.11, 2.13)

    A fresh compilation and a cache hit both call ``PyCodeCache.load_by_key_path``. The files of single kernels do this,
    too; they are recognised because they lack a module's harness.
    """
    before = vars(codecache.PyCodeCache)["load_by_key_path"]
    original = before.__func__

    def load_by_key_path(cls: Any, /, key: str, path: str, linemap: Any = None, attrs: Any = None, **more: Any) -> Any:
        module = original(cls, key, path, linemap, attrs, **more)
        if hasattr(module, "call") and (hasattr(module, "benchmark_compiled_module") or hasattr(module, "runner")):
            on_load(module, path, attrs or {})
        return module

    codecache.PyCodeCache.load_by_key_path = classmethod(load_by_key_path)

    def undo() -> None:
        codecache.PyCodeCache.load_by_key_path = before

    return undo


def key_caches_by_lines(codecache: ModuleType, folder: str) -> Undo:
    """Adds lines, modules and the number of threads to the keys of Inductor's and AOTAutograd's caches.

    A graph whose lines have moved, or whose modules have other names, is compiled again, because a cached graph has the
    lines and modules of its compilation. If the program has chosen another folder than ``folder`` for its caches, they
    are not used. (torch 2.13; 2.9, 2.11 read only)
    """
    details = codecache.FxGraphHashDetails
    original = details.__init__

    @functools.wraps(original)
    def init(self: Any, gm: Any, *arguments: Any, **keywords: Any) -> None:
        if codecache.cache_dir() != folder:
            raise codecache.BypassFxGraphCache("the program has chosen a folder for its caches")
        original(self, gm, *arguments, **keywords)
        self.inductor_bench_lines = _digest_of_lines(gm)

    def undo() -> None:
        details.__init__ = original

    details.__init__ = init
    return undo


def _digest_of_lines(gm: Any) -> str:
    """A hash of the lines and modules that the nodes of a graph come from, and of the number of threads."""
    import torch

    digest = hashlib.sha256(str(torch.get_num_threads()).encode())
    for module in gm.modules() if gm is not None else ():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            paths = "\n".join(list_module_paths(node))
            digest.update(f"{node.name}\n{node.meta.get('stack_trace')}\n{paths}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def is_profiler_running() -> bool:
    """Whether torch's profiler is recording in this process. (torch 2.11, 2.13)"""
    from torch._C._autograd import _profiler_enabled

    return bool(_profiler_enabled())


def open_profiler_range(name: str) -> contextlib.AbstractContextManager[Any]:
    """A range that the profiler records like an operator. (torch 2.11, 2.13)"""
    from torch._C._profiler import _RecordFunctionFast

    made: contextlib.AbstractContextManager[Any] = _RecordFunctionFast(name)
    return made


def is_using_cuda_graphs() -> bool:
    """Whether modules compiled with the present settings are wrapped in CUDA graphs. (torch 2.11, 2.13)"""
    from torch._inductor import config

    return bool(config.triton.cudagraphs)


def is_max_autotuning() -> bool:
    """Whether modules compiled with the present settings are tuned by max-autotune. (torch 2.11, 2.13)"""
    from torch._inductor import config

    return bool(config.max_autotune)


def count_vector_lanes() -> int | None:
    """The number of float32 values in a vector of C++ kernels compiled on this machine. (torch 2.11, 2.13)"""
    isa = _import_vectors().pick_vec_isa()
    return isa.nelements() if isa else None


def _import_vectors() -> ModuleType:
    """Torch's module of the sets of vector instructions, which remembers what works if torch has a cache folder."""
    from torch._inductor import cpu_vec_isa

    with contextlib.suppress(AttributeError, KeyError):  # then torch asks in each process
        remember_vectors(cpu_vec_isa)
    return cpu_vec_isa


def remember_vectors(module: ModuleType) -> None:
    """Keeps in torch's cache folder which vector instructions work here, for later processes. (torch 2.11, 2.13)

    Otherwise each process of a program starts a Python for each set of instructions, which takes seconds. With another
    compiler, or another torch, the question is asked anew. Code that works with some instructions works with fewer of
    them, too: AVX512 is not compiled after AMX.

    Args:
        module: torch's module of the sets of instructions.

    Raises:
        AttributeError: this torch does not say by what it tells such questions apart, so nothing is remembered.
        KeyError: torch has no cache folder.
    """
    import torch

    # The first is torch's own: the compiler, the flags and torch's version, which builds from source may share.
    describe, built = module._get_isa_dry_compile_fingerprint, torch.version.git_version
    original, folder = module.VecISA.check_build, Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / WORKING
    if hasattr(original, "__wrapped__"):
        return
    working: list[tuple[str, set[str]]] = []

    @functools.wraps(original)
    def check_build(isa: Any, code: str) -> bool:
        flags = isa.build_arch_flags()
        facts = (platform.node(), describe(flags), built, flags, code)
        known = folder / hashlib.sha256(repr(facts).encode()).hexdigest()
        wanted = set(flags.split())
        works = known.is_file() or any(code == other and wanted <= more for other, more in working)
        if not works:
            with _unobserved_children():
                works = bool(original(isa, code))
        if works:
            working.append((code, wanted))
            with contextlib.suppress(OSError):  # the next process asks again
                folder.mkdir(parents=True, exist_ok=True)
                known.touch()
        return works

    module.VecISA.check_build = check_build


@contextlib.contextmanager
def _unobserved_children() -> Iterator[None]:
    """Lets torch's Pythons that only load a library start without this tool's hook, which takes longer. (torch 2.13)"""
    name, before = "TORCH_CUSTOM_PYTHONPATH", os.environ.get("TORCH_CUSTOM_PYTHONPATH")
    if before is None:
        hook = Path(__file__).resolve().parent.parent / "capture" / "site"
        os.environ[name] = os.pathsep.join(path for path in sys.path if Path(path or ".").resolve() != hook)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)


def list_vector_widths() -> list[int]:
    """The vector widths in bits for which this machine compiles C++ kernels, in ascending order. (torch 2.11, 2.13)"""
    return sorted({isa.bit_width() for isa in _import_vectors().valid_vec_isa_list()})


def is_vector_width_forced() -> bool:
    """Whether the program set the vector width of C++ kernels. (torch 2.11, 2.13)"""
    from torch._inductor import config

    return config.cpp.simdlen is not None


def clone_input(value: Any) -> Any:
    """Returns a copy of a strided tensor with the same strides, and any other argument itself. (torch 2.11, 2.13)"""
    import torch
    from torch._inductor.utils import clone_preserve_strides

    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return value
    with torch.no_grad():
        return clone_preserve_strides(value.detach())


def list_compiled_kernels(namespace: Mapping[str, Any]) -> dict[str, CompiledKernel]:
    """Returns the result of compiling each Triton kernel of a module, by the kernel's variable.

    (torch 2.11 with Triton 3.6)

    A kernel that did not run still has several configurations and is left out.
    """
    heuristics = sys.modules.get("torch._inductor.runtime.triton_heuristics")
    autotuner = getattr(heuristics, "CachingAutotuner", None)  # missing while another thread imports it
    if autotuner is None:  # no module with Triton kernels was loaded
        return {}
    found = {}
    for name, value in namespace.items():
        launchers: list[Any] = value.launchers if isinstance(value, autotuner) else []
        if len(launchers) == 1:
            found[name] = _describe_launcher(launchers[0])
    return found


def _describe_launcher(launcher: Any) -> CompiledKernel:
    return CompiledKernel(
        config=read_config_values(launcher.config),
        registers=getattr(launcher, "n_regs", None),
        spills=getattr(launcher, "n_spills", None),
        shared_memory_bytes=getattr(launcher, "shared", None),
    )


def list_cpp_kernel_names(namespace: Mapping[str, Any]) -> list[str]:
    """The variables of a compiled module that are C++ kernels. (torch 2.13)"""
    return [name for name, value in namespace.items() if name.startswith("cpp_") and callable(value)]


@contextlib.contextmanager
def replaced_cpp_kernels(module: ModuleType, make: Callable[[str, KernelCall], KernelCall]) -> Iterator[None]:
    """In the block, each C++ kernel of a compiled module is replaced by ``make(name, kernel)``."""
    originals = {name: getattr(module, name) for name in list_cpp_kernel_names(vars(module))}
    for name, kernel in originals.items():
        setattr(module, name, make(name, kernel))
    try:
        yield
    finally:
        for name, kernel in originals.items():
            setattr(module, name, kernel)


def find_raw_stream() -> int:
    """The handle of the current CUDA stream, in the form that generated code passes to kernels. (torch 2.11)"""
    from torch._C import _cuda_getCurrentRawStream

    return int(_cuda_getCurrentRawStream(0))


def find_operator_overload(name: str) -> Any:
    """A dispatcher operator by its full name, for example ``aten.convolution.default``."""
    import torch

    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


# Observes, through private names of torch, when it compiles and when the compiler uses the GPU.
#
# The versions with which a function was checked stand in parentheses. No function imports torch before it is called.


def compile_nothing() -> None:
    """Leaves every function of this process uncompiled. (torch 2.11, 2.13, 2.15)

    ``TORCH_COMPILE_DISABLE`` alone makes functions with ``fullgraph=True`` fail since torch 2.13.
    """
    from torch import compiler

    compiler.set_stance("force_eager")


def call_on_compiling(begins: Callable[[], None], ends: Callable[[], None]) -> Undo:
    """Calls ``begins`` and ``ends`` around each compilation in this process; returns a function that undoes this.

    Compilations are those of Dynamo's graphs, and of backward graphs, which are compiled on first use. The recording of
    a CUDA graph, which torch counts as a compilation, is left out, because it runs the graph. (torch 2.11, 2.13)
    """
    from torch._dynamo.callback import CallbackTrigger, callback_handler

    compiled = (CallbackTrigger.DYNAMO, CallbackTrigger.LAZY_BACKWARD)

    def started(now: Any) -> None:
        if now.callback_trigger in compiled:
            begins()

    def ended(now: Any) -> None:
        if now.callback_trigger in compiled:
            ends()

    callback_handler.register_start_callback(started)
    callback_handler.register_end_callback(ended)

    def undo() -> None:
        with contextlib.suppress(ValueError):  # ``torch._dynamo.reset`` removes all of them
            callback_handler.remove_start_callback(started)
            callback_handler.remove_end_callback(ended)

    return undo


def surround_use_while_compiling(using: Callable[[], AbstractContextManager[None]], *, loads: bool) -> None:
    """Enters ``using()`` around the compiler's use of the GPU. (torch 2.11, 2.13)

    The compiler benchmarks kernels and their configurations on the GPU. It also loads Triton kernels, which counts as a
    use if ``loads`` is true.
    """
    from torch._inductor.runtime import benchmarking

    for kind in vars(benchmarking).values():
        if isinstance(kind, type) and "benchmark_gpu" in vars(kind):
            _surround(kind, "benchmark_gpu", using)
    if not loads:
        return
    try:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    except ImportError:
        return
    _surround(CachingAutotuner, "_make_launchers", using)


def _surround(owner: Any, name: str, using: Callable[[], AbstractContextManager[None]]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def surrounded(*arguments: Any, **keywords: Any) -> Any:
        with using():
            return original(*arguments, **keywords)

    setattr(owner, name, surrounded)


def benchmarks_in_every_mode() -> bool:
    """Whether the compiler benchmarks candidates in every mode, as an environment variable may demand.

    (torch 2.11, 2.13)
    """
    from torch._inductor import config

    return bool(config.max_autotune or config.max_autotune_gemm)


def benchmarks_elsewhere() -> bool:
    """Whether the compiler benchmarks in other processes, in which its use of the GPU cannot be observed.

    (torch 2.11, 2.13)
    """
    from torch._inductor import config

    return bool(config.autotune_in_subproc)


def list_options_of_mode(mode: str, dynamic: bool | None) -> dict[str, Any]:
    """The options of Inductor that a mode of ``torch.compile`` stands for. (torch 2.9, 2.11, 2.13, 2.15)"""
    from torch._inductor import list_mode_options

    return dict(list_mode_options(mode, dynamic))


def count_compiled_graphs() -> int:
    """Counts the graphs that this process compiled, without those that it loaded from a cache. (torch 2.13)"""
    utils = sys.modules.get("torch._dynamo.utils")
    times = getattr(utils, "compilation_time_metrics", {})
    return len(times.get("fx_codegen_and_compile", ()))


def count_graph_breaks() -> tuple[str, ...]:
    """Returns Dynamo's reason for each graph break of this process; none before the compiler is imported.

    (torch 2.9, 2.13, 2.15)
    """
    utils = sys.modules.get("torch._dynamo.utils")
    counted = utils.counters["graph_break"] if utils is not None else {}
    return tuple(reason for reason, count in counted.items() for _ in range(count))
