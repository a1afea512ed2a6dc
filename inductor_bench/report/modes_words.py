"""Sentences about a comparison of modes: the advice, and what limits the figures."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from .. import units
from ..analysis.findings.phrases import join_words, plural
from ..devices.table import device_of
from ..records.failure import Failure
from ..records.model_sources import COMPILED_HERE
from ..records.modes.comparison import (
    DIFFERS,
    UNKNOWN,
    ModeComparison,
    ModeRow,
    ModeWinner,
    StepRatio,
)
from ..records.modes.settings import EAGER

CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")

NOISY = 0.1
"""Relative difference between the processes of a row above which the report says that the machine is noisy."""

QUIETER = "Give more rounds (--rounds), or leave the machine to this program"

LEGEND = {
    "step": "mean over the processes, with its 95% interval",
    "of eager": "the step divided by eager's",
    "compile": "once, with empty caches, until the steps settle",
    "pays after": "steps until the compilation has paid off against eager",
    "vs shorter": "the same against the row with the next shorter compilation",
    "device": "sum of the durations on the device in a profiled step",
    "memory": "peak of the last process, on a CPU with Python and the compiler",
    "outputs": "relative difference to eager, root mean square",
}
"""What a column means."""


def processes_words(comparison: ModeComparison, titles: Collection[str]) -> str:
    """How many processes and steps were timed, and what the columns mean that are shown."""
    counts = [len(row.processes) for row in comparison.rows if row.processes]
    if not counts:
        return ""
    steps = [len(one.step_times_s) for row in comparison.rows for one in row.processes]
    few, many = min(steps), max(steps)
    timed = plural(many, "step") if few == many else f"{few} to {many} steps"
    each = "1 process" if max(counts) == 1 else f"{max(counts)} processes"
    legend = " · ".join(f"{title}: {meaning}" for title, meaning in LEGEND.items() if title in titles)
    return f"{each} of each row, in turn, {timed} of each · {legend}"


def machine(comparison: ModeComparison) -> str:
    """Describes the machine in one line: ``NVIDIA H200 · torch 2.11.0``."""
    environment = comparison.environment
    kinds = {one.device for row in comparison.rows for one in row.processes}
    on_host = all(device_of(kind).runs_on_host for kind in kinds)
    parts = [environment.host.cpu if on_host else environment.device.accelerator or ""]
    threads = {one.threads for row in comparison.rows for one in row.processes if one.threads}
    if on_host and len(threads) == 1:
        parts.append(plural(min(threads), "thread"))
    if environment.versions.torch:
        parts.append(f"torch {environment.versions.torch}")
    return " · ".join(filter(None, parts))


def advice(comparison: ModeComparison) -> str:
    """The sentence at the top: the row to take, and how sure that is."""
    winner = comparison.winner
    if winner is None:
        return _no_advice(comparison)
    rows = {row.name: row for row in comparison.rows}
    chosen, fastest = rows[winner.name], rows[winner.fastest]
    if not winner.decided:
        return (
            f"Undecided: {fastest.name} measured {_step(fastest)} a step and {chosen.name} {_step(chosen)}, but the "
            f"processes of a row differ so much that this may be noise. {QUIETER}. Until then, keep {chosen.name}, "
            f"which {_merit(chosen, fastest)}."
        )
    if chosen.settings.mode == EAGER:
        if winner.fastest == winner.name:
            return f"Leave it uncompiled: {_step(chosen)} a step; no mode measured faster.{_equals(winner)}"
        return (
            f"Leave it uncompiled: {_step(chosen)} a step; {fastest.name} measured {_step(fastest)}, which is within "
            "the noise of these processes."
        )
    text = f"Take {winner.name}: {_step(chosen)} a step{_gain(chosen)}."
    if winner.fastest != winner.name:
        return (
            f"{text} {fastest.name} measured {_step(fastest)}: the difference is within noise, and {winner.name} "
            f"{_merit(chosen, fastest)}."
        )
    return f"{text}{_equals(winner)}"


def _equals(winner: ModeWinner) -> str:
    return f" The difference to {join_words(list(winner.equals))} is within noise." if winner.equals else ""


def _merit(chosen: ModeRow, fastest: ModeRow) -> str:
    """Why a row is advised that measured no faster than another."""
    if chosen.settings.mode == EAGER:
        return "compiles nothing"
    ours, theirs = (row.figures.compile_time_s if row.figures else None for row in (chosen, fastest))
    return "compiles in less time" if ours is not None and theirs and ours < theirs else "is the plainer setting"


def _gain(row: ModeRow) -> str:
    figures = row.figures
    ratio = figures.to_eager if figures else None
    if figures is None or ratio is None:
        return ""
    if ratio.verdict != "faster":
        return f", {ratio_words(ratio)} the speed of eager, which is within noise"
    paid = ""
    if figures.pays_after is not None:
        paid = f"; its compilation of {units.seconds(figures.compile_time_s)} pays after {_steps(figures.pays_after)}"
        if figures.cheaper != EAGER and figures.pays_after_cheaper is not None:
            steps = _steps(figures.pays_after_cheaper)
            paid += f". Up to {steps} {figures.cheaper} takes less time, compilation included"
    return f", {ratio_words(ratio)} as fast as eager{paid}"


def _no_advice(comparison: ModeComparison) -> str:
    measured = [row for row in comparison.rows if row.processes]
    if not measured:
        return "No mode was measured."
    if len(measured) < 2:
        return "Only one row was measured, so that there is nothing to compare."
    return "Nothing is advised: that needs two rows whose outputs agree, one of them compiled, and two rounds of each."


def ratio_words(ratio: StepRatio) -> str:
    """How many times as fast: ``2.13 times (99% interval 2.08 to 2.19)``; the interval is that of the verdict."""
    middle, low, high = (f"{1 / value:.3g}" for value in (ratio.ratio, ratio.high, ratio.low))
    return f"{middle} times (99% interval {low} to {high})"


def _step(row: ModeRow) -> str:
    return units.seconds(row.figures.step_time_s if row.figures else None)


def _steps(number: float | None) -> str:
    return plural(max(1, round(number)), "step") if number is not None else units.MISSING


def grouped_failures(rows: Sequence[ModeRow]) -> dict[Failure, list[str]]:
    """The names of the rows by their failure, of which the log is left out: several rows may fail in the same way."""
    found: dict[Failure, list[str]] = {}
    for row in rows:
        if row.failure is not None:
            found.setdefault(replace(row.failure, log_tail=""), []).append(row.name)
    return found


def mode_notes(comparison: ModeComparison) -> Iterator[str]:
    """What limits the figures, and what each mode really did."""
    measured = [row for row in comparison.rows if row.processes]
    if not measured:
        return
    yield from _noise_notes(measured)
    yield from _code_notes(measured)
    yield from _call_notes(comparison, measured)
    yield from _output_notes(comparison, measured)
    yield from _own_notes(measured)


def _noise_notes(measured: Sequence[ModeRow]) -> Iterator[str]:
    """Says where the processes of a row differ so much that little can be decided."""
    spreads = {row.name: max(times) / min(times) - 1 for row in measured if len(times := _process_steps(row)) > 1}
    worst = max(spreads, key=lambda name: spreads[name], default="")
    if worst and spreads[worst] > NOISY:
        yield (
            f"the machine is noisy: the slowest process of {worst} takes {units.whole_percent(spreads[worst])} longer "
            "a step than its fastest"
        )


def _process_steps(row: ModeRow) -> list[float]:
    return [one.step_time_s for one in row.processes]


def _code_notes(measured: Sequence[ModeRow]) -> Iterator[str]:
    twins: dict[str, list[str]] = {}
    for row in measured:
        if row.figures and row.figures.same_code_as:
            twins.setdefault(row.figures.same_code_as, []).append(row.name)
    for name, others in twins.items():
        yield (
            f"{join_words(others)}: the same generated code as {name}"
            f"{_no_graphs(measured, others)}; a difference in step time is noise"
        )
    for row in measured:
        if len({(one.codes, one.configs) for one in row.processes}) > 1:
            yield f"{row.name}: its processes ran other code or other configs of kernels, which changes the step, too"
    asked = [row for row in measured if row.settings.mode in CUDA_GRAPH_MODES]
    if asked and all(device_of(row.processes[0].device).runs_on_host for row in asked):
        yield f"{join_words([row.name for row in asked])}: CUDA graphs need a GPU, and these steps ran on a CPU"
        return
    for row in measured:
        refusals = row.processes[0].refusals
        if refusals:
            yield f"{row.name}: CUDA graphs were refused: {'; '.join(reason.strip(' :') for reason in refusals)}"
        elif row.settings.mode in CUDA_GRAPH_MODES and row.processes[0].replays:
            yield f"{row.name}: CUDA graphs replay {plural(row.processes[0].replays, 'graph')}"


def _no_graphs(measured: Sequence[ModeRow], names: Sequence[str]) -> str:
    asked = [row for row in measured if row.name in names and row.settings.mode in CUDA_GRAPH_MODES]
    return ", and no CUDA graphs" if asked and not any(one.replays for row in asked for one in row.processes) else ""


def _call_notes(comparison: ModeComparison, measured: Sequence[ModeRow]) -> Iterator[str]:
    if comparison.request.kind in COMPILED_HERE:
        return
    by_count: dict[int, list[str]] = {}
    for row in measured:
        if row.settings.mode != EAGER:
            by_count.setdefault(row.processes[0].calls, []).append(row.name)
    for count, rows in by_count.items():
        who = "each compiled row" if len(by_count) == 1 else join_words(rows)
        yield f"{who}: the settings of {plural(count, 'call')} of torch.compile were replaced"
    kept = dict.fromkeys(reason for row in measured for reason in row.processes[0].kept_calls)
    if kept:
        yield f"calls of torch.compile with {join_words(list(kept))} were left as they are"


def _output_notes(comparison: ModeComparison, measured: Sequence[ModeRow]) -> Iterator[str]:
    if comparison.request.kind not in COMPILED_HERE:
        yield "outputs were not compared: only a factory or a named model returns them to this tool"
        return
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in measured:
        agreement = row.figures.agreement if row.figures else None
        if agreement is not None and agreement.state in (DIFFERS, UNKNOWN):
            reasons.setdefault((agreement.state, agreement.reason), []).append(row.name)
    for (state, reason), rows in reasons.items():
        said = "the outputs differ from eager" if state == DIFFERS else "the outputs cannot be compared"
        yield f"{join_words(rows)}: {said}: {reason}"


def _own_notes(measured: Sequence[ModeRow]) -> Iterator[str]:
    said: dict[str, list[str]] = {}
    for row in measured:
        for note in dict.fromkeys(note for one in row.processes for note in one.notes):
            said.setdefault(note, []).append(row.name)
        breaks = row.processes[0].graph_breaks
        if breaks:
            first = breaks[0].strip().partition("\n")[0] or "without a reason"
            said.setdefault(f"{plural(len(breaks), 'graph break')}, the first one: {first}", []).append(row.name)
    for note, rows in said.items():
        yield f"{join_words(rows) if len(rows) < len(measured) else 'each row'}: {note}"
