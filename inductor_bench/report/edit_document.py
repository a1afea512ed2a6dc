"""The documents of ``kernel`` for edited kernels: the written file, the verdict of a check, and commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from .. import units
from ..analysis.findings.finding import plural, write_apply_command
from ..analysis.limits import compute_slowdown_of_kernels, describe_limit
from ..records.comparison import Pairing
from ..records.edit import PASSED, REFUSED, SKIPPED, EditCheck, EditVerdict, WrittenEdit
from ..records.request import ApplyRequest, KernelRequest
from ..records.request_fields import list_option_words
from ..records.retune import SLOWER, UNDECIDED, Ratio
from . import names
from .document import LEAD, NOTE, WARN, Block, Commands, Document, Facts, Item, Items, Section, Sentence
from .document import make_sentences as sentences_of
from .formats import DEFAULT_VIEW, View, make_formats

_SAID = {"same": "takes as long as the original", "undecided": "may be faster or slower than the original"}

PROOF_TIMES_S, LONGER = (1, 3, 10, 30, 60, 120, 300, 600, 1800), 10
"""A longer proof takes the first of these times that is at least this many times as long as the last proof."""

LEAST_LONGER = 2
"""A proof must take at least this many times as long as the last one to be suggested."""

FIRST_LONGER_S = 60
"""The seconds of a check after one without ``--proof-time``."""


def find_longer_time(last_s: float) -> int:
    """Returns the seconds of the next longer proof or check after ``last_s``; at most the longest time."""
    return next((one for one in PROOF_TIMES_S if one >= LONGER * last_s), PROOF_TIMES_S[-1])


def list_longer_options(request: ApplyRequest | KernelRequest, longer_s: float, limit: float | None) -> list[str]:
    """Returns the options to repeat the command with ``longer_s`` seconds of measuring. The slowdown limit stays."""
    options = list_option_words(replace(request, proof_s=float(longer_s)))
    return [*options, *([] if limit is None else ["--fail-above", f"{100 * limit:g}%"])]


def format_speedup(ratio: float) -> str:
    """Formats how many times as fast as the original the edited kernel is, from the ratio of their times: ``1.34x``."""
    return f"{1 / ratio:.2f}x" if ratio else "?"


def format_speedup_of(ratio: Ratio) -> str:
    """Formats how many times as fast as the original the edited kernel is: ``1.34x (1.30x to 1.40x in 20 pairs)``."""
    middle, low, high = map(format_speedup, (ratio.median, ratio.high, ratio.low))
    return f"{middle} ({low} to {high} in {plural(ratio.pairs, 'pair')})"


def describe_pair(pair: Pairing) -> str:
    """``1.34x (1.30x to 1.40x in 20 pairs): 0.200 ms → 0.149 ms a call, saves …``; empty if both were not timed.

    The saving comes from pairs. If the difference of the two medians has another sign, the words say so.
    """
    ratio, first_s, second_s = pair.ratio, pair.first_s, pair.second_s
    if ratio is None or first_s is None or second_s is None:
        return ""
    saved_s, low_s, high_s = (first_s * (1 - one) for one in (ratio.median, ratio.high, ratio.low))
    times = f"{units.seconds(first_s)} → {units.seconds(second_s)} a call"
    joint = " in the median, and compared in pairs it " if saved_s * (first_s - second_s) < 0 else ", "
    return f"{format_speedup_of(ratio)}: {times}{joint}{describe_saving(saved_s, low_s, high_s)}"


def describe_saving(
    saved_s: float, low_s: float | None = None, high_s: float | None = None, of_range: bool = False
) -> str:
    """``saves 0.100 ms (90.0 µs to 0.110 ms)``, or ``takes 0.100 ms longer (90.0 µs to 0.110 ms)``.

    Args:
        saved_s: the saving in seconds; negative for a loss.
        low_s: the lower end of its interval in seconds, if that is known.
        high_s: the upper end.
        of_range: whether these are the ends of a range, not of an interval.
    """
    before, after = ("takes ", " longer") if saved_s < 0 else ("saves ", "")
    if saved_s < 0:
        low_s, high_s = (None if end is None else 0.0 - end for end in (high_s, low_s))
    said = f"{before}{units.seconds(abs(saved_s))}{after}"
    if low_s is None or high_s is None:
        return said
    return f"{said} ({'range ' * of_range}{units.seconds(low_s)} to {units.seconds(high_s)})"


def make_checked_document(verdict: EditVerdict, view: View = DEFAULT_VIEW) -> Document:
    """Whether an edited kernel is right and faster, and what to type next."""
    file = names.cut_middle(names.clean(verdict.file), 88)
    machine = [verdict.device, f"torch {verdict.torch}", *([f"triton {verdict.triton}"] if verdict.triton else [])]
    blocks = (
        Sentence(_write_headline(verdict, file), LEAD),
        *_describe_refusal(verdict),
        *sentences_of(
            [describe_limit(compute_slowdown_of_kernels(verdict.pair), view.limit)] if view.limit is not None else []
        ),
        Facts(tuple(_list_check_facts(verdict))),
        Items(tuple(Item(note, WARN) for note in verdict.notes)),
        Section("Next", (Commands(tuple(_list_proof_commands(verdict, view.limit))),), quiet=True),
    )
    return Document(verdict.kernel, (" · ".join(machine),), blocks)


def _write_headline(verdict: EditVerdict, file: str) -> str:
    if verdict.verdict == REFUSED:
        return f"{file} is refused: {verdict.words}"
    said = _SAID.get(verdict.verdict, f"is {verdict.verdict} than the original")
    return ", ".join(filter(None, (f"{file} is right, and {said}", describe_pair(verdict.pair))))


def _describe_refusal(verdict: EditVerdict) -> Iterator[Block]:
    if verdict.hint:
        yield Sentence(verdict.hint[:1].upper() + verdict.hint[1:], NOTE)


def _list_check_facts(verdict: EditVerdict) -> Iterator[tuple[str, str]]:
    yield "checks", _describe_checks(verdict)
    original, edited, ratio = verdict.original, verdict.edited, verdict.ratio
    if original is not None and edited is not None:
        yield (
            "original",
            f"{units.seconds(original.median_s)} {verdict.state}{_format_rate(verdict, original.median_s)}",
        )
        yield "edited", f"{units.seconds(edited.median_s)} {verdict.state}{_format_rate(verdict, edited.median_s)}"
    if ratio is not None:
        yield "ratio", f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f}), edited / original"
    errors = [check for check in verdict.checks if check.error is not None]
    if errors:
        yield "error", _describe_error(max(errors, key=lambda check: (check.error or 0.0) / (check.limit or 1.0)))
    resources = verdict.resources
    words = [
        f"{count} {name}"
        for name, count in (("registers", resources.registers), ("spills", resources.spills))
        if count is not None
    ]
    words += [f"occupancy {units.whole_percent(resources.occupancy)}"] if resources.occupancy is not None else []
    if words:
        yield "compiled", ", ".join(words)
    yield "hashes", f"source {verdict.hashes.source[:12]}, original {verdict.hashes.original[:12]}"


def _format_rate(verdict: EditVerdict, time_s: float) -> str:
    if not verdict.moved_bytes or not time_s:
        return ""
    rate = verdict.moved_bytes / time_s
    share = f", {units.whole_percent(rate / verdict.roof)} of the roof" if verdict.roof else ""
    return f", {units.rate(rate)}{share}"


def _describe_checks(verdict: EditVerdict) -> str:
    counts = {outcome: sum(one.outcome == outcome for one in verdict.checks) for outcome in (PASSED, REFUSED, SKIPPED)}
    words = [f"{count} {outcome}" for outcome, count in counts.items() if count]
    return f"{', '.join(words) or 'none'}, with {verdict.launches} launch{'es' * (verdict.launches != 1)}"


def _describe_error(check: EditCheck) -> str:
    against = "float64" if check.against == "float64" else "the original"
    own = f" (the original {check.original_error:.1g})" if check.original_error is not None else ""
    limit = f", {check.limit:.1g} is allowed" if check.limit is not None else ""
    return f"up to {check.error:.1g} of its size in comparison with {against}{own}{limit}"


def _list_proof_commands(verdict: EditVerdict, limit: float | None) -> Iterator[tuple[str, str]]:
    """Yields the command that proves a right edit in its RUN's program; nothing for a slower or unchanged kernel."""
    if verdict.run and verdict.changed and verdict.verdict not in (REFUSED, SLOWER):
        options = ("--kernel", shlex.quote(verdict.file), "--verify")
        command = write_apply_command(shlex.quote(verdict.run), verdict.program, *options)
        yield command, "runs the program with and without the edited kernel, and says what the kernel saves of a step"
    yield from _list_longer_checks(verdict, limit)


def _list_longer_checks(verdict: EditVerdict, limit: float | None) -> Iterator[tuple[str, str]]:
    """Yields the command of the same check with more pairs, if they may decide it; nothing otherwise."""
    request = verdict.request
    if verdict.verdict != UNDECIDED or verdict.doubt or request is None:
        return
    longer_s = FIRST_LONGER_S if request.proof_s is None else find_longer_time(request.proof_s)
    if longer_s < LEAST_LONGER * (request.proof_s or 0.0):
        return
    options = list_longer_options(request, longer_s, limit)
    command = shlex.join(["inductor-bench", "kernel", verdict.file, "--check", *options])
    yield command, f"measures more pairs, for up to {units.duration(longer_s)}, until there is a verdict"


CHECKED = make_formats(make_checked_document, of="a checked edit")


def make_written_document(written: WrittenEdit, view: View = DEFAULT_VIEW) -> Document:
    """The file that was written for an edit, and what to type next."""
    values = f", with its recorded values in {written.values}" if written.values else ""
    rows = [("kernel", f"{written.kernel} ({written.language})"), ("launches", str(written.launches))]
    if written.has_reference:
        rows.append(("reference", "a function in the file computes the same in plain PyTorch"))
    check = f"inductor-bench kernel {shlex.quote(written.file)} --check"
    blocks = (
        Sentence(f"Written {written.file}{values}: edit the kernel between its two marks", LEAD),
        Facts(tuple(rows)),
        Section(
            "Next",
            (Commands(((check, "tells whether the edited kernel is right, and whether it is faster"),)),),
            quiet=True,
        ),
    )
    return Document(written.kernel, (), blocks)


WRITTEN = make_formats(make_written_document, of="a written edit")
