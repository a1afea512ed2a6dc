"""The section on the host: its table, what the samples cost, and the flame graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import step_runs

from inductor_bench.analysis.host_time import make_host_trace
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
from inductor_bench.records.run import PYTHON, SLEEPING, HostStretch, HostWork, Run
from inductor_bench.report.html import render_page
from inductor_bench.report.markdown import render_markdown
from inductor_bench.report.run.run_document import PageParts, list_page_parts, run_document
from inductor_bench.report.run.step_document import describe_few_samples, describe_sampling_cost, list_flame_levels
from inductor_bench.store.folder import RunFolder
from inductor_bench.store.run_files import HOST, read_host_trace, write_host_trace

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
