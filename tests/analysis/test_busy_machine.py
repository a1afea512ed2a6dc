"""Whether a summary says first that its figures do not count, from records alone; and what a worker measures for it."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import run_builder as build
import step_runs
from inline import change
from printed import run_markdown

from inductor_bench.analysis.findings.doubts import explain_busy_kernels
from inductor_bench.analysis.findings.finding import ADVICE
from inductor_bench.analysis.findings.first_line import write_first_line
from inductor_bench.analysis.findings.next_commands import next_commands
from inductor_bench.analysis.findings.rule_table import list_findings
from inductor_bench.messages.observed import ComparedStep, ComparedSteps, Pins
from inductor_bench.records.base import OtherProcess
from inductor_bench.records.code import MachineLoad
from inductor_bench.records.module import ModuleRecord
from inductor_bench.records.retune import Verification
from inductor_bench.records.run import OtherWork, Run
from inductor_bench.report.document import Document
from inductor_bench.report.document_summary import render_brief, summarise_document
from inductor_bench.report.run.proof_document import describe_busy_machine, make_proof_section
from inductor_bench.report.terminal import render_text
from inductor_bench.store.codec import decode, encode
from inductor_bench.worker.capture.pin_comparison import is_tuned
from inductor_bench.worker.device import machine
from inductor_bench.worker.device.machine import LoadWatch, load_since, read_counters
from inductor_bench.workflows.pins import PinnedRun
from inductor_bench.workflows.proof import describe_steps

BUSY = MachineLoad(60, 2, 4.1, 0.5, cpu_time_s=0.4, waited_s=0.6, stolen_s=0.0, switches=312)
QUIET = MachineLoad(200, 2, 7.8, 0.5, cpu_time_s=1.84, waited_s=0.16, stolen_s=0.0, switches=34)
STEADY = tuple(4e-3 + number % 3 * 1e-5 for number in range(20))
COMMAND = "inductor-bench breakdown small.py"


def one_graph(device: str = "cpu", **fields: object) -> Run:
    """A graph whose kernels take 3.9 of 4 ms, with these fields instead."""
    first = (build.cpu() if device == "cpu" else build.densenet()).modules[0]
    usual = {"wall_time_s": 4e-3, "wall_samples_s": STEADY, "busy_time_s": 3.9e-3, "busy_share": 0.97}
    module: ModuleRecord = change(first, **(usual | fields))
    return replace(build.cpu(), modules=(module,), command=COMMAND)


def first_line(run: Run) -> str:
    lead = write_first_line(run)
    assert lead is not None
    return lead.text if lead.kind == "busy-machine" else ""


def test_a_busy_machine_is_said_first_with_its_figures_and_what_to_do() -> None:
    run = one_graph(wall_load=BUSY, profile_load=QUIET)
    assert first_line(run) == (
        "these figures do not count: the machine was busy (load 4.1 on 2 cores, waiting for a core 60% of the time, "
        f"312 involuntary context switches in 60 runs). Measure again on an idle machine ({COMMAND})"
    )
    assert "**These figures do not count: the machine was busy" in run_markdown(run)


def test_kernels_far_longer_than_the_wall_time_and_scattered_walls_need_no_known_cause() -> None:
    assert "50.0 ms of kernels in 0.800 ms of wall time" in first_line(one_graph(wall_time_s=8e-4, busy_time_s=50e-3))
    backward = {"wall_time_s": 62.3e-3, "busy_time_s": 112e-3, "busy_share": 1.0}
    assert "112 ms of kernels in 62.3 ms of wall time" in first_line(one_graph(**backward))
    scattered = tuple(1e-3 * (1 + number % 2) for number in range(20))
    assert "wall times from 1.00 ms to 2.00 ms (middle half)" in first_line(one_graph(wall_samples_s=scattered))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"wall_load": QUIET, "profile_load": QUIET},  # a load of 7.8 by others that gave way
        {"wall_load": replace(BUSY, switches=40)},  # two runs of three had no delay: their median is right
        {"wall_load": replace(BUSY, waited_s=0.02)},  # switches that cost nothing, as in long runs
        {"wall_load": replace(BUSY, waited_s=None, stolen_s=None)},  # a system that does not tell
        {"profile_load": BUSY},  # the kernels took no longer than the undisturbed runs
        {"wall_time_s": 3e-3, "busy_share": 1.0},  # a profiler's overhead
        {"wall_time_s": 1e-4, "busy_time_s": 3e-4},  # of kernels that last about as long as a mark of the profiler
        {"wall_samples_s": (4e-3, 5e-3) * 10},
    ],
)
def test_figures_that_are_about_right_are_not_disowned(fields: dict[str, object]) -> None:
    assert not first_line(one_graph(**fields))


def advice(run: Run) -> set[str]:
    return {finding.kind for finding in list_findings(run) if finding.level == ADVICE}


def test_no_advice_is_given_from_figures_that_do_not_count() -> None:
    quiet, busy = one_graph(busy_share=0.5), one_graph(busy_share=0.5, wall_load=BUSY)
    assert advice(quiet) == {"host-share"} and advice(busy) == set()
    assert COMMAND in first_line(busy) and COMMAND not in {one.command for one in next_commands(quiet, "runs/small")}
    assert [one.command for one in next_commands(busy, "runs/small")] == [COMMAND]


def timed(load: MachineLoad | None, fastest: float = 1.0, **fields: object) -> Run:
    """A CPU program of 9.5 ms a step whose steps were timed under a load; ``fields`` are those of its modules."""
    run = step_runs.cpu()
    assert run.program is not None
    times = (fastest * run.program.step_time_s, *run.program.step_times_s[1:])
    ranks = tuple(replace(rank, load=load, step_times_s=times) for rank in run.program.ranks)
    modules = tuple(change(module, **fields) for module in run.modules)
    program = replace(run.program, ranks=ranks, step_times_s=times)
    return replace(run, program=program, modules=modules, command=COMMAND)


def test_steps_that_others_delayed_are_disowned_first_and_next_builds_nothing_on_them() -> None:
    others = replace(BUSY, time_s=0.5, others_s=0.62)
    assert "eager-optimizer" in advice(timed(replace(QUIET, others_s=0.02)))
    busy = timed(others, 0.11)
    assert first_line(busy) == (
        "these figures do not count: while the steps were timed, other processes used 62% of the time of 2 cores, and "
        "the program waited for a core 60% of its time. 9.50 ms a step (optimizer "
        f"steps; 20 timed), the fastest one 1.04 ms. Measure again on an idle machine ({COMMAND}), or with "
        "OMP_NUM_THREADS=1: threads that share an operator wait for each other"
    )
    single = replace(busy, environment=change(busy.environment, threads=1))
    assert first_line(single).endswith(f"Measure again on an idle machine ({COMMAND})"), "one thread has a core"
    assert advice(busy) == set() and "busy-step" not in {one.kind for one in list_findings(busy)}
    assert [one.command for one in next_commands(busy, "runs/small")] == [COMMAND]
    text = run_markdown(busy)
    assert "inductor-bench optimize" not in text and "--sort gain" not in text


@pytest.mark.parametrize(("used_s", "is_said"), [(0.02, True), (0.9, False)])
def test_one_thread_is_a_caution_only_if_others_left_the_cores_idle(used_s: float, *, is_said: bool) -> None:
    run = timed(replace(QUIET, time_s=1.0, others_s=used_s), threads=1)
    assert ("threads" in {one.kind for one in list_findings(run)}) == is_said


@pytest.mark.parametrize(
    "load",
    [
        replace(QUIET, others_s=0.9),  # others had cores that the program did not need
        replace(BUSY, others_s=0.01),  # it waited for its own processes, as those of a data loader
    ],
)
def test_steps_that_others_did_not_delay_count_whatever_the_modules_own_runs_had(load: MachineLoad) -> None:
    run = timed(load, 0.11, wall_load=BUSY)
    assert not first_line(run)
    (said,) = (one.text for one in list_findings(run) if one.kind == "busy-step")
    assert "while the step was timed, the program waited for a core " in said


def test_without_the_load_of_the_window_steps_that_scatter_beside_a_busy_machine_do_not_count() -> None:
    assert "right after the steps, when the modules ran by themselves. 9.50 ms a step (" in (
        first_line(timed(None, 0.11, wall_load=BUSY))
    )
    assert not first_line(timed(None, 0.9, wall_load=BUSY)) and not first_line(timed(None, 0.11, wall_load=QUIET))
    assert "may take less on an idle machine" in next(
        one.text for one in list_findings(timed(None, 0.9, wall_load=BUSY)) if one.kind == "busy-step"
    )


def test_on_a_gpu_advice_about_kernels_stands_beside_a_busy_host() -> None:
    quiet, busy = one_graph("cuda", busy_share=0.8), one_graph("cuda", busy_share=0.8, wall_load=BUSY)
    waiting = advice(quiet) & {"gaps", "cuda-graph"}
    assert waiting and advice(quiet) - waiting
    assert advice(busy) == advice(quiet) - waiting


def test_time_that_the_hypervisor_took_is_a_delay_as_well() -> None:
    assert first_line(one_graph(wall_load=replace(BUSY, waited_s=0.0, stolen_s=0.6)))


def test_kernels_beside_a_delay_are_judged_by_the_wall_time() -> None:
    slow = {"wall_time_s": 3e-3, "busy_share": 1.0, "profile_load": BUSY}
    assert "3.90 ms of kernels in 3.00 ms of wall time" in first_line(one_graph(**slow))


def test_on_a_gpu_a_busy_host_disturbs_wall_times_alone_and_only_if_the_gpu_waits() -> None:
    said = first_line(one_graph("cuda", wall_load=BUSY, busy_share=0.4))
    assert said.startswith("these wall times and idle times do not count (kernel times do): ")
    assert not first_line(one_graph("cuda", wall_load=BUSY, busy_share=0.95))
    assert not first_line(one_graph("cuda", wall_time_s=8e-4, busy_time_s=50e-3, busy_share=1.0, profile_load=BUSY))


def test_a_disturbed_graph_that_takes_little_of_the_program_does_not_lead() -> None:
    small = replace(one_graph(wall_load=BUSY).modules[0], program_calls=1)
    large = replace(one_graph().modules[0], program_calls=50, slug="backward", label="backward")
    run = one_graph()
    assert not first_line(replace(run, modules=(small, large)))
    said = first_line(replace(run, modules=(replace(small, program_calls=90), large)))
    assert said.startswith("forward: these figures do not count")


def test_the_load_is_kept_in_the_record_and_an_old_record_has_none() -> None:
    run = one_graph(wall_load=BUSY)
    data = encode(run)
    assert decode(Run, data) == run
    for module in data["modules"]:
        del module["wall_load"], module["profile_load"]
    assert decode(Run, data).modules[0].loads.wall_load is None


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (BUSY, "The machine was busy (load 4.1 on 2 cores, waiting for a core 60% of the time, 312 involuntary"),
        (QUIET, ""),
        (replace(BUSY, switches=40), ""),
        (None, ""),
    ],
)
def test_compared_steps_beside_other_work_say_so_by_the_measure_of_a_breakdown(
    load: MachineLoad | None, said: str
) -> None:
    steps = tuple(ComparedStep(is_tuned(place), 4e-3) for place in range(40))
    found = describe_steps(
        PinnedRun(Pins("compare", "", "", None), {}, {}), ComparedSteps(1, "cpu", "done", steps=steps, load=load), ()
    )
    words = describe_busy_machine(found)
    assert words.startswith(said) and bool(words) == bool(said)
    assert not words or words.endswith("context switches in 60 steps). Compare again when the machine is idle.")
    assert decode(Verification, encode(found)) == found, "and a record keeps it"
    document = Document("", blocks=(make_proof_section(found, 10),))
    for shown in (render_text(document, 100), render_brief(document), summarise_document(document).headline):
        assert " ".join(shown.split()).count("busy") == bool(said), "also the short answer"


def test_whole_processes_that_wait_for_their_own_processes_are_not_beside_other_work() -> None:
    waits = replace(BUSY, time_s=0.5, others_s=0.01)
    found = Verification("processes", 0.0)
    assert not describe_busy_machine(replace(found, load=waits))
    for switches in (0, 312):  # which tell nothing more if it is known what other processes did
        assert describe_busy_machine(replace(found, load=replace(waits, others_s=0.62, switches=switches)))


def test_the_times_of_kernels_beside_other_work_are_doubted_in_one_sentence() -> None:
    busy = (
        "these times may be too long: the machine was busy (load 4.1 on 2 cores, waiting for a core 60% of the time, "
    )
    assert explain_busy_kernels(one_graph(wall_load=BUSY)) == f"{busy}312 involuntary context switches in 60 runs)"
    in_step = explain_busy_kernels(timed(replace(BUSY, time_s=0.5, others_s=0.62)))
    assert in_step.startswith("these times may be too long: while the steps were timed, other processes used 62% of")
    assert ". " not in in_step and in_step.endswith("waited for a core 60% of its time")
    for run in (one_graph(wall_load=QUIET), timed(QUIET), one_graph("cuda", wall_load=BUSY, busy_share=0.4)):
        assert not explain_busy_kernels(run), "a GPU's kernels take as long beside a busy processor"
    used = step_runs.transformer()
    assert used.program is not None and not explain_busy_kernels(used)
    shared = replace(used, program=replace(used.program, others=OtherWork(0.35, (OtherProcess(7, "python", 0, 0.35),))))
    assert explain_busy_kernels(shared) == (
        "these times may be too long: another process used the GPU during the steps (python, pid 7, 35% of the time)"
    )


def test_a_worker_counts_what_its_own_runs_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INDUCTOR_BENCH_ASSUME_IDLE")
    before = read_counters()
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    load = load_since(before, 7)
    assert load.runs == 7 and load.cores >= 1 and load.time_s >= 0.05 and load.cpu_time_s > 0
    assert load.switches >= 0 and 0 <= load.delayed_share < 1 and load.others_s is None
    monkeypatch.setenv("INDUCTOR_BENCH_ASSUME_IDLE", "1")
    load = load_since(read_counters(), 7)
    assert (load.delayed_share, load.others_s) == (0, 0), "on a machine that is always shared, nobody asks"


SPIN = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass"


@pytest.mark.skipif(not Path("/proc/stat").is_file(), reason="the counters are those of Linux")
def test_the_window_of_the_steps_counts_what_others_ran_and_not_its_own_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("INDUCTOR_BENCH_ASSUME_IDLE")
    watch = LoadWatch()
    watch.begin(alone=True)
    watch.end(3)
    assert watch.found is not None and watch.found.runs == 3 and watch.found.others_s is not None
    with monkeypatch.context() as patched:
        patched.setattr(machine, "_read_processors_s", lambda columns: 100.0)
        before = read_counters(with_others=True).others_s
        subprocess.run([sys.executable, "-c", SPIN], check=True)
        after = read_counters(with_others=True).others_s
    assert before is not None and after is not None and after <= before - 0.4, "a process below this one is no other"
    watch = LoadWatch()
    watch.begin(alone=False)
    watch.end(1)
    assert watch.found is not None and watch.found.others_s is None, "other ranks are no others"
    watch.forget()
    assert watch.found is None
