"""What the programs of this folder share: how a defect is declared, how a program is started, its loop and its sizes.

``python scripts/defects/FILE.py NAME`` runs a program; ``DEFECT=0`` runs it as it would be without its defect, which
does the same work. ``SMALL=1`` makes it small enough for a CPU with two cores.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "programs"))
import torch
from stopwatch import DEVICE as DEVICE
from stopwatch import Laps

DEFECT = os.environ.get("DEFECT", "1") != "0"
SMALL = bool(os.environ.get("SMALL")) or DEVICE == "cpu"
DTYPE = torch.float32 if SMALL else torch.bfloat16
STEPS = int(os.environ.get("STEPS", "60" if SMALL else "120"))
LEAST_S = 0.0 if {"STEPS", "PROFILE", "WORLD_SIZE"} & os.environ.keys() else 4.0
"""Seconds that the second half of the steps takes at least: a program that ends sooner is not what is measured."""

Program = Callable[[], None]
Size = TypeVar("Size")
_programs: dict[str, Program] = {}


def defect(
    *ids: str, share: float, names: tuple[str, ...] = (), also: tuple[str, ...] = (), cpu: bool = False
) -> Callable[[Program], Program]:
    """Declares a program with one defect. Lines with the comment ``defect`` are those that a finding may name.

    Args:
        ids: the kinds of findings that find it.
        share: the least share of the step that the defect costs.
        names: what a finding may name in place of a line: a function, a graph, a parameter. Where there are neither
            lines nor names, any place is right.
        also: the kinds of findings that are true beside it.
        cpu: whether the defect is one on a CPU, too.
    """
    return _remember


def clean(*, may: tuple[str, ...] = (), cpu: bool = True) -> Callable[[Program], Program]:
    """Declares a program without a defect, and what may be said of it all the same."""
    return _remember


def _remember(program: Program) -> Program:
    _programs[program.__name__] = program
    return program


def start() -> None:
    """Runs the program that the command line names."""
    torch.manual_seed(0)
    _programs[sys.argv[1]]()


def loop(count: int = STEPS) -> Iterator[int]:
    """Counts steps, at least so many, and notes the end of each in the stopwatch."""
    laps = Laps("step", count)
    number, end_s = 0, float("inf")
    try:
        while number < count or time.monotonic() < end_s:
            yield number
            laps.end()
            number += 1
            if number == count // 2:
                end_s = time.monotonic() + LEAST_S
    finally:
        laps.finish()


def either(large: Size, small: Size) -> Size:
    """The size for a GPU, or that for a CPU."""
    return small if SMALL else large
