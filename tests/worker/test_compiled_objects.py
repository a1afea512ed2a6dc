"""The names of the objects that a program compiles, as its process sees them when they are compiled."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from forking_python import interpreter

from inductor_bench.messages.observed import OBJECTS, CompiledObject, CompiledObjects
from inductor_bench.store import codec

PROGRAM = """
import sys
from pathlib import Path

import torch
import torch._dynamo
from torch import nn

from inductor_bench.worker.capture.uncompiled import ObjectNames

names = ObjectNames(Path(sys.argv[1]))
names.begin()
wrap = torch.compile
def compile(model, **keywords):
    names.note_wrapped(model)
    return wrap(model, backend="eager", **keywords)


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.a = nn.Linear(8, width)

    def forward(self, x):
        return self.a(x).sum(-1, keepdim=True) + x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([Block(), Block(), Block(16)])
        for one in self.down:
            one.compile(backend="eager")

    def forward(self, x):
        for one in self.down:
            x = one(x)
        return x


class Trainer:
    def __init__(self, model):
        self.critic = compile(model)

    def train(self):
        return self.critic(torch.randn(4, 8))


def step(model, x):
    return model(x).sum()


def energy(x):
    return x.square().sum()


def decorated(function):
    def wrapped(*args, **keywords):
        return function(*args, **keywords)

    return wrapped


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 3)

    @decorated
    def forward(self, x):
        return self.up(x)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = compile(nn.Sequential(nn.Linear(8, 13)))

    def forward(self, x):
        return self.head(x)


class Tracked:
    pass


def main():
    kept = Tracked()
    G = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    D = compile(nn.Sequential(nn.Linear(8, 4)))
    g = compile(G)
    D(g(torch.randn(4, 8)))
    unet = Net()
    with torch.no_grad():
        unet(torch.randn(4, 8))
    odd = Odd()
    compile(odd)(torch.randn(4, 8))
    reader = Reader()
    reader(torch.randn(4, 8))
    Trainer(nn.Sequential(nn.Linear(8, 9))).train()
    compile(torch.func.vmap(torch.func.grad(energy)))(torch.randn(4, 8))
    networks = {"a": compile(nn.Sequential(nn.Linear(8, 11)))}
    networks["a"](torch.randn(4, 8))
    first, second = compile(step), compile(step)
    first(G, torch.randn(4, 8))
    import weakref

    gone = weakref.ref(kept)
    del kept
    print("kept" if gone() is not None else "released")


main()
"""


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[CompiledObject], str]:
    folder = tmp_path_factory.mktemp("objects")
    script = folder / "program.py"
    script.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [interpreter(), str(script), str(folder)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    (file,) = folder.glob(f"*{OBJECTS}")
    return list(codec.decode(CompiledObjects, json.loads(Path(file).read_text())).objects), ran.stdout


def test_modules_have_their_variables_and_paths(observed: tuple[list[CompiledObject], str]) -> None:
    names = [one.name for one in observed[0]]
    assert names[:2] == ["G", "D"]
    assert names[2].startswith("unet.down.0") and "unet.down.2" in names
    assert "reader.head" in names, "and not reader.head._orig_mod"
    assert names[-4:] == ["critic", "energy", "networks['a']", ""], "an attribute, an element, a function's argument"


def test_a_forward_behind_a_decorator_is_known_by_its_class(observed: tuple[list[CompiledObject], str]) -> None:
    of_class = {one.name: one.forward_of for one in observed[0]}
    assert of_class["odd"] == "Odd" and of_class[""] == ""


def test_modules_that_look_the_same_are_counted(observed: tuple[list[CompiledObject], str]) -> None:
    alike = {one.name: one.alike for one in observed[0]}
    assert alike["unet.down.0"] == 2 and alike["unet.down.2"] == 1 and alike["G"] == 1


def test_a_function_that_is_compiled_twice_is_known_to_be(observed: tuple[list[CompiledObject], str]) -> None:
    assert observed[0][-1].wrapped == 2


def test_to_look_for_names_keeps_nothing_of_the_program_alive(observed: tuple[list[CompiledObject], str]) -> None:
    """Up to Python 3.12 a copy of a frame's variables would keep the tensors of a step for as long as it runs."""
    assert observed[1].split() == ["released"]
