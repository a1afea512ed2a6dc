"""The summary of a run: the first line, the step's parts, the first kernels, findings, and what to type next."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from ...analysis.findings.finding import ADVICE, CAUTION, FINE, Finding, hash_text
from ...analysis.findings.first_line import write_first_line
from ...analysis.findings.next_commands import next_commands, write_trial_command
from ...analysis.findings.rule_table import FIRST, find_saving_s, list_findings_beside
from ...analysis.step_costs import compute_whole_time_s, find_step
from ...errors import InductorBenchError
from ...records.base import Failure
from ...records.optimization import Optimization
from ...records.run import IDLE, Part, Run
from ...records.summary import Summary, SummaryFailure, SummaryFinding, SummaryKernel, SummaryPart
from ...store.folder import OPTIMIZED
from ...store.program_folders import OptimizationFolder
from .. import names
from ..document_summary import make_ids_unique, name_commands
from ..formats import View
from .run_words import RankedKernel, describe_finding, describe_origin, rank_kernels, write_failure, write_sentence
from .step_document import describe_place, label_part

MOST_FINDINGS = 6
WORTH_SHOWING = 0.03
"""A finding that saves at least this share of the step is always shown."""

FAILED = "failed"
"""The kind of the first line of a run that measured nothing."""

REFUSED = ("cuda-graphs-refused",)
"""The kinds of findings about what Inductor refused to do, which are always shown."""


def run_summary(run: Run, view: View) -> Summary:
    """What the screen of a run says; of a brief view only the findings that a terminal shows."""
    lead, folder = write_first_line(run), str(view.folder) if view.folder is not None else ""
    found = list_findings_beside(run, lead)
    shown = choose_findings(found, run) if view.brief else found
    places, search = names.name_files(run), load_search_of(view)
    failures = tuple(_summarise_failure(one, run) for one in run.failures)
    headline_id = lead.kind if lead is not None else FAILED if failures else ""
    return Summary(
        headline=write_sentence(lead.text, run) if lead is not None else next((one.text for one in failures), ""),
        headline_id=headline_id,
        folder=folder,
        failures=failures,
        parts=tuple(make_ids_unique(map(_summarise_part, sort_parts(run)))),
        kernels=tuple(
            _summarise_kernel(entry, places) for entry in rank_kernels(run, view.sort)[: view.top] if entry.cost.calls
        ),
        findings=tuple(make_ids_unique(_summarise_finding(one, run, view, search) for one in shown)),
        next_commands=name_commands(list_commands(run, view)),
        left_out={"findings": len(found) - len(shown)} if len(shown) < len(found) else {},
    )


def _summarise_failure(failure: Failure, run: Run) -> SummaryFailure:
    return SummaryFailure(failure.stage, failure.kind, write_sentence(write_failure(failure), run), failure.hint)


class FolderFiles(Container[str]):
    """The files of a RUN by their paths in its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __contains__(self, place: object) -> bool:
        return (self._folder / str(place)).is_file()


def list_commands(run: Run, view: View) -> tuple[tuple[str, str], ...]:
    """What to type next, each with its purpose; nothing without a folder."""
    if view.folder is None:
        return ()
    found = next_commands(run, view.folder, view.sort, FolderFiles(view.folder), search=load_search_of(view))
    return tuple((one.command, one.why) for one in found)


def find_trial_command(run: Run, finding: Finding, view: View, search: Optimization | None) -> str:
    """The command that tries what a finding says to change, or applies what is proven; empty if no command does."""
    if view.folder is None:
        return write_trial_command(run, finding, "")
    return write_trial_command(run, finding, str(view.folder), FolderFiles(view.folder), search=search)


def load_search_of(view: View) -> Optimization | None:
    """What ``optimize`` has found in a RUN; ``None`` if no search has ended there."""
    if view.folder is None:
        return None
    place = OptimizationFolder(view.folder / OPTIMIZED)
    try:
        found = place.load() if place.exists() else None
    except InductorBenchError:
        return None
    return found if found is not None and found.is_complete else None


def sort_parts(run: Run) -> list[Part]:
    """The parts of the step, the longest first; empty if no step was profiled."""
    program = find_step(run)
    return sorted(program.parts, key=lambda part: -part.time_s) if program else []


def _summarise_part(part: Part) -> SummaryPart:
    name = f"{part.kind}-{hash_text(repr((part.label, *_identify_part(part))))}"
    calls = part.calls if part.kind != IDLE else None
    return SummaryPart(name, part.kind, label_part(part), part.time_s, part.share, calls, describe_place(part))


def _identify_part(part: Part) -> tuple[object, ...]:
    """What tells a part from others of its label. Of idle time it has no line: samples hit another one each time."""
    source = part.source
    if part.kind == IDLE:
        return part.module, part.function, source and (source.file, source.function)
    return part.graph, part.module, source and (source.file, source.line)


def _summarise_kernel(entry: RankedKernel, places: Mapping[str, str]) -> SummaryKernel:
    kernel, cost = entry.kernel, entry.cost
    return SummaryKernel(
        id=kernel.kernel_id,
        number=entry.number,
        name=kernel.name,
        graph=entry.module.slug,
        category=kernel.category,
        calls=cost.calls,
        time_s=cost.time_s,
        share=entry.share,
        bound=kernel.roof.bound,
        peak_share=kernel.roof.peak_share,
        gain_limit_s=cost.gain_limit_s,
        step_saving_s=cost.saving.step_saving_s,
        file=kernel.file,
        origin=describe_origin(kernel, places),
    )


def _summarise_finding(finding: Finding, run: Run, view: View, search: Optimization | None) -> SummaryFinding:
    saved_s = find_saving_s(finding, run)
    return SummaryFinding(
        id=finding.id,
        kind=finding.kind,
        level=finding.level,
        text=describe_finding(finding, run, search),
        saving_s=saved_s if finding.level == ADVICE and saved_s else None,
        graphs=finding.modules,
        kernels=tuple(dict.fromkeys(place.name for place in finding.kernels)),
        changes=finding.changes,
        command=find_trial_command(run, finding, view, search),
    )


def choose_findings(found: Sequence[Finding], run: Run) -> list[Finding]:
    """The findings that a terminal shows: advice with the largest gains first, then cautions, and what is in order.

    At least two cautions are shown: a wrong figure misleads more than a missing advice. One comes before all advice.
    """
    before = [one for one in found if one.kind == FIRST]
    later = [one for one in found if one.kind != FIRST]
    advice, cautions, fine = ([one for one in later if one.level == level] for level in (ADVICE, CAUTION, FINE))
    room = MOST_FINDINGS - len(fine)
    first = advice[: room - min(2, len(cautions))]
    worth = [
        one
        for one in advice
        if one not in first and find_saving_s(one, run) >= WORTH_SHOWING * compute_whole_time_s(run)
    ]
    refused = [one for one in cautions[room - len(first) :] if one.kind in REFUSED]
    return [*before, *first, *worth, *cautions[: room - len(first)], *refused, *fine]
