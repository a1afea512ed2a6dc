"""Lets a torchvision whose compiled library does not load be imported, in the environment of these scripts only.

The registries' torchvision is built for a CUDA torch. Beside a CPU torch its compiled library does not load, and its
import ends with "operator torchvision::nms does not exist": timm, and most classes of transformers, import it.
``scripts/environment.sh`` copies this file into ``.venv`` and names it in a ``.pth`` file, so that every interpreter of
``.venv`` imports it when it starts. It declares the two operators that the import asks for, at the moment when
torchvision has tried its library and has not found it.

The operators have no implementation: a model that calls one ends with torchvision's own error, which says that its
compiled operators are missing. If the library loads, nothing is declared. If torchvision is never imported, neither is
torch. This file imports nothing at its top, because every interpreter pays for it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

WATCHED = "torchvision.extension"
OPERATORS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_libraries: list[Any] = []


class Loader:
    """Loads the module of torchvision that loads its library, and then declares what is missing."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._real.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        declare_missing_operators()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class Finder:
    """Waits for that module."""

    @staticmethod
    def find_spec(fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != WATCHED:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader)  # type: ignore[assignment]
        return spec


def declare_missing_operators() -> None:
    """Declares those of the operators that torch does not know."""
    import torch

    for name, signature in OPERATORS.items():
        if not hasattr(torch.ops.torchvision, name):
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(name + signature)
            _libraries.append(library)  # an operator lives as long as the library that defined it


def install() -> None:
    """Starts to wait."""
    import sys

    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]


install()
