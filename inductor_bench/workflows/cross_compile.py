"""Compiles the candidates of standalone Triton files in parallel for a GPU that this machine may lack."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ..autotune.compile_pool import CompileJob, CompileOutcome, CompilePool
from ..autotune.methods import METHODS
from ..autotune.variants import TritonVariants, triton_variants
from ..devices.nvidia import ARCHITECTURES, VISIBLE_GPUS, Architecture
from ..errors import InductorBenchError, UsageError
from ..launch.executors import usable_cores
from ..launch.worker import WorkerLostError, WorkerSession, default_python
from ..messages.job_requests import Pretend
from ..messages.kernel_requests import Binary, CompileTriton, KernelFacts, ListTritonConfigs, TellFacts
from ..records.base import Failure
from ..records.extraction import CompiledCandidates, CrossCompiledKernel
from ..records.request import KernelRequest
from ..records.tuning import Config, TriedCandidate
from .kernel_session import find_files
from .options import Progress

STEP_S = 300.0
MAXIMUM_WORKERS = 8
DEFAULT = "default"
"""The method in the record where only the configurations without max-autotune are compiled."""


@dataclass(frozen=True)
class TargetOutcome:
    """The outcome of a cross-compilation.

    Attributes:
        kernels: the kernels whose candidates were compiled.
        target: the architecture.
        torch: the version of torch that compiled.
        triton: the version of triton that compiled.
        others: the number of files without a Triton kernel.
        failures: the files that could not be read.
    """

    kernels: tuple[CrossCompiledKernel, ...]
    target: Architecture
    torch: str
    triton: str
    others: int = 0
    failures: tuple[Failure, ...] = ()


def compiles(kernel: CrossCompiledKernel) -> bool:
    """Whether any candidate of a kernel compiles and fits its target."""
    return any(candidate.status in ("default", "compiled") for candidate in kernel.tuning.candidates)


@dataclass
class _File:
    """A file, and its facts, variants and candidates as far as they are known."""

    path: Path
    facts: KernelFacts | None = None
    variants: TritonVariants | None = None
    candidates: list[_Candidate] = field(default_factory=list)
    failure: Failure | None = None

    def fail(self, built: CompileOutcome) -> None:
        kind = "invalid" if built.status == "refused" else built.status
        reason = built.reason if built.status == "refused" else f"the worker {built.reason}"
        self.failure = Failure("kernel", kind, reason, built.hint, "", str(self.path))


@dataclass
class _Candidate:
    """A configuration of a file. ``status`` is empty until it fails or :func:`set_statuses` sets it."""

    file: _File
    config: Config
    status: str = ""
    reason: str = ""
    binary: Binary | None = None


def compile_for_target(request: KernelRequest, progress: Progress) -> TargetOutcome:
    """Compiles the candidates of each kernel of the request for its target, without a GPU.

    Raises:
        UsageError: the target, the method or a file of the request is invalid.
        InductorBenchError: the interpreter has no torch or no triton, or no file holds a Triton kernel.
    """
    architecture = ARCHITECTURES.get(request.target or "")
    if architecture is None:
        raise UsageError(f"{request.target} is no target that is known here", f"one of {', '.join(ARCHITECTURES)}")
    listed = _find_listing(request.autotune)
    files = [_File(path) for path in find_files(request.targets)]
    method = request.autotune or DEFAULT
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        pool = _compile_pool(request, Path(name), progress, architecture)
        try:
            progress.stage(f"reading {len(files)} file{'s' * (len(files) != 1)}")
            _read_files(files, pool, listed)
            candidates = [candidate for file in files for candidate in file.candidates]
            progress.stage(f"compiling {len(candidates)} candidates for {architecture.name}")
            limit = request.budget_s
            _compile_candidates(candidates, pool, lambda: limit is not None and time.monotonic() - began > limit)
        finally:
            pool.end()
    versions = pool.greeting_answer
    failures = tuple(file.failure for file in files if file.failure is not None)
    kernels = tuple(_make_kernel(file, method, architecture) for file in files if file.candidates)
    others = len(files) - len(failures) - len(kernels)
    if others == len(files):
        raise InductorBenchError(f"no Triton kernel in {others} file{'s' * (others != 1)}: --target compiles no others")
    return TargetOutcome(kernels, architecture, versions.torch, versions.triton, others, failures)


def _find_listing(method: str | None) -> Callable[[TritonVariants], Iterable[Config]]:
    """The function that lists the configurations to compile beside that of the file.

    Raises:
        UsageError: the method needs times.
    """
    if method is None:
        return TritonVariants.listed_by_default
    listed = METHODS[method].untimed if method in METHODS else None
    if listed is None:
        others = " or ".join(name for name, one in METHODS.items() if one.untimed is not None)
        raise UsageError(f"--autotune {method} follows times, and --target takes none", f"use {others}")
    return listed


def _compile_pool(request: KernelRequest, folder: Path, progress: Progress, architecture: Architecture) -> CompilePool:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton"), VISIBLE_GPUS: ""}

    def start(name: str) -> WorkerSession:
        python, log = request.python or default_python(), folder / f"{name}.log"
        return WorkerSession(python, folder, environment, log=log, on_line=progress.output)

    count = min(usable_cores(), MAXIMUM_WORKERS)
    limit = request.timeout_s or STEP_S
    return CompilePool(start, count, limit, limit, Pretend(architecture))


def _read_files(
    files: Sequence[_File], pool: CompilePool, listed: Callable[[TritonVariants], Iterable[Config]]
) -> None:
    """Reads the facts of each file, and the variants and candidates of those with a Triton kernel."""
    jobs = [CompileJob(number, str(file.path.resolve()), TellFacts) for number, file in enumerate(files)]
    for built in _run_jobs(jobs, pool):
        file = files[built.key]
        if built.status:
            file.fail(built)
        else:
            file.facts = built.answer
    triton = [number for number, file in enumerate(files) if file.facts and file.facts.language == "triton"]
    jobs = [CompileJob(number, str(files[number].path.resolve()), ListTritonConfigs) for number in triton]
    for built in _run_jobs(jobs, pool):
        file = files[built.key]
        if built.status:
            file.fail(built)
            continue
        file.variants = triton_variants(built.answer)
        file.candidates = [_Candidate(file, config) for config in (file.variants.now, *listed(file.variants))]


def _compile_candidates(candidates: Sequence[_Candidate], pool: CompilePool, is_over: Callable[[], bool]) -> None:
    jobs = [
        CompileJob(number, str(one.file.path.resolve()), partial(CompileTriton, config=one.config))
        for number, one in enumerate(candidates)
    ]
    for built in _run_jobs(jobs, pool, is_over):
        candidate = candidates[built.key]
        candidate.status, candidate.reason, candidate.binary = built.status, built.reason, built.answer


def _run_jobs(
    jobs: Sequence[CompileJob], pool: CompilePool, is_over: Callable[[], bool] = lambda: False
) -> Iterator[CompileOutcome]:
    try:
        yield from pool.compile(jobs, is_over)
    except WorkerLostError as lost:
        raise InductorBenchError(f"the worker {lost.message}", "-v shows what it printed") from lost


def _make_kernel(file: _File, method: str, architecture: Architecture) -> CrossCompiledKernel:
    assert file.facts is not None and file.variants is not None
    recorded, variants = file.facts.recorded, file.variants
    set_statuses(file.candidates, architecture)
    return CrossCompiledKernel(
        name=recorded.name,
        kernel_id=recorded.kernel_id,
        file=str(file.path),
        category=recorded.category,
        target=architecture.name,
        config=variants.now,
        tuning=CompiledCandidates(
            method=method,
            candidates=tuple(_row(one) for one in file.candidates),
            default_configs=len(variants.default),
            max_configs=len(variants.max),
            same_candidate_set=variants.same_candidate_set,
            limits=variants.limits,
            time_s=sum(one.binary.time_s for one in file.candidates if one.binary is not None),
        ),
    )


def _row(one: _Candidate) -> TriedCandidate:
    row, binary = TriedCandidate(one.config, one.status, one.reason), one.binary
    if binary is None:
        return row
    return replace(
        row,
        registers=binary.registers,
        spills=binary.spills,
        shared_memory_bytes=binary.shared_memory_bytes,
        instructions=binary.instructions,
        binary_bytes=binary.binary_bytes,
    )


def set_statuses(candidates: Sequence[_Candidate], architecture: Architecture) -> None:
    """Sets the status of each compiled candidate: ``default``, ``compiled``, ``refused`` or ``duplicate``."""
    first: dict[tuple[str, int], int] = {}
    for number, one in enumerate(candidates):
        if one.status or one.binary is None:
            continue
        one.status = "compiled" if number else "default"
        shared = one.binary.shared_memory_bytes
        if shared > architecture.shared_memory_bytes:
            most = architecture.shared_memory_bytes // 1024
            one.status = "refused"
            one.reason = f"needs {shared / 1024:.0f} KiB of shared memory, a block of {architecture.name} has {most}"
            continue
        same = first.setdefault((one.binary.digest, shared), number)
        if same != number:
            one.status, one.reason = "duplicate", f"compiles to what no. {same + 1} does"
