"""Triton kernels of standalone files."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

import torch

from inductor_bench.devices.nvidia.device import NVIDIA
from inductor_bench.messages.kernels import Binary, Change, Compiled, Facts, TritonConfigs
from inductor_bench.messages.times import Described, Measured
from inductor_bench.records.code.details import CompiledKernel
from inductor_bench.records.tuning import Config
from inductor_bench.source.standalone.harness.arguments import with_zeros
from inductor_bench.source.standalone.harness.comparison import TOLERANCES

from ..device.runtimes import runtime_of
from ..upstream.inductor import compiled_kernels
from ..upstream.triton import compile_for_target, load_kernel, read_binary
from . import triton_candidates
from .times import folder_of_values, times_beside_zeros


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

    def facts(self) -> Facts:
        recorded = {key: value for key, value in self.file.recorded.items() if key != "launch"}
        return Facts("triton", NVIDIA.type, recorded)

    def configs(self) -> TritonConfigs:
        """What it can be run in; see :func:`triton_candidates.list_configs`."""
        return triton_candidates.list_configs(self.heuristics, self.now)

    def varied(self, change: Change) -> TritonBenchKernel:
        kernel = self.heuristics.kernel()
        kernel.configs, kernel.save_cache_hook = [triton_candidates.make_config(change["config"])], None
        return TritonBenchKernel(self.module, type(self.file)(kernel, self.file.recorded, self.file.folder))

    def compiled_to(self, config: Config, read: bool) -> Binary:
        """What it is compiled to in a configuration; ``read`` says whether its binary is read."""
        made = triton_candidates.make_config(config)
        binary, shared = compile_for_target(self.file.kernel, made)
        seen = read_binary(binary) if read else {}
        return Binary(hashlib.sha256(binary).hexdigest(), shared, len(binary), **seen)

    def compile(self) -> Compiled:
        load_kernel(self.file.kernel)
        compiled = self._compiled()
        return Compiled(compiled.registers, compiled.spills, compiled.shared_memory_bytes)

    def make_arguments(self) -> Any:
        return self.file.make_arguments()

    def compute(self, arguments: Any) -> list[torch.Tensor]:
        self.file.call(arguments)
        outputs: list[torch.Tensor] = self.file.outputs(arguments)
        return outputs

    def verify(self) -> tuple[bool | None, str]:
        passed, message = self.file.check()
        return passed, message

    def measure(self) -> Measured:
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

    def described(self) -> Described:
        compiled = self._compiled()
        return Described(
            config=compiled.config,
            moved_bytes=self.file.moved_bytes(),
            registers=compiled.registers,
            spills=compiled.spills,
            shared_memory_bytes=compiled.shared_memory_bytes,
        )

    def _compiled(self) -> CompiledKernel:
        return compiled_kernels({"": self.file.kernel}).get("", CompiledKernel())


def _launch_options(file: Any) -> dict[str, Any]:
    kept = getattr(file, "kept", None)  # files of earlier versions have none
    return {"moved": file.moved_bytes(), "reset": file.reset, "kept": kept}
