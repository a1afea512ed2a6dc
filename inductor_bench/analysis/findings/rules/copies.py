"""Rules about copies to, from and within the device.

Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned.
"""

from __future__ import annotations

from collections.abc import Iterator

from .... import units
from ....records.category import Category
from ..evidence import (
    LEAST_SHARE,
    Row,
    RunEvidence,
    finding_of,
    in_program,
    is_addend_copy,
    is_max_autotuned,
    time_of,
)
from ..finding import Finding
from ..phrases import join_words, plural

COPIES = 0.03  # share of the whole time from which copies within the device are reported


def host_copies(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports copies to or from the host."""
    whole = evidence.whole
    host = [row for row in evidence.rows if _is_host_copy(row)]
    if host:
        times = units.count(sum(row.cost.calls for row in host))
        pageable = any("Pageable" in row.kernel.name for row in host)
        noun, verb = ("copy", "takes") if times == "1" else ("copies", "take")
        text = f"{times} {noun} to or from the host {verb} {whole.format(time_of(host))}"
        text += ", from pageable memory, which makes the host wait" if pageable else ""
        yield finding_of("host-copies", text, host, gain_s=in_program(host, lambda row: row.cost.time_s))


def device_copies(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports copies within the device."""
    whole = evidence.whole
    copies = [row for row in evidence.critical_rows if row.kernel.category is Category.COPY]
    device = [row for row in copies if not _is_host_copy(row) and not is_addend_copy(row.kernel)]
    if whole.part(time_of(device)) >= COPIES:
        within = join_words(list(dict.fromkeys(row.kernel.operator for row in device if row.kernel.operator)), 3)
        text = f"copies within the device take {whole.format(time_of(device))}" + (
            f", made by {within}" if within else ""
        )
        yield finding_of("copies", text, device, gain_s=in_program(device, lambda row: row.cost.time_s))


def copied_addends(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports products whose addend, such as a residual or a bias, is copied into their output before."""
    whole, rows = evidence.whole, [row for row in evidence.critical_rows if is_addend_copy(row.kernel)]
    if not rows or whole.part(time_of(rows)) < LEAST_SHARE:
        return
    operators = join_words(list(dict.fromkeys(row.kernel.operator or "" for row in rows)))
    calls = sum(row.cost.calls for row in rows)
    per = "step" if evidence.in_step else "iteration"
    text = (
        f"{operators} calls copy what they add into their output before the product, {units.count(calls)} times per "
        f"{per}, {whole.format(time_of(rows))}: cuBLAS adds to the output"
    )
    if not is_max_autotuned(evidence.run, rows):
        text += "; try mode='max-autotune-no-cudagraphs', whose Triton products read the addend where it lies"
    yield finding_of("copied-addends", text, rows, gain_s=in_program(rows, lambda row: row.cost.time_s))


def padded_products(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports generated kernels that only copy matrices into larger ones, which Inductor does for faster products."""
    whole, rows = evidence.whole, [row for row in evidence.critical_rows if row.kernel.origin.padded_sides]
    if not rows or whole.part(time_of(rows)) < LEAST_SHARE:
        return
    sides = dict.fromkeys(side for row in rows for side in row.kernel.origin.padded_sides)
    grown = join_words([f"{before} to {after}" for before, after in sides], 3)
    larger = join_words(list(dict.fromkeys(str(after) for _, after in sides)), 3, last="or")
    text = (
        f"{plural(len(rows), 'generated kernel')} only {'copies' if len(rows) == 1 else 'copy'} matrices into larger "
        f"ones ({grown}), {whole.format(time_of(rows))}: Inductor pads them for the products that follow; a size of "
        f"{larger} in the model, such as a padded vocabulary, needs no copies"
    )
    yield finding_of("padded-products", text, rows, gain_s=in_program(rows, lambda row: row.cost.time_s))


def _is_host_copy(row: Row) -> bool:
    return row.kernel.category is Category.COPY and ("HtoD" in row.kernel.name or "DtoH" in row.kernel.name)
