"""The cache of measured peaks: one JSON file per device outside any RUN, so that each device is measured once.

A cache that cannot be read or written counts as empty and fails no measurement.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from ..devices.table import device_of
from ..errors import InductorBenchError
from ..records.run import Environment, Peaks
from .files import read_json, write_json
from .formats import codec

FORMAT = 2
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
    """The cached peaks of a key; ``None`` where there are none, or of another version."""
    try:
        data = read_json(_path(key))
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            return None
        peaks: Peaks = codec.decode(Peaks, data.get("peaks"))
    except (InductorBenchError, UnicodeDecodeError):
        return None
    return peaks


def save_peaks(key: str, peaks: Peaks) -> bool:
    """Caches the peaks of a key, atomically. Returns whether the file could be written."""
    try:
        write_json(_path(key), {"format": FORMAT, "peaks": codec.encode(peaks)})
    except InductorBenchError:
        return False
    return True


def slug(text: str) -> str:
    """A file name of letters, digits and dashes. A long name is cut and ends in a hash of the whole text."""
    name = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "device"
    if len(name) <= 100:
        return name
    return f"{name[:88].rstrip('-.')}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def _path(key: str) -> Path:
    return cache_folder() / "peaks" / f"{slug(key)}.json"
