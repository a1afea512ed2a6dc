"""Makes the standalone files with which an edited kernel is checked, and says whether its times can be true.

The files are those of the original, of the edit, and of the original in float64.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ... import units
from ...autotune.methods import RaceResult
from ...devices.nvidia import NVIDIA
from ...devices.protocol import CPU
from ...errors import UsageError
from ...messages.kernel_requests import BufferRoles, RepeatCall, Sample
from ...records.base import Category
from ...records.code import KernelDefinition, Launch
from ...records.run import Peaks
from ...source.edit_rules import has_same_decorators
from ...source.edited import KernelEdit, widen_launch, widen_source
from ...source.standalone_header import StandaloneHeader, describe_facts
from ...source.standalone_writer import (
    edit_standalone,
    list_argument_types,
    read_recorded_facts,
    read_source,
    write_file_text,
)
from ...source.stretch_texts import join_parts, split_joined_parts, write_launched_source
from ...store import codec
from .edit_files import WRITE_ONE
from .kernel_session import KernelSession
from .kernel_timing import find_doubt


def check_texts(edit: KernelEdit) -> list[tuple[str, str]]:
    """Returns the standalone files of the original and of the edit, for each launch.

    Raises:
        InductorBenchError: the facts in the file are not as they were written.
    """
    facts = edit.facts
    try:
        return [_make_texts(edit, facts, launch) for launch in facts["launches"]]
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{edit.path} lacks what its check needs ({error})", f"write it anew: {WRITE_ONE}", "damaged"
        ) from None


def _make_texts(edit: KernelEdit, facts: Mapping[str, Any], encoded: Any) -> tuple[str, str]:
    launch = codec.decode(Launch, encoded)
    category = Category(facts["category"])
    header = StandaloneHeader(
        name=edit.kernel,
        kernel_id=facts["kernel_id"],
        category=category,
        torch_version=edit.torch,
        triton_version=edit.triton,
        device_name=edit.device or None,
        calls=facts.get("calls"),
        time_s=facts.get("time_s"),
        moved_bytes=facts.get("moved_bytes") if encoded == facts["launches"][0] else None,
    )

    def text(source: str, *, keeps_config: bool = True) -> str:
        recorded: Any = {**facts["recorded"], "launch": encoded}
        if not keeps_config:  # as in the program, its new hints decide
            recorded.pop("config", None)
        kernel = KernelDefinition(edit.kernel, edit.kernel, facts["kernel_id"], category, edit.language, source, 1)
        return write_file_text(header, launch, recorded, kernel)

    if edit.calls:
        return _make_texts_of_calls(edit, header, launch)
    original = text(edit.original_source)
    if edit.language == "cpp":  # compiled with the same flags, and called as the original
        return original, edit_standalone(original, {}, edit.source)
    return original, text(edit.source, keeps_config=has_same_decorators(edit.source, edit.original_source))


def _make_texts_of_calls(edit: KernelEdit, header: StandaloneHeader, launch: Launch) -> tuple[str, str]:
    """Makes the files of calls, and of the kernel that replaces them."""
    facts, replaces = edit.facts, edit.facts["replaces"]
    on_host = edit.language == "cpp"
    parts = [_make_part_text(header, one) for one in replaces["parts"]]
    device = (CPU if on_host else NVIDIA).type
    known = {**describe_facts(header), **facts["recorded"], "launch": codec.encode(launch), "device_type": device}
    source = edit.source if on_host else write_launched_source(edit.source, replaces)
    count = len(edit.arguments)
    mutated = tuple(place for place in launch.mutated if place < count)
    passed = replace(launch, arguments=launch.arguments[:count], mutated=mutated)
    kernel = KernelDefinition(edit.kernel, edit.kernel, header.kernel_id, header.category, edit.language, source, 1)
    recorded: Any = {**facts["recorded"], "launch": codec.encode(passed)}
    return join_parts(known, parts), write_file_text(header, passed, recorded, kernel)


def _make_part_text(header: StandaloneHeader, part: Mapping[str, Any]) -> str:
    """Makes the file of one of several calls."""
    category, language = Category(part["category"]), part["language"]
    mine = replace(header, name=part["name"], kernel_id=part["kernel_id"], category=category, moved_bytes=None)
    launch = codec.decode(Launch, part["launch"])
    recorded: Any = {**part["recorded"], "launch": part["launch"]}
    names = part["kernel"], part["kernel"], part["kernel_id"]
    kernel = KernelDefinition(*names, category, language, part["source"], 1) if language else None
    return write_file_text(mine, launch, recorded, kernel, part["switches"])


def find_buffer_roles(edit: KernelEdit) -> BufferRoles:
    """Returns what the kernel does with its arguments."""
    return BufferRoles(**{name: tuple(places) for name, places in edit.facts["roles"].items()})


def make_float64_texts(edit: KernelEdit, originals: Sequence[str]) -> list[str]:
    """Makes, for each launch, the standalone file of a C++ kernel that computes the same in float64; none if it is
    impossible.

    Args:
        edit: the edit.
        originals: the standalone files of the original.
    """
    if edit.language != "cpp":
        return []
    if edit.calls:
        return [text for text in map(_widen_calls, originals) if text]
    source = widen_source(edit.original_source)
    return [_widened(text, source) for text in originals] if source else []


def _widened(text: str, source: str) -> str:
    """Returns the file of a C++ kernel with a source in float64; for a library call the source is empty."""
    recorded = read_recorded_facts(text)
    changes = {"launch": widen_launch(recorded["launch"])}
    if source:
        changes["cpp"] = {**recorded["cpp"], "argument_types": list_argument_types(source)}
    return edit_standalone(text, changes, source)


def _widen_calls(text: str) -> str:
    """The file of several calls in float64; empty if one of them computes in a narrower type than float32."""
    recorded, parts = read_recorded_facts(text), []
    for part in split_joined_parts(text):
        is_cpp = bool(read_recorded_facts(part).get("cpp"))
        source = widen_source(read_source(part)) if is_cpp else ""
        if is_cpp and not source:
            return ""
        parts.append(_widened(part, source))
    return join_parts({**recorded, "launch": widen_launch(recorded["launch"])}, parts)


ROOF_SPREAD = 1.15
"""The largest ratio of a rate to its roof that is believed."""


class EditRefusedError(Exception):
    """The edited kernel is refused."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason, self.words = reason, words


def count_compulsory_bytes(edit: KernelEdit) -> int | None:
    """Counts the bytes that one call must move: by Inductor's count, or only the written ones if indices or masks
    decide what is read."""
    launch, moved = edit.facts["launches"][0], edit.facts.get("moved_bytes")
    written = {place: launch["arguments"][place].get("tensor") for place in launch["mutated"]}
    read = [item.get("tensor") for place, item in enumerate(launch["arguments"]) if place not in written]
    if moved and not any(view and "float" not in view["dtype"] and view["shape"] for view in read):
        return int(moved)
    storages = {view["storage"]: _view_bytes(view) for view in written.values() if view}
    return sum(storages.values())


def _view_bytes(view: Mapping[str, Any]) -> int:
    count = int(view["itemsize"])
    for size, step in zip(view["shape"], view["stride"], strict=True):
        count *= size if step else 1
    return count


def find_roof(moved: int | None, peaks: Peaks | None, state: str) -> float | None:
    """Returns the most bytes per second at which a device can move this many bytes; ``None`` if that is unknown."""
    if moved is None or peaks is None:
        return None
    fits = peaks.cache_bytes is not None and moved <= peaks.cache_bytes
    return peaks.find_cache_bandwidth(moved) if fits or state == "warm" else peaks.memory_bandwidth


def require_below_roof(edit: KernelEdit, times_s: tuple[float, float], peaks: Peaks | None, state: str) -> None:
    """Refuses a kernel that is faster than its bytes can be moved, if the original is not.

    ``times_s`` are the seconds of the original and of the edited kernel.

    Raises:
        EditRefusedError: it is refused.
    """
    moved = count_compulsory_bytes(edit)
    roof = find_roof(moved, peaks, state)
    if moved is None or roof is None:
        return
    original_s, edited_s = times_s
    if edited_s * roof * ROOF_SPREAD < moved <= original_s * roof * ROOF_SPREAD:
        raise EditRefusedError(
            "above-roof",
            f"it would move its {moved:,} bytes at {moved / edited_s / 1e9:,.1f} GB/s, and the device's roof is "
            f"{roof / 1e9:,.1f} GB/s",
        )


# The clock. An edited library could change the clock of its process, so this process uses its own clock for a check.


BLOCK_S = 0.05
"""The least time of a block of calls in seconds, by the clock of this process; the messages around it take 1% of it."""

BLOCKS, MOST_BLOCKS = 5, 15
"""The number of blocks of each kernel, and the largest one if the clocks seem to differ."""

SAME_CLOCK = 1.5
"""The largest ratio between two clocks that is believed. It compares the ratio of this process's and the other
process's times for the edited kernel with the same ratio for the original."""


def doubt_minimum(result: RaceResult) -> str:
    """Returns why a faster median proves nothing: the fastest call of the edit is no faster. Empty if it is faster.

    Other programs lengthen the calls that they interrupt, and may interrupt one kernel more often than the other.
    """
    original, edited = (min(runner.samples) for runner in result.runners)
    if edited < original:
        return ""
    took = f"took {units.seconds(edited)}, and that of the original {units.seconds(original)}"
    return f"the edited kernel is faster in the median, but its fastest call {took}"


def check_clock(session: KernelSession, numbers: Sequence[int], limit_s: float, method: str) -> str:
    """Returns why the clock of the process that timed both kernels could not be checked; empty if it is right.

    Raises:
        EditRefusedError: the machine is idle, and that clock is wrong.
    """
    try:
        require_true_clock(session, numbers, limit_s)
    except EditRefusedError as error:
        if not find_doubt(method):
            raise
        return f"{error.words}: other programs may be the reason"
    return ""


def require_true_clock(
    session: KernelSession, numbers: Sequence[int], limit_s: float, clock: Callable[[], float] = time.perf_counter
) -> None:
    """Refuses a kernel that takes much longer by the clock of this process than by that of the process that runs it.

    Args:
        session: the session whose worker has both kernels.
        numbers: the original there, and the edited kernel.
        limit_s: the limit of one request in seconds.
        clock: the clock of this process, in seconds.

    Raises:
        EditRefusedError: it is refused.
    """

    def run(number: int, count: int) -> float:
        begin = clock()
        session.ask(RepeatCall(number, count), limit_s)
        return clock() - begin

    counts = {}
    for number in numbers:
        counts[number], taken_s = 1, run(number, 1)
        while taken_s < BLOCK_S:
            counts[number] *= min(16, max(2, math.ceil(BLOCK_S / max(taken_s, 1e-9))))
            taken_s = run(number, counts[number])
    said: dict[int, list[float]] = {number: [] for number in numbers}
    seen: dict[int, list[float]] = {number: [] for number in numbers}
    for place in range(MOST_BLOCKS):
        for number in numbers if place % 2 else reversed(numbers):
            said[number] += session.ask(Sample((number,), "warm"), limit_s).samples_s
            seen[number].append(run(number, counts[number]) / counts[number])
        # A block that other programs interrupt takes longer than its calls: the shortest one counts.
        told = [statistics.median(said[number]) for number in numbers]
        here = [min(seen[number]) for number in numbers]
        ratios = [now / before for now, before in zip(here, told, strict=True)]
        if place + 1 >= BLOCKS and ratios[1] <= SAME_CLOCK * max(ratios[0], 1.0):
            return
    raise EditRefusedError(
        "clock",
        f"by the clock of another process a call takes {here[1] * 1e6:,.1f} µs, and by that of its own "
        f"{told[1] * 1e6:,.1f} µs",
    )
