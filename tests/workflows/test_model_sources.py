"""The table of model sources: what the help, the hints and the worker take from it."""

from __future__ import annotations

import pytest

from inductor_bench.errors import InductorBenchError
from inductor_bench.records.request_fields import (
    BY_KIND,
    COMPILED_HERE,
    LIBRARIES,
    PROGRAMS,
    SOURCES,
    find_bare_library,
    join_by_or,
    write_accepted_hint,
    write_help_lines,
)
from inductor_bench.worker.capture import programs
from inductor_bench.workflows.model_list import fits_target


def test_kinds_are_unique_and_programs_are_told_from_files() -> None:
    assert len(BY_KIND) == len(SOURCES)
    assert {"script", "command", "factory", *LIBRARIES} == PROGRAMS
    assert PROGRAMS - {"script", "command"} == COMPILED_HERE


@pytest.mark.parametrize("library", LIBRARIES)
def test_each_library_has_a_builder_and_an_example(library: str) -> None:
    source = LIBRARIES[library]
    assert callable(getattr(programs, source.builder))
    assert source.example.startswith(f"{library}:") and "batch_size" in source.takes
    assert source.install


def test_a_library_that_is_missing_has_the_hint_of_its_row() -> None:
    with pytest.raises(InductorBenchError, match="timm is not installed") as missing:
        programs.import_library("timm", "no_such_module_of_timm")
    assert missing.value.hint == LIBRARIES["timm"].install


def test_the_texts_come_from_the_rows() -> None:
    first, last = "give a script, FILE.py:FACTORY, timm:NAME, ", "a compiled module, a log, or a RUN folder"
    assert write_accepted_hint().startswith(first) and write_accepted_hint().endswith(last)
    lines = write_help_lines(20).splitlines()
    assert lines[0] == "  model.py            a script, run untouched; arguments for it after --"
    assert lines[2] == " " * 22 + "torchrun, python -m, …"
    for source in LIBRARIES.values():
        assert source.help and f"  {source.help[0]:<20}{source.help[1]}" in lines
    assert [join_by_or("ab"[:count]) for count in (1, 2)] + [join_by_or("abc")] == ["a", "a or b", "a, b or c"]
    assert (find_bare_library("comma"), find_bare_library("space")) == ("transformers", "timm")


@pytest.mark.parametrize(
    ("option", "target", "fits"),
    [
        ("arguments", "train.py", True),
        ("arguments", "timm:x", False),
        ("mode", "train.py", False),
        ("mode", "train.py:factory", True),
        ("batch_size", "train.py:factory", False),
        ("batch_size", "resnet18", True),
        ("repeat", "train.py", True),
    ],
)
def test_an_option_fits_the_targets_whose_row_takes_it(option: str, target: str, fits: bool) -> None:
    assert fits_target(option, target) is fits
