"""Findings about attention: library calls far below their roof, and attention that is several kernels."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from ... import units
from ...records.base import Category
from ...records.code import SourceLine
from ...records.program import ProgramChange
from .finding import (
    FAR_FROM_ROOF,
    LEAST_GAIN,
    LEAST_SHARE,
    CostedKernel,
    Finding,
    Rows,
    RunEvidence,
    finding_of,
    join_words,
    plural,
    time_of,
    to_its_roof,
)
from .product_findings import Product, products_of, tensors_in
from .program_findings import line_words

SLOW = FAR_FROM_ROOF / 2  # share of its roof below which an attention is far from it
USUALLY_SLOW = 0.1  # the same for one without a mask, whose heads are of a usual size
USUAL_HEADS = 64  # head size from which fused kernels are at home
DECOMPOSED = 0.03  # share of the whole time in decomposed attention from which it is reported
_BACKENDS = (
    (re.compile(r"cudnn", re.I), "cuDNN"),
    (re.compile(r"efficient|fmha_cutlass|AttentionKernel|mem_eff", re.I), "the memory-efficient backend"),
    (re.compile(r"flash", re.I), "FlashAttention"),
)
_SOFTMAX = re.compile(r"softmax", re.I)
_SDPA = "scaled_dot_product_attention"


def attention_below_limit(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports calls of fused attention far from their roof, with backend, head size and mask.

    It holds if the calls have FLOPs or bytes that a roof can be compared with. Head size and mask are those of the
    operator's arguments; why a backend is slow with them is not measured. Without a mask, and with heads of a usual
    size, a backend has nothing that slows it but few queries: then it has to be much further off.
    """
    unusual = _is_unusual(evidence.critical_rows)
    rows = [
        row
        for row in evidence.critical_rows
        if row.kernel.category is Category.EXTERN_ATTENTION
        and row.kernel.roof.peak_share is not None
        and row.kernel.roof.peak_share < (SLOW if unusual else USUALLY_SLOW)
        and evidence.whole.part(row.cost.gain_limit_s or 0.0) >= LEAST_GAIN
    ]
    replaceable = all(row.device.suggests_tuning for row in rows)
    if not rows or evidence.whole.part(time_of(rows)) < (2 * LEAST_SHARE if replaceable else 10 * LEAST_SHARE):
        return
    highest = units.whole_percent(max(row.kernel.roof.peak_share or 0.0 for row in rows))
    what = join_words(list(dict.fromkeys(backend_of(row) for row in rows)), 2) or "attention"
    masks = _masks(rows)
    facts = [*_head_words(rows), *([f"a mask of {list(masks[0])}"] if masks else [])]
    text = (
        f"attention by {what} takes {evidence.whole.format(time_of(rows))} in {plural(len(rows), 'kernel')}, "
        f"{'at' if len(rows) == 1 else 'each at'} {highest} of its roof{'' if len(rows) == 1 else ' or less'}"
    )
    text += f", with {' and '.join(facts)}" if facts else ""
    if replaceable:
        text += ": try another backend (torch.nn.attention.sdpa_kernel)"
        heads = [size for row in rows if (size := head_size(row))]
        text += f", or fewer heads of {USUAL_HEADS} or more" if heads and max(heads) < USUAL_HEADS else ""
        square = any(mask[-1] == mask[-2] for mask in masks)
        text += ", or is_causal=True if the mask is causal" if square else ""
    changes = (ProgramChange("setting", "torch.nn.attention.sdpa_kernel", ""),) if replaceable else ()
    yield finding_of("attention-below-limit", text, rows, saves_s=to_its_roof, changes=changes)


def _is_unusual(rows: Rows) -> bool:
    """Whether an attention has a mask, or heads of a size that is small or unknown."""
    found = [row for row in rows if row.kernel.category is Category.EXTERN_ATTENTION]
    return bool(_masks(found)) or any((head_size(row) or 0) < USUAL_HEADS for row in found)


def backend_of(row: CostedKernel) -> str:
    """The backend of a call of attention, by its operator or else by its kernel's name; empty if neither tells."""
    for text in (row.kernel.operator or "", row.kernel.name):
        for pattern, name in _BACKENDS:
            if pattern.search(text):
                return name
    return ""


def head_size(row: CostedKernel) -> int | None:
    """The size of the heads of a call of attention; ``None`` if its arguments do not tell."""
    sizes = {tensors[0][1][-1] for group in row.kernel.shapes if (tensors := _arguments(group.shapes))}
    return sizes.pop() if len(sizes) == 1 else None


def _arguments(shapes: str) -> list[tuple[str, tuple[int, ...]]]:
    found = tensors_in(shapes)
    return found if len(found) >= 3 and len(found[0][1]) == 4 else []


def _head_words(rows: Rows) -> list[str]:
    sizes = sorted({size for row in rows if (size := head_size(row))})
    return [f"heads of {join_words([str(size) for size in sizes], 3)}"] if sizes else []


def _masks(rows: Rows) -> list[tuple[int, ...]]:
    """The sizes of masks: a fourth tensor of a forward call. The arguments of a backward call do not tell."""
    forward = [row for row in rows if row.kernel.operator and "backward" not in row.kernel.operator]
    calls = [_arguments(group.shapes) for row in forward for group in row.kernel.shapes]
    return [tensors[3][1] for tensors in calls if len(tensors) > 3 and len(tensors[3][1]) > 1]


# The rule about attention that is several kernels.


def decomposed_attention(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports attention that runs as products with a softmax between them, which no single kernel shows.

    It holds for graphs in which batched products make scores and others take them, and a kernel computes a softmax
    of as many values.
    Products of the backward belong to it by the sizes of the scores. Half of its time is what a fused kernel may save.
    """
    rows = reported_rows(evidence)
    if not rows:
        return
    products = [row for row in rows if row.kernel.category is Category.EXTERN_GEMM]
    types = list(dict.fromkeys(row.kernel.work.dtype for row in products if row.kernel.work.dtype))
    calls = sum(row.cost.calls for row in rows)
    where, is_sdpa = _line(rows)
    text = (
        f"attention{where} is products, a softmax and what stands between them: {units.count(calls)} launches, "
        f"{evidence.whole.format(time_of(rows))}, its products in {join_words([str(one) for one in types], 2)}"
    )
    if is_sdpa:
        text += (
            f": no fused kernel of {_SDPA} took its arguments (mask, head size, type, dropout). Arguments that one of "
            "them takes need one kernel; torch.nn.attention.sdpa_kernel with a single backend says what it refuses"
        )
        if types == ["float32"]:
            text += (
                ". torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True), which is less exact, keeps the type "
                "of arguments in half precision"
            )
    else:
        text += f": torch.nn.functional.{_SDPA} does it in one kernel (attn_implementation='sdpa' in transformers)"
    yield finding_of("decomposed-attention", text, rows, saves_s=lambda row: row.cost.time_s / 2)


def reported_rows(evidence: RunEvidence) -> Rows:
    """The kernels of attentions that are not fused, if they take so much of the time that they are reported."""
    rows = decomposed_rows(evidence)
    return rows if evidence.whole.part(time_of(rows)) >= DECOMPOSED else []


def decomposed_rows(evidence: RunEvidence) -> Rows:
    """The kernels of attentions that are not fused: products by their scores, and generated kernels with a softmax."""
    found: Rows = []
    for slug in dict.fromkeys(row.module.slug for row in evidence.critical_rows):
        rows = [row for row in evidence.critical_rows if row.module.slug == slug]
        scores = _scores([one for one in products_of(rows) if one.batch > 1])
        softmax = [row for row in rows if _is_softmax(row) and _may_read(row, scores)]
        if not softmax:
            continue
        own = {id(one.row) for one in products_of(rows) if one.batch > 1 and _touches(one, scores)}
        found += [row for row in rows if id(row) in own] + softmax
    return sorted(found, key=lambda row: -row.cost.time_s)


_Scores = set[tuple[int, int, int]]
"""The batch, queries and keys of matrices of scores."""


def _scores(products: list[Product]) -> _Scores:
    """The results of batched products that other ones take as a matrix."""
    made = {(one.batch, one.rows, one.columns) for one in products}
    taken = {(one.batch, one.rows, one.inner) for one in products}
    taken |= {(batch, keys, queries) for batch, queries, keys in taken}
    return {one for one in made & taken if one[2] > 1}


def _touches(product: Product, scores: _Scores) -> bool:
    """Whether a product makes scores or takes them, as they are or transposed."""
    mine = [(product.rows, product.columns), (product.rows, product.inner), (product.inner, product.columns)]
    return any((product.batch, *pair) in scores or (product.batch, *pair[::-1]) in scores for pair in mine)


def _is_softmax(row: CostedKernel) -> bool:
    operators = (*row.kernel.origin.aten_ops, row.kernel.operator or "", row.kernel.name)
    return row.kernel.category not in (Category.EXTERN_ATTENTION, Category.EXTERN_GEMM) and any(
        _SOFTMAX.search(one) and "log_softmax" not in one for one in operators
    )


def _may_read(row: CostedKernel, scores: _Scores) -> bool:
    """Whether a kernel moves as much as scores have in half precision: the softmax of a router of experts does not."""
    moved, calls = row.kernel.work.moved_bytes, row.kernel.calls
    return moved is not None and calls > 0 and any(moved / calls >= 2 * math.prod(one) for one in scores)


def _line(rows: Rows) -> tuple[str, bool]:
    """The line of the program, and whether it calls torch's attention."""
    lines: list[SourceLine] = [line for row in rows for line in row.kernel.origin.source_lines]
    own = next((line for line in lines if _SDPA in line.code), None)
    line = own or next(iter(lines), None)
    return f" at {line_words(line)}" if line else "", own is not None
