"""The device time of a step as a tree: the modules of the model, or the files of the program with their lines."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from ...analysis.layer_times import is_between_kernels
from ...records.code import BACKWARD, FORWARD, RECOMPUTED, SourceLine
from ...records.run import COLLECTIVE, COPY, EAGER, GRAPH, OPTIMIZER, LayerTime, LineTime

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


# --- names of several layers -----------------------------------------------------------------------------------------


def fold_names(layers: Iterable[str]) -> tuple[str, ...]:
    """The layers with those folded that differ in one number: ``Net.layers.0-11.mlp``.

    Numbers with gaps are ranges one after the other: ``layers.0,2-3``.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for layer in dict.fromkeys(layers):
        parts = layer.split(".")
        place = next((at for at, part in enumerate(parts) if part.isdecimal()), -1)
        key = tuple("#" if at == place else part for at, part in enumerate(parts))
        groups.setdefault(key, []).append(int(parts[place]) if place >= 0 else -1)
    return tuple(
        ".".join(part if part != "#" else _list_ranges(numbers) for part in key) for key, numbers in groups.items()
    )


def _list_ranges(numbers: Iterable[int]) -> str:
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found)
