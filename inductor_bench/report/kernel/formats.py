"""The tables of formats of kernels that were timed, compared, or compiled for another GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ...devices.nvidia import Architecture
from ...records.base import Failure
from ...records.comparison import TimedPair
from ...records.extraction import CrossCompiledKernel
from ...records.run import Environment
from ...records.tuning import MeasuredKernel
from ..renderer import Format, Formats, View, json_row
from ..text.layout import Line
from .comparison import comparison_lines
from .compiled import compiled_lines
from .console import measured_lines


class Measured(Protocol):
    """The timed kernels of one command."""

    @property
    def kernels(self) -> Sequence[MeasuredKernel]: ...
    @property
    def failures(self) -> Sequence[Failure]: ...
    @property
    def environment(self) -> Environment: ...
    @property
    def saved(self) -> Sequence[Path]: ...
    @property
    def retune_s(self) -> float: ...


class Compiled(Protocol):
    """The kernels of one command that were compiled for another GPU."""

    @property
    def kernels(self) -> Sequence[CrossCompiledKernel]: ...
    @property
    def failures(self) -> Sequence[Failure]: ...
    @property
    def others(self) -> int: ...
    @property
    def target(self) -> Architecture: ...
    @property
    def torch(self) -> str: ...
    @property
    def triton(self) -> str: ...


def _measured(seen: Measured, view: View) -> Iterator[Line]:
    return measured_lines(seen.kernels, seen.failures, seen.environment, view.width, seen.saved, seen.retune_s)


def _compared(seen: TimedPair, view: View) -> Iterator[Line]:
    return comparison_lines(seen, view.width)


def _compiled(seen: Compiled, view: View) -> Iterator[Line]:
    versions = (f"torch {seen.torch}", f"triton {seen.triton}")
    return compiled_lines(seen.kernels, seen.failures, seen.others, seen.target, versions, view.width)


MEASURED: Formats[Measured] = Formats((Format("table", _measured), json_row()))
COMPARED: Formats[TimedPair] = Formats((Format("table", _compared), json_row()))
COMPILED: Formats[Compiled] = Formats((Format("table", _compiled), json_row()))
"""The three tables have the same format names, because ``kernel`` has one option ``--format`` for all of them."""
