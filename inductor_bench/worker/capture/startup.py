"""Runs at the start of every Python process of a captured program. It must be quick, must not import torch, and must
not disturb a program that never compiles anything."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from .variables import CAPTURE_FOLDER

WATCHED = "torch._inductor.codecache"


def install() -> None:
    """Arranges that compiled modules are observed as soon as torch's code cache is imported."""
    if os.environ.get(CAPTURE_FOLDER):
        sys.meta_path.insert(0, _AfterImport())


class _AfterImport:
    """A finder that lets the others find :data:`WATCHED` and starts the observation once it is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != WATCHED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_observe(module: ModuleType) -> None:
            execute(module)
            from .observation import observe

            observe(module)

        spec.loader.exec_module = execute_and_observe  # type: ignore[method-assign]
        return spec
