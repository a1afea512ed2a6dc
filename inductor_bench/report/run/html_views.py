"""What the template of the page shows: texts in their final form, with the numbers that the page sorts by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .step.rows import Table

Cell = tuple[str, float | None]
"""The text of a cell and the number that its column is sorted by; ``None`` is sorted last."""


@dataclass(frozen=True)
class PartView:
    """One category of a graph, or its idle time.

    Attributes:
        share: its share of the time of the kernels.
        of_wall: its share of the wall time.
        width: its width in the bar, in percent.
        colour: a colour of CSS.
    """

    title: str
    time: str
    share: str
    of_wall: str
    calls: str
    kernels: str
    width: str
    colour: str


@dataclass(frozen=True)
class StepView:
    """The step of the program.

    Attributes:
        bar: the width in percent, the colour and the text of each part.
        colours: the colours of the rows of the ledger.
        ranks: ``None`` where there is one process.
        graph_header: the titles of the cells of each graph.
    """

    bar: Sequence[tuple[str, str, str]]
    ledger: Table
    colours: Sequence[str]
    ranks: Table | None
    graph_header: Sequence[str]


@dataclass(frozen=True)
class GraphView:
    """One graph.

    Attributes:
        step: its cells in the step of the program; empty where no step was profiled.
        runs: how often the program called it.
        parts_text: the largest parts of its bar.
        graph: its time as one CUDA graph.
        samples: the number of wall times.
        method, reason: how it was measured, and why so.
        files: the paths of its files.
    """

    label: str
    step: Sequence[str]
    runs: str
    parts_text: str
    wall: str
    graph: str
    busy: str
    launches: str
    memory: str
    samples: int
    method: str
    reason: str
    files: Sequence[str]
    parts: Sequence[PartView]


@dataclass(frozen=True)
class FindingView:
    """One finding, with its first kernels and the number of its other kernels."""

    text: str
    level: str
    kernels: Sequence[str]
    more: int


@dataclass(frozen=True)
class KernelView:
    """One row of the table of kernels.

    Attributes:
        short: its name in the width of the table.
        graph: the label of its graph.
        details: pairs of title and text.
    """

    number: int
    short: str
    colour: str
    graph: str
    category: str
    cells: Sequence[Cell]
    source: str
    operation: str
    details: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class RetunesView:
    """A table of retuned kernels; a row holds the name, the cells and the problem of one kernel."""

    title: str
    captions: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str], str]]


@dataclass(frozen=True)
class PageView:
    """The whole page.

    Attributes:
        lead: the headline; empty where there is none.
        where: the heading of the bars.
        of: the heading of shares of the whole.
        step: the step of the program; ``None`` where no step was profiled.
        whole: the time that shares of kernels refer to.
        failures: text, hint and log of each failure.
        plots: title and encoded PNG of each plot.
        caption: lines above the table of kernels.
        graphs_known: whether any graph was timed as one CUDA graph.
        runs_known: whether the numbers of runs differ.
        several: whether there are several graphs.
        calls: the word for launches on the device.
        facts: pairs of name and text at the foot of the page.
    """

    heading: str
    machine: str
    lead: str
    where: str
    of: str
    step: StepView | None
    modules: Sequence[GraphView]
    whole: str
    findings: Sequence[FindingView]
    notes: Sequence[FindingView]
    failures: Sequence[tuple[str, str, str]]
    plots: Sequence[tuple[str, str]]
    kernels: Sequence[KernelView]
    caption: Sequence[str]
    retunes: Sequence[RetunesView]
    graphs_known: bool
    runs_known: bool
    several: bool
    calls: str
    facts: Sequence[tuple[str, str]]
