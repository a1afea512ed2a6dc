"""What is said of a program whose GPU others used while its steps were measured, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import step_runs

from inductor_bench.analysis.comparison_run import compare_runs
from inductor_bench.analysis.findings.first_line import write_first_line
from inductor_bench.analysis.findings.next_commands import next_commands
from inductor_bench.analysis.findings.rule_table import list_findings
from inductor_bench.analysis.optimization.step_facts import StepFacts
from inductor_bench.analysis.roofline import describe_other_work, find_other_work
from inductor_bench.analysis.step_costs import host_sets_pace
from inductor_bench.records.base import OtherProcess
from inductor_bench.records.comparison import UNDECIDED
from inductor_bench.records.evidence import GpuSharing
from inductor_bench.records.run import IDLE, QUEUED, OtherWork, Part, RankSteps, Run
from inductor_bench.report.document import Document
from inductor_bench.report.formats import DEFAULT_VIEW
from inductor_bench.report.markdown import render_markdown
from inductor_bench.report.run.run_document import make_answer_document, run_document
from inductor_bench.report.run.run_summary import run_summary

GIB = 1 << 30
PYTHON = OtherProcess(1234, "python", 9 * GIB, 0.35)
SECOND, UNKNOWN = replace(PYTHON, pid=7, busy=0.9), replace(PYTHON, busy=None)
STEPS = RankSteps(
    *(None, 1, "cuda", (10e-3,) * 9, 10e-3, 5e-3),
    parts=(Part(IDLE, QUEUED, 9, 0.5e-3, 0.05),),
)


@pytest.mark.parametrize(
    ("sharing", "found"),
    [
        (None, None),
        (GpuSharing(), None),
        (GpuSharing((PYTHON,), 0.5, 0.9), OtherWork(0.35, (PYTHON,))),
        (GpuSharing((SECOND, PYTHON)), OtherWork(1.0, (SECOND, PYTHON))),
        # it only holds memory, or draws a little
        (GpuSharing((replace(PYTHON, busy=0.0),), 0.5, 0.55), None),
        (GpuSharing((replace(PYTHON, busy=0.04),), 0.5, 0.55), None),
        # the driver names nobody: the GPU is busy for 55% of the time with this program, gaps of its queue included
        (GpuSharing(busy=0.95, held_bytes=9 * GIB), OtherWork(pytest.approx(0.4))),
        (GpuSharing(busy=0.95, held_bytes=GIB), None),
        (GpuSharing(busy=0.75, held_bytes=9 * GIB), None),
        (GpuSharing(own_busy=0.9, busy=0.95, held_bytes=9 * GIB), None),
        # it names somebody, and not what he does
        (GpuSharing((UNKNOWN,), busy=0.9), OtherWork(pytest.approx(0.35), (UNKNOWN,))),
        (GpuSharing((UNKNOWN,), busy=0.6), None),
    ],
)
def test_what_the_driver_says_decides_whether_others_used_the_gpu(
    sharing: GpuSharing | None, found: OtherWork | None
) -> None:
    assert find_other_work(STEPS, sharing, alone=True) == found


def test_unnamed_work_is_not_that_of_others_if_it_may_be_that_of_another_rank_or_nothing_was_profiled() -> None:
    hidden = GpuSharing(busy=0.95, held_bytes=9 * GIB)
    assert find_other_work(STEPS, hidden, alone=False) is None
    assert find_other_work(replace(STEPS, busy_time_s=None), hidden, alone=True) is None
    assert find_other_work(STEPS, GpuSharing((PYTHON,)), alone=False) is not None


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (OtherWork(0.4), "another process used the GPU during its steps (40% of the time)"),
        (OtherWork(0.4, (OtherProcess(7),)), "another process used the GPU during its steps (pid 7, 40% of the time)"),
        (
            OtherWork(1.0, tuple(OtherProcess(pid, "python") for pid in range(11, 16))),
            "5 other processes used the GPU during its steps (python, pid 11; python, pid 12; python, pid 13; 2 more; "
            "100% of the time)",
        ),
    ],
)
def test_who_used_it_is_named_as_far_as_it_is_known(work: OtherWork, words: str) -> None:
    assert describe_other_work(work, "its steps") == words


def test_that_others_used_the_gpu_comes_first_and_nothing_is_advised_against_idle_time() -> None:
    alone, shared = step_runs.host_paced(), step_runs.shared()
    silent = {one.kind for one in list_findings(alone)} - {one.kind for one in list_findings(shared)}
    assert silent >= {"cuda-graphs-unused", "data-loading"} and host_sets_pace(alone)
    first, *others = list_findings(shared)
    assert (first.kind, first.level) == ("shared-gpu", "caution") and "python, pid 1234, 35% of the time" in first.text
    assert not any("host sets the pace" in one.text or "launch gaps" in one.text for one in others)
    assert not any(one.assumed.idle or one.assumed.graphs or one.assumed.gaps for one in others)


def test_the_first_line_says_neither_who_sets_the_pace_nor_what_could_be_saved() -> None:
    lead = write_first_line(step_runs.shared())
    assert lead is not None and lead.text.endswith(
        "another program uses the same GPU; this program keeps it busy 76% of the time: backward 41%, forward 21%, "
        "SGD 14%, idle or used by others 24% (4.80 ms)"
    )
    (again,) = next_commands(step_runs.shared(), "RUN")
    assert again.command == "inductor-bench breakdown host-paced.py"


def test_a_step_that_was_not_profiled_says_it_too() -> None:
    run = step_runs.shared()
    assert run.program is not None
    bare = replace(run, program=replace(run.program, parts=()))
    assert list_findings(bare)[0].kind == "shared-gpu"


@pytest.mark.parametrize("document", [run_document, make_answer_document])
def test_the_screen_says_it_once_right_below_the_first_line(document: Callable[[Run], Document]) -> None:
    text = " ".join(render_markdown(document(step_runs.shared())).split())
    lead, _, rest = text.partition("idle or used by others 24% (4.80 ms)")
    assert lead and rest.lstrip(".* ").startswith("Another process used the GPU during these steps (python, pid 1234")
    assert text.count("pid 1234") == 1
    assert "pid 1234" not in render_markdown(document(step_runs.host_paced()))


def test_the_summary_begins_with_it() -> None:
    first, *others = run_summary(step_runs.shared(), replace(DEFAULT_VIEW, brief=True)).findings
    assert first.kind == "shared-gpu" and others


def test_the_menu_of_optimize_keeps_its_bounds() -> None:
    facts = StepFacts(step_runs.shared())
    assert facts.predicted("cuda-graphs-unused") is None and facts.replaying == facts.launching


def test_a_comparison_with_a_run_on_a_shared_gpu_decides_nothing() -> None:
    a, b = step_runs.host_paced(), step_runs.shared()
    assert b.program is not None
    b = replace(b, program=replace(b.program, step_time_s=2 * b.program.step_time_s))
    found = compare_runs([a], [b], ("A", "B"))
    assert found.verdict == UNDECIDED and "other processes used the GPU" in found.step.noise_source
    assert "another process used the GPU during the steps of B (python, pid 1234, 35% of the time)" in found.notes
