"""Reads a command line that starts a program: the program's name and arguments in it, and its interpreter."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

COMMAND = "command"
"""The kind of a target that is a command line; see ``records.model_sources``."""

LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed.launcher")
"""Modules that start the program that is named after them."""

_PYTHON = re.compile(r"python[\d.]*|pypy[\d.]*")
_SHEBANG = re.compile(rb"#!\s*(\S*python[\d.]*)\s*\n")


def program_of(command: Sequence[str]) -> str:
    """The script or the module that a command runs; the command's first word where it names neither.

    ``torchrun --nproc-per-node 2 train.py --lr 1`` runs ``train.py``, ``python -m pkg.train`` runs ``pkg.train``.
    """
    place = _place(command)
    return command[place] if command else ""


def arguments_of(command: Sequence[str]) -> tuple[str, ...]:
    """The arguments of the program that a command runs."""
    return tuple(command[_place(command) + 1 :])


def _place(command: Sequence[str]) -> int:
    for place, (word, following) in enumerate(zip(command, [*command[1:], ""], strict=True)):
        if word in ("-m", "--module") and following and not following.startswith(LAUNCHERS):
            return place + 1
        if word.endswith(".py"):
            return place
    return 0


def interpreter_of(command: Sequence[str]) -> str | None:
    """The Python interpreter of a command: its first word, or that of the script which it names.

    ``None`` where it cannot be told: the tool's own interpreter then runs the compiled modules.
    """
    found = shutil.which(command[0])
    if found is None or _PYTHON.fullmatch(Path(command[0]).name):
        return found
    try:
        with open(found, "rb") as stream:
            line = _SHEBANG.match(stream.read(1000))
    except OSError:
        return None
    return shutil.which(line[1].decode()) if line else None


def typed(words: Sequence[str]) -> str:
    """The command line with which this tool runs a command."""
    return f"inductor-bench breakdown -- {shlex.join(words)}"
