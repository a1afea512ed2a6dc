"""The rule about matrix products that are computed more precisely than the device is fast at.

Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ... import units
from ...records.base import Category
from ...records.run import ProgramChange, Run
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
    make_finding,
    sum_times,
)
from .product_findings import HALF, list_reported_rows
from .step_phrases import name_origins

_FULL_FLOAT32_NAMES = ("sgemm", "f32f32_f32f32")
FASTER = 2.0
"""Ratio of a processor's measured peaks in bfloat16 and float32 from which matrix products in bfloat16 are advised."""

CALL_S = 25e-6
"""The overhead in seconds of a call of oneDNN in bfloat16, beside the product and the conversion of its operands.
(measured: matrix products of 32 to 256 rows, torch 2.13)"""


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


def list_processor_rows(evidence: RunEvidence) -> Rows:
    """Returns the products that a processor would compute faster in bfloat16, if they take enough time to report."""
    if not runs_on_host(evidence.run):
        return []
    of_attention, saved_s = {row.place for row in list_reported_rows(evidence)}, _make_bfloat16_saving(evidence.run)
    rows = [
        row
        for row in evidence.critical_rows
        if row.kernel.category is Category.EXTERN_GEMM and row.kernel.work.dtype == "float32" and saved_s(row)
    ]
    found = [row for row in rows if row.place not in of_attention]
    return found if evidence.whole.part(sum_times(found)) >= 5 * LEAST_SHARE else []


def _find_processor_float32(evidence: RunEvidence) -> Iterator[Finding]:
    run, whole, slow, saved_s = (
        evidence.run,
        evidence.whole,
        list_processor_rows(evidence),
        _make_bfloat16_saving(evidence.run),
    )
    if run.peaks is None or not slow:
        return
    rates = [run.peaks.matmul_flops[dtype] for dtype in ("float32", "bfloat16")]
    text = (
        f"matrix products in float32 take {whole.format(sum_times(slow))}{name_origins(slow)}, and this processor "
        f"multiplies bfloat16 {rates[1] / rates[0]:.1f} times as fast ({' → '.join(map(units.flop_rate, rates))}, "
        "measured): torch.set_float32_matmul_precision('medium') lets it compute them in bfloat16, at most "
        f"{whole.format(sum(map(saved_s, slow)))} less; factors then have 7 bits of mantissa instead of 23, so "
        "results change"
    )
    attention = [row for row in evidence.critical_rows if _is_float32_attention(row)]
    if attention:
        text += (
            f". Fused attention, {whole.format(sum_times(attention))}, is then in bfloat16, too, and takes longer than "
            "in float32 if sequences are short"
        )
    changes = (ProgramChange("setting", "torch.set_float32_matmul_precision", "'medium'"),)
    yield make_finding("full-float32", text, slow, saves_s=saved_s, changes=changes)


def _is_float32_attention(row: CostedKernel) -> bool:
    return row.kernel.category is Category.EXTERN_ATTENTION and row.kernel.work.dtype == "float32"


def _make_bfloat16_saving(run: Run) -> Callable[[CostedKernel], float]:
    """Returns what a product saves in bfloat16 at the same share of the peak, less the conversion of its operands."""
    peaks = run.peaks
    rates = peaks.matmul_flops if peaks is not None else {}
    slower, faster = (rates.get(dtype, 0.0) for dtype in ("float32", "bfloat16"))

    def saved_s(row: CostedKernel) -> float:
        if peaks is None or not slower or faster < FASTER * slower or not row.kernel.calls:
            return 0.0
        read_s = (row.kernel.work.moved_bytes or 0.0) / row.kernel.calls / peaks.memory_bandwidth
        left_s = row.cost.time_s * slower / faster + row.cost.calls * (read_s + CALL_S)
        return max(0.0, row.cost.time_s - left_s)

    return saved_s


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
