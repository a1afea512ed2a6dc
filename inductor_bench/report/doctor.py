"""Renders the diagnosis of ``doctor`` as plain text; its table of formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Protocol

from .. import units
from ..devices.table import best_device, device_of_peaks
from ..records.base import Failure
from ..records.run import Environment, Peaks
from ..store.caches import cache_folder, peaks_key, slug
from ..version import __version__
from .renderer import Format, Formats, View, json_row


class Check(Protocol):
    """One check of the installation or the machine."""

    @property
    def name(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def found(self) -> str: ...
    @property
    def hint(self) -> str: ...


class Diagnosis(Protocol):
    """All checks, the environment, the measured peaks of the requested device, and the optional packages."""

    @property
    def checks(self) -> Sequence[Check]: ...
    @property
    def environment(self) -> Environment: ...
    @property
    def peaks(self) -> Peaks | None: ...
    @property
    def failure(self) -> Failure | None: ...
    @property
    def packages(self) -> Sequence[Check]: ...


def doctor_text(report: Diagnosis) -> str:
    """Renders a diagnosis as aligned plain text."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Diagnosis) -> Iterator[str]:
    python = report.environment.versions.python
    yield f"inductor-bench {__version__}" + (f" · Python {python}" if python else "")
    yield ""
    checks = (*report.checks, *report.packages)
    width = max((len(check.name) for check in checks), default=0)
    for check in checks:
        yield f"{check.status:<9} {check.name:<{width}}  {check.found}"
        if check.hint:
            yield f"{'':<9} {'':<{width}}  → {check.hint}"
    if report.failure is not None:
        yield ""
        yield f"failed    {report.failure.message}"
        if report.failure.hint:
            yield f"          → {report.failure.hint}"
        yield from (f"          {line}" for line in report.failure.log_tail.splitlines())
    if report.peaks is not None:
        yield ""
        yield from _peak_lines(report.peaks)
        yield ""
        yield from _kept_lines(report.peaks, report.environment)


def _peak_lines(peaks: Peaks) -> Iterator[str]:
    threads = f" with {peaks.threads} thread{'s' * (peaks.threads > 1)}" if peaks.threads else ""
    yield f'What {peaks.device} reaches{threads}: the peaks that "of peak" refers to'
    cache = device_of_peaks(peaks).words.cache
    rows = [("DRAM", units.rate(peaks.memory_bandwidth), f"simple kernels over arrays far larger than the {cache}")]
    if peaks.cache_bandwidth is not None:
        held = f"a third of its {units.size(peaks.cache_bytes)}" if peaks.cache_bytes else "arrays that it holds"
        rows.append((cache, units.rate(peaks.cache_bandwidth), f"the same over {held}"))
    rows += [
        (f"compute {dtype}", units.flop_rate(rate), "dense matrix products of random numbers" if index == 0 else "")
        for index, (dtype, rate) in enumerate(peaks.matmul_flops.items())
    ]
    if peaks.launch_floor_s is not None:
        rows.append(("latency", units.seconds(peaks.launch_floor_s), "an empty kernel: none takes less"))
    names, values = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, value, how in rows:
        yield f"  {name:<{names}}  {value:>{values}}  {how}".rstrip()


def _kept_lines(peaks: Peaks, environment: Environment) -> Iterator[str]:
    """Yields the age of the peaks, the file that holds them, and the command that measures them again."""
    device = device_of_peaks(peaks)
    path = cache_folder() / "peaks" / f"{slug(peaks_key(environment, device.type))}.json"
    kept = f", kept in {path}" if path.is_file() else ""
    if peaks.measured_at:
        yield f"Measured {_age(peaks.measured_at)}{kept}"
    yield "Other work on the machine lowers these figures. To measure again, on an idle machine:"
    option = "" if device is best_device(environment) else f" --device {device.type}"
    yield f"  inductor-bench doctor --remeasure{option}"


def _age(measured_at: str) -> str:
    """Returns ``2025-01-01 12:00 UTC (3 days ago)``; an invalid time is returned unchanged."""
    try:
        then = datetime.fromisoformat(measured_at.replace("Z", "+00:00"))
    except ValueError:
        return measured_at
    then = then if then.tzinfo else then.replace(tzinfo=timezone.utc)
    seconds = (datetime.now(timezone.utc) - then).total_seconds()
    shown = then.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    for length, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= length:
            number = int(seconds // length)
            return f"{shown} ({number} {unit}{'s' * (number > 1)} ago)"
    return f"{shown} (just now)"


def _text(report: Diagnosis, view: View) -> str:
    return doctor_text(report)


FORMATS: Formats[Diagnosis] = Formats((Format("table", _text), json_row()))
