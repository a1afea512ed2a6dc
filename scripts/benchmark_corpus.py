"""How long the view over many models takes, and how much memory: a synthetic batch, shown by `inductor-bench report`.

Nine of ten kernels are a model's own, the others are in all models; each has as much detail as a recorded one (2.2 kB).
The times are of the whole command, the memory the most that all its processes together held at one moment.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests" / "support"))

LIMIT_S = 2.0
LIMIT_BYTES = 500e6
LOOK_EVERY_S = 0.05
OWN = "@"
"""Stands in a kernel's id for what tells its model from the others."""


def make_batch(path: Path, models: int, kernels: int) -> None:
    """Writes a batch folder of ``models`` records with ``kernels`` kernels each."""
    from inductor_bench.records.batch_record import DONE, Batch, BatchModel
    from inductor_bench.records.request import ModelRequest
    from inductor_bench.store import codec
    from inductor_bench.store.folder import BatchFolder

    folder = BatchFolder(path)
    text = json.dumps(codec.encode(_make_run(kernels)), indent=2) + "\n"
    rows = []
    for number in range(models):
        name = f"model_{number:03d}"
        record = folder.run(name).record
        record.parent.mkdir(parents=True)
        record.write_text(text.replace(OWN, f"{number:03x}"))
        rows.append(BatchModel(ModelRequest(f"timm:{name}", name=name, line=number + 1), DONE, 1, run=f"models/{name}"))
    folder.save(Batch(1, "0.1.0", "2025-01-01T00:00:00+00:00", "inductor-bench batch x", "suite.txt", tuple(rows)))


def _make_run(kernels: int) -> object:
    import run_builder

    from inductor_bench.records.code import SourceLine
    from inductor_bench.records.module import Origin

    mixnet = run_builder.mixnet()
    recorded = [kernel for module in mixnet.modules for kernel in module.kernels]
    lines = tuple(SourceLine(f"/opt/lib/site-packages/timm/layers/{n}.py", 148, "forward", "x = n(x)") for n in "abc")
    made = [
        replace(
            kernel,
            name=f"{kernel.name}_{number}",
            kernel_id=f"{OWN if number % 10 else '000'}{number:013x}",
            family_id=f"{number % 150:016x}",
            samples_s=tuple(kernel.time_s * (1 + (i - 5) / 1e3) for i in range(11)),
            origin=Origin(
                source_nodes=("cat_76", "convert_element_type_932", "x_27", "reciprocal_47", "mul_1106"),
                aten_ops=("aten.cat", "aten.silu_backward", "aten._native_batch_norm_legit_functional"),
                source_lines=lines,
            ),
            file=f"kernels/{kernel.name[:60]}_{number}.py",
            kernel_hash="c2k2xpf2wmzzxxhstvej2qh2zqn5ei53r47x2t6tbcjv46bnc2nq",
        )
        for number, kernel in zip(range(kernels), recorded * (1 + kernels // len(recorded)), strict=False)
    ]
    halves = {"forward": made[: kernels // 2], "backward": made[kernels // 2 :]}
    modules = [
        run_builder.module(label, half, 1.05 * sum(kernel.time_s for kernel in half), run_builder.H200)
        for label, half in halves.items()
    ]
    return replace(mixnet, modules=tuple(modules))


def measure(command: list[str]) -> tuple[float, float, float]:
    """Runs a command. Returns its wall and its CPU seconds, and the most bytes that its processes held together."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # with it each start compiles the package
    begin, spent, most = time.perf_counter(), _cpu_seconds(), 0
    with tempfile.TemporaryFile("w+") as output:
        child = psutil.Popen(command, env=environment, cwd=ROOT, stdout=output, stderr=output)
        while child.poll() is None:
            most = max(most, _held_bytes(child))
            try:
                child.wait(LOOK_EVERY_S)
            except psutil.TimeoutExpired:
                continue
        taken = time.perf_counter() - begin
        if child.returncode != 0:
            output.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{output.read()[-2000:]}")
    return taken, _cpu_seconds() - spent, float(most)


def _cpu_seconds() -> float:
    """What the processes that this one has waited for have spent."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def _held_bytes(process: psutil.Process) -> int:
    """What the processes hold together, pages that they share counted once."""
    held = 0
    try:
        for one in (process, *process.children(recursive=True)):
            held += one.memory_full_info().pss
    except psutil.NoSuchProcess:
        return held
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--kernels", type=int, default=500, help="of each model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="make the batch here, and use it again if it is there already")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        batch = arguments.keep or Path(name) / "batch"
        if not (batch / "batch.json").is_file():
            make_batch(batch, arguments.models, arguments.kernels)
        found = [
            measure([sys.executable, "-m", "inductor_bench", "report", str(batch)]) for _ in range(arguments.rounds)
        ]
    times, spent, sizes = zip(*found, strict=True)
    middle, most = statistics.median(times), max(sizes)
    print(f"{arguments.models} records of {arguments.kernels} kernels each, {os.cpu_count()} cores")
    print(
        f"time    {middle:.2f} s (median of {len(times)}; {min(times):.2f} to {max(times):.2f})   limit {LIMIT_S:.0f} s"
    )
    print(f"CPU     {statistics.median(spent):.2f} s, which other work on the machine changes less")
    print(f"memory  {most / 1e6:.0f} MB   limit {LIMIT_BYTES / 1e6:.0f} MB")
    return 1 if middle >= LIMIT_S or most >= LIMIT_BYTES else 0


if __name__ == "__main__":
    sys.exit(main())
