"""Notes for each kernel which modules and lines its nodes come from, in torch's own provenance of a compiled graph.

What torch says of the nodes of a kernel is kept with the graph in Inductor's cache, and written into the structured
trace, also where the graph comes from the cache. ``source/layers.py`` reads the note. Private names of torch are used;
the versions with which they were checked stand in parentheses.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...records.code import BACKWARD, FORWARD, RECOMPUTED
from ...source.compile_log import read_source_line
from ...source.layers import LAYERS


def note_layers(debug: Any) -> Callable[[], None]:
    """Adds the note to what ``torch._inductor.debug`` says of each compiled graph. (torch 2.13)

    Returns a function that undoes this. If torch lacks a name that this needs, or after any error, there is no note.
    """
    original = getattr(debug, "dump_inductor_provenance_info", None)
    if original is None:
        return lambda: None

    @functools.wraps(original)
    def dump(*arguments: Any, **keywords: Any) -> Any:
        mapping = original(*arguments, **keywords)
        with contextlib.suppress(Exception):
            mapping[LAYERS] = _describe_graph(debug)
        return mapping

    def undo() -> None:
        debug.dump_inductor_provenance_info = original

    debug.dump_inductor_provenance_info = dump
    return undo


_NOTE_CALL = "set_kernel_post_grad_provenance_tracing"
"""The function with which Inductor notes the nodes of a call; it returns the number of the call's handle."""


def note_all_nodes(triton: Any) -> Callable[[], None]:
    """Makes torch note the nodes of the Triton kernels of which it notes none, and of the sums after them.

    (torch 2.11, 2.13)

    A kernel that reduces rows and columns at once (``mix_order_reduction``) has no handle. The wrapper itself then sums
    its partial results; each sum gets a handle, too, by the name of its buffer. Of a kernel for several operations
    (foreach, combo), torch leaves out those that are fused from several nodes.

    Args:
        triton: ``torch._inductor.codegen.triton``.

    Returns:
        The undoing. Without the names that this needs, and after any error, nothing more is noted.
    """
    kind, note_call = getattr(triton, "TritonKernel", None), getattr(triton, _NOTE_CALL, None)
    launch = getattr(kind, "call_kernel", None)
    if kind is None or launch is None or note_call is None:
        return lambda: None

    @functools.wraps(note_call)
    def note_parts(nodes: Any, *arguments: Any, **keywords: Any) -> Any:
        with contextlib.suppress(Exception):
            nodes = [part for node in nodes for part in _split_node(node)]
        return note_call(nodes, *arguments, **keywords)

    @functools.wraps(launch)
    def call_kernel(kernel: Any, name: str, *arguments: Any, **keywords: Any) -> Any:
        if not getattr(kernel, "mix_order_reduction", False):
            return launch(kernel, name, *arguments, **keywords)
        with contextlib.suppress(Exception):
            _write_handle(name, note_call(list(kernel.features.node_schedule), name))
        result = launch(kernel, name, *arguments, **keywords)
        with contextlib.suppress(Exception):
            for sums in kernel.saved_partial_accumulate:
                _write_handle(sums.buffer_name, note_call([_LastSum(sums.buffer_name)], sums.buffer_name))
        return result

    def undo() -> None:
        setattr(triton, _NOTE_CALL, note_call)
        kind.call_kernel = launch

    setattr(triton, _NOTE_CALL, note_parts)
    kind.call_kernel = call_kernel
    return undo


def _split_node(node: Any) -> list[Any]:
    """Returns the scheduler's nodes that were fused into a node; the node itself if it was not fused."""
    return list(node.get_nodes()) if getattr(node, "node", node) is None else [node]


def _write_handle(name: str, number: int | None) -> None:
    """Writes the handle of a call into the module."""
    from torch._inductor.virtualized import V

    V.graph.wrapper_code.write_provenance_debug_handle(name, number)


class _LastSum:
    """The sum of partial results into a buffer; it is used like a node of the scheduler."""

    def __init__(self, buffer: str) -> None:
        from torch._inductor.virtualized import V

        whole = V.graph.get_buffer(buffer)
        exact = whole.get_origin_node()
        self.node = self
        self.origins = [exact] if exact is not None else list(whole.origins)

    def get_stack_traces(self) -> list[str]:
        """The stack traces of the program's lines that compute the kernel."""
        return [trace for trace in (node.meta.get("stack_trace") for node in self.origins) if trace]


def _describe_graph(debug: Any) -> dict[str, object]:
    """The note on the graph that is being compiled, as JSON.

    ``modules`` are pairs of a path and a class, ``lines`` have the fields of ``SourceLine``; ``nodes`` have the places
    of their module and line in these (or -1), the direction, the elements and the FLOPs.
    """
    from torch._inductor.virtualized import V

    kernels = debug._inductor_triton_kernel_to_post_grad_node_info
    table = _NodeTable(V.graph)
    names = {name for found in kernels.values() for name in found}
    note = {
        "kernels": {handle: list(found) for handle, found in kernels.items()},
        "nodes": {name: table.describe(name) for name in names if name in table.nodes},
        "modules": [list(one) for one in table.modules],
        "lines": [list(one) for one in table.lines],
    }
    kernels.clear()  # torch does not do so between backward graphs, whose kernels may have the same names
    return note


class _NodeTable:
    """The nodes of a graph, and of the graphs within it, with their modules and lines."""

    def __init__(self, graph: Any) -> None:
        import torch

        self.nodes: dict[str, torch.fx.Node] = {}
        self.modules: dict[tuple[str, str], int] = {}
        self.lines: dict[tuple[str, int, str, str], int] = {}
        self._is_backward = bool(getattr(graph, "is_backward", False))
        self._places: dict[Any, int] = {}
        self._stacks: dict[str, int] = {}
        for module in graph.module.modules():
            for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
                self.nodes.setdefault(node.name, node)
                self._place(node)

    def describe(self, name: str) -> tuple[int, str, int, int, float]:
        node = self.nodes[name]
        place = self._places.get(node, -1)
        if node.op == "placeholder":  # an input that a kernel copies or converts belongs to the node that uses it
            place = next((self._places[user] for user in node.users if user in self._places), -1)
        return place, self._direction(node), self._line(node), _count_elements(node), _count_flops(node)

    def _place(self, node: Any) -> None:
        if node.op in ("placeholder", "output"):
            return
        stack = _stack(node)
        if stack:
            for path, kind in stack.values():
                name = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
                place = self.modules.setdefault((str(path), name.rpartition(".")[2]), len(self.modules))
            self._places[node] = place
        elif self._is_made_by_a_pass(node):
            known = [self._places[one] for one in node.all_input_nodes if one in self._places]
            if known:
                self._places[node] = known[-1]
        else:
            self._places[node] = -1

    def _is_made_by_a_pass(self, node: Any) -> bool:
        """Whether torch itself made a node: a sum of gradients, a layout, the update of a buffer."""
        if not node.meta.get("stack_trace") or node.meta.get("is_gradient_acc"):
            return True
        forward = node.meta.get("partitioner_tag") == "is_forward"
        return self._is_backward and not forward and "fwd_nn_module_stack" not in node.meta

    def _direction(self, node: Any) -> str:
        if node.meta.get("fwd_nn_module_stack"):
            return BACKWARD
        if not self._is_backward:
            return FORWARD
        again = node.meta.get("nn_module_stack") or node.meta.get("partitioner_tag") == "is_forward"
        return RECOMPUTED if again else BACKWARD

    def _line(self, node: Any) -> int:
        stack = node.meta.get("stack_trace") or ""
        if stack not in self._stacks:
            found = read_source_line(stack)
            key = (found.file, found.line, found.function, found.code) if found else None
            self._stacks[stack] = self.lines.setdefault(key, len(self.lines)) if key else -1
        return self._stacks[stack]


def _stack(node: Any) -> Mapping[str, Any]:
    """Returns the modules around a node, outermost first; for a backward node those of its forward node."""
    return node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}


def _count_elements(node: Any) -> int:
    """Returns the number of elements that a node writes or reads, the larger of the two; 0 for a view."""
    if node.op != "call_function" or _is_view(node.target):
        return 0
    values = [node.meta.get("val"), *(one.meta.get("val") for one in node.all_input_nodes)]
    return max((_count(value) for value in values), default=0)


def _is_view(target: Any) -> bool:
    name = str(getattr(target, "_opname", "") or getattr(target, "__name__", ""))
    return bool(getattr(target, "is_view", False)) or name in ("getitem", "reshape", "_unsafe_view")


def _count(value: Any) -> int:
    import torch

    if isinstance(value, list | tuple):
        return max((_count(one) for one in value), default=0)
    return _hint(value.numel()) if isinstance(value, torch.Tensor) else 0


def _count_flops(node: Any) -> float:
    """The FLOPs of a matrix product, a convolution or an attention; a multiply-add counts as two."""
    from torch.utils.flop_counter import flop_registry

    counted = flop_registry.get(getattr(node.target, "_overloadpacket", None))
    if counted is None:
        return 0.0
    import torch.fx

    def value(of: Any) -> Any:
        return of.meta.get("val")

    with contextlib.suppress(Exception):
        arguments = torch.fx.node.map_arg(node.args, value)
        keywords = torch.fx.node.map_arg(node.kwargs, value)
        return float(_hint(counted(*arguments, **keywords, out_val=node.meta.get("val"))))
    return 0.0


def _hint(number: Any) -> int:
    """Returns a number of a graph; for a symbol, the number with which it was traced."""
    symbol = getattr(number, "node", None)
    if symbol is not None:
        number = getattr(symbol, "hint", None)
    return int(number) if number is not None else 0


def list_module_paths(node: Any) -> Iterator[str]:
    """Returns the paths of the modules around a node, as the note of its compiled graph holds them."""
    for path, _ in _stack(node).values():
        yield str(path)
