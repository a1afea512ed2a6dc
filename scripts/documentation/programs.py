"""The README's table of programs as users write them, from the tables of measurements in ``docs/measuring.md``."""

from __future__ import annotations

import re

from .outputs import figures

MEASURED = "scripts/benchmark_programs.py"
HEAD = "| program | what it is | step | against its own stopwatch |\n|---|---|---|---|\n"
TABLE = re.compile(rf"^{re.escape(HEAD)}(?:\|.*\n)*", re.MULTILINE)
STEP, RATIO = "the tool's step", ("of its laps, the same steps", "of the median of its laps, the same steps")


def measured_programs(page: str) -> dict[str, tuple[str, str, str]]:
    """What each program is, its step, and that step against the program's own laps, by name; the last one counts.

    Args:
        page: the text of ``docs/measuring.md``.
    """
    found: dict[str, tuple[str, str, str]] = {}
    for shown in figures(page):
        if shown.origin is None or MEASURED not in shown.origin.command:
            continue
        names, _, *rows = (_cells(line) for line in shown.text.splitlines())
        if STEP not in names:
            continue
        for row in (dict(zip(names, cells, strict=True)) for cells in rows):
            name, _, said = row["program"].replace("`", "").partition(" (")
            name, _, ranks = name.partition(", ")
            known = found[name][0] if name in found else row.get("what it is") or said.rstrip(")") or ranks
            ratio = next(row[one] for one in RATIO if one in row)
            found[name] = known, row[STEP], ratio.replace("*", "")
    return found


def with_programs(readme: str, page: str) -> str:
    """The README with the programs of the other page in its table, if it has one."""
    rows = "".join(f"| `{name}` | {' | '.join(facts)} |\n" for name, facts in measured_programs(page).items())
    return TABLE.sub(lambda _: HEAD + rows, readme, count=1)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
