"""Makes the beginning of every standalone kernel file: its docstring, and the recorded facts as a literal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...errors import InductorBenchError
from ...records.category import Category
from ...records.code.launch import Argument, Launch, TensorView
from ...records.code.source import SourceLine

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
    """The description of a kernel in its standalone file.

    Attributes:
        module: the label of the compiled module.
        model: the title of the compiled program.
        calls: the number of launches per iteration.
        time_s: device seconds per iteration, where they were measured.
        moved_bytes: bytes of one call.
    """

    name: str
    kernel_id: str
    category: Category
    aten_ops: tuple[str, ...] = ()
    source_nodes: tuple[str, ...] = ()
    source_lines: tuple[SourceLine, ...] = ()
    module: str | None = None
    model: str | None = None
    tool_version: str | None = None
    torch_version: str | None = None
    triton_version: str | None = None
    device_name: str | None = None
    calls: int | None = None
    time_s: float | None = None
    moved_bytes: int | None = None


def described_facts(header: StandaloneHeader) -> dict[str, Any]:
    """The facts of ``RECORDED`` that files in every language have."""
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
    """The docstring of the file as source text: the kernel, its origin, and the command line of the file.

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
    lines = [plain(header.name), ""]
    lines += [_folded(f"{title + ':':<14}{plain(text)}", 14) for title, text in rows if text]
    lines += ["", "Arguments:", *_argument_lines(launch), ""]
    lines += [f"{f'python FILE {option}':<28}{does}" for option, does in (*_OPTIONS, *more)]
    return docstring("\n".join(lines))


def docstring(text: str) -> str:
    """The source text of a docstring, which no text can end early."""
    escaped = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""{escaped}\n"""\n'


def _time_in_model(header: StandaloneHeader) -> str | None:
    calls = f"{header.calls} call{'s' if header.calls > 1 else ''}" if header.calls else None
    time = f"{header.time_s * 1e6:.2f} µs an iteration" if header.time_s is not None else None
    return ", ".join(part for part in (calls, time) if part) or None


def _argument_lines(launch: Launch) -> list[str]:
    named = [("", item) for item in launch.arguments]
    named += [(f"{name} = ", item) for name, item in launch.keywords.items()]
    lines = []
    for index, (name, item) in enumerate(named[:_SHOWN_ARGUMENTS]):
        written = " (written)" if index in launch.mutated else ""
        lines.append(_folded(f"  {name}{plain(_argument_words(item))}{written}", 4))
    if len(named) > _SHOWN_ARGUMENTS:
        lines.append(f"  and {len(named) - _SHOWN_ARGUMENTS} more")
    return lines or ["  none"]


def _argument_words(item: Argument) -> str:
    if item.tensor is not None:
        return _tensor_words(item.tensor)
    if item.kind == "list":
        return f"[{', '.join(_argument_words(each) for each in item.items[:8])}]"
    for value in (item.integer, item.number, item.text):
        if value is not None:
            return str(bool(value)) if item.kind == "bool" else str(value)
    return "None"


def _tensor_words(view: TensorView) -> str:
    place = f", from element {view.offset}" if view.offset else ""
    return f"{view.dtype} {list(view.shape)}, strides {list(view.stride)}{place}, storage {view.storage}"


def plain(text: str) -> str:
    """The text as one line, with escapes for characters that cannot be printed."""
    words = " ".join(text.split())
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in words)


def _folded(line: str, indent: int) -> str:
    """The line wrapped into at most ``_MOST_LINES`` lines."""
    return textwrap.fill(line, _LINE, subsequent_indent=" " * indent, max_lines=_MOST_LINES, placeholder=" ...")


def recorded_text(facts: dict[str, Any]) -> str:
    """The statement ``RECORDED = {...}`` with a Python literal, one line per fact, storage and argument."""
    return f"RECORDED = {_literal(facts, 0)}\n"


def _literal(value: Any, depth: int) -> str:
    inner, outer = "    " * (depth + 1), "    " * depth
    if isinstance(value, float) and not math.isfinite(value):
        return repr(str(value))  # Python has no literal for it; float() reads this text
    if isinstance(value, dict):
        items = [f"{key!r}: {_literal(item, depth + 1)}" for key, item in value.items()]
        shape = "{}"
    elif isinstance(value, list | tuple):
        items = [_literal(item, depth + 1) for item in value]
        shape = "[]"
    else:
        return repr(value)
    if depth >= 3 or sum(map(len, items)) < _LINE // 2:
        return f"{shape[0]}{', '.join(items)}{shape[1]}"
    return f"{shape[0]}\n" + "".join(f"{inner}{item},\n" for item in items) + f"{outer}{shape[1]}"
