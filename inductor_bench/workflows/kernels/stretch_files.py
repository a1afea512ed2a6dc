"""Writes a library call, or several calls of a RUN, as a file to edit: one kernel that replaces them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ... import units
from ...analysis.findings.doubts import explain_busy_kernels
from ...analysis.findings.finding import plural
from ...devices.table import find_device
from ...errors import InductorBenchError, UsageError
from ...records.code import Launch, Storage
from ...records.edit import CPP, TRITON
from ...records.request import DRAWN
from ...records.run import Run
from ...source.edited import KernelEdit, digest, read_passed_form
from ...source.standalone_header import make_plain_line
from ...source.stretch_texts import launch_facts, list_parameter_names, write_cpp_start, write_triton_start
from ...source.stretches import CallGroup, GroupCall, StretchReader
from ...store import codec
from ...store.folder import RunFolder
from ..modules.extraction import ExtractionCandidate, ModuleKernels, read_modules_of_run

BETWEEN = ".."
"""What stands between the first and the last kernel of a group in ``RUN#FIRST..LAST``."""


@dataclass(frozen=True)
class RunCalls:
    """Calls of a RUN that follow each other."""

    folder: RunFolder
    run: Run
    module: ModuleKernels
    stretch: CallGroup
    candidates: tuple[ExtractionCandidate, ...]  # the kernel or library call of each

    @property
    def language(self) -> str:
        """Returns the language of a kernel that replaces the calls."""
        return CPP if find_device(self.module.source.device).runs_on_host else TRITON

    @property
    def sources(self) -> list[str]:
        """Returns the source of each call; empty for a library call."""
        kernels = [part.kernel for part in self.stretch.parts]
        return [read_passed_form(one.language, one.source) if one is not None else "" for one in kernels]

    @property
    def name(self) -> str:
        """Returns the name of the calls in the RUN."""
        names = [candidate.header.name for candidate in self.candidates]
        return names[0] if len(names) == 1 else f"{names[0]}{BETWEEN}{names[-1]}"


def find_calls(folder: RunFolder, name: str) -> RunCalls | None:
    """Returns the library call, or the group, that a name stands for; ``None`` for a generated kernel or an unknown
    name.

    Raises:
        UsageError: a group lacks its first or last kernel, the RUN has no such kernel, or the calls cannot be replaced
            by one; the message says why.
        InductorBenchError: a file of the RUN cannot be read.
    """
    ends = name.split(BETWEEN)
    if len(ends) > 2 or (len(ends) == 2 and "" in ends):
        one = "last" if ends[0] else "first"
        missing = "more than a first and a last kernel" if len(ends) > 2 else f"no {one} kernel"
        target = shlex.quote(f"{folder.path}#FIRST{BETWEEN}LAST")
        hint = f"name both ends of the group: inductor-bench kernel {target} --edit FILE"
        raise UsageError(f"{name} names {missing}", hint, "wrong-target")
    modules, _ = read_modules_of_run(folder, DRAWN)
    for module in modules:
        candidates = module.candidates
        found = [_find_line(module, candidates, end.removesuffix(".py")) for end in (ends[0], ends[-1])]
        if None in found:
            continue
        first, last = sorted(line for line in found if line is not None)
        if len(ends) == 1 and any(one.header.name == name and one.kernel is not None for one in candidates):
            return None
        return _read_calls(folder, module, candidates, name, (first, last))
    if len(ends) > 1:
        words = f"{folder.path} has no module that calls both {ends[0]} and {ends[-1]}"
        raise UsageError(words, "name the first and the last kernel of a group in one module", "no-such-target")
    return None


def _find_line(module: ModuleKernels, candidates: Sequence[ExtractionCandidate], name: str) -> int | None:
    """Returns the line of the first call of a kernel or library call."""
    for candidate in candidates:
        if candidate.header.name == name:
            sites = candidate.sites
            calls = [one for one in module.source.calls if one.index in sites or (one.kernel == name and not sites)]
            return min((call.line for call in calls), default=None)
    return None


def _read_calls(
    folder: RunFolder,
    module: ModuleKernels,
    candidates: Sequence[ExtractionCandidate],
    name: str,
    lines: tuple[int, int],
) -> RunCalls:
    run = folder.load()
    try:
        if module.source.cpp_wrapper:
            raise InductorBenchError("the module makes its calls from C++", "compile it without cpp_wrapper")
        stretch = StretchReader(module.text, module.source).read(*lines)
    except InductorBenchError as error:
        what = "these calls cannot be replaced by one" if BETWEEN in name else "this call cannot be replaced"
        raise UsageError(f"{name}: {what} ({error.message})", error.hint or "choose others", "wrong-target") from None
    chosen = tuple(_find_candidate(module, candidates, part) for part in stretch.parts)
    stretch = replace(stretch, launch=replace(stretch.launch, storages=tuple(_list_storages(stretch, chosen))))
    parts = tuple(
        replace(part, launch=replace(part.launch, storages=stretch.launch.storages)) for part in stretch.parts
    )
    return RunCalls(folder, run, module, replace(stretch, parts=parts), chosen)


def _find_candidate(
    module: ModuleKernels, candidates: Sequence[ExtractionCandidate], part: GroupCall
) -> ExtractionCandidate:
    sites = {call.index for call in module.source.calls if call.line == part.line}
    for candidate in candidates:
        same = candidate.kernel is not None and part.kernel is not None and candidate.kernel.name == part.kernel.name
        if candidate.launch is not None and (same or (part.kernel is None and sites & set(candidate.sites))):
            return candidate
    name = part.kernel.name if part.kernel is not None else part.launch.operator
    raise UsageError(f"{name} was not seen when it ran", "break the program down again", "wrong-target")


def _list_storages(stretch: CallGroup, candidates: Sequence[ExtractionCandidate]) -> Iterator[Storage]:
    """Returns the memory of the calls. The first call that reads a storage decides its values and alignment."""
    seen: dict[int, Storage] = {}
    for part, candidate in zip(stretch.parts, candidates, strict=True):
        launch = candidate.launch
        assert launch is not None
        for here, there in zip(_list_arguments(part.launch), _list_arguments(launch), strict=False):
            if here.tensor is not None and there.tensor is not None:
                seen.setdefault(here.tensor.storage, launch.storages[there.tensor.storage])
    written = {view.storage for view in _list_views(stretch, stretch.output_only)}
    written -= {
        view.storage for view in _list_views(stretch, range(len(stretch.launch.arguments)), but=stretch.output_only)
    }
    for number, storage in enumerate(stretch.launch.storages):
        known = seen.get(number)
        if known is None or known.dtype != storage.dtype or number in written:
            yield storage if known is None else replace(storage, alignment=known.alignment)
            continue
        fits = known.values.kind != "recorded" or (known.values.file is None and known.size_bytes == storage.size_bytes)
        yield replace(storage, alignment=known.alignment, values=known.values if fits else storage.values)


def _list_arguments(launch: Launch) -> list[Any]:
    return [*launch.arguments, *launch.keywords.values()]


def _list_views(stretch: CallGroup, places: Sequence[int], but: Sequence[int] = ()) -> Iterator[Any]:
    return (stretch.launch.arguments[place].tensor for place in places if place not in but)


# The file to edit.


def make_calls_edit(found: RunCalls, place: Path) -> KernelEdit:
    """Makes the edit that replaces calls, before anybody has changed it: a kernel that does what they do.

    Raises:
        UsageError: there is no kernel to begin with.
    """
    configs = [one.recorded.get("config") or {} for one in found.candidates]
    on_host = found.language == CPP
    source = (
        write_cpp_start(found.stretch, found.sources)
        if on_host
        else write_triton_start(found.stretch, found.sources, configs)
    )
    versions = found.run.environment.versions
    return KernelEdit(
        path=place,
        kernel=found.name,
        language=found.language,
        source=source,
        original=digest(source),
        original_source=source,
        torch=versions.torch or "",
        triton=None if on_host else versions.triton,
        device=found.candidates[0].header.device_name or "",
        reference=_write_reference(found),
        facts=_list_edit_facts(found),
    )


def _list_edit_facts(found: RunCalls) -> Mapping[str, Any]:
    stretch, first = found.stretch, found.candidates[0]
    times = [one.header.time_s for one in found.candidates]
    recorded = {name: first.recorded.get(name) for name in ("threads", "vector_isa")}
    return {
        "kernel_id": stretch.id,
        "category": first.header.category.value,
        "run": str(found.folder.path),
        "module": first.header.module,
        "calls": 1,
        "time_s": None if None in times else math.fsum(time for time in times if time is not None),
        "moved_bytes": count_moved_bytes(stretch),
        "parameters": list_parameter_names(stretch),
        "roles": {"output_only": list(stretch.output_only), "cleared": [], "scratch": list(stretch.scratch)},
        "recorded": recorded if found.language == CPP else {},
        "launches": [codec.encode(stretch.launch)],
        "replaces": {
            "calls": [part.target for part in stretch.parts],
            "required": stretch.required,
            "parts": [*map(_list_part_facts, stretch.parts, found.candidates, found.sources)],
            **(launch_facts(stretch) if found.language == TRITON else {}),
        },
    }


def count_moved_bytes(stretch: CallGroup) -> int:
    """Counts the bytes of all inputs and outputs, each once."""
    total = 0
    for view in _list_views(stretch, range(stretch.required)):
        total += view.itemsize * math.prod(
            size for size, step in zip(view.shape, view.stride, strict=True) if step or not size
        )
    return total


def _list_part_facts(part: GroupCall, candidate: ExtractionCandidate, source: str) -> Mapping[str, Any]:
    recorded = dict(candidate.recorded)
    for name in ("launch", "reference"):
        recorded.pop(name, None)
    return {
        "name": candidate.header.name,
        "kernel": part.kernel.name if part.kernel is not None else "",
        "kernel_id": candidate.header.kernel_id,
        "category": candidate.header.category.value,
        "language": part.kernel.language if part.kernel is not None else "",
        "source": source,
        "recorded": recorded,
        "switches": dict(candidate.switches),
        "launch": codec.encode(part.launch),
    }


def _write_reference(found: RunCalls) -> str:
    """Writes the same computation in PyTorch, for a library call."""
    part = found.stretch.parts[0]
    if part.kernel is not None or len(found.stretch.parts) > 1:
        return ""
    names = list_parameter_names(found.stretch)
    values = [
        names[place] if place is not None else repr(one.plain())
        for place, one in zip(part.places, _list_arguments(part.launch), strict=True)
    ]
    count = len(part.launch.arguments)
    named = [
        f"{name}={value}" for name, value in zip(part.launch.keywords, values[count:], strict=True) if name != "out"
    ]
    overload = f"torch.ops.{str(part.launch.operator).removesuffix('.out')}.default"
    return "\n".join(
        (
            f"def reference({', '.join(names)}):",
            '    """The same in plain PyTorch: its result."""',
            "    import torch",
            "",
            f"    return [{overload}({', '.join([*values[:count], *named])})]",
            "",
        )
    )


# What the author of an edit needs to know.


def describe_calls(found: RunCalls, place: Path, *, reference: bool) -> Iterator[str]:
    """Returns what a file tells its editor, as lines."""
    names, stretch = [one.header.name for one in found.candidates], found.stretch
    what = make_plain_line(names[0]) if len(names) == 1 else f"{make_plain_line(', '.join(names))}"
    yield f"One kernel that replaces {what}: edit it between the two marks, and check it:"
    yield ""
    yield f"    inductor-bench kernel {place.name} --check"
    yield ""
    yield from _describe_rules(found)
    yield ""
    yield "Arguments:"
    for number, (name, argument) in enumerate(
        zip(list_parameter_names(stretch), stretch.launch.arguments, strict=True)
    ):
        view = argument.tensor
        assert view is not None
        use = "read" if number not in stretch.launch.mutated else "written"
        use = "for the kernel itself: nothing reads it afterwards" if number in stretch.scratch else use
        storage = stretch.launch.storages[view.storage]
        offset = f", from element {view.offset}" if view.offset else ""
        others = [
            list_parameter_names(stretch)[other]
            for other, each in enumerate(stretch.launch.arguments)
            if other != number and each.tensor is not None and each.tensor.storage == view.storage
        ]
        shared = f", same memory as {', '.join(others)}" if others else ""
        yield (
            f"  {name}: {view.dtype} {list(view.shape)}, strides {list(view.stride)}{offset}, "
            f"aligned to {storage.alignment} bytes, {use}{shared}"
        )
    yield ""
    timed = any(candidate.header.time_s is not None for candidate in found.candidates)
    for candidate in found.candidates:
        header = candidate.header
        time = f", {units.seconds(header.time_s)} an iteration" if header.time_s is not None else ""
        calls = f" for {plural(header.calls, 'call')}" if header.calls and time else ""
        yield f"{make_plain_line(header.name)}: {make_plain_line(', '.join(header.aten_ops))}{time}{calls}"
        for line in header.source_lines[:3]:
            yield f"  {make_plain_line(f'{line.file}:{line.line} in {line.function}: {line.code}')}"
    if timed and (why := explain_busy_kernels(found.run)):
        yield f"{why[:1].upper()}{why[1:]}."
    yield f"Together they must move {units.size(count_moved_bytes(stretch))} at least."
    if reference:
        yield ""
        yield "The function reference below computes the same, in plain PyTorch."


def _describe_rules(found: RunCalls) -> Iterator[str]:
    count = len(found.stretch.scratch)
    yield "The kernel below does what these calls do, slowly. What may change: everything in it, and functions and"
    if found.language == TRITON:
        yield "constants beside it. GRID is the number of its programs in three directions, NUM_WARPS and NUM_STAGES"
        yield "are Triton's. What stays: its name and its parameters. Imports: those that are there, triton and math."
    else:
        yield 'constants beside it. What stays: `extern "C" void kernel(…)` with the types of its arguments. Includes:'
        yield "those that are there, the standard library's, immintrin.h and omp.h. No data may stay from call to call"
        yield "(static, global), and nothing may reach out of the kernel (time, threads, files)."
    if count:
        what = "parameter is" if count == 1 else f"{count} parameters are"
        yield f"The last {what} memory for the kernel itself, and may be left out{' together' if count > 1 else ''}."
    yield "It is right if it writes all of its results and nothing else, leaves its inputs as they are, gives the same"
    yield "bits each time, handles infinities and NaN as the calls do, and is about as exact as they are, for values"
    yield "other than the recorded ones, too."
