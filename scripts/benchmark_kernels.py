"""Runs every standalone file of a RUN in one process: does it run, do its outputs agree, is its time that in the model?

``python scripts/benchmark_kernels.py RUN [RUN…] [--at-least SECONDS]``. A file's own cold and warm times bracket its
time in the model, ± 5%, where the file is faithful; that is asked of kernels of 10 µs and more.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import sys
import traceback
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

SLACK = 0.05


@dataclass
class Outcome:
    """What became of one file. Times are seconds per launch."""

    file: str
    category: str
    ran: bool = False
    agreed: bool | None = None
    why: str = ""
    in_model_s: float | None = None
    weight_s: float = 0.0
    cold_s: float | None = None
    warm_s: float | None = None

    @property
    def inside(self) -> bool | None:
        if self.cold_s is None or self.warm_s is None or self.in_model_s is None:
            return None
        low, high = sorted((self.cold_s, self.warm_s))
        return low * (1 - SLACK) <= self.in_model_s <= high * (1 + SLACK)


def import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"standalone_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def measure(module: ModuleType) -> dict[str, Any]:
    arguments = module.make_arguments()
    if hasattr(module, "FILE"):
        return module.FILE.measure(arguments)
    if hasattr(module, "OPERATOR"):
        timer = module.measure_cuda if module.OPERATOR.device == "cuda" else module.measure_cpu
        return timer(module.OPERATOR.launch, arguments, module.OPERATOR.bind)
    return module.measure_cpu(module.KERNEL.launch, arguments, module.KERNEL.bind)


def try_file(path: Path, row: dict[str, Any], at_least: float) -> Outcome:
    outcome = Outcome(path.name, row["category"])
    try:
        module = import_file(path)
        outcome.agreed, outcome.why = module.check()
        outcome.ran = True
        recorded = module.RECORDED
        if recorded.get("time_s") and recorded.get("calls"):
            outcome.weight_s = recorded["time_s"]
            outcome.in_model_s = recorded["time_s"] / recorded["calls"]
        if outcome.in_model_s is not None and outcome.in_model_s >= at_least:
            timing = measure(module)
            outcome.cold_s, outcome.warm_s = timing["cold"]["median_s"], timing["warm"]["median_s"]
    except Exception as error:
        traceback.print_exc()
        outcome.why = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    finally:
        sys.modules.pop(f"standalone_{path.stem}", None)
        gc.collect()
    return outcome


def run_folder(folder: Path, at_least: float) -> list[Outcome]:
    rows = json.loads((folder / "kernels" / "kernels.json").read_text())
    for row in rows:
        if row["reason"]:
            print(f"no file: {row['name'][:60]}: {row['reason']}")
    files = {row["file"]: row for row in rows if row["file"]}
    return [try_file(folder / "kernels" / name, row, at_least) for name, row in files.items()]


def print_summary(name: str, outcomes: list[Outcome]) -> None:
    print(f"\n{name}: {len(outcomes)} files")
    total = Counter(outcome.category for outcome in outcomes)
    ran = Counter(outcome.category for outcome in outcomes if outcome.ran)
    agreed = Counter(outcome.category for outcome in outcomes if outcome.agreed)
    for category, count in total.most_common():
        print(f"  {category:<22} {ran[category]:4d} of {count} run, {agreed[category]:4d} agree with the reference")
    for outcome in outcomes:
        if not outcome.ran or outcome.agreed is not True:
            print(
                f"  {'FAILED' if not outcome.ran else 'unchecked' if outcome.agreed is None else 'DIFFERS'} "
                f"{outcome.file[:70]}: {outcome.why[:150]}"
            )
    judged = [outcome for outcome in outcomes if outcome.inside is not None]
    weight = sum(outcome.weight_s for outcome in judged)
    inside = sum(outcome.weight_s for outcome in judged if outcome.inside)
    if weight:
        print(f"  in-model time inside [warm, cold] ± 5%: {inside / weight:.1%} of kernel time ({len(judged)} kernels)")
        for outcome in sorted(judged, key=lambda one: -one.weight_s):
            if not outcome.inside:
                print(
                    f"    outside: {outcome.file[:58]:<58} model {outcome.in_model_s * 1e6:8.2f} µs  "
                    f"warm {outcome.warm_s * 1e6:8.2f}  cold {outcome.cold_s * 1e6:8.2f}"
                )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", metavar="RUN", type=Path, nargs="+")
    parser.add_argument("--at-least", type=float, default=10e-6, help="seconds; shorter kernels are not timed")
    parser.add_argument("--json", type=Path, help="write every outcome here")
    options = parser.parse_args()
    every: list[Outcome] = []
    for folder in options.folders:
        outcomes = run_folder(folder, options.at_least)
        print_summary(folder.name, outcomes)
        every += outcomes
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in every]))
    return 0 if all(outcome.ran and outcome.agreed is not False for outcome in every) else 1


if __name__ == "__main__":
    sys.exit(main())
