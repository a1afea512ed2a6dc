"""Rules about kernels: the gain of a faster kernel, and the causes of a slow one.

Pure functions from a record to findings. A rule speaks only where the record holds the evidence, and once for all
graphs. A gain that is spoken of is that of a roof: nobody promises that it can be reached.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .... import units
from ....records.category import Category
from ....records.run import Kernel, ModuleRecord, Run
from ...times import whole_time_s
from ..finding import ADVICE, CAUTION, NOTE, Finding, KernelPlace, listed, plural, slugs
from .waiting import bottleneck

LEAST_SHARE = 0.01  # smallest time or gain of a finding's kernels together, as a share of the whole time
LEAST_GAIN = 0.0005  # smallest gain of one kernel in a finding, as a share of the whole time
FAR_FROM_ROOF = 0.7
SHARE_ON_CPU = 0.1  # of library calls, about which little can be done there
HOTSPOT = 0.2
SHORT_S = 5e-6
SHORT_TIME = 0.1
COPIES = 0.03
UNSTEADY = 0.25
NEARLY_ALL = 0.9  # of the time of a finding, so that what is said of its cause is said of all
NARROW = 0.75  # blocks for each multiprocessor below which part of a GPU has nothing to do

_LAYOUT_COPIES = ("direct_copy_kernel", "tensorTransform", "nchwToNhwc", "nhwcToNchw")
_FULL_FLOAT32_NAMES = ("sgemm", "f32f32_f32f32")
_HALF = ("bfloat16", "float16")
_SDPA = "scaled_dot_product_attention"
LIBRARY = (Category.EXTERN_CONV, Category.EXTERN_GEMM, Category.EXTERN_ATTENTION, Category.EXTERN_ATEN)
_TUNING_MODES = ("max-autotune", "max-autotune-no-cudagraphs")
UNTUNABLE = (*LIBRARY, Category.COPY, Category.MEMSET, Category.COLLECTIVE, Category.OTHER)


@dataclass(frozen=True)
class _Row:
    """A kernel and its graph."""

    module: ModuleRecord
    kernel: Kernel

    @property
    def place(self) -> KernelPlace:
        return KernelPlace(self.module.slug, self.kernel.name)


Rows = list[_Row]


def kernel_findings(run: Run) -> Iterator[Finding]:
    """All findings about the kernels of ``run``."""
    rows = [_Row(module, kernel) for module in run.modules for kernel in module.kernels]
    rows.sort(key=lambda row: -row.kernel.time_s)
    # Where the device waits for the host, a faster kernel does not shorten the run.
    deciding = [row for row in rows if bottleneck(row.module) not in ("launch-bound", "host-bound")]
    whole = _Whole(whole_time_s(run))
    yield from _headroom(deciding, whole, run)
    yield from _narrow(deciding, whole, run)
    layout = [row for row in deciding if _is_layout_copy(row.kernel)]
    yield from _layout_copies(layout, whole)
    yield from _library(deciding, whole, run)
    yield from _hotspots(deciding, whole)
    yield from _copies(rows, deciding, whole)
    yield from _full_float32(deciding, whole, run)
    yield from _short(deciding, whole)
    yield from _spills(rows, whole)
    yield from _unnamed(rows, whole)
    yield from _unsteady(rows, whole)


@dataclass(frozen=True)
class _Whole:
    """The time that shares are of."""

    time_s: float

    def part(self, seconds: float) -> float:
        return seconds / self.time_s if self.time_s else 0.0

    def said(self, seconds: float) -> str:
        return f"{units.seconds(seconds)} ({units.percent(self.part(seconds))})"


def _time(rows: Iterable[_Row]) -> float:
    return sum(row.kernel.time_s for row in rows)


def _gain(rows: Iterable[_Row]) -> float:
    return sum(row.kernel.gain_limit_s or 0.0 for row in rows)


def _is_layout_copy(kernel: Kernel) -> bool:
    return kernel.category in LIBRARY[:3] and any(mark in kernel.name for mark in _LAYOUT_COPIES)


def _in_program(rows: Iterable[_Row], seconds: Callable[[Kernel], float]) -> float:
    return sum(seconds(row.kernel) * (row.module.program_calls or 1) for row in rows)


def _finding(kind: str, text: str, rows: Rows, level: str = ADVICE, gain_s: float = 0.0) -> Finding:
    return Finding(kind, text, slugs(row.module for row in rows), tuple(row.place for row in rows), level, gain_s)


def _headroom(rows: Rows, whole: _Whole, run: Run) -> Iterator[Finding]:
    """Generated kernels far from the memory or matrix roof; these can be tuned."""
    for bound, roof in (("memory", "of the DRAM bandwidth"), ("compute", "of the matrix rate")):
        low = [
            row
            for row in rows
            if row.kernel.category not in UNTUNABLE
            and row.kernel.bound == bound
            and row.kernel.peak_share is not None
            and row.kernel.peak_share < FAR_FROM_ROOF
            and whole.part(row.kernel.gain_limit_s or 0.0) >= LEAST_GAIN
        ]
        low.sort(key=lambda row: -(row.kernel.gain_limit_s or 0.0))
        if whole.part(_gain(low)) < LEAST_SHARE:
            continue
        on_gpu = all(row.module.device != "cpu" for row in low)
        verb, they, them = ("reaches", "it", "it") if len(low) == 1 else ("reach", "they", "them")
        text = (
            f"{plural(len(low), 'generated kernel')} {verb} less than {FAR_FROM_ROOF:.0%} {roof}: at 100% {they} would "
            f"take {whole.said(_gain(low))} less, an upper bound"
        )
        if on_gpu and run.request.mode not in _TUNING_MODES:
            text += f"; mode='max-autotune-no-cudagraphs' tunes {them}"
        gain = _in_program(low, lambda kernel: kernel.gain_limit_s or 0.0)
        yield _finding(f"below-{bound}-limit", text, low, gain_s=gain)


def _narrow(rows: Rows, whole: _Whole, run: Run) -> Iterator[Finding]:
    """Generated kernels with fewer blocks than the GPU has multiprocessors."""
    units_there = run.environment.multiprocessors
    if not units_there:
        return
    narrow = [
        row
        for row in rows
        if row.kernel.category not in UNTUNABLE
        and row.kernel.grid
        and math.prod(row.kernel.grid) < NARROW * units_there
        and row.kernel.time_s >= SHORT_S * row.kernel.calls
    ]
    if whole.part(_time(narrow)) < LEAST_SHARE:
        return
    blocks = max(math.prod(row.kernel.grid) for row in narrow)
    most = f"{blocks}" if len(narrow) == 1 else f"at most {blocks}"
    text = (
        f"{plural(len(narrow), 'generated kernel')} {'starts' if len(narrow) == 1 else 'start'} {most} blocks on "
        f"{units_there} multiprocessors, so part of the GPU idles in {'its' if len(narrow) == 1 else 'their'} "
        f"{whole.said(_time(narrow))}"
    )
    # Upper bound: the share of the time that the idle multiprocessors could have taken over.
    gain = _in_program(narrow, lambda kernel: kernel.time_s * (1 - math.prod(kernel.grid) / units_there))
    yield _finding("few-blocks", text, narrow, gain_s=gain)


def _library(rows: Rows, whole: _Whole, run: Run) -> Iterator[Finding]:
    """Library calls far from every roof. They cannot be tuned; another call, layout or algorithm may be faster."""
    retuned = "" if run.request.mode in _TUNING_MODES else " or mode='max-autotune'"
    kinds = {
        Category.EXTERN_CONV: ("convolutions", f"torch.backends.cudnn.benchmark=True, channels_last{retuned}"),
        Category.EXTERN_GEMM: ("matrix products", retuned.removeprefix(" or ")),
        Category.EXTERN_ATTENTION: ("attention calls", "another backend of scaled_dot_product_attention"),
    }
    for category, (noun, advice) in kinds.items():
        low = [
            row
            for row in rows
            if row.kernel.category is category
            and not _is_layout_copy(row.kernel)
            and row.kernel.peak_share is not None
            and row.kernel.peak_share < FAR_FROM_ROOF / 2
            and whole.part(row.kernel.gain_limit_s or 0.0) >= LEAST_GAIN
        ]
        on_cpu = any(row.module.device == "cpu" for row in low)
        if whole.part(_time(low)) < (SHARE_ON_CPU if on_cpu else 2 * LEAST_SHARE):
            continue
        highest = units.whole_percent(max(row.kernel.peak_share or 0.0 for row in low))
        at = f"at {highest} of its roof" if len(low) == 1 else f"at {highest} or less of their roof"
        text = f"library {noun} take {whole.said(_time(low))} in {plural(len(low), 'kernel')} {at}"
        if advice and not on_cpu:
            text += f"; Inductor does not tune them: try {advice}"
        gain = _in_program(low, lambda kernel: kernel.gain_limit_s or 0.0)
        yield _finding("library-below-limit", text, low, gain_s=gain)


def _layout_copies(rows: Rows, whole: _Whole) -> Iterator[Finding]:
    if whole.part(_time(rows)) >= LEAST_SHARE:
        operators = listed(list(dict.fromkeys(row.kernel.operator for row in rows if row.kernel.operator)), 2)
        text = (
            f"{operators or 'library'} calls spend {whole.said(_time(rows))} on rearranging or converting tensors: "
            "another memory format (channels_last or contiguous) may need less of it"
        )
        yield _finding("layout-copies", text, rows, gain_s=_in_program(rows, lambda kernel: kernel.time_s))


def _hotspots(rows: Rows, whole: _Whole) -> Iterator[Finding]:
    """Operators that take much of the time and have no roof to compare with."""
    groups: dict[str, Rows] = {}
    for row in rows:
        if row.kernel.category is Category.EXTERN_ATEN and row.kernel.operator:
            groups.setdefault(row.kernel.operator, []).append(row)
    for operator, group in groups.items():
        if whole.part(_time(group)) >= HOTSPOT:
            kernels = plural(len(group), "library kernel")
            text = f"{operator} takes {whole.said(_time(group))} in {kernels}, which Inductor neither fuses nor tunes"
            yield _finding("hotspot", text, group, gain_s=_in_program(group, lambda kernel: kernel.time_s))


def _copies(rows: Rows, deciding: Rows, whole: _Whole) -> Iterator[Finding]:
    host = [
        r for r in rows if r.kernel.category is Category.COPY and ("HtoD" in r.kernel.name or "DtoH" in r.kernel.name)
    ]
    if host:
        times = units.count(sum(row.kernel.calls for row in host))
        pageable = any("Pageable" in row.kernel.name for row in host)
        text = f"{times} copies to or from the host take {whole.said(_time(host))}"
        text += ", from pageable memory, which makes the host wait" if pageable else ""
        yield _finding("host-copies", text, host, gain_s=_in_program(host, lambda kernel: kernel.time_s))
    device = [row for row in deciding if row.kernel.category is Category.COPY and row not in host]
    if whole.part(_time(device)) >= COPIES:
        within = listed(list(dict.fromkeys(row.kernel.operator for row in device if row.kernel.operator)), 3)
        text = f"copies within the device take {whole.said(_time(device))}" + (f", made by {within}" if within else "")
        yield _finding("copies", text, device, gain_s=_in_program(device, lambda kernel: kernel.time_s))


def _full_float32(rows: Rows, whole: _Whole, run: Run) -> Iterator[Finding]:
    slow = [
        row
        for row in rows
        if row.kernel.category in LIBRARY[:3]
        and row.module.device == "cuda"
        and not row.module.tf32
        and any(mark in row.kernel.name for mark in _FULL_FLOAT32_NAMES)
    ]
    if whole.part(_time(slow)) >= 5 * LEAST_SHARE:
        text = f"matrix products in full float32, without tensor cores, take {whole.said(_time(slow))}"
        text += _why_float32(slow, rows, run)
        yield _finding("full-float32", text, slow, gain_s=_in_program(slow, lambda kernel: kernel.time_s))


def _why_float32(slow: Rows, rows: Rows, run: Run) -> str:
    """The cause of float32 arithmetic, where the record holds it, and the change that avoids it."""
    tf32 = "torch.set_float32_matmul_precision('high') allows TF32"
    products = (*LIBRARY[:3], Category.TEMPLATE)
    used = {run.request.amp, *(row.kernel.dtype for row in rows if row.kernel.category in products)}
    half = [dtype for dtype in _HALF if dtype in used]
    if not half:
        return f": {tf32}, autocast half precision"
    beside = f", beside others in {listed(half, 2)}"
    attention = [row for row in slow if any(_SDPA in line.code for line in row.kernel.source_lines)]
    if _time(attention) < NEARLY_ALL * _time(slow):
        return f"{beside}: {tf32}"
    return (
        f"{beside}: {_SDPA} multiplies in float32 where none of its fused kernels takes the arguments "
        f"(mask, head size, type). Best are arguments that one takes; else {tf32}, and, "
        f"for arguments in {listed(half, 2)} and less exact, "
        "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True) keeps their type"
    )


def _short(rows: Rows, whole: _Whole) -> Iterator[Finding]:
    short = [
        row for row in rows if row.module.device != "cpu" and 0 < row.kernel.time_s < SHORT_S * max(row.kernel.calls, 1)
    ]
    calls, every = sum(row.kernel.calls for row in short), sum(row.kernel.calls for row in rows)
    if calls >= 20 and whole.part(_time(short)) >= SHORT_TIME:
        text = (
            f"{units.count(calls)} of {units.count(every)} launches last under 5 µs, {whole.said(_time(short))} "
            "together: fewer and larger ones would help, tuning them would not"
        )
        yield _finding("short-kernels", text, short, gain_s=_in_program(short, lambda kernel: kernel.time_s))


def _spills(rows: Rows, whole: _Whole) -> Iterator[Finding]:
    spilling = [row for row in rows if row.kernel.spills]
    if spilling:
        most = max(row.kernel.spills or 0 for row in spilling)
        text = (
            f"{plural(len(spilling), 'kernel')} {'spills' if len(spilling) == 1 else 'spill'} registers to memory "
            f"(up to {most} a thread): {whole.said(_time(spilling))}"
        )
        matters = whole.part(_time(spilling)) >= LEAST_SHARE
        yield _finding("spills", text, spilling, ADVICE if matters else NOTE)


def _unnamed(rows: Rows, whole: _Whole) -> Iterator[Finding]:
    other = [row for row in rows if row.kernel.category is Category.OTHER]
    if whole.part(_time(other)) >= LEAST_SHARE / 2:
        number = plural(len(other), "kernel")
        text = f"{number} could not be put into a category: {whole.said(_time(other))}; please report the names"
        yield _finding("other", text, other, CAUTION)


def _unsteady(rows: Rows, whole: _Whole) -> Iterator[Finding]:
    def moves(row: _Row) -> bool:
        samples = [row.kernel.samples_s[i] for i in row.module.steady_iterations if i < len(row.kernel.samples_s)]
        samples = samples or list(row.kernel.samples_s)
        if len(samples) < 5 or whole.part(row.kernel.time_s) < LEAST_SHARE:
            return False
        low, middle, high = statistics.quantiles(samples, n=4)
        return middle > 0 and (high - low) / middle > UNSTEADY

    unsteady = [row for row in rows if moves(row)]
    if unsteady:
        text = (
            f"{plural(len(unsteady), 'kernel')} {'takes' if len(unsteady) == 1 else 'take'} a different time in each "
            "iteration: clocks, another user of the device, or work that depends on data"
        )
        matters = whole.part(_time(unsteady)) >= SHORT_TIME
        yield _finding("unsteady-kernels", text, unsteady, CAUTION if matters else NOTE)
