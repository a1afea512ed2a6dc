"""Several calls as one kernel: what they compute together, and how far that moves with the last bits between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from inductor_bench.source.harness.common import Arguments
from inductor_bench.worker.bench.library_kernel import JoinedKernel

COUNT = 64


def storage(dtype: str, size: int) -> dict[str, Any]:
    values = {"kind": "normal"}
    return {"size_bytes": COUNT * size, "dtype": dtype, "device": "cpu", "alignment": 64, "values": values}


def tensor(number: int, dtype: str, size: int) -> dict[str, Any]:
    view = {"storage": number, "offset": 0, "shape": [COUNT], "stride": [1], "dtype": dtype, "itemsize": size}
    return {"kind": "tensor", "tensor": view}


STORAGES = [storage("float32", 4), storage("float16", 2), storage("float32", 4)]
TENSORS = [tensor(0, "float32", 4), tensor(1, "float16", 2), tensor(2, "float32", 4)]


@dataclass
class Step:
    """One call: what it reads, what it writes, and the function between them."""

    read: int
    written: int
    function: Callable[[torch.Tensor], torch.Tensor]

    @property
    def launch(self) -> dict[str, Any]:
        return {"storages": STORAGES, "arguments": [TENSORS[self.read], TENSORS[self.written]], "mutated": [1]}

    def compile(self) -> None:
        return

    def prepare(self) -> None:
        return

    def bind(self, arguments: Arguments) -> Callable[[], Any]:
        source, target = arguments.args
        return lambda: target.copy_(self.function(source))


def joined() -> JoinedKernel:
    launch = {"storages": STORAGES, "arguments": TENSORS, "mutated": [1, 2]}
    module: Any = SimpleNamespace(RECORDED={"launch": launch, "device_type": "cpu"}, FOLDER=".")
    steps: Any = [Step(0, 1, lambda x: 2 * x), Step(1, 2, lambda x: x.float() + 1)]
    return JoinedKernel(module, steps)


def test_the_calls_are_made_one_after_the_other_on_the_same_memory() -> None:
    kernel = joined()
    arguments = kernel.make_arguments()
    between, result = kernel.compute(arguments)
    assert torch.equal(between, (2 * arguments.args[0]).half())
    assert torch.equal(result, between.float() + 1)


def test_what_one_call_leaves_for_the_next_is_moved_by_a_last_bit_and_stays_as_it_was_written() -> None:
    kernel = joined()
    arguments = kernel.make_arguments()
    between, result = (one.clone() for one in kernel.compute(arguments))
    kernel.compute_moved(arguments, 7)
    assert torch.equal(arguments.args[1], between)
    moved = (arguments.args[2] - result).abs()
    last_bit = torch.finfo(torch.float16).eps * between.float().abs()
    assert float((moved > 0).float().mean()) > 0.5
    assert bool((moved <= 2 * last_bit + 1e-6).all())
