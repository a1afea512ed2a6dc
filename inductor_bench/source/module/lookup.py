"""Keys of Triton kernels in ``torch._inductor.config.autotune_lookup_table``.

The key is a hash of the size hints and of the function's text without its name. Inductor computes it in
``generate_lookup_hash_from_source_code`` of ``runtime/triton_heuristics.py`` (2.9 to 2.15).
"""

from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import dataclass
from typing import Any

from ...errors import InductorBenchError
from .calls import dotted
from .syntax import find_statement

FUSED = "_fused_"
"""Inductor looks up only kernels whose text holds this."""

_HEURISTIC = re.compile(r"^@triton_heuristics\.", re.MULTILINE)
_NAME = re.compile(r"^def [^(]+\(")
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
    function = "\n".join(text.split("\n")[node.lineno - 1 : node.end_lineno])
    key = lookup_key(str(_size_hints(decorator)), function)
    return KernelKey(key, types_text(_signature(decorator)), node.name)


def _size_hints(decorator: ast.Call) -> dict[str, int] | None:
    """The size hints as the heuristics of a kernel leave them; ``None`` where it has none."""
    node = _argument(decorator, "size_hints")
    if not isinstance(node, ast.Dict):
        return None
    hints: dict[str, int] = _read_table(node, "size hints")
    return hints | {"x": 1} if _is_set(_item(decorator, "inductor_meta", _NO_X_DIM)) else hints


def _is_set(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _heuristic(function: ast.FunctionDef) -> ast.Call | None:
    """The decorator of Inductor's launcher."""
    calls = [decorator for decorator in function.decorator_list if isinstance(decorator, ast.Call)]
    return next((call for call in calls if dotted(call.func)[:1] == ("triton_heuristics",)), None)


def _signature(decorator: ast.Call) -> dict[str, str]:
    node = _item(decorator, "triton_meta", "signature")
    types = _read_table(node, "signature") if node is not None else {}
    return {str(name): str(kind) for name, kind in types.items()}


def _item(decorator: ast.Call, table: str, name: str) -> ast.expr | None:
    """The value of a key in a table among the decorator's arguments; ``None`` where it has none."""
    meta = _argument(decorator, table)
    if isinstance(meta, ast.Dict):
        for key, value in zip(meta.keys, meta.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == name:
                return value
    return None


def _argument(decorator: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in decorator.keywords if keyword.arg == name), None)


def _read_table(node: ast.expr, what: str) -> Any:
    """The table that a node spells.

    Raises:
        InductorBenchError: it spells none; the message says of ``what``.
    """
    try:
        return dict(ast.literal_eval(node))
    except (ValueError, TypeError) as error:
        raise InductorBenchError(f"the {what} of a kernel cannot be read as a table") from error
