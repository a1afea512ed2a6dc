"""The wheel and the source archive: what they hold, what they ask for, and what they do on a machine without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from email.parser import Parser
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest
from conftest import ROOT

pytestmark = pytest.mark.skipif(find_spec("setuptools") is None, reason="setuptools is not installed")

BUILD = "import sys\nfrom setuptools import build_meta\nprint(build_meta.{}(sys.argv[1]))\n"
WITHOUT_TORCH = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "triton"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Finder())
"""
"""A ``sitecustomize`` with which an interpreter that has torch has none."""

RUNS = ROOT / "tests" / "data" / "documented"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the wheel and the source archive of the files that git knows."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "inductor_bench", "*.md", "setup.*", "*.toml", "LICENSE"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("this tree is no checkout of git")
    for name in listed.stdout.splitlines():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes((ROOT / name).read_bytes())
    for what in ("build_wheel", "build_sdist"):
        words = [sys.executable, "-c", BUILD.format(what), str(out)]
        done = subprocess.run(words, cwd=tree, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    yield out


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that has the wheel's files and no torch."""
    site = tmp_path_factory.mktemp("site")
    with ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    (site / "sitecustomize.py").write_text(WITHOUT_TORCH)
    return {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}


def run(environment: dict[str, str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "inductor_bench", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def unpacked(folder: Path, name: str) -> Path:
    with ZipFile(RUNS / f"{name}.zip") as archive:
        archive.extractall(folder / name)
    return folder / name


def test_both_archives_hold_the_templates_and_the_schemas(built: Path) -> None:
    with ZipFile(next(built.glob("*.whl"))) as wheel, tarfile.open(next(built.glob("*.tar.gz"))) as source:
        archives = (wheel.namelist(), [name.partition("/")[2] for name in source.getnames()])
    for names in archives:
        for folder in ("report/templates", "schemas", "worker/capture/site"):
            wanted = {path.name for path in (ROOT / "inductor_bench" / folder).iterdir() if path.is_file()}
            assert {name.rpartition("/")[2] for name in names if f"/{folder}/" in f"/{name}"} >= wanted
        assert not [name for name in names if "tests/" in name]


def test_no_installation_brings_a_torch(built: Path) -> None:
    with ZipFile(next(built.glob("*.whl"))) as wheel:
        (place,) = (name for name in wheel.namelist() if name.endswith("METADATA"))
        asked = Parser().parsestr(wheel.read(place).decode()).get_all("Requires-Dist") or []
    always = [one for one in asked if "extra ==" not in one]
    assert any(one.startswith("click") for one in always) and not [one for one in always if "torch" in one]
    assert 'torch>=2.9; extra == "torch"' in asked


def test_what_needs_no_torch_runs_without_it(installed: dict[str, str], tmp_path: Path) -> None:
    train, loss = unpacked(tmp_path, "train"), unpacked(tmp_path, "loss")
    shown = run(installed, tmp_path, "report", "train")
    assert shown.returncode == 0 and "a step" in shown.stdout, shown.stderr
    assert "<h1>" in (train / "report.html").read_text()
    compared = run(installed, tmp_path, "compare", train.name, loss.name)
    assert compared.returncode == 0 and "B is 6.7% faster" in compared.stdout, compared.stderr
    assert run(installed, tmp_path, "completion", "zsh").returncode == 0


def test_a_query_needs_no_torch(installed: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    unpacked(tmp_path, "train")
    counted = run(installed, tmp_path, "query", "train", "SELECT count(*) AS n FROM kernels", "--format", "json")
    assert counted.returncode == 0 and json.loads(counted.stdout), counted.stderr


def test_what_needs_torch_says_so(installed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    done = run(installed, tmp_path, "breakdown", "train.py", "--no-plots")
    assert done.returncode == 1 and "No module named 'torch'" in done.stdout and "Traceback" not in done.stderr
    assert "install torch 2.9 or newer" in " ".join(done.stdout.split())
    observed = "import inductor_bench\ntry: inductor_bench.observe()\nexcept Exception as error: print(repr(error))"
    words = [sys.executable, "-c", observed]
    said = subprocess.run(words, cwd=tmp_path, env=installed, capture_output=True, text=True)
    assert "observe needs torch, which is not installed" in said.stdout, said.stderr
