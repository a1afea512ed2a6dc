"""Writes files of edited kernels for a RUN, as ``kernel RUN#NAME --edit FILE`` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from inductor_bench.records.code import KernelDefinition
from inductor_bench.records.edit import CPP, TRITON
from inductor_bench.source.edited import KernelEdit, edit_text, read_passed_form
from inductor_bench.source.module_reader import read_module
from inductor_bench.store.folder import RunFolder


def kernels_of(run: RunFolder) -> list[KernelDefinition]:
    """The Triton and C++ kernels of a RUN, each once."""
    sources = [run.file(module.file).read_text() for module in run.load().modules if module.file]
    found = [one for text in sources for one in read_module(text).kernels if one.language in (CPP, TRITON)]
    return list({one.kernel_id: one for one in found}.values())


def kernel_with(run: RunFolder, part: str) -> KernelDefinition:
    """The first kernel of a RUN whose source holds a text."""
    return next(one for one in kernels_of(run) if part in one.source)


def write_edit(
    run: RunFolder, kernel: KernelDefinition, path: Path, change: Callable[[str], str] = str, **facts: str
) -> KernelEdit:
    """Writes the file of a kernel.

    Args:
        run: the RUN.
        kernel: its kernel.
        path: the file.
        change: makes the edited source of the original one.
        facts: other values of the edit, such as ``torch``.
    """
    original = read_passed_form(kernel.language, kernel.source)
    edited = change(original)
    assert change is str or edited != original
    environment, on_gpu = run.load().environment, kernel.language == TRITON
    known: dict[str, Any] = {
        "torch": environment.versions.torch,
        "triton": environment.versions.triton if on_gpu else None,
        "device": (environment.device.accelerator if on_gpu else environment.host.cpu) or "",
        **facts,
    }
    edit = KernelEdit(path, kernel.name, kernel.language, edited, "", original, **known)
    path.write_text(edit_text(edit, f"The kernel {kernel.name}."))
    return edit
