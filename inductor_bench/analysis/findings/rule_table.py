"""The table of rules, and the function that applies them to a run. The rows stand in the rules' files.

``doubts.find_disturbed`` has no row: ``first_line.py`` makes its finding the first line. Advice that rests on
disturbed figures is left out here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...records.run import Run
from ..step_costs import compute_whole_time_s, host_sets_pace, is_shared
from . import (
    compile_findings,
    doubts,
    graph_findings,
    kernel_findings,
    precision_findings,
    product_findings,
    program_findings,
    step_findings,
)
from .finding import ADVICE, CAUTION, FINE, NOTE, Finding, Rule, RunEvidence

FILES = (
    program_findings,
    step_findings,
    graph_findings,
    kernel_findings,
    precision_findings,
    product_findings,
    compile_findings,
    doubts,
)
"""Each file has tables of rules at its end: ``STEP_RULES``, which apply if the program's step was profiled, and
``RULES``."""

SHARED = Rule(("shared-gpu",), doubts.find_shared_gpu, is_measurement=True)
UNCERTAINTY = Rule(
    ("few-steps", "longer-profile", "untied", "longer-loop", "step-note"),
    step_findings.find_uncertainty,
    is_measurement=True,
)
"""These two rules also apply to a step that was timed but not profiled."""


def _list_rows(table: str) -> tuple[Rule, ...]:
    return tuple(rule for file in FILES for rule in getattr(file, table, ()))


STEP_RULES = (SHARED, *_list_rows("STEP_RULES"), UNCERTAINTY)
RULES = _list_rows("RULES")
"""Findings of the same level and gain are listed in this order, findings about the step first."""

_LEVELS = (ADVICE, CAUTION, NOTE, FINE)


def list_findings(run: Run) -> tuple[Finding, ...]:
    """Returns all findings of a run: advice by what it saves of the step, then cautions, notes, and passed checks.

    The saving is simulated; see ``find_saving_s``. Advice is left out if its gain was computed from figures that do not
    count, because the machine was busy, or from idle time of a GPU that others used, too. The finding about the other
    users comes first.

    It is called twice for a run. First by the analysis (``simulation.predictions``), for a run without predictions, to
    know what to simulate: the record keeps each prediction under its ``Finding.key``. Then by the report, for the run
    with its predictions: a finding gets the prediction with its key, and rules may read it.
    """
    evidence, disturbed, is_busy = (
        RunEvidence(run),
        doubts.find_disturbed_graphs(run),
        bool(doubts.find_disturbed_step(run)),
    )
    of_step = STEP_RULES if evidence.in_step else (SHARED, UNCERTAINTY) if run.program is not None else ()
    rules = (*of_step, *RULES)
    every = [finding for rule in rules for finding in rule.find(evidence)]
    kinds = dict.fromkeys(finding.kind for finding in every if doubts.depends_only_on(finding, disturbed))
    predicted = {one.finding: one for one in run.program.predictions} if run.program is not None else {}
    found = [
        replace(_name_left_out_kinds(finding, tuple(kinds)), prediction=predicted.get(finding.key))
        for finding in every
        if not doubts.depends_only_on(finding, disturbed)
        and not (is_busy and finding.level == ADVICE and finding.gain_s)
        and not (is_shared(run) and doubts.rests_on_idle_time(finding))
    ]
    if any(
        one.kind in HOST_CAUSES and find_saving_s(one, run) >= WORTH_MUCH * compute_whole_time_s(run) for one in found
    ):
        found = [one for one in found if one.kind != "host-pace"]
    return tuple(sorted(found, key=lambda finding: _order(finding, run)))


def _name_left_out_kinds(finding: Finding, kinds: Sequence[str]) -> Finding:
    """Adds the kinds of the findings that are left out to the finding about a machine that was busy after the step."""
    if finding.kind != "busy-step" or not kinds:
        return finding
    said = f"Findings that rest on these runs are left out ({', '.join(kinds)}). {doubts.MEASURE_AGAIN}"
    return replace(finding, text=finding.text.replace(doubts.MEASURE_AGAIN, said))


HOST_CAUSES = frozenset(kind for rule in (*STEP_RULES, *RULES) if rule.names_host_work for kind in rule.kinds)
"""Kinds of findings that say what the device waits for.

If there is such a finding, "the host sets the pace" says nothing new.
"""


WORTH_MUCH = 0.03
"""The smallest share of the step that counts as a large saving."""


MEASUREMENT = frozenset(
    (
        *("busy-machine", "step", "parts"),
        *(kind for rule in (*STEP_RULES, *RULES) if rule.is_measurement for kind in rule.kinds),
    )
)
"""Kinds of findings that are about the measurement, or only divide the step."""


FIRST = "shared-gpu"
"""The kind of the caution that stands before all advice."""


def _order(finding: Finding, run: Run) -> tuple[int, bool, float, float]:
    """Cautions about the program stand before those about the measurement.

    Advice that names no cause stands behind other advice that is worth much.
    """
    saved_s = find_saving_s(finding, run)
    if finding.kind == "host-pace":
        saved_s = min(saved_s, WORTH_MUCH * compute_whole_time_s(run))
    level = -1 if finding.kind == FIRST else _LEVELS.index(finding.level)
    return level, finding.kind in MEASUREMENT, -saved_s, -finding.gain_s


def find_saving_s(finding: Finding, run: Run) -> float:
    """Returns the simulated saving of a finding's change.

    Without a simulation it is the largest possible gain, but 0 for faster kernels and collectives in a host-bound step.
    """
    if finding.prediction is not None:
        return finding.prediction.saving_s
    on_device = bool(finding.kernels) or finding.kind == "collectives"
    return 0.0 if on_device and host_sets_pace(run) else finding.gain_s


def list_findings_beside(run: Run, lead: Finding | None) -> list[Finding]:
    """Returns the findings without the one in the first line."""
    return [finding for finding in list_findings(run) if lead is None or finding.kind != lead.kind]
