"""A fake of the process that measures one model of a batch. It writes the record of such a model at once.

The name of the model determines the outcome; see :func:`main`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import run_builder

from inductor_bench.launch.process import ChildProcess
from inductor_bench.records.base import Failure
from inductor_bench.store.folder import RunFolder
from inductor_bench.store.lock import TURN, DeviceTurn

MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def main(words: list[str]) -> int:
    """Runs ``breakdown TARGET … -o RUN``, as the batch starts it."""
    name = words[1].partition(":")[2]
    folder = RunFolder(Path(words[words.index("-o") + 1]))
    size = int(words[words.index("--batch-size") + 1]) if "--batch-size" in words else None
    folder.path.mkdir(parents=True)
    log(folder, f"begin {name} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}")
    if "BATCH_EVENTS" in os.environ:
        log(folder, f"at {name} {os.getpid()}")
    run = run_builder.mixnet() if TURN in os.environ and not name.startswith("cores") else run_builder.cpu()
    if name.startswith("idles"):
        run = run_builder.densenet()
    time.sleep(0.05)
    if name == "hangs":
        time.sleep(600)
    if name.startswith("awaits"):
        print("it waits", flush=True)
        while not events(folder).with_name("go").exists():
            time.sleep(0.05)
    if name == "crashes":
        folder.save(replace(run, modules=()))
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "orphans":
        worker = ChildProcess(["sleep", "600"], environment=os.environ, log=folder.path.parent / "worker.log")
        log(folder, f"worker {worker._child.pid}")
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "refused":
        print("Error: it cannot be\nHint: do something else")
        return 2
    if name in ("idles", "cores") and sum(f"begin {name}" in line for line in lines(folder)) == 1:
        await_line(folder, "begin good")
    if name.startswith("shares"):
        await_line(folder, f"begin {name.translate(str.maketrans('12', '21'))}")
        with DeviceTurn():
            log(folder, f"times {name}")
            time.sleep(0.1)
            log(folder, f"timed {name}")
    crowded = name == "crowded" and sum("begin crowded" in line for line in lines(folder)) == 1
    if crowded:
        await_line(folder, "begin neighbour")
    failure = {
        "fails": Failure("capture", "exit", "the program exited with code 1: ValueError: no"),
        "unknown": Failure("capture", "program", "timm has no model unknown"),
        "elsewhere": Failure("capture", "download", "it has to be downloaded"),
        "unreachable": Failure("capture", "exit", "urllib.error.URLError: <urlopen error: no route to host>"),
        "offline": Failure("capture", "exit", "exited", log_tail="huggingface_hub.errors.OfflineModeIsEnabled: no"),
    }.get(name)
    if crowded or (name == "large" and (size or 0) > 2):
        failure = Failure("capture", "exit", f"the program exited with code 1: {MEMORY}")
    if name == "flaky" and sum("begin flaky" in line for line in lines(folder)) == 1:
        failure = Failure("profile", "signal", "the worker was killed by SIGSEGV")
    if failure is not None:
        run = replace(run, modules=(), failures=(failure,))
    elif name == "half":
        run = replace(run, failures=(Failure("profile", "signal", "backward was killed"),))
    folder.save(run)
    log(folder, f"end {name} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}")
    return 1 if run.failures else 0


def log(folder: RunFolder, line: str) -> None:
    with open(events(folder), "a") as stream:
        stream.write(f"{line}\n")


def await_line(folder: RunFolder, wanted: str) -> None:
    while not any(line.startswith(wanted) for line in lines(folder)):
        time.sleep(0.02)


def lines(folder: RunFolder) -> list[str]:
    return events(folder).read_text().splitlines()


def events(folder: RunFolder) -> Path:
    """Returns the path of the event file: ``BATCH_EVENTS``, or by default a file in the batch's folder."""
    return Path(os.environ.get("BATCH_EVENTS", folder.path.parent.parent / "events"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
