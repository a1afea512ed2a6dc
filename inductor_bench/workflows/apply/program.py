"""Starts a program whose processes put pins into their kernels, and reads what they say."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import InductorBenchError
from ...launch.worker import expose_package, join_paths
from ...messages.pins import PINNED, PinnedProcess, Pins, PinState
from ...store.files import read_json, write_json
from ...store.formats import codec
from ..modules.environment import SITE

STATES = ".pins.json"
PINS_FILE = "pins.json"


PINS_VARIABLE = "INDUCTOR_BENCH_PINS"
"""Names the file with the pins of a process; see ``worker.capture.variables``."""


def pinned_environment(pins: Pins, work: Path, environment: Mapping[str, str], observe: str) -> dict[str, str]:
    """The environment of a program with pins.

    Args:
        pins: the pins, which are written into ``work``.
        work: the folder for the pins and for what the processes say.
        environment: the environment of the program without them.
        observe: what the processes observe beside; see ``worker.capture.variables``.
    """
    work.mkdir(parents=True, exist_ok=True)
    write_json(work / PINS_FILE, codec.encode(pins))
    return {
        **environment,
        "INDUCTOR_BENCH_CAPTURE": str(work.resolve()),
        PINS_VARIABLE: str((work / PINS_FILE).resolve()),
        "INDUCTOR_BENCH_OBSERVE": observe,
        "PYTHONPATH": join_paths(str(SITE), join_paths(expose_package(work), environment.get("PYTHONPATH"))),
    }


def read_states(work: Path) -> tuple[PinnedProcess, ...]:
    """What the processes of a program say of their pins.

    Raises:
        InductorBenchError: a file is damaged.
    """
    files = (file for file in sorted(work.glob(f"*{STATES}")) if file.name.removesuffix(STATES).isdigit())
    return tuple(codec.decode(PinnedProcess, read_json(file)) for file in files)


def require_taken(processes: Sequence[PinnedProcess]) -> None:
    """Checks that no process refused all pins.

    Raises:
        InductorBenchError: one did; the message says why.
    """
    refusal = next((process.refusal for process in processes if process.refusal), "")
    if refusal:
        raise InductorBenchError(f"nothing was pinned: {refusal}", "break the program down and retune it with these")


def join_states(processes: Sequence[PinnedProcess]) -> dict[str, PinState]:
    """The state of each pin over all processes, by the kernel's id: that of the kernel which is not pinned, if any."""
    found: dict[str, PinState] = {}
    for state in (state for process in processes for state in process.states):
        known = found.get(state.kernel_id)
        if known is None or (known.state == PINNED and state.state != PINNED):
            found[state.kernel_id] = state
    return found


def users_environment() -> dict[str, str]:
    """The environment in which the user typed the command."""
    return dict(os.environ)
