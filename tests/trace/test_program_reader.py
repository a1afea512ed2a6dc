"""Reading a program's trace: what the host did, the numbers of autograd, and the user's calls from Python stacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from inductor_bench.records.traced import UserCall
from inductor_bench.trace.program_trace import Owners, find_graph_calls, find_window, read_program_trace
from inductor_bench.trace.stored_traces import is_user_file, pair_calls, read_user_calls
from tests.support.program_traces import BACKWARD, MARKERS, ProgramTraceBuilder


def test_ranges_of_every_kind_are_read(tmp_path: Path) -> None:
    built = ProgramTraceBuilder()
    built.boundary(0, 0)
    built.op("aten::mm", 1, 10, **{"Sequence number": 7, "Fwd thread id": 0})
    built.op(
        "autograd::engine::evaluate_function: MmBackward0",
        20,
        5,
        BACKWARD,
        **{"Sequence number": 7, "Fwd thread id": 1},
    )
    built.annotation("Optimizer.step#SGD.step", 30, 4)
    built.annotation("inductor_bench.graph/2", 40, 4)
    built.frame("train.py(3): step", 0.5, 60)
    built.launch("kernel", 2, 5, 1)
    path = built.write(tmp_path / "trace.json")
    program = read_program_trace(path, MARKERS)
    assert [op.name for op in program.trace.host_ops][-1] == "inductor_bench.graph/2"
    assert program.sequences == (-1, 7, 7, -1) and program.forward_threads == (0, 0, 1, 0)
    assert [(one.name, one.thread, one.start_s) for one in program.annotations] == [
        ("Optimizer.step#SGD.step", "9/1", pytest.approx(30e-6))
    ]
    assert [(one.name, one.correlation, one.end_s) for one in program.runtime] == [
        ("cudaLaunchKernel", 1, pytest.approx(4e-6))
    ]
    assert program.frames == ()
    assert [call.graph for call in find_graph_calls(program, MARKERS)] == [2]
    frames = read_program_trace(path, MARKERS, frames=True).frames
    assert [one.name for one in frames] == ["train.py(3): step"]


def test_fewer_than_two_boundaries_are_no_step(tmp_path: Path) -> None:
    built = ProgramTraceBuilder()
    built.boundary(0, 0)
    built.op("aten::mm", 1, 10)
    assert find_window(read_program_trace(built.write(tmp_path / "trace.json"), MARKERS), MARKERS) is None


def lines_trace(folder: Path) -> Path:
    """A step in which ``train.py`` calls a module, a backward in its own thread, and reads a value."""
    built = ProgramTraceBuilder()
    built.boundary(5, 0)
    built.frame("train.py(3): step", 1, 98)
    built.frame("nn.Module: Linear_4", 2, 20)
    built.frame("torch/nn/modules/linear.py(130): forward", 3, 18)
    built.op("aten::linear", 4, 10, **{"Sequence number": 3})
    built.frame("<built-in method __exit__ of PyCapsule object at 0x7f>", 15, 85)  # its return was missed
    built.frame("torch/_tensor.py(570): backward", 30, 30)
    built.op("autograd::engine::evaluate_function: AddmmBackward0", 35, 10, BACKWARD, **{"Sequence number": 3})
    built.frame("<built-in method item of Tensor object at 0x7f>", 70, 10)
    built.op("aten::item", 71, 8)
    built.boundary(6, 100)
    return built.write(folder / "lines.json")


def test_operators_of_both_traces_are_paired_by_their_order(tmp_path: Path) -> None:
    built = ProgramTraceBuilder()
    for step in (0, 100):
        built.boundary(step // 100, step)
        built.op("aten::linear", 4 + step, 10, **{"Sequence number": 3 + step, "Fwd thread id": 0})
        if step:
            built.op("aten::print", 20 + step, 1)  # only in this step
        node = {"Sequence number": 3 + step, "Fwd thread id": 1}
        built.op("autograd::engine::evaluate_function: AddmmBackward0", 35 + step, 9, BACKWARD, **node)
        built.op("aten::item", 71 + step, 8)
    built.boundary(2, 200)
    program = read_program_trace(built.write(tmp_path / "trace.json"), MARKERS)
    lines = read_program_trace(lines_trace(tmp_path), MARKERS, frames=True)
    owners = Owners(program, ())
    tops = owners.tops
    assert owners.eager_tops is owners.eager_tops, "made once: it is asked for each operator"
    found = pair_calls(program, tops, read_user_calls(lines, MARKERS), MARKERS)
    named = [(program.trace.host_ops[op].name.rpartition(" ")[2], found[op]) for op in sorted(found)]
    linear = UserCall("Linear", "train.py", 3, "step", ("Linear", "forward", "linear"))
    item = UserCall("", "train.py", 3, "step", ("item",))
    assert named == [("aten::linear", linear), ("AddmmBackward0", linear), ("aten::item", item)] * 2


@pytest.mark.parametrize(
    ("file", "users"),
    [
        ("train.py", True),
        ("/home/me/train.py", True),
        ("transformers/models/llama/modeling_llama.py", True),
        ("/venv/lib/python3.11/site-packages/timm/layers/norm.py", True),
        ("torch/nn/modules/module.py", False),
        ("/venv/lib/python3.11/site-packages/torch/nn/functional.py", False),
        ("/usr/lib/python3.11/contextlib.py", False),
        ("contextlib.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("<string>", False),
    ],
)
def test_files_of_torch_and_python_are_not_the_users(file: str, users: bool) -> None:
    assert is_user_file(file) is users
