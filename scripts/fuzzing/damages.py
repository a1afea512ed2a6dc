"""Damage done at random to bytes, texts, JSON and what lies on disk. Everything is drawn from the generator given."""

from __future__ import annotations

import copy
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MOST_BYTES = 3_000_000
"""No damage makes an input larger than that."""

LONG = 60_000
DEEP = 5_000
TERMINAL = "\x1b]0;title\x07\x1b[31mred\u202eleft"
NUMBERS = ("-1", "0", "1", "1.5", "-0.0", "1e308", "-1e308", "5e-324", "1e999", "-1e999", "1" + "0" * 400, "9" * 5_000)
LARGE = (str(2**31), str(2**53 + 1), str(2**63), str(2**64), str(-(2**63) - 1), "1" + "0" * 25)
LITERALS = ("NaN", "Infinity", "-Infinity", "null", "true", "false")
TEXTS = (
    "",
    " ",
    "x" * LONG,
    "void f<" * 5_000,
    "(" * DEEP,
    "a" * 300,
    "nul\0byte",
    "new\nline\r\n",
    TERMINAL,
    "/abs/path",
    "../../x",
    "..",
    ".",
    "/",
    "a/" * 2_500,
    "=cmd|' /C calc'!A0",
    "<script>alert(1)</script>",
    "**",
    "%s{0}$(touch pwned)",
    "1",
    "nan",
    "Ω≈ç√∫",
)
NESTED = ("[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP, "[[]]", "[]", "{}", "[null]", '{"": null}')
WORDS = (
    b"\xff",
    b"\x00",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\x1b]0;t\x07",
    b"1e999",
    b"9" * 5_000,
    b"(" * DEEP,
)


def json_values(hostile: Sequence[str]) -> list[str]:
    """JSON texts, each to stand in the place of a value; ``hostile`` are paths to point at."""
    texts = [json.dumps(text) for text in (*TEXTS, *hostile)]
    return [*NUMBERS, *LARGE, *LITERALS, *NESTED, *texts, '"\\ud800"']


def damage_bytes(random: random.Random, data: bytes) -> bytes:
    """The bytes with one to three wounds."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        data = random.choice(_WOUNDS)(random, data)
    return data[:MOST_BYTES]


def _flip(random: random.Random, data: bytes) -> bytes:
    if not data:
        return data
    place = random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]


def _slice(random: random.Random, data: bytes) -> tuple[int, int]:
    begin = random.randrange(len(data) + 1)
    return begin, min(len(data), begin + random.choice((1, 4, 30, 500, 5_000)))


def _drop(random: random.Random, data: bytes) -> bytes:
    begin, end = _slice(random, data)
    return data[:begin] + data[end:]


def _repeat(random: random.Random, data: bytes) -> bytes:
    begin, end = _slice(random, data)
    return data[:begin] + data[begin:end] * random.choice((2, 2, 10, 300)) + data[end:]


def _whiten(random: random.Random, data: bytes) -> bytes:
    begin, end = _slice(random, data)
    return data[:begin] + random.choice((b"\xff", b"\0", b" ")) * (end - begin) + data[end:]


def _insert(random: random.Random, data: bytes) -> bytes:
    place = random.randrange(len(data) + 1)
    word = random.choice(WORDS) if random.random() < 0.7 else random.randbytes(random.choice((1, 3, 50)))
    return data[:place] + word + data[place:]


_WOUNDS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flip,
    _flip,
    _flip,
    _insert,
    _insert,
    _drop,
    _repeat,
    _whiten,
    lambda random, data: data[: random.randrange(len(data) + 1)],
    lambda random, data: b"" if random.random() < 0.3 else _flip(random, data),
)


def damage_text(random: random.Random, text: str, hostile: Sequence[str]) -> bytes:
    """A text with a number, a name, a string or a line changed, or with wounds in its bytes."""
    if random.random() < 0.4:
        return damage_bytes(random, text.encode())
    for _ in range(random.choice((1, 1, 2, 3))):
        pattern, values = random.choice(_PIECES)
        places = [found.span() for found in re.finditer(pattern, text)]
        if not places:
            continue
        begin, end = random.choice(places)
        value = random.choice((*values, *hostile) if values is TEXTS else values)
        text = text[:begin] + (value if random.random() < 0.8 else text[begin:end] * 100) + text[end:]
    return text.encode(errors="surrogatepass")[:MOST_BYTES]


_PIECES: tuple[tuple[str, Sequence[str]], ...] = (
    (r"\b\d+(\.\d+)?\b", (*NUMBERS, *LARGE, "1" + "+1" * DEEP)),
    (r"\b[A-Za-z_]\w*\b", ("x", "0", "None", "lambda", "(" * DEEP + ")" * DEEP, "x" * LONG, "-" * DEEP + "1")),
    (r"(?<=')[^'\n]*(?=')|(?<=\")[^\"\n]*(?=\")", TEXTS),
    (r"[^\s]*/[^\s]*", TEXTS),
    (r"(?m)^.*\n", ("", "\n", "    pass\n", "'''\n", '"""\n', ")\n", "\x0c\n", "# AOT ID: ['1_inference']\n")),
    (r"[()\[\]{},:]", ("", "(", ")", "[", "]", "{", ",", ":", "[" * DEEP, "(" * 150 + ")" * 150)),
)


class Document:
    """A JSON document that is damaged again and again. A place is drawn by its kind: rare keys as often as others."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._kinds: dict[tuple[str, ...], list[tuple[str | int, ...]]] = {}
        self._collect(data, (), ())
        self._names = sorted(self._kinds)

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
        data, raw = copy.deepcopy(self._data), {}
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


def replace_item(random: random.Random, path: Path, victim: Path) -> str:
    """Puts something else in the place of a file or folder, which need not be there; says what."""
    what = random.choice(("gone", "empty", "folder", "link", "link", "twin", "fifo", "broken", "closed", "loop"))
    if what == "closed" and path.exists():
        path.chmod(0)
        return what
    if what == "twin" and path.exists():  # the same content, outside
        twin = victim / "twin"
        shutil.move(path, twin)
        path.symlink_to(twin)
        return what
    folder = path.is_dir() or not path.suffix
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or path.exists():
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    if what == "empty":
        path.touch()
    elif what == "folder":
        (path / "inner").mkdir(parents=True)
    elif what in ("link", "twin"):
        aim = victim / ("folder" if folder != (random.random() < 0.15) else "secret.txt")
        path.symlink_to(aim if random.random() < 0.5 else os.path.relpath(aim, path.parent))
    elif what == "fifo":
        os.mkfifo(path)
    elif what in ("broken", "closed"):
        path.symlink_to(victim / "new")
    elif what == "loop":
        path.symlink_to(path.name)
    return what
