"""Imports a standalone file, and opens its kernel by the language of its harness."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from inductor_bench.errors import InductorBenchError

from .cpp_kernel import CppBenchKernel
from .kernel import Kernel
from .library_kernel import OperatorBenchKernel
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
