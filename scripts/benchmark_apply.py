"""What ``apply --verify`` finds if nothing is pinned: ``python scripts/benchmark_apply.py [PROGRAM]``.

PROGRAM is a file of ``scripts/programs`` (``changed.py``). One of its kernels is retuned, the record says that nothing
won, and the program is compared with itself, ``--times`` times. No difference may be found.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from inductor_bench import units
from inductor_bench.records.retune import SAVES, SLOWER, Retune, Saving
from inductor_bench.store import codec
from inductor_bench.store.folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
STEPS = "100000"
"""Steps of a program that is ended once its steps are compared."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default="changed.py")
    parser.add_argument("--times", type=int, default=10, help="comparisons of the program with itself (10)")
    options = parser.parse_args()
    program = str(ROOT / "scripts" / "programs" / options.program)
    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        retune = ("--autotune", "coordesc", "--top", "1", "--no-verify", "--remeasure")
        call("breakdown", *retune, "--stop", "--no-plots", "-o", str(run), program)
        pin_nothing(RunFolder(run))
        results = list(compare(run, program, options.times))
    print(f"{sum(results)} of {len(results)} without a difference")
    return 0 if all(results) else 1


def call(*words: str) -> str:
    """Runs the tool, and returns what it prints."""
    command = [sys.executable, "-m", "inductor_bench", *words]
    environment = {"STEPS": STEPS, **os.environ}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def pin_nothing(folder: RunFolder) -> None:
    """Makes the record say that no retune won."""
    run = folder.load()
    folder.save(replace(run, retunes=tuple(map(_as_it_was, run.retunes)), verification=None))


def _as_it_was(retune: Retune) -> Retune:
    kernel = retune.kernel
    if kernel is None or kernel.tuning is None:
        return retune
    return replace(retune, kernel=replace(kernel, tuning=replace(kernel.tuning, verdict="same", speedup=1.0)))


def compare(run: Path, program: str, times: int) -> Iterator[bool]:
    """Compares the program with itself; yields whether no difference was found."""
    for number in range(1, times + 1):
        printed = call("apply", str(run), "--verify", "--stop", "--format", "json", "--", sys.executable, program)
        found = json.loads(printed)["verification"]
        savings = {name: codec.decode(Saving, found[name]) for name in ("step", "device") if found[name]}
        words = [
            f"{name} {units.seconds(one.own_s)}, saves {1e6 * one.saving_s:+.2f} µs "
            f"({1e6 * one.low_s:+.2f} to {1e6 * one.high_s:+.2f}), {one.verdict}"
            for name, one in savings.items()
        ]
        print(f"{number:2}  {'; '.join(words)}", flush=True)
        yield bool(savings) and not any(one.verdict in (SAVES, SLOWER) for one in savings.values())


if __name__ == "__main__":
    sys.exit(main())
