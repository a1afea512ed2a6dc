"""Rewrites the command of a run with other options, so that the user can run it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from ...records.model_sources import PROGRAMS
from ...records.run import Run

SHARED_FLAGS = ("--training", "--inference", "--dynamic", "--no-dynamic")
SHARED_OPTIONS = (
    "--amp",
    "--batch-size",
    "--device",
    "--python",
    "--redact",
    "--seed",
    "--skip",
    "--steps",
    "--timeout",
)
"""What ``breakdown`` and ``modes`` both have, without and with a value."""


def command_again(run: Run, option: str = "", replaces: str = "", *, elsewhere: bool = False) -> str:
    """Returns the command of a run with other options, or an empty string if the command cannot be parsed.

    Args:
        run: the record that holds the command.
        option: the option to add, with its value.
        replaces: the name of an option to remove.
        elsewhere: let the new run write a new folder; otherwise it replaces the folder of ``run``.
    """
    begin, options, rest = _split(run)
    if not begin:
        return ""
    for dropped in (replaces, *(("-o", "--output") if elsewhere else ())):
        options = _without(options, dropped) if dropped else options
    if elsewhere:
        options = [word for word in options if word != "--force"]
    elif any(word == "-o" or word.startswith("--out") for word in options) and "--force" not in options:
        options = ["--force", *options]
    # The new option stands between the target and the arguments of the program.
    return shlex.join([*begin, *options, *shlex.split(option), *rest])


def modes_command(run: Run, setting: str) -> str:
    """The command that measures a run's program with a setting and without.

    Empty where the run has no program, or its command cannot be parsed.
    """
    begin, options, rest = _split(run)
    if not begin or run.request.kind not in PROGRAMS:
        return ""
    target = [] if run.request.kind == "command" else [run.request.target]
    mode = run.request.mode or "default"
    words = [*begin[:-1], "modes", *target, *_shared(options), "--mode", mode, "--with", f"{mode},{setting}", *rest]
    return shlex.join(words)


def _split(run: Run) -> tuple[list[str], list[str], list[str]]:
    """The words of a run's command: to the verb, the target with the options, and from ``--``; empty if unknown."""
    try:
        words = shlex.split(run.command)
    except ValueError:
        words = []
    if "breakdown" not in words[:3] or not words[0].endswith("inductor-bench"):
        return [], [], []
    verb = words.index("breakdown") + 1
    end = words.index("--") if "--" in words else len(words)
    return words[:verb], words[verb:end], words[end:]


def _shared(options: Sequence[str]) -> Iterator[str]:
    """The options that ``modes`` has, too, with their values."""
    for place, word in enumerate(options):
        name, _, value = word.partition("=")
        if word in SHARED_FLAGS or name in SHARED_OPTIONS:
            yield word
        if name in SHARED_OPTIONS and not value:
            yield from options[place + 1 : place + 2]


def _without(words: list[str], option: str) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word == option:
            skip = True
        elif not word.startswith(f"{option}="):
            kept.append(word)
    return kept


def apply_command(place: str, program: str, *options: str) -> str:
    """The command that runs a program with the configs of a RUN.

    Args:
        place: the RUN, as a shell reads it.
        program: the command line of the program; empty for a placeholder.
        options: options of ``apply``.
    """
    return " ".join(["inductor-bench apply", place, *options, "--", program or "python train.py"])


def program_words(run: Run) -> str:
    """The command line of a run's program; empty where it is a factory, a named model or no program."""
    request = run.request
    if request.kind == "command":
        return shlex.join(request.arguments)
    if request.kind == "script":
        return shlex.join(["python", request.target, *request.arguments])
    return ""
