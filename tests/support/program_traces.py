"""Builds the traces of whole programs: the host's ranges and the device's events, in microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from inductor_bench.records.evidence import BOUNDARY, GRAPH_CALL
from inductor_bench.trace.program_trace import Markers

MARKERS = Markers(BOUNDARY, GRAPH_CALL)
MAIN, BACKWARD = 1, 2


class ProgramTraceBuilder:
    """Collects events. Ids and correlations count up; ``launch`` writes the host's call and the device's event."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._external = self._correlation = 0

    def boundary(self, number: int, ts: float) -> None:
        self.op(f"{BOUNDARY}{number}", ts, 0.5)

    def graph(self, number: int, ts: float, dur: float, tid: int = MAIN) -> None:
        self.op(f"{GRAPH_CALL}{number}", ts, dur, tid)

    def op(self, name: str, ts: float, dur: float, tid: int = MAIN, **arguments: Any) -> int:
        """An operator; returns its id for the events that it launches."""
        self._external += 1
        self._host("cpu_op", name, ts, dur, tid, {"External id": self._external, **arguments})
        return self._external

    def annotation(self, name: str, ts: float, dur: float, tid: int = MAIN) -> None:
        self._host("user_annotation", name, ts, dur, tid, {})

    def frame(self, name: str, ts: float, dur: float, tid: int = MAIN) -> None:
        self._host("python_function", name, ts, dur, tid, {"Python id": len(self.events), "Python parent id": 0})

    def runtime(self, name: str, ts: float, dur: float, tid: int = MAIN, external: int | None = None) -> int:
        """A call of the runtime; returns its correlation."""
        self._correlation += 1
        arguments = {"correlation": self._correlation}
        if external is not None:
            arguments["External id"] = external
        self._host("cuda_runtime", name, ts, dur, tid, arguments)
        return self._correlation

    def device(
        self, name: str, ts: float, dur: float, correlation: int, stream: int = 7, category: str = "kernel", **args: Any
    ) -> None:
        arguments = {"device": 0, "stream": stream, "correlation": correlation, **args}
        self._add(category, name, 0, stream, ts, dur, arguments)

    def launch(
        self,
        name: str,
        called: float,
        ts: float,
        dur: float,
        *,
        external: int | None = None,
        tid: int = MAIN,
        stream: int = 7,
        category: str = "kernel",
    ) -> None:
        """A launch at ``called``, 2 microseconds long, and its event on the device."""
        words = "cudaLaunchKernel" if category == "kernel" else "cudaMemcpyAsync"
        correlation = self.runtime(words, called, 2, tid, external)
        linked = {} if external is None else {"External id": external}
        self.device(name, ts, dur, correlation, stream, category, **linked)

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events, "traceName": "t"}, indent=1))
        return path

    def _host(self, category: str, name: str, ts: float, dur: float, tid: int, arguments: dict[str, Any]) -> None:
        self._add(category, name, 9, tid, ts, dur, arguments)

    def _add(
        self, category: str, name: str, pid: int, tid: int, ts: float, dur: float, arguments: dict[str, Any]
    ) -> None:
        times = {"ts": round(ts, 3), "dur": round(dur, 3)}
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **times, "args": arguments}
        )
