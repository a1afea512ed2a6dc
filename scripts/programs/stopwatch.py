"""The stopwatch of the programs in this folder: what each program itself says about its step.

``timed`` runs the steps in three blocks and synchronises after each block, so that a block's time includes its device
work. A program with a loop of its own says where each of its ``Laps`` ends; nothing waits for the device before the
last one. Variables of the environment change what the stopwatch does:

``STEPS=COUNT``       the program makes so many steps; ``timed`` and what asks ``counted`` look at it.
``PROFILE=1``         it also records ten steps with ``torch.profiler``, and prints the profiler's totals; with
                      ``PROFILE=kernels`` those of each kernel, too.
``STEP_ENDS=FOLDER``  it also writes ``<pid>.json`` with the end of each step, on the host's clock and on the device's,
                      and its seconds and kind.
``INTERLEAVE=STEPS``  in an observed process, it times blocks of so many steps with and without the observation's hooks;
                      of a program with ``Laps`` the blocks are those of its last three quarters, and nothing waits.
``BLOCK_STEPS=STEPS`` it times blocks of so many steps without end and prints each one's seconds per step; the end of
                      each step is marked for the tool, from the first one on.
``NCU_STEP=1``        it runs two steps after the warm-up between the start and the stop of CUDA's profiler, and ends.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch

BLOCKS = 3
INTERLEAVED_BLOCKS = 48
IN_TURN = 8
LEAST_BLOCKS = 32
"""Blocks of laps that a program with a loop of its own should at least make."""

PROFILED = 10
BLOCKS_AFTER = 5
"""Most steps before the first block of ``BLOCK_STEPS``, which must come before the tool ends the process."""

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RANK = int(os.environ.get("RANK", "0"))

Step = Callable[[int], object]


def counted(usual: int) -> int:
    """How many laps a program makes: as many as ``STEPS`` says, or as usual."""
    return int(os.environ.get("STEPS", usual))


def timed(step: Step, warm_up: int = 20) -> None:
    """Runs ``warm_up`` and then ``STEPS`` (default 60) steps, and prints the median block's seconds per step."""
    count = counted(60)
    laps = Laps("step")
    folder = os.environ.get("STEP_ENDS")
    if folder:
        step = _with_laps(step, laps)
    if os.environ.get("BLOCK_STEPS"):
        step, warm_up = _marked(step), min(warm_up, BLOCKS_AFTER)
    for number in range(warm_up):
        step(number)
    _wait()
    if os.environ.get("NCU_STEP"):
        _for_counters(step, warm_up)
        return
    if os.environ.get("INTERLEAVE"):
        print("stopwatch", json.dumps(_interleaved(step, warm_up, int(os.environ["INTERLEAVE"]))), flush=True)
        return
    if os.environ.get("BLOCK_STEPS"):
        _without_end(step, warm_up, int(os.environ["BLOCK_STEPS"]))
    times = []
    length = max(1, count // BLOCKS)
    for block in range(BLOCKS):
        times.append(_block(step, warm_up + block * length, length))
    ended_s = time.perf_counter()
    report: dict[str, Any] = {"rank": RANK, "step_s": statistics.median(times), "blocks_s": times}
    report |= {"kind": laps.kind, "compiled": compilations()}
    if os.environ.get("PROFILE"):
        report |= _profiled(step)
        ended_s = time.perf_counter()
    if folder:
        laps.write(Path(folder), ended_s)
    print("stopwatch", json.dumps(report), flush=True)


def time_in_turn(step: Step, other: Step, warm_up: int = 20) -> None:
    """Times two steps in turn (A B B A, …) and prints how much longer a step of the second one takes.

    ``more_step_s`` is the median difference of neighbouring blocks, and ``more_by_kernel_s`` that of the profiler's
    times of each kernel, by its name.
    """
    for number in range(warm_up):
        step(number)
        other(number)
    _wait()
    length = max(1, counted(60) // BLOCKS)
    times: list[float] = []
    kernels: list[dict[str, float]] = []
    for turn in range(IN_TURN):
        found = {}
        for one in (step, other) if turn % 2 == 0 else (other, step):
            one(0)
            found[one] = _block(one, 0, length), by_kernel(_recorded(one))
        times.append(found[other][0] - found[step][0])
        (_, before), (_, after) = found[step], found[other]
        kernels.append({name: after.get(name, 0.0) - before.get(name, 0.0) for name in before.keys() | after.keys()})
    names = {name for one in kernels for name in one}
    more = {name: statistics.median(one.get(name, 0.0) for one in kernels) for name in sorted(names)}
    print("stopwatch", json.dumps({"more_step_s": statistics.median(times), "more_by_kernel_s": more}), flush=True)


def by_kernel(events: list[Any]) -> dict[str, float]:
    """The seconds of a step in each kernel, by its name."""
    times: dict[str, float] = {}
    for event in events:
        times[event.name] = (
            times.get(event.name, 0.0) + (event.time_range.end - event.time_range.start) / PROFILED / 1e6
        )
    return times


class Laps:
    """The laps of a program with a loop of its own: steps, requests, whatever it repeats, and the parts of each.

    The end of a lap is noted on the host's clock and, as an event on the current stream, on the device's: nothing
    waits. With ``PROFILE=1`` some of the last laps are recorded with ``torch.profiler``.

    Args:
        kind: what a lap is, in the program's words.
        count: how many laps the program will make, where it knows.
    """

    def __init__(self, kind: str, count: int = 0) -> None:
        self.kind = kind
        self._ends: list[tuple[str, bool, float, Any]] = []
        self._laps = 0
        self._profiled = min(PROFILED, count // 3) if os.environ.get("PROFILE") else 0
        self._profile_at = count - self._profiled - 1
        self._profiler: Any = None
        self._found: dict[str, Any] = {}
        self._block = min(int(os.environ.get("INTERLEAVE", "0")), count // LEAST_BLOCKS)
        self._in_turn_from = count // 4
        self._blocks: list[tuple[bool, int, int]] = []  # with hooks or without, and its laps by their numbers
        self._note("", whole=True)

    def part(self, kind: str) -> None:
        """Ends a part of the lap, which began at the end of the part or lap before it."""
        self._note(kind, whole=False)

    def end(self, kind: str = "") -> None:
        """Ends a lap; ``kind`` names one of another kind."""
        self._note(kind or self.kind, whole=True)
        self._laps += 1
        if self._profiled:
            self._profile()
        if self._block and self._laps >= self._in_turn_from:
            self._change_hooks()

    def finish(self) -> None:
        """Prints the median of the settled laps and, with ``STEP_ENDS``, writes all of them."""
        ended_s = time.perf_counter()
        _wait()
        laps = self._timed(whole=True)[: self._profile_at if self._profiled else None]
        laps = [lap for lap in laps if lap[0] == self.kind] or laps
        settled = [lap[1] for lap in laps[len(laps) // 2 :]]
        report = {"rank": RANK, "kind": self.kind, "laps": self._laps, "compiled": compilations(), **self._found}
        report |= self._in_turn() if self._blocks else {}
        print("stopwatch", json.dumps(report | {"step_s": statistics.median(settled)}), flush=True)
        if os.environ.get("STEP_ENDS"):
            self.write(Path(os.environ["STEP_ENDS"]), ended_s)

    def write(self, folder: Path, ended_s: float = 0.0) -> None:
        """Writes ``<pid>.json``: the laps' ends in seconds, and each lap and part with its kind and its seconds.

        The device's ends count from the first one; ``ended_s`` is the program's end on the host's clock, which all
        processes of the machine share.
        """
        _wait()
        whole = [end for end in self._ends[1:] if end[1]]
        device_s = [whole[0][3].elapsed_time(end[3]) / 1e3 for end in whole] if DEVICE == "cuda" else []
        found = {
            "kind": self.kind,
            "host_s": [end[2] for end in whole],
            "device_s": device_s,
            "laps": self._timed(whole=True),
            "parts": self._timed(whole=False),
            "ended_s": ended_s,
            "compiled": compilations(),
        }
        (folder / f"{os.getpid()}.json").write_text(json.dumps(found), encoding="utf-8")

    def _note(self, kind: str, *, whole: bool) -> None:
        event = torch.cuda.Event(enable_timing=True) if DEVICE == "cuda" else None
        if event is not None:
            event.record()
        self._ends.append((kind, whole, time.perf_counter(), event))

    def _timed(self, *, whole: bool) -> list[tuple[str, float]]:
        """The laps or the parts in order, each with its seconds: on the device's clock, where there is one."""
        times = []
        last = lap = self._ends[0]
        for end in self._ends[1:]:
            begin = lap if end[1] else last
            if end[1] == whole:
                times.append((end[0], begin[3].elapsed_time(end[3]) / 1e3 if end[3] else end[2] - begin[2]))
            last, lap = end, end if end[1] else lap
        return times

    def _change_hooks(self) -> None:
        """Before each block, adds or removes the observation's hooks: A B B A, and so on."""
        number, place = divmod(self._laps - self._in_turn_from, self._block)
        if place:
            return
        from inductor_bench.worker.capture.observation import running

        (observer,) = running
        observed = number % 4 in (0, 3)
        if number and observed != self._blocks[-1][0]:
            (observer.add_hooks if observed else observer.remove_hooks)()
        self._blocks.append((observed, self._laps, self._laps + self._block))

    def _in_turn(self) -> dict[str, list[float]]:
        """The median lap of each whole block, without its first lap, with hooks and without them."""
        laps = self._timed(whole=True)
        found: dict[str, list[float]] = {"observed_s": [], "unobserved_s": []}
        for observed, first, last in self._blocks:
            times = [time_s for kind, time_s in laps[first + 1 : last] if kind == self.kind]
            if last <= len(laps) and times:
                found["observed_s" if observed else "unobserved_s"].append(statistics.median(times))
        pairs = min(map(len, found.values()))
        return {name: times[:pairs] for name, times in found.items()}

    def _profile(self) -> None:
        if self._laps == self._profile_at:
            _wait()
            self._profiler = _profiler()
            self._profiler.__enter__()
        elif self._laps == self._profile_at + self._profiled:
            _wait()
            self._profiler.__exit__(None, None, None)
            self._found = _totals(_device_events(self._profiler), self._profiled)


def compilations() -> dict[str, int]:
    """What Dynamo has counted in this process: graphs, graph breaks, and frames that it was asked to compile."""
    from torch._dynamo.utils import counters

    return {
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "frames": counters["frames"]["total"],
    }


def _with_laps(step: Step, laps: Laps) -> Step:
    def with_end(number: int) -> None:
        step(number)
        laps.end()

    return with_end


def _block(step: Step, first: int, length: int) -> float:
    """The seconds per step of ``length`` steps and the wait for their work."""
    begin = time.perf_counter()
    for number in range(first, first + length):
        step(number)
    _wait()
    return (time.perf_counter() - begin) / length


def _interleaved(step: Step, number: int, length: int) -> dict[str, Any]:
    """The seconds per step of blocks with the observation's hooks and of blocks without them: A B B A, and so on.

    The first step after each change is not timed.
    """
    from inductor_bench.worker.capture.observation import running

    (observer,) = running
    observer.remove_hooks()
    times: dict[str, list[float]] = {"observed_s": [], "unobserved_s": []}
    for block in range(INTERLEAVED_BLOCKS):
        observed = block % 4 in (0, 3)
        if observed:
            observer.add_hooks()
        step(number)
        _wait()
        times["observed_s" if observed else "unobserved_s"].append(_block(step, number + 1, length))
        number += 1 + length
        if observed:
            observer.remove_hooks()
    return {"rank": RANK, "step_s": statistics.median(times["observed_s"]), **times}


def _marked(step: Step) -> Step:
    """The step with a mark at its end. A mark after other steps would begin the tool's measurement anew."""
    import inductor_bench

    def marked(number: int) -> None:
        step(number)
        inductor_bench.step()

    return marked


def _without_end(step: Step, number: int, length: int) -> NoReturn:
    """Times blocks of steps until the process is ended."""
    while True:
        print("block", _block(step, number, length), flush=True)
        number += length


def _for_counters(step: Step, number: int) -> None:
    """Runs two steps, whose kernels ``ncu --profile-from-start off`` counts.

    In the first one, what ``ncu`` left in the cache is written back.
    """
    torch.cuda.profiler.start()
    step(number)
    step(number + 1)
    _wait()
    torch.cuda.profiler.stop()


def _profiled(step: Step) -> dict[str, Any]:
    """The profiler's own totals of ten steps."""
    events = _recorded(step)
    found = _totals(events, PROFILED)
    return found | ({"by_kernel_s": by_kernel(events)} if os.environ["PROFILE"] == "kernels" else {})


def _totals(events: list[Any], steps: int) -> dict[str, float]:
    """Device time, busy time and the number of device activities, per step."""
    spans = sorted((event.time_range.start, event.time_range.end) for event in events)
    busy, end = 0.0, 0.0
    for start, stop in spans:
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    total = sum(stop - start for start, stop in spans)
    return {"device_s": total / steps / 1e6, "busy_s": busy / steps / 1e6, "activities": len(spans) / steps}


def _recorded(step: Step) -> list[Any]:
    """The device activities of ten steps, as ``torch.profiler`` records them."""
    step(0)
    _wait()
    with _profiler() as profiler:
        for number in range(PROFILED):
            step(number)
        _wait()
    return _device_events(profiler)


def _profiler() -> Any:
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if DEVICE == "cuda" else []))


def _device_events(profiler: Any) -> list[Any]:
    return [event for event in profiler.events() if event.device_type.name == "CUDA" and not event.is_user_annotation]


def _wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()
