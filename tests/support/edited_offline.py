"""Compiles a Triton kernel with its edit, without a GPU: ``python edited_offline.py FILE NAME``.

Everything is Inductor's but the launches, which need a GPU. Prints one JSON line: what is launched at each stage.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from inductor_bench.devices.nvidia import ARCHITECTURES
from inductor_bench.store import codec
from inductor_bench.worker.capture import startup
from inductor_bench.worker.capture.pinned import make_pinned_kernels
from inductor_bench.worker.upstream.triton_compiler import pretend_gpu

launched: list[str] = []


class Launcher:
    """Notes the code that it would launch."""

    def __init__(self, result: Any) -> None:
        self.config = result.config
        self._code = result.kernel.asm["ttir"]

    def launch(self) -> None:
        launched.append("edited" if "math.cos" in self._code else "own")


class NoDevice:
    @staticmethod
    def exchange_device(index: int) -> int:
        return index

    maybe_exchange_device = exchange_device


def main(path: str, name: str) -> dict[str, Any]:
    startup.install()
    pretend_gpu(ARCHITECTURES["sm_90"])
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.runtime import triton_heuristics as heuristics

    compiled: Any = heuristics.TritonCompileResult
    compiled.make_launcher = lambda self: Launcher(self)
    autotuner: Any = heuristics.CachingAutotuner
    autotuner.get_device_interface = lambda self: NoDevice
    autotuner._dynamic_scale_rblock = lambda self: None
    autotuner.run = lambda self, stream: self.launchers[0].launch()

    compiler = AsyncCompile()
    scope: dict[str, Any] = {name: compiler.triton(name, Path(path).read_text(), device_str="cuda")}
    compiler.wait(scope)
    kernel, pinned = scope[name], make_pinned_kernels()
    stages: dict[str, Any] = {}
    for stage, tuned in (("first", False), ("tuned", True), ("own", False)):
        pinned.switch_config(tuned)
        launched.clear()
        for _ in range(2):
            kernel.run(stream=0)
        stages[stage] = [*launched]
        stages[f"state of {stage}"] = codec.encode(pinned.describe())["states"][0]
    stages["name"] = kernel.fn.__name__
    stages["device"] = kernel.triton_meta["device"]
    return stages


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
