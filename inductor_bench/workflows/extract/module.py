"""A module whose kernels are extracted, and the call sites of its launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...records.code.details import CompiledKernel, Reference
from ...records.code.launch import Launch
from ...records.code.source import CallSite, ModuleSource, SourceLine
from ...records.kernel import Kernel
from ...records.run import Environment
from ...trace.alignment import align_calls
from ..modules.values import ModuleValues


@dataclass(frozen=True)
class ModuleKernels:
    """A module whose kernels are extracted, and the known facts about them.

    Attributes:
        label: the label of the module.
        title: the title of the program.
        source: the facts of the module's text.
        launches: the launches of its kernels and library calls.
        references: one reference for each launch, or empty.
        compiled: the result of compiling each Triton kernel, by its variable.
        source_lines: lines of the program by provenance handle.
        call_times: seconds per iteration by call site.
        library_calls: by the id of each library kernel of the record, its seconds per iteration by call site.
        measured: the kernels of the record.
        environment: the machine and the versions.
        watched: whether the launches were recorded in a run.
        values: the recorded values, where they were requested.
        switches: the program's settings of torch that select library kernels, where known.
    """

    label: str
    title: str
    source: ModuleSource
    launches: tuple[Launch, ...]
    references: Sequence[Reference] = ()
    compiled: Mapping[str, CompiledKernel] = field(default_factory=dict)
    source_lines: Mapping[str, Sequence[SourceLine]] = field(default_factory=dict)
    call_times: Mapping[int, float] = field(default_factory=dict)
    library_calls: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    measured: tuple[Kernel, ...] = ()
    environment: Environment = field(default_factory=Environment)
    watched: bool = False
    values: ModuleValues | None = None
    switches: Mapping[str, bool] = field(default_factory=dict)


def call_sites(module: ModuleKernels) -> dict[int, CallSite]:
    """The call site of each launch by its position, from the order of the launches and of the module's calls."""
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
