"""The rule about matrix products that are computed more precisely than the device is fast at.

Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from ...records.base import Category
from ...records.run import ProgramChange, Run
from ...records.traced import OperatorCall
from ..call_work import classify_operator, find_dtype
from ..kernel_aggregation import IN_BFLOAT16
from ..step_costs import runs_on_host
from .finding import (
    LEAST_SHARE,
    PRODUCTS,
    CostedKernel,
    Finding,
    Rows,
    Rule,
    RunEvidence,
    join_words,
    list_slugs,
    make_finding,
    sum_times,
)
from .product_findings import HALF, list_reported_rows
from .step_phrases import name_origins

_FULL_FLOAT32_NAMES = ("sgemm", "f32f32_f32f32")
FASTER = 2.0
"""Ratio of a processor's measured peaks in bfloat16 and float32 from which products are timed in both."""

CLEARLY = 0.2
"""Share of their own time that products and attention must save together in bfloat16, as they were timed.

If an encoder for short sequences saved 6% of it, its step was 16% longer. (torch 2.13, 1 thread, Xeon with AMX)
"""

MOST_TIMED = 40
"""The largest number of different calls that are timed."""


def find_full_float32(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports matrix products in float32 that do not use tensor cores, or a processor's faster products in bfloat16.

    Products of an attention without a fused kernel do not count: ``decomposed-attention`` reports them.
    """
    rows, whole, run = evidence.critical_rows, evidence.whole, evidence.run
    if runs_on_host(run):
        yield from _find_processor_float32(evidence)
        return
    of_attention = {row.place for row in list_reported_rows(evidence)}
    slow = [
        row
        for row in rows
        if row.kernel.category in PRODUCTS
        and row.device.has_tf32
        and not row.module.tf32
        and any(mark in row.kernel.name for mark in _FULL_FLOAT32_NAMES)
        and row.place not in of_attention
    ]
    if whole.part(sum_times(slow)) >= 5 * LEAST_SHARE:
        text = f"matrix products in full float32, without tensor cores, take {whole.format(sum_times(slow))}"
        text += name_origins(slow)
        text += _explain_float32(slow, rows, run)
        changes = (ProgramChange("setting", "torch.set_float32_matmul_precision", "'high'"),)
        yield make_finding("full-float32", text, slow, saves_s=_find_beyond_tf32(run), changes=changes)


def list_products_to_time(
    run: Run, calls: Mapping[str, Iterable[OperatorCall]], times: Mapping[str, Mapping[OperatorCall, float]]
) -> list[OperatorCall]:
    """Returns the calls to time in float32 and bfloat16, the first ones first; none if this could advise nothing.

    Attention comes first: it takes little time, and may be many times slower in bfloat16.

    Args:
        run: the record.
        calls: the library calls of each module's own run, by its slug.
        times: the seconds of library calls in a step of the program, by slug; they count instead.
    """
    evidence = RunEvidence(run)
    if not _list_float32_rows(evidence):
        return []
    found: dict[OperatorCall, float] = {}
    for slug in list_slugs(row.module for row in evidence.critical_rows):
        for call in calls.get(slug, ()) if slug not in times else times[slug]:
            if classify_operator(call.name) in IN_BFLOAT16 and find_dtype(call.arguments) == "float32":
                found[call] = found.get(call, 0.0) + times.get(slug, {}).get(call, 0.0)
    of_attention = [call for call in found if classify_operator(call.name) is Category.EXTERN_ATTENTION]
    return sorted(found, key=lambda call: (call not in of_attention, -found[call]))[:MOST_TIMED]


def _list_float32_rows(evidence: RunEvidence) -> Rows:
    """The products of float32, if they take enough time to report, and the processor is much faster in bfloat16."""
    peaks = evidence.run.peaks
    rates = peaks.matmul_flops if peaks is not None else {}
    if not runs_on_host(evidence.run) or rates.get("bfloat16", 0.0) < FASTER * rates.get("float32", math.inf):
        return []
    of_attention = {row.place for row in list_reported_rows(evidence)}
    rows = [
        row
        for row in evidence.critical_rows
        if row.kernel.category is Category.EXTERN_GEMM
        and row.kernel.work.dtype == "float32"
        and row.place not in of_attention
    ]
    return rows if evidence.whole.part(sum_times(rows)) >= 5 * LEAST_SHARE else []


def list_processor_rows(evidence: RunEvidence) -> Rows:
    """Returns the products, if they were faster in bfloat16, and all that the setting changes was clearly faster."""
    timed = [row for row in _list_float32_rows(evidence) if row.kernel.bfloat16_ratio is not None]
    saved_s = sum(map(_save_in_bfloat16, [*timed, *_list_float32_attention(evidence)]))
    if sum(map(_save_in_bfloat16, timed)) <= 0 or evidence.whole.part(saved_s) < LEAST_SHARE:
        return []
    return timed if saved_s >= CLEARLY * sum_times([*timed, *_list_float32_attention(evidence)]) else []


def is_no_faster_in_bfloat16(run: Run) -> bool:
    """Whether the products of a program were timed in bfloat16, and are not clearly faster in it."""
    timed = any(kernel.bfloat16_ratio is not None for module in run.modules for kernel in module.kernels)
    return timed and not list_processor_rows(RunEvidence(run))


def _list_float32_attention(evidence: RunEvidence) -> Rows:
    rows = evidence.critical_rows
    return [
        row for row in rows if row.kernel.category is Category.EXTERN_ATTENTION and row.kernel.work.dtype == "float32"
    ]


def _save_in_bfloat16(row: CostedKernel) -> float:
    """The seconds that a row's calls save, as they were timed; below 0 if they take longer."""
    ratio = row.kernel.bfloat16_ratio
    return row.cost.time_s * (1 - ratio) if ratio is not None else 0.0


def _find_processor_float32(evidence: RunEvidence) -> Iterator[Finding]:
    whole, slow, attention = evidence.whole, list_processor_rows(evidence), _list_float32_attention(evidence)
    if not slow:
        return
    of_products_s, of_attention_s = (sum(map(_save_in_bfloat16, rows)) for rows in (slow, attention))
    ratio = 1 - of_products_s / sum_times(slow)
    text = (
        f"matrix products in float32 take {whole.format(sum_times(slow))}{name_origins(slow)}. Timed by themselves on "
        f"this processor, products of their shapes took {ratio:.2f} times as long in bfloat16: "
        "torch.set_float32_matmul_precision('medium') allows this type, which saves about "
        f"{whole.format(of_products_s + of_attention_s)}. Factors then have 7 bits of mantissa instead of 23, so "
        "results change"
    )
    if of_attention_s:
        less = f"{whole.format(abs(of_attention_s))} {'less' if of_attention_s > 0 else 'longer'}"
        text += f". Fused attention is then in bfloat16, too, and takes {less}: the saving includes this"
    changes = (ProgramChange("setting", "torch.set_float32_matmul_precision", "'medium'"),)
    rows, net = slow, 1 + min(of_attention_s, 0.0) / of_products_s
    if of_attention_s > 0:
        rows = [*slow, *(row for row in attention if row.kernel.bfloat16_ratio is not None)]
    yield make_finding("full-float32", text, rows, saves_s=lambda row: net * _save_in_bfloat16(row), changes=changes)


def _find_beyond_tf32(run: Run) -> Callable[[CostedKernel], float]:
    """Returns what a product saves in TF32: its time minus that of its FLOPs at the peak; half if that is unknown."""
    rates = run.peaks.matmul_flops if run.peaks else {}

    def saved_s(row: CostedKernel) -> float:
        flops, calls = row.kernel.work.flops, row.kernel.calls
        if not flops or not calls or not rates.get("tf32"):
            return row.cost.time_s / 2
        return max(0.0, row.cost.time_s - flops * row.cost.calls / calls / rates["tf32"])

    return saved_s


def _explain_float32(slow: Rows, rows: Rows, run: Run) -> str:
    """Returns the cause of the float32 arithmetic, if the record holds it, and a change that avoids it."""
    tf32 = "torch.set_float32_matmul_precision('high') allows TF32"
    products = (*PRODUCTS, Category.TEMPLATE)
    used = {run.request.amp, *(row.kernel.work.dtype for row in rows if row.kernel.category in products)}
    half = [dtype for dtype in HALF if dtype in used]
    if not half:
        return f": {tf32}, autocast half precision"
    beside = f", beside others in {join_words(half, 2)}"
    return f"{beside}: {tf32}"


RULES = (Rule(("full-float32",), find_full_float32),)
