"""The finding about float32 work in a model of half precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ... import units
from ...records.program import EAGER, Part
from ..step_costs import parts_of, runs_on_host
from .attention_findings import decomposed_rows
from .eager_findings import operator_words
from .finding import PRODUCTS, Finding, Rows, RunEvidence, finding_of, join_words, time_of
from .program_findings import WRAPPERS, line_words

HALF = ("bfloat16", "float16")
ISLAND = 0.05  # share of the whole time in float32 work from which it is reported
MOSTLY = 0.5  # share of the products' FLOPs from which they are those of the model


def float32_island(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports float32 products and eager operators in a model whose products are in half precision.

    It holds if products in half precision have most of the products' FLOPs. Optimizers, gathered gradients and products
    without tensor cores, of which ``full-float32`` tells, do not count, nor do decomposed attentions.
    """
    dtype = _half_of(evidence)
    if not dtype or runs_on_host(evidence.run):
        return
    apart = {row.place for row in decomposed_rows(evidence)}
    rows = [
        row
        for row in evidence.critical_rows
        if row.kernel.category in PRODUCTS and row.kernel.work.dtype == "tf32" and row.place not in apart
    ]
    parts = [
        part for part in parts_of(evidence.run, EAGER) if part.dtype == "float32" and not WRAPPERS.search(part.label)
    ]
    time_s = time_of(rows) + sum(part.time_s for part in parts)
    if evidence.whole.part(time_s) < ISLAND:
        return
    words = _island_words(evidence, rows, parts)
    text = (
        f"float32 work in a model of {dtype} takes {evidence.whole.format(time_s)}: {words}. Keep it in {dtype} where "
        "its precision allows that"
    )
    if parts:
        text += ", or compile it with the model, which then reads each tensor once"
    found = finding_of("float32-island", text, rows, saves_s=lambda row: row.cost.time_s / 2)
    yield replace(found, gain_s=time_s / 2)


def _half_of(evidence: RunEvidence) -> str:
    """The half precision of the model's products; empty if most of their FLOPs are in another type."""
    flops: dict[str, float] = {}
    for row in evidence.rows:
        work, calls = row.kernel.work, row.kernel.calls
        if work.flops and work.dtype and calls:
            flops[work.dtype] = flops.get(work.dtype, 0.0) + work.flops * row.cost.calls / calls
    whole = sum(flops.values())
    return next((one for one in HALF if whole and flops.get(one, 0.0) >= MOSTLY * whole), "")


def _island_words(evidence: RunEvidence, rows: Rows, parts: Sequence[Part]) -> str:
    eager = [(part.time_s, operator_words(part, evidence)) for part in parts]
    lines: dict[str, float] = {}
    for row in rows:
        source = next(iter(row.kernel.origin.source_lines), None)
        place = f"products at {line_words(source)}" if source else "products"
        lines[place] = lines.get(place, 0.0) + row.cost.time_s
    graph = [(time_s, f"{place} {units.percent(evidence.whole.part(time_s))}") for place, time_s in lines.items()]
    return join_words([words for _, words in sorted([*eager, *graph], reverse=True)], 3)
