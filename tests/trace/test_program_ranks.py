"""DDP on two H100s and FSDP2 on two H200s, as recorded: owners, parts, ties, collectives, the rank that is awaited."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import run_builder as build
from recorded_ranks import DDP, FSDP, Training, count_by_hand, rank_of

from inductor_bench.analysis.findings.rule_table import list_findings
from inductor_bench.analysis.step_costs import compute_exposed_s, compute_work_s, find_idle_s, find_pace_setter
from inductor_bench.records.run import COLLECTIVE, COPY, GRAPH, KINDS, OPTIMIZER, OPTIMIZER_STEPS, Program
from inductor_bench.report.document import Document
from inductor_bench.report.run.step_document import rank_section
from inductor_bench.report.terminal import render_text

TRAININGS = [pytest.param(DDP, id="ddp"), pytest.param(FSDP, id="fsdp")]
RANKS = (0, 1)


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("rank", RANKS)
def test_every_device_event_of_a_rank_has_a_part_and_the_parts_are_the_step(training: Training, rank: int) -> None:
    found = rank_of(training, rank)
    assert [work.event for work in found.works.works] == list(range(len(found.works.works)))
    counted = [work for work in found.works.works if found.works.window.launched(work.launch_start_s)]
    assert (
        counted
        and {work.kind for work in counted} <= set(KINDS)
        and all(w.label or w.graph is not None for w in counted)
    )
    parts = found.steps.parts
    assert sum(part.launches for part in parts) * found.steps.profiled_steps == pytest.approx(len(counted))
    assert math.fsum(part.share for part in parts) == pytest.approx(1, abs=1e-9)
    step_s = compute_work_s(found.steps) + compute_exposed_s(found.steps) + find_idle_s(found.steps)
    assert step_s == pytest.approx(found.steps.step_time_s), "work, exposed and idle add up to the step"


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("rank", RANKS)
def test_the_graphs_of_a_rank_are_tied(training: Training, rank: int) -> None:
    found = rank_of(training, rank).steps
    assert found.tied_share is not None and found.tied_share >= 0.995
    graphs = {part.label: part.calls for part in found.parts if part.kind == GRAPH}
    assert graphs == dict.fromkeys(training.graphs, 12), "each of 12 blocks calls each graph once"
    assert [(part.label, part.calls) for part in found.parts if part.kind == OPTIMIZER] == [("AdamW", 1)]


@pytest.mark.parametrize("training", TRAININGS)
def test_one_profiled_module_ties_the_kernels_of_all_ranks(training: Training) -> None:
    assert rank_of(training, 1, text=0).steps == rank_of(training, 1).steps


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("rank", RANKS)
def test_collectives_are_exposed_and_hidden_as_their_intervals_are(training: Training, rank: int) -> None:
    steps, seen = rank_of(training, rank).steps, count_by_hand(training, rank)
    collectives = [part for part in steps.parts if part.kind == COLLECTIVE]
    assert {part.label for part in collectives} == (
        {"AllReduce"} if training is DDP else {"AllGather", "ReduceScatter"}
    )
    assert sum(part.calls for part in collectives) == seen.collectives
    assert steps.profiled_step_time_s == pytest.approx(seen.profiled_s, rel=1e-6)
    hidden = sum(part.hidden_s for part in collectives)
    assert hidden == pytest.approx(seen.collectives_s - seen.exposed_s, rel=0.01, abs=20e-6)
    copies = sum(part.time_s for part in steps.parts if part.kind == COPY)
    assert compute_work_s(steps) - copies == pytest.approx(seen.work_s, rel=1e-3)
    cut_s = max(0.0, seen.busy_s - steps.step_time_s)
    assert compute_exposed_s(steps) == pytest.approx(seen.exposed_s - cut_s, rel=0.01), (
        "what the profiler adds to the wait is cut"
    )
    assert (steps.busy_time_s or 0) == pytest.approx(min(seen.busy_s, steps.step_time_s), rel=1e-6)


@pytest.mark.parametrize("training", TRAININGS)
def test_the_rank_that_the_other_waits_for_sets_the_pace(training: Training) -> None:
    first, second = (rank_of(training, rank).steps for rank in RANKS)
    assert first.step_time_s == pytest.approx(second.step_time_s, rel=0.01)
    assert find_pace_setter([first, second]) is first and find_pace_setter([second, first]) is first
    assert compute_exposed_s(first) < 0.1 * first.step_time_s and compute_exposed_s(second) > 0.5 * second.step_time_s
    assert compute_work_s(first) < compute_work_s(second) < 1.3 * compute_work_s(first), (
        "kernels beside a waiting collective take longer"
    )
    assert find_idle_s(first) > 0.5 * first.step_time_s and find_idle_s(second) == 0


@pytest.mark.parametrize("training", TRAININGS)
def test_the_report_names_the_rank_that_is_awaited_and_does_not_blame_its_device(training: Training) -> None:
    first, second = (rank_of(training, rank).steps for rank in RANKS)
    program = Program(first.step_time_s, first.step_times_s, OPTIMIZER_STEPS, parts=first.parts, ranks=(first, second))
    run = replace(build.run("training", [], peaks=build.H200), program=program)
    (uneven,) = (finding.text for finding in list_findings(run) if finding.kind == "uneven-ranks")
    assert uneven.startswith("rank 1 waits for rank 0: ") and "the host of rank 0 is late, not its device" in uneven
    copied = [finding.text for finding in list_findings(run) if finding.kind == "gradient-copies"]
    assert [re.findall(r"in (\d+) copies", text) for text in copied] == ([["149"]] if training is DDP else [])
    text = render_text(Document("", blocks=(rank_section(run),)), 100)
    assert text.startswith("2 ranks; rank 0 sets the pace")
    assert "100%" not in text, "a rank that waits is not busy"
