"""The code that runs at the start of every Python process of a captured program.

It is quick, does not import torch, and does not disturb a program that compiles nothing.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from .variables import CAPTURE_FOLDER, EAGER, PYTHON_STARTED

WATCHED = "torch._inductor.codecache"

WATCHED_EAGER = "torch._dynamo"
"""Imported by ``torch.compile`` also where it compiles nothing."""


def install() -> None:
    """Starts the observation after the import of torch's compiler, and leaves word that Python ran."""
    folder = os.environ.get(CAPTURE_FOLDER)
    if folder:
        with contextlib.suppress(OSError):
            open(os.path.join(folder, PYTHON_STARTED), "w").close()
        sys.meta_path.insert(0, _AfterImport(WATCHED_EAGER if os.environ.get(EAGER) else WATCHED))


class _AfterImport:
    """A finder that starts the observation after the import of a module, which other finders find."""

    def __init__(self, watched: str) -> None:
        self._watched = watched

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

        def execute_and_observe(module: ModuleType) -> None:
            execute(module)
            from .observation import observe, observe_eager

            if name == WATCHED:
                observe(module)
            else:
                observe_eager()

        spec.loader.exec_module = execute_and_observe  # type: ignore[method-assign]
        return spec
