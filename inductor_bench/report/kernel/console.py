"""Renders timed and tuned kernels as lines of styled words: times, shares of peak, tried candidates, next commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ... import units
from ...records.base import Failure
from ...records.category import Category
from ...records.run import Environment
from ...records.tuning import BY_DEFAULT, MeasuredKernel, Timing
from ..text import names
from ..text.layout import Column, Line, Word, bullet, columns, header, row, wrapped
from .counters import counter_words
from .tuning import MOST_CANDIDATES, MOST_OF_MANY, config_words, summary_line, tuning_lines

_ROOFS = {"memory": "DRAM", "cache": "cache", "compute": "FLOP/s"}


def measured_lines(
    kernels: Sequence[MeasuredKernel],
    failures: Sequence[Failure],
    environment: Environment,
    width: int,
    saved: Sequence[Path] = (),
    retune_s: float = 0.0,
) -> Iterator[Line]:
    """Renders the measured kernels.

    Args:
        kernels: the measured kernels.
        failures: the failures of other kernels.
        environment: the environment of the measuring process.
        width: columns; at least 80 for a table without wrapped lines.
        saved: the files to which faster kernels were written.
        retune_s: duration of all retunes in seconds.
    """
    if kernels:
        yield from _title(kernels, environment, width)
        yield from kernel_table(kernels, width)
    tuned = [(kernel, kernel.tuning) for kernel in kernels if kernel.tuning is not None]
    for kernel, tuning in tuned:
        among_many = len(tuned) > 1 and tuning.verdict
        yield from tuning_lines(kernel, tuning, width, MOST_OF_MANY if among_many else MOST_CANDIDATES)
    yield from failure_lines(failures, width)
    yield from summary_line(kernels, retune_s)
    for number, path in enumerate(saved):
        yield [Word("Written   " if number == 0 else "          ", "title"), Word(str(path))]
    yield from _next(kernels, saved)


def failure_lines(failures: Sequence[Failure], width: int) -> Iterator[Line]:
    """Renders each failure with its file and a hint."""
    for failure in failures:
        yield [Word(f"Failed  {names.clean(failure.subject)}", "bad")]
        for line in columns(names.clean(failure.message), width - 8):
            yield [Word(f"        {line}")]
        if failure.hint:
            for line in columns(f"Hint: {names.clean(failure.hint)}", width - 8):
                yield [Word(f"        {line}", "dim")]
    if failures:
        yield []


def _title(kernels: Sequence[MeasuredKernel], environment: Environment, width: int) -> Iterator[Line]:
    left = f"{len(kernels)} kernel{'s' * (len(kernels) != 1)}"
    devices = dict.fromkeys(kernel.device for kernel in kernels)
    right = " · ".join([*devices, f"torch {environment.versions.torch}"])
    room = max(width - names.cells(left) - names.cells(right), 2)
    yield [Word(left, "title"), Word(" " * room), Word(right, "dim")]
    yield []


def kernel_table(kernels: Sequence[MeasuredKernel], width: int) -> Iterator[Line]:
    """Renders a row for each kernel with its facts below, and the explanation of the columns."""
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
            *((units.seconds(kernel.warm.median_s), _spread(kernel.warm)) if kernel.warm else (units.MISSING,) * 2),
            *(units.size(kernel.work.moved_bytes), units.rate(kernel.roof.bandwidth), of_peak(kernel)),
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
    """Returns ``45% DRAM``, ``latency``, or a dash where no roof is known."""
    roof = kernel.roof
    if roof.bound == "latency":
        return "latency"
    if roof.bound not in _ROOFS:
        return units.MISSING
    share = f"{units.whole_percent(roof.peak_share)} " if roof.peak_share is not None else ""
    return share + _ROOFS[roof.bound]


def _spread(timing: Timing) -> str:
    if not timing.median_s:
        return units.MISSING
    half = (timing.high_s - timing.low_s) / 2 / timing.median_s
    return units.percent(half) if half < 1 else ">99%"


def _facts(kernel: MeasuredKernel) -> Iterator[str]:
    yield Category(kernel.category).title
    if kernel.config:
        yield config_words(kernel.config)
    if kernel.roof.flop_rate:
        yield units.flop_rate(kernel.roof.flop_rate)
    resources = kernel.resources
    if resources.registers is not None:
        spills = f", {resources.spills} spills" if resources.spills else ""
        yield f"{resources.registers} registers{spills}"
    if resources.shared_memory_bytes:
        yield f"{units.size(resources.shared_memory_bytes)} shared"
    if resources.occupancy is not None:
        yield f"{units.whole_percent(resources.occupancy)} occupancy"
    if kernel.clock.clock_mhz is not None:
        yield f"{kernel.clock.clock_mhz:,.0f} MHz"
    if kernel.edited:
        yield "edited since it was written"
    if kernel.original.in_model_s:
        yield f"{units.seconds(kernel.original.in_model_s)} in the model{' before that' if kernel.edited else ''}"
    if kernel.with_zeros:
        zeros = " and ".join(f"{units.seconds(timing.median_s)} {state}" for state, timing in kernel.with_zeros.items())
        yield f"{zeros} with zeros for indices"
    if kernel.checked is not None:
        yield "outputs agree" if kernel.checked else "OUTPUTS DIFFER"


def _next(kernels: Sequence[MeasuredKernel], saved: Sequence[Path]) -> Iterator[Line]:
    """Renders the next command on one line of any length, so that it can be copied."""
    won = [kernel for kernel in kernels if kernel.tuning is not None and kernel.tuning.verdict == "faster"]
    if saved:
        check = " --check" if won and won[0].checked is not None else ""
        command, why = f"python {shlex.quote(str(saved[0]))}{check}", "runs the winner by itself"
    elif won and won[0].tuning is not None and any("idle" in note for note in won[0].tuning.notes):
        command, why = _retune(won[0]), "the same again, on an idle machine"
    elif won:
        command, why = f"{_retune(won[0])} --save tuned.py", "writes the winner as a file to run and to diff"
    elif kernels and all(kernel.tuning is None or not kernel.tuning.verdict for kernel in kernels):
        slowest = max(kernels, key=lambda kernel: kernel.cold.median_s)
        command, why = _retune(slowest), "tries other configurations, each checked and timed against this one"
    else:
        return
    yield [Word("Next", "title"), Word(f"      {command}")]
    yield [Word(f"          {why}", "dim")]


def _retune(kernel: MeasuredKernel) -> str:
    tuning = kernel.tuning
    method = f" {tuning.method}" if tuning is not None and tuning.verdict and tuning.method != BY_DEFAULT else ""
    state = f" --state {tuning.state}" if tuning is not None and tuning.state != "cold" else ""
    return f"inductor-bench kernel {shlex.quote(kernel.file)} --autotune{method}{state}"
