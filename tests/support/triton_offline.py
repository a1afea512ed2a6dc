"""Compiles standalone Triton files for an H200 without a GPU: ``python triton_offline.py FILE...``, one JSON line.

A file that Triton refuses to compile gets an ``error``; any other failure ends the script.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from types import ModuleType
from typing import Any

import torch
import triton


def pretend_gpu() -> None:
    """Fakes the properties of the GPU that a file reads before its first launch."""
    sys.argv.append("--as-recorded")
    vars(torch.cuda).update(is_available=lambda: True, current_device=lambda: 0)
    from torch._inductor.runtime import triton_helpers

    vars(triton_helpers)["set_driver_to_gpu"] = lambda: None
    vars(torch._inductor.config)["use_static_triton_launcher"] = False


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.rsplit("/", 1)[-1][:-3], path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_file(path: str) -> dict[str, Any]:
    file = load(path).FILE
    configs = file.kernel.configs
    try:
        compiled = file.kernel._precompile_config(configs[0])
    except triton.compiler.CompilationError as error:
        return {"error": str(error)}
    kernel = compiled.kernel
    return {
        "target": f"{kernel.metadata.target.backend}:{kernel.metadata.target.arch}",
        "cubin": len(kernel.asm.get("cubin", b"")),
        "configs": len(configs),
        "config": {**configs[0].kwargs, "num_warps": configs[0].num_warps, "num_stages": configs[0].num_stages},
        "names": sorted(file.names.values()),
        "zeroed": file.zeroed,
        "reset": file.reset,
    }


if __name__ == "__main__":
    paths = sys.argv[1:]
    pretend_gpu()
    print(json.dumps({path: compile_file(path) for path in paths}))
