"""Which part of a library call's work each of its kernels does.

One call may launch several kernels. The two gradients of a convolution are two pieces of work of the same size; a copy
into another layout is a piece of its own, recorded as an operator inside; and some kernels only prepare or gather up
what the others work on. Only what remains is taken to be one piece of work that the kernels share.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..records.traced.activity import Activity
from ..records.traced.trace import TensorArguments

MOVES = frozenset({"aten::copy_", "aten::fill_", "aten::zero_"})
"""Operators that only move data, and that others call for it."""

HELPERS = re.compile(
    r"splitk_?reduce|[a-z0-9]_reduce(_kernel)?$|reduce_wgrad|helper_kernel|tensortransform|nchwtonhwc|nhwctonchw"
    r"|nhwcslice|addpadding|generictranspose|converttensor|scalepackedtensor|computeoffsets|winogradtiles|dot_do_o"
    r"|convert_dq|splitkv_combine",
    re.IGNORECASE,
)
"""Kernels that libraries launch around the one that does the work."""

_MASK = 10  # the place of output_mask among the arguments of aten::convolution_backward
_INPUT = re.compile(r"dgrad|backward_data|depthwise\dd_backward_kernel", re.IGNORECASE)
_WEIGHT = re.compile(r"wgrad|backward_filter|grad_weight", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Part:
    """What an activity worked on: an operator call as it would have been recorded had nothing else been asked for.

    ``label`` tells it from the whole call in a table, and is empty for that.
    """

    operator: str
    arguments: TensorArguments
    label: str = ""


def find_parts(activities: Sequence[Activity]) -> tuple[Part | None, ...]:
    """The part of each activity, in order; ``None`` for what is no library kernel, or does nothing that is counted."""
    calls: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, activity in enumerate(activities):
        if activity.kind == "kernel" and activity.kernel is None and activity.operator and activity.arguments:
            calls[activity.iteration, activity.instance].append(index)
    parts: list[Part | None] = [None] * len(activities)
    for places in calls.values():
        for place, part in zip(places, _divide([activities[place] for place in places]), strict=True):
            parts[place] = part
    return tuple(parts)


def _divide(members: Sequence[Activity]) -> list[Part | None]:
    """The parts of the kernels of one call, given in the order in which they ran."""
    whole = _whole(members[0])
    parts = [_moved(member) for member in members]
    rest = [place for place, part in enumerate(parts) if part is None]
    if not rest:
        return [whole] * len(members)
    workers = [place for place in rest if not HELPERS.search(members[place].name)] or rest
    for place, part in zip(workers, _gradients(whole, [members[place].name for place in workers]), strict=True):
        parts[place] = part
    return parts


def _whole(activity: Activity) -> Part | None:
    if activity.operator is None or activity.arguments is None:
        return None
    return Part(activity.operator, activity.arguments)


def _moved(activity: Activity) -> Part | None:
    if activity.inner is None or activity.inner[0] not in MOVES:
        return None
    operator, arguments = activity.inner
    return Part(operator, arguments, operator.partition("::")[2])


def _gradients(whole: Part | None, names: Sequence[str]) -> Sequence[Part | None]:
    """Which of a convolution's gradients each kernel computes; all of them share the call where that is not clear."""
    shared = [whole] * len(names)
    if whole is None or whole.operator != "aten::convolution_backward" or len(whole.arguments.concrete) <= _MASK:
        return shared
    mask = [word == "True" for word in re.findall("True|False", whole.arguments.concrete[_MASK])]
    sides = _sides(names) if len(mask) == 3 and mask[0] and mask[1] else None
    if sides is None:
        return shared
    narrow = {
        "input": _asked_for(whole, [True, False, False], "input gradient"),
        "weight": _asked_for(whole, [False, True, mask[2]], "weight gradient"),
    }
    return [narrow[side] for side in sides]


def _sides(names: Sequence[str]) -> list[str] | None:
    """By the kernels' names, and where one says nothing by order: cuDNN is asked for the input's gradient first.

    (2.11) On an H200 this divided 72 calls of 12 shapes, in three types and two layouts, as asking for one gradient at
    a time did.
    """
    inputs = [place for place, name in enumerate(names) if _INPUT.search(name)]
    weights = [place for place, name in enumerate(names) if _WEIGHT.search(name)]
    if not inputs and not weights:
        return ["input", "weight"] if len(names) == 2 else None
    if inputs and weights and len(inputs) + len(weights) == len(names):
        return ["input" if place in inputs else "weight" for place in range(len(names))]
    # Names leave no doubt where those of one gradient end and those of the other begin, or leave out one of the two.
    end = inputs[-1] + 1 if inputs else weights[0]
    start = weights[0] if weights else end
    if not 0 < end == start < len(names):
        return None
    return ["input"] * end + ["weight"] * (len(names) - end)


def _asked_for(whole: Part, mask: list[bool], label: str) -> Part:
    concrete = list(whole.arguments.concrete)
    concrete[_MASK] = str(mask)
    return replace(whole, arguments=replace(whole.arguments, concrete=tuple(concrete)), label=label)
