"""The folders in which breakdowns keep what torch compiled, so that an unchanged program is compiled once.

Each place has a folder of Inductor's caches, a manifest of its files beside it, and a lock. Processes of torch write
the folder while breakdowns share the lock. The last of them writes the manifest; the next one that is alone first
removes every file that is not as the manifest says: what a killed command left, and what was damaged.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import InductorBenchError
from .caches import cache_folder
from .files import ensure_private_folder, read_json, write_json

LIMIT_BYTES = 5_000_000_000
"""Bytes of all places together from which on the least recently used files are removed."""

ROOM_BYTES = 1_000_000_000
"""Bytes of free disk space below which no place is used."""

KEPT_SHARE = 0.8
"""The share of the limit that is kept where files of a place have to be removed."""

PATIENCE_S = 10.0
"""Seconds to wait for another command that looks through the place."""

FORMAT = 1
"""The version of the manifest, and of what is kept in a place."""

LOCKS = "locks"
"""Inductor's folder of empty lock files, whose times change."""

_LIBRARY_HEADER = struct.Struct("<16x2xHIQQQIHHHHHH")

FileFacts = tuple[int, int]
"""The size of a file in bytes, and its time of change in nanoseconds."""


def compile_cache_root() -> Path:
    """The folder of all places."""
    return cache_folder() / "compiled"


def compile_cache_bytes() -> int:
    """The bytes of all places, as their manifests say."""
    return sum(_bytes_of(_read_manifest(manifest)) for manifest in _manifests())


def compile_cache_problem() -> str:
    """Why no place can be used; empty where places can be used."""
    try:
        _make_private(compile_cache_root())
    except InductorBenchError as error:
        return error.message
    return ""


@dataclass(frozen=True)
class CompileCache:
    """A place that this command shares with others until it is closed."""

    folder: Path
    _lock: int

    def close(self) -> None:
        """Writes the manifest and makes room, if no other command uses the place. Raises nothing."""
        try:
            with contextlib.suppress(OSError, InductorBenchError):
                if _is_locked(self._lock, fcntl.LOCK_EX):
                    files = dict(_whole_files(self.folder))
                    _write_manifest(self.folder, files)
                    _make_room(self.folder, files)
        finally:
            os.close(self._lock)


def open_compile_cache(place: str) -> CompileCache:
    """Shares a place with other commands, after what is damaged was removed.

    Args:
        place: a name for a folder, with all that the compiled code depends on and torch does not look at.

    Raises:
        InductorBenchError: the place cannot be used; the message says why.
    """
    root = compile_cache_root()
    folder = root / place
    _make_private(root)
    _make_private(folder)
    try:
        lock = os.open(_beside(folder, ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        if _is_locked(lock, fcntl.LOCK_EX):
            _remove_changed(folder)
        _share(lock, folder)
    except OSError as error:
        os.close(lock)
        raise _unusable(folder, error) from error
    except BaseException:
        os.close(lock)
        raise
    return CompileCache(folder, lock)


def _make_private(folder: Path) -> None:
    """Makes a folder, and checks that torch can write files into it that nobody else could have written."""
    if not ensure_private_folder(folder, forbidden_bits=0o022):
        raise InductorBenchError(f"{folder} is no folder of this user's that can be written")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InductorBenchError(f"{folder} cannot be written")
    if shutil.disk_usage(folder).free < ROOM_BYTES:
        raise InductorBenchError(f"less than {ROOM_BYTES / 1e9:.0f} GB is free in {folder}")


def _unusable(folder: Path, error: OSError) -> InductorBenchError:
    return InductorBenchError(f"{folder} cannot be used: {error.strerror or error}")


def _share(lock: int, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not _is_locked(lock, fcntl.LOCK_SH):
        if time.monotonic() > deadline:
            raise InductorBenchError(f"another command is looking through {folder}")
        time.sleep(0.05)


def _is_locked(lock: int, kind: int) -> bool:
    """Takes the lock, if no other command keeps it from this one. Raises an error where there are no locks."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# The manifest of a place.


def _beside(folder: Path, suffix: str) -> Path:
    return folder.with_name(folder.name + suffix)


def _manifests() -> list[Path]:
    with contextlib.suppress(OSError):
        return [path for path in compile_cache_root().iterdir() if path.name.endswith(".files.json")]
    return []


def _read_manifest(manifest: Path) -> dict[str, FileFacts]:
    """The files of a place; none where the manifest is missing, damaged, or of another version."""
    try:
        data = read_json(manifest)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            return {}
        return {str(name): (int(size), int(changed)) for name, (size, changed) in data["files"].items()}
    except (InductorBenchError, UnicodeDecodeError, AttributeError, KeyError, TypeError, ValueError):
        return {}


def _write_manifest(folder: Path, files: Mapping[str, FileFacts]) -> None:
    write_json(_beside(folder, ".files.json"), {"format": FORMAT, "files": files})


def _bytes_of(files: Mapping[str, FileFacts]) -> int:
    return sum(size for size, _ in files.values())


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The files of a place by their relative paths, without torch's lock files.

    Raises:
        InductorBenchError: a folder of the place cannot be written.
    """
    for path, folders, names in os.walk(folder):
        if not os.access(path, os.W_OK | os.X_OK):
            raise InductorBenchError(f"{path} cannot be written")
        if Path(path) == folder and LOCKS in folders:
            folders.remove(LOCKS)
        linked = [name for name in folders if os.path.islink(os.path.join(path, name))]
        for name in (*names, *linked):
            file = os.path.join(path, name)
            with contextlib.suppress(FileNotFoundError):
                yield os.path.relpath(file, folder), os.lstat(file)


def _remove_changed(folder: Path) -> None:
    """Removes every file that is not as the manifest says."""
    known = _read_manifest(_beside(folder, ".files.json"))
    for name, found in _files(folder):
        if not stat.S_ISREG(found.st_mode) or known.get(name) != (found.st_size, found.st_mtime_ns):
            (folder / name).unlink(missing_ok=True)


def _whole_files(folder: Path) -> Iterator[tuple[str, FileFacts]]:
    """The files that were written to their end, as far as that can be seen."""
    for name, found in _files(folder):
        is_temporary = os.path.basename(name).startswith(".") or not stat.S_ISREG(found.st_mode)
        if not is_temporary and (not name.endswith((".so", ".o")) or _is_whole(folder / name)):
            yield name, (found.st_size, found.st_mtime_ns)


def _is_whole(library: Path) -> bool:
    """Whether a file of the C++ compiler, which torch does not write at once, has all of its sections."""
    try:
        with library.open("rb") as stream:
            head = stream.read(_LIBRARY_HEADER.size)
            size = os.fstat(stream.fileno()).st_size
    except OSError:
        return False
    if len(head) < _LIBRARY_HEADER.size or not head.startswith(b"\x7fELF\x02\x01"):
        return False
    numbers: tuple[int, ...] = _LIBRARY_HEADER.unpack(head)
    sections_at, entry_bytes, entries = numbers[4], numbers[9], numbers[10]
    return sections_at > 0 and sections_at + entry_bytes * entries <= size


# Makes room: first the places that were not used for longest go, then the files of this one.


def _make_room(own: Path, files: Mapping[str, FileFacts]) -> None:
    sizes = {manifest: _bytes_of(_read_manifest(manifest)) for manifest in _manifests()}
    others = [manifest for manifest in sizes if manifest != _beside(own, ".files.json")]
    total = sum(sizes.values())
    for manifest in sorted(others, key=_changed):
        if total > LIMIT_BYTES and _remove_place(manifest):
            total -= sizes[manifest]
    if total <= LIMIT_BYTES:
        return
    kept = dict(files)
    allowed = KEPT_SHARE * LIMIT_BYTES - (total - _bytes_of(kept))
    left = _bytes_of(kept)
    for name in sorted(files, key=lambda name: _last_use(own / name)):
        if left <= allowed:
            break
        (own / name).unlink(missing_ok=True)
        left -= kept.pop(name)[0]
    _write_manifest(own, kept)


def _changed(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _last_use(path: Path) -> float:
    """The time of the last read, as far as the file system notes it, or of the last change."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return max(found.st_atime, found.st_mtime)
    return 0.0


def _remove_place(manifest: Path) -> bool:
    """Removes a place, if no command uses it."""
    folder = manifest.with_name(manifest.name.removesuffix(".files.json"))
    with contextlib.suppress(OSError):
        lock = os.open(_beside(folder, ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            if _is_locked(lock, fcntl.LOCK_EX):
                manifest.unlink(missing_ok=True)
                shutil.rmtree(folder, ignore_errors=True)
                return True
        finally:
            os.close(lock)
    return False
