"""Makes the text of a library call's standalone file: the operator with its exact arguments."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ...devices.cpu import CPU
from ...devices.nvidia.device import NVIDIA
from ...devices.table import device_of
from ...records.code.launch import Launch
from .header import StandaloneHeader, UnwritableKernelError, recorded_text, write_header
from .paste import framed_harness

_OVERLOAD = re.compile(r"\w+\.\w+\.\w+")
_COLLECTIVES = ("_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "c10d", "symm_mem", "_dtensor")


class _Timing(NamedTuple):
    """The files of the harness that time a call on a device, and their function."""

    files: tuple[str, ...]
    measure: str


_TIMINGS = {
    CPU.type: _Timing(("timing_cpu.py",), "measure_cpu"),
    NVIDIA.type: _Timing(("timing_cuda.py", "launch_gap.py"), "measure_cuda"),
}
_TAIL = '''
FOLDER = os.path.dirname(os.path.abspath(__file__))
OPERATOR = Operator(RECORDED, FOLDER)


def make_arguments(seed: int = 0) -> Arguments:
    """The recorded arguments; random values from ``seed``."""
    return OPERATOR.make_arguments(seed)


def call(arguments: Arguments) -> Any:
    """Calls the operator once."""
    return OPERATOR.call(arguments)


def outputs(arguments: Arguments) -> list[torch.Tensor]:
    """The tensors that the last call with these arguments wrote and returned."""
    return OPERATOR.outputs(arguments)


def check(seed: int = 0) -> tuple[bool | None, str]:
    """Whether the outputs are right, ``None`` if there is nothing to compare them with; and why."""
    return check_operator(OPERATOR, seed)


if __name__ == "__main__":
    sys.exit(run_operator(OPERATOR, {measure}, __doc__.splitlines()[0]))
'''


def operator_text(header: StandaloneHeader, launch: Launch, facts: dict[str, Any]) -> str:
    """The whole text of the standalone file of a library call.

    Args:
        header: the description of the call.
        launch: the recorded call.
        facts: ``RECORDED`` so far, with the encoded launch. ``threads`` is the number of CPU threads of the capture,
            ``flops`` the counted FLOPs, where known; on a GPU the ``SWITCHES`` of the harness have the program's
            values.

    Raises:
        UnwritableKernelError: the call cannot be repeated from a file, for example because it needs a process group.
    """
    name = launch.operator or ""
    namespace = name.partition(".")[0]
    if namespace in _COLLECTIVES:
        raise UnwritableKernelError("a collective needs the processes of its group")
    if namespace == "higher_order":
        raise UnwritableKernelError("a higher-order operator takes graphs as arguments")
    if not _OVERLOAD.fullmatch(name):
        raise UnwritableKernelError(f"{name or 'the call'} is no overload of an operator")
    device = device_type(launch)
    timing = _TIMINGS[device]
    files = ("arguments.py", "comparison.py", "command.py", "timing.py", *timing.files, "switches.py")
    return "\n".join(
        [
            write_header(header, launch),
            "from __future__ import annotations\n",
            recorded_text({**facts, "device_type": device}),
            framed_harness(*files, "operator_main.py"),
            _TAIL.replace("{measure}", timing.measure),
        ]
    )


def device_type(launch: Launch) -> str:
    """The device type of a call, from its tensors and its device arguments.

    Raises:
        UnwritableKernelError: the call runs on another device.
    """
    named = (item.text or "" for item in (*launch.arguments, *launch.keywords.values()) if item.kind == "device")
    devices = {name.partition(":")[0] for name in (*(storage.device for storage in launch.storages), *named)}
    others = devices - _TIMINGS.keys()
    if others:
        raise UnwritableKernelError(f"calls on {min(others)} have no standalone form")
    return next((device for device in devices if not device_of(device).runs_on_host), CPU.type)
