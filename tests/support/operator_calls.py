"""Operator calls that were recorded from a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from inductor_bench.records.traced import OperatorCall, TensorArguments

RECORDED = json.loads((Path(__file__).parent.parent / "data" / "operator_calls.json").read_text())


def freeze(value: Any) -> Any:
    return tuple(freeze(item) for item in value) if isinstance(value, list) else value


def to_call(row: dict[str, Any]) -> OperatorCall:
    arguments = TensorArguments(*(freeze(row[key]) for key in ("dims", "strides", "types", "concrete")))
    return OperatorCall(row["name"], arguments, row["device"])
