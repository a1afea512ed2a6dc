"""The results as text: kinds by outcomes, then every distinct fault with the command that makes it again."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

from .campaign import Result
from .findings import Fault
from .fuzz_trial import HUNG, SIGNAL, SLOW

COLUMNS = ("0", "1", "2", "3", "4", "5", SIGNAL, SLOW, HUNG)
TITLES = ("exit 0", "exit 1", "exit 2", "exit 3", "exit 4", "exit 5", "signal", "too slow", "hang")
OUTSIDE = ("outside write", "changed victim", "copied victim")
LONGEST = 3


def table(results: Sequence[Result], seed: int) -> str:
    """The whole table."""
    return "\n".join([*_outcomes(results), "", *_longest(results, seed), "", *_faults(results, seed)])


def _outcomes(results: Sequence[Result]) -> list[str]:
    others = ("other", "outside", "record", "inputs")
    lines = [f"{'kind':<12}" + "".join(f"{title:>10}" for title in (*TITLES, *others))]
    kinds = sorted({result.kind for result in results})
    for name, rows in [*((kind, [one for one in results if one.kind == kind]) for kind in kinds), ("all", results)]:
        counts = Counter(one.outcome for one in rows)
        other = sum(count for outcome, count in counts.items() if outcome not in COLUMNS)
        outside = sum(any(fault.what in OUTSIDE for fault in one.faults) for one in rows)
        record = sum(any(fault.what == "lost record" for fault in one.faults) for one in rows)
        figures = (*(counts[column] for column in COLUMNS), other, outside, record, len(rows))
        lines.append(f"{name:<12}" + "".join(f"{figure or '·':>10}" for figure in figures))
    return lines


def _longest(results: Sequence[Result], seed: int) -> list[str]:
    longest = sorted(results, key=lambda one: -one.cpu_s)[:LONGEST]
    return [f"longest: {one.cpu_s:6.1f} CPU s  {one.kind}  {_again(one, seed)}" for one in longest]


def _faults(results: Sequence[Result], seed: int) -> list[str]:
    groups: dict[Fault, list[Result]] = {}
    for result in results:
        for fault in result.faults:
            groups.setdefault(fault, []).append(result)
    if not groups:
        return ["No fault."]
    lines = [f"{len(groups)} distinct faults"]
    for fault, those in sorted(groups.items(), key=lambda item: (item[0].what, -len(item[1]))):
        lines.append(f"{len(those):>6} x {fault.what:<20} {fault.kind:<32} {fault.frame}")
        lines.append(f"         {those[0].kind}: inductor-bench {_words(those[0])}")
        lines.append(f"         {_again(those[0], seed)}")
    return lines


def _again(result: Result, seed: int) -> str:
    return f"scripts/fuzz --seed {seed} --only {result.number} --keep DIR"


def _words(result: Result) -> str:
    text = " ".join(shlex.quote(word) for word in result.words)
    plain = "".join(letter if letter.isprintable() else "?" for letter in text)
    return plain if len(plain) <= 100 else f"{plain[:96]}…"


def show_one(result: Result, said: str, seed: int) -> str:
    """One input: what it printed, how it ended, and what was wrong."""
    head = f"inductor-bench {_words(result)}\n{result.kind}: {result.outcome} after {result.cpu_s:.2f} CPU s"
    faults = [f"{fault.what}  {fault.kind}  {fault.frame}" for fault in result.faults] or ["No fault."]
    plain = "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in said)
    return "\n".join([plain, head, *faults])
