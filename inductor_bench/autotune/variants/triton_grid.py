"""Computes configurations of a Triton kernel that Inductor does not list: neighbours, and the grid of all sound ones.

A ladder holds the possible values of one field of a configuration, in ascending order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from ...devices.nvidia.multiprocessor import ELEMENTS_OF_THREAD, THREADS_OF_WARP
from ...records.tuning import Config

Ladders = Mapping[str, Sequence[int]]

MOST_ELEMENTS = 1 << 20
"""Triton's limit for the elements of a block."""

MOST_COMBINATIONS = 20_000
"""Maximum number of configurations in a grid."""
_REACH = {"NUM_STAGES": 2}  # two steps: three stages may be faster than one even where two are slower


def neighbours(config: Config, ladders: Ladders) -> list[Config]:
    """The configurations one step of Inductor's coordinate descent away from ``config``."""
    found = []
    for field, values in _including(config, ladders).items():
        place, reach = values.index(config[field]), _REACH.get(field, 1)
        near = [*values[place + 1 : place + 1 + reach], *values[max(place - reach, 0) : place]]
        found += [{**config, field: value} for value in near]
    return found


def grid(now: Config, ladders: Ladders, fixed_elements: int = 1) -> list[Config]:
    """Every sound combination of the ladders' values except ``now``.

    The configurations nearest to ``now`` come first, so that a budget leaves out the farthest.

    Args:
        now: the present configuration.
        ladders: the ladders of the fields to vary.
        fixed_elements: the elements of a block in the directions that no field sets.
    """
    kept = _narrowed(now, _including(now, ladders))
    every = [{**now, **dict(zip(kept, values, strict=True))} for values in itertools.product(*kept.values())]
    sound = [config for config in every if config != now and is_sound(config, fixed_elements)]
    return sorted(sound, key=lambda config: sum(_steps(kept[field], now[field], config[field]) for field in kept))


def is_sound(config: Config, fixed_elements: int = 1) -> bool:
    """Whether every thread has at least one element and at most as many as its registers hold.

    Returns true for a configuration without block sizes.
    """
    blocks: list[int] = [value for field, value in config.items() if field.endswith("BLOCK")]
    if not blocks and fixed_elements == 1:
        return True
    elements, threads = math.prod(blocks) * fixed_elements, int(config["num_warps"]) * THREADS_OF_WARP
    busy = elements >= threads or threads == THREADS_OF_WARP
    return busy and elements <= min(threads * ELEMENTS_OF_THREAD, MOST_ELEMENTS)


def _including(config: Config, ladders: Ladders) -> dict[str, list[int]]:
    """The ladders of the configuration's fields, extended by the configuration's own values."""
    return {field: sorted({*values, config[field]}) for field, values in ladders.items() if field in config}


def _narrowed(now: Config, ladders: Ladders) -> dict[str, list[int]]:
    """The ladders, cut to ``MOST_COMBINATIONS`` combinations: the longest loses its end far from ``now`` first."""
    kept = {field: list(values) for field, values in ladders.items()}
    while math.prod(map(len, kept.values())) > MOST_COMBINATIONS:
        field, longest = max(kept.items(), key=lambda item: len(item[1]))
        place = longest.index(now[field])
        kept[field] = longest[1:] if place > len(longest) - 1 - place else longest[:-1]
    return kept


def _steps(values: Sequence[int], one: int, other: int) -> int:
    return abs(list(values).index(one) - list(values).index(other))
