"""The lines from which a program calls its compiled graphs, as the process that runs it notes them."""

from __future__ import annotations

import _thread
import linecache
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from inductor_bench.records.code import SourceLine
from inductor_bench.records.evidence import OWN, GraphCallers
from inductor_bench.source.user_program import add_calling_lines
from inductor_bench.worker.capture.call_lines import CallLines
from inductor_bench.worker.stack_tree import CodeOwners

HOP = "def hop(work):\n    return work()\n"


def function_in(file: str, text: str = HOP, **known: Any) -> Callable[[Callable[[], object]], object]:
    """A function whose code is in another file."""
    space: dict[str, Any] = dict(known)
    exec(compile(text, file, "exec"), space)
    found: Callable[[Callable[[], object]], object] = space["hop"]
    return found


def lines_of(calls: CallLines) -> dict[int, list[str | None]]:
    """The line of each call, by the number of the graph."""
    return {
        one.graph: [f"{one.lines[at].line} in {one.lines[at].function}" if at >= 0 else None for at in one.calls]
        for one in calls.list_callers()
    }


def here() -> int:
    return sys._getframe(1).f_lineno


@pytest.mark.parametrize("file", [torch.__file__, threading.__file__, pytest.__file__, "<string>", "<frozen x>"])
def test_the_line_is_the_innermost_one_of_the_users_code(file: str) -> None:
    calls, hop = CallLines(), function_in(file)

    def first() -> int:
        hop(lambda: hop(lambda: None))
        return here() if hop(note) is None else 0

    note = function_in(file, "def hop(number=0):\n    calls.note(number)\n", calls=calls)
    line = first()
    hop(note), note(1)
    assert lines_of(calls) == {
        0: [f"{line} in first", f"{here() - 2} in test_the_line_is_the_innermost_one_of_the_users_code"],
        1: [f"{here() - 3} in test_the_line_is_the_innermost_one_of_the_users_code"],
    }


@pytest.mark.parametrize(
    ("name", "is_own"),
    [
        *(("<ipython-input-3-0a1b2c>", True), ("<python-input-3>", True), ("<command-123>", True)),
        *(("/no/such/ipykernel_7/42.py", True), ("<eval_with_key>.7", False), ("<decorator-gen-7>", False)),
        *(("<string>", False), ("<attrs generated init train.Batch>", False)),
    ],
)
def test_a_cell_of_a_notebook_is_the_users_code(name: str, is_own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def hop(work):\n    return work(0)\n"
    monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(keepends=True), name))
    calls = CallLines()
    function_in(name, text)(function_in(torch.__file__, "def hop(number):\n    calls.note(number)\n", calls=calls))
    (line,) = add_calling_lines(*calls.list_callers()).lines
    assert ((line.file, line.line, line.code) == (name, 2, "return work(0)")) is is_own
    monkeypatch.delitem(linecache.cache, name)
    assert CodeOwners(()).owner(name) != OWN, "generated, if nothing knows its text"


@pytest.mark.parametrize("called", ["__compiled_fn_3_0f", "__resume_at_12_4"])
def test_the_code_that_dynamo_makes_of_a_function_does_not_call_the_graph(called: str) -> None:
    calls, file = CallLines(), __file__
    note = function_in(torch.__file__, "def hop(number=0):\n    calls.note(number)\n", calls=calls)
    function_in(file, f"def hop(work):\n    {called}()\n", **{called: note})(note)
    assert lines_of(calls) == {0: [f"{here() - 1} in {sys._getframe().f_code.co_name}"]}


def test_the_rests_of_a_function_after_its_breaks_are_that_function() -> None:
    calls, text = CallLines(), "\n\ndef {}(note):\n    note(0)\n"
    note = function_in(torch.__file__, "def hop(number=0):\n    calls.note(number)\n", calls=calls)
    for name in ("train", "torch_dynamo_resume_in_train_at_2", "torch_dynamo_resume_in_train_at_3"):
        space: dict[str, Any] = {}
        exec(compile(text.format(name), __file__, "exec"), space)
        space[name](note)
    assert calls.list_callers() == (GraphCallers(0, (SourceLine(__file__, 4, "train", ""),), (0, 0, 0)),)


@pytest.mark.parametrize(
    ("waiting", "started_by"),
    [(0, "autograd"), (1, "autograd"), (2, "autograd"), (1, "autograd, known"), (1, "Python")],
)
def test_in_a_thread_of_autograd_the_line_is_that_of_the_waiting_thread(
    waiting: int, started_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that Python did not start is known to it once ``current_thread`` was called there, as by a logger."""
    calls, ends = CallLines(), threading.Lock()
    engine = function_in(torch.autograd.graph.__file__, "def hop(work):\n    with ends: pass\n", ends=ends)
    monkeypatch.setitem(sys.modules, "torch.autograd.graph", SimpleNamespace(_engine_run_backward=engine))

    def backward() -> None:
        engine(lambda: None)

    threads = [threading.Thread(target=backward) for _ in range(waiting)]
    ended = threading.Event()
    note = function_in(
        torch.__file__,
        "def hop(begins):\n    try:\n        begins()\n        calls.note(0)\n    finally:\n        ended.set()\n",
        calls=calls,
        ended=ended,
    )
    begins = threading.current_thread if started_by == "autograd, known" else int
    with ends:
        for one in threads:
            one.start()
        while sum(frame.f_code is engine.__code__ for frame in sys._current_frames().values()) < waiting:
            time.sleep(0.001)
        if started_by == "Python":
            threading.Thread(target=note, args=(begins,)).start()
        else:
            _thread.start_new_thread(note, (begins,))
        assert ended.wait(60)
    for one in threads:
        one.join()
    known = f"{backward.__code__.co_firstlineno + 1} in backward"
    assert lines_of(calls) == {0: [known if waiting == 1 and started_by != "Python" else None]}


def test_a_call_whose_line_cannot_be_found_does_not_end_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = CallLines()
    monkeypatch.setattr(calls, "_find_spot", lambda _: (_ for _ in ()).throw(ValueError("embedded null byte")))
    calls.note(0)
    assert lines_of(calls) == {0: [None]}
