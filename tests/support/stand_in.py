"""A program that stands for ``python``, or for this tool's command, and is run by the thousand.

``stand_in.py WORDS …`` hands a script, a worker of this tool, a fake that needs no torch, or with ``--tool`` the
command itself, to a process that forks (``forking_python.py``), and ends as the fork does; everything else runs in
Python itself. It imports little.
"""

from __future__ import annotations

import os
import sys
from _signal import SIG_BLOCK, SIG_DFL, SIG_UNBLOCK, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, pthread_sigmask, signal
from _socket import AF_UNIX, MSG_WAITALL, SCM_RIGHTS, SOL_SOCKET, socket
from binascii import crc32
from fcntl import LOCK_EX, flock
from marshal import dumps

FOLDER = "INDUCTOR_BENCH_TESTS_FORKS"
"""The variable with the folder of the sockets, whose name ends in the id of this session's first process."""

OWN_PROGRAM = "INDUCTOR_BENCH_TESTS_OWN_PROGRAM"
"""The variable with which that program forks workers only."""

TOOL = "--tool"
FAKES = ("/support/batch_child.py", "/support/retune_fakes.py", "/support/search_child.py")
WORKER = "inductor_bench.worker"
PASSED_ON = (SIGINT, SIGHUP, SIGQUIT, SIGTERM)
"""What the command's fork is sent, if this program is."""

ID_LENGTH = 10
READ_AT_IMPORT = ("TORCH", "PYTORCH", "TRITON_", "INDUCTOR_P", "OMP_", "MKL_", "ATEN_", "CUDA_", "LANG", "LC_", "TZ")
READ_AGAIN = ("TORCHINDUCTOR_", "INDUCTOR_P", "TORCH_DYNAMO_", "TORCH_COMPILE_", "TORCHDYNAMO_")
"""Variables that only configs of torch's compiler read at its import. A fork reads them again."""

READ_LATER = ("TORCH_TRACE", "TRITON_CACHE_DIR")
READ_BY_TOOL = ("PYTHON", "LANG", "LC_", "TZ")
"""Variables that Python itself reads when it starts, ``PYTHONPATH`` apart."""


def main(words: list[str]) -> int:
    kind, given_words = "torch", words
    if words[0] == TOOL or words[0].endswith(FAKES):
        kind = "tool"
    elif words[0] == "-c" and words[2:] and words[2].startswith(WORKER):
        words = words[2:]
    elif not words[0].endswith(".py") or os.environ.get(OWN_PROGRAM):
        os.execv(sys.executable, [sys.executable, *words])
    given = [number for number in map(int, os.listdir("/proc/self/fd")) if _is_open(number)]
    server = _connect(kind)
    server.sendmsg([b"\n"], [(SOL_SOCKET, SCM_RIGHTS, b"".join(one.to_bytes(4, sys.byteorder) for one in given))])
    request = dumps(
        {"words": words, "given": given_words, "folder": os.getcwd(), "variables": dict(os.environ), "numbers": given}
    )
    if kind == "tool":
        pthread_sigmask(SIG_BLOCK, PASSED_ON)
    server.sendall(len(request).to_bytes(8, "big") + request)
    fork = server.recv(ID_LENGTH, MSG_WAITALL)
    if kind == "tool" and fork:
        _pass_signals_on(int(fork))
    said = server.recv(10)
    code = int(said or -SIGKILL)
    if code < 0:
        if code != -SIGKILL:  # which has no handler
            signal(-code, SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _pass_signals_on(fork: int) -> None:
    def pass_on(number: int, _: object) -> None:
        try:
            os.kill(fork, number)
        except ProcessLookupError:
            return

    for number in PASSED_ON:
        signal(number, pass_on)
    pthread_sigmask(SIG_UNBLOCK, PASSED_ON)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _connect(kind: str) -> socket:
    """A connection to the process with this one's variables, which is started if it is not there."""
    imported = imported_variables(kind, os.environ)
    place = os.path.join(os.environ[FOLDER], f"{kind}-{crc32(repr(sorted(imported.items())).encode()):08x}")
    connection = socket(AF_UNIX)
    lock = os.open(f"{place}.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        flock(lock, LOCK_EX)
        try:
            connection.connect(place)
        except OSError:
            sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
            from forking_python import start

            start(place, imported)
            connection.connect(place)
    finally:
        os.close(lock)
    return connection


def imported_variables(kind: str, variables: os._Environ[str]) -> dict[str, str]:
    """What a process that forks has to be started with."""
    if kind == "tool":
        read = [name for name in variables if name.startswith(READ_BY_TOOL) and name != "PYTHONPATH"]
    else:
        later = (*READ_AGAIN, *READ_LATER)
        read = [name for name in variables if name.startswith(READ_AT_IMPORT) and not name.startswith(later)]
    return {name: variables[name] for name in read}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
