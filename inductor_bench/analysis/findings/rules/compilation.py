"""Rules about compilation: graph breaks, recompilations, disagreement of the two captures, and threads.

Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ....devices.table import device_of
from ....records.program import GUARDS, PYTHON
from ...costs.step import idle_labels
from ..evidence import LEAST_SHARE, RunEvidence
from ..finding import CAUTION, NOTE, Finding
from ..phrases import join_words, labels, plural, short_paths, slugs

MOST_REASON = 150  # largest number of characters of Dynamo's reason for one graph break

_REASON_NOISE = re.compile(r"^\d+/\d+: |\s*\bMessage: None\b\.?|\s*\bHint: .*$")
_SIZES = re.compile(r"size|stride")
_WEIGHTS = re.compile(r"_modules\[|\._parameters|\._buffers|_modules\.")
"""A guard on a weight: another model runs the same code, and no dynamic shape makes one graph of both."""


def graph_breaks(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graph breaks and their reasons."""
    breaks = evidence.run.capture.graph_breaks
    if breaks:
        # The user cannot remove a break in torch's own code; torch's optimizers have one.
        own = [text for text in breaks if "/site-packages/torch/" not in text.replace("\\", "/").partition(": ")[0]]
        inside = "" if own else ", in torch's own code"
        reasons = join_words([_short_reason(text) for text in own or breaks], 2)
        text = f"{plural(len(breaks), 'graph break')}{inside}: {reasons}{_cost_between_graphs(evidence)}"
        yield Finding("graph-breaks", text, level=CAUTION if own else NOTE)


def _cost_between_graphs(evidence: RunEvidence) -> str:
    """What Python and guards between compiled graphs cost the step; empty where it is little or unknown."""
    times = idle_labels(evidence.run)
    time_s = times.get(PYTHON, 0.0) + times.get(GUARDS, 0.0)
    if time_s < LEAST_SHARE * evidence.whole.time_s or not time_s:
        return ""
    return f". Python and guards, between graphs and elsewhere, cost {evidence.whole.format(time_s)} of a step"


def recompilations(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports recompilations and their reasons."""
    recompiles = evidence.run.capture.recompiles
    if recompiles:
        reasons = join_words(list(dict.fromkeys(_short_reason(reason) for reason in recompiles)), 2)
        text = f"{plural(len(recompiles), 'recompilation')}: {reasons}"
        if any(_SIZES.search(reason) and not _WEIGHTS.search(reason) for reason in recompiles):
            text += "; dynamic=True or torch._dynamo.mark_dynamic compiles once for all sizes"
        yield Finding("recompiles", text, level=CAUTION)


def capture_disagreement(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports modules that only one of the two captures found."""
    run = evidence.run
    if run.capture.disagreement:
        text = f"the printed module lines and the structured trace disagree: {run.capture.disagreement}"
        yield Finding("capture", text, level=CAUTION)


def threads(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports CPU graphs that ran on one thread on a machine with several CPUs."""
    run = evidence.run
    single = [m for m in run.modules if device_of(m.device).runs_on_host and m.threads == 1]
    if single and run.environment.host.cpu_count > 1:
        cpus = f"{run.environment.host.cpu_count} CPUs"
        text = f"{labels(single)} ran on 1 thread of {cpus} (OMP_NUM_THREADS, torch.set_num_threads)"
        yield Finding("threads", text, slugs(single), level=CAUTION)


def _short_reason(text: str) -> str:
    """Returns ``file:line: reason`` with a short path and without Dynamo's placeholders."""
    place, colon, reason = short_paths(" ".join(text.split())).partition(": ")
    reason = _REASON_NOISE.sub("", reason).strip()
    # The reason may be a headline, a colon and an explanation. Either may hold the information, so both are kept.
    kept = reason.replace(": ", " (", 1).rstrip(".") + ")" if reason.count(": ") == 1 else reason.rstrip(".")
    kept = kept if len(kept) <= MOST_REASON else kept[:MOST_REASON] + "…"
    return f"{place}: {kept}" if colon and kept else place + kept
