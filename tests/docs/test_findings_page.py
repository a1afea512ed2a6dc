"""``docs/findings.md``: every kind of finding, with its threshold and a sentence as the tool prints it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest
from conftest import ROOT
from finding_examples import EXAMPLES, FIRST_LINES, share

from inductor_bench.analysis.findings.finding import Finding
from inductor_bench.analysis.findings.first_line import write_first_line
from inductor_bench.analysis.findings.rule_table import RULES, STEP_RULES, list_findings
from inductor_bench.analysis.step_costs import HOST_SETS_PACE
from inductor_bench.records.run import Run

PAGE = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
KINDS = [*FIRST_LINES, *(kind for rule in (*STEP_RULES, *RULES) for kind in rule.kinds)]


SECTION = re.compile(
    r"### `(?P<kind>.+)`\n\n\*\*When\.\*\* (?P<when>(?:.+\n)+)\n```text\n(?P<example>(?:.+\n)+)```\n\n"
    r"\*\*What to do\.\*\* (?P<todo>(?:.+\n?)+)"
)


def sections(page: str) -> dict[str, dict[str, str]]:
    """The parts of each section by its kind, each on one line."""
    found = (match.groupdict() for match in SECTION.finditer(page))
    return {one["kind"]: {part: " ".join(text.split()) for part, text in one.items()} for one in found}


def found_in(run: Run, kind: str) -> Finding | None:
    """The finding of a kind that the tool reports of a run, or its first line."""
    lead = write_first_line(run)
    every = list_findings(run) if kind in EXAMPLES else [lead] if lead is not None else []
    return next((one for one in every if one.kind == kind), None)


@cache
def printed(kind: str) -> str:
    """The sentence that the tool prints for the example of a kind."""
    found = found_in({**EXAMPLES, **FIRST_LINES}[kind].run(), kind)
    return found.text if found is not None else ""


def faults(page: str) -> Iterator[str]:
    """What is wrong with a page."""
    found, examples = sections(page), {**EXAMPLES, **FIRST_LINES}
    yield from (f"{kind} is not described" for kind in KINDS if kind not in found)
    yield from (f"{kind} is no finding" for kind in re.findall(r"^### `(.+)`", page, re.MULTILINE) if kind not in KINDS)
    for kind in examples.keys() & found.keys():
        if found[kind]["example"] != printed(kind):
            yield f"{kind}: the tool prints: {printed(kind)}"
        yield from (f"{kind}: {word} is missing" for word in examples[kind].says if word not in found[kind]["when"])


def test_every_finding_is_described_with_its_threshold_and_its_sentence() -> None:
    assert list(faults(PAGE)) == []
    assert f"for more than {share(HOST_SETS_PACE)} of the step" in PAGE


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("### `gaps`", "### `holes`", ["gaps is not described", "holes is no finding"]),
        ("less than 90% of the wall time", "less than 95% of the wall time", ["gaps: 90% is missing"]),
        ("148 gaps", "149 gaps", [f"gaps: the tool prints: {printed('gaps')}"]),
        ("**What to do.** Look at the longest gap", "Look at the longest gap", ["gaps is not described"]),
    ],
)
def test_a_fault_of_the_page_is_seen(old: str, new: str, fault: list[str]) -> None:
    assert PAGE.count(old) == 1
    assert list(faults(PAGE.replace(old, new))) == fault


def test_every_kind_has_an_example() -> None:
    assert set(EXAMPLES) | set(FIRST_LINES) == set(KINDS)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_example_has_its_finding_and_a_run_that_is_nearly_the_same_does_not(kind: str) -> None:
    found = found_in(EXAMPLES[kind].run(), kind)
    assert found is not None and found.gain_s == pytest.approx(EXAMPLES[kind].gain_s, rel=1e-3)
    assert [place for place, run in enumerate(EXAMPLES[kind].without) if found_in(run(), kind)] == []


def test_the_page_can_be_read() -> None:
    assert [line for line in PAGE.splitlines() if len(line) > 120] == []
