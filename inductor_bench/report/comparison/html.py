"""Renders a comparison as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...analysis.comparison.words import headline, reasons
from ...records.comparisons.run import RunComparison
from ..run.html import TEMPLATES
from ..run.step.rows import Table
from ..text.pages import render_page
from .rows import changed_kernels, detail_lines, environment_table, graph_table, kernel_table, parts_table

Details = Sequence[Sequence[str]]
"""The lines below the name of each row of a table."""


def comparison_html(comparison: RunComparison) -> str:
    """Renders the page with all parts, graphs and kernels that differ. It loads no other file."""
    sides = [
        (side, f"{summary.name} · {summary.title} · {summary.machine} · {summary.created}")
        for side, summary in (("A", comparison.a), ("B", comparison.b))
    ]
    values = {
        "title": f"{comparison.b.name} against {comparison.a.name}",
        "sides": sides,
        "lead": headline(comparison),
        "reasons": list(reasons(comparison)),
        "tables": _tables(comparison),
        "notes": comparison.notes,
    }
    own = Path(__file__).parent / "templates"
    return render_page("comparison.html.j2", values, own, TEMPLATES)


def _tables(comparison: RunComparison) -> list[tuple[Table, Details]]:
    environment, changes = environment_table(comparison), changed_kernels(comparison)
    found: list[tuple[Table, Details]] = []
    if environment is not None:
        found.append((environment, [()] * len(environment.rows)))
    found.append((parts_table(comparison), [*([part.detail] if part.detail else [] for part in comparison.parts), []]))
    if changes:
        found.append((kernel_table(changes), [detail_lines(change) for change in changes]))
    graphs = graph_table(comparison)
    return [*found, (graphs, [()] * len(graphs.rows))]
