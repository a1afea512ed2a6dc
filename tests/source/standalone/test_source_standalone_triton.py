"""Standalone Triton files: their text, the arguments that they make, and that each compiles for an H200."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from source_data import GPU, module_of, text_of

from inductor_bench.records.base import Category
from inductor_bench.records.code import Argument, KernelDefinition, Launch, Storage, TensorView, Values
from inductor_bench.source.harness import common, triton_definition
from inductor_bench.source.harness import common as harness
from inductor_bench.source.harness.triton_main import TritonKernel
from inductor_bench.source.standalone_header import StandaloneHeader, UnwritableKernelError
from inductor_bench.source.standalone_writer import extract_kernel_source, name_file, write_file_text
from inductor_bench.source.static_calls import read_static_launches
from inductor_bench.store import codec

SOURCE = '''
import triton
from torch._inductor.runtime import triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties
from torch._dynamo.testing import rand_strided

@triton_heuristics.pointwise(
    filename=__file__,
    triton_meta={'device': DeviceProperties(type='cuda', index=3, multi_processor_count=132, cc=90), 'é': 1},
)
@triton.jit
def scale(in_ptr0):
    """Triple "quotes" and a \\\\ backslash."""
    pass

def get_args():
    return ()

if __name__ == '__main__':
    call(get_args())
'''
MODULES = (
    *(
        f"samples/{name}/module_0"
        for name in (
            "attention",
            "combo",
            "combo_fixed",
            "cooperative",
            "dynamic",
            "foreach",
            "multi",
            "partition",
            "scan",
            "user",
            "wrapper",
        )
    ),
    *(f"gpu_kinds/{name}" for name in ("0_forward", "0_backward", "2_inference", "3_inference", "4_inference")),
    "tem/module_0",
    "flex/module_0",
)
KINDS = {
    "pointwise", "reduction", "persistent_reduction", "cooperative_reduction", "split_scan", "foreach", "combo",
    "template", "user_triton",
}  # fmt: skip


def view(storage: int, count: int, dtype: str = "float32", offset: int = 0) -> Argument:
    size = getattr(torch, dtype).itemsize
    return Argument("tensor", tensor=TensorView(storage, offset, (count,), (1,), dtype, size))


def storage(size: int, values: Values, dtype: str = "float32", alignment: int = 256) -> Storage:
    return Storage(size, dtype, "cuda", alignment, values)


def launch_of(*arguments: Argument, storages: tuple[Storage, ...] = (), mutated: tuple[int, ...] = ()) -> Launch:
    return Launch("k", None, 1, (0,), storages, arguments, mutated=mutated)


def definition(source: str = SOURCE, name: str = "scale") -> KernelDefinition:
    return KernelDefinition(name, name, "0123456789abcdef", Category.POINTWISE, "triton", source, 1)


def write(kernel: KernelDefinition, launch: Launch, **header: Any) -> str:
    told = StandaloneHeader(kernel.name, kernel.kernel_id, kernel.category, **header)
    return write_file_text(told, launch, {"launch": codec.encode(launch)}, kernel)


def every_kernel() -> dict[str, str]:
    """The standalone files of all kinds of recorded kernels, by a file name."""
    files: dict[str, str] = {}
    for name in MODULES:
        module = module_of(GPU / f"{name}.py")
        launches = {each.kernel: each for each in read_static_launches(text_of(GPU / f"{name}.py"), module)}
        for kernel in module.kernels:
            if kernel.language == "triton" and kernel.name in launches:
                files[name_file(kernel.name, kernel.kernel_id, files)] = write(kernel, launches[kernel.name])
    return files


def facts_of(text: str) -> dict[str, Any]:
    """What a standalone file has recorded, which is its first assignment."""
    begin = text.index("\nRECORDED = ")
    (recorded,) = ast.parse(text[begin : text.index("\n}\n", begin) + 2]).body
    assert isinstance(recorded, ast.Assign)
    facts: dict[str, Any] = ast.literal_eval(recorded.value)
    return facts


def test_the_kernel_is_kept_but_for_its_harness_and_its_device() -> None:
    source, name, names = extract_kernel_source(SOURCE)
    assert name == "scale" and names == {"scale"}
    kept = source.replace(
        "this_device(DeviceProperties(type='cuda', index=3, multi_processor_count=132, cc=90))",
        "DeviceProperties(type='cuda', index=3, multi_processor_count=132, cc=90)",
    )
    assert kept != source and kept in SOURCE.replace("from torch._dynamo.testing import rand_strided\n", "")
    assert "get_args" not in source and "__main__" not in source


def test_hostile_names_stay_inside_of_the_header_and_of_the_folder() -> None:
    name = "a/../..\\\"\"\"\nimport os\n''' %s \0"
    text = write(definition(name=name), launch_of(), model=name, aten_ops=(name,), source_nodes=("\\N{x}",))
    tree = ast.parse(text)
    assert isinstance(tree.body[0], ast.Expr) and "import os" in (ast.get_docstring(tree) or "")
    recorded = next(node for node in tree.body if isinstance(node, ast.Assign))
    assert ast.literal_eval(recorded.value)["name"] == name
    made = name_file(name, "0123456789abcdef")
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") and made.endswith(
        ".py"
    )
    assert name_file("Kernel", "ff00", {"kernel.py"}) == "Kernel_ff00.py"
    assert len(name_file("k" * 999, "0123456789abcdef")) <= 160


def test_what_cannot_be_written_says_why() -> None:
    with pytest.raises(UnwritableKernelError, match="does not parse"):
        write(definition("def ("), launch_of())
    with pytest.raises(UnwritableKernelError, match="defines no kernel"):
        write(definition("x = 1"), launch_of())
    with pytest.raises(UnwritableKernelError, match="build_arguments"):
        write(definition(SOURCE.replace("def scale", "def build_arguments")), launch_of())
    with pytest.raises(UnwritableKernelError, match="cannot be made again"):
        write(definition(), launch_of(Argument("opaque", text="a process group")))


def test_a_file_without_a_gpu_ends_with_one_line(tmp_path: Path) -> None:
    path = tmp_path / "scale.py"
    path.write_text(write(definition(), launch_of()), encoding="utf-8")
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=hidden, check=False)
    assert ended.returncode == 1 and len(ended.stderr.splitlines()) == 1
    assert "this Triton kernel needs" in ended.stderr


def test_arguments_keep_aliasing_offsets_and_alignment_and_repeat_by_seed() -> None:
    indices = storage(800, Values("integers", low=3, high=5), "int64", 16)
    launch = launch_of(
        view(0, 10), view(0, 6, offset=4), view(1, 100, "int64"),
        Argument("float", text="inf"), Argument("int", integer=7),
        storages=(storage(40, Values("normal"), alignment=4), indices), mutated=(1,),
    )  # fmt: skip
    encoded = codec.encode(launch)
    made, again = (harness.build_arguments(encoded, "cpu", 1) for _ in range(2))
    whole, part, drawn, infinite, seven = made.args
    assert (infinite, seven) == (float("inf"), 7)
    part.fill_(9.0)
    assert whole[4:].tolist() == [9.0] * 6 and torch.equal(whole[:4], again.args[0][:4])
    assert whole.data_ptr() % 8 == 4 and drawn.data_ptr() % 32 == 16
    assert set(drawn.tolist()) == {3, 4, 5}
    assert not torch.equal(again.args[0], harness.build_arguments(encoded, "cpu", 2).args[0])
    assert [each.data_ptr() for each in harness.written_tensors(encoded, made)] == [part.data_ptr()]
    assert harness.touched_bytes(encoded) == 840


def test_values_are_of_the_right_kind_and_repeat_beyond_the_pattern() -> None:
    count = harness.PATTERN_ELEMENTS + 100
    launch = launch_of(view(0, count), view(1, 4000, "bool"), storages=(
        storage(4 * count, Values("normal")), storage(4000, Values("integers", 0, 1, share=0.25), "bool"),
    ))  # fmt: skip
    normal, flags = harness.build_arguments(codec.encode(launch), "cpu").args
    assert abs(float(normal.mean())) < 0.01 and abs(float(normal.std()) - 1) < 0.01
    assert torch.equal(normal[-100:], normal[:100])
    assert abs(float(flags.float().mean()) - 0.25) < 0.03
    count = harness.PATTERN_ELEMENTS - 10  # the pattern holds two numbers for each
    launch = launch_of(view(0, count, "complex64"), storages=(storage(8 * count, Values("normal"), "complex64"),))
    (numbers,) = harness.build_arguments(codec.encode(launch), "cpu").args
    assert abs(float(numbers.abs().square().mean()) - 1) < 0.01


def test_fingerprints_tell_tensors_apart() -> None:
    floats = torch.randn(5000)
    reference = json.loads(json.dumps(common.fingerprint([floats, torch.arange(9)])))
    assert common.same(common.fingerprint([floats * (1 + 1e-6), torch.arange(9)]), reference)[0]
    for wrong in (
        [floats * 1.01, torch.arange(9)],
        [floats, torch.arange(9).flip(0)],
        [floats.half(), torch.arange(9)],
    ):
        passed, why = common.same(common.fingerprint(wrong), reference)
        assert not passed and why
    special = torch.tensor([float("nan"), float("-inf"), 1.0])
    assert common.same(common.fingerprint([special]), common.fingerprint([special]))[0]
    assert not common.same(common.fingerprint([special]), common.fingerprint([special.nan_to_num()]))[0]


class Launcher:
    """What Inductor's launcher looks like to the harness; it adds one to what it is called with."""

    def __init__(self, signature: dict[str, str]) -> None:
        self.triton_meta = {"signature": signature, "constants": {}}
        self.device_props = SimpleNamespace(index=0, type="cuda", multi_processor_count=132)
        self.custom_kernel = False
        self.fn: Any = SimpleNamespace(src="")


def test_workspaces_and_counters_are_reset_and_scratch_is_no_output() -> None:
    signature = {"in_out_ptr0": "*i64", "out_ptr0": "*fp32", "out_ptr1": "*i64", "ws_ptr": "*u8", "xnumel": "i32"}
    launch = launch_of(
        view(0, 1, "int64"), view(1, 4), view(2, 4, "int64"), view(3, 8, "uint8"), Argument("int", integer=4),
        storages=(
            storage(8, Values("recorded", data="eJxjZYAAAAAwAAY="), "int64"), storage(16, Values("normal")),
            storage(32, Values("zeros"), "int64"), storage(8, Values("zeros"), "uint8"),
        ), mutated=(0, 1, 2, 3),
    )  # fmt: skip
    recorded = {"name": "k", "kernel_id": "0", "category": "split_scan", "launch": codec.encode(launch)}
    file = TritonKernel(Launcher(signature), recorded)
    assert (file.zeroed, file.reset) == ([3], [0, 3])
    file = TritonKernel(Launcher(signature), {**recorded, "category": "pointwise"})
    assert (file.zeroed, file.reset) == ([], [0])
    assert file.kept == [0, 3], "what is only an output need not be put back"
    adding = Launcher(signature)
    adding.fn.src = "tl.atomic_add(out_ptr0 + (x0), tmp0)"
    assert TritonKernel(adding, recorded).kept == [0, 1, 2, 3]
    arguments = harness.Arguments([torch.zeros(1)] * 4 + [4], {}, [])
    assert len(file.outputs(arguments)) == 3


def config(**values: Any) -> Any:
    options = {"num_warps": 4, "num_stages": 1}
    options.update({key: values.pop(key) for key in list(values) if key in options})
    return SimpleNamespace(kwargs=values, **options)


def test_the_config_of_the_model_is_chosen() -> None:
    kernel = Launcher({})
    candidates = [config(XBLOCK=128, RSPLIT=8), config(XBLOCK=256, RSPLIT=8)]
    kernel.configs, kernel.inductor_meta = candidates, {}  # type: ignore[attr-defined]
    kernel.fn = SimpleNamespace(arg_names=["in_ptr0", "XBLOCK"])
    wanted = {"XBLOCK": 256, "RSPLIT": 16, "YBLOCK": 1, "num_warps": 4}
    triton_definition.choose_config(kernel, {"config": wanted, "multiprocessors": 108})
    assert kernel.configs == [candidates[1]] and kernel.inductor_meta["dynamic_scale_rblock"] is False  # type: ignore[attr-defined]


def test_every_recorded_kind_gives_a_file_that_parses() -> None:
    files = every_kernel()
    categories = set()
    for text in files.values():
        ast.parse(text)
        facts = facts_of(text)
        categories.add(facts["category"])
        assert harness.touched_bytes(facts["launch"]) > 0  # scalars' empty shapes are kept
    assert len(files) >= 50
    assert categories >= KINDS


def test_a_float8_or_recorded_storage_is_filled(tmp_path: Path) -> None:
    eight = launch_of(view(0, 64, "float8_e4m3fn"), storages=(storage(64, Values("normal"), "float8_e4m3fn"),))
    assert harness.build_arguments(codec.encode(eight), "cpu").args[0].float().std() > 0.5
    from safetensors.torch import save_file

    save_file({"storage_0": torch.arange(8, dtype=torch.int32)}, tmp_path / "k.safetensors")
    stored = launch_of(view(0, 8, "int32"), storages=(storage(32, Values("recorded", file="k.safetensors"), "int32"),))
    made = harness.build_arguments(codec.encode(stored), "cpu", folder=str(tmp_path))
    assert made.args[0].tolist() == list(range(8))
    short = replace(stored, storages=(storage(36, Values("recorded", file="k.safetensors"), "int32"),))
    with pytest.raises(ValueError, match="36 bytes, but 32"):
        harness.build_arguments(codec.encode(short), "cpu", folder=str(tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")
def test_files_of_every_kind_compile_for_an_h200_and_a_broken_one_does_not(tmp_path: Path) -> None:
    files = every_kernel()
    by_kind: dict[str, list[str]] = defaultdict(list)
    for name in sorted(files, key=lambda name: len(files[name])):
        by_kind[facts_of(files[name])["category"]].append(name)
    assert by_kind.keys() >= KINDS
    chosen = [name for names in by_kind.values() for name in names[:2]]
    for name in chosen:
        (tmp_path / name).write_text(files[name], encoding="utf-8")
    broken = files[chosen[0]].replace("tl.store(", "tl.stoer(")
    assert broken != files[chosen[0]]
    (tmp_path / "broken.py").write_text(broken, encoding="utf-8")
    script = Path(__file__).parent.parent.parent / "support" / "triton_offline.py"
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache"), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(script), *chosen, "broken.py"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    results = json.loads(ended.stdout.splitlines()[-1])
    assert "stoer" in results.pop("broken.py")["error"]
    assert set(results) == set(chosen)
    for name, result in results.items():
        assert "error" not in result, (name, result)
        assert result["target"] == "cuda:90" and result["cubin"] > 1000, name
        assert bool(result["zeroed"]) == (name in by_kind["split_scan"])
