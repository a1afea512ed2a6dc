"""Reads what objects a program's processes compiled, and chooses the functions that a record keeps."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ...errors import InductorBenchError
from ...messages.observed import OBJECTS, CompiledObjects
from ...records.code import CompiledFunction
from ...source.compile_log import ObjectName
from ...source.structured_trace import Compilation
from ...store import codec
from ...store.files import read_json

MANY_GUARDS = 100
"""Number of a function's guards from which they are recorded."""


def read_objects(folder: Path) -> dict[Compilation, ObjectName]:
    """The objects that each process compiled. A damaged file counts as missing."""
    found: dict[Compilation, ObjectName] = {}
    for file in folder.glob(f"*{OBJECTS}"):
        with suppress(InductorBenchError):
            process = codec.decode(CompiledObjects, read_json(file))
            found |= {
                (process.pid, one.frame, one.compilation): ObjectName(one.name, one.alike, one.wrapped)
                for one in process.objects
            }
    return found


def worth_recording(functions: Iterable[CompiledFunction]) -> tuple[CompiledFunction, ...]:
    """The functions that were compiled again, reached Dynamo's limit, or have many guards."""
    return tuple(one for one in functions if one.recompilations or one.reached_limit or one.guards >= MANY_GUARDS)
