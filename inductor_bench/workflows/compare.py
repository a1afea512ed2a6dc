"""Compares two runs, of two folders or of one program that it runs twice and more, and two batches."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean

from ..analysis.comparison_run import compare_runs
from ..analysis.comparison_words import INTERPRETER
from ..errors import InductorBenchError, UsageError
from ..records.batch_record import Batch
from ..records.comparison import (
    UNCHANGED,
    BatchComparison,
    EnvironmentDifference,
    KernelSide,
    ModelComparison,
    RunComparison,
)
from ..records.request import BreakdownRequest, CompareRequest
from ..records.run import Run
from ..source.module_reader import read_module
from ..store import codec
from ..store.files import find_free_folder, read_json, refuse_link, remove_file, write_json
from ..store.folder import BATCH, PAGE, RECORD, BatchFolder, RunFolder, read_rows, remove_run
from ..store.redaction import Redaction
from ..store.run_files import unpack_run
from .breakdown import run_breakdown
from .modules.compile_environment import COLD, PLACES, SETTINGS
from .modules.targets import find_path_kind, is_command
from .progress import Progress

# Opens what ``compare`` is given: RUN folders, zipped RUNs, and the texts of their kernels.


@dataclass(frozen=True)
class OpenedRun:
    """A run with the folder that holds its files; ``name`` is the path that the user gave."""

    name: str
    run: Run
    folder: RunFolder


@contextlib.contextmanager
def open_run(path: Path) -> Iterator[OpenedRun]:
    """Opens a run: a RUN folder, its ``record.json``, or a zip file, whose unpacked files exist until the block ends.

    Raises:
        UsageError: there is nothing of the kind.
        InductorBenchError: its record cannot be read.
    """
    if path.is_file() and path.name != RECORD:
        with unpack_run(path) as folder:
            try:
                run = RunFolder(folder).load()
            except InductorBenchError as error:
                message = error.message.replace(str(folder / RECORD), str(path))
                raise InductorBenchError(message, error.hint, error.id) from error
            yield OpenedRun(str(path), run, RunFolder(folder))
        return
    folder = path.parent if path.name == RECORD else path
    yield OpenedRun(str(path), RunFolder(folder).load(), RunFolder(folder))


def check_run(path: Path) -> None:
    """Checks that a path may be a run.

    Raises:
        UsageError: nothing is there, it cannot be looked up, or it is a Python file.
    """
    if not find_path_kind(path):
        raise UsageError(
            f"there is no {path}",
            "give two RUN folders, two zipped RUNs or two batches; `breakdown` writes RUNs",
            "no-such-target",
        )
    if path.suffix == ".py":
        raise UsageError(
            f"{path} is a program and no run", "give one program: it is run for both sides", "wrong-target"
        )


class KernelTexts(Mapping[tuple[str, str], str]):
    """The texts of a run's kernels by graph and name, from its modules.

    A module is read when a text of it is first needed. Kernels of a module that cannot be read are missing.
    """

    def __init__(self, opened: OpenedRun) -> None:
        self._folder = opened.folder
        self._places = {module.label: module.file for module in opened.run.modules if module.file}
        self._texts: dict[str, dict[str, str]] = {}

    def __getitem__(self, key: tuple[str, str]) -> str:
        graph, name = key
        if graph not in self._texts:
            self._texts[graph] = self._read(graph)
        return self._texts[graph][name]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((graph, name) for graph in self._places for name in self._texts.get(graph, {}))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _read(self, graph: str) -> dict[str, str]:
        place = self._places.get(graph)
        try:
            text = self._folder.file(place).read_text(encoding="utf-8", errors="replace") if place else ""
            kernels = read_module(text).kernels if text else ()
        except (InductorBenchError, OSError):
            return {}
        return {name: kernel.source for kernel in kernels for name in (kernel.name, kernel.event_name)}


# Makes the runs of both sides, interleaved (A B B A), so that a slow change of the machine affects both alike.


PAIR = "pair.json"
"""The file in the folder of the runs that says what was changed between the sides."""


@dataclass(frozen=True)
class PairedRuns:
    """The runs of both sides, and what was changed between them."""

    a: tuple[OpenedRun, ...]
    b: tuple[OpenedRun, ...]
    folder: Path
    changed: tuple[EnvironmentDifference, ...]


def run_pair(request: CompareRequest, progress: Progress) -> PairedRuns:
    """Makes the runs. Each ends once the program's steps are measured.

    Raises:
        UsageError: the options contradict each other.
        InductorBenchError: a run measured nothing.
        KeyboardInterrupt: the user stopped it; the finished runs stay, and :func:`open_pair` reads them.
    """
    _check(request)
    folder, changed = _make_folder(request.breakdown), tuple(_find_changed_settings(request))
    write_json(folder / PAIR, codec.encode(changed))
    sides: dict[str, list[OpenedRun]] = {"a": [], "b": []}
    order = list(interleave_runs(request.runs))
    for number, side in enumerate(order, 1):
        place = folder / f"{side}-{len(sides[side]) + 1}"
        progress.note(f"run {number} of {len(order)}: {side.upper()} in {place}")
        try:
            outcome = run_breakdown(_request(request, side, place), progress)
        except KeyboardInterrupt as stop:
            kept = f"interrupted; `inductor-bench compare {shlex.quote(str(folder))}` compares the finished runs"
            raise KeyboardInterrupt(
                kept if sides["b"] else "interrupted before a run of each side had finished"
            ) from stop
        if not outcome.run.modules:
            failure = next(iter(outcome.run.failures), None)
            why = f": {failure.message}" if failure is not None else ""
            raise InductorBenchError(
                f"the run of {side.upper()} in {place} measured nothing{why}",
                failure.hint if failure else "",
                "nothing-measured",
            )
        sides[side].append(OpenedRun(str(place), outcome.run, RunFolder(place)))
    return PairedRuns(tuple(sides["a"]), tuple(sides["b"]), folder, changed)


def open_pair(folder: Path) -> PairedRuns:
    """Returns the finished runs of an earlier comparison.

    Raises:
        InductorBenchError: a side has no finished run, or a file is damaged.
    """
    changed = codec.decode(tuple[EnvironmentDifference, ...], read_json(folder / PAIR))
    sides: dict[str, tuple[OpenedRun, ...]] = {}
    for side in ("a", "b"):
        of_side = [path for _, path in _list_numbered_runs(folder) if path.name.startswith(side)]
        runs = [(path, RunFolder(path)) for path in of_side if (path / RECORD).is_file()]
        opened = [OpenedRun(str(path), run.load(), run) for path, run in runs]
        sides[side] = tuple(one for one in opened if one.run.modules)
        if not sides[side]:
            hint = "make the runs again with --force"
            raise InductorBenchError(f"{folder} has no finished run of {side.upper()}", hint, "nothing-measured")
    return PairedRuns(sides["a"], sides["b"], folder, changed)


def interleave_runs(runs: int) -> Iterator[str]:
    """Returns the sides in the order of their runs: ``a b b a a b …``."""
    for number in range(runs):
        yield from ("ab", "ba")[number % 2]


def _check(request: CompareRequest) -> None:
    for target in filter(None, (request.breakdown.target, *request.breakdown.others)):
        if Path(target).is_dir() or target.endswith((".zip", RECORD)):
            raise UsageError(
                f"there is nothing to compare {target} with", "give two runs, A and B, or one program", "missing-target"
            )
    if len(request.pythons) > 2:
        raise UsageError("--python is given more than twice", "give that of A and that of B", "bad-word")
    for name, _ in request.variables:
        if name in SETTINGS or name in COLD or name in PLACES:
            raise UsageError(f"{name} cannot be compared: the measurement itself sets it", "leave it out", "bad-word")


def _make_folder(request: BreakdownRequest) -> Path:
    target = request.target or request.arguments[0]
    title = f"compare-{Path(target.partition(':')[0]).stem if target.endswith('.py') else target}"
    if request.output is None:
        return find_free_folder(Path("runs"), title)
    if request.output.exists() and any(request.output.iterdir()) and not request.force:
        goes_on = f"compare its finished runs (inductor-bench compare {shlex.quote(str(request.output))}), "
        known = goes_on if (request.output / PAIR).is_file() else ""
        raise UsageError(
            f"{request.output} is not empty",
            f"{known}choose another folder with -o, or replace its runs with --force",
            "folder-in-use",
        )
    _remove_earlier(request.output)
    return request.output


def _remove_earlier(folder: Path) -> None:
    """Removes an earlier comparison from a folder: its runs would be counted with the new ones."""
    if (folder / PAIR).is_file():
        for _, run in _list_numbered_runs(folder):
            refuse_link(run)
            if (run / RECORD).is_file():
                remove_run(RunFolder(run))
        for name in (PAIR, PAGE):
            remove_file(folder / name)


def _list_numbered_runs(folder: Path) -> list[tuple[int, Path]]:
    """The folders of the runs of both sides, by number."""
    return sorted((int(path.name[2:]), path) for path in folder.glob("[ab]-*") if path.name[2:].isdecimal())


def _request(request: CompareRequest, side: str, place: Path) -> BreakdownRequest:
    python = request.pythons[-1 if side == "b" else 0] if request.pythons else request.breakdown.python
    variables = request.variables if side == "b" else ()
    return replace(
        request.breakdown,
        output=place,
        python=python,
        variables=(*request.breakdown.variables, *variables),
        stop=True,
        plots=False,
        cold=True,  # each run chooses its own configs
    )


def _find_changed_settings(request: CompareRequest) -> Iterator[EnvironmentDifference]:
    if len(set(request.pythons)) == 2:
        yield EnvironmentDifference(INTERPRETER, *request.pythons)
    own = sys.argv[1:] if is_command() else ()
    environment = os.environ | dict(request.breakdown.variables) | dict(request.variables)
    redaction = Redaction.find([own], environment, request.breakdown.redact)
    for name, value in request.variables:
        before = os.environ.get(name, "")
        a, b = (word.partition("=")[2] for word in redaction.words([f"{name}={before}", f"{name}={value}"]))
        yield EnvironmentDifference(name, a, f"{b} (another)" if a == b and before != value else b)


# The files of a bundle: the report, the record, and both versions of the kernels that differ, each of which runs.


def list_kernel_files(comparison: RunComparison, a: RunFolder, b: RunFolder) -> dict[str, bytes]:
    """Returns the standalone files of the kernels that differ, with their recorded values, as ``a/NAME.py`` and
    ``b/NAME.py``.

    A kernel whose file is gone is left out.
    """
    changes = [change for change in comparison.kernels if change.cause != UNCHANGED]
    files: dict[str, bytes] = {}
    for side, folder, kernels in (
        ("a", a, [kernel for change in changes for kernel in change.a]),
        ("b", b, [kernel for change in changes for kernel in change.b]),
    ):
        for place in _list_kernel_files_of_side(folder, kernels):
            try:
                files[f"{side}/{Path(place).name}"] = folder.file(place).read_bytes()
            except (InductorBenchError, OSError):
                continue
    return files


def _list_kernel_files_of_side(folder: RunFolder, kernels: Iterable[KernelSide]) -> list[str]:
    values = {row.file: row.values for row in read_rows(folder.kernels) if row.values}
    found = []
    for file in dict.fromkeys(kernel.file for kernel in kernels if kernel.file):
        beside = values.get(Path(file).name)
        found += [file, f"kernels/{beside}"] if beside else [file]
    return found


# Compares two runs: of two folders, or of one program that it runs twice and more.


@dataclass(frozen=True)
class Compared:
    """The record of a comparison, and the files that were written for it."""

    comparison: RunComparison  # the record
    # the files of the kernels that differ, as ``a/NAME.py`` and ``b/NAME.py``; empty if unwanted
    kernels: dict[str, bytes]
    folder: Path | None = None  # the folder of the runs if they were made for this comparison


def compare_records(a: Path, b: Path, *, files: bool = False) -> Compared:
    """Compares two RUN folders or zipped RUNs.

    Args:
        a, b: the runs.
        files: whether the files of the kernels that differ are wanted.

    Raises:
        UsageError: one of the paths is missing, or is a batch.
        InductorBenchError: a record cannot be read, or holds no measurement.
    """
    for path in (a, b):
        check_run(path)
        if os.path.isfile(path / BATCH):
            other = b if path == a else a
            raise UsageError(
                f"{path} is a batch, and {other} is not", "compare two runs or two batches", "wrong-target"
            )
    with ExitStack() as stack:
        opened = [stack.enter_context(open_run(path)) for path in (a, b)]
        return _compare(opened[:1], opened[1:], files=files)


def compare_program(request: CompareRequest, progress: Progress) -> Compared:
    """Runs one program in two settings, interleaved, and compares its runs.

    Raises:
        UsageError: the options contradict each other.
        InductorBenchError: a run measured nothing.
    """
    pair = run_pair(request, progress)
    return replace(_compare(pair.a, pair.b, pair.changed), folder=pair.folder)


def compare_folder(folder: Path) -> Compared:
    """Compares the finished runs of an earlier comparison again.

    Raises:
        InductorBenchError: a side has no finished run, or a file is damaged.
    """
    pair = open_pair(folder)
    return replace(_compare(pair.a, pair.b, pair.changed), folder=folder)


def _compare(
    a: Sequence[OpenedRun],
    b: Sequence[OpenedRun],
    changed: Sequence[EnvironmentDifference] = (),
    *,
    files: bool = True,
) -> Compared:
    """Compares the runs of two sides; the files of a side are those of its first run."""
    comparison = compare_runs(
        [one.run for one in a],
        [one.run for one in b],
        (a[0].name, b[0].name),
        (KernelTexts(a[0]), KernelTexts(b[0])),
        changed,
    )
    return Compared(comparison, list_kernel_files(comparison, a[0].folder, b[0].folder) if files else {})


# Compares two batches, model by model.


def compare_batches(a: Path, b: Path, progress: Progress) -> BatchComparison:
    """Compares the models that two batches have in common, and names the others.

    Raises:
        InductorBenchError: a batch cannot be read.
    """
    batches = BatchFolder(a).load(), BatchFolder(b).load()
    places = [_run_folders(batch, path) for batch, path in zip(batches, (a, b), strict=True)]
    models = []
    for name in dict.fromkeys([*places[0], *places[1]]):
        progress.stage(f"comparing {name}")
        models.append(_compare_model(name, places[0].get(name), places[1].get(name)))
    ratios = [
        model.comparison.step.b_s / model.comparison.step.a_s
        for model in models
        if model.comparison is not None and model.comparison.comparable and model.comparison.step.a_s
    ]
    positive = [ratio for ratio in ratios if ratio > 0]
    return BatchComparison(str(a), str(b), geometric_mean(positive) if positive else None, tuple(models))


def _run_folders(batch: Batch, folder: Path) -> dict[str, Path | None]:
    """The RUN folder of each model; ``None`` if it has none."""
    return {model.request.name: folder / model.run if model.run else None for model in batch.models}


def _compare_model(name: str, a: Path | None, b: Path | None) -> ModelComparison:
    missing = " and ".join(side for side, path in (("A", a), ("B", b)) if path is None)
    if a is None or b is None:
        return ModelComparison(name, problem=f"no run of it in {missing}", lost=a is not None)
    try:
        return ModelComparison(name, compare_records(a, b).comparison)
    except InductorBenchError as error:
        return ModelComparison(name, problem=error.message, lost=True)
