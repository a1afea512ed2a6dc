"""The fixture ``inductor_bench`` in sessions of pytest of its own."""

from __future__ import annotations

import configparser
import importlib
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from conftest import ROOT

PLUGIN = "inductor_bench.integrations.pytest_plugin"

BLOCKS = """
import contextlib
import sys

LOADED = sorted(name for name in sys.modules if name.partition(".")[0] in ("inductor_bench", "torch", "numpy"))

import inductor_bench


class Run:
    step_time_s, headline = 0.001, "too few steps"

    def __init__(self, output, options):
        self.output, self.options, self.steps = output, options, 0

    @property
    def is_measured(self):
        return self.steps >= 12

    def mark(self):
        self.steps += 1


@contextlib.contextmanager
def observe(output, **options):
    run = Run(output, options)
    inductor_bench.step_marks.listeners.append(run.mark)
    yield run
    inductor_bench.step_marks.listeners.remove(run.mark)


inductor_bench.observe = observe
"""

TESTS = """
from conftest import LOADED

import pytest

from inductor_bench.errors import InductorBenchError


def test_loads_little():
    package = "inductor_bench"
    parts = ("", ".integrations", ".integrations.pytest_plugin", ".step_marks", ".version")
    assert [package + part for part in parts] == LOADED


@pytest.mark.parametrize("mode", ["max autotune"])
def test_step(inductor_bench, mode):
    calls = []
    run = inductor_bench.step(lambda: calls.append(1))
    assert run.step_time_s < 1 and len(calls) == 12
    assert run.options == {"name": "test_step[max autotune]", "force": True, "samples": False}
    assert run.output.name == "test_step-max-autotune" and run.output.parent.name == "kept"
    assert inductor_bench.step(calls.clear).output.name == "test_step-max-autotune-2"


def test_slow(inductor_bench):
    assert inductor_bench.step(lambda: None, most_s=0, output="stored").steps == 3


def test_untimed(inductor_bench, monkeypatch):
    monkeypatch.setattr("conftest.Run.step_time_s", float("nan"))
    with pytest.raises(InductorBenchError, match="too few steps"):
        inductor_bench.step(lambda: None, most_s=0)


def test_is_not_slower(inductor_bench):
    assert inductor_bench.compare("train", "loss").verdict == "faster"
"""


def pytest_ends(folder: Path, *options: str) -> str:
    """What a session of pytest prints in a folder, with the plugin and no other."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    variables |= {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", PLUGIN, *options]
    return subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, timeout=600).stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(BLOCKS)
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path


def test_a_step_is_called_until_it_is_measured_and_compared(folder: Path) -> None:
    for name in ("train", "loss"):
        with ZipFile(ROOT / "tests" / "data" / "documented" / f"{name}.zip") as archive:
            archive.extractall(folder / name)
    printed = pytest_ends(folder, "--inductor-bench-runs", "kept")
    assert "5 passed" in printed, printed


def test_processes_that_share_the_machine_time_nothing(folder: Path) -> None:
    pytest.importorskip("xdist")
    printed = pytest_ends(folder, "-p", "xdist.plugin", "-n", "2", "-k", "step or slow")
    assert "2 skipped" in printed and "run this test with -n 0" in printed, printed


def test_pytest_finds_the_plugin_where_the_package_is_installed() -> None:
    configuration = configparser.ConfigParser()
    configuration.read(ROOT / "setup.cfg")
    _, _, named = configuration["options.entry_points"]["pytest11"].partition("=")
    assert named.strip() == PLUGIN and callable(importlib.import_module(PLUGIN).pytest_addoption)
