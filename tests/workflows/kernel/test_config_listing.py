"""The configurations that Inductor chooses from, timed on a pretended device; and how what was tried is shown."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_device import SIX, TIMES, Device, Line, finds, times_of, tune
from inline import change
from measured_kernels import measured

from inductor_bench.autotune.pipeline import Pipeline
from inductor_bench.autotune.tuning_workers import CompilePool
from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.kernel_requests import Binary
from inductor_bench.records.retune import MeasuredKernel, TriedCandidate, Tuning
from inductor_bench.records.run import Environment, KernelOutcome
from inductor_bench.report.document import Document
from inductor_bench.report.kernel_document import make_measured_document, make_tuning_section
from inductor_bench.report.terminal import render_text
from inductor_bench.workflows.kernel import ConfigTimer


def listing(device: Device, variants: Line = SIX) -> Any:
    """What came of timing all that is listed."""
    pool = CompilePool(device.start, 2, 30.0, 30.0)
    timer = ConfigTimer("k.py", finds(variants), itertools.count(1), timeout_s=30.0)
    try:
        return dict(Pipeline({"k": timer}, "configs", lambda _: pool, [device.worker], lambda: None).run())["k"]
    finally:
        pool.end()
        device.close()


def test_every_config_is_timed_to_the_end_and_none_wins() -> None:
    tuning = listing(Device(times_of))
    assert (tuning.method, tuning.verdict, tuning.tried, tuning.ratio) == ("configs", "", 5, None)
    assert (tuning.best_config, tuning.best_s, tuning.speedup) == ({"value": 0}, tuning.default_s, 1.0)
    default, *others = tuning.candidates
    assert default.status == "default" and {row.status for row in others} == {"timed"}
    for row in others:
        assert row.ratio.median == pytest.approx(TIMES[row.config["value"]] / TIMES[0], rel=0.01)
        assert row.ratio.pairs == row.samples == 20 and row.registers == 16


def test_a_config_pays_for_itself_alone() -> None:
    device = Device(times_of, {4: ("check", "differ"), 2: ("sample", "crash"), 5: ("vary", "refuse")})
    tuning = listing(device)
    statuses = {row.config["value"]: row.status for row in tuning.candidates}
    assert statuses == {0: "default", 1: "timed", 2: "crashed", 3: "timed", 4: "wrong", 5: "refused"}
    assert tuning.tried == 2


def test_configs_that_compile_to_the_same_are_timed_once() -> None:
    device = Device(times_of)
    device.binary_of = lambda config: Binary("all the same", 0, 0)
    tuning = listing(device)
    assert tuning.tried == 0 and [row.status for row in tuning.candidates[1:]] == ["duplicate"] * 5
    assert tuning.candidates[0].samples == 20


def test_a_file_that_cannot_be_timed_is_an_error() -> None:
    assert isinstance(listing(Device(times_of, {"default": ("sample", "refuse")})), InductorBenchError)


# What is shown of candidates


def text_of(document: Document, width: int) -> list[str]:
    text = render_text(document, width).splitlines()
    assert [line for line in text if len(line) > width and not line.startswith("Next")] == []
    return text


def tuned(kernel: MeasuredKernel, tuning: Tuning, width: int, most: int = 20) -> list[str]:
    return text_of(Document("", blocks=(make_tuning_section(kernel, tuning, most),)), width)


def timed(kernels: list[MeasuredKernel], retune_s: float = 0.0) -> list[str]:
    return text_of(make_measured_document(KernelOutcome(tuple(kernels), Environment(), retune_s=retune_s)), 100)


def with_tuning(tuning: Tuning, name: str = "first") -> MeasuredKernel:
    return change(measured(Path(f"{name}.py"), None), name=name, tuning=tuning, registers=32, spills=0)


def many(statuses: dict[str, int]) -> Tuning:
    """A retune with so many candidates of each status."""
    every = [status for status, count in statuses.items() for _ in range(count)]
    rows = (
        TriedCandidate({"XBLOCK": 2**number, "num_warps": 4}, status, f"reason {number}", 1e-4 + number * 1e-6)
        for number, status in enumerate(every)
    )
    found = tune(Device(times_of))
    return replace(found, candidates=tuple(replace(row, registers=40, spills=8) for row in rows))


@pytest.mark.parametrize("width", [80, 120])
def test_candidates_are_numbered_as_their_reasons_say_and_long_lists_are_folded(width: int) -> None:
    tuning = many({"default": 1, "best": 1, "slower": 20, "duplicate": 3, "refused": 2})
    kernel = with_tuning(tuning)
    text = tuned(kernel, tuning, width)
    assert "1 → 6 configs" in text[1] and text[1].endswith(" of checks and timing, 3 duplicate, 2 refused")
    assert text[2].startswith("faster    0.100 ms → ")
    titles, first, second = (line.split() for line in text[4:7])
    assert titles == ["no.", "status", "time", "ratio", "regs", "spills", "config"]
    assert first[:2] == ["2", "best"] and first[4:6] == ["40", "8"]
    assert second[:2] == ["1", "default"] and second[4:6] == ["32", "0"], "what is known of the file as it stands"
    assert text[-1] == "and 2 slower, 3 duplicate, 2 refused: --format json lists them"
    assert len(tuned(kernel, tuning, width, 6)) == len(text) - 14


def test_a_long_config_is_wrapped_and_not_cut() -> None:
    tuning = many({"default": 1, "refused": 1})
    config = {"XBLOCK": 1024, "YBLOCK": 1024, "R0_BLOCK": 1024, "num_warps": 32, "num_stages": 5}
    rows = (tuning.candidates[0], replace(tuning.candidates[1], config=config, reason="it needs 1 MB of shared memory"))
    text = "\n".join(tuned(with_tuning(tuning), replace(tuning, candidates=rows), 80))
    assert "XBLOCK=1024" in text and "num_stages=5" in text and "shared memory)" in text


def test_the_retune_of_several_kernels_is_summed_up_in_one_line() -> None:
    won = tune(Device(times_of))
    kept = replace(won, verdict="same", best_s=won.default_s)
    kernels = [with_tuning(won, "first"), with_tuning(kept, "second")]
    text = timed(kernels, 12.3)
    summary = text.index("2 kernels retuned in 12.3 s: 1 faster, 1 as they were")
    assert text[summary + 1] == "one call of each: 0.200 ms → 0.160 ms cold, 1.25x"
    often = [change(kernels[0], calls=1), change(kernels[1], calls=8)]
    text = timed(often)
    assert "their calls in an iteration: 0.900 ms → 0.860 ms cold, 1.05x" in text
    assert not any("retuned in" in line for line in timed(kernels[:1]))


@pytest.mark.parametrize(("checked", "command"), [(True, "python won.py --check"), (None, "python won.py")])
def test_a_saved_winner_is_checked_only_if_it_has_a_reference(checked: bool | None, command: str) -> None:
    won = change(with_tuning(tune(Device(times_of))), checked=checked)
    text = text_of(make_measured_document(KernelOutcome((won,), Environment(), saved=(Path("won.py"),))), 100)
    assert f"Next      {command}" in text


def test_a_listing_claims_no_winner() -> None:
    tuning = listing(Device(times_of))
    text = timed([with_tuning(tuning)])
    assert any("configs: 6 configs timed" in line for line in text)
    assert not any(word in line for line in text for word in ("faster", "best  ", "→"))
