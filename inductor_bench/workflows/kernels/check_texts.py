"""Makes the standalone files with which an edited kernel is checked: of the original, of the edit, and in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...devices.nvidia import NVIDIA
from ...devices.protocol import CPU
from ...errors import UsageError
from ...messages.edit_requests import BufferRoles
from ...records.base import Category
from ...records.code import KernelDefinition, Launch
from ...source.edit_rules import has_same_decorators
from ...source.edited import KernelEdit
from ...source.standalone_header import StandaloneHeader, describe_facts
from ...source.standalone_writer import (
    edit_standalone,
    list_argument_types,
    read_recorded_facts,
    read_source,
    write_file_text,
)
from ...source.stretch_texts import join_parts, split_joined_parts, write_launched_source
from ...source.widened import widen_launch, widen_source
from ...store import codec
from .edit_files import WRITE_ONE


def check_texts(edit: KernelEdit) -> list[tuple[str, str]]:
    """The standalone files of the original and of the edit, for each launch.

    Raises:
        InductorBenchError: the facts in the file are not as they were written.
    """
    facts = edit.facts
    try:
        return [_make_texts(edit, facts, launch) for launch in facts["launches"]]
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{edit.path} lacks what its check needs ({error})", f"write it anew: {WRITE_ONE}", "damaged"
        ) from None


def _make_texts(edit: KernelEdit, facts: Mapping[str, Any], encoded: Any) -> tuple[str, str]:
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
        return write_file_text(header, launch, recorded, kernel)

    if edit.calls:
        return _make_texts_of_calls(edit, header, launch)
    original = text(edit.original_source)
    if edit.language == "cpp":  # compiled with the same flags, and called as the original
        return original, edit_standalone(original, {}, edit.source)
    return original, text(edit.source, keeps_config=has_same_decorators(edit.source, edit.original_source))


def _make_texts_of_calls(edit: KernelEdit, header: StandaloneHeader, launch: Launch) -> tuple[str, str]:
    """The files of calls, and of the kernel in their place."""
    facts, replaces = edit.facts, edit.facts["replaces"]
    on_host = edit.language == "cpp"
    parts = [_make_part_text(header, one) for one in replaces["parts"]]
    device = (CPU if on_host else NVIDIA).type
    known = {**describe_facts(header), **facts["recorded"], "launch": codec.encode(launch), "device_type": device}
    source = edit.source if on_host else write_launched_source(edit.source, replaces)
    count = len(edit.arguments)
    mutated = tuple(place for place in launch.mutated if place < count)
    passed = replace(launch, arguments=launch.arguments[:count], mutated=mutated)
    kernel = KernelDefinition(edit.kernel, edit.kernel, header.kernel_id, header.category, edit.language, source, 1)
    recorded: Any = {**facts["recorded"], "launch": codec.encode(passed)}
    return join_parts(known, parts), write_file_text(header, passed, recorded, kernel)


def _make_part_text(header: StandaloneHeader, part: Mapping[str, Any]) -> str:
    """The file of one of several calls."""
    category, language = Category(part["category"]), part["language"]
    mine = replace(header, name=part["name"], kernel_id=part["kernel_id"], category=category, moved_bytes=None)
    launch = codec.decode(Launch, part["launch"])
    recorded: Any = {**part["recorded"], "launch": part["launch"]}
    names = part["kernel"], part["kernel"], part["kernel_id"]
    kernel = KernelDefinition(*names, category, language, part["source"], 1) if language else None
    return write_file_text(mine, launch, recorded, kernel, part["switches"])


def find_buffer_roles(edit: KernelEdit) -> BufferRoles:
    """What the kernel does with its arguments."""
    return BufferRoles(**{name: tuple(places) for name, places in edit.facts["roles"].items()})


def make_float64_texts(edit: KernelEdit, originals: Sequence[str]) -> list[str]:
    """The standalone files of a C++ kernel that computes the same in float64, for each launch; none if there is none.

    Args:
        edit: the edit.
        originals: the standalone files of the original.
    """
    if edit.language != "cpp":
        return []
    if edit.calls:
        return [text for text in map(_widen_calls, originals) if text]
    source = widen_source(edit.original_source)
    return [_widen_text(text, source) for text in originals] if source else []


def _widen_text(text: str, source: str) -> str:
    """The file of a C++ kernel with a source in float64; of a library call without one."""
    recorded = read_recorded_facts(text)
    changes = {"launch": widen_launch(recorded["launch"])}
    if source:
        changes["cpp"] = {**recorded["cpp"], "argument_types": list_argument_types(source)}
    return edit_standalone(text, changes, source)


def _widen_calls(text: str) -> str:
    """The file of several calls in float64; empty if one of them computes in a narrower type than float32."""
    recorded, parts = read_recorded_facts(text), []
    for part in split_joined_parts(text):
        is_cpp = bool(read_recorded_facts(part).get("cpp"))
        source = widen_source(read_source(part)) if is_cpp else ""
        if is_cpp and not source:
            return ""
        parts.append(_widen_text(part, source))
    return join_parts({**recorded, "launch": widen_launch(recorded["launch"])}, parts)
