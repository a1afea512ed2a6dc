"""Many inputs, several at once: each is made, given to the command, looked at and removed."""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import os
import pkgutil
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import click

import inductor_bench
from inductor_bench.cli.main import main
from inductor_bench.report.document import Document
from inductor_bench.report.html import render_page

from .findings import STARTED, Fault, find_faults, lost_in_record, take_state
from .fuzz_base import build_base
from .fuzz_trial import LIMITS, Command, Limits, Runner, execute, read_summary
from .inputs import generator, make_input

DATA = Path(__file__).resolve().parent.parent.parent / "tests" / "data"
IMPORTED = (inductor_bench, click)
IN_ONE_PROCESS = 50
"""How many inputs one process is given, one after another."""

LEFT_OUT = ("worker", "integrations", "ray", "plot", "harness", "__main__", "_winconsole")


@dataclass(frozen=True)
class Campaign:
    """What all inputs have in common; ``keep`` is the folder for those that are not removed."""

    seed: int
    limits: Limits = LIMITS
    keep: Path | None = None
    command: Command = main


@dataclass(frozen=True)
class Result:
    """One input: its number and kind, the command line, how that ended, and what was wrong."""

    number: int
    kind: str
    words: tuple[str, ...]
    outcome: str
    cpu_s: float
    faults: tuple[Fault, ...]


def prepare() -> None:
    """Imports all that the verbs import late, and compiles the templates of pages, so that no input pays for it.

    Neither torch, nor libraries over it, nor what draws plots is imported.
    """
    for found in itertools.chain(*(pkgutil.walk_packages(each.__path__, f"{each.__name__}.") for each in IMPORTED)):
        if not any(part.startswith(LEFT_OUT) for part in found.name.split(".")[1:]):
            importlib.import_module(found.name)
    for name in ("duckdb", "yaml", "jinja2", "rich.console", "rich.table", "concurrent.futures.process"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    render_page(Document(""))  # compiles the templates


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder with the base in it, which goes in the end."""
    folder = Path(tempfile.mkdtemp(prefix="inductor-bench-fuzz-")).resolve()
    try:
        build_base(folder / "base", DATA, partial(_run_undamaged, folder))
        yield folder
    finally:
        remove(folder)


def _run_undamaged(scratch: Path, words: Sequence[str], cwd: Path) -> int:
    place = scratch / "making"
    for name in ("tmp", "home", "cache"):
        (place / name).mkdir(parents=True, exist_ok=True)
    (place / "cwd").symlink_to(cwd)
    ended = execute(place, words, LIMITS)
    if ended.outcome != "0":
        print((place / "stderr").read_text())
    shutil.rmtree(place)
    return int(ended.outcome) if ended.outcome.isdigit() else 70


def run_campaign(
    campaign: Campaign,
    count: int,
    kinds: Sequence[str] = (),
    jobs: int = 2,
    first: int = 0,
    told: Callable[[int, int, int], None] = lambda done, count, faulty: None,
) -> list[Result]:
    """Tries so many inputs of these kinds, of all if none is named.

    Args:
        first: the smallest number of an input.
        told: is given how many are done, how many there are, and how many of those had a fault.
    """
    wanted = (number for number in itertools.count(first) if not kinds or generator(campaign.seed, number)[0] in kinds)
    numbers = list(itertools.islice(wanted, count))
    parts = [numbers[place : place + IN_ONE_PROCESS] for place in range(0, count, IN_ONE_PROCESS)]
    results: list[Result] = []
    faulty = 0
    with scratch() as folder:
        gc.freeze()  # what children share with this process is not written to
        with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
            try:
                for result in itertools.chain.from_iterable(pool.map(partial(_run_inputs, campaign, folder), parts)):
                    results.append(result)
                    faulty += bool(result.faults)
                    told(len(results), count, faulty)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                gc.unfreeze()
    return results


def _run_inputs(campaign: Campaign, scratch: Path, numbers: Sequence[int]) -> list[Result]:
    with Runner() as runner:
        return [run_input(campaign, scratch, number, runner) for number in numbers]


def run_one(campaign: Campaign, number: int) -> tuple[Result, str]:
    """Tries one input; returns what it printed, too."""
    with scratch() as folder:
        with Runner() as runner:
            result = run_input(campaign, folder, number, runner, hold=True)
        place = folder / str(number)
        said = "".join((place / name).read_text(errors="replace") for name in ("stdout", "stderr", "stack", "started"))
        details = [path.read_text(errors="replace") for path in (place / "tmp").glob("inductor-bench-*.log")]
        if campaign.keep is not None:
            _keep(campaign.keep, place)
        return result, "\n".join([said, *details])


def run_input(campaign: Campaign, scratch: Path, number: int, runner: Runner, hold: bool = False) -> Result:
    """Makes an input, runs the command on it and looks at what that did; removes it unless it is to be held."""
    place = scratch / str(number)
    place.mkdir()
    kind, made = make_input(campaign.seed, number, place, scratch / "base")
    if campaign.keep is not None:
        subprocess.run(["cp", "-a", place / "cwd", place / "input"], check=False, capture_output=True)
    known = read_summary(runner, place, place / made.run) if made.run else None
    before = take_state(place)
    ended = runner.execute(place, made.words, campaign.limits, campaign.command)
    faults = list(find_faults(place, ended, before, take_state(place), made.allowed, made.kept))
    if known is not None and made.run:
        faults += lost_in_record(known, read_summary_quietly(runner, place, place / made.run))
    if made.may_start:
        faults = [fault for fault in faults if fault.what != STARTED]
    if not hold:
        if faults and campaign.keep is not None:
            _keep(campaign.keep, place)
        remove(place)
    return Result(number, kind, made.words, ended.outcome, ended.cpu_s, tuple(dict.fromkeys(faults)))


def read_summary_quietly(runner: Runner, place: Path, run: Path) -> dict[str, object] | None:
    """As :func:`read_summary`, without a trace in what the command printed."""
    said = {name: (place / name).read_bytes() for name in ("stdout", "stderr", "stack")}
    found = read_summary(runner, place, run)
    for name, content in said.items():
        (place / name).write_bytes(content)
    return found


def _keep(keep: Path, place: Path) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    target = keep / place.name
    remove(target)
    subprocess.run(["cp", "-a", place, target], check=False, capture_output=True)


def remove(folder: Path) -> None:
    """Removes a folder, even if it holds some that nobody may read."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return
    for parent, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)
