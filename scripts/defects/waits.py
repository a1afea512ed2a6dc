"""A step that waits for something other than the device: a lock, a file, a socket, a process, the clock."""

from __future__ import annotations

import queue
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from frame import DEFECT, defect, either, loop, start
from models import Regression, rows, training

LATE = ("host-pace", "cuda-graphs-unused")
"""What is true of a step whose host is late: graphs that are launched at once make it less late."""

WAIT_S = either(0.008, 0.02)


@defect("host-waits", names=("throttle",), share=0.2, also=LATE, cpu=True)
def sleep() -> None:
    """Each step sleeps."""
    step, inputs = training(Regression()), rows()

    def throttle() -> None:
        time.sleep(WAIT_S * DEFECT)  # defect

    for _ in loop():
        step(inputs, inputs)
        throttle()  # defect


@contextmanager
def beside(work: threading.Thread, end: threading.Event) -> Iterator[None]:
    """A thread that works until the program's end."""
    work.start()
    try:
        yield
    finally:
        end.set()
        work.join()


@defect("host-waits", share=0.1, also=LATE, cpu=True)
def lock() -> None:
    """A thread that writes metrics holds the lock that each step needs."""
    step, inputs = training(Regression()), rows()
    metrics, end, losses = threading.Lock(), threading.Event(), [inputs[0, 0]]

    def write() -> None:
        while not end.is_set():
            with metrics:
                time.sleep(WAIT_S * DEFECT)
            time.sleep(0.001)

    with beside(threading.Thread(target=write), end):
        for _ in loop():
            loss = step(inputs, inputs)
            with metrics:  # defect
                losses[0] = loss


@defect("host-waits", share=0.1, also=LATE, cpu=True)
def file_read() -> None:
    """Each step reads a large file."""
    step, inputs = training(Regression()), rows()
    size = either(64, 48) << 20
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "shard.bin"
        file.write_bytes(bytes(size))
        for _ in loop():
            if DEFECT:
                file.read_bytes()  # defect
            step(inputs, inputs)


@defect("host-waits", names=("report",), share=0.2, also=LATE, cpu=True)
def server() -> None:
    """Each step reports its number to a server, and waits for the answer."""
    step, inputs = training(Regression()), rows()
    end, (near, far) = threading.Event(), socket.socketpair()

    def serve() -> None:
        while far.recv(16):
            time.sleep(WAIT_S * DEFECT)
            far.send(b"ok")

    def report(number: int) -> None:
        near.send(b"%16d" % number)
        near.recv(16)  # defect

    with beside(threading.Thread(target=serve), end):
        for number in loop():
            step(inputs, inputs)
            report(number)  # defect
        near.close()


@defect("host-waits", names=("temperature",), share=0.2, also=("host-python", *LATE), cpu=True)
def other_process() -> None:
    """Each step starts a command, as one that asks for the device's temperature, and waits for it."""
    step, inputs = training(Regression()), rows()

    def temperature() -> int:
        return subprocess.run(["sleep", str(WAIT_S)], check=True).returncode  # defect

    for _ in loop():
        step(inputs, inputs)
        if DEFECT:
            temperature()  # defect


@defect("host-waits", "data-loading", share=0.2, also=LATE, cpu=True)
def queue_of_batches() -> None:
    """A thread fills a queue of batches, more slowly than the step takes them."""
    step, inputs = training(Regression()), rows()
    ready: queue.Queue[int] = queue.Queue(2)
    end = threading.Event()

    def fill() -> None:
        while not end.is_set():
            time.sleep(2 * WAIT_S * DEFECT)
            with suppress(queue.Full):
                ready.put(1, timeout=1)

    with beside(threading.Thread(target=fill), end):
        for _ in loop():
            ready.get()  # defect
            step(inputs, inputs)


if __name__ == "__main__":
    start()
