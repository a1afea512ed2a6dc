"""Compares the arguments of two recorded launches."""

from __future__ import annotations

from typing import Any


def takes_alike(launch: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two recorded launches have the same tensors, in the same order and with the same values.

    Whole numbers may differ, because different versions of torch pass different counts of elements.
    """
    return _without_counts(launch) == _without_counts(other)


def _without_counts(launch: dict[str, Any]) -> tuple[Any, ...]:
    values = [*launch["arguments"], *(launch.get("keywords") or {}).values()]
    return launch["storages"], [value for value in values if value["kind"] != "int"]
