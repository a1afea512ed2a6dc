"""Paths of modules in torch's spelling, the note on a compiled graph's layers, and the division of a kernel's call."""

from __future__ import annotations

from typing import Any

import pytest

from inductor_bench.records.code import LayerMap, LayerShare, SourceLine
from inductor_bench.source.layers import divide_call, read_layers, read_path


@pytest.mark.parametrize(
    ("text", "variable", "names"),
    [
        ("L['self'].layers.3.mlp", "self", "layers.3.mlp"),
        ("L['self'].layers[3].mlp", "self", "layers.3.mlp"),
        ("L['self']._modules['layers']._modules['3'].mlp", "self", "layers.3.mlp"),
        ("getattr(L['self'].layers, '3').mlp", "self", "layers.3.mlp"),
        ("getattr(getattr(L['self'], 'layers'), '3')", "self", "layers.3"),
        ("G['net']", "net", ""),
        ("L['self']._orig_mod.head@2", "self", "head"),
        ("L['fn']._fsdp_wrapped_module._checkpoint_wrapped_module.head", "fn", "head"),
        ("layers.3", "layers", "3"),
        ("L['self'].layers['blocks.0']", "self", "layers.blocks.0"),
    ],
)
def test_a_path_is_read_in_every_spelling(text: str, variable: str, names: str) -> None:
    found = read_path(text)
    assert (found.variable, ".".join(found.names)) == (variable, names)


LINE = ["model.py", 4, "forward", "return self.up(x)"]


def note(modules: list[list[str]], nodes: dict[str, list[Any]], **kernels: list[str]) -> dict[str, Any]:
    return {
        "modules": modules,
        "lines": [LINE],
        "nodes": nodes,
        "kernels": {f"{name}:1": found for name, found in kernels.items()},
    }


def shares(found: LayerMap, kernel: str) -> dict[tuple[str, str], float]:
    return {(one.layer, one.direction): one.share for one in found.kernels[f"{kernel}:1"]}


def test_a_call_is_divided_among_its_modules_and_directions() -> None:
    said = note(
        [["L['self'].layers.0", "Block"], ["L['self'].layers.0.norm", "LayerNorm"]],
        {
            "add": [0, "forward", 0, 100, 0.0],
            "mul": [1, "forward", 0, 100, 0.0],
            "sub": [1, "forward", 0, 100, 0.0],
            "mul_1": [1, "recomputed", -1, 100, 0.0],
            "view": [0, "backward", 0, 0, 0.0],
        },
        fused=["add", "mul", "sub", "mul_1", "view", "gone"],
        other=["add"],
    )
    found = read_layers(said, {"fused:1"}, "Net")
    assert shares(found, "fused") == {
        ("Net.layers.0", "forward"): 0.25,
        ("Net.layers.0.norm", "forward"): 0.5,
        ("Net.layers.0.norm", "recomputed"): 0.25,
    }
    assert found.lines == (SourceLine("model.py", 4, "forward", "return self.up(x)"),)
    assert [one.line for one in found.kernels["fused:1"]] == [0, 0, -1]
    assert "other:1" not in found.kernels, "a kernel whose handle is not in the module's text"
    assert found.classes == {"Net": "Net", "Net.layers.0": "Block", "Net.layers.0.norm": "LayerNorm"}


def test_a_product_takes_the_time_of_what_is_fused_to_it() -> None:
    nodes = {"mm": [0, "forward", 0, 100, 2e6], "relu": [1, "forward", 0, 10_000, 0.0]}
    said = note([["L['m'].up", "Linear"], ["L['m'].act", "ReLU"]], nodes, template=["mm", "relu"])
    (one,) = read_layers(said, {"template:1"}, "M").kernels["template:1"]
    assert one == LayerShare("M.up", "forward", 0, 1.0, 2e6)


def test_a_product_counts_where_it_is_computed() -> None:
    # A convolution's bias is added by a generated kernel, which has the convolution among its nodes, too.
    nodes = {"convolution": [0, "forward", 0, 100, 9e6], "silu": [1, "forward", 0, 300, 0.0]}
    modules = [["L['m'].conv", "Conv2d"], ["L['m'].act", "SiLU"]]
    kernels = {"triton_poi_fused_convolution_silu_0": ["convolution", "silu"]}
    kernels["extern_kernels.convolution"] = ["convolution"]
    found = read_layers(note(modules, nodes, **kernels), {f"{name}:1" for name in kernels}, "M").kernels
    (library,) = found["extern_kernels.convolution:1"]
    assert (library.layer, library.flops) == ("M.conv", 9e6)
    finishing = found["triton_poi_fused_convolution_silu_0:1"]
    assert [(one.layer, one.share, one.flops) for one in finishing] == [("M.conv", 0.25, 0.0), ("M.act", 0.75, 0.0)]


def test_a_product_that_is_written_as_a_sum_counts_in_its_first_kernel() -> None:
    nodes = {"bmm": [0, "forward", 0, 100, 9e6]}
    said = note([["L['m'].up", "Linear"]], nodes, triton_red_fused_bmm_0=["bmm"], triton_per_fused_bmm_1=["bmm"])
    found = read_layers(said, {"triton_red_fused_bmm_0:1", "triton_per_fused_bmm_1:1"}, "M").kernels
    assert [one.flops for shares in found.values() for one in shares] == [9e6, 0.0]


def test_a_product_in_a_kernel_that_leaves_partial_sums_does_not_count_in_their_sum() -> None:
    nodes = {"bmm": [0, "backward", 0, 100, 9e6]}
    said = note([["L['m'].up", "Linear"]], nodes, triton_per_fused_bmm_0=["bmm"], buf3=["bmm"])
    found = read_layers(said, {"triton_per_fused_bmm_0:1", "buf3:1"}, "M").kernels
    assert {handle: one.flops for handle, (one,) in found.items()} == {"triton_per_fused_bmm_0:1": 9e6, "buf3:1": 0.0}


@pytest.mark.parametrize(
    ("modules", "compiled", "layers"),
    [
        # A compiled model: what its own forward does is its own.
        ([["L['self'].up", "Linear"]], "Net", ["Net.up", "Net"]),
        # A compiled function that calls a model: what it does besides is no module's.
        ([["L['model']", "Net"], ["L['model'].up", "Linear"]], "", ["model.up", ""]),
        ([["L['fn']", "Net"], ["L['fn'].up", "Linear"]], "", ["Net.up", ""]),
        # A method behind a decorator that takes ``*args``.
        ([["L['args'][0].up", "Linear"]], "Net", ["Net.up", "Net"]),
        # A method of an object that holds models.
        ([["L['self'].net.up", "Linear"]], "Trainer", ["Trainer.net.up", "Trainer"]),
    ],
)
def test_layers_begin_with_the_object_at_their_root(modules: list[list[str]], compiled: str, layers: list[str]) -> None:
    nodes = {"mm": [len(modules) - 1, "forward", 0, 1, 0.0], "loss": [-1, "forward", 0, 1, 0.0]}
    found = read_layers(note(modules, nodes, one=["mm"], two=["loss"]), {"one:1", "two:1"}, compiled)
    assert [one.layer for shares in found.kernels.values() for one in shares] == layers


@pytest.mark.parametrize(
    "said",
    [
        None,
        7,
        {},
        {"modules": [], "nodes": {}, "lines": [], "kernels": 3},
        note([["L['m']", "M"]], {"mm": [5, "forward", 0, 1, 0.0]}, one=["mm"]),
        note([["L['m']", "M"]], {"mm": [0, "sideways", 0, 1, 0.0]}, one=["mm"]),
        note([["L['m']", "M"]], {"mm": [0]}, one=["mm"]),
    ],
)
def test_what_is_no_note_says_nothing(said: object) -> None:
    assert read_layers(said, {"one:1"}, "M") == LayerMap()


def test_views_alone_count_alike() -> None:
    assert divide_call([(0, 0.0), (0, 0.0)]) == [0.5, 0.5]
    assert divide_call([]) == []
