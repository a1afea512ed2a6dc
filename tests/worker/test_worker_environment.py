"""What a record says about the machine, checked against the machine."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from conftest import ROOT

from inductor_bench.messages.observed import CAPTURE_FOLDER
from inductor_bench.records.run import Environment
from inductor_bench.store import codec
from inductor_bench.worker.device import machine
from inductor_bench.worker.device.machine import count_usable_cpus, find_vector_isa
from inductor_bench.worker.device.runtimes import VARIABLES, describe_environment
from inductor_bench.worker.fast_start import without_collection
from inductor_bench.worker.upstream.observing import VARIABLE, WAITS, detaching_cupti


def test_the_environment_is_this_machines() -> None:
    found = describe_environment()
    assert found.versions.python == ".".join(map(str, sys.version_info[:3]))
    assert found.versions.torch == torch.__version__
    assert found.host.threads == torch.get_num_threads()
    assert 1 <= found.host.cpu_count <= (os.cpu_count() or 1)
    assert found.host.cpu and found.platform
    assert found.host.memory_bytes is None or found.host.memory_bytes > 100 << 20
    assert (found.device.accelerator is None) == (found.device.accelerator_count == 0)
    assert codec.decode(Environment, codec.encode(found)) == found


def test_only_listed_variables_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/home/somebody/cache")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    variables = describe_environment().variables
    assert variables["TORCHINDUCTOR_MAX_AUTOTUNE"] == "1"
    assert set(variables) <= set(VARIABLES)
    assert "OMP_NUM_THREADS" not in variables
    assert "hunter2" not in str(describe_environment())
    assert not [name for name in VARIABLES if name.endswith(("_DIR", "_PATH", "_KEY", "_TOKEN"))]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no processor affinity on this system")
def test_processors_are_those_that_the_process_may_use() -> None:
    allowed = os.sched_getaffinity(0)
    one = min(allowed)
    try:
        os.sched_setaffinity(0, {one})
        assert count_usable_cpus() == (one,)
        assert describe_environment().host.cpu_count == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_the_vector_isa_follows_the_variable_that_limits_it() -> None:
    script = "from inductor_bench.worker.device.machine import find_vector_isa; print(find_vector_isa())"
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["default"]
    assert find_vector_isa() == torch.backends.cpu.get_cpu_capability().lower()


def test_describing_compiles_nothing() -> None:
    start = time.process_time()
    describe_environment()
    assert time.process_time() - start < 2.0


def test_missing_tools_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert machine._make_smi_driver() is None
    assert machine.run_for_output("lscpu") == ""
    assert machine.read_cpu_name()


# Imports without the garbage collector.


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_paused_and_then_as_it_was(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(ImportError), without_collection():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


# Bytecode of workers: kept in the tool's cache only if the interpreter keeps none.


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from inductor_bench.worker.fast_start import keep_bytecode
keep_bytecode("packaged")
import packaged.part
import os
print(sys.pycache_prefix, sys.dont_write_bytecode, os.environ.get("PYTHONDONTWRITEBYTECODE"))
print(packaged.part.__cached__)
"""


def run(folder: Path, *, writes: bool) -> tuple[list[str], Path]:
    """The state of a process that imports ``packaged``, and the cache of its tool."""
    package, cache = folder / "site" / "packaged", folder / "cache"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("VALUE = 1\n")
    environment = {**os.environ, "INDUCTOR_BENCH_CACHE": str(cache)}
    environment.pop("PYTHONPYCACHEPREFIX", None)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if not writes:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [sys.executable, "-c", PROGRAM, str(package.parent)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return ended.stdout.split("\n"), cache


def test_bytecode_is_kept_in_the_cache_if_none_is_written(tmp_path: Path) -> None:
    (state, cached, _), cache = run(tmp_path, writes=False)
    assert state == f"{cache / 'bytecode'} False None"
    assert Path(cached).is_file() and Path(cached).is_relative_to(cache / "bytecode")
    assert not (tmp_path / "site" / "packaged" / "__pycache__").exists()


def test_where_bytecode_is_written_nothing_changes(tmp_path: Path) -> None:
    (state, cached, _), cache = run(tmp_path, writes=True)
    assert state == "None False None" and not cache.exists()
    assert Path(cached).is_file() and Path(cached).parent == tmp_path / "site" / "packaged" / "__pycache__"


def test_bytecode_that_is_there_is_used(tmp_path: Path) -> None:
    run(tmp_path, writes=True)
    (state, *_), cache = run(tmp_path, writes=False)
    assert state == "None True 1" and not cache.exists()


def test_a_cache_that_cannot_be_the_users_own_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cache" / "bytecode").symlink_to(tmp_path / "elsewhere")
    (state, *_), _ = run(tmp_path, writes=False)
    assert state == "None True 1" and not any((tmp_path / "elsewhere").iterdir())


def test_others_cannot_write_the_cache(tmp_path: Path) -> None:
    (tmp_path / "cache" / "bytecode").mkdir(parents=True)
    (tmp_path / "cache" / "bytecode").chmod(0o777)
    _, cache = run(tmp_path, writes=False)
    assert (cache / "bytecode").stat().st_mode & 0o022 == 0


def test_a_missing_package_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from inductor_bench.worker import fast_start

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = sys.pycache_prefix
    fast_start.keep_bytecode("no_such_package")
    assert importlib.util.find_spec("no_such_package") is None
    assert (sys.pycache_prefix, sys.dont_write_bytecode) == (before, True)


@pytest.mark.parametrize("writes", [True, False])
def test_an_observed_program_keeps_its_bytecode_in_the_cache_if_it_writes_none(tmp_path: Path, writes: bool) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("VALUE = 1\n")
    site = ROOT / "inductor_bench" / "worker" / "capture" / "site"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {
        "PYTHONPATH": os.pathsep.join(map(str, (site, tmp_path, ROOT))),
        CAPTURE_FOLDER: str(tmp_path),
        "INDUCTOR_BENCH_CACHE": str(tmp_path / "cache"),
    }
    if not writes:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [sys.executable, "-c", "import sys; import torch; print(torch.__cached__)"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    kept = tmp_path / "torch" / "__pycache__" if writes else tmp_path / "cache" / "bytecode"
    assert Path(ended.stdout.strip()).is_relative_to(kept) and Path(ended.stdout.strip()).is_file()


# When CUPTI is detached after a profile.


@pytest.mark.parametrize(
    ("cuda", "is_used", "within"),
    [("12.8", True, "1"), ("13.0", True, "1"), ("12.4", True, None), ("13.0", False, None)],
)
@pytest.mark.parametrize("fails", [False, True])
def test_the_variable_is_set_only_while_cupti_is_detached(
    monkeypatch: pytest.MonkeyPatch, cuda: str, within: str | None, *, is_used: bool, fails: bool
) -> None:
    synchronize = Mock()
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: is_used)
    monkeypatch.delenv(VARIABLE, raising=False)
    try:
        with detaching_cupti():
            assert os.environ.get(VARIABLE) == within
            if fails:
                raise RuntimeError("the profiler failed")
    except RuntimeError:
        assert fails
    assert VARIABLE not in os.environ
    assert synchronize.call_count == (WAITS if within and not fails else 0)


def test_the_programs_own_choice_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setenv(VARIABLE, "0")
    with detaching_cupti():
        assert os.environ[VARIABLE] == "0"
    assert os.environ[VARIABLE] == "0"
