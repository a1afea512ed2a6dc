"""What ``scripts/benchmark_modes.py`` says of a process, and what it does if it is ended itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import mode_rows
import pytest

from scripts import benchmark_modes

SCRIPTS = Path(benchmark_modes.__file__).parent

CHILD = """
    import signal, time
    def interrupt(*_):
        print("interrupted", flush=True)
        raise SystemExit(130)
    signal.signal(signal.SIGINT, interrupt)
    print("begun", flush=True)
    time.sleep(600)
"""


def test_the_time_of_a_process_is_divided() -> None:
    process = mode_rows.process(0, 0.1, compile_time_s=20.0, compiled_graphs=2, time_s=30.5)
    said = benchmark_modes.time_of(process)
    assert said.startswith("30.5 s, of which compilation or its caches 20.0 s (2 graphs compiled in it)")
    assert "timed steps 0.5 s" in said and said.endswith("end 10.0 s")
    assert "nothing compiled" in benchmark_modes.time_of(mode_rows.process(1, 0.1, time_s=3.0))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_the_comparison_and_the_rows_are_read(number: signal.Signals) -> None:
    code = f"""
        import os, sys
        from scripts import benchmark_modes
        benchmark_modes.run_until([sys.executable, "-c", {textwrap.dedent(CHILD)!r}], os.environ, 50)
        print("rows", flush=True)
    """
    path = str(SCRIPTS.parent)
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(number)
        assert process.communicate(timeout=600)[0] == "interrupted\nrows\n" and process.returncode == 0
