"""The tests' own help for a torchvision whose compiled library does not load: it works, and only when needed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SHIM


def run(code: str, *path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
def test_timm_can_be_imported() -> None:
    code = "import timm\nprint(sum(p.numel() for p in timm.create_model('mixnet_s').parameters()))"
    assert int(run(code, SHIM)) == 4_134_606


def test_nothing_is_loaded_before_it_is_needed() -> None:
    assert run("import sys\nprint('torch' in sys.modules)", SHIM) == "False\n"


def test_the_next_sitecustomize_has_its_turn(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('next')")
    assert run("print('program')", SHIM, tmp_path) == "next\nprogram\n"
