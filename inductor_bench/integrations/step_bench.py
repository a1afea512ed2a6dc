"""The fixture ``inductor_bench`` of pytest: times and profiles a function as the step of a program."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .. import compare, observe, step
from ..errors import InductorBenchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..records.comparison import RunComparison
    from ..report.run.observed_run import ObservedRun

WORKERS = "PYTEST_XDIST_WORKER_COUNT"
"""The variable in which pytest-xdist tells the number of its processes."""

SHARED = (
    "{count} processes of pytest-xdist share this machine's cores and devices, so no time would be right: run this "
    "test with -n 0"
)
MOST_S = 60.0
LEAST_STEPS = 3


class StepBench:
    """The object that a test gets from the fixture.

    Args:
        folder: where the RUNs of the test are written.
        name: the name of the test.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._count = 0

    def step(
        self,
        function: Callable[[], object],
        *,
        output: str | os.PathLike[str] | None = None,
        most_s: float = MOST_S,
    ) -> ObservedRun:
        """Calls a function, each call as a step, until its steps are timed and profiled.

        Skips the test if several processes of pytest-xdist share the machine.

        Args:
            function: a step, such as a training step: it compiles in its first calls.
            output: the RUN folder; an earlier run in it is replaced. By default the test gets a folder of its own.
            most_s: seconds after which no further step begins.

        Returns:
            What ``inductor_bench.observe`` gives: ``step_time_s`` and ``kernels["triton_red*"].time_s``, in seconds.

        Raises:
            InductorBenchError: another block is observed, the folder holds something else, or no step was timed.
        """
        if (count := int(os.environ.get(WORKERS) or 1)) > 1:
            pytest.skip(SHARED.format(count=count))
        place = Path(output) if output is not None else self._next_folder()
        with observe(place, name=self._name, force=True, samples=False) as run:
            end_s, steps = time.monotonic() + most_s, 0
            while not run.is_measured and (steps < LEAST_STEPS or time.monotonic() < end_s):
                function()
                step()
                steps += 1
        if math.isnan(run.step_time_s):
            raise InductorBenchError(run.headline or "no step was timed")
        return run

    def _next_folder(self) -> Path:
        self._count += 1
        stem = re.sub(r"[^A-Za-z0-9_.]+", "-", self._name).strip("-.")[:100] or "test"
        return self._folder / (stem if self._count == 1 else f"{stem}-{self._count}")

    def compare(self, a: str | os.PathLike[str], b: str | os.PathLike[str]) -> RunComparison:
        """Compares two runs, as ``inductor_bench.compare`` does: ``verdict`` says whether B is ``slower`` than A.

        Args:
            a: a RUN, such as one that is stored with the tests.
            b: another one, such as what :meth:`step` gave.
        """
        return compare(a, b)
