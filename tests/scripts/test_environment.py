"""The environment that the scripts make: the libraries of models can be imported in it, beside a CPU torch too."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import forking_python
import pytest
from conftest import ROOT

SCRIPTS = ROOT / "scripts"
OWN = Path(sys.prefix).resolve() == ROOT / ".venv"
LIBRARIES = ("timm", "torchvision", "transformers.modeling_utils")

TORCHVISION = """
from . import extension
import torch
@torch.library.register_fake("torchvision::nms")
def nms(boxes, scores, threshold):
    return boxes.new_empty(0, dtype=torch.long)
"""
"""A package that fails like a torchvision whose compiled library did not load, unless its operator is declared."""

DEFINES = """
import torch
library = torch.library.Library("torchvision", "DEF")
library.define("nms(Tensor boxes, Tensor scores, float threshold) -> Tensor")
library.define("qnms(Tensor boxes, Tensor scores, float threshold) -> Tensor")
"""

FORGET = "import sys; sys.meta_path[:] = [it for it in sys.meta_path if it.__module__ != 'torchvision_operators']"
"""Undoes what the environment of the scripts does at the start."""

SCHEMA = "import torch, torchvision; print(torch.ops.torchvision.nms.default._schema)"


def run(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


def run_fork(folder: Path, code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """In a fork of a process that has imported torch, and neither torchvision nor timm."""
    (folder / "program.py").write_text(code)
    return forking_python.run([str(folder / "program.py")], PYTHONPATH=os.pathsep.join(map(str, path)))


def plant(folder: Path, extension: str) -> Path:
    (folder / "torchvision").mkdir()
    (folder / "torchvision" / "__init__.py").write_text(TORCHVISION)
    (folder / "torchvision" / "extension.py").write_text(extension)
    return folder


@pytest.mark.skipif(not OWN, reason="not the environment that the scripts make")
@pytest.mark.parametrize("module", LIBRARIES)
def test_the_environment_of_the_scripts_imports_each_library_of_models(module: str) -> None:
    ended = run(f"import {module}")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
def test_timm_builds_a_model_if_the_missing_operators_are_declared(tmp_path: Path) -> None:
    code = "import torchvision_operators, timm\nprint(timm.create_model('test_vit').num_classes)"
    ended = run_fork(tmp_path, code, SCRIPTS)
    assert ended.stdout == "1000\n", ended.stderr


def test_a_torchvision_without_its_library_is_imported_once_its_operators_are_declared(tmp_path: Path) -> None:
    plant(tmp_path, "")
    bare = run_fork(tmp_path, f"{FORGET}; {SCHEMA}", tmp_path)
    assert "operator torchvision::nms does not exist" in bare.stderr
    declared = run_fork(tmp_path, f"import torchvision_operators; {SCHEMA}", tmp_path, SCRIPTS)
    assert declared.stdout.startswith("torchvision::nms(Tensor dets, "), declared.stderr


def test_a_torchvision_that_has_its_library_keeps_its_own_operators(tmp_path: Path) -> None:
    ended = run_fork(tmp_path, f"import torchvision_operators; {SCHEMA}", plant(tmp_path, DEFINES), SCRIPTS)
    assert ended.stdout.startswith("torchvision::nms(Tensor boxes, "), ended.stderr


def test_torch_is_not_loaded_before_torchvision_is() -> None:
    ended = run("import torchvision_operators, sys; print('torch' in sys.modules)", SCRIPTS)
    assert ended.stdout == "False\n", ended.stderr
