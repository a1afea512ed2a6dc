"""The program-wide switches of torch that decide which library kernels run: read in the program, set where its modules
are profiled again."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def read_switches() -> dict[str, bool]:
    """The switches as this process has them.

    ``allow_tf32`` refuses to be read where a program has set ``fp32_precision``, which tells of both. (2.11, 2.13)
    """
    return {
        "matmul_tf32": torch.backends.cuda.matmul.fp32_precision == "tf32",
        "cudnn_tf32": torch.backends.cudnn.conv.fp32_precision == "tf32",  # type: ignore[attr-defined]
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
    }


def set_switches(switches: Mapping[str, bool]) -> None:
    """Sets what :func:`read_switches` read in another process."""
    torch.backends.cuda.matmul.allow_tf32 = switches["matmul_tf32"]
    torch.backends.cudnn.allow_tf32 = switches["cudnn_tf32"]
    torch.backends.cudnn.benchmark = switches["cudnn_benchmark"]
    torch.backends.cudnn.deterministic = switches["cudnn_deterministic"]
