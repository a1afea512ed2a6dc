"""Makes the record's row of a module: its times, idle time, categories and kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean, median

from .. import units
from ..devices.table import device_of
from ..records.code import Details, KernelDefinition, Launch, ModuleSource
from ..records.evidence import CountedCall, ModuleEvidence
from ..records.module import IdleTime, Loads, Method, ModuleRecord, ModuleTimes, ProfiledIterations
from ..records.program import Part
from ..records.run import AcceleratorFacts, Environment, Peaks
from ..records.traced import DeviceEvent, Gaps, Iteration, Trace
from ..trace.program_trace import busy_time, gaps, gaps_between, union_length
from .evidence_files import AttributedModule
from .kernel_aggregation import (
    KernelFacts,
    KernelIdentity,
    OwnTime,
    StepUse,
    aggregate_kernels,
    total_categories,
)
from .ledger import uses_of
from .traffic import least_bytes, touched_bytes

DISTURBED = 1.1
UNSEEN_S = 1e-3
"""A profiler slows a run down. One that took so many times as long without it was disturbed, unless the difference is
no more than what a run may do before and after the operations that a trace shows."""


@dataclass(frozen=True)
class ModuleInStep:
    """What a step of the program says of one module."""

    slug: str
    time_s: float  # of the step
    parts: tuple[Part, ...] = ()  # the ledger of the step; empty without a profile
    uses: Mapping[tuple[str, KernelIdentity], StepUse] = field(default_factory=dict)  # of kernels, by module
    dram_shares: Mapping[int, float] = field(default_factory=dict)  # see KernelFacts
    # The uses that an earlier analysis found, if what it found them in was not kept.
    known: Mapping[KernelIdentity, StepUse] | None = None

    @property
    def has_uses(self) -> bool:
        """Whether it is known which kernels the step runs."""
        return self.known is not None or bool(self.parts)

    def uses_of(self, rows: Sequence[OwnTime], *, on_host: bool) -> Sequence[StepUse | None]:
        """The use of each of the module's kernels."""
        if self.known is not None:
            return [self.known.get(row.key) for row in rows]
        return uses_of(self.slug, rows, self.parts, self.uses, estimate=on_host)


@dataclass(frozen=True)
class ModuleFacts:
    """What is known of a module beside its own run."""

    costs: tuple[CountedCall, ...] = ()  # of library calls
    peaks: Peaks | None = None
    kernel_files: Mapping[str, str] = field(default_factory=dict)  # see KernelFacts
    step: ModuleInStep | None = None


def describe_module(attributed: AttributedModule, facts: ModuleFacts) -> ModuleRecord:
    """The row of a profiled module."""
    module, source, details = attributed.module, attributed.source, attributed.details
    device = device_of(source.device)
    samples = details.wall_samples_s
    wall = median(samples) if samples else None
    busy = fmean(_busy_time(attributed, index) for index in attributed.steady)
    # Profiled kernels can take longer than the whole unprofiled run, and a share above 1 would be meaningless.
    whole = max(wall, busy) if wall is not None else None
    kernels = aggregate_kernels(
        attributed.activities, len(attributed.iterations), attributed.steady, _kernel_facts(attributed, facts, whole)
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
            profiled_time_s=_profiled_time(attributed),
            graph_time_s=median(graph) if graph else None,
            busy_time_s=busy,
            busy_share=min(1.0, busy / wall) if wall else None,
            idle=_idle_time(attributed, wall, busy),
        ),
        launches=sum(kernel.calls for kernel in kernels),
        peak_memory_bytes=details.peak_memory_bytes,
        profiled=ProfiledIterations(len(attributed.iterations), attributed.steady),
        threads=details.threads if device.runs_on_host else None,
        tf32=module.tf32 and device.has_tf32,
        cuda_graphs=module.cuda_graphs and not device.runs_on_host,
        max_autotune=module.max_autotune,
        categories=total_categories(kernels, whole),
        kernels=kernels,
        outputs=module.outputs,
        notes=_notes(attributed, wall, busy),
        loads=Loads(details.wall_load, details.profile_load),
    )


def describe_unprofiled(module: ModuleEvidence, source: ModuleSource, details: Details) -> ModuleRecord | None:
    """The row of a module whose profile failed: its wall time, if that was measured."""
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
        notes=("only the wall time was measured: the profile failed",),
        loads=Loads(wall_load=details.wall_load),
    )


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


def _kernel_facts(attributed: AttributedModule, facts: ModuleFacts, whole_s: float | None) -> KernelFacts:
    module, source, details = attributed.module, attributed.source, attributed.details
    device, peaks, step = device_of(source.device), facts.peaks, facts.step
    fits = peaks is not None and (peaks.launch_floor_s is not None) == device.has_launch_floor
    shares = {int(site): share for site, share in details.dram_shares.items() if site.isdecimal()}
    return KernelFacts(
        costs={(one.call.name, one.call.arguments): one.cost for one in facts.costs},
        kernel_bytes=_kernel_bytes(source, details.launches),
        compiled=details.compiled,
        source_lines=attributed.source_lines,
        layers=attributed.layers,
        dram_shares=step.dram_shares if step and step.dram_shares else shares,
        peaks=peaks if fits else None,
        tf32=module.tf32 and device.has_tf32,
        whole_s=whole_s,
        module_file=f"modules/{module.slug}.py",
        files=facts.kernel_files,
        use_in_step=partial(step.uses_of, on_host=device.runs_on_host) if step and step.has_uses else None,
        step_time_s=step.time_s if step else 0.0,
    )


def _kernel_bytes(source: ModuleSource, launches: Sequence[Launch]) -> dict[str, float]:
    """Mean bytes per launch of each kernel without a count of its own, or with one that leaves out a buffer."""
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
        return touched_bytes(kernel.language, kernel.source, launch.arguments)
    if kernel.language != "triton":
        return None
    least = least_bytes(kernel.source, launch.arguments)
    return max(least, kernel.moved_bytes) if least is not None else None


def _busy_time(attributed: AttributedModule, index: int) -> float:
    """The busy time of one iteration in seconds, on the busiest device if a module runs on several."""
    if device_of(attributed.source.device).runs_on_host:
        return union_length(_host_spans(attributed, attributed.iterations[index]))
    return max(busy_time(_device_events(attributed, attributed.iterations[index])).values(), default=0.0)


def _profiled_time(attributed: AttributedModule) -> float:
    steady = [attributed.iterations[index] for index in attributed.steady]
    return median(iteration.end_s - iteration.start_s for iteration in steady)


def _idle_time(attributed: AttributedModule, wall: float | None, busy: float) -> IdleTime | None:
    if wall is None:
        return None
    found = [_gaps(attributed, attributed.iterations[index]) for index in attributed.steady]
    return IdleTime(
        time_s=max(0.0, wall - busy),
        count=fmean(one.count for one in found),
        median_s=median(one.median_s for one in found),
        longest_s=max(one.longest_s for one in found),
    )


def _gaps(attributed: AttributedModule, iteration: Iteration) -> Gaps:
    if device_of(attributed.source.device).runs_on_host:
        return gaps_between(_host_spans(attributed, iteration))
    return gaps(_device_events(attributed, iteration))


def _device_events(attributed: AttributedModule, iteration: Iteration) -> list[DeviceEvent]:
    return [attributed.trace.device_events[index] for index in iteration.device_events]


def _host_spans(attributed: AttributedModule, iteration: Iteration) -> list[tuple[float, float]]:
    ops = [attributed.trace.host_ops[index] for index in iteration.top_ops]
    return [(op.start_s, op.start_s + op.duration_s) for op in ops]


def _notes(attributed: AttributedModule, wall: float | None, busy: float) -> tuple[str, ...]:
    notes = []
    if wall is not None and busy > wall:
        notes.append(
            f"under the profiler the kernels took {busy / wall - 1:.1%} longer than the whole run without it; "
            "shares are of the profiled time"
        )
    profiled = _profiled_time(attributed)
    if wall is not None and wall > max(DISTURBED * profiled, profiled + UNSEEN_S):
        notes.append(
            f"without the profiler a run took {wall / profiled:.1f} times as long as with it, so the machine was "
            f"slower then; {units.seconds(wall - profiled)} of what is shown as idle or host time need not be that"
        )
    if attributed.trace.truncated or attributed.details.truncated:
        notes.append("the trace is truncated; what was whole is counted")
    error = attributed.details.graph_error
    if error:
        notes.append(f"cannot be captured as one CUDA graph: {error}")
    return tuple(notes)
