"""What processes say of a row of the menu: what is wrong with it, whether it is faster, and why it is not."""

from __future__ import annotations

from ... import units
from ...records.optimization import (
    DIFFERS,
    FAILED,
    FASTER,
    LOST,
    SAME,
    SLOWER,
    UNDECIDED,
    UNPROVEN,
    MeasuredGain,
    MenuRow,
    Trial,
    TrialVariant,
    VariantCheck,
)
from .judging import LOOKS, seems_faster
from .search_results import NO_INTERVAL

NO_TIME = "no time was left for it; give a longer --budget"
NO_TIME_FOR = (
    "too little time was left for it ({left}; its ranking takes about {ranking}, its proof {proof}, and the check in a "
    "new process {confirming}); give a longer --budget"
)
NO_TIME_ALONE = (
    "too little time was left for it (its ranking takes {count} separate processes of about {each} each, in the first "
    "half of the time); give a longer --budget"
)
LATE = "{said}; give a longer --budget"
NO_PROOF = "it seemed faster, but no time was left to prove it; give a longer --budget"
PERHAPS = "it may be faster: its interval includes 0%, and no time was left to prove it; give a longer --budget"
AGAIN = "{said}; no time was left to measure it again; give a longer --budget"
USED_UP = (
    "{said}; it was judged "
    f"{LOOKS} times, which is the most, because each judgement may find a saving by chance; --force measures all again"
)
NOT_RUN = "alone it is faster, but no new process that starts with it was run yet"


def find_fault(row: MenuRow, found: TrialVariant, max_memory_bytes: int | None) -> dict[str, str]:
    """The fields of a row that say why its variant cannot be advised; empty if nothing is wrong with it.

    Args:
        row: the row.
        found: its variant in one process.
        max_memory_bytes: the memory that a variant may take; ``None`` for no limit.
    """
    wrong = next((check for check in found.checks if check.differs), None)
    memory = found.peak_memory_bytes
    if found.failure:
        return {"state": FAILED, "reason": found.failure}
    if wrong is not None:
        return {"state": DIFFERS, "reason": describe_difference(wrong)}
    if len(found.refused) >= len(row.settings) > 0:
        return {"state": FAILED, "reason": "; ".join(found.refused)}
    if max_memory_bytes is not None and memory is not None and memory > max_memory_bytes:
        limit = units.size(max_memory_bytes)
        return {"state": FAILED, "reason": f"its steps take {units.size(memory)} of memory, more than {limit}"}
    return {}


MEMORY_WORDS = ("out of memory", "outofmemory", "cannot allocate memory")


def lacks_memory(failure: str) -> bool:
    """Whether a variant failed for lack of memory."""
    return any(word in failure.lower() for word in MEMORY_WORDS)


def describe_difference(check: VariantCheck) -> str:
    """Says where the numbers of a variant differ, and by how much."""
    where = f" of {check.where}" if check.where else ""
    said = check.reason or f"the difference{where} is {check.worst:.3g} times the tolerance"
    return f"{check.graph}: {said}" if check.graph else said


def find_failed_variant(trial: Trial) -> TrialVariant:
    """Makes an entry for a variant about which a process reported nothing."""
    return TrialVariant("", failure=trial.failure.message if trial.failure else "its steps were not timed")


WORTH_KNOWING = 0.01
"""The smallest share of the step that counts as a saving: a row that saves less is not faster."""


def judge_ranking(gain: MeasuredGain | None, *, alternated: bool) -> dict[str, str]:
    """Returns the fields of a row after its ranking: it may be faster, or :func:`judge_lost_gain`."""
    if seems_faster(gain, alternated=alternated):
        return {"state": UNPROVEN, "reason": _explain_no_proof(gain)}
    return judge_lost_gain(gain)


def judge_proof(gain: MeasuredGain | None, *, is_last: bool, alternated: bool = True) -> dict[str, str]:
    """Returns the fields of a row after a judgement of its proof; after the last one a longer search has no use."""
    if gain is None or gain.verdict in (SAME, SLOWER) or not seems_faster(gain, alternated=alternated):
        lost = judge_lost_gain(gain)
        used_up = is_last and lost["state"] == UNDECIDED
        return {**lost, "reason": USED_UP.format(said=lost["reason"])} if used_up else lost
    if gain.verdict == FASTER:
        return {"reason": NOT_RUN}
    if not is_last:
        return {"reason": _explain_no_proof(gain)}
    said = f"it seems to save {units.percent(gain.share)}, and its interval includes 0%"
    return {"reason": USED_UP.format(said=said)}


def _explain_no_proof(gain: MeasuredGain | None) -> str:
    """Why a row that may be faster is not proven if no further process of it runs."""
    return PERHAPS if gain is not None and NO_INTERVAL < gain.low <= 0 else NO_PROOF


def judge_lost_gain(gain: MeasuredGain | None) -> dict[str, str]:
    """Returns the fields of a row that did not show a gain: it is not faster, or noise may hide that it is faster."""
    if gain is None:
        return {"state": FAILED, "reason": "its steps could not be compared with the original's"}
    showed = units.percent(abs(gain.placebo))
    if _may_be_faster(gain):
        seems = "save" if gain.share >= 0 else "cost"
        noise = f"the placebo, which changes nothing, showed {showed}: too noisy to tell"
        return {"state": UNDECIDED, "reason": f"it seems to {seems} {units.percent(abs(gain.share))}; {noise}"}
    if gain.share < 0:
        return {"state": LOST, "reason": f"the step becomes {units.percent(-gain.share)} longer"}
    return {"state": LOST, "reason": f"it saves {units.percent(gain.share)} of the step; the placebo showed {showed}"}


def _may_be_faster(gain: MeasuredGain) -> bool:
    """Whether a saving that matters lies within its interval, and within what the placebo shows."""
    return gain.verdict == UNDECIDED and min(gain.high, gain.share + abs(gain.placebo)) >= WORTH_KNOWING


def is_needed(own: MeasuredGain | None, row: MenuRow) -> tuple[bool, float]:
    """Returns whether, and how much, a combination needs a row."""
    return is_faster(own), own.share if own is not None else compute_proven_share(row)


def is_faster(gain: MeasuredGain | None) -> bool:
    """Whether a gain is sure."""
    return gain is not None and gain.verdict == FASTER


def compute_proven_share(row: MenuRow) -> float:
    """Returns the share that a row was proven to save; 0 if nothing is proven."""
    return row.proven.share if row.proven is not None else 0.0


def find_seen_share(row: MenuRow) -> float:
    """Returns the share that a row saved in its proof, or else in its ranking; 0 before both."""
    gain = row.proven or row.screened
    return gain.share if gain is not None else 0.0
