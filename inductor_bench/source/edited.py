"""A kernel file that a person or a program edits: writes it, and reads the kernel from it, only as syntax.

The kernel stands between two marks. The text after the marks is for this tool: the original source, and what the kernel
was made for. The file itself is never run: the source is put into a program instead of the original source, or into a
file of this tool that a worker checks.
"""

from __future__ import annotations

import ast
import hashlib
import json
import keyword
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import InductorBenchError, UsageError
from .edit_rules import check_cpp, check_triton, list_parameters, strip_harness
from .generated_text import compute_cpp_kernel_id, compute_triton_kernel_id, parse, remove_profiler_marks
from .standalone_header import write_assignment, write_docstring
from .standalone_writer import quote_source

BEGIN = "# >>> Edit the kernel from here …"
END = "# <<< … to here. What follows is for inductor-bench: leave it as it is."
FORMAT = 1
MOST_BYTES = 1_000_000
"""Size of the largest file that is read."""

ANEW = "write the file anew: inductor-bench kernel RUN#NAME --edit FILE"

_IS_EDIT = re.compile(rf"^(?:{re.escape(BEGIN)}$|{re.escape(END)}$|ORIGINAL = )", re.MULTILINE)
_FACTS = "EDIT"
_ORIGINAL = "ORIGINAL"
_SOURCE = "SOURCE"


@dataclass(frozen=True)
class KernelEdit:
    """An edited kernel, as its file has it."""

    path: Path  # the file
    kernel: str  # the kernel's name in the program's compiled module
    language: str  # ``triton`` or ``cpp``
    # the edited source in the form in which Inductor's wrapper passes it to ``AsyncCompile.triton`` or
    # ``AsyncCompile.cpp_pybinding``: without a harness for its benchmark, and without marks for a profiler
    source: str
    original: str  # the SHA-256 of the original source in that form
    original_source: str  # the original source in that form
    torch: str  # the version of torch that it was made for
    triton: str | None  # that of Triton; ``None`` for C++
    device: str  # the name of the device that it was made for; empty if it is unknown
    reference: str = (
        ""  # the text of a function ``reference`` that computes the same in PyTorch; empty if there is none
    )
    facts: Mapping[str, Any] = field(default_factory=dict)  # further facts for its check, as they stand in the file
    line: int = 0  # the line of the file in which a C++ source begins; 0 if its lines are not those of the file

    @cached_property
    def kernel_id(self) -> str:
        """Returns the id of the original kernel, which is the same in every program; if the edit replaces calls, that
        of the calls."""
        return str(self.facts["kernel_id"]) if self.calls else compute_kernel_id(self.language, self.original_source)

    @property
    def calls(self) -> tuple[str, ...]:
        """Returns, if the edit replaces calls, the id of each called kernel, or its operator; otherwise nothing."""
        return tuple(self.facts.get("replaces", {}).get("calls", ()))

    @property
    def arguments(self) -> tuple[str, ...]:
        """Returns the arguments of a kernel that replaces calls: their names, in C++ their types."""
        return tuple(list_parameters(self.language, self.source, str(self.facts["replaces"].get("name", ""))))

    @property
    def changed(self) -> bool:
        """Whether the source differs from the original."""
        return self.source != self.original_source

    @property
    def sha256(self) -> str:
        """The SHA-256 of the edited source."""
        return digest(self.source)


def compute_kernel_id(language: str, source: str) -> str:
    """Computes the id of a kernel from its source, with or without a harness and profiler marks."""
    return compute_triton_kernel_id(source) if language == "triton" else compute_cpp_kernel_id(source)


def digest(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def read_passed_form(language: str, source: str) -> str:
    """Returns the source of a kernel in the form of :attr:`KernelEdit.source`.

    ``source`` comes from a module that was compiled for measurement.

    Raises:
        InductorBenchError: a Triton source does not parse.
    """
    return strip_harness(source) if language == "triton" else remove_profiler_marks(source)


def is_edit(text: str) -> bool:
    """Whether a text is that of a file by :func:`edit_text`."""
    return _IS_EDIT.search(text) is not None


# Writes the file.


def edit_text(edit: KernelEdit, about: str) -> str:
    """Returns the whole text of a file to edit.

    Args:
        edit: the kernel; its ``path`` does not matter.
        about: what the author of an edit needs to know, as lines of text.
    """
    facts = ast.literal_eval(write_assignment("_", dict(edit.facts)).partition(" = ")[2])  # as they will be read
    known = {
        "format": FORMAT,
        "kernel": edit.kernel,
        "language": edit.language,
        "torch": edit.torch,
        "triton": edit.triton,
        "device": edit.device,
        "original": digest(edit.original_source),
        "facts_sha256": _digest_of(facts, edit.reference),
        **facts,
    }
    kernel = edit.source if edit.language == "triton" else f"{_SOURCE} = {quote_source(edit.source)}"
    parts = [write_docstring(about.strip("\n")), BEGIN, kernel.strip("\n"), END, ""]
    if edit.reference:
        parts += [edit.reference.strip("\n"), ""]
    parts += [f"{_ORIGINAL} = {quote_source(edit.original_source)}", "", write_assignment(_FACTS, known)]
    return "\n".join(parts)


def _digest_of(facts: Mapping[str, Any], reference: str) -> str:
    function = ast.unparse(ast.parse(reference)) if reference else ""
    return digest(json.dumps([facts, function], sort_keys=True, default=str))


def _read_reference(tree: ast.Module, after: int) -> str:
    """Returns the text of the function ``reference`` after a line; empty if there is none."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.lineno > after]
    return next((ast.unparse(node) + "\n" for node in functions if node.name == "reference"), "")


# Reads the file.


def read_edit(path: Path) -> KernelEdit:
    """Returns the edited kernel of a file, which is read and not run.

    Raises:
        UsageError: the file cannot be read, is no such file, or its kernel cannot take the place of the original; the
            message says why, the hint what to do.
    """
    text = _read(path)
    begin, end = _find_marks(path, text)
    try:
        tree = parse(text)
    except InductorBenchError as error:
        raise UsageError(f"{path}: {error.message}", "correct it, and check it again", "bad-edit") from None
    facts = _read_literal(path, tree, _FACTS, dict)
    original = _read_literal(path, tree, _ORIGINAL, str)
    kernel, language = facts.get("kernel"), facts.get("language")
    if facts.get("format") != FORMAT or not isinstance(kernel, str) or language not in ("triton", "cpp"):
        raise UsageError(f"{path} was written by another version of inductor-bench", ANEW, "newer-format")
    names = ("format", "kernel", "language", "torch", "triton", "device", "original", "facts_sha256")
    more = {name: value for name, value in facts.items() if name not in names}
    reference = _read_reference(tree, end)
    if digest(original) != facts.get("original") or _digest_of(more, reference) != facts.get("facts_sha256"):
        raise UsageError(
            f"{path}: it was changed below the second mark, which only inductor-bench writes", ANEW, "damaged"
        )
    required = more.get("replaces", {}).get("required")
    if language == "triton":
        source = "\n".join(text.split("\n")[begin : end - 1]).strip("\n") + "\n"
        line, check = 0, check_triton
    else:
        source, line = _read_source(path, tree, begin, end)
        check = check_cpp
    try:
        check(source, original, required)
    except InductorBenchError as error:
        raise UsageError(f"{path}: {error.message}", error.hint, "bad-edit") from None
    return KernelEdit(
        path=path,
        kernel=kernel,
        language=language,
        source=source if source.strip("\n") != original.strip("\n") else original,
        original=digest(original),
        original_source=original,
        torch=str(facts.get("torch") or ""),
        triton=facts.get("triton"),
        device=str(facts.get("device") or ""),
        reference=reference,
        facts=more,
        line=line,
    )


def _read(path: Path) -> str:
    if path.is_symlink():
        raise UsageError(
            f"{path} is a symbolic link", "give the file itself, so that it is clear what is checked", "symbolic-link"
        )
    if not path.is_file():
        raise UsageError(f"there is no file {path}", ANEW, "no-such-target")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} has more than {MOST_BYTES // 10**6} MB, which no kernel has", ANEW, "too-large")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}", "", "unreadable") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a Python file", ANEW, "no-kernel-file") from None


def _find_marks(path: Path, text: str) -> tuple[int, int]:
    """Returns the numbers of the lines with the two marks, from 1."""
    lines = text.split("\n")
    places = {mark: [number for number, line in enumerate(lines, 1) if line == mark] for mark in (BEGIN, END)}
    if not places[BEGIN] and not places[END]:
        raise UsageError(f"{path} is no file of an edited kernel", ANEW, "no-kernel-file")
    if any(len(found) != 1 for found in places.values()) or places[BEGIN] >= places[END]:
        raise UsageError(
            f"{path}: each of the two marks has to be in the file once, around the kernel", ANEW, "bad-edit"
        )
    return places[BEGIN][0], places[END][0]


def _find_assignments(statements: Iterable[ast.stmt], name: str) -> list[ast.Assign]:
    assigned = [node for node in statements if isinstance(node, ast.Assign)]
    return [node for node in assigned if [ast.unparse(target) for target in node.targets] == [name]]


def _read_literal(path: Path, tree: ast.Module, name: str, kind: type[Any]) -> Any:
    found = _find_assignments(tree.body, name)
    try:
        value = ast.literal_eval(found[0].value) if len(found) == 1 else None
    except (ValueError, TypeError):
        value = None
    if not isinstance(value, kind):
        raise UsageError(f"{path}: {name} is not as it was written", ANEW, "damaged")
    return value


def _read_source(path: Path, tree: ast.Module, begin: int, end: int) -> tuple[str, int]:
    """Returns the C++ text between the marks, and its line in the file, as in :class:`KernelEdit`."""
    inside = [node for node in tree.body if begin < node.lineno < end]
    found = _find_assignments(inside, _SOURCE)
    if len(found) != 1:
        raise UsageError(f"{path}: between the marks there is to be one {_SOURCE} = r'''…'''", ANEW, "bad-edit")
    if len(inside) > 1:
        raise UsageError(f"{path}: between the marks there is more than {_SOURCE}", "leave only that there", "bad-edit")
    value = found[0].value
    if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
        raise UsageError(
            f"{path}: {_SOURCE} is no plain text", "write it as r'''…''', without any operation", "bad-edit"
        )
    is_as_written = value.end_lineno == value.lineno + value.value.count("\n")
    return value.value, value.lineno if is_as_written else 0


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
