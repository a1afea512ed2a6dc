"""Compares two sides: pairs their graphs and kernels, and divides the difference of their steps into parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from .. import units
from ..errors import InductorBenchError
from ..records.comparison import (
    FASTER,
    ITERATION,
    NOT_COMPARABLE,
    REST,
    SLOWER,
    STEP,
    UNCHANGED,
    UNDECIDED,
    EnvironmentDifference,
    GraphChange,
    KernelChange,
    PartChange,
    RunComparison,
    SideSummary,
    StepChange,
    StepProof,
)
from ..records.run import Run
from .comparison_causes import Setting, describe_kernel_change, divide_difference
from .comparison_pairs import (
    DISTURBED,
    NO_CAUSE,
    SHARED_GPU,
    UNEXPLAINED,
    GraphPair,
    Noise,
    compute_step_effect_s,
    compute_step_error_s,
    estimate_noise,
    judge_difference,
    keep_kernels_of_both,
    make_noise_of_whole_difference,
    pair_graphs,
    pair_kernels,
    regroup_operators,
)
from .comparison_sides import Side, Sources, has_one_profiled_step, has_other_calls, make_side, names_all_operators
from .comparison_words import (
    BUSY_OTHERS,
    PROGRAM,
    PROGRAM_FILE,
    TORCH,
    compute_waiting_share,
    describe_busy_machine,
    describe_machine,
    explain_incomparable,
    have_same_compiler,
    list_doubts,
    list_environment_differences,
    list_reasons,
    name_surroundings_of_choices,
    name_surroundings_of_kernels,
)
from .findings.doubts import compute_share_of_others, find_disturbed, find_disturbed_step
from .findings.finding import join_words
from .step_costs import find_step, is_shared

Row = TypeVar("Row", PartChange, KernelChange)
NO_STEP = (
    "the figures are per iteration of each graph, outside of the program: no step was profiled in {}, so eager "
    "operators, copies and the calls of graphs are not compared"
)
ONE_PROFILE = (
    "the kernels of {} are known for one side only, because the profile of the other side failed; all of the graph's "
    "time is in the part "
    "'graphs, outside of their kernels'"
)
ONE_RUN = (
    "each side is one run, which cannot show how much two runs of the same program differ; `inductor-bench compare "
    "before.py after.py` runs two versions of a program in turn until it is decided which is faster"
)


def compare_runs(
    a: Sequence[Run],
    b: Sequence[Run],
    names: tuple[str, str] = ("A", "B"),
    texts: tuple[Sources, Sources] = ({}, {}),
    changed: Sequence[EnvironmentDifference] = (),
    proof: StepProof | None = None,
) -> RunComparison:
    """Compares the runs of B with those of A.

    Args:
        a, b: the records of each side; several runs of one program are averaged.
        names: the names of the sides, as the user would type them.
        texts: the texts of their kernels, if they are known.
        changed: the difference that was made on purpose. It comes first, and the records may not show it.
        proof: what timed processes say of the step. It decides; the runs say where the difference comes from.

    Raises:
        InductorBenchError: a side measured nothing.
    """
    (a, b), left_out = _choose_runs(a, b, names)
    stepless = [side for side, runs in (("A", a), ("B", b)) if any(find_step(run) is None for run in runs)]
    side_of = partial(make_side, in_step=not stepless, lists_all=all(map(names_all_operators, (*a, *b))))
    first, second = regroup_operators(side_of(a), side_of(b))
    graphs, unknown = keep_kernels_of_both(pair_graphs(first, second))
    matches = pair_kernels(graphs, texts)
    differences = _list_differences(a[0], b[0], changed)
    busy = [note for side, runs in (("A", a), ("B", b)) for note in describe_busy_machine(side, runs)]
    around, several = name_surroundings_of_kernels(differences, on_host=first.on_host), len(a) > 1 < len(b)
    if not busy and several:  # interleaved runs on a quiet machine: the change made on purpose may be the cause
        around = tuple(dict.fromkeys((*changed, *around)))
    is_known = all(run.environment.versions.torch for run in (*a, *b))
    same_machine = bool(busy) or (is_known and all(row.name == TORCH for row in around))
    same_libraries = is_known and all(row.name != TORCH for row in differences)
    same = {"same_machine": same_machine, "same_libraries": same_libraries}
    noise_of = partial(estimate_noise, first, second, matches, waited=compute_waiting_share((*a, *b)), **same)
    noise, step_noise = noise_of(of_step=False), noise_of(of_step=True)
    compiler, choices = have_same_compiler((*a, *b)), name_surroundings_of_choices(differences)
    tuned, edited = _list_tuned_configs((*a, *b)), any(row.name == PROGRAM_FILE for row in differences)
    single_step = any(map(has_one_profiled_step, (*first.runs, *second.runs)))
    setting = Setting(noise, texts, compiler, around, edited, bool(busy), choices, tuned, several, single_step)
    kernels = [describe_kernel_change(match, setting) for match in matches]
    divide = partial(divide_difference, first, second, graphs, kernels, setting=setting)
    judge = partial(_judge_by_proof, proof) if proof is not None else partial(_judge_by_runs, around, kernels)
    step, parts = judge(first, second, step_noise, divide, is_changed=bool(differences))
    reasons = explain_incomparable(first, second, matches, are_versions=proof is not None)
    return RunComparison(
        comparable=not reasons,
        reasons=reasons,
        verdict=NOT_COMPARABLE if reasons else step.verdict,
        environment_differences=differences,
        a=_summarise_side(names[0], a),
        b=_summarise_side(names[1], b),
        step=step,
        parts=_leave_out_verdicts(parts, reasons),
        graphs=tuple(map(_describe_graph_change, graphs)),
        kernels=_leave_out_verdicts(sorted(kernels, key=lambda change: -abs(change.delta_s)), reasons),
        notes=tuple(dict.fromkeys((*left_out, *_list_notes(a, b, unknown, busy, stepless, decide=proof is None)))),
        proof=proof,
    )


Divide = Callable[[StepChange], list[PartChange]]


def _judge_by_runs(
    around: Sequence[EnvironmentDifference],
    kernels: Sequence[KernelChange],
    a: Side,
    b: Side,
    noise: Noise,
    divide: Divide,
    *,
    is_changed: bool,
) -> tuple[StepChange, list[PartChange]]:
    """Judges the step, and divides its difference. The whole difference may be noise, for a reason that is said."""
    step = _describe_step_change(a, b, noise)
    parts = divide(step)
    if doubt := _find_doubt(a, b, step, parts, around, has_cause=is_changed or _has_cause(parts, kernels)):
        step = _describe_step_change(a, b, make_noise_of_whole_difference(noise, a, b, doubt))
    return step, parts


def _judge_by_proof(
    proof: StepProof, a: Side, b: Side, noise: Noise, divide: Divide, *, is_changed: bool
) -> tuple[StepChange, list[PartChange]]:
    """Takes the verdict of timed processes, and divides their difference as the profiled runs show it.

    There are no parts if the runs have no step.
    """
    step = _take_step(proof)
    parts = divide(replace(step, noise=noise.relative)) if a.in_step and b.in_step else []
    return step, [_explain_rest(part, a, b) for part in parts]


def compare_steps(
    a: Run, b: Run, names: tuple[str, str], changed: Sequence[EnvironmentDifference], proof: StepProof
) -> RunComparison:
    """Makes the comparison of processes whose steps were timed and not profiled: the step without its parts.

    Args:
        a, b: records of the two sides with their requests and environments, and without measurements.
        names: the names of the sides, as the user would type them.
        changed: the difference that was made on purpose.
        proof: what the processes say.
    """
    reasons = tuple(list_reasons(a, b))
    return RunComparison(
        comparable=not reasons,
        reasons=reasons,
        verdict=NOT_COMPARABLE if reasons else proof.verdict,
        environment_differences=_list_differences(a, b, changed),
        a=_summarise_side(names[0], [a]),
        b=_summarise_side(names[1], [b]),
        step=_take_step(proof),
        proof=proof,
    )


def _list_differences(a: Run, b: Run, changed: Sequence[EnvironmentDifference]) -> tuple[EnvironmentDifference, ...]:
    said = {"target"} if any(row.name == PROGRAM for row in changed) else set[str]()
    rows = (*changed, *(row for row in list_environment_differences(a, b) if row.name not in said))
    return tuple({row.name: row for row in rows if row.a != row.b}.values())


def _take_step(proof: StepProof) -> StepChange:
    """The step's difference as the processes show it."""
    counts = len(proof.a_steps_s), len(proof.b_steps_s)
    noise, source = 0.0, "unknown"
    if proof.low_s is not None and proof.high_s is not None:
        noise = max(proof.high_s - proof.delta_s, proof.delta_s - proof.low_s) / proof.a_s
        source = f"measured, by {counts[0]} and {counts[1]} processes in turn"
    change = {name: getattr(proof, name) for name in ("a_s", "b_s", "delta_s", "low_s", "high_s", "verdict")}
    return StepChange(**change, noise=noise, noise_source=source)


def _explain_rest(part: PartChange, a: Side, b: Side) -> PartChange:
    """Says of the time that belongs to no part how long the profiled runs' steps are."""
    if part.cause != REST:
        return part
    detail = f"the profiled runs' steps take {units.seconds(a.step_s)} in A and {units.seconds(b.step_s)} in B"
    return replace(part, detail=detail)


def _choose_runs(
    a: Sequence[Run], b: Sequence[Run], names: tuple[str, str]
) -> tuple[tuple[Sequence[Run], Sequence[Run]], Sequence[str]]:
    """Returns the runs of each side whose steps other processes did not disturb, and notes on the others.

    All runs count if a side has no such run.

    Raises:
        InductorBenchError: a side measured nothing.
    """
    _check_measured(names, (a, b))
    quiet = tuple([run for run in runs if not find_disturbed_step(run)] for runs in (a, b))
    if not all(quiet):
        return (a, b), ()
    notes = [
        f"{len(runs) - len(kept)} of {len(runs)} runs of {side} do not count, because other processes disturbed their "
        "steps; the figures come from the other runs"
        for side, runs, kept in (("A", a, quiet[0]), ("B", b, quiet[1]))
        if len(kept) < len(runs)
    ]
    return (quiet[0], quiet[1]), notes


def _list_notes(
    a: Sequence[Run],
    b: Sequence[Run],
    unknown: list[str],
    busy: Sequence[str],
    stepless: Sequence[str],
    *,
    decide: bool,
) -> Iterator[str]:
    """Yields what limits the figures: the records, graphs with unknown kernels, a busy machine, no step."""
    yield from (note for side, runs in (("A", a), ("B", b)) for run in runs for note in list_doubts(side, run))
    if unknown:
        yield ONE_PROFILE.format(join_words(unknown))
    yield from busy
    if stepless and decide:
        yield NO_STEP.format(" and ".join(stepless))
    if not decide and any(map(is_shared, (*a, *b))):
        yield SHARED_GPU
    if decide and len(a) == 1 == len(b):
        yield ONE_RUN


def _is_explained(step: StepChange, parts: Sequence[PartChange]) -> bool:
    """Whether the parts that are reliably slower or faster explain the step's difference, except for noise."""
    sure_s = sum(part.delta_s for part in parts if part.verdict == step.verdict)
    unexplained_s = abs(step.delta_s - sure_s)
    return step.verdict not in (SLOWER, FASTER) or unexplained_s <= step.noise * max(step.a_s, step.b_s)


def _has_cause(parts: Sequence[PartChange], kernels: Sequence[KernelChange]) -> bool:
    """Whether a part or a kernel is slower or faster because of other code, another config or other calls."""
    rows = [part for part in parts if has_other_calls(part)], [row for row in kernels if row.cause != UNCHANGED]
    return any(row.verdict in (SLOWER, FASTER) for group in rows for row in group)


def _find_doubt(
    a: Side,
    b: Side,
    step: StepChange,
    parts: Sequence[PartChange],
    around: Sequence[EnvironmentDifference],
    *,
    has_cause: bool,
) -> str:
    """Says why the whole difference may be noise; empty if there is no reason."""
    if any(map(is_shared, (*a.runs, *b.runs))):
        return SHARED_GPU
    counts, every = {len(a.runs), len(b.runs)}, (*a.runs, *b.runs)
    if 1 in counts and any(find_disturbed(run) or compute_share_of_others(run) >= BUSY_OTHERS for run in every):
        return DISTURBED
    if a.on_host and not has_cause:
        return NO_CAUSE
    return UNEXPLAINED if counts == {1} and a.on_host and not around and not _is_explained(step, parts) else ""


def _leave_out_verdicts(rows: Sequence[Row], reasons: Sequence[str]) -> tuple[Row, ...]:
    """Returns the rows. If the sides are not comparable, no row keeps the verdict slower or faster."""
    return tuple(replace(row, verdict=UNDECIDED) for row in rows) if reasons else tuple(rows)


def _check_measured(names: tuple[str, str], sides: tuple[Sequence[Run], Sequence[Run]]) -> None:
    for name, run in ((name, run) for name, runs in zip(names, sides, strict=True) for run in runs):
        if not run.modules and find_step(run) is None:
            failure = next(iter(run.failures), None)
            why = f": {failure.message} ({failure.stage})" if failure is not None else ""
            raise InductorBenchError(
                f"{name} holds no measurement{why}", failure.hint if failure is not None else "", "nothing-measured"
            )


def _summarise_side(name: str, runs: Sequence[Run]) -> SideSummary:
    return SideSummary(name, runs[0].title, describe_machine(runs[0]), runs[0].created, len(runs))


def _list_tuned_configs(runs: Sequence[Run]) -> tuple[tuple[str, dict[str, int], float], ...]:
    return tuple(
        (retune.kernel_id, candidate.config, candidate.median_s)
        for run in runs
        for retune in run.retunes
        if retune.tuning is not None
        for candidate in retune.tuning.candidates
        if candidate.median_s is not None
    )


def _describe_step_change(a: Side, b: Side, noise: Noise) -> StepChange:
    error = noise.relative * max(a.step_s, b.step_s)
    if not noise.measured:
        error = math.hypot(error, compute_step_error_s(a), compute_step_error_s(b))
    low, high, verdict = judge_difference(a.step_s, b.step_s, error, compute_step_effect_s(a.step_s))
    currency = STEP if a.in_step else ITERATION
    return StepChange(
        a.step_s, b.step_s, b.step_s - a.step_s, low, high, verdict, currency, noise.relative, noise.source
    )


def _describe_graph_change(pair: GraphPair) -> GraphChange:
    a_s, b_s = (graph.time_s if graph else 0.0 for graph in (pair.a, pair.b))
    a, b = (graph.label if graph else None for graph in (pair.a, pair.b))
    a_calls, b_calls = (graph.calls if graph else 0.0 for graph in (pair.a, pair.b))
    return GraphChange(a, b, a_s, b_s, b_s - a_s, a_calls, b_calls, pair.alike)
