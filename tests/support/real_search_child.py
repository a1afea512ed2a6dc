"""A process of a batch whose search for settings is real, and brief; its measurement is a record made by hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import step_runs

from inductor_bench.analysis.optimization import search
from inductor_bench.cli import main as entry
from inductor_bench.records.optimization import CONFIRM
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.records.run import Environment
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows import optimize

TRIED = ("fused-optimizer", "foreach-optimizer")
"""The rows of the menu that are tried: others compile for long."""


def has_time(self: search.OptimizationSearch, purpose: str, *_: object) -> bool:
    return purpose != CONFIRM or [trial.purpose for trial in self.trials].count(CONFIRM) < 2


def main(words: Sequence[str]) -> int:
    """Runs ``breakdown TARGET … -o RUN`` or ``optimize RUN …``."""
    if words[0] == "breakdown":
        optimizer, python, output = (words[words.index(one) + 1] for one in ("--optimizer", "--python", "-o"))
        asked = BreakdownRequest(words[1], "factory", training=True, device="cpu", optimizer=optimizer, python=python)
        folder = RunFolder(Path(output))
        folder.path.mkdir(parents=True)
        folder.save(replace(step_runs.cpu(), target=words[1], request=asked))
        return 0
    # The pace of the machine decides nothing, and the result runs once from the program's start.
    search.OptimizationSearch._has_time = has_time  # type: ignore[method-assign]
    search.OptimizationSearch._timed_s = lambda self, usual_s: usual_s / 30  # type: ignore[method-assign]
    optimize.look = lambda *_: (Environment(), None)
    menu = optimize.make_menu
    optimize.make_menu = lambda *facts: tuple(row for row in menu(*facts) if row.slug in TRIED)
    return entry.main(list(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
