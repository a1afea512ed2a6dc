"""Names from other people's records that would change a terminal, a table, a page or a program that is written."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import newer_records
import pytest
from conftest import ROOT
from newer_records import Kind

from inductor_bench.cli import main as entry
from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.observed import APPLY, Pins
from inductor_bench.records.retune import TritonPin
from inductor_bench.records.run import Run
from inductor_bench.source.calls import KernelKey
from inductor_bench.store import codec
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows.pins import PinnedRun, make_pins
from inductor_bench.workflows.tuned import write_tuned

EVIL = "\x1b]0;title\x07\x1b[31mred\u202eleft\u2066x\u200f\x9b2J\x00\r\nnew|line`<script>alert(1)</script>,\"q';\u2028"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
LONG = 600
WORDS = {"kind", "category", "bound", "device", "status", "method", "state", "verdict", "tool_version", "dtype"}
"""Fields whose values decide what is shown."""


def record() -> dict[str, object]:
    with ZipFile(ROOT / "tests" / "data" / "documented" / "tuned.zip") as archive:
        return json.loads(archive.read("record.json"))  # type: ignore[no-any-return]


def names_of(data: object) -> set[Kind]:
    """Where a record holds names: every text that may be any text."""
    found = set()
    for place in newer_records.kinds_of_texts(data):
        try:
            codec.decode(Run, newer_records.with_new_texts(data, [place], EVIL))
        except InductorBenchError:
            continue
        if place[-1] not in WORDS:
            found.add(place)
    return found


def with_evil_names(data: object) -> object:
    """The record with names that hold all that. The first one at each kind of place is long, too."""
    long = set(newer_records.kinds_of_texts(data).values())
    return newer_records.with_texts(
        data, names_of(data), lambda text: text + EVIL + ("x" * LONG if text in long else "")
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A RUN with such names, and the RUN as it was."""
    found = []
    for name, data in (("evil", with_evil_names(record())), ("good", record())):
        found.append(tmp_path_factory.mktemp("names") / name)
        found[-1].mkdir()
        (found[-1] / "record.json").write_text(json.dumps(data))
    return found[0], found[1]


COMMANDS = {
    "report": (),
    "report --format json": (),
    "report --format csv": (),
    "report --format md": (),
    "report --format html": (),
    "query": ("FROM kernels",),
    "query --format csv": ("FROM kernels",),
    "query --format md": ("FROM kernels",),
    "query --format json": ("FROM models",),
    "apply": (),
    "extract --list --static": (),
}


def checked(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert entry.main(words) in (0, 1)
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert not (found := RAW.search(text)), f"{found[0]!r} in {text[max(0, found.start() - 60) : found.end()]!r}"
    return said.out


@pytest.mark.parametrize("command", COMMANDS)
def test_names_reach_no_terminal_raw_and_break_no_table(
    command: str, folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    verb, *options = command.split()
    if verb == "query":
        pytest.importorskip("duckdb")
    plots = ["--no-plots"] if verb == "report" else []
    text = checked([verb, str(folders[0]), *COMMANDS[command], *plots, *options], capsys)
    form = options[-1] if options else ""
    check_form(form, text)
    if command in ("report", "apply"):
        written = [path for path in folders[0].rglob("*") if path.suffix in (".csv", ".md", ".html")]
        assert len(written) > 5 or command == "apply"
        for path in written:
            assert not (found := RAW.search(path.read_text())), (path, found)


@pytest.mark.parametrize("form", ["table", "md", "csv", "json", "html"])
def test_a_comparison_shows_names_as_words(
    form: str, folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    check_form(form, checked(["compare", *map(str, folders), "--format", form], capsys))


def check_form(form: str, text: str) -> None:
    if form == "html":
        assert "<script>alert" not in text
    if form == "md":
        assert "<script>" not in text
        for part in re.split(r"\n(?!\|)", text):
            rows = [line for line in part.splitlines() if line.startswith("|")]
            assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) <= 1, rows[:1]
    if form == "csv":
        assert len({len(row) for row in csv.reader(io.StringIO(text))}) == 1
    if form == "json":
        json.loads(text)


CODE = '"""\nimport os\nos.system("touch pwned")\n"""'


def test_a_title_of_a_record_is_never_code_of_the_module_that_apply_writes(tmp_path: Path) -> None:
    data = record()
    run = codec.decode(Run, data)
    environment = run.environment
    hostile = replace(
        environment,
        versions=replace(environment.versions, torch=CODE, triton=CODE),
        device=replace(environment.device, accelerator=CODE),
    )
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    pin = TritonPin("key", "types", "triton_poi_fused_relu_0", "k" * 16, {"XBLOCK": 64})
    pinned = make_pins(run, folder)
    rows = {pin.kernel_id: next(iter(pinned.rows.values()))}
    keys = {pin.kernel_id: KernelKey(pin.key, pin.types, pin.name)}
    written = write_tuned(
        replace(run, title=CODE, environment=hostile), folder, PinnedRun(Pins(APPLY, "", "", None, (pin,)), keys, rows)
    )
    (module,) = [path for path in written if path.name == "tuned.py"]
    tree = ast.parse(module.read_text())
    kinds = [type(statement).__name__ for statement in tree.body]
    assert kinds == ["Expr", "Import", "ImportFrom", *["Assign"] * 4, "FunctionDef"]
    assert [ast.unparse(one) for one in tree.body if isinstance(one, ast.Import)] == ["import json"]
