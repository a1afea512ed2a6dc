"""The timeline of a program's step: ``traces/step.timeline.json``."""

from __future__ import annotations

from ..records.program import Timeline
from .files import read_json, write_json
from .folder import RunFolder
from .formats import codec

TIMELINE = "traces/step.timeline.json"


def write_timeline(folder: RunFolder, timeline: Timeline) -> None:
    """Writes a run's timeline.

    Raises:
        InductorBenchError: it cannot be written.
    """
    folder.traces.mkdir(exist_ok=True)
    write_json(folder.path / TIMELINE, codec.encode(timeline))


def read_timeline(folder: RunFolder) -> Timeline | None:
    """A run's timeline; ``None`` where it has none.

    Raises:
        InductorBenchError: the file is damaged.
    """
    path = folder.optional_file(TIMELINE)
    return codec.decode(Timeline, read_json(path)) if path else None
