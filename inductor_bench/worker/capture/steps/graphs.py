"""The compiled graphs of the process, numbered in the order of their first calls."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inductor_bench.messages.steps import ObservedGraph

from ...upstream import steps as upstream


@dataclass
class Graph:
    """One compiled graph.

    Attributes:
        number: its number in the trace.
        parameter: the index of its first input that is a parameter; ``None`` where there is none.
    """

    number: int
    parameter: int | None

    def address(self, inputs: Sequence[Any]) -> int:
        """The address of the parameter among the inputs of a call; 0 without one, and for a size of a dynamic shape."""
        read = None if self.parameter is None else getattr(inputs[self.parameter], "data_ptr", None)
        return int(read()) if read is not None else 0


class Graphs:
    """The graphs, by the object that is called. An object that torch has freed keeps its number."""

    def __init__(self) -> None:
        self.device = ""
        """The type of the device on which they run, other than the CPU; empty until one does."""
        self.records: list[ObservedGraph] = []
        self._backward: set[int] = set()
        self.by_id: dict[int, Graph] = {}
        """The graph of each object, by the object's id."""
        self.running = threading.local()
        """Its ``number`` is the number of the graph that this thread runs or ran last."""
        self._references: dict[int, weakref.ref[Any]] = {}

    def add(self, compiled: Any) -> Graph:
        """Numbers a graph that is called for the first time."""
        facts = upstream.describe_graph(compiled)
        graph = Graph(len(self.records), facts.parameter)
        if facts.is_backward:
            self._backward.add(graph.number)
        self.records.append(ObservedGraph(facts.path, cuda_graph_refusal=facts.cuda_graph_refusal))
        self.device = self.device or facts.device
        place = id(compiled)
        self.by_id[place] = graph
        self._references[place] = weakref.ref(compiled, lambda _: self._forget(place))
        return graph

    def trains(self, numbers: Iterable[int]) -> bool:
        """Whether one of these graphs computes gradients."""
        return not self._backward.isdisjoint(numbers)

    def _forget(self, place: int) -> None:
        self.by_id.pop(place, None)
        self._references.pop(place, None)

    def note_cuda_graph(self) -> None:
        """Notes that the graph that this thread runs is recorded as a CUDA graph."""
        self._change(cuda_graphs=True)

    def note_refusal(self, reason: str) -> None:
        """Notes why the graph that this thread runs is not replayed as a CUDA graph."""
        self._change(cuda_graph_refusal=reason)

    def _change(self, **facts: Any) -> None:
        number = getattr(self.running, "number", None)
        if number is not None:
            self.records[number] = replace(self.records[number], **facts)
