"""The script that sends signals sees what it looks for: processes that live on, hangs, and records that are lost."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT

STUBBORN = "import signal\nfor number in (1, 2, 3, 15): signal.signal(number, signal.SIG_IGN)\n"
LIVE_ON = "import subprocess\nsubprocess.Popen(['sleep', '900'], start_new_session=True)\n"
WAIT = "print('ready', flush=True)\nimport time\ntime.sleep(900)\n"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("signals_script", ROOT / "scripts" / "signals.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "signals_script", module)
    spec.loader.exec_module(module)
    return module


def faults_of(
    script: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch, program: str, number: signal.Signals
) -> list[str]:
    """What is wrong with a program that gets a signal once it is ready."""
    monkeypatch.setattr(script, "command", lambda words: [sys.executable, "-c", *words])
    lane, tally = script.Lane((program,), "written/record.json", ("import sys; sys.exit(1)",)), script.Tally("fake")
    script.trial(lane, folder, folder, tally, number, "", wait_for_ready)
    return sorted(tally.kinds)


def wait_for_ready(child: subprocess.Popen[bytes], said: Path) -> None:
    while child.poll() is None and said.read_text() != "ready\n":
        time.sleep(0.02)


def test_a_program_that_ends_with_the_signal_has_no_fault(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert faults_of(script, tmp_path, monkeypatch, WAIT, signal.SIGTERM) == []


@pytest.mark.parametrize(
    ("program", "number", "kinds"),
    [
        (LIVE_ON + WAIT, signal.SIGKILL, ["left"]),
        (STUBBORN + WAIT, signal.SIGTERM, ["hung", "refused"]),
        ("raise SystemExit(3)", signal.SIGTERM, ["refused"]),
        ("open('inductor_bench/cli/', 'r')", signal.SIGTERM, ["refused", "traceback"]),
    ],
)
def test_each_fault_is_seen(
    program: str,
    number: signal.Signals,
    kinds: list[str],
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(script, "HUNG_S", 1.0)
    if kinds != ["hung", "refused"]:
        monkeypatch.setattr(script, "HUNG_S", 300.0)
    assert [kind for kind in faults_of(script, tmp_path, monkeypatch, program, number) if kind != "unread"] == kinds


def test_a_record_that_cannot_be_read_is_a_fault(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "written").mkdir()
    (tmp_path / "written" / "record.json").touch()
    assert faults_of(script, tmp_path, monkeypatch, WAIT, signal.SIGTERM) == ["unread"]
