"""A disk that is full from any write on: what was there stays readable, and a sentence says what is missing."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import breakdown_runs as runs
import pytest
from conftest import ROOT
from full_disks import FullDisk

from inductor_bench.cli import main as entry
from inductor_bench.launch.worker import WorkerAnswer, WorkerPool
from inductor_bench.records.base import Failure
from inductor_bench.records.batch_record import Batch, BatchModel
from inductor_bench.records.request import ModelRequest
from inductor_bench.store.folder import BatchFolder, RunFolder

KINDS = runs.H200 / "gpu_kinds"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RUN, a batch of it, a compiled module and its trace."""
    folder = tmp_path_factory.mktemp("base")
    with ZipFile(ROOT / "tests" / "data" / "documented" / "tuned.zip") as archive:
        archive.extractall(folder / "run")
    shutil.copytree(folder / "run", folder / "other")
    batch = BatchFolder(folder / "batch")
    shutil.copytree(folder / "run", batch.run("one").path)
    row = BatchModel(ModelRequest("timm:one", name="one"), "done", run="models/one")
    batch.save(Batch(1, "0.1.0", "2026-11-25T12:00:00+00:00", "inductor-bench batch list.txt", "list.txt", (row,)))
    (folder / "module.py").write_bytes(gzip.decompress((KINDS / "0_forward.py.gz").read_bytes()))
    shutil.copyfile(KINDS / "0_forward.trace.json.gz", folder / "trace.json.gz")
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds all that the command may use for itself; no worker is started."""
    failure = Failure("survey", "exit", "no worker is started here")
    monkeypatch.setattr(WorkerPool, "call", lambda pool, job, **_: WorkerAnswer(None, failure))
    for variable, name in (("HOME", "home"), ("TMPDIR", "tmp"), ("INDUCTOR_BENCH_CACHE", "cache")):
        monkeypatch.setenv(variable, str(tmp_path / name))
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return tmp_path


COMMANDS = {
    "report of a run": "report run --no-plots",
    "report of a batch": "report batch --no-plots",
    "query": "query run FROM(kernels)",
    "comparison": "compare run other --bundle b.zip",
    "apply": "apply run",
    "extraction": "extract module.py --static -o out",
    "analysis of a trace": "breakdown module.py --trace trace.json.gz -o out --no-plots",
    "analysis of a run": "breakdown run --no-plots",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_is_full_from_any_write_on_costs_no_record_and_is_said(
    name: str, base: Path, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bugs: list[BaseException] = []
    monkeypatch.setattr(entry, "_report_bug", lambda error, given: bugs.append(error))
    disk, words = FullDisk(place), COMMANDS[name].split()
    whole = fresh(base, place, lambda: entry.main(words), disk, 0)
    capsys.readouterr()
    writes = disk.asked
    for number in steps(writes):
        code = fresh(base, place, lambda: entry.main(words), disk, number)
        said = capsys.readouterr()
        if bugs:
            raise bugs[0]
        assert code in (1, 2) or (code == whole and "Traceback" not in said.err), (number, code, said.err)
        if code != whole:
            told = said.out + said.err
            assert "space" in told or "cannot" in told, (number, told)
        for record in place.glob("cwd/**/record.json"):
            RunFolder(record.parent).load()
        BatchFolder(place / "cwd" / "batch").load()
        left = [path.name for path in place.glob("cwd/**/.*") if path.name.startswith((".record", ".lock"))]
        assert not left, (number, left)


def steps(writes: int) -> list[int]:
    """Each of the first eight writes, then about eight of the others."""
    return [*range(1, min(writes, 8) + 1), *range(9, writes + 1, max(1, writes // 8))]


def fresh(base: Path, place: Path, run: Callable[[], int], disk: FullDisk, number: int) -> int:
    """The exit code of a command in a fresh copy of the files."""
    shutil.rmtree(place / "cwd")
    shutil.copytree(base, place / "cwd")
    os.chdir(place / "cwd")
    with disk.from_write(number):
        return run()
