"""The retunes of a run, their proof, and the candidates of a kernel, as parts of the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .... import units
from ....analysis.batch_aggregation import retunes_of
from ....records.retune import FASTER, AppliedKernel, Retune, RetuneRow
from ....records.run import Run
from ....records.tuning import TriedCandidate, Tuning
from ...page.parts import FEW_ROWS, GOOD, Cell, Column, DataTable, Lines, Part, Row
from ...text import names
from .table import PROJECTION, TITLES, caution_words, known_words, retune_cells, saving_words, speedup_words
from .verification import PINNED, detail_words, kernel_cells, lead_words, missed_words
from .verification import TITLES as PROOF_TITLES

NAME_WIDTH = 64
MOST_CANDIDATES = 12


def proof_parts(run: Run) -> tuple[Part, ...]:
    """What the retunes save in the program; none where that was not measured."""
    found = run.verification
    if found is None:
        return ()
    columns = tuple(Column(title, title in ("projected", "saves")) for title in PROOF_TITLES)
    return (
        Lines((f"{lead_words(found)}.",)),
        Lines(tuple(f"{words}." for words in (*detail_words(found), *missed_words(found.kernels))), "note"),
        *([DataTable(columns, tuple(map(_proof_row, found.kernels)))] if found.kernels else []),
    )


def _proof_row(kernel: AppliedKernel) -> Row:
    config, projected, saves = kernel_cells(kernel)
    values = kernel.predicted_s or None, kernel.saving_s if kernel.state == PINNED else None
    return Row(
        (
            Cell(names.short(kernel.name, NAME_WIDTH), notes=(kernel.reason,) if kernel.reason else ()),
            Cell(config),
            Cell(projected, values[0]),
            Cell(saves, values[1]),
        )
    )


def retune_parts(run: Run) -> tuple[Part, ...]:
    """The retuned kernels; none where none was retuned."""
    summary = retunes_of(run)
    if summary is None:
        return ()
    captions = tuple(f"{line}." for line in (PROJECTION, known_words(run), caution_words(summary)) if line)
    columns = tuple(Column(title, place > 0) for place, title in enumerate(TITLES))
    rows = tuple(map(_retune_row, summary.rows))
    table = DataTable(columns, rows, filter="kernel" if len(rows) > FEW_ROWS else "")
    return (Lines((f"{saving_words(summary, run)}.",)), Lines(captions, "note"), table)


def _retune_row(found: RetuneRow) -> Row:
    values = (
        *(found.calls, found.time_s, found.tuned_default_s, found.tuned_best_s),
        *(found.speedup, found.saving_s or None),
    )
    why_not = found.problem or found.obstacle
    name = Cell(names.short(found.name, NAME_WIDTH), notes=(why_not,) if why_not else ())
    tone = GOOD if found.verdict == FASTER else ""
    cells = zip(TITLES[1:], retune_cells(found), values, strict=True)
    return Row((name, *(Cell(text, value, tone=tone if title == "result" else "") for title, text, value in cells)))


def tuning_parts(retune: Retune) -> Iterator[Part]:
    """The candidates of one kernel, the fastest first."""
    tuning = retune.tuning
    if tuning is None:
        return
    timed = sorted((one for one in tuning.candidates if one.median_s is not None), key=lambda one: one.median_s or 0.0)
    if timed:
        yield Lines((_tuning_words(tuning, len(timed)),), "note")
        yield _candidate_table([*timed[:MOST_CANDIDATES], *filter(_is_default, timed[MOST_CANDIDATES:])])


def _is_default(one: TriedCandidate) -> bool:
    return one.status == "default"


def _tuning_words(tuning: Tuning, timed: int) -> str:
    more = f"; the {MOST_CANDIDATES} fastest are shown, all are in record.json" if timed > MOST_CANDIDATES else ""
    result = f"the best is {speedup_words(tuning.speedup)} as fast as the default"
    if tuning.verdict != FASTER:
        result = "none is surely faster than the default"
    return f"Retuned with {tuning.method}: {len(tuning.candidates)} candidates, {timed} timed; {result}{more}."


def _candidate_table(shown: Sequence[TriedCandidate]) -> DataTable:
    columns = (Column("config", False), *map(Column, ("a call", "to default", "registers", "spills")))
    return DataTable((*columns, Column("result", False)), tuple(map(_candidate_row, shown)))


def _candidate_row(one: TriedCandidate) -> Row:
    ratio = one.ratio
    return Row(
        (
            Cell(", ".join(f"{key}={value}" for key, value in one.config.items())),
            Cell(units.seconds(one.median_s), one.median_s),
            Cell(f"{ratio.median:.3f}" if ratio else "", ratio.median if ratio else None),
            Cell(units.count(one.registers) if one.registers is not None else "", one.registers),
            Cell(units.count(one.spills) if one.spills is not None else "", one.spills),
            Cell(one.status, tone=GOOD if one.status == "best" else "", notes=(one.reason,) if one.reason else ()),
        )
    )
