"""What the measurement of a device's peaks comes to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Roofs:
    """The fields of ``records.run.Peaks`` that are measured. A CPU has no launch floor."""

    memory_bandwidth: float
    matmul_flops: dict[str, float]
    cache_bytes: int | None
    cache_bandwidth: float | None
    launch_floor_s: float | None = None
