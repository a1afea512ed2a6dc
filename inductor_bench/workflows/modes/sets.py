"""Reads the settings of rows as a user types them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ...errors import UsageError
from ...records.modes.settings import DEFAULT, EAGER, MODES, SWITCHES, ModeSet

DEFAULT_ROUNDS = 4
"""Rounds where none are given: an even number, so that each row is as often early as late."""

OPTION = "inductor."
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_OPTION = re.compile(r"inductor\.([a-z_][\w.]*)=(.+)", re.DOTALL)


def read_set(text: str) -> ModeSet:
    """The settings of one row: modes, switches, options and variables, with commas between them.

    ``tf32`` means ``default,tf32``; ``max-autotune,tf32,inductor.epilogue_fusion=false,OMP_NUM_THREADS=8`` has one of
    each.

    Raises:
        UsageError: a word is none of these, or two modes are named.
    """
    found = ModeSet("")
    for word in (part.strip() for part in text.split(",")):
        if word in MODES:
            if found.mode:
                raise UsageError(f"{text!r} names two modes", "a row has one mode; give --with twice for two rows")
            found = replace(found, mode=word)
        elif word in SWITCHES:
            found = replace(found, switches=(*dict.fromkeys((*found.switches, word)),))
        elif word.startswith(OPTION):
            found = replace(found, options=found.options | read_option(word).options)
        else:
            found = replace(found, environment=found.environment | dict([_read_variable(word)]))
    return _checked(replace(found, mode=found.mode or DEFAULT), text)


def _read_variable(text: str) -> tuple[str, str]:
    match = _VARIABLE.fullmatch(text)
    if match is None:
        known = ", ".join((*MODES, *SWITCHES))
        raise UsageError(f"{text!r} is no setting", f"give {known}, inductor.OPTION=VALUE or VARIABLE=VALUE")
    return match[1], match[2]


def read_option(text: str) -> ModeSet:
    """The row of an option ``inductor.NAME=VALUE``.

    Raises:
        UsageError: the text has another form.
    """
    match = _OPTION.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is no option of Inductor", "give inductor.NAME=VALUE: inductor.epilogue_fusion=false"
        )
    return ModeSet(DEFAULT, options={match[1]: match[2]})


def _checked(found: ModeSet, text: str) -> ModeSet:
    compiled = [name for name in found.switches if SWITCHES[name].variable]
    if found.mode == EAGER and (found.options or compiled):
        raise UsageError(f"{text!r} compiles nothing, and has settings of the compiler", "name a mode that compiles")
    return found


def read_sets(
    modes: Sequence[str], withs: Sequence[str], variables: Sequence[tuple[str, str]], options: Sequence[str]
) -> tuple[ModeSet, ...]:
    """The rows of a comparison: the modes, all where none is named, and then one's own sets.

    Args:
        modes: names of modes.
        withs: a set each; see :func:`read_set`.
        variables: a set each, with one environment variable: its name and its value.
        options: a set each, with one option of Inductor; see :func:`read_option`.

    Raises:
        UsageError: a set has another form.
    """
    own = [*map(read_set, withs), *(ModeSet(DEFAULT, environment=dict([one])) for one in variables)]
    own += map(read_option, options)
    rows = [*(ModeSet(mode) for mode in modes or MODES), *own]
    return tuple({row.name: row for row in rows}.values())
