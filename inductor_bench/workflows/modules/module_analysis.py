"""Makes the record's row of a profiled module: reads its trace, and attributes and aggregates its activities."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import fmean, median

from ... import units
from ...analysis.kernel_aggregation import Evidence, aggregate_kernels, find_parts, steady_iterations, total_categories
from ...analysis.residence import DEVICE_CACHE, HOST_CACHE, EagerBytes, StepCall, dram_shares, step_traffic
from ...analysis.roofline import TimedWork, judge_groups
from ...analysis.traffic import EagerOperators, eager_bytes, fit_uses, least_bytes, touched_bytes
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...records.category import Category
from ...records.code import KernelDefinition, Launch, ModuleBuffers, ModuleSource
from ...records.evidence import ObservedSteps, ObservedTouches
from ...records.kernel import Kernel, LeastWork
from ...records.module import IdleTime, Loads, Method, ModuleRecord, ModuleTimes, Outputs, ProfiledIterations
from ...records.run import AcceleratorFacts, Environment, Peaks, Run
from ...records.traced import Activity, DeviceEvent, Gaps, Iteration, OperatorCall, OperatorCost, Trace
from ...source.identity import operator_id
from ...source.module_reader import read_module
from ...source.static_buffers import read_buffers
from ...store.folder import RunFolder
from ...store.run_files import save_details
from ...trace.attribution import attribute_activities
from ...trace.iterations import split_iterations
from ...trace.program_trace import busy_time, gaps, gaps_between, union_length
from ...trace.rows import read_trace
from .module_profiling import ProfiledModule
from .program_run import CapturedProgram

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


# Adds measured peaks to a run, with the rates, shares of peak and gain limits that follow from them.
#
# A kernel that the program's step runs is judged by the time of its calls there, as its bytes of DRAM are those of the
# step; else by their time in the module's own run.


UNJUDGED = frozenset({Category.COLLECTIVE, Category.MEMSET})
"""Links have roofs of their own, which are not measured; what a memset writes need not reach the memory at all."""

TRANSFER = "Memcpy"
"""What the profiler calls copies that no kernel does; their engines have roofs of their own, too."""


def with_roofs(run: Run, peaks: Peaks | None) -> Run:
    """The run judged against ``peaks``; without peaks only its rates are set."""
    return replace(run, peaks=peaks, modules=tuple(_judge_module(module, peaks) for module in run.modules))


def _judge_module(module: ModuleRecord, peaks: Peaks | None) -> ModuleRecord:
    fits = peaks is not None and (peaks.launch_floor_s is not None) == device_of(module.device).has_launch_floor
    in_tf32 = _categories_in_tf32(module)
    kernels = tuple(_judge_kernel(kernel, peaks if fits else None, in_tf32) for kernel in module.kernels)
    return replace(module, kernels=kernels)


def _categories_in_tf32(module: ModuleRecord) -> frozenset[Category]:
    """The categories whose float32 products may use TF32, by torch's switches or by a kernel that did."""
    proven = (kernel.category for kernel in module.kernels if kernel.work.dtype == "tf32")
    return frozenset(Category if module.tf32 and device_of(module.device).has_tf32 else proven)


def _judge_kernel(kernel: Kernel, peaks: Peaks | None, in_tf32: frozenset[Category]) -> Kernel:
    if kernel.work.flops and kernel.work.dtype == "float32" and kernel.category in in_tf32:
        kernel = replace(kernel, work=replace(kernel.work, dtype="tf32"))
    unjudged = kernel.category in UNJUDGED or kernel.name.startswith(TRANSFER) or kernel.unjudged
    return replace(kernel, roof=judge_groups(_works(kernel), None if unjudged else peaks))


def _works(kernel: Kernel) -> Sequence[TimedWork]:
    slowdown = kernel.step_slowdown or 1.0
    if not kernel.shapes:
        return [_timed(kernel.time_s * slowdown, kernel.calls, kernel.work, kernel.dram_bytes)]
    # A kernel is judged as its part of an operator call; kernels of one part share its bytes and FLOPs.
    dtype = kernel.work.dtype
    return [
        _timed(
            group.time_s * slowdown,
            group.operator_calls,
            LeastWork(group.moved_bytes, group.flops, dtype),
            group.dram_bytes,
        )
        for group in kernel.shapes
    ]


def _timed(time_s: float, calls: float, work: LeastWork, dram_bytes: float | None) -> TimedWork:
    known = work.moved_bytes is not None and dram_bytes is not None
    cached = max(0.0, (work.moved_bytes or 0.0) - (dram_bytes or 0.0)) if known else None
    return TimedWork(time_s, calls, work, dram_bytes=dram_bytes, cache_bytes=cached)


# Predicts for the modules of a program which of their bytes come from DRAM, from the calls of one observed step.


def describe_buffers(text: str, source: ModuleSource) -> ModuleBuffers:
    """The buffers of a module's calls. A generated kernel touches of a large buffer what Inductor counts.

    Raises:
        InductorBenchError: the text is not a compiled module.
    """
    counts = {kernel.name: kernel.moved_bytes for kernel in source.kernels}
    found = read_buffers(text, source)
    calls = zip(source.calls, found.calls, strict=True)
    fitted = (fit_uses(uses, counts.get(call.kernel or "")) if uses is not None else None for call, uses in calls)
    return replace(found, calls=tuple(fitted))


def lay_out_step(
    paths: Sequence[str],
    touches: ObservedTouches,
    modules: Mapping[str, ModuleBuffers],
    eager: Mapping[int, int] | None = None,
) -> tuple[StepCall | EagerBytes, ...]:
    """The step of a program, in its order.

    Args:
        paths: the real path of the module of each graph.
        touches: the graph calls of the step.
        modules: the buffers of each module, by its real path. The arguments and results of other graphs are bytes that
            nothing else touches.
        eager: the bytes of the eager operators before the graph call of a number; those after the last call have
            the next number.
    """
    step: list[StepCall | EagerBytes] = []
    eager = eager or {}
    for number, call in enumerate(touches.calls):
        step += [EagerBytes(size) for size in [eager.get(number, 0)] if size]
        path = paths[call.graph] if call.graph < len(paths) else ""
        if path in modules:
            inputs, outputs = (tuple(address for address, _ in places) for places in (call.inputs, call.outputs))
            step.append(StepCall(path, modules[path], inputs, outputs))
        else:
            step.append(EagerBytes(sum(size for _, size in (*call.inputs, *call.outputs))))
    step += [EagerBytes(size) for size in [eager.get(len(touches.calls), 0)] if size]
    return tuple(step)


def bytes_between(touches: ObservedTouches, eager: EagerOperators | None, peaks: Peaks) -> dict[int, int]:
    """The bytes of eager operators for :func:`lay_out_step`.

    Args:
        touches: the graph calls of one step.
        eager: the eager operators of another step; they count only where it called the same graphs in the same order.
        peaks: the peaks of the device.
    """
    if eager is None or eager.graphs != tuple(call.graph for call in touches.calls):
        return {}
    known = [place for call in touches.calls for place in (*call.inputs, *call.outputs)]
    return eager_bytes(eager, known, max(peaks.memory_bandwidth, peaks.cache_bandwidth or 0.0))


def predict_dram_shares(
    steps: ObservedSteps,
    touches: ObservedTouches,
    modules: Mapping[str, ModuleBuffers],
    cache_bytes: int,
    eager: Mapping[int, int],
) -> dict[Hashable, dict[int, float]]:
    """DRAM's bytes per byte that a call site touches, by the real path of its module and its index.

    Args:
        steps: the observed steps of a process.
        touches: the graph calls of one of these steps.
        modules: the buffers of each module, by its real path.
        cache_bytes: the size of the device's cache.
        eager: the bytes of eager operators; see :func:`lay_out_step`.
    """
    paths = [os.path.realpath(graph.path) if graph.path else "" for graph in steps.graphs]
    step = lay_out_step(paths, touches, modules, eager)
    rules = HOST_CACHE if device_of(steps.device or "cuda").runs_on_host else DEVICE_CACHE
    return dram_shares(step, step_traffic(step, cache_bytes, rules))


def with_dram_shares(
    attributed: Sequence[AttributedModule],
    captured: CapturedProgram,
    peaks: Peaks | None,
    folder: RunFolder,
    eager: Mapping[int, EagerOperators],
) -> list[AttributedModule]:
    """The modules with the shares of the program's step in their details, which are stored again.

    They stay as they are where no step was observed, or the size of the cache is unknown. ``eager`` holds the eager
    operators of a step by the id of its process.
    """
    seen = [(steps, captured.touches[steps.pid]) for steps in captured.steps if steps.pid in captured.touches]
    if not seen or peaks is None or peaks.cache_bytes is None:
        return list(attributed)
    known = {module.profiled.module.path: module.profiled.source for module in attributed}
    buffers: dict[str, ModuleBuffers] = {}
    for module in captured.modules:
        with suppress(InductorBenchError):  # its bytes count, but not where they come from
            found = describe_buffers(module.text, known.get(module.path) or read_module(module.text))
            buffers |= dict.fromkeys(module.real_paths, found)
    steps, touches = seen[0]
    between = bytes_between(touches, eager.get(steps.pid), peaks)
    shares = predict_dram_shares(steps, touches, buffers, peaks.cache_bytes, between)
    by_module = [[shares[path] for path in one.profiled.module.real_paths if path in shares] for one in attributed]
    return [_with_shares(one, next(iter(found), {}), folder) for one, found in zip(attributed, by_module, strict=True)]


def _with_shares(module: AttributedModule, shares: Mapping[int, float], folder: RunFolder) -> AttributedModule:
    profiled = module.profiled
    details = replace(profiled.details, dram_shares={str(site): share for site, share in shares.items()})
    save_details(folder, profiled.label.slug, details)
    return replace(module, profiled=replace(profiled, details=details))
