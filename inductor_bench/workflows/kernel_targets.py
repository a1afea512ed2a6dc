"""Which standalone files a request names, and where the winners of their retunes are saved."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError


def find_files(targets: Sequence[str]) -> list[Path]:
    """The standalone files that the targets name, each once.

    Raises:
        UsageError: a target is not there or names none.
    """
    found: list[Path] = []
    for target in targets:
        place, _, glob = (target, "", "") if Path(target).exists() else target.partition("#")
        path = Path(place)
        path = path / "kernels" if (path / "kernels").is_dir() else path
        if not path.exists():
            raise UsageError(f"there is no {path}", "inductor-bench extract SOURCE -o DIR writes standalone files")
        if path.is_dir():
            pattern = glob.removesuffix(".py") or "*"
            matching = sorted(each for each in path.glob(f"{pattern}.py") if each.is_file())
            if not matching:
                raise UsageError(f"{path} holds no {pattern}.py", f"ls {path} shows what it holds")
            found += matching
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def prepare_to_save(save: Path | None, files: Sequence[Path]) -> None:
    """Makes the folder that winners go to: whether they can be written is to be known before the work is done.

    Raises:
        UsageError: they cannot.
    """
    if save is None:
        return
    if len(files) > 1 and save.suffix == ".py":
        raise UsageError(f"{len(files)} kernels cannot be saved into one file", "give a folder with --save")
    places = [place_of(save, file, files) for file in files]
    if len(set(places)) < len(places):
        raise UsageError("two of these files have one name, so they cannot be saved side by side", "save one at a time")
    for place in places:
        if place.exists():
            raise UsageError(f"{place} exists", "choose another place with --save")
    folder = places[0].parent
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK) or not folder.is_dir():
        raise UsageError(f"{folder} cannot be written to", "choose another place with --save")


def place_of(save: Path, file: Path, files: Sequence[Path]) -> Path:
    """Where the winner of a file is saved."""
    return save if len(files) == 1 and save.suffix == ".py" else save / file.name
