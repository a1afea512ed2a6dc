"""What each launch of a compiled graph works, by the rows of its module: bytes, FLOPs and the peak of their type."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...records.base import Category
from ...records.module import Kernel, ModuleRecord
from ...records.run import Peaks
from ...records.traced import Activity
from ..call_work import classify_operator, find_parts
from ..kernel_aggregation import KernelIdentity, describe_call
from ..ledger import make_activity_key, make_kernel_key
from ..roofline import find_matrix_roof

PRODUCTS = frozenset({Category.EXTERN_GEMM, Category.EXTERN_CONV, Category.EXTERN_ATTENTION, Category.TEMPLATE})
"""The categories of matrix products, convolutions and attention."""

_BACKWARD_PRODUCT = re.compile(r"(\w*mm|mv|dot|linear|matmul|\w*convolution|\w*attention\w*)backward\d*", re.IGNORECASE)


class LaunchWork(NamedTuple):
    """What one launch works."""

    is_product: bool = False  # whether it computes a matrix product, a convolution or an attention
    flops: float | None = None
    moved_bytes: float | None = None  # the least that it reads and writes
    peak: float | None = None  # FLOPs per second of the device for the type of its products


def is_product_operator(label: str) -> bool:
    """Whether an eager operator, or a function of autograd, is a matrix product, a convolution or an attention."""
    return _BACKWARD_PRODUCT.fullmatch(label) is not None or classify_operator(label) in PRODUCTS


class KernelWork:
    """The rows of the kernels of a run's modules, for the launches in its step."""

    def __init__(self, modules: Iterable[ModuleRecord], peaks: Peaks | None) -> None:
        self._rows: dict[str, dict[KernelIdentity, Kernel]] = {
            module.slug: {make_kernel_key(kernel): kernel for kernel in module.kernels} for module in modules
        }
        self._peaks = peaks

    def of_launches(self, slugs: Mapping[int, str], activities: Mapping[int, Sequence[Activity]]) -> list[LaunchWork]:
        """The work of each activity of each graph, in order; empty fields for what no row knows.

        Args:
            slugs: the module of each graph.
            activities: of each graph in the profiled steps.
        """
        return [one for graph, own in activities.items() for one in self._of_graph(slugs.get(graph, ""), own)]

    def _of_graph(self, slug: str, activities: Sequence[Activity]) -> Iterable[LaunchWork]:
        rows, known = self._rows.get(slug, {}), dict[object, LaunchWork]()
        for activity, part in zip(activities, find_parts(activities), strict=True):
            key = make_activity_key(activity)
            alike = key, activity.arguments, part
            if alike not in known:
                shapes = describe_call(activity.arguments, part)
                known[alike] = self._of_row(key[0], _find_row(rows, key), shapes)
            yield known[alike]

    def _of_row(self, category: Category, row: Kernel | None, shapes: str) -> LaunchWork:
        if row is None:
            return LaunchWork(category in PRODUCTS)
        calls, flops, moved = row.calls, row.work.flops, row.work.moved_bytes
        if row.shapes:  # a library kernel: its launches differ
            group = next((one for one in row.shapes if one.shapes == shapes), None)
            group = group or (row.shapes[0] if len(row.shapes) == 1 else None)
            calls, flops, moved = (group.calls, group.flops, group.moved_bytes) if group else (0, None, None)
        return LaunchWork(
            category in PRODUCTS or bool(flops),
            flops / calls if flops and calls else None,
            moved / calls if moved is not None and calls else None,
            find_matrix_roof(row.work.dtype, self._peaks) if self._peaks is not None else None,
        )


def _find_row(rows: Mapping[KernelIdentity, Kernel], key: KernelIdentity) -> Kernel | None:
    """The row of a kernel; of a library call that ran another kernel in the module's own run, that of its operator."""
    alike = (row for other, row in rows.items() if key[2] and (other[0], other[2]) == (key[0], key[2]))
    return rows.get(key) or next(alike, None)
