"""Assigns each activity to a category.

The evidence in order of precedence: the kind of device activity, the kernel's definition, the operator that launched
the activity, and last its name.
"""

from __future__ import annotations

import re

from ..records.category import Category
from ..records.traced.activity import Activity

GEMM_OPERATORS = frozenset(
    {
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "addbmm",
        "matmul",
        "linear",
        "_scaled_mm",
        "_scaled_grouped_mm",
        "_grouped_mm",
        "_int_mm",
        "addmv",
        "mv",
        "dot",
        "vdot",
        "_addmm_activation",
        "_weight_int8pack_mm",
        "_weight_int4pack_mm",
        "_linear_pointwise",
        "_mkl_linear",
        "mkl_linear",
        "qlinear_pointwise",
        "qlinear_unary",
        "qlinear_binary",
    }
)
COPY_OPERATORS = frozenset({"copy_", "clone", "_to_copy", "contiguous", "_foreach_copy_", "to"})

LIBRARY_NAMES = (
    (re.compile(r"flash_(fwd|bwd)|fmha|attention|_sdpa_", re.I), Category.EXTERN_ATTENTION),
    (re.compile(r"conv|fprop|dgrad|wgrad|winograd|implicit_gemm", re.I), Category.EXTERN_CONV),
    (re.compile(r"gemm|gemv|cublas|nvjet|splitKreduce|cutlass", re.I), Category.EXTERN_GEMM),
    (re.compile(r"^nccl|^ncclDev|all_?reduce|reduce_scatter|all_?gather", re.I), Category.COLLECTIVE),
    (re.compile(r"at::native::|at_cuda_detail|cub::|thrust::"), Category.EXTERN_ATEN),
)


def classify(activity: Activity) -> Category:
    """Returns the category of an activity; ``other`` where its name is unfamiliar and all other evidence is missing."""
    if activity.kind == "memcpy":
        return Category.COPY
    if activity.kind == "memset":
        return Category.MEMSET
    if activity.kernel is not None:
        return activity.kernel.category
    if activity.name.startswith("nccl") or (activity.operator or "").startswith(("c10d::", "_c10d_functional::")):
        return Category.COLLECTIVE
    if activity.operator is not None:
        return classify_operator(activity.operator)
    for pattern, category in LIBRARY_NAMES:
        if pattern.search(activity.name):
            return category
    return Category.OTHER


def classify_operator(operator: str) -> Category:
    """Returns the category of a library operator by its name, such as ``aten::mm`` or ``mkldnn::_linear_pointwise``."""
    name = operator.split("::", 1)[-1].split(".", 1)[0]
    if "attention" in name or name.startswith("_flash_"):
        return Category.EXTERN_ATTENTION
    if "conv" in name and "convert" not in name:
        return Category.EXTERN_CONV
    if name in GEMM_OPERATORS or "_mm" in name or "linear" in name:
        return Category.EXTERN_GEMM
    if name in COPY_OPERATORS:
        return Category.COPY
    return Category.EXTERN_ATEN
