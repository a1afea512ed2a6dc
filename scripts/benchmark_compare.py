"""What ``compare`` finds if nothing changed, and if one thing did: ``python scripts/benchmark_compare.py``.

The program is ``scripts/programs/changed.py``. It is broken down ``--runs`` times with fresh caches, and every two
runs are compared: no code may differ, and nothing but changed configs may be slower or faster. Then it is broken down
with each change of ``CHANGES``, and compared with the first run: the cause has to be named, and its size be within 20%
of that by the program's own stopwatch, which runs steps with the change and without it in turn: the difference of the
profiler's times of the kernels concerned. The size of ``.item()`` is that of the step, which differs between processes:
the stopwatch's has to lie within the interval.

``--under-load N`` does something else: N comparisons of a small CPU program with itself, ``programs/perceptron.py``,
while 0 to 8 busy processes start and stop at random beside it. None may say that a difference is certain. Each four
fresh runs, A B B A, are compared as ``compare TARGET`` does, and each run of A with each run of B.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from accuracy.load import random_load

import inductor_bench
from inductor_bench.records.comparison import CODE, CONFIG, PRECISION, SLOWER, SPLIT, RunComparison
from inductor_bench.records.run import EAGER, IDLE
from inductor_bench.source.calls import find_kernel_key
from inductor_bench.store.folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "scripts" / "programs" / "changed.py"
SMALL_PROGRAM = ROOT / "scripts" / "programs" / "perceptron.py"
CERTAIN = re.compile(r"certain|surely|reliably|beyond noise|slower|faster|differ beyond", re.IGNORECASE)
"""What a comparison of a program with itself must not say."""
WITHIN = 0.2
"""Largest error of a size, as a share of it."""


@dataclass(frozen=True)
class InjectedChange:
    """A change of the program.

    Attributes:
        variables: the variables of the environment that make it.
        causes: the kinds of the part that it belongs to.
        kernels: a pattern for the names of the kernels that it concerns; empty if its size is that of the step.
    """

    name: str
    variables: Mapping[str, str]
    causes: tuple[str, ...]
    kernels: str = ""


CHANGES = (
    InjectedChange("an eager operator", {"EAGER": "1"}, (EAGER,), "erfinv|MulFunctor"),
    InjectedChange(".item()", {"ITEM": "1"}, (IDLE,)),
    InjectedChange("fusions broken", {"SPLIT": "1"}, (SPLIT, CODE), r"_fused_native_layer_norm_\d+$"),
    InjectedChange("TF32 off in one call", {"TF32": "0"}, (PRECISION,), "gemm|xmma|cutlass|nvjet"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="runs without a change (7, which are 21 pairs)")
    parser.add_argument("--keep", type=Path, help="the folder for the RUNs")
    parser.add_argument("--under-load", type=int, metavar="N", help="N comparisons of a CPU program with itself")
    parser.add_argument("--seed", type=int, help="of that load; drawn, and printed, if it is not given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        if options.under_load:
            return check_under_load(folder, options.under_load, options.seed or random.randrange(1, 1 << 32))
        first = break_down(folder / "run-0", {})
        results = [check_change(folder, first, change) for change in (*CHANGES, make_worse(first))]
        results += check_equals([first, *(break_down(folder / f"run-{n}", {}) for n in range(1, options.runs))])
    return 0 if all(results) else 1


def break_down(run: Path, variables: Mapping[str, str]) -> Path:
    """A RUN of the program; an earlier one in the folder is kept."""
    if not (run / "record.json").is_file():
        words = ["breakdown", "--stop", "--no-plots", "--quiet", "-o", str(run), str(PROGRAM)]
        environment = {**os.environ, "STEPS": "5000", **variables}
        command = [sys.executable, "-m", "inductor_bench", *words]
        subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=False)
    return run


def check_equals(runs: Sequence[Path]) -> list[bool]:
    """Compares every two runs of the unchanged program."""
    results = []
    for first, second in combinations(runs, 2):
        found = inductor_bench.compare(first, second)
        causes = [change.cause for change in found.kernels]
        judged = [f"{part.label or part.cause} {part.verdict}" for part in decided_parts(found)]
        step = f"step {found.step.delta_s * 1e6:+.1f} µs, {found.verdict}"
        good = causes.count(CODE) == 0 and not judged and (found.verdict != "slower" or CONFIG in causes)
        words = f"{causes.count(CONFIG)} configs differ; {step}; {', '.join(judged) or 'no part'}"
        say(f"A/A {first.name} {second.name}", good, words)
        results.append(good)
    return results


def decided_parts(found: RunComparison) -> list[Any]:
    """The parts with a verdict, except changed configs."""
    return [part for part in found.parts if part.cause != CONFIG and part.verdict in ("slower", "faster")]


def check_change(folder: Path, first: Path, change: InjectedChange) -> bool:
    """Compares a run of the changed program with the first one."""
    run = break_down(folder / change.name.replace(" ", "-").strip("."), change.variables)
    found = inductor_bench.compare(first, run)
    parts = [part for part in found.parts if part.cause in change.causes and part.verdict == SLOWER]
    delta_s, step = sum(part.delta_s for part in parts), found.step
    more = stopwatch(change.variables)
    own_s = sum(time_s for name, time_s in more["more_by_kernel_s"].items() if re.search(change.kernels, name))
    is_sized = abs(delta_s - own_s) <= WITHIN * abs(own_s)
    if not change.kernels:
        delta_s, own_s = step.delta_s, more["more_step_s"]
        is_sized = found.verdict == SLOWER and (step.low_s or 0.0) <= own_s <= (step.high_s or 0.0)
    causes = ", ".join(f"{part.label or part.cause} {part.verdict}" for part in parts)
    say(
        change.name,
        bool(parts) and is_sized,
        f"{causes or 'not found'}, {1e6 * delta_s:+.1f} µs; {1e6 * own_s:+.1f} µs",
    )
    return bool(parts) and is_sized


def make_worse(first: Path) -> InjectedChange:
    """The change that gives the most expensive Triton kernel that Inductor's table knows another config."""
    kernels = [kernel for module in RunFolder(first).load().modules for kernel in module.kernels]
    for kernel in sorted(kernels, key=lambda kernel: -(kernel.step_time_s or 0.0)):
        if kernel.name.startswith("triton_poi_fused_") and kernel.file and kernel.compiled.config:
            key = find_kernel_key((first / kernel.file).read_text(encoding="utf-8"))
            blocks = {name: 64 for name in kernel.compiled.config if name.endswith("BLOCK")}
            if key is not None:
                configs = json.dumps({key.key: {**blocks, "num_warps": 1, "num_stages": 1}})
                return InjectedChange("a worse config", {"CONFIGS": configs}, (CONFIG,), f"^{kernel.name}$")
    sys.exit(f"{first} holds no pointwise kernel that Inductor's table knows")


def stopwatch(variables: Mapping[str, str]) -> dict[str, Any]:
    """How much longer a step with the change takes, by the program itself.

    A table of configs holds for a whole process, so that its two sides are two processes.
    """
    if "CONFIGS" in variables:
        own, other = (_stopwatch({"PROFILE": "kernels", **one})["by_kernel_s"] for one in ({}, variables))
        return {"more_by_kernel_s": {name: other.get(name, 0.0) - time_s for name, time_s in own.items()}}
    return _stopwatch({"AGAINST": "1", **variables})


def _stopwatch(variables: Mapping[str, str]) -> dict[str, Any]:
    environment = {**os.environ, "TORCHINDUCTOR_UNIQUE_KERNEL_NAMES": "1", **variables}
    ended = subprocess.run([sys.executable, str(PROGRAM)], env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("stopwatch")]
    if not lines:
        sys.exit(f"{PROGRAM.name} failed:\n{ended.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(lines[-1].split(maxsplit=1)[1])
    return found


def check_under_load(folder: Path, wanted: int, seed: int) -> int:
    """Compares the small program with itself until there are as many comparisons, and counts false verdicts."""
    print(f"seed {seed}", flush=True)
    made = bad = four = 0
    with random_load(seed) as load:
        while made < wanted:
            four, before = four + 1, len(load)
            runs = folder / f"four-{four}"
            if not (runs / "b-2" / "record.json").is_file():
                words = ["compare", "-o", str(runs), "--force", "--runs", "2", str(SMALL_PROGRAM)]
                _command(words)
            for sides in [(runs,), *((runs / a, runs / b) for a in ("a-1", "a-2") for b in ("b-1", "b-2"))][
                : wanted - made
            ]:
                said = _command(["compare", *map(str, sides)])
                false = [line.strip() for line in said.splitlines() if CERTAIN.search(line)]
                made, bad = made + 1, bad + bool(false)
                names = " ".join(str(side.relative_to(folder)) for side in sides)
                say(
                    names, not false, "; ".join(false) or f"load {min(load[before - 1 :])} to {max(load[before - 1 :])}"
                )
    print(f"{made} comparisons of a program with itself, {bad} false verdicts; seed {seed}")
    return 1 if bad else 0


def _command(words: Sequence[str]) -> str:
    """What a command of the tool prints."""
    command = [sys.executable, "-m", "inductor_bench", *words]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "2000"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{ended.stderr[-2000:]}")
    return ended.stdout


def say(name: str, good: bool, words: str) -> None:
    print(f"{name:22} {'good' if good else 'BAD':5} {words}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
