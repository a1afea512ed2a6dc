"""The documentation leads somewhere: its links, the commands that it shows, the record fields that it names."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click
import markdown_pages as markdown
import pytest
import step_runs
from conftest import ROOT
from documented import refusal

from inductor_bench.cli.main import VERBS
from inductor_bench.report.run.run_tables import write_tables

sys.path.insert(0, str(ROOT / "scripts"))
fields = importlib.import_module("documentation.fields")
record = importlib.import_module("documentation.record")

NAMES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
PAGES = [*(ROOT / name for name in NAMES), *sorted((ROOT / "docs").glob("*.md"))]
each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)


def page(path: Path) -> markdown.Page:
    return markdown.read(path.read_text(encoding="utf-8"))


# Links


def dead_links(path: Path) -> list[str]:
    """The relative links of a page that lead nowhere."""
    dead = []
    for target in markdown.links(page(path)):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = unquote(target).partition("#")
        there = path.parent / name if name else path
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in markdown.anchors(page(there))):
            dead.append(target)
    return dead


@each_page
def test_every_link_leads_somewhere(path: Path) -> None:
    assert dead_links(path) == []


def test_a_dead_link_is_seen(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Some `--words` here!\n\n# Twice\n\n# Twice\n\n```\n# no heading\n```\n")
    good = "other.md", "other.md#some---words-here", "other.md#twice-1", "#top", "https://nowhere.invalid/x", "."
    bad = "another.md", "other.md#twice-2", "other.md#no-heading", "#bottom", "pictures/a.png"
    links = " ".join(f"[a\nlink]({target})" for target in (*good, *bad[:-1]))
    hidden = "`[code](nowhere.md)`\n\n```text\n[code](nowhere.md)\n```\n<!-- [comment](nowhere.md) -->"
    (tmp_path / "page.md").write_text(f"# Top\n\n{links} ![picture]({bad[-1]})\n\n{hidden}\n")
    assert dead_links(tmp_path / "page.md") == list(bad)
    (tmp_path / "page.md").write_text('<a href="gone.md">x</a> <img src="gone.png"> [x][y]\n\n[y]: gone.txt\n')
    assert dead_links(tmp_path / "page.md") == ["gone.md", "gone.png", "gone.txt"]


# Commands


@pytest.fixture
def any_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes every path as it is typed."""
    monkeypatch.setattr(click.Path, "convert", lambda self, value, parameter, context: Path(value))


@each_page
@pytest.mark.usefixtures("any_path")
def test_every_command_can_be_typed(path: Path) -> None:
    shown = {command: refusal(command) for command in markdown.commands(page(path))}
    assert {command: why for command, why in shown.items() if why} == {}


@pytest.mark.usefixtures("any_path")
@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("`inductor-bench breakdwon x.py`", ["breakdwon is no command"]),
        ("`inductor-bench breakdown x.py --frobnicate`", ["--frobnicate"]),
        ("```\n$ inductor-bench breakdown x.py --repeat 0   # more\n```", ["0 is not in the range"]),
        ("```bash\ninductor-bench report RUN \\\n    --format pdf\n```", ["'pdf' is not one of"]),
        ("```\nA=1 inductor-bench report  # nothing\nx && inductor-bench reprot RUN\n```", ["reprot is no command"]),
        ('```\neval "$(inductor-bench completion tcsh)"\n```', ["'tcsh' is not one of"]),
        ("```\ninductor-bench kernel 'k.py\n```", ["No closing quotation"]),
        ("```\ninductor-bench compare --fail-above much A B | tee x\n```", ["much"]),
        ("`inductor-bench --version`, `inductor-bench doctor`, `inductor-bench completion bash|zsh|fish`", []),
        ("`inductor-bench query BATCH 'SELECT …' > slow.csv`, `inductor-bench kernel --help`", []),
        ("```\ninductor-bench breakdown x.py --seed 1 -- --frobnicate   some words\n```", []),
        ("```python\nprint('inductor-bench reprot')\n```", []),
    ],
)
def test_a_command_that_cannot_be_typed_is_seen(shown: str, expected: list[str]) -> None:
    found = [why for command in markdown.commands(markdown.read(shown)) if (why := refusal(command))]
    assert len(found) == len(expected) and all(part in why for part, why in zip(expected, found, strict=True))


def test_commands_are_found_in_the_pages() -> None:
    shown = [command.split()[0] for path in PAGES for command in markdown.commands(page(path))]
    assert set(VERBS) <= set(shown)


# Fields of records


def roots() -> Iterator[Any]:
    return (document.root for document in record.DOCUMENTS)


def leads_to_a_field(path: str, kind: Any) -> bool:
    """Whether a path such as ``modules[].time_s`` names a field of a dataclass."""
    name, _, rest = path.partition(".")
    found = [one for one in fields.fields_of(kind) if one.name == name.removesuffix("[]")]
    below = [leaf for one in found for leaf in fields.leaves(one.hint) if is_dataclass(leaf)]
    return any(leads_to_a_field(rest, leaf) for leaf in below) if rest else bool(found)


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The columns of a RUN's tables."""
    tables = write_tables(step_runs.transformer(), tmp_path_factory.mktemp("RUN"))
    return {name for table in tables for name in table.read_text().partition("\n")[0].strip().split(",")}


def unknown_fields(shown: markdown.Page, columns: set[str]) -> list[str]:
    """The record fields in the prose of a page that no record has, and no table as a column."""
    first = {
        *(
            one.name
            for root in roots()
            for one in fields.fields_of(root)
            if any(map(is_dataclass, fields.leaves(one.hint)))
        )
    }
    every = {one.name for root in roots() for kind in fields.kinds_in(root) for one in fields.fields_of(kind)}
    paths = [path for path in markdown.record_paths(shown) if path.split(".")[0].removesuffix("[]") in first]
    wrong = [path for path in paths if not any(leads_to_a_field(path, root) for root in roots())]
    return wrong + [name for name in markdown.measured_names(shown) if name not in every | columns]


@each_page
def test_every_record_field_exists(path: Path, columns: set[str]) -> None:
    assert unknown_fields(page(path), columns) == []


def test_an_unknown_field_is_seen(columns: set[str]) -> None:
    shown = markdown.read(
        "`modules[].kernels[].time_s` `program.eager_step_time_s` `capture.phases` `modules[].kernels[].times`\n"
        "`wall_time_s` `walled_time_s` `idle_time_s` `mixnet_s` `step.py` `torch.compile` `step.a_s`\n\n"
        "```\n`gone_time_s`\n```\n"
    )
    assert unknown_fields(shown, columns) == ["capture.phases", "modules[].kernels[].times", "walled_time_s"]


# What docstrings and comments refer to, such as ``autotune.methods.find_least``, is there.


PACKAGE = Path(__file__).resolve().parents[2] / "inductor_bench"
REFERENCE = re.compile(r"``((?:\w+\.)+)([A-Za-z_]\w+)``")

FOLDERS = frozenset(path.name for path in PACKAGE.iterdir() if path.is_dir())
OTHERS = frozenset({"torch", "triton"})
"""Packages whose names are not looked up."""


def defined(body: Iterable[ast.stmt]) -> Iterator[str]:
    """The names that a module or a class defines."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (one.id for target in targets if target for one in ast.walk(target) if isinstance(one, ast.Name))


@cache
def holders() -> Mapping[str, frozenset[str]]:
    """What folders and modules hold, by their names; those of one name together."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.parent.name if path.stem == "__init__" else path.stem
        found.setdefault(name, set()).update(defined(ast.parse(path.read_text()).body))
        found.setdefault(path.parent.name, set()).add(path.stem)
    return {name: frozenset(held) for name, held in found.items()}


def lost_references(text: str) -> Iterator[str]:
    """The references whose module does not hold what they name.

    The end of a module's name may stand for it. An attribute of an object is no reference: no module holds its name.
    """
    every = frozenset().union(*holders().values())
    for path, name in REFERENCE.findall(text):
        parts = path.split(".")[:-1]
        first, last = parts[0], parts[-1]
        held = (names for holder, names in holders().items() if holder == last or holder.endswith(f"_{last}"))
        is_ours = first in FOLDERS or (last.islower() and first not in OTHERS and name in every)
        if is_ours and not any(name in names for names in held):
            yield f"{path}{name}"


def test_what_is_referred_to_is_there() -> None:
    lost = {path.name: list(lost_references(path.read_text())) for path in PACKAGE.rglob("*.py")}
    assert {name: found for name, found in lost.items() if found} == {}


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("see ``autotune.methods.find_least``, ``methods.find_least`` and ``aggregation.judge_in_step``", []),
        ("an option ``request.anything``, a label ``Block.forward`` and ``torch.cuda.graph``", []),
        ("see ``autotune.methods.gone``", ["autotune.methods.gone"]),
        ("see ``stake.find_least``", ["stake.find_least"]),
        ("see ``ledger.find_least``", ["ledger.find_least"]),
    ],
)
def test_a_lost_reference_is_seen(text: str, lost: list[str]) -> None:
    assert list(lost_references(text)) == lost
