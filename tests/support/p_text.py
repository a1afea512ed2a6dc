"""Reads the output of a compiled module under ``-p``, and compares a record with it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from inductor_bench.records.module import ModuleRecord

NAME_WIDTH = 120
"""Number of characters to which the harness cuts kernel names."""


@dataclass(frozen=True)
class HarnessReport:
    """The parsed output of ``-p``: seconds per iteration by kernel and category, and calls per iteration by kernel."""

    kernels: dict[str, float]
    counts: dict[str, float]
    categories: dict[str, float]
    wall_time_s: float


def read_p_text(text: str) -> HarnessReport:
    """Parses the tables below ``== … category kernels ==`` and the wall time."""
    kernels: dict[str, float] = {}
    counts: dict[str, float] = {}
    categories: dict[str, float] = {}
    category = ""
    for line in text.splitlines():
        head = re.match(r"\s*== (\w+) category kernels ==", line)
        row = re.match(r"(\S.*?)\s{2,}([\d.e-]+)\s+([\d.e+-]+)\s+[\d.]+%\s*$", line)
        total = re.match(r"Total\s+([\d.e-]+)\s+[\d.]+%\s*$", line)
        if head:
            category = head.group(1)
        elif total and category:
            categories[category] = float(total.group(1)) / 1e3
            category = ""
        elif row and category:
            name = row.group(1)[:NAME_WIDTH]
            kernels[name] = kernels.get(name, 0.0) + float(row.group(2)) / 1e3
            counts[name] = counts.get(name, 0.0) + float(row.group(3))
    wall = re.search(r"Total wall time ([\d.]+) ms", text)
    assert wall and kernels, "not the text of -p on a GPU"
    return HarnessReport(kernels, counts, categories, float(wall.group(1)) / 1e3)


def compare(module: ModuleRecord, report: HarnessReport) -> tuple[float, float]:
    """Returns the largest relative differences of a kernel and of a category; infinite if one side lacks a kernel."""
    kernels = max(_differences(_kernel_times(module), report.kernels).values(), default=0.0)
    return kernels, max(_differences(_category_times(module), report.categories).values(), default=0.0)


def disagreements(module: ModuleRecord, report: HarnessReport, tolerance: float) -> list[str]:
    """Lists the differences between a module's record and the harness's output that exceed ``tolerance``."""
    found = _differences(_kernel_times(module), report.kernels)
    found |= _differences(_category_times(module), report.categories)
    return [f"{name}: {difference:.2%}" for name, difference in found.items() if difference > tolerance]


def _differences(ours: dict[str, float], theirs: dict[str, float]) -> dict[str, float]:
    found = {}
    for name in ours.keys() | theirs.keys():
        both = name in ours and name in theirs
        found[name] = abs(ours[name] - theirs[name]) / theirs[name] if both else float("inf")
    return found


def _kernel_times(module: ModuleRecord) -> dict[str, float]:
    times: dict[str, float] = {}
    for kernel in module.kernels:
        name = kernel.name[:NAME_WIDTH].rstrip()
        times[name] = times.get(name, 0.0) + kernel.time_s
    return times


def _category_times(module: ModuleRecord) -> dict[str, float]:
    """Sums the times by the harness's five categories, which follow from the first letters of the kernel names."""
    prefixes = {"triton_poi": "triton_pointwise", "triton_red": "triton_reduction"}
    prefixes |= {"triton_per": "triton_persistent_reduction", "triton_": "triton_unknown", "": "unknown"}
    times: dict[str, float] = {}
    for kernel in module.kernels:
        category = next(category for prefix, category in prefixes.items() if kernel.name.startswith(prefix))
        times[category] = times.get(category, 0.0) + kernel.time_s
    return times
