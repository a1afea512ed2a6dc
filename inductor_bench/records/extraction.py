"""The rows of an extraction: one for each kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .base import FileName
from .category import Category
from .tuning import Config, TriedCandidate


@dataclass(frozen=True)
class ExtractedKernel:
    """A kernel, and its file or the reason why it has none.

    Attributes:
        name: the kernel's name; for a library call the operator and a number.
        kernel_id: 16 hexadecimal digits, the same for the same kernel in other models and runs.
        category: the category of the kernel.
        module: the label of its module, such as ``forward``.
        calls: the number of its launches in one run of the module.
        time_s: its time in the model in seconds per iteration, where it was measured.
        file: the name of the standalone file; ``None`` where the kernel can have none.
        reason: the reason why there is no file; empty where there is one.
        values: the name of the safetensors file of its recorded values, where there is one.
        note: the values that are drawn although recorded ones were requested; empty where there are none.
        sha256: the hash of the file as it was written; ``None`` in rows of older versions.
    """

    name: str
    kernel_id: str
    category: Category
    module: str
    calls: int
    time_s: float | None = None
    file: FileName | None = None
    reason: str = ""
    values: FileName | None = None
    note: str = ""
    sha256: str | None = None


@dataclass(frozen=True)
class KernelFile(ExtractedKernel):
    """A row of :func:`inductor_bench.extract`.

    Attributes:
        path: the absolute path of ``file``; ``None`` where the kernel can have none.
        values_path: the absolute path of ``values``, where there is one.
    """

    path: Path | None = None
    values_path: Path | None = None


def locate_file(row: ExtractedKernel, folder: Path) -> KernelFile:
    """The row with the paths of its files in ``folder``."""
    return KernelFile(
        **vars(row),
        path=folder / row.file if row.file else None,
        values_path=folder / row.values if row.values else None,
    )


# Candidates of standalone Triton files, compiled for a GPU that this machine may lack, and not timed.


@dataclass(frozen=True)
class CompiledCandidates:
    """The compiled candidates of one kernel.

    Attributes:
        method: the way of choosing candidates.
        candidates: with their registers, spills and shared memory.
        default_configs: the number of configurations that Inductor tries without max-autotune.
        max_configs: the number of configurations that Inductor tries with max-autotune.
        same_candidate_set: whether both sets are equal, so that max-autotune cannot be faster.
        limits: the parts of the kernel that cannot be varied, with the reason.
        time_s: duration of the compilation in seconds.
    """

    method: str
    candidates: tuple[TriedCandidate, ...]
    default_configs: int
    max_configs: int
    same_candidate_set: bool
    limits: str = ""
    time_s: float = 0.0


@dataclass(frozen=True)
class CrossCompiledKernel:
    """One standalone file, compiled for another device.

    Attributes:
        name: the kernel's name.
        kernel_id: a hash of its content.
        file: the path of the standalone file.
        category: the category.
        target: the architecture for which it was compiled, for example ``sm_90``.
        config: the model's configuration, or else the first one.
        tuning: the compiled candidates.
    """

    name: str
    kernel_id: str
    file: str
    category: str
    target: str
    config: Config
    tuning: CompiledCandidates
