"""Adds the step of the captured program to a run, from what the program observed and the profiles of its modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ...errors import InductorBenchError
from ...records.run import Failure, Peaks, Run
from ...store.folder import RunFolder
from ..ledger.program import find_step
from ..modules.analysis import AttributedModule, Costs, describe_module
from ..modules.observed import labelled
from ..modules.profiling import ProfiledModule, keep_module
from ..modules.program import CapturedProgram
from ..modules.residence import with_dram_shares

Facts = tuple[Costs, Peaks | None]
"""The costs of library calls, and the peaks of the device."""


@dataclass(frozen=True)
class RunWithStep:
    """A run with the program's step.

    Attributes:
        run: the run.
        attributed: its modules, with the shares of the step in their details.
        failures: what went wrong.
    """

    run: Run
    attributed: list[AttributedModule]
    failures: tuple[Failure, ...]


def add_step(
    run: Run,
    captured: CapturedProgram,
    profiled: Sequence[ProfiledModule],
    attributed: list[AttributedModule],
    folder: RunFolder,
    facts: Facts | None = None,
) -> RunWithStep:
    """Adds the step of a captured program, where its processes observed one.

    Args:
        run: the run, with the modules that are profiled.
        captured: the program.
        profiled: the modules that were profiled. Graphs of the others are named in the step, too.
        attributed: the profiled modules with their activities.
        folder: the RUN, which gets the traces of the steps.
        facts: from a worker with torch; ``None`` where they are not known, so that modules stay as they are described.
    """
    modules = (*profiled, *_unprofiled(captured, profiled, folder))
    step, failures = find_step(run.request, captured, modules, attributed, folder)
    if facts is not None:
        costs, peaks = facts
        attributed = with_dram_shares(attributed, captured, peaks, folder, step.eager if step else {})
        described = {one.profiled.label.label: describe_module(one, folder, costs) for one in attributed}
        run = replace(run, modules=tuple(described.get(module.label, module) for module in run.modules))
    return RunWithStep(step.enter(run, stopped=captured.stopped) if step else run, attributed, failures)


def _unprofiled(
    captured: CapturedProgram, profiled: Sequence[ProfiledModule], folder: RunFolder
) -> Iterator[ProfiledModule]:
    """The modules whose profile was not reached, or raised an error. The RUN gets their text."""
    seen = {one.module.path for one in profiled}
    if all(module.path in seen for module in captured.modules):
        return
    for module, label in labelled(captured.modules):
        if module.path not in seen:
            with suppress(InductorBenchError):  # its text cannot be read
                yield ProfiledModule(module, label, keep_module(folder, module, label), "", "", None, None)
