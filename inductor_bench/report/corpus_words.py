"""Words about a batch that the terminal, Markdown and the plot have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .. import units
from ..analysis.corpus import KernelGroup, ModelSummary, suite_time_s
from ..analysis.finding import plural
from ..analysis.kernel_rules import UNTUNABLE
from ..records.batch import DONE, FAILED, PARTIAL, RUNNING, SKIPPED, WAITING
from ..records.category import Category
from ..records.corpus import Corpus
from ..records.run import Failure
from . import names, palette
from .wording import bound_name

IN_WORDS = ((PARTIAL, "measured in part"), (FAILED, "failed"), (SKIPPED, "skipped"), (RUNNING, "running"))
WORTH_A_WORD = 0.005
LEAD_NAME = 60  # characters


def heading(corpus: Corpus) -> str:
    """``timm · inference · 18 models``."""
    requests = [model.request for model in corpus.batch.models]
    parts = [Path(corpus.batch.source).stem]
    for field, words in (("training", {True: "training", False: "inference"}), ("amp", None), ("mode", None)):
        values = {getattr(request, field) for request in requests}
        if len(values) == 1 and (value := values.pop()) is not None:
            parts.append(words[value] if words else f"{value} autocast" if field == "amp" else f"mode {value}")
    return " · ".join([*parts, plural(len(requests), "model")])


def suite_machine(corpus: Corpus) -> str:
    """Where it was measured; several machines are all named."""
    return ", ".join(dict.fromkeys(names.clean(model.machine) for model in corpus.models if model.machine))


def progress_words(corpus: Corpus) -> str:
    """``16 of 18 models measured, 1 failed, 1 waiting; 123 ms in all, each model once``."""
    batch = corpus.batch
    damaged = sum(bool(model.problem) for model in corpus.models)
    measured = batch.count(DONE, PARTIAL) - damaged
    parts = [f"{measured} of {plural(len(batch.models), 'model')} measured"]
    parts += [f"{batch.count(status)} {words}" for status, words in IN_WORDS if batch.count(status)]
    parts += [f"{damaged} damaged"] if damaged else []
    parts += [f"{batch.count(WAITING)} still to be measured"] if batch.count(WAITING) else []
    total = suite_time_s(corpus)
    return ", ".join(parts) + (f"; {units.seconds(total)} in all, each model once" if total else "")


def lead_words(families: Sequence[KernelGroup], suite_s: float) -> str:
    """The family that a better kernel would win most in, in a sentence; empty where nothing would."""
    tunable = [family for family in families if Category(family.category) not in UNTUNABLE and family.gain_limit_s]
    if not tunable or not suite_s:
        return ""
    best = max(tunable, key=lambda family: family.gain_limit_s or 0.0)
    gain = (best.gain_limit_s or 0.0) / suite_s
    if gain < WORTH_A_WORD:
        return ""
    peak = f", {of_peak(best)}" if best.peak_share is not None else ""
    return (
        f"Worth most: the family of {names.short(family_name(best), LEAD_NAME)}: "
        f"{units.count(best.launches)} launch{'es' if best.launches != 1 else ''} in "
        f"{plural(len(best.models), 'model')}, {units.percent(best.share)} of suite time{peak}; at its peak the suite "
        f"would take {units.percent(gain)} less, an upper bound."
    )


def family_name(group: KernelGroup) -> str:
    """A family's name: a generated kernel's without its number, a library call's operator."""
    if group.operator:
        return names.clean(group.operator)
    name = names.plain(group.name)
    stem = name.rstrip("0123456789").rstrip("_")
    return stem if name.startswith(("triton_", "cpp_", "graph_")) and stem else name


def of_peak(group: KernelGroup) -> str:
    """``38% DRAM``: the mean over the group's time; the roof alone, or a dash, where no share is known."""
    on_cpu = group.category == Category.CPP.value or group.name.startswith("aten::")
    name = bound_name(group.bound, on_cpu=on_cpu)
    return f"{units.whole_percent(group.peak_share)} {name}" if group.peak_share is not None else name


def part_title(part: Category | None, summary: ModelSummary) -> str:
    """A category in one word or two; the time outside kernels is idle, or the host's on a CPU."""
    if part is not None:
        return palette.short_title(part)
    graphs = summary.model.graphs
    return "host" if graphs and all(graph.device == "cpu" for graph in graphs) else "idle"


def batch_size(summary: ModelSummary) -> str:
    """The batch size; ``64*`` where it is not the one that was asked for."""
    row = summary.model.model
    if row.batch_size is not None:
        return f"{row.batch_size}*"
    return str(row.request.batch_size) if row.request.batch_size is not None else units.MISSING


def wall_words(summary: ModelSummary) -> str:
    """The wall time of each graph: ``16.2 ms + 46.6 ms``; of many, their sum."""
    graphs = summary.model.graphs
    if not graphs:
        return units.MISSING
    if len(graphs) > 2:
        return f"{units.seconds(summary.time_s)} ({len(graphs)} graphs)"
    return " + ".join(units.seconds(graph.wall_time_s or graph.time_s) for graph in graphs)


def problem_of(summary: ModelSummary) -> Failure | None:
    """Why a model has no row, or not a whole one."""
    if summary.model.problem:
        hint = "the same `inductor-bench batch` command measures it again"
        return Failure("record", "damaged", summary.model.problem, hint)
    return summary.model.model.failure


def gain_share(summary: ModelSummary) -> str:
    """What the generated kernels could win, as a share of the model."""
    if summary.gain_limit_s is None or not summary.time_s:
        return units.MISSING
    return units.percent(summary.gain_limit_s / summary.time_s)
