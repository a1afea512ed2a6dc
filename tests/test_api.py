"""The library's ``extract``: the rows that it returns and what it raises."""

from __future__ import annotations

import gzip
import inspect
from pathlib import Path

import breakdown_runs
import pytest
from breakdown_runs import H200

import inductor_bench
from inductor_bench.errors import InductorBenchError, UsageError
from inductor_bench.messages.observed import PINS
from inductor_bench.records.base import Category


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A compiled module that was recorded on a GPU, which there need not be here."""
    path = tmp_path / "module.py"
    path.write_bytes(gzip.decompress((H200 / "gpu_kinds" / "0_forward.py.gz").read_bytes()))
    return path


def test_every_kernel_is_a_row_with_the_path_of_its_file(module: Path, tmp_path: Path) -> None:
    rows = inductor_bench.extract(module, tmp_path / "out", static=True)
    assert rows and all((row.path is None) == bool(row.reason) for row in rows)
    written = [row for row in rows if row.path is not None]
    assert written and all(row.path.is_absolute() and row.path.is_file() for row in written if row.path)
    assert {row.path.name for row in written if row.path} == {file.name for file in (tmp_path / "out").glob("*.py")}
    assert all(row.values_path is None and len(row.kernel_id) == 16 for row in rows)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_kernels_are_chosen_as_on_the_command_line(module: Path, tmp_path: Path) -> None:
    every = inductor_bench.extract(str(module), tmp_path / "all", static=True)
    some = inductor_bench.extract([module], tmp_path / "some", static=True, category="pointwise", top=1)
    assert [row.category for row in some] == [Category.POINTWISE]
    named = inductor_bench.extract(module, tmp_path / "named", static=True, kernel=some[0].name)
    assert [row.name for row in named] == [some[0].name] and len(every) > 1


def test_a_run_gives_the_files_of_values_as_well(tmp_path: Path) -> None:
    run = breakdown_runs.with_values().folder
    rows = inductor_bench.extract(run, tmp_path / "out", values="recorded")
    assert all(row.values_path and row.values_path.is_file() and row.note == "" for row in rows)
    assert all(row.time_s is not None and row.time_s > 0 for row in rows)


def test_what_fails_is_raised_with_what_to_type_next(module: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        inductor_bench.extract(tmp_path / "nothing.py", tmp_path / "out")
    with pytest.raises(UsageError, match="not an empty folder"):
        inductor_bench.extract(module, tmp_path, static=True)
    with pytest.raises(TypeError, match="colour"):
        inductor_bench.extract(module, tmp_path / "out", colour="blue")
    with pytest.raises(ValueError, match="warm"):
        inductor_bench.extract(module, tmp_path / "out", category="warm")
    assert issubclass(UsageError, InductorBenchError) and not (tmp_path / "out").exists()


def test_what_is_gone_is_a_warning(module: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(f"Compiled module path: {module}\nCompiled module path: {tmp_path / 'gone.py'}\n")
    with pytest.warns(UserWarning, match=r"gone\.py no longer exists"):
        rows = inductor_bench.extract(log, tmp_path / "out", static=True)
    assert rows


@pytest.mark.parametrize("function", [inductor_bench.breakdown, inductor_bench.extract])
def test_every_argument_is_documented(function: object) -> None:
    text = inspect.getdoc(function) or ""
    for name in inspect.signature(function).parameters:  # type: ignore[arg-type]
        assert f"{name}:" in text


def test_the_configs_of_one_run_are_applied_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(PINS, "pins.json")
    with pytest.raises(InductorBenchError, match="has already loaded the configs of a RUN"):
        inductor_bench.apply(tmp_path)
