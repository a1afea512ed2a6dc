"""The report of a comparison of modes: the advice in words, the table, and each format."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from mode_rows import comparison, found, row

from inductor_bench.records.base import Failure
from inductor_bench.records.comparison import AGREES, DIFFERS, NOT_TIMED, UNKNOWN, Agreement, DeviceWork, ModeComparison
from inductor_bench.report.formats import View
from inductor_bench.report.modes_document import FORMATS, list_notes, make_mode_cells, make_modes_document, write_advice
from inductor_bench.report.terminal import render_text

EAGER = row("eager", [0.100, 0.101, 0.099, 0.100])
DEFAULT = row("default", [0.050, 0.0501, 0.0499, 0.050], 10.0, codes=("a",))
TUNED = row("max-autotune", [0.040, 0.0401, 0.0399, 0.040], 30.0, codes=("b",))


def screen(compared: ModeComparison, columns: int = 100) -> str:
    return render_text(make_modes_document(compared, View()), columns)


def test_the_advice_names_the_row_its_gain_and_when_it_pays() -> None:
    said = write_advice(comparison(EAGER, DEFAULT, TUNED))
    assert said.startswith("Take max-autotune: 40.0 ms a step, 2.5 times (99% interval 2.4")
    assert said.endswith(
        "as fast as eager; its compilation of 30.0 s has paid off after 500 steps. For up to 2,000 steps "
        "default takes less "
        "time, including compilation."
    )
    assert 'torch.compile(model, mode="max-autotune")' in screen(comparison(EAGER, DEFAULT, TUNED))


def test_the_advice_is_honest_about_noise() -> None:
    noisy = row("max-autotune", [0.049, 0.0505, 0.0488, 0.0502], 30.0, codes=("b",))
    said = write_advice(comparison(EAGER, DEFAULT, noisy))
    assert said.startswith("Take default: 50.0 ms a step")
    assert said.endswith(
        "max-autotune measured 49.6 ms: the difference is within noise, and default compiles in less time."
    )
    twin = row("max-autotune", [0.0501, 0.0503, 0.0501, 0.0502], 30.0, codes=("a",))
    assert write_advice(comparison(EAGER, DEFAULT, twin)).endswith("The difference to max-autotune is within noise.")
    plain = row("default", [0.050, 0.0503, 0.0499, 0.0502], 40.0, codes=("a",))
    said = write_advice(comparison(EAGER, plain, row("max-autotune", [0.049, 0.0505, 0.0488, 0.0502], 30.0)))
    assert said.endswith("the difference is within noise, and default is the plainer setting.")
    slow = row("default", [0.099, 0.102, 0.098, 0.101], 10.0, codes=("a",))
    assert "Leave it uncompiled" in write_advice(comparison(EAGER, slow))
    slower = row("default", [0.102, 0.099, 0.104, 0.101], 10.0, codes=("a",))
    assert write_advice(comparison(EAGER, slower)).endswith(
        "a step; no mode measured faster. The difference to default is within noise."
    )
    wild = row("default", [0.02, 0.09, 0.03, 0.08], 10.0, codes=("a",))
    said = write_advice(comparison(EAGER, wild))
    assert said.startswith("Undecided: default measured 45.6 ms a step and eager 100 ms")
    assert said.endswith("Until then, keep eager, which compiles nothing.")
    assert "Type" not in screen(comparison(EAGER, wild))


def test_rows_that_an_interruption_left_out_are_named_as_not_measured() -> None:
    stopped = comparison(EAGER, replace(DEFAULT, processes=()), replace(TUNED, processes=()))
    (bare, other) = (line for line in screen(stopped).splitlines() if line.startswith(("default", "max-autotune")))
    assert bare.split() == ["default", "not", "measured"] and other.split() == ["max-autotune", "not", "measured"]
    assert [make_mode_cells(one)["step"].text for one in stopped.rows][1:] == ["not measured"] * 2


def test_without_enough_there_is_no_advice() -> None:
    assert write_advice(comparison(replace(EAGER, processes=()))) == "No mode was measured."
    assert "nothing to compare" in write_advice(comparison(EAGER))
    first = [replace(one, processes=one.processes[:1]) for one in (EAGER, DEFAULT)]
    assert "two rounds" in write_advice(comparison(*first))


def test_notes_say_what_each_mode_really_did() -> None:
    twin = row("reduce-overhead", [0.05] * 4, 12.0, codes=("a",))
    graphs = row(
        "max-autotune",
        [0.04] * 4,
        12.0,
        codes=("b",),
        device="cuda",
        refusals=("multiple devices:",),
        graph_breaks=("x\ny",),
    )
    said = list(list_notes(comparison(EAGER, DEFAULT, twin, graphs, kind="script")))
    assert (
        "reduce-overhead: the same generated code as default, and no CUDA graphs; a difference in step time is noise"
        in said
    )
    assert "max-autotune: Inductor refused CUDA graphs (multiple devices)" in said
    assert "each compiled row: the settings of 1 call of torch.compile were replaced" in said
    assert "max-autotune: 1 graph break, the first one: x" in said
    assert any(note.startswith("outputs were not compared") for note in said)


def test_other_configs_in_a_later_round_are_told() -> None:
    tuned = row("default", [0.05] * 2, 12.0, codes=("a",), configs="1")
    other = replace(tuned.processes[1], configs="2")
    said = (
        "default: its processes did not run the same code or the same configs of kernels, which also changes the step"
    )
    assert said in list_notes(comparison(EAGER, replace(tuned, processes=(tuned.processes[0], other))))
    assert said not in list_notes(comparison(EAGER, tuned))


def test_on_a_cpu_no_mode_uses_cuda_graphs() -> None:
    asked = row("reduce-overhead", [0.05] * 4, 12.0, codes=("b",), refusals=("multiple devices",))
    said = list(list_notes(comparison(EAGER, DEFAULT, asked)))
    assert said == ["reduce-overhead: CUDA graphs need a GPU, and these steps ran on a CPU"]


def test_a_noisy_machine_is_named() -> None:
    said = next(list_notes(comparison(EAGER, row("default", [0.05, 0.05, 0.05, 0.07], 12.0))))
    assert said.startswith("the machine is noisy: the slowest process of default takes 40% longer")
    assert not any("noisy" in note for note in list_notes(comparison(EAGER, DEFAULT)))


def test_outputs_that_differ_or_cannot_be_compared_have_their_reason() -> None:
    wrong = row("default", [0.05] * 4, 9.0, agreement=Agreement(DIFFERS, 0.5, "output 0 differs"))
    unknown = row("max-autotune", [0.04] * 4, 9.0, agreement=Agreement(UNKNOWN, reason="it draws random numbers"))
    compared = comparison(EAGER, wrong, unknown)
    said = list(list_notes(compared))
    assert "default: the outputs differ from eager (output 0 differs)" in said
    assert "max-autotune: the outputs cannot be compared (it draws random numbers)" in said
    assert [make_mode_cells(one)["outputs"].text for one in compared.rows] == ["", "DIFFER 5e-01", "unknown"]
    agreeing = row("default", [0.05] * 4, 9.0, agreement=Agreement(AGREES, 2e-8))
    assert make_mode_cells(comparison(EAGER, agreeing).rows[1])["outputs"].text == "agree 2e-08"


def test_the_device_has_columns_if_it_was_profiled() -> None:
    assert "launches" not in screen(comparison(EAGER, DEFAULT))
    work = DeviceWork(0.038, 12.0, 0.76)
    text = screen(comparison(EAGER, row("default", [0.05] * 4, 10.0, work=work)), 120)
    assert "launches" in text and "38.0 ms" in text and "76%" in text


@pytest.mark.parametrize("columns", [60, 80, 100, 120])
def test_no_line_is_wider_than_the_console(columns: int) -> None:
    failed = replace(
        row("max-autotune-no-cudagraphs", []), failure=Failure("mode", "exit", "it failed " * 20, "read it")
    )
    text = screen(comparison(EAGER, DEFAULT, TUNED, failed), columns)
    assert max(map(len, text.splitlines())) <= max(columns, 60)


def test_rows_without_figures_say_why() -> None:
    hung = replace(row("max-autotune", []), failure=Failure("mode", "timeout", "it hung", "give it more time"))
    untimed = replace(row("eager", []), failure=Failure("mode", NOT_TIMED, "no marks"))
    text = screen(comparison(untimed, DEFAULT, hung))
    assert "max-autotune: it hung" in text and "Hint: give it more time" in text and "eager: no marks" in text
    assert [make_mode_cells(one)["step"].text for one in (hung, untimed)] == ["failed", "not timed"]


def test_rows_that_failed_in_the_same_way_are_named_together() -> None:
    failures = [Failure("mode", "exit", "no torchvision", "install it", log) for log in ("1.log", "2.log")]
    first, second = (
        replace(row(name, []), failure=failure)
        for name, failure in zip(("default", "max-autotune"), failures, strict=True)
    )
    text = screen(comparison(EAGER, first, second))
    assert text.count("no torchvision") == 1 and "default and max-autotune: no torchvision" in text


def test_csv_json_and_markdown_hold_the_figures() -> None:
    compared = comparison(EAGER, DEFAULT, TUNED)
    text = FORMATS.get("csv").render(compared, View())
    assert isinstance(text, str)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [one["mode"] for one in rows] == ["eager", "default", "max-autotune"]
    assert float(rows[2]["ratio_to_eager"]) == pytest.approx(0.4, rel=1e-2) and rows[2]["verdict"] == "faster"
    shown = FORMATS.get("json").render(compared, View())
    assert isinstance(shown, str)
    figures = found(compared, "default").figures
    assert figures is not None
    assert json.loads(shown)["rows"][1]["figures"]["step_time_s"] == figures.step_time_s
    page = FORMATS.get("md").render(compared, View())
    assert isinstance(page, str) and "**Take max\\-autotune" not in page and "| mode |" in page
