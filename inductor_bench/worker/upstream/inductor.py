"""The one file, with ``triton``, that touches torch's and Triton's private names.

Each function says which versions it was checked with.
Nothing here measures; nothing here imports torch before it is called.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from inductor_bench.records.code.details import CompiledKernel

Run = Callable[[], Any]
OnLoad = Callable[[ModuleType, str, Mapping[str, Any]], None]
OnTritonLaunch = Callable[[str, Any, tuple[Any, ...], dict[str, Any], Run], Any]
Quietly = Callable[[Run], Any]


def import_compiler() -> None:
    """Does what Inductor does when ``torch.compile`` is first called: has compilers start, and imports the rest of
    itself meanwhile, which takes longer than to import torch. (2.11, 2.13)"""
    from torch._inductor.async_compile import maybe_warm_pool

    maybe_warm_pool()
    importlib.import_module("torch._inductor.compile_fx")
    import_generated_codes_imports()


def import_generated_codes_imports() -> None:
    """Imports what compiled modules and their kernels import. (2.11, 2.13)"""
    for name in ("select_algorithm", "codegen.memory_planning", "runtime.triton_heuristics", "runtime.triton_helpers"):
        with contextlib.suppress(ImportError):  # no Triton
            importlib.import_module(f"torch._inductor.{name}")


def load_compiled_module(path: Path) -> ModuleType:
    """Imports a compiled module from its file; kernels are compiled, nothing is launched. (2.11, 2.13)"""
    from torch._inductor.codecache import PyCodeCache

    # Through torch's own loader, so that a kernel that refers to its module by name finds it.
    return PyCodeCache.load_by_key_path(path.stem, str(path))


def start_no_compilers() -> None:
    """Has this process compile by itself, should it have to, so that torch starts no processes beside what is timed.

    (2.11, 2.13)
    """
    from torch._inductor import config

    config.compile_threads = 1


def harness_run(module: ModuleType) -> Run:
    """The closure that a compiled module's own harness times: one call on its fabricated inputs. (2.11, 2.13)

    ``benchmark_compiled_module`` hands that closure to ``print_performance``; taking it from there works whether the
    inputs are made inside (up to 2.10) or by ``get_args`` (since 2.11).
    """
    from torch._inductor import utils

    taken: list[Run] = []

    def take(run: Run, *_: Any, **__: Any) -> float:
        taken.append(run)
        return 0.0

    original = utils.print_performance
    setattr(utils, "print_performance", take)  # noqa: B010
    try:
        if hasattr(module, "get_args"):
            module.benchmark_compiled_module(module.get_args(), times=1, repeat=1)
        else:
            module.benchmark_compiled_module(times=1, repeat=1)
    finally:
        utils.print_performance = original
    return taken[0]


def print_profile(label: str, run: Run, repeat: int, trace: Path) -> None:
    """What ``python MODULE -p --times 1 --repeat N`` does, with its trace at ``trace`` and its text on stdout.

    (2.11, 2.13) The harness itself writes to one fixed path in the temporary folder and imports ``tabulate``, which
    torch does not depend on, after the trace is written.
    """
    from torch._inductor import wrapper_benchmark
    from torch._inductor.utils import print_performance

    def benchmark(times: int, repeat: int) -> float:
        return print_performance(run, times=times, repeat=repeat)

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


def watch_compiled_modules(codecache: ModuleType, on_load: OnLoad) -> None:
    """Calls ``on_load(module, path, constants)`` for each compiled module that torch loads in this process.

    (2.11, 2.13) Both a fresh compilation and a cache hit end in ``PyCodeCache.load_by_key_path``; kernels' own files
    pass through it too and are told apart by the module harness, which they lack.
    """
    original = codecache.PyCodeCache.load_by_key_path.__func__

    def load_by_key_path(cls: Any, /, key: str, path: str, linemap: Any = None, attrs: Any = None, **more: Any) -> Any:
        module = original(cls, key, path, linemap, attrs, **more)
        if hasattr(module, "call") and (hasattr(module, "benchmark_compiled_module") or hasattr(module, "runner")):
            on_load(module, path, attrs or {})
        return module

    codecache.PyCodeCache.load_by_key_path = classmethod(load_by_key_path)


def is_profiler_running() -> bool:
    """Whether torch's profiler is recording in this process. (2.11, 2.13)"""
    from torch._C._autograd import _profiler_enabled

    return bool(_profiler_enabled())


def profiler_range(name: str) -> contextlib.AbstractContextManager[Any]:
    """A range that the profiler records like an operator. (2.11, 2.13)"""
    from torch._C._profiler import _RecordFunctionFast

    made: contextlib.AbstractContextManager[Any] = _RecordFunctionFast(name)
    return made


def is_using_cuda_graphs() -> bool:
    """Whether modules compiled now are wrapped in CUDA graphs. (2.11, 2.13)"""
    from torch._inductor import config

    return bool(config.triton.cudagraphs)


def vector_isa() -> str | None:
    """The vector instruction set that C++ kernels are written for here, for example ``avx512``. (2.11, 2.13)"""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    isa = pick_vec_isa()
    return str(isa) if isa else None


def vector_lanes() -> int | None:
    """How many float32 values a vector of the C++ kernels holds that are compiled here. (2.11, 2.13)"""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    isa = pick_vec_isa()
    return isa.nelements() if isa else None


def vector_widths() -> list[int]:
    """The widths in bits of the vectors that C++ kernels can be compiled for here, narrow ones first. (2.11, 2.13)"""
    from torch._inductor.cpu_vec_isa import valid_vec_isa_list

    return sorted({isa.bit_width() for isa in valid_vec_isa_list()})


def is_vector_width_forced() -> bool:
    """Whether the program chose another vector width than the machine's. (2.11, 2.13)"""
    from torch._inductor import config

    return config.cpp.simdlen is not None


def clone_input(value: Any) -> Any:
    """A copy of a module's argument with the same strides; what is not a plain tensor is passed on. (2.11, 2.13)"""
    import torch
    from torch._inductor.utils import clone_preserve_strides

    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return value
    with torch.no_grad():
        return clone_preserve_strides(value.detach())


def compiled_kernels(namespace: Mapping[str, Any]) -> dict[str, CompiledKernel]:
    """What each Triton kernel of a module was compiled to, by the kernel's variable name. (2.11 with Triton 3.6)

    Only kernels that ran, so that one config is left, are listed.
    """
    try:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    except ImportError:
        return {}
    found = {}
    for name, value in namespace.items():
        launchers: list[Any] = value.launchers if isinstance(value, CachingAutotuner) else []
        if len(launchers) == 1:
            found[name] = _describe_launcher(launchers[0])
    return found


def _describe_launcher(launcher: Any) -> CompiledKernel:
    config = launcher.config
    values = {key: value for key, value in config.kwargs.items() if isinstance(value, int)}
    return CompiledKernel(
        config={**values, "num_warps": config.num_warps, "num_stages": config.num_stages},
        registers=getattr(launcher, "n_regs", None),
        spills=getattr(launcher, "n_spills", None),
        shared_memory_bytes=getattr(launcher, "shared", None),
    )


@contextlib.contextmanager
def watched_triton_kernels(namespace: Mapping[str, Any], on_launch: OnTritonLaunch, quietly: Quietly) -> Iterator[None]:
    """Calls ``on_launch(name, kernel, arguments, keywords, launch)`` in place of each launch of a module's Triton
    kernels; ``launch()`` makes it. What a multi-kernel tries out before it chooses goes to ``quietly``.

    (2.11; 2.13 read only) Every launch goes through ``CachingAutotuner.run``, that of a multi-kernel's choice too.
    """
    try:
        from torch._inductor.codegen.multi_kernel import MultiKernelCall
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    except ImportError:
        yield
        return
    names = {id(value): name for name, value in namespace.items() if isinstance(value, CachingAutotuner)}
    original: Callable[..., Any] = CachingAutotuner.run
    benchmark: Callable[..., Any] = MultiKernelCall.benchmark_sub_kernels

    def run(self: Any, *arguments: Any, stream: Any, **more: Any) -> Any:
        def launch() -> Any:
            return original(self, *arguments, stream=stream, **more)

        return on_launch(names[id(self)], self, arguments, more, launch) if id(self) in names else launch()

    def benchmark_sub_kernels(self: Any, *arguments: Any, **more: Any) -> Any:
        return quietly(lambda: benchmark(self, *arguments, **more))

    setattr(CachingAutotuner, "run", run)  # noqa: B010
    setattr(MultiKernelCall, "benchmark_sub_kernels", benchmark_sub_kernels)  # noqa: B010
    try:
        yield
    finally:
        setattr(CachingAutotuner, "run", original)  # noqa: B010
        setattr(MultiKernelCall, "benchmark_sub_kernels", benchmark)  # noqa: B010


def no_dispatch() -> contextlib.AbstractContextManager[Any]:
    """While entered, this thread's operators go past all dispatch modes: far cheaper than being let through. (2.13)"""
    import torch

    guard: contextlib.AbstractContextManager[Any] = torch._C._DisableTorchDispatch()
    return guard


def triton_signature(kernel: Any) -> tuple[dict[str, str], frozenset[str]]:
    """A Triton kernel's parameters with their types, and the names of those updated in place. (2.11; 2.13 read only)"""
    signature = {str(name): str(kind) for name, kind in kernel.triton_meta["signature"].items()}
    return signature, frozenset(kernel.mutated_arg_names)


def cpp_kernel_names(namespace: Mapping[str, Any]) -> list[str]:
    """The variables of a compiled module that are C++ kernels. (2.13)"""
    return [name for name, value in namespace.items() if name.startswith("cpp_") and callable(value)]


def raw_stream() -> int:
    """The handle of the current CUDA stream, as generated code passes it on. (2.11)"""
    from torch._C import _cuda_getCurrentRawStream

    return int(_cuda_getCurrentRawStream(0))


def operator_overload(name: str) -> Any:
    """A dispatcher operator by its full name, for example ``aten.convolution.default``."""
    import torch

    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found
