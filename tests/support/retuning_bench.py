"""A session that builds and measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fake_device import Silent

from inductor_bench.launch.worker import WorkerPool
from inductor_bench.records.run import Environment
from inductor_bench.workflows.kernel.session import KernelOptions, Workbench


class Told:
    """Stands in for the worker that measures: it says what it is told to."""

    def __init__(self, answers: dict[str, Any], asked: list[tuple[str, float]]) -> None:
        self.alive, self.answers, self.asked = True, answers, asked

    def ask(self, request: dict[str, Any], timeout_s: float) -> Any:
        self.asked.append((request["do"], timeout_s))
        answer = self.answers.get(request["do"])
        if isinstance(answer, Exception):
            raise answer
        return answer


class Bench(Workbench):
    """One with a GPU, whose every worker is ``Told``."""

    def __init__(self, folder: Path, answers: dict[str, Any], **options: Any) -> None:
        environment = Environment(accelerator="a GPU", cpu="a CPU", compute_capability="9.0")
        super().__init__(KernelOptions((), **options), WorkerPool("python", folder, {}), Silent(), environment)
        self.answers, self.asked, self.started = answers, list[tuple[str, float]](), list[str]()

    def start(self, name: str, **variables: str) -> Any:
        self.started.append(name)
        return Told(self.answers, self.asked)

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.asked]
