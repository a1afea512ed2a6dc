"""Command lines that nobody would type, and some that somebody would."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

NAMES = (
    "x" * 300,
    "x/" * 3_000,
    "a\0b",
    "",
    " ",
    "-",
    "~",
    ".",
    "..",
    "/",
    "\udcff\udcfe",
    "new\nline",
    "\x1b]0;title\x07",
    "\u202eabc",
    "gone",
    "gone.py",
    "gone.py:make",
    "/dev/null",
    "/dev/full",
    "/proc/self/environ",
    "/proc/self/mem",
    "fifo",
    "closed",
    "closed/inner",
    "loop",
    "timm:",
    ":",
    "#",
    "é" * 150,
)
AFTER_HASH = (
    "**",
    "/abs",
    "../../x",
    "[",
    "]",
    "",
    "#",
    "a/**/b",
    "*[!*]*x",
    "x" * 300,
    "a\0b",
    "\udcff",
    "?" * 5_000,
    "x" + "*" * 200,
)
NUMBERS = ("0", "-1", "1e400", "9" * 5_000, "nan", "inf", "", "x", "1.5")
SQL = (
    "COPY kernels TO '{path}'",
    "COPY (SELECT 1) TO '{path}' (FORMAT parquet)",
    "ATTACH '{path}' AS other",
    "SELECT * FROM read_csv('{path}')",
    "SELECT * FROM read_text('{path}')",
    "SELECT * FROM '{path}'",
    "EXPORT DATABASE '{path}'",
    "SET temp_directory = '{path}'",
    "INSTALL httpfs",
    "LOAD '{path}'",
    "IMPORT DATABASE '{path}'",
    "CREATE TABLE x AS SELECT * FROM glob('{path}/*')",
    "PRAGMA database_list",
    "SELECT getenv('HOME')",
    "SELECT {deep}",
    "SELECT '{long}' AS x",
    "SELECT 1; SELECT 2",
    'SELECT 1 AS "{odd}"',
    "SELECT 'nan'::DOUBLE, 'inf'::DOUBLE, -1e308",
    "SELECT 170141183460469231731687303715884105727::HUGEINT, '\\x00'::BLOB, DATE '9999-12-31'",
    "SELECT 'infinity'::DATE, INTERVAL 1 YEAR, UUID '00000000-0000-0000-0000-000000000000', [1, NULL], {{'a': 1}}",
    "SELECT chr(0), chr(27), chr(8238)",
    "DROP TABLE kernels",
    "",
    "\0",
    "\udcff",
    "--",
    "é\u202e",
)


def command_line(random: random.Random, cwd: Path, hostile: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    """A command line, and the folder that it is told to write if that is one."""
    os.mkfifo(cwd / "fifo")
    (cwd / "closed" / "inner").mkdir(parents=True)
    (cwd / "closed").chmod(0)
    (cwd / "loop").symlink_to("loop")
    out = random.choice(
        ("x" * 300, "a\0b", "\udcff", "cpu.py", "closed/out", "loop", "fifo", "new\nline", *hostile[:2])
    )
    name = random.choice((*NAMES, *hostile))
    number = random.choice(NUMBERS)
    lines: tuple[tuple[str, ...], ...] = (
        ("report", name, "--no-plots"),
        ("report", "cpu", "--no-plots", "--top", number),
        ("report", "cpu", "--no-plots", "--sort", name),
        ("report", "batch", "--no-plots", "--top", number),
        ("breakdown", name, "-o", "out", "--no-plots", "--repeat", number),
        ("breakdown", "cpu.py", "--trace", name, "-o", "out", "--no-plots"),
        ("breakdown", "cpu.py", "--trace", "cpu.trace.json.gz", "-o", out, "--no-plots"),
        ("extract", name, "--list", "--static"),
        ("extract", "cpu.py", name, "--list", "--static"),
        ("extract", "cpu", "-o", out),
        ("extract", "cpu", "-o", "out", "--kernel", name),
        ("extract", "cpu", "-o", "out", "--top", number),
        ("extract", "cpu", "--list", "--values-limit", number),
        ("kernel", f"cpu#{random.choice(AFTER_HASH)}"),
        ("kernel", f"cpu#{random.choice(AFTER_HASH)}"),
        ("kernel", f"{name}#x"),
        ("kernel", "cpu#x", "--budget", number),
        ("kernel", "cpu#x", "--save", name),
        ("compare", "cpu", name),
        ("compare", "cpu", "cpu", "--fail-above", number),
        ("query", name),
        ("query", "cpu", "--format", name),
        ("batch", name, "--list"),
        ("batch", "list.txt", "--list", "--shard", f"{number}/{random.choice(NUMBERS)}"),
        ("batch", "list.txt", "--list", "--filter", name, "--seed", number),
        ("batch", "list.txt", "--list", "-o", out, "--timeout", number),
        ("batch", "list.txt", "--list", "--optimize", "--budget", number, "--allow", name),
        (name,),
        (name, "--help"),
        (random.choice(("report", "compare", "extract", "query", "kernel", "batch", "breakdown", "doctor")), "--help"),
    )
    line = random.choice(lines)
    return line, out if out in line and "/" not in out else "out"


def question(random: random.Random, hostile: Sequence[str]) -> tuple[str, ...]:
    """A question in SQL, and how the answer is to be printed."""
    text = random.choice(SQL)
    path = random.choice(hostile)
    deep, odd = "(" * 3_000 + "1" + ")" * 3_000, random.choice(("\x1b]0;t\x07", "x" * 5_000, "\u202e", "a\nb"))
    if "{" in text:
        text = text.format(path=path, deep=deep, long="x" * 60_000, odd=odd)
    return (text, *random.choice(((), (), ("--format", "json"), ("--format", "csv"), ("--format", "md"))))
