"""Reads the documentation's Markdown: its links, its anchors, its code, and the commands and record fields in it."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

BLOCK = re.compile(r"^( *)(```+|~~~+).*\n(?P<text>(?:.*\n)*?)\1\2 *$", re.MULTILINE)
INLINE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?[^)]*\)|(?:src|href)=\"([^\"]+)\"")
REFERENCE = re.compile(r"^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
COMMAND = re.compile(r"(?:^|\$\(|&& |; |  )\s*(?:[$>] )?(?:\w+=\S+ )*inductor-bench(?= )([^\n]*)", re.MULTILINE)
PATH = re.compile(r"[a-z][a-z0-9_]*(?:\[\])?(?:\.[a-z][a-z0-9_]*(?:\[\])?)+")
MEASURED = re.compile(r"(?:\w+_)?(?:times?|samples|limit|saving|median|longest|floor)_s|\w+_(?:bytes|share)")
SUFFIXES = ("py", "json", "html", "md", "csv", "txt", "yaml", "png", "log", "sh", "zip", "parquet")


class Page(NamedTuple):
    """A page: its ``prose`` is the text without blocks of code, ``blocks`` are the texts of these."""

    prose: str
    blocks: tuple[str, ...]


def read(text: str) -> Page:
    text = COMMENT.sub("", text)
    return Page(BLOCK.sub("", text), tuple(match["text"] for match in BLOCK.finditer(text)))


def links(page: Page) -> list[str]:
    """The targets of all links and images, those of other sites included."""
    prose = INLINE.sub(lambda found: "`" * len(found[0]), page.prose)
    return [found[1] or found[2] for found in LINK.finditer(prose)] + REFERENCE.findall(prose)


def anchors(page: Page) -> set[str]:
    """The anchors that hosts of code make from the headings, and those that the page has itself."""
    found = re.findall(r"(?:id|name)=\"([^\"]+)\"", page.prose)
    seen: Counter[str] = Counter()
    for heading in HEADING.findall(page.prose):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.append(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return set(found)


def spans(page: Page) -> Iterator[str]:
    """Code within the prose, each on one line."""
    return (" ".join(found[2].split()) for found in INLINE.finditer(page.prose))


def commands(page: Page) -> Iterator[str]:
    """What follows ``inductor-bench`` in code, without comments and explanations."""
    for block in page.blocks:
        for found in COMMAND.finditer(re.sub(r" *\\\n *", " ", block)):
            line = found[1].partition(")")[0] if found[0].startswith("$(") else found[1]
            yield re.split(r" {2,}", line.strip())[0]
    for span in spans(page):
        if span.startswith("inductor-bench "):
            yield span.removeprefix("inductor-bench ").strip()


def words_of(command: str) -> list[str]:
    """The words of a command before the shell's operators; of alternatives, as in ``a|b``, the first."""
    words: list[str] = []
    for word in shlex.split(command, comments=True):
        if word in ("|", ">", ">>", "<", "&&", "||", ";", "2>&1", "&"):
            break
        words.append(word.partition("|")[0] if re.fullmatch(r"[\w-]+(\|[\w-]+)+", word) else word)
    return words


def record_paths(page: Page) -> Iterator[str]:
    """Code within the prose that has the form of a path in a record, as ``modules[].kernels[].time_s``."""
    return (span for span in spans(page) if PATH.fullmatch(span) and span.rpartition(".")[2] not in SUFFIXES)


def measured_names(page: Page) -> Iterator[str]:
    """Code within the prose that has the name of a measured figure, as ``time_s``."""
    return (span for span in spans(page) if MEASURED.fullmatch(span))
