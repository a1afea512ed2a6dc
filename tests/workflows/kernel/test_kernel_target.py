"""Triton candidates: which there are, and what they compile to for a GPU that is not here."""

from __future__ import annotations

import importlib.util
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Tool
from documented import documented
from source_data import CPU, GPU, module_of, text_of

from inductor_bench.autotune.variants import triton_variants
from inductor_bench.devices.nvidia import ARCHITECTURES
from inductor_bench.errors import InductorBenchError
from inductor_bench.launch.worker import WorkerSession, default_python
from inductor_bench.messages.job_requests import Pretend
from inductor_bench.messages.kernel_requests import ListTritonConfigs, Load, TritonConfigs
from inductor_bench.records.extraction import ExtractedKernel
from inductor_bench.source.static_launches import read_static_launches
from inductor_bench.worker.upstream.triton_compiler import pretend_gpu
from inductor_bench.workflows.modules.extraction import ModuleKernels, list_candidates
from inductor_bench.workflows.modules.kernel_files import write_kernels

HAS_TRITON = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="needs triton")


def extract(name: str, folder: Path, data: Path = GPU) -> list[ExtractedKernel]:
    """The standalone files of a recorded module."""
    source = module_of(data / f"{name}.py")
    launches = read_static_launches(text_of(data / f"{name}.py"), source)
    folder.mkdir(exist_ok=True)
    return list(write_kernels(list_candidates(ModuleKernels("graph", "model", source, launches)), folder, {}))


class Worker:
    """Asks a worker that pretends to be on an H100."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton"), "CUDA_VISIBLE_DEVICES": ""}
        self.session = WorkerSession(default_python(), folder, environment, log=folder / "log")
        self.session.ask(Pretend(ARCHITECTURES["sm_90"]), 120)
        self.loaded = 0

    def configs(self, file: Path) -> TritonConfigs:
        self.loaded += 1
        self.session.ask(Load(self.loaded, str(file)), 120)
        return self.session.ask(ListTritonConfigs(self.loaded), 120)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    made = Worker(tmp_path_factory.mktemp("worker"))
    yield made
    made.session.close()


@pytest.mark.slow
@needs_triton
def test_the_candidates_of_a_real_model_are_those_that_inductor_has(worker: Worker, tmp_path: Path) -> None:
    """The counts were taken by hand from the same module: of 522 configurations, 937 with max-autotune."""
    rows = [row for row in extract("mixnet_l_train/forward", tmp_path) if row.name.startswith("triton_")]
    found = {name: worker.configs(tmp_path / name) for name in sorted({str(row.file) for row in rows})}
    kinds: Counter[tuple[str, int, bool]] = Counter()
    default = most = 0
    for row in rows:
        candidates = found[str(row.file)]
        variants = triton_variants(candidates)
        default, most = default + len(variants.default), most + len(variants.max)
        kinds[row.category.value, len(variants.ladders) - 1, variants.same_candidate_set] += 1
        assert variants.now in variants.default
        beyond = list(variants.around(variants.now))
        assert len(beyond) < 500 and {frozenset(one.items()) for one in variants.max} - {
            frozenset(variants.now.items())
        } <= {frozenset(one.items()) for one in beyond}
    assert len(rows) == 245 and (default, most) == (522, 937)
    assert kinds == {
        ("pointwise", 1, True): 115,
        ("pointwise", 2, True): 28,
        ("pointwise", 2, False): 42,
        ("reduction", 2, False): 33,
        ("reduction", 2, True): 5,
        ("persistent_reduction", 1, False): 19,
        ("persistent_reduction", 1, True): 3,
    }
    assert sum(count for (_, _, same), count in kinds.items() if same) == 151


@needs_triton
@pytest.mark.parametrize(
    ("name", "start", "fields", "counts", "limits"),
    [
        ("samples/foreach", "triton_for", {"num_warps"}, (1, 4), "its block size is part of its text"),
        ("samples/user", "add_kernel", {"num_warps", "num_stages"}, (1, 1), "its author's"),
        ("tem", "triton_tem", {"num_warps", "num_stages"}, (1, 1), "mode='max-autotune'"),
        ("samples/cooperative", "triton_unk", {"XBLOCK", "R0_BLOCK", "num_warps"}, (1, 4), "its RSPLIT stays"),
        ("samples/scan", "triton_spl", {"R0_BLOCK", "num_warps"}, (1, 4), ""),
        ("samples/combo", "triton_per", {"XBLOCK", "num_warps"}, (1, 2), ""),
    ],
)
def test_what_cannot_be_varied_is_said(
    worker: Worker, tmp_path: Path, name: str, start: str, fields: set[str], counts: tuple[int, int], limits: str
) -> None:
    extract(f"{name}/module_0", tmp_path)
    found = worker.configs(sorted(tmp_path.glob(f"{start}*.py"))[0])
    assert set(found.ladders) == fields
    assert (len(found.default), len(found.max)) == counts
    assert limits in found.limits and bool(limits) == bool(found.limits)
    if start == "triton_spl":  # its workspace has room for blocks of 256 and more
        assert min(found.ladders["R0_BLOCK"]) == 256
    assert all(found.now[field] in values == tuple(sorted(values)) for field, values in found.ladders.items())


@needs_triton
def test_a_target_lists_what_candidates_compile_to(tool: Tool, tmp_path: Path) -> None:
    extract("tem/module_0", tmp_path / "k")
    extract("samples/scan/module_0", tmp_path / "k")
    (scan,) = (tmp_path / "k").glob("triton_spl*.py")
    broken = tmp_path / "k" / "a_broken.py"
    broken.write_text(scan.read_text(encoding="utf-8").replace("tl.store(", "tl.stoer("), encoding="utf-8")
    (tmp_path / "k" / "b_text.py").write_text("print('no kernel')\n", encoding="utf-8")
    ended = tool("kernel", "-q", "k", "--target", "sm_86", "--autotune", "--format", "json")
    assert ended.returncode == 1, ended.stderr
    told = json.loads(ended.stdout)
    (failure,) = told["failures"]
    assert told["others"] == len(list((tmp_path / "k").glob("aten_*.py"))) > 0
    assert failure["subject"] == "k/b_text.py" and "not a standalone kernel file" in failure["message"]
    rows = {kernel["file"]: kernel["tuning"] for kernel in told["kernels"]}
    assert {row["status"] for row in rows["k/a_broken.py"]["candidates"]} == {"refused"}
    assert all("stoer" in row["reason"] for row in rows["k/a_broken.py"]["candidates"])
    (template,) = rows["k/triton_tem_fused_add_gelu_mm_1.py"]["candidates"]
    assert template["status"] == "refused" and "KiB of shared memory, a block of sm_86 has 99" in template["reason"]
    assert rows["k/triton_tem_fused_add_gelu_mm_1.py"]["same_candidate_set"] is True
    candidates = rows[f"k/{scan.name}"]["candidates"]
    assert [row["status"] for row in candidates] == ["default", "compiled", "compiled", "compiled"]
    for row in candidates:
        assert 8 <= row["registers"] <= 255 and row["spills"] == 0 and row["binary_bytes"] > 1000
        assert row["instructions"] > 20 and row["median_s"] is None
        assert 0 < row["shared_memory_bytes"] <= 64


@needs_triton
def test_a_target_is_shown_as_a_table(tool: Tool, tmp_path: Path) -> None:
    extract("samples/foreach/module_0", tmp_path / "k")
    places = {"k.py": "k/triton_for_fused_0.py"}
    ended = tool(*documented("inductor-bench kernel k.py --target sm_90 --autotune", places), "-q", COLUMNS="100")
    assert ended.returncode == 0, ended.stderr
    lone = tmp_path / "k" / "triton_for_fused_0.py"
    lone.write_text(lone.read_text(encoding="utf-8").replace("tl.store(", "tl.stoer("), encoding="utf-8")
    assert tool("kernel", "-q", lone, "--target", "sm_90").returncode == 1  # there is nothing that compiles
    lines = ended.stdout.splitlines()
    assert max(map(len, lines)) <= 100 and "1 kernel compiled for sm_90, as on H100" in lines[0]
    assert "max-autotune: 1 → 4 configs" in ended.stdout and "all with num_stages=1" in ended.stdout
    assert [line.split()[1] for line in lines if line.endswith("num_warps=8")] == ["default"]
    assert "only num_warps varies" in ended.stdout


@needs_triton
def test_a_cpp_kernel_has_no_target(tool: Tool, tmp_path: Path) -> None:
    extract("forward", tmp_path / "k", CPU)
    file = sorted((tmp_path / "k").glob("cpp_*.py"))[0]
    ended = tool("kernel", "-q", file, "--target", "sm_90")
    assert ended.returncode == 1 and "no Triton kernel in 1 file" in ended.stderr


def test_without_triton_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InductorBenchError, match="compiles with triton, which this Python does not have"):
        pretend_gpu(ARCHITECTURES["sm_90"])


@pytest.mark.skipif(HAS_TRITON, reason="needs a Python without triton")
def test_without_triton_the_command_says_so(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("", encoding="utf-8")
    ended = tool("kernel", "-q", "k.py", "--target", "sm_90")
    assert ended.returncode == 1 and not ended.stdout
    assert ended.stderr.splitlines() == [
        "Error: --target compiles with triton, which this Python does not have",
        "Hint: pip install triton, or name a Python that has it with --python",
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--target", "sm_91"), "sm_91 is no target that is known here"),
        (("--target", "sm_90", "--autotune", "coordesc"), "--autotune coordesc follows times"),
        (("--target", "sm_90", "--save", "x.py"), "--save makes no sense with --target"),
        (("--target", "sm_90", "--compare", "k.py"), "--compare makes no sense with --target"),
        (("--target", "sm_90", "--state", "cold"), "--state makes no sense with --target"),
        (("--target", "sm_90", "--no-check"), "makes no sense with --target"),
    ],
)
def test_what_a_target_does_not_go_with(tool: Tool, tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    (tmp_path / "k.py").write_text("", encoding="utf-8")
    ended = tool("kernel", "k.py", *options)
    assert ended.returncode == 2 and words in ended.stderr and "Hint: " in ended.stderr
    assert "Traceback" not in ended.stderr
