"""Makes the runs of both sides, interleaved (A B B A), so that a slow change of the machine affects both alike."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ...analysis.comparison.environment import INTERPRETER
from ...errors import InductorBenchError, UsageError
from ...records.comparisons.run import EnvironmentDifference
from ...store.files import read_json, refuse_link, remove_file, write_json
from ...store.folder import PAGE, RECORD, RunFolder, first_free_folder, remove_run
from ...store.formats import codec
from ...store.redaction import Redaction
from ..breakdown.request import is_command
from ..breakdown.run import run_breakdown
from ..modules.environment import PLACES, SETTINGS
from ..options import BreakdownOptions
from ..progress import Progress
from .sides import OpenedRun

DEFAULT_RUNS = 2
"""The runs of each side: the smallest number that shows the noise between runs."""


PAIR = "pair.json"
"""The file in the folder of the runs that says what was changed between the sides."""


@dataclass(frozen=True)
class PairOptions:
    """The two sides of one program.

    Attributes:
        breakdown: the request of each run; its ``output`` is the folder of all runs.
        pythons: no interpreter, one for both sides, or that of A and that of B.
        variables: the environment variables of B, as pairs of name and value; A runs without them.
        runs: the number of runs of each side.
    """

    breakdown: BreakdownOptions
    pythons: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    runs: int = DEFAULT_RUNS


@dataclass(frozen=True)
class PairedRuns:
    """The runs of both sides, and what was changed between them."""

    a: tuple[OpenedRun, ...]
    b: tuple[OpenedRun, ...]
    folder: Path
    changed: tuple[EnvironmentDifference, ...]


def run_pair(options: PairOptions, progress: Progress) -> PairedRuns:
    """Makes the runs. Each ends once the program's steps are measured.

    Raises:
        UsageError: the options do not fit.
        InductorBenchError: a run measured nothing.
        KeyboardInterrupt: the user stopped it; the finished runs stay, and :func:`open_pair` reads them.
    """
    _check(options)
    folder, changed = _make_folder(options.breakdown), tuple(_changed(options))
    write_json(folder / PAIR, codec.encode(changed))
    sides: dict[str, list[OpenedRun]] = {"a": [], "b": []}
    order = list(interleaved(options.runs))
    for number, side in enumerate(order, 1):
        place = folder / f"{side}-{len(sides[side]) + 1}"
        progress.note(f"run {number} of {len(order)}: {side.upper()} in {place}")
        try:
            outcome = run_breakdown(_request(options, side, place), progress)
        except KeyboardInterrupt as stop:
            kept = f"interrupted; `inductor-bench compare {shlex.quote(str(folder))}` compares the finished runs"
            raise KeyboardInterrupt(
                kept if sides["b"] else "interrupted before a run of each side had finished"
            ) from stop
        if not outcome.run.modules:
            failure = next(iter(outcome.run.failures), None)
            why = f": {failure.message}" if failure is not None else ""
            raise InductorBenchError(
                f"the run of {side.upper()} in {place} measured nothing{why}", failure.hint if failure else ""
            )
        sides[side].append(OpenedRun(str(place), outcome.run, RunFolder(place)))
    return PairedRuns(tuple(sides["a"]), tuple(sides["b"]), folder, changed)


def open_pair(folder: Path) -> PairedRuns:
    """The finished runs of an earlier comparison.

    Raises:
        InductorBenchError: a side has no finished run, or a file is damaged.
    """
    changed = codec.decode(tuple[EnvironmentDifference, ...], read_json(folder / PAIR))
    sides: dict[str, tuple[OpenedRun, ...]] = {}
    for side in ("a", "b"):
        of_side = [path for _, path in _numbered(folder) if path.name.startswith(side)]
        runs = [(path, RunFolder(path)) for path in of_side if (path / RECORD).is_file()]
        opened = [OpenedRun(str(path), run.load(), run) for path, run in runs]
        sides[side] = tuple(one for one in opened if one.run.modules)
        if not sides[side]:
            hint = "make the runs again with --force"
            raise InductorBenchError(f"{folder} has no finished run of {side.upper()}", hint)
    return PairedRuns(sides["a"], sides["b"], folder, changed)


def interleaved(runs: int) -> Iterator[str]:
    """The sides in the order of their runs: ``a b b a a b …``."""
    for number in range(runs):
        yield from ("ab", "ba")[number % 2]


def _check(options: PairOptions) -> None:
    for target in options.breakdown.targets:
        if Path(target).is_dir() or target.endswith((".zip", RECORD)):
            raise UsageError(f"{target} alone cannot be compared", "give two runs, A and B, or one program")
    if len(options.pythons) > 2:
        raise UsageError("--python is given more than twice", "give that of A and that of B")
    for name, _ in options.variables:
        if name in SETTINGS or name in PLACES:
            raise UsageError(f"{name} cannot be compared: the measurement itself sets it", "leave it out")


def _make_folder(options: BreakdownOptions) -> Path:
    target = options.targets[0] if options.targets else options.arguments[0]
    title = f"compare-{Path(target.partition(':')[0]).stem if target.endswith('.py') else target}"
    if options.output is None:
        return first_free_folder(Path("runs"), title)
    if options.output.exists() and any(options.output.iterdir()) and not options.force:
        goes_on = f"compare its finished runs (inductor-bench compare {shlex.quote(str(options.output))}), "
        known = goes_on if (options.output / PAIR).is_file() else ""
        raise UsageError(
            f"{options.output} is not empty", f"{known}choose another folder with -o, or replace its runs with --force"
        )
    _remove_earlier(options.output)
    return options.output


def _remove_earlier(folder: Path) -> None:
    """Removes an earlier comparison from a folder: its runs would count among those that are made now.

    Raises:
        InductorBenchError: the folder of a run is a symbolic link, or a file cannot be removed.
    """
    if (folder / PAIR).is_file():
        for _, run in _numbered(folder):
            refuse_link(run)
            if (run / RECORD).is_file():
                remove_run(RunFolder(run))
        for name in (PAIR, PAGE):
            remove_file(folder / name)


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    """The folders of the runs of both sides, by number."""
    return sorted((int(path.name[2:]), path) for path in folder.glob("[ab]-*") if path.name[2:].isdecimal())


def _request(options: PairOptions, side: str, place: Path) -> BreakdownOptions:
    python = options.pythons[-1 if side == "b" else 0] if options.pythons else options.breakdown.python
    variables = options.variables if side == "b" else ()
    return replace(
        options.breakdown,
        output=place,
        python=python,
        variables=(*options.breakdown.variables, *variables),
        stop=True,
        plots=False,
    )


def _changed(options: PairOptions) -> Iterator[EnvironmentDifference]:
    if len(set(options.pythons)) == 2:
        yield EnvironmentDifference(INTERPRETER, *options.pythons)
    own = sys.argv[1:] if is_command() else ()
    environment = os.environ | dict(options.breakdown.variables) | dict(options.variables)
    redaction = Redaction.find([own], environment, options.breakdown.redact)
    for name, value in options.variables:
        before = os.environ.get(name, "")
        a, b = (word.partition("=")[2] for word in redaction.words([f"{name}={before}", f"{name}={value}"]))
        yield EnvironmentDifference(name, a, f"{b} (another)" if a == b and before != value else b)
