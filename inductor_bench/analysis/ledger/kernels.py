"""What each kernel of a compiled module costs in one step of the program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...records.category import Category
from ...records.kernel import Kernel
from ...records.module import ModuleRecord
from ...records.program import Part
from ...records.traced.activity import Activity
from ..classification import classify

KernelKey = tuple[Category, str, str]
"""Category, name, and the kernel's id; of a library kernel its operator."""


class StepUse(NamedTuple):
    """The calls and seconds of a kernel in one step; ``estimated`` if the step's trace does not show the kernel."""

    calls: float
    time_s: float
    estimated: bool = False


def step_kernels(activities: Mapping[str, Iterable[Activity]], steps: int) -> dict[tuple[str, KernelKey], StepUse]:
    """The use of each kernel in one step.

    Args:
        activities: the activities of all calls of each module in the profiled steps, by the module's slug.
        steps: the number of profiled steps.
    """
    calls: dict[tuple[str, KernelKey], int] = defaultdict(int)
    times: dict[tuple[str, KernelKey], float] = defaultdict(float)
    for slug, found in activities.items():
        for activity in found:
            key = slug, activity_key(activity)
            calls[key] += 1
            times[key] += activity.duration_s
    return {key: StepUse(calls[key] / steps, times[key] / steps) for key in calls}


def activity_key(activity: Activity) -> KernelKey:
    """The key of an activity's kernel; the same as that of the row which ``aggregate_kernels`` makes of it."""
    if activity.kernel is not None and activity.kind == "kernel":
        return classify(activity), activity.name, activity.kernel.kernel_id
    return classify(activity), activity.name, (activity.operator or "").replace("::", ".", 1)


def kernel_key(kernel: Kernel) -> KernelKey:
    """The key of a kernel's row."""
    own = kernel.line is not None
    return kernel.category, kernel.name, kernel.kernel_id if own else kernel.operator or ""


def module_uses(
    module: ModuleRecord, parts: Sequence[Part], uses: Mapping[tuple[str, KernelKey], StepUse], *, estimate: bool
) -> list[StepUse]:
    """The use of each of a module's kernels in one step.

    Args:
        module: the module's row.
        parts: the ledger of the step.
        uses: the uses that the trace shows.
        estimate: whether the trace may lack kernels that ran, as on a CPU. They get their own time times the module's
            calls. All kernels of the module are then fitted into the time of its part, which holds them one after the
            other.
    """
    uses = _with_substitutes(module, uses)
    found = [uses.get((module.slug, kernel_key(kernel))) for kernel in module.kernels]
    own = [part for part in parts if part.graph == module.slug]
    calls = sum(part.calls for part in own) if estimate else 0.0
    every = [
        use or StepUse(calls * kernel.calls, calls * kernel.time_s, estimated=calls > 0)
        for kernel, use in zip(module.kernels, found, strict=True)
    ]
    room_s, whole_s = sum(part.time_s for part in own), sum(use.time_s for use in every)
    if not estimate or whole_s <= room_s:
        return every
    return [use._replace(time_s=use.time_s * room_s / whole_s) for use in every]


def _with_substitutes(
    module: ModuleRecord, uses: Mapping[tuple[str, KernelKey], StepUse]
) -> dict[tuple[str, KernelKey], StepUse]:
    """The uses, with those of library kernels that the module's own run did not launch under a kernel that it did.

    A library may choose another kernel in the program, for one by its shapes. The use goes to the most expensive kernel
    of the same operator that the program did not launch; else to the most expensive one of that operator.
    """
    found = dict(uses)
    rows = sorted(module.kernels, key=lambda kernel: -kernel.time_s)
    known = {kernel_key(kernel) for kernel in rows}
    for (slug, (category, name, operator)), use in uses.items():
        if slug != module.slug or not operator or (category, name, operator) in known:
            continue
        alike = [
            kernel_key(row) for row in rows if row.line is None and (row.category, row.operator) == (category, operator)
        ]
        if alike:
            target = slug, next((key for key in alike if (slug, key) not in found), alike[0])
            before = found.get(target, StepUse(0.0, 0.0))
            found[target] = StepUse(before.calls + use.calls, before.time_s + use.time_s)
    return found
