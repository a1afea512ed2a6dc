"""Finds the standalone files that a request names, and the paths that their winners are saved to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ...errors import UsageError
from ..modules.targets import find


def find_files(targets: Sequence[str]) -> list[Path]:
    """The standalone files that the targets name, without duplicates.

    Raises:
        UsageError: a target is missing or names no standalone file.
    """
    found: list[Path] = []
    for target in targets:
        place, _, glob = (target, "", "") if "#" not in target or find(Path(target)) else target.partition("#")
        path = Path(place)
        path = path / "kernels" if find(path) == "folder" == find(path / "kernels") else path
        if not find(path):
            raise UsageError(f"there is no {path}", "inductor-bench extract SOURCE -o DIR writes standalone files")
        if find(path) == "folder":
            pattern = glob.removesuffix(".py") or "*"
            matching = [each for each in _files_in(path) if fnmatchcase(each.name, f"{pattern}.py")]
            if not matching:
                raise UsageError(f"{path} holds no {pattern}.py", f"ls {path} shows what it holds")
            found += matching
        elif find(path) == "file":
            found.append(path)
        else:
            raise UsageError(f"{path} is not a file", "give a standalone kernel file, or a folder of them")
    return list(dict.fromkeys(found))


def _files_in(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if each.is_file())
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror or error}") from error


def prepare_to_save(save: Path | None, files: Sequence[Path]) -> None:
    """Makes the folder for the winners, so that an unwritable place is reported before the tuning.

    Raises:
        UsageError: the winners cannot be written there.
    """
    if save is None:
        return
    if len(files) > 1 and save.suffix == ".py":
        raise UsageError(f"{len(files)} kernels cannot be saved into one file", "give a folder with --save")
    places = [place_of(save, file, files) for file in files]
    if len(set(places)) < len(places):
        raise UsageError("two of these files have one name, so they cannot be saved side by side", "save one at a time")
    for place in places:
        if find(place):
            raise UsageError(f"{place} exists", "choose another place with --save")
    folder = places[0].parent
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if find(folder) != "folder" or not os.access(folder, os.W_OK):
        raise UsageError(f"{folder} cannot be written to", "choose another place with --save")


def place_of(save: Path, file: Path, files: Sequence[Path]) -> Path:
    """The path that the winner of a file is saved to."""
    return save if len(files) == 1 and save.suffix == ".py" else save / file.name
