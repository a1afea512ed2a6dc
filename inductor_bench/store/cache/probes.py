"""The store of vector probes, from which each RUN's own compile cache gets those that earlier RUNs compiled.

Inductor compiles and loads a small library for each vector instruction set, to find out whether the compiler, torch and
the processor support it. This takes seconds in an empty compile cache. A library's name is a hash of its text, of the
compiler's and torch's versions and of the flags; Inductor compiles no library that is there, and loads each of them in
any case.

A folder or a file that cannot be read or written is passed over, and Inductor compiles.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from ..files import ensure_private_folder
from ..peaks import cache_folder

PROBE = b"_chk_kernel"
"""A part of the name of each function in a probe's text, for example ``__avx_chk_kernel``. (2.11, 2.13)"""

MOST_BYTES = 4096
"""Maximum size of a probe's text; most kernels are larger."""


def lend_probes(compile_cache: Path) -> None:
    """Copies the stored probes into a compile cache, where there are any."""
    store = _private_store() if _store().is_dir() else None
    if store is None:
        return
    with contextlib.suppress(OSError):
        for library in store.glob("*.so"):
            if library.lstat().st_uid == os.getuid():
                _copy(library, compile_cache / library.name[1:3] / library.name)


def keep_probes(compile_cache: Path) -> None:
    """Stores the probes of a compile cache that are not stored yet."""
    with contextlib.suppress(OSError):
        probes = [path for path in compile_cache.glob("*/*.so") if _is_probe(path.with_suffix(".cpp"))]
        store = _private_store() if probes else None
        if store is not None:
            for library in probes:
                if not (store / library.name).exists():
                    _copy(library, store / library.name)


def _is_probe(text: Path) -> bool:
    return text.is_file() and text.stat().st_size <= MOST_BYTES and PROBE in text.read_bytes()


def _private_store() -> Path | None:
    """The folder of the store; ``None`` where others could have written the libraries, which programs load."""
    folder = _store()
    return folder if ensure_private_folder(folder, forbidden_bits=0o022) else None


def _store() -> Path:
    return cache_folder() / "probes"


def _copy(source: Path, target: Path) -> None:
    """Copies a file so that no process finds half of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(source, part)
    part.replace(target)
