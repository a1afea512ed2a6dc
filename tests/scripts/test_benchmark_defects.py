"""The programs with planted defects: what they declare, how findings are judged, and two of them, really run."""

from __future__ import annotations

import argparse
import ast
import dataclasses
from pathlib import Path

import pytest
from quiet_runs import run_of

from inductor_bench.analysis.findings.finding import ADVICE, Finding
from inductor_bench.analysis.findings.rule_table import RULES, STEP_RULES
from scripts import benchmark_defects
from scripts.benchmark_defects import (
    FOLDER,
    Gpus,
    Program,
    chosen,
    cost_alone,
    declared_on_host,
    figures,
    names_place,
    read_programs,
    run_all,
    verdict,
    words_of,
)

PROGRAMS = read_programs()
PLANTED = [program for program in PROGRAMS.values() if program.ids]
KNOWN = {kind for rule in (*RULES, *STEP_RULES) for kind in rule.kinds} | {
    *("cpu-operators", "host-python", "garbage-collection", "host-waits", "slow-guards", "unaligned-products"),
    *("small-products", "float32-island", "attention-below-limit", "decomposed-attention", "pageable-copies"),
    *("recompile-limit", "not-compiled", "anomaly-mode"),
}
"""The kinds of findings that there are, and those that the programs ask for."""


def test_fifty_programs_have_a_defect_and_twenty_have_none() -> None:
    assert len(PLANTED) >= 50 and len(PROGRAMS) - len(PLANTED) >= 20
    assert {kind for program in PLANTED for kind in program.ids} >= {"data-loading", "synchronisations", "host-waits"}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_what_a_program_declares_is_known(program: Program) -> None:
    assert {*program.ids, *program.also} <= KNOWN
    assert len(program.ids) <= 2
    assert 0 < program.share < 1 if program.ids else program.share == 0 and not program.lines
    text = program.file.read_text(encoding="utf-8")
    assert all(text.splitlines()[line - 1].endswith("# defect") for line in program.lines)
    names = {node.name: node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    assert ast.get_docstring(names[program.name]) and ("DEFECT" in program.text or not program.ids or program.lines)


def test_every_marked_line_belongs_to_a_program() -> None:
    for file in FOLDER.glob("*.py"):
        marked = {n for n, line in enumerate(file.read_text().splitlines(), 1) if line.endswith("# defect")}
        assert marked == {line for one in PROGRAMS.values() if one.file == file for line in one.lines}


def test_a_program_has_the_marked_lines_of_what_it_uses_and_no_others() -> None:
    lines = {name: len(PROGRAMS[name].lines) for name in ("tokenizing", "slow_getitem", "plain_loop")}
    assert lines == {"tokenizing": 2, "slow_getitem": 3, "plain_loop": 2}
    assert PROGRAMS["late_rank"].ranks == 2 and "--standalone" in PROGRAMS["late_rank"].command
    assert PROGRAMS["sleep"].ranks == 1


PROGRAM = Program("slow", Path("train.py"), ("data-loading",), ("host-pace",), ("load",), (57,), 0.1)


def finding(kind: str, text: str) -> Finding:
    return Finding(kind, text, gain_s=1.0)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("the device waits at app/train.py:57", True),
        ("the device waits at app/train.py:571", False),
        ("the device waits for load (app/data.py:3)", True),
        ("the device waits while data is loaded", False),
    ],
)
def test_a_place_is_a_marked_line_or_a_declared_name(text: str, right: bool) -> None:
    assert names_place(PROGRAM, finding("data-loading", text), run_of()) is right


def test_a_line_in_fields_of_its_own_counts_as_well() -> None:
    assert "app/train.py:57" in list(words_of({"source": {"file": "app/train.py", "line": 57, "code": "x"}}))
    assert list(words_of(("train.py", 3, None))) == ["train.py"]


@pytest.mark.parametrize(
    ("kind", "share", "expected"),
    [
        ("data-loading", 0.001, "+"),
        ("host-pace", 0.5, "="),
        ("copies", 0.5, "-"),
        ("copies", 0.02, "."),
        ("hotspot", 0.5, "."),
    ],
)
def test_a_finding_that_is_not_declared_is_false_if_it_is_worth_something(
    kind: str, share: float, expected: str
) -> None:
    assert verdict(PROGRAM, {"kind": kind, "share": share, "level": ADVICE}) == expected


def test_products_in_float32_are_true_of_programs_on_a_cpu_that_do_not_set_them() -> None:
    found = {"kind": "full-float32", "share": 0.5, "level": ADVICE}
    seen = {name: verdict(declared_on_host(PROGRAMS[name]), found) for name in ("tokenizing", "layers", "no_tf32")}
    assert seen == {"tokenizing": "=", "layers": "=", "no_tf32": "+"}
    twin = dataclasses.replace(PROGRAMS["no_tf32"], ids=())
    assert verdict(declared_on_host(twin), found) == "-", "it has set them"
    assert verdict(PROGRAMS["layers"], found) == "-", "on a GPU they are in bfloat16"


def test_recall_counts_the_defects_and_precision_the_judged_findings() -> None:
    def row(ids: tuple[str, ...], verdicts: str, rank: int | None, place: bool | None) -> dict[str, object]:
        return {"ids": ids, "first": [{"verdict": one} for one in verdicts], "rank": rank, "place": place}

    rows = [
        row(("a",), "=+.", 2, True),
        row(("a",), "+", 1, False),
        row(("b",), "-", None, None),
        row((), "-", None, None),
    ]
    assert figures(rows) == ("recall 0.67 (2 of 3), places 0.33 (1 of 3), precision 0.60 (3 of 5); 1 not judged")


def test_programs_are_chosen_by_name_and_by_file() -> None:
    assert [one.name for one in chosen(PROGRAMS, ["sleep"])] == ["sleep"]
    assert {one.file.stem for one in chosen(PROGRAMS, ["ranks.py"])} == {"ranks"}
    assert chosen(PROGRAMS, ["sleep", "nothing"]) == []


def test_a_program_of_two_ranks_takes_two_gpus_and_gives_them_back() -> None:
    gpus = Gpus(["4", "5"])
    for _ in range(2):
        with gpus.lend(PROGRAMS["late_rank"]) as environment:
            assert environment["CUDA_VISIBLE_DEVICES"] == "4,5"
    with gpus.lend(PROGRAMS["sleep"]) as environment:
        assert environment["CUDA_VISIBLE_DEVICES"] == "4"


def test_programs_for_which_there_is_no_time_or_no_gpu_are_listed(tmp_path: Path) -> None:
    options = argparse.Namespace(gpus="0", within=1.0, jobs=0, output=tmp_path, twins=False, limit=60.0, alone=False)
    rows = run_all([PROGRAMS["sleep"], PROGRAMS["late_rank"]], options)
    assert [row["note"] for row in rows] == ["not run: no time was left", "not run: it needs 2 GPUs"]
    assert (tmp_path / "table.json").is_file() and "recall - (none)" not in "".join(benchmark_defects.summary(rows))


@pytest.mark.corner
def test_a_sleep_costs_what_it_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = benchmark_defects.environment_of(["python"]) | {"SMALL": "1", "TORCHDYNAMO_DISABLE": "1"}
    found = cost_alone(PROGRAMS["sleep"], environment | {"STEPS": "6"}, 300.0)
    assert found["with_s"] >= 0.02 and found["without_s"] > 0
