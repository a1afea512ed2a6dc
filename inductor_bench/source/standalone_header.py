"""The beginning of a standalone kernel file, the facts that it records, its harness, and its recognition."""

from __future__ import annotations

import ast
import functools
import math
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from ..errors import InductorBenchError
from ..records.base import Category
from ..records.code import Argument, Launch, SourceLine, TensorView
from ..records.retune import Config

# Makes the beginning of every standalone kernel file: its docstring, and the recorded facts as a literal.


_LINE = 100
_MOST_LINES = 4
_SHOWN_ARGUMENTS = 24
_OPTIONS = (
    ("", "time it: median of cold and warm calls, bytes, GB/s cold"),
    ("--check", "compare its outputs with the reference; exit status 0 or 1"),
    ("--json", "the times as one JSON object"),
)


class UnwritableKernelError(InductorBenchError):
    """A kernel cannot have a standalone file; the message gives the reason in a few words."""


@dataclass(frozen=True)
class StandaloneHeader:
    """The description of a kernel in its standalone file."""

    name: str
    kernel_id: str
    category: Category
    aten_ops: tuple[str, ...] = ()
    source_nodes: tuple[str, ...] = ()
    source_lines: tuple[SourceLine, ...] = ()
    module: str | None = None  # the label of the compiled module
    model: str | None = None  # the title of the compiled program
    tool_version: str | None = None
    torch_version: str | None = None
    triton_version: str | None = None
    device_name: str | None = None
    calls: int | None = None  # the number of launches per iteration
    time_s: float | None = None  # device seconds per iteration, if they were measured
    moved_bytes: int | None = None  # bytes of one call


def describe_facts(header: StandaloneHeader) -> dict[str, Any]:
    """Returns the facts of ``RECORDED`` that files in every language have."""
    return {
        "name": header.name,
        "kernel_id": header.kernel_id,
        "category": header.category.value,
        "device": header.device_name,
        "torch": header.torch_version,
        "triton": header.triton_version,
        "tool": header.tool_version,
        "calls": header.calls,
        "time_s": header.time_s,
        "moved_bytes": header.moved_bytes,
    }


def write_header(header: StandaloneHeader, launch: Launch, more: Iterable[tuple[str, str]] = ()) -> str:
    """Writes the docstring of the file as source text: the kernel, its origin, and the command line of the file.

    ``more`` are further options of files of this kind, with their descriptions.
    """
    versions = (("torch", header.torch_version), ("triton", header.triton_version), ("on", header.device_name))
    rows = [
        ("kernel", f"{header.category.title}, {header.kernel_id}"),
        ("ATen ops", ", ".join(header.aten_ops)),
        ("nodes", ", ".join(header.source_nodes)),
        *(("source", f"{line.file}:{line.line} in {line.function}: {line.code}") for line in header.source_lines),
        ("model", header.model),
        ("module", header.module),
        ("in the model", _time_in_model(header)),
        ("recorded", ", ".join(f"{word} {version}" for word, version in versions if version)),
        ("written by", f"inductor-bench {header.tool_version}" if header.tool_version else None),
    ]
    lines = [make_plain_line(header.name), ""]
    lines += [_fold_line(f"{title + ':':<14}{make_plain_line(text)}", 14) for title, text in rows if text]
    lines += ["", "Arguments:", *_describe_arguments(launch), ""]
    lines += [f"{f'python FILE {option}':<28}{does}" for option, does in (*_OPTIONS, *more)]
    return write_docstring("\n".join(lines))


def write_docstring(text: str) -> str:
    """Writes the source text of a docstring. No text can end it early."""
    escaped = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""{escaped}\n"""\n'


def _time_in_model(header: StandaloneHeader) -> str | None:
    calls = f"{header.calls} call{'s' if header.calls > 1 else ''}" if header.calls else None
    time = f"{header.time_s * 1e6:.2f} µs an iteration" if header.time_s is not None else None
    return ", ".join(part for part in (calls, time) if part) or None


def _describe_arguments(launch: Launch) -> list[str]:
    named = [("", item) for item in launch.arguments]
    named += [(f"{name} = ", item) for name, item in launch.keywords.items()]
    lines = []
    for index, (name, item) in enumerate(named[:_SHOWN_ARGUMENTS]):
        written = " (written)" if index in launch.mutated else ""
        lines.append(_fold_line(f"  {name}{make_plain_line(_describe_argument(item))}{written}", 4))
    if len(named) > _SHOWN_ARGUMENTS:
        lines.append(f"  and {len(named) - _SHOWN_ARGUMENTS} more")
    return lines or ["  none"]


def _describe_argument(item: Argument) -> str:
    if item.tensor is not None:
        return _describe_tensor(item.tensor)
    if item.kind == "list":
        return f"[{', '.join(_describe_argument(each) for each in item.items[:8])}]"
    for value in (item.integer, item.number, item.text):
        if value is not None:
            return str(bool(value)) if item.kind == "bool" else str(value)
    return "None"


def _describe_tensor(view: TensorView) -> str:
    place = f", from element {view.offset}" if view.offset else ""
    return f"{view.dtype} {list(view.shape)}, strides {list(view.stride)}{place}, storage {view.storage}"


def make_plain_line(text: str) -> str:
    """Returns the text as one line, with escapes for characters that cannot be printed."""
    words = " ".join(text.split())
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in words)


def _fold_line(line: str, indent: int) -> str:
    """Returns the line wrapped into at most ``_MOST_LINES`` lines."""
    return textwrap.fill(line, _LINE, subsequent_indent=" " * indent, max_lines=_MOST_LINES, placeholder=" ...")


def write_recorded_facts(facts: dict[str, Any]) -> str:
    """Writes the statement ``RECORDED = {...}`` with a Python literal, one line per fact, storage and argument."""
    return write_assignment("RECORDED", facts)


def write_assignment(name: str, facts: dict[str, Any]) -> str:
    """Writes the statement ``NAME = {...}`` with a Python literal, one line per fact, storage and argument."""
    return f"{name} = {_write_literal(facts, 0)}\n"


def _write_literal(value: Any, depth: int) -> str:
    inner, outer = "    " * (depth + 1), "    " * depth
    if isinstance(value, float) and not math.isfinite(value):
        return repr(str(value))  # Python has no literal for it; float() reads this text
    if isinstance(value, dict):
        items = [f"{key!r}: {_write_literal(item, depth + 1)}" for key, item in value.items()]
        shape = "{}"
    elif isinstance(value, list | tuple):
        items = [_write_literal(item, depth + 1) for item in value]
        shape = "[]"
    else:
        return repr(value)
    if depth >= 3 or sum(map(len, items)) < _LINE // 2:
        return f"{shape[0]}{', '.join(items)}{shape[1]}"
    return f"{shape[0]}\n" + "".join(f"{inner}{item},\n" for item in items) + f"{outer}{shape[1]}"


# The facts that a kernel's standalone file records of its call.


class RecordedCall(TypedDict, total=False):
    """The part of a file's ``RECORDED`` that comes from the call and its capture. The harness reads it."""

    launch: Mapping[str, Any]  # the encoded ``Launch``
    reference: Mapping[str, Any] | None  # the fingerprint of its outputs; ``None`` if it could not be made
    threads: int | None  # the number of threads of the capture, on a CPU
    vector_isa: str | None  # the instruction set that torch chose at the capture, on a CPU
    config: Config  # the configuration of a Triton kernel: block sizes, ``num_warps`` and ``num_stages``
    tolerance: float  # the tolerance of the comparison with the reference, if it is not the harness's own


# Recognises a standalone kernel file by its text, without running it.


_RECORDED = re.compile(r"^RECORDED = ", re.MULTILINE)
_MODULE = re.compile(r"^(?:def call\(|class Runner\b|call = runner\.call)", re.MULTILINE)
_INDUCTOR = re.compile(r"torch\._inductor|triton_heuristics")


def holds_triton_kernel(path: Path) -> bool:
    """Whether the text of a file mentions Inductor's Triton launcher; ``False`` if it cannot be read."""
    try:
        return "triton_heuristics" in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def require_standalone(path: Path) -> None:
    """Checks that a file is the standalone file of one kernel.

    Raises:
        InductorBenchError: it is not; the message says what it is, the hint how to get a standalone file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InductorBenchError(f"{path} cannot be read: {error.strerror or error}", name="unreadable") from None
    except UnicodeDecodeError:
        raise InductorBenchError(
            f"{path} is not a Python file", "give a file that extract wrote", "no-kernel-file"
        ) from None
    kernels = len(_RECORDED.findall(text))
    if kernels > 1:
        raise InductorBenchError(
            f"{path} holds {kernels} kernels", "give each of them a separate file", "no-kernel-file"
        )
    if kernels == 1:
        return
    if _INDUCTOR.search(text) and _MODULE.search(text):
        hint = f"write a file for each of its kernels: inductor-bench extract {path} -o kernels"
        if "def get_args" in text and "async_compile" not in text:
            hint = "`inductor-bench extract MODULE -o DIR` writes one, from the compiled module that calls it"
        raise InductorBenchError(
            f"{path} is Inductor's code, without the arguments that kernels had", hint, "no-kernel-file"
        )
    raise InductorBenchError(
        f"{path} is not a standalone kernel file",
        "`inductor-bench extract SOURCE -o DIR` writes standalone files",
        "no-kernel-file",
    )


# Compares the arguments of two recorded launches.


def has_like_arguments(launch: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two recorded launches have the same tensors, in the same order and with the same values.

    Whole numbers may differ, because different versions of torch pass different counts of elements.
    """
    return _remove_counts(launch) == _remove_counts(other)


def _remove_counts(launch: dict[str, Any]) -> tuple[Any, ...]:
    values = [*launch["arguments"], *(launch.get("keywords") or {}).values()]
    return launch["storages"], [value for value in values if value["kind"] != "int"]


# The harness as text: its modules pasted one after another into a standalone kernel file.


HARNESS = Path(__file__).resolve().parent / "harness"

HARNESS_TITLE = "# The harness; it is the same in every file.\n"
HARNESS_END = "# The end of the harness.\n"


def frame_harness(*names: str) -> str:
    """Returns the text of harness modules between two marker lines.

    A process that has compiled the harness finds it by them.
    """
    return f"{HARNESS_TITLE}\n{write_harness(*names)}\n\n{HARNESS_END}"


@functools.cache
def write_harness(*names: str) -> str:
    """Returns the text of harness modules one after another, with their imports at the top.

    Raises:
        ValueError: two modules define the same name.
    """
    plain: set[str] = set()
    taken: set[str] = set()
    members: dict[str, set[str]] = {}
    bodies = []
    for name in names:
        imports, body = _split_imports((HARNESS / name).read_text(encoding="utf-8"))
        bodies.append(body)
        if twice := taken & (defined := list_defined_names(body)):
            raise ValueError(f"{name} defines {', '.join(sorted(twice))} once more")
        taken |= defined
        for node in imports:
            if isinstance(node, ast.Import):
                plain.add(ast.unparse(node))
            elif not node.level and node.module and node.module != "__future__":
                members.setdefault(node.module, set()).update(map(ast.unparse, node.names))
    gathered = [f"from {module} import {', '.join(sorted(found))}" for module, found in sorted(members.items())]
    return "\n".join([*sorted(plain), *gathered]) + "\n\n\n" + "\n\n\n".join(bodies) + "\n"


def _split_imports(text: str) -> tuple[list[ast.Import | ast.ImportFrom], str]:
    """Returns the imports at the top level, and the text without these imports and without the module's docstring."""
    lines, imports, dropped = text.splitlines(), [], set[int]()
    for index, node in enumerate(ast.parse(text).body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif index or not isinstance(node, ast.Expr):
            continue
        dropped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    body = "\n".join(line for number, line in enumerate(lines, 1) if number not in dropped)
    return imports, body.strip("\n")


@functools.lru_cache(maxsize=64)
def list_defined_names(text: str) -> frozenset[str]:
    """Returns the names that a Python text defines at its top level."""
    return list_names(ast.parse(text).body)


def list_names(statements: Iterable[ast.stmt]) -> frozenset[str]:
    """Returns the names that statements define, without imported names."""
    found: set[str] = set()
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
    return frozenset(found)
