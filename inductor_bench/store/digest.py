"""Reads only the compared figures of a record, without building the whole record."""

from __future__ import annotations

import contextlib
import gc
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec.structs import astuple

from ..devices.table import find_common_device
from ..errors import InductorBenchError
from ..records.base import Category, Failure
from ..records.batch_record import (
    DAMAGED,
    MEASURED,
    NEWER,
    OUTSIDE,
    RUNNING,
    UNOPTIMIZED,
    WAITING,
    WITHOUT_FIGURES,
    Batch,
    BatchModel,
    BatchResults,
    GraphResult,
    KernelResult,
    ModelResult,
    RetuneResult,
)
from ..records.module import ModuleRecord
from ..records.optimization import Optimization
from ..records.request import BreakdownRequest
from ..records.retune import RetuneRow, Saving, explain_untuned, group_by_kernel
from ..records.run import (
    COLLECTIVE,
    COPY,
    EAGER,
    GRAPH,
    IDLE,
    OPTIMIZER,
    QUEUED,
    AcceleratorFacts,
    Environment,
    Host,
    Peaks,
    Program,
    Run,
    Versions,
)
from . import codec
from .codec import LARGEST, SMALLEST
from .files import read_bytes, read_json
from .folder import BatchFolder, load_search

# Converts the compared figures of a record to costs per step of the program.


_CATEGORIES = {
    COLLECTIVE: Category.COLLECTIVE,
    COPY: Category.COPY,
    **dict.fromkeys((GRAPH, EAGER, OPTIMIZER), Category.EXTERN_ATEN),
}


def read_step(data: Mapping[str, Any]) -> Program | None:
    """Reads the program's step from a decoded record; ``None`` if no step was profiled.

    Raises:
        InductorBenchError: the record is damaged.
    """
    if data.get("program") is None:
        return None
    program = codec.decode(Program, data["program"])
    return program if program.parts else None


def _put_in_step(kernel: Any) -> None:
    """Gives a row its costs in the step."""
    calls = kernel.step_calls = kernel.step_calls or 0.0
    more = calls / kernel.calls if kernel.calls else 0.0
    kernel.calls, kernel.time_s = calls, kernel.step_time_s
    kernel.gain_limit_s, kernel.moved_bytes, kernel.flops = (
        None if amount is None else amount * more for amount in (kernel.gain_limit_s, kernel.moved_bytes, kernel.flops)
    )


def describe_graph_in_step(graph: GraphResult, slug: str, program: Program) -> GraphResult:
    """The graph with its use in the step. Its busy share is the program's, because the host serves all graphs."""
    parts = [part for part in program.parts if part.kind == GRAPH and part.graph == slug]
    times: dict[Category, float] = defaultdict(float)
    for kernel in graph.kernels:
        times[kernel.category] += kernel.time_s
    return replace(
        graph,
        time_s=sum(part.time_s for part in parts),
        busy_share=_compute_busy_share(program),
        launches=sum(part.launches for part in parts),
        idle_s=None,
        categories=tuple(times.items()),
        host_idle_share=_compute_host_idle_share(program),
    )


def describe_rest_of_step(
    graphs: Sequence[GraphResult], slugs: Sequence[str], program: Program
) -> Iterator[GraphResult]:
    """A row for the rest of the step, so that the rows add up to it; nothing if nothing is left."""
    rest = [part for part in program.parts if part.kind != GRAPH or part.graph not in slugs]
    times: dict[Category, float] = defaultdict(float)
    for part in rest:
        if part.kind != IDLE:
            times[_CATEGORIES.get(part.kind, Category.OTHER)] += part.time_s
    if rest:
        yield GraphResult(
            OUTSIDE,
            graphs[0].device if graphs else "cuda",
            sum(part.time_s for part in rest),
            None,
            _compute_busy_share(program),
            sum(part.launches for part in rest),
            sum(part.time_s for part in rest if part.kind == IDLE),
            tuple(times.items()),
            (),
            _compute_host_idle_share(program),
        )


def _compute_busy_share(program: Program) -> float:
    idle = sum(part.time_s for part in program.parts if part.kind == IDLE)
    return 1 - idle / program.step_time_s if program.step_time_s else 0.0


def _compute_host_idle_share(program: Program) -> float:
    idle = sum(part.time_s for part in program.parts if part.kind == IDLE and part.label != QUEUED)
    return idle / program.step_time_s if program.step_time_s else 0.0


# Reads the compared figures of a record without building the whole record: the decoder skips what is not compared.


def _list_kernel_fields() -> Iterator[tuple[str, Any] | tuple[str, Any, Any]]:
    """The fields of a kernel in a record, in the order of ``KernelResult``, without its last field, and its file."""
    defaults = {**KernelResult._field_defaults, "family_id": None}
    for name, hint in get_type_hints(KernelResult).items():
        if name in defaults and name != "retune":
            yield name, hint | None, defaults[name]
        elif name != "retune":
            yield name, hint
    yield "file", str | None, None


_Kernel: Any = msgspec.defstruct("_Kernel", _list_kernel_fields(), kw_only=True, gc=False)
_Module: Any = msgspec.defstruct(
    "_Module",
    [
        *((name, Any, msgspec.UNSET) for name in codec.list_key_names(ModuleRecord) if name != "kernels"),
        ("kernels", list[_Kernel]),
    ],
    kw_only=True,
)
_Record: Any = msgspec.defstruct(
    "_Record",
    [
        *((name, Any, msgspec.UNSET) for name in ("tool_version", "retunes", "program", "verification", "peaks")),
        ("format", int),
        ("environment", dict[str, Any]),
        ("modules", list[_Module]),
    ],
    kw_only=True,
)
_RECORDS = msgspec.json.Decoder(_Record)
_FLOATS = [
    place for place, hint in enumerate(get_type_hints(KernelResult).values()) if float in (hint, *get_args(hint))
]

_DAMAGED = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


def read_results(folder: BatchFolder, batch: Batch) -> BatchResults:
    """The figures of all models of a batch. A model whose record cannot be read has a ``problem``."""
    found = tuple(_read_model(model, folder.path) for model in batch.models)
    return BatchResults(replace(batch, models=tuple(each.model for each in found)), found)


@contextlib.contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Turns off garbage collection in the block: records have no cycles, and collecting takes a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read_model(model: BatchModel, folder: Path) -> ModelResult:
    begun = model.status in (RUNNING, WAITING) and model.run is not None
    if not begun and model.status in WITHOUT_FIGURES:
        return ModelResult(model)
    try:
        found = read_digest(model, BatchFolder(folder).run(model.request.name).record)
    except InductorBenchError as error:
        return ModelResult(model, problem=None if begun else _make_problem(error))
    if not begun:
        return found
    # Retunes and searches come last: a record with one is otherwise complete.
    if found.search is not None:
        return replace(found, model=replace(model, status=UNOPTIMIZED))
    return replace(found, model=replace(model, status=MEASURED)) if found.retunes else ModelResult(model)


def _make_problem(error: InductorBenchError) -> Failure:
    kind = NEWER if isinstance(error, codec.NewerFormatError) else DAMAGED
    hint = error.hint or "the same `inductor-bench batch` command measures it again"
    return Failure("record", kind, error.message, hint)


def read_digest(model: BatchModel, record: Path) -> ModelResult:
    """The compared figures of one record.

    Args:
        model: the model's row in the batch.
        record: the path of its ``record.json``.

    Raises:
        NewerFormatError: a newer version of the tool wrote the record.
        InductorBenchError: the record is missing or damaged.
    """
    data = _read_compared(record)
    try:
        retunes = tuple(_retune(retune) for retune in data.get("retunes", ()))
        tuned = group_by_kernel(row for row in retunes if row.verdict)
        program = read_step(data)
        graphs = tuple(_make_graph(module, tuned, program) for module in data["modules"])
        if program is not None:
            slugs = [str(module["slug"]) for module in data["modules"]]
            graphs += tuple(describe_rest_of_step(graphs, slugs, program))
        machine = _describe_machine(data["environment"], graphs)
        outline = _make_outline(data, program)
        proven = (data.get("verification") or {}).get("step")
        return ModelResult(
            model,
            graphs,
            machine,
            retunes=retunes,
            in_step=program is not None,
            proven=codec.decode(Saving, proven) if proven else None,
            search=_search(record.parent),
            outline=outline,
        )
    except _DAMAGED as error:
        raise codec.make_unreadable_error(data, str(record), f"{type(error).__name__}: {error}") from error


def _read_compared(record: Path) -> dict[str, Any]:
    """Decodes the compared fields of a record only. Its kernels are rows."""
    with contextlib.suppress(ValueError, RecursionError):
        found = _RECORDS.decode(read_bytes(record))
        if found.format == codec.FORMAT:
            return _list_keys(found)
    data = read_json(record)  # which says what is wrong
    if not isinstance(data, dict):
        raise InductorBenchError(f"{record} is not a record of inductor-bench", name="damaged")
    data = codec.upgrade(data, str(record))
    try:
        return _list_keys(msgspec.convert(data, _Record))
    except (ValueError, RecursionError) as error:
        codec.decode_record(Run, data, str(record), "")  # it mostly says what is wrong in plain words
        raise codec.make_unreadable_error(data, str(record), str(error)) from error


def _list_keys(record: Any) -> dict[str, Any]:
    data = _list_given_values(record)
    return {**data, "modules": [_list_given_values(module) for module in data["modules"]]}


def _list_given_values(struct: Any) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(struct).items() if value is not msgspec.UNSET}


def _search(run: Path) -> Optimization | None:
    """The search of a RUN without its processes; ``None`` without one, or if it cannot be read."""
    with contextlib.suppress(InductorBenchError):  # the figures of the model count without its search
        found = load_search(run)
        return replace(found, trials=()) if found is not None else None
    return None


def _make_outline(data: dict[str, Any], program: Program | None) -> Run:
    """The program, the peaks, and the graphs of a run without their kernels."""
    modules = ({**module, "kernels": (), "categories": ()} for module in data["modules"])
    graphs = tuple(codec.decode(ModuleRecord, module) for module in modules)
    asked, machine = BreakdownRequest("", ""), Environment()
    peaks = codec.decode(Peaks, data["peaks"]) if data.get("peaks") is not None else None
    return Run(codec.FORMAT, "", "", "", "", "", "", asked, machine, peaks=peaks, modules=graphs, program=program)


def _retune(data: dict[str, Any]) -> RetuneRow:
    row = RetuneRow(
        str(data["name"]),
        str(data["kernel_id"]),
        Category(data["category"]),
        tuple(map(str, data["graphs"])),
        _check_finite(data["calls"]),
        _check_finite(data["time_s"]),
        _read_text(data["file"]),
        str(data["method"]),
    )
    kernel, failure = data["kernel"], data["failure"]
    tuning = kernel.get("tuning") if kernel is not None else None
    if tuning is None or failure is not None:
        return row._replace(
            problem=explain_untuned(failure["message"] if failure is not None else None, kernel is not None)
        )
    default_s, best_s, speedup = (_check_finite(tuning[name]) for name in ("default_s", "best_s", "speedup"))
    row = row._replace(caution="; ".join(kernel["advice"]))
    return row.tuned(default_s, best_s, speedup, str(tuning["verdict"]), dict(tuning["best_config"]))


def _make_graph(data: dict[str, Any], tuned: Mapping[str, RetuneRow], program: Program | None) -> GraphResult:
    wall, busy, idle = _number(data["wall_time_s"]), _number(data["busy_time_s"]), data["idle"]
    rows = _list_costs(data["kernels"], in_step=program is not None)
    kernels = tuple(KernelResult(*astuple(row)[:-1]) for row in rows)
    _check_floats(kernels)
    if tuned:
        kernels = tuple(_find_tuned(kernel, row.file, tuned) for kernel, row in zip(kernels, rows, strict=True))
    graph = GraphResult(
        str(data["label"]),
        str(data["device"]),
        max(wall or 0.0, busy or 0.0) or sum(kernel.time_s for kernel in kernels),
        wall,
        _number(data["busy_share"]),
        _number(data["launches"]),
        _check_finite(idle["time_s"]) if idle is not None and wall else None,
        tuple((Category(total["name"]), _check_finite(total["time_s"])) for total in data["categories"]),
        kernels,
    )
    return describe_graph_in_step(graph, str(data["slug"]), program) if program is not None else graph


def _list_costs(kernels: list[Any], *, in_step: bool) -> list[Any]:
    """Returns the kernels with their costs. If there is a step, only kernels that run in it, with their costs in it."""
    for kernel in kernels:
        if not kernel.family_id:
            kernel.family_id = f"{kernel.category.value} {kernel.name.rstrip('0123456789').rstrip('_')}"
        if in_step and kernel.step_time_s:
            _put_in_step(kernel)
        elif not in_step:
            kernel.step_calls = kernel.step_time_s = kernel.step_share = None
    return [kernel for kernel in kernels if kernel.step_time_s] if in_step else kernels


def _check_floats(kernels: Sequence[KernelResult]) -> None:
    """Checks the figures of kernels, a column at a time.

    If a sum is neither NaN nor too large, none of its terms is.
    """
    columns = list(zip(*kernels, strict=True))
    for place in _FLOATS if kernels else ():
        known = [*filter(None, columns[place])]
        if known and not (min(known) >= SMALLEST and sum(known) <= LARGEST):
            for number in known:
                _check_finite(number)


def _find_tuned(kernel: KernelResult, file: str | None, tuned: Mapping[str, RetuneRow]) -> KernelResult:
    """The kernel with the figures of its own retune, or of the library call that shares its file."""
    own = tuned.get(kernel.kernel_id)
    found = own or tuned.get(file or "")
    if found is None:
        return kernel
    saving_s = own.saving_s * kernel.time_s / own.time_s if own is not None and own.saving_s is not None else None
    tuned_s = found.tuned_default_s, found.tuned_best_s
    return kernel._replace(retune=RetuneResult(*tuned_s, found.speedup, found.verdict, saving_s))


def _number(value: Any) -> float | None:
    return None if value is None else _check_finite(value)


def _check_finite(value: Any) -> float:
    number = float(value)
    if number and not SMALLEST <= abs(number) <= LARGEST:
        wanted = "a number that can be measured" if math.isfinite(number) else "a finite number"
        raise ValueError(f"{number} is not {wanted}")
    return number


def _read_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{type(value).__name__} instead of a text")


def _describe_machine(data: dict[str, Any], graphs: Sequence[GraphResult]) -> str:
    environment = Environment(
        versions=Versions(torch=data["torch"], triton=data["triton"]),
        host=Host(data["cpu"]),
        device=AcceleratorFacts(data["accelerator"]),
    )
    device = find_common_device(graph.device for graph in graphs)
    versions = environment.versions
    parts = [device.name_in(environment) or environment.host.cpu, f"torch {versions.torch}" if versions.torch else ""]
    if versions.triton and device.generates_triton:
        parts.append(f"triton {versions.triton}")
    return " · ".join(part for part in parts if part)
