"""Rules about the measurement: the uncertainty of its figures, each graph's method, and checks that found no problem.

Pure functions from a record to findings. A rule speaks only where the record holds the evidence.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator

from .... import units
from ....records.run import ModuleRecord, Run
from ..finding import CAUTION, FINE, NOTE, Finding, labels, listed, slugs
from .waiting import GAPS, waiting

PROFILER_SLOWDOWN = 1.25
FEW_SAMPLES = 5
NOISE = 0.1  # spread of the middle half of the wall samples, as a share of their median
OUTLIERS = 0.1
MANY_OUTLIERS = 0.5

_INPUT = re.compile(r"\binteger input \d+ \S+?\[[^\]]*\]")


def trust(run: Run) -> Iterator[Finding]:
    """Causes of uncertain figures."""
    if run.peaks is None and any(module.kernels for module in run.modules):
        text = "the device's peaks are not measured, so there is no percent of peak and no gain limit"
        yield Finding("no-peaks", text, level=CAUTION)
    yield from _together(
        run, "noise", _noisy, "wall times vary (middle half: {}): measure again on an idle machine", CAUTION
    )
    yield from _together(
        run,
        "busy-over-wall",
        _busy_over_wall,
        "kernels took longer under the profiler than their graph without it ({}): shares are of the longer time",
        CAUTION,
    )
    many = any(module.outlier_iterations > MANY_OUTLIERS * module.iterations for module in run.modules)
    yield from _together(
        run,
        "outliers",
        _outliers,
        "some profiled iterations were disturbed ({}); they are recorded, but do not count",
        CAUTION if many else NOTE,
    )
    yield from _together(
        run, "few-samples", _few, "few wall times were taken ({}); a larger --repeat makes the median firmer", NOTE
    )
    yield from _together(
        run,
        "profiler-overhead",
        _slowed,
        "the profiler slowed the host ({}): gaps in the trace are longer than in a real run; wall time is unprofiled",
        NOTE,
    )


def method(run: Run) -> Iterator[Finding]:
    """Graphs that were not profiled by their own harness in a fresh process, and why; other notes of the graphs."""
    for name, reason, modules in methods(run):
        how = {
            "live": "profiled live, with the inputs that the program gave",
            "trace": "read from a trace",
            "-p": "profiled with -p",
        }.get(name, f"profiled by {name}")
        verb = "was" if len(modules) == 1 else "were"
        text = f"{labels(modules)} {verb} {how}" + (f": {reason}" if reason else "")
        yield Finding("method", text, slugs(modules), level=NOTE)
    for module in run.modules:
        for note in module.notes:
            # The finding ``busy-over-wall`` reports this for all graphs together.
            if not note.startswith("under the profiler"):
                yield Finding("note", f"{module.label}: {note}", (module.slug,), level=NOTE)


def methods(run: Run) -> list[tuple[str, str, list[ModuleRecord]]]:
    """The graphs that were profiled in another way than by their own harness, by method and reason.

    Returns:
        ``(method, reason, graphs)``; reasons that differ in the number and size of an input alone count as one.
    """
    groups: dict[tuple[str, str], list[ModuleRecord]] = {}
    for module in run.modules:
        if module.method != "-p" or module.method_reason:
            reason = _INPUT.sub("integer inputs", module.method_reason)
            groups.setdefault((module.method, reason), []).append(module)
    return [(name, reason, modules) for (name, reason), modules in groups.items()]


def in_order(run: Run) -> Iterator[Finding]:
    """The checks that found no problem, in one line; only those for which the record holds the evidence."""
    fine = []
    on_device = [module for module in run.modules if module.device != "cpu"]
    busy = all(module.busy_share is not None and module.busy_share >= GAPS for module in on_device)
    if on_device and busy and not any(True for _ in waiting(run)):
        fine.append("no launch gaps to speak of")
    if run.capture.structured and run.modules:
        fine += [] if run.capture.graph_breaks else ["no graph breaks"]
        fine += [] if run.capture.recompiles else ["no recompilations"]
    if fine:
        yield Finding("fine", ", ".join(fine), level=FINE)


def _together(run: Run, kind: str, rule: Callable[[ModuleRecord], str], sentence: str, level: str) -> Iterator[Finding]:
    """One finding for all graphs for which ``rule`` returns text."""
    said = [(module, rule(module)) for module in run.modules]
    hits = [(module, text) for module, text in said if text]
    if hits:
        words = listed([f"{module.label} {text}" for module, text in hits], 3)
        yield Finding(kind, sentence.replace("{}", words), slugs(module for module, _ in hits), level=level)


def _busy_over_wall(module: ModuleRecord) -> str:
    if not module.wall_time_s or not module.busy_time_s or module.busy_time_s <= module.wall_time_s * 1.0005:
        return ""
    return f"{units.seconds(module.busy_time_s)} instead of {units.seconds(module.wall_time_s)}"


def _slowed(module: ModuleRecord) -> str:
    if (
        not module.wall_time_s
        or not module.profiled_time_s
        or module.profiled_time_s < PROFILER_SLOWDOWN * module.wall_time_s
    ):
        return ""
    return f"from {units.seconds(module.wall_time_s)} to {units.seconds(module.profiled_time_s)}"


def _noisy(module: ModuleRecord) -> str:
    if len(module.wall_samples_s) < FEW_SAMPLES:
        return ""
    low, middle, high = statistics.quantiles(module.wall_samples_s, n=4)
    if not middle or (high - low) / middle <= NOISE:
        return ""
    return f"{units.seconds(low)} to {units.seconds(high)}"


def _few(module: ModuleRecord) -> str:
    number = len(module.wall_samples_s)
    return f"{number}" if 0 < number < FEW_SAMPLES else ""


def _outliers(module: ModuleRecord) -> str:
    if not module.iterations or module.outlier_iterations < max(1, OUTLIERS * module.iterations):
        return ""
    return f"{module.outlier_iterations} of {module.iterations}"
