"""Renders the comparison of two kernels as lines of styled words: which is faster, by its code or its configuration."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ... import units
from ...records.comparison import Pairing, TimedPair
from ...records.tuning import MeasuredKernel
from ..text import names
from ..text.layout import Column, Line, Word, bullet, header, row, wrapped
from .console import failure_lines, kernel_table
from .tuning import MOST_OF_MANY, VERDICT_STYLES, config_words, tuning_lines

_COLUMNS = [
    Column("second / first", 14, False),
    *(Column(title, size) for title, size in (("ratio", 7), ("99.5% interval", 16), ("first", 8), ("second", 8))),
]
MOST = 0.75
"""Share of a difference from which it is called most of the difference."""


def comparison_lines(comparison: TimedPair, width: int) -> Iterator[Line]:
    """Renders the rows of both kernels, their tried candidates, the check of their results, and the comparison."""
    pair = _with_distinct_names(comparison.first, comparison.second)
    yield from kernel_table(pair, width)
    for kernel in pair:
        if kernel.tuning is not None:
            yield from tuning_lines(kernel, kernel.tuning, width, MOST_OF_MANY)
    yield from failure_lines(comparison.failures, width)
    verdict = comparison.as_they_stand.verdict
    words = {"same": "takes as long", "undecided": "may be faster or slower"}.get(verdict, f"is {verdict}")
    yield [
        Word(names.middle(names.clean(comparison.second.file), width - 32), "title"),
        Word(f" {words}", VERDICT_STYLES.get(verdict, "")),
    ]
    yield [Word("  "), *header(_COLUMNS, 1)]
    yield from _row("as they stand", comparison.as_they_stand, width)
    yield from _other_row("same config", comparison.same_config, comparison, width)
    if comparison.best_of_each is not None:
        yield from _other_row("best of each", comparison.best_of_each, comparison, width)
    if conclusion := explain_difference(comparison.as_they_stand, comparison.same_config):
        yield from wrapped(conclusion, width, "  ", "title")
    for note in comparison.notes:
        yield from bullet(note, width, "warn")
    if comparison.difference:
        style = "warn" if comparison.alike is None else "bad"
        yield from wrapped(f"outputs: {comparison.difference}", width, "  ", style)
    else:
        yield [Word("  both compute the same from the same arguments", "good")]


def _with_distinct_names(*kernels: MeasuredKernel) -> list[MeasuredKernel]:
    """Returns the kernels, with the names of their files if both kernels have the same name."""
    if len({kernel.name for kernel in kernels}) == len(kernels):
        return list(kernels)
    return [replace(kernel, name=kernel.file) for kernel in kernels]


def _row(title: str, pairing: Pairing, width: int) -> Iterator[Line]:
    ratio = pairing.ratio
    if ratio is None:
        yield from wrapped(f"{title:<13}  not timed: {names.clean(pairing.reason)}", width, "  ", "warn")
        return
    interval = f"{ratio.low:.3f} to {ratio.high:.3f}"
    cells = [title, f"{ratio.median:.3f}x", interval, units.seconds(pairing.first_s), units.seconds(pairing.second_s)]
    verdict = Word(f"  {pairing.verdict}", VERDICT_STYLES.get(pairing.verdict, ""))
    yield [Word("  " + row(_COLUMNS, cells, 1)), verdict]


def _other_row(title: str, pairing: Pairing, comparison: TimedPair, width: int) -> Iterator[Line]:
    """Renders a pairing in other configurations with their names. An equal pairing refers to ``as they stand``."""
    if pairing == comparison.as_they_stand:
        yield [Word(f"  {title:<13}  as they stand")]
        return
    yield from _row(title, pairing, width)
    if pairing.ratio is None:
        return
    first, second = config_words(pairing.first_config), config_words(pairing.second_config)
    words = f"both in {first}" if first == second else f"first in {first}; second in {second}"
    yield from wrapped(words, width, " " * 17, "dim")


def explain_difference(as_they_stand: Pairing, same_config: Pairing) -> str:
    """Attributes a difference to the generated code or the configuration, in words.

    Args:
        as_they_stand: the kernels timed with their own configurations.
        same_config: the kernels timed with one configuration.

    Returns:
        A phrase, or an empty string where the times leave the cause open.
    """
    whole, code = as_they_stand.ratio, same_config.ratio
    if whole is None or code is None or same_config == as_they_stand:
        return ""
    if "undecided" in (as_they_stand.verdict, same_config.verdict):
        return ""
    if as_they_stand.verdict == "same":
        return (
            "" if same_config.verdict == "same" else f"in one config it is {same_config.verdict}: its own undoes that"
        )
    if same_config.verdict == "same":
        return "it is the config: in one config both take as long"
    share = math.log(code.median) / math.log(whole.median)
    if share < 0:
        return f"it is the config: in one config it is {same_config.verdict}"
    if share > 1 / MOST:
        return "it is the code, and its config takes some of that back"
    if share >= MOST:
        return "most of it is the code"
    if share <= 1 - MOST:
        return "most of it is the config"
    return f"{units.whole_percent(share)} of it is the code, the rest is the config"
