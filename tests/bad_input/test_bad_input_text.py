"""Text from outside that nothing generated: every reader says in words what is wrong with it, in a short time."""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import zlib
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase

import pytest
from work import FACTOR, cpu_seconds, grows_linearly

from inductor_bench.errors import InductorBenchError, UsageError
from inductor_bench.records.traced import Trace
from inductor_bench.report import names
from inductor_bench.source.module_reader import read_module
from inductor_bench.source.static_calls import read_static_launches
from inductor_bench.source.structured_trace import read_structured_trace
from inductor_bench.store.files import read_text
from inductor_bench.trace.rows import find_parents, read_trace
from inductor_bench.workflows.kernels.kernel_session import find_files
from inductor_bench.workflows.model_list import read_list
from inductor_bench.workflows.modules.targets import find_path_kind

DATA = Path(__file__).parent.parent / "data"
SAMPLES = DATA / "h200_torch2.11/samples"
USER = gzip.decompress((SAMPLES / "user/module_0.py.gz").read_bytes()).decode()
TRACE = SAMPLES / "attention/trace_0.json.gz"


def traced(folder: Path, events: str) -> Trace:
    path = folder / "trace.json"
    path.write_text('{"traceEvents": [\n' + events + "\n]}")
    return read_trace(path)


def event(**values: str) -> str:
    fields = {"ts": "5.000", "dur": "2", "name": '"aten::mm"', "args": '{"External id": 7}', **values}
    return (
        '{"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, ' + ", ".join(f'"{k}": {v}' for k, v in fields.items()) + "}"
    )


NO_TIMES = ["1e999", "NaN", "9" * 25, "9" * 17, "-" + "9" * 30, "Infinity", "[1]", '"x"', "true"]


@pytest.mark.parametrize("value", NO_TIMES)
@pytest.mark.parametrize("name", ["ts", "dur"])
def test_an_event_without_a_time_is_damaged_and_costs_only_itself(name: str, value: str, tmp_path: Path) -> None:
    trace = traced(tmp_path, ",\n".join([event(), event(**{name: value}), event(ts="9")]))
    assert trace.truncated
    assert [op.start_s for op in trace.host_ops] == [0.0, 4e-6]


@pytest.mark.parametrize("value", ["1.5", "9" * 25, "1e300", "null", "[]", '"9999999999999999999999"', "NaN"])
def test_an_invalid_id_links_nothing(value: str, tmp_path: Path) -> None:
    trace = traced(tmp_path, ",\n".join([event(), event(ts="9", args='{"External id": ' + value + "}")]))
    assert [op.external_id for op in trace.host_ops] == [7, -1]
    assert not trace.truncated


def test_a_shape_with_a_number_left_out_is_another_shape(tmp_path: Path) -> None:
    trace = traced(tmp_path, ",\n".join([event(), event(), event(dur=""), event(ts="9")]))
    assert trace.truncated
    assert len(trace.host_ops) == 3


@pytest.mark.parametrize("depth", [100, 950, 990, 5000])
def test_an_event_nested_deep_costs_at_most_itself(depth: int, tmp_path: Path) -> None:
    deep = '{"Input Dims": ' + "[" * depth + "]" * depth + "}"
    trace = traced(tmp_path, ",\n".join([event(), event(args=deep), event(ts="9")]))
    assert trace.truncated is (len(trace.host_ops) == 2)
    assert [op.external_id for op in trace.host_ops if op.external_id >= 0] == [7, 7]
    assert "(" * 20 not in repr(trace)


@pytest.mark.parametrize(
    "values",
    [
        {"args": '{"Input Dims": [{"a": 1}, 5, ["x", 1e999]], "Input type": [["a"], "float", 3]}'},
        {"name": '"\\ud800"'},
        {
            "cat": '"kernel"',
            "args": '{"registers per thread": 1e300, "grid": [1, 1e99, true], "bytes": "' + "9" * 5000 + '"}',
        },
    ],
)
def test_what_an_event_says_is_of_known_types(values: dict[str, str], tmp_path: Path) -> None:
    trace = traced(tmp_path, event(**values))
    for op in trace.host_ops:
        op.name.encode()
        assert op.arguments is None or op.arguments.dims == ((), (), (0, 0))
    for found in trace.device_events:
        assert (found.registers, found.grid, found.moved_bytes) == (None, None, None)


def test_a_flipped_bit_makes_no_reading_long(tmp_path: Path) -> None:
    packed = (DATA / "h200_torch2.11/mixnet_l_p10/forward.trace.json.gz").read_bytes()
    path, rng = tmp_path / "trace.json.gz", random.Random(1)
    path.write_bytes(packed)

    def read() -> None:
        with contextlib.suppress(InductorBenchError):
            read_trace(path)

    whole_s = cpu_seconds(lambda: read_trace(path))
    # The first three took 20 s and more: what was pending was decoded again for each piece that followed.
    for place, bit in [(934044, 16), (885242, 1), (46812, 1), *((rng.randrange(len(packed)), 4) for _ in range(2))]:
        flipped = bytearray(packed)
        flipped[place] ^= bit
        path.write_bytes(bytes(flipped))
        assert cpu_seconds(read, times=1) < 8 * whole_s


@pytest.mark.parametrize("filling", [" ", '"', "},", "[", '"ts": '])
def test_an_event_without_an_end_ends_the_trace(filling: str, tmp_path: Path) -> None:
    start, paths = '{"traceEvents": [' + event() + "," + event() + ',{"a": ', {}
    for size in (8_000_000, 8_000_000 // FACTOR):
        paths[size] = tmp_path / f"{size}.json.gz"
        paths[size].write_bytes(gzip.compress((start + filling * (size // len(filling))).encode(), 1))
        trace = read_trace(paths[size])
        assert trace.truncated and len(trace.host_ops) == 2
    assert grows_linearly(lambda size: read_trace(paths[size]), 8_000_000)


def test_overlapping_operators_take_a_linear_time() -> None:
    def find(count: int) -> None:
        assert find_parents(range(count), range(count, 2 * count), [0] * count) == [-1] * count

    assert grows_linearly(find, 200_000)


@pytest.mark.parametrize(
    "number",
    ["1e999", "10" * 200, "(" * 5000, "-" * 3000 + "1", "+".join("1" * 700), "'\\ud800'", "\0", "9" * 5000, "9" * 25],
)
def test_what_no_module_holds_is_refused_in_words(number: str) -> None:
    text = USER.replace("args.clear()", f"args.clear()\n        left = {number}", 1)
    with pytest.raises(InductorBenchError, match="not a compiled module"):
        read_module(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("empty_strided_cuda((", "empty_strided_cuda((1, 2, 3, 4, "),
        ("assert_size_stride(arg0_1, (", "assert_size_stride(arg0_1, (7, 7, 7, "),
        ("args.clear()", "args.clear(); aten(); extern_kernels(1); s = 9**9; s = 3037000500" + "; s = s*s" * 40),
        ("'signature': {", "'signature': {" * 30_000),
        ("'kernel_num_gb': ", "'kernel_num_gb': 1e999"),
    ],
    ids=("a tensor's sizes", "an input's sizes", "long products", "nested dictionaries", "a number"),
)  # fmt: skip
def test_arguments_that_do_not_agree_are_left_out(old: str, new: str) -> None:
    def read(text: str) -> None:
        read_static_launches(text, read_module(text))

    for path in sorted(SAMPLES.rglob("module_0.py.gz")):
        text = gzip.decompress(path.read_bytes()).decode()
        changed = text.replace(old, new)
        whole_s = cpu_seconds(lambda: read(text), times=1)  # noqa: B023
        most_s = max(0.2, 8 * whole_s * len(changed) / len(text))  # one of a few ms may meet a garbage collection
        assert cpu_seconds(lambda: read(changed), times=1) < most_s  # noqa: B023


def test_a_byte_that_is_not_utf8_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_bytes(b"a = '\xff'\n")
    assert read_text(path) == "a = '\ufffd'\n"
    with pytest.raises(InductorBenchError, match="No such file"):
        read_text(tmp_path / "absent.py")


@pytest.mark.parametrize("damage", ["cut", "flipped", "no gzip"])
def test_a_damaged_structured_log_counts_as_far_as_it_goes(damage: str, tmp_path: Path) -> None:
    source = next((DATA / "cpu_torch2.13/samples/brk/structured").iterdir())
    packed = bytearray(source.read_bytes())
    if damage == "cut":
        del packed[len(packed) // 2 :]
    elif damage == "flipped":
        packed[10] ^= 255
        with pytest.raises(zlib.error):
            gzip.decompress(bytes(packed))
    else:
        packed[:2] = b"xx"
    (tmp_path / source.name).write_bytes(packed)
    assert read_structured_trace(tmp_path).codes == ()


@pytest.mark.parametrize(
    "head",
    [
        '{"str": 5}', '{"str": [1]}', '{"str": ["a", []]}', '{"dynamo_start": 5}', '{"dynamo_start": {"stack": 5}}',
        '{"dynamo_start": {"stack": [5]}}', '{"dynamo_start": {"stack": [{"filename": []}]}}',
        '{"inductor_output_code": 5}', '{"inductor_output_code": {"file_path": ["x"]}, "frame_id": []}',
        '{"artifact": {"name": "torch_version"}, "frame_id": {}}', '{"aot_forward_graph": {}, "frame_id": []}',
        '{"str": ' + "[" * 5000,
    ],
)  # fmt: skip
def test_entries_of_other_types_are_passed_over(head: str, tmp_path: Path) -> None:
    line = "V0101 00:00:00.000000 1 torch/_logging/structured.py:1] " + head + "\n\tpayload\n"
    (tmp_path / "dedicated_log_torch_trace_x.log").write_text(line * 2)
    assert read_structured_trace(tmp_path).graph_breaks == ()


@pytest.mark.parametrize(
    "text",
    [
        "models:\n  - target: resnet18\n    batch_size: " + "9" * 4300,
        "models:\n  - target: resnet18\n    seed: " + "9" * 30,
        "models: " + "[" * 5000,
        "models:\n  - target: resnet18\n    args: &a [*a]",
        "models:\n  - target: resnet18\n    amp: [1]",
        "models:\n  - target: resnet18\n    training: !!bool x",
        "models:\n  - target: resnet18\n    timeout: .inf",
        "models:\n  - target: resnet18\n    batch_size: !!timestamp x",
        "? [a]\n: b\nmodels: [resnet18]",
        "models:\n  - ? [a]\n    : b",
        'models: ["\\UFFFFFFFF"]',
        "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in pairwise(ascii_lowercase))
        + "models:\n  - target: resnet18\n    seed: *z",
        "models:\n  - target: " + "a" * 300 + ".py",
    ],
)  # fmt: skip
def test_yaml_that_cannot_be_meant_is_refused_in_words(text: str, tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_list(path)
    assert len(caught.value.message) < 1000


def test_thousands_of_models_of_one_name_are_numbered_at_once(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"

    def read(count: int) -> None:
        sizes = range(1, 1 + count)
        path.write_text("".join(f"resnet18 {size}\nresnet-18 {size}\nresnet--18 {size}\n" for size in sizes))
        assert len({request.name for request in read_list(path)}) == 3 * count

    assert grows_linearly(read, 3200)


def test_a_path_that_cannot_be_looked_up_is_refused_in_words(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert [find_path_kind(tmp_path), find_path_kind(tmp_path / "pipe"), find_path_kind(tmp_path / "absent")] == [
        "folder",
        "other",
        "",
    ]
    for name in ("x" * 300, "a\0b", "/".join(["y"] * 5000)):
        with pytest.raises(UsageError, match="cannot be looked up") as caught:
            find_path_kind(tmp_path / name)
        assert len(caught.value.message) < 300


@pytest.mark.parametrize("glob", ["**", "/abs", "../x", "[", "a/b"])
def test_a_pattern_chooses_among_the_names_of_one_folder(glob: str, tmp_path: Path) -> None:
    (tmp_path / "abc.py").touch()
    if glob == "**":
        assert find_files([f"{tmp_path}#{glob}"]) == [tmp_path / "abc.py"]
    else:
        with pytest.raises(UsageError, match="holds no"):
            find_files([f"{tmp_path}#{glob}"])


@pytest.mark.parametrize("name", ["void a" + "a" * 16, "x_xmma_" + "_tensor1" * 2, "void kernel<" + "f_" * 8, "<" * 16])
def test_a_name_of_240_kb_is_short_at_once(name: str) -> None:
    def shorten(size: int) -> None:
        for number in range(20):
            assert names.count_columns(names.shorten(f"{name[:-16]}{name[-16:] * (size // 16)}{number}", 40)) <= 40

    assert grows_linearly(shorten, 240_000)


def test_thousands_of_names_with_one_short_form_are_told_apart_at_once() -> None:
    def shorten(count: int) -> None:
        alike = [f"{'a' * 40}{number:05}{'b' * 40}" for number in range(count)]
        alike += [f"x ~{n}" for n in range(2, count // 2)]
        shorts = names.make_names_unique(alike, 24)
        assert len(set(shorts.values())) == len(alike)
        assert max(map(names.count_columns, shorts.values())) <= 24

    assert grows_linearly(shorten, 5000)
