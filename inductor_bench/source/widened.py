"""Makes a C++ kernel that computes in float64 of one that computes in float32, to know what is exact."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NARROW = re.compile(r"\b(?:BFloat16|bfloat16|Half|half|float8_\w+|Float8_\w+)\b")
_REFERENCES = re.compile(r"at::vec::Vectorized<float>&")
_VECTORS = re.compile(r"at::vec::Vectorized<float>")
_COUNTED = re.compile(r"\b(VecMask|cast|VectorizedN|vec_reduce_all|convert)<float,\s*(\d+)>")
_ADDED = re.compile(r"\batomic_add_vec<float,\s*(\d+),\s*(\d+)>")
_FLOAT = re.compile(r"\bfloat\b")


def widen_source(source: str) -> str:
    """The text of a C++ kernel with float64 in place of float32: two vectors in place of one. Empty for a kernel with
    narrower types. The text need not compile.
    """
    if _NARROW.search(source):
        return ""
    text = _REFERENCES.sub("at::vec::Vectorized<double>&", source)  # of the parts, in reductions of a vector
    text = _VECTORS.sub("at::vec::VectorizedN<double,2>", text)
    text = _COUNTED.sub(lambda found: f"{found[1]}<double,{2 * int(found[2])}>", text)
    text = _ADDED.sub(lambda found: f"atomic_add_vec<double,{found[1]},{2 * int(found[2])}>", text)
    return _FLOAT.sub("double", text)


def widen_launch(launch: Mapping[str, Any]) -> Mapping[str, Any]:
    """An encoded launch with float64 in place of float32."""
    return {
        **launch,
        "storages": [_widen_part(storage, "size_bytes") for storage in launch["storages"]],
        "arguments": [*map(_widen_argument, launch["arguments"])],
        "keywords": {name: _widen_argument(item) for name, item in (launch.get("keywords") or {}).items()},
    }


def _widen_argument(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**item, "tensor": _widen_part(item["tensor"], "itemsize")} if item.get("tensor") else item


def _widen_part(part: Mapping[str, Any], size: str) -> Mapping[str, Any]:
    return {**part, "dtype": "float64", size: 2 * part[size]} if part["dtype"] == "float32" else part
