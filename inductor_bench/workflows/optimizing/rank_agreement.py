"""Whether the ranks of a program changed their variants at the same steps."""

from __future__ import annotations

from collections.abc import Sequence

from ...messages.variant_requests import TriedVariants

TOGETHER = "so that its variants do not change together"


def describe_disagreement(tried: Sequence[TriedVariants]) -> str:
    """Why the ranks of a program did not change their variants together; empty if nothing says so.

    The number of collectives that a rank has begun says how far it is. It cannot be compared if ranks begin different
    numbers of them in the same steps, as those of a pipeline do.
    """
    if not tried:
        return ""
    ranked = [one for one in tried if one.rank is not None and one.ranks > 1]
    distributed = [one for one in tried if one.collectives]
    if len(ranked) < 2 and len(distributed) > 1:
        return f"{len(distributed)} processes exchange data and have no LOCAL_RANK and LOCAL_WORLD_SIZE, {TOGETHER}"
    if not ranked:
        return ""
    first = ranked[0]
    if first.world > first.ranks:
        return f"{first.world - first.ranks} of {first.world} ranks run on other machines, {TOGETHER}"
    if len(ranked) < first.ranks:
        return f"only {len(ranked)} of {first.ranks} ranks ran steps with compiled graphs, {TOGETHER}"
    return next(filter(None, (_describe_difference(first, one) for one in ranked[1:])), "")


def _describe_difference(first: TriedVariants, other: TriedVariants) -> str:
    names = f"ranks {first.rank} and {other.rank}"
    if first.source and other.source and first.source != other.source:
        return f"the steps of {names} end in different ways: {first.source} and {other.source}"
    if None not in (first.begin, other.begin) and first.begin != other.begin:
        return f"{names} began to change variants at different steps, {first.begin} and {other.begin}"
    ours, theirs = dict(first.collectives), dict(other.collectives)
    apart = [theirs[place] - ours[place] for place in ours if place in theirs]
    if len(apart) > 1 and apart[0] and set(apart) == {apart[0]}:
        return f"{names} were {abs(apart[0])} collectives apart when they changed their variants"
    return ""
