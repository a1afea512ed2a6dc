"""What ``apply --verify`` finds if nothing is changed, and whether edited files that nobody edited are taken.

``python scripts/benchmark_apply.py [--edits] [--times N] [--within S] [--output FOLDER] [PROGRAM...]``, where PROGRAM
is a file of ``scripts/programs`` without ``.py`` (``changed``). Each is broken down once and then compared with itself
``--times`` times. No difference may be found.

Without ``--edits``, one kernel is retuned, and the record says that nothing won. With ``--edits``, each Triton and C++
kernel of the RUN is written to a file as ``kernel RUN#NAME --edit`` does, and all files are put into the program as
they are. ``files`` counts the files of the kernels that have a source, ``taken`` those that the program ran, and
``equal`` says whether outputs and gradients differ by no more than those of the program from run to run; it is empty if
whole processes were compared. ``proof_s`` is the seconds of the command.

``FOLDER`` gets ``table.json`` and each comparison. ``--within`` limits everything. ``SMALL=1`` makes the programs small
enough for a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from inductor_bench import units
from inductor_bench.errors import InductorBenchError
from inductor_bench.records.retune import SAVES, SLOWER, Retune, Saving
from inductor_bench.store import codec
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows.kernels.edit_files import write_edit

ROOT = Path(__file__).resolve().parent.parent
STEPS = "1000000"
"""Steps of a program that is ended once its steps are compared."""

LEAST_S = 20.0
"""Seconds that must be left for a command to be started."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", default=["changed"])
    parser.add_argument("--edits", action="store_true", help="puts all kernels in as files that nobody edited")
    parser.add_argument("--times", type=int, default=10, help="comparisons of each program with itself (10)")
    parser.add_argument("--within", type=float, default=3600.0, help="seconds for everything")
    parser.add_argument("--output", type=Path, default=Path("runs/apply"), help="the folder for the results")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    end_s = time.monotonic() + options.within
    rows = []
    for name in options.programs:
        rows += compare(name, options, end_s)
        (options.output / "table.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    same = [row for row in rows if row["same"]]
    print(f"{len(same)} of {len(rows)} without a difference")
    if options.edits:
        by_program = {row["program"]: row for row in rows}.values()
        taken, files = (sum(row[key] for row in by_program) for key in ("taken", "files"))
        equal = [row["equal"] for row in rows if row["equal"] is not None]
        print(f"{taken} of {files} files taken; outputs equal in {sum(equal)} of {len(equal)} comparisons")
    return 0 if rows and len(same) == len(rows) else 1


def compare(name: str, options: argparse.Namespace, end_s: float) -> Iterator[dict[str, Any]]:
    """Compares a program with itself; yields a row for each comparison, and prints it."""
    program, run = str(ROOT / "scripts" / "programs" / f"{name}.py"), options.output / name
    retune = () if options.edits else ("--autotune", "coordesc", "--top", "1", "--no-verify", "--remeasure")
    words = ["breakdown", *retune, "--stop", "--no-plots", "--force", "-o", str(run), "--", sys.executable, program]
    if (failed := call(words, end_s).stderr) and not (run / "record.json").exists():
        print(f"{name}: no RUN: {failed[-600:]}", flush=True)
        return
    folder = RunFolder(run)
    files, refused = write_edits(folder) if options.edits else ([], [])
    for kernel, reason in refused:
        print(f"{name}: {kernel} has no file: {reason}", flush=True)
    if not options.edits:
        pin_nothing(folder)
    edits = [word for file in files for word in ("--kernel", str(file))]
    words = ["apply", str(run), *edits, "--verify", "--stop", "--format", "json", "--", sys.executable, program]
    for number in range(1, options.times + 1):
        begin_s = time.monotonic()
        ended = call(words, end_s)
        output = options.output / f"{name}-{number}.json"
        output.write_text(ended.stdout or ended.stderr, encoding="utf-8")
        try:
            found = json.loads(ended.stdout)["verification"]
        except (ValueError, KeyError):
            print(f"{name}: {ended.stderr.strip()[-600:]}", flush=True)
            return
        row = row_of(found) | {
            "program": name,
            "files": len(files) + len(refused),
            "proof_s": time.monotonic() - begin_s,
        }
        print(f"{name} {number:2}  {row['words']}", flush=True)
        yield row


def call(words: Sequence[str], end_s: float, steps: str = STEPS) -> subprocess.CompletedProcess[str]:
    """Runs the tool within the time that is left."""
    return run_within([sys.executable, "-m", "inductor_bench", *words], end_s, steps)


def run_within(command: Sequence[str], end_s: float, steps: str) -> subprocess.CompletedProcess[str]:
    """Runs a command, whose program makes so many steps, within the time that is left."""
    left_s = end_s - time.monotonic()
    if left_s < LEAST_S:
        return subprocess.CompletedProcess(command, 1, "", "no time was left")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {"STEPS": steps, **os.environ, "PYTHONPATH": path}
    try:
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=left_s
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", "no time was left")


def write_edits(folder: RunFolder) -> tuple[list[Path], list[tuple[str, str]]]:
    """Writes each kernel that has a source to a file. Returns the files, and why a kernel has none."""
    names = {
        kernel.kernel_id: Path(kernel.file).stem if kernel.file else kernel.name
        for module in folder.load().modules
        for kernel in module.kernels
        if kernel.kernel_id and kernel.calls and kernel.name.startswith(("triton_", "cpp_"))
    }
    place = folder.path / "unedited"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    files, refused = [], []
    for kernel_id, name in names.items():
        file = place / f"{name}-{kernel_id[:12]}.py"
        try:
            write_edit(f"{folder.path}#{name}", file)
            files.append(file)
        except InductorBenchError as error:
            refused.append((name, error.message))
    return files, refused


def row_of(found: dict[str, Any]) -> dict[str, Any]:
    """A comparison in a row of the table."""
    savings = {name: codec.decode(Saving, found[name]) for name in ("step", "device") if found[name]}
    words = [
        f"{name} {units.seconds(one.own_s)}, saves {1e6 * one.saving_s:+.2f} µs "
        f"({1e6 * one.low_s:+.2f} to {1e6 * one.high_s:+.2f}), {one.verdict}"
        for name, one in savings.items()
    ]
    outputs = found.get("outputs") or {}
    states = [kernel["state"] for kernel in found.get("kernels") or ()]
    return {
        "same": bool(savings) and not any(one.verdict in (SAVES, SLOWER) for one in savings.values()),
        "taken": states.count("pinned"),
        "equal": outputs["difference"] <= outputs["own_difference"] if outputs.get("tensors") else None,
        "verdicts": {name: one.verdict for name, one in savings.items()},
        "difference": outputs.get("difference"),
        "reasons": sorted({kernel.get("reason") or "" for kernel in found.get("kernels") or ()} - {""}),
        "words": "; ".join(words),
    }


def pin_nothing(folder: RunFolder) -> None:
    """Makes the record say that no retune won."""
    run = folder.load()
    folder.save(replace(run, retunes=tuple(map(_as_it_was, run.retunes)), verification=None))


def _as_it_was(retune: Retune) -> Retune:
    kernel = retune.kernel
    if kernel is None or kernel.tuning is None:
        return retune
    return replace(retune, kernel=replace(kernel, tuning=replace(kernel.tuning, verdict="same", speedup=1.0)))


if __name__ == "__main__":
    sys.exit(main())
