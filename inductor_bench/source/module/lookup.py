"""Keys of Triton kernels in ``torch._inductor.config.autotune_lookup_table``.

The key is a hash of the size hints and of the function's text without its name. Inductor computes it in
``generate_lookup_hash_from_source_code`` of ``runtime/triton_heuristics.py`` (2.9 to 2.15).
"""

from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import dataclass

from ...errors import InductorBenchError
from .calls import dotted
from .syntax import find_statement

FUSED = "_fused_"
"""Inductor looks up only kernels whose text holds this."""

_HEURISTIC = re.compile(r"^@triton_heuristics\.", re.MULTILINE)
_NAME = re.compile(r"^def [^(]+\(")
_SIZE_HINTS = re.compile(r"size_hints=(\{.*?\})")
_NO_X_DIM = "no_x_dim"
"""Key in ``inductor_meta`` of reductions and scans: where it is set, heuristics set the size hint of ``x`` to 1."""


@dataclass(frozen=True)
class KernelKey:
    """What tells a Triton kernel from others in a process.

    Attributes:
        key: Inductor's key; kernels that differ only in the types of their arguments share it.
        types: the types of the parameters, see :func:`types_text`.
        name: the name of the function.
    """

    key: str
    types: str
    name: str

    @property
    def is_looked_up(self) -> bool:
        """Whether Inductor looks for this kernel in its table."""
        return FUSED in self.name


def lookup_key(size_hints: str, function: str) -> str:
    """The key of a kernel, from ``str(size_hints)`` and the function's text from ``def`` on."""
    return hashlib.sha256((size_hints + _NAME.sub("(", function.strip(), count=1)).encode()).hexdigest()


def types_text(signature: dict[str, str]) -> str:
    """The types of a kernel's parameters in one text, from ``triton_meta["signature"]``."""
    return ",".join(f"{name}:{kind}" for name, kind in sorted(signature.items()))


def find_kernel_key(text: str) -> KernelKey | None:
    """The key of the one kernel that a text defines, as in a standalone file; ``None`` where it defines none.

    Raises:
        InductorBenchError: the text does not parse.
    """
    node = find_statement(text, _HEURISTIC)
    decorator = _heuristic(node) if isinstance(node, ast.FunctionDef) else None
    if not isinstance(node, ast.FunctionDef) or decorator is None:
        return None
    lines = text.split("\n")
    head = "\n".join(lines[decorator.lineno - 1 : node.lineno - 1])
    function = "\n".join(lines[node.lineno - 1 : node.end_lineno])
    key = lookup_key(_size_hints(head, decorator), function)
    return KernelKey(key, types_text(_signature(decorator)), node.name)


def _size_hints(head: str, decorator: ast.Call) -> str:
    """``str(size_hints)`` as the heuristics of a kernel leave it, from its decorator and the text of that."""
    found = _SIZE_HINTS.search(head)
    if found is None:
        return "None"
    if not _is_set(_item(decorator, "inductor_meta", _NO_X_DIM)):
        return found.group(1)
    try:
        return str(ast.literal_eval(found.group(1)) | {"x": 1})
    except ValueError as error:
        raise InductorBenchError(f"the size hints of {decorator.lineno} are not a table of numbers") from error


def _is_set(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _heuristic(function: ast.FunctionDef) -> ast.Call | None:
    """The decorator of Inductor's launcher."""
    calls = [decorator for decorator in function.decorator_list if isinstance(decorator, ast.Call)]
    return next((call for call in calls if dotted(call.func)[:1] == ("triton_heuristics",)), None)


def _signature(decorator: ast.Call) -> dict[str, str]:
    value = _item(decorator, "triton_meta", "signature")
    if value is None:
        return {}
    try:
        return {str(name): str(kind) for name, kind in ast.literal_eval(value).items()}
    except (ValueError, AttributeError) as error:
        raise InductorBenchError(f"the signature of {decorator.lineno} is not a table of types") from error


def _item(decorator: ast.Call, table: str, name: str) -> ast.expr | None:
    """The value of a key in a table among the decorator's arguments; ``None`` where it has none."""
    meta = next((keyword.value for keyword in decorator.keywords if keyword.arg == table), None)
    if isinstance(meta, ast.Dict):
        for key, value in zip(meta.keys, meta.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == name:
                return value
    return None
