"""A program whose host sleeps in each step: the samples name the function and the line, in all that a RUN holds."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path

import breakdown_runs as runs
import pytest

from inductor_bench.store.folder import RunFolder, remove_run
from inductor_bench.store.run_files import HOST

pytestmark = pytest.mark.slow

PROGRAM = """\
import time, torch, inductor_bench

def pause(api_key):
    time.sleep(len(api_key) / 2e3)

torch.set_num_threads(1)
step = torch.compile(lambda values: torch.relu(values @ values).sum())
values = torch.rand(64, 64)
for _ in range(1200):
    step(values)
    pause("S3CRET-of-line")
    inductor_bench.step()
"""


@functools.cache
def sampled(*options: str) -> runs.Done:
    script = runs.scratch() / "sleeps.py"
    script.write_text(PROGRAM)
    folder = runs.scratch() / f"sleeps-{len(options)}"
    return runs.breakdown(folder, script, "--stop", *options, "--", "--api-key", "S3CRET-of-line")


def test_the_samples_name_the_line_that_sleeps() -> None:
    done = sampled()
    program = done.record["program"]
    host = program["host"]
    assert host["steps"] > 0 and host["blocks"] > 0 and host["every"] >= host["samples"] > 0
    assert host["cost_low"] <= host["cost"] <= host["cost_high"]
    assert sum(part["share"] for part in program["parts"]) == pytest.approx(1.0)
    text = json.dumps(json.loads((done.folder / "evidence.json").read_text()))
    assert "S3CRET" not in text and "time.sleep" in text
    if not host["stretches"]:
        pytest.skip("the machine was too busy for enough samples")
    most = host["stretches"][0]
    assert (most["label"], most["function"]) == ("sleeping", "time.sleep")
    assert (most["source"]["line"], most["source"]["function"]) == (4, "pause")
    assert any(part["function"] == "time.sleep" for part in program["parts"])
    assert "time.sleep at" in done.printed and "further steps" in done.printed


def test_a_run_has_the_stacks_for_speedscope_and_a_flame_graph() -> None:
    done = sampled()
    trace = json.loads((done.folder / HOST).read_text())
    assert "pause" in {frame["name"] for frame in trace["shared"]["frames"]}
    assert all(len(one["samples"]) == len(one["weights"]) for one in trace["profiles"])
    page = (done.folder / "report.html").read_text()
    assert 'class="scroller flame"' in page and "S3CRET" not in page


def test_a_run_goes_with_all_of_its_files(tmp_path: Path) -> None:
    copy = RunFolder(shutil.copytree(sampled().folder, tmp_path / "run"))
    remove_run(copy)
    assert not copy.path.exists()


def test_nothing_is_sampled_if_that_is_not_wanted() -> None:
    done = sampled("--no-samples")
    assert done.record["program"]["host"] is None and not (done.folder / HOST).exists()
