"""Writes what is made in the documentation: two pages and the schemas from the code, and in the others output.

``docs/commands.md`` and ``docs/record.md`` come from the commands' help and the dataclasses of the records, as do the
JSON Schemas in ``inductor_bench/schemas``; the ids of errors in ``docs/agents.md`` come from ``errors.py``, and the
README's table of programs from ``docs/measuring.md``. In ``README.md`` and the other pages each block of output names
its command; those that need no measurement are repeated on recorded RUNs. With ``--check`` nothing is written, and the
exit code says whether something differs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from documentation.commands import commands_page
from documentation.outputs import brought_up_to_date, recorded_runs
from documentation.programs import with_programs
from documentation.record import record_page
from documentation.schema import schema_files

from inductor_bench.errors import ERROR_IDS

FOLDER = Path(__file__).resolve().parent.parent / "docs"
PAGES = {"commands.md": commands_page, "record.md": record_page}
SCHEMAS = Path("inductor_bench") / "schemas"


def pages_with_output(folder: Path) -> list[Path]:
    """The pages that people write: the README beside a folder of documentation, and those in it."""
    pages = [folder.parent / "README.md", *sorted(folder.glob("*.md"))]
    return [page for page in pages if page.is_file() and page.name not in PAGES]


def with_error_ids(text: str) -> str:
    """The page with the ids of errors as they are in the code, if it has a table of them."""
    head = "| id | what happened |\n|---|---|\n"
    rows = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in ERROR_IDS.items())
    return re.sub(rf"^{re.escape(head)}(?:\|.*\n)*", lambda _: head + rows, text, count=1, flags=re.MULTILINE)


def made(folder: Path) -> Iterator[tuple[Path, str]]:
    """The path and the text of each page as it should be."""
    yield from ((folder / name, make()) for name, make in PAGES.items())
    yield from ((folder.parent / SCHEMAS / name, text) for name, text in schema_files().items())
    measured = folder / "measuring.md"
    programs = measured.read_text(encoding="utf-8") if measured.is_file() else ""
    with recorded_runs() as printed:
        for path in pages_with_output(folder):
            text = with_programs(path.read_text(encoding="utf-8"), programs)
            try:
                yield path, with_error_ids(brought_up_to_date(text, printed))
            except ValueError as error:
                sys.exit(f"{path.name}: {error}")


def main(words: list[str], folder: Path = FOLDER) -> int:
    """Writes or checks the pages of a folder, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a page differs")
    check = parser.parse_args(words).check
    differing = []
    for path, text in made(folder):
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            differing.append(path.relative_to(folder.parent).as_posix())
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    print(f"{'differs' if check else 'written'}: {', '.join(differing)}" if differing else "all pages are current")
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
