"""The comparison of two kernels that were timed in turn."""

from __future__ import annotations

from dataclasses import dataclass

from ..failure import Failure
from ..tuning import Config, MeasuredKernel, Ratio


@dataclass(frozen=True)
class Pairing:
    """Two kernels that were timed alternately, each in one configuration.

    Attributes:
        first_config: the configuration of the first kernel.
        second_config: the configuration of the second kernel.
        first_s: the first kernel's median; ``None`` where the kernels could not be timed.
        second_s: the second kernel's median in the same rounds; ``None`` where the kernels could not be timed.
        ratio: the second kernel's time over the first's.
        verdict: the verdict on the second kernel.
        reason: the reason why they could not be timed.
    """

    first_config: Config
    second_config: Config
    first_s: float | None = None
    second_s: float | None = None
    ratio: Ratio | None = None
    verdict: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Comparison:
    """The comparison of two kernels.

    Attributes:
        first: the first kernel's own measurement.
        second: the second kernel's own measurement.
        state: the times that were compared: ``cold`` or ``warm``.
        as_they_stand: both in their own configurations.
        same_config: the second in the configuration of the first, so that the rest of the difference is due to the
            code. It equals ``as_they_stand`` where both have the same configuration.
        best_of_each: both in their best configurations, where they were retuned.
        difference: the difference of their results, or the reason why it is unknown; empty where they are equal.
        alike: whether both compute the same; ``None`` where unknown.
        failures: failures of their retunes.
        notes: doubts about the comparability of their times.
    """

    first: MeasuredKernel
    second: MeasuredKernel
    state: str
    as_they_stand: Pairing
    same_config: Pairing
    best_of_each: Pairing | None = None
    difference: str = ""
    alike: bool | None = None
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()
