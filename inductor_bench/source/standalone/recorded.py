"""The facts that a kernel's standalone file records of its call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from ...records.tuning import Config


class RecordedCall(TypedDict, total=False):
    """The part of a file's ``RECORDED`` that comes from the call and its capture. The harness reads it.

    Attributes:
        launch: the encoded ``Launch``.
        reference: the fingerprint of its outputs; ``None`` where it could not be made.
        threads: the number of threads of the capture, on a CPU.
        vector_isa: the instruction set that torch chose at the capture, on a CPU.
        config: the configuration of a Triton kernel: block sizes, ``num_warps`` and ``num_stages``.
        tolerance: the tolerance of the comparison with the reference, where it is not the harness's own.
    """

    launch: Mapping[str, Any]
    reference: Mapping[str, Any] | None
    threads: int | None
    vector_isa: str | None
    config: Config
    tolerance: float
