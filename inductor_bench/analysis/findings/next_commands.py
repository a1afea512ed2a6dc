"""The first line of a summary, and the commands that may follow it."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ... import units
from ...devices.table import common_device
from ...records.base import ELSEWHERE, VERIFY, Category, Failure
from ...records.comparison import CHANNELS_LAST, CUDNN_BENCHMARK, TF32
from ...records.module import Kernel, ModuleRecord
from ...records.optimization import KEPT, MenuRow, Optimization
from ...records.request import RetuneRequest
from ...records.request_fields import COMPILED_HERE, PROGRAMS
from ...records.retune import CUDNN_SEARCH, FASTER, SAVES
from ...records.run import GRAPH, Program, ProgramChange, Run
from ..step_costs import (
    GENERATED_KERNELS,
    Cost,
    cost_of,
    host_sets_pace,
    idle_share,
    is_shared,
    is_simulated,
    is_uncompiled,
    kernels_save,
    module_time_s,
    parts_of,
    prediction_of,
    runs_on_host,
    step_of,
    weight_s,
    whole_time_s,
)
from .compile_findings import recompilations, recompiles_often
from .doubts import disturbed, disturbed_graphs
from .finding import (
    ADVICE,
    CAUTION,
    CUDA_GRAPH_MODES,
    LEAST_SHARE,
    LIBRARY,
    UNTUNABLE,
    WAITS_FOR_HOST,
    Finding,
    RunEvidence,
    apply_command,
    bottleneck,
    command_again,
    gain_of,
    modes_command,
    plural,
    program_words,
    retune_command,
)
from .graph_findings import cuda_graph, host_bound, launch_bound
from .program_findings import LEAST, idle_words, step_words, work_words
from .rule_table import findings, saving_s

# Makes the first line of a summary from the record: the bottleneck, the parts of the time, and possible savings.


# Makes the first line of a summary from the program's step.


LEAST_GAIN = 0.01
"""Smallest possible saving that the first line reports, as a share of the step."""


def step_headline(run: Run) -> Finding | None:
    """Returns the first line about the program's step; ``None`` if no step was profiled."""
    program = step_of(run)
    if program is None:
        return None
    lead, work = _lead(run, program), work_words(run)
    busy, idle = 1 - idle_share(run), f"idle {idle_words(run)}" if idle_share(run) >= LEAST else ""
    if runs_on_host(run):
        return Finding("step", ". ".join(filter(None, [f"{lead}: {_joined(work, idle)}", _program_savings(run)])))
    if program.others is not None:
        text = f"{lead}: GPU shared with another program, busy {units.whole_percent(busy)} with this one: "
        rest = f"idle or another's {units.whole_percent(idle_share(run))}" if idle else ""
        return Finding("step", text + _joined(work, rest))
    if host_sets_pace(run):
        text = f"{lead}: the host sets the pace, GPU busy {units.whole_percent(busy)}: {_joined(idle, work)}"
        kernels = KERNELS_LATER if is_simulated(run) and not kernels_save(run) else ""
        return Finding("step", ". ".join(filter(None, [text, _simulated_savings(run), kernels])))
    bound = f"{lead}: GPU-bound, busy {units.whole_percent(busy)}: {_joined(work, idle)}"
    savings = _simulated_savings(run) if program.predictions else _program_savings(run)
    return Finding("step", ". ".join(filter(None, [bound, savings])))


def _lead(run: Run, program: Program) -> str:
    """The step, and why it holds no compiled graph."""
    return f"{step_words(program)}; {_nothing_compiled(run)}. The step" if is_uncompiled(run) else step_words(program)


def _nothing_compiled(run: Run) -> str:
    why = run.capture.uncompiled
    return f"nothing is compiled: {why}" if why else "nothing is compiled"


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


KERNELS_LATER = "Faster kernels shorten the step only once the host is faster"
MOST_SAVINGS = 3

_SAVED_BY = {
    "synchronisations": "no waiting for results",
    "data-loading": "data loaded beside the step",
    "allocations": "no memory from the driver",
    "small-graphs": "calls without guards",
    "kernel-gaps": "no gaps between kernels",
    "cuda-graphs-unused": "CUDA graphs",
    "replay-inputs": "inputs that stay in place",
    "eager-optimizer": "the optimizer in one launch",
    "eager-operators": "no eager operators",
    "collectives": "collectives behind computation",
    "gradient-copies": "no copies of gradients",
    "library-below-limit": "library kernels at their peaks",
    "layout-copies": "no rearranged tensors",
    "full-float32": "TF32",
}
"""What a first line calls the changes of findings."""


def _simulated_savings(run: Run) -> str:
    """``Could save: CUDA graphs 8.9%, TF32 4.1% (simulated)``; empty if little could be saved."""
    program = step_of(run)
    if program is None:
        return ""
    words = _SAVED_BY | {
        GENERATED_KERNELS: common_device(module.device for module in run.modules).words.generated_at_peaks
    }
    largest: dict[str, float] = {}
    for one in program.predictions:
        share = one.saving_s / program.step_time_s
        if one.kind in words and share >= LEAST_GAIN:
            largest.setdefault(words[one.kind], share)
    named = [f"{name} {units.percent(share)}" for name, share in list(largest.items())[:MOST_SAVINGS]]
    return f"Could save: {', '.join(named)} (simulated, each by itself)" if named else ""


def _program_savings(run: Run) -> str:
    """``Could save: …``; empty if little could be saved, or if a busy machine disturbed the kernels' times."""
    if disturbed_graphs(run):
        return ""
    evidence = RunEvidence(run)
    gain = evidence.whole.part(gain_of(row for row in evidence.rows if row.kernel.category not in UNTUNABLE))
    kind = common_device(module.device for module in run.modules).words.generated_at_peaks
    return f"Could save: {kind} {units.percent(gain)} (upper bound)" if gain >= LEAST_GAIN else ""


LEAST_SAVING = 0.01
"""Smallest saving that is reported, as a share of the program's time."""

WITHOUT_GRAPHS = "timed without the CUDA graphs that the program asks for"

_DATA = (Category.COPY, Category.MEMSET, Category.COLLECTIVE)


def headline(run: Run) -> Finding | None:
    """Selects or makes the most important finding about a run.

    Returns:
        The parts of the program's step if it was profiled, or that a busy machine disturbed it. Otherwise, from the
        graphs: the finding about a busy machine if it disturbed most of the program; else the launch-bound or
        host-bound finding if it concerns most of the program's time; else the parts of the time with possible savings.
        ``None`` if nothing was measured.
    """
    if (step := step_headline(run)) is not None:
        return disturbed(run) or step
    found = _recompiled_often(run) or _of_graphs(run)
    if found is None and run.program is not None and is_uncompiled(run):
        return Finding("step", f"{step_words(run.program)}, not profiled; {_nothing_compiled(run)}")
    if found is None or run.program is None:
        return found
    graphs = "" if found.kind == "recompiles" else "its graphs by themselves: "
    return replace(found, text=f"{step_words(run.program)}, not profiled; {graphs}{found.text}")


def _recompiled_often(run: Run) -> Finding | None:
    """The recompilations of a program whose steps did not settle for them."""
    if run.program is None or not recompiles_often(run):
        return None
    return next((one for one in recompilations(RunEvidence(run)) if one.level == CAUTION), None)


def _of_graphs(run: Run) -> Finding | None:
    measured = [module for module in run.modules if module_time_s(module)]
    if not measured:
        return None
    if (busy := disturbed(run)) is not None:
        return busy
    whole = sum(weight_s(run, module) for module in measured)
    evidence = RunEvidence(run)
    for finding in (*launch_bound(evidence), *host_bound(evidence)):
        concerned = [module for module in measured if module.slug in finding.modules]
        if 2 * sum(weight_s(run, module) for module in concerned) >= whole:
            return finding
    graphs = f"; {WITHOUT_GRAPHS}" if any(module.cuda_graphs for module in measured) else ""
    return Finding("parts", f"{_parts(measured, run)}{graphs}. {_savings(run, whole)}".rstrip(". "))


def _savings(run: Run, whole: float) -> str:
    """Returns ``Could save: generated kernels at their peaks 12.6% (upper bound), CUDA graphs 4.8% (measured)``."""
    peaks = sum(
        (kernel.roof.gain_limit_s or 0.0) * (module.program_calls or 1)
        for module in run.modules
        if bottleneck(module) not in WAITS_FOR_HOST
        for kernel in module.kernels
        if kernel.category not in UNTUNABLE
    )
    graphs = sum(finding.gain_s for finding in cuda_graph(RunEvidence(run)))
    kind = common_device(module.device for module in run.modules).words.generated_at_peaks
    savings = [(peaks / whole, kind, "upper bound"), (graphs / whole, "CUDA graphs", "measured")]
    words = [
        f"{name} {units.percent(share)} ({how})"
        for share, name, how in sorted(savings, reverse=True)
        if share >= LEAST_SAVING
    ]
    return f"Could save: {', '.join(words)}" if words else ""


def _parts(modules: Sequence[ModuleRecord], run: Run) -> str:
    """Returns ``GPU-bound: library kernels 62% of 62.3 ms, generated kernels 32%, idle 6%``."""
    whole = whole_time_s(run)
    words = common_device(module.device for module in modules).words
    library = _time(modules, LIBRARY)
    data = _time(modules, _DATA)
    every = sum(total.time_s for module in modules for total in module.categories)
    times = [module.times for module in modules]
    idle = sum(one.idle.time_s for one in times if one.wall_time_s and one.idle is not None)
    parts = [
        (library, words.library),
        (every - library - data, words.generated),
        (data, "copies and collectives" if _time(modules, (Category.COLLECTIVE,)) else "copies and memsets"),
        (idle, words.outside),
    ]
    shown = [(seconds, name) for seconds, name in sorted(parts, reverse=True) if seconds >= 0.005 * whole]
    if not shown:
        return f"{plural(len(modules), 'graph')} of {units.seconds(whole)}"
    (first, name), *others = shown
    graphs = f" ({len(modules)} graphs, each once)" if len(modules) > 1 else ""
    limit = "" if idle > 0.3 * whole else words.bound
    text = f"{limit}{name} {units.whole_percent(first / whole)} of {units.seconds(whole)}{graphs}"
    return ", ".join([text, *(f"{name} {units.whole_percent(seconds / whole)}" for seconds, name in others)])


def _time(modules: Sequence[ModuleRecord], categories: Sequence[Category]) -> float:
    return sum(total.time_s for module in modules for total in module.categories if total.name in categories)


# Suggests commands to type after a run. Pure functions of the record.


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
    commands = list(_repair_commands(run))
    if any(failure.stage == "report" for failure in run.failures):
        again = f"inductor-bench report {place}"
        commands.append(NextCommand(again, "draws tables, plots and report.html again from the record"))
    if (lead := headline(run)) is not None and lead.kind == "busy-machine":
        again = command_again(run)
        return (*commands, NextCommand(again, "the same once the machine is idle")) if again else tuple(commands)
    trials = list(_largest_trial(run, str(folder), files, search))
    if run.modules:
        commands += _inspection_commands(run, place, sort, files, trials)
    elif step_of(run) is not None and is_uncompiled(run):
        commands += [*trials, *_compiling_commands(run)]
    elif not commands:
        kinds = {failure.kind for failure in run.failures}
        same = command_again(run) if kinds & {*_PROGRAM_FAILURES, "interrupted", "unfinished"} else ""
        if same:
            why = "once the program runs and compiles something" if kinds & {*_PROGRAM_FAILURES} else "starts it again"
            commands.append(NextCommand(same, why))
        else:
            commands.append(NextCommand("inductor-bench doctor", "says what is installed and what is missing"))
    return tuple({one.command: one for one in commands}.values())  # in the first's place, for the last's reason


def _largest_trial(
    run: Run, folder: str, files: Container[str] | None, search: Optimization | None
) -> Iterator[NextCommand]:
    """Suggests what a search has found, and the command that tries the finding which could save most."""
    if search is not None:
        yield NextCommand(_search_report(folder), "what the search for faster settings found")
        if (applies := applying_command(run, folder, search)) != "":
            yield NextCommand(applies, "runs the program with the settings that are proven")
    if any(failure.kind == ELSEWHERE for failure in run.failures):
        return
    advice = [(saving_s(one, run), one) for one in findings(run) if one.level == ADVICE]
    saved_s, first = max(advice, key=lambda pair: pair[0], default=(0.0, None))
    command = try_command(run, first, folder, files, search=search) if first and saved_s > 0 else ""
    if first and command and not (search and proven_rows(first, search)):
        long = "; it takes up to 20 minutes" if command.startswith("inductor-bench optimize") else ""
        yield NextCommand(command, f"tries what could save most: {first.kind}{long}")


def applying_command(run: Run, folder: str, search: Optimization) -> str:
    """The command that runs the program with what a search in a RUN has proven; empty if there is none."""
    program = program_words(run) if search.winner is not None else ""
    return apply_command(shlex.quote(f"{folder}/optimized"), program) if program else ""


def _search_report(folder: str) -> str:
    return f"inductor-bench report {shlex.quote(f'{folder}/optimized')}"


def _compiling_commands(run: Run) -> Iterator[NextCommand]:
    """Suggests what to run for a program that compiled nothing, and whose step is explained."""
    program = program_words(run)
    if run.capture.graph_breaks and program:
        yield NextCommand(f"TORCH_LOGS=graph_breaks {program}", "prints the whole stack of each graph break")
    if again := command_again(run, elsewhere=True):
        yield NextCommand(again, "the same once torch.compile compiles it, as another run to compare with")


def _inspection_commands(
    run: Run, place: str, sort: str, files: Container[str] | None, trials: Sequence[NextCommand]
) -> Iterator[NextCommand]:
    lead = headline(run)
    if is_shared(run) and (again := command_again(run)):
        yield NextCommand(again, "measures again, once no other process uses the GPU")
        return
    if run.peaks is None and any(module.measurement.method != "trace" for module in run.modules):
        why = "measures the device's peaks; the next breakdown then shows percent of peak and gain limits"
        yield NextCommand("inductor-bench doctor", why)
    elif ((lead is not None and lead.kind == "launch-bound") or host_sets_pace(run)) and sort != "calls":
        yield NextCommand(f"inductor-bench report {place} --sort calls", "the kernels that are launched most often")
    elif sort != "gain" and any(kernel.roof.gain_limit_s for module in run.modules for kernel in module.kernels):
        yield NextCommand(f"inductor-bench report {place} --sort gain", "the kernels that could win most")
    else:
        yield NextCommand(f"inductor-bench report {place} --sort {sort} --top 30", "more of the kernels")
    yield from trials
    yield from _mode_commands(run)
    yield from _kernel_commands(run, place, files)
    tunable = kernels_save(run) and any(
        finding.kind.startswith(("below-", "copied-")) and _TUNED in finding.text for finding in findings(run)
    )
    if tunable and not run.failures and run.request.kind in COMPILED_HERE:
        again = command_again(run, elsewhere=True, mode=_TUNED)
        if again:
            yield NextCommand(again, "the same with every generated kernel tuned, as another run to compare with")


WORTH_COMPARING = 0.03
"""Share of the step that a mode of ``torch.compile`` saves, from which a comparison of modes is suggested."""


def _mode_commands(run: Run) -> Iterator[NextCommand]:
    """Suggests to measure the mode that saves most of the step, if it is what saves most of all modes and much."""
    program, predicted = step_of(run), prediction_of(run, "cuda-graphs-unused")
    if program is None or predicted is None or predicted.saving_s < WORTH_COMPARING * program.step_time_s:
        return
    if command := modes_command(run, "", ("default", CUDA_GRAPH_MODES[0])):
        share = units.percent(predicted.saving_s / program.step_time_s)
        yield NextCommand(command, f"measures CUDA graphs on the step; simulated, they save {share}")


def _kernel_commands(run: Run, place: str, files: Container[str] | None) -> Iterator[NextCommand]:
    written = [
        (kernel, cost_of(run, module, kernel))
        for module in run.modules
        for kernel in module.kernels
        if (kernel.file or "").startswith("kernels/") and (files is None or kernel.file in files)
    ]
    if any(failure.kind == ELSEWHERE for failure in run.failures):
        return
    if written:
        best, _ = max(written, key=_potential)
        yield NextCommand(f"python {place}/{best.file}", "times that kernel by itself")
    if written and not run.retunes and kernels_save(run) and _is_worth_retuning(run, written):
        rest = "measures nothing else again"
        if _is_proven_here(run):
            rest = "compares the model's steps with the configs and without"
        why = f"retunes the kernels that take most time, and {rest}"
        yield NextCommand(f"inductor-bench breakdown {place} --autotune --top 20", why)
    yield from _apply_commands(run, place)


def _is_proven_here(run: Run) -> bool:
    """Whether a retune ends with its proof: this tool knows how the model runs."""
    return run.request.kind in COMPILED_HERE and run.program is not None


def _is_worth_retuning(run: Run, kernels: Sequence[tuple[Kernel, Cost]]) -> bool:
    """Whether a retune can win something of the step: on a CPU, generated kernels have to take a part of it."""
    program = step_of(run)
    if program is None or not runs_on_host(run):
        return True
    generated_s = sum(cost.time_s for kernel, cost in kernels if not kernel.category.is_library)
    return generated_s >= LEAST_SHARE * program.step_time_s


def _apply_commands(run: Run, place: str) -> Iterator[NextCommand]:
    """Suggests commands that put the winners of retunes into the program."""
    winners = [retune for retune in run.retunes if retune.row.verdict == FASTER]
    if any(retune.switch == CUDNN_SEARCH for retune in winners) and (command := modes_command(run, CUDNN_BENCHMARK)):
        yield NextCommand(
            command, "measures cuDNN's search for algorithms on the step; apply leaves that setting to you"
        )
    cannot_be_proven = any(failure.stage == VERIFY and failure.kind != "interrupted" for failure in run.failures)
    if cannot_be_proven or all(retune.row.left_to_user for retune in winners):
        return
    program = program_words(run)
    if run.verification is None and _is_proven_here(run):
        again = retune_command(place, RetuneRequest(winners[0].method, top=1))  # all winners are compared
        yield NextCommand(again, "says what the faster configs save in the model's steps")
    elif run.verification is None:
        yield NextCommand(apply_command(place, program, "--verify"), "says what the faster configs save in it")
    elif run.verification.step is None or run.verification.step.verdict != SAVES:
        return
    elif run.request.kind in COMPILED_HERE:
        yield NextCommand(
            f"inductor-bench apply {place}", "writes the configs, and the line that adds them to a program"
        )
    else:
        yield NextCommand(apply_command(place, program), "runs the program with the faster configs")


def _potential(pair: tuple[Kernel, Cost]) -> tuple[float, float, float]:
    return pair[1].gain_s or 0.0, pair[1].gain_limit_s or 0.0, pair[1].time_s


def _repair_commands(run: Run) -> Iterator[NextCommand]:
    """Suggests commands that run the same target with other options after a failure."""
    kinds = {failure.kind for failure in run.failures}
    if "timeout" in kinds:
        limit = int(2 * run.request.timeout_s) if run.request.timeout_s else 1200
        again = command_again(run, timeout_s=limit)
        if again:
            yield NextCommand(again, "gives it more time")
    if any(_may_succeed_live(run, failure) for failure in run.failures) and not run.request.live:
        again = command_again(run, live=True)
        if again:
            yield NextCommand(again, "profiles inside the program, with its own inputs")


def _may_succeed_live(run: Run, failure: Failure) -> bool:
    """Whether a module may be profiled in the program, which is not possible where that replays a CUDA graph."""
    replayed = any(part.replays and failure.subject in (part.graph, part.label) for part in parts_of(run, GRAPH))
    return failure.stage == "profile" and failure.kind not in ("timeout", "interrupted", "memory") and not replayed


# What tries the change of a finding.


SWITCHED = {
    "torch.set_float32_matmul_precision": TF32,
    "torch.backends.cudnn.benchmark": CUDNN_BENCHMARK,
    "Module.to.memory_format": CHANNELS_LAST,
}
"""The switch of ``modes`` that makes a change, by the name of what the change sets."""

OPTIMIZED = ("DataLoader.num_workers", "DataLoader.pin_memory", "torch.nn.attention.sdpa_kernel", "dynamic", "compile")
"""What changes set that ``optimize`` sets from outside of the program, beside the arguments of optimizers."""

OPTIMIZED_KINDS = ("eager-optimizer",)
"""The kinds of findings for which ``optimize`` has settings, whatever their changes are."""

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
    "full-float32": ("tf32",),
}
"""The groups of settings in which ``optimize`` tries what a finding says, by the finding's kind."""

TUNED_KINDS = ("below-memory-limit", "below-compute-limit", "few-blocks", "spills")
"""The kinds of findings whose kernels another config may make faster."""


AGAIN = "busy-step"
"""The kind of finding that the same command tries, on an idle machine."""


def searched_rows(finding: Finding, search: Optimization) -> tuple[MenuRow, ...]:
    """The settings of a search that do what a finding says."""
    return tuple(row for row in search.rows if row.group in SEARCHED.get(finding.kind, ()))


def proven_rows(finding: Finding, search: Optimization) -> tuple[MenuRow, ...]:
    """Those of them that are a part of the search's result."""
    return tuple(row for row in searched_rows(finding, search) if row.state == KEPT and search.winner is not None)


def try_command(
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
        search: what ``optimize`` has found in the RUN, if it has ended there. What it has proven is applied, and no
            other search is named.
    """
    if finding.kind == AGAIN:
        return command_again(run)
    if search is not None and folder and proven_rows(finding, search):
        return applying_command(run, folder, search) or _search_report(folder)
    command = next(filter(None, (_change_trial(run, change) for change in finding.changes)), "")
    if command or not folder:
        return command
    set_by_it = finding.kind in OPTIMIZED_KINDS or any(
        one.setting in OPTIMIZED or one.setting.endswith(".fused") for one in finding.changes
    )
    if set_by_it and run.request.kind in PROGRAMS:
        again = f"inductor-bench optimize {shlex.quote(folder)}"
        if search is None:
            return again
        late = any("--budget" in row.reason for row in searched_rows(finding, search))
        return f"{again} --budget {search.longer_budget}" if late else ""
    return _kernel_trial(run, finding, folder, files) if finding.kind in TUNED_KINDS else ""


def _change_trial(run: Run, change: ProgramChange) -> str:
    """Measures a change on the step, if ``modes`` can make it."""
    value = change.value.strip("'")
    if change.kind == "compile" and change.setting == "mode":
        return modes_command(run, "", tuple(dict.fromkeys((run.request.mode or "default", value))))
    if change.kind == "environment":
        return modes_command(run, f"{change.setting}={value}")
    switch = SWITCHED.get(change.setting, "")
    return modes_command(run, switch) if switch else ""


def _kernel_trial(run: Run, finding: Finding, folder: str, kept: Container[str] | None) -> str:
    """Retunes the first kernel of a finding that Inductor generated, if the RUN has its file."""
    files = {
        (module.slug, kernel.name): kernel.file or ""
        for module in run.modules
        for kernel in module.kernels
        if kernel.category not in UNTUNABLE
    }
    own = (place for place in finding.kernels if files.get(place, "").startswith("kernels/"))
    first = next((place for place in own if kept is None or files[place] in kept), None)
    return f"inductor-bench kernel {shlex.quote(f'{folder}#{first.name}')} --autotune" if first else ""
