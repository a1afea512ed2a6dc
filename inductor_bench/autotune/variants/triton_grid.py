"""Configurations of a Triton kernel beyond those that Inductor lists: the neighbours of one, and all that make sense.

A ladder is the values that a field of a configuration may take, in order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from ...devices.nvidia.multiprocessor import ELEMENTS_OF_THREAD, THREADS_OF_WARP
from ...records.tuning import Config

Ladders = Mapping[str, Sequence[int]]

MOST_ELEMENTS = 1 << 20
"""Of a block: Triton's limit."""

MOST_COMBINATIONS = 20_000
_REACH = {"NUM_STAGES": 2}  # one stage may be better than two, and three better than one


def neighbours(config: Config, ladders: Ladders) -> list[Config]:
    """The configurations one step away on one ladder, as Inductor's coordinate descent takes them."""
    found = []
    for field, values in _including(config, ladders).items():
        place, reach = values.index(config[field]), _REACH.get(field, 1)
        near = [*values[place + 1 : place + 1 + reach], *values[max(place - reach, 0) : place]]
        found += [{**config, field: value} for value in near]
    return found


def grid(now: Config, ladders: Ladders, fixed_elements: int = 1) -> list[Config]:
    """Every combination of the ladders' values but ``now`` that gives threads enough to do and not too much.

    Those nearest to ``now`` come first, so that a budget leaves out the farthest.

    Args:
        now: the configuration that is not listed.
        ladders: of the fields to vary.
        fixed_elements: of a block, in directions that no field gives.
    """
    kept = _narrowed(now, _including(now, ladders))
    every = [{**now, **dict(zip(kept, values, strict=True))} for values in itertools.product(*kept.values())]
    sound = [config for config in every if config != now and is_sound(config, fixed_elements)]
    return sorted(sound, key=lambda config: sum(_steps(kept[field], now[field], config[field]) for field in kept))


def is_sound(config: Config, fixed_elements: int = 1) -> bool:
    """Whether every thread has an element, and none more than it has registers for; true where no blocks are known."""
    blocks: list[int] = [value for field, value in config.items() if field.endswith("BLOCK")]
    if not blocks and fixed_elements == 1:
        return True
    elements, threads = math.prod(blocks) * fixed_elements, int(config["num_warps"]) * THREADS_OF_WARP
    busy = elements >= threads or threads == THREADS_OF_WARP
    return busy and elements <= min(threads * ELEMENTS_OF_THREAD, MOST_ELEMENTS)


def _including(config: Config, ladders: Ladders) -> dict[str, list[int]]:
    """The ladders of the fields that a configuration has, its own values among theirs."""
    return {field: sorted({*values, config[field]}) for field, values in ladders.items() if field in config}


def _narrowed(now: Config, ladders: Ladders) -> dict[str, list[int]]:
    """The ladders, the longest cut at its far end until their combinations can be listed."""
    kept = {field: list(values) for field, values in ladders.items()}
    while math.prod(map(len, kept.values())) > MOST_COMBINATIONS:
        field, longest = max(kept.items(), key=lambda item: len(item[1]))
        place = longest.index(now[field])
        kept[field] = longest[1:] if place > len(longest) - 1 - place else longest[:-1]
    return kept


def _steps(values: Sequence[int], one: int, other: int) -> int:
    return abs(list(values).index(one) - list(values).index(other))
