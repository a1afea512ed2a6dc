"""Observes blocks of itself: a whole one; one under the program's own profiler, which ends with an exception; one whose
process dies; and one in the folder that it left. Writes what it saw of them into ``seen.json``.

Usage: blocks.py FOLDER
"""

import json
import os
import sys
import warnings
from pathlib import Path

import torch
from torch._inductor import config
from torch._inductor.output_code import CompiledFxGraph

import inductor_bench
from inductor_bench.errors import InductorBenchError

sys.executable = os.environ.get("INDUCTOR_BENCH_TESTS_PYTHON") or sys.executable
folder = Path(sys.argv[1])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.LayerNorm(64), torch.nn.GELU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(16, 32)
seen = {}


def state():
    """What a block changes in a process, and has to put back."""
    return (
        torch.compile,
        vars(CompiledFxGraph)["__call__"],
        config.benchmark_kernel,
        config.cpp.enable_kernel_profile,
        len(inductor_bench.step_marks.listeners),
        "INDUCTOR_BENCH_CAPTURE" in os.environ,
    )


def train(compiled, run, most=2000):
    for _ in range(most):
        optimizer.zero_grad()
        compiled(inputs).pow(2).mean().backward()
        optimizer.step()
        if run.is_measured:
            break


before = state()
with inductor_bench.observe(folder / "whole", samples=False) as run:
    compiled = torch.compile(model)
    seen["early"] = str(run)
    try:
        with inductor_bench.observe(folder / "nested"):
            pass
    except InductorBenchError as error:
        seen["nested"] = error.message
    train(compiled, run)
    seen["measured"] = run.is_measured
seen["undone"] = state() == before
seen["screen"], seen["page"], seen["headline"] = str(run), run._repr_html_(), run.headline
seen["step_time_s"], seen["all"] = run.step_time_s, run.kernels["*"].time_s
seen["cpp"], seen["products"] = run.kernels["cpp_*"].calls, run.kernels["aten::*mm"].calls

with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    try:
        with torch.profiler.profile() as profiler, inductor_bench.observe(folder / "profiled", samples=False) as run:
            train(compiled, run, most=12)
            raise RuntimeError("the training failed")
    except RuntimeError as error:
        seen["raised"] = str(error)
seen["warned"] = [str(one.message) for one in warned]
seen["profiled"] = [failure.text for failure in run.failures]
seen["own events"] = len(profiler.events())
seen["undone again"] = state() == before

child = os.fork()
if child == 0:
    with inductor_bench.observe(folder / "dead") as run:
        os._exit(9)
os.waitpid(child, 0)
try:
    with inductor_bench.observe(folder / "dead"):
        pass
except InductorBenchError as error:
    seen["in use"] = [error.message, error.hint]
block = inductor_bench.observe(folder / "dead", force=True, samples=False)
block.yields = True
left = block.__enter__()
os.environ["RANK"] = "1"
with inductor_bench.observe(folder / "other") as run:
    seen["other rank"] = [str(run), run.is_measured, run.folder]
os.environ["RANK"] = "0"
try:
    with inductor_bench.observe(folder / "next", samples=False) as run:
        raise KeyError("left")
except KeyError:
    seen["left"] = [left.headline, run.headline]
(folder / "seen.json").write_text(json.dumps(seen, default=str))
