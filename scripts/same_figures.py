# ruff: noqa: E402
"""Renders all recorded and built results in all formats, and compares the figures of two such folders.

``python scripts/same_figures.py render FOLDER`` writes what every verb prints and every report file holds: for the RUNs
and the batch in ``tests/data``, and for what the builders in ``tests/support`` make. Nothing is measured.
``python scripts/same_figures.py compare BEFORE AFTER`` compares two folders, which two versions of the code rendered:
each result and format must hold the same numbers, as often; words may differ. A file of one side that the other lacks,
and each number that is gone, rarer, or more often there, is listed. The exit code is 1 if a file or a number is
gone. A terminal cuts long names, so its figures are those of four widths together.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(ROOT / "tests")]

import compared_runs
import mode_rows
import run_builder
import step_runs
from h200 import run_of, unpack_batch
from inline import make

from inductor_bench.analysis.comparison_run import compare_runs
from inductor_bench.analysis.statistics import summarize
from inductor_bench.cli.main import main as run_command
from inductor_bench.records.base import Category, Failure
from inductor_bench.records.comparison import (
    AGREES,
    Agreement,
    DeviceWork,
    ModelModes,
    ModesByModel,
    Pairing,
    TimedPair,
)
from inductor_bench.records.module import ExtractedKernel
from inductor_bench.records.retune import HardwareCounters, MeasuredKernel, Ratio, TriedCandidate, Tuning
from inductor_bench.records.run import Environment, Peaks, Run
from inductor_bench.report import comparison_document, kernel_document, modes_document, table_documents
from inductor_bench.report.document import Document
from inductor_bench.report.formats import Formats, View
from inductor_bench.report.run import proof_document, run_document
from inductor_bench.report.run.run_document import write_report
from inductor_bench.report.terminal import render_text
from inductor_bench.store.folder import RunFolder
from inductor_bench.store.run_files import write_timeline

WIDTHS = (60, 80, 100, 140)
NUMBER = re.compile(r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:e[+-]?\d+)?")
QUERIES = ("SELECT * FROM kernels ORDER BY time_s DESC LIMIT 5", "SELECT category, sum(time_s) FROM kernels GROUP BY 1")


# --- rendering -------------------------------------------------------------------------------------------------------


def shown(formats: Formats[Any], name: str, result: Any, view: View) -> str:
    """A result in a format, as it is printed."""
    text = formats.get(name).render(result, view)
    if isinstance(text, str):
        return text
    assert isinstance(text, Document)
    return render_text(text, view.columns)


def render(formats: Formats[Any], result: Any, target: Path, **fields: Any) -> None:
    """Writes a result in all its formats; the terminal's at all widths."""
    target.mkdir(parents=True, exist_ok=True)
    for name in formats.names:
        if name == "table":
            parts = [shown(formats, name, result, View(columns=width, **fields)) for width in WIDTHS]
            (target / "table.txt").write_text("\n".join(parts), encoding="utf-8")
        else:
            text = shown(formats, name, result, View(**fields))
            (target / f"{name}.{'html' if name == 'html' else 'txt'}").write_text(text, "utf-8", "backslashreplace")


def printed(folder: Path, *words: str) -> str:
    """What a command prints in a folder; for a terminal at all widths."""
    found = []
    as_file = "--format" in words and words[words.index("--format") + 1] != "table"
    for width in WIDTHS[-1:] if as_file else WIDTHS:
        before = Path.cwd()
        os.chdir(folder)
        os.environ["COLUMNS"] = str(width)
        try:
            with redirect_stdout(io.StringIO()) as stream:
                run_command(list(words))
        finally:
            os.chdir(before)
        found.append(stream.getvalue())
    return "\n".join(found)


def render_commands(folder: Path, work: Path) -> None:
    """The verbs that read records: report, query, extract, compare and apply, on the recorded RUNs and the batch."""
    runs = []
    for archive in sorted((ROOT / "tests" / "data" / "documented").glob("*.zip")):
        with ZipFile(archive) as opened:
            opened.extractall(work / "runs" / archive.stem)
        runs.append(f"runs/{archive.stem}")
    unpack_batch(work / "batch")
    shutil.copytree(work / "batch", work / "batch2")
    commands: dict[str, tuple[str, ...]] = {}
    for place in (*runs, "batch"):
        known = run_document.FORMATS.names if place in runs else ("table", "json", "csv", "md", "html")
        for form in known:
            commands[f"{place}/report-{form}"] = ("report", place, "--format", form, "--no-plots")
        for form in ("table", "json", "csv", "md"):
            commands[f"{place}/query-{form}"] = ("query", place, "--format", form)
            for number, sql in enumerate(QUERIES):
                commands[f"{place}/query-{number}-{form}"] = ("query", place, sql, "--format", form)
    for place in runs:
        commands[f"{place}/report-gain"] = ("report", place, "--sort", "gain", "--top", "4", "--no-plots")
        commands[f"{place}/extract"] = ("extract", place, "--list")
        commands[f"{place}/apply"] = ("apply", place)
    for form in comparison_document.FORMATS.names:
        for a, b in pairwise(runs):
            commands[f"{a}/compare-{form}"] = ("compare", a, b, "--format", form)
        commands[f"batch/compare-{form}"] = ("compare", "batch", "batch2", "--format", form)
    for name, words in commands.items():
        path = folder / "commands" / f"{name}.{'html' if name.endswith('html') else 'txt'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(printed(work, *words), encoding="utf-8")
    for place in (*runs, "batch"):
        printed_folder = folder / "files" / place
        printed(work, "report", place, "--format", "md")
        for path in sorted((work / place).rglob("*")):
            if path.is_file() and not path.is_relative_to(work / place / "models"):
                target = printed_folder / path.relative_to(work / place)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)


# --- results that tests build ----------------------------------------------------------------------------------------


def built_runs() -> dict[str, Run]:
    names = ("mixnet", "densenet", "cpu", "empty", "hostile", "without_peaks")
    found = {name: getattr(run_builder, name)() for name in names}
    found |= {
        f"step_{name}": getattr(step_runs, name)()
        for name in ("transformer", "decode", "host_paced", "distributed", "cpu")
    }
    return {**found, "compared": compared_runs.run(), "albert": run_of("albert_bf16")}


def recorded_run(work: Path, name: str) -> Run:
    return RunFolder(work / "runs" / name).load()


def pairs_of_runs() -> Iterator[tuple[str, Any]]:
    first = compared_runs.run()
    others = {
        "changed": compared_runs.run(compared_runs.changed("triton_poi_fused_relu_2", kernel_id="other"), longer=1.4),
        "config": compared_runs.run(
            compared_runs.changed("triton_poi_fused_relu_2", config=compared_runs.OTHER_CONFIG)
        ),
        "same": compared_runs.run(),
        "without_step": compared_runs.without_step(compared_runs.run(longer=1.2)),
    }
    for name, second in others.items():
        yield name, compare_runs([first], [second], ("runs/a", "runs/b"))


def mode_comparisons() -> dict[str, Any]:
    row = mode_rows.row
    eager, default = row("eager", [0.100, 0.101, 0.099, 0.100]), row("default", [0.05, 0.0501, 0.0499, 0.05], 10.0)
    graphs = row("max-autotune", [0.04] * 4, 12.0, codes=("b",), device="cuda", graph_breaks=("x\ny",))
    work = row("default", [0.05] * 4, 9.0, work=DeviceWork(0.038, 12.0, 0.76), agreement=Agreement(AGREES, 2e-8))
    failed = replace(row("reduce-overhead", []), failure=Failure("run", "failed", "it broke at 17", hint="do 18"))
    return {
        "plain": mode_rows.comparison(eager, default),
        "device": mode_rows.comparison(eager, work, graphs, failed),
        "noisy": mode_rows.comparison(eager, row("default", [0.02, 0.09, 0.03, 0.08], 10.0), kind="script"),
    }


def measured_kernels(work: Path) -> list[MeasuredKernel]:
    """Kernels of recorded retunes, the first with everything that may be known of one."""
    retunes = [found for name in ("train", "tuned") for found in recorded_run(work, name).retunes]
    found = [one.kernel for one in retunes if one.kernel is not None] or [made_kernel("one", 3e-5)]
    first = replace(
        made_kernel("triton_red_fused_everything_0", 2e-5),
        counters=HardwareCounters(1, 123e6, 0.61, 0.45, {"long_scoreboard": 0.5, "wait": 0.2}, 21e-6),
        with_zeros={"cold": summarize([1e-5] * 9)},
        checked=False,
        check_message="output 0 differs by 0.25",
        shared_device="2 other processes",
        advice=("the clock changed by 7%; leave the GPU alone",),
        edited=True,
    )
    return [first, *found]


def made_kernel(name: str, time_s: float, *, searched: bool = True) -> MeasuredKernel:
    timing = summarize([time_s * (1 + 0.01 * (n % 3)) for n in range(9)])
    ratio = Ratio(0.8, 0.79, 0.81, 9)
    rows = (
        TriedCandidate({"XBLOCK": 1, "num_warps": 4}, "default", median_s=time_s),
        TriedCandidate({"XBLOCK": 2, "num_warps": 8}, "best", "", time_s * 0.8, 31, ratio, 40, 2, 4096),
        TriedCandidate({"XBLOCK": 4, "num_warps": 8}, "slower", "1.25x after 5 rounds", time_s * 1.25, 5),
        TriedCandidate({"XBLOCK": 8, "num_warps": 8}, "refused", "out of shared memory: 300000 bytes"),
    )
    tuning = Tuning("max", "cold", rows, 3, time_s, time_s * 0.8, 1.25, "faster", rows[1].config, ratio, 2.5)
    return MeasuredKernel(
        *(name, "", f"kernels/{name}.py", "reduction", "NVIDIA H200", rows[0].config, timing, timing, "events"),
        tuning=tuning if searched else None,
    )


def kernel_comparison() -> TimedPair:
    first, second = made_kernel("a", 2e-5), made_kernel("b", 2.4e-5, searched=False)
    stand = Pairing({"XBLOCK": 1}, {"XBLOCK": 2}, 2e-5, 2.4e-5, Ratio(1.2, 1.19, 1.21, 31), "slower")
    same = Pairing({"XBLOCK": 1}, {"XBLOCK": 1}, 2e-5, 2.1e-5, Ratio(1.05, 1.04, 1.06, 31), "slower")
    best = Pairing({"XBLOCK": 2}, {"XBLOCK": 4}, reason="out of memory: 17 bytes")
    return TimedPair(first, second, "cold", stand, same, best, "output 1 differs by 0.5", False, notes=("busy: 12%",))


class Fields:
    """A result with these fields, for protocols."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def small_results(work: Path) -> Iterator[tuple[str, Formats[Any], Any]]:
    """Results whose JSON is of no use here: kernels, extractions, doctor and apply."""
    failure = Failure("time", "timeout", "it took longer than 30 s", hint="give --timeout 60", subject="kernels/x.py")
    kernels = measured_kernels(work)
    environment = make(Environment, torch="2.11.0", python="3.12.3", accelerator="NVIDIA H200")
    fields: dict[str, Any] = {"environment": environment, "saved": [Path("tuned/a.py")], "retune_s": 12.5}
    yield "kernels", kernel_document.MEASURED, Fields(kernels=kernels, failures=[failure], **fields)
    yield "kernel", kernel_document.MEASURED, Fields(kernels=kernels[:1], failures=[], **fields)
    listed = replace(kernels[0], tuning=replace(kernels[0].tuning, verdict="", method="configs"))
    yield "kernel_configs", kernel_document.MEASURED, Fields(kernels=[listed], failures=[], **fields)
    yield "kernel_comparison", kernel_document.COMPARED, kernel_comparison()
    extracted = [
        ExtractedKernel("triton_poi_0", "a", Category.POINTWISE, "forward", 3, 1e-5, "a.py"),
        ExtractedKernel("aten_mm_0", "b", Category.EXTERN_GEMM, "forward", 2, 4e-5, None, "it has no source"),
        ExtractedKernel("triton_red_1", "c", Category.REDUCTION, "forward", 7, 2e-5, "c.py", note="drawn: 12 MB"),
    ]
    notes, failures = ["1 kernel is there twice"], [failure]
    for name, place in (("listed", None), ("written", Path("kernels"))):
        yield (
            f"extraction_{name}",
            table_documents.EXTRACTION_FORMATS,
            Fields(kernels=extracted, folder=place, notes=notes, failures=failures),
        )
    peaks = Peaks("NVIDIA H200", 4.1e12, {"bfloat16": 7.8e14}, cache_bytes=60_000_000, cache_bandwidth=8e12)
    checks = [
        Fields(name="torch", status="ok", found="2.13.0", hint=""),
        Fields(name="GPU", status="missing", found="none", hint="see 3"),
    ]
    diagnosis = {"checks": checks, "environment": environment, "packages": checks[:1], "failure": failure}
    yield (
        "doctor",
        table_documents.DOCTOR_FORMATS,
        Fields(**diagnosis, peaks=replace(peaks, launch_floor_s=1.3e-6, threads=4)),
    )
    found = recorded_run(work, "tuned").verification
    common = {"folder": Path("runs/x"), "winners": 2, "unpinned": [], "predicted_s": 2e-5, "program": "python train.py"}
    common["request"] = None
    if found is not None:
        yield (
            "applied",
            proof_document.APPLIED_FORMATS,
            Fields(**common, kernels=found.kernels, written=[], verification=found),
        )
        yield (
            "applied_written",
            proof_document.APPLIED_FORMATS,
            Fields(**common, kernels=found.kernels, written=[Path("t.py")], verification=None),
        )
        yield (
            "applied_states",
            proof_document.APPLIED_FORMATS,
            Fields(**common, kernels=found.kernels, written=[], verification=None),
        )


def render_built(folder: Path, work: Path) -> None:
    for name, one in built_runs().items():
        render(run_document.FORMATS, one, folder / "runs" / name, folder=Path("runs/x"))
        target = work / "built" / name
        target.mkdir(parents=True)
        if name == "step_host_paced":
            write_timeline(RunFolder(target), step_runs.timeline())
        write_report(one, target)
        shutil.copytree(target, folder / "run_files" / name)
    for name, found in pairs_of_runs():
        render(comparison_document.FORMATS, found, folder / "comparisons" / name, limit=0.05)
    compared = mode_comparisons()
    for name, found in compared.items():
        render(modes_document.FORMATS, found, folder / "modes" / name, folder=Path("modes/x"))
    models = tuple(ModelModes(name, found) for name, found in compared.items())
    failed = ModelModes("broken", None, Failure("run", "failed", "it broke at 23"))
    render(
        table_documents.LIST_FORMATS,
        ModesByModel("models.txt", (*models, failed)),
        folder / "modes" / "list",
        folder=Path("modes"),
    )
    for name, formats, result in small_results(work):
        text = [shown(formats, "table", result, View(columns=width)) for width in WIDTHS]
        (folder / "small").mkdir(exist_ok=True)
        (folder / "small" / f"{name}.txt").write_text("\n".join(text), encoding="utf-8")


# --- comparing -------------------------------------------------------------------------------------------------------


class Shown(HTMLParser):
    """The text of a page, and the exact numbers by which its tables are sorted."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.hidden = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden = tag in ("script", "style")
        self.words += [value or "" for name, value in attrs if name in ("data-v", "title")]

    def handle_endtag(self, tag: str) -> None:
        self.hidden = False

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.words.append(data)


def numbers(path: Path) -> Counter[str]:
    """The numbers of a file by how often they are there; none of a picture or of Parquet."""
    if path.suffix in (".png", ".parquet", ".svg"):
        return Counter()
    text = path.read_text(encoding="utf-8", errors="replace")
    words = " ".join(Shown(text).words) if path.suffix == ".html" else text
    return Counter(found.replace(",", "") for found in NUMBER.findall(words))


def compare(before: Path, after: Path) -> Iterator[tuple[bool, str]]:
    """The differences: whether something is gone, and a line."""
    files = {path.relative_to(top) for top in (before, after) for path in top.rglob("*") if path.is_file()}
    for name in sorted(files):
        if not (after / name).is_file():
            yield True, f"{name}: the file is gone"
        elif not (before / name).is_file():
            yield False, f"{name}: the file is new"
        else:
            old, new = numbers(before / name), numbers(after / name)
            gone = sorted(found for found in old if found not in new)
            rarer = sorted(found for found in old - new if found in new)
            more = sorted(new - old)
            for is_gone, what, found in ((True, "gone", gone), (False, "rarer", rarer), (False, "more", more)):
                if found:
                    yield is_gone, f"{name}: {what}: {' '.join(found[:12])}{' …' if len(found) > 12 else ''}"


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        sys.exit(f"{folder} is not empty")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        os.environ["INDUCTOR_BENCH_CACHE"] = str(work / "cache")
        render_commands(folder, work)
        render_built(folder, work)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("render").add_argument("folder", type=Path)
    both = verbs.add_parser("compare")
    both.add_argument("before", type=Path)
    both.add_argument("after", type=Path)
    given = parser.parse_args(words)
    if given.verb == "render":
        if os.environ.get("PYTHONHASHSEED") != "0":  # sums of sets of floats come out alike only then
            os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
        write(given.folder)
        return 0
    differences = list(compare(given.before, given.after))
    for _, line in differences:
        print(line)
    print(f"{len(differences)} differences" if differences else "the same figures")
    return int(any(is_gone for is_gone, _ in differences))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
