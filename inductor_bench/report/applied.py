"""Renders what became of the verb ``apply``; its table of formats."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from .. import units
from ..analysis.findings.finding import apply_command, plural
from ..records.retune import AppliedKernel, Verification
from .renderer import Format, Formats, View, json_row
from .run.retunes.verification import PINNED, missed_words, verification_lines
from .text.layout import Line, Word, bullet, labelled, wrapped


class Applied(Protocol):
    """The result of ``apply``; see ``workflows.apply.ApplyOutcome``."""

    @property
    def folder(self) -> Path | None: ...
    @property
    def kernels(self) -> Sequence[AppliedKernel]: ...
    @property
    def written(self) -> Sequence[Path]: ...
    @property
    def verification(self) -> Verification | None: ...
    @property
    def winners(self) -> int: ...
    @property
    def unpinned(self) -> Sequence[AppliedKernel]: ...
    @property
    def predicted_s(self) -> float: ...
    @property
    def program(self) -> str: ...


def applied_lines(applied: Applied, view: View) -> Iterator[Line]:
    """What was written, what the program runs, or what the configs save."""
    if applied.verification is not None:
        yield from verification_lines(applied.verification, view.width, view.top)
    elif applied.written:
        yield from _written(applied, view)
    else:
        yield from _states(applied.kernels, view.width)


def state_texts(kernels: Sequence[AppliedKernel], width: int) -> Iterator[str]:
    """The lines about a program that ran to its end, as plain text."""
    return ("".join(word.text for word in line) for line in _states(kernels, width))


def _states(kernels: Sequence[AppliedKernel], width: int) -> Iterator[Line]:
    """How many kernels of a program run their configs, and why the others do not."""
    if not kernels:
        yield [Word("no kernel of the program has a config to run", "title")]
        return
    pinned = [one for one in kernels if one.state == PINNED]
    projected = sum(one.predicted_s for one in pinned)
    words = f"{len(pinned)} of {plural(len(kernels), 'kernel')} that won something ran the config"
    if projected:
        words += f"; projected saving {units.seconds(projected)} a step"
    yield from wrapped(words, width, "", "title")
    for reason in missed_words(kernels):
        yield from bullet(reason, width, "warn")


def _written(applied: Applied, view: View) -> Iterator[Line]:
    words = f"{plural(applied.winners, 'kernel')} won something by {'itself' if applied.winners == 1 else 'themselves'}"
    if applied.unpinned:
        count = applied.winners - len(applied.unpinned)
        words += f", {count or 'none'} {'has' if count == 1 else 'have'} a config that can be put back"
    if applied.predicted_s or not applied.unpinned:
        words += f"; projected saving {units.seconds(applied.predicted_s)} a step"
    yield from wrapped(words, view.width, "", "title")
    for reason in missed_words(applied.unpinned):
        yield from bullet(reason, view.width, "warn")
    yield []
    places = "  ".join(path.name for path in applied.written)
    yield from labelled("Written", f"{applied.folder}/tuned/   {places}", view.width)
    if len(applied.unpinned) == applied.winners:
        return
    command = apply_command(shlex.quote(str(applied.folder)), applied.program, "--verify")
    yield from labelled("Next", command, view.width)
    yield [Word("          runs a program with the configs and without, and says what they save", "dim")]


FORMATS: Formats[Applied] = Formats((Format("table", applied_lines), json_row()))
