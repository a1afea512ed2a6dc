"""Several calls of a compiled module, one after the other, as one kernel, with which an edit is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ...devices.table import find_device
from ...errors import InductorBenchError
from ...messages.kernel_requests import (
    CompiledResources,
    Described,
    KernelTimes,
    RecordedFacts,
    VariantChange,
    VariantFacts,
)
from ...source.harness.common import (
    TOLERANCES,
    Arguments,
    bind_arguments,
    build_arguments,
    touched_bytes,
    written_tensors,
)
from ...store import codec
from ..device.runtime import Timer
from ..device.runtimes import find_runtime
from .loaded_kernel import LoadedKernel, draw_on, find_values_folder, make_measured


class JoinedKernel:
    """The calls of a file that ``source.stretch_texts.join_parts`` wrote.

    Args:
        module: the imported file.
        parts: the kernels of its ``PARTS``.
    """

    tolerances: Mapping[str, float] = TOLERANCES

    def __init__(self, module: ModuleType, parts: Sequence[LoadedKernel]) -> None:
        self.recorded, self.folder, self._parts = (module.RECORDED, str(module.FOLDER), parts)
        self.launch: dict[str, Any] = self.recorded["launch"]
        self.runtime = find_runtime(self.recorded["device_type"])
        on_host = self.runtime.device.runs_on_host
        self.device = "cpu" if on_host else f"cuda:{torch.cuda.current_device()}"

    def facts(self) -> VariantFacts:
        language = "cpp" if find_device(self.recorded["device_type"]).runs_on_host else "triton"
        return VariantFacts(language, self.recorded["device_type"], codec.decode(RecordedFacts, self.recorded))

    def make_variant(self, change: VariantChange) -> LoadedKernel:
        raise InductorBenchError("several calls have no configuration of their own", "retune each kernel by itself")

    def compile(self) -> CompiledResources:
        for part in self._parts:
            part.compile()
        return CompiledResources()

    def make_arguments(self) -> Arguments:
        return build_arguments(self.launch, self.device, folder=self.folder, draw=draw_on(self.device))

    def compute(self, arguments: Arguments) -> list[torch.Tensor]:
        self.bind(arguments)()
        return written_tensors(self.launch, arguments)

    def compute_moved(self, arguments: Arguments, seed: int) -> None:
        """Makes the calls, and changes what each leaves for later ones by about its last bit, up or down.

        A kernel in their place may keep that in another type, or compute it in another order. The results themselves
        are left as the calls wrote them.
        """
        self.compile()
        generator = torch.Generator().manual_seed(seed)
        moved: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        for number, part in enumerate(self._parts, 1):
            given = bind_arguments(part.launch, arguments.storages, self.device)
            part.bind(given)()
            for tensor in written_tensors(part.launch, given) if number < len(self._parts) else ():
                if tensor.is_floating_point():
                    before = tensor.clone()
                    nudge(tensor, generator)
                    moved.append((tensor, before, tensor.clone()))
        for tensor, before, after in reversed(moved):
            tensor.copy_(torch.where(tensor == after, before, tensor))

    def verify(self) -> tuple[bool | None, str]:
        return None, "no reference was recorded for several calls together"

    def measure(self) -> KernelTimes:
        return make_measured(self.runtime.measure_call(self.launch, self.make_arguments(), self.bind), None)

    def make_timer(self, arguments: Arguments) -> Timer:
        return self.runtime.make_timer(self.launch, arguments, self.bind)

    def timer_key(self) -> Any:
        return find_values_folder(self.launch, self.folder)

    def bind(self, arguments: Any) -> Callable[[], Any]:
        self.compile()
        bound = [(part, bind_arguments(part.launch, arguments.storages, self.device)) for part in self._parts]
        calls = [part.bind(given) for part, given in bound]

        def run() -> None:
            for call in calls:
                call()

        return run

    def prepare(self) -> None:
        for part in self._parts:
            part.prepare()

    def describe(self) -> Described:
        return Described(moved_bytes=touched_bytes(self.launch))


def nudge(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Changes each element by about its last bit, up or down."""
    signs = 2 * torch.randint(0, 2, tensor.shape, generator=generator) - 1
    factor = 1 + signs.to(tensor.device, torch.float64) * torch.finfo(tensor.dtype).eps
    tensor.copy_((tensor.to(torch.float64) * factor).to(tensor.dtype))


def open_joined(module: ModuleType, open_file: Callable[[Path], LoadedKernel]) -> JoinedKernel:
    """The calls of an imported file; ``open_file`` opens the standalone file of one."""
    parts = []
    for number, text in enumerate(module.PARTS):
        path = Path(module.FOLDER) / f"{module.STEM}_part_{number}.py"
        path.write_text(text, encoding="utf-8")
        parts.append(open_file(path))
    return JoinedKernel(module, parts)
