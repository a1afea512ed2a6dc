"""What the times of a standalone kernel come to: each against the roof that it can reach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from device_bench import Bench
from inline import change, make

from inductor_bench.analysis.statistics import summarize
from inductor_bench.records.base import Category
from inductor_bench.records.module import ExtractedKernel
from inductor_bench.records.request import KernelRequest
from inductor_bench.records.retune import MeasuredKernel
from inductor_bench.records.run import Environment, KernelOutcome, Peaks
from inductor_bench.report.kernel_document import make_measured_document
from inductor_bench.report.terminal import render_text
from inductor_bench.store import codec
from inductor_bench.store.files import hash_file, write_json
from inductor_bench.workflows.kernels.kernel_timing import judge_times, measure_file

PEAKS = Peaks("cpu", memory_bandwidth=1e10, matmul_flops={"float32": 1e11, "tf32": 4e11}, cache_bytes=10**6)
KERNEL = make(
    MeasuredKernel,
    name="k",
    kernel_id="0" * 16,
    file="k.py",
    category="cpp",
    device="a CPU",
    config={},
    cold=summarize([1e-4] * 9),
    warm=summarize([2e-5] * 9),
    method="",
    moved_bytes=900_000,
)


def test_what_fits_into_the_cache_is_held_against_it_by_its_warm_time() -> None:
    found = judge_times(KERNEL, replace(PEAKS, cache_bandwidth=9e10))
    assert (found.roof.bound, found.roof.bandwidth) == ("cache", pytest.approx(9e9))
    assert found.roof.peak_share == pytest.approx(9e5 / 2e-5 / 9e10)
    assert judge_times(KERNEL, PEAKS).roof.peak_share is None


def test_all_else_is_judged_by_its_cold_time() -> None:
    found = judge_times(change(KERNEL, moved_bytes=2_000_000, cold=summarize([4e-4] * 9)), PEAKS)
    assert (found.roof.bound, found.roof.peak_share) == ("memory", pytest.approx(0.5))
    product = change(KERNEL, moved_bytes=None, flops=2e6)
    for dtype, share in (("float32", 0.2), ("tf32", 0.05)):
        found = judge_times(change(product, dtype=dtype), PEAKS)
        assert (found.roof.bound, found.roof.peak_share) == ("compute", pytest.approx(share))


def test_figures_and_advice_follow_the_times() -> None:
    slower = judge_times(replace(judge_times(KERNEL, PEAKS), cold=summarize([2e-4] * 5)), PEAKS)
    assert slower.roof.bandwidth == pytest.approx(4.5e9)
    assert any("rests on 5 samples" in advice for advice in slower.advice)
    assert judge_times(KERNEL, PEAKS).advice == ()


def test_an_edited_file_does_not_pass_for_the_kernel_in_the_model(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("cpp_plain.py", "cpp_edited.py")]
    rows = []
    for file in files:
        file.write_text("RECORDED = {}\n")
        sha256 = hash_file(file)
        rows.append(ExtractedKernel(file.stem, "0" * 16, Category.CPP, "forward", 1, 1e-4, file.name, sha256=sha256))
    write_json(tmp_path / "kernels.json", codec.encode(tuple(rows)))
    files[1].write_text("RECORDED = {}  # edited\n")

    def edited() -> list[bool]:
        bench = Bench(KernelRequest(()), tmp_path, None)
        return [measure_file(file, bench).edited for file in files]

    assert edited() == [False, True]
    (tmp_path / "kernels.json").write_text("{")
    assert edited() == [False, False], "nothing tells"


def test_the_time_in_the_model_is_said_to_be_of_the_kernel_as_it_was() -> None:
    def facts(kernel: MeasuredKernel) -> str:
        return render_text(make_measured_document(KernelOutcome((kernel,), Environment())), 120)

    in_model = change(KERNEL, calls=1, in_model_s=6.12e-5)
    assert "· 61.2 µs in the model\n" in facts(in_model)
    assert "· edited since it was written · 61.2 µs in the model before that\n" in facts(replace(in_model, edited=True))
