"""Computes the result of a comparison of modes: the figures of each row, and the row to choose.

Times are compared in pairs from one round, whose processes ran shortly after each other, so a drift of the machine
cancels.
"""

from __future__ import annotations

import ast
import math
import shlex
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..devices.table import find_device
from ..records.comparison import (
    DIFFERS,
    EAGER,
    SWITCHES,
    ModeComparison,
    ModeFigures,
    ModeProcess,
    ModeRow,
    ModeSet,
    ModeWinner,
    StepRatio,
    Switch,
)
from .statistics import EFFECT, judge_ratio

# Confidence intervals over a few processes.
#
# A process is one sample. The memory layout, the clock and the machine's other work differ between processes, but all
# steps of a process share them. So more steps of one process make the result no more certain. The logarithms of the
# processes' mean steps are taken as normally distributed, and Student's t allows for their small number.
#
# Two or three processes say little about their own spread: with two, t is 63.7. For so few, a second interval counts if
# it is narrower: that of a normal distribution with the standard deviation :data:`NOISE`, or that of the values if it
# is larger. The two intervals together keep the confidence: Student's t gets nine tenths of the probability outside,
# the other interval one tenth. On a CPU that deviation has no bound: 0 to 8 busy programs on the same machine can make
# a process several times as slow.


SHOWN, DECIDING = 0.95, 0.99
"""The confidence of the intervals that are shown, and of the intervals that decide which row is faster."""

_QUANTILES = {
    SHOWN: (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    DECIDING: (
        63.657,
        9.925,
        5.841,
        4.604,
        4.032,
        3.707,
        3.499,
        3.355,
        3.250,
        3.169,
        3.106,
        3.055,
        3.012,
        2.977,
        2.947,
    ),
}
"""Two-sided quantiles of Student's t for 1 to 15 degrees of freedom, by the confidence."""

MOST_ROUNDS = 1 + len(_QUANTILES[SHOWN])

FEW = 3
"""Number of values up to which :data:`NOISE` is used."""

NOISE = 0.4
"""The largest standard deviation that is assumed for the logarithms of the steps of equal processes. Seen on an H200,
between two processes each of a decode loop: 0.05 with CUDA graphs, 0.07 to 0.37 if the step is host-bound."""

_MOST_OF_T = {SHOWN: (14.124, 4.553), DECIDING: (70.731, 10.470)}
"""Two-sided quantiles of Student's t for 1 and 2 degrees of freedom, with nine tenths of the probability outside."""

_NORMAL = {SHOWN: 2.807, DECIDING: 3.291}
"""Two-sided quantiles of the normal distribution, with one tenth of the probability outside."""


@dataclass(frozen=True)
class LogInterval:
    """The geometric mean of positive numbers and its confidence interval."""

    mean: float
    low: float
    high: float


def compute_geometric_interval(values: Sequence[float], confidence: float, noise: float = NOISE) -> LogInterval | None:
    """The geometric mean with its interval; ``None`` for fewer than two values.

    Args:
        values: positive numbers.
        confidence: ``SHOWN`` or ``DECIDING``.
        noise: the largest standard deviation of their logarithms, which counts for few values.
    """
    count = len(values)
    if count < 2:
        return None
    logs = [math.log(value) for value in values]
    middle, deviation = statistics.fmean(logs), statistics.stdev(logs)
    if count <= FEW:
        quantile = _MOST_OF_T[confidence][count - 2]
        reach = min(quantile * deviation, _NORMAL[confidence] * max(noise, deviation)) / math.sqrt(count)
    else:
        reach = _QUANTILES[confidence][min(count, MOST_ROUNDS) - 2] * deviation / math.sqrt(count)
    return LogInterval(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach))


def decide_step_verdict(interval: LogInterval, effect: float = EFFECT) -> str:
    """``faster``, ``slower``, ``same`` or ``undecided``, from the interval of the ratio of a step to another's.

    ``faster`` and ``slower`` need an interval that excludes 1 and a mean difference of at least ``effect``. ``same``
    needs an interval within ``effect`` of 1.
    """
    return judge_ratio(interval.mean, interval.low, interval.high, effect)


DECISIVE_ROUNDS = 2
"""The smallest number of rounds of a row for a statement about its order."""


COMPILE_NOISE = 1.5
"""Two compile times count as equal up to this ratio, because each is measured only once, on a busy host."""


ACCEPTED = 0.1
"""How much slower than the fastest row the advised row may be at most, at the upper end of the interval."""


def conclude(comparison: ModeComparison) -> ModeComparison:
    """Returns the comparison with the figures of each row and the winner."""
    rows = [replace(row, figures=_compute_figures(row)) for row in comparison.rows]
    usable = [row for row in rows if is_usable(row)]
    fastest = min(usable, key=_compute_step_time, default=None)
    eager = next((row for row in usable if row.settings == ModeSet(EAGER)), None)
    compared = [_compare_row(row, rows[:place], usable, eager, fastest) for place, row in enumerate(rows)]
    return replace(comparison, rows=tuple(compared), winner=_choose_winner(compared))


def is_usable(row: ModeRow) -> bool:
    """Whether a row may be advised: it ran in each round, and gave the outputs of the uncompiled program."""
    agreement = row.figures.agreement if row.figures else None
    return row.figures is not None and row.failure is None and (agreement is None or agreement.state != DIFFERS)


def _compute_step_time(row: ModeRow) -> float:
    return row.figures.step_time_s if row.figures else math.inf


def _compile_time(row: ModeRow) -> float:
    found = row.figures.compile_time_s if row.figures else None
    return math.inf if found is None else found


def _compute_figures(row: ModeRow) -> ModeFigures | None:
    if not row.processes:
        return None
    first, last = row.processes[0], row.processes[-1]
    times = [one.step_time_s for one in row.processes]
    interval = compute_geometric_interval(times, SHOWN, _compute_noise(row))
    again = [one.compile_time_s for one in row.processes[1:] if one.compile_time_s is not None]
    eager = row.settings.mode == EAGER
    return ModeFigures(
        step_time_s=interval.mean if interval else times[0],
        low_s=interval.low if interval else None,
        high_s=interval.high if interval else None,
        compile_time_s=0.0 if eager else first.compile_time_s if first.round == 0 else None,
        recompile_time_s=None if eager else min(again, default=None),
        peak_memory_bytes=last.peak_memory_bytes,
        graph_breaks=len(first.graph_breaks),
        work=first.work,
        agreement=first.agreement,
    )


def _compare_row(
    row: ModeRow, earlier: Sequence[ModeRow], usable: Sequence[ModeRow], eager: ModeRow | None, fastest: ModeRow | None
) -> ModeRow:
    if row.figures is None:
        return row
    shorter = [other for other in usable if _compile_time(other) < _compile_time(row)]
    cheaper = max(shorter, key=_compile_time, default=None) if math.isfinite(_compile_time(row)) else None
    to_eager, to_cheaper = _compute_ratio(row, eager), _compute_ratio(row, cheaper)
    figures = replace(
        row.figures,
        to_eager=to_eager,
        to_fastest=_compute_ratio(row, fastest),
        pays_after=_compute_steps_to_pay(row, eager, to_eager),
        cheaper=cheaper.name if cheaper else "",
        to_cheaper=to_cheaper,
        pays_after_cheaper=_compute_steps_to_pay(row, cheaper, to_cheaper),
        same_code_as=next((other.name for other in earlier if has_same_code(row, other)), ""),
    )
    return replace(row, figures=figures)


def _compute_ratio(row: ModeRow, other: ModeRow | None) -> StepRatio | None:
    if other is None or other.name == row.name:
        return None
    theirs = {one.round: one.step_time_s for one in other.processes}
    ratios = [one.step_time_s / theirs[one.round] for one in row.processes if one.round in theirs]
    interval = compute_geometric_interval(ratios, DECIDING, _compute_noise(row, other) * math.sqrt(2))
    if interval is None:
        return None
    verdict = "same" if has_same_code(row, other) else decide_step_verdict(interval)
    return StepRatio(interval.mean, interval.low, interval.high, len(ratios), verdict)


def _compute_noise(*rows: ModeRow) -> float:
    """Returns the largest standard deviation of the logarithms of equal processes. On a CPU it has no bound."""
    on_host = any(find_device(one.device).runs_on_host for row in rows for one in row.processes)
    return math.inf if on_host else NOISE


def _compute_steps_to_pay(row: ModeRow, other: ModeRow | None, ratio: StepRatio | None) -> float | None:
    extra_s = _compile_time(row) - (_compile_time(other) if other else 0.0)
    if other is None or ratio is None or ratio.verdict != "faster" or not math.isfinite(extra_s):
        return None
    return max(0.0, extra_s) / (_compute_step_time(other) * (1 - ratio.ratio))


def has_same_code(row: ModeRow, other: ModeRow) -> bool:
    """Whether two compiled rows ran the same generated code in the same configs and in the same way."""
    if EAGER in (row.settings.mode, other.settings.mode) or _list_additions_to_mode(row) != _list_additions_to_mode(
        other
    ):
        return False
    ways = {_make_code_key(one) for one in (*row.processes, *other.processes)}
    return bool(row.processes and other.processes) and len(ways) == 1 and bool(row.processes[0].codes)


def _list_additions_to_mode(row: ModeRow) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """Lists the settings that act outside the generated code: switches, variables, options of the C++ compiler."""
    options = {item for item in row.settings.options.items() if item[0].startswith("cpp.")}
    return frozenset(row.settings.switches), frozenset({*row.settings.environment.items(), *options})


def _make_code_key(process: ModeProcess) -> tuple[tuple[str, ...], str, int]:
    return process.codes, process.configs, process.replays


def _choose_winner(rows: Sequence[ModeRow]) -> ModeWinner | None:
    """Returns the fastest row.

    If other rows are not reliably slower, returns the first with the shortest compilation.
    """
    usable = [row for row in rows if is_usable(row) and len(row.processes) >= DECISIVE_ROUNDS]
    if all(row.settings.mode == EAGER for row in usable) or len(usable) < 2:
        return None
    fastest = min(usable, key=_compute_step_time)
    close = [fastest, *(row for row in usable if row is not fastest and _is_close(row))]
    faster = [row for row in close if _is_faster_than_eager(row)]
    sure = [row for row in close if row in faster or any(has_same_code(row, other) for other in faster)] or close
    shortest_s = min(map(_compile_time, sure))
    # rows stand in the order in which they are asked for, and the plain modes come first
    chosen = next(row for row in rows if row in sure and _compile_time(row) <= shortest_s * COMPILE_NOISE)
    equals = tuple(row.name for row in close if row is not fastest)
    ratio = chosen.figures.to_fastest if chosen.figures else None
    decided = ratio is None or ratio.verdict == "same" or ratio.high <= 1 + ACCEPTED
    return ModeWinner(chosen.name, write_lines(chosen.settings), fastest.name, equals, decided)


def _is_close(row: ModeRow) -> bool:
    ratio = row.figures.to_fastest if row.figures else None
    return ratio is not None and ratio.verdict != "slower"


def _is_faster_than_eager(row: ModeRow) -> bool:
    ratio = row.figures.to_eager if row.figures else None
    return ratio is not None and ratio.verdict == "faster"


def write_lines(settings: ModeSet) -> tuple[str, ...]:
    """Returns the lines to type for these settings: environment variables first, ``torch.compile`` last."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in settings.environment.items()]
    newer = {name: Switch(name, "", f"# {name}, which a newer inductor-bench knows") for name in settings.switches}
    switches = [SWITCHES.get(name, newer[name]) for name in settings.switches]
    variables += [switch.line for switch in switches if switch.variable]
    lines = [f"export {' '.join(variables)}"] if variables else []
    lines += [switch.line for switch in switches if not switch.variable]
    if settings.mode != EAGER:
        lines.append(_compile_line(settings))
    return tuple(lines)


def _compile_line(settings: ModeSet) -> str:
    if not settings.options:
        return f'torch.compile(model, mode="{settings.mode}")'
    options = ", ".join(f'"{name}": {_write_literal(value)}' for name, value in settings.options.items())
    mode = f'**torch._inductor.list_mode_options("{settings.mode}"), ' if settings.mode != "default" else ""
    return f"torch.compile(model, options={{{mode}{options}}})"


def _write_literal(text: str) -> str:
    words = {"true": "True", "false": "False", "none": "None"}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return repr(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return repr(text)
