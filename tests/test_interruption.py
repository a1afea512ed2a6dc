"""Interruptions: each signal ends the command once, wherever it comes, and no lock and no process is lost by it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import ROOT

BEGIN = """
import os, signal, subprocess, sys, threading, time
from pathlib import Path
import click
from inductor_bench.cli import main as entry

def signal_myself():
    os.kill(os.getpid(), signal.SIGHUP)

class Destroyed:
    def __del__(self):
        signal_myself()
        time.sleep(0.01)

def work_for_long():
    for _ in range(3000):
        time.sleep(0.01)
    print("never interrupted", flush=True)

def run(verb):
    entry.VerbGroup.get_command = lambda self, context, name: click.Command(name, callback=verb)
    sys.exit(entry.main(["doctor"]))
"""


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", BEGIN + textwrap.dedent(program)]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def test_a_signal_that_comes_in_a_destructor_is_not_lost(tmp_path: Path) -> None:
    """Python prints the exception of a destructor and goes on."""
    ended = run(
        """
        def verb():
            Destroyed()
            work_for_long()

        run(verb)
        """,
        tmp_path,
    )
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr.strip() == "Error: interrupted"


def test_a_signal_that_comes_while_a_child_is_looked_at_does_not_hang_the_command(tmp_path: Path) -> None:
    """``Popen`` holds a lock meanwhile, which its next wait would wait for."""
    ended = run(
        """
        from inductor_bench.launch.process import ChildProcess

        class Lock:
            def __init__(self):
                self.lock, self.release, self.is_new = threading.Lock(), self.allow_device_use, True
                self.__class__.__enter__ = lambda self: self.acquire()
                self.__class__.__exit__ = lambda self, *_: self.allow_device_use()

            def allow_device_use(self):
                self.lock.release()

            def acquire(self, *words):
                taken = self.lock.acquire(*words)
                if self.is_new:
                    self.is_new = False
                    signal_myself()
                    time.sleep(0.01)
                return taken

        def verb():
            child = ChildProcess(["sleep", "900"], environment=os.environ, log=Path("log"))
            child._child._waitpid_lock = Lock()
            try:
                child.wait(None)
            finally:
                child.end()
                print("ended", child._child.returncode)

        run(verb)
        """,
        tmp_path,
    )
    assert (ended.returncode, ended.stdout) == (130, "ended -15\n"), ended.stderr


@pytest.mark.parametrize("where", ["before the program runs", "when it runs"])
def test_a_signal_that_comes_while_a_child_starts_leaves_none(where: str, tmp_path: Path) -> None:
    """Until it runs its program, a child has the environment of its parent, and nothing tells whose it is."""
    ended = run(
        f"""
        from inductor_bench.launch.process import run_process
        from inductor_bench.launch import marks

        class Interrupted(subprocess.Popen):
            def _execute_child(self, *words):
                if {where!r} == "when it runs":
                    super()._execute_child(*words)
                signal_myself()
                time.sleep(0.01)
                if {where!r} != "when it runs":
                    super()._execute_child(*words)
                print("started", flush=True)

        def verb():
            marks.mark_child({{}})  # starts the guardian
            subprocess.Popen = Interrupted
            try:
                run_process(["sleep", "900"], environment=os.environ, log=Path("log"), timeout_s=None)
            finally:
                import psutil
                print([child.name() for child in psutil.Process().children() if child.name() == "sleep"])

        run(verb)
        """,
        tmp_path,
    )
    assert (ended.returncode, ended.stdout) == (130, "started\n[]\n"), ended.stderr


def test_several_signals_at_once_interrupt_once(tmp_path: Path) -> None:
    ended = run(
        """
        def verb():
            try:
                signal_myself()
                work_for_long()
            except KeyboardInterrupt:
                signal_myself()
                time.sleep(0.01)
                print("saved", flush=True)
                raise

        run(verb)
        """,
        tmp_path,
    )
    assert (ended.returncode, ended.stdout) == (130, "saved\n")


def test_a_dropped_signal_does_not_come_again_after_the_end_of_a_command(tmp_path: Path) -> None:
    """At its end the entry gives SIGINT its usual effect, which is to kill the process."""
    ended = run(
        """
        entry.VerbGroup.get_command = lambda self, context, name: click.Command(name, callback=Destroyed)
        code = entry.main(["doctor"])
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        time.sleep(0.5)
        sys.exit(0)
        """,
        tmp_path,
    )
    assert ended.returncode == 0, ended.stderr


def test_a_dropped_signal_that_is_sent_again_at_the_end_of_a_command_does_not_kill_it(tmp_path: Path) -> None:
    ended = run(
        """
        send = signal.pthread_kill

        def send_late(ident, number):
            time.sleep(0.5)
            send(ident, number)

        def verb():
            Destroyed()
            time.sleep(0.2)

        signal.pthread_kill = send_late
        entry.VerbGroup.get_command = lambda self, context, name: click.Command(name, callback=verb)
        code = entry.main(["doctor"])
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        time.sleep(1.0)
        sys.exit(code)
        """,
        tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
