"""From a module's text and the launches of one run to one standalone file per distinct kernel."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ...analysis.classification import classify_operator
from ...analysis.kernel_bytes import touched_bytes
from ...errors import InductorBenchError
from ...records.category import Category
from ...records.code.details import CompiledKernel
from ...records.code.extraction import ExtractedKernel
from ...records.code.launch import Launch
from ...records.code.source import CallSite, KernelDefinition, ModuleSource, SourceLine
from ...records.run import Environment, Kernel
from ...source.module.identity import launch_key, operator_id
from ...source.standalone.header import StandaloneHeader
from ...source.standalone.writer import file_name, file_text
from ...store.files import sha256_of_text, write_text
from ...store.formats import codec
from ...trace.alignment import align_calls
from ...version import __version__
from ..modules.values import SUFFIX, ModuleValues, RecordedValues, drawn_note

UNSEEN = "it was not launched in the run that was watched"
UNREAD = "the module's text does not tell its arguments; only a run does"


@dataclass(frozen=True)
class ModuleKernels:
    """A module whose kernels are to be written, and all that is known of them.

    ``references`` belong to ``launches`` one by one, or are empty. ``compiled`` is what each Triton kernel was
    compiled to, ``call_times`` the seconds of each call site per iteration, ``measured`` the kernels of the record.
    ``library_calls`` are, for each library kernel of the record by its id, the seconds of each call site that ran it.
    ``watched`` says that the launches were seen in a run; ``values`` are the recorded ones, where they are asked for.
    ``switches`` are those of torch that decide which library kernels run, as the program had them, if that is known.
    """

    label: str
    title: str
    source: ModuleSource
    launches: tuple[Launch, ...]
    references: Sequence[Mapping[str, Any]] = ()
    compiled: Mapping[str, CompiledKernel] = field(default_factory=dict)
    source_lines: Mapping[str, Sequence[SourceLine]] = field(default_factory=dict)
    call_times: Mapping[int, float] = field(default_factory=dict)
    library_calls: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    measured: tuple[Kernel, ...] = ()
    environment: Environment = field(default_factory=Environment)
    watched: bool = False
    values: ModuleValues | None = None
    switches: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Selection:
    """Which kernels are wanted: a glob over names, a category, the ``top`` most expensive."""

    glob: str | None = None
    category: Category | None = None
    top: int | None = None

    @property
    def words(self) -> str:
        """As it was typed."""
        parts = (("--kernel", self.glob), ("--category", self.category.value if self.category else None))
        return " ".join(f"{option} {value!r}" for option, value in parts if value is not None)

    def choose(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The chosen ones, most expensive first where ``top`` asks for that, else in their order."""
        chosen = [
            one
            for one in candidates
            if (self.glob is None or fnmatchcase(one.header.name, self.glob))
            and (self.category is None or one.header.category is self.category)
        ]
        if self.top is None:
            return chosen
        return sorted(chosen, key=lambda one: -(one.header.time_s or 0.0))[: self.top]


@dataclass(frozen=True)
class Candidate:
    """A kernel with the launch that its file will make; ``launch`` is ``None`` where there is ``reason`` instead.

    ``sites`` are the indices of its call sites in the module. ``values`` are the recorded ones of this launch, ``note``
    what is drawn although recorded values are asked for. ``switches`` are those under which a library call is made.
    """

    header: StandaloneHeader
    launch: Launch | None
    kernel: KernelDefinition | None
    recorded: dict[str, Any]
    reason: str = ""
    sites: tuple[int, ...] = ()
    values: RecordedValues | None = None
    note: str = ""
    switches: Mapping[str, bool] = field(default_factory=dict)

    @property
    def identity(self) -> Hashable:
        """The same for two kernels that would give the same file but for its header and its recorded values."""
        if self.launch is None:
            return self.header.kernel_id, self.header.name
        call, more = self.launch, (*self.launch.keywords.items(), *self.switches.items())
        return self.header.kernel_id, call.storages, call.arguments, more, call.mutated


def list_candidates(module: ModuleKernels) -> list[Candidate]:
    """Every kernel of the module that ran and has code or arguments of its own: one candidate each.

    A kernel that is launched with several sets of arguments gets the set that is used most.
    """
    sites = _sites(module)
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
            found.append(_kernel_candidate(module, kernel, places, sites))
    numbers: dict[str, int] = {}
    for index, launch in enumerate(module.launches):
        if launch.operator is not None:
            found.append(_operator_candidate(module, index, launch, sites, numbers))
    return found


def write_kernels(
    candidates: Sequence[Candidate],
    folder: Path,
    written: dict[Hashable, ExtractedKernel],
    edited: Collection[str] = (),
) -> Iterator[ExtractedKernel]:
    """Writes one file per distinct candidate, and one of values beside it where these are recorded.

    Args:
        candidates: of one module, already chosen.
        folder: where the files go; it exists.
        written: identities and rows of what is there already; added to.
        edited: the names of files that somebody edited, which stay as they are.

    Yields:
        a row for each candidate, in order, once its file is there; what cannot be written has its reason.
    """
    return (_write(candidate, folder, written, edited) for candidate in candidates)


def _write(
    candidate: Candidate, folder: Path, written: dict[Hashable, ExtractedKernel], edited: Collection[str]
) -> ExtractedKernel:
    header = candidate.header
    row = ExtractedKernel(
        header.name, header.kernel_id, header.category, header.module or "", header.calls or 0, header.time_s
    )
    if candidate.launch is None:
        return replace(row, reason=candidate.reason)
    known = written.get(candidate.identity)
    if known is not None:
        return replace(row, file=known.file, values=known.values, note=known.note, sha256=known.sha256)
    name = file_name(header.name, header.kernel_id, tuple(other.file for other in written.values() if other.file))
    launch, recorded = candidate.launch, candidate.recorded
    values, note = _place_values(candidate, folder, name)
    if candidate.values is not None and values is not None:
        launch = candidate.values.launch_from(values)
        recorded = {**recorded, "reference": None, **_call_facts(launch, candidate.values.reference)}
    try:
        text = file_text(header, launch, {**recorded, **candidate.switches}, candidate.kernel)
        if name not in edited:
            write_text(folder / name, text)
    except InductorBenchError as error:
        if values is not None:
            (folder / values).unlink(missing_ok=True)
        return replace(row, reason=error.message)
    row = replace(row, file=name, values=values, note=note, sha256=sha256_of_text(text))
    written[candidate.identity] = row
    return row


def _place_values(candidate: Candidate, folder: Path, name: str) -> tuple[str | None, str]:
    """The name of the file of values beside ``name``, if there can be one, and what is to be noted."""
    if candidate.values is None:
        return None, candidate.note
    values = Path(name).stem + SUFFIX
    try:
        candidate.values.place(folder / values)
    except InductorBenchError as error:
        return None, f"its values are drawn: {error.message}"
    return values, candidate.note


def _kernel_candidate(
    module: ModuleKernels, kernel: KernelDefinition, places: Sequence[int], sites: Mapping[int, CallSite]
) -> Candidate:
    index = max(places, key=lambda place: module.launches[place].calls, default=None)
    positions = [position for place in places for position in module.launches[place].positions]
    header = _header(module, kernel.name, kernel.kernel_id, kernel.category, [sites.get(one) for one in positions])
    measured = next((one for one in module.measured if one.line == kernel.line and one.kernel_id), None)
    if measured is not None:
        header = replace(header, time_s=measured.time_s, moved_bytes=_per_call(measured))
    header = replace(header, moved_bytes=kernel.moved_bytes or header.moved_bytes)
    if index is None:
        return Candidate(header, None, kernel, {}, UNSEEN if module.watched else UNREAD)
    if header.moved_bytes is None and kernel.language == "cpp":
        moved = touched_bytes("cpp", kernel.source, module.launches[index].arguments)
        header = replace(header, moved_bytes=moved)
    recorded = _recorded(module, index)
    compiled = module.compiled.get(kernel.name)
    if compiled:
        recorded["config"] = compiled.config
    elif measured is not None and measured.config:
        recorded["config"] = measured.config
    return _with_values(module, Candidate(header, module.launches[index], kernel, recorded))


def _with_values(module: ModuleKernels, candidate: Candidate) -> Candidate:
    if module.values is None or candidate.launch is None:
        return candidate
    values = module.values.find(candidate.header.name, candidate.launch)
    return replace(candidate, values=values, note=drawn_note(values.launch if values else candidate.launch))


def _operator_candidate(
    module: ModuleKernels, index: int, launch: Launch, sites: Mapping[int, CallSite], numbers: dict[str, int]
) -> Candidate:
    assert launch.operator is not None
    stem = launch.operator.removesuffix(".default").replace(".", "_")
    numbers[stem] = numbers.get(stem, -1) + 1
    header = _header(
        module,
        f"{stem}_{numbers[stem]}",
        operator_id(launch.operator, repr(launch_key(launch))),
        classify_operator(launch.operator.replace(".", "::", 1)),
        [sites.get(position) for position in launch.positions],
    )
    calls = tuple(sites[position].index for position in launch.positions if position in sites)
    switches = module.switches if module.source.device == "cuda" else {}
    candidate = Candidate(header, launch, None, _recorded(module, index), sites=calls, switches=switches)
    return _with_values(module, candidate)


def _recorded(module: ModuleKernels, index: int) -> dict[str, Any]:
    reference = module.references[index] if index < len(module.references) else {}
    recorded = _call_facts(module.launches[index], reference)
    if module.source.device == "cpu":
        recorded["threads"] = module.source.threads or module.environment.threads
        recorded["vector_isa"] = module.environment.vector_isa
    return recorded


def _call_facts(launch: Launch, reference: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {"launch": codec.encode(launch)}
    if "fingerprint" in reference:
        facts["reference"] = reference["fingerprint"]
    return facts


def _header(
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
        torch_version=environment.torch or None,
        triton_version=environment.triton,
        device_name=environment.accelerator if module.source.device != "cpu" else environment.cpu,
        calls=len(sites) or None,
        time_s=sum(times) if times else None,
    )


def _per_call(kernel: Kernel) -> int | None:
    return round(kernel.moved_bytes / kernel.calls) if kernel.moved_bytes is not None and kernel.calls else None


def _sites(module: ModuleKernels) -> dict[int, CallSite]:
    """The call site of each position, by order: launches and the module's calls name the same things in turn."""
    seen = [(position, launch) for launch in module.launches for position in launch.positions]
    seen.sort(key=lambda pair: pair[0])
    names = [launch.kernel or _operator_name(launch) for _, launch in seen]
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


def _operator_name(launch: Launch) -> str:
    return ".".join((launch.operator or "").split(".")[:2])
