"""How true the host's ledger is: waits of known length that are injected, and real programs whose host sets the pace.

``python scripts/benchmark_host.py [--output FOLDER] [waits] [PROGRAM...]``, where PROGRAM is a file of
``scripts/programs`` without ``.py``. Without any, the waits, and trainer, gan, blocks and loader.

A wait is one of 1, 5 and 20 ms in a Python loop, in an operator on the CPU, and in a loader (``scripts/waits``). It is
found if the stretches of its function take what the program itself measures in the steps that the tool timed. ``off``
is the difference.

Of a program the table has the number of samples with the device idle, what sampling costs (the interval in brackets),
the share of the idle time that has a function and a line of the user's code, and its longest stretches. ``FOLDER``
gets the RUNs and ``table.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("python", "operator", "loader")
TIMES_MS = (1, 5, 20)
FUNCTIONS = {
    "python": ("busy_wait", "wait_in_python"),
    "operator": ("wait_in_an_operator",),
    "loader": ("busy_wait", "wait_in_python", "Batches.decode"),
}
"""The functions whose lines an injected wait has."""

PROGRAMS = ("trainer", "gan", "blocks", "loader")
LIMIT_S = 300.0
MOST_STRETCHES = 6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PROGRAM")
    parser.add_argument("--output", type=Path, default=Path("runs/host"), help="the folder for the results")
    parser.add_argument("--seconds", type=float, default=12.0, help="how long a program with waits goes on")
    parser.add_argument("--kind", dest="kinds", action="append", choices=KINDS, help="only waits of this kind")
    options = parser.parse_args()
    options.kinds = options.kinds or KINDS
    options.output.mkdir(parents=True, exist_ok=True)
    names = options.names or ["waits", *PROGRAMS]
    rows: list[dict[str, Any]] = []
    for name in names:
        for row in waits(options) if name == "waits" else [program(name, options)]:
            rows.append(row)
            print(words_of(row), flush=True)
            (options.output / "table.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


def waits(options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """A row for each kind and length of a wait."""
    for kind in options.kinds:
        for time_ms in TIMES_MS:
            words = [str(ROOT / "scripts" / "waits" / "waiting.py"), kind, str(time_ms), str(options.seconds)]
            run = options.output / f"{kind}-{time_ms}"
            record = broken_down(words, run, stops=False)
            row = summary(f"{kind} {time_ms} ms", record)
            own = wait_in_timed_steps(run, record)
            found_s = sum(one["time_s"] for one in row["stretches"] if function_of(one) in FUNCTIONS[kind])
            row |= {"own_ms": own, "found_ms": 1e3 * found_s, "off": 1e3 * found_s / own - 1 if own else None}
            yield row


def wait_in_timed_steps(run: Path, record: dict[str, Any]) -> float | None:
    """The median of the waits in the steps that the tool timed, in milliseconds, as the program measured them."""
    if not record:
        return None
    lines = (run / "logs" / "program.log").read_text(errors="replace").splitlines()
    waits_ms = json.loads(next(line for line in reversed(lines) if line.startswith("[")))
    numbers = record["program"]["ranks"][0]["step_numbers"]
    return statistics.median(waits_ms[number] for number in numbers)


def program(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The row of a program."""
    words = [str(ROOT / "scripts" / "programs" / f"{name}.py")]
    return summary(name, broken_down(words, options.output / name, stops=True))


def broken_down(words: Sequence[str], run: Path, *, stops: bool) -> dict[str, Any]:
    """The record of a program; empty if there is none."""
    options = ["--no-plots", "--force", *(["--stop"] if stops else []), "-o", str(run)]
    command = [sys.executable, "-m", "inductor_bench", "breakdown", *options, "--", sys.executable, *words]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path}
    with (run.parent / f"{run.name}.txt").open("w") as screen:
        subprocess.run(command, env=environment, stdout=screen, stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False)
    record = run / "record.json"
    found: dict[str, Any] = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    return found


def summary(name: str, record: dict[str, Any]) -> dict[str, Any]:
    """What the record says of the host."""
    step = record.get("program") or {}
    host = step.get("host") or {}
    stretches = host.get("stretches") or []
    idle_s = sum(part["time_s"] for part in step.get("parts", []) if part["kind"] == "idle")
    between_s = sum(part["time_s"] for part in step.get("parts", []) if part.get("label") == "between kernels")
    tied_s = sum(one["time_s"] for one in stretches if one.get("source") and one["function"])
    return {
        "name": name,
        "step_ms": 1e3 * step.get("step_time_s", 0.0),
        "idle_ms": 1e3 * idle_s,
        "between_ms": 1e3 * between_s,
        "samples": host.get("samples", 0),
        "every": host.get("every", 0),
        "steps": host.get("steps", 0),
        "cost": [host.get("cost"), host.get("cost_low"), host.get("cost_high")],
        "tied": tied_s / (idle_s - between_s) if idle_s > between_s else None,
        "stretches": stretches,
    }


def function_of(stretch: dict[str, Any]) -> str:
    """The user's function of a stretch."""
    return str((stretch.get("source") or {}).get("function", ""))


def words_of(row: dict[str, Any]) -> str:
    """A row as text."""
    cost, low, high = row["cost"]
    costs = f"{100 * cost:+.2f}% ({100 * low:+.2f} to {100 * high:+.2f})" if cost is not None else "-"
    tied = f"{100 * row['tied']:.1f}%" if row["tied"] is not None else "-"
    text = (
        f"{row['name']}: step {row['step_ms']:.3f} ms, idle {row['idle_ms']:.3f} ms (between kernels "
        f"{row['between_ms']:.3f}), {row['samples']} of {row['every']} samples in {row['steps']} steps, cost {costs}, "
        f"tied {tied}"
    )
    if row.get("off") is not None:
        text += f", wait {row['own_ms']:.3f} ms, found {row['found_ms']:.3f} ms, off {100 * row['off']:+.1f}%"
    shown = row["stretches"][:MOST_STRETCHES]
    lines = [f"    {1e3 * one['time_s']:9.3f} ms  {one['label']}  {one['function']}  {place_of(one)}" for one in shown]
    return "\n".join([text, *lines])


def place_of(stretch: dict[str, Any]) -> str:
    source = stretch.get("source") or {}
    return f"{Path(source['file']).name}:{source['line']}" if source else "no line"


if __name__ == "__main__":
    sys.exit(main())
