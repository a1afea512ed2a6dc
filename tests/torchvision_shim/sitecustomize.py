"""For tests only: lets a torchvision without its compiled library be imported, because timm imports it.

torchvision's registry build is made for the CUDA torch of the same version. Beside a CPU torch its compiled library
does not load, and importing it then fails over two operators that the library would have defined. Put this folder on
``PYTHONPATH`` and they are declared, without implementations, at the moment when torchvision has tried its library and
has not found it. Where the library loads, nothing is changed; where torchvision is never imported, neither is torch.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

WATCHED = "torchvision.extension"
OPERATORS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_libraries = []


class _Loader(importlib.abc.Loader):
    def __init__(self, real: importlib.abc.Loader) -> None:
        self._real = real

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        declare_missing_operators()


class Finder(importlib.abc.MetaPathFinder):
    """Waits for the module of torchvision that loads its library."""

    watches = WATCHED

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.watches:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def declare_missing_operators() -> None:
    """Declares those of the operators that torch does not know."""
    import torch

    for name, signature in OPERATORS.items():
        if not hasattr(torch.ops.torchvision, name):
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(name + signature)
            _libraries.append(library)  # an operator lives as long as the library that defined it


def install() -> bool:
    """Starts watching; false where this process already does."""
    if any(type(finder).__qualname__ == Finder.__qualname__ and hasattr(finder, "watches") for finder in sys.meta_path):
        return False
    sys.meta_path.insert(0, Finder())
    return True


def run_next() -> None:
    """Gives the next ``sitecustomize`` its turn: the interpreter runs only the first one on the path."""
    own = os.path.dirname(os.path.abspath(__file__))
    folders = [os.path.abspath(entry or ".") for entry in sys.path]
    behind = folders[folders.index(own) + 1 :] if own in folders else []
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", behind)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if install() and __name__ == "sitecustomize":
    run_next()
