"""One failed step, as runs and batches record it."""

from __future__ import annotations

from dataclasses import dataclass

VERIFY = "verify"
"""The ``stage`` of a failure in the comparison of a program with itself."""

ELSEWHERE = "elsewhere"
"""The ``kind`` of a failure whose step is possible only on the machine that measured the run."""

NO_CANDIDATES = "no-candidates"
"""The ``kind`` of the failure of a retune that finds nothing to choose from, as another retune would too."""

NO_PYTHON = "no-python"
"""The ``kind`` of the failure of a program or a worker that started no Python."""


@dataclass(frozen=True)
class Failure:
    """One step that failed. Programs read ``stage`` and ``kind``; people read the other fields.

    Attributes:
        stage: the step: ``capture``, ``profile``, ``trace``, ``analysis``, ``peaks``, ``eager``, ``retune``,
            ``verify`` or ``report``.
        kind: what happened: ``missing``, ``exit``, ``signal``, ``timeout``, ``interrupted``, ``memory``,
            ``nothing-compiled``, ``invalid``, …
        message: what happened, in words.
        hint: what to do about it.
        log_tail: the last lines that the process printed.
        subject: the module or the kernel that the step was about.
    """

    stage: str  # "capture", "profile", "trace", "analysis", "peaks", "eager", "retune", "report"
    kind: str  # "missing", "exit", "signal", "timeout", "interrupted", "memory", "nothing-compiled", "invalid", …
    message: str
    hint: str = ""
    log_tail: str = ""
    subject: str = ""  # the module or kernel that the step was about
