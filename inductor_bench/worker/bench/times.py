"""Converts the results of the harnesses of standalone files into messages for the parent."""

from __future__ import annotations

from typing import Any

from inductor_bench.messages.times import Measured


def find_values_folder(launch: dict[str, Any], folder: str) -> str | None:
    """The folder of a launch's recorded values; ``None`` where no values are stored in files."""
    return folder if any(storage["values"].get("file") for storage in launch["storages"]) else None


def make_measured(timing: dict[str, Any], zeros: dict[str, Any] | None) -> Measured:
    """The message for a harness's times, and for the times with zeros as indices, if any."""
    samples = _samples(timing)
    with_zeros = _samples(zeros) if zeros else {}
    return Measured(samples["cold"], samples["warm"], timing.get("method", ""), with_zeros)


def _samples(timing: dict[str, Any]) -> dict[str, tuple[float, ...]]:
    """The samples in seconds of both states, in the order in which they were taken."""
    return {state: tuple(timing[state]["samples_s"]) for state in ("cold", "warm")}
