"""Reading a program's trace: what the host did, the numbers of autograd, and the user's calls from Python stacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from inductor_bench.records.traced import UserCall
from inductor_bench.source.user_program import UserFiles
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
    linear = UserCall("Linear", "train.py", 3, "step", ("Linear", "forward"), pytest.approx(2e-6))
    item = UserCall("", "train.py", 3, "step", ("item",))
    assert named == [("aten::linear", linear), ("AddmmBackward0", linear), ("aten::item", item)] * 2


@pytest.mark.parametrize(
    ("called", "ran", "found"),
    [
        ("a1 (s2 f2) (s2 f2) z3 s4", "a sf sf sf sf z s", "1 22 22 22 22 3 4"),  # as in a loop over a request's rows
        ("a1 (s2 f2) (s2 f2) z3 s4", "a sf z s", "1 22 3 4"),
        ("(s2) (s2) (s2) z3", "sssss z", "22222 3"),
        ("a1 (s2 f2) z3", "a sf sf z", "1 22 .. 3"),  # the other step shows no loop
        ("a1 (s2) (s2) z3", "a s s s z", "1 2 2 . 3"),  # neither do two equal operators
        ("a1 (s2 s4) (s2 s4) z3", "a ss ss ss z", "1 24 24 .. 3"),
        ("a1 (s2 f2) (s2 f2) z3", "a sf sf x z", "1 22 22 . 3"),
    ],
)
def test_further_rounds_of_a_loop_have_the_lines_of_the_known_rounds(
    called: str, ran: str, found: str, tmp_path: Path
) -> None:
    built = ProgramTraceBuilder()
    built.boundary(0, 0)
    for place, name in enumerate(ran.replace(" ", "")):
        built.op(f"aten::{name}", 2 + 2 * place, 1)
    built.boundary(1, 100)
    program = read_program_trace(built.write(tmp_path / "trace.json"), MARKERS)
    known = tuple((f"aten::{one[0]}", one[1]) for one in called.replace("(", "").replace(")", "").split())
    pairs = pair_calls(program, Owners(program, ()).tops, known, MARKERS)
    ops = [index for index, op in enumerate(program.trace.host_ops) if op.name.startswith("aten::")]
    assert "".join(pairs.get(index, ".") for index in ops) == found.replace(" ", "")


TRAINING = """def main(opt, sched, fit):
    for step in range(steps):
        {call}
        running = 0.98 * running + loss.item()
        if step % 50 == 0:
            print(running / 50)
"""


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ("opt.step(); sched.step()", 3),
        ("opt.step()\n        sched.step()", 3),  # of two lines the first: it is one call
        ("fit()", 1),  # the line is unknown
    ],
)
def test_operators_of_an_optimizer_have_the_line_that_calls_its_step(call: str, line: int, tmp_path: Path) -> None:
    text = TRAINING.format(call=call)
    (tmp_path / "train.py").write_text(text)
    reading = 1 + text[: text.index("running =")].count("\n")
    built = ProgramTraceBuilder()
    built.boundary(5, 0)
    built.frame("train.py(3): main", 1, 98)  # it ran when the profile began
    frames = ["lr_scheduler.py(119): wrapper", "optimizer.py(489): wrapper", "optimizer.py(61): _use_grad"]
    for depth, frame in enumerate([*frames, "adamw.py(210): step", "adam.py(346): _single_tensor_adam"]):
        built.frame(f"torch/optim/{frame}", 2 + depth, 60 - 2 * depth)
    for place, name in enumerate(("add_", "mul_", "lerp_", "div", "mul_", "item")):
        built.op(f"aten::{name}", 10 + 5 * place, 2)
    built.frame("<built-in method item of Tensor object at 0x7f>", 70, 10)
    built.op("aten::item", 71, 8)
    built.op("aten::mul", 82, 1)
    built.boundary(6, 100)
    program = read_program_trace(built.write(tmp_path / "lines.json"), MARKERS, frames=True)
    calls = [call for _, call in read_user_calls(program, MARKERS)]
    assert [one and one.line for one in UserFiles((tmp_path,)).find_all(calls)] == [*[line] * 6, reading, reading]


def test_what_a_library_calls_has_the_functions_first_line_if_no_name_is_known(tmp_path: Path) -> None:
    lines = ("def run(x, layers):", "    for layer in layers:", "        x = layer(x)", "    return x @ x")
    (tmp_path / "net.py").write_text("\n".join(lines))
    built = ProgramTraceBuilder()
    built.boundary(5, 0)
    built.frame("net.py(1): run", 1, 98)
    for begin in (2, 30):
        built.frame("nn.Module: Linear_4", begin, 20)
        built.frame("torch/nn/modules/linear.py(130): forward", begin + 1, 18)
        built.op("aten::linear", begin + 2, 10)
    built.op("aten::matmul", 60, 10)
    built.boundary(6, 100)
    program = read_program_trace(built.write(tmp_path / "lines.json"), MARKERS, frames=True)
    calls = [call for _, call in read_user_calls(program, MARKERS)]
    assert [one and one.line for one in UserFiles((tmp_path,)).find_all(calls)] == [1, 1, 4]


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
