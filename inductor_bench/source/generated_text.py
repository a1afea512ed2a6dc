"""Parses untrusted Python text, reads the comments and kernels that Inductor generates, and makes their ids."""

from __future__ import annotations

import ast
import hashlib
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..errors import InductorBenchError
from ..records.code import Launch

# Parses untrusted Python text, and checks the syntax tree.


_DEEPEST = 150
"""Maximum number of levels of a tree. Inductor's trees have about twenty; a level takes several frames of the stack."""

_STATEMENT = re.compile(r"^(?=[^\s)\]}#])", re.MULTILINE)
"""Matches the start of a line that may begin a top-level statement."""

_MOST_ENDS = 64
"""Maximum number of possible ends of a statement that are tried before the whole text is parsed."""

_DIGITS = re.compile(r"\d{300}")
_LARGEST = 2**63
_UNPARSED = (SyntaxError, ValueError, RecursionError, MemoryError)
_LEAVES = (ast.Name, ast.expr_context, ast.operator)


def parse(text: str) -> ast.Module:
    """Returns the syntax tree of a Python text; its depth is limited, its numbers have 64 bits, its texts are Unicode.

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
    """Returns the first top-level statement where a pattern matches; ``None`` if it matches nowhere.

    It parses only from there to the statement's end, because a whole standalone file takes some thirty times as long.
    The line numbers are those of the text.

    Raises:
        InductorBenchError: as :func:`parse`.
    """
    found = first_line.search(text)
    if found is None:
        return None
    begin, lines_before = found.start(), text.count("\n", 0, found.start())
    for number, end in enumerate(_find_ends(text, begin)):
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
    return next((node for node in parse(text).body if _find_first_line(node) == lines_before + 1), None)


def _find_ends(text: str, begin: int) -> Iterator[int]:
    """Yields the places at which the statement that begins at ``begin`` may end."""
    yield from (found.start() for found in _STATEMENT.finditer(text, begin + 1))
    yield len(text)


def _find_first_line(node: ast.stmt) -> int:
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
                raise InductorBenchError(f"line {node.lineno} holds {_format_value(node.value)}")
        if not level:
            return
    raise InductorBenchError(f"it is nested more than {_DEEPEST} deep")


def _is_usable(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or value <= _LARGEST


def _format_value(value: object) -> str:
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
    """The facts in a block of comment lines: the last one of each kind, and all handles.

    ``padded_sides`` are as in :class:`~inductor_bench.records.code.KernelDefinition`.
    """

    source_nodes: tuple[str, ...] = ()
    aten_ops: tuple[str, ...] = ()
    handles: tuple[str, ...] = ()
    kernel_hash: str | None = None
    padded_sides: tuple[tuple[int, int], ...] = ()

    def handle_of(self, name: str) -> str | None:
        """Returns the provenance handle (``name:index``) of a name."""
        return next((one for one in reversed(self.handles) if one.rpartition(":")[0] == name), None)


def read_comment(lines: Iterable[str]) -> Comment:
    """Reads comment lines (``#`` or ``//``), and skips lines of code among them."""
    nodes: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    handles, kernel_hash, fragment = [], None, []
    for line in lines:
        stripped = line.lstrip()
        if not stripped.startswith(("#", "//")):
            continue
        if origins := _ORIGINS.search(stripped):
            nodes, ops = _list_names(origins.group(1)), _list_names(origins.group(2))
        elif found := _HANDLE.search(stripped):
            handles.append(found.group(1))
        elif found := _KERNEL_PATH.search(stripped):
            kernel_hash = found.group(1)
        elif node := _NODE.match(stripped):
            fragment.append(node)
    return Comment(nodes, ops, tuple(handles), kernel_hash, _find_padded_sides(fragment))


def _find_padded_sides(fragment: Sequence[re.Match[str]]) -> tuple[tuple[int, int], ...]:
    """Returns the sides before and after padding, if a graph fragment holds only Inductor's padding."""
    given = {node.group(1) for node in fragment if node.group(3) == "PlaceHolder"}
    sides: dict[tuple[int, int], None] = {}
    for node in fragment:
        name, shape, _, target = node.groups()
        if name in given or _name_operator(target) in _VIEWS:
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


def _name_operator(target: str) -> str:
    """Returns the operator of a node's target: ``permute`` for ``torch.ops.aten.permute.default``."""
    return target.split(".")[-2] if "." in target else target


def _list_names(text: str) -> tuple[str, ...]:
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


def compute_triton_kernel_id(source: str) -> str:
    """Computes the id of a Triton kernel, from its source in the module or in a file; else that of its text."""
    parts = _split_source(source)
    if parts is None:
        return _digest(("text", _remove_comments_and_space(source)))
    return _digest(("triton", *parts[0], parts[1]))


def compute_module_id(text: str) -> str:
    """Computes the id of a compiled module, from its text without comments and without the number of its device."""
    return _digest(("module", _remove_comments_and_space(_DEVICE_NUMBER.sub(r"\1\2", text))))


def compute_cpp_kernel_id(source: str) -> str:
    """Computes the id of a C++ kernel: of its source without includes, marks, comments and its name."""
    return _digest(("cpp", _normalise_cpp(source)))


def remove_profiler_marks(source: str) -> str:
    """The C++ text without the lines that record each call for a profiler."""
    return _RECORD.sub("", source)


def compute_family_id(language: str, source: str, name: str) -> str:
    """Computes the id that kernels of one structure with different sizes share.

    It is a hash of the code without size hints and alignment, and with a placeholder for every whole number (also for
    the count of a mean).
    """
    if language == "triton" and (parts := _split_source(source)) is not None:
        types = [fact for fact in parts[0][1:] if fact.startswith("signature=")]
        return _digest(("triton family", parts[0][0], *types, remove_sizes(parts[1])))
    if language.startswith("cpp"):
        return _digest(("cpp family", remove_sizes(_normalise_cpp(source))))
    return _digest((f"{language} family", remove_sizes(_remove_comments_and_space(_remove_names(source, name)))))


def remove_sizes(text: str) -> str:
    """Returns the text with ``N`` for every whole number; numbers within names stay."""
    return _SIZE.sub("N", text)


def compute_operator_id(operator: str, arguments_text: str) -> str:
    """Computes the id of a library call: of the operator and its arguments as text (shapes, strides and types)."""
    return _digest(("operator", operator, " ".join(arguments_text.split())))


def launch_key(launch: Launch) -> Hashable:
    """Returns a key that is equal for the same launch in two runs of a module: all fields but the values and the
    counts."""
    layout = tuple((storage.size_bytes, storage.dtype, storage.device) for storage in launch.storages)
    return launch.kernel, launch.operator, launch.arguments, tuple(launch.keywords.items()), layout


def compute_text_kernel_id(language: str, source: str, name: str) -> str:
    """Computes the id of a kernel in any other language: of its text without the kernel's name."""
    return _digest((language, _remove_comments_and_space(_remove_names(source, name))))


def _normalise_cpp(source: str) -> str:
    text = _CPP_COMMENT.sub(" ", _INCLUDE.sub("", _RECORD.sub("", source)))
    return " ".join(_CPP_NAME.sub(r"\1kernel(", text).split())


def _remove_names(source: str, name: str) -> str:
    return re.sub(rf"\b{re.escape(name)}\b", "kernel", source)


@lru_cache(maxsize=1)  # a kernel has two ids, and parsing its decorator takes longer than all else
def _split_source(source: str) -> tuple[tuple[str, ...], str] | None:
    start = _DEFINITION.search(source)
    function = _FUNCTION.search(source, start.end()) if start else None
    if start is None or function is None:
        return None
    decorator = _parse_decorator(source[start.start() + 1 : function.start()])
    if decorator is None:
        return None
    return tuple(_read_decorator(decorator)), _normalise_jit_function(source, start.start(), function)


def _parse_decorator(text: str) -> ast.Call | None:
    try:
        statements = parse(text.strip()).body
    except InductorBenchError:
        return None
    expression = statements[0].value if len(statements) == 1 and isinstance(statements[0], ast.Expr) else None
    return expression if isinstance(expression, ast.Call) else None


def _read_decorator(decorator: ast.Call) -> list[str]:
    values = {keyword.arg: keyword.value for keyword in decorator.keywords if keyword.arg}
    facts = [f"{name}={ast.unparse(values[name])}" for name in _HEURISTIC_FIELDS if name in values]
    for key, value in list_entries(values.get("triton_meta")):
        if key in _META_FIELDS:
            facts.append(f"{key}={ast.unparse(value)}")
        elif key == "configs":
            facts.append(f"divisible={_list_divisible_arguments(value)}")
        elif key in _DEFAULTS and ast.unparse(value) != _DEFAULTS[key]:
            facts.append(f"{key}={ast.unparse(value)}")
    for key, value in list_entries(values.get("inductor_meta")):
        if key == "combo_grid_meta":
            facts.append(f"{key}={ast.unparse(value)}")
        elif key == "precomputed_grids" and isinstance(value, ast.List):
            facts.append(f"grids={[_read_grid(item) for item in value.elts]}")
    return [ast.unparse(decorator.func), *sorted(facts)]


def list_entries(node: ast.expr | None) -> list[tuple[str, ast.expr]]:
    if not isinstance(node, ast.Dict):
        return []
    pairs = zip(node.keys, node.values, strict=True)
    return [(str(key.value), value) for key, value in pairs if isinstance(key, ast.Constant)]


def _read_grid(grid: ast.expr) -> list[str]:
    """Returns the grid of a launch by configuration, without the copies in other languages."""
    return [ast.unparse(value) for key, value in list_entries(grid) if key in ("config", "python")]


def _list_divisible_arguments(configs: ast.expr) -> list[str]:
    # The alignment of arguments decides the width of loads. Other attributes differ between versions.
    if not isinstance(configs, ast.List) or not configs.elts or not isinstance(configs.elts[0], ast.Dict):
        return []
    pairs = zip(configs.elts[0].keys, configs.elts[0].values, strict=True)
    return sorted(ast.unparse(key) for key, value in pairs if key and "tt.divisibility" in ast.unparse(value))


def _normalise_jit_function(source: str, decorator: int, function: re.Match[str]) -> str:
    """Returns the text of helpers and kernel without imports, decorator and harness, and with a neutral name."""
    helpers = source.find("@triton.jit", 0, decorator)
    harness = _HARNESS.search(source, function.end())
    text = source[helpers:decorator] if helpers >= 0 else ""
    text += source[function.start() : harness.start() if harness else None]
    return _remove_comments_and_space(re.sub(rf"\b{re.escape(function.group(1))}\b", "kernel", text))


def _remove_comments_and_space(text: str) -> str:
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))


def _digest(parts: tuple[str, ...]) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]


# Reads the text of C++ kernels: fixed numbers of threads, vector widths, profiler marks and functions.


_THREADS = (
    re.compile(r"\bnum_threads\((\d+)\)"),
    re.compile(r"\bnum_threads?\s*=\s*(\d+)\s*;"),
    re.compile(r"\btid\s*<\s*(\d+)\b"),
)
_ARRAY = re.compile(r"\b(\w+_arr)\[(\d+)\]")
_BY_THREAD = re.compile(r"\b(\w+_arr)\[tid\]")
_MARK = re.compile(r"RAIIAtenRecordFunctionHandle\s+record_|\bRECORD_FUNCTION\(")
# The load of a whole vector has a plain literal; the load at the end of a row has an index expression (``8L``).
_LOAD = re.compile(
    r"Vectorized<(?:at::|c10::)?(float|BFloat16|bfloat16|Half|half)>::loadu\([^;]*?"
    r",\s*(?:static_cast<int64_t>\()?(\d+)\)?(?:,[^;]*?)?\);"
)
_STEP = re.compile(r"\+=\s*(?:static_cast<int64_t>\()?\(?(\d+)L?\)")
_ROOT = re.compile(r"\b(?:r?sqrt(?:_rn)?|log(?:2|10|1p)?|pow)f?\(")
_ROOT_OPERATOR = re.compile(r"batch_norm|\.(?:r?sqrt|log(?:2|10|1p)?|pow)_?\.")
_EXTERN_C = re.compile(r'extern "C"\s+[\w\s]*?\bvoid\s+(\w+)\(')


def read_threads(sources: Iterable[str]) -> int | None:
    """Returns the fixed number of OpenMP threads of the kernels; ``None`` if any number works.

    It is also the size of arrays with an element per thread. Arrays with an element per vector lane have similar names.
    """
    found = []
    for text in sources:
        found += [int(number) for pattern in _THREADS for number in pattern.findall(text)]
        by_thread = set(_BY_THREAD.findall(text))
        found += [int(number) for name, number in _ARRAY.findall(text) if name in by_thread]
    return max(found, default=None)


def read_vector_lanes(sources: Iterable[str]) -> int | None:
    """Returns the number of float32 values in one vector step; ``None`` if no kernel is vectorised."""
    vectorised = [text for text in sources if "at::vec::Vectorized<" in text]
    wide = {"full": set[int](), "half": set[int]()}
    for text in vectorised:
        # A vector of 16-bit values becomes one vector of float32, or two if the loop steps by 16-bit lanes.
        halves = 1 if "convert<float>(" in text and "convert<float,2," not in text else 2
        for kind, number in _LOAD.findall(text):
            wide["full" if kind == "float" else "half"].add(int(number) // (1 if kind == "float" else halves))
    steps = {int(number) for text in vectorised for number in _STEP.findall(text)} - {1}
    if wide["full"]:
        return max(wide["full"])
    if wide["half"]:
        return max(wide["half"])
    return max(steps, default=None)


def has_profile_mark(text: str) -> bool:
    """Whether the text of a C++ kernel holds a mark by which the profiler records its calls."""
    return _MARK.search(text) is not None


def wants_positive(operator: str, source: str) -> bool:
    """Whether a call takes roots, logarithms or powers, which give NaN for negative numbers.

    Args:
        operator: the overload of a library call, such as ``aten.pow.Tensor_Scalar``; empty for a generated kernel.
        source: the text of a generated kernel.
    """
    return _ROOT_OPERATOR.search(operator) is not None or _ROOT.search(source) is not None


def find_cpp_functions(text: str) -> Iterator[tuple[str, str, int]]:
    """Yields name, source and offset of each function with C linkage that ``text`` defines, without prototypes."""
    for match in _EXTERN_C.finditer(text):
        brace, semicolon = text.find("{", match.end()), text.find(";", match.end())
        if brace < 0 or 0 <= semicolon < brace:
            continue
        end = _find_closing_brace(text, brace)
        yield match.group(1), text[match.start() : end], match.start()


def _find_closing_brace(text: str, start: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    return len(text)


# Finds the buffers that a generated kernel writes, from its signature and its text.


CPP_SIGNATURE = re.compile(r'extern\s+"C"[^(;"]*\bkernel\s*\(([^)"]*)\)')
_GENERATED = re.compile(r"(?:(?:in|out|in_out)_ptr\d+|(?:ws|sem)_ptr\d*)")
_LIBRARIES = {"tl", "triton_helpers", "libdevice", "tl_math", "math", "triton", "range", "min", "max", "print"}


@dataclass(frozen=True)
class Buffer:
    """A pointer in a kernel's signature."""

    name: str  # the parameter
    written: bool  # whether the kernel may write the buffer
    output_only: bool = False  # whether the kernel never reads what the buffer held before
    cleared: bool = False  # whether the buffer (a workspace or semaphores) holds zeros before each launch


def list_cpp_buffers(source: str) -> tuple[Buffer, ...] | None:
    """Returns the pointers of a C++ kernel in order; ``None`` if its entry function is not found."""
    match = CPP_SIGNATURE.search(source)
    if match is None:
        return None
    adds = "atomic_add" in source
    buffers = []
    for parameter in match.group(1).split(","):
        if "*" in parameter:
            name = re.split(r"[\s*&]+", parameter.strip())[-1]
            written = "const" not in parameter.split("*")[0].split()
            buffers.append(Buffer(name, written, written and name.startswith("out_ptr") and not adds))
    return tuple(buffers)


def get_triton_buffers(signature: Mapping[str, str], mutated: frozenset[str], source: str | None) -> tuple[Buffer, ...]:
    """Returns the pointers of a Triton kernel in order.

    Args:
        signature: Triton's type by parameter, for example ``*fp32``.
        mutated: the parameters that Inductor marks as updated in place.
        source: the text of the kernel and its helper functions. It is needed only for templates and user-defined
            kernels, whose parameters may have any name; without it all of their buffers count as written.
    """
    names = [name for name, kind in signature.items() if kind.startswith("*")]
    generated = {name for name in names if _GENERATED.fullmatch(name)}
    stored: frozenset[str] = frozenset()
    if len(generated) < len(names):
        found = find_stored_parameters(source, frozenset(signature)) if source else None
        stored = frozenset(names) if found is None else found
    return tuple(
        Buffer(
            name,
            written=not name.startswith("in_ptr") if name in generated else name in mutated or name in stored,
            output_only=name in generated and name.startswith("out_ptr") and name not in mutated,
            cleared=name in generated and name.startswith(("ws_ptr", "sem_ptr")),
        )
        for name in names
    )


def find_stored_parameters(source: str, parameters: frozenset[str]) -> frozenset[str] | None:
    """Returns the pointer parameters through which the kernel in a Triton source may store.

    The kernel is the function with all of ``parameters``. If a pointer is passed to a function outside the text, this
    counts as a store. ``None`` if the source cannot be read or holds no such function.
    """
    try:
        tree = parse(source)
    except InductorBenchError:
        return None
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for function in functions.values():
        if parameters <= set(_list_parameters(function)):
            return _Stores(functions).of(function)
    return None


def _list_parameters(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


class _Stores:
    """Follows pointers through assignments and helper functions to stores."""

    def __init__(self, functions: Mapping[str, ast.FunctionDef]) -> None:
        self._functions = functions
        self._known: dict[str, frozenset[str]] = {}

    def of(self, function: ast.FunctionDef) -> frozenset[str]:
        if function.name in self._known:
            return self._known[function.name]
        self._known[function.name] = frozenset()  # ends the recursion of a function that calls itself
        origins: dict[str, frozenset[str]] = {name: frozenset({name}) for name in _list_parameters(function)}
        assignments = [
            node for node in ast.walk(function) if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        ]
        size = -1
        while size != sum(map(len, origins.values())):  # repeated, because a loop may carry a pointer to earlier lines
            size = sum(map(len, origins.values()))
            for node in assignments:
                found = _find_origins(node.value, origins) if node.value is not None else frozenset()
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for name in (part.id for part in ast.walk(target) if isinstance(part, ast.Name)):
                        origins[name] = origins.get(name, frozenset()) | found
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        stored = frozenset().union(*(self._stored_by(call, origins) for call in calls))
        self._known[function.name] = frozenset(stored & set(_list_parameters(function)))
        return self._known[function.name]

    def _stored_by(self, call: ast.Call, origins: Mapping[str, frozenset[str]]) -> frozenset[str]:
        function = call.func
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        if isinstance(function, ast.Attribute):
            owner = _find_root(function)
            is_method = owner is None or owner in origins
            if "store" in function.attr or function.attr.startswith("atomic_"):
                stored = [function.value] if is_method else arguments[:1]
                return _walk_with_origins(stored if arguments else [], origins)
            return frozenset() if is_method or owner in _LIBRARIES else _walk_with_origins(arguments, origins)
        if not isinstance(function, ast.Name) or function.id in _LIBRARIES:
            return frozenset()
        helper = self._functions.get(function.id)
        if helper is None:
            return _walk_with_origins(arguments, origins)
        names = _list_parameters(helper)
        given = {**dict(zip(names, call.args, strict=False)), **{k.arg: k.value for k in call.keywords if k.arg}}
        return _walk_with_origins([given[name] for name in self.of(helper) if name in given], origins)


def _find_root(node: ast.expr) -> str | None:
    """Returns the first name of a dotted expression."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _walk_with_origins(nodes: list[ast.expr], origins: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*(_find_origins(node, origins) for node in nodes))


def _find_origins(node: ast.AST, origins: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Returns the parameters from which an expression is computed, except those that only decide what a load reads."""
    if isinstance(node, ast.Name):
        return origins.get(node.id, frozenset())
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and "load" in node.func.attr:
        return frozenset()
    return frozenset().union(*(_find_origins(child, origins) for child in ast.iter_child_nodes(node)))
