"""Extraction: every kernel of a compiled module, a log or a RUN as a standalone file."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import InductorBenchError, UsageError
from ..launch.worker import WorkerPool, default_python
from ..records.category import Category
from ..records.launch import Launch
from ..records.run import Environment, Failure, Run
from ..records.source import ModuleSource
from ..source.labels import ModuleLabel, label_modules
from ..source.module import read_module
from ..source.static_launches import read_static_launches
from ..store import codec
from ..store.evidence import load_code, load_details
from ..store.files import write_json
from ..store.folder import RunFolder
from .capture import FoundModule, capture_environment
from .kernel_files import Candidate, ExtractedKernel, ModuleKernels, Selection, list_candidates, write_kernels
from .options import BreakdownOptions
from .progress import Progress
from .reanalysis import attribute_again
from .survey import take_survey
from .targets import find_listed_modules, resolve_target

INDEX = "kernels.json"


@dataclass(frozen=True)
class ExtractOptions:
    """The request of one extraction.

    ``targets``: a RUN folder, a log, a structured trace, or compiled modules. ``output`` is ``None`` to list only.
    ``static`` reads the arguments from the text instead of running the module.
    """

    targets: tuple[str, ...]
    output: Path | None = None
    selection: Selection = field(default_factory=Selection)
    static: bool = False
    python: str | None = None
    timeout_s: float | None = None


@dataclass(frozen=True)
class ExtractOutcome:
    """What was found and written: a row per kernel, with its file or its reason. ``notes`` are for people."""

    kernels: tuple[ExtractedKernel, ...]
    folder: Path | None = None
    notes: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()


def run_extract(options: ExtractOptions, progress: Progress) -> ExtractOutcome:
    """Extracts, or lists, the kernels of a target.

    Raises:
        UsageError: the target is not there or is of a kind that has no kernels yet.
        InductorBenchError: the output folder cannot be made, or nothing in the target can be read.
    """
    target = resolve_target(BreakdownOptions(options.targets))
    if target.kind not in ("run", "module", "log", "structured-trace"):
        raise UsageError(f"{target.name} is a program", f"capture it first: inductor-bench breakdown {target.name}")
    folder = _make_folder(options.output)
    notes: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    if target.kind == "run":
        modules = _modules_of_run(RunFolder(target.paths[0]))
    else:
        found, missing = find_listed_modules(target)
        failures = tuple(Failure("extract", "missing", f"{path} no longer exists", subject=path) for path in missing)
        modules, notes = _modules_of_files(found, options, progress)
    candidates = [list_candidates(module) for module in modules]
    chosen = _choose(candidates, options.selection)
    if folder is None:
        rows = tuple(_listed(candidate) for candidate in chosen)
        return ExtractOutcome(rows, None, notes, failures)
    progress.stage(f"writing {len(chosen)} kernels")
    rows = tuple(write_kernels(chosen, folder, {}))
    write_json(folder / INDEX, codec.encode(rows))
    return ExtractOutcome(rows, folder, notes, failures)


def extract_run(folder: RunFolder) -> tuple[ExtractedKernel, ...]:
    """Writes every kernel of a RUN into its ``kernels`` folder, over what is there.

    Raises:
        InductorBenchError: the run cannot be read, or nothing can be written.
    """
    candidates = [list_candidates(module) for module in _modules_of_run(folder)]
    rows = tuple(write_kernels(_choose(candidates, Selection()), folder.kernels, {}))
    write_json(folder.kernels / INDEX, codec.encode(rows))
    return rows


def _make_folder(path: Path | None) -> Path | None:
    if path is None:
        return None
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UsageError(f"{path} exists and is not an empty folder", "choose another folder with -o")
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InductorBenchError(f"cannot create {path}: {error.strerror or error}") from error
    return path


def _choose(candidates: Sequence[Sequence[Candidate]], selection: Selection) -> list[Candidate]:
    return selection.choose([candidate for of_module in candidates for candidate in of_module])


def _listed(candidate: Candidate) -> ExtractedKernel:
    header = candidate.header
    return ExtractedKernel(
        header.name,
        header.kernel_id,
        header.category,
        header.module or "",
        header.calls or 0,
        header.time_s,
        reason=candidate.reason,
    )


def _modules_of_run(folder: RunFolder) -> list[ModuleKernels]:
    run = folder.load()
    modules = []
    for record in run.modules:
        text_file = folder.modules / f"{record.slug}.py"
        if not text_file.is_file():
            raise InductorBenchError(f"{text_file} is gone", "extract from the compiled module instead")
        attributed = attribute_again(folder, record)
        times: dict[int, float] = defaultdict(float)
        if attributed is not None:
            for activity in attributed.activities:
                if activity.call is not None and activity.iteration in attributed.steady:
                    times[activity.call.index] += activity.duration_s / len(attributed.steady)
        text = text_file.read_text(encoding="utf-8")
        details = load_details(folder, record.slug)
        code = load_code(folder, record.slug, text)
        module = module_kernels(ModuleLabel(record.label, record.slug), run, read_module(text), details, text)
        modules.append(
            replace(
                module,
                source_lines=code.stack_traces if code else {},
                call_times=times,
                measured=record.kernels,
            )
        )
    return modules


def module_kernels(
    label: ModuleLabel, run: Run, source: ModuleSource, details: dict[str, Any], text: str
) -> ModuleKernels:
    """A module's kernels with the launches that its measuring process saw, or those that its text tells of."""
    launches = tuple(codec.decode(Launch, launch) for launch in details.get("launches", ()))
    return ModuleKernels(
        label=label.label,
        title=run.title,
        source=source,
        launches=launches or read_static_launches(text, source),
        references=details.get("references", ()) if launches else (),
        compiled=details.get("compiled", {}),
        environment=run.environment,
    )


def _modules_of_files(
    found: Sequence[FoundModule], options: ExtractOptions, progress: Progress
) -> tuple[list[ModuleKernels], tuple[str, ...]]:
    labels = label_modules([(module.text, module.code) for module in found])
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        work = Path(name)
        environment = capture_environment(work)
        pool = WorkerPool(options.python or default_python(), work, environment, options.timeout_s, progress.output)
        known = Environment()
        if not options.static:
            progress.stage("looking at the machine")
            known = take_survey(pool, (), device="cpu", peaks="none", log=work / "survey.log").environment
        modules, notes = [], []
        for module, label in zip(found, labels, strict=True):
            kernels, note = _run_module(module, label, pool, known, options, progress)
            modules.append(kernels)
            notes += [note] if note else []
    return modules, tuple(notes)


def _run_module(
    module: FoundModule,
    label: ModuleLabel,
    pool: WorkerPool,
    environment: Environment,
    options: ExtractOptions,
    progress: Progress,
) -> tuple[ModuleKernels, str]:
    source = read_module(module.text)
    kernels = ModuleKernels(
        label=label.label,
        title=module.path.name,
        source=source,
        launches=(),
        source_lines=module.code.stack_traces if module.code else {},
        environment=environment,
    )
    if options.static:
        return replace(kernels, launches=read_static_launches(module.text, source)), ""
    progress.stage(f"running {label.label} once")
    job = {
        "module": str(module.path.resolve()),
        "device": source.device,
        "threads": source.threads,
        "vector_lanes": source.vector_lanes,
    }
    answer = pool.call("launches", job, name=label.slug, log=pool.folder / f"{label.slug}.log")
    if answer.result is None:
        why = answer.failure.message if answer.failure else "it gave no answer"
        note = f"{label.label} could not be run ({why}); the arguments are those that its text tells"
        return replace(kernels, launches=read_static_launches(module.text, source)), note
    details = answer.result
    note = f"{label.label}: {answer.failure.message}" if answer.failure else ""
    return replace(
        kernels,
        launches=tuple(codec.decode(Launch, launch) for launch in details["launches"]),
        references=details.get("references", ()),
        compiled=details["compiled"],
    ), note


def count_by_category(kernels: Sequence[ExtractedKernel]) -> dict[Category, tuple[int, int]]:
    """For each category how many kernels there are, and how many of them have a file."""
    counts: dict[Category, tuple[int, int]] = {}
    for kernel in kernels:
        total, written = counts.get(kernel.category, (0, 0))
        counts[kernel.category] = (total + 1, written + (kernel.file is not None))
    return counts
