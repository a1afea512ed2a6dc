"""Whether the device time by layer adds up, and how much of it has a module, for real programs.

``python scripts/benchmark_layers.py [--output FOLDER] [--limit S] [PROGRAM...]``, where PROGRAM is a file of
``scripts/programs`` without ``.py``, or a target of ``breakdown`` with its options, in quotes: ``"timm:resnet50
--training"``. Without any, all of ``PROGRAMS`` below. ``SMALL=1`` makes the programs small enough for a CPU.

``graphs``     the device time of a step's compiled graphs by the ledger, in ms; on a CPU their part of the step, of
               which the columns of shares leave out what is not in kernels
``sum``        the rows by layer of these graphs, divided by that; 1 if they add up
``module``     the share of the graphs' time that has a module; and that of the forward and of the backward
``lines``      the share that has a line of the program
``again``      the share that computes activities again
``layers``     the number of modules with time of their own
``without``    the kernels without a module that take longest
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from inductor_bench.launch.worker import join_paths
from scripts.benchmark_programs import SEVERAL_RANKS, command_of, environment_of
from scripts.benchmark_step import ROOT

BERT, RESNET = "transformers:BertForMaskedLM --training", "timm:resnet50 --training"
PROGRAMS = (BERT, "decode", RESNET, "graphs", "diffusion", "blocks", "convnet")
SMALL_MODELS = {BERT: f"{BERT} --batch-size 1", RESNET: f"{RESNET} --batch-size 2"}
MOST_WITHOUT = 3
ALL = ("forward", "backward", "recomputed")
ENOUGH = 0.98
"""The share of the graphs' time that should have a module."""

TITLES = ("program", "graphs", "sum", "module", "forward", "backward", "lines", "again", "layers", "without")


def main(words: Sequence[str]) -> int:
    """Measures the programs, prints the table, and returns 1 if one of them does not do."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--output", type=Path, help="a folder for the RUNs; without it they are not kept")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for each program")
    options = parser.parse_args(words)
    rows = []
    print("  ".join(TITLES), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        for place, program in enumerate(options.programs or PROGRAMS):
            folder = (options.output or Path(temporary)) / f"{place}-{program.partition(' ')[0].replace(':', '-')}"
            rows.append(measure(program, folder, options.limit))
            print("  ".join(str(rows[-1].get(title, "")) for title in TITLES), flush=True)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "layers.json").write_text(json.dumps(rows, indent=2))
    good = [row for row in rows if row.get("good")]
    print(f"{len(good)} of {len(rows)} add up and have a module for at least {ENOUGH:.0%} of their graphs' time")
    return 0 if len(good) == len(rows) else 1


def target_of(program: str) -> list[str]:
    """The words after ``breakdown`` for a program."""
    if ":" in program or "." in program:
        return shlex.split(SMALL_MODELS.get(program, program) if os.environ.get("SMALL") else program)
    return ["--", *command_of(program)]


def measure(program: str, folder: Path, limit_s: float) -> dict[str, Any]:
    """Breaks a program down, and says what its record knows of the layers."""
    target = target_of(program)
    split = target.index("--") if "--" in target else len(target)
    options = ["-o", str(folder), "--force", "--no-plots", "--quiet"]
    tool = [sys.executable, "-m", "inductor_bench", "breakdown", *target[:split], *options, *target[split:]]
    path = join_paths(str(ROOT), os.environ.get("PYTHONPATH"))
    variables = environment_of(["-m"] if program in SEVERAL_RANKS else []) | {"PYTHONPATH": path}
    try:
        ended = subprocess.run(tool, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {"program": program, "without": f"not ended after {limit_s:.0f} s"}
    record = folder / "record.json"
    if not record.is_file():
        return {"program": program, "without": ended.stderr.strip()[-300:]}
    return {"program": program} | describe(json.loads(record.read_text()))


def describe(record: dict[str, Any]) -> dict[str, Any]:
    """The row of a record."""
    program = record.get("program") or {}
    rows = [row for row in program.get("layers", ()) if row["kind"] == "graph"]
    parts = [part for part in program.get("parts", ()) if part["kind"] == "graph"]
    whole_s = sum(part["time_s"] if part.get("device_time_s") is None else part["device_time_s"] for part in parts)
    if not whole_s or not rows:
        return {"without": "no step with layers"}

    def share(found: list[dict[str, Any]], *directions: str) -> float | None:
        own = [row for row in found if row.get("direction") in (directions or ALL)]
        time_s = sum(row["time_s"] for row in own)
        return sum(row["time_s"] for row in own if row.get("layer") or row.get("source")) / time_s if time_s else None

    lines = [row for row in program["lines"] if row["kind"] == "graph"]
    again_s = sum(row["time_s"] for row in rows if row.get("direction") == "recomputed")
    kernels = [
        (kernel.get("step_time_s") or 0.0, kernel["name"][:60])
        for module in record["modules"]
        for kernel in module["kernels"]
        if not kernel.get("layers")
    ]
    sums, known = sum(row["time_s"] for row in rows) / whole_s, share(rows)
    return {
        "graphs": f"{whole_s * 1e3:.3f}",
        "sum": f"{sums:.4f}",
        "module": percent(known),
        "forward": percent(share(rows, "forward")),
        "backward": percent(share(rows, "backward", "recomputed")),
        "lines": percent(share(lines)),
        "again": percent(again_s / whole_s),
        "layers": len({row["layer"] for row in rows if row.get("layer")}),
        "without": "; ".join(
            f"{name} {time_s * 1e3:.3f} ms" for time_s, name in sorted(kernels, reverse=True)[:MOST_WITHOUT]
        ),
        "good": known is not None and known >= ENOUGH and abs(sums - 1) < 0.005,
    }


def percent(share: float | None) -> str:
    """A share in words; empty if there is none."""
    return "" if share is None else f"{share:.1%}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
