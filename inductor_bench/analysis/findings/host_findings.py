"""Findings about what the host does while the device waits for it, apart from launching work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ... import units
from ...records.program import (
    COLLECTING,
    CPU_OPERATORS,
    DATA_LOADING,
    FOR_FILE,
    FOR_LOCK,
    FOR_PROCESS,
    FOR_RANKS,
    FOR_SOCKET,
    IDLE,
    PYTHON,
    SLEEPING,
    Part,
    ProgramChange,
)
from ...records.run import Run
from ..step_costs import divides_idle_time, idle_labels, parts_of, runs_on_host
from .finding import LEAST_SHARE, Assumption, Finding, RunEvidence, join_words
from .program_findings import idle_parts, line_words, share_words

MOST_LINES = 3
WAITS = (SLEEPING, FOR_LOCK, FOR_FILE, FOR_SOCKET, FOR_PROCESS, FOR_RANKS)
WORKERS = "DataLoader workers"
UNSURE_SHARE = 0.1
"""Share of the step from which idle time is reported if only a profile shows it that made the steps much slower."""

PYTHON_SHARE = 0.05
"""Share of the step from which a function of the program is reported."""


def spot_words(part: Part) -> str:
    """Returns where a part of the idle time comes from: ``tokenize at app/data.py:33``; empty if it is unknown."""
    line = line_words(part.source)
    return f"{part.function} at {line}" if line and part.function else line or part.function


def spots(run: Run, labels: Sequence[str]) -> str:
    """Returns the places of idle parts, the longest first: `` (tokenize at app/data.py:33)``; empty without any."""
    found = [(spot_words(part), part) for part in parts_of(run, IDLE) if part.label in labels]
    known = [(spot, part) for spot, part in found if spot]
    if not known:
        return ""
    if len(found) == 1:
        return f" ({known[0][0]})"
    return f" ({join_words([f'{spot} {units.seconds(part.time_s)}' for spot, part in known], MOST_LINES)})"


def _time_of(evidence: RunEvidence, *labels: str) -> float:
    """Seconds of the step with these labels; 0 if they are too few to be reported, or too few for what they rest on."""
    times = idle_labels(evidence.run)
    time_s = sum(times.get(label, 0.0) for label in labels)
    least = LEAST_SHARE if divides_idle_time(evidence.run) else UNSURE_SHARE
    return time_s if time_s >= least * evidence.whole.time_s else 0.0


def _who_waits(run: Run) -> str:
    return "the program waits" if runs_on_host(run) else "the device is idle"


def data_loading(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the idle time in which the program waits for its data loader.

    What only workers have, such as ``prefetch_factor``, is advised if the samples show that workers are waited for.
    """
    run = evidence.run
    time_s = _time_of(evidence, DATA_LOADING)
    if not time_s:
        return
    functions = {part.function for part in parts_of(run, IDLE) if part.label == DATA_LOADING and part.function}
    if not functions:
        advice = "more num_workers of the DataLoader, or batches that are prepared beforehand"
    elif functions == {WORKERS}:
        advice = "more num_workers, a larger prefetch_factor, or batches that are prepared beforehand"
    elif WORKERS in functions:
        advice = "more num_workers, or less work between the batches of its workers"
    else:
        advice = "the step's thread loads it by itself: num_workers=1 or more loads it beside the step"
    text = (
        f"{_who_waits(run)} for {share_words(run, time_s)} of a step while data is loaded{spots(run, (DATA_LOADING,))}"
    )
    names = [name for name in ("num_workers", "prefetch_factor") if name in advice]
    changes = tuple(ProgramChange("argument", f"DataLoader.{name}", "") for name in names)
    assumed = Assumption(idle=idle_parts(run, DATA_LOADING))
    yield Finding("data-loading", f"{text}: {advice}", gain_s=time_s, assumed=assumed, changes=changes)


def cpu_operators(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports operators that the host computes while the device waits."""
    run = evidence.run
    time_s = _time_of(evidence, CPU_OPERATORS)
    if time_s and not runs_on_host(run):
        text = (
            f"the device is idle for {share_words(run, time_s)} of a step while the host computes operators on the CPU"
            f"{spots(run, (CPU_OPERATORS,))}: compute them on the device, or beside the step"
        )
        assumed = Assumption(idle=idle_parts(run, CPU_OPERATORS))
        yield Finding("cpu-operators", text, gain_s=time_s, assumed=assumed)


def host_waits(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports sleeps, and waits of the host for a lock, a file, a socket, a process or other ranks."""
    run = evidence.run
    for label in WAITS:
        time_s = _time_of(evidence, label)
        if time_s:
            text = f"{_who_waits(run)} for {share_words(run, time_s)} of a step while the host is {label}"
            text += f"{spots(run, (label,))}: do it beside the step"
            yield Finding("host-waits", text, gain_s=time_s, assumed=Assumption(idle=idle_parts(run, label)))


def garbage_collection(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the time of Python's garbage collector, which stops the host."""
    run = evidence.run
    time_s = _time_of(evidence, COLLECTING)
    if time_s:
        text = (
            f"{_who_waits(run)} for {share_words(run, time_s)} of a step while Python collects garbage"
            f"{spots(run, (COLLECTING,))}: gc.freeze() after the start, or gc.disable() and gc.collect() at a time of "
            "your own"
        )
        assumed = Assumption(idle=idle_parts(run, COLLECTING))
        yield Finding("garbage-collection", text, gain_s=time_s, assumed=assumed)


def host_python(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports functions of the program that the host runs while the device waits, each by itself.

    It holds if samples name the function. What a function calls that is no operator counts as its own, such as a
    function of NumPy.
    """
    run = evidence.run
    groups: dict[tuple[str, str], list[Part]] = {}
    for part in parts_of(run, IDLE):
        if part.label == PYTHON and part.source is not None and part.function:
            groups.setdefault((part.source.file, part.source.function), []).append(part)
    for parts in groups.values():
        time_s = sum(part.time_s for part in parts)
        if time_s < PYTHON_SHARE * evidence.whole.time_s:
            continue
        text = f"{_who_waits(run)} for {share_words(run, time_s)} of a step while the host runs {_place_words(parts)}"
        text += ": shorten it, call it less often, or run it beside the step"
        changes = (ProgramChange("line", "host", "", parts[0].source),)
        assumed = Assumption(idle=tuple(parts))
        yield Finding("host-python", text, gain_s=time_s, assumed=assumed, changes=changes)


def _place_words(parts: Sequence[Part]) -> str:
    """The function of the program, its line, and what it spends most of that time in."""
    first = parts[0]
    where = first.source.function if first.source is not None else ""
    inside = [part for part in parts if part.function != where]
    words = [f"{part.function} {units.seconds(part.time_s)}" for part in inside]
    most = f" ({join_words(words, MOST_LINES)})" if words else ""
    return f"{where} at {line_words(first.source)}{most}"
