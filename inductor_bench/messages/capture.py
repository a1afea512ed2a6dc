"""What a capture tells the program that it starts, and what the processes of the program tell of their modules.

These travel in files: the program is the user's, and its output is its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RunProgram:
    """The program to run where the target is not a script.

    Attributes:
        kind: ``factory`` or a library of models.
        place: ``FILE:FACTORY``, or the model's name in the library.
        batch_size: of a named model.
        refusal: the path where a :class:`Refusal` is left when the program cannot be run.
        training, mode, dynamic, amp, device, seed: see ``records.run.Request``.
    """

    kind: str
    place: str
    batch_size: int
    refusal: str
    training: bool | None = None
    mode: str | None = None
    dynamic: bool | None = None
    amp: str | None = None
    device: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class Refusal:
    """Why a program cannot be run. The ``kind`` is that of the failure in the record."""

    kind: str
    message: str
    hint: str


@dataclass(frozen=True)
class Observation:
    """What one process saw of one compiled module.

    Attributes:
        path: of the module.
        stem: the path of the files about it, without their endings.
        pid: the process.
        calls: how often the module was called.
        threads: of torch, in that process.
        rank: of the process in a distributed program.
        cuda_graphs: whether the program runs the module as a CUDA graph.
        tf32: whether products of float32 may be computed in tf32.
        switches: those of torch that decide which library kernels run.
        live_reason: why the module was to be profiled in the program.
        live_error: why it was not.
        live: its encoded ``Details``. It is decoded with the module, so that a damaged one costs that module only.
    """

    path: str
    stem: str
    pid: int
    calls: int = 0
    threads: int | None = None
    rank: int | None = None
    cuda_graphs: bool = False
    tf32: bool = False
    switches: dict[str, bool] = field(default_factory=dict)
    live_reason: str = ""
    live_error: str = ""
    live: dict[str, Any] | None = None
