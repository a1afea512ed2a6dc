"""The environment variables of processes that compile modules for measurement, or run them."""

from __future__ import annotations

import contextlib
import getpass
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ...launch.diagnosis import SAFE_PATH
from ...launch.worker import expose_package, join_paths
from ...messages.observed import COMPILE_CACHE
from ...records.model_sources import COMMAND
from ...records.request import BreakdownRequest
from ...store.caches import keep_probes, lend_probes
from ...store.files import ensure_private_folder

SITE = Path(__file__).resolve().parent.parent.parent / "worker" / "capture" / "site"

SETTINGS = {
    "TORCHINDUCTOR_UNIQUE_KERNEL_NAMES": "1",
    "TORCHINDUCTOR_BENCHMARK_KERNEL": "1",
    "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1",
    "INDUCTOR_PROVENANCE": "1",
    "PYTHONUNBUFFERED": "1",
}
"""The variables that a measurement needs, whatever the user sets."""

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

What Dynamo learned of shapes in an earlier process would make it compile other graphs, and fewer."""

PLACES = ("TORCHINDUCTOR_CACHE_DIR", "TORCH_TRACE", "TMPDIR", "TRITON_CACHE_DIR")
"""The variables whose folders the tool chooses."""

NO_VARIABLES: Mapping[str, str] = {}


def capture_environment(
    work: Path, variables: Mapping[str, str] = NO_VARIABLES, cache: Path | None = None
) -> dict[str, str]:
    """The environment in which modules are compiled for measurement and run, with its own caches and temporary files.

    Without a cache of earlier runs the FX and AOTAutograd caches are off. Turning off all caches would put each module
    into a folder of its own, which changes the hashes of its kernels.

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
        **compiling_variables(variables, warm=cache is not None),
        "TORCHINDUCTOR_CACHE_DIR": str(caches.resolve()),
        COMPILE_CACHE: str(caches.resolve()) if cache else "",
        "TORCH_TRACE": str(folders["torch_trace"].resolve()),
        "TMPDIR": str(folders["tmp"].resolve()),
    }


def compiling_variables(variables: Mapping[str, str], *, warm: bool) -> dict[str, str]:
    """The variables that decide what torch compiles, without the folders."""
    environment = {**os.environ, **variables}
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCHINDUCTOR_FX_COMPILE_MODE"):
        environment.pop(name, None)
    return {**environment, **SETTINGS, **(WARM if warm else COLD)}


def keep_for_later_runs(environment: Mapping[str, str]) -> None:
    """Keeps what later runs need not compile again, before the folder of the caches may be removed."""
    keep_probes(Path(environment["TORCHINDUCTOR_CACHE_DIR"]))


def observed_environment(request: BreakdownRequest, work: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the program, in which its Python processes observe themselves."""
    observed = {
        "INDUCTOR_BENCH_CAPTURE": str((work / "observed").resolve()),
        "INDUCTOR_BENCH_LIVE": "1" if request.live else "0",
        "INDUCTOR_BENCH_REPEAT": str(request.repeat or ""),
        "INDUCTOR_BENCH_VALUES_LIMIT": str(request.recorded_bytes or ""),
        "INDUCTOR_BENCH_SKIP_STEPS": "" if request.skip is None else str(request.skip),
        "INDUCTOR_BENCH_TIMED_STEPS": str(request.steps or ""),
        "INDUCTOR_BENCH_SAMPLES": "1" if request.samples else "",
        "PYTHONPATH": join_paths(str(SITE), join_paths(expose_package(work), environment.get("PYTHONPATH"))),
    }
    of_users = request.kind in ("script", COMMAND, "factory")
    return {**environment, **observed, **({} if of_users else SAFE_PATH)}


def _share_precompiled_headers(temporary: Path) -> None:
    """Shares the C++ headers that torch precompiled in earlier runs, which saves seconds."""
    with contextlib.suppress(OSError):
        name = f"torchinductor_{_user_name()}"
        shared = Path(tempfile.gettempdir()) / name / "precompiled_headers"
        if not all(ensure_private_folder(folder, forbidden_bits=0o022) for folder in (shared.parent, shared)):
            return
        if any(header.lstat().st_uid != os.getuid() for header in shared.iterdir()):
            return
        (temporary / name).mkdir()
        (temporary / name / shared.name).symlink_to(shared.resolve(), target_is_directory=True)


def _user_name() -> str:
    """The user's name as torch names its folder: a user of a container may have a number alone."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid_{os.getuid()}"
