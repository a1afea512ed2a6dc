"""The menu of settings for recorded runs."""

import gzip
import json
from dataclasses import fields, replace
from typing import Any
from zipfile import ZipFile

import kernel_groups
import pytest
import step_runs
from conftest import ROOT
from inline import change

from inductor_bench.analysis.optimization.menu import ASKED_FOR, DISTURBED, FUNCTIONS, LEAST_SHARE, OWN, make_menu
from inductor_bench.analysis.optimization.menu_entries import MENU, THREADS
from inductor_bench.analysis.optimization.step_facts import StepFacts
from inductor_bench.analysis.optimization.trial_plans import (
    GIVEN_UP,
    describe_long_compilations,
    sort_by_expected_saving,
)
from inductor_bench.records import optimization
from inductor_bench.records.code import RECOMPUTED, MachineLoad, SourceLine
from inductor_bench.records.module import Kernel
from inductor_bench.records.optimization import (
    ALTERNATING,
    DENIED,
    GROUPS,
    INDUCTOR,
    PRECISION,
    SCREEN,
    SUGGESTED,
    UNTRIED,
    MenuRow,
    ProgramSetting,
    Trial,
    TrialVariant,
)
from inductor_bench.records.run import (
    EAGER,
    GUARDS,
    IDLE,
    Capture,
    CompiledFunction,
    HostStretch,
    HostWork,
    LayerTime,
    Part,
    Prediction,
    Run,
)
from inductor_bench.store import codec


def recorded(name: str) -> Run:
    with ZipFile(ROOT / "tests" / "data" / "documented" / f"{name}.zip") as archive:
        (record,) = (place for place in archive.namelist() if place.endswith("record.json"))
        return codec.decode(Run, codec.upgrade(json.loads(archive.read(record)), record))


def menu_of(name: str, **options: object) -> dict[str, MenuRow]:
    return {row.slug: row for row in make_menu(StepFacts(recorded(name)), **options)}  # type: ignore[arg-type]


def test_a_step_that_waits_for_launches_may_take_cuda_graphs_and_a_fused_optimizer() -> None:
    rows = menu_of("blocks")
    tried = [slug for slug, row in rows.items() if row.state == UNTRIED and not row.reason]
    assert {"cudagraphs", "fused-optimizer", "attention-cudnn"} <= set(tried)
    assert rows["cudagraphs"].bound == pytest.approx(0.4426, abs=1e-3)
    assert all(rows[slug].bound is None or (rows[slug].bound or 0.0) >= LEAST_SHARE for slug in tried)


def test_backends_of_attention_are_tried_if_no_fused_kernel_took_its_calls() -> None:
    """A training on an H200 that has switched off all backends but that of plain operators."""
    packed = ROOT / "tests" / "data" / "h200_torch2.11" / "programs" / "only_math" / "record.json.gz"
    run = codec.decode(Run, codec.upgrade(json.loads(gzip.decompress(packed.read_bytes())), str(packed)))
    rows = {row.slug: row for row in make_menu(StepFacts(run))}
    for slug in ("attention-cudnn", "attention-flash", "attention-efficient"):
        assert rows[slug].bound == pytest.approx(0.832, abs=1e-3) and not rows[slug].reason
    own = [replace(module, kernels=tuple(map(without_line, module.kernels))) for module in run.modules]
    rows = {row.slug: row for row in make_menu(StepFacts(replace(run, modules=tuple(own))))}
    assert rows["attention-cudnn"].reason, "the program multiplies by itself, and calls no attention of torch"


def without_line(kernel: Kernel) -> Kernel:
    return change(kernel, source_lines=())


def test_what_can_save_little_is_not_tried_and_says_how_little() -> None:
    rows = menu_of("train")
    assert rows["fused-optimizer"].reason == "it can save at most 0.5% of the step"
    assert rows["channels-last"].reason == "it can save at most 0% of the step"


@pytest.mark.parametrize(
    ("threads", "own", "words"),
    [
        (1, 1, ""),
        (1, 2, "the program itself runs on 1 thread of 2 cores: only its own call of torch.set_num_threads"),
        (2, 2, "the program uses all cores already"),
        (None, None, "the number of threads of the program is not known"),
    ],
)
def test_more_threads_are_tried_unless_the_program_has_them_or_sets_their_number(
    threads: int | None, own: int | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StepFacts, "on_host", True)
    run = recorded("blocks")
    host = replace(run.environment.host, threads=own, cpu_count=2)
    modules = tuple(replace(module, threads=threads) for module in run.modules)
    facts = StepFacts(replace(run, modules=modules, environment=replace(run.environment, host=host)))
    found = THREADS.obstacle(facts)
    assert found.startswith(words) if words else not found


def test_graphs_that_are_replayed_already_are_not_tried() -> None:
    rows = menu_of("decode")
    assert rows["cudagraphs"].reason == "the step replays CUDA graphs already"
    assert rows["fused-optimizer"].reason == "the step has no eager optimizer"
    assert not rows["freezing"].reason and menu_of("train")["freezing"].reason == "it is for inference"


def test_precision_is_tried_only_if_it_is_allowed() -> None:
    assert menu_of("train")["tf32"].reason == "it changes the precision of numbers; give --allow tf32 to try it"
    assert not menu_of("train", allowed=("tf32",))["tf32"].reason
    assert all(entry.numbers == PRECISION for entry in MENU if entry.group in ASKED_FOR)


def test_bfloat16_is_tried_on_a_processor_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = ("bf16",)
    assert menu_of("train", allowed=allowed)["bf16"].reason == "it helps on a CPU only"
    monkeypatch.setattr(StepFacts, "on_host", True)
    run = recorded("train")
    assert run.peaks is not None and "bfloat16" in run.peaks.matmul_flops

    def row(one: Run, **options: Any) -> MenuRow:
        return next(row for row in make_menu(StepFacts(one), **options) if row.slug == "bf16")

    assert row(run).reason == "it changes the precision of numbers; give --allow bf16 to try it"
    assert not row(run, allowed=allowed).reason and row(run, allowed=allowed).alternates
    emulated = replace(run, peaks=replace(run.peaks, matmul_flops={"float32": 1e12}))
    assert row(emulated, allowed=allowed).reason == "the processor is no faster in bfloat16 than in float32"
    assert not row(replace(run, peaks=None), allowed=allowed).reason
    first = run.modules[0]
    timed = tuple(replace(kernel, bfloat16_ratio=1.1) for kernel in first.kernels)
    slower = replace(run, modules=(replace(first, kernels=timed), *run.modules[1:]))
    assert "are not clearly faster in bfloat16; give --allow bf16" in row(slower).reason
    assert not row(slower, allowed=allowed).reason
    medium = replace(run, modules=tuple(replace(module, bf16=True) for module in run.modules))
    assert "in bfloat16 already" in row(medium, allowed=allowed).reason


def test_a_denied_group_is_not_tried() -> None:
    assert menu_of("blocks", denied=("cudagraphs",))["cudagraphs"].reason == DENIED


def test_options_are_asked_of_torch() -> None:
    options = {one.setting: "None" for entry in MENU for one in entry.settings if one.kind == INDUCTOR}
    del options["combo_kernels"]
    options["triton.mix_order_reduction"] = "True"
    rows = menu_of("blocks", options=options)
    assert rows["combo-kernels"].reason == "this torch has no option combo_kernels"
    assert rows["mix-order-reduction"].reason == "it is set already"
    assert not rows["no-mix-order-reduction"].reason


def test_settings_of_the_user_are_rows_of_their_own() -> None:
    settings = (ProgramSetting(INDUCTOR, "x", "1"), ProgramSetting("environment", "Y", "'2'"))
    rows = menu_of("train", own=settings)
    own = [row for row in rows.values() if row.group == OWN]
    assert [(row.settings, row.alternates, row.reason) for row in own] == [
        ((settings[0],), True, ""),
        ((settings[1],), False, ""),
    ]


def test_pins_of_retunes_are_a_row() -> None:
    setting = ProgramSetting("pins", "INDUCTOR_BENCH_PINS", "'/x/pins.json'")
    row = menu_of("train", pins=(setting, 1e-4))["pins"]
    assert row.settings == (setting,) and not row.alternates and not row.reason
    assert row.bound == pytest.approx(2e-4 / 0.003573, rel=1e-3)
    assert menu_of("train", pins=(setting, 1e-4), denied=("pins",))["pins"].reason == DENIED
    assert "pins" not in menu_of("train")


def with_parts(name: str, *parts: Part, **program: object) -> StepFacts:
    run = recorded(name)
    assert run.program is not None
    known = tuple(part for part in run.program.parts if part.kind != EAGER)
    return StepFacts(replace(run, program=replace(run.program, parts=(*known, *parts), host=None, **program)))


def eager(label: str, share: float, line: int, function: str, code: str = "") -> Part:
    step_s = recorded("train").program.step_time_s  # type: ignore[union-attr]
    return Part(EAGER, label, 1, share * step_s, share, source=SourceLine("/x/train.py", line, function, code))


def test_functions_that_call_eager_operators_and_eager_losses_are_compiled() -> None:
    parts = [
        eager("aten::mul", 0.04, 7, "augment"),
        eager("aten::add", 0.02, 8, "augment"),
        eager("aten::_log_softmax", 0.05, 20, "main", "loss = F.cross_entropy(outputs, targets)"),
        eager("aten::sin", 0.2, 30, "<module>"),
        eager("aten::cos", 0.001, 40, "small"),
        eager("aten::exp", 0.2, 50, "train_step"),
        eager("AccumulateGrad", 0.01, 51, "train_step", "loss.backward()"),
    ]
    rows = {row.slug: row for row in make_menu(with_parts("train", *parts), denied=("memory",))}
    compiled = {slug: row for slug, row in rows.items() if row.group == FUNCTIONS}
    assert list(compiled) == ["compile-loss-cross_entropy", "compile-1-augment"], "main is called once"
    row = compiled["compile-1-augment"]
    assert row.settings == (ProgramSetting("function", "/x/train.py:7:augment", "True"),)
    assert row.alternates and row.bound == pytest.approx(0.06, rel=0.01) and not row.reason
    assert compiled["compile-loss-cross_entropy"].settings[0].setting == "torch.nn.functional.cross_entropy"
    denied = {row.slug: row for row in make_menu(with_parts("train", *parts), denied=("functions",))}
    assert denied["compile-1-augment"].reason == DENIED


def test_a_function_with_a_loop_or_a_graph_compiles_for_long_and_comes_after_cheaper_rows() -> None:
    """As in a service that fills a mask element by element before it calls its model."""
    parts = [
        eager("aten::mul", 0.06, 76, "handle"),
        replace(eager("aten::select", 0.05, 63, "build_mask"), calls=74),
        eager("aten::sin", 0.04, 54, "positions"),
    ]
    facts = with_parts("train", *parts)
    assert facts.run.program is not None
    entered = HostStretch(GUARDS, "guards", 1e-4, 9, SourceLine("/x/train.py", 76, "Ranker.handle", ""))
    host = HostWork((entered,), 9, 200, 700, 0.0, 0.0, 0.0, 0)
    facts = StepFacts(replace(facts.run, program=replace(facts.run.program, host=host)))
    rows = sort_by_expected_saving(row for row in make_menu(facts) if row.slug.startswith("compile-"))
    assert [(row.slug, row.is_costly) for row in rows] == [
        *(("compile-3-positions", False), ("compile-1-handle", True), ("compile-2-build_mask", True)),
    ]


def test_a_search_says_which_setting_compiled_for_more_than_a_quarter_of_its_time() -> None:
    tried = [
        TrialVariant("original", compile_time_s=70.0),
        TrialVariant("compile-1-handle", failure=GIVEN_UP.format(what="compiles for more than 60 s")),
        TrialVariant("cpp-wrapper", compile_time_s=61.0),
        TrialVariant("freezing", compile_time_s=59.0),
    ]
    slugs = tuple(one.slug for one in tried[1:])
    trial = Trial("01-screen", SCREEN, True, slugs, tuple(tried), time_s=128.0)
    assert list(describe_long_compilations(trial, 240.0)) == [
        "01-screen took 2 min 8 s of 4 min, because compile-1-handle compiled until it was given up",
        "cpp-wrapper compiled for 1 min 1 s of 4 min",
    ]


def test_an_option_of_dynamo_is_tried_if_a_hint_names_it() -> None:
    run = recorded("train")
    hint = "/x/train.py:3: Unsupported Tensor.item() Hint: Set `torch._dynamo.config.capture_scalar_outputs = True`"
    rows = menu_after(run, replace(run.capture, graph_breaks=(hint,)))
    row = rows["capture-scalars"]
    assert row.settings == (ProgramSetting("dynamo", "capture_scalar_outputs", "True"),) and not row.reason
    assert rows["allow-rnn"].reason == "no graph break's hint names it"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("aten::binary_cross_entropy_with_logits", "binary_cross_entropy_with_logits"),
        ("NllLossBackward0", "cross_entropy"),
        ("MseLossBackward0", "mse_loss"),
        ("SmoothL1LossBackward0", "smooth_l1_loss"),
        ("aten::mul", None),
    ],
)
def test_a_loss_is_known_by_its_operators(text: str, name: str | None) -> None:
    assert list(with_parts("train", eager(text, 0.1, 1, "main")).eager_losses) == ([name] if name else [])


def test_less_memory_is_tried_only_if_something_is_recomputed_or_waits_for_memory() -> None:
    nothing = {row.slug: row for row in make_menu(with_parts("train"))}["memory-budget"]
    assert nothing.reason == "nothing is recomputed, and nothing waits for memory"
    step_s = recorded("train").program.step_time_s  # type: ignore[union-attr]
    layers = (LayerTime("Net.layers.0", RECOMPUTED, "graph", 0.1 * step_s, 1),)
    row = {row.slug: row for row in make_menu(with_parts("train", layers=layers))}["memory-budget"]
    assert row.bound == pytest.approx(0.1) and not row.reason and "less memory" in row.why


def test_limits_of_dynamo_are_tried_if_they_were_reached() -> None:
    assert menu_of("train")["recompile-limit"].reason.startswith("no function was compiled so often")
    run = recorded("train")
    function = CompiledFunction("train.py:3 step", reached_limit=True)
    rows = menu_after(run, replace(run.capture, functions=(function,)))
    assert not rows["recompile-limit"].reason


def menu_after(run: Run, capture: Capture) -> dict[str, MenuRow]:
    """The menu of a run with another capture."""
    return {row.slug: row for row in make_menu(StepFacts(replace(run, capture=capture)))}


def test_shapes_are_a_question_only_if_a_size_changed() -> None:
    run = recorded("train")
    config = "train.py:3 step: 0/0: model.config.problem_type is None"
    size = "train.py:3 step: 0/0: tensor 'x' size mismatch at index 0. expected 8, actual 7"
    rows = menu_after(run, replace(run.capture, recompiles=(config,)))
    assert rows["dynamic"].reason == "nothing was compiled again for another size"
    assert rows["static"].reason == "no graph is for any shape"
    assert not menu_after(run, replace(run.capture, recompiles=(size,)))["dynamic"].reason
    dynamic = replace(run, modules=tuple(replace(module, dynamic=True) for module in run.modules))
    rows = menu_after(dynamic, run.capture)
    assert not rows["dynamic"].reason and not rows["static"].reason and rows["static"].bound


@pytest.mark.parametrize("calls_torch", [False, True])
def test_attention_of_several_kernels_is_named_unless_backends_are_tried(calls_torch: bool) -> None:
    code = "F.scaled_dot_product_attention(q, k, v)" if calls_torch else "probabilities = scores.softmax(-1)"
    run = kernel_groups.decomposed(code)
    assert run.program is not None
    predicted = Prediction("decomposed-attention:1", "decomposed-attention", 0.2 * run.program.step_time_s, 0.0)
    rows = make_menu(StepFacts(replace(run, program=replace(run.program, predictions=(predicted,)))))
    named = [row.title for row in rows if row.state == SUGGESTED and "attention in one kernel" in row.title]
    assert len(named) == (not calls_torch)


def test_guards_are_only_named() -> None:
    row = menu_of("blocks")["skip-guards"]
    assert row.state == SUGGESTED and not row.settings and row.bound == pytest.approx(0.02, abs=1e-3)


@pytest.mark.parametrize("others_s", [0.0, 3.0])
def test_a_suggestion_says_that_its_share_is_of_a_disturbed_step(others_s: float) -> None:
    program = step_runs.cpu().program
    assert program is not None
    load = MachineLoad(20, 2, 6.0, time_s=2.0, cpu_time_s=1.0, waited_s=1.0, stolen_s=0.0, others_s=others_s)
    ranks = tuple(replace(rank, load=load) for rank in program.ranks)
    line = Prediction("eager-operators:1", "eager-operators", 0.2 * program.step_time_s, 0.0)
    parts = (*program.parts, Part(IDLE, GUARDS, 1, 0.1 * program.step_time_s, 0))
    run = replace(step_runs.cpu(), program=replace(program, ranks=ranks, parts=parts, predictions=(line,)))
    suggested = [row for row in make_menu(StepFacts(run)) if row.state == SUGGESTED]
    assert len(suggested) == 2 and all(row.reason.endswith(DISTURBED) == bool(others_s) for row in suggested)


def test_without_a_profiled_step_nothing_bounds_a_row() -> None:
    run = replace(recorded("train"), program=replace(recorded("train").program, parts=()))  # type: ignore[type-var]
    rows = {row.slug: row for row in make_menu(StepFacts(run))}
    assert rows["cudagraphs"].bound is None and not rows["cudagraphs"].reason


def test_groups_and_kinds_are_those_that_the_menu_uses() -> None:
    assert {*(entry.group for entry in (*MENU, THREADS)), optimization.PINS, FUNCTIONS} == set(GROUPS)
    names = ("INDUCTOR", "DYNAMO", "TORCH", "OPTIMIZER", "ATTENTION", "LOADER", "COMPILE", "ENVIRONMENT", "FUNCTION")
    kinds = {optimization.MEMORY_FORMAT, *(getattr(optimization, name) for name in names)}
    assert {one.kind for entry in MENU for one in entry.settings} <= kinds and set(ALTERNATING) <= kinds


def test_each_row_says_all_about_itself() -> None:
    slugs = [entry.slug for entry in MENU]
    assert len(set(slugs)) == len(slugs) and not any("+" in slug for slug in slugs)
    for entry in MENU:
        assert entry.title and entry.why and entry.source and entry.settings, entry.slug
    assert {item.name for item in fields(MenuRow)} >= {"bound", "numbers", "fails", "source", "reason"}
