"""A fast start of a worker: torch imported without garbage collection, and bytecode that is kept."""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..store.caches import cache_folder
from ..store.files import ensure_private_folder

# Imports of torch without Python's garbage collector, which takes a seventh of their time.


@contextmanager
def without_collection() -> Iterator[None]:
    """Pauses the garbage collector: imports make a million objects, which all stay."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# Keeps the bytecode of a worker's imports if the interpreter would compile them anew in each process.
#
# Images are often built without bytecode, and with ``PYTHONDONTWRITEBYTECODE`` set. There the imports of torch and its
# compiler take 5 s and more of each process, and a retune on 16 cores starts 16 of them.


def keep_bytecode(package: str = "torch") -> None:
    """Writes bytecode to the tool's cache, and reads it there, if ``package`` has none and would get none.

    Processes that this one starts do the same. Bytecode is executed, so the cache is made a folder that only its owner
    can write. Nothing changes if that is impossible.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.cached is None or os.path.exists(spec.cached):
        return
    folder = cache_folder() / "bytecode"
    is_missing = sys.dont_write_bytecode or not _is_writable(Path(spec.cached).parent)
    if is_missing and ensure_private_folder(folder, forbidden_bits=0o022):
        sys.pycache_prefix, sys.dont_write_bytecode = str(folder), False
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _is_writable(folder: Path) -> bool:
    return os.access(folder if folder.exists() else folder.parent, os.W_OK)
