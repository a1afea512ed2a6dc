"""From a module's text and the launches of one run to one standalone file per distinct kernel."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .. import __version__
from ..analysis.classification import classify_operator
from ..errors import InductorBenchError
from ..records.category import Category
from ..records.launch import Launch
from ..records.run import Environment, Kernel
from ..records.source import CallSite, KernelDefinition, ModuleSource, SourceLine
from ..source.identity import operator_id
from ..source.standalone import StandaloneHeader, file_name, file_text
from ..store import codec
from ..store.files import write_text
from ..trace.alignment import align_calls

UNSEEN = "it was not launched in the run that was watched"


@dataclass(frozen=True)
class ModuleKernels:
    """A module whose kernels are to be written, and all that is known of them.

    ``references`` belong to ``launches`` one by one, or are empty. ``compiled`` is what each Triton kernel was
    compiled to, ``call_times`` the seconds of each call site per iteration, ``measured`` the kernels of the record.
    """

    label: str
    title: str
    source: ModuleSource
    launches: tuple[Launch, ...]
    references: Sequence[Mapping[str, Any]] = ()
    compiled: Mapping[str, Any] = field(default_factory=dict)
    source_lines: Mapping[str, Sequence[SourceLine]] = field(default_factory=dict)
    call_times: Mapping[int, float] = field(default_factory=dict)
    measured: tuple[Kernel, ...] = ()
    environment: Environment = field(default_factory=Environment)


@dataclass(frozen=True)
class ExtractedKernel:
    """One row of an extraction: a kernel, and its file or the reason why it has none.

    ``time_s`` is its time per iteration in the model and ``calls`` its launches, where known.
    """

    name: str
    kernel_id: str
    category: Category
    module: str
    calls: int
    time_s: float | None = None
    file: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class Selection:
    """Which kernels are wanted: a glob over names, a category, the dearest ``top``."""

    glob: str | None = None
    category: Category | None = None
    top: int | None = None

    def choose(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The chosen ones, dearest first where ``top`` asks for that, else in their order."""
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
    """A kernel with the launch that its file will make; ``launch`` is ``None`` where there is ``reason`` instead."""

    header: StandaloneHeader
    launch: Launch | None
    kernel: KernelDefinition | None
    recorded: dict[str, Any]
    reason: str = ""

    @property
    def identity(self) -> str:
        """The same for two kernels that would give the same file but for its header."""
        if self.launch is None:
            return f"{self.header.kernel_id} {self.header.name}"
        spec = replace(self.launch, kernel="", calls=0, positions=())
        return f"{self.header.kernel_id} {json.dumps(codec.encode(spec))}"


def list_candidates(module: ModuleKernels) -> list[Candidate]:
    """Every kernel of the module's census that has code or arguments of its own: one candidate each.

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


def write_kernels(candidates: Sequence[Candidate], folder: Path, written: dict[str, str]) -> list[ExtractedKernel]:
    """Writes one file per distinct candidate.

    Args:
        candidates: of one module, already chosen.
        folder: where the files go; it exists.
        written: identities and file names of what is there already; added to.

    Returns:
        a row for each candidate, in order; what cannot be written has its reason.
    """
    return [_write(candidate, folder, written) for candidate in candidates]


def _write(candidate: Candidate, folder: Path, written: dict[str, str]) -> ExtractedKernel:
    header = candidate.header
    row = ExtractedKernel(
        header.name, header.kernel_id, header.category, header.module or "", header.calls or 0, header.time_s
    )
    if candidate.launch is None:
        return replace(row, reason=candidate.reason)
    known = written.get(candidate.identity)
    if known is not None:
        return replace(row, file=known)
    name = file_name(header.name, header.kernel_id, tuple(written.values()))
    try:
        write_text(folder / name, file_text(header, candidate.launch, candidate.recorded, candidate.kernel))
    except InductorBenchError as error:
        return replace(row, reason=error.message)
    written[candidate.identity] = name
    return replace(row, file=name)


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
        return Candidate(header, None, kernel, {}, UNSEEN)
    recorded = _recorded(module, index)
    compiled = module.compiled.get(kernel.name)
    if compiled:
        recorded["config"] = compiled["config"]
    elif measured is not None and measured.config:
        recorded["config"] = measured.config
    return Candidate(header, module.launches[index], kernel, recorded)


def _operator_candidate(
    module: ModuleKernels, index: int, launch: Launch, sites: Mapping[int, CallSite], numbers: dict[str, int]
) -> Candidate:
    assert launch.operator is not None
    stem = launch.operator.removesuffix(".default").replace(".", "_")
    numbers[stem] = numbers.get(stem, -1) + 1
    spec = replace(launch, calls=0, positions=())
    header = _header(
        module,
        f"{stem}_{numbers[stem]}",
        operator_id(launch.operator, json.dumps(codec.encode(spec))),
        classify_operator(launch.operator.replace(".", "::", 1)),
        [sites.get(position) for position in launch.positions],
    )
    return Candidate(header, launch, None, _recorded(module, index))


def _recorded(module: ModuleKernels, index: int) -> dict[str, Any]:
    recorded: dict[str, Any] = {"launch": codec.encode(module.launches[index])}
    reference = module.references[index] if index < len(module.references) else {}
    if "fingerprint" in reference:
        recorded["reference"] = reference["fingerprint"]
    if module.source.device == "cpu":
        recorded["threads"] = module.source.threads or module.environment.threads
        recorded["vector_isa"] = module.environment.vector_isa
    return recorded


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
