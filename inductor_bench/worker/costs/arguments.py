"""Rebuilds the arguments of a recorded operator call as fake tensors, and finds the called overload.

It allocates no device memory. The profiler records tensors as sizes, strides and a C++ element type, and numbers and
lists of numbers as text; it does not record strings and lists of optional tensors.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...records.traced.operators import OperatorCall

_DTYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "c10::Half": torch.float16,
    "c10::BFloat16": torch.bfloat16,
    "c10::Float8_e4m3fn": torch.float8_e4m3fn,
    "c10::Float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "c10::Float8_e5m2": torch.float8_e5m2,
    "c10::Float8_e5m2fnuz": torch.float8_e5m2fnuz,
    "c10::Float8_e8m0fnu": torch.float8_e8m0fnu,
    "c10::complex<float>": torch.complex64,
    "c10::complex<double>": torch.complex128,
    "bool": torch.bool,
    "unsigned char": torch.uint8,
    "signed char": torch.int8,
    "short": torch.int16,
    "short int": torch.int16,
    "int": torch.int32,
    "long": torch.int64,
    "long int": torch.int64,
    "long long": torch.int64,
    "unsigned short": torch.uint16,
    "unsigned int": torch.uint32,
    "unsigned long": torch.uint64,
    "short unsigned int": torch.uint16,
    "long unsigned int": torch.uint64,
}
"""Element types by the C++ names that the profiler records; the names of integers differ by compiler."""

_SCALAR_KINDS = ("int", "float", "bool", "number", "Scalar", "SymInt", "complex")


class UnboundCallError(Exception):
    """The arguments of a recorded call cannot be rebuilt; the message gives the reason."""


@dataclass(frozen=True)
class BoundCall:
    """An overload and its arguments; tensors are fake.

    Attributes:
        overload: the overload of torch.
        arguments: by name, in the schema's order.
        written: the names of the arguments that the operator writes.
        output_only: the names of written arguments that the operator does not read.
    """

    overload: Any
    arguments: dict[str, Any]
    written: frozenset[str]
    output_only: frozenset[str]

    def run(self) -> Any:
        """Runs the overload, under the fake mode that was active when the arguments were built."""
        keyword_only = {item.name for item in self.overload._schema.arguments if item.kwarg_only}
        positional = [value for name, value in self.arguments.items() if name not in keyword_only]
        keywords = {name: value for name, value in self.arguments.items() if name in keyword_only}
        return self.overload(*positional, **keywords)

    def tensors(self) -> dict[str, list[torch.Tensor]]:
        """The tensors of each argument that has any, by the argument's name."""
        found = {}
        for name, value in self.arguments.items():
            items = value if isinstance(value, list) else [value]
            kept = [item for item in items if isinstance(item, torch.Tensor)]
            if kept:
                found[name] = kept
        return found


def bind_call(call: OperatorCall, device: str) -> BoundCall:
    """Rebuilds a call, under a fake tensor mode.

    Args:
        call: the recorded call.
        device: the device type of the fake tensors; the machine may lack it.

    Raises:
        UnboundCallError: this build of torch has no such operator, or none of its overloads fits.
    """
    types = call.arguments.types
    overloads = _overloads(call.name)
    # ATen passes undefined tensors even where a schema does not allow None; their recorded type is empty.
    fitting = [overload for undefined in (False, True) for overload in overloads if _fits(overload, types, undefined)]
    if not fitting:
        raise UnboundCallError(f"no overload of {call.name} takes what was recorded ({', '.join(types)})")
    wanted = fitting[0]._schema.arguments
    arguments = {
        item.name: _value(item, call, index, device) if index < len(types) else item.default_value
        for index, item in enumerate(wanted)
    }
    written = frozenset(item.name for item in wanted if item.alias_info and item.alias_info.is_write)
    output_only = frozenset(item.name for item in wanted if item.name in written and item.kwarg_only)
    return BoundCall(fitting[0], arguments, written, output_only)


def _overloads(name: str) -> list[Any]:
    """The overloads of an operator by its dispatcher name, sorted by their number of arguments."""
    namespace, _, rest = name.partition("::")
    base, _, wanted = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None) if rest.isidentifier() or wanted else None
    if packet is None:
        raise UnboundCallError(f"this build of torch has no operator {name}")
    overloads = [getattr(packet, each) for each in packet.overloads() if not wanted or each == wanted]
    return sorted(overloads, key=lambda overload: len(overload._schema.arguments))


def _fits(overload: Any, types: Sequence[str], undefined: bool) -> bool:
    wanted = overload._schema.arguments
    if len(types) > len(wanted) or not all(item.has_default_value() for item in wanted[len(types) :]):
        return False
    return all(_accepts(str(item.type), kind, undefined) for item, kind in zip(wanted, types, strict=False))


def _accepts(wanted: str, recorded: str, undefined: bool) -> bool:
    """Whether an argument of the schema type ``wanted`` may have the recorded type ``recorded``."""
    optional = wanted.startswith("Optional[")
    inner = wanted.removeprefix("Optional[")[:-1] if optional else wanted
    if inner == "List[Optional[Tensor]]":
        return False
    if inner.startswith("List[Tensor"):
        return recorded == "TensorList"
    if inner == "Tensor":
        return recorded in _DTYPES or ((optional or undefined) and recorded == "")
    if recorded in _DTYPES:
        return False
    if inner.startswith("List["):
        return recorded in ("ScalarList", "Scalar") or (recorded == "" and (optional or "Optional" in inner))
    if inner in _SCALAR_KINDS:
        return recorded == "Scalar" or (recorded == "" and optional)
    return recorded in ("", "Scalar")


def _value(item: Any, call: OperatorCall, index: int, device: str) -> Any:
    recorded = call.arguments
    kind, dims, strides = recorded.types[index], recorded.dims[index], recorded.strides[index]
    if kind in _DTYPES:
        return make_tensor(dims, strides, _DTYPES[kind], device)
    if kind == "TensorList":
        dtype = _list_dtype(recorded.types)
        return [make_tensor(*pair, dtype, device) for pair in zip(dims, strides, strict=True)]
    text = recorded.concrete[index] if index < len(recorded.concrete) else ""
    if text == "":
        return _unrecorded(item)
    return _number(text)


def make_tensor(dims: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: str) -> torch.Tensor:
    """A tensor with these sizes and strides. An opaque layout (oneDNN's) has no recorded strides."""
    if len(strides) != len(dims):
        return torch.empty(tuple(dims), dtype=dtype, device=device)
    return torch.empty_strided(tuple(dims), tuple(strides), dtype=dtype, device=device)


def _list_dtype(types: Sequence[str]) -> torch.dtype:
    """The element type of a tensor list: not recorded, but taken from the call's other tensors where these agree."""
    found = {_DTYPES[kind] for kind in types if kind in _DTYPES}
    if len(found) != 1:
        raise UnboundCallError("the profiler does not record the element type of a list of tensors")
    return found.pop()


def _unrecorded(item: Any) -> Any:
    """The value of an argument that was ``None``, or that the profiler does not record (strings, devices)."""
    if item.has_default_value():
        return item.default_value
    if str(item.type) == "str":
        return "none"
    return [] if str(item.type).startswith("List[") else None


def _number(text: str) -> Any:
    special = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan, "-nan": math.nan}
    if text in special:
        return special[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise UnboundCallError(f"cannot read the recorded argument {text[:40]!r}") from error
