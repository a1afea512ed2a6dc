"""Makes the record's row of a profiled module: reads its trace, and attributes and aggregates its activities."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from ... import units
from ...analysis.kernel_aggregation import Evidence, aggregate_kernels, steady_iterations, total_categories
from ...analysis.parts import find_parts
from ...analysis.traffic.kernel_bytes import least_bytes, touched_bytes
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...records.code.launch import Launch
from ...records.code.source import KernelDefinition, ModuleSource
from ...records.kernel import Kernel
from ...records.module import IdleTime, Loads, Method, ModuleRecord, ModuleTimes, Outputs, ProfiledIterations
from ...records.run import AcceleratorFacts, Environment
from ...records.traced.activity import Activity
from ...records.traced.operators import OperatorCall, OperatorCost
from ...records.traced.trace import DeviceEvent, Gaps, Iteration, Trace
from ...source.module.identity import operator_id
from ...store.folder import RunFolder
from ...trace.attribution import attribute_activities
from ...trace.intervals import busy_time, gaps, gaps_between, union_length
from ...trace.iterations import split_iterations
from ...trace.reading.reader import read_trace
from .profiling import ProfiledModule

Costs = Mapping[OperatorCall, OperatorCost]

GENERATED = re.compile(r"(graph_\d+_)?cpp_fused_|triton_(poi|red|per|tem|for|spl|unk)_")
"""Names of kernels that only Inductor generates."""

DISTURBED = 1.1
UNSEEN_S = 1e-3
"""A profiler slows a run down. One that took so many times as long without it was disturbed, unless the difference is
no more than what a run may do before and after the operations that a trace shows."""


@dataclass(frozen=True)
class AttributedModule:
    """A profiled module and the activities of its trace by iteration. The analysis uses the ``steady`` iterations."""

    profiled: ProfiledModule
    trace: Trace
    iterations: tuple[Iteration, ...]
    steady: tuple[int, ...]
    activities: tuple[Activity, ...]

    @property
    def operator_calls(self) -> tuple[OperatorCall, ...]:
        """The library calls, or parts of calls, whose costs torch should count, without duplicates."""
        device = self.profiled.source.device
        parts = dict.fromkeys(part for part in find_parts(self.activities) if part is not None)
        return tuple(dict.fromkeys(OperatorCall(part.operator, part.arguments, device) for part in parts))


def attribute_module(profiled: ProfiledModule) -> AttributedModule | None:
    """Reads the module's trace and attributes its activities; ``None`` where the profile left no trace.

    Raises:
        InductorBenchError: the trace is damaged or holds no activities.
    """
    if profiled.trace is None:
        return None
    trace = read_trace(profiled.trace)
    iterations = split_iterations(trace, expected=profiled.details.iterations)
    activities = attribute_activities(trace, iterations, profiled.source)
    if not activities:
        raise InductorBenchError(
            f"the trace holds no activity of {profiled.label.label}",
            "it may be of another program, or may have been recorded without device activities",
        )
    _check_fit(activities, profiled)
    steady = steady_iterations(activities, len(iterations))
    return AttributedModule(profiled, trace, iterations, steady, activities)


def _check_fit(activities: Sequence[Activity], profiled: ProfiledModule) -> None:
    if profiled.method != "trace":
        # Without any activity of the module, the trace holds the harness's own arithmetic only.
        if profiled.source.calls and not any(activity.call or activity.kernel for activity in activities):
            raise InductorBenchError("the profiler saw nothing of this module", "profile it in its program with --live")
        return
    own = {activity.name for activity in activities if activity.kernel is not None}
    strange = {activity.name for activity in activities if activity.kernel is None and GENERATED.match(activity.name)}
    if (profiled.source.kernels and not own) or len(strange) > len(own):
        raise InductorBenchError(
            f"the trace is not of this module: it holds {len(own)} of its {len(profiled.source.kernels)} kernels"
            + (f", and {len(strange)} of another, {min(strange)} for one" if strange else ""),
            "give the trace that this very module was recorded with",
        )


def describe_module(attributed: AttributedModule, folder: RunFolder, costs: Costs) -> ModuleRecord:
    """The module's row: times, idle time, categories and kernels. Shares of peak are added when the peaks are known."""
    profiled, source = attributed.profiled, attributed.profiled.source
    details = profiled.details
    samples = details.wall_samples_s
    wall = median(samples) if samples else None
    busy = fmean(_busy_time(attributed, index) for index in attributed.steady)
    kernels = aggregate_kernels(
        attributed.activities, len(attributed.iterations), attributed.steady, _evidence(attributed, costs)
    )
    # Profiled kernels can take longer than the whole unprofiled run, and a share above 1 would be meaningless.
    whole = max(wall, busy) if wall is not None else None
    kernels = tuple(_finish(kernel, profiled, whole) for kernel in kernels)
    graph = details.graph_samples_s
    return ModuleRecord(
        label=profiled.label.label,
        slug=profiled.label.slug,
        role=source.role,
        file=f"modules/{profiled.label.slug}.py",
        device=source.device,
        measurement=Method(profiled.method, profiled.reason),
        dynamic=source.dynamic,
        source_path=str(profiled.module.path),
        program_calls=profiled.module.calls,
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
        threads=details.threads if device_of(source.device).runs_on_host else None,
        tf32=profiled.module.tf32 and device_of(source.device).has_tf32,
        cuda_graphs=profiled.module.cuda_graphs and not device_of(source.device).runs_on_host,
        max_autotune=profiled.module.max_autotune,
        categories=total_categories(kernels, whole),
        kernels=kernels,
        outputs=Outputs(
            trace=folder.relative(profiled.trace) if profiled.trace else None,
            log=folder.relative(profiled.log) if profiled.log else None,
        ),
        notes=_notes(attributed, wall, busy),
        loads=Loads(details.wall_load, details.profile_load),
    )


def describe_unprofiled(profiled: ProfiledModule) -> ModuleRecord | None:
    """The row of a module whose profile failed: its wall time, where that was measured."""
    samples = profiled.details.wall_samples_s
    if not samples:
        return None
    return ModuleRecord(
        label=profiled.label.label,
        slug=profiled.label.slug,
        role=profiled.source.role,
        file=f"modules/{profiled.label.slug}.py",
        device=profiled.source.device,
        measurement=Method(profiled.method),
        times=ModuleTimes(wall_time_s=median(samples), wall_samples_s=samples),
        peak_memory_bytes=profiled.details.peak_memory_bytes,
        notes=("only the wall time was measured: the profile failed",),
        loads=Loads(wall_load=profiled.details.wall_load),
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


def _evidence(attributed: AttributedModule, costs: Costs) -> Evidence:
    profiled = attributed.profiled
    code = profiled.module.code
    return Evidence(
        costs={(call.name, call.arguments): cost for call, cost in costs.items()},
        kernel_bytes=_kernel_bytes(profiled.source, profiled.details.launches),
        compiled=profiled.details.compiled,
        source_lines=code.stack_traces if code else {},
        dram_shares={int(site): share for site, share in profiled.details.dram_shares.items() if site.isdecimal()},
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


def _finish(kernel: Kernel, profiled: ProfiledModule, whole: float | None) -> Kernel:
    shapes = "; ".join(sorted(group.shapes for group in kernel.shapes))
    alike = "; ".join(sorted({re.sub(r"\b\d+\b", "N", group.shapes) for group in kernel.shapes}))
    return replace(
        kernel,
        kernel_id=kernel.kernel_id or operator_id(f"{kernel.operator or ''} {kernel.name}", shapes),
        family_id=kernel.family_id or operator_id(f"{kernel.operator or kernel.name} family", alike),
        wall_share=kernel.time_s / whole if whole else None,
        file=f"modules/{profiled.label.slug}.py" if kernel.line is not None else None,
    )


def _busy_time(attributed: AttributedModule, index: int) -> float:
    """The busy time of one iteration in seconds, on the busiest device where a module runs on several."""
    if device_of(attributed.profiled.source.device).runs_on_host:
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
    if device_of(attributed.profiled.source.device).runs_on_host:
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
    if attributed.trace.truncated or attributed.profiled.details.truncated:
        notes.append("the trace is truncated; what was whole is counted")
    error = attributed.profiled.details.graph_error
    if error:
        notes.append(f"cannot be captured as one CUDA graph: {error}")
    return tuple(notes)
