"""Ids by content: the same kernel has the same id in another model, run or numbering. 16 hexadecimal digits.

What counts is what decides how fast a kernel is: its kind, size hints, argument types and constants, and its body.
Names, paths, the device, and settings that differ from one version of torch to the next do not.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Hashable

from ...errors import InductorBenchError
from ...records.code.launch import Launch
from .syntax import parse

_SIZE = re.compile(r"(?<![\w.])\d+(?:\.0)?L?L?(?![\w.])")
_HEURISTIC_FIELDS = ("config", "configs", "size_hints", "reduction_hint", "tile_hint", "num_stages", "num_warps")
_META_FIELDS = ("signature", "constants")
# They change the code; versions of torch differ in whether they write down what is the default.
_DEFAULTS = {"enable_fp_fusion": "True", "disable_ftz": "False", "launch_pdl": "False", "native_matmul": "False"}
_HARNESS = re.compile(r"^(?:def get_args\(|def call\(|if __name__ ==)", re.MULTILINE)
_DEFINITION = re.compile(r"^@triton_heuristics\.", re.MULTILINE)
_FUNCTION = re.compile(r"^@triton\.jit\s+def (\w+)\(", re.MULTILINE)
_RECORD = re.compile(r"^.*(?:RAIIAtenRecordFunctionHandle|\bRECORD_FUNCTION\().*$", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*#include.*$", re.MULTILINE)
_CPP_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_CPP_NAME = re.compile(r'(extern "C"\s[\w\s]*?\bvoid\s+)\w+\(')
_LENGTH = 16


def triton_kernel_id(source: str) -> str:
    """The id of a Triton kernel, from the source that stands in its compiled module or in its own file.

    Source that is not as Inductor writes it still gets an id, from its text.
    """
    start = _DEFINITION.search(source)
    function = _FUNCTION.search(source, start.end()) if start else None
    decorator = _parse_decorator(source[start.start() + 1 : function.start()]) if start and function else None
    if start is None or function is None or decorator is None:
        return _digest(("text", _plain_lines(source)))
    return _digest(("triton", *_facts(decorator), _jit_text(source, start.start(), function)))


def cpp_kernel_id(source: str) -> str:
    """The id of a C++ kernel, from its source without includes, profiler marks, comments and its name."""
    return _digest(("cpp", _cpp_text(source)))


def family_id(language: str, source: str, name: str) -> str:
    """The id that kernels of the same structure have in common, whatever their sizes.

    It is of the code with every whole number alike (the count of a mean is one), without size hints and alignment.
    """
    if language == "triton":
        start = _DEFINITION.search(source)
        function = _FUNCTION.search(source, start.end()) if start else None
        decorator = _parse_decorator(source[start.start() + 1 : function.start()]) if start and function else None
        if start is not None and function is not None and decorator is not None:
            types = [fact for fact in _facts(decorator)[1:] if fact.startswith("signature=")]
            text = _jit_text(source, start.start(), function)
            return _digest(("triton family", ast.unparse(decorator.func), *types, without_sizes(text)))
    if language.startswith("cpp"):
        return _digest(("cpp family", without_sizes(_cpp_text(source))))
    return _digest((f"{language} family", without_sizes(_plain_lines(_anonymous(source, name)))))


def without_sizes(text: str) -> str:
    """The text with every whole number alike; numbers within names stay."""
    return _SIZE.sub("N", text)


def operator_id(operator: str, arguments_text: str) -> str:
    """The id of a library call: the operator, and its arguments as text (shapes, strides, types; no values)."""
    return _digest(("operator", operator, " ".join(arguments_text.split())))


def launch_key(launch: Launch) -> Hashable:
    """What is the same for a call in two runs of a module: all but the values and how often it was made."""
    layout = tuple((storage.size_bytes, storage.dtype, storage.device) for storage in launch.storages)
    return launch.kernel, launch.operator, launch.arguments, tuple(launch.keywords.items()), layout


def text_kernel_id(language: str, source: str, name: str) -> str:
    """The id of a kernel in any other language, from its text without its name."""
    return _digest((language, _plain_lines(_anonymous(source, name))))


def _cpp_text(source: str) -> str:
    text = _CPP_COMMENT.sub(" ", _INCLUDE.sub("", _RECORD.sub("", source)))
    return " ".join(_CPP_NAME.sub(r"\1kernel(", text).split())


def _anonymous(source: str, name: str) -> str:
    return re.sub(rf"\b{re.escape(name)}\b", "kernel", source)


def _parse_decorator(text: str) -> ast.Call | None:
    try:
        statements = parse(text.strip()).body
    except InductorBenchError:
        return None
    expression = statements[0].value if len(statements) == 1 and isinstance(statements[0], ast.Expr) else None
    return expression if isinstance(expression, ast.Call) else None


def _facts(decorator: ast.Call) -> list[str]:
    values = {keyword.arg: keyword.value for keyword in decorator.keywords if keyword.arg}
    facts = [f"{name}={ast.unparse(values[name])}" for name in _HEURISTIC_FIELDS if name in values]
    for key, value in _entries(values.get("triton_meta")):
        if key in _META_FIELDS:
            facts.append(f"{key}={ast.unparse(value)}")
        elif key == "configs":
            facts.append(f"divisible={_divisible(value)}")
        elif key in _DEFAULTS and ast.unparse(value) != _DEFAULTS[key]:
            facts.append(f"{key}={ast.unparse(value)}")
    for key, value in _entries(values.get("inductor_meta")):
        if key == "combo_grid_meta":
            facts.append(f"{key}={ast.unparse(value)}")
        elif key == "precomputed_grids" and isinstance(value, ast.List):
            facts.append(f"grids={[_grid(item) for item in value.elts]}")
    return [ast.unparse(decorator.func), *sorted(facts)]


def _entries(node: ast.expr | None) -> list[tuple[str, ast.expr]]:
    if not isinstance(node, ast.Dict):
        return []
    pairs = zip(node.keys, node.values, strict=True)
    return [(str(key.value), value) for key, value in pairs if isinstance(key, ast.Constant)]


def _grid(grid: ast.expr) -> list[str]:
    """The blocks of a launch by configuration; the same in other spellings is left out."""
    return [ast.unparse(value) for key, value in _entries(grid) if key in ("config", "python")]


def _divisible(configs: ast.expr) -> list[str]:
    # Which arguments are aligned decides how wide the loads are. Other attributes differ between versions.
    if not isinstance(configs, ast.List) or not configs.elts or not isinstance(configs.elts[0], ast.Dict):
        return []
    pairs = zip(configs.elts[0].keys, configs.elts[0].values, strict=True)
    return sorted(ast.unparse(key) for key, value in pairs if key and "tt.divisibility" in ast.unparse(value))


def _jit_text(source: str, decorator: int, function: re.Match[str]) -> str:
    """Helpers and kernel without imports, decorator and harness, the kernel's name made neutral."""
    helpers = source.find("@triton.jit", 0, decorator)
    harness = _HARNESS.search(source, function.end())
    text = source[helpers:decorator] if helpers >= 0 else ""
    text += source[function.start() : harness.start() if harness else None]
    return _plain_lines(re.sub(rf"\b{re.escape(function.group(1))}\b", "kernel", text))


def _plain_lines(text: str) -> str:
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))


def _digest(parts: tuple[str, ...]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_LENGTH]
