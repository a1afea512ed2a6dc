"""The output in the documentation is real: each block names its command, and is what that command prints today."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from documented import PAGES, refusal

sys.path.insert(0, str(ROOT / "scripts"))
outputs = importlib.import_module("documentation.outputs")

OWN_TEST = "findings.md"
"""The page whose sentences ``test_findings_page.py`` compares with the tool."""

LANGUAGES = ("bash", "python", "yaml", "text")
DAY = r"\d{4}-\d\d-\d\d"

each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)


@pytest.fixture(scope="module")
def printed() -> Iterator[Callable[[str], str]]:
    with outputs.recorded_runs() as run:
        yield run


def faults(text: str) -> Iterator[str]:
    """What the comments of a page lack."""
    for shown in (*outputs.blocks(text), *outputs.figures(text)):
        if shown.language not in (*LANGUAGES, *outputs.FIGURES):
            yield f"line {shown.line}: a block of {shown.language or 'no language'}"
        elif shown.language in ("text", *outputs.FIGURES):
            yield from (f"line {shown.line}: {fault}" for fault in faults_of(shown))


def faults_of(shown: Any) -> Iterator[str]:
    """What is wrong with the origin of a block of output, or of a table of figures."""
    if shown.origin is None:
        yield "no comment says what made it"
        return
    for command in shown.origin.command.split("; "):
        if why := unknown(command):
            yield why
    if not shown.origin.repeatable or shown.language in outputs.FIGURES:
        if not re.search(r"torch \d|triton \d", shown.origin.on):
            yield "`on` names no device with its versions"
        if not re.fullmatch(rf"{DAY}( to {DAY})?", shown.origin.date):
            yield "`date` is no day"


def unknown(command: str) -> str:
    """Why a command, script or test does not exist; empty if it does."""
    program, _, rest = command.partition(" ")
    if program == "inductor-bench":
        return refusal(rest)
    if program == "pytest":
        return "" if (ROOT / rest.split()[-1]).exists() else f"{rest} are no tests"
    return "" if program.startswith("scripts/") and (ROOT / program).is_file() else f"{program} is no script"


@pytest.fixture
def any_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes every path as it is typed."""
    import click

    monkeypatch.setattr(click.Path, "convert", lambda self, value, parameter, context: Path(value))


@each_page
@pytest.mark.usefixtures("any_path")
def test_all_output_and_all_figures_say_what_made_them(path: Path) -> None:
    assert list(faults(path.read_text(encoding="utf-8"))) == [] or path.name == OWN_TEST


@each_page
def test_output_is_what_the_command_prints(path: Path, printed: Callable[[str], str]) -> None:
    text = path.read_text(encoding="utf-8")
    assert outputs.brought_up_to_date(text, printed) == text, "run scripts/docs"


BY = "<!-- made by: inductor-bench report runs/x -->\n"
ELSEWHERE = """<!-- made by: scripts/benchmark.py --only start;
     pytest tests/gpu
     on: H200, torch 2.11
     date: {} -->
"""


@pytest.mark.usefixtures("any_path")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```text\nx\n```\n", ["line 2: no comment says what made it"]),
        ("```\nx\n```\n", ["line 2: a block of no language"]),
        (f"{BY}\n```text\nx\n```\n", ["line 4: no comment says what made it"]),
        ("| a | b |\n|---|---|\n| x | 0.3 ms |\n", ["line 1: no comment says what made it"]),
        ("words\n\n![picture](a.png)\n", ["line 3: no comment says what made it"]),
        (BY.replace("report", "reprot") + "```text\nx\n```\n", ["line 3: reprot is no command"]),
        (BY + "| 5% |\n", ["line 2: `on` names no device with its versions", "line 2: `date` is no day"]),
        (ELSEWHERE.format("today") + "```text\nx\n```\n", ["line 6: `date` is no day"]),
        (
            ELSEWHERE.format("2026-11-23").replace("mark.py", "mork.py") + "| 5% |\n",
            ["line 5: scripts/benchmork.py is no script"],
        ),
        (ELSEWHERE.format("2026-11-22 to 2026-11-23") + "| 5% |\n", []),
        (
            f"{BY}```text\nx\n```\n\n| word |\n\n```bash\nls\n```\n\n```text\ny\n```\n",
            ["line 13: no comment says what made it"],
        ),
    ],
)
def test_a_block_without_its_origin_is_seen(text: str, expected: list[str]) -> None:
    assert list(faults(text)) == expected


OUTPUT = "\nprogram 1.00 ms\n\nparts\n  kernel_2  0.50 ms\n  kernel_3  7.00 µs\nend: 3 kernels\n\n"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("old\n", OUTPUT.strip() + "\n"),
        ("program 2.00 ms\n…\n", "program 1.00 ms\n…\n"),
        ("…\n  kernel_3  9.00 ms\nend: 4 kernels\n", "…\n  kernel_3  7.00 µs\nend: 3 kernels\n"),
        (
            "program\n…\nparts\n  kernel_1  50 %\n…\nend\n",
            "program 1.00 ms\n…\nparts\n  kernel_2  0.50 ms\n…\nend: 3 kernels\n",
        ),
    ],
)
def test_a_block_is_written_with_the_lines_that_it_had(shown: str, expected: str) -> None:
    page = f"# Page\n\n{BY}```text\n{shown}```\n\nprose\n"
    written = outputs.brought_up_to_date(page, lambda command: OUTPUT)
    assert written == page.replace(shown, expected)
    assert outputs.brought_up_to_date(written, lambda command: OUTPUT) == written


def test_the_readme_is_short_and_pages_can_be_read() -> None:
    lines = {path.name: path.read_text(encoding="utf-8").splitlines() for path in PAGES}
    assert len(lines["README.md"]) <= 150
    assert [line for name in lines for line in lines[name] if len(line) > 120 and not line.startswith("|")] == []


def test_lines_that_are_gone_are_named() -> None:
    with pytest.raises(ValueError, match="no line like 'category'"):
        outputs.choose("program\n…\ncategory\n…\n", OUTPUT)


def test_a_command_that_cannot_be_repeated_is_named(printed: Callable[[str], str]) -> None:
    with pytest.raises(ValueError, match="say `on` which device"):
        printed("scripts/benchmark.py")
    with pytest.raises(ValueError, match="exit code 2"):
        printed("inductor-bench report runs/nowhere")
