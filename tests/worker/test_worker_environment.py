"""What a record says about the machine, checked against the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
import torch

from inductor_bench.records.run import Environment
from inductor_bench.store import codec
from inductor_bench.worker.device import machine
from inductor_bench.worker.device.machine import count_usable_cpus, find_vector_isa
from inductor_bench.worker.device.runtimes import VARIABLES, describe_environment


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
