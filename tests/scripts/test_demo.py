"""What the demo says beside the report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conftest import ROOT

PYTHON = f"""#!/bin/sh
[ "$1" != -m ] || exit 0  # the breakdown
exec {sys.executable} "$@"
"""


def test_the_demo_names_in_one_line_what_cannot_be_imported(tmp_path: Path) -> None:
    for name in ("timm", "torchvision"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    for name in ("duckdb", "ray", "transformers/__init__", "transformers/modeling_utils"):
        (tmp_path / f"{name}.py").parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text("__version__ = '1'")
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    environment = {**os.environ, "INDUCTOR_BENCH_PYTHON": str(python), "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(ROOT / "scripts" / "demo", env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    (line,) = [line for line in ended.stdout.splitlines() if "imported" in line]
    assert line.startswith("Cannot be imported here: timm, torchvision. ")
    assert line.endswith(" -m inductor_bench doctor")
