"""Runs of the real command that several test files share. Each is made once per session, when first needed."""

from __future__ import annotations

import functools
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forking_python
from conftest import RARE_COLLECTION, ROOT, SESSION
from documented import documented
from stand_in import OWN_PROGRAM

PROGRAMS = ROOT / "tests" / "programs"
H200 = ROOT / "tests" / "data" / "h200_torch2.11"
NVIDIA = Path("/dev/nvidiactl")
TRAINING = (PROGRAMS / "train_breaks.py", "-v", "--", "--lr", "0.1", "a b")
_scratch: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def scratch() -> Path:
    """Returns the folder of this session's runs, which is removed when the session ends."""
    _scratch.append(tempfile.TemporaryDirectory(prefix="breakdown-runs-"))
    return Path(_scratch[0].name).resolve()


@dataclass(frozen=True)
class Done:
    """A finished command: its exit code, its output, and its RUN folder."""

    code: int
    stdout: str
    stderr: str
    folder: Path

    @property
    def record(self) -> dict[str, Any]:
        return json.loads((self.folder / "record.json").read_text(encoding="utf-8"))

    @property
    def printed(self) -> str:
        return self.stdout + self.stderr

    def module(self, label: str) -> dict[str, Any]:
        (found,) = [module for module in self.record["modules"] if module["label"] == label]
        return found


@functools.cache
def tool_cache() -> Path:
    """Returns the folder of what the tool keeps for later runs. All processes of a session share measured peaks."""
    folder, shared = scratch() / "peaks", SESSION / "peaks"
    folder.mkdir()
    shared.mkdir(exist_ok=True)
    (folder / "peaks").symlink_to(shared)
    return folder


def environment(**variables: str | Path) -> dict[str, str]:
    """Returns the environment of a command: this checkout, and what the tool keeps is that of this session."""
    path = variables.pop("PYTHONPATH", os.environ.get("PYTHONPATH"))
    paths = [str(ROOT), *str(path or "").split(os.pathsep), str(RARE_COLLECTION)]
    return {
        **os.environ,
        "INDUCTOR_BENCH_CACHE": str(tool_cache()),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, paths))),
        **{name: str(value) for name, value in variables.items()},
    }


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "inductor_bench", *map(str, arguments)]


def breakdown(
    folder: Path, *arguments: str | Path, cwd: Path | None = None, own_program: bool = False, **variables: str | Path
) -> Done:
    """Runs ``inductor-bench breakdown … -o folder`` without plots; its workers are forks, see ``forks``."""
    words = command("breakdown", *arguments)
    place = words.index("--") if "--" in words else len(words)
    words[place:place] = ["-o", str(folder), "--no-plots"]
    return run(words, folder, cwd=cwd, **{**forks(own_program), **variables})


def apply(folder: Path, *words: str | Path, **variables: str | Path) -> Done:
    """Runs ``inductor-bench apply folder …`` with these variables."""
    return run(command("apply", folder, *words), folder, **variables)


def forks(own_program: bool = False) -> dict[str, str]:
    """Variables with which a command's workers are forks of a process that has imported torch.

    Nothing is a fork on a machine with an NVIDIA GPU: torch refuses CUDA in a fork of a process that has looked at it.

    Args:
        own_program: whether a script of the user is a separate process, and no fork.
    """
    if NVIDIA.exists():
        return own_processes()
    return {forking_python.PYTHON: forking_python.interpreter(), OWN_PROGRAM: "1" if own_program else ""}


def own_processes() -> dict[str, str]:
    """Variables with which nothing that a command starts is a fork."""
    return {forking_python.PYTHON: ""}


def run(words: list[str], folder: Path, *, cwd: Path | None = None, **variables: str | Path) -> Done:
    settings = environment(**variables)
    ended = subprocess.run(
        forking_python.forked(words, settings),
        cwd=cwd or scratch(),
        env=settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    return Done(ended.returncode, ended.stdout, ended.stderr, folder)


def interrupt(
    folder: Path,
    *arguments: str | Path,
    when: Callable[[str], bool],
    number: signal.Signals = signal.SIGINT,
    times: int = 1,
    own_program: bool = False,
) -> Done:
    """Runs a breakdown and sends it one or more signals as soon as ``when`` is true of its output on stderr."""
    words = command("breakdown", "-o", folder, "--no-plots", *arguments)
    stderr_file = folder.with_name(f"{folder.name}.stderr")
    settings = environment(**forks(own_program))
    with stderr_file.open("w") as stderr:
        child = subprocess.Popen(
            forking_python.forked(words, settings),
            env=settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        try:
            deadline = time.monotonic() + 600
            while not when(stderr_file.read_text()):
                assert child.poll() is None and time.monotonic() < deadline, stderr_file.read_text()
                time.sleep(0.05)
            for _ in range(times):
                child.send_signal(number)
                time.sleep(0.3)
            stdout, _ = child.communicate(timeout=600)
        finally:
            child.kill()
            child.wait()
    return Done(child.returncode, stdout, stderr_file.read_text(), folder)


@functools.cache
def training() -> Done:
    """Breaks down a training program with graph breaks, recompilations, arguments and ``-v``."""
    return breakdown(scratch() / "training", *TRAINING)


def training_again() -> Done:
    """The same once more, with what was compiled for :func:`training`."""
    training()
    return breakdown(scratch() / "training-again", *TRAINING)


@functools.cache
def factory() -> Done:
    """Breaks down a factory of floats in training, with workers that start early, as on a machine with many cores."""
    site = scratch() / "many_cores"
    site.mkdir()
    cores = "from inductor_bench.launch import worker\nworker.count_cores_of_this_process = lambda: 8\n"
    (site / "sitecustomize.py").write_text(f"import rare_collection\n{cores}")
    words = (f"{PROGRAMS / 'factories.py'}:mlp", "--training", "--seed", "3")
    return breakdown(scratch() / "factory", *words, PYTHONPATH=site)


@functools.cache
def frozen() -> Done:
    """Breaks down a program with frozen weights and a sitecustomize, which is a process of its own."""
    site = scratch() / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import rare_collection\nprint('the site of the user')\n")
    words = documented("inductor-bench breakdown train.py", {"train.py": PROGRAMS / "frozen_convnet.py"})
    return breakdown(scratch() / "frozen", *words[1:], own_program=True, PYTHONPATH=site)


@functools.cache
def with_values() -> Done:
    """Breaks down a program with recorded values, so that kernel files come with the values that the kernels read."""
    return breakdown(scratch() / "with_values", PROGRAMS / "real_values.py", "--values", "recorded")


@functools.cache
def plain() -> Path:
    """Runs a program without this tool and returns the folder with ``run.log``, ``trace`` (TORCH_TRACE), ``cache``."""
    folder = scratch() / "plain"
    folder.mkdir()
    with (folder / "run.log").open("w") as log:
        subprocess.run(
            [forking_python.interpreter(), PROGRAMS / "two_processes.py", "one"],
            env={
                **environment(),
                "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
                "TORCH_TRACE": str(folder / "trace"),
                "TORCHINDUCTOR_BENCHMARK_KERNEL": "1",
            },
            stdout=log,
            stderr=log,
            check=True,
            timeout=600,
        )
    return folder


@functools.cache
def processes() -> Done:
    """Breaks down a program with two compiling processes, one with warm caches. The program fails at its end."""
    cache = plain() / "cache"
    return breakdown(scratch() / "processes", PROGRAMS / "two_processes.py", TORCHINDUCTOR_CACHE_DIR=cache)


@functools.cache
def recorded() -> Done:
    """Breaks down a module with its trace, both recorded on an H200. It takes seconds; torch only counts FLOPs."""
    module = scratch() / "0_forward.py"
    module.write_bytes(gzip.decompress((H200 / "gpu_kinds" / "0_forward.py.gz").read_bytes()))
    return breakdown(scratch() / "recorded", module, "--trace", H200 / "gpu_kinds" / "0_forward.trace.json.gz")


def copy_of(done: Done, name: str) -> Path:
    """Copies a RUN folder, so that a test may change it."""
    target = scratch() / name
    shutil.copytree(done.folder, target)
    return target
