"""The output folder of an extraction: new or empty, and locked while it is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ...errors import ANOTHER_FOLDER, InductorBenchError, UsageError
from ...launch.marks import end_marked, tool_mark
from ...store.lock import LOCK, locked


@contextlib.contextmanager
def output_folder(path: Path | None) -> Iterator[Path | None]:
    """Makes the output folder and holds its lock in the block. A new folder that stays empty is removed.

    Raises:
        UsageError: the folder holds files, or another command writes it.
        InductorBenchError: the folder cannot be made or written.
    """
    if path is None:
        yield None
        return
    try:
        new = not path.exists()
        _check_empty(path)
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InductorBenchError(f"cannot create {path}: {reason}", ANOTHER_FOLDER) from error
    try:
        with locked(path, tool_mark()) as lock:
            end_marked(lock.left)
            _check_empty(path)
            yield path
    finally:
        if new:
            with contextlib.suppress(OSError):  # the folder holds files
                path.rmdir()


def _check_empty(path: Path) -> None:
    if path.exists() and (not path.is_dir() or any(item.name != LOCK for item in path.iterdir())):
        raise UsageError(f"{path} exists and is not an empty folder", ANOTHER_FOLDER)
