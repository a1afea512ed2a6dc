"""Makes the standalone files with which an edited kernel is checked: of the original, of the edit, and in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import UsageError
from ...messages.edit_requests import BufferRoles
from ...records.base import Category
from ...records.code import KernelDefinition, Launch
from ...source.edit_rules import has_same_decorators
from ...source.edited import KernelEdit
from ...source.standalone_header import StandaloneHeader
from ...source.standalone_writer import argument_types, edit_standalone, file_text, recorded_facts
from ...source.widened import widened_launch, widened_source
from ...store import codec
from .edit_files import WRITE_ONE


def check_texts(edit: KernelEdit) -> list[tuple[str, str]]:
    """The standalone files of the original and of the edit, for each launch.

    Raises:
        InductorBenchError: the facts in the file are not as they were written.
    """
    facts = edit.facts
    try:
        return [_texts(edit, facts, launch) for launch in facts["launches"]]
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{edit.path} lacks what its check needs ({error})", f"write it anew: {WRITE_ONE}", "damaged"
        ) from None


def _texts(edit: KernelEdit, facts: Mapping[str, Any], encoded: Any) -> tuple[str, str]:
    launch = codec.decode(Launch, encoded)
    category = Category(facts["category"])
    header = StandaloneHeader(
        name=edit.kernel,
        kernel_id=facts["kernel_id"],
        category=category,
        torch_version=edit.torch,
        triton_version=edit.triton,
        device_name=edit.device or None,
        calls=facts.get("calls"),
        time_s=facts.get("time_s"),
        moved_bytes=facts.get("moved_bytes") if encoded == facts["launches"][0] else None,
    )

    def text(source: str, *, keeps_config: bool = True) -> str:
        recorded: Any = {**facts["recorded"], "launch": encoded}
        if not keeps_config:  # as in the program, its new hints decide
            recorded.pop("config", None)
        kernel = KernelDefinition(edit.kernel, edit.kernel, facts["kernel_id"], category, edit.language, source, 1)
        return file_text(header, launch, recorded, kernel)

    original = text(edit.original_source)
    if edit.language == "cpp":  # compiled with the same flags, and called as the original
        return original, edit_standalone(original, {}, edit.source)
    return original, text(edit.source, keeps_config=has_same_decorators(edit.source, edit.original_source))


def roles_of(edit: KernelEdit) -> BufferRoles:
    """What the kernel does with its arguments."""
    return BufferRoles(**{name: tuple(places) for name, places in edit.facts["roles"].items()})


def exact_texts(edit: KernelEdit, originals: Sequence[str]) -> list[str]:
    """The standalone files of a C++ kernel that computes the same in float64, for each launch; none if there is none.

    Args:
        edit: the edit.
        originals: the standalone files of the original.
    """
    source = widened_source(edit.original_source) if edit.language == "cpp" else ""
    if not source:
        return []
    types = argument_types(source)
    texts = []
    for text in originals:
        recorded = recorded_facts(text)
        needs = {**recorded["cpp"], "argument_types": types}
        texts.append(edit_standalone(text, {"launch": widened_launch(recorded["launch"]), "cpp": needs}, source))
    return texts
