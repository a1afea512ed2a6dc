"""Profiles a compiled module from its file in a fresh process, as ``python MODULE -p`` does, and lists its launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.jobs import ListLaunches, ProfileModule, RecordValues, WantedValues
from inductor_bench.records.code.details import Details
from inductor_bench.records.code.launch import Launch

from ..device.runtimes import runtime_of
from ..device.sharing import load_in_turn
from ..launches.recorder import watch_launches
from ..launches.values import record_values
from ..switches import set_switches
from ..upstream import inductor, pinning
from .measurement import measure_graph_replay, measure_run
from .references import with_references

Save = Callable[[Details], None]


def profile_module(job: ProfileModule, save: Save) -> Details:
    """Profiles one compiled module with its own harness, and records its launches and references.

    Args:
        job: the module, and what to record.
        save: saves the details so far before each step that may crash the process.
    """
    module, run = _load(job)
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
    found = with_details(found, module, run)
    save(found)
    runtime = runtime_of(job.device)
    if runtime.captures_graphs:
        found = measure_graph_replay(run, runtime, found)
        save(found)
    if job.values:
        del run  # this frees the inputs, which kernels have overwritten
        found = _with_values(found, module, job.values)
        save(found)
    return with_references(found, module, job.device, job.values.folder if job.values else ".")


def list_launches(job: ListLaunches, save: Save) -> Details:
    """Lists the launches of one compiled module with its own inputs, without measuring it.

    Args:
        job: the module.
        save: saves the launches before their references are made, which may crash the process.
    """
    module, run = _load(job)
    run()  # the first call autotunes, which launches each kernel many times
    found = with_details(Details(), module, run)
    save(found)
    return with_references(found, module, job.device)


def record_module_values(job: RecordValues, save: Save) -> Details:
    """Runs one compiled module with its own inputs, and records the values that some of its launches read.

    Args:
        job: the module, and the wanted launches.
        save: saves the launches before their references are made, which may crash the process.
    """
    module, run = _load(job)
    run()
    del run
    found = _with_values(Details(), module, job.values, job.launches)
    save(found)
    return with_references(found, module, job.device, job.values.folder)


def _with_values(
    found: Details, module: ModuleType, values: WantedValues, wanted: Sequence[Launch] | None = None
) -> Details:
    run = inductor.harness_run(module)
    recorded, error = record_values(module, run, Path(values.folder), values.limit_bytes, wanted)
    return replace(found, recorded=recorded, values_error=error)


def _load(job: ProfileModule | ListLaunches | RecordValues) -> tuple[ModuleType, Callable[[], Any]]:
    import torch

    runtime_of(job.device)  # this refuses an unsupported device before the module is loaded
    if job.threads:
        torch.set_num_threads(job.threads)
    if isinstance(job, ProfileModule) and job.switches:
        set_switches(job.switches)
    _check_vector_lanes(job.vector_lanes)
    if isinstance(job, ProfileModule) and job.compiled:
        inductor.start_no_compilers()
    module = load_in_turn(Path(job.module))
    if isinstance(job, ProfileModule):
        pinning.use_configs(vars(module), job.configs)
    return module, inductor.harness_run(module)


def _check_vector_lanes(wanted: int | None) -> None:
    """Refuses a module for another vector width, whose kernels would silently compute wrong outputs here.

    Raises:
        InductorBenchError: the module was compiled for another vector width.
    """
    if wanted is None or wanted == (here := inductor.vector_lanes()):
        return
    raise InductorBenchError(
        f"the module was compiled for vectors of {wanted} floats, and here they hold {here or 1}",
        "capture the program on this machine, with ATEN_CPU_CAPABILITY as it was",
    )


def with_details(found: Details, module: ModuleType, run: Callable[[], Any]) -> Details:
    """Adds the facts that only the process of a module knows: configurations of its kernels, launches, threads."""
    import torch

    return replace(
        found,
        threads=torch.get_num_threads(),
        compiled=inductor.compiled_kernels(vars(module)),
        launches=tuple(watch_launches(module, run)),
    )
