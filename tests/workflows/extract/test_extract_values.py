"""Recorded values: what the kernels really read stands beside their files, and these run and agree with it."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import breakdown_runs
import forking_python
import pytest
import torch
from breakdown_runs import PROGRAMS

from inductor_bench import units
from inductor_bench.errors import InductorBenchError
from inductor_bench.records.code import Complaint, Launch
from inductor_bench.source.harness import common as harness
from inductor_bench.store import codec
from inductor_bench.worker.profile import module_run
from inductor_bench.worker.profile.module_run import FlatTensor, write_tensors
from inductor_bench.worker.profile.recorder import watch_launches

sys.path.insert(0, str(PROGRAMS))
from real_values import counted, rows

LARGE = torch.arange(1000.0).view(50, 20)


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file, read by its specification."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0
    header = json.loads(data[8 : 8 + length])
    body, found, end = data[8 + length :], {}, 0
    dtypes = {"F32": torch.float32, "I64": torch.int64, "U8": torch.uint8, "BF16": torch.bfloat16}
    for name, facts in header.items():
        begin, end = facts["data_offsets"]
        dtype = dtypes[facts["dtype"]]
        found[name] = torch.frombuffer(bytearray(body[begin:end]), dtype=dtype).view(facts["shape"])
    assert end == len(body)
    return found


def flat(dtype: str, itemsize: int, *pieces: bytes) -> FlatTensor:
    return FlatTensor(dtype, itemsize, sum(map(len, pieces)), pieces)


def test_a_file_of_tensors_is_as_the_format_says(tmp_path: Path) -> None:
    numbers = torch.tensor([1.5, -2.0]).numpy().tobytes()
    unknown = flat("complex64", 8, bytes(16))
    write_tensors(tmp_path / "x.safetensors", {"a": flat("float32", 4, numbers[:3], numbers[3:]), "b": unknown})
    found = read_tensors(tmp_path / "x.safetensors")
    assert found["a"].tolist() == [1.5, -2.0]
    assert found["b"].dtype == torch.uint8 and found["b"].shape == (16,)


@pytest.mark.parametrize(
    ("raised", "seen"), [(OSError(28, "No space left"), InductorBenchError), (ValueError(), ValueError)]
)
def test_a_file_that_cannot_be_finished_is_not_there(tmp_path: Path, raised: Exception, seen: type[Exception]) -> None:
    def pieces() -> Iterator[bytes]:
        yield bytes(100)
        raise raised

    with pytest.raises(seen):
        write_tensors(tmp_path / "x.safetensors", {"a": FlatTensor("uint8", 1, 200, pieces())})
    assert list(tmp_path.iterdir()) == []


def record(run: Any, folder: Path, limit: int = 10**6, **options: Any) -> tuple[tuple[Launch, ...], Complaint | None]:
    return module_run.record_values(ModuleType("compiled"), run, folder, limit, **options)


def test_what_a_launch_writes_is_recorded_as_it_was_before(tmp_path: Path) -> None:
    state = LARGE.clone()
    (launch,), _ = record(lambda: state.add_(1.0), tmp_path)
    assert read_tensors(tmp_path / "0.safetensors")["storage_0"].tolist() == LARGE.flatten().tolist()
    made = harness.build_arguments(codec.encode(launch), "cpu", folder=str(tmp_path))
    assert torch.equal(made.args[0], LARGE) and not torch.equal(state, LARGE)


def test_each_distinct_launch_is_written_once_and_only_if_it_is_wanted(tmp_path: Path) -> None:
    def run() -> None:
        for _ in range(3):
            LARGE.sin()
        LARGE.cos()

    wanted = [launch for launch in watch_launches(ModuleType("compiled"), run) if launch.operator != "aten.sin.default"]
    launches, _ = record(run, tmp_path / "some", wanted=wanted)
    assert [launch.operator for launch in launches] == ["aten.cos.default"]
    record(run, tmp_path / "all")
    assert [len(list((tmp_path / name).iterdir())) for name in ("some", "all")] == [1, 2]


def test_the_largest_storages_are_left_out_above_the_limit(tmp_path: Path) -> None:
    wide = torch.randn(20, 500)
    (launch,), _ = record(lambda: torch.mm(LARGE, wide), tmp_path, LARGE.nbytes)
    assert [storage.values.kind for storage in launch.storages] == ["recorded", "normal"]
    assert list(read_tensors(tmp_path / "0.safetensors")) == ["storage_0"]


def test_many_indices_are_recorded_and_not_drawn_between_their_bounds(tmp_path: Path) -> None:
    index = rows() % 50
    (launch,), _ = record(lambda: torch.index_select(LARGE, 0, index), tmp_path)
    assert [storage.values.kind for storage in launch.storages] == ["recorded", "recorded"]
    assert torch.equal(read_tensors(tmp_path / "0.safetensors")["storage_1"], index)


def test_a_full_disk_ends_the_recording_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = module_run.RESERVED_BYTES + LARGE.nbytes
    monkeypatch.setattr(module_run.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))

    larger = LARGE.repeat(3, 1)

    def run() -> None:
        LARGE.sin()
        larger.cos()
        LARGE.exp()

    launches, error = record(run, tmp_path)
    assert [launch.operator for launch in launches] == ["aten.sin.default"]
    assert error is not None and "the disk is nearly full" in error.message
    assert [file.name for file in tmp_path.iterdir()] == ["0.safetensors"]


@pytest.mark.parametrize(
    ("text", "size"), [("64MB", 64_000_000), ("1.5 gb", 1_500_000_000), ("512KiB", 524_288), ("1000", 1000)]
)
def test_sizes_are_read_as_they_are_typed(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1MB", "1XB", "nan"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        units.parse_size(text)


def extract(*words: str | Path, folder: Path) -> breakdown_runs.Done:
    return breakdown_runs.run(breakdown_runs.command("extract", *words, "-o", folder), folder, **breakdown_runs.forks())


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads((folder / "kernels.json").read_text())}


def recorded_facts(file: Path) -> dict[str, Any]:
    assignments = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.Assign)]
    (facts,) = [node.value for node in assignments if ast.unparse(node.targets[0]) == "RECORDED"]
    return dict(ast.literal_eval(facts))


def run_file(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs a file. That one runs by itself is tested in ``test_extract_cpu.py``."""
    return forking_python.run([str(file), *options])


@pytest.mark.slow
def test_a_run_keeps_what_the_program_had() -> None:
    kernels = breakdown_runs.with_values().folder / "kernels"
    named = rows_of(kernels)
    assert all(row["values"] == Path(row["file"]).stem + ".safetensors" and row["note"] == "" for row in named.values())
    product = next(row for name, row in named.items() if name.startswith("aten_mm"))
    fused = next(row for name, row in named.items() if name.startswith("cpp_fused"))
    state = counted(64, 96).flatten()
    assert any(torch.equal(held, state) for held in read_tensors(kernels / product["values"]).values())
    held = list(read_tensors(kernels / fused["values"]).values())
    for real in (rows(), (2.0 + counted(512, 96)).flatten()):
        assert any(one.dtype == real.dtype and torch.equal(one, real) for one in held)
    assert all(run_file(kernels / row["file"]).returncode == 0 for row in named.values())


@pytest.mark.slow
def test_a_file_without_its_values_says_which_are_missing(tmp_path: Path) -> None:
    kernels = breakdown_runs.with_values().folder / "kernels"
    for name, row in rows_of(kernels).items():
        shutil.copy(kernels / row["file"], tmp_path)
        ended = run_file(tmp_path / row["file"])
        assert ended.returncode == 1
        assert ended.stderr == f"{name}: the file of its recorded values is missing: {tmp_path / row['values']}\n"


@pytest.mark.slow
def test_a_run_is_extracted_with_its_values_or_without(tmp_path: Path) -> None:
    run = breakdown_runs.with_values().folder
    assert extract(run, "--references", "--values", "recorded", folder=tmp_path / "recorded").code == 0
    assert extract(run, "--references", folder=tmp_path / "drawn").code == 0
    recorded, drawn = rows_of(tmp_path / "recorded"), rows_of(tmp_path / "drawn")
    for name, row in recorded.items():
        assert (tmp_path / "recorded" / row["values"]).read_bytes() == (run / "kernels" / row["values"]).read_bytes()
        assert row["kernel_id"] == drawn[name]["kernel_id"]
        facts = [recorded_facts(tmp_path / folder / row["file"]) for folder in ("recorded", "drawn")]
        assert facts[0]["reference"] != facts[1]["reference"]
        assert "safetensors" not in (tmp_path / "drawn" / row["file"]).read_text().split("import")[0]
        # Beside the values nothing differs.
        assert {**facts[0], "launch": None, "reference": None} == {**facts[1], "launch": None, "reference": None}
        assert [run_file(tmp_path / one / row["file"], "--check").returncode for one in ("recorded", "drawn")] == [0, 0]
    assert not list((tmp_path / "drawn").glob("*.safetensors"))


@pytest.mark.slow
def test_a_module_is_run_again_to_record_what_the_chosen_kernels_read(tmp_path: Path) -> None:
    module = breakdown_runs.with_values().folder / "modules" / "step-graph.py"
    words = (module, "--kernel", "cpp_fused*", "--values", "recorded", "--values-limit", "100kB")
    done = extract(*words, folder=tmp_path / "out")
    assert done.code == 0, done.printed
    (row,) = rows_of(tmp_path / "out").values()
    held = read_tensors(tmp_path / "out" / row["values"])
    assert sum(one.nbytes for one in held.values()) <= 100_000
    assert row["note"].endswith("are random") and f"{row['name']}: {row['note']}" in " ".join(done.stdout.split())
    written = {file.name for file in (tmp_path / "out").iterdir()}
    assert written == {"kernels.json", row["file"], row["values"]}
    assert run_file(tmp_path / "out" / row["file"], "--check").returncode == 0


@pytest.mark.slow
def test_what_cannot_be_recorded_is_refused_with_what_to_type(tmp_path: Path) -> None:
    drawn = breakdown_runs.recorded().folder
    module = drawn / "modules" / "forward.py"
    for words, expected in (
        ((drawn, "--values", "recorded"), "holds no recorded values"),
        ((drawn, "--values", "recorded"), "--values recorded"),
        ((drawn, "--values-limit", "1GB"), "add --values recorded"),
        ((drawn, "--values", "recorded", "--values-limit", "1GB"), "remove --values-limit here"),
        ((module, "--values", "recorded", "--static"), "--static runs nothing"),
        ((module, "--values", "recorded", "--values-limit", "lots"), "is not a size"),
    ):
        done = extract(*words, folder=tmp_path / "out")
        assert done.code == 2 and expected in done.stderr, done.printed
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_module_that_is_measured_keeps_what_its_own_inputs_gave(tmp_path: Path) -> None:
    module = breakdown_runs.with_values().folder / "modules" / "step-graph.py"
    done = breakdown_runs.breakdown(tmp_path / "run", module, "--values", "recorded", "--values-limit", "100kB")
    assert done.code == 0, done.printed
    named = rows_of(tmp_path / "run" / "kernels")
    assert any(row["values"] for row in named.values()) and all(row["note"] for row in named.values())
    for row in named.values():
        assert run_file(tmp_path / "run" / "kernels" / row["file"]).returncode == 0
    refused = breakdown_runs.run(breakdown_runs.command("breakdown", done.folder, "--values", "recorded"), done.folder)
    assert refused.code == 2 and "measure it again" in refused.stderr
