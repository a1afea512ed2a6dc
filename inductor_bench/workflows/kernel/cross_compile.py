"""Compiling the candidates of standalone Triton files for a GPU that need not be here, side by side."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ...autotune.compile_pool import CompileJob, CompileOutcome, CompilePool
from ...autotune.methods import METHODS
from ...autotune.variants.triton import TritonVariants, triton_variants
from ...devices.nvidia.architectures import ARCHITECTURES, Architecture
from ...devices.nvidia.visible import VISIBLE_GPUS
from ...errors import InductorBenchError, UsageError
from ...launch.cores import usable_cores
from ...launch.session import WorkerLostError, WorkerSession
from ...launch.worker import default_python
from ...messages.kernels import Binary, CompileTriton, Facts, ListTritonConfigs, TellFacts
from ...messages.machine import Pretend
from ...records.code.compilation import CompiledCandidates, CompiledKernel
from ...records.run import Failure
from ...records.tuning import Config, TriedCandidate
from ..progress import Progress
from .targets import find_files

STEP_S = 300.0
MOST_WORKERS = 8
DEFAULT = "default"
"""What the record has for a method where only the configurations are compiled that Inductor tries by default."""


@dataclass(frozen=True)
class TargetOptions:
    """The request.

    Attributes:
        targets: standalone files, folders of them, or ``RUN#KERNEL``, where ``KERNEL`` may be a glob.
        target: the name of an architecture, for example ``sm_90``.
        autotune: a method that can do without times; ``None`` for the configurations that Inductor tries by default.
        budget_s: after which no further candidates are compiled; ``None`` for no limit.
        timeout_s: for each candidate.
        python: the interpreter whose torch and triton are used.
        workers: how many compile at a time; ``None`` for as many as there are CPUs, up to eight.
    """

    targets: tuple[str, ...]
    target: str
    autotune: str | None = None
    budget_s: float | None = None
    timeout_s: float | None = None
    python: str | None = None
    workers: int | None = None


@dataclass(frozen=True)
class TargetOutcome:
    """One entry for each kernel whose candidates were compiled; ``others`` counts the files that hold no Triton
    kernel, ``failures`` are the rest."""

    kernels: tuple[CompiledKernel, ...]
    target: Architecture
    torch: str
    triton: str
    others: int = 0
    failures: tuple[Failure, ...] = ()


def compiles(kernel: CompiledKernel) -> bool:
    """Whether any candidate of a kernel can be had on its target."""
    return any(candidate.status in ("default", "compiled") for candidate in kernel.tuning.candidates)


@dataclass
class _File:
    """A file on its way."""

    path: Path
    facts: Facts | None = None
    variants: TritonVariants | None = None
    candidates: list[_Candidate] = field(default_factory=list)
    failure: Failure | None = None

    def fail(self, built: CompileOutcome) -> None:
        kind = "invalid" if built.status == "refused" else built.status
        reason = built.reason if built.status == "refused" else f"the worker {built.reason}"
        self.failure = Failure("kernel", kind, reason, built.hint, "", str(self.path))


@dataclass
class _Candidate:
    """A configuration on its way. ``status`` is empty while it is well."""

    file: _File
    config: Config
    status: str = ""
    reason: str = ""
    binary: Binary | None = None


def compile_for_target(options: TargetOptions, progress: Progress) -> TargetOutcome:
    """Compiles the candidates of every kernel of the request for its target; needs no GPU.

    Raises:
        UsageError: the request cannot be carried out as typed.
        InductorBenchError: this interpreter has no torch or no triton.
    """
    architecture = ARCHITECTURES.get(options.target)
    if architecture is None:
        raise UsageError(f"{options.target} is no target that is known here", f"one of {', '.join(ARCHITECTURES)}")
    listed = _listed(options.autotune)
    files = [_File(path) for path in find_files(options.targets)]
    method = options.autotune or DEFAULT
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        pool = _compile_pool(options, Path(name), progress, architecture)
        try:
            progress.stage(f"reading {len(files)} file{'s' * (len(files) != 1)}")
            _read(files, pool, listed)
            candidates = [candidate for file in files for candidate in file.candidates]
            progress.stage(f"compiling {len(candidates)} candidates for {architecture.name}")
            limit = options.budget_s
            _compile(candidates, pool, lambda: limit is not None and time.monotonic() - began > limit)
        finally:
            pool.end()
    versions = pool.greeting_answer
    failures = tuple(file.failure for file in files if file.failure is not None)
    kernels = tuple(_outcome(file, method, architecture) for file in files if file.candidates)
    others = len(files) - len(failures) - len(kernels)
    if others == len(files):
        raise InductorBenchError(f"no Triton kernel in {others} file{'s' * (others != 1)}: --target compiles no others")
    return TargetOutcome(kernels, architecture, versions.torch, versions.triton, others, failures)


def _listed(method: str | None) -> Callable[[TritonVariants], Iterable[Config]]:
    """The configurations that are compiled beside the present one.

    Raises:
        UsageError: the method follows times.
    """
    if method is None:
        return TritonVariants.listed_by_default
    listed = METHODS[method].untimed if method in METHODS else None
    if listed is None:
        others = " or ".join(name for name, one in METHODS.items() if one.untimed is not None)
        raise UsageError(f"--autotune {method} follows times, and --target takes none", f"use {others}")
    return listed


def _compile_pool(options: TargetOptions, folder: Path, progress: Progress, architecture: Architecture) -> CompilePool:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton"), VISIBLE_GPUS: ""}

    def start(name: str) -> WorkerSession:
        python, log = options.python or default_python(), folder / f"{name}.log"
        return WorkerSession(python, folder, environment, log=log, on_line=progress.output)

    count = options.workers or min(usable_cores(), MOST_WORKERS)
    limit = options.timeout_s or STEP_S
    return CompilePool(start, count, limit, limit, Pretend(architecture))


def _read(files: Sequence[_File], pool: CompilePool, listed: Callable[[TritonVariants], Iterable[Config]]) -> None:
    """Finds out which files hold Triton kernels, and what can be varied of these."""
    jobs = [CompileJob(number, str(file.path.resolve()), TellFacts) for number, file in enumerate(files)]
    for built in _built(jobs, pool):
        file = files[built.key]
        if built.status:
            file.fail(built)
        else:
            file.facts = built.answer
    triton = [number for number, file in enumerate(files) if file.facts and file.facts.language == "triton"]
    jobs = [CompileJob(number, str(files[number].path.resolve()), ListTritonConfigs) for number in triton]
    for built in _built(jobs, pool):
        file = files[built.key]
        if built.status:
            file.fail(built)
            continue
        file.variants = triton_variants(built.answer)
        file.candidates = [_Candidate(file, config) for config in (file.variants.now, *listed(file.variants))]


def _compile(candidates: Sequence[_Candidate], pool: CompilePool, is_over: Callable[[], bool]) -> None:
    jobs = [
        CompileJob(number, str(one.file.path.resolve()), partial(CompileTriton, config=one.config))
        for number, one in enumerate(candidates)
    ]
    for built in _built(jobs, pool, is_over):
        candidate = candidates[built.key]
        candidate.status, candidate.reason, candidate.binary = built.status, built.reason, built.answer


def _built(
    jobs: Sequence[CompileJob], pool: CompilePool, is_over: Callable[[], bool] = lambda: False
) -> Iterator[CompileOutcome]:
    try:
        yield from pool.compile(jobs, is_over)
    except WorkerLostError as lost:
        raise InductorBenchError(f"the worker {lost.message}", "-v shows what it printed") from lost


def _outcome(file: _File, method: str, architecture: Architecture) -> CompiledKernel:
    assert file.facts is not None and file.variants is not None
    recorded, variants = file.facts.recorded, file.variants
    judge(file.candidates, architecture)
    return CompiledKernel(
        name=recorded["name"],
        kernel_id=recorded["kernel_id"],
        file=str(file.path),
        category=recorded["category"],
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


def judge(candidates: Sequence[_Candidate], architecture: Architecture) -> None:
    """Gives each candidate its status; the first is the default."""
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
