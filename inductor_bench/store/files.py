"""Reading files that may be anybody's, and writing so that a reader never sees half of one, nor anything elsewhere."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import InductorBenchError

_COPIED_AT_ONCE = 1 << 24


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text atomically (a temporary file beside it, then a rename).

    Raises:
        InductorBenchError: the disk is full, read-only, or the folder is not there.
    """
    write_bytes(path, _bytes_of(text))


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def sha256_of_text(text: str) -> str:
    """That of the file which :func:`write_text` writes."""
    return hashlib.sha256(_bytes_of(text)).hexdigest()


def sha256_of_file(path: Path) -> str | None:
    """That of a file; ``None`` where it is not there or cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def write_bytes(path: Path, data: bytes) -> None:
    """Like :func:`write_text`, for bytes."""
    with replacing(path) as stream:
        stream.write(data)


def copy_file(source: Path, target: Path) -> None:
    """Copies a file atomically. Raises: InductorBenchError: it cannot be read or written."""
    with replacing(target) as stream, source.open("rb") as original:
        shutil.copyfileobj(original, stream, _COPIED_AT_ONCE)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A stream whose bytes become the file at ``path`` once the block has ended well; else nothing is left of them.

    Raises:
        InductorBenchError: the disk is full, read-only, or the folder is not there.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as stream:
            yield stream
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise InductorBenchError(
            f"cannot write {path}: {error.strerror or error}", "free some space or choose another folder with -o"
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def is_private_folder(path: Path, closed: int) -> bool:
    """Whether the folder of that name, in a place that all users share, is this user's; it is made where it is missing.

    Args:
        path: its name, which others can guess, and take first.
        closed: the permissions that nobody else may have; those of an older one are taken away.
    """
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o777 & ~closed, parents=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid():
            return False
        if found.st_mode & closed:
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & ~closed)
        return True
    finally:
        os.close(descriptor)


def unfinished(path: Path) -> list[Path]:
    """What processes that were killed had written of a file until then."""
    return list(path.parent.glob(f".{path.name}.*"))


def write_json(path: Path, value: Any) -> None:
    """Writes JSON with two-space indentation, atomically. ``value`` is what ``codec.encode`` returns."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_text(path: Path) -> str:
    """The text of a file that others wrote. What is not UTF-8 in it becomes U+FFFD: Python itself refuses such a file.

    Raises:
        InductorBenchError: it is not there or cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        raise InductorBenchError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def read_json(path: Path) -> Any:
    """Reads a JSON file.

    Raises:
        InductorBenchError: it is not there, cannot be read, or is not JSON that one of our own files can be.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise InductorBenchError(f"{path} is not a file")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InductorBenchError(f"cannot read {path}: {error.strerror or error}") from error
    except RecursionError as error:
        raise InductorBenchError(f"{path} is nested too deep") from error
    except ValueError as error:
        raise InductorBenchError(f"{path} is not valid JSON ({error})") from error


def inside(folder: Path, place: str) -> Path:
    """The file at a relative path, if it really lies in the folder: no link leads out of it.

    Raises:
        InductorBenchError: it is gone, is no plain file, or lies elsewhere.
    """
    path = folder / place
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(folder.resolve()):
            raise InductorBenchError(f"{path} leads out of {folder}", "put the file itself there")
        if not real.is_file():
            raise InductorBenchError(f"{path} is not a file")
    except (OSError, RuntimeError, ValueError) as error:  # gone or unreadable, a circle of links, a NUL
        raise InductorBenchError(f"{path} is gone" if not os.path.lexists(path) else f"cannot read {path}") from error
    return path


def refuse_link(path: Path) -> None:
    """Raises: InductorBenchError: it is a link, which may lead anywhere."""
    if path.is_symlink():
        real = os.path.realpath(path)
        raise InductorBenchError(
            f"{path} is a symbolic link, and nothing is written through it", f"name the folder itself: {real}"
        )


def own_folder(path: Path) -> Path:
    """A folder of ours to write files in, made if it is not there.

    Raises:
        InductorBenchError: it is a link, which may lead anywhere, or cannot be made.
    """
    refuse_link(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot write {path}: {error.strerror or error}"
        raise InductorBenchError(message, "choose another folder with -o") from error
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
