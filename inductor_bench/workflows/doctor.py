"""Checks the installation and the devices of this machine, and measures a device's peaks."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from .. import units
from ..devices.protocol import CPU
from ..devices.table import find_best_device, find_device
from ..launch.batch_executors import INSTALL as INSTALL_RAY
from ..launch.process import GO_TOGETHER
from ..launch.worker import WorkerPool, default_python
from ..records.base import Failure
from ..records.request import DoctorRequest
from ..records.request_fields import LIBRARIES
from ..records.run import Check, DoctorReport, Environment
from ..store.caches import LIMIT_BYTES, compile_cache_bytes, compile_cache_problem, compile_cache_root
from ..store.tables import INSTALL as INSTALL_DUCKDB
from .modules.module_measurements import take_survey
from .progress import Progress

LEAST_FREE_BYTES = 2_000_000_000
"""Bytes of free disk space below which the check fails."""


def run_doctor(request: DoctorRequest, progress: Progress) -> DoctorReport:
    """Checks the machine and measures the peaks of a device, which are cached for later runs.

    The device is the GPU if none is requested, or the CPU if torch sees no GPU.
    """
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        environment = dict(os.environ)
        with WorkerPool(request.python or default_python(), Path(name), environment, on_line=progress.output) as pool:
            pool.get_ready()
            report = _examine(pool, request.device, "measured" if request.remeasure else "cached", progress)
    progress.stage("importing the optional packages")
    return replace(report, packages=check_packages(request.python))


def _examine(pool: WorkerPool, device: str | None, peaks: str, progress: Progress) -> DoctorReport:
    progress.stage("looking at the machine")
    log = pool.folder / "survey.log"
    seen = take_survey(pool, (), device=CPU.type, peaks="none", log=log)
    if seen.failure is not None:
        return DoctorReport(_list_checks(seen.environment), seen.environment, failure=seen.failure)
    wanted = find_device(device) if device else find_best_device(seen.environment)
    if wanted.name_in(seen.environment) is None:
        message = f"no {wanted.words.family} device is visible to torch"
        failure = Failure("peaks", "missing", message, f"try --device {CPU.type}")
        return DoctorReport(_list_checks(seen.environment), seen.environment, failure=failure)
    progress.stage(f"finding what the {wanted.type} device can do")
    found = take_survey(pool, (), device=wanted.type, peaks=peaks, log=log)
    unknown = found.failure
    if found.no_peaks:
        unknown = Failure("peaks", "busy", f"its peaks do not count: {found.no_peaks}", "try again when it is idle")
    return DoctorReport(_list_checks(seen.environment), seen.environment, found.peaks, unknown)


def _list_checks(environment: Environment) -> tuple[Check, ...]:
    return (
        _check_torch(environment),
        _check_triton(environment),
        _check_compiler(environment),
        _check_accelerator(environment),
        _check_disk(),
        check_compile_cache(),
    )


def _check_torch(environment: Environment) -> Check:
    if not environment.versions.torch:
        return Check("torch", "missing", "cannot be imported", "install torch 2.9 or newer: see pytorch.org")
    return Check("torch", "ok", environment.versions.torch)


def _check_triton(environment: Environment) -> Check:
    if environment.versions.triton:
        return Check("triton", "ok", environment.versions.triton)
    if environment.device.accelerator:
        return Check("triton", "missing", "not installed", "install the version of Triton that your torch requires")
    return Check("triton", "optional", "not installed", "needed for GPU kernels only")


def _check_compiler(environment: Environment) -> Check:
    names = [os.environ.get("CXX", ""), "g++", "clang++", "c++"]
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found:
        return Check("C++ compiler", "ok", found)
    return Check("C++ compiler", "missing", "none on the PATH", "install g++ (or set CXX): CPU graphs are compiled C++")


def _check_accelerator(environment: Environment) -> Check:
    if environment.device.accelerator is None:
        return Check("GPU", "optional", "none is visible to torch", "everything works on the CPU as well")
    driver = f", driver {environment.device.driver}" if environment.device.driver else ""
    return Check("GPU", "ok", f"{environment.device.accelerator_count} x {environment.device.accelerator}{driver}")


def check_packages(python: str | None = None) -> tuple[Check, ...]:
    """Imports each optional package.

    Libraries of models are imported with the interpreter that runs the programs, if there is one, and packages of this
    command with its own interpreter.
    """
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        own = WorkerPool(default_python(), Path(name), dict(os.environ))
        pool = replace(own, python=python or own.python)
        rows = LIBRARIES.values() if pool.is_python() else ()
        return (
            *(check_package(row.kind, f"targets like {row.example}", row.install, pool, row.loads) for row in rows),
            check_package("duckdb", "SQL of query", INSTALL_DUCKDB, own),
            check_package("ray", "batch --executor ray", INSTALL_RAY, own),
        )


def check_package(name: str, purpose: str, hint: str, pool: WorkerPool, module: str = "") -> Check:
    """Checks an optional package, which the pool's interpreter has to be able to import.

    Args:
        name: the package.
        purpose: what it is needed for.
        hint: what to do if it is not installed.
        pool: has the interpreter.
        module: a module of it that has to be importable too.
    """
    found = pool.import_package(name, module)
    if found.version:
        return Check(name, "ok", found.version)
    if f"No module named '{name}'" in found.error:
        return Check(name, "optional", f"not installed ({purpose})", hint)
    return Check(name, "broken", f"importing it fails ({purpose}): {found.error}", found.hint or GO_TOGETHER)


def check_compile_cache() -> Check:
    """Checks the folder with what earlier breakdowns compiled: its size, and whether it can be used."""
    problem = compile_cache_problem()
    if problem:
        hint = "each breakdown compiles everything; name another folder in INDUCTOR_BENCH_CACHE"
        return Check("compile cache", "broken", problem, hint)
    sizes = f"{units.size(compile_cache_bytes())} of at most {units.size(LIMIT_BYTES)}"
    return Check("compile cache", "ok", f"{compile_cache_root()}, {sizes}")


def _check_disk() -> Check:
    free = shutil.disk_usage(Path.cwd()).free
    text = f"{free / 1e9:.1f} GB free here"
    if free < LEAST_FREE_BYTES:
        return Check("disk", "missing", text, "a run needs up to 2 GB while it works")
    return Check("disk", "ok", text)
