"""The ways in which one kernel can be changed, whatever it is written in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...messages.kernels import Change, Numbered
from ...messages.request import Request
from ...records.tuning import Config
from ..methods import Method
from ..search import Space


class Variants(Space, Protocol):
    """The ways in which one kernel can be changed."""

    @property
    def device(self) -> str:
        """The type of the device that it runs on."""

    @property
    def axes(self) -> Mapping[str, tuple[Any, ...]]:
        """The values of each field that can be varied."""

    def change(self, config: Config) -> Change:
        """What a worker needs to make it; :class:`InductorBenchError` where it cannot be."""

    def building(self, config: Config) -> Numbered[Any] | None:
        """What a worker that only compiles is asked for it; ``None`` where there is nothing to compile."""

    def is_built(self, config: Config) -> bool:
        """Whether it was compiled when it was listed, so that it can be timed after the budget."""

    def opening(self, number: int) -> Sequence[Request[Any]]:
        """What a worker is asked after it has loaded the file under this number, and before it varies the kernel."""

    def why_unsaved(self, config: Config) -> str:
        """Empty where a file can say that it is to be run in this configuration."""

    def notes(self, method: Method) -> list[str]:
        """What there was to choose from."""
