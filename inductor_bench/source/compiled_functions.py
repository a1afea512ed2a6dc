"""What the structured trace says of each function that Dynamo compiled: its compilations, their limit, and sizes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..records.code import CompiledFunction

_LIMIT = re.compile(r"recompile[ _]limit|RecompileLimitExceeded|cache_size_limit", re.IGNORECASE)
_SIZE = re.compile(
    r"^(?:\d+/\d+: *)?tensor '(?P<name>.+?)' size mismatch at index (?P<index>\d+)\. "
    r"expected (?P<expected>\d+), actual (?P<actual>\d+)"
)
_EARLIER = re.compile(r"^\d+/(\d+): ")
_PLAIN_NAME = re.compile(r"\w{1,40}")


class ObjectName(NamedTuple):
    """What a process observed of a compiled object; see ``messages.observed.CompiledObject``."""

    name: str
    alike: int = 1
    wrapped: int = 0


Sizes = dict[tuple[str, int], int]
"""A size by the tensor's name and the dimension."""


@dataclass
class FunctionLog:
    """The compilations of one function in one process."""

    function: CompiledFunction
    sizes: dict[int, Sizes] = field(default_factory=dict)  # of each compilation, where another has other sizes

    def take_reasons(self, compilation: int, payload: str) -> None:
        """Reads why a compilation was needed: the failed guard of each earlier one, the latest first."""
        self.function = replace(self.function, recompilations=self.function.recompilations + 1)
        for reason in _reasons(payload):
            size, earlier = _SIZE.search(reason), _EARLIER.match(reason)
            if size and earlier:
                key = size["name"], int(size["index"])
                self.sizes.setdefault(int(earlier[1]), {}).setdefault(key, int(size["expected"]))
                self.sizes.setdefault(compilation, {}).setdefault(key, int(size["actual"]))

    def take_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Reads the metrics of one compilation."""
        guards, said = metrics.get("guard_count"), f"{metrics.get('fail_type')} {metrics.get('fail_reason')}"
        config = metrics.get("dynamo_config")
        self.function = replace(
            self.function,
            guards=max(self.function.guards, guards if isinstance(guards, int) else 0),
            reached_limit=self.function.reached_limit or bool(_LIMIT.search(said)),
            dynamic=self.function.dynamic if self.function.dynamic is not None else _dynamic(config),
        )

    def size_words(self, compilation: int) -> str:
        """What tells a compilation from the others of this function: ``7 rows``; empty if no size does."""
        mine = self.sizes.get(compilation, {})
        for (name, index), size in mine.items():
            known = [one.get((name, index)) for one in self.sizes.values()]
            if len(self.sizes) > 1 and None not in known and len(set(known)) == len(known):
                return size_words(name, index, size)
        return ""


def size_words(name: str, index: int, size: int) -> str:
    """One size in words: ``7 rows``, or ``x[1] = 16`` for another dimension than the first."""
    if index == 0:
        return "1 row" if size == 1 else f"{size} rows"
    return f"{name}[{index}] = {size}" if _PLAIN_NAME.fullmatch(name) else f"[{index}] = {size}"


def joined(functions: Iterable[CompiledFunction]) -> tuple[CompiledFunction, ...]:
    """The functions of several processes: of one place the one with the most recompilations."""
    found: dict[str, CompiledFunction] = {}
    for one in functions:
        known = found.get(one.place)
        if known is None:
            found[one.place] = one
            continue
        found[one.place] = replace(
            max(known, one, key=lambda function: function.recompilations),
            guards=max(known.guards, one.guards),
            reached_limit=known.reached_limit or one.reached_limit,
        )
    return tuple(found.values())


def _reasons(payload: str) -> list[str]:
    try:
        said = json.loads(payload)
    except ValueError:
        return [payload]  # a single reason is no JSON
    except RecursionError:
        return []
    return [one for one in said if isinstance(one, str)] if isinstance(said, list) else []


def _dynamic(config: object) -> bool | None:
    """What the program passed as ``dynamic``, as far as Dynamo's settings tell; ``None`` for nothing. (2.13)"""
    if not isinstance(config, str):
        return None
    try:
        found = json.loads(config)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    if found.get("assume_static_by_default") is False:
        return True
    return False if found.get("automatic_dynamic_shapes") is False else None
