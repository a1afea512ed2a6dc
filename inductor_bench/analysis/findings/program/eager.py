"""Rules about the parts of the step that are not compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .... import units
from ....records.program import EAGER, OPTIMIZER, OTHERS, Part
from ...costs.step import parts_of
from ..evidence import LEAST_SHARE, RunEvidence
from ..finding import Finding
from ..phrases import join_words
from .words import place_words, share_words

WORTH_COMPILING = 0.05
"""Share of the step from which an eager region is worth compiling."""

HAVE_FUSED = frozenset({"Adam", "AdamW", "SGD"})
"""The optimizers of torch that take ``fused=True`` on every device."""

MOST_OPERATORS = 3
_WRAPPERS = re.compile(r"fsdp::|AccumulateGrad|RegisterPostBackwardFunction")
"""Operators that gather gradients or parameters, for autograd, DDP and FSDP: no compiled function takes them in."""

_STAY_EAGER = re.compile(r"aten::(rand|normal|bernoulli|uniform_|lstm|gru|rnn_|quantized_)")
"""Operators that make random data, which stands for a program's input, and recurrent networks, which Dynamo leaves to
torch unless ``torch._dynamo.config.allow_rnn`` is set."""

_LOSS = re.compile(r"loss|cross_entropy|log_softmax|Loss|LogSoftmax")
_CALL_OF_LOSS = re.compile(rf"({_LOSS.pattern})\w*\(")


def eager_optimizer(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports an optimizer that runs eagerly. A fused one moves as few bytes as its compiled step would."""
    run = evidence.run
    parts = [part for part in parts_of(run, OPTIMIZER) if not part.is_fused]
    time_s = sum(part.time_s for part in parts)
    if time_s < WORTH_COMPILING * evidence.whole.time_s:
        return
    names = join_words(list(dict.fromkeys(part.label for part in parts)), 2)
    launches = sum(part.launches for part in parts)
    many = f" in {units.count(launches)} launches" if launches else ""
    labels = {part.label for part in parts}
    runs, its = ("runs eagerly and takes", "its") if len(labels) == 1 else ("run eagerly and take", "their")
    fused = ", or pass fused=True" if labels <= HAVE_FUSED else ""
    text = (
        f"{names} {runs} {share_words(run, time_s)} of a step{many}: compile {its} step "
        f"(torch.compile(optimizer.step)){fused}"
    )
    yield Finding("eager-optimizer", text, gain_s=time_s)


def eager_operators(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports eager operators that together take a large part of the step, with their lines."""
    run = evidence.run
    every = parts_of(run, EAGER)
    parts = [part for part in every if not _WRAPPERS.search(part.label) and not _STAY_EAGER.match(part.label)]
    wrapped = [part for part in every if _WRAPPERS.search(part.label)]
    time_s, wrapped_s = (sum(part.time_s for part in some) for some in (parts, wrapped))
    whole_s = time_s + wrapped_s
    if time_s < WORTH_COMPILING * evidence.whole.time_s:
        return
    named = [part for part in parts if part.label != OTHERS] or parts
    words = join_words([_operator_words(part, evidence) for part in named[:MOST_OPERATORS]])
    loss = sum(part.time_s for part in parts if _is_of_loss(part))
    what = "loss together with the model" if 2 * loss >= time_s else "function that calls them"
    text = f"eager operators take {share_words(run, whole_s)} of a step, most of all {words}: compile the {what}"
    if wrapped_s >= LEAST_SHARE * evidence.whole.time_s:
        largest = wrapped[0].label
        text += f"; {units.seconds(wrapped_s)} of it gathers gradients or parameters ({largest}) and stays eager"
    yield Finding("eager-operators", text, gain_s=time_s)


def _is_of_loss(part: Part) -> bool:
    return bool(_LOSS.search(part.label) or (part.source and _CALL_OF_LOSS.search(part.source.code)))


def _operator_words(part: Part, evidence: RunEvidence) -> str:
    place = place_words(part)
    return f"{part.label.replace('::', '.', 1)} {units.percent(evidence.whole.part(part.time_s))}" + (
        f" ({place})" if place else ""
    )
