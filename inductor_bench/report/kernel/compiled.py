"""Renders candidates that were compiled for another GPU as lines of styled words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ... import units
from ...devices.nvidia import Architecture
from ...records.base import Failure
from ...records.category import Category
from ...records.extraction import CompiledCandidates, CrossCompiledKernel
from ...records.tuning import Config, TriedCandidate
from ..text import names
from ..text.layout import Column, Line, Word, header, row, wrapped
from .tuning import config_words

MOST_CANDIDATES = 20
SPILLS_TOO_MUCH = 16
"""Number of spilled registers above which Inductor discards a configuration."""

_STYLES = {"refused": "bad", "crashed": "bad", "hung": "bad", "duplicate": "dim", "untried": "dim"}
_COLUMNS = [
    Column("no.", 4),
    Column("status", 9, False),
    *(Column(title, size) for title, size in (("regs", 4), ("spills", 6), ("shared", 7))),
    *(Column(title, size) for title, size in (("instr.", 6), ("binary", 7))),
]


def compiled_lines(
    kernels: Sequence[CrossCompiledKernel],
    failures: Sequence[Failure],
    others: int,
    target: Architecture,
    versions: Sequence[str],
    width: int,
) -> Iterator[Line]:
    """Renders the compiled candidates of all kernels.

    Args:
        kernels: the kernels with compiled candidates.
        failures: the failures of other kernels.
        others: number of files without a Triton kernel.
        target: the architecture for which they were compiled.
        versions: the names and versions of the compilers.
        width: columns; at least 80 for a table without wrapped lines.
    """
    left = f"{len(kernels)} kernel{'s' * (len(kernels) != 1)} compiled for {target.name}, as on {target.device}"
    right = " · ".join(versions)
    room = max(width - names.cells(left) - names.cells(right), 2)
    yield [Word(left, "title"), Word(" " * room), Word(right, "dim")]
    for kernel in kernels:
        yield []
        yield from _kernel(kernel, width)
    for failure in failures:
        yield []
        yield [Word(names.end(f"Failed  {names.clean(failure.subject)}", width), "bad")]
        yield from wrapped(names.clean(failure.message), width, "        ")
        if failure.hint:
            yield from wrapped(f"Hint: {names.clean(failure.hint)}", width, "        ", "dim")
    if others:
        yield []
        yield [Word(f"{others} other file{'s hold' if others != 1 else ' holds'} no Triton kernel", "dim")]
    if kernels:
        yield []
        yield from wrapped(
            "Regs: registers of one thread. Shared: memory of one block. Spills: as Triton counts them, 4 bytes of a "
            f"thread's stack each; beyond {SPILLS_TOO_MUCH} Inductor leaves a config out. Nothing was run: times need "
            "the GPU.",
            width,
            "",
            "dim",
        )


def candidate_sets(tuning: CompiledCandidates) -> str:
    """Returns the numbers of configurations that Inductor tries, without and with max-autotune, in words."""
    count = tuning.default_configs
    if tuning.same_candidate_set:
        return f"max-autotune has the same candidate set as the default: {count} config{'s' * (count != 1)}"
    return f"max-autotune: {count} → {tuning.max_configs} configs"


def _kernel(kernel: CrossCompiledKernel, width: int) -> Iterator[Line]:
    tuning = kernel.tuning
    statuses = Counter(candidate.status for candidate in tuning.candidates)
    counts = ", ".join(f"{count} {status}" for status, count in statuses.items())
    shared = shared_fields(tuning.candidates)
    yield [Word(names.middle(names.clean(kernel.name), width), "title")]
    facts = [Category(kernel.category).title, candidate_sets(tuning), counts]
    if shared:
        facts.append(f"all with {config_words(shared)}")
    yield from wrapped(" · ".join(facts), width, "  ")
    if tuning.limits:
        yield from wrapped(tuning.limits, width, "  ", "warn")
    room = width - sum(column.width + 1 for column in _COLUMNS) - 3
    yield [Word("  "), *header(_COLUMNS, 1), Word("  config", "dim")]
    ranked = sorted(enumerate(tuning.candidates, 1), key=lambda item: item[1].status in _STYLES)
    for number, candidate in ranked[:MOST_CANDIDATES]:
        yield _candidate(number, candidate, shared, room)
        yield from wrapped(names.clean(candidate.reason), width, " " * 17, _STYLES.get(candidate.status, "dim"))
    if len(ranked) > MOST_CANDIDATES:
        yield [Word(f"  and {len(ranked) - MOST_CANDIDATES} more with --format json", "dim")]


def _candidate(number: int, candidate: TriedCandidate, shared: Config, room: int) -> Line:
    cells = [
        *(str(number), candidate.status, units.count(candidate.registers), units.count(candidate.spills)),
        *(units.size(candidate.shared_memory_bytes), units.count(candidate.instructions)),
        units.size(candidate.binary_bytes),
    ]
    own = {field: value for field, value in candidate.config.items() if field not in shared}
    text = config_words(own or candidate.config)
    spilt = "warn" if (candidate.spills or 0) > SPILLS_TOO_MUCH else ""
    style = _STYLES.get(candidate.status, spilt)
    return [Word("  " + row(_COLUMNS, cells, 1), style), Word("  " + names.end(text, room), "dim")]


def shared_fields(candidates: Sequence[TriedCandidate]) -> Config:
    """Returns the fields that have the same value in all configurations."""
    if len(candidates) < 2:
        return {}
    first, *others = (candidate.config for candidate in candidates)
    return {field: value for field, value in first.items() if all(other.get(field, ...) == value for other in others)}
