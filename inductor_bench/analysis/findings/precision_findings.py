"""The rule about matrix products that are computed more precisely than the device is fast at.

Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...records.base import Category
from ...records.run import ProgramChange, Run
from .finding import (
    LEAST_SHARE,
    PRODUCTS,
    CostedKernel,
    Finding,
    Rows,
    Rule,
    RunEvidence,
    finding_of,
    join_words,
    time_of,
)
from .product_findings import reported_rows
from .step_phrases import origin_words

_FULL_FLOAT32_NAMES = ("sgemm", "f32f32_f32f32")
_HALF = ("bfloat16", "float16")


def full_float32(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports matrix products in float32 that do not use tensor cores.

    Those of an attention that is no fused kernel do not count: ``decomposed-attention`` tells of them.
    """
    rows, whole, run = evidence.critical_rows, evidence.whole, evidence.run
    of_attention = {row.place for row in reported_rows(evidence)}
    slow = [
        row
        for row in rows
        if row.kernel.category in PRODUCTS
        and row.device.has_tf32
        and not row.module.tf32
        and any(mark in row.kernel.name for mark in _FULL_FLOAT32_NAMES)
        and row.place not in of_attention
    ]
    if whole.part(time_of(slow)) >= 5 * LEAST_SHARE:
        text = f"matrix products in full float32, without tensor cores, take {whole.format(time_of(slow))}"
        text += origin_words(slow)
        text += _why_float32(slow, rows, run)
        changes = (ProgramChange("setting", "torch.set_float32_matmul_precision", "'high'"),)
        yield finding_of("full-float32", text, slow, saves_s=_beyond_tf32(run), changes=changes)


def _beyond_tf32(run: Run) -> Callable[[CostedKernel], float]:
    """What a product saves in TF32: all but the time that its FLOPs take at that peak; half if that is unknown."""
    rates = run.peaks.matmul_flops if run.peaks else {}

    def saved_s(row: CostedKernel) -> float:
        flops, calls = row.kernel.work.flops, row.kernel.calls
        if not flops or not calls or not rates.get("tf32"):
            return row.cost.time_s / 2
        return max(0.0, row.cost.time_s - flops * row.cost.calls / calls / rates["tf32"])

    return saved_s


def _why_float32(slow: Rows, rows: Rows, run: Run) -> str:
    """Returns the cause of the float32 arithmetic, if the record holds it, and a change that avoids it."""
    tf32 = "torch.set_float32_matmul_precision('high') allows TF32"
    products = (*PRODUCTS, Category.TEMPLATE)
    used = {run.request.amp, *(row.kernel.work.dtype for row in rows if row.kernel.category in products)}
    half = [dtype for dtype in _HALF if dtype in used]
    if not half:
        return f": {tf32}, autocast half precision"
    beside = f", beside others in {join_words(half, 2)}"
    return f"{beside}: {tf32}"


RULES = (Rule(("full-float32",), full_float32),)
