"""What a RUN keeps beside its record so that it can be analysed again: raw measurements, provenance, operator costs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import InductorBenchError
from ..records.operators import OperatorCall, OperatorCost
from ..records.source import CapturedCode
from . import codec
from .files import read_json, write_json, write_text
from .folder import RunFolder

COSTS = "operator_costs.json"
_DETAILS: dict[str, type] = {"launches": list, "references": list, "compiled": dict, "switches": dict}


def save_details(folder: RunFolder, slug: str, details: Mapping[str, Any]) -> None:
    """Keeps what the process that measured a module knew, as it was said."""
    write_json(folder.traces / f"{slug}.details.json", dict(details))


def load_details(folder: RunFolder, slug: str) -> dict[str, Any]:
    """What :func:`save_details` kept; empty where there is nothing.

    Raises:
        InductorBenchError: it cannot be read.
    """
    path = folder.traces / f"{slug}.details.json"
    if not path.is_file():
        return {}
    details = read_json(path)
    whole = isinstance(details, dict) and all(isinstance(details.get(key, of()), of) for key, of in _DETAILS.items())
    if not whole:
        raise InductorBenchError(f"{path} is damaged", "take it from a copy of the run, or measure again")
    return dict(details)


def save_costs(folder: RunFolder, costs: Mapping[OperatorCall, OperatorCost]) -> None:
    """Keeps the counted costs of library calls beside the traces that they belong to."""
    pairs = [{"call": codec.encode(call), "cost": codec.encode(cost)} for call, cost in costs.items()]
    write_text(folder.traces / COSTS, json.dumps(pairs))


def load_costs(folder: RunFolder) -> dict[OperatorCall, OperatorCost]:
    """What :func:`save_costs` kept; empty where a run has none."""
    path = folder.traces / COSTS
    if not path.is_file():
        return {}
    pairs = read_json(path)
    return {codec.decode(OperatorCall, pair["call"]): codec.decode(OperatorCost, pair["cost"]) for pair in pairs}


def save_code(folder: RunFolder, slug: str, code: CapturedCode | None) -> None:
    """Keeps where the module's kernels came from in the user's program, by provenance handle."""
    if code is not None and code.stack_traces:
        write_text(folder.modules / f"{slug}.provenance.json", json.dumps(codec.encode(code.stack_traces)))


def load_code(folder: RunFolder, slug: str, text: str) -> CapturedCode | None:
    """What :func:`save_code` kept, as far as the analysis needs it."""
    path = folder.modules / f"{slug}.provenance.json"
    if not path.is_file():
        return None
    data = {"path": "", "text": text, "stack_traces": read_json(path)}
    return codec.decode(CapturedCode, {**data, **dict.fromkeys(("frame_id", "frame_compile_id", "attempt", "rank"))})
