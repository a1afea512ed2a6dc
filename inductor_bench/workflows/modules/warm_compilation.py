"""What earlier breakdowns compiled: the folder that torch takes it from, and how long each compilation took."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from ...errors import InductorBenchError
from ...launch.process import run_process
from ...launch.worker import worker_environment
from ...records.code import CompilePhase, total_s
from ...records.model_sources import PROGRAMS
from ...records.request import BreakdownRequest
from ...source.compile_log import FrameCompilation
from ...source.structured_trace import StructuredTrace
from ...store import codec
from ...store.caches import open_compile_cache, slug
from ...store.files import read_json, read_text, remove_file, write_json
from ..progress import Progress
from .measured_environment import compiling_variables

# The place of a program's compiled code: it names all that the code depends on and torch does not look at.


DECIDING = (
    *("TORCH", "PYTORCH", "TRITON", "INDUCTOR", "ATEN_", "AOT_", "CUDA_HOME", "CUDA_PATH", "CXX", "CC", "CFLAGS"),
    *("CPPFLAGS", "LDFLAGS", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
)
"""How the names of variables begin that may decide what is compiled."""

INDIFFERENT = ("INDUCTOR_BENCH", "TORCHINDUCTOR_CACHE_DIR", "TORCH_TRACE", "TORCH_LOGS")
"""How the names of those begin that do not."""

_TORCH = """\
import importlib.util, os, sys
found = importlib.util.find_spec("torch")
if found and found.origin:
    version = os.path.join(os.path.dirname(found.origin), "version.py")
    print("torch", found.origin, os.stat(version).st_mtime_ns, sys.version, sys.executable)
    print(open(version).read())"""
"""A program that prints which torch and which Python it would run, without importing torch."""

LOOK_S = 60.0
"""Limit in seconds for it."""


@contextlib.contextmanager
def shared_compile_cache(
    request: BreakdownRequest, python: str, work: Path, progress: Progress
) -> Iterator[Path | None]:
    """The folder with what earlier breakdowns compiled in this place, in the block.

    ``None`` if no program runs, if everything is to be compiled, and if the folder cannot be used: a note says why.

    Args:
        request: the request.
        python: the interpreter of the program.
        work: a scratch folder.
        progress: gets the note.
    """
    cache = None
    if request.kind in PROGRAMS and not request.cold:
        try:
            place = place_of(python, work, dict(request.variables))
            cache = open_compile_cache(place) if place else None
        except InductorBenchError as error:
            progress.note(f"everything is compiled: {error.message}")
    try:
        yield cache.folder if cache else None
    finally:
        if cache is not None:
            cache.close()


def place_of(python: str, work: Path, variables: Mapping[str, str]) -> str:
    """The name of the place for an interpreter on this machine; empty where it has no torch."""
    environment = compiling_variables(variables, warm=True)
    log = work / "torch.log"
    remove_file(log)  # a process appends to its log
    words = [python, "-c", _TORCH]
    look = run_process(words, environment=worker_environment(work, environment), log=log, timeout_s=LOOK_S)
    torch = read_text(log)
    if not look.ok or not torch.startswith("torch "):
        return ""
    deciding = sorted(
        (name, value)
        for name, value in environment.items()
        if name.startswith(DECIDING) and not name.startswith(INDIFFERENT)
    )
    facts = (torch, deciding, _processor(), platform.libc_ver(), _system())
    version = next((line.split("'")[1] for line in torch.splitlines() if line.startswith("__version__ = '")), "")
    return slug(f"torch {version} {hashlib.sha256(repr(facts).encode('utf-8', 'surrogatepass')).hexdigest()[:16]}")


def _processor() -> Sequence[str]:
    """The processor's name and instructions: C++ kernels are compiled for them."""
    with contextlib.suppress(InductorBenchError):
        lines = read_text(Path("/proc/cpuinfo")).splitlines()
        wanted = ("model name", "flags", "Features", "CPU part")
        return sorted({line for line in lines if line.startswith(wanted)})
    return (platform.machine(), platform.processor())


def _system() -> str:
    """The system's libraries, with which C++ kernels are linked."""
    with contextlib.suppress(InductorBenchError):
        return read_text(Path("/etc/os-release"))
    return platform.platform()


# How long the compilations took whose modules come from the place: torch says it only when it compiles.


KNOWN = "known"
"""The folder, in a place, of one file for each compilation."""


@dataclass(frozen=True)
class KnownCompilation:
    """One compilation of a frame, whose modules are in the place."""

    phases: tuple[CompilePhase, ...]  # what it took
    compiled_at: str = ""  # when (ISO 8601); empty for a compilation of this run


@dataclass(frozen=True)
class CompileTimes:
    """What the compilation of a program took."""

    phases: tuple[CompilePhase, ...] = ()  # with empty caches, of the process that compiled longest; empty if unknown
    cached: tuple[str, ...] = ()  # the paths of modules that an earlier run compiled
    compiled_at: str = ""  # when the last of them was compiled (ISO 8601); empty where none was or it is unknown


def compile_times(trace: StructuredTrace, cache: Path | None) -> CompileTimes:
    """What compilation took, with what an earlier run said of the modules that this one did not compile.

    What this run compiled is kept in the place for later ones.

    Args:
        trace: the structured trace of the program.
        cache: the place; ``None`` where everything was compiled.
    """
    if cache is None:
        return CompileTimes(trace.compile_phases)
    own = {path for one in trace.compilations for path in one.compiled}
    cached = tuple(dict.fromkeys(path for one in trace.compilations for path in one.cached if path not in own))
    wholes = [_with_earlier(one, own, cache) for one in trace.compilations]
    known = [one for one in wholes if one is not None]
    at = max((one.compiled_at for one in known), default="")
    if len(known) < len(wholes):
        return CompileTimes((), cached, at)
    return CompileTimes(_longest(trace.compilations, known), cached, at)


def _longest(compilations: Sequence[FrameCompilation], wholes: Sequence[KnownCompilation]) -> tuple[CompilePhase, ...]:
    """The phases of the process that compiled longest. An earlier compilation counts once for each process."""
    sums: dict[int, Counter[str]] = {}
    seen: set[tuple[int, str]] = set()
    for one, whole in zip(compilations, wholes, strict=True):
        key = one.process, _key(one.modules)
        is_repeated = key in seen and bool(whole.compiled_at)
        seen.add(key)
        sums.setdefault(one.process, Counter()).update(_times_s(one.phases if is_repeated else whole.phases))
    return max(map(_sorted, sums.values()), key=total_s, default=())


def _with_earlier(one: FrameCompilation, own: Set[str], cache: Path) -> KnownCompilation | None:
    """A compilation as if the caches had been empty; ``None`` where nothing is known of a part that an earlier run
    compiled."""
    earlier = [path for path in one.cached if path not in own]
    found = KnownCompilation(one.phases)
    if earlier:
        known = _load(cache, _key(earlier))
        if known is None or not one.compiled:
            return known
        found = replace(known, phases=_sorted(_times_s(known.phases) + _times_s(one.phases)))
    if one.compiled:
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        with contextlib.suppress(InductorBenchError):
            write_json(cache / KNOWN / f"{_key(one.modules)}.json", codec.encode(replace(found, compiled_at=now)))
    return found


def _load(cache: Path, key: str) -> KnownCompilation | None:
    with contextlib.suppress(InductorBenchError, UnicodeDecodeError):
        known: KnownCompilation = codec.decode(KnownCompilation, read_json(cache / KNOWN / f"{key}.json"))
        return known
    return None


def _key(modules: Iterable[str]) -> str:
    names = sorted({os.path.basename(path) for path in modules})
    return hashlib.sha256("\n".join(names).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _times_s(phases: Iterable[CompilePhase]) -> Counter[str]:
    return Counter({phase.name: phase.time_s for phase in phases})


def _sorted(times_s: Mapping[str, float]) -> tuple[CompilePhase, ...]:
    phases = (CompilePhase(name, time_s) for name, time_s in times_s.items())
    return tuple(sorted(phases, key=lambda phase: -phase.time_s))
