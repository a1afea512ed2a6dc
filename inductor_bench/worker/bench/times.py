"""What the harnesses of standalone files measured, in the form that the parent reads."""

from __future__ import annotations

from typing import Any


def folder_of_values(launch: dict[str, Any], folder: str) -> str | None:
    """Where the recorded values of a launch lie; ``None`` where it has none in files."""
    return folder if any(storage["values"].get("file") for storage in launch["storages"]) else None


def plain_times(timing: dict[str, Any]) -> dict[str, Any]:
    """The samples of a harness's timing, in order, and how they were taken."""
    found = {state: timing[state]["samples_s"] for state in ("cold", "warm")}
    return {**found, **{key: timing[key] for key in ("method",) if key in timing}}


def times_beside_zeros(timing: dict[str, Any], zeros: dict[str, Any] | None) -> dict[str, Any]:
    """A harness's times, and those ``with_zeros`` for all indices where it has any."""
    times = plain_times(timing)
    return {**times, "with_zeros": plain_times({state: zeros[state] for state in ("cold", "warm")})} if zeros else times
