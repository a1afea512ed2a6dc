"""``docs/findings.md``: every kind of finding, with its threshold and a sentence as the tool prints it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import pytest
from conftest import ROOT
from finding_examples import EXAMPLES, FIRST_LINES

from inductor_bench.analysis.costs.step import EQUAL_STEPS, FAR_OFF, HOST_SETS_PACE
from inductor_bench.analysis.findings import bottleneck as waits
from inductor_bench.analysis.findings import evidence
from inductor_bench.analysis.findings.headline import headline
from inductor_bench.analysis.findings.program import compiling, eager, host, ranks, steadiness
from inductor_bench.analysis.findings.rules import busy_machine, certainty, copies, headroom, launches, library
from inductor_bench.analysis.findings.table import RULES, STEP_RULES, findings
from inductor_bench.records.run import Run

PAGE = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
KINDS = [*FIRST_LINES, *(kind for rule in (*STEP_RULES, *RULES) for kind in rule.kinds)]


def share(value: float) -> str:
    """A threshold as the page writes it: ``70%``, ``0.05%``."""
    return f"{100 * value:g}%"


def microseconds(value: float) -> str:
    return f"{1e6 * value:g} µs"


LEAST, LEAST_GAIN = share(evidence.LEAST_SHARE), share(evidence.LEAST_GAIN)
THRESHOLDS: dict[str, tuple[str, ...]] = {
    "busy-machine": (share(busy_machine.DELAYED), f"{busy_machine.SWITCHED} times", share(busy_machine.SCATTER)),
    "host-pace": (LEAST,),
    "synchronisations": (LEAST,),
    "data-loading": (LEAST,),
    "allocations": (LEAST,),
    "kernel-gaps": (share(host.GAPS),),
    "unsteady-steps": (share(steadiness.APART), share(steadiness.DRIFT), share(steadiness.SPREAD)),
    "busy-step": (share(busy_machine.DELAYED),),
    "beyond-peaks": (share(certainty.BEYOND - 1), share(certainty.BEYOND_TIME)),
    "few-steps": (f"Fewer than {steadiness.FEW_STEPS} steps",),
    "untied": (share(steadiness.UNTIED),),
    "alone-less": (share(FAR_OFF), LEAST),
    "alone-more": (share(FAR_OFF), LEAST),
    "cuda-graphs-unused": (LEAST, share(waits.GRAPH_GAIN)),
    "replay-inputs": (LEAST,),
    "eager-optimizer": (share(eager.WORTH_COMPILING),),
    "eager-operators": (share(eager.WORTH_COMPILING),),
    "collectives": (LEAST, share(ranks.EXPOSED)),
    "uneven-ranks": (share(ranks.UNEVEN),),
    "compile-time": (f"{compiling.LEAST_COMPILATION_S:g} second", share(compiling.LEAST_PHASE)),
    "against-eager": (share(EQUAL_STEPS),),
    "first-step": (f"{steadiness.COLD:g} times",),
    "graph-breaks": (LEAST,),
    "launch-bound": (share(waits.LAUNCH_BOUND), microseconds(waits.LONG_WAIT_S)),
    "host-bound": (share(waits.LAUNCH_BOUND), microseconds(waits.LONG_WAIT_S)),
    "cuda-graph": (share(waits.LAUNCH_BOUND), share(waits.GRAPH_GAIN), LEAST),
    "gaps": (share(waits.GAPS), LEAST),
    "host-share": (share(waits.HOST_SHARE),),
    "below-memory-limit": (share(evidence.FAR_FROM_ROOF), LEAST, LEAST_GAIN),
    "few-blocks": (share(headroom.NARROW), microseconds(evidence.SHORT_S), LEAST),
    "short-kernels": ("20 launches", microseconds(evidence.SHORT_S), share(evidence.SHORT_TIME)),
    "spills": (LEAST,),
    "unsteady-kernels": (share(launches.UNSTEADY), LEAST, share(evidence.SHORT_TIME)),
    "other": (share(evidence.LEAST_SHARE / 2),),
    "library-below-limit": (
        *(share(evidence.FAR_FROM_ROOF / 2), LEAST_GAIN, share(2 * evidence.LEAST_SHARE)),
        share(library.SHARE_UNTUNED),
    ),
    "hotspot": (share(library.HOTSPOT),),
    "full-float32": (share(5 * evidence.LEAST_SHARE),),
    "layout-copies": (LEAST,),
    "copies": (share(copies.COPIES),),
    "copied-addends": (LEAST,),
    "padded-products": (LEAST,),
    "longer-profile": (f"{steadiness.LONGER_PROFILE:g} times",),
    "noise": (share(certainty.NOISE),),
    "outliers": (share(certainty.OUTLIERS), share(certainty.MANY_OUTLIERS)),
    "few-samples": (f"Fewer than {certainty.FEW_SAMPLES} ",),
    "profiler-overhead": (f"{certainty.PROFILER_SLOWDOWN:g} times",),
}
"""What the section of a kind has to say, made from the thresholds of its rule."""

SECTION = re.compile(
    r"### `(?P<kind>.+)`\n\n\*\*When\.\*\* (?P<when>(?:.+\n)+)\n```text\n(?P<example>(?:.+\n)+)```\n\n"
    r"\*\*What to do\.\*\* (?P<todo>(?:.+\n?)+)"
)


def sections(page: str) -> dict[str, dict[str, str]]:
    """The parts of each section by its kind, each on one line."""
    found = (match.groupdict() for match in SECTION.finditer(page))
    return {one["kind"]: {part: " ".join(text.split()) for part, text in one.items()} for one in found}


@cache
def printed(kind: str) -> str:
    """The sentence that the tool prints for the example of a kind."""
    examples: Mapping[str, Callable[[], Run]] = {**EXAMPLES, **FIRST_LINES}
    run = examples[kind]()
    if kind in FIRST_LINES:
        lead = headline(run)
        return lead.text if lead is not None and lead.kind == kind else ""
    return next((finding.text for finding in findings(run) if finding.kind == kind), "")


def faults(page: str) -> Iterator[str]:
    """What is wrong with a page."""
    found = sections(page)
    yield from (f"{kind} is not described" for kind in KINDS if kind not in found)
    yield from (f"{kind} is no finding" for kind in re.findall(r"^### `(.+)`", page, re.MULTILINE) if kind not in KINDS)
    for kind, section in found.items():
        if kind in KINDS and section["example"] != printed(kind):
            yield f"{kind}: the tool prints another sentence"
        yield from (f"{kind}: {word} is missing" for word in THRESHOLDS.get(kind, ()) if word not in section["when"])


def test_every_finding_is_described_with_its_threshold_and_its_sentence() -> None:
    assert list(faults(PAGE)) == []
    assert f"for more than {share(HOST_SETS_PACE)} of it" in PAGE


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("### `gaps`", "### `holes`", ["gaps is not described", "holes is no finding"]),
        ("less than 90% of the wall time", "less than 95% of the wall time", ["gaps: 90% is missing"]),
        ("148 gaps", "149 gaps", ["gaps: the tool prints another sentence"]),
        ("**What to do.** Look at the longest gap", "Look at the longest gap", ["gaps is not described"]),
    ],
)
def test_a_fault_of_the_page_is_seen(old: str, new: str, fault: list[str]) -> None:
    assert PAGE.count(old) == 1
    assert list(faults(PAGE.replace(old, new))) == fault


def test_thresholds_are_those_of_findings() -> None:
    assert set(THRESHOLDS) <= set(KINDS) and set(EXAMPLES) | set(FIRST_LINES) == set(KINDS)


def test_the_page_can_be_read() -> None:
    assert [line for line in PAGE.splitlines() if len(line) > 120] == []
