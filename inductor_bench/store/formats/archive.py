"""Reads a RUN from a zip file, and writes zip files. A zip file of another person may hold anything."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...errors import InductorBenchError, UsageError
from ...records.forms import is_place
from ..files import write_bytes
from ..folder import RECORD

MOST_BYTES = 4_000_000_000
"""The largest sum of the unpacked sizes of the files that are read."""

_WANTED = ("modules/", "kernels/")
_SUFFIXES = (".py", ".json", ".safetensors")


@contextlib.contextmanager
def unpacked_run(path: Path) -> Iterator[Path]:
    """A folder with the record, the modules and the kernel files of a zipped RUN; removed at the end of the block.

    Raises:
        InductorBenchError: the file is no zip file, is damaged, or holds no single record.
    """
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                _unpack(archive, path, Path(folder))
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
            raise InductorBenchError(
                f"{path} is not a readable zip file: {error}", "zip the RUN folder again"
            ) from error
        except OSError as error:
            raise InductorBenchError(f"cannot read {path}: {error.strerror or error}") from error
        yield Path(folder)


def _unpack(archive: zipfile.ZipFile, path: Path, folder: Path) -> None:
    names = [info.filename for info in archive.infolist() if not info.is_dir()]
    records = [name for name in names if name.rpartition("/")[2] == RECORD]
    if len(records) != 1:
        found = f"{len(records)} files {RECORD}" if records else f"no {RECORD}"
        raise InductorBenchError(f"{path} holds {found}", "zip one RUN folder that `inductor-bench breakdown` wrote")
    base = records[0].removesuffix(RECORD)
    wanted = [info for info in archive.infolist() if _is_wanted(info.filename, base)]
    if sum(info.file_size for info in wanted) > MOST_BYTES:
        raise InductorBenchError(f"{path} unpacks to more than {MOST_BYTES // 10**9} GB", "give the RUN folder itself")
    for info in wanted:
        target = folder / info.filename.removeprefix(base)
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(info) as packed, target.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)


def _is_wanted(name: str, base: str) -> bool:
    place = name.removeprefix(base)
    if not name.startswith(base) or not is_place(place):
        return False
    return place == RECORD or (place.startswith(_WANTED) and place.endswith(_SUFFIXES) and place.count("/") == 1)


def refuse_other_file(path: Path, member: str) -> None:
    """Checks that a zip file may be written to a path: nothing is there, or an earlier zip file with this member.

    Raises:
        UsageError: something else is there, which would be lost.
    """
    if not os.path.lexists(path):
        return
    if path.is_file() and not path.is_symlink():
        with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            if member in archive.namelist():
                return
    raise UsageError(f"{path} exists and is no bundle", "choose another path for --bundle")


def write_archive(path: Path, files: Mapping[str, bytes]) -> None:
    """Writes a zip file atomically, with its files by their paths in it.

    Raises:
        InductorBenchError: it cannot be written.
    """
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    write_bytes(path, stream.getvalue())
