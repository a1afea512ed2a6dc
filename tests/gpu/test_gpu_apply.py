"""Winners put back on a real GPU: pinned in every kind of kernel, proven in steps and in CUDA graphs, and refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from breakdown_runs import PROGRAMS, Done, apply, breakdown, environment

from inductor_bench.analysis.statistics import summarize
from inductor_bench.records.base import Category
from inductor_bench.records.retune import Config, MeasuredKernel, Retune, Tuning
from inductor_bench.records.run import Run
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows.pins import make_pins
from scripts.benchmark_apply import pin_nothing

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("gpu_apply")]

TRAINING = """
import os
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.LayerNorm(4096), nn.Linear(4096, 1024), nn.LayerNorm(1024))
model = model.cuda().half()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
compiled = torch.compile(model, mode=os.environ.get("MODE") or None)
inputs = torch.randn(8192, 1024, device="cuda", dtype=torch.float16)
for _ in range(int(os.environ.get("STEPS", "400"))):
    compiled(inputs).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
print("done")
"""

LAUNCHED = """
import sys
sys.path.insert(0, {tuned!r})
import json, torch, tuned
compile = torch.compile
torch.compile = lambda model, mode=None: compile(model, options=tuned.options())
exec(open({program!r}).read())
from torch._inductor.codecache import PyCodeCache
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
found = {{}}
for module in PyCodeCache.modules:
    for value in vars(module).values():
        if isinstance(value, CachingAutotuner) and len(value.launchers) == 1:
            config = value.launchers[0].config
            found[value.fn.__name__] = {{**config.kwargs, "num_warps": config.num_warps}}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "training.py"
    path.write_text(TRAINING)
    return path


@pytest.fixture(scope="module")
def retuned(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("retuned") / "run"
    words = ("--autotune", "coordesc", "--top", "8", "--remeasure", "--stop", "--", sys.executable, program)
    return breakdown(folder, *words)


def test_a_retune_ends_with_its_proof(retuned: Done) -> None:
    found = RunFolder(retuned.folder).load().verification
    assert retuned.code == 0 and found is not None, retuned.printed
    assert found.way == "steps" and found.step is not None and found.device is not None
    assert found.device.verdict == "saves"
    assert abs(found.device.saving_s - found.predicted_s) <= max(0.2 * found.device.saving_s, 0.2e-3)
    assert {kernel.state for kernel in found.kernels} <= {"pinned", "unpinnable"}
    assert found.outputs.graphs == 2 and found.outputs.tolerance is not None
    assert found.outputs.difference is not None and found.outputs.difference <= found.outputs.tolerance


def test_inductors_own_table_pins_what_it_can(retuned: Done, program: Path) -> None:
    assert apply(retuned.folder).code == 0
    tuned = retuned.folder / "tuned"
    table = json.loads((tuned / "lookup_table.json").read_text())
    pinned = make_pins(RunFolder(retuned.folder).load(), RunFolder(retuned.folder))
    script = LAUNCHED.format(tuned=str(tuned), program=str(program))
    variables = environment(STEPS="3")
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=variables, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    launched = json.loads(ended.stdout.splitlines()[-1])
    for pin in pinned.pins.triton_pins:
        if pin.key in table:
            expected = {name: value for name, value in pin.config.items() if name != "num_stages"}
            found = {name: launched[pin.name].get(name) for name in expected}
            if "R0_BLOCK" in expected:  # Inductor may halve it in a loop: config.dynamic_scale_rblock
                assert found.pop("R0_BLOCK") in (expected["R0_BLOCK"] // 2, expected.pop("R0_BLOCK")), pin.name
            assert found == expected, pin.name


def test_a_breakdown_of_the_tuned_program_shows_the_configs_that_it_runs(retuned: Done, program: Path) -> None:
    """The table stands in the program alone; a module's own run would choose Inductor's configs."""
    assert apply(retuned.folder).code == 0
    script = retuned.folder.parent / "tabled.py"
    lines = (
        f"import sys; sys.path.insert(0, {str(retuned.folder / 'tuned')!r}); import tuned, torch",
        "compile = torch.compile",
        "torch.compile = lambda model, mode=None: compile(model, options=tuned.options())",
        f"exec(open({str(program)!r}).read())",
    )
    script.write_text("\n".join(lines))
    done = breakdown(retuned.folder.parent / "tabled", "--stop", "--", sys.executable, script)
    table = json.loads((retuned.folder / "tuned" / "lookup_table.json").read_text())
    run = RunFolder(done.folder).load()
    shown = {one.name: one.compiled.config for module in run.modules for one in module.kernels}
    pins = make_pins(RunFolder(retuned.folder).load(), RunFolder(retuned.folder)).pins.triton_pins
    expected = {pin.name: pin.config for pin in pins if pin.key in table}
    assert expected
    for name, config in expected.items():
        found = dict(shown[name] or {})
        if "R0_BLOCK" in config:  # Inductor may halve it in a loop: config.dynamic_scale_rblock
            assert found.pop("R0_BLOCK") in (config["R0_BLOCK"] // 2, config["R0_BLOCK"]), name
        assert found == {key: value for key, value in config.items() if key != "R0_BLOCK"}, name


def test_cuda_graphs_are_compared_by_whole_processes(retuned: Done, program: Path) -> None:
    words = ("--verify", "--stop", "--format", "json", "--", sys.executable, program)
    done = apply(retuned.folder, *words, MODE="reduce-overhead")
    assert done.code == 0, done.printed
    found = json.loads(done.stdout)["verification"]
    assert found["way"] == "processes" and found["device"]["pairs"] == 2
    assert all(kernel["state"] in ("pinned", "unpinnable") for kernel in found["kernels"])


PRODUCT = """
import torch
import torch.nn.functional as F
import inductor_bench
torch.manual_seed(0)
x = torch.randn(256, 1024, device="cuda", dtype=torch.float16)
weight, bias = torch.randn(2048, 1024, device="cuda", dtype=torch.float16), torch.randn(2048, device="cuda").half()
run = torch.compile(lambda x: F.gelu(F.linear(x, weight, bias)) + 1)
for _ in range(400):
    result = run(x)
    inductor_bench.step()
torch.testing.assert_close(result, F.gelu(F.linear(x, weight, bias)) + 1, rtol=2e-2, atol=2e-1)
torch.cuda.synchronize()
"""


def test_inductors_choice_for_a_library_call_is_put_in_and_compared(tmp_path: Path) -> None:
    """The choice is said to have won; here it need not be faster."""
    script = tmp_path / "product.py"
    script.write_text(PRODUCT)
    words = ("--autotune", "max", "--top", "1", "--remeasure", "--no-verify", "--stop", "--", sys.executable, script)
    done = breakdown(tmp_path / "run", *words)
    folder = RunFolder(done.folder)
    record = folder.load()
    (retune,) = (one for one in record.retunes if one.category is Category.EXTERN_GEMM)
    assert retune.kernel is not None and retune.tuning is not None, done.printed
    ran = [one.config for one in retune.tuning.candidates if one.samples]
    tried = [config for config in ran if config.get("backend") == "triton"]
    won = replace(retune.tuning, verdict="faster", speedup=1.25, best_s=retune.tuning.default_s / 1.25)
    for config in (tried[0], tried[-1]):
        winner = replace(retune, kernel=replace(retune.kernel, tuning=replace(won, best_config=config)))
        folder.save(replace(record, retunes=(winner,)))
        applied = apply(folder.path, "--verify", "--stop", "--format", "json", "--", sys.executable, script)
        assert applied.code == 0, applied.printed
        found = json.loads(applied.stdout)["verification"]
        assert found["way"] == "processes"
        assert [(one["state"], one["config"]) for one in found["kernels"]] == [("pinned", config)], applied.printed
        again = apply(folder.path, "--", sys.executable, script)
        assert again.code == 0 and "1 of 1" in again.stderr, again.printed


def test_nothing_to_pin_makes_no_difference(retuned: Done, program: Path, tmp_path: Path) -> None:
    record = RunFolder(retuned.folder).load()
    folder = RunFolder(tmp_path / "same")
    folder.path.mkdir()
    folder.save(record)
    pin_nothing(folder)
    for _ in range(3):
        done = apply(folder.path, "--verify", "--stop", "--format", "json", "--", sys.executable, program)
        found = json.loads(done.stdout)["verification"]
        assert {found["step"]["verdict"], found["device"]["verdict"]} <= {"no difference", "undecided"}


def test_every_kind_of_triton_kernel_takes_a_pin(gpu_run: Path, tmp_path: Path) -> None:
    """Each kernel of the program with many kinds gets another config, whatever that does to its time.

    Max-autotune chooses templates by their times, so the program may compile others than the RUN has.
    """
    record = RunFolder(gpu_run).load()
    retunes = _other_configs(record)
    kinds = {retune.category for retune in retunes}
    assert kinds >= {Category.POINTWISE, Category.REDUCTION, Category.FOREACH, Category.USER_TRITON}
    folder = RunFolder(tmp_path / "warps")
    folder.kernels.mkdir(parents=True)
    folder.save(replace(record, retunes=retunes, program=None))
    ids = {retune.kernel_id for retune in retunes}
    for retune in retunes:
        assert retune.file is not None
        (folder.path / retune.file).write_text((gpu_run / retune.file).read_text())
    done = apply(folder.path, "--", sys.executable, PROGRAMS / "gpu_kinds.py")
    assert done.code == 0, done.printed
    kinds_missed = set(re.findall(r"^ +- (triton_[a-z]+)_\S*: the program did not compile", done.stderr, re.MULTILINE))
    assert kinds_missed <= {"triton_tem"}, done.stderr
    (taken,) = re.findall(rf"(\d+) of {len(ids)} kernels", done.stderr)
    assert int(taken) >= sum(retune.category is not Category.TEMPLATE for retune in retunes), done.stderr


def _other_config(config: Config) -> Config:
    if "BLOCK" in config:  # a user's kernel, whose grid is known for its author's two configs only
        return {**config, "BLOCK": 1024 if config["BLOCK"] == 256 else 256}
    return {**config, "num_warps": 8 if config["num_warps"] == 4 else 4}


def _other_configs(record: Run) -> tuple[Retune, ...]:
    found: dict[str, Retune] = {}
    for module in record.modules:
        for kernel in module.kernels:
            config = kernel.compiled.config
            is_triton = kernel.name.startswith("triton_") or kernel.category is Category.USER_TRITON
            if not config or not kernel.file or not is_triton:
                continue
            timing = summarize([1e-5] * 9)
            tuning = Tuning("max", "cold", (), 1, 2e-5, 1e-5, 2.0, "faster", _other_config(config))
            measured = MeasuredKernel(
                kernel.name, kernel.kernel_id, kernel.file, "", "", {}, timing, timing, "", tuning=tuning
            )
            found[kernel.kernel_id] = Retune(
                kernel.name, kernel.kernel_id, kernel.category, (module.label,), 1.0, 2e-5, kernel.file, "max", measured
            )
    return tuple(found.values())
