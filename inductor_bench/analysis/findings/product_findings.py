"""Findings about matrix products: unaligned and small ones."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ... import units
from ...records.base import Category
from ...records.kernel import ShapeGroup
from ...records.program import BACKWARD, GUARDS, LAUNCHING
from ..step_costs import graph_use, runs_on_host
from .finding import (
    ADVICE,
    LEAST_SHARE,
    NOTE,
    CostedKernel,
    Finding,
    Rows,
    RunEvidence,
    finding_of,
    join_words,
    plural,
)
from .program_findings import idle_parts

# The sizes of matrix products, from the arguments of their operators.


BYTES = {"f32": 4, "bf16": 2, "f16": 2, "f8e4m3": 1, "f8e5m2": 1}
_TENSOR = re.compile(r"(?P<dtype>[a-z]\w*)\[(?P<sizes>[\d,]*)\]")
_FIRST = {"aten.mm": 0, "aten.bmm": 0, "aten.addmm": 1, "aten.baddbmm": 1, "aten._scaled_mm": 0, "aten._int_mm": 0}
"""The place of the first matrix among the arguments of an operator."""


@dataclass(frozen=True)
class Product:
    """Calls of one product of ``[rows, inner]`` and ``[inner, columns]``, ``batch`` of them at once."""

    row: CostedKernel
    group: ShapeGroup
    dtype: str  # of its elements, as tables write it
    batch: int
    rows: int
    inner: int
    columns: int

    @property
    def time_s(self) -> float:
        """Its part of the kernel's cost."""
        kernel = self.row.kernel
        return self.row.cost.time_s * self.group.time_s / kernel.time_s if kernel.time_s else 0.0

    @property
    def rate(self) -> float | None:
        """FLOPs per second in the program; ``None`` if they are unknown."""
        if not self.group.flops or not self.group.time_s:
            return None
        return self.group.flops / self.group.time_s / (self.row.kernel.step_slowdown or 1.0)

    @property
    def sides(self) -> tuple[int, int, int]:
        return self.rows, self.inner, self.columns


def tensors_in(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """The type and the sizes of each tensor in the text of an operator's arguments."""
    found = (match.group("dtype", "sizes") for match in _TENSOR.finditer(text))
    return [(dtype, tuple(int(size) for size in sizes.split(",") if size)) for dtype, sizes in found]


def products_of(rows: Sequence[CostedKernel]) -> list[Product]:
    """The products of library kernels whose sizes are known."""
    return [one for row in rows for group in row.kernel.shapes if (one := _product(row, group)) is not None]


def _product(row: CostedKernel, group: ShapeGroup) -> Product | None:
    place = _FIRST.get(row.kernel.operator or "")
    tensors = tensors_in(group.shapes)
    if row.kernel.category is not Category.EXTERN_GEMM or place is None or not group.operator_calls:
        return None
    if len(tensors) < place + 2:
        return None
    (dtype, first), (_, second) = tensors[place : place + 2]
    if len(first) != len(second) or len(first) not in (2, 3) or first[-1] != second[-2]:
        return None
    return Product(row, group, dtype, first[0] if len(first) == 3 else 1, first[-2], first[-1], second[-1])


def _rows_of(products: Sequence[Product]) -> Rows:
    times: dict[int, float] = {}
    rows: dict[int, CostedKernel] = {}
    for one in products:
        rows[id(one.row)] = one.row
        times[id(one.row)] = times.get(id(one.row), 0.0) + one.time_s
    return [rows[place] for place in sorted(rows, key=lambda place: -times[place])]


# Rules about products.


SLOWER = 0.75  # share of the rate of aligned products below which unaligned ones are slow
LEAST_FLOPS = 1e8  # FLOPs of one call from which products are compared
SMALL = 16  # rows, columns or inner size up to which a product is small
SEVERAL_CALLS = 4  # calls of a graph in a step that may be one call with a larger batch
LARGE = 256  # the two other sizes of a small product are at least this
SMALL_TIME = 0.05  # share of the whole time in small products from which they are reported
MOSTLY_SMALL = 0.5  # share of the whole time from which the batch of an inference may be larger, too
_ALIGN = re.compile(r"align(?P<elements>[124])(?!\d)")


def unaligned_products(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports products whose sizes are no multiple of 16 bytes, in which tensor cores read matrices.

    It holds if the name of the kernel says that it reads fewer elements at once, or the product reaches less than three
    quarters of the rate of the run's aligned products of the same type. A size that costs nothing is not reported.
    """
    if runs_on_host(evidence.run):
        return
    whole, products = evidence.whole, [one for one in products_of(evidence.critical_rows) if one.dtype in BYTES]
    slow = [one for one in products if _odd_sides(one) and _is_slow(one, products)]
    time_s = sum(one.time_s for one in slow)
    if not slow or whole.part(time_s) < LEAST_SHARE:
        return
    rates = [rate for one in slow if (rate := one.rate)]
    aligned = _aligned_rate(slow[0], products)
    sides = dict.fromkeys(side for one in slow for side in _odd_sides(one))
    step = _elements(slow[0])
    text = (
        f"{plural(len(slow), 'matrix product')} with a size that is no multiple of {step} "
        f"({join_words([str(side) for side in sides], 3)}) {'takes' if len(slow) == 1 else 'take'} "
        f"{whole.format(time_s)}"
    )
    peak = _peak(evidence, slow[0])
    if rates and peak:
        low, high = units.whole_percent(min(rates) / peak), units.whole_percent(max(rates) / peak)
        text += f", at {low if low == high else f'{low} to {high}'} of the peak"
        text += f"; aligned ones of this run reach {units.whole_percent(aligned / peak)}" if aligned else ""
    grown = [f"{side} to {-(-side // step) * step}" for side in sides]
    text += f": change {join_words(grown, 3)} in the model, or a multiple of 64"
    saved = {id(one): one.time_s * (1 - one.rate / aligned) if aligned and one.rate else one.time_s / 2 for one in slow}

    def saved_s(row: CostedKernel) -> float:
        return sum(saved[id(one)] for one in slow if one.row is row)

    rows = _rows_of(slow)
    yield finding_of("unaligned-products", text, rows, saves_s=saved_s)


def _elements(product: Product) -> int:
    """The number of elements in 16 bytes."""
    return 16 // BYTES[product.dtype]


def _odd_sides(product: Product) -> list[int]:
    """Its sizes that are no multiple of 16 bytes; of one row or column nothing is read as a matrix."""
    return [side for side in product.sides if side % _elements(product) and side > SMALL]


def _is_slow(product: Product, every: Sequence[Product]) -> bool:
    found = _ALIGN.search(product.row.kernel.name)
    if found and int(found["elements"]) < _elements(product):
        return True
    aligned = _aligned_rate(product, every)
    return bool(aligned and product.rate and product.rate < SLOWER * aligned)


def _aligned_rate(product: Product, every: Sequence[Product]) -> float | None:
    """The median rate of aligned products of the same type, which are about as large or larger."""
    flops = _flops(product)
    rates = [
        one.rate
        for one in every
        if one.dtype == product.dtype and one.rate and not _odd_sides(one) and min(one.sides) > SMALL
        # A much smaller product is slow for another reason.
        and flops / 4 <= _flops(one) <= 4 * flops and flops >= LEAST_FLOPS
    ]  # fmt: skip
    return statistics.median(rates) if rates else None


def _flops(product: Product) -> float:
    return 2.0 * product.batch * product.rows * product.inner * product.columns


def _peak(evidence: RunEvidence, product: Product) -> float | None:
    rates = evidence.run.peaks.matmul_flops if evidence.run.peaks else {}
    return rates.get(product.row.kernel.work.dtype or "")


def small_products(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports products of few rows with large matrices: to read the matrix takes the time, whatever the rows.

    It holds for products one of whose sizes is at most 16, and whose others are large. It is advice for training, where
    the batch can be larger, for graphs that a step calls several times, whose calls may be one, and if it is half of
    the step: then others that wait take hardly longer. Else it is a note: the batch is what has to be answered.
    """
    if runs_on_host(evidence.run):
        return
    whole = evidence.whole
    small = [one for one in products_of(evidence.critical_rows) if _is_small(one)]
    time_s = sum(one.time_s for one in small)
    if whole.part(time_s) < SMALL_TIME:
        return
    most = max(min(one.sides) for one in small)
    trains = any(module.role == "backward" for module in evidence.run.modules)
    several = any(graph_use(evidence.run, one.row.module).calls >= SEVERAL_CALLS for one in small)
    grows = trains or several or whole.part(time_s) >= MOSTLY_SMALL
    text = (
        f"matrix products with {'a single row' if most == 1 else f'at most {most} rows'} in one matrix take "
        f"{whole.format(time_s)}: they read large matrices for little work"
    )
    enough = _rows_at_roofs(evidence, small[0])
    if enough and enough > most:
        text += f"; by the roofs, a batch takes as long until it has about {enough} rows"

    def saved_s(row: CostedKernel) -> float:
        share = 1 - most / enough if enough and enough > most else 0.0
        return share * sum(one.time_s for one in small if one.row is row)

    rows = _rows_of(small)
    found = finding_of("small-products", text, rows, ADVICE if grows else NOTE, saves_s=saved_s if grows else None)
    yield _with_fewer_calls(found, evidence) if several else found


def _with_fewer_calls(finding: Finding, evidence: RunEvidence) -> Finding:
    """The finding with what the host does in the calls that one larger call would replace."""
    idle = idle_parts(evidence.run, LAUNCHING, GUARDS, BACKWARD)
    waited_s = sum(part.time_s for part in idle)
    return replace(finding, gain_s=finding.gain_s + waited_s, assumed=replace(finding.assumed, idle=idle))


def _is_small(product: Product) -> bool:
    low, middle, _ = sorted(product.sides)
    return product.batch == 1 and low <= SMALL and middle >= LARGE


def _rows_at_roofs(evidence: RunEvidence, product: Product) -> int | None:
    """The rows at which the FLOPs of a product take as long as reading its large matrix."""
    peaks, flops = evidence.run.peaks, _peak(evidence, product)
    size = BYTES.get(product.dtype)
    if peaks is None or not flops or size is None:
        return None
    return round(flops * size / (2 * peaks.memory_bandwidth) / 10) * 10
