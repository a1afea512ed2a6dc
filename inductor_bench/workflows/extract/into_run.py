"""Extracts every kernel of a RUN into the RUN's own folder ``kernels``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...records.code.extraction import ExtractedKernel
from ...records.module import ModuleRecord
from ...records.run import Failure, Run
from ...store.files import own_folder
from ...store.folder import RunFolder
from ..options import DRAWN
from .files import write_all
from .from_run import RunInMaking, modules_of_run
from .selection import Selection, choose_kernels


@dataclass(frozen=True)
class RunExtraction:
    """The extracted kernels of a RUN.

    Attributes:
        kernels: the rows of the kernels.
        files: the name of the file of each kernel of the record, by id. A library kernel has the file of its most
            expensive call.
        failures: modules that cannot be read, and files that cannot be written.
    """

    kernels: tuple[ExtractedKernel, ...]
    files: dict[str, str]
    failures: tuple[Failure, ...]

    def named_in(self, run: Run) -> Run:
        """The record with the path of each kernel's file."""
        return replace(run, modules=tuple(map(self._named_in_module, run.modules)))

    def _named_in_module(self, module: ModuleRecord) -> ModuleRecord:
        files = {kernel_id: f"kernels/{file}" for kernel_id, file in self.files.items()}
        kernels = tuple(replace(kernel, file=files.get(kernel.kernel_id, kernel.file)) for kernel in module.kernels)
        return replace(module, kernels=kernels)


def extract_run(folder: RunFolder, values: str = DRAWN, making: RunInMaking | None = None) -> RunExtraction:
    """Writes every kernel of a RUN into its ``kernels`` folder. Edited files stay; other files are replaced.

    Args:
        folder: the RUN.
        values: ``recorded`` for files with the values that the kernels read.
        making: the run, where this process is measuring it; see :func:`modules_of_run`.

    Raises:
        InductorBenchError: the record cannot be read.
    """
    modules, failures = modules_of_run(folder, values, making)
    chosen = choose_kernels(modules, Selection())
    rows, lost = write_all(chosen, own_folder(folder.kernels))
    files: dict[str, str] = {}
    of_calls: dict[tuple[str, int], str] = {}
    for candidate, row in zip(chosen, rows, strict=True):
        if row.file is not None:
            files[row.kernel_id] = row.file
            of_calls.update({(row.module, site): row.file for site in candidate.sites})
    for module in modules:
        for kernel_id, times in module.library_calls.items():
            written = [call for call in times if (module.label, call) in of_calls]
            if written:
                files.setdefault(kernel_id, of_calls[module.label, max(written, key=lambda call: times[call])])
    return RunExtraction(rows, files, (*failures, *lost))
