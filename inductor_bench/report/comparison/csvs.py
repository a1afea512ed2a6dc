"""Renders a comparison as CSV: a row for each part and for each kernel's change, with SI base units."""

from __future__ import annotations

from ...records.comparisons.run import KernelChange, KernelSide, PartChange, RunComparison
from ..csvs import table_text

HEADER = (
    *("row", "cause", "name", "a_names", "b_names", "graph", "a_calls", "b_calls", "a_s", "b_s", "delta_s", "low_s"),
    *("high_s", "verdict", "a_config", "b_config", "a_kernel_id", "b_kernel_id", "detail"),
)


def comparison_csv(comparison: RunComparison) -> str:
    """The step, its parts, which add up to it, and the kernels, which the parts hold, too."""
    step = comparison.step
    whole = PartChange(step.a_s, step.b_s, step.delta_s, step.low_s, step.high_s, comparison.verdict, step.currency)
    rows = [_part("step", whole), *(_part("part", part) for part in comparison.parts)]
    return table_text(HEADER, [*rows, *map(_kernel, comparison.kernels)])


def _part(row: str, part: PartChange) -> tuple[object, ...]:
    times = (part.a_s, part.b_s, part.delta_s, part.low_s, part.high_s, part.verdict)
    return (row, part.cause, part.label, "", "", "", "", "", *times, "", "", "", "", part.detail)


def _kernel(change: KernelChange) -> tuple[object, ...]:
    a, b = change.a, change.b
    times = tuple(sum(side.time_s for side in sides) for sides in (a, b))
    return (
        *("kernel", change.cause, (a or b)[0].name, _names(a), _names(b), (a or b)[0].graph),
        *(sum(side.calls for side in sides) for sides in (a, b)),
        *(*times, change.delta_s, change.low_s, change.high_s, change.verdict),
        *(_configs(a), _configs(b), _ids(a), _ids(b), change.detail),
    )


def _names(sides: tuple[KernelSide, ...]) -> str:
    return "; ".join(side.name for side in sides)


def _ids(sides: tuple[KernelSide, ...]) -> str:
    return "; ".join(side.kernel_id for side in sides)


def _configs(sides: tuple[KernelSide, ...]) -> str:
    configs = (config for side in sides for config in side.configs)
    return "; ".join(" ".join(f"{name}={value}" for name, value in config.items()) for config in configs)
