"""Types every command of ``docs/tutorial.md`` in turn, in a separate folder, and records the page again.

``python scripts/tutorial.py [--work FOLDER] [--store]``. The folder gets a copy of ``examples``, the RUNs, and
``output.txt`` with all that was printed. ``--store`` replaces the RUNs in ``tests/data/documented`` and the blocks of
output of the page. The figures in its sentences stay: read them again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from documentation.outputs import BLOCK, RECORDED, ROOT, blocks, choose, read_origin
from documentation.recorded import PROJECT, pack

import docs

PAGE = ROOT / "docs" / "tutorial.md"
KERNEL = re.compile(r"runs/\w+/kernels/\S+\.py")


@dataclass(frozen=True)
class Typed:
    """A command that was typed: what it printed, its exit code, and how long it took.

    Attributes:
        command: the line of the page.
        text: stdout and stderr as a terminal shows them.
        code: the exit code; ``None`` if the command was skipped.
        time_s: its duration.
    """

    command: str
    text: str = ""
    code: int | None = None
    time_s: float = 0.0


def commands(page: str) -> list[str]:
    """The commands of a page, each on one line."""
    shell = (re.sub(r" *\\\n *", " ", block.text) for block in blocks(page) if block.language == "bash")
    return [line for text in shell for line in text.splitlines()]


def environment(work: Path) -> dict[str, str]:
    """The variables of the commands: ``python`` is this interpreter, ``inductor-bench`` this checkout."""
    tools = work / "bin"
    tools.mkdir(exist_ok=True)
    tool = tools / "inductor-bench"
    tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m inductor_bench "$@"\n')
    tool.chmod(0o755)
    path = [str(tools), str(Path(sys.executable).parent), os.environ["PATH"]]
    library = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": os.pathsep.join(filter(None, library)),
        "COLUMNS": "100",
    }


def typed(command: str, work: Path, variables: dict[str, str]) -> Typed:
    """Runs a command, unless it is about a kernel that this device's program lacks."""
    named = KERNEL.search(command)
    if named and not (work / named[0]).exists():
        return Typed(command, f"skipped: this device has no {named[0]}\n")
    begin = time.monotonic()
    ended = subprocess.run(
        ["bash", "-c", command],
        cwd=work,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Typed(command, ended.stdout, ended.returncode, time.monotonic() - begin)


def store(done: list[Typed], work: Path) -> None:
    """Records the RUNs and the page's blocks of output again."""
    for run in sorted((work / "runs").iterdir()):
        pack(run, RECORDED / f"{run.name}.zip", {str(work): PROJECT})
    machine = json.loads((work / "runs" / "train" / "record.json").read_text(encoding="utf-8"))["environment"]
    device = f"{machine['accelerator']} (driver {machine['driver']})"
    on = f"{device}, torch {machine['torch']}, triton {machine['triton']}"
    PAGE.write_text(measured_again(PAGE.read_text(encoding="utf-8"), done, on), encoding="utf-8")
    docs.main([])


def measured_again(page: str, done: list[Typed], on: str) -> str:
    """A page with the new output of the commands that only a device can repeat."""
    found = {one.command: one.text for one in done}

    def renewed(match: re.Match[str]) -> str:
        origin = read_origin(match["facts"]) if match["facts"] else None
        if origin is None or origin.repeatable or origin.command not in found:
            return match[0]
        day = time.strftime("%Y-%m-%d", time.gmtime())
        comment = f"<!-- made by: {origin.command}\n     on: {on}\n     date: {day} -->"
        return f"{comment}\n```{match['language']}\n{choose(match['text'], found[origin.command])}```"

    return BLOCK.sub(renewed, page)


def main(words: list[str]) -> int:
    """Types the commands, and returns 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "tutorial", help="a folder; emptied first")
    parser.add_argument("--store", action="store_true", help="record the RUNs and the page's output again")
    options = parser.parse_args(words)
    if options.store:
        import torch

        if not torch.cuda.is_available():
            parser.error("--store needs a GPU: the page shows one")
    work: Path = options.work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(ROOT / "examples", work / "examples", ignore=shutil.ignore_patterns("runs", "__pycache__"))
    variables = environment(work)
    done = []
    for command in commands(PAGE.read_text(encoding="utf-8")):
        print(f"$ {command}", flush=True)
        done.append(typed(command, work, variables))
        print(done[-1].text, flush=True)
        (work / "output.txt").write_text("".join(f"$ {one.command}\n{one.text}\n" for one in done), encoding="utf-8")
    for one in done:
        ending = "skipped" if one.code is None else "ok" if one.code == 0 else f"exit {one.code}"
        print(f"{ending:<8} {one.time_s:5.0f} s  {one.command}")
    failed = any(one.code for one in done)
    if options.store and not failed:
        store(done, work)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
