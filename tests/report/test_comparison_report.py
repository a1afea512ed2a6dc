"""The report of a comparison: its first lines, its tables on the console, as Markdown, CSV and HTML."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import compared_runs as pairs
import pytest
import run_builder as build
from inline import change

from inductor_bench import units
from inductor_bench.analysis.comparison_run import compare_runs
from inductor_bench.analysis.comparison_words import format_signed, format_signed_percent
from inductor_bench.records.comparison import RunComparison
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.records.run import EAGER, Part
from inductor_bench.report import names
from inductor_bench.report.comparison_document import FORMATS, make_comparison_document
from inductor_bench.report.formats import View
from inductor_bench.report.terminal import render_text

GELU = "triton_poi_fused_gelu_mul_sigmoid_tanh_1"


@pytest.fixture(scope="module")
def comparison() -> RunComparison:
    rows = pairs.changed(GELU, time_s=2.4e-3, config=pairs.OTHER_CONFIG, samples_s=(2.4e-3,) * 12)
    others = [*pairs.parts(), Part(EAGER, "aten::sin|<b>", 1, 0.5e-3, 0)]
    newer = change(build.GPU, torch="2.15.0", variables={"TORCHINDUCTOR_MAX_AUTOTUNE": "1"})
    return compare_runs([pairs.run()], [pairs.run(rows, others, environment=newer)], ("runs/a", "runs/b"))


def table(comparison: RunComparison, columns: int = 100) -> str:
    return render_text(make_comparison_document(comparison, View()), columns)


def test_the_first_screen_answers(comparison: RunComparison) -> None:
    text = table(comparison)
    flat = " ".join(text.split())
    assert text.index("B is 25.9%") < text.index("TORCHINDUCTOR_MAX") < text.index("Where the difference comes from")
    assert "TORCHINDUCTOR_MAX_AUTOTUNE not set 1" in flat
    assert "B is 25.9% slower: a step takes 6.57 ms in A and 8.27 ms in B (+1.70 ms, between " in flat
    assert "Most of it: changed config of 1 kernel +1.20 ms and aten.sin|<b> +0.500 ms (0 → 1 calls)." in flat
    assert re.search(r"changed config \(1\) +1.20 ms +2.40 ms +\+1.20 ms +\+18.3% +slower", text)
    assert re.search(r"the step +6.57 ms +8.27 ms +\+1.70 ms +\+25.9% +slower", text)
    assert re.search(r"1  triton_poi_fused_gelu_mul_sigmoid_tanh_1 +1 +1.20 ms +2.40 ms +\+1.20 ms +slower", text)
    assert "changed config: XBLOCK 512, num_warps 4 → XBLOCK 1024, num_warps 8: 1.20 ms → 2.40 ms a call" in flat
    assert "Next      inductor-bench kernel runs/b/kernels/" in text


def test_kernels_that_only_one_side_has_are_not_called_faster_or_slower() -> None:
    new = pairs.triton("triton_poi_fused_cos_3", 0.7e-3, ("cos",))
    old = pairs.triton("triton_poi_fused_sin_4", 0.6e-3, ("sin",))
    text = table(compare_runs([pairs.run([*pairs.kernels(), old])], [pairs.run([*pairs.kernels(), new])], ("a", "b")))
    assert re.search(r"new kernel \(1\) .* only in B", text) and re.search(r"removed kernel \(1\) .* only in A", text)
    assert re.search(r"triton_poi_fused_cos_3 .* only in B", text)
    assert "New and removed kernels together: +0.100 ms." in " ".join(text.split())


@pytest.mark.parametrize("columns", [60, 80, 100, 120])
def test_no_line_is_wider_than_the_console(comparison: RunComparison, columns: int) -> None:
    new = [pairs.triton(f"triton_poi_fused_cos_{number}", 1e-4, (f"cos_{number}",)) for number in range(3, 20)]
    elsewhere = pairs.run(
        [*pairs.kernels(), *new], request=BreakdownRequest("/home/user/project/models/train.py", "script")
    )
    others = compare_runs([pairs.without_step(pairs.run())], [elsewhere])
    for shown in (comparison, compare_runs([pairs.run()], [pairs.run()]), others):
        for line in table(shown, columns).splitlines():
            assert names.count_columns(line) <= columns or "inductor-bench kernel" in line


def test_markdown_escapes_and_holds_all_parts(comparison: RunComparison) -> None:
    text = FORMATS.get("md").render(comparison, View(top=3))
    assert isinstance(text, str) and text.startswith("# runs/b against runs/a\n")
    assert "aten.sin\\|\\<b\\>" in text and "<b>" not in text
    assert text.count("\n| ") >= len(comparison.parts) + len(comparison.graphs)


def test_csv_has_a_row_for_each_part_and_kernel(comparison: RunComparison) -> None:
    text = FORMATS.get("csv").render(comparison, View())
    assert isinstance(text, str)
    rows = list(csv.DictReader(io.StringIO(text)))
    parts = [float(row["delta_s"]) for row in rows if row["row"] == "part"]
    assert sum(parts) == pytest.approx(float(rows[0]["delta_s"])) and rows[0]["row"] == "step"
    kernel = next(row for row in rows if row["a_names"] == GELU)
    assert (kernel["a_config"], kernel["b_config"]) == ("XBLOCK=512 num_warps=4", "XBLOCK=1024 num_warps=8")


def test_json_has_the_promised_keys(comparison: RunComparison) -> None:
    text = FORMATS.get("json").render(comparison, View())
    assert isinstance(text, str)
    found = json.loads(text)
    assert {"comparable", "environment_differences", "step", "graphs", "kernels", "parts", "verdict"} <= found.keys()
    assert {"a_s", "b_s", "delta_s", "low_s", "high_s", "verdict"} <= found["step"].keys()
    assert {"a", "b", "delta_s", "verdict", "cause"} <= found["kernels"][0].keys()


def test_the_page_is_whole_by_itself(comparison: RunComparison) -> None:
    text = FORMATS.get("html").render(comparison, View())
    assert isinstance(text, str)
    assert "&lt;b&gt;" in text and "<b>" not in text and "B is 25.9% slower" in text
    assert not re.search(r'src=|href="[^#]', text) and "--bg:" in text


def test_runs_that_cannot_be_compared_have_tables_and_no_verdict() -> None:
    other = pairs.each_module(pairs.run(), lambda module: replace(module, device="cpu"))
    text = table(compare_runs([pairs.run()], [other]))
    assert "A and B are not comparable: A ran on cuda, B on cpu" in " ".join(text.split())
    assert re.search(r"the iteration|the step .* not comparable", text)


def test_differences_have_signs() -> None:
    assert (format_signed(0.31e-3), format_signed(-12e-6)) == ("+0.310 ms", "-12.0 µs")
    assert (format_signed_percent(0.1, 1.0), format_signed_percent(-1e-9, 1.0), format_signed_percent(1.0, 0.0)) == (
        "+10.0%",
        "<0.1%",
        units.MISSING,
    )
