"""The plugin of pytest, which every pytest loads if this package is installed: it imports nothing else."""

from __future__ import annotations

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .step_bench import StepBench

OPTION = "--inductor-bench-runs"


def pytest_addoption(parser: pytest.Parser) -> None:
    help = "keep the RUN of each test with the fixture inductor_bench in this folder, under the test's name"
    parser.getgroup("inductor-bench").addoption(OPTION, metavar="FOLDER", help=help)


@pytest.fixture
def inductor_bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StepBench:
    """Times and profiles steps: ``inductor_bench.step(function)``; compares with a stored RUN: ``compare(a, b)``."""
    from pathlib import Path

    from .step_bench import StepBench

    kept = request.config.getoption(OPTION)
    folder = Path(request.config.invocation_params.dir, kept) if kept else tmp_path_factory.mktemp("inductor-bench")
    return StepBench(folder, request.node.name)
