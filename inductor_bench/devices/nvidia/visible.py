"""Which GPUs this process may use."""

from __future__ import annotations

import os
import subprocess

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
"""The variable that limits a process to some GPUs; empty, to none."""


def visible_gpus() -> tuple[str, ...]:
    """The GPUs that CUDA would use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    visible = os.environ.get(VISIBLE_GPUS)
    if visible is not None:
        return tuple(name for part in visible.split(",") if (name := part.strip()) and name != "-1")
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(listed.stdout.split()) if listed.returncode == 0 else ()
