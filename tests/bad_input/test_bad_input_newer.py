"""Records of a version that does not exist yet: they are read as far as this version knows them."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import mode_rows
import newer_records as newer
import pytest
import run_builder
import step_runs
from conftest import ROOT
from newer_records import NEW, Kind

from inductor_bench.analysis.mode_conclusion import conclude
from inductor_bench.cli import main as entry
from inductor_bench.cli.console import Console
from inductor_bench.cli.presentation import show
from inductor_bench.errors import InductorBenchError
from inductor_bench.launch.worker import WorkerAnswer, WorkerPool
from inductor_bench.records.base import Category, Failure
from inductor_bench.records.batch_record import Batch, BatchModel
from inductor_bench.records.code import LayerMap
from inductor_bench.records.comparison import MODES, ModeComparison, ModelModes, ModesByModel, ModeSet
from inductor_bench.records.evidence import Evidence, HostTrace
from inductor_bench.records.request import ModelRequest
from inductor_bench.records.run import Run, Timeline
from inductor_bench.report.formats import View
from inductor_bench.report.modes_document import FORMATS
from inductor_bench.report.run.run_document import FORMATS as RUN_FORMATS
from inductor_bench.report.table_documents import LIST_FORMATS
from inductor_bench.store import codec
from inductor_bench.store.codec import FORMAT
from inductor_bench.store.folder import BatchFolder, ModesFolder, RunFolder
from inductor_bench.version import __version__

DATA = ROOT / "tests" / "data"
HOSTED = DATA / "h200_torch2.11" / "record_with_host.json.gz"
OBSERVED = DATA / "cpu_torch2.13" / "observed.zip"
PLACES = {"file", "slug", "graph", "graphs", "trace", "log", "name", "run"}
"""Fields that may hold the name of a file or of a RUN folder. Other texts are free."""

Data = dict[str, Any]


def recorded(name: str) -> Data:
    with ZipFile(DATA / "documented" / f"{name}.zip") as archive:
        return json.loads(archive.read("record.json"))  # type: ignore[no-any-return]


def built(run: Run) -> Data:
    return codec.encode(run)  # type: ignore[no-any-return]


RECORDS: dict[str, Callable[[], Data]] = {
    **{name: lambda name=name: recorded(name) for name in ("blocks", "train", "tuned")},  # type: ignore[misc]
    "format of version 2": lambda: json.loads((DATA / "record_of_format_2.json").read_text()),
    "host, layers and predictions": lambda: json.loads(gzip.decompress(HOSTED.read_bytes())),
    "ranks": lambda: built(step_runs.distributed()),
    "without a step": lambda: built(run_builder.cpu()),
}


def refused(kind: type[Any], data: Data) -> set[Kind]:
    """Where a new text makes a record unreadable."""
    found = set()
    for place in newer.kinds_of_texts(data):
        try:
            codec.decode(kind, newer.with_new_texts(data, [place]))
        except InductorBenchError:
            found.add(place)
    return found


def changes(data: Data, kept: set[Kind], rounds: int = 1) -> Iterator[Data]:
    """The record with new texts, in several rounds so that one does not hide another; with new fields, and items."""
    free = [place for place in newer.kinds_of_texts(data) if place not in kept]
    for number in range(rounds):
        yield newer.with_new_texts(data, free[number::rounds])
    yield newer.with_new_fields(newer.with_new_items(data, kept))


@pytest.fixture
def bugs(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """What commands report as bugs; no worker is started."""
    found: list[BaseException] = []
    monkeypatch.setattr(entry, "_report_bug", lambda error, given: found.append(error))
    failure = Failure("survey", "exit", "no worker is started here")
    monkeypatch.setattr(WorkerPool, "call", lambda pool, job, **_: WorkerAnswer(None, failure))
    return found


def check(words: Iterable[str | Path], bugs: list[BaseException]) -> None:
    code = entry.main(list(map(str, words)))
    if bugs:
        raise bugs[0]
    assert code in (0, 1, 2), words


def read_everywhere(folder: Path, other: Path, bugs: list[BaseException]) -> None:
    """Runs every verb that reads a RUN."""
    check(("report", folder, "--no-plots"), bugs)  # writes the tables and the page, too
    check(("report", folder, "--no-plots", "--format", "md", "--sort", "gain"), bugs)
    check(("query", folder, "FROM kernels"), bugs)
    check(("compare", folder, other), bugs)
    check(("compare", other, folder, "--format", "html"), bugs)
    check(("extract", folder, "--list", "--static"), bugs)
    check(("kernel", f"{folder}#*"), bugs)
    check(("apply", folder), bugs)
    check(("breakdown", folder, "--no-plots"), bugs)


def save(data: Data, folder: Path, file: str = "record.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(json.dumps(data))
    return folder


@pytest.mark.parametrize("name", RECORDS)
def test_texts_of_a_record_are_free_except_names_of_files(name: str) -> None:
    data = RECORDS[name]()
    assert {[key for key in place if key != "*"][-1] for place in refused(Run, data)} <= PLACES


@pytest.mark.parametrize("name", [name for name in RECORDS if name not in ("blocks", "train")])
def test_a_run_of_a_newer_version_is_read_by_every_verb(name: str, tmp_path: Path, bugs: list[BaseException]) -> None:
    data = RECORDS[name]()
    known = save(data, tmp_path / "known")
    for number, changed in enumerate(changes(data, refused(Run, data), 2 if name == "tuned" else 1)):
        folder = save(changed, tmp_path / f"newer{number}")
        RunFolder(folder).load()
        read_everywhere(folder, known, bugs)


FILES_OF_EVIDENCE = {
    "evidence.json": Evidence,
    "modules/forward.layers.json": LayerMap,
    "traces/step.timeline.json": Timeline,
    "traces/host.speedscope.json": HostTrace,
}


@pytest.mark.parametrize("file", FILES_OF_EVIDENCE)
def test_what_a_newer_version_observed_is_read_by_every_verb(
    file: str, tmp_path: Path, bugs: list[BaseException]
) -> None:
    for number in range(2):
        with ZipFile(OBSERVED) as archive:
            archive.extractall(folder := tmp_path / str(number))
        data = json.loads((folder / file).read_text())
        changed = list(changes(data, refused(FILES_OF_EVIDENCE[file], data)))[number]
        (folder / file).write_text(json.dumps(changed))
        check(("breakdown", folder, "--no-plots"), bugs)
        check(("report", folder, "--no-plots"), bugs)
        check(("extract", folder, "--list", "--static"), bugs)


def test_an_unknown_kind_is_shown_under_its_own_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = recorded("train")
    data["program"]["parts"][0] |= {"kind": "quantum", "label": "entangling"}
    data["program"]["step_source"] = "requests"
    for module in data["modules"]:
        module["categories"][0]["name"] = module["kernels"][0]["category"] = "sparse_product"
        module["kernels"][0]["bound"] = "network"
    folder = save(data, tmp_path / "run")
    assert entry.main(["report", str(folder), "--no-plots"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in ("entangling", "sparse product", "delimited by requests", "network", "%: quantum "):
        assert words in text
    assert "pattern of compiled calls" not in text
    page = (folder / "report.html").read_text()
    assert "quantum" in page and "sparse product" in page
    pytest.importorskip("duckdb")
    assert entry.main(["query", str(folder), "SELECT DISTINCT category FROM kernels"]) == 0
    assert "sparse_product" in capsys.readouterr().out


def test_a_category_of_a_newer_version_is_one_and_the_same_everywhere() -> None:
    newer = Category("sparse_product")
    assert newer is Category("sparse_product") and newer is pickle.loads(pickle.dumps(newer))
    assert newer.title == "sparse product" and newer not in list(Category) and codec.encode(newer) == "sparse_product"
    for value in ("", "\x1b[31m", "a\nb", "x" * 60, 7, None):
        with pytest.raises(ValueError, match="is not a valid Category"):
            Category(value)


def test_pictures_of_a_newer_run_and_its_timeline_are_drawn(tmp_path: Path) -> None:
    data = recorded("tuned")
    folder = save(next(changes(data, refused(Run, data))), tmp_path / "run")
    timeline = codec.encode(step_runs.timeline())
    kept = refused(Timeline, timeline)
    save(newer.with_new_items(newer.with_new_texts(timeline, newer.kinds_of_texts(timeline)), kept), folder / "traces")
    (folder / "traces" / "record.json").rename(folder / "traces" / "step.timeline.json")
    page = RUN_FORMATS.get("html").render(RunFolder(folder).load(), View(folder))
    assert isinstance(page, str)
    assert NEW in page and len(page) > 200_000


BATCH = ("one", "two")


def batch_of(tmp_path: Path, name: str, records: Iterable[Data]) -> Path:
    folder = BatchFolder(tmp_path / name)
    rows = tuple(BatchModel(ModelRequest(f"timm:{name}", name=name), "done", run=f"models/{name}") for name in BATCH)
    for name, data in zip(BATCH, records, strict=True):
        save(data, folder.run(name).path)
    folder.save(Batch(1, __version__, "2026-11-25T12:00:00+00:00", "inductor-bench batch list.txt", "list.txt", rows))
    return folder.path


def test_a_batch_of_a_newer_version_is_read_by_every_verb(tmp_path: Path, bugs: list[BaseException]) -> None:
    records = [recorded("tuned"), built(step_runs.distributed())]
    known = batch_of(tmp_path, "known", records)
    each = [list(changes(data, refused(Run, data))) for data in records]
    for number, changed in enumerate(zip(*each, strict=True)):
        folder = batch_of(tmp_path, f"newer{number}", changed)
        batch = json.loads((folder / "batch.json").read_text())
        kept = refused(Batch, batch) | {("models", "*", "request", "name")}
        save(list(changes(batch, kept))[number], folder, "batch.json")
        check(("report", folder, "--no-plots"), bugs)  # writes the tables and the page, too
        check(("report", folder, "--no-plots", "--format", "md"), bugs)
        check(("query", folder, "FROM models"), bugs)
        check(("compare", known, folder), bugs)


def test_a_model_in_an_unknown_state_shows_the_figures_of_its_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("duckdb")
    folder = batch_of(tmp_path, "batch", [recorded("train"), recorded("decode")])
    batch = json.loads((folder / "batch.json").read_text())
    batch["models"][0]["status"] = "verified"
    save(batch, folder, "batch.json")
    assert entry.main(["query", str(folder), "SELECT model, status, time_s > 0 FROM models", "--format", "csv"]) == 0
    assert "one,verified,true" in capsys.readouterr().out.lower()


def modes() -> ModeComparison:
    rows = [mode_rows.row(mode, [1.0, 1.1, 1.0, 1.05], 10.0) for mode in MODES]
    rows.append(mode_rows.row(ModeSet("default", ("tf32",)), [0.9] * 4, 11.0))
    return mode_rows.comparison(*rows)


def test_modes_of_a_newer_version_are_shown_in_every_format(tmp_path: Path) -> None:
    data = codec.encode(modes())
    kept = refused(ModeComparison, data)
    for number, changed in enumerate(changes(data, kept, 6)):
        found = ModesFolder(save(changed, tmp_path / str(number), "modes.json")).load()
        found = conclude(found)  # as every command does
        for name in FORMATS.names:
            show(FORMATS.get(name), found, View(), Console())
        several = ModesByModel("list.txt", (ModelModes("one", found), ModelModes("two", None, Failure(NEW, NEW, NEW))))
        for name in LIST_FORMATS.names:
            show(LIST_FORMATS.get(name), several, View(), Console())


# What this version cannot read


FOLDERS: dict[str, tuple[str, Callable[[], Data]]] = {
    "run": ("record.json", lambda: recorded("train")),
    "batch": ("batch.json", lambda: codec.encode(Batch(1, "0", "", "", "list.txt"))),
    "modes": ("modes.json", lambda: codec.encode(modes())),
}


def load(kind: str, folder: Path) -> object:
    return {"run": RunFolder, "batch": BatchFolder, "modes": ModesFolder}[kind](folder).load()


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_newer_format_is_refused_with_the_version_that_wrote_it(kind: str, tmp_path: Path) -> None:
    file, make = FOLDERS[kind]
    folder = save({**make(), "format": FORMAT + 7, "tool_version": "7.1.0", "modules": NEW}, tmp_path / kind, file)
    with pytest.raises(InductorBenchError, match=r"has format 10, newer than .*inductor-bench 7\.1\.0 wrote it") as no:
        load(kind, folder)
    assert no.value.hint == "update inductor-bench: pip install --upgrade inductor-bench"


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_newer_record_that_does_not_fit_is_not_called_damaged(kind: str, tmp_path: Path) -> None:
    file, make = FOLDERS[kind]
    for version, said in (("7.1.0", r"inductor-bench 7\.1\.0 wrote it"), (__version__, "is damaged")):
        folder = save({**make(), "command": [NEW], "tool_version": version}, tmp_path / version, file)
        with pytest.raises(InductorBenchError, match=said) as no:
            load(kind, folder)
        assert ("update inductor-bench" in no.value.hint) == (version == "7.1.0")
