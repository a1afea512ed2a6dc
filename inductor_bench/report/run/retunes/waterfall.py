"""Draws how the device's time of a step falls from what it was to what it is, kernel by kernel.

Imports no drawing library itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from .... import units
from ....records.retune import AppliedKernel, Saving, Verification
from ...text import names, palette
from ..plot_parts import Axes
from .verification import PINNED

MOST_KERNELS = 14
OWN, TUNED, SAVED, LOST = palette.IDLE, "#0072b2", "#009e73", palette.PEAK
HEIGHT = 0.62


def measured_kernels(found: Verification | None) -> list[AppliedKernel]:
    """The pinned kernels whose saving was measured, the largest first; empty where there is no waterfall to draw."""
    if found is None or found.device is None:
        return []
    kernels = [one for one in found.kernels if one.state == PINNED and one.saving_s is not None]
    return sorted(kernels, key=lambda one: -(one.saving_s or 0.0))


def row_count(kernels: Sequence[AppliedKernel]) -> int:
    """The number of rows: the step before and after, the kernels, those that are folded, and the rest."""
    return 3 + min(len(kernels), MOST_KERNELS) + (len(kernels) > MOST_KERNELS)


def draw_waterfall(axes: Axes, device: Saving, kernels: Sequence[AppliedKernel]) -> None:
    """Draws a bar for each saving, from the time before it to the time after it, and a tick at its projection."""
    shown, folded = kernels[:MOST_KERNELS], kernels[MOST_KERNELS:]
    steps: list[tuple[str, float, float | None]] = []
    steps += [(names.short(one.name, 40), one.saving_s or 0.0, one.predicted_s) for one in shown]
    if folded:
        saving, projected = sum(one.saving_s or 0.0 for one in folded), sum(one.predicted_s for one in folded)
        steps.append((f"{len(folded)} more kernels", saving, projected))
    steps.append(("everything else", device.own_s - device.tuned_s - sum(step[1] for step in steps), None))
    axes.barh(0, device.own_s, height=HEIGHT, color=OWN, edgecolor="white")
    left, labels = device.own_s, ["as it was"]
    lowest = device.own_s
    for row, (label, saving, expected) in enumerate(steps, 1):
        axes.barh(row, -saving, left=left, height=HEIGHT, color=SAVED if saving >= 0 else LOST, edgecolor="white")
        if expected is not None:
            axes.plot([left - expected] * 2, [row - 0.42, row + 0.42], color=palette.INK, linewidth=1.1)
        left -= saving
        lowest = min(lowest, left, left + saving - (expected or 0.0))
        labels.append(label)
    axes.barh(len(steps) + 1, device.tuned_s, height=HEIGHT, color=TUNED, edgecolor="white")
    labels.append("as it is")
    values = [device.own_s, *(step[1] for step in steps), device.tuned_s]
    low = max(0.0, lowest - 0.25 * (device.own_s - lowest))
    axes.set_xlim(low, device.own_s + 0.02 * (device.own_s - low))
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0)
    for row, value in enumerate(values):
        whole = row in (0, len(values) - 1)
        sign = "" if whole else "-" if value >= 0 else "+"
        text = f"{sign}{units.seconds(abs(value))}"
        axes.text(1.01, row, text, transform=axes.get_yaxis_transform(), va="center", fontsize=8.5)
    axes.set_xlabel(f"device time of a step; the axis begins at {units.seconds(low)}", fontsize=8.5)
    axes.xaxis.set_major_formatter(lambda value, _: units.seconds(value) if value else "0")
