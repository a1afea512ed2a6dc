"""How true the first answer is: programs as users write them, each observed once, against their own stopwatch.

``python scripts/benchmark_programs.py [--output FOLDER] [--limit S] [--within S] [--alone] [--again]
[PROGRAM...]``, where PROGRAM is a file of ``scripts/programs`` without ``.py``; without any, all of ``PROGRAMS`` below.
They run one after the other. A program that reaches its limit is interrupted as by Ctrl-C; those for which no time is
left are listed, so that the table comes within the time.

``own ms``    the program's median lap over the tool's timed steps, by their numbers, or, if the tool counts other steps
              than the program, of its second half (``settled``); then the tool's step, and by how much it differs from
              the median and from the mean of these laps. If it is one of a lap's parts, that part is named.
``busy``      the tool's busy time against the profiler's total in a process without the tool (``--alone``).
``tied``      the share of the compiled graphs' device time that is tied to a kernel and a call.
``profile``   how many steps were profiled, of how many that the program made after those of the first compilation.
``same``      whether Dynamo counted the same graphs, breaks and frames without the tool (``--alone``).
``answer``    seconds from the last profiled step to the line that gives the step, if the profile names its steps.
``end``       seconds from the program's end to the end of the command.
``again``     seconds of a second breakdown, after the first one, which had nothing in its caches (``--again``); then
              those of the program without the tool, with warm caches of its own, and the second step against the first.

``FOLDER`` gets ``table.json``, and of each program the screen and what the tool printed beside it, each line with the
seconds since the command began; ``--keep`` also keeps the RUNs there. ``SMALL=1`` makes the programs small enough for a
CPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from scripts.benchmark_step import PROGRAMS as FOLDER
from scripts.benchmark_step import ROOT, printed, profiled_times

RANKS = 2
PROGRAMS = {
    "trainer": "transformers' Trainer",
    "generate": "transformers' generate, static cache",
    "decode": "decode loop under CUDA graphs",
    "few_tokens": "56 decoded tokens",
    "request_loop": "40 requests: prefill and 24 decodes",
    "diffusion": "diffusion loop, timestep on the CPU",
    "gnn": "torch_geometric, nine sizes",
    "packed": "flex attention on packed sequences",
    "gan": "GAN, two optimizers",
    "accumulation": "micro-batches, compiled optimizer",
    "experts": "mixture of experts",
    "loader": "slow loader, two workers",
    "blocks": "blocks compiled one by one",
    "evaluated": "evaluation after every 20 steps",
    "buckets": "four lengths",
    "few_steps": "timm, 14 steps in all",
    "classify": "torchvision's ResNet, inference",
    "lightning_trainer": "Lightning's Trainer",
    "skipped": "Dynamo skips the frame",
    "breaks": "graph breaks, a recompilation",
    "few_ddp": "DDP, 25 steps",
    "sharded": "FSDP2 with checkpointing",
}
"""The programs, each with its kind."""

SEVERAL_RANKS = ("few_ddp", "sharded")
STEP_WORDS = " a step ("
"""What only a line with the step says."""

GRACE_S = 15.0
"""Seconds that a command has to say what it knows after it was interrupted."""

MOST_WORDS = 400
"""Characters of the first paragraph that the table prints."""

LEAST_S = 20.0
"""Seconds that must be left for a program to be started."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--output", type=Path, default=Path("runs/programs"), help="the folder for the results")
    parser.add_argument("--keep", action="store_true", help="keeps the RUNs in the folder, too")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each program")
    parser.add_argument("--within", type=float, default=570.0, help="seconds for all programs")
    parser.add_argument("--alone", action="store_true", help="also runs each program without the tool")
    parser.add_argument("--again", action="store_true", help="also breaks each program down a second time")
    options = parser.parse_args()
    names = [Path(name).stem for name in options.programs] or list(PROGRAMS)
    if unknown := [name for name in names if not (FOLDER / f"{name}.py").is_file()]:
        parser.error(f"no such program: {', '.join(unknown)}. There are: {', '.join(PROGRAMS)}")
    options.output.mkdir(parents=True, exist_ok=True)
    end_s = time.monotonic() + options.within
    rows: list[dict[str, Any]] = []
    for name in names:
        rows.append(measure(name, options, end_s - time.monotonic()))
        (options.output / "table.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
        print(f"{name}: {rows[-1].get('first_line') or rows[-1]['note']}", file=sys.stderr, flush=True)
    print_table(rows)
    return 0


def measure(name: str, options: argparse.Namespace, left_s: float) -> dict[str, Any]:
    """The row of one program, which has at most ``left_s`` seconds."""
    row: dict[str, Any] = {"program": name, "kind": PROGRAMS.get(name, ""), "note": ""}
    if left_s < LEAST_S + GRACE_S:
        return row | {"note": "not run: no time was left"}
    limit_s = min(options.limit, left_s - GRACE_S)
    command = command_of(name)
    with tempfile.TemporaryDirectory() as temporary:
        run = options.output / name if options.keep else Path(temporary) / name
        row |= observe(command, run, Path(temporary), options.output / name, limit_s)
        own = read_laps(Path(temporary))
        record = read_record(run)
        row |= compare(record, own, row)
        row |= answered(record, own, run, row)
        if options.again:
            second = options.output / f"{name}-again"
            row |= run_again(command, row, Path(temporary), second, left_s - row["seconds"] - GRACE_S)
    if options.alone:
        row |= run_alone(command, row, min(options.limit, left_s - row["seconds"] - GRACE_S))
    return row


def command_of(name: str) -> list[str]:
    """What starts a program: torchrun, if it has several ranks."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)] if name in SEVERAL_RANKS else []
    return [sys.executable, *launcher, str(FOLDER / f"{name}.py")]


def environment_of(command: Sequence[str]) -> dict[str, str]:
    """The environment of a program: one of a single process sees one GPU, because trainers take all that they see."""
    if "-m" in command:
        return dict(os.environ)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    return {**os.environ, "CUDA_VISIBLE_DEVICES": visible}


def observe(
    command: Sequence[str],
    run: Path,
    laps: Path,
    output: Path,
    limit_s: float,
    more: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Breaks a program down, and keeps its screen as ``output`` with the suffix ``.txt``.

    Args:
        command: what starts the program.
        run: the folder for the RUN.
        laps: the folder in which the program's stopwatch writes.
        output: the file for the screen, without its suffix.
        limit_s: seconds after which the command is interrupted.
        more: other options of ``breakdown``.
        environment: in place of ``environment_of(command)``.
    """
    tool = [sys.executable, "-m", "inductor_bench", "breakdown", *more, "-o", str(run), "--force", "--", *command]
    variables = {**(environment or environment_of(command)), "STEP_ENDS": str(laps), "COLUMNS": "160"}
    lines: dict[str, list[tuple[float, str]]] = {".txt": [], ".err.txt": []}
    begin_s = time.perf_counter()
    process = subprocess.Popen(
        tool, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    readers = [
        threading.Thread(target=note_lines, args=(stream, noted), daemon=True)
        for stream, noted in zip((process.stdout, process.stderr), lines.values(), strict=True)
    ]
    for reader in readers:
        reader.start()
    note = wait_for(process, limit_s)
    ended_s = time.perf_counter()
    for reader in readers:
        reader.join(timeout=GRACE_S)
    for suffix, noted in lines.items():
        timed = (f"{at_s - begin_s:7.2f}  {line}" if suffix == ".err.txt" else line for at_s, line in noted)
        output.with_suffix(suffix).write_text("".join(timed), encoding="utf-8")
    screen = "".join(line for _, line in lines[".txt"])
    answers = (at_s for noted in lines.values() for at_s, line in noted if STEP_WORDS in line)
    return {
        "note": note,
        "command": shlex.join(command),
        "seconds": ended_s - begin_s,
        "ended_s": ended_s,
        "first_line_s": min(answers, default=None),
        "first_line": answer_of(screen),
        "exit_code": process.returncode,
    }


def answer_of(screen: str) -> str:
    """What a screen says first: its first paragraph below the title, in one line."""
    paragraphs = [" ".join(one.split()) for one in screen.split("\n\n") if one.strip()]
    return paragraphs[1][:MOST_WORDS] if len(paragraphs) > 1 else "".join(paragraphs)


def note_lines(stream: IO[str] | None, lines: list[tuple[float, str]]) -> None:
    """Notes each line of a stream, and when it came."""
    lines.extend((time.perf_counter(), line) for line in stream or ())


def wait_for(process: subprocess.Popen[str], limit_s: float) -> str:
    """Waits for the command; at its limit it is interrupted, and ended if that does not help. Returns what was done."""
    try:
        process.wait(timeout=limit_s)
        return ""
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(timeout=GRACE_S)
        return f"interrupted after {limit_s:.0f} s"
    except subprocess.TimeoutExpired:
        return f"interrupted after {limit_s:.0f} s, killed {GRACE_S:.0f} s later"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def read_laps(folder: Path) -> list[dict[str, Any]]:
    """What the stopwatch of each rank wrote."""
    return [json.loads(file.read_text()) | {"pid": int(file.stem)} for file in sorted(folder.glob("[0-9]*.json"))]


def read_record(run: Path) -> dict[str, Any]:
    """The program's step in the record, with the numbers of each process's timed steps; empty if there is none."""
    try:
        record = json.loads((run / "record.json").read_text(encoding="utf-8"))
        evidence = json.loads((run / "evidence.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    steps = [process["steps"] for process in evidence.get("processes") or () if process.get("steps")]
    numbers = {one["pid"]: one.get("step_numbers") for one in steps}
    return {**record["program"], "step_numbers": numbers} if record.get("program") else {}


def compare(record: Mapping[str, Any], own: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> dict[str, Any]:
    """The tool's step against the program's."""
    found: dict[str, Any] = {"step_s": record.get("step_time_s"), "program": row["program"]}
    if not own:
        return found | {"note": row["note"] or "the program wrote no laps"}
    ranks = record.get("ranks") or []
    leading = next((rank["pid"] for rank in ranks if rank["step_times_s"] == record["step_times_s"]), None)
    laps = next((one for one in own if one["pid"] == leading), own[0])
    times = [seconds for kind, seconds in laps["laps"] if is_step(laps, kind)]
    first, count = record.get("settled_after", 0), len(record.get("step_times_s") or ())
    parts = medians(laps["parts"])
    usual_s = statistics.median(record["step_times_s"]) if count else None
    part = part_that_fits(usual_s, statistics.median(times[len(times) // 2 :]), parts)
    numbers = record.get("step_numbers", {}).get(laps["pid"]) or list(range(first, first + count))
    low, high = record.get("level") or (0, 0)
    numbers = numbers[low : high or count]
    by_number = bool(numbers) and not part and numbers[-1] < len(times)
    same = [times[number] for number in numbers] if by_number else times[len(times) // 2 :]
    found |= {
        "lap": laps["kind"],
        "laps": len(times),
        "own_step_s": statistics.median(same),
        "over": f"{len(numbers)} of {numbers[0]}-{numbers[-1]}" if by_number else "settled",
        "parts": parts,
        "kinds": medians(laps["laps"]),
        "compiled": laps["compiled"],
        "program_ended_s": max(one["ended_s"] for one in own),
        "profiled_steps": max((rank.get("profiled_steps") or 0 for rank in ranks), default=0),
        "busy_s": min((rank["busy_time_s"] for rank in ranks if rank.get("busy_time_s")), default=None),
        "tied": min((rank["tied_share"] for rank in ranks if rank.get("tied_share") is not None), default=None),
        "source": record.get("step_source"),
    }
    found["after_end_s"] = row["ended_s"] - found["program_ended_s"]
    if found["step_s"]:
        found["own_mean_s"] = statistics.fmean(same)
        found["mean_deviation"] = found["step_s"] / found["own_mean_s"] - 1
        found["deviation"] = found["step_s"] / found["own_step_s"] - 1
        found["as"] = part
    return found


def is_step(laps: Mapping[str, Any], kind: str) -> bool:
    """Whether a lap of this kind is one of the program's steps: all are, if none is of the kind that it names."""
    return kind == laps["kind"] or all(one != laps["kind"] for one, _ in laps["laps"])


def medians(laps: Sequence[tuple[str, float]]) -> dict[str, float]:
    """The median of the second half of each kind's laps."""
    kinds: dict[str, list[float]] = {}
    for kind, seconds in laps:
        kinds.setdefault(kind, []).append(seconds)
    return {kind: statistics.median(times[len(times) // 2 :]) for kind, times in kinds.items()}


def part_that_fits(step_s: float | None, lap_s: float, parts: Mapping[str, float]) -> str:
    """The part of a lap that the tool's step is nearest to, by their ratio; empty if it is nearer to the whole lap."""
    if not step_s:
        return ""
    near = {"": lap_s, **parts}
    return min(near, key=lambda kind: abs(math.log(step_s / near[kind])))


def answered(
    record: Mapping[str, Any], own: Sequence[Mapping[str, Any]], run: Path, row: Mapping[str, Any]
) -> dict[str, Any]:
    """The seconds from the last profiled step to the first line; nothing if the profile names no step of a lap."""
    ranks = [rank for rank in record.get("ranks") or () if rank.get("trace")]
    if not ranks or row["first_line_s"] is None:
        return {}
    laps = next((one for one in own if one["pid"] == ranks[0]["pid"]), None)
    if laps is None or row.get("as"):
        return {}
    host_s = [end for end, (kind, _) in zip(laps["host_s"], laps["laps"], strict=True) if is_step(laps, kind)]
    try:
        first, times = profiled_times(run / ranks[0]["trace"])
        last_s = host_s[first + len(times) - 1]
    except (SystemExit, IndexError):
        return {}
    return {"answer_s": row["first_line_s"] - last_s}


def run_alone(command: Sequence[str], row: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
    """Runs a program without the tool: the profiler's busy time, and what Dynamo counted."""
    if limit_s < LEAST_S:
        return {}
    process = subprocess.Popen(
        command,
        env=environment_of(command) | {"PROFILE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        ranks = printed(process.communicate(timeout=limit_s)[0])
    except subprocess.TimeoutExpired:
        return {"note": f"{row['note']} alone: ended after {limit_s:.0f} s".strip()}
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if not ranks:
        return {"note": f"{row['note']} alone: failed".strip()}
    found: dict[str, Any] = {"own_busy_s": min((one["busy_s"] for one in ranks if one.get("busy_s")), default=None)}
    found |= {"alone_step_s": ranks[0]["step_s"], "alone_compiled": ranks[0]["compiled"]}
    if row.get("compiled"):
        found["same"] = ranks[0]["compiled"] == row["compiled"]
    if found["own_busy_s"] and row.get("busy_s"):
        found["busy_deviation"] = row["busy_s"] / found["own_busy_s"] - 1
    return found


def run_again(
    command: Sequence[str], row: Mapping[str, Any], folder: Path, output: Path, left_s: float
) -> dict[str, Any]:
    """Breaks a program down once more, and runs it by itself with warm caches of its own."""
    end_s = time.monotonic() + left_s
    if left_s < LEAST_S:
        return {}
    for name in ("second", "cold", "warm"):
        (folder / f"{name}-laps").mkdir()
    second = observe(command, folder / "second", folder / "second-laps", output, left_s)
    if second["note"]:
        return {"note": f"{row['note']} second: {second['note']}".strip()}
    compared = compare(read_record(folder / "second"), read_laps(folder / "second-laps"), {**row, **second})
    found = {"again_s": second["seconds"], "again_step_s": compared["step_s"], "again_line": second["first_line"]}
    found["again_own_step_s"] = compared.get("own_step_s")
    caches = environment_of(command) | {"TORCHINDUCTOR_CACHE_DIR": str(folder / "caches")}
    for name in ("cold", "warm"):
        begin_s, laps = time.perf_counter(), folder / f"{name}-laps"
        process = subprocess.Popen(
            command,
            env=caches | {"STEP_ENDS": str(laps)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if wait_for(process, max(end_s - time.monotonic(), 0.1)):
            return found | {"note": f"{row['note']} by itself: not ended".strip()}
        found[f"own_{name}_s"] = time.perf_counter() - begin_s
        found[f"own_{name}_step_s"] = max((medians(one["laps"])[one["kind"]] for one in read_laps(laps)), default=None)
    return found


COLUMNS = (
    "program",
    "lap",
    "own ms",
    "over",
    "tool ms",
    "of median",
    "of mean",
    "busy",
    "tied",
    "profile",
    "same",
    "answer",
    "end",
    "again",
)


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints the figures, and below them what the first lines say."""
    print_cells([(*COLUMNS, "exit", "note"), *map(cells_of, rows)])
    print()
    for row in rows:
        print(f"{row['program']}: {row.get('first_line') or '-'}")
        if row.get("again_line"):
            print(f"  the second time: {row['again_line']}")
            own = [number(row.get(f"{name}_step_s"), 1e3) for name in ("again_own", "own_cold", "own_warm")]
            print(
                f"  by its stopwatch then {own[0]} ms; without the tool {own[1]} (cold caches) and {own[2]} ms (warm)"
            )


def print_cells(cells: Sequence[Sequence[str]]) -> None:
    """Prints lines of cells as columns."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def cells_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of a program's line."""
    part = row.get("as")
    return (
        row["program"],
        row.get("lap", "-"),
        number(row.get("own_step_s"), 1e3, "{:.3f}"),
        row.get("over", "-"),
        number(row.get("step_s"), 1e3, "{:.3f}"),
        number(row.get("deviation"), 100, "{:+.1f}%") + (f" = {part} {part_deviation(row):+.1f}%" if part else ""),
        number(row.get("mean_deviation"), 100, "{:+.1f}%"),
        number(row.get("busy_deviation"), 100, "{:+.1f}%")
        if "busy_deviation" in row
        else number(row.get("busy_s"), 1e3),
        number(row.get("tied"), 100, "{:.1f}%"),
        f"{row['profiled_steps']} of {row['laps']}" if "laps" in row else "-",
        {True: "yes", False: "no"}.get(row.get("same"), "-"),
        number(row.get("answer_s"), 1, "{:.1f}"),
        number(row.get("after_end_s"), 1, "{:.1f}"),
        again_words(row),
        str(row.get("exit_code", "-")),
        row["note"],
    )


def again_words(row: Mapping[str, Any]) -> str:
    """The seconds of the second breakdown, those of the program by itself, and the second step against the first."""
    if not row.get("own_warm_s"):
        return number(row.get("again_s"), 1, "{:.1f}")
    first, second = row.get("step_s"), row.get("again_step_s")
    agree = f", {100 * (second / first - 1):+.1f}%" if first and second else ""
    return f"{row['again_s']:.1f} of {row['own_warm_s']:.1f}{agree}"


def part_deviation(row: Mapping[str, Any]) -> float:
    """By how many percent the tool's step differs from the part that it is."""
    return 100 * (float(row["step_s"]) / float(row["parts"][row["as"]]) - 1)


def number(value: float | None, factor: float, form: str = "{:.3f}") -> str:
    """A figure in the table; a dash for none."""
    return "-" if value is None else form.format(value * factor)


if __name__ == "__main__":
    sys.exit(main())
