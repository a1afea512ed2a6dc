"""Autotuning kernels if something around them fails: a pool, a worker, the budget, the place of the winner."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_device import SIX, TOO_LATE, Device, Line, Session, finds, times_of, tune
from measured_kernels import measured
from retuning_bench import Bench

from inductor_bench.autotune.pipeline import Pipeline
from inductor_bench.autotune.tuner import Tuner
from inductor_bench.autotune.tuning_workers import (
    GREETING_S,
    LOAD_S,
    BudgetSpentError,
    Candidate,
    CompileJob,
    CompilePool,
    NoCandidatesError,
    make_no_verdict_error,
)
from inductor_bench.devices.nvidia import ARCHITECTURES, NVIDIA
from inductor_bench.errors import InductorBenchError
from inductor_bench.launch.worker import WorkerLostError
from inductor_bench.messages.job_requests import (
    LAUNCH_GAP,
    LAUNCHES_TRITON,
    CompilerVersions,
    FindDeviceUse,
    GetReady,
    Pretend,
    StartCompilers,
    TellArchitecture,
    TellEnvironment,
    WorkerRequest,
)
from inductor_bench.messages.kernel_requests import (
    Build,
    Drop,
    Forget,
    Load,
    RecordedFacts,
    VariantChange,
    VariantFacts,
)
from inductor_bench.records.base import NO_CANDIDATES, DeviceUse, Failure, OtherProcess
from inductor_bench.records.retune import MeasuredKernel, Tuning
from inductor_bench.records.run import KernelOutcome
from inductor_bench.store.lock import TURN
from inductor_bench.workflows import kernel
from inductor_bench.workflows.kernel import KernelsInterrupted, list_configs
from inductor_bench.workflows.kernels import kernel_session, kernel_timing
from inductor_bench.workflows.kernels.kernel_session import make_failure
from inductor_bench.workflows.kernels.kernel_timing import tune as tune_files

GREETING = Pretend(ARCHITECTURES["sm_90"])
HUNG = WorkerLostError("hung", TOO_LATE)


@dataclass(frozen=True)
class OnGpu(Line):
    device = NVIDIA.type


class Greeted(Session):
    """A worker that fails its greeting as often as ``device`` is told to, and takes down its limits."""

    def post(self, request: WorkerRequest[Any], timeout_s: float | None = None) -> None:
        super().post(request, timeout_s)
        self.device.limits[type(request)] = timeout_s  # type: ignore[attr-defined]

    def do_pretend(self, request: Pretend) -> CompilerVersions:
        troubles: list[Exception] = self.device.greetings  # type: ignore[attr-defined]
        if troubles:
            raise troubles.pop(0)
        return CompilerVersions("2.13.0", "3.6.0")


class Unwilling(Device):
    def __init__(self, *greetings: Exception) -> None:
        super().__init__(times_of)
        self.greetings, self.limits = list(greetings), dict[type[WorkerRequest[Any]], float | None]()

    def start(self, name: str) -> Any:
        self.sessions.append(Greeted(self))
        return self.sessions[-1]


@pytest.mark.parametrize("trouble", [InductorBenchError("there is no triton here"), HUNG])
def test_a_pool_that_cannot_be_greeted_fails_the_kernels_of_its_device_only(trouble: Exception) -> None:
    device, numbers = Unwilling(trouble, trouble), itertools.count(1)
    pools = {
        "cpu": CompilePool(device.start, 2, 30.0, 30.0),
        "cuda": CompilePool(device.start, 2, 30.0, 30.0, GREETING),
    }
    spaces = {"first": OnGpu(SIX.now, SIX.axes), "second": OnGpu(SIX.now, SIX.axes), "cpp": SIX}
    tuners: dict[Any, Tuner] = {
        name: Tuner(f"{name}.py", finds(space), numbers, timeout_s=30.0) for name, space in spaces.items()
    }
    outcomes = dict(Pipeline(tuners, "max", pools.__getitem__, [device.worker], lambda: None).run())
    for pool in pools.values():
        pool.end()
    device.close()
    assert outcomes["first"] is outcomes["second"] is trouble
    cpp = outcomes["cpp"]
    assert isinstance(cpp, Tuning) and cpp.best_config == {"value": 4}
    assert not any(session.alive for session in device.sessions)


def test_after_a_failed_greeting_a_pool_begins_anew() -> None:
    device = Unwilling(InductorBenchError("not yet"))
    pool = CompilePool(device.start, 2, 1.0, 30.0, GREETING)
    jobs = [CompileJob(number, "k.py", partial(Build, change=VariantChange({"value": number}))) for number in range(4)]
    with pytest.raises(InductorBenchError, match="not yet"):
        list(pool.compile(jobs, lambda: False))
    assert not any(session.alive for session in device.sessions)
    assert {built.key for built in pool.compile(jobs[:3], lambda: False)} == {0, 1, 2}
    assert (device.limits[Pretend], device.limits[Load]) == (GREETING_S, 1.0)
    pool.end()


# The bench


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(text)
    return path


TRITON = "RECORDED = {}\n@triton_heuristics.pointwise()\n"
TAKEN = DeviceUse(0, (OtherProcess(7, "python", 1),), 0.9, 1)


def test_the_start_of_a_worker_has_time_however_small_the_timeout(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {TellArchitecture: ARCHITECTURES["sm_90"]}, timeout_s=2.0)
    bench.ask(Forget(), 600.0)
    assert bench.asked == [(TellEnvironment, LOAD_S), (Forget, 2.0)]
    assert bench.compile_pool("cpu").load_s == LOAD_S and bench.compile_pool("cuda").compile_s == 2.0
    assert bench.asked[-1] == (TellArchitecture, LOAD_S)


def test_nothing_is_compiled_ahead_if_there_is_no_triton_kernel(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {TellArchitecture: HUNG})
    bench.compile_ahead([written(tmp_path, "cpp", "RECORDED = {}\n"), tmp_path / "missing.py"])
    assert bench.asked == [] and bench.started == []


def test_nothing_is_compiled_ahead_for_a_gpu_that_another_job_uses(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {FindDeviceUse: TAKEN})
    bench.compile_ahead([written(tmp_path, "triton", TRITON)])
    assert bench.requests == [TellEnvironment, FindDeviceUse] and bench.started == ["measure"]


@pytest.mark.parametrize("trouble", [InductorBenchError("no GPU"), HUNG])
def test_what_goes_wrong_ahead_is_left_to_the_measurement(tmp_path: Path, trouble: Exception) -> None:
    bench = Bench(tmp_path, {TellArchitecture: trouble})
    bench.compile_ahead([written(tmp_path, "triton", TRITON)])
    assert bench.requests == [TellEnvironment, FindDeviceUse, TellArchitecture] and bench.pools == {}


def test_a_file_with_one_config_is_not_kept_by_the_worker(tmp_path: Path) -> None:
    facts = VariantFacts("cpp", "cpu", RecordedFacts("k", "0", "cpp"))
    bench, kernel = Bench(tmp_path, {Load: facts}), measured(tmp_path / "first.py", None)
    (listed,) = list_configs({tmp_path / "first.py": kernel}, bench)
    assert isinstance(listed, MeasuredKernel) and listed.tuning is not None
    assert [row.status for row in listed.tuning.candidates] == ["default"]
    assert bench.requests == [TellEnvironment, Load, Drop]


# The budget


THREADS = VariantFacts("operator", "cpu", RecordedFacts("k", "0", "operator"), processors=2)


def retuned(bench: Bench, kernel: MeasuredKernel) -> Any:
    (outcome,) = tune_files({Path(kernel.file): kernel}, {}, bench)
    return outcome


def test_what_the_budget_did_not_last_for_keeps_its_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = replace(measured(tmp_path / "first.py", None), advice=("its clock moved",))
    bench = Bench(tmp_path, {Load: THREADS}, autotune="max", budget_s=-1.0)
    outcome = retuned(bench, kernel)
    assert bench.asked == [], "nothing is prepared after the budget"
    its_own, added = outcome.advice
    assert outcome == replace(kernel, advice=(its_own, added)) and its_own == "its clock moved"
    assert "the budget was spent" in added and "--budget" in added
    bench = Bench(tmp_path, {Load: THREADS}, autotune="max")
    untried = [(Path(kernel.file), BudgetSpentError("untried"))]
    monkeypatch.setattr(kernel_timing, "run_tuners", lambda *_: iter(untried))
    assert retuned(bench, kernel) == outcome


def test_a_spent_budget_is_told_from_candidates_that_fail() -> None:
    with pytest.raises(BudgetSpentError):
        tune(Device(times_of), is_over=lambda: True)
    with pytest.raises(InductorBenchError) as failed:
        tune(Device(times_of, dict.fromkeys(range(1, 6), ("vary", "refuse"))))
    assert not isinstance(failed.value, BudgetSpentError)


@pytest.mark.parametrize(
    ("statuses", "lasts"),
    [((), True), (("wrong", "duplicate"), True), (("wrong", "refused"), False), (("crashed",), False)],
)
def test_only_what_another_search_would_find_too_is_no_choice(statuses: tuple[str, ...], lasts: bool) -> None:
    others = [Candidate({}, number, status=status, reason="out of memory") for number, status in enumerate(statuses)]
    error = make_no_verdict_error("max", others)
    assert isinstance(error, NoCandidatesError) == lasts
    assert (make_failure(Path("k.py"), error).kind == NO_CANDIDATES) == lasts


def test_another_failure_is_one(tmp_path: Path) -> None:
    kernel = measured(tmp_path / "first.py", None)
    outcome = retuned(Bench(tmp_path, {Load: InductorBenchError("no good")}, autotune="max"), kernel)
    assert isinstance(outcome, Failure) and outcome.message == "no good"


def test_library_calls_wait_until_generated_kernels_are_retuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    categories = {"gemm": "extern_gemm", "poi": "pointwise", "conv": "extern_conv", "red": "reduction"}
    first = measured(tmp_path / "first.py", None)
    kernels = {
        tmp_path / f"{name}.py": replace(first, file=str(tmp_path / f"{name}.py"), category=category)
        for name, category in categories.items()
    }
    order: list[tuple[str, bool]] = []

    def tuned(tuners: dict[Path, Tuner], *_: object) -> Iterator[Any]:
        order.extend((file.stem, tuner.opens_last) for file, tuner in tuners.items())
        return iter(())

    monkeypatch.setattr(kernel_timing, "run_tuners", tuned)
    assert list(tune_files(kernels, {}, Bench(tmp_path, {}, autotune="max"))) == []
    assert order == [("poi", False), ("red", False), ("gemm", True), ("conv", True)]


@pytest.mark.parametrize(("gpus", "library"), [(("0",), True), (("0",), False), ((), True)])
def test_workers_that_time_get_ready_once_after_other_jobs_were_looked_for(
    gpus: tuple[str, ...], library: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_session, "list_visible_gpus", lambda: gpus)
    monkeypatch.setattr(kernel_session, "count_usable_cores", lambda: 16)
    bench = Bench(tmp_path, {})
    workers = bench.timing_workers(9, {NVIDIA.type}, library=library)
    looked = [TellEnvironment, FindDeviceUse, TellArchitecture]
    assert bench.requests == looked and bench.started == ["measure"]
    assert len(workers) == (3 if gpus else 1)
    compilers = [StartCompilers] if library and gpus else []
    list(workers[0]())
    assert bench.requests[3:] == [*compilers, GetReady]
    list(workers[-1]())
    assert bench.requests[4 + len(compilers) :] == ([TellEnvironment, *compilers, GetReady] if gpus else [])
    asked = len(bench.requests)
    list(workers[-1]())
    bench.measuring[0].alive = False
    list(workers[0]())
    replaced = [TellEnvironment, *compilers]
    assert bench.requests[asked:] == replaced, "a lost worker is replaced, and gets ready by itself"


def test_workers_that_time_are_as_many_as_cores_kernels_and_memory_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_session, "list_visible_gpus", lambda: ("0",))
    for cores, memory, kernels, expected in (
        (16, 140, 9, 3),
        (8, 140, 9, 2),
        (2, 140, 9, 1),
        (16, 40, 9, 2),
        (16, 8, 9, 1),
        (16, 140, 1, 1),
    ):
        monkeypatch.setattr(kernel_session, "count_usable_cores", lambda cores=cores: cores)
        bench = Bench(tmp_path, {})
        device = replace(bench.environment.device, accelerator_memory_bytes=memory << 30)
        bench.environment = replace(bench.environment, device=device)
        assert len(bench.timing_workers(kernels, {NVIDIA.type})) == expected, (cores, memory, kernels)


@pytest.mark.parametrize("failure", [InductorBenchError("the driver tells nothing"), HUNG])
def test_what_the_first_worker_could_not_say_is_not_asked_while_it_times(
    failure: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_session, "list_visible_gpus", lambda: ("0",))
    bench = Bench(tmp_path, {FindDeviceUse: failure, TellArchitecture: failure})
    bench.timing_workers(9, {NVIDIA.type})
    asked = len(bench.requests)
    assert bench.find_other_jobs(NVIDIA.type) == ""
    with pytest.raises(type(failure)):
        bench.compile_pool(NVIDIA.type)
    assert len(bench.requests) == asked


def test_workers_that_time_take_turns_at_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_session, "list_visible_gpus", lambda: ("0",))
    monkeypatch.setattr(kernel_session, "count_usable_cores", lambda: 12)
    bench = Bench(tmp_path, {})
    bench.start_ahead([written(tmp_path, f"k{number}", "") for number in range(5)])
    assert bench.started[:3] == ["measure", "measure-1", "measure-2"]
    assert {variables[TURN] for variables in bench.variables[:3]} == {str(tmp_path / "device-turn")}
    assert {variables[LAUNCH_GAP] for variables in bench.variables[:3]} == {str(tmp_path / "launch-gap.json")}
    imports = [LAUNCHES_TRITON in variables for variables in bench.variables[:3]]
    assert imports == [False, True, True], "the first one is asked about the machine meanwhile"


# The winner


@pytest.mark.parametrize(
    ("verdict", "why"),
    [
        ("faster", "RECORDED is not a plain literal"),
        ("undecided", "no candidate was reliably faster than the file as it is"),
    ],
)
def test_why_no_file_of_a_winner_is_written_is_told(
    verdict: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = measured(written(tmp_path, "first", "RECORDED = made()\n"), None)
    won = replace(tune(Device(times_of)), best_config={"threads": 1}, verdict=verdict)

    def tuned(tuners: dict[Path, Tuner], *_: object) -> Iterator[tuple[Path, Tuning]]:
        for file, tuner in tuners.items():
            tuner.timing.worker = next(iter(bench.timing_workers(1, ())))
            list(tuner._open())
            yield file, won

    monkeypatch.setattr(kernel_timing, "run_tuners", tuned)
    bench = Bench(tmp_path, {Load: THREADS}, autotune="max")
    (outcome,) = tune_files({Path(kernel.file): kernel}, {Path(kernel.file): tmp_path / "out.py"}, bench)
    assert isinstance(outcome, MeasuredKernel) and outcome.tuning is not None
    assert outcome.tuning.best_config == {"threads": 1} and not (tmp_path / "out.py").exists()
    assert any(f"out.py was not written: {why}" in note for note in outcome.tuning.notes)


# Ctrl-C while standalone files are measured and retuned: what is asked of the worker then, and what is told.


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
