"""Any text in the place of a compiled module, a log or a structured trace is read or refused in words."""

from __future__ import annotations

import gzip
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import drawn_records
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inductor_bench.analysis.residence import describe_buffers
from inductor_bench.errors import InductorBenchError
from inductor_bench.source.generated_text import read_comment
from inductor_bench.source.module_reader import read_module
from inductor_bench.source.static_calls import read_static_launches
from inductor_bench.source.structured_trace import find_printed_module_paths, read_structured_trace

DATA = Path(__file__).parent.parent / "data"
MODULES = [
    gzip.decompress((DATA / name).read_bytes()).decode()
    for name in ("cpu_torch2.13/forward.py.gz", "h200_torch2.11/samples/attention/module_0.py.gz")
]
(STRUCTURED,) = (DATA / "cpu_torch2.13" / "structured").iterdir()
TRACE_LINES = gzip.decompress(STRUCTURED.read_bytes()).decode().splitlines(keepends=True)
HEADS = [line for line in TRACE_LINES if not line.startswith("\t")]

pieces = st.one_of(
    st.sampled_from(
        [
            *(
                "",
                "\0",
                "(" * 300,
                ")" * 300,
                "-" * 400 + "1",
                "'''",
                '"',
                "\\",
                "\n",
                "\r",
                "\x0c",
                "\t",
                "lambda: ",
                "*",
            ),
            *(
                "1" * 400,
                "1e999",
                "'\\ud800'",
                "# -*- coding: utf-7 -*-\n",
                "async_compile.triton('k', '''",
                "=",
                "None",
            ),
            *("[x for x in y]", "call(", "buf0", "empty_strided_cpu(", "def call(args):\n", "f'{x}'", "del buf0", ":"),
        ]
    ),
    st.text(max_size=6),
)
changes = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 40), pieces), max_size=3)


def changed(text: str, wounds: list[tuple[int, int, str]]) -> str:
    for place, length, piece in wounds:
        at = place % (len(text) + 1)
        text = text[:at] + piece + text[at + length :]
    return text


def read(text: str) -> None:
    try:
        source = read_module(text)
        read_static_launches(text, source)
        describe_buffers(text, source)
    except InductorBenchError as error:
        assert error.message


@settings(max_examples=30)
@given(st.sampled_from(MODULES), changes)
def test_a_changed_module_is_read_or_refused_in_words(text: str, wounds: list[tuple[int, int, str]]) -> None:
    read(changed(text, wounds))


statements = st.recursive(
    st.sampled_from(["x", "1", "'a'", "None", "buf0", "torch.float32", "(8, 4)", "async_compile", "-1", "args", "**k"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: f"{two[0]}({two[1]})"),
        st.tuples(inner, inner).map(lambda two: f"{two[0]}.f({two[1]}, k={two[0]})"),
        st.tuples(inner, inner).map(lambda two: f"{two[0]}[{two[1]}]"),
        inner.map(lambda one: f"({one},)"),
        inner.map(lambda one: f"-{one}"),
        st.tuples(inner, inner).map(lambda two: f"{two[0]} if {two[1]} else 1"),
    ),
    max_leaves=6,
)
calls = st.sampled_from(
    [
        *("extern_kernels.mm", "extern_kernels.bias_addmm", "extern_kernels.of_a_later_torch", "extern_kernels"),
        *("torch.ops.aten.sort.stable", "torch.ops.aten.sort", "torch.ops.aten", "torch.ops.mine.add_.default"),
        *("aten.add_.Tensor", "aten.sort", "torch._higher_order_ops.flex", "torch.sin", "buf0.copy_", "buf0.unknown"),
    ]
)
wrappers = st.lists(
    st.one_of(
        statements.map(lambda one: f"    buf0 = {one}\n"),
        statements.map(lambda one: f"    empty_strided_cpu({one}, {one})\n"),
        st.tuples(calls, statements).map(lambda two: f"    {two[0]}({two[1]}, out={two[1]})\n"),
        st.tuples(calls, statements, statements).map(lambda of: f"    buf0 = {of[0]}({of[1]}, {of[2]}, alpha=1)\n"),
        statements.map(lambda one: f"    cpp_fused_0({one})\n"),
        statements.map(lambda one: f"    assert_size_stride({one}, {one}, {one})\n"),
        statements.map(lambda one: f"    {one} = args\n"),
        statements.map(lambda one: f"    return ({one}, )\n"),
    ),
    max_size=6,
)


@given(wrappers)
def test_a_wrapper_of_any_calls_is_read_or_refused_in_words(lines: list[str]) -> None:
    kernel = "async_compile.cpp_pybinding(['float*'], '''void kernel() {}''')"
    head = f"async_compile = AsyncCompile()\ncpp_fused_0 = {kernel}\n"
    read(f"{head}def call(args):\n    args.clear()\n{''.join(lines)}")


@given(st.text(max_size=80))
@example("\0")
@example("\ud800")
@example("AsyncCompile()\ndef call(args): pass")
def test_any_text_is_read_as_a_module_or_refused_in_words(text: str) -> None:
    read(text)


@given(
    st.lists(
        st.one_of(st.text(max_size=20), st.text(max_size=9).map("Compiled module path: {}.py\n".format), st.just("\r")),
        max_size=6,
    ).map("".join)
)
@example("Compiled module path: \0.py\n")
@example("Compiled module path: /a b.pyCompiled module path: /c.py")
def test_a_log_gives_distinct_paths_without_null_characters(text: str) -> None:
    paths = find_printed_module_paths(text)
    assert len(set(paths)) == len(paths)
    assert all(path.endswith(".py") and "\0" not in path and "\n" not in path for path in paths)


header_values = st.one_of(
    drawn_records.any_json,
    st.fixed_dictionaries(
        {"name": st.sampled_from(["recompile_reasons", "dynamo_graph_break_reason", "torch_version"])}
    ),
    st.fixed_dictionaries({"stack": st.lists(st.fixed_dictionaries({"filename": drawn_records.any_json}), max_size=2)}),
    st.tuples(st.text(max_size=4), st.integers(0, 3)).map(list),
)
headers = st.dictionaries(
    st.sampled_from(
        [
            *(
                "inductor_output_code",
                "artifact",
                "str",
                "dynamo_start",
                "frame_id",
                "frame_compile_id",
                "attempt",
                "rank",
            ),
            *("chromium_event", "aot_forward_graph", "dynamo_cpp_guards_str", "has_payload"),
        ]
    ),
    header_values,
    max_size=4,
)
lines = st.one_of(
    headers.map(lambda head: f"V1125 10:00:00.000000 12 torch/x.py:1] {json.dumps(head)}\n"),
    st.sampled_from(HEADS),
    drawn_records.any_json.map(lambda data: f"\t{json.dumps(data)}\n"),
    st.text(max_size=30).map("\t{}\n".format),
    st.text(max_size=30),
)


@given(st.lists(lines, max_size=12).map("".join), st.booleans())
def test_any_structured_trace_is_read_or_refused_in_words(text: str, packed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data: Any = text.encode("utf-8", "surrogatepass")
        path = Path(folder) / f"dedicated_log_torch_trace_rank_0_x.log{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(data) if packed else data)
        try:
            found = read_structured_trace(Path(folder))
        except InductorBenchError as error:
            assert folder in error.message
            return
    assert all(phase.time_s >= 0 for phase in found.compile_phases)
    assert all(isinstance(text, str) for text in (*found.graph_breaks, *found.recompiles))


@settings(max_examples=30)
@given(changes)
def test_a_changed_structured_trace_is_read(wounds: list[tuple[int, int, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = changed("".join(TRACE_LINES), wounds)
        (Path(folder) / "dedicated_log_torch_trace_x.log").write_bytes(text.encode("utf-8", "surrogatepass"))
        read_structured_trace(Path(folder))


def test_a_long_comment_takes_time_in_proportion_to_its_length() -> None:
    before = time.process_time()
    read_comment(["# kernel path: " + "x" * 1_000_000])
    assert time.process_time() - before < 10  # the square of the length takes 50 s, the length itself 0.02 s
