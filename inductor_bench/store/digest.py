"""Reads the compared figures of a record, those of the program's step, without building the whole record."""

from __future__ import annotations

import contextlib
import gc
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import repeat
from os import cpu_count
from pathlib import Path
from typing import Any

from ..devices.table import common_device
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
    Amounts,
    Batch,
    BatchModel,
    BatchResults,
    GraphResult,
    KernelOccupancy,
    KernelResult,
    Limit,
    ModelResult,
    RetuneResult,
    StepResult,
)
from ..records.module import ModuleRecord
from ..records.optimization import Optimization
from ..records.request import BreakdownRequest
from ..records.retune import RetuneRow, Saving, by_kernel, why_untuned
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
from . import codec as schema
from .codec import LARGEST, SMALLEST
from .files import read_json
from .folder import BatchFolder
from .program_folders import search_in

# Turns the compared figures of a record into those of the program's step.


_CATEGORIES = {
    COLLECTIVE: Category.COLLECTIVE,
    COPY: Category.COPY,
    **dict.fromkeys((GRAPH, EAGER, OPTIMIZER), Category.EXTERN_ATEN),
}


def step_in(data: Mapping[str, Any]) -> Program | None:
    """The program of a decoded record; ``None`` if no step was profiled.

    Raises:
        InductorBenchError: the record is damaged.
    """
    if data.get("program") is None:
        return None
    program = codec.decode(Program, data["program"])
    return program if program.parts else None


def kernels_in_step(kernels: Sequence[KernelResult], data: Sequence[Mapping[str, Any]]) -> tuple[KernelResult, ...]:
    """The kernels that run in the step, with their costs in it; ``data`` are the same kernels of the record."""
    rows = [
        _in_step(kernel, row) for kernel, row in zip(kernels, data, strict=True) if row.get("step_time_s") is not None
    ]
    return tuple(row for row in rows if row.time_s)


def _in_step(kernel: KernelResult, data: Mapping[str, Any]) -> KernelResult:
    calls, time_s = float(data["step_calls"] or 0.0), float(data["step_time_s"])
    more = calls / kernel.calls if kernel.calls else 0.0
    gain_s, moved, flops = kernel.limit.gain_limit_s, kernel.work.moved_bytes, kernel.work.flops
    return kernel._replace(
        calls=calls,
        time_s=time_s,
        limit=kernel.limit._replace(gain_limit_s=None if gain_s is None else gain_s * more),
        work=kernel.work._replace(
            moved_bytes=None if moved is None else moved * more,
            flops=None if flops is None else flops * more,
        ),
        step=StepResult(calls, time_s, None if data["step_share"] is None else float(data["step_share"])),
    )


def graph_in_step(graph: GraphResult, slug: str, program: Program) -> GraphResult:
    """The graph with its use in the step. Its busy share is the program's, because the host serves all graphs."""
    parts = [part for part in program.parts if part.kind == GRAPH and part.graph == slug]
    times: dict[Category, float] = defaultdict(float)
    for kernel in graph.kernels:
        times[kernel.category] += kernel.time_s
    return replace(
        graph,
        time_s=sum(part.time_s for part in parts),
        busy_share=_busy_share(program),
        launches=sum(part.launches for part in parts),
        idle_s=None,
        categories=tuple(times.items()),
        host_idle_share=_host_idle_share(program),
    )


def outside_of_graphs(graphs: Sequence[GraphResult], slugs: Sequence[str], program: Program) -> Iterator[GraphResult]:
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
            _busy_share(program),
            sum(part.launches for part in rest),
            sum(part.time_s for part in rest if part.kind == IDLE),
            tuple(times.items()),
            (),
            _host_idle_share(program),
        )


def _busy_share(program: Program) -> float:
    idle = sum(part.time_s for part in program.parts if part.kind == IDLE)
    return 1 - idle / program.step_time_s if program.step_time_s else 0.0


def _host_idle_share(program: Program) -> float:
    idle = sum(part.time_s for part in program.parts if part.kind == IDLE and part.label != QUEUED)
    return idle / program.step_time_s if program.step_time_s else 0.0


# Reads the compared figures of a record without building the whole record, which is ten times as fast.


_READERS = 4
FEW = 16
"""Number of records up to which this process reads them alone."""

_DAMAGED = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError)


def read_results(folder: BatchFolder, batch: Batch) -> BatchResults:
    """The figures of all models of a batch. A model whose record cannot be read has a ``problem``."""
    models: Sequence[BatchModel] = batch.models
    if len(models) <= FEW:
        found = tuple(_read_model(model, folder.path) for model in models)
    else:
        with ProcessPoolExecutor(min(_READERS, cpu_count() or 1), initializer=gc.disable) as pool:
            found = tuple(pool.map(_read_model, models, repeat(folder.path), chunksize=8))
    return BatchResults(replace(batch, models=tuple(each.model for each in found)), found)


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Turns off garbage collection in the block: records have no cycles, and the search takes a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _read_model(model: BatchModel, folder: Path) -> ModelResult:
    begun = model.status in (RUNNING, WAITING) and model.run is not None
    if not begun and model.status in WITHOUT_FIGURES:
        return ModelResult(model)
    try:
        found = read_digest(model, BatchFolder(folder).run(model.request.name).record)
    except InductorBenchError as error:
        return ModelResult(model, problem=None if begun else _problem(error))
    if not begun:
        return found
    # Retunes and searches come last: a record with one is otherwise complete.
    if found.search is not None:
        return replace(found, model=replace(model, status=UNOPTIMIZED))
    return replace(found, model=replace(model, status=MEASURED)) if found.retunes else ModelResult(model)


def _problem(error: InductorBenchError) -> Failure:
    kind = NEWER if isinstance(error, schema.NewerFormatError) else DAMAGED
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
    data = read_json(record)
    if not isinstance(data, dict):
        raise InductorBenchError(f"{record} is not a record of inductor-bench", name="damaged")
    data = schema.upgrade(data, str(record))
    try:
        retunes = tuple(_retune(retune) for retune in data.get("retunes", ()))
        tuned = by_kernel(row for row in retunes if row.verdict)
        program = step_in(data)
        graphs = tuple(_graph(module, tuned, program) for module in data["modules"])
        if program is not None:
            slugs = [str(module["slug"]) for module in data["modules"]]
            graphs += tuple(outside_of_graphs(graphs, slugs, program))
        machine = _machine(data["environment"], graphs)
        outline = _outline(data, program)
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
        raise schema.unreadable(data, str(record), f"{type(error).__name__}: {error}") from error


def _search(run: Path) -> Optimization | None:
    """The search of a RUN without its processes; ``None`` without one, or if it cannot be read."""
    with contextlib.suppress(InductorBenchError):  # the figures of the model count without its search
        found = search_in(run)
        return replace(found, trials=()) if found is not None else None
    return None


def _outline(data: dict[str, Any], program: Program | None) -> Run:
    """The program, the peaks, and the graphs of a run without their kernels."""
    modules = ({**module, "kernels": (), "categories": ()} for module in data["modules"])
    graphs = tuple(codec.decode(ModuleRecord, module) for module in modules)
    asked, machine = BreakdownRequest("", ""), Environment()
    peaks = codec.decode(Peaks, data["peaks"]) if data.get("peaks") is not None else None
    return Run(schema.FORMAT, "", "", "", "", "", "", asked, machine, peaks=peaks, modules=graphs, program=program)


def _retune(data: dict[str, Any]) -> RetuneRow:
    row = RetuneRow(
        str(data["name"]),
        str(data["kernel_id"]),
        Category(data["category"]),
        tuple(map(str, data["graphs"])),
        _finite(data["calls"]),
        _finite(data["time_s"]),
        _text(data["file"]),
        str(data["method"]),
    )
    kernel, failure = data["kernel"], data["failure"]
    tuning = kernel.get("tuning") if kernel is not None else None
    if tuning is None or failure is not None:
        return row._replace(
            problem=why_untuned(failure["message"] if failure is not None else None, kernel is not None)
        )
    default_s, best_s, speedup = (_finite(tuning[name]) for name in ("default_s", "best_s", "speedup"))
    row = row._replace(caution="; ".join(kernel["advice"]))
    return row.tuned(default_s, best_s, speedup, str(tuning["verdict"]), dict(tuning["best_config"]))


def _graph(data: dict[str, Any], tuned: Mapping[str, RetuneRow], program: Program | None) -> GraphResult:
    wall, busy, idle = _number(data["wall_time_s"]), _number(data["busy_time_s"]), data["idle"]
    rows = data["kernels"]
    kernels = tuple(_kernel(kernel) for kernel in rows)
    if program is not None:
        kernels = kernels_in_step(kernels, rows)
        rows = [row for row in rows if row["step_time_s"]]
    if tuned:
        files = (kernel["file"] for kernel in rows)
        kernels = tuple(_tuned(kernel, file, tuned) for kernel, file in zip(kernels, files, strict=True))
    graph = GraphResult(
        str(data["label"]),
        str(data["device"]),
        max(wall or 0.0, busy or 0.0) or sum(kernel.time_s for kernel in kernels),
        wall,
        _number(data["busy_share"]),
        _number(data["launches"]),
        _finite(idle["time_s"]) if idle is not None and wall else None,
        tuple((Category(total["name"]), _finite(total["time_s"])) for total in data["categories"]),
        kernels,
    )
    return graph_in_step(graph, str(data["slug"]), program) if program is not None else graph


def _kernel(data: dict[str, Any]) -> KernelResult:
    name = str(data["name"])
    return KernelResult(
        name,
        str(data["kernel_id"]),
        _text(data.get("family_id")) or f"{data['category']} {name.rstrip('0123456789').rstrip('_')}",
        Category(data["category"]),
        _finite(data["calls"]),
        _finite(data["time_s"]),
        _text(data["operator"]),
        Limit(_number(data["peak_share"]), str(data["bound"]), _number(data["gain_limit_s"])),
        Amounts(_number(data["moved_bytes"]), _number(data["flops"]), _text(data["dtype"])),
        KernelOccupancy(_whole(data["registers"]), _whole(data["spills"]), _number(data["occupancy"])),
    )


def _tuned(kernel: KernelResult, file: str | None, tuned: Mapping[str, RetuneRow]) -> KernelResult:
    """The kernel with the figures of its own retune, or of the library call that shares its file."""
    own = tuned.get(kernel.kernel_id)
    found = own or tuned.get(file or "")
    if found is None:
        return kernel
    saving_s = own.saving_s * kernel.time_s / own.time_s if own is not None and own.saving_s is not None else None
    tuned_s = found.tuned_default_s, found.tuned_best_s
    return kernel._replace(retune=RetuneResult(*tuned_s, found.speedup, found.verdict, saving_s))


def _number(value: Any) -> float | None:
    return None if value is None else _finite(value)


def _finite(value: Any) -> float:
    number = float(value)
    if number and not SMALLEST <= abs(number) <= LARGEST:
        wanted = "a number that can be measured" if math.isfinite(number) else "a finite number"
        raise ValueError(f"{number} is not {wanted}")
    return number


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{type(value).__name__} instead of a text")


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _machine(data: dict[str, Any], graphs: Sequence[GraphResult]) -> str:
    environment = Environment(
        versions=Versions(torch=data["torch"], triton=data["triton"]),
        host=Host(data["cpu"]),
        device=AcceleratorFacts(data["accelerator"]),
    )
    device = common_device(graph.device for graph in graphs)
    versions = environment.versions
    parts = [device.name_in(environment) or environment.host.cpu, f"torch {versions.torch}" if versions.torch else ""]
    if versions.triton and device.generates_triton:
        parts.append(f"triton {versions.triton}")
    return " · ".join(part for part in parts if part)
