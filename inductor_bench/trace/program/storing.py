"""Stores the trace of a program's steps, with the owner of each device event among the event's arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ...records.traced.program import ProgramTrace, StepWindow
from ..compaction import LIMIT_BYTES, store_amended_trace

_ARGUMENTS = b'"args": {'


class EventNote(NamedTuple):
    """The arguments that a device event gets; empty ones are left out."""

    part: str
    kernel: str
    operator: str
    source: str


_NAMES = EventNote("part", "module kernel", "operator", "source line")


def store_program_trace(
    source: Path,
    target: Path,
    program: ProgramTrace,
    window: StepWindow,
    notes: Mapping[int, EventNote],
    limit_bytes: int = LIMIT_BYTES,
) -> None:
    """Stores the trace ``source`` of a program, gzipped, as ``target``.

    Args:
        source: a Chrome trace of torch.profiler.
        target: the file to write.
        program: its contents.
        window: its steps; the last ones are dropped first where the trace is too large.
        notes: what is said of each device event, by its index.
        limit_bytes: maximum size of ``target``.

    Raises:
        InductorBenchError: the target cannot be written.
    """
    events = program.trace.device_events
    texts = {
        (program.origin_ns + round(events[index].start_s * 1e9), events[index].correlation): _arguments(note)
        for index, note in notes.items()
    }

    def amend(start_ns: int, correlation: int, text: bytes) -> bytes:
        added = texts.get((start_ns, correlation))
        return text.replace(_ARGUMENTS, _ARGUMENTS + added, 1) if added else text

    marks = window.marks[:-1]
    store_amended_trace(source, target, program.trace, program.origin_ns, marks, amend, limit_bytes)


def _arguments(note: EventNote) -> bytes:
    pairs = (f"{json.dumps(name)}: {json.dumps(value)}, " for name, value in zip(_NAMES, note, strict=True) if value)
    return "".join(pairs).encode()
