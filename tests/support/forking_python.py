"""Runs Python programs in forks of a process that has imported torch and its compiler. The import takes most of the
time of a small program, and of a worker with a small job.

As a program this file stands for ``python``. ``forking_python.py WORDS …`` hands a script, or a worker of this tool, to
a process that forks, and ends as the fork does; everything else runs in Python itself. ``--serve SOCKET`` is a process
that forks. There is one for each set of variables that torch reads at its import, until this session's end; a fork
reads again what the configs of torch's compiler take from variables.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = "INDUCTOR_BENCH_TESTS_FORKS"
"""The variable with the folder of the sockets, whose name ends in the id of this session's first process."""

PYTHON = "INDUCTOR_BENCH_TESTS_PYTHON"
"""The variable with which a command of this tool takes the program that stands for ``python`` as its interpreter."""

OWN_PROGRAM = "INDUCTOR_BENCH_TESTS_OWN_PROGRAM"
"""The variable with which that program forks workers only."""

COSTS = "costs"
"""The file in it that has a test and the CPU seconds of a fork in each line."""

WORKER = "inductor_bench.worker"
READ_AT_IMPORT = ("TORCH", "PYTORCH", "TRITON_", "INDUCTOR_P", "OMP_", "MKL_", "ATEN_", "CUDA_", "LANG", "LC_", "TZ")
READ_AGAIN = ("TORCHINDUCTOR_", "INDUCTOR_P", "TORCH_DYNAMO_", "TORCH_COMPILE_", "TORCHDYNAMO_")
"""Variables that only configs of torch's compiler read at its import. ``_read_configs`` reads them in a fork."""

READ_LATER = ("TORCH_TRACE", "TRITON_CACHE_DIR")
KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH", FOLDER)
COMPILERS = (
    *("torch._inductor.compile_fx", "torch._dynamo.repro.after_dynamo", "torch._dynamo.backends.inductor"),
    *("setuptools", "sympy.combinatorics", "torch.profiler"),
)
"""What a program imports when it compiles, or profiles."""

HIGH = 100
"""Descriptors from here on are free of those that a fork is given."""

POLL_S = 1.0


def interpreter() -> str:
    """The path of a program that stands for ``python``; made when it is first needed."""
    folder = Path(os.environ[FOLDER])
    folder.mkdir(exist_ok=True)
    script = folder / "python"
    if not script.exists():
        part = folder / f"python.{os.getpid()}"
        part.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" "$@"\n')
        part.chmod(0o755)
        part.rename(script)
    return str(script)


def run(words: list[str], **variables: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs ``python WORDS``. A program that is to be observed gets the variable of its capture's folder."""
    import breakdown_runs

    return subprocess.run(
        [interpreter(), *words], env=breakdown_runs.environment(**variables), capture_output=True, text=True
    )


def costs() -> list[tuple[str, float]]:
    """For each fork of this session, and each process that forks, the test that it was for and its CPU seconds."""
    file = Path(os.environ[FOLDER], COSTS)
    lines = file.read_text().splitlines() if file.exists() else []
    return [(test, float(spent)) for test, spent in (line.split("\t") for line in lines)]


# The program that stands for ``python``


def _main(words: list[str]) -> int:
    if words[0] == "--serve":
        return _serve(Path(words[1]))
    if words[0] == "-c" and words[2:] and words[2].startswith(WORKER):
        words = words[2:]
    elif not words[0].endswith(".py") or os.environ.get(OWN_PROGRAM):
        os.execv(sys.executable, [sys.executable, *words])
    given = [number for number in map(int, os.listdir("/proc/self/fd")) if _is_open(number)]
    with _connect() as server:
        request = {"words": words, "folder": os.getcwd(), "variables": dict(os.environ), "numbers": given}
        socket.send_fds(server, [b"\n"], given)
        server.sendall(json.dumps(request).encode() + b"\n")
        said = server.recv(10)
    code = int(said or -signal.SIGKILL)
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _connect() -> socket.socket:
    """A connection to the process with this one's variables, which is started if it is not there."""
    imported = _imported_variables(os.environ)
    place = Path(os.environ[FOLDER], hashlib.sha256(repr(sorted(imported.items())).encode()).hexdigest()[:16])
    connection = socket.socket(socket.AF_UNIX)
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            connection.connect(str(place))
        except OSError:
            _start(place, imported)
            connection.connect(str(place))
    return connection


def _imported_variables(variables: Any) -> dict[str, str]:
    later = (*READ_AGAIN, *READ_LATER)
    read = [name for name in variables if name.startswith(READ_AT_IMPORT) and not name.startswith(later)]
    return {name: variables[name] for name in read}


def _start(place: Path, imported: dict[str, str]) -> None:
    """Starts a process that forks, as a descendant of none that a test looks at, and waits until it is ready."""
    place.unlink(missing_ok=True)
    started, tells = os.pipe()
    if os.fork() == 0:
        os.write(tells, str(_start_detached(place, imported)).encode())
        os._exit(0)
    os.wait()
    server = Path("/proc", os.read(started, 20).decode())
    os.close(started)
    os.close(tells)
    while not place.exists():
        assert server.exists(), Path(f"{place}.log").read_text()
        time.sleep(0.02)


def _start_detached(place: Path, imported: dict[str, str]) -> int:
    support = Path(__file__).parent
    folders = map(str, (support, support.parents[1], support.parent / "rare_collection"))
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    with open(f"{place}.log", "w") as log:
        return subprocess.Popen(
            [sys.executable, __file__, "--serve", str(place)],
            env={**kept, **imported, "PYTHONPATH": os.pathsep.join(folders)},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ).pid


# The process that forks


def _serve(place: Path) -> int:
    from inductor_bench.worker import __main__ as worker

    worker.import_jobs()
    for name in COMPILERS:
        import_module(name)
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
                numbers, request = _receive(connection)
                pid = os.fork()
                if pid == 0:
                    os.setsid()
                    return _become(numbers, request)
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


def _note_cost(place: Path, test: str, used: resource.struct_rusage) -> None:
    with open(place.with_name(COSTS), "a") as file:
        file.write(f"{test}\t{used.ru_utime + used.ru_stime}\n")


def _receive(connection: socket.socket) -> tuple[list[int], dict[str, Any]]:
    _, received, _, _ = socket.recv_fds(connection, 1, HIGH)
    numbers = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, HIGH) for number in received]
    for number in received:
        os.close(number)
    with connection.makefile("rb") as stream:
        return numbers, json.loads(stream.readline())


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


def _become(descriptors: list[int], request: dict[str, Any]) -> int:
    """Runs a program or a worker in this process, as if torch and its compiler had been imported just now."""
    import runpy
    import tempfile

    from torch._logging import _internal as torch_logging

    os.closerange(3, HIGH)
    for number, descriptor in zip(request["numbers"], descriptors, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["variables"])
    if any(name.startswith(READ_AGAIN) for name in os.environ):
        _read_configs()
    tempfile.tempdir = None
    torch_logging.LOG_TRACE_HANDLER = None  # it has read its folder
    torch_logging._init_logs()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.argv = words = request["words"]
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if "INDUCTOR_BENCH_CAPTURE" in os.environ:
        from inductor_bench.worker.capture.startup import install

        install()
    if words[0].startswith(WORKER):
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
        runpy.run_path(words[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
