"""The verb ``kernel`` on a GPU: kernels of every kind timed, two retuned and compared, others that harm the device."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

pytestmark = pytest.mark.gpu

KINDS = (
    *("pointwise", "reduction", "persistent_reduction", "cooperative_reduction", "split_scan", "foreach", "combo"),
    *("template", "user_triton", "extern_gemm"),
)
STORE = re.compile(r"^    tl\.store\((\w+ \+ \(x0\)), (tmp\d+), (None|xmask)\)$", re.MULTILINE)
BAD = {
    "illegal": (STORE, r"    tl.store(\1 + 1000000000000, \2, \3)", "CUDA error"),
    "asserts": (STORE, r"    tl.device_assert(xindex < 0, 'no index is')\n\g<0>", "CUDA error"),
    "greedy": (re.compile(r"'size_bytes': \d+"), "'size_bytes': 35184372088832", "out of memory"),
}
"""Ways to break a pointwise file, and what is said of it then."""

LEFT = {"default", "best", "finalist", "slower"}
OUT = {"duplicate", "refused", "wrong", "crashed", "hung"}


def kernel(*arguments: str | Path, force: bool = True) -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON of ``inductor-bench kernel``."""
    command = [sys.executable, "-m", "inductor_bench", "kernel", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    words = [*command, "--format", "json", "-q", *(["--force"] if force else [])]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.stdout and "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, json.loads(ended.stdout, parse_constant=pytest.fail)


def files_of(run: Path, category: str) -> list[Path]:
    rows = json.loads((run / "kernels" / "kernels.json").read_text())
    return [run / "kernels" / row["file"] for row in rows if row["category"] == category and row["file"]]


def sine_of(run: Path) -> Path:
    """The file of a pointwise kernel that stores once."""
    return next(path for path in files_of(run, "pointwise") if "_sin_" in path.name)


def transposition_of(run: Path) -> Path:
    """The file of a kernel for which Inductor's default config is a poor one: of all pointwise ones it moves most."""

    def moved_bytes(path: Path) -> int:
        found = re.search(r"'moved_bytes': (\d+)", path.read_text())
        return int(found[1]) if found else 0

    return max(files_of(run, "pointwise"), key=moved_bytes)


def broken(path: Path, target: Path, pattern: re.Pattern[str], replacement: str) -> Path:
    text, count = pattern.subn(replacement, path.read_text(), count=1)
    assert count == 1
    target.write_text(text)
    return target


@pytest.fixture(scope="module")
def measured(gpu_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any]]:
    """Kernels of every kind, those between them that go wrong, and one that computes NaNs."""
    folder, good = tmp_path_factory.mktemp("bad"), [files_of(gpu_run, kind)[0] for kind in KINDS]
    sine = sine_of(gpu_run)
    bad = [broken(sine, folder / f"{name}.py", *how[:2]) for name, how in BAD.items()]
    kernel(sine)  # records what it computes, so that its copy can be checked
    nans = broken(sine, folder / "nans.py", STORE, r"    tl.store(\1, \2 * float('nan'), \3)")
    return kernel(*(path for pair in zip(bad, good, strict=False) for path in pair), *good[len(bad) :], nans)


def test_kernels_of_every_kind_are_checked_and_timed(gpu_run: Path, measured: tuple[int, dict[str, Any]]) -> None:
    found = {each["file"]: each for each in measured[1]["kernels"]}
    for kind in KINDS:
        each = found[str(files_of(gpu_run, kind)[0])]
        assert each["category"] == kind and each["checked"] is True, each["check_message"]
        assert each["method"] == "graphs" or kind == "cooperative_reduction", each["method"]
        for timing in (each["cold"], each["warm"]):
            assert 0 < timing["min_s"] <= timing["low_s"] <= timing["median_s"] <= timing["high_s"]
            assert timing["samples"] == len(timing["samples_s"]) >= 9
        assert each["moved_bytes"] > 0 and each["bandwidth"] > 0 and each["config"]
        assert each["peak_share"] is None or 0 < each["peak_share"] <= 1.05
        assert kind == "extern_gemm" or each["registers"] > 0
        assert kind != "extern_gemm" or (each["flops"] > 0 and each["flop_rate"] > 0)


def test_a_kernel_that_harms_the_device_costs_only_itself(measured: tuple[int, dict[str, Any]]) -> None:
    code, found = measured
    assert code == 1 and len(found["kernels"]) == len(KINDS) + 1
    assert [Path(failure["subject"]).stem for failure in found["failures"]] == list(BAD)
    for failure in found["failures"]:
        assert BAD[Path(failure["subject"]).stem][2] in failure["message"], failure
        assert "\n" not in failure["message"] + failure["hint"]


def test_nans_are_said(measured: tuple[int, dict[str, Any]]) -> None:
    each = measured[1]["kernels"][-1]
    assert Path(each["file"]).stem == "nans" and each["checked"] is False
    assert any("NaN" in advice for advice in each["advice"])


@pytest.fixture(scope="module")
def retuned(gpu_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    files = (transposition_of(gpu_run), files_of(gpu_run, "reduction")[0])
    code, found = kernel(*files, "--autotune", "max", "--save", tmp_path_factory.mktemp("winners"))
    assert code == 0 and found["failures"] == []
    return found


def test_every_candidate_of_a_retune_is_accounted_for(retuned: dict[str, Any]) -> None:
    assert [each["category"] for each in retuned["kernels"]] == ["pointwise", "reduction"]
    for each in retuned["kernels"]:
        tuning = each["tuning"]
        rows = tuning["candidates"]
        assert rows[0]["config"] == each["config"] and rows[0]["status"] == "default"
        assert len({json.dumps(row["config"], sort_keys=True) for row in rows}) == len(rows) > 1
        for row in rows:
            assert row["status"] in LEFT | OUT, row
            assert (row["median_s"] is not None) == (row["status"] in LEFT), row
            assert row["status"] not in OUT or row["reason"], row
        assert tuning["tried"] == sum(row["status"] in LEFT for row in rows[1:]) >= 1


def test_a_verdict_is_what_the_ratio_says(retuned: dict[str, Any]) -> None:
    for each in retuned["kernels"]:
        tuning = each["tuning"]
        ratio, verdict = tuning["ratio"], tuning["verdict"]
        assert verdict in ("faster", "same", "slower", "undecided")
        assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
        assert verdict != "slower" or ratio["low"] > 1
        if verdict == "faster":
            assert ratio["high"] < 1 and tuning["best_s"] < tuning["default_s"]
            assert tuning["speedup"] == pytest.approx(1 / ratio["median"]) and tuning["best_config"] != each["config"]
        else:
            assert tuning["speedup"] == 1 and tuning["best_config"] == each["config"]
    winners = [Path(each["file"]).name for each in retuned["kernels"] if each["tuning"]["verdict"] == "faster"]
    assert sorted(Path(path).name for path in retuned["saved"]) == sorted(winners)


def test_a_winner_runs_by_itself_agrees_and_is_not_slower(retuned: dict[str, Any]) -> None:
    assert retuned["kernels"][0]["tuning"]["verdict"] == "faster", "the transposition (measured: 2.3 times as fast)"
    winner = Path(retuned["saved"][0])
    ended = subprocess.run([sys.executable, winner, "--check"], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    original = next(each["file"] for each in retuned["kernels"] if Path(each["file"]).name == winner.name)
    code, found = kernel(original, "--compare", winner)
    assert code == 0 and found["alike"] is True and found["as_they_stand"]["verdict"] != "slower"


def test_a_copy_of_a_file_is_neither_faster_nor_slower(gpu_run: Path, tmp_path: Path) -> None:
    path = sine_of(gpu_run)
    code, found = kernel(path, "--compare", shutil.copy(path, tmp_path / "copy.py"))
    assert code == 0 and found["alike"] is True
    assert found["as_they_stand"]["verdict"] in ("same", "undecided")


def test_configs_are_all_timed_and_a_gather_with_zeros_too(gpu_run: Path) -> None:
    rows = json.loads((gpu_run / "kernels" / "kernels.json").read_text())
    gather = next(gpu_run / "kernels" / row["file"] for row in rows if "index_add" in row["name"])
    code, found = kernel(files_of(gpu_run, "reduction")[0], gather, "--configs")
    assert code == 0 and not found["failures"]
    for each in found["kernels"]:
        default, *others = each["tuning"]["candidates"]
        assert default["status"] == "default" and {row["status"] for row in others} <= {"timed", "duplicate"}
        assert all(row["median_s"] > 0 for row in (default, *others) if row["status"] != "duplicate")
    plain, gathered = found["kernels"]
    assert plain["with_zeros"] == {}
    assert all(gathered["with_zeros"][state]["median_s"] > 0 for state in ("cold", "warm"))


def test_a_library_call_races_against_inductors_choices(gpu_run: Path) -> None:
    code, found = kernel(files_of(gpu_run, "extern_gemm")[0], "--autotune", "max")
    (each,) = found["kernels"]
    assert code == 0 and each["tuning"]["tried"] >= 1
    assert all(row["config"]["backend"] for row in each["tuning"]["candidates"])


BUSY = """
import torch
matrix = torch.randn(8192, 8192, device="cuda")
print("at work", flush=True)
while True:
    matrix @ matrix
    torch.cuda.synchronize()
"""


def test_a_gpu_in_use_is_refused(gpu_run: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None and other.stdout.readline()
            code, found = kernel(sine_of(gpu_run), force=False)
        finally:
            other.kill()
    (failure,) = found["failures"]
    assert code == 1 and found["kernels"] == [] and "times would be mixed" in failure["message"]
    assert "--force" in failure["hint"]
