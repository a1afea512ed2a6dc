"""Runs Python programs in forks of a process that has imported torch and its compiler, and this tool's command in forks
of one that has imported the tool. The imports take most of the time of a small program, of a worker with a small job,
and of a command that draws a record.

``stand_in.py`` is the program that stands for ``python``. ``forking_python.py --serve SOCKET`` is a process that forks.
There is one for each set of variables that is read when it starts, until this session's end; a fork reads again what
the configs of torch's compiler take from variables.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import marshal
import os
import pkgutil
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from stand_in import FAKES, FOLDER, ID_LENGTH, READ_AGAIN, TOOL, WORKER

PYTHON = "INDUCTOR_BENCH_TESTS_PYTHON"
"""The variable with which a command of this tool takes the program that stands for ``python`` as its interpreter."""

COSTS = "costs"
"""The file in the folder that has a test and the CPU seconds of a fork in each line."""

KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH", FOLDER)
COMPILERS = (
    *("torch._inductor.compile_fx", "torch._dynamo.repro.after_dynamo", "torch._dynamo.backends.inductor"),
    *("torch._inductor.fx_passes.fuse_attention", "torch._inductor.choices", "torch._inductor.bounds"),
    *("torch._inductor.kernel_template_choice", "torch._inductor.runtime.caching", "torch.utils.cpp_extension"),
    *("torch.export._trace", "torch.fx.experimental.validator", "torch.distributed.tensor.experimental"),
    *("setuptools", "sympy.combinatorics", "sympy.physics.units", "torch.profiler"),
)
"""What a program imports when it compiles, or profiles; without what a version of torch does not have."""

HIGH = 100
"""Descriptors from here on are free of those that a fork is given."""

POLL_S = 1.0


def interpreter() -> str:
    """The path of a program that stands for ``python``; made when it is first needed."""
    return _script("python", "")


def forked(words: list[str], environment: Mapping[str, str]) -> list[str]:
    """A command that is a fork instead of ``python -m inductor_bench``, unless a user's sitecustomize comes first."""
    start = [sys.executable, "-m", "inductor_bench"]
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    sites = [folder for folder in folders if os.path.exists(os.path.join(folder, "sitecustomize.py"))]
    if words[:3] != start or any(os.path.basename(folder) != "rare_collection" for folder in sites):
        return words
    return [_script("inductor-bench", f"{TOOL} "), *words[3:]]


def _script(name: str, option: str) -> str:
    folder = Path(os.environ[FOLDER])
    folder.mkdir(exist_ok=True)
    script = folder / name
    if not script.exists():
        part = folder / f"{name}.{os.getpid()}"
        stand_in = Path(__file__).with_name("stand_in.py")
        part.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{stand_in}" {option}"$@"\n')
        part.chmod(0o755)
        part.rename(script)
    return str(script)


def run(words: list[str], **variables: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs ``python WORDS``. A program that is to be observed gets the variable of its capture's folder."""
    import breakdown_runs

    return subprocess.run(
        [interpreter(), *words], env=breakdown_runs.environment(**variables), capture_output=True, text=True
    )


def run_ranks(words: list[str], folder: Path, **variables: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs ``python WORDS`` as two ranks, which find each other by a file in a folder. All that they said is stderr."""
    import breakdown_runs

    shared = {"STORE": f"file://{folder / 'store'}", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", **variables}
    command = [interpreter(), *words]
    ranks = [
        subprocess.Popen(
            command, env=breakdown_runs.environment(**shared, RANK=rank, LOCAL_RANK=rank), stderr=-1, text=True
        )
        for rank in ("0", "1")
    ]
    said = [rank.communicate(timeout=600)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    return subprocess.CompletedProcess(command, 0, "", "".join(said))


def costs() -> list[tuple[str, float]]:
    """For each fork of this session, and each process that forks, the test that it was for and its CPU seconds."""
    file = Path(os.environ[FOLDER], COSTS)
    lines = file.read_text().splitlines() if file.exists() else []
    return [(test, float(spent)) for test, spent in (line.split("\t") for line in lines)]


# A process that forks is started


def start(socket_path: str, imported: dict[str, str]) -> None:
    """Starts a process that forks, as a descendant of none that a test looks at, and waits until it is ready.

    The process holds a lock as long as it lives: who started one may be killed before it is ready, and the next one
    then waits for it, too.
    """
    place = Path(socket_path)
    with open(f"{place}.server", "w") as lives:
        try:
            fcntl.flock(lives, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            place.unlink(missing_ok=True)
            if os.fork() == 0:
                _start_detached(place, imported, lives.fileno())
                os._exit(0)
            os.wait()
    while not place.exists():
        assert not _is_gone(place), Path(f"{place}.log").read_text()
        time.sleep(0.02)


def _is_gone(place: Path) -> bool:
    """Whether the process that forks has ended."""
    with open(f"{place}.server") as lives, contextlib.suppress(BlockingIOError):
        fcntl.flock(lives, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return not place.exists()
    return False


def _start_detached(place: Path, imported: dict[str, str], lives: int) -> None:
    support = Path(__file__).parent
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    libraries = [folder for folder in given if folder and Path(folder, "msgspec").is_dir()]  # some machine has it there
    folders = [*map(str, (support, support.parents[1], support.parent / "rare_collection")), *libraries]
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    with open(f"{place}.log", "w") as log:
        subprocess.Popen(
            [sys.executable, __file__, "--serve", str(place)],
            env={**kept, **imported, "PYTHONPATH": os.pathsep.join(folders)},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(lives,),
        )


# The process that forks


def _serve(place: Path) -> int:
    if place.name.startswith("tool"):
        _prepare_tool()
    else:
        from inductor_bench.worker import __main__ as worker

        worker.import_jobs()
        for name in COMPILERS:
            with contextlib.suppress(ModuleNotFoundError):
                import_module(name)
        _prepare_compiler(place)
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{place}.part")
    listener.listen(16)
    _note_cost(place, "processes that fork", resource.getrusage(resource.RUSAGE_SELF))
    os.rename(f"{place}.part", place)
    forks: dict[int, tuple[int, socket.socket, str]] = {}
    """By the descriptor of the process: its id, who waits for it, and which test that is for."""
    session = Path("/proc", place.parent.name.rpartition("-")[2])
    while place.exists() and session.exists():
        connections = {connection.fileno(): number for number, (_, connection, _) in forks.items()}
        for ready in select.select([listener, *forks, *connections], [], [], POLL_S)[0]:
            if ready is listener:
                connection = listener.accept()[0]
                try:
                    numbers, request = _receive(connection)
                except (OSError, EOFError, ValueError, TypeError):  # who asked was killed meanwhile
                    connection.close()
                    continue
                pid = os.fork()
                if pid == 0:
                    os.setsid()
                    return _run(numbers, request)
                with contextlib.suppress(OSError):
                    connection.send(str(pid).rjust(ID_LENGTH).encode())
                for number in numbers:
                    os.close(number)
                test = request["variables"].get("PYTEST_CURRENT_TEST", "")
                forks[os.pidfd_open(pid)] = (pid, connection, test)
            elif ready in forks:
                pid, connection, test = forks.pop(ready)
                os.close(ready)
                _, status, used = os.wait4(pid, 0)
                _note_cost(place, test, used)
                with contextlib.suppress(OSError):
                    connection.send(str(os.waitstatus_to_exitcode(status)).encode())
                connection.close()
            elif connections.get(ready) in forks:  # who waited is gone
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(forks[connections[ready]][0], signal.SIGKILL)
    return 0


def _prepare_tool() -> None:
    """Imports what a command imports, and compiles the templates of pages: each fork would take 0.1 to 0.2 s for it."""
    from inductor_bench.report.document import Document
    from inductor_bench.report.html import render_page

    for folder in ("cli", "workflows", "report"):
        package = import_module(f"inductor_bench.{folder}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name != "inductor_bench.report.run.plots":  # it imports matplotlib, which few commands need
                import_module(found.name)
    for name in ("retune_fakes", "search_child", "rich.console", "rich.emoji"):
        import_module(name)
    render_page(Document(""))


def _prepare_compiler(place: Path) -> None:
    """Makes what the first compilation of a process makes: the code generators, the patterns, a key
    of all of torch's files, and the trials of what the processor's vectors can do, which take a second."""
    import torch
    from torch._dynamo.backends.registry import list_backends
    from torch._inductor import codecache, config, cpp_builder, cpu_vec_isa
    from torch._inductor.codegen.common import init_backend_registration
    from torch._inductor.fx_passes import joint_graph, post_grad, pre_grad

    list_backends()
    init_backend_registration()
    for passes in (pre_grad, post_grad):
        passes.lazy_init()
    joint_graph.lazy_init(torch.device("cpu"))
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(place.with_name("trials"))
    with config.patch({"cpp.vec_isa_ok": True}), contextlib.suppress(Exception):  # there may be no compiler
        cpu_vec_isa.valid_vec_isa_list()
    for function in vars(cpp_builder).values():
        if isinstance(function, functools._lru_cache_wrapper):
            function.cache_clear()  # which compiler there is each fork finds out for itself
    codecache.torch_key()


def _note_cost(place: Path, test: str, used: resource.struct_rusage) -> None:
    with open(place.with_name(COSTS), "a") as file:
        file.write(f"{test}\t{used.ru_utime + used.ru_stime}\n")


def _receive(connection: socket.socket) -> tuple[list[int], dict[str, Any]]:
    _, received, _, _ = socket.recv_fds(connection, 1, HIGH)
    numbers = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, HIGH) for number in received]
    for number in received:
        os.close(number)
    try:
        with connection.makefile("rb") as stream:
            return numbers, marshal.loads(stream.read(int.from_bytes(stream.read(8), "big")))
    except BaseException:
        for number in numbers:
            os.close(number)
        raise


def _read_configs() -> None:
    """Runs the files of torch's configs again, which take their values from variables."""
    from types import ModuleType

    from torch.utils._config_module import ConfigModule

    for module in [module for module in sys.modules.values() if isinstance(module, ConfigModule)]:
        ModuleType.__setattr__(module, "__class__", ModuleType)
        for name in [name for name in module.__dict__ if not name.startswith("__")]:
            del module.__dict__[name]
        assert module.__spec__ is not None and module.__spec__.loader is not None
        exec(module.__spec__.loader.get_code(module.__name__), module.__dict__)  # type: ignore[attr-defined]


def _run(descriptors: list[int], request: dict[str, Any]) -> int:
    """Runs a program to its end. Python would free all that torch has imported, which takes 0.3 CPU seconds."""
    try:
        code = _become(descriptors, request)
    except SystemExit as stop:
        if stop.code is not None and not isinstance(stop.code, int):
            raise
        code = stop.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError:
        return code  # Python says so, too
    os._exit(code & 0xFF)


def _become(descriptors: list[int], request: dict[str, Any]) -> int:
    """Runs a program, a worker or the tool in this process, as if what it imports had been imported just now."""
    import runpy
    import tempfile

    os.closerange(3, HIGH)
    for number, descriptor in zip(request["numbers"], descriptors, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["variables"])
    tempfile.tempdir = None
    sys.argv = words = request["words"]
    sys.orig_argv = [sys.executable, *request["given"]]
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if words[0] == TOOL:
        _open_streams()
        sys.executable = os.environ.get(PYTHON) or sys.executable
        runpy.run_module("inductor_bench", run_name="__main__", alter_sys=True)
    if words[0].endswith(FAKES):
        _open_streams()
        runpy.run_path(words[0], run_name="__main__")
        return 0
    _settle_torch()
    if "INDUCTOR_BENCH_CAPTURE" in os.environ:
        from inductor_bench.worker.capture.startup import install

        install()
    if words[0].startswith(WORKER):
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
        runpy.run_path(words[0], run_name="__main__")
    return 0


def _open_streams() -> None:
    """Opens stdout and stderr anew: they may lie elsewhere than the log of the process that forks."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        now = getattr(sys, name)
        stream = open(number, "w", encoding=now.encoding, errors=now.errors, closefd=False)  # noqa: SIM115
        stream.reconfigure(line_buffering=number == 2 or stream.isatty())
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _settle_torch() -> None:
    from torch._logging import _internal as torch_logging

    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if any(name.startswith(READ_AGAIN) for name in os.environ):
        _read_configs()
    torch_logging.LOG_TRACE_HANDLER = None  # it has read its folder
    torch_logging._init_logs()


if __name__ == "__main__":
    sys.exit(_serve(Path(sys.argv[2])))
