"""The summary on a console: what it says, that it fits, and that no name can paint or break it."""

from __future__ import annotations

import io
import re
import shlex
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest
import run_builder as build
from inline import change
from rich.console import Console

from inductor_bench.analysis.findings.finding import Finding, KernelPlace
from inductor_bench.analysis.step_costs import compute_whole_time_s
from inductor_bench.errors import UsageError
from inductor_bench.records.base import Failure
from inductor_bench.records.run import Run
from inductor_bench.report import names
from inductor_bench.report.formats import View
from inductor_bench.report.run.run_document import run_document
from inductor_bench.report.run.run_words import find_rows, rank_kernels, write_kernel_caption
from inductor_bench.report.terminal import print_document

RUNS = ["mixnet", "densenet", "cpu", "empty", "hostile", "without_peaks"]


def print_run(run: Run, folder: Path | None, console: Console, **arguments: object) -> None:
    print_document(run_document(run, View(folder, **arguments)), console)  # type: ignore[arg-type]


def shown(run: Run, width: int = 100, folder: Path | None = None, **arguments: object) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, force_terminal=False)
    print_run(run, folder, console, **arguments)  # type: ignore[arg-type]
    return stream.getvalue()


def test_the_answer_comes_first() -> None:
    lines = shown(build.mixnet()).splitlines()
    assert lines[0].startswith("mixnet_l · training · batch 128 · float16 autocast")
    assert lines[0].endswith("NVIDIA H200 · torch 2.11.0 · triton 3.6.0")
    assert lines[2].startswith(
        "GPU-bound: library kernels 63% of 61.6 ms (2 graphs, each once), generated kernels 32%, "
    )
    answer = " ".join(lines[2:4])
    assert answer.endswith("idle 5% (2.93 ms). Could save: generated kernels at their peaks 3.8% (upper bound).")
    forward = next(line for line in lines if line.startswith("forward"))
    assert forward.split()[:8] == ["forward", "15.7", "ms", "92.9%", "796", "11.3", "GB", "conv"]
    assert "pointwise 30%" in forward and "idle 7%" in forward


def test_the_category_table_adds_up_to_the_wall_time() -> None:
    lines = shown(build.mixnet()).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("category")) + 2
    rows = lines[start : lines.index("", start)]
    assert [row[:21].strip() for row in rows][:2] == ["conv (library)", "pointwise"]
    shares = [float(word.strip("%<")) for row in rows for word in row.split() if word.endswith("%")][::1]
    forward = [float(row[21:].split("%")[0].split()[-1].strip("<")) for row in rows]
    assert sum(forward) == pytest.approx(100, abs=0.5) and len(shares) >= 12
    assert rows[-1].startswith("idle")


def test_the_kernel_table() -> None:
    text = shown(build.mixnet(), top=5)
    assert "Kernels   641, those that take most time first" in text and "and 636 more in report.html" in text
    assert "of wall: of 61.6 ms wall, each graph once" in text
    assert "of peak: of compute 742 TFLOP/s (float16) · a library kernel counts with its part of the ATen call" in text
    row = next(line for line in text.splitlines() if "dgrad2d_c1_k1_nhwc " in line)
    assert row.split() == ["2", "dgrad2d_c1_k1_nhwc", "11", "5.66", "ms", "9.2%", "<1%", "compute", "5.65", "ms"]
    assert "backward · mixnet.py:88 · aten.convolution [128x156x14x14" in text


@pytest.mark.parametrize(("share", "said"), [(0.5, True), (0.95, False), (None, False)])
def test_a_percent_of_dram_leaves_out_bytes_that_the_cache_holds(share: float | None, said: bool) -> None:
    """Such a kernel may move 2.53 of 4.32 TB/s, and reach 42% of DRAM."""
    run = build.mixnet()
    modules = [
        replace(
            module,
            kernels=tuple(
                replace(one, dram_bytes=share and share * (one.work.moved_bytes or 0.0))
                if one.roof.bound == "memory"
                else replace(one, dram_bytes=None)
                for one in module.kernels
            ),
        )
        for module in run.modules
    ]
    text = shown(replace(run, modules=tuple(modules)), top=700)
    assert ("of DRAM: bytes that the cache holds do not count" in " ".join(text.split())) is said


def test_without_peaks_the_rate_is_shown_instead() -> None:
    text = shown(build.without_peaks(), top=20)
    table = text.split("Findings")[0]
    assert "gain limit" not in table and "of peak" not in table
    row = next(line for line in text.splitlines() if "norm_backward_126" in line)
    assert row.endswith("773 GB/s")


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("width", [60, 80, 100])
def test_it_fits(name: str, width: int) -> None:
    text = shown(getattr(build, name)(), width)
    assert max(names.count_columns(line) for line in text.splitlines()) <= width


def test_a_column_for_which_there_is_no_room_has_no_legend() -> None:
    run = build.mixnet()
    entries = rank_kernels(run, "time")[:10]
    every, few = ("\n".join(write_kernel_caption(run, entries, *columns)) for columns in ((), (["gain limit"],)))
    assert "of peak: of DRAM" in every and "a library kernel counts" in every and "gain limit: upper" in every
    assert "of peak" not in few and "a library kernel" not in few and "gain limit: upper" in few


@pytest.mark.parametrize(("sort", "key"), [("time", "time_s"), ("calls", "calls"), ("gain", "roof.gain_limit_s")])
def test_sorting(sort: str, key: str) -> None:
    entries = rank_kernels(build.mixnet(), sort)
    values = [attrgetter(key)(entry.kernel) or -1.0 for entry in entries]
    assert values == sorted(values, reverse=True) and [entry.number for entry in entries] == list(range(1, 642))
    assert entries[0].share == pytest.approx(entries[0].kernel.time_s / 61.625e-3)


def test_an_unknown_order_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="cannot sort by 'size'"):
        shown(build.mixnet(), sort="size")


def test_shares_are_of_what_all_graphs_take_once() -> None:
    assert compute_whole_time_s(build.mixnet()) == pytest.approx(15.737e-3 + 45.888e-3)


def test_findings_point_at_rows_of_the_table() -> None:
    text = " ".join(shown(build.mixnet()).split())
    assert "aten.convolution calls spend 9.09 ms (14.8%) on rearranging" in text and "less of it (no. 1, 10)." in text


def test_how_graphs_were_profiled_is_below_them() -> None:
    lines = shown(build.cpu()).splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("backward"))
    assert lines[place + 1].startswith(
        "run alone in the program's process, with its inputs: all graphs (it was compiled "
    )
    assert "run alone" not in shown(build.mixnet())


def test_an_empty_run_says_what_failed_and_what_to_type() -> None:
    text = shown(build.empty(), folder=Path("runs/empty-1"))
    assert (
        "Capture: the program compiled nothing.\n    Hint: call torch.compile in it" in text and "    | hello" in text
    )
    assert "Next      inductor-bench breakdown empty.py" in text and "graph" not in text


def test_failures_come_first_with_their_log(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "backward.log").write_text("boom")
    tail = "Traceback:\n  in call\nOutOfMemoryError"
    failure = Failure("profile", "exit", "the worker exited with code 1", "the log may say more", tail, "backward")
    mixnet = build.mixnet()
    text = shown(replace(mixnet, modules=mixnet.modules[:1], failures=(failure,)), folder=tmp_path)
    assert text.index("Failed   1 graph measured") < text.index("GPU-bound") < text.index("graph  ")
    assert f"Log:  {tmp_path}/logs/backward.log" in text and "    |   in call" in text
    assert "max-autotune" not in text.split("Next")[1]


def test_commands_stay_in_one_piece(tmp_path: Path) -> None:
    folder = tmp_path / ("long-name-" * 12)
    lines = shown(build.mixnet(), 80, folder).splitlines()
    assert f"inductor-bench report {shlex.quote(str(folder))} --sort gain" in map(str.strip, lines)


def test_written_lists_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "forward.trace.json.gz").write_bytes(b"")
    (tmp_path / "record.json").write_text("{}")
    assert "record.json · 1 trace" in shown(build.empty(), 200, tmp_path)


def test_no_name_reaches_the_terminal_as_markup_or_escape() -> None:
    stream = io.StringIO()
    print_run(build.hostile(), None, Console(file=stream, width=100, force_terminal=True, color_system="truecolor"))
    text = stream.getvalue()
    assert "[bold red]not markup" in text and "<script>" in text
    assert "\x1b]0;" not in text and "\x9b" not in text and "\x1b[31mred" not in text and "\u202e" not in text


def test_a_terminal_without_unicode_gets_ascii() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    for name in RUNS:
        print_run(getattr(build, name)(), None, Console(file=stream, width=100, force_terminal=False))
    stream.flush()
    assert b"conv 43% ##" in raw.getvalue()


def test_it_says_the_same_without_colour() -> None:
    colour, plain = io.StringIO(), io.StringIO()
    print_run(build.mixnet(), None, Console(file=colour, width=100, force_terminal=True, color_system="truecolor"))
    print_run(build.mixnet(), None, Console(file=plain, width=100, force_terminal=False, color_system=None))
    assert names.clean(colour.getvalue()) == names.clean(plain.getvalue())
    assert "\x1b[" in colour.getvalue() and "\x1b" not in plain.getvalue()


def test_many_graphs_are_cut_to_the_longest() -> None:
    module = build.mixnet().modules[0]
    many = [
        build.module(f"forward-{i}", list(module.kernels[:3]), (i + 1) * 1e-2, build.H200, slug=f"f{i}")
        for i in range(30)
    ]
    text = shown(build.run("many", many, peaks=build.H200))
    assert "\nforward-29 " in text and "\nforward-3 " not in text and "18 more graphs, 1.71 s in all: forward-0" in text


def test_a_dynamic_label_is_not_cut() -> None:
    module = replace(build.mixnet().modules[0], label="inference-6 (dynamic)")
    for width in (80, 100):
        assert "\ninference-6 (dynamic) " in shown(build.run("x", [module], peaks=build.H200), width)


def test_a_long_label_keeps_its_role_in_both_tables() -> None:
    label = "TransformerEncoderBlock.forward · "
    modules = [
        replace(module, label=label + role, slug=role)
        for module, role in zip(build.mixnet().modules, ("forward", "backward"), strict=True)
    ]
    for width in (80, 100):
        text = shown(build.run("x", modules, peaks=build.H200), width)
        for role in ("forward", "backward"):
            assert sum(f"lock · {role} " in f"{line} " for line in text.splitlines()) == 2


def test_small_graphs_are_folded_by_what_they_took_of_the_program() -> None:
    kernels = list(build.mixnet().modules[0].kernels[:2])
    runs = [1, 1000, 1, 1, 1, 1, 1, 1]
    many = [
        build.module(f"g-{i}", kernels, 1e-5 if i else 1e-3, build.H200, program_calls=n) for i, n in enumerate(runs)
    ]
    text = shown(build.run("x", many, peaks=build.H200))
    assert "\ng-0 " in text and "\ng-1 " in text and "\ng-2 " not in text and "6 more graphs" in text
    assert re.search("graph +runs +wall ", text) and " 1,000 " in text


def test_graphs_profiled_live_for_the_same_kind_of_input_share_a_line() -> None:
    reason = "integer input {} int64[{}], which the file's harness fills with zeros"
    cpu = build.cpu()
    one, two = (change(m, method_reason=reason.format(i, 8 + i)) for i, m in enumerate(cpu.modules))
    text = shown(replace(cpu, modules=(one, two)))
    assert ": all graphs (integer inputs, which the file's harness fills with zeros)" in " ".join(text.split())


def test_the_screen_has_six_findings_at_most() -> None:
    for name in RUNS:
        found = shown(getattr(build, name)()).partition("\nFindings")[2].splitlines()
        assert sum(line.startswith("  - ") for line in found) <= 6


def test_findings_that_begin_with_a_label_keep_it() -> None:
    assert "\n  - forward spends 31%" in shown(build.cpu()) and "\n  - aten.convolution calls" in shown(build.mixnet())
    assert "\n  - No significant launch gaps" in shown(build.mixnet())


def test_rows_are_named_in_ranges() -> None:
    entries = rank_kernels(build.mixnet())
    finding = Finding("x", "x", kernels=tuple(KernelPlace(e.module.slug, e.kernel.name) for e in entries[:9]))
    assert find_rows(finding, [entries[i] for i in (0, 1, 3, 4, 5, 8)]) == "no. 1, 2, 4-6, 9 and 3 more"
    assert find_rows(finding, entries[20:]) == ""


def test_a_bar_never_leaves_out_a_larger_part() -> None:
    for width in (80, 84, 90, 100, 110):
        for line in shown(build.mixnet(), width).splitlines():
            if line.startswith(("forward ", "backward ")):
                shares = [int(word[:-1]) for word in line.split() if word[:-1].isdigit() and word.endswith("%")]
                assert shares == sorted(shares, reverse=True) and len(shares) >= 2
