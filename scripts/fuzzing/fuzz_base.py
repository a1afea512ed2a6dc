"""What is damaged: RUNs, a batch, modules, traces, logs and lists, made once from the files recorded for tests."""

from __future__ import annotations

import gzip
import json
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import retune_fakes
import run_builder
import step_runs

from inductor_bench.records.base import Failure
from inductor_bench.records.batch_record import Batch, BatchModel
from inductor_bench.records.code import Details, Launch, Values
from inductor_bench.records.request import ModelRequest
from inductor_bench.records.retune import Retune
from inductor_bench.records.run import Environment, Host, Versions
from inductor_bench.source.module_reader import read_module
from inductor_bench.source.static_calls import read_static_launches
from inductor_bench.source.structured_trace import read_structured_trace
from inductor_bench.store import codec
from inductor_bench.store.caches import PEAKS_FORMAT, make_peaks_key
from inductor_bench.store.folder import BatchFolder, RunFolder
from inductor_bench.store.run_files import save_code, save_module_details

SECRET = "what only the victim knows 7c1f2ab9"
ENVIRONMENT = Environment(Versions("3.12.3", "2.13.0"), "Linux", Host("a CPU", 2, 2))
PEAKS = f"peaks/{make_peaks_key(ENVIRONMENT, 'cpu')}.json"
RUNS = {
    "cpu": ("cpu_torch2.13/forward.py.gz", "cpu_torch2.13/compiled_module_profile.json.gz", "cpu_torch2.13/structured"),
    "gpu": (
        "h200_torch2.11/samples/attention/module_0.py.gz",
        "h200_torch2.11/samples/attention/trace_0.json.gz",
        "h200_torch2.11/samples/attention/structured",
    ),
}
OBSERVED = "cpu_torch2.13/observed.zip"
"""A RUN with evidence of its program: steps, samples of the host, layers and lines."""
HOSTED = "h200_torch2.11/record_with_host.json.gz"
"""A record with the host's work, layers, lines, predictions with their changes, stretches and clocks."""
LARGE = "h200_torch2.11/mixnet_l_train/forward.trace.json.gz"
LIST = "# models\nresnet18 128\nvit_a 8\nBertForMaskedLM,4\ntimm:convnext_tiny 2\nmodel.py:make 4\nscript.py\n"
YAML = """defaults:
  training: true
  batch_size: 8
models:
  - timm:resnet18
  - target: torchvision:resnet50
    name: second
    batch_size: 4
    amp: bf16
    seed: 3
    timeout: 600
  - {target: 'script.py', args: [--lr, 0.1]}
  - {target: 'model.py:make', dynamic: false}
"""


def build_base(folder: Path, data: Path, run: Callable[[Sequence[str], Path], int]) -> None:
    """Makes the folder. ``run`` is the command, in a folder; its exit code has to be 0."""
    folder.mkdir(parents=True)
    _make_victim(folder / "victim")
    for name, (module, trace, structured) in RUNS.items():
        (folder / f"{name}.py").write_bytes(gzip.decompress((data / module).read_bytes()))
        shutil.copyfile(data / trace, folder / f"{name}.trace.json.gz")
        shutil.copytree(data / structured, folder / f"{name}.structured")
        _make_run(folder, name, run)
    _make_retuned(RunFolder(folder / "retuned"))
    stepped = RunFolder(folder / "stepped")
    stepped.path.mkdir()
    stepped.save(step_runs.host_paced())
    with zipfile.ZipFile(data / OBSERVED) as archive:
        archive.extractall(folder / "observed")
    (folder / "hosted").mkdir()
    (folder / "hosted" / "record.json").write_bytes(gzip.decompress((data / HOSTED).read_bytes()))
    _make_batch(BatchFolder(folder / "batch"))
    shutil.copyfile(data / LARGE, folder / "large.trace.json.gz")
    (folder / "run.log").write_text("starting\nCompiled module path: cpu.py\nhello\nCompiled module path: gpu.py\n")
    (folder / "list.txt").write_text(LIST)
    (folder / "list.yaml").write_text(YAML)
    (folder / "script.py").write_text("print(1)\n")
    (folder / "model.py").write_text("def make():\n    return None, ()\n")
    peaks = {"format": PEAKS_FORMAT, "peaks": codec.encode(run_builder.H200)}
    (folder / "peaks.json").write_text(json.dumps(peaks, indent=2))


def _make_victim(folder: Path) -> None:
    (folder / "folder" / "deep").mkdir(parents=True)
    names = ("secret.txt", "values.safetensors", "record.json", "folder/kernels.csv", "folder/deep/note.md")
    for name in (*names, "folder/0.safetensors", "folder/report.html", "folder/record.json"):
        (folder / name).write_text(f"{name}\n\n{SECRET}\n")


def _make_run(folder: Path, name: str, run: Callable[[Sequence[str], Path], int]) -> None:
    words = ["breakdown", f"{name}.py", "--trace", f"{name}.trace.json.gz", "-o", name, "--no-plots"]
    _require(run(words, folder), words)
    made = RunFolder(folder / name)
    (record,) = made.load().modules
    text = (folder / f"{name}.py").read_text()
    launches = read_static_launches(text, read_module(text))
    save_module_details(made, record.slug, codec.decode(Details, _details(launches, made, record.slug)))
    handles = read_structured_trace(folder / f"{name}.structured").codes[0]
    save_code(made, record.slug, handles)
    again = ["breakdown", name, "--no-plots"]
    _require(run(again, folder), again)
    index = json.loads((made.kernels / "kernels.json").read_text())
    for row in (row for row in index if row["file"]):
        row["values"] = row["file"].replace(".py", ".safetensors")
        (made.kernels / row["values"]).write_bytes(b"recorded values")
    (made.kernels / "kernels.json").write_text(json.dumps(index, indent=2))
    shutil.rmtree(made.path / "tables")
    (loaded,) = made.load().modules
    assert loaded.times.wall_time_s and loaded.peak_memory_bytes, f"the RUN {name} of the base has no wall time"


def _require(code: int, words: Sequence[str]) -> None:
    if code != 0:
        raise RuntimeError(f"the undamaged command ended with {code}: inductor-bench {' '.join(words)}")


def _details(launches: Sequence[Launch], made: RunFolder, slug: str) -> dict[str, Any]:
    """What a process that measured the module would have known: ``recorded`` with a file for each launch."""
    tensor = {
        "shape": [4, 4],
        "dtype": "float32",
        "nan": 0,
        "inf": 0,
        "mean": 0.5,
        "mean_square": 1.5,
        "elements": [1.0],
    }
    references = [{"fingerprint": {"tensors": [tensor]}} for _ in launches]
    recorded = []
    for number, launch in enumerate(launches):
        values = Values("recorded", file=f"{number}.safetensors")
        recorded.append(replace(launch, storages=tuple(replace(one, values=values) for one in launch.storages)))
    return {
        "wall_samples_s": [0.0015 + 0.00001 * (number % 7) for number in range(20)],
        "peak_memory_bytes": 393838592,
        "iterations": 20,
        "marked": False,
        "threads": 2,
        "compiled": {},
        "launches": [codec.encode(launch) for launch in launches],
        "recorded": [codec.encode(launch) for launch in recorded],
        "switches": {"matmul_tf32": False, "cudnn_tf32": True, "cudnn_benchmark": False, "cudnn_deterministic": False},
        "references": references,
        "recorded_references": references,
    }


def _make_retuned(folder: RunFolder) -> None:
    run = retune_fakes.make_run(folder)
    name, kernel_id, category, graph, calls, time_s = retune_fakes.KERNELS[2]
    file = f"kernels/{name}.py"
    found = retune_fakes.retuned(f"{name}.py", "max")
    folder.save(replace(run, retunes=(Retune(name, kernel_id, category, (graph,), calls, time_s, file, "max", found),)))


def _make_batch(folder: BatchFolder) -> None:
    rows = []
    for line, name in enumerate(("one", "two", "bad", "missing"), 1):
        status = {"bad": "failed", "missing": "waiting"}.get(name, "done")
        row = BatchModel(ModelRequest(f"timm:{name}", name=name, line=line, batch_size=8), status, run=f"models/{name}")
        failure = Failure("capture", "program", f"timm has no model {name}", "near names: bat", "a log")
        rows.append(replace(row, failure=failure) if name == "bad" else row)
    folder.run("one").path.mkdir(parents=True)
    folder.run("one").save(run_builder.cpu())
    _make_retuned(folder.run("two"))
    command = "inductor-bench batch suite.txt"
    folder.save(Batch(1, "0.1.0", "2025-01-01T00:00:00+00:00", command, "suite.txt", tuple(rows)))
