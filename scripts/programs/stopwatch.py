"""The stopwatch of the programs in this folder: what each program itself says about its step.

``timed`` runs the steps in three blocks and synchronises after each block, so that a block's time includes its device
work. Variables of the environment change what it does:

``PROFILE=1``         it also records ten steps with ``torch.profiler``, and prints the profiler's totals; with
                      ``PROFILE=kernels`` those of each kernel, too.
``STEP_ENDS=FOLDER``  it also writes ``<pid>.json`` with the end of each step, on the host's clock and on the device's.
``INTERLEAVE=STEPS``  in an observed process, it times blocks of so many steps with and without the observation's hooks.
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
PROFILED = 10
BLOCKS_AFTER = 5
"""Most steps before the first block of ``BLOCK_STEPS``, which must come before the tool ends the process."""

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RANK = int(os.environ.get("RANK", "0"))

Step = Callable[[int], object]


def timed(step: Step, warm_up: int = 20) -> None:
    """Runs ``warm_up`` and then ``STEPS`` (default 60) steps, and prints the median block's seconds per step."""
    count = int(os.environ.get("STEPS", "60"))
    ends = Ends(step)
    folder = os.environ.get("STEP_ENDS")
    if folder:
        step = ends.step
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
    report: dict[str, Any] = {"rank": RANK, "step_s": statistics.median(times), "blocks_s": times}
    if os.environ.get("PROFILE"):
        report |= _profiled(step)
    if folder:
        ends.write(Path(folder))
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
    length = max(1, int(os.environ.get("STEPS", "60")) // BLOCKS)
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


class Ends:
    """The end of each step: on the host's clock, which the observation also uses, and on the device's.

    The device's clock is an event on the current stream, as host and device are apart by the work that is queued.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._host_s: list[float] = []
        self._events: list[Any] = []

    def step(self, number: int) -> None:
        """Runs a step and notes its end."""
        self._step(number)
        self._host_s.append(time.perf_counter())
        if DEVICE == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)

    def write(self, folder: Path) -> None:
        """Writes the ends in seconds; those of the device count from the first one."""
        _wait()
        device_s = [self._events[0].elapsed_time(event) / 1e3 for event in self._events]
        text = json.dumps({"host_s": self._host_s, "device_s": device_s})
        (folder / f"{os.getpid()}.json").write_text(text, encoding="utf-8")


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
    """The profiler's own totals of ten steps: device time and the number of device activities, per step."""
    events = _recorded(step)
    spans = sorted((event.time_range.start, event.time_range.end) for event in events)
    busy, end = 0.0, 0.0
    for start, stop in spans:
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    total = sum(stop - start for start, stop in spans)
    found = {"device_s": total / PROFILED / 1e6, "busy_s": busy / PROFILED / 1e6, "activities": len(spans) / PROFILED}
    return found | ({"by_kernel_s": by_kernel(events)} if os.environ["PROFILE"] == "kernels" else {})


def _recorded(step: Step) -> list[Any]:
    """The device activities of ten steps, as ``torch.profiler`` records them."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if DEVICE == "cuda" else [])
    step(0)
    _wait()
    with profile(activities=kinds) as profiler:
        for number in range(PROFILED):
            step(number)
        _wait()
    return [event for event in profiler.events() if event.device_type.name == "CUDA" and not event.is_user_annotation]


def _wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()
