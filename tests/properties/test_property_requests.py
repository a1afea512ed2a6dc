"""Lists of models, questions and options that somebody typed: they are read or refused in words."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inductor_bench.cli.presentation import SECONDS, read_variables
from inductor_bench.errors import InductorBenchError, UsageError
from inductor_bench.records.base import NUMBER, TEXT, QueryColumn, QueryTable
from inductor_bench.store.tables import query_tables
from inductor_bench.workflows.model_list import make_plain_name, read_list

targets = st.one_of(
    st.sampled_from(["resnet18", "timm:vit_a", "timm:", "a.py", "a.py:make", "hf:x", "x:y"]), st.text(max_size=6)
)
lines = st.one_of(
    st.tuples(
        targets, st.sampled_from([" ", ",", "  ", "\t"]), st.one_of(st.integers().map(str), st.text(max_size=3))
    ).map("".join),
    targets,
    st.text(max_size=12),
)


def read(data: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            found = read_list(path)
        except InductorBenchError as error:
            assert str(path) in error.message
            return
    named = [one.name.lower() for one in found]
    assert len(set(named)) == len(named) and all(one.target for one in found)


@given(st.lists(lines, max_size=6).map("\n".join))
def test_a_list_of_any_lines_is_read_or_refused_in_words(text: str) -> None:
    read(text.encode("utf-8", "surrogatepass"), "list.txt")


@given(st.binary(max_size=40), st.sampled_from(["list.txt", "list.yaml"]))
def test_a_list_of_any_bytes_is_read_or_refused_in_words(data: bytes, name: str) -> None:
    read(data, name)


scalars = st.one_of(
    st.sampled_from(
        [*("1", "-1", "1.5", "true", "~", ".nan", "1e999", "0x10", "1_0", "2001-01-01", "!!int x", "!!binary x", "'a'")]
    ),
    targets,
)
KEYS = ("target", "name", "batch_size", "amp", "seed", "timeout", "args", "mode", "dynamic", "x", "<<", "[1]", "? a")
options = st.lists(
    st.tuples(
        st.sampled_from(KEYS), st.one_of(scalars, st.lists(scalars, max_size=2).map(", ".join).map("[{}]".format))
    ),
    max_size=4,
)
items = st.one_of(scalars, options.map(lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"))


@settings(max_examples=50)
@given(st.lists(items, max_size=4), options, st.sampled_from(["", "&a ", "*a ", "!!python/object:os.system ", "!x "]))
def test_a_yaml_list_is_read_or_refused_in_words(found: list[str], defaults: list[tuple[str, str]], mark: str) -> None:
    text = "".join(f"  {key}: {value}\n" for key, value in defaults)
    models = "".join(f"  - {mark}{item}\n" for item in found)
    read(f"defaults:\n{text}models:\n{models}".encode("utf-8", "surrogatepass"), "list.yaml")


@given(st.text(max_size=30))
def test_the_file_name_of_any_model_stays_in_its_folder(target: str) -> None:
    name = make_plain_name(target)
    assert name and "/" not in name and name not in (".", "..") and name.isascii() and len(name) <= 80


TABLE = QueryTable(
    "kernels",
    "kernels",
    (QueryColumn("name", TEXT, "", ("a", "\u202eb")), QueryColumn("time_s", NUMBER, "", (1.0, 2.0))),
)
sql_words = st.sampled_from(
    [
        *(
            "SELECT",
            "*",
            "FROM",
            "kernels",
            "name",
            "time_s",
            "WHERE",
            ",",
            "(",
            ")",
            "'a'",
            "1",
            "--",
            ";",
            "\0",
            "NULL",
        ),
        *("COPY", "TO '/tmp/x'", "read_text('/etc/passwd')", "LIMIT", "GROUP BY", "ATTACH", '"', "{'a': 1}"),
    ]
)


@given(st.lists(st.one_of(sql_words, st.text(st.characters(codec="utf-8"), max_size=4)), max_size=8).map(" ".join))
@example("SELECT 170141183460469231731687303715884105727::HUGEINT")
@example("SELECT * FROM read_text('/etc/hostname')")
def test_any_question_is_answered_or_refused_in_words(sql: str) -> None:
    pytest.importorskip("duckdb")
    try:
        answer = query_tables((TABLE,), sql)
    except UsageError as error:
        assert error.message
        return
    assert all(len(row) == len(answer.columns) for row in answer.rows)


@given(st.one_of(st.text(max_size=8), st.floats().map(repr), st.integers().map(str)))
@example("1e400")
@example("nan")
@example("1e300")
def test_seconds_are_at_most_a_billion_and_above_zero_or_refused_in_words(text: str) -> None:
    try:
        value = SECONDS.convert(text, None, None)
    except click.BadParameter as error:
        assert error.message
        return
    assert 0 < value <= 1e9


@given(st.lists(st.text(max_size=8), max_size=3).map(tuple))
def test_variables_are_pairs_or_refused_in_words(found: tuple[str, ...]) -> None:
    context = click.Context(click.Command("x"))
    try:
        pairs = read_variables(context, click.Option(["--env"]), found)
    except click.BadParameter as error:
        assert "NAME=VALUE" in error.message
        return
    assert tuple("=".join(pair) for pair in pairs) == found and all(name for name, _ in pairs)
