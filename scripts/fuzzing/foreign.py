"""Records of a version that does not exist yet, names that steer a terminal, and zipped RUNs of others."""

from __future__ import annotations

import io
import shutil
import stat
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

from .desk import Desk
from .documents import Document
from .fuzz_commands import OBSERVED, RUNS, Input, of_batch, of_run

RECORDS_ALONE = ("retuned", "stepped", "hosted")
"""RUNs without modules."""

OF_RECORD = ("report", "report", "query", "compare", "compare")
BESIDE = (
    "traces/*.details.json",
    "kernels/kernels.json",
    "evidence.json",
    "modules/*.json",
    "traces/step.timeline.json",
)
VERBS = (*OF_RECORD, "breakdown", "kernel", "list", "extract", "values")
BOMB_BYTES = 150_000_000


def newer(desk: Desk) -> Input:
    """A record with kinds, fields or a format number that this version does not know."""
    return _written(desk, lambda document: document.newer(desk.random))


def renamed(desk: Desk) -> Input:
    """A record whose names hold escapes and marks of direction."""
    return _written(desk, lambda document: document.renamed(desk.random))


def _written(desk: Desk, write: Callable[[Document], bytes]) -> Input:
    if desk.random.random() < 0.3:
        folder = desk.take("batch")
        path = folder / desk.random.choice(("batch.json", "models/one/record.json", "models/two/record.json"))
        path.write_bytes(write(desk.document(path)))
        return of_batch(desk)
    name = desk.random.choice((*RUNS, OBSERVED, *RECORDS_ALONE))
    folder = desk.take(name)
    beside = [path for pattern in BESIDE for path in folder.glob(pattern)]
    path = desk.random.choice((*(folder / "record.json" for _ in range(4)), *beside))
    path.write_bytes(write(desk.document(path)))
    return of_run(desk, name, OF_RECORD if name in RECORDS_ALONE else VERBS)


def zipped(desk: Desk) -> Input:
    """A zipped RUN: with links, places outside, two records, a bomb, a wrong size or damaged bytes."""
    name = desk.random.choice(RUNS)
    folder = desk.take(name)
    files = {f"{name}/{path.relative_to(folder)}": path.read_bytes() for path in _files(folder)}
    shutil.rmtree(folder)
    desk.take(name, "whole")
    (desk.cwd / "run.zip").write_bytes(_pack(desk.random.choice(CHANGES)(desk, files, name)))
    if desk.random.random() < 0.3:
        desk.damage_bytes(desk.cwd / "run.zip")
    form = desk.random.choice(((), (), ("--format", "json"), ("--format", "html")))
    sides = desk.random.choice((("run.zip", "whole"), ("whole", "run.zip"), ("run.zip", "run.zip")))
    return Input(("compare", *sides, *form))


Members = list[tuple[str, bytes, int]]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in (".json", ".py"))


def as_it_is(desk: Desk, files: dict[str, bytes], name: str) -> Members:
    return [(place, data, 0) for place, data in files.items()]


def _link(desk: Desk, files: dict[str, bytes], name: str) -> Members:
    place = desk.random.choice(sorted(files))
    aim = desk.random.choice(desk.hostile).encode()
    return [*as_it_is(desk, files | {place: aim}, name)[:-1], (place, aim, stat.S_IFLNK | 0o777)]


def _outside(desk: Desk, files: dict[str, bytes], name: str) -> Members:
    aims = (
        *desk.hostile,
        f"{name}/modules/../../../victim/new.py",
        f"{name}/kernels/..\\..\\x.py",
        f"/{name}/record.json",
    )
    aim = desk.random.choice(aims)
    return [*as_it_is(desk, files, name), (aim, b"x = 1\n", 0)]


def _twice(desk: Desk, files: dict[str, bytes], name: str) -> Members:
    record = files[f"{name}/record.json"]
    place = desk.random.choice(
        (f"{name}/record.json", "record.json", f"{name}/modules/record.json", "other/record.json")
    )
    return [*as_it_is(desk, files, name), (place, record, 0)]


def _bomb(desk: Desk, files: dict[str, bytes], name: str) -> Members:
    place = desk.random.choice((f"{name}/record.json", f"{name}/modules/x.py", f"{name}/kernels/x.json"))
    return [*as_it_is(desk, files, name), (place, b" " * BOMB_BYTES, 0)]


def _newer_record(desk: Desk, files: dict[str, bytes], name: str) -> Members:
    record = f"{name}/record.json"
    return as_it_is(desk, files | {record: desk.document(desk.cwd / "whole" / "record.json").newer(desk.random)}, name)


def _mode(desk: Desk, files: dict[str, bytes], name: str) -> Members:
    kinds = (stat.S_IFIFO, stat.S_IFDIR | 0o700, stat.S_IFCHR | 0o666, stat.S_IFREG)
    return [(place, data, desk.random.choice(kinds)) for place, data in files.items()]


CHANGES = (_link, _outside, _twice, _bomb, _newer_record, as_it_is, _mode)


def _pack(members: Members) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        warnings.simplefilter("ignore")  # a name may stand twice
        for place, data, mode in members:
            info = zipfile.ZipInfo(place)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return stream.getvalue()
