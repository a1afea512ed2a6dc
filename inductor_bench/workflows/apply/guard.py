"""Refuses the configurations of another torch, Triton or device: what is fast there may be slow here."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ...errors import InductorBenchError
from ...launch.diagnosis import last_error, remedy
from ...launch.session import WorkerLostError, WorkerSession
from ...launch.worker import worker_environment
from ...messages.machine import TellEnvironment
from ...messages.pins import Pins
from ...records.run import Environment

LIMIT_S = 300.0
"""Seconds for a worker to import torch and to describe the machine."""


def read_environment(python: str) -> Environment:
    """The machine and the versions as an interpreter sees them.

    Raises:
        InductorBenchError: the interpreter has no working torch.
    """
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as temporary:
        folder = Path(temporary)
        environment = worker_environment(folder, dict(os.environ))
        session = WorkerSession(python, folder, environment, log=folder / "environment.log", on_line=lambda _: None)
        try:
            return session.ask(TellEnvironment(), LIMIT_S)
        except WorkerLostError as lost:
            said = last_error(lost.tail)
            raise InductorBenchError(said or f"the worker {lost.message}", remedy(said)) from None
        finally:
            session.close()


def require_same(pins: Pins, measured: Environment, here: Environment) -> None:
    """Checks that the pins were found with the versions and on the device that are here.

    Raises:
        InductorBenchError: they were not; the message names each difference.
    """
    compared = [("torch", pins.torch, here.versions.torch)]
    if pins.need_gpu:
        compared += [
            ("Triton", pins.triton or "", here.versions.triton or ""),
            ("GPU", measured.device.accelerator or "", here.device.accelerator or ""),
        ]
    if pins.need_processor:
        compared += [
            ("processor", measured.host.cpu, here.host.cpu),
            ("vector width", measured.host.vector_isa or "", here.host.vector_isa or ""),
        ]
    _refuse_different(compared)


def require_same_gpu(pins: Pins, measured: Environment, name: str) -> None:
    """Checks that the pins for a GPU were found on one of this name.

    Raises:
        InductorBenchError: they were not.
    """
    if pins.need_gpu:
        _refuse_different([("GPU", measured.device.accelerator or "", name)])


def _refuse_different(compared: list[tuple[str, str, str]]) -> None:
    different = [f"{what} {there or 'none'}, here {now or 'none'}" for what, there, now in compared if there != now]
    if different:
        raise InductorBenchError(
            f"the configs were found on {'; '.join(different)}: what is fast there may be slow here",
            "break the program down and retune it here",
        )
