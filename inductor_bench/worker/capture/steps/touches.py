"""Notes where the arguments and results of the compiled graphs' calls lie in memory, during one step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from inductor_bench.messages.steps import GraphCallTouches, ObservedTouches
from inductor_bench.store.formats import codec


class Touches:
    """The calls of one step."""

    def __init__(self) -> None:
        self._calls: list[GraphCallTouches] = []

    def call(self, number: int, original: Callable[[Any, Any], Any], compiled: Any, inputs: Any) -> Any:
        """Calls a graph of this number and returns its result."""
        before = places_of(inputs)  # the call empties the list of its inputs
        result = original(compiled, inputs)
        results = result if isinstance(result, tuple | list) else (result,)
        self._calls.append(GraphCallTouches(number, before, places_of(results)))
        return result

    def write(self, path: Path) -> None:
        """Writes the calls into a file."""
        path.write_text(json.dumps(codec.encode(ObservedTouches(tuple(self._calls)))), encoding="utf-8")


def places_of(values: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    """The address and the bytes of each tensor in order; zeros for any other value."""
    return tuple(_place(value) for value in values)


def _place(value: Any) -> tuple[int, int]:
    try:
        return value.data_ptr(), value.nbytes
    except (AttributeError, RuntimeError):  # a number, or a tensor without memory of its own
        return 0, 0
