"""Compiling the candidates of standalone Triton files for a GPU that need not be here, side by side."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..errors import InductorBenchError, UsageError
from ..launch.session import WorkerLostError, WorkerSession
from ..launch.worker import default_python
from ..records.architectures import ARCHITECTURES, Architecture
from ..records.compilation import CompiledCandidates, CompiledKernel
from ..records.run import Failure
from ..records.tuning import Config, TriedCandidate
from .kernel_targets import find_files
from .kernel_variants import TritonVariants, triton_variants
from .progress import Progress

STEP_S = 300.0
MOST_WORKERS = 8
METHODS = ("default", "max", "exhaustive")
_FACTS = ("registers", "spills", "shared_memory_bytes", "instructions", "binary_bytes")

T = TypeVar("T")


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


@dataclass
class _Candidate:
    """A configuration on its way. ``status`` is empty while it is well."""

    file: _File
    config: Config
    status: str = ""
    reason: str = ""
    told: dict[str, Any] = field(default_factory=dict)
    time_s: float = 0.0


class _Compilers:
    """Workers that pretend to have the GPU, one for each thread that asks; a lost one is replaced."""

    def __init__(self, options: TargetOptions, folder: Path, progress: Progress, architecture: Architecture) -> None:
        self._options, self._folder, self._progress = options, folder, progress
        self._architecture = architecture
        self._mine = threading.local()
        self._started: list[WorkerSession] = []
        self._environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton"), "CUDA_VISIBLE_DEVICES": ""}
        self.versions: dict[str, str] = {}

    def __enter__(self) -> _Compilers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for session in self._started:
            session.close() if kind is None else session.abort()

    def start(self) -> WorkerSession:
        """This thread's worker.

        Raises:
            InductorBenchError: nothing can be compiled under this interpreter.
        """
        session: WorkerSession | None = getattr(self._mine, "session", None)
        if session is None or not session.alive:
            log = self._folder / f"compile-{threading.get_ident()}.log"
            python = self._options.python or default_python()
            session = WorkerSession(python, self._folder, self._environment, log=log, on_line=self._progress.output)
            self._started.append(session)
            try:
                self.versions = session.ask({"do": "pretend", "architecture": asdict(self._architecture)}, STEP_S)
            except WorkerLostError as lost:
                raise InductorBenchError(f"the worker {lost.message}", "-v shows what it printed") from lost
            self._mine.session, self._mine.loaded = session, {}
        return session

    def ask(self, path: Path, verb: str, **more: Any) -> Any:
        """What this thread's worker answers about a file, which it loads first; ``load`` itself gives its facts."""
        session, limit = self.start(), self._options.timeout_s or STEP_S
        loaded: dict[Path, tuple[int, Any]] = self._mine.loaded
        if path not in loaded:
            number = len(loaded)
            loaded[path] = number, session.ask({"do": "load", "number": number, "file": str(path.resolve())}, limit)
        number, facts = loaded[path]
        return facts if verb == "load" else session.ask({"do": verb, "number": number, **more}, limit)


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
    begin = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="inductor-bench-") as name,
        ThreadPoolExecutor(options.workers or max(1, min(os.cpu_count() or 1, MOST_WORKERS))) as threads,
        _Compilers(options, Path(name), progress, architecture) as compilers,
    ):
        progress.stage(f"reading {len(files)} file{'s' * (len(files) != 1)}")
        _all(threads, lambda file: _read(file, compilers, method), files)
        candidates = [candidate for file in files for candidate in file.candidates]
        progress.stage(f"compiling {len(candidates)} candidates for {architecture.name}")
        limit = None if options.budget_s is None else begin + options.budget_s
        _all(threads, lambda candidate: _compile(candidate, compilers, limit), candidates)
        versions = compilers.versions
    failures = tuple(file.failure for file in files if file.failure is not None)
    kernels = tuple(_outcome(file, method, architecture) for file in files if file.candidates)
    others = len(files) - len(failures) - len(kernels)
    if others == len(files):
        raise InductorBenchError(f"no Triton kernel in {others} file{'s' * (others != 1)}: --target compiles no others")
    return TargetOutcome(kernels, architecture, versions["torch"], versions["triton"], others, failures)


def _all(threads: ThreadPoolExecutor, step: Callable[[T], None], items: Iterable[T]) -> None:
    """Does a step for each item; the first that cannot be done at all ends them all."""
    waiting = [threads.submit(step, item) for item in items]
    try:
        for done in waiting:
            done.result()
    except BaseException:
        for left in waiting:
            left.cancel()
        raise


def _read(file: _File, compilers: _Compilers, method: str) -> None:
    compilers.start()
    try:
        file.facts = compilers.ask(file.path, "load")
        if file.facts["language"] != "triton":
            return
        file.variants = triton_variants(compilers.ask(file.path, "candidates"))
    except InductorBenchError as error:
        file.failure = Failure("kernel", "invalid", error.message, error.hint, "", str(file.path))
        return
    except WorkerLostError as lost:
        file.failure = Failure("kernel", lost.kind, f"the worker {lost.message}", "", lost.tail, str(file.path))
        return
    configs = [file.variants.now, *file.variants.propose(method)]
    file.candidates = [_Candidate(file, config) for config in configs]


def _compile(candidate: _Candidate, compilers: _Compilers, limit: float | None) -> None:
    begin = time.monotonic()
    if limit is not None and begin > limit:
        candidate.status, candidate.reason = "untried", "the budget was spent"
        return
    try:
        candidate.told = compilers.ask(candidate.file.path, "compiled", config=candidate.config)
    except InductorBenchError as error:
        candidate.status, candidate.reason = "refused", error.message
    except WorkerLostError as lost:
        candidate.status, candidate.reason = lost.kind, lost.message
    candidate.time_s = time.monotonic() - begin


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
            time_s=sum(one.time_s for one in file.candidates),
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
