"""The record of a program's step, from the observation of a CPU program whose blocks were compiled one by one."""

from __future__ import annotations

import gzip
import json
import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import run_builder

from inductor_bench.analysis.analyse import analyse
from inductor_bench.analysis.evidence_files import EvidenceFiles
from inductor_bench.analysis.kernel_aggregation import OwnTime, StepUse
from inductor_bench.analysis.ledger import find_uses
from inductor_bench.analysis.program_step import DescribedProgram, add_notes, describe_program
from inductor_bench.analysis.statistics import find_level
from inductor_bench.records.base import Category
from inductor_bench.records.evidence import ObservedSteps, OtherSteps
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.records.run import Capture, Part, Program
from inductor_bench.store import codec
from inductor_bench.store.folder import RunFolder
from inductor_bench.store.run_files import load_evidence, read_timeline, save_evidence
from inductor_bench.workflows.modules import keep_evidence
from inductor_bench.workflows.modules.keep_evidence import draw_step, keep_captured
from inductor_bench.workflows.modules.program_run import CapturedProgram, FoundModule

DATA = Path(__file__).parent.parent / "data" / "cpu_torch2.13" / "program"


def unpacked(name: str) -> str:
    return gzip.decompress((DATA / f"{name}.gz").read_bytes()).decode()


def observation(**changes: Any) -> ObservedSteps:
    found = codec.decode(ObservedSteps, json.loads(unpacked("steps.json")))
    traces = {"trace": str(DATA / "steps.trace.json.gz"), "lines_trace": str(DATA / "lines.trace.json.gz")}
    return replace(found, **{**traces, **changes})


def found_modules() -> list[FoundModule]:
    return [FoundModule(Path(f"module_{number}.py"), unpacked(f"module_{number}.py")) for number in (0, 1)]


def described(
    folder: Path, *observations: ObservedSteps, modules: Sequence[FoundModule] | None = None
) -> DescribedProgram:
    """The step that the evidence of these processes in a RUN shows."""
    captured = CapturedProgram(tuple(found_modules() if modules is None else modules), Capture(), steps=observations)
    run = RunFolder(folder)
    evidence = keep_captured(captured, BreakdownRequest(str(DATA / "regional.py"), "script"), run)
    save_evidence(run, evidence)
    assert load_evidence(run, run_builder.cpu()) == evidence
    found = describe_program(evidence, EvidenceFiles(run))
    assert found is not None
    draw_step(found, run)
    return found


def part_of(program: Program, label: str) -> Part:
    (part,) = (part for part in program.parts if part.label == label)
    return part


def test_a_program_on_a_cpu_has_a_whole_ledger(tmp_path: Path) -> None:
    program = described(tmp_path, observation()).program
    assert program.step_time_s == statistics.median(program.step_times_s) == pytest.approx(0.018395466)
    assert program.level == (0, 28)
    assert program.step_source == "optimizer" and program.settled_after == 3 and program.steps == 45
    assert math.fsum(part.share for part in program.parts) == pytest.approx(1, abs=1e-9)
    assert math.fsum(part.time_s for part in program.parts) == pytest.approx(program.step_time_s, abs=1e-12)
    assert part_of(program, "forward").calls == part_of(program, "backward").calls == 4
    assert part_of(program, "forward").graph == "forward"
    assert part_of(program, "AdamW").calls == 1 and part_of(program, "AdamW").kind == "optimizer"
    (rank,) = program.ranks
    assert rank.profiled_steps == 3 and rank.tied_share is None and rank.parts == program.parts
    assert program.busy_time_s is not None and 0 < program.busy_time_s < program.step_time_s
    assert codec.decode(Program, codec.encode(program)) == program


def test_operators_have_the_line_that_called_them(tmp_path: Path) -> None:
    program = described(tmp_path, observation()).program
    lines = {part.label: part.source.line for part in program.parts if part.source is not None}
    assert lines["AccumulateGrad"] == 24
    assert lines["aten::cross_entropy_loss"] == lines["NllLossBackward0"] == lines["LogSoftmaxBackward0"] == 23
    assert lines["aten::_foreach_norm"] == 25
    assert part_of(program, "aten::embedding").module == part_of(program, "EmbeddingBackward0").module == "Embedding"
    sources = [part.source for part in program.parts if part.source is not None]
    assert {source.file for source in sources} == {str(DATA / "regional.py")}
    assert next(source.code for source in sources if source.line == 24) == "opt.zero_grad(); loss.backward()"


def test_without_a_trace_of_lines_places_are_unknown(tmp_path: Path) -> None:
    program = described(tmp_path, observation(lines_trace="")).program
    assert program.parts and not any(part.source or part.module for part in program.parts)
    damaged = tmp_path / "lines.json"
    damaged.write_text("[]")
    assert described(tmp_path, observation(lines_trace=str(damaged))).program == program


def test_the_run_keeps_the_trace_and_a_timeline(tmp_path: Path) -> None:
    program = described(tmp_path, observation()).program
    assert program.ranks[0].trace == "traces/step.trace.json.gz"
    assert gzip.decompress((tmp_path / "traces/step.trace.json.gz").read_bytes()).startswith(b"{")
    timeline = read_timeline(RunFolder(tmp_path))
    assert timeline is not None and timeline.time_s > 0 and {one.lane for one in timeline.intervals} == {"host"}
    assert {"forward", "backward"} <= {one.label for one in timeline.intervals if one.kind == "graph"}


def test_the_slowest_rank_speaks_for_the_program(tmp_path: Path) -> None:
    fast = observation(rank=0, pid=10, step_times_s=(0.01,) * 28, notes=("fast",))
    slow = observation(rank=1, pid=11, step_times_s=(0.02,) * 28, notes=("slow",))
    program = described(tmp_path, slow, fast).program
    assert [rank.rank for rank in program.ranks] == [0, 1]
    assert program.step_time_s == program.ranks[1].step_time_s == pytest.approx(0.02)
    assert program.parts == program.ranks[1].parts and program.notes == ("fast", "slow")
    traces = [rank.trace for rank in program.ranks]
    assert traces == ["traces/step.trace.json.gz", "traces/step-rank-1.trace.json.gz"]


def test_processes_without_a_rank_have_a_trace_each(tmp_path: Path) -> None:
    first, second = described(tmp_path, observation(pid=10), observation(pid=11)).program.ranks
    assert (first.trace, second.trace) == ("traces/step.trace.json.gz", "traces/step-11.trace.json.gz")
    assert first.parts == second.parts and all((tmp_path / str(one.trace)).is_file() for one in (first, second))


def test_a_rank_that_loaded_other_files_of_the_same_modules(tmp_path: Path) -> None:
    seen = observation(rank=1, pid=11)
    graphs = tuple(replace(graph, path=f"rank_1/{graph.path}") for graph in seen.graphs)
    alone = found_modules()
    twins = [os.path.realpath(Path("rank_1") / one.path) for one in alone]
    joined = [replace(one, twins=(twin,)) for one, twin in zip(alone, twins, strict=True)]
    both = (observation(rank=0, pid=10), replace(seen, graphs=graphs))
    first, second = described(tmp_path, *both, modules=joined).program.ranks
    assert second.parts == first.parts and {part.graph for part in second.parts if part.graph} == {
        "forward",
        "backward",
    }
    assert not any(part.graph for part in described(tmp_path, *both, modules=alone).program.ranks[1].parts)


def test_a_process_without_a_profile_has_times_only(tmp_path: Path) -> None:
    program = described(tmp_path, observation(trace="")).program
    assert program.parts == () and program.busy_time_s is None and program.step_time_s > 0
    nothing = keep_captured(
        CapturedProgram((), Capture(), steps=(observation(trace="", step_times_s=()),)),
        BreakdownRequest("a", "script"),
        RunFolder(tmp_path),
    )
    assert describe_program(nothing, EvidenceFiles(RunFolder(tmp_path))) is None


def test_an_early_answer_has_the_profiles_of_all_ranks_and_no_long_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower rank may be the one that waits; the other rank's profile tells whose host is late."""
    monkeypatch.setattr(keep_evidence, "EARLY_LINES_BYTES", 0)
    ranks = observation(rank=0, pid=1), observation(rank=1, pid=2)
    captured = CapturedProgram(tuple(found_modules()), Capture(), steps=ranks)
    evidence = keep_captured(captured, BreakdownRequest("train.py", "script"), RunFolder(tmp_path), early=True)
    assert all(one.trace and not one.operators for one in evidence.processes)
    found = describe_program(evidence, EvidenceFiles(RunFolder(tmp_path)))
    assert found is not None and all(rank.parts for rank in found.program.ranks)


def test_traces_of_several_ranks_that_take_long_to_read_wait_for_the_programs_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = observation(rank=0, pid=1), observation(rank=1, pid=2)
    size = Path(one.trace).stat().st_size
    for limit, early in ((2 * size, True), (2 * size - 1, False)):
        monkeypatch.setattr(keep_evidence, "EARLY_TRACES_BYTES", limit)
        assert keep_evidence.can_be_read_early([one, other]) is early
    assert keep_evidence.can_be_read_early([one, observation(trace="")]), "a single trace is always read"


def test_a_lost_profile_is_noted(tmp_path: Path) -> None:
    program = described(tmp_path, observation(trace=str(tmp_path / "lost.json"))).program
    assert program.parts == () and "cannot be used" in program.notes[0]


@pytest.mark.parametrize("how", ["gone", "link", "damaged"])
def test_a_step_whose_trace_is_no_longer_there_stays_as_it_was(how: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    program = described(folder.path, observation()).program
    run = replace(run_builder.cpu(), modules=(), program=None)
    evidence = load_evidence(folder, run)
    before = analyse(run, evidence, EvidenceFiles(folder))
    assert before.program is not None and before.program.predictions, "what its findings would save"
    assert replace(before.program, predictions=()) == program and before.failures == () and program.parts
    assert analyse(before, evidence, EvidenceFiles(folder)) == before
    trace = folder.traces / "step.trace.json.gz"
    if how == "link":
        trace.rename(tmp_path / "elsewhere.gz")
        trace.symlink_to(tmp_path / "elsewhere.gz")
    elif how == "damaged":
        trace.write_bytes(b"\x1f\x8b rubbish")
    else:
        trace.unlink()
    after = analyse(before, evidence, EvidenceFiles(folder))
    assert replace(after, failures=()) == before
    assert "the step is kept as it was: the profile of the steps cannot be used" in after.failures[0].message


def test_profiled_steps_stand_in_for_timed_ones(tmp_path: Path) -> None:
    program = described(tmp_path, observation(step_times_s=(), window_s=0.0)).program
    assert program.step_time_s == program.ranks[0].profiled_step_time_s
    assert "no step was timed without the profiler" in program.notes[0]
    assert math.fsum(part.share for part in program.parts) == pytest.approx(1, abs=1e-9)


def own(name: str, calls: float, time_s: float, operator: str = "") -> OwnTime:
    return OwnTime((Category.CPP, name, operator or "id"), calls, time_s, bool(operator))


def test_kernels_that_leave_no_events_get_their_own_time() -> None:
    rows = (own("seen", 2, 5e-6), own("unseen", 3, 7e-6))
    parts = [Part("graph", "forward", 4, 1e-3, 1.0, graph="forward")]
    uses = {("forward", rows[0].key): StepUse(8, 9e-6)}
    assert find_uses("forward", rows, parts, uses, estimate=True) == [
        StepUse(8, 9e-6),
        StepUse(12, pytest.approx(28e-6), True),
    ]
    assert find_uses("forward", rows, parts, uses, estimate=False) == [StepUse(8, 9e-6), StepUse(0, 0)]
    short = [replace(parts[0], time_s=18.5e-6)]
    fitted = find_uses("forward", rows, short, uses, estimate=True)
    assert [use.time_s for use in fitted] == [pytest.approx(4.5e-6), pytest.approx(14e-6)]


@pytest.mark.parametrize("unseen", [0, 1, 2])
def test_the_record_notes_only_kernels_that_the_trace_of_the_steps_does_not_show(unseen: int, tmp_path: Path) -> None:
    program = described(tmp_path, observation()).program
    said = [note for note in add_notes(program, unseen, None).notes if "does not show" in note]
    counted = {1: "does not show 1 kernel of", 2: "does not show 2 kernels of"}
    assert [counted[unseen] in note for note in said] == [True] * bool(unseen)


def test_another_kernel_of_a_library_counts_for_the_one_of_the_module() -> None:
    rows = tuple(own(name, 1, 5e-6, "aten.mm") for name in ("gemm_a", "gemm_b"))
    uses = {("forward", (Category.CPP, name, "aten.mm")): StepUse(2, 9e-6) for name in ("gemm_a", "gemm_c")}
    assert find_uses("forward", rows, (), uses, estimate=False) == [StepUse(2, 9e-6), StepUse(2, 9e-6)]
    elsewhere = {("backward", key): use for (_, key), use in uses.items()}
    assert find_uses("forward", rows, (), elsewhere, estimate=False) == [StepUse(0, 0)] * 2


def test_the_step_of_several_kinds_is_their_mean_as_the_profile_averages_them(tmp_path: Path) -> None:
    times, kinds = (
        (10e-3,) * 18 + (50e-3,) * 2,
        (OtherSteps((0,), 2, 50e-3, 20, sizes=(8,)), OtherSteps((0, 1), 18, 10e-3)),
    )
    seen = observation(step_times_s=times, step_numbers=(), steps_before_profile=1)
    assert described(tmp_path / "one", seen).program.step_time_s == 10e-3
    program = described(tmp_path / "two", replace(seen, step_kinds=kinds)).program
    assert program.step_time_s == pytest.approx(14e-3)
    both, one = program.step_kinds
    assert (one.sizes, len(one.labels), len(both.labels)) == ((8,), 1, 2), "the most frequent first, without shares"


def test_kinds_of_steps_have_the_weight_of_their_timed_steps_or_if_these_are_unknown_of_their_profiled_ones(
    tmp_path: Path,
) -> None:
    """Whatever their order and number: requests of one size may follow each other for a while."""
    times = (*[10e-3] * 12, *[20e-3] * 16, *[40e-3] * 12)
    kinds = tuple(
        OtherSteps((0,), count, time_s, 40, sizes=(size,), p90_s=time_s, profiled=profiled)
        for size, count, time_s, profiled in ((8, 12, 10e-3, 1), (16, 16, 20e-3, 2), (32, 12, 40e-3, 1))
    )
    assert find_level(times, 1).end == 12, "the first requests look like a level"
    seen = observation(step_times_s=times, step_numbers=(), steps_before_profile=1, step_kinds=kinds)
    program = described(tmp_path / "profiled", seen).program
    assert program.level == (0, 40) and program.step_time_s == pytest.approx(22.5e-3)
    assert math.fsum(part.time_s for part in program.parts) == pytest.approx(22.5e-3)
    places = [(0,), (1,), (2,)]
    known = tuple(replace(kind, profiled_places=own) for kind, own in zip(kinds, places, strict=True))
    weighed = described(tmp_path / "weighed", replace(seen, step_kinds=known))
    program, (rank,), kernels = weighed.program, weighed.program.ranks, weighed.leading.kernels
    assert rank.step_weights == pytest.approx((0.9, 1.2, 0.9), rel=1e-5) and math.fsum(rank.step_weights) == 3
    assert program.step_time_s == statistics.fmean(times) == pytest.approx(23e-3)
    assert math.fsum(part.time_s for part in program.parts) == pytest.approx(23e-3)
    assert part_of(program, "forward").calls == 4, "a call in each step is one call a step"
    assert {use.calls % 4 for use in kernels.values()} == {0}
    cut = replace(known[0], profiled_places=(3,)), *known[1:]
    assert not described(tmp_path / "cut", replace(seen, step_kinds=cut)).program.ranks[0].step_weights
    more = replace(seen, step_kinds=(*kinds[:2], replace(kinds[2], profiled=5)))
    assert described(tmp_path / "more", more).program.step_time_s == pytest.approx(31.25e-3)
    without = replace(seen, trace="", profiled_steps=0, step_kinds=tuple(replace(one, profiled=0) for one in kinds))
    unprofiled = described(tmp_path / "unprofiled", without).program
    assert unprofiled.step_time_s == pytest.approx(statistics.fmean(times)) and unprofiled.level == (0, 40)


def test_settling_steps_that_take_longer_than_profiled_ones_are_left_out(tmp_path: Path) -> None:
    """As in a program on an H200 that was profiled after its first timed step: 5.7, 0.8 and 0.4 ms, then 0.3 ms."""
    decode = DATA.parents[1] / "h200_torch2.11" / "programs" / "decode"
    seen = codec.decode(ObservedSteps, json.loads(gzip.decompress((decode / "steps.json.gz").read_bytes())))
    modules = [FoundModule(Path(seen.graphs[0].path), gzip.decompress((decode / "0.py.gz").read_bytes()).decode())]
    late = [0.75e-3 * (1 + 0.02 * math.exp(-number / 10)) for number in range(200)]
    times = (5.7e-3, 1.5e-3, 1.2e-3, 1.1e-3, 1.1e-3, *late)
    assert find_level(times, 1).end == 5, "else there is nothing to leave out"
    trace = {"trace": str(decode / "steps.trace.json.gz"), "lines_trace": ""}
    settling = replace(seen, **trace, step_times_s=times, step_numbers=(), steps_before_profile=1)
    program = described(tmp_path, settling, modules=modules).program
    assert program.step_time_s == pytest.approx(0.751e-3, rel=0.01) and program.level == (5, len(times))
    assert program.busy_time_s is not None and program.busy_time_s < program.step_time_s
    places = range(program.ranks[0].profiled_steps)
    kinds = tuple(
        OtherSteps((0,), count, time_s, 200, profiled=len(own), profiled_places=tuple(own))
        for count, time_s, own in ((50, 1e-3, places[:1]), (150, 2e-3, places[1:]))
    )
    mixed = described(tmp_path, replace(settling, step_kinds=kinds), modules=modules)
    (rank,), queue = mixed.program.ranks, mixed.leading.queue
    assert queue is not None and queue.profiled.queue.weights == rank.step_weights and len(rank.step_weights) > 1
    assert mixed.program.step_time_s == pytest.approx(statistics.fmean(times))
    assert math.fsum(part.time_s for part in mixed.program.parts) == pytest.approx(mixed.program.step_time_s)
    for first_s, level in ((0.78e-3, (0, 50)), (1.2e-3, (50, 350))):
        later = replace(settling, step_times_s=(first_s,) * 50 + (3e-3,) * 300)
        assert described(tmp_path, later, modules=modules).program.level == level, "only the host's pace is left out"
