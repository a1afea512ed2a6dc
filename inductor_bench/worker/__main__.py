"""The worker's entry: ``python -m inductor_bench.worker VERB JOB RESULT``, ``… await ORDERS READINESS``, or ``… serve
REQUESTS ANSWERS``.

``JOB`` is a file that holds the encoded job of ``messages.jobs`` with that verb. The result file holds
``{"result": …}``, ``{"failure": {"kind", "message", "hint"}}``, or both where a job failed after it had saved a part. A
traceback goes to stderr, which the parent keeps as this worker's log.

``await`` imports what most jobs need, writes a byte to a file descriptor, and reads ``[VERB, JOB, RESULT]``, as a line
of JSON, from another; it ends where there is none.

``serve`` takes one request after the other, as lines of JSON on a file descriptor, and answers each on another, with a
line of that form; ``{"part": …}`` lines may come before it, and ``"fatal"`` says that it is the last.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from inductor_bench.errors import InductorBenchError
from inductor_bench.messages import jobs
from inductor_bench.messages.jobs import WorkerJob
from inductor_bench.store.files import read_json, write_json
from inductor_bench.store.formats import codec

Work = Callable[[Any, Callable[[Any], None]], Any]
"""What does a job: it is given the job and what saves a part of the answer, and returns the answer."""

JOBS: dict[type[WorkerJob[Any]], str] = {
    jobs.ProfileModule: "inductor_bench.worker.profile.module_profile:profile_module",
    jobs.MakeReferences: "inductor_bench.worker.profile.references:make_references",
    jobs.ListLaunches: "inductor_bench.worker.profile.module_profile:list_launches",
    jobs.RecordValues: "inductor_bench.worker.profile.module_profile:record_module_values",
    jobs.SurveyMachine: "inductor_bench.worker.survey:survey",
}
"""The function that does each job, as ``MODULE:NAME``: a worker imports only what it needs."""


def main(arguments: list[str]) -> int:
    if arguments[0] == "serve":
        with open(int(arguments[1])) as requests, open(int(arguments[2]), "w") as answers:
            return serve(requests, answers)
    if arguments[0] == "await":
        with open(int(arguments[1])) as orders:
            get_ready(int(arguments[2]))
            order = orders.readline()
        return main(json.loads(order)) if order else 0
    verb, job_file, result = arguments
    saved: dict[str, Any] = {}

    def save(partial: Any) -> None:
        saved["result"] = codec.encode_sparse(partial)
        write_json(Path(result), saved)

    try:
        job = _job_type(verb)
        answer = _find(JOBS[job])(codec.decode(job, read_json(Path(job_file))), save)
        saved["result"] = codec.encode_sparse(answer)
    except InductorBenchError as error:
        saved["failure"] = {"kind": "invalid", "message": error.message, "hint": error.hint}
    except Exception as error:
        # The boundary of the process: whatever the user's code or torch raised becomes a row in the record.
        traceback.print_exc()
        saved["failure"] = describe_exception(error)
    write_json(Path(result), saved)
    return 1 if "failure" in saved else 0


def get_ready(readiness: int) -> None:
    """Imports what takes most of the start of a worker, and says so."""
    from inductor_bench.worker.upstream.inductor import import_generated_codes_imports

    for place in JOBS.values():
        _find(place)
    import_generated_codes_imports()
    os.write(readiness, b"1")


def serve(requests: TextIO, answers: TextIO) -> int:
    """Answers requests until there are no more, or until nothing can be asked of this process any more."""
    from inductor_bench.worker.bench.bench import Bench

    def say(line: dict[str, Any]) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    bench = Bench(lambda part: say({"part": codec.encode(part)}))
    for request in requests:
        answer: dict[str, Any] = {}
        try:
            answer["result"] = bench.answer(json.loads(request))
        except InductorBenchError as error:
            answer["failure"] = {"kind": "invalid", "message": error.message, "hint": error.hint}
        except Exception as error:
            # A user's kernel may raise anything; the others are still to be measured.
            traceback.print_exc()
            answer["failure"] = describe_exception(error, "free memory that others hold, or run it where there is more")
        answer["fatal"] = "failure" in answer and bench.broken()
        say(answer)
        if answer["fatal"]:
            return 1
    return 0


def _job_type(verb: str) -> type[WorkerJob[Any]]:
    """Raises: InductorBenchError: no job has this verb."""
    for job in JOBS:
        if job.verb == verb:
            return job
    raise InductorBenchError(f"the worker knows no job {verb}")


def _find(place: str) -> Work:
    module_name, function_name = place.split(":")
    work: Work = getattr(import_module(module_name), function_name)
    return work


def describe_exception(error: BaseException, for_memory: str = "try a smaller --batch-size") -> dict[str, str]:
    """An exception as the kind, message and hint of a failure; ``for_memory`` is the hint where memory ran out."""
    name = type(error).__name__
    first = (str(error).strip().splitlines() or [""])[0]
    allocator = first.partition("DefaultCPUAllocator: ")[2]
    if isinstance(error, MemoryError) or name == "OutOfMemoryError" or allocator:
        message = ": ".join(filter(None, ["out of memory", allocator or first]))
        return {"kind": "memory", "message": message, "hint": for_memory}
    return {"kind": "raised", "message": f"{name}: {first}" if first else name, "hint": ""}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
