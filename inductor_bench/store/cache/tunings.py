"""The store of tunings: what was tuned in one RUN is known to the next. One JSON file for each kernel and method.

A file that cannot be read, is damaged, or is of another version counts as missing, and a store that cannot be written
fails no retune. Files are written atomically, so that of two writers the last one wins.
"""

from __future__ import annotations

import contextlib
from dataclasses import astuple, dataclass
from pathlib import Path

from ...errors import InductorBenchError
from ...records.failure import Failure
from ...records.retune import TuningOrigin
from ...records.retunes.pins import AnyPin, CppPin, LibraryPin, TritonPin
from ...records.tuning import MeasuredKernel
from ..files import read_json, write_json
from ..formats import codec
from ..peaks import cache_folder, slug

FORMAT = 4
"""The version of the files and of the way of tuning. A tuning of another version is not known."""


@dataclass(frozen=True)
class TuningPlace:
    """What a tuning depends on beside the kernel and the method.

    Attributes:
        device: the name of the device, with the number of threads for a CPU.
        torch, triton: the versions; ``triton`` is empty where it is not installed.
    """

    device: str
    torch: str
    triton: str


@dataclass(frozen=True)
class TuningKey:
    """The key of one tuning.

    Attributes:
        place: the device and the versions.
        kernel_id: the id of the kernel.
        launch: a hash of the sizes of the launch, because a kernel may be launched with other sizes elsewhere.
        method, state: of the tuning.
    """

    place: TuningPlace
    kernel_id: str
    launch: str
    method: str
    state: str


@dataclass(frozen=True)
class KnownTuning:
    """A tuning of the store: the kernel with its tuning, and the RUN in which it was tuned.

    A winner has its pin, by which a program takes it over without a RUN; ``None`` where it cannot be pinned. Where
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
    """The tuning of a key; ``None`` where it is not known."""
    return _read(_path(key), key.place)


def known_tunings(place: TuningPlace) -> list[KnownTuning]:
    """All tunings for a device and these versions, in no order."""
    with contextlib.suppress(OSError):
        files = sorted(_folder(place).glob("*.json"))
        return [known for file in files if (known := _read(file, place)) is not None]
    return []


def save_tuning(known: KnownTuning) -> bool:
    """Stores a tuning in place of an earlier one with its key. Returns whether the file could be written."""
    try:
        write_json(_path(known.key), {"format": FORMAT, **codec.encode_sparse(known)})
    except InductorBenchError:
        return False
    return True


def forget_tuning(key: TuningKey) -> None:
    """Removes a tuning, if it is there and can be removed."""
    with contextlib.suppress(OSError):
        _path(key).unlink()


def _read(path: Path, place: TuningPlace) -> KnownTuning | None:
    try:
        data = read_json(path)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            return None
        known: KnownTuning = codec.decode(KnownTuning, data)
    except (InductorBenchError, UnicodeDecodeError):
        return None
    if known.key.place != place or path != _path(known.key):
        return None
    has_tuning = known.kernel is not None and known.kernel.tuning is not None
    return known if has_tuning or known.failure is not None else None


def _folder(place: TuningPlace) -> Path:
    return cache_folder() / "tunings" / slug(" ".join(filter(None, astuple(place))))


def _path(key: TuningKey) -> Path:
    return _folder(key.place) / f"{slug(f'{key.kernel_id} {key.launch} {key.method} {key.state}')}.json"
