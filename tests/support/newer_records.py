"""Records as a newer version of the tool may write them: new fields, new items of lists, and new values of texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

Kind = tuple[str, ...]
"""Where a value stands: the keys to it, with ``*`` for each list."""

NEW = "later kind"
MAPPINGS = {"variables", "environment", "options", "config", "best_config", "own_config", "first_config"}
MAPPINGS |= {"second_config", "matmul_flops", "stalls", "with_zeros", "layer_classes"}
"""Objects whose keys are data, so that no version adds a field to them."""


def kinds_of_texts(data: Any) -> dict[Kind, str]:
    """Where texts stand in a record, each kind of place once, with the first text there."""
    found: dict[Kind, str] = {}
    for kind, value in _walk(data, ()):
        if isinstance(value, str):
            found.setdefault(kind, value)
    return found


def with_new_texts(data: Any, kinds: Iterable[Kind], new: str = NEW) -> Any:
    """The record with a new text at the first place of each kind. It shares with the record what has not changed."""
    for kind in dict.fromkeys(kinds):
        changed = _with_first_text(data, kind, new)
        data = data if changed is None else changed
    return data


def _with_first_text(node: Any, kind: Kind, new: str) -> Any:
    """The node with a new text; ``None`` if it has no text there."""
    if not kind:
        return new if isinstance(node, str) else None
    items = list(enumerate(node)) if isinstance(node, list) and kind[0] == "*" else []
    if isinstance(node, dict) and kind[0] in node:
        items = [(kind[0], node[kind[0]])]
    for place, item in items:
        changed = _with_first_text(item, kind[1:], new)
        if changed is not None:
            copy = node.copy()
            copy[place] = changed
            return copy
    return None


def with_texts(data: Any, kinds: Collection[Kind], change_text: Callable[[str], str]) -> Any:
    """The record with every text at these places changed."""
    return _changed(
        data, (), lambda kind, value: change_text(value) if isinstance(value, str) and kind in kinds else value
    )


def with_new_fields(data: Any) -> Any:
    """The record with a field more in each object."""

    def change(kind: Kind, value: Any) -> Any:
        is_record = isinstance(value, dict) and not MAPPINGS.intersection(kind[-1:])
        return {**value, NEW: {NEW: [NEW, 1, None]}} if is_record else value

    return _changed(data, (), change)


def with_new_items(data: Any, kept: Collection[Kind]) -> Any:
    """The record with an item more in each list: like the last one, with new texts except at the ``kept`` places."""

    def item_like(kind: Kind, item: Any) -> Any:
        return _changed(item, (*kind, "*"), lambda at, text: NEW if isinstance(text, str) and at not in kept else text)

    def change(kind: Kind, value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[-1], str | dict):
            return [*value, item_like(kind, value[-1])]
        return value

    return _changed(data, (), change)


def _walk(node: Any, kind: Kind) -> Iterator[tuple[Kind, Any]]:
    yield kind, node
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _walk(value, (*kind, key))
    elif isinstance(node, list):
        for value in node:
            yield from _walk(value, (*kind, "*"))


def _changed(node: Any, kind: Kind, change: Callable[[Kind, Any], Any]) -> Any:
    if isinstance(node, dict):
        node = {key: _changed(value, (*kind, key), change) for key, value in node.items()}
    elif isinstance(node, list):
        node = [_changed(value, (*kind, "*"), change) for value in node]
    return change(kind, node)
