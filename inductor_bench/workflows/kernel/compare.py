"""Two standalone files side by side: an edited kernel, or what another torch generates for the same operation."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...analysis.statistics import summarize
from ...autotune.compile_pool import COMPILE_S, LOAD_S
from ...autotune.methods import METHODS
from ...autotune.race import RacePlan, RaceResult, race
from ...autotune.variants.find import find_variants
from ...autotune.variants.protocol import Variants
from ...devices.table import device_of
from ...errors import InductorBenchError, UsageError
from ...launch.session import WorkerLostError
from ...launch.worker import WorkerPool, default_python
from ...messages.kernels import Drop, Load, Vary
from ...messages.times import Check, Sample
from ...records.run import Failure
from ...records.tuning import Comparison, Config, MeasuredKernel, Pairing
from ...source.standalone.edit import recorded_facts
from ...source.standalone.recognition import require_standalone
from ...source.standalone.same_arguments import takes_alike
from ...store.files import read_text
from ..progress import Progress
from .device_use import DeviceInUseError
from .session import KernelOptions, KernelSession, failure_of
from .targets import find_files
from .timing import MEASURE_S, judged, measure_file
from .tuning import tune

OF_ANY_VALUE = ("num_stages",)
"""What a kernel can be compiled with whatever its code is; it changes loops around products only."""

PLAN = RacePlan(final_rounds=20, most_final_rounds=60)
IN_TWO_PROCESSES = "not compared with each other, because they ran in two processes"
PROCESSES_DIFFER = (
    "on a CPU two processes differ by some percent with the same kernel, by where its data lie: repeat the comparison "
    "before you believe a small difference"
)
OTHER_ARGUMENTS = "the two files take other arguments, so that it cannot be told whether both compute the same"


@dataclass
class _Side:
    """One of the two files, what it is measured with, and what was measured of it."""

    file: Path
    work: KernelSession
    kernel: MeasuredKernel
    device: str = ""

    def load(self, config: Config, is_own: bool = True) -> int:
        """The number under which the worker then has the kernel in a configuration, its own or that of the other.

        Raises:
            InductorBenchError: it cannot be run so, or computes something else then.
        """
        number = next(self.work.numbers)
        facts = self.work.ask(Load(number, str(self.file.resolve())), LOAD_S)
        self.device = facts.device
        if config == self.kernel.config:
            return number
        method = self.work.options.autotune
        wide = method is not None and METHODS[method].wide
        variants = find_variants(facts, lambda request: self.work.ask(request(number), LOAD_S), wide)
        if not is_own and (why := refusal_of_config(config, variants)):
            raise InductorBenchError(why)
        varied = next(self.work.numbers)
        self.work.ask(Vary(varied, of=number, change=variants.change(config)), COMPILE_S)
        difference = self.work.ask(Check(varied, against=number), MEASURE_S).difference
        self.work.ask(Drop((number,)), LOAD_S)
        if difference:
            raise InductorBenchError(f"it then computes something else: {difference}")
        return varied


def refusal_of_config(config: Config, variants: Variants) -> str:
    """Empty where the second kernel can be run in the configuration of the first; otherwise why not."""
    now = variants.now
    for whose, mine, others in (("first", config, now), ("second", now, config)):
        if only := [name for name in mine if name not in others]:
            return f"only the {whose} has {' and '.join(only)}"
    if config in variants.listed_by_max_autotune():
        return ""
    for name, value in config.items():
        if name not in OF_ANY_VALUE and value != now[name] and value not in variants.axes.get(name, ()):
            return f"the second's {name} is {now[name]} and cannot be {value}"
    return ""


def run_comparison(
    options: KernelOptions, other: str, progress: Progress, other_python: str | None = None
) -> Comparison:
    """Measures two kernels by themselves, and then in turn: as they stand, in one configuration, and each at its best.

    Args:
        options: of the first, which is its one target; ``autotune`` says how the best of each is searched for.
        other: the second standalone file, which is judged.
        progress: is told what happens.
        other_python: the interpreter of the second; that of the first where ``None``.

    Raises:
        UsageError: there are not just two files.
        InductorBenchError: one of them cannot be measured.
    """
    files = [*find_files(options.targets), *find_files([other])]
    if len(files) != 2:
        raise UsageError("two kernels are compared, not more", "inductor-bench kernel FILE --compare OTHER")
    pythons = [options.python or default_python(), other_python or options.python or default_python()]
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        folders = {python: Path(name) / str(number) for number, python in enumerate(dict.fromkeys(pythons))}
        sessions = {python: _open_session(options, python, folder, progress) for python, folder in folders.items()}
        try:
            return _compare(files, [sessions[python] for python in pythons], progress)
        except WorkerLostError as lost:
            raise InductorBenchError(f"the worker {lost.message}", "measure each file by itself") from lost
        finally:
            for session in sessions.values():
                session.close()


def _open_session(options: KernelOptions, python: str, folder: Path, progress: Progress) -> KernelSession:
    folder.mkdir()
    environment = {"TRITON_CACHE_DIR": str(folder / "triton"), **os.environ}
    return KernelSession(options, WorkerPool(python, folder, environment, on_line=progress.output), progress)


def _compare(files: Sequence[Path], sessions: Sequence[KernelSession], progress: Progress) -> Comparison:
    if _take_other_arguments(files):
        progress.note(f"{OTHER_ARGUMENTS}: they are only timed")
    for session in _distinct(sessions):
        session.look()
        session.others = sessions[0].others  # the second would take the first for another job
    sides = [_Side(file, session, _measured(file, session)) for file, session in zip(files, sessions, strict=True)]
    state = sessions[0].options.state
    progress.stage("timing both in turn")
    standing = [side.kernel.config for side in sides]
    numbers = [side.load(side.kernel.config) for side in sides]
    alike, difference = _are_alike(sides, numbers)
    as_they_stand, result = _pair(sides, standing, numbers)
    for side, runner in zip(sides, result.runners, strict=True):
        side.kernel = _timed(side, state, runner.samples)
    same_config = as_they_stand
    if standing[0] != standing[1]:
        progress.stage("timing both in one configuration")
        same_config = _try_pair(sides, [standing[0], standing[0]])
    best, failures = _best_of_each(sides, as_they_stand) if sessions[0].options.autotune else (None, [])
    first, second = (side.kernel for side in sides)
    apart = sides[0].work is not sides[1].work and any(device_of(side.device).runs_on_host for side in sides)
    return Comparison(
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


def _measured(file: Path, work: KernelSession) -> MeasuredKernel:
    """One of the two by itself. Raises: InductorBenchError: it cannot be measured; it says which, and why."""
    try:
        return measure_file(file, work)
    except DeviceInUseError:
        raise
    except (InductorBenchError, WorkerLostError) as error:
        failure = failure_of(file, error)
        raise InductorBenchError(f"{file}: {failure.message}", failure.hint) from error


def _take_other_arguments(files: Sequence[Path]) -> bool:
    """Whether the recorded facts say so; an edited file may hold none that can be read."""
    for file in files:
        require_standalone(file)
    try:
        first, second = (recorded_facts(read_text(file))["launch"] for file in files)
    except InductorBenchError:
        return False
    return not takes_alike(first, second)


def _distinct(sessions: Sequence[KernelSession]) -> list[KernelSession]:
    return list({id(session): session for session in sessions}.values())


def _are_alike(sides: Sequence[_Side], numbers: Sequence[int]) -> tuple[bool | None, str]:
    """Whether both compute the same, ``None`` where it cannot be told, and what differs or why not."""
    first, second = sides
    if first.work is not second.work:
        return None, IN_TWO_PROCESSES
    try:
        difference = second.work.ask(Check(numbers[1], against=numbers[0]), MEASURE_S).difference
    except InductorBenchError as error:
        return None, error.message
    return not difference, difference


def _timed(side: _Side, state: str, samples: Sequence[float]) -> MeasuredKernel:
    """The kernel with the samples that were taken in turn with the other's."""
    timing = summarize(samples)
    kernel = replace(side.kernel, cold=timing) if state == "cold" else replace(side.kernel, warm=timing)
    return judged(kernel, side.work.peaks[side.device])


def _best_of_each(sides: Sequence[_Side], as_they_stand: Pairing) -> tuple[Pairing, list[Failure]]:
    """Autotunes both, and times what came of it by fresh samples; and why one of them could not be autotuned."""
    failures: list[Failure] = []
    for work in _distinct([side.work for side in sides]):
        for found in tune({side.file: side.kernel for side in sides if side.work is work}, {}, work):
            if isinstance(found, Failure):
                failures.append(found)
            for side in sides:
                if isinstance(found, MeasuredKernel) and side.work is work and str(side.file) == found.file:
                    side.kernel = found
    configs = [side.kernel.tuning.best_config if side.kernel.tuning else side.kernel.config for side in sides]
    if configs == [side.kernel.config for side in sides]:
        return as_they_stand, failures
    sides[0].work.progress.stage("timing the best of each in turn")
    return _try_pair(sides, configs), failures


def _try_pair(sides: Sequence[_Side], configs: Sequence[Config]) -> Pairing:
    """Both timed in turn, each in one of the configurations; or why they cannot be."""
    try:
        numbers = [side.load(config, config in _own(side)) for side, config in zip(sides, configs, strict=True)]
        return _pair(sides, configs, numbers)[0]
    except InductorBenchError as error:
        return Pairing(configs[0], configs[1], reason=error.message)
    except WorkerLostError as lost:
        return Pairing(configs[0], configs[1], reason=f"the worker {lost.message}")


def _own(side: _Side) -> list[Config]:
    """The configurations in which the kernel has been found to run."""
    return [side.kernel.config, *([side.kernel.tuning.best_config] if side.kernel.tuning else [])]


def _pair(sides: Sequence[_Side], configs: Sequence[Config], numbers: Sequence[int]) -> tuple[Pairing, RaceResult]:
    """A race of two, which alternates who comes first, until the verdict is sure or there are samples enough."""
    conversation = race(2, plan=PLAN)
    order = next(conversation)
    state = sides[0].work.options.state
    while True:
        times: list[float] = []
        for place in order:
            times += sides[place].work.ask(Sample((numbers[place],), state), MEASURE_S).samples_s
        try:
            order = conversation.send(times)
        except StopIteration as end:
            result: RaceResult = end.value
            break
    for side, number in zip(sides, numbers, strict=True):
        side.work.ask(Drop((number,)), LOAD_S)
    first_s, second_s = (statistics.median(runner.samples) for runner in result.runners)
    return Pairing(configs[0], configs[1], first_s, second_s, result.runners[1].ratio, result.verdict), result
