"""Candidates that were compiled for another GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from .. import units
from ..analysis.findings.finding import plural
from ..devices.nvidia import Architecture
from ..records.base import Failure
from ..records.category import Category
from ..records.extraction import CompiledCandidates, CrossCompiledKernel
from ..records.tuning import Config, TriedCandidate
from .document import BAD, NOTE, WARN, Block, Cell, Column, Document, Note, Row, Section, Sentence, Table, words
from .formats import DEFAULT_VIEW, View, document_formats
from .kernel_document import config_words, failure_section

MOST_CANDIDATES = 20
SPILLS_TOO_MUCH = 16
"""Number of spilled registers above which Inductor discards a configuration."""

LEGEND = (
    "Regs: registers of one thread. Shared: memory of one block. Spills: as Triton counts them, 4 bytes of a thread's "
    f"stack each; beyond {SPILLS_TOO_MUCH} Inductor leaves a config out. Nothing was run: times need the GPU."
)
_TONES = {"refused": BAD, "crashed": BAD, "hung": BAD, "duplicate": NOTE, "untried": NOTE}
_TITLES = ("regs", "spills", "shared", "instr.", "binary")


class Compiled(Protocol):
    """The kernels of one command that were compiled for another GPU."""

    @property
    def kernels(self) -> Sequence[CrossCompiledKernel]: ...
    @property
    def failures(self) -> Sequence[Failure]: ...
    @property
    def others(self) -> int: ...
    @property
    def target(self) -> Architecture: ...
    @property
    def torch(self) -> str: ...
    @property
    def triton(self) -> str: ...


def compiled_document(seen: Compiled, view: View = DEFAULT_VIEW) -> Document:
    """The compiled candidates of all kernels."""
    last: list[Block] = []
    if seen.others:
        last.append(
            Sentence(f"{seen.others} other file{'s hold' if seen.others != 1 else ' holds'} no Triton kernel", NOTE)
        )
    last += [Sentence(LEGEND, NOTE)] if seen.kernels else []
    title = f"{plural(len(seen.kernels), 'kernel')} compiled for {seen.target.name}, as on {seen.target.device}"
    sections = [Section(kernel.name, tuple(_kernel(kernel))) for kernel in seen.kernels]
    blocks = (*sections, failure_section(seen.failures), Section("Legend", tuple(last), quiet=True))
    return Document(title, (f"torch {seen.torch} · triton {seen.triton}",), blocks)


def candidate_sets(tuning: CompiledCandidates) -> str:
    """Returns the numbers of configurations that Inductor tries, without and with max-autotune, in words."""
    if tuning.same_candidate_set:
        return f"max-autotune has the same candidate set as the default: {plural(tuning.default_configs, 'config')}"
    return f"max-autotune: {tuning.default_configs} → {tuning.max_configs} configs"


def _kernel(kernel: CrossCompiledKernel) -> Iterator[Block]:
    tuning = kernel.tuning
    statuses = Counter(candidate.status for candidate in tuning.candidates)
    counts = ", ".join(f"{count} {status}" for status, count in statuses.items())
    shared = shared_fields(tuning.candidates)
    facts = [Category(kernel.category).title, candidate_sets(tuning), counts]
    facts += [f"all with {config_words(shared)}"] if shared else []
    yield Sentence(" · ".join(facts))
    if tuning.limits:
        yield Sentence(tuning.limits, WARN)
    ranked = sorted(enumerate(tuning.candidates, 1), key=lambda item: item[1].status in _TONES)
    columns = (Column("no."), Column("status", False), *map(Column, _TITLES), words("config", wraps=True, least=20))
    rows = [_candidate(number, candidate, shared) for number, candidate in ranked]
    yield Table(columns, rows, most=MOST_CANDIDATES, more="with --format json")


def _candidate(number: int, one: TriedCandidate, shared: Config) -> Row:
    own = {field: value for field, value in one.config.items() if field not in shared}
    tone = _TONES.get(one.status, "")
    said = (Note(one.reason, tone=tone or NOTE, whole=True),) if one.reason else ()
    cells = (
        *(Cell(str(number), number), Cell(one.status), Cell(units.count(one.registers), one.registers)),
        *(
            Cell(units.count(one.spills), one.spills),
            Cell(units.size(one.shared_memory_bytes), one.shared_memory_bytes),
        ),
        *(Cell(units.count(one.instructions), one.instructions), Cell(units.size(one.binary_bytes), one.binary_bytes)),
        Cell(config_words(own or one.config), tone=NOTE, notes=said),
    )
    return Row(cells, tone=tone or (WARN if (one.spills or 0) > SPILLS_TOO_MUCH else ""))


def shared_fields(candidates: Sequence[TriedCandidate]) -> Config:
    """Returns the fields that have the same value in all configurations."""
    if len(candidates) < 2:
        return {}
    first, *others = (candidate.config for candidate in candidates)
    return {field: value for field, value in first.items() if all(other.get(field, ...) == value for other in others)}


COMPILED = document_formats(compiled_document, of="kernels compiled for another GPU")
