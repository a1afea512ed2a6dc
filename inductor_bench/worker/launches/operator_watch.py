"""Observes the library calls of a compiled module: the outermost operators that torch dispatches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_NO_WORK = {
    "aten._assert_tensor_metadata",
    "aten._reshape_alias",
    "aten._unsafe_view",
    "aten.empty",
    "aten.empty_like",
    "aten.empty_permuted",
    "aten.empty_strided",
    "aten.new_empty",
    "aten.new_empty_strided",
    "aten.record_stream",
    "aten.resize_",
    "aten.set_",
    "inductor._alloc_from_pool",
    "inductor._reinterpret_tensor",
    "prim.device",
    "prim.layout",
}
_OVERWRITES = {"copy_", "zero_", "fill_", "random_", "normal_", "uniform_", "bernoulli_", "exponential_"}


@dataclass(frozen=True)
class OperatorUse:
    """One call of an operator. Indices count the positional arguments, then the keyword arguments in order.

    Attributes:
        name: the full name of the overload.
        arguments, keywords: positional and keyword arguments.
        written: indices of the arguments that the call writes.
        output_only: indices of written arguments that the call does not read.
        groups: indices of names of process groups, which are invalid in another process.
        clears: whether the call fills its first argument with zeros.
    """

    name: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    written: frozenset[int] = frozenset()
    output_only: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()
    clears: bool = False


class OperatorWatch(TorchDispatchMode):
    """A dispatch mode that replaces each outermost operator call of this thread by a call of ``on_call``."""

    supports_higher_order_operators = True

    def __init__(self, on_call: Callable[[OperatorUse, Callable[[], Any]], Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._on_call = on_call

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        use = read_use(func, tuple(args), keywords)
        return func(*args, **keywords) if use is None else self._on_call(use, lambda: func(*args, **keywords))


def read_use(function: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> OperatorUse | None:
    """The use of the arguments by a dispatched call; ``None`` for allocations, views and assertions.

    A higher-order operator that only runs another operator in some state counts as the other operator.
    """
    if not isinstance(function, torch._ops.OpOverload):
        return _read_higher_order(function, arguments, keywords)
    packet = f"{function.namespace}.{function._schema.name.partition('::')[2]}"
    if packet in _NO_WORK or function.is_view or function.namespace == "profiler":
        return None
    places = _places(function, arguments, keywords)
    base = packet.partition(".")[2]
    written = {
        places[item.name]
        for item in function._schema.arguments
        if item.name in places and item.alias_info is not None and item.alias_info.is_write
    }
    output_only = {
        places[item.name]
        for item in function._schema.arguments
        if places.get(item.name) in written and (item.kwarg_only or item.name == "out" or base in _OVERWRITES)
    }
    groups = {place for name, place in places.items() if name == "group_name"}
    return OperatorUse(
        str(function),
        arguments,
        keywords,
        frozenset(written),
        frozenset(output_only),
        frozenset(groups),
        clears=base == "zero_" or (base == "fill_" and len(arguments) > 1 and _is_zero(arguments[1])),
    )


def _places(function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, int]:
    names = [item.name for item in function._schema.arguments]
    positional = {name: index for index, name in enumerate(names[: len(arguments)])}
    return positional | {name: len(arguments) + index for index, name in enumerate(keywords)}


def _read_higher_order(function: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> OperatorUse | None:
    for index, value in enumerate(arguments):
        if isinstance(value, torch._ops.OpOverload):
            kept = {name: item for name, item in keywords.items() if name != "rng_state"}
            return read_use(value, arguments[index + 1 :], kept)
    return OperatorUse(f"higher_order.{function.name()}", arguments, keywords)


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and value == 0
