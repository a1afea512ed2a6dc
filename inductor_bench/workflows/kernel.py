"""Timing standalone kernel files, comparing two of them, and retuning them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..analysis.roofline import Work, judge_kernel
from ..analysis.statistics import CONFIDENCE, find_drift, summarize
from ..errors import InductorBenchError, UsageError
from ..launch.diagnosis import last_error, remedy
from ..launch.session import WorkerLostError, WorkerSession
from ..launch.worker import WorkerPool, default_python
from ..records.run import Environment, Failure, Peaks
from ..records.tuning import MeasuredKernel
from ..source.recognition import require_standalone
from ..source.standalone_edit import edit_standalone
from ..store import codec
from ..store.files import write_text
from ..store.peaks import load_peaks, peaks_key
from .kernel_targets import find_files, place_of, prepare_to_save
from .kernel_variants import find_variants
from .progress import Progress
from .survey import take_survey
from .tuning import METHODS, Tuner

LOAD_S = 300.0
MEASURE_S = 600.0
FEWEST_SAMPLES = 9
SPREAD = 0.05
BUSY_MARGIN = 0.5
"""The load beside one process for each CPU that this tool itself may leave behind, when it builds candidates."""


@dataclass(frozen=True)
class KernelOptions:
    """The request.

    Attributes:
        targets: standalone files, folders of them, or ``RUN#KERNEL``, where ``KERNEL`` may be a glob.
        autotune: ``max``, ``coordesc`` or ``exhaustive``; ``None`` to leave the kernels as they are.
        state: whether candidates are compared ``cold`` or ``warm``.
        budget_s: of one kernel's retune, in seconds; ``None`` for no limit.
        save: where the winner is written as a standalone file; a folder where there are several kernels.
        check: whether outputs are compared with the reference in the file first.
        timeout_s: for each step of one kernel.
        python: the interpreter whose torch is used.
    """

    targets: tuple[str, ...]
    autotune: str | None = None
    state: str = "cold"
    budget_s: float | None = None
    save: Path | None = None
    check: bool = True
    timeout_s: float | None = None
    python: str | None = None


@dataclass(frozen=True)
class KernelOutcome:
    """One entry for each kernel that could be measured; ``failures`` are the others."""

    kernels: tuple[MeasuredKernel, ...]
    environment: Environment = field(default_factory=Environment)
    peaks: Peaks | None = None
    failures: tuple[Failure, ...] = ()
    saved: tuple[Path, ...] = ()


@dataclass
class Workbench:
    """What every file is measured with: the request, where workers start, and one that stays."""

    options: KernelOptions
    pool: WorkerPool
    progress: Progress
    environment: Environment = field(default_factory=Environment)
    peaks: dict[str, Peaks | None] = field(default_factory=dict)
    session: WorkerSession | None = None

    def start(self, name: str) -> WorkerSession:
        log = self.pool.folder / f"{name}.log"
        return WorkerSession(
            self.pool.python, self.pool.folder, self.pool.environment, log=log, on_line=self.pool.on_line
        )

    def look(self) -> None:
        """Starts the worker that measures, and takes down where it does.

        Raises:
            InductorBenchError: this interpreter has no torch that works.
        """
        self.progress.stage("looking at the machine")
        self.session = self.start("measure")
        try:
            self.environment = codec.decode(Environment, self.session.ask({"do": "environment"}, LOAD_S))
        except WorkerLostError as lost:
            said = last_error(lost.tail)
            raise InductorBenchError(said or f"the worker {lost.message}", remedy(said)) from None

    def ask(self, limit_s: float, **request: Any) -> Any:
        if self.session is None or not self.session.alive:
            self.session = self.start("measure")
        return self.session.ask(request, self.options.timeout_s or limit_s)

    def close(self) -> None:
        if self.session is not None:
            self.session.close()


def run_kernel(options: KernelOptions, progress: Progress) -> KernelOutcome:
    """Measures, and retunes where asked for, every kernel of the request.

    Raises:
        UsageError: the request cannot be carried out as typed.
        InductorBenchError: this interpreter has no torch that works.
    """
    if options.autotune not in (None, *METHODS):
        raise UsageError(f"{options.autotune} is no way to tune", f"one of {', '.join(METHODS)}")
    if options.save is not None and options.autotune is None:
        raise UsageError("--save writes the winner of a retune", "add --autotune")
    files = find_files(options.targets)
    prepare_to_save(options.save, files)
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        pool = WorkerPool(options.python or default_python(), Path(name), dict(os.environ), on_line=progress.output)
        work = Workbench(options, pool, progress)
        try:
            work.look()
            return _measure_all(files, work)
        finally:
            work.close()


def measure_one(options: KernelOptions, progress: Progress) -> MeasuredKernel:
    """The kernel of a request that names one.

    Raises:
        InductorBenchError: as :func:`run_kernel`, or what went wrong with the kernel.
        UsageError: it names several.
    """
    outcome = run_kernel(options, progress)
    for failure in outcome.failures:
        raise InductorBenchError(failure.message, failure.hint)
    if len(outcome.kernels) != 1:
        raise UsageError(f"{options.targets[0]} names {len(outcome.kernels)} kernels", "give one file")
    return outcome.kernels[0]


def _measure_all(files: Sequence[Path], work: Workbench) -> KernelOutcome:
    kernels: list[MeasuredKernel] = []
    failures: list[Failure] = []
    saved: list[Path] = []
    for file in files:
        try:
            kernels.append(measure_file(file, work))
            if work.options.autotune:
                save = work.options.save
                kernels[-1] = _tune(file, kernels[-1], work, place_of(save, file, files) if save else None, saved)
        except WorkerLostError as lost:
            failures.append(
                Failure("kernel", lost.kind, f"the worker {lost.message}", _what_next(lost, file), lost.tail, str(file))
            )
        except InductorBenchError as error:
            failures.append(Failure("kernel", "invalid", error.message, error.hint, "", str(file)))
        finally:
            if work.session is not None and work.session.alive:
                with contextlib.suppress(WorkerLostError):  # it dies of what it was done with
                    work.ask(LOAD_S, do="forget")
    peaks = next(iter(work.peaks.values()), None)
    return KernelOutcome(tuple(kernels), work.environment, peaks, tuple(failures), tuple(saved))


def _what_next(lost: WorkerLostError, file: Path) -> str:
    if lost.kind == "hung":
        return "give it more time with --timeout SECONDS"
    if "SIGKILL" in lost.message:
        return "it may have needed more memory than there is"
    return f"python {file} may say more"


def measure_file(file: Path, work: Workbench) -> MeasuredKernel:
    """Times one file as it stands, after a check of its outputs.

    Raises:
        InductorBenchError: it cannot be measured.
        WorkerLostError: it took its worker down, or gave no answer in time.
    """
    require_standalone(file)
    work.progress.stage(f"measuring {file.stem}")
    facts = work.ask(LOAD_S, do="load", number=0, file=str(file.resolve()))
    checked: dict[str, Any] = {"passed": None, "message": "not checked"}
    if work.options.check:
        checked = work.ask(MEASURE_S, do="verify", number=0)
    times = work.ask(MEASURE_S, do="measure", number=0)
    described = work.ask(MEASURE_S, do="describe", number=0)
    device = facts["device"]
    if device not in work.peaks:
        work.peaks[device] = _peaks(device, work)
    recorded = facts["recorded"]
    calls, in_model = recorded.get("calls"), recorded.get("time_s")
    kernel = MeasuredKernel(
        name=recorded["name"],
        kernel_id=recorded["kernel_id"],
        file=str(file),
        category=recorded["category"],
        device=_device_name(device, work.environment),
        config=described.get("config") or find_variants(facts).now,
        cold=summarize(times["cold"]),
        warm=summarize(times["warm"]),
        method=times.get("method", ""),
        moved_bytes=recorded.get("moved_bytes") or described.get("moved_bytes"),
        flops=described.get("flops"),
        dtype=described.get("dtype"),
        in_model_s=in_model / calls if in_model and calls else None,
        registers=described.get("registers"),
        spills=described.get("spills"),
        shared_memory_bytes=described.get("shared_memory_bytes"),
        checked=checked["passed"],
        check_message=checked["message"],
        with_zeros={state: summarize(samples) for state, samples in times.get("with_zeros", {}).items()},
    )
    return judged(kernel, work.peaks[device])


def judged(kernel: MeasuredKernel, peaks: Peaks | None) -> MeasuredKernel:
    """The kernel with what its times come to: its rates and its roof, and what is wrong with them.

    What fits into the cache is held against the cache's roof by its warm time: cold, its data were not there.
    """
    cold, warm = (
        judge_kernel(Work(timing.median_s, 1, kernel.moved_bytes, kernel.flops, kernel.dtype), peaks)
        for timing in (kernel.cold, kernel.warm)
    )
    return replace(
        kernel,
        bandwidth=cold.bandwidth,
        flop_rate=cold.flop_rate,
        bound=cold.bound,
        peak_share=warm.peak_share if cold.bound == "cache" else cold.peak_share,
        advice=tuple(advise(kernel)),
    )


def _device_name(device: str, environment: Environment) -> str:
    return (environment.accelerator if device != "cpu" else environment.cpu) or device


def _peaks(device: str, work: Workbench) -> Peaks | None:
    """The roofs of the device, measured where they are not cached; a kernel's times do not need them."""
    cached = load_peaks(peaks_key(work.environment, device))
    if cached is not None:
        return cached
    work.progress.stage(f"measuring what the {device} device can do")
    return take_survey(work.pool, (), device=device, peaks="cached", log=work.pool.folder / "survey.log").peaks


def advise(kernel: MeasuredKernel) -> Sequence[str]:
    """What is wrong with a measurement, and what to do."""
    advice = []
    if kernel.checked is False:
        advice.append(f"its outputs are not those of the reference: {kernel.check_message}")
    elif "NaN" in kernel.check_message:
        advice.append(kernel.check_message)
    if "busy" in kernel.method or "no graph" in kernel.method:
        advice.append(kernel.method.split("; ")[-1])
    for state, timing in (("cold", kernel.cold), ("warm", kernel.warm)):
        drift = find_drift(timing.samples_s)
        wide = (timing.high_s - timing.low_s) / timing.median_s if timing.median_s else 0.0
        if drift.sure:
            way = "rose" if drift.change > 0 else "sank"
            advice.append(f"the {state} time {way} by {abs(drift.change):.0%} while it was measured: measure again")
        elif wide > SPREAD:
            advice.append(f"the {CONFIDENCE:.0%} interval of the {state} time is {wide:.0%} wide: measure again")
        elif timing.samples < FEWEST_SAMPLES:
            advice.append(f"the {state} time rests on {timing.samples} samples only: measure again to be sure")
    return advice


def _tune(file: Path, kernel: MeasuredKernel, work: Workbench, place: Path | None, saved: list[Path]) -> MeasuredKernel:
    """Retunes a kernel, and writes the winner to ``place``, if there is one and a place is given."""
    facts = work.ask(LOAD_S, do="load", number=0, file=str(file.resolve()))
    variants = find_variants(facts)
    if not variants.axes:
        raise InductorBenchError(variants.why_none)
    work.close()  # its threads would get in the way
    tuner = Tuner(
        file=str(file.resolve()),
        variants=variants,
        start=work.start,
        builders=max(1, min(os.cpu_count() or 1, 8)),
        progress=work.progress,
        state=work.options.state,
        budget_s=work.options.budget_s,
        timeout_s=work.options.timeout_s,
    )
    load = os.getloadavg()[0]
    tuning = tuner.tune(work.options.autotune or METHODS[0])
    notes = busy_notes(variants.axes, kernel.method, max(load, os.getloadavg()[0]), os.cpu_count() or 1)
    if place is not None:
        if tuning.verdict == "faster":
            write_text(place, edit_standalone(file.read_text(encoding="utf-8"), variants.change(tuning.best_config)))
            saved.append(place)
        else:
            notes.append(f"{place} was not written: nothing was surely faster than the file as it stands")
    return replace(kernel, tuning=replace(tuning, notes=(*tuning.notes, *notes)))


def busy_notes(axes: Mapping[str, Any], method: str, load: float, processors: int) -> list[str]:
    """What a busy machine does to a retune: threads that wait for each other lose most by it.

    ``method`` says how the kernel was timed by itself, just before.
    """
    shared = " and ".join(name for name in ("threads", "schedule") if name in axes)
    if "busy" in method:
        why = method.rpartition("unreliable: ")[2]
    elif load > processors + BUSY_MARGIN:
        why = f"the machine is busy, load {load:.1f} on {processors} CPUs"
    else:
        return []
    return [f"{why}: which {shared} won says nothing about an idle one"] if shared else []
