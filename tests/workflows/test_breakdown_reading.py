"""What a breakdown reads: each trace and each module's text once; what comes after works on what is in memory."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from breakdown_runs import H200

from inductor_bench.analysis import evidence_files
from inductor_bench.launch.worker import WorkerPool
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.source import module_reader as source_module
from inductor_bench.source.module_reader import read_header, read_module
from inductor_bench.store.folder import RunFolder, read_index
from inductor_bench.trace.rows import read_trace
from inductor_bench.workflows import breakdown
from inductor_bench.workflows.modules import module_measurements
from inductor_bench.workflows.modules.kernel_files import extract_run
from inductor_bench.workflows.modules.module_measurements import Survey
from inductor_bench.workflows.progress import Silent


def test_a_breakdown_reads_its_trace_and_its_module_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels are written from what is in memory, and are those that the run gives when it is read again."""
    seen: list[str] = []
    monkeypatch.setattr(evidence_files, "read_trace", lambda path: (seen.append("trace"), read_trace(path))[1])
    monkeypatch.setattr(source_module, "read_header", lambda text: (seen.append("module"), read_header(text))[1])
    monkeypatch.setattr(WorkerPool, "get_ready", lambda *_, **__: None)
    monkeypatch.setattr(module_measurements, "take_survey", lambda *_, **__: (read_module.cache_clear(), Survey())[1])
    module = tmp_path / "forward.py"
    module.write_bytes(gzip.decompress((H200 / "gpu_kinds" / "0_forward.py.gz").read_bytes()))
    trace = H200 / "gpu_kinds" / "0_forward.trace.json.gz"
    options = BreakdownRequest(str(module), trace=trace, output=tmp_path / "run", plots=False)
    read_module.cache_clear()
    folder = RunFolder(breakdown.run_breakdown(options, Silent()).folder)
    assert sorted(seen) == ["module", "trace"]
    written = {file.name: file.read_bytes() for file in folder.kernels.iterdir()}
    assert not extract_run(folder).failures and seen.count("trace") == 2
    assert {file.name: file.read_bytes() for file in folder.kernels.iterdir()} == written
    assert any(kernel.time_s for kernel in read_index(folder.kernels))
