"""A RUN that came from somebody else: nothing outside of it is read into a result, moved or written, and what its
record knows is not lost by analysing it again."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import breakdown_runs as runs
import pytest

from inductor_bench.errors import InductorBenchError
from inductor_bench.launch.marks import MARK
from inductor_bench.records.request import BreakdownRequest, ExtractRequest
from inductor_bench.store.folder import RunFolder
from inductor_bench.store.run_files import load_evidence
from inductor_bench.workflows.breakdown import run_breakdown
from inductor_bench.workflows.extract import run_extract
from inductor_bench.workflows.progress import Silent

SECRET = "the text of a victim"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return runs.copy_of(runs.with_values(), f"received-{tmp_path.name}")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim.safetensors"
    path.write_text(SECRET)
    return path


def change(path: Path, edit: Callable[[Any], None]) -> None:
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))


def tool(*words: str | Path, cwd: Path) -> runs.Done:
    return runs.run(runs.command(*words), cwd, cwd=cwd)


def written(folder: Path) -> str:
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []
    return "".join(path.read_text(errors="replace") for path in files)


# Values that lie elsewhere


def record_values_of(run: Path, file: str) -> None:
    """The details of a RUN whose first launch read the values in a file."""

    def edit(details: dict[str, Any]) -> None:
        launch = json.loads(json.dumps(details["launches"][0]))
        launch["storages"][0]["values"] = {"kind": "recorded", "file": file}
        details["recorded"] = [launch]

    change(run / "traces" / "step-graph.details.json", edit)


@pytest.mark.parametrize("how", ["absolute", "above", "link"])
def test_extract_never_moves_or_copies_what_is_not_of_the_run(
    how: str, run: Path, victim: Path, tmp_path: Path
) -> None:
    scratch = run / ".work" / "values" / "step-graph"
    scratch.mkdir(parents=True)
    if how == "link":
        (scratch / "v.safetensors").symlink_to(victim)
    above = os.path.relpath(victim, scratch)
    record_values_of(run, {"absolute": str(victim), "above": above, "link": "v.safetensors"}[how])
    tool("extract", run, "-o", "out", "--values", "recorded", cwd=tmp_path)
    assert victim.read_text() == SECRET and SECRET not in written(tmp_path / "out")


@pytest.mark.parametrize("how", ["absolute", "above", "link"])
def test_the_index_names_no_files_elsewhere(how: str, run: Path, victim: Path, tmp_path: Path) -> None:
    record_values_of(run, "v.safetensors")
    place = {"absolute": str(victim), "above": os.path.relpath(victim, run / "kernels"), "link": "v.safetensors"}[how]
    if how == "link":
        (run / "kernels" / "v.safetensors").symlink_to(victim)

    def edit(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["values"] = place

    change(run / "kernels" / "kernels.json", edit)
    tool("extract", run, "-o", "out", "--values", "recorded", cwd=tmp_path)
    assert victim.read_text() == SECRET and SECRET not in written(tmp_path / "out")


@pytest.mark.parametrize("field", ["trace", "log", "file", "slug"])
@pytest.mark.parametrize("place", ["/etc/passwd", "../../victim", "x/" * 3000 + "y", "a\0b", "n" * 300])
def test_a_record_names_no_files_elsewhere(field: str, place: str, run: Path) -> None:
    change(run / "record.json", lambda record: record["modules"][0].update({field: place}))
    with pytest.raises(InductorBenchError, match=rf"Run\.modules\[0\]\.{field} should be"):
        RunFolder(run).load()


@pytest.mark.parametrize("place", ["/etc/passwd", "../../victim", "a\0b"])
def test_evidence_names_no_files_elsewhere(place: str, run: Path) -> None:
    def edit(seen: dict[str, Any]) -> None:
        for named in (seen["modules"][0]["outputs"], *seen["processes"]):
            named["trace"] = place

    before = RunFolder(run).load()
    change(run / "evidence.json", edit)
    with pytest.raises(InductorBenchError, match=r"modules\[0\]\.outputs\.trace should be a path inside the folder"):
        load_evidence(RunFolder(run), before)
    run_breakdown(BreakdownRequest(str(run), plots=False), Silent())
    after = RunFolder(run).load()
    assert replace(after, failures=()) == replace(before, failures=()) and "is damaged" in after.failures[-1].message


def test_a_report_is_not_written_through_a_link(run: Path, tmp_path: Path) -> None:
    name, victim = "tables", tmp_path / "victim"
    victim.mkdir()
    (victim / "kernels.csv").write_text(SECRET)
    for file in (run / name).glob("*"):
        file.unlink()
    if (run / name).is_dir():
        (run / name).rmdir()
    (run / name).symlink_to(victim)
    said = tool("report", run, cwd=tmp_path)
    assert said.code == 1 and "symbolic link" in said.stderr and "step" in said.stdout
    assert [path.name for path in victim.iterdir()] == ["kernels.csv"] and written(victim) == SECRET


# What a killed command left


@pytest.mark.parametrize("verb", ["analyse", "extract", "measure"])
def test_the_next_command_ends_what_a_killed_one_left(verb: str, run: Path, tmp_path: Path) -> None:
    mark = "0123456789abcdef" * 2
    (tmp_path / "out").mkdir()
    written = run if verb == "analyse" else tmp_path / "out"
    (written / ".lock").write_text(f"999999999 {mark}\n")
    with subprocess.Popen(["sleep", "600"], env={**os.environ, MARK: mark + "f" * 32}) as left:
        if verb == "analyse":
            run_breakdown(BreakdownRequest(str(run), plots=False), Silent())
        elif verb == "extract":
            run_extract(ExtractRequest((str(run),), written), Silent())
        else:
            (tmp_path / "script.py").write_text("print('hello')\n")
            run_breakdown(BreakdownRequest(str(tmp_path / "script.py"), output=written, plots=False), Silent())
        left.wait(600)  # its status may have been collected by who ended it
    assert not (written / ".lock").exists()


def test_a_run_says_until_its_end_that_it_is_not_whole(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import shutil, sys\nshutil.copy('run/record.json', 'meanwhile.json')\nprint(sys.argv[1:])\n")
    words = ["breakdown", "-o", "run", "--no-plots", "--", sys.executable, "script.py", "one"]
    done = tool(*words, cwd=tmp_path)
    meanwhile = json.loads((tmp_path / "meanwhile.json").read_text())["failures"]
    assert [failure["kind"] for failure in meanwhile] == ["unfinished"]
    refused = tool(*words, cwd=tmp_path)
    assert refused.code == 2 and "--force" in refused.printed, "the folder holds the earlier run"
    again = tool(*shlex.split(meanwhile[0]["hint"])[1:], cwd=tmp_path)
    assert again.code == done.code and "['one']" in again.printed, "the program gets its own arguments"
    assert done.code == 1 and [one.kind for one in RunFolder(tmp_path / "run").load().failures] == ["nothing-compiled"]


# Records that must not get worse


def without(name: str) -> Callable[[Path], None]:
    return lambda run: (run / name).unlink()


def detail(name: str, value: object) -> Callable[[Path], None]:
    return lambda run: change(run / "traces" / "step-graph.details.json", lambda details: details.update({name: value}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (detail("peak_memory_bytes", 1.5), "peak_memory_bytes should be a whole number"),
        (detail("wall_samples_s", [1e308, 1e308]), "wall_samples_s[0] should be a number that can be measured"),
        (detail("wall_samples_s", []), "wall times"),
        (detail("launches", {}), "launches should be a list"),
        (detail("compiled", {"k": {"config": {"XBLOCK": 8}, "registers": "many"}}), "compiled.k.registers should be"),
        (without("traces/step-graph.details.json"), "wall times, peak memory"),
        (without("evidence.json"), "FLOPs"),
        (lambda run: change(run / "evidence.json", lambda seen: seen.pop("costs")), "FLOPs"),
        (without("modules/step-graph.provenance.json"), "source lines"),
        (without("modules/step-graph.py"), "step-graph.py is gone"),
        (without("traces/step-graph.trace.json.gz"), "step-graph.trace.json.gz is gone"),
        (lambda run: (run / "evidence.json").write_text('{"modules": [{"slug": 3}]}'), "evidence.json is damaged"),
        (lambda run: (run / "modules" / "step-graph.provenance.json").write_text('{"a": 3}'), "provenance.json"),
    ],
)
def test_a_good_record_is_not_replaced_by_a_worse_one(damage: Callable[[Path], None], said: str, run: Path) -> None:
    before = RunFolder(run).load()
    damage(run)
    done = run_breakdown(BreakdownRequest(str(run), plots=False), Silent())
    after = RunFolder(run).load()
    assert after == done.run and said in " ".join(failure.message for failure in after.failures)
    assert after.modules[0] == before.modules[0]
