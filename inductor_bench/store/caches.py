"""The caches outside of any RUN: tunings, measured peaks, and vector probes of the compiler."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from dataclasses import astuple, dataclass
from pathlib import Path

from ..devices.table import device_of
from ..errors import InductorBenchError
from ..records.base import Failure
from ..records.retune import AnyPin, CppPin, LibraryPin, TritonPin, TuningOrigin
from ..records.run import Environment, Peaks
from ..records.tuning import MeasuredKernel
from . import codec
from .files import ensure_private_folder, read_json, write_json

# The cache of measured peaks: one JSON file per device outside any RUN, so that each device is measured once.
#
# A cache that cannot be read or written counts as empty and fails no measurement.


PEAKS_FORMAT = 3
"""The version of the file and of the way of measuring. A file of another version is measured again."""


def cache_folder() -> Path:
    """``$INDUCTOR_BENCH_CACHE``, or else ``inductor-bench`` in ``$XDG_CACHE_HOME``, or else in ``~/.cache``."""
    chosen = os.environ.get("INDUCTOR_BENCH_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    # The specification says that a relative XDG path is invalid.
    root = Path(base) if base and Path(base).is_absolute() else Path(os.path.expanduser("~")) / ".cache"
    return root / "inductor-bench"


def peaks_key(environment: Environment, device: str) -> str:
    """The key of a device's peaks: the device, torch's minor version, and the driver or the number of threads.

    Args:
        environment: the environment of the measuring process.
        device: a device type, or the name of a device such as ``cuda:1``.
    """
    torch = ".".join(re.split(r"[.+]", environment.versions.torch)[:2])
    return slug(" ".join([*device_of(device).peaks_depend_on(environment), f"torch {torch}"]))


def load_peaks(key: str) -> Peaks | None:
    """The cached peaks of a key; ``None`` if there are none, or of another version."""
    try:
        data = read_json(_peaks_path(key))
        if not isinstance(data, dict) or data.get("format") != PEAKS_FORMAT:
            return None
        peaks: Peaks = codec.decode(Peaks, data.get("peaks"))
    except (InductorBenchError, UnicodeDecodeError):
        return None
    return peaks


def save_peaks(key: str, peaks: Peaks) -> bool:
    """Caches the peaks of a key, atomically. Returns whether the file could be written."""
    try:
        write_json(_peaks_path(key), {"format": PEAKS_FORMAT, "peaks": codec.encode(peaks)})
    except InductorBenchError:
        return False
    return True


def slug(text: str) -> str:
    """A file name of letters, digits and dashes. A long name is cut and ends in a hash of the whole text."""
    name = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "device"
    if len(name) <= 100:
        return name
    return f"{name[:88].rstrip('-.')}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def _peaks_path(key: str) -> Path:
    return cache_folder() / "peaks" / f"{slug(key)}.json"


# The store of tunings: what was tuned in one RUN is known to the next. One JSON file for each kernel and method.
#
# A file that cannot be read, is damaged, or is of another version counts as missing, and a store that cannot be written
# fails no retune. Files are written atomically, so that of two writers the last one wins.


TUNINGS_FORMAT = 4
"""The version of the files and of the way of tuning. A tuning of another version is not known."""


@dataclass(frozen=True)
class TuningPlace:
    """What a tuning depends on beside the kernel and the method."""

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

    A winner has its pin, by which a program takes it over without a RUN; ``None`` if it cannot be pinned. If
    there is nothing to choose from, ``kernel`` is ``None``, and ``failure`` says why.
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
        """The pin of a winner."""
        return self.triton_pin or self.cpp_pin or self.library_pin


def load_tuning(key: TuningKey) -> KnownTuning | None:
    """The tuning of a key; ``None`` if it is not known."""
    return _read(_tuning_path(key), key.place)


def known_tunings(place: TuningPlace) -> list[KnownTuning]:
    """All tunings for a device and these versions, in no order."""
    with contextlib.suppress(OSError):
        files = sorted(_folder(place).glob("*.json"))
        return [known for file in files if (known := _read(file, place)) is not None]
    return []


def save_tuning(known: KnownTuning) -> bool:
    """Stores a tuning in place of an earlier one with its key. Returns whether the file could be written."""
    try:
        write_json(_tuning_path(known.key), {"format": TUNINGS_FORMAT, **codec.encode_sparse(known)})
    except InductorBenchError:
        return False
    return True


def forget_tuning(key: TuningKey) -> None:
    """Removes a tuning, if it is there and can be removed."""
    with contextlib.suppress(OSError):
        _tuning_path(key).unlink()


def _read(path: Path, place: TuningPlace) -> KnownTuning | None:
    try:
        data = read_json(path)
        if not isinstance(data, dict) or data.get("format") != TUNINGS_FORMAT:
            return None
        known: KnownTuning = codec.decode(KnownTuning, data)
    except (InductorBenchError, UnicodeDecodeError):
        return None
    if known.key.place != place or path != _tuning_path(known.key):
        return None
    has_tuning = known.kernel is not None and known.kernel.tuning is not None
    return known if has_tuning or known.failure is not None else None


def _folder(place: TuningPlace) -> Path:
    return cache_folder() / "tunings" / slug(" ".join(filter(None, astuple(place))))


def _tuning_path(key: TuningKey) -> Path:
    return _folder(key.place) / f"{slug(f'{key.kernel_id} {key.launch} {key.method} {key.state}')}.json"


# The store of vector probes, from which each RUN's own compile cache gets those that earlier RUNs compiled.
#
# Inductor compiles and loads a small library for each vector instruction set, to find out whether the compiler, torch
# and the processor support it. This takes seconds in an empty compile cache. A library's name is a hash of its text, of
# the compiler's and torch's versions and of the flags; Inductor compiles no library that is there, and loads each of
# them in any case.
#
# A folder or a file that cannot be read or written is passed over, and Inductor compiles.


PROBE = b"_chk_kernel"
"""A part of the name of each function in a probe's text, for example ``__avx_chk_kernel``. (2.11, 2.13)"""

MOST_BYTES = 4096
"""Maximum size of a probe's text; most kernels are larger."""


def lend_probes(compile_cache: Path) -> None:
    """Copies the stored probes into a compile cache, if there are any."""
    store = _private_store() if _store().is_dir() else None
    if store is None:
        return
    with contextlib.suppress(OSError):
        for library in store.glob("*.so"):
            lent = compile_cache / library.name[1:3] / library.name
            if library.lstat().st_uid == os.getuid() and not lent.exists():
                _copy(library, lent)


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
    """The folder of the store; ``None`` if others could have written the libraries, which programs load."""
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
