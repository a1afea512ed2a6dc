"""The row of a retuned kernel says itself why a faster config is not put into a program, as ``apply`` does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import retune_fakes

from inductor_bench.cli import main as entry
from inductor_bench.records.base import Category
from inductor_bench.records.retune import Config, Retune
from inductor_bench.store.folder import RunFolder

UNLIKE = "by itself it takes 64 times what it takes in the model"


def folder_with(tmp_path: Path, category: Category, time_s: float, config: Config) -> RunFolder:
    """A RUN with the retune of one kernel, which takes 28.1 ms by itself and 14 ms with the config."""
    folder = RunFolder(tmp_path / "run")
    run = retune_fakes.make_run(folder)
    name, kernel_id, _, graph, calls, _ = retune_fakes.KERNELS[2]
    found = retune_fakes.retuned(f"{name}.py", "max")
    assert found.tuning is not None
    tuning = replace(found.tuning, default_s=28.1e-3, best_s=14e-3, speedup=2.0, verdict="faster", best_config=config)
    kernel = replace(found, tuning=tuning)
    row = Retune(name, kernel_id, category, (graph,), calls, time_s * calls, f"kernels/{name}.py", "max", kernel)
    folder.save(replace(run, retunes=(row,)))
    return folder


CASES = [
    (Category.POINTWISE, 28.1e-3 / 64, {"XBLOCK": 64}, UNLIKE, "so its winner says nothing about the model"),
    (Category.EXTERN_CONV, 28.1e-3, {"cudnn_benchmark": True}, "cuDNN's search", "torch.backends.cudnn.benchmark"),
    (Category.EXTERN_GEMM, 28.1e-3, {"threads": 4}, "another number of threads", "torch.set_num_threads"),
    (Category.EXTERN_GEMM, 28.1e-3, {"backend": "cutlass"}, "a CUTLASS kernel, which Inductor uses only", "timed it"),
]


@pytest.mark.parametrize(("category", "time_s", "config", "short", "more"), CASES)
def test_a_row_says_why_its_config_is_not_put_into_a_program(
    category: Category,
    time_s: float,
    config: Config,
    short: str,
    more: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = folder_with(tmp_path, category, time_s, config)
    assert entry.main(["apply", str(folder.path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert short.split(":")[0] in said and more in said
    assert entry.main(["report", str(folder.path), "--no-plots"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (place,) = [number for number, line in enumerate(lines) if "28.1 ms" in line]
    assert lines[place + 1].strip().startswith(short), "the line below the row"
    assert entry.main(["report", str(folder.path), "--no-plots", "--format", "md"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "28.1 ms" in line]
    assert short.split("'")[0] in row
    page = (folder.path / "report.html").read_text()
    assert short.replace("'", "&#39;") in page
    assert short in (folder.path / "tables" / "retunes.csv").read_text()


def test_a_row_without_an_obstacle_has_no_line_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_with(tmp_path, Category.POINTWISE, 28.1e-3, {"XBLOCK": 64})
    assert entry.main(["report", str(folder.path), "--no-plots"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (place,) = [number for number, line in enumerate(lines) if "28.1 ms" in line and "2.00x" in line]
    assert not lines[place + 1].strip()
