"""Damage done at random to bytes, texts, JSON and what lies on disk. Everything is drawn from the generator given."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

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
