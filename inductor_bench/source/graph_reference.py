"""Makes plain PyTorch of the graph that Inductor writes as comments above a Triton kernel."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_NODE = re.compile(r'^#\s+%(\w+) : (?:Tensor "[^"]*"\s*)?(?:\[num_users=\d+\])?\s*= (PlaceHolder|call_function)\[(.*)$')
_TARGET = re.compile(r"target=([\w.]+)\](?:\(args = \((.*)\), kwargs = \{(.*)\}\))?$")
_SHAPE = re.compile(r'"\w+\[([\d, ]*)\]')
_RETURN = re.compile(r"^#\s+return (%.*)$")
_FRAGMENT = "# Graph fragment:"
_VALUE = re.compile(r"%(\w+)")
_LEFT_OUT = ("device", "layout", "pin_memory", "memory_format")
_FLOATS = re.compile(r"torch\.(?:float32|float16|bfloat16)\b")


@dataclass(frozen=True)
class _Node:
    name: str
    kind: str
    target: str
    arguments: str
    keywords: str
    shape: tuple[int, ...] | None


def fragment_above(lines: Sequence[str], line: int) -> tuple[str, ...]:
    """The lines of the graph fragment in the comment above a definition.

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


def reference_text(fragment: Sequence[str], parameters: Sequence[str], passed: Mapping[str, str]) -> str:
    """The text of a function ``reference`` that computes the same as a kernel; empty if it cannot be made.

    Args:
        fragment: the lines of :func:`fragment_above`.
        parameters: the kernel's parameters, in order.
        passed: the parameter by the name of the variable that the module passes for it.
    """
    nodes = [node for node in map(_read_node, fragment) if node is not None]
    returned = next((found.group(1) for found in map(_RETURN.match, fragment) if found), "")
    results = [name.strip().lstrip("%") for name in returned.split(",") if name.strip()]
    computed = {node.name for node in nodes if node.kind == "call_function"}
    body, known = [], set[str]()
    for node in nodes:
        if node.kind == "PlaceHolder":
            if node.name in computed:  # the kernel makes it
                continue
            if node.target not in passed:
                return ""
            shape = "" if node.shape is None else f".reshape({_tuple(node.shape)})"
            body.append(f"{_safe(node.name)} = {passed[node.target]}{shape}")
        else:
            body.append(f"{_safe(node.name)} = {node.target}({_arguments(node)})")
        known.add(node.name)
    if not results or not set(results) <= known:
        return ""
    lines = [
        f"def reference({', '.join(parameters)}):",
        '    """The same in plain PyTorch, from the graph that Inductor compiled: its results in order."""',
        "    import torch",
        "",
        *(f"    {line}" for line in body),
        f"    return [{', '.join(map(_safe, results))}]",
    ]
    text = "\n".join(lines) + "\n"
    return text if _is_complete(text, set(parameters) | set(map(_safe, known))) else ""


def in_float64(reference: str) -> str:
    """A reference with float64 in place of narrower types."""
    return _FLOATS.sub("torch.float64", reference)


def _read_node(line: str) -> _Node | None:
    found = _NODE.match(line)
    target = _TARGET.match(found.group(3)) if found else None
    if found is None or target is None:
        return None
    shape = _SHAPE.search(line.partition(" = ")[0])
    sizes = tuple(int(size) for size in shape.group(1).split(",") if size.strip()) if shape else None
    return _Node(found.group(1), found.group(2), target.group(1), target.group(2) or "", target.group(3) or "", sizes)


def _arguments(node: _Node) -> str:
    keywords = [pair.partition(": ") for pair in _split(node.keywords)]
    named = [f"{name.strip()}={value}" for name, _, value in keywords if name.strip() not in _LEFT_OUT]
    return _VALUE.sub(lambda found: _safe(found.group(1)), ", ".join([node.arguments.rstrip(", "), *named]).strip(", "))


def _split(text: str) -> list[str]:
    """The parts between the commas that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [part for part in (*parts, text[start:]) if part.strip()]


def _tuple(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _safe(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) or name in ("torch", "reference") else name


def _is_complete(text: str, known: set[str]) -> bool:
    """Whether the text is Python that uses nothing but torch and what it has computed."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return used <= known | {"torch", "inf", "nan", "True", "False", "None"}
