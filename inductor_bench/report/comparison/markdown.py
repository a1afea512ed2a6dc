"""Renders a comparison as Markdown, for an issue or a pull request. The only input is the record."""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.comparison_words import headline, part_name, reasons
from ...records.comparison import RunComparison
from ..run.markdown import escaped, table
from ..run.step.rows import Table
from .rows import changed_kernels, detail_lines, environment_table, graph_table, kernel_table, parts_table


def comparison_markdown(comparison: RunComparison, top: int, limit: float | None = None) -> str:
    """Renders the answer, what differs around the program, the parts, the ``top`` kernels that differ, the graphs."""
    sides = (("A", comparison.a), ("B", comparison.b))
    heads = [
        f"- **{side}**: {escaped(summary.name)} · {escaped(summary.title)} · {escaped(summary.machine)}"
        for side, summary in sides
    ]
    changes = changed_kernels(comparison)
    environment = environment_table(comparison)
    blocks = [["# B against A", "", *heads], [f"**{escaped(headline(comparison, limit))}**"]]
    blocks.append([escaped(" ".join(reasons(comparison)))])
    blocks += [_block(environment)] if environment else []
    blocks.append([*_block(parts_table(comparison)), *_part_details(comparison)])
    if changes:
        blocks.append([*_block(kernel_table(changes[:top])), *_kernel_details(comparison, top)])
    blocks.append(_block(graph_table(comparison)))
    if comparison.notes:
        blocks.append(["## Notes", "", *(f"- {escaped(note)}." for note in comparison.notes)])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _block(rows: Table) -> list[str]:
    return [f"## {escaped(rows.title)}", "", *table(rows.header, rows.alignment, rows.rows)]


def _part_details(comparison: RunComparison) -> Iterator[str]:
    found = [part for part in comparison.parts if part.detail]
    yield from [""] if found else []
    for part in found:
        yield f"- {escaped(part_name(part))}: {escaped(part.detail)}"


def _kernel_details(comparison: RunComparison, top: int) -> Iterator[str]:
    found = [
        f"- {number}: {escaped('; '.join(lines))}"
        for number, change in enumerate(changed_kernels(comparison)[:top], 1)
        if (lines := detail_lines(change))
    ]
    yield from ["", *found] if found else []
