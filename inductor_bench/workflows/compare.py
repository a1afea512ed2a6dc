"""Compares two runs, two batches, or two versions of a program, which it runs in turn."""

from __future__ import annotations

import contextlib
import datetime
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean

from ..analysis.comparison_run import compare_runs, compare_steps
from ..analysis.comparison_words import INTERPRETER, PROGRAM
from ..analysis.optimization.step_proof import A, B
from ..errors import InductorBenchError, UsageError
from ..records.batch_record import Batch
from ..records.comparison import (
    UNCHANGED,
    BatchComparison,
    EnvironmentDifference,
    KernelSide,
    ModelComparison,
    RunComparison,
    StepProof,
)
from ..records.request import BreakdownRequest, CompareRequest
from ..records.request_fields import PROGRAMS, as_recorded
from ..records.run import Run
from ..source.module_reader import read_module
from ..store import codec
from ..store.files import find_free_folder, hash_file, read_json, refuse_link, remove_file, write_json
from ..store.folder import BATCH, PAGE, RECORD, BatchFolder, OptimizationFolder, RunFolder, read_rows, remove_run
from ..store.redaction import Redaction
from ..store.run_files import unpack_run
from ..version import __version__
from .breakdown import run_breakdown
from .modules.compile_environment import COLD, PLACES, SETTINGS
from .modules.program_run import find_python, name_python
from .modules.targets import can_stop, find_path_kind, find_program_file, is_command, make_title, resolve_target
from .optimize import read_machine
from .progress import Progress
from .timed_turns import FOLDER, TimedTurns, is_decided, time_in_turn

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
        raise UsageError(f"{path} is a program, not a run", "give two runs, or two programs", "wrong-target")


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


# Runs both sides in turn (A B B A), so that a slow change of the machine affects both alike. First come processes whose
# steps are timed and nothing else: they decide. Then come profiled runs: they say where the difference comes from.


PAIR = "pair.json"
"""The file in the folder of the runs that says what was changed between the sides."""


@dataclass(frozen=True)
class Pair:
    """What is known of both sides before they run."""

    changed: tuple[EnvironmentDifference, ...] = ()  # what was changed between them
    a: Run | None = None  # the program of A and the machine, without measurements; ``None`` in older files
    b: Run | None = None


@dataclass(frozen=True)
class PairedRuns:
    """The runs of both sides, the processes whose steps were timed, and what was changed between the sides."""

    a: tuple[OpenedRun, ...]
    b: tuple[OpenedRun, ...]
    folder: Path
    pair: Pair
    turns: TimedTurns


def run_pair(
    request: CompareRequest, progress: Progress, decides: Callable[[StepProof], bool] = is_decided
) -> PairedRuns:
    """Times both sides in turn, and then profiles them. Each process ends once the program's steps are measured.

    Raises:
        UsageError: the options contradict each other.
        InductorBenchError: a run measured nothing.
        KeyboardInterrupt: the user stopped it; the finished runs stay, and :func:`open_pair` reads them.
    """
    _check(request)
    programs = {name: _resolve(_request(request, name.lower())) for name in (A, B)}
    others = [program.target for program in programs.values() if program.kind not in PROGRAMS]
    if others and request.runs == 0:
        raise UsageError(f"{others[0]} is no program, so no steps can be timed", "leave out --runs 0", "bad-word")
    folder, turns = _make_folder(request.breakdown), TimedTurns()
    pair = Pair(tuple(_find_changed_settings(request)))
    sides: dict[str, list[OpenedRun]] = {"a": [], "b": []}
    try:
        if not others:
            machines = [_describe_program(program, folder, progress) for program in programs.values()]
            pair = replace(pair, a=machines[0], b=machines[1])
        write_json(folder / PAIR, codec.encode(pair))
        if not others:
            turns = time_in_turn(programs, folder, request.budget_s, progress, decides)
        runs = _count_runs(request, turns, folder, progress)
        _profile(request, folder, list(interleave_runs(runs)), sides, progress)
    except KeyboardInterrupt as stop:
        words = f"`inductor-bench compare {shlex.quote(str(folder))}` compares what had finished"
        has_both = TimedTurns.load(folder).prove() is not None or all(sides.values())
        words = words if has_both else "before a process of each side had finished"
        raise KeyboardInterrupt(f"interrupted{';' if has_both else ''} {words}") from stop
    except InductorBenchError as error:
        if turns.prove() is None:
            raise
        progress.note(f"nothing says where the difference comes from: {error.message}")
        sides = {side: [] for side in sides}
    return PairedRuns(tuple(sides["a"]), tuple(sides["b"]), folder, pair, turns)


MOST_RUNS = 2
"""The number of profiled runs of each side if no other processes decide."""


def _count_runs(request: CompareRequest, turns: TimedTurns, folder: Path, progress: Progress) -> int:
    """How many runs of each side are profiled.

    Raises:
        InductorBenchError: none are wanted, and no step was timed.
    """
    if turns.prove() is not None:
        return 1 if request.runs is None else request.runs
    why = turns.find_failure()
    if request.runs == 0:
        raise InductorBenchError(f"no step was timed: {why}", f"read the logs in {folder}", "nothing-measured")
    runs = request.runs or MOST_RUNS
    if why:
        progress.note(f"no step was timed, so {runs} profiled runs of each side decide: {why}")
    return runs


def _profile(
    request: CompareRequest,
    folder: Path,
    order: Sequence[str],
    sides: dict[str, list[OpenedRun]],
    progress: Progress,
) -> None:
    """Makes profiled runs in this order."""
    for number, side in enumerate(order, 1):
        place = folder / f"{side}-{len(sides[side]) + 1}"
        progress.note(f"profiled run {number} of {len(order)}: {side.upper()} in {place}")
        outcome = run_breakdown(_request(request, side, place), progress)
        if not outcome.run.modules:
            failure = next(iter(outcome.run.failures), None)
            why = f": {failure.message}" if failure is not None else ""
            raise InductorBenchError(
                f"the run of {side.upper()} in {place} measured nothing{why}",
                failure.hint if failure else "",
                "nothing-measured",
            )
        sides[side].append(OpenedRun(str(place), outcome.run, RunFolder(place)))


def _resolve(program: BreakdownRequest) -> BreakdownRequest:
    """The program of a side with its kind."""
    return resolve_target(program).resolved(program)


def _describe_program(program: BreakdownRequest, folder: Path, progress: Progress) -> Run:
    """Looks at the machine of a side, with its interpreter; returns a record without measurements."""
    progress.stage("looking at the machine")
    environment = dict(os.environ) | dict(program.variables)
    redaction = Redaction.find([program.arguments], environment, program.redact)
    shown: BreakdownRequest = as_recorded(
        replace(program, arguments=redaction.words(program.arguments), python=name_python(program))
    )
    work = folder / "machine"
    try:
        found, _ = read_machine(find_python(program), work, environment | redaction.variables)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    file = find_program_file(program)
    run = Run(
        format=codec.FORMAT,
        tool_version=__version__,
        run_id="",
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        command="",
        target=program.target,
        title=make_title(shown),
        request=shown,
        environment=found,
        program_file=str(file or ""),
        program_sha256=hash_file(file) or "" if file else "",
    )
    return redaction.run(run)


def open_pair(folder: Path) -> PairedRuns:
    """Returns the finished runs and processes of an earlier comparison.

    Raises:
        InductorBenchError: a side has no finished run, or a file is damaged.
    """
    data = read_json(folder / PAIR)
    is_old = isinstance(data, list)  # before steps were timed, the file held the changes alone
    pair = Pair(codec.decode(tuple[EnvironmentDifference, ...], data)) if is_old else codec.decode(Pair, data)
    turns = TimedTurns.load(folder)
    sides: dict[str, tuple[OpenedRun, ...]] = {}
    for side in ("a", "b"):
        of_side = [path for _, path in _list_numbered_runs(folder) if path.name.startswith(side)]
        runs = [(path, RunFolder(path)) for path in of_side if (path / RECORD).is_file()]
        opened = [OpenedRun(str(path), run.load(), run) for path, run in runs]
        sides[side] = tuple(one for one in opened if one.run.modules)
        if not sides[side] and (pair.a is None or pair.b is None or turns.prove() is None):
            hint = "make the runs again with --force"
            raise InductorBenchError(f"{folder} has no finished run of {side.upper()}", hint, "nothing-measured")
    return PairedRuns(sides["a"], sides["b"], folder, pair, turns)


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
        refuse_link(folder / FOLDER)
        OptimizationFolder(folder / FOLDER).clear()
        for name in (PAIR, PAGE):
            remove_file(folder / name)


def _list_numbered_runs(folder: Path) -> list[tuple[int, Path]]:
    """The folders of the runs of both sides, by number."""
    return sorted((int(path.name[2:]), path) for path in folder.glob("[ab]-*") if path.name[2:].isdecimal())


def _request(request: CompareRequest, side: str, place: Path | None = None) -> BreakdownRequest:
    """The program of a side; with ``place``, the request of its profiled run in this folder."""
    python = request.pythons[-1 if side == "b" else 0] if request.pythons else request.breakdown.python
    variables = request.variables if side == "b" else ()
    program = replace(
        request.breakdown,
        target=request.second if side == "b" and request.second else request.breakdown.target,
        output=place,
        force=place is not None and request.breakdown.force,
        python=python,
        variables=(*request.breakdown.variables, *variables),
        plots=False,
        cold=True,  # each run chooses its own configs
    )
    return replace(program, stop=can_stop(resolve_target(program).kind))


def _find_changed_settings(request: CompareRequest) -> Iterator[EnvironmentDifference]:
    if request.second and request.second != request.breakdown.target:
        yield EnvironmentDifference(PROGRAM, request.breakdown.target, request.second)
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


# Compares two runs of two folders, or two versions of a program that it runs.


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


def compare_program(
    request: CompareRequest, progress: Progress, decides: Callable[[StepProof], bool] = is_decided
) -> Compared:
    """Runs two versions of a program, or one program in two settings, in turn, and compares them.

    Args:
        request: the program, and what differs.
        progress: is told of each process.
        decides: whether the timed processes answer the question, so that no more of them are needed.

    Raises:
        UsageError: the options contradict each other.
        InductorBenchError: a run measured nothing.
    """
    return _compare_pair(run_pair(request, progress, decides))


def compare_folder(folder: Path) -> Compared:
    """Compares the finished runs of an earlier comparison again.

    Raises:
        InductorBenchError: a side has no finished run, or a file is damaged.
    """
    return _compare_pair(open_pair(folder))


def _compare_pair(found: PairedRuns) -> Compared:
    """Compares the profiled runs of both sides, or only their steps if a side has none."""
    pair, proof = found.pair, found.turns.prove()
    if proof is not None and pair.a is not None and pair.b is not None and not (found.a and found.b):
        names = (pair.a.target, pair.b.target) if pair.a.target != pair.b.target else (A, B)
        return Compared(compare_steps(pair.a, pair.b, names, pair.changed, proof), {}, found.folder)
    return replace(_compare(found.a, found.b, pair.changed, proof), folder=found.folder)


def _compare(
    a: Sequence[OpenedRun],
    b: Sequence[OpenedRun],
    changed: Sequence[EnvironmentDifference] = (),
    proof: StepProof | None = None,
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
        proof,
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
