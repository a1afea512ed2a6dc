"""The commands that may follow a summary. Pure functions of the record."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ... import units
from ...literals import MASK
from ...records.base import ELSEWHERE, VERIFY, Failure
from ...records.comparison import CHANNELS_LAST, CUDNN_BENCHMARK, TF32
from ...records.module import Kernel
from ...records.optimization import KEPT, MenuRow, Optimization
from ...records.request import RetuneRequest
from ...records.request_fields import COMPILED_HERE, PROGRAMS
from ...records.retune import CUDNN_SEARCH, FASTER, SAVES
from ...records.run import GRAPH, ProgramChange, Run
from ..step_costs import (
    Cost,
    compute_cost,
    compute_whole_time_s,
    find_prediction,
    find_step,
    host_sets_pace,
    is_shared,
    is_uncompiled,
    is_worth_faster_kernels,
    list_parts,
    runs_on_host,
)
from .finding import (
    ADVICE,
    CUDA_GRAPH_MODES,
    LEAST_SHARE,
    UNTUNABLE,
    Finding,
    list_program_words,
    repeat_command,
    write_apply_command,
    write_modes_command,
    write_retune_command,
)
from .first_line import write_first_line
from .kernel_findings import DYNAMO_CONFIG
from .rule_table import find_saving_s, list_findings

_TUNED = "max-autotune-no-cudagraphs"
_PROGRAM_FAILURES = ("exit", "program", "nothing-compiled")


@dataclass(frozen=True)
class NextCommand:
    """A command that can be pasted into a shell, and its purpose."""

    command: str
    why: str


def next_commands(
    run: Run,
    folder: Path | str,
    sort: str = "time",
    files: Container[str] | None = None,
    *,
    search: Optimization | None = None,
) -> tuple[NextCommand, ...]:
    """Suggests commands to type after a run, the most useful first.

    Args:
        run: the record.
        folder: the RUN folder, as the user would type it.
        sort: the order in which the kernels were just shown; another order is suggested.
        files: the paths of its files in the RUN folder; no command names another one. ``None`` if they are unknown.
        search: what ``optimize`` has found in the RUN, if it has ended there.
    """
    place = shlex.quote(str(folder))
    commands = list(_suggest_repair_commands(run))
    if any(failure.stage == "report" for failure in run.failures):
        again = f"inductor-bench report {place}"
        commands.append(NextCommand(again, "draws tables, plots and report.html again from the record"))
    if (lead := write_first_line(run)) is not None and lead.kind == "busy-machine":
        again = repeat_command(run)
        return (*commands, NextCommand(again, "measures again, once the machine is idle")) if again else tuple(commands)
    trials = list(_suggest_largest_trial(run, str(folder), files, search))
    if run.modules:
        commands += _suggest_inspection(run, place, sort, files, trials)
    elif find_step(run) is not None and is_uncompiled(run):
        commands += [*trials, *_suggest_compiling(run)]
    elif not commands:
        kinds = {failure.kind for failure in run.failures}
        same = repeat_command(run) if kinds & {*_PROGRAM_FAILURES, "interrupted", "unfinished"} else ""
        if same:
            why = "once the program runs and compiles something" if kinds & {*_PROGRAM_FAILURES} else "starts it again"
            commands.append(NextCommand(same, why))
        else:
            commands.append(NextCommand("inductor-bench doctor", "says what is installed and what is missing"))
    return tuple({one.command: one for one in commands}.values())  # in the first's place, for the last's reason


def _suggest_largest_trial(
    run: Run, folder: str, files: Container[str] | None, search: Optimization | None
) -> Iterator[NextCommand]:
    """Suggests what a search has found, and the command that tries the finding which could save most."""
    if search is not None:
        yield NextCommand(_write_search_report_command(folder), "what the search for faster settings found")
        if (applies := write_applying_command(run, folder, search)) != "":
            yield NextCommand(applies, "runs the program with the settings that are proven")
    if any(failure.kind == ELSEWHERE for failure in run.failures):
        return
    advice = [(find_saving_s(one, run), one) for one in list_findings(run) if one.level == ADVICE]
    advice.sort(key=lambda pair: -pair[0])
    least_s = LEAST_SHARE * compute_whole_time_s(run)
    for place, (saved_s, one) in enumerate(advice):
        if saved_s <= 0 or (place and saved_s < least_s):
            return
        command = write_trial_command(run, one, folder, files, search=search)
        if command:
            long = "; it takes up to 20 minutes" if command.startswith("inductor-bench optimize") else ""
            most = "what could save most" if place == 0 else "what could save most of all that a command can try"
            if not (search and find_proven_rows(one, search)):
                yield NextCommand(command, f"tries {most}: {one.kind}{long}")
            return
        if place == 0 and (proof := _write_proof_of_change(run)):
            yield NextCommand(
                proof, f"after you have changed a copy of the program: proves what could save most, {one.kind}"
            )


def _write_proof_of_change(run: Run) -> str:
    """The command that compares a script with a changed copy of it; empty for another program."""
    request = run.request
    if request.kind != "script" or any(MASK in word for word in request.arguments):
        return ""
    changed = Path(request.target).with_stem(f"{Path(request.target).stem}_changed")
    arguments = ("--", *request.arguments) if request.arguments else ()
    return shlex.join(["inductor-bench", "compare", request.target, str(changed), *arguments])


def write_applying_command(run: Run, folder: str, search: Optimization) -> str:
    """The command that runs the program with what a search in a RUN has proven; empty if there is none."""
    program = list_program_words(run.request) if search.winner is not None else ""
    return write_apply_command(shlex.quote(f"{folder}/optimized"), program) if program else ""


def _write_search_report_command(folder: str) -> str:
    return f"inductor-bench report {shlex.quote(f'{folder}/optimized')}"


def _suggest_compiling(run: Run) -> Iterator[NextCommand]:
    """Suggests what to run for a program that compiled nothing, and whose step is explained."""
    program = list_program_words(run.request)
    if run.capture.graph_breaks and program:
        yield NextCommand(f"TORCH_LOGS=graph_breaks {program}", "prints the whole stack of each graph break")
    if again := repeat_command(run, elsewhere=True):
        yield NextCommand(again, "measures another run to compare with, once torch.compile compiles the program")


def _suggest_inspection(
    run: Run, place: str, sort: str, files: Container[str] | None, trials: Sequence[NextCommand]
) -> Iterator[NextCommand]:
    lead = write_first_line(run)
    if is_shared(run) and (again := repeat_command(run)):
        yield NextCommand(again, "measures again, once no other process uses the GPU")
        return
    if has_no_peaks := run.peaks is None and any(module.measurement.method != "trace" for module in run.modules):
        why = "measures the device's peaks; the next breakdown then shows percent of peak and gain limits"
        yield NextCommand("inductor-bench doctor", why)
    yield from trials
    if ((lead is not None and lead.kind == "launch-bound") or host_sets_pace(run)) and sort != "calls":
        yield NextCommand(f"inductor-bench report {place} --sort calls", "the kernels that are launched most often")
    elif sort != "gain" and any(kernel.roof.gain_limit_s for module in run.modules for kernel in module.kernels):
        yield NextCommand(f"inductor-bench report {place} --sort gain", "the kernels that could win most")
    elif not has_no_peaks:
        yield NextCommand(f"inductor-bench report {place} --sort {sort} --top 30", "more of the kernels")
    yield from _suggest_modes(run)
    yield from _suggest_kernel_commands(run, place, files)
    tunable = is_worth_faster_kernels(run) and any(
        finding.kind.startswith(("below-", "copied-")) and _TUNED in finding.text for finding in list_findings(run)
    )
    if tunable and not run.failures and run.request.kind in COMPILED_HERE:
        again = repeat_command(run, elsewhere=True, mode=_TUNED)
        if again:
            yield NextCommand(again, "measures another run to compare with, with every generated kernel tuned")


WORTH_COMPARING = 0.03
"""Share of the step that a mode of ``torch.compile`` saves, from which a comparison of modes is suggested."""


def _suggest_modes(run: Run) -> Iterator[NextCommand]:
    """Suggests to measure the mode of ``torch.compile`` that saves most of the step, if it saves much."""
    program, predicted = find_step(run), find_prediction(run, "cuda-graphs-unused")
    if program is None or predicted is None or predicted.saving_s < WORTH_COMPARING * program.step_time_s:
        return
    if command := write_modes_command(run, "", ("default", CUDA_GRAPH_MODES[0])):
        share = units.percent(predicted.saving_s / program.step_time_s)
        yield NextCommand(command, f"measures CUDA graphs on the step; simulated, they save {share}")


def _suggest_kernel_commands(run: Run, place: str, files: Container[str] | None) -> Iterator[NextCommand]:
    written = [
        (kernel, compute_cost(run, module, kernel))
        for module in run.modules
        for kernel in module.kernels
        if (kernel.file or "").startswith("kernels/") and (files is None or kernel.file in files)
    ]
    if any(failure.kind == ELSEWHERE for failure in run.failures):
        return
    if written:
        best, _ = max(written, key=_compute_potential)
        python = shlex.quote(run.request.python or "python")
        yield NextCommand(f"{python} {place}/{best.file}", "times that kernel by itself")
    if written and not run.retunes and is_worth_faster_kernels(run) and _is_worth_retuning(run, written):
        rest = "measures nothing else again"
        if _is_proven_here(run):
            rest = "measures the model's step time with and without the configs"
        why = f"retunes the kernels that take most time, and {rest}"
        yield NextCommand(f"inductor-bench breakdown {place} --autotune --top 20", why)
    yield from _suggest_apply_commands(run, place)


def _is_proven_here(run: Run) -> bool:
    """Whether a retune ends with its proof: this tool knows how the model runs."""
    return run.request.kind in COMPILED_HERE and run.program is not None


def _is_worth_retuning(run: Run, kernels: Sequence[tuple[Kernel, Cost]]) -> bool:
    """Whether a retune can shorten the step: on a CPU only if generated kernels take a part of the step."""
    program = find_step(run)
    if program is None or not runs_on_host(run):
        return True
    generated_s = sum(cost.time_s for kernel, cost in kernels if not kernel.category.is_library)
    return generated_s >= LEAST_SHARE * program.step_time_s


def _suggest_apply_commands(run: Run, place: str) -> Iterator[NextCommand]:
    """Suggests commands that put the winners of retunes into the program."""
    winners = [retune for retune in run.retunes if retune.row.verdict == FASTER]
    if any(retune.switch == CUDNN_SEARCH for retune in winners) and (
        command := write_modes_command(run, CUDNN_BENCHMARK)
    ):
        yield NextCommand(command, "measures cuDNN's search for algorithms on the step; apply does not switch it on")
    cannot_be_proven = any(failure.stage == VERIFY and failure.kind != "interrupted" for failure in run.failures)
    if cannot_be_proven or all(retune.row.left_to_user for retune in winners):
        return
    program = list_program_words(run.request)
    if run.verification is None and _is_proven_here(run):
        again = write_retune_command(place, RetuneRequest(winners[0].method, top=1))  # all winners are compared
        yield NextCommand(again, "says what the faster configs save in the model's steps")
    elif run.verification is None:
        yield NextCommand(write_apply_command(place, program, "--verify"), "says what the faster configs save in it")
    elif run.verification.step is None or run.verification.step.verdict != SAVES:
        return
    elif run.request.kind in COMPILED_HERE:
        yield NextCommand(
            f"inductor-bench apply {place}", "writes the configs, and the line that adds them to a program"
        )
    else:
        yield NextCommand(write_apply_command(place, program), "runs the program with the faster configs")


def _compute_potential(pair: tuple[Kernel, Cost]) -> tuple[float, float, float]:
    return pair[1].gain_s or 0.0, pair[1].gain_limit_s or 0.0, pair[1].time_s


def _suggest_repair_commands(run: Run) -> Iterator[NextCommand]:
    """Suggests commands that run the same target with other options after a failure."""
    kinds = {failure.kind for failure in run.failures}
    if "timeout" in kinds:
        limit = int(2 * run.request.timeout_s) if run.request.timeout_s else 1200
        again = repeat_command(run, timeout_s=limit)
        if again:
            yield NextCommand(again, "gives it more time")
    if any(_may_succeed_live(run, failure) for failure in run.failures) and not run.request.live:
        again = repeat_command(run, live=True)
        if again:
            yield NextCommand(again, "profiles inside the program, with its own inputs")


def _may_succeed_live(run: Run, failure: Failure) -> bool:
    """Whether a module may be profiled in the program. That is impossible if the program replays a CUDA graph."""
    replayed = any(part.replays and failure.subject in (part.graph, part.label) for part in list_parts(run, GRAPH))
    return failure.stage == "profile" and failure.kind not in ("timeout", "interrupted", "memory") and not replayed


# The commands that try the change of a finding.


SWITCHED = {
    ("torch.set_float32_matmul_precision", "high"): TF32,
    ("torch.backends.cudnn.benchmark", "True"): CUDNN_BENCHMARK,
    ("Module.to.memory_format", "torch.channels_last"): CHANNELS_LAST,
}
"""Maps a change (its setting and its value) to the option of ``modes`` that makes the change."""

ALLOWED = {
    ("torch.set_float32_matmul_precision", "high"): "tf32",
    ("torch.set_float32_matmul_precision", "medium"): "bf16",
}
"""Maps a change (its setting and its value) to the group that the user must allow before ``optimize`` makes it."""

OPTIMIZED = ("DataLoader.num_workers", "DataLoader.pin_memory", "torch.nn.attention.sdpa_kernel", "dynamic", "compile")
"""The kinds of settings that ``optimize`` can set from outside of the program, beside the arguments of optimizers."""

OPTIMIZED_KINDS = ("eager-optimizer",)
"""The kinds of findings for which ``optimize`` always has settings to try."""

SEARCHED = {
    "cuda-graphs-unused": ("cudagraphs",),
    "launch-bound": ("cudagraphs",),
    "cuda-graph": ("cudagraphs",),
    "eager-optimizer": ("optimizer",),
    "eager-operators": ("functions",),
    "data-loading": ("loader",),
    "pageable-copies": ("loader",),
    "allocations": ("allocator",),
    "recompiles": ("dynamic",),
    "attention-below-limit": ("attention",),
    "library-below-limit": ("max-autotune", "convolutions", "layout"),
    "below-memory-limit": ("max-autotune",),
    "below-compute-limit": ("max-autotune",),
    "unaligned-products": ("padding",),
    "padded-products": ("padding",),
    "short-kernels": ("kernels",),
    "graph-breaks": ("graph-breaks",),
}
"""The groups of settings in which ``optimize`` tries what a finding says, by the finding's kind."""

TUNED_KINDS = ("below-memory-limit", "below-compute-limit", "few-blocks", "spills")
"""The kinds of findings whose kernels another config may make faster."""


AGAIN = "busy-step"
"""The kind of finding for which the same command is to be repeated on an idle machine."""


def find_searched_rows(finding: Finding, search: Optimization) -> tuple[MenuRow, ...]:
    """The settings of a search that do what a finding says."""
    groups = (_name_allowed_group(finding),) if _name_allowed_group(finding) else SEARCHED.get(finding.kind, ())
    return tuple(row for row in search.rows if row.group in groups)


def _name_allowed_group(finding: Finding) -> str:
    """The group that has to be allowed before ``optimize`` tries what a finding says; empty if none has to be."""
    asked = (ALLOWED.get((change.setting, change.value.strip("'"))) for change in finding.changes)
    return next(filter(None, asked), "")


def find_proven_rows(finding: Finding, search: Optimization) -> tuple[MenuRow, ...]:
    """The rows of :func:`find_searched_rows` that are a part of the search's result."""
    return tuple(row for row in find_searched_rows(finding, search) if row.state == KEPT and search.winner is not None)


def write_trial_command(
    run: Run,
    finding: Finding,
    folder: str,
    files: Container[str] | None = None,
    *,
    search: Optimization | None = None,
) -> str:
    """The command that tries what a finding says to change; empty if no command does.

    Args:
        run: the record.
        finding: the finding.
        folder: the RUN folder, as the user would type it; empty if there is none.
        files: the paths of its files in the RUN folder; no command names another one. ``None`` if they are unknown.
        search: what ``optimize`` has found in the RUN, if it has ended there. If the search has proven settings, the
            command applies them instead of searching again.
    """
    if finding.kind == AGAIN:
        return repeat_command(run)
    if search is not None and folder and find_proven_rows(finding, search):
        return write_applying_command(run, folder, search) or _write_search_report_command(folder)
    command = next(filter(None, (_change_trial(run, change) for change in finding.changes)), "")
    if command or not folder:
        return command
    allowed = _name_allowed_group(finding)
    set_by_it = bool(allowed or finding.kind in OPTIMIZED_KINDS) or any(
        one.setting in OPTIMIZED or one.setting.endswith(".fused") or one.setting.startswith(DYNAMO_CONFIG)
        for one in finding.changes
    )
    if set_by_it and run.request.kind in PROGRAMS:
        again = f"inductor-bench optimize {shlex.quote(folder)}{f' --allow {allowed}' if allowed else ''}"
        if search is None:
            return again
        rows = find_searched_rows(finding, search)
        if allowed and any(row.group == allowed and "--allow" in row.reason for row in rows):
            return again
        return f"{again} --budget {search.longer_budget}" if any("--budget" in row.reason for row in rows) else ""
    return _suggest_kernel_trial(run, finding, folder, files) if finding.kind in TUNED_KINDS else ""


def _change_trial(run: Run, change: ProgramChange) -> str:
    """Returns the command that measures a change on the step, if ``modes`` can make the change."""
    value = change.value.strip("'")
    if change.kind == "compile" and change.setting == "mode":
        return write_modes_command(run, "", tuple(dict.fromkeys((run.request.mode or "default", value))))
    if change.kind == "environment":
        return write_modes_command(run, f"{change.setting}={value}")
    switch = SWITCHED.get((change.setting, value), "")
    return write_modes_command(run, switch) if switch else ""


def _suggest_kernel_trial(run: Run, finding: Finding, folder: str, kept: Container[str] | None) -> str:
    """Returns the command that retunes the first generated kernel of a finding, if the RUN has its file."""
    files = {
        (module.slug, kernel.name): kernel.file or ""
        for module in run.modules
        for kernel in module.kernels
        if kernel.category not in UNTUNABLE
    }
    own = (place for place in finding.kernels if files.get(place, "").startswith("kernels/"))
    first = next((place for place in own if kept is None or files[place] in kept), None)
    return f"inductor-bench kernel {shlex.quote(f'{folder}#{first.name}')} --autotune" if first else ""
