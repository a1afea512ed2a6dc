"""The pins of all kernels whose tunings are known for this machine, without a RUN."""

from __future__ import annotations

from collections.abc import Iterable

from ...devices.cpu import CPU
from ...devices.nvidia.device import NVIDIA
from ...records.retune import FASTER
from ...records.retunes.pins import CppPin, LibraryPin, TritonPin, pins_by_kind
from ...records.run import Environment
from ...store.cache.tunings import KnownTuning, TuningPlace, known_tunings
from .pins import PinnedRun, join_pins


def places_of(environment: Environment) -> list[TuningPlace]:
    """Under what an environment's tunings are stored: a GPU's, and those of the processor."""
    versions = environment.versions
    names = []
    if environment.device.accelerator:
        names.append(NVIDIA.name_in(environment))
    if environment.host.cpu:
        names.append(f"{CPU.name_in(environment)} {environment.host.threads} threads")
    return [TuningPlace(name, versions.torch, versions.triton or "") for name in names if name]


def pin_known(environment: Environment) -> PinnedRun:
    """The pins of all known winners for an environment."""
    known = [one for place in places_of(environment) for one in known_tunings(place)]
    chosen = [pin for kind in choose_pins(known) for pin in kind]
    return PinnedRun(join_pins(chosen, environment), {}, {})


def choose_pins(
    known: Iterable[KnownTuning],
) -> tuple[tuple[TritonPin, ...], tuple[CppPin, ...], tuple[LibraryPin, ...]]:
    """One pin for each kernel: of several methods and sizes the fastest, and of equals the one tuned last."""
    return pins_by_kind({one.pin.target: one.pin for one in sorted(known, key=_rank) if one.pin is not None}.values())


def _rank(one: KnownTuning) -> tuple[float, str]:
    tuning = one.kernel.tuning if one.kernel is not None else None
    return (tuning.speedup if tuning is not None and tuning.verdict == FASTER else 0.0), one.origin.tuned_at
