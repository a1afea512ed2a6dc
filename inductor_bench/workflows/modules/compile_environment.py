"""The environment of processes that compile or run modules, the folder of what was compiled, and compile times."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import platform
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from ...errors import InductorBenchError
from ...launch.process import SAFE_PATH, run_process
from ...launch.worker import expose_package, join_paths, make_worker_environment
from ...messages.observed import CAPTURE_FOLDER, COMPILE_CACHE, REQUEST, request_text
from ...records.code import CompilePhase, total_s
from ...records.request import BreakdownRequest
from ...records.request_fields import COMMAND, PROGRAMS
from ...source.compile_log import FrameCompilation
from ...source.structured_trace import StructuredTrace
from ...store import codec
from ...store.caches import keep_probes, lend_probes, open_compile_cache, slug
from ...store.files import ensure_private_folder, read_json, read_text, remove_file, write_json
from ..progress import Progress

SITE = Path(__file__).resolve().parent.parent.parent / "worker" / "capture" / "site"

SETTINGS = {
    "TORCHINDUCTOR_UNIQUE_KERNEL_NAMES": "1",
    "TORCHINDUCTOR_BENCHMARK_KERNEL": "1",
    "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1",
    "INDUCTOR_PROVENANCE": "1",
    "PYTHONUNBUFFERED": "1",
}
"""The variables that a measurement needs, even if the user sets other values."""

COLD = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
"""The variables with which torch compiles everything anew."""

WARM = {
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
    "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE": "0",
    "TORCHINDUCTOR_AUTOTUNE_REMOTE_CACHE": "0",
    "TORCHINDUCTOR_BUNDLED_AUTOTUNE_REMOTE_CACHE": "0",
    "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO": "0",
    "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_REMOTE_PGO": "0",
}
"""The variables with which torch takes from a folder what an earlier process compiled, and from nowhere else.

If Dynamo knew the shapes of an earlier process, it would compile other and fewer graphs."""

PLACES = ("TORCHINDUCTOR_CACHE_DIR", "TORCH_TRACE", "TMPDIR", "TRITON_CACHE_DIR")
"""The variables whose folders the tool chooses."""

NO_VARIABLES: Mapping[str, str] = {}


def capture_environment(
    work: Path, variables: Mapping[str, str] = NO_VARIABLES, cache: Path | None = None
) -> dict[str, str]:
    """Returns the environment in which modules are compiled and run for a measurement, with its own caches and
    temporary files.

    Without a cache of earlier runs the FX and AOTAutograd caches are off. If all caches were off, each module would lie
    in a folder of its own, which changes the hashes of its kernels.

    Args:
        work: the folder of the temporary files.
        variables: further variables of the user; :data:`SETTINGS` win over them.
        cache: the folder with what earlier runs compiled; ``None`` to compile everything anew.
    """
    folders = {name: work / name for name in ("cache", "tmp", "torch_trace", "observed")}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    _share_precompiled_headers(folders["tmp"])
    caches = cache or folders["cache"]
    lend_probes(caches)
    return {
        **list_compiling_variables(variables, warm=cache is not None),
        "TORCHINDUCTOR_CACHE_DIR": str(caches.resolve()),
        COMPILE_CACHE: str(caches.resolve()) if cache else "",
        "TORCH_TRACE": str(folders["torch_trace"].resolve()),
        "TMPDIR": str(folders["tmp"].resolve()),
    }


def list_compiling_variables(variables: Mapping[str, str], *, warm: bool) -> dict[str, str]:
    """Returns the variables that decide what torch compiles, without the folders."""
    environment = {**os.environ, **variables}
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCHINDUCTOR_FX_COMPILE_MODE"):
        environment.pop(name, None)
    return {**environment, **SETTINGS, **(WARM if warm else COLD)}


def keep_for_later_runs(environment: Mapping[str, str]) -> None:
    """Keeps what later runs need not compile again. It is called before the folder of the caches may be removed."""
    keep_probes(Path(environment["TORCHINDUCTOR_CACHE_DIR"]))


def make_observed_environment(request: BreakdownRequest, work: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Makes the environment of the program, in which its Python processes observe themselves."""
    observed = {
        CAPTURE_FOLDER: str((work / "observed").resolve()),
        REQUEST: request_text(request),
        "PYTHONPATH": join_paths(str(SITE), join_paths(expose_package(work), environment.get("PYTHONPATH"))),
    }
    of_users = request.kind in ("script", COMMAND, "factory")
    return {**environment, **observed, **({} if of_users else SAFE_PATH)}


def _share_precompiled_headers(temporary: Path) -> None:
    """Shares the C++ headers that torch precompiled in earlier runs, which saves seconds."""
    with contextlib.suppress(OSError):
        name = f"torchinductor_{_find_user_name()}"
        shared = Path(tempfile.gettempdir()) / name / "precompiled_headers"
        if not all(ensure_private_folder(folder, forbidden_bits=0o022) for folder in (shared.parent, shared)):
            return
        if any(header.lstat().st_uid != os.getuid() for header in shared.iterdir()):
            return
        (temporary / name).mkdir()
        (temporary / name / shared.name).symlink_to(shared.resolve(), target_is_directory=True)


def _find_user_name() -> str:
    """Returns the user's name in the form of torch's folder: a user in a container may have only a number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid_{os.getuid()}"


# The cache folder of a program's compiled code. Its name contains everything that the code depends on and that torch
# does not check.


DECIDING = (
    *("TORCH", "PYTORCH", "TRITON", "INDUCTOR", "ATEN_", "AOT_", "CUDA_HOME", "CUDA_PATH", "CXX", "CC", "CFLAGS"),
    *("CPPFLAGS", "LDFLAGS", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
)
"""The beginnings of the names of variables that may decide what is compiled."""

INDIFFERENT = ("INDUCTOR_BENCH", "TORCHINDUCTOR_CACHE_DIR", "TORCH_TRACE", "TORCH_LOGS")
"""The beginnings of the names of variables that do not decide it, although they match :data:`DECIDING`."""

_TORCH = """\
import importlib.util, os, sys
found = importlib.util.find_spec("torch")
if found and found.origin:
    version = os.path.join(os.path.dirname(found.origin), "version.py")
    print("torch", found.origin, os.stat(version).st_mtime_ns, sys.version, sys.executable)
    print(open(version).read())"""
"""A program that prints which torch and which Python it would run, without importing torch."""

LOOK_S = 60.0
"""Seconds that the interpreter may take to tell its torch."""


@contextlib.contextmanager
def share_compile_cache(
    request: BreakdownRequest, python: str, work: Path, progress: Progress
) -> Iterator[Path | None]:
    """Returns, in the block, the cache folder with what earlier breakdowns compiled.

    ``None`` if no program runs, if everything is to be compiled, or if the folder cannot be used; a note then says why.

    Args:
        request: the request.
        python: the interpreter of the program.
        work: a scratch folder.
        progress: gets the note.
    """
    cache = None
    if request.kind in PROGRAMS and not request.cold:
        try:
            place = choose_cache_place(python, work, dict(request.variables))
            cache = open_compile_cache(place) if place else None
        except InductorBenchError as error:
            progress.note(f"everything is compiled: {error.message}")
    try:
        yield cache.folder if cache else None
    finally:
        if cache is not None:
            cache.close()


def choose_cache_place(python: str, work: Path, variables: Mapping[str, str]) -> str:
    """Returns the name of the cache folder for an interpreter on this machine; empty if it has no torch."""
    environment = list_compiling_variables(variables, warm=True)
    log = work / "torch.log"
    remove_file(log)  # a process appends to its log
    words = [python, "-c", _TORCH]
    look = run_process(words, environment=make_worker_environment(work, environment), log=log, timeout_s=LOOK_S)
    torch = read_text(log)
    if not look.ok or not torch.startswith("torch "):
        return ""
    deciding = sorted(
        (name, value)
        for name, value in environment.items()
        if name.startswith(DECIDING) and not name.startswith(INDIFFERENT)
    )
    facts = (torch, deciding, _name_processor(), platform.libc_ver(), _name_system())
    version = next((line.split("'")[1] for line in torch.splitlines() if line.startswith("__version__ = '")), "")
    return slug(f"torch {version} {hashlib.sha256(repr(facts).encode('utf-8', 'surrogatepass')).hexdigest()[:16]}")


def _name_processor() -> Sequence[str]:
    """The processor's name and instructions: C++ kernels are compiled for them."""
    with contextlib.suppress(InductorBenchError):
        lines = read_text(Path("/proc/cpuinfo")).splitlines()
        wanted = ("model name", "flags", "Features", "CPU part")
        return sorted({line for line in lines if line.startswith(wanted)})
    return (platform.machine(), platform.processor())


def _name_system() -> str:
    """The system's libraries, with which C++ kernels are linked."""
    with contextlib.suppress(InductorBenchError):
        return read_text(Path("/etc/os-release"))
    return platform.platform()


# How long it took to compile the modules that come from the cache folder: torch says this only when it compiles.


KNOWN = "known"
"""The folder, in a cache folder, of one file for each compilation."""


@dataclass(frozen=True)
class KnownCompilation:
    """One compilation of a frame, whose modules are in the cache folder."""

    phases: tuple[CompilePhase, ...]  # what it took
    compiled_at: str = ""  # when (ISO 8601); empty for a compilation of this run


@dataclass(frozen=True)
class CompileTimes:
    """What the compilation of a program took."""

    phases: tuple[CompilePhase, ...] = ()  # with empty caches, of the process that compiled longest; empty if unknown
    cached: tuple[str, ...] = ()  # the paths of modules that an earlier run compiled
    compiled_at: str = ""  # when the last of them was compiled (ISO 8601); empty if none was or it is unknown


def compile_times(trace: StructuredTrace, cache: Path | None) -> CompileTimes:
    """Returns what compilation took. For modules that this run did not compile, the times of an earlier run count.

    What this run compiled is kept in the cache folder for later runs.

    Args:
        trace: the structured trace of the program.
        cache: the cache folder; ``None`` if everything was compiled.
    """
    if cache is None:
        return CompileTimes(trace.compile_phases)
    own = {path for one in trace.compilations for path in one.compiled}
    cached = tuple(dict.fromkeys(path for one in trace.compilations for path in one.cached if path not in own))
    wholes = [_add_cached_compile_times(one, own, cache) for one in trace.compilations]
    known = [one for one in wholes if one is not None]
    at = max((one.compiled_at for one in known), default="")
    if len(known) < len(wholes):
        return CompileTimes((), cached, at)
    return CompileTimes(_find_longest(trace.compilations, known), cached, at)


def _find_longest(
    compilations: Sequence[FrameCompilation], wholes: Sequence[KnownCompilation]
) -> tuple[CompilePhase, ...]:
    """Returns the phases of the process that compiled longest. An earlier compilation counts once for each process."""
    sums: dict[int, Counter[str]] = {}
    seen: set[tuple[int, str]] = set()
    for one, whole in zip(compilations, wholes, strict=True):
        key = one.process, _make_key(one.modules)
        is_repeated = key in seen and bool(whole.compiled_at)
        seen.add(key)
        sums.setdefault(one.process, Counter()).update(_list_times_s(one.phases if is_repeated else whole.phases))
    return max(map(_sort_phases, sums.values()), key=total_s, default=())


def _add_cached_compile_times(one: FrameCompilation, own: Set[str], cache: Path) -> KnownCompilation | None:
    """Returns a compilation as if the caches had been empty; ``None`` if a part that an earlier run compiled is
    unknown."""
    earlier = [path for path in one.cached if path not in own]
    found = KnownCompilation(one.phases)
    if earlier:
        known = _load(cache, _make_key(earlier))
        if known is None or not one.compiled:
            return known
        found = replace(known, phases=_sort_phases(_list_times_s(known.phases) + _list_times_s(one.phases)))
    if one.compiled:
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        with contextlib.suppress(InductorBenchError):
            write_json(cache / KNOWN / f"{_make_key(one.modules)}.json", codec.encode(replace(found, compiled_at=now)))
    return found


def _load(cache: Path, key: str) -> KnownCompilation | None:
    with contextlib.suppress(InductorBenchError, UnicodeDecodeError):
        known: KnownCompilation = codec.decode(KnownCompilation, read_json(cache / KNOWN / f"{key}.json"))
        return known
    return None


def _make_key(modules: Iterable[str]) -> str:
    names = sorted({os.path.basename(path) for path in modules})
    return hashlib.sha256("\n".join(names).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _list_times_s(phases: Iterable[CompilePhase]) -> Counter[str]:
    return Counter({phase.name: phase.time_s for phase in phases})


def _sort_phases(times_s: Mapping[str, float]) -> tuple[CompilePhase, ...]:
    phases = (CompilePhase(name, time_s) for name, time_s in times_s.items())
    return tuple(sorted(phases, key=lambda phase: -phase.time_s))
