"""A module whose kernels are extracted, and the call sites of its launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...records.code.details import CompiledKernel
from ...records.code.launch import Launch
from ...records.code.source import CallSite, ModuleSource, SourceLine
from ...records.run import Environment, Kernel
from ...trace.alignment import align_calls
from ..modules.values import ModuleValues


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


def call_sites(module: ModuleKernels) -> dict[int, CallSite]:
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
