"""Labels and slugs of compiled modules."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from source_data import CPU, DATA, GPU

from inductor_bench.records.code import CapturedCode
from inductor_bench.source.compile_log import ObjectName
from inductor_bench.source.labels import label_modules
from inductor_bench.source.structured_trace import StructuredTrace, read_structured_trace


def labels(codes: list[tuple[str, CapturedCode | None]]) -> list[str]:
    found = label_modules(codes)
    slugs = [one.slug for one in found]
    assert len(set(slugs)) == len(slugs) == len({one.label for one in found})
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug) for slug in slugs)
    return [one.label for one in found]


def code(
    role: str, number: int, compile_id: int = 0, rank: int | None = None, name: str = ""
) -> tuple[str, CapturedCode]:
    text = f"# AOT ID: ['{number}_{role}']\n"
    return text, CapturedCode(f"/tmp/{role}{number}.py", text, number, compile_id, 0, rank, compiled_name=name)


def slugs(*names: str, role: str = "inference") -> list[str]:
    return [one.slug for one in label_modules([code(role, i, name=name) for i, name in enumerate(names)])]


def test_training_and_inference() -> None:
    codes = read_structured_trace(CPU / "structured").codes
    assert labels([(one.text, one) for one in codes]) == ["forward", "backward", "inference"]


def test_backward_has_the_number_of_its_forward() -> None:
    # With a graph break the backward of the second graph is compiled first.
    codes = [code("forward", 0), code("forward", 3), code("backward", 3), code("backward", 0)]
    assert labels(codes) == ["forward", "forward-2", "backward-2", "backward"]


def test_dynamic_sizes_are_told() -> None:
    (one,) = read_structured_trace(GPU / "samples" / "dynamic" / "structured").codes
    assert label_modules([(one.text, one)])[0].label == "<lambda> (dynamic)"
    assert label_modules([(one.text, None)])[0].slug == "inference-dynamic"


def test_recompiles_are_told_of_their_own_frame_only() -> None:
    codes = read_structured_trace(CPU / "samples" / "brk" / "structured").codes
    found = labels([(one.text, one) for one in codes])
    assert found[:6] == [
        "g",
        "g from line 4",
        "f from line 8",
        "f from line 9",
        "f from line 10",
        "f-2 from line 10 (recompile)",
    ]
    assert found[6:] == ["h (8 rows)", "h (9 rows)", "h (10 rows)"]
    # The first compilation of a frame may have given no graph at all.
    assert labels([code("inference", 4, compile_id=2)]) == ["inference"]


def test_ranks_are_told_if_there_are_several() -> None:
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
    assert labels([(one.text, one)]) == ["<lambda>"]
    unnamed = replace(one, compiled_name="")
    assert labels([(one.text, unnamed)]) == ["inference"]
    assert labels([(one.text, replace(unnamed, role="backward"))]) == ["backward"]


def test_text_that_is_no_module_still_gets_a_label() -> None:
    assert labels([("print('hello')", None)]) == ["graph"]


def test_graphs_are_named_after_what_was_compiled() -> None:
    both = [code("forward", 0, name="Block.forward"), code("backward", 0, name="Block.forward")]
    step = code("inference", 1, name="Adam.step")
    assert labels([*both, step]) == ["Block.forward · forward", "Block.forward · backward", "Adam.step"]
    assert labels([step]) == ["Adam.step"]
    assert labels([*both, code("inference", 1, name="Block.forward")])[2] == "Block.forward"


def test_the_name_that_all_training_graphs_share_is_left_out() -> None:
    both = [code("forward", 0, name="Net.forward"), code("backward", 0, name="Net.forward")]
    more = [code("forward", 0, 1, name="Net.forward"), code("backward", 0, 1, name="Net.forward")]
    assert labels(both) == ["forward", "backward"]
    assert labels([*both, *more]) == ["forward", "backward", "forward-2 (recompile)", "backward-2 (recompile)"]
    rest = code("forward", 1, name="Net.forward from line 12")
    assert labels([*both, rest])[1:] == ["Net.forward · backward", "Net.forward from line 12 · forward"]


def test_numbers_tell_graphs_of_one_name_apart() -> None:
    codes = [
        code(role, n, name=name) for role in ("forward", "backward") for n, name in enumerate(("A.f", "B.f", "A.f"))
    ]
    assert labels(codes) == [
        "A.f · forward",
        "B.f · forward",
        "A.f · forward-2",
        "A.f · backward",
        "B.f · backward",
        "A.f · backward-2",
    ]
    # A function may be called as a role is.
    assert labels([code("inference", 0, name="inference"), code("inference", 1)]) == ["inference", "inference-2"]


def test_slugs_are_short_and_unique_and_hide_no_module_of_python() -> None:
    assert slugs("random", "step_2", "step", "step") == ["random-graph", "step-2", "step-graph", "step-2-2"]
    assert slugs("Adam.step", "<lambda>", "\u0448\u0430\u0433") == ["adam-step", "lambda-graph", "graph-graph"]
    long = slugs(*(f"{'Very' * 20}{letter}Block.forward" for letter in "AB"), "g", role="forward")
    assert len(set(long)) == 3 and all(len(slug) <= 62 for slug in long)
    assert long[0].startswith("veryvery") and long[0].endswith("block-forward-forward")


NAMES = DATA / "compiled_names"
"""``objects``: two ``nn.Sequential``, ``G`` and ``D``. ``apart``: a function compiled twice, for two models. ``limit``:
twelve sizes with ``dynamic=False``. ``automatic``: three sizes. ``dynamic``: three sizes with ``dynamic=True``."""


def recorded(name: str, folder: Path, objects: tuple[str, ...] = ()) -> StructuredTrace:
    """The trace of a program, of whose first frame these objects were compiled, one after the other."""
    text = (NAMES / f"{name}_torch2.13.log").read_text()
    folder.joinpath("dedicated_log_torch_trace_x.log").write_text(text)
    pids = {int(line.split()[2]) for line in text.splitlines() if line.startswith("V")}
    names = enumerate(objects)
    return read_structured_trace(folder, {(pid, 0, n): ObjectName(one) for n, one in names for pid in pids})


def labels_of(trace: StructuredTrace) -> list[str]:
    return labels([(one.text, one) for one in trace.codes])


def test_networks_that_share_a_code_object_have_their_own_names_and_are_no_recompilation(tmp_path: Path) -> None:
    trace = recorded("objects", tmp_path, ("G", "D"))
    assert labels_of(trace) == ["G · forward", "G · backward", "D · forward", "D · backward"]
    assert [text.partition(": ")[2] for text in trace.recompiles] == [
        "D is another object than G, and has its own graph"
    ]
    unnamed = labels_of(recorded("objects", tmp_path))
    assert unnamed == ["forward", "backward", "forward-2 (recompile)", "backward-2 (recompile)"], "an older recording"


def test_an_object_compiled_again_is_a_recompilation(tmp_path: Path) -> None:
    found = labels_of(recorded("objects", tmp_path, ("G", "G")))
    assert found == ["forward", "backward", "forward-2 (recompile)", "backward-2 (recompile)"]


def test_graphs_of_one_function_are_told_apart_by_their_sizes(tmp_path: Path) -> None:
    many = labels_of(recorded("limit", tmp_path))
    assert many[::2] == [f"forward ({rows} rows)" for rows in range(4, 12)]
    assert many[1::2] == [f"backward ({rows} rows)" for rows in range(4, 12)]
    assert labels_of(recorded("automatic", tmp_path)) == [
        *("forward (4 rows)", "backward (4 rows)", "forward (dynamic)", "backward (dynamic)"),
    ]
    assert labels_of(recorded("apart", tmp_path))[::2] == ["forward (x[1] = 8)", "forward (x[1] = 16)"]


def test_objects_of_one_class_that_differ_have_their_paths() -> None:
    paths = ("unet.down_blocks.0", "unet.down_blocks.1")
    codes = [
        (text, replace(one, object_name=path))
        for path, compile_id in zip(paths, (0, 1), strict=True)
        for text, one in [code(role, 0, compile_id, name="Block.forward") for role in ("forward", "backward")]
    ]
    assert labels(codes)[::2] == ["unet.down_blocks.0 · forward", "unet.down_blocks.1 · forward"]
    assert labels(codes[:2]) == ["forward", "backward"]
