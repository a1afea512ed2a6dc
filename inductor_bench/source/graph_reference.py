"""Makes references for the exact result of an edited kernel.

For Triton this is plain PyTorch of the graph that Inductor writes as comments above a kernel. For C++ it is a kernel
that computes in float64.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_NODE = re.compile(r'^#\s+%(\w+) : (?:Tensor "[^"]*"\s*)?(?:\[num_users=\d+\])?\s*= (PlaceHolder|call_function)\[(.*)$')
_TARGET = re.compile(r"target=([\w.]+)\](?:\(args = \((.*)\), kwargs = \{(.*)\}\))?$")
_SHAPE = re.compile(r'"\w+\[([\d, ]*)\]')
_RETURN = re.compile(r"^#\s+return (%.*)$")
_FRAGMENT = "# Graph fragment:"
_VALUE = re.compile(r"%(\w+)")
_ITEM = re.compile(r"getitem(?:_\d+)?")
_GET = "getitem"
_PAIR = "torch.ops.aten.var_mean.correction"
_LEFT_OUT = ("device", "layout", "pin_memory", "memory_format")
_FLOATS = re.compile(r"torch\.(?:float32|float16|bfloat16)\b")


@dataclass(frozen=True)
class _Node:
    name: str
    kind: str
    target: str
    arguments: str
    keywords: str = ""
    shape: tuple[int, ...] | None = None


def find_fragment_above(lines: Sequence[str], line: int) -> tuple[str, ...]:
    """Returns the lines of the graph fragment in the comment above a definition.

    Args:
        lines: the lines of the module.
        line: the number of the definition's first line, from 1.
    """
    block: list[str] = []
    for text in reversed(lines[: line - 1]):
        if not text.startswith("#"):
            break
        block.append(text)
    block.reverse()
    return tuple(block[block.index(_FRAGMENT) + 1 :]) if _FRAGMENT in block else ()


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel."""

    name: str
    variable: str = ""  # the variable that the module passes for it; empty for another expression
    elements: int = 0  # of the tensor that is passed; 0 for a number
    is_read: bool = False  # whether it is a tensor that the kernel may read


def write_reference(fragment: Sequence[str], parameters: Sequence[Parameter]) -> str:
    """Writes the text of a function ``reference`` that computes the same as a kernel; empty if that is impossible.

    An input has the name of the variable that is passed, or comes in the order of the parameters. Whether this is right
    shows only in the results.

    Args:
        fragment: the lines of :func:`find_fragment_above`.
        parameters: the kernel's parameters, in order.
    """
    returned = next((found.group(1) for found in map(_RETURN.match, fragment) if found), "")
    read = [node for node in map(_read_node, fragment) if node is not None]
    nodes = list(_add_items(read, returned, {parameter.variable for parameter in parameters}))
    computed = {node.name for node in nodes if node.kind == "call_function"}
    used = {name for node in nodes for name in _VALUE.findall(f"{node.arguments} {node.keywords}")}
    results = [name for name in _VALUE.findall(returned) if name in computed]
    inputs = [node for node in nodes if node.kind == "PlaceHolder" and node.name in used - computed]
    given = _match_inputs(inputs, parameters)
    if not results or given is None:
        return ""
    body = [
        f"{_make_name_safe(node.name)} = {name}{'' if node.shape is None else f'.reshape({_write_tuple(node.shape)})'}"
        for node, name in zip(inputs, given, strict=True)
    ]
    body += [f"{_make_name_safe(node.name)} = {_call(node)}" for node in nodes if node.kind == "call_function"]
    names = [parameter.name for parameter in parameters]
    lines = [
        f"def reference({', '.join(names)}):",
        '    """The same in plain PyTorch, from the graph that Inductor compiled: its results in order."""',
        "    import torch",
        "",
        *(f"    {line}" for line in body),
        f"    return [{', '.join(map(_make_name_safe, results))}]",
    ]
    text = "\n".join(lines) + "\n"
    return (
        text
        if _is_complete(
            text, {*names, *map(_make_name_safe, computed), *(_make_name_safe(node.name) for node in inputs)}
        )
        else ""
    )


def _add_items(nodes: Sequence[_Node], returned: str, passed: Collection[str]) -> Iterator[_Node]:
    """Returns the nodes, with the items of variances and means, which Inductor leaves out."""
    names = {name for node in nodes for name in (node.name, *_VALUE.findall(node.arguments))} | set(
        _VALUE.findall(returned)
    )
    items = sorted((name for name in names if _ITEM.fullmatch(name) and name not in passed), key=_number)
    pairs = [node for node in nodes if node.target == _PAIR]
    if len(items) != 2 * len(pairs):
        items = []
    for node in nodes:
        yield node
        if node.target == _PAIR and items:
            for place in (0, 1):
                yield _Node(items.pop(0), "call_function", _GET, f"%{node.name}", str(place))


def _number(item: str) -> int:
    return int(item.partition("_")[2] or 0)


def _match_inputs(inputs: Sequence[_Node], parameters: Sequence[Parameter]) -> list[str] | None:
    """Returns the parameter of each input; ``None`` if one input has none."""
    by_variable = {parameter.variable: parameter.name for parameter in parameters if parameter.variable}
    found = [by_variable.get(node.target, "") for node in inputs]
    left = [parameter for parameter in parameters if parameter.is_read and parameter.name not in found]
    for place, node in enumerate(inputs):
        if not found[place]:
            elements = math.prod(node.shape) if node.shape is not None else 0
            fitting = next((parameter for parameter in left if parameter.elements == elements), None)
            if fitting is None:
                return None
            found[place] = fitting.name
            left.remove(fitting)
    return found


def convert_to_float64(reference: str) -> str:
    """Returns a reference with float64 instead of narrower types."""
    return _FLOATS.sub("torch.float64", reference)


def _read_node(line: str) -> _Node | None:
    found = _NODE.match(line)
    target = _TARGET.match(found.group(3)) if found else None
    if found is None or target is None:
        return None
    shape = _SHAPE.search(line.partition(" = ")[0])
    sizes = tuple(int(size) for size in shape.group(1).split(",") if size.strip()) if shape else None
    return _Node(found.group(1), found.group(2), target.group(1), target.group(2) or "", target.group(3) or "", sizes)


def _call(node: _Node) -> str:
    if node.target == _GET:
        return f"{_make_name_safe(node.arguments.lstrip('%'))}[{node.keywords}]"
    return f"{node.target}({_write_arguments(node)})"


def _write_arguments(node: _Node) -> str:
    keywords = [pair.partition(": ") for pair in _split(node.keywords)]
    named = [f"{name.strip()}={value}" for name, _, value in keywords if name.strip() not in _LEFT_OUT]
    return _VALUE.sub(
        lambda found: _make_name_safe(found.group(1)), ", ".join([node.arguments.rstrip(", "), *named]).strip(", ")
    )


def _split(text: str) -> list[str]:
    """Returns the parts between the commas that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [part for part in (*parts, text[start:]) if part.strip()]


def _write_tuple(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _make_name_safe(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) or name in ("torch", "reference") else name


def _is_complete(text: str, known: set[str]) -> bool:
    """Whether the text is Python that uses only torch and names that it has computed."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return used <= known | {"torch", "inf", "nan", "True", "False", "None"}


_NARROW = re.compile(r"\b(?:BFloat16|bfloat16|Half|half|float8_\w+|Float8_\w+)\b")
_REFERENCES = re.compile(r"at::vec::Vectorized<float>&")
_VECTORS = re.compile(r"at::vec::Vectorized<float>")
_COUNTED = re.compile(r"\b(VecMask|cast|VectorizedN|vec_reduce_all|convert)<float,\s*(\d+)>")
_ADDED = re.compile(r"\batomic_add_vec<float,\s*(\d+),\s*(\d+)>")
_FLOAT = re.compile(r"\bfloat\b")


def widen_source(source: str) -> str:
    """Returns the text of a C++ kernel with float64 instead of float32: two vectors instead of one.

    Empty for a kernel with narrower types. It is possible that the text does not compile.
    """
    if _NARROW.search(source):
        return ""
    text = _REFERENCES.sub("at::vec::Vectorized<double>&", source)  # of the parts, in reductions of a vector
    text = _VECTORS.sub("at::vec::VectorizedN<double,2>", text)
    text = _COUNTED.sub(lambda found: f"{found[1]}<double,{2 * int(found[2])}>", text)
    text = _ADDED.sub(lambda found: f"atomic_add_vec<double,{found[1]},{2 * int(found[2])}>", text)
    return _FLOAT.sub("double", text)


def widen_launch(launch: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns an encoded launch with float64 instead of float32."""
    return {
        **launch,
        "storages": [_widened(storage, "size_bytes") for storage in launch["storages"]],
        "arguments": [*map(_widen_argument, launch["arguments"])],
        "keywords": {name: _widen_argument(item) for name, item in (launch.get("keywords") or {}).items()},
    }


def _widen_argument(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**item, "tensor": _widened(item["tensor"], "itemsize")} if item.get("tensor") else item


def _widened(part: Mapping[str, Any], size: str) -> Mapping[str, Any]:
    return {**part, "dtype": "float64", size: 2 * part[size]} if part["dtype"] == "float32" else part
