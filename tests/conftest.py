"""What all tests share: where the data lies, the command as a child process, and who may run on a GPU."""

from __future__ import annotations

import functools
import gc
import importlib.util
import itertools
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

# A job that a non-interactive shell starts in the background ignores SIGINT and SIGQUIT, one under nohup SIGHUP, and
# every child inherits that. The tests send these signals to children.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

ROOT = Path(__file__).resolve().parent.parent

# Interpreters that tests start read `rare_collection/sitecustomize.py`; one before it imports `rare_collection` itself.
RARE_COLLECTION = ROOT / "tests" / "rare_collection"
if str(RARE_COLLECTION) not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(RARE_COLLECTION)]))
gc.set_threshold(100_000, 50, 100)

# The builders and fakes of all rooms; pytest itself puts only each test file's own folder there.
sys.path[:0] = [str(ROOT / "tests" / "support"), str(RARE_COLLECTION)]

import compiler_cache  # noqa: E402
import forking_python  # noqa: E402
import small_cache  # noqa: E402
import surroundings  # noqa: E402

if "PYTEST_XDIST_WORKER" not in os.environ:  # the processes of pytest-xdist inherit these variables
    _folder = tempfile.TemporaryDirectory(prefix="inductor-bench-tests-")
    surroundings.settle(os.environ, _folder.name)
    os.environ["INDUCTOR_BENCH_TESTS"] = _folder.name
    os.environ["INDUCTOR_BENCH_TESTS_FORKS"] = os.path.join(_folder.name, f"forks-{os.getpid()}")
    os.environ["INDUCTOR_BENCH_ASSUME_IDLE"] = "1"  # what a screen says of a busy machine would depend on other tests
    # Inductor sets it when it is imported: else it would depend on the tests before, whether a test finds it set
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(_folder.name, "torchinductor")
    os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "1"  # saves each fresh cache a trial compilation of 7 s
    os.environ["TORCH_DYNAMO_RUN_GC_AFTER_COMPILE"] = "0"  # a search for garbage after each compilation takes 0.3 s
    small_cache.describe()
    compiler_cache.install(_folder.name, str(ROOT / ".pytest_cache" / "compiled"))
SESSION = Path(os.environ["INDUCTOR_BENCH_TESTS"])
"""A folder that all processes of this session of tests share, and that is removed at its end."""
small_cache.shrink()

if importlib.util.find_spec("hypothesis"):  # the GPU tests run without it
    from hypothesis import HealthCheck, settings

    # The examples are the same each time, so that the suite is. `--hypothesis-profile=new` draws many new ones, and
    # prints the decorator that repeats one that fails.
    always = {"deadline": None, "database": None, "print_blob": True}
    slow = (HealthCheck.too_slow,)
    settings.register_profile("same", max_examples=30, derandomize=True, suppress_health_check=slow, **always)
    settings.register_profile("new", max_examples=1_000, suppress_health_check=slow, **always)
    settings.load_profile("same")

SHARERS = {
    **dict.fromkeys(("breakdown_capture", "breakdown_record", "breakdown_targets"), "captures"),
    **dict.fromkeys(("api", "bad_input_received", "extract_values"), "values"),
}
"""Test files that look at the same runs, which one process should make once."""

LONGEST = (
    *("captures", "extract_cpu", "chromium", "cli_kernel", "batch_cli", "breakdown_answer", "pinned_calls"),
    *("steps_observed", "bad_input_program", "bad_input_kernel", "redaction", "guardian", "breakdown_layers"),
    *("variants_tried", "breakdown_stopped", "optimization_search", "entry", "modes_real", "values"),
    *("optimized_files", "batch_overlap", "extract_fixtures", "launch_session", "bad_input_newer", "ray"),
    *("forking_worker", "observe", "warm_compilation", "fuzz", "forking_python", "optimize_real"),
    *("compile_ahead", "compare_real", "bad_input_extract", "module_run", "optimize_run"),
    *("worker_launches", "uncompiled", "mcp", "noted_nodes", "library_variants", "bad_input_full_disk"),
    *("compilation_times", "schemas", "batch_run", "host_sampled", "worker_peaks", "signals", "environment"),
    *("benchmark_step", "launch_process"),
)
"""Groups that take most CPU seconds, or wait for long, longest first. One that began at the end would keep the others
waiting."""

COST = "CPU seconds"
SPENT = pytest.StashKey[float]()
"""The CPU seconds that this process had spent at the end of its last test."""

SLOW = ("torch._inductor", "matplotlib", "ray")
"""Packages that take long to import. Test files import them when a test uses them, see ``late.py``."""

LOADED = pytest.StashKey[list[str]]()
"""Those of them that were imported when the tests were collected."""

Tool = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.hookimpl(tryfirst=True)  # before the groups are looked at
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps each file, and the files and single tests that share runs, in one process. Long groups begin first."""
    for item in items:
        name = item.path.stem.removeprefix("test_")
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(SHARERS.get(name, name)))
    seed = config.getoption("random_order")
    if seed is not None:
        items.sort(key=lambda item: random_place(item, seed))
    elif config.getoption("loadgroup", False):
        places = {group: place for place, group in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(group_of(item), len(places)))


def random_place(item: pytest.Item, seed: int) -> list[float]:
    """Where a seed puts a test. Groups stay together, and so do the tests of a file, which share what is costly."""
    return [random.Random(f"{seed} {name}").random() for name in (group_of(item), item.path.name, item.nodeid)]


def group_of(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    assert marker is not None
    return str(marker.args[0])


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()  # the tests stay to the end, like the modules that they import
    session.config.stash[SPENT] = cpu_seconds()
    session.config.stash[LOADED] = [name for name in SLOW if name in sys.modules]
    if session.config.getoption("loadgroup", False) and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("pytest-xdist keeps no group of tests in one process: see configs/constraints.txt")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", action="store_true", help="sum up the CPU seconds of each test file and its processes")
    parser.addoption(
        "--random-order",
        nargs="?",
        type=int,
        const=random.randrange(1_000_000),
        metavar="SEED",
        help="run the files, and the tests of each file, in an order that a seed decides; the header names it",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.getoption("random_order")
    return None if seed is None else f"random order: repeat it with --random-order={seed}"


@pytest.hookimpl(optionalhook=True)  # pytest-xdist asks it for ``-n auto``
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two for each core, four at most: many tests wait; each process collects all. None for a selection."""
    return 0 if is_selection(config) else min(4, 2 * len(os.sched_getaffinity(0)))


def is_selection(config: pytest.Config) -> bool:
    """Whether few tests are asked for: by ``-k``, as the last failures, or by files and names alone."""
    option = config.option
    by_keyword = option.keyword and not option.keyword.startswith("not ")
    named = config.args_source == pytest.Config.ArgsSource.ARGS
    files = named and all(Path(config.invocation_params.dir, name.split("::")[0]).is_file() for name in config.args)
    return bool(by_keyword or getattr(option, "lf", False) or files)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Passes over files without the one test that ``-k test_NAME`` asks for: reading all files takes 10 s and more."""
    if collection_path.suffix != ".py" or not re.fullmatch(r"test_\w+", config.option.keyword, re.IGNORECASE):
        return None
    texts = (str(collection_path), collection_path.read_text(encoding="utf-8"))
    return None if any(config.option.keyword.lower() in text.lower() for text in texts) else True


def cpu_seconds() -> float:
    """What this process has spent, and the processes that it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if call.when == "teardown":
        before, now = item.config.stash[SPENT], cpu_seconds()
        item.config.stash[SPENT] = now
        report.user_properties.append((COST, now - before))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not config.getoption("costs"):
        return
    costs: Counter[str] = Counter()
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        costs[getattr(report, "fspath", "")] += dict(getattr(report, "user_properties", ())).get(COST, 0)
    for test, spent in forking_python.costs():
        costs[test.partition("::")[0]] += spent
    terminalreporter.section("CPU seconds")
    for name, cost in costs.most_common(40):
        terminalreporter.write_line(f"{cost:7.1f}  {name}")
    terminalreporter.write_line(f"{costs.total():7.1f}  all files; the collection of tests is not in it")


def pytest_configure(config: pytest.Config) -> None:
    config.add_cleanup(end_quickly)  # before it pytest searches what is not frozen five times
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if worker and config.option.markexpr == "gpu":
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(list_gpus())
        os.environ["CUDA_VISIBLE_DEVICES"] = choose_gpu(int(worker), gpus.split(","))


def end_quickly() -> None:
    """Saves the end of a process with torch two seconds of searches. DuckDB would report frozen objects as leaked."""
    (gc.unfreeze if "duckdb" in sys.modules else gc.freeze)()


def list_gpus() -> list[str]:
    """The numbers of this machine's NVIDIA GPUs."""
    return sorted((path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")), key=int)


def choose_gpu(worker: int, gpus: list[str]) -> str:
    """The only GPU that a process of several uses, so that no other process's work is in its times."""
    return gpus[worker % len(gpus)]


@pytest.fixture
def data() -> Path:
    """The folder of recorded modules, traces and texts."""
    return ROOT / "tests" / "data"


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    """Runs ``inductor-bench`` with the given arguments, in a separate folder, without a terminal."""

    def run(*arguments: str | Path, timeout: float = 600, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **variables}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
        return subprocess.run(
            forking_python.forked([sys.executable, "-m", "inductor_bench", *map(str, arguments)], environment),
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


@functools.cache
def import_error(module: str) -> str:
    """The last line of what an interpreter prints that cannot import a module; empty if it can."""
    ended = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, text=True)
    return "" if ended.returncode == 0 else (ended.stderr.splitlines() or [str(ended.returncode)])[-1]


@pytest.fixture
def timm_imports() -> None:
    """Skips the test on a machine whose timm, or the torchvision that it needs, does not import beside its torch."""
    if error := import_error("timm"):
        pytest.skip(f"timm does not import: {error}")


@pytest.fixture
def with_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """For Inductor's C++ templates, which need vectors: those that the processor has, whatever the variable says."""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    if not pick_vec_isa():
        pytest.skip("Inductor has no C++ template for a CPU without vectors")


@pytest.fixture(scope="session")
def gpu_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The RUN of the program that has GPU kernels of every kind, captured once for all tests.

    ``INDUCTOR_BENCH_GPU_RUN`` names one that is there already: it takes five minutes to make.
    """
    path = tmp_path_factory.mktemp("gpu") / "run"
    if (given := os.environ.get("INDUCTOR_BENCH_GPU_RUN")) is not None:
        shutil.copytree(given, path)
        return path
    program = ROOT / "tests" / "programs" / "gpu_kinds.py"
    command = [sys.executable, "-m", "inductor_bench", "breakdown", str(program), "-o", str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return path


@functools.cache
def gpu_is_there() -> bool:
    import torch

    return torch.cuda.is_available()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("corner") and os.environ.get("CI"):
        pytest.skip("takes long and guards a corner: CI has 15 minutes; scripts/test runs it")
    if item.get_closest_marker("gpu") and not gpu_is_there():
        pytest.skip("no CUDA GPU on this machine")
