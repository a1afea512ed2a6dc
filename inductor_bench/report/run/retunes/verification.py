"""What a RUN's configs save in its program, for the terminal, Markdown and HTML."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from .... import units
from ....analysis.findings.finding import join_words, plural
from ....analysis.statistics import CONFIDENCE, samples_needed
from ....records.retune import (
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
from ...text import names
from ...text.layout import Column, Line, Word, bullet, header, titled_row, wrapped

PINNED = "pinned"
MOST_REASONS = 6
MOST_BLAMED = 3
SHARE, LEAST_S = 0.2, 0.0002
"""A projection holds where it is within this share of the saving, or within these seconds."""

HIDDEN = 0.5
"""Share of the device's saving that the step surely does not save, where the saving counts as hidden by the host."""

WIDE = 0.02
"""Share of the step from which a difference that the interval does not exclude is named."""

STATES = {UNPINNABLE: "not put back", "missing": "not found"}
"""Words for the states of kernels that do not run a config."""

TITLES = ("kernel", "config", "projected", "saves")


def lead_words(found: Verification) -> str:
    """The result in one sentence."""
    step, device = found.step, found.device
    if step is None:
        return "No step was compared"
    if step.verdict == SAVES:
        return f"Proven: a step takes {_change(step)}" if found.way == STEPS else f"A step takes {_change(step)}"
    if step.verdict == SLOWER:
        return f"A step is slower with the configs: {_change(step)}"
    if step.verdict == NO_DIFFERENCE and device is not None and device.verdict == SAVES:
        less = f"The device works {units.seconds(device.saving_s)} less in a step"
        share = units.percent(device.saving_s / device.own_s)
        if step.low_s < -device.saving_s:
            return f"{less} ({share}), which the step does not show: it takes {_change(step)}"
        if step.high_s < HIDDEN * device.saving_s:
            work = f"of a step of {units.seconds(step.own_s)} the device works {units.seconds(device.own_s)}"
            return f"{less} ({share}), of which the step shows less than half: {work}"
        return f"{less} ({share}), which is less than the step's own variation"
    if step.verdict == UNDECIDED:
        pairs = f"{plural(step.pairs, 'pair')} of {found.way}"
        return f"Undecided: {pairs} {'does' if step.pairs == 1 else 'do'} not tell {_change(step)} from chance"
    both = f"{units.seconds(step.tuned_s)} in the median with the configs and {units.seconds(step.own_s)} without"
    limit = max(abs(step.low_s), abs(step.high_s)) / step.own_s if step.own_s else 0.0
    wide = f", and one of up to {units.percent(limit)} is not excluded" if limit > WIDE else ""
    return f"No difference found{wide}: a step takes {both}, and compared in pairs {_difference(step)}"


def _change(saving: Saving) -> str:
    """``14.6 ms instead of 15.6 ms, 0.96 ms (6.2%) less; 95% interval 0.92 ms to 0.99 ms``."""
    return f"{units.seconds(saving.tuned_s)} instead of {units.seconds(saving.own_s)}, {_difference(saving)}"


def _difference(saving: Saving) -> str:
    """``0.96 ms (6.2%) less; 95% interval 0.92 ms to 0.99 ms``."""
    share = units.percent(abs(saving.saving_s) / saving.own_s) if saving.own_s else "0%"
    more, low, high = "less", saving.low_s, saving.high_s
    if saving.saving_s < 0:
        more, low, high = "more", -high, -low
    range_words = f"{'-' if low < 0 else ''}{units.seconds(abs(low))} to {units.seconds(high)}"
    is_enough = saving.pairs >= samples_needed(CONFIDENCE)
    interval = "95% interval" if is_enough else f"range of {plural(saving.pairs, 'pair')}"
    return f"{units.seconds(abs(saving.saving_s))} ({share}) {more}; {interval} {range_words}"


def detail_words(found: Verification) -> Iterator[str]:
    """The other facts, a sentence each."""
    run = "runs" if found.pinned == 1 else "run"
    if found.kernels:
        yield f"{found.pinned} of {plural(len(found.kernels), 'kernel')} that won something {run} the config"
    else:
        yield "No kernel has a config to run: the program was compared with itself"
    if found.device is not None and found.device.verdict != UNDECIDED:
        yield f"On the device a step takes {_change(found.device)}"
    measured = found.device or (None if _runs_on_gpu(found) else found.step)
    if measured is not None and found.predicted_s and measured.verdict in (SAVES, SLOWER, NO_DIFFERENCE):
        yield projection_words(found, measured)
    yield from choice_words(found.kernels)
    yield outputs_words(found.outputs)
    yield from found.notes


def _runs_on_gpu(found: Verification) -> bool:
    """Whether a projection is of a GPU's time, of which the host may hide a part from the step."""
    return any({"num_warps", "num_stages"} & kernel.config.keys() for kernel in found.kernels)


def projection_words(found: Verification, measured: Saving) -> str:
    """The projection beside the saving; where they differ, the kernels to blame."""
    projected = units.seconds(found.predicted_s)
    apart = abs(measured.saving_s - found.predicted_s)
    if apart <= max(SHARE * abs(measured.saving_s), LEAST_S):
        return f"The projection was {projected}"
    if measured.low_s <= found.predicted_s <= measured.high_s:
        return f"The projection was {projected}, which lies within the interval"
    blamed = blamed_kernels(found)
    names_words = ", ".join(
        f"{names.short(one.name, 48)} (projected {units.seconds(one.predicted_s)}, saves {units.seconds(one.saving_s)})"
        for one in blamed
    )
    because = f", most of all of {names_words}" if blamed else ""
    return f"The projection of {projected} did not come true{because}"


def choice_words(kernels: Sequence[AppliedKernel]) -> Iterator[str]:
    """The kernels for which Inductor chose otherwise in this program than in the RUN; nothing without one."""
    other = [one for one in kernels if one.own_config and one.state == PINNED]
    if other:
        which = join_words([names.short(one.name, 48) for one in other], MOST_BLAMED)
        yield (
            f"Inductor chose another config here than in the RUN for {which}: what "
            f"{'it saves' if len(other) == 1 else 'they save'} depends on that choice, which differs between "
            "compilations"
        )


def blamed_kernels(found: Verification) -> list[AppliedKernel]:
    """The pinned kernels whose savings are furthest from their projections."""
    measured = [one for one in found.kernels if one.state == PINNED and one.saving_s is not None]
    return sorted(measured, key=lambda one: -abs((one.saving_s or 0.0) - one.predicted_s))[:MOST_BLAMED]


def outputs_words(outputs: PinnedOutputs) -> str:
    """Whether the outputs agree."""
    if not outputs.graphs:
        return f"Outputs in the program were not compared: {outputs.reason}"
    rest = f"; not all were compared: {outputs.reason}" if outputs.reason else ""
    apart = [
        (outputs.unrepeatable, "between two calls without the configs, too"),
        (outputs.rounding, "by no more than where the inputs are rounded otherwise"),
    ]
    more = " more" if outputs.tensors else ""
    words = [f"{n}{more} differ{'s' * (n == 1)} {how}" for n, how in apart if n]
    if words and not outputs.tensors:
        count = plural(outputs.unrepeatable + outputs.rounding, "tensor")
        return f"Outputs in the program cannot be compared: of {count}, {', and '.join(words)}"
    rest = "".join(f"; {one}" for one in words) + rest
    tensors = f"{plural(outputs.tensors, 'tensor')} of {plural(outputs.graphs, 'graph')}"
    if math.isinf(outputs.difference):
        return f"Outputs differ: infinities or NaN stand at other places with the configs, among {tensors}{rest}"
    if outputs.difference > outputs.tolerance:
        return f"Outputs differ: by {outputs.difference:.1e} of a tensor's norm, among {tensors}{rest}"
    own = f", {outputs.own_difference:.0e} between two calls without the configs" if outputs.own_difference else ""
    what = (
        f"the largest difference is {outputs.difference:.0e} of the tensor's norm{own}"
        if outputs.difference
        else ("no bit differs")
    )
    return f"Outputs agree for the same inputs: {what} ({tensors}){rest}"


def missed_words(kernels: Sequence[AppliedKernel]) -> Iterator[str]:
    """The kernels that do not run their configs, by the reason."""
    alike: dict[str, list[str]] = {}
    for kernel in kernels:
        if kernel.state != PINNED:
            alike.setdefault(kernel.reason or kernel.state, []).append(names.short(kernel.name, 48))
    for reason, found in alike.items():
        others = f" and {len(found) - 2} more" if len(found) > 2 else ""
        yield f"{', '.join(found[:2])}{others}: {reason}"


def kernel_cells(kernel: AppliedKernel) -> tuple[str, str, str]:
    """The cells of a kernel below ``TITLES``, without its name."""
    config = ", ".join(f"{name}={value}" for name, value in kernel.config.items())
    saves = STATES.get(kernel.state, kernel.state) if kernel.state != PINNED else units.seconds(kernel.saving_s)
    return config, units.seconds(kernel.predicted_s) if kernel.predicted_s else units.MISSING, saves


def verification_lines(found: Verification | None, width: int, top: int) -> Iterator[Line]:
    """Renders a verification; nothing without one."""
    if found is None:
        return
    yield from wrapped(lead_words(found), width, "", "title")
    for words in detail_words(found):
        yield from bullet(words, width, "dim")
    yield from kernel_table(found.kernels, width, top)
    missed = list(missed_words(found.kernels))
    for words in missed[:MOST_REASONS]:
        yield from bullet(words, width, "warn")
    if len(missed) > MOST_REASONS:
        yield [Word(f"  and {len(missed) - MOST_REASONS} more reasons in record.json", "dim")]
    yield []


def kernel_table(kernels: Sequence[AppliedKernel], width: int, top: int) -> Iterator[Line]:
    """The pinned kernels with the largest projections."""
    shown = [one for one in kernels if one.state == PINNED][:top]
    if not shown:
        return
    columns = [Column("kernel", max(16, width - 66), False), Column("config", 40, False)]
    columns += [Column("projected", 10), Column("saves", 10)]
    yield header(columns, 2)
    shorts = names.unique((one.name for one in shown), columns[0].width)
    for one in shown:
        config, *times = kernel_cells(one)
        cells = dict(zip(TITLES, (shorts[one.name], names.end(config, 40), *times), strict=True))
        yield [Word(titled_row(columns, cells, 2))]
