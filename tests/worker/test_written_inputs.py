"""Which compiled graphs write inputs for which Inductor refuses CUDA graphs, tried with torch."""

from __future__ import annotations

import json
from pathlib import Path

import forking_python
import pytest

PROGRAM = """
import json

import torch
from torch._inductor.output_code import CompiledFxGraph

from inductor_bench.worker.upstream.observing import describe_graph

found, original = {}, CompiledFxGraph.__call__


def called(self, inputs):
    found.setdefault(name, []).append(describe_graph(self).writes_inputs)
    return original(self, inputs)


CompiledFxGraph.__call__ = called
name = "counter"
torch.compile(lambda x, counter: x * counter.add_(1))(torch.ones(8), torch.zeros(8))
name = "statistics"
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)))
model(torch.randn(4, 8)).sum().backward()
print(json.dumps(found))
"""


def test_a_graph_that_writes_an_input_is_known_and_one_that_writes_its_buffers_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without vectors, torch 2.13 writes C++ for a batch norm that does not compile.
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = forking_python.run([str(tmp_path / "program.py")])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"counter": [True], "statistics": [False, False]}
