"""The text of sampled lines: what a frame's expression calls, and files that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inductor_bench.records.evidence import GENERATED, OWN, HostSamples, SampledFrame
from inductor_bench.source.user_program import add_sampled_lines

PROGRAM = """\
import time

def load(names, größe):
    time.sleep(0.1)
    rows = [größe, loss.mean().item()]
    return parse(
        names[0],
    )(1) + names.count(
        größe
    )
"""


def read(file: Path | str, line: int, span: tuple[int, ...], *, owner: str = OWN, is_call: bool = True) -> SampledFrame:
    frame = SampledFrame(str(file), "load", line, owner, is_call, span)
    samples = HostSamples((frame,), (-1,), (0,), (), 1, 1.0, (), sees_device=True)
    return add_sampled_lines(samples, {"/cache/ab/cab.py": "forward"}).frames[0]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def columns(line: int, text: str) -> tuple[int, int]:
    """The columns of a text in a line, in bytes."""
    row = PROGRAM.splitlines()[line - 1]
    begin = len(row[: row.index(text)].encode())
    return begin, begin + len(text.encode())


@pytest.mark.parametrize(
    ("line", "text", "called"),
    [(4, "time.sleep(0.1)", "time.sleep"), (5, "loss.mean().item()", ".item"), (5, "[größe, loss.mean().item()]", "")],
)
def test_an_expression_says_what_it_calls(program: Path, line: int, text: str, called: str) -> None:
    frame = read(program, line, (line, line, *columns(line, text)))
    assert (frame.called, frame.code) == (called, PROGRAM.splitlines()[line - 1].strip())


def test_a_with_statement_calls_what_enters_its_context(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("with self.lock, open(name) as file:\n    loss\n")
    assert read(path, 1, (1, 1, 5, 14)).called == "self.lock.__enter__"
    assert read(path, 1, (1, 1, 16, 26)).called == "open"
    assert read(path, 1, (1, 2, 0, 8)).called == "self.lock.__enter__", "Python 3.11 and 3.12: the whole statement"
    assert read(path, 1, ()).called == "self.lock.__enter__", "Python 3.10: no place"
    assert read(path, 2, (2, 2, 4, 8)).called == "", "no context"


def test_a_call_over_several_lines_is_read_as_one(program: Path) -> None:
    assert read(program, 8, (8, 10, columns(8, "names.count(")[0], 5)).called == "names.count"
    assert read(program, 6, (6, 8, 11, 8)).called == "", "what is called has no name"


def test_frames_without_a_place_keep_their_line(program: Path) -> None:
    assert read(program, 4, ()).called == "" and read(program, 4, ()).code == "time.sleep(0.1)"
    assert read(program, 4, (4, 4, 4, 19), is_call=False).called == ""
    assert read(program, 400, (400, 400, 0, 1)).code == "" and read(program, 4, (4, 99, 0, 1)).called == ""
    assert read("/no/such.py", 4, (4, 4, 0, 1)).code == ""


def test_a_pipe_is_not_read() -> None:
    """The file of ``python <(cat train.py)`` is one, and another process would wait for its end for ever."""
    reading, writing = os.pipe()
    os.write(writing, PROGRAM.encode())
    os.close(writing)
    try:
        assert read(f"/dev/fd/{reading}", 4, ()).code == "" and read("/dev/zero", 1, ()).code == ""
    finally:
        os.close(reading)


def test_frames_of_a_compiled_module_get_its_name_and_no_text() -> None:
    frame = read("/cache/ab/cab.py", 3, (), owner=GENERATED)
    assert (frame.file, frame.code) == ("forward", "")
    assert read("<string>", 3, (), owner=GENERATED).file == "<string>"
