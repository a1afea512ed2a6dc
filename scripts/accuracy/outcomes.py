"""What the accuracy benchmark looks at, and what its outcomes come to: target against reached.

An outcome is a dictionary: ``step``, ``subject``, and either what was measured or ``why`` it was not. Plain Python.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark_kernels import SLACK
from benchmark_kernels import Outcome as RunFile

from inductor_bench.autotune.methods import FINAL, SCREENING

Outcome = dict[str, Any]

STEPS = {
    "kernel": 0.36,
    "ratio": 0.05,
    "repeat": 0.06,
    "itself": 0.13,
    "gap": 0.09,
    "cost": 0.02,
    "retune": 0.13,
    "builds": 0.16,
}
"""The steps in their order, and which part of the budget each may take; what one leaves, the next ones have."""

SHORTEST_S, LONGEST_S = 1e-6, 4e-4
GENERATED, LIBRARY = 44, 12

METHODS = {
    "cold": ("this tool, cold", "cold_s", "profiled_cold_s"),
    "warm": ("this tool, warm", "warm_s", "profiled_warm_s"),
    "race_cold": ("a retune's timer, cold", "race_cold_s", "profiled_cold_s"),
    "race_warm": ("a retune's timer, warm", "race_warm_s", "profiled_warm_s"),
    "inductor": ("Inductor's benchmarker", "inductor_s", "profiled_zeroed_s"),
    "do_bench": ("triton.testing.do_bench", "do_bench_s", "profiled_zeroed_s"),
}
"""A title, the time by the method, and the profiler's time under the protocol that the method has: Inductor's and
Triton's overwrite a buffer with zeros before every call, which all have the same arguments."""


@dataclass(frozen=True)
class TimeClass:
    """Kernels from ``low_s`` to ``high_s``: how far off their time may be, and how far apart repeated medians."""

    id: str
    title: str
    low_s: float
    high_s: float
    relative: float
    absolute_s: float
    spread: float

    @property
    def target(self) -> str:
        relative, absolute = f"{self.relative:.0%}", f"{self.absolute_s * 1e6:.1f} µs"
        if not self.absolute_s:
            return f"within {relative}"
        return f"within {f'max({relative}, {absolute})' if self.relative else absolute}"

    def limit_s(self, time_s: float) -> float:
        return max(self.relative * time_s, self.absolute_s)


CLASSES = (
    TimeClass("A1", "≥ 20 µs", 20e-6, math.inf, 0.02, 0.0, 0.005),
    TimeClass("A2", "5 to 20 µs", 5e-6, 20e-6, 0.03, 0.3e-6, 0.01),
    TimeClass("A3", "1 to 5 µs", 0.0, 5e-6, 0.0, 0.5e-6, 0.02),
)


def class_of(time_s: float) -> TimeClass:
    return next(each for each in CLASSES if each.low_s <= time_s < each.high_s)


@dataclass(frozen=True)
class Row:
    """One line of the table; ``reached`` is ``None`` if there is no target or nothing was measured."""

    id: str
    quantity: str
    target: str
    found: str
    reached: bool | None = None


def choose_files(files: Iterable[RunFile]) -> list[RunFile]:
    """Generated and library kernels, spread evenly over the logarithm of their time in the model.

    The order is such that any beginning of the list is spread as evenly as it can be.
    """
    timed = [one for one in files if one.in_model_s and SHORTEST_S <= one.in_model_s <= LONGEST_S]
    generated = [one for one in timed if one.file.startswith("triton_")]
    library = [one for one in timed if one.category.startswith("extern_")]
    chosen = {"triton": spread_evenly(generated, GENERATED), "library": spread_evenly(library, LIBRARY)}
    places = [(index / len(kind), one) for kind in chosen.values() for index, one in enumerate(kind)]
    return [one for _, one in sorted(places, key=lambda item: item[0])]


def spread_evenly(files: Sequence[RunFile], count: int) -> list[RunFile]:
    """The files nearest to ``count`` times at even steps on a logarithmic scale, in the order of :func:`scattered`."""
    left, found = sorted(files, key=lambda one: (one.in_model_s or 0.0, one.file)), []
    for place in scattered(count):
        if left:
            wanted = math.log(SHORTEST_S) + (place + 0.5) / count * math.log(LONGEST_S / SHORTEST_S)
            found.append(min(left, key=lambda one: abs(math.log(one.in_model_s or SHORTEST_S) - wanted)))
            left.remove(found[-1])
    return found


def scattered(count: int) -> list[int]:
    """The numbers below ``count``, each far from those before it: by their bits, read backwards."""
    bits = max(count - 1, 1).bit_length()
    backwards = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits))
    return [number for number in backwards if number < count]


def read_outcomes(path: Path) -> list[Outcome]:
    """All lines that are whole; a process may have ended in the midst of one."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def summarize(outcomes: Sequence[Outcome]) -> list[Row]:
    """The table, as far as something was measured for it."""
    steps: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        if "why" not in one and not one.get("begun"):
            steps[one["step"]].append(one)
    parts: dict[str, Callable[[list[Outcome]], Iterator[Row]]] = {
        "kernel": _accuracy,
        "ratio": _ratios,
        "repeat": _repeats,
        "itself": _against_itself,
        "gap": _gaps,
        "retune": _checks,
        "cost": _costs,
        "builds": _builds,
    }
    return [row for step, summed in parts.items() if steps[step] for row in summed(steps[step])]


def errors(outcomes: Iterable[Outcome], method: str) -> list[tuple[float, float, str]]:
    """The profiler's time, by how much a method is above it, and the kernel."""
    _, ours, reference = METHODS[method]
    pairs = ((one.get(reference), one.get(ours), one["subject"]) for one in outcomes)
    return [(truth, time - truth, name) for truth, time, name in pairs if truth and time is not None]


def _accuracy(outcomes: list[Outcome]) -> Iterator[Row]:
    for method, (title, _, _) in METHODS.items():
        for each in CLASSES:
            found = [one for one in errors(outcomes, method) if class_of(one[0]) is each]
            if not found:
                continue
            inside = sum(abs(error) <= each.limit_s(truth) for truth, error, _ in found)
            ours = method not in ("inductor", "do_bench")
            text = f"{inside} of {len(found)} ({inside / len(found):.0%}); {_off(found, each)}"
            quantity = f"{title}, {each.title}, against the profiler"
            yield Row(each.id if ours else "", quantity, each.target, text, inside == len(found) if ours else None)
    yield from _in_model(outcomes)


def _off(found: Sequence[tuple[float, float, str]], each: TimeClass) -> str:
    def show(item: tuple[float, float, str]) -> str:
        truth, error, _ = item
        return f"{error / truth:+.1%}" if each.relative else f"{error * 1e6:+.2f} µs"

    ranked = sorted(found, key=lambda item: item[1] / (item[0] if each.relative else 1))
    worst = max(found, key=lambda item: abs(item[1]) / (item[0] if each.relative else 1))
    return f"median {show(ranked[len(ranked) // 2])}, worst {show(worst)} ({worst[2][:40]})"


def _in_model(outcomes: list[Outcome]) -> Iterator[Row]:
    judged = [one for one in outcomes if (one.get("in_model_s") or 0) >= 10e-6 and one.get("cold_s")]
    weight = sum(one["weight_s"] for one in judged)
    if not weight:
        return
    inside = [one for one in judged if _is_inside(one)]
    share = sum(one["weight_s"] for one in inside) / weight
    text = f"{share:.1%} of kernel time ({len(inside)} of {len(judged)} kernels)"
    yield Row("A5", "in-model time inside [warm, cold] ± 5%, ≥ 10 µs", "≥ 90%", text, share >= 0.9)


def _is_inside(one: Outcome) -> bool:
    low, high = sorted((one["cold_s"], one["warm_s"]))
    return bool(low * (1 - SLACK) <= one["in_model_s"] <= high * (1 + SLACK))


def _ratios(outcomes: list[Outcome]) -> Iterator[Row]:
    for state in ("cold", "warm"):
        off = [one[state] / one[f"profiled_{state}"] - 1 for one in outcomes]
        inside = sum(abs(each) <= 0.05 for each in off)
        text = f"{inside} of {len(off)}; median {statistics.median(off):+.1%}, worst {max(off, key=abs):+.1%}"
        yield Row("A3", f"ratio of two configs, {state}, 1 to 5 µs", "within 5%", text, inside == len(off))


def _repeats(outcomes: list[Outcome]) -> Iterator[Row]:
    for each in CLASSES:
        for state in ("cold", "warm"):
            medians = [one[state] for one in outcomes if class_of(statistics.median(one[state])) is each]
            spreads = [(max(times) - min(times)) / statistics.median(times) for times in medians]
            if spreads:
                inside = sum(spread <= each.spread for spread in spreads)
                text = f"{inside} of {len(spreads)}; median {statistics.median(spreads):.2%}, worst {max(spreads):.2%}"
                what = f"range of {len(medians[0])} medians, {state}, {each.title}"
                yield Row("R1", what, f"{each.spread:.1%}", text, inside == len(spreads))


def _against_itself(outcomes: list[Outcome]) -> Iterator[Row]:
    faster, slower = (sum(one["verdict"] == word for one in outcomes) for word in ("faster", "slower"))
    text = f"{faster} of {len(outcomes)} ({faster / len(outcomes):.1%}); called slower: {slower}"
    yield Row("R3", "a config against itself called faster", "≤ 1%", text, faster <= 0.01 * len(outcomes))


def _gaps(outcomes: list[Outcome]) -> Iterator[Row]:
    for time_s in sorted({one["time_s"] for one in outcomes}):
        trials = [one for one in outcomes if one["time_s"] == time_s]
        found = sum(one["verdict"] == "faster" for one in trials)
        true = statistics.median(one["profiled_ratio"] for one in trials) - 1
        text = f"{found} of {len(trials)} ({found / len(trials):.0%}); by the profiler the gap is {true:.2%}"
        yield Row("R4", f"a true 2% gap at {time_s * 1e6:.0f} µs found", "≥ 90%", text, found >= 0.9 * len(trials))


def _checks(outcomes: list[Outcome]) -> Iterator[Row]:
    names = ("kernels", "ranked", "checked", "right")
    kernels, ranked, checked, right = (sum(one[name] for one in outcomes) for name in names)
    text = f"{checked} of {ranked} candidates of {kernels} kernels; compute the same once more: {right}"
    yield Row(
        "V1", "candidates checked before they are ranked", "100%", text, bool(ranked) and ranked == checked == right
    )


def _costs(outcomes: list[Outcome]) -> Iterator[Row]:
    """A candidate that is dropped at once has the first rounds only; a finalist has all rounds of the final too."""
    screening = SCREENING.first_rounds
    full = SCREENING.first_rounds + FINAL.first_rounds + FINAL.final_rounds
    for title, rounds, limit_s in (("screening", screening, 5e-3), ("full", full, 50e-3)):
        costs = [one["first_s"] + (rounds - 1) * one["sample_s"] for one in outcomes]
        text = f"median {statistics.median(costs) * 1e3:.1f} ms, most {max(costs) * 1e3:.1f} ms ({rounds} samples)"
        what = f"device time of a candidate in {title}"
        yield Row("C1", what, f"≤ {limit_s * 1e3:.0f} ms", text, max(costs) <= limit_s)


def _builds(outcomes: list[Outcome]) -> Iterator[Row]:
    times = {one["workers"]: one["time_s"] for one in outcomes}
    for workers, time_s in sorted(times.items()):
        if workers > 1 and 1 in times:
            gain = times[1] / time_s
            text = f"{gain:.2f}x ({times[1]:.1f} s → {time_s:.1f} s, {outcomes[0]['candidates']} candidates)"
            what = f"compile speed-up with {workers} workers"
            yield Row("C4", what, f"≥ {0.6 * workers:.1f}x", text, gain >= 0.6 * workers)


def table(rows: Sequence[Row]) -> str:
    marks = {True: "reached", False: "NOT REACHED", None: ""}
    cells = [("", "quantity", "target", "reached", "")]
    cells += [(row.id, row.quantity, row.target, row.found, marks[row.reached]) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(5)]
    lines = ("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(line.rstrip() for line in lines)
