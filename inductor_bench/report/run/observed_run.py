"""The result of ``inductor_bench.observe``, for code in the observed process."""

from __future__ import annotations

import fnmatch
import html
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ... import units
from ...errors import InductorBenchError
from ...records.run import Run
from ...records.summary import Summary, SummaryFailure, SummaryFinding
from ...store.folder import PAGE
from ..formats import View
from ..terminal import render_text
from .run_document import run_document
from .run_summary import run_summary
from .run_words import rank_kernels

COLUMNS = 100
"""The width of the printed screen."""

MOST_ROWS = 8
"""Parts and findings in a notebook's cell."""

UNDER_WAY = "the block that is observed has not come to its end"


@dataclass(frozen=True)
class KernelUse:
    """A kernel of a step, or the sum of all kernels that match a glob."""

    name: str  # the kernel's name, or the glob
    calls: float  # in a step; without a step in one iteration of each graph
    time_s: float  # seconds of these calls
    share: float | None  # of the step, 0 to 1; ``None`` if that is unknown


class KernelUses(Mapping[str, KernelUse]):
    """The kernels of a step by their names, those that take most time first.

    A glob stands for all kernels that match it.

    Args:
        uses: the kernels.
        is_known: whether anything was observed; if not, all figures are ``nan``.
    """

    def __init__(self, uses: Mapping[str, KernelUse], *, is_known: bool = True) -> None:
        self._uses, self._is_known = uses, is_known

    def __getitem__(self, glob: str) -> KernelUse:
        if glob in self._uses:
            return self._uses[glob]
        if not self._is_known:
            return KernelUse(glob, math.nan, math.nan, None)
        fitting = [use for name, use in self._uses.items() if fnmatch.fnmatchcase(name, glob)]
        if not fitting:
            raise KeyError(f"no kernel fits {glob!r}; there are {', '.join(self._uses) or 'none'}")
        return _sum(glob, fitting)

    def __iter__(self) -> Iterator[str]:
        return iter(self._uses)

    def __len__(self) -> int:
        return len(self._uses)

    def __repr__(self) -> str:
        return f"<KernelUses: {', '.join(self._uses) or 'none'}>"


class ObservedRun(os.PathLike[str]):
    """The observation of a block of this process by ``inductor_bench.observe``. It can be used as the path of its RUN.

    Until the end of the block only ``folder`` and ``is_measured`` are known. If nothing was observed, ``headline`` says
    why, and figures are ``nan``, so that a program that prints them runs on.

    Args:
        folder: the RUN; ``None`` if nothing is observed.
        reason: why nothing is observed; empty if it is.
        is_measured: returns whether the observation is complete.
    """

    def __init__(self, folder: Path | None, reason: str = "", is_measured: Callable[[], bool] = lambda: False) -> None:
        self.folder = folder.resolve() if folder is not None else None
        """The RUN folder; ``None`` if nothing is observed."""
        self._reason, self._ask = reason, is_measured
        self._record: Run | None = None

    def finish(self, record: Run) -> None:
        """Takes the record at the end of the block."""
        self._record, self._ask = record, lambda: True

    @property
    def is_measured(self) -> bool:
        """Whether the measurement is complete, so that the block may end; false if nothing is observed."""
        return self._ask()

    @property
    def record(self) -> Run:
        """The whole record, as ``record.json`` has it.

        Raises:
            InductorBenchError: the block has not ended, or nothing was observed.
        """
        if self._record is None:
            raise InductorBenchError(self._reason or UNDER_WAY, "" if self._reason else "read it after the block")
        return self._record

    @property
    def headline(self) -> str:
        """The first sentence of the screen; why nothing was measured, if that is so."""
        return self._reason or self._summary.headline

    @property
    def findings(self) -> tuple[SummaryFinding, ...]:
        """What was found, in the order of the screen."""
        return () if self._reason else self._summary.findings

    @property
    def failures(self) -> tuple[SummaryFailure, ...]:
        """The failures. The figures that could be measured are there nevertheless."""
        return () if self._reason else self._summary.failures

    @property
    def step_time_s(self) -> float:
        """The time of a step in seconds, without the profiler; ``nan`` if no step was timed.

        It is the median, or the mean if the steps are of two kinds or vary widely.
        """
        program = None if self._reason else self.record.program
        return math.nan if program is None else program.step_time_s

    @property
    def kernels(self) -> KernelUses:
        """The kernels of a step by name or glob: ``kernels["triton_red*"].time_s`` in seconds.

        If no kernel matches the key, raises a ``KeyError`` that names the kernels.
        """
        if self._reason:
            return KernelUses({}, is_known=False)
        uses: dict[str, KernelUse] = {}
        for entry in rank_kernels(self.record):
            if entry.cost.calls:
                name = entry.kernel.name
                use = KernelUse(name, entry.cost.calls, entry.cost.time_s, entry.share)
                uses[name] = _sum(name, [uses[name], use]) if name in uses else use
        return KernelUses(uses)

    @property
    def _summary(self) -> Summary:
        return run_summary(self.record, self._view)

    @property
    def _view(self) -> View:
        folder, here = self.folder, Path.cwd()
        if folder is not None and folder.is_relative_to(here):
            folder = folder.relative_to(here)
        return View(folder=folder)

    def __fspath__(self) -> str:
        if self.folder is None:
            raise InductorBenchError(f"there is no RUN: {self._reason}")
        return str(self.folder)

    def __str__(self) -> str:
        if self._record is None:
            return self._reason or UNDER_WAY
        return render_text(run_document(self._record, self._view), COLUMNS).rstrip("\n")

    def __repr__(self) -> str:
        said = self._reason or UNDER_WAY if self._record is None else self.headline
        return f"<ObservedRun {str(self.folder or '')!r}: {said}>"

    def _repr_html_(self) -> str:
        """The short form for a notebook: the first sentence, parts, findings with their commands, and the page."""
        if self._record is None:
            return f"<p>{html.escape(self._reason or UNDER_WAY)}</p>"
        said, page = self._summary, f"{self._view.folder}/{PAGE}"
        rows = "".join(
            f"<tr><td>{html.escape(part.label)}</td><td>{units.seconds(part.time_s)}</td><td>{part.share:.1%}</td>"
            f"<td>{html.escape(part.place)}</td></tr>"
            for part in said.parts[:MOST_ROWS]
        )
        head = "<tr><th>part of a step</th><th>time</th><th>share</th><th>where</th></tr>"
        failed = "".join(f"<li>{html.escape(one.text)}. {html.escape(one.hint)}</li>" for one in said.failures)
        found = "".join(map(_make_finding_item, said.findings[:MOST_ROWS]))
        blocks = [
            f"<p><b>{html.escape(said.headline)}</b></p>",
            f"<ul>{failed}</ul>" if failed else "",
            f"<table>{head}{rows}</table>" if rows else "",
            f"<ul>{found}</ul>" if found else "",
            f'<p><a href="{html.escape(page)}">{html.escape(page)}</a></p>',
        ]
        return "".join(blocks)


def _make_finding_item(finding: SummaryFinding) -> str:
    command = f"<br>Try: <code>{html.escape(finding.command)}</code>" if finding.command else ""
    return f"<li>{html.escape(finding.text)}{command}</li>"


def _sum(name: str, uses: list[KernelUse]) -> KernelUse:
    shares = [use.share for use in uses]
    share = None if None in shares else sum(one or 0.0 for one in shares)
    return KernelUse(name, sum(use.calls for use in uses), sum(use.time_s for use in uses), share)
