"""The documents of ``kernel`` for measured, tuned and compared files: times, shares of peak, verdicts, commands."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from .. import units
from ..analysis.findings.finding import plural
from ..analysis.limits import compute_slowdown_of_kernels, describe_limit
from ..devices.hardware_counters import STALL_WORDS
from ..records.base import Category, Failure
from ..records.comparison import Pairing, TimedPair
from ..records.retune import BY_DEFAULT, Config, HardwareCounters, MeasuredKernel, Timing, TriedCandidate, Tuning
from ..records.run import KernelOutcome
from . import names
from .document import (
    BAD,
    GOOD,
    LEAD,
    NOTE,
    WARN,
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
    make_notes,
    make_sentences,
    make_table,
    make_text_column,
)
from .edit_document import describe_pair
from .formats import DEFAULT_VIEW, View, make_formats

MOST_CANDIDATES = 20
MOST_OF_MANY = 6
"""Largest number of candidate rows per kernel, for one kernel and for several kernels."""

MOST_STALLS = 3  # largest number of stall reasons in the line
LEAST_STALL = 0.03  # smallest share of the warps' time of a stall reason in the line
MOST = 0.75
"""A part counts as most of the difference if it is at least this share of the difference."""

VERDICT_TONES = {"faster": GOOD, "slower": BAD, "undecided": WARN}
LEGEND = (
    "±: half the 95% interval of the median. Bandwidth: by the cold time. Of peak: DRAM and FLOP/s by the cold time, "
    "cache by the warm time."
)
_ROOFS = {"memory": "DRAM", "cache": "cache", "compute": "FLOP/s"}
_TIMED = ("default", "best", "finalist", "slower", "timed")
_TROUBLE = ("wrong", "refused", "spills", "crashed", "hung")
_ORDER = {"best": 0, "default": 1, "timed": 1, "finalist": 2, "slower": 3, "duplicate": 4, "untried": 6}


def make_measured_document(seen: KernelOutcome, view: View = DEFAULT_VIEW) -> Document:
    """The times of each kernel, its tuning, what failed, the sum of several retunes, and what to type next."""
    kernels = seen.kernels
    tuned = [(kernel, kernel.tuning) for kernel in kernels if kernel.tuning is not None]
    blocks: list[Block] = [make_timing_section(kernels)] if kernels else []
    for kernel, tuning in tuned:
        blocks.append(
            make_tuning_section(kernel, tuning, MOST_OF_MANY if len(tuned) > 1 and tuning.verdict else MOST_CANDIDATES)
        )
    blocks.append(make_failure_section(seen.failures))
    blocks.append(Section("All retunes", tuple(_sum_blocks(kernels, seen.retune_s)), quiet=True))
    written = [("Written" if number == 0 else "", str(path)) for number, path in enumerate(seen.saved)]
    blocks.append(Section("Next", (Facts(tuple(written)), *_list_next_commands(kernels, seen.saved)), quiet=True))
    machine = [*dict.fromkeys(kernel.device for kernel in kernels), f"torch {seen.environment.versions.torch}"]
    return Document(plural(len(kernels), "kernel"), (" · ".join(machine),) if kernels else (), tuple(blocks))


def make_failure_section(failures: Sequence[Failure]) -> Section:
    """Each failure with its file and a hint."""
    found = (Item(": ".join(filter(None, (one.subject, one.message))), BAD, one.hint) for one in failures)
    return Section("Failed", (Items(tuple(found)),), BAD)


# --- measured kernels ------------------------------------------------------------------------------------------------


def make_timing_section(kernels: Sequence[MeasuredKernel]) -> Section:
    """A row for each kernel with its facts below, and the explanation of the columns."""
    table = make_table(kernels, _list_kernel_cells, filter="name, config")
    return Section("Kernels", (table, Sentence(LEGEND, NOTE)), quiet=True)


def _list_kernel_cells(kernel: MeasuredKernel) -> Iterator[tuple[Column, Cell]]:
    counted = " · ".join(describe_counters(kernel))
    said = (
        *make_notes(" · ".join(_list_facts(kernel)), f"counted: {counted}" if counted else "", whole=True),
        *(Note(f"- {advice}", tone=WARN, whole=True) for advice in kernel.advice),
    )
    cold, warm, moved, roof = kernel.cold, kernel.warm, kernel.work.moved_bytes, kernel.roof
    warm_s = warm.median_s if warm else None
    yield make_text_column("kernel", least=20), Cell(kernel.name, notes=said)
    yield Column("cold"), Cell(units.seconds(cold.median_s), cold.median_s)
    yield Column("±", spare=1), Cell(_spread(cold))
    yield Column("warm"), Cell(units.seconds(warm_s), warm_s)
    yield Column("±", spare=4), Cell(_spread(warm) if warm else units.MISSING)
    yield Column("moved", spare=3), Cell(units.size(moved), moved)
    yield Column("bandwidth", spare=2), Cell(units.rate(roof.bandwidth), roof.bandwidth)
    yield Column("of peak"), Cell(format_share_of_peak(kernel), roof.peak_share)


def format_share_of_peak(kernel: MeasuredKernel) -> str:
    """Returns ``45% DRAM``, ``latency``, or a dash if no roof is known."""
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


def _list_facts(kernel: MeasuredKernel) -> Iterator[str]:
    yield Category(kernel.category).title
    if kernel.config:
        yield describe_config(kernel.config)
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


def describe_counters(kernel: MeasuredKernel) -> Iterator[str]:
    """Yields the phrases of the line about a kernel's hardware counters."""
    counters = kernel.counters
    if counters is None:
        return
    if counters.dram_bytes is not None:
        moved = kernel.work.moved_bytes
        estimate = f" ({counters.dram_bytes / moved:.2f} of the estimate)" if moved else ""
        yield f"{units.size(counters.dram_bytes)} DRAM{estimate}"
    if counters.dram_share is not None:
        yield f"{units.whole_percent(counters.dram_share)} of DRAM throughput"
    if counters.occupancy is not None:
        yield f"{units.whole_percent(counters.occupancy)} achieved occupancy"
    stalls = ", ".join(_describe_stalls(counters))
    if stalls:
        yield f"warps wait for {stalls}"
    if counters.device_kernels > 1:
        yield f"{counters.device_kernels} device kernels"


def _describe_stalls(counters: HardwareCounters) -> Iterator[str]:
    for reason, share in list(counters.stalls.items())[:MOST_STALLS]:
        if share >= LEAST_STALL:
            yield f"{STALL_WORDS.get(reason, reason.replace('_', ' '))} {units.whole_percent(share)}"


def _list_next_commands(kernels: Sequence[MeasuredKernel], saved: Sequence[Path]) -> Iterator[Commands]:
    won = [kernel for kernel in kernels if kernel.tuning is not None and kernel.tuning.verdict == "faster"]
    if saved:
        check = " --check" if won and won[0].checked is not None else ""
        command, why = f"python {shlex.quote(str(saved[0]))}{check}", "runs only the winner"
    elif won and won[0].tuning is not None and any("idle" in note for note in won[0].tuning.notes):
        command, why = _retune(won[0]), "retunes again, on an idle machine"
    elif won:
        command, why = f"{_retune(won[0])} --save tuned.py", "writes the winner as a file to run and to diff"
    elif kernels and all(kernel.tuning is None or not kernel.tuning.verdict for kernel in kernels):
        slowest = max(kernels, key=lambda kernel: kernel.cold.median_s)
        command, why = _retune(slowest), "tries other configs, each checked and timed against this config"
    else:
        return
    yield Commands(((command, why),))


def _retune(kernel: MeasuredKernel) -> str:
    tuning = kernel.tuning
    method = f" {tuning.method}" if tuning is not None and tuning.verdict and tuning.method != BY_DEFAULT else ""
    state = f" --state {tuning.state}" if tuning is not None and tuning.state != "cold" else ""
    return f"inductor-bench kernel {shlex.quote(kernel.file)} --autotune{method}{state}"


# --- tuned kernels ---------------------------------------------------------------------------------------------------


def describe_config(config: Config) -> str:
    """Returns ``XBLOCK=64 num_warps=4``."""
    return " ".join(f"{name}={value}" for name, value in config.items())


def make_tuning_section(kernel: MeasuredKernel, tuning: Tuning, most: int = MOST_CANDIDATES) -> Section:
    """The result of a kernel's tuning and, below it, at most ``most`` candidates."""
    facts: list[tuple[str, str] | tuple[str, str, str]] = []
    if tuning.verdict:
        facts.append((tuning.verdict, _describe_gain(tuning), VERDICT_TONES.get(tuning.verdict, "")))
    if tuning.verdict == "faster":
        facts.append(("best", _describe_changes(tuning.best_config, kernel.config)))
    tried = Sentence(f"{tuning.method}: {_count_words(tuning)}")
    said = Items(tuple(Item(note, WARN) for note in tuning.notes))
    return Section(kernel.name, (tried, Facts(tuple(facts)), said, *_make_candidates_table(kernel, tuning, most)))


def _count_words(tuning: Tuning) -> str:
    """Timed candidates, then the others by status: ``1 → 14 configs in 2.1 s of checks and timing, 3 duplicate``."""
    left = Counter(each.status for each in tuning.candidates if each.status not in _TIMED)
    others = "".join(f", {count} {status}" for status, count in left.items())
    timed = 1 + tuning.tried
    if not tuning.verdict:
        return f"{plural(timed, 'config')} timed{others}"
    return f"1 → {timed} configs in {units.seconds(tuning.time_s)} of checks and timing{others}"


def _describe_gain(tuning: Tuning) -> str:
    default, ratio = units.seconds(tuning.default_s), tuning.ratio
    if tuning.verdict != "faster" or ratio is None:
        beside = f": the best other config took {ratio.median:.3f}x as long" if ratio else ""
        return f"it stays at {default} {tuning.state}{beside}"
    low, high = 1 / ratio.high, 1 / ratio.low
    times = f"{default} → {units.seconds(tuning.best_s)} {tuning.state}"
    return f"{times}, {tuning.speedup:.2f}x ({low:.2f} to {high:.2f})"


def _make_candidates_table(kernel: MeasuredKernel, tuning: Tuning, most: int) -> Iterator[Block]:
    rows = [_add_measured_facts(each, kernel) for each in tuning.candidates]
    ranked = sorted(enumerate(rows, 1), key=lambda item: _rank(item[1]))
    compiled = any(each.registers is not None for each in rows)
    listed = not tuning.verdict and compiled
    shown = {"regs": compiled, "spills": listed or any(each.spills for each in rows), "shared": listed}

    def list_cells(item: tuple[int, TriedCandidate]) -> Iterator[tuple[Column, Cell]]:
        yield from (pair for pair in _list_candidate_cells(*item) if shown.get(pair[0].title, True))
        one = item[1]
        what = "unchanged" if one.status == "default" else _describe_changes(one.config, kernel.config)
        said = f"{what}  ({one.reason})" if one.reason else what
        yield make_text_column("config", least=20, wraps=True), Cell(said, tone=NOTE)

    yield make_table(
        ranked[:most], list_cells, lambda item, cells: Row(cells, tone=BAD if item[1].status in _TROUBLE else "")
    )
    if left := Counter(one.status for _, one in ranked[most:]):
        counts = ", ".join(f"{count} {status}" for status, count in left.items())
        yield Sentence(f"and {counts}: --format json lists them", NOTE)


def _list_candidate_cells(number: int, one: TriedCandidate) -> Iterator[tuple[Column, Cell]]:
    ratio = one.ratio.median if one.ratio else None
    yield Column("no."), Cell(str(number), number)
    yield Column("status", False), Cell(one.status)
    for title, value, text in (
        ("time", one.median_s, units.seconds(one.median_s)),
        ("ratio", ratio, f"{ratio or 0:.3f}"),
        ("regs", one.registers, str(one.registers)),
        ("spills", one.spills, str(one.spills)),
        ("shared", one.shared_memory_bytes, units.size(one.shared_memory_bytes)),
    ):
        yield Column(title), Cell(text if value is not None else "", value)


def _add_measured_facts(candidate: TriedCandidate, kernel: MeasuredKernel) -> TriedCandidate:
    """Fills in the facts of the default candidate from the measured kernel, because it is not compiled again."""
    if candidate.status != "default":
        return candidate
    return replace(candidate, registers=kernel.resources.registers, spills=kernel.resources.spills)


def _rank(candidate: TriedCandidate) -> tuple[int, float]:
    return _ORDER.get(candidate.status, 5), candidate.median_s or 0.0


def _describe_changes(config: Config, default: Config) -> str:
    """Returns the fields of a configuration that differ from the default."""
    return describe_config({name: value for name, value in config.items() if default.get(name) != value}) or "unchanged"


def _sum_blocks(kernels: Sequence[MeasuredKernel], took_s: float) -> Iterator[Block]:
    """The total of several kernels' tuning, per iteration if the calls are known; nothing for one kernel."""
    retuned = [(kernel.original.calls, kernel.tuning) for kernel in kernels if kernel.tuning and kernel.tuning.verdict]
    if len(retuned) < 2:
        return
    known = all(calls for calls, _ in retuned)
    weighted = [((calls if known else None) or 1, each) for calls, each in retuned]
    before = sum(calls * each.default_s for calls, each in weighted)
    after = sum(calls * each.best_s for calls, each in weighted)
    which = "their calls in an iteration" if known else "one call of each"
    faster = sum(each.verdict == "faster" for _, each in retuned)
    counts = f"{faster} faster, {len(retuned) - faster} as they were"
    yield Sentence(f"{len(retuned)} kernels retuned in {units.seconds(took_s)}: {counts}", LEAD)
    state = retuned[0][1].state
    yield Sentence(f"{which}: {units.seconds(before)} → {units.seconds(after)} {state}, {before / after:.2f}x")


# --- compared kernels ------------------------------------------------------------------------------------------------


def make_compared_document(comparison: TimedPair, view: View = DEFAULT_VIEW) -> Document:
    """Says which of two kernels is faster, whether code or config is the reason, and whether they compute the same."""
    pair = _make_names_distinct(comparison.first, comparison.second)
    verdict = comparison.as_they_stand.verdict
    said = {"same": "takes as long", "undecided": "may be faster or slower"}.get(verdict, f"is {verdict}")
    file = names.cut_middle(names.clean(comparison.second.file), 88)
    rows = [
        _make_pairing_row("as they are", comparison.as_they_stand),
        _make_other_row("same config", comparison.same_config, comparison),
    ]
    if comparison.best_of_each is not None:
        rows.append(_make_other_row("best of each", comparison.best_of_each, comparison))
    columns = (
        make_text_column("second / first"),
        *(Column(title) for title in ("ratio", "99.5% interval", "first", "second")),
    )
    limit = (
        []
        if view.limit is None
        else [describe_limit(compute_slowdown_of_kernels(comparison.as_they_stand), view.limit)]
    )
    outputs = Sentence("both compute the same from the same arguments", GOOD)
    if comparison.difference:
        outputs = Sentence(f"outputs: {comparison.difference}", WARN if comparison.alike is None else BAD)
    verdict_section = Section(
        "Compared",
        (
            Sentence(", ".join(filter(None, (f"{file} {said}", describe_pair(comparison.as_they_stand)))), LEAD),
            *make_sentences(limit, LEAD),
            Table((*columns, Column("verdict", False)), rows),
            *(
                [Sentence(words_, LEAD)]
                if (words_ := explain_difference(comparison.as_they_stand, comparison.same_config))
                else []
            ),
            Items(tuple(Item(note, WARN) for note in comparison.notes)),
            outputs,
        ),
        quiet=True,
    )
    tuned = [make_tuning_section(kernel, kernel.tuning, MOST_OF_MANY) for kernel in pair if kernel.tuning is not None]
    device = dict.fromkeys(kernel.device for kernel in pair)
    blocks = (make_timing_section(pair), *tuned, make_failure_section(comparison.failures), verdict_section)
    return Document("2 kernels", (" · ".join(device),), blocks)


def _make_names_distinct(*kernels: MeasuredKernel) -> list[MeasuredKernel]:
    """Returns the kernels, with the names of their files if both kernels have the same name."""
    if len({kernel.name for kernel in kernels}) == len(kernels):
        return list(kernels)
    return [replace(kernel, name=kernel.file) for kernel in kernels]


def _make_pairing_row(title: str, pairing: Pairing, *said: str) -> Row:
    ratio = pairing.ratio
    if ratio is None:
        not_timed = Note(f"not timed: {pairing.reason}", tone=WARN, whole=True)
        return Row((Cell(title, notes=(not_timed,)), *[Cell("")] * 5))
    return Row(
        (
            Cell(title, notes=make_notes(*said, whole=True)),
            Cell(f"{ratio.median:.3f}x", ratio.median),
            Cell(f"{ratio.low:.3f} to {ratio.high:.3f}"),
            Cell(units.seconds(pairing.first_s), pairing.first_s),
            Cell(units.seconds(pairing.second_s), pairing.second_s),
            Cell(pairing.verdict, tone=VERDICT_TONES.get(pairing.verdict, "")),
        )
    )


def _make_other_row(title: str, pairing: Pairing, comparison: TimedPair) -> Row:
    """A pairing in other configurations with their names. An equal pairing refers to ``as they are``."""
    if pairing == comparison.as_they_stand:
        return Row((Cell(title), Cell(""), Cell("as they are"), *[Cell("")] * 3))
    first, second = describe_config(pairing.first_config), describe_config(pairing.second_config)
    return _make_pairing_row(
        title, pairing, f"both in {first}" if first == second else f"first in {first}; second in {second}"
    )


def explain_difference(as_they_stand: Pairing, same_config: Pairing) -> str:
    """Attributes a difference to the generated code or the configuration, in words.

    Args:
        as_they_stand: the kernels timed with their own configurations.
        same_config: the kernels timed with one configuration.

    Returns:
        A phrase, or an empty string if the times leave the cause open.
    """
    whole, code = as_they_stand.ratio, same_config.ratio
    if whole is None or code is None or same_config == as_they_stand:
        return ""
    if "undecided" in (as_they_stand.verdict, same_config.verdict):
        return ""
    if as_they_stand.verdict == "same":
        return (
            ""
            if same_config.verdict == "same"
            else f"in the same config the second kernel is {same_config.verdict}, but its different config cancels this"
        )
    if same_config.verdict == "same":
        return "the config makes the difference: in the same config both kernels take equally long"
    share = math.log(code.median) / math.log(whole.median)
    if share < 0:
        return f"the config makes the difference: in the same config the second kernel is {same_config.verdict}"
    if share > 1 / MOST:
        return "the code makes the difference, and the config reduces it"
    if share >= MOST:
        return "most of the difference is the code"
    if share <= 1 - MOST:
        return "most of the difference is the config"
    return f"{units.whole_percent(share)} of the difference is the code, the rest is the config"


MEASURED = make_formats(make_measured_document, of="timed kernels")
COMPARED = make_formats(make_compared_document, of="a comparison of kernels")
