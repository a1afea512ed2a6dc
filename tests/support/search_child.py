"""A fake of the process that measures a model of a batch, and of the one that searches for settings that help it.

The name of the model determines what its search finds; see :func:`search`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import batch_child
from tried_programs import DrawnProgram, menu_row, optimization, searched

from inductor_bench.records.base import Failure
from inductor_bench.records.optimization import NOT_YET, Optimization, Trial
from inductor_bench.store.folder import OPTIMIZED, OptimizationFolder, RunFolder

SAVINGS = {"good": {"a": 0.3, "b": 0.1}, "other": {"a": 0.2}, "none": {}}
"""By the name of a model what each setting saves; a model of another name has ``good``'s."""


def search(name: str) -> Optimization:
    """The search of a model."""
    rows = [menu_row("a"), menu_row("b"), menu_row("crash"), menu_row("wrong")]
    program = DrawnProgram(
        1, SAVINGS.get(name, SAVINGS["good"]), failures={"crash": "no such kernel"}, wrong=("wrong",), most=30
    )
    return optimization(searched(program, rows))


def main(words: Sequence[str]) -> int:
    """Runs ``breakdown TARGET … -o RUN``, ``breakdown RUN`` or ``optimize RUN …``."""
    if words[0] == "breakdown":
        if "-o" in words:
            code = batch_child.main(list(words))
            folder = RunFolder(Path(words[words.index("-o") + 1]))
            if "--optimizer" in words:
                run = folder.load()
                folder.save(replace(run, request=replace(run.request, optimizer="AdamW")))
            return code
        return 0
    folder = RunFolder(Path(words[1]))
    name, options = folder.path.name, words[2:]
    place = OptimizationFolder(folder.path / OPTIMIZED)
    begun = place.exists()
    batch_child.log(folder, f"optimize {name} {' '.join(options)}".rstrip())
    if name == "stepless":
        print("Error: it has no step to compare variants with\nHint: mark the ends of its steps")
        return 2
    found = replace(search(name), budget_s=budget_of(options), denied=denied_of(options))
    place.make()
    if name == "unconfirmed" and found.winner is not None:
        place.save(replace(found, winner=replace(found.winner, from_start=NOT_YET)), str)
        return 5
    if name == "dies":
        failure = Failure("optimize", "exit", "the program exited with code 1: ValueError: no")
        trial = Trial("01-screen", "screen", True, ("a",), failure=failure)
        place.save(replace(found, trials=(trial,), rows=(), winner=None), str)
        return 1
    if name.startswith("stops") and not begun:
        place.save(replace(found, is_complete=False, winner=None), str)
        print("it has begun", flush=True)
        if name == "stops":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)
    place.save(found, str)
    return 0


def budget_of(options: Sequence[str]) -> float:
    return float(options[options.index("--budget") + 1]) if "--budget" in options else 1200.0


def denied_of(options: Sequence[str]) -> tuple[str, ...]:
    return tuple(options[options.index("--deny") + 1].split(",")) if "--deny" in options else ()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
