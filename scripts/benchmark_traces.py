"""Measures reading a large trace against ``json.load`` of the same file: time and peak memory, each in its own process.

Run it as ``python scripts/benchmark_traces.py`` (a table) or with ``--json``. The large trace is made from the recorded
three iterations of a mixnet_l training step: repeated with shifted times and ids, in the layout that the profiler of
torch 2.11 writes, so that 100 iterations are the 176 MB that a module's own ``-p`` leaves behind.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "tests/data/h200_torch2.11/mixnet_l_train/forward.trace.json.gz"
Event = dict[str, Any]
_WIDE = (
    *("stream", "registers per thread", "shared memory", "blocks per SM", "warps per SM"),
    *("grid", "block", "est. achieved occupancy %"),
)
_FIXED_POINT = ("blocks per SM", "warps per SM")

# VmHWM and not ru_maxrss: the latter survives exec, so that a child would start with the peak of its parent.
_PRELUDE = "import re, sys, time; from pathlib import Path; start = time.perf_counter()\n"
_REPORT = """
seconds = time.perf_counter() - start
print(seconds, int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024)
"""
READERS = {
    "json.load": "import json\nwith open(sys.argv[1]) as file: json.load(file)",
    "read_trace": "from inductor_bench.trace.rows import read_trace\nread_trace(Path(sys.argv[1]))",
}


def write_enlarged_trace(source: Path, target: Path, iterations: int) -> int:
    """Repeat the iterations of ``source`` (each ended by a device synchronisation) until there are ``iterations``.

    Returns:
        the size of ``target`` in bytes.
    """
    with gzip.open(source) as file:
        trace = json.load(file)
    events: list[Event] = trace.pop("traceEvents")
    timed = [event for event in events if event.get("cat") not in (None, "Trace")]
    others = [event for event in events if event.get("cat") in (None, "Trace")]
    host = [event for event in timed if event["cat"] == "cpu_op"]
    rest = [event for event in timed if event["cat"] != "cpu_op"]
    with open(target, "w", encoding="utf-8") as file:
        _write_header(file, trace)
        first = True
        for event in _repeat(host, timed, iterations):
            file.write(("" if first else ",\n") + format_event(event))
            first = False
        for event in _repeat(rest, timed, iterations):
            file.write(",\n" + format_event(event))
        for event in others:
            file.write(",\n" + format_event(event))
        file.write('\n  ],\n  "traceName": "/tmp/compiled_module_profile.json"\n}')
    return target.stat().st_size


def _repeat(events: list[Event], timed: list[Event], iterations: int) -> Iterator[Event]:
    """The events of as many iterations as wanted, copies shifted in time and in all ids."""
    ends = sorted(e["ts"] + e["dur"] for e in timed if e["name"] == "cudaDeviceSynchronize")
    period = ends[-1] - min(e["ts"] for e in timed) + 60.0
    ids = 1 + max(e["args"].get("External id", 0) for e in timed if "args" in e)
    correlations = 1 + max(e["args"].get("correlation", 0) for e in timed if "args" in e)
    for copy in range(-(-iterations // len(ends))):
        last = ends[min(len(ends), iterations - copy * len(ends)) - 1]
        for event in events:
            if event["ts"] <= last:
                yield _shifted(event, copy * period, copy * ids, copy * correlations)


def _shifted(event: Event, time: float, ids: int, correlations: int) -> Event:
    moved = {**event, "ts": event["ts"] + time}
    if "id" in event:
        moved["id"] += correlations
    if "args" in event:
        shifts = {"External id": ids, "Ev Idx": ids, "correlation": correlations}
        moved["args"] = {
            name: value + shifts[name] if name in shifts else value for name, value in event["args"].items()
        }
    return moved


def _write_header(file: TextIO, trace: Event) -> None:
    trace.pop("traceName", None)
    device = dict(trace.pop("deviceProperties")[0])
    lines = [("id", "name", "totalGlobalMem"), ("computeMajor", "computeMinor")]
    lines += [("maxThreadsPerBlock", "maxThreadsPerMultiprocessor"), ("regsPerBlock", "warpSize")]
    lines += [("sharedMemPerBlock", "numSms")]
    rows = [", ".join(f'"{key}": {json.dumps(device.pop(key))}' for key in line) for line in lines]
    more = "".join(f', "{key}": {json.dumps(value)}' for key, value in device.items())
    schema = trace.pop("schemaVersion")
    file.write(f'\n  {{\n    "schemaVersion": {schema},\n    "deviceProperties": [\n    {{\n      ')
    file.write(",\n      ".join(rows) + f"\n    {more}\n    }}\n    ],\n")
    for key, value in trace.items():
        indent = "  " if key in ("displayTimeUnit", "baseTimeNanoseconds") else "      "
        file.write(f'{indent}"{key}": {json.dumps(value)},\n')
    file.write('  "traceEvents": [\n')


def format_event(event: Event) -> str:
    """An event as torch 2.11's profiler prints it, without the comma after it."""
    text = dict.fromkeys(event, "") | {key: json.dumps(value) for key, value in event.items() if key != "args"}
    text["ts"] = f"{event['ts']:.3f}"
    if event["ph"] in ("s", "f"):
        start = (
            f'"ph": {text["ph"]}, "id": {text["id"]}, "pid": {text["pid"]}, "tid": {text["tid"]}, "ts": {text["ts"]}'
        )
        bound = ', "bp": "e"' if "bp" in event else ""
        return f'  {{\n    {start},\n    "cat": {text["cat"]}, "name": {text["name"]}{bound}\n  }}'
    if event["ph"] == "M":
        head = f'"name": {text["name"]}, "ph": "M", "ts": {text["ts"]},' + (
            "\n    " if event["pid"] == "Spans" else " "
        )
        head += f'"pid": {text["pid"]}, "tid": {text["tid"]}'
        return f'  {{\n    {head},\n    "args": {{\n      {_format_args(event["args"])}\n    }}\n  }}'
    if event["ph"] == "i":
        head = f'"name": {text["name"]}, "ph": "i", "s": {text["s"]}'
        return f'  {{\n    {head},\n    "pid": {text["pid"]}, "tid": {text["tid"]}, "ts": {text["ts"]}\n  }}'
    text["dur"] = f"{event['dur']:.3f}"
    if event["cat"] == "Trace":
        head = f'"ph": "X", "cat": "Trace", "ts": {text["ts"]}, "dur": {text["dur"]},\n    "pid": {text["pid"]}, '
        head += f'"tid": {text["tid"]},\n    "name": {text["name"]}'
    else:
        head = ", ".join(f'"{key}": {text[key]}' for key in ("ph", "cat", "name", "pid", "tid"))
        head += f',\n    "ts": {text["ts"]}, "dur": {text["dur"]}'
    if "args" not in event:
        return f"  {{\n    {head}\n  }}"
    return f'  {{\n    {head},\n    "args": {{\n      {_format_timed_args(event)}\n    }}\n  }}'


def _format_timed_args(event: Event) -> str:
    arguments = dict(event["args"])
    if event["cat"] == "Trace":
        return _format_args(arguments)
    outer = f'"External id": {arguments.pop("External id")},' if "External id" in arguments else ""
    if event["cat"] == "cpu_op":
        return outer + _format_args(arguments)
    return outer + "      " + _format_args(arguments, _WIDE)


def _format_args(arguments: Event, wide: tuple[str, ...] = ()) -> str:
    parts = []
    for number, (key, value) in enumerate(arguments.items()):
        if isinstance(value, float):
            value_text = f"{value:.6f}" if key in _FIXED_POINT else f"{value:.17g}"
        else:
            value_text = json.dumps(value)
        parts.append((("," + " " * 6 if key in wide else ", ") if number else "") + f'"{key}": {value_text}')
    return "".join(parts)


def measure_readers(trace: Path, rounds: int) -> dict[str, tuple[float, float]]:
    """The best time in seconds and the peak resident memory in bytes of each reader, in separate processes."""
    results: dict[str, tuple[float, float]] = {}
    for _ in range(rounds):
        for name, code in READERS.items():
            command = [sys.executable, "-c", _PRELUDE + code + _REPORT, str(trace)]
            printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.split()
            seconds, memory = float(printed[0]), float(printed[1])
            before = results.get(name, (seconds, memory))
            results[name] = (min(seconds, before[0]), max(memory, before[1]))
    return results


def benchmark(iterations: int, rounds: int) -> dict[str, Any]:
    """Make the trace, measure both readers on it, delete it. SI units."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        size = write_enlarged_trace(SOURCE, trace, iterations)
        results = measure_readers(trace, rounds)
    (json_time, json_memory), (time, memory) = results["json.load"], results["read_trace"]
    return {
        "trace_bytes": size,
        "json_time_s": json_time,
        "json_memory_bytes": json_memory,
        "read_time_s": time,
        "read_memory_bytes": memory,
        "time_ratio": time / json_time,
        "memory_ratio": memory / json_memory,
        "passed": time <= 0.6 * json_time and memory <= json_memory / 3,
    }


def main() -> int:
    """Print the table; exit code 0 if the reader takes no longer than ``json.load`` and a third of its memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    result = benchmark(options.iterations, options.rounds)
    if options.json:
        print(json.dumps(result))
        return 0 if result["passed"] else 1
    print(f"trace of {options.iterations} iterations, {result['trace_bytes'] / 1e6:.0f} MB")
    print(f"{'':12}{'time':>10}{'peak memory':>14}")
    print(f"{'json.load':12}{result['json_time_s']:>8.2f} s{result['json_memory_bytes'] / 1e6:>11.0f} MB")
    print(f"{'read_trace':12}{result['read_time_s']:>8.2f} s{result['read_memory_bytes'] / 1e6:>11.0f} MB")
    print(f"{'ratio':12}{result['time_ratio']:>8.2f}  {result['memory_ratio']:>11.2f}   ", end="")
    print("as held to (0.60, 0.33)" if result["passed"] else "NOT as held to (0.60, 0.33)")
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
