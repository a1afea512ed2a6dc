"""Rewrites the command of a run with other options, so that the user can run it again."""

from __future__ import annotations

import shlex

from ...records.model_sources import COMPILED_HERE
from ...records.run import Run


def command_again(run: Run, option: str = "", replaces: str = "", *, elsewhere: bool = False) -> str:
    """Returns the command of a run with other options, or an empty string if the command cannot be parsed.

    Args:
        run: the record that holds the command.
        option: the option to add, with its value.
        replaces: the name of an option to remove.
        elsewhere: let the new run write a new folder; otherwise it replaces the folder of ``run``.
    """
    try:
        words = shlex.split(run.command)
    except ValueError:
        return ""
    if "breakdown" not in words[:3] or not words[0].endswith("inductor-bench"):
        return ""
    verb = words.index("breakdown")
    split = words.index("--") if "--" in words else len(words)
    options, rest = words[verb + 1 : split], words[split:]
    for dropped in (replaces, *(("-o", "--output") if elsewhere else ())):
        options = _without(options, dropped) if dropped else options
    if elsewhere:
        options = [word for word in options if word != "--force"]
    elif any(word == "-o" or word.startswith("--out") for word in options) and "--force" not in options:
        options = ["--force", *options]
    # The new option stands between the target and the arguments of the program.
    return shlex.join([*words[: verb + 1], *options, *shlex.split(option), *rest])


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


def modes_command(run: Run, setting: str) -> str:
    """The command that compares a run's program with a setting and without; empty where the run has no program."""
    request, words = run.request, ["inductor-bench", "modes"]
    if request.kind in COMPILED_HERE:
        flags = {"--training": request.training, "--dynamic": request.dynamic}
        words += [request.target, *(flag for flag, is_set in flags.items() if is_set)]
        named = {"batch-size": request.batch_size, "amp": request.amp, "device": request.device, "seed": request.seed}
        words += [word for name, value in named.items() if value for word in (f"--{name}", str(value))]
    program = program_words(run)
    if request.kind not in COMPILED_HERE and not program:
        return ""
    mode = request.mode or "default"
    words += ["--mode", mode, "--with", f"{mode},{setting}"]
    return shlex.join(words) + (f" -- {program}" if program else "")


def program_words(run: Run) -> str:
    """The command line of a run's program; empty where it is a factory, a named model or no program."""
    request = run.request
    if request.kind == "command":
        return shlex.join(request.arguments)
    if request.kind == "script":
        return shlex.join(["python", request.target, *request.arguments])
    return ""
