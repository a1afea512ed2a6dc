"""The tree of layers in a document: FLOPs, shares of the peak and bytes, and what is said of unknown parts."""

from __future__ import annotations

from dataclasses import replace

import step_runs

from inductor_bench.records.code import SourceLine
from inductor_bench.records.run import EAGER, GRAPH, LayerTime, LayerWork, LineTime, Run
from inductor_bench.report.document import ShownIn, Table, keep_shown_rows
from inductor_bench.report.run.layers_document import LAYER, build_tree_by_line, make_layers_section
from inductor_bench.report.run.run_summary import list_answers


def run_of(*rows: LayerTime) -> Run:
    run = step_runs.transformer()
    assert run.program is not None
    return replace(run, program=replace(run.program, layers=rows))


def table_of(*rows: LayerTime) -> Table:
    section, _ = make_layers_section(run_of(*rows), LAYER)
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    return table


def cells(*rows: LayerTime) -> dict[str, dict[str, str]]:
    """The texts of each node's cells, by the node and the column."""
    table = table_of(*rows)
    titles = [column.title for column in table.columns]
    texts = [[cell.text for cell in row.cells] for row in table.rows]
    return {text[0]: dict(zip(titles, text, strict=True)) for text in texts}


def layer(name: str, time_s: float, flops: float = 0.0, kind: str = GRAPH, **work: float | None) -> LayerTime:
    return LayerTime(name, "forward", kind, time_s, 1.0, flops=flops, work=LayerWork(**work))


def test_a_layer_has_its_share_of_the_peak_and_its_bytes() -> None:
    found = cells(layer("Net.up", 2e-3, 4e9, product_time_s=2e-3, peak_time_s=1e-3, moved_bytes=6e6))["· up"]
    assert (found["FLOP/s"], found["of peak"], found["bytes/s"]) == ("2.00 TFLOP/s", "50.0%", "3.00 GB/s")


def test_a_sum_with_unknown_parts_is_at_least_that() -> None:
    known = layer("Net.up", 1e-3, 4e9, product_time_s=1e-3, peak_time_s=0.5e-3, moved_bytes=4e6)
    uncounted = layer("Net.mix", 1e-3, product_time_s=1e-3, uncounted_s=1e-3, peak_time_s=0.0, unmeasured_s=1e-3)
    without_peak = layer("Net.low", 2e-3, 8e9, product_time_s=2e-3, moved_bytes=4e6)
    found = cells(known, uncounted)
    assert found["Net"]["FLOP/s"] == "≥ 2.00 TFLOP/s" and found["Net"]["of peak"] == "≥ 25.0%"
    assert found["Net"]["bytes/s"] == "≥ 2.00 GB/s"
    assert (found["· up"]["of peak"], found["· mix"]["of peak"], found["· mix"]["FLOP/s"]) == ("50.0%", "", "")
    found = cells(known, without_peak)
    assert (found["Net"]["FLOP/s"], found["Net"]["of peak"]) == ("4.00 TFLOP/s", "≥ 16.7%")
    assert found["· low"]["of peak"] == "", "no peak of its type is known"


def test_a_layer_beyond_the_peak_has_no_share_of_it() -> None:
    found = cells(layer("Net.up", 1e-3, 4e9, peak_time_s=1.5e-3), layer("Net.norm", 1e-3, peak_time_s=0.0))
    assert found["· up"]["of peak"] == "" and found["Net"]["of peak"] == "75.0%"


def test_records_of_earlier_versions_have_rates_only() -> None:
    found = cells(layer("Net.up", 1e-3, 4e9), layer("Linear", 1e-3, kind=EAGER))
    assert (
        found["· up"]["FLOP/s"] == "4.00 TFLOP/s" and "of peak" not in found["· up"] and "bytes/s" not in found["· up"]
    )


def test_a_short_layer_stays_below_its_own_and_a_terminal_shows_it_last() -> None:
    table = table_of(layer("Net.up", 1.0), layer("Net.norm", 1e-4), layer("Other.down", 0.5))
    names = [row.cells[0].text for row in table.rows]
    assert names == ["Net", "· up", "· norm", "Other", "· down"]
    assert [row.late for row in table.rows] == [False, False, True, False, False]
    shown, left = keep_shown_rows(table, ShownIn.SCREEN)
    assert [row.cells[0].text for row in shown] == ["Net", "· up", "Other", "· down"] and left == 1


def test_the_answer_names_the_largest_layer_and_what_is_in_no_layer_below_it() -> None:
    def said(*rows: LayerTime) -> str:
        return next(
            item.text for question, item in list_answers(run_of(*rows), (), ()).entries if question == "Which layer?"
        )

    apart = [layer("Net.a", 1.0), layer("Net.b", 0.75), layer("Net.c", 0.75)]
    assert "its largest parts are a 1.00 s (36.4%), b 750 ms (27.3%) and c 750 ms (27.3%)" in said(
        layer("Net", 0.25), *apart
    )
    assert "1.25 s of it in none of the layers below" in said(layer("Net", 1.25), *apart)
    assert said(*apart).startswith("Net 2.50 s (100%) of the device's time")


def test_the_answer_names_the_classes_that_take_most_time_by_themselves() -> None:
    run = run_of(layer("Net.a", 1.0), layer("Net.b", 0.5), layer("Net.c", 0.48), layer("Net", 0.02))
    assert run.program is not None
    classes = {"Net": "Net", "Net.a": "Conv2d", "Net.b": "Linear", "Net.c": "Conv2d"}
    known = replace(run, program=replace(run.program, layer_classes=classes))
    (said,) = (item.text for question, item in list_answers(known, (), ()).entries if question == "Which layer?")
    assert said.endswith("By class, each layer without those inside it: Conv2d 74.0% and Linear 25.0%.")


def test_the_answer_names_the_line_that_the_tree_has_first() -> None:
    library = "/venv/lib/python3.12/site-packages/timm/vit.py"
    below = [SourceLine(library, number, "forward", "x = self.attn(x)") for number in (98, 99)]
    calls, copies = (
        SourceLine("train.py", number, "main", code) for number, code in ((31, "model(x)"), (40, "x.to(d)"))
    )
    rows = (
        *(LineTime(line, "forward", GRAPH, 3e-3, 1.0, called_at=calls) for line in below),
        LineTime(copies, "forward", EAGER, 4e-3, 1.0),
    )
    run = run_of()
    assert run.program is not None
    known = replace(run, program=replace(run.program, lines=rows))
    (said,) = (item.text for question, item in list_answers(known, (), ()).entries if question == "Which line?")
    assert "train.py:31" in said and "6.00 ms (60.0% of" in said and said.endswith("`model(x)`")
    (file, *_) = build_tree_by_line(rows)
    assert file.children[0].name == "31 in main, call"
