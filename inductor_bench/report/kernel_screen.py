"""Timed and retuned kernels as lines of styled words: the times, what they reach, what was tried, what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import units
from ..records.category import Category
from ..records.run import Environment, Failure
from ..records.tuning import Comparison, Config, MeasuredKernel, Timing, TriedCandidate, Tuning
from . import names
from .counter_words import counter_words
from .layout import Column, Line, Word, bullet, columns, header, row, wrapped

MOST_CANDIDATES = 20
_ROOFS = {"memory": "DRAM", "cache": "cache", "compute": "FLOP/s"}
_STYLES = {"faster": "good", "slower": "bad", "undecided": "warn"}
_ORDER = ("best", "default", "finalist", "slower")


def kernel_screen(
    kernels: Sequence[MeasuredKernel],
    failures: Sequence[Failure],
    environment: Environment,
    width: int,
    saved: Sequence[Path] = (),
) -> Iterator[Line]:
    """The whole screen.

    Args:
        kernels: those that were measured.
        failures: why others were not.
        environment: of the process that measured.
        width: columns; 80 at least for a table that does not wrap.
        saved: the files that winners were written to.
    """
    if kernels:
        yield from _title(kernels, environment, width)
        yield from _table(kernels, width)
    for kernel in kernels:
        if kernel.tuning is not None:
            yield from _tuning(kernel, kernel.tuning, width)
    for failure in failures:
        yield [Word(f"Failed  {names.clean(failure.subject)}", "bad")]
        for line in columns(names.clean(failure.message), width - 8):
            yield [Word(f"        {line}")]
        if failure.hint:
            for line in columns(f"Hint: {names.clean(failure.hint)}", width - 8):
                yield [Word(f"        {line}", "dim")]
    if failures:
        yield []
    for number, path in enumerate(saved):
        yield [Word("Written   " if number == 0 else "          ", "title"), Word(str(path))]
    yield from _next(kernels, environment, saved)


def comparison_screen(comparison: Comparison, width: int) -> Iterator[Line]:
    """Two kernels that were timed in turn: their rows, whether they compute the same, and which is faster."""
    pair = (comparison.first, comparison.second)
    yield from _table(pair, width)
    ratio, verdict = comparison.ratio, comparison.verdict
    words = {"same": "takes as long", "undecided": "may be faster or slower"}.get(verdict, f"is {verdict}")
    yield [
        Word(names.middle(names.clean(comparison.second.file), width - 32), "title"),
        Word(f" {words}", _STYLES.get(verdict, "")),
    ]
    interval = f"99.5% interval {ratio.low:.3f} to {ratio.high:.3f}, {ratio.pairs} pairs"
    yield from wrapped(f"{ratio.median:.3f} of the other's {comparison.state} time ({interval})", width, "  ")
    if comparison.difference:
        style = "warn" if comparison.alike is None else "bad"
        yield from wrapped(f"outputs: {comparison.difference}", width, "  ", style)
    else:
        yield [Word("  both compute the same", "good")]


def _title(kernels: Sequence[MeasuredKernel], environment: Environment, width: int) -> Iterator[Line]:
    left = f"{len(kernels)} kernel{'s' * (len(kernels) != 1)}"
    devices = dict.fromkeys(kernel.device for kernel in kernels)
    right = " · ".join([*devices, f"torch {environment.torch}"])
    room = max(width - names.cells(left) - names.cells(right), 2)
    yield [Word(left, "title"), Word(" " * room), Word(right, "dim")]
    yield []


def _table(kernels: Sequence[MeasuredKernel], width: int) -> Iterator[Line]:
    titles = [
        Column("kernel", min(34, max(20, width - 66)), False),
        *(Column(title, size) for title, size in (("cold", 8), ("±", 5), ("warm", 8), ("±", 5), ("moved", 7))),
        *(Column(title, size) for title, size in (("bandwidth", 9), ("of peak", 11))),
    ]
    yield header(titles, 1)
    for kernel in kernels:
        cells = [
            names.middle(names.clean(kernel.name), titles[0].width),
            *(units.seconds(kernel.cold.median_s), _spread(kernel.cold)),
            *(units.seconds(kernel.warm.median_s), _spread(kernel.warm)),
            *(units.size(kernel.moved_bytes), units.rate(kernel.bandwidth), of_peak(kernel)),
        ]
        yield [Word(row(titles, cells, 1))]
        yield from wrapped(" · ".join(_facts(kernel)), width, "    ", "dim")
        counted = " · ".join(counter_words(kernel))
        if counted:
            yield from wrapped(f"counted: {counted}", width, "    ", "dim")
        for advice in kernel.advice:
            yield from bullet(advice, width, "warn")
    yield from wrapped(
        "±: half the 95% interval of the median. Bandwidth: by the cold time. Of peak: DRAM and FLOP/s by the cold "
        "time, cache by the warm time.",
        width,
        "",
        "dim",
    )
    yield []


def of_peak(kernel: MeasuredKernel) -> str:
    """``45% DRAM``, ``latency``, or a dash where no roof is known."""
    if kernel.bound == "latency":
        return "latency"
    if kernel.bound not in _ROOFS:
        return units.MISSING
    share = f"{units.whole_percent(kernel.peak_share)} " if kernel.peak_share is not None else ""
    return share + _ROOFS[kernel.bound]


def _spread(timing: Timing) -> str:
    if not timing.median_s:
        return units.MISSING
    half = (timing.high_s - timing.low_s) / 2 / timing.median_s
    return units.percent(half) if half < 1 else ">99%"


def _facts(kernel: MeasuredKernel) -> Iterator[str]:
    yield Category(kernel.category).title
    if kernel.config:
        yield config_words(kernel.config)
    if kernel.flop_rate:
        yield units.flop_rate(kernel.flop_rate)
    if kernel.registers is not None:
        spills = f", {kernel.spills} spills" if kernel.spills else ""
        yield f"{kernel.registers} registers{spills}"
    if kernel.shared_memory_bytes:
        yield f"{units.size(kernel.shared_memory_bytes)} shared"
    if kernel.occupancy is not None:
        yield f"{units.whole_percent(kernel.occupancy)} occupancy"
    if kernel.clock_mhz is not None:
        yield f"{kernel.clock_mhz:,.0f} MHz"
    if kernel.in_model_s:
        yield f"{units.seconds(kernel.in_model_s)} in the model"
    if kernel.with_zeros:
        zeros = " and ".join(f"{units.seconds(timing.median_s)} {state}" for state, timing in kernel.with_zeros.items())
        yield f"{zeros} with zeros for indices"
    if kernel.checked is not None:
        yield "outputs agree" if kernel.checked else "OUTPUTS DIFFER"


def config_words(config: Config) -> str:
    """``XBLOCK=64 num_warps=4``."""
    return " ".join(f"{name}={value}" for name, value in config.items())


def _tuning(kernel: MeasuredKernel, tuning: Tuning, width: int) -> Iterator[Line]:
    verdict = Word(tuning.verdict, _STYLES.get(tuning.verdict, ""))
    name = names.middle(names.clean(kernel.name), width - 4)
    yield [Word(name, "title")]
    configs = f"1 → {1 + tuning.tried} configs"
    yield [Word(f"  {tuning.method}: {configs} in {units.seconds(tuning.time_s)}: "), verdict, *_gain(tuning)]
    if tuning.verdict == "faster":
        yield [Word("  best     "), Word(_changes(tuning.best_config, kernel.config), "good")]
    for note in tuning.notes:
        yield from bullet(names.clean(note), width, "warn")
    yield from _candidates(tuning, kernel.config, width)
    yield []


def _gain(tuning: Tuning) -> Iterator[Word]:
    times = f"   {units.seconds(tuning.default_s)} → {units.seconds(tuning.best_s)} {tuning.state}"
    if tuning.verdict != "faster" or tuning.ratio is None:
        yield Word(times)
        return
    low, high = 1 / tuning.ratio.high, 1 / tuning.ratio.low
    yield Word(f"{times}, {tuning.speedup:.2f}x")
    yield Word(f" ({low:.2f} to {high:.2f})", "dim")


def _candidates(tuning: Tuning, default: Config, width: int) -> Iterator[Line]:
    titles = [Column("status", 10, False), Column("time", 8), Column("ratio", 6)]
    room = width - sum(column.width + 2 for column in titles) - 2
    yield [Word("  "), *header(titles, 2), Word("  config", "dim")]
    ranked = sorted(tuning.candidates, key=_rank)
    for candidate in ranked[:MOST_CANDIDATES]:
        ratio = f"{candidate.ratio.median:.3f}" if candidate.ratio else ""
        cells = [candidate.status, units.seconds(candidate.median_s), ratio]
        what = "as it stands" if candidate.status == "default" else _changes(candidate.config, default)
        text = f"{what}  ({names.clean(candidate.reason)})" if candidate.reason else what
        yield [Word("  " + row(titles, cells, 2)), Word("  " + names.end(text, room), "dim")]
    if len(ranked) > MOST_CANDIDATES:
        yield [Word(f"  and {len(ranked) - MOST_CANDIDATES} more with --format json", "dim")]


def _rank(candidate: TriedCandidate) -> tuple[int, float]:
    place = _ORDER.index(candidate.status) if candidate.status in _ORDER else len(_ORDER)
    return place, candidate.median_s or 0.0


def _changes(config: Config, default: Config) -> str:
    """What of a configuration is not as in the default."""
    return config_words({name: value for name, value in config.items() if default.get(name) != value}) or "as it stands"


def _next(kernels: Sequence[MeasuredKernel], environment: Environment, saved: Sequence[Path]) -> Iterator[Line]:
    """What to type next, on one line however long it is, so that it can be copied."""
    on_cpu = [kernel for kernel in kernels if kernel.device in (environment.cpu, "cpu")]  # others are not retuned
    won = [kernel for kernel in kernels if kernel.tuning is not None and kernel.tuning.verdict == "faster"]
    if saved:
        command, why = f"python {shlex.quote(str(saved[0]))} --check", "runs the winner by itself"
    elif won and won[0].tuning is not None and won[0].tuning.notes:
        command, why = _retune(won[0]), "the same again, on an idle machine"
    elif won:
        command, why = f"{_retune(won[0])} --save tuned.py", "writes the winner as a file to run and to diff"
    elif on_cpu and all(kernel.tuning is None for kernel in kernels):
        slowest = max(on_cpu, key=lambda kernel: kernel.cold.median_s)
        command, why = _retune(slowest), "tries other configurations, each checked and timed against this one"
    else:
        return
    yield [Word("Next", "title"), Word(f"      {command}")]
    yield [Word(f"          {why}", "dim")]


def _retune(kernel: MeasuredKernel) -> str:
    tuning = kernel.tuning
    method = f" {tuning.method}" if tuning is not None and tuning.method != "max" else ""
    state = f" --state {tuning.state}" if tuning is not None and tuning.state != "cold" else ""
    return f"inductor-bench kernel {shlex.quote(kernel.file)} --autotune{method}{state}"
