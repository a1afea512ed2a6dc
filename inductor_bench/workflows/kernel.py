"""Timing standalone kernel files, comparing two of them, and retuning them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..analysis.roofline import Work, judge_kernel
from ..analysis.statistics import CONFIDENCE, find_drift, summarize
from ..errors import InductorBenchError, UsageError
from ..launch.session import WorkerLostError, WorkerSession
from ..launch.worker import WorkerPool, default_python
from ..records.run import Environment, Failure, Peaks
from ..records.tuning import MeasuredKernel
from ..source.standalone_edit import edit_standalone
from ..store.files import write_text
from .kernel_variants import find_variants
from .progress import Progress
from .survey import take_survey
from .tuning import METHODS, Tuner

LOAD_S = 300.0
MEASURE_S = 600.0
FEWEST_SAMPLES = 9
SPREAD = 0.05


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
    environment: Environment
    peaks: Peaks | None = None
    session: WorkerSession | None = None

    def start(self, name: str) -> WorkerSession:
        log = self.pool.folder / f"{name}.log"
        return WorkerSession(
            self.pool.python, self.pool.folder, self.pool.environment, log=log, on_line=self.pool.on_line
        )

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
    _refuse_to_overwrite(options.save, files)
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        pool = WorkerPool(options.python or default_python(), Path(name), dict(os.environ), on_line=progress.output)
        progress.stage("looking at the machine")
        seen = take_survey(pool, (), device="cpu", peaks="none", log=pool.folder / "survey.log")
        if seen.failure is not None:
            raise InductorBenchError(seen.failure.message, seen.failure.hint)
        work = Workbench(options, pool, progress, seen.environment)
        try:
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


def find_files(targets: Sequence[str]) -> list[Path]:
    """The standalone files that the targets name, each once.

    Raises:
        UsageError: a target is not there or names none.
    """
    found: list[Path] = []
    for target in targets:
        place, _, glob = target.partition("#")
        path = Path(place)
        if glob:
            path = path / "kernels" if (path / "kernels").is_dir() else path
        if not path.exists():
            raise UsageError(f"there is no {path}", "inductor-bench extract SOURCE -o DIR writes standalone files")
        if path.is_dir():
            pattern = glob.removesuffix(".py") or "*"
            matching = sorted(each for each in path.glob(f"{pattern}.py") if each.is_file())
            if not matching:
                raise UsageError(f"{path} holds no {pattern}.py", f"ls {path}")
            found += matching
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def _refuse_to_overwrite(save: Path | None, files: Sequence[Path]) -> None:
    if save is None:
        return
    if len(files) > 1 and save.suffix == ".py":
        raise UsageError(f"{len(files)} kernels cannot be saved into one file", "give a folder with --save")
    taken = [place for place in (_place_of(save, file, files) for file in files) if place.exists()]
    if taken:
        raise UsageError(f"{taken[0]} exists", "choose another place with --save")


def _place_of(save: Path, file: Path, files: Sequence[Path]) -> Path:
    return save if len(files) == 1 and save.suffix == ".py" else save / file.name


def _measure_all(files: Sequence[Path], work: Workbench) -> KernelOutcome:
    kernels: list[MeasuredKernel] = []
    failures: list[Failure] = []
    saved: list[Path] = []
    for file in files:
        try:
            kernel = _guarded(partial(measure_file, file, work), file, failures)
            if kernel is None:
                continue
            kernels.append(kernel)
            if work.options.autotune:
                tuned = _guarded(partial(_tune, file, kernel, work), file, failures)
                kernels[-1] = tuned or kernel
                if tuned and work.options.save is not None:
                    place = _place_of(work.options.save, file, files)
                    saved += _save(file, tuned, place, work)
        finally:
            if work.session is not None and work.session.alive:
                work.ask(LOAD_S, do="forget")
    return KernelOutcome(tuple(kernels), work.environment, work.peaks, tuple(failures), tuple(saved))


def _guarded(step: Callable[[], MeasuredKernel], file: Path, failures: list[Failure]) -> MeasuredKernel | None:
    """What a step gives, or ``None`` and a failure: one kernel's failure is not another's."""
    try:
        return step()
    except WorkerLostError as lost:
        failures.append(Failure("kernel", lost.kind, f"the worker {lost.message}", "", lost.tail, str(file)))
    except InductorBenchError as error:
        failures.append(Failure("kernel", "invalid", error.message, error.hint, "", str(file)))
    return None


def measure_file(file: Path, work: Workbench) -> MeasuredKernel:
    """Times one file as it stands, after a check of its outputs.

    Raises:
        InductorBenchError: it cannot be measured.
        WorkerLostError: it took its worker down, or gave no answer in time.
    """
    work.progress.stage(f"measuring {file.stem}")
    facts = work.ask(LOAD_S, do="load", number=0, file=str(file.resolve()))
    checked: dict[str, Any] = {"passed": None, "message": "not checked"}
    if work.options.check:
        checked = work.ask(MEASURE_S, do="verify", number=0)
    times = work.ask(MEASURE_S, do="measure", number=0)
    described = work.ask(MEASURE_S, do="describe", number=0)
    if work.peaks is None:
        work.peaks = _peaks(facts["device"], work)
    recorded = facts["recorded"]
    cold, warm = summarize(times["cold"]), summarize(times["warm"])
    moved, flops = recorded.get("moved_bytes") or described.get("moved_bytes"), described.get("flops")
    calls, in_model = recorded.get("calls"), recorded.get("time_s")
    judged = judge_kernel(Work(cold.median_s, 1, moved, flops, described.get("dtype")), work.peaks)
    kernel = MeasuredKernel(
        name=recorded["name"],
        kernel_id=recorded["kernel_id"],
        file=str(file),
        category=recorded["category"],
        device=_device_name(facts["device"], work.environment),
        config=described.get("config") or find_variants(facts).now,
        cold=cold,
        warm=warm,
        method=times.get("method", ""),
        moved_bytes=moved,
        flops=flops,
        bandwidth=judged.bandwidth,
        flop_rate=judged.flop_rate,
        bound=judged.bound,
        peak_share=judged.peak_share,
        in_model_s=in_model / calls if in_model and calls else None,
        registers=described.get("registers"),
        spills=described.get("spills"),
        shared_memory_bytes=described.get("shared_memory_bytes"),
        checked=checked["passed"],
        check_message=checked["message"],
        with_zeros={state: summarize(samples) for state, samples in times.get("with_zeros", {}).items()},
    )
    return replace(kernel, advice=tuple(advise(kernel, work.environment)))


def _device_name(device: str, environment: Environment) -> str:
    return (environment.accelerator if device != "cpu" else environment.cpu) or device


def _peaks(device: str, work: Workbench) -> Peaks | None:
    """The roofs of the device, measured where they are not cached; a kernel's times do not need them."""
    work.progress.stage(f"measuring what the {device} device can do")
    found = take_survey(work.pool, (), device=device, peaks="cached", log=work.pool.folder / "survey.log")
    return found.peaks


def advise(kernel: MeasuredKernel, environment: Environment) -> Sequence[str]:
    """What is wrong with a measurement, and what to do."""
    advice = []
    if kernel.checked is False:
        advice.append(f"its outputs are not those of the reference: {kernel.check_message}")
    if "busy" in kernel.method or "no graph" in kernel.method:
        advice.append(kernel.method.split("; ")[-1])
    for state, timing in (("cold", kernel.cold), ("warm", kernel.warm)):
        drift = find_drift(timing.samples_s)
        if drift.sure:
            way = "rose" if drift.change > 0 else "sank"
            advice.append(f"the {state} time {way} by {abs(drift.change):.0%} while it was measured: measure again")
        elif timing.samples < FEWEST_SAMPLES:
            advice.append(f"only {timing.samples} {state} samples fit: give it more time")
        elif timing.high_s - timing.low_s > SPREAD * timing.median_s:
            wide = (timing.high_s - timing.low_s) / timing.median_s
            advice.append(
                f"the {CONFIDENCE:.0%} interval of the {state} time is {wide:.0%} wide: something else runs here"
            )
    return advice


def _tune(file: Path, kernel: MeasuredKernel, work: Workbench) -> MeasuredKernel:
    facts = work.ask(LOAD_S, do="load", number=0, file=str(file.resolve()))
    variants = find_variants(facts)
    method = work.options.autotune or METHODS[0]
    if not variants.axes:
        raise InductorBenchError(variants.why_none, "")
    work.close()  # its threads would get in the way
    tuner = Tuner(
        file=str(file.resolve()),
        variants=variants,
        start=work.start,
        builders=max(1, min(os.cpu_count() or 1, 8)),
        progress=work.progress,
        state=work.options.state,
        budget_s=work.options.budget_s,
    )
    return replace(kernel, tuning=tuner.tune(method))


def _save(file: Path, kernel: MeasuredKernel, place: Path, work: Workbench) -> list[Path]:
    """Writes the winner as a standalone file; nothing where the default won."""
    tuning = kernel.tuning
    if tuning is None or tuning.verdict != "faster":
        return []
    facts = work.ask(LOAD_S, do="load", number=0, file=str(file.resolve()))
    change = find_variants(facts).change(tuning.best_config)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_text(place, edit_standalone(file.read_text(encoding="utf-8"), change))
    return [place]
