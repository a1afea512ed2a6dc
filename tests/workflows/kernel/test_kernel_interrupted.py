"""Ctrl-C while standalone files are measured and retuned: what is asked of the worker then, and what is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from measured_kernels import measured
from retuning_bench import Bench

from inductor_bench.messages.job_requests import TellEnvironment
from inductor_bench.messages.kernel_requests import Forget
from inductor_bench.records.base import Failure
from inductor_bench.records.retune import MeasuredKernel
from inductor_bench.workflows import kernel
from inductor_bench.workflows.kernel import KernelOutcome, KernelsInterrupted

MEASURED, FAILED, INTERRUPTED = "measured", "failed", "interrupted"


def interrupted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, measuring: list[str], tuning: tuple[str, ...] = ()
) -> KernelOutcome:
    """What is left of a request for as many files as there are outcomes of their measurement and of their retune."""

    def outcome(file: Path, what: str) -> MeasuredKernel | Failure:
        bench.worker()
        if what == INTERRUPTED:
            raise KeyboardInterrupt
        if what == FAILED:
            return Failure("kernel", "invalid", "no good", subject=str(file))
        return replace(measured(Path("first.py"), None), file=str(file))

    files = [Path(f"{number}.py") for number in range(len(measuring))]
    monkeypatch.setattr(kernel, "measure_file", lambda file, _: outcome(file, measuring[files.index(file)]))
    monkeypatch.setattr(kernel, "tune", lambda *_: map(outcome, files, tuning))
    with pytest.raises(KernelsInterrupted) as stop:
        kernel._measure_all(files, bench, lambda found, environment: None)
    return stop.value.outcome


def test_nothing_is_asked_of_a_worker_that_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, {})
    found = interrupted(bench, monkeypatch, [MEASURED, MEASURED, INTERRUPTED])
    assert bench.requests == [TellEnvironment, Forget, Forget]
    assert len(found.kernels) == 2 and found.interrupted and found.retune_s == 0.0


def test_only_what_was_kept_from_being_retuned_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, {}, autotune="max")
    found = interrupted(bench, monkeypatch, [MEASURED] * 3, (FAILED, MEASURED, INTERRUPTED))
    assert [each.advice for each in found.kernels] == [(), (), ("not retuned: interrupted",)]
    assert [failure.message for failure in found.failures] == ["no good"]
