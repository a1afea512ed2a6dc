"""A module that a test file names at its top, and that is imported when a test first uses it.

pytest imports all test files before it runs one test. Inductor, matplotlib and Ray take longer than those files.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from types import ModuleType
from typing import Any


class Late:
    """Stands for a module. What is read from it or set on it, by ``monkeypatch`` too, is that of the module itself.

    Names that begin with ``__`` are the exception: of these it has only what any object has, such as ``__class__``, and
    reading another one, such as ``__file__``, raises ``AttributeError``. ``load(name)`` returns the module itself.
    """

    def __init__(self, name: str) -> None:
        vars(self)["_name"] = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # pytest asks whether what a test file names is a class, or marked as a test
            raise AttributeError(name)
        return getattr(load(vars(self)["_name"]), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(load(vars(self)["_name"]), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(load(vars(self)["_name"]), name)


def load(name: str) -> ModuleType:
    """Imports a module. What that warns of is not what the test does, which may let no warning pass."""
    if name in sys.modules:
        return sys.modules[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)
