"""One failed step, as runs and batches record it."""

from __future__ import annotations

from dataclasses import dataclass

ELSEWHERE = "elsewhere"
"""The ``kind`` of a failure whose step is possible only on the machine that measured the run."""


@dataclass(frozen=True)
class Failure:
    """One step that failed. Programs read ``stage`` and ``kind``; people read the other fields."""

    stage: str  # "capture", "profile", "trace", "analysis", "peaks", "eager", "retune", "report"
    kind: str  # "missing", "exit", "signal", "timeout", "interrupted", "memory", "nothing-compiled", "invalid", …
    message: str
    hint: str = ""
    log_tail: str = ""
    subject: str = ""  # the module or kernel that the step was about
