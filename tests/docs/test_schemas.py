"""The JSON Schemas: what the tool writes and prints has the form that they say, and no key that they do not name."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import drawn_records
import pytest
from conftest import ROOT
from documented import documented
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError
from recorded_runs import recorded_runs, recorded_texts

import inductor_bench
from inductor_bench.cli.main import main
from inductor_bench.errors import InductorBenchError
from inductor_bench.records.run import Run
from inductor_bench.records.summary import Summary
from inductor_bench.report.document_summary import name_schema_file, write_summarised_json
from inductor_bench.report.formats import View
from inductor_bench.report.run.run_document import FORMATS
from inductor_bench.store import codec

sys.path.insert(0, str(ROOT / "scripts"))
schemas = importlib.import_module("documentation.schema")

DOCUMENTS = [one for one in schemas.DOCUMENTS if one.root not in schemas.WITHOUT_SUMMARY]
NAMES = sorted(path.stem for path in (ROOT / "inductor_bench" / "schemas").glob("*.json"))


def strict(schema: Any) -> Any:
    """A schema that allows no further keys in objects whose keys it names."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    closes = isinstance(found.get("properties"), dict) and found.get("type") == "object"
    return found | {"additionalProperties": False} if closes else found


def check(data: Any, name: str = "", *, open_ended: bool = False) -> None:
    """Validates JSON by the schema that it names, or by ``name``."""
    schema = inductor_bench.schema(name or data["schema"])
    Draft202012Validator(schema if open_ended else strict(schema)).validate(data)


def test_each_document_has_a_schema() -> None:
    assert sorted(name.removesuffix(".json") for name in schemas.schema_files()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_one_and_lies_in_the_package(name: str) -> None:
    schema = inductor_bench.schema(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"{name}/1" and schema == json.loads(schemas.schema_files()[f"{name}.json"])


def test_a_schema_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InductorBenchError, match="there is no schema") as refused:
        inductor_bench.schema("../run")
    assert "run-comparison" in refused.value.hint


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.root.__name__)
@settings(max_examples=4)
@given(data=st.data())
def test_any_record_has_the_form_of_its_schema(document: Any, data: st.DataObject) -> None:
    record = data.draw(drawn_records.records(document.root))
    if document.is_list:
        check(json.loads(json.dumps(codec.encode([record]))), name_schema_file(document.root))
    else:
        check(json.loads(write_summarised_json(record, data.draw(drawn_records.records(Summary)))))


@pytest.mark.parametrize("document", schemas.FILES, ids=lambda document: document.root.__name__)
@settings(max_examples=4)
@given(data=st.data())
def test_any_file_has_the_form_of_its_schema_with_its_defaults_and_without(document: Any, data: st.DataObject) -> None:
    record = data.draw(drawn_records.records(document.root))
    for encoded in (codec.encode(record), codec.encode_sparse(record)):
        check(json.loads(json.dumps(encoded)), name_schema_file(document.root))


@pytest.mark.parametrize("name", recorded_texts())
def test_records_of_earlier_versions_have_the_form_of_the_schema(name: str) -> None:
    check(json.loads(recorded_texts()[name]), "run", open_ended=True)


@pytest.mark.parametrize("name", recorded_runs())
@pytest.mark.parametrize("brief", [False, True])
def test_what_is_printed_of_a_recorded_run_has_the_form_of_its_schema(name: str, brief: bool) -> None:
    text = FORMATS.get("json").render(recorded_runs()[name], View(Path("runs/a"), brief=brief))
    assert isinstance(text, str)
    check(json.loads(text))


def test_a_wrong_form_is_seen() -> None:
    data = json.loads(json.dumps(codec.encode(recorded_runs()["decode"])))
    check(data, name_schema_file(Run))
    for wrong in ({"title": 3}, {"modules": {}}, {"newer": 1}, {"program": {}}, {"schema": "run/2"}):
        with pytest.raises(ValidationError):
            check(data | wrong, name_schema_file(Run))
    check(data | {"newer": 1}, name_schema_file(Run), open_ended=True)


# What commands print


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory, with the RUNs that the documentation names."""
    outputs = importlib.import_module("documentation.outputs")
    for archive in outputs.RECORDED.glob("*.zip"):
        with outputs.ZipFile(archive) as opened:
            opened.extractall(tmp_path / "runs" / archive.stem)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("words", "schema"),
    [
        (documented("inductor-bench report runs/train --format json"), "run/1"),
        (documented("inductor-bench report runs/train --brief --format json"), "summary/1"),
        (["compare", "runs/train", "runs/loss"], "run-comparison/1"),
        (["apply", "runs/tuned"], "apply-outcome/1"),
        (["extract", "runs/train", "--list", "--static"], "extract-outcome/1"),
    ],
)
def test_what_a_command_prints_has_the_form_of_its_schema(
    words: list[str], schema: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(words if "json" in words else [*words, "--format", "json"])
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == schema
    check(data)


@pytest.mark.usefixtures("runs")
def test_the_rows_of_a_query_have_the_form_of_their_schema(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    assert main(["query", "runs/train", "FROM findings", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "query-rows/1"
    check(data)
    assert {row["kind"] for row in data["rows"]} >= {"below-memory-limit", "eager-operators"}
