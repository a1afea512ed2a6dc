"""The messages between a capture and the user's program: what to run, and what its processes observed.

They are exchanged in files, because the output streams belong to the user's program.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RunProgram:
    """The program to run where the target is not a script.

    Attributes:
        kind: ``factory``, or the name of a library of models.
        place: ``FILE:FACTORY``, or the model's name in the library.
        batch_size: the batch size of a named model.
        refusal: the path to which a :class:`Refusal` is written when the program cannot be run.
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
    """The reason why a program cannot be run. ``kind`` becomes the kind of the failure in the record."""

    kind: str
    message: str
    hint: str


@dataclass(frozen=True)
class Observation:
    """The facts that one process observed about one compiled module.

    Attributes:
        path: path of the module.
        stem: common path of the files about the module, without their suffixes.
        pid: id of the process.
        calls: number of calls of the module.
        threads: number of torch's threads in the process.
        rank: rank of the process in a distributed program.
        cuda_graphs: whether the program runs the module as a CUDA graph.
        max_autotune: whether the program compiles the module with max-autotune.
        tf32: whether products of float32 may be computed in TF32.
        switches: torch's switches that select the library kernels.
        configs: the config of each Triton kernel that ran, by its variable in the module.
        live_reason: the reason to profile the module inside the program; empty where it was not requested.
        live_error: the reason why profiling inside the program failed.
        live: the encoded ``Details`` of the live profile. They are decoded together with the module, so that damaged
            details affect one module only.
    """

    path: str
    stem: str
    pid: int
    calls: int = 0
    threads: int | None = None
    rank: int | None = None
    cuda_graphs: bool = False
    max_autotune: bool = False
    tf32: bool = False
    switches: dict[str, bool] = field(default_factory=dict)
    configs: dict[str, dict[str, int]] = field(default_factory=dict)
    live_reason: str = ""
    live_error: str = ""
    live: dict[str, Any] | None = None
