"""The commands of the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conftest import ROOT

PYTHON = f"""#!/bin/sh
if [ "$1" = -m ]; then echo "ran $3 $4"; else exec {sys.executable} "$@"; fi
"""


def test_the_demo_breaks_a_program_down_and_then_makes_it_faster(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    environment = {**os.environ, "INDUCTOR_BENCH_PYTHON": str(python)}
    ended = subprocess.run(ROOT / "scripts" / "demo", env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    ran = [line for line in ended.stdout.splitlines() if line.startswith("ran ")]
    assert ran == ["ran breakdown --stop", f"ran optimize {ROOT / 'runs' / 'demo'}"]
    assert ended.stdout.splitlines()[-1].endswith(" -m inductor_bench doctor")
