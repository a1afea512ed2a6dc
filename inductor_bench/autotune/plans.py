"""The rounds and limits of the races in which candidates are screened, and of the final."""

from __future__ import annotations

from ..analysis.statistics import VERDICT_CONFIDENCE, samples_needed
from .race import RacePlan

VERDICT_ROUNDS = samples_needed(VERDICT_CONFIDENCE)
"""The fewest rounds that give a verdict: 9."""

SCREENING = RacePlan(first_rounds=2, first_limit=1.25, later_rounds=2, final_rounds=4, most_final_rounds=4)
FINAL = RacePlan(first_rounds=1, final_rounds=10)
QUICK_SCREENING = RacePlan(
    first_rounds=1,
    first_limit=1.15,
    later_rounds=2,
    later_limit=1.03,
    finalists=1,
    final_rounds=3,
    most_final_rounds=3,
)
"""The screening of one kernel of many: it decides what is tried next, and the final decides who wins."""

QUICK_FINAL = RacePlan(first_rounds=0, final_rounds=VERDICT_ROUNDS, most_final_rounds=2 * VERDICT_ROUNDS)
"""The final of one kernel of many: its candidates are those of the screenings that are near the fastest."""

HOPELESS_FINAL = RacePlan(finalists=1, first_rounds=0, final_rounds=VERDICT_ROUNDS, most_final_rounds=VERDICT_ROUNDS)
"""The final of one kernel of many whose candidates were no faster than the default in the screenings."""

NEAR = 1.02
"""Ratio to the fastest candidate of the screenings up to which another candidate enters the final of one of many."""

MINIMUM_GAIN = 0.005
"""Minimum gain, as a share of the default's time, for the search to continue from another configuration."""
