"""The names of compiled functions, from traces of several versions of torch and from the source of the program."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
from source_data import DATA

from inductor_bench.source.labels import label_modules
from inductor_bench.source.structured_trace import (
    CompiledFrame,
    find_compiled_name,
    read_functions,
    read_structured_trace,
)

NAMES = DATA / "compiled_names"
"""``program.txt`` was run with breaks, optim2, lambda, wholestep, helper and library. Each trace was cut to the starts
of compilations, the guards on ``self`` and ``fn``, and the first line of each module."""
VERSIONS = ("2.9", "2.11", "2.13", "2.15")


def names_of(version: str, folder: Path, *, readable: bool) -> list[str]:
    trace = (NAMES / f"torch{version}.log").read_text()
    program = str(NAMES / "program.txt") if readable else "/home/user/program.py"
    folder.joinpath("dedicated_log_torch_trace_x.log").write_text(trace.replace("/home/user/program.py", program))
    return [code.compiled_name for code in read_structured_trace(folder).codes]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_of_torch_tells_what_was_compiled(version: str, tmp_path: Path) -> None:
    assert names_of(version, tmp_path, readable=True) == [
        "Breaks.forward",
        "Breaks.forward",
        "Breaks.forward from line 24",
        "Breaks.forward from line 24",
        "Adam.step",
        "<lambda>",
        "train_step",
        "train_step",
        "AdamW.step",
        "helper from line 85",
        "H.forward from line 83",
        "Sequential",
        "Sequential",
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_program_that_cannot_be_read_leaves_the_classes_of_the_guards(version: str, tmp_path: Path) -> None:
    found = names_of(version, tmp_path, readable=False)
    assert found[:5] == ["Breaks.forward", "Breaks.forward", "", "", "Adam.step"]
    assert found[9:] == ["helper from line 85", "", "Sequential", "Sequential"]


def test_an_optimizer_is_no_inference(tmp_path: Path) -> None:
    names_of("2.13", tmp_path, readable=True)
    codes = read_structured_trace(tmp_path).codes[6:9]
    labels = [label.label for label in label_modules([(code.text, code) for code in codes])]
    assert labels == ["train_step · forward", "train_step · backward", "AdamW.step"]


SOURCE = """
class Outer:
    class Block:
        @first
        @second(
            1)
        def forward(self, x):
            def forward(y):
                return "\\d"
            return x

    if True:
        async def sample(self):
            return 1

def forward(self, x):
    return x

def step(): pass
"""


def name(file: object, line: object, function: str, class_name: str = "") -> str:
    return find_compiled_name(CompiledFrame(str(file), line, function, class_name), read_functions)


@pytest.mark.parametrize(
    ("line", "function", "expected"),
    [
        (4, "forward", "Block.forward"),  # its first decorator
        (7, "forward", ""),
        (8, "forward", ""),  # the inner one
        (10, "torch_dynamo_resume_in_forward_at_10", "Block.forward from line 10"),
        (9, "torch_dynamo_resume_in_forward_at_9", ""),
        (13, "sample", "Outer.sample"),
        (16, "forward", ""),
        (19, "step", "step"),
        (99, "step", "step"),  # the file has changed
        (19, "<lambda>", "<lambda>"),
        (None, "step", "step"),
        ([], "step", "step"),
    ],
)
def test_the_class_is_that_around_the_first_line(line: object, function: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(SOURCE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert name(tmp_path / "m.py", line, function) == expected


def test_the_class_of_the_object_goes_before_that_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(SOURCE)
    assert name(tmp_path / "m.py", 4, "forward", "Derived") == "Derived.forward"
    assert name(tmp_path / "m.py", 16, "forward", "Patched") == "Patched.forward"


def test_files_that_are_no_source_leave_the_bare_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "broken.py").write_text("def step(:")
    (tmp_path / "binary.py").write_bytes(b"\xff\0def step")
    (tmp_path / "bom.py").write_text("\ufeffclass A:\n  def step(self): pass\n")
    for file in (tmp_path, "pipe", "broken.py", "binary.py", "absent.py", "x" * 300, "a\0b", "<string>"):
        assert name(tmp_path / file, 1, "step") == "step"
    assert name(tmp_path / "bom.py", 2, "step") == "A.step"


@pytest.mark.parametrize("function", ["", "a\nb", "x" * 101, "a b", "torch_dynamo_resume_in_a b_at_3"])
def test_a_text_that_is_no_name_is_left_out(function: str) -> None:
    assert name("/home/user/m.py", 1, function) == ""


def test_a_function_that_torch_put_around_the_users_has_the_users_name() -> None:
    frame = CompiledFrame("/v/site-packages/torch/_functorch/apis.py", 200, "wrapped")
    assert find_compiled_name(frame, read_functions, "loss") == "loss" and find_compiled_name(frame, read_functions)
    own = CompiledFrame("/home/user/train.py", 7, "step")
    assert find_compiled_name(own, read_functions, "D") == "step"


def test_a_wrapper_of_dynamo_is_named_after_its_object() -> None:
    guard = "| +- GuardManager: source=L['{}'], accessed_by=A(key='fn', framelocals_idx=2), type=<class '{}'>, x\n"
    wrapper = CompiledFrame("/v/site-packages/torch/_dynamo/external_utils.py", 67, "inner")
    assert find_compiled_name(wrapper, read_functions) == ""
    wrapper.take_guards(guard.format("self", "a.B") + guard.format("fn", "function"))
    assert find_compiled_name(wrapper, read_functions) == ""
    wrapper.take_guards(guard.format("fn", "__main__.make.<locals>.Net"))
    assert find_compiled_name(wrapper, read_functions) == "Net"
    step = CompiledFrame("/home/user/m.py", 67, "step")
    step.take_guards(guard.format("fn", "a.B"))
    assert find_compiled_name(step, read_functions) == "step"
