"""What a compiled module says about itself as a whole: its role, its number, whether its sizes are symbols.

Text only, no parsing, so that it is cheap for a file of megabytes; everything about kernels and calls is elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...devices.cpu import CPU
from ...devices.table import device_of

# cpp_wrapper modules have no such line; with compile-time autotuning a docstring stands before it.
_AOT_ID = re.compile(r"^# AOT ID: .*?(?<!\d)(\d{1,9})_(forward|backward|inference)\b", re.MULTILINE)
_SYMBOL = r"^[ \t]+(?:int64_t |auto )?{}\d+ = "
_BACKED = re.compile(_SYMBOL.format("s"), re.MULTILINE)
_UNBACKED = re.compile(_SYMBOL.format("z?u"), re.MULTILINE)
# A pattern that begins with plain letters is searched for many times faster than one that begins with \b.
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
    """The module as a whole. ``role`` is ``forward``, ``backward``, ``inference`` or ``unknown``."""

    role: str
    graph_number: int | None
    device: str
    dynamic: bool
    unbacked: bool
    frozen: bool
    cpp_wrapper: bool
    has_harness: bool


def read_header(text: str) -> ModuleHeader:
    """Reads what the text of a compiled module says about the module as a whole. Never fails."""
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
    # A module for a GPU may hold kernels for the CPU too, never the other way round.
    for pattern in _DEVICE:
        devices = {match.group(1) for match in pattern.finditer(text) if not device_of(match.group(1)).runs_on_host}
        if devices:
            return min(devices)
    return CPU.type
