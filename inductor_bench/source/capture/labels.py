"""A readable name for every compiled module, and a form of it for file names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ...records.code.source import CapturedCode
from ..module.header import read_header

_UNSAFE = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class ModuleLabel:
    """The names of a module; both are unique in the run. ``slug`` consists of ``[a-z0-9-]``."""

    label: str
    slug: str


@dataclass(frozen=True)
class _Mark:
    """The parts of a label."""

    role: str
    dynamic: bool
    rank: int | None
    pair: Hashable  # the same for the forward and the backward of one graph
    frame: Hashable  # includes the role, because an inference graph is no recompilation of a training graph
    frame_compile_id: int | None


def label_modules(modules: Sequence[tuple[str, CapturedCode | None]]) -> tuple[ModuleLabel, ...]:
    """The labels of modules.

    A label is ``forward``, ``backward``, ``inference`` or ``graph`` (a module without a mark), numbered from the second
    one on, so that ``backward-2`` is the backward of ``forward-2``. It ends in ``(dynamic)`` where sizes are symbols,
    and in ``(recompile)`` where the frame was compiled before in that role. It begins with the rank where there are
    several ranks.

    Args:
        modules: text and entry in the structured trace of each module, in the order of compilation.
    """
    marks = [_mark(text, code) for text, code in modules]
    several_ranks = len({mark.rank for mark in marks}) > 1
    first = _first_compilations(marks)
    labels = []
    for mark, number in zip(marks, _numbers(marks), strict=True):
        words = f"{mark.role}-{number}" if number > 1 else mark.role
        if mark.dynamic:
            words += " (dynamic)"
        if mark.frame_compile_id and mark.frame_compile_id > first.get(mark.frame, mark.frame_compile_id):
            words += " (recompile)"
        if several_ranks:
            words = f"rank {mark.rank} {words}" if mark.rank is not None else f"main {words}"
        labels.append(ModuleLabel(words, _UNSAFE.sub("-", words.lower()).strip("-")))
    return tuple(labels)


def _mark(text: str, code: CapturedCode | None) -> _Mark:
    header = read_header(text)
    role = header.role if header.role != "unknown" or code is None else code.role
    rank = code.rank if code else None
    frame_id, compile_id = (code.frame_id, code.frame_compile_id) if code else (None, None)
    pair: Hashable = header.graph_number
    if pair is None and frame_id is not None:
        pair = ("frame", frame_id, compile_id)
    frame = (rank, frame_id, role) if frame_id is not None else None
    return _Mark("graph" if role == "unknown" else role, header.dynamic, rank, pair, frame, compile_id)


def _first_compilations(marks: Sequence[_Mark]) -> dict[Hashable, int]:
    first: dict[Hashable, int] = {}
    for mark in marks:
        if mark.frame_compile_id is not None and mark.frame is not None:
            first[mark.frame] = min(mark.frame_compile_id, first.get(mark.frame, mark.frame_compile_id))
    return first


def _numbers(marks: Sequence[_Mark]) -> list[int]:
    # Backwards are compiled in an order of their own, so that the forwards decide the numbers of both. Another process,
    # or a reset of Dynamo, counts its graphs from 0 again: the second forward 0 belongs to the second backward 0.
    numbers = [0] * len(marks)
    seen: Counter[Hashable] = Counter()
    families: dict[Hashable, dict[Hashable, int]] = {}
    for place in sorted(range(len(marks)), key=lambda place: marks[place].role == "backward"):
        mark = marks[place]
        family = (mark.rank, "training" if mark.role in ("forward", "backward") else mark.role)
        occurrence = (mark.rank, mark.role, mark.pair)
        known = families.setdefault(family, {})
        numbers[place] = known.setdefault((mark.pair, seen[occurrence]), len(known) + 1)
        seen[occurrence] += 1
    return numbers
