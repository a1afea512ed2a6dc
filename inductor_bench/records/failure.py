"""What went wrong, as every record says it."""

from __future__ import annotations

from dataclasses import dataclass

ELSEWHERE = "elsewhere"
"""The kind of what can only be done on the machine where the run was measured."""


@dataclass(frozen=True)
class Failure:
    """Something that went wrong, and what it cost: the stage and kind are for programs, the rest for people."""

    stage: str  # "capture", "profile", "trace", "analysis", "peaks", "retune", "report"
    kind: str  # "missing", "exit", "signal", "timeout", "interrupted", "memory", "nothing-compiled", "invalid", …
    message: str
    hint: str = ""
    log_tail: str = ""
    subject: str = ""  # the module or kernel it is about
