"""The pages that ``scripts/docs`` makes: they are current, complete, and keys and meanings are those of the records."""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, get_origin

import click
import pytest
import run_builder
from conftest import ROOT

from inductor_bench.cli.main import VERBS, group
from inductor_bench.records.base import Inline, Place
from inductor_bench.records.batch_record import Batch, BatchModel
from inductor_bench.records.request import ModelRequest
from inductor_bench.records.run import Run
from inductor_bench.store.codec import encode

sys.path.insert(0, str(ROOT / "scripts"))
docs = importlib.import_module("docs")
commands = importlib.import_module("documentation.commands")
markdown = importlib.import_module("documentation.markdown")
fields = importlib.import_module("documentation.fields")
programs = importlib.import_module("documentation.programs")
record = importlib.import_module("documentation.record")


@functools.cache
def page(name: str) -> str:
    made: str = docs.PAGES[name]()
    return made


@pytest.mark.parametrize("name", docs.PAGES)
def test_a_page_is_current(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(name), "run scripts/docs"


@pytest.mark.parametrize("name", docs.PAGES)
def test_a_page_names_its_command_and_can_be_read(name: str) -> None:
    lines = page(name).splitlines()
    assert "`scripts/docs`" in lines[0]
    assert [line for line in lines if len(line) > markdown.WIDTH] == []
    headings = [line.lstrip("# ") for line in lines if line.startswith("#")]
    assert len(headings) == len({markdown.anchor(heading) for heading in headings})


def test_the_script_writes_what_differs_and_its_check_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    assert docs.main(["--check"], folder) == 1 and list(tmp_path.rglob("*.*")) == []
    assert docs.main([], folder) == 0 and docs.main(["--check"], folder) == 0
    for path in (folder / "record.md", tmp_path / docs.SCHEMAS / "run.json"):
        written = path.read_text()
        path.write_text(f"{written}\n")
        capsys.readouterr()
        assert docs.main(["--check"], folder) == 1
        assert capsys.readouterr().out == f"differs: {path.relative_to(tmp_path)}\n"
        path.write_text(written)


# Commands


def section(text: str, heading: str) -> str:
    """The text below a heading of the second level."""
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_a_command_is_described(verb: str) -> None:
    command = group.get_command(click.Context(group), verb)
    assert command is not None
    text = section(page("commands.md"), verb)
    options = [one for one in command.params if isinstance(one, click.Option)]
    missing = [
        name for one in options for name in (*one.opts, *one.secondary_opts) if not re.search(rf"{name}\b", text)
    ]
    assert missing == []


def test_an_option_is_described_with_its_form_choices_and_default() -> None:
    words = commands.option_words
    top = click.Option(["-n", "--top"], type=click.IntRange(min=1), default=10, show_default=True, help="How many.")
    assert words(top) == "`-n, --top N`: How many. At least 1. Default: `10`."
    mode = click.Option(
        ["--mode"], type=click.Choice(["a", "b", "c"]), metavar="MODE", help="The *x*, as --y or `a --z`."
    )
    assert words(mode) == r"`--mode MODE`: The \*x\*, as `--y` or `a --z`. One of `a`, `b` or `c`."
    tries = click.Option(["--try"], is_flag=False, flag_value="a", multiple=True, help="Try it.")
    assert words(tries) == "`--try VALUE`: Try it. Without a value: `a`. May be repeated."
    check = click.Option(["--check/--no-check"], default=True, show_default=True, help="Compare.")
    assert words(check) == "`--check / --no-check`: Compare. Default: `--check`."


# Records


def undescribed(root: Any) -> list[str]:
    """The fields without a meaning in the JSON of a dataclass."""
    return [
        f"{kind.__name__}.{one.name}"
        for kind in fields.kinds_in(root)
        for one in fields.fields_of(kind)
        if not one.meaning
    ]


ROOTS = [one.root for one in record.DOCUMENTS]


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.__name__)
def test_every_field_of_a_record_is_described(root: Any) -> None:
    assert undescribed(root) == [], "add the field to `Attributes:` of its class"
    for kind in fields.kinds_in(root):
        assert "``" not in record.in_markdown(fields.about(kind)) and ":data:" not in (kind.__doc__ or "")


@dataclass(frozen=True)
class Inner:
    """What stands in its holder's object."""

    # the time, if it was
    # measured
    time_s: float | None = None
    bare: int = 0


@dataclass(frozen=True)
class Planted:
    """A record."""

    first: float  # a share. It has its full stop.
    inner: Inline[Inner]
    second: dict[str, float] = field(default_factory=dict)  # shares that nobody has
    # the sizes
    sizes_bytes: tuple[int, ...] = ()
    file: Place | None = None


def test_a_field_without_a_description_is_seen() -> None:
    assert undescribed(Planted) == ["Planted.bare", "Planted.file"]


def test_fields_have_types_and_units_and_inline_ones_stand_in_their_place() -> None:
    assert [record.field_words(one) for one in fields.fields_of(Planted)] == [
        "`first` (number): a share. It has its full stop.",
        "`time_s` (number or null; seconds): the time, if it was measured.",
        "`bare` (whole number): ",
        "`second` (object with numbers by name): shares that nobody has.",
        "`sizes_bytes` (list of whole numbers; bytes): the sizes.",
        "`file` (text, a path inside the folder or null): ",
    ]


def mismatches(kind: Any, data: Any, place: str = "") -> Iterator[str]:
    """The places where encoded data has other keys than the page."""
    described = list(fields.fields_of(kind))
    if [one.name for one in described] != list(data):
        yield f"{place or kind.__name__}: {sorted({one.name for one in described} ^ set(data))}"
    for one in described:
        below = next((leaf for leaf in fields.leaves(one.hint) if is_dataclass(leaf)), None)
        held = data.get(one.name)
        for item in held if isinstance(held, list) else [held]:
            if below is not None and isinstance(item, dict) and get_origin(one.hint) is not dict:
                yield from mismatches(below, item, f"{place}.{one.name}")


def test_the_keys_are_those_that_are_written() -> None:
    batch = Batch(1, "0", "", "", "", (BatchModel(ModelRequest("timm:a", name="a")),))
    for kind, value in ((Run, run_builder.mixnet()), (Run, run_builder.cpu()), (Batch, batch)):
        assert list(mismatches(kind, encode(value))) == []
    data = encode(run_builder.cpu())
    data["modules"][0]["kernels"][0]["more"] = 1
    assert list(mismatches(Run, data)) == [".modules.kernels: ['more']"]


def test_the_readmes_programs_are_those_of_the_page_of_figures() -> None:
    readme, page = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/measuring.md"))
    assert len(programs.measured_programs(page)) >= 20
    assert programs.with_programs(readme, page) == readme, "run scripts/docs"
