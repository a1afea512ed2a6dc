"""Makes the record of a run from its evidence: the rows of its modules and the step of its program."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean, median

from .. import units
from ..devices.protocol import Device
from ..devices.table import find_device
from ..errors import InductorBenchError
from ..records.base import Failure
from ..records.code import Details, KernelDefinition, Launch, ModuleSource, SourceLine
from ..records.evidence import CountedCall, Evidence, ModuleEvidence
from ..records.module import (
    IdleTime,
    InputShape,
    Kernel,
    LeastWork,
    Loads,
    Method,
    ModuleRecord,
    ModuleTimes,
    ProfiledIterations,
)
from ..records.run import AcceleratorFacts, Environment, Part, Peaks, Program, Run
from ..records.traced import DeviceEvent, Gaps, Iteration, OperatorCall, Trace
from ..store.run_files import validate_module
from ..trace.program_trace import compute_busy_time, compute_union_length, find_gaps_between, gaps
from ..version import __version__
from .call_work import HELPER_KERNELS, count_least_bytes, count_touched_bytes
from .evidence_files import AttributedModule, EvidenceFiles
from .kernel_aggregation import KernelFacts, KernelIdentity, OwnTime, StepUse, aggregate_kernels, total_categories
from .layer_times import KernelWork
from .ledger import find_uses, make_kernel_key, read_own_time
from .program_step import DescribedProgram, add_notes, add_work_by_layer, describe_program
from .residence import compute_shares_in_step, read_buffers_of
from .roofline import find_refuted_roofs, leave_out_bounds, list_rates
from .simulation.fitting import FittedQueue
from .simulation.predictions import add_predictions
from .step_costs import is_shared

DISTURBED = 1.1
UNSEEN_S = 1e-3
"""A run that took :data:`DISTURBED` times as long without the profiler, which slows a run, was disturbed, unless the
difference is at most these seconds: work before and after the operations in the trace."""


@dataclass(frozen=True)
class ModuleInStep:
    """What a step of the program says of one module."""

    slug: str
    time_s: float  # of the step
    parts: tuple[Part, ...] = ()  # the ledger of the step; empty without a profile
    uses: Mapping[tuple[str, KernelIdentity], StepUse] = field(default_factory=dict)  # of kernels, by module
    dram_shares: Mapping[int, float] = field(default_factory=dict)  # see KernelFacts
    called_at: tuple[SourceLine, ...] = ()  # the lines of the program that call the module
    call_times: Mapping[OperatorCall, float] = field(default_factory=dict)  # seconds of its library calls
    # The uses that an earlier analysis found, if the profiles that show them were not kept.
    known: Mapping[KernelIdentity, StepUse] | None = None

    @property
    def has_uses(self) -> bool:
        """Whether it is known which kernels the step runs."""
        return self.known is not None or bool(self.parts)

    def list_uses(self, rows: Sequence[OwnTime], *, on_host: bool) -> Sequence[StepUse | None]:
        """The use of each of the module's kernels."""
        if self.known is not None:
            return [self.known.get(row.key) for row in rows]
        return find_uses(self.slug, rows, self.parts, self.uses, estimate=on_host)


@dataclass(frozen=True)
class ModuleFacts:
    """Facts about a module that its own run does not show."""

    costs: tuple[CountedCall, ...] = ()  # of library calls
    peaks: Peaks | None = None
    kernel_files: Mapping[str, str] = field(default_factory=dict)  # see KernelFacts
    step: ModuleInStep | None = None


def describe_module(attributed: AttributedModule, facts: ModuleFacts) -> ModuleRecord:
    """Makes the row of a profiled module."""
    module, source, details = attributed.module, attributed.source, attributed.details
    device = find_device(source.device)
    samples = details.wall_samples_s
    wall = median(samples) if samples else None
    busy = fmean(_compute_busy_time(attributed, index) for index in attributed.steady)
    # Profiled kernels can take longer than the whole unprofiled run, and a share above 1 would be meaningless.
    whole = max(wall, busy) if wall is not None else None
    kernels = aggregate_kernels(
        attributed.activities,
        len(attributed.iterations),
        attributed.steady,
        read_kernel_facts(attributed, facts, whole),
    )
    graph = details.graph_samples_s
    return ModuleRecord(
        label=module.label,
        slug=module.slug,
        role=source.role,
        file=f"modules/{module.slug}.py",
        device=source.device,
        measurement=module.measurement or Method(""),
        dynamic=source.dynamic,
        source_path=module.source_path,
        program_calls=module.calls,
        times=ModuleTimes(
            wall_time_s=wall,
            wall_samples_s=samples,
            profiled_time_s=_compute_profiled_time(attributed),
            graph_time_s=median(graph) if graph else None,
            busy_time_s=busy,
            busy_share=min(1.0, busy / wall) if wall else None,
            idle=_describe_idle_time(attributed, wall, busy),
        ),
        launches=sum(kernel.calls for kernel in kernels),
        peak_memory_bytes=details.peak_memory_bytes,
        profiled=ProfiledIterations(len(attributed.iterations), attributed.steady),
        threads=details.threads if device.runs_on_host else None,
        tf32=module.tf32 and device.has_tf32,
        bf16=_multiplies_in_bfloat16(module, device, facts.peaks),
        cuda_graphs=module.cuda_graphs and not device.runs_on_host,
        max_autotune=module.max_autotune,
        inputs=count_input_shapes(source),
        categories=total_categories(kernels, whole),
        kernels=kernels,
        outputs=module.outputs,
        notes=_list_notes(attributed, wall, busy),
        loads=Loads(details.wall_load, details.profile_load),
    )


def describe_unprofiled(module: ModuleEvidence, source: ModuleSource, details: Details) -> ModuleRecord | None:
    """Makes the row of a module whose profile failed: it has the wall time, if that was measured."""
    samples = details.wall_samples_s
    if not samples or module.measurement is None:
        return None
    return ModuleRecord(
        label=module.label,
        slug=module.slug,
        role=source.role,
        file=f"modules/{module.slug}.py",
        device=source.device,
        measurement=Method(module.measurement.method),
        times=ModuleTimes(wall_time_s=median(samples), wall_samples_s=samples),
        peak_memory_bytes=details.peak_memory_bytes,
        inputs=count_input_shapes(source),
        notes=("only the wall time was measured: the profile failed",),
        loads=Loads(wall_load=details.wall_load),
    )


def count_input_shapes(source: ModuleSource) -> tuple[InputShape, ...]:
    """Returns the types and shapes of a module's inputs: integer inputs first, then the inputs with most elements."""
    counts = Counter((one.dtype, one.shape) for one in source.inputs if one.kind == "tensor" and one.dtype)
    found = [InputShape(dtype or "", shape, count) for (dtype, shape), count in counts.items()]
    return tuple(sorted(found, key=lambda one: (not _is_integer(one.dtype), -math.prod(one.shape))))


def _is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint", "bool"))


def trace_environment(trace: Trace) -> Environment:
    """The environment of the machine that recorded a trace, as far as the trace holds it."""
    if not trace.devices:
        return Environment()
    device = trace.devices[0]
    return Environment(
        device=AcceleratorFacts(
            accelerator=device.name,
            accelerator_count=len(trace.devices),
            accelerator_memory_bytes=device.memory_bytes,
            compute_capability=device.compute_capability,
            multiprocessors=device.multiprocessors,
        )
    )


def read_kernel_facts(attributed: AttributedModule, facts: ModuleFacts, whole_s: float | None) -> KernelFacts:
    module, source, details = attributed.module, attributed.source, attributed.details
    device, peaks, step = find_device(source.device), facts.peaks, facts.step
    fits = peaks is not None and (peaks.launch_floor_s is not None) == device.has_launch_floor
    shares = {int(site): share for site, share in details.dram_shares.items() if site.isdecimal()}
    return KernelFacts(
        costs={(one.call.name, one.call.arguments): one.cost for one in facts.costs},
        kernel_bytes=_count_kernel_bytes(source, details.launches),
        compiled=details.compiled,
        source_lines=attributed.source_lines,
        layers=attributed.layers,
        dram_shares=step.dram_shares if step and step.dram_shares else shares,
        peaks=peaks if fits else None,
        tf32=module.tf32 and device.has_tf32,
        bf16=_multiplies_in_bfloat16(module, device, peaks),
        whole_s=whole_s,
        module_file=f"modules/{module.slug}.py",
        files=facts.kernel_files,
        called_at=step.called_at if step else (),
        use_in_step=partial(step.list_uses, on_host=device.runs_on_host) if step and step.has_uses else None,
        step_time_s=step.time_s if step else 0.0,
        call_times={(one.name, one.arguments): time_s for one, time_s in step.call_times.items()} if step else {},
    )


def _multiplies_in_bfloat16(module: ModuleEvidence, device: Device, peaks: Peaks | None) -> bool:
    """Whether the processor computes float32 matrix products in bfloat16, which needs native bfloat16 instructions."""
    return module.bf16 and device.runs_on_host and (peaks is None or "bfloat16" in peaks.matmul_flops)


def _count_kernel_bytes(source: ModuleSource, launches: Sequence[Launch]) -> dict[str, float]:
    """Returns the mean bytes per launch of each kernel whose own byte count is missing or leaves out a buffer."""
    kernels = {kernel.name: kernel for kernel in source.kernels}
    sizes: dict[str, list[tuple[int, int]]] = {}
    for launch in launches:
        kernel = kernels.get(launch.kernel)
        size = _launch_bytes(kernel, launch) if kernel else None
        if size is not None:
            sizes.setdefault(launch.kernel, []).append((size, launch.calls))
    return {
        name: sum(size * calls for size, calls in found) / sum(calls for _, calls in found)
        for name, found in sizes.items()
    }


def _launch_bytes(kernel: KernelDefinition, launch: Launch) -> int | None:
    if kernel.moved_bytes is None:
        return count_touched_bytes(kernel.language, kernel.source, launch.arguments)
    if kernel.language != "triton":
        return None
    least = count_least_bytes(kernel.source, launch.arguments)
    return max(least, kernel.moved_bytes) if least is not None else None


def _compute_busy_time(attributed: AttributedModule, index: int) -> float:
    """The busy time of one iteration in seconds, on the busiest device if a module runs on several."""
    if find_device(attributed.source.device).runs_on_host:
        return compute_union_length(_find_host_spans(attributed, attributed.iterations[index]))
    return max(compute_busy_time(_find_device_events(attributed, attributed.iterations[index])).values(), default=0.0)


def _compute_profiled_time(attributed: AttributedModule) -> float:
    steady = [attributed.iterations[index] for index in attributed.steady]
    return median(iteration.end_s - iteration.start_s for iteration in steady)


def _describe_idle_time(attributed: AttributedModule, wall: float | None, busy: float) -> IdleTime | None:
    if wall is None:
        return None
    found = [_find_gaps(attributed, attributed.iterations[index]) for index in attributed.steady]
    return IdleTime(
        time_s=max(0.0, wall - busy),
        count=fmean(one.count for one in found),
        median_s=median(one.median_s for one in found),
        longest_s=max(one.longest_s for one in found),
    )


def _find_gaps(attributed: AttributedModule, iteration: Iteration) -> Gaps:
    if find_device(attributed.source.device).runs_on_host:
        return find_gaps_between(_find_host_spans(attributed, iteration))
    return gaps(_find_device_events(attributed, iteration))


def _find_device_events(attributed: AttributedModule, iteration: Iteration) -> list[DeviceEvent]:
    return [attributed.trace.device_events[index] for index in iteration.device_events]


def _find_host_spans(attributed: AttributedModule, iteration: Iteration) -> list[tuple[float, float]]:
    ops = [attributed.trace.host_ops[index] for index in iteration.top_ops]
    return [(op.start_s, op.start_s + op.duration_s) for op in ops]


def _list_notes(attributed: AttributedModule, wall: float | None, busy: float) -> tuple[str, ...]:
    notes = []
    if wall is not None and busy > wall:
        notes.append(
            f"under the profiler the kernels took {busy / wall - 1:.1%} longer than the whole run without it; "
            "shares are of the profiled time"
        )
    profiled = _compute_profiled_time(attributed)
    if wall is not None and wall > max(DISTURBED * profiled, profiled + UNSEEN_S):
        notes.append(
            f"without the profiler a run took {wall / profiled:.1f} times as long as with it, so the machine was "
            f"slower then; {units.seconds(wall - profiled)} of the time shown as idle or host time may be neither"
        )
    if attributed.trace.truncated or attributed.details.truncated:
        notes.append("the trace is truncated; only complete events are counted")
    error = attributed.details.graph_error
    if error:
        notes.append(f"cannot be captured as one CUDA graph: {error}")
    return tuple(notes)


STAGE = "analysis"
"""The ``stage`` of a failure of the analysis itself."""

STEP_KEPT = "the figures of the step are from the first analysis, by inductor-bench {version}"
"""The note of a program that another version analyses again, although its RUN did not keep the observed steps."""


def analyse(run: Run, evidence: Evidence, files: EvidenceFiles, *, in_brief: bool = False) -> Run:
    """Makes the record of a run from its evidence: the rows of modules and kernels, and the program's step.

    If the files of a module are missing or damaged, its row from an earlier analysis stays, and a failure is added. The
    same holds for the step of a program if its observed steps were not kept.

    Args:
        run: what the record holds as it was observed, and the results of an earlier analysis, if there was one.
        evidence: what was observed besides.
        files: the files of the evidence.
        in_brief: whether only what the first screen shows is computed, and nothing of the modules, which have not run
            by themselves yet: no layers, lines and kernels of the step, and no simulation of what changes would save.
    """
    failures = [failure for failure in run.failures if failure.stage != STAGE]
    step = describe_program(evidence, files, in_brief=in_brief)
    if step is not None and _name_lost_profiles(run.program, step):
        failures.append(
            Failure(STAGE, "invalid", f"the step is kept as it was: {_name_lost_profiles(run.program, step)}")
        )
        step = None
    steps = {} if in_brief else _find_steps_of_modules(run, evidence, files, step)
    known = {module.slug: module for module in run.modules}
    rows = []
    for module in evidence.modules:
        old = known.get(module.slug)
        try:
            facts = ModuleFacts(evidence.costs, run.peaks, evidence.kernel_files, steps.get(module.slug))
            row = _describe_module_again(module, facts, files) or old
            _refuse_loss(old, row)
        except InductorBenchError as error:
            failures.append(Failure(STAGE, "invalid", error.message, error.hint, subject=module.label))
            row = old
        rows += [row] if row is not None else []
    named = {module.slug for module in evidence.modules}
    rows += [module for module in run.modules if module.slug not in named]
    rows = list(leave_out_bounds(rows, find_refuted_roofs(list_rates(rows), run.peaks)))
    program = _add_note(run) if step is None else add_notes(step.program, _count_unseen(rows, steps), evidence.eager)
    if program is not None and step is not None and any(row.kernels for row in rows):
        program = add_work_by_layer(program, step.leading, KernelWork(rows, run.peaks))
    found = replace(run, modules=tuple(rows), program=program, failures=tuple(failures))
    if program is None and (why := [one.steps.unprofiled for one in evidence.processes if one.steps.unprofiled]):
        found = replace(found, capture=replace(run.capture, no_steps=why[0]))
    if step is None:
        return replace(found, modules=tuple(_keep_old_savings(row, known.get(row.slug)) for row in rows))
    if in_brief or is_shared(found):
        return found
    return add_predictions(found, step.leading.queue, _fit_step(step, files))


def read_step_ahead(evidence: Evidence, files: EvidenceFiles) -> None:
    """Reads and computes the part of the program's step that :func:`analyse` needs and that no measured module changes.

    Does nothing for a program that replays modules as CUDA graphs, because their measurements change its step.
    """
    if any(module.cuda_graphs for module in evidence.modules):
        return
    step = describe_program(evidence, files)
    if step is None:
        return
    _fit_step(step, files)
    for module in evidence.modules if any(one.touches for one in evidence.processes) else ():
        with suppress(InductorBenchError):
            read_buffers_of(module.slug, files)


def _fit_step(step: DescribedProgram, files: EvidenceFiles) -> FittedQueue | None:
    queued = step.leading.queue
    return files.once("fitted step", queued, queued.fitted) if queued is not None else None


def _keep_old_savings(row: ModuleRecord, old: ModuleRecord | None) -> ModuleRecord:
    """Returns the row with the savings that an earlier analysis predicted, because the record keeps its step."""
    savings = {make_kernel_key(kernel): kernel.saving for kernel in old.kernels} if old is not None else {}
    kernels = (replace(kernel, saving=savings.get(make_kernel_key(kernel), kernel.saving)) for kernel in row.kernels)
    return replace(row, kernels=tuple(kernels))


def _describe_module_again(module: ModuleEvidence, facts: ModuleFacts, files: EvidenceFiles) -> ModuleRecord | None:
    def describe() -> ModuleRecord | None:
        attributed = files.attributed(module)
        if attributed is not None:
            return validate_module(describe_module(attributed, facts))
        row = describe_unprofiled(module, files.source(module.slug), files.details(module))
        return validate_module(row) if row is not None else None

    if module.measurement is None:
        return None
    return files.once(f"row of {module.slug}", (module, facts), describe)


def _find_steps_of_modules(
    run: Run, evidence: Evidence, files: EvidenceFiles, step: DescribedProgram | None
) -> Mapping[str, ModuleInStep]:
    """Returns what the step says about each module, by the module's slug."""
    if step is None:
        return _keep_recorded_steps(run)
    inputs = evidence.processes, evidence.modules, run.peaks
    shares = files.once("shares", inputs, lambda: compute_shares_in_step(evidence, files, run.peaks, step.eager))
    time_s, parts, uses = step.program.step_time_s, step.program.parts, step.leading.kernels
    divided = step.leading.divided
    lines = divided.list_call_lines() if divided is not None else {}
    calls = step.leading.call_times
    return {
        slug: ModuleInStep(slug, time_s, parts, uses, shares.get(slug, {}), lines.get(slug, ()), calls.get(slug, {}))
        for slug in (module.slug for module in evidence.modules)
    }


def _keep_recorded_steps(run: Run) -> Mapping[str, ModuleInStep]:
    """Does what :func:`_find_steps_of_modules` does from the record alone, if the observed steps were not kept."""
    if run.program is None:
        return {}
    return {
        module.slug: ModuleInStep(
            module.slug,
            run.program.step_time_s,
            called_at=next((one.origin.called_at for one in module.kernels if one.origin.called_at), ()),
            known={
                make_kernel_key(kernel): StepUse(kernel.step_calls, kernel.step_time_s)
                for kernel in module.kernels
                if kernel.step_calls is not None and kernel.step_time_s is not None
            },
        )
        for module in run.modules
    }


def _name_lost_profiles(old: Program | None, new: DescribedProgram) -> str:
    """Says why an earlier analysis knew the parts of more processes; empty if it did not know more."""
    if old is None or sum(bool(rank.parts) for rank in old.ranks) <= sum(
        bool(one.steps.parts) for one in new.processes
    ):
        return ""
    return "; ".join(note for one in new.processes if not one.steps.parts for note in one.notes) or "profiles are gone"


def _add_note(run: Run) -> Program | None:
    """Returns the earlier analysis's program, with a note if another version computed the figures of its step."""
    if run.program is None or run.tool_version == __version__:
        return run.program
    notes = dict.fromkeys([*run.program.notes, STEP_KEPT.format(version=run.tool_version)])
    return replace(run.program, notes=tuple(notes))


def _count_unseen(rows: list[ModuleRecord], steps: Mapping[str, ModuleInStep]) -> int:
    """Counts the kernels that run in the step although its trace does not show them."""
    count = 0
    for row in rows:
        if row.slug in steps and steps[row.slug].has_uses:
            own = [read_own_time(kernel) for kernel in row.kernels]
            uses = steps[row.slug].list_uses(own, on_host=find_device(row.device).runs_on_host)
            count += sum(use.estimated for use in uses if use is not None)
    return count


def _count(get: Callable[[Kernel], object]) -> Callable[[ModuleRecord], int]:
    return lambda module: sum(get(kernel) not in (None, ()) for kernel in module.kernels)


def _count_work(get: Callable[[LeastWork], object]) -> Callable[[ModuleRecord], int]:
    """Returns a count of the kernels with this figure of their work, without helper kernels.

    Earlier versions gave some helper kernels a part of the work.
    """
    return _count(lambda kernel: None if HELPER_KERNELS.search(kernel.name) else get(kernel.work))


KNOWN: Mapping[str, Callable[[ModuleRecord], int]] = {
    "wall times": lambda module: len(module.times.wall_samples_s),
    "peak memory": lambda module: module.peak_memory_bytes is not None,
    "the time as one CUDA graph": lambda module: module.times.graph_time_s is not None,
    "kernels": lambda module: len(module.kernels),
    "source lines": _count(lambda kernel: kernel.origin.source_lines),
    "layers": _count(lambda kernel: kernel.origin.layers),
    "FLOPs": _count_work(lambda work: work.flops),
    "moved bytes": _count_work(lambda work: work.moved_bytes),
    "DRAM's part of them": _count(lambda kernel: kernel.dram_bytes),
    "registers": _count(lambda kernel: kernel.compiled.registers),
    "costs in the step": _count(lambda kernel: kernel.step_time_s),
}
"""The figures without which a row is worse, each with a function that counts how often a row has it."""


def _refuse_loss(old: ModuleRecord | None, new: ModuleRecord | None) -> None:
    """Raises an error if an earlier analysis knew more, because files that it read are gone."""
    if old is None or new is None or new is old:
        return
    lost = [name for name, known in KNOWN.items() if known(new) < known(old)]
    if lost:
        raise InductorBenchError(
            f"{old.label} would lose what its record knows: {', '.join(lost)}",
            "the row is kept as it was; put back what is missing in the RUN's folders",
        )
