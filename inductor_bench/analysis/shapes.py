"""Short notation for the recorded arguments of an operator, as tables show them."""

from __future__ import annotations

from typing import Any

from ..records.traced.trace import TensorArguments

DTYPES = {
    "float": ("f32", "float32"),
    "double": ("f64", "float64"),
    "c10::Half": ("f16", "float16"),
    "c10::BFloat16": ("bf16", "bfloat16"),
    "c10::Float8_e4m3fn": ("f8e4m3", "float8_e4m3fn"),
    "c10::Float8_e5m2": ("f8e5m2", "float8_e5m2"),
    "int": ("i32", "int32"),
    "long int": ("i64", "int64"),
    "long": ("i64", "int64"),
    "short": ("i16", "int16"),
    "short int": ("i16", "int16"),
    "signed char": ("i8", "int8"),
    "unsigned char": ("u8", "uint8"),
    "short unsigned int": ("u16", "uint16"),
    "unsigned int": ("u32", "uint32"),
    "long unsigned int": ("u64", "uint64"),
    "c10::complex<float>": ("c64", "complex64"),
    "c10::complex<double>": ("c128", "complex128"),
    "bool": ("b8", "bool"),
}
"""Names of element types: the profiler's name to the name in tables and torch's name."""


def describe_arguments(arguments: TensorArguments) -> str:
    """Lists the tensors among the arguments, for example ``f16[128,32,112,112] f16[32,1,3,3]``."""
    parts = []
    for dims, kind in zip(arguments.dims, arguments.types, strict=False):
        if kind in DTYPES and (dims or kind not in ("int", "bool", "long", "double")):
            parts.append(f"{DTYPES[kind][0]}{_brackets(dims)}")
        elif kind == "TensorList":
            parts.append(f"{len(dims)} tensors")
    return " ".join(parts)


def dtype_of(arguments: TensorArguments) -> str | None:
    """Returns torch's name of the element type of the first floating-point argument, or ``None``."""
    for kind in arguments.types:
        if kind in DTYPES and "loat" in DTYPES[kind][1]:
            return DTYPES[kind][1]
    return None


def _brackets(dims: Any) -> str:
    return "[" + ",".join(str(size) for size in dims) + "]"
