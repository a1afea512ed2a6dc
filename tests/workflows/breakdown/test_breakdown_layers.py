"""The device time of a real program by layer and by line, compiled anew and taken from the cache. On a CPU."""

from __future__ import annotations

import csv
import functools
import io
import math
from typing import Any

import breakdown_runs as runs
import pytest
from documented import documented

pytestmark = pytest.mark.slow

NAMES = ("norm", "feed", "feed.up", "feed.down")


@functools.cache
def done() -> runs.Done:
    words = documented("inductor-bench breakdown train.py --by layer", {"train.py": runs.PROGRAMS / "layers.py"})
    return runs.breakdown(runs.scratch() / "layers", *words[1:])


def rows_of(run: runs.Done, key: str = "layers") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run.record["program"][key]
    return found


def test_the_layers_add_up_to_the_graphs_of_the_step() -> None:
    program = done().record["program"]
    for key in ("layers", "lines"):
        for kind in ("graph", "eager", "optimizer"):
            parts_s = sum(part["time_s"] for part in program["parts"] if part["kind"] == kind)
            rows_s = sum(row["time_s"] for row in program[key] if row["kind"] == kind)
            assert rows_s == pytest.approx(parts_s, rel=0.01)


def test_each_layer_has_its_directions_and_its_flops() -> None:
    found = {(row["layer"], row["direction"]): row for row in rows_of(done()) if row["kind"] == "graph"}
    for number in range(2):
        for name in NAMES:
            for direction in ("forward", "backward"):
                assert found[f"Net.layers.{number}.{name}", direction]["time_s"] > 0
    again = {layer for layer, direction in found if direction == "recomputed"}
    assert {"Net.layers.1.feed.up", "Net.layers.1.feed"} <= again and "Net.layers.0.feed.up" not in again
    up, product = "Net.layers.0.feed.up", 2 * 256 * 128 * 512
    assert found[up, "forward"]["flops"] == product and found[up, "backward"]["flops"] == 2 * product
    assert found["Net.layers.1.feed.up", "recomputed"]["flops"] == product
    assert ("Net.head", "backward") in found and ("Net", "forward") in found, "and what the model itself does"


def test_all_kernels_have_a_module() -> None:
    for module in done().record["modules"]:
        for kernel in module["kernels"]:
            assert kernel["layers"] and all(layer.startswith("Net") for layer in kernel["layers"]), kernel["name"]


def show(*words: str) -> str:
    folder = done().folder
    shown = runs.run(runs.command("report", folder, "--no-plots", *words), folder)
    assert shown.code == 0, shown.stderr
    return shown.stdout


def test_the_screen_shows_a_tree_of_layers() -> None:
    text = done().stdout
    assert "Time by layer" in text and "Kernels" not in text
    assert "\n· layers" in text and "· · feed" in text
    assert "of the time of graphs' kernels has a module" in " ".join(text.split())


def test_the_screen_shows_the_lines_of_the_program() -> None:
    text = show("--by", "line")
    assert "Time by line" in text and "layers.py" in text and "return self.down(" in text


def test_tables_have_every_layer_and_line() -> None:
    layers = list(csv.DictReader(io.StringIO(show("--by", "layer", "--format", "csv"))))
    rows = rows_of(done())
    assert [row["layer"] for row in layers] == [row["layer"] for row in rows]
    assert math.fsum(float(row["time_s"]) for row in layers) == pytest.approx(sum(row["time_s"] for row in rows))
    assert {row["class"] for row in layers} >= {"Linear", "LayerNorm", "Feed"}
    lines = list(csv.DictReader((done().folder / "tables" / "lines.csv").open()))
    assert {row["function"] for row in lines if row["kind"] == "graph"} >= {"forward"}


def test_the_page_has_an_icicle() -> None:
    page = show("--format", "html")
    assert "Time by layer" in page and "Time by line" in page
    assert 'class="lane-name">step<' in page and "feed" in page
