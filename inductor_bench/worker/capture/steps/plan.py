"""The plan of an observation, by numbers of boundaries. The processes of a distributed program follow one plan.

Collectives tie the ranks together: a rank that profiles slows all others. The rank with the lowest ``LOCAL_RANK``
decides, at least :data:`LEAD` boundaries ahead, because the ranks are not at the same boundary at the same time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

LEAD = 3
"""Boundaries between a decision and its effect where other processes follow it."""


@dataclass(frozen=True)
class Plan:
    """Numbers of boundaries; ``None`` is not decided yet.

    Attributes:
        begin: the begin of the timed window.
        end: its end.
        profile: the begin of the profiler's warm-up, which takes one step, or none after ``--skip``.
        profiled: the number of whole steps after the warm-up that are recorded.
    """

    begin: int | None = None
    end: int | None = None
    profile: int | None = None
    profiled: int = 0


class Agreement:
    """The plan of a process, which it alone decides and follows."""

    decides = True
    lead = 0

    def __init__(self) -> None:
        self._plan = Plan()

    def read(self) -> Plan:
        return self._plan

    def decide(self, plan: Plan) -> None:
        self._plan = plan


class Leader(Agreement):
    """The plan of a process that others follow."""

    lead = LEAD

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def decide(self, plan: Plan) -> None:
        super().decide(plan)
        temporary = self._path.with_suffix(".part")
        temporary.write_text(json.dumps(asdict(plan)), encoding="utf-8")
        temporary.replace(self._path)


class Follower(Agreement):
    """The plan of a process that follows another. The file is read again only after it was replaced."""

    decides = False
    lead = LEAD

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._version = 0

    def read(self) -> Plan:
        try:
            version = os.stat(self._path).st_ino
            if version != self._version:
                self._plan = Plan(**json.loads(self._path.read_text(encoding="utf-8")))
                self._version = version
        except OSError:
            pass  # the leader has not decided anything yet
        return self._plan


def agreement_of(environment: Mapping[str, str], folder: Path) -> Agreement:
    """The agreement of this process, by the variables that launchers of distributed programs set."""
    rank, ranks = environment.get("LOCAL_RANK", ""), environment.get("LOCAL_WORLD_SIZE", "")
    if not rank.isdigit() or not ranks.isdigit() or int(ranks) < 2:
        return Agreement()
    return (Follower if int(rank) else Leader)(folder / "plan.json")
