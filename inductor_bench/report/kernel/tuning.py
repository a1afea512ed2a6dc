"""Renders the tried candidates of kernels and the result of their tuning as lines of styled words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ... import units
from ...records.tuning import Config, MeasuredKernel, TriedCandidate, Tuning
from ..text import names
from ..text.layout import Column, Line, Word, bullet, columns, header, row, wrapped

MOST_CANDIDATES = 20
MOST_OF_MANY = 6
"""Largest number of candidate rows per kernel, for one kernel and for several kernels."""

VERDICT_STYLES = {"faster": "good", "slower": "bad", "undecided": "warn"}
_TIMED = ("default", "best", "finalist", "slower", "timed")
_TROUBLE = ("wrong", "refused", "spills", "crashed", "hung")
_ORDER = {"best": 0, "default": 1, "timed": 1, "finalist": 2, "slower": 3, "duplicate": 4, "untried": 6}


def tuning_lines(kernel: MeasuredKernel, tuning: Tuning, width: int, most: int = MOST_CANDIDATES) -> Iterator[Line]:
    """Renders the result of a kernel's tuning and, below it, at most ``most`` candidates."""
    yield [Word(names.middle(names.clean(kernel.name), width - 4), "title")]
    yield from wrapped(f"{tuning.method}: {_count_words(tuning)}", width, "  ")
    if tuning.verdict:
        yield [Word(f"  {tuning.verdict:<10}", VERDICT_STYLES.get(tuning.verdict, "")), *_gain(tuning)]
    if tuning.verdict == "faster":
        yield [Word("  best      "), Word(_changes(tuning.best_config, kernel.config), "good")]
    for note in tuning.notes:
        yield from bullet(names.clean(note), width, "warn")
    yield from _candidates(kernel, tuning, width, most)
    yield []


def summary_line(kernels: Sequence[MeasuredKernel], took_s: float) -> Iterator[Line]:
    """Renders the total of several kernels' tuning, per iteration where the calls are known; nothing for one kernel."""
    retuned = [(kernel.original.calls, kernel.tuning) for kernel in kernels if kernel.tuning and kernel.tuning.verdict]
    if len(retuned) < 2:
        return
    known = all(calls for calls, _ in retuned)
    weighted = [((calls if known else None) or 1, each) for calls, each in retuned]
    before = sum(calls * each.default_s for calls, each in weighted)
    after = sum(calls * each.best_s for calls, each in weighted)
    which = "their calls in an iteration" if known else "one call of each"
    faster = sum(each.verdict == "faster" for _, each in retuned)
    yield [
        Word(f"{len(retuned)} kernels retuned in {units.seconds(took_s)}: ", "title"),
        Word(f"{faster} faster", "good" if faster else ""),
        Word(f", {len(retuned) - faster} as they were"),
    ]
    state = retuned[0][1].state
    yield [Word(f"  {which}: {units.seconds(before)} → {units.seconds(after)} {state}, {before / after:.2f}x")]
    yield []


def config_words(config: Config) -> str:
    """Returns ``XBLOCK=64 num_warps=4``."""
    return " ".join(f"{name}={value}" for name, value in config.items())


def _count_words(tuning: Tuning) -> str:
    """Timed candidates, then the others by status: ``1 → 14 configs in 2.1 s of checks and timing, 3 duplicate``."""
    left = Counter(each.status for each in tuning.candidates if each.status not in _TIMED)
    others = "".join(f", {count} {status}" for status, count in left.items())
    timed = 1 + tuning.tried
    if not tuning.verdict:
        return f"{timed} config{'s' * (timed != 1)} timed{others}"
    return f"1 → {timed} configs in {units.seconds(tuning.time_s)} of checks and timing{others}"


def _gain(tuning: Tuning) -> Iterator[Word]:
    default, ratio = units.seconds(tuning.default_s), tuning.ratio
    if tuning.verdict != "faster" or ratio is None:
        beside = f": the best of the others took {ratio.median:.3f}x" if ratio else ""
        yield Word(f"it stays at {default} {tuning.state}{beside}")
        return
    times = f"{default} → {units.seconds(tuning.best_s)} {tuning.state}"
    low, high = 1 / ratio.high, 1 / ratio.low
    yield Word(f"{times}, {tuning.speedup:.2f}x")
    yield Word(f" ({low:.2f} to {high:.2f})", "dim")


def _candidates(kernel: MeasuredKernel, tuning: Tuning, width: int, most: int) -> Iterator[Line]:
    rows = [_with_measured_facts(each, kernel) for each in tuning.candidates]
    shown = sorted(enumerate(rows, 1), key=lambda item: _rank(item[1]))
    titles = list(_columns(rows, in_full=not tuning.verdict))
    room = width - sum(column.width + 1 for column in titles) - 3
    yield [Word("  "), *header(titles, 1), Word("  config", "dim")]
    for number, candidate in shown[:most]:
        cells = [_cell(column.title, number, candidate) for column in titles]
        what = "as it stands" if candidate.status == "default" else _changes(candidate.config, kernel.config)
        first, *others = columns(_with_reason(what, candidate, room), room)
        style = "bad" if candidate.status in _TROUBLE else ""
        yield [Word("  " + row(titles, cells, 1), style), Word(f"  {first}", "dim")]
        for line in others:
            yield [Word(" " * (width - room) + line, "dim")]
    if left := Counter(candidate.status for _, candidate in shown[most:]):
        counts = ", ".join(f"{count} {status}" for status, count in left.items())
        yield from wrapped(f"and {counts}: --format json lists them", width, "  ", "dim")


def _columns(rows: Sequence[TriedCandidate], in_full: bool) -> Iterator[Column]:
    """Yields the columns that have values. ``in_full`` also shows a column of spills without any spill."""
    yield from (Column("no.", 3), Column("status", 9, False), Column("time", 8), Column("ratio", 6))
    compiled = any(each.registers is not None for each in rows)
    if compiled:
        yield Column("regs", 4)
    if any(each.spills for each in rows) or (in_full and compiled):
        yield Column("spills", 6)
    if in_full and compiled:
        yield Column("shared", 7)


def _cell(title: str, number: int, candidate: TriedCandidate) -> str:
    return {
        "no.": str(number),
        "status": candidate.status,
        "time": units.seconds(candidate.median_s) if candidate.median_s is not None else "",
        "ratio": f"{candidate.ratio.median:.3f}" if candidate.ratio else "",
        "regs": str(candidate.registers if candidate.registers is not None else ""),
        "spills": str(candidate.spills if candidate.spills is not None else ""),
        "shared": units.size(candidate.shared_memory_bytes) if candidate.shared_memory_bytes is not None else "",
    }[title]


def _with_measured_facts(candidate: TriedCandidate, kernel: MeasuredKernel) -> TriedCandidate:
    """Fills in the facts of the default candidate from the measured kernel, because it is not compiled again."""
    if candidate.status != "default":
        return candidate
    return replace(candidate, registers=kernel.resources.registers, spills=kernel.resources.spills)


def _with_reason(what: str, candidate: TriedCandidate, room: int) -> str:
    """Appends the reason of a candidate's status, unless it only repeats the time and is longer than the room."""
    text = f"{what}  ({names.clean(candidate.reason)})" if candidate.reason else what
    return what if candidate.status == "slower" and names.cells(text) > room else text


def _rank(candidate: TriedCandidate) -> tuple[int, float]:
    return _ORDER.get(candidate.status, 5), candidate.median_s or 0.0


def _changes(config: Config, default: Config) -> str:
    """Returns the fields of a configuration that differ from the default."""
    return config_words({name: value for name, value in config.items() if default.get(name) != value}) or "as it stands"
