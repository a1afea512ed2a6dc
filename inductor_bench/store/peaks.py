"""The cache of measured peaks: one small JSON file per device, outside any RUN, so that each is measured once.

A cache that cannot be read or written is as good as an empty one; it never fails a measurement.
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
"""The version of the cached file, and of how its peaks are measured. What has another is measured again, never
converted."""


def cache_folder() -> Path:
    """``$INDUCTOR_BENCH_CACHE``, else ``inductor-bench`` in ``$XDG_CACHE_HOME``, else in ``~/.cache``."""
    chosen = os.environ.get("INDUCTOR_BENCH_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    # By the specification, a relative XDG path is to be ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path(os.path.expanduser("~")) / ".cache"
    return root / "inductor-bench"


def peaks_key(environment: Environment, device: str) -> str:
    """Names what the peaks depend on: the device, torch's minor version, and the driver or the threads in use.

    Args:
        environment: of the process that measures.
        device: a device type, or the name of a device such as ``cuda:1``.
    """
    torch = ".".join(re.split(r"[.+]", environment.torch)[:2])
    return slug(" ".join([*device_of(device).peaks_depend_on(environment), f"torch {torch}"]))


def load_peaks(key: str) -> Peaks | None:
    """The cached peaks of a key, or ``None`` where there are none that this version can read."""
    try:
        data = read_json(_path(key))
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            return None
        peaks: Peaks = codec.decode(Peaks, data.get("peaks"))
    except (InductorBenchError, UnicodeDecodeError):
        return None
    return peaks


def save_peaks(key: str, peaks: Peaks) -> bool:
    """Caches the peaks of a key, atomically. Returns whether that worked; a full or read-only disk is no failure."""
    try:
        write_json(_path(key), {"format": FORMAT, "peaks": codec.encode(peaks)})
    except InductorBenchError:
        return False
    return True


def slug(text: str) -> str:
    """A file name of letters, digits and dashes; long ones are cut and told apart by a hash."""
    name = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "device"
    if len(name) <= 100:
        return name
    return f"{name[:88].rstrip('-.')}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def _path(key: str) -> Path:
    return cache_folder() / "peaks" / f"{slug(key)}.json"
