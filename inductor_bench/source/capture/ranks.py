"""Finds the modules that are the same on several ranks of a distributed program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ..module.identity import module_id


def group_ranks(texts: Mapping[str, str], ranks: Mapping[str, Sequence[int | None]]) -> tuple[tuple[str, ...], ...]:
    """The modules by their paths, those that are the same on different ranks together, the lowest rank's first.

    Modules that one rank loaded stay apart, also those that differ only in the number of their device.

    Args:
        texts: the text of each module.
        ranks: the ranks that loaded a module; ``None`` outside of a distributed program.
    """
    loaded = {path: frozenset(rank for rank in ranks.get(path, ()) if rank is not None) for path in texts}
    groups: dict[str, tuple[str, ...]] = {path: (path,) for path in texts}
    if len(frozenset().union(*loaded.values())) < 2:
        return tuple(groups.values())
    same: dict[str, list[str]] = defaultdict(list)
    for path in sorted((path for path in texts if loaded[path]), key=lambda path: min(loaded[path])):
        known = same[module_id(texts[path])]
        owner = next((one for one in known if loaded[one].isdisjoint(loaded[path])), None)
        if owner is None:
            known.append(path)
        else:
            groups[owner] += groups.pop(path)
            loaded[owner] |= loaded[path]
    return tuple(groups.values())
