"""Writes files of edited kernels for a RUN, as ``kernel RUN#NAME --edit FILE`` does."""

from __future__ import annotations

from pathlib import Path

from inductor_bench.source.edited import KernelEdit, edit_text, passed_form
from inductor_bench.source.module_reader import read_module
from inductor_bench.store.folder import RunFolder


def write_edit(run: RunFolder, part: str, path: Path, *changes: tuple[str, str], **facts: str) -> KernelEdit:
    """Writes the file of the first C++ or Triton kernel whose source holds ``part``.

    Args:
        run: the RUN.
        part: of the source.
        path: the file.
        changes: texts of the source, each with what takes its place.
        facts: other values of the edit, such as ``torch``.
    """
    record = run.load()
    sources = [run.file(module.file).read_text() for module in record.modules if module.file]
    kernels = [one for text in sources for one in read_module(text).kernels if one.language in ("cpp", "triton")]
    kernel = next(one for one in kernels if part in one.source)
    original = passed_form(kernel.language, kernel.source)
    edited = original
    for old, new in changes:
        assert old in edited
        edited = edited.replace(old, new)
    versions, on_gpu = record.environment.versions, kernel.language == "triton"
    known = {
        "torch": versions.torch,
        "triton": versions.triton if on_gpu else None,
        "device": (record.environment.device.accelerator if on_gpu else record.environment.host.cpu) or "",
        **facts,
    }
    edit = KernelEdit(path, kernel.name, kernel.language, edited, "", original, **known)  # type: ignore[arg-type]
    path.write_text(edit_text(edit, f"The kernel {kernel.name}."))
    return edit
