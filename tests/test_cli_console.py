"""The console: what goes to which stream, on a terminal and elsewhere."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import sys
import time

import pytest

from inductor_bench.cli import console as room
from inductor_bench.cli.console import Console


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
    console.error("it broke", "mend it")
    assert err.getvalue() == "Error: it broke\nHint: mend it\n"


def test_drawn_results_fit_a_hundred_columns_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    console, out, _ = make()
    console.drawing().print("x" * 150)
    assert [len(line) for line in out.getvalue().splitlines()] == [100, 50]
    assert "\x1b" not in out.getvalue()


def drain(terminal: int) -> str:
    """What was written to a pseudo-terminal whose other end is closed; a single read may return a part of it."""
    parts = []
    with contextlib.suppress(OSError):  # Linux ends it with EIO
        while part := os.read(terminal, 65536):
            parts.append(part)
    os.close(terminal)
    return b"".join(parts).decode()


def test_a_live_line_tells_the_time_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "TICK_S", 0.05)
    monkeypatch.setenv("TERM", "xterm")
    parent, child = pty.openpty()
    with os.fdopen(child, "w") as terminal, Console(stderr=terminal) as console:
        console.stage("profiling forward")
        time.sleep(1.2)
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
