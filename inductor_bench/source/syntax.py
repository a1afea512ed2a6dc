"""Parses untrusted Python text, reads Inductor's comments, and makes ids that are equal in other runs."""

from __future__ import annotations

import ast
import hashlib
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import InductorBenchError
from ..records.code import Launch

# Parses untrusted Python text, and checks the syntax tree.


_DEEPEST = 150
"""Maximum number of levels of a tree. Inductor's trees have about twenty; a level takes several frames of the stack."""

_STATEMENT = re.compile(r"^(?=[^\s)\]}#])", re.MULTILINE)
"""The begin of a line that may begin a top-level statement."""

_MOST_ENDS = 64
"""Number of ends that are tried for a statement before the whole text is parsed."""

_DIGITS = re.compile(r"\d{300}")
_LARGEST = 2**63
_UNPARSED = (SyntaxError, ValueError, RecursionError, MemoryError)
_LEAVES = (ast.Name, ast.expr_context, ast.operator)


def parse(text: str) -> ast.Module:
    """The syntax tree of a Python text. Its numbers fit into 64 bits, its texts are Unicode, and its depth is limited.

    Raises:
        InductorBenchError: the text is not Python, or exceeds a limit; the message says which.
    """
    _check_digits(text)
    try:
        tree = ast.parse(text)
    except _UNPARSED as error:
        what = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else error
        raise InductorBenchError(f"it is not Python ({what})") from None
    _check_limits(tree)
    return tree


def find_statement(text: str, first_line: re.Pattern[str]) -> ast.stmt | None:
    """The first top-level statement that begins where a pattern matches; ``None`` if the pattern does not match.

    It parses from there to the statement's end: a standalone file as a whole takes some thirty times as long. The line
    numbers are those of the text.

    Raises:
        InductorBenchError: as :func:`parse`.
    """
    found = first_line.search(text)
    if found is None:
        return None
    begin, lines_before = found.start(), text.count("\n", 0, found.start())
    for number, end in enumerate(_ends_after(text, begin)):
        if number == _MOST_ENDS:
            break
        statement = text[begin:end]
        try:
            tree = ast.parse("\n" * lines_before + statement)
        except _UNPARSED:
            continue
        _check_digits(statement)
        _check_limits(tree)
        return tree.body[0] if tree.body else None
    return next((node for node in parse(text).body if _first_line(node) == lines_before + 1), None)


def _ends_after(text: str, begin: int) -> Iterator[int]:
    """The places at which the statement that begins at ``begin`` may end."""
    yield from (found.start() for found in _STATEMENT.finditer(text, begin + 1))
    yield len(text)


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _check_digits(text: str) -> None:
    if _DIGITS.search(text):
        raise InductorBenchError("it holds a number of hundreds of digits")


def _check_limits(tree: ast.Module) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node) if not isinstance(child, _LEAVES)]
        for node in level:
            if isinstance(node, ast.Constant) and not _is_usable(node.value):
                raise InductorBenchError(f"line {node.lineno} holds {_words(node.value)}")
        if not level:
            return
    raise InductorBenchError(f"it is nested more than {_DEEPEST} deep")


def _is_usable(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or value <= _LARGEST


def _words(value: object) -> str:
    return "half of a surrogate pair" if isinstance(value, str) else "a number beyond what 64 bits hold"


# Reads Inductor's comments above kernel definitions and calls: origins, provenance handles, kernel paths, padding.


_ORIGINS = re.compile(r"Source Nodes: \[(.*?)\], Original ATen: \[(.*)\]\s*$")
_HANDLE = re.compile(r"\[Provenance debug handles\] (\S+:\d+)\s*$")
_KERNEL_PATH = re.compile(r"kernel path: (?:.*\W)?(\w+)\.py\s*$")
_NODE = re.compile(r'^#\s+%(\w+) : (?:Tensor "\w+\[([^\]]*)\])?.*?= (PlaceHolder|call_function)\[target=([\w.]+)\]')
_PADS = re.compile(r"constant_pad_nd\.default\]\(args = \(%\w+, \[([\d, ]+)\]")
_PADDED_BY_INDUCTOR = re.compile(r"constant_pad_nd_default(_\d+)?")
"""The name of a node with which Inductor pads a matrix (``pad_mm``); the program's own padding has another name."""

_VIEWS = ("permute", "view", "reshape", "_unsafe_view", "expand", "squeeze", "unsqueeze", "t", "transpose")


@dataclass(frozen=True)
class Comment:
    """The statements of a block of comment lines; the last one of each kind counts.

    ``padded_sides`` are as in :class:`~inductor_bench.records.code.KernelDefinition`.
    """

    source_nodes: tuple[str, ...] = ()
    aten_ops: tuple[str, ...] = ()
    handle: str | None = None
    kernel_hash: str | None = None
    padded_sides: tuple[tuple[int, int], ...] = ()


def read_comment(lines: Iterable[str]) -> Comment:
    """Reads comment lines (``#`` or ``//``), and skips lines of code among them."""
    nodes: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    handle = kernel_hash = None
    fragment = []
    for line in lines:
        stripped = line.lstrip()
        if not stripped.startswith(("#", "//")):
            continue
        if origins := _ORIGINS.search(stripped):
            nodes, ops = _names(origins.group(1)), _names(origins.group(2))
        elif found := _HANDLE.search(stripped):
            handle = found.group(1)
        elif found := _KERNEL_PATH.search(stripped):
            kernel_hash = found.group(1)
        elif node := _NODE.match(stripped):
            fragment.append(node)
    return Comment(nodes, ops, handle, kernel_hash, _padded_sides(fragment))


def handle_matches(handle: str | None, target: str) -> bool:
    """Whether a provenance handle (``name:index``) names ``target``."""
    return handle is not None and handle.rpartition(":")[0] == target


def _padded_sides(fragment: Sequence[re.Match[str]]) -> tuple[tuple[int, int], ...]:
    """The sides before and after padding, of a kernel whose graph fragment holds nothing but Inductor's padding."""
    given = {node.group(1) for node in fragment if node.group(3) == "PlaceHolder"}
    sides: dict[tuple[int, int], None] = {}
    for node in fragment:
        name, shape, _, target = node.groups()
        if name in given or _operator(target) in _VIEWS:
            continue
        pads = _PADS.search(node.string)
        sizes = (shape or "").split(", ")
        if pads is None or not _PADDED_BY_INDUCTOR.fullmatch(name) or not all(size.isdecimal() for size in sizes):
            return ()
        after = [int(number) for number in pads.group(1).split(", ")][1::2]
        for size, added in zip(map(int, reversed(sizes)), after, strict=False):
            if added:
                sides[(size - added, size)] = None
    return tuple(sides)


def _operator(target: str) -> str:
    """The operator of a node's target: ``permute`` of ``torch.ops.aten.permute.default``."""
    return target.split(".")[-2] if "." in target else target


def _names(text: str) -> tuple[str, ...]:
    # A node without a name leaves an empty entry.
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


# Ids of kernels and modules: 16 hexadecimal digits of a hash of the content, equal in other runs and numberings.
#
# A kernel's id depends on the properties that decide its speed: its kind, size hints, argument types, constants and
# body. It does not depend on names, paths, the device, and settings that differ between versions of torch.


_SIZE = re.compile(r"(?<![\w.])\d+(?:\.0)?L?L?(?![\w.])")
_HEURISTIC_FIELDS = ("config", "configs", "size_hints", "reduction_hint", "tile_hint", "num_stages", "num_warps")
_META_FIELDS = ("signature", "constants")
# Settings that change the code, with their defaults, which some versions of torch leave out.
_DEFAULTS = {"enable_fp_fusion": "True", "disable_ftz": "False", "launch_pdl": "False", "native_matmul": "False"}
_HARNESS = re.compile(r"^(?:def get_args\(|def call\(|if __name__ ==)", re.MULTILINE)
_DEFINITION = re.compile(r"^@triton_heuristics\.", re.MULTILINE)
_FUNCTION = re.compile(r"^@triton\.jit\s+def (\w+)\(", re.MULTILINE)
_RECORD = re.compile(r"^.*(?:RAIIAtenRecordFunctionHandle|\bRECORD_FUNCTION\().*$", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*#include.*$", re.MULTILINE)
_CPP_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_CPP_NAME = re.compile(r'(extern "C"\s[\w\s]*?\bvoid\s+)\w+\(')
_DEVICE_NUMBER = re.compile(
    r"(device='\w+:|type='\w+', index=|\b(?:_DeviceGuard|set_device|get_raw_stream)\()\d+|\b(stream)\d+\b"
)
_LENGTH = 16


def triton_kernel_id(source: str) -> str:
    """The id of a Triton kernel, from its source in the compiled module or in its own file.

    Source that Inductor did not write has an id of its text.
    """
    start = _DEFINITION.search(source)
    function = _FUNCTION.search(source, start.end()) if start else None
    decorator = _parse_decorator(source[start.start() + 1 : function.start()]) if start and function else None
    if start is None or function is None or decorator is None:
        return _digest(("text", _plain_lines(source)))
    return _digest(("triton", *_facts(decorator), _jit_text(source, start.start(), function)))


def module_id(text: str) -> str:
    """The id of a compiled module, from its text without comments and without the number of its device."""
    return _digest(("module", _plain_lines(_DEVICE_NUMBER.sub(r"\1\2", text))))


def cpp_kernel_id(source: str) -> str:
    """The id of a C++ kernel: of its source without includes, profiler marks, comments and the kernel's name."""
    return _digest(("cpp", _cpp_text(source)))


def without_profiler_marks(source: str) -> str:
    """The C++ text without the lines that record each call for a profiler."""
    return _RECORD.sub("", source)


def family_id(language: str, source: str, name: str) -> str:
    """The id that kernels of one structure with different sizes share.

    It is a hash of the code with every whole number replaced (also the count of a mean), without size hints and
    alignment.
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
    """The text with every whole number replaced by ``N``; numbers within names stay."""
    return _SIZE.sub("N", text)


def operator_id(operator: str, arguments_text: str) -> str:
    """The id of a library call: of the operator and its arguments as text (shapes, strides and types)."""
    return _digest(("operator", operator, " ".join(arguments_text.split())))


def launch_key(launch: Launch) -> Hashable:
    """A key that is equal for the same launch in two runs of a module: all fields but the values and the counts."""
    layout = tuple((storage.size_bytes, storage.dtype, storage.device) for storage in launch.storages)
    return launch.kernel, launch.operator, launch.arguments, tuple(launch.keywords.items()), layout


def text_kernel_id(language: str, source: str, name: str) -> str:
    """The id of a kernel in any other language: of its text without the kernel's name."""
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
    """The grid of a launch by configuration, without the copies in other languages."""
    return [ast.unparse(value) for key, value in _entries(grid) if key in ("config", "python")]


def _divisible(configs: ast.expr) -> list[str]:
    # The alignment of arguments decides the width of loads. Other attributes differ between versions.
    if not isinstance(configs, ast.List) or not configs.elts or not isinstance(configs.elts[0], ast.Dict):
        return []
    pairs = zip(configs.elts[0].keys, configs.elts[0].values, strict=True)
    return sorted(ast.unparse(key) for key, value in pairs if key and "tt.divisibility" in ast.unparse(value))


def _jit_text(source: str, decorator: int, function: re.Match[str]) -> str:
    """The text of the helpers and the kernel without imports, decorator and harness, and with a neutral name."""
    helpers = source.find("@triton.jit", 0, decorator)
    harness = _HARNESS.search(source, function.end())
    text = source[helpers:decorator] if helpers >= 0 else ""
    text += source[function.start() : harness.start() if harness else None]
    return _plain_lines(re.sub(rf"\b{re.escape(function.group(1))}\b", "kernel", text))


def _plain_lines(text: str) -> str:
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))


def _digest(parts: tuple[str, ...]) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]
