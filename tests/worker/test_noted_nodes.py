"""The nodes that torch notes of Triton kernels, with what the observed process adds: compiled for a GPU without one."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
from breakdown_runs import scratch

from inductor_bench.records.code import CapturedCode
from inductor_bench.source.module_reader import read_module
from inductor_bench.source.structured_trace import read_structured_trace

pytestmark = pytest.mark.slow

VERSION = tuple(int(part) for part in importlib.metadata.version("torch").split(".")[:2])
WITH_REDUCTIONS = pytest.mark.skipif(VERSION < (2, 11), reason="torch reduces rows and columns apart")


@functools.cache
def compiled() -> dict[str, CapturedCode]:
    """The modules by the class of the compiled object and their role."""
    folder = scratch() / "noted-nodes"
    folder.mkdir()
    variables = {
        "CUDA_VISIBLE_DEVICES": "",
        "INDUCTOR_BENCH_CAPTURE": str(folder),
        "INDUCTOR_PROVENANCE": "1",
        "TORCH_TRACE": str(folder / "trace"),
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        "TORCHINDUCTOR_MIX_ORDER_REDUCTION": "1",
    }
    script = Path(__file__).parent.parent / "support" / "gpu_offline.py"
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env={**os.environ, **variables}, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    codes = read_structured_trace(folder / "trace").codes
    return {f"{code.compiled_name.partition('.')[0]} {code.role}": code for code in codes}


@WITH_REDUCTIONS
def test_every_call_of_a_backward_with_reductions_of_rows_and_columns_has_its_modules_and_lines() -> None:
    code = compiled()["Net backward"]
    source = read_module(code.text)
    both = {kernel.name for kernel in source.kernels if "MixOrderReductionGrid" in kernel.source}
    assert len(both) == 2 and {call.target for call in source.calls} >= both
    for call in source.calls:
        shares = code.layers.kernels[call.handle or ""]
        assert sum(one.share for one in shares) == pytest.approx(1), call.target
        assert all(one.layer.startswith("Net") and one.direction != "forward" for one in shares), call.target
        assert code.stack_traces[call.handle or ""], call.target


@WITH_REDUCTIONS
def test_each_sum_of_partial_results_belongs_to_the_module_whose_gradient_it_is() -> None:
    code = compiled()["Net backward"]
    sums = [call for call in read_module(code.text).calls if call.target.startswith("workspace_")]
    assert [(call.target, call.operator) for call in sums] == [
        *[("workspace_0.sum", "aten.sum")] * 2,
        *[("workspace_1.sum", "aten.sum")] * 2,
    ]
    layers = [{one.layer for one in code.layers.kernels[call.handle or ""]} for call in sums]
    assert layers == [{"Net.out"}, {"Net.out"}, {"Net.norm"}, {"Net.norm"}], "not to the gelu of the same kernel"
    assert all(share.flops == 0 for call in sums for share in code.layers.kernels[call.handle or ""])


def test_a_kernel_for_a_list_has_the_nodes_of_its_fused_parts() -> None:
    code = compiled()["Optimizer inference"]
    (call,) = read_module(code.text).calls
    assert {one.layer for one in code.layers.kernels[call.handle or ""]} == {"Optimizer"}
    assert {line.code for line in code.stack_traces[call.handle or ""]} == {
        "torch._foreach_mul_(self.means, 0.9)",
        "torch._foreach_add_(self.means, self.steps, alpha=0.1)",
        "torch._foreach_add_(self.values, self.means, alpha=-0.01)",
    }
