"""Reads which modules of the model, and which lines, the kernels of a compiled module come from.

The observed process adds a note to torch's own provenance (``worker/upstream/node_layers.py``): for each node of the
graph its module, direction and line, and the nodes of each kernel. Torch keeps it with the compiled graph in its cache,
and writes it into the structured trace.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..records.code import DIRECTIONS, LayerMap, LayerShare, SourceLine

LAYERS = "inductor_bench_layers"
"""The key of the note in torch's mapping of nodes."""

_ROOT = re.compile(r"[LG]\['([^']+)'\]|([A-Za-z_]\w*)")
_STEP = re.compile(r"\.([A-Za-z_]\w*|\d+)|\[['\"]([^'\"]+)['\"]\]|\[(\d+)\]")
_GETATTR = re.compile(r"getattr\(([^()]+), ['\"]([^'\"]+)['\"]\)")
_FUSED = re.compile(r"triton_(poi|red|per|for|spl)_|cpp_fused_|(\w+_)?buf\d")
"""Names of generated kernels that are not from a template, and of buffers with their partial sums. Such a kernel
computes a matrix product only if Inductor writes the product as a sum."""

_CALL_NUMBER = re.compile(r"@\d+$")
_WRAPPERS = frozenset({"_modules", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Parts of a module's path that belong to wrappers, and not to a module of the user."""

_UNTELLING = frozenset({"self", "fn", "mod"})
"""Variable names in functions of torch and in methods, which say less than the class of the object."""


class ModulePath(NamedTuple):
    """The path of a module: the variable of the object at its root, and the names from there on."""

    variable: str
    names: tuple[str, ...]


def read_path(text: str) -> ModulePath:
    """Reads the path of a module as torch writes it, such as ``L['self'].layers.3.mlp``, in the spelling of any
    version."""
    text = _CALL_NUMBER.sub("", text)
    while found := _GETATTR.search(text):
        text = f"{text[: found.start()]}{found[1]}['{found[2]}']{text[found.end() :]}"
    root = _ROOT.match(text)
    if root is None:
        return ModulePath("", tuple(filter(None, [text])))
    steps = [next(filter(None, step), "") for step in _STEP.findall(text[root.end() :])]
    names = (name for step in steps if step not in _WRAPPERS for name in step.split(".") if name)
    return ModulePath(root[1] or root[2], tuple(names))


@dataclass(frozen=True)
class _Roots:
    """The names of the objects below which the modules of a graph stand."""

    compiled: str  # the class of the object whose method was compiled; empty for a plain function
    bare: Mapping[str, str]  # variables that hold a module which the graph calls: its class

    def layer(self, path: ModulePath) -> str:
        name = path.variable
        if self.compiled and name == "args" and path.names[:1] == ("0",):  # ``*args`` of a decorator hold the object
            return ".".join((self.compiled, *path.names[1:]))
        if name not in self.bare:
            name = self.compiled or name
        elif name in _UNTELLING:
            name = self.bare[name] or name
        return ".".join((name, *path.names))


def read_layers(note: object, handles: Collection[str], compiled: str) -> LayerMap:
    """Returns the modules of a compiled module's kernels; empty if the note is invalid.

    Args:
        note: the decoded note.
        handles: the provenance handles in the module's text.
        compiled: the class of the object whose method was compiled; empty for a plain function. Nodes that no module
            below it made are the object's own.
    """
    try:
        return _read(note, handles, compiled) if isinstance(note, dict) else LayerMap()
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):  # damaged, or of another version
        return LayerMap()


def _read(note: Mapping[str, Any], handles: Collection[str], compiled: str) -> LayerMap:
    modules = [(read_path(str(path)), str(name)) for path, name in note["modules"]]
    roots = _Roots(compiled, {path.variable: name for path, name in modules if not path.names})
    layers = [roots.layer(path) for path, _ in modules]
    classes = dict(zip(layers, (name for _, name in modules), strict=True))
    nodes, calls = note["nodes"], {handle: names for handle, names in note["kernels"].items() if handle in handles}
    products = _find_products(calls, nodes)

    def find_nodes(handle: str, names: Sequence[str]) -> list[Sequence[Any]]:
        known = ((name, nodes[name]) for name in names if name in nodes)
        return [node if products.get(name) == handle else (*node[:-1], 0.0) for name, node in known]

    return LayerMap(
        classes={**classes, compiled: compiled} if compiled else classes,
        lines=tuple(SourceLine(str(file), int(line), str(of), str(code)) for file, line, of, code in note["lines"]),
        kernels={
            handle: shares
            for handle, names in calls.items()
            if (shares := _divide_among_nodes(find_nodes(handle, names), layers, compiled))
        },
    )


def _find_products(calls: Mapping[str, Sequence[str]], nodes: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """Returns the call that computes each node with FLOPs.

    Other calls with the node only prepare or finish it: they add a bias, or convert an input. If no library call and no
    template has the node, the first generated kernel with it computes it.
    """
    found: dict[str, str] = {}
    for handle in sorted(calls, key=lambda one: _FUSED.match(one) is not None):
        for name in calls[handle]:
            if name in nodes and nodes[name][-1]:
                found.setdefault(name, handle)
    return found


def _divide_among_nodes(nodes: Sequence[Sequence[Any]], layers: Sequence[str], outside: str) -> tuple[LayerShare, ...]:
    """Divides a kernel's call among its layers. ``outside`` is the layer of nodes that no module made."""
    weights = divide_call([(int(elements), float(flops)) for *_, elements, flops in nodes])
    sums: dict[tuple[str, str, int], list[tuple[float, float]]] = defaultdict(list)
    for (module, direction, line, _, flops), weight in zip(nodes, weights, strict=True):
        layer = layers[module] if module >= 0 else outside
        if weight:
            sums[layer, DIRECTIONS[DIRECTIONS.index(direction)], int(line)].append((weight, float(flops)))
    return tuple(
        LayerShare(*key, share=math.fsum(one[0] for one in found), flops=math.fsum(one[1] for one in found))
        for key, found in sums.items()
    )


def divide_call(nodes: Iterable[tuple[int, float]]) -> list[float]:
    """Returns the share of each node in the time of a kernel that computes several nodes; the shares add up to 1.

    Matrix products take the whole time, by their FLOPs: operations that are fused to them cost little. Other nodes
    count by the elements that they read or write, whichever are more; if no node has any, all have equal shares.

    Args:
        nodes: the elements and the FLOPs of each node; views have 0 elements.
    """
    nodes = list(nodes)
    weights = [flops for _, flops in nodes]
    if not any(weights):
        weights = [float(elements) for elements, _ in nodes]
    if not any(weights):
        weights = [1.0] * len(nodes)
    whole = math.fsum(weights)
    return [weight / whole for weight in weights]
