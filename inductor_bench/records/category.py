"""The categories of kernels."""

from __future__ import annotations

import re
from enum import Enum


class Category(Enum):
    """The category of a kernel; each kernel has one. ``record.json`` and the tables show the value.

    ``Category("sparse")`` with a word that is none of the members is a category of a newer version of the tool. It is
    not in ``list(Category)``, and equals itself in all records.
    """

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

    @classmethod
    def _missing_(cls, value: object) -> Category | None:
        if not isinstance(value, str) or not _WORDS.fullmatch(value):
            return None
        newer = object.__new__(cls)
        newer._name_, newer._value_ = value.upper(), value
        known = cls._value2member_map_.setdefault(value, newer)
        assert isinstance(known, cls)
        return known

    def __reduce_ex__(self, protocol: object) -> tuple[type[Category], tuple[str]]:
        return Category, (self.value,)  # by the value, because a newer version's category is no attribute

    @property
    def title(self) -> str:
        """The name in a printed table, for example ``persistent reduction`` or ``conv (library)``."""
        return _TITLES.get(self, self.value.replace("_", " "))

    @property
    def is_library(self) -> bool:
        """Whether it is of kernels of library calls: ``extern_`` before the kind of the call."""
        return self.value.startswith("extern_")


_WORDS = re.compile(r"[a-z0-9][a-z0-9_ -]{0,39}")
"""What the value of a category looks like. Anything else in a record is damage."""

_TITLES = {
    Category.TEMPLATE: "template (Triton)",
    Category.USER_TRITON: "user Triton",
    Category.EXTERN_GEMM: "gemm (library)",
    Category.EXTERN_CONV: "conv (library)",
    Category.EXTERN_ATTENTION: "attention (library)",
    Category.EXTERN_ATEN: "ATen (other)",
    Category.CPP: "C++ (CPU)",
}
