"""Reads the facts about a compiled module as a whole: its role, its number, whether its sizes are symbols.

It searches the text without parsing it, which is cheap for a file of megabytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...devices.cpu import CPU
from ...devices.table import device_of

# cpp_wrapper modules have no such line. With compile-time autotuning a docstring precedes it.
_AOT_ID = re.compile(r"^# AOT ID: .*?(?<!\d)(\d{1,9})_(forward|backward|inference)\b", re.MULTILINE)
_SYMBOL = r"^[ \t]+(?:int64_t |auto )?{}\d+ = "
_BACKED = re.compile(_SYMBOL.format("s"), re.MULTILINE)
_UNBACKED = re.compile(_SYMBOL.format("z?u"), re.MULTILINE)
# A search for a pattern that begins with plain letters is many times faster than one that begins with \b.
_FROZEN = re.compile(r"_frozen_param\d+\b")
_DEVICE = (
    re.compile(r"device_str='(\w+)'"),
    re.compile(r'^ +device_type="(\w+)"', re.MULTILINE),
    re.compile(r"with torch\.(cuda|xpu)\._DeviceGuard\("),
    re.compile(r"= empty_strided_(cuda|xpu|mtia)\("),
    re.compile(r"rand_strided\(.{0,2000}device='(cuda|xpu|mps|mtia)"),
)


@dataclass(frozen=True)
class ModuleHeader:
    """The facts about a module as a whole; see ``records.code.source.ModuleSource`` for the fields."""

    role: str
    graph_number: int | None
    device: str
    dynamic: bool
    unbacked: bool
    frozen: bool
    cpp_wrapper: bool
    has_harness: bool


def read_header(text: str) -> ModuleHeader:
    """The facts about the module as a whole. Any text has them."""
    aot = _AOT_ID.search(text)
    unbacked = _UNBACKED.search(text) is not None
    return ModuleHeader(
        role=aot.group(2) if aot else "unknown",
        graph_number=int(aot.group(1)) if aot else None,
        device=_device(text),
        dynamic=unbacked or _BACKED.search(text) is not None,
        unbacked=unbacked,
        frozen=_FROZEN.search(text) is not None,
        cpp_wrapper="CppWrapperCodeCache" in text,
        has_harness="compiled_module_main(" in text,
    )


def _device(text: str) -> str:
    # A module for a GPU may hold kernels for the CPU, but not vice versa.
    for pattern in _DEVICE:
        devices = {match.group(1) for match in pattern.finditer(text) if not device_of(match.group(1)).runs_on_host}
        if devices:
            return min(devices)
    return CPU.type
