"""Makes the C++ kernels of a module visible to the profiler.

Modules need this when they were compiled without ``TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from inductor_bench.source.module.cpp_text import has_profile_mark

from ..upstream import inductor


def needs_marks(module: ModuleType) -> bool:
    """Whether a module has C++ kernels that are invisible to the profiler."""
    if not inductor.cpp_kernel_names(vars(module)):
        return False
    text = Path(str(module.__file__)).read_text(encoding="utf-8", errors="replace")
    return not has_profile_mark(text)


@contextmanager
def marked_kernels(module: ModuleType) -> Iterator[None]:
    """A context that marks each call of a C++ kernel for the profiler; a mark includes about 1 µs of overhead."""
    originals = {name: getattr(module, name) for name in inductor.cpp_kernel_names(vars(module))}
    for name, kernel in originals.items():
        setattr(module, name, _marked(name, kernel))
    try:
        yield
    finally:
        for name, kernel in originals.items():
            setattr(module, name, kernel)


def _marked(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with inductor.profiler_range(name):
            return kernel(*arguments)

    return call
