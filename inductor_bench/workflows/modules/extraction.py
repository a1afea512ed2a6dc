"""The kernels of a module or a RUN with their launches: selected, described, and read from a RUN's files."""

from __future__ import annotations

import functools
import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from ...analysis.call_work import classify_operator, count_touched_bytes
from ...analysis.evidence_files import AttributedModule, EvidenceFiles
from ...devices.table import find_device
from ...errors import InductorBenchError, UsageError
from ...records.base import Category, Failure
from ...records.code import (
    CallSite,
    CompiledKernel,
    Details,
    KernelDefinition,
    Launch,
    ModuleBuffers,
    ModuleSource,
    Reference,
    SourceLine,
)
from ...records.evidence import Evidence
from ...records.module import Kernel, ModuleRecord
from ...records.request import DRAWN, RECORDED, Selection
from ...records.request_fields import list_option_words
from ...records.run import Environment, Run
from ...source.generated_text import compute_operator_id, launch_key
from ...source.labels import ModuleLabel
from ...source.standalone_header import RecordedCall, StandaloneHeader
from ...source.static_calls import read_buffers, read_static_launches
from ...store import codec
from ...store.folder import EVIDENCE, INDEX, RECORD, RunFolder, read_index
from ...store.run_files import load_evidence, load_module_details
from ...trace.attribution import align_calls
from ...version import __version__
from .module_measurements import ModuleValues, RecordedValues, make_values_folder, note_drawn_values, read_values

# A module whose kernels are extracted, and the call sites of its launches.


@dataclass(frozen=True)
class ModuleKernels:
    """A module whose kernels are extracted, and the known facts about them."""

    label: str  # the label of the module
    title: str  # the title of the program
    source: ModuleSource  # the facts of the module's text
    launches: tuple[Launch, ...]  # the launches of its kernels and library calls
    references: Sequence[Reference] = ()  # one reference for each launch, or empty
    # the result of compiling each Triton kernel, by its variable
    compiled: Mapping[str, CompiledKernel] = field(default_factory=dict)
    # lines of the program by provenance handle
    source_lines: Mapping[str, Sequence[SourceLine]] = field(default_factory=dict)
    call_times: Mapping[int, float] = field(default_factory=dict)  # seconds per iteration by call site
    # by the id of each library kernel of the record, its seconds per iteration by call site
    library_calls: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    measured: tuple[Kernel, ...] = ()  # the kernels of the record
    environment: Environment = field(default_factory=Environment)  # the machine and the versions
    watched: bool = False  # whether the launches were recorded in a run
    values: ModuleValues | None = None  # the recorded values, if they were requested
    # the program's settings of torch that select library kernels, where known
    switches: Mapping[str, bool] = field(default_factory=dict)
    text: str = ""  # the module's text

    @cached_property
    def candidates(self) -> list[ExtractionCandidate]:
        """Returns everything that can have a file: each called kernel and each distinct library call."""
        return list_candidates(self)

    @cached_property
    def buffers(self) -> ModuleBuffers:
        """Returns what each call of the module reads and writes.

        Raises:
            InductorBenchError: the module's text cannot be followed.
        """
        return read_buffers(self.text, self.source)


def call_sites(module: ModuleKernels) -> dict[int, CallSite]:
    """Returns the call site of each launch by its position, from the order of the launches and of the module's
    calls."""
    seen = [(position, launch) for launch in module.launches for position in launch.positions]
    seen.sort(key=lambda pair: pair[0])
    names = [launch.kernel or ".".join((launch.operator or "").split(".")[:2]) for _, launch in seen]
    choices = {name: call.target for call in module.source.calls for name in call.alternatives}
    expected = [
        call.kernel or (call.target if call.alternatives else call.operator or call.target)
        for call in module.source.calls
    ]
    places = align_calls(expected, [choices.get(name, name) for name in names])
    return {
        position: module.source.calls[place]
        for (position, _), place in zip(seen, places, strict=True)
        if place is not None
    }


# Reads the kernels of a RUN from its files: module texts, traces, and the results of the measuring processes.


DAMAGED = "the RUN is damaged; restore it from a copy, or measure again"
WITHOUT_TIMES = "the files are written, but without it the times of library calls are not known"


@dataclass(frozen=True)
class RunInMaking:
    """A run that this process is measuring. Recorded values are in its scratch folder, from which they may be moved."""

    run: Run
    evidence: Evidence
    files: EvidenceFiles


def read_modules_of_run(
    folder: RunFolder, values: str, making: RunInMaking | None = None
) -> tuple[list[ModuleKernels], tuple[Failure, ...]]:
    """Returns the modules of a RUN with their kernels, and the failures of modules that cannot be read.

    Args:
        folder: the RUN.
        values: the kernels' input values: ``recorded`` (those of the program) or ``drawn``.
        making: the run, if this process is measuring it; what is already read of its files is not read again.

    Raises:
        InductorBenchError: the record cannot be read.
    """
    if making is None and values != RECORDED:
        with suppress(OSError):  # a file may be gone meanwhile; the code that reads it reports this
            files = sorted(path for place in _READ for path in folder.path.glob(place))
            marks = tuple((path.name, facts.st_mtime_ns, facts.st_size) for path in files for facts in [path.stat()])
            modules, failures = _read_stored_modules(folder.path, marks)
            return list(modules), failures
    return _read_modules(folder, values, making)


_READ = (RECORD, EVIDENCE, "modules/*", "traces/*")
"""The files of a RUN from which its modules are read."""


@functools.lru_cache(maxsize=2)
def _read_stored_modules(path: Path, _: object) -> tuple[list[ModuleKernels], tuple[Failure, ...]]:
    """Returns the modules of a RUN.

    They are cached as long as the files are the same, because a command may ask many times.
    """
    return _read_modules(RunFolder(path), DRAWN, None)


def _read_modules(
    folder: RunFolder, values: str, making: RunInMaking | None
) -> tuple[list[ModuleKernels], tuple[Failure, ...]]:
    run = making.run if making else folder.load()
    evidence = making.evidence if making else load_evidence(folder, run)
    files = making.files if making else EvidenceFiles(folder)
    kept = None
    if values == RECORDED:
        kept = {} if making else _find_kept_values(folder, run)
    known = {module.slug: module for module in evidence.modules}
    modules, failures = [], []
    for record in run.modules:
        try:
            if record.slug not in known:
                raise InductorBenchError(f"{folder.path / EVIDENCE} does not name it")
            details = files.details(known[record.slug])
            found = _read_values(folder, record, details, kept, bool(making)) if kept is not None else None
            module = replace(_read_module_of_run(run, record, details, files), values=found)
        except InductorBenchError as error:
            message = f"{record.label}: {error.message}"
            failures.append(Failure("extract", "invalid", message, error.hint or DAMAGED, subject=record.label))
            continue
        attributed = None
        try:
            attributed = files.attributed(known[record.slug])
        except InductorBenchError as error:
            failures.append(Failure("extract", "missing", error.message, WITHOUT_TIMES, subject=record.label))
        modules.append(_add_times(module, attributed, record) if attributed else module)
    return modules, tuple(failures)


def _read_module_of_run(run: Run, record: ModuleRecord, details: Details, files: EvidenceFiles) -> ModuleKernels:
    label = ModuleLabel(record.label, record.slug)
    return replace(
        list_module_kernels(label, run, files.source(record.slug), details, files.text(record.slug)),
        source_lines=files.source_lines(record.slug),
        measured=record.kernels,
    )


def _add_times(module: ModuleKernels, attributed: AttributedModule, record: ModuleRecord) -> ModuleKernels:
    """The module with the seconds per iteration of its call sites and library calls."""
    ids = {(kernel.name, kernel.operator): kernel.kernel_id for kernel in record.kernels if kernel.line is None}
    times: dict[int, float] = defaultdict(float)
    library_calls: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for activity in attributed.activities:
        if activity.call is None or activity.iteration not in attributed.steady:
            continue
        time_s = activity.duration_s / len(attributed.steady)
        times[activity.call.index] += time_s
        operator = activity.operator.replace("::", ".", 1) if activity.operator else None
        if activity.kernel is None and (activity.name, operator) in ids:
            library_calls[ids[activity.name, operator]][activity.call.index] += time_s
    return replace(module, call_times=times, library_calls=library_calls)


def _find_kept_values(folder: RunFolder, run: Run) -> dict[tuple[str, str], str]:
    """The files of recorded values in a RUN, by module and kernel."""
    if not any(load_module_details(folder, module.slug).recorded is not None for module in run.modules):
        again = f"inductor-bench breakdown {shlex.quote(run.target)} --values recorded"
        raise UsageError(
            f"{folder.path} holds no recorded values",
            f"record them while the program is measured: {again}",
            "no-values",
        )
    rows = read_index(folder.kernels) if os.path.isfile(folder.kernels / INDEX) else ()
    return {(row.module, row.name): row.values for row in rows if row.values}


def _read_values(
    folder: RunFolder, record: ModuleRecord, details: Details, kept: Mapping[tuple[str, str], str], in_making: bool
) -> ModuleValues:
    if in_making:
        return read_values(details, make_values_folder(folder) / record.slug)
    names = {name: file for (module, name), file in kept.items() if module == record.label}
    return read_values(details, folder.kernels, names)


def list_module_kernels(
    label: ModuleLabel, run: Run, source: ModuleSource, details: Details, text: str
) -> ModuleKernels:
    """Returns a module's kernels with the launches of its measuring process, otherwise with those in its text."""
    return ModuleKernels(
        label=label.label,
        title=run.title,
        source=source,
        launches=details.launches or read_static_launches(text, source),
        references=details.references if details.launches else (),
        compiled=details.compiled,
        switches=details.switches,
        environment=run.environment,
        watched=bool(details.launches),
        text=text,
    )


# Makes the candidates of an extraction: each kernel of a module with the launch of its standalone file.


UNSEEN = "it was not launched in the observed run"
UNREAD = "the module's text does not hold its arguments; only a run shows them"


@dataclass(frozen=True)
class ExtractionCandidate:
    """A kernel with the launch of its file."""

    header: StandaloneHeader  # the description of the kernel
    launch: Launch | None  # the launch; ``None`` where the kernel can have no file
    kernel: KernelDefinition | None  # the definition; ``None`` for a library call
    recorded: RecordedCall  # the facts for the file's harness
    reason: str = ""  # the reason why there is no launch
    sites: tuple[int, ...] = ()  # indices of its call sites in the module
    values: RecordedValues | None = None  # the recorded values of this launch
    note: str = ""  # the values that are drawn although recorded ones were requested
    switches: Mapping[str, bool] = field(default_factory=dict)  # the settings of torch for a library call

    @property
    def identity(self) -> Hashable:
        """A key that is equal for kernels whose files differ only in header and recorded values."""
        if self.launch is None:
            return self.header.kernel_id, self.header.name
        call, more = self.launch, (*self.launch.keywords.items(), *self.switches.items())
        return self.header.kernel_id, call.storages, call.arguments, more, call.mutated


def list_candidates(module: ModuleKernels) -> list[ExtractionCandidate]:
    """Returns one candidate for each called kernel and each distinct library call of the module.

    If a kernel is launched with several sets of arguments, it has the most frequent set.
    """
    sites = call_sites(module)
    by_kernel: dict[str, list[int]] = {}
    for index, launch in enumerate(module.launches):
        if launch.operator is None:
            by_kernel.setdefault(launch.kernel, []).append(index)
    called = {call.kernel for call in module.source.calls} | {
        name for call in module.source.calls for name in call.alternatives
    }
    found = []
    for kernel in module.source.kernels:
        places = by_kernel.get(kernel.name, [])
        if places or kernel.name in called:
            found.append(_make_kernel_candidate(module, kernel, places, sites))
    numbers: dict[str, int] = {}
    for index, launch in enumerate(module.launches):
        if launch.operator is not None:
            found.append(_make_operator_candidate(module, index, launch, sites, numbers))
    return found


def _make_kernel_candidate(
    module: ModuleKernels, kernel: KernelDefinition, places: Sequence[int], sites: Mapping[int, CallSite]
) -> ExtractionCandidate:
    index = max(places, key=lambda place: module.launches[place].calls, default=None)
    positions = [position for place in places for position in module.launches[place].positions]
    header = _make_header(module, kernel.name, kernel.kernel_id, kernel.category, [sites.get(one) for one in positions])
    measured = next((one for one in module.measured if one.line == kernel.line and one.kernel_id), None)
    if measured is not None:
        header = replace(header, time_s=measured.time_s, moved_bytes=_compute_time_per_call(measured))
    header = replace(header, moved_bytes=kernel.moved_bytes or header.moved_bytes)
    if index is None:
        return ExtractionCandidate(header, None, kernel, {}, UNSEEN if module.watched else UNREAD)
    if header.moved_bytes is None and kernel.language == "cpp":
        moved = count_touched_bytes("cpp", kernel.source, module.launches[index].arguments)
        header = replace(header, moved_bytes=moved)
    recorded = _find_recorded_launch(module, index)
    compiled = module.compiled.get(kernel.name)
    if compiled:
        recorded["config"] = compiled.config
    elif measured is not None and measured.compiled.config:
        recorded["config"] = measured.compiled.config
    return _add_values(module, ExtractionCandidate(header, module.launches[index], kernel, recorded))


def _add_values(module: ModuleKernels, candidate: ExtractionCandidate) -> ExtractionCandidate:
    if module.values is None or candidate.launch is None:
        return candidate
    values = module.values.find(candidate.header.name, candidate.launch)
    return replace(candidate, values=values, note=note_drawn_values(values.launch if values else candidate.launch))


def _make_operator_candidate(
    module: ModuleKernels, index: int, launch: Launch, sites: Mapping[int, CallSite], numbers: dict[str, int]
) -> ExtractionCandidate:
    assert launch.operator is not None
    stem = launch.operator.removesuffix(".default").replace(".", "_")
    numbers[stem] = numbers.get(stem, -1) + 1
    header = _make_header(
        module,
        f"{stem}_{numbers[stem]}",
        compute_operator_id(launch.operator, repr(launch_key(launch))),
        classify_operator(launch.operator.replace(".", "::", 1)),
        [sites.get(position) for position in launch.positions],
    )
    calls = tuple(sites[position].index for position in launch.positions if position in sites)
    known = find_device(module.source.device).library_switches
    switches = {name: value for name, value in module.switches.items() if name in known}
    candidate = ExtractionCandidate(
        header, launch, None, _find_recorded_launch(module, index), sites=calls, switches=switches
    )
    return _add_values(module, candidate)


def _find_recorded_launch(module: ModuleKernels, index: int) -> RecordedCall:
    reference = module.references[index] if index < len(module.references) else Reference()
    recorded = call_facts(module.launches[index], reference)
    if find_device(module.source.device).runs_on_host:
        recorded["threads"] = module.source.threads or module.environment.host.threads
        recorded["vector_isa"] = module.environment.host.vector_isa
    return recorded


def call_facts(launch: Launch, reference: Reference) -> RecordedCall:
    facts: RecordedCall = {"launch": codec.encode(launch)}
    if reference.fingerprint is not None:
        facts["reference"] = reference.fingerprint
    return facts


def _make_header(
    module: ModuleKernels, name: str, kernel_id: str, category: Category, sites: Sequence[CallSite | None]
) -> StandaloneHeader:
    seen = [site for site in sites if site is not None]
    times = [module.call_times[site.index] for site in seen if site.index in module.call_times]
    environment = module.environment
    return StandaloneHeader(
        name=name,
        kernel_id=kernel_id,
        category=category,
        aten_ops=tuple(dict.fromkeys(op for site in seen for op in site.aten_ops)),
        source_nodes=tuple(dict.fromkeys(node for site in seen for node in site.source_nodes)),
        source_lines=tuple(
            dict.fromkeys(line for site in seen for line in module.source_lines.get(site.handle or "", ()))
        ),
        module=module.label,
        model=module.title,
        tool_version=__version__,
        torch_version=environment.versions.torch or None,
        triton_version=environment.versions.triton,
        device_name=find_device(module.source.device).name_in(environment),
        calls=len(sites) or None,
        time_s=sum(times) if times else None,
    )


def _compute_time_per_call(kernel: Kernel) -> int | None:
    moved = kernel.work.moved_bytes
    return round(moved / kernel.calls) if moved is not None and kernel.calls else None


# Lists the calls of a module that can have no file: undefined kernels, and library calls without a recorded run.


NOT_DEFINED = "the module calls it, but does not define it"
NOT_WATCHED = "the module's text does not hold all arguments of this library call; only a run shows them"


def list_lost_kernels(module: ModuleKernels) -> list[ExtractionCandidate]:
    """Returns a candidate with a reason for each call that can have no file: a kernel, or an operator with all of its
    calls."""
    found = [
        _make_row_without_file(module, name, "", Category.OTHER, calls, NOT_DEFINED)
        for name, calls in module.source.undefined
    ]
    if module.watched:
        return found
    operators = Counter(call.operator for call in module.source.calls if call.operator and not call.alternatives)
    for launch in module.launches:
        if launch.operator is not None:
            operators[launch.operator.rpartition(".")[0]] -= launch.calls
    return found + [
        _make_row_without_file(
            module,
            operator.replace(".", "_"),
            compute_operator_id(operator, ""),
            classify_operator(operator.replace(".", "::", 1)),
            calls,
            NOT_WATCHED,
        )
        for operator, calls in operators.items()
        if operator is not None and calls > 0
    ]


def _make_row_without_file(
    module: ModuleKernels, name: str, kernel_id: str, category: Category, calls: int, reason: str
) -> ExtractionCandidate:
    header = StandaloneHeader(
        name, kernel_id, category, module=module.label, model=module.title, tool_version=__version__, calls=calls
    )
    return ExtractionCandidate(header, None, None, {}, reason)


# The selection of kernels: by name, by category, or the most expensive ones.


def choose_kernels(modules: Sequence[ModuleKernels], selection: Selection) -> list[ExtractionCandidate]:
    """Returns the selected kernels of the modules, with ``top`` the most expensive first, otherwise in their order.

    Raises:
        UsageError: the modules have kernels, but the selection is empty.
    """
    candidates = [one for module in modules for one in (*module.candidates, *list_lost_kernels(module))]
    chosen = [one for one in candidates if _is_selected(one.header, selection)]
    if selection.top is not None:
        chosen = sorted(chosen, key=lambda one: -(one.header.time_s or 0.0))[: selection.top]
    if candidates and not chosen:
        categories = ", ".join(sorted({one.header.category.value for one in candidates}))
        raise UsageError(
            f"none of the {len(candidates)} kernels fits {_describe_selection(selection)}",
            f"--list shows them all; their categories: {categories}",
            "no-fitting-kernel",
        )
    return chosen


def _is_selected(header: StandaloneHeader, selection: Selection) -> bool:
    named = selection.glob is None or fnmatchcase(header.name, selection.glob)
    return named and (selection.category is None or header.category is selection.category)


def _describe_selection(selection: Selection) -> str:
    return shlex.join(list_option_words(replace(selection, top=None)))
