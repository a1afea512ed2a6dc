"""What ``apply`` says: how much of the winners can be put back, and why the others cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import step_runs
from printed import printed

from inductor_bench.analysis.batch_aggregation import summarize_retunes
from inductor_bench.analysis.statistics import summarize
from inductor_bench.messages.observed import APPLY, Pins
from inductor_bench.records.base import Category
from inductor_bench.records.retune import FASTER, MeasuredKernel, Retune, RetuneRow, TritonPin, Tuning
from inductor_bench.report.run.retune_document import APPLIED_FORMATS, describe_retunes
from inductor_bench.workflows.apply import ApplyOutcome
from inductor_bench.workflows.pins import PinnedRun, Unpinned


def row(name: str, category: Category, saving_s: float) -> RetuneRow:
    place = (name, name, category, ("forward",), 1.0, 1e-3, f"kernels/{name}.py", "max")
    return RetuneRow(*place, tuned_default_s=1e-3, tuned_best_s=5e-4, speedup=2.0, verdict=FASTER, saving_s=saving_s)


CONFIG, LIBRARY = row("triton_red_0", Category.REDUCTION, 20e-6), row("aten_mm_0", Category.EXTERN_GEMM, 800e-6)
PIN = TritonPin("key", (), "triton_red_0", "triton_red_0", {"XBLOCK": 1})


def text(pinned: tuple[TritonPin, ...], unpinned: tuple[Unpinned, ...]) -> str:
    pins = Pins(APPLY, "digest", "2.11", "3.6", pinned, ())
    rows = {one.kernel_id: one for one in (CONFIG, LIBRARY)}
    outcome = ApplyOutcome(Path("runs/x"), PinnedRun(pins, {}, rows, unpinned), written=(Path("tuned.py"),))
    return " ".join(printed(APPLIED_FORMATS.get("table"), outcome).split())


@pytest.mark.parametrize(
    ("pinned", "unpinned", "said", "silent"),
    [
        ((PIN,), (), "1 kernel won something by itself; projected saving 20.0 µs a step", "put back"),
        (
            (PIN,),
            (Unpinned(LIBRARY, "a library call"),),
            "2 kernels won something by themselves, 1 has a config that can be put back; projected saving 20.0 µs",
            "800",
        ),
        (
            (),
            (Unpinned(CONFIG, "its standalone file is missing"),),
            "none have a config that can be put back",
            "saving",
        ),
    ],
)
def test_winners_that_cannot_be_put_back_are_named(
    pinned: tuple[TritonPin, ...], unpinned: tuple[Unpinned, ...], said: str, silent: str
) -> None:
    shown = text(pinned, unpinned)
    assert said in shown and silent not in shown
    assert ("--verify -- python train.py" in shown) == bool(pinned), "without a pin there is nothing to compare"
    assert all(f"{left.row.name}: {left.reason}" in shown for left in unpinned)


def test_a_saving_by_a_setting_of_a_library_is_told_from_one_by_configs() -> None:
    timing = summarize([1e-3] * 9)
    tuning = Tuning("max", "cold", (), 3, 1e-3, 2e-4, 5.0, FASTER, {"backend": "aten", "cudnn_benchmark": True})
    kernel = MeasuredKernel("aten_conv_0", "c" * 16, "", "aten", "a GPU", {}, timing, timing, "", tuning=tuning)
    place = ("aten_conv_0", "c" * 16, Category.EXTERN_CONV, ("forward",), 1.0, 1e-3, "kernels/aten_conv_0.py", "max")
    searched = Retune(*place, kernel=kernel)
    run = replace(step_runs.transformer(), retunes=(searched,))

    def words_of(retune: Retune) -> str:
        summary = summarize_retunes((retune.row, CONFIG))
        assert summary is not None
        return describe_retunes(summary, run)

    left = "0.800 ms of it by library settings or library kernels, which apply does not set"
    words = f"a step would save 0.820 ms (2.7%), {left}"
    assert words in words_of(searched)
    template = replace(kernel, tuning=replace(tuning, best_config={"backend": "triton", "template": "mm"}))
    assert "settings" not in words_of(replace(searched, kernel=template))
    cutlass = replace(kernel, tuning=replace(tuning, best_config={"backend": "cutlass", "kernel": "a"}))
    assert words in words_of(replace(searched, kernel=cutlass))
