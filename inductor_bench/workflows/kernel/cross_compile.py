"""Compiling the candidates of standalone Triton files for a GPU that need not be here, side by side."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...autotune.compile_pool import Builders, Built, Job
from ...autotune.variants import TritonVariants, triton_variants
from ...devices.nvidia.architectures import ARCHITECTURES, Architecture
from ...devices.nvidia.visible import VISIBLE_GPUS
from ...errors import InductorBenchError, UsageError
from ...launch.cores import usable_cores
from ...launch.session import WorkerLostError, WorkerSession
from ...launch.worker import default_python
from ...records.code.compilation import CompiledCandidates, CompiledKernel
from ...records.run import Failure
from ...records.tuning import Config, TriedCandidate
from ..progress import Progress
from .targets import find_files

STEP_S = 300.0
MOST_WORKERS = 8
METHODS = ("default", "max", "exhaustive")
_FACTS = ("registers", "spills", "shared_memory_bytes", "instructions", "binary_bytes")


@dataclass(frozen=True)
class TargetOptions:
    """The request.

    Attributes:
        targets: standalone files, folders of them, or ``RUN#KERNEL``, where ``KERNEL`` may be a glob.
        target: the name of an architecture, for example ``sm_90``.
        autotune: ``max`` or ``exhaustive``; ``None`` for the configurations that Inductor tries by default.
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
    facts: dict[str, Any] = field(default_factory=dict)
    variants: TritonVariants | None = None
    candidates: list[_Candidate] = field(default_factory=list)
    failure: Failure | None = None

    def fail(self, built: Built) -> None:
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
    told: dict[str, Any] = field(default_factory=dict)


def compile_for_target(options: TargetOptions, progress: Progress) -> TargetOutcome:
    """Compiles the candidates of every kernel of the request for its target; needs no GPU.

    Raises:
        UsageError: the request cannot be carried out as typed.
        InductorBenchError: this interpreter has no torch or no triton.
    """
    architecture = ARCHITECTURES.get(options.target)
    if architecture is None:
        raise UsageError(f"{options.target} is no target that is known here", f"one of {', '.join(ARCHITECTURES)}")
    method = options.autotune or METHODS[0]
    if method not in METHODS:
        raise UsageError(f"--autotune {method} follows times, and --target takes none", "use max or exhaustive")
    files = [_File(path) for path in find_files(options.targets)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        builders = _builders(options, Path(name), progress, architecture)
        try:
            progress.stage(f"reading {len(files)} file{'s' * (len(files) != 1)}")
            _read(files, builders, method)
            candidates = [candidate for file in files for candidate in file.candidates]
            progress.stage(f"compiling {len(candidates)} candidates for {architecture.name}")
            limit = options.budget_s
            _compile(candidates, builders, lambda: limit is not None and time.monotonic() - began > limit)
        finally:
            builders.end()
    versions = builders.greeted
    failures = tuple(file.failure for file in files if file.failure is not None)
    kernels = tuple(_outcome(file, method, architecture) for file in files if file.candidates)
    others = len(files) - len(failures) - len(kernels)
    if others == len(files):
        raise InductorBenchError(f"no Triton kernel in {others} file{'s' * (others != 1)}: --target compiles no others")
    return TargetOutcome(kernels, architecture, versions["torch"], versions["triton"], others, failures)


def _builders(options: TargetOptions, folder: Path, progress: Progress, architecture: Architecture) -> Builders:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton"), VISIBLE_GPUS: ""}

    def start(name: str) -> WorkerSession:
        python, log = options.python or default_python(), folder / f"{name}.log"
        return WorkerSession(python, folder, environment, log=log, on_line=progress.output)

    count = options.workers or min(usable_cores(), MOST_WORKERS)
    limit = options.timeout_s or STEP_S
    return Builders(start, count, limit, limit, {"do": "pretend", "architecture": asdict(architecture)})


def _read(files: Sequence[_File], builders: Builders, method: str) -> None:
    """Finds out which files hold Triton kernels, and what can be varied of these."""
    jobs = [Job(number, str(file.path.resolve()), {"do": "facts"}) for number, file in enumerate(files)]
    for built in _built(jobs, builders):
        file = files[built.key]
        if built.status:
            file.fail(built)
        else:
            file.facts = built.answer
    triton = [job for job in jobs if files[job.key].facts.get("language") == "triton"]
    for built in _built([Job(job.key, job.file, {"do": "candidates"}) for job in triton], builders):
        file = files[built.key]
        if built.status:
            file.fail(built)
            continue
        file.variants = triton_variants(built.answer)
        others = file.variants.around(file.variants.now) if method == "exhaustive" else file.variants.propose(method)
        file.candidates = [_Candidate(file, config) for config in (file.variants.now, *others)]


def _compile(candidates: Sequence[_Candidate], builders: Builders, is_over: Callable[[], bool]) -> None:
    jobs = [
        Job(number, str(one.file.path.resolve()), {"do": "compiled", "config": one.config})
        for number, one in enumerate(candidates)
    ]
    for built in _built(jobs, builders, is_over):
        candidate = candidates[built.key]
        candidate.status, candidate.reason, candidate.told = built.status, built.reason, built.answer or {}


def _built(jobs: Sequence[Job], builders: Builders, is_over: Callable[[], bool] = lambda: False) -> Iterator[Built]:
    try:
        yield from builders.build(jobs, is_over)
    except WorkerLostError as lost:
        raise InductorBenchError(f"the worker {lost.message}", "-v shows what it printed") from lost


def _outcome(file: _File, method: str, architecture: Architecture) -> CompiledKernel:
    assert file.variants is not None
    recorded, variants = file.facts["recorded"], file.variants
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
            time_s=sum(one.told.get("time_s", 0.0) for one in file.candidates),
        ),
    )


def _row(one: _Candidate) -> TriedCandidate:
    told: dict[str, Any] = {key: one.told.get(key) for key in _FACTS}
    return TriedCandidate(one.config, one.status, one.reason, **told)


def judge(candidates: Sequence[Any], architecture: Architecture) -> None:
    """Gives each candidate its status; the first is the default."""
    first: dict[tuple[Any, ...], int] = {}
    for number, one in enumerate(candidates):
        if one.status:
            continue
        one.status = "compiled" if number else "default"
        shared = one.told["shared_memory_bytes"]
        if shared > architecture.shared_memory_bytes:
            most = architecture.shared_memory_bytes // 1024
            one.status = "refused"
            one.reason = f"needs {shared / 1024:.0f} KiB of shared memory, a block of {architecture.name} has {most}"
            continue
        same = first.setdefault((one.told["digest"], shared), number)
        if same != number:
            one.status, one.reason = "duplicate", f"compiles to what no. {same + 1} does"
