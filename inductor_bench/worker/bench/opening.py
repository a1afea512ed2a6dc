"""Imports a standalone file, and opens its kernel by the language of its harness."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import linecache
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

from inductor_bench.errors import InductorBenchError
from inductor_bench.source.standalone.paste import HARNESS_END, HARNESS_TITLE

from .cpp_kernel import CppBenchKernel
from .kernel import Kernel
from .library.kernel import OperatorBenchKernel
from .triton_kernel import TritonBenchKernel

USE_EXTRACTED = "give a file that inductor-bench extract wrote, or a RUN#kernel"


def open_kernel(module: ModuleType, file: str) -> Kernel:
    """The kernel of an imported standalone file.

    Raises:
        InductorBenchError: the file is no standalone file, or this machine lacks its device.
    """
    recorded = getattr(module, "RECORDED", None)
    if not isinstance(recorded, dict) or "launch" not in recorded:
        raise InductorBenchError(f"{file} is not a standalone kernel file", USE_EXTRACTED)
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
