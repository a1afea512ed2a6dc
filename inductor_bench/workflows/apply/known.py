"""The pins of all kernels whose tunings are known for this machine, without a RUN."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...devices.cpu import CPU
from ...devices.nvidia.device import NVIDIA
from ...messages.pins import APPLY, Pins
from ...records.retune import FASTER
from ...records.retunes.pins import CppPin, LibraryPin, TritonPin
from ...records.run import Environment
from ...store.cache.tunings import KnownTuning, TuningPlace, known_tunings
from .pins import PinnedRun, digest_pins


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
    triton, cpp, library = choose_pins(known)
    digest, versions = digest_pins([*triton, *cpp, *library]), environment.versions
    pins = Pins(APPLY, digest, versions.torch, versions.triton, tuple(triton), tuple(cpp), tuple(library))
    return PinnedRun(pins, {}, {})


def choose_pins(
    known: Iterable[KnownTuning],
) -> tuple[Sequence[TritonPin], Sequence[CppPin], Sequence[LibraryPin]]:
    """One pin for each kernel: of several methods and sizes the fastest, and of equals the one tuned last."""
    triton: dict[tuple[str, str], TritonPin] = {}
    cpp: dict[str, CppPin] = {}
    library: dict[object, LibraryPin] = {}
    for one in sorted(known, key=_rank):
        if one.triton_pin is not None:
            triton[one.triton_pin.key, one.triton_pin.types] = one.triton_pin
        if one.cpp_pin is not None:
            cpp[one.cpp_pin.kernel_id] = one.cpp_pin
        if one.library_pin is not None:
            library[one.library_pin.call] = one.library_pin
    return tuple(triton.values()), tuple(cpp.values()), tuple(library.values())


def _rank(one: KnownTuning) -> tuple[float, str]:
    tuning = one.kernel.tuning if one.kernel is not None else None
    return (tuning.speedup if tuning is not None and tuning.verdict == FASTER else 0.0), one.origin.tuned_at
