"""Reads a compiled module as text and syntax tree, without importing or running it."""

from __future__ import annotations

import ast
import builtins
import functools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..devices.protocol import CPU
from ..devices.table import find_device
from ..errors import InductorBenchError
from ..records.code import CallSite, KernelDefinition, ModuleInput, ModuleSource
from .calls import (
    Definition,
    describe_kernel,
    find_entry,
    is_kernel_file,
    read_calls,
    read_definitions,
    read_multi_kernels,
    write_dotted_name,
)
from .generated_text import Comment, find_cpp_functions, parse, read_comment, read_threads, read_vector_lanes

# Reads compiled modules with a C++ wrapper, whose kernels and calls are in strings of the Python file.


_AUTOTUNING = "Compile-time auto-tuning block"
_LAZY = re.compile(r'\b(\w+)_source = R"TRITON\(\n(.*?)\n\)TRITON"', re.DOTALL)
_ENTRY = re.compile(r"^void inductor_entry_impl\(", re.MULTILINE)
_ENTRY_END = re.compile(r"^\}", re.MULTILINE)
_CALL = re.compile(r"^(?:[\w:<>*&\s]+= )?(?:AOTI_TORCH_ERROR_CODE_CHECK\()?(\w+)\(")
_SHIM = re.compile(r"aoti_torch_(?:cpu|cuda|xpu|mps)_(mkldnn__|mkl__)?(\w+?)(?:_out)?$")
_DISPATCHED = re.compile(r'aoti_torch_call_dispatcher\("(\w+)::(\w+)"')
_COPIES = {"aoti_torch_copy_": "aten.copy_", "aoti_torch_zero_": "aten.zero_"}
_ITEM = re.compile(r"aoti_torch_item_\w+$")
_PROXY = "aoti_torch_proxy_executor_call_function"


@dataclass(frozen=True)
class _Text:
    """A string constant of the module, and the line on which it begins."""

    text: str
    line: int


def read_wrapped_definitions(tree: ast.Module) -> tuple[Definition, ...]:
    """The kernels that a module with a C++ wrapper defines: C++ functions, and Triton kernels as text."""
    found: dict[str, Definition] = {}
    for one in _list_strings(tree):
        if one.text.lstrip().startswith(_AUTOTUNING):
            found |= {kernel.name: kernel for kernel in _read_autotuned(one)}
            continue
        for name, source, offset in find_cpp_functions(one.text):
            line = one.line + one.text.count("\n", 0, offset)
            found.setdefault(name, Definition(name, "cpp", source, line, Comment()))
        for match in _LAZY.finditer(one.text):
            line = one.line + one.text.count("\n", 0, match.start())
            found.setdefault(match.group(1), _read_lazy(match.group(1), match.group(2), line))
    return tuple(found.values())


def read_wrapped_calls(tree: ast.Module, kernels: Collection[str]) -> tuple[CallSite, ...]:
    """The calls of the C++ entry function, in order."""
    sites: list[CallSite] = []
    for one in _list_strings(tree):
        start = _ENTRY.search(one.text)
        if start is None:
            continue
        end = _ENTRY_END.search(one.text, start.end())
        first = one.line + one.text.count("\n", 0, start.start())
        body = one.text[start.start() : end.start() if end else None].splitlines()
        sites += _read_entry_calls(body, first, frozenset(kernels))
    return tuple(sites)


def _read_entry_calls(body: list[str], first_line: int, kernels: frozenset[str]) -> list[CallSite]:
    sites: list[CallSite] = []
    read_to = 0
    for place, line in enumerate(body):
        match = _CALL.match(line.strip())
        if match is None:
            continue
        called = match.group(1).removeprefix("call_")
        comment = read_comment(body[read_to:place])
        operator = None if called in kernels else _read_operator(match.group(1), line, comment)
        if called not in kernels and operator is None:
            continue
        read_to = place + 1
        sites.append(
            CallSite(
                index=len(sites),
                line=first_line + place,
                target=called,
                kernel=called if called in kernels else None,
                operator=operator,
                source_nodes=comment.source_nodes,
                aten_ops=comment.aten_ops,
                handle=comment.handle_of(called),
            )
        )
    return sites


def _read_operator(function: str, line: str, comment: Comment) -> str | None:
    if function in _COPIES:
        return _COPIES[function]
    if _ITEM.match(function):
        return "aten.item"
    if dispatched := _DISPATCHED.search(line):
        return f"{dispatched.group(1)}.{dispatched.group(2)}"
    if function == _PROXY:
        return comment.aten_ops[-1] if comment.aten_ops else "other"
    shim = _SHIM.match(function)
    if shim is None:
        return None
    namespace, name = (shim.group(1) or "aten").rstrip("_"), shim.group(2)
    if namespace != "aten":
        return f"{namespace}._{name}"
    # The shim's name ends in the overload; the comment tells where the operator's own name ends.
    known = [op for op in comment.aten_ops if f"aten.{name}".startswith(op)]
    return max(known, key=len, default=f"aten.{name}")


def find_autotuning_blocks(tree: ast.Module) -> Iterator[ast.Module]:
    """Yields the blocks of Python code before a C++ wrapper that launch each Triton kernel once to tune it."""
    for one in _list_strings(tree):
        if one.text.lstrip().startswith(_AUTOTUNING) and (block := _parse_block(one)[0]) is not None:
            yield block


def _parse_block(block: _Text) -> tuple[ast.Module | None, str, int]:
    """Returns the code below the heading as a tree (``None`` if it does not parse), as text, and the lines before
    it."""
    heading, _, code = block.text.partition("\n")
    lines_before = 1
    if not heading.strip():
        _, _, code = code.partition("\n")
        lines_before = 2
    try:
        return parse(code), code, lines_before
    except InductorBenchError:
        return None, code, lines_before


def _read_autotuned(block: _Text) -> tuple[Definition, ...]:
    tree, code, lines_before = _parse_block(block)
    return () if tree is None else read_definitions(tree, code.splitlines(), block.line + lines_before - 1)


def _read_lazy(name: str, text: str, line: int) -> Definition:
    try:
        tree = parse(f"{name} = {text}")
    except InductorBenchError:
        return Definition(name, "triton", text, line, Comment())
    for kernel in read_definitions(tree, ()):
        return Definition(name, kernel.language, kernel.source, line, Comment())
    return Definition(name, "triton", text, line, Comment())


def _list_strings(tree: ast.Module) -> Iterator[_Text]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            yield _Text(node.value, node.lineno)


# Reads the facts about a compiled module as a whole: its role, its number, whether its sizes are symbols.
#
# It searches the text without parsing it, which is cheap for a file of megabytes.


# cpp_wrapper modules have no such line. With compile-time autotuning a docstring precedes it.
_AOT_ID = re.compile(r"^# AOT ID: .*?(?<!\d)(\d{1,9})_(forward|backward|inference)\b", re.MULTILINE)
_SYMBOL = r"^[ \t]+(?:int64_t |auto )?{}\d+ = "
_BACKED = re.compile(_SYMBOL.format("s"), re.MULTILINE)
_UNBACKED = re.compile(_SYMBOL.format("z?u"), re.MULTILINE)
# A search for a pattern that begins with plain letters is many times faster than one that begins with \b.
_FROZEN = re.compile(r"_frozen_param\d+\b")
_DEVICE = (
    re.compile(r"device_str='(\w+)'"),
    re.compile(r'^ +device_type="(\w+)"', re.MULTILINE),
    re.compile(r"with torch\.(cuda|xpu)\._DeviceGuard\("),
    re.compile(r"= empty_strided_(cuda|xpu|mtia)\("),
    re.compile(r"rand_strided\(.{0,2000}device='(cuda|xpu|mps|mtia)"),
)


@dataclass(frozen=True)
class ModuleHeader:
    """The facts about a module as a whole; see ``records.code.ModuleSource`` for the fields."""

    role: str
    graph_number: int | None
    device: str
    dynamic: bool
    unbacked: bool
    frozen: bool
    cpp_wrapper: bool
    has_harness: bool


def read_header(text: str) -> ModuleHeader:
    """Returns the facts about the module as a whole. They can be read from any text."""
    aot = _AOT_ID.search(text)
    unbacked = _UNBACKED.search(text) is not None
    return ModuleHeader(
        role=aot.group(2) if aot else "unknown",
        graph_number=int(aot.group(1)) if aot else None,
        device=_find_device(text),
        dynamic=unbacked or _BACKED.search(text) is not None,
        unbacked=unbacked,
        frozen=_FROZEN.search(text) is not None,
        cpp_wrapper="CppWrapperCodeCache" in text,
        has_harness="compiled_module_main(" in text,
    )


def _find_device(text: str) -> str:
    # A module for a GPU may hold kernels for the CPU, but not vice versa.
    for pattern in _DEVICE:
        devices = {match.group(1) for match in pattern.finditer(text) if not find_device(match.group(1)).runs_on_host}
        if devices:
            return min(devices)
    return CPU.type


# Finds damage in a compiled module that was edited or cut short but is still valid Python.


def find_undefined(tree: ast.Module) -> tuple[tuple[str, int], ...]:
    """Returns the names that the module calls, as ``name(...)`` or ``name.run(...)``, but never defines, with their
    counts."""
    known = set(dir(builtins))
    called: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            head, *rest = write_dotted_name(node.func) or ("",)
            called.update([head] if head and rest in ([], ["run"]) else ())
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.alias):
            known.add((node.asname or node.name).partition(".")[0])
    return tuple((name, count) for name, count in called.items() if name not in known)


def is_cut_short(tree: ast.Module) -> bool:
    """Whether the function that runs the module lacks the ``return`` that Inductor always writes."""
    entry = find_entry(tree)
    return entry is not None and not any(isinstance(node, ast.Return) for node in ast.walk(entry))


# Reads the arguments of a compiled module from its own harness.


_HARNESSES = ("get_args", "benchmark_compiled_module")
"""The functions that make the inputs: since torch 2.11, and up to 2.10."""


def read_inputs(tree: ast.Module) -> tuple[ModuleInput, ...]:
    """Returns the arguments in order, without the module's constants; empty if the module has no harness."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name in _HARNESSES:
        if name in functions and (order := _order(functions[name])):
            return _find_inputs(functions[name], order)
    return ()


def _order(function: ast.FunctionDef) -> list[str]:
    for statement in function.body:
        if isinstance(statement, ast.Return) and isinstance(statement.value, ast.List):
            return _list_names(statement.value)
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
            lists = [node for node in ast.walk(statement.value) if isinstance(node, ast.List)]
            if lists:
                return _list_names(lists[0])
    return []


def _list_names(node: ast.List) -> list[str]:
    return [item.id for item in node.elts if isinstance(item, ast.Name)]


def _find_inputs(function: ast.FunctionDef, order: Sequence[str]) -> tuple[ModuleInput, ...]:
    made: dict[str, ModuleInput] = {}
    for statement in function.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            made[name] = _read_input(name, statement.value, made)
    return tuple(made.get(name, ModuleInput(name, "opaque")) for name in order)


def _read_input(name: str, value: ast.expr, made: Mapping[str, ModuleInput]) -> ModuleInput:
    if isinstance(value, ast.Call):
        return _read_tensor(name, value, made)
    constant = _read_literal(value)
    if constant is None:
        return ModuleInput(name, "none" if isinstance(value, ast.Constant) else "opaque")
    if isinstance(constant, int):
        return ModuleInput(name, "int", value=constant)
    return ModuleInput(name, "opaque")


def _read_tensor(name: str, call: ast.Call, made: Mapping[str, ModuleInput]) -> ModuleInput:
    function = ast.unparse(call.func)
    if function == "rand_strided" and len(call.args) >= 2:
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        dtype = ast.unparse(keywords["dtype"]).removeprefix("torch.") if "dtype" in keywords else None
        device = _read_literal(keywords["device"]) if "device" in keywords else None
        device_name = device if isinstance(device, str) else None
        return ModuleInput(name, "tensor", dtype, _read_sizes(call.args[0]), _read_sizes(call.args[1]), device_name)
    if function == "torch.as_strided" and len(call.args) >= 3:
        storage = made.get(ast.unparse(call.args[0]))
        dtype, device_name = (storage.dtype, storage.device) if storage else (None, None)
        return ModuleInput(name, "tensor", dtype, _read_sizes(call.args[1]), _read_sizes(call.args[2]), device_name)
    return ModuleInput(name, "opaque")


def _read_sizes(node: ast.expr) -> tuple[int, ...]:
    sizes = _read_literal(node)
    return tuple(size for size in sizes if isinstance(size, int)) if isinstance(sizes, tuple) else ()


def _read_literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return None


_CAPTURE_HINT = "a compiled module is what a 'Compiled module path:' line names"
_INDUCTOR = re.compile(r"\bAsyncCompile\(\)|\bCppWrapperCodeCache\b|^ +args\.clear\(\)", re.MULTILINE)


@functools.lru_cache(maxsize=64)  # a program's modules are read in turn by several stages, each of which reads all
def read_module(text: str) -> ModuleSource:
    """Returns the facts in the text of a compiled module. The last 64 results are cached: one takes up to a second.

    Raises:
        InductorBenchError: the text is not a compiled module; the message says what it is, if that is known.
    """
    tree = parse_module(text)
    lines = text.splitlines()
    header = read_header(text)
    if header.cpp_wrapper:
        definitions = read_wrapped_definitions(tree)
        calls = read_wrapped_calls(tree, [kernel.name for kernel in definitions])
    else:
        definitions = read_definitions(tree, lines)
        calls = read_calls(tree, lines, [kernel.name for kernel in definitions], read_multi_kernels(tree))
    kernels = _describe(definitions, calls)
    cpp = [kernel.source for kernel in kernels if kernel.language == "cpp"]
    return ModuleSource(
        **vars(header),
        threads=read_threads(cpp),
        vector_lanes=read_vector_lanes(cpp),
        kernels=kernels,
        calls=calls,
        inputs=read_inputs(tree),
        undefined=find_undefined(tree),
        cut_short=is_cut_short(tree),
    )


@functools.lru_cache(maxsize=1)  # a module is read several times in succession: its kernels, then its launches
def parse_module(text: str) -> ast.Module:
    """The syntax tree of a compiled module. Callers must not change it, because it is cached.

    Raises:
        InductorBenchError: the text is not a compiled module.
    """
    try:
        tree = parse(text)
    except InductorBenchError as error:
        raise InductorBenchError(
            f"not a compiled module: {error.message}", f"it may be cut short or edited; {_CAPTURE_HINT}", "no-module"
        ) from None
    if is_kernel_file(tree):
        raise InductorBenchError(
            "this is the file of a single Triton kernel, not a compiled module",
            f"give the module that calls it; {_CAPTURE_HINT}",
            "no-module",
        )
    if not _INDUCTOR.search(text):
        raise InductorBenchError(
            "not a compiled module: nothing in it was written by Inductor", _CAPTURE_HINT, "no-module"
        )
    if find_entry(tree) is None and "CppWrapperCodeCache" not in text:
        raise InductorBenchError(
            "not a whole compiled module: it has no function `call`",
            f"it may be cut short or edited; {_CAPTURE_HINT}",
            "no-module",
        )
    return tree


def _describe(definitions: tuple[Definition, ...], calls: tuple[CallSite, ...]) -> tuple[KernelDefinition, ...]:
    ops: dict[str, set[str]] = {}
    for call in calls:
        for name in (call.kernel, *call.alternatives):
            if name is not None:
                ops.setdefault(name, set()).update(call.aten_ops)
    return tuple(describe_kernel(definition, ops.get(definition.name, ())) for definition in definitions)
