"""The comparison of predicted DRAM bytes with counted ones, on a made-up step and output of Nsight Compute."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from wrapper_text import module_text

from inductor_bench.records.evidence import DONE, GraphCallTouches, ObservedGraph, ObservedSteps, ObservedTouches
from inductor_bench.store import codec
from scripts.benchmark_dram import CSV, DramTraffic, bytes_between, main, read_dram_traffic, read_observed, tie

BODY = """
buf0 = empty_strided_cuda((16, 16), (16, 1), torch.float32)
add.run(arg0_1, arg0_1, buf0, 256, stream=stream0)
buf1 = empty_strided_cuda((16, 64), (64, 1), torch.float32)
extern_kernels.mm(buf0, arg1_1, out=buf1)
buf2 = empty_strided_cuda((64, 64), (64, 1), torch.float32)
extern_kernels.mm(reinterpret_tensor(arg1_1, (64, 16), (1, 64), 0), buf1, out=buf2)
relu.run(buf2, 4096, stream=stream0)
return (buf2, )
"""
HEAD = (
    '"ID","Process ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum"\n'
    '"","","","byte","byte","nsecond"\n'
)
STEP = (
    ("void at::native::vectorized_elementwise_kernel<4>(int)", 512, 0),
    ("add", 1024, 0),
    ("nvjet_hsh_64x64", 4096, 0),
    ("sm90_xmma_gemm(Params)", 0, 0),
    ("void cublasLt::splitKreduce_kernel<32>(Params)", 0, 1024),
    ("relu", 0, 2048),
)
LARGE_CACHE = 1 << 30


def kernels_of(count: int) -> list[DramTraffic]:
    return [DramTraffic(*row, 1e-6) for row in STEP * count]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The files of an observed step with two calls of one graph, and what ncu counted."""
    module = tmp_path / "module.py"
    module.write_text(module_text(BODY))
    folder = tmp_path / "observed"
    folder.mkdir()
    steps = ObservedSteps(7, "cuda", DONE, graphs=(ObservedGraph(str(module)),))
    calls = tuple(
        GraphCallTouches(0, ((first, 1024), (first + 1, 4096), (0, 0)), ((first + 2, 16384),)) for first in (100, 200)
    )
    (folder / "7.steps.json").write_text(json.dumps(codec.encode(steps)))
    (folder / "7.touches.json").write_text(json.dumps(codec.encode(ObservedTouches(calls))))
    first = [(name, 10**9, 0) for name, *_ in STEP * 2]  # the counts of the first step, which do not count
    rows = [
        f'"{place}","1","{name}","{read}","{written}","1000"'
        for place, (name, read, written) in enumerate([*first, *STEP * 2])
    ]
    (tmp_path / CSV).write_text("==PROF== Connected\n" + HEAD + "\n".join(rows) + "\nstopwatch {}\n")
    return tmp_path


def test_kernels_are_tied_by_their_names_and_their_neighbours(work: Path) -> None:
    sites = list(read_observed(work).sites())
    assert [site.event_name for site in sites] == ["add", "", "", "relu"] * 2
    tied = tie(sites, kernels_of(2))
    assert tied == {0: [1], 1: [2], 2: [3, 4], 3: [5], 4: [7], 5: [8], 6: [9, 10], 7: [11]}
    assert bytes_between(sites, tied, kernels_of(2)) == {0: 512, 1: 512}
    # A library call more than kernels: none of the two is tied.
    short = [kernel for kernel in kernels_of(1) if "nvjet" not in kernel.name]
    assert tie(sites[:4], short) == {0: [1], 3: [4]}


def test_the_verdict_compares_each_kernel_with_its_count(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = work / "rows.json"
    assert main(["decode.py", "--work", str(work), "--cache-bytes", "1024", "--json", str(file)]) == 0
    rows = {row["name"]: row for row in json.loads(file.read_text())}
    assert {name: row["calls"] for name, row in rows.items() if name in ("add", "relu")} == {"add": 2, "relu": 2}
    assert rows["add"]["counted_read"] == 2048 and rows["add"]["predicted_read"] == pytest.approx(2048)
    assert len(rows) == 4 and sum(row["calls"] for row in rows.values()) == 8
    printed = capsys.readouterr().out
    assert "tied to call sites: 83.3% of the time" in printed and "0.0 MB of cache" in printed

    assert main(["decode.py", "--work", str(work), "--cache-bytes", str(LARGE_CACHE), "--json", str(file)]) == 0
    assert all(row["predicted_read"] == 0 for row in json.loads(file.read_text()))


def test_output_without_counters_is_said_to_have_none(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / CSV).write_text("==ERROR== ERR_NVGPUCTRPERM\n")
    assert main(["decode.py", "--work", str(work), "--cache-bytes", "1"]) == 1
    assert "ncu counted no kernel" in capsys.readouterr().err


def test_units_are_read_and_kernels_without_the_counters_left_out() -> None:
    text = HEAD.replace('"byte","byte"', '"Kbyte","byte"') + '"0","1","k","1.5","2","1000"\n"1","1","l","n/a","2","1"\n'
    assert read_dram_traffic(text) == (DramTraffic("k", 1500.0, 2.0, pytest.approx(1e-6)),)
