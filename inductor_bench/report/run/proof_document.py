"""What configs and edited kernels save in the program, and what ``apply`` made of them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from ... import units
from ...analysis.findings.doubts import are_steps_delayed, describe_load
from ...analysis.findings.finding import join_words, plural, write_apply_command
from ...analysis.limits import compute_slowdown_of_proof, describe_limit, judge_limit
from ...analysis.statistics import CONFIDENCE, STEP_EFFECT, VERDICT_CONFIDENCE, count_needed_samples
from ...records.edit import put_in_words
from ...records.request import ApplyRequest
from ...records.retune import (
    MOST_TIMED,
    NO_DIFFERENCE,
    SAVES,
    SLOWER,
    STEPS,
    UNDECIDED,
    UNPINNABLE,
    AppliedKernel,
    PinnedOutputs,
    Saving,
    Verification,
)
from ...records.summary import Summary, SummaryApplied
from .. import names
from ..document import (
    LEAD,
    NOTE,
    WARN,
    Block,
    Cell,
    Column,
    Commands,
    Document,
    Facts,
    Item,
    Items,
    Section,
    Sentence,
    ShownIn,
    TimeChange,
    make_kernel_column,
    make_notes,
    make_sentences,
    make_table,
    make_text_column,
    plot_waterfall,
)
from ..document_summary import summarise_document
from ..edit_document import (
    LEAST_LONGER,
    describe_saving,
    find_longer_time,
    format_speedup,
    format_speedup_of,
    list_longer_options,
)
from ..formats import DEFAULT_VIEW, View, make_formats

NAME_WIDTH = 64
PINNED = "pinned"
MOST_REASONS = 6
MOST_BLAMED = 3
MOST_FALLS = 14
SHARE, LEAST_S = 0.2, 0.0002
"""A projection is right if its error is within this share of the saving, or within these seconds."""

HIDDEN = 0.5
"""If the step saves less than this share of the device's saving for sure, the host counts as hiding the saving."""

WIDE = 0.02
"""A possible difference inside the interval is named if it is at least this share of the step."""

UNMEASURED = "was not measured, because only the profile of a GPU shows it"
UNTOLD = (
    "is not known: in the profile their kernels share a name with others, have other names without the edits, or did "
    "not run"
)
"""The reasons why a proof does not say what each edit saves: without and with the device's time."""

ONE_ALONE = "`inductor-bench apply RUN --kernel FILE --verify` proves one edit alone"

STATES = {UNPINNABLE: "not put back", "missing": "not found"}
"""Words for the states of kernels that do not run a config."""


def describe_proof(found: Verification) -> str:
    """The result in one sentence."""
    step, device = found.step, found.device
    if not found.pinned:
        applied = _name_applied(found.kernels)
        return f"Nothing is proven: no kernel ran {applied}, so the program was compared with itself"
    if step is None:
        return "No step was compared"
    if step.verdict == SAVES:
        return f"Proven: a step takes {_change(step)}" if found.way == STEPS else f"A step takes {_change(step)}"
    if step.verdict == SLOWER:
        return f"A step is slower with {_put_in(found.kernels)}: {_change(step)}"
    if step.verdict == NO_DIFFERENCE and device is not None and device.verdict == SAVES:
        less = f"In a step the device works {_format_difference(device)}"
        if step.low_s < -device.saving_s:
            return f"{less}. The step does not show it: it takes {_change(step)}"
        shown = f"compared in pairs, the step takes {_format_difference(step)}"
        if step.high_s < HIDDEN * device.saving_s:
            work = f"the device works for {units.seconds(device.own_s)} of a {units.seconds(step.own_s)} step"
            return f"{less}. The step shows less than half of it: {shown}; {work}"
        return f"{less}. That is less than the step's own variation: {shown}"
    if step.verdict == UNDECIDED:
        wider = f"; the interval of {VERDICT_CONFIDENCE:.1%}, which decides, includes zero"
        if (step.own_s - step.tuned_s) * step.saving_s < 0:
            wider = "; the medians say the opposite of the pairs"
        decides = wider if step.low_s > 0 or step.high_s < 0 else ""
        return f"Undecided: a step takes {_change(step)}{decides}"
    which = _put_in(found.kernels)
    both = f"{units.seconds(step.tuned_s)} in the median with {which} and {units.seconds(step.own_s)} without"
    limit = max(abs(step.low_s), abs(step.high_s)) / step.own_s if step.own_s else 0.0
    wide = f", but there may be a difference of up to {units.percent(limit)}" if limit > WIDE else ""
    return f"No difference found{wide}: a step takes {both}, and compared in pairs {_format_difference(step)}"


def describe_busy_machine(found: Verification) -> str:
    """Says if other work delayed the compared steps, by the same rule as a breakdown; empty if there was none."""
    load = found.load
    if load is None or not are_steps_delayed(load):
        return ""
    words = describe_load(load, "step")
    return f"{words[:1].upper()}{words[1:]}. Compare again when the machine is idle."


def _put_in(kernels: Sequence[AppliedKernel]) -> str:
    """Says what was put into the program."""
    edits = sum(bool(one.edit) for one in kernels)
    return put_in_words(len(kernels) - edits, edits)


def _name_applied(kernels: Sequence[AppliedKernel]) -> str:
    edited = {bool(one.edit) for one in kernels}
    return "its edit" if edited == {True} else "its edit or a config" if True in edited else "a config"


def describe_counts(kernels: Sequence[AppliedKernel], run: tuple[str, str]) -> Iterator[str]:
    """Says how many kernels run their config or edit. ``run`` has the verb for one kernel and for several."""
    edited = [one for one in kernels if one.edit]
    retuned = [one for one in kernels if not one.edit]
    ran = [sum(one.runs for one in which) for which in (edited, retuned)]
    if edited:
        single = 1 in (ran[0], len(edited))
        own = "its edit" if single else "their edits"
        yield f"{ran[0]} of {plural(len(edited), 'edited kernel')} {run[not single]} {own}"
    if retuned:
        yield f"{ran[1]} of {plural(len(retuned), 'kernel')} with a faster config {run[ran[1] != 1]} the config"


def _change(saving: Saving) -> str:
    """``14.6 ms instead of 15.6 ms``, and their difference.

    The saving is the median of pairs. If it is not the difference of the two medians, the words say so.
    """
    tuned, own = units.seconds(saving.tuned_s), units.seconds(saving.own_s)
    shown = 10 ** (math.floor(math.log10(max(saving.own_s, saving.tuned_s, 1e-12))) - 2)  # one in the last digit
    if abs(saving.own_s - saving.tuned_s - saving.saving_s) <= shown:
        return f"{tuned} instead of {own}, {_format_difference(saving)}"
    return f"{tuned} in the median instead of {own}, and compared in pairs {_format_difference(saving)}"


def _format_difference(saving: Saving) -> str:
    """``0.96 ms (6.2%) less; 95% interval 0.92 ms to 0.99 ms, 5.9% to 6.3%, in 60 pairs``."""
    more, low, high = "less", saving.low_s, saving.high_s
    if saving.saving_s < 0:
        more, low, high = "more", -high, -low
    shares = [_format_share(value, saving.own_s) for value in (abs(saving.saving_s), low, high)]
    ends = f"{units.seconds(low)} to {units.seconds(high)}, {shares[1]} to {shares[2]}"
    difference = f"{units.seconds(abs(saving.saving_s))} ({shares[0]}) {more}"
    return (
        f"{difference}; {'range' if _has_range(saving) else '95% interval'} {ends}, in {plural(saving.pairs, 'pair')}"
    )


def _has_range(saving: Saving | None) -> bool:
    """Whether there are too few pairs for an interval, so that its ends are the extremes of all pairs."""
    return saving is not None and saving.pairs < count_needed_samples(CONFIDENCE)


def _format_share(value: float, of_s: float) -> str:
    if not of_s or not value:
        return "0%"
    share = units.percent(abs(value) / of_s)
    if value > 0:
        return share
    return f">-{share[1:]}" if share.startswith("<") else f"-{share}"


def describe_details(found: Verification) -> Iterator[str]:
    """The other facts, a sentence each."""
    if found.kernels:
        yield from describe_counts(found.kernels, ("runs", "run"))
        if len({bool(one.edit) for one in found.kernels if one.runs}) > 1:
            yield "The step's saving is that of configs and edits together"
        edits = [one for one in found.kernels if one.runs and one.edit]
        if len(edits) > 1 and all(one.saving_s is None for one in edits):
            yield f"What each edit saves in the program {UNMEASURED if found.device is None else UNTOLD}. {ONE_ALONE}"
    else:
        yield "No kernel has a config to run"
    if found.device is not None and found.device.verdict != UNDECIDED:
        yield f"On the device a step takes {_change(found.device)}"
    measured = found.device or (None if _is_on_gpu(found) else found.step)
    if measured is not None and found.predicted_s and measured.verdict in (SAVES, SLOWER, NO_DIFFERENCE):
        yield describe_projection(found, measured)
    yield from describe_choices(found.kernels)
    if found.pinned or not found.kernels:
        yield describe_outputs(found.outputs, _put_in(found.kernels))
    yield from found.notes


def _is_on_gpu(found: Verification) -> bool:
    """Whether a projection is for a GPU, whose saving the host may partly hide from the step."""
    return any({"num_warps", "num_stages"} & kernel.config.keys() for kernel in found.kernels)


def describe_projection(found: Verification, measured: Saving) -> str:
    """Compares the projection with the saving. If they differ, names the kernels that cause it."""
    projected = units.seconds(found.predicted_s)
    apart = abs(measured.saving_s - found.predicted_s)
    if apart <= max(SHARE * abs(measured.saving_s), LEAST_S):
        return f"The projection was {projected}"
    if measured.low_s <= found.predicted_s <= measured.high_s:
        return f"The projection was {projected}, which lies within the interval"
    blamed = find_blamed_kernels(found)
    names_words = ", ".join(
        f"{names.shorten(one.name, 48)} (projected {units.seconds(one.predicted_s)}, "
        f"saves {units.seconds(one.saving_s)})"
        for one in blamed
    )
    because = f", most of all of {names_words}" if blamed else ""
    return f"The projection of {projected} was wrong{because}"


def describe_choices(kernels: Sequence[AppliedKernel]) -> Iterator[str]:
    """Yields the kernels for which Inductor chose another config in this program than in the RUN."""
    other = [one for one in kernels if one.own_config and one.state == PINNED]
    if other:
        which = join_words([names.shorten(one.name, 48) for one in other], MOST_BLAMED)
        yield (
            f"Inductor chose another config here than in the RUN for {which}: what "
            f"{'it saves' if len(other) == 1 else 'they save'} depends on that choice, which differs between "
            "compilations"
        )


def find_blamed_kernels(found: Verification) -> list[AppliedKernel]:
    """The pinned kernels whose savings are furthest from their projections."""
    measured = [one for one in found.kernels if one.state == PINNED and one.saving_s is not None]
    return sorted(measured, key=lambda one: -abs((one.saving_s or 0.0) - one.predicted_s))[:MOST_BLAMED]


def describe_outputs(outputs: PinnedOutputs, what: str = "the configs") -> str:
    """Says whether the outputs with and without ``what`` agree."""
    if not outputs.graphs:
        return f"Outputs in the program were not compared: {outputs.reason}"
    rest = f"; not all were compared: {outputs.reason}" if outputs.reason else ""
    apart = [
        (outputs.unrepeatable, f"between two calls without {what} as well"),
        (outputs.rounding, "by no more than if the inputs are rounded differently"),
    ]
    more = " more" if outputs.tensors else ""
    words = [f"{n}{more} differ{'s' * (n == 1)} {how}" for n, how in apart if n]
    if words and not outputs.tensors:
        count = plural(outputs.unrepeatable + outputs.rounding, "tensor")
        return f"Outputs in the program cannot be compared: of {count}, {', and '.join(words)}"
    rest = "".join(f"; {one}" for one in words) + rest
    tensors = f"{plural(outputs.tensors, 'tensor')} of {plural(outputs.graphs, 'graph')}"
    if outputs.difference is None:
        return f"Outputs differ: infinities or NaN are in other elements with {what}, among {tensors}{rest}"
    if outputs.difference > outputs.tolerance:
        return f"Outputs differ: by {outputs.difference:.1e} of a tensor's norm, among {tensors}{rest}"
    own = f", {outputs.own_difference:.0e} between two calls without {what}" if outputs.own_difference else ""
    what = (
        f"the largest difference is {outputs.difference:.0e} of the tensor's norm{own}"
        if outputs.difference
        else ("no bit differs")
    )
    return f"Outputs agree for the same inputs: {what} ({tensors}){rest}"


def list_applied(found: Verification) -> Sequence[AppliedKernel]:
    """Lists the kernels that run their config or edit, the largest saving first, and then the edits that do not run."""
    shown = [one for one in found.kernels if one.runs or one.edit]
    return sorted(shown, key=lambda one: (not one.runs, -(one.saving_s or 0.0)))


def describe_edit(kernel: AppliedKernel, of_range: bool = False) -> str:
    """Describes one edit: ``mine.py (triton_red_0): on the device 2.50 ms → 1.80 ms a step, saves …``.

    ``of_range`` says that the ends of its saving are those of a range, not of an interval.
    """
    said = [] if kernel.runs else [STATES.get(kernel.state, kernel.state)]
    if kernel.own_s is not None and kernel.tuned_s is not None and kernel.saving_s is not None:
        times = f"{units.seconds(kernel.own_s)} → {units.seconds(kernel.tuned_s)}"
        saving = describe_saving(kernel.saving_s, kernel.low_s, kernel.high_s, of_range)
        said.append(f"on the device {times} a step, {saving}")
    if kernel.alone is not None:
        said.append(f"by itself {format_speedup_of(kernel.alone)}")
    which = f"{names.clean(Path(kernel.edit).name)} ({names.shorten(kernel.name, 48)})"
    return f"{which}: {'; '.join(said) or 'its own time is not known'}"


def _format_saved(kernel: AppliedKernel, of_range: bool) -> str:
    """What a kernel saves in the program, with its interval or range if that is known."""
    saved = units.seconds(kernel.saving_s)
    if kernel.low_s is None or kernel.high_s is None:
        return saved
    return f"{saved} ({'range ' * of_range}{units.seconds(kernel.low_s)} to {units.seconds(kernel.high_s)})"


def describe_missed_kernels(kernels: Sequence[AppliedKernel]) -> Iterator[str]:
    """The kernels that do not run their configs, by the reason."""
    alike: dict[str, list[str]] = {}
    for kernel in kernels:
        if kernel.state != PINNED:
            alike.setdefault(kernel.reason or kernel.state, []).append(names.shorten(kernel.name, 48))
    for reason, found in alike.items():
        others = f" and {len(found) - 2} more" if len(found) > 2 else ""
        yield f"{', '.join(found[:2])}{others}: {reason}"


def make_proof_section(found: Verification | None, top: int, limit: float | None = None) -> Section:
    """What the configs save in the program; nothing if that was not measured."""
    if found is None:
        return Section("Proof in the program", ())
    missed = list(describe_missed_kernels(found.kernels))
    pinned = [one for one in found.kernels if one.state == PINNED]
    others = [one for one in found.kernels if one.state != PINNED]
    edited = any(one.edit for one in found.kernels)
    projects = not edited or not all(one.edit for one in found.kernels)
    measured = any(one.saving_s is not None for one in pinned)  # which takes the profile of a GPU
    titles = {"time": edited and measured, "projected": projects, "by itself": any(one.alone for one in pinned)}
    titles |= {"saves": measured, "state": bool(others) and not measured}
    of_range = _has_range(found.device)
    list_cells = partial(_list_proof_cells, titles=titles, edited=edited, of_range=of_range)
    table = make_table((*pinned, *others), list_cells, on=ShownIn.PAPER)
    if pinned:
        table = replace(table, most=min(top, len(pinned)), cut_on=ShownIn.TERMINAL, more="in report.html")
        table = replace(table, on=ShownIn.EVERYWHERE & ~ShownIn.BRIEF)
    shown = [
        Item(f"{reason}.", WARN, on=ShownIn.EVERYWHERE if n < MOST_REASONS else ShownIn.PAPER)
        for n, reason in enumerate(missed)
    ]
    left = len(missed) - MOST_REASONS
    hidden = f"and {left} more reasons in record.json" if left > 0 else ""
    return Section(
        "Proof in the program",
        (
            Sentence(f"{describe_proof(found)}.", LEAD),
            *make_sentences((describe_busy_machine(found),), LEAD),
            *make_sentences(
                () if limit is None else (f"{describe_limit(compute_slowdown_of_proof(found), limit)}.",), LEAD
            ),
            Items(
                tuple(Item(f"{said}.", NOTE) for said in describe_details(found)),
                on=ShownIn.EVERYWHERE & ~ShownIn.BRIEF,
            ),
            Items(
                tuple(Item(f"{describe_edit(one, of_range)}.", NOTE) for one in list_applied(found) if one.edit),
                on=ShownIn.BRIEF,
            ),
            *_make_waterfalls(found.device, pinned),
            table,
            Items(tuple(shown), on=ShownIn.EVERYWHERE & ~ShownIn.BRIEF),
            *make_sentences((hidden,), NOTE, ShownIn.TERMINAL),
        ),
        short="Proof",
        quiet=True,
    )


def _make_waterfalls(device: Saving | None, pinned: Sequence[AppliedKernel]) -> Iterator[Block]:
    """The device time of a step before and after, and what each kernel saves of it."""
    measured = [one for one in pinned if one.saving_s is not None]
    measured.sort(key=lambda one: -(one.saving_s or 0.0))
    falls = [TimeChange(names.shorten(one.name, NAME_WIDTH), -(one.saving_s or 0.0)) for one in measured[:MOST_FALLS]]
    if len(measured) > MOST_FALLS:
        rest = measured[MOST_FALLS:]
        falls.append(TimeChange(f"{len(rest)} more kernels", -sum(one.saving_s or 0.0 for one in rest)))
    if device is not None:
        what = "device time of a step"
        yield from plot_waterfall((f"{what}, as it was", device.own_s), falls, (f"{what}, as it is", device.tuned_s))


def _list_proof_cells(
    kernel: AppliedKernel, titles: Mapping[str, bool], edited: bool, of_range: bool
) -> Iterator[tuple[Column, Cell]]:
    """What a kernel runs, and a cell for each of the titles that are shown."""
    runs = kernel.state == PINNED
    config = ", ".join(f"{name}={value}" for name, value in kernel.config.items()) or Path(kernel.edit).name
    state = "runs" if runs else STATES.get(kernel.state, kernel.state)
    projected = kernel.predicted_s or None
    said = make_notes(kernel.reason, on=ShownIn.PAPER)
    yield make_kernel_column("kernel", NAME_WIDTH), Cell(kernel.name, notes=said)
    yield make_text_column("config or file" if edited else "config", least=24), Cell(config)
    for title, cell in (
        ("time", Cell(units.seconds(kernel.own_s), kernel.own_s)),
        ("projected", Cell(units.seconds(projected), projected)),
        ("saves", Cell(_format_saved(kernel, of_range), kernel.saving_s) if runs else Cell(state)),
        ("state", Cell(state)),
        ("by itself", Cell(format_speedup(kernel.alone.median) if kernel.alone is not None else "")),
    ):
        if titles[title]:
            yield Column(title), cell


# --- what the verb apply did ------------------------------------------------------------------------------------------


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
    def edits(self) -> int: ...
    @property
    def predicted_s(self) -> float: ...
    @property
    def program(self) -> str: ...
    @property
    def request(self) -> ApplyRequest | None: ...


def make_applied_document(applied: Applied, view: View = DEFAULT_VIEW) -> Document:
    """Makes the list of written files, of what the program runs, or of what the configs save."""
    if applied.verification is not None:
        proof = make_proof_section(applied.verification, view.top, view.limit)
        commands = Commands((*_list_keeping_commands(applied), *_list_longer_proofs(applied, view.limit)))
        return Document("", blocks=(proof, Section("Next", (commands,), quiet=True)))
    if applied.written:
        return Document("", blocks=tuple(_list_written_files(applied)))
    return make_states_document(applied.kernels)


def make_states_document(kernels: Sequence[AppliedKernel]) -> Document:
    """How many kernels of a program that ran to its end ran their configs, and why the others did not."""
    if not kernels:
        return Document("", blocks=(Sentence("no kernel of the program has a config to run", LEAD),))
    projected = sum(one.predicted_s for one in kernels if one.state == PINNED)
    said = ", ".join(describe_counts(kernels, ("ran", "ran")))
    if projected:
        said += f"; projected saving {units.seconds(projected)} a step"
    return Document("", blocks=(Sentence(said, LEAD), _list_missed_kernels(kernels)))


def _list_missed_kernels(kernels: Sequence[AppliedKernel]) -> Items:
    return Items(tuple(Item(reason, WARN) for reason in describe_missed_kernels(kernels)))


def _list_keeping_commands(applied: Applied) -> Iterator[tuple[str, str]]:
    """Yields the command that keeps the proven configs and edits; nothing without a saving or without the RUN."""
    found = applied.verification
    if applied.folder is None or found is None or not found.pinned or found.step is None or found.step.verdict != SAVES:
        return
    edits = [word for one in found.kernels if one.edit and one.runs for word in ("--kernel", shlex.quote(one.edit))]
    command = " ".join(["inductor-bench apply", shlex.quote(str(applied.folder)), *edits])
    yield command, f"keeps {_put_in([one for one in found.kernels if one.runs])} in {applied.folder}/tuned"


def _list_longer_proofs(applied: Applied, limit: float | None) -> Iterator[tuple[str, str]]:
    """Yields the command that compares more steps, if more steps may give a verdict; nothing otherwise."""
    found, request = applied.verification, applied.request
    if found is None or request is None or not may_be_decided(found, limit):
        return
    assert found.step is not None
    timed_s = 2 * found.step.pairs * found.step.own_s
    asked_s = find_longer_time(timed_s)
    longer_s = min(asked_s, MOST_TIMED * found.step.own_s)
    if longer_s < LEAST_LONGER * timed_s:
        return
    # the limit was for a shorter proof, and ends the program before a longer one
    options = list_longer_options(replace(request, timeout_s=None), asked_s, limit)
    place = "--known" if request.run is None else shlex.quote(str(request.run))
    times = units.duration(longer_s)
    yield (
        write_apply_command(place, shlex.join(request.command), *map(shlex.quote, options)),
        f"compares steps for {times} instead of {units.duration(timed_s)}; more pairs make the interval narrower",
    )


def may_be_decided(found: Verification, limit: float | None) -> bool:
    """Whether more steps may decide what is undecided: the verdict, or whether the difference passes the limit."""
    step = found.step
    if step is None or not found.pinned or found.way != STEPS or found.ended_early:
        return False
    widest = max(abs(step.low_s), abs(step.high_s))
    undecided = limit is not None and judge_limit(compute_slowdown_of_proof(found), limit) == UNDECIDED
    wide = (undecided and widest > STEP_EFFECT * step.own_s) or widest > WIDE * step.own_s
    return step.verdict == UNDECIDED or (wide and step.verdict == NO_DIFFERENCE)


def _list_written_files(applied: Applied) -> Iterator[Block]:
    edits = f"{plural(applied.edits, 'edited kernel')}" if applied.edits else ""
    said = f"A faster config was found for {plural(applied.winners, 'kernel')}"
    if applied.unpinned:
        count = applied.winners - len(applied.unpinned)
        said += f"; {count or 'none'} of these configs can be put back"
    if applied.predicted_s or not applied.unpinned:
        said += f"; projected saving {units.seconds(applied.predicted_s)} a step"
    leads = make_sentences((edits, said if applied.winners or not edits else ""), LEAD)
    title = "Configs and edits" if edits and applied.winners else "Edits" if edits else "Configs"
    yield Section(title, (*leads, _list_missed_kernels(applied.unpinned)), quiet=True)
    places = "  ".join(map(_shorten_path, applied.written))
    yield Facts((("Written", f"{applied.folder}/tuned/   {places}"),))
    if len(applied.unpinned) < applied.winners or edits:
        place = f"{applied.folder}/tuned" if edits else str(applied.folder)
        command = write_apply_command(shlex.quote(place), applied.program, "--verify")
        yield Commands(((command, "runs a program with and without them, and says what they save"),))


def _shorten_path(path: Path) -> str:
    """The path of a file in ``RUN/tuned``."""
    return f"kernels/{path.name}" if path.parent.name == "kernels" else path.name


def summarise_applied(applied: Applied, view: View = DEFAULT_VIEW) -> Summary:
    """What the screen says, and what is known of each kernel."""
    shown = list_applied(applied.verification) if applied.verification is not None else ()
    rows = (
        SummaryApplied(
            one.name, one.edit, one.state, one.own_s, one.tuned_s, one.saving_s, one.low_s, one.high_s, one.alone
        )
        for one in shown
    )
    return replace(summarise_document(make_applied_document(applied, view)), applied=tuple(rows))


APPLIED_FORMATS = make_formats(make_applied_document, summary=summarise_applied, of="what apply did")
