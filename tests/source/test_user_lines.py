"""The line of the user's program that called an operator, from the function's text."""

from __future__ import annotations

import linecache
import os
from pathlib import Path

import pytest

from inductor_bench.records.code import SourceLine
from inductor_bench.records.evidence import GENERATED, OWN, GraphCallers, HostSamples, SampledFrame
from inductor_bench.records.traced import UserCall
from inductor_bench.source.user_program import UserFiles, add_calling_lines, add_sampled_lines

TEXT = """import torch

@torch.no_grad()
def step(x, y):
    a = torch.relu(x)
    b = a + y
    c = (
        b
        .item()
    )
    torch.relu(b)
    d = x[0]
    def inner():
        return torch.sin(x)
    return inner()

class Model(nn.Module):
    def __init__(self):
        self.words, self.head = nn.Embedding(2, 3), nn.Linear(3, 2)
        self.one = self.two = nn.ReLU()

    def forward(self, x):
        x = self.words(x)
        return self.head(x)

step(1, 2)
z = torch.cos(3)
"""


@pytest.fixture
def files(tmp_path: Path) -> UserFiles:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "train.py").write_text(TEXT)
    (tmp_path / "app" / "broken.py").write_text("def f(:")
    return UserFiles((tmp_path / "other", tmp_path))


@pytest.mark.parametrize(
    ("called", "line"),
    [
        (("item",), 9),
        (("add",), 6),
        (("select",), 12),
        (("relu",), 4),  # called twice: the function's first line
        (("decorate", "item"), 9),
        (("sin",), 4),  # of a function within
        ((), 4),
    ],
)
def test_the_only_call_of_a_name_is_the_line(called: tuple[str, ...], line: int, files: UserFiles) -> None:
    found = files.find(UserCall("", "app/train.py", 3, "step", called))
    assert found is not None and found.line == line and found.function == "step"
    assert found.code == TEXT.splitlines()[line - 1].strip()


def test_a_files_own_lines_need_a_call(files: UserFiles) -> None:
    found = files.find(UserCall("", "app/train.py", 26, "<module>", ("cos",)))
    assert found is not None and found.line == 27
    assert files.find(UserCall("", "app/train.py", 26, "<module>", ("mm",))) is None


def test_without_the_text_the_profilers_line_stands(files: UserFiles) -> None:
    for name in ("lost.py", "app/broken.py"):
        found = files.find(UserCall("", name, 3, "step", ("item",)))
        assert found is not None and found.line == 3
        assert files.find(UserCall("", name, 3, "<module>", ("item",))) is None
    assert files.find(UserCall("Linear")) is None


@pytest.mark.parametrize(("module", "line"), [("Embedding", 23), ("Linear", 24), ("Dropout", 22)])
def test_a_call_of_a_module_is_that_of_its_attribute(module: str, line: int, files: UserFiles) -> None:
    found = files.find(UserCall(module, "app/train.py", 22, "forward", (module, "_call_impl", "forward")))
    assert found is not None and found.line == line


SCRIPT = """criterion = nn.CrossEntropyLoss()
recurrent = nn.LSTM(2, 3)
for x in data:
    y = recurrent(x)
    loss = criterion(y, x)

def train_step(x):
    loss = model(x)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("function", "called", "line"),
    [
        ("<module>", ("CrossEntropyLoss", "_call_impl", "forward"), 5),
        ("<module>", ("LSTM", "forward", "lstm"), 4),
        ("torch_dynamo_resume_in_train_step_at_9", ("step",), 10),
        ("torch_dynamo_resume_in_train_step_at_9", ("backward",), 9),
        ("torch_dynamo_resume_in_train_step_at_9", ("model",), None),  # it ran before the break
        ("torch_dynamo_resume_in_train_step_at_9", ("unknown",), None),
    ],
)
def test_modules_in_variables_and_what_runs_after_a_graph_break(
    function: str, called: tuple[str, ...], line: int | None, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    found = UserFiles((tmp_path,)).find(UserCall("", "script.py", 9, function, called))
    assert (found.line if found else None) == line


REPEATED = """def turn(x):
    a = x.contiguous()
    b = a.clone()
    return b.contiguous()

def main(x):
    y = x.to(1)
    for _ in range(3):
        y = x.to(2)
        y = turn(y)
    return y
"""


def test_of_several_lines_the_order_of_the_calls_tells(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(REPEATED)
    calls = [UserCall("", "app.py", 1, "turn", (name,)) for name in ("contiguous", "clone", "contiguous")]
    found = UserFiles((tmp_path,)).find_all([*calls, *calls])
    assert [one and one.line for one in found] == [2, 3, 4, 2, 3, 4]
    skipped = UserFiles((tmp_path,)).find_all(calls[1:])
    assert [one and one.line for one in skipped] == [3, 4], "the first call did nothing"


def test_two_calls_of_one_name_on_a_line_come_before_that_of_a_later_line(tmp_path: Path) -> None:
    lines = ("def pool(hidden, m):", "    pooled = (hidden * m).sum(1) / m.sum(1)", "    return (pooled**2).sum(-1)")
    (tmp_path / "pool.py").write_text("\n".join(lines))
    sums = [UserCall("", "pool.py", 1, "pool", ("sum",))] * 3
    assert [one and one.line for one in UserFiles((tmp_path,)).find_all(sums)] == [2, 2, 3]


def test_the_operator_tells_only_among_the_lines_that_call_the_function(tmp_path: Path) -> None:
    lines = ("def total(x, y):", "    d = x.sum() + 1", "    m = 2 * d", "    return sum([m, y])")
    (tmp_path / "total.py").write_text("\n".join(lines))
    calls = [UserCall("", "total.py", 1, "total", called) for called in (("sum",), ("mul",), ("sum", "mul"))]
    assert [one and one.line for one in UserFiles((tmp_path,)).find_all(calls)] == [2, 3, 4]


def test_the_order_begins_where_a_running_function_was(tmp_path: Path) -> None:
    lines = ("for _ in data:", "    x.sum()", "    first.step()", "    x.sum()", "    second.step()")
    (tmp_path / "gan.py").write_text("\n".join(lines))
    calls = [UserCall("", "gan.py", 3, "<module>", (name,)) for name in ("sum", "step")] * 2
    assert [one and one.line for one in UserFiles((tmp_path,)).find_all(calls)] == [4, 5, 2, 3]


def test_what_a_running_function_calls_in_a_step_is_in_its_loop(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(REPEATED)
    files = UserFiles((tmp_path,))
    running = files.find(UserCall("", "app.py", 10, "main", ("to",)))
    called = files.find(UserCall("", "app.py", 6, "main", ("to",)))
    assert running is not None and running.line == 9 and called is not None and called.line == 6


def test_a_condition_reads_a_value(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("def f(x):\n    y = x.sum()\n    if y > 3:\n        return y.item()\n")
    files = UserFiles((tmp_path,))
    found = [files.find(UserCall("", "app.py", 1, "f", (name,))) for name in ("is_nonzero", "item")]
    assert [one and one.line for one in found] == [3, 4]


def test_a_cell_of_a_notebook_has_its_lines_in_its_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    name, text = "/no/such/folder/ipykernel_7/42.py", "def step(x):\n    y = x + 1\n    return y.item()\n"
    call = UserCall("", name, 1, "step", ("item",))
    assert getattr(UserFiles((Path("/"),)).find(call), "line", None) == 1
    monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(keepends=True), name))
    found = UserFiles((Path("/"),)).find(call)
    assert found is not None and (found.file, found.line, found.code) == (name, 3, "return y.item()")


# The text of sampled lines: what a frame's expression calls, and files that cannot be read.


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


def test_lines_that_call_a_graph_get_their_texts(program: Path) -> None:
    lines = tuple(SourceLine(str(path), number, "main", "") for path, number in ((program, 4), (program, 99)))
    found = add_calling_lines(GraphCallers(0, (*lines, SourceLine("/gone.py", 1, "main", "")), (0, 1, 2)))
    assert [one.code for one in found.lines] == [PROGRAM.splitlines()[3].strip(), "", ""]


def test_the_line_of_a_cell_that_calls_a_graph_has_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = "/no/such/folder/ipykernel_7/42.py"
    monkeypatch.setitem(linecache.cache, cell, (9, None, ["loss = model(x)\n"], cell))
    found = add_calling_lines(GraphCallers(0, (SourceLine(cell, 1, "main", ""),), (0,)))
    assert found.lines[0].code == "loss = model(x)"


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
