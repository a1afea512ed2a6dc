"""The rule about matrix products without tensor cores.

Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....records.category import Category
from ....records.run import Run
from ..evidence import LEAST_SHARE, PRODUCTS, Rows, RunEvidence, finding_of, in_program, time_of
from ..finding import Finding
from ..phrases import join_words

NEARLY_ALL = 0.9  # share of a finding's time from which one cause is reported for all of it
_FULL_FLOAT32_NAMES = ("sgemm", "f32f32_f32f32")
_HALF = ("bfloat16", "float16")
_SDPA = "scaled_dot_product_attention"


def full_float32(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports matrix products in float32 that do not use tensor cores."""
    rows, whole, run = evidence.critical_rows, evidence.whole, evidence.run
    slow = [
        row
        for row in rows
        if row.kernel.category in PRODUCTS
        and row.device.has_tf32
        and not row.module.tf32
        and any(mark in row.kernel.name for mark in _FULL_FLOAT32_NAMES)
    ]
    if whole.part(time_of(slow)) >= 5 * LEAST_SHARE:
        text = f"matrix products in full float32, without tensor cores, take {whole.format(time_of(slow))}"
        text += _why_float32(slow, rows, run)
        yield finding_of("full-float32", text, slow, gain_s=in_program(slow, lambda row: row.cost.time_s))


def _why_float32(slow: Rows, rows: Rows, run: Run) -> str:
    """Returns the cause of the float32 arithmetic, where the record holds it, and a change that avoids it."""
    tf32 = "torch.set_float32_matmul_precision('high') allows TF32"
    products = (*PRODUCTS, Category.TEMPLATE)
    used = {run.request.amp, *(row.kernel.work.dtype for row in rows if row.kernel.category in products)}
    half = [dtype for dtype in _HALF if dtype in used]
    if not half:
        return f": {tf32}, autocast half precision"
    beside = f", beside others in {join_words(half, 2)}"
    attention = [row for row in slow if any(_SDPA in line.code for line in row.kernel.origin.source_lines)]
    if time_of(attention) < NEARLY_ALL * time_of(slow):
        return f"{beside}: {tf32}"
    return (
        f"{beside}: {_SDPA} multiplies in float32 where none of its fused kernels takes the arguments "
        f"(mask, head size, type). Best are arguments that one takes; else {tf32}, and, "
        f"for arguments in {join_words(half, 2)} and less exact, "
        "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True) keeps their type"
    )
