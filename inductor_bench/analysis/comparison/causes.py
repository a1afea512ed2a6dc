"""The cause of the difference of matched kernels, in seconds by cause, and what is known about it in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ... import units
from ...records.comparisons.run import (
    ADDED,
    CALLS,
    CODE,
    CONFIG,
    LIBRARY,
    MERGED,
    PRECISION,
    REMOVED,
    SAME,
    SPLIT,
    UNCHANGED,
    UNDECIDED,
    EnvironmentDifference,
    KernelChange,
    KernelSide,
)
from ..findings.phrases import join_words, plural
from .likeness import Sources, has_other_precision, has_same_configs, is_library, text_likeness
from .noise import Noise, judge, kernel_effect_s, kernel_error_s
from .pairing import Match
from .sides import SideKernel, same_calls

COUNTED = (CALLS, ADDED, REMOVED)
"""The causes that rest on the number of calls in the profiled steps."""


@dataclass(frozen=True)
class Setting:
    """What the cause of a difference depends on, beside the kernels.

    Attributes:
        noise: the noise between the runs.
        texts: the texts of the kernels of both sides.
        around: the differences that may change the time of equal kernels.
        is_busy: whether another program's load may change it as much.
        choices: the differences that may change which config Inductor chooses.
        same_compiler: whether both sides have the same torch, Triton and device.
        tuned: the median seconds of a call by kernel id and config, from the records' retunes.
        several: whether each side has several runs.
        single_step: whether the parts of some run come from one profiled step only.
    """

    noise: Noise
    texts: tuple[Sources, Sources] = ({}, {})
    same_compiler: bool = True
    around: tuple[EnvironmentDifference, ...] = ()
    is_busy: bool = False
    choices: tuple[EnvironmentDifference, ...] = ()
    tuned: tuple[tuple[str, dict[str, int], float], ...] = ()
    several: bool = False
    single_step: bool = False

    @property
    def explains_equal_kernels(self) -> bool:
        """Whether another time of equal kernels has a likelier reason than the clock and noise."""
        return bool(self.around) and not self.is_busy

    def shows_each_step(self, run_calls: Iterable[float]) -> bool:
        """Whether the profiled steps show how often each step makes these calls, given as means of each run's steps.

        Calls that only some steps make may fall between the few profiled ones of the other side.
        """
        return not self.single_step and all(math.isclose(calls, round(calls), abs_tol=1e-6) for calls in run_calls)


def kernel_change(match: Match, setting: Setting) -> KernelChange:
    """The difference of one match: its cause, interval and verdict."""
    seconds, detail = _explained(match, setting)
    a_s, b_s = (sum(kernel.time_s for kernel in kernels) for kernels in (match.a, match.b))
    cause = max(seconds, key=lambda name: (abs(seconds[name]), name != UNCHANGED))
    kernels = (*match.a, *match.b)
    error_s = math.hypot(kernel_error_s(kernels), setting.noise.relative * max(a_s, b_s))
    low, high, verdict = judge(a_s, b_s, error_s, kernel_effect_s(match.a or match.b))
    if cause == UNCHANGED and verdict != SAME and not setting.explains_equal_kernels:
        verdict = UNDECIDED  # nothing differs: the clock and noise are no verdict on the program
    if cause in COUNTED and not setting.shows_each_step(kernel.calls for kernel in kernels):
        verdict = UNDECIDED
    return KernelChange(_shown(match.a), _shown(match.b), b_s - a_s, low, high, verdict, cause, seconds, detail)


def _explained(match: Match, setting: Setting) -> tuple[dict[str, float], str]:
    """The seconds by cause, and the words."""
    a_s, b_s = (sum(kernel.time_s for kernel in kernels) for kernels in (match.a, match.b))
    if not match.a or not match.b:
        return {(REMOVED if match.a else ADDED): b_s - a_s}, ""
    if match.equal:
        return _same_code(match.a[0], match.b[0], setting)
    if len(match.a) == 1 == len(match.b) and not is_library(match.a[0]) and not is_library(match.b[0]):
        if has_other_precision(match.a[0], match.b[0]):
            return {PRECISION: b_s - a_s}, _tf32_words(match.a[0], match.b[0])
        return {CODE: b_s - a_s}, _code_words(match.a[0], match.b[0], setting)
    if any(is_library(kernel) for kernel in (*match.a, *match.b)):
        return _library(match, b_s - a_s)
    counts = f"{plural(len(match.a), 'kernel')} of A, {len(match.b)} of B"
    cause = SPLIT if len(match.a) < len(match.b) else MERGED if len(match.a) > len(match.b) else CODE
    return {cause: b_s - a_s}, f"{counts} for {_work(match.a, match.b)}"


def _same_code(a: SideKernel, b: SideKernel, setting: Setting) -> tuple[dict[str, float], str]:
    """Divides the difference of one kernel: calls at A's time of a call, then the change of a call at B's calls."""
    delta = b.time_s - a.time_s
    seconds: dict[str, float] = {}
    words = []
    if not same_calls(a.calls, b.calls) and a.calls and b.calls:
        seconds[CALLS] = _further_calls_s(a, b)
        words.append(f"{units.count(a.calls)} → {units.count(b.calls)} calls")
    elif not a.calls or not b.calls:
        return {CALLS: delta}, f"{units.count(a.calls)} → {units.count(b.calls)} calls"
    rest = delta - sum(seconds.values())
    if has_other_precision(a, b):
        return {**seconds, PRECISION: rest}, "; ".join([*words, _tf32_words(a, b)])
    if not has_same_configs(a, b):
        return {**seconds, CONFIG: rest}, "; ".join([*words, _config_words(a, b, setting)])
    return {**seconds, UNCHANGED: rest}, "; ".join(words)


def _further_calls_s(a: SideKernel, b: SideKernel) -> float:
    """The seconds of B's further calls at A's time of a call; by the shapes of the calls where they are known."""
    groups = _by_shapes(a), _by_shapes(b)
    if not groups[0].keys() & groups[1].keys():
        return (b.calls - a.calls) * a.time_s / a.calls
    found = 0.0
    for shapes in {**groups[0], **groups[1]}:
        (calls, time_s), (others, other_s) = (group.get(shapes, (0.0, 0.0)) for group in groups)
        found += (others - calls) * time_s / calls if calls else other_s
    return found


def _by_shapes(side: SideKernel) -> dict[str, tuple[float, float]]:
    """The calls and the seconds of a kernel by the shapes of its calls."""
    groups = side.kernel.shapes
    calls, time_s = sum(group.calls for group in groups), sum(group.time_s for group in groups)
    if not calls or not time_s:
        return {}
    return {group.shapes: (group.calls * side.calls / calls, group.time_s * side.time_s / time_s) for group in groups}


def _library(match: Match, delta: float) -> tuple[dict[str, float], str]:
    libraries = [kernel for kernel in (*match.a, *match.b) if is_library(kernel)]
    operators = join_words(list(dict.fromkeys(kernel.kernel.operator or "" for kernel in libraries)))
    a, b = ([kernel for kernel in kernels if is_library(kernel)] for kernels in (match.a, match.b))
    if a and b and has_other_precision(a[0], b[0]):
        return {PRECISION: delta}, f"{operators}: {_tf32_words(a[0], b[0])}"
    if a and b:
        return {LIBRARY: delta}, f"{operators}: another kernel of the library"
    what = join_words(list(dict.fromkeys(kernel.kernel.category.title for kernel in (match.b if a else match.a))))
    return {LIBRARY: delta}, f"{operators}: {f'a library → {what}' if a else f'{what} → a library'}"


def _tf32_words(a: SideKernel, b: SideKernel) -> str:
    return f"float32 products with TF32 {'→ without' if a.tf32 else 'in B only'}"


def _config_words(a: SideKernel, b: SideKernel, setting: Setting) -> str:
    own = [_per_call(kernel) for kernel in (a, b)]
    words = f"{differing_config(a.configs, b.configs)}: {own[0]} → {own[1]} a call"
    tuned = [
        time_s
        for configs in (a.configs, b.configs)
        for kernel_id, config, time_s in setting.tuned
        if kernel_id == a.kernel.kernel_id and config in configs
    ]
    if len(tuned) >= 2:
        words += f", timed side by side in a retune {units.seconds(tuned[0])} and {units.seconds(tuned[1])}"
    repeated = any(config in b.configs for config in a.configs)
    if repeated:
        return f"{words}; luck of the choice: runs of one side chose differently, too"
    if setting.choices:
        return f"{words}; by {join_words([row.name for row in setting.choices])}, or luck of the choice"
    if setting.same_compiler:
        return f"{words}; luck of the choice"
    return f"{words}; another compiler's choice, or luck"


def _per_call(kernel: SideKernel) -> str:
    return units.seconds(kernel.time_s / kernel.calls if kernel.calls else None)


def differing_config(a: Sequence[dict[str, int]], b: Sequence[dict[str, int]]) -> str:
    """The settings that differ: ``XBLOCK 512, num_warps 4 → XBLOCK 1024, num_warps 8``."""
    first, second = (configs[0] if configs else {} for configs in (a, b))
    if len(a) > 1 or len(b) > 1:
        first = next((config for config in a if config not in b), first)
        second = next((config for config in b if config not in a), second)
    names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    sides = (", ".join(f"{name} {config[name]}" for name in names if name in config) for config in (first, second))
    return " → ".join(side or "unknown" for side in sides)


def _code_words(a: SideKernel, b: SideKernel, setting: Setting) -> str:
    first, second = a.kernel, b.kernel
    words = []
    if first.category != second.category:
        words.append(f"{first.category.title} → {second.category.title}")
    if first.family_id and first.family_id == second.family_id:
        words.append("the same structure with other sizes")
    texts = setting.texts[0].get((a.graph, first.name)), setting.texts[1].get((b.graph, second.name))
    if texts[0] and texts[1]:
        words.append(f"{units.whole_percent(text_likeness(texts[0], texts[1]))} of the lines are equal")
    return "; ".join(words)


def _work(*sides: Iterable[SideKernel]) -> str:
    operators = dict.fromkeys(op for kernels in sides for kernel in kernels for op in kernel.kernel.origin.aten_ops)
    return join_words(list(operators)) or "the same work"


def _shown(kernels: Iterable[SideKernel]) -> tuple[KernelSide, ...]:
    return tuple(
        KernelSide(
            one.kernel.name,
            one.kernel.kernel_id,
            one.kernel.category,
            one.graph,
            one.calls,
            one.time_s,
            one.configs,
            one.kernel.file,
            one.kernel.operator,
        )
        for one in kernels
    )
