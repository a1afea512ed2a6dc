"""A fake kernel session that neither builds nor measures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fake_device import Silent
from inline import make

from inductor_bench.launch.worker import WorkerPool
from inductor_bench.messages.job_requests import WorkerRequest
from inductor_bench.records.request import KernelRequest
from inductor_bench.records.run import Environment
from inductor_bench.workflows.kernels.kernel_session import KernelSession

Answers = dict[type[WorkerRequest[Any]], Any]
Asked = list[tuple[type[WorkerRequest[Any]], float]]


class FakeWorker:
    """A fake of the measuring worker that gives fixed answers and lists the requests in ``asked``."""

    def __init__(self, answers: Answers, asked: Asked) -> None:
        self.alive, self.left_s, self.answers, self.asked = True, 30.0, answers, asked
        self._readable = os.open(os.devnull, os.O_RDONLY)

    def ask(self, request: WorkerRequest[Any], timeout_s: float) -> Any:
        self.post(request, timeout_s)
        return self.collect()

    def post(self, request: WorkerRequest[Any], timeout_s: float) -> None:
        self.asked.append((type(request), timeout_s))

    def fileno(self) -> int:
        return self._readable

    def close(self) -> None:
        os.close(self._readable)

    def is_answered(self) -> bool:
        return True

    def collect(self) -> Any:
        answer = self.answers.get(self.asked[-1][0])
        if isinstance(answer, Exception):
            raise answer
        return answer


class Bench(KernelSession):
    """A kernel session with a GPU whose workers are all :class:`FakeWorker`."""

    def __init__(self, folder: Path, answers: Answers, **options: Any) -> None:
        memory = {"accelerator_memory_bytes": 140 << 30}
        environment = make(Environment, accelerator="a GPU", cpu="a CPU", compute_capability="9.0", **memory)
        super().__init__(KernelRequest((), **options), WorkerPool("python", folder, {}), Silent(), environment)
        self.answers, self.asked, self.started = answers, Asked(), list[str]()
        self.variables: list[dict[str, str]] = []

    def start(self, name: str, **variables: str) -> Any:
        self.started.append(name)
        self.variables.append(variables)
        return FakeWorker(self.answers, self.asked)

    @property
    def requests(self) -> list[type[WorkerRequest[Any]]]:
        return [request for request, _ in self.asked]
