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
_NO_X_DIM = "'no_x_dim': True"
"""What the text of a reduction or a scan holds whose heuristics set the size hint of ``x`` to 1. (2.11, 2.13)"""


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
    key = lookup_key(_size_hints(head), function)
    return KernelKey(key, types_text(_signature(decorator)), node.name)


def _size_hints(head: str) -> str:
    """``str(size_hints)`` as the heuristics of a kernel leave it, from the text of its decorator."""
    found = _SIZE_HINTS.search(head)
    if found is None:
        return "None"
    return str(ast.literal_eval(found.group(1)) | {"x": 1}) if _NO_X_DIM in head else found.group(1)


def _heuristic(function: ast.FunctionDef) -> ast.Call | None:
    """The decorator of Inductor's launcher."""
    calls = [decorator for decorator in function.decorator_list if isinstance(decorator, ast.Call)]
    return next((call for call in calls if dotted(call.func)[:1] == ("triton_heuristics",)), None)


def _signature(decorator: ast.Call) -> dict[str, str]:
    meta = next((keyword.value for keyword in decorator.keywords if keyword.arg == "triton_meta"), None)
    if not isinstance(meta, ast.Dict):
        return {}
    for key, value in zip(meta.keys, meta.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == "signature":
            try:
                return {str(name): str(kind) for name, kind in ast.literal_eval(value).items()}
            except (ValueError, AttributeError) as error:
                raise InductorBenchError(f"the signature of {decorator.lineno} is not a table of types") from error
    return {}
