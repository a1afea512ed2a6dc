"""Labels and slugs of compiled modules."""

from __future__ import annotations

import re
from dataclasses import replace

from source_data import CPU, GPU

from inductor_bench.records.code.source import CapturedCode
from inductor_bench.source.capture.labels import label_modules
from inductor_bench.source.capture.structured import read_structured_trace


def labels(codes: list[tuple[str, CapturedCode | None]]) -> list[str]:
    found = label_modules(codes)
    slugs = [one.slug for one in found]
    assert len(set(slugs)) == len(slugs) == len({one.label for one in found})
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug) for slug in slugs)
    return [one.label for one in found]


def code(role: str, number: int, compile_id: int = 0, rank: int | None = None) -> tuple[str, CapturedCode]:
    text = f"# AOT ID: ['{number}_{role}']\n"
    return text, CapturedCode(f"/tmp/{role}{number}.py", text, number, compile_id, 0, rank)


def test_training_and_inference() -> None:
    codes = read_structured_trace(CPU / "structured").codes
    assert labels([(one.text, one) for one in codes]) == ["forward", "backward", "inference"]


def test_backward_has_the_number_of_its_forward() -> None:
    # With a graph break the backward of the second graph is compiled first.
    codes = [code("forward", 0), code("forward", 3), code("backward", 3), code("backward", 0)]
    assert labels(codes) == ["forward", "forward-2", "backward-2", "backward"]


def test_dynamic_sizes_are_told() -> None:
    (one,) = read_structured_trace(GPU / "samples" / "dynamic" / "structured").codes
    assert label_modules([(one.text, one)])[0].label == "inference (dynamic)"
    assert label_modules([(one.text, None)])[0].slug == "inference-dynamic"


def test_recompiles_are_told_of_their_own_frame_only() -> None:
    codes = read_structured_trace(CPU / "samples" / "brk" / "structured").codes
    found = labels([(one.text, one) for one in codes])
    assert found[:6] == [
        "inference",
        "inference-2",
        "inference-3",
        "inference-4",
        "inference-5",
        "inference-6 (recompile)",
    ]
    assert found[6:] == ["inference-7", "inference-8 (recompile)", "inference-9 (recompile)"]
    # The first compilation of a frame may have given no graph at all.
    assert labels([code("inference", 4, compile_id=2)]) == ["inference"]


def test_ranks_are_told_where_there_are_several() -> None:
    one = [code("forward", 0, rank=0), code("backward", 0, rank=0)]
    assert labels(one) == ["forward", "backward"]
    both = [*one, code("forward", 0, rank=1), code("backward", 0, rank=1)]
    assert labels(both) == ["rank 0 forward", "rank 0 backward", "rank 1 forward", "rank 1 backward"]


def test_processes_without_ranks_that_count_from_zero_again() -> None:
    codes = [code("forward", 0), code("backward", 0), code("forward", 0), code("backward", 0)]
    assert labels(codes) == ["forward", "backward", "forward-2", "backward-2"]


def test_unmarked_modules_are_graphs_unless_the_trace_knows() -> None:
    (one,) = read_structured_trace(CPU / "samples" / "cppw" / "structured").codes
    assert labels([(one.text, None), (one.text, None)]) == ["graph", "graph-2"]
    assert labels([(one.text, one)]) == ["inference"]
    assert labels([(one.text, replace(one, role="backward"))]) == ["backward"]


def test_text_that_is_no_module_still_gets_a_label() -> None:
    assert labels([("print('hello')", None)]) == ["graph"]
