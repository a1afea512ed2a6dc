"""The device time of a step by the model's own modules and by the program's lines: trees, and an icicle for a page."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from ... import units
from ...analysis.layer_times import compute_layer_share, is_between_kernels
from ...analysis.roofline import BEYOND
from ...analysis.step_costs import find_step, runs_on_host
from ...records.code import BACKWARD, FORWARD, RECOMPUTED, SourceLine
from ...records.run import COLLECTIVE, COPY, EAGER, GRAPH, OPTIMIZER, LayerTime, LineTime, Program, Run
from .. import names, palette
from ..document import MOST_ROWS as SHOWN_ON_PAGE
from ..document import (
    NOTE,
    Block,
    Cell,
    Column,
    Row,
    Section,
    ShownIn,
    Stretch,
    Table,
    TimelineChart,
    make_notes,
    make_sentences,
    make_table,
    make_text_column,
)
from .step_document import MOST_CODE, TICKS

ALIKE = 1.5
"""Layers of one class are folded if the ratio of each time to the median is at most this."""

NO_MODULE, NO_LINE, BETWEEN = "no module", "no known line", "between the graphs' kernels"
"""Names of time without a module, time without a line, and CPU time between the kernels of a graph."""

CALL = "call"
"""Marks a line that calls a compiled graph, and has the time of kernels that no line of the program computes."""

KIND_WORDS = {EAGER: "eager operators", OPTIMIZER: "optimizer", COLLECTIVE: "collectives", COPY: "copies"}


@dataclass(frozen=True)
class Figures:
    """Sums over rows; seconds and FLOPs of a step."""

    forward_s: float = 0.0
    backward_s: float = 0.0
    recomputed_s: float = 0.0
    other_s: float = 0.0  # of no known direction, as an optimizer
    shared_s: float = 0.0  # from kernels that several layers share
    flops: float = 0.0
    launches: float = 0.0
    uncounted_s: float = 0.0  # in matrix products, convolutions and attention whose FLOPs are unknown
    peak_s: float = 0.0  # the time that FLOPs would take at the peak of their type
    without_peak: float = 0.0  # FLOPs whose peak is unknown
    moved_bytes: float = 0.0
    unmeasured_s: float = 0.0  # in kernels whose bytes are unknown

    @property
    def time_s(self) -> float:
        """The seconds of all directions."""
        return self.forward_s + self.backward_s + self.recomputed_s + self.other_s


@dataclass(frozen=True)
class TreeNode:
    """A node of the tree."""

    name: str  # its part of the path: ``layers.0-11``; of a line its number and function
    whole: Figures  # with all that is below it
    own: Figures = Figures()  # without
    class_name: str = ""  # of a module; empty if it is unknown
    children: tuple[TreeNode, ...] = ()
    count: int = 1  # the number of layers that are folded to it
    code: str = ""  # the text of a line


def build_tree_by_layer(rows: Iterable[LayerTime], classes: Mapping[str, str]) -> tuple[TreeNode, ...]:
    """The objects at the roots with their modules, the longest first, and with equal layers folded.

    Eager operators stand below the class of their module in a node of their own, because its path is not known. Time
    of compiled graphs without a module is a node, and so is every other kind of work.

    Args:
        rows: the time of each layer and direction.
        classes: the class of each layer.
    """
    found: dict[tuple[str, ...], list[LayerTime]] = {}
    for row in rows:
        if is_between_kernels(row):
            path: tuple[str, ...] = (BETWEEN,)
        elif row.kind == GRAPH:
            path = tuple(row.layer.split(".")) if row.layer else (NO_MODULE,)
        else:
            path = (KIND_WORDS.get(row.kind, row.kind), *filter(None, [row.layer]))
        found.setdefault(path, []).append(row)
    return tuple(_fold(one) for one in _grow(list(found.items()), classes, ()))


def build_tree_by_line(rows: Iterable[LineTime]) -> tuple[TreeNode, ...]:
    """The files with their lines, the longest first; other work by its kind if the line is unknown.

    Time that only a call of a graph places in the program belongs to the line of this call. Below it stand the lines of
    the libraries.
    """
    lines: dict[tuple[str, SourceLine | None], list[LineTime]] = {}
    for row in rows:
        source = row.called_at or row.source
        kind = "" if source is not None else KIND_WORDS.get(row.kind, "" if row.direction else BETWEEN)
        lines.setdefault((kind, source), []).append(row)
    files: dict[str, list[TreeNode]] = {}
    unknown = []
    for (kind, source), found in lines.items():
        figures = _sum(found)
        if source is None:
            name = kind if kind == BETWEEN else f"{kind}, {NO_LINE}" if kind else NO_LINE
            unknown.append(TreeNode(name, figures, figures))
        else:
            files.setdefault(source.file, []).append(_make_line_node(source, found))
    made = [TreeNode(file, _total(found), children=_sort_nodes(found)) for file, found in files.items()]
    return _sort_nodes([*made, *unknown])


def _make_line_node(source: SourceLine, rows: Sequence[LineTime]) -> TreeNode:
    """The node of a line of the program, with the lines of libraries below it."""
    below: dict[SourceLine, list[LineTime]] = {}
    for row in rows:
        if row.called_at is not None and row.source is not None:
            below.setdefault(row.source, []).append(row)
    called = f", {CALL}" if any(row.called_at is not None for row in rows) else ""
    return TreeNode(
        f"{source.line} in {source.function}{called}",
        _sum(rows),
        _sum([row for row in rows if row.called_at is None or row.source is None]),
        children=_sort_nodes([_make_library_node(line, found) for line, found in below.items()]),
        code=source.code,
    )


def _make_library_node(line: SourceLine, rows: Sequence[LineTime]) -> TreeNode:
    figures = _sum(rows)
    return TreeNode(f"{PurePath(line.file).name}:{line.line} in {line.function}", figures, figures, code=line.code)


def walk(nodes: Iterable[TreeNode], depth: int = 0) -> Iterator[tuple[int, TreeNode]]:
    """The nodes with their depths, each before what is below it."""
    for node in nodes:
        yield depth, node
        yield from walk(node.children, depth + 1)


# --- growing ----------------------------------------------------------------------------------------------------------


def _grow(
    items: Sequence[tuple[tuple[str, ...], list[LayerTime]]], classes: Mapping[str, str], above: tuple[str, ...]
) -> tuple[TreeNode, ...]:
    """The nodes of one level. ``items`` are the rest of each path, which is not empty, and its rows."""
    groups: dict[str, list[tuple[tuple[str, ...], list[LayerTime]]]] = {}
    for path, rows in items:
        groups.setdefault(path[0], []).append((path[1:], rows))
    made = []
    for name, group in groups.items():
        own = _sum([row for path, rows in group if not path for row in rows])
        children = _grow([one for one in group if one[0]], classes, (*above, name))
        class_name = classes.get(".".join((*above, name)), "")
        made.append(TreeNode(name, _add(own, _total(children)), own, class_name, children))
    return _sort_nodes(made)


def _sort_nodes(nodes: Sequence[TreeNode]) -> tuple[TreeNode, ...]:
    """The longest first; numbered layers in their order."""
    if all(node.name.isdecimal() for node in nodes):
        return tuple(sorted(nodes, key=lambda node: int(node.name)))
    return tuple(sorted(nodes, key=lambda node: (-node.whole.time_s, node.name)))


def _sum(rows: Sequence[LayerTime] | Sequence[LineTime]) -> Figures:
    def of(direction: str) -> float:
        return math.fsum(row.time_s for row in rows if row.direction == direction)

    known = (FORWARD, BACKWARD, RECOMPUTED)
    return Figures(
        forward_s=of(FORWARD),
        backward_s=of(BACKWARD),
        recomputed_s=of(RECOMPUTED),
        other_s=math.fsum(row.time_s for row in rows if row.direction not in known),
        shared_s=math.fsum(row.shared_s for row in rows),
        flops=math.fsum(row.flops for row in rows),
        launches=math.fsum(row.launches for row in rows),
        uncounted_s=math.fsum(row.work.uncounted_s for row in rows),
        peak_s=math.fsum(row.work.peak_time_s or 0.0 for row in rows),
        without_peak=math.fsum(row.flops for row in rows if row.work.peak_time_s is None),
        moved_bytes=math.fsum(row.work.moved_bytes or 0.0 for row in rows),
        unmeasured_s=math.fsum(row.work.unmeasured_s for row in rows),
    )


def _add(one: Figures, other: Figures) -> Figures:
    return Figures(*(a + b for a, b in zip(vars(one).values(), vars(other).values(), strict=True)))


def _total(nodes: Iterable[TreeNode]) -> Figures:
    whole = Figures()
    for node in nodes:
        whole = _add(whole, node.whole)
    return whole


# --- folding ----------------------------------------------------------------------------------------------------------


def _fold(node: TreeNode) -> TreeNode:
    """The node with equal layers folded, and with a list of modules joined with them."""
    children = tuple(_shorten_path(_fold(_merge(run))) for run in _find_runs(node.children))
    return replace(node, children=children)


def _shorten_path(node: TreeNode) -> TreeNode:
    """A list of modules with one child as one node: ``layers.0-11``."""
    if len(node.children) != 1 or node.own.time_s or node.count > 1 or node.class_name:
        return node
    (child,) = node.children
    return replace(child, name=f"{node.name}.{child.name}")


def _find_runs(nodes: Sequence[TreeNode]) -> Iterator[list[TreeNode]]:
    """The siblings in runs of equal layers: numbered one after the other, of one class and about equal times."""
    run: list[TreeNode] = []
    for node in nodes:
        if run and not _is_next_layer(run[-1], node):
            yield from _equal_times(run)
            run = []
        run.append(node)
    yield from _equal_times(run)


def _is_next_layer(one: TreeNode, other: TreeNode) -> bool:
    numbered = one.name.isdecimal() and other.name.isdecimal() and int(other.name) == int(one.name) + 1
    return numbered and one.class_name == other.class_name


def _equal_times(run: Sequence[TreeNode]) -> Iterator[list[TreeNode]]:
    middle = statistics.median(node.whole.time_s for node in run) if run else 0.0
    usual = [middle <= ALIKE * node.whole.time_s and node.whole.time_s <= ALIKE * middle for node in run]
    for is_usual, group in itertools.groupby(zip(usual, run, strict=True), key=lambda pair: pair[0]):
        nodes = [node for _, node in group]
        yield from [nodes] if is_usual else [[node] for node in nodes]


def _merge(nodes: Sequence[TreeNode]) -> TreeNode:
    """Several equal layers as one, their modules of the same name together."""
    if len(nodes) == 1:
        return nodes[0]
    by_name: dict[str, list[TreeNode]] = {}
    for node in nodes:
        for child in node.children:
            by_name.setdefault(child.name, []).append(child)
    children = [replace(_merge(found), name=name, count=1) for name, found in by_name.items()]
    own = Figures()
    for node in nodes:
        own = _add(own, node.own)
    name = f"{nodes[0].name}-{nodes[-1].name}"
    return TreeNode(name, _total(nodes), own, nodes[0].class_name, _sort_nodes(children), len(nodes))


KERNEL, LAYER, LINE = "kernel", "layer", "line"
"""The values of ``--by``: how to divide the step's device time."""

MOST_ROWS = 40
"""The most rows of a tree on a terminal and in Markdown."""

LEAST_SHARE = 0.005
"""The share of the device time below which a terminal leaves a node to the one above it."""

MISSING = (
    "This RUN has no times by layer and line: none of its steps was profiled, or an earlier version of this tool "
    "made it."
)
MOST_ON_PAGE = 3000
DEEPEST = 12
"""The most levels of an icicle."""

SEEN = 1 / 1500
"""The share of an icicle's width below which a node is not drawn."""

DIVIDED = "divided: time of kernels that several layers share, in proportion to the elements that each layer touches"
FLOP_HINT = "FLOPs of matrix products, convolutions and attention in a step, divided by all of the layer's time"
PEAK_HINT = "the time of these FLOPs at the measured peak of their type, as a share of all of the layer's time: its MFU"
BYTES_HINT = (
    "the fewest bytes that the kernels must move, divided by all of the layer's time; some bytes may come from caches"
)
SHARE = "of all"
AT_LEAST, PARTLY = "≥ ", "≥: the FLOPs of a part, or the peak of their type, are unknown"
"""Stands before a sum of which a part is unknown."""

LEFT_OUT = "a row includes the layers inside it that are too short for rows of their own"
CALLED = f"{CALL}: this line calls a compiled graph, and has the time of kernels that no line of the program computes"


def make_layers_section(run: Run, by: str) -> tuple[Section, ...]:
    """Makes the sections by layer and by line.

    A page has both sections; a terminal and Markdown have the requested one.
    """
    program = find_step(run)
    if program is None or not program.layers:
        return (Section(f"By {by}", make_sentences([MISSING], NOTE), on=~ShownIn.PAGE),) if by != KERNEL else ()
    layers, lines = build_tree_by_layer(program.layers, program.layer_classes), build_tree_by_line(program.lines)
    return (
        _make_tree_section(run, program, layers, LAYER, ShownIn.EVERYWHERE if by == LAYER else ShownIn.PAGE),
        _make_tree_section(run, program, lines, LINE, ShownIn.EVERYWHERE if by == LINE else ShownIn.PAGE),
    )


def _make_tree_section(run: Run, program: Program, tree: Sequence[TreeNode], by: str, on: ShownIn) -> Section:
    whole_s = sum(node.whole.time_s for node in tree)
    whose = "time in operators" if runs_on_host(run) else "device time"
    return Section(
        f"Device time by {by}" if not runs_on_host(run) else f"Time by {by}",
        (
            *(_make_icicle(tree, whole_s, by) if by == LINE else ()),
            _make_tree_table(tree, whole_s, by),
            *make_sentences(_describe_tree(program, tree, by), NOTE),
        ),
        short=f"By {by}",
        note=f"per step; {SHARE}: share of its {whose}, {units.seconds(whole_s)}",
        on=on,
    )


def make_icicle_section(run: Run) -> Section:
    """The tree by layer as a picture, for a page."""
    program = find_step(run)
    tree = build_tree_by_layer(program.layers, program.layer_classes) if program is not None else ()
    whole_s = sum(node.whole.time_s for node in tree)
    whose = "time in operators" if runs_on_host(run) else "device time"
    note = f"per step: {units.seconds(whole_s)} of {whose}; a layer stands below the one that it is a part of"
    return Section("The step by layer", tuple(_make_icicle(tree, whole_s, LAYER)), note=note, on=ShownIn.PAGE)


def _describe_tree(program: Program, tree: Sequence[TreeNode], by: str) -> Iterator[str]:
    known = compute_layer_share(program.layers)
    share = f"{units.percent(known)} of the time of graphs' kernels has a module" if known is not None else ""
    divided = DIVIDED if any(node.whole.shared_s for node in tree) else ""
    wholes = [node.whole for node in tree]
    partly = any(one.flops and (one.uncounted_s or (one.peak_s and one.without_peak)) for one in wholes)
    called = CALLED if by == LINE and any(line.called_at is not None for line in program.lines) else ""
    yield " · ".join(filter(None, (share, called, divided, PARTLY if partly else "", LEFT_OUT)))


# --- the table --------------------------------------------------------------------------------------------------------


def _make_tree_table(tree: Sequence[TreeNode], whole_s: float, by: str) -> Table:
    every = list(itertools.islice(walk(tree), MOST_ON_PAGE))
    few = set(map(id, _keep_largest_nodes([node for _, node in every], whole_s)))
    wholes = [node.whole for node in tree]
    again = any(one.recomputed_s for one in wholes)
    both = again or any(one.backward_s for one in wholes)
    flops, moved = any(one.flops for one in wholes), any(one.moved_bytes for one in wholes)
    shown = {"forward": both, "backward": both, "recomputed": again, "divided": any(one.shared_s for one in wholes)}
    shown |= {"FLOP": flops, "FLOP/s": flops, "of peak": any(one.peak_s for one in wholes)}
    shown |= {"bytes": moved, "bytes/s": moved}
    more = "in report.html" if len(every) <= SHOWN_ON_PAGE else f"in tables/{by}s.csv"
    return make_table(
        every,
        lambda item: (pair for pair in _list_cells(*item, whole_s, by) if shown.get(pair[0].title, True)),
        lambda item, cells: Row(cells, late=id(item[1]) not in few),
        filter=f"{by}, class" if by == LAYER else by,
        most=len(few),
        more=more,
    )


def _cut_ends(texts: Sequence[str], width: int) -> list[str]:
    return [names.cut_end(text, width) for text in texts]


def _list_cells(depth: int, node: TreeNode, whole_s: float, by: str) -> Iterator[tuple[Column, Cell]]:
    whole, spare = node.whole, 2 if by == LAYER else 5  # a line needs room for its code
    below = "`" + names.cut_end(names.clean(node.code).replace("`", ""), MOST_CODE) + "`" if node.code else ""
    name = Cell("· " * depth + name_node(node), notes=make_notes(below, on=ShownIn.PAGE))
    yield make_text_column(by, least=24, most=120), name
    if by == LAYER:
        yield make_text_column("class", least=8, spare=4), Cell(node.class_name)
    else:
        shown = ShownIn.EVERYWHERE & ~ShownIn.PAGE
        yield make_text_column("code", least=20, most=120, shorten=_cut_ends, on=shown), Cell(node.code)
    for column, time_s in (
        *((Column("forward", spare=spare), whole.forward_s), (Column("backward", spare=spare), whole.backward_s)),
        *((Column("recomputed", short="again", spare=spare), whole.recomputed_s), (Column("time"), whole.time_s)),
    ):
        yield column, Cell(units.seconds(time_s) if time_s else "", time_s)
    share = whole.time_s / whole_s if whole_s else 0.0
    yield Column(SHARE), Cell(units.percent(share), share)
    divided = whole.shared_s / whole.time_s if whole.time_s else 0.0
    yield Column("divided", spare=3, hint=DIVIDED), Cell(units.percent(divided) if divided else "", divided)
    least, rate = AT_LEAST if whole.uncounted_s else "", format_rate(whole, whole.flops)
    amount = Cell(least + units.flops(whole.flops) if whole.flops else "", whole.flops)
    yield Column("FLOP", on=ShownIn.PAGE), amount
    yield Column("FLOP/s", spare=6, hint=FLOP_HINT), Cell(least + units.flop_rate(rate) if rate else "", rate)
    of_peak, least = format_rate(whole, whole.peak_s), least or AT_LEAST * bool(whole.without_peak)
    of_peak = None if of_peak and of_peak > BEYOND else of_peak  # the peak would not be that of this layer
    yield Column("of peak", spare=1, hint=PEAK_HINT), Cell(least + units.percent(of_peak) if of_peak else "", of_peak)
    moved, least = format_rate(whole, whole.moved_bytes), AT_LEAST if whole.unmeasured_s else ""
    moved_bytes = Cell(least + units.size(whole.moved_bytes) if moved else "", whole.moved_bytes)
    yield Column("bytes", on=ShownIn.PAGE), moved_bytes
    yield Column("bytes/s", spare=7, hint=BYTES_HINT), Cell(least + units.rate(moved) if moved else "", moved)


def name_node(node: TreeNode) -> str:
    """The node in tables: ``layers.0-11 (12x)``."""
    return f"{node.name} ({node.count}x)" if node.count > 1 else node.name


def format_rate(figures: Figures, amount: float) -> float | None:
    """Divides an amount by a node's whole time; ``None`` if either is 0."""
    return amount / figures.time_s if amount and figures.time_s else None


def _keep_largest_nodes(nodes: Sequence[TreeNode], whole_s: float) -> list[TreeNode]:
    """Returns the nodes with at least :data:`LEAST_SHARE` of the time, at most :data:`MOST_ROWS`. A node never takes
    longer than its parent, so its parent is among them.
    """
    times = sorted((node.whole.time_s for node in nodes), reverse=True)
    least = max(LEAST_SHARE * whole_s, times[MOST_ROWS - 1] if len(times) >= MOST_ROWS else 0.0)
    return [node for node in nodes if node.whole.time_s >= least]


# --- the icicle -------------------------------------------------------------------------------------------------------


def _make_icicle(tree: Sequence[TreeNode], whole_s: float, by: str) -> Iterator[Block]:
    """The tree as a picture: each level is a lane, and each node lies below the one that it is a part of."""
    levels: list[list[Stretch]] = []
    _place(tree, 0.0, 0, whole_s, levels)
    if not levels or not whole_s:
        return
    lanes = tuple(("" if depth else "step", tuple(level)) for depth, level in enumerate(levels))
    ticks = tuple((place / (TICKS - 1), units.seconds(whole_s * place / (TICKS - 1))) for place in range(TICKS))
    yield TimelineChart(lanes, ticks, (), f"Time of a step by {by}", on=ShownIn.PAGE)


def _place(nodes: Iterable[TreeNode], left: float, depth: int, whole_s: float, levels: list[list[Stretch]]) -> None:
    if depth >= DEEPEST or not whole_s:
        return
    for number, node in enumerate(nodes):
        share = node.whole.time_s / whole_s
        if share >= SEEN:
            if len(levels) <= depth:
                levels.append([])
            colours = palette.GRAPHS
            title = names.clean(name_node(node))
            said = f"{title} {units.seconds(node.whole.time_s)} {units.percent(share)}"
            levels[depth].append(Stretch(share, colours[(number + depth) % len(colours)], title, said, left))
            _place(node.children, left, depth + 1, whole_s, levels)
        left += share
