"""``docs/findings.md``: every kind of finding, with its threshold and a sentence as the tool prints it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import pytest
from conftest import ROOT
from finding_examples import EXAMPLES, FIRST_LINES

from inductor_bench.analysis import gpu_sharing, roofline
from inductor_bench.analysis import statistics as levels
from inductor_bench.analysis.findings import (
    compile_findings,
    doubts,
    finding,
    kernel_findings,
    product_findings,
    program_findings,
    step_findings,
)
from inductor_bench.analysis.findings import finding as waits
from inductor_bench.analysis.findings.next_commands import headline
from inductor_bench.analysis.findings.rule_table import RULES, STEP_RULES, findings
from inductor_bench.analysis.step_costs import EQUAL_STEPS, FAR_OFF, HOST_SETS_PACE, SLOWED
from inductor_bench.records import evidence
from inductor_bench.records.run import Run

PAGE = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
KINDS = [*FIRST_LINES, *(kind for rule in (*STEP_RULES, *RULES) for kind in rule.kinds)]


def share(value: float) -> str:
    """A threshold as the page writes it: ``70%``, ``0.05%``."""
    return f"{100 * value:g}%"


def microseconds(value: float) -> str:
    return f"{1e6 * value:g} µs"


LEAST, LEAST_GAIN = share(finding.LEAST_SHARE), share(finding.LEAST_GAIN)
THRESHOLDS: dict[str, tuple[str, ...]] = {
    "busy-machine": (
        *(share(doubts.DELAYED), share(doubts.OTHERS), f"{doubts.FASTEST} times"),
        *(f"{doubts.SWITCHED} times", share(doubts.SCATTER)),
    ),
    "host-pace": (LEAST,),
    "synchronisations": (LEAST,),
    "data-loading": (LEAST, share(step_findings.UNSURE_SHARE), f"{SLOWED:g} times"),
    "cpu-operators": (LEAST, share(step_findings.UNSURE_SHARE), f"{SLOWED:g} times"),
    "host-waits": (LEAST,),
    "pageable-copies": (LEAST,),
    "garbage-collection": (LEAST,),
    "host-python": (share(step_findings.PYTHON_SHARE),),
    "allocations": (LEAST,),
    "small-graphs": (*(f"{program_findings.MANY_CALLS} times", microseconds(program_findings.SHORT_CALL_S), LEAST),),
    "slow-guards": (share(compile_findings.GUARDS_SHARE), f"{SLOWED:g} times"),
    "kernel-gaps": (share(program_findings.GAPS), microseconds(program_findings.LONGEST_GAP_S)),
    "unsteady-steps": (
        *(share(levels.LEAST_CHANGE), share(levels.APART), share(program_findings.DIFFERENT_KINDS)),
        f"2 to {step_findings.MOST_KINDS} kinds",
        *(share(step_findings.DRIFT), share(step_findings.SPREAD)),
    ),
    "other-steps": (share(step_findings.OFTEN),),
    "busy-step": (share(doubts.DELAYED),),
    "shared-gpu": (share(evidence.OTHERS_BUSY), share(gpu_sharing.UNNAMED_BUSY)),
    "beyond-peaks": (share(roofline.BEYOND - 1), share(roofline.BEYOND_TIME)),
    "few-steps": (f"Fewer than {step_findings.FEW_STEPS} steps",),
    "untied": (share(step_findings.UNTIED),),
    "alone-less": (share(FAR_OFF), LEAST),
    "alone-more": (share(FAR_OFF), LEAST),
    "cuda-graphs-unused": (LEAST, share(waits.GRAPH_GAIN)),
    "replay-inputs": (LEAST,),
    "eager-optimizer": (share(compile_findings.WORTH_COMPILING),),
    "eager-operators": (share(compile_findings.WORTH_COMPILING),),
    "collectives": (LEAST, share(step_findings.EXPOSED)),
    "uneven-ranks": (share(step_findings.UNEVEN),),
    "compile-time": (f"{program_findings.LEAST_COMPILATION_S:g} second", share(program_findings.LEAST_PHASE)),
    "against-eager": (share(EQUAL_STEPS),),
    "first-step": (f"{step_findings.COLD:g} times",),
    "graph-breaks": (LEAST,),
    "launch-bound": (
        *(share(waits.LAUNCH_BOUND), microseconds(waits.LONG_WAIT_S)),
        f"at least {compile_findings.STORM} times",
    ),
    "host-bound": (share(waits.LAUNCH_BOUND), microseconds(waits.LONG_WAIT_S)),
    "cuda-graph": (share(waits.LAUNCH_BOUND), share(waits.GRAPH_GAIN), LEAST),
    "gaps": (share(waits.GAPS), LEAST),
    "host-share": (share(waits.HOST_SHARE),),
    "below-memory-limit": (share(finding.FAR_FROM_ROOF), LEAST, LEAST_GAIN),
    "few-blocks": (share(kernel_findings.NARROW), microseconds(finding.SHORT_S), LEAST),
    "short-kernels": ("20 launches", microseconds(finding.SHORT_S), share(finding.SHORT_TIME)),
    "spills": (LEAST,),
    "unsteady-kernels": (share(kernel_findings.UNSTEADY), LEAST, share(finding.SHORT_TIME)),
    "other": (share(finding.LEAST_SHARE / 2),),
    "library-below-limit": (
        *(share(finding.FAR_FROM_ROOF / 2), LEAST_GAIN, share(2 * finding.LEAST_SHARE)),
        share(kernel_findings.SHARE_UNTUNED),
    ),
    "hotspot": (share(kernel_findings.HOTSPOT),),
    "full-float32": (share(5 * finding.LEAST_SHARE),),
    "layout-copies": (LEAST,),
    "unaligned-products": (share(product_findings.SLOWER), LEAST),
    "small-products": (
        *(f"at most {product_findings.SMALL}", share(product_findings.SMALL_TIME)),
        *(f"at least {product_findings.SEVERAL_CALLS} times", share(product_findings.MOSTLY_SMALL)),
    ),
    "float32-island": (share(product_findings.ISLAND),),
    "attention-below-limit": (
        *(share(product_findings.SLOW), share(2 * finding.LEAST_SHARE), share(product_findings.USUALLY_SLOW)),
        f"heads of {product_findings.USUAL_HEADS} or more",
    ),
    "decomposed-attention": (share(product_findings.DECOMPOSED),),
    "copies": (share(kernel_findings.COPIES),),
    "copied-addends": (LEAST,),
    "padded-products": (LEAST,),
    "longer-profile": (f"{step_findings.LONGER_PROFILE:g} times",),
    "noise": (share(doubts.NOISE),),
    "outliers": (share(doubts.OUTLIERS), share(doubts.MANY_OUTLIERS)),
    "few-samples": (f"Fewer than {doubts.FEW_SAMPLES} ",),
    "profiler-overhead": (f"{doubts.PROFILER_SLOWDOWN:g} times",),
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
            yield f"{kind}: the tool prints: {printed(kind)}"
        yield from (f"{kind}: {word} is missing" for word in THRESHOLDS.get(kind, ()) if word not in section["when"])


def test_every_finding_is_described_with_its_threshold_and_its_sentence() -> None:
    assert list(faults(PAGE)) == []
    assert f"for more than {share(HOST_SETS_PACE)} of it" in PAGE


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


def test_thresholds_are_those_of_findings() -> None:
    assert set(THRESHOLDS) <= set(KINDS) and set(EXAMPLES) | set(FIRST_LINES) == set(KINDS)


def test_the_page_can_be_read() -> None:
    assert [line for line in PAGE.splitlines() if len(line) > 120] == []
