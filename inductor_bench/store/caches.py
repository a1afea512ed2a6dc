"""The caches outside of any RUN: tunings, verdicts on edits, measured peaks, vector probes, and what torch compiled.

Each cache folder has a manifest of its files beside it, and a lock. While breakdowns share the lock, processes of torch
write into the folder. The last breakdown writes the manifest. The next breakdown that is alone first removes every file
that differs from the manifest: files of a killed command, and damaged files.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import stat
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..devices.table import find_device
from ..errors import InductorBenchError
from ..records.base import Failure
from ..records.edit import EditVerdict
from ..records.retune import AnyPin, CppPin, LibraryPin, MeasuredKernel, TritonPin, TuningOrigin
from ..records.run import Environment, Peaks
from . import codec
from .files import ensure_private_folder, read_json, write_json

T = TypeVar("T")

# The cache of measured peaks: one JSON file per device outside any RUN, so that each device is measured once.
#
# A cache that cannot be read or written counts as empty and fails no measurement.


PEAKS_FORMAT = 4
"""The version of the file and of the way to measure. A file of another version is measured again."""


def find_cache_folder() -> Path:
    """``$INDUCTOR_BENCH_CACHE``, or else ``inductor-bench`` in ``$XDG_CACHE_HOME``, or else in ``~/.cache``."""
    chosen = os.environ.get("INDUCTOR_BENCH_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    # The specification says that a relative XDG path is invalid.
    root = Path(base) if base and Path(base).is_absolute() else Path(os.path.expanduser("~")) / ".cache"
    return root / "inductor-bench"


def make_peaks_key(environment: Environment, device: str) -> str:
    """The key of a device's peaks: the device, torch's minor version, and the driver or the number of threads.

    Args:
        environment: the environment of the measuring process.
        device: a device type, or the name of a device such as ``cuda:1``.
    """
    torch = ".".join(re.split(r"[.+]", environment.versions.torch)[:2])
    return slug(" ".join([*find_device(device).peaks_depend_on(environment), f"torch {torch}"]))


def load_peaks(key: str) -> Peaks | None:
    """Returns the cached peaks of a key; ``None`` if there are none, or if they are of another version."""
    return _load(Peaks, _find_peaks_path(key), PEAKS_FORMAT, "peaks")


def save_peaks(key: str, peaks: Peaks) -> bool:
    """Caches the peaks of a key, atomically. Returns whether the file could be written."""
    return _save(_find_peaks_path(key), {"format": PEAKS_FORMAT, "peaks": codec.encode(peaks)})


def _read(path: Path, number: int | None) -> Mapping[str, Any]:
    """Returns what a file holds; nothing if it is missing, damaged, or of another format."""
    with contextlib.suppress(InductorBenchError):
        data = read_json(path)
        return data if isinstance(data, dict) and data.get("format") == number else {}
    return {}


def _load(kind: type[T], path: Path, number: int | None, key: str = "") -> T | None:
    data = _read(path, number)
    with contextlib.suppress(InductorBenchError):
        return codec.decode(kind, data.get(key) if key else data) if data else None
    return None


def _save(path: Path, data: Mapping[str, Any]) -> bool:
    try:
        write_json(path, data)
    except InductorBenchError:
        return False
    return True


def slug(text: str) -> str:
    """A file name of letters, digits and dashes. A long name is cut and ends in a hash of the whole text."""
    name = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "device"
    if len(name) <= 100:
        return name
    return f"{name[:88].rstrip('-.')}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def _find_peaks_path(key: str) -> Path:
    return find_cache_folder() / "peaks" / f"{slug(key)}.json"


# The store of tunings: a RUN can use the tunings of earlier RUNs. One JSON file for each kernel and method.
#
# A file that cannot be read, is damaged, or is of another version counts as missing, and a store that cannot be written
# fails no retune. Files are written atomically, so that of two writers the last one wins.


TUNINGS_FORMAT = 4
"""The version of the files and of the way of tuning. A tuning of another version is not known."""


@dataclass(frozen=True)
class TuningPlace:
    """The facts besides the kernel and the method on which a tuning depends."""

    device: str  # the name of the device, with the number of threads for a CPU
    torch: str  # the versions; ``triton`` is empty if it is not installed
    triton: str  # the versions; ``triton`` is empty if it is not installed


@dataclass(frozen=True)
class TuningKey:
    """The key of one tuning."""

    place: TuningPlace  # the device and the versions
    kernel_id: str  # the id of the kernel
    launch: str  # a hash of the sizes of the launch, because a kernel may be launched with other sizes elsewhere
    method: str  # of the tuning
    state: str  # of the tuning


@dataclass(frozen=True)
class KnownTuning:
    """A tuning of the store: the kernel with its tuning, and the RUN in which it was tuned.

    A winner has its pin, so a program can use it without a RUN; ``None`` if it cannot be pinned. If there are no
    candidates, ``kernel`` is ``None``, and ``failure`` says why.
    """

    key: TuningKey
    kernel: MeasuredKernel | None
    origin: TuningOrigin
    triton_pin: TritonPin | None = None
    cpp_pin: CppPin | None = None
    library_pin: LibraryPin | None = None
    failure: Failure | None = None

    @property
    def pin(self) -> AnyPin | None:
        """The pin of the best configuration; ``None`` if there is none."""
        return self.triton_pin or self.cpp_pin or self.library_pin


def load_tuning(key: TuningKey) -> KnownTuning | None:
    """The tuning of a key; ``None`` if it is not known."""
    return _read_tuning(_find_tuning_path(key), key.place)


def read_known_tunings(place: TuningPlace) -> list[KnownTuning]:
    """All tunings for a device and these versions, in no order."""
    with contextlib.suppress(OSError):
        files = sorted(_find_folder(place).glob("*.json"))
        return [known for file in files if (known := _read_tuning(file, place)) is not None]
    return []


def save_tuning(known: KnownTuning) -> bool:
    """Stores a tuning in place of an earlier one with its key. Returns whether the file could be written."""
    return _save(_find_tuning_path(known.key), {"format": TUNINGS_FORMAT, **codec.encode_sparse(known)})


def forget_tuning(key: TuningKey) -> None:
    """Removes a tuning, if it is there and can be removed."""
    with contextlib.suppress(OSError):
        _find_tuning_path(key).unlink()


def _read_tuning(path: Path, place: TuningPlace) -> KnownTuning | None:
    known = _load(KnownTuning, path, TUNINGS_FORMAT)
    if known is None or known.key.place != place or path != _find_tuning_path(known.key):
        return None
    has_tuning = known.kernel is not None and known.kernel.tuning is not None
    return known if has_tuning or known.failure is not None else None


def _find_folder(place: TuningPlace) -> Path:
    return find_cache_folder() / "tunings" / slug(" ".join(filter(None, astuple(place))))


def _find_tuning_path(key: TuningKey) -> Path:
    return _find_folder(key.place) / f"{slug(f'{key.kernel_id} {key.launch} {key.method} {key.state}')}.json"


# The verdicts on edited kernels, so that no program runs with a kernel that is known to be wrong.


def load_verdict(source: str, original: str) -> EditVerdict | None:
    """The last verdict on an edit, by the hashes of both sources; ``None`` if it was not checked on this machine."""
    found = _load(EditVerdict, _find_verdict_path(source, original), None)
    if found is None:
        return None
    return found if (found.hashes.source, found.hashes.original) == (source, original) else None


def save_verdict(verdict: EditVerdict) -> None:
    """Stores a verdict in place of an earlier one, if the cache can be written."""
    _save(_find_verdict_path(verdict.hashes.source, verdict.hashes.original), codec.encode_sparse(verdict))


def _find_verdict_path(source: str, original: str) -> Path:
    return find_cache_folder() / "edits" / f"{slug(f'{source} {original}')}.json"


# The store of vector probes. Each RUN's own compile cache gets from it the probes that earlier RUNs compiled.
#
# Inductor compiles and loads a small library for each vector instruction set, to find out whether the compiler, torch
# and the processor support it. This takes seconds in an empty compile cache. A library's name is a hash of its text, of
# the compiler's and torch's versions and of the flags; Inductor compiles no library that is there, and loads each of
# them in any case.
#
# Processes in which this tool notes what works need not even load the libraries.
#
# A folder or a file that cannot be read or written is passed over, and Inductor compiles.


PROBE = b"_chk_kernel"
"""A part of the function names in a probe's text, for example ``__avx_chk_kernel``. (torch 2.11, 2.13)"""

WORKING = "working-vectors"
"""The folder of an empty file for each question that was answered with yes, in a compile cache and in the store."""

MOST_BYTES = 4096
"""Maximum size of a probe's text; most kernels are larger."""


def lend_probes(compile_cache: Path) -> None:
    """Copies the stored probes into a compile cache, if there are any."""
    store = _find_private_store() if _store().is_dir() else None
    if store is None:
        return
    with contextlib.suppress(OSError):
        lent = {library: compile_cache / library.name[1:3] / library.name for library in store.glob("*.so")}
        lent |= {mark: compile_cache / WORKING / mark.name for mark in store.glob(f"{WORKING}/*")}
        for kept, copy in lent.items():
            if kept.lstat().st_uid == os.getuid() and not copy.exists():
                _copy(kept, copy)


def keep_probes(compile_cache: Path) -> None:
    """Stores the probes of a compile cache that are not stored yet."""
    with contextlib.suppress(OSError):
        probes = [path for path in compile_cache.glob("*/*.so") if _is_probe(path.with_suffix(".cpp"))]
        marks = list(compile_cache.glob(f"{WORKING}/*"))
        store = _find_private_store() if probes or marks else None
        if store is not None:
            for path, place in (*((path, store) for path in probes), *((path, store / WORKING) for path in marks)):
                if not (place / path.name).exists():
                    _copy(path, place / path.name)


def _is_probe(text: Path) -> bool:
    return text.is_file() and text.stat().st_size <= MOST_BYTES and PROBE in text.read_bytes()


def _find_private_store() -> Path | None:
    """Returns the folder of the store; ``None`` if other users could have written the libraries in it."""
    folder = _store()
    return folder if ensure_private_folder(folder, forbidden_bits=0o022) else None


def _store() -> Path:
    return find_cache_folder() / "probes"


def _copy(source: Path, target: Path) -> None:
    """Copies a file so that no process finds half of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(source, part)
    part.replace(target)


LIMIT_BYTES = 5_000_000_000
"""If all cache folders together exceed this number of bytes, the least recently used files are removed."""

ROOM_BYTES = 1_000_000_000
"""Bytes of free disk space below which no cache folder is used."""

KEPT_SHARE = 0.8
"""If files of a cache folder have to be removed, they are removed down to this share of the limit."""

PATIENCE_S = 10.0
"""Seconds to wait for another command that looks through the cache folder."""

FORMAT = 1
"""The version of the manifest, and of what is kept in a cache folder."""

LOCKS = "locks"
"""Inductor's folder of empty lock files, whose times change."""

_LIBRARY_HEADER = struct.Struct("<16x2xHIQQQIHHHHHH")

FileFacts = tuple[int, int]
"""The size of a file in bytes, and its time of change in nanoseconds."""


def compile_cache_root() -> Path:
    """The folder that holds all cache folders."""
    return find_cache_folder() / "compiled"


def compile_cache_bytes() -> int:
    """The bytes of all cache folders, as their manifests say."""
    return sum(_count_bytes(_read_manifest(manifest)) for manifest in _list_manifests())


def compile_cache_problem() -> str:
    """Says why no cache folder can be used; empty if they can be used."""
    try:
        _make_private(compile_cache_root())
    except InductorBenchError as error:
        return error.message
    return ""


@dataclass(frozen=True)
class CompileCache:
    """A folder of compiled code. Other commands can use it at the same time; :meth:`close` ends this command's use."""

    folder: Path
    _lock: int

    def close(self) -> None:
        """Writes the manifest and makes room, if no other command uses the folder. Raises nothing."""
        try:
            with contextlib.suppress(OSError, InductorBenchError):
                if _is_locked(self._lock, fcntl.LOCK_EX):
                    files = dict(_list_whole_files(self.folder))
                    _write_manifest(self.folder, files)
                    _make_room(self.folder, files)
        finally:
            os.close(self._lock)


def open_compile_cache(place: str) -> CompileCache:
    """Shares a cache folder with other commands, after damaged files were removed.

    Args:
        place: the folder's name. It contains everything that changes the compiled code and that torch does not check.

    Raises:
        InductorBenchError: the folder cannot be used; the message says why.
    """
    root = compile_cache_root()
    folder = root / place
    _make_private(root)
    _make_private(folder)
    try:
        lock = os.open(_name_beside(folder, ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _say_unusable(folder, error) from error
    try:
        if _is_locked(lock, fcntl.LOCK_EX):
            _remove_changed(folder)
        _share(lock, folder)
    except OSError as error:
        os.close(lock)
        raise _say_unusable(folder, error) from error
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


def _say_unusable(folder: Path, error: OSError) -> InductorBenchError:
    return InductorBenchError(f"{folder} cannot be used: {error.strerror or error}")


def _share(lock: int, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not _is_locked(lock, fcntl.LOCK_SH):
        if time.monotonic() > deadline:
            raise InductorBenchError(f"another command is looking through {folder}")
        time.sleep(0.05)


def _is_locked(lock: int, kind: int) -> bool:
    """Takes the lock if no other command holds it. Returns whether it did. Raises an error if there are no locks."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# The manifest of a cache folder.


def _name_beside(folder: Path, suffix: str) -> Path:
    return folder.with_name(folder.name + suffix)


def _list_manifests() -> list[Path]:
    with contextlib.suppress(OSError):
        return [path for path in compile_cache_root().iterdir() if path.name.endswith(".files.json")]
    return []


def _read_manifest(manifest: Path) -> dict[str, FileFacts]:
    """Returns the files of a cache folder; none if the manifest is missing, damaged, or of another version."""
    with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
        files = _read(manifest, FORMAT)["files"]
        return {str(name): (int(size), int(changed)) for name, (size, changed) in files.items()}
    return {}


def _write_manifest(folder: Path, files: Mapping[str, FileFacts]) -> None:
    write_json(_name_beside(folder, ".files.json"), {"format": FORMAT, "files": files})


def _count_bytes(files: Mapping[str, FileFacts]) -> int:
    return sum(size for size, _ in files.values())


def _list_files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The files of a cache folder by their relative paths, without torch's lock files.

    Raises:
        InductorBenchError: a folder in it cannot be written.
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
    """Removes every file that differs from the manifest."""
    known = _read_manifest(_name_beside(folder, ".files.json"))
    for name, found in _list_files(folder):
        if not stat.S_ISREG(found.st_mode) or known.get(name) != (found.st_size, found.st_mtime_ns):
            (folder / name).unlink(missing_ok=True)


def _list_whole_files(folder: Path) -> Iterator[tuple[str, FileFacts]]:
    """Yields the files that seem to be written completely."""
    for name, found in _list_files(folder):
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


# Makes room: first removes the cache folders that were unused for longest, then files of this one.


def _make_room(own: Path, files: Mapping[str, FileFacts]) -> None:
    sizes = {manifest: _count_bytes(_read_manifest(manifest)) for manifest in _list_manifests()}
    others = [manifest for manifest in sizes if manifest != _name_beside(own, ".files.json")]
    total = sum(sizes.values())
    for manifest in sorted(others, key=_read_change_time):
        if total > LIMIT_BYTES and _remove_place(manifest):
            total -= sizes[manifest]
    if total <= LIMIT_BYTES:
        return
    kept = dict(files)
    allowed = KEPT_SHARE * LIMIT_BYTES - (total - _count_bytes(kept))
    left = _count_bytes(kept)
    for name in sorted(files, key=lambda name: _read_last_use(own / name)):
        if left <= allowed:
            break
        (own / name).unlink(missing_ok=True)
        left -= kept.pop(name)[0]
    _write_manifest(own, kept)


def _read_change_time(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _read_last_use(path: Path) -> float:
    """The time of the last read, as far as the file system notes it, or of the last change."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return max(found.st_atime, found.st_mtime)
    return 0.0


def _remove_place(manifest: Path) -> bool:
    """Removes a cache folder, if no command uses it."""
    folder = manifest.with_name(manifest.name.removesuffix(".files.json"))
    with contextlib.suppress(OSError):
        lock = os.open(_name_beside(folder, ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            if _is_locked(lock, fcntl.LOCK_EX):
                manifest.unlink(missing_ok=True)
                shutil.rmtree(folder, ignore_errors=True)
                return True
        finally:
            os.close(lock)
    return False
