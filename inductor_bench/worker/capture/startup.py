"""The code that runs at the start of every Python process of a captured program.

It is quick, does not import torch, and does not disturb a program that compiles nothing.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from .variables import CAPTURE_FOLDER, EAGER, MODE, PYTHON_STARTED

WATCHED = "torch._inductor.codecache"

WATCHED_EAGER = "torch._dynamo"
"""Imported by ``torch.compile`` also where it compiles nothing."""

TORCH = "torch"


def install() -> None:
    """Starts the observation after the import of torch's compiler, and leaves word that Python ran."""
    folder = os.environ.get(CAPTURE_FOLDER)
    if folder:
        with contextlib.suppress(OSError):
            open(os.path.join(folder, PYTHON_STARTED), "w").close()
        sys.meta_path.insert(0, _AfterImport(WATCHED_EAGER if os.environ.get(EAGER) else WATCHED, _observe))
        if os.environ.get(MODE):
            sys.meta_path.insert(0, _AfterImport(TORCH, _set_mode))


def _observe(module: ModuleType) -> None:
    from .observation import observe, observe_eager

    if module.__name__ == WATCHED:
        observe(module)
    else:
        observe_eager()


def _set_mode(module: ModuleType) -> None:
    from .modes import install as install_mode

    install_mode(module)


class _AfterImport:
    """A finder that calls ``then`` with a module after its import. Other finders find the module."""

    def __init__(self, watched: str, then: Callable[[ModuleType], None]) -> None:
        self._watched = watched
        self._then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._watched:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_tell(module: ModuleType) -> None:
            execute(module)
            self._then(module)

        spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec
