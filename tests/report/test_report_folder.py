"""Drawing a record into its folder: all of it, again, and as much as can be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import run_builder as build

from inductor_bench.errors import InductorBenchError
from inductor_bench.report.run.run_document import write_report

ALL = [
    "tables/modules.csv",
    "tables/categories.csv",
    "tables/kernels.csv",
    "tables/shapes.csv",
    "report.html",
]


def listed(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_everything_is_written_and_nothing_else(tmp_path: Path) -> None:
    written = write_report(build.cpu(), tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in written] == ALL
    assert listed(tmp_path) == sorted(ALL)


def test_drawing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    write_report(build.cpu(), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    write_report(build.cpu(), tmp_path)
    assert {path: path.read_bytes() for path in before} == before


def test_without_plots(tmp_path: Path) -> None:
    write_report(build.cpu(), tmp_path, plots=False)
    assert "<img" not in (tmp_path / "report.html").read_text()


def test_hostile_names_touch_no_other_file(tmp_path: Path) -> None:
    write_report(build.hostile(), tmp_path / "run")
    assert listed(tmp_path) == sorted(f"run/{name}" for name in ALL)


def test_one_artefact_that_fails_does_not_lose_the_others(tmp_path: Path) -> None:
    (tmp_path / "tables").write_text("in the way of a folder")
    with pytest.raises(InductorBenchError, match=r"cannot write .*tables") as caught:
        write_report(build.cpu(), tmp_path)
    assert caught.value.hint
    assert (tmp_path / "report.html").is_file()


@pytest.mark.skipif(not Path("/dev/full").exists() or os.name != "posix", reason="needs a POSIX system")
def test_a_full_disk_is_an_expected_failure(tmp_path: Path) -> None:
    # A limit on file sizes makes writes fail midway as a full disk does; in a child, because it cannot be lifted.
    code = f"""
import resource, signal, sys
sys.dont_write_bytecode = True  # Python would leave the begin of a module that is larger
sys.path.insert(0, {str(Path(__file__).parent.parent / "support")!r})
from pathlib import Path
import run_builder as build
from inductor_bench.errors import InductorBenchError
from inductor_bench.report.run.run_document import write_report
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    write_report(build.cpu(), Path({str(tmp_path)!r}))
except InductorBenchError as error:
    print("expected:", error.message)
"""
    root = str(Path(__file__).resolve().parent.parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert child.stdout.startswith("expected: cannot write")
    assert "tables/kernels.csv" in listed(tmp_path)
    assert not [name for name in listed(tmp_path) if ".report.html." in name]
