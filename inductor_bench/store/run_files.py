"""The files of a RUN besides its record: evidence, timeline and kernels; and RUNs as zip files."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..errors import InductorBenchError, UsageError
from ..records.base import is_relative_path
from ..records.code import CapturedCode, Details, LayerMap, SourceLine
from ..records.evidence import CountedCall, Evidence, HostTrace, ModuleEvidence
from ..records.module import ModuleRecord
from ..records.run import Run, Timeline
from . import codec
from .files import mask_file, read_json, read_text, write_bytes, write_json
from .folder import EVIDENCE, RECORD, RunFolder

# The files of a RUN that hold what was observed: module texts, raw measurements, the user's lines, the steps.
#
# Every file is validated when it is read.


T = TypeVar("T")

COSTS = "traces/operator_costs.json"
"""The costs of library calls in a RUN of an earlier format."""

_AGAIN = "restore it from a copy of the run, or measure again"


def load_module(folder: RunFolder, slug: str) -> str:
    """The text of a module, as Inductor wrote it.

    Raises:
        InductorBenchError: the file is gone or cannot be read.
    """
    return read_text(folder.file(f"modules/{slug}.py"))


def validate_module(module: ModuleRecord) -> ModuleRecord:
    """Returns the module, if a record can hold it.

    Raises:
        InductorBenchError: a field is invalid, for example a sum of damaged figures that is not finite.
    """
    codec.decode(ModuleRecord, codec.encode(module))
    return module


def save_module_details(folder: RunFolder, slug: str, details: Details) -> None:
    """Stores the results of the process that measured a module."""
    write_json(folder.traces / f"{slug}.details.json", codec.encode_sparse(details))


def load_module_details(folder: RunFolder, slug: str) -> Details:
    """The results that :func:`save_module_details` stored; every field has its default if there is no file.

    Raises:
        InductorBenchError: the file is damaged or cannot be read.
    """
    return _load(folder, f"traces/{slug}.details.json", Details, Details())


def save_evidence(folder: RunFolder, evidence: Evidence) -> None:
    """Stores what was observed, beside the record."""
    write_json(folder.path / EVIDENCE, codec.encode_sparse(evidence), indent=None)


def load_evidence(folder: RunFolder, run: Run) -> Evidence:
    """The evidence that :func:`save_evidence` stored.

    A RUN of an earlier format has no such file. Its evidence then comes from the record and the counted costs, without
    the program's step.

    Raises:
        InductorBenchError: a file is damaged or cannot be read.
    """
    path = folder.optional_file(EVIDENCE)
    if path is not None:
        return _decode(Evidence, read_json(path), path)
    files = {kernel.kernel_id: kernel.file for module in run.modules for kernel in module.kernels if kernel.file}
    written = {kernel_id: file for kernel_id, file in files.items() if file.startswith("kernels/")}
    return Evidence(tuple(map(_find_evidence, run.modules)), costs=_load_costs(folder), kernel_files=written)


def _find_evidence(module: ModuleRecord) -> ModuleEvidence:
    return ModuleEvidence(
        label=module.label,
        slug=module.slug,
        source_path=module.source_path or f"{module.slug}.py",
        calls=module.program_calls,
        tf32=module.tf32,
        bf16=module.bf16,
        cuda_graphs=module.cuda_graphs,
        max_autotune=module.max_autotune,
        measurement=module.measurement,
        outputs=module.outputs,
    )


def _load_costs(folder: RunFolder) -> tuple[CountedCall, ...]:
    return _load(folder, COSTS, tuple[CountedCall, ...], ())


def save_code(folder: RunFolder, slug: str, code: CapturedCode | None) -> None:
    """Stores the lines and the modules of the model from which a compiled module's kernels originate."""
    if code is not None and code.stack_traces:
        write_json(folder.modules / f"{slug}.provenance.json", codec.encode(code.stack_traces), indent=None)
    if code is not None and code.layers.kernels:
        write_json(folder.modules / f"{slug}.layers.json", codec.encode_sparse(code.layers), indent=None)


def load_source_lines(folder: RunFolder, slug: str) -> Mapping[str, Sequence[SourceLine]]:
    """The lines that :func:`save_code` stored; none if there is no file.

    Raises:
        InductorBenchError: the file is damaged or cannot be read.
    """
    return _load(folder, f"modules/{slug}.provenance.json", dict[str, tuple[SourceLine, ...]], {})


def load_layers(folder: RunFolder, slug: str) -> LayerMap:
    """The modules of the model that :func:`save_code` stored; none if there is no file.

    Raises:
        InductorBenchError: the file is damaged or cannot be read.
    """
    return _load(folder, f"modules/{slug}.layers.json", LayerMap, LayerMap())


def _load(folder: RunFolder, place: str, kind: type[T], default: T) -> T:
    """What a file of the RUN holds; ``default`` if there is none."""
    path = folder.optional_file(place)
    return default if path is None else _decode(kind, read_json(path), path)


def _decode(kind: type[T], data: Any, path: Path) -> T:
    try:
        return codec.decode(kind, data)
    except InductorBenchError as error:
        raise InductorBenchError(f"{path} is damaged: {error.message}", _AGAIN, "damaged") from error


# The timeline of a program's step: ``traces/step.timeline.json``.


TIMELINE = "traces/step.timeline.json"


def write_timeline(folder: RunFolder, timeline: Timeline) -> None:
    """Writes a run's timeline.

    Raises:
        InductorBenchError: it cannot be written.
    """
    folder.traces.mkdir(exist_ok=True)
    write_json(folder.path / TIMELINE, codec.encode(timeline))


def read_timeline(folder: RunFolder) -> Timeline | None:
    """A run's timeline; ``None`` if it has none.

    Raises:
        InductorBenchError: the file is damaged.
    """
    path = folder.optional_file(TIMELINE)
    return codec.decode(Timeline, read_json(path)) if path else None


# What the host did, for speedscope: ``traces/host.speedscope.json``.


HOST = "traces/host.speedscope.json"
_SPEEDSCOPE = "https://www.speedscope.app/file-format-schema.json"


def write_host_trace(folder: RunFolder, trace: HostTrace) -> None:
    """Writes what the host of a run did.

    Raises:
        InductorBenchError: it cannot be written.
    """
    folder.traces.mkdir(exist_ok=True)
    write_json(folder.path / HOST, {"$schema": _SPEEDSCOPE, "exporter": "inductor-bench", **codec.encode(trace)})


def read_host_trace(folder: RunFolder) -> HostTrace | None:
    """What the host of a run did; ``None`` if it was not sampled.

    Raises:
        InductorBenchError: the file is damaged.
    """
    path = folder.optional_file(HOST)
    return codec.decode(HostTrace, read_json(path)) if path else None


# Reads the standalone files of a run's kernels as text.


MOST_BYTES = 1_000_000
"""Size of the largest file that is read; a kernel with recorded values beside it is far smaller."""


def read_kernel_files(folder: RunFolder, places: Iterable[str]) -> dict[str, str]:
    """The texts by path. Files that are gone, damaged or larger than :data:`MOST_BYTES` are left out."""
    texts = {}
    for place in dict.fromkeys(places):
        try:
            path = folder.optional_file(place)
            if path is not None and path.stat().st_size <= MOST_BYTES:
                texts[place] = read_text(path)
        except (InductorBenchError, OSError):
            continue
    return texts


# Reads a RUN from a zip file, and writes zip files. A zip file of another person may hold anything.


ARCHIVE_MOST_BYTES = 4_000_000_000
"""The largest sum of the unpacked sizes of the files that are read."""

_WANTED = ("modules/", "kernels/")
_SUFFIXES = (".py", ".json", ".safetensors")


@contextlib.contextmanager
def unpack_run(path: Path) -> Iterator[Path]:
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
                f"{path} is not a readable zip file: {error}", "zip the RUN folder again", "damaged"
            ) from error
        except OSError as error:
            raise InductorBenchError(f"cannot read {path}: {error.strerror or error}", name="unreadable") from error
        yield Path(folder)


def _unpack(archive: zipfile.ZipFile, path: Path, folder: Path) -> None:
    names = [info.filename for info in archive.infolist() if not info.is_dir()]
    records = [name for name in names if name.rpartition("/")[2] == RECORD]
    if len(records) != 1:
        found = f"{len(records)} files {RECORD}" if records else f"no {RECORD}"
        raise InductorBenchError(
            f"{path} holds {found}", "zip one RUN folder that `inductor-bench breakdown` wrote", "no-record"
        )
    base = records[0].removesuffix(RECORD)
    wanted = [info for info in archive.infolist() if _is_wanted(info.filename, base)]
    if sum(info.file_size for info in wanted) > ARCHIVE_MOST_BYTES:
        raise InductorBenchError(
            f"{path} unpacks to more than {ARCHIVE_MOST_BYTES // 10**9} GB", "give the RUN folder itself", "too-large"
        )
    for info in wanted:
        target = folder / info.filename.removeprefix(base)
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(info) as packed, target.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)


def _is_wanted(name: str, base: str) -> bool:
    place = name.removeprefix(base)
    if not name.startswith(base) or not is_relative_path(place):
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
    raise UsageError(f"{path} exists and is no bundle", "choose another path for --bundle", "folder-in-use")


_TEXTS = (".py", ".json", ".md", ".html", ".csv")


def write_archive(path: Path, files: Mapping[str, bytes]) -> None:
    """Writes a zip file atomically from files by path, without the secrets in text files.

    Raises:
        InductorBenchError: it cannot be written.
    """
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            if name.endswith(_TEXTS):
                text = mask_file(name, data.decode("utf-8", "surrogateescape"))
                data = text.encode("utf-8", "surrogateescape")
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    write_bytes(path, stream.getvalue())
