"""The Triton kernel of a standalone file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

import torch

from inductor_bench.devices.nvidia.device import NVIDIA
from inductor_bench.messages.kernels import Binary, Change, Compiled, Facts, RecordedFacts, TritonConfigs
from inductor_bench.messages.times import Described, Measured
from inductor_bench.records.code.details import CompiledKernel
from inductor_bench.records.tuning import Config
from inductor_bench.source.standalone.harness.arguments import Arguments, build_arguments, with_zeros
from inductor_bench.source.standalone.harness.comparison import TOLERANCES
from inductor_bench.store.formats import codec

from ..device.protocol import Timer
from ..device.runtimes import runtime_of
from ..upstream.inductor import compiled_kernels
from ..upstream.triton import compile_for_target, load_kernel, read_binary
from . import triton_candidates
from .computed import draw_on
from .times import find_values_folder, make_measured


class TritonBenchKernel:
    """A Triton kernel, run by the harness in its file. The ``change`` to a variant holds ``config``.

    Args:
        module: the imported file.
        file: the harness's object of a variant; ``None`` for that of the file.
        heuristics: the decorator of the kernel, where another variant has read it from the file.
    """

    tolerances: Mapping[str, float] = TOLERANCES

    def __init__(
        self, module: ModuleType, file: Any = None, heuristics: triton_candidates.Heuristics | None = None
    ) -> None:
        self.module, self.file = module, file or module.FILE
        self._heuristics = heuristics
        self.launch: dict[str, Any] = self.file.launch
        self.now = triton_candidates.config_facts(self.file.kernel.configs[0])
        self.runtime = runtime_of(NVIDIA.type)

    @property
    def heuristics(self) -> triton_candidates.Heuristics:
        if self._heuristics is None:
            self._heuristics = triton_candidates.Heuristics(self.module)
        return self._heuristics

    def facts(self) -> Facts:
        return Facts("triton", NVIDIA.type, codec.decode(RecordedFacts, self.file.recorded))

    def configs(self) -> TritonConfigs:
        """The configurations of the kernel; see :func:`triton_candidates.list_configs`."""
        return triton_candidates.list_configs(self.heuristics, self.now)

    def make_variant(self, change: Change) -> TritonBenchKernel:
        kernel = self.heuristics.kernel()
        kernel.configs, kernel.save_cache_hook = [triton_candidates.make_config(change.config)], None
        file = type(self.file)(kernel, self.file.recorded, self.file.folder)
        return TritonBenchKernel(self.module, file, self.heuristics)

    def compile_binary(self, config: Config, read: bool) -> Binary:
        """Compiles the kernel in a configuration; ``read`` adds the registers and spills of the binary."""
        made = triton_candidates.make_config(config)
        binary, shared = compile_for_target(self.file.kernel, made)
        seen = read_binary(binary) if read else {}
        return Binary(hashlib.sha256(binary).hexdigest(), shared, len(binary), **seen)

    def compile(self) -> Compiled:
        load_kernel(self.file.kernel)
        compiled = self._read_compiled()
        return Compiled(compiled.registers, compiled.spills, compiled.shared_memory_bytes)

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

    def measure(self) -> Measured:
        file, launch = self.file, with_zeros(self.launch)
        twin = type(file)(file.kernel, {**file.recorded, "launch": launch}, file.folder) if launch else None
        return make_measured(self._measure_file(file), self._measure_file(twin) if twin else None)

    def _measure_file(self, file: Any) -> dict[str, Any]:
        """Times a kernel with this process's harness, which measures the gap between launches once for all files."""
        return self.runtime.measure_call(
            file.launch, file.make_arguments(), lambda each: partial(file.run, each), **_launch_options(file)
        )

    def timer_key(self) -> Any:
        return _launch_options(self.file), find_values_folder(self.launch, self.file.folder)

    def make_timer(self, arguments: Arguments) -> Timer:
        return self.runtime.make_timer(self.launch, arguments, self.bind, **_launch_options(self.file))

    def bind(self, arguments: Any) -> Callable[[], Any]:
        return lambda: self.file.run(arguments)

    def prepare(self) -> None:
        return

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
        return compiled_kernels({"": self.file.kernel}).get("", CompiledKernel())


def _launch_options(file: Any) -> dict[str, Any]:
    kept = getattr(file, "kept", None)  # files of earlier versions lack the attribute
    return {"moved": file.moved_bytes(), "reset": file.reset, "kept": kept}
