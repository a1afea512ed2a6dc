"""The default description of an accelerator: the host launches its kernels, and it may idle between them.

A record of a device type without a file in this folder, such as ``xpu``, uses this description.
"""

from __future__ import annotations

import re

from ..records.run import Environment
from .protocol import Words


class Accelerator:
    """An accelerator with default properties.

    Args:
        type: torch's name of the device type.
        family: the name of such devices in texts; ``type`` if empty.
    """

    runs_on_host = False
    generates_triton = True
    suggests_tuning = True
    has_launch_floor = True
    has_tf32 = False
    has_library_switches = False
    has_hardware_counters = False
    alignment_bytes = 256

    def __init__(self, type: str, family: str = "") -> None:
        self.type = type
        self.words = Words(
            family=family or type,
            calls="launches",
            outside="idle",
            memory="DRAM",
            cache="L2",
            whole_cache="L2",
            generated="generated kernels",
            generated_at_peaks="generated kernels at their peaks",
            library="library kernels",
            bound="GPU-bound: ",
        )

    def name_in(self, environment: Environment) -> str | None:
        return environment.device.accelerator

    def peaks_depend_on(self, environment: Environment) -> list[str]:
        units = f"{environment.device.multiprocessors} units" if environment.device.multiprocessors else ""
        driver = re.split(r"[.+]", environment.device.driver or "unknown")[0]
        return [environment.device.accelerator or self.type, units, f"driver {driver}"]

    def theoretical_occupancy(
        self, environment: Environment, warps: int | None, registers: int | None, shared_memory_bytes: int | None
    ) -> float | None:
        return None
