"""Statistics of time samples, in plain Python. Every standalone kernel file holds this text."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any


def summarize(samples: Sequence[float]) -> dict[str, Any]:
    """The median and the range from 10 to 90% of some times; none is below 0."""
    ordered = sorted(max(sample, 0.0) for sample in samples)
    last = len(ordered) - 1
    return {
        "median_s": statistics.median(ordered),
        "low_s": ordered[round(0.1 * last)],
        "high_s": ordered[round(0.9 * last)],
        "min_s": ordered[0],
        "samples": len(ordered),
        "samples_s": list(samples),
    }
