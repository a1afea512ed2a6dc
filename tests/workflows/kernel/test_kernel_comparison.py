"""Two kernels beside each other, on a pretended device: how they compare, whose merit it is, and what is said of it."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from documented import documented
from fake_device import Line, Silent
from measured_kernels import OWN, measured

from inductor_bench.autotune.kernel_variants import TritonVariants
from inductor_bench.cli.main import main
from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.job_requests import Answer, WorkerRequest
from inductor_bench.messages.kernel_requests import (
    Checked,
    CompareOutputs,
    CompiledResources,
    Drop,
    Load,
    RecordedFacts,
    Sample,
    Times,
    VariantFacts,
    Vary,
)
from inductor_bench.records.base import Failure
from inductor_bench.records.comparison import Pairing, TimedPair
from inductor_bench.records.request import KernelRequest
from inductor_bench.records.retune import Config, MeasuredKernel, Ratio, Tuning
from inductor_bench.report.kernel_document import explain_difference, make_compared_document
from inductor_bench.report.terminal import render_text
from inductor_bench.source.standalone_header import has_like_arguments
from inductor_bench.workflows.kernels import kernel_comparison
from inductor_bench.workflows.kernels.kernel_comparison import find_config_conflict

TIMES = {("first", 0): 100e-6, ("first", 2): 80e-6, ("second", 3): 60e-6, ("second", 0): 99.9e-6, ("second", 4): 40e-6}
SPACE = {"value": (0, 2, 3, 4)}


@dataclass
class Work:
    """Stands in for ``KernelSession``: a kernel takes the time of its file and its configuration."""

    request: KernelRequest = field(default_factory=lambda: KernelRequest(("first.py",)))
    wrong: tuple[int, ...] = ()
    kernels: dict[int, tuple[str, int]] = field(default_factory=dict)
    peaks: dict[str, None] = field(default_factory=lambda: {"cpu": None})
    other_jobs: dict[str, str] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    noise: random.Random = field(default_factory=lambda: random.Random(7))
    progress: Silent = field(default_factory=Silent)
    began: float = 0.0

    def open(self) -> None: ...

    def ask(self, request: WorkerRequest[Answer], limit_s: float) -> Answer:
        answer: Answer = getattr(self, f"do_{type(request).__name__.lower()}")(request)
        return answer

    def do_load(self, request: Load) -> VariantFacts:
        name = Path(request.file).stem
        self.kernels[request.number] = (name, OWN[name])
        return VariantFacts("cpp", "cpu", RecordedFacts(name, "0", "cpp"))

    def do_vary(self, request: Vary) -> CompiledResources:
        self.kernels[request.number] = (self.kernels[request.of][0], request.change.config["value"])
        return CompiledResources()

    def do_compareoutputs(self, request: CompareOutputs) -> Checked:
        wrong = self.kernels[request.number][1] in self.wrong
        return Checked("output 0: 5 of 9 elements differ" if wrong else "")

    def do_sample(self, request: Sample) -> Times:
        return Times(tuple(TIMES[self.kernels[number]] * self.noise.gauss(1, 0.001) for number in request.order))

    def do_drop(self, request: Drop) -> None: ...


def tuning(best: int, own: int) -> Tuning:
    return Tuning("max", "cold", (), 3, 1e-4, 8e-5, 1.2, "faster" if best != own else "same", {"value": best})


def compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, works: list[Work], found: dict[str, Any] | None = None
) -> TimedPair:
    files = [tmp_path / f"{name}.py" for name in OWN]
    for file in files:
        file.write_text("RECORDED = {'launch': {'storages': [], 'arguments': []}}\n")

    def tune(kernels: dict[Path, MeasuredKernel], places: Any, work: Any) -> Iterator[MeasuredKernel | Failure]:
        for file, kernel in kernels.items():
            outcome = (found or {})[file.stem]
            yield replace(kernel, tuning=outcome) if isinstance(outcome, Tuning) else outcome

    def find_variants(facts: VariantFacts, *_: Any) -> Line:
        return Line({"value": OWN[facts.recorded.name]}, {"value": SPACE["value"]})

    monkeypatch.setattr(kernel_comparison, "measure_file", measured)
    monkeypatch.setattr(kernel_comparison, "tune", tune)
    monkeypatch.setattr(kernel_comparison, "find_variants", find_variants)
    return kernel_comparison._compare(files, works, Silent())  # type: ignore[arg-type]


def configs(pairing: Pairing | None) -> tuple[int, int]:
    assert pairing is not None
    return pairing.first_config["value"], pairing.second_config["value"]


def test_code_and_config_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    work = Work()
    found = compared(monkeypatch, tmp_path, [work, work])
    standing, same = found.as_they_stand, found.same_config
    assert (configs(standing), standing.verdict) == ((0, 3), "faster") and found.alike is True
    assert standing.ratio is not None and standing.ratio.median == pytest.approx(0.6, rel=0.01)
    assert (configs(same), same.verdict) == ((0, 0), "same")
    assert (
        explain_difference(standing, same)
        == "the config makes the difference: in the same config both kernels take equally long"
    )
    assert found.notes == () and found.best_of_each is None and found.second.cold.median_s == standing.second_s


def test_two_processes_are_not_checked_against_each_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = compared(monkeypatch, tmp_path, [Work(), Work()])
    assert found.alike is None and "two processes" in found.difference
    assert "two processes with the same kernel differ" in found.notes[0]
    assert (found.as_they_stand.verdict, found.same_config.verdict) == ("faster", "same")


def test_the_best_of_each_are_timed_afresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    work = Work(KernelRequest(("first.py",), autotune="max"))
    found = compared(monkeypatch, tmp_path, [work, work], {"first": tuning(2, 0), "second": tuning(4, 3)})
    best = found.best_of_each
    assert configs(best) == (2, 4) and best is not None and best.verdict == "faster"
    assert best.ratio is not None and best.ratio.median == pytest.approx(0.5, rel=0.01)
    assert found.first.tuning is not None and found.failures == ()


def test_what_cannot_be_retuned_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    work = Work(KernelRequest(("first.py",), autotune="max"))
    failure = Failure("kernel", "invalid", "nothing else to try", "", "", "first.py")
    found = compared(monkeypatch, tmp_path, [work, work], {"first": failure, "second": tuning(4, 3)})
    assert configs(found.best_of_each) == (0, 4) and found.failures == (failure,)
    found = compared(monkeypatch, tmp_path, [work, work], {"first": failure, "second": tuning(3, 3)})
    assert found.best_of_each == found.as_they_stand


def test_a_config_that_the_second_cannot_have_costs_that_line_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = Work(wrong=(0,))
    monkeypatch.setitem(SPACE, "value", (2, 3, 4))
    found = compared(monkeypatch, tmp_path, [work, work])
    assert found.as_they_stand.verdict == "faster"
    assert found.same_config.ratio is None and "cannot be 0" in found.same_config.reason
    monkeypatch.undo()
    found = compared(monkeypatch, tmp_path, [work, work])
    assert "computes something else: output 0" in found.same_config.reason
    text = shown(found)
    assert "not timed: it then computes something else" in text


BLOCKS = TritonVariants(
    {"XBLOCK": 64, "num_warps": 4, "num_stages": 1},
    ({"XBLOCK": 64, "num_warps": 4, "num_stages": 1},),
    ({"XBLOCK": 4096, "num_warps": 8, "num_stages": 1},),
    ladders={"XBLOCK": (32, 64, 128), "num_warps": (4, 8)},
)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (BLOCKS.now, ""),
        ({"XBLOCK": 128, "num_warps": 8, "num_stages": 1}, ""),
        ({"XBLOCK": 4096, "num_warps": 8, "num_stages": 1}, ""),
        ({"XBLOCK": 256, "num_warps": 8, "num_stages": 1}, "XBLOCK of the second kernel is 64, and cannot be 256"),
        ({"XBLOCK": 64, "R0_BLOCK": 8, "num_warps": 4, "num_stages": 1}, "only the first has R0_BLOCK"),
        ({"threads": 2}, "only the first has threads"),
        ({"XBLOCK": 64, "num_warps": 4}, "only the second has num_stages"),
        ({"XBLOCK": 32, "num_warps": 4, "num_stages": 3}, ""),
    ],
)
def test_what_config_fits(config: Config, why: str) -> None:
    assert find_config_conflict(config, BLOCKS) == why


def test_launches_with_the_same_tensors_take_alike() -> None:
    tensor = {"kind": "tensor", "tensor": {"storage": 0, "shape": [4]}}
    launch: dict[str, Any] = {"kernel": "relu_3", "calls": 1, "storages": [{"size_bytes": 16}], "arguments": [tensor]}
    renamed = {**launch, "kernel": "relu_5", "calls": 2, "arguments": [tensor, {"kind": "int", "integer": 4}]}
    assert has_like_arguments(launch, renamed)
    assert not has_like_arguments(launch, {**launch, "storages": [{"size_bytes": 32}]})
    assert not has_like_arguments(launch, {**launch, "arguments": [tensor, tensor]})


def pairing(median: float, verdict: str, value: int = 0) -> Pairing:
    ratio = Ratio(median, median - 0.01, median + 0.01, 20)
    return Pairing({"value": 0}, {"value": value}, 1e-4, median * 1e-4, ratio, verdict)


@pytest.mark.parametrize(
    ("whole", "code", "words"),
    [
        (
            (0.6, "faster"),
            (1.0, "same"),
            "the config makes the difference: in the same config both kernels take equally long",
        ),
        ((0.6, "faster"), (0.95, "faster"), "most of the difference is the config"),
        ((0.6, "faster"), (0.62, "faster"), "most of the difference is the code"),
        ((0.5, "faster"), (0.7071, "faster"), "50% of the difference is the code, the rest is the config"),
        (
            (0.6, "faster"),
            (1.2, "slower"),
            "the config makes the difference: in the same config the second kernel is slower",
        ),
        ((0.9, "faster"), (0.5, "faster"), "the code makes the difference, and the config reduces it"),
        ((1.4, "slower"), (1.02, "slower"), "most of the difference is the config"),
        (
            (1.0, "same"),
            (0.8, "faster"),
            "in the same config the second kernel is faster, but its different config cancels this",
        ),
        ((1.0, "same"), (1.0, "same"), ""),
        ((0.98, "undecided"), (0.8, "faster"), ""),
    ],
)
def test_whose_merit_it_is(whole: tuple[float, str], code: tuple[float, str], words: str) -> None:
    standing, same = pairing(*whole, value=3), pairing(*code)
    assert explain_difference(standing, same) == words
    assert explain_difference(standing, standing) == ""


def shown(found: TimedPair, width: int = 80) -> str:
    lines = render_text(make_compared_document(found), width).splitlines()
    assert [line for line in lines if len(line) > width] == []
    return "\n".join(lines)


def test_the_screen_has_a_line_for_each_pairing() -> None:
    first, second = measured(Path("first.py"), None), measured(Path("second.py"), None)
    standing, same, best = pairing(0.6, "faster", 3), pairing(0.95, "faster"), pairing(0.97, "faster", 4)
    text = shown(TimedPair(first, second, "cold", standing, same, best, "", True))
    table, said, words = text.partition("second.py is faster, 1.67x (1.")
    assert said and "pairs): 0.100 ms → 60.0 µs a call, saves 40.0 µs (" in " ".join(words.split())
    assert "first.py " in table and "second.py " in table, "two kernels of one name go by their files"
    rows = [line.split()[:4] for line in words.splitlines()]
    assert ["as", "they", "are", "0.600x"] in rows and ["same", "config", "0.950x", "0.940"] in rows
    assert "both in value=0" in words and "first in value=0; second in value=4" in words
    assert "most of the difference is the config" in words and "both compute the same" in words
    text = shown(TimedPair(first, second, "cold", standing, standing, standing, "they differ", False))
    assert re.search("same config +as they are", text) and "outputs: they differ" in text


@pytest.mark.parametrize(
    ("median", "verdict", "code"), [(1.2, "slower", 4), (1.055, "slower", 5), (1.02, "slower", 0), (0.9, "faster", 0)]
)
def test_fail_above_decides_the_exit_code_of_a_comparison(
    median: float, verdict: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = TimedPair(*[measured(Path("first.py"), None)] * 2, "cold", *[pairing(median, verdict)] * 2, None, "", True)
    monkeypatch.setattr(kernel_comparison, "run_comparison", lambda request, progress: found)
    words = documented("inductor-bench kernel original.py --compare edited.py --fail-above 0%")
    assert main([*words, "--fail-above", "5%"]) == code and main(words[:-2]) == 0
    shown = capsys.readouterr().out
    assert "Limit of 5%: " in shown and shown.count("Limit of ") == 1
    found = replace(found, alike=False)
    assert main(words) == 1, "wrong comes before slow"
    assert main(["kernel", "a.py", "--fail-above", "5%"]) == 2


def test_files_that_are_no_kernels_are_refused_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text("print('no kernel')\n")
    with pytest.raises(InductorBenchError, match="is not a standalone kernel file"):
        kernel_comparison._compare([tmp_path / "first.py"] * 2, [], Silent())
