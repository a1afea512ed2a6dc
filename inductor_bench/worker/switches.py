"""Reads and sets torch's process-wide switches that select library kernels.

They are read in the user's program, and set in the workers that profile its modules.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch


def read_switches() -> dict[str, bool]:
    """The switches of this process, by name.

    ``fp32_precision`` is read because ``allow_tf32`` raises an error in a program that has set it. (2.11, 2.13)
    """
    return {
        "matmul_tf32": torch.backends.cuda.matmul.fp32_precision == "tf32",
        "cudnn_tf32": torch.backends.cudnn.conv.fp32_precision == "tf32",  # type: ignore[attr-defined]
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
    }


def set_switches(switches: Mapping[str, bool]) -> None:
    """Sets the switches that :func:`read_switches` read in another process."""
    torch.backends.cuda.matmul.allow_tf32 = switches["matmul_tf32"]
    torch.backends.cudnn.allow_tf32 = switches["cudnn_tf32"]
    torch.backends.cudnn.benchmark = switches["cudnn_benchmark"]
    torch.backends.cudnn.deterministic = switches["cudnn_deterministic"]
