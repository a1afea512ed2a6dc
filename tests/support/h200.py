"""Reads the runs that were recorded on an H200: module text, trace, output of ``-p``, and facts of the process."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from inline import make
from source_data import module_of

from inductor_bench.records.code import ModuleSource
from inductor_bench.records.module import CategoryTotal, Kernel, ModuleRecord
from inductor_bench.records.run import Run
from inductor_bench.records.traced import Activity, Iteration, Trace
from inductor_bench.store.codec import decode, upgrade
from inductor_bench.trace.attribution import attribute_activities
from inductor_bench.trace.iterations import split_iterations
from inductor_bench.trace.rows import read_trace

FOLDER = Path(__file__).resolve().parent.parent / "data" / "h200_torch2.11"

RECORDED = (
    "mixnet_l_p10/forward",
    "mixnet_l_p10/backward",
    "gpu_kinds/0_forward",
    "gpu_kinds/0_backward",
    "gpu_kinds/3_inference",
)
"""Modules whose trace and ``-p`` output come from the same ten iterations."""


def text_of(name: str) -> str:
    return gzip.decompress((FOLDER / f"{name}.gz").read_bytes()).decode()


def json_of(name: str) -> Any:
    return json.loads(text_of(name))


def unpack_batch(folder: Path) -> Path:
    """Makes a batch folder of two models, which was recorded in several attempts."""
    (folder / "models").mkdir(parents=True)
    (folder / "batch.json").write_text(text_of("batch_two/batch.json"))
    for path in (FOLDER / "batch_two").glob("*_*.json.gz"):
        name = path.name.removesuffix(".json.gz")
        (folder / "models" / name).mkdir()
        (folder / "models" / name / "record.json").write_text(text_of(f"batch_two/{name}.json"))
    return folder


def source_of(name: str) -> ModuleSource:
    return module_of(FOLDER / f"{name}.py")


@cache
def trace_of(name: str) -> Trace:
    return read_trace(FOLDER / f"{name}.trace.json.gz")


@cache
def iterations_of(name: str) -> tuple[Iteration, ...]:
    return split_iterations(trace_of(name), expected=10)


@cache
def activities_of(name: str) -> tuple[Activity, ...]:
    return attribute_activities(trace_of(name), iterations_of(name), source_of(name))


@cache
def run_of(name: str) -> Run:
    return decode(Run, upgrade(json_of(f"{name}/record.json"), name))


def module_record(kernels: tuple[Kernel, ...], categories: tuple[CategoryTotal, ...]) -> ModuleRecord:
    return make(ModuleRecord, "x", "x", "forward", None, "cuda", method="trace", kernels=kernels, categories=categories)
