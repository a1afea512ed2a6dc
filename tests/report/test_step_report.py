"""The report of a program's step: the ledger comes first, fits, adds up, and is the same in every format."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import run_builder as build
import step_runs
from printed import run_markdown, run_page, run_screen

from inductor_bench.analysis.batch_aggregation import summarize_model
from inductor_bench.analysis.findings.step_phrases import name_kinds
from inductor_bench.analysis.host_time import make_host_trace
from inductor_bench.records.base import Category, Failure
from inductor_bench.records.batch_record import DONE, OUTSIDE, Batch, BatchModel, BatchResults, ModelResult
from inductor_bench.records.code import SourceLine
from inductor_bench.records.evidence import (
    OWN,
    TORCH,
    HostSamples,
    HostTraceFrame,
    HostTraceProfile,
    SampledFrame,
    SampledStack,
)
from inductor_bench.records.request import ModelRequest
from inductor_bench.records.run import (
    EAGER,
    HOST_LANE,
    PYTHON,
    SLEEPING,
    HostStretch,
    HostWork,
    Interval,
    Part,
    Program,
    Run,
    StepKind,
    Timeline,
)
from inductor_bench.report import names, palette
from inductor_bench.report.batch.batch_document import (
    describe_leading_family,
    describe_progress,
    describe_wall_time,
    list_model_notes,
)
from inductor_bench.report.batch.batch_tables import BatchView, make_models_csv
from inductor_bench.report.document import Sparkline
from inductor_bench.report.html import render_page
from inductor_bench.report.markdown import render_markdown
from inductor_bench.report.run.run_document import PageParts, list_page_parts, run_document, write_report
from inductor_bench.report.run.run_tables import write_kernels_csv, write_tables
from inductor_bench.report.run.run_words import format_alone_ratio, rank_kernels
from inductor_bench.report.run.step_document import (
    LedgerRow,
    describe_few_samples,
    describe_launches,
    describe_sampling_cost,
    list_bar_parts,
    list_flame_levels,
    list_lanes,
    make_ledger_rows,
    make_steps_plot,
)
from inductor_bench.store.digest import read_digest
from inductor_bench.store.folder import RunFolder
from inductor_bench.store.run_files import HOST, TIMELINE, read_host_trace, write_host_trace, write_timeline

PROGRAMS = ["transformer", "decode", "host_paced", "distributed", "cpu"]


def shown(run: Run, width: int = 100) -> list[str]:
    return run_screen(run, width).splitlines()


def many_parts() -> Run:
    parts = [Part(EAGER, f"aten::op_{i}", 1, 1e-4 * (i + 1), 0, module="A.B" * i) for i in range(30)]
    return replace(build.run("p", [], peaks=build.H200), program=step_runs.program(parts, step_s=50e-3))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("width", [60, 80, 100])
def test_it_fits(name: str, width: int) -> None:
    assert max(names.count_columns(line) for line in shown(getattr(step_runs, name)(), width)) <= width
    assert max(names.count_columns(line) for line in shown(many_parts(), width)) <= width


def test_the_ledger_follows_the_first_line() -> None:
    lines = shown(step_runs.transformer())
    start = lines.index(
        "Where the step goes   every moment is in one part; idle: the device is idle, 1.50 ms (5.0%) in all"
    )
    assert lines[2].startswith("30.0 ms a step") and start < 8
    assert len(lines[start + 1]) == 100 and lines[start + 1].startswith("█" * 45 + "▓" * 22 + "▒" * 17)
    assert lines[start + 3].split() == ["█", "Block.backward", "12", "13.4", "ms", "44.7%", "240", "launches"]
    assert lines[start + 6].split()[1:] == ["aten.cross_entropy_loss", "1", "1.90", "ms", "6.3%", "project/train.py:41"]
    assert any(line.startswith("·  idle: synchronising") and line.endswith("project/train.py:47") for line in lines)


def test_graphs_and_kernels_are_in_the_currency_of_the_step() -> None:
    lines = shown(step_runs.transformer())
    graph = next(line for line in lines if line.startswith("Block.forward   "))
    assert " ".join(graph.split()).startswith("Block.forward 12 6.70 ms 22.3% 120 launches 0.720 ms 87.5% gemm 67%")
    assert "calls and time in a step of 30.0 ms · of step: share of it" in "\n".join(lines)
    kernel = next(line for line in lines if line.startswith(" 1  sm90_xmma_gemm"))
    assert kernel.split()[2:6] == ["48", "8.93", "ms", "29.8%"]
    assert "Findings   what could save most comes first; shares are of a step of 30.0 ms" in lines


def test_a_kernel_far_off_by_itself_has_a_sign() -> None:
    lines = shown(step_runs.decode())
    head = next(line for line in lines if line.lstrip().startswith("#"))
    said = "alone: time of a call if its graph runs by itself, divided by its time in the program"
    assert head.split()[-1] == "alone" and said in " ".join(lines)
    assert next(line for line in lines if line.startswith((" 1  sm90", "1  sm90"))).endswith("0.6x")
    assert not any(line.endswith("alone") for line in shown(step_runs.transformer()) if "#" in line)


@pytest.mark.parametrize(
    ("longer", "sign"), [(1 / 0.713, "0.713x"), (2000, "<0.1x"), (1 / 12.34, "12.3x"), (1 / 2000, ">100x"), (1.1, "")]
)
def test_the_sign_fits_its_column(longer: float, sign: str) -> None:
    run = step_runs.decode()
    run = replace(run, modules=(step_runs.in_step(run.modules[0], 1, longer),))
    assert format_alone_ratio(run, rank_kernels(run)[0]) == sign


def test_replays_are_told_from_launches() -> None:
    line = next(line for line in shown(step_runs.decode()) if line.startswith("decode  ") and "H200" not in line)
    assert line.split()[1:6] == ["1", "0.630", "ms", "86.3%", "replays"]
    assert [describe_launches(4, 3, 10), describe_launches(1, 0, 1), describe_launches(1, 0, 0)] == [
        "3 of 4 replays",
        "1 launch",
        "",
    ]


def test_a_graph_that_the_step_does_not_call_has_no_row() -> None:
    lines = shown(step_runs.cpu())
    assert "and 1 more graph, not called in the step: backward" in lines
    assert not any(line.startswith("backward ") for line in lines)


def test_ranks_are_listed_with_the_one_that_sets_the_pace() -> None:
    lines = shown(step_runs.distributed())
    assert "2 ranks; rank 1 sets the pace, and the parts are of its step." in lines
    assert next(line for line in lines if line.startswith("rank 0")).split()[2:] == [
        *("8.00", "ms", "4.70", "ms", "2.80", "ms", "1.20", "ms", "0.500", "ms")
    ]
    assert "or wait for other ranks" in " ".join(lines), "a rank that only waits is not called busy"
    assert not any("100%" in line for line in lines if line.startswith("rank "))
    assert not any("the parts are of its step" in line for line in shown(step_runs.transformer()))


def ledger_of(run: Run) -> list[LedgerRow]:
    assert run.program is not None
    return make_ledger_rows(run.program)


def lines_before_the_bar(run: Run) -> int:
    """The number of the bar's line on a screen of 60 columns."""
    return next(number for number, line in enumerate(shown(run, 60)) if line and not line.strip("█▓▒░·-"))


def test_small_parts_share_one_row_and_the_shares_add_up() -> None:
    rows = ledger_of(many_parts())
    assert len(rows) == 13 and rows[-1].label == "and 19 more"
    for run in (many_parts(), step_runs.transformer(), step_runs.cpu()):
        assert sum(row.share for row in ledger_of(run)) == pytest.approx(1)
        assert sum(row.share for row in list_bar_parts(run)) == pytest.approx(1)
        assert len(shown(run, 60)[lines_before_the_bar(run)]) == 60
    assert [row.label for row in list_bar_parts(step_runs.transformer())][3:] == [
        *("eager", "copies", "idle: Python", "idle: launching", "idle: synchronising")
    ]
    assert list_bar_parts(step_runs.transformer(), most=2)[-1].label == "others"


def test_names_of_parts_can_do_no_harm() -> None:
    evil = [Part(EAGER, "\x1b[31m<b>|`x`" * 9, 1, 9e-3, 0, module="<script>\x07|")]
    run = replace(build.run("p", [], peaks=build.H200), program=step_runs.program(evil, step_s=10e-3))
    text = "\n".join(shown(run))
    assert "\x1b" not in text and "\x07" not in text
    page = run_page(run)
    assert "<b>|" not in page and "<script>\x07" not in page and "\x1b" not in page
    assert "<b>" not in run_markdown(run)


@pytest.mark.parametrize("name", PROGRAMS)
def test_markdown_and_html_tell_the_same(name: str) -> None:
    run: Run = getattr(step_runs, name)()
    text, page = run_markdown(run), run_page(run)
    for title in ("Where the step goes", "Graphs", "Kernels"):
        assert f"## {title}" in text
    assert "Where the step goes" in page and ">wall alone</button>" in page and ">of step</button>" in page
    assert ("the parts are of its step" in text) == ("the parts are of its step" in page) == (name == "distributed")


def test_the_page_has_no_table_for_a_graph_that_the_step_does_not_call() -> None:
    page = run_page(step_runs.cpu())
    assert [module.label for module in step_runs.cpu().modules] == ["forward", "backward"]
    assert re.findall(r"<h3>(.*)</h3>", page) == ["forward"]


def test_idle_time_has_the_colour_of_a_light_or_a_dark_page() -> None:
    page = run_page(step_runs.host_paced())
    body = page.partition("</style>")[2]
    assert palette.IDLE not in body and body.count("background:var(--idle)") == 2 * 4, "in the bar and in the table"


def test_the_bandwidth_of_kernels_that_the_step_does_not_run_is_not_drawn() -> None:
    from inductor_bench.report.run.plots import draw_plots  # loads matplotlib

    run = step_runs.transformer()
    bare = [replace(k, step_calls=None, step_time_s=None) for k in run.modules[0].kernels]
    assert "bandwidth" in draw_plots(run)
    assert "bandwidth" not in draw_plots(replace(run, modules=(replace(run.modules[0], kernels=tuple(bare)),)))


def test_tables_have_the_columns_of_the_step(tmp_path: Path) -> None:
    run = step_runs.distributed()
    assert {path.name for path in write_tables(run, tmp_path)} >= {"step.csv", "modules.csv"}
    parts = list(csv.DictReader((tmp_path / "tables" / "step.csv").open()))
    for rank_number in ("0", "1"):
        assert sum(float(row["share"]) for row in parts if row["rank"] == rank_number) == pytest.approx(1)
    module = next(iter(csv.DictReader((tmp_path / "tables" / "modules.csv").open())))
    assert float(module["step_time_s"]) == pytest.approx(6e-3) and module["step_replays"] == "0"
    kernels = list(csv.DictReader(io.StringIO(write_kernels_csv(run))))
    assert sum(float(row["step_share"]) for row in kernels) == pytest.approx(0.75)
    assert "step_time_s" not in write_kernels_csv(build.mixnet()).splitlines()[0]
    assert "step.csv" not in {path.name for path in write_tables(build.mixnet(), tmp_path / "old")}


def test_kernels_are_ranked_by_what_they_cost_the_step() -> None:
    run = step_runs.transformer()
    rare = tuple(step_runs.in_step(module, calls) for module, calls in zip(run.modules, (12, 1), strict=True))
    for sort in ("time", "gain", "calls"):
        entries = rank_kernels(step_runs.of_step(replace(run, modules=rare)), sort)
        assert entries[0].module.label == "Block.forward" or sort == "gain"
        key = {"time": "time_s", "gain": "gain_limit_s", "calls": "calls"}[sort]
        values = [getattr(entry.cost, key) or -1.0 for entry in entries]
        assert values == sorted(values, reverse=True)


def test_the_timeline_of_a_folder_is_drawn_and_a_damaged_one_costs_only_its_picture(tmp_path: Path) -> None:
    assert list_lanes(step_runs.timeline()) == [HOST_LANE, "stream 7", "stream 20"]
    folder = RunFolder(tmp_path)
    busy = tuple(Interval("stream 7", i * 2e-6, i * 2e-6 + 1e-6, EAGER, f"op {i}") for i in range(4000))
    write_timeline(folder, Timeline(8e-3, busy))
    write_report(step_runs.cpu(), tmp_path)
    assert 'class="lane"' in (tmp_path / "report.html").read_text()
    (tmp_path / TIMELINE).write_text("{")
    write_report(step_runs.cpu(), tmp_path)
    assert 'class="lane"' not in (tmp_path / "report.html").read_text()


def digest(run: Run, folder: Path) -> Any:
    RunFolder(folder).save(run)
    return read_digest(BatchModel(ModelRequest("m.py", name="m"), DONE), RunFolder(folder).record)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_batch_is_in_the_currency_of_the_step(name: str, tmp_path: Path) -> None:
    run: Run = getattr(step_runs, name)()
    found = digest(run, tmp_path)
    assert run.program is not None
    assert sum(graph.time_s for graph in found.graphs) == pytest.approx(run.program.step_time_s)
    assert found.graphs[-1].label == OUTSIDE
    kernels = [kernel for graph in found.graphs for kernel in graph.kernels]
    assert [k.time_s for k in kernels] == [k.step_time_s for m in run.modules for k in m.kernels if k.step_time_s]
    assert all(kernel.step_share for kernel in kernels)


def batch_of(*models: ModelResult) -> BatchResults:
    batch = Batch(1, "", "", "", "list.txt", tuple(model.model for model in models))
    return BatchResults(batch, models)


def test_a_batch_says_step_if_its_figures_are_of_one(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    step, old = digest(step_runs.transformer(), tmp_path), digest(build.mixnet(), tmp_path / "old")
    assert describe_wall_time(summarize_model(step)) == "30.0 ms a step" and "step" not in describe_wall_time(
        summarize_model(old)
    )
    ends = {
        (step,): "30.0 ms in all, one step of each",
        (old,): "61.6 ms in all, each model once",
        (step, old): "91.6 ms in all, one step or iteration of each",
    }
    for models, end in ends.items():
        assert describe_progress(batch_of(*models)).endswith(end)
    assert list(list_model_notes([summarize_model(step)])) == [], (
        "a graph that runs 12 times a step is not profiled for long"
    )
    models, graphs, *_ = (
        {one.name: one.values for one in table.columns} for table in BatchView(batch_of(step)).tables()
    )
    assert models["graphs"] == [2] and graphs["graph"] == [graph.label for graph in step.graphs]
    assert "outside of graphs=" not in make_models_csv([summarize_model(step)])


def test_the_console_tells_whether_compilation_pays_off() -> None:
    """Whoever asked for it with --eager finds it on the first screen."""
    run = step_runs.transformer()
    assert run.program is not None
    faster, slower = (replace(run, program=replace(run.program, eager_step_time_s=time_s)) for time_s in (0.054, 0.02))
    for told, words in ((faster, "1.80x faster than an eager one"), (slower, "does not pay off")):
        assert words in " ".join(line.strip() for line in shown(told))


def test_a_batch_promises_nothing_if_the_host_sets_the_pace_of_the_step(tmp_path: Path) -> None:
    """The device of this program is busy for 76% of the step."""
    (tmp_path / "busy").mkdir()
    paced, busy = digest(step_runs.host_paced(), tmp_path), digest(step_runs.transformer(), tmp_path / "busy")
    assert summarize_model(paced).gain_limit_s is None and summarize_model(busy).gain_limit_s
    assert describe_leading_family(BatchView(batch_of(paced)).families, 1.0) == ""
    assert describe_leading_family(BatchView(batch_of(busy)).families, busy.graphs[0].time_s)


def test_the_rest_of_a_step_has_its_categories(tmp_path: Path) -> None:
    rest = digest(step_runs.distributed(), tmp_path).graphs[-1]
    assert dict(rest.categories) == {
        Category.COLLECTIVE: pytest.approx(1.4e-3),
        Category.EXTERN_ATEN: pytest.approx(0.1e-3),
    }
    assert rest.idle_s == pytest.approx(0.5e-3) and rest.busy_share == pytest.approx(1 - 0.5 / 8)
    old = digest(build.mixnet(), tmp_path / "old") if (tmp_path / "old").mkdir() is None else None
    assert [graph.label for graph in old.graphs] == ["forward", "backward"]
    assert old.graphs[0].kernels[0].step_share is None


def test_modules_that_cannot_run_by_themselves_stand_below_the_answer() -> None:
    failures = [
        Failure("profile", "exit", f"{n} exited with 1", "look", log_tail="the end", subject="Block.forward")
        for n in range(2)
    ]
    run = replace(step_runs.transformer(), failures=tuple(failures))
    lines = shown(run)
    assert not any(line.startswith("Failed") for line in lines) and "the end" not in "\n".join(lines)
    said = "their kernels have no figures from such a run; the step is measured"
    place = lines.index(f"Not run by themselves   {said}")
    assert place > lines.index(next(line for line in lines if line.startswith("Findings")))
    assert lines[place + 1] == "  - Graph Block.forward: 0 exited with 1."
    assert "## Failed" not in run_markdown(run) and "## Not run by themselves" in run_markdown(run)


def steps_of(program: Program, **fields: object) -> Sparkline:
    """The picture of the steps of a program whose only process has these fields."""
    (block,) = make_steps_plot(replace(program, ranks=(replace(program.ranks[0], **fields),)))  # type: ignore[arg-type]
    assert isinstance(block, Sparkline)
    return block


def test_steps_over_time_tell_timed_profiled_and_other_steps_apart() -> None:
    program = step_runs.host_paced().program
    assert program is not None
    known = {
        "step_times_s": (4.0, 2.0, 1.0, 1.0),
        "step_numbers": (1, 2, 8, 11),
        "steps_before_profile": 2,
        "profiled_steps": 3,
        "profiled_step_time_s": 3.0,
        "level": (0, 2),
    }
    used, others, profiled = steps_of(program, **known).series
    assert used.points == ((0.0, 1.0), (0.1, 0.5)) and others.points == ((0.7, 0.25), (1.0, 0.25))
    assert [(round(x, 6), y) for x, y in profiled.points] == [(0.2, 0.75), (0.3, 0.75), (0.4, 0.75)]
    assert "2 timed steps" in used.title and "3 profiled steps, at their mean of 3.00 s" in profiled.title
    (older,) = steps_of(program, **{**known, "step_numbers": (), "level": (0, 0)}).series
    assert older.title.startswith("4 timed steps"), "an older record does not say when it profiled"
    first = steps_of(program, **{**known, "steps_before_profile": 0, "step_numbers": (4, 5, 6, 7)})
    assert first.ends == ("step 1", "step 7") and first.series[-1].points[0][0] == 0.0
    assert list(make_steps_plot(replace(program, ranks=()))) == []
    alone = replace(program.ranks[0], step_times_s=(1.0,))
    assert list(make_steps_plot(replace(program, ranks=(alone,)))) == []


def service(*kinds: StepKind, others: tuple[StepKind, ...] = ()) -> Run:
    """The run of a service whose steps are of these kinds; the ``others`` were not profiled."""
    run = step_runs.host_paced()
    assert run.program is not None
    return replace(run, program=replace(run.program, step_kinds=kinds, other_steps=others))


def kind(size: int, time_s: float, share: float, profiled: int = 3, **fields: Any) -> StepKind:
    """Requests of one size."""
    known: dict[str, Any] = {"labels": ("answer (dynamic)",), "sizes": (4, size), "p90_s": 2 * time_s, "share": share}
    return StepKind(**{"count": 40, "time_s": time_s, "among": 120, **known, "profiled": profiled, **fields})


def test_kinds_of_steps_have_a_row_each_in_every_format() -> None:
    rare = kind(0, 1e-3, 0.05, 1, labels=(), sizes=(), pooled=7)
    fixed = kind(0, 9e-3, 0.15, labels=("answer ([1] = 8)",), sizes=())
    run = service(kind(512, 30e-3, 0.7), kind(64, 4e-3, 0.1), fixed, rare)
    rows = [
        "size 512 40 70.0% 30.0 ms 60.0 ms 3",
        "[1] = 8 40 15.0% 9.00 ms 18.0 ms 3",
        "size 64 40 10.0%",
        "7 rare kinds 40 5.0%",
    ]
    for text in (run_screen(run, 100), run_markdown(run)):
        plain = " ".join(text.replace("\\", "").replace("|", " ").split())
        assert [plain.index(row) for row in rows] == sorted(plain.index(row) for row in rows)
        assert ": what follows leaves" not in plain
    assert "<h2" in run_page(run) and "size 512" in run_page(run)


def test_kinds_of_steps_have_different_names() -> None:
    run = service()
    known = {"graphs": ("forward",), "labels": ("answer (dynamic)",)}
    short, long = kind(0, 1e-3, 0.2, sizes=(64,), **known), kind(0, 9e-3, 0.2, sizes=(64, 128), **known)
    assert name_kinds([short, long], run) == ["size 64", "sizes 64, 128"]
    further = [replace(short, interrupted=True), replace(short, sizes=())]
    assert name_kinds([short, *further], run) == ["size 64", "size 64; interrupted", "other sizes"]
    alone = kind(0, 1e-3, 0.2, graphs=("forward",), labels=("answer",), sizes=())
    assert name_kinds([alone, replace(alone, interrupted=True)], run) == ["answer", "answer (interrupted)"]


def test_many_kinds_of_steps_have_six_rows_and_one_for_the_others_on_a_screen() -> None:
    run = service(*(kind(n, 1e-3 * n, 0.1 if n > 10 else 0.05) for n in range(15, 5, -1)))
    shown = re.findall(r"^(?:size \d+|and \d more) .*", run_screen(run, 100), re.MULTILINE)
    assert shown[6].split() == ["and", "4", "more", "160", "20.0%", "12"]
    assert run_markdown(run).count("| size ") == 10


def test_a_kind_of_steps_that_takes_much_time_and_was_not_profiled_is_told_with_a_command() -> None:
    run = service(kind(8, 9e-3, 0.27), others=(kind(512, 90e-3, 0.73, 0, count=4),))
    text = " ".join(run_screen(run, 100).split())
    assert "No step of size 512 was profiled, and it takes 73% of the time: what follows leaves it out." in text
    command = re.search(r"`?(inductor-bench breakdown [^`]*--steps (\d+)[^`]*)`? profiles more steps", text)
    assert command is not None and int(command[2]) >= 130, "4 of 120 steps"


def test_rare_kinds_that_take_much_time_together_and_were_not_profiled_are_told() -> None:
    rare = kind(0, 30e-3, 0.7, 0, labels=(), sizes=(), pooled=12, count=60)
    for timed in ((kind(8, 9e-3, 0.3),), (kind(8, 9e-3, 0.2), kind(16, 20e-3, 0.1))):
        text = " ".join(run_screen(service(*timed, others=(rare,)), 100).split())
        assert "No step of 12 rare kinds was profiled, and they take 70% of the time: what follows" in text
        assert "12 rare kinds 60 70.0%" in text and "--steps 110" in text, "each is 1 of 24 steps"
    profiled = service(kind(8, 9e-3, 0.3), others=(replace(rare, profiled=2),))
    assert ": what follows leaves" not in " ".join(run_screen(profiled, 100).split())


@pytest.mark.parametrize(
    "kinds", [(), (kind(8, 9e-3, 1.0),), (kind(8, 9e-3, 0.97), kind(9, 5e-3, 0.03)), (kind(8, 9e-3, 0.5),) * 2]
)
def test_steps_of_one_kind_or_of_one_time_have_no_table(kinds: tuple[StepKind, ...]) -> None:
    assert run_screen(service(*kinds), 100).replace("Kinds", "") == run_screen(service(*kinds), 100)


# The section on the host: its table, what the samples cost, and the flame graph.


LINE = SourceLine("/app/data.py", 33, "collate", "tokens = tokenize(text)")
HOST_WORK = HostWork(
    stretches=(
        HostStretch(PYTHON, "tokenize", 2e-3, 120, LINE),
        HostStretch(SLEEPING, "time.sleep", 0.5e-3, 30, None),
    ),
    samples=150,
    every=300,
    steps=64,
    cost=0.006,
    cost_low=-0.002,
    cost_high=0.011,
    blocks=10,
)


def sampled() -> Run:
    run = step_runs.host_paced()
    assert run.program is not None
    return replace(run, program=replace(run.program, host=HOST_WORK))


def samples() -> HostSamples:
    frames = (
        SampledFrame("/app/train.py", "main", 10, OWN),
        SampledFrame("/app/data.py", "tokenize", 33, OWN),
        SampledFrame("/torch/x.py", "<lambda>", 5, TORCH),
    )
    stacks = (SampledStack(1, 0.6, 0.1, 120, 20), SampledStack(2, 0.3, 0.0, 60, 0), SampledStack(0, 0.1, 0.5, 20, 100))
    return HostSamples(frames, (-1, 0, 0), (0, 1, 2), stacks, 64, 1.6, ((1.0,),), sees_device=True)


def test_the_table_names_functions_and_lines() -> None:
    text = render_markdown(run_document(sampled()))
    assert "What the host does while the device waits" in text
    row = next(line for line in text.splitlines() if "tokenize" in line and "data.py:33" in line)
    assert "Python" in row and "2.00 ms" in row and "10.1%" in row and "tokens = tokenize(text)" in row
    assert "150 of 300 samples, in 64 further steps" in text and "differ from their neighbours by +0.6%" in text
    assert "What the host does" not in render_markdown(run_document(step_runs.host_paced()))


def test_the_cost_is_said_also_if_the_samples_divide_nothing() -> None:
    few = replace(HOST_WORK, samples=16)
    assert "16 of 300 samples" in describe_sampling_cost(few, on_host=False) and "± 12%" in describe_sampling_cost(
        few, on_host=False
    )
    assert "16 samples in 64 further steps are too few" in describe_few_samples(few)
    assert "(-0.2 to +1.1%; 10 blocks)" in describe_sampling_cost(HOST_WORK, on_host=False)
    assert "unknown" in describe_sampling_cost(replace(HOST_WORK, blocks=0), on_host=True)


def test_a_flame_graph_has_a_bar_for_each_function_below_another() -> None:
    frames = tuple(HostTraceFrame(name, "/app/a.py", 1) for name in "abcd")
    profile = HostTraceProfile("host", "sampled", "s", 0, 1, ((0, 1, 2), (0, 1), (0, 3), (9,)), (1.0, 1.0, 1.5, 0.5))
    levels = list_flame_levels(profile, frames)
    widths = [{bar.title: round(bar.share, 6) for bar in level} for level in levels]
    assert widths == [{"a": 0.875}, {"b": 0.5, "d": 0.375}, {"c": 0.25}]
    for level in levels:
        ends = [(bar.left or 0.0) + bar.share for bar in level]
        assert all(end <= (bar.left or 0.0) + 1e-9 for end, bar in zip(ends, level[1:], strict=False))
    assert "b app/a.py:1 50.0%" in levels[1][0].words


def test_the_page_draws_only_the_stacks_in_which_the_device_waits(tmp_path: Path) -> None:
    trace = make_host_trace([("the host", samples())])
    assert trace is not None
    assert [sum(one.weights) for one in trace.profiles] == [pytest.approx(1.0), pytest.approx(0.6)]
    folder = RunFolder(tmp_path)
    write_host_trace(folder, trace)
    assert read_host_trace(folder) == trace and "speedscope.app" in (tmp_path / HOST).read_text()
    page = render_page(run_document(sampled(), parts=list_page_parts(sampled(), tmp_path, plots=False)))
    body = page.partition("</head>")[2]
    assert 'class="scroller flame"' in body and 'title="tokenize app/data.py:33 60.0%"' in body
    assert "&lt;lambda&gt; torch/x.py:5 30.0%" in body
    (tmp_path / HOST).write_text("{")
    assert list_page_parts(sampled(), tmp_path, plots=False).host is None
    assert (
        'class="scroller flame"' not in render_page(run_document(sampled(), parts=PageParts())).partition("</head>")[2]
    )
