"""Whether the times of an edited kernel can be true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...records.run import Peaks
from ...source.edited import KernelEdit

ROOF_SPREAD = 1.15
"""The largest ratio of a rate to its roof that is believed."""


class EditRefusedError(Exception):
    """The edited kernel is refused."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason, self.words = reason, words


def compulsory_bytes(edit: KernelEdit) -> int | None:
    """The bytes that one call must move: those of Inductor's count, or only what is written if indices or masks decide
    what is read."""
    launch, moved = edit.facts["launches"][0], edit.facts.get("moved_bytes")
    written = {place: launch["arguments"][place].get("tensor") for place in launch["mutated"]}
    read = [item.get("tensor") for place, item in enumerate(launch["arguments"]) if place not in written]
    if moved and not any(view and "float" not in view["dtype"] and view["shape"] for view in read):
        return int(moved)
    storages = {view["storage"]: _view_bytes(view) for view in written.values() if view}
    return sum(storages.values())


def _view_bytes(view: Mapping[str, Any]) -> int:
    count = int(view["itemsize"])
    for size, step in zip(view["shape"], view["stride"], strict=True):
        count *= size if step else 1
    return count


def find_roof(moved: int | None, peaks: Peaks | None, state: str) -> float | None:
    """The bytes per second at which a device can move so many bytes at most; ``None`` if that is not known."""
    if moved is None or peaks is None:
        return None
    fits = peaks.cache_bytes is not None and moved <= peaks.cache_bytes
    return peaks.cache_bandwidth if fits or state == "warm" else peaks.memory_bandwidth


def require_below_roof(edit: KernelEdit, times_s: tuple[float, float], peaks: Peaks | None, state: str) -> None:
    """Refuses a kernel that is faster than its bytes can be moved, if the original is not.

    ``times_s`` are the seconds of the original and of the edited kernel.

    Raises:
        EditRefusedError: it is refused.
    """
    moved = compulsory_bytes(edit)
    roof = find_roof(moved, peaks, state)
    if moved is None or roof is None:
        return
    original_s, edited_s = times_s
    if edited_s * roof * ROOF_SPREAD < moved <= original_s * roof * ROOF_SPREAD:
        raise EditRefusedError(
            "above-roof",
            f"it would move its {moved:,} bytes at {moved / edited_s / 1e9:,.1f} GB/s, and the device's roof is "
            f"{roof / 1e9:,.1f} GB/s",
        )
