"""The notes that say what limits the figures of an observation."""

from __future__ import annotations

from collections.abc import Iterator

from inductor_bench.messages.steps import PROFILING, TIMING, WAITING
from inductor_bench.records.program import LONGER_LOOP

from .pattern import LongerLoop

NO_STACKS = "no step was recorded with Python stacks ({reason}), so eager operators have no line"
INTERRUPTED = "too few follow each other without other compiled calls"
ENDED_IN_PROFILE = "the program ended while its steps were profiled: fewer of them were recorded than planned"


def around(loop: LongerLoop | None) -> tuple[str, ...]:
    """The note on steps that are a part of a longer loop; none without such a loop."""
    if loop is None:
        return ()
    numbers = f"{loop.least}" if loop.least == loop.most else f"{loop.least} to {loop.most}"
    when = f"after every {numbers} steps" if loop.times > 1 else f"once, after {numbers} steps"
    return (
        f"{LONGER_LOOP}: other compiled calls came {when}; to measure an iteration of that loop, call "
        "inductor_bench.step() at its end",
    )


def ending(state: str, steps: int, last_noisy: int, *, busy: bool, loop: LongerLoop | None = None) -> Iterator[str]:
    """The notes on a program that ended before all was measured.

    Args:
        state: the state of the observation.
        steps: the number of steps that ended.
        last_noisy: the number of the last step that compiled or recorded a CUDA graph, counted from 1.
        busy: whether the program's own profiler was running.
        loop: the longer loop that the steps are a part of, if any.
    """
    short = "run more steps, or measure early ones with --skip 0 --steps 1"
    if state == WAITING and steps == 0:
        yield "no steps were recognised: mark their ends with inductor_bench.step()"
    elif state == WAITING and loop:
        yield f"none of {steps} steps could be timed: {INTERRUPTED}"
    elif state == WAITING:
        yield f"compilation had not settled at the program's end: step {last_noisy} of {steps} still compiled; {short}"
    elif state in (TIMING, PROFILING) and busy:
        yield "the program's own profiler ran, so no step was profiled, and its steps may be slower: leave it out"
    elif state == TIMING:
        why = INTERRUPTED if loop else short
        yield f"the program ended after {steps} steps, before any could be profiled: {why}"
    elif state == PROFILING:
        why = INTERRUPTED if loop else short
        yield f"the program ended after {steps} steps, before they were profiled: {why}"
