"""The table of the files in a RUN folder, and the function that writes the report's files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...errors import InductorBenchError
from ...records.program import Timeline
from ...records.run import Run
from ...store.files import own_folder, write_bytes, write_text
from ...store.folder import PAGE, RECORD, RunFolder
from ...store.run_files import read_kernel_files, read_timeline
from .csvs import write_tables

if TYPE_CHECKING:
    from .plots import Drawn

Step = Callable[[], list[Path]]
"""A function that writes files and returns their paths. If one step fails, the others still run."""


@dataclass(frozen=True)
class Drawing:
    """A run in its folder, and its plots by name. ``plots`` says whether to draw them."""

    run: Run
    plots: bool
    folder: Path

    @cached_property
    def timeline(self) -> Timeline | None:
        with contextlib.suppress(InductorBenchError):  # a damaged timeline costs its own plot only
            return read_timeline(RunFolder(self.folder))
        return None

    @cached_property
    def pictures(self) -> dict[str, Drawn]:
        if not self.plots:
            return {}
        from .plots import draw_plots  # loads matplotlib

        return draw_plots(self.run, self.timeline)

    @property
    def page(self) -> str:
        """The HTML page."""
        from .page import run_html  # loads jinja2, which only this needs

        places = (kernel.file for module in self.run.modules for kernel in module.kernels if kernel.file)
        files = read_kernel_files(RunFolder(self.folder), places)
        plots = {name: drawn.svg for name, drawn in self.pictures.items() if drawn.svg is not None}
        return run_html(self.run, plots, self.timeline, files)


def _tables(drawing: Drawing, folder: Path) -> Iterator[Step]:
    yield partial(write_tables, drawing.run, folder)


def _plots(drawing: Drawing, folder: Path) -> Iterator[Step]:
    if drawing.plots:
        from .plots import PLOTS

        pictures = drawing.pictures
        for name in PLOTS:
            drawn = pictures.get(name)
            yield partial(_put_plot, folder / "plots", f"{name}.png", drawn.png if drawn else None)


def _page(drawing: Drawing, folder: Path) -> Iterator[Step]:
    yield partial(_write_page, folder / PAGE, drawing.page)


class RunFiles(NamedTuple):
    """Files of a RUN folder.

    Attributes:
        pattern: path or pattern relative to the folder.
        steps: the steps that write the files; ``None`` where other code writes them.
    """

    pattern: str
    steps: Callable[[Drawing, Path], Iterator[Step]] | None = None


RUN_FILES = (
    RunFiles(RECORD),
    RunFiles("kernels/*.py"),
    RunFiles("tables/*.csv", _tables),
    RunFiles("plots/*.png", _plots),
    RunFiles(PAGE, _page),
    RunFiles("modules/*.py"),
    RunFiles("traces/*.trace.json*"),
    RunFiles("logs/*"),
)
"""The files in the order of writing. ``Written`` on the console lists single files first."""


def write_report(run: Run, folder: Path, *, plots: bool = True) -> list[Path]:
    """Writes the files of :data:`RUN_FILES` that belong to the report below ``folder``, each atomically.

    Plots of an earlier report are removed if this record has no figures for them.

    Args:
        run: the record.
        folder: the RUN folder.
        plots: whether to draw; if false, the page holds no plots and the plots of an earlier report stay.

    Returns:
        The written paths, in this order.

    Raises:
        InductorBenchError: some files could not be written. It names them, and is raised after all steps have run.
    """
    drawing = Drawing(run, plots, folder)
    written: list[Path] = []
    problems: list[InductorBenchError] = []
    for files in RUN_FILES:
        for step in files.steps(drawing, folder) if files.steps is not None else ():
            try:
                written.extend(step())
            except InductorBenchError as problem:
                problems.append(problem)
    if problems:
        others = f" ({len(problems) - 1} more could not be written)" if len(problems) > 1 else ""
        raise type(problems[0])(problems[0].message + others, problems[0].hint) from problems[0]
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
    except NotADirectoryError:
        return  # a file is in the place of the folder, so the plot is not there
    except OSError as error:
        raise InductorBenchError(f"cannot remove {path}: {error.strerror or error}") from error
