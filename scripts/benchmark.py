"""How fast the tool is. Each row is measured against its counterpart in the same run, on the same machine.

``start``      `inductor-bench --help` as a whole process, against `python -c pass`.
``trace``      reading a large trace, time and peak memory, against `json.load` of the same file.
``extract``    the 521 kernels of a recorded mixnet_l training step as files, against only parsing the two modules.
``breakdown``  the whole breakdown, against the manual's way: the program, then each module with `-p`.
``accuracy``   what `benchmark_accuracy.py` finds with the kernels of a RUN (--run, or --keep of a breakdown); on a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(ROOT / "tests" / "support"))

START_LIMIT_S = 0.3
EXTRACT_LIMIT_S = 5.0


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, this tool, the counterpart, and the target that it is held to."""

    name: str
    ours: str
    theirs: str
    target: str
    reached: bool | None


def run(command: list[str], **variables: str) -> float:
    """The wall time of a whole process, in seconds; its output is kept only for a failure."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    begin = time.perf_counter()
    ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - begin
    if ended.returncode != 0:
        sys.exit(f"{shlex.join(command)} failed:\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}")
    return taken


def measure_start() -> list[Row]:
    help_times, bare_times = [], []
    for _ in range(7):
        help_times.append(run([sys.executable, "-m", "inductor_bench", "--help"]))
        bare_times.append(run([sys.executable, "-c", "pass"]))
    ours, theirs = statistics.median(help_times), statistics.median(bare_times)
    target = f"below {START_LIMIT_S} s"
    reached = ours < START_LIMIT_S
    return [Row("inductor-bench --help", f"{ours:.3f} s", f"{theirs:.3f} s (bare Python)", target, reached)]


def measure_trace(iterations: int) -> list[Row]:
    from benchmark_traces import benchmark

    found = benchmark(iterations, rounds=3)
    time_ratio, memory_ratio = found["time_ratio"], found["memory_ratio"]
    return [
        Row(
            f"read a {found['trace_bytes'] / 1e6:.0f} MB trace, time",
            f"{found['read_time_s']:.2f} s",
            f"{found['json_time_s']:.2f} s (json.load)",
            f"at most 1.00 x: {time_ratio:.2f} x",
            time_ratio <= 1,
        ),
        Row(
            "the same, peak memory",
            f"{found['read_memory_bytes'] / 1e6:.0f} MB",
            f"{found['json_memory_bytes'] / 1e6:.0f} MB (json.load)",
            f"at most 0.33 x: {memory_ratio:.2f} x",
            memory_ratio <= 1 / 3,
        ),
    ]


def measure_extract() -> list[Row]:
    import ast

    from h200 import text_of

    from inductor_bench.records.module import ExtractedKernel
    from inductor_bench.source.module_reader import parse_module, read_module
    from inductor_bench.source.static_calls import read_static_launches
    from inductor_bench.workflows.modules.extraction import ModuleKernels, list_candidates
    from inductor_bench.workflows.modules.kernel_files import write_kernels

    texts = {role: text_of(f"mixnet_l_p10/{role}.py") for role in ("forward", "backward")}
    begin = time.process_time()
    for text in texts.values():
        ast.parse(text)
    parsed = time.process_time() - begin
    times = []
    for _ in range(3):
        read_module.cache_clear()
        parse_module.cache_clear()
        written: dict[Hashable, ExtractedKernel] = {}
        with tempfile.TemporaryDirectory() as name:
            begin, rows = time.process_time(), []
            for role, text in texts.items():
                source = read_module(text)
                module = ModuleKernels(role, "mixnet_l", source, read_static_launches(text, source))
                rows += write_kernels(list_candidates(module), Path(name), written)
            times.append(time.process_time() - begin)
    ours = statistics.median(times)
    files = sum(row.file is not None for row in rows)
    target = f"below {EXTRACT_LIMIT_S:.0f} s; all {len(rows)} have a file"
    reached = ours < EXTRACT_LIMIT_S and files == len(rows)
    name = f"extract {files} kernels, CPU time with reading"
    return [Row(name, f"{ours:.2f} s", f"{parsed:.2f} s (ast.parse of the modules)", target, reached)]


def measure_breakdown(target: str, options: list[str], keep: Path | None) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run([sys.executable, "-m", "inductor_bench", "doctor"])  # the peaks are measured once per machine, not per run
        command = [sys.executable, "-m", "inductor_bench", "breakdown", target, *options]
        whole = run([*command, "-o", str(folder / "run"), "--no-plots"])
        record = json.loads((folder / "run" / "record.json").read_text())
        if keep is not None:
            shutil.copytree(folder / "run", keep, dirs_exist_ok=True)
        agreement = measure_agreement(folder / "run")
        capture = record["capture"]["time_s"]
        program, harness = _by_hand(record["request"], folder)
    rest = whole - capture
    return [
        Row(
            f"breakdown of {record['title']}",
            f"{whole:.1f} s",
            f"{program + harness:.1f} s (program {program:.1f} s, each module with -p {harness:.1f} s)",
            "",
            None,
        ),
        Row(
            "its part after the program ended",
            f"{rest:.1f} s",
            f"{harness:.1f} s (the modules' own -p)",
            f"{rest / harness:.2f} x",
            None,
        ),
        *agreement,
    ]


def measure_agreement(folder: Path) -> list[Row]:
    """The record against what the modules' own harness printed of the same trace (on a GPU; it prints 0 on a CPU)."""
    from p_text import compare, read_p_text

    from inductor_bench.records.base import Category
    from inductor_bench.store.folder import RunFolder

    run = RunFolder(folder).load()
    rows = []
    for module in run.modules:
        if module.device != "cuda" or module.outputs.log is None:
            continue
        kernels, categories = compare(module, read_p_text((folder / module.outputs.log).read_text()))
        target = f"within 1%; {len(module.kernels)} kernels"
        worst = max(kernels, categories)
        rows.append(
            Row(
                f"{module.label}: furthest from -p",
                f"{kernels:.3%} (kernel)",
                f"{categories:.3%} (category)",
                target,
                worst <= 0.01,
            )
        )
        library = [kernel for kernel in module.kernels if kernel.category.is_library]
        unnamed = sum(kernel.category is Category.OTHER for kernel in module.kernels)
        orphans = sum(not kernel.operator for kernel in library)
        rows.append(
            Row(
                f"{module.label}: kernels without category",
                str(unnamed),
                f"{orphans} of {len(library)} library kernels without ATen call",
                "0 and 0",
                unnamed == orphans == 0,
            )
        )
    return rows


def _by_hand(request: dict[str, object], folder: Path) -> tuple[float, float]:
    """The manual's five steps: run the program with two variables set, then each printed module with ``-p``."""
    cache = folder / "cache"
    job = folder / "job.json"
    place = str(request["target"]).removeprefix("timm:")
    job.write_text(json.dumps({**request, "place": place, "complaint": str(folder / "complaint.json")}))
    variables = {
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_UNIQUE_KERNEL_NAMES": "1",
        "TORCHINDUCTOR_BENCHMARK_KERNEL": "1",
    }
    log = folder / "program.log"
    command = f"{sys.executable} -m inductor_bench.worker.capture.programs {job} 2> {log}"
    program = run(["sh", "-c", command], **variables)
    paths = re.findall(r"^Compiled module path: (\S+)$", log.read_text(), re.M)
    tabulate = folder / "tabulate.py"  # -p imports it; torch does not depend on it
    tabulate.write_text("def tabulate(rows, headers):\n    return ''\n")
    times = [run([sys.executable, path, "-p"], **{**variables, "PYTHONPATH": str(folder)}) for path in paths]
    return program, sum(times)


def measure_accuracy(folder: Path | None) -> list[Row]:
    import torch

    if folder is None or not torch.cuda.is_available():
        return []
    output = folder.with_name(f"{folder.name}-accuracy")
    script = [sys.executable, "scripts/benchmark_accuracy.py", str(folder), "--output", str(output)]
    subprocess.run(script, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)  # it fails if a target is not reached
    rows = json.loads((output / "accuracy.json").read_text())["rows"]
    return [Row(f"{r['id']} {r['quantity']}", r["found"], "", r["target"], r["reached"]) for r in rows]


def print_table(rows: list[Row]) -> None:
    import platform

    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU ({os.cpu_count()} cores)"
    print(f"\n{device} · torch {torch.__version__} · Python {platform.python_version()}\n")
    cells = [("", "inductor-bench", "against", "target", "")]
    marks = {True: "reached", False: "NOT REACHED", None: ""}
    cells += [(row.name, row.ours, row.theirs, row.target, marks[row.reached]) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(5)]
    for line in cells:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["start", "trace", "extract", "breakdown", "accuracy"], action="append")
    parser.add_argument("--iterations", type=int, default=100, help="of the large trace (default: 100, 176 MB)")
    parser.add_argument("--target", help="of the breakdown; a factory or timm target")
    parser.add_argument("--options", help="of the breakdown, as one string")
    parser.add_argument("--keep", type=Path, help="copy the breakdown's RUN folder here")
    parser.add_argument("--run", type=Path, help="the RUN whose kernels the accuracy is measured with (that of --keep)")
    arguments = parser.parse_args()
    target, options = arguments.target, shlex.split(arguments.options or "")
    if target is None:
        import torch

        if torch.cuda.is_available():
            target, options = "timm:mixnet_l", ["--training", "--batch-size", "128", "--amp", "float16"]
        else:
            target, options = "examples/train_convnet.py:training_step", ["--training"]
    steps: dict[str, Callable[[], list[Row]]] = {
        "start": measure_start,
        "trace": lambda: measure_trace(arguments.iterations),
        "extract": measure_extract,
        "breakdown": lambda: measure_breakdown(target, options, arguments.keep),
        "accuracy": lambda: measure_accuracy(arguments.run or arguments.keep),
    }
    rows = [row for name, step in steps.items() if name in (arguments.only or steps) for row in step()]
    print_table(rows)
    return 1 if any(row.reached is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
