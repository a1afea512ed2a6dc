"""Profiles a compiled module in a fresh process or in the live program, and lists the launches of its kernels."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ...errors import InductorBenchError
from ...messages.job_requests import ListLaunches, ProfileModule, RecordValues, WantedValues
from ...records.code import Details, Launch, Reference
from ...source.generated_text import has_profile_mark
from ...source.harness import common as harness
from ...source.harness.common import fingerprint
from ...store import codec
from ..device.machine import load_since, read_counters
from ..device.nvidia_runtime import leaves_memory
from ..device.runtime import DeviceRuntime, letting_others_use_device, load_in_turn
from ..device.runtimes import find_runtime
from ..fast_start import Phases
from ..upstream import inductor, pinning
from .module_run import ModuleRun, record_values, run_of_harness
from .recorder import remove_nans, watch_launches

# Makes the C++ kernels of a module visible to the profiler.
#
# Modules need this when they were compiled without ``TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE``.


def needs_marks(module: ModuleType) -> bool:
    """Whether a module has C++ kernels that are invisible to the profiler."""
    if not inductor.list_cpp_kernel_names(vars(module)):
        return False
    text = Path(str(module.__file__)).read_text(encoding="utf-8", errors="replace")
    return not has_profile_mark(text)


def _wrap_in_profiler_range(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the kernel with a profiler range around each call. The range takes about 1 µs."""

    def call(*arguments: Any) -> Any:
        with inductor.open_profiler_range(name):
            return kernel(*arguments)

    return call


# Measures repeated runs of one compiled module: wall time, memory, and the profile.
#
# The run may come from the harness of the module's file or from a live program.


Run = Callable[[], Any]

WARM_UP_RUNS = 3
WARM_UP_S = 0.3
WALL_BUDGET_S, SHORT_WALL_BUDGET_S = 2.0, 0.5
"""Seconds for the timed runs of a module. The short time is for a program that waits, and for an accelerator, where
runs differ less and other modules wait for the end."""

WALL_RUNS = (10, 200)
PROFILE_BUDGET_S = 10.0
PROFILE_RUNS_LEAST = 3
GRAPH_REPLAYS = 20


def measure_run(
    run: ModuleRun,
    *,
    label: str,
    device: str,
    repeat: int,
    trace: Path,
    text: Path | None,
    module: ModuleType | None = None,
) -> Details:
    """Measures a closure that runs a compiled module once.

    Args:
        run: one call of the module; launches may be asynchronous. Its inputs are restored before each call.
        label: the heading of the profile.
        device: the type of the module's device.
        repeat: the wanted number of profiled iterations; slow modules get fewer.
        trace: the file for the Chrome trace.
        text: the file for the text that the module's harness prints with ``-p``; ``None`` in a program that waits,
            because the tables of that text take longer than everything else.
        module: the module, whose C++ kernels are marked for the profiler if they need it.

    Returns:
        The details, without those of :func:`add_details`.
    """
    runtime = find_runtime(device)
    budget_s = WALL_BUDGET_S if text and runtime.device.runs_on_host else SHORT_WALL_BUDGET_S
    _warm_up(run, runtime.synchronize)
    runtime.reset_peak_memory()
    before = read_counters()
    samples = _sample_wall_times(run, runtime.synchronize, budget_s)
    iterations = max(PROFILE_RUNS_LEAST, min(repeat, int(PROFILE_BUDGET_S / max(samples))))
    found = Details(
        wall_samples_s=tuple(samples),
        wall_load=load_since(before, len(samples)),
        peak_memory_bytes=_own_peak(run, runtime),
        iterations=iterations,
        marked=module is not None and needs_marks(module),
    )
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.ExitStack() as until_written:
            if module is not None and found.marked:
                until_written.enter_context(inductor.replaced_cpp_kernels(module, _wrap_in_profiler_range))
            run.rotate((inductor.PROFILE_PASSES if text else 1) * iterations)
            before, loads = read_counters(), []

            def has_run() -> None:
                runtime.synchronize()
                loads.append(load_since(before, iterations))
                run.free_inputs_made_ahead()
                until_written.enter_context(letting_others_use_device(leaves_memory))

            profile = partial(inductor.print_profile, label) if text else inductor.record_profile
            profile(run, iterations, trace, has_run)
        return replace(found, profile_load=loads[-1])
    finally:
        run.stop_rotating()
        if text:
            text.write_text(printed.getvalue(), encoding="utf-8")


def _own_peak(run: ModuleRun, runtime: DeviceRuntime) -> int | None:
    """Returns the device's peak memory without the copies that restore inputs; on a CPU the peak of the process."""
    peak = runtime.peak_memory_bytes()
    return peak if peak is None or runtime.device.runs_on_host else peak - run.kept_bytes


def measure_graph_replay(run: ModuleRun, runtime: DeviceRuntime, found: Details) -> Details:
    """Times the module as one CUDA graph: its time if the host does not launch each kernel.

    Returns:
        ``found`` with the times of synchronised replays in seconds, or with the reason why the capture failed.
    """
    try:
        run.restore()
        replay = runtime.capture_graph(run)
        samples = _time_runs(replay, runtime.synchronize, GRAPH_REPLAYS, run.restore)
        return replace(found, graph_samples_s=tuple(samples))
    except (RuntimeError, AssertionError) as error:
        return replace(found, graph_error=(str(error).strip().splitlines() or [type(error).__name__])[0])


def _warm_up(run: ModuleRun, synchronize: Callable[[], None]) -> None:
    # The first calls load and autotune kernels and start thread pools, and the clocks rise.
    begin = time.perf_counter()
    runs = 0
    while runs < WARM_UP_RUNS or (time.perf_counter() - begin < WARM_UP_S and runs < WALL_RUNS[1]):
        run.restore()
        run()
        synchronize()
        runs += 1


def _sample_wall_times(run: ModuleRun, synchronize: Callable[[], None], budget_s: float) -> list[float]:
    once = _time_runs(run, synchronize, 1, run.restore)[0]
    least, most = WALL_RUNS if once < WALL_BUDGET_S / 2 else (3, 3)
    return _time_runs(run, synchronize, min(most, max(least, int(budget_s / once))), run.restore)


def _time_runs(run: Run, synchronize: Callable[[], None], count: int, restore: Callable[[], None]) -> list[float]:
    samples = []
    for _ in range(count):
        restore()
        synchronize()
        begin = time.perf_counter()
        result = run()
        synchronize()
        samples.append(time.perf_counter() - begin)
        del result  # freed outside of the timed window, as in the harness of a compiled module
    return samples


# Reads and sets torch's process-wide switches that select library kernels.
#
# They are read in the user's program, and set in the workers that profile its modules.


def read_precision_switches() -> dict[str, bool]:
    """The switches of this process, by name.

    ``fp32_precision`` is read because ``allow_tf32`` raises an error in a program that has set ``fp32_precision``.
    (torch 2.11, 2.13)
    """
    return {
        "matmul_tf32": torch.backends.cuda.matmul.fp32_precision == "tf32",
        "cudnn_tf32": torch.backends.cudnn.conv.fp32_precision == "tf32",  # type: ignore[attr-defined]
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "mkldnn_bf16": torch.backends.mkldnn.matmul.fp32_precision == "bf16",  # type: ignore[attr-defined]
    }


def set_switches(switches: Mapping[str, bool]) -> None:
    """Sets the switches that another process read by :func:`read_precision_switches`.

    Older records lack the last switch.
    """
    torch.backends.cuda.matmul.allow_tf32 = switches["matmul_tf32"]
    torch.backends.cudnn.allow_tf32 = switches["cudnn_tf32"]
    torch.backends.cudnn.benchmark = switches["cudnn_benchmark"]
    torch.backends.cudnn.deterministic = switches["cudnn_deterministic"]
    in_bfloat16 = switches.get("mkldnn_bf16", False)
    torch.backends.mkldnn.matmul.fp32_precision = "bf16" if in_bfloat16 else "none"  # type: ignore[attr-defined]


# Makes the references of standalone files: fingerprints of the outputs of a module's kernels.
#
# The kernels are called with the arguments that their standalone files make, so that a file can check its outputs on
# any machine later. It takes longer than most measurements, and is done for files that are extracted from a module.


def add_references(found: Details, module: ModuleType, device: str, values_folder: str = ".") -> Details:
    """Makes each launch once, and takes the fingerprint of its outputs.

    An illegal access on a GPU ends the whole process, so the caller saves its results before this call.

    Args:
        found: the module's launches, and those with recorded values.
        module: the compiled module.
        device: the type of their device.
        values_folder: the folder of the files of recorded values.
    """
    call = partial(_call_once, module, runtime=find_runtime(device), values_folder=values_folder)
    return replace(
        found,
        references=tuple(map(call, found.launches)),
        recorded_references=tuple(map(call, found.recorded or ())),
    )


@lru_cache(maxsize=48)
def _draw_normal_cached(count: int, seed: int) -> torch.Tensor:
    """The numbers of ``harness.common.draw_normal``, up to 8 MB, which the launches of a module share."""
    return harness.draw_normal(count, seed)


def _call_once(module: ModuleType, launch: Launch, runtime: DeviceRuntime, values_folder: str) -> Reference:
    import torch

    encoded = codec.encode(launch)
    try:
        made = harness.build_arguments(encoded, runtime.device.type, folder=values_folder, draw=_draw_normal_cached)
        with torch.no_grad():
            result = _call(module, launch, made)
            runtime.synchronize()
            return Reference(fingerprint(harness.written_tensors(encoded, made, result)))
    except (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return Reference(error=first[:200])


def _call(module: ModuleType, launch: Launch, made: harness.Arguments) -> Any:
    if launch.operator:
        return inductor.find_operator_overload(launch.operator)(*made.args, **made.keywords)
    kernel = getattr(module, launch.kernel)
    if hasattr(kernel, "run"):
        return kernel.run(*made.args, stream=inductor.find_raw_stream(), **made.keywords)
    return kernel(*made.args)


# Profiles a compiled module from its file in a fresh process, as ``python MODULE -p`` does, and lists its launches.


Save = Callable[[Details], None]


def profile_module(job: ProfileModule, save: Save) -> Details:
    """Profiles one compiled module with its own harness, and records its launches.

    Args:
        job: the module, and what to record.
        save: saves the details that are known so far, before each step that may crash the process.
    """
    phases = Phases()
    module, run = _load(job, phases)
    found = measure_run(
        run,
        label=job.label,
        device=job.device,
        repeat=job.repeat,
        trace=Path(job.trace),
        text=Path(job.text),
        module=module,
    )
    save(found)
    phases.end("timing and profiling")
    found = add_details(found, module, run, are_inputs_random=True)
    save(found)
    phases.end("listing its launches")
    runtime = find_runtime(job.device)
    if runtime.captures_graphs:
        found = measure_graph_replay(run, runtime, found)
        save(found)
        phases.end("replaying it as a CUDA graph")
    if job.values:
        del run  # this frees the inputs, which kernels have overwritten
        found = _add_values(found, module, job.values)
        phases.end("recording values")
    return replace(found, phases_s=phases.times_s)


def list_launches(job: ListLaunches, save: Save) -> Details:
    """Lists the launches of one compiled module with its own inputs, without measuring it.

    Args:
        job: the module.
        save: saves the launches before their references are made, which may crash the process.
    """
    module, run = _load(job)  # its first call autotunes, which launches each kernel many times
    found = add_details(Details(), module, run, are_inputs_random=True)
    save(found)
    return add_references(found, module, job.device)


def record_module_values(job: RecordValues, save: Save) -> Details:
    """Runs one compiled module with its own inputs, and records the values that some of its launches read.

    Args:
        job: the module, and the wanted launches.
        save: saves the launches before their references are made, which may crash the process.
    """
    module, _ = _load(job)
    found = _add_values(Details(), module, job.values, job.launches)
    save(found)
    return add_references(found, module, job.device, job.values.folder)


def _add_values(
    found: Details, module: ModuleType, values: WantedValues, wanted: Sequence[Launch] | None = None
) -> Details:
    run = ModuleRun(module.call, inductor.make_harness_inputs(module))
    recorded, error = record_values(module, run, Path(values.folder), values.limit_bytes, wanted)
    if recorded is not None:
        recorded = remove_nans(recorded, module, with_recorded=False)
    return replace(found, recorded=recorded, values_error=error)


def _load(
    job: ProfileModule | ListLaunches | RecordValues, phases: Phases | None = None
) -> tuple[ModuleType, ModuleRun]:
    """Returns the module, and its run with the inputs of its harness. One run has been made."""
    phases = phases or Phases()
    import torch

    find_runtime(job.device)  # this refuses an unsupported device before the module is loaded
    if job.threads:
        torch.set_num_threads(job.threads)
    if isinstance(job, ProfileModule) and job.switches:
        set_switches(job.switches)
    _check_vector_lanes(job.vector_lanes)
    if isinstance(job, ProfileModule) and job.compiled:
        inductor.start_no_compilers()
    module = load_in_turn(Path(job.module), lambda: phases.end("loading"))
    phases.end("waiting for the device")
    if isinstance(job, ProfileModule):
        pinning.use_configs(vars(module), job.configs)
    with torch.no_grad():
        run = run_of_harness(module.call, inductor.make_harness_inputs(module))
    phases.end("its first runs")
    return module, run


def _check_vector_lanes(wanted: int | None) -> None:
    """Refuses a module for another vector width: its kernels would compute wrong outputs here without an error."""
    if wanted is None or wanted == (here := inductor.count_vector_lanes()):
        return
    raise InductorBenchError(
        f"the module was compiled for vectors of {wanted} floats, and here they hold {here or 1}",
        "capture the program on this machine, with ATEN_CPU_CAPABILITY as it was",
    )


def add_details(found: Details, module: ModuleType, run: ModuleRun, *, are_inputs_random: bool) -> Details:
    """Adds the facts that only the process of a module knows: configurations of its kernels, launches, threads.

    Args:
        found: what is known.
        module: the compiled module.
        run: its run.
        are_inputs_random: whether the module's own harness made the inputs, and no program.
    """
    import torch

    run.restore()
    return replace(
        found,
        threads=torch.get_num_threads(),
        compiled=inductor.list_compiled_kernels(vars(module)),
        launches=remove_nans(watch_launches(module, run), module, with_recorded=are_inputs_random),
    )
