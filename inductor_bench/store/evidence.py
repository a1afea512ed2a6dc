"""What a RUN keeps beside its record so that it can be analysed again: module texts, raw measurements, provenance,
operator costs. Each is validated when it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..errors import InductorBenchError
from ..records.code.details import Details
from ..records.code.source import CapturedCode, SourceLine
from ..records.run import ModuleRecord
from ..records.traced.operators import OperatorCall, OperatorCost
from .files import read_json, read_text, write_json, write_text
from .folder import RunFolder
from .formats import codec

T = TypeVar("T")

COSTS = "operator_costs.json"
_AGAIN = "take it from a copy of the run, or measure again"


def load_module(folder: RunFolder, slug: str) -> str:
    """The text of a module, as Inductor wrote it.

    Raises:
        InductorBenchError: it is gone or cannot be read.
    """
    return read_text(folder.file(f"modules/{slug}.py"))


def checked(module: ModuleRecord) -> ModuleRecord:
    """A module's row as a record can hold it.

    Raises:
        InductorBenchError: it cannot, as where a sum of damaged figures is not finite.
    """
    codec.decode(ModuleRecord, codec.encode(module))
    return module


def save_details(folder: RunFolder, slug: str, details: Details) -> None:
    """Keeps what the process that measured a module knew."""
    write_json(folder.traces / f"{slug}.details.json", codec.encode_sparse(details))


def load_details(folder: RunFolder, slug: str) -> Details:
    """What :func:`save_details` kept; with everything at its default where there is nothing.

    Raises:
        InductorBenchError: it cannot be read.
    """
    path = folder.optional_file(f"traces/{slug}.details.json")
    return Details() if path is None else _decode(Details, read_json(path), path)


def save_costs(folder: RunFolder, costs: Mapping[OperatorCall, OperatorCost]) -> None:
    """Keeps the counted costs of library calls beside the traces that they belong to."""
    pairs = [{"call": codec.encode(call), "cost": codec.encode(cost)} for call, cost in costs.items()]
    write_text(folder.traces / COSTS, json.dumps(pairs))


def load_costs(folder: RunFolder) -> dict[OperatorCall, OperatorCost]:
    """What :func:`save_costs` kept; empty where a run has none.

    Raises:
        InductorBenchError: it cannot be read.
    """
    path = folder.optional_file(f"traces/{COSTS}")
    if path is None:
        return {}
    pairs = _decode(tuple[dict[str, Any], ...], read_json(path), path)
    return {
        _decode(OperatorCall, pair.get("call"), path): _decode(OperatorCost, pair.get("cost"), path) for pair in pairs
    }


def save_code(folder: RunFolder, slug: str, code: CapturedCode | None) -> None:
    """Keeps where the module's kernels came from in the user's program, by provenance handle."""
    if code is not None and code.stack_traces:
        write_text(folder.modules / f"{slug}.provenance.json", json.dumps(codec.encode(code.stack_traces)))


def load_code(folder: RunFolder, slug: str, text: str) -> CapturedCode | None:
    """What :func:`save_code` kept, as far as the analysis needs it; ``None`` where a run has nothing.

    Raises:
        InductorBenchError: it cannot be read.
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
