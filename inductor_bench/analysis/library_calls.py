"""Assigns activities to categories, and divides the work of a library call among the kernels that it launches."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..records.base import Category
from ..records.traced import Activity, TensorArguments

# Assigns each activity to a category.
#
# The evidence in order of precedence: the kind of device activity, the kernel's definition, the operator that launched
# the activity, and last its name.


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
    """Returns the category of an activity; ``other`` if its name is unfamiliar and all other evidence is missing."""
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


# Short notation for the recorded arguments of an operator, as tables show them.


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


# Divides the work of a library call among the kernels that the call launches.
#
# One call may launch several kernels. The two gradients of a convolution are two parts with the same amount of work. A
# copy into another layout is a separate part, which the profiler records as an inner operator. Helper kernels prepare
# inputs or combine results and do no counted work. All other kernels of a call share one part.


MOVES = frozenset({"aten::copy_", "aten::fill_", "aten::zero_"})
"""Inner operators that only move data."""

HELPERS = re.compile(
    r"splitk_?reduce|[a-z0-9]_reduce(_kernel)?$|reduce_wgrad|helper_kernel|tensortransform|nchwtonhwc|nhwctonchw"
    r"|nhwcslice|addpadding|generictranspose|converttensor|scalepackedtensor|computeoffsets|winogradtiles|dot_do_o"
    r"|convert_dq|splitkv_combine|lean_reduction|direct_copy_kernel",
    re.IGNORECASE,
)
"""Matches the names of helper kernels, which libraries launch before or after the kernel that does the work.

Among them are copies without an inner operator: ``addmm`` copies what it adds into its output.
"""

_MASK = 10  # index of output_mask among the arguments of aten::convolution_backward
_INPUT = re.compile(r"dgrad|backward_data|depthwise\dd_backward_kernel", re.IGNORECASE)
_WEIGHT = re.compile(r"wgrad|backward_filter|grad_weight", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OperatorPart:
    """A part of a library call, written as the operator call that would do only this part.

    ``label`` names the part in a table; it is empty for the whole call.
    """

    operator: str
    arguments: TensorArguments
    label: str = ""


def find_parts(activities: Sequence[Activity]) -> tuple[OperatorPart | None, ...]:
    """Returns the part of each activity, in order; ``None`` for helper kernels and for activities of other kinds."""
    calls: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, activity in enumerate(activities):
        if activity.kind == "kernel" and activity.kernel is None and activity.operator and activity.arguments:
            calls[activity.iteration, activity.instance].append(index)
    parts: list[OperatorPart | None] = [None] * len(activities)
    for places in calls.values():
        for place, part in zip(places, _divide([activities[place] for place in places]), strict=True):
            parts[place] = part
    return tuple(parts)


def _divide(members: Sequence[Activity]) -> list[OperatorPart | None]:
    """The parts of the kernels of one call, given in the order in which they ran."""
    whole = _whole_call(members[0])
    parts = [_inner_part(member) for member in members]
    rest = [place for place, part in enumerate(parts) if part is None]
    if not rest:
        return [whole] * len(members)
    workers = [place for place in rest if not HELPERS.search(members[place].name)] or rest
    for place, part in zip(workers, _gradients(whole, [members[place].name for place in workers]), strict=True):
        parts[place] = part
    return parts


def _whole_call(activity: Activity) -> OperatorPart | None:
    if activity.operator is None or activity.arguments is None:
        return None
    return OperatorPart(activity.operator, activity.arguments)


def _inner_part(activity: Activity) -> OperatorPart | None:
    if activity.inner is None or activity.inner[0] not in MOVES:
        return None
    operator, arguments = activity.inner
    return OperatorPart(operator, arguments, operator.partition("::")[2])


def _gradients(whole: OperatorPart | None, names: Sequence[str]) -> Sequence[OperatorPart | None]:
    """The gradient of a convolution that each kernel computes; the whole call for all if the names leave doubt."""
    shared = [whole] * len(names)
    if whole is None or whole.operator != "aten::convolution_backward" or len(whole.arguments.concrete) <= _MASK:
        return shared
    mask = [word == "True" for word in re.findall("True|False", whole.arguments.concrete[_MASK])]
    sides = _sides(names) if len(mask) == 3 and mask[0] and mask[1] else None
    if sides is None:
        return shared
    narrow = {
        "input": _narrow(whole, [True, False, False], "input gradient"),
        "weight": _narrow(whole, [False, True, mask[2]], "weight gradient"),
    }
    return [narrow[side] for side in sides]


def _sides(names: Sequence[str]) -> list[str] | None:
    """Returns ``input`` or ``weight`` for each kernel, by its name or else by its position; ``None`` in doubt."""
    inputs = [place for place, name in enumerate(names) if _INPUT.search(name)]
    weights = [place for place, name in enumerate(names) if _WEIGHT.search(name)]
    if not inputs and not weights:
        return ["input", "weight"] if len(names) == 2 else None
    if inputs and weights and len(inputs) + len(weights) == len(names):
        return ["input" if place in inputs else "weight" for place in range(len(names))]
    # The kernels of the input's gradient come first. If the names leave open where they end, the result is ``None``.
    end = inputs[-1] + 1 if inputs else weights[0]
    start = weights[0] if weights else end
    if not 0 < end == start < len(names):
        return None
    return ["input"] * end + ["weight"] * (len(names) - end)


def _narrow(whole: OperatorPart, mask: list[bool], label: str) -> OperatorPart:
    concrete = list(whole.arguments.concrete)
    concrete[_MASK] = str(mask)
    return replace(whole, arguments=replace(whole.arguments, concrete=tuple(concrete)), label=label)
