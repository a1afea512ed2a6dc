"""What a user gets: the module that applies the settings by itself, the lines to paste, and the change of the file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forking_python
import pytest
from tried_programs import optimization, two_winners

from inductor_bench.records.optimization import NOT_YET, ProgramSetting
from inductor_bench.report.optimization_document import write_headline
from inductor_bench.workflows.optimizing.optimized_files import (
    write_apply_module,
    write_lines_to_paste,
    write_readme,
    write_settings_diff,
)

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
    ProgramSetting("torch", "torch.set_float32_matmul_precision", "'medium'"),
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
torch.backends.cudnn.benchmark = torch._inductor.config.triton.cudagraphs = False
torch.backends.cuda.enable_math_sdp(False)
weight = torch.nn.Parameter(torch.zeros(3))
adam = torch.optim.AdamW([weight], foreach=True)
net = torch.nn.Conv2d(3, 8, 3)
compiled = torch.compile(net)
print(json.dumps({
    "cudagraphs": torch._inductor.config.triton.cudagraphs,
    "limit": torch._dynamo.config.recompile_limit,
    "benchmark": torch.backends.cudnn.benchmark,
    "products": torch.get_float32_matmul_precision(),
    "fused": adam.defaults["fused"], "foreach": adam.defaults["foreach"],
    "pinned": DataLoader([1]).pin_memory,
    "compile": seen,
    "math": torch.backends.cuda.math_sdp_enabled(),
    "order": torch._C._get_sdp_priority_order()[0],
    "tag": torch.compiler.config.cache_key_tag,
    "channels_last": net.weight.is_contiguous(memory_format=torch.channels_last),
    "variable": os.environ["SOME_VARIABLE"],
}))
"""


def test_the_module_applies_all_settings_without_this_tool(tmp_path: Path) -> None:
    (tmp_path / "apply.py").write_text(write_apply_module(optimization(two_winners()), SETTINGS))
    (tmp_path / "check.py").write_text(CHECK)
    assert "inductor_bench" not in (tmp_path / "apply.py").read_text()
    ended = forking_python.run([str(tmp_path / "check.py"), str(tmp_path)])
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == {
        "cudagraphs": True,
        "limit": 99,
        "benchmark": True,
        "products": "medium",
        "fused": True,
        "foreach": None,
        "pinned": True,
        "compile": {"dynamic": True},
        "math": True,
        "order": 0,
        "tag": " attention MATH,FLASH_ATTENTION;",
        "channels_last": True,
        "variable": "8",
    }


COMPILING = """
import json, os, sys
os.environ["TORCHDYNAMO_DISABLE"] = "0"
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch
compiled = []
own = torch.compile
torch.compile = lambda function, **_: compiled.append(function.__qualname__) or own(function, backend="eager")
import apply
apply.apply()

def loss_of(values, wanted):
    return (values - wanted).square().mean()

def step(values, by):
    def scaled(more):
        return values * by + more
    return [scaled(number).sum().item() for number in range(3)]

weight = torch.nn.Parameter(torch.ones(3))
adam = torch.optim.AdamW([weight], lr=0.1, foreach=True)
scheduler = torch.optim.lr_scheduler.StepLR(adam, 1, 0.5)
for _ in range(3):
    loss_of(weight, torch.zeros(3)).backward()
    adam.step()
    scheduler.step()
torch.nn.functional.cross_entropy(torch.ones(2, 2), torch.zeros(2, dtype=torch.long))
for _ in range(2):
    sums = step(weight.detach() * 0, 2)
print(json.dumps([sorted(compiled), float(adam.param_groups[0]["lr"]), sums, sys.getprofile()]))
"""


def test_functions_and_optimizers_are_compiled_by_the_module_alone(tmp_path: Path) -> None:
    program = tmp_path / "check.py"
    program.write_text(COMPILING)
    lines = COMPILING.splitlines()
    places = [
        (lines.index(text) + 1, name)
        for text, name in (
            ("    return (values - wanted).square().mean()", "loss_of"),
            ("        return values * by + more", "scaled"),
        )
    ]
    settings = [ProgramSetting("function", f"{program}:{line}:{name}", "True") for line, name in places]
    settings += [
        ProgramSetting("function", "torch.nn.functional.cross_entropy", "True"),
        ProgramSetting("optimizer", "compiled", "True"),
    ]
    (tmp_path / "apply.py").write_text(write_apply_module(optimization(two_winners()), settings))
    ended = forking_python.run([str(program)])
    assert ended.returncode == 0, ended.stderr
    compiled, rate, sums, profile = json.loads(ended.stdout.splitlines()[-1])
    assert compiled == ["Adam.step", "cross_entropy", "loss_of", "step.<locals>.scaled"]
    assert rate == pytest.approx(0.0125) and sums == [0, 3, 6] and profile is None


def test_a_call_of_a_function_of_another_name_is_told_by_its_name_alone() -> None:
    """Each call of the process is looked at: torch's compiler, which makes millions, would start a minute later."""
    module: dict[str, Any] = {}
    settings = [ProgramSetting("function", "/train.py:7:loss_of", "True")]
    exec(write_apply_module(optimization(two_winners()), settings), module)
    module["WANTED"].append(("/train.py", 7, "loss_of"))
    module["watch"](SimpleNamespace(f_code=SimpleNamespace(co_name="other")), "call", None)


ATTENDING = """
import sys
import torch
flash, *folder = sys.argv[1:]
if folder:
    sys.path.insert(0, folder[0])
    import apply
    apply.apply()
torch.backends.cuda.enable_flash_sdp(flash == "flash")
compiled = torch.compile(lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x))
x = torch.ones(1, 2, 64, 16)
with torch.no_grad():
    compiled(x)
    with torch.profiler.profile() as profile:
        compiled(x)
print(any("flash" in event.key for event in profile.key_averages()))
"""


def test_a_graph_in_torchs_cache_does_not_keep_the_backend_of_attention(tmp_path: Path) -> None:
    settings = [ProgramSetting("attention", "backends", "'FLASH_ATTENTION,MATH'")]
    (tmp_path / "apply.py").write_text(write_apply_module(optimization(two_winners()), settings))
    (tmp_path / "attend.py").write_text(ATTENDING)
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "TORCHDYNAMO_DISABLE": "0"}
    for arguments, found in ((["math"], "False"), (["math", str(tmp_path)], "True"), (["math"], "False")):
        ended = forking_python.run([str(tmp_path / "attend.py"), *arguments], **variables)
        assert ended.stdout.splitlines()[-1:] == [found], ended.stderr
    lines = "\n".join(write_lines_to_paste(settings))
    assert "torch.compiler.config.cache_key_tag += ' attention FLASH_ATTENTION,MATH;'" in lines
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "observed-cache")
    for flash, found in (("math", "False"), ("flash", "True"), ("math", "False")):
        ended = forking_python.run(
            [str(tmp_path / "attend.py"), flash],
            **variables,
            INDUCTOR_BENCH_CAPTURE=tmp_path,
            INDUCTOR_BENCH_OBSERVE="nothing",
        )
        assert ended.stdout.splitlines()[-1:] == [found], ended.stderr


def test_a_hostile_title_stays_a_text() -> None:
    found = optimization(two_winners(), title='x"""\nimport os\n"""')
    names = [line for line in write_apply_module(found, ()).splitlines() if line.startswith("import")]
    assert names == [f"import {name}" for name in ("functools", "gc", "importlib", "inspect", "os", "sys", "types")]


def test_each_setting_has_a_line() -> None:
    lines = list(write_lines_to_paste(SETTINGS))
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
    text = write_settings_diff(
        file, [one for one in SETTINGS if one.kind in ("inductor", "torch", "optimizer", "compile")]
    )
    for line in (
        "+torch._inductor.config.triton.cudagraphs = True",
        "+torch.backends.cudnn.benchmark = True",
        "+torch.set_float32_matmul_precision('medium')",
        "+model = torch.compile(net, dynamic=True)",
        "+optimizer = torch.optim.SGD(p, 0.1, fused=True)",
    ):
        assert line in text.splitlines()
    assert write_settings_diff(file, SETTINGS) == "" and write_settings_diff(tmp_path / "gone.py", SETTINGS[:1]) == ""


PROGRAM = """import torch
import torch.nn.functional as F
from layers import penalty


def loss_of(outputs, targets):
    return F.mse_loss(outputs, targets)


optimizer = torch.optim.AdamW(p, 1e-3, foreach=False)
"""

LAYERS = """import torch


class Norm:
    @torch.no_grad()
    def scaled(self, x):
        return x * 2


def penalty(x):
    return x
"""


def test_functions_get_a_decorator_in_their_files_and_an_optimizer_a_compiled_step(tmp_path: Path) -> None:
    file, other = tmp_path / "train.py", tmp_path / "app" / "layers.py"
    other.parent.mkdir()
    file.write_text(PROGRAM)
    other.write_text(LAYERS)
    settings = [
        ProgramSetting("function", f"{file}:7:loss_of", "True"),
        ProgramSetting("function", f"{other}:7:scaled", "True"),
        ProgramSetting("function", "torch.nn.functional.mse_loss", "True"),
        ProgramSetting("optimizer", "compiled", "True"),
    ]
    text = write_settings_diff(file, settings)
    assert "+@torch.compile\n+def loss_of" in text and "@torch.no_grad()\n+    @torch.compile\n" in text
    assert "+compiled_mse_loss = torch.compile(torch.nn.functional.mse_loss)" in text
    assert "+    return compiled_mse_loss(outputs, targets)\n" in text
    assert "--- a/app/layers.py\n" in text
    call = "optimizer = torch.optim.AdamW(p, torch.tensor(1e-3), foreach={}{})"
    assert f"+{call.format(True, ', capturable=True')}\n" in text
    assert f"+{call.format(False, '')}\n" in write_settings_diff(file, settings, on_host=True)
    compiled = "torch.compile(type(optimizer).step, options={'triton.cudagraphs': False})"
    assert f"+optimizer.step = {compiled}.__get__(optimizer)\n" in text
    assert any(
        "@torch.compile  # above def loss_of, which has line 7" in line for line in write_lines_to_paste(settings)
    )
    assert write_settings_diff(file, [ProgramSetting("function", f"{file}:7:missing", "True")]) == ""


def test_private_modules_of_torch_are_imported_before_they_are_set() -> None:
    budget = ProgramSetting("torch", "torch._functorch.config.activation_memory_budget", "0.5")
    lines = ["import torch._functorch.config", "torch._functorch.config.activation_memory_budget = 0.5"]
    assert list(write_lines_to_paste([budget])) == lines


@pytest.mark.parametrize("text", ["import torch\nx = 1\n", "import torch\ntorch.optim.SGD(a)\ntorch.optim.SGD(b)\n"])
def test_a_file_without_one_clear_call_is_left_alone(text: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(text)
    assert write_settings_diff(file, [SETTINGS[3]]) == ""


FUSED, COMPILED = (ProgramSetting("optimizer", name, "True") for name in ("fused", "compiled"))


@pytest.mark.parametrize(
    ("optimizers", "lines"),
    [
        (("torch.optim.Adam",), ["optimizer = torch.optim.Adam(…, fused=True)"]),
        (("torch.optim.LBFGS", "torch.optim.SGD"), ["optimizer = torch.optim.SGD(…, fused=True)"]),
        (("MyAdam",), ["optimizer = MyAdam(…, fused=True)"]),
        ((), ["# the optimizer gets fused=True where it is made"]),
    ],
)
def test_the_lines_name_the_optimizers_of_the_program(optimizers: tuple[str, ...], lines: list[str]) -> None:
    assert list(write_lines_to_paste([FUSED], optimizers)) == lines


def test_only_what_can_count_on_the_device_is_told_to() -> None:
    first, *_ = write_lines_to_paste([COMPILED], ("torch.optim.SGD",))
    assert first == "optimizer = torch.optim.SGD(…, lr=torch.tensor(…))"
    first, *_ = write_lines_to_paste([COMPILED], ("torch.optim.Adam",))
    assert first.startswith("optimizer = torch.optim.Adam(…, lr=torch.tensor(…), capturable=True)")


def test_calls_of_other_optimizers_than_the_programs_stay(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch\na = torch.optim.Adam(p)\nb = torch.optim.AdamW(p)\n")
    added = [
        line for line in write_settings_diff(file, [FUSED], ["torch.optim.Adam"]).splitlines() if line.startswith("+")
    ]
    assert added == ["+++ b/train.py", "+a = torch.optim.Adam(p, fused=True)"]
    assert (
        write_settings_diff(file, [FUSED], ["torch.optim.SGD"]) == write_settings_diff(file, [FUSED], ["MyAdam"]) == ""
    )


def test_the_page_names_the_diff_only_if_there_is_one(tmp_path: Path) -> None:
    found = optimization(two_winners())
    assert "settings.diff" not in write_readme(found, [FUSED], tmp_path)
    assert "settings.diff" in write_readme(found, [FUSED], tmp_path, has_diff=True)


def test_the_page_and_the_module_say_what_the_first_line_of_the_screen_says(tmp_path: Path) -> None:
    found = optimization(two_winners())
    said = write_headline(found).partition(". 5 settings tried")[0]
    assert " a step if you run the program with these settings (" in said
    assert write_readme(found, [FUSED], tmp_path).splitlines()[2] == f"{said}."
    assert f"{said}." in write_apply_module(found, [FUSED])
    open_result = replace(found, winner=replace(found.winner, alone=None, from_start=NOT_YET))
    assert (
        write_readme(open_result, [FUSED], tmp_path)
        .splitlines()[2]
        .endswith("not yet confirmed in new processes that start with the settings.")
    )
