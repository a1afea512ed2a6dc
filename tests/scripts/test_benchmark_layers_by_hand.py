"""The split by hand: whose a product is, by torch's own profile of a small eager model, and the comparison of two."""

from __future__ import annotations

import json
from pathlib import Path

import forking_python
import pytest

from scripts.benchmark_layers_by_hand import compare, group_of

PROGRAM = """
import json, sys
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from scripts.benchmark_layers_by_hand import Built, Split

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))
        self.again = nn.Sequential(nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(checkpoint(self.again, x, use_reentrant=False) @ x.T[:, :32])

torch.manual_seed(0)
net, x = Net(), torch.randn(64, 32)
step = lambda: net(x).sum().backward()
print("times", json.dumps(Split(Built(net, step, lambda: None, [net])).measure(step)))
"""


def test_each_product_has_its_module_and_direction(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = forking_python.run([str(tmp_path / "program.py")])
    assert ended.returncode == 0, ended.stderr
    line = next(line for line in ended.stdout.splitlines() if line.startswith("times "))
    times = json.loads(line.removeprefix("times "))
    assert set(times) == {
        *("Net.layers.# forward", "Net.layers.# backward", "Net.again.# forward", "Net.again.# recomputed"),
        *("Net.again.# backward", "Net.head forward", "Net.head backward", "Net forward", "Net backward"),
    }
    assert min(times.values()) > 0


def test_numbers_and_the_class_of_a_sharded_module_do_not_tell_groups_apart() -> None:
    assert group_of("Net.layers.11.up", "forward") == group_of("FSDPNet.layers.3.up", "forward")
    assert group_of("Net.layers.0", "forward") == "Net.layers.# forward"
    assert group_of("Net.conv2", "backward") == "Net.conv2 backward"


def test_the_share_that_lies_elsewhere_is_what_counts() -> None:
    hand = {"a forward": 6.0, "b forward": 3.0, "b backward": 1.0}
    found = compare({key: 1.1 * time_s for key, time_s in hand.items()}, hand)
    assert (found["apart"], found["within"], found["groups"]) == ("0.0%", True, "0 of 3"), "the same split, all slower"
    found = compare({"a forward": 6.0, "b forward": 2.0, "c backward": 2.0}, hand)
    assert (found["apart"], found["within"], found["groups"]) == ("20.0%", False, "1 of 3")
    assert found["most"] == "c backward +20.0%" and found["products"] == "10000.000 1.000"


@pytest.mark.parametrize(("tool", "hand"), [({}, {"a": 1.0}), ({"a": 1.0}, {})])
def test_no_products_are_said(tool: dict[str, float], hand: dict[str, float]) -> None:
    assert compare(tool, hand)["note"].startswith("products take ")
