"""Adds up what compilation took in each of its phases, from the timed events of torch's structured trace.

Torch writes a begin and an end of each timed part of a compilation (2.9 to 2.15), one within the other. Each moment
counts for the innermost part that belongs to a phase.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..records.code import (
    AOT_AUTOGRAD,
    AUTOTUNING,
    CODE_GENERATION,
    CUDA_GRAPHS,
    DYNAMO,
    KERNELS,
    LOWERING,
    CompilePhase,
)

_PHASES = {
    "dynamo": DYNAMO,
    "entire_frame_compile": DYNAMO,
    "backend_compile": AOT_AUTOGRAD,
    "entire_backward_compile": AOT_AUTOGRAD,
    "_recursive_pre_grad_passes": LOWERING,
    "_recursive_joint_graph_passes": LOWERING,
    "inductor_compile": LOWERING,
    "compile_fx.<locals>.fw_compiler_base": LOWERING,
    "compile_fx.<locals>.bw_compiler": LOWERING,
    "code_gen": CODE_GENERATION,
    "PyCodeCache.load_by_key_path": KERNELS,
    "compile_file": KERNELS,
    "async_compile.wait": KERNELS,
    "async_compile.precompile": KERNELS,
    "reload_kernel_in_parent": KERNELS,
    "benchmark_fused_nodes": AUTOTUNING,
    "pad_mm_benchmark": AUTOTUNING,
    "CachingAutotuner.benchmark_all_configs": AUTOTUNING,
    "CachingAutotuner.coordinate_descent_tuning": AUTOTUNING,
    "CachingAutotuner.combo_sequential_autotune": AUTOTUNING,
    "cudagraphify.get_container": CUDA_GRAPHS,
    "CUDAGraphNode.record": CUDA_GRAPHS,
}
"""The events that begin a phase. Every other event belongs to the phase of the event around it."""

_TEMPLATES = re.compile(r".*_template_(autotuning|precompiling)")
"""The events in which Inductor compiles and times candidates for a library call; they are named after the call."""


_LATEST_US = 1e17
"""Microseconds since 1970 from which a time is damage, and none of torch's."""

_SHORTEST_US = 1.0
"""Microseconds of the shortest phase that is told."""


Frame = tuple[Any, ...]
"""The numbers by which a compilation of a frame is known: empty outside of all."""


class CompileClock:
    """The timed events of one process, in their order."""

    def __init__(self) -> None:
        self._times_us: dict[tuple[Frame, str], float] = {}
        self._open: list[tuple[str, str, Frame]] = []  # the events that have begun, each with its phase and frame
        self._now_us = 0.0

    def take(self, event: Any, frame: Frame = ()) -> None:
        """Takes one event of a frame's compilation as torch writes it; what is no begin or end of a timed part is
        ignored."""
        match event:
            case {"name": str(name), "ts": int() | float() as now_us, "ph": "B" | "E" as side} if (
                0 <= now_us < _LATEST_US
            ):
                self._advance(float(now_us))
                if (
                    frame[:2] in ((), (None, None)) and self._open
                ):  # the work of another thread says nothing of its frame
                    frame = self._open[-1][2]
                if side == "B":
                    self._open.append((name, self._phase_of(name), frame))
                elif any(name == opened for opened, *_ in self._open):
                    while self._open.pop()[0] != name:  # an inner part that an exception ended without a word
                        pass

    def _advance(self, now_us: float) -> None:
        if self._open and (phase := self._open[-1][1]):
            key = self._open[-1][2], phase
            self._times_us[key] = self._times_us.get(key, 0.0) + max(0.0, now_us - self._now_us)
        self._now_us = now_us

    def _phase_of(self, name: str) -> str:
        around = self._open[-1][1] if self._open else ""
        if around == AUTOTUNING or _TEMPLATES.fullmatch(name):  # candidates are compiled in order to be timed
            return AUTOTUNING
        return _PHASES.get(name, around)

    def phases(self) -> tuple[CompilePhase, ...]:
        """The phases with their seconds, the longest first."""
        return _sum_phases(self._times_us.items())

    def phases_by_frame(self) -> dict[Frame, tuple[CompilePhase, ...]]:
        """The same of each compilation of a frame."""
        frames = dict.fromkeys(frame for frame, _ in self._times_us)
        return {frame: _sum_phases(item for item in self._times_us.items() if item[0][0] == frame) for frame in frames}


def _sum_phases(times_us: Iterable[tuple[tuple[Frame, str], float]]) -> tuple[CompilePhase, ...]:
    sums: dict[str, float] = {}
    for (_, phase), time_us in times_us:
        sums[phase] = sums.get(phase, 0.0) + time_us
    found = (CompilePhase(phase, time_us / 1e6) for phase, time_us in sums.items() if time_us >= _SHORTEST_US)
    return tuple(sorted(found, key=lambda phase: -phase.time_s))


@dataclass(frozen=True)
class FrameCompilation:
    """One compilation of a frame: its modules, and what it took."""

    process: int  # the place of its process among those of the trace
    compiled: tuple[str, ...]  # the paths of the modules that it compiled
    cached: tuple[str, ...]  # the paths of those that it took from a cache
    phases: tuple[CompilePhase, ...]

    @property
    def modules(self) -> tuple[str, ...]:
        """The paths of all of its modules."""
        return (*self.compiled, *self.cached)
