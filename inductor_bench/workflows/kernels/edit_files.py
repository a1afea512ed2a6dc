"""Writes a kernel of a RUN as a file to edit."""

from __future__ import annotations

import ast
import glob
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from ... import units
from ...analysis.findings.doubts import explain_busy_kernels
from ...analysis.findings.finding import join_words, plural
from ...errors import InductorBenchError, UsageError
from ...messages.kernel_requests import BufferRoles
from ...records.code import CallSite, KernelDefinition, Launch
from ...records.edit import WrittenEdit
from ...records.module import Kernel
from ...records.request import DRAWN, RECORDED, KernelRequest
from ...records.run import Run
from ...source.calls import find_heuristic
from ...source.edited import (
    KernelEdit,
    Parameter,
    digest,
    edit_text,
    find_fragment_above,
    is_edit,
    read_edit,
    read_passed_form,
    write_reference,
)
from ...source.generated_text import CPP_SIGNATURE, parse
from ...source.standalone_header import make_plain_line
from ...source.standalone_writer import list_argument_types, list_written_arguments
from ...source.static_wrapper import read_pointers
from ...store import codec
from ...store.files import copy_file, read_text, write_text
from ...store.folder import RECORD, RunFolder, read_rows
from ..modules.extraction import ExtractionCandidate, ModuleKernels, read_modules_of_run
from ..modules.module_measurements import SUFFIX
from .stretch_files import BETWEEN, RunCalls, describe_calls, find_calls, make_calls_edit

MOST_SHAPES = 6
"""The number of different launches of a kernel with which an edit is checked: the launches that run most often."""

MOST_FRAGMENT_LINES = 40
LINE = 116

WRITE_ONE = "inductor-bench kernel RUN#NAME --edit FILE"


@dataclass(frozen=True)
class RunKernel:
    """A generated kernel of a RUN."""

    folder: RunFolder
    run: Run
    module: ModuleKernels
    candidate: ExtractionCandidate
    kernel: KernelDefinition
    launches: tuple[Launch, ...]  # its different launches, those that run most often first
    record: Kernel | None  # its row in the record, if there is one
    values: Path | None = None  # the file of its recorded values, if there is one

    @cached_property
    def roles(self) -> BufferRoles:
        """Returns what the kernel does with its arguments."""
        return find_buffer_roles(self.kernel, self.launches[0], find_unread_places(self.text, self.kernel.name))

    @property
    def text(self) -> str:
        """Returns the text of its module."""
        return self.module.text

    @property
    def source(self) -> str:
        """Returns its source in the form in which the program's compilation passes it on."""
        return read_passed_form(self.kernel.language, self.kernel.source)


def is_edit_file(target: str) -> bool:
    """Whether a target of the verb ``kernel`` is a file of an edited kernel."""
    path = Path(target)
    try:
        return path.is_file() and is_edit(read_text(path))
    except (InductorBenchError, OSError):
        return False


def find_run_kernel(target: str) -> RunKernel:
    """Returns the kernel that ``RUN#NAME`` names.

    Raises:
        UsageError: there is no such RUN or kernel, or it is none whose source can be edited.
        InductorBenchError: a file of the RUN cannot be read.
    """
    place, mark, name = target.rpartition("#")
    if not mark or not name:
        raise UsageError(f"{target} names no kernel of a RUN", f"name one: {WRITE_ONE}", "wrong-target")
    folder = RunFolder(Path(place))
    if not (folder.path / RECORD).is_file():
        raise UsageError(f"{place} is no RUN", "give a folder that `inductor-bench breakdown` wrote", "no-record")
    name = name.removesuffix(".py")
    row = next((row for row in read_rows(folder.kernels) if row.file == f"{name}.py"), None)
    modules, failures = read_modules_of_run(folder, DRAWN)
    found = [
        (module, candidate)
        for module in modules
        for candidate in module.candidates
        if (row and (module.label, candidate.header.name) == (row.module, row.name))
        or (row is None and candidate.header.name == name)
    ]
    if not found:
        if failures and not modules:
            raise InductorBenchError(failures[0].message, failures[0].hint)
        names = sorted({candidate.header.name for module in modules for candidate in module.candidates})
        part = name.strip("*").replace("::", "_")  # a library call: aten::cumsum is aten_cumsum_0
        near = [one for one in names if part in one] or names
        raise UsageError(f"{place} has no kernel {name}", f"it has {join_words(near, 6)}", "no-such-target")
    module, candidate = found[0]
    kernel = candidate.kernel
    if kernel is None or kernel.language not in ("triton", "cpp"):
        what = f"is written in {kernel.language}" if kernel is not None else "is a library call that was not found"
        raise UsageError(
            f"{name} {what}: there is no source of it to edit", "choose a Triton or C++ kernel", "wrong-target"
        )
    if module.source.cpp_wrapper:
        raise UsageError(
            f"the module of {name} calls its kernels from C++", "compile it without cpp_wrapper", "wrong-target"
        )
    if candidate.launch is None:
        raise UsageError(
            f"{name} cannot be called by itself: {candidate.reason}", "choose another kernel", "wrong-target"
        )
    run = folder.load()
    records = [row for one in run.modules if one.label == module.label for row in one.kernels]
    record = next((one for one in records if one.kernel_id == kernel.kernel_id), None)
    values = folder.kernels / row.values if row and row.values else None
    launches = _list_launches(folder, module, candidate, values)
    return RunKernel(folder, run, module, candidate, kernel, launches, record, values)


def _list_launches(
    folder: RunFolder, module: ModuleKernels, candidate: ExtractionCandidate, values: Path | None
) -> tuple[Launch, ...]:
    assert candidate.launch is not None
    first = candidate.launch
    if values is not None and values.is_file():
        first = _add_values(folder, module, candidate) or first
    others = [one for one in module.launches if one.kernel == candidate.header.name and one != candidate.launch]
    launches = (first, *sorted(others, key=lambda one: -one.calls)[: MOST_SHAPES - 1])
    kernel = candidate.kernel
    if kernel is None or kernel.language != "cpp":
        return launches
    written = list_written_arguments(list_argument_types(kernel.source))
    return tuple(replace(one, mutated=tuple(sorted({*one.mutated, *written}))) for one in launches)


def _add_values(folder: RunFolder, module: ModuleKernels, candidate: ExtractionCandidate) -> Launch | None:
    """Returns the launch with the values that the program had."""
    modules, _ = read_modules_of_run(folder, RECORDED)
    for one in (each for other in modules if other.label == module.label for each in other.candidates):
        if one.header.name == candidate.header.name and one.values is not None:
            return one.values.launch_from("values" + SUFFIX)
    return None


# The file to edit.


def run_edit(request: KernelRequest) -> WrittenEdit:
    """Writes the file that a request with ``edit`` asks for.

    Raises:
        UsageError: the request names no kernel that can be edited, or the file exists.
        InductorBenchError: the RUN cannot be read, or the file cannot be written.
    """
    assert request.edit is not None
    if len(request.targets) != 1:
        raise UsageError("one kernel is written into a file", WRITE_ONE, "wrong-target")
    others = {"--autotune": request.autotune, "--configs": request.configs, "--compare": request.other}
    if refused := next((name for name, given in others.items() if given), None):
        raise UsageError(
            f"{refused} is not for --edit, which only writes a file", "leave it out", "conflicting-options"
        )
    edit = write_edit(request.targets[0], request.edit)
    values = request.edit.with_suffix(SUFFIX)
    return WrittenEdit(
        file=str(request.edit),
        kernel=edit.kernel,
        kernel_id=edit.kernel_id,
        language=edit.language,
        launches=len(edit.facts["launches"]),
        has_reference=bool(edit.reference),
        values=str(values) if values.is_file() else "",
    )


def write_edit(target: str, place: Path) -> KernelEdit:
    """Writes a kernel of a RUN as a file to edit, with its recorded values beside it, if there are any.

    Raises:
        UsageError: the target is no kernel that can be edited, or the file exists.
        InductorBenchError: the RUN cannot be read, or the file cannot be written.
    """
    found = _find(target)
    if place.exists() or place.is_symlink():
        raise UsageError(f"{place} exists", "choose another file, so that no edit is lost", "folder-in-use")
    edit = _made(found, place)
    about = describe_calls if isinstance(found, RunCalls) else _describe_kernel
    write_text(place, edit_text(edit, "\n".join(about(found, place, reference=bool(edit.reference)))))  # type: ignore[arg-type]
    if isinstance(found, RunKernel) and found.values is not None and found.values.is_file():
        copy_file(found.values, place.with_suffix(SUFFIX))
    return read_edit(place)


def _find(target: str) -> RunKernel | RunCalls:
    place, mark, name = target.rpartition("#")
    if mark and name and (Path(place) / RECORD).is_file():
        folder = RunFolder(Path(place))
        name = BETWEEN.join(_find_only_match(folder, end) for end in name.split(BETWEEN))
        calls = find_calls(folder, name)
        if calls is not None:
            return calls
        target = f"{place}#{name}"
    return find_run_kernel(target)


def _find_only_match(folder: RunFolder, pattern: str) -> str:
    """Returns the name of the only kernel or library call that fits a glob, or a name that a table has shortened.

    If none fits, returns the glob itself.
    """
    pattern = pattern.replace(units.ELLIPSIS, "*")
    if not glob.has_magic(pattern):
        return pattern
    files = {(row.module, row.name): row.file.removesuffix(".py") for row in read_rows(folder.kernels) if row.file}
    known = {
        files.get((module.label, candidate.header.name), candidate.header.name)
        for module in read_modules_of_run(folder, DRAWN)[0]
        for candidate in module.candidates
    }
    found = sorted(name for name in known if fnmatchcase(name, pattern.removesuffix(".py")))
    if len(found) > 1:
        more = f" and {len(found) - 6} more" if len(found) > 6 else ""
        raise UsageError(
            f"{pattern} fits {len(found)} kernels of {folder.path}: {', '.join(found[:6])}{more}",
            "name one of them",
            "wrong-target",
        )
    return found[0] if found else pattern


def _made(found: RunKernel | RunCalls, place: Path) -> KernelEdit:
    return make_calls_edit(found, place) if isinstance(found, RunCalls) else _make_edit(found, place)


def make_edit(target: str, place: Path) -> KernelEdit:
    """Makes the edit of what ``RUN#NAME`` names, with an unchanged source.

    Raises:
        UsageError: it names nothing whose source can be edited, or that can be replaced.
        InductorBenchError: a file of the RUN cannot be read.
    """
    return _made(_find(target), place)


def _make_edit(found: RunKernel, place: Path) -> KernelEdit:
    versions, language, source = found.run.environment.versions, found.kernel.language, found.source
    return KernelEdit(
        path=place,
        kernel=found.kernel.name,
        language=language,
        source=source,
        original=digest(source),
        original_source=source,
        torch=versions.torch or "",
        triton=versions.triton if language == "triton" else None,
        device=found.candidate.header.device_name or "",
        reference=_write_reference(found),
        facts=_list_edit_facts(found),
    )


def _list_edit_facts(found: RunKernel) -> Mapping[str, Any]:
    header, recorded = found.candidate.header, dict(found.candidate.recorded)
    for name in ("launch", "reference"):
        recorded.pop(name, None)
    roles = found.roles
    return {
        "kernel_id": header.kernel_id,
        "category": header.category.value,
        "run": str(found.folder.path),
        "module": header.module,
        "calls": header.calls,
        "time_s": header.time_s,
        "moved_bytes": header.moved_bytes,
        "parameters": _list_parameters(found.kernel),
        "roles": {name: list(places) for name, places in vars(roles).items()},
        "recorded": recorded,
        "launches": [codec.encode(launch) for launch in found.launches],
    }


def find_buffer_roles(kernel: KernelDefinition, launch: Launch, unread: Collection[int] = ()) -> BufferRoles:
    """Returns what a kernel does with its arguments.

    Without a signature that fits the launch nothing is known. ``unread`` are the indices of arguments that nobody reads
    after the kernel.
    """
    pointers = read_pointers(kernel)
    places = [index for index, argument in enumerate(launch.arguments) if argument.tensor is not None]
    if pointers is None or len(pointers) != len(places):
        return BufferRoles()
    uses = list(zip(places, (pointer.use for pointer in pointers), strict=True))
    # Every kernel has a result. If nobody seems to read any argument, the place where it is read was not found.
    if {place for place, use in uses if not use.name.startswith("in_ptr")} <= set(unread):
        unread = ()
    # The rows that a mixed-order reduction leaves in its workspace are summed by another kernel: they are results.
    keeps = "MixOrderReductionGrid" in kernel.source
    return BufferRoles(
        output_only=tuple(place for place, use in uses if use.output_only),
        cleared=tuple(place for place, use in uses if use.cleared),
        scratch=tuple(
            place
            for place, use in uses
            if use.name.startswith("sem_ptr" if keeps else ("ws_ptr", "sem_ptr"))
            or (use.output_only and place in unread)
        ),
    )


def _write_reference(found: RunKernel) -> str:
    """Writes the same computation in PyTorch, if the module shows it."""
    if found.kernel.language != "triton":
        return ""
    names, launch, roles = _list_parameters(found.kernel), found.launches[0], found.roles
    calls = _find_passed_arguments(found.text, found.kernel.name)
    variables = calls[0][1] if calls else []
    parameters = []
    for place, (name, argument) in enumerate(zip(names, launch.arguments, strict=False)):
        view = argument.tensor
        written = place in roles.output_only + roles.cleared + roles.scratch
        # If a buffer is updated in place and the kernel never loads it, its old content does not matter.
        written = written or not re.search(rf"\btl\.(load|atomic_\w+)\(\s*{name}\b", found.kernel.source)
        parameters.append(
            Parameter(
                name,
                variables[place] if place < len(variables) else "",
                math.prod(view.shape) if view is not None else 0,
                view is not None and not written,
            )
        )
    if len(parameters) < len(launch.arguments):
        return ""
    return write_reference(find_fragment_above(found.text.splitlines(), found.kernel.line), parameters)


def _list_parameters(kernel: KernelDefinition) -> list[str]:
    """The names of a kernel's parameters that are passed to it, in order."""
    if kernel.language == "cpp":
        entry = CPP_SIGNATURE.search(kernel.source)
        return [re.split(r"[\s*&]+", each.strip())[-1] for each in entry.group(1).split(",")] if entry else []
    for node in parse(kernel.source).body:
        if isinstance(node, ast.FunctionDef) and find_heuristic(node) is not None:
            return [each.arg for each in node.args.args if each.annotation is None]
    return []


def _find_passed_arguments(text: str, kernel: str) -> list[tuple[int, list[str]]]:
    """Returns the calls of a kernel in a module: the line, from 0, and the passed variables in order; empty for other
    expressions."""
    call = re.compile(rf"^\s+{re.escape(kernel)}(?:\.run)?\((?!\*)(.*)\)$")
    found = []
    for number, line in enumerate(text.splitlines()):
        if match := call.match(line):
            arguments = parse(f"f({match.group(1)})").body[0].value.args  # type: ignore[attr-defined]
            found.append((number, [getattr(each, "id", "") for each in arguments]))
    return found


def find_unread_places(text: str, kernel: str) -> frozenset[int]:
    """Returns the indices of the arguments that nothing in the module uses after any call of the kernel: its scratch
    memory."""
    lines, found = text.splitlines(), list[set[int]]()
    for number, variables in _find_passed_arguments(text, kernel):
        begins = next((_indent(line) for line in reversed(lines[:number]) if line.lstrip().startswith("def ")), -1)
        rest = []
        # A graph's results are returned after the block of its device, so that only the function's end counts.
        for line in lines[number + 1 :]:
            if line.strip() and _indent(line) <= begins:
                break
            rest.append(re.sub(r"^\s*del \w+$|#.*$", "", line))
        left = "\n".join(rest)
        found.append({place for place, name in enumerate(variables) if name and not re.search(rf"\b{name}\b", left)})
    return frozenset(set.intersection(*found)) if found else frozenset()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


# What the author of an edit needs to know.


def _describe_kernel(found: RunKernel, place: Path, *, reference: bool) -> Iterator[str]:
    triton = found.kernel.language == "triton"
    yield f"{make_plain_line(found.kernel.name)}: edit the kernel between the two marks, and check it:"
    yield ""
    yield f"    inductor-bench kernel {place.name} --check"
    yield ""
    yield from _describe_rules(triton=triton)
    yield ""
    yield "Arguments:"
    yield from _describe_arguments(found)
    yield ""
    for title, text in _list_rows(found):
        if text:
            yield from _format_row(title, text)
    yield from _describe_neighbours(found)
    if reference:
        yield ""
        yield "The function reference below computes the same, in plain PyTorch."
        return
    fragment = find_fragment_above(found.text.splitlines(), found.kernel.line)
    if fragment:
        yield ""
        yield "The ATen graph that it computes:"
        lines = [f"  {make_plain_line(line.lstrip('# '))}" for line in fragment]
        yield from (line if len(line) <= 2 * LINE else f"{line[: 2 * LINE]} …" for line in lines[:MOST_FRAGMENT_LINES])
        if len(lines) > MOST_FRAGMENT_LINES:
            yield f"  and {len(lines) - MOST_FRAGMENT_LINES} more lines"


def _describe_rules(*, triton: bool) -> Iterator[str]:
    yield "What may change: everything in the body of the kernel, and functions and constants beside it."
    if triton:
        yield "Keep the kernel's name, its parameters, and its decorators with the sizes that decide the"
        yield "grid (reduction_hint, tile_hint, min_elem_per_thread, num_warps and num_stages may change). Imports:"
        yield "those that are there, triton and math. Every other function is under @triton.jit."
    else:
        yield 'Keep `extern "C" void kernel(…)`, the types of its arguments, the compiler flags and the number of'
        yield "threads. Includes: those that are there, the standard library's, immintrin.h and omp.h. No data may stay"
        yield "from call to call (static, global), and nothing may reach out of the kernel (time, threads, files)."
    yield "It is right if it writes all of its results and nothing else, leaves its inputs as they are, gives the same"
    yield "bits each time, handles infinities and NaN as the original does, and is about as exact as that, for each of"
    yield "the launches below and for other values than the recorded ones."


def _describe_arguments(found: RunKernel) -> Iterator[str]:
    names = _list_parameters(found.kernel)
    first = found.launches[0]
    for place, argument in enumerate(first.arguments):
        name = names[place] if place < len(names) else f"argument {place}"
        view = argument.tensor
        if view is None:
            yield f"  {name} = {make_plain_line(str(argument.plain()))}"
            continue
        storage = first.storages[view.storage]
        use = "written" if place in first.mutated else "read"
        if place in found.roles.scratch:
            use = "for the kernel itself: nothing reads it afterwards"
        alias = [
            names[other] if other < len(names) else str(other)
            for other, each in enumerate(first.arguments)
            if other != place and each.tensor is not None and each.tensor.storage == view.storage
        ]
        shared = f", same memory as {', '.join(alias)}" if alias else ""
        offset = f", from element {view.offset}" if view.offset else ""
        yield (
            f"  {name}: {view.dtype} {list(view.shape)}, strides {list(view.stride)}{offset}, "
            f"aligned to {storage.alignment} bytes, {use}{shared}"
        )
    for other in found.launches[1:]:
        shapes = [list(each.tensor.shape) if each.tensor else each.plain() for each in other.arguments]
        yield f"  and with {', '.join(map(str, shapes))} ({other.calls} calls)"


def _list_rows(found: RunKernel) -> Iterator[tuple[str, str]]:
    header, record, recorded = found.candidate.header, found.record, found.candidate.recorded
    yield (
        "made for",
        ", ".join(
            filter(
                None,
                (
                    f"torch {header.torch_version}",
                    header.triton_version and f"triton {header.triton_version}",
                    header.device_name,
                ),
            )
        ),
    )
    if record is not None:
        yield "time", _time_words(record)
        yield "busy", explain_busy_kernels(found.run)
        yield "roof", _describe_roof(record)
        compiled = record.compiled
        resources = {"registers": compiled.registers, "spills": compiled.spills}
        occupancy = record.launch.occupancy
        words = [f"{count} {name}" for name, count in resources.items() if count is not None]
        words += [f"occupancy {units.whole_percent(occupancy)}"] if occupancy is not None else []
        words += [f"grid {list(record.launch.grid)}"] if record.launch.grid else []
        yield "compiled", ", ".join(words)
    config = recorded.get("config")
    yield "config", ", ".join(f"{name}={value}" for name, value in config.items()) if config else ""
    threads, isa = recorded.get("threads"), recorded.get("vector_isa")
    yield "runs on", ", ".join(filter(None, (f"{threads} threads" if threads else "", str(isa) if isa else "")))
    moved = header.moved_bytes
    yield "moves", f"{units.size(moved)} at least" if moved else ""
    yield "ATen ops", ", ".join(header.aten_ops)
    for line in header.source_lines[:6]:
        yield "line", f"{line.file}:{line.line} in {line.function}: {line.code}"


def _format_row(title: str, text: str) -> Iterator[str]:
    yield f"{f'{title}:':<10}{make_plain_line(text)}"


def _time_words(record: Kernel) -> str:
    words = f"{units.seconds(record.time_s / record.calls)} a call" if record.calls else ""
    if record.step_time_s is not None and record.step_calls:
        share = f", {units.percent(record.step_share)} of the step" if record.step_share is not None else ""
        words = f"{units.seconds(record.step_time_s)} of a step for {plural(record.step_calls, 'call')}{share}"
    return words


def _describe_roof(record: Kernel) -> str:
    roof = record.roof
    if roof.bound == "unknown":
        return ""
    words = {"memory": "DRAM bandwidth", "cache": "cache bandwidth", "compute": "FLOP/s", "latency": "latency"}
    said = f"limited by {words.get(roof.bound, roof.bound)}"
    if roof.peak_share is not None:
        said += f", reaches {units.whole_percent(roof.peak_share)} of it"
    if roof.gain_limit_s is not None:
        said += f"; at that roof it would take {units.seconds(roof.gain_limit_s)} less"
    return said


def _describe_neighbours(found: RunKernel) -> Iterator[str]:
    """Says who wrote what the kernel reads, and who reads what it writes, for its first call."""
    source = found.module.source
    try:
        uses = found.module.buffers.calls
    except InductorBenchError:
        return
    here = next((call.index for call in source.calls if call.kernel == found.kernel.name), None)
    if here is None or here >= len(uses) or (mine := uses[here]) is None:
        return
    read = [use.buffer for use in mine if use.read]
    written = [use.buffer for use in mine if use.written]
    makers = [
        _name(source.calls[place])
        for buffer in read
        for place in _describe_last_use(range(here - 1, -1, -1), uses, buffer, "written")
    ]
    readers = [
        _name(source.calls[place])
        for buffer in written
        for place in _describe_last_use(range(here + 1, len(uses)), uses, buffer, "read")
    ]
    yield from _format_row("before", ", ".join(dict.fromkeys(makers)) or "only inputs of the graph are read")
    yield from _format_row("after", ", ".join(dict.fromkeys(readers)) or "its results leave the graph")


def _describe_last_use(places: range, uses: Sequence[Any], buffer: str, how: str) -> list[int]:
    """Describes the nearest call that uses a buffer in this way."""
    for place in places:
        if any(use.buffer == buffer and getattr(use, how) for use in uses[place] or ()):
            return [place]
    return []


def _name(call: CallSite) -> str:
    return call.kernel or call.operator or call.target
