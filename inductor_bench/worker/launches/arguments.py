"""Converts the arguments of a call to records: each value by its kind, tensors as views of regions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from ...records.code.launch import Argument, TensorView
from .regions import Region, is_plain

NONE = Argument("none")


def find_tensors(value: Any) -> Iterator[torch.Tensor]:
    """The plain tensors in an argument, in the order of :func:`describe_argument`."""
    if isinstance(value, torch.Tensor):
        if is_plain(value):
            yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from find_tensors(item)


def describe_views(tensors: list[torch.Tensor], regions: Iterable[Region]) -> list[TensorView]:
    """Each tensor as a view of one of the regions that ``find_regions`` found."""
    views: dict[int, TensorView] = {}
    for number, region in enumerate(regions):
        for index in region.views:
            tensor = tensors[index]
            itemsize = tensor.element_size()
            views[index] = TensorView(
                storage=number,
                offset=int(tensor.storage_offset()) - region.start // itemsize,
                shape=tuple(map(int, tensor.shape)),
                stride=tuple(map(int, tensor.stride())),
                dtype=name_of(tensor.dtype),
                itemsize=itemsize,
            )
    return [views[index] for index in range(len(tensors))]


def describe_argument(value: Any, views: Iterator[TensorView]) -> Argument:
    """The record of one argument.

    A bool becomes the integer 0 or 1. A float without a JSON form becomes text: ``inf``, ``-inf`` or ``nan``.

    Args:
        value: the argument.
        views: yields the views of its tensors in order.
    """
    if isinstance(value, torch.Tensor):
        return Argument("tensor", tensor=next(views)) if is_plain(value) else opaque(_describe_special(value))
    if value is None:
        return NONE
    if isinstance(value, list | tuple):
        return Argument("list", items=tuple(describe_argument(item, views) for item in value))
    for kinds, describe in _DESCRIPTIONS:
        if isinstance(value, kinds):
            return describe(value)
    return opaque(type(value).__name__)


def opaque(text: str) -> Argument:
    """An argument that cannot be made again; ``text`` describes it."""
    return Argument("opaque", text=text)


def name_of(value: Any) -> str:
    """torch's name of a dtype, layout or memory format, without the prefix ``torch.``."""
    return str(value).removeprefix("torch.")


def _describe_float(value: Any) -> Argument:
    number = float(value)
    return Argument("float", number=number) if math.isfinite(number) else Argument("float", text=str(number))


def _describe_special(value: torch.Tensor) -> str:
    layout = name_of(value.layout).removeprefix("_")
    kind = layout if type(value) in (torch.Tensor, torch.nn.Parameter) else type(value).__name__
    return f"{kind} {name_of(value.dtype)}{list(value.shape)}"


_DESCRIPTIONS: tuple[tuple[tuple[type, ...], Callable[[Any], Argument]], ...] = (
    ((bool, torch.SymBool), lambda value: Argument("bool", integer=int(bool(value)))),
    ((int, torch.SymInt), lambda value: Argument("int", integer=int(value))),
    ((float, torch.SymFloat), _describe_float),
    ((str,), lambda value: Argument("text", text=value)),
    ((torch.dtype,), lambda value: Argument("dtype", text=name_of(value))),
    ((torch.device,), lambda value: Argument("device", text=value.type)),
    ((torch.layout,), lambda value: Argument("layout", text=name_of(value))),
    ((torch.memory_format,), lambda value: Argument("memory_format", text=name_of(value))),
)
