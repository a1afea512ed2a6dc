"""What objects a program's processes compiled, or why they compiled nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...errors import InductorBenchError
from ...messages.observed import COMPILE_USE, OBJECTS, CompiledObjects, CompileUse
from ...records.code import CompiledFunction
from ...records.evidence import ObservedSteps
from ...source.compile_log import ObjectName, SkippedFrame, is_of_torch
from ...source.structured_trace import Compilation
from ...store import codec
from ...store.files import read_json

MANY_GUARDS = 100
"""Number of a function's guards from which they are recorded."""


def read_objects(folder: Path) -> dict[Compilation, ObjectName]:
    """The objects that each process compiled. A damaged file counts as missing."""
    found: dict[Compilation, ObjectName] = {}
    for file in folder.glob(f"*{OBJECTS}"):
        with suppress(InductorBenchError):
            process = codec.decode(CompiledObjects, read_json(file))
            found |= {
                (process.pid, one.frame, one.compilation): ObjectName(one.name, one.alike, one.wrapped)
                for one in process.objects
            }
    return found


def worth_recording(functions: Iterable[CompiledFunction]) -> tuple[CompiledFunction, ...]:
    """The functions that were compiled again, reached Dynamo's limit, or have many guards."""
    return tuple(one for one in functions if one.recompilations or one.reached_limit or one.guards >= MANY_GUARDS)


INDUCTOR = "inductor"
FORCE_EAGER = "force_eager"


def read_uses(folder: Path) -> tuple[CompileUse, ...]:
    """What each process without a compiled graph asked of ``torch.compile``. A damaged file counts as missing."""
    found = []
    for file in sorted(folder.glob(f"*{COMPILE_USE}")):
        with suppress(InductorBenchError):
            found.append(codec.decode(CompileUse, read_json(file)))
    return tuple(found)


def without_settling(steps: Sequence[ObservedSteps]) -> tuple[ObservedSteps, ...]:
    """The steps of processes without compiled graphs, in which there is no compilation to tell of."""
    return tuple(
        replace(one, settling_time_s=None, settling_steps_s=0.0, compiling_steps=0, first_step_time_s=None)
        for one in steps
    )


def why_uncompiled(uses: Sequence[CompileUse], skipped: Sequence[SkippedFrame], pids: Collection[int]) -> str:
    """The reason why nothing was compiled, as a clause; empty where none was observed.

    Args:
        uses: what the processes asked of ``torch.compile``.
        skipped: the functions that Dynamo skipped.
        pids: the processes whose steps were observed; without any, all processes count.
    """
    concerned = [use for use in uses if use.pid in pids] or list(uses)
    if not concerned:
        return ""
    calls = [call for use in concerned for call in use.calls]
    if not calls:
        return "" if any(use.frames != 0 for use in concerned) else "torch.compile is never called"
    where = f"{short_place(calls[0].place)}{f' and {len(calls) - 1} more places' if len(calls) > 1 else ''}"
    switch = next((use.disabled_by for use in concerned if use.disabled_by), "")
    if switch:
        return f"{switch} disables torch.compile"
    if all(call.disabled for call in calls):
        return f"{calls[0].disabled} disables torch.compile at {where}"
    if any(use.stance == FORCE_EAGER for use in concerned):
        return f'torch.compiler.set_stance("{FORCE_EAGER}") leaves everything uncompiled'
    if all(call.backend != INDUCTOR for call in calls):
        return f'torch.compile has backend="{calls[0].backend}" at {where}, and not Inductor'
    if skipped:
        return _skipping(skipped)
    if all(use.frames == 0 for use in concerned):
        return f"Dynamo saw no call of what torch.compile returns at {where}"
    return ""


def _skipping(skipped: Sequence[SkippedFrame]) -> str:
    """``Dynamo skips forward (model.py:5): graph break in a loop at model.py:8: …``."""
    frame = next((one for one in skipped if not is_of_torch(one.place)), skipped[0])
    others = len(skipped) - 1
    more = f" and {others} more function{'s' * (others > 1)}" if others else ""
    words = f"Dynamo skips {frame.name} ({short_place(frame.place)}){more}"
    if not frame.reason and not frame.cause:
        return f"{words}: it finds no operation to compile in it"
    loop = "graph break in a loop" if frame.in_loop else "graph break" if frame.cause else ""
    at = f" at {short_place(frame.cause)}" if frame.cause else ""
    return ": ".join(filter(None, [words, f"{loop}{at}", frame.reason]))


def short_place(place: str) -> str:
    """The folder, file and line of a place: ``app/train.py:57``."""
    return "/".join(place.split("/")[-2:])
