"""The command of a run, to be typed once more with another option."""

from __future__ import annotations

import shlex

from ...records.run import Run


def command_again(run: Run, option: str = "", replaces: str = "", *, elsewhere: bool = False) -> str:
    """The command of this run, with another option if one is given; empty where the command cannot be parsed.

    ``elsewhere`` lets the new run have a folder of its own; otherwise it replaces this one.
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
    # Before the arguments of the program, and after the target, which is what a reader looks for.
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
