"""Everything that is drawn from a record into its RUN folder: tables, plots, one HTML page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from ...errors import InductorBenchError
from ...records.run import Run
from ...store.files import own_folder, write_bytes, write_text
from .csvs import write_tables

REPORT = "report.html"


def write_report(run: Run, folder: Path, *, plots: bool = True) -> list[Path]:
    """Writes ``tables/*.csv``, ``plots/*.png`` and ``report.run.html`` below ``folder``, each atomically.

    Plots of an earlier report that this record has no figures for are removed. One artefact that cannot be written
    does not keep the others from being tried.

    Args:
        run: the record.
        folder: the RUN folder.
        plots: whether to draw; without, the page holds none and earlier pictures are left as they are.

    Returns:
        What was written, in this order.

    Raises:
        InductorBenchError: something could not be written; raised after everything was tried, and says what.
    """
    from .html import render_html  # loads jinja2; a command that draws nothing should not pay for it

    written: list[Path] = []
    problems: list[InductorBenchError] = []

    def attempt(write: Callable[[], list[Path]]) -> None:
        try:
            written.extend(write())
        except InductorBenchError as problem:
            problems.append(problem)

    attempt(partial(write_tables, run, folder))
    pictures: dict[str, bytes] = {}
    if plots:
        from .plots import PLOTS, draw_plots  # loads matplotlib

        pictures = draw_plots(run)
        for name in PLOTS:
            attempt(partial(_put_plot, folder / "plots", f"{name}.png", pictures.get(name)))
    attempt(partial(_write_page, folder / REPORT, render_html(run, pictures)))
    if problems:
        others = f" ({len(problems) - 1} more could not be written)" if len(problems) > 1 else ""
        raise InductorBenchError(problems[0].message + others, problems[0].hint) from problems[0]
    return written


def _put_plot(folder: Path, name: str, data: bytes | None) -> list[Path]:
    if data is None:
        if not folder.is_symlink():
            _remove(folder / name)
        return []
    path = own_folder(folder) / name
    write_bytes(path, data)
    return [path]


def _write_page(path: Path, text: str) -> list[Path]:
    write_text(path, text)
    return [path]


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise InductorBenchError(f"cannot remove {path}: {error.strerror or error}") from error
