"""The codec and the schema: what goes out comes back, and what does not fit is named."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from inline import change, make

from inductor_bench.errors import InductorBenchError
from inductor_bench.records.base import Category, Failure, Inline
from inductor_bench.records.code import SourceLine
from inductor_bench.records.module import Kernel, ModuleRecord, ShapeGroup
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.records.run import (
    GRAPH,
    HOST_LANE,
    IDLE,
    PATTERN,
    Environment,
    Interval,
    Part,
    Peaks,
    Program,
    RankSteps,
    Run,
    Timeline,
)
from inductor_bench.store import codec
from inductor_bench.store import codec as schema
from inductor_bench.store.folder import RunFolder
from inductor_bench.store.run_files import read_timeline, write_timeline

DATA = Path(__file__).parents[1] / "data"
RECORDED = ("albert_bf16/record.json.gz", "batch_two/mobilenetv2_100.json.gz", "batch_two/repvgg_a2.json.gz")
KERNEL = make(
    Kernel,
    name="triton_poi_fused_add_0",
    kernel_id="0123456789abcdef",
    category=Category.POINTWISE,
    calls=2.0,
    time_s=1.5e-6,
    samples_s=(1.4e-6, 1.6e-6),
    share=0.25,
    wall_share=None,
    config={"XBLOCK": 512, "num_warps": 8},
    grid=(1, 2, 3),
    shapes=(ShapeGroup("f16[2,3]", 1.0, 1e-6, flops=12.0),),
    source_lines=(SourceLine("model.py", 41, "forward", "x = a + b"),),
)
RUN = Run(
    format=schema.FORMAT,
    tool_version="0.1.0",
    run_id="a" * 16,
    created="2026-01-01T00:00:00+00:00",
    command="inductor-bench breakdown model.py",
    target="model.py",
    title="model.py",
    request=BreakdownRequest("model.py", "script", arguments=("--steps", "3")),
    environment=make(Environment, torch="2.13.0", variables={"OMP_NUM_THREADS": "2"}),
    peaks=Peaks("NVIDIA H200", 4.3e12, {"float16": 7.9e14}),
    modules=(
        make(
            ModuleRecord, "forward", "forward", "forward", "modules/forward.py", "cuda", method="-p", kernels=(KERNEL,)
        ),
    ),
    failures=(Failure("profile", "exit", "the worker exited with code 1"),),
)


def test_a_run_survives_json() -> None:
    assert codec.decode(Run, json.loads(json.dumps(codec.encode(RUN)))) == RUN


def test_no_number_that_json_lacks_is_written() -> None:
    kernel = change(KERNEL, flops=float("inf"), moved_bytes=float("nan"))
    text = json.dumps(codec.encode(kernel), allow_nan=False)
    assert json.loads(text)["flops"] is None


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("modules", 0, "kernels", 0, "time_s"), "fast", r"Run\.modules\[0\]\.kernels\[0\]\.time_s"),
        (("modules", 0, "kernels", 0, "category"), "\x1b[31m", r"Run\.modules\[0\]\.kernels\[0\]\.category"),
        (("modules",), {}, r"Run\.modules"),
        (("environment",), [], r"Run\.environment"),
        (("peaks", "memory_bandwidth"), True, r"Run\.peaks\.memory_bandwidth"),
        (("modules", 0, "kernels", 0, "time_s"), float("nan"), r"kernels\[0\]\.time_s should be a finite number"),
        (("peaks", "memory_bandwidth"), float("inf"), r"memory_bandwidth should be a finite number but is inf"),
    ],
)
def test_a_damaged_record_names_the_place(path: tuple[str | int, ...], value: object, place: str) -> None:
    data = json.loads(json.dumps(codec.encode(RUN)))
    inner = data
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(InductorBenchError, match=place):
        codec.decode(Run, data)


def test_a_missing_key_with_a_default_is_filled_and_one_without_is_named() -> None:
    data = json.loads(json.dumps(codec.encode(RUN)))
    del data["capture"]
    assert codec.decode(Run, data).capture.printed == 0
    del data["run_id"]
    with pytest.raises(InductorBenchError, match=r"Run\.run_id"):
        codec.decode(Run, data)


def test_unknown_keys_of_a_later_minor_version_are_ignored() -> None:
    data = {**codec.encode(RUN), "novelty": 1}
    assert codec.decode(Run, data) == RUN


@pytest.mark.parametrize(("number", "message"), [(None, "no format number"), (99, "newer than"), (0, "no longer read")])
def test_formats_that_cannot_be_read_are_told_apart(number: int | None, message: str) -> None:
    with pytest.raises(InductorBenchError, match=message):
        schema.upgrade({"format": number}, "record.json")


def test_a_record_of_format_1_has_no_program() -> None:
    data = codec.encode(RUN)
    for name in ("step_calls", "step_time_s", "step_share"):
        del data["modules"][0]["kernels"][0][name]
    del data["program"]
    upgraded = schema.upgrade({**data, "format": 1}, "record.json")
    assert codec.decode(Run, upgraded) == RUN


def test_a_program_survives_json() -> None:
    part = Part(GRAPH, "forward", 12.0, 8e-3, 0.8, 9e-3, 12.0, 120.0, "forward", source=SourceLine("m.py", 3, "f", ""))
    idle = Part(IDLE, "Python", 0.0, 2e-3, 0.2)
    rank = RankSteps(0, 7, "cuda", (0.01, 0.01), 0.01, 8e-3, parts=(part, idle), trace="traces/step.json.gz")
    program = Program(0.01, (0.01, 0.01), PATTERN, 8e-3, (part, idle), ranks=(rank,), notes=("one process",))
    kernel = replace(KERNEL, step_calls=24.0, step_time_s=1.8e-5, step_share=1.8e-3)
    run = replace(RUN, program=program, modules=(replace(RUN.modules[0], kernels=(kernel,)),))
    assert codec.decode(Run, json.loads(json.dumps(codec.encode(run)))) == run


def test_an_unwritable_record_is_one_clear_line(tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InductorBenchError, match="cannot write"):
        RunFolder(tmp_path / "file" / "x").save(RUN)


@dataclass(frozen=True)
class Size:
    width: int
    unit: str = "mm"


@dataclass(frozen=True)
class Box:
    name: str
    size: Inline[Size]
    weight: float = 0.0


def test_the_fields_of_an_inline_dataclass_are_keys_of_the_object_that_holds_it() -> None:
    box = Box("small", Size(3, "cm"), 2.5)
    assert list(codec.encode(box).items()) == [("name", "small"), ("width", 3), ("unit", "cm"), ("weight", 2.5)]
    assert codec.decode(Box, codec.encode(box)) == box
    assert codec.encode_sparse(Box("small", Size(3))) == {"name": "small", "width": 3}
    assert codec.decode(Box, {"name": "small", "width": 3}) == Box("small", Size(3))


def test_errors_name_the_keys_of_an_inline_dataclass_as_they_stand_in_the_file() -> None:
    with pytest.raises(InductorBenchError, match=r"^Box\.width is missing$"):
        codec.decode(Box, {"name": "small"})
    with pytest.raises(InductorBenchError, match=r"^Box\.unit should be str but is 1$"):
        codec.decode(Box, {"name": "small", "width": 3, "unit": 1})


def test_two_fields_with_the_same_key_are_refused() -> None:
    @dataclass(frozen=True)
    class Twice:
        width: int
        size: Inline[Size]

    with pytest.raises(TypeError, match="two fields have the same key"):
        codec.encode(Twice(1, Size(2)))


def without_younger(written: Any, old: Any) -> Any:
    """What was written, without the keys that are younger than an old record."""
    if isinstance(written, dict) and isinstance(old, dict):
        return {key: without_younger(value, old[key]) for key, value in written.items() if key in old}
    if isinstance(written, list) and isinstance(old, list) and len(written) == len(old):
        return [without_younger(*pair) for pair in zip(written, old, strict=True)]
    return written


def test_a_record_with_every_field_of_its_time_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    """The file has a distinct value for each key of format 2, in the order in which they are written."""
    text, folder = (DATA / "record_of_format_2.json").read_text(), RunFolder(tmp_path)
    data = json.loads(text)
    folder.save(codec.decode(Run, data))
    written = json.loads(folder.record.read_text())
    assert json.dumps(without_younger(written, data), indent=2) + "\n" == text


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_record_is_written_again_with_the_same_keys_and_values(name: str) -> None:
    data = json.loads(gzip.decompress((DATA / "h200_torch2.11" / name).read_bytes()))
    written = json.loads(json.dumps(codec.encode(codec.decode(Run, data))))
    # The recordings have whole numbers as clocks.
    first, second = (
        json.dumps(json.loads(json.dumps(record), parse_int=float), sort_keys=True)
        for record in (without_younger(written, data), data)
    )
    assert first == second


def test_a_timeline_survives_its_file(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert read_timeline(folder) is None
    timeline = Timeline(0.01, (Interval(HOST_LANE, 0.0, 1e-3, IDLE, "Python"),), rank=1)
    write_timeline(folder, timeline)
    assert read_timeline(folder) == timeline
