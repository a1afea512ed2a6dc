"""The console: what goes to which stream, on a terminal and elsewhere."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import sys
import time
from types import SimpleNamespace

import pytest

from inductor_bench import units
from inductor_bench.cli import console as room
from inductor_bench.cli.console import Console
from inductor_bench.records.base import Answer, Category, Failure
from inductor_bench.records.module import ExtractedKernel, ExtractOutcome
from inductor_bench.report.formats import show_as_json
from inductor_bench.report.table_documents import make_extraction_document, write_answer_json
from inductor_bench.report.terminal import Word, print_lines, render_text


def make(**options: bool) -> tuple[Console, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Console(stdout=out, stderr=err, **options), out, err


def test_results_and_the_rest_part() -> None:
    console, out, err = make()
    with console:
        console.stage("capturing")
        console.note("two graphs")
        console.output("the program's line")
        console.result("answer")
    assert out.getvalue() == "answer\n"
    assert err.getvalue() == "capturing\ntwo graphs\n"


def test_verbose_shows_the_program_and_quiet_shows_nothing() -> None:
    console, _, err = make(verbose=True)
    console.output("the program's line")
    assert err.getvalue() == "the program's line\n"
    console, _, err = make(quiet=True)
    console.stage("capturing")
    console.note("two graphs")
    assert err.getvalue() == ""
    console.remark("a table is missing")
    console.error("it broke", "mend it")
    assert err.getvalue() == "Error: it broke\nHint: mend it\n"


def test_a_console_without_progress_says_only_what_the_result_does_not_hold() -> None:
    console, _, err = make(progress=False)
    console.stage("capturing")
    console.note("run 1 of 2")
    console.remark("a table is missing")
    assert err.getvalue() == "a table is missing\n"


@pytest.mark.parametrize(
    ("quiet_s", "said"), [(0.0, ["checking", "checking: zeros", "checking: NaN"]), (1e9, ["checking"])]
)
def test_in_a_pipe_a_long_stage_says_from_time_to_time_where_it_is(
    quiet_s: float, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "QUIET_S", quiet_s)
    for options, lines in (({}, said), ({"quiet": True}, []), ({"progress": False}, [])):
        console, _, err = make(**options)
        with console:
            console.stage("checking")
            console.update("zeros")
            console.update("NaN")
        assert err.getvalue().splitlines() == lines


HOSTILE = "a\x1b]0;title\x07b\r\x9b2Jc\u202ed\u2066e\x7f"
SHOWN = "a?]0;title?b??2Jc?d?e?"


def test_what_others_wrote_does_nothing_to_the_terminal() -> None:
    console, out, err = make(verbose=True)
    with console:
        console.stage(f"{HOSTILE}\nx")
        console.note(HOSTILE)
        console.result(f"{HOSTILE}\tx\ny")
        print_lines([[Word(HOSTILE)]], console.drawing())
        console.error(HOSTILE, HOSTILE)
        console.output(HOSTILE)
    assert out.getvalue() == f"{SHOWN}\tx\ny\n{SHOWN}\n"
    assert err.getvalue() == f"{SHOWN} x\n{SHOWN}\nError: {SHOWN}\nHint: {SHOWN}\n{HOSTILE}\n"


def test_json_keeps_what_it_says_and_does_nothing_to_the_terminal() -> None:
    texts = [
        show_as_json(Failure("trace", "invalid", HOSTILE)),
        write_answer_json(Answer(("message",), [(HOSTILE,)])),
    ]
    for text in texts:
        assert units.printable(text) == text and "\\u001b]0;title\\u0007" in text
        data = json.loads(text)
        (said,) = data.get("rows", [data])
        assert said["message"] == HOSTILE


def test_names_in_the_screens_of_extract_are_one_line() -> None:
    row = ExtractedKernel(f"{HOSTILE}\nnext", "id", Category.POINTWISE, "forward", 1, reason=f"{HOSTILE}\nnext")
    lines = render_text(make_extraction_document(ExtractOutcome((row,), None)), 100).splitlines()
    assert all(line.isprintable() for line in lines) and any("b ?2Jc?d" in line or "next" in line for line in lines)


def test_drawn_results_fit_a_hundred_columns_if_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    console, out, _ = make()
    console.drawing().print("x" * 150)
    assert [len(line) for line in out.getvalue().splitlines()] == [100, 50]
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize("asked", ["0", "-5", "", "abc", "²", "\uff11", "1.5", "10001", "9" * 5000])
def test_a_width_that_is_none_is_as_if_it_were_not_asked_for(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", asked)
    monkeypatch.setenv("LINES", asked)
    console, out, _ = make()
    console.drawing().print("x" * 150)
    assert [len(line) for line in out.getvalue().splitlines()] == [100, 50]


@pytest.mark.parametrize("asked", [1, 60, 10_000])
def test_a_width_that_is_asked_for_is_had(asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(asked))
    console, out, _ = make()
    console.drawing().print("x" * 20_000)
    assert len(out.getvalue().splitlines()[0]) == asked


def drain(terminal: int) -> str:
    """What was written to a pseudo-terminal whose other end is closed; a single read may return a part of it."""
    parts = []
    with contextlib.suppress(OSError):  # Linux ends it with EIO
        while part := os.read(terminal, 65536):
            parts.append(part)
    os.close(terminal)
    return b"".join(parts).decode()


def test_a_live_line_tells_the_time_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []

    def monotonic() -> float:
        told.append(0.25 * len(told))
        return told[-1]

    monkeypatch.setattr(room, "time", SimpleNamespace(monotonic=monotonic))
    monkeypatch.setattr(room, "TICK_S", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    parent, child = pty.openpty()
    with os.fdopen(child, "w") as terminal, Console(stderr=terminal) as console:
        console.stage("profiling forward")
        for _ in range(60_000):
            if told[-1] > 1.5:
                break
            time.sleep(0.01)
        console.note("a note")
    text = drain(parent)
    assert "profiling forward · 0 s" in text and "profiling forward · 1 s" in text
    before, after = text.split("a note")
    assert before.endswith("\r\x1b[2K")  # the live line makes room for it
    assert "profiling forward" in after  # and comes back under it
    assert text.endswith("\r\x1b[2K")


def test_a_closed_stderr_ends_nothing() -> None:
    console, out, err = make()
    err.close()
    console.stage("capturing")
    console.result("answer")
    assert out.getvalue() == "answer\n"


def test_the_default_streams_are_those_of_now(capsys: pytest.CaptureFixture[str]) -> None:
    Console().result("answer")
    assert capsys.readouterr().out == "answer\n"
    assert sys.stdout is not None
