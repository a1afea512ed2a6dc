"""Compares two standalone files: a kernel and its edited copy, or the same operation from two versions of torch."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...analysis.statistics import summarize
from ...autotune.kernel_variants import find_variants
from ...autotune.methods import METHODS, Order, RacePlan, RaceResult, Times, Variants, answer_each, run_race
from ...autotune.tuning_workers import COMPILE_S, LOAD_S
from ...devices.table import find_device
from ...errors import InductorBenchError, UsageError
from ...launch.worker import WorkerLostError, WorkerPool, default_python
from ...messages.kernel_requests import CompareOutputs, Drop, Load, Sample, Vary
from ...records.base import Failure
from ...records.comparison import Pairing, TimedPair
from ...records.request import KernelRequest
from ...records.retune import Config, MeasuredKernel
from ...source.standalone_header import has_like_arguments, require_standalone
from ...source.standalone_writer import read_recorded_facts
from ...store.files import read_text
from ..progress import Progress
from .kernel_session import DeviceInUseError, KernelSession, find_files, make_failure, make_kernel_environment
from .kernel_timing import MEASURE_S, judge_times, measure_file, tune

FREE_FIELDS = ("num_stages",)
"""Fields that may have any value in any kernel."""

PLAN = RacePlan(final_rounds=20, most_final_rounds=60)

IN_TWO_PROCESSES = "not compared with each other, because they ran in two processes"
PROCESSES_DIFFER = (
    "on a CPU two processes with the same kernel differ by some percent, because its data lie at other addresses: "
    "repeat the comparison before you trust a small difference"
)
OTHER_ARGUMENTS = "the two files take different arguments, so whether both compute the same is not known"


@dataclass
class _Side:
    """One of the two files, the session that measures it, and its measurement so far."""

    file: Path
    session: KernelSession
    kernel: MeasuredKernel
    device: str = ""

    def load(self, config: Config, is_own: bool = True) -> int:
        """Loads the kernel in a configuration. If it is not the configuration of the file, the outputs are checked."""
        number = next(self.session.numbers)
        facts = self.session.ask(Load(number, str(self.file.resolve())), LOAD_S)
        self.device = facts.device
        if config == self.kernel.config:
            return number
        method = self.session.request.autotune
        wide = method is not None and METHODS[method].wide
        variants = find_variants(facts, lambda request: self.session.ask(request(number), LOAD_S), wide)
        if not is_own and (why := find_config_conflict(config, variants)):
            raise InductorBenchError(why)
        varied = next(self.session.numbers)
        self.session.ask(Vary(varied, of=number, change=variants.change(config)), COMPILE_S)
        difference = self.session.ask(CompareOutputs(varied, against=number), MEASURE_S).difference
        self.session.ask(Drop((number,)), LOAD_S)
        if difference:
            raise InductorBenchError(f"it then computes something else: {difference}")
        return varied


def find_config_conflict(config: Config, variants: Variants) -> str:
    """Returns why the second kernel cannot run in the first's configuration; empty if it can.

    Args:
        config: the configuration of the first kernel.
        variants: the variants of the second kernel.
    """
    now = variants.now
    for whose, mine, others in (("first", config, now), ("second", now, config)):
        if only := [name for name in mine if name not in others]:
            return f"only the {whose} has {' and '.join(only)}"
    if config in variants.listed_by_max_autotune():
        return ""
    for name, value in config.items():
        if name not in FREE_FIELDS and value != now[name] and value not in variants.axes.get(name, ()):
            return f"{name} of the second kernel is {now[name]}, and cannot be {value}"
    return ""


def run_comparison(request: KernelRequest, progress: Progress) -> TimedPair:
    """Measures each of two kernels alone, and then both in turn.

    They alternate in the configurations of their files, then both in that of the first file, and then each in its best
    one.

    Args:
        request: the request, with the first file as its only target, and the second, which is judged against it;
            ``autotune`` is the method that finds the best configurations, or ``None`` to leave these out.
        progress: the listener for stages and output.

    Raises:
        UsageError: the targets are more than two files.
        InductorBenchError: one of the files cannot be measured.
    """
    files = [*find_files(request.targets), *find_files([request.other or ""])]
    if len(files) != 2:
        raise UsageError(
            "two kernels are compared, not more", "inductor-bench kernel FILE --compare OTHER", "wrong-target"
        )
    pythons = [request.python or default_python(), request.other_python or request.python or default_python()]
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        folders = {python: Path(name) / str(number) for number, python in enumerate(dict.fromkeys(pythons))}
        sessions = {python: _open_session(request, python, folder, progress) for python, folder in folders.items()}
        try:
            return _compare(files, [sessions[python] for python in pythons], progress)
        except WorkerLostError as lost:
            raise InductorBenchError(
                f"the worker {lost.message}", "measure each file by itself", "worker-lost"
            ) from lost
        finally:
            for session in sessions.values():
                session.close()


def _open_session(request: KernelRequest, python: str, folder: Path, progress: Progress) -> KernelSession:
    folder.mkdir()
    pool = WorkerPool(python, folder, make_kernel_environment(folder), on_line=progress.output)
    return KernelSession(request, pool, progress)


def _compare(files: Sequence[Path], sessions: Sequence[KernelSession], progress: Progress) -> TimedPair:
    if _have_different_arguments(files):
        progress.note(f"{OTHER_ARGUMENTS}: they are only timed")
    for session in _each_session_once(sessions):
        session.open()
        # Otherwise the second session would report the first as another job.
        session.other_jobs = sessions[0].other_jobs
    sides = [_Side(file, session, _measure_alone(file, session)) for file, session in zip(files, sessions, strict=True)]
    state = sessions[0].request.state
    progress.stage("timing both in turn")
    standing = [side.kernel.config for side in sides]
    numbers = [side.load(side.kernel.config) for side in sides]
    alike, difference = _compare_outputs(sides, numbers)
    as_they_stand, result = _time_pair(sides, standing, numbers)
    for side, runner in zip(sides, result.runners, strict=True):
        side.kernel = _add_samples(side, state, runner.samples)
    same_config = as_they_stand
    if standing[0] != standing[1]:
        progress.stage("timing both in one configuration")
        same_config = _try_race(sides, [standing[0], standing[0]])
    best, failures = _find_best_of_each(sides, as_they_stand) if sessions[0].request.autotune else (None, [])
    first, second = (side.kernel for side in sides)
    apart = sides[0].session is not sides[1].session and any(find_device(side.device).runs_on_host for side in sides)
    return TimedPair(
        first,
        second,
        state,
        as_they_stand,
        same_config,
        best,
        difference,
        alike,
        failures=tuple(failures),
        notes=(PROCESSES_DIFFER,) if apart else (),
    )


def _measure_alone(file: Path, session: KernelSession) -> MeasuredKernel:
    """Measures one of the two files alone."""
    try:
        return measure_file(file, session)
    except DeviceInUseError:
        raise
    except (InductorBenchError, WorkerLostError) as error:
        failure = make_failure(file, error)
        raise InductorBenchError(f"{file}: {failure.message}", failure.hint, "kernel-failed") from error


def _have_different_arguments(files: Sequence[Path]) -> bool:
    """Whether the recorded launches differ in their arguments; false if an edited file has no readable record."""
    for file in files:
        require_standalone(file)
    try:
        first, second = (read_recorded_facts(read_text(file))["launch"] for file in files)
    except InductorBenchError:
        return False
    return not has_like_arguments(first, second)


def _each_session_once(sessions: Sequence[KernelSession]) -> list[KernelSession]:
    return list({id(session): session for session in sessions}.values())


def _compare_outputs(sides: Sequence[_Side], numbers: Sequence[int]) -> tuple[bool | None, str]:
    """Whether both kernels compute the same outputs, and the difference."""
    first, second = sides
    if first.session is not second.session:
        return None, IN_TWO_PROCESSES
    try:
        difference = second.session.ask(CompareOutputs(numbers[1], against=numbers[0]), MEASURE_S).difference
    except InductorBenchError as error:
        return None, error.message
    return not difference, difference


def _add_samples(side: _Side, state: str, samples: Sequence[float]) -> MeasuredKernel:
    """Returns the side's kernel with the samples in seconds that were taken in turn with the other side."""
    timing = summarize(samples)
    kernel = replace(side.kernel, cold=timing) if state == "cold" else replace(side.kernel, warm=timing)
    return judge_times(kernel, side.session.peaks[side.device])


def _find_best_of_each(sides: Sequence[_Side], as_they_stand: Pairing) -> tuple[Pairing, list[Failure]]:
    """Autotunes both kernels, and times both in their best configurations with fresh samples."""
    failures: list[Failure] = []
    for session in _each_session_once([side.session for side in sides]):
        for found in tune({side.file: side.kernel for side in sides if side.session is session}, {}, session):
            if isinstance(found, Failure):
                failures.append(found)
            for side in sides:
                if isinstance(found, MeasuredKernel) and side.session is session and str(side.file) == found.file:
                    side.kernel = found
    configs = [side.kernel.tuning.best_config if side.kernel.tuning else side.kernel.config for side in sides]
    if configs == [side.kernel.config for side in sides]:
        return as_they_stand, failures
    sides[0].session.progress.stage("timing the best config of each kernel in turn")
    return _try_race(sides, configs), failures


def _try_race(sides: Sequence[_Side], configs: Sequence[Config]) -> Pairing:
    """Races both kernels, each in its configuration; if one cannot run so, returns a pairing with the reason."""
    try:
        numbers = [
            side.load(config, config in _list_working_configs(side))
            for side, config in zip(sides, configs, strict=True)
        ]
        return _time_pair(sides, configs, numbers)[0]
    except InductorBenchError as error:
        return Pairing(configs[0], configs[1], reason=error.message)
    except WorkerLostError as lost:
        return Pairing(configs[0], configs[1], reason=f"the worker {lost.message}")


def _list_working_configs(side: _Side) -> list[Config]:
    """Returns the configurations in which the kernel is known to run."""
    return [side.kernel.config, *([side.kernel.tuning.best_config] if side.kernel.tuning else [])]


def plan_pairs(proof_s: float | None) -> RacePlan:
    """Plans the race of two kernels, which begins now. While it is undecided, it goes on for ``proof_s`` seconds.

    A comparison has up to three races, and each of them may take this time.
    """
    end_s = time.monotonic() + (proof_s or 0.0)
    return replace(PLAN, goes_on=lambda: time.monotonic() < end_s)


def _time_pair(sides: Sequence[_Side], configs: Sequence[Config], numbers: Sequence[int]) -> tuple[Pairing, RaceResult]:
    """Races both kernels in alternating order until the verdict is decided or the rounds and the time are spent."""
    request = sides[0].session.request

    def sample(order: Order) -> Times:
        taken = (sides[place].session.ask(Sample((numbers[place],), request.state), MEASURE_S) for place in order)
        return [time_s for one in taken for time_s in one.samples_s]

    result = answer_each(run_race(2, plan=plan_pairs(request.proof_s)), sample)
    for side, number in zip(sides, numbers, strict=True):
        side.session.ask(Drop((number,)), LOAD_S)
    first_s, second_s = (statistics.median(runner.samples) for runner in result.runners)
    return Pairing(configs[0], configs[1], first_s, second_s, result.runners[1].ratio, result.verdict), result
