"""Suggests commands to type after a run. Pure functions of the record."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...records.base import ELSEWHERE, VERIFY, Failure
from ...records.kernel import Kernel
from ...records.mode_comparison import CUDNN_BENCHMARK
from ...records.model_sources import COMPILED_HERE
from ...records.request import RetuneRequest
from ...records.retune import CUDNN_SEARCH, FASTER, SAVES
from ...records.run import Run
from ..step_costs import Cost, cost_of, host_sets_pace, runs_on_host, step_of
from .finding import LEAST_SHARE, apply_command, command_again, modes_command, program_words, retune_command
from .headline import headline
from .rule_table import findings

_TUNED = "max-autotune-no-cudagraphs"
_PROGRAM_FAILURES = ("exit", "program", "nothing-compiled")


@dataclass(frozen=True)
class NextCommand:
    """A command that can be pasted into a shell, and its purpose."""

    command: str
    why: str


def next_commands(run: Run, folder: Path | str, sort: str = "time") -> tuple[NextCommand, ...]:
    """Suggests commands to type after a run, the most useful first.

    Args:
        run: the record.
        folder: the RUN folder, as the user would type it.
        sort: the order in which the kernels were just shown; another order is suggested.
    """
    place = shlex.quote(str(folder))
    commands = list(_repair_commands(run))
    if any(failure.stage == "report" for failure in run.failures):
        again = f"inductor-bench report {place}"
        commands.append(NextCommand(again, "draws tables, plots and report.html again from the record"))
    if run.modules:
        commands += _inspection_commands(run, place, sort)
    elif not commands:
        kinds = {failure.kind for failure in run.failures}
        same = command_again(run) if kinds & {*_PROGRAM_FAILURES, "interrupted"} else ""
        if same:
            why = "once the program runs and compiles something" if kinds & {*_PROGRAM_FAILURES} else "starts it again"
            commands.append(NextCommand(same, why))
        else:
            commands.append(NextCommand("inductor-bench doctor", "says what is installed and what is missing"))
    return tuple(dict.fromkeys(commands))


def _inspection_commands(run: Run, place: str, sort: str) -> Iterator[NextCommand]:
    lead = headline(run)
    if lead is not None and lead.kind == "busy-machine":
        return  # the first line says what to type
    if run.peaks is None and any(module.measurement.method != "trace" for module in run.modules):
        why = "measures the device's peaks; the next breakdown then tells percent of peak and gain limits"
        yield NextCommand("inductor-bench doctor", why)
    elif ((lead is not None and lead.kind == "launch-bound") or host_sets_pace(run)) and sort != "calls":
        yield NextCommand(f"inductor-bench report {place} --sort calls", "the kernels that are launched most often")
    elif sort != "gain" and any(kernel.roof.gain_limit_s for module in run.modules for kernel in module.kernels):
        yield NextCommand(f"inductor-bench report {place} --sort gain", "the kernels that could win most")
    else:
        yield NextCommand(f"inductor-bench report {place} --sort {sort} --top 30", "more of the kernels")
    yield from _kernel_commands(run, place)
    tunable = any(
        finding.kind.startswith(("below-", "copied-")) and _TUNED in finding.text for finding in findings(run)
    )
    if tunable and not run.failures and run.request.kind in COMPILED_HERE:
        again = command_again(run, elsewhere=True, mode=_TUNED)
        if again:
            yield NextCommand(again, "the same with every generated kernel tuned, as another run to compare with")


def _kernel_commands(run: Run, place: str) -> Iterator[NextCommand]:
    written = [
        (kernel, cost_of(run, module, kernel))
        for module in run.modules
        for kernel in module.kernels
        if (kernel.file or "").startswith("kernels/")
    ]
    if any(failure.kind == ELSEWHERE for failure in run.failures):
        return
    if written:
        best, _ = max(written, key=_potential)
        yield NextCommand(f"python {place}/{best.file}", "times that kernel by itself; --check compares its outputs")
    if written and not run.retunes and _is_worth_retuning(run, written):
        rest = "measures nothing else again"
        if _is_proven_here(run):
            rest = "compares the model's steps with the configs and without"
        why = f"retunes the kernels that take most time, and {rest}"
        yield NextCommand(f"inductor-bench breakdown {place} --autotune --top 20", why)
    yield from _apply_commands(run, place)


def _is_proven_here(run: Run) -> bool:
    """Whether a retune ends with its proof: this tool knows how the model runs."""
    return run.request.kind in COMPILED_HERE and run.program is not None


def _is_worth_retuning(run: Run, kernels: Sequence[tuple[Kernel, Cost]]) -> bool:
    """Whether a retune can win something of the step: on a CPU, generated kernels have to take a part of it."""
    program = step_of(run)
    if program is None or not runs_on_host(run):
        return True
    generated_s = sum(cost.time_s for kernel, cost in kernels if not kernel.category.is_library)
    return generated_s >= LEAST_SHARE * program.step_time_s


def _apply_commands(run: Run, place: str) -> Iterator[NextCommand]:
    """Suggests commands that put the winners of retunes into the program."""
    winners = [retune for retune in run.retunes if retune.row.verdict == FASTER]
    if any(retune.switch == CUDNN_SEARCH for retune in winners) and (command := modes_command(run, CUDNN_BENCHMARK)):
        yield NextCommand(
            command, "measures cuDNN's search for algorithms on the step; apply leaves that setting to you"
        )
    cannot_be_proven = any(failure.stage == VERIFY and failure.kind != "interrupted" for failure in run.failures)
    if cannot_be_proven or all(retune.row.left_to_user for retune in winners):
        return
    program = program_words(run)
    if run.verification is None and _is_proven_here(run):
        again = retune_command(place, RetuneRequest(winners[0].method, top=1))  # all winners are compared
        yield NextCommand(again, "says what the faster configs save in the model's steps")
    elif run.verification is None:
        yield NextCommand(apply_command(place, program, "--verify"), "says what the faster configs save in it")
    elif run.verification.step is None or run.verification.step.verdict != SAVES:
        return
    elif run.request.kind in COMPILED_HERE:
        yield NextCommand(
            f"inductor-bench apply {place}", "writes the configs, and the line that adds them to a program"
        )
    else:
        yield NextCommand(apply_command(place, program), "runs the program with the faster configs")


def _potential(pair: tuple[Kernel, Cost]) -> tuple[float, float]:
    return pair[1].gain_limit_s or 0.0, pair[1].time_s


def _repair_commands(run: Run) -> Iterator[NextCommand]:
    """Suggests commands that run the same target with other options after a failure."""
    kinds = {failure.kind for failure in run.failures}
    if "timeout" in kinds:
        limit = int(2 * run.request.timeout_s) if run.request.timeout_s else 1200
        again = command_again(run, timeout_s=limit)
        if again:
            yield NextCommand(again, "gives it more time")
    if any(_may_succeed_live(failure) for failure in run.failures) and not run.request.live:
        again = command_again(run, live=True)
        if again:
            yield NextCommand(again, "profiles inside the program, with its own inputs")


def _may_succeed_live(failure: Failure) -> bool:
    return failure.stage == "profile" and failure.kind not in ("timeout", "interrupted", "memory")
