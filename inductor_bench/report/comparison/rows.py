"""The rows of a comparison's tables, for all formats. Pure functions of the record."""

from __future__ import annotations

from collections.abc import Sequence

from ... import units
from ...analysis.comparison_words import part_name, signed, signed_percent
from ...records.comparison import KERNEL_CAUSES, UNCHANGED, KernelChange, KernelSide, PartChange, RunComparison
from ..run.step.rows import Table
from ..text import names

NAME_WIDTH = 60
UNSET = "not set"
PART_COLUMNS = ("part", "A", "B", "difference", "of A's step", "verdict")
KERNEL_COLUMNS = ("#", "kernel", "cause", "calls", "A", "B", "difference", "verdict")


def environment_table(comparison: RunComparison) -> Table | None:
    """The facts that differ; ``None`` where none do."""
    rows = tuple(
        (names.clean(row.name), names.clean(row.a) or UNSET, names.clean(row.b) or UNSET)
        for row in comparison.environment_differences
    )
    return Table("What differs around the program", ("", "A", "B"), "lll", rows) if rows else None


def parts_table(comparison: RunComparison) -> Table:
    """All parts, and their sum in the last row."""
    step = comparison.step
    rows = [part_cells(comparison, part) for part in comparison.parts]
    times = _times(step.a_s, step.b_s, step.delta_s)
    rows.append((f"the {step.currency}", *times, of_step(comparison, step.delta_s), comparison.verdict))
    return Table("Where the difference comes from", PART_COLUMNS, "lrrrrl", tuple(rows))


def part_cells(comparison: RunComparison, part: PartChange) -> tuple[str, ...]:
    """The cells of a part below :data:`PART_COLUMNS`."""
    count = f" ({part.kernels})" if part.cause in KERNEL_CAUSES else ""
    name = f"{names.clean(part_name(part))}{count}"
    return (name, *_times(part.a_s, part.b_s, part.delta_s), of_step(comparison, part.delta_s), part.verdict)


def of_step(comparison: RunComparison, delta_s: float) -> str:
    """A difference as a share of A's step."""
    return signed_percent(delta_s, comparison.step.a_s)


def _times(a_s: float, b_s: float, delta_s: float) -> tuple[str, str, str]:
    return units.seconds(a_s), units.seconds(b_s), signed(delta_s)


def changed_kernels(comparison: RunComparison) -> list[KernelChange]:
    """The kernels that are not the same in both, the largest difference first."""
    return [change for change in comparison.kernels if change.cause != UNCHANGED]


def kernel_table(changes: Sequence[KernelChange], width: int = NAME_WIDTH) -> Table:
    """A row for each change, numbered from 1."""
    rows = tuple((str(number), *kernel_cells(change, width)) for number, change in enumerate(changes, 1))
    return Table("The kernels that differ", KERNEL_COLUMNS, "rllrrrrl", rows)


def kernel_cells(change: KernelChange, width: int) -> tuple[str, ...]:
    """The cells of a change below :data:`KERNEL_COLUMNS`, without the number."""
    a_s, b_s = (sum(side.time_s for side in sides) for sides in (change.a, change.b))
    return (
        kernel_name(change, width),
        change.cause,
        _calls(change),
        units.seconds(a_s if change.a else None),
        units.seconds(b_s if change.b else None),
        signed(change.delta_s),
        change.verdict,
    )


def kernel_name(change: KernelChange, width: int) -> str:
    """``triton_poi_fused_add_1``, and what becomes of it where that has another name: ``… → 2 kernels``."""
    first, second = _group(change.a), _group(change.b)
    if not change.a or not change.b or {side.name for side in change.a} == {side.name for side in change.b}:
        return names.short(first or second, width)
    room = max(8, (width - 3) // 2)
    return f"{names.short(first, room)} → {names.short(second, room)}"


def _group(sides: Sequence[KernelSide]) -> str:
    return sides[0].name if len(sides) == 1 else f"{len(sides)} kernels" if sides else ""


def _calls(change: KernelChange) -> str:
    calls = [units.count(sum(side.calls for side in sides)) for sides in (change.a, change.b) if sides]
    return calls[0] if len(set(calls)) == 1 else " → ".join(calls)


def detail_lines(change: KernelChange) -> list[str]:
    """What is known about a change: the words, and the names of grouped kernels."""
    lines = [names.clean(change.detail)] if change.detail else []
    for side, kernels in (("A", change.a), ("B", change.b)):
        if len(kernels) > 1:
            lines.append(f"{side}: " + ", ".join(names.short(kernel.name, NAME_WIDTH) for kernel in kernels[:6]))
    return lines


def graph_table(comparison: RunComparison) -> Table:
    """The paired graphs."""
    header = ("graph of A", "graph of B", "A", "B", "difference", "calls", "same code")
    rows = []
    for graph in comparison.graphs:
        calls = list(dict.fromkeys(units.count(calls) for calls in (graph.a_calls, graph.b_calls)))
        labels = [names.clean(label) if label is not None else units.MISSING for label in (graph.a, graph.b)]
        times = _times(graph.a_s, graph.b_s, graph.delta_s)
        rows.append((*labels, *times, " → ".join(calls), units.whole_percent(graph.alike)))
    return Table("Graphs", header, "llrrrrr", tuple(rows))
