"""What ``optimize`` is worth: its saving against that of a long search, and by the programs' own stopwatches.

``python scripts/benchmark_optimize.py [--output FOLDER] [--within S] [--budget S] [--gpus 0,1] [--exhaustive]
[NAME...]``, where NAME is one of ``PROGRAMS`` below; without any, all. Each program is searched, and then runs in fresh
processes, in turn: as it is, with ``apply.py`` of the result, and with ``settings.diff`` if there is one (A B C C B A).

``before``, ``after``, ``saved``  what ``optimize`` says, with its interval of 99.9%.
``long``      what a long search saves that nothing bounds (``--exhaustive``), and the share of the logarithm of its
              speed-up that the usual search reaches.
``applied``   the saving by the program's stopwatch with ``apply.py``, the range of its pairs of neighbouring processes,
              and whether it lies in the interval: ``yes``, ``noise`` if only the range meets it, else ``less`` or
              ``more``. ``pasted`` is the same with the changed file.

``--same`` makes ``--searches`` searches over menus that change nothing, and counts those that found something.
``--planted`` searches programs with a bad setting each, and says whether the settings that mend it are kept, beside
the step of the program without it (``twin``). ``--wrong`` searches with settings that compute wrong numbers or fail,
and counts how often one is advised.

``--gpus`` spreads the programs over GPUs of one host, one program on each; those of several ranks take two.
``--within`` limits everything; the same command goes on with what is missing. ``FOLDER`` gets ``NAME.json`` and the
RUNs of each program, and ``table.json``. ``SMALL=1`` makes the programs small enough for a CPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from inductor_bench.errors import InductorBenchError
from inductor_bench.records.optimization import GROUPS, KEPT, UNPROVEN, Optimization
from inductor_bench.store.folder import OptimizationFolder
from scripts.benchmark_defects import Gpus
from scripts.benchmark_programs import RANKS, ROOT, medians, number, print_cells, read_laps, wait_for

ENDLESS = "1000000"
"""Steps of a program in a search, which ends it."""

LAPS_S, FEWEST, MOST = 12.0, 40, 2000
"""Seconds of a fresh process's laps, and how many there are."""

LEAST_S = 25.0
"""Seconds that must be left for a process to be started."""

WHOLE = "--search-all"
"""Before the words of ``inductor-bench``: nothing is bounded, and all that seems faster is proven."""


@dataclass(frozen=True)
class Searched:
    """A program and how it is searched."""

    name: str
    kind: str
    file: str  # below ``scripts``
    words: tuple[str, ...] = ()
    ranks: int = 1
    steps: int = 1  # steps of the tool in one lap of the stopwatch
    mends: tuple[str, ...] = ()  # the groups of settings of which one mends what is planted
    options: tuple[str, ...] = ()  # more options of ``optimize``
    twin: bool = False  # whether ``DEFECT=0`` runs it without what is planted
    base: str = ""  # the name of the program whose RUN is taken

    def command(self, file: Path | None = None, before: Sequence[str] = ()) -> list[str]:
        """What starts it; ``file`` stands for its own, and ``before`` comes before the file."""
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
        path = str(file or ROOT / "scripts" / self.file)
        return [sys.executable, *(torchrun if self.ranks > 1 else []), *before, path, *self.words]


def _defect(kind: str, file: str, name: str, *mends: str) -> Searched:
    return Searched(name, kind, f"{file}.py", (name,), mends=mends, twin=True)


PROGRAMS = (
    Searched("accumulation", "accumulation", "programs/accumulation.py", steps=1),
    Searched("trainer", "fine-tuning", "programs/trainer.py"),
    Searched("convnet", "timm", "programs/convnet.py"),
    Searched("diffusion", "diffusion", "programs/diffusion.py", steps=30),
    Searched("decode", "decode", "programs/decode.py"),
    Searched("small_training", "host-bound", "defects/graphs.py", ("small_training",)),
    Searched("few_ddp", "DDP", "programs/few_ddp.py", ranks=RANKS),
    Searched("blocks", "training", "programs/blocks.py"),
    Searched("classify", "inference", "programs/classify.py"),
    Searched("loader", "data loading", "programs/loader.py"),
)
"""The programs that are searched."""

PLANTED = (
    _defect("foreach off", "defects/eager", "foreach_off", "optimizer"),
    _defect("not fused", "defects/eager", "optimizer_not_fused", "optimizer"),
    _defect("graphs off", "defects/graphs", "small_training", "cudagraphs"),
    _defect("graphs off", "defects/graphs", "small_inference", "cudagraphs"),
    _defect("attention", "planted/attention", "only_math", "attention"),
    _defect("attention", "planted/attention", "only_efficient", "attention"),
    _defect("synchronous loader", "defects/loading", "slow_getitem", "loader"),
    _defect("synchronous loader", "defects/loading", "slow_collate", "loader"),
    _defect("unaligned width", "defects/products", "width_2730", "padding", "max-autotune"),
    _defect("unaligned width", "defects/products", "vocabulary_50257", "padding", "max-autotune"),
)
"""Programs with a bad setting, and the groups of settings that mend it."""

UNCHANGED = (
    *("epilogue_fusion", "split_reductions", "comprehensive_padding", "shape_padding", "layout_optimization"),
    *("triton.persistent_reductions", "pattern_matcher", "loop_ordering_after_fusion"),
)
"""Options of Inductor that ``--same`` sets to what they are."""

BUG = "inductor.triton.inject_relu_bug_TESTING_ONLY"
WRONG = tuple(
    replace(Searched(name, kind, file, words, options=options), name=f"{name}-{kind.replace(' ', '-')}")
    for name, file, words in (
        ("convnet", "programs/convnet.py", ()),
        ("classify", "programs/classify.py", ()),
        ("augmentation", "defects/eager.py", ("augmentation_not_compiled",)),
        ("accumulation", "programs/accumulation.py", ()),
    )
    for kind, options in (
        ("wrong relu", ("--option", f"{BUG}=accuracy")),
        ("failing relu", ("--option", f"{BUG}=runtime_error")),
        ("graphs", ("--option", "inductor.triton.cudagraphs=True")),
    )
)
"""Programs and settings that compute wrong numbers in some of them, or fail."""


def main() -> int:
    if sys.argv[1:2] == [WHOLE]:
        return search_all(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--output", type=Path, help="the folder for the results (runs/optimize, or with the kind)")
    parser.add_argument("--within", type=float, default=3600.0, help="seconds for everything")
    parser.add_argument("--budget", type=float, default=1200.0, help="seconds of a search")
    parser.add_argument("--long-budget", type=float, default=7200.0, help="seconds of a long search")
    parser.add_argument("--gpus", default="", help="GPUs of this host, as in 0,1,2,3")
    parser.add_argument("--exhaustive", action="store_true", help="also searches for long, without bounds")
    parser.add_argument("--pairs", type=int, default=2, help="fresh processes of each kind (2)")
    parser.add_argument("--options", default="", help="more options of optimize, as in '--allow tf32'")
    parser.add_argument("--searches", type=int, default=20, help="searches of --same (20)")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--same", action="store_true", help="menus that change nothing")
    kinds.add_argument("--planted", action="store_true", help="programs with a bad setting")
    kinds.add_argument("--wrong", action="store_true", help="settings that compute wrong numbers")
    options = parser.parse_args()
    kind = "same" if options.same else "planted" if options.planted else "wrong" if options.wrong else ""
    options.output = options.output or Path("runs") / f"optimize{f'-{kind}' if kind else ''}"
    programs = PLANTED if options.planted else WRONG if options.wrong else PROGRAMS
    if unknown := set(options.names) - {program.name for program in programs}:
        known = ", ".join(program.name for program in programs)
        parser.error(f"no such program: {', '.join(sorted(unknown))}. There are: {known}")
    programs = tuple(one for one in programs if not options.names or one.name in options.names)
    if options.same:
        programs = same_searches(programs, options.searches)
    options.output.mkdir(parents=True, exist_ok=True)
    rows = measure_all(programs, options)
    (options.output / "table.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print_table(rows, options)
    return 0


def search_all(words: Sequence[str]) -> int:
    """Runs the command with a menu that nothing bounds."""
    from inductor_bench.analysis.optimization import menu, search
    from inductor_bench.cli.main import main as command

    for module, name, value in (
        (menu, "LEAST_SHARE", -1.0),
        (search, "MOST_FINALISTS", 99),
        (search, "SCREENING", 0.8),
    ):
        assert hasattr(module, name)
        setattr(module, name, value)
    return command(words)


def same_searches(programs: Sequence[Searched], count: int) -> tuple[Searched, ...]:
    """So many searches over options that are set to what they are, program by program, and a variable of no meaning."""
    from torch._inductor import config

    values = config.get_config_copy()
    names = [name for name in UNCHANGED if isinstance(values.get(name), bool)]
    options = [word for name in names for word in ("--option", f"inductor.{name}={values[name]}")]
    options += ["--env", "WITHOUT_MEANING=1", "--deny", ",".join(GROUPS)]
    taken = [programs[place % len(programs)] for place in range(count)]
    return tuple(
        replace(one, name=f"{one.name}-{place // len(programs) + 1}", base=one.name, options=tuple(options))
        for place, one in enumerate(taken)
    )


def measure_all(programs: Sequence[Searched], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of all programs in their order, each with the GPUs that it needs."""
    names = [name for name in options.gpus.split(",") if name]
    gpus, end_s = Gpus(names), time.monotonic() + options.within
    locks = {program.base: threading.Lock() for program in programs}
    jobs: list[Job] = []

    def run(program: Searched) -> None:
        job = Job(program, options, end_s)
        jobs.append(job)
        if names and len(set(names)) < program.ranks:
            job.note(f"not run: it needs {program.ranks} GPUs")
            return
        lent_to: Any = SimpleNamespace(ranks=program.ranks, command=program.command())
        with locks[program.base] if program.base else nullcontext(), gpus.lend(lent_to) as lent:
            job.measure(lent)
        print(" ".join(cells_of(job.row, options)), file=sys.stderr, flush=True)

    with ThreadPoolExecutor(len(names) or 1) as pool:
        list(pool.map(run, programs))
    rows = {job.row["program"]: job.row for job in jobs}
    return [rows[program.name] for program in programs]


class Job:
    """The measurement of one program. Its row is kept as ``NAME.json`` after each stage; what it has is not repeated.

    Args:
        program: the program.
        options: of the command line.
        end_s: when everything has to be over.
    """

    def __init__(self, program: Searched, options: argparse.Namespace, end_s: float) -> None:
        self.program, self._options, self._end_s = program, options, end_s
        self._file = options.output / f"{program.name}.json"
        self.row: dict[str, Any] = {"program": program.name, "kind": program.kind}
        with suppress(OSError, ValueError):
            self.row |= json.loads(self._file.read_text(encoding="utf-8"))
        self.row["note"] = ""
        self._environment: dict[str, str] = {}

    def note(self, text: str) -> None:
        """Notes something in the row, and keeps the row."""
        self.row["note"] = "; ".join(filter(None, (self.row["note"], text)))
        self._keep()

    def _keep(self) -> None:
        self._file.write_text(json.dumps(self.row, indent=1), encoding="utf-8")

    @property
    def left_s(self) -> float:
        """Seconds that are left for everything."""
        return self._end_s - time.monotonic()

    def measure(self, environment: Mapping[str, str]) -> None:
        """Makes the stages that are missing."""
        self._environment = {**environment, "COLUMNS": "160"}
        options, program = self._options, self.program
        run = options.output / f"{program.name}-run"
        if not self._stage("search", lambda: self._search(run, options.budget, whole=False)):
            return
        if not (options.same or options.wrong) and self.row["search"]["settings"]:
            self._stage("processes", lambda: self._run_in_turn(run))
        if program.twin and options.planted:
            self._stage("twin", self._time_twin)
        if options.exhaustive:
            copied = options.output / f"{program.name}-long"
            self._copy_run(run, copied)
            self._stage("long", lambda: self._search(copied, options.long_budget, whole=True))

    def _stage(self, name: str, make: Callable[[], Any]) -> bool:
        """Makes a stage unless it is there; returns whether it is."""
        if self.row.get(name) is not None:
            return True
        if self.left_s < LEAST_S:
            self.note(f"{name}: no time was left")
            return False
        self.row[name] = make()
        self._keep()
        return self.row[name] is not None

    # The search.

    def _search(self, run: Path, budget_s: float, *, whole: bool) -> dict[str, Any] | None:
        """Searches, or goes on with a search; ``None`` if it has not come to its end."""
        program, options = self.program, self._options
        if program.base and not run.exists():
            base = options.output / f"{program.base}-base"
            if not (base / "record.json").exists() and not self._break_down(base):
                return None
            self._copy_run(base, run)
        tool = [str(Path(__file__).resolve()), WHOLE] if whole else ["-m", "inductor_bench"]
        words = ["optimize", "--budget", f"{budget_s:.0f}", "-o", str(run), *program.options, *options.options.split()]
        begin_s, command = time.monotonic(), [sys.executable, *tool, *words, "--", *program.command()]
        said = self._run(command, run.with_suffix(".txt"), endless=True)
        folder = OptimizationFolder(run / "optimized")
        try:
            found = folder.load()
        except InductorBenchError as error:
            self.note(said or error.message)
            return None
        self.row["command_s"] = self.row.get("command_s", 0.0) + time.monotonic() - begin_s
        if not found.is_complete:
            self.note(f"{'long search' if whole else 'search'}: {said or 'it did not come to its end'}")
            return None
        return result_of(found)

    def _break_down(self, run: Path) -> bool:
        """Makes the RUN that several searches of a program share."""
        tool = [sys.executable, "-m", "inductor_bench", "breakdown", "--no-plots", "-o", str(run), "--force"]
        said = self._run([*tool, "--", *self.program.command()], run.with_suffix(".txt"), endless=False)
        if not (run / "record.json").exists():
            self.note(said or "it could not be broken down")
            return False
        return True

    def _copy_run(self, run: Path, copied: Path) -> None:
        if not copied.exists() and (run / "record.json").exists():
            shutil.copytree(run, copied, ignore=shutil.ignore_patterns("optimized", ".lock"))

    def _run(self, command: Sequence[str], log: Path, *, endless: bool, **more: str) -> str:
        """Runs a command within what is left, and keeps what it prints; returns what ended it before its end."""
        environment = {**self._environment, **({"STEPS": ENDLESS} if endless else {}), **more}
        with log.open("a", encoding="utf-8") as stream:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
            )
            return wait_for(process, max(1.0, self.left_s))

    # The program in fresh processes.

    def _run_in_turn(self, run: Path) -> dict[str, list[float]] | None:
        """The step of the program as it is (``A``), with ``apply.py`` (``B``) and with the diff (``C``), in turn."""
        commands = self._commands(run / "optimized")
        found: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(self._options.pairs):
            for name in commands if turn % 2 == 0 else reversed(commands):
                step_s = self._own_step(commands[name], run.with_name(f"{run.name}-{name}.txt"), self._count())
                if step_s is None:
                    return None
                found[name].append(step_s)
        return found

    def _commands(self, optimized: Path) -> dict[str, list[str]]:
        program = self.program
        launcher = optimized.resolve().parent / "with_apply.py"
        launcher.write_text(LAUNCHER.format(folder=str(optimized.resolve())), encoding="utf-8")
        commands = {"A": program.command(), "B": program.command(before=[str(launcher)])}
        diff = optimized / OptimizationFolder.DIFF
        if diff.is_file():
            file = ROOT / "scripts" / program.file
            shutil.copyfile(file, launcher.with_name(file.name))
            for name, change in changes_of(diff.read_text(encoding="utf-8")):
                changed = patched((file.parent / name).read_text(encoding="utf-8"), change)
                launcher.with_name(Path(name).name).write_text(changed, encoding="utf-8")
            commands["C"] = program.command(launcher.with_name(file.name))
        return commands

    def _count(self) -> int:
        """Laps of a fresh process."""
        lap_s = self.row["search"]["before_s"] * self.program.steps
        return max(FEWEST // self.program.steps, 10, min(MOST, math.ceil(LAPS_S / lap_s)))

    def _own_step(self, command: Sequence[str], log: Path, laps: int, **more: str) -> float | None:
        """The median of the second half of the laps of the slowest rank; ``None`` if the program failed."""
        if self.left_s < LEAST_S:
            self.note("fresh processes: no time was left")
            return None
        with tempfile.TemporaryDirectory() as folder:
            scripts = ROOT / "scripts"
            own = ((scripts / self.program.file).parent, scripts / "defects", scripts / "programs")
            paths = os.pathsep.join(filter(None, (*map(str, own), os.environ.get("PYTHONPATH"))))
            # torch's caches do not know the backends of attention, by which some of these programs differ
            cache = self._options.output / f"{self.program.name}-cache{more.get('DEFECT', '')}"
            more |= {"STEPS": str(laps), "STEP_ENDS": folder, "TORCHINDUCTOR_CACHE_DIR": str(cache.resolve())}
            said = self._run(command, log, endless=False, PYTHONPATH=paths, **more)
            laps_s = [medians([("lap", lap_s) for _, lap_s in one["laps"]])["lap"] for one in read_laps(Path(folder))]
        if not laps_s:
            self.note(said or f"a fresh process failed: {log}")
        return max(laps_s, default=None)

    def _time_twin(self) -> float | None:
        log = self._options.output / f"{self.program.name}-twin.txt"
        return self._own_step(self.program.command(), log, self._count(), DEFECT="0")


LAUNCHER = '''"""Runs a program with the settings of ``apply.py``: the module and torch, and nothing else."""

import runpy
import sys

sys.path.insert(0, {folder!r})
import apply

apply.apply()
del sys.path[0], sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
'''


def changes_of(text: str) -> Iterator[tuple[str, str]]:
    """The files that a text in the form of ``diff -u`` changes, each with its own change."""
    parts = re.split(r"^--- a/(.*)\n\+\+\+ b/.*\n", text, flags=re.MULTILINE)
    yield from zip(parts[1::2], parts[2::2], strict=True)


def patched(text: str, change: str) -> str:
    """A text with the change of one file, whose places are exact."""
    lines, place = text.splitlines(keepends=True), 0
    made: list[str] = []
    for line in change.splitlines(keepends=True):
        if line.startswith("@@"):
            begin = int(line.split()[1].split(",")[0].lstrip("-")) - 1
            made += lines[place:begin]
            place = begin
        elif line.startswith("+"):
            made.append(line[1:])
        elif line.startswith(("-", " ")):
            assert lines[place].rstrip("\n") == line[1:].rstrip("\n"), f"line {place + 1} is another one"
            made += [lines[place]] if line.startswith(" ") else []
            place += 1
    return "".join([*made, *lines[place:]])


def result_of(found: Optimization) -> dict[str, Any]:
    """What a search says, in figures."""
    winner = found.winner
    rows = [
        {
            "row": row.slug,
            "state": row.state,
            "reason": row.reason,
            "bound": row.bound,
            "ranked": row.screened.share if row.screened else None,
            "proven": row.proven.share if row.proven else None,
        }
        for row in found.rows
    ]
    gain = winner.gain if winner else None
    return {
        "settings": list(winner.slugs) if winner else [],
        "groups": sorted({row.group for row in found.rows if row.state == KEPT}),
        "before_s": gain.before_s if gain else found.step_time_s,
        "after_s": gain.after_s if gain else found.step_time_s,
        "saved": gain.share if gain else 0.0,
        "low": gain.low if gain else 0.0,
        "high": gain.high if gain else 0.0,
        "expected": winner.expected if winner else None,
        "alone": winner.alone.share if winner and winner.alone else None,
        "tried": len(found.tried),
        "seemed": [row.slug for row in found.rows if row.state == UNPROVEN],
        "spent_s": found.spent_s,
        "processes": len(found.trials),
        "compile_s": winner.compile_time_s if winner else None,
        "memory_bytes": winner.peak_memory_bytes if winner else None,
        "rows": rows,
        "notes": list(found.notes),
    }


# The tables.


def expected_of(search: Mapping[str, Any]) -> tuple[float, float]:
    """The savings that the search expects in new processes; its proof's interval if it does not know."""
    low, high = search.get("expected") or (search["low"], search["high"])
    return low, high


def reproduced(times: Mapping[str, Sequence[float]], name: str, low: float, high: float) -> dict[str, Any]:
    """The saving by the stopwatch, the range of its pairs, and whether it lies in an interval."""
    pairs = [1 - after / before for before, after in zip(times["A"], times[name], strict=True)]
    saved = 1 - statistics.fmean(times[name]) / statistics.fmean(times["A"])
    meets = min(pairs) <= high and max(pairs) >= low
    said = "yes" if low <= saved <= high else "noise" if meets else "less" if saved < low else "more"
    return {"saved": saved, "range": [min(pairs), max(pairs)], "said": said}


def reached(row: Mapping[str, Any]) -> float | None:
    """The share of the logarithm of a long search's speed-up that the usual search reaches."""
    if not row.get("long") or not row.get("search"):
        return None
    usual, whole = (-math.log(1 - row[name]["saved"]) for name in ("search", "long"))
    return usual / whole if whole > 0 else 1.0


COLUMNS = ("program", "kind", "before", "after", "saved", "interval", "settings", "tried", "seconds")


def cells_of(row: Mapping[str, Any], options: argparse.Namespace) -> list[str]:
    """The cells of a program's line."""
    found = row.get("search")
    if not found:
        return [row["program"], row["kind"], *["-"] * (len(COLUMNS) - 2 + len(more_columns(options)) - 1), row["note"]]
    won = bool(found["settings"])
    cells = [row["program"], row["kind"], number(found["before_s"], 1e3), number(found["after_s"], 1e3)]
    cells += [number(found["saved"], 100, "{:.1f}%"), f"{_per(found['low'])} to {_per(found['high'])}" if won else "-"]
    cells += [" + ".join(found["settings"]) or "-", str(found["tried"]), f"{found['spent_s']:.0f}"]
    return [*cells, *_more_cells(row, found, options), row["note"]]


def more_columns(options: argparse.Namespace) -> tuple[str, ...]:
    """The columns that a kind of measurement has of its own."""
    if options.same:
        return ("seemed faster", "note")
    if options.wrong:
        return ("of the planted rows", "note")
    return ("applied", "pasted", *(("mended", "twin") if options.planted else ("long", "reached")), "note")


def _more_cells(row: Mapping[str, Any], found: Mapping[str, Any], options: argparse.Namespace) -> Iterator[str]:
    if options.same:
        yield " ".join(found["seemed"]) or "-"
        return
    if options.wrong:
        own = [one for one in found["rows"] if one["row"].startswith("own-")]
        yield "; ".join(f"{one['state']}: {one['reason']}"[:90] for one in own) or "-"
        return
    for name in "BC":
        times = row.get("processes") or {}
        one = reproduced(times, name, *expected_of(found)) if name in times else None
        yield f"{_per(one['saved'])} ({_per(one['range'][0])} to {_per(one['range'][1])}) {one['said']}" if one else "-"
    if options.planted:
        yield "yes" if is_mended(row) else "NO"
        yield number(row.get("twin"), 1e3)
        return
    whole, share = row.get("long"), reached(row)
    yield f"{_per(whole['saved'])} {' + '.join(whole['settings'])}".strip() if whole else "-"
    yield number(share, 100, "{:.0f}%")


def is_mended(row: Mapping[str, Any]) -> bool:
    """Whether a setting of a group is kept that mends what is planted."""
    mends = next((one.mends for one in PLANTED if one.name == row["program"]), ())
    return bool(row.get("search")) and bool(set(mends) & set(row["search"]["groups"]))


def _per(share: float) -> str:
    return f"{100 * share:.1f}%"


def print_table(rows: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> None:
    """Prints a line for each program, and what they say together."""
    print_cells([[*COLUMNS, *more_columns(options)], *(cells_of(row, options) for row in rows)])
    print()
    for line in summary([row for row in rows if row.get("search")], options):
        print(line)


def summary(rows: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> Iterator[str]:
    """The figures of all programs together."""
    if not rows:
        yield "no search has come to its end"
        return
    if options.same or options.wrong:
        winners = [row for row in rows if _is_advised(row, options)]
        words = "searches over menus that change nothing found" if options.same else "searches advised"
        yield f"{len(winners)} of {len(rows)} {words} a setting{' that is wrong or fails' if options.wrong else ''}"
        return
    ratios = [1 - row["search"]["saved"] for row in rows]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    yield f"together: {_per(1 - mean)} less time in the geometric mean over {len(rows)} programs"
    if options.planted:
        yield f"mended: {sum(map(is_mended, rows))} of {len(rows)}"
    for name, words in (("B", "with apply.py"), ("C", "with settings.diff")):
        known = [row for row in rows if name in (row.get("processes") or {})]
        said = [reproduced(row["processes"], name, *expected_of(row["search"]))["said"] for row in known]
        if said:
            counts = ", ".join(f"{said.count(word)} {word}" for word in ("noise", "less", "more") if word in said)
            yield f"{words}: {said.count('yes')} of {len(said)} in the interval{f' ({counts})' if counts else ''}"
    shares = [share for row in rows if (share := reached(row)) is not None]
    if shares:
        good = sum(share >= 0.9 for share in shares)
        yield f"of the long search's speed-up: at least 90% in {good} of {len(shares)}"


def _is_advised(row: Mapping[str, Any], options: argparse.Namespace) -> bool:
    kept = [one["row"] for one in row["search"]["rows"] if one["state"] == KEPT]
    if options.same:
        return bool(kept)
    wrong = "relu" in row["kind"] or row["program"].startswith("accumulation")
    return wrong and any(slug.startswith("own-") for slug in kept)


def _end(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main())
