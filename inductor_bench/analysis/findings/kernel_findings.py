"""Findings about kernels and transfers."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ... import units
from ...devices.table import find_device
from ...records.base import Category
from ...records.run import COPY, COPYING, GUARDS, PYTHON, Part, ProgramChange, Run
from ...source.compile_log import HINT
from ..step_costs import is_uncompiled, list_parts, runs_on_host, sum_idle_by_label
from .doubts import OTHERS, compute_share_of_others
from .finding import (
    ADVICE,
    CAUTION,
    FAR_FROM_ROOF,
    LEAST_SHARE,
    NOTE,
    SHORT_S,
    SHORT_TIME,
    UNTUNABLE,
    CostedKernel,
    Finding,
    RemovedWork,
    Rows,
    Rule,
    RunEvidence,
    assume_at_roof,
    assume_without_kernel,
    is_addend_copy,
    is_layout_copy,
    is_max_autotuned,
    join_labels,
    join_words,
    list_slugs,
    make_finding,
    plural,
    select_kernels_worth_naming,
    shorten_paths,
    sum_gain_limits,
    sum_times,
)
from .precision_findings import list_processor_rows
from .program_findings import list_idle_parts
from .step_findings import describe_spots, find_gradient_copies
from .step_phrases import format_share, name_line, name_origins

# Rules about copies to, from and within the device.
#
# Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned.


COPIES = 0.03  # share of the whole time from which copies within the device are reported


def find_host_copies(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports copies to or from the host."""
    whole = evidence.whole
    host = [row for row in evidence.rows if _is_host_copy(row) and not is_pageable(row)]
    if host:
        times = units.count(sum(row.cost.calls for row in host))
        pageable = any("Pageable" in row.kernel.name for row in host)
        noun, verb = ("copy", "takes") if times == "1" else ("copies", "take")
        text = f"{times} {noun} to or from the host {verb} {whole.format(sum_times(host))}"
        text += ", from pageable memory, which makes the host wait" if pageable else ""
        yield make_finding("host-copies", text, host, saves_s=assume_without_kernel)


def find_device_copies(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports copies within the device: of graphs, and of eager operators with their lines."""
    whole = evidence.whole
    copies = [row for row in evidence.critical_rows if row.kernel.category is Category.COPY]
    device = [row for row in copies if not _is_host_copy(row) and not is_addend_copy(row.kernel)]
    parts = [] if any(find_gradient_copies(evidence)) else list_parts(evidence.run, COPY)
    parts = [part for part in parts if part.label == "device to device"]
    time_s = sum_times(device) + sum(part.time_s for part in parts)
    if whole.part(time_s) < COPIES:
        return
    within = list(dict.fromkeys(row.kernel.operator for row in device if row.kernel.operator))
    within += list(dict.fromkeys(name_line(part.source) for part in parts if part.source))
    text = f"copies within the device take {whole.format(time_s)}"
    text += f", made by {join_words(within, 3)}" if within else ""
    found = make_finding("copies", text, device, saves_s=assume_without_kernel)
    assumed = replace(found.assumed, parts=tuple(parts))
    yield replace(found, gain_s=found.gain_s + sum(part.time_s for part in parts), assumed=assumed)


def find_copied_addends(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports matrix products whose addend (a residual or a bias) is first copied into their output."""
    whole, rows = evidence.whole, [row for row in evidence.critical_rows if is_addend_copy(row.kernel)]
    if not rows or whole.part(sum_times(rows)) < LEAST_SHARE:
        return
    operators = join_words(list(dict.fromkeys(row.kernel.operator or "" for row in rows)))
    calls = sum(row.cost.calls for row in rows)
    per = "step" if evidence.in_step else "iteration"
    text = (
        f"{operators} calls first copy their addend into their output, "
        f"{units.count(calls)} times per "
        f"{per}, {whole.format(sum_times(rows))}: cuBLAS adds to the output"
    )
    if not is_max_autotuned(evidence.run, rows):
        text += "; try mode='max-autotune-no-cudagraphs': its matrix products in Triton read the addend in place"
    yield make_finding(
        "copied-addends", text, rows, saves_s=assume_without_kernel, changes=list_tuning_changes(evidence.run, rows)
    )


def find_padded_products(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports generated kernels that only copy matrices into larger ones, which Inductor does for faster products."""
    whole, rows = evidence.whole, [row for row in evidence.critical_rows if row.kernel.origin.padded_sides]
    if not rows or whole.part(sum_times(rows)) < LEAST_SHARE:
        return
    sides = dict.fromkeys(side for row in rows for side in row.kernel.origin.padded_sides)
    grown = join_words([f"{before} to {after}" for before, after in sides], 3)
    larger = join_words(list(dict.fromkeys(str(after) for _, after in sides)), 3, last="or")
    text = (
        f"{plural(len(rows), 'generated kernel')} only {'copies' if len(rows) == 1 else 'copy'} matrices into larger "
        f"ones ({grown}), {whole.format(sum_times(rows))}: Inductor pads them for the matrix products that follow. A "
        f"size of {larger} in the model, such as a padded vocabulary, needs no copies"
    )
    yield make_finding("padded-products", text, rows, saves_s=assume_without_kernel)


def _is_host_copy(row: CostedKernel) -> bool:
    return row.kernel.category is Category.COPY and ("HtoD" in row.kernel.name or "DtoH" in row.kernel.name)


# Rules about generated kernels that could be faster.
#
# Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned. A
# gain is the saving at a roof, which the kernel may be unable to reach.


MORE_CONFIGS = "max-autotune chose their configs, and --autotune coordesc tries more"
TUNED = "max-autotune-no-cudagraphs"
NARROW = 0.75  # number of blocks per multiprocessor below which part of the GPU is idle


def find_kernels_below_limit(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports generated kernels far from the memory or matrix roof. Tuning may make them faster."""
    rows, whole, run = evidence.critical_rows, evidence.whole, evidence.run
    for bound, roof in (("memory", "of the DRAM bandwidth"), ("compute", "of the matrix rate")):
        far = [
            row
            for row in rows
            if row.kernel.category not in UNTUNABLE
            and row.kernel.roof.bound == bound
            and row.kernel.roof.peak_share is not None
            and row.kernel.roof.peak_share < FAR_FROM_ROOF
        ]
        low, left_out = select_kernels_worth_naming(evidence, far)
        low.sort(key=lambda row: -(row.cost.gain_limit_s or 0.0))
        if whole.part(sum_gain_limits(low)) < LEAST_SHARE:
            continue
        verb, they, them = ("reaches", "it", "it") if len(low) == 1 else ("reach", "they", "them")
        text = (
            f"{plural(len(low), 'generated kernel')} {verb} less than {FAR_FROM_ROOF:.0%} {roof}: at 100% {they} would "
            f"take {whole.format(sum_gain_limits(low))} less, an upper bound"
        )
        if all(row.device.suggests_tuning for row in low):
            tunes = f"mode='max-autotune-no-cudagraphs' tunes {them}"
            text += f"; {MORE_CONFIGS if is_max_autotuned(run, low) else tunes}"
        text += left_out
        yield make_finding(
            f"below-{bound}-limit", text, low, saves_s=assume_at_roof, changes=list_tuning_changes(run, low)
        )


def list_tuning_changes(run: Run, rows: Rows) -> tuple[ProgramChange, ...]:
    """Returns the mode that tunes generated kernels and products; none if it is on or has nothing to tune there."""
    tunes = all(row.device.suggests_tuning for row in rows) and not is_max_autotuned(run, rows)
    return (ProgramChange("compile", "mode", repr(TUNED)),) if tunes else ()


def find_few_blocks(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports generated kernels with fewer blocks than the GPU has multiprocessors."""
    rows, whole, run = evidence.critical_rows, evidence.whole, evidence.run
    multiprocessors = run.environment.device.multiprocessors
    if not multiprocessors:
        return
    narrow = [
        row
        for row in rows
        if row.kernel.category not in UNTUNABLE
        and row.kernel.launch.grid
        and math.prod(row.kernel.launch.grid) < NARROW * multiprocessors
        and row.cost.time_s >= SHORT_S * row.cost.calls
    ]
    if whole.part(sum_times(narrow)) < LEAST_SHARE:
        return
    blocks = max(math.prod(row.kernel.launch.grid) for row in narrow)
    most = plural(blocks, "block") if len(narrow) == 1 else f"at most {plural(blocks, 'block')}"
    text = (
        f"{plural(len(narrow), 'generated kernel')} {'starts' if len(narrow) == 1 else 'start'} {most} on "
        f"{multiprocessors} multiprocessors, so part of the GPU idles in {'its' if len(narrow) == 1 else 'their'} "
        f"{whole.format(sum_times(narrow))}"
    )

    def idle_s(row: CostedKernel) -> float:
        """The kernel's time multiplied by the share of idle multiprocessors, an upper bound."""
        return row.cost.time_s * (1 - math.prod(row.kernel.launch.grid) / multiprocessors)

    yield make_finding("few-blocks", text, narrow, saves_s=idle_s)


# Rules about library calls, which Inductor does not tune.
#
# Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned. A
# gain is the saving at a roof, which the kernel may be unable to reach.


SHARE_UNTUNED = 0.1  # share of the whole time from which slow library calls are reported without a suggestion
HOTSPOT = 0.2  # share of the whole time from which an operator is reported


def find_library_calls_below_limit(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports library calls far from every roof. Another call, layout or algorithm may be faster.

    Calls that a processor would compute faster in bfloat16 do not count: ``full-float32`` reports them.
    """
    rows, whole, run = evidence.critical_rows, evidence.whole, evidence.run
    told = {row.place for row in list_processor_rows(evidence)}
    kinds = {
        Category.EXTERN_CONV: ("convolutions", ["torch.backends.cudnn.benchmark=True", "channels_last"]),
        Category.EXTERN_GEMM: ("matrix products", []),
    }
    for category, (noun, advice) in kinds.items():
        far = [
            row
            for row in rows
            if row.kernel.category is category
            and row.place not in told
            and not is_layout_copy(row.kernel)
            and row.kernel.roof.peak_share is not None
            and row.kernel.roof.peak_share < FAR_FROM_ROOF / 2
        ]
        low, left_out = select_kernels_worth_naming(evidence, far)
        replaceable = all(row.device.suggests_tuning for row in low)
        if whole.part(sum_times(low)) < (2 * LEAST_SHARE if replaceable else SHARE_UNTUNED):
            continue
        highest = units.whole_percent(max(row.kernel.roof.peak_share or 0.0 for row in low))
        at = f" at {highest} of its roof" if len(low) == 1 else f", each at {highest} of its roof"
        if len(low) > 1 and not highest.startswith("<"):
            at += " or less"
        text = f"library {noun} take {whole.format(sum_times(low))} in {plural(len(low), 'kernel')}{at}"
        is_chosen = is_max_autotuned(run, low)
        tries = [*advice, *([] if is_chosen else ["mode='max-autotune'"])]
        if tries and replaceable:
            reason = "" if is_chosen else " Inductor does not tune them:"
            text += f";{reason} try {join_words(tries, last='or')}"
        text += left_out
        yield make_finding(
            "library-below-limit",
            text,
            low,
            saves_s=assume_at_roof,
            changes=tuple(_list_library_changes(tries if replaceable else ())),
        )


_LIBRARY_CHANGES = {
    "torch.backends.cudnn.benchmark=True": ProgramChange("setting", "torch.backends.cudnn.benchmark", "True"),
    "channels_last": ProgramChange("argument", "Module.to.memory_format", "torch.channels_last"),
    "another backend of scaled_dot_product_attention": ProgramChange("setting", "torch.nn.attention.sdpa_kernel", ""),
    "mode='max-autotune'": ProgramChange("compile", "mode", "'max-autotune'"),
}


def _list_library_changes(tries: Sequence[str]) -> Iterator[ProgramChange]:
    return (_LIBRARY_CHANGES[one] for one in tries)


def find_layout_copies(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports kernels of library calls that rearrange or convert tensors."""
    whole = evidence.whole
    copies = [row for row in evidence.critical_rows if is_layout_copy(row.kernel)]
    rows = [row for row in copies if not is_addend_copy(row.kernel)]
    if whole.part(sum_times(rows)) >= LEAST_SHARE:
        operators = join_words(list(dict.fromkeys(row.kernel.operator for row in rows if row.kernel.operator)), 2)
        text = (
            f"{operators or 'library'} calls spend {whole.format(sum_times(rows))} on rearranging or converting tensors"
            f"{name_origins(rows)}: another memory format (channels_last or contiguous) may need less of it"
        )
        changes = (_LIBRARY_CHANGES["channels_last"],)
        yield make_finding("layout-copies", text, rows, saves_s=assume_without_kernel, changes=changes)


def find_hotspots(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports operators that take much of the time, other than convolutions, matrix products and attention."""
    rows, whole = evidence.critical_rows, evidence.whole
    groups: dict[str, Rows] = {}
    for row in rows:
        if row.kernel.category is Category.EXTERN_ATEN and row.kernel.operator:
            groups.setdefault(row.kernel.operator, []).append(row)
    for operator, group in groups.items():
        if whole.part(sum_times(group)) >= HOTSPOT:
            kernels = plural(len(group), "library kernel")
            took = whole.format(sum_times(group))
            text = f"{operator} takes {took} in {kernels}, which Inductor neither fuses nor tunes"
            yield replace(make_finding("hotspot", text, group, saves_s=assume_without_kernel), about=operator)


# Rules about single launches: short, spilling, unnamed and unsteady kernels.
#
# Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned.


UNSTEADY = 0.25  # spread of the middle half of a kernel's samples, as a share of their median


def find_short_kernels(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports a large number of launches shorter than :data:`SHORT_S`."""
    rows, whole = evidence.critical_rows, evidence.whole
    short = [
        row for row in rows if not row.device.runs_on_host and 0 < row.cost.time_s < SHORT_S * max(row.cost.calls, 1)
    ]
    calls, every = sum(row.cost.calls for row in short), sum(row.cost.calls for row in rows)
    if calls >= 20 and whole.part(sum_times(short)) >= SHORT_TIME:
        text = (
            f"{units.count(calls)} of {units.count(every)} launches last under 5 µs, {whole.format(sum_times(short))} "
            "together: fewer and larger kernels would help, tuned kernels would not"
        )
        yield make_finding("short-kernels", text, short, saves_s=assume_without_kernel)


def find_spills(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports kernels that spill registers to memory."""
    rows, whole = evidence.rows, evidence.whole
    spilling = [row for row in rows if row.kernel.compiled.spills]
    if spilling:
        most = max(row.kernel.compiled.spills or 0 for row in spilling)
        text = (
            f"{plural(len(spilling), 'kernel')} {'spills' if len(spilling) == 1 else 'spill'} registers to memory "
            f"(up to {most} a thread): {whole.format(sum_times(spilling))}"
        )
        matters = whole.part(sum_times(spilling)) >= LEAST_SHARE
        yield make_finding("spills", text, spilling, ADVICE if matters else NOTE)


def find_unnamed_kernels(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports kernels that could not be put into a category."""
    rows, whole = evidence.rows, evidence.whole
    other = [row for row in rows if row.kernel.category is Category.OTHER]
    if whole.part(sum_times(other)) >= LEAST_SHARE / 2:
        number = plural(len(other), "kernel")
        text = f"{number} could not be put into a category: {whole.format(sum_times(other))}; please report the names"
        yield make_finding("other", text, other, CAUTION)


def find_unsteady_kernels(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports kernels whose time varies between iterations."""
    rows, whole = evidence.rows, evidence.whole

    def moves(row: CostedKernel) -> bool:
        every, steady = row.kernel.samples_s, row.module.profiled.steady_iterations
        samples = [every[i] for i in steady if 0 <= i < len(every)] or list(every)
        if len(samples) < 5 or whole.part(row.cost.time_s) < LEAST_SHARE:
            return False
        low, middle, high = statistics.quantiles(samples, n=4)
        return middle > 0 and (high - low) / middle > UNSTEADY

    unsteady = [row for row in rows if moves(row)]
    if unsteady:
        text = (
            f"{plural(len(unsteady), 'kernel')} {'takes' if len(unsteady) == 1 else 'take'} a different time in each "
            "iteration; why was not measured"
        )
        matters = whole.part(sum_times(unsteady)) >= SHORT_TIME
        yield make_finding("unsteady-kernels", text, unsteady, CAUTION if matters else NOTE)


# Rules about compilation: graph breaks, recompilations, disagreement of the two captures, and threads.
#
# Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned.


MOST_REASON, MOST_HINT = 150, 200  # largest numbers of characters of Dynamo's reason for one graph break, and its hint

_REASON_NOISE = re.compile(r"^\d+/\d+: |\s*\bMessage: None\b\.?|\s*\bHint: .*$")


DYNAMO_CONFIG = "torch._dynamo.config."
HINTED = ("capture_scalar_outputs", "capture_dynamic_output_shape_ops", "allow_rnn")
"""Options of Dynamo that its hints name, and that ``optimize`` tries."""


def list_hinted_options(run: Run) -> tuple[str, ...]:
    """The options of :data:`HINTED` that a hint of the run's graph breaks names."""
    return tuple(name for name in HINTED if any(f"config.{name}" in text for text in run.capture.graph_breaks))


def find_graph_breaks(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graph breaks, their reasons, and what Dynamo hints at."""
    breaks = evidence.run.capture.graph_breaks
    if breaks:
        # The user cannot remove a break in torch's code; torch's optimizers have one.
        own = [text for text in breaks if "/site-packages/torch/" not in text.replace("\\", "/").partition(": ")[0]]
        inside = "" if own else ", in torch's code"
        places: dict[str, list[str]] = {}
        for text in own or breaks:
            place, reason = _shorten_reason(text)
            places.setdefault(reason, []).append(place)
        reasons = join_words([": ".join(filter(None, (join_words(at, 3), reason))) for reason, at in places.items()], 2)
        hints = list(dict.fromkeys(_short(text.partition(HINT)[2].rstrip("."), MOST_HINT) for text in own))
        said = join_words([hint for hint in hints if hint][:2], 2)
        hinted = f". Dynamo's hint: {said}" if said else ""
        text = (
            f"{plural(len(breaks), 'graph break')}{inside}: {reasons}{hinted}{_describe_cost_between_graphs(evidence)}"
        )
        changes = tuple(
            ProgramChange("setting", f"{DYNAMO_CONFIG}{name}", "True") for name in list_hinted_options(evidence.run)
        )
        yield Finding("graph-breaks", text, level=CAUTION if own else NOTE, changes=changes)


def _describe_cost_between_graphs(evidence: RunEvidence) -> str:
    """Says what Python and guards between compiled graphs cost the step; empty if the cost is small or unknown."""
    times = sum_idle_by_label(evidence.run)
    time_s = times.get(PYTHON, 0.0) + times.get(GUARDS, 0.0)
    if time_s < LEAST_SHARE * evidence.whole.time_s or not time_s or is_uncompiled(evidence.run):
        return ""
    return f". Python and guards, between graphs and elsewhere, cost {evidence.whole.format(time_s)} of a step"


def find_capture_disagreement(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports modules that only one of the two captures found."""
    run = evidence.run
    if run.capture.disagreement:
        text = (
            "the printed `Compiled module path:` lines and the structured trace name different modules: "
            f"{run.capture.disagreement}"
        )
        yield Finding("capture", text, level=CAUTION)


def find_single_thread(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports CPU graphs that ran on one thread on a machine with several CPUs that other processes left idle."""
    run = evidence.run
    single = [m for m in run.modules if find_device(m.device).runs_on_host and m.threads == 1]
    if single and run.environment.host.cpu_count > 1 and compute_share_of_others(run) < OTHERS:
        cpus = f"{run.environment.host.cpu_count} CPUs"
        text = f"{join_labels(single)} ran on 1 thread of {cpus} (OMP_NUM_THREADS, torch.set_num_threads)"
        yield Finding("threads", text, list_slugs(single), level=CAUTION)


def _shorten_reason(text: str) -> tuple[str, str]:
    """Returns ``file:line`` with a short path, if there is one, and the reason without Dynamo's placeholders."""
    place, colon, reason = shorten_paths(" ".join(text.split())).partition(": ")
    reason = _REASON_NOISE.sub("", reason).strip()
    # The reason may be a headline, a colon and an explanation. Either may hold the information, so both are kept.
    kept = reason.replace(": ", " (", 1).rstrip(".") + ")" if reason.count(": ") == 1 else reason.rstrip(".")
    return (place, _short(kept, MOST_REASON)) if colon else ("", _short(place, MOST_REASON))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


MOST_LINES = 3


def find_pageable_copies(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports copies to the device from pageable memory, which the driver first copies into memory of its own.

    It holds if the trace calls the memory pageable. The time of the copies counts, and so does the time for which the
    device waits while the host makes them. Copies to the host do not count: ``.item()`` reads few bytes, and
    ``synchronisations`` reports such copies.
    """
    run = evidence.run
    if runs_on_host(run):
        return
    parts = [part for part in list_parts(run, COPY) if part.label == "host to device" and part.pageable_s > 0]
    rows = [row for row in evidence.rows if is_pageable(row)]
    copied_s = sum(part.pageable_s for part in parts) + sum_times(rows)
    idle_s = sum_idle_by_label(run).get(COPYING, 0.0)
    if not copied_s + idle_s or copied_s + idle_s < LEAST_SHARE * evidence.whole.time_s:
        return
    text = "copies to the device from pageable memory"
    if copied_s:
        text += f" take {format_share(run, copied_s)}{_describe_places(parts)}"
    if idle_s:
        waits = f"the device idle for {format_share(run, idle_s)} of a step{describe_spots(run, (COPYING,))}"
        text += f"{' and' if copied_s else ''} make the host wait, and keep {waits}"
    text += ": pin the memory (pin_memory=True of the DataLoader, tensor.pin_memory()), and copy with non_blocking=True"
    changes = (ProgramChange("argument", "DataLoader.pin_memory", "True"),)
    found = make_finding("pageable-copies", text, rows, changes=changes)
    yield replace(
        found, gain_s=copied_s + idle_s, assumed=RemovedWork(parts=tuple(parts), idle=list_idle_parts(run, COPYING))
    )


def is_pageable(row: CostedKernel) -> bool:
    """Whether a kernel of a graph is a copy to the device from pageable memory."""
    return row.kernel.category is Category.COPY and "HtoD" in row.kernel.name and "Pageable" in row.kernel.name


def _describe_places(parts: list[Part]) -> str:
    lines = list(dict.fromkeys(name_line(part.source) for part in parts if part.source))
    return f" ({join_words(lines, MOST_LINES)})" if lines else ""


RULES = (
    Rule(("below-memory-limit", "below-compute-limit"), find_kernels_below_limit),
    Rule(("few-blocks",), find_few_blocks),
    Rule(("layout-copies",), find_layout_copies),
    Rule(("library-below-limit",), find_library_calls_below_limit),
    Rule(("hotspot",), find_hotspots),
    Rule(("pageable-copies",), find_pageable_copies, names_host_work=True),
    Rule(("host-copies",), find_host_copies),
    Rule(("copies",), find_device_copies),
    Rule(("copied-addends",), find_copied_addends),
    Rule(("padded-products",), find_padded_products),
    Rule(("short-kernels",), find_short_kernels),
    Rule(("spills",), find_spills),
    Rule(("other",), find_unnamed_kernels),
    Rule(("unsteady-kernels",), find_unsteady_kernels, is_measurement=True),
    Rule(("graph-breaks",), find_graph_breaks),
    Rule(("capture",), find_capture_disagreement, is_measurement=True),
    Rule(("threads",), find_single_thread),
)
