"""Reading Chrome traces: against a plain decoding of the same file, in every layout, cut short, and hostile."""

from __future__ import annotations

import gzip
import json
import random
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from inductor_bench.errors import InductorBenchError
from inductor_bench.records.traced import Trace
from inductor_bench.trace import events
from inductor_bench.trace.events import _parse_nanoseconds as nanoseconds
from inductor_bench.trace.rows import find_parents, read_trace

DATA = Path(__file__).parent.parent / "data"
H200 = DATA / "h200_torch2.11"
MIXNET = H200 / "mixnet_l_train/forward.trace.json.gz"
TEM = H200 / "tem/trace_0.json.gz"
CPU = DATA / "cpu_torch2.13/compiled_module_profile.json.gz"
RECORDED = [MIXNET, TEM, H200 / "flex/trace_0.json.gz", H200 / "scan_combo/trace_0.json.gz", CPU]


def load(path: Path) -> dict[str, Any]:
    with gzip.open(path) as file:
        return json.load(file)


def write(folder: Path, events: list[Any], **options: Any) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, "traceName": "t"}, **options))
    return path


def op(name: str, ts: float, dur: float, external: int | None = None, tid: int = 1, **arguments: Any) -> dict[str, Any]:
    if external is not None:
        arguments["External id"] = external
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur, "args": arguments}


def timed(category: str, name: str, ts: float, dur: float, **arguments: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": arguments}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_recorded_traces_agree_with_a_plain_decoding(path: Path) -> None:
    events = load(path)["traceEvents"]
    trace = read_trace(path)
    ops = {event["args"]["External id"]: event for event in events if event.get("cat") == "cpu_op"}
    work = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    launches = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("cuda_driver", "cuda_runtime")}
    origin = min(e["ts"] for e in [*ops.values(), *work, *launches.values()])
    assert not trace.truncated
    assert len(trace.host_ops) == len(ops)
    for found in trace.host_ops:
        event = ops[found.external_id]
        assert found.name == event["name"]
        assert found.start_s == pytest.approx((event["ts"] - origin) * 1e-6, abs=2e-9)
        assert found.duration_s == pytest.approx(event["dur"] * 1e-6, abs=1e-13)
        assert found.kernel_hash == event["args"].get("kernel_hash")
        if "Input Dims" in event["args"]:
            assert found.arguments is not None
            assert json.loads(json.dumps(found.arguments.dims)) == event["args"]["Input Dims"]
            assert list(found.arguments.concrete) == event["args"]["Concrete Inputs"]
    assert len(trace.device_events) == len(work)
    by_correlation = {event["args"]["correlation"]: event for event in work}
    for found in trace.device_events:
        event = by_correlation[found.correlation]
        assert found.name == event["name"]
        assert trace.host_ops[found.host_op].external_id == event["args"]["External id"]
        expected_launch = (launches[found.correlation]["ts"] - origin) * 1e-6
        assert found.launch_start_s == pytest.approx(expected_launch, abs=2e-9)
        assert found.registers == event["args"].get("registers per thread")
        assert found.moved_bytes == event["args"].get("bytes")
    synchronizations = sum(event["name"] == "cudaDeviceSynchronize" for event in launches.values())
    assert len(trace.synchronizations) == synchronizations


def test_figures_of_the_recorded_training_step() -> None:
    trace = read_trace(MIXNET)
    assert [event.kind for event in trace.device_events].count("memset") == 3
    assert len(trace.device_events) == 2385
    assert all(event.host_op >= 0 and event.launch_start_s is not None for event in trace.device_events)
    triton = [event for event in trace.device_events if event.name.startswith("triton_")]
    assert len(triton) == 3 * 630
    assert all(trace.host_ops[event.host_op].name == event.name for event in triton)
    assert trace.devices[0].name == "NVIDIA H200"
    assert (trace.devices[0].compute_capability, trace.devices[0].multiprocessors) == ("9.0", 132)
    assert all(event.occupancy is None or 0 <= event.occupancy <= 1 for event in trace.device_events)
    first = trace.host_ops[0]
    assert (first.kernel_kwargs, first.num_warps, first.num_stages) == ("XBLOCK=16,YBLOCK=64", 4, 1)


@pytest.mark.parametrize("path", [TEM, CPU, MIXNET], ids=lambda path: path.parent.name)
def test_parents_are_the_innermost_enclosing_operators(path: Path) -> None:
    trace = read_trace(path)
    ops = trace.host_ops[:400]
    spans = [(round(op.start_s * 1e9), round((op.start_s + op.duration_s) * 1e9)) for op in ops]
    for index, (start, end) in enumerate(spans):
        around = [other for other in range(index) if spans[other][0] <= start and end <= spans[other][1]]
        innermost = min(around, key=lambda other: spans[other][1] - spans[other][0], default=-1)
        assert ops[index].parent == innermost


def layouts(document: dict[str, Any]) -> dict[str, str]:
    events = document["traceEvents"]
    return {
        "compact": json.dumps(document, separators=(",", ":")),
        "no indent": json.dumps(document, indent=0),
        "one": json.dumps(document, indent=1),
        "four": json.dumps(document, indent=4),
        "tab": json.dumps(document, indent="\t"),
        "sorted": json.dumps(document, indent=2, sort_keys=True),
        "lines": '{"traceEvents": [' + ",\n".join(map(json.dumps, events)) + "]}",
        "mixed": '{"traceEvents": [' + "".join(
            (" , " if number % 3 else ",\n  ") * bool(number) + json.dumps(event, indent=(None, 1)[number % 2])
            for number, event in enumerate(events)
        ) + "]\n}",
    }  # fmt: skip


@pytest.mark.parametrize("layout", ["compact", "no indent", "one", "four", "tab", "sorted", "lines", "mixed"])
def test_layout_does_not_matter(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(layouts(load(TEM))[layout])
    found, expected = read_trace(path), read_trace(TEM)
    assert (found.host_ops, found.device_events, found.synchronizations) == (
        expected.host_ops,
        expected.device_events,
        expected.synchronizations,
    )
    assert not found.truncated


def test_order_of_events_does_not_matter(tmp_path: Path) -> None:
    document = load(TEM)
    random.Random(3).shuffle(document["traceEvents"])
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    assert read_trace(path) == read_trace(TEM)


@pytest.mark.parametrize("size", [2, 7, 61, 997])
def test_where_chunks_end_does_not_matter(size: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expected = read_trace(CPU)
    plain = tmp_path / "trace"
    plain.write_bytes(gzip.decompress(CPU.read_bytes()))
    monkeypatch.setattr(events, "CHUNK_BYTES", size)
    assert read_trace(CPU) == read_trace(plain) == expected


def test_gzip_is_told_by_its_first_bytes_and_members_are_joined(tmp_path: Path) -> None:
    text = gzip.decompress(TEM.read_bytes())
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(text[:5000]) + gzip.compress(text[5000:]) + b"\0" * 64)
    assert read_trace(path) == read_trace(TEM)


HOSTILE = 'k<T, "a">\\{}}, {"ph": "X", "cat": "ac2g"},\n  {"ts": 5, "dur": 6 ünï ☃'


@pytest.mark.parametrize("indent", [None, 2])
def test_names_that_look_like_json_stay_names(indent: int | None, tmp_path: Path) -> None:
    nested = {"deep": [{"ts": 1.5, "cat": "ac2g"}, {"dur": 2}, {"a": {"b": [{}, {}]}}]}
    events = [op(HOSTILE, 10.0, 5.0, 1, **nested), op("aten::mm", 20.0, 5.0, 2), op(HOSTILE, 30.0, 5.0, 3, **nested)]
    trace = read_trace(write(tmp_path, events, indent=indent, ensure_ascii=False))
    assert [(found.name, found.start_s) for found in trace.host_ops] == [
        (HOSTILE, 0.0),
        ("aten::mm", 10e-6),
        (HOSTILE, 20e-6),
    ]
    assert not trace.truncated


def test_annotations_and_other_tracks_are_not_work(tmp_path: Path) -> None:
    others = ["gpu_user_annotation", "user_annotation", "overhead", "cuda_sync", "python_function", "unheard_of"]
    events = [timed(category, "x", 1.0, 2.0, correlation=4) for category in others]
    trace = read_trace(write(tmp_path, [*events, timed("kernel", "k", 3.0, 1.0, correlation=5)]))
    assert [event.name for event in trace.device_events] == ["k"]
    assert trace.host_ops == ()


def test_other_vendors_launches_and_synchronisations(tmp_path: Path) -> None:
    events = [
        op("aten::mm", 1.0, 9.0, 1),
        timed("cuda_runtime", "hipExtModuleLaunchKernel", 2.0, 1.0, correlation=3, **{"External id": 1}),
        timed("kernel", "Cijk_Ailk", 4.0, 2.0, correlation=3, device=1, stream=0),
        timed("cuda_runtime", "hipDeviceSynchronize", 11.0, 1.0, correlation=4),
        timed("xpu_runtime", "urEnqueueKernelLaunch", 12.0, 1.0, correlation=5),
        timed("kernel", "gemm_kernel", 14.0, 2.0, correlation=5),
        timed("xpu_driver", "zeCommandQueueSynchronize", 15.0, 1.0),
    ]
    trace = read_trace(write(tmp_path, events))
    rocm, xpu = trace.device_events
    assert (rocm.host_op, rocm.device, rocm.launch_start_s) == (0, 1, pytest.approx(1e-6))
    assert (xpu.host_op, xpu.stream, xpu.launch_start_s) == (-1, 7, pytest.approx(11e-6))
    assert trace.synchronizations == (pytest.approx(10e-6), pytest.approx(14e-6))


def test_graph_replays_share_one_launch_and_have_no_operator(tmp_path: Path) -> None:
    kernels = [timed("kernel", "k", 10.0 + number, 0.5, correlation=8, stream=7) for number in range(4)]
    trace = read_trace(write(tmp_path, [*kernels, timed("cuda_runtime", "cudaGraphLaunch", 1.0, 2.0, correlation=8)]))
    assert [(event.host_op, event.launch_start_s) for event in trace.device_events] == [(-1, 0.0)] * 4


def test_whole_numbers_and_great_epochs_are_exact(tmp_path: Path) -> None:
    base = 1_790_857_026_000_000
    text = '{"traceEvents": [' + ", ".join(
        f'{{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": {base + 7 * n}.{n:03d}, "dur": {n}}}'
        for n in range(5)
    ) + "]}"  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(text)
    assert [round(found.start_s * 1e9) for found in read_trace(path).host_ops] == [7001 * n for n in range(5)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"12.345", 12345), (b"7", 7000), (b"-0.5", -500), (b"1.5e3", 1500000), (b"1.5e7", 15000000000), (b"2.25", 2250)],
)
def test_nanoseconds(text: bytes, expected: int) -> None:
    assert nanoseconds(Decimal(text.decode())) == nanoseconds(float(text)) == expected


def is_beginning_of(part: Trace, whole: Trace) -> bool:
    """Whether each operator of a cut trace is one of the whole trace, with the same name and duration."""
    known = {found.external_id: (found.name, found.duration_s) for found in whole.host_ops}
    return all(known[found.external_id] == (found.name, found.duration_s) for found in part.host_ops)


@pytest.mark.parametrize("path", [TEM, CPU], ids=lambda path: path.parent.name)
def test_a_trace_cut_anywhere_yields_what_was_whole(path: Path, tmp_path: Path) -> None:
    text, whole = gzip.decompress(path.read_bytes()), read_trace(path)
    start, end = text.index(b'"traceEvents": [') + 16, text.rindex(b"}")
    cut_file = tmp_path / "trace.json"
    seen = []
    for cut in [*range(start, len(text), 379), *range(end - 40, end + 1)]:
        cut_file.write_bytes(text[:cut])
        part = read_trace(cut_file)
        assert part.truncated, cut
        assert is_beginning_of(part, whole)
        seen.append(len(part.host_ops))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, len(whole.host_ops))


def test_a_cut_gzip_file_yields_what_was_whole(tmp_path: Path) -> None:
    packed = MIXNET.read_bytes()
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    part = read_trace(path)
    assert part.truncated
    assert 500 < len(part.host_ops) < 3288
    assert is_beginning_of(part, read_trace(MIXNET))


def test_one_damaged_event_costs_only_itself(tmp_path: Path) -> None:
    text = gzip.decompress(CPU.read_bytes()).replace(b'"name": "aten::addmm"', b'"name": "aten::"addmm"', 1)
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    trace = read_trace(path)
    assert trace.truncated
    assert len(trace.host_ops) == 95


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"not json at all", "not a Chrome trace"),
        (b'[{"ph": "X"}]', "not a Chrome trace"),
        (b'{"a": 1}', "no traceEvents"),
        (b'{"traceEvents": 3}', "no traceEvents"),
        (b'{"traceEvents": [3, 4]}', "no events"),
        (gzip.compress(b"", mtime=0), "empty"),
        (b"\x1f\x8bgarbage", "empty"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(InductorBenchError, match=reason) as caught:
        read_trace(path)
    assert "bad.json" in caught.value.message
    assert caught.value.hint


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InductorBenchError, match="No such file"):
        read_trace(tmp_path / "absent.json")


def test_a_trace_without_events_is_empty(tmp_path: Path) -> None:
    assert read_trace(write(tmp_path, [])) == Trace((), (), (), ())


def test_devices_may_follow_the_events(tmp_path: Path) -> None:
    document = load(TEM)
    path = tmp_path / "trace.json"
    events = document.pop("traceEvents")
    path.write_text(json.dumps({"traceEvents": events, **document}))
    assert read_trace(path).devices == read_trace(TEM).devices


def test_parents_with_overlaps_threads_and_equal_spans() -> None:
    #         0        1        2        3 overlaps 1    4 other thread  5 equal to 2's end
    starts = [0, 1, 2, 4, 4, 9]
    ends = [20, 5, 4, 8, 6, 9]
    assert find_parents(starts, ends, [1, 1, 1, 1, 2, 1]) == [-1, 0, 1, 0, -1, 0]
    assert find_parents([0, 0], [5, 5], [1, 1]) == [-1, 0]


def test_memory_stays_far_below_that_of_decoding_everything(tmp_path: Path) -> None:
    sys.path.insert(0, str(DATA.parent.parent / "scripts"))
    try:
        from benchmark_traces import measure_readers, write_enlarged_trace
    finally:
        sys.path.pop(0)
    trace = tmp_path / "trace.json"
    assert write_enlarged_trace(MIXNET, trace, 10) > 16e6
    results = measure_readers(trace, rounds=1)
    assert results["read_trace"][1] < results["json.load"][1] / 2  # a third if the trace is ten times as large
    assert len(read_trace(trace).device_events) == 7950
