"""The categories of kernels."""

from __future__ import annotations

from enum import Enum


class Category(Enum):
    """The category of a kernel; each kernel has one. ``record.json`` and the tables show the value."""

    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    PERSISTENT_REDUCTION = "persistent_reduction"
    COOPERATIVE_REDUCTION = "cooperative_reduction"
    SPLIT_SCAN = "split_scan"
    FOREACH = "foreach"
    COMBO = "combo"
    TEMPLATE = "template"
    USER_TRITON = "user_triton"
    EXTERN_GEMM = "extern_gemm"
    EXTERN_CONV = "extern_conv"
    EXTERN_ATTENTION = "extern_attention"
    EXTERN_ATEN = "extern_aten"
    COPY = "copy"
    MEMSET = "memset"
    COLLECTIVE = "collective"
    CPP = "cpp"
    OTHER = "other"

    @property
    def title(self) -> str:
        """The name in a printed table, for example ``persistent reduction`` or ``conv (library)``."""
        return _TITLES.get(self, self.value.replace("_", " "))

    @property
    def is_library(self) -> bool:
        """Whether it is of kernels of library calls: ``extern_`` before the kind of the call."""
        return self.value.startswith("extern_")


_TITLES = {
    Category.TEMPLATE: "template (Triton)",
    Category.USER_TRITON: "user Triton",
    Category.EXTERN_GEMM: "gemm (library)",
    Category.EXTERN_CONV: "conv (library)",
    Category.EXTERN_ATTENTION: "attention (library)",
    Category.EXTERN_ATEN: "ATen (other)",
    Category.CPP: "C++ (CPU)",
}
