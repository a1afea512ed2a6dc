"""Runs Python programs in forks of one process that has imported torch and its compiler. The import takes most of the
time of a small program. Programs that differ in what they do, and not in how they start, can share the process.

As a program it reads requests as lines of JSON, and answers each with the exit code of its fork.
"""

from __future__ import annotations

import functools
import json
import os
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import breakdown_runs as runs


@functools.cache
def _server() -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    environment = runs.environment(PYTHONPATH=os.pathsep.join([path, os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, __file__], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def run(words: list[str], **variables: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs ``python WORDS``. A program that is to be observed gets the variable of its capture's folder."""
    server, folder = _server(), runs.scratch() / "forks"
    folder.mkdir(exist_ok=True)
    assert server.stdin is not None and server.stdout is not None
    request = {"words": words, "variables": {name: str(value) for name, value in variables.items()}}
    print(json.dumps({**request, "folder": str(folder)}), file=server.stdin, flush=True)
    code = int(server.stdout.readline())
    return subprocess.CompletedProcess(words, code, (folder / "out").read_text(), (folder / "err").read_text())


def _serve() -> None:
    import_module("torch._inductor.compile_fx")
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            return _become(**request)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _become(words: list[str], variables: dict[str, str], folder: str) -> None:
    """Runs a program in this process, observed as if the compiler had been imported just now."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.update(variables)
    sys.argv = words
    if "INDUCTOR_BENCH_CAPTURE" in variables:
        from inductor_bench.worker.capture.startup import install

        install()
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    _serve()
