"""Findings about the parts of the step that are not compiled: optimizers, eager operators, anomaly detection."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ... import units
from ...records.program import DISPATCHING, EAGER, OPTIMIZER, OTHERS, Part, ProgramChange
from ..step_costs import parts_of, runs_on_host
from .finding import LEAST_SHARE, Assumption, Finding, RunEvidence, join_words
from .program_findings import MANY_CALLS, WRAPPERS, idle_parts, place_words, share_words

WORTH_COMPILING = 0.05
"""Share of the step from which an eager region is worth compiling."""

HAVE_FUSED = frozenset({"Adam", "AdamW", "SGD"})
"""The optimizers of torch that take ``fused=True`` on every device."""

MOST_OPERATORS = 3
_STAY_EAGER = re.compile(r"aten::(rand|normal|bernoulli|uniform_|lstm|gru|rnn_|quantized_)")
"""Operators that make random data, which stands for a program's input, and recurrent networks, which Dynamo leaves to
torch unless ``torch._dynamo.config.allow_rnn`` is set."""

_LOSS = re.compile(r"loss|cross_entropy|log_softmax|Loss|LogSoftmax")
_CALL_OF_LOSS = re.compile(rf"({_LOSS.pattern})\w*\(")


def eager_optimizer(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports an optimizer that runs eagerly, and is not fused: a fused one moves as few bytes as its compiled step.

    ``fused=True`` is advised for torch's own classes only: another one of the same name may not take it. A class is
    torch's if the process that ran it said so, which older records do not.
    """
    run = evidence.run
    parts = [part for part in parts_of(run, OPTIMIZER) if not part.is_fused]
    time_s = sum(part.time_s for part in parts)
    if time_s < WORTH_COMPILING * evidence.whole.time_s:
        return
    names = join_words(list(dict.fromkeys(part.label for part in parts)), 2)
    launches = sum(part.launches for part in parts)
    many = f" in {units.count(launches)} launches" if launches else ""
    labels = {part.label for part in parts}
    own = all(part.defined_in.startswith("torch.optim.") for part in parts)
    runs, its = ("runs eagerly and takes", "its") if len(labels) == 1 else ("run eagerly and take", "their")
    fused = ", or pass fused=True" if own and labels <= HAVE_FUSED else ""
    text = (
        f"{names} {runs} {share_words(run, time_s)} of a step{many}: compile {its} step "
        f"(torch.compile(optimizer.step)){fused}"
    )
    changes = tuple(ProgramChange("argument", f"{name}.fused", "True") for name in sorted(labels) if fused)
    yield Finding("eager-optimizer", text, gain_s=time_s, assumed=Assumption(joined=tuple(parts)), changes=changes)


def eager_operators(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports eager operators that together take a large part of the step, with their lines.

    The time in which the device waits for the host to dispatch them belongs to it, if they are many.
    """
    run = evidence.run
    every = [part for part in parts_of(run, EAGER) if part.label not in CHECKS]
    parts = [part for part in every if not WRAPPERS.search(part.label) and not _STAY_EAGER.match(part.label)]
    wrapped = [part for part in every if WRAPPERS.search(part.label)]
    time_s, wrapped_s = (sum(part.time_s for part in some) for some in (parts, wrapped))
    whole_s = time_s + wrapped_s
    many = sum(part.calls for part in parts) >= MANY_CALLS and not runs_on_host(run)
    dispatched = idle_parts(run, DISPATCHING) if many else ()
    dispatched_s = sum(part.time_s for part in dispatched)
    if time_s + dispatched_s < WORTH_COMPILING * evidence.whole.time_s:
        return
    named = [part for part in parts if part.label != OTHERS] or parts
    words = join_words([operator_words(part, evidence) for part in named[:MOST_OPERATORS]])
    loss = sum(part.time_s for part in parts if _is_of_loss(part))
    what = "loss together with the model" if 2 * loss >= time_s else "function that calls them"
    text = f"eager operators take {share_words(run, whole_s)} of a step, most of all {words}"
    if dispatched_s >= LEAST_SHARE * evidence.whole.time_s:
        text += f", and the device waits {share_words(run, dispatched_s)} for the host to dispatch them"
    text += f": compile the {what}"
    if wrapped_s >= LEAST_SHARE * evidence.whole.time_s:
        largest = wrapped[0].label
        text += f"; {units.seconds(wrapped_s)} of it gathers gradients or parameters ({largest}) and stays eager"
    changes = tuple(ProgramChange("line", "compile", "", part.source) for part in named[:MOST_OPERATORS] if part.source)
    assumed = Assumption(parts=tuple(parts), idle=tuple(dispatched))
    yield Finding("eager-operators", text, gain_s=time_s + dispatched_s, assumed=assumed, changes=changes)


def _is_of_loss(part: Part) -> bool:
    return bool(_LOSS.search(part.label) or (part.source and _CALL_OF_LOSS.search(part.source.code)))


def operator_words(part: Part, evidence: RunEvidence) -> str:
    """An eager operator with its share of the step and its line: ``aten.embedding 2.0% (app/train.py:23)``."""
    place = place_words(part)
    return f"{part.label.replace('::', '.', 1)} {units.percent(evidence.whole.part(part.time_s))}" + (
        f" ({place})" if place else ""
    )


CHECKS = frozenset({"aten::_is_any_true", "aten::isnan"})
"""The operators with which autograd's anomaly detection looks for NaN in what each function of the backward returns."""


def anomaly_mode(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports autograd's anomaly detection.

    It holds if the step calls the operators with which it looks for NaN, of which only it calls the one.
    """
    run = evidence.run
    parts = [part for part in parts_of(run, EAGER) if part.label in CHECKS]
    checks = sum(part.calls for part in parts if part.label == "aten::_is_any_true")
    if not checks:
        return
    time_s = sum(part.time_s for part in parts)
    text = (
        f"autograd looks for NaN {units.count(checks)} times a step, and reads each result, as its anomaly detection "
        "does: leave out torch.autograd.set_detect_anomaly(True), also in a trainer's options"
    )
    changes = (ProgramChange("setting", "torch.autograd.set_detect_anomaly", "False"),)
    yield Finding("anomaly-mode", text, gain_s=time_s, assumed=Assumption(parts=tuple(parts)), changes=changes)
