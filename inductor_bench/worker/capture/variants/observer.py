"""Observes the steps of a program whose graphs are compiled for several variants: a call is the same in all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ....messages.variant_requests import ORIGINAL
from ..boundaries import CalledGraphs, Graph, StepMeasurement
from ..step_observer import StepObserver
from .trial import VariantTrial
from .turns import Turns


class VariantObserver(StepObserver):
    """The observation of one process.

    The pattern of calls is that of Dynamo's graphs, because each variant has graphs of Inductor of its own. Those of
    the original say what device is used, and whether the program trains.

    Args:
        turns: the variants.
        measure: makes the measurement.
        on_done: as in ``StepObserver``.
    """

    def __init__(
        self, turns: Turns, measure: Callable[[CalledGraphs], VariantTrial], on_done: Callable[[], None]
    ) -> None:
        self._turns = turns
        self._trial: VariantTrial

        def make(graphs: CalledGraphs) -> StepMeasurement:
            self._trial = measure(graphs)
            return self._trial

        super().__init__(make, on_done)
        turns.note_call = self._note_call

    def note_change(self) -> None:
        """As in ``StepObserver``. What a variant compiles changes nothing in the pattern of the program's calls."""
        self._measurement.is_noisy = True
        if self._trial.is_settling:
            self._pattern.forget()

    def _records_graph(self) -> None:
        if self._turns.variant == ORIGINAL:
            self._graphs.note_cuda_graph()
        self.note_change()

    def _around_call(self, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        by_id, turns = self._graphs.by_id, self._turns

        @functools.wraps(original)
        def call(compiled: Any, inputs: Any) -> Any:
            if turns.variant == turns.held and id(compiled) not in by_id:
                self._add(compiled)
            return original(compiled, inputs)

        return call

    def _note_call(self, number: int, arguments: Sequence[Any]) -> None:
        if self.is_done or not self._boundaries.searches_pattern:
            self._turns.note_call = None
            return
        self._search(Graph(number, 0, _first_parameter(arguments)), arguments)

    def _trains(self) -> bool:
        return self._graphs.trains(range(len(self._graphs.records)))


def _first_parameter(arguments: Sequence[Any]) -> int | None:
    import torch

    return next((place for place, one in enumerate(arguments) if isinstance(one, torch.nn.Parameter)), None)
