"""What the JSON of results says beside the record, and the brief form: the words are those of the screen."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import compared_runs
import documented
import finding_examples
import mode_rows
import pytest
import run_builder as build
import step_runs
import tried_programs
from conftest import ROOT
from inline import change
from recorded_runs import recorded_runs

from inductor_bench.analysis.comparison_run import compare_runs
from inductor_bench.analysis.findings.finding import Finding
from inductor_bench.records.base import Failure
from inductor_bench.records.code import SourceLine
from inductor_bench.records.module import InputShape
from inductor_bench.records.run import IDLE, PYTHON, Part, Run
from inductor_bench.records.summary import Summary, SummaryApplied
from inductor_bench.report import comparison_document, modes_document, optimization_document
from inductor_bench.report.batch.batch_tables import SUMMARY_TABLES, make_summary_tables
from inductor_bench.report.document import Answers
from inductor_bench.report.document_summary import CUT, MOST_APPLIED, MOST_CHARACTERS, make_brief_data
from inductor_bench.report.formats import Formats, View, show_as_page
from inductor_bench.report.run.run_document import FORMATS, run_document
from inductor_bench.report.run.run_summary import describe_product_type, run_summary
from inductor_bench.report.terminal import render_text
from inductor_bench.store.codec import encode_sparse
from inductor_bench.store.folder import OptimizationFolder, RunFolder

BUILT: dict[str, Callable[[], Run]] = {
    "mixnet": build.mixnet,
    "cpu": build.cpu,
    "empty": build.empty,
    "host_paced": step_runs.host_paced,
    "simulated": step_runs.simulated,
}
NAMES = (*BUILT, *recorded_runs())
VIEW = View(Path("runs/train"), brief=True)
JSON, TABLE = FORMATS.get("json"), FORMATS.get("table", brief=True)


def run_of(name: str) -> Run:
    return BUILT[name]() if name in BUILT else recorded_runs()[name]


def text_of(run: Run, view: View = VIEW) -> str:
    text = TABLE.render(run, view)
    assert isinstance(text, str)
    return text


def data_of(formats: Formats[Any], result: Any, view: View) -> Any:
    text = formats.get("json").render(result, view)
    assert isinstance(text, str)
    return json.loads(text)


def plain(text: str) -> str:
    return " ".join(text.split())


# The brief form


@pytest.mark.parametrize("name", NAMES)
def test_the_brief_form_of_a_run_has_less_than_2000_tokens(name: str) -> None:
    text = text_of(run_of(name))
    assert len(text) < MOST_CHARACTERS and CUT not in text
    assert not set(text) & set("█▓▒░"), "no bars"


@pytest.mark.parametrize("name", NAMES)
def test_the_brief_json_of_a_run_has_less_than_2000_tokens_and_counts_what_it_lacks(name: str) -> None:
    text = JSON.render(run_of(name), VIEW)
    assert isinstance(text, str) and len(text) <= MOST_CHARACTERS
    brief, whole = json.loads(text), data_of(FORMATS, run_of(name), replace(VIEW, brief=False))["summary"]
    for rows in ("parts", "kernels", "findings", "failures"):
        assert len(brief[rows]) + brief["left_out"].get(rows, 0) == len(whole[rows])
        assert len(brief[rows]) >= min(len(whole[rows]), 2), "something is left of everything"
    left = len(whole["findings"]) - len(run_summary(run_of(name), VIEW).findings)
    findings = text_of(run_of(name)).partition("## Findings")[2]
    assert (f"\nand {left} more in report.html\n" in findings) == bool(left), "the screen counts the same"
    for rows in ("headline", "next_commands", "folder"):
        assert brief[rows] == whole[rows]
    assert [one["id"] for one in brief["kernels"]] == [one["id"] for one in whole["kernels"]][: len(brief["kernels"])]
    for short, exact in zip(brief["parts"], whole["parts"], strict=False):
        assert math.isclose(short["time_s"], exact["time_s"], rel_tol=1e-3)


def test_the_brief_json_of_endless_texts_keeps_its_headline() -> None:
    run = step_runs.simulated()
    failures = tuple(Failure("profile", "exit", "it failed " + "for a reason " * 90, subject=str(n)) for n in range(50))
    text = JSON.render(replace(run, failures=failures), VIEW)
    said = json.loads(str(text))
    assert len(str(text)) <= MOST_CHARACTERS and said["headline"] and said["left_out"]["failures"] > 40


def test_the_brief_json_of_a_proof_of_many_kernels_has_the_first_ones() -> None:
    rows = tuple(SummaryApplied(f"triton_red_{number}", "", "pinned", 2e-3, 1e-3, 1e-3) for number in range(20))
    said = make_brief_data(Summary("Proven", applied=rows), encoded=encode_sparse)
    assert [one["name"] for one in said["applied"]] == [f"triton_red_{number}" for number in range(MOST_APPLIED)]
    assert said["left_out"] == {"applied": 20 - MOST_APPLIED} and said["applied"][0].keys() == {
        *("name", "before_s", "after_s", "saving_s")
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_brief_form_says_what_the_summary_says(name: str) -> None:
    run = run_of(name)
    text, said = text_of(run), run_summary(run, VIEW)
    words = plain(text)
    assert plain(said.headline) in words
    for finding in said.findings:
        assert plain(finding.text).removesuffix(".") in words and f"{finding.command}\n" in text
    for command in said.next_commands:
        assert f"{command.command}  # {command.why}" in text
    for kernel in said.kernels:
        assert f"\n{kernel.number} | " in text
    for part in said.parts[:12]:
        assert f"\n{part.label} | " in text


def test_the_brief_form_of_a_run_with_long_commands_and_many_failures_is_cut() -> None:
    run = step_runs.simulated()
    failures = tuple(Failure("profile", "exit", "it failed " + "for a reason " * 40, subject=str(n)) for n in range(9))
    long = replace(run, command=f"{run.command} {'--option value ' * 400}", failures=failures)
    text = text_of(long)
    assert len(text) <= MOST_CHARACTERS and text.endswith(f"{CUT}\n")


# The summary of a run


@pytest.mark.parametrize("name", NAMES)
def test_the_words_of_the_summary_are_those_of_the_screen(name: str) -> None:
    run = run_of(name)
    screen = plain(render_text(run_document(run, View(VIEW.folder, columns=120)), 120))
    said = run_summary(run, VIEW)
    assert said.headline in screen
    for finding in said.findings:
        assert plain(finding.text).removesuffix(".") in screen
    for command in said.next_commands:
        assert command.command in screen and command.why in screen
    for part in said.parts[:12]:
        assert part.label in screen or len(part.label) > 30, "a long name is cut on a screen"


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_unique_and_the_same_for_other_figures(name: str) -> None:
    run = run_of(name)
    said = run_summary(run, View(Path("runs/train")))
    for rows in (said.parts, said.findings, said.next_commands):
        ids = [row.id for row in rows]
        assert len(set(ids)) == len(ids)
    longer = _with_longer_step(run)
    again = run_summary(longer, View(Path("elsewhere/train")))
    assert {part.id for part in again.parts} == {part.id for part in said.parts}
    assert {one.id for one in again.next_commands} & {one.id for one in said.next_commands} or not said.next_commands


def test_idle_parts_have_their_ids_whatever_line_the_samples_hit() -> None:
    def parts(line: int, *functions: str) -> list[Part]:
        source = SourceLine("app/train.py", line, "step", "")
        return [Part(IDLE, PYTHON, 0.0, 1e-3, 0.1, source=source, function=each) for each in functions]

    def ids(*found: Part) -> list[str]:
        run = run_of("train")
        assert run.program is not None
        said = run_summary(replace(run, program=replace(run.program, parts=found)), VIEW)
        return [part.id for part in said.parts]

    first = ids(*parts(3, "tokenize", "decode"))
    assert sorted(ids(*parts(7, "decode", "tokenize"))) == sorted(first) and len(set(first)) == 2
    assert len(set(ids(*parts(3, "tokenize"), *parts(4, "tokenize")))) == 2


def test_a_finding_has_its_id_whatever_kernels_it_names() -> None:
    run = run_of("train")
    before = {one.id: one.kernels for one in run_summary(run, VIEW).findings}["below-memory-limit"]
    kept = (replace(one, kernels=tuple(each for each in one.kernels if each.name != before[0])) for one in run.modules)
    after = {one.id: one.kernels for one in run_summary(replace(run, modules=tuple(kept)), VIEW).findings}
    assert after["below-memory-limit"] == before[1:] != ()


def test_findings_of_one_kind_differ_in_what_they_are_about() -> None:
    def finding(about: str) -> str:
        return Finding("host-waits", "the device waits", about=about).id

    assert finding("waiting for a lock, 3.5 ms") == finding("waiting for a lock, 980 µs") != finding("sleeping")
    assert Finding("gaps", "there are gaps").id == "gaps"


def _with_longer_step(run: Run) -> Run:
    if run.program is None:
        return run
    parts = tuple(replace(part, time_s=1.01 * part.time_s) for part in run.program.parts)
    return replace(run, program=replace(run.program, step_time_s=1.01 * run.program.step_time_s, parts=parts))


def commands_of(run: Run) -> Iterator[str]:
    said = run_summary(run, View(Path("runs/train")))
    yield from (one.command for one in said.next_commands)
    yield from (finding.command for finding in said.findings if finding.command)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_can_be_typed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs" / "train").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for command in commands_of(run_of(name)):
        if command.startswith(documented.PROGRAM):
            assert documented.refusal(command.removeprefix(documented.PROGRAM)) == ""


def test_findings_name_the_command_that_tries_them() -> None:
    found = {one.kind: one.command for one in run_summary(step_runs.simulated(), VIEW).findings}
    assert found["eager-optimizer"] == "inductor-bench optimize runs/train"
    assert "--mode reduce-overhead" in found["cuda-graphs-unused"]
    assert found["fine"] == ""
    busy = {one.kind: one for one in run_summary(finding_examples.EXAMPLES["busy-step"].run(), VIEW).findings}[
        "busy-step"
    ]
    assert busy.command and f"({busy.command})" in busy.text
    found = {one.kind: one.command for one in run_summary(recorded_runs()["decode"], VIEW).findings}
    assert found["short-kernels"] == "", "tuning them would not help"
    found = {one.kind: one.command for one in run_summary(build.mixnet(), VIEW).findings}
    assert found["library-below-limit"].endswith("--with default,cudnn-benchmark")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["exit", "interrupted"])
def test_what_failed_is_in_the_brief_json_as_on_the_screen(name: str, kind: str) -> None:
    run = run_of(name)
    failed = Failure("profile", kind, "the process was killed by signal 9", "try again", "a log", "forward")
    run = replace(run, failures=(*run.failures, failed))
    said = data_of(FORMATS, run, VIEW)
    assert said["failures"][-1] == {
        "stage": "profile",
        "kind": kind,
        "text": "Profile of forward: the process was killed by signal 9.",
        "hint": "try again",
    }
    assert said["headline"] and said["headline_id"]
    nothing = replace(run, modules=(), program=None, failures=(failed,))
    said = data_of(FORMATS, nothing, VIEW)
    assert (said["headline"], said["headline_id"]) == (said["failures"][0]["text"], "failed")
    assert said["headline"] in plain(text_of(nothing))


def test_json_has_the_record_and_the_summary_and_brief_json_the_summary_alone() -> None:
    run = step_runs.simulated()
    data, brief = (data_of(FORMATS, run, replace(VIEW, brief=brief)) for brief in (False, True))
    assert data["schema"] == "run/1" and data["title"] == run.title
    assert brief.pop("schema") == "summary/1" and brief.keys() == data["summary"].keys()
    assert len(brief["findings"]) < len(data["summary"]["findings"]), "notes on the measurement are left out"
    assert len(JSON.render(run, VIEW)) < 20_000  # type: ignore[arg-type]


# The summary of other results


def test_a_comparison_says_its_first_line_and_commands_in_json() -> None:
    other = compared_runs.run(compared_runs.changed("triton_poi_fused_relu_2", kernel_id="other"), longer=1.4)
    found = compare_runs([compared_runs.run()], [other], ("runs/a", "runs/b"))
    said = data_of(comparison_document.FORMATS, found, View(limit=0.05))["summary"]
    assert said["headline"].endswith("includes the limit.")
    assert [one["id"] for one in said["next_commands"]] == ["kernel-compare"]


def test_a_search_and_modes_say_their_first_lines_in_json() -> None:
    found = tried_programs.optimization(tried_programs.two_winners())
    said = data_of(optimization_document.FORMATS, found, View(Path("runs/train-optimize/optimized")))["summary"]
    assert "settings tried" in said["headline"] and said["next_commands"][0]["id"] == "apply"
    assert said["folder"] == "runs/train-optimize/optimized"
    eager = mode_rows.row("eager", [0.100, 0.101, 0.099, 0.100])
    compared = mode_rows.comparison(eager, mode_rows.row("default", [0.050, 0.0501, 0.0499, 0.050], 10.0))
    assert data_of(modes_document.FORMATS, compared, View())["summary"]["headline"].startswith("Take default")


# Tables for queries


def test_tables_have_the_rows_of_the_summaries() -> None:
    runs = {name: run_of(name) for name in ("simulated", "decode")}
    tables = {one.name: one for one in make_summary_tables((name, run, Path(name)) for name, run in runs.items())}
    assert tuple(tables) == SUMMARY_TABLES
    said = [run_summary(run, View(Path(name))) for name, run in runs.items()]
    columns = {one.name: list(one.values) for one in tables["findings"].columns}
    assert columns["id"] == [finding.id for each in said for finding in each.findings]
    assert columns["text"] == [finding.text for each in said for finding in each.findings]
    assert columns["model"] == [name for name, each in zip(runs, said, strict=True) for _ in each.findings]
    assert [len(tables[name]) for name in ("headline", "parts", "next_commands")] == [
        *(2, sum(len(each.parts) for each in said), sum(len(each.next_commands) for each in said)),
    ]


@pytest.fixture
def documented_run(tmp_path: Path) -> Path:
    """A recorded RUN whose largest saving is one that ``optimize`` tries."""
    with ZipFile(ROOT / "tests" / "data" / "documented" / "blocks.zip") as archive:
        archive.extractall(tmp_path)
    (record,) = tmp_path.rglob("record.json")
    return record.parent


def test_next_has_what_tries_the_largest_saving_and_names_no_file_that_is_missing(documented_run: Path) -> None:
    run = RunFolder(documented_run).load()
    said = run_summary(run, View(documented_run, brief=True))
    largest = max((one for one in said.findings if one.saving_s), key=lambda one: one.saving_s or 0.0)
    commands = [one.command for one in said.next_commands]
    assert largest.command and largest.command in commands
    assert not any(command.startswith("python ") for command in commands)
    (documented_run / "kernels").mkdir()
    files = {kernel.file for module in run.modules for kernel in module.kernels if kernel.file}
    for name in files:
        (documented_run / name).write_text("")
    commands = [one.command for one in run_summary(run, View(documented_run)).next_commands]
    assert files and any(command.startswith("python ") for command in commands)


def test_a_search_that_has_ended_is_named_in_place_of_another_one(documented_run: Path) -> None:
    run, view = RunFolder(documented_run).load(), View(documented_run)
    tries = f"inductor-bench optimize {documented_run}"
    found = f"inductor-bench report {documented_run}/optimized"
    place = OptimizationFolder(documented_run / "optimized")
    place.make()
    for is_complete in (False, True):
        place.save(
            tried_programs.optimization(tried_programs.two_winners(), is_complete=is_complete), lambda text: text
        )
        commands = {one.command for one in run_summary(run, view).findings}
        commands |= {one.command for one in run_summary(run, view).next_commands}
        assert (tries in commands, found in commands) == (not is_complete, is_complete)


@pytest.fixture
def searched_run(tmp_path: Path) -> Path:
    """A recorded RUN in which ``optimize`` has proven CUDA graphs, and had no time for the loader's processes."""
    with ZipFile(ROOT / "tests" / "data" / "documented" / "bert.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path


def test_what_a_search_has_proven_stands_with_its_finding_and_the_command_that_applies_it(searched_run: Path) -> None:
    run, view = RunFolder(searched_run).load(), View(searched_run)
    said = {one.kind: one for one in run_summary(run, view).findings}
    applies = f"inductor-bench apply {searched_run}/optimized -- python /project/scripts/programs/trainer.py"
    proven = said["cuda-graphs-unused"]
    assert proven.command == applies
    assert proven.text.endswith(
        "Proven with CUDA graphs (mode='reduce-overhead'): 38.7 ms → 17.8 ms a step (\N{MINUS SIGN}54.1%, 99.9% "
        "interval 4.6 to 77.9%), proven in turns with the original in one process; in new processes that start with "
        "this setting: 33.9 ms → 17.3 ms (\N{MINUS SIGN}49.0%, 4 processes, too few for an interval), and processes "
        "with equal settings differ by up to 16.5%."
    )
    assert said["data-loading"].command == f"inductor-bench optimize {searched_run} --budget 40m"
    assert said["data-loading"].text.endswith(
        "Not tried by optimize (no time was left for it: a longer --budget tries it)."
    )
    assert not said["eager-operators"].command
    assert said["eager-operators"].text.endswith("Tried by optimize: main() compiled (failed).")
    assert applies in [one.command for one in run_summary(run, view).next_commands]
    assert not any(one.command.endswith("/optimized") for one in said.values())


def test_a_page_opens_with_what_is_proven(searched_run: Path) -> None:
    run = RunFolder(searched_run).load()
    text = show_as_page(FORMATS, run, View(searched_run))
    _, opening = text.split("<dt>What is proven?</dt>")
    answer = opening.partition("</dd>")[0]
    assert "38.7 ms → 17.8 ms a step" in answer and f"<pre>inductor-bench apply {searched_run}/optimized" in answer
    assert opening.index("<dt>What to try next?</dt>") and "<dt>What to try first?</dt>" not in text
    (searched_run / "optimized" / "optimization.json").unlink()
    alone = show_as_page(FORMATS, run, View(searched_run))
    assert "What is proven?" not in alone and "<dt>What to try first?</dt>" in alone and "Proven with" not in alone


def test_a_page_says_on_which_data_a_script_ran_and_guesses_no_batch_size() -> None:
    run = recorded_runs()["bert"]
    forward, backward = run.modules
    ids, weights = InputShape("int64", (32, 128), 3), InputShape("bfloat16", (768, 768), 48)
    others = tuple(InputShape("float32", (size,)) for size in range(5, 0, -1))
    given = replace(forward, inputs=(ids, weights, *others))
    run = replace(run, modules=(given, replace(backward, inputs=(InputShape("float32", (9,)),))))
    text = show_as_page(FORMATS, run)
    answer = text.split("<dt>On which data?</dt>")[1].partition("</dd>")[0]
    assert answer.strip().removeprefix("<dd>") == (
        "Inputs of forward, weights among them: i64[32,128] (3x), bf16[768,768] (48x), f32[5], f32[4], f32[3], f32[2] "
        "and 1 more shape. Matrix products in bfloat16."
    )
    assert "inputs f32[9]" in text, "of the backward graph in its row"
    assert "batch" not in answer and "its sizes are dynamic" not in answer
    dynamic = replace(run, modules=(replace(given, dynamic=True),))
    assert ("1 more shape; its sizes are dynamic, and these are the sizes for which it was compiled.") in show_as_page(
        FORMATS, dynamic
    )
    sized = replace(run, request=replace(run.request, batch_size=32))
    assert "<dd>Batch 32. Inputs of forward" in show_as_page(FORMATS, sized)


def test_the_types_of_products_have_their_shares_of_the_flops() -> None:
    run = recorded_runs()["bert"]
    assert describe_product_type(run) == "bfloat16" and describe_product_type(build.empty()) == ""
    (forward, *others) = run.modules
    kernels = [
        change(kernel, dtype="float32") if kernel.work.flops and kernel.name.startswith("cudnn") else kernel
        for kernel in forward.kernels
    ]
    mixed = replace(run, modules=(replace(forward, kernels=tuple(kernels)), *others))
    first, second = describe_product_type(mixed).split(", ")
    shares = [float(one.split(" ")[1].removesuffix("%")) for one in (first, second)]
    assert (
        first.startswith("bfloat16 9") and second.startswith("float32 ") and sum(shares) == pytest.approx(100, abs=0.2)
    )


def answers_of(run: Run) -> dict[str, str]:
    """The questions and answers of a run's page."""
    (found,) = (block for block in run_document(run).blocks if isinstance(block, Answers))
    return {question: item.text for question, item in found.entries}


def test_answers_explain_idle_time_say_what_is_unknown_and_say_nothing_twice() -> None:
    bert, decode = (answers_of(recorded_runs()[name]) for name in ("bert", "decode"))
    idle = ". In idle time the device waits for the host; the words after the colon say what the host does."
    assert bert["What is slow?"].endswith(idle) and decode["What is slow?"].endswith(idle)
    assert "In idle time" not in answers_of(step_runs.cpu())["What is slow?"]
    assert bert["Is it certain?"].count("middle half") == 1 and decode["Is it certain?"].count("middle half") == 1
    assert decode["Which layer, which line?"].startswith("This RUN has no times by layer and line")
    assert "Which layer, which line?" not in bert and bert["Which line?"]


def test_the_steps_that_the_figures_leave_out_are_told() -> None:
    run = step_runs.host_paced()
    assert run.program is not None
    rank = replace(run.program.ranks[0], step_times_s=(0.09, 0.07, 0.04, 0.04, 0.05), step_numbers=(3, 4, 9, 10, 12))

    def said(level: tuple[int, int]) -> str:
        ranks = (replace(rank, level=level),)
        return answers_of(replace(run, program=replace(run.program, ranks=ranks)))["Is it certain?"]  # type: ignore[arg-type]

    assert "Steps 3 to 4 took 70.0 ms to 90.0 ms each; the figures leave them out." in said((2, 5))
    assert "2 of the steps 10 to 12 took 40.0 ms to 50.0 ms each; the figures leave them out." in said((0, 3))
    assert "Step 12 took 50.0 ms; the figures leave it out." in said((0, 4))
    assert "leave" not in said((0, 5)) and "leave" not in said((0, 0))
