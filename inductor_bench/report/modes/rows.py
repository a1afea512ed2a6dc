"""The cells of the table of modes, as text."""

from __future__ import annotations

from collections.abc import Sequence

from ... import units
from ...records.mode_comparison import (
    AGREES,
    DIFFERS,
    EAGER,
    NOT_TIMED,
    ModeComparison,
    ModeFigures,
    ModeRow,
    StepRatio,
)

TITLES = (
    *("mode", "step", "of eager", "compile", "pays after", "vs shorter", "device", "launches", "busy", "memory"),
    *("breaks", "outputs"),
)


def titles_of(comparison: ModeComparison) -> Sequence[str]:
    """The columns that hold something."""
    rows = [cells_of(row) for row in comparison.rows]
    return [title for title in TITLES if any(row[title] not in ("", units.MISSING) for row in rows)]


def cells_of(row: ModeRow) -> dict[str, str]:
    """The cells of a row by title."""
    figures = row.figures
    if figures is None:
        return dict.fromkeys(TITLES, "") | {"mode": row.name, "step": _missing(row)}
    compiled = row.settings.mode != EAGER
    work = figures.work
    return {
        "mode": row.name,
        "step": _step(figures),
        "of eager": f"{figures.to_eager.ratio:.3f}" if figures.to_eager else "",
        "compile": units.seconds(figures.compile_time_s) if compiled else "",
        "pays after": _pays(figures.to_eager, figures.pays_after),
        "vs shorter": _pays(figures.to_cheaper, figures.pays_after_cheaper),
        "device": units.seconds(work.time_s) if work else "",
        "launches": units.count(work.launches) if work else "",
        "busy": units.whole_percent(work.busy_share) if work else "",
        "memory": units.size(figures.peak_memory_bytes) if figures.peak_memory_bytes else "",
        "breaks": str(figures.graph_breaks) if compiled and figures.graph_breaks else "",
        "outputs": _outputs(figures),
    }


def _missing(row: ModeRow) -> str:
    if row.failure is None:
        return "not measured"
    return "not timed" if row.failure.kind == NOT_TIMED else "failed"


def _step(figures: ModeFigures) -> str:
    text = units.seconds(figures.step_time_s)
    if figures.low_s is None or figures.high_s is None:
        return text
    spread = (figures.high_s / figures.low_s) ** 0.5 - 1
    if spread >= 1:
        return f"{text} ±>100%"
    return f"{text} ±{spread * 100:.{0 if spread >= 0.0995 else 1}f}%"


def _pays(ratio: StepRatio | None, steps: float | None) -> str:
    if ratio is None:
        return ""
    if steps is None:
        return {"undecided": "unsure", "slower": "never", "same": "never"}.get(ratio.verdict, units.MISSING)
    return units.count(max(1, round(steps)))


def _outputs(figures: ModeFigures) -> str:
    agreement = figures.agreement
    if agreement is None:
        return ""
    if agreement.state not in (AGREES, DIFFERS):
        return "unknown"
    word = "agree" if agreement.state == AGREES else "DIFFER"
    if agreement.error is None:
        return word
    return f"{word} {agreement.error:.0e}" if agreement.error else "equal"
