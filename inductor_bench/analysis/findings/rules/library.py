"""Rules about library calls, which Inductor does not tune.

Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned. A gain
is the saving at a roof, which the kernel may be unable to reach.
"""

from __future__ import annotations

from collections.abc import Iterator

from .... import units
from ....records.category import Category
from ..evidence import (
    FAR_FROM_ROOF,
    LEAST_GAIN,
    LEAST_SHARE,
    Rows,
    RunEvidence,
    finding_of,
    in_program,
    is_addend_copy,
    is_layout_copy,
    is_max_autotuned,
    time_of,
)
from ..finding import Finding
from ..phrases import join_words, plural

SHARE_UNTUNED = 0.1  # share of the whole time from which slow library calls are reported without a suggestion
HOTSPOT = 0.2  # share of the whole time from which an operator is reported


def library_below_limit(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports library calls far from every roof. Another call, layout or algorithm may be faster."""
    rows, whole, run = evidence.critical_rows, evidence.whole, evidence.run
    kinds = {
        Category.EXTERN_CONV: ("convolutions", ["torch.backends.cudnn.benchmark=True", "channels_last"]),
        Category.EXTERN_GEMM: ("matrix products", []),
        Category.EXTERN_ATTENTION: ("attention calls", ["another backend of scaled_dot_product_attention"]),
    }
    for category, (noun, advice) in kinds.items():
        low = [
            row
            for row in rows
            if row.kernel.category is category
            and not is_layout_copy(row.kernel)
            and row.kernel.roof.peak_share is not None
            and row.kernel.roof.peak_share < FAR_FROM_ROOF / 2
            and whole.part(row.cost.gain_limit_s or 0.0) >= LEAST_GAIN
        ]
        replaceable = all(row.device.suggests_tuning for row in low)
        if whole.part(time_of(low)) < (2 * LEAST_SHARE if replaceable else SHARE_UNTUNED):
            continue
        highest = units.whole_percent(max(row.kernel.roof.peak_share or 0.0 for row in low))
        at = f" at {highest} of its roof" if len(low) == 1 else f", each at {highest} of its roof"
        if len(low) > 1 and not highest.startswith("<"):
            at += " or less"
        text = f"library {noun} take {whole.format(time_of(low))} in {plural(len(low), 'kernel')}{at}"
        is_chosen = is_max_autotuned(run, low)
        tries = [*advice, *([] if is_chosen or category is Category.EXTERN_ATTENTION else ["mode='max-autotune'"])]
        if tries and replaceable:
            reason = "" if is_chosen else " Inductor does not tune them:"
            text += f";{reason} try {join_words(tries, last='or')}"
        gain = in_program(low, lambda row: row.cost.gain_limit_s or 0.0)
        yield finding_of("library-below-limit", text, low, gain_s=gain)


def layout_copies(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports kernels of library calls that rearrange or convert tensors."""
    whole = evidence.whole
    copies = [row for row in evidence.critical_rows if is_layout_copy(row.kernel)]
    rows = [row for row in copies if not is_addend_copy(row.kernel)]
    if whole.part(time_of(rows)) >= LEAST_SHARE:
        operators = join_words(list(dict.fromkeys(row.kernel.operator for row in rows if row.kernel.operator)), 2)
        text = (
            f"{operators or 'library'} calls spend {whole.format(time_of(rows))} on rearranging or converting tensors: "
            "another memory format (channels_last or contiguous) may need less of it"
        )
        yield finding_of("layout-copies", text, rows, gain_s=in_program(rows, lambda row: row.cost.time_s))


def hotspots(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports operators that take much of the time, other than convolutions, matrix products and attention."""
    rows, whole = evidence.critical_rows, evidence.whole
    groups: dict[str, Rows] = {}
    for row in rows:
        if row.kernel.category is Category.EXTERN_ATEN and row.kernel.operator:
            groups.setdefault(row.kernel.operator, []).append(row)
    for operator, group in groups.items():
        if whole.part(time_of(group)) >= HOTSPOT:
            kernels = plural(len(group), "library kernel")
            took = whole.format(time_of(group))
            text = f"{operator} takes {took} in {kernels}, which Inductor neither fuses nor tunes"
            yield finding_of("hotspot", text, group, gain_s=in_program(group, lambda row: row.cost.time_s))
