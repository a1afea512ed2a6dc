"""The places of a graph call's arguments and results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from inductor_bench.records.evidence import GraphCallTouches, ObservedTouches
from inductor_bench.store import codec
from inductor_bench.store.files import read_json
from inductor_bench.worker.capture.step_recording import Touches, number_values


def test_each_call_notes_its_arguments_before_it_empties_their_list(tmp_path: Path) -> None:
    first, second = torch.zeros(8), torch.zeros(4, dtype=torch.float16)
    given = [(first.data_ptr(), 32), (0, 0), (second.data_ptr(), 8)]

    def call(compiled: object, inputs: list[Any]) -> tuple[Any, ...]:
        kept = inputs[0]
        inputs.clear()
        return kept[4:], None

    touches = Touches()
    result = touches.call(3, call, object(), [first, 7, second])
    assert result[0].data_ptr() == first.data_ptr() + 16
    touches.call(4, lambda compiled, inputs: second, object(), [])
    touches.write(tmp_path / "1.touches.json")
    found = codec.decode(ObservedTouches, read_json(tmp_path / "1.touches.json"))
    assert found.calls == (
        GraphCallTouches(3, tuple(given), ((first.data_ptr() + 16, 16), (0, 0))),
        GraphCallTouches(4, (), ((second.data_ptr(), 8),)),
    )


def test_a_tensor_without_memory_has_no_place() -> None:
    sparse = torch.eye(3).to_sparse()
    assert number_values([sparse, None, 1.5]) == ((0, 0),) * 3
