"""Prints where the figures of the documentation come from: each table, picture and block of measured output.

``python scripts/figures.py [PAGE...]``; without a page it reads ``README.md`` and all of ``docs``. The facts stand in a
comment above each of them. Blocks that are repeated on recorded RUNs are named last, with their command.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from documentation.outputs import FIGURES, ROOT, Origin, Shown, blocks, figures

from docs import FOLDER, pages_with_output

HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def chapter(page: str, line: int) -> str:
    """The heading above a line."""
    above = "".join(page.splitlines(keepends=True)[:line])
    return (HEADING.findall(re.sub(r"^```.*?^```$", "", above, flags=re.MULTILINE | re.DOTALL)) or [""])[-1]


def sources(page: str) -> list[tuple[Shown, Origin]]:
    """The tables, pictures and blocks of a page with their origins, in order."""
    found = [shown for shown in (*blocks(page), *figures(page)) if shown.origin is not None]
    return [(shown, shown.origin) for shown in sorted(found, key=lambda one: one.line) if shown.origin is not None]


def lines(path: Path) -> Iterator[str]:
    """The measured figures of a page, each with its facts, and then its repeated blocks."""
    page = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
    for shown, origin in sources(page):
        if not origin.repeatable:
            what = shown.language if shown.language in FIGURES else "output"
            yield f"{name}:{shown.line}  {what} in {chapter(page, shown.line)!r}"
            yield f"    made by  {origin.command}"
            yield f"    on       {origin.on}"
            yield f"    date     {origin.date}"
    for shown, origin in sources(page):
        if origin.repeatable:
            yield f"{name}:{shown.line}  output in {chapter(page, shown.line)!r}, repeated: {origin.command}"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("page", nargs="*", type=Path, help="a page; all of them if none is given")
    for path in parser.parse_args(words).page or pages_with_output(FOLDER):
        for line in lines(path.resolve()):
            print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
