"""Writes what was observed of a process's steps."""

from __future__ import annotations

import json
import os
from pathlib import Path

from inductor_bench.messages.steps import WAITING, ObservedSteps
from inductor_bench.store.formats import codec


def no_steps_yet() -> ObservedSteps:
    """The observation of this process at its begin."""
    return ObservedSteps(
        pid=os.getpid(),
        device="",
        state=WAITING,
        rank=_variable("RANK"),
    )


def write_steps(path: Path, found: ObservedSteps) -> None:
    """Writes the file of a process, over an earlier one; a reader sees the old one or the new one whole."""
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(codec.encode(found)), encoding="utf-8")
    temporary.replace(path)


def words_of(error: BaseException) -> str:
    """The kind of an error and the first line of its message."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"


def _variable(name: str) -> int | None:
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else None
