"""Compares the predicted DRAM bytes of a program's kernels with those that Nsight Compute counts.

``python scripts/benchmark_dram.py PROGRAM [--work FOLDER] [--ncu NCU] [--cache-bytes N] [--json FILE]``, where PROGRAM
is one of ``scripts/programs``. The program runs twice with one cache of compiled code: observed, for the order and the
addresses of its graph calls, and under ``ncu``, where its stopwatch runs two steps (``NCU_STEP=1``), of which the
second counts. A FOLDER with the results of an earlier call is compared again without a run.

Kernels of one name, and library calls of one graph with equal operators and sizes, are one row. The verdict: of the 30
rows with the longest time, the share of time whose prediction is within 20% of the count, or differs from it by at most
2% of what the fastest row moves in that time, which changes no limit. It is also printed for other shares of the cache
than the tool takes for usable. Reads are also judged separately: what one kernel writes is counted if another one
pushes it out of the cache. Bytes of eager kernels are not predicted: those that ``ncu``
counts between the graph calls pass through the model's cache.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from inductor_bench.analysis.call_work import HELPER_KERNELS
from inductor_bench.analysis.residence import (
    DEVICE_CACHE,
    CacheRules,
    StepCall,
    Traffic,
    describe_buffers,
    lay_out_step,
    simulate_step_traffic,
)
from inductor_bench.devices.hardware_counters import DRAM, TIME, read_named_rows
from inductor_bench.records.code import CallSite, ModuleBuffers, ModuleSource
from inductor_bench.records.evidence import GraphCallTouches, ObservedSteps, ObservedTouches
from inductor_bench.source.module_reader import read_module
from inductor_bench.store import codec
from inductor_bench.workflows.kernels.kernel_session import INSTALL_PATTERNS
from inductor_bench.workflows.modules.compile_environment import SETTINGS

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "inductor_bench" / "worker" / "capture" / "site"
CSV = "ncu.csv"
ROWS = 30
TOLERANCE, NEGLIGIBLE = 0.2, 0.02
ENOUGH_STEPS = "200"
"""Number of steps in which an observation ends."""

SHARES = (1.0, 0.9, 0.8, 0.7, DEVICE_CACHE.usable, 0.5, 0.4, 0.3)
EAGER = re.compile(r"at::native|at::cuda|CUDAFunctor|^Mem(cpy|set)|multi_tensor")
"""Names of kernels that eager operators launch; library kernels of the same kinds are found by their neighbours."""


@dataclass(frozen=True)
class DramTraffic:
    """The bytes that one device kernel read from DRAM, and those that were written to DRAM while it ran."""

    name: str
    read: float
    written: float
    time_s: float


def read_dram_traffic(text: str) -> tuple[DramTraffic, ...]:
    """Reads the DRAM bytes of each device kernel, in the order of launches. Kernels without a count are left out."""
    return tuple(
        DramTraffic(name, row[DRAM[0]], row[DRAM[1]], row.get(TIME, 0.0))
        for name, row in read_named_rows(text)
        if row.keys() >= set(DRAM)
    )


@dataclass(frozen=True)
class Site:
    """One call site in the step: the number of the graph's call, the module, and the call in the module."""

    number: int
    path: str
    call: CallSite
    event_name: str
    """The kernel's name in a profile; empty for a library call."""


@dataclass
class Row:
    """Seconds and bytes of a step, over all calls of one kernel or of equal library calls."""

    name: str
    calls: int = 0
    time_s: float = 0.0
    counted_read: float = 0.0
    counted_written: float = 0.0
    predicted_read: float = 0.0
    predicted_written: float = 0.0
    touched: float = 0.0

    @property
    def counted(self) -> float:
        return self.counted_read + self.counted_written

    @property
    def predicted(self) -> float:
        return self.predicted_read + self.predicted_written

    def is_close(self, rate: float, *, reads: bool = False) -> bool:
        """Whether the prediction is close to the count, all bytes or the read ones; ``rate`` is in bytes per second."""
        predicted, counted = (self.predicted_read, self.counted_read) if reads else (self.predicted, self.counted)
        return abs(predicted - counted) <= max(TOLERANCE * counted, NEGLIGIBLE * rate * self.time_s)


@dataclass(frozen=True)
class Observed:
    """The step of the observed program."""

    paths: tuple[str, ...]
    touches: ObservedTouches
    sources: Mapping[str, ModuleSource]
    buffers: Mapping[str, ModuleBuffers]

    def path(self, call: GraphCallTouches) -> str:
        return self.paths[call.graph]

    def sites(self) -> Iterator[Site]:
        """The call sites of the step that may launch a kernel, in order."""
        for number, call in enumerate(self.touches.calls):
            path = self.path(call)
            source = self.sources.get(path)
            events = {kernel.name: kernel.event_name for kernel in source.kernels} if source else {}
            for site in source.calls if source else ():
                kernel = site.kernel or next(iter(site.alternatives), "")
                yield Site(number, path, site, events.get(kernel, ""))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--ncu")
    parser.add_argument("--cache-bytes", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    work = (options.work or ROOT / "runs" / f"dram-{options.program.stem}").resolve()
    if not (work / CSV).is_file():
        _run(options.program.resolve(), work, options.ncu or _find_ncu())
    observed = read_observed(work)
    kernels = last_step(read_dram_traffic((work / CSV).read_text(encoding="utf-8", errors="replace")))
    if not kernels:
        print(f"ncu counted no kernel: see {work / CSV}", file=sys.stderr)
        return 1
    rows = report(observed, kernels, options.cache_bytes or _cache_bytes())
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0


# The two runs


def _run(program: Path, work: Path, ncu: str) -> None:
    shutil.rmtree(work, ignore_errors=True)
    (work / "observed").mkdir(parents=True)
    named = {name: SETTINGS[name] for name in ("TORCHINDUCTOR_UNIQUE_KERNEL_NAMES", "TORCHINDUCTOR_BENCHMARK_KERNEL")}
    environment = {"STEPS": ENOUGH_STEPS, **os.environ, **named}  # Inductor's counts of bytes are in its benchmarks
    environment |= {"TORCHINDUCTOR_CACHE_DIR": str(work / "cache"), "LC_ALL": "C"}
    found = f"{SITE}{os.pathsep}{ROOT}"
    observing = {"INDUCTOR_BENCH_CAPTURE": str(work / "observed"), "PYTHONPATH": found}
    print("observing the program", flush=True)
    subprocess.run([sys.executable, program.name], cwd=program.parent, env=environment | observing, check=True)
    # Compile processes are no programs to count, and the code is in the cache.
    counting = {"NCU_STEP": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    options = ["--target-processes", "application-only", "--profile-from-start", "off"]
    options += ["--clock-control", "none", "--cache-control", "none"]
    options += ["--replay-mode", "kernel", "--graph-profiling", "node", "--csv", "--page", "raw"]
    options += ["--print-units", "base", "--metrics", ",".join((*DRAM, TIME))]
    print("counting two steps of the program", flush=True)
    with (work / CSV).open("w") as out:
        command = [ncu, *options, sys.executable, program.name]
        subprocess.run(command, cwd=program.parent, env=environment | counting, stdout=out, check=True)


def _find_ncu() -> str:
    installed = [place for pattern in INSTALL_PATTERNS for place in sorted(glob.glob(pattern), reverse=True)]
    found = [place for place in (shutil.which("ncu"), *installed) if place]
    if not found:
        raise SystemExit("Nsight Compute is not installed: name it with --ncu")
    return found[0]


def _cache_bytes() -> int:
    import torch

    return int(torch.cuda.get_device_properties(0).L2_cache_size)


# The comparison


def last_step(kernels: Sequence[DramTraffic]) -> Sequence[DramTraffic]:
    """The kernels of the second of two counted steps."""
    return kernels[len(kernels) // 2 :]


def read_observed(work: Path) -> Observed:
    """The observed step, from the files that the observation left."""
    folder = work / "observed"
    file = next(folder.glob("*.touches.json"), None)
    if file is None:
        raise SystemExit(f"the observation of the program noted no step: see {folder}")
    touches = codec.decode(ObservedTouches, json.loads(file.read_text()))
    steps_file = file.with_name(file.name.replace(".touches.", ".steps."))
    steps = codec.decode(ObservedSteps, json.loads(steps_file.read_text()))
    texts = {path: Path(path).read_text() for graph in steps.graphs if (path := graph.path)}
    sources = {path: read_module(text) for path, text in texts.items()}
    buffers = {path: describe_buffers(text, sources[path]) for path, text in texts.items()}
    return Observed(tuple(graph.path for graph in steps.graphs), touches, sources, buffers)


def report(observed: Observed, kernels: Sequence[DramTraffic], cache_bytes: int) -> list[Row]:
    """Prints the comparison and returns the rows that the tool predicts, the longest first."""
    sites = list(observed.sites())
    tied = tie(sites, kernels)
    in_graphs = sum(kernels[place].time_s for places in tied.values() for place in places)
    total = sum(kernel.time_s for kernel in kernels)
    eager = bytes_between(sites, tied, kernels)
    rows: list[Row] = []
    verdicts = []
    for usable in SHARES:
        found = rows_of(observed, sites, tied, kernels, cache_bytes, usable, eager)
        rows = found if usable == DEVICE_CACHE.usable else rows
        most = found[:ROWS]
        rate = max((row.counted / row.time_s for row in most), default=0.0)
        time_s = sum(row.time_s for row in most) or 1.0
        close, read = (
            sum(row.time_s for row in most if row.is_close(rate, reads=reads)) / time_s for reads in (False, True)
        )
        verdicts.append(
            f"{usable * cache_bytes / 1e6:8.1f} MB of cache: {close:6.1%} of the time within {TOLERANCE:.0%}, "
            f"{read:6.1%} by the bytes read"
        )
    rate = max((row.counted / row.time_s for row in rows[:ROWS]), default=0.0)
    print(f"{len(kernels)} kernels, {total * 1e3:.3f} ms; tied to call sites: {in_graphs / total:.1%} of the time")
    print(f"{'time µs':>9} {'calls':>5} {'counted MB':>22} {'predicted MB':>22} {'ratio':>6}  kernel")
    for row in rows[:ROWS]:
        ratio = row.predicted / row.counted if row.counted else float("inf")
        counted = f"{row.counted_read / 1e6:9.2f} r {row.counted_written / 1e6:8.2f} w"
        predicted = f"{row.predicted_read / 1e6:9.2f} r {row.predicted_written / 1e6:8.2f} w"
        mark = " " if row.is_close(rate) else "!"
        print(f"{row.time_s * 1e6:9.1f} {row.calls:5} {counted} {predicted} {ratio:6.2f}{mark} {row.name[:80]}")
    for name in ("counted", "predicted"):
        print(f"{name} in all: {sum(getattr(row, name) for row in rows) / 1e6:.1f} MB")
    print("\n".join(verdicts))
    return rows


def rows_of(
    observed: Observed,
    sites: Sequence[Site],
    tied: Mapping[int, Sequence[int]],
    kernels: Sequence[DramTraffic],
    cache_bytes: int,
    usable: float,
    eager: Mapping[int, int],
) -> list[Row]:
    """The rows of the tied call sites with this share of the cache, the longest first."""
    step = lay_out_step(observed.paths, observed.touches, observed.buffers, eager)
    found = simulate_step_traffic(step, cache_bytes, CacheRules(usable))
    calls = [traffic for item, traffic in zip(step, found, strict=True) if isinstance(item, StepCall)]
    known = (number for number, call in enumerate(observed.touches.calls) if observed.path(call) in observed.buffers)
    places = {number: place for place, number in enumerate(known)}
    rows: dict[str, Row] = {}
    for place, members in tied.items():
        site = sites[place]
        traffic = calls[places[site.number]][site.call.index] or Traffic()
        name = site.event_name or f"{site.call.operator} {traffic.touched_bytes / 1e6:.2f} MB ({Path(site.path).stem})"
        row = rows.setdefault(name, Row(name))
        row.calls += 1
        row.time_s += sum(kernels[member].time_s for member in members)
        row.counted_read += sum(kernels[member].read for member in members)
        row.counted_written += sum(kernels[member].written for member in members)
        row.predicted_read += traffic.dram_read
        row.predicted_written += traffic.dram_written
        row.touched += traffic.touched_bytes
    return sorted(rows.values(), key=lambda row: -row.time_s)


def tie(sites: Sequence[Site], kernels: Sequence[DramTraffic]) -> dict[int, list[int]]:
    """The kernels of each call site, by their places.

    Generated kernels are tied by their names in order. What runs between two of them belongs to the library calls
    between them: all of it to a single call, one kernel each (and the helpers after it) to several.
    """
    names = {site.event_name for site in sites if site.event_name}
    generated = [place for place, kernel in enumerate(kernels) if plain_name(kernel.name) in names]
    expected = [place for place, site in enumerate(sites) if site.event_name]
    matcher = SequenceMatcher(
        None,
        [sites[place].event_name for place in expected],
        [plain_name(kernels[place].name) for place in generated],
        autojunk=False,
    )
    pairs = [
        (expected[block.a + offset], generated[block.b + offset])
        for block in matcher.get_matching_blocks()
        for offset in range(block.size)
    ]
    tied = {site: [kernel] for site, kernel in pairs}
    ends = [*pairs, (len(sites), len(kernels))]
    for (site, kernel), (next_site, next_kernel) in zip([(-1, -1), *pairs], ends, strict=True):
        libraries = [place for place in range(site + 1, next_site) if not sites[place].event_name]
        between = [place for place in range(kernel + 1, next_kernel) if plain_name(kernels[place].name) not in names]
        tied |= _tie_libraries(libraries, between, kernels)
    return dict(sorted(tied.items()))


def _tie_libraries(
    libraries: Sequence[int], between: Sequence[int], kernels: Sequence[DramTraffic]
) -> dict[int, list[int]]:
    own = [place for place in between if not EAGER.search(kernels[place].name)] or list(between)
    if len(libraries) == 1 and own:
        return {libraries[0]: own}
    groups: list[list[int]] = []
    for place in own:
        if groups and HELPER_KERNELS.search(kernels[place].name):
            groups[-1].append(place)
        else:
            groups.append([place])
    return dict(zip(libraries, groups, strict=True)) if len(groups) == len(libraries) else {}


def bytes_between(
    sites: Sequence[Site], tied: Mapping[int, Sequence[int]], kernels: Sequence[DramTraffic]
) -> dict[int, int]:
    """DRAM's bytes of the kernels between graph calls, by the number of the call that follows."""
    owners = {member: sites[site].number for site, members in tied.items() for member in members}
    last = max(owners.values(), default=-1)
    found: defaultdict[int, float] = defaultdict(float)
    following = last + 1
    for place in reversed(range(len(kernels))):
        following = owners.get(place, following)
        if place not in owners:
            found[following] += kernels[place].read + kernels[place].written
    return {number: round(size) for number, size in found.items()}


def plain_name(name: str) -> str:
    """The name of a kernel without its parameters."""
    return name.partition("(")[0].strip()


if __name__ == "__main__":
    sys.exit(main())
