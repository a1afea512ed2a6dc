"""Profiling a compiled module from its file, in a fresh process: what ``python MODULE -p`` does, and more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from inductor_bench.errors import InductorBenchError
from inductor_bench.records.code.launch import Launch

from ..device.runtimes import runtime_of
from ..device.sharing import load_in_turn
from ..launches.recorder import encode_launches, watch_launches
from ..launches.values import record_values
from ..switches import set_switches
from ..upstream import inductor as upstream
from .measurement import measure_graph_replay, measure_run
from .references import decode_launches, fingerprint_launches

Save = Callable[[dict[str, Any]], None]


def profile_module(job: dict[str, Any], save: Save) -> dict[str, Any]:
    """Runs one compiled module with its own harness.

    Args:
        job: ``module`` (path), ``label``, ``device``, ``repeat``, ``threads`` and ``vector_lanes`` that its C++
            kernels are written for (or ``None``), ``compiled`` where its kernels are in the caches, ``trace`` and
            ``text`` (paths to write), ``values`` (``folder`` and ``limit_bytes``, or ``None``).
        save: keeps what is known so far, should a later step take the process down.

    Returns:
        What ``measure_run``, :func:`details` and ``measure_graph_replay`` return, and ``references``; where values are
        wanted also what ``record_values`` returns, and ``recorded_references``.
    """
    module, run = _load(job)
    result = measure_run(
        run,
        label=job["label"],
        device=job["device"],
        repeat=job["repeat"],
        trace=Path(job["trace"]),
        text=Path(job["text"]),
        module=module,
    )
    save(result)
    result |= details(module, run)
    save(result)
    runtime = runtime_of(job["device"])
    if runtime.captures_graphs:
        result |= measure_graph_replay(run, runtime)
        save(result)
    if job.get("values"):
        del run  # and with it the inputs, which kernels have written into
        result |= _recorded_values(module, job["values"])
        save(result)
    return result | _references(module, result, job)


def list_launches(job: dict[str, Any], save: Save) -> dict[str, Any]:
    """Runs one compiled module with its own inputs, without measuring it, for the sake of its launches.

    Args:
        job: ``module``, ``device``, ``threads``.
        save: keeps the launches, should a kernel take the process down while its reference is made.

    Returns:
        What :func:`details` returns, and ``references``.
    """
    module, run = _load(job)
    run()  # the first call autotunes, launching each kernel many times
    result = details(module, run)
    save(result)
    return result | _references(module, result, job)


def list_values(job: dict[str, Any], save: Save) -> dict[str, Any]:
    """Runs one compiled module with its own inputs and records what some of its launches read.

    Args:
        job: ``module``, ``device``, ``threads``, ``vector_lanes``, ``launches`` (the wanted ones, encoded), and
            ``values`` with ``folder`` and ``limit_bytes``.
        save: keeps the launches, should a kernel take the process down while its reference is made.

    Returns:
        What ``record_values`` returns, and ``recorded_references``.
    """
    module, run = _load(job)
    run()
    del run
    result = _recorded_values(module, job["values"], decode_launches(job["launches"]))
    save(result)
    return result | _references(module, result, job)


def _recorded_values(
    module: ModuleType, values: dict[str, Any], wanted: Sequence[Launch] | None = None
) -> dict[str, Any]:
    run = upstream.harness_run(module)
    return record_values(module, run, Path(values["folder"]), values["limit_bytes"], wanted)


def _load(job: dict[str, Any]) -> tuple[ModuleType, Callable[[], Any]]:
    import torch

    runtime_of(job["device"])  # a device that is not measured is refused before the module is loaded
    if job["threads"]:
        torch.set_num_threads(job["threads"])
    if job.get("switches"):
        set_switches(job["switches"])
    _check_vector_lanes(job["vector_lanes"])
    if job.get("compiled"):
        upstream.start_no_compilers()
    module = load_in_turn(Path(job["module"]))
    return module, upstream.harness_run(module)


def _references(module: ModuleType, result: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    found = {}
    if "launches" in result:
        found["references"] = fingerprint_launches(module, decode_launches(result["launches"]), job["device"])
    if "recorded" in result:
        recorded, folder = decode_launches(result["recorded"]), job["values"]["folder"]
        found["recorded_references"] = fingerprint_launches(module, recorded, job["device"], folder)
    return found


def _check_vector_lanes(wanted: int | None) -> None:
    """Kernels written for vectors of another width compute garbage here, and say nothing."""
    if wanted is None or wanted == (here := upstream.vector_lanes()):
        return
    raise InductorBenchError(
        f"the module was compiled for vectors of {wanted} floats, and here they hold {here or 1}",
        "capture the program on this machine, with ATEN_CPU_CAPABILITY as it was",
    )


def details(module: ModuleType, run: Callable[[], Any]) -> dict[str, Any]:
    """What only the process that ran a module knows of its kernels: configs, launch arguments, threads."""
    import torch

    return {
        "threads": torch.get_num_threads(),
        "compiled": upstream.compiled_kernels(vars(module)),
        "launches": encode_launches(watch_launches(module, run)),
    }
