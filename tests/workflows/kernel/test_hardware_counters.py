"""Nsight Compute on one kernel: what is read from its CSV, how it is started, what is said if it cannot."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from inline import make

from inductor_bench.analysis.statistics import summarize
from inductor_bench.devices.hardware_counters import list_metrics, read_counters
from inductor_bench.launch.worker import WorkerPool
from inductor_bench.records.retune import HardwareCounters, MeasuredKernel
from inductor_bench.records.run import Environment, KernelOutcome
from inductor_bench.report.kernel_document import describe_counters, make_measured_document
from inductor_bench.report.terminal import render_text
from inductor_bench.source.harness import common
from inductor_bench.source.harness.operator_main import Operator, run_operator
from inductor_bench.source.harness.triton_main import TritonKernel
from inductor_bench.source.standalone_header import write_harness
from inductor_bench.workflows.kernels.kernel_session import _PROGRAM_ERROR, NsightCompute
from inductor_bench.workflows.kernels.kernel_timing import list_advice

FACTS = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size")
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
METRICS = (
    *("dram__bytes_read.sum", "dram__bytes_write.sum", "dram__throughput.avg.pct_of_peak_sustained_elapsed"),
    *("gpu__time_duration.sum", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    *(STALL.format(reason) for reason in ("barrier", "long_scoreboard", "not_selected", "selected", "wait")),
)
BASE = ("byte", "byte", "%", "nsecond", "%", "inst", "inst", "inst", "inst", "inst")
LAUNCH = ("(128, 1, 1)", "(512, 1, 1)", "0", "9.0")
COPY = ("8392704", "4,194,304", "40.5", "10240", "61.25", "0", "12", "1", "1", "2")


def quoted(cells: tuple[str, ...]) -> str:
    return ",".join(f'"{cell}"' for cell in cells)


def page(*kernels: tuple[str, ...], units: tuple[str, ...] = BASE) -> str:
    """What Nsight Compute prints for a program that prints a line itself."""
    rows = [
        quoted((str(number), "4242", "python3.12", "host", "void copy(float *, int)", "1", "7", *LAUNCH, *cells))
        for number, cells in enumerate(kernels)
    ]
    lines = [
        "==PROF== Connected to process 4242 (/usr/bin/python3.12)",
        '"a program may print what it likes,',
        '==PROF== Profiling "copy" - 0: 0%....50%....100% - 3 passes',
        "==PROF== Disconnected from process 4242",
        quoted((*FACTS, "Device", "CC", *METRICS)),
        quoted((*[""] * 11, *units)),
        *rows,
    ]
    return "\n".join(lines) + "\n"


def test_one_kernel_is_read_with_its_units() -> None:
    found = read_counters(page(COPY))
    assert found is not None
    assert (found.device_kernels, found.dram_bytes) == (1, 8392704 + 4194304)
    assert found.dram_share == pytest.approx(0.405) and found.occupancy == pytest.approx(0.6125)
    assert found.time_s == pytest.approx(10.24e-6)
    assert list(found.stalls) == ["long_scoreboard", "wait"]  # in this order, and not those that could have issued
    assert found.stalls["long_scoreboard"] == pytest.approx(12 / 16)


def test_scaled_units_mean_the_same() -> None:
    units = ("Mbyte", "Kbyte", "%", "usecond", "%", *BASE[5:])
    found = read_counters(page(("8.392704", "4,194.304", "40.5", "10.24", "61.25", *COPY[5:]), units=units))
    assert found is not None and found.dram_bytes == pytest.approx(8392704 + 4194304)
    assert found.time_s == pytest.approx(10.24e-6)
    newer = read_counters(page(COPY, units=("byte", "byte", "%", "ns", "%", *BASE[5:])))
    assert newer is not None and newer.time_s == pytest.approx(10.24e-6)


def test_bytes_of_several_kernels_add_up_and_the_rest_is_weighted_by_time() -> None:
    other = ("1000", "0", "80.5", "30720", "21.25", "16", "0", "0", "0", "0")
    found = read_counters(page(COPY, other))
    assert found is not None
    assert (found.device_kernels, found.dram_bytes) == (2, 8392704 + 4194304 + 1000)
    assert found.time_s == pytest.approx(40.96e-6)
    assert found.dram_share == pytest.approx((0.405 + 3 * 0.805) / 4)
    assert found.occupancy == pytest.approx((0.6125 + 3 * 0.2125) / 4)
    assert found.stalls == pytest.approx({"barrier": 0.75, "long_scoreboard": 0.75 / 4, "wait": 0.125 / 4})


def test_what_was_not_counted_is_absent() -> None:
    found = read_counters(page(("n/a", "0", "", "10240", "61.25", *["0"] * 5)))
    assert found is not None
    assert (found.dram_bytes, found.dram_share, found.stalls) == (None, None, {})
    assert found.occupancy == pytest.approx(0.6125)
    assert read_counters("==PROF== Connected\n==WARNING== No kernels were profiled.\n") is None


def test_only_hopper_is_asked_for_what_only_hopper_has() -> None:
    asked = {capability: set(list_metrics(capability)) for capability in ("8.0", "9.0", "10.0", None)}
    assert asked["9.0"] - asked["8.0"] == {STALL.format("gmma")}
    assert asked["8.0"] == asked["10.0"] == asked[None] > set(METRICS)


# How it is started, with a program in its place


def kernel(file: Path, **facts: Any) -> MeasuredKernel:
    times = summarize([1e-5 + number * 1e-9 for number in (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5)])
    return make(MeasuredKernel, "copy", "0" * 16, str(file), "pointwise", "a GPU", {}, times, times, "graphs", **facts)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "copy kernel.py"
    path.write_text('parser.add_argument("--profile")\n')
    return path


def nsight(folder: Path, script: str | None, **facts: Any) -> NsightCompute:
    """Nsight Compute with a shell script in its place."""
    tools = folder / "bin"
    tools.mkdir()
    if script is not None:
        (tools / "ncu").write_text(f"#!/bin/sh\n{script}\n")
        (tools / "ncu").chmod(0o755)
    path = os.pathsep.join([str(tools), os.environ["PATH"]]) if script is not None else str(tools)
    pool = WorkerPool("/a venv/bin/python", folder, {**os.environ, "PATH": path})
    return NsightCompute(pool, make(Environment, compute_capability="9.0"), **facts)


def test_it_profiles_the_file_and_its_counters_are_those_of_the_kernel(tmp_path: Path, file: Path) -> None:
    (tmp_path / "page").write_text(page(COPY))
    asked = tmp_path / "asked"
    found = nsight(tmp_path, f"printf '%s\\n' \"$LC_ALL\" \"$@\" > '{asked}'; cat '{tmp_path}/page'").with_counters(
        kernel(file), "cuda"
    )
    assert found.no_counters == "" and found.counters is not None
    assert found.counters.dram_bytes == 8392704 + 4194304
    words = asked.read_text().splitlines()
    assert words[0] == "C" and words[-3:] == ["/a venv/bin/python", str(file), "--profile"]
    assert {"--csv", "raw", "off", "none", ",".join(list_metrics("9.0"))} <= set(words)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            "echo '==PROF== Connected to process 1'; echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have "
            "permission to access NVIDIA GPU Performance Counters on the target device 0.'; exit 1",
            "may not read the GPU's performance counters",
        ),
        ("echo '==ERROR== LibraryNotLoaded'; exit 1", "here (LibraryNotLoaded)"),
        ("echo '==ERROR== Failed to initialize the profiler'; exit 1", "here (Failed to initialize the profiler)"),
        (None, "Nsight Compute is not installed"),
    ],
)
def test_what_holds_for_every_kernel_is_said_once(
    tmp_path: Path, file: Path, script: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inductor_bench.workflows.kernels.kernel_session.INSTALL_PATTERNS", ())
    counting = nsight(tmp_path, script)
    first, second = (counting.with_counters(kernel(file), "cuda") for _ in range(2))
    assert first.counters is None and why in first.no_counters
    assert first.no_counters.startswith("no kernel has counters: ") and "\n" not in first.no_counters
    assert second == kernel(file)
    assert list_advice(first) == [first.no_counters] and list_advice(second) == []


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo '==ERROR== Failed to find metric x'; exit 1", "Nsight Compute says: Failed to find metric x"),
        (f"echo 'copy: no values'; echo '==ERROR== {_PROGRAM_ERROR} (1).'; exit 1", "no counters: copy: no values"),
        ("echo '==WARNING== No kernels were profiled.'", "saw no kernel"),
        ("exit 7", "Nsight Compute exited with code 7"),
        ("sleep 60", "more time with --timeout"),
    ],
)  # fmt: skip
def test_what_went_wrong_with_one_kernel_leaves_the_others(tmp_path: Path, file: Path, script: str, why: str) -> None:
    counting = nsight(tmp_path, script, timeout_s=0.3 if "sleep" in script else 60.0)
    for _ in range(2):
        found = counting.with_counters(kernel(file), "cuda")
        assert found.counters is None and why in found.no_counters, found.no_counters
        assert found.no_counters.startswith("no counters: ")


def test_files_that_cannot_be_profiled_are_not_run(tmp_path: Path, file: Path) -> None:
    counting = nsight(tmp_path, f"touch '{tmp_path}/ran'")
    assert "on NVIDIA GPUs only" in counting.with_counters(kernel(file), "cpu").no_counters
    file.write_text("an older one")
    assert "extract it again" in counting.with_counters(kernel(file), "cuda").no_counters
    assert not (tmp_path / "ran").exists()


# How it is shown


def test_the_table_shows_what_was_counted_beside_the_estimate(file: Path) -> None:
    counters = HardwareCounters(
        1, 12e6, 0.405, 0.6125, {"long_scoreboard": 0.75, "gmma": 0.1, "misc": 0.05, "wait": 0.04}
    )
    counted = kernel(file, counters=counters, moved_bytes=10_000_000, occupancy=0.75, clock_mhz=1980.0)
    assert list(describe_counters(counted)) == [
        "12.0 MB DRAM (1.20 of the estimate)",
        "40% of DRAM throughput",
        "61% achieved occupancy",
        "warps wait for global memory 75%, other warps of a matrix product 10%, misc 5%",
    ]
    text = render_text(make_measured_document(KernelOutcome((counted,), Environment())), 120)
    assert "counted: 12.0 MB DRAM" in text and "75% occupancy · 1,980 MHz" in text
    assert list(describe_counters(replace(counted, counters=None))) == []


# The option of the files


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done on a GPU that is not there."""
    seen: list[str] = []
    cuda = SimpleNamespace(
        synchronize=lambda: seen.append("wait"),
        profiler=SimpleNamespace(start=lambda: seen.append("start"), stop=lambda: seen.append("stop")),
        is_available=lambda: True,
    )
    monkeypatch.setattr(torch, "cuda", cuda)
    return seen


AROUND = ["wait", "start", "run", "wait", "stop"]


def test_a_triton_file_makes_one_call_while_the_profiler_looks(events: list[str]) -> None:
    flags = torch.ones(2)
    file = SimpleNamespace(
        zeroed=[0],
        make_arguments=lambda seed: SimpleNamespace(storages=[flags]),
        call=lambda arguments: events.append("warm up"),
        run=lambda arguments: events.append("run"),
    )
    TritonKernel.profile(file, 0)  # type: ignore[arg-type]
    assert events == ["warm up", *AROUND] and not flags.any()


def test_a_library_call_is_made_once_while_the_profiler_looks(
    events: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = {"name": "aten_relu_0", "launch": {"operator": "aten.relu.default"}, "device_type": "cuda"}
    monkeypatch.setattr(Operator, "make_arguments", lambda self, seed: None)
    monkeypatch.setattr(Operator, "bind", lambda self, arguments: lambda: events.append("run"))

    def measure(*_: Any) -> dict[str, Any]:
        raise AssertionError("it is not timed")

    assert run_operator(Operator(recorded), measure, "One call.", ["--profile"]) == 0
    assert events == ["run", *AROUND] and capsys.readouterr().out == ""
    with pytest.raises(SystemExit):
        run_operator(Operator({**recorded, "device_type": "cpu"}), measure, "One call.", ["--profile"])


def test_files_with_the_option_are_known_by_their_text() -> None:
    assert '"--profile"' in write_harness("common.py")
    assert common.read_options("", [], on_gpu=True).profile is False
    assert not hasattr(common.read_options("", []), "profile")
