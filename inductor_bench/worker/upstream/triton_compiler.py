"""Compiles and inspects Triton kernels through private names of Inductor's launcher and of Triton's compiler.

The versions with which a function was checked stand in parentheses. No function imports torch before it is called.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ...devices.nvidia import NVIDIA, THREADS_OF_BLOCK, THREADS_OF_WARP, Architecture
from ...errors import InductorBenchError
from .inductor import import_triton_launcher

_USAGE = re.compile(r"\bREG:(\d+) STACK:(\d+)\b")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?!NOP\b)\S", re.MULTILINE)
"""An instruction in the disassembler's listing, except the NOPs with which the assembler pads the end."""
_RADIUS = 32  # number of powers of two; no block is as large


def import_triton_compiler() -> bool:
    """Imports what a process needs if it only compiles Triton kernels; returns whether Triton is installed.

    (torch 2.13)
    """
    if importlib.util.find_spec("triton") is None:
        return False
    for name in ("triton", "torch._inductor.config", "torch._inductor.runtime.triton_helpers"):
        importlib.import_module(name)
    return True


def warm_compiler() -> None:
    """Imports the modules and hashes the files that a first compilation needs. (torch 2.11, Triton 3.6)

    This takes 0.5 s in one process, and 1.5 s in each of 15 processes at once.
    """
    if import_triton_compiler():
        import_triton_launcher()
        with contextlib.suppress(ImportError):  # a version that keeps it elsewhere
            importlib.import_module("triton.compiler.code_generator")
        hash_compiler()


def hash_compiler() -> None:
    """Hashes Triton's files, which each process does before it compiles or loads its first kernel.

    (torch 2.11, 2.13)
    """
    with contextlib.suppress(ImportError, RuntimeError):  # Triton is not installed
        from torch._inductor.runtime.triton_compat import triton_key

        triton_key()


def pretend_gpu(architecture: Architecture) -> dict[str, str]:
    """Makes this process compile kernels for a GPU that the machine lacks; it cannot launch them.

    (torch 2.13, Triton 3.6)

    Returns:
        The versions of torch and Triton.

    Raises:
        InductorBenchError: Triton is not installed.
    """
    if not import_triton_compiler():
        raise InductorBenchError(
            "Triton kernels are compiled with triton, which this Python does not have",
            "pip install triton, or name a Python that has it with --python",
        )
    import torch
    import triton
    from torch._inductor import config
    from torch._inductor.runtime import hints, triton_helpers

    facts = {
        "type": NVIDIA.type,
        "index": 0,
        "multi_processor_count": architecture.multiprocessors,
        "cc": architecture.capability,
        "major": architecture.capability // 10,
        "regs_per_multiprocessor": architecture.registers,
        "max_threads_per_multi_processor": architecture.threads,
        "max_threads_per_block": THREADS_OF_BLOCK,
        "warp_size": THREADS_OF_WARP,
    }
    kind: Any = hints.DeviceProperties
    properties = kind(**{name: value for name, value in facts.items() if name in kind._fields})
    kind.create = staticmethod(lambda device: properties)
    vars(torch.cuda).update(is_available=lambda: True, current_device=lambda: 0)
    vars(triton_helpers)["set_driver_to_gpu"] = lambda: None
    for name in ("use_static_triton_launcher", "use_static_cuda_launcher"):  # they do not expose the binary
        if hasattr(config, name):
            vars(config)[name] = False
    return {"torch": str(torch.__version__), "triton": str(triton.__version__)}


def list_tuning_values(kernel: Any, config: Any) -> dict[str, tuple[int, ...]]:
    """Returns by field the values, in order, that Inductor's coordinate descent reaches from a configuration.

    (torch 2.11, 2.13)
    """
    tuner = kernel.coordesc_tuner
    found = {}
    for field in tuner.tunable_fields:
        value = getattr(config, field, None) or config.kwargs.get(field)
        if value is not None:
            reached = tuner.get_neighbour_values(field, value, radius=_RADIUS, include_self=True)
            found[field] = tuple(sorted(reached))
    return found


def compile_for_target(kernel: Any, config: Any) -> tuple[bytes, int]:
    """Returns a kernel's binary for the GPU of :func:`pretend_gpu`, and a block's shared memory in bytes.

    (torch 2.13, Triton 3.6)

    Raises:
        InductorBenchError: Triton or its assembler fails; the message quotes the error.
    """
    from torch._inductor.runtime.triton_compat import OutOfResources, PTXASError
    from triton.compiler.errors import CompilationError

    try:
        compiled = kernel._precompile_config(config).kernel
    except (CompilationError, OutOfResources, PTXASError, RuntimeError) as error:
        raise InductorBenchError(_read_error_message(error)) from error
    return compiled.asm["cubin"], int(compiled.metadata.shared)


def load_kernel(kernel: Any) -> None:
    """Compiles a kernel for the present GPU, unless it is in Triton's cache, and loads it. (torch 2.11, 2.13)

    Raises:
        InductorBenchError: Triton fails, or a block needs more than the GPU has.
    """
    from torch._inductor.runtime.triton_compat import OutOfResources, PTXASError
    from triton.compiler.errors import CompilationError

    try:
        kernel.precompile()
    except (CompilationError, OutOfResources, PTXASError, RuntimeError) as error:
        raise InductorBenchError(_read_error_message(error)) from error


def _read_error_message(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" ^")]
    return f"does not compile: {lines[-1]}" if lines else f"does not compile: {type(error).__name__}"


def read_binary(cubin: bytes) -> dict[str, int]:
    """Returns ``registers``, ``spills`` (as Triton counts them) and ``instructions`` (without NOPs) of a binary.

    (Triton 3.6)

    Returns an empty mapping if Triton's disassembler is missing.
    """
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.is_file():
        return {}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "-res-usage", "-sass", file.name]
        listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    usage = _USAGE.search(listing)
    if usage is None:
        return {}
    registers, stack = map(int, usage.groups())
    return {"registers": registers, "spills": stack // 4, "instructions": len(_INSTRUCTION.findall(listing))}
