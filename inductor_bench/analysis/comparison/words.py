"""The first lines of a comparison in words: how much, why, how sure; and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ... import units
from ...records.comparisons.run import (
    ADDED,
    CODE,
    CONFIG,
    FASTER,
    KERNEL_CAUSES,
    LIBRARY,
    MERGED,
    NOT_COMPARABLE,
    PRECISION,
    REMOVED,
    REST,
    SAME,
    SLOWER,
    SPLIT,
    UNCHANGED,
    UNDECIDED,
    KernelChange,
    PartChange,
    RunComparison,
)
from ...records.program import COPY, IDLE, SYNCHRONISING
from ..findings.next_commands import NextCommand
from ..findings.phrases import join_words, plural
from ..statistics import EFFECT
from .environment import INTERPRETER, TORCH, around_choices
from .sides import has_other_calls

EXPLAINED = 0.8
"""Share of the difference that the named parts explain, where at most :data:`MOST_NAMED` of them do."""
MOST_NAMED = 3
MOST = 0.5
"""Share of the difference above which parts are most of it."""

_REWRITTEN = (CODE, SPLIT, MERGED, LIBRARY)


def signed(value: float) -> str:
    """A difference in seconds with its sign: ``+0.31 ms``, ``-12.0 µs``."""
    return f"{'-' if value < 0 else '+'}{units.seconds(abs(value))}"


def signed_percent(delta: float, base: float) -> str:
    """A difference as a share of ``base``, with its sign."""
    if not base:
        return units.MISSING
    text = units.percent(abs(delta) / base)
    return text if text.startswith("<") else f"{'-' if delta < 0 else '+'}{text}"


def part_name(part: PartChange) -> str:
    """The name of a part: ``changed code``, ``idle: synchronising``, ``aten.sin``."""
    if part.cause in (IDLE, COPY):
        return f"{part.cause}: {part.label}"
    return part.label.replace("::", ".", 1) or part.cause


def headline(comparison: RunComparison, limit: float | None = None) -> str:
    """The answer in one or two sentences; with ``limit`` also whether B is within it: ``Limit of 5%: passed.``"""
    if limit is not None:
        return f"{headline(comparison)} Limit of {100 * limit:g}%: {_judged(comparison, limit)}."
    step = comparison.step
    of = f"a {step.currency}" if step.currency != "iteration" else "an iteration of all graphs"
    times = f"{of} takes {units.seconds(step.a_s)} in A and {units.seconds(step.b_s)} in B"
    change = f"{signed(step.delta_s)}, {signed_percent(step.delta_s, step.a_s)}"
    if comparison.verdict == NOT_COMPARABLE:
        return f"A and B are not comparable: {'; '.join(comparison.reasons)}. No verdict: {times}."
    if comparison.verdict in (SLOWER, FASTER):
        share = units.percent(abs(step.delta_s) / step.a_s if step.a_s else None)
        return f"B is {share} {comparison.verdict}: {times} ({signed(step.delta_s)}, {interval(comparison)})."
    if comparison.verdict == SAME:
        return f"B takes as long as A, within {units.whole_percent(EFFECT)}: {times} ({change})."
    if (step.low_s or 0.0) > 0 or (step.high_s or 0.0) < 0:
        small = units.whole_percent(EFFECT)
        return f"The difference is too small to count: {times} ({change}, {interval(comparison)}); less than {small}."
    return (
        f"Undecided: {times} ({change}, {interval(comparison)}). The noise between runs is "
        f"±{units.percent(step.noise)}, {step.noise_source}."
    )


def is_above(comparison: RunComparison, limit: float) -> bool:
    """Whether B is surely slower by more than ``limit``, a share of A's step, or cannot be compared."""
    too_slow = comparison.verdict == SLOWER and comparison.step.delta_s > limit * comparison.step.a_s
    return too_slow or comparison.verdict == NOT_COMPARABLE


def _judged(comparison: RunComparison, limit: float) -> str:
    if is_above(comparison, limit):
        return "failed"
    high_s = comparison.step.high_s
    is_open = high_s is None or high_s > limit * comparison.step.a_s
    return "passed, although the interval reaches above it" if is_open else "passed"


def interval(comparison: RunComparison) -> str:
    """The interval of the step's difference: ``between +0.21 ms and +0.40 ms``."""
    step = comparison.step
    if step.low_s is None or step.high_s is None:
        return "of unknown uncertainty"
    return f"between {signed(step.low_s)} and {signed(step.high_s)}"


def reasons(comparison: RunComparison) -> Iterator[str]:
    """Why: the parts that explain most of the difference, and what of the generated code changed."""
    named = main_parts(comparison)
    if comparison.verdict in (SLOWER, FASTER) and named:
        share = sum(part.delta_s for part in named) / comparison.step.delta_s
        lead = "Most of it" if share > MOST else "Its largest parts"
        yield f"{lead}: {join_words([_named(part) for part in named])}."
        if named[0].cause == UNCHANGED:
            yield f"Its largest part is in kernels whose code, config and calls are the same: {named[0].detail}."
    if comparison.verdict in (UNDECIDED, SAME):
        sure = [part for part in comparison.parts if part.verdict in (SLOWER, FASTER)]
        if sure:
            yield f"Parts that differ beyond noise: {join_words([_named(part) for part in sure])}."
    else:
        sure = named
        opposite = {SLOWER: FASTER, FASTER: SLOWER}.get(comparison.verdict)
        against = [part for part in comparison.parts if part.verdict == opposite]
        if against:
            yield f"Against it: {join_words([_named(part) for part in against[:MOST_NAMED]])}."
            sure = [*named, *against]
    yield from _waits(comparison)
    calls = [part for part in comparison.parts if has_other_calls(part) and part not in sure]
    if calls:
        numbers = join_words([f"{part_name(part)} {_calls(part)}" for part in calls])
        yield f"Other numbers of calls in the profiled steps: {numbers}."
    yield code_words(comparison)


def _waits(comparison: RunComparison) -> Iterator[str]:
    """Where B waits for its device, and A does not: afterwards the device waits for the host, whatever that does."""
    idle = [part for part in comparison.parts if part.cause == IDLE]
    new = next((part for part in idle if part.label == SYNCHRONISING and part.detail and not part.a_s), None)
    if new is not None and any(part.verdict == SLOWER for part in idle):
        place = new.detail.partition("in B ")[2]
        more = signed(sum(part.delta_s for part in idle))
        after = f"After that the device waits for the host's next launches: idle {more} in all."
        yield f"B waits for the device {place}. {after}"


def _calls(part: PartChange) -> str:
    return f"{units.count(part.a_calls)} → {units.count(part.b_calls)}"


def main_parts(comparison: RunComparison) -> list[PartChange]:
    """The largest parts with the sign of the difference that explain most of it, at most :data:`MOST_NAMED`."""
    delta = comparison.step.delta_s
    found: list[PartChange] = []
    for part in comparison.parts:
        if sum(one.delta_s for one in found) / delta >= EXPLAINED if delta else True:
            break
        if part.delta_s * delta > 0 and part.cause != REST and len(found) < MOST_NAMED:
            found.append(part)
    return found


def _named(part: PartChange) -> str:
    if part.cause in (ADDED, REMOVED):
        return f"{plural(part.kernels, part.cause)} {signed(part.delta_s)}"
    count = f" of {plural(part.kernels, 'kernel')}" if part.kernels and part.cause in KERNEL_CAUSES else ""
    detail = f" ({part.detail})" if part.detail and part.cause != UNCHANGED else ""
    return f"{part_name(part)}{count} {signed(part.delta_s)}{detail}"


def code_words(comparison: RunComparison) -> str:
    """What of the kernels changed: ``All 40 kernels have the same code in both; 3 have another config, +0.6 ms: …``"""
    kernels = comparison.kernels
    if not kernels:
        return "No kernel of either side is known."
    changed = [change for change in kernels if is_rewritten(change)]
    whole = sum(len(change.b) for change in kernels)
    other, gone = sum(len(change.b) for change in changed), sum(not change.b for change in changed)
    libraries = sum(side.operator is not None for change in kernels for side in change.b)
    if changed and not other:
        code = f"Of B {plural(whole, 'kernel')} {'has' if whole == 1 else 'have'} the same code in A, and {gone} of A "
        code += f"{'has' if gone == 1 else 'have'} no counterpart"
    elif changed:
        code = f"{other} of the {plural(whole, 'kernel')} of B are other kernels than in A"
        code += f", and {gone} of A {'has' if gone == 1 else 'have'} no counterpart" if gone else ""
    elif libraries and any(row.name == TORCH for row in comparison.environment_differences):
        code = f"{plural(libraries, 'kernel')} of libraries {'has' if libraries == 1 else 'have'} the same name, and "
        code += "another torch may bring other code"
        generated = plural(whole - libraries, "generated kernel")
        code = f"{_all_have(whole - libraries, generated)} the same code in both; {code}" if whole > libraries else code
    else:
        code = f"{_all_have(whole, plural(whole, 'kernel'))} the same code in both"
    configs = [change for change in kernels if CONFIG in change.seconds]
    if configs:
        luck = signed(sum(change.seconds[CONFIG] for change in configs))
        have = "has" if len(configs) == 1 else "have"
        names = [row.name for row in around_choices(comparison.environment_differences)]
        why = f"changed by {join_words(names)}, or by luck" if names else "which varies by luck"
        return f"{code}; {len(configs)} {have} another config, {luck}: the autotuner's choice, {why}."
    equal = (change for change in kernels if not is_rewritten(change))
    known = [found for change in equal if any(found := [bool(side.configs) for side in (*change.a, *change.b)])]
    if not known:
        return f"{code}."
    return f"{code}, and no {'config' if all(map(all, known)) else 'known config'} differs."


def is_rewritten(change: KernelChange) -> bool:
    """Whether B runs other kernels than A for the same work, or only one side does the work."""
    if not change.a or not change.b or change.cause in _REWRITTEN:
        return True
    return change.cause == PRECISION and {side.name for side in change.a} != {side.name for side in change.b}


def next_commands(comparison: RunComparison) -> list[NextCommand]:
    """What to type next, the most useful first. Paths are those that the user gave; files in zip files have none."""
    found: list[NextCommand] = []
    if not comparison.comparable:
        return found
    code, config = _largest(comparison, CODE), _largest(comparison, CONFIG)
    python = _other_python(comparison)
    if code is not None and python is not None and _is_folder(comparison.a.name) and _is_folder(comparison.b.name):
        files = (_file(comparison.a.name, code.a[0].file), _file(comparison.b.name, code.b[0].file))
        found.append(
            NextCommand(
                f"inductor-bench kernel {files[0]} --compare {files[1]}{python}",
                "times both versions of the kernel in turn, as they stand and in one config",
            )
        )
    if config is not None and _is_folder(comparison.b.name):
        found.append(
            NextCommand(
                f"inductor-bench kernel {_file(comparison.b.name, config.b[0].file)} --autotune",
                "times this config against others side by side, which the two runs could not",
            )
        )
    return found


def _other_python(comparison: RunComparison) -> str | None:
    """The option for B's interpreter; empty where one torch runs both, ``None`` where it is not known."""
    differences = {row.name: row for row in comparison.environment_differences}
    if INTERPRETER in differences:
        return f" --other-python {shlex.quote(differences[INTERPRETER].b)}"
    return None if TORCH in differences else ""


def _is_folder(name: str) -> bool:
    return not name.endswith((".zip", ".json"))


def _largest(comparison: RunComparison, cause: str) -> KernelChange | None:
    """The largest change of a cause of which both kernels have a file."""
    for change in comparison.kernels:
        if change.cause == cause and change.a and change.b and change.a[0].file and change.b[0].file:
            return change
    return None


def _all_have(number: int, words: str) -> str:
    return f"The only {words.removeprefix('1 ')} has" if number == 1 else f"All {words} have"


def _file(folder: str, file: str | None) -> str:
    return shlex.quote(f"{folder}/{file}")
