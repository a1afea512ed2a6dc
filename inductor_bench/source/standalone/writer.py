"""Makes the name and the text of a kernel's standalone file, for any language."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

from ...records.code.launch import Argument, Launch
from ...records.code.source import KernelDefinition
from .cpp import cpp_text
from .header import StandaloneHeader, UnwritableKernelError, described_facts, plain
from .operator import operator_text
from .recorded import RecordedCall
from .triton import triton_text

NO_SWITCHES: Mapping[str, bool] = MappingProxyType({})
_LONGEST_NAME = 150
_NUMBERED = re.compile(r"[A-Za-z]\w*_\d+", re.ASCII)


def file_text(
    header: StandaloneHeader,
    launch: Launch,
    recorded: RecordedCall,
    kernel: KernelDefinition | None = None,
    switches: Mapping[str, bool] = NO_SWITCHES,
) -> str:
    """The whole text of one standalone file.

    Args:
        header: the description of the kernel.
        launch: the recorded call.
        recorded: the facts of the call for the harness, with its launch.
        kernel: the definition; ``None`` for a library call.
        switches: the settings of torch for a library call.

    Raises:
        UnwritableKernelError: the kernel cannot have a standalone file.
    """
    facts = {**described_facts(header), **recorded, **switches}
    for argument in (*launch.arguments, *launch.keywords.values()):
        refuse_opaque(argument)
    if kernel is None:
        return operator_text(header, launch, facts)
    if kernel.language == "triton":
        return triton_text(header, kernel, launch, facts)
    if kernel.language == "cpp":
        return cpp_text(header, kernel, launch, facts)
    raise UnwritableKernelError(f"kernels in {kernel.language} have no standalone form")


def refuse_opaque(argument: Argument) -> None:
    """Checks that an argument can be made again.

    Raises:
        UnwritableKernelError: it cannot.
    """
    if argument.kind == "opaque":
        raise UnwritableKernelError(f"an argument cannot be made again: {plain(argument.text or 'unknown')[:80]}")
    for item in argument.items:
        refuse_opaque(item)


def file_name(name: str, kernel_id: str, taken: Collection[str] = ()) -> str:
    """The file name of a kernel: letters, digits, ``_`` and ``-``, at most 160 bytes, ending in .py.

    Inductor's names, which end in a number, are kept. Any other name gets the first digits of the id, because a file
    ``json.py`` would hide the library from the files beside it; so does a name that is ``taken`` in any case.
    """
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", name).lstrip("-")[:_LONGEST_NAME] or "kernel"
    used = {each.lower() for each in taken}
    if safe != name or not _NUMBERED.fullmatch(safe) or f"{safe}.py".lower() in used:
        safe = f"{safe[: _LONGEST_NAME - 9]}_{re.sub(r'[^0-9a-zA-Z]', '', kernel_id)[:8]}"
    candidate, number = f"{safe}.py", 2
    while candidate.lower() in used:
        candidate, number = f"{safe}_{number}.py", number + 1
    return candidate
