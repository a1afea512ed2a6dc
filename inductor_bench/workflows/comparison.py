"""Two standalone files side by side: an edited kernel, or what another torch generates for the same operation."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..analysis.race import RacePlan, RaceResult, race
from ..analysis.statistics import summarize
from ..errors import InductorBenchError, UsageError
from ..launch.session import WorkerLostError
from ..launch.worker import WorkerPool, default_python
from ..records.tuning import Comparison, MeasuredKernel
from .kernel_targets import find_files
from .kernel_timing import MEASURE_S, judged, measure_file
from .progress import Progress
from .workbench import LOAD_S, KernelOptions, Workbench

PLAN = RacePlan(final_rounds=20, most_final_rounds=60)
IN_TWO_PROCESSES = "not compared with each other, because they ran in two processes"


def run_comparison(
    options: KernelOptions, other: str, progress: Progress, other_python: str | None = None
) -> Comparison:
    """Measures two kernels by themselves, and then in turn; the second is judged.

    Args:
        options: of the first, which is its one target.
        other: the second standalone file.
        progress: is told what happens.
        other_python: the interpreter of the second; that of the first where ``None``.

    Raises:
        UsageError: there are not just two files.
        InductorBenchError: one of them cannot be measured.
    """
    files = [*find_files(options.targets), *find_files([other])]
    if len(files) != 2:
        raise UsageError("two kernels are compared, not more", "inductor-bench kernel FILE --compare OTHER")
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        pythons = (options.python, other_python or options.python)
        benches = [_bench(options, python, Path(name), progress) for python in dict.fromkeys(pythons)]
        try:
            for bench in benches:
                bench.look()
                bench.others = benches[0].others  # the second would take the first for another job
            first, second = (measure_file(file, bench) for file, bench in zip(files, _two(benches), strict=True))
            return _compare(files, benches, first, second)
        except WorkerLostError as lost:
            raise InductorBenchError(f"the worker {lost.message}", lost.tail) from lost
        finally:
            for bench in benches:
                bench.close()


def _two(benches: Sequence[Workbench]) -> Sequence[Workbench]:
    return [benches[0], benches[-1]]


def _bench(options: KernelOptions, python: str | None, folder: Path, progress: Progress) -> Workbench:
    pool = WorkerPool(python or default_python(), folder, dict(os.environ), on_line=progress.output)
    return Workbench(options, pool, progress)


def _compare(
    files: Sequence[Path], benches: Sequence[Workbench], first: MeasuredKernel, second: MeasuredKernel
) -> Comparison:
    state = benches[0].options.state
    peaks = []
    for number, (file, bench) in enumerate(zip(files, _two(benches), strict=True)):
        facts = bench.ask(LOAD_S, do="load", number=number, file=str(file.resolve()))
        peaks.append(bench.peaks[facts["device"]])
    alike, difference = _are_alike(benches)
    benches[0].progress.stage("timing both in turn")
    result = _in_turn(benches, state)
    ratio = result.runners[1].ratio
    assert ratio is not None  # both are in the final of a race of two
    first, second = (
        judged(_timed(one, state, runner.samples), roofs)
        for one, runner, roofs in zip((first, second), result.runners, peaks, strict=True)
    )
    return Comparison(first, second, state, ratio, result.verdict, difference, alike)


def _are_alike(benches: Sequence[Workbench]) -> tuple[bool | None, str]:
    """Whether both compute the same, ``None`` where it cannot be told, and what differs or why not."""
    if len(benches) > 1:
        return None, IN_TWO_PROCESSES
    try:
        difference = benches[0].ask(MEASURE_S, do="check", number=1, against=0)
    except InductorBenchError as error:
        return None, error.message
    return not difference, difference


def _timed(kernel: MeasuredKernel, state: str, samples: Sequence[float]) -> MeasuredKernel:
    """The kernel with the samples that were taken in turn with the other's."""
    timing = summarize(samples)
    return replace(kernel, cold=timing) if state == "cold" else replace(kernel, warm=timing)


def _in_turn(benches: Sequence[Workbench], state: str) -> RaceResult:
    """A race of two, which alternates who comes first, until the verdict is sure or there are samples enough."""
    conversation = race(2, plan=PLAN)
    order = next(conversation)
    while True:
        times = []
        for number in order:
            times += _two(benches)[number].ask(MEASURE_S, do="sample", order=[number], state=state)
        try:
            order = conversation.send(times)
        except StopIteration as end:
            result: RaceResult = end.value
            return result
