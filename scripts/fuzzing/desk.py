"""The folder of one input: what of the base lies there, and how it is damaged."""

from __future__ import annotations

import functools
import gzip
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from .damages import damage_bytes, damage_text, json_values
from .documents import Document


class Desk:
    """The folder of one input, with the generator that all is drawn from.

    Attributes:
        cwd: where the command will run.
        hostile: paths that point at the victim, absolute and relative, and at what lies inside.
    """

    def __init__(self, place: Path, base: Path, random: random.Random) -> None:
        self.place, self.base, self.random = place, base, random
        self.cwd, self.victim = place / "cwd", place / "victim"
        for name in ("cwd", "tmp", "home", "cache/peaks"):
            (place / name).mkdir(parents=True)
        (place / "home" / "thesis.txt").write_text("years of work\n")
        shutil.copytree(base / "victim", self.victim, symlinks=True)
        aims = ("secret.txt", "values.safetensors", "folder", "folder/deep", "new.txt")
        ups = [f"{'../' * depth}victim/{aim}" for depth in range(1, 6) for aim in aims[:2]]
        self.hostile = (*(str(self.victim / aim) for aim in aims), *ups, "../record.json", "~/thesis.txt")

    def take(self, name: str, target: str | None = None) -> Path:
        """Copies something of the base to the current folder."""
        source, path = self.base / name, self.cwd / (target or name)
        shutil.copytree(source, path, symlinks=True) if source.is_dir() else shutil.copyfile(source, path)
        return path

    def damage_json(self, path: Path) -> None:
        """Mostly in its structure, else in its bytes."""
        if self.random.random() < 0.2:
            self.damage_bytes(path)
        elif self.random.random() < 0.04:
            path.write_text(self.random.choice(json_values(self.hostile)), errors="surrogatepass")
        else:
            path.write_bytes(self.document(path).damaged(self.random, self.hostile))

    def document(self, path: Path) -> Document:
        """A JSON file of the current folder, as it is before any damage."""
        return _document(self.base / path.relative_to(self.cwd)) if _is_of_base(self, path) else _parsed(path)

    def damage_bytes(self, path: Path) -> None:
        path.write_bytes(damage_bytes(self.random, path.read_bytes()))

    def damage_text(self, path: Path) -> None:
        path.write_bytes(damage_text(self.random, path.read_text(), self.hostile))

    def damage_packed(self, path: Path, change: Callable[[Path], None], outside: float = 0.3) -> None:
        """Damages what a gzipped file holds, or the file itself."""
        if self.random.random() < outside:
            self.damage_bytes(path)
            return
        inner = path.with_name(f"{path.name}.inner")
        inner.write_bytes(gzip.decompress(path.read_bytes()))
        change(inner)
        path.write_bytes(gzip.compress(inner.read_bytes(), 1))
        inner.unlink()


def _is_of_base(desk: Desk, path: Path) -> bool:
    return (desk.base / path.relative_to(desk.cwd)).is_file()


@functools.lru_cache(maxsize=64)
def _document(path: Path) -> Document:
    return _parsed(path)


def _parsed(path: Path) -> Document:
    return Document(json.loads(path.read_text()))
