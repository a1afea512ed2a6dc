"""Every RUN that lies recorded in ``tests/data``, of several versions of the tool, GPUs and a CPU."""

from __future__ import annotations

import json
from functools import cache
from zipfile import ZipFile

import h200
from conftest import ROOT

from inductor_bench.records.run import Run
from inductor_bench.store.codec import decode, upgrade

DATA = ROOT / "tests" / "data"
BY_NAME = ("albert_bf16/record", "batch_two/mobilenetv2_100", "batch_two/repvgg_a2", "record_with_host")
ZIPPED = (*sorted((DATA / "documented").glob("*.zip")), DATA / "cpu_torch2.13" / "run_of_format_2.zip")


@cache
def recorded_texts() -> dict[str, str]:
    """The texts of the records by name."""
    found = {name: h200.text_of(f"{name}.json") for name in BY_NAME}
    for path in ZIPPED:
        with ZipFile(path) as archive:
            (record,) = (name for name in archive.namelist() if name.split("/")[-1] == "record.json")
            found[path.stem] = archive.read(record).decode()
    return {**found, "format_2": (DATA / "record_of_format_2.json").read_text()}


@cache
def recorded_runs() -> dict[str, Run]:
    """The records by name."""
    return {name: decode(Run, upgrade(json.loads(text), name)) for name, text in recorded_texts().items()}
