"""Findings about matrix products, their precision, and attention."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ... import units
from ...records.base import Category
from ...records.code import SourceLine
from ...records.module import ShapeGroup
from ...records.run import BACKWARD, EAGER, GUARDS, LAUNCHING, Part, ProgramChange
from ..step_costs import find_graph_use, list_parts, runs_on_host
from .compile_findings import describe_operator
from .finding import (
    ADVICE,
    FAR_FROM_ROOF,
    LEAST_SHARE,
    NOTE,
    PRODUCTS,
    CostedKernel,
    Finding,
    Rows,
    Rule,
    RunEvidence,
    assume_at_roof,
    join_words,
    make_finding,
    plural,
    select_kernels_worth_naming,
    sum_times,
)
from .program_findings import WRAPPERS, list_idle_parts
from .step_phrases import name_line

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
        """The product's part of the kernel's cost."""
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


def read_tensors(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """The type and the sizes of each tensor in the text of an operator's arguments."""
    found = (match.group("dtype", "sizes") for match in _TENSOR.finditer(text))
    return [(dtype, tuple(int(size) for size in sizes.split(",") if size)) for dtype, sizes in found]


def list_products(rows: Sequence[CostedKernel]) -> list[Product]:
    """The matrix products that library kernels compute, as far as their sizes are known."""
    return [one for row in rows for group in row.kernel.shapes if (one := _read_product(row, group)) is not None]


def _read_product(row: CostedKernel, group: ShapeGroup) -> Product | None:
    place = _FIRST.get(row.kernel.operator or "")
    tensors = read_tensors(group.shapes)
    if row.kernel.category is not Category.EXTERN_GEMM or place is None or not group.operator_calls:
        return None
    if len(tensors) < place + 2:
        return None
    (dtype, first), (_, second) = tensors[place : place + 2]
    if len(first) != len(second) or len(first) not in (2, 3) or first[-1] != second[-2]:
        return None
    return Product(row, group, dtype, first[0] if len(first) == 3 else 1, first[-2], first[-1], second[-1])


def _list_rows(products: Sequence[Product]) -> Rows:
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


def find_unaligned_products(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports matrix products whose sizes are no multiple of 16 bytes, in which tensor cores read matrices.

    It holds if the name of the kernel says that it reads fewer elements at once, or the product reaches less than three
    quarters of the rate of the run's aligned products of the same type. A size that costs nothing is not reported.
    """
    if runs_on_host(evidence.run):
        return
    whole, products = evidence.whole, [one for one in list_products(evidence.critical_rows) if one.dtype in BYTES]
    slow = [one for one in products if _list_unaligned_sizes(one) and _is_slow(one, products)]
    time_s = sum(one.time_s for one in slow)
    if not slow or whole.part(time_s) < LEAST_SHARE:
        return
    rates = [rate for one in slow if (rate := one.rate)]
    aligned = _compute_aligned_rate(slow[0], products)
    sides = dict.fromkeys(side for one in slow for side in _list_unaligned_sizes(one))
    step = _count_aligned_elements(slow[0])
    text = (
        f"{plural(len(slow), 'matrix product')} with a size that is no multiple of {step} "
        f"({join_words([str(side) for side in sides], 3)}) {'takes' if len(slow) == 1 else 'take'} "
        f"{whole.format(time_s)}"
    )
    peak = _find_peak(evidence, slow[0])
    if rates and peak:
        low, high = units.whole_percent(min(rates) / peak), units.whole_percent(max(rates) / peak)
        text += f", at {low if low == high else f'{low} to {high}'} of the peak"
        text += f"; aligned matrix products of this run reach {units.whole_percent(aligned / peak)}" if aligned else ""
    grown = [f"{side} to {-(-side // step) * step}" for side in sides]
    text += f": in the model change {join_words(grown, 3)}, or to a multiple of 64"
    saved = {id(one): one.time_s * (1 - one.rate / aligned) if aligned and one.rate else one.time_s / 2 for one in slow}

    def saved_s(row: CostedKernel) -> float:
        return sum(saved[id(one)] for one in slow if one.row is row)

    rows = _list_rows(slow)
    yield make_finding("unaligned-products", text, rows, saves_s=saved_s)


def _count_aligned_elements(product: Product) -> int:
    """The number of elements in 16 bytes."""
    return 16 // BYTES[product.dtype]


def _list_unaligned_sizes(product: Product) -> list[int]:
    """Returns a product's sizes that are no multiple of 16 bytes. A single row or column is not read as a matrix."""
    return [side for side in product.sides if side % _count_aligned_elements(product) and side > SMALL]


def _is_slow(product: Product, every: Sequence[Product]) -> bool:
    found = _ALIGN.search(product.row.kernel.name)
    if found and int(found["elements"]) < _count_aligned_elements(product):
        return True
    aligned = _compute_aligned_rate(product, every)
    return bool(aligned and product.rate and product.rate < SLOWER * aligned)


def _compute_aligned_rate(product: Product, every: Sequence[Product]) -> float | None:
    """The median rate of aligned matrix products of the same type, which are about as large or larger."""
    flops = _count_flops(product)
    rates = [
        one.rate
        for one in every
        if one.dtype == product.dtype and one.rate and not _list_unaligned_sizes(one) and min(one.sides) > SMALL
        # A much smaller product is slow for another reason.
        and flops / 4 <= _count_flops(one) <= 4 * flops and flops >= LEAST_FLOPS
    ]  # fmt: skip
    return statistics.median(rates) if rates else None


def _count_flops(product: Product) -> float:
    return 2.0 * product.batch * product.rows * product.inner * product.columns


def _find_peak(evidence: RunEvidence, product: Product) -> float | None:
    rates = evidence.run.peaks.matmul_flops if evidence.run.peaks else {}
    return rates.get(product.row.kernel.work.dtype or "")


def find_small_products(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports matrix products of few rows with large matrices.

    Reading the matrix takes the time, however few rows there are.

    It holds for products with one size of at most 16 and two large sizes. It is advice in three cases: in training,
    because the batch can be larger; for a graph that a step calls several times, because one call may do; and if such
    products take half of the step, because waiting requests could join the batch at little cost. Otherwise it is a
    note, because the requests set the batch size.
    """
    if runs_on_host(evidence.run):
        return
    whole = evidence.whole
    small = [one for one in list_products(evidence.critical_rows) if _is_small(one)]
    time_s = sum(one.time_s for one in small)
    if whole.part(time_s) < SMALL_TIME:
        return
    most = max(min(one.sides) for one in small)
    trains = any(module.role == "backward" for module in evidence.run.modules)
    several = any(find_graph_use(evidence.run, one.row.module).calls >= SEVERAL_CALLS for one in small)
    grows = trains or several or whole.part(time_s) >= MOSTLY_SMALL
    text = (
        f"matrix products with {'a single row' if most == 1 else f'at most {most} rows'} in one matrix take "
        f"{whole.format(time_s)}: they read large matrices for little work"
    )
    enough = _compute_rows_at_roofs(evidence, small[0])
    if enough and enough > most:
        text += f"; according to the measured peaks, a batch of up to about {enough} rows takes the same time"

    def saved_s(row: CostedKernel) -> float:
        share = 1 - most / enough if enough and enough > most else 0.0
        return share * sum(one.time_s for one in small if one.row is row)

    rows = _list_rows(small)
    found = make_finding("small-products", text, rows, ADVICE if grows else NOTE, saves_s=saved_s if grows else None)
    yield _advise_fewer_calls(found, evidence) if several else found


def _advise_fewer_calls(finding: Finding, evidence: RunEvidence) -> Finding:
    """Adds to the finding the host's work in the calls that one larger call would replace."""
    idle = list_idle_parts(evidence.run, LAUNCHING, GUARDS, BACKWARD)
    waited_s = sum(part.time_s for part in idle)
    return replace(finding, gain_s=finding.gain_s + waited_s, assumed=replace(finding.assumed, idle=idle))


def _is_small(product: Product) -> bool:
    low, middle, _ = sorted(product.sides)
    return product.batch == 1 and low <= SMALL and middle >= LARGE


def _compute_rows_at_roofs(evidence: RunEvidence, product: Product) -> int | None:
    """Returns the number of rows at which a product's FLOPs take as long as reading its large matrix."""
    peaks, flops = evidence.run.peaks, _find_peak(evidence, product)
    size = BYTES.get(product.dtype)
    if peaks is None or not flops or size is None:
        return None
    return round(flops * size / (2 * peaks.memory_bandwidth) / 10) * 10


HALF = ("bfloat16", "float16")
ISLAND = 0.05  # share of the whole time in float32 work from which it is reported
MOSTLY = 0.5  # share of the products' FLOPs from which they are those of the model


def find_float32_island(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports float32 matrix products and eager operators in a model whose products are in half precision.

    It holds if products in half precision have most of the products' FLOPs. Optimizers, gathered gradients, decomposed
    attentions, and products without tensor cores (see ``full-float32``) do not count.
    """
    dtype = _find_main_half_precision(evidence)
    if not dtype or runs_on_host(evidence.run):
        return
    apart = {row.place for row in find_decomposed_rows(evidence)}
    rows = [
        row
        for row in evidence.critical_rows
        if row.kernel.category in PRODUCTS and row.kernel.work.dtype == "tf32" and row.place not in apart
    ]
    parts = [
        part for part in list_parts(evidence.run, EAGER) if part.dtype == "float32" and not WRAPPERS.search(part.label)
    ]
    time_s = sum_times(rows) + sum(part.time_s for part in parts)
    if evidence.whole.part(time_s) < ISLAND:
        return
    words = _describe_island(evidence, rows, parts)
    text = (
        f"float32 work in a model of {dtype} takes {evidence.whole.format(time_s)}: {words}. Keep it in {dtype} if "
        "the precision is enough"
    )
    if parts:
        text += ", or compile it with the model, which then reads each tensor once"
    found = make_finding("float32-island", text, rows, saves_s=lambda row: row.cost.time_s / 2)
    yield replace(found, gain_s=time_s / 2)


def sum_product_flops(evidence: RunEvidence) -> dict[str, float]:
    """Sums the FLOPs of matrix products by type: of a step or, without a step, of one iteration of each graph."""
    flops: dict[str, float] = {}
    for row in evidence.rows:
        work, calls = row.kernel.work, row.kernel.calls
        if work.flops and work.dtype and calls:
            flops[work.dtype] = flops.get(work.dtype, 0.0) + work.flops * row.cost.calls / calls
    return flops


def _find_main_half_precision(evidence: RunEvidence) -> str:
    """The half precision of the model's matrix products; empty if most of their FLOPs are in another type."""
    flops = sum_product_flops(evidence)
    whole = sum(flops.values())
    return next((one for one in HALF if whole and flops.get(one, 0.0) >= MOSTLY * whole), "")


def _describe_island(evidence: RunEvidence, rows: Rows, parts: Sequence[Part]) -> str:
    eager = [(part.time_s, describe_operator(part, evidence)) for part in parts]
    lines: dict[str, float] = {}
    for row in rows:
        source = next(iter(row.kernel.origin.source_lines), None)
        place = f"products at {name_line(source)}" if source else "products"
        lines[place] = lines.get(place, 0.0) + row.cost.time_s
    graph = [(time_s, f"{place} {units.percent(evidence.whole.part(time_s))}") for place, time_s in lines.items()]
    return join_words([words for _, words in sorted([*eager, *graph], reverse=True)], 3)


SLOW = FAR_FROM_ROOF / 2  # share of its roof below which an attention is far from it
USUALLY_SLOW = 0.1  # the same without a mask and with heads of a usual size
USUAL_HEADS = 64  # usual head size of fused kernels
DECOMPOSED = 0.03  # share of the whole time in decomposed attention from which it is reported
_BACKENDS = (
    (re.compile(r"cudnn", re.I), "cuDNN"),
    (re.compile(r"efficient|fmha_cutlass|AttentionKernel|mem_eff", re.I), "the memory-efficient backend"),
    (re.compile(r"flash", re.I), "FlashAttention"),
)
_SOFTMAX = re.compile(r"softmax", re.I)
_DROPOUT = re.compile(r"dropout|bernoulli", re.I)
_SDPA = "scaled_dot_product_attention"


def find_attention_below_limit(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports calls of fused attention far from their roof, with backend, head size and mask.

    It holds if the calls have FLOPs or bytes that a roof can be compared with. Head size and mask are those of the
    operator's arguments; why a backend is slow with them is not measured. Without a mask and with heads of a usual
    size, only few queries can slow a backend. Then it is reported only much further below its roof.
    """
    unusual = _is_unusual(evidence.critical_rows)
    slow = [
        row
        for row in evidence.critical_rows
        if row.kernel.category is Category.EXTERN_ATTENTION
        and row.kernel.roof.peak_share is not None
        and row.kernel.roof.peak_share < (SLOW if unusual else USUALLY_SLOW)
    ]
    rows, left_out = select_kernels_worth_naming(evidence, slow)
    replaceable = all(row.device.suggests_tuning for row in rows)
    if not rows or evidence.whole.part(sum_times(rows)) < (2 * LEAST_SHARE if replaceable else 10 * LEAST_SHARE):
        return
    highest = units.whole_percent(max(row.kernel.roof.peak_share or 0.0 for row in rows))
    what = join_words(list(dict.fromkeys(name_attention_backend(row) for row in rows)), 2) or "attention"
    masks = _describe_masks(rows)
    facts = [*_describe_heads(rows), *([f"a mask of {list(masks[0])}"] if masks else [])]
    text = (
        f"attention by {what} takes {evidence.whole.format(sum_times(rows))} in {plural(len(rows), 'kernel')}, "
        f"{'at' if len(rows) == 1 else 'each at'} {highest} of its roof{'' if len(rows) == 1 else ' or less'}"
    )
    text += f", with {' and '.join(facts)}" if facts else ""
    if replaceable:
        text += ": try another backend (torch.nn.attention.sdpa_kernel)"
        heads = [size for row in rows if (size := read_head_size(row))]
        text += f", or fewer heads of {USUAL_HEADS} or more" if heads and max(heads) < USUAL_HEADS else ""
        square = any(mask[-1] == mask[-2] for mask in masks)
        text += ", or is_causal=True if the mask is causal" if square else ""
    text += left_out
    changes = (ProgramChange("setting", "torch.nn.attention.sdpa_kernel", ""),) if replaceable else ()
    yield make_finding("attention-below-limit", text, rows, saves_s=assume_at_roof, changes=changes)


def _is_unusual(rows: Rows) -> bool:
    """Whether an attention has a mask, or heads of a size that is small or unknown."""
    found = [row for row in rows if row.kernel.category is Category.EXTERN_ATTENTION]
    return bool(_describe_masks(found)) or any((read_head_size(row) or 0) < USUAL_HEADS for row in found)


def name_attention_backend(row: CostedKernel) -> str:
    """The backend of a call of attention, by its operator or else by its kernel's name; empty if neither tells."""
    for text in (row.kernel.operator or "", row.kernel.name):
        for pattern, name in _BACKENDS:
            if pattern.search(text):
                return name
    return ""


def read_head_size(row: CostedKernel) -> int | None:
    """The head size of a call of attention; ``None`` if its arguments do not tell."""
    sizes = {tensors[0][1][-1] for group in row.kernel.shapes if (tensors := _read_arguments(group.shapes))}
    return sizes.pop() if len(sizes) == 1 else None


def _read_arguments(shapes: str) -> list[tuple[str, tuple[int, ...]]]:
    found = read_tensors(shapes)
    return found if len(found) >= 3 and len(found[0][1]) == 4 else []


def _describe_heads(rows: Rows) -> list[str]:
    sizes = sorted({size for row in rows if (size := read_head_size(row))})
    return [f"heads of {join_words([str(size) for size in sizes], 3)}"] if sizes else []


def _describe_masks(rows: Rows) -> list[tuple[int, ...]]:
    """The sizes of masks: a fourth tensor of a forward call. The arguments of a backward call do not tell."""
    forward = [row for row in rows if row.kernel.operator and "backward" not in row.kernel.operator]
    calls = [_read_arguments(group.shapes) for row in forward for group in row.kernel.shapes]
    return [tensors[3][1] for tensors in calls if len(tensors) > 3 and len(tensors[3][1]) > 1]


# The rule about attention that runs as several kernels.


def find_decomposed_attention(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports attention that runs as matrix products with a softmax between them, which no single kernel shows.

    It holds for graphs in which batched products make scores, other products take these scores, and a kernel computes a
    softmax of as many values. Products of the backward count if they have the sizes of the scores. A fused kernel may
    save half of the time. No fused kernel of torch takes dropout on a CPU (torch 2.13): then the finding is a note.
    """
    rows = list_reported_rows(evidence)
    if not rows:
        return
    products = [row for row in rows if row.kernel.category is Category.EXTERN_GEMM]
    types = list(dict.fromkeys(row.kernel.work.dtype for row in products if row.kernel.work.dtype))
    calls = sum(row.cost.calls for row in rows)
    where, is_sdpa = _find_line(rows)
    text = (
        f"attention{where} is computed as matrix products, a softmax and the operators between them: "
        f"{units.count(calls)} "
        "launches, "
        f"{evidence.whole.format(sum_times(rows))}, its matrix products in {join_words([str(one) for one in types], 2)}"
    )
    drops = any(_DROPOUT.search(one) for row in rows for one in _list_operators(row))
    if drops and rows[0].device.runs_on_host:
        text += ". It has dropout, and torch has no fused kernel for attention with dropout on a CPU"
        yield make_finding("decomposed-attention", text, rows, NOTE)
        return
    if is_sdpa:
        text += (
            f": no fused kernel of {_SDPA} took its arguments (mask, head size, type, dropout). With other arguments "
            "it is one kernel; torch.nn.attention.sdpa_kernel with a single backend says why this backend refuses them"
        )
        if types == ["float32"] and any(row.kernel.work.dtype in HALF for row in evidence.critical_rows):
            text += (
                ". torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True), which is less exact, keeps the type "
                "of arguments in half precision"
            )
    else:
        text += f": torch.nn.functional.{_SDPA} does it in one kernel (attn_implementation='sdpa' in transformers)"
    yield make_finding("decomposed-attention", text, rows, saves_s=lambda row: row.cost.time_s / 2)


def list_reported_rows(evidence: RunEvidence) -> Rows:
    """Returns the kernels of attentions that are not fused, if they take enough time to be reported."""
    rows = find_decomposed_rows(evidence)
    return rows if evidence.whole.part(sum_times(rows)) >= DECOMPOSED else []


def find_decomposed_rows(evidence: RunEvidence) -> Rows:
    """Returns the kernels of attentions that are not fused: products that make or take scores, and softmax kernels."""
    found: Rows = []
    for slug in dict.fromkeys(row.module.slug for row in evidence.critical_rows):
        rows = [row for row in evidence.critical_rows if row.module.slug == slug]
        scores = _find_scores([one for one in list_products(rows) if one.batch > 1])
        softmax = [row for row in rows if _is_softmax(row) and _moves_as_much_as(row, scores)]
        if not softmax:
            continue
        own = {id(one.row) for one in list_products(rows) if one.batch > 1 and _touches(one, scores)}
        found += [row for row in rows if id(row) in own] + softmax
    return sorted(found, key=lambda row: -row.cost.time_s)


def find_unfused_attention(evidence: RunEvidence) -> Rows:
    """Returns the kernels of graphs that call torch's attention, but whose arguments no fused kernel accepts."""
    by_graph: dict[str, Rows] = {}
    for row in find_decomposed_rows(evidence):
        by_graph.setdefault(row.module.slug, []).append(row)
    calling = {slug for slug, rows in by_graph.items() if _find_line(rows)[1]}
    return [row for slug, rows in by_graph.items() if slug in calling for row in rows]


_Scores = set[tuple[int, int, int]]
"""The batch, queries and keys of matrices of scores."""


def _find_scores(products: list[Product]) -> _Scores:
    """Returns the results of batched matrix products that other batched products take as a matrix."""
    made = {(one.batch, one.rows, one.columns) for one in products}
    taken = {(one.batch, one.rows, one.inner) for one in products}
    taken |= {(batch, keys, queries) for batch, queries, keys in taken}
    return {one for one in made & taken if one[2] > 1}


def _touches(product: Product, scores: _Scores) -> bool:
    """Whether a product makes scores or takes them, as they are or transposed."""
    mine = [(product.rows, product.columns), (product.rows, product.inner), (product.inner, product.columns)]
    return any((product.batch, *pair) in scores or (product.batch, *pair[::-1]) in scores for pair in mine)


def _is_softmax(row: CostedKernel) -> bool:
    return row.kernel.category not in (Category.EXTERN_ATTENTION, Category.EXTERN_GEMM) and any(
        _SOFTMAX.search(one) and "log_softmax" not in one for one in _list_operators(row)
    )


def _list_operators(row: CostedKernel) -> tuple[str, ...]:
    """The operators that a kernel computes, and its name, which tells them, too."""
    return (*row.kernel.origin.aten_ops, row.kernel.operator or "", row.kernel.name)


def _moves_as_much_as(row: CostedKernel, scores: _Scores) -> bool:
    """Whether a kernel moves at least as many bytes as the scores have in half precision.

    A router's softmax moves fewer.
    """
    moved, calls = row.kernel.work.moved_bytes, row.kernel.calls
    return moved is not None and calls > 0 and any(moved / calls >= 2 * math.prod(one) for one in scores)


def _find_line(rows: Rows) -> tuple[str, bool]:
    """The line of the program, and whether it calls torch's attention."""
    lines: list[SourceLine] = [line for row in rows for line in row.kernel.origin.source_lines]
    own = next((line for line in lines if _SDPA in line.code), None)
    line = own or next(iter(lines), None)
    return f" at {name_line(line)}" if line else "", own is not None


RULES = (
    Rule(("attention-below-limit",), find_attention_below_limit),
    Rule(("decomposed-attention",), find_decomposed_attention),
    Rule(("unaligned-products",), find_unaligned_products),
    Rule(("small-products",), find_small_products),
    Rule(("float32-island",), find_float32_island),
)
