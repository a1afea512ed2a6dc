"""What ``doctor`` says: what is installed, and what the device reaches."""

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
from .document import (
    BAD,
    GOOD,
    NOTE,
    Block,
    Cell,
    Column,
    Commands,
    Document,
    Facts,
    Item,
    Items,
    Note,
    Row,
    Section,
    Sentence,
    Table,
    words,
)
from .formats import DEFAULT_VIEW, View, document_formats

TONES = {"ok": GOOD, "missing": BAD, "broken": BAD}


class CheckRow(Protocol):
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
    def checks(self) -> Sequence[CheckRow]: ...
    @property
    def environment(self) -> Environment: ...
    @property
    def peaks(self) -> Peaks | None: ...
    @property
    def failure(self) -> Failure | None: ...
    @property
    def packages(self) -> Sequence[CheckRow]: ...


def doctor_document(report: Diagnosis, view: View = DEFAULT_VIEW) -> Document:
    """The checks with what to do about them, why the device was not measured, and its peaks."""
    python = report.environment.versions.python
    columns = (Column("status", False), Column("what", False), words("found", least=24, wraps=True))
    checks = [_check_row(check) for check in (*report.checks, *report.packages)]
    blocks = [Section("Installed", (Table(columns, checks, main=1, titled=False),), quiet=True)]
    failure, peaks = report.failure, report.peaks
    if failure is not None:
        blocks.append(
            Section("Failed", (Items((Item(failure.message, BAD, failure.hint, log=failure.log_tail),)),), BAD)
        )
    if peaks is not None:
        threads = f" with {peaks.threads} thread{'s' * (peaks.threads > 1)}" if peaks.threads else ""
        title = f'What {peaks.device} reaches{threads}: the peaks that "of peak" refers to'
        reached = Table(
            (Column("limit", False), Column("rate"), words("how", least=24, wraps=True)),
            _peak_rows(peaks),
            titled=False,
        )
        blocks.append(Section(title, (reached,), short="Peaks"))
        blocks.append(Section("The age of the peaks", tuple(_age_blocks(peaks, report.environment)), quiet=True))
    return Document(f"inductor-bench {__version__}", (f"Python {python}" if python else "",), tuple(blocks))


def _check_row(check: CheckRow) -> Row:
    hint = (Note(f"→ {check.hint}", tone="", whole=True),) if check.hint else ()
    return Row((Cell(check.status, tone=TONES.get(check.status, "")), Cell(check.name, notes=hint), Cell(check.found)))


def _peak_rows(peaks: Peaks) -> list[Row]:
    cache = device_of_peaks(peaks).words.cache
    found = [("DRAM", units.rate(peaks.memory_bandwidth), f"simple kernels over arrays far larger than the {cache}")]
    if peaks.cache_bandwidth is not None:
        held = f"a third of its {units.size(peaks.cache_bytes)}" if peaks.cache_bytes else "arrays that it holds"
        found.append((cache, units.rate(peaks.cache_bandwidth), f"the same over {held}"))
    found += [
        (f"compute {dtype}", units.flop_rate(rate), "dense matrix products of random numbers" if index == 0 else "")
        for index, (dtype, rate) in enumerate(peaks.matmul_flops.items())
    ]
    if peaks.launch_floor_s is not None:
        found.append(("latency", units.seconds(peaks.launch_floor_s), "an empty kernel; no kernel takes less"))
    return [Row(tuple(map(Cell, texts))) for texts in found]


def _age_blocks(peaks: Peaks, environment: Environment) -> Iterator[Block]:
    """Yields the age of the peaks, the file that holds them, and the command that measures them again."""
    device = device_of_peaks(peaks)
    path = cache_folder() / "peaks" / f"{slug(peaks_key(environment, device.type))}.json"
    facts = [("Measured", age(peaks.measured_at))] if peaks.measured_at else []
    yield Facts((*facts, *([("Kept in", str(path))] if path.is_file() else [])))
    option = "" if device is best_device(environment) else f" --device {device.type}"
    yield Sentence("Other work on the machine lowers these figures.", NOTE)
    yield Commands(((f"inductor-bench doctor --remeasure{option}", "measures again, on an idle machine"),))


def age(measured_at: str) -> str:
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


FORMATS = document_formats(doctor_document, of="a diagnosis")
