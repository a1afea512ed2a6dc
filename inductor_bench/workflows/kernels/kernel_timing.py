"""Times one standalone file, and judges its times against the device's peaks."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ...analysis.roofline import TimedWork, judge_kernel
from ...analysis.statistics import CONFIDENCE, find_drift, summarize
from ...autotune.kernel_variants import find_variants, search_variants
from ...autotune.methods import METHODS, FixedKernel, Pruning, Questions
from ...autotune.pipeline import Pipeline, PipelineState, TuningOutcome
from ...autotune.tuner import Tuner
from ...autotune.tuning_workers import BUDGET_SPENT, LOAD_S, BudgetSpentError, NoCandidatesError
from ...devices.nvidia import NVIDIA
from ...devices.table import find_device
from ...errors import InductorBenchError
from ...launch.worker import WorkerLostError
from ...messages.kernel_requests import Describe, KernelTimes, Load, Measure, VariantFacts, Verified, Verify
from ...records.base import Failure
from ...records.retune import (
    BY_DEFAULT,
    CallWork,
    Config,
    MeasuredKernel,
    MeasuredRoof,
    ModelCalls,
    Resources,
    Timing,
    TimingClock,
    Tuning,
)
from ...records.run import Environment, Peaks
from ...source.standalone_header import holds_triton_kernel, require_standalone
from ...source.standalone_writer import edit_standalone
from ...store.caches import load_peaks, make_peaks_key
from ...store.files import read_text, write_text
from ..modules.kernel_files import record_reference
from ..modules.module_measurements import take_survey
from .kernel_session import KernelSession, make_failure

# Advice on the measurement of a kernel: what makes it doubtful, and what to do about it.


FEWEST_SAMPLES = 9
SPREAD = 0.05
CLOCK_SPREAD = 0.05
BUSY_MARGIN = 0.5
"""Maximum load average above the number of CPUs that this tool's own compilations may cause."""


def list_advice(kernel: MeasuredKernel) -> list[str]:
    """Returns advice on a measurement, one sentence for each problem; empty for a sound measurement."""
    return [*_judge_outputs(kernel), *_judge_device(kernel), *_judge_times(kernel), *filter(None, [kernel.no_counters])]


def _judge_outputs(kernel: MeasuredKernel) -> Iterator[str]:
    if kernel.checked is False:
        yield f"its outputs differ from the reference: {kernel.check_message}"
    elif "NaN" in kernel.check_message:
        yield kernel.check_message


def _judge_device(kernel: MeasuredKernel) -> Iterator[str]:
    if "busy" in kernel.method or "no graph" in kernel.method:
        yield kernel.method.split("; ")[-1]
    if "gaps" in kernel.method:
        yield "torch.profiler sees no kernels here, so the gap between two launches, up to 0.5 µs, is in every time"
    if kernel.shared_device:
        yield f"{kernel.shared_device}: its work disturbs these times; measure again when it has ended"
    clock = kernel.clock
    if clock.throttled:
        at = f" to {clock.clock_mhz:,.0f} MHz" if clock.clock_mhz else ""
        yield f"the GPU's clock was limited{at} by its {' and '.join(clock.throttled)}; a cooler GPU may be faster"
    change = clock.clock_change
    if change is not None and abs(change) > CLOCK_SPREAD:
        way = "rose" if change > 0 else "sank"
        yield f"the GPU's clock {way} by {abs(change):.0%} from the cold to the warm times; measure again"


def _judge_times(kernel: MeasuredKernel) -> Iterator[str]:
    for state, timing in (("cold", kernel.cold), ("warm", kernel.warm)):
        if timing is None:
            continue
        drift = find_drift(timing.samples_s)
        wide = (timing.high_s - timing.low_s) / timing.median_s if timing.median_s else 0.0
        if drift.sure:
            way = "rose" if drift.change > 0 else "sank"
            yield f"the {state} time {way} by {abs(drift.change):.0%} while it was measured; measure again"
        elif wide > SPREAD:
            yield f"the {CONFIDENCE:.0%} interval of the {state} time is {wide:.0%} wide; measure again"
        elif timing.samples < FEWEST_SAMPLES:
            yield f"the {state} time rests on {timing.samples} samples only; measure again to be sure"


OF_A_BUSY_MACHINE = "may differ on an idle machine"


def find_doubt(method: str) -> str:
    """Returns the timer's reason why the times of a timing method are unreliable; empty if they are reliable."""
    return method.partition("unreliable: ")[2]


def list_busy_notes(axes: Mapping[str, Any], method: str, load: float, processors: int) -> list[str]:
    """Returns notes on a tuning on a busy machine. Such a machine slows variants with more threads most.

    Args:
        axes: the fields that the tuning varied.
        method: the timing method of the kernel's own measurement, just before.
        load: the machine's load average.
        processors: the number of its CPUs.
    """
    shared = " and ".join(name for name in ("threads", "schedule") if name in axes)
    why = find_doubt(method)
    if not why and load > processors + BUSY_MARGIN:
        why = f"the machine is busy, load {load:.1f} on {processors} CPUs"
    return [f"{why}: the best {shared} {OF_A_BUSY_MACHINE}"] if why and shared else []


def is_of_busy_machine(tuning: Tuning) -> bool:
    """Whether a tuning has a note of :func:`list_busy_notes`."""
    return any(note.endswith(OF_A_BUSY_MACHINE) for note in tuning.notes)


MEASURE_S = 600.0
COOLING_S = 1.0


def measure_file(file: Path, session: KernelSession) -> MeasuredKernel:
    """Times the kernel of one file in its own configuration, after a check of its outputs.

    Raises:
        InductorBenchError: the kernel cannot be measured.
        WorkerLostError: the worker crashed or exceeded its limit.
    """
    require_standalone(file)
    session.progress.stage(f"measuring {file.stem}")
    facts = session.ask(Load(0, str(file.resolve())), LOAD_S)
    device = facts.device
    others = session.find_other_jobs(device)
    verified = _verify(file, session) if session.request.check else Verified(None, "not checked")
    times = _take_times(session, device)
    described = session.ask(Describe(0), MEASURE_S)
    if device not in session.peaks:
        session.peaks[device] = find_peaks(device, session)
    config = described.config or find_variants(facts, lambda request: session.ask(request(0), LOAD_S)).now
    resources = Resources(described.registers, described.spills, described.shared_memory_bytes)
    timings = KernelTimings(summarize(times.cold), summarize(times.warm), times.method)
    kernel = replace(
        describe_kernel(file, facts, session, config, resources, timings),
        work=CallWork(facts.recorded.moved_bytes or described.moved_bytes, described.flops, described.dtype),
        checked=verified.passed,
        check_message=verified.message,
        with_zeros={state: summarize(samples) for state, samples in times.with_zeros.items()},
        clock=TimingClock(times.clock_mhz, times.clock_change, times.throttled),
        shared_device=others,
    )
    return judge_times(
        session.nsight.with_counters(kernel, device) if session.nsight else kernel, session.peaks[device]
    )


def _verify(file: Path, session: KernelSession) -> Verified:
    """Compares the outputs of a file's loaded kernel with its reference. If it has no reference, one is made now."""
    with contextlib.suppress(InductorBenchError):  # then there is nothing to compare with, as the check says
        if record_reference(file, session.ask):
            session.index_rows.pop(file.parent, None)
            session.ask(Load(0, str(file.resolve())), LOAD_S)
    return session.ask(Verify(0), MEASURE_S)


class KernelTimings(NamedTuple):
    """The times of one call: ``cold``, ``warm`` if it was taken, and the method of timing."""

    cold: Timing
    warm: Timing | None
    method: str


def describe_kernel(
    file: Path,
    facts: VariantFacts,
    session: KernelSession,
    config: Config,
    resources: Resources,
    timings: KernelTimings,
) -> MeasuredKernel:
    """Makes the record of a standalone file's kernel with its times; ``resources`` get their occupancy here."""
    recorded, device = facts.recorded, facts.device
    occupancy = find_device(device).theoretical_occupancy(
        session.environment, config.get("num_warps"), resources.registers, resources.shared_memory_bytes
    )
    return MeasuredKernel(
        name=recorded.name,
        kernel_id=recorded.kernel_id,
        file=str(file),
        category=recorded.category,
        device=name_device(device, session.environment),
        config=config,
        cold=timings.cold,
        warm=timings.warm,
        method=timings.method,
        work=CallWork(recorded.moved_bytes),
        original=ModelCalls(
            recorded.calls, recorded.time_s / recorded.calls if recorded.time_s and recorded.calls else None
        ),
        edited=session.is_edited(file),
        resources=replace(resources, occupancy=occupancy),
    )


def _take_times(session: KernelSession, device: str) -> KernelTimes:
    """Takes the times of the loaded kernel; takes them again after a pause if the GPU throttled its clock."""
    times = session.ask(Measure(0, watch=not find_device(device).runs_on_host), MEASURE_S)
    if times.throttled:
        time.sleep(COOLING_S)
        with contextlib.suppress(InductorBenchError):
            again = session.ask(Measure(0, watch=True), MEASURE_S)
            if (again.clock_mhz or 0.0) > (times.clock_mhz or 0.0):
                return again
    return times


def judge_times(kernel: MeasuredKernel, peaks: Peaks | None) -> MeasuredKernel:
    """Returns the kernel with its rates, its bound, its share of the peak, and advice.

    The share of a cache-bound kernel comes from its warm time, because in the cold time its data are not in the cache.

    Args:
        kernel: the measured kernel.
        peaks: the measured peaks of its device; ``None`` if they are unknown.
    """
    cold, warm = (
        judge_kernel(TimedWork(timing.median_s, 1, kernel.work), peaks)
        for timing in (kernel.cold, kernel.warm or kernel.cold)
    )
    return replace(
        kernel,
        roof=MeasuredRoof(
            bandwidth=cold.bandwidth,
            flop_rate=cold.flop_rate,
            bound=cold.bound,
            peak_share=warm.peak_share if cold.bound == "cache" else cold.peak_share,
        ),
        advice=tuple(list_advice(kernel)),
    )


def name_device(device: str, environment: Environment) -> str:
    """Returns the name of a device in an environment; its type if the environment does not name it."""
    return find_device(device).name_in(environment) or device


def find_peaks(device: str, session: KernelSession) -> Peaks | None:
    """Returns the peaks of the device: from the cache, or measured if no other job uses the device; otherwise
    ``None``."""
    cached = load_peaks(make_peaks_key(session.environment, device))
    if cached is not None or session.find_other_jobs(device):
        return cached
    session.progress.stage(f"measuring what the {device} device can do")
    return take_survey(session.pool, (), device=device, peaks="cached", log=session.pool.folder / "survey.log").peaks


# Autotunes measured kernels of standalone files, and saves the winners.


@dataclass
class _Task:
    """A kernel to tune, its tuner, and the path for its winner, if that is saved."""

    file: Path
    kernel: MeasuredKernel
    tuner: Tuner
    place: Path | None


def tune(
    kernels: Mapping[Path, MeasuredKernel], places: Mapping[Path, Path], session: KernelSession
) -> Iterator[MeasuredKernel | Failure | Path]:
    """Autotunes measured kernels.

    Args:
        kernels: the measured kernels, by their files.
        places: the paths for the winners, by the files; empty if winners are not saved.
        session: the session that measured the kernels.

    Yields:
        Each kernel with its tuning, or its failure, and the path of each file that is written. A kernel that the budget
        left out is yielded with its times and an advice.
    """
    session.start_budget()
    method = session.request.autotune or BY_DEFAULT
    tasks: dict[Hashable, _Task] = {
        file: _Task(file, kernel, make_tuner(file, method, session, opens_last=is_library(kernel)), places.get(file))
        for file, kernel in kernels.items()
    }
    load = os.getloadavg()[0]
    tuners = {name: tasks[name].tuner for name in sorted(tasks, key=lambda name: tasks[name].tuner.opens_last)}
    for name, outcome in run_tuners(tuners, method, session):
        one = tasks[name]
        if isinstance(outcome, Tuning):
            yield from _add_tuning(one, outcome, load)
        else:
            yield explain_untuned(one.file, one.kernel, outcome)


def run_tuners(
    tuners: Mapping[Hashable, Tuner],
    method: str,
    session: KernelSession,
    report: Callable[[PipelineState], None] | None = None,
) -> Iterator[tuple[Hashable, TuningOutcome]]:
    """Runs tuners to their end. Yields the key of each with its tuning or its error, as soon as it is known.

    Args:
        tuners: the tuners, by any keys; the first are timed first if several are ready.
        method: the name of a method, for their searches.
        session: the session of their workers and compile pools.
        report: called with the state of the kernels; ``None`` to report each timing as a stage.
    """
    devices, library = {one.device for one in tuners.values()}, any(one.opens_last for one in tuners.values())
    workers = session.timing_workers(len(tuners), devices, library=library)
    report = report or _report_stages(tuners, session)
    yield from Pipeline(tuners, method, session.compile_pool, workers, session.left_s, report).run()


def _report_stages(tuners: Mapping[Hashable, Tuner], session: KernelSession) -> Callable[[PipelineState], None]:
    last = ""

    def report(state: PipelineState) -> None:
        nonlocal last
        text = f"building {state.compiling} candidate{'s' * (state.compiling != 1)}"
        if state.timed is not None:
            text = f"timing {Path(tuners[state.timed].file).stem} ({state.done + 1} of {state.kernels})"
        if text != last:
            last = text
            session.progress.stage(text)

    return report


def explain_untuned(
    file: Path, kernel: MeasuredKernel, why: InductorBenchError | WorkerLostError
) -> MeasuredKernel | Failure:
    """Makes the outcome of a kernel without a tuning: its measurement with an advice, or its failure."""
    if isinstance(why, BudgetSpentError):
        return replace(kernel, advice=(*kernel.advice, f"not retuned: {BUDGET_SPENT}; give a larger --budget"))
    return make_failure(file, why)


def make_tuner(
    file: Path,
    method: str,
    session: KernelSession,
    *,
    opens_last: bool = False,
    pruning: Pruning | None = None,
    may_give_way: Callable[[], bool] = lambda: True,
) -> Tuner:
    """Makes the tuner of a file's kernel. It loads the file when its search begins."""

    def find(facts: VariantFacts) -> Questions:
        variants = yield from search_variants(facts, METHODS[method].wide)
        if isinstance(variants, FixedKernel):
            raise NoCandidatesError(variants.no_variants_reason)
        return variants

    request = session.request
    return Tuner(
        str(file.resolve()),
        find,
        session.numbers,
        request.state,
        request.timeout_s,
        session.is_over,
        listing_device=NVIDIA.type if holds_triton_kernel(file) else None,
        opens_last=opens_last,
        pruning=pruning,
        may_give_way=may_give_way,
    )


def is_library(kernel: MeasuredKernel) -> bool:
    """Whether a kernel is a library call, for which Inductor takes long to list and compile choices."""
    return kernel.category.startswith("extern_")


def _add_tuning(one: _Task, tuning: Tuning, load: float) -> Iterator[MeasuredKernel | Path]:
    """Yields the kernel with its tuning. If the winner's file is written, its path is yielded first."""
    notes = collect_notes(one.tuner, tuning.method, one.kernel, load)
    if one.place is not None:
        why = _save_winner(one, one.place, tuning)
        if why:
            notes.append(f"{one.place} was not written: {why}")
        else:
            yield one.place
    yield replace(one.kernel, tuning=replace(tuning, notes=(*tuning.notes, *notes)))


def collect_notes(tuner: Tuner, method: str, kernel: MeasuredKernel, load: float = 0.0) -> list[str]:
    """Returns the notes on a tuning; ``load`` is the machine's load average when the tuning began."""
    busy = list_busy_notes(tuner.variants.axes, kernel.method, max(load, os.getloadavg()[0]), os.cpu_count() or 1)
    return [*tuner.variants.notes(METHODS[method]), *busy]


def _save_winner(one: _Task, place: Path, tuning: Tuning) -> str:
    """Writes the winner's file; if it is not written, returns the reason, otherwise an empty text."""
    if tuning.verdict != "faster":
        return "no candidate was reliably faster than the file as it is"
    if why := one.tuner.variants.save_refusal(tuning.best_config):
        return why
    try:
        change = one.tuner.variants.change(tuning.best_config)
        write_text(place, edit_standalone(read_text(one.file), change.list_changed_facts(), change.source))
    except InductorBenchError as error:
        return error.message
    return ""
