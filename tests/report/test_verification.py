"""What is said of the savings in a program: each verdict, projections that fail, outputs, kernels without a pin."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import retune_fakes
import step_runs
from documented import documented
from printed import printed

from inductor_bench.analysis.batch_aggregation import summarize_retunes
from inductor_bench.analysis.statistics import summarize
from inductor_bench.cli import main as entry
from inductor_bench.cli.apply import exceeds_limit
from inductor_bench.cli.main import main
from inductor_bench.messages.observed import APPLY, ComparedOutputs, Pins
from inductor_bench.records.base import Category
from inductor_bench.records.request import ApplyRequest
from inductor_bench.records.retune import (
    FASTER,
    MOST_TIMED,
    AppliedKernel,
    Config,
    MeasuredKernel,
    PinnedOutputs,
    Ratio,
    Retune,
    RetuneRow,
    Saving,
    TritonPin,
    Tuning,
    Verification,
)
from inductor_bench.report.document import Document, Sentence, Table, TimeChange, plot_waterfall
from inductor_bench.report.document_summary import render_brief
from inductor_bench.report.formats import View
from inductor_bench.report.run.proof_document import (
    APPLIED_FORMATS,
    describe_details,
    describe_missed_kernels,
    describe_proof,
    make_proof_section,
)
from inductor_bench.report.run.retune_document import describe_retunes
from inductor_bench.report.terminal import render_text
from inductor_bench.store.codec import decode, encode
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows import apply
from inductor_bench.workflows.apply import ApplyOutcome
from inductor_bench.workflows.pins import PinnedRun, Unpinned
from inductor_bench.workflows.proof import _summarise

STEP = Saving(17.8e-3, 16.9e-3, 0.9e-3, 0.8e-3, 1.0e-3, 40, "saves")
DEVICE = Saving(15.6e-3, 14.6e-3, 1.0e-3, 0.9e-3, 1.1e-3, 10, "saves")
SAME = Saving(17.8e-3, 17.8e-3, 1e-6, -4e-5, 5e-5, 40, "no difference")
KERNELS = (
    AppliedKernel("triton_red_0", "r" * 16, {"XBLOCK": 8}, "pinned", "", 0.8e-3, 0.7e-3),
    AppliedKernel("triton_poi_1", "p" * 16, {"XBLOCK": 64}, "pinned", "", 0.3e-3, 0.3e-3),
    AppliedKernel("aten_mm_0", "m" * 16, {}, "unpinnable", "a library call", 0.1e-3),
    AppliedKernel("triton_for_2", "f" * 16, {}, "missing", "the program has no such kernel", 0.0),
)
FOUND = Verification("steps", 1.1e-3, STEP, DEVICE, PinnedOutputs(2, 143, 3e-4, 1e-4, 3e-2), KERNELS)


EDITED = replace(KERNELS[0], config={}, predicted_s=0.0, edit="kernels/mine.py", own_s=2.5e-3)
DROPPED = replace(EDITED, name="triton_poi_9", state="dropped", reason="its edit changes the outputs", saving_s=None)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (STEP, ""),
        (SAME, ""),
        (replace(STEP, saving_s=-1.2e-3, low_s=-1.3e-3, high_s=-1.1e-3, verdict="slower"), "slower"),
        (replace(STEP, saving_s=-0.9e-3, low_s=-1e-3, high_s=-0.8e-3, verdict="slower"), "undecided"),
        (replace(STEP, saving_s=-0.9e-3, low_s=-3e-3, high_s=0.8e-3, verdict="undecided"), "undecided"),
        (replace(STEP, saving_s=-0.1e-3, low_s=-0.5e-3, high_s=0.8e-3, verdict="undecided"), ""),
        (replace(SAME, pairs=4, verdict="undecided"), "undecided"),
        (None, "undecided"),
    ],
)
def test_a_limit_refuses_configs_that_make_the_step_longer(step: Saving | None, said: str) -> None:
    assert exceeds_limit(replace(FOUND, step=step), 0.05) == said


def test_apply_exits_with_the_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    longer = replace(STEP, saving_s=-0.9e-3, low_s=-1e-3, high_s=-0.8e-3, verdict="slower")
    words = documented(
        "inductor-bench apply runs/train --verify --fail-above 0% -- python train.py", {"runs/train": tmp_path}
    )
    for step, code in ((STEP, 0), (longer, 4), (SAME, 5), (None, 5)):
        outcome = ApplyOutcome(
            tmp_path, PinnedRun(Pins("apply", "", "", None), {}, {}), verification=replace(FOUND, step=step)
        )
        monkeypatch.setattr(apply, "run_apply", lambda request, progress, outcome=outcome: outcome)
        assert main(words) == code
    assert main([*words[:3], *words[5:]]) == 0
    assert main([word for word in words if word != "--verify"]) == 2
    assert main(["apply", str(tmp_path), "--format", "json", "--", "python", "train.py"]) == 2, (
        "stdout is the program's"
    )


def text_of(found: Verification, width: int = 100) -> str:
    return render_text(Document("", blocks=(make_proof_section(found, 10),)), width)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            FOUND,
            "Proven: a step takes 16.9 ms instead of 17.8 ms, 0.900 ms (5.1%) less; 95% interval 0.800 ms to 1.00 ms, "
            "4.5% to 5.6%, in 40 pairs",
        ),
        (
            replace(FOUND, step=SAME),
            "In a step the device works 1.00 ms (6.4%) less; 95% interval 0.900 ms to 1.10 ms, 5.8% to 7.1%, in 10 "
            "pairs. The step shows less than half of it: compared in pairs, the step takes 1.00 µs (<0.1%) less; 95% "
            "interval -40.0 µs to 50.0 µs, -0.2% to 0.3%, in 40 pairs; the device works for 15.6 ms of a 17.8 ms step",
        ),
        (
            replace(FOUND, step=replace(SAME, high_s=9e-4)),
            "in 10 pairs. That is less than the step's own variation: compared in pairs, the step takes 1.00 µs",
        ),
        (
            replace(FOUND, step=replace(SAME, low_s=-2e-3)),
            "in 10 pairs. The step does not show it: it takes 17.8 ms instead of 17.8 ms, 1.00 µs (<0.1%) less; 95% ",
        ),
        (
            replace(FOUND, step=SAME, device=replace(DEVICE, own_s=18e-3)),
            "In a step the device works 1.00 ms (5.6%) less; 95% interval",
        ),
        (
            replace(FOUND, step=SAME, device=None),
            "No difference found: a step takes 17.8 ms in the median with",
        ),
        (
            replace(FOUND, step=replace(SAME, low_s=-1.4e-3, high_s=0.9e-3), device=None),
            "No difference found, but there may be a difference of up to 7.9%: a step takes 17.8 ms",
        ),
        (
            replace(FOUND, step=Saving(17.8e-3, 18.7e-3, -0.9e-3, -1e-3, -0.8e-3, 40, "slower")),
            "A step is slower with the configs: 18.7 ms instead of 17.8 ms, 0.900 ms (5.1%) more; 95% interval 0.800",
        ),
        (
            replace(FOUND, way="processes", step=replace(STEP, pairs=2)),
            "A step takes 16.9 ms instead of 17.8 ms, 0.900 ms (5.1%) less; range 0.800 ms to 1.00 ms, 4.5% to "
            "5.6%, in 2 pairs",
        ),
        (
            replace(FOUND, step=replace(STEP, pairs=4, verdict="undecided")),
            "Undecided: a step takes 16.9 ms instead of 17.8 ms, 0.900 ms (5.1%) less; range 0.800 ms to 1.00 ms, 4.5% "
            "to 5.6%, in 4 pairs",
        ),
        (
            replace(FOUND, step=replace(STEP, verdict="undecided")),
            "0.800 ms to 1.00 ms, 4.5% to 5.6%, in 40 pairs; the interval of 99.5%, which decides, includes zero",
        ),
        (
            replace(FOUND, step=replace(STEP, tuned_s=20e-3, verdict="undecided")),
            "0.800 ms to 1.00 ms, 4.5% to 5.6%, in 40 pairs; the medians say the opposite of the pairs",
        ),
        (replace(FOUND, step=None), "No step was compared"),
    ],
)
def test_each_verdict_has_its_words(found: Verification, words: str) -> None:
    assert words in describe_proof(found)


def test_a_saving_of_pairs_that_is_not_the_difference_of_both_medians_is_named_so() -> None:
    apart = Saving(53.6e-3, 36.6e-3, 21.4e-3, 16.1e-3, 25.2e-3, 40, "saves")
    words = "36.6 ms in the median instead of 53.6 ms, and compared in pairs 21.4 ms (39.9%) less; 95% interval 16.1 ms"
    assert describe_proof(replace(FOUND, step=apart)).startswith(f"Proven: a step takes {words}")
    slower = replace(apart, saving_s=-9e-3, low_s=-11e-3, high_s=-8e-3, tuned_s=60e-3, verdict="slower")
    assert "60.0 ms in the median instead of 53.6 ms, and compared in pairs 9.00 ms" in describe_proof(
        replace(FOUND, step=slower)
    )
    rounded = replace(apart, saving_s=16.96e-3)
    assert "36.6 ms instead of 53.6 ms, 17.0 ms (31.6%) less" in describe_proof(replace(FOUND, step=rounded))


def test_a_saving_that_the_step_hides_stands_beside_both_times_and_without_a_cause() -> None:
    words = "in 40 pairs; the device works for 15.6 ms of a 17.8 ms step"
    assert describe_proof(replace(FOUND, step=SAME)).endswith(words)
    overlapped = replace(FOUND, step=SAME, device=replace(DEVICE, own_s=18e-3))
    assert describe_proof(overlapped).endswith("the device works for 18.0 ms of a 17.8 ms step")


def test_an_interval_has_the_sign_of_the_change_that_it_belongs_to() -> None:
    more = replace(SAME, saving_s=-1e-5, low_s=-5e-5, high_s=2e-5)
    words = describe_proof(replace(FOUND, step=more, device=None))
    assert words.endswith("10.0 µs (0.1%) more; 95% interval -20.0 µs to 50.0 µs, -0.1% to 0.3%, in 40 pairs")
    tiny = replace(more, low_s=-2e-6, high_s=1e-6)
    assert describe_proof(replace(FOUND, step=tiny, device=None)).endswith(
        "µs to 2.00 µs, >-0.1% to <0.1%, in 40 pairs"
    )


def test_the_projection_of_a_gpu_is_not_held_against_a_step_whose_host_may_hide_it() -> None:
    triton = tuple(replace(kernel, config={"XBLOCK": 8, "num_warps": 4}) for kernel in KERNELS)
    unprofiled = replace(FOUND, step=SAME, device=None)
    assert any("was wrong" in words for words in describe_details(unprofiled)), "on a CPU the step is the device"
    assert not any("projection" in words for words in describe_details(replace(unprofiled, kernels=triton)))


def test_a_projection_that_comes_true_and_one_that_does_not() -> None:
    assert "The projection was 1.10 ms" in list(describe_details(FOUND))
    wide = replace(FOUND, predicted_s=3e-3, device=replace(DEVICE, low_s=-2e-3, high_s=4e-3, verdict="no difference"))
    assert "The projection was 3.00 ms, which lies within the interval" in list(describe_details(wide))
    (failed,) = [words for words in describe_details(replace(FOUND, predicted_s=3e-3)) if "projection" in words]
    assert "was wrong" in failed and "triton_red_0 (projected 0.800 ms, saves 0.700 ms)" in failed


def test_a_choice_of_inductors_that_differs_from_the_runs_is_said() -> None:
    assert "chose another config" not in " ".join(describe_details(FOUND))
    chosen, *rest = (replace(kernel, own_config={"XBLOCK": 1}) for kernel in KERNELS[:2])
    words = list(describe_details(replace(FOUND, kernels=(chosen, *KERNELS[1:]))))
    assert (
        "Inductor chose another config here than in the RUN for triton_red_0: what it saves depends on that choice, "
        "which differs between compilations" in words
    )
    words = list(describe_details(replace(FOUND, kernels=(chosen, *rest))))
    assert any("for triton_red_0 and triton_poi_1: what they save depends on" in one for one in words)


def test_outputs_agree_differ_or_were_not_compared() -> None:
    assert any("Outputs agree" in words and "143 tensors of 2 graphs" in words for words in describe_details(FOUND))
    apart = replace(FOUND, outputs=PinnedOutputs(2, 143, 0.5, 0.0, 3e-2))
    assert any(words.startswith("Outputs differ") for words in describe_details(apart))
    none = replace(FOUND, outputs=PinnedOutputs(reason="no memory for a copy"))
    assert any("were not compared: no memory for a copy" in words for words in describe_details(none))
    moved = ComparedOutputs("cuda", float("inf"), 0.0, 3e-2, 143)
    broken = decode(Verification, encode(replace(FOUND, outputs=_summarise([moved]))))  # as a record keeps it
    assert any("infinities or NaN" in words for words in describe_details(broken))
    seeds = replace(FOUND, outputs=PinnedOutputs(2, 143, 3e-4, 0.0, 3e-2, 2))
    assert "(143 tensors of 2 graphs); 2 more differ between two calls without the configs as well" in " ".join(
        describe_details(seeds)
    )
    both = replace(FOUND, outputs=PinnedOutputs(2, 143, 3e-4, 0.0, 3e-2, 1, 12))
    assert (
        "; 1 more differs between two calls without the configs as well; 12 more differ by no more than if the "
        "inputs are rounded differently" in " ".join(describe_details(both))
    )
    nothing = list(describe_details(replace(FOUND, outputs=PinnedOutputs(1, 0, 0.0, 0.0, 0.0, 3))))
    assert "Outputs in the program cannot be compared: of 3 tensors, 3 differ between two calls" in " ".join(nothing)
    assert not any("agree" in words for words in nothing)
    either = " ".join(describe_details(replace(FOUND, outputs=PinnedOutputs(1, 0, 0.0, 0.0, 0.0, 1, 2))))
    assert (
        "of 3 tensors, 1 differs between two calls without the configs as well, and 2 differ by no more than" in either
    )
    equal = replace(FOUND, outputs=PinnedOutputs(2, 143, 0.0, 0.0, 3e-2))
    assert any("no bit differs" in words for words in describe_details(equal))


def test_every_kernel_without_a_pin_is_named_with_its_reason() -> None:
    assert list(describe_missed_kernels(KERNELS)) == [
        "aten_mm_0: a library call",
        "triton_for_2: the program has no such kernel",
    ]
    assert any(words.startswith("2 of 4 kernels") for words in describe_details(FOUND))
    assert next(describe_details(replace(FOUND, kernels=()))).startswith("No kernel has a config to run")


@pytest.mark.parametrize("kernels", [(), KERNELS[2:]])
def test_without_a_config_in_the_program_nothing_is_proven(kernels: tuple[AppliedKernel, ...]) -> None:
    nothing = replace(FOUND, kernels=kernels)
    assert exceeds_limit(nothing, 0.5) == "undecided" and describe_proof(nothing).startswith("Nothing is proven")
    assert "Limit of 50%: undecided" in " ".join(
        render_text(Document("", blocks=(make_proof_section(nothing, 10, 0.5),)), 200).split()
    )


@pytest.mark.parametrize("width", [60, 100, 160])
def test_lines_fit_the_terminal(width: int) -> None:
    assert all(len(line) <= max(width, 82) for line in text_of(FOUND, width).splitlines())


def test_an_edited_kernel_is_shown_with_its_file_and_its_time() -> None:
    found = replace(FOUND, predicted_s=0.0, kernels=(EDITED,))
    words = list(describe_details(found))
    assert words[0] == "1 of 1 edited kernel runs its edit"
    assert any("between two calls without the edit" in one for one in words)
    shown = render_text(Document("", blocks=(make_proof_section(found, 10),)), 100)
    assert "2.50 ms" in shown and "0.700 ms" in shown and "mine.py" in shown
    slower = replace(STEP, saving_s=-1e-3, low_s=-2e-3, high_s=-0.5e-3, verdict="slower")
    assert describe_proof(replace(found, step=slower)).startswith("A step is slower with the edit: ")


def test_the_short_answer_says_of_each_edit_of_a_group_what_it_saves() -> None:
    """One verdict for ten edits does not tell which of them carry the saving."""
    carries = replace(EDITED, tuned_s=1.8e-3, low_s=0.69e-3, high_s=0.71e-3, alone=Ratio(0.72, 0.7, 0.75, 20))
    idle = replace(EDITED, name="triton_poi_2", edit="b.py", own_s=1e-4, tuned_s=1.01e-4, saving_s=-1e-6)
    idle = replace(idle, low_s=-3e-6, high_s=2e-6)
    found = replace(FOUND, predicted_s=0.0, kernels=(idle, carries, DROPPED))
    outcome = ApplyOutcome(Path("runs/x"), PinnedRun(Pins("apply", "", "", None), {}, {}), verification=found)
    said = json.loads(printed(APPLIED_FORMATS.get("json"), outcome))["summary"]["applied"]
    assert [one["name"] for one in said] == ["triton_red_0", "triton_poi_2", "triton_poi_9"], "the largest saving first"
    assert said[0] == {
        **{"name": "triton_red_0", "file": "kernels/mine.py", "state": "pinned", "before_s": 2.5e-3, "after_s": 1.8e-3},
        **{"saving_s": 0.7e-3, "low_s": 0.69e-3, "high_s": 0.71e-3},
        "alone": {"median": 0.72, "low": 0.7, "high": 0.75, "pairs": 20},
    }
    assert (said[1]["low_s"], said[2]["state"], said[2]["saving_s"]) == (-3e-6, "dropped", None)
    brief = " ".join(render_brief(Document("", blocks=(make_proof_section(found, 10),))).split())
    times = "on the device 2.50 ms → 1.80 ms a step, saves 0.700 ms (0.690 ms to 0.710 ms)"
    assert f"mine.py (triton_red_0): {times}; by itself 1.39x (1.33x to 1.43x in 20 pairs)." in brief
    assert (
        "b.py (triton_poi_2): on the device 0.100 ms → 0.101 ms a step, takes 1.00 µs longer (-2.00 µs to 3.00 µs)"
        in brief
    )
    assert "mine.py (triton_poi_9): dropped" in brief
    shown = " ".join(text_of(found, 160).split())
    two = replace(found, way="processes", device=replace(DEVICE, pairs=2))
    assert "saves 0.700 ms (range 0.690 ms" in render_brief(Document("", blocks=(make_proof_section(two, 10),)))
    assert "0.700 ms (range 0.690 ms to 0.710 ms) 1.39x" in " ".join(text_of(two, 160).split())
    broken = replace(found, kernels=(replace(carries, alone=Ratio(0.0, 0.0, 0.0, 20)), idle))
    assert "0.700 ms (0.690 ms to 0.710 ms) ? " in " ".join(text_of(broken, 160).split()), "a record may hold a zero"
    assert "0.700 ms (0.690 ms to 0.710 ms) 1.39x" in shown and "by itself 1.39x" not in shown, "the table has it"


@pytest.mark.parametrize(
    ("device", "why"),
    [
        (
            None,
            "in the program was not measured, because only the profile of a GPU shows it. `inductor-bench "
            "apply RUN --kernel",
        ),
        (DEVICE, "in the program is not known: in the profile their kernels share a name with others, "),
    ],
)
def test_a_proof_says_why_the_edits_of_a_group_were_not_measured_one_by_one(device: Saving | None, why: str) -> None:
    unknown, config = replace(EDITED, own_s=None, saving_s=None), KERNELS[1]
    for kernels, said in (
        ((unknown, unknown), True),
        ((unknown, unknown, config), True),
        ((unknown,), False),
        ((EDITED, unknown), False),
    ):
        words = " ".join(describe_details(replace(FOUND, kernels=kernels, device=device)))
        assert (why in words) == ("What each edit saves" in words) == said


def test_a_table_without_the_time_of_a_kernel_has_no_columns_for_it() -> None:
    on_cpu = replace(EDITED, own_s=None, saving_s=None)
    for kernels, titles in (
        ((on_cpu,), ["kernel", "config or file"]),
        ((on_cpu, DROPPED), ["kernel", "config or file", "state"]),
        ((replace(KERNELS[0], saving_s=None),), ["kernel", "config", "projected"]),
        ((EDITED, on_cpu, DROPPED), ["kernel", "config or file", "time", "saves"]),
    ):
        (shown,) = [
            one
            for one in make_proof_section(replace(FOUND, kernels=kernels, device=None), 10).blocks
            if isinstance(one, Table) and one.columns[0].title == "kernel"
        ]
        assert [column.title for column in shown.columns] == titles
        assert all(len(row.cells) == len(titles) for row in shown.rows)


def test_an_edit_that_was_dropped_is_named_and_nothing_is_said_to_agree() -> None:
    found = replace(FOUND, predicted_s=0.0, kernels=(DROPPED,))
    assert "no kernel ran its edit" in describe_proof(found)
    words = list(describe_details(found))
    assert words[0] == "0 of 1 edited kernel runs its edit"
    assert not any("agree" in one for one in words), "the program was compared with itself"
    assert list(describe_missed_kernels(found.kernels)) == ["triton_poi_9: its edit changes the outputs"]


def test_configs_and_edits_are_told_apart() -> None:
    found = replace(FOUND, kernels=(EDITED, DROPPED, *KERNELS))
    words = list(describe_details(found))
    assert words[:3] == [
        "1 of 2 edited kernels runs its edit",
        "2 of 4 kernels with a faster config run the config",
        "The step's saving is that of configs and edits together",
    ]
    assert "with the configs and the edits" in describe_proof(replace(found, step=SAME, device=None))
    assert "no kernel ran its edit or a config" in describe_proof(replace(found, kernels=(DROPPED, KERNELS[2])))


def test_a_kernel_that_does_not_run_its_edit_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for kernels, code in (((EDITED,), 0), ((EDITED, DROPPED), 1), (KERNELS, 0)):
        found = replace(FOUND, kernels=kernels)
        pinned = PinnedRun(Pins("apply", "", "", None), {}, {})
        outcome = ApplyOutcome(tmp_path, pinned, kernels, verification=found)
        monkeypatch.setattr(apply, "run_apply", lambda *_, outcome=outcome: outcome)
        assert main(["apply", str(tmp_path), "--verify", "--", "true"]) == code


def test_what_is_proven_is_followed_by_the_command_that_keeps_it() -> None:
    pinned, unproven = PinnedRun(Pins("apply", "", "", None), {}, {}), replace(FOUND, step=SAME)
    for found, folder, said in (
        (
            replace(FOUND, kernels=(EDITED, DROPPED)),
            Path("my run"),
            "'my run' --kernel kernels/mine.py keeps the edit in",
        ),
        (FOUND, Path("runs/x"), "inductor-bench apply runs/x keeps the configs in runs/x/tuned"),
        (FOUND, None, ""),
        (unproven, Path("runs/x"), ""),
    ):
        outcome = ApplyOutcome(folder, pinned, found.kernels, verification=found)
        shown = " ".join(printed(APPLIED_FORMATS.get("table"), outcome).partition("Next")[2].split())
        assert said in shown and bool(said) == bool(shown)


def test_an_undecided_proof_names_the_command_that_compares_more_steps() -> None:
    undecided = replace(FOUND, step=replace(STEP, verdict="undecided"), kernels=(EDITED,))
    wide = replace(FOUND, step=replace(SAME, low_s=-1.4e-3, high_s=0.9e-3))
    request = ApplyRequest(Path("my run"), ("python", "a b.py"), (Path("kernels/mine.py"),), verify=True, stop=True)
    request = replace(request, proof_s=3.0, timeout_s=60.0)  # which would end the program before the longer proof
    for found, limit, said in (
        (undecided, None, "apply 'my run' --kernel kernels/mine.py --verify --proof-time 30 --stop -- python 'a b.py'"),
        (
            undecided,
            0.05,
            "--proof-time 30 --stop --fail-above 5% -- python 'a b.py' compares steps for 30.0 s instead",
        ),
        (wide, None, "--proof-time 30"),
        (replace(undecided, step=replace(STEP, own_s=1.0, verdict="undecided")), None, "--proof-time 1800"),
        (replace(undecided, step=replace(STEP, own_s=1e-4, low_s=0.0, verdict="undecided")), None, "--proof-time 1 "),
        (
            replace(undecided, step=replace(STEP, pairs=1500, verdict="undecided")),
            None,
            "compares steps for 2 min 58 s instead",
        ),
        (replace(undecided, step=replace(STEP, pairs=MOST_TIMED // 2, verdict="undecided")), None, ""),
        (replace(undecided, step=replace(STEP, own_s=50.0, verdict="undecided")), None, ""),
        (replace(undecided, step=replace(STEP, own_s=20.0, verdict="undecided")), None, ""),
        (replace(undecided, ended_early=True), None, ""),
        (replace(undecided, way="processes"), None, ""),
        (replace(FOUND, step=SAME), None, ""),
        (FOUND, None, ""),
    ):
        pinned = PinnedRun(Pins("apply", "", "", None), {}, {})
        outcome = ApplyOutcome(Path("my run"), pinned, found.kernels, verification=found, request=request)
        shown = printed(APPLIED_FORMATS.get("table"), outcome, View(limit=limit))
        assert said in " ".join(shown.split()) and bool(said) == ("--proof-time" in shown), found


def rows_of(found: Verification) -> list[list[str]]:
    """The texts of the waterfall on the page of a proof; empty if there is none."""
    tables = [one for one in make_proof_section(found, 10).blocks if isinstance(one, Table)]
    (shown,) = [one for one in tables if one.columns[0].title == "from before to after"] or [Table((), ())]
    return [[cell.text for cell in row.cells[:2]] for row in shown.rows]


def test_a_page_shows_what_each_kernel_saves_between_before_and_after() -> None:
    rows = rows_of(FOUND)
    assert rows[0] == ["device time of a step, as it was", "15.6 ms"]
    assert rows[1:3] == [["triton_red_0", "-0.700 ms"], ["triton_poi_1", "-0.300 ms"]]
    assert rows[3:] == [["device time of a step, as it is", "14.6 ms"]], "they add up: nothing else is left"
    many = tuple(replace(KERNELS[0], name=f"triton_red_{number}", saving_s=5e-5) for number in range(20))
    assert [label for label, _ in rows_of(replace(FOUND, kernels=many))][-2:] == ["6 more kernels", rows[-1][0]]
    less = rows_of(replace(FOUND, kernels=KERNELS[:1]))
    assert less[2] == ["everything else", "-0.300 ms"]
    assert rows_of(replace(FOUND, kernels=tuple(replace(one, saving_s=None) for one in KERNELS))) == []
    assert rows_of(replace(FOUND, device=None)) == []


def test_the_bars_of_a_waterfall_each_begin_where_the_last_one_ends() -> None:
    falls = (TimeChange("less", -0.4), TimeChange("more", 0.1), TimeChange("by chance", -0.2, False))
    table, said = plot_waterfall(("A", 2.0), falls, ("B", 1.5))
    assert isinstance(table, Table) and isinstance(said, Sentence)
    bars = [row.cells[2].bar.stretches[0] for row in table.rows if row.cells[2].bar is not None]
    ends = [(round(bar.left or 0.0, 6), round((bar.left or 0.0) + bar.share, 6)) for bar in bars]
    (_, top), less, more, chance, (begin, after) = ends
    assert top == less[1] == 1.0 and less[0] == more[0] and more[1] == chance[1] and chance[0] == after and begin == 0.0
    assert [bar.colour for bar in bars[1:4]] == ["good", "bad", "muted"]
    assert "begin at 1.38 s" in said.text and (less[1] - less[0]) * (2.0 - 1.375) == pytest.approx(0.4, abs=1e-5)


# The row of a retuned kernel says itself why a faster config is not put into a program, as ``apply`` does.


UNLIKE = "by itself it takes 64 times what it takes in the model"


def folder_with(tmp_path: Path, category: Category, time_s: float, config: Config) -> RunFolder:
    """A RUN with the retune of one kernel, which takes 28.1 ms by itself and 14 ms with the config."""
    folder = RunFolder(tmp_path / "run")
    run = retune_fakes.make_run(folder)
    name, kernel_id, _, graph, calls, _ = retune_fakes.KERNELS[2]
    found = retune_fakes.retuned(f"{name}.py", "max")
    assert found.tuning is not None
    tuning = replace(found.tuning, default_s=28.1e-3, best_s=14e-3, speedup=2.0, verdict="faster", best_config=config)
    kernel = replace(found, tuning=tuning)
    row = Retune(name, kernel_id, category, (graph,), calls, time_s * calls, f"kernels/{name}.py", "max", kernel)
    folder.save(replace(run, retunes=(row,)))
    return folder


CASES = [
    (Category.POINTWISE, 28.1e-3 / 64, {"XBLOCK": 64}, UNLIKE, "so its winner says nothing about the model"),
    (Category.EXTERN_CONV, 28.1e-3, {"cudnn_benchmark": True}, "cuDNN's search", "torch.backends.cudnn.benchmark"),
    (Category.EXTERN_GEMM, 28.1e-3, {"threads": 4}, "another number of threads", "torch.set_num_threads"),
    (
        Category.EXTERN_GEMM,
        28.1e-3,
        {"backend": "cutlass"},
        "a CUTLASS kernel; Inductor uses such a kernel only",
        "timed it",
    ),
]


@pytest.mark.parametrize(("category", "time_s", "config", "short", "more"), CASES)
def test_a_row_says_why_its_config_is_not_put_into_a_program(
    category: Category,
    time_s: float,
    config: Config,
    short: str,
    more: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = folder_with(tmp_path, category, time_s, config)
    assert entry.main(["apply", str(folder.path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert short.split(":")[0] in said and more in said
    assert entry.main(["report", str(folder.path), "--no-plots"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (place,) = [number for number, line in enumerate(lines) if "28.1 ms" in line]
    assert lines[place + 1].strip().startswith(short), "the line below the row"
    assert entry.main(["report", str(folder.path), "--no-plots", "--format", "md"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "28.1 ms" in line]
    assert short.split("'")[0] in row
    page = (folder.path / "report.html").read_text()
    assert short.replace("'", "&#39;") in page
    assert short in (folder.path / "tables" / "retunes.csv").read_text()


def test_a_row_without_an_obstacle_has_no_line_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_with(tmp_path, Category.POINTWISE, 28.1e-3, {"XBLOCK": 64})
    assert entry.main(["report", str(folder.path), "--no-plots"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (place,) = [number for number, line in enumerate(lines) if "28.1 ms" in line and "2.00x" in line]
    assert not lines[place + 1].strip()


# What ``apply`` says: how much of the winners can be put back, and why the others cannot.


def row(name: str, category: Category, saving_s: float) -> RetuneRow:
    place = (name, name, category, ("forward",), 1.0, 1e-3, f"kernels/{name}.py", "max")
    return RetuneRow(*place, tuned_default_s=1e-3, tuned_best_s=5e-4, speedup=2.0, verdict=FASTER, saving_s=saving_s)


CONFIG, LIBRARY = row("triton_red_0", Category.REDUCTION, 20e-6), row("aten_mm_0", Category.EXTERN_GEMM, 800e-6)
PIN = TritonPin("key", (), "triton_red_0", "triton_red_0", {"XBLOCK": 1})


def text(pinned: tuple[TritonPin, ...], unpinned: tuple[Unpinned, ...]) -> str:
    pins = Pins(APPLY, "digest", "2.11", "3.6", pinned, ())
    rows = {one.kernel_id: one for one in (CONFIG, LIBRARY)}
    outcome = ApplyOutcome(Path("runs/x"), PinnedRun(pins, {}, rows, unpinned), written=(Path("tuned.py"),))
    return " ".join(printed(APPLIED_FORMATS.get("table"), outcome).split())


@pytest.mark.parametrize(
    ("pinned", "unpinned", "said", "silent"),
    [
        ((PIN,), (), "A faster config was found for 1 kernel; projected saving 20.0 µs a step", "put back"),
        (
            (PIN,),
            (Unpinned(LIBRARY, "a library call"),),
            "A faster config was found for 2 kernels; 1 of these configs can be put back; projected saving 20.0 µs",
            "800",
        ),
        (
            (),
            (Unpinned(CONFIG, "its standalone file is missing"),),
            "none of these configs can be put back",
            "saving",
        ),
    ],
)
def test_winners_that_cannot_be_put_back_are_named(
    pinned: tuple[TritonPin, ...], unpinned: tuple[Unpinned, ...], said: str, silent: str
) -> None:
    shown = text(pinned, unpinned)
    assert said in shown and silent not in shown
    assert ("--verify -- python train.py" in shown) == bool(pinned), "without a pin there is nothing to compare"
    assert all(f"{left.row.name}: {left.reason}" in shown for left in unpinned)


def test_a_saving_by_a_setting_of_a_library_is_told_from_one_by_configs() -> None:
    timing = summarize([1e-3] * 9)
    tuning = Tuning("max", "cold", (), 3, 1e-3, 2e-4, 5.0, FASTER, {"backend": "aten", "cudnn_benchmark": True})
    kernel = MeasuredKernel("aten_conv_0", "c" * 16, "", "aten", "a GPU", {}, timing, timing, "", tuning=tuning)
    place = ("aten_conv_0", "c" * 16, Category.EXTERN_CONV, ("forward",), 1.0, 1e-3, "kernels/aten_conv_0.py", "max")
    searched = Retune(*place, kernel=kernel)
    run = replace(step_runs.transformer(), retunes=(searched,))

    def words_of(retune: Retune) -> str:
        summary = summarize_retunes((retune.row, CONFIG))
        assert summary is not None
        return describe_retunes(summary, run)

    left = "0.800 ms of this saving needs library settings or library kernels, which apply does not set"
    words = f"a step would save 0.820 ms (2.7%), {left}"
    assert words in words_of(searched)
    template = replace(kernel, tuning=replace(tuning, best_config={"backend": "triton", "template": "mm"}))
    assert "settings" not in words_of(replace(searched, kernel=template))
    cutlass = replace(kernel, tuning=replace(tuning, best_config={"backend": "cutlass", "kernel": "a"}))
    assert words in words_of(replace(searched, kernel=cutlass))
