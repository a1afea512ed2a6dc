"""Writes the pages of the documentation that are made from the code: ``docs/commands.md`` and ``docs/record.md``.

With ``--check`` it writes nothing, and fails if a page differs from what it would write.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from documentation.commands import commands_page
from documentation.record import record_page

FOLDER = Path(__file__).resolve().parent.parent / "docs"
PAGES = {"commands.md": commands_page, "record.md": record_page}


def main(words: list[str], folder: Path = FOLDER) -> int:
    """Writes or checks the pages in a folder, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a page differs")
    check = parser.parse_args(words).check
    differing = []
    for name, make in PAGES.items():
        path, text = folder / name, make()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            differing.append(f"docs/{name}")
            if not check:
                path.write_text(text, encoding="utf-8")
    print(f"{'differs' if check else 'written'}: {', '.join(differing)}" if differing else "all pages are current")
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
