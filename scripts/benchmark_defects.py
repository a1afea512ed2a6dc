"""What the findings are worth: programs with one planted defect each, and programs without one.

``python scripts/benchmark_defects.py [--output FOLDER] [--within S] [--limit S] [--jobs N] [--gpus 0,1] [--cpu]
[--alone] [NAME...]``, where NAME is a program of ``scripts/defects`` or a file there without ``.py``; without any, all.
Each is broken down once, and the first three findings on its screen are compared with what the program declares. Only
kinds, figures and places are compared, never sentences.

``expected``  the kinds of findings that find the defect; a dash for a program without one.
``first three``  the findings in the order of the screen, with the simulated savings as shares of the step.
              ``+`` finds the defect, ``=``
              is declared to be true beside it, ``-`` is false, and ``.`` is not judged: it is worth less than 3% of
              the step, or says how far a kernel is from its roof. What is said of the measurement itself is left out.
``rank``      the place of the first one that finds the defect.
``place``     whether one that finds it names a line marked with ``# defect``, or a name that the program declares.
``share``     its share against the least one that is declared.

Recall is the share of the defects that are found, precision that of the judged findings that are not false.
``--alone`` breaks nothing down: it runs each program by itself with its defect, without it, and with its defect under
CUDA graphs (``TORCHINDUCTOR_CUDAGRAPHS=1``), and prints what the defect costs and what CUDA graphs save by the
program's own stopwatch. ``--gpus`` spreads the programs over GPUs of one host, one program on each; those
of several ranks take two. A GPU that is named twice runs two programs at a time. ``--twins`` breaks down the programs
with ``DEFECT=0``, which have no defect then: only precision is left. ``--cpu`` leaves out programs whose defect is none
on a CPU.

``FOLDER`` gets ``table.json``, and of each program the screen and what the tool printed beside it; ``--keep`` also
keeps the RUNs there.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from inductor_bench.analysis.findings.finding import ADVICE, CAUTION, Finding
from inductor_bench.analysis.findings.first_line import write_first_line
from inductor_bench.analysis.findings.rule_table import MEASUREMENT, find_saving_s, list_findings_beside
from inductor_bench.analysis.step_costs import compute_whole_time_s, is_uncompiled, runs_on_host
from inductor_bench.errors import InductorBenchError
from inductor_bench.records.run import Run
from inductor_bench.report.document import Block, Fold, Items, Section, ShownIn, keep_shown_blocks
from inductor_bench.report.run.run_document import run_document
from inductor_bench.report.run.run_words import write_sentence
from inductor_bench.store.folder import RunFolder
from scripts.benchmark_programs import (
    GRACE_S,
    LEAST_S,
    RANKS,
    ROOT,
    compare,
    environment_of,
    number,
    observe,
    print_cells,
    read_laps,
    read_record,
)

FOLDER = ROOT / "scripts" / "defects"
FIRST = 3
LEAST_SHARE = 0.03
"""Share of the step from which advice is judged."""

KERNELS = frozenset(
    (
        *("below-memory-limit", "below-compute-limit", "library-below-limit", "few-blocks", "hotspot"),
        *("short-kernels", "spills", "other"),
    )
)
"""Kinds of findings about kernels and their roofs, which no program here decides."""

NOT_COMPILED = "not-compiled"

KINDS = {"defect": "also", "clean": "may"}
"""The decorators of ``scripts/defects/frame.py``, and where each says what is true beside the defect."""


@dataclass(frozen=True)
class Program:
    """A program of ``scripts/defects`` and what it declares."""

    name: str
    file: Path
    ids: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    share: float = 0.0
    cpu: bool = False
    text: str = ""
    """The source of the program and of what it uses of its file."""

    @property
    def ranks(self) -> int:
        return RANKS if "DistributedDataParallel" in self.text else 1

    @property
    def command(self) -> list[str]:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
        return [sys.executable, *(launcher if self.ranks > 1 else []), str(self.file), self.name]


def read_programs() -> dict[str, Program]:
    """All programs by name, those with a defect first."""
    found = [program for file in sorted(FOLDER.glob("*.py")) for program in read_file(file)]
    return {program.name: program for program in sorted(found, key=lambda one: not one.ids)}


def read_file(file: Path) -> Iterator[Program]:
    """The programs of a file, from its text alone."""
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    marked = [place for place, line in enumerate(text.splitlines(), 1) if line.endswith("# defect")]
    constants: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple | ast.Constant):
            with suppress(NameError):
                constants[node.targets[0].id] = _value(node.value, constants)  # type: ignore[attr-defined]
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    inside = {place for node in defined.values() for place in range(node.lineno, (node.end_lineno or 0) + 1)}
    for node in defined.values():
        for call in node.decorator_list:
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in KINDS):
                continue
            said = {word.arg: _value(word.value, constants) for word in call.keywords if word.arg}
            said["also"] = said.pop(KINDS[call.func.id], ())
            used = [defined[name] for name in _used(node.name, defined)]
            lines = [place for place in marked if any(one.lineno <= place <= (one.end_lineno or 0) for one in used)]
            lines += [place for place in marked if place not in inside]
            said |= {"ids": tuple(_value(one, constants) for one in call.args), "lines": tuple(lines)}
            said.setdefault("cpu", not said["ids"])
            yield Program(node.name, file, text="\n".join(map(ast.unparse, used)), **said)


def _value(node: ast.expr, constants: Mapping[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "declaration", "eval"), {"__builtins__": {}}, dict(constants))


def _used(name: str, defined: Mapping[str, ast.AST]) -> set[str]:
    """The functions and classes of a file that one of them uses, itself and those that they use."""
    used, left = set(), [name]
    while left:
        used.add(here := left.pop())
        words = {node.id for node in ast.walk(defined[here]) if isinstance(node, ast.Name)}
        left += [word for word in words & defined.keys() if word not in used]
    return used


class Gpus:
    """Lends GPUs to programs, each as often as it is named. Without names, programs take what they see."""

    def __init__(self, names: Sequence[str]) -> None:
        self._free = list(names)
        self._named = bool(names)
        self._change = threading.Condition()

    @contextmanager
    def lend(self, program: Program) -> Iterator[dict[str, str]]:
        """The environment of a program, once there are GPUs for it."""
        if not self._named:
            yield environment_of(program.command)
            return
        with self._change:
            self._change.wait_for(lambda: len(set(self._free)) >= program.ranks)
            taken = list(dict.fromkeys(self._free))[: program.ranks]
            for name in taken:
                self._free.remove(name)
        try:
            yield {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(taken)}
        finally:
            with self._change:
                self._free += taken
                self._change.notify_all()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--output", type=Path, default=Path("runs/defects"), help="the folder for the results")
    parser.add_argument("--keep", action="store_true", help="keeps the RUNs in the folder, too")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for each program")
    parser.add_argument("--within", type=float, default=3600.0, help="seconds for all programs")
    parser.add_argument("--jobs", type=int, default=0, help="programs at a time (default: one on each of --gpus)")
    parser.add_argument("--gpus", default="", help="GPUs of this host, as in 0,1,2,3")
    parser.add_argument("--cpu", action="store_true", help="only programs whose defect is one on a CPU")
    parser.add_argument("--twins", action="store_true", help="the programs with a defect, without it")
    parser.add_argument("--alone", action="store_true", help="what the defects cost by the programs' own stopwatches")
    options = parser.parse_args()
    programs = chosen(read_programs(), options.names)
    if not programs:
        parser.error(f"no such program: {', '.join(options.names)}")
    if options.twins:
        programs = [dataclasses.replace(program, ids=()) for program in programs if program.ids]
    if options.cpu:
        programs = [program for program in programs if program.cpu]
    options.output.mkdir(parents=True, exist_ok=True)
    rows = run_all(programs, options)
    (options.output / "table.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if options.alone:
        print_costs(rows)
    else:
        print_table(rows)
    return 0


def chosen(programs: Mapping[str, Program], names: Sequence[str]) -> list[Program]:
    """The programs of these names or files; none if a name is unknown."""
    wanted = {Path(name).stem for name in names}
    if wanted - {*programs, *(program.file.stem for program in programs.values())}:
        return []
    return [one for one in programs.values() if not wanted or wanted & {one.name, one.file.stem}]


def run_all(programs: Sequence[Program], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of all programs in their order; ``table.json`` has those that are there, after each one."""
    names = [name for name in options.gpus.split(",") if name]
    gpus, end_s = Gpus(names), time.monotonic() + options.within
    rows: dict[str, dict[str, Any]] = {}
    lock = threading.Lock()

    def run(program: Program) -> None:
        if names and len(names) < program.ranks:
            row = {**declared(program), "note": f"not run: it needs {program.ranks} GPUs"}
        else:
            with gpus.lend(program) as lent:
                environment = {**lent, **({"DEFECT": "0"} if options.twins else {})}
                row = measure(program, options, environment, end_s - time.monotonic())
        with lock:
            rows[program.name] = row
            done = [rows[one.name] for one in programs if one.name in rows]
            (options.output / "table.json").write_text(json.dumps(done, indent=1), encoding="utf-8")
            print(progress(row), file=sys.stderr, flush=True)

    with ThreadPoolExecutor(options.jobs or len(names) or 1) as pool:
        list(pool.map(run, programs))
    return [rows[program.name] for program in programs]


def declared(program: Program) -> dict[str, Any]:
    """What a row says of a program that has not run."""
    return {
        "program": program.name,
        "file": program.file.stem,
        "ids": program.ids,
        "also": program.also,
        "least_share": program.share,
        "note": "",
        "first": [],
    }


def measure(
    program: Program, options: argparse.Namespace, environment: Mapping[str, str], left_s: float
) -> dict[str, Any]:
    """The row of one program, which has at most ``left_s`` seconds."""
    row = declared(program)
    if left_s < LEAST_S + GRACE_S:
        return row | {"note": "not run: no time was left"}
    limit_s = min(options.limit, left_s - GRACE_S)
    if options.alone:
        return row | cost_alone(program, environment, limit_s)
    with tempfile.TemporaryDirectory() as temporary:
        run = options.output / program.name if options.keep else Path(temporary) / program.name
        laps, output = Path(temporary), options.output / program.name
        row |= observe(program.command, run, laps, output, limit_s, ["--no-plots"], environment)
        own = compare(read_record(run), read_laps(laps), row)
        row |= {"note": own.get("note") or row["note"]}
        row |= {name: own.get(name) for name in ("step_s", "own_step_s", "deviation")}
        try:
            return row | judge(program, RunFolder(run).load())
        except InductorBenchError as error:
            return row | {"note": row["note"] or f"no record: {error.message}"}


# What the screen says first, and whether it is right.


def first_findings(run: Run) -> list[Finding]:
    """The first findings about the program, in the order of the screen: the first line, if it is one, then the list."""
    lead, texts = write_first_line(run), set(shown_texts(run_document(run).blocks))
    every = (one for one in list_findings_beside(run, lead) if one.level in (ADVICE, CAUTION))
    shown = [one for one in every if any(text.startswith(write_sentence(one.text, run)) for text in texts)]
    lines = [lead] if lead is not None and lead.kind not in MEASUREMENT else []
    if lead is not None and is_uncompiled(run) and all(one.kind != NOT_COMPILED for one in (lead, *shown)):
        lines = [dataclasses.replace(lead, kind=NOT_COMPILED)]
    return [*lines, *(one for one in shown if one.kind not in MEASUREMENT)][:FIRST]


def shown_texts(blocks: Sequence[Block]) -> Iterator[str]:
    """The entries of all lists that a terminal shows."""
    for block in keep_shown_blocks(blocks, ShownIn.TERMINAL):
        if isinstance(block, Section | Fold):
            yield from shown_texts(block.blocks)
        elif isinstance(block, Items):
            yield from (one.text for one in block.entries if one.on & ShownIn.TERMINAL)


def judge(program: Program, run: Run) -> dict[str, Any]:
    """The first findings with what each is worth, and whether they find the defect."""
    whole_s, first = compute_whole_time_s(run), first_findings(run)
    found = [
        {
            "kind": one.kind,
            "level": one.level,
            "share": find_saving_s(one, run) / whole_s if whole_s and (one.gain_s or one.prediction) else None,
            "place": names_place(program, one, run) if one.kind in program.ids else None,
        }
        for one in first
    ]
    declared = declared_on_host(program) if runs_on_host(run) else program
    for one in found:
        one["verdict"] = verdict(declared, one)
    ranks = [rank for rank, one in enumerate(found, 1) if one["verdict"] == "+"]
    placed = [bool(found[rank - 1]["place"]) for rank in ranks]
    shares = [found[rank - 1]["share"] for rank in ranks if found[rank - 1]["share"] is not None]
    return {
        "first": found,
        "rank": ranks[0] if ranks else None,
        "place": any(placed) if ranks else None,
        "share": max(shares, default=None),
    }


def declared_on_host(program: Program) -> Program:
    """What a program declares on a CPU, where those that do not set the type of their products are in float32."""
    if "set_float32_matmul_precision" in program.text:
        return program
    return dataclasses.replace(program, also=(*program.also, "full-float32"))


def verdict(program: Program, found: Mapping[str, Any]) -> str:
    """``+`` finds the defect, ``=`` is true beside it, ``-`` is false, ``.`` is not judged."""
    if found["kind"] in program.ids:
        return "+"
    if found["kind"] in program.also:
        return "="
    little = found["level"] == ADVICE and (found["share"] or 0.0) < LEAST_SHARE
    return "." if little or found["kind"] in KERNELS else "-"


def names_place(program: Program, finding: Finding, run: Run) -> bool:
    """Whether a finding names a marked line or a declared name; any place is right if the program declares none."""
    if not program.lines and not program.names:
        return True
    words = list(words_of(dataclasses.asdict(finding)))
    words += [module.label for module in run.modules if module.slug in finding.modules]
    text = "\n".join(words)
    lines = (rf"{re.escape(program.file.name)}:{line}(?!\d)" for line in program.lines)
    return any(
        re.search(one, text) for one in (*lines, *(rf"(?<!\w){re.escape(name)}(?!\w)" for name in program.names))
    )


def words_of(value: Any) -> Iterator[str]:
    """All texts in the fields of a finding; a file and a line beside each other as ``file:line``."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        if "file" in value and "line" in value:
            yield f"{value['file']}:{value['line']}"
        for one in value.values():
            yield from words_of(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from words_of(one)


# What a defect costs by the program's own stopwatch.


def cost_alone(program: Program, environment: Mapping[str, str], limit_s: float) -> dict[str, Any]:
    """The mean step with the defect and without it, its share of the step, and that which CUDA graphs save."""
    with_s = own_mean_s(program, {**environment, "DEFECT": "1"}, limit_s)
    without_s = own_mean_s(program, {**environment, "DEFECT": "0"}, limit_s) if program.ids else None
    graphs_s = own_mean_s(program, {**environment, "DEFECT": "1", "TORCHINDUCTOR_CUDAGRAPHS": "1"}, limit_s)
    found: dict[str, Any] = {"with_s": with_s, "without_s": without_s, "graphs_s": graphs_s}
    if with_s is None or (without_s is None and program.ids):
        return found | {"note": "failed, or took too long"}
    return found | ({"cost": 1 - without_s / with_s} if without_s else {})


def own_mean_s(program: Program, environment: Mapping[str, str], limit_s: float) -> float | None:
    """The mean of the second half of the laps of the slowest rank; ``None`` if the program failed."""
    with tempfile.TemporaryDirectory() as laps:
        process = subprocess.Popen(
            program.command,
            env={**environment, "STEP_ENDS": laps},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        times = [[seconds for _, seconds in one["laps"]] for one in read_laps(Path(laps))]
    return max((statistics.fmean(one[len(one) // 2 :]) for one in times), default=None)


# The tables.


def progress(row: Mapping[str, Any]) -> str:
    """One line about a program that has run."""
    if "with_s" in row:
        return " ".join(cost_cells(row))
    said = " ".join(f"{one['verdict']}{one['kind']}" for one in row["first"]) or "nothing"
    return f"{row['program']}: {said} {row['note']} ({row.get('seconds', 0.0):.0f} s)"


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints a line for each program, and what precision and recall are, in all and by kind."""
    title = ("program", "expected", "first three", "rank", "place", "share", "step ms", "s", "note")
    print_cells([title, *map(cells_of, rows)])
    print()
    for line in summary(rows):
        print(line)


def cells_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of a program's line."""
    said = [f"{one['verdict']}{one['kind']} {number(one['share'], 100, '{:.0f}%')}" for one in row["first"]]
    least = f"{number(row.get('share'), 100, '{:.0f}')} of {100 * row['least_share']:.0f}%"
    return (
        row["program"],
        " ".join(row["ids"]) or "-",
        ", ".join(said) or "-",
        str(row.get("rank") or "-"),
        {True: "yes", False: "no"}.get(row.get("place"), "-"),
        least if row.get("rank") else "-",
        number(row.get("step_s"), 1e3, "{:.2f}"),
        number(row.get("seconds"), 1, "{:.0f}"),
        row["note"],
    )


def summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Recall, places and precision, in all and by the first kind that each program expects."""
    ran = [row for row in rows if not row["note"].startswith("not run")]
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in ran:
        groups[row["ids"][0] if row["ids"] else "without a defect"].append(row)
    yield f"all: {figures(ran)}"
    for kind, members in sorted(groups.items()):
        yield f"  {kind}: {figures(members)}"


def figures(rows: Sequence[Mapping[str, Any]]) -> str:
    """Recall, places and precision of some programs."""
    planted = [row for row in rows if row["ids"]]
    found = [row for row in planted if row.get("rank")]
    verdicts = [one["verdict"] for row in rows for one in row["first"]]
    judged = [one for one in verdicts if one != "."]
    words = [f"recall {share_of(len(found), len(planted))}"] if planted else []
    words += [f"places {share_of(sum(bool(row['place']) for row in found), len(planted))}"] if planted else []
    words += [f"precision {share_of(sum(one != '-' for one in judged), len(judged))}"]
    return ", ".join(words) + (f"; {len(verdicts) - len(judged)} not judged" if len(verdicts) > len(judged) else "")


def share_of(part: int, whole: int) -> str:
    return f"{part / whole:.2f} ({part} of {whole})" if whole else "- (none)"


def print_costs(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints what each defect costs, against the least that is declared."""
    titles = ("program", "with ms", "without ms", "cost", "declared", "", "graphs ms", "save", "note")
    print_cells([titles, *map(cost_cells, rows)])


def cost_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of a program's line in the table of costs."""
    cost, least, graphs_s = row.get("cost"), row["least_share"], row.get("graphs_s")
    return (
        row["program"],
        number(row.get("with_s"), 1e3),
        number(row.get("without_s"), 1e3),
        number(cost, 100, "{:.1f}%"),
        f"{100 * least:.0f}%" if row["ids"] else "-",
        "" if cost is None else "ok" if cost >= least else "LESS",
        number(graphs_s, 1e3),
        number(1 - graphs_s / row["with_s"], 100, "{:.1f}%") if graphs_s and row["with_s"] else "-",
        row["note"],
    )


if __name__ == "__main__":
    sys.exit(main())
