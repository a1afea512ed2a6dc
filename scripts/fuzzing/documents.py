"""JSON documents that are damaged, written as a later version may write them, or hold names that steer a terminal."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Sequence
from typing import Any

from .damages import LONG, MOST_BYTES, TERMINAL, json_values

STEERING = (
    *("\x1b[31m", "\x1b]0;title\x07", "\x1b[2J", "\x9b1m", "\r", "\x08", "\x7f", "\u200f", "\u061c", "\u202e"),
    *("\u2066", "\u2069", "\u2028", "\ufeff", "\U000e0041", "\n", "\x85", TERMINAL),
)
NEW_WORDS = ("telepathic", "new-kind", "fused_graph", "unheard of")
_KIND = re.compile(r"[a-z][a-z_ -]{1,30}")


class Document:
    """A JSON document that is damaged again and again. A place is drawn by its kind: rare keys as often as others."""

    def __init__(self, data: Any) -> None:
        self._text = json.dumps(data)
        self._kinds: dict[tuple[str, ...], list[tuple[str | int, ...]]] = {}
        self._collect(data, (), ())
        self._names = sorted(self._kinds)
        words = [name for name in self._names if _is_kind(_at(data, self._kinds[name][0]))]
        self._words = words or self._names

    def _collect(self, node: Any, path: tuple[str | int, ...], kind: tuple[str, ...]) -> None:
        if path:
            self._kinds.setdefault(kind, []).append(path)
        if isinstance(node, dict):
            for key, value in node.items():
                self._collect(value, (*path, key), (*kind, key))
        elif isinstance(node, list):
            for index, value in enumerate(node):
                self._collect(value, (*path, index), (*kind, "*"))

    def damaged(self, random: random.Random, hostile: Sequence[str]) -> bytes:
        """Its text with one to three values changed, taken away, repeated, renamed or swapped."""
        data, raw = json.loads(self._text), {}
        for number in range(random.choice((1, 1, 1, 2, 3))):
            path = random.choice(self._kinds[random.choice(self._names)])
            parent = data
            try:
                for step in path[:-1]:
                    parent = parent[step]
                old = parent[path[-1]]
            except (LookupError, TypeError):  # an earlier damage took it away
                continue
            if isinstance(parent, str):  # the mark of one
                continue
            mark = f"\ue000{number}\ue000"
            raw[json.dumps(mark)] = _change(random, parent, path[-1], old, mark, hostile)
        text = json.dumps(data)
        for mark, value in raw.items():
            text = text.replace(mark, value)
        return text.encode()[: 2 * MOST_BYTES]

    def written(self, random: random.Random) -> bytes:
        """Its text without damage."""
        return self._text.encode()

    def newer(self, random: random.Random) -> bytes:
        """Its text as a later version of the tool may write it: new words for kinds, new fields, a new format."""
        data = json.loads(self._text)
        if random.random() < 0.2 and isinstance(data, dict) and isinstance(data.get("format"), int):
            data["format"] += random.choice((1, 1, 7, 10**6))
        for _ in range(random.choice((1, 1, 2, 4))):
            path = random.choice(self._kinds[random.choice(self._words if random.random() < 0.6 else self._names)])
            parent = _at(data, path[:-1])
            old = parent[path[-1]]
            if _is_kind(old):
                parent[path[-1]] = random.choice(NEW_WORDS)
            elif isinstance(old, dict):
                old[random.choice(NEW_WORDS)] = random.choice(([], {"a": 1}, None, "x", 1.5))
            elif isinstance(parent, list) and isinstance(old, list | dict):
                parent.append(copy.deepcopy(old))
        return json.dumps(data).encode()

    def renamed(self, random: random.Random) -> bytes:
        """Its text with characters in one to four of its texts that steer a terminal or turn the direction of text."""
        data = json.loads(self._text)
        for _ in range(random.choice((1, 2, 4))):
            path = random.choice(self._kinds[random.choice(self._names)])
            parent, key = _at(data, path[:-1]), path[-1]
            if isinstance(parent[key], str):
                at = random.randrange(len(parent[key]) + 1)
                parent[key] = parent[key][:at] + random.choice(STEERING) + parent[key][at:]
            elif isinstance(parent, dict) and isinstance(key, str):
                parent[key + random.choice(STEERING)] = parent[key]
        return json.dumps(data).encode()


def _is_kind(value: Any) -> bool:
    """Whether a value may be one of a few words that the tool knows."""
    return isinstance(value, str) and _KIND.fullmatch(value) is not None


def _at(data: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        data = data[step]
    return data


def _change(random: random.Random, parent: Any, key: Any, old: Any, mark: str, hostile: Sequence[str]) -> str:
    """Damages one place; what is to stand where the mark was put."""
    draw = random.random()
    if draw < 0.62:
        parent[key] = mark
        return random.choice(_neighbours(old) if random.random() < 0.3 else json_values(hostile))
    if draw < 0.74:
        del parent[key]
    elif draw < 0.82 and isinstance(parent, list):
        parent[key:key] = _crowd(random, old)
    elif draw < 0.9 and isinstance(parent, dict):
        parent[random.choice((f"{key}x", "", "__class__", "x" * 300, mark))] = parent.pop(key)
    elif draw < 0.95:
        parent[key] = [old] if random.random() < 0.5 else {"value": old}
    else:
        others = list(parent) if isinstance(parent, dict) else range(len(parent))
        other = random.choice(list(others))
        parent[key], parent[other] = parent[other], old
    return '"\\u202e"'


def _crowd(random: random.Random, old: Any) -> list[Any]:
    """The element a thousand times or more, as it is or each with a name of its own."""
    times = min(random.choice((1_000, 5_000)), MOST_BYTES // (len(json.dumps(old)) + 20) // 2)
    if not isinstance(old, dict) or not isinstance(old.get("name"), str) or random.random() < 0.4:
        return [old] * times
    name = random.choice((old["name"], f"void f<{'x' * 100}>", "triton_poi_fused_"))
    return [{**old, "name": f"{name}{random.choice(('_', '<', ''))}{number}"} for number in range(times)]


def _neighbours(old: Any) -> list[str]:
    """Values like the old one that are wrong all the same."""
    if isinstance(old, bool) or old is None:
        return [json.dumps(str(old)), "0", "1", "2"]
    if isinstance(old, int | float):
        return [json.dumps(str(old)), f"{old}.5" if isinstance(old, int) else f"{old:.0f}", f"-{abs(old)}", f"[{old}]"]
    if isinstance(old, str):
        return [
            json.dumps(old + "x"),
            json.dumps(old * 300),
            json.dumps(old[::-1]),
            json.dumps([old]),
            json.dumps("\ud800"),
        ]
    return ["[]", "{}", "null", json.dumps(str(old)[:LONG])]
