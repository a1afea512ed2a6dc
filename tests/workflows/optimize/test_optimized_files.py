"""What a user gets: the module that applies the settings by itself, the lines to paste, and the change of the file."""

from __future__ import annotations

import json
from pathlib import Path

import forking_python
import pytest
from tried_programs import optimization, two_winners

from inductor_bench.records.optimization import ProgramSetting
from inductor_bench.workflows.optimizing.optimized_files import diff_of, lines_of, module_text

SETTINGS = (
    ProgramSetting("inductor", "triton.cudagraphs", "True"),
    ProgramSetting("dynamo", "recompile_limit", "99"),
    ProgramSetting("torch", "torch.backends.cudnn.benchmark", "True"),
    ProgramSetting("optimizer", "fused", "True"),
    ProgramSetting("loader", "pin_memory", "True"),
    ProgramSetting("layout", "channels_last", "True"),
    ProgramSetting("compile", "dynamic", "True"),
    ProgramSetting("attention", "backends", "'MATH,FLASH_ATTENTION'"),
    ProgramSetting("environment", "SOME_VARIABLE", "'8'"),
    ProgramSetting("pins", "INDUCTOR_BENCH_PINS", "'/x'"),
)

CHECK = """
import json, os, sys
import torch
from torch.utils.data import DataLoader
sys.path.insert(0, sys.argv[1])
import apply
seen = {}
torch.compile = lambda model, **keywords: seen.update(keywords) or model
apply.apply()
import torch._inductor.config, torch._dynamo.config
weight = torch.nn.Parameter(torch.zeros(3))
adam = torch.optim.AdamW([weight], foreach=True)
net = torch.nn.Conv2d(3, 8, 3)
compiled = torch.compile(net)
print(json.dumps({
    "cudagraphs": torch._inductor.config.triton.cudagraphs,
    "limit": torch._dynamo.config.recompile_limit,
    "benchmark": torch.backends.cudnn.benchmark,
    "fused": adam.defaults["fused"], "foreach": adam.defaults["foreach"],
    "pinned": DataLoader([1]).pin_memory,
    "compile": seen,
    "order": torch._C._get_sdp_priority_order()[0],
    "channels_last": net.weight.is_contiguous(memory_format=torch.channels_last),
    "variable": os.environ["SOME_VARIABLE"],
}))
"""


def test_the_module_applies_all_settings_without_this_tool(tmp_path: Path) -> None:
    (tmp_path / "apply.py").write_text(module_text(optimization(two_winners()), SETTINGS))
    (tmp_path / "check.py").write_text(CHECK)
    assert "inductor_bench" not in (tmp_path / "apply.py").read_text()
    ended = forking_python.run([str(tmp_path / "check.py"), str(tmp_path)])
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == {
        "cudagraphs": True,
        "limit": 99,
        "benchmark": True,
        "fused": True,
        "foreach": None,
        "pinned": True,
        "compile": {"dynamic": True},
        "order": 0,
        "channels_last": True,
        "variable": "8",
    }


def test_a_hostile_title_stays_a_text() -> None:
    found = optimization(two_winners(), title='x"""\nimport os\n"""')
    names = [line for line in module_text(found, ()).splitlines() if line.startswith("import")]
    assert names == ["import functools", "import inspect", "import os"]


def test_each_setting_has_a_line() -> None:
    lines = list(lines_of(SETTINGS))
    for words in (
        "config.triton.cudagraphs = True",
        "benchmark = True",
        "fused=True",
        "pin_memory=True",
        "dynamic=True",
    ):
        assert any(words in line for line in lines), words
    for words in (
        "SDPBackend.MATH, SDPBackend.FLASH_ATTENTION",
        "channels_last",
        "export SOME_VARIABLE=8",
        "apply RUN",
    ):
        assert any(words in line for line in lines), words


def test_a_file_is_changed_only_if_each_setting_has_a_place_in_it(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch\n\nmodel = torch.compile(net)\noptimizer = torch.optim.SGD(p, 0.1)\n")
    text = diff_of(file, [one for one in SETTINGS if one.kind in ("inductor", "torch", "optimizer", "compile")])
    for line in (
        "+torch._inductor.config.triton.cudagraphs = True",
        "+torch.backends.cudnn.benchmark = True",
        "+model = torch.compile(net, dynamic=True)",
        "+optimizer = torch.optim.SGD(p, 0.1, fused=True)",
    ):
        assert line in text.splitlines()
    assert diff_of(file, SETTINGS) == "" and diff_of(tmp_path / "gone.py", SETTINGS[:1]) == ""


@pytest.mark.parametrize("text", ["import torch\nx = 1\n", "import torch\ntorch.optim.SGD(a)\ntorch.optim.SGD(b)\n"])
def test_a_file_without_one_clear_call_is_left_alone(text: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(text)
    assert diff_of(file, [SETTINGS[3]]) == ""
