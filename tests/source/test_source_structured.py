"""The structured trace of torch, recorded from real programs; and the lines that Inductor printed."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
from source_data import CPU, GPU, text_of

from inductor_bench.errors import InductorBenchError
from inductor_bench.records.code import SourceLine
from inductor_bench.source.compile_log import read_graph_break, read_source_line
from inductor_bench.source.structured_trace import find_printed_module_paths, read_structured_trace

TRAINING = CPU / "structured"
BREAKS = CPU / "samples" / "brk" / "structured"


def unpacked(folder: Path, into: Path) -> Path:
    into.mkdir(exist_ok=True)
    for file in folder.glob("*.gz"):
        (into / file.name.removesuffix(".gz")).write_bytes(gzip.decompress(file.read_bytes()))
    return into


def test_modules_are_found_with_text_frame_and_role(tmp_path: Path) -> None:
    trace = read_structured_trace(unpacked(TRAINING, tmp_path))
    assert trace.torch_version == "2.13.0+cpu"
    assert [code.role for code in trace.codes] == ["forward", "backward", "inference"]
    assert [(code.frame_id, code.frame_compile_id, code.rank) for code in trace.codes] == [
        (0, 0, None),
        (0, 0, None),
        (0, 1, None),
    ]
    assert trace.codes[0].text == text_of(CPU / "forward.py")
    assert trace.codes[1].text == text_of(CPU / "backward.py")
    assert trace.codes[0].path.endswith("/lw/clwxji5g5g5nwtlamshbwfbwweome74aikfidsq2duehyhhux4wt.py")


def test_stack_traces_go_to_the_module_that_has_their_handles() -> None:
    forward, backward, inference = read_structured_trace(TRAINING).codes
    assert forward.stack_traces["extern_kernels.convolution:2"] == (
        SourceLine("/home/user/m.py", 8, "forward", "y=torch.relu(s.b(s.c(x))).mean((2,3))"),
    )
    assert forward.stack_traces["cpp_fused_0:1"] == ()
    assert "extern_kernels.mm:1" in backward.stack_traces and "extern_kernels.mm:1" not in forward.stack_traces
    for code in (forward, backward, inference):
        assert code.stack_traces
        assert all(f"[Provenance debug handles] {handle}\n" in code.text for handle in code.stack_traces)


def test_stack_traces_of_torch_2_11() -> None:
    trace = read_structured_trace(GPU / "samples" / "user" / "structured")
    assert trace.torch_version is None  # 2.11 does not say
    (code,) = trace.codes
    (line,) = code.stack_traces["add_kernel_1:3"]
    assert line.function == "_user"
    assert line.code == "add_kernel[(triton.cdiv(x.numel(), 512),)](out, y, out2, x.numel(), BLOCK=512)"


def test_cpp_wrapper_gets_its_role_from_the_trace() -> None:
    (code,) = read_structured_trace(CPU / "samples" / "cppw" / "structured").codes
    assert "# AOT ID" not in code.text and code.role == "inference"


def test_graph_breaks_have_place_and_reason() -> None:
    assert read_structured_trace(BREAKS).graph_breaks == (
        "/home/user/brk.py:4: Call to `torch._dynamo.graph_break()`: User-inserted graph break. Message: None"
        " Hint: Remove the `torch._dynamo.graph_break()` call.",
        "/home/user/brk.py:9: Failed to trace builtin operator: Dynamo does not know how to trace builtin operator "
        "`print` with argument types ['str'] (has_kwargs False) Hint: Avoid calling builtin `print` with argument "
        "types ['str']. Consider using an equivalent alternative function/method to `print`.",
        "/home/user/brk.py:10: Data-dependent branching: Detected data-dependent branching (e.g. "
        "`if my_tensor.sum() > 0:`). Dynamo does not support tracing dynamic control flow. Hint: For the common "
        "pattern `if tensor_cond: x = transform(x)` (e.g. clamping inf/nan values), consider making the code "
        "branchless by always applying the transform. Operations like torch.clamp, torch.nan_to_num, and torch.where "
        "are typically no-ops on well-behaved inputs and compile without graph breaks.",
    )


def test_a_hint_for_a_whole_class_of_graph_breaks_is_none() -> None:
    reason = "Graph Break Reason: Attempted to wrap RNN\n  Explanation: Dynamo does not.\n"
    general = "  Hint: It may be possible to write Dynamo tracing rules for this code.\n"
    assert read_graph_break(reason + general) == "Attempted to wrap RNN: Dynamo does not."
    named = read_graph_break(f"{reason}{general}  Hint: Set torch._dynamo.config.allow_rnn=True\n")
    assert named == "Attempted to wrap RNN: Dynamo does not. Hint: Set torch._dynamo.config.allow_rnn=True"


def test_an_explanation_that_repeats_the_first_line_is_left_out() -> None:
    """As in torch 2.13, of a warning in transformers."""
    text = (
        "Graph break in user code at /x/modeling.py:7\n"
        "Graph Break Reason: logging.Logger method not supported for non-export cases\n"
        "  Explanation: logging.Logger methods are not supported for non-export cases.\n"
        "  Hint: Add the logging method to `torch._dynamo.config.ignore_logging_functions`.\n"
    )
    assert read_graph_break(text).startswith(
        "/x/modeling.py:7: logging.Logger method not supported for non-export cases"
    )
    assert "(" not in read_graph_break(text) and read_graph_break(text).count("non-export") == 1


def test_recompiles_have_place_and_most_recent_reason() -> None:
    recompiles = read_structured_trace(BREAKS).recompiles
    assert len(recompiles) == 3
    assert recompiles[0].startswith("/home/user/brk.py:10 torch_dynamo_resume_in_f_at_10: 5/0: flag == True")
    assert recompiles[1:] == (
        "/home/user/brk.py:13 h: 6/0: tensor 'x' size mismatch at index 0. expected 8, actual 9",
        "/home/user/brk.py:13 h: 6/1: tensor 'x' size mismatch at index 0. expected 9, actual 10",
    )


def test_several_processes_are_read_in_order_of_rank(tmp_path: Path) -> None:
    source = next((GPU / "samples" / "collective" / "structured").glob("*.gz"))
    text = gzip.decompress(source.read_bytes()).decode()
    (tmp_path / "dedicated_log_torch_trace_rank_1_aaa.log").write_text(text.replace('"rank": 0', '"rank": 1'))
    (tmp_path / "dedicated_log_torch_trace_rank_0_zzz.log").write_text(text)
    (tmp_path / "dedicated_log_torch_trace_empty.log").write_text("")
    codes = read_structured_trace(tmp_path).codes
    assert [code.rank for code in codes] == [0, 1]
    assert all(len(code.stack_traces) == 7 for code in codes)


@pytest.mark.parametrize("cut", [1, 200, 5000, 20000])
def test_truncated_trace_counts_up_to_there(tmp_path: Path, cut: int) -> None:
    folder = unpacked(TRAINING, tmp_path)
    (file,) = folder.glob("*.log")
    whole = read_structured_trace(folder).codes
    content = file.read_bytes()
    file.write_bytes(content[:-cut])
    codes = read_structured_trace(folder).codes
    assert codes[:2] == whole[:2]
    assert len(codes) <= 3 and all(code.text == full.text for code, full in zip(codes, whole, strict=False))


def test_unfinished_module_is_left_out(tmp_path: Path) -> None:
    folder = unpacked(TRAINING, tmp_path)
    (file,) = folder.glob("*.log")
    content = file.read_text()
    file.write_text(content[: content.rindex("runner = Runner(")])
    assert [code.role for code in read_structured_trace(folder).codes] == ["forward", "backward"]


def test_second_emission_of_the_same_module_counts_once(tmp_path: Path) -> None:
    folder = unpacked(TRAINING, tmp_path)
    (file,) = folder.glob("*.log")
    shutil.copy(file, folder / "dedicated_log_torch_trace_again.log")
    assert len(read_structured_trace(folder).codes) == 3


def test_missing_and_empty_folders_are_expected_failures(tmp_path: Path) -> None:
    with pytest.raises(InductorBenchError, match="not a folder"):
        read_structured_trace(tmp_path / "none")
    with pytest.raises(InductorBenchError, match="no structured trace") as caught:
        read_structured_trace(tmp_path)
    assert "TORCH_TRACE" in caught.value.hint


def test_innermost_frame_outside_torch_is_the_users_line() -> None:
    stack = (
        '  File "/home/user/model.py", line 3, in forward\n    return self.head(x)\n           ^^^^^^^^^^^^\n'
        '  File "/v/lib/python3.12/site-packages/timm/models/mixnet.py", line 7, in forward\n    x = self.conv(x)\n'
        '  File "/v/lib/python3.12/site-packages/torch/nn/modules/conv.py", line 548, in forward\n    return f(x)\n'
    )
    line = read_source_line(stack)
    assert line == SourceLine("/v/lib/python3.12/site-packages/timm/models/mixnet.py", 7, "forward", "x = self.conv(x)")
    only_torch = stack[stack.index('  File "/v/lib/python3.12/site-packages/torch') :]
    innermost = read_source_line(only_torch)
    assert innermost is not None and innermost.line == 548
    assert read_source_line("no frame here") is None


def test_printed_paths_survive_prefixes_colours_and_repeats() -> None:
    text = (
        "Compiled module path: /tmp/a b/ca.py\n"
        "[rank0]: Compiled module path: /tmp/c/cb.py\n"
        "\x1b[32mCompiled module path: /tmp/c/cc.py\x1b[0m\n"
        "epoch 1\rCompiled module path: /tmp/c/cd.pyCompiled module path: /tmp/c/ce.py\n"
        "Compiled module path: /tmp/c/cb.py\n"
        "Compiled module path: \nCompiled module path: /tmp/c/unfinished"
    )
    letters = [path.removeprefix("/tmp/c/") for path in find_printed_module_paths(text)]
    assert letters == ["/tmp/a b/ca.py", "cb.py", "cc.py", "cd.py", "ce.py"]


def test_printed_paths_of_recorded_runs() -> None:
    assert len(find_printed_module_paths((GPU / "mixnet_l_train" / "run.log").read_text())) == 2
    printed = find_printed_module_paths((CPU / "samples" / "brk" / "run.log").read_text())
    assert list(printed) == [code.path for code in read_structured_trace(BREAKS).codes]
