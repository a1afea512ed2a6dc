"""Reads untrusted files, and writes files atomically, only inside their folder, and without secrets in their text."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import ANOTHER_FOLDER, FREE_SPACE, PATH_ERRORS, InductorBenchError, UnwritableError, explain_system_error
from ..literals import mask_keys, mask_literals

_decode: Callable[[bytes], Any] = json.loads
with contextlib.suppress(ImportError):  # a worker's interpreter need not have it
    from msgspec.json import decode as _decode

_COPIED_AT_ONCE = 1 << 24
_DEEPEST = 200
"""How deep JSON that is read may be nested. The tool's own JSON is far less deep."""

_NAMES_OF_ITS_OWN = (".html", ".json")
"""Endings of files in which the tool's own names precede quoted values, such as ``"key": "…"``."""


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text atomically, through a temporary file in the same folder, without the secrets in it.

    Raises:
        InductorBenchError: the disk is full, read-only, or the folder is not there.
    """
    write_bytes(path, encode_text(path.name, text))


def remove_file(path: Path) -> None:
    """Removes a file, if it is there.

    Raises:
        InductorBenchError: the disk is read-only, or the folder belongs to another user.
    """
    with explain_system_error(f"cannot remove {path}", name="unwritable"):
        if os.path.lexists(path):  # a read-only disk refuses to remove also what is not there
            path.unlink(missing_ok=True)


def mask_file(name: str, text: str) -> str:
    """The text as :func:`write_text` writes it into a file of this name."""
    return mask_keys(text) if name.endswith(_NAMES_OF_ITS_OWN) else mask_literals(text)


def encode_text(name: str, text: str) -> bytes:
    """The bytes that :func:`write_text` writes into a file of this name."""
    return mask_file(name, text).encode("utf-8", "backslashreplace")


def hash_bytes(data: bytes) -> str:
    """The hash of a file's bytes in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def hash_file(path: Path) -> str | None:
    """The hash of a file in hexadecimal digits; ``None`` if it is missing or cannot be read."""
    try:
        return hash_bytes(path.read_bytes())
    except OSError:
        return None


def write_bytes(path: Path, data: bytes) -> None:
    """Writes bytes as :func:`write_text` writes text."""
    with replace_when_written(path) as stream:
        stream.write(data)


def copy_file(source: Path, target: Path) -> None:
    """Copies a file atomically.

    Raises:
        InductorBenchError: a file cannot be read or written.
    """
    with replace_when_written(target) as stream, source.open("rb") as original:
        shutil.copyfileobj(original, stream, _COPIED_AT_ONCE)


@contextlib.contextmanager
def write_in_background(write: Callable[[], None], *, takes_long: bool) -> Iterator[None]:
    """Writes a file in a fork of this process while the block runs, if it ``takes_long``.

    Otherwise, or if the fork fails, this process writes the file at the end of the block.

    Raises:
        InductorBenchError: what ``write`` raises.
    """
    may_copy = threading.active_count() == 1  # a fork would never release a lock that another thread holds
    with warnings.catch_warnings():  # from Python 3.12 on it warns of threads, which numpy's library has, too
        warnings.simplefilter("ignore", DeprecationWarning)
        copy = os.fork() if takes_long and may_copy else None
    if copy == 0:
        status = 1
        try:
            write()
            status = 0
        finally:
            os._exit(status)
    try:
        yield
    finally:
        written = copy is not None and os.waitpid(copy, 0)[1] == 0
    if not written:
        write()


@contextlib.contextmanager
def replace_when_written(path: Path) -> Iterator[BinaryIO]:
    """Yields a stream. At the end of the block its bytes become the file at ``path``, but not after an exception.

    Raises:
        InductorBenchError: the disk is full, read-only, or the folder cannot be made.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as stream:
            yield stream
        os.chmod(temporary, 0o666 & ~_read_umask())
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise UnwritableError.at(path, error, FREE_SPACE) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def ensure_private_folder(path: Path, forbidden_bits: int) -> bool:
    """Makes a folder in a place that all users share; returns whether it belongs to this user and can be opened.

    Args:
        path: the folder; its name can be guessed, so that another user may have made it first.
        forbidden_bits: permission bits that the folder must not have; they are removed from an existing folder.
    """
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o777 & ~forbidden_bits, parents=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid():
            return False
        if found.st_mode & forbidden_bits:
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & ~forbidden_bits)
        return True
    finally:
        os.close(descriptor)


def find_leftovers(path: Path) -> list[Path]:
    """The temporary files of ``path`` that killed processes left."""
    return list(path.parent.glob(f".{path.name}.*"))


def write_json(path: Path, value: Any, indent: int | None = 2) -> None:
    """Writes a value that ``codec.encode`` returned as JSON, atomically, without the secrets in its texts.

    Raises:
        InductorBenchError: the disk is full, read-only, or the folder cannot be made.
    """
    write_message(path, change_each_text(value, functools.cache(mask_literals)), indent)


def write_message(path: Path, value: Any, indent: int | None = 2) -> None:
    """Writes JSON as :func:`write_json`, but keeps the secrets: a scratch file for a process that needs them."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def change_each_text(data: Any, change: Callable[[str], str]) -> Any:
    """Returns JSON data with each text changed, but not the names."""
    if isinstance(data, str):
        return change(data)
    if isinstance(data, list):
        return [change_each_text(item, change) for item in data]
    if isinstance(data, dict):
        return {key: change_each_text(value, change) for key, value in data.items()}
    return data


def read_text(path: Path) -> str:
    """The text of an untrusted file. Bytes that are not UTF-8 become U+FFFD.

    Raises:
        InductorBenchError: the file is missing or cannot be read.
    """
    with explain_system_error(f"cannot read {path}", "", "unreadable", PATH_ERRORS):
        return path.read_text(encoding="utf-8", errors="replace")


def read_bytes(path: Path) -> bytes:
    """The content of a file.

    Raises:
        InductorBenchError: the file is missing, cannot be read, or is no plain file.
    """
    with explain_system_error(f"cannot read {path}", "", "unreadable", PATH_ERRORS):
        if path.exists() and not path.is_file():  # reading a pipe would block
            raise InductorBenchError(f"{path} is not a file", name="unreadable")
        return path.read_bytes()


def read_json(path: Path) -> Any:
    """Reads a JSON file.

    Raises:
        InductorBenchError: the file is missing, cannot be read, is not JSON, or is nested too deep.
    """
    data = read_bytes(path)
    try:
        with contextlib.suppress(ValueError, RecursionError):
            return _check_depth(_decode(data))
        return _check_depth(json.loads(data.decode("utf-8")))  # which knows more numbers, and says what is wrong
    except RecursionError as error:
        raise InductorBenchError(f"{path} is nested too deep", name="damaged") from error
    except ValueError as error:
        raise InductorBenchError(f"{path} is not valid JSON ({error})", name="damaged") from error


def _check_depth(data: Any) -> Any:
    """Checks the depth of data, and returns it.

    Python 3.12 decodes JSON of any depth, but code that walks deep data fails.
    """
    level, depth = [data], 0
    while level:
        depth += 1
        if depth > _DEEPEST:
            raise RecursionError
        children = (
            item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)
        )
        level = [child for items in children for child in items if isinstance(child, dict | list)]
    return data


def find_file_inside(folder: Path, place: str) -> Path:
    """The file at a relative path in a folder.

    Raises:
        InductorBenchError: the file is gone, is no plain file, or a link leads out of the folder.
    """
    path = folder / place
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(folder.resolve()):
            raise InductorBenchError(f"{path} leads out of {folder}", "put the file itself there", "symbolic-link")
        if not real.is_file():
            raise InductorBenchError(f"{path} is not a file", name="unreadable")
    except (OSError, RuntimeError, ValueError) as error:  # gone or unreadable; a circle of links; a NUL in the path
        raise InductorBenchError(
            f"{path} is gone" if not os.path.lexists(path) else f"cannot read {path}", name="unreadable"
        ) from error
    return path


def find_free_folder(parent: Path, title: str) -> Path:
    """Makes the first free folder ``parent/<title>-<n>``; the letters and digits of the title name it."""
    stem = re.sub(r"[^A-Za-z0-9_.]+", "-", title).strip("-.")[:60] or "run"
    number = 1
    while True:
        path = parent / f"{stem}-{number}"
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            number += 1


def refuse_link(path: Path) -> None:
    """Checks that a path is no symbolic link, because a link may lead anywhere.

    Raises:
        InductorBenchError: the path is a symbolic link.
    """
    if path.is_symlink():
        real = os.path.realpath(path)
        raise InductorBenchError(
            f"{path} is a symbolic link, and nothing is written through it",
            f"name the folder itself: {real}",
            "symbolic-link",
        )


def own_folder(path: Path) -> Path:
    """Returns the path of a folder for this tool's files, and makes the folder if it is missing.

    Raises:
        InductorBenchError: it is a symbolic link, or cannot be made.
    """
    refuse_link(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritableError.at(path, error, ANOTHER_FOLDER) from error
    return path


def _read_umask() -> int:
    """Returns the permission bits that this process removes from new files. Reading them sets them for a moment."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
