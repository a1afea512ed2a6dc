"""Makes the candidates of an extraction: each kernel of a module with the launch of its standalone file."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...analysis.classification import classify_operator
from ...analysis.traffic.kernel_bytes import touched_bytes
from ...devices.table import device_of
from ...records.category import Category
from ...records.code.details import Reference
from ...records.code.launch import Launch
from ...records.code.source import CallSite, KernelDefinition
from ...records.kernel import Kernel
from ...source.module.identity import launch_key, operator_id
from ...source.standalone.header import StandaloneHeader
from ...source.standalone.recorded import RecordedCall
from ...store.formats import codec
from ...version import __version__
from ..modules.values import RecordedValues, drawn_note
from .module import ModuleKernels, call_sites

UNSEEN = "it was not launched in the run that was watched"
UNREAD = "the module's text does not tell its arguments; only a run does"


@dataclass(frozen=True)
class Candidate:
    """A kernel with the launch of its file.

    Attributes:
        header: the description of the kernel.
        launch: the launch; ``None`` where the kernel can have no file.
        kernel: the definition; ``None`` for a library call.
        recorded: the facts for the file's harness.
        reason: the reason why there is no launch.
        sites: indices of its call sites in the module.
        values: the recorded values of this launch.
        note: the values that are drawn although recorded ones were requested.
        switches: the settings of torch for a library call.
    """

    header: StandaloneHeader
    launch: Launch | None
    kernel: KernelDefinition | None
    recorded: RecordedCall
    reason: str = ""
    sites: tuple[int, ...] = ()
    values: RecordedValues | None = None
    note: str = ""
    switches: Mapping[str, bool] = field(default_factory=dict)

    @property
    def identity(self) -> Hashable:
        """A key that is equal for kernels whose files differ only in header and recorded values."""
        if self.launch is None:
            return self.header.kernel_id, self.header.name
        call, more = self.launch, (*self.launch.keywords.items(), *self.switches.items())
        return self.header.kernel_id, call.storages, call.arguments, more, call.mutated


def list_candidates(module: ModuleKernels) -> list[Candidate]:
    """One candidate for each called kernel and each distinct library call of the module.

    A kernel that is launched with several sets of arguments has the most frequent set.
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
            found.append(_kernel_candidate(module, kernel, places, sites))
    numbers: dict[str, int] = {}
    for index, launch in enumerate(module.launches):
        if launch.operator is not None:
            found.append(_operator_candidate(module, index, launch, sites, numbers))
    return found


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
    elif measured is not None and measured.compiled.config:
        recorded["config"] = measured.compiled.config
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
    switches = module.switches if device_of(module.source.device).has_library_switches else {}
    candidate = Candidate(header, launch, None, _recorded(module, index), sites=calls, switches=switches)
    return _with_values(module, candidate)


def _recorded(module: ModuleKernels, index: int) -> RecordedCall:
    reference = module.references[index] if index < len(module.references) else Reference()
    recorded = call_facts(module.launches[index], reference)
    if device_of(module.source.device).runs_on_host:
        recorded["threads"] = module.source.threads or module.environment.host.threads
        recorded["vector_isa"] = module.environment.host.vector_isa
    return recorded


def call_facts(launch: Launch, reference: Reference) -> RecordedCall:
    facts: RecordedCall = {"launch": codec.encode(launch)}
    if reference.fingerprint is not None:
        facts["reference"] = reference.fingerprint
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
        torch_version=environment.versions.torch or None,
        triton_version=environment.versions.triton,
        device_name=device_of(module.source.device).name_in(environment),
        calls=len(sites) or None,
        time_s=sum(times) if times else None,
    )


def _per_call(kernel: Kernel) -> int | None:
    moved = kernel.work.moved_bytes
    return round(moved / kernel.calls) if moved is not None and kernel.calls else None
