"""The files of a RUN that allow a new analysis: module texts, raw measurements, provenance and operator costs.

Every file is validated when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..errors import InductorBenchError
from ..records.code.details import Details
from ..records.code.source import CapturedCode, SourceLine
from ..records.module import ModuleRecord
from ..records.traced.operators import OperatorCall, OperatorCost
from .files import read_json, read_text, write_json, write_text
from .folder import RunFolder
from .formats import codec

T = TypeVar("T")

COSTS = "operator_costs.json"
_AGAIN = "take it from a copy of the run, or measure again"


@dataclass(frozen=True)
class CountedCall:
    """A library call and its cost, as the file of costs holds them."""

    call: OperatorCall
    cost: OperatorCost


def load_module(folder: RunFolder, slug: str) -> str:
    """The text of a module, as Inductor wrote it.

    Raises:
        InductorBenchError: the file is gone or cannot be read.
    """
    return read_text(folder.file(f"modules/{slug}.py"))


def checked(module: ModuleRecord) -> ModuleRecord:
    """The module itself, if a record can hold it.

    Raises:
        InductorBenchError: a field is invalid, for example a sum of damaged figures that is not finite.
    """
    codec.decode(ModuleRecord, codec.encode(module))
    return module


def save_details(folder: RunFolder, slug: str, details: Details) -> None:
    """Stores the results of the process that measured a module."""
    write_json(folder.traces / f"{slug}.details.json", codec.encode_sparse(details))


def load_details(folder: RunFolder, slug: str) -> Details:
    """The results that :func:`save_details` stored; every field has its default where there is no file.

    Raises:
        InductorBenchError: the file is damaged or cannot be read.
    """
    path = folder.optional_file(f"traces/{slug}.details.json")
    return Details() if path is None else _decode(Details, read_json(path), path)


def save_costs(folder: RunFolder, costs: Mapping[OperatorCall, OperatorCost]) -> None:
    """Stores the counted costs of library calls beside the traces."""
    counted = [CountedCall(call, cost) for call, cost in costs.items()]
    write_text(folder.traces / COSTS, json.dumps(codec.encode(counted)))


def load_costs(folder: RunFolder) -> dict[OperatorCall, OperatorCost]:
    """The costs that :func:`save_costs` stored; empty where there is no file.

    Raises:
        InductorBenchError: the file is damaged or cannot be read.
    """
    path = folder.optional_file(f"traces/{COSTS}")
    if path is None:
        return {}
    return {one.call: one.cost for one in _decode(tuple[CountedCall, ...], read_json(path), path)}


def save_code(folder: RunFolder, slug: str, code: CapturedCode | None) -> None:
    """Stores the lines of the user's program from which the module's kernels originate, by provenance handle."""
    if code is not None and code.stack_traces:
        write_text(folder.modules / f"{slug}.provenance.json", json.dumps(codec.encode(code.stack_traces)))


def load_code(folder: RunFolder, slug: str, text: str) -> CapturedCode | None:
    """The module's code with the lines that :func:`save_code` stored; ``None`` where there is no file.

    Raises:
        InductorBenchError: the file is damaged or cannot be read.
    """
    path = folder.optional_file(f"modules/{slug}.provenance.json")
    if path is None:
        return None
    stack_traces = _decode(dict[str, tuple[SourceLine, ...]], read_json(path), path)
    return CapturedCode("", text, None, None, None, None, stack_traces)


def _decode(kind: type[T], data: Any, path: Path) -> T:
    try:
        return codec.decode(kind, data)
    except InductorBenchError as error:
        raise InductorBenchError(f"{path} is damaged: {error.message}", _AGAIN) from error
