"""The entry point of worker processes, in three forms.

- ``python -m inductor_bench.worker VERB JOB RESULT`` does one job. The file ``JOB`` holds the encoded job of
  ``messages.job_requests`` with that verb. The file ``RESULT`` gets ``{"result": …}``, ``{"failure": {"kind",
  "message", "hint"}}``, or both if the job failed after it had saved a part.
- ``… fork ORDERS ENDS`` imports the modules that most jobs need, and writes ``ready`` as a line to the file descriptor
  ``ENDS``. For each line of JSON on the file descriptor ``ORDERS``, ``[[VERB, JOB, RESULT], OUTPUT, VARIABLES]``, it
  forks a process that does that job, with its output in the file ``OUTPUT`` and with these further environment
  variables. At the end of each it writes a line to ``ENDS``: the status, as ``os.waitpid`` returns it, and ``OUTPUT``.
  Several jobs may be under way. ``[[], OUTPUT, {}]`` kills a job. It ends at the end of ``ORDERS``.
- ``… serve REQUESTS ANSWERS`` reads requests as lines of JSON from one file descriptor, and answers each with a line of
  JSON on the other, in the form of the result file. Lines ``{"part": …}`` may precede an answer, and ``"fatal": true``
  marks the last answer of the process.

Tracebacks go to stderr, which the parent keeps as the worker's log.
"""

from __future__ import annotations

from .fast_start import keep_bytecode

if __name__ == "__main__":
    keep_bytecode()  # before all other imports

import contextlib
import ctypes
import functools
import gc
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TextIO

from ..devices.protocol import CPU
from ..devices.table import find_device
from ..errors import InductorBenchError
from ..messages import job_requests
from ..messages.job_requests import COMPILES_TRITON, LAUNCHES_TRITON, WorkerJob
from ..store import codec
from ..store.files import read_json, write_message
from .fast_start import without_collection

COMPILING_NICENESS = 10
"""Increment of the niceness of a process that compiles beside others that time kernels."""

RARE_COLLECTION = (100_000, 50, 100)
"""Thresholds of the garbage collector in a process that compiles: with Python's own it takes 5% of a compilation."""

GPU_FILE = "/dev/nvidiactl"
"""A path that exists on a machine with an NVIDIA GPU."""

DEVICE_FILES = ("/dev/dri/",)
"""What Intel's driver opens, and keeps open."""

NOT_INITIALISED = 3
"""What each function of CUDA's driver returns before its initialisation."""

BY_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""Environment variable: whether torch asks NVML if there is a GPU."""

JobFunction = Callable[[Any, Callable[[Any], None]], Any]
"""The function of a job. Its arguments are the job and a function that saves a part of the answer."""

JOBS: dict[type[WorkerJob[Any]], str] = {
    job_requests.ProfileModule: "inductor_bench.worker.profile.module_profile:profile_module",
    job_requests.ListLaunches: "inductor_bench.worker.profile.module_profile:list_launches",
    job_requests.RecordValues: "inductor_bench.worker.profile.module_profile:record_module_values",
    job_requests.SurveyMachine: "inductor_bench.worker.survey:survey_machine",
}
"""The function of each type of job, as ``MODULE:NAME``, so that a worker imports only the modules that it needs."""


def main(arguments: list[str]) -> int:
    if arguments[0] == "serve":
        with open(int(arguments[1])) as requests, open(int(arguments[2]), "w") as answers:
            return serve(requests, answers)
    if arguments[0] == "fork":
        with open(int(arguments[1])) as orders, open(int(arguments[2]), "w") as ends:
            return fork_jobs(orders, ends)
    verb, job_file, result = arguments
    saved: dict[str, Any] = {}

    def save(partial: Any) -> None:
        saved["result"] = codec.encode_sparse(partial)
        write_message(Path(result), saved)

    try:
        job = _job_type(verb)
        answer = _import_function(JOBS[job])(codec.decode(job, read_json(Path(job_file))), save)
        saved["result"] = codec.encode_sparse(answer)
    except InductorBenchError as error:
        saved["failure"] = {"kind": "invalid", "message": error.message, "hint": error.hint}
    except Exception as error:
        # This is the boundary of the process: an exception of the user's code or of torch becomes a row in the record.
        traceback.print_exc()
        saved["failure"] = describe_exception(error)
    write_message(Path(result), saved)
    return 1 if "failure" in saved else 0


def fork_jobs(orders: TextIO, ends: TextIO) -> int:
    """Does each job in a fork of this process, whose imports take most of a worker's start-up time."""
    with asking_nvml():
        import_jobs()
    if not os.path.exists(GPU_FILE):
        look_up_vectors()
    gc.freeze()  # so that garbage collections in the forks copy no memory pages of the imports
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    _say(ends, "ready")
    running: dict[int, str] = {}
    buffer = b""
    while True:
        readable = select.select([orders.fileno(), woken], [], [])[0]
        if woken in readable:
            os.read(woken, 1 << 10)
        for child in list(running):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                _say(ends, f"{status} {running.pop(child)}")
        if orders.fileno() in readable:
            data = os.read(orders.fileno(), 1 << 16)
            if not data:
                return 0
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                _take_order(json.loads(line), running, orders, ends)


def _take_order(
    order: tuple[list[str], str, dict[str, str]], running: dict[int, str], orders: TextIO, ends: TextIO
) -> None:
    """Forks a process for a job, or kills the one that does it."""
    words, output, variables = order
    if not words:
        for child in (child for child, place in running.items() if place == output):
            os.kill(child, signal.SIGKILL)
        return
    if _needs_vectors(*words[:2]):
        look_up_vectors()
    has_looked = has_looked_at_devices()
    child = os.fork()
    if child == 0:
        os.environ.update(variables)
        _do_in_fork(words, output, (orders, ends), in_new_process=has_looked)
    running[child] = output


def _needs_vectors(verb: str, job: str) -> bool:
    """Whether a job runs C++ kernels or measures the CPU's peaks. Such a job asks for the CPU's vectors: up to 30 s."""
    try:
        fields = read_json(Path(job))
        if verb == job_requests.SurveyMachine.verb and fields.get("peaks", "none") == "none":
            return False
        return find_device(fields.get("device", CPU.type)).runs_on_host
    except (InductorBenchError, AttributeError, TypeError):
        return False  # the job itself says what is wrong with it


@contextlib.contextmanager
def asking_nvml() -> Iterator[None]:
    """Makes torch ask NVML if there is a GPU: after a question to CUDA no fork of this process can use it.

    (torch 2.11)
    """
    asked = os.environ.get(BY_NVML)
    os.environ[BY_NVML] = "1"
    try:
        yield
    finally:
        os.environ.pop(BY_NVML)
        if asked is not None:
            os.environ[BY_NVML] = asked


def import_jobs() -> None:
    """Imports the modules of all jobs, and those that compiled modules import."""
    from .upstream.inductor import import_generated_codes_imports

    for place in JOBS.values():
        _import_function(place)
    with without_collection():
        import_generated_codes_imports()
        with contextlib.suppress(ImportError):  # C++ kernels are loaded with it
            import_module("setuptools")


@functools.cache
def look_up_vectors() -> None:
    """Asks Inductor once, for all forks, which vector instructions work here.

    Inductor starts a Python with torch for each set of instructions that it tries. Without this call each process that
    loads C++ kernels would do so. Inductor also asks whether there is a GPU.
    """
    from .upstream.inductor import count_vector_lanes

    with asking_nvml(), contextlib.suppress(RuntimeError, OSError, subprocess.SubprocessError):  # then each job says it
        count_vector_lanes()


def _do_in_fork(words: list[str], output: str, pipes: Sequence[TextIO], *, in_new_process: bool) -> NoReturn:
    """Does a job and ends this process. If a fork cannot use the device, a new interpreter does the job."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for pipe in pipes:
            os.close(pipe.fileno())
        with open(output, "wb", 0) as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        if in_new_process:
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:-3], *words])
        code = main(words)
    except BaseException:  # nothing of the process that forks may run in its fork
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def has_looked_at_devices() -> bool:
    """Whether this process uses a GPU, so that its forks cannot use one. A question to NVML does not count."""
    if _has_started_cuda():
        return True
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}").startswith(DEVICE_FILES):
                return True
    return False


def _has_started_cuda() -> bool:
    """Whether CUDA is initialised in this process, or was in its parent as far as torch knows. (torch 2.11, 2.13)"""
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda._is_in_bad_fork():
        return True
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD)  # only if it is loaded
    except OSError:
        return False
    return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != NOT_INITIALISED)


def _say(stream: TextIO, line: str) -> None:
    stream.write(line + "\n")
    stream.flush()


def serve(requests: TextIO, answers: TextIO) -> int:
    """Answers requests until their end, or until this process can no longer use its device; returns the exit code."""
    compiles = bool(os.environ.get(COMPILES_TRITON))
    if compiles:
        os.nice(COMPILING_NICENESS)  # before the imports: those of a process that times come first
    with without_collection():
        from .bench.bench import Bench

        if compiles:
            from .upstream.triton_compiler import warm_compiler

            warm_compiler()  # before the first request, which comes once the GPU is known
        if os.environ.get(LAUNCHES_TRITON):
            from .upstream.inductor import import_triton_launcher

            import_triton_launcher()  # before the first request, which comes once no other job was found on the GPU
    if compiles:
        gc.freeze()
        gc.set_threshold(*RARE_COLLECTION)

    def send(line: dict[str, Any]) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    bench = Bench(lambda part: send({"part": codec.encode(part)}))
    for request in requests:
        answer: dict[str, Any] = {}
        try:
            answer["result"] = bench.answer(json.loads(request))
        except InductorBenchError as error:
            answer["failure"] = {"kind": "invalid", "message": error.message, "hint": error.hint, "id": error.id}
        except Exception as error:
            # A user's kernel may raise any exception, and other kernels are still to be measured.
            traceback.print_exc()
            answer["failure"] = describe_exception(
                error, "free memory that others hold, or run it on a machine with more"
            )
        answer["fatal"] = "failure" in answer and bench.is_device_broken()
        send(answer)
        if answer["fatal"]:
            return 1
    return 0


def _job_type(verb: str) -> type[WorkerJob[Any]]:
    """The type of job with a verb."""
    for job in JOBS:
        if job.verb == verb:
            return job
    raise InductorBenchError(f"the worker knows no job {verb}")


def _import_function(place: str) -> JobFunction:
    module_name, function_name = place.split(":")
    with without_collection():
        function: JobFunction = getattr(import_module(module_name), function_name)
    return function


def describe_exception(error: BaseException, memory_hint: str = "try a smaller --batch-size") -> dict[str, str]:
    """The kind, message and hint of a failure for an exception; ``memory_hint`` is the hint if memory ran out."""
    name = type(error).__name__
    first = (str(error).strip().splitlines() or [""])[0]
    allocator = first.partition("DefaultCPUAllocator: ")[2]
    if isinstance(error, MemoryError) or name == "OutOfMemoryError" or allocator:
        message = ": ".join(filter(None, ["out of memory", allocator or first]))
        return {"kind": "memory", "message": message, "hint": memory_hint}
    return {"kind": "raised", "message": f"{name}: {first}" if first else name, "hint": ""}


if __name__ == "__main__":
    code = main(sys.argv[1:])
    gc.freeze()  # the interpreter's last garbage collections take a second, because of Inductor's many objects
    sys.exit(code)
