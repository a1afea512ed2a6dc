"""References that are recorded in a RUN's files once somebody asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from breakdown_runs import copy_of, factory

from inductor_bench.messages.kernel_requests import MakeReference
from inductor_bench.records.code import Reference
from inductor_bench.records.request import DRAWN
from inductor_bench.source.standalone_writer import read_recorded_facts
from inductor_bench.store.folder import RunFolder, is_edited, read_rows
from inductor_bench.workflows.modules.extraction import read_modules_of_run
from inductor_bench.workflows.modules.kernel_files import has_reference, record_reference

pytestmark = pytest.mark.xdist_group("captures")  # which make the run


class Worker:
    """Answers each request with the number of lines of the file that it was asked to run."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, request: MakeReference, limit_s: float) -> Reference:
        self.asked.append(Path(request.file).read_text())
        return Reference({"tensors": [{"lines": self.asked[-1].count("\n")}]})


@pytest.fixture(scope="module")
def kernels() -> Path:
    return RunFolder(copy_of(factory(), "referenced")).kernels


def test_the_modules_of_a_run_are_read_once_as_long_as_its_files_are_the_same() -> None:
    folder = RunFolder(copy_of(factory(), "read-once"))
    (first, *_), (second, *_) = (read_modules_of_run(folder, DRAWN)[0] for _ in range(2))
    assert first is second and first.candidates is second.candidates
    for file in (folder.path / "modules").glob("*.py"):
        file.write_text(file.read_text() + "# changed\n")
    third = read_modules_of_run(folder, DRAWN)[0][0]
    assert third is not first and third.text.endswith("# changed\n")


def file_in(kernels: Path, place: int) -> Path:
    return sorted(kernels.glob("*.py"))[place]


def is_unedited(file: Path) -> bool:
    return not any(is_edited(row, file.parent) for row in read_rows(file.parent) if row.file == file.name)


def test_a_file_gets_what_its_kernel_computes_once(kernels: Path) -> None:
    file, worker = file_in(kernels, 0), Worker()
    text = file.read_text()
    assert not has_reference(file)
    assert record_reference(file, worker.ask) and has_reference(file) and is_unedited(file)
    assert worker.asked == [text]
    assert not record_reference(file, worker.ask) and len(worker.asked) == 1
    without = {**read_recorded_facts(file.read_text())}
    assert without.pop("reference") == {"tensors": [{"lines": text.count("\n")}]}
    assert without == read_recorded_facts(text)


def test_an_edited_file_gets_what_the_kernel_of_the_run_computes(kernels: Path) -> None:
    file, worker = file_in(kernels, 1), Worker()
    text = file.read_text()
    file.write_text(text + "# an idea\n")
    assert record_reference(file, worker.ask) and has_reference(file) and not is_unedited(file)
    assert worker.asked == [text] and file.read_text().endswith("# an idea\n")


def test_a_file_that_no_extraction_wrote_gets_none(kernels: Path, tmp_path: Path) -> None:
    copy, worker = tmp_path / "copy.py", Worker()
    copy.write_text(file_in(kernels, 2).read_text())
    assert not record_reference(copy, worker.ask) and worker.asked == []
