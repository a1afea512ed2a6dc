"""What the harnesses of standalone files measured, in the form that the parent reads."""

from __future__ import annotations

from typing import Any

from inductor_bench.messages.times import Measured


def folder_of_values(launch: dict[str, Any], folder: str) -> str | None:
    """Where the recorded values of a launch lie; ``None`` where it has none in files."""
    return folder if any(storage["values"].get("file") for storage in launch["storages"]) else None


def times_beside_zeros(timing: dict[str, Any], zeros: dict[str, Any] | None) -> Measured:
    """A harness's times, and those ``with_zeros`` for all indices where it has any."""
    samples = _samples(timing)
    with_zeros = _samples(zeros) if zeros else {}
    return Measured(samples["cold"], samples["warm"], timing.get("method", ""), with_zeros)


def _samples(timing: dict[str, Any]) -> dict[str, tuple[float, ...]]:
    """The samples of both states, in the order in which they were taken."""
    return {state: tuple(timing[state]["samples_s"]) for state in ("cold", "warm")}
